//! # Streams
//!
//! Work on a GPU is ordered by streams. Each device has one default stream, made when it is first needed and shared
//! by all threads; a thread can put another in its place for itself. NULL, wherever a stream is expected, is the
//! device's current stream. The CPU has one pseudo-stream a thread, on which everything is done when a call returns, unless the
//! thread captures it.

use super::boundary::{Grows, flags, guard, handle, opaque, options, out, out_struct};
use super::device::{found_device, told, warp_device};
use super::status::warp_status;
use crate::device::Device;
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::stream::RawStream;
use crate::stream::Stream;
use crate::{alloc, capture, device, host_call, runtime, stream};
use std::ffi::c_void;

/// A stream. Good until it is released or the library is shut down.
#[repr(C)]
pub struct warp_stream {
    _private: [u8; 0],
}

/// The stream takes no part in the ordering with the legacy default stream.
pub const WARP_STREAM_NON_BLOCKING: u32 = 1;

/// Of a stream of other code: it may be destroyed before its handle is released, or before the blocks that were used on
/// it are freed. For warp_stream_wrap_with().
pub const WARP_STREAM_UNTRACKED: u32 = 2;

/// How a stream should be. All zero but struct_size is the default: blocking, of ordinary priority.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_stream_options {
    /// sizeof(warp_stream_options), set by the caller.
    pub struct_size: usize,
    /// WARP_STREAM_… bits.
    pub flags: u32,
    /// 0 is ordinary, lower numbers come first; the range is the driver's.
    pub priority: i32,
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_stream_options {
    const FIRST_SIZE: usize = size_of::<warp_stream_options>();
    const NAME: &'static str = "warp_stream_options";
}

/// What is known of a stream.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_stream_info {
    /// sizeof(warp_stream_info), set by the caller.
    pub struct_size: usize,
    /// Its device; NULL when that is no longer in the table.
    pub device: *mut warp_device,
    /// The CUstream; NULL for the CPU's.
    pub native: *mut c_void,
    /// A number that no other stream of the process ever gets; for the CPU's, the calling thread's.
    pub id: u64,
    /// Its priority.
    pub priority: i32,
    /// Does it take no part in the ordering with the legacy default stream?
    pub is_non_blocking: u8,
    /// Was it made by this library, which destroys it when it is released?
    pub is_owned: u8,
    /// Was it wrapped with WARP_STREAM_UNTRACKED?
    pub is_untracked: u8,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_stream_info {
    const FIRST_SIZE: usize = size_of::<warp_stream_info>();
    const NAME: &'static str = "warp_stream_info";
}

/// A stream that a call names; `None` for NULL.
#[inline]
pub(super) fn given(stream: *const warp_stream) -> Result<Option<Entered<Stream>>> {
    if stream.is_null() { Ok(None) } else { stream::enter(handle(stream)).map(Some) }
}

/// A stream that must be named.
pub(super) fn found(stream: *const warp_stream) -> Result<Entered<Stream>> {
    runtime::require_live()?;
    stream::enter(handle(stream))
}

/// Makes a stream. Makes the device's context if there is none yet.
///
/// @param device  a CUDA device; NULL for the default.
/// @param options  how it should be; NULL for the defaults.
/// @param out  the stream, to be given back with warp_stream_release().
/// @return WARP_ERROR_INVALID_ARGUMENT for the CPU, unknown flags or a priority outside of the device's range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_stream_create(
    device: *mut warp_device,
    options: *const warp_stream_options,
    out: *mut *mut warp_stream,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        let given = self::options(options)?;
        if given.flags & WARP_STREAM_UNTRACKED != 0 {
            fail!(
                InvalidArgument,
                "WARP_STREAM_UNTRACKED is for streams of other code; pass it to warp_stream_wrap_with"
            );
        }
        let flags = flags(given.flags, WARP_STREAM_NON_BLOCKING, "flags")?;
        let options =
            stream::Options { non_blocking: flags & WARP_STREAM_NON_BLOCKING != 0, priority: given.priority };
        out.put(opaque(stream::create(device, options)?));
        Ok(())
    })
}

