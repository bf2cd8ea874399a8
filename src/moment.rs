//! When what a thread remembers of an answer is out of date: which device, stream and allocator a call means. Those who change such
//! things say so here, after the change; those who remember keep the moment from before they asked.
#![forbid(unsafe_code)]

use crate::thread;
use std::sync::atomic::{AtomicU64, Ordering};

static CHANGES: AtomicU64 = AtomicU64::new(1);

/// How far the changes have come, of the process and of the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    process: u64,
    thread: u64,
}

/// The present.
#[inline(always)]
pub fn now(me: &thread::Record) -> Moment {
    Moment { process: CHANGES.load(Ordering::Acquire), thread: me.changes() }
}

/// Something changed that calls of any thread may have asked for.
pub fn passed() {
    CHANGES.fetch_add(1, Ordering::AcqRel);
}

/// Something changed for the calling thread alone.
pub fn passed_here() {
    thread::mine().change();
}
