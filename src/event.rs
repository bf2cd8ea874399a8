//! Events: marks in the work of a device, which the host, other streams and a clock ask for. And the order between two
//! streams, which is made with one.
//!
//! The driver breaks a capture when it is asked about an event that was recorded there, or when a captured stream waits
//! for one that was not. So an event remembers where this library recorded it last, and such calls are refused here.

use crate::capture;
use crate::device::Device;
use crate::driver::{CaptureStatus, Driver, Failure};
use crate::error::{Error, Result, error, fail};
use crate::handle::{Entered, Handle, Object, Registry, Tag};
use crate::lock::Mutex;
use crate::stream::{self, Stream};
use crate::{log, runtime};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use crate::driver::RawEvent;

static EVENTS: Registry<Event> = Registry::new();

/// An event, ours or wrapped. The CPU's has no native part, and is done as soon as it is recorded.
pub struct Event {
    device: &'static Device,
    native: RawEvent,
    owned: bool,
    options: Options,
    /// Other code has the native event, and may record it in a capture without a word.
    known_elsewhere: AtomicBool,
    state: Mutex<State>,
    /// Of the CPU's: when it was recorded, 0 for never. A word, so that a forked child finds no lock.
    recorded_at: AtomicU64,
}

/// How an event should be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Each record keeps its time.
    pub timing: bool,
    /// A host thread that waits sleeps instead of spinning.
    pub blocking: bool,
}

struct State {
    last: Last,
    /// Host threads that wait for it.
    waiting: u32,
}

/// Where this library recorded an event last. What other code did with the native event is not known.
#[derive(Clone, Copy)]
enum Last {
    Nowhere,
    Work,
    Capture(Part),
}

/// A capture, or what of it lies between two pauses: an event is known to its own part only, though the driver's id may
/// stay the same.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Part {
    id: u64,
    pauses: u32,
}

impl Object for Event {
    const TAG: Tag = Tag::Event;

    fn retire(&self) {
        // A forked child has no event to destroy.
        if !self.owned || !self.device.is_cuda() || runtime::is_forked() {
            return;
        }
        // What a context had is gone with it.
        let Ok(driver) = runtime::driver() else { return };
        if self.device.is_lost() || self.device.context(driver).is_err() {
            return;
        }
        let Ok(_relaxed) = driver.relax_capture() else { return };
        if let Err(f) = driver.destroy_event(self.native)
            && !f.is_driver_gone()
            && !self.device.notice(driver, f)
        {
            log::log!(
                Error,
                "an event of \"{}\" was not destroyed: {}",
                self.device.alias(),
                driver.describe(f)
            );
        }
    }
}

impl Event {
    fn new(device: &'static Device, native: RawEvent, owned: bool, options: Options) -> Event {
        Event {
            device,
            native,
            owned,
            options,
            known_elsewhere: AtomicBool::new(!owned),
            state: Mutex::new(State { last: Last::Nowhere, waiting: 0 }),
            recorded_at: AtomicU64::new(0),
        }
    }

