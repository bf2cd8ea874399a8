//! The ledger: every live block of the process, by address.
//!
//! An ordered map in memory that knows nothing of drivers. It answers which block an address lies in, for any address
//! inside a block; it takes in a block only where no other is, and gives one out exactly once.
//!
//! - **Reads** take no lock and write nothing shared: they copy a record and keep the copy if the leaf's version did not
//!   change meanwhile.
//! - **Writes** lock one leaf. Only when a leaf is full, or nearly empty, or a block crosses the border of two, are other
//!   nodes locked as well, and then just those that change.
//! - **Memory**: a record and its share of the index take less than 64 bytes; node memory is recycled and returned only
//!   with the ledger, which in the library is never.
//!
//! A lock is held over a few dozen instructions, except that the closures of [`Ledger::remove`], [`Ledger::update`] and
//! [`Ledger::drain_where`] run under the lock of one leaf: they must be short and must not call the ledger.
//!
//! The rooms inside: `record` what is known of a block; `leaf` and `inner` the nodes; `version` their lock; `nodes`
//! their memory; `tree` the ways through; `reshape` how the tree grows and shrinks; `walk` visits in address order;
//! `hints` what a thread remembers; `freed` the recent frees; `fork` what a forked child does.

mod fork;
mod freed;
mod hints;
mod inner;
mod leaf;
mod nodes;
mod record;
mod reshape;
mod tree;
mod version;
mod walk;

#[cfg(test)]
mod tests;

use std::fmt;

use hints::{HintTables, Hints, thread_number};
use inner::Inner;
use leaf::{Admission, Leaf, Position, SLOTS};
use nodes::Nodes;
use tree::Root;

pub use freed::RecentFrees;
pub use record::Record;

/// A position that is none: look everywhere.
const NO_GUESS: usize = SLOTS + 1;

/// A record was refused because a live one shares at least one address with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("overlaps the live block of {size} bytes at {base:#x}", base = .0.base(), size = .0.size())]
pub struct Overlap(
    /// The live record; one of them, if there are more.
    pub Record,
);

/// Why a record was not taken in. The ledger is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InsertError {
    /// A live record is in the way.
    #[error(transparent)]
    Overlap(#[from] Overlap),
    /// The block has no bytes, or does not end within the address space.
    #[error("the block is empty or passes the end of the address space")]
    AddressRange,
    /// No memory for a node of the ledger itself.
    #[error("no memory for the ledger")]
    OutOfMemory,
}

/// Why no record was given out. The ledger is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoveError<E> {
    /// The address is inside this live block but not its base.
    #[error("inside the live block of {size} bytes at {base:#x}", base = .0.base(), size = .0.size())]
    Interior(Record),
    /// No live block has this address, and one with this base was removed a short while ago.
    #[error("freed a short while ago")]
    RecentlyFreed,
    /// No live block has this address.
    #[error("not a known block")]
    Unknown,
    /// The caller's check said no.
    #[error("refused by the check")]
    Refused(E),
}

/// Every live block, by address. See the [module](self).
pub struct Ledger {
    root: Root,
    leaves: Nodes<Leaf>,
    inners: Nodes<Inner>,
    hints: HintTables,
    freed: RecentFrees,
}

