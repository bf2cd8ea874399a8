//! # Pool access
//!
//! Whether kernels of one GPU may touch memory that comes from a pool of another (WARP_MEMORY_CUDA_MEMPOOL). What was said of
//! peer access is so here too, but for this:
//!
//! Peer access says nothing of pools, nor pool access of plain memory. Pool access is the GPU's, in whichever context, needs
//! none to be made, and has no limit but that the two could be peers. The target must have pools, the peer need not. A device
//! stands for its pool in use, and what its other pools give is not covered: those are named by warp_mempool_query_access()
//! and warp_mempool_set_access().

use super::boundary::{guard, opaque, out};
use super::device::warp_device;
use super::peer_access::{pair, set_for_all};
use super::scope::warp_scope;
use super::status::warp_status;
use crate::peer::{self, Memory};
use crate::scope;

/// Whether the peer could be given access to the target's pools; says nothing about whether it has it. The target must have
/// pools, and the two be such as could be peers, and not have failed warp_peer_access_verify(). 1 for a device and itself when
/// it has pools; 0 with the CPU on either side.
///
/// @param target  the device that owns the memory; NULL for the default.
/// @param peer  the device that would touch it; NULL for the default.
/// @param out  1 or 0.
/// @return WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_access_is_supported(
    target: *const warp_device,
    peer: *const warp_device,
    out: *mut u8,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let (target, peer) = pair(target, peer)?;
        out.put(u8::from(peer::can_be_enabled(Memory::InUse, target, peer)?));
        Ok(())
    })
}

/// Asks the driver whether kernels of the peer may touch what comes from the target's pool in use now, whoever enabled that.
/// Changes nothing and needs no context.
///
/// @param target  the device that owns the memory; NULL for the default.
/// @param peer  the device that touches it; NULL for the default.
/// @param out  1 or 0; for a device and itself 1 when it has pools, 0 with the CPU on either side.
/// @return WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_access_query_enabled(
    target: *const warp_device,
    peer: *const warp_device,
    out: *mut u8,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let (target, peer) = pair(target, peer)?;
        out.put(u8::from(peer::is_enabled(Memory::InUse, target, peer)?));
        Ok(())
    })
}

/// Lets kernels of the peer touch what comes from the target's pool in use, or no longer, for the whole process: what the pool
/// gave already, and what it will give. Memory of graphs keeps the access that there was at its capture. To disable what is not
/// enabled, what cannot be enabled, or anything with the CPU, does nothing, and so does whatever is asked of a GPU and itself.
///
/// To disable first waits for work of both GPUs, as warp_peer_access_set_enabled() does, and what it says of other work is so
/// here too.
///
/// @param target  the device that owns the memory; NULL for the default.
/// @param peer  the device that touches it; NULL for the default.
/// @param enabled  nonzero to enable, 0 to disable.
/// @return WARP_ERROR_INVALID_ARGUMENT to enable with the CPU on either side; WARP_ERROR_NOT_SUPPORTED to enable when the
///     target has no pools, or for GPUs that cannot be peers or failed warp_peer_access_verify(); WARP_ERROR_BUSY when an open
///     scope keeps the opposite; WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER. All is as
///     before then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_access_set_enabled(
    target: *mut warp_device,
    peer: *mut warp_device,
    enabled: u8,
) -> warp_status {
    guard(|| {
        let (target, peer) = pair(target, peer)?;
        peer::set(Memory::InUse, target, &[peer], enabled != 0)
    })
}

/// As warp_mempool_access_set_enabled() for many peers: for all of them or for none. What can be refused is refused before
/// anything is changed; when the driver refuses a pair, those before it are put back. The driver is asked for each pair alone,
/// and never about the target itself.
///
/// @param target  the device that owns the memory; NULL for the default.
/// @param peers  the devices that touch it, NULL among them for the default; NULL, with a count of 0, for every other GPU
///     that could be a peer of the target.
/// @param count  how many.
/// @param enabled  nonzero to enable, 0 to disable.
/// @return as warp_mempool_access_set_enabled(), with the pair in the message; WARP_ERROR_INVALID_ARGUMENT also when peers is
///     NULL and count is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_access_set_enabled_for(
    target: *mut warp_device,
    peers: *const *mut warp_device,
    count: usize,
    enabled: u8,
) -> warp_status {
    guard(|| set_for_all(Memory::InUse, target, peers, count, enabled != 0))
}

/// Keeps pool access enabled, or disabled, until the scope ends, in all as warp_scope_begin_peer_access() does with peer
/// access. It is about the pool that is in use when it begins, also when another is used later.
///
/// @param target  the device that owns the memory; NULL for the default.
/// @param peer  the device that touches it; NULL for the default.
/// @param enabled  nonzero to enable, 0 to disable.
/// @param out  the scope, to be ended with warp_scope_end().
/// @return as warp_mempool_access_set_enabled(); WARP_ERROR_NOT_SUPPORTED also when the thread has 64 scopes open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_scope_begin_mempool_access(
    target: *mut warp_device,
    peer: *mut warp_device,
    enabled: u8,
    out: *mut *mut warp_scope,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let (target, peer) = pair(target, peer)?;
        out.put(opaque(scope::begin_access(Memory::InUse, target, peer, enabled != 0)?));
        Ok(())
    })
}
