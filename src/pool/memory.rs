//! What pools hold, what they keep, and giving it back. The driver is asked each time, since other code has the same pools.

use super::lives::{NAMES, relaxed};
use super::{Pool, PoolMemory};
use crate::device::Device;
use crate::driver::{Driver, Failure};
use crate::error::{Result, fail};

impl Pool {
    /// Asks the driver something of the pool, or has it change something. No context is needed.
    pub(super) fn ask<R>(
        &self,
        what: &str,
        ask: impl FnOnce(&Driver) -> std::result::Result<R, Failure>,
    ) -> Result<R> {
        let device = self.device();
        let driver = device.require_cuda(what)?;
        relaxed(driver, || ask(driver))
            .map_err(|f| device.error(driver, f).context(format_args!("{what} ({})", self.name())))
    }

    pub fn memory(&self) -> Result<PoolMemory> {
        self.ask("the memory of a pool", |driver| driver.pool_memory(self.native()))
    }

    /// Brings the high marks down to what is so now.
    pub fn reset_high(&self) -> Result<()> {
        self.ask("the high marks of a pool", |driver| driver.reset_pool_high(self.native()))
    }

    /// Gives back what is not in use, all but `keep` bytes.
    pub fn trim(&self, keep: u64) -> Result<()> {
        self.ask("trimming a pool", |driver| driver.trim_pool(self.native(), keep as usize))
    }

    pub fn release_threshold(&self) -> Result<u64> {
        self.ask("the release threshold of a pool", |driver| driver.pool_threshold(self.native()))
    }

    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        self.ask("the release threshold of a pool", |driver| driver.set_pool_threshold(self.native(), bytes))
    }

    /// As part of the memory of the device.
    pub fn set_release_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            fail!(
                InvalidArgument,
                "{fraction} is no part of the memory of \"{}\"; use 0 to 1, or warp_mempool_set_release_threshold() for bytes",
                self.device().alias()
            );
        }
        let total = self.device().facts().total_memory;
        self.set_release_threshold((fraction * total as f64) as u64)
    }
}

/// Runs `visit` with every pool of the device's GPU that a handle or a device names, each once, and kept meanwhile.
fn each_on(device: &Device, mut visit: impl FnMut(&Pool)) {
    let mut seen = Vec::new();
    NAMES.all(|named| {
        if !seen.contains(&named.pool.slot()) && named.pool.is_on(device) {
            seen.push(named.pool.slot());
            visit(named.pool);
        }
        true
    });
}

/// Gives back what pools of the device keep and do not use.
pub fn trim_all(driver: &Driver, device: &Device) {
    each_on(device, |pool| {
        let _ = driver.trim_pool(pool.native(), 0);
    });
}

/// What pools of the device use and reserve: a change shows that something came free.
pub fn usage(driver: &Driver, device: &Device) -> Vec<Option<(u64, u64)>> {
    let mut all = Vec::new();
    each_on(device, |pool| all.push(driver.pool_usage(pool.native()).ok()));
    all
}
