//! Numbers of threads, where one handle stands for a stream of each: the CPU's, and their own default streams.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number for the calling thread, never that of another thread of this process.
pub(super) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// Threads beyond this number are not told apart by their marks.
const UNKNOWN_THREAD: u32 = u32::MAX;

/// The calling thread's number for records: never 0.
pub fn thread_mark() -> u32 {
    u32::try_from(thread_number()).unwrap_or(UNKNOWN_THREAD)
}

/// Whether the mark is surely the calling thread's.
pub fn is_this_thread(mark: u32) -> bool {
    mark == thread_mark() && mark != UNKNOWN_THREAD
}
