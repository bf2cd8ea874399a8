//! Memory pools: a device's own, created ones, those of other code, and which one a device allocates from.
//!
//! A `Pool` stands for one pool of the driver's. It belongs to a GPU and not to a context: contexts come and go, and neither
//! the pool nor its blocks go with them. It is over when the last handle of it is released and no device uses it; then a
//! pool that was created here is destroyed, and its live blocks stay good. What records name it by is its *slot*, which is
//! looked at without a lock and means another pool only when no record names the former one any more.
//!
//! Only pools that can be destroyed have to be entered by a call that gives them to the driver. A device's own is there
//! for good, so most allocations pay nothing for it.

mod choice;
mod lives;
mod memory;
mod table;

pub use choice::{enter_current, enter_in_use, forget_device, get, in_use, own_in_use, use_pool};
pub use lives::{Form, create, dismantle, enter, mend_in_child, release, wrap};
pub use memory::{trim_all, usage};
pub use table::{all_on, of_record};

pub use crate::driver::{PoolMemory, RawPool};

use crate::device::{self, Device};
use crate::error::{Result, fail};
use crate::handle;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// One pool of the driver's. Never freed, since records refer to it; one that is over and that no record names becomes
/// another pool.
pub struct Pool {
    /// What records say; 0 would be none.
    slot: u32,
    native: AtomicPtr<c_void>,
    /// The device that it was first known by.
    device: AtomicU32,
    /// Handles, and devices that use it. At none it is over.
    users: AtomicU32,
    /// Nothing of it is going on any more, and the slot waits to be used again.
    is_over: AtomicBool,
    /// Made here, and destroyed here.
    is_created: AtomicBool,
    /// A device's own.
    is_of_device: AtomicBool,
    /// It was a device's own in a former life of the library. Its owner may have destroyed it since, and the driver have given its
    /// name to another.
    is_past: AtomicBool,
    handle_types: AtomicU32,
    /// The most bytes that it may hold, 0 for no bound of its own or when nobody told.
    max_size: AtomicU64,
    /// The handle of a device's own pool, in this life of the library.
    handle: AtomicU64,
}

impl Pool {
    pub fn native(&self) -> RawPool {
        RawPool(self.native.load(Ordering::Relaxed))
    }

    /// The device that it was first known by, or what stands for that GPU now.
    pub fn device(&self) -> &'static Device {
        let known = self.first_device();
        if !known.is_lost() {
            return known;
        }
        device::heirs_of(known).first().copied().unwrap_or(known)
    }

    /// Keeps it from being destroyed; `None` when it was, or its owner may have done so.
    pub fn keep(&'static self) -> Option<Kept> {
        if self.is_past() {
            return None;
        }
        // Only what was counted is given back when it is dropped.
        self.join().then(|| Kept { pool: self })
    }

    /// The number that records carry.
    #[inline]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    pub fn is_created(&self) -> bool {
        self.is_created.load(Ordering::Relaxed)
    }

    pub fn is_of_device(&self) -> bool {
        self.is_of_device.load(Ordering::Relaxed)
    }

    /// Whether it is a device's own in this life of the library, in which that is there for good.
    pub fn is_for_good(&self) -> bool {
        self.is_of_device() && !self.is_past()
    }

    fn is_past(&self) -> bool {
        self.is_past.load(Ordering::Acquire)
    }

    pub fn handle_types(&self) -> u32 {
        self.handle_types.load(Ordering::Relaxed)
    }

    pub fn max_size(&self) -> u64 {
        self.max_size.load(Ordering::Relaxed)
    }

    fn first_device(&self) -> &'static Device {
        device::at(self.device.load(Ordering::Relaxed) as u16).expect("a pool's device was made before it")
    }

    /// Whether its memory is of the device's GPU.
    pub fn is_on(&self, device: &Device) -> bool {
        device.is_cuda() && self.first_device().ordinal() == device.ordinal()
    }

    /// An error unless its memory is of the device's GPU.
    pub fn require_on(&self, device: &Device) -> Result<()> {
        if self.is_on(device) {
            return Ok(());
        }
        fail!(
            InvalidArgument,
            "{} gives memory of \"{}\", and \"{}\" was named; use a pool of that device",
            self.name(),
            self.device().alias(),
            device.alias()
        )
    }

    /// How messages name it.
    pub fn name(&self) -> String {
        if self.is_of_device() {
            return "the device's pool".into();
        }
        let how = if self.is_created() { "created" } else { "wrapped" };
        format!("the {how} pool {:p}", self.native().0)
    }
}

/// A pool that a call is inside of: it is not destroyed meanwhile.
pub struct Entered {
    pool: &'static Pool,
    /// A device's own is there for good.
    _inside: Option<handle::Entered<lives::Named>>,
}

impl Entered {
    /// Keeps the pool from being over also when the call has left it.
    pub fn keep(&self) -> Kept {
        Kept::of(self.pool)
    }
}

/// A pool that somebody counts on beside calls: it is not destroyed before that is dropped.
pub struct Kept {
    pool: &'static Pool,
}

impl Kept {
    fn of(pool: &'static Pool) -> Kept {
        pool.join();
        Kept { pool }
    }
}

impl Clone for Kept {
    fn clone(&self) -> Kept {
        Kept::of(self.pool)
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Kept) -> bool {
        std::ptr::eq(self.pool, other.pool)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        lives::leave(self.pool);
    }
}

impl Deref for Kept {
    type Target = Pool;
    fn deref(&self) -> &Pool {
        self.pool
    }
}

impl Deref for Entered {
    type Target = Pool;
    #[inline]
    fn deref(&self) -> &Pool {
        self.pool
    }
}
