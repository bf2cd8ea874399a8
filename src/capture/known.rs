//! The captures that are known and have not ended: those that began here, and those of other code that something was put into.

use super::graph::Origin;
use super::{GRAPHS, Graph, Options, VOID, active, gone, info, meanwhile};
use crate::device::Device;
use crate::driver::{CaptureInfo, CaptureMode, Driver, Failure};
use crate::error::{Result, fail};
use crate::fork::Lock;
use crate::handle::{Entered, Handle};
use crate::lock::{Mutex, MutexGuard};
use crate::log;
use crate::peer::{self, Snapshot};
use crate::runtime;
use crate::stream::{self, Stream};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A capture that is known and has not ended.
struct Open {
    graph: Handle,
    /// What the driver calls the capture.
    id: u64,
    /// The stream's slot, which the graph holds.
    origin: u32,
    thread: u32,
    ours: bool,
}

impl Open {
    /// Whether it began on the stream, as the calling thread names it: each thread's own default stream is another one, even
    /// when the handle is the same.
    fn began_on(&self, stream: &Entered<Stream>) -> bool {
        self.origin == stream.index() && (!stream.is_per_thread() || stream::is_this_thread(self.thread))
    }
}

static OPEN: Lock<Vec<Open>> = Lock::new(Vec::new());
/// How many there are, for those who need no more when there are none.
static OPEN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether a capture of a GPU is known that has not ended.
#[inline]
pub fn some_are_open() -> bool {
    OPEN_COUNT.load(Ordering::Acquire) != 0
}

fn change_open<R>(change: impl FnOnce(&mut Vec<Open>) -> R) -> R {
    let mut open = OPEN.write();
    let result = change(&mut open);
    OPEN_COUNT.store(open.len(), Ordering::Release);
    result
}

/// Held while a capture becomes known, so that no other thread takes one that just begins here for other code's, and none begins
/// on a stream that is just released. Messages come when it is free: their receiver may put something on a stream that other
/// code captures.
static TAKING_NOTE: Mutex<()> = Mutex::new(());

/// While it lives no capture becomes known, and no stream leaves.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    TAKING_NOTE.lock()
}

pub(super) fn find(id: u64) -> Option<Entered<Graph>> {
    let graph = OPEN.read().iter().find(|open| open.id == id).map(|open| open.graph)?;
    GRAPHS.enter(graph).ok()
}

pub(super) fn begun_on(stream: &Entered<Stream>) -> Option<Entered<Graph>> {
    let graph = OPEN.read().iter().find(|open| open.began_on(stream)).map(|open| open.graph)?;
    GRAPHS.enter(graph).ok()
}

pub(super) fn paused_on(stream: &Entered<Stream>) -> Option<Entered<Graph>> {
    begun_on(stream).filter(|graph| graph.is_paused())
}

/// How often the capture that the driver calls so was paused; never, for one of other code.
pub fn pauses_of(id: u64) -> u32 {
    find(id).map_or(0, |graph| graph.pauses())
}

/// Whether the calling thread has begun a capture here that goes on now.
pub fn of_this_thread() -> Option<u64> {
    let mark = stream::thread_mark();
    let mine: Vec<_> = {
        let open = OPEN.read();
        open.iter().filter(|open| open.ours && open.thread == mark).map(|open| open.graph).collect()
    };
    let going_on = |graph: &Entered<Graph>| !graph.is_paused();
    mine.into_iter().filter_map(|graph| GRAPHS.enter(graph).ok()).find(going_on).map(|graph| graph.id())
}

/// The capture on the device that the calling thread goes on with, which what it launches there becomes part of.
pub fn recording(device: &Device) -> Option<Entered<Graph>> {
    if OPEN_COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let mark = stream::thread_mark();
    let mine: Vec<_> = OPEN.read().iter().filter(|open| open.thread == mark).map(|open| open.graph).collect();
    let is_there = |graph: &Entered<Graph>| !graph.is_paused() && std::ptr::eq(graph.device(), device);
    mine.into_iter().filter_map(|graph| GRAPHS.enter(graph).ok()).find(is_there)
}

/// From now on the capture is known. `begun` is its mode when it was begun here; that of other code's is not to be had.
pub(super) fn register(
    driver: &'static Driver,
    stream: &Entered<Stream>,
    info: &CaptureInfo,
    begun: Option<CaptureMode>,
    options: &Options,
    reached: Snapshot,
) -> Result<Entered<Graph>> {
    let ours = begun.is_some();
    let origin = Origin {
        stream: stream.hold(),
        native: stream.native(),
        // Only its own thread may add to one of other code, as if it were not relaxed.
        mode: begun.unwrap_or(CaptureMode::ThreadLocal),
        thread: stream::thread_mark(),
        untracked: stream.is_untracked(),
        ours,
        borrowed: options.into.is_some(),
        no_allocations: options.no_allocations,
    };
    // A graph that cannot be put in gives its hold back when it is dropped.
    let handle = GRAPHS.insert(Graph::new(stream.device(), info.id, origin, reached))?;
    let graph = GRAPHS.enter(handle)?;
    graph.set_index(graph.index());
    if ours {
        meanwhile::remember(origin.native, &graph);
    }
    forget_ended(driver, stream);
    let Origin { stream: origin, thread, .. } = origin;
    change_open(|open| open.push(Open { graph: handle, id: info.id, origin, thread, ours }));
    Ok(graph)
}

