//! The memory behind arrays: shared by an array and all its views, and given back with the last of them.
#![forbid(unsafe_code)]

use crate::alloc::{self, FreeOptions, Kind, Rule};
use crate::boundary::call_out;
use crate::device::Device;
use crate::driver::MemoryClass;
use crate::error::{Result, fail};
use crate::log::log;
use crate::runtime;
use std::sync::atomic::{AtomicBool, Ordering};

/// Gives wrapped memory back to where it came from; it is told the capacity.
pub type Deleter = Box<dyn FnOnce(u64) + Send + Sync>;

/// Who gives the memory back.
pub enum Owner {
    /// Whoever lent it.
    Lender,
    /// This library, which allocated it.
    Library,
    Deleter(Deleter),
}

pub struct Storage {
    pub address: u64,
    /// Bytes from the address on.
    pub capacity: u64,
    pub device: &'static Device,
    /// The device in whose context the memory was made: for page-locked memory a GPU.
    home: &'static Device,
    pub kind: Kind,
    pub rule: Rule,
    owned: bool,
    has_deleter: bool,
    owner: Owner,
    /// The lender takes its memory back, deleter or not: the wrap did not come about.
    recalled: AtomicBool,
}

impl Storage {
    pub fn new(
        (device, home): (&'static Device, &'static Device),
        address: u64,
        capacity: u64,
        (kind, rule): (Kind, Rule),
        owner: Owner,
    ) -> Storage {
        Storage {
            address,
            capacity,
            device,
            home,
            kind,
            rule,
            owned: matches!(owner, Owner::Library),
            has_deleter: matches!(owner, Owner::Deleter(_)),
            owner,
            recalled: AtomicBool::new(false),
        }
    }

    /// Whether this library allocated it.
    pub fn is_owned(&self) -> bool {
        self.owned
    }

    pub fn has_deleter(&self) -> bool {
        self.has_deleter
    }

    /// Whether the block is the one that was allocated for it.
    pub fn is_in(&self, block: &alloc::Block) -> bool {
        block.base() == self.address && block.home().is_some_and(|home| std::ptr::eq(home, self.home))
    }

    /// An error when the memory is gone: with its context, or freed by its address. That may be somebody else's block
    /// by now, or look like ordinary host memory, which the CPU would touch.
    pub fn require_present(&self) -> Result<()> {
        self.home.require_present()?;
        let is_there = match alloc::find(self.address) {
            Some(block) => !self.owned || self.is_in(&block),
            None => !self.owned && !self.is_gone(),
        };
        if !is_there {
            fail!(
                UnknownPointer,
                "the memory of the array at {:#x} was freed by its address; all that is left is to release the array",
                self.address
            );
        }
        Ok(())
    }

    /// Whether wrapped memory was freed by now: a GPU's that the driver does not know any more. Of host memory nobody can tell,
    /// and a graph's comes and goes.
    fn is_gone(&self) -> bool {
        self.address != 0
            && matches!(self.kind, Kind::CudaDevice | Kind::CudaMempool | Kind::CudaManaged)
            && self.rule != Rule::GraphFixed
            && runtime::driver().is_ok_and(|driver| {
                driver.pointer_facts(self.address).is_ok_and(|facts| facts.class == MemoryClass::Unknown)
            })
    }

    /// The deleter will not be called.
    pub fn recall(&self) {
        self.recalled.store(true, Ordering::Relaxed);
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.owner, Owner::Lender) {
            Owner::Lender => {}
            Owner::Library => {
                let options = FreeOptions {
                    size: Some(self.capacity),
                    home: Some(self.home),
                    ..FreeOptions::default()
                };
                if let Err(error) = alloc::free(self.address, &options)
                    && !self.home.is_lost()
                {
                    log!(
                        Error,
                        "the memory of an array, {} bytes at {:#x}, was not freed: {error}",
                        self.capacity,
                        self.address
                    );
                }
            }
            Owner::Deleter(deleter) => {
                if !*self.recalled.get_mut() {
                    self.give_back(deleter);
                }
            }
        }
    }
}

impl Storage {
    fn give_back(&self, deleter: Deleter) {
        // What a forked child, or a process on its way out, would do to memory of a GPU is the parent's business,
        // or the driver's.
        if self.kind != Kind::Host && (runtime::is_forked() || runtime::is_exiting()) {
            return;
        }
        let driver = runtime::driver().ok();
        let before = driver.and_then(|driver| driver.current_context().ok());
        let current = driver
            .filter(|_| self.device.is_cuda() && !self.device.is_lost())
            .and_then(|driver| self.device.enter(driver).ok());
        call_out("the deleter of a wrapped array", None, || deleter(self.capacity));
        drop(current);
        // A deleter may have made another context current, and the guard knows only of its own change.
        if let (Some(driver), Some(before)) = (driver, before) {
            driver.put_back_context(before);
        }
    }
}
