//! What one thread has at hand of a lane: blocks by class, which it takes and gives without a lock and without writing what another
//! thread writes. Who wants them from outside shuts the front, waits until its thread is not in the middle of it, and takes them.

use super::block::{Block, Life, Link, State};
use super::sizes::{class_below, class_of, rounded};
use super::{Lane, sizes};
use crate::thread;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Larger blocks are not kept at hand.
pub const MOST_AT_HAND: u64 = 1 << 30;
const CLASSES: usize = class_of(MOST_AT_HAND) + 1;
/// As many blocks of one class.
const MOST: u32 = 32;

struct List {
    first: Link,
    count: AtomicU32,
}

/// One thread's part of a lane. Never freed; a front that is done with serves its thread in another lane.
#[repr(C, align(128))]
pub struct Front {
    /// Whether its thread is in the middle of it.
    busy: AtomicBool,
    /// Whether its thread has to keep out.
    shut: AtomicBool,
    bytes: AtomicU64,
    most: AtomicU64,
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
            bytes: AtomicU64::new(0),
            most: AtomicU64::new(lane.of().most_at_hand()),
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
        self.most.store(lane.of().most_at_hand(), Ordering::Relaxed);
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
    pub fn take(&self, size: u64, tag: u32) -> Option<(&'static Block, Life)> {
        let class = class_of(size);
        let _inside = self.enter()?;
        let list = self.lists.get(class)?;
        let block = match list.first.get() {
            Some(block) => block,
            // A block between two classes is in the list of the lower.
            None if class != 0 && size > sizes::STEPPED => return self.take_between(size, tag),
            None => return None,
        };
        self.unlink(list, block);
        Some((block, block.hand_out(size, tag)))
    }

    #[cold]
    fn take_between(&self, size: u64, tag: u32) -> Option<(&'static Block, Life)> {
        let list = self.lists.get(class_below(rounded(size)))?;
        let block = list.first.get().filter(|block| block.size() >= size)?;
        self.unlink(list, block);
        Some((block, block.hand_out(size, tag)))
    }

    #[inline(always)]
    fn unlink(&self, list: &List, block: &'static Block) {
        list.first.set(block.links.next.get());
        list.count.store(list.count.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        self.bytes.store(self.bytes.load(Ordering::Relaxed) - block.size(), Ordering::Relaxed);
        self.taken.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Takes a block of its lane that is out in that life; for its thread. `told` is called with the bytes that were asked for, before anybody
    /// else can have the block.
    #[inline(always)]
    pub fn give(&self, block: &'static Block, life: Life, told: impl FnOnce(u64)) -> Given {
        let Some(_inside) = self.enter() else { return Given::NoRoom };
        let Some(list) = self.lists.get(block.class()) else { return Given::NoRoom };
        let (bytes, count) = (self.bytes.load(Ordering::Relaxed), list.count.load(Ordering::Relaxed));
        if bytes > self.most.load(Ordering::Relaxed) || count >= MOST {
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
        self.bytes.store(bytes + block.size(), Ordering::Relaxed);
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

    /// All its blocks; for who has waited after shutting it.
    pub(super) fn empty(&self, mut visit: impl FnMut(&'static Block)) {
        for list in &self.lists {
            let mut block = list.first.get();
            list.first.set(None);
            list.count.store(0, Ordering::Relaxed);
            while let Some(found) = block {
                block = found.links.next.get();
                visit(found);
            }
        }
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Bytes at hand, about, while its thread goes on.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many blocks were taken from it.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}
