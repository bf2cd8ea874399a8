//! How the tree grows and shrinks.
//!
//! Every change of shape goes the same way: note the versions along the way, lock what will change only if it is still
//! as noted, check again under the locks, change, let go. A lock that cannot be had at once means that somebody else is
//! changing the same nodes: everything is let go and the caller looks again. So no order of locks is needed.
//!
//! A full leaf first gives to a neighbour with room, which keeps leaves about five sixths full under random inserts; an
//! insert at its very end (or beginning) opens a new leaf instead, so that ascending (or descending) inserts leave full
//! leaves behind.

use std::ptr;

use super::hints::{Hints, thread_number};
use super::inner::{FANOUT, Inner, Link, Node};
use super::leaf::{Leaf, Position, SLOTS};
use super::record::Record;
use super::tree::{Path, Step};
use super::{Ledger, NO_GUESS};

/// A neighbour is given records only if it has room for this many: sharing fewer is not worth the work.
const WORTH_SHARING: usize = 4;
/// A leaf with at most this many records is sparse: it is joined with a neighbour if one has room.
const SPARSE: usize = 12;
/// What a joined leaf may have, so that it is not full at once.
const JOINED: usize = SLOTS * 3 / 4;
/// An inner node with at most this many children is joined with a neighbour if one has room.
const FEW_CHILDREN: usize = FANOUT / 4;
const JOINED_CHILDREN: usize = FANOUT * 3 / 4;
/// Children that stay with the emptier half when a node is split at an end.
const SPLIT_AT_END: usize = 4;
/// A fold is only worth so many tries while others change the same nodes: the next removal there tries again.
const FOLD_TRIES: usize = 4;

enum Fold {
    Done,
    /// No neighbour has room.
    Stays,
    Conflict,
}

impl Ledger {
    /// Makes room where `base` belongs, or does nothing if somebody else is at it. `None` if there is no memory.
    #[cold]
    pub(super) fn make_room(&self, base: u64, thread: usize) -> Option<()> {
        let Some(path) = self.path_to(base) else { return Some(()) };
        let Some((level, step)) = path.parent() else { return self.raise_root(&path, thread) };
        let leaf = path.leaf;
        let Some(parent_held) = step.node.version.try_lock_at(step.seen) else { return Some(()) };
        let Some(leaf_held) = leaf.version.try_lock() else { return Some(()) };
        if !leaf.covers(base) || leaf.count() < SLOTS {
            return Some(());
        }
        if !matches!(leaf.position(base, NO_GUESS), Position::Nowhere) {
            // Somebody was faster. No border may be drawn through a record; the caller will find it in the way.
            return Some(());
        }
        if self.share(leaf, step, base) {
            return Some(());
        }
        if step.node.is_full() {
            leaf_held.untouched();
            parent_held.untouched();
            return self.split_inner(&path, level, thread);
        }
        let (other, _other_held) = self.leaves.take(thread)?;
        other.prefetch_whole();
        let (low, high) = (leaf.low(), leaf.high());
        if base < leaf.base_at(0) {
            let first = leaf.base_at(0);
            other.set_fences(low, first - 1);
            leaf.set_fences(first, high);
            step.node.insert_before(step.at, first, Link::to_leaf(other));
        } else {
            let first = if base > leaf.base_at(SLOTS - 1) {
                base
            } else {
                let first = leaf.base_at(SLOTS / 2);
                leaf.move_records(SLOTS / 2..SLOTS, other, 0);
                first
            };
            leaf.set_fences(low, first - 1);
            other.set_fences(first, high);
            step.node.insert_behind(step.at, first, Link::to_leaf(other));
        }
        Some(())
    }

    /// The leaf that is the `at`-th child of a locked parent.
    fn leaf_at(&self, parent: &Inner, at: usize) -> Option<&Leaf> {
        if at >= parent.count() {
            return None;
        }
        match self.node(parent.child(at)) {
            Some(Node::Leaf(leaf)) => Some(leaf),
            _ => None,
        }
    }

