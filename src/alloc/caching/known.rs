//! What the ledger says of cached blocks. The record of a block that is on the usual way says where it lies and where to look; the
//! block itself says whether somebody has it, and how many bytes were asked for.

use super::{Caching, of};
use crate::alloc::{HOLDS_STREAM, IN_CACHE, LEDGER, statistics};
use crate::allocator;
use crate::cache::{self, Block, Lane, State};
use crate::device;
use crate::ledger::Record;
use crate::log::log;
use crate::stream;
use crate::thread;
use std::sync::atomic::Ordering;

/// What a record with the mark stands for at the moment.
enum Seen {
    Block(Record),
    /// Nobody has it.
    Nobody,
    /// It is becoming a block like any other.
    Changing,
}

#[inline]
fn see(record: &Record) -> Seen {
    let Some(block) = cache::at(record.graph()) else { return Seen::Nobody };
    match block.out(record.base()) {
        Some((size, tag)) => Seen::Block(as_block(record, size, tag)),
        None if block.state() == State::Told && block.base() == record.base() => Seen::Changing,
        None => Seen::Nobody,
    }
}

fn as_block(record: &Record, size: u64, tag: u32) -> Record {
    record.resized(size).with_tag(tag).with_graph(0).with_flags(record.flags() & !IN_CACHE)
}

/// The record of the caller's block that an address lies in.
#[inline]
pub fn find(address: u64) -> Option<Record> {
    let record = LEDGER.find(address)?;
    if record.flags() & IN_CACHE == 0 { Some(record) } else { find_cached(address, record) }
}

#[inline(never)]
fn find_cached(address: u64, mut record: Record) -> Option<Record> {
    loop {
        match see(&record) {
            Seen::Block(block) => return block.contains(address).then_some(block),
            Seen::Nobody => return None,
            Seen::Changing => std::thread::yield_now(),
        }
        record = LEDGER.find(address)?;
        if record.flags() & IN_CACHE == 0 {
            return Some(record);
        }
    }
}

/// The cached block on the usual way that an address lies in: what the caller has, if anybody, and its number. `None` for other
/// addresses.
pub fn cached(address: u64) -> Option<(Option<Record>, u32)> {
    loop {
        let record = LEDGER.find(address)?;
        if record.flags() & IN_CACHE == 0 {
            return None;
        }
        match see(&record) {
            Seen::Block(block) => return Some((Some(block), record.graph())),
            Seen::Nobody => return Some((None, record.graph())),
            Seen::Changing => std::thread::yield_now(),
        }
    }
}

/// Whether an address lies in a block that a cache has, and nobody else.
pub fn is_at_hand(address: u64) -> bool {
    cached(address).is_some_and(|(block, _)| block.is_none())
}

/// Every block that a caller has.
pub fn each(mut visit: impl FnMut(Record)) {
    LEDGER.for_each(|record| {
        if record.flags() & IN_CACHE == 0 {
            visit(record);
        } else if let Seen::Block(block) = see(&record) {
            visit(block);
        }
    });
}

/// Has the ledger say everything of the block that begins there.
pub fn tell(base: u64) {
    if let Some(record) = LEDGER.find(base)
        && record.flags() & IN_CACHE != 0
        && record.base() == base
        && let Some(block) = cache::at(record.graph())
        && let Some(lane) = block.lane()
        && let Some(from) = allocator::hold_by_slot(lane.of().allocator)
    {
        if let Some(caching) = of(&from) {
            caching.tell(block, base);
        }
    }
}

impl Caching {
    /// Has the ledger say everything of a block. False when it is not out.
    fn tell(&self, block: &'static Block, base: u64) -> bool {
        let Some((asked, tag)) = block.out(base) else { return false };
        let Some(lane) = block.lane() else { return false };
        // Before anybody can give it back.
        self.told.lock().insert(base, block);
        if !block.turn(State::Out, State::Told) {
            self.told.lock().remove(&base);
            return false;
        }
        LEDGER.update(base, |record| {
            let mut told = as_block(record, asked, tag);
            if told.flags() & HOLDS_STREAM != 0 {
                let stream = lane.of().stream.load(Ordering::Acquire);
                // SAFETY: the lane has a hold.
                unsafe { stream::hold_again(stream) };
                told.set_stream(stream);
            }
            // SAFETY: whoever calls has a hold, or is the allocator itself.
            unsafe { allocator::hold_again(lane.of().allocator) };
            *record = told;
        });
        true
    }

    /// Has the ledger say everything of all blocks.
    pub fn tell_all(&self) {
        let slot = self.slot.load(Ordering::Acquire);
        let mut blocks = Vec::new();
        LEDGER.for_each(|record| {
            if record.flags() & IN_CACHE != 0 && record.allocator() == slot {
                blocks.push((record.base(), record.graph()));
            }
        });
        for (base, index) in blocks {
            if let Some(block) = cache::at(index) {
                self.tell(block, base);
            }
        }
    }
}

/// A block leaves the ledger: it goes back to its heap.
pub fn forget(block: &'static Block) {
    let _ = LEDGER.remove(block.base(), |record| {
        if record.flags() & IN_CACHE != 0 && record.graph() == block.index() { Ok(()) } else { Err(()) }
    });
}

/// The blocks of a lane are another stream's from now on.
pub fn moved(lane: &'static Lane, stream: u32) {
    let mut bases = Vec::new();
    LEDGER.for_each(|record| {
        if record.flags() & IN_CACHE != 0
            && cache::at(record.graph()).and_then(Block::lane).is_some_and(|of| std::ptr::eq(of, lane))
        {
            bases.push(record.base());
        }
    });
    for base in bases {
        LEDGER.update(base, |record| {
            if record.flags() & IN_CACHE != 0 {
                record.set_stream(stream);
            }
        });
    }
}

/// The driver has given a cached block's memory to somebody else: other code freed it. Its record is taken out already.
#[cold]
pub fn drop_stale(old: &Record) {
    let Some(block) = cache::at(old.graph()) else { return };
    let was_out = block.out(old.base()).filter(|_| block.turn(State::Out, State::Void));
    log!(
        Warning,
        "the driver gave memory at {:#x} that a cache has: other code freed {} bytes of it; they are dropped",
        old.base(),
        old.size()
    );
    if let (Some((size, _)), Some(device)) = (was_out, device::at(old.device())) {
        statistics::count_stale(old);
        statistics::count_free_of(thread::mine(), device, old.kind(), size);
    }
}
