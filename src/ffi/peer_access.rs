//! # Peer access
//!
//! Whether kernels of one GPU may touch plain device memory (WARP_MEMORY_CUDA_DEVICE) of another. Memory of pools has its own
//! access; see the next chapter. Everywhere the order is (target, peer): the target owns the memory, the peer touches it. The
//! other direction is another matter. Access is between the contexts of the two devices, and for the whole process; it holds
//! for memory that is there already and for all that comes. Nothing is enabled by itself.
//!
//! A device's access to its own memory is always enabled. With the CPU on either side there is none.
//!
//! Other libraries of the process enable and disable the same access. What is told is what is so at that moment, as the driver
//! knows it; what is set to what it is already is a success and left as it was found.
//!
//! All functions may be called while captures go on, on whichever thread, and disturb none.

use super::boundary::{guard, opaque, out};
use super::device::{found_device, found_devices, warp_device};
use super::scope::warp_scope;
use super::status::warp_status;
use crate::device::Device;
use crate::error::Result;
use crate::peer::{self, Memory};
use crate::scope;

/// The two devices of a call.
pub(super) fn pair(
    target: *const warp_device,
    peer: *const warp_device,
) -> Result<(&'static Device, &'static Device)> {
    Ok((found_device(target)?, found_device(peer)?))
}

/// Sets the access of all peers that a caller names, or, for NULL, of all that there can be.
pub(super) fn set_for_all(
    memory: Memory<'_>,
    target: *mut warp_device,
    peers: *const *mut warp_device,
    count: usize,
    enabled: bool,
) -> Result<()> {
    let target = found_device(target)?;
    let peers = match found_devices(peers, count, "peers")? {
        Some(peers) => peers,
        None => {
            let mut others = peer::others_of(target, enabled)?;
            // Of a target that has none, it is said why.
            if enabled && (!target.is_cuda() || !memory.is_plain() && !target.facts().memory_pools) {
                others.push(target);
            }
            others
        }
    };
    peer::set(memory, target, &peers, enabled)
}

/// Whether the peer could be given access to the target's memory; says nothing about whether it has it. 1 for a device and
/// itself, and for two contexts of one GPU; 0 with the CPU on either side, and for a pair that failed warp_peer_access_verify().
///
/// @param target  the device that owns the memory; NULL for the default.
/// @param peer  the device that would touch it; NULL for the default.
/// @param out  1 or 0.
/// @return WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_peer_access_is_supported(
    target: *const warp_device,
    peer: *const warp_device,
    out: *mut u8,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let (target, peer) = pair(target, peer)?;
        out.put(u8::from(peer::can_be_enabled(Memory::Plain, target, peer)?));
        Ok(())
    })
}

/// Asks the driver whether kernels of the peer may touch the target's plain memory now, whoever enabled that. Changes nothing
/// and makes no context: a GPU whose context nobody holds has no access and gives none. The first question about a context
/// takes a byte of plain memory there to ask about, and keeps it, since to free it would wait for all work of the GPU.
///
/// @param target  the device that owns the memory; NULL for the default.
/// @param peer  the device that touches it; NULL for the default.
/// @param out  1 or 0; 1 for a device and itself, and for two contexts of one GPU, whose memory is common, once both are there;
///     0 with the CPU on either side.
/// @return WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST, WARP_ERROR_OUT_OF_MEMORY, WARP_ERROR_FORKED in a forked child,
///     WARP_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_peer_access_query_enabled(
    target: *const warp_device,
    peer: *const warp_device,
    out: *mut u8,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let (target, peer) = pair(target, peer)?;
        out.put(u8::from(peer::is_enabled(Memory::Plain, target, peer)?));
        Ok(())
    })
}

/// Lets kernels of the peer touch the target's plain memory, or no longer, for the whole process. To enable makes the
/// contexts of both. To disable what is not enabled, what cannot be enabled, or anything with the CPU, does nothing, and so
/// does whatever is asked of a device and itself.
///
/// To disable first waits for the work that both devices have so far on streams that this library knows and on all blocking
/// streams; one that is being captured is not waited for, nor a non-blocking one that was released with work on it. Other work
/// must be done by then, and runs of graphs that use the access: the driver waits for nothing, and work that loses its access
/// faults and takes the device's context with it.
///
/// A GPU can have eight peers, as a rule; those of other libraries count too.
///
/// @param target  the device that owns the memory; NULL for the default.
/// @param peer  the device that touches it; NULL for the default.
/// @param enabled  nonzero to enable, 0 to disable.
/// @return WARP_ERROR_INVALID_ARGUMENT to enable with the CPU on either side; WARP_ERROR_NOT_SUPPORTED to enable for GPUs that
///     cannot be peers or failed warp_peer_access_verify(), or for two contexts of one GPU, which the driver refuses;
///     WARP_ERROR_PEER_LIMIT when one of the two has as many peers as it can have; WARP_ERROR_BUSY when an open scope keeps
///     the opposite; WARP_ERROR_DEVICE_LOST, WARP_ERROR_OUT_OF_MEMORY, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER.
///     All is as before then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_peer_access_set_enabled(
    target: *mut warp_device,
    peer: *mut warp_device,
    enabled: u8,
) -> warp_status {
    guard(|| {
        let (target, peer) = pair(target, peer)?;
        peer::set(Memory::Plain, target, &[peer], enabled != 0)
    })
}

