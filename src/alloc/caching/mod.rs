//! The caching allocator: memory from another one, kept for the next who wants some, in the order of each stream. What is kept, and
//! how it is cut, is the room `cache`'s; here is where the memory comes from and goes, and what the ledger knows of it.
//!
//! A block leaves in one of two ways. As one of any allocator's it is in the ledger with all that there is to say (*told*). On the
//! usual way (`at_hand`) the ledger does not know it, and who looks for it there finds it by its chunk (`known`); such a block becomes
//! a told one as soon as there is more to say, as that another stream uses it.

mod at_hand;
mod known;
mod lanes;
mod lost;

pub use at_hand::{Asked, allocate_again, free_again, free_found, remembering};
pub use known::{each, find, find_unknown, is_kept, tell, was_freed};
pub use lost::make_way;

use super::builtin::Order;
use super::patience::Patience;
use super::{Kind, LEDGER, NATURAL_ALIGNMENT};
use super::{custom, direct};
use crate::allocator::{self, Allocator, Request, Source, Stacked, Statistics, Traits, Upstream, flags};
use crate::cache::{self, Block, Chunk, Inner, Lane, Life, Refused, State, Totals};
use crate::device::{self, Device};
use crate::error::{Error, Result, Status, error, fail};
use crate::fork::Lock;
use crate::handle::{Entered, Handle};
use crate::lock::Mutex;
use crate::log::log;
use crate::runtime;
use crate::stream::Stream;
use lanes::Lanes;
use std::any::Any;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How often memory is got for a request that others are faster to take.
const TRIES: u32 = 100;

/// How a caching allocator is to be. Zero is the default everywhere.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// As many bytes as it has from below; 0 for any number.
    pub limit: u64,
    /// As many unused bytes as it keeps in whole chunks; 0 for any number.
    pub keep: u64,
}

/// See the top of the file.
pub struct Caching {
    upstream: Upstream,
    /// What serves captures, where that is another one.
    in_captures: Option<Upstream>,
    settings: Settings,
    lanes: Mutex<Lanes>,
    totals: &'static Totals,
    /// Bytes that it has from below, or is asking for.
    reserved: AtomicU64,
    peak_reserved: AtomicU64,
    /// Blocks that callers have of memory that a lost device's context took along: the ledger knows them, the cache no more. How many at
    /// an address, which the driver gives again.
    orphans: Mutex<HashMap<u64, u32>>,
    /// As many devices were lost when it last looked what they took along.
    losses: AtomicU64,
    /// How often more memory was asked for.
    grown: AtomicU64,
    failures: AtomicU64,
    /// Plus one; 0 until it is known.
    slot: AtomicU32,
    closing: AtomicBool,
    stopped: AtomicBool,
    process: u32,
}

/// What there is of an allocator's memory on one device, or on all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    pub reserved: u64,
    pub peak_reserved: u64,
    /// Bytes of blocks that are out, as many as were asked for.
    pub live: u64,
    pub live_blocks: u64,
    /// The same as they are cut.
    pub used: u64,
    /// Unused bytes: in the heaps, and at hand.
    pub free: u64,
    pub at_hand: u64,
    pub largest_free: u64,
    pub chunks: u64,
    /// How often a block was handed out by what a thread had at hand, by a heap, and only after more memory came.
    pub from_hand: u64,
    pub from_heap: u64,
    pub grown: u64,
}

impl Caching {
    pub fn new(upstream: Upstream, in_captures: Option<Upstream>, settings: Settings) -> Result<Caching> {
        Stacked::require_room(&[&upstream])?;
        Ok(Caching {
            upstream,
            in_captures,
            settings,
            lanes: Mutex::new(Lanes::default()),
            totals: Totals::make(settings.keep),
            reserved: AtomicU64::new(0),
            peak_reserved: AtomicU64::new(0),
            orphans: Mutex::new(HashMap::new()),
            losses: AtomicU64::new(device::losses()),
            grown: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            slot: AtomicU32::new(0),
            closing: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            process: std::process::id(),
        })
    }

    fn require_own_process(&self) -> Result<()> {
        if runtime::is_forked() && self.process != std::process::id() {
            fail!(
                Forked,
                "the caching allocator was made before this process was forked; make one after the fork"
            );
        }
        Ok(())
    }

