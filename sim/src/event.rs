//! Events: marks in streams, and when they were reached.
use std::time::Instant;

use crate::call::Session;
use crate::capture::Captured;
use crate::codes::{self, Code};
use crate::stream::Mark;
use crate::world::World;

pub const DISABLE_TIMING: u32 = 2;
pub const INTERPROCESS: u32 = 4;

/// `context_id` of an event whose context has ended.
pub const ORPHANED: u64 = 0;
/// The same once another context was made.
const FORGOTTEN: u64 = u64::MAX;

/// An event. Before its first record it counts as done.
pub struct Event {
    pub context: u64,
    pub context_id: u64,
    pub flags: u32,
    pub recorded: bool,
    /// What was submitted before the record; done when all of it is.
    pub marks: Vec<Mark>,
    /// Number of the last record, so that an older one that is reached late leaves no time.
    pub generation: u64,
    pub reached: Option<Instant>,
    /// What it stands for if its last record was captured.
    pub captured: Option<Captured>,
}

impl Event {
    pub fn orphaned(&self) -> bool {
        self.context_id == ORPHANED
    }

    /// Another context was made since its own ended.
    pub fn forget(&mut self) {
        self.context_id = FORGOTTEN;
    }
}

impl World {
    /// # Errors
    /// Invalid handle for none or a destroyed one, context is destroyed for an orphan, invalid context for a forgotten
    /// one.
    pub fn event(&self, handle: u64) -> Result<&Event, Code> {
        match self.events.get(handle) {
            Some(event) if event.orphaned() => Err(codes::CONTEXT_IS_DESTROYED),
            Some(event) if event.context_id == FORGOTTEN => Err(codes::INVALID_CONTEXT),
            Some(event) => Ok(event),
            None => Err(codes::INVALID_HANDLE),
        }
    }

    /// An event is about to be recorded: the number of that record.
    pub fn begin_record(&mut self, handle: u64) -> Option<u64> {
        let generation = self.fresh_id();
        let event = self.events.get_mut(handle)?;
        event.generation = generation;
        event.recorded = true;
        event.reached = None;
        event.captured = None;
        Some(generation)
    }

    /// Says where in streams a record of an event stands.
    pub fn set_marks(&mut self, handle: u64, marks: Vec<Mark>) {
        if let Some(event) = self.events.get_mut(handle) {
            event.marks = marks;
        }
    }

    /// The work of an event record that has come to its turn.
    pub fn stamp(&mut self, handle: u64, generation: u64) {
        if let Some(event) = self.events.get_mut(handle)
            && event.generation == generation
        {
            event.reached = Some(Instant::now());
        }
    }
}

impl Session {
    /// As [`World::event`]. A handle of no event is noted: the real driver reads through it.
    ///
    /// # Errors
    /// As [`World::event`].
    pub fn event(&mut self, handle: u64) -> Result<&Event, Code> {
        if handle != 0 && self.events.get(handle).is_none() {
            let entry = self.entry;
            self.violation(format!("{entry}: dead event {handle:#x}"));
        }
        self.named = self.events.get(handle).map_or(0, |event| event.context);
        self.hear_of(self.named)?;
        World::event(self, handle)
    }
}
