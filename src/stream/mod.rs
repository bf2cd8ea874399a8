//! Streams: the ones we make, the ones others made, each device's current one, and what remains of a stream
//! that is gone while blocks still depend on its work.

mod current;
mod events;
mod marks;
mod on_demand;
mod work;

pub use current::{current, restore_override, set_current, thread_override};
pub use events::{give_event, take_event};
pub use marks::{is_this_thread, thread_mark};
pub use on_demand::OnDemand;
pub use work::{mark_context, settle_pools, synchronize_device, wait_for_work};

use crate::device::{self, Device};
use crate::driver::{CaptureStatus, Driver, Failure, RawEvent};

pub use crate::driver::RawStream;
use crate::error::{Result, fail};
use crate::handle::{Entered, Handle, Object, Registry, Tag};
use crate::lock::{Mutex, RwLock};
use crate::log;
use crate::moment;
use crate::runtime;
use crate::thread;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static STREAMS: Registry<Stream> = Registry::new();

/// A stream, ours or wrapped. The CPU's is a pseudo-stream: work on it has been done when the call returns.
#[repr(C)]
pub struct Stream {
    device: &'static Device,
    native: RawStream,
    id: u64,
    owned: bool,
    /// Its native handle may be dead by now: only calls that name the stream may touch it.
    untracked: bool,
    /// Other code has its native handle, and may capture it.
    known_elsewhere: AtomicBool,
    /// Unknown while a stream of others is captured that was wrapped meanwhile.
    non_blocking: OnceLock<bool>,
    priority: i32,
    end: Mutex<End>,
}

/// What later frees need of a stream that may be gone.
enum End {
    /// Its native handle is good.
    Running,
    /// It ended while it was captured, or when no event was to be had: where its work ends is not marked. The native
    /// stream is still there if it is ours.
    Unmarked,
    /// The native stream is gone, or no longer ours to touch; all its work is before the event, if there was
    /// anybody to wait for it and a context to record in.
    Over(Option<RawEvent>),
}

/// What to wait for when a held stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Calls are still inside; its end has not been recorded.
    NotYet,
    /// Everything put on it is before this event.
    Event(RawEvent),
    /// Nothing to wait for: the context, and the work with it, is gone.
    Nothing,
}

impl Object for Stream {
    const TAG: Tag = Tag::Stream;

    fn word(&self) -> u64 {
        self.id
    }

    fn retire(&self) {
        // A forked child has no stream to end, and may find the lock taken by a thread that is not there.
        if runtime::is_forked() || self.untracked {
            return;
        }
        // The default streams of the threads that used the handle cannot be named here; the legacy stream comes
        // after them all.
        let last = if self.is_per_thread() { RawStream::LEGACY } else { self.native };
        let end = self.finish(last);
        *self.end.lock() = end;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let End::Unmarked = self.end.get_mut() {
            self.ended();
        }
        if let End::Over(Some(event)) = self.end.get_mut() {
            give_event(self.device, *event);
        }
    }
}