    /// An error when it serves nobody any more, or not in this process.
    fn require_serving(&self) -> Result<()> {
        if self.stopped.load(Ordering::Acquire) {
            fail!(
                AllocatorFailed,
                "the caching allocator was stopped, and serves nothing any more; install another one, or NULL for the built-in"
            );
        }
        self.require_own_process()
    }

    /// Whether the request is one that the cache has memory for.
    fn caches(&self, request: &Request<'_>) -> bool {
        request.flags & flags::IN_CAPTURE == 0
            && request.alignment <= NATURAL_ALIGNMENT
            && request.size <= cache::LARGEST
            && request.stream.is_none_or(|stream| !stream.is_untracked() && !stream.native().is_special())
    }

    /// What serves a request that the cache has no memory for.
    fn past(&self, request: &Request<'_>) -> &Upstream {
        match &self.in_captures {
            Some(other) if request.flags & flags::IN_CAPTURE != 0 => other,
            _ => &self.upstream,
        }
    }

    /// A block of a lane's heap, as `take` takes it under the lock. `None` when the lane is closed for what goes the usual way
    /// (`mine` is the calling thread's front), which this was asked for.
    fn cut<T>(
        &self,
        lane: &'static Lane,
        mine: Option<&'static cache::Front>,
        request: &Request<'_>,
        take: impl Fn(&mut Inner) -> Option<T>,
    ) -> Result<Option<T>> {
        // One for all tries.
        let mut patience = None;
        for _ in 0..TRIES {
            let mut inner = lane.lock();
            self.require_same(lane, request)?;
            if mine.is_some() && inner.is_closed() {
                return Ok(None);
            }
            let mut taken = take(&mut inner);
            // What threads have at hand may be enough when it is joined.
            let gathered = taken.is_none() && inner.gather_for(mine, request.size);
            if gathered {
                taken = take(&mut inner);
            }
            let has_enough = gathered && inner.has_enough();
            drop(inner);
            if has_enough {
                self.keep_less(lane);
            }
            if taken.is_some() {
                return Ok(taken);
            }
            if !self.borrow(lane, request) {
                self.grow(lane, request, patience.get_or_insert_with(Patience::new)).inspect_err(|_| {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                })?;
            }
        }
        fail!(
            OutOfMemory,
            "other threads were always faster to take what was got for {} bytes; ask again, or free some of what is out",
            request.size
        )
    }

    /// An error when a lane that was found for a request is another one by now: its device was lost meanwhile. Under its lock.
    fn require_same(&self, lane: &Lane, request: &Request<'_>) -> Result<()> {
        let stream = request.stream.filter(|_| request.device.is_cuda()).map(|stream| stream.index());
        let of = lane.of();
        // What comes to the lane of a lost device now is not seen any more by who gives that up.
        let is_same = !request.device.is_lost()
            && self.owns(lane)
            && of.device() == request.device.index()
            && of.stream() == stream;
        if is_same { Ok(()) } else { Err(request.device.lost_error()) }
    }

    /// Whether a lane that was found before is still one of this allocator: a lost device's are given up at any moment, and may serve
    /// another one. Under its lock.
    fn owns(&self, lane: &Lane) -> bool {
        lane.of().allocator() + 1 == self.slot.load(Ordering::Acquire)
    }

    /// Gets memory from below.
    fn grow(&self, lane: &'static Lane, request: &Request<'_>, patience: &mut Patience) -> Result<()> {
        self.grown.fetch_add(1, Ordering::Relaxed);
        let (size, small) = cache::chunk_for(request.size);
        let wanted = Request { size, alignment: NATURAL_ALIGNMENT, tag: 0, flags: 0, ..*request };
        if self.reserved.load(Ordering::Relaxed) + size > self.peak_reserved.load(Ordering::Relaxed) {
            // Before it has more than ever: what is there in other sizes.
            self.give_back_whole(Some(request.device), size, true);
        }
        let address =
            self.ask_patiently(&self.upstream, &wanted, patience).map_err(|error| match error.status {
                Status::OutOfMemory => self.short(request, error),
                _ => error,
            })?;
        let give_back = |_: &Error| {
            self.reserved.fetch_sub(size, Ordering::Relaxed);
            allocator::tell_of_unusable(self.upstream.deallocate(address, &wanted));
        };
        let made = custom::what_was_made(&self.upstream, &wanted, address).inspect_err(give_back)?;
        let chunk = Chunk { base: address, size, small, moved: false, like: made.record(address, &wanted) };
        let add = || {
            let mut inner = lane.lock();
            self.require_same(lane, request).map(|()| inner.add(chunk))
        };
        let mut added = add().inspect_err(give_back)?;
        if added == Err(Refused::InUse) {
            // It may be what a lost device's context took along.
            lost::forget();
            added = add().inspect_err(give_back)?;
        }
        match added {
            Ok(()) => {
                lost::drop_records(address, size);
                Ok(())
            }
            Err(Refused::NoMemory) => {
                let error = error!(OutOfMemory, "no host memory for what is to be known of cached memory");
                give_back(&error);
                Err(error)
            }
            // It is not given back: it is in use.
            Err(Refused::InUse) => {
                self.reserved.fetch_sub(size, Ordering::Relaxed);
                fail!(
                    AllocatorFailed,
                    "{} gave {address:#x} for {size} bytes, of which a cache has some already; it does not have them back: let an allocator hand out what nobody has, from warp_allocator_allocate",
                    self.upstream.title()
                )
            }
        }
    }

