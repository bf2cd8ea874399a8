//! A grid of threads: blocks one after another, and the threads of a block by turns, so that one may wait for another.
use std::collections::BTreeMap;

use super::operand::{LOCAL_WINDOW, SHARED_WINDOW, Space, WINDOW};
use super::program::{Address, Clock, Instruction, Kernel, Special};
use super::step::{self, Next};

/// Instructions that a thread runs before the next one has its turn.
const TURN: u32 = 20_000;
const WARP: u32 = 32;

/// Why a grid ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// An access that is no multiple of its size.
    Misaligned {
        address: u64,
    },
    /// Memory that is not to be had.
    Illegal {
        address: u64,
        bytes: usize,
        write: bool,
    },
    /// Shared memory that a block does not have.
    OutOfShared {
        address: u64,
    },
    Trapped,
    /// More instructions than are let pass, or threads that wait for each other for ever.
    TimedOut,
}

/// Memory outside of blocks of threads. An access is of at most 16 bytes, and a multiple of its size.
pub trait Memory {
    /// # Errors
    /// That it is not to be had.
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Stop>;
    /// # Errors
    /// That it is not to be had.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Stop>;
    /// Nanoseconds, for the kernel's clock.
    fn nanoseconds(&self) -> u64;
}

/// What a launch says.
pub struct Grid<'a> {
    pub kernel: &'a Kernel,
    pub parameters: &'a [u8],
    /// The addresses of the module's variables.
    pub variables: &'a [u64],
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Bytes of shared memory beside the kernel's own.
    pub shared: u32,
    /// Multiprocessors of the device.
    pub multiprocessors: u32,
    /// Instructions of all threads together.
    pub limit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    Ready,
    /// At a barrier of the block, with how many threads it wants.
    Waits {
        number: u32,
        threads: Option<u32>,
    },
    WaitsForWarp,
    Done,
}

pub struct Thread {
    pub slots: Vec<u64>,
    pub local: Vec<u8>,
    pub at: u32,
    pub carry: bool,
    pub state: State,
}

/// A block of threads, with what its threads share.
pub struct Block<'a, M> {
    pub grid: &'a Grid<'a>,
    pub memory: &'a mut M,
    pub shared: Vec<u8>,
    pub steps: u64,
}

fn axis(shape: [u32; 3], index: u64, axis: u8) -> u64 {
    let [x, y] = [u64::from(shape[0]), u64::from(shape[1])];
    match axis {
        0 => index % x,
        1 => index / x % y,
        _ => index / (x * y),
    }
}

fn size(shape: [u32; 3]) -> u64 {
    shape.iter().map(|size| u64::from(*size)).product()
}

impl Grid<'_> {
    fn special(&self, what: Special, block: u64, thread: u64) -> u64 {
        let lane = thread % u64::from(WARP);
        match what {
            Special::Thread(of) => axis(self.block, thread, of),
            Special::BlockSize(of) => u64::from(self.block[usize::from(of)]),
            Special::Block(of) => axis(self.grid, block, of),
            Special::GridSize(of) => u64::from(self.grid[usize::from(of)]),
            Special::Lane => lane,
            Special::Warp => thread / u64::from(WARP),
            Special::Warps => size(self.block).div_ceil(u64::from(WARP)),
            Special::Multiprocessor => block % u64::from(self.multiprocessors.max(1)),
            Special::Multiprocessors => u64::from(self.multiprocessors),
            Special::GridId => 1,
            Special::WarpSize => u64::from(WARP),
            Special::DynamicShared => u64::from(self.shared),
            Special::TotalShared => self.kernel.shared + u64::from(self.shared),
            Special::Lanes(which) => {
                let own = 1_u64 << lane;
                let all = u64::from(u32::MAX);
                match which {
                    0 => own,
                    1 => own - 1,
                    2 => own | (own - 1),
                    3 => all & !(own - 1),
                    _ => all & !(own | (own - 1)),
                }
            }
            Special::Variable(index) => self.variables.get(index as usize).copied().unwrap_or(0),
            Special::SharedEnd => self.kernel.shared.next_multiple_of(16),
        }
    }
}

/// Runs a grid to its end. The number of instructions.
///
/// # Errors
/// What ended it before.
pub fn run(grid: &Grid, memory: &mut impl Memory) -> Result<u64, Stop> {
    let shared = grid.kernel.shared.next_multiple_of(16) + u64::from(grid.shared);
    let mut block = Block { grid, memory, shared: vec![0; shared as usize], steps: 0 };
    let mut threads: Vec<Thread> = Vec::new();
    for number in 0..size(grid.grid) {
        if number > 0 && shared > 0 {
            block.shared.fill(0);
        }
        block.start(number, &mut threads);
        block.run(&mut threads)?;
        if block.steps > grid.limit {
            return Err(Stop::TimedOut);
        }
    }
    Ok(block.steps)
}