    pub fn device(&self) -> &'static Device {
        self.device
    }

    /// The native handle for other code.
    pub fn native_for_others(&self) -> RawEvent {
        self.known_elsewhere.store(true, Ordering::Release);
        self.native
    }

    /// Of a wrapped event, nothing is known.
    pub fn options(&self) -> Options {
        self.options
    }

    pub fn is_owned(&self) -> bool {
        self.owned
    }

    /// Runs with what is known of the event, which nobody changes meanwhile; messages come afterwards.
    fn locked<R>(&self, body: impl FnOnce(&mut State) -> R) -> R {
        log::after(|| body(&mut self.state.lock()))
    }

    /// Puts the event behind all work so far on the stream; `None` is the current one of the event's device.
    pub fn record(&self, stream: Option<&Stream>) -> Result<()> {
        if let Some(stream) = stream
            && !std::ptr::eq(stream.device(), self.device)
        {
            fail!(
                InvalidArgument,
                "the event belongs to \"{}\" and cannot be recorded on a stream of \"{}\"; record an event of that device, which streams of any device can wait for",
                self.device.alias(),
                stream.device().alias()
            );
        }
        if !self.device.is_cuda() {
            self.recorded_at.store(now(), Ordering::Release);
            return Ok(());
        }
        let driver = self.device.require_cuda("recording an event")?;
        let mut current = None;
        let stream = match stream {
            Some(stream) => stream,
            None => &**current.insert(stream::current(self.device)?),
        };
        let _context = stream.enter_context(driver)?;
        let _relaxed = driver.relax_capture().map_err(|f| self.device.error(driver, f))?;
        self.locked(|state| {
            loop {
                let begun = stream::begun();
                let capture = capture_of(stream, driver, "recording an event")?;
                if capture.is_some() && state.waiting != 0 {
                    fail!(
                        Busy,
                        "a thread is waiting for the event, which would break the capture that it is to be recorded in; record another event"
                    );
                }
                driver.record_event(self.native, stream.native()).map_err(|f| self.foreign(driver, f))?;
                // It may have fallen into a capture that just began, which a question about it would break: once more.
                if capture.is_some() || !stream::began_since(begun) {
                    state.last = capture.map_or(Last::Work, Last::Capture);
                    return Ok(());
                }
            }
        })
    }

    /// A failure that, of a wrapped event, says that it is another context's.
    fn foreign(&self, driver: &Driver, failure: Failure) -> Error {
        let error = self.device.error(driver, failure);
        if self.owned || !failure.is_invalid_handle() {
            return error;
        }
        error!(
            InvalidArgument,
            "the wrapped event does not belong to the context of \"{}\", or was destroyed: {}",
            self.device.alias(),
            error.message
        )
        .with_driver_code(failure.code)
    }

    /// An error for an event whose last record is in a capture: `what` would break that, or finds nothing.
    fn refuse_captured(&self, state: &State, what: &str) -> Result<()> {
        match state.last {
            Last::Capture(Part { id, .. }) => fail!(
                IllegalInCapture,
                "{what}: it was last recorded in a capture (id {id}) and marks a place in a graph, not work of \"{}\"; record it on a stream that is not captured first, or ask the stream that the graph is launched on",
                self.device.alias()
            ),
            _ => Ok(()),
        }
    }

    /// Whether all work before its last record is done; so it is before the first.
    pub fn is_done(&self) -> Result<bool> {
        if !self.device.is_cuda() {
            return Ok(true);
        }
        let driver = self.device.require_cuda("querying an event")?;
        let _entered = self.device.enter_relaxed(driver)?;
        self.locked(|state| {
            self.refuse_captured(state, "the event cannot be queried")?;
            driver.event_is_done(self.native).map_err(|f| self.device.error(driver, f))
        })
    }

    /// Waits until all work before its last record is done.
    pub fn synchronize(&self) -> Result<()> {
        if !self.device.is_cuda() {
            return Ok(());
        }
        let driver = self.device.require_cuda("waiting for an event")?;
        let _entered = self.device.enter_relaxed(driver)?;
        // No lock is held while it waits; a record in a capture meanwhile is what the count keeps away.
        self.locked(|state| {
            self.refuse_captured(state, "the event cannot be waited for by the host")?;
            state.waiting += 1;
            Ok(())
        })?;
        let waited = driver.synchronize_event(self.native);
        self.locked(|state| state.waiting -= 1);
        waited.map_err(|f| self.device.error(driver, f))
    }
}

/// Nanoseconds on the clock that only goes forward.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the one struct; this clock is there on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(1)
}

/// Milliseconds between the last records of two events.
pub fn elapsed(start: &Event, end: &Event) -> Result<f32> {
    let device = start.device;
    if !std::ptr::eq(device, end.device) {
        fail!(
            InvalidArgument,
            "the first event belongs to \"{}\", the second to \"{}\"; time is measured between events of one device",
            device.alias(),
            end.device.alias()
        );
    }
    for (event, which) in [(start, "first"), (end, "second")] {
        if event.owned && !event.options.timing {
            fail!(
                InvalidArgument,
                "the {which} event keeps no time; make it with WARP_EVENT_TIMING to measure with it"
            );
        }
    }
    if !device.is_cuda() {
        let times = [start, end].map(|event| event.recorded_at.load(Ordering::Acquire));
        if times.contains(&0) {
            return Err(never_recorded());
        }
        return Ok((times[1].wrapping_sub(times[0]).cast_signed() as f64 / 1e6) as f32);
    }
    let driver = device.require_cuda("measuring time between events")?;
    let _entered = device.enter_relaxed(driver)?;
    let refuse = |event: &Event, state: &State, which| {
        event.refuse_captured(state, &format!("the {which} event has no time"))
    };
    let ask = || match driver.elapsed(start.native, end.native) {
        Ok(milliseconds) => Ok(milliseconds),
        Err(f) if f.is_not_ready() => fail!(
            Busy,
            "the work before the events is not done yet; wait with warp_event_synchronize, or ask again later"
        ),
        Err(f) if f.is_invalid_handle() => Err(never_recorded().with_driver_code(f.code)),
        Err(f) => Err(device.error(driver, f)),
    };
    // Two threads that measure between the same two events, one backwards, must not wait for each other.
    let (low, high) = if std::ptr::from_ref(start) < std::ptr::from_ref(end) {
        ((start, "first"), (end, "second"))
    } else {
        ((end, "second"), (start, "first"))
    };
    low.0.locked(|state| {
        refuse(low.0, state, low.1)?;
        if std::ptr::eq(low.0, high.0) {
            return ask();
        }
        high.0.locked(|state| {
            refuse(high.0, state, high.1)?;
            ask()
        })
    })
}

