//! Events: marks in streams, and when they were reached.
use std::time::Instant;

use crate::codes::{self, Code};
use crate::stream::Mark;
use crate::world::World;

pub const DISABLE_TIMING: u32 = 2;
pub const INTERPROCESS: u32 = 4;

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
}

impl World {
    /// # Errors
    /// Invalid handle for none or a destroyed one.
    pub fn event(&self, handle: u64) -> Result<&Event, Code> {
        self.events.get(handle).ok_or(codes::INVALID_HANDLE)
    }

    pub fn event_done(&self, event: &Event) -> bool {
        event.marks.iter().all(|mark| self.reached(*mark))
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
