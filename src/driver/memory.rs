//! Getting, giving back and filling memory.

use super::{Driver, Failure, RawPool, RawStream};
use std::ffi::c_void;

impl Driver {
    /// Plain device memory in the current context.
    pub fn alloc_device(&self, size: usize) -> Result<u64, Failure> {
        let mut ptr = 0;
        // SAFETY: the out-pointer is valid.
        unsafe { self.table.cuMemAlloc_v2(&mut ptr, size)? };
        Ok(ptr)
    }

    /// Managed memory of the current context's device, attached globally.
    pub fn alloc_managed(&self, size: usize) -> Result<u64, Failure> {
        const ATTACH_GLOBAL: u32 = 1;
        let mut ptr = 0;
        // SAFETY: the out-pointer is valid.
        unsafe { self.table.cuMemAllocManaged(&mut ptr, size, ATTACH_GLOBAL)? };
        Ok(ptr)
    }

    /// Device or managed memory back to the driver. Waits for all work of its context.
    pub fn free_device(&self, ptr: u64) -> Result<(), Failure> {
        // SAFETY: the ledger gives only addresses that this driver gave and that were not freed.
        unsafe { self.table.cuMemFree_v2(ptr) }
    }

    /// Page-locked memory that every context sees, owned by the current one.
    pub fn alloc_pinned(&self, size: usize) -> Result<u64, Failure> {
        const PORTABLE: u32 = 1;
        let mut ptr: *mut c_void = std::ptr::null_mut();
        // SAFETY: the out-pointer is valid.
        unsafe { self.table.cuMemHostAlloc(&mut ptr, size, PORTABLE)? };
        Ok(ptr.addr() as u64)
    }

    /// Page-locked memory back to the driver. Waits for all work of its context.
    pub fn free_pinned(&self, ptr: u64) -> Result<(), Failure> {
        // SAFETY: the ledger gives only addresses that `alloc_pinned` gave and that were not freed.
        unsafe { self.table.cuMemFreeHost(std::ptr::with_exposed_provenance_mut(ptr as usize)) }
    }

    /// Memory of `pool`, there for work on `stream` from now on. Needs no current context unless the stream
    /// is a special one.
    #[inline]
    pub fn alloc_from_pool(&self, size: usize, pool: RawPool, stream: RawStream) -> Result<u64, Failure> {
        let mut ptr = 0;
        // SAFETY: the out-pointer is valid; the caller pins the stream; a dead pool is an error code.
        unsafe { self.table.cuMemAllocFromPoolAsync(&mut ptr, size, pool.0.cast(), stream.0.cast())? };
        Ok(ptr)
    }

    /// Pool memory back to its pool, after the work so far on `stream`.
    #[inline]
    pub fn free_async(&self, ptr: u64, stream: RawStream) -> Result<(), Failure> {
        // SAFETY: the ledger gives only addresses that a pool gave and that were not freed; the caller pins
        // the stream.
        unsafe { self.table.cuMemFreeAsync(ptr, stream.0.cast()) }
    }

    /// Free and total bytes of the current context's device.
    pub fn memory_info(&self) -> Result<(u64, u64), Failure> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: the out-pointers are valid.
        unsafe { self.table.cuMemGetInfo_v2(&mut free, &mut total)? };
        Ok((free as u64, total as u64))
    }

    /// Sets `count` elements of 1, 2 or 4 bytes to `value`.
    pub fn fill(&self, dest: u64, value: FillValue, count: usize, stream: RawStream) -> Result<(), Failure> {
        // SAFETY: the caller checked the range against the block and pins the stream.
        unsafe {
            match value {
                FillValue::U8(v) => self.table.cuMemsetD8Async(dest, v, count, stream.0.cast()),
                FillValue::U16(v) => self.table.cuMemsetD16Async(dest, v, count, stream.0.cast()),
                FillValue::U32(v) => self.table.cuMemsetD32Async(dest, v, count, stream.0.cast()),
            }
        }
    }
}

/// What `fill` can set in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillValue {
    U8(u8),
    U16(u16),
    U32(u32),
}
