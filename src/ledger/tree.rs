//! The ways through the tree.
//!
//! Whoever looks for the leaf of an address just follows the links, without asking whether an inner node is being
//! changed: the leaf's own fences say whether it is the right one. Whoever wants to change the shape notes the version of
//! every node on the way, and later locks a node only if it still has that version; if not, all is let go and tried again.

use std::array;

use super::Ledger;
use super::inner::{Inner, Link, LinkCell, Node};
use super::leaf::{Leaf, SLOTS};
use super::record::Record;
use super::version::{Backoff, Version};

/// More inner nodes on one way than any tree that fits in memory has.
pub(super) const MAX_DEPTH: usize = 24;

/// Where the tree begins.
pub(super) struct Root {
    /// Guards the change of `link`.
    pub(super) version: Version,
    pub(super) link: LinkCell,
}

impl Root {
    pub(super) const fn new() -> Self {
        Self { version: Version::new(), link: LinkCell::new() }
    }
}

/// An inner node on a way: the child that was taken, valid while the version is the one seen.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) node: &'a Inner,
    pub(super) seen: u64,
    pub(super) at: usize,
}

/// A way from the root to a leaf.
pub(super) struct Path<'a> {
    pub(super) root_seen: u64,
    steps: [Option<Step<'a>>; MAX_DEPTH],
    depth: usize,
    pub(super) leaf: &'a Leaf,
}

impl<'a> Path<'a> {
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The step at `level`, counted from the root.
    pub(super) fn step(&self, level: usize) -> Option<Step<'a>> {
        self.steps.get(level).copied().flatten()
    }

    /// The step from the leaf's parent and its level.
    pub(super) fn parent(&self) -> Option<(usize, Step<'a>)> {
        let level = self.depth.checked_sub(1)?;
        Some((level, self.step(level)?))
    }
}

/// The records of one leaf, as they were at one moment.
pub(super) struct Snapshot {
    records: [Record; SLOTS],
    count: usize,
    /// The last address that belonged to the leaf.
    pub(super) high: u64,
}

impl Snapshot {
    pub(super) fn records(&self) -> &[Record] {
        &self.records[..self.count]
    }
}

impl Ledger {
    /// The node behind a link of this ledger.
    #[inline]
    pub(super) fn node(&self, link: Link) -> Option<Node<'_>> {
        // SAFETY: links come only from this ledger's root and inner nodes, and it is borrowed for as long as the node.
        unsafe { link.node() }
    }

    /// The leaf that `address` belonged to a moment ago, or `None` in a ledger that never had a record.
    #[inline]
    pub(super) fn leaf_of(&self, address: u64) -> Option<&Leaf> {
        let mut backoff = Backoff::default();
        loop {
            let mut link = self.root.link.load();
            if link == Link::NONE {
                return None;
            }
            for _ in 0..MAX_DEPTH {
                match self.node(link) {
                    Some(Node::Inner(inner)) if inner.count() > 0 => link = inner.child(inner.route(address)),
                    Some(Node::Leaf(leaf)) => {
                        leaf.prefetch();
                        if leaf.covers(address) {
                            return Some(leaf);
                        }
                        break;
                    }
                    _ => break,
                }
            }
            backoff.wait();
        }
    }

    /// The way to the leaf that `address` belongs to, or `None` in a ledger that never had a record.
    pub(super) fn path_to(&self, address: u64) -> Option<Path<'_>> {
        let mut backoff = Backoff::default();
        loop {
            let root_seen = self.root.version.begin();
            let root = self.root.link.load();
            if root == Link::NONE {
                return None;
            }
            if let Some(path) = self.path_from(root_seen, root, address) {
                return Some(path);
            }
            backoff.wait();
        }
    }

    fn path_from(&self, root_seen: u64, root: Link, address: u64) -> Option<Path<'_>> {
        let mut steps = [None; MAX_DEPTH];
        let mut link = root;
        let mut checked = self.root.version.unchanged(root_seen);
        for depth in 0..MAX_DEPTH {
            if !checked {
                return None;
            }
            match self.node(link)? {
                Node::Leaf(leaf) => {
                    return leaf.covers(address).then_some(Path { root_seen, steps, depth, leaf });
                }
                Node::Inner(node) => {
                    let seen = node.version.begin();
                    if node.count() == 0 {
                        return None;
                    }
                    let at = node.route(address);
                    link = node.child(at);
                    checked = node.version.unchanged(seen);
                    steps[depth] = Some(Step { node, seen, at });
                }
            }
        }
        None
    }

    /// Finds without hints; says where it was found.
    #[inline]
    pub(super) fn search(&self, address: u64) -> Option<(&Leaf, usize, Record)> {
        loop {
            let leaf = self.leaf_of(address)?;
            let seen = leaf.version.begin();
            if leaf.covers(address) {
                let found = leaf.lookup(address);
                if leaf.version.unchanged(seen) {
                    return found.map(|(slot, record)| (leaf, slot, record));
                }
            }
        }
    }

    /// The records of the leaf that `address` belongs to.
    pub(super) fn snapshot(&self, address: u64) -> Option<Snapshot> {
        loop {
            let leaf = self.leaf_of(address)?;
            let seen = leaf.version.begin();
            let count = leaf.count();
            let snapshot = Snapshot {
                records: array::from_fn(|at| if at < count { leaf.record_at(at) } else { Record::new(0, 0) }),
                count,
                high: leaf.high(),
            };
            if leaf.covers(address) && leaf.version.unchanged(seen) {
                return Some(snapshot);
            }
        }
    }

    /// Makes the first leaf, if there is none; `None` if there is no memory.
    #[cold]
    pub(super) fn plant(&self, thread: usize) -> Option<()> {
        let _root = self.root.version.lock();
        if self.root.link.load() == Link::NONE {
            let (leaf, _held) = self.leaves.take(thread)?;
            leaf.set_fences(0, u64::MAX);
            self.root.link.store(Link::to_leaf(leaf));
        }
        Some(())
    }
}