    /// Lets a neighbour have some of a full leaf's records, or of its addresses, if one has room. Parent and leaf are
    /// locked.
    fn share(&self, leaf: &Leaf, step: Step<'_>, base: u64) -> bool {
        let (at, parent) = (step.at, step.node);
        let roomy = |neighbour: &&Leaf| neighbour.count() + WORTH_SHARING <= SLOTS;
        let left = at.checked_sub(1).and_then(|at| self.leaf_at(parent, at)).filter(roomy);
        let right = self.leaf_at(parent, at + 1).filter(roomy);
        let (before_all, behind_all) = (base < leaf.base_at(0), base > leaf.base_at(SLOTS - 1));
        let to_left = match (left, right) {
            (Some(_), Some(_)) if before_all || behind_all => before_all,
            (Some(left), Some(right)) => left.count() < right.count(),
            (left, _) => left.is_some(),
        };
        let Some(neighbour) = (if to_left { left } else { right }) else { return false };
        if (before_all && !to_left) || (behind_all && to_left) {
            // The other end is where the inserts are: a new leaf there will do better.
            return false;
        }
        let Some(_held) = neighbour.version.try_lock() else { return false };
        let Some(room) = SLOTS.checked_sub(neighbour.count()).filter(|room| *room >= WORTH_SHARING) else {
            return false;
        };
        let moved = if before_all || behind_all { 0 } else { room.div_ceil(2) };
        if to_left {
            let first = leaf.base_at(moved);
            leaf.move_records(0..moved, neighbour, neighbour.count());
            neighbour.set_fences(neighbour.low(), first - 1);
            leaf.set_fences(first, leaf.high());
            parent.set_part(at - 1, first);
        } else {
            let first = if moved == 0 { base } else { leaf.base_at(SLOTS - moved) };
            leaf.move_records(SLOTS - moved..SLOTS, neighbour, 0);
            leaf.set_fences(leaf.low(), first - 1);
            neighbour.set_fences(first, neighbour.high());
            parent.set_part(at, first);
        }
        true
    }

    /// Puts a new root over the one seen. `None` if there is no memory.
    fn raise_root(&self, path: &Path<'_>, thread: usize) -> Option<()> {
        let Some(_root_held) = self.root.version.try_lock_at(path.root_seen) else { return Some(()) };
        let (inner, _held) = self.inners.take(thread)?;
        inner.start(self.root.link.load());
        self.root.link.store(Link::to_inner(inner));
        Some(())
    }

    /// Splits the full inner node at `level`, or what must be split before. `None` if there is no memory.
    fn split_inner(&self, path: &Path<'_>, level: usize, thread: usize) -> Option<()> {
        let (Some(upper), Some(step)) =
            (level.checked_sub(1).and_then(|level| path.step(level)), path.step(level))
        else {
            return self.raise_root(path, thread);
        };
        if upper.node.is_full() {
            return self.split_inner(path, level - 1, thread);
        }
        let Some(_upper_held) = upper.node.version.try_lock_at(upper.seen) else { return Some(()) };
        let Some(_held) = step.node.version.try_lock_at(step.seen) else { return Some(()) };
        let (other, _other_held) = self.inners.take(thread)?;
        let from = match step.at {
            0 => SPLIT_AT_END,
            at if at + 1 == FANOUT => FANOUT - SPLIT_AT_END,
            _ => FANOUT / 2,
        };
        let first = step.node.split_into(from, other);
        upper.node.insert_behind(upper.at, first, Link::to_inner(other));
        Some(())
    }

    /// Moves the border behind the leaf of `base` up to make it reach to `last`; gives the record that is in the way, if
    /// one is. Does nothing if somebody else is changing the nodes.
    #[cold]
    pub(super) fn stretch(&self, base: u64, last: u64) -> Option<Record> {
        let left = self.path_to(base)?;
        let high = left.leaf.high();
        if high >= last {
            return None;
        }
        let right = self.path_to(high + 1)?;
        let mut fork = None;
        for level in 0..left.depth().min(right.depth()) {
            let (l, r) = (left.step(level)?, right.step(level)?);
            if !ptr::eq(l.node, r.node) || l.seen != r.seen {
                return None;
            }
            if l.at != r.at {
                fork = (l.at + 1 == r.at).then_some(l);
                break;
            }
        }
        let fork = fork?;
        let fork_held = fork.node.version.try_lock_at(fork.seen)?;
        let left_held = left.leaf.version.try_lock()?;
        let right_held = right.leaf.version.try_lock()?;
        if !left.leaf.covers(base) || left.leaf.high() != high || right.leaf.low() != high + 1 {
            return None;
        }
        if right.leaf.count() > 0 {
            let first = right.leaf.record_at(0);
            if first.base() <= last {
                return Some(first);
            }
        } else if right.leaf.high() <= last {
            drop((fork_held, left_held, right_held));
            self.fold(right.leaf);
            return None;
        }
        left.leaf.set_fences(left.leaf.low(), last);
        right.leaf.set_fences(last + 1, right.leaf.high());
        fork.node.set_part(fork.at, last + 1);
        None
    }

    /// Called after a removal that left so many records in the leaf.
    ///
    /// A leaf that just became sparse is folded only when this thread has made another one sparse: a record that comes
    /// and goes in the same place must not split and join a leaf each time.
    #[inline]
    pub(super) fn thin_out(&self, hints: Option<&Hints>, leaf: &Leaf, left: usize) {
        if left != SPARSE && left != SPARSE / 3 && left != 0 {
            return;
        }
        match hints {
            None => self.fold(leaf),
            Some(hints) => {
                if let Some(before) = hints.swap_sparse(leaf) {
                    self.fold(before);
                }
            }
        }
    }

