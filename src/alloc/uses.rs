//! Which streams, beside its own, used a block: a free must come after their work too. Most blocks are used on
//! their own stream only and never appear here.

use super::{HOLDS_STREAM, Kind, LEDGER, OF_GRAPH, PER_THREAD, USED_ELSEWHERE, parked};
use crate::capture::{self, Graph, LastRun};
use crate::error::{Result, error};
use crate::handle::Entered;
use crate::ledger::Record;
use crate::log;
use crate::runtime;
use crate::stream::{self, Stream};
use crate::thread;
use parking_lot::Mutex;
use std::collections::HashMap;

/// A block's use on a stream, with a hold on it.
#[derive(Debug, PartialEq, Eq)]
pub struct Use {
    pub held: u32,
    /// Of a stream that is each thread's own default stream: the thread whose it was. Else 0.
    thread: u32,
}

impl Use {
    /// A use on a stream by the calling thread.
    pub fn on(stream: &Entered<Stream>) -> Use {
        let thread = if stream.is_per_thread() { stream::thread_mark() } else { 0 };
        Use { held: stream.hold(), thread }
    }

    /// The use that the last run of a graph is, with the hold that the graph had.
    pub fn of_run(run: LastRun) -> Use {
        Use { held: run.stream, thread: run.thread }
    }

    /// The use that a block's own stream is, with the hold that the record has.
    pub fn of_own_stream(record: &Record) -> Use {
        Use { held: record.stream(), thread: own_thread(record) }
    }

    fn is_on(&self, stream: &Entered<Stream>) -> bool {
        if stream.is_untracked() {
            // SAFETY: the use has a hold.
            let of = unsafe { stream::held(self.held) };
            // What is waited for is the same for all of a context.
            return of.is_untracked() && std::ptr::eq(of.device(), stream.device());
        }
        self.held == stream.index() && (!stream.is_per_thread() || self.thread == stream::thread_mark())
    }

    /// Whether it was on the default stream of another thread than the calling one.
    pub fn is_another_threads(&self) -> bool {
        self.thread != 0 && !stream::is_this_thread(self.thread)
    }

    /// Gives the hold back.
    pub fn let_go(self) {
        // SAFETY: the use had the hold and is gone.
        unsafe { stream::release_hold(self.held) };
    }
}

/// What used a block beside its own stream, with holds on all of it.
#[derive(Debug, Default)]
pub struct Uses {
    pub streams: Vec<Use>,
    /// Graphs whose runs use it.
    pub graphs: Vec<u32>,
}

impl Uses {
    fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.graphs.is_empty()
    }

    /// Gives all holds back.
    pub fn let_go(self) {
        self.streams.into_iter().for_each(Use::let_go);
        for graph in self.graphs {
            // SAFETY: the use had the hold and is gone.
            unsafe { capture::release_hold(graph) };
        }
    }
}

/// The thread on whose own default stream the block was allocated, 0 for blocks of other streams.
pub fn own_thread(record: &Record) -> u32 {
    if record.flags() & PER_THREAD != 0 { record.context() } else { 0 }
}

const SHARDS: usize = 64;
/// Lists of this length, and of its multiples by powers of two, are looked through for streams that are gone.
const LONG: usize = 16;

type Shard = HashMap<u64, Uses>;
static USES: [Mutex<Option<Shard>>; SHARDS] = [const { Mutex::new(None) }; SHARDS];

fn shard(base: u64) -> &'static Mutex<Option<Shard>> {
    // Blocks are at least 256 bytes apart, large ones megabytes.
    &USES[(base >> 8 ^ base >> 21) as usize % SHARDS]
}

/// Notes that work on `stream` uses the block that the address lies in. Memory that is not ours, and memory
/// that no driver frees, needs no note.
pub fn record_use(address: u64, stream: &Entered<Stream>) {
    if let Some(record) = LEDGER.find(address) {
        note(&record, stream);
    }
}

/// As `record_use`, at a caller's request: an address that is in no live block is an error.
pub fn record_use_of(address: u64, stream: &Entered<Stream>) -> Result<()> {
    let record = find(address)?;
    if stream.device().is_cuda()
        && let Ok(driver) = runtime::driver()
    {
        let device = stream.device();
        let _context = stream.enter_context(driver)?;
        if stream.is_capturing(driver).map_err(|f| device.error(driver, f))? {
            let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
            if let Some(graph) = capture::of_stream(driver, stream)? {
                note_graph(&record, &graph);
            }
            return Ok(());
        }
    }
    note(&record, stream);
    Ok(())
}

fn find(address: u64) -> Result<Record> {
    LEDGER.find(address).ok_or_else(|| {
        error!(UnknownPointer, "{address:#x} lies in no live block of this library, and only those have uses")
    })
}

