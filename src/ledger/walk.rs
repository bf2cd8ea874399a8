//! Visits in address order.
//!
//! A walk is weakly consistent: it takes leaf after leaf, each as it was at one moment. A record that lives through the
//! whole walk is seen exactly once; one that comes or goes meanwhile is seen or not.

use super::Ledger;
use super::leaf::SLOTS;
use super::record::Record;

impl Ledger {
    /// Calls `visit` with every record, in address order. No lock is held meanwhile.
    pub fn for_each(&self, visit: impl FnMut(Record)) {
        self.for_each_in(0, u64::MAX, visit);
    }

    /// Calls `visit` with every record that has an address in `first..=last`, in address order. No lock is held
    /// meanwhile.
    pub fn for_each_in(&self, first: u64, last: u64, mut visit: impl FnMut(Record)) {
        if first > last {
            return;
        }
        let mut cursor = first;
        loop {
            let Some(snapshot) = self.snapshot(cursor) else { return };
            for record in snapshot.records() {
                if record.base() > last {
                    return;
                }
                // What lies before the cursor belongs to a part of the walk that is done, unless it reaches into the
                // first address.
                if record.base() >= cursor || (cursor == first && record.contains(first)) {
                    visit(*record);
                }
            }
            if snapshot.high >= last {
                return;
            }
            cursor = snapshot.high + 1;
        }
    }

    /// How many records there are. Walks the leaves: for reports, not for fast paths.
    #[must_use]
    pub fn len(&self) -> usize {
        let mut count = 0;
        self.for_each(|_| count += 1);
        count
    }

    /// Whether there is no record at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let mut cursor = 0;
        while let Some(snapshot) = self.snapshot(cursor) {
            if !snapshot.records().is_empty() {
                return false;
            }
            match snapshot.high.checked_add(1) {
                Some(next) => cursor = next,
                None => return true,
            }
        }
        true
    }

    /// Takes out every record that `condemned` picks and hands each to `removed`, in address order. `condemned` runs
    /// under the lock of a leaf and must not call the ledger; `removed` runs without one and may. Records that come
    /// during the call are seen or not.
    pub fn drain_where(&self, mut condemned: impl FnMut(&Record) -> bool, mut removed: impl FnMut(Record)) {
        let mut cursor = 0;
        loop {
            let Some(leaf) = self.leaf_of(cursor) else { return };
            let held = leaf.version.lock();
            if !leaf.covers(cursor) {
                continue;
            }
            let high = leaf.high();
            let mut taken = [Record::new(0, 0); SLOTS];
            let mut taken_count = 0;
            let mut position = 0;
            while position < leaf.count() {
                let record = leaf.record_at(position);
                if record.base() >= cursor && condemned(&record) {
                    self.freed.note(record.base());
                    leaf.take(position);
                    taken[taken_count] = record;
                    taken_count += 1;
                } else {
                    position += 1;
                }
            }
            drop(held);
            if taken_count > 0 {
                self.fold(leaf);
            }
            for record in &taken[..taken_count] {
                removed(*record);
            }
            match high.checked_add(1) {
                Some(next) => cursor = next,
                None => return,
            }
        }
    }
}
