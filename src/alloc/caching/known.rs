//! Cached blocks among all others. Who has one, and how many bytes were asked for, the block itself says; the ledger knows only those
//! of which there is more to say.

use super::{Caching, ever_was, of};
use crate::alloc::{HOLDS_STREAM, LEDGER};
use crate::allocator;
use crate::cache::{self, Block, Lane, Life, State};
use crate::error::Result;
use crate::ledger::Record;
use crate::log::log;
use crate::stream;
use crate::thread;
use std::sync::atomic::Ordering;

/// What a block as the cache has it looks like to the ledger.
fn as_record(block: &Block, chunk: &Record, base: u64, size: u64, tag: u32) -> Record {
    let record = chunk.moved(base, size).with_tag(tag).with_graph(0);
    let Some(of) = block.lane().map(cache::Lane::of) else { return record };
    let record = record.with_allocator(of.allocator() + 1);
    match of.stream() {
        Some(stream) => record.with_stream(stream).with_flags(chunk.flags() | HOLDS_STREAM),
        None => record,
    }
}

/// A cached block, by an address in it.
pub enum Cached {
    /// A caller has it, and the ledger does not know it.
    Out(&'static Block, Life, Record),
    /// The ledger says whose it is, if anybody's.
    Told,
    /// Nobody has it, or only the rest behind the bytes that were asked for.
    Nobodys,
}

/// What there is at an address, where that is cached.
#[inline]
pub fn cached(address: u64) -> Option<Cached> {
    if ever_was() { look(address) } else { None }
}

fn look(address: u64) -> Option<Cached> {
    loop {
        let (block, chunk) = cache::find(address)?;
        let life = block.life();
        match life.state() {
            State::Out => {
                let Some((base, size, tag)) = block.out(life) else { continue };
                let record = as_record(block, &chunk, base, size, tag);
                if record.contains(address) {
                    return Some(Cached::Out(block, life, record));
                }
                return nobodys(&chunk);
            }
            State::Telling => std::thread::yield_now(),
            State::Told => return Some(Cached::Told),
            State::Void | State::Free | State::AtHand => return nobodys(&chunk),
        }
    }
}

/// Where memory went with its context, other memory may be by now.
#[cold]
fn nobodys(chunk: &Record) -> Option<Cached> {
    if super::lost::is_of_lost(chunk) { None } else { Some(Cached::Nobodys) }
}

/// The record of the caller's block that an address lies in.
#[inline]
pub fn find(address: u64) -> Option<Record> {
    match cached(address) {
        None | Some(Cached::Told) => LEDGER.find(address),
        Some(Cached::Out(_, _, record)) => Some(record),
        Some(Cached::Nobodys) => None,
    }
}

/// As `find`, of a block that the ledger does not know.
#[inline]
pub fn find_unknown(address: u64) -> Option<Record> {
    match cached(address) {
        Some(Cached::Out(_, _, record)) => Some(record),
        _ => None,
    }
}

/// Whether a block that began there went back to a cache a short while ago.
pub fn was_freed(base: u64) -> bool {
    ever_was() && cache::was_freed(base)
}

/// Whether an address lies in memory that a cache has, and no caller.
pub fn is_kept(address: u64) -> bool {
    matches!(cached(address), Some(Cached::Nobodys))
}

/// Every block that a caller has.
pub fn each(mut visit: impl FnMut(Record)) {
    LEDGER.for_each(&mut visit);
    cache::each(|block, chunk| {
        if let Some((base, size, tag)) = block.out(block.life())
            && chunk.contains(base)
        {
            visit(as_record(block, chunk, base, size, tag));
        }
    });
}

/// Has the ledger know the block that an address lies in. It does when this comes back, also where another thread was faster.
pub fn tell(address: u64) {
    // Who is in the middle of it is waited for by the look.
    while let Some(Cached::Out(block, life, record)) = cached(address)
        && let Some(slot) = record.allocator().checked_sub(1)
        && let Some(from) = allocator::hold_by_slot(slot)
        && of(&from).is_some()
    {
        match tell_block(block, life, &record) {
            Ok(true) => return,
            Ok(false) => {}
            // Then what was to be said of the block is not said.
            Err(error) => {
                log!(
                    Error,
                    "the ledger does not know the {} bytes at {:#x}: {error}",
                    record.size(),
                    record.base()
                );
                return;
            }
        }
    }
}

/// Has the ledger know a block that is out in that life; the caller has a hold on its allocator. False when that is over, or another
/// thread is in the middle of it: then nothing is done.
fn tell_block(block: &'static Block, life: Life, record: &Record) -> Result<bool> {
    let stream = (record.flags() & HOLDS_STREAM != 0).then(|| record.stream());
    let slot = record.allocator().checked_sub(1);
    while block.turn(life, State::Telling) {
        // SAFETY: the lane holds its stream while a block of it is out, and the caller the allocator.
        unsafe {
            stream.inspect(|stream| stream::hold_again(*stream));
            slot.inspect(|slot| allocator::hold_again(*slot));
        }
        let entered = crate::alloc::enter_unless_stale(&LEDGER, thread::mine(), record);
        if let Ok(None) = entered {
            block.tell();
            return Ok(true);
        }
        block.turn(block.life(), State::Out);
        // SAFETY: taken just now, and no record has them.
        unsafe {
            stream.inspect(|stream| stream::release_hold(*stream));
            slot.inspect(|slot| allocator::release_hold(*slot));
        }
        // Others wait for who is in the middle of telling, so other code is called while nobody is.
        if let Some(stale) = entered? {
            crate::alloc::drop_stale(&LEDGER, &stale, record);
        }
    }
    Ok(false)
}

impl Caching {
    /// Has the ledger know all its blocks.
    pub fn tell_all(&self) -> Result<()> {
        let slot = self.slot.load(Ordering::Acquire);
        self.tell_blocks_of(|lane| lane.of().allocator() + 1 == slot)
    }

    /// Has the ledger know all blocks of some of its lanes.
    pub fn tell_blocks_of(&self, is_one: impl Fn(&Lane) -> bool) -> Result<()> {
        let mut blocks = Vec::new();
        cache::each(|block, chunk| {
            let life = block.life();
            if let Some((base, size, tag)) = block.out(life)
                && block.lane().is_some_and(&is_one)
            {
                blocks.push((block, life, as_record(block, chunk, base, size, tag)));
            }
        });
        blocks.into_iter().try_for_each(|(block, life, record)| tell_block(block, life, &record).map(drop))
    }
}
