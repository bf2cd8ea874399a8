//! Captures: work put on a stream is recorded and becomes a graph. Begun here or elsewhere, paused, ended, given up; a
//! capture that fails is unwound, and nothing of this library breaks one. Those of GPUs are the driver's, those of the CPU are the
//! library's own (`cpu`).

mod cpu;
mod gone;
mod graph;
mod known;
mod meanwhile;
mod order;
mod steps;
mod turn;

pub use crate::driver::{CaptureMode, RawGraph};
pub use cpu::{captures_cpu, of_cpu};
pub use gone::{Keep, LastRun, any_gone, end_after, run_ended, settle_gone, take_ending};
pub use graph::{Freed, Graph};
pub use known::{leave_stream, of_this_thread, pauses_of, recording, some_are_open};
pub use meanwhile::{began_meanwhile, fell_into_another};
pub use steps::{Work, record_child};

use crate::device::Device;
use crate::driver::{CAPTURE_INVALIDATED, CaptureInfo, CaptureStatus, Driver, Failure, RawNode, RawStream};
use crate::error::{Error, Result, error, fail};
use crate::handle::{Entered, Handle, Registry};
use crate::log;
use crate::peer;
use crate::runtime;
use crate::stream::{self, Stream};
use crate::thread;
use known::{begun_on, find, forget, paused_on, register, watch_foreign};

static GRAPHS: Registry<Graph> = Registry::new();

/// The word of a graph whose capture came to nothing, with nothing left that keeps its addresses.
const VOID: u64 = u64::MAX;

/// How a capture should be.
#[derive(Default)]
pub struct Options {
    /// Capture into this graph, which stays the caller's.
    pub into: Option<RawGraph>,
    pub no_allocations: bool,
}

/// Begins a capture on the stream.
pub fn begin(stream: &Entered<Stream>, mode: CaptureMode, options: &Options) -> Result<()> {
    if !stream.device().is_cuda() {
        return cpu::begin(stream, mode, options);
    }
    let (driver, device) = require(stream)?;
    if stream.native().is_special() && !stream.is_per_thread() {
        fail!(
            InvalidArgument,
            "the legacy stream of \"{}\" cannot be captured, since all blocking streams wait for it; begin on another stream",
            device.alias()
        );
    }
    if let Some(graph) = paused_on(stream) {
        fail!(
            IllegalInCapture,
            "the capture {} of the stream (id {}) is paused; resume it or end it before another begins",
            graph.id(),
            stream.id()
        );
    }
    let _entered = device.enter_relaxed(driver)?;
    if info(driver, stream)?.is_some() {
        fail!(
            IllegalInCapture,
            "the stream (id {}) of \"{}\" is being captured already; end that capture first",
            stream.id(),
            device.alias()
        );
    }
    let native = stream.native();
    let reached = peer::snapshot(driver, device);
    log::after(|| {
        let _alone = known::alone();
        // Nobody could end it if the handle is stale by now, or everything shut down.
        runtime::require_live()?;
        stream::enter(stream::handle_of(stream))?;
        stream::begin_capture(|| match options.into {
            Some(graph) => driver.begin_capture_into(native, graph, &[], mode),
            None => driver.begin_capture(native, mode),
        })
        .map_err(|f| device.error(driver, f).context("the begin of a capture"))?;
        let known = info(driver, stream).and_then(|info| {
            let Some(info) = info else {
                fail!(DriverError, "the capture of the stream (id {}) began and is not there", stream.id())
            };
            register(driver, stream, &info, Some(mode), options, reached)
        });
        known.map(drop).inspect_err(|_| {
            if let Some(graph) = leave(driver, native, None)
                && options.into.is_none()
            {
                let _ = driver.destroy_graph(graph);
            }
        })
    })
}

/// Takes note of a capture that other code began on the stream, and will end.
pub fn adopt(stream: &Entered<Stream>, no_allocations: bool) -> Result<()> {
    if !stream.device().is_cuda() {
        fail!(
            InvalidArgument,
            "the CPU's stream is captured by this library alone, and no other code can have begun that; there is nothing to adopt"
        );
    }
    let (driver, device) = require(stream)?;
    let _context = stream.enter_context(driver)?;
    let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
    let Some(info) = active(stream, info(driver, stream)?)? else {
        fail!(
            InvalidArgument,
            "the stream (id {}) of \"{}\" is not being captured; begin the capture where it is begun, then adopt it",
            stream.id(),
            device.alias()
        );
    };
    if let Some(graph) = find(info.id) {
        if graph.is_ours() {
            fail!(IllegalInCapture, "the capture {} of the stream (id {}) began here", info.id, stream.id());
        }
        return Ok(());
    }
    watch_foreign(driver, stream, no_allocations).map(drop)
}

