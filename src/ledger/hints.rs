//! What a thread remembers of its last visits, so that most calls need no way through the tree.
//!
//! A hint is never believed: the slot or the leaf it names is asked, and if it is the wrong one the call goes through
//! the tree. So hints need no upkeep when records move, and it is only a matter of speed that each thread has its own
//! table. A thread keeps nothing but its number, which needs no destructor; tables belong to the ledger, and threads
//! beyond the number of tables share them.

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use super::leaf::{Leaf, SLOTS};
use super::record::Record;

const TABLES: usize = 128;
const SETS: usize = 1024;
const WAYS: usize = 4;
/// Leaves lie on whole lines, so a pointer to one has six low bits for the slot...
const SLOT_BITS: u32 = 6;
/// ...and sixteen high ones for a part of the address that the hint is about.
const TAG_SHIFT: u32 = 48;

static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread's number, from 1; zero until it asks.
    static THREAD: Cell<usize> = const { Cell::new(0) };
}

/// A number of the calling thread that threads share as little as possible.
#[inline]
pub(super) fn thread_number() -> usize {
    THREAD.with(|number| {
        if number.get() == 0 {
            number.set(NEXT_THREAD.fetch_add(1, Relaxed).wrapping_add(1).max(1));
        }
        number.get()
    })
}

/// One thread's hints. All zero is a valid, empty state.
#[repr(C, align(64))]
pub(super) struct Hints {
    last_leaf: AtomicPtr<Leaf>,
    last_position: AtomicUsize,
    /// A leaf with few records, to be joined with a neighbour once this thread is busy elsewhere.
    sparse: AtomicPtr<Leaf>,
    sets: [[AtomicPtr<Leaf>; WAYS]; SETS],
}

impl Hints {
    /// The leaf of the last change and the position in it.
    #[inline]
    pub(super) fn last(&self) -> Option<(&Leaf, usize)> {
        // SAFETY: null, or stored by `set_last` from a leaf of the ledger that owns this table; leaves outlive it. The
        // acquire pairs with the release there, so a thread that shares the table sees the leaf initialised.
        let leaf = unsafe { self.last_leaf.load(Acquire).as_ref() }?;
        Some((leaf, self.last_position.load(Relaxed)))
    }

    #[inline]
    pub(super) fn set_last(&self, leaf: &Leaf, position: usize) {
        let leaf = ptr::from_ref(leaf).cast_mut();
        if self.last_leaf.load(Relaxed) != leaf {
            self.last_leaf.store(leaf, Release);
        }
        self.last_position.store(position, Relaxed);
    }

    /// Notes a sparse leaf and gives the one noted before, if it is another.
    #[inline]
    pub(super) fn swap_sparse(&self, leaf: &Leaf) -> Option<&Leaf> {
        let leaf = ptr::from_ref(leaf).cast_mut();
        let before = self.sparse.load(Acquire);
        if before == leaf {
            return None;
        }
        self.sparse.store(leaf, Release);
        // SAFETY: null, or stored above from a leaf of the ledger that owns this table.
        unsafe { before.as_ref() }
    }

    /// The set of an address and the bits that mark its hints.
    #[inline]
    fn place(&self, address: u64) -> (&[AtomicPtr<Leaf>; WAYS], usize) {
        let mixed = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = (mixed >> (64 - SETS.ilog2())) as usize % SETS;
        (&self.sets[set], ((mixed >> 32) as usize & 0xffff) << TAG_SHIFT)
    }

    #[inline]
    fn matching(set: &[AtomicPtr<Leaf>; WAYS], tag: usize) -> usize {
        let mut matching = 0;
        for (way, entry) in set.iter().enumerate() {
            let same = (entry.load(Relaxed).addr() ^ tag) >> TAG_SHIFT == 0;
            matching |= usize::from(same) << way;
        }
        matching
    }