    /// Joins a sparse leaf with a neighbour that has room, and so on upwards.
    #[cold]
    pub(super) fn fold(&self, leaf: &Leaf) {
        for _ in 0..FOLD_TRIES {
            if leaf.count() > SPARSE {
                return;
            }
            let low = leaf.low();
            let Some(path) = self.path_to(low).filter(|path| ptr::eq(path.leaf, leaf)) else { return };
            let Some((level, step)) = path.parent() else { return };
            if step.node.count() == 1 {
                self.fold_inner(&path, level);
                continue;
            }
            match self.fold_leaf(leaf, step) {
                Fold::Stays => return,
                Fold::Conflict => {}
                Fold::Done => {
                    self.fold_way_up(low);
                    return;
                }
            }
        }
    }

    fn fold_leaf(&self, leaf: &Leaf, step: Step<'_>) -> Fold {
        let (at, parent) = (step.at, step.node);
        let fits = |neighbour: &&Leaf| leaf.count() == 0 || leaf.count() + neighbour.count() <= JOINED;
        let right = self.leaf_at(parent, at + 1).filter(fits);
        let left = at.checked_sub(1).and_then(|at| self.leaf_at(parent, at)).filter(fits);
        let Some(neighbour) = right.or(left) else { return Fold::Stays };
        let to_right = right.is_some();
        let Some(parent_held) = parent.version.try_lock_at(step.seen) else { return Fold::Conflict };
        let Some(leaf_held) = leaf.version.try_lock() else { return Fold::Conflict };
        let Some(neighbour_held) = neighbour.version.try_lock() else { return Fold::Conflict };
        let count = leaf.count();
        // The parent is as it was on the way, so both are still its children; their records may be others.
        if count > SPARSE || !fits(&neighbour) {
            return Fold::Stays;
        }
        if to_right {
            leaf.move_records(0..count, neighbour, 0);
            neighbour.set_fences(leaf.low(), neighbour.high());
        } else {
            leaf.move_records(0..count, neighbour, neighbour.count());
            neighbour.set_fences(neighbour.low(), leaf.high());
        }
        parent.remove(at, to_right);
        leaf.detach();
        drop((neighbour_held, leaf_held, parent_held));
        self.leaves.give(thread_number(), leaf);
        Fold::Done
    }

    /// Joins the inner nodes on the way to `address` that have few children, from below.
    fn fold_way_up(&self, address: u64) {
        let Some(mut path) = self.path_to(address) else { return };
        for level in (0..path.depth()).rev() {
            match path.step(level) {
                Some(step) if step.node.count() <= FEW_CHILDREN => {}
                _ => return,
            }
            if self.fold_inner(&path, level) {
                match self.path_to(address) {
                    Some(now) => path = now,
                    None => return,
                }
            }
        }
    }

    /// Joins the inner node at `level` with a neighbour, or, if it has but one child and no neighbour has room, takes
    /// children from one. A root with one child is taken away. Says whether something was changed.
    fn fold_inner(&self, path: &Path<'_>, level: usize) -> bool {
        let Some(step) = path.step(level) else { return false };
        let Some(upper) = level.checked_sub(1).and_then(|level| path.step(level)) else {
            return self.lower_root(path, step);
        };
        if upper.node.count() == 1 {
            return self.fold_inner(path, level - 1);
        }
        // The neighbours are the two at `part` and `part + 1`.
        let is_left = upper.at + 1 < upper.node.count();
        let Some(part) = (if is_left { Some(upper.at) } else { upper.at.checked_sub(1) }) else {
            return false;
        };
        let neighbour = upper.node.child(if is_left { upper.at + 1 } else { part });
        let Some(Node::Inner(neighbour)) = self.node(neighbour) else { return false };
        let single = step.node.count() == 1;
        let both = step.node.count() + neighbour.count();
        let joins = both <= if single { FANOUT } else { JOINED_CHILDREN };
        if !joins && !single {
            return false;
        }
        let Some(upper_held) = upper.node.version.try_lock_at(upper.seen) else { return false };
        let Some(held) = step.node.version.try_lock_at(step.seen) else { return false };
        let Some(neighbour_held) = neighbour.version.try_lock() else { return false };
        if step.node.count() + neighbour.count() != both {
            return false;
        }
        let (left, right) = if is_left { (step.node, neighbour) } else { (neighbour, step.node) };
        let first = upper.node.part(part);
        if joins {
            left.absorb(first, right);
            upper.node.remove(part + 1, false);
            drop((neighbour_held, held, upper_held));
            self.inners.give(thread_number(), right);
            return true;
        }
        let moved = neighbour.count() / 2;
        let first = if is_left {
            left.borrow_from_right(moved, first, right)
        } else {
            left.lend_to_right(moved, first, right)
        };
        upper.node.set_part(part, first);
        true
    }

    fn lower_root(&self, path: &Path<'_>, step: Step<'_>) -> bool {
        if step.node.count() != 1 {
            return false;
        }
        let Some(root_held) = self.root.version.try_lock_at(path.root_seen) else { return false };
        let Some(held) = step.node.version.try_lock_at(step.seen) else { return false };
        self.root.link.store(step.node.child(0));
        step.node.detach();
        drop((held, root_held));
        self.inners.give(thread_number(), step.node);
        true
    }
}
