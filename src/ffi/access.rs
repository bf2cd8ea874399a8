//! # Access
//!
//! May code on this device touch this memory? The answer is yes, no, or that it cannot be verified, each with a reason. It
//! is about who may, as it is now: not about order, nor about whether work that is queued has written the memory yet.
//!
//! What governs memory is its rule (warp_access_rule), and no setting of today: pool memory goes by its pool's access, plain
//! device memory by peer access, a mapping by whom it was mapped for, a graph's memory by what its pool allowed when it was
//! captured. For memory of other code the driver is asked. Asking changes nothing, makes no context, and is legal while
//! something is captured; a thread that captures on the device is told what was so when its capture began.

use super::array::{found as found_array, warp_array};
use super::boundary::{Grows, address, guard, handle, out, out_struct};
use super::device::{found_device, told, warp_device};
use super::indexed::{found as found_indexed, warp_indexed_array};
use super::memory::{warp_access_rule, warp_memory_kind};
use super::status::warp_status;
use crate::access::{self, Access, Finding, Reason};
use crate::array::PlainlyOn;
use std::ffi::{CStr, c_char, c_void};

/// Whether memory may be touched.
pub type warp_access = i32;

/// Code on the device may read and write it.
pub const WARP_ACCESS_ACCESSIBLE: warp_access = 1;
/// It may be that code on the device can touch it; nothing that can be asked tells.
pub const WARP_ACCESS_UNVERIFIED: warp_access = 2;
/// Code on the device would fault.
pub const WARP_ACCESS_INACCESSIBLE: warp_access = 3;

/// Why: below 100 it is accessible, below 200 inaccessible, from 200 on unverified. Later versions may know more.
pub type warp_access_reason = i32;

/// Nothing is to be told: the reason in the report of a launch that may be made.
pub const WARP_ACCESS_REASON_NONE: warp_access_reason = 0;
/// There is no memory: NULL, or an array without items.
pub const WARP_ACCESS_REASON_EMPTY: warp_access_reason = 1;
/// It is the device's own.
pub const WARP_ACCESS_REASON_SAME_DEVICE: warp_access_reason = 2;
/// It is of the same GPU, by another context.
pub const WARP_ACCESS_REASON_SAME_GPU: warp_access_reason = 3;
/// Page-locked host memory, and a GPU with unified addressing.
pub const WARP_ACCESS_REASON_PINNED_MAPPING: warp_access_reason = 4;
/// Host memory, and a GPU that reaches pageable memory.
pub const WARP_ACCESS_REASON_PAGEABLE_ACCESS: warp_access_reason = 5;
/// Managed memory of a GPU that lets the CPU touch it at any time.
pub const WARP_ACCESS_REASON_MANAGED_CONCURRENT: warp_access_reason = 6;
/// Managed memory of a GPU that the CPU reaches directly.
pub const WARP_ACCESS_REASON_MANAGED_DIRECT: warp_access_reason = 7;
/// Managed memory, and two GPUs that support it.
pub const WARP_ACCESS_REASON_MANAGED_ON_BOTH: warp_access_reason = 8;
/// Plain memory of another GPU, and peer access to it is enabled.
pub const WARP_ACCESS_REASON_PEER_ACCESS: warp_access_reason = 9;
/// Its pool gives the device access.
pub const WARP_ACCESS_REASON_POOL_ACCESS: warp_access_reason = 10;
/// A mapping that is for the device too.
pub const WARP_ACCESS_REASON_MAPPED: warp_access_reason = 11;
/// A graph's memory, whose pool gave the device access when it was captured.
pub const WARP_ACCESS_REASON_GRAPH_ACCESS: warp_access_reason = 12;
/// Pageable host memory, and a GPU that does not reach that.
pub const WARP_ACCESS_REASON_NO_PAGEABLE_ACCESS: warp_access_reason = 101;
/// Page-locked host memory, and a GPU without unified addressing.
pub const WARP_ACCESS_REASON_NO_UNIFIED_ADDRESSING: warp_access_reason = 102;
/// Device memory, and the CPU.
pub const WARP_ACCESS_REASON_DEVICE_MEMORY: warp_access_reason = 103;
/// Managed memory that the CPU must not touch while the GPU works.
pub const WARP_ACCESS_REASON_MANAGED_NOT_CONCURRENT: warp_access_reason = 104;
/// Managed memory, and one of the two GPUs does not support it.
pub const WARP_ACCESS_REASON_MANAGED_NOT_SUPPORTED: warp_access_reason = 105;
/// The two GPUs cannot be peers.
pub const WARP_ACCESS_REASON_NOT_PEERS: warp_access_reason = 106;
/// Plain memory of another GPU, and peer access to it is not enabled.
pub const WARP_ACCESS_REASON_NO_PEER_ACCESS: warp_access_reason = 107;
/// Its pool does not give the device access.
pub const WARP_ACCESS_REASON_NO_POOL_ACCESS: warp_access_reason = 108;
/// A mapping that is not for the device.
pub const WARP_ACCESS_REASON_NOT_MAPPED: warp_access_reason = 109;
/// A graph's memory, whose pool did not give the device access when it was captured.
pub const WARP_ACCESS_REASON_NO_GRAPH_ACCESS: warp_access_reason = 110;
/// Memory of another process, or of a context that is no device here, which peer access does not lead to.
pub const WARP_ACCESS_REASON_OTHER_PROCESS: warp_access_reason = 111;
/// Only of a launch check in strict mode: it is not the launch device's.
pub const WARP_ACCESS_REASON_NOT_ON_LAUNCH_DEVICE: warp_access_reason = 112;
/// Neither the library nor the driver knows it.
pub const WARP_ACCESS_REASON_UNKNOWN_MEMORY: warp_access_reason = 201;
/// A mapping that the device may read and not write.
pub const WARP_ACCESS_REASON_MAPPED_READ_ONLY: warp_access_reason = 202;
/// Memory of a graph that other code captured.
pub const WARP_ACCESS_REASON_FOREIGN_GRAPH: warp_access_reason = 203;
/// The driver did not answer.
pub const WARP_ACCESS_REASON_NO_ANSWER: warp_access_reason = 204;

