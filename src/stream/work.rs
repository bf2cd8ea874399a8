//! Waiting for what the streams of a device were given so far.

use super::{BEGINS, Ended, RawStream, STREAMS};
use super::{give_event, is_capturing, is_surely_idle, mark_end, take_event};
use crate::device::Device;
use crate::driver::{Driver, Failure, RawEvent};
use crate::error::{Result, fail};
use crate::log;
use std::time::{Duration, Instant};

/// Waits for the work so far of the device's streams that this library knows, and of all blocking ones; nothing to do where there
/// is no context of ours. Streams that are being captured have none that runs. Each stream is waited for by an event, so no
/// capture is broken.
pub fn wait_for_work(device: &'static Device, driver: &'static Driver) -> Result<()> {
    if !device.has_context() {
        return Ok(());
    }
    match wait_there(device, driver) {
        // Its work went with its context.
        Err(_) if device.is_lost() => Ok(()),
        waited => waited,
    }
}

fn wait_there(device: &'static Device, driver: &'static Driver) -> Result<()> {
    let _entered = device.enter_relaxed(driver)?;
    let mut ends = Vec::new();
    let marked = mark_all(device, driver, &mut ends);
    let mut waited = Ok(());
    for event in ends {
        waited = match waited {
            Ok(()) if marked.is_ok() => driver.synchronize_event(event),
            before => before,
        };
        give_event(device, event);
    }
    marked?;
    waited.map_err(|f| device.error(driver, f))
}

/// An event behind the work of each stream. They are gathered first: streams are not kept from ending for long.
fn mark_all(device: &'static Device, driver: &'static Driver, ends: &mut Vec<RawEvent>) -> Result<()> {
    let failed = |f: Failure| device.error(driver, f);
    // The legacy stream comes after every blocking stream of the context, other code's among them.
    ends.extend(mark(device, driver, RawStream::LEGACY)?);
    let mut untracked = false;
    let mut marked = Ok(());
    STREAMS.all(|stream| {
        if !std::ptr::eq(stream.device, device) || stream.is_legacy() || stream.is_per_thread() {
            return true;
        }
        if stream.untracked {
            untracked = true;
            return true;
        }
        marked = match is_surely_idle(driver, stream) {
            Ok(true) => Ok(()),
            Ok(false) => mark(device, driver, stream.native).map(|end| ends.extend(end)),
            Err(f) => Err(failed(f)),
        };
        marked.is_ok()
    });
    marked?;
    // Those may be gone; what is waited for is their context.
    if untracked && let Ended::Event(event) = mark_context(device, driver).map_err(failed)? {
        ends.push(event);
    }
    Ok(())
}

/// An event behind all work of the native stream; none while that is being captured.
fn mark(device: &'static Device, driver: &'static Driver, native: RawStream) -> Result<Option<RawEvent>> {
    let failed = |f: Failure| device.error(driver, f);
    for _ in 0..2 {
        let end = mark_end(device, driver, native).map_err(failed)?;
        if end.is_some() || is_capturing(driver, native).map_err(failed)? {
            return Ok(end);
        }
        // No event was to be had, or a capture has just ended.
        give_event(device, take_event(device, driver)?);
    }
    fail!(DriverError, "work on \"{}\" could not be marked to be waited for", device.alias())
}

/// Waits for all work of the device's context; nothing to do where there is none. The driver would break any capture
/// in that context: those on streams of this library are seen, and those on blocking streams of others.
pub fn synchronize_device(device: &'static Device) -> Result<()> {
    if !device.is_cuda() {
        return Ok(());
    }
    let driver = device.require_cuda("synchronize")?;
    if !device.has_context() {
        return Ok(());
    }
    let _context = device.enter(driver)?;
    let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
    for _ in 0..2 {
        match mark_context(device, driver).map_err(|f| device.error(driver, f))? {
            // Waited for by an event, since a capture may begin meanwhile and is none of the event's business.
            Ended::Event(event) => {
                let waited = driver.synchronize_event(event).map_err(|f| device.error(driver, f));
                give_event(device, event);
                waited?;
                return settle_pools(device, driver);
            }
            Ended::Nothing => return Ok(()),
            Ended::NotYet if is_capturing_on(device, driver) => break,
            // No event was to be had, or a capture has just ended.
            Ended::NotYet => give_event(device, take_event(device, driver)?),
        }
    }
    fail!(
        IllegalInCapture,
        "waiting for all of \"{}\" would break the capture of a stream there; do it after the capture ends, or wait for one stream",
        device.alias()
    )
}

/// Has the driver see that the work is done: what pools do not keep goes back, and can be trimmed, only after a wait for the
/// context itself, which would break a capture. So no capture may begin meanwhile, and it is left out where one runs or the GPU
/// has got new work, for which nobody is to wait here.
pub fn settle_pools(device: &'static Device, driver: &'static Driver) -> Result<()> {
    let settled = log::after(|| {
        let _no_begin = BEGINS.read();
        if is_capturing_on(device, driver) {
            return Ok(());
        }
        let (Ok(context), Ok(event)) = (device.context(driver), take_event(device, driver)) else {
            return Ok(());
        };
        let idle = driver.record_context_event(context, event).is_ok() && is_done_soon(driver, event);
        give_event(device, event);
        if idle { driver.synchronize_current_context() } else { Ok(()) }
    });
    settled.map_err(|f| device.error(driver, f))
}

/// Whether an event of an idle GPU is reached, for which that takes a moment.
fn is_done_soon(driver: &Driver, event: RawEvent) -> bool {
    let start = Instant::now();
    loop {
        match driver.event_is_done(event) {
            Ok(false) if start.elapsed() < Duration::from_millis(1) => std::hint::spin_loop(),
            answer => return answer.unwrap_or(false),
        }
    }
}

/// Whether a capture is known to run in the device's context, which is current: on a stream of this library that may be
/// asked, or on a blocking stream of others.
fn is_capturing_on(device: &Device, driver: &Driver) -> bool {
    let captures = |native| is_capturing(driver, native).unwrap_or(false);
    !STREAMS
        .all(|stream| !std::ptr::eq(stream.device, device) || stream.untracked || !captures(stream.native))
        || captures(RawStream::LEGACY)
}

/// What to wait for so that all work so far of the device's context, which is current, is done, its untracked streams'
/// among it. Not yet while a capture is known to run there, which the driver would break.
pub fn mark_context(device: &Device, driver: &Driver) -> std::result::Result<Ended, Failure> {
    // The receiver of a message may begin a capture, so messages come when the lock is free.
    let marked = log::after(|| {
        let _no_begin = BEGINS.read();
        if is_capturing_on(device, driver) {
            return Ok(Ended::NotYet);
        }
        let (Ok(context), Ok(event)) = (device.context(driver), take_event(device, driver)) else {
            return Ok(Ended::NotYet);
        };
        let recorded = driver.record_context_event(context, event);
        recorded.map(|()| Ended::Event(event)).inspect_err(|_| give_event(device, event))
    });
    match marked {
        // Drivers before 12.5 have no such event. No capture may begin for so long, so one that does now is broken.
        Err(f) if f.is_missing() => driver.synchronize_current_context().map(|()| Ended::Nothing),
        marked => marked,
    }
}