impl Ledger {
    /// An empty ledger; it asks for memory when the first record comes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            root: Root::new(),
            leaves: Nodes::new(),
            inners: Nodes::new(),
            hints: HintTables::new(),
            freed: RecentFrees::new(),
        }
    }

    /// Takes in a record, unless a live one shares an address with it. Of racing inserts that overlap one succeeds.
    #[inline]
    pub fn insert(&self, record: Record) -> Result<(), InsertError> {
        self.insert_as(thread_number(), &record)
    }

    /// `insert` for a caller that knows a number of its thread's: threads that share one share what is remembered
    /// of where blocks came and went, at a cost in speed only.
    pub fn insert_as(&self, thread: usize, record: &Record) -> Result<(), InsertError> {
        let base = record.base();
        let last = record.last().ok_or(InsertError::AddressRange)?;
        let hints = self.hints.of(thread);
        let mut nearby = self.nearby(hints, base);
        let mut remembered = nearby.is_some();
        loop {
            let (leaf, guess) = match nearby.take() {
                Some(place) => place,
                None => match self.leaf_of(base) {
                    Some(leaf) => {
                        remembered = false;
                        (leaf, NO_GUESS)
                    }
                    None => {
                        self.plant(thread).ok_or(InsertError::OutOfMemory)?;
                        continue;
                    }
                },
            };
            let held = leaf.version.lock();
            let admission = leaf.admit(record, last, guess);
            drop(held);
            match admission {
                Admission::Done(position) => {
                    if let Some(hints) = hints {
                        hints.set_last(leaf, position);
                        if !remembered {
                            hints.remember(base, leaf, leaf.slot_at(position));
                        }
                    }
                    return Ok(());
                }
                Admission::Overlap(other) => return Err(Overlap(other).into()),
                Admission::Elsewhere => {}
                Admission::Full => {
                    self.make_room(base, thread).ok_or(InsertError::OutOfMemory)?;
                }
                Admission::Stretches => {
                    if let Some(other) = self.stretch(base, last) {
                        return Err(Overlap(other).into());
                    }
                }
            }
        }
    }

    /// Takes out the record whose base is `base`, if `check` agrees. Of racing removals one succeeds; for the others the
    /// base is then a recently freed one. `check` runs under a lock, so what it saw is what is removed.
    pub fn remove<E>(
        &self,
        base: u64,
        check: impl FnOnce(&Record) -> Result<(), E>,
    ) -> Result<Record, RemoveError<E>> {
        self.remove_as(thread_number(), base, check)
    }

    /// `remove` for a caller that knows a number of its thread's; see [`Ledger::insert_as`].
    #[inline]
    pub fn remove_as<E>(
        &self,
        thread: usize,
        base: u64,
        check: impl FnOnce(&Record) -> Result<(), E>,
    ) -> Result<Record, RemoveError<E>> {
        let hints = self.hints.of(thread);
        let mut nearby = self.nearby(hints, base);
        let mut remembered = nearby.is_some();
        loop {
            let place = nearby.take().or_else(|| {
                remembered = false;
                let leaf = self.leaf_of(base)?;
                if hints.and_then(Hints::last).is_some_and(|(drained, _)| drained.count() == 0) {
                    // Blocks go in the order of their addresses: all of this leaf comes next.
                    leaf.prefetch_whole();
                }
                Some((leaf, NO_GUESS))
            });
            let Some((leaf, guess)) = place else { return Err(RemoveError::Unknown) };
            let held = leaf.version.lock();
            if !leaf.covers(base) {
                continue;
            }
            let position = match leaf.position(base, guess) {
                Position::Base(position) => position,
                Position::Interior(position) => return Err(RemoveError::Interior(leaf.record_at(position))),
                Position::Nowhere if self.freed.has(base) => return Err(RemoveError::RecentlyFreed),
                Position::Nowhere => return Err(RemoveError::Unknown),
            };
            let record = leaf.record_at(position);
            check(&record).map_err(RemoveError::Refused)?;
            self.freed.note(base);
            let slot = leaf.slot_at(position);
            let left = leaf.take(position);
            drop(held);
            if let Some(hints) = hints {
                hints.set_last(leaf, position);
                if !remembered {
                    // The slot is the first that the next insert here will use: often the same base comes back.
                    hints.remember(base, leaf, slot);
                }
            }
            self.thin_out(hints, leaf, left);
            return Ok(record);
        }
    }

    /// Whether a block that began there was taken out a short while ago, and none has begun there since that is still live.
    pub fn is_recently_freed(&self, base: u64) -> bool {
        self.freed.has(base) && self.find(base).is_none()
    }

    /// Whether no record was ever taken in.
    #[inline]
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.root.link.load() == inner::Link::NONE
    }

    /// The record of the live block that `address` lies in.
    #[inline]
    #[must_use]
    pub fn find(&self, address: u64) -> Option<Record> {
        let hints = self.hints.of_this_thread();
        if let Some(record) = hints.and_then(|hints| hints.recall(address)) {
            return Some(record);
        }
        let (leaf, slot, record) = self.search(address)?;
        if let Some(hints) = hints {
            hints.remember(address, leaf, slot);
        }
        Some(record)
    }

    /// Changes the record whose base is `base`; says whether there is one. What `change` does to base and size is ignored.
    /// Readers see the record before or after the change, never a mixture.
    pub fn update(&self, base: u64, change: impl FnOnce(&mut Record)) -> bool {
        let mut nearby = self.nearby(self.hints.of_this_thread(), base);
        loop {
            let place = nearby.take().or_else(|| self.leaf_of(base).map(|leaf| (leaf, NO_GUESS)));
            let Some((leaf, guess)) = place else { return false };
            let _held = leaf.version.lock();
            if !leaf.covers(base) {
                continue;
            }
            let Position::Base(position) = leaf.position(base, guess) else { return false };
            let before = leaf.record_at(position);
            let mut after = before;
            change(&mut after);
            leaf.rewrite(position, &after.at_place_of(&before));
            return true;
        }
    }

    /// Bytes of memory the ledger holds: nodes in use and kept for reuse, hints, and itself.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.leaves.memory_bytes()
            + self.inners.memory_bytes()
            + self.hints.memory_bytes()
    }

    /// A leaf that this thread was at lately and that `base` belongs to.
    #[inline]
    fn nearby<'a>(&self, hints: Option<&'a Hints>, base: u64) -> Option<(&'a Leaf, usize)> {
        let hints = hints?;
        if let Some(place) = hints.last().filter(|(leaf, _)| leaf.covers(base)) {
            return Some(place);
        }
        hints.recall_leaf(base).filter(|leaf| leaf.covers(base)).map(|leaf| (leaf, NO_GUESS))
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("memory_bytes", &self.memory_bytes()).finish_non_exhaustive()
    }
}
