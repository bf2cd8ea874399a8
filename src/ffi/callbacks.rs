//! Callbacks of allocators as the concepts call them: a request as the struct of the C face, an answer as a number.

use super::allocator::{
    account, warp_alloc_request, warp_allocator_destroy_callback, warp_allocator_statistics,
    warp_allocator_vtable,
};
use super::boundary::{address, opaque, pointer};
use super::device::told;
use super::ipc::warp_ipc_memory;
use super::memory::warp_memory_kind;
use super::status::{last_of, warp_status};
use crate::allocator::{Again, Callbacks, Exported, Statistics, Told};
use crate::error::{Result, Status, fail};
use std::ffi::{CStr, c_void};

type Allocate =
    unsafe extern "C-unwind" fn(*mut c_void, *const warp_alloc_request, *mut *mut c_void) -> warp_status;
type WithBlock =
    unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *const warp_alloc_request) -> warp_status;
type Destroy = unsafe extern "C-unwind" fn(*mut c_void);
type Trim = unsafe extern "C-unwind" fn(*mut c_void, *const warp_alloc_request, *mut u64) -> warp_status;
type ExportIpc = unsafe extern "C-unwind" fn(
    *mut c_void,
    *mut c_void,
    *const warp_alloc_request,
    *mut warp_ipc_memory,
) -> warp_status;
type GetStatistics = unsafe extern "C-unwind" fn(*mut c_void, *mut warp_allocator_statistics) -> warp_status;

/// The callbacks of a vtable, through an ABI that lets a foreign exception reach our shim.
pub struct Table {
    user: *mut c_void,
    allocate: Allocate,
    deallocate: WithBlock,
    destroy: Option<Destroy>,
    trim: Option<Trim>,
    get_statistics: Option<GetStatistics>,
    record_stream: Option<WithBlock>,
    export_ipc: Option<ExportIpc>,
}

// SAFETY: who creates an allocator promises that its callbacks may be called with this `user` on any thread.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// The same function by the other ABI.
///
/// # Safety
/// `To` is `From` with the ABI "C-unwind" for "C", which differ only in what happens when the callee unwinds.
unsafe fn unwinding<From: Copy, To>(call: From) -> To {
    // SAFETY: the caller's promise: both are pointers to functions.
    unsafe { std::mem::transmute_copy(&call) }
}

impl Table {
    pub fn new(vtable: &warp_allocator_vtable, user: *mut c_void) -> Result<Table> {
        let (Some(allocate), Some(deallocate)) = (vtable.allocate, vtable.deallocate) else {
            fail!(
                InvalidArgument,
                "warp_allocator_vtable has no {} callback; both allocate and deallocate are required",
                if vtable.allocate.is_none() { "allocate" } else { "deallocate" }
            );
        };
        // SAFETY: each pair of types differs in the ABI alone.
        unsafe {
            Ok(Table {
                user,
                allocate: unwinding(allocate),
                deallocate: unwinding(deallocate),
                destroy: vtable.destroy.map(|call| unwinding(call)),
                trim: vtable.trim.map(|call| unwinding(call)),
                get_statistics: vtable.get_statistics.map(|call| unwinding(call)),
                record_stream: vtable.record_stream.map(|call| unwinding(call)),
                export_ipc: vtable.export_ipc.map(|call| unwinding(call)),
            })
        }
    }
}

/// What a callback sees of a request.
pub fn shown(told_of: &Told<'_>) -> warp_alloc_request {
    let request = told_of.request;
    warp_alloc_request {
        struct_size: size_of::<warp_alloc_request>(),
        size: request.size,
        alignment: request.alignment,
        device: told(Some(request.device)),
        stream: opaque(told_of.stream),
        native_context: std::ptr::with_exposed_provenance_mut(told_of.native_context),
        native_stream: std::ptr::with_exposed_provenance_mut(told_of.native_stream),
        stream_id: told_of.stream_id,
        tag: told_of.tag.map_or(std::ptr::null(), CStr::as_ptr),
        ordinal: request.device.ordinal(),
        kind: told_of.kind as warp_memory_kind,
        flags: request.flags,
        reserved: 0,
    }
}