impl Stream {
    pub fn device(&self) -> &'static Device {
        self.device
    }

    #[inline]
    pub fn native(&self) -> RawStream {
        self.native
    }

    /// The native handle for other code.
    pub fn native_for_others(&self) -> RawStream {
        self.set_known_elsewhere();
        self.native
    }

    /// From now on the stream may be captured without a word: other code has its handle, or a capture of other code that it has
    /// become a part of.
    pub fn set_known_elsewhere(&self) {
        if !self.known_elsewhere.swap(true, Ordering::AcqRel) {
            moment::passed();
        }
    }

    /// Whether other code may capture the stream without a word.
    #[inline]
    pub fn is_known_elsewhere(&self) -> bool {
        self.known_elsewhere.load(Ordering::Acquire)
    }

    /// The number that names it for good; the CPU's is the calling thread's.
    pub fn id(&self) -> u64 {
        if self.device.is_cuda() { self.id } else { marks::thread_number() }
    }

    pub fn is_owned(&self) -> bool {
        self.owned
    }

    /// Whether nobody promises that the native stream is still there: only calls that name it may touch it.
    pub fn is_untracked(&self) -> bool {
        self.untracked
    }

    /// Whether it takes no part in the ordering with the legacy stream; taken to be so as long as it cannot be asked.
    pub fn is_non_blocking(&self) -> bool {
        if let Some(known) = self.non_blocking.get() {
            return *known;
        }
        if self.untracked || self.device.is_lost() {
            return true;
        }
        // Before the lock, which a forked child may find taken by a thread that is not there.
        let Ok(driver) = runtime::driver() else { return true };
        let _no_begin = BEGINS.read();
        if self.is_capturing(driver) != Ok(false) {
            return true;
        }
        match driver.stream_is_non_blocking(self.native) {
            Ok(answer) => *self.non_blocking.get_or_init(|| answer),
            Err(_) => true,
        }
    }

    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Whether the native stream is the calling thread's own default stream: another stream in each thread.
    pub fn is_per_thread(&self) -> bool {
        self.native == RawStream::PER_THREAD
    }

    /// Whether the native stream is the legacy default stream of its context.
    pub fn is_legacy(&self) -> bool {
        self.native == RawStream::NULL || self.native == RawStream::LEGACY
    }

    /// What to wait for once the stream cannot be entered any more.
    pub fn ended(&self) -> Ended {
        if self.untracked {
            return Ended::NotYet;
        }
        // The receiver of a message may come here again, so messages come when the lock is free.
        log::after(|| {
            let mut end = self.end.lock();
            if let End::Unmarked = *end {
                // The legacy stream comes after every blocking one. What is left, somebody else's non-blocking stream, is
                // never known to be done.
                let last = if self.owned { Some(self.native) } else { None };
                let last = last.or((!self.is_non_blocking()).then_some(RawStream::LEGACY));
                if let Some(last) = last {
                    *end = self.finish(last);
                }
            }
            match *end {
                End::Running | End::Unmarked => Ended::NotYet,
                End::Over(Some(event)) => Ended::Event(event),
                End::Over(None) => Ended::Nothing,
            }
        })
    }

    /// An error while work on the stream is being recorded: `what` cannot be part of a graph.
    #[inline]
    pub fn refuse_capture(&self, driver: &Driver, what: &str) -> Result<()> {
        match self.is_capturing(driver) {
            Ok(false) => Ok(()),
            Ok(true) => Err(in_capture(self, what)),
            Err(f) => Err(self.device.error(driver, f)),
        }
    }

    /// Puts on the stream what a capture of it would die of; an error when it is captured. What cannot be seen is a capture that
    /// other code begins just then.
    pub fn outside_captures<R>(
        &self,
        driver: &Driver,
        what: &str,
        put: impl FnOnce() -> std::result::Result<R, Failure>,
    ) -> Result<R> {
        // The receiver of a message may begin a capture, so messages come when the lock is free.
        log::after(|| {
            let _no_begin = BEGINS.read();
            self.refuse_capture(driver, what)?;
            put().map_err(|f| self.device.error(driver, f))
        })
    }

    /// Whether it is there and not captured. The special ones mean another one in each context.
    #[inline]
    pub fn is_surely_not_captured(&self, driver: &'static Driver) -> bool {
        self.enter_context(driver).is_ok_and(|_context| self.is_capturing(driver) == Ok(false))
    }

    /// Whether putting anything on the stream would record it, or break what is being recorded.
    #[inline]
    pub fn is_capturing(&self, driver: &Driver) -> std::result::Result<bool, Failure> {
        is_capturing(driver, self.native)
    }

    /// Marks the end of the work on it, which `last` comes after, and gives up the native stream.
    fn finish(&self, last: RawStream) -> End {
        if !self.device.is_cuda() || self.device.is_lost() {
            return End::Over(None);
        }
        let Ok(driver) = runtime::driver() else { return End::Over(None) };
        // Twice, since what is refused now cannot be marked later if the stream is somebody else's.
        let marked = match self.mark(driver, last) {
            Err(f) if !f.is_sticky() => self.mark(driver, last),
            first => first,
        };
        let event = match marked {
            Ok(Some(event)) => Some(event),
            // After a fault no work of it will ever run again.
            Err(f) if f.is_sticky() => None,
            _ if self.device.is_lost() => return End::Over(None),
            // Nor can somebody else's be asked later.
            _ if !self.owned && last == self.native && self.is_done(driver) => None,
            // Whoever destroyed it now would not know when the blocks that it used can be freed, and would break a
            // capture.
            _ => return End::Unmarked,
        };
        if self.owned
            && let Err(f) = driver.destroy_stream(self.native)
            && !self.device.notice(driver, f)
        {
            log::log!(
                Error,
                "a stream of \"{}\" was not destroyed: {}",
                self.device.alias(),
                driver.describe(f)
            );
        }
        End::Over(event)
    }

    /// Whether all its work is surely done.
    fn is_done(&self, driver: &'static Driver) -> bool {
        let Ok(_context) = self.device.enter(driver) else { return false };
        let Ok(_relaxed) = driver.relax_capture() else { return false };
        !self.is_capturing(driver).unwrap_or(true) && driver.stream_is_idle(self.native).unwrap_or(false)
    }

    /// An event behind all work so far on `last`; `None` when there can be none now.
    fn mark(
        &self,
        driver: &'static Driver,
        last: RawStream,
    ) -> std::result::Result<Option<RawEvent>, Failure> {
        let Ok(_context) = self.device.enter(driver) else { return Ok(None) };
        let _relaxed = driver.relax_capture()?;
        if is_capturing(driver, last)? {
            return Ok(None);
        }
        let Ok(event) = take_event(self.device, driver).or_else(|_| take_event(self.device, driver)) else {
            return Ok(None);
        };
        match driver.record_event(event, last) {
            Ok(()) => Ok(Some(event)),
            Err(f) => {
                self.device.notice(driver, f);
                give_event(self.device, event);
                Err(f)
            }
        }
    }

    /// Waits until all work put on it so far is done.
    pub fn synchronize(&self) -> Result<()> {
        if !self.device.is_cuda() {
            return Ok(());
        }
        let driver = self.device.require_cuda("synchronising a stream")?;
        let _context = self.enter_context(driver)?;
        self.refuse_capture(driver, "waiting for the stream")?;
        let _relaxed = driver.relax_capture().map_err(|f| self.device.error(driver, f))?;
        driver.synchronize_stream(self.native).map_err(|f| self.device.error(driver, f))
    }

    /// Whether all work put on it so far is done.
    pub fn is_idle(&self) -> Result<bool> {
        if !self.device.is_cuda() {
            return Ok(true);
        }
        let driver = self.device.require_cuda("querying a stream")?;
        let _context = self.enter_context(driver)?;
        let _relaxed = driver.relax_capture().map_err(|f| self.device.error(driver, f))?;
        self.outside_captures(driver, "querying the stream", || driver.stream_is_idle(self.native))
    }

    /// To be called before the driver is given the stream. An error when its context died behind the library's
    /// back: once the GPU has another context the driver crashes on a stream of the dead one. The special streams
    /// mean another one in each context; a call on them makes its device's current.
    #[inline]
    pub fn enter_context(
        &self,
        driver: &'static Driver,
    ) -> Result<Option<crate::driver::ContextGuard<'static>>> {
        if self.native.is_special() {
            self.device.enter(driver).map(Some)
        } else {
            self.device.context(driver).map(|_| None)
        }
    }
}

