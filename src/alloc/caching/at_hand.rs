//! The usual way of a cached block, for which nothing is asked that the thread has found out before: who serves a request, by the
//! handles that it names, and which block begins at an address. What a thread remembers is good until something has changed that it
//! depends on (`moment`).

use super::Caching;
use super::known::{self, Cached};
use crate::alloc::free::{self, FreeOptions};
use crate::alloc::statistics;
use crate::allocator::{self, Allocator, Request};
use crate::cache::{self, Block, Front, Given, Inner, Lane, Life, MOST_AT_HAND, Map, State, Taken};
use crate::capture;
use crate::device::{self, Device};
use crate::error::{Result, error};
use crate::handle::{Entered, Handle};
use crate::ledger::Record;
use crate::moment::{self, Moment};
use crate::runtime;
use crate::stream;
use crate::thread;
use std::alloc::{Layout, alloc_zeroed};
use std::cell::{Cell, UnsafeCell};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

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

/// A block that this thread was given just now, and the thread's front of its lane.
#[derive(Clone, Copy)]
struct Handed {
    taken: Taken,
    front: &'static Front,
}

const SERVED: usize = 64;
/// As many blocks are remembered by their addresses.
const BLOCKS: usize = 8192;
/// As many pieces of addresses are remembered: 8 GiB that lie together are without a conflict.
const PIECES: usize = 4096;
/// A piece is what small blocks' chunks are.
const PIECE_LOG2: u32 = cache::LARGE_GRANULE.ilog2();
const FRONTS: usize = 64;

