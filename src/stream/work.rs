//! Waiting for what the streams of a device were given so far.

use super::{Ended, RawStream, STREAMS, Stream};
use super::{give_event, is_capturing, is_surely_idle, mark_context, mark_end, take_event};
use crate::device::Device;
use crate::driver::{Driver, Failure, RawEvent};
use crate::error::{Result, error};

/// Waits for the work so far of the device's streams that this library knows; nothing to do where there is no context of ours.
/// Streams that are being captured have none that runs. Each stream is waited for by an event, so no capture is broken.
pub fn wait_for_work(device: &'static Device, driver: &'static Driver) -> Result<()> {
    if !device.has_context() {
        return Ok(());
    }
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
    let mut untracked = false;
    let mut failed = None;
    STREAMS.all(|stream| {
        if !std::ptr::eq(stream.device, device) {
            return true;
        }
        if stream.untracked {
            untracked = true;
            return true;
        }
        match mark(stream, driver) {
            Ok(end) => ends.extend(end),
            Err(error) => failed = Some(error),
        }
        failed.is_none()
    });
    if let Some(error) = failed {
        return Err(error);
    }
    // Those may be gone; what is waited for is their context.
    if untracked
        && let Ended::Event(event) = mark_context(device, driver).map_err(|f| device.error(driver, f))?
    {
        ends.push(event);
    }
    Ok(())
}

/// An event behind all work of the stream, unless it has none.
fn mark(stream: &Stream, driver: &'static Driver) -> Result<Option<RawEvent>> {
    let device = stream.device;
    let failed = |f: Failure| device.error(driver, f);
    // Other threads' own default streams cannot be named here; the legacy stream comes after them all.
    let last = if stream.is_per_thread() { RawStream::LEGACY } else { stream.native };
    if last == stream.native && is_surely_idle(driver, stream).map_err(failed)? {
        return Ok(None);
    }
    if let Some(event) = mark_end(device, driver, last).map_err(failed)? {
        return Ok(Some(event));
    }
    if is_capturing(driver, last).map_err(failed)? {
        return Ok(None);
    }
    // No event was to be had; the driver says why.
    give_event(device, take_event(device, driver)?);
    match mark_end(device, driver, last).map_err(failed)? {
        None if !is_capturing(driver, last).map_err(failed)? => Err(error!(
            DriverError,
            "the work of the stream (id {}) of \"{}\" could not be marked to be waited for",
            stream.id(),
            device.alias()
        )),
        end => Ok(end),
    }
}
