//! What a forked child does with a ledger whose other threads are gone.

use super::Ledger;
use super::inner::{Link, Node};
use super::record::Record;
use super::tree::MAX_DEPTH;

impl Ledger {
    /// Makes the ledger usable in the child of a fork, where a thread of the parent may have been in the middle of a
    /// write and will never finish it. To be called once, in the child, before its first other call of the ledger and
    /// while the child has one thread. Not from inside a closure that the ledger runs.
    ///
    /// A fork copies memory page by page while the parent's other threads still write, so an absent lock proves nothing:
    /// the tree is read through once, and if it is whole it stays. Else it is built anew from the slots of all leaves:
    /// records whose insert or removal was under way are in or out, all others are in. Only an
    /// [update](Ledger::update) that was under way may have changed some of a record's fields and not yet the others. If
    /// there is no memory for that the ledger is empty.
    pub fn after_fork_in_child(&self) {
        let locked =
            self.root.version.is_locked() || self.leaves.any_lock_held() || self.inners.any_lock_held();
        let root = self.root.link.load();
        if locked || !(root == Link::NONE || self.is_whole(root, 0, u64::MAX, MAX_DEPTH)) {
            self.rebuild();
        } else {
            // A list may be older than the tree and still have a node that is in use: better lose the free ones.
            self.leaves.forget_free();
            self.inners.forget_free();
        }
    }

    /// Whether the tree below `link` is one that a ledger at rest could have.
    fn is_whole(&self, link: Link, low: u64, high: u64, depth: usize) -> bool {
        match self.node(link) {
            Some(Node::Leaf(leaf)) => {
                low <= high && (leaf.low(), leaf.high()) == (low, high) && leaf.is_whole()
            }
            Some(Node::Inner(inner)) if depth > 0 => {
                let count = inner.count();
                count > 0
                    && (0..count).all(|at| {
                        let first = if at == 0 { low } else { inner.part(at - 1) };
                        let last = if at + 1 == count { high } else { inner.part(at).wrapping_sub(1) };
                        self.is_whole(inner.child(at), first, last, depth - 1)
                    })
            }
            _ => false,
        }
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