/// Gives a handle to a stream that other code made and goes on owning. The native stream must outlive the handle:
/// the driver crashes when it is given a stream that was destroyed, and nobody can ask it beforehand. Release the
/// handle first; blocks that were used on the stream can be freed at any time after that. Where that order cannot be
/// kept, see warp_stream_wrap_with().
///
/// @param device  the device of the stream's context; NULL for the default.
/// @param native_stream  a CUstream; NULL or 1 is the legacy default stream of the device's context, 2 is the
///     calling thread's own default stream, whichever thread uses the handle.
/// @param out  the handle, to be given back with warp_stream_release().
/// @return WARP_ERROR_INVALID_ARGUMENT for the CPU or a stream of another context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_stream_wrap(
    device: *mut warp_device,
    native_stream: *mut c_void,
    out: *mut *mut warp_stream,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        out.put(opaque(stream::wrap(device, RawStream(native_stream), false)?));
        Ok(())
    })
}

/// As warp_stream_wrap(), with options. WARP_STREAM_UNTRACKED is for a caller who cannot promise that the native stream
/// outlives the handle: then the library touches it only in calls that name it, or that go to it because it is the
/// thread's current stream, and for that moment the caller vouches. Frees of blocks that were allocated or used on it
/// come after all work so far of the whole context instead, later while a stream of the context is known to be captured;
/// releasing the handle touches nothing. With a driver before 12.5 such a free waits.
///
/// @param device  the device of the stream's context; NULL for the default.
/// @param native_stream  a CUstream that is alive now, or 0, 1, 2 as for warp_stream_wrap().
/// @param options  WARP_STREAM_UNTRACKED or no flag, and priority 0: what else a stream is, it is already. NULL for the
///     defaults.
/// @param out  the handle, to be given back with warp_stream_release().
/// @return WARP_ERROR_INVALID_ARGUMENT for the CPU, a stream of another context, or other options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_stream_wrap_with(
    device: *mut warp_device,
    native_stream: *mut c_void,
    options: *const warp_stream_options,
    out: *mut *mut warp_stream,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        let given = self::options(options)?;
        if given.flags & WARP_STREAM_NON_BLOCKING != 0 || given.priority != 0 {
            fail!(
                InvalidArgument,
                "a stream of other code is blocking or not, and of a priority, as it was made; leave both out"
            );
        }
        let flags = flags(given.flags, WARP_STREAM_UNTRACKED, "flags")?;
        let untracked = flags & WARP_STREAM_UNTRACKED != 0;
        out.put(opaque(stream::wrap(device, RawStream(native_stream), untracked)?));
        Ok(())
    })
}

/// Gives a stream back. The handle is stale at once; a stream of the library is destroyed, after the calls that are
/// using it on other threads, and work that was put on it goes on to its end. Does not wait for work. When it returns for
/// a wrapped stream, the calls of other threads on it have returned as well, and its owner may destroy it.
///
/// @param stream  a stream of warp_stream_create() or warp_stream_wrap(); NULL does nothing.
/// @return WARP_ERROR_INVALID_ARGUMENT for a device's default stream; WARP_ERROR_ILLEGAL_IN_CAPTURE for a stream of
///     warp_stream_create() that is being captured, and for any stream on which a capture of warp_capture_begin() goes on
///     or is paused, which goes on unharmed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_stream_release(stream: *mut warp_stream) -> warp_status {
    guard(|| {
        runtime::require_once_live()?;
        if stream.is_null() {
            return Ok(());
        }
        stream::release(handle(stream), capture::leave_stream)
    })
}

/// Describes a stream. Cheap.
///
/// @param stream  the stream.
/// @param out  filled as far as its struct_size goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_stream_get_info(
    stream: *const warp_stream,
    out: *mut warp_stream_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let stream = found(stream)?;
        out.put(warp_stream_info {
            struct_size: size_of::<warp_stream_info>(),
            device: told(Some(stream.device())),
            native: stream.native_for_others().0,
            id: stream.id(),
            priority: stream.priority(),
            is_non_blocking: u8::from(stream.is_non_blocking()),
            is_owned: u8::from(stream.is_owned()),
            is_untracked: u8::from(stream.is_untracked()),
        });
        Ok(())
    })
}

/// The stream that work of this thread on the device goes to when a call names none. Made now if it is the device's
/// default stream and there is none yet.
///
/// @param device  the device; NULL for the default.
/// @param out  the stream; it is not to be released on account of this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_stream_get_current(
    device: *mut warp_device,
    out: *mut *mut warp_stream,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let current = stream::current(found_device(device)?)?;
        out.put(opaque(stream::handle_of(&current)));
        Ok(())
    })
}

