//! Memory that is kept for the next who wants some: pure bookkeeping over addresses, which knows no driver and asks nobody for memory.
//!
//! - A `Lane` is the memory of one stream. What is given back there is good at once for whoever asks there.
//! - A `Heap` in it has chunks, cut into blocks and joined again, under a lock.
//! - A `Front` before that is what one thread has at hand. Taking and giving there writes only what the thread itself writes: no lock,
//!   no shared cache line, one locked instruction that makes a second free of a block fail.
//! - A `Block` says where it is by its `State`. Blocks are never freed as objects, so an old reference finds one, and sees whether it
//!   is still that.
//!
//! A block that was taken from a heap is in the ledger until it goes back there. While it is at hand its record stays where it is: so
//! handing it out costs no search.

mod block;
mod front;
mod heap;
mod lane;
mod sizes;

#[cfg(test)]
mod tests;

pub use block::{Block, State, at, mend_in_child};
pub use front::{Front, Given};
pub use heap::{Chunk, chunk_for};
pub use lane::{Inner, Lane, Of};
pub use sizes::{GRANULE, LARGEST};
