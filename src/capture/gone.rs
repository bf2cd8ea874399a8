//! How the end of a graph becomes known. The last run of a released graph is looked at by later calls. Where a graph may run
//! without being launched here, the driver has the news that it and everything made of it, runs included, is gone. It tells
//! on a thread of its own, where nothing may be called; the news is written down there and acted on by the next call that
//! has the time. So is what a graph kept and lets go of in a call that holds locks: a caller's deleter may call back in.

use super::graph::Graph;
use super::{GRAPHS, cpu, known};
use crate::driver::{Driver, Failure, RawGraph};
use crate::fork::Lock;
use crate::handle::Entered;
use crate::runtime;
use crossbeam_queue::SegQueue;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Something that must stay for as long as a graph, or a run of it, may use it.
pub trait Keep: Send + Sync {
    /// Nothing of the graph is left: on with its end.
    fn give_back(self: Box<Self>);
    /// It went with the graph: the graph frees it in each run, or never made it.
    fn forget(self: Box<Self>);
}

/// Where a graph was launched last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRun {
    /// The stream's slot, held.
    pub stream: u32,
    /// The mark of the thread whose own default stream it was, else 0.
    pub thread: u32,
}

/// Graphs that are gone, by the holds that the news had on them.
static GONE: SegQueue<u32> = SegQueue::new();
/// What nothing of a graph uses any more.
static LEFT: Lock<VecDeque<Box<dyn Keep>>> = Lock::new(VecDeque::new());
/// Whether a thread has ended in the middle of a capture of the CPU.
static ORPHANS: AtomicBool = AtomicBool::new(false);
/// How much there is of all that is to be looked at here.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Released graphs, held, whose last run may go on.
static ENDING: SegQueue<(u32, LastRun)> = SegQueue::new();

/// Has the news of the graph told. The graph is held until then. It costs each launch a microsecond or two: for graphs that
/// may run without being launched here.
pub fn watch(driver: &Driver, graph: &Entered<Graph>, native: RawGraph) -> Result<(), Failure> {
    let held = graph.hold();
    graph.await_end();
    let data = std::ptr::without_provenance_mut(held as usize);
    driver.tell_when_gone(native, data, told).map_err(|(failure, is_told)| {
        if !is_told {
            graph.has_come();
            // SAFETY: nobody will be told, so the hold is still this function's.
            unsafe { GRAPHS.release_hold(held) };
        }
        failure
    })
}

/// A graph that may have become a part of another one, which is all that is known of it: it ends after that.
struct Part(u32);

impl Keep for Part {
    fn give_back(self: Box<Self>) {
        // SAFETY: the hold is this one's, from `end_after`, and given back once.
        unsafe {
            GRAPHS.held(self.0).has_come();
            GRAPHS.release_hold(self.0);
        }
    }

    fn forget(self: Box<Self>) {
        self.give_back();
    }
}

/// Has the end of `part` come after that of `whole`.
pub fn end_after(part: &Entered<Graph>, whole: &Entered<Graph>) {
    part.await_end();
    if let Some(over) = whole.keep(Box::new(Part(part.hold()))) {
        over.give_back();
    }
}

extern "C" fn told(held: *mut c_void) {
    GONE.push(held.addr() as u32);
    COUNT.fetch_add(1, Ordering::Release);
}

/// Has something that a graph kept given back.
pub fn leave(kept: Box<dyn Keep>) {
    LEFT.write().push_back(kept);
    COUNT.fetch_add(1, Ordering::Release);
}

/// A thread has ended that captured on the CPU at some time.
pub(super) fn thread_has_ended() {
    if !ORPHANS.swap(true, Ordering::AcqRel) {
        COUNT.fetch_add(1, Ordering::Release);
    }
}

/// How many forks lie between this process and the one that initialised.
static FORKS: AtomicU32 = AtomicU32::new(0);

#[inline]
pub(super) fn forks() -> u32 {
    FORKS.load(Ordering::Acquire)
}

/// After a fork, in the child: what the parent's graphs kept is the parent's to give back.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub(super) unsafe fn mend_in_child() {
    FORKS.fetch_add(1, Ordering::AcqRel);
    ORPHANS.store(false, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { LEFT.replace_in_child(VecDeque::new()) };
    COUNT.store(0, Ordering::Release);
}

/// A graph was released whose last run may go on: somebody has to look.
///
/// # Safety
/// The graph is in its slot, and stays there for the length of the call.
pub unsafe fn run_ends(graph: u32, last: LastRun) {
    // SAFETY: the caller's promise.
    unsafe { GRAPHS.hold_again(graph) };
    ENDING.push((graph, last));
    COUNT.fetch_add(1, Ordering::Release);
}

/// A released graph whose last run is to be waited for; its hold and that of the run's stream are the taker's.
pub fn take_ending() -> Option<(u32, LastRun)> {
    ENDING.pop()
}

/// The last run of a graph from `take_ending` is over.
pub fn run_ended(held: u32) {
    COUNT.fetch_sub(1, Ordering::AcqRel);
    // SAFETY: the taker had the hold, and gives it to this.
    unsafe {
        GRAPHS.held(held).has_come();
        GRAPHS.release_hold(held);
    }
}

/// Whether there is news. One load, for calls that are made often.
#[inline]
pub fn any_gone() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

thread_local! {
    /// How many calls of `settle_gone` the thread is inside of.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Lets go of what gone graphs kept. The caller holds no lock. A caller's deleter may come here again: so deep it leaves the rest
/// to the calls that it is inside of, or graphs that keep one another in a long row would take all of the stack.
#[cold]
pub fn settle_gone() {
    const DEEPEST: u32 = 8;
    let depth = DEPTH.get();
    if depth >= DEEPEST {
        return;
    }
    DEPTH.set(depth + 1);
    settle();
    DEPTH.set(depth);
}

fn settle() {
    if ORPHANS.swap(false, Ordering::AcqRel) {
        COUNT.fetch_sub(1, Ordering::AcqRel);
        cpu::give_up_orphans();
    }
    // The driver tells a forked child nothing, and the queue may be as a thread left it that is not there.
    if !runtime::is_forked() {
        settle_told();
    }
    loop {
        let Some(kept) = LEFT.write().pop_front() else { return };
        COUNT.fetch_sub(1, Ordering::AcqRel);
        kept.give_back();
    }
}

/// Acts on what the driver has told.
fn settle_told() {
    while let Some(held) = GONE.pop() {
        COUNT.fetch_sub(1, Ordering::AcqRel);
        // SAFETY: the news has a hold, given back below.
        let graph = unsafe { GRAPHS.held(held) };
        graph.has_come();
        if !graph.is_ours() {
            // Nobody else closes what this library only watched.
            known::forget(held);
            drop(GRAPHS.close(GRAPHS.handle_of(held)));
        }
        // SAFETY: as above; the graph is not used any more.
        unsafe { GRAPHS.release_hold(held) };
    }
}
