//! The C face: the only `extern "C"`. Each function checks its arguments, calls into a concept and turns the result
//! into a status. One file a chapter of the header, in its order.

#![allow(non_camel_case_types)]
// What a C reader must keep to is in the prose of each comment; a heading of Rust's would be printed into the header.
#![allow(clippy::missing_safety_doc)]

mod boundary;
mod callbacks;

pub mod status;
pub mod library;
pub mod device;
pub mod stream;
pub mod event;
pub mod scope;
pub mod mempool;
pub mod memory;
pub mod managed;
pub mod allocator;
pub mod adaptor;
pub mod caching;
pub mod peer_access;
pub mod mempool_access;
pub mod dtype;
pub mod array;
pub mod view;
pub mod indexed;
pub mod copy;
pub mod capture;
pub mod graph;
pub mod access;
pub mod launch;
pub mod plug;
pub mod ipc;