    /// The leaf and the slot that an entry names.
    #[inline]
    fn follow(entry: &AtomicPtr<Leaf>) -> Option<(&Leaf, usize)> {
        let hint = entry.load(Acquire);
        let slot = hint.addr() & ((1 << SLOT_BITS) - 1);
        let pointer = hint.map_addr(|address| address & (((1 << TAG_SHIFT) - 1) & !((1 << SLOT_BITS) - 1)));
        // SAFETY: null, or stored by `remember`, which adds to a leaf's pointer only what was just taken off.
        Some((unsafe { pointer.as_ref() }?, slot))
    }

    /// The record that contains `address`, if a hint leads to it.
    #[inline]
    pub(super) fn recall(&self, address: u64) -> Option<Record> {
        let (set, tag) = self.place(address);
        let mut matching = Self::matching(set, tag);
        while matching != 0 {
            let (leaf, slot) = Self::follow(&set[matching.trailing_zeros() as usize % WAYS])?;
            if let Some(record) = leaf.peek(slot, address) {
                return Some(record);
            }
            matching &= matching - 1;
        }
        None
    }

    /// The leaf in which `address` was last found.
    #[inline]
    pub(super) fn recall_leaf(&self, address: u64) -> Option<&Leaf> {
        let (set, tag) = self.place(address);
        let matching = Self::matching(set, tag);
        if matching == 0 {
            return None;
        }
        Some(Self::follow(&set[matching.trailing_zeros() as usize % WAYS])?.0)
    }

    /// Notes where `address` was found; the oldest hint of the set, or a wrong one for the same address, goes.
    #[inline]
    pub(super) fn remember(&self, address: u64, leaf: &Leaf, slot: usize) {
        let (set, tag) = self.place(address);
        let leaf = ptr::from_ref(leaf).cast_mut();
        if leaf.addr() >> TAG_SHIFT != 0 || slot >= SLOTS {
            return;
        }
        let stale = (Self::matching(set, tag) | 1 << (WAYS - 1)).trailing_zeros() as usize;
        for way in (0..stale.min(WAYS - 1)).rev() {
            set[way + 1].store(set[way].load(Acquire), Release);
        }
        set[0].store(leaf.map_addr(|address| address | slot | tag), Release);
    }
}

pub(super) struct HintTables([AtomicPtr<Hints>; TABLES]);

impl HintTables {
    pub(super) const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; TABLES])
    }

    /// The calling thread's table, made at its first use; `None` if there is no memory, which only costs speed.
    #[inline]
    pub(super) fn of_this_thread(&self) -> Option<&Hints> {
        self.of(thread_number())
    }

    /// The table of the thread with that number.
    #[inline]
    pub(super) fn of(&self, thread: usize) -> Option<&Hints> {
        let cell = &self.0[thread % TABLES];
        // SAFETY: null or stored by `make`; tables live as long as `self`.
        unsafe { cell.load(Acquire).as_ref() }.or_else(|| Self::make(cell))
    }

    #[cold]
    fn make(cell: &AtomicPtr<Hints>) -> Option<&Hints> {
        let layout = Layout::new::<Hints>();
        // SAFETY: the layout has a size.
        let table = unsafe { alloc::alloc_zeroed(layout) }.cast::<Hints>();
        if table.is_null() {
            return None;
        }
        let winner = match cell.compare_exchange(ptr::null_mut(), table, Release, Acquire) {
            Ok(_) => table,
            Err(winner) => {
                // SAFETY: just got with this layout and seen by nobody.
                unsafe { alloc::dealloc(table.cast(), layout) };
                winner
            }
        };
        // SAFETY: zeroes are an empty table (null pointers and a zero number), and it lives as long as the cell's owner.
        unsafe { winner.as_ref() }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.0.iter().filter(|cell| !cell.load(Relaxed).is_null()).count() * size_of::<Hints>()
    }
}

impl Drop for HintTables {
    fn drop(&mut self) {
        for cell in &mut self.0 {
            let table = *cell.get_mut();
            if !table.is_null() {
                // SAFETY: made by `make` with this layout; nobody else has a reference to the ledger any more.
                unsafe { alloc::dealloc(table.cast(), Layout::new::<Hints>()) };
            }
        }
    }
}
