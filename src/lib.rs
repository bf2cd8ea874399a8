//! The memory system of a GPU runtime, made for embedding: one C ABI that owns the table of devices, decides
//! which allocator serves each request, knows every allocation it made, and answers for each address what it
//! is and who may touch it.
//!
//! The map of the house; arrows point one way, `ffi` → the concepts → `driver`:
//!
//! - `ffi`: the C face, one file a chapter of the header.
//! - `driver`: the only room that knows CUDA.

mod alloc;
mod array;
mod boundary;
mod config;
mod copy;
mod device;
mod driver;
mod error;
pub mod ffi;
mod fork;
mod handle;
pub mod ledger;
mod log;
mod runtime;
mod stream;
mod thread;
