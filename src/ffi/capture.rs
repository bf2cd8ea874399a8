//! # Captures
//!
//! While a stream is captured, what is put on it is recorded instead of run, and becomes a graph. An allocation of pool
//! memory is recorded too: its address is known at once, the memory comes into being in each run. A free in the capture is
//! recorded behind everything that used the block, on whichever stream, and what it frees is used again by later
//! allocations of the same capture. A block that is not freed in its capture lasts: it can be used once the graph was
//! launched, and is freed like any other block, before or after the graph is released.
//!
//! Nothing of this library breaks a capture. What cannot be recorded (plain, managed and page-locked memory, waiting,
//! queries) is refused with WARP_ERROR_ILLEGAL_IN_CAPTURE before the driver sees it, and the capture goes on. Work of the
//! CPU is not recorded in it: it happens at once.
//!
//! The CPU's stream is captured as well. It is another one in each thread, so such a capture is the thread's that began it, and
//! others go on as ever. Recorded are fills and copies of host memory, in whatever chapter they stand, functions of
//! warp_stream_host_call(), and launches of graphs of the CPU; work of GPUs goes to its streams as ever. A copy between host memory
//! and a GPU's names its stream then, or is refused, since it would be missing in the runs. Allocations happen at once, and the
//! graph keeps the blocks: what an array is filled with when it is made is there after a run. Such captures may go on inside
//! of each other, up to 8; what is recorded goes to the innermost, and that is what is ended, paused or given up.
//!
//! Only the thread that captures puts work on the streams of its capture, unless it is relaxed: allocations, fills, copies
//! and launches by others are refused there, since they would not run. On other streams other threads go on as usual, in
//! every mode, and they may free blocks of the capture; what cannot be done before the end of a capture is done afterwards,
//! however it ends. A device's default stream is every thread's, so a stream of one's own is captured. A call on another
//! thread that overlaps the begin of a capture of its stream may be recorded: it fails with WARP_ERROR_ILLEGAL_IN_CAPTURE as
//! well (a fill or copy succeeds where the capture is relaxed), an allocation gives nothing, and what a fill or copy touched is
//! kept by the graph. A stream that joins the capture by a wait meanwhile is not looked after like that.
//!
//! A graph keeps what calls of this library recorded: blocks that are freed meanwhile are given back when the graph, and
//! every run of it, is gone. What kernels use that the caller launches is the caller's to name: warp_graph_retain(). Host
//! memory is recorded by its address and read or written by every run: where it is no block of this library, it is the
//! caller's to keep. But in a capture of the CPU the source of warp_memory_copy() that lies in no block, nor in what the capture
//! has written to, is copied when it is recorded.

use super::boundary::{Grows, flags, guard, opaque, optional_out, options, out_struct};
use super::graph::warp_graph;
use super::status::warp_status;
use super::stream::{named_or_current, warp_stream};
use crate::capture::{self, CaptureMode, RawGraph, State};
use crate::error::{Result, fail};
use crate::{alloc, runtime};
use std::ffi::c_void;

/// Whose calls break a capture, of those that the driver counts as unsafe, such as plain allocations. That is about calls
/// of other code: those of this library break none, in any mode.
pub type warp_capture_mode = i32;

/// Those of any thread.
pub const WARP_CAPTURE_GLOBAL: warp_capture_mode = 0;
/// Those of the capturing thread. What is usually wanted.
pub const WARP_CAPTURE_THREAD_LOCAL: warp_capture_mode = 1;
/// Nobody's. Other threads may record in the capture, one at a time, and end it, pause it or give it up.
pub const WARP_CAPTURE_RELAXED: warp_capture_mode = 2;

const _: () = {
    assert!(CaptureMode::Global as i32 == WARP_CAPTURE_GLOBAL);
    assert!(CaptureMode::ThreadLocal as i32 == WARP_CAPTURE_THREAD_LOCAL);
    assert!(CaptureMode::Relaxed as i32 == WARP_CAPTURE_RELAXED);
};

/// The graph will be a part of another, the body of a conditional node or a child: such graphs must not allocate, so
/// allocations are refused while it is captured, and not only when the outer graph is made. On the CPU the thread's allocations
/// there are refused meanwhile.
pub const WARP_CAPTURE_NO_ALLOCATIONS: u32 = 1;

/// How a capture should be. All zero but struct_size is the default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_capture_options {
    /// sizeof(warp_capture_options), set by the caller.
    pub struct_size: usize,
    /// A CUgraph to capture into, such as the body of a conditional node, beside what is in it. It stays the caller's, and
    /// has to stay until the capture has ended. NULL for a graph of the capture's own, as for the CPU.
    pub native_graph: *mut c_void,
    /// WARP_CAPTURE_NO_ALLOCATIONS or 0.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_capture_options {
    const FIRST_SIZE: usize = size_of::<warp_capture_options>();
    const NAME: &'static str = "warp_capture_options";
}

