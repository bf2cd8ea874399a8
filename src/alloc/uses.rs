//! Which streams, beside its own, used a block: a free must come after their work too. Most blocks are used on
//! their own stream only and never appear here.

use super::{Kind, LEDGER, PER_THREAD, USED_ELSEWHERE, parked};
use crate::error::{Result, fail};
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

/// The thread on whose own default stream the block was allocated, 0 for blocks of other streams.
pub fn own_thread(record: &Record) -> u32 {
    if record.flags() & PER_THREAD != 0 { record.context() } else { 0 }
}

const SHARDS: usize = 64;
/// Lists of this length, and of its multiples by powers of two, are looked through for streams that are gone.
const LONG: usize = 16;

type Uses = HashMap<u64, Vec<Use>>;
static USES: [Mutex<Option<Uses>>; SHARDS] = [const { Mutex::new(None) }; SHARDS];

fn shard(base: u64) -> &'static Mutex<Option<Uses>> {
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
    match LEDGER.find(address) {
        Some(record) => note(&record, stream),
        None => fail!(
            UnknownPointer,
            "{address:#x} lies in no live block of this library, and only those have uses"
        ),
    }
    Ok(())
}

fn note(record: &Record, stream: &Entered<Stream>) {
    let kind = Kind::of_record(record);
    // In a forked child nothing of a GPU is freed, so nothing has to be noted.
    if kind == Kind::Host || !stream.device().is_cuda() || runtime::is_forked() {
        return;
    }
    let own = record.flags() & super::HOLDS_STREAM != 0 && record.stream() == stream.index();
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
fn note_in(shard: &mut Option<Uses>, record: &Record, stream: &Entered<Stream>) -> Vec<Use> {
    let shard = shard.get_or_insert_with(HashMap::new);
    let uses = shard.entry(record.base()).or_default();
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
    if !LEDGER.update(record.base(), |now| now.set_flags(now.flags() | USED_ELSEWHERE)) && !known {
        // Freed meanwhile: nobody will ask for the note any more.
        over.extend(uses.pop());
        if uses.is_empty() {
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
pub fn take(base: u64) -> Vec<Use> {
    shard(base).lock().as_mut().and_then(|uses| uses.remove(&base)).unwrap_or_default()
}