    /// As `ask`; when there is no memory, once more after what nobody uses went back, and whenever some of it is done with in a moment.
    fn ask_patiently(
        &self,
        upstream: &Upstream,
        wanted: &Request<'_>,
        patience: &mut Patience,
    ) -> Result<u64> {
        let mut refused = match self.ask(upstream, wanted) {
            Err(error) if error.status == Status::OutOfMemory => error,
            asked => return asked,
        };
        // The limit is one of all devices together.
        let device = if self.settings.limit == 0 { Some(wanted.device) } else { None };
        loop {
            if self.give_back_whole(device, u64::MAX, false) != 0 {
                match self.ask(upstream, wanted) {
                    Err(error) if error.status == Status::OutOfMemory => refused = error,
                    asked => return asked,
                }
            }
            // A capture is not made to wait, nor who may have a lock that a callback wants.
            if wanted.flags & flags::IN_CAPTURE != 0
                || allocator::is_inside_a_callback()
                || !self.some_will_be_idle(device)
                || patience.is_over()
            {
                return Err(refused);
            }
            patience.pause();
        }
    }

    /// Asks below, within the limit. What comes counts as reserved.
    fn ask(&self, upstream: &Upstream, wanted: &Request<'_>) -> Result<u64> {
        let limit = self.settings.limit;
        let mut refused = 0;
        let reserved = self.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, |reserved| {
            refused = reserved;
            reserved.checked_add(wanted.size).filter(|sum| limit == 0 || *sum <= limit)
        });
        if reserved.is_err() {
            fail!(
                OutOfMemory,
                "the caching allocator may reserve {limit} bytes, has {refused}, and needs {} more; free some of it, or make it with a larger limit",
                wanted.size
            );
        }
        match upstream.allocate(wanted) {
            Ok(address) => {
                self.peak_reserved.fetch_max(self.reserved.load(Ordering::Relaxed), Ordering::Relaxed);
                Ok(address)
            }
            Err(error) => {
                self.reserved.fetch_sub(wanted.size, Ordering::AcqRel);
                Err(error)
            }
        }
    }

    #[cold]
    fn short(&self, request: &Request<'_>, mut error: Error) -> Error {
        let measured = self.measure(Some(request.device));
        error.message = format!(
            "{} bytes on \"{}\": {}; the cache there has {} bytes, of which {} are in use and {} unused in pieces of up to {}",
            request.size,
            request.device.alias(),
            error.message,
            measured.reserved,
            measured.used,
            measured.free + measured.at_hand,
            measured.largest_free
        );
        error
    }

    /// What there is on a device, or on all.
    pub fn measure(&self, device: Option<&Device>) -> Measured {
        let mut sum = Measured::default();
        for lane in self.lanes_of(device) {
            let inner = lane.lock();
            sum.reserved += inner.heap().reserved;
            sum.free += inner.heap().free;
            sum.at_hand += inner.at_hand();
            sum.largest_free = sum.largest_free.max(inner.heap().largest_free());
            sum.chunks += inner.heap().chunks() as u64;
            sum.from_hand += inner.taken_at_hand();
            sum.from_heap += inner.taken();
        }
        sum.used = sum.reserved.saturating_sub(sum.free + sum.at_hand);
        sum.peak_reserved = self.peak_reserved.load(Ordering::Relaxed);
        sum.grown = self.grown.load(Ordering::Relaxed);
        let slot = self.slot.load(Ordering::Relaxed);
        each(|record| {
            if record.allocator() == slot && device.is_none_or(|device| device.index() == record.device()) {
                sum.live += record.size();
                sum.live_blocks += 1;
            }
        });
        sum
    }
}

