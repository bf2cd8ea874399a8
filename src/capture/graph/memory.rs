//! The memory that a graph's capture allocated: whose it is until it is freed, and where a free goes. Into the graph, behind
//! every use; or to the thread that captures, which places it later; or into the graph's keeping, until its last run is over.

use super::{Graph, Phase, State};
use crate::capture::gone::{self, Keep};
use crate::capture::order;
use crate::driver::{Dependency, Driver, Failure, RawNode};
use crate::log::{self, log};
use crate::runtime;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// What became of a free of a graph's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freed {
    /// Every run of the graph frees it; whoever held it may forget it.
    ByGraph,
    /// The graph has it in its keeping, for further runs or until the free is placed, and gives it back in the end.
    Kept,
    /// No graph uses it any more: to be freed like any other block.
    Now,
    /// It never existed, and never will.
    Never,
}

/// A block that was freed on another thread than the capturing one, or while the capture was paused.
struct Pending {
    base: u64,
    address: u64,
    block: Box<dyn Keep>,
}

#[derive(Default)]
pub(super) struct Memory {
    /// What the capture allocated and the caller has not freed: by the block's first address the node that allocates.
    blocks: HashMap<u64, RawNode>,
    pending: Vec<Pending>,
    /// What other threads' calls may have allocated in the capture without knowing of it: addresses that nobody has.
    strays: Vec<(u64, Box<dyn Keep>)>,
    /// Where the free that was recorded last has brought it.
    ends: order::Ends,
    /// Freed blocks that the graph's runs go on using.
    own: Vec<Box<dyn Keep>>,
}

impl Memory {
    /// Whether the caller has freed every block.
    pub(super) fn is_all_freed(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Keeps a block that the caller has freed, for the graph's runs.
    fn keep(&mut self, base: u64, block: Box<dyn Keep>) {
        self.blocks.remove(&base);
        self.own.push(block);
    }

    /// Keeps the pending blocks, whose frees nobody can place any more.
    pub(super) fn keep_pending(&mut self) {
        for Pending { base, block, .. } in std::mem::take(&mut self.pending) {
            self.keep(base, block);
        }
    }

    /// The freed blocks that no free node took away.
    pub(super) fn take_own(&mut self) -> Vec<Box<dyn Keep>> {
        self.keep_pending();
        self.own.extend(self.strays.drain(..).map(|(_, stray)| stray));
        std::mem::take(&mut self.own)
    }
}

impl Graph {
    /// Addresses of the blocks that it made and nobody has freed.
    pub fn blocks(&self) -> Vec<u64> {
        if runtime::is_forked() || self.recording.is_some() {
            return Vec::new();
        }
        self.state.lock().memory.blocks.keys().copied().collect()
    }

    /// Notes what its capture just allocated.
    pub fn allocated(&self, base: u64, node: RawNode) {
        self.allocated.store(true, Ordering::Release);
        self.state.lock().memory.blocks.insert(base, node);
    }

    /// Forgets a block that is not the caller's any more.
    pub fn forget(&self, base: u64) {
        self.state.lock().memory.blocks.remove(&base);
    }

    /// Frees the block that begins at `base` and that the driver knows by `address`: `block` is what there is to keep of
    /// it. A context is current, and the thread's capture mode relaxed. On failure nothing was freed.
    pub fn free(
        &self,
        driver: &'static Driver,
        base: u64,
        address: u64,
        block: impl FnOnce() -> Box<dyn Keep>,
    ) -> Result<Freed, Failure> {
        log::after(|| {
            let mut state = self.state.lock();
            if self.is_over() {
                state.memory.blocks.remove(&base);
                let native = self.take_native(&mut state);
                drop(state);
                self.destroy(driver, None, native);
                return Ok(if self.has_run() { Freed::Now } else { Freed::Never });
            }
            match state.phase {
                // Over, and answered above.
                Phase::Void => Ok(Freed::Never),
                Phase::Capturing if self.is_this_threads() && self.captures_now(driver)? => {
                    self.place_pending(driver, &mut state);
                    self.place(driver, &mut state, base, address)?;
                    Ok(Freed::ByGraph)
                }
                Phase::Capturing | Phase::Paused(..) => {
                    state.memory.pending.push(Pending { base, address, block: block() });
                    Ok(Freed::Kept)
                }
                Phase::Whole(_) | Phase::Away => {
                    state.memory.keep(base, block());
                    Ok(Freed::Kept)
                }
            }
        })
    }

