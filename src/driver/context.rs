//! Guards around calls: the caller's current context, and its thread's capture mode, are the same after a
//! call as before it, on every path out.

use super::{Driver, Failure, RawContext};
use std::ffi::c_void;

/// While it lives, a given context is current on this thread; then the caller's is again.
#[must_use]
pub struct ContextGuard<'d> {
    driver: &'d Driver,
    /// `None` when the context was current already and there is nothing to undo.
    previous: Option<RawContext>,
}

impl Drop for ContextGuard<'_> {
    fn drop(&mut self) {
        if let Some(previous) = self.previous {
            // SAFETY: the context was current on this thread when the guard was made; the driver accepts
            // even one that was destroyed since. A failure means that the driver is gone, and then there is
            // no current context to restore.
            let _ = unsafe { self.driver.table.cuCtxSetCurrent(previous.0.cast()) };
        }
    }
}

/// While it lives, this thread may make calls that a capture elsewhere would otherwise count as unsafe and
/// die of. Made around every such call: a program's captures are not ours to see.
#[must_use]
pub struct RelaxedCapture<'d> {
    driver: &'d Driver,
    previous: u32,
}

impl Drop for RelaxedCapture<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut mode = self.previous;
        // SAFETY: `mode` is a valid capture mode, the one this thread had.
        let _ = unsafe { self.driver.table.cuThreadExchangeStreamCaptureMode((&raw mut mode).cast()) };
    }
}

impl Driver {
    /// The calling thread's current context, NULL when it has none.
    #[inline]
    pub fn current_context(&self) -> Result<RawContext, Failure> {
        let mut context = RawContext::NULL;
        // SAFETY: the out-pointer is valid and a context handle is a pointer.
        unsafe { self.table.cuCtxGetCurrent((&raw mut context.0).cast())? };
        Ok(context)
    }

    /// Makes `context` current until the guard goes.
    #[inline]
    pub fn enter(&self, context: RawContext) -> Result<ContextGuard<'_>, Failure> {
        let current = self.current_context()?;
        if current == context {
            return Ok(ContextGuard { driver: self, previous: None });
        }
        // SAFETY: a context handle that the driver gave; a destroyed one is refused or fails at first use.
        unsafe { self.table.cuCtxSetCurrent(context.0.cast())? };
        Ok(ContextGuard { driver: self, previous: Some(current) })
    }

    /// Makes `context` current again after foreign code may have changed that.
    pub fn put_back_context(&self, context: RawContext) {
        if !self.current_context().is_ok_and(|current| current == context) {
            // SAFETY: a context handle that was current before, or NULL; a destroyed one is refused.
            let _ = unsafe { self.table.cuCtxSetCurrent(context.0.cast()) };
        }
    }

    /// Relaxes this thread's capture mode until the guard goes.
    #[inline]
    pub fn relax_capture(&self) -> Result<RelaxedCapture<'_>, Failure> {
        const RELAXED: u32 = 2;
        let mut mode = RELAXED;
        // SAFETY: the driver reads and writes one 32-bit mode, valid on the way in; kept as a number on the
        // way out.
        unsafe { self.table.cuThreadExchangeStreamCaptureMode((&raw mut mode).cast())? };
        Ok(RelaxedCapture { driver: self, previous: mode })
    }

    /// The id that the driver never gives twice; fails once the context is destroyed.
    #[inline]
    pub fn context_id(&self, context: RawContext) -> Result<u64, Failure> {
        let mut id = 0;
        // SAFETY: the out-pointer is valid; a destroyed context answers CONTEXT_IS_DESTROYED.
        unsafe { self.table.cuCtxGetId(context.0.cast(), &mut id)? };
        Ok(id)
    }

    /// The GPU of the current context.
    pub fn current_context_ordinal(&self) -> Result<i32, Failure> {
        let mut device = 0;
        // SAFETY: the out-pointer is valid. A CUdevice is the ordinal in every driver there has been, and
        // the table of devices checks that when it is made.
        unsafe { self.table.cuCtxGetDevice(&mut device)? };
        Ok(device)
    }

    /// Waits for all work of the current context.
    pub fn synchronize_current_context(&self) -> Result<(), Failure> {
        // SAFETY: no arguments.
        unsafe { self.table.cuCtxSynchronize() }
    }

    /// Holds the primary context of the GPU, making it when nobody had.
    pub fn retain_primary_context(&self, device: i32) -> Result<RawContext, Failure> {
        let mut context: *mut c_void = std::ptr::null_mut();
        // SAFETY: the out-pointer is valid; the device came from the driver.
        unsafe { self.table.cuDevicePrimaryCtxRetain((&raw mut context).cast(), device)? };
        Ok(RawContext(context))
    }

    /// Lets go of one hold.
    pub fn release_primary_context(&self, device: i32) -> Result<(), Failure> {
        // SAFETY: the device came from the driver; a release too many is an error code.
        unsafe { self.table.cuDevicePrimaryCtxRelease_v2(device) }
    }

    /// Whether somebody holds the primary context; asking makes none.
    pub fn primary_context_is_active(&self, device: i32) -> Result<bool, Failure> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the out-pointers are valid.
        unsafe { self.table.cuDevicePrimaryCtxGetState(device, &mut flags, &mut active)? };
        Ok(super::truth(active))
    }
}