/// After more came free in whole chunks than is to be kept: gives some of it back.
fn keep_less(lane: &'static Lane) {
    if let Some(from) = allocator::hold_by_slot(lane.of().allocator())
        && let Some(caching) = of(&from)
        && caching.has(lane)
    {
        caching.keep_less(lane);
    }
}

/// Gives back what caches of built-in memory have unused on a device, before a built-in allocator is out of memory. Not to other code:
/// who asks for built-in memory may hold a lock that a callback wants.
pub fn give_back_unused(device: &'static Device) {
    each_cache(|caching| {
        if caching.upstream.builtin().is_some() {
            caching.give_back_whole(Some(device), u64::MAX, false);
        }
    });
}

/// Visits the caches that this process made.
fn each_cache(visit: impl Fn(&Caching)) {
    if ever_was() {
        allocator::each(|allocator| {
            of(allocator)
                .filter(|caching| caching.require_own_process().is_ok())
                .into_iter()
                .for_each(&visit);
        });
    }
}

/// Whether there ever was one. Most programs have none, and pay for none.
static EVER: AtomicBool = AtomicBool::new(false);

#[inline]
pub fn ever_was() -> bool {
    EVER.load(Ordering::Relaxed)
}

/// Makes a caching allocator, with one reference for the caller.
pub fn create(caching: Caching, name: Option<&CStr>) -> Result<Handle> {
    let handle = allocator::create(Box::new(caching), name)?;
    EVER.store(true, Ordering::Relaxed);
    let made = allocator::enter(handle)?;
    if let Some(caching) = of(&made) {
        caching.slot.store(made.index() + 1, Ordering::Release);
    }
    Ok(handle)
}

/// The library's own, by their kinds; 0 for one that nobody asked for.
static OWN: Lock<[Handle; Kind::ALL.len()]> = Lock::new([0; Kind::ALL.len()]);

/// The library's own caching allocator of a kind: the same until the shutdown. Without a kind that of plain memory, which has
/// captures served from pools.
pub fn of_kind(kind: Option<Kind>) -> Result<Handle> {
    let mut own = OWN.write();
    let handle = &mut own[kind.unwrap_or(Kind::Unknown) as usize];
    if allocator::enter(*handle).is_ok() {
        return Ok(*handle);
    }
    let upstream =
        |kind| -> Result<Upstream> { Ok(Upstream::of(&allocator::enter(direct::builtin_allocator(kind)?)?)) };
    let below = upstream(kind.unwrap_or(Kind::CudaDevice))?;
    let in_captures = if kind.is_none() { Some(upstream(Kind::CudaMempool)?) } else { None };
    let name = CString::new(kind.map_or("default", Kind::name)).unwrap_or_default();
    *handle = create(Caching::new(below, in_captures, Settings::default())?, Some(&name))?;
    allocator::enter(*handle)?.keep_for_library();
    Ok(*handle)
}

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    // SAFETY: the caller's promise. What the parent made serves nobody here.
    unsafe { OWN.replace_in_child([0; Kind::ALL.len()]) };
}

/// The caching allocator that an allocator is, if it is one.
pub fn of(allocator: &Allocator) -> Option<&Caching> {
    allocator.downcast()
}

/// Serves a request of a caller's on the usual way. `None` where it has to go the one of any allocator.
pub fn allocate(
    order: &Order<'_>,
    from: &Entered<Allocator>,
    stream: Option<&Entered<Stream>>,
) -> Option<Result<u64>> {
    let caching = of(from)?;
    let request = Request {
        device: order.device,
        size: order.size,
        alignment: order.alignment,
        stream,
        tag: order.tag,
        flags: 0,
    };
    if let Err(error) = caching.require_serving() {
        return Some(Err(error));
    }
    if caching.closing.load(Ordering::Acquire)
        || !std::ptr::eq(order.ledger, &LEDGER)
        || !caching.caches(&request)
    {
        return None;
    }
    at_hand::allocate(caching, from, &request)
}

