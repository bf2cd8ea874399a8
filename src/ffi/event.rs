//! # Events
//!
//! An event marks a place in the work of a stream. The host can wait for it or ask whether it is reached, streams of any
//! device can wait for it without the host, and between two of them time can be measured. An event that was never
//! recorded counts as reached. An event of the CPU is reached as soon as it is recorded.
//!
//! Recorded on a stream that is being captured, an event marks a place in the graph: streams wait for it to take part in
//! the capture, and the host cannot ask for it. What would break a capture is refused with
//! WARP_ERROR_ILLEGAL_IN_CAPTURE, and the capture goes on. The library goes by where it recorded an event last: other
//! code that records the native event itself has to know what it does.

use super::boundary::{Grows, flags, guard, handle, opaque, options, out, out_struct};
use super::device::{found_device, told, warp_device};
use super::status::warp_status;
use super::stream::{found as found_stream, given as given_stream, warp_stream};
use crate::error::Result;
use crate::event::{self, Event, RawEvent};
use crate::handle::Entered;
use crate::{alloc, runtime};
use std::ffi::c_void;

/// An event. Good until it is released or the library is shut down.
#[repr(C)]
pub struct warp_event {
    _private: [u8; 0],
}

/// Each record keeps its time, for warp_event_measure_elapsed(). Without, recording and waiting are cheaper.
pub const WARP_EVENT_TIMING: u32 = 1;
/// A host thread that waits for the event sleeps; without, the driver may let it spin, which answers sooner.
pub const WARP_EVENT_BLOCKING_SYNC: u32 = 2;

/// How an event should be. All zero but struct_size is the default: without timing.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_event_options {
    /// sizeof(warp_event_options), set by the caller.
    pub struct_size: usize,
    /// WARP_EVENT_… bits.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_event_options {
    const FIRST_SIZE: usize = size_of::<warp_event_options>();
    const NAME: &'static str = "warp_event_options";
}

/// What is known of an event.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_event_info {
    /// sizeof(warp_event_info), set by the caller.
    pub struct_size: usize,
    /// Its device; NULL when that is no longer in the table.
    pub device: *mut warp_device,
    /// The CUevent; NULL for the CPU's.
    pub native: *mut c_void,
    /// WARP_EVENT_… bits that it was made with; 0 for an event of other code.
    pub flags: u32,
    /// Was it made by this library, which destroys it when it is released?
    pub is_owned: u8,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_event_info {
    const FIRST_SIZE: usize = size_of::<warp_event_info>();
    const NAME: &'static str = "warp_event_info";
}

fn found(event: *const warp_event) -> Result<Entered<Event>> {
    runtime::require_live()?;
    event::enter(handle(event))
}

/// Makes an event. Makes the device's context if there is none yet.
///
/// @param device  a CUDA device, or the CPU; NULL for the default.
/// @param options  how it should be; NULL for the defaults.
/// @param out  the event, to be given back with warp_event_release().
/// @return WARP_ERROR_INVALID_ARGUMENT for unknown flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_event_create(
    device: *mut warp_device,
    options: *const warp_event_options,
    out: *mut *mut warp_event,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        let given = self::options(options)?;
        flags(given.reserved, 0, "reserved")?;
        let flags = flags(given.flags, WARP_EVENT_TIMING | WARP_EVENT_BLOCKING_SYNC, "flags")?;
        let options = event::Options {
            timing: flags & WARP_EVENT_TIMING != 0,
            blocking: flags & WARP_EVENT_BLOCKING_SYNC != 0,
        };
        out.put(opaque(event::create(device, options)?));
        Ok(())
    })
}

/// Gives a handle to an event that other code made and goes on owning. The native event must outlive the handle, and
/// belong to the context of the device, which the driver cannot be asked.
///
/// While other code records the native event, the library does not know where: do not query, measure or wait for one
/// whose last record by other code is in a capture, and do not let a captured stream wait for one that was recorded
/// outside.
///
/// @param device  the device of the event's context; NULL for the default.
/// @param native_event  a CUevent.
/// @param out  the handle, to be given back with warp_event_release().
/// @return WARP_ERROR_INVALID_ARGUMENT for the CPU or a NULL event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_event_wrap(
    device: *mut warp_device,
    native_event: *mut c_void,
    out: *mut *mut warp_event,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        out.put(opaque(event::wrap(device, RawEvent(native_event))?));
        Ok(())
    })
}

/// Gives an event back. The handle is stale at once; an event of the library is destroyed, after the calls that are
/// using it on other threads. Streams that wait for it go on waiting. Does not wait. In a capture too.
///
/// @param event  an event of warp_event_create() or warp_event_wrap(); NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_event_release(event: *mut warp_event) -> warp_status {
    guard(|| {
        runtime::require_once_live()?;
        if event.is_null() { Ok(()) } else { event::release(handle(event)) }
    })
}

