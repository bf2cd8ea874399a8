//! Memory that is kept for the next who wants some: pure bookkeeping over addresses, which knows no driver and asks nobody for memory.
//!
//! - A `Lane` is the memory of one stream. What is given back there is good at once for whoever asks there.
//! - A `Heap` in it has chunks, cut into blocks and joined again, under a lock.
//! - A `Front` before that is what one thread has at hand. Taking and giving there writes only what the thread itself writes: no lock,
//!   no shared cache line, one locked instruction that makes a second free of a block fail.
//! - A `Block` says where it is by its `State`. Blocks are never freed as objects, so an old reference finds one, and sees whether it
//!   is still that.
//!
//! - A `Map` tells which block an address lies in.
//!
//! The ledger knows of none of this: a block that is handed out is entered in no tree, and taken out of none.

mod block;
mod front;
mod heap;
mod lane;
mod map;
mod sizes;

#[cfg(test)]
mod tests;

pub use block::{Block, Life, State, Taken};
pub use front::{Front, Given, MOST_AT_HAND};
pub use heap::{Chunk, Refused, chunk_for};
pub use lane::{Inner, Lane, Owner, Totals};
pub use map::{Map, each, find, find_of, was_freed};
pub use sizes::{LARGE_GRANULE, LARGEST};

/// After a fork, in the child: what the parent kept is the parent's.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe {
        block::mend_in_child();
        lane::mend_in_child();
        map::mend_in_child();
    }
}
