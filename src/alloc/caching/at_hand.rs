//! The usual way of a cached block, for which nothing is asked that the thread has found out before: who serves a request, by the
//! handles that it names, and which block begins at an address. What a thread remembers is good until something has changed that it
//! depends on (`moment`).

use super::{Caching, known};
use crate::alloc::free::{self, FreeOptions};
use crate::alloc::{HOLDS_STREAM, IN_CACHE, LEDGER, enter, statistics};
use crate::allocator::{self, Allocator, Request};
use crate::cache::{self, Block, Front, Given, Lane, State};
use crate::capture;
use crate::device::{self, Device};
use crate::error::{Result, error};
use crate::handle::{Entered, Handle};
use crate::ledger::Record;
use crate::moment::{self, Moment};
use crate::runtime;
use crate::stream;
use crate::thread;
use std::cell::Cell;
use std::sync::atomic::Ordering;

/// What a caller named, as it came: handles, 0 for what is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    pub device: Handle,
    pub stream: Handle,
    pub allocator: Handle,
}

/// Who served such a request, at a moment.
#[derive(Clone, Copy)]
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

/// A block that this thread allocated, and the front that it goes back to.
#[derive(Clone, Copy)]
struct Seen {
    base: u64,
    block: &'static Block,
    front: &'static Front,
}

const SERVED: usize = 8;
const SEEN: usize = 1024;

/// What a thread remembers. Its own, and that of the next thread which has its record.
struct Hands {
    served: [Cell<Option<Served>>; SERVED],
    seen: [Cell<Option<Seen>>; SEEN],
    fronts: Cell<Vec<&'static Front>>,
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
            served: [const { Cell::new(None) }; SERVED],
            seen: [const { Cell::new(None) }; SEEN],
            fronts: Cell::new(Vec::new()),
        }));
        me.attached().store(std::ptr::from_ref(hands).cast_mut().cast(), Ordering::Relaxed);
        hands
    }

    #[inline(always)]
    fn place(asked: &Asked) -> usize {
        // Handles are mixed well.
        (asked.device ^ asked.stream ^ asked.allocator) as usize % SERVED
    }

    #[inline(always)]
    fn seen_at(&self, base: u64) -> &Cell<Option<Seen>> {
        &self.seen[((base >> 9) ^ (base >> 19)) as usize % SEEN]
    }

    /// The thread's front of a lane. `None` when the lane is closed.
    fn front(&self, lane: &'static Lane) -> Option<&'static Front> {
        let mut fronts = self.fronts.take();
        let is_its = |front: &&'static Front| front.lane().is_some_and(|of| std::ptr::eq(of, lane));
        let found = match fronts.iter().copied().find(|front| is_its(front) && !front.is_free()) {
            Some(front) => Some(front),
            None => {
                let free = fronts.iter().copied().find(|front| front.is_free());
                let front = lane.front(free);
                if free.is_none() {
                    fronts.extend(front);
                }
                front
            }
        };
        self.fronts.set(fronts);
        found
    }
}

/// As `allocate`, of a request that names what one before has named and been remembered for. `None` when there is more to it.
#[inline(always)]
pub fn allocate_again(asked: Asked, size: u64) -> Option<u64> {
    let me = thread::mine();
    let hands = Hands::of(me)?;
    let served = hands.served[Hands::place(&asked)].get()?;
    if served.asked != asked
        || served.moment != moment::now(me)
        || size.wrapping_sub(1) >= 1 << 30
        || !runtime::frees_as_usual()
        || served.device.is_lost()
    {
        return None;
    }
    if served.device.is_cuda() {
        if (served.ask || capture::some_are_open()) && may_be_captured(&served) {
            return None;
        }
    } else if capture::captures_cpu() {
        return None;
    }
    let block = served.front.take(size, 0)?;
    let base = block.base();
    statistics::count_alloc_of(me, served.device, block.kind(), size);
    hands.seen_at(base).set(Some(Seen { base, block, front: served.front }));
    Some(base)
}

