//! What a graph of the CPU is made of: steps in the order in which they were recorded. While the capture goes on only its thread
//! adds to them; afterwards they never change, so that runs, those of graphs that they are a part of too, need no lock.
#![forbid(unsafe_code)]

use super::gone::{self, Keep};
use super::graph::Graph;
use super::turn::{Denied, Turn};
use crate::error::{Result, fail};
use crate::fork::Lock;
use crate::handle::{Entered, Hold};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Something that a graph of the CPU does in each run.
pub trait Work: Send + Sync {
    /// Does it, without an allocation. What it works on is there: the graph keeps it, or the caller does.
    fn run(&self) -> Result<()>;
}

struct Steps(Vec<Box<dyn Work>>);

impl Steps {
    fn run(&self) -> Result<()> {
        for (at, step) in self.0.iter().enumerate() {
            step.run().map_err(|error| error.context(format_args!("step {} of {}", at + 1, self.0.len())))?;
        }
        Ok(())
    }
}

/// The steps in the graph's keeping. They are let go of like all else that it keeps, since a caller's function may be among them.
struct KeptSteps(Arc<Steps>);

impl Keep for KeptSteps {
    fn give_back(self: Box<Self>) {
        drop(self.0);
    }

    fn forget(self: Box<Self>) {
        self.give_back();
    }
}

/// How far a capture of the CPU has come.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Capturing,
    Paused,
    /// Captured; or given up, without steps.
    Ended,
}

/// A capture of the CPU, and what came of it.
pub struct Recording {
    phase: AtomicU8,
    so_far: Lock<SoFar>,
    /// Once captured. They go with what the graph keeps.
    steps: OnceLock<Weak<Steps>>,
    /// As many graphs as lie in each other here.
    height: AtomicU32,
    turn: Turn,
}

#[derive(Default)]
struct SoFar {
    steps: Vec<Box<dyn Work>>,
    /// Where steps write that is no block of this library: by its first address where each stretch ends.
    written: BTreeMap<u64, u64>,
}

impl Default for Recording {
    fn default() -> Recording {
        Recording {
            phase: AtomicU8::new(Phase::Capturing as u8),
            so_far: Lock::new(SoFar::default()),
            steps: OnceLock::new(),
            height: AtomicU32::new(1),
            turn: Turn::new(),
        }
    }
}

/// As many graphs may lie in each other: a run goes down into them on the stack.
const HIGHEST: u32 = 64;
/// As many runs may go on in the middle of each other on a thread, by functions that launch graphs.
const DEEPEST: u32 = 16;

thread_local! {
    static RUNS: Cell<u32> = const { Cell::new(0) };
}

/// A run that the thread is in the middle of.
struct Running;

impl Running {
    fn begin() -> Option<Running> {
        let runs = RUNS.get();
        if runs == DEEPEST {
            return None;
        }
        RUNS.set(runs + 1);
        Some(Running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNS.set(RUNS.get() - 1);
    }
}

impl Recording {
    fn is_in(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Acquire) == phase as u8
    }

    fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    pub fn is_paused(&self) -> bool {
        self.is_in(Phase::Paused)
    }

    /// The capture came to nothing, unless it has ended: what was recorded.
    pub fn give_up(&self) -> Option<Box<dyn Keep>> {
        if self.is_in(Phase::Ended) {
            return None;
        }
        self.set_phase(Phase::Ended);
        let SoFar { steps, .. } = std::mem::take(&mut *self.so_far.write());
        Some(Box::new(KeptSteps(Arc::new(Steps(steps)))))
    }

    /// In a forked child. The steps are only the capturing thread's to change, and it is here or they are not wanted.
    pub fn mend(&self) {
        self.turn.mend();
    }

    fn steps(&self) -> Option<Arc<Steps>> {
        self.steps.get().and_then(Weak::upgrade)
    }
}

/// A graph as a step of another one. That keeps it whole.
struct Child(Hold<Graph>);

impl Work for Child {
    fn run(&self) -> Result<()> {
        self.0.run_steps().map_err(|e| e.context(format_args!("the graph {}", self.0.id())))
    }
}

impl Graph {
    fn recording_of_cpu(&self) -> Result<&Recording> {
        match &self.recording {
            Some(recording) => Ok(recording),
            None => fail!(Internal, "the graph {} is not one of the CPU", self.id()),
        }
    }

    /// Pauses the capture, or has it go on. For the thread that captures on the CPU.
    pub(super) fn set_paused(&self, paused: bool) {
        if let Some(recording) = &self.recording {
            recording.set_phase(if paused { Phase::Paused } else { Phase::Capturing });
        }
    }

