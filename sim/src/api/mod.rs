//! The exported names. Every function has its static entry, its arguments for the log, and its body.
//!
//! Pointer parameters are [`crate::call::Out`] and [`crate::call::In`], so that only those two read and write through
//! what C passes in.
#![allow(non_snake_case, reason = "the names are the driver's")]
pub mod capture;
pub mod context;
pub mod control;
pub mod copy;
pub mod device;
pub mod event;
pub mod fill;
pub mod function;
pub mod graph;
pub mod host;
pub mod init;
pub mod ipc;
pub mod kernel_node;
pub mod managed;
pub mod memory;
pub mod module;
pub mod node;
pub mod peer;
pub mod pointer;
pub mod pool;
pub mod stream;
pub mod vmm;

use crate::call::{Entry, call};
use crate::codes::{self, Code};

/// Refuses by name what is not simulated.
fn unsupported(entry: &'static Entry) -> Code {
    call(entry, [], |session| {
        session.note = Some(format!("unsupported: {}", session.entry).into());
        Err(codes::NOT_SUPPORTED)
    })
}
