//! A graph, from the begin of its capture until the last block that it made is forgotten. It owns the memory that its
//! capture allocated in every order of launch, free, release and failure (`memory`), and keeps what its runs use. One of the CPU
//! has a list of steps in the place of the driver's objects (`steps`).

mod memory;

pub use memory::Freed;

use super::gone::{self, Keep, LastRun};
use super::order;
use super::steps::Recording;
use crate::device::Device;
use crate::driver::{CaptureMode, Dependency, Driver, Failure, RawGraph, RawGraphExec, RawStream};
use crate::fork::Lock;
use crate::handle::{Entered, Object, Tag};
use crate::lock::Mutex;
use crate::log::{self, log};
use crate::peer::Snapshot;
use crate::runtime;
use crate::stream::{self, Stream};
use memory::Memory;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

enum Phase {
    Capturing,
    /// Not capturing for a while: the graph so far, and what its stream stood behind.
    Paused(RawGraph, Vec<Dependency>),
    /// Captured, and ours to launch and destroy.
    Whole(RawGraph),
    /// Captured, and somebody else's; or destroyed, with runs that may still go on.
    Away,
    /// The capture failed or was given up: its memory will never exist.
    Void,
}

struct State {
    phase: Phase,
    memory: Memory,
}

/// Who began a capture, and where.
#[derive(Clone, Copy)]
pub struct Origin {
    /// The stream's slot, which the graph holds.
    pub stream: u32,
    pub native: RawStream,
    pub mode: CaptureMode,
    /// The mark of the thread that captures: nobody else may touch the graph meanwhile.
    pub thread: u32,
    /// The native stream may be gone: only calls that name it may touch it.
    pub untracked: bool,
    /// Begun by this library, which also ends it.
    pub ours: bool,
    /// The graph belongs to the caller, as the body of a conditional node does.
    pub borrowed: bool,
    /// Its graph could not be used for what it is meant for if it allocated.
    pub no_allocations: bool,
}

pub struct Graph {
    device: &'static Device,
    id: u64,
    /// What the driver calls the capture at present: it may count anew after a pause.
    native_id: AtomicU64,
    /// How often it was paused.
    pauses: AtomicU32,
    /// Its slot.
    index: AtomicU32,
    pub origin: Origin,
    reached: Snapshot,
    launched: AtomicBool,
    /// Other code has its native handle, or another graph a copy of it: it may run without being launched here.
    shared: AtomicBool,
    allocated: AtomicBool,
    /// Some thread ends the capture, or has ended it.
    ending: AtomicBool,
    released: AtomicBool,
    /// How many ends are to be waited for after the release: that of the last run launched here, and news of the driver.
    awaited: AtomicU32,
    over: AtomicBool,
    /// Held while it is launched: the driver's executables are for one thread at a time.
    exec: Mutex<Exec>,
    state: Mutex<State>,
    /// What its runs use, beside memory of its own.
    kept: Lock<Vec<Box<dyn Keep>>>,
    /// How many forks lie before what it keeps: after another one that is put right first.
    forks: AtomicU32,
    /// What a graph of the CPU has instead of all that is the driver's.
    pub(super) recording: Option<Recording>,
}

/// What is launched, and the last launch: a run begins when the one before has ended, so its end is that of all.
#[derive(Default)]
struct Exec {
    ready: Option<RawGraphExec>,
    last: Option<LastRun>,
}

impl Object for Graph {
    const TAG: Tag = Tag::Graph;

    fn word(&self) -> u64 {
        self.id
    }

