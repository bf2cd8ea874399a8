//! What falls into a capture that another thread just begins. A call asks whether its stream is captured and then works on it;
//! in between the stream may become captured. The last begins are remembered, for the calls that find by `stream::begun` that
//! there was one. A stream that another thread has join a capture by a wait is not among them: what is put there by a thread
//! that knows nothing of it has no order with the graph's runs, whatever is kept.

use super::{GRAPHS, Graph, known};
use crate::driver::{CaptureMode, RawStream};
use crate::error::{Error, error};
use crate::handle::{Entered, Handle};
use crate::lock::Mutex;
use crate::log;
use crate::stream::{self, Stream};
use std::collections::VecDeque;

/// A capture that began on a stream, or went on there after a pause.
struct Begin {
    native: RawStream,
    graph: Handle,
    thread: u32,
    /// What `stream::begun` said when that was done.
    begun: u64,
    /// Any thread may add to it.
    is_relaxed: bool,
    /// It was given up: what it allocated never came into being.
    is_void: bool,
}

/// The oldest first. Locked by whoever is `known::alone`, so that a call that waits for that finds all that came before.
static RECENT: Mutex<VecDeque<Begin>> = Mutex::new(VecDeque::new());

/// More than begin while one call is on its way.
const REMEMBERED: usize = 1024;

/// Remembers that the capture just began on the stream. The caller is alone.
pub(super) fn remember(native: RawStream, graph: &Entered<Graph>) {
    let mut recent = RECENT.lock();
    if recent.len() == REMEMBERED {
        recent.pop_front();
    }
    recent.push_back(Begin {
        native,
        graph: GRAPHS.handle_of(graph.index()),
        thread: stream::thread_mark(),
        begun: stream::begun(),
        is_relaxed: graph.origin.mode == CaptureMode::Relaxed,
        is_void: false,
    });
}

/// Remembers that the capture came to nothing.
pub(super) fn forget_memory(graph: &Entered<Graph>) {
    let handle = GRAPHS.handle_of(graph.index());
    RECENT.lock().iter_mut().filter(|begin| begin.graph == handle).for_each(|begin| begin.is_void = true);
}

/// Captures that work may have fallen into.
#[derive(Default)]
pub struct Meanwhile {
    /// Those that are not released, the oldest first: only the last may still go on.
    pub graphs: Vec<Entered<Graph>>,
    /// One of them is another thread's alone.
    pub is_refused: bool,
    /// There were any, and all came to nothing.
    pub is_void: bool,
}

/// The captures of other threads that began on the stream since `stream::begun` said `before`.
#[cold]
pub fn began_meanwhile(stream: &Stream, before: u64) -> Meanwhile {
    // Another thread names another stream by this.
    if stream.is_per_thread() {
        return Meanwhile::default();
    }
    log::after(|| {
        // Whoever begins one just now has it remembered then.
        let _alone = known::alone();
        let recent = RECENT.lock();
        let of_others: Vec<_> = recent
            .iter()
            .filter(|begin| begin.begun > before && begin.native == stream.native())
            .filter(|begin| !stream::is_this_thread(begin.thread))
            .collect();
        let mut handles: Vec<_> = of_others.iter().map(|begin| begin.graph).collect();
        handles.dedup();
        Meanwhile {
            graphs: handles.into_iter().filter_map(|graph| GRAPHS.enter(graph).ok()).collect(),
            is_refused: of_others.iter().any(|begin| !begin.is_relaxed),
            is_void: !of_others.is_empty() && of_others.iter().all(|begin| begin.is_void),
        }
    })
}

/// What a call says whose work may have become a part of another thread's capture.
#[cold]
pub fn fell_into_another(stream: &Stream) -> Error {
    error!(
        IllegalInCapture,
        "another thread began a capture of the stream (id {}) of \"{}\" during this call, whose work may be a part of it now: use another stream, have that thread capture one of its own, or, if it captures relaxed, call again",
        stream.id(),
        stream.device().alias()
    )
}