    /// As `free`, of a block that nobody frees again: without the driver, and later.
    pub fn leave(&self, base: u64, address: u64, block: Box<dyn Keep>) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Capturing | Phase::Paused(..)) && !self.is_over() {
            state.memory.pending.push(Pending { base, address, block });
            return;
        }
        if !self.is_over() {
            state.memory.keep(base, block);
            return;
        }
        state.memory.blocks.remove(&base);
        let native = self.take_native(&mut state);
        drop(state);
        if self.has_run() {
            block.give_back()
        } else {
            block.forget()
        }
        if let Ok(driver) = runtime::driver() {
            self.destroy(driver, None, native);
        }
    }

    /// Puts the free of one of its blocks into the graph, behind every use.
    fn place(&self, driver: &Driver, state: &mut State, base: u64, address: u64) -> Result<(), Failure> {
        let Some(node) = state.memory.blocks.get(&base).copied() else { return Ok(()) };
        match &mut state.phase {
            Phase::Capturing => {
                let Some(info) = driver.capture_info(self.origin.native)? else { return Ok(()) };
                let (users, free) =
                    order::add_free(driver, info.graph, node, address, &mut state.memory.ends)?;
                // From here on it is freed, and a stream that could not be moved on only waits for less.
                if let Err(f) = order::move_on(driver, (self.origin.native, self.native_id()), &users, free) {
                    log!(Warning, "a stream of a capture was not moved on: {}", driver.describe(f));
                }
            }
            Phase::Paused(graph, frontier) => {
                let (users, free) = order::add_free(driver, *graph, node, address, &mut state.memory.ends)?;
                if frontier.iter().any(|d| users.contains(&d.node)) {
                    frontier.retain(|d| !users.contains(&d.node));
                    frontier.push(Dependency::on(free));
                }
            }
            _ => return Ok(()),
        }
        state.memory.blocks.remove(&base);
        Ok(())
    }

    /// Puts the frees that other threads asked for into the graph. What the driver refuses is kept for the end.
    pub(super) fn place_pending(&self, driver: &Driver, state: &mut State) {
        for (address, stray) in std::mem::take(&mut state.memory.strays) {
            let info = driver.capture_info(self.origin.native).ok().flatten();
            match info.map(|info| order::free_stray(driver, info.graph, address, &mut state.memory.ends)) {
                Some(Ok(true)) => stray.forget(),
                Some(Ok(false)) => gone::leave(stray),
                _ => state.memory.own.push(stray),
            }
        }
        for pending in std::mem::take(&mut state.memory.pending) {
            match self.place(driver, state, pending.base, pending.address) {
                Ok(()) => pending.block.forget(),
                Err(f) => {
                    log!(
                        Warning,
                        "the free of {:#x} was not put into its graph: {}",
                        pending.base,
                        driver.describe(f)
                    );
                    state.memory.keep(pending.base, pending.block);
                }
            }
        }
    }

    /// Takes charge of what another thread's call allocated without knowing of the capture: `stray` frees it after the last run.
    /// Comes back when it is not this graph's.
    pub fn take_stray(&self, driver: &Driver, address: u64, stray: Box<dyn Keep>) -> Option<Box<dyn Keep>> {
        log::after(|| {
            let exec = self.exec.lock();
            let mut state = self.state.lock();
            let State { phase, memory, .. } = &mut *state;
            match phase {
                // The thread that captures looks for it.
                Phase::Capturing => memory.strays.push((address, stray)),
                Phase::Paused(graph, _) | Phase::Whole(graph) if !self.is_over() => {
                    // Other code's copies of it would have no free that is added now.
                    let can_add = exec.ready.is_none() && !self.shared.load(Ordering::Acquire);
                    match order::allocates(driver, *graph, address) {
                        Ok(false) => return Some(stray),
                        Ok(true)
                            if can_add
                                && order::free_stray(driver, *graph, address, &mut memory.ends).is_ok() =>
                        {
                            stray.forget();
                        }
                        _ => memory.own.push(stray),
                    }
                }
                // The caller has the graph, and runs it.
                Phase::Away if !self.is_over() => memory.own.push(stray),
                _ => return Some(stray),
            }
            None
        })
    }

    /// Before something is added to the capture: what was freed meanwhile can be used again.
    pub fn catch_up(&self, driver: &'static Driver) {
        log::after(|| {
            let mut state = self.state.lock();
            if !state.memory.pending.is_empty()
                && self.is_this_threads()
                && matches!(state.phase, Phase::Capturing)
                && self.captures_now(driver).unwrap_or(false)
            {
                self.place_pending(driver, &mut state);
            }
        });
    }
}
