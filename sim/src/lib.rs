//! A simulated CUDA driver, made for tests: `libcuda.so.1` without a GPU.
//!
//! - [`api`]: the exported entry points, one file a chapter of the Driver API, and the control functions.
//! - `call`: how a call comes in and goes out; `thread`: what belongs to the calling thread.
//! - `world`: the whole state, under one lock. Its rooms: `topology` and `attribute` (which machine), `context`,
//!   `stream` (queues), `schedule` (what of them runs when), `order` (what precedes what, and what should have),
//!   `work` (what a piece of queued work does), `event`, `capture`, `graph`, `launch` (executables of graphs),
//!   `graph_memory`, `user_object`, `module` and `kernel` (programs, launches), `ptx` (their interpreter), `trouble` (faults), `block` (live memory), `space` and `reserve` (addresses), `store` (contents), `pool`,
//!   `vmm`, `managed`, `share`, `handle`.
//! - `codes`, `symbol`: result codes, names of entry points; `record`: the call log; `fault`: ordered failures.
mod advice;
pub mod api;
mod attribute;
mod block;
mod call;
mod capture;
mod codes;
mod context;
mod event;
mod fault;
mod graph;
mod graph_memory;
mod handle;
mod kernel;
mod launch;
mod managed;
mod module;
mod order;
mod pool;
mod ptx;
mod record;
mod reserve;
mod schedule;
mod share;
mod space;
mod store;
mod stream;
mod symbol;
mod thread;
mod topology;
mod trouble;
mod user_object;
mod vmm;
mod work;
mod world;