/// Whether putting anything on a native stream would record it, or break what is being recorded.
#[inline]
pub fn is_capturing(driver: &Driver, native: RawStream) -> std::result::Result<bool, Failure> {
    match driver.capture_status(native) {
        Ok(status) => Ok(status != CaptureStatus::None),
        // The legacy stream refuses the question while a blocking stream captures.
        Err(f) if f.is_capture() => Ok(true),
        Err(f) => Err(f),
    }
}

/// Held for writing while a capture begins here, and for reading between the question whether a stream is captured and what
/// must not be done to one that is.
static BEGINS: RwLock<()> = RwLock::new(());

/// Twice the number of captures that began here, and odd while one does.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// Does what begins a capture.
pub fn begin_capture<R>(begin: impl FnOnce() -> R) -> R {
    let _alone = BEGINS.write();
    BEGUN.fetch_add(1, Ordering::AcqRel);
    let begun = begin();
    BEGUN.fetch_add(1, Ordering::AcqRel);
    begun
}

/// How far the begins of captures have come. For a call that asks whether a stream is captured and then puts something on it: a
/// lock around both would be one for all threads, so it asks this before, and `began_since` after.
#[inline]
pub fn begun() -> u64 {
    BEGUN.load(Ordering::Acquire)
}

/// Whether some capture may have begun since `begun` said that.
#[inline]
pub fn began_since(before: u64) -> bool {
    before % 2 == 1 || begun() != before
}

/// Whether nothing is left to do on a stream that is surely not captured: one of ours, or the calling thread's own default
/// stream. Of others nothing is said, since their owners may begin a capture there at any moment, and the question would
/// break it. The stream's context is current.
pub fn is_surely_idle(driver: &Driver, stream: &Stream) -> std::result::Result<bool, Failure> {
    let _no_begin = BEGINS.read();
    let surely = stream.owned || stream.is_per_thread();
    Ok(surely && !stream.is_capturing(driver)? && driver.stream_is_idle(stream.native)?)
}

