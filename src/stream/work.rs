//! Waiting for what the streams of a device were given so far.

use super::{Ended, RawStream, STREAMS};
use super::{give_event, is_capturing, is_surely_idle, mark_context, mark_end, take_event};
use crate::device::Device;
use crate::driver::{Driver, Failure, RawEvent};
use crate::error::{Result, fail};

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