impl<M: Memory> Block<'_, M> {
    fn start(&self, number: u64, threads: &mut Vec<Thread>) {
        let kernel = self.grid.kernel;
        for index in 0..size(self.grid.block) {
            if threads.len() as u64 == index {
                threads.push(Thread {
                    slots: kernel.slots.clone(),
                    local: vec![0; kernel.local as usize],
                    at: 0,
                    carry: false,
                    state: State::Ready,
                });
            } else {
                let thread = &mut threads[index as usize];
                thread.slots.copy_from_slice(&kernel.slots);
                thread.local.fill(0);
                thread.at = 0;
                thread.carry = false;
                thread.state = State::Ready;
            }
            let thread = &mut threads[index as usize];
            for (slot, special) in &kernel.specials {
                thread.slots[*slot as usize] = self.grid.special(*special, number, index);
            }
        }
    }

    fn run(&mut self, threads: &mut [Thread]) -> Result<(), Stop> {
        loop {
            let mut left = false;
            for thread in threads.iter_mut() {
                if thread.state == State::Ready {
                    self.turn(thread)?;
                }
                left |= thread.state != State::Done;
            }
            if !left {
                return Ok(());
            }
            let ready = threads.iter().any(|thread| thread.state == State::Ready);
            if !release(threads) && !ready {
                return Err(Stop::TimedOut);
            }
        }
    }

    /// Lets a thread run until it waits, is done, or has had its turn.
    fn turn(&mut self, thread: &mut Thread) -> Result<(), Stop> {
        let code: &[Instruction] = &self.grid.kernel.code;
        for done in 0..TURN {
            let Instruction { guard, op } = &code[thread.at as usize];
            if let Some((slot, negated)) = guard
                && (thread.slots[*slot as usize] == 0) != *negated
            {
                thread.at += 1;
                continue;
            }
            match step::step(self, thread, op)? {
                Next::Following => thread.at += 1,
                Next::At(at) => thread.at = at,
                Next::Waits(state) => {
                    thread.at += 1;
                    thread.state = state;
                    self.steps += u64::from(done) + 1;
                    return Ok(());
                }
            }
        }
        self.steps += u64::from(TURN);
        if self.steps > self.grid.limit { Err(Stop::TimedOut) } else { Ok(()) }
    }

    /// The bytes of an address as a thread sees it.
    pub fn resolve(&self, thread: &Thread, address: Address, bytes: usize) -> Result<(Space, u64), Stop> {
        let base = thread.slots[address.base as usize] & address.mask;
        let at = base.wrapping_add(address.offset);
        if !at.is_multiple_of(bytes as u64) {
            return Err(Stop::Misaligned { address: at });
        }
        Ok(match address.space {
            Space::Generic if at.wrapping_sub(SHARED_WINDOW) < WINDOW => (Space::Shared, at - SHARED_WINDOW),
            Space::Generic if at.wrapping_sub(LOCAL_WINDOW) < WINDOW => (Space::Local, at - LOCAL_WINDOW),
            Space::Generic => (Space::Global, at),
            space => (space, at),
        })
    }

    pub fn time(&self, clock: Clock) -> u64 {
        match clock {
            Clock::Steps => self.steps,
            Clock::StepsHigh => self.steps >> 32,
            Clock::Nanoseconds => self.memory.nanoseconds(),
            Clock::NanosecondsHigh => self.memory.nanoseconds() >> 32,
        }
    }
}

/// Lets the threads go whose barrier is complete. Whether there were any.
fn release(threads: &mut [Thread]) -> bool {
    let live = threads.iter().filter(|thread| thread.state != State::Done).count();
    let mut any = false;
    let mut barriers: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for thread in threads.iter() {
        if let State::Waits { number, threads } = thread.state {
            let (waiting, wanted) = barriers.entry(number).or_insert((0, live));
            *waiting += 1;
            *wanted = threads.map_or(*wanted, |wanted| wanted as usize);
        }
    }
    for thread in threads.iter_mut() {
        if let State::Waits { number, .. } = thread.state
            && barriers.get(&number).is_some_and(|(waiting, wanted)| waiting >= wanted)
        {
            thread.state = State::Ready;
            any = true;
        }
    }
    for warp in threads.chunks_mut(WARP as usize) {
        let complete = warp.iter().all(|thread| matches!(thread.state, State::WaitsForWarp | State::Done));
        for thread in warp.iter_mut().filter(|thread| complete && thread.state == State::WaitsForWarp) {
            thread.state = State::Ready;
            any = true;
        }
    }
    any
}
