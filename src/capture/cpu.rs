//! Captures of the CPU. Its pseudo-stream is another one in each thread, so a capture of it is the thread's that began it. More
//! may begin inside: what is recorded goes to the innermost, and so does what ends, pauses and resumes.

use super::graph::{Graph, Origin};
use super::{CaptureMode, Description, GRAPHS, Options, State, gone};
use crate::error::{Result, fail};
use crate::fork::Lock;
use crate::handle::{Entered, Handle};
use crate::runtime;
use crate::stream::{self, Stream};
use crate::thread::{self, Tenant};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// As many captures can go on inside of each other on a thread.
const DEEPEST: usize = 8;

thread_local! {
    /// How many captures the thread has, and their graphs, the innermost last. Plain numbers, so that nothing runs when a thread
    /// ends; those of a former life of the library are stale handles.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static OWN: Cell<[Handle; DEEPEST]> = const { Cell::new([0; DEEPEST]) };
}

/// A capture that goes on or is paused.
struct Open {
    graph: Handle,
    thread: Tenant,
}

/// Those of all threads: nobody else can end what an ended thread has left. In a forked child only its own.
static OPEN: Lock<Vec<Open>> = Lock::new(Vec::new());

/// The capture that the calling thread goes on with on the CPU: what it works there is recorded in it. One load where there is
/// none.
#[inline]
pub fn of_cpu() -> Result<Option<Entered<Graph>>> {
    if DEPTH.get() == 0 {
        return Ok(None);
    }
    Ok(innermost()?.filter(|graph| !graph.is_paused()))
}

/// Whether the calling thread captures the CPU, paused or not.
#[inline]
pub fn captures_cpu() -> bool {
    DEPTH.get() != 0
}

/// The thread's innermost capture, paused or not.
#[cold]
fn innermost() -> Result<Option<Entered<Graph>>> {
    while let Some(inner) = DEPTH.get().checked_sub(1) {
        match GRAPHS.enter(OWN.get()[inner]) {
            Ok(graph) => {
                graph.mend();
                return Ok(Some(graph));
            }
            // Runs, which go in the middle of each other only so deep, leave room.
            Err(_) if thread::mine().is_full() => fail!(
                Internal,
                "this thread is inside of too many objects at once to look after its capture on the CPU, which goes on"
            ),
            // A shutdown has given it up.
            Err(_) => DEPTH.set(inner),
        }
    }
    Ok(None)
}

/// The innermost capture, for a call that changes it.
fn innermost_to_be(what: &str) -> Result<Entered<Graph>> {
    match innermost()? {
        Some(graph) => Ok(graph),
        None => fail!(
            InvalidArgument,
            "this thread has no capture on the CPU's stream that could be {what}; each thread has its own stream there"
        ),
    }
}

pub(super) fn begin(stream: &Entered<Stream>, mode: CaptureMode, options: &Options) -> Result<()> {
    if options.into.is_some() {
        fail!(
            InvalidArgument,
            "native_graph is a graph of the driver's, and work of the CPU cannot be recorded there; leave it NULL"
        );
    }
    let depth = innermost()?.map_or(0, |_| DEPTH.get());
    if depth == DEEPEST {
        fail!(
            IllegalInCapture,
            "{DEEPEST} captures go on inside of each other on the CPU's stream of this thread, and no more can; end one first"
        );
    }
    let origin = Origin {
        stream: stream.hold(),
        native: stream.native(),
        mode,
        thread: stream::thread_mark(),
        untracked: false,
        ours: true,
        borrowed: false,
        no_allocations: options.no_allocations,
    };
    // A graph that cannot be put in gives its hold back when it is dropped.
    let graph = Graph::of_cpu(stream.device(), next_id(), origin);
    let mut open = OPEN.write();
    // One that begins later is not seen by the shutdown.
    runtime::require_live()?;
    let handle = GRAPHS.insert(graph)?;
    open.push(Open { graph: handle, thread: thread::mine().tenant() });
    drop(open);
    thread::mine().at_end(gone::thread_has_ended);
    let mut own = OWN.get();
    own[depth] = handle;
    OWN.set(own);
    DEPTH.set(depth + 1);
    Ok(())
}

/// A number for a capture; the driver counts from 1 and never comes here.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// It is not the thread's any more.
fn leave(graph: &Entered<Graph>) -> Handle {
    let handle = GRAPHS.handle_of(graph.index());
    DEPTH.set(DEPTH.get().saturating_sub(1));
    OPEN.write().retain(|open| open.graph != handle);
    handle
}

pub(super) fn end(taken: bool) -> Result<Handle> {
    let graph = innermost_to_be("ended")?;
    if !taken {
        fail!(
            InvalidArgument,
            "out is NULL; it is where the graph of the capture {} goes, which goes on (warp_capture_abandon() gives it up)",
            graph.id()
        );
    }
    let handle = leave(&graph);
    graph.finish_recording()?;
    Ok(handle)
}

pub(super) fn abandon() -> Result<()> {
    let graph = innermost_to_be("given up")?;
    let handle = leave(&graph);
    graph.void(None);
    GRAPHS.close(handle).map(drop)
}

pub(super) fn pause() -> Result<()> {
    let graph = innermost_to_be("paused")?;
    if graph.is_paused() {
        fail!(IllegalInCapture, "the capture {} of the CPU's stream is paused already", graph.id());
    }
    graph.set_paused(true);
    Ok(())
}

pub(super) fn resume() -> Result<()> {
    let graph = innermost_to_be("resumed")?;
    if !graph.is_paused() {
        fail!(IllegalInCapture, "the capture {} of the CPU's stream is not paused", graph.id());
    }
    graph.set_paused(false);
    Ok(())
}

pub(super) fn describe(stream: &Entered<Stream>) -> Result<Description> {
    Ok(match innermost()? {
        Some(graph) => Description {
            state: if graph.is_paused() { State::Paused } else { State::Active },
            id: graph.id(),
            origin_id: stream.id(),
            mode: Some(graph.origin.mode),
            ours: true,
        },
        None => Description::of_none(),
    })
}

/// Gives up the captures of threads that have ended.
pub(super) fn give_up_orphans() {
    let orphans: Vec<_> = OPEN.write().extract_if(.., |open| open.thread.has_ended()).collect();
    for orphan in orphans {
        if let Ok(graph) = GRAPHS.enter(orphan.graph) {
            graph.void(None);
        }
        drop(GRAPHS.close(orphan.graph));
    }
}

/// At shutdown, before all graphs are closed: none begins from now on.
pub(super) fn forget_all() {
    OPEN.write().clear();
}

/// After a fork, in the child. The captures of the thread that forked go on there.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub(super) unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe { OPEN.replace_in_child(Vec::new()) };
}