/// The constant's number and name for each reason: the one place that ties the two rooms together.
const NAMES: [(Reason, warp_access_reason, &CStr); 28] = [
    (Reason::Empty, WARP_ACCESS_REASON_EMPTY, c"WARP_ACCESS_REASON_EMPTY"),
    (Reason::SameDevice, WARP_ACCESS_REASON_SAME_DEVICE, c"WARP_ACCESS_REASON_SAME_DEVICE"),
    (Reason::SameGpu, WARP_ACCESS_REASON_SAME_GPU, c"WARP_ACCESS_REASON_SAME_GPU"),
    (Reason::PinnedMapping, WARP_ACCESS_REASON_PINNED_MAPPING, c"WARP_ACCESS_REASON_PINNED_MAPPING"),
    (Reason::PageableAccess, WARP_ACCESS_REASON_PAGEABLE_ACCESS, c"WARP_ACCESS_REASON_PAGEABLE_ACCESS"),
    (
        Reason::ManagedConcurrent,
        WARP_ACCESS_REASON_MANAGED_CONCURRENT,
        c"WARP_ACCESS_REASON_MANAGED_CONCURRENT",
    ),
    (Reason::ManagedDirect, WARP_ACCESS_REASON_MANAGED_DIRECT, c"WARP_ACCESS_REASON_MANAGED_DIRECT"),
    (Reason::ManagedOnBoth, WARP_ACCESS_REASON_MANAGED_ON_BOTH, c"WARP_ACCESS_REASON_MANAGED_ON_BOTH"),
    (Reason::PeerAccess, WARP_ACCESS_REASON_PEER_ACCESS, c"WARP_ACCESS_REASON_PEER_ACCESS"),
    (Reason::PoolAccess, WARP_ACCESS_REASON_POOL_ACCESS, c"WARP_ACCESS_REASON_POOL_ACCESS"),
    (Reason::Mapped, WARP_ACCESS_REASON_MAPPED, c"WARP_ACCESS_REASON_MAPPED"),
    (Reason::GraphAccess, WARP_ACCESS_REASON_GRAPH_ACCESS, c"WARP_ACCESS_REASON_GRAPH_ACCESS"),
    (
        Reason::NoPageableAccess,
        WARP_ACCESS_REASON_NO_PAGEABLE_ACCESS,
        c"WARP_ACCESS_REASON_NO_PAGEABLE_ACCESS",
    ),
    (
        Reason::NoUnifiedAddressing,
        WARP_ACCESS_REASON_NO_UNIFIED_ADDRESSING,
        c"WARP_ACCESS_REASON_NO_UNIFIED_ADDRESSING",
    ),
    (Reason::DeviceMemory, WARP_ACCESS_REASON_DEVICE_MEMORY, c"WARP_ACCESS_REASON_DEVICE_MEMORY"),
    (
        Reason::ManagedNotConcurrent,
        WARP_ACCESS_REASON_MANAGED_NOT_CONCURRENT,
        c"WARP_ACCESS_REASON_MANAGED_NOT_CONCURRENT",
    ),
    (
        Reason::ManagedNotSupported,
        WARP_ACCESS_REASON_MANAGED_NOT_SUPPORTED,
        c"WARP_ACCESS_REASON_MANAGED_NOT_SUPPORTED",
    ),
    (Reason::NotPeers, WARP_ACCESS_REASON_NOT_PEERS, c"WARP_ACCESS_REASON_NOT_PEERS"),
    (Reason::NoPeerAccess, WARP_ACCESS_REASON_NO_PEER_ACCESS, c"WARP_ACCESS_REASON_NO_PEER_ACCESS"),
    (Reason::NoPoolAccess, WARP_ACCESS_REASON_NO_POOL_ACCESS, c"WARP_ACCESS_REASON_NO_POOL_ACCESS"),
    (Reason::NotMapped, WARP_ACCESS_REASON_NOT_MAPPED, c"WARP_ACCESS_REASON_NOT_MAPPED"),
    (Reason::NoGraphAccess, WARP_ACCESS_REASON_NO_GRAPH_ACCESS, c"WARP_ACCESS_REASON_NO_GRAPH_ACCESS"),
    (Reason::OtherProcess, WARP_ACCESS_REASON_OTHER_PROCESS, c"WARP_ACCESS_REASON_OTHER_PROCESS"),
    (
        Reason::NotOnLaunchDevice,
        WARP_ACCESS_REASON_NOT_ON_LAUNCH_DEVICE,
        c"WARP_ACCESS_REASON_NOT_ON_LAUNCH_DEVICE",
    ),
    (Reason::UnknownMemory, WARP_ACCESS_REASON_UNKNOWN_MEMORY, c"WARP_ACCESS_REASON_UNKNOWN_MEMORY"),
    (Reason::MappedReadOnly, WARP_ACCESS_REASON_MAPPED_READ_ONLY, c"WARP_ACCESS_REASON_MAPPED_READ_ONLY"),
    (Reason::ForeignGraph, WARP_ACCESS_REASON_FOREIGN_GRAPH, c"WARP_ACCESS_REASON_FOREIGN_GRAPH"),
    (Reason::NoAnswer, WARP_ACCESS_REASON_NO_ANSWER, c"WARP_ACCESS_REASON_NO_ANSWER"),
];

