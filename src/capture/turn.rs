//! One run of a graph of the CPU at a time. A launch waits for the run of another thread, unless that thread waits, through
//! however many others, for the one that asks.

use crate::fork::Monitor;
use crate::thread;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whose run goes on: 0 for nobody's, else the number of the thread.
pub struct Turn(AtomicUsize);

/// A run that goes on, until this is dropped.
pub struct HeldTurn<'a>(&'a Turn);

/// Why a run cannot begin, now or by waiting.
#[derive(Debug, PartialEq, Eq)]
pub enum Denied {
    /// The calling thread is in the middle of one.
    Own,
    /// The thread that is waits for the calling one.
    Circle,
}

/// A thread that waits.
struct Wait {
    thread: usize,
    turn: usize,
    /// Whose run it waits for; 0 when that is over and the thread has not gone on yet.
    of: usize,
}

/// Those who wait for any graph: few at any time. In place for so many, since a run does not allocate.
static WAITS: Monitor<SmallVec<[Wait; 32]>> = Monitor::new(SmallVec::new_const());
/// How many there are. Raised before a waiting thread looks whose turn it is, and read after a turn was given back, so that one of
/// the two sees the other.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Of a forked child: the thread that came over from the parent.
static SURVIVOR: AtomicUsize = AtomicUsize::new(0);

fn me() -> usize {
    thread::mine().number()
}

impl Turn {
    pub const fn new() -> Turn {
        Turn(AtomicUsize::new(0))
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub fn take(&self) -> Result<HeldTurn<'_>, Denied> {
        let me = me();
        loop {
            match self.0.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Ok(HeldTurn(self)),
                Err(owner) if owner == me => return Err(Denied::Own),
                Err(_) => self.wait(me)?,
            }
        }
    }

    /// Comes back when the run that went on is over.
    #[cold]
    fn wait(&self, me: usize) -> Result<(), Denied> {
        let mut waits = WAITS.lock();
        WAITING.fetch_add(1, Ordering::SeqCst);
        waits.push(Wait { thread: me, turn: self.address(), of: 0 });
        let waited = loop {
            let owner = self.0.load(Ordering::SeqCst);
            if owner == 0 {
                break Ok(());
            }
            if leads_to(&waits, owner, me) {
                break Err(Denied::Circle);
            }
            for wait in waits.iter_mut().filter(|wait| wait.thread == me) {
                wait.of = owner;
            }
            waits = WAITS.wait(waits);
        };
        waits.retain(|wait| wait.thread != me);
        WAITING.fetch_sub(1, Ordering::SeqCst);
        waited
    }

    /// In a forked child, before anything else: a run that a thread of the parent was in the middle of does not end here.
    pub fn mend(&self) {
        if self.0.load(Ordering::Acquire) != SURVIVOR.load(Ordering::Acquire) {
            self.0.store(0, Ordering::Release);
        }
    }
}

/// Whether a thread waits for another one, directly or by those in between. Each waits for one at most.
fn leads_to(waits: &[Wait], from: usize, to: usize) -> bool {
    let mut at = from;
    // A thread that waits was let in because that made no circle.
    for _ in 0..=waits.len() {
        match waits.iter().find(|wait| wait.thread == at) {
            Some(wait) if wait.of == to => return true,
            Some(wait) if wait.of != 0 => at = wait.of,
            _ => return false,
        }
    }
    false
}

impl Drop for HeldTurn<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::SeqCst);
        if WAITING.load(Ordering::SeqCst) != 0 {
            self.0.wake();
        }
    }
}

impl Turn {
    #[cold]
    fn wake(&self) {
        let mut waits = WAITS.lock();
        for wait in waits.iter_mut().filter(|wait| wait.turn == self.address()) {
            wait.of = 0;
        }
        drop(waits);
        WAITS.tell();
    }
}

/// After a fork, in the child, on the thread that forked.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub(super) unsafe fn mend_in_child() {
    SURVIVOR.store(me(), Ordering::Release);
    WAITING.store(0, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { WAITS.replace_in_child(SmallVec::new_const()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::time::Duration;

    #[test]
    fn a_turn_is_one_threads_at_a_time_and_never_its_own_twice() {
        static TURN: Turn = Turn::new();
        static INSIDE: AtomicUsize = AtomicUsize::new(0);
        let taken = TURN.take().ok();
        assert_eq!(TURN.take().err(), Some(Denied::Own));
        let others: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    for _ in 0..500 {
                        let _taken = TURN.take().ok().unwrap();
                        assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0);
                        INSIDE.fetch_sub(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(INSIDE.load(Ordering::SeqCst), 0);
        drop(taken);
        others.into_iter().for_each(|other| other.join().unwrap());
    }

    #[test]
    fn of_threads_that_would_wait_in_a_circle_one_is_told() {
        static TURNS: [Turn; 3] = [const { Turn::new() }; 3];
        for _ in 0..200 {
            let start = Barrier::new(3);
            let circles = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for first in 0..3 {
                    let (start, circles) = (&start, &circles);
                    scope.spawn(move || {
                        let own = TURNS[first].take().ok().unwrap();
                        start.wait();
                        // Each waits for the next one's, and has its own meanwhile.
                        match TURNS[(first + 1) % 3].take() {
                            Ok(next) => drop(next),
                            Err(denied) => {
                                assert_eq!(denied, Denied::Circle);
                                circles.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                        drop(own);
                    });
                }
            });
            assert_eq!(circles.load(Ordering::SeqCst), 1);
        }
        assert_eq!(WAITING.load(Ordering::SeqCst), 0);
    }
}
