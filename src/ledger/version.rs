//! The lock of one node: a version that readers compare and writers hold.
//!
//! Even means free, odd means a writer is inside. A reader notes an even version, reads the node's words (all of them
//! atomics, read relaxed), and keeps what it read only if the version is still the same; it never writes.

use std::hint;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;

/// Spins before a waiter gives its core away: the holder may be a thread that is not running.
const SPINS_BEFORE_YIELD: u32 = 128;

/// Waiting that spins at first and then lets other threads run.
#[derive(Default)]
pub(super) struct Backoff(u32);

impl Backoff {
    pub(super) fn wait(&mut self) {
        if self.0 < SPINS_BEFORE_YIELD {
            self.0 += 1;
            hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

pub(super) struct Version(AtomicU64);

impl Version {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The version to compare with later, or `None` while a writer is inside.
    #[inline]
    pub(super) fn try_begin(&self) -> Option<u64> {
        let seen = self.0.load(Ordering::Acquire);
        (seen & 1 == 0).then_some(seen)
    }

    /// The version to compare with later, once no writer is inside.
    #[inline]
    pub(super) fn begin(&self) -> u64 {
        let mut backoff = Backoff::default();
        loop {
            if let Some(seen) = self.try_begin() {
                return seen;
            }
            backoff.wait();
        }
    }

    /// Whether everything read since `seen` was noted belongs together.
    #[inline]
    pub(super) fn unchanged(&self, seen: u64) -> bool {
        // Pairs with the release fence of `try_lock_at`: having read a word that a writer wrote, we see its odd version.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == seen
    }

    /// Takes the lock if nobody changed the node since `seen` was noted.
    #[inline]
    pub(super) fn try_lock_at(&self, seen: u64) -> Option<Held<'_>> {
        self.0.compare_exchange(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // No write to the node may be seen before the odd version is.
        fence(Ordering::Release);
        Some(Held { version: self, at: seen })
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<Held<'_>> {
        self.try_lock_at(self.try_begin()?)
    }

    /// Takes the lock, waiting for it.
    #[inline]
    pub(super) fn lock(&self) -> Held<'_> {
        let mut backoff = Backoff::default();
        loop {
            if let Some(held) = self.try_lock() {
                return held;
            }
            backoff.wait();
        }
    }

    pub(super) fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) & 1 == 1
    }

    /// Takes the lock away from a thread that does not exist any more. Only for the child of a fork.
    pub(super) fn break_lock(&self) {
        let seen = self.0.load(Ordering::Relaxed);
        if seen & 1 == 1 {
            self.0.store(seen + 1, Ordering::Release);
        }
    }
}

/// A node held by its writer; let go when dropped, on a panic of a caller's closure too.
pub(super) struct Held<'a> {
    version: &'a Version,
    at: u64,
}

impl Held<'_> {
    /// Lets go of a node that was not changed: versions noted before stay good.
    pub(super) fn untouched(self) {
        self.version.0.store(self.at, Ordering::Release);
        mem::forget(self);
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.version.0.store(self.at.wrapping_add(2), Ordering::Release);
    }
}