/// Describes an event. Cheap.
///
/// @param event  the event.
/// @param out  filled as far as its struct_size goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_event_get_info(
    event: *const warp_event,
    out: *mut warp_event_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let event = found(event)?;
        let options = event.options();
        out.put(warp_event_info {
            struct_size: size_of::<warp_event_info>(),
            device: told(Some(event.device())),
            native: event.native_for_others().0,
            flags: if options.timing { WARP_EVENT_TIMING } else { 0 }
                | if options.blocking { WARP_EVENT_BLOCKING_SYNC } else { 0 },
            is_owned: u8::from(event.is_owned()),
        });
        Ok(())
    })
}

/// Records an event: from now on it marks the end of all work so far on the stream. What waits for an earlier record
/// goes on waiting for that one. On a stream that is being captured it becomes part of the capture.
///
/// @param event  the event.
/// @param stream  a stream of the event's device; NULL for the current one of that device.
/// @return WARP_ERROR_INVALID_ARGUMENT for a stream of another device; WARP_ERROR_BUSY when it would be recorded in a
///     capture while another thread waits for it; WARP_ERROR_ILLEGAL_IN_CAPTURE on a stream whose capture is broken,
///     and on the legacy default stream while a blocking stream is being captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_event_record(event: *mut warp_event, stream: *mut warp_stream) -> warp_status {
    guard(|| {
        let event = found(event)?;
        let stream = given_stream(stream)?;
        event.record(stream.as_deref())
    })
}

/// Whether everything before the event's last record is done. Does not wait.
///
/// @param event  the event.
/// @param out  1 when it is, and when the event was never recorded; 0 when work is pending.
/// @return WARP_ERROR_ILLEGAL_IN_CAPTURE when it was last recorded in a capture, also after that has ended;
///     WARP_ERROR_DEVICE_LOST also when a kernel faulted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_event_query_done(event: *mut warp_event, out: *mut u8) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(u8::from(found(event)?.is_done()?));
        Ok(())
    })
}

/// Waits until everything before the event's last record is done. Returns at once when it was never recorded.
///
/// @param event  the event.
/// @return As warp_event_query_done().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_event_synchronize(event: *mut warp_event) -> warp_status {
    guard(|| {
        found(event)?.synchronize()?;
        alloc::after_a_wait();
        Ok(())
    })
}

/// The time between the last records of two events, as the device that reached them measured it; for the CPU's, as the
/// host's clock did when they were recorded.
///
/// @param start  an event with WARP_EVENT_TIMING.
/// @param end  another of the same device.
/// @param milliseconds  the time from start to end, less than 0 when end was reached first. GPUs tell about half a
///     microsecond apart.
/// @return WARP_ERROR_BUSY when one of them is not reached yet; WARP_ERROR_INVALID_ARGUMENT for events of two devices,
///     without timing, or never recorded; WARP_ERROR_ILLEGAL_IN_CAPTURE when one was last recorded in a capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_event_measure_elapsed(
    start: *mut warp_event,
    end: *mut warp_event,
    milliseconds: *mut f32,
) -> warp_status {
    guard(|| {
        let out = self::out(milliseconds, "milliseconds")?;
        let (start, end) = (found(start)?, found(end)?);
        out.put(event::elapsed(&start, &end)?);
        Ok(())
    })
}

/// Lets a stream wait for an event: work put on it from now on runs after all work before the event's last record. The
/// host does not wait. Nothing happens when the event was never recorded, or is the CPU's.
///
/// An event that was recorded in a capture takes the stream into that capture; this is how a capture spreads over several
/// streams, and how they are joined again.
///
/// @param stream  the stream; NULL for the current one of the default device.
/// @param event  an event of any device.
/// @return WARP_ERROR_INVALID_ARGUMENT for the CPU's stream and an event of a GPU: use warp_event_synchronize();
///     WARP_ERROR_ILLEGAL_IN_CAPTURE when the stream is being captured and the event was last recorded outside or in
///     another capture, when the event's capture has ended, and for the legacy default stream in a capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_stream_wait_event(
    stream: *mut warp_stream,
    event: *mut warp_event,
) -> warp_status {
    guard(|| {
        let event = found(event)?;
        let stream = super::stream::named_or_current(stream)?;
        event::wait(&stream, &event)
    })
}

/// Lets a stream wait for another one: work put on it from now on runs after all work so far on the other. The host does
/// not wait. Nothing happens when both are the same stream, or the other one is the CPU's.
///
/// When the other stream is being captured, this takes the stream into that capture, or joins it there.
///
/// @param stream  the stream that waits; NULL for the current one of the default device.
/// @param other  the stream that is waited for, of any device.
/// @return WARP_ERROR_INVALID_ARGUMENT for the CPU's stream and a stream of a GPU: use warp_stream_synchronize();
///     WARP_ERROR_ILLEGAL_IN_CAPTURE when the stream is being captured and the other is not, when they are in two
///     captures, and for the legacy default stream in a capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_stream_wait_stream(
    stream: *mut warp_stream,
    other: *mut warp_stream,
) -> warp_status {
    guard(|| {
        let other = found_stream(other)?;
        let stream = super::stream::named_or_current(stream)?;
        event::wait_stream(&stream, &other)
    })
}