impl Callbacks for Table {
    fn allocate(&self, told: &Told<'_>) -> (i32, u64) {
        let (request, mut got) = (shown(told), std::ptr::null_mut());
        // SAFETY: a callback of the caller's with its `user`; request and result last for the call.
        let status = unsafe { (self.allocate)(self.user, &raw const request, &raw mut got) };
        (status, address(got))
    }

    fn last_failure(&self, status: i32) -> Option<String> {
        last_of(status)
    }

    fn deallocate(&self, address: u64, told: &Told<'_>) -> i32 {
        let request = shown(told);
        // SAFETY: as above.
        unsafe { (self.deallocate)(self.user, pointer(address), &raw const request) }
    }

    fn destroy(&self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: as above; the last call.
            unsafe { destroy(self.user) };
        }
    }

    fn trim(&self, told: &Told<'_>) -> Option<(i32, u64)> {
        let trim = self.trim?;
        let (request, mut freed) = (shown(told), 0);
        // SAFETY: as above.
        let status = unsafe { trim(self.user, &raw const request, &raw mut freed) };
        Some((status, freed))
    }

    fn records_streams(&self) -> bool {
        self.record_stream.is_some()
    }

    fn record_stream(&self, address: u64, told: &Told<'_>) -> Option<i32> {
        let record_stream = self.record_stream?;
        let request = shown(told);
        // SAFETY: as above.
        Some(unsafe { record_stream(self.user, pointer(address), &raw const request) })
    }

    fn export_ipc(&self, address: u64, told: &Told<'_>) -> Option<(i32, Exported)> {
        let export = self.export_ipc?;
        let request = shown(told);
        let mut out = warp_ipc_memory {
            struct_size: size_of::<warp_ipc_memory>(),
            handle: [0; 64],
            offset: 0,
            size: 0,
            ordinal: request.ordinal,
        };
        // SAFETY: as above.
        let status = unsafe { export(self.user, pointer(address), &raw const request, &raw mut out) };
        let exported =
            Exported { handle: out.handle, offset: out.offset, size: out.size, ordinal: out.ordinal };
        Some((status, exported))
    }

    fn statistics(&self) -> Option<(i32, Statistics)> {
        let get = self.get_statistics?;
        let mut account = account(&Statistics::default());
        // SAFETY: as above.
        let status = unsafe { get(self.user, &raw mut account) };
        let statistics = Statistics {
            live_bytes: account.live_bytes,
            peak_bytes: account.peak_bytes,
            live_blocks: account.live_blocks,
            peak_blocks: account.peak_blocks,
            total_bytes: account.total_bytes,
            total_blocks: account.total_blocks,
            failures: account.failures,
            reserved_bytes: account.reserved_bytes,
        };
        Some((status, statistics))
    }
}

type Failure = unsafe extern "C-unwind" fn(*mut c_void, *const warp_alloc_request, warp_status, u32) -> i32;

/// What is asked when an allocation fails.
pub struct Failures {
    user: *mut c_void,
    callback: Failure,
    destroy: Option<Destroy>,
}

// SAFETY: as for `Table`.
unsafe impl Send for Failures {}
// SAFETY: as above.
unsafe impl Sync for Failures {}

impl Failures {
    pub fn new(
        callback: unsafe extern "C" fn(*mut c_void, *const warp_alloc_request, warp_status, u32) -> i32,
        destroy: warp_allocator_destroy_callback,
        user: *mut c_void,
    ) -> Failures {
        // SAFETY: each pair of types differs in the ABI alone.
        unsafe {
            Failures { user, callback: unwinding(callback), destroy: destroy.map(|call| unwinding(call)) }
        }
    }
}

impl Again for Failures {
    fn again(&self, told: &Told<'_>, status: Status, attempt: u32) -> bool {
        let request = shown(told);
        // SAFETY: a callback of the caller's with its `user`; the request lasts for the call.
        unsafe { (self.callback)(self.user, &raw const request, status as warp_status, attempt) != 0 }
    }

    fn destroy(&self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: as above; the last call.
            unsafe { destroy(self.user) };
        }
    }
}
