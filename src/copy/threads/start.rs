//! Threads as the C library makes them. Those of Rust's own keep values with destructors for each thread, and pieces of memory
//! that the child of a fork would have lost.

use std::ffi::{CString, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

/// They call nothing that goes deep; a handler of a signal may, and what other libraries keep for each thread is in it too.
const STACK: usize = 256 << 10;

/// What a thread does.
pub trait Duty: Send + Sync + 'static {
    /// Must not unwind.
    fn serve(&self);
}

pub struct Thread<D: Duty> {
    given: Arc<Given<D>>,
    native: libc::pthread_t,
}

struct Given<D> {
    name: CString,
    duty: D,
}

impl<D: Duty> Thread<D> {
    /// A thread of that name that gets no signals. `None` when there is none to be had.
    pub fn start(name: String, duty: D) -> Option<Thread<D>> {
        let given = Arc::new(Given { name: CString::new(name).ok()?, duty });
        let argument: *const Given<D> = Arc::as_ptr(&given);
        let _blocked = SignalsBlocked::now();
        // A stack may be too small for what all libraries of the process keep for each thread; then it is the usual one.
        let native = create::<D>(argument, Some(STACK)).or_else(|| create::<D>(argument, None))?;
        Some(Thread { given, native })
    }

    pub fn duty(&self) -> &D {
        &self.given.duty
    }

    /// Waits for its end.
    pub fn join(self) {
        // SAFETY: a thread of ours, joined once. What it was given lives until then.
        unsafe { libc::pthread_join(self.native, ptr::null_mut()) };
    }
}

fn create<D: Duty>(argument: *const Given<D>, stack: Option<usize>) -> Option<libc::pthread_t> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut native = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: the attributes are initialised before they are used, and destroyed once; the thread's number is written when 0 comes
    // back. The argument lives until the thread is joined: threads that nobody joins are kept for good.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return None;
        }
        if let Some(stack) = stack {
            libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack);
        }
        let code = libc::pthread_create(
            native.as_mut_ptr(),
            attributes.as_ptr(),
            begin::<D>,
            argument.cast_mut().cast(),
        );
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (code == 0).then(|| native.assume_init())
    }
}

extern "C" fn begin<D: Duty>(argument: *mut c_void) -> *mut c_void {
    // SAFETY: what `start` gave, which lives as long as the thread.
    let given = unsafe { &*argument.cast_const().cast::<Given<D>>() };
    // SAFETY: the calling thread and a terminated name, at most 15 letters of which fit.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), given.name.as_ptr()) };
    given.duty.serve();
    ptr::null_mut()
}

/// While it lives the calling thread gets no signals, nor does a thread that it starts, ever. But for those of faults: memory
/// that a program watches by its faults is to be copied too.
struct SignalsBlocked {
    before: Option<libc::sigset_t>,
}

impl SignalsBlocked {
    fn now() -> SignalsBlocked {
        // SAFETY: plain numbers, which the calls write before they are read.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
                libc::sigdelset(&mut all, fault);
            }
            let blocked = libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) == 0;
            SignalsBlocked { before: blocked.then_some(before) }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // SAFETY: the mask that the thread had.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}