/// What a thread remembers. Its own, and that of the next thread which has its record.
struct Hands {
    served: UnsafeCell<[Option<Served>; SERVED]>,
    /// Blocks that were handed out, by their addresses. Only where to look, as `tables`: a block may be another one by now, and has the
    /// last word.
    blocks: [Cell<Option<&'static Block>>; BLOCKS],
    /// For the addresses of which another block is remembered: which table had the block that was last looked for in a piece.
    tables: [Cell<Option<&'static Map>>; PIECES],
    /// The front used last, and those before it by their lanes' addresses.
    used: Cell<Option<&'static Front>>,
    near: [Cell<Option<&'static Front>>; FRONTS],
    /// All of them.
    fronts: UnsafeCell<HashMap<usize, &'static Front>>,
    last: Cell<Option<Handed>>,
}

impl Hands {
    #[inline(always)]
    fn of(me: &'static thread::Record) -> Option<&'static Hands> {
        // SAFETY: NULL or a leaked box; only the record's own thread comes here.
        unsafe { me.attached().load(Ordering::Relaxed).cast::<Hands>().as_ref() }
    }

    /// The thread's, made if it has none. `None` when there is no memory for it.
    #[inline]
    fn of_or_made(me: &'static thread::Record) -> Option<&'static Hands> {
        Hands::of(me).or_else(|| Hands::make(me))
    }

    #[cold]
    fn make(me: &'static thread::Record) -> Option<&'static Hands> {
        let layout = Layout::new::<Hands>();
        // SAFETY: the layout has a size. Cells of references that are zero are cells of `None`; what else there is, is written. It is
        // made where it lies, since it is larger than what the stack of a small thread has left.
        let hands: &'static Hands = unsafe {
            let place = alloc_zeroed(layout).cast::<Hands>();
            if place.is_null() {
                return None;
            }
            let served = (&raw mut (*place).served).cast::<Option<Served>>();
            (0..SERVED).for_each(|at| served.add(at).write(None));
            (&raw mut (*place).fronts).write(UnsafeCell::new(HashMap::new()));
            (&raw mut (*place).last).write(Cell::new(None));
            &*place
        };
        me.attached().store(std::ptr::from_ref(hands).cast_mut().cast(), Ordering::Relaxed);
        Some(hands)
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

    /// The table that may lead to the block at an address.
    #[inline(always)]
    fn table(&self, address: u64) -> &Cell<Option<&'static Map>> {
        &self.tables[(address >> PIECE_LOG2) as usize % PIECES]
    }

    /// Where the block that begins at an address may be remembered.
    #[inline(always)]
    fn block(&self, base: u64) -> &Cell<Option<&'static Block>> {
        // Large blocks differ in high bits alone; the upper bits of the product depend on all.
        &self.blocks
            [((base >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BLOCKS.ilog2())) as usize % BLOCKS]
    }

    /// The block that begins at an address, and its life: the address is true while it is in that.
    #[inline(always)]
    fn find(&self, base: u64) -> Option<(&'static Block, Life)> {
        if let Some(block) = self.block(base).get() {
            let life = block.life();
            if block.base() == base {
                return Some((block, life));
            }
        }
        self.find_by_table(base)
    }

    #[inline(never)]
    fn find_by_table(&self, base: u64) -> Option<(&'static Block, Life)> {
        let block = self.table(base).get()?.hint(base)?;
        let life = block.life();
        (block.base() == base).then_some((block, life))
    }

    /// Has a table be found when a block of it is freed.
    #[inline(always)]
    fn note(&self, block: &Block) {
        self.table(block.base()).set(block.table());
    }

    /// The thread's front of a lane, as `front`. Mostly it is the one used last, which is known before the lane is.
    #[inline(always)]
    fn front_near(&self, lane: &'static Lane) -> Option<&'static Front> {
        let is_its = |front: &&'static Front| front.lane().is_some_and(|of| std::ptr::eq(of, lane));
        match self.used.get().filter(is_its) {
            Some(front) => Some(front),
            None => self.near[Self::place_of(lane)].get().filter(is_its).or_else(|| self.front(lane)),
        }
    }

    #[inline(always)]
    fn place_of(lane: &'static Lane) -> usize {
        (std::ptr::from_ref(lane).addr() / size_of::<Lane>()) % FRONTS
    }

    /// The thread's front of a lane. `None` when the lane is closed.
    #[cold]
    fn front(&self, lane: &'static Lane) -> Option<&'static Front> {
        // SAFETY: as in `served`; nothing that is called here comes here again.
        let fronts = unsafe { &mut *self.fronts.get() };
        let key = std::ptr::from_ref(lane).addr();
        match fronts.get(&key) {
            Some(front) if !front.is_free() => {
                self.near[Self::place_of(lane)].set(Some(front));
                return Some(front);
            }
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
        self.near[Self::place_of(lane)].set(Some(front));
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
    let Taken { block, base, kind, .. } = match front.take(size, 0) {
        Some(taken) => taken,
        None => cut_again(hands, front, size)?,
    };
    hands.block(base).set(Some(block));
    hands.used.set(Some(front));
    statistics::count_cached_alloc(me, served.device, kind, size);
    Some(base)
}

/// A block from the heap, where that has one.
#[inline(never)]
fn cut_again(hands: &Hands, front: &'static Front, size: u64) -> Option<Taken> {
    let taken = front.lane()?.lock().take_out_for(front, size, 0)?;
    hands.note(taken.block);
    Some(taken)
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
    !stream.is_surely_not_captured(driver)
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
    let Some(Handed { taken, front }) = hands.last.take() else { return };
    if taken.base != address || taken.block.life() != taken.life {
        return;
    }
    let Some(lane) = front.lane() else { return };
    let Some(device) = device::at(lane.of().device()) else { return };
    let (stream, ask) = if device.is_cuda() {
        let Some(held) = lane.of().stream() else { return };
        let Some(stream) = stream::enter_held(me, held) else { return };
        (stream::handle_of(&stream), stream.is_known_elsewhere())
    } else {
        (0, false)
    };
    let served = Served { asked, moment, device, front, stream, ask };
    hands.remember(served);
}

/// Frees a block of a chunk that this thread has had to do with on this way. False when there is more to it, and nothing is done.
#[inline(always)]
pub fn free_again(address: u64) -> bool {
    let me = thread::mine();
    let Some(hands) = Hands::of(me) else { return false };
    // All that is read of it here is true if it is still in this life when it is given.
    let Some((block, life)) = hands.find(address) else { return false };
    if life.state() != State::Out || !runtime::frees_as_usual() {
        return false;
    }
    let Some(lane) = block.lane() else { return false };
    let Some(front) = hands.front_near(lane) else { return false };
    let Some(device) = device::at(lane.of().device()).filter(|device| !device.is_lost()) else {
        return false;
    };
    let kind = block.kind();
    match front.give(block, life, |asked| statistics::count_cached_free(me, device, kind, asked)) {
        Given::Done => true,
        Given::NotOut => false,
        Given::NoRoom => put_again(me, device, lane, block, life),
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
fn put_again(
    me: &thread::Record,
    device: &'static Device,
    lane: &'static Lane,
    block: &'static Block,
    life: Life,
) -> bool {
    let kind = block.kind();
    let told = |asked| statistics::count_cached_free(me, device, kind, asked);
    let Some(has_enough) = lane.lock().put_out(block, life, told) else { return false };
    if has_enough {
        super::keep_less(lane);
    }
    true
}

/// Serves a request on this way. `None` where it has to go that of any allocator.
pub fn allocate(caching: &Caching, from: &Entered<Allocator>, request: &Request<'_>) -> Option<Result<u64>> {
    let me = from.thread();
    let hands = Hands::of_or_made(me)?;
    let lane = match caching.lane(request) {
        Ok(lane) => lane,
        Err(error) => return Some(Err(error)),
    };
    let front = hands.front(lane)?;
    let taken = match front.take(request.size, request.tag) {
        Some(taken) => taken,
        None => {
            let take = |inner: &mut Inner| inner.take_out(request.size, request.tag);
            match caching.cut(lane, Some(front), request, take) {
                Ok(taken) => taken?,
                Err(error) => return Some(Err(error)),
            }
        }
    };
    statistics::count_cached_alloc(me, request.device, taken.kind, request.size);
    hands.note(taken.block);
    hands.last.set(Some(Handed { taken, front }));
    Some(Ok(taken.base))
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
        let front = Hands::of_or_made(me).and_then(|hands| {
            hands.note(block);
            hands.front_near(lane)
        });
        match front.map_or(Given::NoRoom, |front| front.give(block, life, told)) {
            Given::Done => return Some(Ok(())),
            // Another thread was faster: what the block is now is seen in the next round.
            Given::NotOut => {}
            Given::NoRoom if put_again(me, device, lane, block, life) => return Some(Ok(())),
            Given::NoRoom => {}
        }
    }
}