/// Notes that runs of the graph use the block that the address lies in; an address that is in no live block is an error.
pub fn record_use_by(address: u64, graph: &Entered<Graph>) -> Result<()> {
    note_graph(&find(address)?, graph);
    Ok(())
}

/// Notes that runs of the graph use the block.
pub fn note_graph(record: &Record, graph: &Entered<Graph>) {
    let own = record.flags() & OF_GRAPH != 0 && record.graph() == graph.index();
    if own || runtime::is_forked() {
        return;
    }
    let mut shard = shard(record.base()).lock();
    let uses = shard.get_or_insert_with(HashMap::new).entry(record.base()).or_default();
    if uses.graphs.contains(&graph.index()) && record.flags() & USED_ELSEWHERE != 0 {
        return;
    }
    // A block that outlives many graphs does not keep them all.
    // SAFETY: the use has a hold.
    let is_over = |graph: &mut u32| unsafe { capture::held(*graph) }.is_over();
    let mut over = Uses { streams: Vec::new(), graphs: uses.graphs.extract_if(.., is_over).collect() };
    uses.graphs.push(graph.hold());
    let mut left = Uses::default();
    if !mark_used(record.base()) {
        // Freed meanwhile; the list is nobody's any more.
        left = shard.as_mut().and_then(|shard| shard.remove(&record.base())).unwrap_or_default();
    }
    // With the last hold more may go, which must not happen under the lock.
    drop(shard);
    over.graphs.append(&mut left.graphs);
    over.streams.append(&mut left.streams);
    over.let_go();
}

/// Says in the record that there is a list of uses. False when the block was freed meanwhile.
fn mark_used(base: u64) -> bool {
    LEDGER.update(base, |now| now.set_flags(now.flags() | USED_ELSEWHERE))
}

fn note(record: &Record, stream: &Entered<Stream>) {
    let kind = Kind::of_record(record);
    // In a forked child nothing of a GPU is freed, so nothing has to be noted.
    if kind == Kind::Host || !stream.device().is_cuda() || runtime::is_forked() {
        return;
    }
    // What was put on a graph block's stream in its capture is in the graph; what comes later is not.
    let own = record.flags() & (HOLDS_STREAM | OF_GRAPH) == HOLDS_STREAM && record.stream() == stream.index();
    // Each thread's own default stream is another one, even when the handle is the same.
    if own && (!stream.is_per_thread() || own_thread(record) == stream::thread_mark()) {
        return;
    }
    // The receiver of a message may come here again.
    let over = log::after(|| note_in(&mut shard(record.base()).lock(), record, stream));
    over.into_iter().for_each(Use::let_go);
}

/// Notes the use under the lock of the block's shard, and says in the record that there is one. Gives the uses that
/// need no note any more.
fn note_in(shard: &mut Option<Shard>, record: &Record, stream: &Entered<Stream>) -> Vec<Use> {
    let shard = shard.get_or_insert_with(HashMap::new);
    let uses = &mut shard.entry(record.base()).or_default().streams;
    let known = uses.iter().any(|of| of.is_on(stream));
    if known && record.flags() & USED_ELSEWHERE != 0 {
        return Vec::new();
    }
    let mut over = Vec::new();
    if !known {
        if uses.len() >= LONG && uses.len().is_power_of_two() {
            over = take_those_that_are_gone(uses);
        }
        uses.push(Use::on(stream));
    }
    // A free takes the record out first and the list then, so it finds both or neither.
    if !mark_used(record.base()) && !known {
        // Freed meanwhile: nobody will ask for the note any more.
        over.extend(uses.pop());
        if shard.get(&record.base()).is_some_and(Uses::is_empty) {
            shard.remove(&record.base());
        }
    }
    over
}

/// A block that outlives many streams does not keep them all: a stream whose handle was released has no more
/// uses to come, and once its work is done there is nothing to wait for.
#[cold]
fn take_those_that_are_gone(uses: &mut Vec<Use>) -> Vec<Use> {
    let Ok(driver) = runtime::driver() else { return Vec::new() };
    let Ok(_relaxed) = driver.relax_capture() else { return Vec::new() };
    let gone = |of: &mut Use| {
        // SAFETY: the use has a hold.
        let stream = unsafe { stream::held(of.held) };
        stream.device().is_lost()
            || stream::enter_held(thread::mine(), of.held).is_none()
                && stream
                    .device()
                    .enter(driver)
                    .is_ok_and(|_context| parked::has_ended(driver, stream).unwrap_or(false))
    };
    uses.extract_if(.., gone).collect()
}

/// Takes the list of a block that is going away; the holds are the caller's.
pub fn take(base: u64) -> Uses {
    shard(base).lock().as_mut().and_then(|uses| uses.remove(&base)).unwrap_or_default()
}
