//! What a forked child does with a ledger whose other threads are gone.

use super::Ledger;
use super::inner::Link;
use super::record::Record;

impl Ledger {
    /// Makes the ledger usable in the child of a fork, where a thread of the parent may have been in the middle of a
    /// write and will never finish it. To be called once, in the child, before its first other call of the ledger and
    /// while the child has one thread. Not from inside a closure that the ledger runs.
    ///
    /// If no lock was held at the fork nothing is done but look. Else the tree is built anew from the slots of all
    /// leaves, each of which is either free or whole at any moment: records whose insert or removal was under way are in
    /// or out, all others are in. Only an [update](Ledger::update) that was under way may have changed some of a record's
    /// fields and not yet the others. If there is no memory for that the ledger is empty.
    pub fn after_fork_in_child(&self) {
        if !self.root.version.is_locked() && !self.leaves.any_lock_held() && !self.inners.any_lock_held() {
            return;
        }
        self.rebuild();
    }

    pub(super) fn rebuild(&self) {
        let mut records: Vec<Record> = Vec::new();
        let live = || self.leaves.all().flat_map(|leaf| leaf.live_slots());
        if records.try_reserve_exact(live().count()).is_ok() {
            records.extend(live());
        }
        // A record on the move between two leaves may be in both.
        records.sort_unstable_by_key(Record::base);
        records.dedup_by_key(|record| record.base());
        self.leaves.all().for_each(|leaf| leaf.reset());
        self.inners.all().for_each(|inner| inner.detach());
        self.leaves.restart();
        self.inners.restart();
        self.root.version.break_lock();
        self.root.link.store(Link::NONE);
        for record in records {
            // All fit where they were before, in at most as many nodes.
            let _ = self.insert(record);
        }
    }
}
