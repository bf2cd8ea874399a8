//! The edge to foreign code: nothing unwinds over it in either direction. Calls that come in are caught in
//! `ffi`; calls that go out to a callback pass through here.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls foreign code. Something that unwinds out of it (a C++ exception, a panic of another Rust library)
/// cannot be carried on and cannot be swallowed: its owner's state is unknown. The process ends with a
/// message.
pub fn call_out<R>(what: &str, call: impl FnOnce() -> R) -> R {
    // Rust's runtime ends the process at what it did not throw itself, in words of its own, so the message is given while it
    // unwinds. Nothing unwinds that nobody seems to catch.
    let watched = || {
        let unwound = Unwound(what);
        let value = call();
        std::mem::forget(unwound);
        value
    };
    match catch_unwind(AssertUnwindSafe(watched)) {
        Ok(value) => value,
        Err(_) => abort(what),
    }
}

/// Dropped by what unwinds out of a callback, and by nothing else.
struct Unwound<'a>(&'a str);

impl Drop for Unwound<'_> {
    fn drop(&mut self) {
        abort(self.0)
    }
}

#[cold]
fn abort(what: &str) -> ! {
    let message = format!(
        "warpmem: {what} let an exception escape; callbacks must catch everything and return a status\n"
    );
    // SAFETY: writes the bytes of `message`. The one place that writes to stderr, since nothing follows it.
    unsafe { libc::write(2, message.as_ptr().cast(), message.len()) };
    std::process::abort()
}