    fn retire(&self) {
        // In a forked child the driver's objects are the parent's, and so is a graph that was not used since.
        if runtime::is_forked() && (self.recording.is_none() || !self.is_mended()) {
            return;
        }
        if let Some(recording) = &self.recording {
            self.released.store(true, Ordering::Release);
            recording.give_up().into_iter().for_each(gone::leave);
            if self.awaited.load(Ordering::Acquire) == 0 {
                self.has_gone();
            }
            return;
        }
        let Exec { ready, last } = std::mem::take(&mut *self.exec.lock());
        if let Some(last) = last {
            self.await_end();
            // SAFETY: the registry's own hold lasts until this returns.
            unsafe { gone::run_ends(self.index.load(Ordering::Relaxed), last) };
        }
        self.released.store(true, Ordering::Release);
        let native = {
            let mut state = self.state.lock();
            self.take_native(&mut state)
        };
        if !self.device.is_lost()
            && let Ok(driver) = runtime::driver()
        {
            self.destroy(driver, ready, native);
        }
        // Of a graph that never ran no run will come.
        if self.device.is_lost() || self.awaited.load(Ordering::Acquire) == 0 {
            self.has_gone();
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the graph had the hold and is gone.
        unsafe { stream::release_hold(self.origin.stream) };
    }
}

impl Graph {
    /// A graph of the CPU, which is being captured.
    pub fn of_cpu(device: &'static Device, id: u64, origin: Origin) -> Graph {
        let mut graph = Graph::new(device, id, origin, Snapshot::of_nothing(device));
        graph.recording = Some(Recording::default());
        graph
    }

    pub fn new(device: &'static Device, id: u64, origin: Origin, reached: Snapshot) -> Graph {
        Graph {
            device,
            id,
            native_id: AtomicU64::new(id),
            pauses: AtomicU32::new(0),
            index: AtomicU32::new(0),
            origin,
            reached,
            launched: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            allocated: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            released: AtomicBool::new(false),
            awaited: AtomicU32::new(0),
            over: AtomicBool::new(false),
            exec: Mutex::new(Exec::default()),
            state: Mutex::new(State { phase: Phase::Capturing, memory: Memory::default() }),
            kept: Lock::new(Vec::new()),
            forks: AtomicU32::new(gone::forks()),
            recording: None,
        }
    }

    /// Whether this process made it, or has put it right.
    fn is_mended(&self) -> bool {
        self.forks.load(Ordering::Acquire) == gone::forks()
    }

    /// In a forked child, before anything that threads of the parent may have been changing: puts that right. Only of graphs
    /// that a caller names, since others may be half made.
    #[inline]
    pub(super) fn mend(&self) {
        if !self.is_mended() {
            self.mend_in_child();
        }
    }

    #[cold]
    fn mend_in_child(&self) {
        const MENDING: u32 = u32::MAX;
        let now = gone::forks();
        loop {
            let before = self.forks.load(Ordering::Acquire);
            if before == now {
                return;
            }
            if before == MENDING
                || self.forks.compare_exchange(before, MENDING, Ordering::AcqRel, Ordering::Acquire).is_err()
            {
                std::thread::yield_now();
                continue;
            }
            // What the parent's graph keeps is the parent's to give back.
            // SAFETY: in a child, since there are more forks than before; the mark keeps all others out until it is done.
            unsafe { self.kept.replace_in_child(Vec::new()) };
            if let Some(recording) = &self.recording {
                recording.mend();
            }
            self.forks.store(now, Ordering::Release);
        }
    }

    pub fn device(&self) -> &'static Device {
        self.device
    }

    /// Whose memory the GPU reached when its capture began, or became known.
    pub fn reached(&self) -> &Snapshot {
        &self.reached
    }

    /// Of its capture, as the driver counted when it began.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What the driver calls the capture at present.
    pub fn native_id(&self) -> u64 {
        self.native_id.load(Ordering::Relaxed)
    }

    pub fn is_ours(&self) -> bool {
        self.origin.ours
    }

    pub fn is_launched(&self) -> bool {
        self.launched.load(Ordering::Acquire)
    }

    /// Whether its capture allocated through this library, freed or not.
    pub fn has_allocated(&self) -> bool {
        self.allocated.load(Ordering::Acquire)
    }