/// As warp_peer_access_set_enabled() for many peers: for all of them or for none. What can be refused is refused before
/// anything is changed; when the driver refuses a pair, those before it are put back.
///
/// @param target  the device that owns the memory; NULL for the default.
/// @param peers  the devices that touch it, NULL among them for the default; NULL, with a count of 0, for every other GPU
///     that can be a peer of the target.
/// @param count  how many.
/// @param enabled  nonzero to enable, 0 to disable.
/// @return as warp_peer_access_set_enabled(), with the pair in the message; WARP_ERROR_INVALID_ARGUMENT also when peers is NULL
///     and count is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_peer_access_set_enabled_for(
    target: *mut warp_device,
    peers: *const *mut warp_device,
    count: usize,
    enabled: u8,
) -> warp_status {
    guard(|| set_for_all(Memory::Plain, target, peers, count, enabled != 0))
}

/// Tests whether what the peer writes directly to plain memory of the target arrives there, and what it reads is right. On some
/// machines it does not, though the driver lets the GPUs be peers: with an IOMMU in the way, in some containers and virtual
/// machines, with some drivers. Copies then lose data without an error. Nothing calls this by itself: by default the driver is
/// trusted. It is for one direction; the other is verified with the arguments exchanged.
///
/// A stream of the peer copies a pattern into memory of the target and from there back; the result is read by way of the host.
/// For that it takes 1 MiB of the target and 2 MiB of the peer, and gives them back, which waits for work of both as warp_free()
/// of plain memory does. It makes the contexts of both. Access is enabled meanwhile, and afterwards what it was before; to
/// disable it waits as warp_peer_access_set_enabled() does. As long as it goes on, disabling is WARP_ERROR_BUSY for other
/// threads. Tests go on one after another.
///
/// After a 0 the pair is used no more until the library is shut down: peer access and pool access of the two GPUs in this
/// direction, in all their contexts and of all pools that the library knows, is disabled, after waiting for work as
/// warp_peer_access_set_enabled() does, and cannot be enabled (WARP_ERROR_NOT_SUPPORTED); it is told not to be supported. So
/// copies go by way of the host, and are right again. Scopes that keep such access enabled are over with that: their ends
/// change nothing. Access that other libraries enable again, or to pools of theirs, is not watched; queries tell of it, it can
/// be disabled, and another test disables it.
///
/// Every failure on the way is an error, with 0 in `out` and nothing changed: an answer was measured. Copies that never end are
/// one: after 2 seconds WARP_ERROR_BUSY, and then the access, which a copy under way must not lose, and the memory stay as they
/// are until the copies have ended and a test or warp_shutdown() finds that.
///
/// @param target  the device that owns the memory; NULL for the default.
/// @param peer  the device that touches it; NULL for the default.
/// @param out  1 when everything arrived, else 0. 1 without a test for a device and itself, and for two contexts of one GPU; 0
///     without a test for a pair that failed before.
/// @return WARP_ERROR_INVALID_ARGUMENT with the CPU on either side; WARP_ERROR_NOT_SUPPORTED for GPUs that cannot be peers;
///     WARP_ERROR_PEER_LIMIT when access is not enabled and cannot be, since one of the two has as many peers as it can have;
///     WARP_ERROR_BUSY when an open scope keeps it disabled, when other code disables it meanwhile, or when copies do not end;
///     WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST, WARP_ERROR_OUT_OF_MEMORY, WARP_ERROR_FORKED in a forked child,
///     WARP_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_peer_access_verify(
    target: *mut warp_device,
    peer: *mut warp_device,
    out: *mut u8,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let (target, peer) = pair(target, peer)?;
        out.put(u8::from(peer::verify(target, peer)?));
        Ok(())
    })
}

/// Keeps peer access enabled, or disabled, until the scope ends; then what was before is so again. Unlike other scopes it is
/// for the whole process. Scopes of any threads that want the same are one: the first remembers what it finds, and the end
/// of the last puts that back. While one is open the opposite is refused, to scopes and to
/// warp_peer_access_set_enabled(). It has its place among the scopes of its thread, which ends it; when a thread ends with it
/// open, it stays so until the library is shut down, which puts back what it found.
///
/// The end may wait for work, as to disable does. It is an error of warp_scope_end() when what was found cannot be put back;
/// the scope is over all the same. When the context of one of the two is gone by then, nothing is put back.
///
/// @param target  the device that owns the memory; NULL for the default.
/// @param peer  the device that touches it; NULL for the default.
/// @param enabled  nonzero to enable, 0 to disable.
/// @param out  the scope, to be ended with warp_scope_end().
/// @return as warp_peer_access_set_enabled(); WARP_ERROR_NOT_SUPPORTED also when the thread has 64 scopes open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_scope_begin_peer_access(
    target: *mut warp_device,
    peer: *mut warp_device,
    enabled: u8,
    out: *mut *mut warp_scope,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let (target, peer) = pair(target, peer)?;
        out.put(opaque(scope::begin_access(Memory::Plain, target, peer, enabled != 0)?));
        Ok(())
    })
}