#[inline]
fn may_be_captured(served: &Served) -> bool {
    let Ok(driver) = runtime::driver() else { return true };
    let Ok(stream) = stream::enter(served.stream) else { return true };
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
    let Some(seen) = hands.seen_at(address).get().filter(|seen| seen.base == address) else { return };
    let Some(lane) = seen.front.lane() else { return };
    let Some(device) = device::at(lane.of().device) else { return };
    let (stream, ask) = if device.is_cuda() {
        let held = lane.of().stream.load(Ordering::Acquire);
        let Some(stream) = stream::enter_held(me, held) else { return };
        (stream::handle_of(&stream), stream.is_known_elsewhere())
    } else {
        (0, false)
    };
    let served = Served { asked, moment, device, front: seen.front, stream, ask };
    hands.served[Hands::place(&asked)].set(Some(served));
}

/// Frees a block that this thread has allocated on this way. False when there is more to it, and nothing is done.
#[inline(always)]
pub fn free_again(address: u64) -> bool {
    let me = thread::mine();
    let Some(hands) = Hands::of(me) else { return false };
    let Some(seen) = hands.seen_at(address).get() else { return false };
    let Seen { base, block, front } = seen;
    if base != address || block.base() != address || !runtime::frees_as_usual() {
        return false;
    }
    let lane = front.lane();
    if !block.lane().zip(lane).is_some_and(|(a, b)| std::ptr::eq(a, b)) || front.is_free() {
        return false;
    }
    let kind = block.kind();
    let device = lane.and_then(|lane| device::at(lane.of().device));
    let told = |asked| {
        if let Some(device) = device {
            statistics::count_free_of(me, device, kind, asked);
        }
    };
    front.give(block, told) == Given::Done
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
    let block = match front.take(request.size, request.tag) {
        Some(block) => block,
        None => match cut(caching, lane, front, request) {
            Ok(block) => block,
            Err(error) => return Some(Err(error)),
        },
    };
    let base = block.base();
    statistics::count_alloc_of(me, request.device, block.kind(), request.size);
    hands.seen_at(base).set(Some(Seen { base, block, front }));
    Some(Ok(base))
}

/// A block of the heap, entered in the ledger and handed out.
fn cut(
    caching: &Caching,
    lane: &'static Lane,
    front: &'static Front,
    request: &Request<'_>,
) -> Result<&'static Block> {
    let (block, like) = caching.cut(lane, Some(front), request)?;
    let mut flags = like.flags() | IN_CACHE;
    if request.stream.is_some() {
        flags |= HOLDS_STREAM;
    }
    let record = like
        .moved(block.base(), block.size())
        .with_stream(lane.of().stream.load(Ordering::Acquire))
        .with_allocator(lane.of().allocator + 1)
        .with_graph(block.index())
        .with_flags(flags);
    if let Err(error) = enter(&LEDGER, thread::mine(), &record) {
        caching.put(block);
        return Err(error);
    }
    block.hand_out(request.size, request.tag);
    Ok(block)
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
        let (record, index) = known::cached(address)?;
        let Some(record) = record else {
            return Some(Err(error!(DoubleFree, "{address:#x} was freed before; nothing was freed again")));
        };
        if record.base() != address {
            return Some(Err(free::interior(address, &record)));
        }
        if let Err(error) = check(&record, options) {
            return Some(Err(error));
        }
        let block = cache::at(index)?;
        let device = device::at(record.device())?;
        let me = thread::mine();
        let told = |asked| statistics::count_free_of(me, device, block.kind(), asked);
        if forked {
            // The child only forgets: the parent has the block.
            if block.turn(State::Out, State::Void) {
                told(record.size());
                return Some(Ok(()));
            }
            continue;
        }
        let is_own = options.stream.is_none_or(|stream| free::is_own(&record, stream));
        if !is_own || device.is_lost() || !runtime::frees_as_usual() {
            known::tell(address);
            return None;
        }
        let lane = block.lane()?;
        let hands = Hands::of(me).unwrap_or_else(|| Hands::make(me));
        let given = hands.front(lane).map_or(Given::NoRoom, |front| front.give(block, told));
        match given {
            Given::Done => return Some(Ok(())),
            // Another thread was faster: what the block is now is seen in the next round.
            Given::NotOut => {}
            Given::NoRoom => {
                if block.turn(State::Out, State::AtHand) {
                    told(record.size());
                    known::forget(block);
                    put(lane, block);
                    return Some(Ok(()));
                }
            }
        }
    }
}

/// To the heap, past what the thread has at hand.
fn put(lane: &Lane, block: &'static Block) {
    let from = allocator::hold_by_slot(lane.of().allocator);
    if let Some(caching) = from.as_deref().and_then(super::of) {
        caching.put(block);
    }
}
