//! Which memory of a cache belongs to which stream, and how it comes to another one, or goes back to where it came from: in the order
//! of its stream, or when that has nothing left to do.

use super::Caching;
use super::lost::{is_dead, is_lost};
use crate::alloc::NATURAL_ALIGNMENT;
use crate::allocator::{Request, flags};
use crate::cache::{Chunk, Lane, Owner};
use crate::device::{self, Device};
use crate::error::{Result, fail};
use crate::log::{self, log};
use crate::moment;
use crate::runtime;
use crate::stream::{self, Stream};
use crate::{alloc::parked, handle::Entered, thread};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// As many bytes as each thread has at hand of a lane in small blocks, and in large ones, and one block more.
const BYTES_AT_HAND: u64 = 64 << 20;

/// The lanes of a cache by device and stream; without a stream for memory of the CPU.
#[derive(Default)]
pub struct Lanes(HashMap<(u16, Option<u32>), &'static Lane>);

impl Lanes {
    /// Takes out those that are like that.
    pub fn take(&mut self, is_it: impl Fn(&Lane) -> bool) -> Vec<&'static Lane> {
        self.0.extract_if(|_, lane| is_it(lane)).map(|(_, lane)| lane).collect()
    }
}

/// How far a lane's stream is with the work that its memory was used for.
enum Work {
    /// The stream goes on: what is given back in its order comes after the work.
    Goes(Entered<Stream>),
    /// Nothing is left to wait for.
    Done,
    /// The stream is gone, its work is not done, or nobody can tell.
    Unknown,
}