const _: () = {
    let mut i = 0;
    while i < NAMES.len() {
        assert!(NAMES[i].0 as i32 == NAMES[i].1 && NAMES[i].0 as i32 == Reason::ALL[i] as i32);
        i += 1;
    }
    assert!(NAMES.len() == Reason::ALL.len());
    assert!(Access::Accessible as i32 == WARP_ACCESS_ACCESSIBLE);
    assert!(Access::Unverified as i32 == WARP_ACCESS_UNVERIFIED);
    assert!(Access::Inaccessible as i32 == WARP_ACCESS_INACCESSIBLE);
};

/// What was found out about a device and some memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_access_info {
    /// sizeof(warp_access_info), set by the caller.
    pub struct_size: usize,
    /// The device that the memory is at home on; NULL when that is unknown, or no longer in the table.
    pub device: *mut warp_device,
    /// May the device that was asked about touch it?
    pub access: warp_access,
    /// Why.
    pub reason: warp_access_reason,
    /// Where the memory comes from. Of an indexed array whose parts differ, WARP_MEMORY_UNKNOWN.
    pub kind: warp_memory_kind,
    /// What governs who may touch it.
    pub rule: warp_access_rule,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_access_info {
    const FIRST_SIZE: usize = size_of::<warp_access_info>();
    const NAME: &'static str = "warp_access_info";
}

fn shown(found: &Finding) -> warp_access_info {
    warp_access_info {
        struct_size: size_of::<warp_access_info>(),
        device: told(found.home),
        access: found.access() as i32,
        reason: found.reason as i32,
        kind: found.kind as i32,
        rule: found.rule as i32,
    }
}

/// Whether code on a device may touch an array's memory; the memory of a view is its array's. As warp_access_get_status(), but
/// made to be asked often: it does not look whether the contexts are still there, and on the array's own device not even
/// whether the memory is.
///
/// @param device  the device; NULL for the default.
/// @param array  the array.
/// @param out  1 when it may, 0 when it may not or that cannot be verified.
/// @return As warp_access_get_status().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_access_can(
    device: *const warp_device,
    array: *const warp_array,
    out: *mut u8,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        if PlainlyOn::device(device).is(handle(array)) {
            out.put(1);
        } else {
            out.put(u8::from(access::may_touch(device, &*found_array(array)?)?));
        }
        Ok(())
    })
}