/// Whether a stream is captured.
pub type warp_capture_state = i32;

/// It is not.
pub const WARP_CAPTURE_STATE_NONE: warp_capture_state = 0;
/// What is put on it is recorded.
pub const WARP_CAPTURE_STATE_ACTIVE: warp_capture_state = 1;
/// A call of other code broke the capture; it has to be ended, and there will be no graph.
pub const WARP_CAPTURE_STATE_INVALIDATED: warp_capture_state = 2;
/// Its capture is paused, and what is put on it runs.
pub const WARP_CAPTURE_STATE_PAUSED: warp_capture_state = 3;

/// What is known of the capture of a stream.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_capture_info {
    /// sizeof(warp_capture_info), set by the caller.
    pub struct_size: usize,
    /// The driver's number of the capture, and of the graph that comes of it, or the library's own for the CPU; 0 for none. A pause
    /// does not change it.
    pub id: u64,
    /// Id of the stream that it began on, where it is ended; 0 when the library does not know it.
    pub origin_stream_id: u64,
    /// WARP_CAPTURE_STATE_…
    pub state: warp_capture_state,
    /// The mode; -1 for captures that other code began.
    pub mode: warp_capture_mode,
    /// Was it begun by warp_capture_begin() or warp_capture_begin_with()?
    pub is_owned: u8,
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_capture_info {
    const FIRST_SIZE: usize = size_of::<warp_capture_info>();
    const NAME: &'static str = "warp_capture_info";
}

fn mode_of(mode: warp_capture_mode) -> Result<CaptureMode> {
    match CaptureMode::of(mode) {
        Some(mode) => Ok(mode),
        None => fail!(
            InvalidArgument,
            "{mode} is not a capture mode; use WARP_CAPTURE_GLOBAL (0), _THREAD_LOCAL (1) or _RELAXED (2)"
        ),
    }
}

/// Begins to capture a stream, on the calling thread. Streams that wait for its work take part in the capture from then
/// on. It is ended on the same stream and, unless it is relaxed, by the same thread. One of the CPU is always ended by the
/// thread that began it; when that ends before, the capture is given up.
///
/// @param stream  a stream, not the legacy default stream of a GPU; it is not released before the end. NULL for the
///     current one of the default device.
/// @param mode  WARP_CAPTURE_GLOBAL, _THREAD_LOCAL or _RELAXED. On the CPU it makes no difference.
/// @return WARP_ERROR_ILLEGAL_IN_CAPTURE when the stream is captured already or its capture is paused, and when 8 captures of the
///     CPU go on on the thread; WARP_ERROR_INVALID_ARGUMENT for an unknown mode and the legacy stream;
///     WARP_ERROR_NOT_SUPPORTED with drivers before 12.3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_capture_begin(
    stream: *mut warp_stream,
    mode: warp_capture_mode,
) -> warp_status {
    guard(|| {
        let stream = named_or_current(stream)?;
        let mode = mode_of(mode)?;
        alloc::poll();
        capture::begin(&stream, mode, &capture::Options::default())
    })
}

/// As warp_capture_begin(), with options.
///
/// @param stream  as for warp_capture_begin().
/// @param mode  WARP_CAPTURE_GLOBAL, _THREAD_LOCAL or _RELAXED.
/// @param options  how it should be; NULL for the defaults.
/// @return As warp_capture_begin(); WARP_ERROR_INVALID_ARGUMENT for unknown flags, and for the CPU with a native graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_capture_begin_with(
    stream: *mut warp_stream,
    mode: warp_capture_mode,
    options: *const warp_capture_options,
) -> warp_status {
    guard(|| {
        let stream = named_or_current(stream)?;
        let mode = mode_of(mode)?;
        let given = self::options(options)?;
        let _ = self::flags(given.reserved, 0, "reserved")?;
        let flags = flags(given.flags, WARP_CAPTURE_NO_ALLOCATIONS, "flags")?;
        let options = capture::Options {
            into: (!given.native_graph.is_null()).then_some(RawGraph(given.native_graph)),
            no_allocations: flags & WARP_CAPTURE_NO_ALLOCATIONS != 0,
        };
        alloc::poll();
        capture::begin(&stream, mode, &options)
    })
}

/// Takes note of a capture that other code began on the stream. To be called by the thread that captures, right after the
/// begin; warp_capture_end() is then called right before the other code ends the capture, so that blocks of the capture
/// that other threads freed are freed in the graph. Without this call the library takes note at the first allocation, fill
/// or copy in the capture, and such blocks are held until the graph is gone. The graph stays the other code's: it
/// launches and destroys it, and blocks of its memory are given back when it has.
///
/// @param stream  a stream that is being captured; NULL for the current one of the default device.
/// @param flags  WARP_CAPTURE_NO_ALLOCATIONS or 0.
/// @return WARP_SUCCESS also when the library has taken note of it already; WARP_ERROR_INVALID_ARGUMENT when the stream is
///     not being captured, and for the CPU's; WARP_ERROR_ILLEGAL_IN_CAPTURE when the library began the capture, and when it is
///     broken; WARP_ERROR_NOT_SUPPORTED with drivers before 12.3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_capture_adopt(stream: *mut warp_stream, flags: u32) -> warp_status {
    guard(|| {
        let stream = named_or_current(stream)?;
        let flags = self::flags(flags, WARP_CAPTURE_NO_ALLOCATIONS, "flags")?;
        capture::adopt(&stream, flags != 0)
    })
}