#[cold]
fn never_recorded() -> Error {
    error!(
        InvalidArgument,
        "an event that time is measured between was never recorded, or keeps no time; record both, made with WARP_EVENT_TIMING"
    )
}

/// The capture that the stream takes part in. An error when that is broken, or may be any: then nothing can be put on the
/// stream. The special streams mean those of the context that is current.
fn capture_of(stream: &Stream, driver: &Driver, what: &str) -> Result<Option<Part>> {
    let refuse = |why: &str| {
        error!(
            IllegalInCapture,
            "{what} on the stream (id {}) of \"{}\" is not possible: {why}",
            stream.id(),
            stream.device().alias()
        )
    };
    let failed = |f: Failure| match f.is_capture() {
        // The legacy stream says so while any blocking stream captures.
        true => refuse(
            "it is the legacy default stream, and a blocking stream of the context is being captured, which that would break; use another stream, or do it after the capture ends",
        ),
        false => stream.device().error(driver, f),
    };
    match driver.capture_status(stream.native()).map_err(failed)? {
        CaptureStatus::None => Ok(None),
        CaptureStatus::Active => match driver.capture_id(stream.native()) {
            Ok(id) => Ok(id.map(|id| Part { id, pauses: capture::pauses_of(id) })),
            Err(f) => Err(failed(f)),
        },
        CaptureStatus::Invalidated => {
            Err(refuse("its capture is broken; end the capture, which fails, and begin anew"))
        }
    }
}

#[cold]
fn legacy_in_capture() -> Error {
    error!(
        IllegalInCapture,
        "what is being waited for is part of a capture, and the legacy default stream cannot be captured; use another stream"
    )
}

#[cold]
fn two_captures(own: Part, of: Part) -> Error {
    let (own, of) = (own.id, of.id);
    if own == of {
        return error!(
            IllegalInCapture,
            "the event was recorded before the capture (id {own}) was paused, and marks nothing any more; what comes after the pause comes after all before it"
        );
    }
    error!(
        IllegalInCapture,
        "the stream is part of a capture (id {own}) and cannot wait for what is part of another one (id {of}); order their graphs by launching them on streams, or capture both as one"
    )
}

#[cold]
fn outside_capture(own: Part, what: &str) -> Error {
    let own = own.id;
    error!(
        IllegalInCapture,
        "the stream is part of a capture (id {own}) and cannot wait for {what}, which is not; wait before the capture begins, or make it part of the capture first"
    )
}

/// An error where the CPU would have to wait for a GPU.
fn refuse_cpu(stream: &Stream, of: &Device, way: &str) -> Result<()> {
    if stream.device().is_cuda() {
        return Ok(());
    }
    fail!(
        InvalidArgument,
        "what is put on the CPU's stream is done at once and cannot wait for \"{}\"; wait on the host, with {way}",
        of.alias()
    )
}

/// Work put on the stream from now on waits for the event's last record.
pub fn wait(stream: &Stream, event: &Event) -> Result<()> {
    if !event.device.is_cuda() {
        // Done already; but a stream that is lost is to be told.
        return if stream.device().is_cuda() {
            stream.device().require_cuda("a wait").map(drop)
        } else {
            Ok(())
        };
    }
    refuse_cpu(stream, event.device, "warp_event_synchronize")?;
    let device = stream.device();
    let driver = device.require_cuda("a wait")?;
    event.device.require_cuda("a wait")?;
    event.device.context(driver)?;
    let _context = stream.enter_context(driver)?;
    let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
    event.locked(|state| {
        let own = capture_of(stream, driver, "a wait")?;
        match (own, state.last) {
            (None, Last::Capture(_)) if stream.is_legacy() => return Err(legacy_in_capture()),
            (Some(own), Last::Capture(of)) if own != of => return Err(two_captures(own, of)),
            (Some(own), Last::Work) => return Err(outside_capture(own, "the event's last record")),
            _ => {}
        }
        driver.wait_event(stream.native(), event.native).map_err(|f| match state.last {
            // This leaves the stream as it was.
            Last::Capture(Part { id, .. }) if f.is_invalid_value() => error!(
                IllegalInCapture,
                "the event was last recorded in a capture (id {id}) that has ended or was paused, and marks nothing to wait for; record it anew, or wait for the stream that the graph is launched on"
            )
            .with_driver_code(f.code),
            _ => event.foreign(driver, f),
        })?;
        let may_join =
            matches!(state.last, Last::Capture(_)) || event.known_elsewhere.load(Ordering::Acquire);
        note_joined(stream, driver, own, may_join);
        Ok(())
    })
}

