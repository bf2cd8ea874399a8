//! The deferred schedule: work is only queued, and driver calls run some of it in an order that a seed chooses, among
//! all that streams, events and the legacy stream's rules allow. Wrong programs meet here what a real machine does to
//! them on a bad day; the same seed and the same single-threaded program meet the same day again.
use std::collections::BTreeMap;

use crate::block::Kind;
use crate::call::{self, Session};
use crate::codes::{self, Code};
use crate::order::PendingFree;
use crate::space::{self, ALIGNMENT};
use crate::stream::{Mark, NON_BLOCKING, Stream};
use crate::work::Work;
use crate::world::World;

/// Not-ready answers about one thing in a row before its work is run: a loop of questions ends.
const POLLS: u32 = 40;
/// Things that are asked about at a time, of which this is remembered.
const POLLED: usize = 256;
/// Waiting pieces of work, above which calls run some whatever the dice say: a real queue is not endless either.
const BACKLOG: u64 = 4096;
/// Queued frees that an allocation looks at, the latest ones.
const LATEST_FREES: usize = 256;

/// Frees in stream order go to a stream of their own that nothing orders.
const MISPLACED_FREES: u32 = 1;
/// A stream that is told to wait for an event does not.
pub const MISSING_JOINS: u32 = 2;
/// Questions are answered by "done" while work is pending.
const EARLY_ANSWERS: u32 = 4;

/// The `SplitMix64` generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `sides`, which is small, so that the bias does not matter.
    fn below(&mut self, sides: u64) -> u64 {
        self.roll() % sides.max(1)
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }
}

pub struct Schedule {
    seed: u64,
    dice: Dice,
    /// How often a stream is chosen. Now and then all are given anew, some of them nothing.
    weights: BTreeMap<u64, u64>,
    /// From a GPU that hardly does anything, 0, to one that mostly is at hand, 3.
    pace: u64,
    /// Not-ready answers in a row, by stream number or event handle.
    polls: BTreeMap<u64, u32>,
    /// Faults of a program that a test plants.
    pub misorder: u32,
}

impl Schedule {
    pub fn new(seed: u64) -> Schedule {
        let mut dice = Dice(seed);
        let pace = dice.below(4);
        Schedule { seed, dice, weights: BTreeMap::new(), pace, polls: BTreeMap::new(), misorder: 0 }
    }

    pub fn from_environment() -> Schedule {
        let text = std::env::var("WARPSIM_SEED").unwrap_or_default();
        let seed = if text.is_empty() { Ok(0) } else { text.parse() };
        if seed.is_err() {
            eprintln!("warpsim: WARPSIM_SEED: '{text}' is no number");
        }
        Schedule::new(seed.unwrap_or(0))
    }

    fn weight(&mut self, number: u64) -> u64 {
        let Schedule { weights, dice, .. } = self;
        *weights.entry(number).or_insert_with(|| match dice.below(12) {
            0..4 => 0,
            step => 1 << (step - 4),
        })
    }

    /// One of the streams that are not to lag behind, by their weights.
    fn favoured(&mut self, ready: &[u64]) -> Option<u64> {
        let weights: Vec<u64> = ready.iter().map(|number| self.weight(*number)).collect();
        let total: u64 = weights.iter().sum();
        let mut at = if total == 0 { return None } else { self.dice.below(total) };
        ready.iter().zip(weights).find_map(|(number, weight)| {
            if at < weight {
                return Some(*number);
            }
            at -= weight;
            None
        })
    }

    /// One of the streams; those that are to lag behind where there are no others.
    fn choose(&mut self, ready: &[u64]) -> Option<u64> {
        self.favoured(ready).or_else(|| self.any_of(ready))
    }

