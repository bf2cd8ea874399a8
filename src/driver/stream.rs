//! Streams and events.

use super::{Driver, Failure, RawContext, RawEvent, RawStream};
use std::ffi::c_void;

/// Whether work put on a stream runs or is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureStatus {
    None,
    Active,
    Invalidated,
}

impl CaptureStatus {
    /// The numbers are the driver's.
    #[inline]
    pub(super) fn of(number: u32) -> CaptureStatus {
        match number {
            0 => CaptureStatus::None,
            1 => CaptureStatus::Active,
            _ => CaptureStatus::Invalidated,
        }
    }
}

const NON_BLOCKING: u32 = 1;
const BLOCKING_SYNC: u32 = 1;
const DISABLE_TIMING: u32 = 2;

impl Driver {
    /// A stream in the current context; the priority is clamped by the driver.
    pub fn create_stream(&self, non_blocking: bool, priority: i32) -> Result<RawStream, Failure> {
        let mut stream = RawStream::NULL;
        let flags = if non_blocking { NON_BLOCKING } else { 0 };
        // SAFETY: the out-pointer is valid and a stream handle is a pointer.
        unsafe { self.table.cuStreamCreateWithPriority((&raw mut stream.0).cast(), flags, priority)? };
        Ok(stream)
    }

    /// Destroys the stream; work on it goes on to its end.
    pub fn destroy_stream(&self, stream: RawStream) -> Result<(), Failure> {
        // SAFETY: a stream that we made, whose handle nobody of us uses any more.
        unsafe { self.table.cuStreamDestroy_v2(stream.0.cast()) }
    }

    pub fn synchronize_stream(&self, stream: RawStream) -> Result<(), Failure> {
        // SAFETY: the caller pins the stream.
        unsafe { self.table.cuStreamSynchronize(stream.0.cast()) }
    }

    /// Whether all work put on the stream so far is done.
    pub fn stream_is_idle(&self, stream: RawStream) -> Result<bool, Failure> {
        // SAFETY: the caller pins the stream.
        match unsafe { self.table.cuStreamQuery(stream.0.cast()) } {
            Ok(()) => Ok(true),
            Err(f) if f.is_not_ready() => Ok(false),
            Err(f) => Err(f),
        }
    }

    /// The number that the driver never gives to another stream.
    pub fn stream_id(&self, stream: RawStream) -> Result<u64, Failure> {
        let mut id = 0;
        // SAFETY: the caller pins the stream; the out-pointer is valid.
        unsafe { self.table.cuStreamGetId(stream.0.cast(), &mut id)? };
        Ok(id)
    }

    /// The context that the stream belongs to.
    pub fn stream_context(&self, stream: RawStream) -> Result<RawContext, Failure> {
        let mut context = RawContext::NULL;
        // SAFETY: the caller pins the stream; the out-pointer is valid.
        unsafe { self.table.cuStreamGetCtx(stream.0.cast(), (&raw mut context.0).cast())? };
        Ok(context)
    }

    /// Whether the stream takes no part in the legacy stream's ordering. Breaks the capture of a stream that is captured.
    pub fn stream_is_non_blocking(&self, stream: RawStream) -> Result<bool, Failure> {
        let mut flags = 0;
        // SAFETY: the caller pins the stream; the out-pointer is valid.
        unsafe { self.table.cuStreamGetFlags(stream.0.cast(), &mut flags)? };
        Ok(flags & NON_BLOCKING != 0)
    }

    pub fn stream_priority(&self, stream: RawStream) -> Result<i32, Failure> {
        let mut priority = 0;
        // SAFETY: the caller pins the stream; the out-pointer is valid.
        unsafe { self.table.cuStreamGetPriority(stream.0.cast(), &mut priority)? };
        Ok(priority)
    }