/// Ends the capture. The graph, unless it is somebody else's; `taken` when there is somebody to take it.
pub fn end(stream: &Entered<Stream>, taken: bool) -> Result<Option<Handle>> {
    if !stream.device().is_cuda() {
        return cpu::end(taken).map(Some);
    }
    let (driver, device, graph) = find_to_end(stream, "ended")?;
    if !taken && graph.is_ours() && !graph.origin.borrowed {
        fail!(
            InvalidArgument,
            "out is NULL; it is where the graph of the capture {} goes, which goes on (warp_capture_abandon() gives it up)",
            graph.id()
        );
    }
    if !graph.is_ours() {
        let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
        graph.hand_over(driver);
        forget(graph.index());
        return Ok(None);
    }
    claim_end(&graph, stream)?;
    let handle = GRAPHS.handle_of(graph.index());
    let whole = log::after(|| {
        // Whoever sees it going on meanwhile has to find it among the known ones.
        let _alone = known::alone();
        let whole =
            finish(driver, device, stream, &graph).inspect_err(|_| unwind(driver, device, stream, &graph));
        forget(graph.index());
        whole
    });
    match whole {
        Ok(()) if graph.origin.borrowed => {
            drop(GRAPHS.close(handle));
            Ok(None)
        }
        Ok(()) => Ok(Some(handle)),
        Err(error) => {
            drop(GRAPHS.close(handle));
            Err(error)
        }
    }
}

fn finish(
    driver: &'static Driver,
    device: &'static Device,
    stream: &Entered<Stream>,
    graph: &Entered<Graph>,
) -> Result<()> {
    let _entered = device.enter_relaxed(driver)?;
    if !graph.is_paused()
        && let Err(error) = require_whole(driver, stream, graph)
        // Another thread may pause it meanwhile.
        && !graph.is_paused()
    {
        return Err(error);
    }
    let failed = |f| device.error(driver, f).context("the end of a capture");
    let native = graph.end(driver).map_err(failed)?;
    if graph.origin.borrowed { gone::watch(driver, graph, native).map_err(failed) } else { Ok(()) }
}

/// Before other code gets hold of the native graph, or another graph a copy of it: from then on only the driver knows when
/// nothing of it runs any more. A context is current, and the thread's capture mode relaxed.
pub fn share(driver: &'static Driver, graph: &Entered<Graph>) -> Result<()> {
    graph
        .share(|native| gone::watch(driver, graph, native))
        .map_err(|f| graph.device().error(driver, f).context("a graph that is shared"))
}

/// Gives the capture up: nothing of it ever runs.
pub fn abandon(stream: &Entered<Stream>) -> Result<()> {
    if !stream.device().is_cuda() {
        return cpu::abandon();
    }
    let (driver, device, graph) = find_to_end(stream, "given up")?;
    if !graph.is_ours() {
        fail!(
            InvalidArgument,
            "the capture {} of the stream (id {}) was begun by other code; give it up there",
            graph.id(),
            stream.id()
        );
    }
    claim_end(&graph, stream)?;
    log::after(|| {
        let _alone = known::alone();
        unwind(driver, device, stream, &graph);
        forget(graph.index());
    });
    drop(GRAPHS.close(GRAPHS.handle_of(graph.index())));
    Ok(())
}

/// Of several threads that end a relaxed capture one does: the unwinding of the others would take its graph away.
fn claim_end(graph: &Entered<Graph>, stream: &Stream) -> Result<()> {
    if graph.claim_end() {
        return Ok(());
    }
    fail!(
        InvalidArgument,
        "the capture {} of the stream (id {}) is just being ended or given up by another thread",
        graph.id(),
        stream.id()
    )
}

