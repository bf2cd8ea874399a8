//! Streams and the one place where queued work is run.
//!
//! Every stream has a queue. Work is run at once in the calling thread while nothing stands before it (the eager
//! schedule); behind a held stream it waits. What has to come first is written down as marks, so that the other schedule
//! (`schedule`) only has to choose among the streams whose next work has all its marks reached.
use std::collections::{BTreeMap, VecDeque};

use crate::call::{self, Session};
use crate::codes::{self, Code};
use crate::order::Line;
use crate::thread;
use crate::work::Work;
use crate::world::World;

pub const NON_BLOCKING: u32 = 1;
const LEGACY: u64 = 1;
pub const PER_THREAD: u64 = 2;

/// A place in a stream: its number and how many pieces of work were submitted by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub stream: u64,
    pub sequence: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Created,
    Legacy,
    PerThread,
    /// Of the driver's own, without a handle.
    Hidden,
}

/// A piece of work with all that has to come before it, besides what is ahead of it in its stream.
pub struct Queued {
    after: Vec<Mark>,
    work: Work,
}

/// A stream. It is destroyed when `handle` is 0, and forgotten once its queue is empty.
pub struct Stream {
    /// Unique, never reused: what `cuStreamGetId` answers.
    pub number: u64,
    pub handle: u64,
    pub context: u64,
    pub context_id: u64,
    pub device: usize,
    pub flags: u32,
    pub priority: i32,
    pub role: Role,
    pub submitted: u64,
    pub completed: u64,
    queue: VecDeque<Queued>,
    /// A host function of this stream is running without the lock.
    running: bool,
    /// What came before its work, through time.
    pub line: Line,
}

impl Stream {
    pub fn idle(&self) -> bool {
        self.completed == self.submitted
    }

    pub fn waiting(&self) -> u64 {
        self.queue.len() as u64
    }

    fn end(&self) -> Mark {
        Mark { stream: self.number, sequence: self.submitted }
    }
}

impl World {
    pub fn reached(&self, mark: Mark) -> bool {
        self.streams.get(&mark.stream).is_none_or(|stream| stream.completed >= mark.sequence)
    }

    fn add_stream(&mut self, context: u64, flags: u32, priority: i32, role: Role) -> Result<u64, Code> {
        let owner = self.context(context)?;
        let (context_id, device) = (owner.id, owner.device);
        let number = self.fresh_id();
        let handle = match role {
            Role::Created => self.stream_handles.insert(|_| number)?,
            Role::Hidden => 0,
            Role::Legacy => LEGACY,
            Role::PerThread => PER_THREAD,
        };
        let stream = Stream {
            number,
            handle,
            context,
            context_id,
            device,
            flags,
            priority,
            role,
            submitted: 0,
            completed: 0,
            queue: VecDeque::new(),
            running: false,
            line: Line::default(),
        };
        self.streams.insert(number, stream);
        Ok(number)
    }

    /// # Errors
    /// No current context, or out of handles.
    pub fn create_stream(&mut self, flags: u32, priority: i32) -> Result<u64, Code> {
        let context = self.current()?.handle;
        let number = self.add_stream(context, flags, priority, Role::Created)?;
        Ok(self.streams[&number].handle)
    }

    /// A stream of the driver's own, which is forgotten when its work is done.
    ///
    /// # Errors
    /// The context's state.
    pub fn add_hidden_stream(&mut self, context: u64, flags: u32) -> Result<u64, Code> {
        self.add_stream(context, flags, 0, Role::Hidden)
    }

    /// The legacy default stream of a context.
    ///
    /// # Errors
    /// The context's state.
    pub fn legacy_stream(&mut self, context: u64) -> Result<u64, Code> {
        if let Some(number) = self.context(context)?.legacy {
            return Ok(number);
        }
        let number = self.add_stream(context, 0, 0, Role::Legacy)?;
        self.context_mut(context)?.legacy = Some(number);
        Ok(number)
    }

    fn per_thread_stream(&mut self, context: u64) -> Result<u64, Code> {
        let thread = thread::number();
        if let Some(number) = self.context(context)?.per_thread.get(&thread) {
            return Ok(*number);
        }
        let number = self.add_stream(context, 0, 0, Role::PerThread)?;
        self.context_mut(context)?.per_thread.insert(thread, number);
        Ok(number)
    }

    /// Takes a stream's handle away; its work still gets done.
    pub fn destroy_stream(&mut self, number: u64) {
        self.leave_capture(number);
        if let Some(stream) = self.streams.get_mut(&number) {
            let handle = std::mem::take(&mut stream.handle);
            let idle = stream.idle();
            self.stream_handles.remove(handle);
            if idle {
                self.forget_stream(number);
            }
        }
    }