    /// Adds a step to what the calling thread captures: that is to be `of_cpu`. What the step uses is the caller's to have kept.
    pub fn record(&self, step: Box<dyn Work>) -> Result<()> {
        let mut so_far = self.recording_of_cpu()?.so_far.write();
        if so_far.steps.try_reserve(1).is_err() {
            // Dropped when the lock is free: its end may call other code.
            drop(so_far);
            drop(step);
            fail!(
                OutOfMemory,
                "no host memory for one more step of the capture {}, which goes on",
                self.id()
            );
        }
        so_far.steps.push(step);
        Ok(())
    }

    /// Notes that the last step writes to memory that is no block of this library. Its owner keeps it for the runs, so that
    /// later steps can read it there.
    pub fn note_written(&self, address: u64, size: u64) {
        let Some(recording) = &self.recording else { return };
        let written = &mut recording.so_far.write().written;
        let (mut start, mut end) = (address, address.saturating_add(size));
        while let Some((&first, &last)) =
            written.range(..=end).next_back().filter(|(_, last)| **last >= start)
        {
            written.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        written.insert(start, end);
    }

    /// Whether a step writes to any of that memory.
    pub fn writes_to(&self, address: u64, size: u64) -> bool {
        let Some(recording) = &self.recording else { return false };
        let so_far = recording.so_far.read();
        so_far
            .written
            .range(..address.saturating_add(size))
            .next_back()
            .is_some_and(|(_, last)| *last > address)
    }

    /// The capture has ended: what was recorded can be run from now on. For the thread that captured.
    pub(super) fn finish_recording(&self) -> Result<()> {
        let recording = self.recording_of_cpu()?;
        let mut steps = std::mem::take(&mut recording.so_far.write().steps);
        steps.shrink_to_fit();
        let steps = Arc::new(Steps(steps));
        let _ = recording.steps.set(Arc::downgrade(&steps));
        recording.set_phase(Phase::Ended);
        if let Some(over) = self.keep(Box::new(KeptSteps(steps))) {
            over.give_back();
        }
        Ok(())
    }

    /// Runs a graph of the CPU on the calling thread, when no other run of it goes on.
    pub fn run(&self) -> Result<()> {
        let Some(_running) = Running::begin() else {
            fail!(
                IllegalInCapture,
                "the graph {} is launched in the middle of {DEEPEST} runs, each by a function of the one before, and a thread goes no deeper",
                self.id()
            );
        };
        self.has_begun();
        self.run_steps().map_err(|e| e.context(format_args!("a run of the graph {}", self.id())))
    }

    /// Works its steps off, when nobody else does, be it as a part of another graph: a step may have memory of its own.
    fn run_steps(&self) -> Result<()> {
        self.mend();
        let recording = self.recording_of_cpu()?;
        let Some(steps) = recording.steps() else {
            fail!(
                InvalidArgument,
                "the graph {} is not whole; end its capture before it is launched",
                self.id()
            );
        };
        let _turn = match recording.turn.take() {
            Ok(turn) => turn,
            Err(Denied::Own) => fail!(
                IllegalInCapture,
                "the graph {} is launched in the middle of its own run, by a function that this calls; runs of a graph never overlap: launch it when the run is over",
                self.id()
            ),
            Err(Denied::Circle) => fail!(
                Busy,
                "the graph {} is being run by a thread that waits, in the middle of that, for a run of this thread: neither would come to an end; launch it when this thread's run is over",
                self.id()
            ),
        };
        steps.run()
    }
}

/// Makes another graph of the CPU a step of the capture that the calling thread goes on with.
pub fn record_child(outer: &Entered<Graph>, child: &Entered<Graph>) -> Result<()> {
    let (recording, inner) = (outer.recording_of_cpu()?, child.recording_of_cpu()?);
    if inner.steps().is_none() {
        fail!(
            InvalidArgument,
            "the graph {} is not whole; end its capture before it is launched",
            child.id()
        );
    }
    let height = inner.height.load(Ordering::Acquire) + 1;
    if height > HIGHEST {
        fail!(
            IllegalInCapture,
            "{HIGHEST} graphs lie in each other in the graph {}, and a graph goes no deeper; the capture {} goes on: record the steps themselves",
            child.id(),
            outer.id()
        );
    }
    outer.record(Box::new(Child(child.lasting_hold())))?;
    gone::end_after(child, outer);
    recording.height.fetch_max(height, Ordering::AcqRel);
    let written = inner.so_far.read().written.clone();
    written.into_iter().for_each(|(first, last)| outer.note_written(first, last - first));
    Ok(())
}
