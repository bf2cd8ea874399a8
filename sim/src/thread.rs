//! What belongs to the calling thread: its stack of current contexts, its capture mode, its number.
//! Nothing here has a destructor, so a thread may end after the library's statics are gone.
use std::cell::Cell;

use crate::codes::{self, Code};

const DEPTH: usize = 64;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, which every thread starts with.
const GLOBAL: u32 = 0;

thread_local! {
    static CONTEXTS: [Cell<u64>; DEPTH] = const { [const { Cell::new(0) }; DEPTH] };
    static LEVEL: Cell<usize> = const { Cell::new(0) };
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The handle on top of the stack, 0 for none.
pub fn current() -> u64 {
    match LEVEL.get() {
        0 => 0,
        level => CONTEXTS.with(|stack| stack[level - 1].get()),
    }
}

/// Replaces the top of the stack; 0 pops it.
pub fn set_current(handle: u64) {
    let level = LEVEL.get();
    if handle == 0 {
        LEVEL.set(level.saturating_sub(1));
        return;
    }
    let level = level.max(1);
    LEVEL.set(level);
    CONTEXTS.with(|stack| stack[level - 1].set(handle));
}

/// # Errors
/// Out of memory when the stack is full.
pub fn push(handle: u64) -> Result<(), Code> {
    let level = LEVEL.get();
    if level == DEPTH {
        return Err(codes::OUT_OF_MEMORY);
    }
    CONTEXTS.with(|stack| stack[level].set(handle));
    LEVEL.set(level + 1);
    Ok(())
}

pub fn pop() -> Option<u64> {
    let level = LEVEL.get().checked_sub(1)?;
    LEVEL.set(level);
    Some(CONTEXTS.with(|stack| stack[level].get()))
}

/// How the calling thread stands to captures of others and its own.
pub fn capture_mode() -> u32 {
    MODE.get()
}

pub fn exchange_capture_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

/// Runs a host function of a stream. A real driver does so in a thread of its own, without a context and in the mode that
/// every thread starts with; most calls from inside it are refused.
pub fn host_function(body: impl FnOnce()) {
    let (outer, level, mode) = (IN_HOST_FUNCTION.replace(true), LEVEL.replace(0), MODE.replace(GLOBAL));
    body();
    IN_HOST_FUNCTION.set(outer);
    LEVEL.set(level);
    MODE.set(mode);
}

pub fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// The kernel's number of the calling thread.
pub fn number() -> u64 {
    if NUMBER.get() == 0 {
        // SAFETY: gettid takes nothing and cannot fail.
        NUMBER.set(unsafe { libc::gettid() } as u64);
    }
    NUMBER.get()
}
