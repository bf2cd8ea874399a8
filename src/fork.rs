//! What a fork leaves behind in its child: locks whose holders do not exist there, and values that they were in
//! the middle of changing. The locks of what the CPU needs are of this kind and are put right by the child's
//! first call of the library (`runtime::is_forked` has the one that notices).

use lock_api::RawRwLock as _;
use parking_lot::{RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A lock around a value that the child of a fork can go on using.
pub struct Lock<T> {
    inner: RwLock<T>,
}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Lock<T> {
        Lock { inner: RwLock::new(value) }
    }

    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.inner.read()
    }

    /// For a reader that may be inside another read of the same lock.
    #[inline]
    pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
        self.inner.read_recursive()
    }

    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.inner.write()
    }

    /// Takes the lock away from whoever held it when the process was forked. A value that was being written may
    /// be torn: it is left where it is, unlooked at, and `fresh` takes its place.
    ///
    /// # Safety
    /// Only in the child of a fork, by the one thread that puts the library right, before any other use of the
    /// lock there.
    pub unsafe fn mend_in_child(&self, fresh: impl FnOnce() -> T) {
        // SAFETY: the raw lock is only looked at and written over; nobody else uses it, by the caller's promise.
        let raw = unsafe { self.inner.raw() };
        if !raw.is_locked() {
            return;
        }
        if raw.is_locked_exclusive() {
            // SAFETY: its writer does not exist in this process and nobody else is here. The old value is not
            // dropped, since it may be half of one.
            unsafe { self.inner.data_ptr().write(fresh()) };
        }
        // SAFETY: as above; the raw lock is one atomic word, so writing through a shared reference is what it
        // is made for. Whoever was queued at it does not exist here either.
        unsafe { std::ptr::from_ref(raw).cast_mut().write(RawRwLock::INIT) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_was_left_locked_is_free_again_and_keeps_what_is_whole() {
        let lock = Lock::new(vec![1]);
        std::mem::forget(lock.read());
        // SAFETY: this thread is alone with the lock; the forgotten guard stands for a thread that is gone.
        unsafe { lock.mend_in_child(Vec::new) };
        lock.write().push(2);
        assert_eq!(*lock.read(), [1, 2]);

        std::mem::forget(lock.write());
        // SAFETY: as above.
        unsafe { lock.mend_in_child(Vec::new) };
        assert!(lock.read().is_empty());

        // SAFETY: as above.
        unsafe { lock.mend_in_child(|| vec![9]) };
        assert!(lock.read().is_empty(), "a lock that is free has nothing to mend");
    }
}
