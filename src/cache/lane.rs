//! Cached memory of one stream: what is given back there is at once good for whoever asks there, on any thread. A heap under a lock,
//! and in front of it what each thread has at hand.

use super::block::{Block, Life, State, Taken};
use super::front::Front;
use super::heap::{Chunk, Heap, Refused};
use crate::fork::Lock;
use crate::lock::{Mutex, MutexGuard};
use crate::thread;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The allocator of a lane that is nobody's: a slot that none has.
const NOBODY: u32 = u32::MAX - 1;

/// Memory of one stream, or of none. Never freed; a lane that is done with serves another allocator.
pub struct Lane {
    inner: Mutex<Inner>,
    of: Of,
}

/// Whose memory it is: numbers whose meaning belongs to the rooms above.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    pub device: u16,
    /// The slot of the stream, if it has one.
    pub stream: Option<u32>,
    /// The slot of the allocator.
    pub allocator: u32,
    /// As many bytes as each thread has at hand, in small blocks and in large ones.
    pub most_at_hand: u64,
    pub totals: &'static Totals,
}

/// The owner, for who may look at any time.
pub struct Of {
    device: AtomicU16,
    has_stream: AtomicBool,
    stream: AtomicU32,
    allocator: AtomicU32,
    most_at_hand: AtomicU64,
}

impl Of {
    #[inline(always)]
    pub fn device(&self) -> u16 {
        self.device.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn stream(&self) -> Option<u32> {
        self.has_stream.load(Ordering::Acquire).then(|| self.stream.load(Ordering::Acquire))
    }

    #[inline]
    pub fn allocator(&self) -> u32 {
        self.allocator.load(Ordering::Acquire)
    }

    pub fn most_at_hand(&self) -> u64 {
        self.most_at_hand.load(Ordering::Relaxed)
    }

    /// Another stream follows the one whose work is done.
    pub fn set_stream(&self, stream: u32) {
        self.stream.store(stream, Ordering::Release);
    }

    fn set(&self, owner: &Owner) {
        self.device.store(owner.device, Ordering::Relaxed);
        self.allocator.store(owner.allocator, Ordering::Release);
        self.most_at_hand.store(owner.most_at_hand, Ordering::Relaxed);
        self.stream.store(owner.stream.unwrap_or(0), Ordering::Release);
        self.has_stream.store(owner.stream.is_some(), Ordering::Release);
    }
}

/// What is counted of all lanes of an allocator together. Never freed; those that are done with serve another allocator.
#[derive(Debug, Default)]
pub struct Totals {
    /// Bytes in chunks that are free as a whole.
    pub whole: AtomicU64,
    /// As many of those as are to be kept; 0 for any number.
    pub keep: AtomicU64,
}

/// What is done with.
struct Unused {
    lanes: Vec<&'static Lane>,
    totals: Vec<&'static Totals>,
}

static UNUSED: Lock<Unused> = Lock::new(Unused { lanes: Vec::new(), totals: Vec::new() });

/// After a fork, in the child: what the parent had is given up.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub(super) unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe { UNUSED.replace_in_child(Unused { lanes: Vec::new(), totals: Vec::new() }) };
}

impl Totals {
    pub fn make(keep: u64) -> &'static Totals {
        let totals = UNUSED.write().totals.pop().unwrap_or_else(|| Box::leak(Box::default()));
        totals.keep.store(keep, Ordering::Relaxed);
        totals
    }

    /// They are nobody's any more: no lane counts here.
    pub fn give_up(&'static self) {
        UNUSED.write().totals.push(self);
    }
}

pub struct Inner {
    heap: Heap,
    fronts: Vec<&'static Front>,
    /// Its fronts are shut until it is opened.
    closed: bool,
    /// How often it was opened.
    opened: u64,
    /// Blocks that the heap gave.
    taken: u64,
    totals: &'static Totals,
}

