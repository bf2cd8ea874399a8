//! The memory system of a GPU runtime, made for embedding.

pub mod ledger;
