//! Allocators of other code. Callbacks get what they are owed (a context, a thread whose captures they cannot break), and what
//! they answer is looked at before anybody uses it.
#![forbid(unsafe_code)]

use super::outside::{Outside, Told};
use super::source::{Exported, Request, Source, Statistics, Traits};
use crate::error::{Error, Result, Status, error, fail};
use crate::kind::Kind;
use crate::log::log;
use std::any::Any;
use std::ffi::CStr;

/// The callbacks of an allocator, as the C face hands them on. A number is the status that a callback returned.
pub trait Callbacks: Send + Sync {
    fn allocate(&self, told: &Told<'_>) -> (i32, u64);
    fn deallocate(&self, address: u64, told: &Told<'_>) -> i32;
    fn destroy(&self);
    /// `None` when there is no such callback.
    fn trim(&self, told: &Told<'_>) -> Option<(i32, u64)>;
    fn records_streams(&self) -> bool;
    /// As `trim`.
    fn record_stream(&self, address: u64, told: &Told<'_>) -> Option<i32>;
    /// As `trim`.
    fn export_ipc(&self, address: u64, told: &Told<'_>) -> Option<(i32, Exported)>;
    /// As `trim`.
    fn statistics(&self) -> Option<(i32, Statistics)>;
}

pub struct Custom {
    callbacks: Box<dyn Callbacks>,
    traits: Traits,
    outside: Outside,
}

impl Custom {
    pub fn new(callbacks: Box<dyn Callbacks>, name: &CStr, traits: Traits, manages_context: bool) -> Custom {
        let kind = traits.kind.unwrap_or(Kind::Unknown);
        let outside = Outside::new(name.to_string_lossy().into_owned(), kind, manages_context);
        Custom { callbacks, traits, outside }
    }

    fn name(&self) -> &str {
        self.outside.name()
    }

    /// `None` when it was stopped.
    #[inline]
    fn call<R>(
        &self,
        what: &str,
        request: &Request<'_>,
        call: impl FnOnce(&dyn Callbacks, &Told<'_>) -> R,
    ) -> Result<Option<R>> {
        self.outside.call(what, request, |told| call(self.callbacks.as_ref(), told))
    }

    #[cold]
    fn failed(&self, what: &str, status: i32, request: &Request<'_>) -> Error {
        let asked = format!("{} bytes for \"{}\"", request.size, request.device.alias());
        let name = self.name();
        match Status::of(status) {
            Some(Status::OutOfMemory) => {
                error!(OutOfMemory, "the allocator \"{name}\" is out of memory: {what} of {asked}")
            }
            Some(known) => {
                error!(
                    AllocatorFailed,
                    "{what} of the allocator \"{name}\" failed with {known:?} ({status}): {asked}"
                )
            }
            None => {
                error!(AllocatorFailed, "{what} of the allocator \"{name}\" failed with {status}: {asked}")
            }
        }
    }

    /// What it gave is its own again: nobody can use it.
    fn give_back_unusable(&self, address: u64, request: &Request<'_>) {
        if let Err(error) = self.deallocate(address, request) {
            log!(Error, "what cannot be used was not taken back: {error}");
        }
    }
}

impl Source for Custom {
    fn sort(&self) -> &'static str {
        "custom"
    }

    fn traits(&self) -> Traits {
        self.traits
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        let called =
            self.call("the allocate callback", request, |callbacks, told| callbacks.allocate(told))?;
        let Some((status, address)) = called else {
            fail!(
                AllocatorFailed,
                "the allocator \"{}\" was stopped, and serves nothing any more; install another one, or NULL for the built-in",
                self.name()
            );
        };
        if status != 0 {
            return Err(self.failed("the allocate callback", status, request));
        }
        if address == 0 {
            fail!(
                AllocatorFailed,
                "the allocator \"{}\" gave NULL for {} bytes and said that it had succeeded; a callback returns a status other than WARP_SUCCESS when it fails",
                self.name(),
                request.size
            );
        }
        if address.checked_add(request.size).is_none() {
            self.give_back_unusable(address, request);
            fail!(
                AllocatorFailed,
                "the allocator \"{}\" gave {address:#x} for {} bytes, past the end of the address space; it has it back",
                self.name(),
                request.size
            );
        }
        if address % request.alignment != 0 {
            self.give_back_unusable(address, request);
            fail!(
                AllocatorFailed,
                "the allocator \"{}\" gave {address:#x}, which is not aligned to {} as was asked; it has it back",
                self.name(),
                request.alignment
            );
        }
        Ok(address)
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        let called = self
            .call("the deallocate callback", request, |callbacks, told| callbacks.deallocate(address, told))
            // What was not asked has not failed: the memory is as it was.
            .map_err(|mut error| {
                if error.status == Status::AllocatorFailed {
                    error.status = Status::Busy;
                }
                error
            })?;
        let Some(status) = called.filter(|status| *status != 0) else { return Ok(()) };
        Err(error!(
            AllocatorFailed,
            "the deallocate callback of the allocator \"{}\" failed with {status} for {} bytes at {address:#x}; the block is forgotten and is not given to it again",
            self.name(),
            request.size
        ))
    }

    fn trim(&self, request: &Request<'_>) -> Result<u64> {
        match self.call("the trim callback", request, |callbacks, told| callbacks.trim(told))?.flatten() {
            None => Ok(0),
            Some((0, bytes)) => Ok(bytes),
            Some((status, _)) => Err(self.failed("the trim callback", status, request)),
        }
    }

    fn records_streams(&self) -> bool {
        self.callbacks.records_streams()
    }

    fn record_stream(&self, address: u64, request: &Request<'_>) -> Result<bool> {
        let recorded = self.call("the record_stream callback", request, |callbacks, told| {
            callbacks.record_stream(address, told)
        })?;
        // Where it cannot, the work is waited for.
        Ok(recorded.flatten() == Some(0))
    }

    fn export_ipc(&self, address: u64, request: &Request<'_>) -> Result<Option<Exported>> {
        let what = "the export_ipc callback";
        match self.call(what, request, |callbacks, told| callbacks.export_ipc(address, told))?.flatten() {
            None => Ok(None),
            Some((0, exported)) => Ok(Some(exported)),
            Some((status, _)) => Err(self.failed(what, status, request)),
        }
    }

    fn statistics(&self) -> Result<Option<Statistics>> {
        let what = "the get_statistics callback";
        match self.outside.call_plainly(what, || self.callbacks.statistics())?.flatten() {
            None => Ok(None),
            Some((0, statistics)) => Ok(Some(statistics)),
            Some((status, _)) => {
                fail!(AllocatorFailed, "{what} of \"{}\" failed with {status}", self.name())
            }
        }
    }

    fn stop(&self) {
        self.outside.stop();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Custom {
    fn drop(&mut self) {
        self.outside.end(|| self.callbacks.destroy());
    }
}
