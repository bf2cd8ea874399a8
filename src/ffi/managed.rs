//! # Managed memory
//!
//! Managed memory moves to whoever touches it, page by page, which costs more than a copy when much of it is touched for the
//! first time. Sent there before, it arrives in one go and in the order of a stream; hints tell the driver where it is best kept.
//! Neither changes a byte, nor who may touch it. Any managed memory will do, of this library or of other code; it is allocated
//! with the kind WARP_MEMORY_CUDA_MANAGED.
//!
//! GPUs without concurrent managed access (is_concurrent_managed_access_supported of warp_device_info) take no part: there the
//! driver moves all of it when work begins.

use super::boundary::{Grows, address, guard, out, out_struct};
use super::device::{found_device, told, warp_device};
use super::status::warp_status;
use super::stream::{given, warp_stream};
use crate::managed::{self, Advice};
use crate::runtime;
use std::ffi::c_void;

/// A hint for managed memory.
pub type warp_managed_advice = i32;

/// It is read by many and seldom written: each reader gets a copy of its own, which a write does away with.
pub const WARP_MANAGED_ADVICE_SET_READ_MOSTLY: warp_managed_advice = 1;
/// That does not hold any more.
pub const WARP_MANAGED_ADVICE_UNSET_READ_MOSTLY: warp_managed_advice = 2;
/// It is best kept on the device: others reach it there, where they can, and it does not move to them.
pub const WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION: warp_managed_advice = 3;
/// No device is better than another.
pub const WARP_MANAGED_ADVICE_UNSET_PREFERRED_LOCATION: warp_managed_advice = 4;
/// The device will access it: it is kept mapped there, wherever it is, where that can be.
pub const WARP_MANAGED_ADVICE_SET_ACCESSED_BY: warp_managed_advice = 5;
/// That does not hold any more.
pub const WARP_MANAGED_ADVICE_UNSET_ACCESSED_BY: warp_managed_advice = 6;

/// No place: the ordinal of a place in warp_managed_state that is none, or not the same for all of the range.
pub const WARP_MANAGED_NOWHERE: i32 = -2;

const _: () = {
    assert!(Advice::SetReadMostly as i32 == WARP_MANAGED_ADVICE_SET_READ_MOSTLY);
    assert!(Advice::UnsetReadMostly as i32 == WARP_MANAGED_ADVICE_UNSET_READ_MOSTLY);
    assert!(Advice::SetPreferredLocation as i32 == WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION);
    assert!(Advice::UnsetPreferredLocation as i32 == WARP_MANAGED_ADVICE_UNSET_PREFERRED_LOCATION);
    assert!(Advice::SetAccessedBy as i32 == WARP_MANAGED_ADVICE_SET_ACCESSED_BY);
    assert!(Advice::UnsetAccessedBy as i32 == WARP_MANAGED_ADVICE_UNSET_ACCESSED_BY);
    assert!(managed::NOWHERE == WARP_MANAGED_NOWHERE);
};

/// What the driver was told of a range of managed memory. Where it is now nobody tells.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_managed_state {
    /// sizeof(warp_managed_state), set by the caller.
    pub struct_size: usize,
    /// The device that all of it is best kept on; NULL for none, and for one that is not in the table.
    pub preferred: *mut warp_device,
    /// The device that all of it was sent to last; NULL for none, and for one that is not in the table. It may have moved on since.
    pub last_prefetch: *mut warp_device,
    /// The GPU's number of `preferred`, -1 for the CPU, WARP_MANAGED_NOWHERE.
    pub preferred_ordinal: i32,
    /// The GPU's number of `last_prefetch`, -1 for the CPU, WARP_MANAGED_NOWHERE.
    pub last_prefetch_ordinal: i32,
    /// Is all of it said to be read by many?
    pub is_read_mostly: u8,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_managed_state {
    const FIRST_SIZE: usize = size_of::<warp_managed_state>();
    const NAME: &'static str = "warp_managed_state";
}

