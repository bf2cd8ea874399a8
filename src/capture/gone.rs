//! The news that a graph and everything made of it, runs included, is gone. The driver tells it on a thread of its own,
//! where nothing may be called; it is written down there and acted on by the next call that has the time.

use super::graph::Graph;
use super::{GRAPHS, OPEN};
use crate::driver::{Driver, Failure, RawGraph};
use crate::handle::Entered;
use crossbeam_queue::SegQueue;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Graphs that are gone, by the holds that the news had on them.
static GONE: SegQueue<u32> = SegQueue::new();
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Has the news of the graph told. The graph is held until then.
pub fn watch(driver: &Driver, graph: &Entered<Graph>, native: RawGraph) -> Result<(), Failure> {
    let held = graph.hold();
    driver.tell_when_gone(native, std::ptr::without_provenance_mut(held as usize), told).inspect_err(|_| {
        // SAFETY: nobody will be told, so the hold is still this function's.
        unsafe { GRAPHS.release_hold(held) };
    })
}

extern "C" fn told(held: *mut c_void) {
    GONE.push(held.addr() as u32);
    COUNT.fetch_add(1, Ordering::Release);
}

/// Whether there is news. One load, for calls that are made often.
#[inline]
pub fn any_gone() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Lets go of what gone graphs kept.
#[cold]
pub fn settle_gone() {
    while let Some(held) = GONE.pop() {
        COUNT.fetch_sub(1, Ordering::AcqRel);
        // SAFETY: the news has a hold, given back below.
        let graph = unsafe { GRAPHS.held(held) };
        graph.has_gone();
        if !graph.is_ours() {
            // Nobody else closes what this library only watched.
            let handle = GRAPHS.handle_of(held);
            OPEN.write().retain(|open| open.graph != handle);
            drop(GRAPHS.close(handle));
        }
        // SAFETY: as above; the graph is not used any more.
        unsafe { GRAPHS.release_hold(held) };
    }
}
