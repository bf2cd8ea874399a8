//! Streams that the library makes when they are first asked for.

use super::{STREAMS, Stream};
use crate::error::Result;
use crate::fork::Lock;
use crate::handle::{Entered, Handle};
use crate::{log, runtime};
use std::sync::atomic::{AtomicU64, Ordering};

/// A stream that is made at its first use, and anew when its handle is stale.
pub struct OnDemand {
    handle: AtomicU64,
    making: Lock<()>,
}

impl OnDemand {
    pub fn new() -> OnDemand {
        OnDemand { handle: AtomicU64::new(0), making: Lock::new(()) }
    }

    /// Its handle, stale or not; 0 before its first use.
    pub fn handle(&self) -> Handle {
        self.handle.load(Ordering::Acquire)
    }

    #[inline]
    pub fn enter(&self, make: impl FnOnce() -> Result<Handle>) -> Result<Entered<Stream>> {
        STREAMS.enter(self.handle()).or_else(|_| self.make(make))
    }

    #[cold]
    fn make(&self, make: impl FnOnce() -> Result<Handle>) -> Result<Entered<Stream>> {
        // In a child that puts the lock right, which must not be held then.
        runtime::require_live()?;
        // The receiver of a message may come here again.
        log::after(|| {
            let _one = self.making.write();
            if let Ok(stream) = STREAMS.enter(self.handle()) {
                return Ok(stream);
            }
            let handle = make()?;
            self.handle.store(handle, Ordering::Release);
            STREAMS.enter(handle)
        })
    }

    /// After a fork, in the child.
    ///
    /// # Safety
    /// As `Lock::replace_in_child`.
    pub unsafe fn mend_in_child(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.making.replace_in_child(()) };
    }
}
