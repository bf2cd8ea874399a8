//! Cached memory of one stream: what is given back there is at once good for whoever asks there, on any thread. A heap under a lock,
//! and in front of it what each thread has at hand.

use super::block::Block;
use super::front::Front;
use super::heap::{Chunk, Heap, Refused};
use crate::thread;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Memory of one stream, or of none. Never freed.
pub struct Lane {
    inner: Mutex<Inner>,
    of: Of,
}

/// Whose memory it is: numbers whose meaning belongs to the rooms above.
pub struct Of {
    pub device: u16,
    pub has_stream: bool,
    /// The slot of the stream. Another one follows when its work is done.
    pub stream: AtomicU32,
    /// The slot of the allocator.
    pub allocator: u32,
    /// As many bytes as each thread has at hand.
    pub most_at_hand: u64,
    pub totals: &'static Totals,
}

/// What is counted of all lanes of an allocator together. Never freed.
#[derive(Default)]
pub struct Totals {
    pub reserved: AtomicU64,
    /// Bytes in chunks that are free as a whole.
    pub whole: AtomicU64,
    /// As many of those as are to be kept; 0 for any number.
    pub keep: u64,
}

pub struct Inner {
    heap: Heap,
    fronts: Vec<&'static Front>,
    /// Its fronts are shut for good.
    closed: bool,
    /// Blocks that the heap gave, and those of fronts that are gone.
    taken: u64,
    taken_before: u64,
    totals: &'static Totals,
}

impl Lane {
    pub fn make(of: Of) -> &'static Lane {
        let totals = of.totals;
        let inner =
            Inner { heap: Heap::new(), fronts: Vec::new(), closed: false, taken: 0, taken_before: 0, totals };
        let lane: &'static Lane = Box::leak(Box::new(Lane { inner: Mutex::new(inner), of }));
        lane.lock().heap.lane = Some(lane);
        lane
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
            // SAFETY: the thread's own, and let go of by its lane.
            Some(front) => {
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
        let before = (self.heap.reserved, self.heap.whole);
        let result = change(&mut self.heap);
        count(&self.totals.reserved, before.0, self.heap.reserved);
        count(&self.totals.whole, before.1, self.heap.whole);
        result
    }

    /// A block of at least `size` bytes of the heap.
    pub fn take(&mut self, size: u64) -> Option<&'static Block> {
        let taken = self.change(|heap| heap.take(size))?;
        self.taken += 1;
        Some(taken)
    }

    /// Takes back what `take` gave. True when more is free in whole chunks now than is to be kept.
    pub fn put(&mut self, block: &'static Block) -> bool {
        let is_whole = self.change(|heap| heap.put(block).is_some());
        let keep = self.totals.keep;
        is_whole && keep != 0 && self.totals.whole.load(Ordering::Relaxed) > keep
    }

    /// As `Heap::add`.
    pub fn add(&mut self, chunk: Chunk) -> Result<(), Refused> {
        self.change(|heap| heap.add(chunk))
    }

    /// As `Heap::remove_whole`.
    pub fn remove_whole(&mut self, bytes: u64) -> Vec<Chunk> {
        self.change(|heap| heap.remove_whole(bytes))
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
        self.shut(mine);
        let some = self.empty();
        if !self.closed {
            self.fronts.iter().for_each(|front| front.open());
        }
        some
    }

    /// As `gather`, and no thread has anything at hand from now on.
    pub fn close(&mut self) {
        self.closed = true;
        self.shut(None);
        self.empty();
    }

    fn shut(&self, mine: Option<&'static Front>) {
        self.fronts.iter().for_each(|front| front.shut());
        let alone = mine.is_some_and(|mine| self.fronts.iter().all(|front| std::ptr::eq(*front, mine)));
        if !alone {
            thread::heavy_fence();
            self.fronts.iter().for_each(|front| front.wait());
        }
    }

    fn empty(&mut self) -> bool {
        let mut some = false;
        for front in std::mem::take(&mut self.fronts) {
            front.empty(|block| {
                some = true;
                self.put(block);
            });
            self.fronts.push(front);
        }
        some
    }

    /// Bytes that threads have at hand.
    pub fn at_hand(&self) -> u64 {
        self.fronts.iter().map(|front| front.bytes()).sum()
    }

    /// How many blocks were handed out without the heap.
    pub fn taken_at_hand(&self) -> u64 {
        self.taken_before + self.fronts.iter().map(|front| front.taken()).sum::<u64>()
    }

    /// Forgets its fronts, which are shut for good and empty.
    pub fn let_go(&mut self) {
        if self.closed {
            self.taken_before = self.taken_at_hand();
            for front in self.fronts.drain(..) {
                front.let_go();
            }
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
