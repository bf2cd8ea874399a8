//! What one thread has at hand of a lane: blocks by class, which it takes and gives without a lock and without writing what another
//! thread writes. Who wants them from outside shuts the front, waits until its thread is not in the middle of it, and takes them.

use super::block::{Block, Life, Link, State, Taken};
use super::sizes::{class_below, class_of, rounded};
use super::{Lane, sizes};
use crate::thread;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Larger blocks are not kept at hand.
pub const MOST_AT_HAND: u64 = 1 << 30;
const CLASSES: usize = class_of(MOST_AT_HAND) + 1;
/// As many blocks of one class.
const MOST: u32 = 32;
/// The first class of large blocks, as heaps have it.
const LARGE: usize = class_of(sizes::SMALL) + 1;

struct List {
    first: Link,
    count: AtomicU32,
}

/// How many bytes there are at hand in blocks of a sort. Small ones have room of their own: a few large ones, of sizes that nobody wants
/// again soon, would else send all the others to the heap.
struct Room {
    bytes: AtomicU64,
    most: AtomicU64,
}

impl Room {
    fn new(most: u64) -> Room {
        Room { bytes: AtomicU64::new(0), most: AtomicU64::new(most) }
    }
}

/// One thread's part of a lane. Never freed; a front that is done with serves its thread in another lane.
#[repr(C, align(128))]
pub struct Front {
    /// Whether its thread is in the middle of it.
    busy: AtomicBool,
    /// Whether its thread has to keep out.
    shut: AtomicBool,
    small: Room,
    large: Room,
    /// No lane knows it.
    free: AtomicBool,
    taken: AtomicU64,
    lane: UnsafeCell<Option<&'static Lane>>,
    lists: [List; CLASSES],
}

// SAFETY: `lane` is written before the front is given to its thread and its lane, and not again before both have let go of it; the rest is atomic.
unsafe impl Sync for Front {}

/// What became of a block that was given.
#[derive(Debug, PartialEq, Eq)]
pub enum Given {
    Done,
    /// The front has enough, or is shut.
    NoRoom,
    /// The block is not out, or in another life.
    NotOut,
}

/// While its thread is in the middle of a front.
struct Inside<'a>(&'a Front);

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

impl Front {
    pub(super) fn make(lane: &'static Lane) -> &'static Front {
        let lists = std::array::from_fn(|_| List { first: Link::default(), count: AtomicU32::new(0) });
        let front = Front {
            busy: AtomicBool::new(false),
            shut: AtomicBool::new(false),
            small: Room::new(lane.of().most_at_hand()),
            large: Room::new(lane.of().most_at_hand()),
            free: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            lane: UnsafeCell::new(Some(lane)),
            lists,
        };
        Box::leak(Box::new(front))
    }

    /// Has a front that its lane has let go of serve another one.
    ///
    /// # Safety
    /// By its thread, and no lane knows it.
    pub(super) unsafe fn renew(&self, lane: &'static Lane) {
        // SAFETY: the caller's promise.
        unsafe { *self.lane.get() = Some(lane) };
        for room in [&self.small, &self.large] {
            room.most.store(lane.of().most_at_hand(), Ordering::Relaxed);
        }
        self.free.store(false, Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        self.shut.store(false, Ordering::Release);
    }

    /// Whether its lane has let go of it: it may serve its thread in another one.
    pub fn is_free(&self) -> bool {
        self.free.load(Ordering::Acquire)
    }

    pub(super) fn let_go(&self) {
        self.free.store(true, Ordering::Release);
    }

    #[inline(always)]
    pub fn lane(&self) -> Option<&'static Lane> {
        // SAFETY: see `Sync`.
        unsafe { *self.lane.get() }
    }

    #[inline(always)]
    fn enter(&self) -> Option<Inside<'_>> {
        self.busy.store(true, Ordering::Relaxed);
        thread::light_fence();
        let inside = Inside(self);
        if self.shut.load(Ordering::Acquire) { None } else { Some(inside) }
    }

    /// A block for `size` bytes, handed out; for its thread.
    #[inline(always)]
    pub fn take(&self, size: u64, tag: u32) -> Option<Taken> {
        let class = class_of(size);
        let _inside = self.enter()?;
        let list = self.lists.get(class)?;
        let block = match list.first.get() {
            Some(block) => block,
            // A block between two classes is in the list of the lower.
            None if class != 0 && size > sizes::STEPPED => return self.take_between(size, tag),
            None => return None,
        };
        self.unlink(list, class, block);
        Some(self.hand_out(block, size, tag))
    }

