//! Calls into code of others: what a callback finds, how deep callbacks may nest on a thread, and how they are stopped. For every
//! allocator that has callbacks.
#![forbid(unsafe_code)]

use super::source::{Request, flags};
use crate::boundary::call_out;
use crate::driver::{ContextGuard, Driver, RawContext, RelaxedCapture};
use crate::error::{Error, Result, error};
use crate::handle::Handle;
use crate::kind::Kind;
use crate::runtime;
use crate::thread;
use crate::{stream, tag};
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

/// The way to the callbacks of one allocator.
pub struct Outside {
    name: String,
    /// What its memory is, as callbacks are told.
    kind: Kind,
    /// Neither a context nor a capture mode is put around its callbacks.
    manages_context: bool,
    is_stopped: AtomicBool,
    process: u32,
}

impl Outside {
    pub fn new(name: String, kind: Kind, manages_context: bool) -> Outside {
        Outside {
            name,
            kind,
            manages_context,
            is_stopped: AtomicBool::new(false),
            process: std::process::id(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
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

    /// Before a callback is called, from within the allocator. `None` when none is any more.
    #[inline]
    fn enter(&self, what: &str) -> Result<Option<&'static thread::Record>> {
        let me = thread::mine();
        if me.callbacks() >= DEEPEST {
            return Err(self.too_deep(what));
        }
        Ok(if self.is_stopped.load(Ordering::Acquire) { None } else { Some(me) })
    }

    /// Calls back, from within the allocator. `None` when it was stopped.
    #[inline]
    pub fn call<R>(
        &self,
        what: &str,
        request: &Request<'_>,
        call: impl FnOnce(&Told<'_>) -> R,
    ) -> Result<Option<R>> {
        let Some(me) = self.enter(what)? else { return Ok(None) };
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
            native_stream: request.stream.map_or(0, |stream| stream.native_for_others().0.addr()),
            stream: request.stream.map_or(0, stream::handle_of),
            stream_id: request.stream.map_or(0, |stream| stream.id()),
            tag: tag::tag_name(request.tag),
            kind: self.kind,
        };
        let _inside = Inside::enter(me);
        Ok(Some(call_out(what, Some(&self.name), || call(&told))))
    }

    /// Calls back about nothing in particular. `None` when it was stopped.
    pub fn call_plainly<R>(&self, what: &str, call: impl FnOnce() -> R) -> Result<Option<R>> {
        let Some(me) = self.enter(what)? else { return Ok(None) };
        let _inside = Inside::enter(me);
        Ok(Some(call_out(what, Some(&self.name), call)))
    }

    #[cold]
    fn too_deep(&self, what: &str) -> Error {
        error!(
            AllocatorFailed,
            "callbacks of allocators are {DEEPEST} deep on this thread, now {what} of \"{}\": an allocator must not ask for memory that it serves itself; use warp_allocator_allocate on the allocator below",
            self.name
        )
    }

    /// No callback is called any more. Whoever asks waits for those that run.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    /// Calls the destroy callback at the end, unless its code may be gone or is the parent's to call.
    pub fn end(&mut self, destroy: impl FnOnce()) {
        let is_childs = runtime::is_forked() && self.process != std::process::id();
        if *self.is_stopped.get_mut() || is_childs || runtime::is_exiting() {
            return;
        }
        let _inside = Inside::enter(thread::mine());
        call_out("the destroy callback", Some(&self.name), destroy);
    }
}
