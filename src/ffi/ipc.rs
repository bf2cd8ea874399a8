//! # Memory for other processes
//!
//! Plain device memory has a handle by which another process on the same machine opens it (cuIpcOpenMemHandle()). The handle
//! stands for the driver's whole block: what it opens there, with the offset added, is the address that was exported. The driver
//! shares memory in pieces of 2 MiB, so small blocks beside it can be reached by the other process as well.

use super::boundary::{Grows, address, guard, out_struct};
use super::status::warp_status;
use crate::{ipc, runtime};
use std::ffi::c_void;

/// What another process needs to open memory of this one; plain bytes, to be sent by any means.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_ipc_memory {
    /// sizeof(warp_ipc_memory), set by the caller.
    pub struct_size: usize,
    /// The driver's handle, a CUipcMemHandle or cudaIpcMemHandle_t.
    pub handle: [u8; 64],
    /// Bytes from what the handle opens to the address that was exported.
    pub offset: u64,
    /// Bytes of what the handle opens.
    pub size: u64,
    /// The GPU's number in this process. The other process may number its GPUs in another way.
    pub ordinal: i32,
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_ipc_memory {
    const FIRST_SIZE: usize = size_of::<warp_ipc_memory>();
    const NAME: &'static str = "warp_ipc_memory";
}

/// Exports the block that an address lies in. The block stays the library's, and the caller sees to it that it is freed only
/// when no other process has it open. Work is ordered between the processes by the caller. In a capture as well.
///
/// @param ptr  any address in a block of WARP_MEMORY_CUDA_DEVICE, of this library or of other code.
/// @param out  filled as far as its struct_size goes.
/// @return WARP_ERROR_NOT_SUPPORTED, with the way out in the message, for memory of any other kind, of graphs and of other
///     processes, and for GPUs without it (is_ipc_supported of warp_device_info); WARP_ERROR_INVALID_ARGUMENT for NULL;
///     WARP_ERROR_UNKNOWN_POINTER, WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED, WARP_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_ipc_export(ptr: *const c_void, out: *mut warp_ipc_memory) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        runtime::require_live()?;
        let exported = ipc::export(address(ptr))?;
        out.put(warp_ipc_memory {
            struct_size: size_of::<warp_ipc_memory>(),
            handle: exported.handle,
            offset: exported.offset,
            size: exported.size,
            ordinal: exported.ordinal,
        });
        Ok(())
    })
}