/// Notes what a wait has made of a stream that `was` captured or not: a part of a capture of other code, which ends without a word.
fn note_joined(stream: &Stream, driver: &Driver, was: Option<Part>, may_join: bool) {
    if was.is_none()
        && may_join
        && !stream.is_known_elsewhere()
        && stream.is_capturing(driver).unwrap_or(true)
    {
        stream.set_known_elsewhere();
    }
}

/// Whether both name the same stream, in the calling thread.
fn is_same(one: &Stream, other: &Stream) -> bool {
    let special = one.is_per_thread() || other.is_per_thread();
    std::ptr::eq(one.device(), other.device())
        && (one.native() == other.native()
            || one.is_legacy() && other.is_legacy()
            || !special && one.id() == other.id())
}

/// Work put on the stream from now on waits for all work so far on another one.
pub fn wait_stream(stream: &Stream, other: &Stream) -> Result<()> {
    let (device, home) = (stream.device(), other.device());
    for named in [device, home].into_iter().filter(|named| named.is_cuda()) {
        named.require_cuda("a wait")?;
    }
    if !home.is_cuda() || is_same(stream, other) {
        return Ok(());
    }
    refuse_cpu(stream, home, "warp_stream_synchronize")?;
    let driver = device.require_cuda("a wait")?;
    let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
    let own = {
        let _context = stream.enter_context(driver)?;
        capture_of(stream, driver, "a wait")?
    };
    let _home = home.enter(driver)?;
    let begun = stream::begun();
    let of = capture_of(other, driver, "a wait for work")?;
    match (own, of) {
        (None, Some(_)) if stream.is_legacy() => return Err(legacy_in_capture()),
        (Some(own), Some(of)) if own != of => return Err(two_captures(own, of)),
        (Some(own), None) => return Err(outside_capture(own, "the other stream")),
        _ => {}
    }
    let event = stream::take_event(home, driver)?;
    let joined =
        driver.record_event(event, other.native()).map_err(|f| home.error(driver, f)).and_then(|()| {
            let _context = stream.enter_context(driver)?;
            driver.wait_event(stream.native(), event).map_err(|f| device.error(driver, f))?;
            note_joined(stream, driver, own, of.is_some() || other.is_known_elsewhere());
            Ok(())
        });
    if of.is_none() && !stream::began_since(begun) {
        stream::give_event(home, event);
    } else {
        // One that marks a place in a capture is not for asking, so it does not go back among those that are asked.
        let _ = driver.destroy_event(event);
    }
    joined
}

/// Makes an event of the device.
pub fn create(device: &'static Device, options: Options) -> Result<Handle> {
    if !device.is_cuda() {
        return EVENTS.insert(Event::new(device, RawEvent::NULL, true, options));
    }
    let driver = device.require_cuda("an event")?;
    let _entered = device.enter_relaxed(driver)?;
    let native = driver
        .create_event_with(options.timing, options.blocking)
        .map_err(|f| device.error(driver, f).context("an event"))?;
    EVENTS.insert(Event::new(device, native, true, options)).inspect_err(|_| {
        let _ = driver.destroy_event(native);
    })
}

/// Names an event that somebody else made and goes on owning. It must outlive its handle.
pub fn wrap(device: &'static Device, native: RawEvent) -> Result<Handle> {
    let driver = device.require_cuda("an event of other code")?;
    if native == RawEvent::NULL {
        fail!(InvalidArgument, "the native event is NULL; pass a CUevent");
    }
    device.context(driver)?;
    EVENTS.insert(Event::new(device, native, false, Options::default()))
}

/// Makes the handle stale. An event of ours is destroyed when the calls inside have left; who waits for it goes on.
pub fn release(handle: Handle) -> Result<()> {
    EVENTS.close(handle).map(drop)
}

/// Keeps the event from ending while the guard lives.
#[inline]
pub fn enter(handle: Handle) -> Result<Entered<Event>> {
    EVENTS.enter(handle)
}

/// After a fork, in the child.
///
/// # Safety
/// As `Registry::mend_in_child`.
pub unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe { EVENTS.mend_in_child() };
}

/// Makes every event's handle stale, at shutdown.
pub fn dismantle() {
    EVENTS.close_where(|_| true);
}
