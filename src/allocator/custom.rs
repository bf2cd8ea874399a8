//! Allocators of other code. Callbacks get what they are owed (a context, a thread whose captures they cannot break), and what
//! they answer is looked at before anybody uses it.
#![forbid(unsafe_code)]

use super::source::{Exported, Request, Source, Statistics, Traits, flags};
use crate::boundary::call_out;
use crate::driver::{ContextGuard, Driver, RawContext, RelaxedCapture};
use crate::error::{Error, Result, Status, error, fail};
use crate::handle::Handle;
use crate::kind::Kind;
use crate::log::log;
use crate::runtime;
use crate::thread;
use crate::{stream, tag};
use std::any::Any;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a callback is told.
pub struct Told<'a> {
    pub request: &'a Request<'a>,
    pub native_context: usize,
    pub native_stream: usize,
    pub stream: Handle,
    pub stream_id: u64,
    pub tag: Option<&'static CStr>,
    pub kind: Kind,
}

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
    name: String,
    traits: Traits,
    /// Neither a context nor a capture mode is put around its callbacks.
    manages_context: bool,
    is_stopped: AtomicBool,
    process: u32,
}

/// As many callbacks as one thread can be inside of at once: an allocator that asks for memory that it serves itself would
/// never come to an end.
const DEEPEST: u32 = 10;

/// Whether a callback of an allocator is running on this thread: it may hold locks that another one wants.
pub fn is_inside_a_callback() -> bool {
    thread::mine().callbacks() != 0
}

/// A callback that is running on this thread.
struct Inside(&'static thread::Record);

impl Inside {
    #[inline]
    fn enter(me: &'static thread::Record) -> Inside {
        me.set_callbacks(me.callbacks() + 1);
        Inside(me)
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        self.0.set_callbacks(self.0.callbacks() - 1);
    }
}

/// What a callback finds, and what is put back after it, in this order.
struct Around {
    _relaxed: Option<RelaxedCapture<'static>>,
    _entered: Option<ContextGuard<'static>>,
    /// Whatever the callback leaves current, this is so again.
    _before: Before,
}

struct Before(&'static Driver, RawContext);

impl Drop for Before {
    fn drop(&mut self) {
        self.0.put_back_context(self.1);
    }
}

impl Custom {
    pub fn new(callbacks: Box<dyn Callbacks>, name: &CStr, traits: Traits, manages_context: bool) -> Custom {
        let name = name.to_string_lossy().into_owned();
        Custom {
            callbacks,
            name,
            traits,
            manages_context,
            is_stopped: AtomicBool::new(false),
            process: std::process::id(),
        }
    }

    /// What is put around a callback, and the context that it is told of.
    fn around(&self, request: &Request<'_>) -> Result<(Around, usize)> {
        let device = request.device;
        let driver = runtime::driver()?;
        let before = driver.current_context().map_err(|f| driver.error(f))?;
        if request.flags & flags::DEVICE_LOST != 0 {
            // No context: a driver call with an address of the dead one is an error then, and not the free of another block.
            driver.put_back_context(RawContext::NULL);
            return Ok((Around { _relaxed: None, _entered: None, _before: Before(driver, before) }, 0));
        }
        let context = device.context(driver)?;
        let entered = driver.enter(context).map_err(|f| device.error(driver, f))?;
        let relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
        let around =
            Around { _relaxed: Some(relaxed), _entered: Some(entered), _before: Before(driver, before) };
        Ok((around, context.0.addr()))
    }

    /// Calls back, from within the allocator. `None` when it was stopped.
    #[inline]
    fn call<R>(
        &self,
        what: &str,
        request: &Request<'_>,
        call: impl FnOnce(&dyn Callbacks, &Told<'_>) -> R,
    ) -> Result<Option<R>> {
        let me = thread::mine();
        if me.callbacks() >= DEEPEST {
            return Err(self.too_deep(what));
        }
        if self.is_stopped.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut _around = None;
        let mut native_context = 0;
        if request.device.is_cuda() {
            if self.manages_context && request.flags & flags::DEVICE_LOST == 0 {
                native_context = request.device.context_if_any().0.addr();
            } else {
                let (around, context) = self.around(request)?;
                _around = Some(around);
                native_context = context;
            }
        }
        let told = Told {
            request,
            native_context,
            native_stream: request.stream.map_or(0, |stream| stream.native().0.addr()),
            stream: request.stream.map_or(0, stream::handle_of),
            stream_id: request.stream.map_or(0, |stream| stream.id()),
            tag: tag::tag_name(request.tag),
            kind: self.traits.kind.unwrap_or(Kind::Unknown),
        };
        let _inside = Inside::enter(me);
        Ok(Some(call_out(what, || call(self.callbacks.as_ref(), &told))))
    }

    #[cold]
    fn too_deep(&self, what: &str) -> Error {
        error!(
            AllocatorFailed,
            "callbacks of allocators are {DEEPEST} deep on this thread, now {what} of \"{}\": an allocator must not ask for memory that it serves itself; use warp_allocator_allocate on the allocator below",
            self.name
        )
    }

    #[cold]
    fn failed(&self, what: &str, status: i32, request: &Request<'_>) -> Error {
        let asked = format!("{} bytes for \"{}\"", request.size, request.device.alias());
        let name = &self.name;
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
                self.name
            );
        };
        if status != 0 {
            return Err(self.failed("the allocate callback", status, request));
        }
        if address == 0 {
            fail!(
                AllocatorFailed,
                "the allocator \"{}\" gave NULL for {} bytes and said that it had succeeded; a callback returns a status other than WARP_SUCCESS when it fails",
                self.name,
                request.size
            );
        }
        if address.checked_add(request.size).is_none() {
            fail!(
                AllocatorFailed,
                "the allocator \"{}\" gave {address:#x} for {} bytes, past the end of the address space",
                self.name,
                request.size
            );
        }
        if address % request.alignment != 0 {
            self.give_back_unusable(address, request);
            fail!(
                AllocatorFailed,
                "the allocator \"{}\" gave {address:#x}, which is not aligned to {} as was asked; it has it back",
                self.name,
                request.alignment
            );
        }
        Ok(address)
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        let called = self.call("the deallocate callback", request, |callbacks, told| {
            callbacks.deallocate(address, told)
        })?;
        let Some(status) = called.filter(|status| *status != 0) else { return Ok(()) };
        Err(error!(
            AllocatorFailed,
            "the deallocate callback of the allocator \"{}\" failed with {status} for {} bytes at {address:#x}; the block is forgotten and is not given to it again",
            self.name,
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
        let me = thread::mine();
        if me.callbacks() >= DEEPEST {
            return Err(self.too_deep("the get_statistics callback"));
        }
        if self.is_stopped.load(Ordering::Acquire) {
            return Ok(None);
        }
        let _inside = Inside::enter(me);
        match call_out("the get_statistics callback", || self.callbacks.statistics()) {
            None => Ok(None),
            Some((0, statistics)) => Ok(Some(statistics)),
            Some((status, _)) => {
                fail!(
                    AllocatorFailed,
                    "the get_statistics callback of \"{}\" failed with {status}",
                    self.name
                )
            }
        }
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Custom {
    fn drop(&mut self) {
        let is_childs = runtime::is_forked() && self.process != std::process::id();
        if *self.is_stopped.get_mut() || is_childs || runtime::is_exiting() {
            return;
        }
        let _inside = Inside::enter(thread::mine());
        call_out("the destroy callback", || self.callbacks.destroy());
    }
}
