//! Whether default requests of a GPU are served from its pool: what the thread's scopes say, else what the process chose.

use super::Device;
use crate::error::{Result, fail};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};

/// As many devices as one thread can overlay: each entry stands for an open scope, of which there are no more.
const OVERLAYS: usize = 64;

/// Whether any thread ever opened a scope. Most programs do not, and pay for none.
static EVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// How many entries there are.
    static COUNT: Cell<usize> = const { Cell::new(0) };
    /// A device by its lineage, and what holds there; plain numbers, so that nothing runs when a thread ends.
    static THREAD: RefCell<[(u16, bool); OVERLAYS]> = const { RefCell::new([(0, false); OVERLAYS]) };
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
    let count = COUNT.get();
    THREAD.with_borrow(|own| {
        own[..count].iter().find(|(index, _)| *index == device.lineage()).map(|(_, enabled)| *enabled)
    })
}

/// Has the calling thread find the pools of the device on or off, or as the process chose. Done by scopes alone.
pub fn override_mempool(device: &Device, enabled: Option<bool>) {
    // The thread itself sees this at once, and it is none of the others' business.
    EVER.store(true, Ordering::Relaxed);
    let count = COUNT.get();
    THREAD.with_borrow_mut(|own| {
        let known = own[..count].iter().position(|(index, _)| *index == device.lineage());
        match (known, enabled) {
            (Some(at), Some(enabled)) => own[at].1 = enabled,
            (Some(at), None) => {
                own[at] = own[count - 1];
                COUNT.set(count - 1);
            }
            (None, Some(enabled)) if count < OVERLAYS => {
                own[count] = (device.lineage(), enabled);
                COUNT.set(count + 1);
            }
            (None, _) => {}
        }
    });
}