/// An event behind all work that was put on the native stream so far; `None` while it is being captured, or without an
/// event. For calls that do not work on that stream: whoever does may begin a capture there at any moment, and an event that
/// fell into it must not be asked, which would break it. The stream's context is current.
pub fn mark_end(
    device: &Device,
    driver: &Driver,
    native: RawStream,
) -> std::result::Result<Option<RawEvent>, Failure> {
    // The receiver of a message may begin a capture, so messages come when the lock is free.
    log::after(|| {
        let _no_begin = BEGINS.read();
        if is_capturing(driver, native)? {
            return Ok(None);
        }
        let Ok(event) = take_event(device, driver) else { return Ok(None) };
        let recorded = driver.record_event(event, native).and_then(|()| is_capturing(driver, native));
        if let Ok(false) = recorded {
            return Ok(Some(event));
        }
        give_event(device, event);
        recorded.map(|_| None)
    })
}

#[cold]
fn in_capture(stream: &Stream, what: &str) -> crate::error::Error {
    crate::error::error!(
        IllegalInCapture,
        "{what} cannot be recorded: the stream (id {}) of \"{}\" is being captured; do it before the capture begins or after it ends, or on another stream",
        stream.id(),
        stream.device().alias()
    )
}

/// How a new stream should be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    pub non_blocking: bool,
    pub priority: i32,
}

/// Makes a stream of the device.
pub fn create(device: &'static Device, options: Options) -> Result<Handle> {
    let driver = device.require_cuda("a stream")?;
    let _entered = device.enter_relaxed(driver)?;
    let (least, greatest) = driver.priority_range().unwrap_or((0, 0));
    if options.priority != 0 && !(greatest..=least).contains(&options.priority) {
        fail!(
            InvalidArgument,
            "priority {} is outside of what \"{}\" has: {greatest} (first) to {least} (last)",
            options.priority,
            device.alias()
        );
    }
    let native =
        driver.create_stream(options.non_blocking, options.priority).map_err(|f| device.error(driver, f))?;
    let id = match driver.stream_id(native) {
        Ok(id) => id,
        Err(f) => {
            let _ = driver.destroy_stream(native);
            return Err(device.error(driver, f));
        }
    };
    let stream = Stream {
        device,
        native,
        id,
        owned: true,
        untracked: false,
        known_elsewhere: AtomicBool::new(false),
        non_blocking: OnceLock::from(options.non_blocking),
        priority: options.priority,
        end: Mutex::new(End::Running),
    };
    STREAMS.insert(stream).inspect_err(|_| {
        let _ = driver.destroy_stream(native);
    })
}

/// Names a stream that somebody else made and goes on owning. It must outlive its handle, unless it is untracked.
pub fn wrap(device: &'static Device, native: RawStream, untracked: bool) -> Result<Handle> {
    let driver = device.require_cuda("a stream")?;
    let context = device.context(driver)?;
    let _current = driver.enter(context).map_err(|f| device.error(driver, f))?;
    // The default streams are the current context's. To ask the legacy one, for this or its priority, would break the capture
    // of any blocking stream.
    let actual = match native.is_special() {
        true => context,
        false => driver.stream_context(native).map_err(|f| device.error(driver, f))?,
    };
    if actual != context {
        let owner = device::of_context(driver, actual);
        fail!(
            InvalidArgument,
            "the stream belongs to {}, not to \"{}\"; wrap it on the device that it belongs to",
            owner.map_or(
                "a context that is not registered (see warp_device_from_context)".into(),
                |d| format!("\"{}\"", d.alias())
            ),
            device.alias()
        );
    }
    // The questions would break a capture, and on the legacy stream that of any blocking stream there.
    let capturing = is_capturing(driver, native).map_err(|f| device.error(driver, f))?;
    let id = if capturing {
        number_of_our_own()
    } else {
        driver.stream_id(native).map_err(|f| device.error(driver, f))?
    };
    let known = OnceLock::new();
    if !capturing {
        let _ = known.set(driver.stream_is_non_blocking(native).unwrap_or(false));
    }
    STREAMS.insert(Stream {
        device,
        native,
        id,
        owned: false,
        untracked,
        known_elsewhere: AtomicBool::new(true),
        non_blocking: known,
        priority: if native.is_special() { 0 } else { driver.stream_priority(native).unwrap_or(0) },
        end: Mutex::new(End::Running),
    })
}