/// Makes the stream an ordinary one again, and the memory of its capture something that will never be.
fn unwind(
    driver: &'static Driver,
    device: &'static Device,
    stream: &Entered<Stream>,
    graph: &Entered<Graph>,
) {
    GRAPHS.set_word(graph.index(), VOID);
    meanwhile::forget_memory(graph);
    if let Ok(_context) = device.enter(driver)
        && let Ok(_relaxed) = driver.relax_capture()
    {
        let ended =
            if graph.is_paused() { None } else { leave(driver, stream.native(), Some(graph.native_id())) };
        if let Some(native) = graph.void(ended) {
            let _ = driver.destroy_graph(native);
        }
    } else {
        graph.void(None);
    }
}

/// Ends what the stream captures, unless that is known to be another capture than the one that is named, and gives what
/// became of it. Twice, since the driver may have refused for a passing reason.
fn leave(driver: &Driver, native: RawStream, named: Option<u64>) -> Option<RawGraph> {
    for _ in 0..2 {
        // One that is broken has no number.
        let is_another = |id: Option<u64>| match (id, named) {
            (None, _) => true,
            (Some(id), Some(named)) => id != 0 && id != named,
            (Some(_), None) => false,
        };
        if driver.capture_id(native).is_ok_and(is_another) {
            return None;
        }
        if let Ok(graph) = driver.end_capture(native)
            && graph != RawGraph::NULL
        {
            return Some(graph);
        }
    }
    None
}

/// Stops capturing for a while: what is put on the stream runs.
pub fn pause(stream: &Entered<Stream>) -> Result<()> {
    if !stream.device().is_cuda() {
        return cpu::pause();
    }
    let (driver, device, graph) = find_to_end(stream, "paused")?;
    if !graph.is_ours() {
        fail!(
            NotSupported,
            "the capture {} of the stream (id {}) was begun by other code, and only captures of this library can be paused",
            graph.id(),
            stream.id()
        );
    }
    if graph.is_paused() {
        fail!(
            IllegalInCapture,
            "the capture {} of the stream (id {}) is paused already",
            graph.id(),
            stream.id()
        );
    }
    let _entered = device.enter_relaxed(driver)?;
    require_whole(driver, stream, &graph)?;
    match graph.pause(driver) {
        Ok(true) => Ok(()),
        Ok(false) => fail!(
            IllegalInCapture,
            "the capture {} of the stream (id {}) was ended or paused by another thread meanwhile",
            graph.id(),
            stream.id()
        ),
        Err(f) => Err(device.error(driver, f).context("the pause of a capture")),
    }
}

/// Goes on with a paused capture.
pub fn resume(stream: &Entered<Stream>) -> Result<()> {
    if !stream.device().is_cuda() {
        return cpu::resume();
    }
    let (driver, device, graph) = find_to_end(stream, "resumed")?;
    if !graph.is_paused() {
        fail!(
            IllegalInCapture,
            "the capture {} of the stream (id {}) is not paused",
            graph.id(),
            stream.id()
        );
    }
    let _entered = device.enter_relaxed(driver)?;
    log::after(|| {
        let _alone = known::alone();
        let id = graph
            .resume(driver)
            .map_err(|f| device.error(driver, f).context("the resumption of a capture"))?;
        meanwhile::remember(stream.native(), &graph);
        known::renumber(&graph, id);
        Ok(())
    })
}

/// Whether a stream is captured, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    None,
    Active,
    /// Something broke it: all that is left is to end it.
    Invalidated,
    Paused,
}

pub struct Description {
    pub state: State,
    pub id: u64,
    /// Of the stream that it began on; 0 where that is not known.
    pub origin_id: u64,
    /// `None` where other code began it.
    pub mode: Option<CaptureMode>,
    pub ours: bool,
}

impl Description {
    fn of_none() -> Description {
        Description { state: State::None, id: 0, origin_id: 0, mode: None, ours: false }
    }
}

/// What is known of the stream's capture.
pub fn describe(stream: &Entered<Stream>) -> Result<Description> {
    if !stream.device().is_cuda() {
        return cpu::describe(stream);
    }
    let mut answer = Description::of_none();
    let driver = stream.device().require_cuda("the state of a capture")?;
    if !driver.has_graphs() {
        // Captures are not to be had here, but other code may have them.
        let _context = stream.enter_context(driver)?;
        let status = driver.capture_status(stream.native()).map_err(|f| not_told(driver, stream, f))?;
        answer.state = match status {
            CaptureStatus::None => State::None,
            CaptureStatus::Active => State::Active,
            CaptureStatus::Invalidated => State::Invalidated,
        };
        return Ok(answer);
    }
    let known = if let Some(graph) = paused_on(stream) {
        answer.state = State::Paused;
        Some(graph)
    } else {
        let _context = stream.enter_context(driver)?;
        let Some(info) = info(driver, stream)? else { return Ok(answer) };
        answer.state = if info.active { State::Active } else { State::Invalidated };
        answer.id = info.id;
        find(info.id)
    };
    if let Some(graph) = known {
        answer.id = graph.id();
        answer.origin_id = stream::id_of(graph.origin.stream);
        answer.ours = graph.is_ours();
        answer.mode = graph.is_ours().then_some(graph.origin.mode);
    }
    Ok(answer)
}