/// Sends managed memory to a device, in the order of a stream: work that comes later on that stream finds it there. The block's
/// free comes after it.
///
/// @param ptr  any address in a block of managed memory, of this library or of other code. The driver sends whole pages.
/// @param size  bytes; 0 for all from there to the end of the block.
/// @param target  where to; a GPU, or "cpu"; NULL for the default.
/// @param stream  where to put it, of any GPU; NULL for the current stream of the target, or of the memory's own GPU when the
///     target is the CPU.
/// @return with nothing sent: WARP_ERROR_INVALID_ARGUMENT for NULL, memory that is not managed, a range that passes the end of
///     its block, and the stream of the CPU; WARP_ERROR_UNKNOWN_POINTER; WARP_ERROR_NOT_SUPPORTED for a target, or the GPU of
///     the stream, without managed memory or concurrent managed access; WARP_ERROR_ILLEGAL_IN_CAPTURE on a stream that is
///     captured, since graphs have no such nodes: the capture goes on unharmed; WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED,
///     WARP_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_managed_prefetch(
    ptr: *const c_void,
    size: u64,
    target: *mut warp_device,
    stream: *mut warp_stream,
) -> warp_status {
    guard(|| {
        let target = found_device(target)?;
        managed::prefetch(address(ptr), size, target, given(stream)?.as_ref())
    })
}

/// Gives the driver a hint for managed memory. It holds at once, for whole pages, until it is taken back or the block is freed;
/// also while something is captured.
///
/// @param ptr  any address in a block of managed memory, of this library or of other code.
/// @param size  bytes; 0 for all from there to the end of the block.
/// @param advice  a WARP_MANAGED_ADVICE_… constant.
/// @param device  the device that it is about, a GPU or "cpu"; NULL for the default. READ_MOSTLY, and taking PREFERRED_LOCATION
///     back, are about none.
/// @return as warp_managed_prefetch(), and WARP_ERROR_INVALID_ARGUMENT for an advice that is none; WARP_ERROR_NOT_SUPPORTED also
///     for managed memory of a pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_managed_advise(
    ptr: *const c_void,
    size: u64,
    advice: warp_managed_advice,
    device: *mut warp_device,
) -> warp_status {
    guard(|| {
        let device = found_device(device)?;
        managed::advise(address(ptr), size, managed::advice_of(advice)?, device)
    })
}

/// Asks the driver what it was told of managed memory, by whomever: what holds for all of the range.
///
/// @param ptr  any address in a block of managed memory, of this library or of other code.
/// @param size  bytes; 0 for all from there to the end of the block.
/// @param out  filled as far as its struct_size goes.
/// @return WARP_ERROR_INVALID_ARGUMENT for NULL, memory that is not managed and a range that passes the end of its block;
///     WARP_ERROR_UNKNOWN_POINTER, WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED, WARP_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_managed_query_state(
    ptr: *const c_void,
    size: u64,
    out: *mut warp_managed_state,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        runtime::require_live()?;
        let state = managed::state(address(ptr), size)?;
        out.put(warp_managed_state {
            struct_size: size_of::<warp_managed_state>(),
            preferred: told(state.preferred.device),
            last_prefetch: told(state.last_prefetch.device),
            preferred_ordinal: state.preferred.ordinal,
            last_prefetch_ordinal: state.last_prefetch.ordinal,
            is_read_mostly: u8::from(state.is_read_mostly),
        });
        Ok(())
    })
}

/// Asks the driver whether it was told that a device accesses managed memory (WARP_MANAGED_ADVICE_SET_ACCESSED_BY). This is the
/// hint; who may touch the memory, warp_access_can() tells.
///
/// @param ptr  any address in a block of managed memory, of this library or of other code.
/// @param size  bytes; 0 for all from there to the end of the block.
/// @param device  a GPU or "cpu"; NULL for the default.
/// @param out  1 when that was said of all of the range, else 0.
/// @return as warp_managed_query_state().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_managed_query_accessed_by(
    ptr: *const c_void,
    size: u64,
    device: *const warp_device,
    out: *mut u8,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        out.put(u8::from(managed::is_accessed_by(address(ptr), size, device)?));
        Ok(())
    })
}
