//! Events for our own bookkeeping, kept for reuse. An event belongs to a context, so each device has its own.

use crate::device::{Device, PerDevice};
use crate::driver::{Driver, RawEvent};
use crate::error::Result;
use crate::lock::Mutex;

static SPARE: PerDevice<Mutex<Vec<RawEvent>>> = PerDevice::new();

/// An event of the device's context, which is current.
pub fn take_event(device: &Device, driver: &Driver) -> Result<RawEvent> {
    let spare = SPARE.get(device).and_then(|spare| spare.lock().pop());
    match spare {
        Some(event) => Ok(event),
        None => driver.create_event().map_err(|f| device.error(driver, f)),
    }
}

/// Keeps the event for the next taker. Those of a context that died went with it.
pub fn give_event(device: &Device, event: RawEvent) {
    if !device.is_lost() {
        SPARE.get_or_make(device, Mutex::default).lock().push(event);
    }
}
