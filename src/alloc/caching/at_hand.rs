//! The usual way of a cached block, for which nothing is asked that the thread has found out before: who serves a request, by the
//! handles that it names, and which block begins at an address. What a thread remembers is good until something has changed that it
//! depends on (`moment`).

use super::Caching;
use super::known::{self, Cached};
use crate::alloc::free::{self, FreeOptions};
use crate::alloc::statistics;
use crate::allocator::{self, Allocator, Request};
use crate::cache::{Block, Front, Given, Inner, Lane, Life, MOST_AT_HAND, State};
use crate::capture;
use crate::device::{self, Device};
use crate::error::{Result, error};
use crate::handle::{Entered, Handle};
use crate::ledger::Record;
use crate::moment::{self, Moment};
use crate::runtime;
use crate::stream;
use crate::thread;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

const _: () = assert!(size_of::<Place>() == 64);

/// What a caller named, as it came: handles, 0 for what is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    pub device: Handle,
    pub stream: Handle,
    pub allocator: Handle,
}

/// Who served such a request, at a moment. In whole cache lines: one that lies across two is read late after it was written.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Served {
    asked: Asked,
    moment: Moment,
    device: &'static Device,
    front: &'static Front,
    /// The stream; 0 for memory of the CPU.
    stream: Handle,
    /// Whether the stream has to be asked if it is captured: not while nobody but this library can capture it.
    ask: bool,
}

/// A block that this thread allocated, and the thread's front of its lane. In one cache line, as `Served`.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Seen {
    base: u64,
    block: &'static Block,
    life: Life,
    front: &'static Front,
}

const SERVED: usize = 64;
const SEEN: usize = 2048;

/// What is seen of the blocks of one place: of two, since with one a tenth of a thousand blocks would push another one out. In one
/// cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Place([Option<Seen>; 2]);

/// What a thread remembers. Its own, and that of the next thread which has its record.
struct Hands {
    served: UnsafeCell<[Option<Served>; SERVED]>,
    seen: UnsafeCell<[Place; SEEN]>,
    /// By the address of their lanes.
    fronts: UnsafeCell<HashMap<usize, &'static Front>>,
}

impl Hands {
    #[inline(always)]
    fn of(me: &'static thread::Record) -> Option<&'static Hands> {
        // SAFETY: NULL or a leaked box; only the record's own thread comes here.
        unsafe { me.attached().load(Ordering::Relaxed).cast::<Hands>().as_ref() }
    }

    #[cold]
    fn make(me: &'static thread::Record) -> &'static Hands {
        let hands: &'static Hands = Box::leak(Box::new(Hands {
            served: UnsafeCell::new([None; SERVED]),
            seen: UnsafeCell::new([Place([None; 2]); SEEN]),
            fronts: UnsafeCell::new(HashMap::new()),
        }));
        me.attached().store(std::ptr::from_ref(hands).cast_mut().cast(), Ordering::Relaxed);
        hands
    }

    /// Who served such a request, as far as is remembered.
    #[inline(always)]
    fn served(&self, asked: &Asked) -> Option<&Served> {
        // SAFETY: only the record's own thread comes here, and changes an entry only while it has no reference to one.
        let served = unsafe { &(&*self.served.get())[Self::place(asked)] };
        served.as_ref().filter(|served| served.asked == *asked)
    }

    fn remember(&self, served: Served) {
        // SAFETY: as in `served`.
        unsafe { (&mut *self.served.get())[Self::place(&served.asked)] = Some(served) };
    }

    #[inline(always)]
    fn place(asked: &Asked) -> usize {
        // Handles are mixed well.
        (asked.device ^ asked.stream ^ asked.allocator) as usize % SERVED
    }

    /// The block that begins at an address, as far as is remembered.
    #[inline(always)]
    fn seen(&self, base: u64) -> Option<Seen> {
        // SAFETY: as in `served`.
        let Place([first, second]) = unsafe { &(&*self.seen.get())[Self::place_of(base)] };
        first.filter(|seen| seen.base == base).or_else(|| second.filter(|seen| seen.base == base))
    }

    /// It is freed: its place is another one's.
    #[inline(always)]
    fn forget(&self, base: u64) {
        // SAFETY: as in `served`.
        let Place([first, second]) = unsafe { &mut (&mut *self.seen.get())[Self::place_of(base)] };
        let is_first = first.is_some_and(|first| first.base == base);
        *(if is_first { first } else { second }) = None;
    }

    /// The one seen last stands first. Whoever stood there gives way to the other place, if it is of another block.
    #[inline(always)]
    fn see(&self, seen: Seen) {
        // SAFETY: as in `served`.
        let Place([first, second]) = unsafe { &mut (&mut *self.seen.get())[Self::place_of(seen.base)] };
        if first.is_some_and(|first| first.base != seen.base) {
            *second = *first;
        }
        *first = Some(seen);
    }

    #[inline(always)]
    fn place_of(base: u64) -> usize {
        // Large blocks differ in high bits alone; the upper bits of the product depend on all.
        ((base >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SEEN.ilog2())) as usize % SEEN
    }

    /// The thread's front of a lane. `None` when the lane is closed.
    fn front(&self, lane: &'static Lane) -> Option<&'static Front> {
        // SAFETY: as in `served`; nothing that is called here comes here again.
        let fronts = unsafe { &mut *self.fronts.get() };
        let key = std::ptr::from_ref(lane).addr();
        match fronts.get(&key) {
            Some(front) if !front.is_free() => return Some(front),
            _ => {}
        }
        // One of a lane that is done with serves this one: rather this one's own of before, whose place is needed.
        let free = fronts.get_key_value(&key).or_else(|| fronts.iter().find(|(_, front)| front.is_free()));
        let free = free.map(|(key, front)| (*key, *front));
        let front = lane.front(free.map(|(_, front)| front))?;
        if let Some((before, _)) = free {
            fronts.remove(&before);
        }
        fronts.insert(key, front);
        Some(front)
    }
}

