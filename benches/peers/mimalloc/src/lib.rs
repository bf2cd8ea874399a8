//! mimalloc under names of its own, as `host_churn` looks for it.

use std::ffi::c_void;

#[unsafe(no_mangle)]
pub extern "C" fn mimalloc_peer_malloc(size: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    unsafe { libmimalloc_sys::mi_malloc(size) }
}

/// # Safety
///
/// The pointer is NULL or a live block of `mimalloc_peer_malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mimalloc_peer_free(ptr: *mut c_void) {
    // SAFETY: the caller's.
    unsafe { libmimalloc_sys::mi_free(ptr) }
}
