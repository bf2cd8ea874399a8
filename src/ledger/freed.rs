//! Which bases were freed lately: what tells a double free from a pointer that was never ours.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const ENTRIES: usize = 4096;

/// A table with one place for each base; a later free with the same place takes it over.
///
/// It is only asked about bases that are not live, so a base that was used again need not be taken out.
pub struct RecentFrees([AtomicU64; ENTRIES]);

impl RecentFrees {
    /// A table of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; ENTRIES])
    }

    #[inline]
    fn place(&self, base: u64) -> &AtomicU64 {
        let mixed = base.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(mixed >> (64 - ENTRIES.ilog2())) as usize % ENTRIES]
    }

    /// Notes that a block which began there was freed.
    #[inline]
    pub fn note(&self, base: u64) {
        self.place(base).store(base, Relaxed);
    }

    /// Whether `base` was noted and not pushed out since. Never so for zero, which stands for an empty place.
    #[must_use]
    pub fn has(&self, base: u64) -> bool {
        base != 0 && self.place(base).load(Relaxed) == base
    }
}

impl Default for RecentFrees {
    fn default() -> Self {
        Self::new()
    }
}
