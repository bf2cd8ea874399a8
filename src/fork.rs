//! What a fork leaves behind in its child: locks whose holders do not exist there, and values that they were in
//! the middle of changing. The locks of what the CPU needs are of this kind and are put right by the child's
//! first call of the library (`runtime::is_forked` has the one that notices).

use crate::lock::{RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
use lock_api::RawRwLock as _;

use std::cell::UnsafeCell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Values that a child found and did not trust. Kept, so that what they own does not look lost.
pub struct Distrusted<T> {
    latest: AtomicPtr<Kept<T>>,
}

struct Kept<T> {
    _value: MaybeUninit<T>,
    _former: *mut Kept<T>,
}

impl<T> Distrusted<T> {
    pub const fn new() -> Distrusted<T> {
        Distrusted { latest: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Puts a new value in the place of one that is not looked at and not dropped.
    ///
    /// # Safety
    /// `place` is the caller's to write, and nobody else's at the moment.
    pub unsafe fn replace(&self, place: *mut T, fresh: T) {
        // SAFETY: the caller's promise; bytes that may be no value of T stay `MaybeUninit`.
        let value = unsafe { place.cast::<MaybeUninit<T>>().replace(MaybeUninit::new(fresh)) };
        let kept = Kept { _value: value, _former: self.latest.load(Ordering::Relaxed) };
        self.latest.store(Box::into_raw(Box::new(kept)), Ordering::Relaxed);
    }
}

/// A lock around a value that the child of a fork can go on using.
pub struct Lock<T> {
    inner: RwLock<T>,
    distrusted: Distrusted<T>,
}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Lock<T> {
        Lock { inner: RwLock::new(value), distrusted: Distrusted::new() }
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

    /// Puts a free lock around a new value in its place. A fork copies memory while other threads still write, so
    /// the old value may be torn whether the lock looks held or not: it is left, unlooked at and not dropped.
    ///
    /// # Safety
    /// Only in the child of a fork, by the one thread that puts the library right, before any other use of the
    /// lock there.
    pub unsafe fn replace_in_child(&self, fresh: T) {
        // SAFETY: nobody else uses the lock or its value, by the caller's promise. The raw lock is one atomic
        // word, so writing it through a shared reference is what it is made for; whoever was queued at it does
        // not exist in this process.
        unsafe {
            self.distrusted.replace(self.inner.data_ptr(), fresh);
            std::ptr::from_ref(self.inner.raw()).cast_mut().write(RawRwLock::INIT);
        }
    }
}

impl<T: Copy> Lock<T> {
    /// As `replace_in_child`, keeping the value unless somebody was writing it.
    ///
    /// # Safety
    /// As `replace_in_child`; and `T` is a value whatever half of it was written.
    pub unsafe fn keep_in_child(&self, otherwise: T) {
        // SAFETY: the caller's promise.
        unsafe {
            let written = self.inner.raw().is_locked_exclusive();
            self.replace_in_child(if written { otherwise } else { *self.inner.data_ptr() });
        }
    }
}

/// A value under a lock, with a condition of it that threads wait for, which the child of a fork can go on using. Neither to lock
/// nor to wait allocates.
pub struct Monitor<T> {
    inner: UnsafeCell<Watched<T>>,
    distrusted: Distrusted<Watched<T>>,
}

struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

// SAFETY: the lock and the condition are replaced only while nobody else is here; the value is reached through the lock.
unsafe impl<T: Send> Sync for Monitor<T> {}

impl<T> Monitor<T> {
    pub const fn new(value: T) -> Monitor<T> {
        Monitor {
            inner: UnsafeCell::new(Watched { value: Mutex::new(value), changed: Condvar::new() }),
            distrusted: Distrusted::new(),
        }
    }

    fn watched(&self) -> &Watched<T> {
        // SAFETY: written only by `replace_in_child`, which is alone.
        unsafe { &*self.inner.get() }
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.watched().value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the lock until somebody says that the value has changed, or for no reason.
    pub fn wait<'a>(&'a self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.watched().changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all who wait. The caller has changed the value under the lock.
    pub fn tell(&self) {
        self.watched().changed.notify_all();
    }

    /// As `Lock::replace_in_child`.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn replace_in_child(&self, fresh: T) {
        let fresh = Watched { value: Mutex::new(fresh), changed: Condvar::new() };
        // SAFETY: nobody else uses it, by the caller's promise.
        unsafe { self.distrusted.replace(self.inner.get(), fresh) };
    }
}

/// A value that threads change, taken apart only by the process that made it: a fork copies it in the middle of a change. For
/// what a child has but never uses.
pub struct Own<T: 'static> {
    value: ManuallyDrop<Box<T>>,
    process: u32,
}

/// What children were left with. Kept, so that it does not look lost.
static LEFT: AtomicPtr<Left> = AtomicPtr::new(std::ptr::null_mut());

struct Left {
    _value: *const u8,
    _former: *mut Left,
}

impl<T: 'static> Own<T> {
    pub fn new(value: T) -> Own<T> {
        Own { value: ManuallyDrop::new(Box::new(value)), process: std::process::id() }
    }

    /// Whether this process made it.
    fn is_mine(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T: 'static> std::ops::Deref for Own<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: 'static> Drop for Own<T> {
    fn drop(&mut self) {
        if self.is_mine() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.value) };
            return;
        }
        let left = Box::into_raw(Box::new(Left {
            _value: std::ptr::from_ref::<T>(&self.value).cast(),
            _former: LEFT.load(Ordering::Relaxed),
        }));
        LEFT.store(left, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_was_left_locked_is_free_again() {
        let lock = Lock::new(vec![1]);
        std::mem::forget(lock.read());
        // SAFETY: this thread is alone with the lock; the forgotten guard stands for a thread that is gone.
        unsafe { lock.replace_in_child(vec![2]) };
        lock.write().push(3);
        assert_eq!(*lock.read(), [2, 3]);
    }

    #[test]
    fn a_monitor_that_was_left_locked_is_free_again() {
        let monitor = Monitor::new(1);
        std::mem::forget(monitor.lock());
        // SAFETY: this thread is alone with it; the forgotten guard stands for a thread that is gone.
        unsafe { monitor.replace_in_child(2) };
        assert_eq!(*monitor.lock(), 2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *monitor.lock() = 3;
                monitor.tell();
            });
            let mut value = monitor.lock();
            while *value != 3 {
                value = monitor.wait(value);
            }
        });
    }

    #[test]
    fn a_value_is_kept_unless_it_was_being_written() {
        let lock = Lock::new(1);
        std::mem::forget(lock.read());
        // SAFETY: as above.
        unsafe { lock.keep_in_child(5) };
        assert_eq!(*lock.write(), 1);
        std::mem::forget(lock.write());
        // SAFETY: as above.
        unsafe { lock.keep_in_child(5) };
        assert_eq!(*lock.write(), 5);
    }
}