/// Ends the capture that began on the stream. Streams that take part in it and were not joined are joined first. When
/// this fails the capture is gone all the same, unless the message says that it goes on: the stream is an ordinary one
/// again, blocks allocated in the capture never come into being and can be freed, and the next capture works.
///
/// @param stream  the stream that the capture began on; NULL for the current one of the default device. The capture may
///     be paused.
/// @param out  where the graph is put, to be given back with warp_graph_release(). For a capture that was adopted, which
///     other code ends after this call, and for one into a graph of the caller's, that is NULL, and so may `out` be.
/// @return WARP_ERROR_INVALID_ARGUMENT without a capture, on a stream that only takes part in one, and when `out` is NULL
///     (it goes on); WARP_ERROR_ILLEGAL_IN_CAPTURE on another thread than the one that began it (it goes on), and for a
///     capture that other code broke.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_capture_end(
    stream: *mut warp_stream,
    out: *mut *mut warp_graph,
) -> warp_status {
    guard(|| {
        let out = optional_out(out);
        let stream = named_or_current(stream)?;
        let ended = capture::end(&stream, out.is_some());
        // What waited for the end of the capture.
        alloc::poll();
        if let (Some(graph), Some(out)) = (ended?, out) {
            out.put(opaque(graph));
        }
        Ok(())
    })
}

/// Gives up the capture that began on the stream, paused or not. Streams are ordinary ones again. Blocks allocated in it
/// never come into being, and are still to be freed.
///
/// @param stream  the stream that the capture began on; NULL for the current one of the default device.
/// @return As warp_capture_end(); WARP_ERROR_INVALID_ARGUMENT for a capture that was adopted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_capture_abandon(stream: *mut warp_stream) -> warp_status {
    guard(|| {
        let stream = named_or_current(stream)?;
        let given_up = capture::abandon(&stream);
        alloc::poll();
        given_up
    })
}

/// Stops capturing for a while: what is put on the stream runs, and must not use blocks of the capture. Streams that take
/// part and were not joined are joined first, and do not take part afterwards. Blocks of the capture that are freed
/// meanwhile are freed in the graph. Events recorded before the pause cannot be waited for after it. On the CPU blocks are
/// used as ever.
///
/// @param stream  the stream that the capture began on; NULL for the current one of the default device.
/// @return As warp_capture_end(); WARP_ERROR_ILLEGAL_IN_CAPTURE when it is paused already; WARP_ERROR_NOT_SUPPORTED for
///     a capture that was adopted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_capture_pause(stream: *mut warp_stream) -> warp_status {
    guard(|| {
        let stream = named_or_current(stream)?;
        let paused = capture::pause(&stream);
        alloc::poll();
        paused
    })
}

/// Goes on with a paused capture, behind all that was recorded before. When it fails the capture is still paused.
///
/// @param stream  the stream that the capture began on; NULL for the current one of the default device.
/// @return As warp_capture_end(); WARP_ERROR_ILLEGAL_IN_CAPTURE when it is not paused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_capture_resume(stream: *mut warp_stream) -> warp_status {
    guard(|| capture::resume(&named_or_current(stream)?))
}

/// Tells whether and how a stream is captured. Does no harm to a capture, and may be asked by any thread.
///
/// @param stream  the stream; of the CPU's that of the calling thread is meant. NULL for the current one of the default device.
/// @param out  filled as far as its struct_size goes.
/// @return WARP_ERROR_ILLEGAL_IN_CAPTURE for the legacy default stream while a blocking stream of its device is captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_capture_query_info(
    stream: *mut warp_stream,
    out: *mut warp_capture_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        runtime::require_live()?;
        let answer = capture::describe(&named_or_current(stream)?)?;
        out.put(warp_capture_info {
            struct_size: size_of::<warp_capture_info>(),
            id: answer.id,
            origin_stream_id: answer.origin_id,
            state: match answer.state {
                State::None => WARP_CAPTURE_STATE_NONE,
                State::Active => WARP_CAPTURE_STATE_ACTIVE,
                State::Invalidated => WARP_CAPTURE_STATE_INVALIDATED,
                State::Paused => WARP_CAPTURE_STATE_PAUSED,
            },
            mode: answer.mode.map_or(-1, |mode| mode as i32),
            is_owned: u8::from(answer.ours),
        });
        Ok(())
    })
}