/// What code on a device may do with an array's memory, and why. Memory that the library allocated is judged by its record,
/// any other as the driver knows it now.
///
/// @param device  the device; NULL for the default.
/// @param array  the array. One without items is accessible.
/// @param out  filled as far as its struct_size goes.
/// @return WARP_ERROR_DEVICE_LOST when the context of the memory, or of the device, is gone; WARP_ERROR_UNKNOWN_POINTER when
///     the array's memory was freed by its address; WARP_ERROR_FORKED in a forked child where the driver would have to be
///     asked. What the driver does not answer is no error, but WARP_ACCESS_REASON_NO_ANSWER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_access_get_status(
    device: *const warp_device,
    array: *const warp_array,
    out: *mut warp_access_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let device = found_device(device)?;
        out.put(shown(&access::of_array(device, &*found_array(array)?)?));
        Ok(())
    })
}

/// As warp_access_can(), for any address. Whether the context of the device's own memory is still there is not looked at.
///
/// @param device  the device; NULL for the default.
/// @param ptr  an address anywhere in the memory; for NULL the answer is 1.
/// @param out  1 when code on the device may touch it, 0 when it may not or that cannot be verified.
/// @return As warp_access_get_status().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_access_can_pointer(
    device: *const warp_device,
    ptr: *const c_void,
    out: *mut u8,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let found = access::of_pointer(found_device(device)?, address(ptr))?;
        out.put(u8::from(found.is_accessible()));
        Ok(())
    })
}

/// As warp_access_get_status(), for any address. Ordinary memory of the program, which neither the library nor the driver
/// knows, cannot be verified: it looks like what was freed, or never was memory. Nor can what only the driver knows in a forked
/// child. Whether the context of the device's own memory is still there is not looked at.
///
/// @param device  the device; NULL for the default.
/// @param ptr  an address anywhere in the memory; NULL is accessible.
/// @param out  filled as far as its struct_size goes.
/// @return As warp_access_get_status().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_access_get_pointer_status(
    device: *const warp_device,
    ptr: *const c_void,
    out: *mut warp_access_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        out.put(shown(&access::of_pointer(found_device(device)?, address(ptr))?));
        Ok(())
    })
}

/// As warp_access_can(), for an indexed array: its data and all its index arrays.
///
/// @param device  the device; NULL for the default.
/// @param indexed  the indexed array.
/// @param out  1 when code on the device may touch all of it.
/// @return As warp_access_get_status().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_access_can_indexed(
    device: *const warp_device,
    indexed: *const warp_indexed_array,
    out: *mut u8,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let found = access::of_indexed(found_device(device)?, &*found_indexed(indexed)?)?;
        out.put(u8::from(found.is_accessible()));
        Ok(())
    })
}

/// As warp_access_get_status(), for an indexed array: what the worst of its data and its index arrays is. One part that is
/// inaccessible makes the whole so, else one that cannot be verified.
///
/// @param device  the device; NULL for the default.
/// @param indexed  the indexed array.
/// @param out  filled as far as its struct_size goes.
/// @return As warp_access_get_status().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_access_get_indexed_status(
    device: *const warp_device,
    indexed: *const warp_indexed_array,
    out: *mut warp_access_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        out.put(shown(&access::of_indexed(found_device(device)?, &*found_indexed(indexed)?)?));
        Ok(())
    })
}

/// Whether code on one device may touch what default requests on another are served with at present: pool memory, plain
/// memory, or ordinary host memory. A rough question: of memory that exists ask warp_access_can().
///
/// @param device  the device; NULL for the default.
/// @param other  the device that the memory would be of; NULL for the default.
/// @param out  1 when it may.
/// @return WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED, WARP_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_access_can_device(
    device: *const warp_device,
    other: *const warp_device,
    out: *mut u8,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(u8::from(access::of_device(found_device(device)?, found_device(other)?)?));
        Ok(())
    })
}

/// The name of a reason, such as "WARP_ACCESS_REASON_NO_POOL_ACCESS"; "WARP_ACCESS_REASON_UNKNOWN" for a number that is
/// none. The text is static. Any thread, before warp_init() too.
#[unsafe(no_mangle)]
pub extern "C" fn warp_access_reason_get_name(reason: warp_access_reason) -> *const c_char {
    if reason == WARP_ACCESS_REASON_NONE {
        return c"WARP_ACCESS_REASON_NONE".as_ptr();
    }
    let named = NAMES.iter().find(|(_, number, _)| *number == reason);
    named.map_or(c"WARP_ACCESS_REASON_UNKNOWN", |(_, _, name)| name).as_ptr()
}
