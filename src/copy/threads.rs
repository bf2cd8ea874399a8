//! The copy threads: they move memory for calls that have much of it to move, and do nothing else. No driver, no callback, no
//! allocation, no lock but the one of the desk where pieces of work are handed out. They start when they are first needed and
//! end at shutdown. A forked child has none: there the calling thread does everything.
//!
//! A call hands its work out in pieces and helps with them, so it comes to its end however many threads there are.

mod start;

use crate::runtime;
use start::{Duty, Thread};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const DEFAULT_COUNT: u32 = 4;

/// How long a thread looks for news before it sleeps. To be woken takes about as long as to copy a piece.
const SPIN: Duration = Duration::from_micros(20);

/// Host memory is copied by the threads from this size on: below, they come too late to be of use.
const HOST_FROM: u64 = 4 << 20;
const LARGEST_HOST_PIECE: u64 = 4 << 20;
const SMALLEST_HOST_PIECE: u64 = 256 << 10;

static CREW: Crew = Crew::new(half_of_the_cores, || runtime::require_live().is_ok());

/// Sets how many threads there may be, 0 for none. Those that are too many have ended when this returns.
pub fn set_count(count: u32) {
    CREW.asked.store(count, Ordering::Relaxed);
    CREW.shrink(CREW.count());
}

/// How many threads there may be: what was asked for, and no more than half of the cores.
pub fn count() -> u32 {
    CREW.count()
}

fn half_of_the_cores() -> u32 {
    /// One more than the answer; 0 before the first question. To ask the system takes a while.
    static KNOWN: AtomicU32 = AtomicU32::new(0);
    match KNOWN.load(Ordering::Relaxed) {
        0 => {
            let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
            let half = u32::try_from(cores / 2).unwrap_or(u32::MAX - 1);
            KNOWN.store(half + 1, Ordering::Relaxed);
            half
        }
        known => known - 1,
    }
}

/// Runs all pieces, on the threads and the calling one; they are done when this returns.
pub fn for_each(pieces: u64, work: &(dyn Fn(u64) + Sync)) {
    CREW.for_each(pieces, work);
}

