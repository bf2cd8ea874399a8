//! Peer access: what a context may touch of another context's plain memory.

use super::{Driver, Failure, RawContext};
use cudarc::driver::sys::CUpointer_attribute as Attribute;

impl Driver {
    /// Lets the current context touch plain memory of `target`. Being so already is a failure of its own.
    pub fn enable_peer(&self, target: RawContext) -> Result<(), Failure> {
        // SAFETY: a context handle that the driver gave; flags must be 0. A destroyed one is an error code.
        unsafe { self.table.cuCtxEnablePeerAccess(target.0.cast(), 0) }
    }

    /// Takes that from the current context again. Not being so is a failure of its own.
    pub fn disable_peer(&self, target: RawContext) -> Result<(), Failure> {
        // SAFETY: a context handle that the driver gave; a destroyed one is an error code.
        unsafe { self.table.cuCtxDisablePeerAccess(target.0.cast()) }
    }

    /// Whether a kernel of the current context may touch the memory at this address now, as the driver tells by whether the
    /// address has one there.
    pub fn reaches(&self, ptr: u64) -> Result<bool, Failure> {
        let mut there = 0u64;
        // SAFETY: the attribute is 64 bits wide; an address that is none there is an error code.
        let answer = unsafe {
            self.table.cuPointerGetAttribute(
                (&raw mut there).cast(),
                Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                ptr,
            )
        };
        match answer {
            Ok(()) => Ok(there == ptr),
            Err(f) if f.is_invalid_value() => Ok(false),
            Err(f) => Err(f),
        }
    }
}