/// The graph that a stream is captured into, for something that is about to be recorded: its capture is whole, known from
/// now on if it was not, and may be added to by this thread. `None` for a stream that is not captured. The stream's
/// context is entered, and the thread's capture mode relaxed.
pub fn of_stream(driver: &'static Driver, stream: &Entered<Stream>) -> Result<Option<Entered<Graph>>> {
    if !driver.has_graphs() {
        return stream.refuse_capture(driver, "this").map(|()| None);
    }
    let Some(info) = active(stream, info(driver, stream)?)? else { return Ok(None) };
    let graph = match find(info.id) {
        Some(graph) => graph,
        None => match watch_foreign(driver, stream, false)? {
            Some(graph) => graph,
            None => return Ok(None),
        },
    };
    if graph.is_ours() && !graph.is_this_threads() && graph.origin.mode != CaptureMode::Relaxed {
        fail!(
            IllegalInCapture,
            "the stream (id {}) of \"{}\" is being captured by another thread (capture {}), and what is put on it would not run: use another stream, or begin the capture relaxed to record on several threads",
            stream.id(),
            stream.device().alias(),
            graph.id()
        );
    }
    graph.catch_up(driver);
    Ok(Some(graph))
}

/// The node by which the stream's capture has just allocated an address.
pub fn node_of(driver: &Driver, stream: &Stream, address: u64) -> Option<RawNode> {
    order::node_of(driver, stream.native(), address).ok().flatten()
}

/// Keeps the graph from being released while the guard lives.
pub fn enter(handle: Handle) -> Result<Entered<Graph>> {
    GRAPHS.enter(handle)
}

/// The graph that a block or a use holds, released or not.
///
/// # Safety
/// The caller has a hold on `held` for as long as the reference lives.
pub unsafe fn held(held: u32) -> &'static Graph {
    // SAFETY: the caller's promise.
    unsafe { GRAPHS.held(held) }
}

/// Whether what holds this graph, as it was when it was seen, lies at addresses that the driver may give out again.
pub fn is_void(held: u32) -> bool {
    GRAPHS.word_of(held) == VOID
}

/// Takes another hold on the graph that a record names. False when the record is gone by now, and the graph with it.
pub fn hold_if_held(held: u32) -> bool {
    GRAPHS.hold_if_held(held)
}

/// Gives back a hold.
///
/// # Safety
/// The caller has that hold, and has it no more afterwards.
pub unsafe fn release_hold(held: u32) {
    // SAFETY: the caller's promise.
    unsafe { GRAPHS.release_hold(held) }
}

/// Makes the handle stale. The graph is destroyed when the calls inside have left; its runs go on to their end.
pub fn release(handle: Handle) -> Result<()> {
    GRAPHS.close(handle).map(drop)
}

/// At shutdown: captures are given up, on their streams where this thread may end them, and every graph is released.
pub fn dismantle() {
    // In a forked child the captures are the parent's, and so may be whoever has the list.
    let begun = if runtime::is_forked() { Vec::new() } else { known::forget_all() };
    cpu::forget_all();
    for graph in begun.into_iter().filter(|graph| graph.is_ours()) {
        if !graph.claim_end() {
            // Whoever ends it just now has a graph that is released below.
            continue;
        }
        let may_end =
            graph.is_this_threads() || graph.origin.mode == CaptureMode::Relaxed || graph.is_paused();
        if may_end
            && let Ok(driver) = runtime::driver()
            && let Some(stream) = stream::enter_held(thread::mine(), graph.origin.stream)
        {
            unwind(driver, graph.device(), &stream, &graph);
        } else {
            // Its thread has no graph of it any more, so nothing of it will ever run.
            graph.void(None);
        }
    }
    GRAPHS.close_where(|_| true);
}