/// As `allocate`, of a request that names what one before has named and been remembered for. `None` when there is more to it.
#[inline(always)]
pub fn allocate_again(asked: Asked, size: u64) -> Option<u64> {
    let me = thread::mine();
    let hands = Hands::of(me)?;
    let served = hands.served(&asked)?;
    let front = served.front;
    if served.moment != moment::now(me)
        || size.wrapping_sub(1) >= MOST_AT_HAND
        || !runtime::frees_as_usual()
        || served.device.is_lost()
        || may_be_captured(served)
    {
        return None;
    }
    let (block, life) = match front.take(size, 0) {
        Some(taken) => taken,
        None => cut_again(front, size)?,
    };
    let base = block.base();
    statistics::count_cached_alloc(me, served.device, block.kind(), size);
    hands.see(Seen { base, block, life, front });
    Some(base)
}

/// A block from the heap, where that has one.
#[inline(never)]
fn cut_again(front: &'static Front, size: u64) -> Option<(&'static Block, Life)> {
    front.lane()?.lock().take_out_for(front, size, 0)
}

#[inline(always)]
fn may_be_captured(served: &Served) -> bool {
    if served.stream == 0 {
        return capture::captures_cpu();
    }
    (served.ask || capture::some_are_open()) && is_captured(served.stream)
}

/// Whether a stream is captured, for all that is known.
fn is_captured(stream: Handle) -> bool {
    let Ok(driver) = runtime::driver() else { return true };
    let Ok(stream) = stream::enter(stream) else { return true };
    stream.enter_context(driver).is_err() || stream.is_capturing(driver).unwrap_or(true)
}

/// Serves a request, and remembers who did if that was a cache, for `allocate_again`.
pub fn remembering(asked: Asked, allocate: impl FnOnce() -> Result<u64>) -> Result<u64> {
    // From before it is looked for.
    let moment = super::ever_was().then(|| moment::now(thread::mine()));
    let address = allocate()?;
    if let Some(moment) = moment {
        remember(asked, moment, address);
    }
    Ok(address)
}

fn remember(asked: Asked, moment: Moment, address: u64) {
    let me = thread::mine();
    let Some(hands) = Hands::of(me) else { return };
    // Else another allocator may have served it, at an address that a cache had before.
    let Some(seen) = hands.seen(address).filter(|seen| seen.block.life() == seen.life) else { return };
    let Some(lane) = seen.front.lane() else { return };
    let Some(device) = device::at(lane.of().device()) else { return };
    let (stream, ask) = if device.is_cuda() {
        let Some(held) = lane.of().stream() else { return };
        let Some(stream) = stream::enter_held(me, held) else { return };
        (stream::handle_of(&stream), stream.is_known_elsewhere())
    } else {
        (0, false)
    };
    let served = Served { asked, moment, device, front: seen.front, stream, ask };
    hands.remember(served);
}

