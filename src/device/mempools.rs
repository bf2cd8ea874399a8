//! Whether default requests of a GPU are served from its pool: what the thread's scopes say, else what the process chose.

use super::{Device, Overlay};
use crate::error::{Result, fail};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether any thread ever opened a scope. Most programs do not, and pay for none.
static EVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    static THREAD: Overlay<bool> = const { Overlay::new(false) };
}

impl Device {
    /// Whether default requests of the calling thread are served from the pool.
    #[inline]
    pub fn mempool_enabled(&self) -> bool {
        let enabled = self.mempool_enabled.load(Ordering::Relaxed);
        if EVER.load(Ordering::Relaxed) { mempool_override(self).unwrap_or(enabled) } else { enabled }
    }

    /// Chooses for every thread that no scope says otherwise for. Blocks that are there stay what they are.
    pub fn set_mempool_enabled(&self, enabled: bool) -> Result<()> {
        if enabled {
            self.require_mempools("switching memory pools on")?;
        }
        // Off it is anyway where there are none.
        self.mempool_enabled.store(enabled, Ordering::Relaxed);
        Ok(())
    }

    /// An error unless the device is a GPU with memory pools; `what` says what was asked of it.
    pub fn require_mempools(&self, what: &str) -> Result<()> {
        if !self.is_cuda() {
            fail!(InvalidArgument, "{what} needs a CUDA device, and \"{}\" is the CPU", self.alias());
        }
        if !self.facts().memory_pools {
            fail!(
                NotSupported,
                "{what}: \"{}\" has no memory pools; what names no kind is plain device memory there",
                self.alias()
            );
        }
        Ok(())
    }
}

/// What the calling thread's scopes say for the device, if they do.
pub fn mempool_override(device: &Device) -> Option<bool> {
    THREAD.with(|own| own.get(device))
}

/// Has the calling thread find the pools of the device on or off, or as the process chose. Done by scopes alone.
pub fn override_mempool(device: &Device, enabled: Option<bool>) {
    // The thread itself sees this at once, and it is none of the others' business.
    EVER.store(true, Ordering::Relaxed);
    THREAD.with(|own| own.set(device, enabled));
}
