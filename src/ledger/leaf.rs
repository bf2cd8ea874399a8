//! A leaf: up to 32 records whose addresses all lie between the leaf's two fences.
//!
//! Slots are not sorted: `order` names them by ascending base (first the live ones, then the free ones), so adding or
//! removing a record moves at most 32 bytes. A slot is live exactly when its size is not zero; whoever holds a slot's
//! place can therefore ask it directly, without knowing anything about the leaf around it.
//!
//! No record reaches beyond the fences of its leaf. That is what makes a lookup, and the check for overlaps, the matter
//! of one leaf.

use std::hint::select_unpredictable;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::Release};

use super::record::{BODY_WORDS, Record};
use super::version::Version;

pub(super) const SLOTS: usize = 32;
const ORDER_WORDS: usize = SLOTS / 8;
const IN_PLACE: [u8; SLOTS] = {
    let mut order = [0; SLOTS];
    let mut slot = 0;
    while slot < SLOTS {
        order[slot] = slot as u8;
        slot += 1;
    }
    order
};

#[repr(C, align(64))]
pub(super) struct Leaf {
    pub(super) version: Version,
    /// The first address that belongs here. A leaf outside the tree has `low > high`, so that nothing does.
    low: AtomicU64,
    /// The last address that belongs here.
    high: AtomicU64,
    count: AtomicUsize,
    order: [AtomicU64; ORDER_WORDS],
    bases: [AtomicU64; SLOTS],
    bodies: [[AtomicU64; BODY_WORDS]; SLOTS],
}

/// What came of trying to add a record to a leaf.
pub(super) enum Admission {
    /// Added, at this position.
    Done(usize),
    /// A live record is in the way.
    Overlap(Record),
    /// The record's base belongs to another leaf.
    Elsewhere,
    /// The record reaches beyond the upper fence.
    Stretches,
    /// No free slot.
    Full,
}

/// Where an address lies among the records of a leaf.
pub(super) enum Position {
    /// It is the base of the record at this position.
    Base(usize),
    /// It is inside the record at this position.
    Interior(usize),
    Nowhere,
}

impl Leaf {
    pub(super) fn new() -> Self {
        let leaf = Self {
            version: Version::new(),
            low: AtomicU64::new(1),
            high: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            order: [const { AtomicU64::new(0) }; ORDER_WORDS],
            bases: [const { AtomicU64::new(0) }; SLOTS],
            bodies: [const { [const { AtomicU64::new(0) }; BODY_WORDS] }; SLOTS],
        };
        leaf.set_order(IN_PLACE);
        leaf
    }

    #[inline]
    pub(super) fn covers(&self, address: u64) -> bool {
        self.low.load(Relaxed) <= address && address <= self.high.load(Relaxed)
    }

    #[inline]
    pub(super) fn low(&self) -> u64 {
        self.low.load(Relaxed)
    }