    /// How much is done between two calls, at the present pace.
    fn pieces(&mut self) -> u64 {
        let face = self.dice.below(32);
        match self.pace {
            0 if face < 2 => 1 + self.dice.below(2),
            0 => 0,
            3 if face < 4 => u64::MAX,
            3 if face < 16 => 1 + self.dice.below(8),
            _ if face == 0 && self.dice.one_in(4) => u64::MAX,
            _ if face < 4 => 1 + self.dice.below(24),
            _ if face < 14 => 1 + self.dice.below(3),
            _ => 0,
        }
    }

    fn any_of(&mut self, numbers: &[u64]) -> Option<u64> {
        numbers.get(self.dice.below(numbers.len() as u64) as usize).copied()
    }
}

impl World {
    /// Whether work waits for a seed to choose it.
    pub fn deferred(&self) -> bool {
        self.schedule.seed != 0
    }

    /// Bases and numbers of pool blocks whose place may be had again although their frees have not run, since the stream
    /// comes after them.
    fn places_to_reuse(&self, pool: u64, size: u64, number: u64) -> Vec<(u64, u64)> {
        let usable = self.pools.get(pool).filter(|source| !source.destroyed && !source.imported);
        let Some(source) = usable.filter(|_| !self.order.frees.is_empty()) else { return Vec::new() };
        let by_events = source.reuse[0] != 0;
        let comes_after = self.order_now(number);
        let fits = |(id, free): (&u64, &PendingFree)| {
            let block = self.blocks.of(free.base, *id)?;
            let room = block.size.next_multiple_of(ALIGNMENT) >= size.next_multiple_of(ALIGNMENT);
            let ours = block.kind == Kind::Pool && block.source == pool && block.slot.is_some();
            let ordered = free.mark.stream == number || (by_events && comes_after(free.mark));
            (ours && room && space::same_class(block.size, size) && ordered).then_some((free.base, *id))
        };
        self.order.frees.iter().rev().take(LATEST_FREES).filter_map(fits).collect()
    }

    /// A block at the place of one whose free is queued. Its memory is the same from one to the next, so the pool neither
    /// grows nor waits.
    fn reuse(&mut self, pool: u64, size: u64, number: u64, context: u64) -> Option<u64> {
        let places = self.places_to_reuse(pool, size, number);
        let (base, id) = *places.get(self.schedule.dice.below(places.len() as u64) as usize)?;
        self.order.frees.remove(&id);
        let slot = self.blocks.fade(base)?;
        let device = self.pools.get(pool)?.device;
        let old = self.blocks.of(base, id).map_or(0, |block| block.size);
        self.pool_block_ended(pool, old);
        self.enter_pool_block(pool, device, context, Some(slot), base, size);
        Some(base)
    }
}

impl Session {
    /// Starts the schedule of a seed; 0 is the eager one, which runs at once what still waits.
    pub fn start_schedule(&mut self, seed: u64) {
        let misorder = self.schedule.misorder;
        self.schedule = Schedule { misorder, ..Schedule::new(seed) };
        if seed == 0 {
            self.pump();
        }
    }

    /// What the GPUs did since the last call.
    pub fn tick(&mut self) {
        if !self.deferred() || self.busy.is_empty() {
            return;
        }
        if self.schedule.dice.one_in(24) {
            self.schedule.weights.clear();
            self.schedule.pace = self.schedule.dice.below(4);
        }
        let waiting: u64 =
            self.busy.iter().filter_map(|number| self.streams.get(number)).map(Stream::waiting).sum();
        if waiting > BACKLOG {
            self.run_some(waiting - BACKLOG);
        }
        match self.schedule.pieces() {
            u64::MAX => _ = self.run_some(u64::MAX),
            pieces => self.run_favoured(pieces),
        }
    }

    /// Runs up to so many pieces of work, none of the streams that are to lag behind.
    fn run_favoured(&mut self, pieces: u64) {
        for _ in 0..pieces {
            let ready = self.ready();
            match self.schedule.favoured(&ready) {
                Some(number) => self.run_next(number),
                None => return,
            }
        }
    }