impl Lane {
    pub fn make(owner: &Owner) -> &'static Lane {
        let totals = owner.totals;
        let unused = UNUSED.write().lanes.pop();
        let lane: &'static Lane = unused.unwrap_or_else(|| {
            let inner =
                Inner { heap: Heap::new(), fronts: Vec::new(), closed: false, opened: 0, taken: 0, totals };
            let of = Of {
                device: AtomicU16::new(0),
                has_stream: AtomicBool::new(false),
                stream: AtomicU32::new(0),
                allocator: AtomicU32::new(0),
                most_at_hand: AtomicU64::new(0),
            };
            Box::leak(Box::new(Lane { inner: Mutex::new(inner), of }))
        });
        let mut inner = lane.lock();
        lane.of.set(owner);
        inner.heap.lane = Some(lane);
        (inner.taken, inner.totals) = (0, totals);
        inner.open();
        drop(inner);
        lane
    }

    /// It is nobody's any more: its fronts are shut for good, and it has no memory.
    pub fn give_up(&'static self) {
        let mut inner = self.lock();
        inner.let_go();
        // Who found it before sees under the lock that it is another's.
        self.of.allocator.store(NOBODY, Ordering::Release);
        drop(inner);
        UNUSED.write().lanes.push(self);
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    #[inline]
    pub fn of(&self) -> &Of {
        &self.of
    }

    /// A front for the calling thread, which may have one to be used again. `None` when the lane is closed.
    pub fn front(&'static self, again: Option<&'static Front>) -> Option<&'static Front> {
        let mut inner = self.lock();
        if inner.closed {
            return None;
        }
        let front = match again {
            Some(front) => {
                // SAFETY: the thread's own, and let go of by its lane.
                unsafe { front.renew(self) };
                front
            }
            None => Front::make(self),
        };
        inner.fronts.push(front);
        Some(front)
    }
}

impl Inner {
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// Changes the heap, and what is counted of all of them with it.
    fn change<R>(&mut self, change: impl FnOnce(&mut Heap) -> R) -> R {
        let before = self.heap.whole;
        let result = change(&mut self.heap);
        count(&self.totals.whole, before, self.heap.whole);
        result
    }

