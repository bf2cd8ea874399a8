//! An inner node: up to 63 children and the addresses that part them.

use std::hint::select_unpredictable;
use std::ops::Range;
use std::sync::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use super::leaf::Leaf;
use super::version::Version;

pub(super) const FANOUT: usize = 63;

/// A pointer to a node that says in its lowest bit which kind of node it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Link(*mut ());

/// A node, looked at through a [`Link`].
pub(super) enum Node<'a> {
    Leaf(&'a Leaf),
    Inner(&'a Inner),
}

const INNER_BIT: usize = 1;

impl Link {
    pub(super) const NONE: Self = Self(std::ptr::null_mut());

    pub(super) fn to_leaf(leaf: &Leaf) -> Self {
        Self(std::ptr::from_ref(leaf).cast_mut().cast())
    }

    pub(super) fn to_inner(inner: &Inner) -> Self {
        let pointer: *mut () = std::ptr::from_ref(inner).cast_mut().cast();
        Self(pointer.map_addr(|address| address | INNER_BIT))
    }

    /// The node, or `None` for [`Link::NONE`].
    ///
    /// # Safety
    /// The ledger whose nodes made this link must live for `'a`: nodes are given back only with it, and the memory of an
    /// inner node never becomes a leaf or the other way round.
    #[inline]
    pub(super) unsafe fn node<'a>(self) -> Option<Node<'a>> {
        if self.0.is_null() {
            None
        } else if self.0.addr() & INNER_BIT == 0 {
            // SAFETY: made by `to_leaf` from a leaf that lives for `'a`; leaves have only atomic fields.
            Some(Node::Leaf(unsafe { &*self.0.cast::<Leaf>() }))
        } else {
            let pointer = self.0.map_addr(|address| address & !INNER_BIT).cast::<Inner>();
            // SAFETY: made by `to_inner` from an inner node that lives for `'a`; it has only atomic fields.
            Some(Node::Inner(unsafe { &*pointer }))
        }
    }
}

/// A [`Link`] that can be changed while others read it.
pub(super) struct LinkCell(AtomicPtr<()>);

impl LinkCell {
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    #[inline]
    pub(super) fn load(&self) -> Link {
        // Acquire: the node's words were written before the link to it.
        Link(self.0.load(Acquire))
    }

    #[inline]
    pub(super) fn store(&self, link: Link) {
        self.0.store(link.0, Release);
    }
}

#[repr(C, align(64))]
pub(super) struct Inner {
    pub(super) version: Version,
    /// Children in use. Zero in a node outside the tree, never zero inside.
    count: AtomicUsize,
    /// `parts[i]` is the first address that belongs to child `i + 1`.
    parts: [AtomicU64; FANOUT - 1],
    children: [LinkCell; FANOUT],
}

impl Inner {
    pub(super) fn new() -> Self {
        Self {
            version: Version::new(),
            count: AtomicUsize::new(0),
            parts: [const { AtomicU64::new(0) }; FANOUT - 1],
            children: [const { LinkCell::new() }; FANOUT],
        }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed).min(FANOUT)
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() == FANOUT
    }

    #[inline]
    pub(super) fn child(&self, index: usize) -> Link {
        self.children[index].load()
    }

    /// The index of the child that `address` belongs to.
    #[inline]
    pub(super) fn route(&self, address: u64) -> usize {
        let mut before = 0;
        let mut left = self.count().saturating_sub(1);
        if left == 0 {
            return 0;
        }
        while left > 1 {
            let half = left / 2;
            // `half` is at least 1 and `before + half` below the number of parts.
            let part = self.parts[(before + half).min(FANOUT - 2)].load(Relaxed);
            before = select_unpredictable(part <= address, before + half, before);
            left -= half;
        }
        before + usize::from(self.parts[before.min(FANOUT - 2)].load(Relaxed) <= address)
    }

    /// Makes this the parent of one child. The lock is held.
    pub(super) fn start(&self, child: Link) {
        self.children[0].store(child);
        self.count.store(1, Relaxed);
    }

    /// The first address of child `index + 1`.
    pub(super) fn part(&self, index: usize) -> u64 {
        self.parts[index].load(Relaxed)
    }

    /// Changes the first address of child `index + 1`. The lock is held.
    pub(super) fn set_part(&self, index: usize, first: u64) {
        self.parts[index].store(first, Relaxed);
    }

    /// Adds a child behind child `index`; addresses from `first` on belong to it. The lock is held, there is room.
    pub(super) fn insert_behind(&self, index: usize, first: u64, child: Link) {
        let count = self.count();
        for at in (index + 1..count).rev() {
            self.children[at + 1].store(self.children[at].load());
            self.parts[at].store(self.parts[at - 1].load(Relaxed), Relaxed);
        }
        self.children[index + 1].store(child);
        self.parts[index].store(first, Relaxed);
        self.count.store(count + 1, Relaxed);
    }

    /// Adds a child before child `index`, to which addresses from `first` on still belong. The lock is held, there is room.
    pub(super) fn insert_before(&self, index: usize, first: u64, child: Link) {
        self.insert_behind(index, first, self.child(index));
        self.children[index].store(child);
    }

    /// Takes child `index` out; its addresses go to the child before it, or, with `to_next`, to the one behind it.
    /// The lock is held, and the child that inherits exists.
    pub(super) fn remove(&self, index: usize, to_next: bool) {
        let count = self.count();
        for at in index..count - 1 {
            self.children[at].store(self.children[at + 1].load());
        }
        let part = if to_next { index } else { index - 1 };
        for at in part..count - 2 {
            self.parts[at].store(self.parts[at + 1].load(Relaxed), Relaxed);
        }
        self.count.store(count - 1, Relaxed);
    }

    /// Moves the children from `from` on into the empty node `right` and gives the first address of that. Both locks are
    /// held; `from` is not zero.
    pub(super) fn split_into(&self, from: usize, right: &Inner) -> u64 {
        let count = self.count();
        right.append(self, from..count);
        self.count.store(from, Relaxed);
        self.parts[from - 1].load(Relaxed)
    }

    /// Copies children of `other`, with the parts between them, behind the own ones; the part before them is not set
    /// here.
    fn append(&self, other: &Inner, run: Range<usize>) {
        let count = self.count();
        for (step, at) in run.clone().enumerate() {
            self.children[count + step].store(other.children[at].load());
            if step > 0 {
                self.parts[count + step - 1].store(other.parts[at - 1].load(Relaxed), Relaxed);
            }
        }
        self.count.store(count + run.len(), Relaxed);
    }

    /// Takes over all children of the right neighbour, whose first address is `first`. Both locks are held.
    pub(super) fn absorb(&self, first: u64, right: &Inner) {
        let count = self.count();
        self.append(right, 0..right.count());
        self.parts[count - 1].store(first, Relaxed);
        right.detach();
    }

    /// Moves the last `moved` children of `self` to the front of `right`, whose first address was `first`; gives the new
    /// first address of `right`. Both locks are held, at least one child stays.
    pub(super) fn lend_to_right(&self, moved: usize, first: u64, right: &Inner) -> u64 {
        let (count, right_count) = (self.count(), right.count());
        for at in (0..right_count).rev() {
            right.children[at + moved].store(right.children[at].load());
        }
        for at in (0..right_count - 1).rev() {
            right.parts[at + moved].store(right.parts[at].load(Relaxed), Relaxed);
        }
        right.parts[moved - 1].store(first, Relaxed);
        for step in 0..moved {
            right.children[step].store(self.children[count - moved + step].load());
            if step > 0 {
                right.parts[step - 1].store(self.parts[count - moved + step - 1].load(Relaxed), Relaxed);
            }
        }
        right.count.store(right_count + moved, Relaxed);
        self.count.store(count - moved, Relaxed);
        self.parts[count - moved - 1].load(Relaxed)
    }

    /// Moves the first `moved` children of `right`, whose first address was `first`, behind those of `self`; gives the
    /// new first address of `right`. Both locks are held, at least one child stays.
    pub(super) fn borrow_from_right(&self, moved: usize, first: u64, right: &Inner) -> u64 {
        let (count, right_count) = (self.count(), right.count());
        self.append(right, 0..moved);
        self.parts[count - 1].store(first, Relaxed);
        let new_first = right.parts[moved - 1].load(Relaxed);
        for at in moved..right_count {
            right.children[at - moved].store(right.children[at].load());
        }
        for at in moved..right_count - 1 {
            right.parts[at - moved].store(right.parts[at].load(Relaxed), Relaxed);
        }
        right.count.store(right_count - moved, Relaxed);
        new_first
    }

    /// Makes the node one that is outside the tree.
    pub(super) fn detach(&self) {
        self.count.store(0, Relaxed);
    }

    /// A node outside the tree is linked to the next one through its first part.
    pub(super) fn link_word(&self) -> &AtomicU64 {
        &self.parts[0]
    }
}