/// After a fork, in the child.
///
/// # Safety
/// As `Registry::mend_in_child`.
pub unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe {
        GRAPHS.mend_in_child();
        known::mend_in_child();
        cpu::mend_in_child();
        gone::mend_in_child();
        turn::mend_in_child();
    }
}

fn require(stream: &Stream) -> Result<(&'static Driver, &'static Device)> {
    let device = stream.device();
    let driver = device.require_cuda("a capture")?;
    if !driver.has_graphs() {
        fail!(
            NotSupported,
            "captures need a CUDA driver 12.3 or newer, and this one lacks some of their calls"
        );
    }
    Ok((driver, device))
}

fn info(driver: &Driver, stream: &Stream) -> Result<Option<CaptureInfo>> {
    driver.capture_info(stream.native()).map_err(|f| not_told(driver, stream, f))
}

#[cold]
fn not_told(driver: &Driver, stream: &Stream, failure: Failure) -> Error {
    // The legacy stream refuses the question while a blocking stream captures; nothing can be put on it then.
    if !failure.is_capture() {
        return stream.device().error(driver, failure);
    }
    error!(
        IllegalInCapture,
        "the legacy stream of \"{}\" cannot be used while a blocking stream there is being captured, and that would be broken; use another stream, or wait for the end of the capture",
        stream.device().alias()
    )
    .with_driver_code(failure.code)
}

/// An error for a capture that is broken.
fn active(stream: &Stream, info: Option<CaptureInfo>) -> Result<Option<CaptureInfo>> {
    match info {
        Some(info) if !info.active => Err(broken(stream, info.id)),
        info => Ok(info),
    }
}

/// An error for a capture that other code broke or ended.
fn require_whole(driver: &Driver, stream: &Stream, graph: &Graph) -> Result<()> {
    // A capture that other code began there since is not this one. One that is broken has no number.
    let info = info(driver, stream)?.filter(|info| !info.active || info.id == graph.native_id());
    if active(stream, info)?.is_none() {
        fail!(
            IllegalInCapture,
            "the capture {} of the stream (id {}) is not there any more: other code ended it; end with warp_capture_end() what was begun with warp_capture_begin()",
            graph.id(),
            stream.id()
        );
    }
    Ok(())
}

#[cold]
fn broken(stream: &Stream, id: u64) -> Error {
    error!(
        IllegalInCapture,
        "the capture {id} of the stream (id {}) of \"{}\" was broken by a call that is not allowed while it goes on, made by other code; end it, and capture again",
        stream.id(),
        stream.device().alias()
    )
    .with_driver_code(CAPTURE_INVALIDATED)
}

/// The capture of the stream, for a call that changes it; the capture is whole afterwards if that is refused.
fn find_to_end(
    stream: &Entered<Stream>,
    what: &str,
) -> Result<(&'static Driver, &'static Device, Entered<Graph>)> {
    let (driver, device) = require(stream)?;
    let graph = match begun_on(stream) {
        Some(graph) => graph,
        None => return Err(why_not_here(driver, stream, what)),
    };
    if !graph.is_this_threads() && graph.origin.mode != CaptureMode::Relaxed {
        fail!(
            IllegalInCapture,
            "the capture {} of the stream (id {}) can only be {what} by the thread that began it, unless it was begun relaxed; it goes on",
            graph.id(),
            stream.id()
        );
    }
    Ok((driver, device, graph))
}

#[cold]
fn why_not_here(driver: &'static Driver, stream: &Entered<Stream>, what: &str) -> Error {
    let asked = stream.enter_context(driver).and_then(|_context| info(driver, stream));
    match asked {
        Err(error) => error,
        Ok(None) => error!(
            InvalidArgument,
            "no capture goes on on the stream (id {}) of \"{}\" that could be {what}",
            stream.id(),
            stream.device().alias()
        ),
        Ok(Some(info)) => match find(info.id) {
            Some(graph) => error!(
                InvalidArgument,
                "the capture {} began on the stream with id {}, and the stream with id {} only takes part in it; it can be {what} on the first",
                info.id,
                stream::id_of(graph.origin.stream),
                stream.id()
            ),
            None => error!(
                InvalidArgument,
                "the capture {} of the stream (id {}) was begun by other code and can be {what} there; see warp_capture_adopt()",
                info.id,
                stream.id()
            ),
        },
    }
}
