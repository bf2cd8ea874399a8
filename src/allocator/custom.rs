//! Allocators of other code. Callbacks get what they are owed (a context, a thread whose captures they cannot break), and what
//! they answer is looked at before anybody uses it.
#![forbid(unsafe_code)]

use super::outside::{Outside, Told};
use super::source::{Exported, Request, Source, Statistics, Traits, tell_of_unusable};
use crate::error::{self, Error, Result, Status, error, fail};
use crate::kind::Kind;
use std::any::Any;
use std::ffi::CStr;

const ALLOCATE: &str = "the allocate callback";

/// The callbacks of an allocator, as the C face hands them on. A number is the status that a callback returned.
pub trait Callbacks: Send + Sync {
    fn allocate(&self, told: &Told<'_>) -> (i32, u64);
    fn deallocate(&self, address: u64, told: &Told<'_>) -> i32;
    /// What the library last said to this thread, if it was with this status.
    fn last_failure(&self, status: i32) -> Option<String>;
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

    /// What a callback said, with what a call in it had failed with, if that is what it passes on: `kept` failures there were
    /// for this thread before.
    #[cold]
    fn failed(&self, what: &str, status: i32, kept: u64, about: &str) -> Error {
        let name = self.name();
        let known = Status::of(status);
        let head = match known {
            Some(Status::OutOfMemory) if what == ALLOCATE => {
                format!("{what} of the allocator \"{name}\" is out of memory for {about}")
            }
            Some(known) => {
                let known = known.name().to_string_lossy();
                format!("{what} of the allocator \"{name}\" failed with {known} ({status}) for {about}")
            }
            None => format!(
                "{what} of the allocator \"{name}\" failed with {status}, which is no warp_status, for {about}; it has to return WARP_SUCCESS or a WARP_ERROR_… constant, also where its language throws"
            ),
        };
        let reason = if error::kept() == kept { None } else { self.callbacks.last_failure(status) };
        let message = match reason {
            None => head,
            // Asked for its own memory, it would say the same again at every depth.
            Some(reason) if reason.starts_with(&head) => reason,
            Some(reason) => format!("{head}: {reason}"),
        };
        match known {
            Some(Status::OutOfMemory) => Error::new(Status::OutOfMemory, message),
            _ => Error::new(Status::AllocatorFailed, message),
        }
    }
}

fn asked(request: &Request<'_>) -> String {
    format!("{} bytes on \"{}\"", request.size, request.device.alias())
}

impl Source for Custom {
    fn sort(&self) -> &'static str {
        "custom"
    }

    fn traits(&self) -> Traits {
        self.traits
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        let kept = error::kept();
        let called = self.call(ALLOCATE, request, |callbacks, told| callbacks.allocate(told))?;
        let Some((status, address)) = called else {
            fail!(
                AllocatorFailed,
                "the allocator \"{}\" was stopped, and serves nothing any more; install another one, or NULL for the built-in",
                self.name()
            );
        };
        if status != 0 {
            return Err(self.failed(ALLOCATE, status, kept, &asked(request)));
        }
        if address == 0 {
            fail!(
                AllocatorFailed,
                "the allocator \"{}\" gave NULL for {} bytes and said that it had succeeded; a callback puts the address into *out, or returns another status than WARP_SUCCESS",
                self.name(),
                request.size
            );
        }
        if address.checked_add(request.size).is_none() {
            tell_of_unusable(self.deallocate(address, request));
            fail!(
                AllocatorFailed,
                "the allocator \"{}\" gave {address:#x} for {} bytes, past the end of the address space; it has it back",
                self.name(),
                request.size
            );
        }
        if address % request.alignment != 0 {
            tell_of_unusable(self.deallocate(address, request));
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
        let kept = error::kept();
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
        let about = format!("{} bytes at {address:#x}", request.size);
        let said = self.failed("the deallocate callback", status, kept, &about);
        Err(error!(AllocatorFailed, "{said}; the block is forgotten and is not given to it again"))
    }

    fn trim(&self, request: &Request<'_>) -> Result<u64> {
        let kept = error::kept();
        match self.call("the trim callback", request, |callbacks, told| callbacks.trim(told))?.flatten() {
            None => Ok(0),
            Some((0, bytes)) => Ok(bytes),
            Some((status, _)) => Err(self.failed("the trim callback", status, kept, &asked(request))),
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
        let (what, kept) = ("the export_ipc callback", error::kept());
        match self.call(what, request, |callbacks, told| callbacks.export_ipc(address, told))?.flatten() {
            None => Ok(None),
            Some((0, exported)) => Ok(Some(exported)),
            Some((status, _)) => Err(self.failed(what, status, kept, &asked(request))),
        }
    }

    fn statistics(&self) -> Result<Option<Statistics>> {
        let (what, kept) = ("the get_statistics callback", error::kept());
        match self.outside.call_plainly(what, || self.callbacks.statistics())?.flatten() {
            None => Ok(None),
            Some((0, statistics)) => Ok(Some(statistics)),
            Some((status, _)) => {
                Err(error!(AllocatorFailed, "{}", self.failed(what, status, kept, "its account")))
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