    /// Forgets a stream and the work in it, as the end of a context does; its handle is left without a stream. Pool memory
    /// outlives that, so allocations and frees that were waiting are still made.
    pub fn orphan_stream(&mut self, number: u64) {
        self.leave_capture(number);
        if let Some(stream) = self.drop_stream(number) {
            self.busy.retain(|other| *other != number);
            self.update_fence();
            for queued in stream.queue {
                match queued.work {
                    Work::Allocate { base, id } => self.arrive(base, id),
                    Work::Free { base, id } => self.finish_free(base, id),
                    Work::Launched { exec } => self.launch_ended(exec),
                    _ => {}
                }
            }
        }
    }

    /// What work submitted now to a stream has to wait for, by the rules of the legacy stream.
    pub fn implicit_marks(&self, number: u64) -> Vec<Mark> {
        let Some(stream) = self.streams.get(&number) else { return Vec::new() };
        self.ends(|other| World::legacy_order(stream, other))
    }

    /// Places in all streams that satisfy `which`, as far as they have work waiting; where clocks are kept, in those
    /// too that are done, since what is done is not therefore known to come first.
    pub fn ends(&self, which: impl Fn(&Stream) -> bool) -> Vec<Mark> {
        if self.tracking() {
            let used = self.streams.values().filter(|stream| stream.submitted > 0);
            return used.filter(|stream| which(stream)).map(Stream::end).collect();
        }
        let busy = self.busy.iter().filter_map(|number| self.streams.get(number));
        busy.filter(|stream| !stream.idle() && which(stream)).map(Stream::end).collect()
    }

    /// The end of one stream.
    pub fn end_of(&self, number: u64) -> Mark {
        let sequence = self.streams.get(&number).map_or(0, |stream| stream.submitted);
        Mark { stream: number, sequence }
    }

    /// Whether the next work of a stream can run. From inside a host function no other one can: the real driver has one
    /// thread for all.
    fn can_run(&self, number: u64) -> bool {
        let ready = |work: &Work| match work {
            Work::Hold => false,
            Work::Host { .. } => !thread::in_host_function(),
            _ => true,
        };
        self.streams.get(&number).is_some_and(|stream| {
            !stream.running
                && stream.queue.front().is_some_and(|next| {
                    ready(&next.work) && next.after.iter().all(|mark| self.reached(*mark))
                })
        })
    }

    /// A busy stream whose next work can run.
    fn runnable(&self) -> Option<u64> {
        self.busy.iter().copied().find(|number| self.can_run(*number))
    }

    /// All busy streams whose next work can run.
    pub fn ready(&self) -> Vec<u64> {
        self.busy.iter().copied().filter(|number| self.can_run(*number)).collect()
    }

    fn completed_one(&mut self, number: u64) {
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.completed += 1;
            stream.running = false;
            if stream.idle() {
                let forgotten = stream.handle == 0;
                self.busy.retain(|other| *other != number);
                if forgotten {
                    self.forget_stream(number);
                }
            }
        }
    }

    /// Lets the first hold of a stream go. Whether there was one.
    pub fn release_hold(&mut self, number: u64) -> bool {
        let Some(stream) = self.streams.get_mut(&number) else { return false };
        let Some(at) = stream.queue.iter().position(|queued| matches!(queued.work, Work::Hold)) else {
            return false;
        };
        stream.queue[at].work = Work::Nothing;
        true
    }

    /// All that stands before the marks and has not run: up to which piece of work of which streams.
    pub fn before(&self, marks: &[Mark]) -> BTreeMap<u64, u64> {
        self.look_before(marks).0
    }

    /// The held streams that stand before the marks.
    fn holds_before(&self, marks: &[Mark]) -> Vec<u64> {
        self.look_before(marks).1
    }

    fn look_before(&self, marks: &[Mark]) -> (BTreeMap<u64, u64>, Vec<u64>) {
        let (mut seen, mut found, mut open) = (BTreeMap::new(), Vec::new(), marks.to_vec());
        while let Some(mark) = open.pop() {
            let looked_up_to = seen.entry(mark.stream).or_insert(0);
            let from = std::mem::replace(looked_up_to, (*looked_up_to).max(mark.sequence));
            let Some(stream) = self.streams.get(&mark.stream) else { continue };
            let first = stream.submitted - stream.queue.len() as u64 + 1;
            let new = from.saturating_sub(first - 1) as usize;
            for (_, queued) in (first..=mark.sequence).zip(&stream.queue).skip(new) {
                if matches!(queued.work, Work::Hold) && !found.contains(&mark.stream) {
                    found.push(mark.stream);
                }
                open.extend(&queued.after);
            }
        }
        (seen, found)
    }
}

impl Session {
    /// The stream that a handle means for the calling thread. A destroyed one crashes, as on hardware.
    ///
    /// # Errors
    /// No or a dead current context where one is needed; context is destroyed for an orphan; the fault of its context.
    pub fn stream(&mut self, handle: u64) -> Result<u64, Code> {
        let number = self.stream_of(handle)?;
        self.named = self.streams.get(&number).map_or(0, |stream| stream.context);
        self.hear_of(self.named)?;
        Ok(number)
    }