    /// Least and greatest priority in the current context; numerically the greatest is the smaller one.
    pub fn priority_range(&self) -> Result<(i32, i32), Failure> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the out-pointers are valid.
        unsafe { self.table.cuCtxGetStreamPriorityRange(&mut least, &mut greatest)? };
        Ok((least, greatest))
    }

    #[inline]
    pub fn capture_status(&self, stream: RawStream) -> Result<CaptureStatus, Failure> {
        let mut status = 0u32;
        // SAFETY: the caller pins the stream; the driver writes one 32-bit status, kept as a number.
        unsafe { self.table.cuStreamIsCapturing(stream.0.cast(), (&raw mut status).cast())? };
        Ok(CaptureStatus::of(status))
    }

    /// Work put on `stream` from now on waits for `event`.
    pub fn wait_event(&self, stream: RawStream, event: RawEvent) -> Result<(), Failure> {
        // SAFETY: the caller pins the stream and owns the event.
        unsafe { self.table.cuStreamWaitEvent(stream.0.cast(), event.0.cast(), 0) }
    }

    /// Has `call(data)` called in the order of the stream, on a thread of the driver's, which must not call the driver. It is not
    /// called when the context has failed.
    pub fn launch_host_function(
        &self,
        stream: RawStream,
        call: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Result<(), Failure> {
        // SAFETY: the caller pins the stream, and `call` can take `data` at any time.
        unsafe { self.table.cuLaunchHostFunc(stream.0.cast(), Some(call), data) }
    }

    /// An event without timing in the current context.
    pub fn create_event(&self) -> Result<RawEvent, Failure> {
        self.create_event_with(false, false)
    }

    /// An event in the current context: with the time of each record or without, and with host threads that wait for
    /// it asleep or not.
    pub fn create_event_with(&self, timing: bool, blocking: bool) -> Result<RawEvent, Failure> {
        let mut event = RawEvent::NULL;
        let flags = if timing { 0 } else { DISABLE_TIMING } | if blocking { BLOCKING_SYNC } else { 0 };
        // SAFETY: the out-pointer is valid and an event handle is a pointer.
        unsafe { self.table.cuEventCreate((&raw mut event.0).cast(), flags)? };
        Ok(event)
    }

    /// Destroys the event; who waits for its last record goes on waiting.
    pub fn destroy_event(&self, event: RawEvent) -> Result<(), Failure> {
        // SAFETY: an event that we made, whose handle nobody of us uses any more.
        unsafe { self.table.cuEventDestroy_v2(event.0.cast()) }
    }

    pub fn record_event(&self, event: RawEvent, stream: RawStream) -> Result<(), Failure> {
        // SAFETY: the caller owns the event and pins the stream.
        unsafe { self.table.cuEventRecord(event.0.cast(), stream.0.cast()) }
    }

    /// Whether everything before the event's last record is done.
    pub fn event_is_done(&self, event: RawEvent) -> Result<bool, Failure> {
        // SAFETY: the caller owns the event.
        match unsafe { self.table.cuEventQuery(event.0.cast()) } {
            Ok(()) => Ok(true),
            Err(f) if f.is_not_ready() => Ok(false),
            Err(f) => Err(f),
        }
    }

    /// Waits until everything before the event's last record is done.
    pub fn synchronize_event(&self, event: RawEvent) -> Result<(), Failure> {
        // SAFETY: the caller pins the event.
        unsafe { self.table.cuEventSynchronize(event.0.cast()) }
    }

    /// Milliseconds from one event to another.
    pub fn elapsed(&self, start: RawEvent, end: RawEvent) -> Result<f32, Failure> {
        let mut milliseconds = 0.0;
        // SAFETY: the caller pins the events; the out-pointer is valid.
        unsafe {
            match self.table.cuEventElapsedTime_v2(&mut milliseconds, start.0.cast(), end.0.cast()) {
                // Drivers before 12.8 have the first form only.
                Err(f) if f.is_missing() => {
                    self.table.cuEventElapsedTime(&mut milliseconds, start.0.cast(), end.0.cast())?
                }
                result => result?,
            }
        }
        Ok(milliseconds)
    }

    /// Records the event after all work so far of the whole context, which breaks every capture there. Drivers before
    /// 12.5 cannot.
    pub fn record_context_event(&self, context: RawContext, event: RawEvent) -> Result<(), Failure> {
        // SAFETY: the caller owns the event, and has seen that the context is alive.
        unsafe { self.table.cuCtxRecordEvent(context.0.cast(), event.0.cast()) }
    }
}