    #[inline]
    pub(super) fn high(&self) -> u64 {
        self.high.load(Relaxed)
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed).min(SLOTS)
    }

    #[inline]
    pub(super) fn slot_at(&self, position: usize) -> usize {
        let word = self.order[(position / 8) % ORDER_WORDS].load(Relaxed);
        (word >> (position % 8 * 8)) as usize % SLOTS
    }

    #[inline]
    pub(super) fn base_at(&self, position: usize) -> u64 {
        self.bases[self.slot_at(position)].load(Relaxed)
    }

    #[inline]
    pub(super) fn record_at(&self, position: usize) -> Record {
        self.record_in(self.slot_at(position))
    }

    #[inline]
    fn record_in(&self, slot: usize) -> Record {
        let body = &self.bodies[slot % SLOTS];
        Record::from_words(
            self.bases[slot % SLOTS].load(Relaxed),
            std::array::from_fn(|word| body[word].load(Relaxed)),
        )
    }

    /// How many records have a base at or below `address`.
    #[inline]
    fn rank(&self, address: u64) -> usize {
        let mut before = 0;
        let mut left = self.count();
        if left == 0 {
            return 0;
        }
        while left > 1 {
            let half = left / 2;
            before = select_unpredictable(self.base_at(before + half) <= address, before + half, before);
            left -= half;
        }
        before + usize::from(self.base_at(before) <= address)
    }

    /// As [`Leaf::rank`], looking first where the last operation was: at the same place or one further.
    #[inline]
    fn rank_near(&self, address: u64, guess: usize) -> usize {
        let count = self.count();
        if guess <= count {
            if guess == count || self.base_at(guess) > address {
                if guess == 0 || self.base_at(guess - 1) <= address {
                    return guess;
                }
            } else if guess + 1 == count || self.base_at(guess + 1) > address {
                return guess + 1;
            }
        }
        self.rank(address)
    }

    /// The record that contains `address`, with its slot. To be called between `begin` and `unchanged`.
    #[inline]
    pub(super) fn lookup(&self, address: u64) -> Option<(usize, Record)> {
        let rank = self.rank(address);
        let slot = self.slot_at(rank.checked_sub(1)?);
        let record = self.record_in(slot);
        record.contains(address).then_some((slot, record))
    }

    /// The record of `slot` if it is live and contains `address`. Needs no lock and no `begin`.
    #[inline]
    pub(super) fn peek(&self, slot: usize, address: u64) -> Option<Record> {
        let seen = self.version.try_begin()?;
        let record = self.record_in(slot);
        (record.contains(address) && self.version.unchanged(seen)).then_some(record)
    }

    /// Where `address` is. The lock is held.
    #[inline]
    pub(super) fn position(&self, address: u64, guess: usize) -> Position {
        let Some(position) = self.rank_near(address, guess).checked_sub(1) else {
            return Position::Nowhere;
        };
        let slot = self.slot_at(position);
        let offset = address.wrapping_sub(self.bases[slot].load(Relaxed));
        if offset == 0 {
            Position::Base(position)
        } else if offset < self.bodies[slot][0].load(Relaxed) {
            Position::Interior(position)
        } else {
            Position::Nowhere
        }
    }

    /// Adds `record`, whose last address is `last`, if it belongs here and nothing is in the way. The lock is held.
    #[inline]
    pub(super) fn admit(&self, record: &Record, last: u64, guess: usize) -> Admission {
        let base = record.base();
        if !self.covers(base) {
            return Admission::Elsewhere;
        }
        let count = self.count();
        let position = self.rank_near(base, guess);
        if position > 0 {
            let slot = self.slot_at(position - 1);
            if base.wrapping_sub(self.bases[slot].load(Relaxed)) < self.bodies[slot][0].load(Relaxed) {
                return Admission::Overlap(self.record_in(slot));
            }
        }
        if position < count && self.base_at(position) <= last {
            return Admission::Overlap(self.record_at(position));
        }
        if last > self.high() {
            return Admission::Stretches;
        }
        if count == SLOTS {
            return Admission::Full;
        }
        let slot = self.slot_at(count);
        self.fill(slot, record.base(), record.body());
        self.shift_in(position, count, slot as u64);
        self.count.store(count + 1, Relaxed);
        Admission::Done(position)
    }

    /// Writes a free slot. Its size goes last, so that whoever finds the lock of a vanished writer (a forked child) finds
    /// the slot either free or whole.
    #[inline]
    fn fill(&self, slot: usize, base: u64, body: [u64; BODY_WORDS]) {
        self.bases[slot].store(base, Relaxed);
        for word in (1..BODY_WORDS).rev() {
            self.bodies[slot][word].store(body[word], Relaxed);
        }
        self.bodies[slot][0].store(body[0], Release);
    }

    /// Writes what an update may change. The lock is held.
    pub(super) fn rewrite(&self, position: usize, record: &Record) {
        let slot = self.slot_at(position);
        for (word, value) in record.body().into_iter().enumerate().skip(1) {
            self.bodies[slot][word].store(value, Relaxed);
        }
    }

    /// Takes the record at `position` out and says how many are left. The lock is held.
    #[inline]
    pub(super) fn take(&self, position: usize) -> usize {
        let count = self.count();
        let slot = self.slot_at(position);
        self.bodies[slot][0].store(0, Relaxed);
        self.shift_out(position, count - 1, slot as u64);
        self.count.store(count - 1, Relaxed);
        count - 1
    }

    /// Moves the bytes of `order` from `from` to just below `to` one place up and puts `slot` at `from`.
    #[inline]
    fn shift_in(&self, from: usize, to: usize, slot: u64) {
        let mut carry = slot;
        let mut kept = (1_u64 << (from % 8 * 8)) - 1;
        for word in from / 8..=to / 8 {
            let old = self.order[word].load(Relaxed);
            let mut new = (old & kept) | ((old & !kept) << 8) | (carry << kept.count_ones());
            if word == to / 8 {
                let above = above_byte(to % 8);
                new = (new & !above) | (old & above);
            }
            self.order[word].store(new, Relaxed);
            carry = old >> 56;
            kept = 0;
        }
    }

    /// Moves the bytes of `order` from just above `from` to `to` one place down and puts `slot` at `to`.
    #[inline]
    fn shift_out(&self, from: usize, to: usize, slot: u64) {
        let mut kept = (1_u64 << (from % 8 * 8)) - 1;
        for word in from / 8..=to / 8 {
            let old = self.order[word].load(Relaxed);
            let mut new = (old & kept) | ((old >> 8) & !kept);
            if word == to / 8 {
                let above = above_byte(to % 8);
                let byte = to % 8 * 8;
                new = (new & !above & !(0xff << byte)) | (slot << byte) | (old & above);
            } else {
                let carry = self.order[word + 1].load(Relaxed) & 0xff;
                new = (new & !(0xff << 56)) | (carry << 56);
            }
            self.order[word].store(new, Relaxed);
            kept = 0;
        }
    }

    fn order(&self) -> [u8; SLOTS] {
        let mut order = [0; SLOTS];
        for (bytes, word) in order.chunks_exact_mut(8).zip(&self.order) {
            bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        order
    }

    fn set_order(&self, order: [u8; SLOTS]) {
        for (bytes, word) in order.chunks_exact(8).zip(&self.order) {
            let mut copy = [0; 8];
            copy.copy_from_slice(bytes);
            word.store(u64::from_le_bytes(copy), Relaxed);
        }
    }

    /// Moves a run of records to `at` in `to`, which has room for them. Both locks are held. A record is written to its
    /// new leaf before it is gone from the old one.
    pub(super) fn move_records(&self, run: Range<usize>, to: &Leaf, at: usize) {
        let (moved, count, to_count) = (run.len(), self.count(), to.count());
        let mut order = self.order();
        let mut to_order = to.order();
        to_order[at..to_count + moved].rotate_right(moved);
        for (from_slot, to_slot) in order[run.clone()].iter().zip(&to_order[at..at + moved]) {
            let record = self.record_in(usize::from(*from_slot));
            to.fill(usize::from(*to_slot), record.base(), record.body());
        }
        to.set_order(to_order);
        to.count.store(to_count + moved, Relaxed);
        for slot in &order[run.clone()] {
            self.bodies[usize::from(*slot)][0].store(0, Release);
        }
        order[run.start..count].rotate_left(moved);
        self.set_order(order);
        self.count.store(count - moved, Relaxed);
    }

    /// Sets the fences. The lock is held.
    pub(super) fn set_fences(&self, low: u64, high: u64) {
        self.low.store(low, Relaxed);
        self.high.store(high, Relaxed);
    }

    /// Makes the leaf one that no address belongs to.
    pub(super) fn detach(&self) {
        self.set_fences(1, 0);
    }

    /// Forgets everything; the state of a leaf that was never used.
    pub(super) fn reset(&self) {
        self.detach();
        for body in &self.bodies {
            body[0].store(0, Relaxed);
        }
        self.set_order(IN_PLACE);
        self.count.store(0, Relaxed);
    }

    /// The records of all live slots, in no order and whatever `order` says.
    pub(super) fn live_slots(&self) -> impl Iterator<Item = Record> {
        (0..SLOTS).map(|slot| self.record_in(slot)).filter(|record| record.size() != 0)
    }

    /// Whether order, count and slots agree and the records lie apart and between the fences.
    pub(super) fn is_whole(&self) -> bool {
        let mut order = self.order();
        order.sort_unstable();
        let mut next = Some(self.low());
        let apart = (0..self.count()).all(|position| {
            let record = self.record_at(position);
            let fits = next.is_some_and(|next| record.base() >= next)
                && record.last().is_some_and(|last| last <= self.high());
            next = record.last().and_then(|last| last.checked_add(1));
            fits
        });
        order == IN_PLACE && apart && self.live_slots().count() == self.count()
    }

    /// A leaf outside the tree is linked to the next one through the word of its first base.
    pub(super) fn link_word(&self) -> &AtomicU64 {
        &self.bases[0]
    }

    /// Asks for the lines a lookup will need, all at once instead of one after the other.
    #[inline]
    pub(super) fn prefetch(&self) {
        for line in self.bases.chunks(8) {
            prefetch_line(line.as_ptr().cast());
        }
    }

    /// Asks for all lines of a leaf in which record after record will come or go.
    pub(super) fn prefetch_whole(&self) {
        let start: *const u8 = std::ptr::from_ref(self).cast();
        for offset in (0..size_of::<Self>()).step_by(64) {
            prefetch_line(start.wrapping_add(offset));
        }
    }
}

