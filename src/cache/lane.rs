//! Cached memory of one stream: what is given back there is at once good for whoever asks there, on any thread. A heap under a lock,
//! and in front of it what each thread has at hand.

use super::block::Block;
use super::front::Front;
use super::heap::Heap;
use crate::thread;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::AtomicU32;

/// Memory of one stream, or of none. Never freed.
pub struct Lane {
    inner: Mutex<Inner>,
    /// As many bytes as each thread has at hand.
    most_at_hand: u64,
    of: Of,
}

/// Whose memory it is: numbers whose meaning belongs to the rooms above.
pub struct Of {
    pub device: u16,
    /// The slot of the stream; of a lane without one it is not looked at. Another stream follows when the work of that one is done.
    pub stream: AtomicU32,
    /// The slot of the allocator.
    pub allocator: u32,
}

pub struct Inner {
    pub heap: Heap,
    fronts: Vec<&'static Front>,
    /// Its fronts are shut for good.
    closed: bool,
    taken_before: u64,
}

impl Lane {
    pub fn make(of: Of, most_at_hand: u64) -> &'static Lane {
        let inner = Inner { heap: Heap::new(), fronts: Vec::new(), closed: false, taken_before: 0 };
        let lane: &'static Lane = Box::leak(Box::new(Lane { inner: Mutex::new(inner), most_at_hand, of }));
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

    pub fn most_at_hand(&self) -> u64 {
        self.most_at_hand
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
    /// Takes what threads have at hand, and puts it into the heap; `leaves` is called with each block before that. `mine` is the
    /// calling thread's.
    pub fn gather(&mut self, mine: Option<&'static Front>, leaves: impl FnMut(&'static Block)) -> bool {
        self.shut(mine);
        let some = self.empty(leaves);
        if !self.closed {
            self.fronts.iter().for_each(|front| front.open());
        }
        some
    }

    /// As `gather`, and no thread has anything at hand from now on.
    pub fn close(&mut self, leaves: impl FnMut(&'static Block)) {
        self.closed = true;
        self.shut(None);
        self.empty(leaves);
    }

    fn shut(&self, mine: Option<&'static Front>) {
        self.fronts.iter().for_each(|front| front.shut());
        let alone = mine.is_some_and(|mine| self.fronts.iter().all(|front| std::ptr::eq(*front, mine)));
        if !alone {
            thread::heavy_fence();
            self.fronts.iter().for_each(|front| front.wait());
        }
    }

    fn empty(&mut self, mut leaves: impl FnMut(&'static Block)) -> bool {
        let mut some = false;
        let heap = &mut self.heap;
        for front in &self.fronts {
            front.empty(|block| {
                some = true;
                leaves(block);
                heap.put(block);
            });
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
