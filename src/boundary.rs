//! The edge to foreign code: nothing unwinds over it in either direction. Calls that come in are caught in
//! `ffi`; calls that go out to a callback pass through here.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls foreign code. Something that unwinds out of it (a C++ exception, the end of its thread, a panic of another Rust
/// library) cannot be carried on and cannot be swallowed: its owner's state is unknown. The process ends with a
/// message. `whose` is the name of the allocator that the callback is of, where it is of one.
pub fn call_out<R>(what: &str, whose: Option<&str>, call: impl FnOnce() -> R) -> R {
    // Rust's runtime ends the process at what it did not throw itself, in words of its own, so the message is given while it
    // unwinds. Nothing unwinds that nobody seems to catch.
    let watched = || {
        let unwound = Unwound { what, whose };
        let value = call();
        std::mem::forget(unwound);
        value
    };
    match catch_unwind(AssertUnwindSafe(watched)) {
        Ok(value) => value,
        Err(_) => abort(what, whose),
    }
}

/// Dropped by what unwinds out of a callback, and by nothing else.
struct Unwound<'a> {
    what: &'a str,
    whose: Option<&'a str>,
}

impl Drop for Unwound<'_> {
    fn drop(&mut self) {
        abort(self.what, self.whose)
    }
}

#[cold]
fn abort(what: &str, whose: Option<&str>) -> ! {
    let (of, before) = match whose {
        Some(name) => (
            format!(" (of the allocator \"{name}\")"),
            ", and an interpreter that ends stops its allocators before, with warp_allocator_stop",
        ),
        None => (String::new(), ""),
    };
    let message = format!(
        "warpmem: {what} let an exception escape, or its thread ended in it{of}; callbacks must catch everything and return a status{before}\n"
    );
    // SAFETY: writes the bytes of `message`. The one place that writes to stderr, since nothing follows it.
    unsafe { libc::write(2, message.as_ptr().cast(), message.len()) };
    std::process::abort()
}