#[inline]
fn prefetch_line(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch does not access memory in the sense of the language; any address will do.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// The bytes of a word above byte `index`.
#[inline]
const fn above_byte(index: usize) -> u64 {
    if index >= 7 { 0 } else { u64::MAX << ((index + 1) * 8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_25_lines() {
        assert_eq!(size_of::<Leaf>(), 25 * 64);
        assert_eq!(size_of::<Record>(), 48);
    }

    #[test]
    fn order_stays_a_permutation_at_every_position() {
        for count in 0..SLOTS {
            for position in 0..=count {
                let leaf = Leaf::new();
                leaf.set_fences(0, u64::MAX);
                for index in 0..count {
                    let base = if index < position { index } else { index + 1 } as u64 * 16;
                    assert!(matches!(leaf.admit(&Record::new(base, 16), base + 15, 0), Admission::Done(_)));
                }
                let before = leaf.order();
                let base = position as u64 * 16;
                let Admission::Done(at) = leaf.admit(&Record::new(base, 16), base + 15, 7) else {
                    panic!("position {position} of {count} refused");
                };
                assert_eq!(at, position);
                assert!((0..=count).all(|at| leaf.base_at(at) == at as u64 * 16));
                let mut sorted = leaf.order();
                sorted.sort_unstable();
                assert_eq!(sorted, IN_PLACE);
                assert_eq!(leaf.take(position), count);
                assert_eq!(leaf.order()[..count], before[..count]);
                let mut sorted = leaf.order();
                sorted.sort_unstable();
                assert_eq!(sorted, IN_PLACE);
            }
        }
    }
}
