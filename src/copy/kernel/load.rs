//! The kernels in the contexts of devices: loaded at first use, and there for as long as the context is.
//!
//! They are never unloaded, which would wait for all work of the context and break captures there. A later life of the library
//! goes on with them.

use crate::device::{Device, PerDevice};
use crate::driver::{Driver, Failure, RawContext, RawFunction};
use crate::lock::Mutex;
use std::ffi::CStr;
use std::sync::OnceLock;

/// What the driver compiles.
#[cfg(test)]
pub const TEXT: &str = include_str!("../copy.ptx");

const ENDED: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("../copy.ptx"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("the text has a NUL"),
};

pub struct Kernels {
    pub copy_few: RawFunction,
    pub copy_rows: RawFunction,
    pub copy_any: RawFunction,
    pub copy_tile: RawFunction,
    pub copy_wide_tile: RawFunction,
    pub fill_short: RawFunction,
    pub fill_rest: RawFunction,
}

impl Kernels {
    /// Loads them into the current context.
    pub fn load(driver: &Driver) -> Result<Kernels, Failure> {
        let module = driver.load_module(ENDED)?;
        Ok(Kernels {
            copy_few: driver.find_function(module, c"copy_few")?,
            copy_rows: driver.find_function(module, c"copy_rows")?,
            copy_any: driver.find_function(module, c"copy_any")?,
            copy_tile: driver.find_function(module, c"copy_tile")?,
            copy_wide_tile: driver.find_function(module, c"copy_wide_tile")?,
            fill_short: driver.find_function(module, c"fill_short")?,
            fill_rest: driver.find_function(module, c"fill_rest")?,
        })
    }
}

#[derive(Default)]
pub(super) struct Loading {
    kernels: OnceLock<Kernels>,
    /// One thread loads; with the failure of a driver that will never run them.
    refused: Mutex<Option<Failure>>,
}

/// A device is one context: what died with it is never asked for again.
static LOADED: PerDevice<Loading> = PerDevice::new();

/// The kernels in the device's context, which there is. The thread's capture mode is relaxed.
#[inline]
pub fn kernels(driver: &Driver, device: &Device) -> Result<&'static Kernels, Failure> {
    let loading = LOADED.get_or_make(device, Loading::default);
    match loading.kernels.get() {
        Some(kernels) => Ok(kernels),
        None => load(driver, device.context_if_any(), loading),
    }
}

#[cold]
pub(super) fn load(
    driver: &Driver,
    context: RawContext,
    loading: &'static Loading,
) -> Result<&'static Kernels, Failure> {
    let mut refused = loading.refused.lock();
    if let Some(kernels) = loading.kernels.get() {
        return Ok(kernels);
    }
    if let Some(failure) = *refused {
        return Err(failure);
    }
    // Functions of another context would be the device's for good.
    let _current = driver.enter(context)?;
    let loaded = Kernels::load(driver);
    if let Err(failure) = loaded
        && failure.is_program_refused()
    {
        *refused = Some(failure);
    }
    loaded.map(|kernels| loading.kernels.get_or_init(|| kernels))
}
