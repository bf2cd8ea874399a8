//! The caching allocator: memory from another one, kept for the next who wants some, in the order of each stream. What is kept, and
//! how it is cut, is the room `cache`'s; here is where the memory comes from and goes, and what the ledger knows of it.
//!
//! A block leaves in one of two ways. As one of any allocator's it is in the ledger with all that there is to say (*told*). On the
//! usual way (`at_hand`) the ledger does not know it, and who looks for it there finds it by its chunk (`known`); such a block becomes
//! a told one as soon as there is more to say, as that another stream uses it.

mod at_hand;
mod known;
mod lanes;

pub use at_hand::{Asked, allocate_again, free_again, free_found, remembering};
pub use known::{each, find, is_kept, tell};

use super::builtin::Order;
use super::{Kind, LEDGER};
use super::{custom, direct};
use crate::allocator::{self, Allocator, Request, Source, Stacked, Statistics, Traits, Upstream, flags};
use crate::cache::{self, Block, Chunk, Lane, Refused, State, Totals};
use crate::device::Device;
use crate::error::{Error, Result, Status, error, fail};
use crate::fork::Lock;
use crate::handle::{Entered, Handle};
use crate::log::log;
use crate::runtime;
use crate::stream::Stream;
use lanes::Lanes;
use parking_lot::Mutex;
use std::any::Any;
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
    peak_reserved: AtomicU64,
    /// How often more memory was asked for.
    grown: AtomicU64,
    failures: AtomicU64,
    /// Plus one; 0 until it is known.
    slot: AtomicU32,
    closing: AtomicBool,
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
            peak_reserved: AtomicU64::new(0),
            grown: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            slot: AtomicU32::new(0),
            closing: AtomicBool::new(false),
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

    /// Whether the request is one that the cache has memory for.
    fn caches(&self, request: &Request<'_>) -> bool {
        request.flags & flags::IN_CAPTURE == 0
            && request.alignment <= cache::GRANULE
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

    /// A block for a request, in no list any more and handed out to nobody yet.
    fn cut(
        &self,
        lane: &'static Lane,
        mine: Option<&'static cache::Front>,
        request: &Request<'_>,
    ) -> Result<&'static Block> {
        let mut inner = lane.lock();
        if let Some(found) = inner.take(request.size) {
            return Ok(found);
        }
        // What threads have at hand may be enough when it is joined.
        if inner.gather(mine)
            && let Some(found) = inner.take(request.size)
        {
            return Ok(found);
        }
        drop(inner);
        for _ in 0..TRIES {
            if !self.borrow(lane, request) {
                self.grow(lane, request).inspect_err(|_| {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                })?;
            }
            if let Some(found) = lane.lock().take(request.size) {
                return Ok(found);
            }
        }
        fail!(OutOfMemory, "other threads were always faster to take what was got for {} bytes", request.size)
    }

    /// Gets memory from below.
    fn grow(&self, lane: &'static Lane, request: &Request<'_>) -> Result<()> {
        self.grown.fetch_add(1, Ordering::Relaxed);
        let (size, small) = cache::chunk_for(request.size);
        let wanted = Request { size, alignment: cache::GRANULE, tag: 0, flags: 0, ..*request };
        if self.totals.reserved.load(Ordering::Relaxed) + size > self.peak_reserved.load(Ordering::Relaxed) {
            // Before it has more than ever: what is there in other sizes.
            self.give_back_whole(request.device, size, true);
        }
        let address = match self.ask(&wanted) {
            Err(error) if error.status == Status::OutOfMemory => {
                if self.give_back_whole(request.device, u64::MAX, false) == 0 {
                    return Err(self.short(request, error));
                }
                self.ask(&wanted).map_err(|error| self.short(request, error))?
            }
            asked => asked?,
        };
        let made = custom::what_was_made(&self.upstream, &wanted, address);
        let give_back = |_: &Error| {
            allocator::tell_of_unusable(self.upstream.deallocate(address, &wanted));
        };
        let like = made.inspect_err(give_back)?.record(address, &wanted);
        let chunk = Chunk { base: address, size, small, like };
        match lane.lock().add(chunk) {
            Ok(()) => {}
            Err(Refused::NoMemory) => {
                let error = error!(OutOfMemory, "no host memory for what is to be known of cached memory");
                give_back(&error);
                return Err(error);
            }
            // It is not given back: it is in use.
            Err(Refused::InUse) => fail!(
                AllocatorFailed,
                "{} gave {address:#x} for {size} bytes, of which a cache has some already",
                self.upstream.title()
            ),
        }
        self.peak_reserved.fetch_max(self.totals.reserved.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    }

    /// Asks below, within the limit.
    fn ask(&self, wanted: &Request<'_>) -> Result<u64> {
        let (limit, reserved) = (self.settings.limit, self.totals.reserved.load(Ordering::Relaxed));
        if limit != 0 && reserved.saturating_add(wanted.size) > limit {
            fail!(
                OutOfMemory,
                "the caching allocator may reserve {limit} bytes, has {reserved}, and needs {} more; free some of it, or make it with a larger limit",
                wanted.size
            );
        }
        self.upstream.allocate(wanted)
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

/// Takes back a block that is at hand and in nobody's list.
fn put(lane: &'static Lane, block: &'static Block) {
    let has_enough = lane.lock().put(block);
    if has_enough
        && let Some(from) = allocator::hold_by_slot(lane.of().allocator())
        && let Some(caching) = of(&from)
    {
        let whole = caching.totals.whole.load(Ordering::Relaxed);
        caching.give_back_of_lane(lane, whole.saturating_sub(caching.settings.keep), false);
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
    allocator.as_sort::<Caching>("caching").ok()
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
    if caching.closing.load(Ordering::Acquire)
        || !std::ptr::eq(order.ledger, &LEDGER)
        || !caching.caches(&request)
        || order.alignment > super::NATURAL_ALIGNMENT
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
            captures: self.in_captures.as_ref().map_or(below.captures, |other| other.traits().captures),
            kind: if self.in_captures.is_some() { None } else { below.kind },
            ..below
        }
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        self.require_own_process()?;
        if !self.caches(request) {
            return self.past(request).allocate(request);
        }
        let lane = self.lane(request)?;
        let block = self.cut(lane, None, request)?;
        block.tell();
        Ok(block.base())
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        if self.require_own_process().is_err() {
            return Ok(());
        }
        let Some((block, lane)) = self.told(address) else {
            return self.deallocate_past(address, request);
        };
        if block.turn(State::Told, State::AtHand) {
            put(lane, block);
        }
        if request.flags & flags::DEVICE_LOST != 0 {
            self.forget_lost(request.device);
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
        let own = self.give_back_whole(request.device, u64::MAX, false);
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
        self.give_back_everywhere();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Caching {
    /// The block of this cache that begins at an address and is a caller's like any other.
    fn told(&self, address: u64) -> Option<(&'static Block, &'static Lane)> {
        let (block, _) = cache::find(address)?;
        let lane = block.lane()?;
        let is_its = lane.of().allocator() + 1 == self.slot.load(Ordering::Relaxed);
        (is_its && block.base() == address && block.state() == State::Told).then_some((block, lane))
    }

    /// A block that the cache did not cut: of a graph, or of an unusual alignment.
    fn deallocate_past(&self, address: u64, request: &Request<'_>) -> Result<()> {
        let Some(other) = &self.in_captures else {
            return self.upstream.deallocate(address, request);
        };
        // Which of the two it came from is known by the first; what it does not know it leaves alone.
        match other.deallocate(address, request) {
            Err(error) if error.status == Status::UnknownPointer => {
                self.upstream.deallocate(address, request)
            }
            told => told,
        }
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
