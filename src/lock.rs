//! Locks that are nothing but a word: who waits sleeps in the kernel at its address, and no table says who does. A fork copies
//! such a table with threads in it that the child does not have, and whoever waits there next goes astray in it. The standard
//! library's locks are such words too, but know no reader inside a reader and no wait with an end.

use lock_api::{GuardNoSend, RawMutex as _, RawRwLock as _};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// As often a lock is looked at before its thread sleeps: most are held for less time than that takes.
const LOOKS: u32 = 100;

/// Sleeps while the word is `seen`, at most for a time; or wakes for no reason.
fn sleep(word: &AtomicU32, seen: u32, most: Option<Duration>) {
    let most = most.map(|most| libc::timespec {
        tv_sec: most.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: most.subsec_nanos().into(),
    });
    let most = most.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a word and a time that outlive the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, seen, most)
    };
}

/// Wakes as many as sleep there.
#[cold]
fn wake(word: &AtomicU32, most: i32) {
    // SAFETY: the kernel takes the address as a name only.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, most)
    };
}

/// Looks at a word some times, until it is as wanted.
fn look(word: &AtomicU32, wanted: impl Fn(u32) -> bool) -> u32 {
    for _ in 0..LOOKS {
        let seen = word.load(Ordering::Relaxed);
        if wanted(seen) {
            return seen;
        }
        std::hint::spin_loop();
    }
    word.load(Ordering::Relaxed)
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// And somebody may sleep.
const AWAITED: u32 = 2;

/// For one at a time.
pub struct RawMutex(AtomicU32);

impl RawMutex {
    /// False when the time is over.
    #[cold]
    fn lock_slowly(&self, until: Option<Instant>) -> bool {
        let seen = look(&self.0, |seen| seen != HELD);
        if seen == FREE && self.try_lock() {
            return true;
        }
        // From now on it counts as awaited: whether another one sleeps is not known.
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            sleep(&self.0, AWAITED, left);
        }
        true
    }
}

// SAFETY: who finds the word `FREE` and writes another one has it alone, until it writes `FREE`.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: RawMutex = RawMutex(AtomicU32::new(FREE));
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slowly(None);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            wake(&self.0, 1);
        }
    }

    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != FREE
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, most: Duration) -> bool {
        self.try_lock_until(Instant::now() + most)
    }

    fn try_lock_until(&self, until: Instant) -> bool {
        self.try_lock() || self.lock_slowly(Some(until))
    }
}

/// One writer has it.
const WRITER: u32 = 1 << 31;
/// Somebody may sleep.
const SLEEPERS: u32 = 1 << 30;
/// A writer waits: no more readers, but for those that may be inside another read.
const CLOSED: u32 = 1 << 29;
const READERS: u32 = CLOSED - 1;

/// For many readers or one writer.
pub struct RawRwLock(AtomicU32);

impl RawRwLock {
    /// Adds a reader, where none of `against` is said.
    #[inline]
    fn try_read(&self, against: u32) -> bool {
        let add = |seen: u32| (seen & against == 0).then_some(seen + 1);
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, add).is_ok()
    }

    #[cold]
    fn read_slowly(&self, against: u32) {
        loop {
            let seen = look(&self.0, |seen| seen & against == 0);
            if seen & against == 0 {
                if self.try_read(against) {
                    return;
                }
            } else {
                self.await_change(seen, SLEEPERS);
            }
        }
    }

    #[cold]
    fn write_slowly(&self) {
        loop {
            let seen = look(&self.0, |seen| seen & (WRITER | READERS) == 0);
            if seen & (WRITER | READERS) == 0 {
                if self.try_lock_exclusive() {
                    return;
                }
            } else {
                self.await_change(seen, SLEEPERS | CLOSED);
            }
        }
    }

    /// Says that somebody waits, and sleeps until something changes.
    fn await_change(&self, seen: u32, says: u32) {
        let said = seen | says;
        if self.0.compare_exchange(seen, said, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            sleep(&self.0, said, None);
        }
    }

    /// After the last reader.
    #[cold]
    fn wake_sleepers(&self) {
        // Who takes it meanwhile wakes them in the end.
        let nobody_has_it = |seen: u32| (seen & (WRITER | READERS) == 0).then_some(0);
        let woken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, nobody_has_it);
        if woken.is_ok_and(|seen| seen & SLEEPERS != 0) {
            wake(&self.0, i32::MAX);
        }
    }
}

// SAFETY: readers are added while no writer has it, and a writer takes it while neither has.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: RawRwLock = RawRwLock(AtomicU32::new(0));
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        if !self.try_lock_shared() {
            self.read_slowly(WRITER | CLOSED);
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.try_read(WRITER | CLOSED)
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        let before = self.0.fetch_sub(1, Ordering::Release);
        if before & READERS == 1 && before & SLEEPERS != 0 {
            self.wake_sleepers();
        }
    }

    #[inline]
    fn lock_exclusive(&self) {
        if !self.try_lock_exclusive() {
            self.write_slowly();
        }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        let take = |seen: u32| (seen & (WRITER | READERS) == 0).then_some(seen | WRITER);
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).is_ok()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        if self.0.swap(0, Ordering::Release) & SLEEPERS != 0 {
            wake(&self.0, i32::MAX);
        }
    }

    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (WRITER | READERS) != 0
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WRITER != 0
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockRecursive for RawRwLock {
    #[inline]
    fn lock_shared_recursive(&self) {
        if !self.try_lock_shared_recursive() {
            self.read_slowly(WRITER);
        }
    }

    #[inline]
    fn try_lock_shared_recursive(&self) -> bool {
        self.try_read(WRITER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let count = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..20_000).for_each(|_| *count.lock() += 1));
            }
        });
        assert_eq!(*count.lock(), 160_000);
    }

    #[test]
    fn a_held_lock_is_waited_for_as_long_as_said() {
        let lock = Mutex::new(());
        let held = lock.lock();
        let begun = Instant::now();
        assert!(lock.try_lock_for(Duration::from_millis(20)).is_none());
        assert!(begun.elapsed() >= Duration::from_millis(20));
        drop(held);
        assert!(lock.try_lock_for(Duration::ZERO).is_some());
    }

    #[test]
    fn readers_see_nothing_half_written() {
        let pair = RwLock::new((0, 0));
        std::thread::scope(|scope| {
            for number in 0..8 {
                let pair = &pair;
                scope.spawn(move || {
                    for round in 0..20_000 {
                        if (round + number) % 8 == 0 {
                            let mut pair = pair.write();
                            pair.0 += 1;
                            pair.1 += 1;
                        } else if number % 2 == 0 {
                            let outer = pair.read();
                            let inner = pair.read_recursive();
                            assert_eq!(outer.0, inner.1);
                        } else {
                            let pair = pair.read();
                            assert_eq!(pair.0, pair.1);
                        }
                    }
                });
            }
        });
        assert_eq!(*pair.read(), (20_000, 20_000));
    }

    #[test]
    fn a_waiting_writer_keeps_readers_out_but_not_inner_ones() {
        let lock = RwLock::new(0);
        std::thread::scope(|scope| {
            let outer = lock.read();
            scope.spawn(|| *lock.write() = 1);
            while lock.try_read().is_some() {
                std::thread::yield_now();
            }
            assert_eq!(*lock.read_recursive(), 0);
            drop(outer);
        });
        assert_eq!(*lock.read(), 1);
    }
}