/// Makes a stream the current one of the device for the calling thread. When it is released, the device's default
/// stream takes its place.
///
/// @param device  the device; NULL for the default.
/// @param stream  a stream of that device; NULL for the device's default stream.
/// @return WARP_ERROR_INVALID_ARGUMENT for a stream of another device; WARP_ERROR_NOT_SUPPORTED when the thread has
///     a stream of its own on 32 other devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_stream_set_current(
    device: *mut warp_device,
    stream: *mut warp_stream,
) -> warp_status {
    guard(|| {
        let device = found_device(device)?;
        stream::set_current(device, (!stream.is_null()).then(|| handle(stream)))
    })
}

/// Waits until everything that was put on the stream is done. What the CPU's was given is done, or recorded.
///
/// @param stream  the stream; NULL for the current one of the default device.
/// @return WARP_ERROR_ILLEGAL_IN_CAPTURE while the stream, of a GPU, is being captured; WARP_ERROR_DEVICE_LOST also when a
///     kernel faulted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_stream_synchronize(stream: *mut warp_stream) -> warp_status {
    guard(|| {
        named_or_current(stream)?.synchronize()?;
        alloc::after_a_wait();
        Ok(())
    })
}

/// Whether everything that was put on the stream is done. Does not wait.
///
/// @param stream  the stream; NULL for the current one of the default device.
/// @param out  1 when it is, 0 when work is pending.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_stream_query_idle(stream: *mut warp_stream, out: *mut u8) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(u8::from(named_or_current(stream)?.is_idle()?));
        Ok(())
    })
}

/// A function of the caller's that a stream calls. It must not throw.
pub type warp_host_function = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// The same function, called through an ABI that lets a foreign exception reach our shim.
fn unwinding(function: warp_host_function) -> Option<host_call::Function> {
    // SAFETY: the two ABIs differ only in what happens when the callee unwinds.
    unsafe {
        std::mem::transmute::<Option<unsafe extern "C" fn(*mut c_void)>, Option<host_call::Function>>(
            function,
        )
    }
}

/// Has a function called in the order of a stream.
///
/// On the CPU's stream it is called now, on this thread; while the thread captures on the CPU it becomes a part of the graph, and is
/// called in each run, on the thread that launches. It may call any function of the library, also release the graph that runs,
/// but not launch that.
///
/// On a stream of a GPU it is called on a thread of the driver's, after all work that was put on the stream before, and work behind
/// it waits for its end. On a stream that is captured it becomes a part of the graph and is called in each run. There it must not
/// call what reaches the driver: the driver refuses that (WARP_ERROR_DRIVER), or waits for ever. HOST memory of the library can be
/// allocated, filled, copied and freed; of other memory the driver is asked what it is. When the context is lost, or a kernel faults
/// in it, the function is not called any more.
///
/// Any thread; on a captured stream the one that captures. Nothing is called once the process exits.
///
/// @param stream  the stream; NULL for the current one of the default device.
/// @param function  what is called.
/// @param user  passed to both functions.
/// @param release  called once, with `user`, when `function` will not be called any more: on the CPU's stream before this returns;
///     on a GPU's after the call, by the driver's thread or this one; for a part of a graph when the graph is released and no run of
///     it goes on, on whichever thread finds that out. That a GPU's context is lost is found out by a later call of this function for
///     a GPU, or warp_shutdown(). NULL for nothing. Not called when this fails: `user` is the caller's then.
/// @return WARP_ERROR_INVALID_ARGUMENT when `function` is NULL; WARP_ERROR_ILLEGAL_IN_CAPTURE on a stream that another thread
///     captures; WARP_ERROR_NOT_SUPPORTED with a driver that has no host functions; WARP_ERROR_DEVICE_LOST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_stream_host_call(
    stream: *mut warp_stream,
    function: warp_host_function,
    user: *mut c_void,
    release: warp_host_function,
) -> warp_status {
    guard(|| {
        let Some(function) = unwinding(function) else {
            fail!(InvalidArgument, "the function is NULL; it is what the stream calls");
        };
        let call = host_call::Call { function, user, release: unwinding(release) };
        host_call::call(&named_or_current(stream)?, call)
    })
}

/// A stream that a call names, else the current one of the default device.
pub(super) fn named_or_current(stream: *const warp_stream) -> Result<Entered<Stream>> {
    runtime::require_live()?;
    match given(stream)? {
        Some(stream) => Ok(stream),
        None => stream::current(device::default_device()?),
    }
}

/// A stream that a call names, else the current one of the device.
pub(super) fn named_or_current_of(
    stream: *const warp_stream,
    device: &'static Device,
) -> Result<Entered<Stream>> {
    match given(stream)? {
        Some(stream) => Ok(stream),
        None => stream::current(device),
    }
}
