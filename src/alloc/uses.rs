//! Which streams, beside its own, used a block: a free must come after their work too. Most blocks are used on
//! their own stream only and never appear here.

use super::{Kind, LEDGER, USED_ELSEWHERE};
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::ledger::Record;
use crate::runtime;
use crate::stream::{self, Stream};
use parking_lot::Mutex;
use std::collections::HashMap;

const SHARDS: usize = 64;

/// Held streams by block.
type Uses = HashMap<u64, Vec<u32>>;
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
        None => fail!(UnknownPointer, "{address:#x} lies in no live block of this library"),
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
    // Each thread's own default stream is another one, so using it is noted even when the handle is the same.
    if own && !stream.is_per_thread() {
        return;
    }
    let mut uses = shard(record.base()).lock();
    let streams = uses.get_or_insert_with(HashMap::new).entry(record.base()).or_default();
    if !streams.contains(&stream.index()) {
        streams.push(stream.hold());
    }
    drop(uses);
    if record.flags() & USED_ELSEWHERE == 0
        && !LEDGER.update(record.base(), |now| now.set_flags(now.flags() | USED_ELSEWHERE))
    {
        // Freed meanwhile: nobody will ask for the note any more.
        for held in take(record.base()) {
            // SAFETY: the list had the hold and is gone.
            unsafe { stream::release_hold(held) };
        }
    }
}

/// Takes the list of a block that is going away; the holds are the caller's.
pub fn take(base: u64) -> Vec<u32> {
    shard(base).lock().as_mut().and_then(|uses| uses.remove(&base)).unwrap_or_default()
}
