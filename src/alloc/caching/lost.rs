//! What goes with the context of a lost device: chunks that nobody may use or give back any more, and blocks in them that callers
//! have. The blocks become the ledger's alone (*orphans*), whose free is told to nobody.

use super::lanes::give_up;
use super::{Caching, each_cache, ever_was};
use crate::alloc::{LEDGER, drop_stale, owner_of};
use crate::cache::{Chunk, Lane};
use crate::device::{self, Device};
use crate::ledger::Record;
use crate::log::log;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether a cache ever had memory on a device that was lost.
static EVER: AtomicBool = AtomicBool::new(false);
/// As many devices were lost when the ledger was last told of what they took along.
static TOLD_OF: AtomicU64 = AtomicU64::new(0);

/// Whether memory went with the context that it was made in.
pub fn is_of_lost(record: &Record) -> bool {
    owner_of(record).is_some_and(Device::is_lost)
}

/// As `is_of_lost`, of a chunk.
pub fn is_dead(chunk: &Chunk) -> bool {
    is_of_lost(&chunk.like)
}

pub fn is_lost(lane: &Lane) -> bool {
    device::at(lane.of().device()).is_some_and(Device::is_lost)
}

fn has_dead(lane: &Lane) -> bool {
    is_lost(lane) || lane.lock().heap().has(is_dead)
}

/// Has every cache forget what contexts of lost devices took along.
pub fn forget() {
    each_cache(Caching::forget_lost);
}

/// Before a block is entered that no cache has: it may lie where one lay that a lost device's context took along, and the ledger alone
/// can say which of them there is.
#[inline]
pub fn make_way() {
    if ever_was() && TOLD_OF.load(Ordering::Acquire) != device::losses() {
        tell_all();
    }
}

#[cold]
fn tell_all() {
    let losses = device::losses();
    each_cache(Caching::tell_of_lost);
    TOLD_OF.store(losses, Ordering::Release);
}

/// Blocks of lost devices may lie where a new chunk is: their records are dropped. Also those of pools, which live on as pools do, but
/// whose chunk the cache has given back.
pub fn drop_records(base: u64, size: u64) {
    if !EVER.load(Ordering::Acquire) {
        return;
    }
    let mut dead = Vec::new();
    LEDGER.for_each(|record| {
        if record.base() < base + size && base < record.base() + record.size() && is_of_lost(&record) {
            dead.push(record);
        }
    });
    for record in dead {
        drop_stale(&LEDGER, &record, &record.moved(base, size));
    }
}

impl Caching {
    /// Notes that a caller has a block at an address that is the cache's no more.
    pub fn note_orphan(&self, address: u64) {
        *self.orphans.lock().entry(address).or_default() += 1;
    }

    /// Forgets one of them; false where there is none.
    pub fn forget_orphan(&self, address: u64) -> bool {
        let mut orphans = self.orphans.lock();
        let Some(count) = orphans.get_mut(&address) else { return false };
        *count -= 1;
        if *count == 0 {
            orphans.remove(&address);
        }
        true
    }

    /// Has the ledger know the blocks that callers have of a lane of which a lost device's context took memory along, and hands out
    /// nothing of it on the usual way. How often it was opened before; `None` when nothing of it is lost any more, or it is another
    /// allocator's: then it is as it was.
    fn close_lost(&self, lane: &'static Lane) -> Option<u64> {
        let opened = {
            let mut inner = lane.lock();
            if !self.owns(lane) || !is_lost(lane) && !inner.heap().has(is_dead) {
                return None;
            }
            inner.close();
            inner.opened()
        };
        if let Err(error) = self.tell_blocks_of(|of| std::ptr::eq(of, lane)) {
            log!(Error, "blocks of a lost device: {error}");
        }
        Some(opened)
    }

    /// Has the ledger know all blocks that callers have of what lost devices' contexts took along.
    pub fn tell_of_lost(&self) {
        self.lanes_of(None)
            .into_iter()
            .filter(|lane| has_dead(lane))
            .for_each(|lane| _ = self.close_lost(lane));
    }

    /// Forgets what lost devices' contexts took along: the chunks go back, and blocks in them that callers have are the ledger's alone.
    pub fn forget_lost(&self) {
        let losses = device::losses();
        self.forget_lost_devices();
        for lane in self.lanes_of(None).into_iter().filter(|lane| has_dead(lane)) {
            // Page-locked memory of several contexts: what is dead goes, and the rest serves on.
            EVER.store(true, Ordering::Release);
            while let Some(opened) = self.close_lost(lane) {
                let mut inner = lane.lock();
                // Where another thread was done with the same and has opened it, some may be at hand again.
                if !self.owns(lane) || inner.opened() != opened {
                    continue;
                }
                let chunks = inner.remove_dead(is_dead, |told| self.note_orphan(told));
                // `closing` says so first and closes the lanes then, and that of a lost device is about to be given up.
                if !self.closing.load(Ordering::SeqCst) && !is_lost(lane) {
                    inner.open();
                }
                drop(inner);
                self.give_back_surely(lane, chunks, None, is_dead);
                break;
            }
        }
        self.losses.store(losses, Ordering::Release);
    }

    fn forget_lost_devices(&self) {
        let lost = self.lanes.lock().take(is_lost);
        for lane in lost {
            EVER.store(true, Ordering::Release);
            self.close_lost(lane);
            let chunks = lane.lock().remove_dead(|_| true, |told| self.note_orphan(told));
            self.give_back_at_last(lane, chunks, None);
            give_up(lane);
        }
    }
}