/// From now on the capture of other code is known; the news of its graph's end is awaited. `None` when it has ended.
pub(super) fn watch_foreign(
    driver: &'static Driver,
    stream: &Entered<Stream>,
    no_allocations: bool,
) -> Result<Option<Entered<Graph>>> {
    log::after(|| {
        let _alone = alone();
        // Asked again: it may be one that began here just now, or another one.
        let Some(info) = active(stream, info(driver, stream)?)? else { return Ok(None) };
        if let Some(graph) = find(info.id) {
            return Ok(Some(graph));
        }
        let options = Options { into: None, no_allocations };
        let reached = peer::snapshot(driver, stream.device());
        let graph = register(driver, stream, &info, None, &options, reached)?;
        gone::watch(driver, &graph, info.graph).map_err(|f: Failure| {
            forget(graph.index());
            drop(GRAPHS.close(GRAPHS.handle_of(graph.index())));
            stream.device().error(driver, f).context("taking note of a capture")
        })?;
        Ok(Some(graph))
    })
}

pub(super) fn forget(graph: u32) {
    let handle = GRAPHS.handle_of(graph);
    change_open(|open| open.retain(|open| open.graph != handle));
}

/// Before another capture of the stream becomes known: one that began there and was neither ended nor paused here was ended by
/// other code, which did not say so.
fn forget_ended(driver: &'static Driver, stream: &Entered<Stream>) {
    let before: Vec<_> =
        OPEN.read().iter().filter(|open| open.began_on(stream)).map(|open| open.graph).collect();
    let before = before.into_iter().filter_map(|graph| GRAPHS.enter(graph).ok());
    for graph in before.filter(|graph| graph.is_capturing()) {
        if graph.is_ours() && !graph.claim_end() {
            continue;
        }
        forget(graph.index());
        if graph.is_ours() {
            GRAPHS.set_word(graph.index(), VOID);
            meanwhile::forget_memory(&graph);
            // Whoever ended it has the native graph.
            graph.void(None);
            drop(GRAPHS.close(GRAPHS.handle_of(graph.index())));
        } else {
            graph.hand_over(driver);
        }
    }
}

/// Before a stream's handle becomes stale: an error while a capture that began on it here goes on or is paused, since
/// nobody could end it any more. One of other code is only watched for the end of its graph from then on. None begins while
/// what comes back lives.
pub fn leave_stream(stream: &Entered<Stream>) -> Result<Option<MutexGuard<'static, ()>>> {
    if runtime::is_forked() {
        // The capture is the parent's, and so may be whoever has the list.
        return Ok(None);
    }
    let alone = alone();
    // Of every thread's, where the stream is each thread's own.
    let begun: Vec<_> = {
        let open = OPEN.read();
        open.iter().filter(|open| open.origin == stream.index()).map(|open| open.graph).collect()
    };
    let begun: Vec<_> = begun.into_iter().filter_map(|graph| GRAPHS.enter(graph).ok()).collect();
    if let Some(graph) = begun.iter().find(|graph| graph.is_ours()) {
        fail!(
            IllegalInCapture,
            "the stream (id {}) cannot be released while its capture {} goes on or is paused; end the capture or give it up first",
            stream.id(),
            graph.id()
        );
    }
    for graph in begun {
        if let Ok(driver) = runtime::driver() {
            graph.hand_over(driver);
        }
        forget(graph.index());
    }
    Ok(Some(alone))
}

/// A paused capture goes on: the driver calls it by another number.
pub(super) fn renumber(graph: &Entered<Graph>, id: u64) {
    let handle = GRAPHS.handle_of(graph.index());
    OPEN.write().iter_mut().filter(|open| open.graph == handle).for_each(|open| open.id = id);
}

/// Every one, which is not known any more.
pub(super) fn forget_all() -> Vec<Entered<Graph>> {
    let _alone = alone();
    let open = change_open(std::mem::take);
    open.into_iter().filter_map(|open| GRAPHS.enter(open.graph).ok()).collect()
}

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub(super) unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe { OPEN.replace_in_child(Vec::new()) };
    OPEN_COUNT.store(0, Ordering::Release);
}