    /// Runs up to so many pieces of work of any stream. How many there were.
    pub fn run_some(&mut self, pieces: u64) -> u64 {
        let mut done = 0;
        while done < pieces {
            let ready = self.ready();
            let Some(number) = self.schedule.choose(&ready) else { break };
            self.run_next(number);
            done += 1;
        }
        done
    }

    /// Runs what stands before the marks, in random order and with other work between, until nothing of it can run.
    pub fn run_before(&mut self, marks: &[Mark]) {
        let needed = self.before(marks);
        let wanted = |world: &World, number: &u64| {
            let up_to = needed.get(number).copied().unwrap_or(0);
            world.streams.get(number).is_some_and(|stream| stream.completed < up_to)
        };
        while !marks.iter().all(|mark| self.reached(*mark)) {
            let ready = self.ready();
            let ours: Vec<u64> = ready.iter().copied().filter(|number| wanted(self, number)).collect();
            let other = !ours.is_empty() && self.schedule.dice.one_in(4);
            let chosen = if other { self.schedule.choose(&ready) } else { self.schedule.any_of(&ours) };
            match chosen {
                Some(number) => self.run_next(number),
                None => return,
            }
        }
    }

    /// Answers a question whether the marks are reached, so that asking again and again comes to an end. `key` names what
    /// is asked about.
    pub fn poll(&mut self, key: u64, marks: &[Mark]) -> bool {
        if self.schedule.misorder & EARLY_ANSWERS != 0 {
            return true;
        }
        if self.deferred() && !marks.iter().all(|mark| self.reached(*mark)) {
            if self.schedule.polls.len() == POLLED {
                self.schedule.polls.clear();
                self.run_before(marks);
            }
            let asked = self.schedule.polls.entry(key).or_default();
            *asked += 1;
            if *asked >= POLLS {
                self.run_before(marks);
            }
        }
        let done = marks.iter().all(|mark| self.reached(*mark));
        if done {
            self.schedule.polls.remove(&key);
            self.seen(marks);
        }
        done
    }

    /// Memory from a pool in stream order. With a seed the allocation has its own turn in the stream, and may be given the
    /// place of a block whose free comes before it.
    ///
    /// # Errors
    /// As [`World::alloc_from_pool`].
    pub fn alloc_in_order(&mut self, pool: u64, size: u64, number: u64, context: u64) -> Result<u64, Code> {
        if !self.deferred() {
            return self.alloc_from_pool(pool, size, context);
        }
        let again = size > 0 && self.admit_size(size).is_ok() && self.schedule.dice.one_in(2);
        let reused = if again { self.reuse(pool, size, number, context) } else { None };
        let base = match reused {
            Some(base) => base,
            None => match self.alloc_from_pool(pool, size, context) {
                // The real driver makes the allocation wait for queued frees before it gives up.
                Err(codes::OUT_OF_MEMORY) if !self.order.frees.is_empty() => {
                    self.run_some(u64::MAX);
                    self.alloc_from_pool(pool, size, context)?
                }
                other => other?,
            },
        };
        if let Some(id) = self.blocks.at(base).map(|block| block.id) {
            self.submit(number, Vec::new(), Work::Allocate { base, id });
        }
        Ok(base)
    }

    /// The stream that a free goes to: the one it names, unless a test plants the fault of a wrong one.
    pub fn stream_for_free(&mut self, number: u64) -> u64 {
        if self.schedule.misorder & MISPLACED_FREES == 0 {
            return number;
        }
        let context = self.streams.get(&number).map(|stream| stream.context);
        context.and_then(|context| self.add_hidden_stream(context, NON_BLOCKING).ok()).unwrap_or(number)
    }

    /// Before a context ends: its work is done as far as it can be, as if the end had come a little later.
    pub fn settle_context(&mut self, handle: u64) {
        if !self.deferred() {
            return;
        }
        let Some(id) = self.contexts.get(handle).filter(|context| context.alive()).map(|context| context.id)
        else {
            return;
        };
        let ends = self.ends(|stream| stream.context_id == id);
        self.run_before(&ends);
        call::progress();
    }
}
