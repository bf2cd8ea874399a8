//! Messages to the embedder. The library writes to no stream of its own: what it has to say beside a status
//! goes to the one callback that was registered, or nowhere.

use crate::error::{Result, fail};
use crate::fork::Lock;
use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// How grave a message is; a callback gets its level and everything graver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum Level {
    Error = 1,
    Warning = 2,
    Info = 3,
    Debug = 4,
}

/// `"C-unwind"` so that something foreign that unwinds reaches our shim and not undefined behaviour.
pub type Callback = unsafe extern "C-unwind" fn(user: *mut c_void, level: i32, message: *const c_char);

#[derive(Clone, Copy)]
struct Sink {
    callback: Callback,
    user: *mut c_void,
}

// SAFETY: the registrant promises that the callback with this `user` may be called from any thread.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

static SINK: Lock<Option<Sink>> = Lock::new(None);
/// The gravest level that is wanted, 0 for none: the cost of a message that nobody hears.
static WANTED: AtomicI32 = AtomicI32::new(0);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Where messages of this thread wait while it holds a lock; null when it holds none.
    static WAITING: Cell<*mut Vec<(Level, String)>> = const { Cell::new(ptr::null_mut()) };
}

/// Runs something that holds a lock of the library. Its messages are delivered when it is over, so that the
/// callback can call back in.
pub fn after<R>(locked: impl FnOnce() -> R) -> R {
    struct Waiting(Vec<(Level, String)>);
    impl Drop for Waiting {
        fn drop(&mut self) {
            WAITING.set(ptr::null_mut());
            self.0.drain(..).for_each(|(level, message)| emit(level, message));
        }
    }
    if !WAITING.get().is_null() {
        return locked();
    }
    let mut waiting = Waiting(Vec::new());
    WAITING.set(&raw mut waiting.0);
    let result = locked();
    drop(waiting);
    result
}

/// Whether this thread holds a lock of the library: then no other code is called.
pub fn is_under_a_lock() -> bool {
    !WAITING.get().is_null()
}

/// Registers the callback, or none. Returns when no call of the previous one is running any more.
pub fn set(callback: Option<Callback>, user: *mut c_void, level: i32) -> Result<()> {
    if INSIDE.get() {
        fail!(Busy, "the log callback cannot replace itself while it runs; do it after it has returned");
    }
    if callback.is_some() && !(Level::Error as i32..=Level::Debug as i32).contains(&level) {
        fail!(InvalidArgument, "{level} is not a log level; use WARP_LOG_ERROR (1) to WARP_LOG_DEBUG (4)");
    }
    // The writer's side waits for the calls in progress: that is the drain.
    let mut sink = SINK.write();
    WANTED.store(if callback.is_some() { level } else { 0 }, Ordering::Relaxed);
    *sink = callback.map(|callback| Sink { callback, user });
    Ok(())
}

/// After a fork, in the child: callbacks that other threads were in do not end here.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    // SAFETY: the caller's promise; what was registered is two words, and was whole while nobody wrote them.
    unsafe { SINK.keep_in_child(None) };
}

/// Whether anybody would hear a message of this level.
#[inline]
pub fn wanted(level: Level) -> bool {
    WANTED.load(Ordering::Relaxed) >= level as i32
}

/// Delivers the message. A message that the callback itself gives rise to is dropped: it would never end.
#[cold]
pub fn emit(level: Level, message: String) {
    if !wanted(level) || INSIDE.get() {
        return;
    }
    // SAFETY: null, or the vector of this thread's `after`, which is running and leaves it alone meanwhile.
    if let Some(waiting) = unsafe { WAITING.get().as_mut() } {
        waiting.push((level, message));
        return;
    }
    let Ok(message) = CString::new(message.replace('\0', " ")) else { return };
    let sink = SINK.read_recursive();
    let Some(sink) = sink.as_ref() else { return };
    INSIDE.set(true);
    crate::boundary::call_out("the log callback", None, || {
        // SAFETY: registered as valid with this `user` until unregistered, which waits for this call; the
        // message lasts for the call.
        unsafe { (sink.callback)(sink.user, level as i32, message.as_ptr()) }
    });
    INSIDE.set(false);
}

/// `log!(Warning, "…", …)`: the text is made only when somebody listens.
macro_rules! log {
    ($level:ident, $($message:tt)*) => {
        if $crate::log::wanted($crate::log::Level::$level) {
            $crate::log::emit($crate::log::Level::$level, format!($($message)*));
        }
    };
}
pub(crate) use log;