    /// Whether no run of it is going on and none can come.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) || self.device.is_lost()
    }

    /// Whether the calling thread may touch the graph while it is captured.
    pub fn is_this_threads(&self) -> bool {
        stream::is_this_thread(self.origin.thread)
    }

    pub fn is_paused(&self) -> bool {
        match &self.recording {
            Some(recording) => recording.is_paused(),
            None => matches!(self.state.lock().phase, Phase::Paused(..)),
        }
    }

    /// Whether its capture was neither paused nor ended here.
    pub fn is_capturing(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Capturing)
    }

    /// Whether it is for the caller to end the capture: of all who ask the first.
    pub fn claim_end(&self) -> bool {
        !self.ending.swap(true, Ordering::AcqRel)
    }

    /// Tells it its slot, once it has one.
    pub fn set_index(&self, index: u32) {
        self.index.store(index, Ordering::Relaxed);
    }

    /// One more end is awaited, which `has_come` will tell.
    pub fn await_end(&self) {
        self.awaited.fetch_add(1, Ordering::AcqRel);
    }

    /// One of its ends has come: its last run is over, or the driver says that nothing of it is left.
    pub fn has_come(&self) {
        let left = self.awaited.fetch_sub(1, Ordering::AcqRel) - 1;
        // Of other code's graph the one news is the end, released or not.
        if left == 0 && (self.released.load(Ordering::Acquire) || !self.origin.ours) {
            self.has_gone();
        }
    }

    /// Marks it as one that may run without being launched here, and has the news of its end told by `watch`, to which the
    /// native graph is given, unless that was done. The driver's graphs are for one thread at a time.
    pub fn share(&self, watch: impl FnOnce(RawGraph) -> Result<(), Failure>) -> Result<(), Failure> {
        let state = self.state.lock();
        let Phase::Whole(graph) = state.phase else { return Ok(()) };
        if !self.shared.load(Ordering::Acquire) {
            watch(graph)?;
            self.shared.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The driver's graph and what is launched, once captured; NULL before and where they are not ours.
    pub fn natives(&self) -> (RawGraph, RawGraphExec) {
        if runtime::is_forked() || self.recording.is_some() {
            // Threads that are not there may hold the locks, and the objects are the parent's.
            return (RawGraph::NULL, RawGraphExec::NULL);
        }
        let exec = self.exec.lock().ready.unwrap_or(RawGraphExec::NULL);
        match self.state.lock().phase {
            Phase::Whole(graph) => (graph, exec),
            _ => (RawGraph::NULL, exec),
        }
    }

    /// Keeps something until nothing of the graph is left. Comes back when that is so already.
    pub fn keep(&self, what: Box<dyn Keep>) -> Option<Box<dyn Keep>> {
        self.mend();
        let mut kept = self.kept.write();
        // Whoever ends it says so before he takes what there is.
        if self.is_over() {
            return Some(what);
        }
        kept.push(what);
        None
    }

    /// What it keeps, to be given back by a later look.
    fn let_go(&self) {
        self.mend();
        let kept = std::mem::take(&mut *self.kept.write());
        kept.into_iter().for_each(gone::leave);
    }

    /// Whether its memory may exist. What other code launches is not seen.
    fn has_run(&self) -> bool {
        self.is_launched() || self.shared.load(Ordering::Acquire) || !self.origin.ours || self.origin.borrowed
    }

    /// Whether its capture is going on and whole, as far as its stream may be asked.
    fn captures_now(&self, driver: &Driver) -> Result<bool, Failure> {
        if self.origin.untracked {
            return Ok(false);
        }
        let info = driver.capture_info(self.origin.native)?;
        Ok(info.is_some_and(|info| info.active && info.id == self.native_id()))
    }

    /// Ends the capture on its stream and keeps the graph as it is so far. False when it does not go on any more.
    pub fn pause(&self, driver: &'static Driver) -> Result<bool, Failure> {
        log::after(|| {
            let mut state = self.state.lock();
            if !matches!(state.phase, Phase::Capturing) {
                return Ok(false);
            }
            self.place_pending(driver, &mut state);
            order::join_all(driver, self.origin.native)?;
            let frontier =
                driver.capture_info(self.origin.native)?.map(|info| info.frontier).unwrap_or_default();
            let graph = driver.end_capture(self.origin.native)?;
            self.pauses.fetch_add(1, Ordering::Relaxed);
            state.phase = Phase::Paused(graph, frontier);
            Ok(true)
        })
    }

    /// How often it was paused: the driver knows no event of the parts before.
    pub fn pauses(&self) -> u32 {
        self.pauses.load(Ordering::Relaxed)
    }

    /// Goes on capturing where `pause` stopped; tells what the driver calls the capture from now on.
    pub fn resume(&self, driver: &'static Driver) -> Result<u64, Failure> {
        let mut state = self.state.lock();
        if let Phase::Paused(graph, frontier) = &state.phase {
            stream::begin_capture(|| {
                driver.begin_capture_into(self.origin.native, *graph, frontier, self.origin.mode)
            })?;
            state.phase = Phase::Capturing;
            if let Ok(Some(id)) = driver.capture_id(self.origin.native) {
                self.native_id.store(id, Ordering::Relaxed);
            }
        }
        Ok(self.native_id())
    }

    /// Ends the capture, paused or not; the graph is then whole.
    pub fn end(&self, driver: &'static Driver) -> Result<RawGraph, Failure> {
        log::after(|| {
            let mut state = self.state.lock();
            self.place_pending(driver, &mut state);
            let graph = match &state.phase {
                Phase::Paused(graph, _) => *graph,
                _ => {
                    order::join_all(driver, self.origin.native)?;
                    driver.end_capture(self.origin.native)?
                }
            };
            state.phase = if self.origin.borrowed { Phase::Away } else { Phase::Whole(graph) };
            Ok(graph)
        })
    }

    /// Takes the graph out of a capture that somebody else ends.
    pub fn hand_over(&self, driver: &'static Driver) {
        log::after(|| {
            let mut state = self.state.lock();
            if self.is_this_threads() && self.captures_now(driver).unwrap_or(false) {
                self.place_pending(driver, &mut state);
            }
            state.memory.keep_pending();
            state.phase = Phase::Away;
        });
    }

    /// The capture came to nothing: its own memory will never exist, and what it kept is given back by a later look.
    /// `ended` is what the driver made of it; comes back when it is to be destroyed now. It stays while blocks of it are not
    /// freed: their addresses would be given to others.
    pub fn void(&self, ended: Option<RawGraph>) -> Option<RawGraph> {
        self.over.store(true, Ordering::Release);
        if let Some(recording) = &self.recording {
            recording.give_up().into_iter().for_each(gone::leave);
            self.let_go();
            return None;
        }
        let (native, own) = {
            let mut state = self.state.lock();
            let native = match std::mem::replace(&mut state.phase, Phase::Void) {
                Phase::Paused(graph, _) | Phase::Whole(graph) => Some(graph),
                _ => ended,
            };
            let own = state.memory.take_own();
            let native = native.filter(|_| !self.origin.borrowed).and_then(|native| {
                state.phase = Phase::Whole(native);
                self.take_native(&mut state)
            });
            (native, own)
        };
        own.into_iter().for_each(Keep::forget);
        self.let_go();
        native
    }

    /// Nothing of the graph is left, and no run of it goes on. What it kept is given back by a later look.
    pub fn has_gone(&self) {
        self.over.store(true, Ordering::Release);
        if self.recording.is_none() {
            let own = self.state.lock().memory.take_own();
            // Of a graph that never ran the addresses may be somebody else's by now.
            let end = if self.has_run() { Keep::give_back } else { Keep::forget };
            own.into_iter().for_each(end);
        }
        self.let_go();
    }

    /// Launches it; tells whether `has_begun` is still to be called. `None` when it is not ours to launch.
    pub fn launch(&self, driver: &'static Driver, stream: &Entered<Stream>) -> Result<Option<bool>, Failure> {
        // What is let go of may have something to say.
        log::after(|| {
            let mut exec = self.exec.lock();
            let ready = match exec.ready {
                Some(ready) => ready,
                None => {
                    let made = {
                        // Other threads may be asking for the native graph, which is for one at a time.
                        let state = self.state.lock();
                        let Phase::Whole(graph) = state.phase else { return Ok(None) };
                        driver.instantiate(graph)?
                    };
                    // Saves the first launch the way; where it cannot be had the launch pays it.
                    let _ = driver.upload_graph(made, stream.native());
                    *exec.ready.insert(made)
                }
            };
            driver.launch_graph(ready, stream.native())?;
            let thread = if stream.is_per_thread() { stream::thread_mark() } else { 0 };
            if exec.last != Some(LastRun { stream: stream.index(), thread }) {
                let before = exec.last.replace(LastRun { stream: stream.hold(), thread });
                if let Some(before) = before {
                    // SAFETY: the last run had the hold, and is that no more.
                    unsafe { stream::release_hold(before.stream) };
                }
            }
            Ok(Some(!self.is_launched()))
        })
    }

    /// It was launched, and everybody knows of the memory that its runs make.
    pub fn has_begun(&self) {
        self.launched.store(true, Ordering::Release);
    }

    /// Puts a copy of another graph behind what the stream, which takes part in this capture, stands behind. False when
    /// that cannot be: the other is not whole, or this is another thread's to add to.
    pub fn add_child(&self, driver: &Driver, stream: RawStream, child: &Graph) -> Result<bool, Failure> {
        if std::ptr::eq(self, child) || !self.is_this_threads() {
            return Ok(false);
        }
        let _state = self.state.lock();
        let inner = child.state.lock();
        let Phase::Whole(graph) = inner.phase else { return Ok(false) };
        let Some(info) = driver.capture_info(stream)? else { return Ok(false) };
        let after: Vec<_> = info.frontier.iter().map(|d| d.node).collect();
        let node = driver.add_child_node(info.graph, &after, graph)?;
        driver.set_frontier(stream, &[Dependency::on(node)])?;
        Ok(true)
    }

    /// The native graph, if it is to be destroyed now. One that never ran stays while blocks of it are not freed: their
    /// addresses would be given to others.
    fn take_native(&self, state: &mut State) -> Option<RawGraph> {
        match state.phase {
            Phase::Whole(graph) if self.has_run() || state.memory.is_all_freed() => {
                state.phase = Phase::Away;
                Some(graph)
            }
            _ => None,
        }
    }

    /// Gives the driver's objects up. Twice, since nobody else will and it may refuse for a passing reason.
    fn destroy(&self, driver: &'static Driver, exec: Option<RawGraphExec>, graph: Option<RawGraph>) {
        if exec.is_none() && graph.is_none() {
            return;
        }
        let (mut exec, mut graph) = (exec, graph);
        let mut once = || -> crate::error::Result<()> {
            let _entered = self.device.enter_relaxed(driver)?;
            let mut done = Ok(());
            if let Some(old) = exec {
                done = driver.destroy_exec(old);
                exec = exec.filter(|_| done.is_err());
            }
            if let Some(old) = graph {
                let destroyed = driver.destroy_graph(old);
                graph = graph.filter(|_| destroyed.is_err());
                done = done.and(destroyed);
            }
            done.map_err(|f| self.device.error(driver, f))
        };
        if let Err(error) = once().or_else(|_| once())
            && !self.device.is_lost()
        {
            log!(Error, "a graph of \"{}\" was not destroyed: {error}", self.device.alias());
        }
    }
}