impl Source for Caching {
    fn sort(&self) -> &'static str {
        "caching"
    }

    fn traits(&self) -> Traits {
        let below = self.upstream.traits();
        Traits {
            ordered: true,
            // What comes back is at once its own stream's.
            any_stream: false,
            captures: self.in_captures.as_ref().map_or(below.captures, |other| other.traits().captures),
            kind: if self.in_captures.is_some() { None } else { below.kind },
            ..below
        }
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        self.require_serving()?;
        if !self.caches(request) {
            return self.ask_patiently(self.past(request), request, &mut Patience::new());
        }
        let lane = self.lane(request)?;
        let take = |inner: &mut Inner| {
            let block = inner.take(request.size)?;
            // With a lost device it may be another one at any moment.
            let base = block.base();
            block.hand_out_told();
            Some(base)
        };
        self.cut(lane, None, request, take)?
            .ok_or_else(|| error!(Internal, "a cache has no memory, and asked for none"))
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        if self.require_own_process().is_err() {
            return Ok(());
        }
        let is_orphan = || request.flags & flags::DEVICE_LOST != 0 && self.forget_orphan(address);
        if is_orphan() {
            return Ok(());
        }
        let Some((block, life, lane)) = self.told(address) else {
            // It may have become one since it was looked for there.
            if is_orphan() {
                return Ok(());
            }
            return self.deallocate_past(address, request);
        };
        let mut has_enough = false;
        {
            let mut inner = lane.lock();
            if block.turn(life, State::AtHand) {
                has_enough = inner.put(block);
            } else {
                // Its chunk went with its device just now.
                self.forget_orphan(address);
            }
        }
        if has_enough {
            self.keep_less(lane);
        }
        Ok(())
    }

    fn upstream(&self) -> Option<&Upstream> {
        Some(&self.upstream)
    }

    fn trim(&self, request: &Request<'_>) -> Result<u64> {
        if self.require_own_process().is_err() {
            return Ok(0);
        }
        let own = self.give_back_whole(Some(request.device), u64::MAX, false);
        Ok(own + self.upstream.trim(request)?)
    }

    fn records_streams(&self) -> bool {
        false
    }

    fn record_stream(&self, _address: u64, _request: &Request<'_>) -> Result<bool> {
        Ok(false)
    }

    fn statistics(&self) -> Result<Option<Statistics>> {
        let measured = self.measure(None);
        Ok(Some(Statistics {
            live_bytes: measured.live,
            live_blocks: measured.live_blocks,
            total_blocks: measured.from_hand + measured.from_heap,
            failures: self.failures.load(Ordering::Relaxed),
            reserved_bytes: measured.reserved,
            ..Statistics::default()
        }))
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.upstream.stop();
        if let Some(other) = &self.in_captures {
            other.stop();
        }
    }

    fn closing(&self) {
        if self.require_own_process().is_err() {
            return;
        }
        self.closing.store(true, Ordering::SeqCst);
        for lane in self.lanes_of(None) {
            lane.lock().close();
        }
        if let Err(error) = self.tell_all() {
            log!(Error, "blocks of a caching allocator that is released: {error}");
        }
    }

    fn closed(&self) {
        if self.require_own_process().is_ok() {
            self.give_back_whole(None, u64::MAX, false);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Caching {
    /// The block of this cache that begins at an address and is a caller's like any other.
    fn told(&self, address: u64) -> Option<(&'static Block, Life, &'static Lane)> {
        let block = cache::find_of(self.slot.load(Ordering::Relaxed).checked_sub(1)?, address)?;
        let life = block.life();
        let lane = block.lane()?;
        (block.base() == address && life.state() == State::Told).then_some((block, life, lane))
    }

    /// A block that the cache did not cut: of a graph, or of an unusual alignment.
    fn deallocate_past(&self, address: u64, request: &Request<'_>) -> Result<()> {
        let below = || self.upstream.deallocate(address, request);
        let told = match &self.in_captures {
            // Which of the two it came from is known by the first; what it does not know it leaves alone.
            Some(other) => match other.deallocate(address, request) {
                Err(error) if error.status == Status::UnknownPointer => below(),
                told => told,
            },
            None => below(),
        };
        if !told.as_ref().is_err_and(allocator::may_be_repeated) {
            self.reserved.fetch_sub(request.size, Ordering::AcqRel);
        }
        told
    }
}

impl Drop for Caching {
    fn drop(&mut self) {
        if self.require_own_process().is_ok() {
            self.let_go_of_all();
            self.totals.give_up();
        }
    }
}