    fn stream_of(&mut self, handle: u64) -> Result<u64, Code> {
        match handle {
            0 | LEGACY => {
                let context = self.current()?.handle;
                self.legacy_stream(context)
            }
            PER_THREAD => {
                let context = self.current()?.handle;
                self.per_thread_stream(context)
            }
            _ => {
                self.current_is_not_dead()?;
                match self.stream_handles.get(handle) {
                    Some(number) if self.streams.contains_key(number) => Ok(*number),
                    Some(_) => Err(codes::CONTEXT_IS_DESTROYED),
                    None => Err(self.dead_stream(handle)),
                }
            }
        }
    }

    /// The real driver reads through the handle of a destroyed stream; so does this, unless told otherwise.
    fn dead_stream(&mut self, handle: u64) -> Code {
        let note = format!("dead stream {handle:#x}");
        let entry = self.entry;
        self.violation(format!("{entry}: {note}"));
        if self.topology.dead_stream_crashes {
            self.log.add(
                thread::number(),
                entry,
                &[handle],
                codes::INVALID_HANDLE,
                Some(note.clone().into()),
            );
            self.unlocked(|| {
                // SAFETY: not sound for a stray handle, and not meant to be: handles lie in a closed range, so this
                // is the segmentation fault that a program gets from the real driver at this point.
                unsafe { (handle as usize as *const u64).read_volatile() }
            });
        }
        self.note = Some(note.into());
        codes::INVALID_HANDLE
    }

    /// Puts work into a stream's queue; runs it at once if nothing stands before it.
    pub fn enqueue(&mut self, number: u64, mut after: Vec<Mark>, work: Work) {
        self.note_order(number, &after, &work);
        after.retain(|mark| !self.reached(*mark));
        let now = !self.deferred() && self.busy.is_empty() && after.is_empty();
        if now && !matches!(work, Work::Hold | Work::Host { .. }) {
            if let Some(stream) = self.streams.get_mut(&number) {
                stream.submitted += 1;
                stream.completed += 1;
            }
            let mark = self.end_of(number);
            self.run_on(mark, work);
            if self.streams.get(&number).is_some_and(|stream| stream.handle == 0) {
                self.forget_stream(number);
            }
            return;
        }
        after.extend(self.implicit_marks(number));
        after.retain(|mark| !self.reached(*mark));
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.submitted += 1;
            stream.queue.push_back(Queued { after, work });
            if !self.busy.contains(&number) {
                self.busy.push(number);
            }
        }
        self.update_fence();
        self.pump();
    }

    /// Runs everything that can run, unless a seed chooses what runs when.
    pub fn pump(&mut self) {
        while !self.deferred()
            && let Some(number) = self.runnable()
        {
            self.run_next(number);
        }
    }

    /// Runs the next piece of work of a stream that can run.
    pub fn run_next(&mut self, number: u64) {
        let next = self.streams.get_mut(&number).and_then(|stream| {
            stream.running = true;
            stream.queue.pop_front()
        });
        match next.map(|queued| queued.work) {
            // A host function is not called once a fault has ended its context.
            Some(Work::Host { function, data }) if !self.stream_is_spoilt(number) => {
                self.unlocked(|| thread::host_function(|| function(data as usize as *mut libc::c_void)));
                // It may have told the program how far the stream has come.
                let reached = self.streams.get(&number).map_or(0, |stream| stream.completed + 1);
                self.seen(&[Mark { stream: number, sequence: reached }]);
            }
            Some(work) => {
                let sequence = self.streams.get(&number).map_or(0, |stream| stream.completed + 1);
                self.run_on(Mark { stream: number, sequence }, work);
            }
            None => {}
        }
        self.completed_one(number);
        self.update_fence();
        call::progress();
    }

    fn run_on(&mut self, mark: Mark, work: Work) {
        self.order.running = Some(mark);
        self.run(work);
        self.order.running = None;
    }

    /// Comes back when all marks are reached.
    pub fn wait_for(&mut self, marks: &[Mark]) {
        loop {
            if self.deferred() {
                self.run_before(marks);
            } else {
                self.pump();
            }
            if marks.iter().all(|mark| self.reached(*mark)) {
                self.seen(marks);
                return;
            }
            let holds = if self.auto_release { self.holds_before(marks) } else { Vec::new() };
            if holds.is_empty() {
                self.wait();
            }
            for number in holds {
                self.release_hold(number);
            }
        }
    }

    /// Waits for one stream and lets pools of its device give memory back, as every synchronise does.
    pub fn synchronize_stream(&mut self, number: u64) {
        let end = self.end_of(number);
        let device = self.streams.get(&number).map(|stream| stream.device);
        self.wait_for(&[end]);
        if let Some(device) = device {
            self.release_pools(device);
        }
    }

    /// Waits for all work of a device.
    pub fn synchronize_device(&mut self, device: usize) {
        let ends = self.ends(|stream| stream.device == device);
        self.wait_for(&ends);
        self.release_pools(device);
    }
}