/// A number for a stream that the driver cannot be asked about now; it counts from 1 and never comes here.
fn number_of_our_own() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Makes the handle stale. A stream of ours is destroyed when the calls inside have left; its work goes on. `leave` may refuse,
/// and what it gives keeps captures from beginning there meanwhile.
pub fn release<Alone>(handle: Handle, leave: impl FnOnce(&Entered<Stream>) -> Result<Alone>) -> Result<()> {
    let closed = log::after(|| {
        let stream = STREAMS.enter(handle)?;
        let _alone = leave(&stream)?;
        if stream.owned
            && let Ok(driver) = runtime::driver()
            && stream.enter_context(driver).is_ok()
            && stream.is_capturing(driver) == Ok(true)
        {
            return Err(in_capture(&stream, "destroying the stream"));
        }
        if current::is_default_of(&stream, handle) {
            fail!(
                InvalidArgument,
                "the default stream of \"{}\" belongs to the device and cannot be released",
                stream.device.alias()
            );
        }
        STREAMS.close(handle)
    })?;
    moment::passed();
    let others = !closed.owned && closed.device.is_cuda() && !closed.untracked;
    drop(closed);
    // Its owner may destroy it from now on, and other threads may still be looking whether it is done.
    if others && !runtime::is_forked() {
        STREAMS.wait_for_retirement(handle);
    }
    Ok(())
}

/// Keeps the stream from ending while the guard lives.
#[inline]
pub fn enter(handle: Handle) -> Result<Entered<Stream>> {
    STREAMS.enter(handle)
}

/// As `enter`, also of a stream that was released since a call of this thread has entered it.
pub fn enter_again(handle: Handle) -> Result<Entered<Stream>> {
    STREAMS.enter_again(handle)
}

/// The stream that a block holds; `None` once it was released.
#[inline]
pub fn enter_held(thread: &'static thread::Record, held: u32) -> Option<Entered<Stream>> {
    STREAMS.enter_held(thread, held)
}

/// The stream that a block holds, released or not.
///
/// # Safety
/// The caller has a hold on `held` for as long as the reference lives.
pub unsafe fn held(held: u32) -> &'static Stream {
    // SAFETY: the caller's promise.
    unsafe { STREAMS.held(held) }
}

/// The id of the stream that a live block holds.
#[inline]
pub fn id_of(held: u32) -> u64 {
    STREAMS.word_of(held)
}

/// Takes another hold.
///
/// # Safety
/// The caller has one, or knows of one that lasts for the length of the call.
pub unsafe fn hold_again(held: u32) {
    // SAFETY: the caller's promise.
    unsafe { STREAMS.hold_again(held) }
}

/// Gives back a hold.
///
/// # Safety
/// The caller has that hold, and has it no more afterwards.
#[inline]
pub unsafe fn release_hold(held: u32) {
    // SAFETY: the caller's promise.
    unsafe { STREAMS.release_hold(held) }
}

pub fn handle_of(stream: &Entered<Stream>) -> Handle {
    STREAMS.handle_of(stream.index())
}

/// Whether all work is done that was put on the device's streams through this library. A stream that is being
/// captured, which the question would break, or whose answer is not to be had, is not waited for.
pub fn all_idle(device: &Device, driver: &Driver) -> bool {
    STREAMS.all(|stream| {
        !std::ptr::eq(stream.device, device)
            || stream.untracked
            || is_surely_idle(driver, stream).unwrap_or(true)
            || match mark_end(device, driver, stream.native) {
                Ok(Some(event)) => {
                    let done = driver.event_is_done(event).unwrap_or(true);
                    give_event(device, event);
                    done
                }
                _ => true,
            }
    })
}

/// Calls `visit` with every stream of this library that takes part in a capture. Streams are asked for the number of
/// their capture only, since what another thread captures changes meanwhile. Special and untracked streams are not visited.
pub fn each_in_capture(driver: &Driver, id: u64, mut visit: impl FnMut(RawStream)) {
    STREAMS.all(|stream| {
        if stream.device.is_cuda()
            && !stream.untracked
            && !stream.native.is_special()
            && stream.device.context(driver).is_ok()
            && driver.capture_id(stream.native) == Ok(Some(id))
        {
            visit(stream.native);
        }
        true
    });
}

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe {
        STREAMS.mend_in_child();
        current::mend_in_child();
    }
}

/// Makes every stream's handle stale, at shutdown.
pub fn dismantle() {
    STREAMS.close_where(|_| true);
    moment::passed();
}
