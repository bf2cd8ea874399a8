//! # Scopes
//!
//! A scope makes something so for the calling thread until it is ended, and then what was before is so again. While it is
//! open, the functions that tell the current stream, the default device or whether pools are on tell what the scope says.
//! Scopes of a thread are ended in the reverse order, by the thread that began them; new threads begin without any, and a
//! thread that ends takes its scopes with it. At most 64 are open in a thread at once. Scopes of peer access and of pool
//! access have their places among them, but are for the whole process: see warp_scope_begin_peer_access().
//!
//! What is chosen for the whole process inside a scope, with warp_device_set_default() or warp_mempool_set_enabled(), is seen
//! when the scope ends. What the thread chooses for itself, with warp_stream_set_current() or warp_device_set_for_thread(),
//! holds until then.

use super::boundary::{guard, handle, opaque, out};
use super::device::{found_device, warp_device};
use super::status::warp_status;
use super::stream::warp_stream;
use crate::{runtime, scope};

/// A scope. Good until it is ended.
#[repr(C)]
pub struct warp_scope {
    _private: [u8; 0],
}

/// Makes a stream the current one of the device, for the calling thread, until the scope ends. When the stream is
/// released before that, the device's default stream takes its place.
///
/// @param device  the device; NULL for the default.
/// @param stream  a stream of that device; NULL for the device's default stream.
/// @param out  the scope, to be ended with warp_scope_end().
/// @return WARP_ERROR_INVALID_ARGUMENT for a stream of another device; WARP_ERROR_NOT_SUPPORTED when the thread has 64
///     scopes open, or a stream of its own on 32 other devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_scope_begin_stream(
    device: *mut warp_device,
    stream: *mut warp_stream,
    out: *mut *mut warp_scope,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        let stream = (!stream.is_null()).then(|| handle(stream));
        out.put(opaque(scope::begin_stream(device, stream)?));
        Ok(())
    })
}

/// Makes a device the default device of the calling thread until the scope ends. No context is made, and none is made
/// current.
///
/// @param device  the device; NULL for what is the default now, whatever the process chooses meanwhile.
/// @param out  the scope, to be ended with warp_scope_end().
/// @return WARP_ERROR_NOT_SUPPORTED when the thread has 64 scopes open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_scope_begin_device(
    device: *mut warp_device,
    out: *mut *mut warp_scope,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        out.put(opaque(scope::begin_device(device)?));
        Ok(())
    })
}

/// Switches the memory pools of a device on or off for the calling thread until the scope ends: what names no kind comes from
/// the pool, or is plain device memory. Blocks that are there stay what they are, and what warp_mempool_set_enabled() chooses
/// meanwhile is seen when the scope ends.
///
/// @param device  the device; NULL for the default.
/// @param enabled  nonzero for on.
/// @param out  the scope, to be ended with warp_scope_end().
/// @return as warp_mempool_set_enabled(); WARP_ERROR_NOT_SUPPORTED also when the thread has 64 scopes open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_scope_begin_mempool(
    device: *mut warp_device,
    enabled: u8,
    out: *mut *mut warp_scope,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(opaque(scope::begin_mempool(found_device(device)?, enabled != 0)?));
        Ok(())
    })
}

/// Ends a scope: what it changed is as it was before it began. A stream or device that is gone by now is as if none had
/// been chosen. Also after warp_shutdown().
///
/// @param scope  the scope that the calling thread began last and has not ended; NULL does nothing.
/// @return WARP_ERROR_SCOPE_ORDER for any other scope, ended ones and those of other threads included; nothing changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_scope_end(scope: *mut warp_scope) -> warp_status {
    guard(|| {
        runtime::require_once_live()?;
        if scope.is_null() { Ok(()) } else { scope::end(handle(scope)) }
    })
}
