//! Which device a call means that names none: the thread's choice, else the process's.

use super::Device;
use crate::error::Result;
use crate::handle::Handle;
use crate::{handle, moment, runtime};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// 0 until somebody chooses: then it is worked out from what there is.
static DEFAULT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD: Cell<Handle> = const { Cell::new(0) };
}

pub(super) fn reset() {
    DEFAULT.store(0, Ordering::Relaxed);
    moment::passed();
}

/// The device for this thread: its own choice while that lives, else the process's.
#[inline]
pub fn default_device() -> Result<&'static Device> {
    runtime::require_live()?;
    let own = THREAD.get();
    if own != 0
        && let Ok(device) = super::from_handle(own)
    {
        return Ok(device);
    }
    let chosen = DEFAULT.load(Ordering::Relaxed);
    if chosen != 0
        && let Ok(device) = super::from_handle(chosen)
    {
        return Ok(device);
    }
    work_out(chosen)
}

/// The device of the context that is current, else the first GPU, else the CPU. Takes the place of what was chosen
/// and is gone, unless somebody chooses meanwhile.
#[cold]
fn work_out(gone: Handle) -> Result<&'static Device> {
    let current = runtime::driver_of_gpus()
        .ok()
        .and_then(|driver| Some((driver, driver.current_context().ok().filter(|c| !c.is_null())?)))
        .and_then(|(driver, context)| super::of_context(driver, context));
    let device = match current {
        Some(device) => device,
        None => {
            let all = super::all();
            match all.iter().find(|d| d.is_cuda() && runtime::driver().is_ok()).or(all.first()) {
                Some(device) => *device,
                None => return Err(handle::invalid(handle::Tag::Device, 0)),
            }
        }
    };
    if !runtime::is_forked() {
        let worked_out = device.handle();
        if let Err(chosen) = DEFAULT.compare_exchange(gone, worked_out, Ordering::Relaxed, Ordering::Relaxed)
            && let Ok(chosen) = super::from_handle(chosen)
        {
            return Ok(chosen);
        }
    }
    Ok(device)
}

/// Chooses for every thread that has not chosen for itself.
pub fn set_default(device: &Device) {
    DEFAULT.store(device.handle(), Ordering::Relaxed);
    moment::passed();
}

/// Chooses for the calling thread; `None` goes back to the process's choice.
pub fn set_for_thread(device: Option<&Device>) {
    THREAD.set(device.map_or(0, Device::handle));
    moment::passed_here();
}

/// The handle of the calling thread's own choice, live or not; 0 for none.
pub fn choice_of_thread() -> Handle {
    THREAD.get()
}

/// Puts back what `choice_of_thread` gave before. A device that is gone by now counts as no choice.
pub fn restore_choice(choice: Handle) {
    THREAD.set(choice);
    moment::passed_here();
}

/// The calling thread's own choice, if it has one.
pub fn for_thread() -> Option<&'static Device> {
    let own = THREAD.get();
    if own == 0 { None } else { super::from_handle(own).ok() }
}
