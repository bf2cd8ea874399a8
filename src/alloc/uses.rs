//! Which streams, beside its own, used a block: a free must come after their work too. Most blocks are used on
//! their own stream only and never appear here.

use super::{Block, HOLDS_STREAM, Kind, LEDGER, OF_GRAPH, PER_THREAD, USED_ELSEWHERE, caching, parked};
use crate::capture::{self, Graph, LastRun};
use crate::error::{Result, error};
use crate::fork::Lock;
use crate::handle::Entered;
use crate::ledger::Record;
use crate::log;
use crate::runtime;
use crate::stream::{self, Stream};
use crate::thread;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// In a forked child: graphs of the parent may use it too, and which ones nobody knows any more.
    pub lost: bool,
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
static USES: [Lock<Option<Shard>>; SHARDS] = [const { Lock::new(None) }; SHARDS];

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    for shard in &USES {
        // SAFETY: the caller's promise.
        unsafe { shard.replace_in_child(None) };
    }
}

fn shard(base: u64) -> &'static Lock<Option<Shard>> {
    // Blocks are at least 256 bytes apart, large ones megabytes.
    &USES[(base >> 8 ^ base >> 21) as usize % SHARDS]
}

/// Notes that work on `stream` uses the block that the address lies in. Memory that is not ours, and memory
/// that no driver frees, needs no note.
pub fn record_use(address: u64, stream: &Entered<Stream>) {
    if let Some(record) = caching::find(address) {
        note(&record, stream);
    }
}

/// As `record_use`, of a block that was found just now.
#[inline]
pub fn record_use_of_block(block: &Block, stream: &Entered<Stream>) {
    note(&block.0, stream);
}

/// As `record_use`, at a caller's request: an address that is in no live block is an error.
pub fn record_use_of(address: u64, stream: &Entered<Stream>) -> Result<()> {
    let record = find(address)?;
    if !stream.device().is_cuda() {
        if let Some(graph) = capture::of_cpu()? {
            note_graph(&record, &graph);
        }
        return Ok(());
    }
    if let Ok(driver) = runtime::driver() {
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
    caching::find(address).ok_or_else(|| {
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
    if own {
        return;
    }
    caching::tell(record.base());
    let (forked, was_used) = (runtime::is_forked(), record.flags() & USED_ELSEWHERE != 0);
    let mut shard = shard(record.base()).write();
    let uses = shard
        .get_or_insert_with(HashMap::new)
        .entry(record.base())
        .or_insert_with(|| Uses { lost: forked && was_used, ..Uses::default() });
    if uses.graphs.contains(&graph.index()) && was_used {
        return;
    }
    // A block that outlives many graphs does not keep them all.
    // SAFETY: the use has a hold.
    let is_over = |graph: &mut u32| unsafe { capture::held(*graph) }.is_over();
    let mut over = Uses { graphs: uses.graphs.extract_if(.., is_over).collect(), ..Uses::default() };
    uses.graphs.push(graph.hold());
    let mut left = Uses::default();
    if !mark_used(record.base()) {
        // Freed meanwhile; the list is nobody's any more.
        left = shard.as_mut().and_then(|shard| shard.remove(&record.base())).unwrap_or_default();
        TAKEN_AWAY.fetch_add(1, Ordering::AcqRel);
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

/// How often notes were taken away: what a thread remembers of one may be of a block that is gone.
static TAKEN_AWAY: AtomicU64 = AtomicU64::new(0);

/// A note that a thread has made: the block's base, the stream's slot, and what `TAKEN_AWAY` was before.
type Noted = (u64, u32, u64);
const REMEMBERED: usize = 16;

thread_local! {
    /// Notes that are surely there, so that who works with a few blocks on a stream does not look each of them up each time. Plain
    /// numbers, so that nothing runs when a thread ends.
    static NOTED: Cell<[Noted; REMEMBERED]> = const { Cell::new([(0, 0, 0); REMEMBERED]) };
}

#[inline]
fn place_of(base: u64) -> usize {
    // Blocks are at least 256 bytes apart; the upper bits of the product depend on all of the number's.
    ((base >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % REMEMBERED
}

#[inline]
fn note(record: &Record, stream: &Entered<Stream>) {
    if record.flags() & USED_ELSEWHERE != 0
        && NOTED.get()[place_of(record.base())]
            == (record.base(), stream.index(), TAKEN_AWAY.load(Ordering::Acquire))
    {
        return;
    }
    note_anew(record, stream);
}

fn note_anew(record: &Record, stream: &Entered<Stream>) {
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
    caching::tell(record.base());
    let taken_away = TAKEN_AWAY.load(Ordering::Acquire);
    // The receiver of a message may come here again.
    let (over, noted) = log::after(|| note_in(&mut shard(record.base()).write(), record, stream));
    over.into_iter().for_each(Use::let_go);
    // Each thread's own default stream is another one.
    if noted && !stream.is_per_thread() {
        let mut all = NOTED.get();
        all[place_of(record.base())] = (record.base(), stream.index(), taken_away);
        NOTED.set(all);
    }
}

/// Notes the use under the lock of the block's shard, and says in the record that there is one. Gives the uses that
/// need no note any more, and whether this one is noted.
fn note_in(shard: &mut Option<Shard>, record: &Record, stream: &Entered<Stream>) -> (Vec<Use>, bool) {
    let shard = shard.get_or_insert_with(HashMap::new);
    let uses = &mut shard.entry(record.base()).or_default().streams;
    let known = uses.iter().any(|of| of.is_on(stream));
    if known && record.flags() & USED_ELSEWHERE != 0 {
        return (Vec::new(), true);
    }
    let (mut over, mut noted) = (Vec::new(), true);
    if !known {
        if uses.len() >= LONG && uses.len().is_power_of_two() {
            over = take_those_that_are_gone(uses);
        }
        uses.push(Use::on(stream));
    }
    // A free takes the record out first and the list then, so it finds both or neither.
    if !mark_used(record.base()) && !known {
        // Freed meanwhile: nobody will ask for the note any more.
        noted = false;
        over.extend(uses.pop());
        if shard.get(&record.base()).is_some_and(Uses::is_empty) {
            shard.remove(&record.base());
        }
    }
    (over, noted)
}

/// A block that outlives many streams does not keep them all: a stream whose handle was released has no more
/// uses to come, and once its work is done there is nothing to wait for.
#[cold]
fn take_those_that_are_gone(uses: &mut Vec<Use>) -> Vec<Use> {
    let Ok(driver) = runtime::driver() else { return Vec::new() };
    let Ok(_relaxed) = driver.relax_capture() else { return Vec::new() };
    // Another stream may get the place of one that is let go.
    TAKEN_AWAY.fetch_add(1, Ordering::AcqRel);
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
    let known = shard(base).write().as_mut().and_then(|uses| uses.remove(&base));
    if known.is_some() {
        TAKEN_AWAY.fetch_add(1, Ordering::AcqRel);
    }
    known.unwrap_or_else(|| Uses { lost: runtime::is_forked(), ..Uses::default() })
}