    /// A block of at least `size` bytes of the heap.
    pub fn take(&mut self, size: u64) -> Option<&'static Block> {
        let taken = self.change(|heap| heap.take(size))?;
        self.taken += 1;
        Some(taken)
    }

    /// As `take`, handed out to a caller on the usual way. `None` too when nothing goes that way any more.
    pub fn take_out(&mut self, size: u64, tag: u32) -> Option<Taken> {
        if self.closed {
            return None;
        }
        let block = self.take(size)?;
        Some(block.hand_out(size, tag))
    }

    /// As `take_out`, for the thread of a front that remembers it as one of this lane: by now the lane may serve another allocator. What the
    /// heap lacks may be cut from a block that the thread has at hand.
    pub fn take_out_for(&mut self, front: &Front, size: u64, tag: u32) -> Option<Taken> {
        if front.is_free() {
            return None;
        }
        self.take_out(size, tag).or_else(|| self.take_out_larger(front, size, tag))
    }

    /// The heap has nothing that serves: all is at hand, or in use. To join all that is at hand would have the next requests cut it again,
    /// so a larger block is looked for there.
    #[cold]
    fn take_out_larger(&mut self, front: &Front, size: u64, tag: u32) -> Option<Taken> {
        if self.closed {
            return None;
        }
        let larger = front.take_larger(size)?;
        self.put(larger);
        self.take_out(size, tag)
    }

    /// Takes back what a caller has on the usual way; `told` is called with the bytes that were asked for. `None` when it is not out
    /// in that life; else as `put`.
    pub fn put_out(&mut self, block: &'static Block, life: Life, told: impl FnOnce(u64)) -> Option<bool> {
        let asked = block.asked();
        if life.state() != State::Out || !block.turn(life, State::AtHand) {
            return None;
        }
        told(asked);
        Some(self.put(block))
    }

    /// Whether nothing goes on the usual way any more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes back what `take` gave. True when more is free in whole chunks now than is to be kept.
    pub fn put(&mut self, block: &'static Block) -> bool {
        let is_whole = self.change(|heap| heap.put(block).is_some());
        is_whole && self.has_enough()
    }

    /// Whether more is free in whole chunks than is to be kept.
    pub fn has_enough(&self) -> bool {
        let keep = self.totals.keep.load(Ordering::Relaxed);
        keep != 0 && self.totals.whole.load(Ordering::Relaxed) > keep
    }

    /// As `Heap::add`.
    pub fn add(&mut self, chunk: Chunk) -> Result<(), Refused> {
        self.change(|heap| heap.add(chunk))
    }

    /// As `Heap::remove_whole`.
    pub fn remove_whole(&mut self, bytes: u64, may_go: impl Fn(&Chunk) -> bool) -> Vec<Chunk> {
        self.change(|heap| heap.remove_whole(bytes, may_go))
    }

    /// As `Heap::move_all`.
    pub fn move_all(&mut self) {
        self.heap.move_all();
    }

    /// As `Heap::remove_dead`; for a closed lane.
    pub fn remove_dead(&mut self, is_dead: impl Fn(&Chunk) -> bool, told: impl FnMut(u64)) -> Vec<Chunk> {
        self.change(|heap| heap.remove_dead(is_dead, told))
    }

    /// As `Heap::remove_one`.
    pub fn remove_one(&mut self, bytes: u64, small: bool) -> Option<Chunk> {
        self.change(|heap| heap.remove_one(bytes, small))
    }

    /// How many blocks the heap gave.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes what threads have at hand, and puts it into the heap; false when there is nothing. `mine` is the calling thread's.
    pub fn gather(&mut self, mine: Option<&'static Front>) -> bool {
        self.gather_from(mine, &Front::ALL)
    }

    /// As `gather`, but only blocks of chunks that a request of `size` bytes can be served from.
    pub fn gather_for(&mut self, mine: Option<&'static Front>, size: u64) -> bool {
        self.gather_from(mine, Front::classes_for(size))
    }

    fn gather_from(&mut self, mine: Option<&'static Front>, classes: &Range<usize>) -> bool {
        self.shut(mine);
        let some = self.empty(classes);
        if !self.closed {
            self.fronts.iter().for_each(|front| front.open());
        }
        some
    }

    /// As `gather`, and no thread has anything at hand until it is opened.
    pub fn close(&mut self) {
        self.closed = true;
        self.shut(None);
        self.empty(&Front::ALL);
    }

    /// How often it was opened: the same again means that it was closed all the time.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Threads have some at hand again.
    pub fn open(&mut self) {
        self.closed = false;
        self.opened += 1;
        self.fronts.iter().for_each(|front| front.open());
    }

    fn shut(&self, mine: Option<&'static Front>) {
        self.fronts.iter().for_each(|front| front.shut());
        let is_mine = |front: &&'static Front| mine.is_some_and(|mine| std::ptr::eq(*front, mine));
        if !self.fronts.iter().all(is_mine) {
            thread::heavy_fence();
            self.fronts.iter().for_each(|front| front.wait());
        }
    }

    fn empty(&mut self, classes: &Range<usize>) -> bool {
        let mut some = false;
        let fronts = std::mem::take(&mut self.fronts);
        for front in &fronts {
            front.empty(classes, |block| {
                some = true;
                self.put(block);
            });
        }
        self.fronts = fronts;
        some
    }

    /// Bytes that threads have at hand.
    pub fn at_hand(&self) -> u64 {
        self.fronts.iter().map(|front| front.bytes()).sum()
    }

    /// How many blocks were handed out without the heap.
    pub fn taken_at_hand(&self) -> u64 {
        self.fronts.iter().map(|front| front.taken()).sum()
    }

    /// Forgets its fronts, which are shut for good and empty.
    fn let_go(&mut self) {
        debug_assert!(self.closed && self.heap.reserved == 0);
        for front in self.fronts.drain(..) {
            front.let_go();
        }
    }
}

fn count(sum: &AtomicU64, before: u64, after: u64) {
    if after > before {
        sum.fetch_add(after - before, Ordering::Relaxed);
    } else if before > after {
        sum.fetch_sub(before - after, Ordering::Relaxed);
    }
}