/// Runs `lead` with a job whose pieces it hands out. When this returns every piece that was begun is done, and none is begun
/// any more.
pub fn with<R>(work: &(dyn Fn(u64) + Sync), lead: impl FnOnce(&Pieces<'_>) -> R) -> R {
    CREW.with(work, lead)
}

/// Whether a copy of so much memory of the host is shared among threads.
pub fn serve_host(size: u64) -> bool {
    size >= HOST_FROM && count() != 0 && !runtime::is_forked()
}

/// Has ranges of a copy between host memory moved, each once and in any order; all are when this returns.
pub fn host(size: u64, move_range: &(dyn Fn(std::ops::Range<u64>) + Sync)) {
    if !serve_host(size) {
        return move_range(0..size);
    }
    // Several for each thread, since some of them are slower, and begin later.
    let shares = 4 * (u64::from(count()) + 1);
    let piece = (size / shares).clamp(SMALLEST_HOST_PIECE, LARGEST_HOST_PIECE).next_multiple_of(4096);
    for_each(size.div_ceil(piece), &|number| {
        let start = number * piece;
        move_range(start..size.min(start + piece));
    });
}

/// At shutdown: the threads end. With no lock held. A later life starts new ones.
pub fn dismantle() {
    CREW.shrink(0);
}

type Work<'w> = &'w (dyn Fn(u64) + Sync);

/// Threads and what they work on.
struct Crew {
    /// As many as were asked for.
    asked: AtomicU32,
    /// More than this there are never.
    most: fn() -> u32,
    /// Whether threads may be started at this moment.
    may_start: fn() -> bool,
    desk: Mutex<Desk>,
    /// Threads with nothing to do sleep here.
    offered: Condvar,
    /// Callers with nothing to do sleep here.
    finished: Condvar,
    /// Changes when there is something new for the threads.
    news: AtomicU64,
    workers: Mutex<Vec<Thread<Worker>>>,
    /// One more than the number of threads that was asked for when they were started; 0 before that.
    manned: AtomicU32,
    /// The process whose threads they are, 0 before the first. Its fork has the locks as some thread left them.
    process: AtomicU32,
}

/// What one of the threads is told.
struct Worker {
    crew: &'static Crew,
    leave: AtomicBool,
}

impl Duty for Worker {
    fn serve(&self) {
        self.crew.serve(&self.leave);
    }
}

#[derive(Default)]
struct Desk {
    jobs: Vec<Entry>,
    /// The number of the next job.
    number: u64,
    /// Where the search for a piece begins, so that all jobs have their turn.
    turn: usize,
    /// How many threads sleep.
    asleep: usize,
}

/// A job as it lies on the desk.
struct Entry {
    number: u64,
    /// Lives for as long as the entry.
    work: Work<'static>,
    next: u64,
    /// Pieces below this one may be begun.
    offered: u64,
    running: u32,
    is_awaited: bool,
    panic: Option<Box<dyn Any + Send>>,
}

/// A piece that somebody has begun.
struct Piece {
    job: u64,
    work: Work<'static>,
    number: u64,
}

impl Entry {
    fn take(&mut self) -> Option<Piece> {
        if self.next >= self.offered {
            return None;
        }
        self.next += 1;
        self.running += 1;
        Some(Piece { job: self.number, work: self.work, number: self.next - 1 })
    }
}

impl Desk {
    fn job(&mut self, number: u64) -> Option<&mut Entry> {
        self.jobs.iter_mut().find(|job| job.number == number)
    }

    fn take_in_turn(&mut self) -> Option<Piece> {
        let count = self.jobs.len();
        for step in 0..count {
            let at = (self.turn + step) % count;
            if let Some(piece) = self.jobs.get_mut(at).and_then(Entry::take) {
                self.turn = at + 1;
                return Some(piece);
            }
        }
        None
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing unwinds under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sleep<'m, T>(condition: &Condvar, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Looks for a moment whether it holds.
fn spin_until(holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + SPIN;
    loop {
        for _ in 0..16 {
            if holds() {
                return true;
            }
            std::hint::spin_loop();
        }
        if Instant::now() >= end {
            return false;
        }
    }
}

impl Crew {
    const fn new(most: fn() -> u32, may_start: fn() -> bool) -> Crew {
        Crew {
            asked: AtomicU32::new(DEFAULT_COUNT),
            most,
            may_start,
            desk: Mutex::new(Desk { jobs: Vec::new(), number: 0, turn: 0, asleep: 0 }),
            offered: Condvar::new(),
            finished: Condvar::new(),
            news: AtomicU64::new(0),
            workers: Mutex::new(Vec::new()),
            manned: AtomicU32::new(0),
            process: AtomicU32::new(0),
        }
    }

    fn count(&self) -> u32 {
        self.asked.load(Ordering::Relaxed).min((self.most)())
    }

    fn for_each(&'static self, pieces: u64, work: Work<'_>) {
        if pieces <= 1 || self.count() == 0 {
            return (0..pieces).for_each(work);
        }
        self.with(work, |job| {
            job.offer(pieces);
            while job.help() {}
        });
    }

    fn with<R>(&'static self, work: Work<'_>, lead: impl FnOnce(&Pieces<'_>) -> R) -> R {
        let mut job = self.open(work);
        let result = lead(&job);
        if let Some(panic) = job.close() {
            // As if the calling thread had run the piece.
            resume_unwind(panic);
        }
        result
    }

    fn open<'w>(&'static self, work: Work<'w>) -> Pieces<'w> {
        let crew = if self.man() { Some(self) } else { None };
        let number = crew.map_or(0, |crew| {
            let mut desk = lock(&crew.desk);
            desk.number += 1;
            let number = desk.number;
            // SAFETY: only the lifetime changes. The job takes the entry away before it ends, and waits until nobody runs a
            // piece of it; nobody outside of this file has a job that could be forgotten.
            let work = unsafe { std::mem::transmute::<Work<'w>, Work<'static>>(work) };
            let (next, offered, running) = (0, 0, 0);
            desk.jobs.push(Entry { number, work, next, offered, running, is_awaited: false, panic: None });
            number
        });
        Pieces { crew, number, work, alone: Cell::new((0, 0)) }
    }

    /// Sees to it that the threads are there. False where there can be none: then their locks are not to be touched.
    fn man(&'static self) -> bool {
        let count = self.count();
        if count == 0 {
            return false;
        }
        let own = std::process::id();
        match self.process.load(Ordering::Acquire) {
            0 if runtime::is_forked() => return false,
            0 => {
                // Whoever is first; all have the same number.
                self.process.store(own, Ordering::Release);
            }
            process if process != own => return false,
            _ => {}
        }
        // Those that could not be started are not tried again before something has changed.
        if self.manned.load(Ordering::Acquire) != count.saturating_add(1) {
            let mut workers = lock(&self.workers);
            // Asked under the lock: who has fewer, or ends all, comes later and finds what is started here.
            let count = self.count();
            if (self.may_start)() {
                while workers.len() < count as usize {
                    let Some(worker) = self.start(workers.len()) else { break };
                    workers.push(worker);
                }
                self.manned.store(count.saturating_add(1), Ordering::Release);
            }
        }
        true
    }

    fn start(&'static self, number: usize) -> Option<Thread<Worker>> {
        let worker = Worker { crew: self, leave: AtomicBool::new(false) };
        Thread::start(format!("warpmem-copy-{number}"), worker)
    }

    /// Ends the threads beyond a number.
    fn shrink(&'static self, count: u32) {
        if self.process.load(Ordering::Acquire) != std::process::id() {
            return;
        }
        let leaving: Vec<_> = {
            let mut workers = lock(&self.workers);
            self.manned.store(0, Ordering::Release);
            let kept = workers.len().min(count as usize);
            workers.drain(kept..).collect()
        };
        if leaving.is_empty() {
            return;
        }
        leaving.iter().for_each(|worker| worker.duty().leave.store(true, Ordering::Release));
        let desk = lock(&self.desk);
        self.news.fetch_add(1, Ordering::Release);
        drop(desk);
        self.offered.notify_all();
        leaving.into_iter().for_each(Thread::join);
    }

    /// What a thread does. The pieces' panics are caught one by one.
    fn serve(&self, leave: &AtomicBool) {
        let mut desk = lock(&self.desk);
        while !leave.load(Ordering::Acquire) {
            desk = match desk.take_in_turn() {
                Some(piece) => {
                    drop(desk);
                    self.run(&piece)
                }
                None => self.idle(desk),
            };
        }
    }

    /// Runs a piece that the calling thread has taken.
    fn run(&self, piece: &Piece) -> MutexGuard<'_, Desk> {
        let panic = catch_unwind(AssertUnwindSafe(|| (piece.work)(piece.number))).err();
        let mut desk = lock(&self.desk);
        if let Some(job) = desk.job(piece.job) {
            job.running -= 1;
            if panic.is_some() {
                job.panic = panic;
            }
            // Under the lock: once it is free the job may be gone.
            if job.is_awaited {
                self.finished.notify_all();
            }
        }
        desk
    }

    /// Waits until there is something new.
    fn idle<'m>(&'m self, desk: MutexGuard<'m, Desk>) -> MutexGuard<'m, Desk> {
        let known = self.news.load(Ordering::Acquire);
        drop(desk);
        let is_new = || self.news.load(Ordering::Acquire) != known;
        if spin_until(is_new) {
            return lock(&self.desk);
        }
        let mut desk = lock(&self.desk);
        if !is_new() {
            desk.asleep += 1;
            desk = sleep(&self.offered, desk);
            desk.asleep -= 1;
        }
        desk
    }
}

/// Work in pieces that are run in the order of their numbers, by whoever comes.
pub struct Pieces<'w> {
    /// `None` where the calling thread is alone.
    crew: Option<&'static Crew>,
    number: u64,
    work: Work<'w>,
    /// The next piece, and the first that may not be run yet, of one who is alone.
    alone: Cell<(u64, u64)>,
}

impl Pieces<'_> {
    /// Says that the pieces below that number may be run.
    pub fn offer(&self, until: u64) {
        let Some(crew) = self.crew else {
            let (next, offered) = self.alone.get();
            return self.alone.set((next, offered.max(until)));
        };
        let mut desk = lock(&crew.desk);
        let asleep = desk.asleep as u64;
        let Some(job) = desk.job(self.number) else { return };
        let more = until.saturating_sub(job.offered);
        job.offered += more;
        crew.news.fetch_add(1, Ordering::Release);
        drop(desk);
        if more >= asleep {
            if asleep != 0 {
                crew.offered.notify_all();
            }
        } else {
            (0..more).for_each(|_| crew.offered.notify_one());
        }
    }

    /// Runs one piece in the calling thread. False when there is none left to begin.
    pub fn help(&self) -> bool {
        let Some(crew) = self.crew else {
            let (next, offered) = self.alone.get();
            if next >= offered {
                return false;
            }
            self.alone.set((next + 1, offered));
            (self.work)(next);
            return true;
        };
        let piece = lock(&crew.desk).job(self.number).and_then(Entry::take);
        piece.as_ref().map(|piece| crew.run(piece)).is_some()
    }

    /// Waits until it holds, which has to come of pieces that were offered, and helps with them meanwhile. False when all of
    /// them are done and it does not.
    pub fn wait_until(&self, holds: impl Fn() -> bool) -> bool {
        while !holds() && self.help() {}
        let Some(crew) = self.crew else { return holds() };
        if spin_until(&holds) {
            return true;
        }
        let mut desk = lock(&crew.desk);
        loop {
            // Asked under the lock, which each piece that ends takes.
            let holds = holds();
            let Some(job) = desk.job(self.number) else { return holds };
            job.is_awaited = !holds && job.running != 0;
            if !job.is_awaited {
                return holds;
            }
            desk = sleep(&crew.finished, desk);
        }
    }

    /// No piece is begun any more; waits for those that were. Gives what one of them panicked with.
    fn close(&mut self) -> Option<Box<dyn Any + Send>> {
        let crew = self.crew.take()?;
        let mut desk = lock(&crew.desk);
        loop {
            let job = desk.job(self.number)?;
            job.offered = job.next;
            if job.running == 0 {
                break;
            }
            job.is_awaited = true;
            desk = sleep(&crew.finished, desk);
        }
        let at = desk.jobs.iter().position(|job| job.number == self.number)?;
        desk.jobs.remove(at).panic
    }
}

impl Drop for Pieces<'_> {
    fn drop(&mut self) {
        // Also when what leads it unwinds.
        let _ = self.close();
    }
}

#[cfg(test)]
mod tests;
