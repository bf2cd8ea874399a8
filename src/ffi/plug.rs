//! # Plugs
//!
//! Plain functions that frameworks take as their allocators, by address or by name: they serve PyTorch and CuPy from whatever is
//! installed here. They have no status; what goes wrong is a NULL, the thread's error, and a message to the log callback. No
//! stream has to outlive its use here: blocks are freed after the work of their GPU where nothing else is known.
//!
//! PyTorch: `torch.cuda.memory.CUDAPluggableAllocator("libwarpmem.so", "warp_torch_alloc", "warp_torch_free")`, best as the
//! allocator of a `torch.cuda.MemPool`, which takes a NULL for out of memory. CuPy: `cupy.cuda.CFunctionAllocator` with the
//! addresses of warp_cupy_malloc and warp_cupy_free; CuPy does not look at a NULL. The library must be initialised.

use super::allocator::{given_allocator, warp_allocator};
use super::boundary::{address, pointer};
use crate::error::{Error, Result};
use crate::log::log;
use crate::plug;
use std::ffi::c_void;

/// The body of a function that has no status: what goes wrong is kept for the thread, and told.
fn without_status(what: &str, body: impl FnOnce() -> Result<u64>) -> *mut c_void {
    let mut got = 0;
    let told = |error: &Error| log!(Error, "{what}: {error}");
    super::boundary::guard(|| {
        got = body().inspect_err(told)?;
        Ok(())
    });
    pointer(got)
}

/// Memory for PyTorch: `alloc` of a CUDAPluggableAllocator. Served as warp_alloc() on that GPU and stream. While the stream is
/// captured the memory is allocated beside the capture and is no part of the graph, as PyTorch's private pools expect.
///
/// @param size  bytes; 0 is NULL.
/// @param device  the GPU's number.
/// @param stream  a cudaStream_t of that GPU's primary context; NULL, 1 and 2 as there.
/// @return the memory, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_torch_alloc(size: usize, device: i32, stream: *mut c_void) -> *mut c_void {
    without_status("an allocation for PyTorch", || {
        if size == 0 { Ok(0) } else { plug::alloc_on_stream(device, stream.expose_provenance(), size as u64) }
    })
}

/// Frees memory of warp_torch_alloc(): `free` of a CUDAPluggableAllocator.
///
/// @param ptr  the memory; NULL does nothing.
/// @param size  its bytes, which are checked: another size is an error, and nothing is freed.
/// @param device  not looked at: the block knows it.
/// @param stream  not looked at: the block knows its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_torch_free(ptr: *mut c_void, size: usize, device: i32, stream: *mut c_void) {
    let _ = (device, stream);
    without_status("a free of PyTorch's", || {
        plug::free(address(ptr), (size != 0).then_some(size as u64)).map(|()| 0)
    });
}

/// Tells that work on a stream uses memory of warp_torch_alloc(): for `set_record_stream_fn`, without which PyTorch's
/// record_stream does nothing.
///
/// @param ptr  any address in the memory.
/// @param stream  a cudaStream_t of the memory's GPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_torch_record_stream(ptr: *mut c_void, stream: *mut c_void) {
    without_status("a stream recorded for PyTorch", || {
        plug::record_stream(address(ptr), stream.expose_provenance()).map(|()| 0)
    });
}

/// Memory for CuPy, which names no stream: good on all of them when this returns, and freed after all work of its GPU.
///
/// @param param  an allocator; NULL for what serves the device.
/// @param size  bytes; 0 is NULL.
/// @param device  the GPU's number.
/// @return the memory, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_cupy_malloc(param: *mut c_void, size: usize, device: i32) -> *mut c_void {
    without_status("an allocation for CuPy", || {
        let allocator = given_allocator(param.cast::<warp_allocator>())?;
        if size == 0 { Ok(0) } else { plug::alloc_anywhere(device, size as u64, allocator.as_ref()) }
    })
}

/// Frees memory of warp_cupy_malloc().
///
/// @param param  not looked at: the block knows its allocator.
/// @param ptr  the memory; NULL does nothing.
/// @param device  not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_cupy_free(param: *mut c_void, ptr: *mut c_void, device: i32) {
    let _ = (param, device);
    without_status("a free of CuPy's", || plug::free(address(ptr), None).map(|()| 0));
}