/// Frees a block that this thread has had to do with on this way. False when there is more to it, and nothing is done.
#[inline(always)]
pub fn free_again(address: u64) -> bool {
    let me = thread::mine();
    let Some(hands) = Hands::of(me) else { return false };
    let Some(Seen { block, life, front, .. }) = hands.seen(address) else { return false };
    let Some(lane) = front.lane() else { return false };
    // In another life it may be another lane's.
    if !block.lane().is_some_and(|of| std::ptr::eq(of, lane)) || !runtime::frees_as_usual() {
        return false;
    }
    let Some(device) = device::at(lane.of().device()) else { return false };
    let kind = block.kind();
    let told = |asked| statistics::count_cached_free(me, device, kind, asked);
    match front.give(block, life, told) {
        Given::Done => {
            hands.forget(address);
            true
        }
        Given::NotOut => false,
        Given::NoRoom => {
            hands.forget(address);
            put_again(lane, block, life, told)
        }
    }
}

/// Whether a block was made by the process that this one was forked from.
#[cold]
fn is_of_parent(block: &Block) -> bool {
    let from = block.lane().and_then(|lane| allocator::hold_by_slot(lane.of().allocator()));
    from.is_none_or(|from| super::of(&from).is_none_or(|caching| caching.require_own_process().is_err()))
}

/// To the heap, past what the thread has at hand. False when the block is not out.
#[inline(never)]
fn put_again(lane: &'static Lane, block: &'static Block, life: Life, told: impl FnOnce(u64)) -> bool {
    let Some(has_enough) = lane.lock().put_out(block, life, told) else { return false };
    if has_enough {
        super::keep_less(lane);
    }
    true
}

/// Serves a request on this way. `None` where it has to go that of any allocator.
pub fn allocate(caching: &Caching, from: &Entered<Allocator>, request: &Request<'_>) -> Option<Result<u64>> {
    let me = from.thread();
    let hands = Hands::of(me).unwrap_or_else(|| Hands::make(me));
    let lane = match caching.lane(request) {
        Ok(lane) => lane,
        Err(error) => return Some(Err(error)),
    };
    let front = hands.front(lane)?;
    let (block, life) = match front.take(request.size, request.tag) {
        Some(taken) => taken,
        None => {
            let take = |inner: &mut Inner| inner.take_out(request.size, request.tag);
            match caching.cut(lane, Some(front), request, take) {
                Ok(taken) => taken?,
                Err(error) => return Some(Err(error)),
            }
        }
    };
    let base = block.base();
    statistics::count_cached_alloc(me, request.device, block.kind(), request.size);
    hands.see(Seen { base, block, life, front });
    Some(Ok(base))
}

/// Frees a block on this way that was found by its record, on any thread. `None` where it has to go that of any block.
#[inline(never)]
pub fn free_found(
    address: u64,
    forked: bool,
    options: &FreeOptions<'_>,
    check: impl Fn(&Record, &FreeOptions<'_>) -> Result<()>,
) -> Option<Result<()>> {
    loop {
        let (block, life, record) = match known::cached(address)? {
            Cached::Out(block, life, record) => (block, life, record),
            Cached::Told => return None,
            Cached::Nobodys => {
                return Some(Err(error!(
                    DoubleFree,
                    "{address:#x} is no live block, but memory that a cache keeps: it was freed before, or never was a block's first address; nothing was freed"
                )));
            }
        };
        if record.base() != address {
            return Some(Err(free::interior(address, &record)));
        }
        if let Err(error) = check(&record, options) {
            return Some(Err(error));
        }
        let device = device::at(record.device())?;
        let me = thread::mine();
        let told = |asked| statistics::count_cached_free(me, device, block.kind(), asked);
        if forked && is_of_parent(block) {
            // The child only forgets: the parent has the block.
            if block.turn(life, State::Void) {
                told(record.size());
                return Some(Ok(()));
            }
            continue;
        }
        if !options.stream.is_none_or(|stream| free::is_own(&record, stream)) || device.is_lost() {
            known::tell(address);
            return None;
        }
        let lane = block.lane()?;
        let hands = Hands::of(me).unwrap_or_else(|| Hands::make(me));
        let front = hands.front(lane);
        match front.map_or(Given::NoRoom, |front| front.give(block, life, told)) {
            Given::Done => return Some(Ok(())),
            // Another thread was faster: what the block is now is seen in the next round.
            Given::NotOut => {}
            Given::NoRoom if put_again(lane, block, life, told) => return Some(Ok(())),
            Given::NoRoom => {}
        }
    }
}