impl Caching {
    /// All lanes, or those of a device.
    pub fn lanes_of(&self, device: Option<&Device>) -> Vec<&'static Lane> {
        let lanes = self.lanes.lock();
        let is_its = |lane: &&&'static Lane| device.is_none_or(|device| device.index() == lane.of().device());
        lanes.0.values().filter(is_its).copied().collect()
    }

    /// The memory that a request is served from. It holds the request's stream.
    pub fn lane(&self, request: &Request<'_>) -> Result<&'static Lane> {
        let stream = request.stream.filter(|_| request.device.is_cuda());
        let key = (request.device.index(), stream.map(|stream| stream.index()));
        if self.losses.load(Ordering::Acquire) != device::losses() {
            self.forget_lost();
        }
        if let Some(lane) = self.lanes.lock().0.get(&key) {
            return Ok(lane);
        }
        if self.lanes_of(None).into_iter().any(is_lost) {
            self.forget_lost();
        }
        let ended = stream.and_then(|_| self.ended_lane(request.device));
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes.0.get(&key) {
            return Ok(lane);
        }
        let slot = self.slot.load(Ordering::Acquire);
        if slot == 0 {
            fail!(Internal, "a caching allocator without a handle was asked");
        }
        // Of several who found it one takes it.
        if let (Some(stream), Some((lane, before))) = (stream, ended)
            && lanes.0.get(&(key.0, Some(before))).is_some_and(|of| std::ptr::eq(*of, lane))
        {
            {
                // Who looks for the stream under the lock may use what it found until the lock is free.
                let mut alone = lane.lock();
                lane.of().set_stream(stream.hold());
                alone.move_all();
            }
            lanes.0.remove(&(key.0, Some(before)));
            lanes.0.insert(key, lane);
            drop(lanes);
            moment::passed();
            // SAFETY: the lane had the hold.
            unsafe { stream::release_hold(before) };
            return Ok(lane);
        }
        let owner = Owner {
            device: key.0,
            stream: stream.map(Entered::hold),
            allocator: slot - 1,
            most_at_hand: if self.settings.keep == 0 {
                BYTES_AT_HAND
            } else {
                self.settings.keep.min(BYTES_AT_HAND)
            },
            totals: self.totals,
        };
        let lane = Lane::make(&owner);
        // `closing` says so first and closes the lanes that there are then.
        if self.closing.load(Ordering::SeqCst) {
            lane.lock().close();
        }
        lanes.0.insert(key, lane);
        Ok(lane)
    }

    /// A lane of the device of which nobody has a block, whose stream was released and has done all its work; and that stream.
    fn ended_lane(&self, device: &'static Device) -> Option<(&'static Lane, u32)> {
        let driver = runtime::driver().ok()?;
        let me = thread::mine();
        let mut released: Vec<_> = {
            let lanes = self.lanes.lock();
            let of_device = lanes.0.iter().filter(|((of, _), _)| *of == device.index());
            of_device.filter_map(|((_, held), lane)| Some((*lane, (*held)?))).collect()
        };
        released.retain(|(_, held)| stream::enter_held(me, *held).is_none());
        if released.is_empty() {
            return None;
        }
        let _entered = device.enter_relaxed(driver).ok()?;
        log::after(|| {
            released.into_iter().find(|(lane, held)| {
                let mut inner = lane.lock();
                // SAFETY: the lane has a hold as long as this is its stream, which does not change under the lock.
                let has_ended = lane.of().stream() == Some(*held)
                    && parked::has_ended(driver, unsafe { stream::held(*held) }).unwrap_or(false);
                // Blocks that somebody has keep the stream that they were allocated on.
                has_ended && {
                    inner.gather(None);
                    inner.heap().free == inner.heap().reserved
                }
            })
        })
    }

    fn work_of(&self, lane: &Lane) -> Work {
        let Some(device) = device::at(lane.of().device()) else { return Work::Unknown };
        if !device.is_cuda() || device.is_lost() {
            return Work::Done;
        }
        let Ok(driver) = runtime::driver() else { return Work::Done };
        let Some(held) = lane.of().stream() else { return Work::Done };
        if let Some(stream) = stream::enter_held(thread::mine(), held) {
            return Work::Goes(stream);
        }
        let Ok(_entered) = device.enter_relaxed(driver) else { return Work::Unknown };
        // SAFETY: the lane has a hold.
        match parked::has_ended(driver, unsafe { stream::held(held) }) {
            Ok(true) => Work::Done,
            _ => Work::Unknown,
        }
    }

    /// Whether the work of a lane's stream is surely done by now.
    fn is_idle(&self, lane: &Lane) -> bool {
        match self.work_of(lane) {
            Work::Done => true,
            Work::Unknown => false,
            Work::Goes(stream) => {
                let device = stream.device();
                let Ok(driver) = runtime::driver() else { return true };
                let Ok(_entered) = device.enter_relaxed(driver) else { return false };
                stream::is_surely_idle(driver, &stream).unwrap_or(false)
            }
        }
    }

    /// Whether chunks that nobody uses will be free to go when work is done that goes on now.
    pub fn some_will_be_idle(&self, device: Option<&'static Device>) -> bool {
        self.lanes_of(device).into_iter().any(|lane| {
            let will_be = || match self.work_of(lane) {
                Work::Goes(stream) => stream.is_owned() && is_surely_not_captured(&stream),
                Work::Done | Work::Unknown => true,
            };
            lane.lock().heap().whole != 0 && will_be()
        })
    }

    /// Whether a lane is of this cache.
    pub fn has(&self, lane: &'static Lane) -> bool {
        self.lanes.lock().0.values().any(|of| std::ptr::eq(*of, lane))
    }

    /// Has a lane use what another one of the device has free as a whole, and whose work is done. False when there is nothing.
    pub fn borrow(&self, lane: &'static Lane, request: &Request<'_>) -> bool {
        let (size, small) = crate::cache::chunk_for(request.size);
        for other in self.lanes_of(Some(request.device)) {
            if std::ptr::eq(other, lane) {
                continue;
            }
            // Under the lock from the look to the taking: what comes free meanwhile may still be worked on.
            let chunk = log::after(|| {
                let mut inner = other.lock();
                if !self.owns(other) || inner.heap().free + inner.at_hand() < size {
                    return None;
                }
                if !inner.heap().has_whole(size, small) && inner.at_hand() != 0 {
                    inner.gather(None);
                }
                (inner.heap().has_whole(size, small) && self.is_idle(other))
                    .then(|| inner.remove_one(size, small))?
            });
            if let Some(chunk) = chunk {
                let chunk = Chunk { moved: true, ..chunk };
                let is_taken = self.put_into(lane, chunk);
                if !is_taken {
                    self.give_back(other, chunk, None);
                }
                return is_taken;
            }
        }
        false
    }

    /// Has a lane have a chunk. False without host memory for it, or when the lane is, or is about to be, another allocator's.
    fn put_into(&self, lane: &'static Lane, chunk: Chunk) -> bool {
        let mut inner = lane.lock();
        self.owns(lane) && !is_lost(lane) && inner.add(chunk).is_ok()
    }

    /// Gives chunks that nobody uses back to where they came from, of a device or of all, until they have `bytes` together; how many
    /// bytes went. `idle`: only those whose work is done.
    pub fn give_back_whole(&self, device: Option<&'static Device>, bytes: u64, idle: bool) -> u64 {
        let mut given = 0;
        for lane in self.lanes_of(device) {
            if given < bytes {
                given += self.give_back_of_lane(lane, |_| bytes - given, idle);
            }
        }
        given
    }

    /// Gives back what is free in whole chunks beyond what is to be kept.
    pub fn keep_less(&self, lane: &'static Lane) {
        let keep = self.settings.keep;
        self.give_back_of_lane(lane, |whole| whole.saturating_sub(keep), false);
    }

    /// Whether a chunk can go back in the order of its lane's stream: most allocators know the stream alone that it came for.
    fn goes_in_order(&self, chunk: &Chunk) -> bool {
        let below = self.upstream.traits();
        below.ordered && (below.any_stream || !chunk.moved)
    }

    /// Whether chunks that came for a stream can go back in its order now.
    fn orders_after(&self, stream: &Entered<Stream>) -> bool {
        let below = self.upstream.traits();
        below.ordered && (below.any_stream || is_surely_not_captured(stream))
    }

    /// `bytes` is told what is free in whole chunks of all lanes together, and says how much of it is to go.
    fn give_back_of_lane(&self, lane: &'static Lane, bytes: impl FnOnce(u64) -> u64, idle: bool) -> u64 {
        // Under the lock from the look at the work to the taking, as in `borrow`.
        let (chunks, stream) = log::after(|| {
            let mut inner = lane.lock();
            if !self.owns(lane) {
                return (Vec::new(), None);
            }
            inner.gather(None);
            if inner.heap().whole == 0 {
                return (Vec::new(), None);
            }
            let all_in_order = self.upstream.traits().any_stream || !inner.heap().has(|chunk| chunk.moved);
            let stream = match self.work_of(lane) {
                Work::Done => None,
                Work::Goes(stream) if !idle && all_in_order && self.orders_after(&stream) => Some(stream),
                _ if self.is_idle(lane) => None,
                Work::Goes(stream) if !idle && self.orders_after(&stream) => Some(stream),
                _ => return (Vec::new(), None),
            };
            let bytes = bytes(self.totals.whole.load(Ordering::Relaxed));
            let may_go = |chunk: &Chunk| stream.is_none() || self.goes_in_order(chunk);
            (inner.remove_whole(bytes, may_go), stream)
        });
        chunks.into_iter().map(|chunk| self.give_back(lane, chunk, stream.as_ref())).sum()
    }

    /// Gives one chunk back; in the order of a stream, or idle without one.
    fn give_back(&self, lane: &'static Lane, chunk: Chunk, stream: Option<&Entered<Stream>>) -> u64 {
        let Some(device) = device::at(chunk.like.device()) else { return 0 };
        let lost = if is_dead(&chunk) { flags::DEVICE_LOST } else { 0 };
        let idle = if stream.is_none() { flags::IDLE } else { 0 };
        let request = Request {
            device,
            size: chunk.size,
            alignment: NATURAL_ALIGNMENT,
            stream,
            tag: 0,
            flags: lost | idle,
        };
        match self.upstream.deallocate(chunk.base, &request) {
            Err(error) if crate::allocator::may_be_repeated(&error) => {
                if !self.put_into(lane, chunk) {
                    log!(Error, "{} bytes of cached memory are lost: {error}", chunk.size);
                }
                return 0;
            }
            Err(error) => log!(Error, "{} bytes of cached memory did not go back: {error}", chunk.size),
            Ok(()) => {}
        }
        self.reserved.fetch_sub(chunk.size, Ordering::AcqRel);
        chunk.size
    }

    /// Gives all chunks back of a lane that is about to be nobody's. What cannot go back is asked for once more, and then lost.
    pub fn give_back_at_last(
        &self,
        lane: &'static Lane,
        chunks: Vec<Chunk>,
        stream: Option<&Entered<Stream>>,
    ) {
        self.give_back_surely(lane, chunks, stream, |_| true);
    }

    /// As `give_back_at_last`, of a lane from which just those are to go.
    pub fn give_back_surely(
        &self,
        lane: &'static Lane,
        chunks: Vec<Chunk>,
        stream: Option<&Entered<Stream>>,
        is_to_go: impl Fn(&Chunk) -> bool,
    ) {
        let give = |chunks: Vec<Chunk>| {
            chunks.into_iter().for_each(|chunk| _ = self.give_back(lane, chunk, stream));
            lane.lock().remove_whole(u64::MAX, &is_to_go)
        };
        let again = give(chunks);
        for chunk in give(again) {
            log!(
                Error,
                "{} bytes of cached memory are lost: their allocator does not take them back",
                chunk.size
            );
        }
    }

    /// At the end, when no block of it is out: everything goes back, whatever its streams do, and they are let go of.
    pub fn let_go_of_all(&self) {
        let lanes: Vec<_> = self.lanes.lock().0.drain().map(|(_, lane)| lane).collect();
        for lane in lanes {
            let chunks = {
                let mut inner = lane.lock();
                inner.close();
                if is_lost(lane) {
                    inner.remove_dead(|_| true, |_| ())
                } else {
                    inner.remove_whole(u64::MAX, |_| true)
                }
            };
            let stream = match self.work_of(lane) {
                Work::Goes(stream) if chunks.iter().all(|chunk| self.goes_in_order(chunk)) => Some(stream),
                Work::Done => None,
                Work::Goes(_) | Work::Unknown => {
                    if !chunks.is_empty() {
                        wait_for(lane);
                    }
                    None
                }
            };
            self.give_back_at_last(lane, chunks, stream.as_ref());
            drop(stream);
            give_up(lane);
        }
    }
}

fn is_surely_not_captured(stream: &Entered<Stream>) -> bool {
    runtime::driver().is_ok_and(|driver| stream.is_surely_not_captured(driver))
}

/// A lane that is in no list any more, and has no memory.
pub fn give_up(lane: &'static Lane) {
    if let Some(held) = lane.of().stream() {
        // SAFETY: the lane had the hold, and is no lane any more.
        unsafe { stream::release_hold(held) };
    }
    lane.give_up();
}

/// Waits for the work of a lane's device: of a stream that cannot be asked any more.
fn wait_for(lane: &Lane) {
    if let Some(device) = device::at(lane.of().device())
        && let Err(error) = stream::synchronize_device(device)
    {
        log!(Warning, "cached memory goes back without a wait for its last users: {error}");
    }
}
