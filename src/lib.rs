//! The memory system of a GPU runtime, made for embedding: one C ABI that owns the table of devices, decides
//! which allocator serves each request, knows every allocation it made, and answers for each address what it
//! is and who may touch it.
//!
//! The map of the house; arrows point one way, `ffi` → the concepts → `driver`:
//!
//! - `ffi`: the C face, one file a chapter of the header.
//! - `access`: whether code on a device may touch some memory, and what a kernel is given.
//! - `array`: items of a type in memory that views share. `copy`: filling and copying any ranges of bytes.
//! - `allocator`: allocators as objects, ours, other code's, and those that stand on others.
//! - `alloc`: raw memory, who serves it and how it is given back. `ledger`: every live block by its address.
//! - `cache`: memory that is kept for the next who wants some.
//! - `plug`: serving frameworks that call plain functions.
//! - `managed`: managed memory on the move, and hints for it. `ipc`: memory for other processes.
//! - `pool`: memory pools, and which one a device allocates from.
//! - `capture`: work that is recorded, and the graph that owns what was allocated meanwhile. `graph`: launching it.
//! - `peer`: which GPU may touch whose memory.
//! - `stream`: the order of work on a device. `event`: marks in it, and the order between streams. `host_call`: functions of
//!   callers in it.
//! - `device`: the CPU, the GPUs and their contexts. `report`: what was found at the start.
//! - `scope`: what a thread changes until it puts it back.
//! - `driver`: the only room that knows CUDA.
//! - `kind`: kinds of memory and the rules for them. `tag`: names of what is allocated.
//!
//! What all of them stand on: `runtime` the life of the library in a process, `handle` what callers name objects
//! by, `thread` what each thread keeps for it, `moment` when what it remembers is out of date, `lock` who waits for whom, `fork` what
//! a forked child needs, `boundary` the way out to callbacks, `log` their messages, `config` the environment, `error` what can go
//! wrong; `random` numbers for tests.

mod access;
mod alloc;
mod allocator;
mod array;
mod boundary;
mod cache;
mod capture;
mod config;
mod copy;
mod device;
mod driver;
mod error;
mod event;
pub mod ffi;
mod fork;
mod graph;
mod handle;
mod host_call;
mod ipc;
mod kind;
pub mod ledger;
mod lock;
mod log;
mod managed;
mod moment;
mod peer;
mod plug;
mod pool;
#[cfg(test)]
mod random;
mod report;
mod runtime;
mod scope;
mod stream;
mod tag;
mod thread;
