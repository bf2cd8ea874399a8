//! The current stream of a device: the thread's override, else the device's default stream, which is blocking
//! and made at the first use.

use super::{OnDemand, Options, STREAMS, Stream, create};
use crate::device::{self, Device, PerDevice};
use crate::error::{Result, fail};
use crate::handle::{Entered, Handle};
use crate::lock::Mutex;
use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

static DEFAULTS: PerDevice<OnDemand> = PerDevice::new();

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub(super) unsafe fn mend_in_child() {
    for default in device::ever_made().filter_map(|device| DEFAULTS.get(device)) {
        // SAFETY: the caller's promise.
        unsafe { default.mend_in_child() };
    }
}

/// As many devices as one thread can give a stream of its own.
const OVERRIDES: usize = 32;

thread_local! {
    /// Device index + 1 and stream handle; plain numbers, so that nothing runs when a thread ends.
    static THREAD: RefCell<[(u32, Handle); OVERRIDES]> = const { RefCell::new([(0, 0); OVERRIDES]) };
}

/// The stream that work of this thread on the device goes to when a call names none.
#[inline]
pub fn current(device: &'static Device) -> Result<Entered<Stream>> {
    if let Some(handle) = thread_override(device)
        && let Ok(stream) = STREAMS.enter(handle)
    {
        return Ok(stream);
    }
    DEFAULTS.get_or_make(device, OnDemand::new).enter(|| make_default(device))
}

/// The stream that the calling thread has given itself for the device, live or not.
#[inline]
pub fn thread_override(device: &Device) -> Option<Handle> {
    let key = u32::from(device.index()) + 1;
    THREAD
        .with_borrow(|own| own.iter().take_while(|(k, _)| *k != 0).find(|(k, _)| *k == key).map(|(_, h)| *h))
}

fn make_default(device: &'static Device) -> Result<Handle> {
    if device.is_cuda() {
        return create(device, Options::default());
    }
    STREAMS.insert(Stream {
        device,
        native: crate::driver::RawStream::NULL,
        id: 0,
        owned: false,
        untracked: false,
        known_elsewhere: AtomicBool::new(false),
        non_blocking: OnceLock::from(false),
        priority: 0,
        end: Mutex::new(super::End::Running),
    })
}

pub(super) fn is_default_of(stream: &Stream, handle: Handle) -> bool {
    DEFAULTS.get(stream.device()).is_some_and(|default| default.handle() == handle)
}

/// Gives the calling thread a stream of its own for the device; `None` goes back to the default.
pub fn set_current(device: &'static Device, stream: Option<Handle>) -> Result<()> {
    if let Some(handle) = stream {
        let stream = STREAMS.enter(handle)?;
        if !std::ptr::eq(stream.device(), device) {
            fail!(
                InvalidArgument,
                "the stream belongs to \"{}\" and cannot be the current one of \"{}\"; pass one of that device, or NULL for its default",
                stream.device().alias(),
                device.alias()
            );
        }
    }
    let key = u32::from(device.index()) + 1;
    // A copy is changed: entering a stream may end one, and its messages reach code that calls back in.
    let mut own = THREAD.with_borrow(|own| *own);
    // Entries stay in front of the first empty one; those of streams and devices that are gone make room.
    let mut kept = 0;
    for i in 0..OVERRIDES {
        let entry = own[i];
        if entry.0 != 0 && entry.0 != key && STREAMS.enter(entry.1).is_ok() {
            own[kept] = entry;
            kept += 1;
        }
    }
    own[kept..].fill((0, 0));
    match stream {
        Some(_) if kept == OVERRIDES => fail!(
            NotSupported,
            "a thread can have its own stream on {OVERRIDES} devices at once; reset one with a NULL stream"
        ),
        Some(handle) => own[kept] = (key, handle),
        None => {}
    }
    THREAD.with_borrow_mut(|now| *now = own);
    crate::moment::passed_here();
    Ok(())
}

/// Puts back what `thread_override` gave before. A stream that is gone by now leaves the device's default.
pub fn restore_override(device: &'static Device, stream: Option<Handle>) {
    if set_current(device, stream).is_err() {
        // Taking one out cannot fail.
        let _ = set_current(device, None);
    }
}