    #[inline(always)]
    fn room(&self, class: usize) -> &Room {
        if class < LARGE { &self.small } else { &self.large }
    }

    #[cold]
    fn take_between(&self, size: u64, tag: u32) -> Option<Taken> {
        let class = class_below(rounded(size));
        let list = self.lists.get(class)?;
        let block = list.first.get().filter(|block| block.size() >= size)?;
        self.unlink(list, class, block);
        Some(self.hand_out(block, size, tag))
    }

    /// A block that one of `size` bytes may be cut from, no more at hand: the smallest from the same sort of chunk that is larger. For its
    /// thread, when the heap has none.
    pub(super) fn take_larger(&self, size: u64) -> Option<&'static Block> {
        let classes = Self::classes_for(size);
        let _inside = self.enter()?;
        let class = class_of(size) + 1;
        let larger = self.lists.get(class..classes.end)?.iter().zip(class..);
        let (list, class, block) =
            larger.filter_map(|(list, class)| Some((list, class, list.first.get()?))).next()?;
        self.unlink(list, class, block);
        Some(block)
    }

    #[inline(always)]
    fn unlink(&self, list: &List, class: usize, block: &'static Block) {
        let bytes = &self.room(class).bytes;
        list.first.set(block.links.next.get());
        list.count.store(list.count.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        bytes.store(bytes.load(Ordering::Relaxed) - block.size(), Ordering::Relaxed);
    }

    #[inline(always)]
    fn hand_out(&self, block: &'static Block, size: u64, tag: u32) -> Taken {
        self.taken.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        block.hand_out(size, tag)
    }

    /// Takes a block of its lane that is out in that life; for its thread. `told` is called with the bytes that were asked for, before anybody
    /// else can have the block.
    #[inline(always)]
    pub fn give(&self, block: &'static Block, life: Life, told: impl FnOnce(u64)) -> Given {
        let Some(_inside) = self.enter() else { return Given::NoRoom };
        let class = block.class();
        let Some(list) = self.lists.get(class) else { return Given::NoRoom };
        let room = self.room(class);
        let (bytes, count) = (room.bytes.load(Ordering::Relaxed), list.count.load(Ordering::Relaxed));
        if bytes > room.most.load(Ordering::Relaxed) || count >= MOST {
            return Given::NoRoom;
        }
        let asked = block.asked();
        if life.state() != State::Out || !block.turn(life, State::AtHand) {
            return Given::NotOut;
        }
        told(asked);
        block.links.next.set(list.first.get());
        list.first.set(Some(block));
        list.count.store(count + 1, Ordering::Relaxed);
        room.bytes.store(bytes + block.size(), Ordering::Relaxed);
        Given::Done
    }

    /// Has its thread keep out. What it was in the middle of may go on until `wait` has returned.
    pub(super) fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    /// Waits until its thread is not in the middle of it. After `shut` and a heavy fence.
    pub(super) fn wait(&self) {
        while self.busy.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    pub(super) fn open(&self) {
        self.shut.store(false, Ordering::Release);
    }

    /// Its classes.
    pub(super) const ALL: Range<usize> = 0..CLASSES;

    /// Those with blocks of such chunks as serve requests of `size` bytes.
    pub(super) fn classes_for(size: u64) -> &'static Range<usize> {
        if rounded(size) <= sizes::SMALL { &(0..LARGE) } else { &(LARGE..CLASSES) }
    }

    /// All its blocks of some classes; for who has waited after shutting it.
    pub(super) fn empty(&self, classes: &Range<usize>, mut visit: impl FnMut(&'static Block)) {
        for (class, list) in self.lists.iter().enumerate().take(classes.end).skip(classes.start) {
            if list.count.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let bytes = &self.room(class).bytes;
            let mut block = list.first.get();
            list.first.set(None);
            list.count.store(0, Ordering::Relaxed);
            while let Some(found) = block {
                block = found.links.next.get();
                bytes.store(bytes.load(Ordering::Relaxed) - found.size(), Ordering::Relaxed);
                visit(found);
            }
        }
    }

    /// Bytes at hand, about, while its thread goes on.
    pub(super) fn bytes(&self) -> u64 {
        self.small.bytes.load(Ordering::Relaxed) + self.large.bytes.load(Ordering::Relaxed)
    }

    /// How many blocks were taken from it.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}
