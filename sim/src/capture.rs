//! Stream captures: which streams are in which, what their calls may still do, and how a capture ends.
//!
//! Work submitted to a capturing stream becomes a node of the capture's graph ([`World::record`]). What a capture forbids
//! is decided in three places: calls that may not be made beside a capture at all, by the mode of the calling thread
//! ([`World::beside_captures`]); calls about a stream that captures ([`World::outside_captures`]); and work for the legacy
//! stream, which would have to wait for streams that capture ([`World::admit_work`]).
use std::collections::BTreeMap;

use crate::call::Session;
use crate::codes::{self, Code};
use crate::graph::Node;
use crate::stream::{NON_BLOCKING, Role};
use crate::thread;
use crate::work::Work;
use crate::world::World;

pub const GLOBAL: u32 = 0;
pub const RELAXED: u32 = 2;

/// What `cuStreamIsCapturing` answers.
pub const NONE: u32 = 0;
pub const ACTIVE: u32 = 1;
pub const INVALIDATED: u32 = 2;

/// A capture. It lasts until it is ended, an invalidated one too.
pub struct Capture {
    /// The number of the stream that began it.
    origin: u64,
    mode: u32,
    thread: u64,
    pub graph: u64,
    valid: bool,
    /// The streams in it, and the nodes that the next work of each comes after.
    tails: BTreeMap<u64, Vec<u64>>,
    /// The last nodes of streams that were destroyed meanwhile.
    lost: Vec<Vec<u64>>,
    /// What `cuStreamGetCaptureInfo` gave out, for as long as it promises.
    shown: Vec<u64>,
}

/// What an event that was recorded in a capture stands for.
#[derive(Clone)]
pub struct Captured {
    capture: u64,
    nodes: Vec<u64>,
}

/// How an event stands to captures.
enum Standing {
    Uncaptured,
    /// Of a capture that goes on.
    Live(u64),
    /// Of a capture that was invalidated or has ended.
    Dead,
}

/// What a stream of a capture that goes on has to tell.
pub struct Info {
    pub id: u64,
    pub graph: u64,
    pub nodes: *const u64,
    pub count: usize,
}

fn extend(tail: &mut Vec<u64>, nodes: &[u64]) {
    for node in nodes {
        if !tail.contains(node) {
            tail.push(*node);
        }
    }
}

impl World {
    /// The capture that a stream is in.
    pub fn capture_of(&self, number: u64) -> Option<u64> {
        let mut captures = self.captures.iter();
        captures.find(|(_, capture)| capture.tails.contains_key(&number)).map(|(id, _)| *id)
    }

    pub fn is_captured(&self, number: u64) -> bool {
        self.capture_of(number).is_some()
    }

    pub fn capture_status(&self, number: u64) -> u32 {
        match self.capture_of(number).and_then(|id| self.captures.get(&id)) {
            Some(capture) if capture.valid => ACTIVE,
            Some(_) => INVALIDATED,
            None => NONE,
        }
    }

    fn invalidate(&mut self, captures: &[u64]) {
        for id in captures {
            if let Some(capture) = self.captures.get_mut(id) {
                capture.valid = false;
            }
        }
    }

    /// Captures of streams that the legacy stream of the same context would have to wait for.
    fn implicit_captures(&self, number: u64) -> Vec<u64> {
        let Some(legacy) = self.streams.get(&number).filter(|stream| stream.role == Role::Legacy) else {
            return Vec::new();
        };
        let waits = |number: &u64| {
            self.streams.get(number).is_some_and(|stream| {
                stream.context_id == legacy.context_id && stream.flags & NON_BLOCKING == 0
            })
        };
        let captures = self.captures.iter().filter(|(_, capture)| capture.tails.keys().any(waits));
        captures.map(|(id, _)| *id).collect()
    }

    /// # Errors
    /// Implicit, without harm, for a question to the legacy stream while a stream that waits for it captures.
    pub fn ask_stream(&self, number: u64) -> Result<(), Code> {
        if self.implicit_captures(number).is_empty() { Ok(()) } else { Err(codes::STREAM_CAPTURE_IMPLICIT) }
    }

    /// # Errors
    /// Implicit, with the end of those captures, for the legacy stream while streams that it would have to wait for capture.
    pub fn not_beside_captures(&mut self, number: u64) -> Result<(), Code> {
        let captures = self.implicit_captures(number);
        if captures.is_empty() {
            return Ok(());
        }
        self.invalidate(&captures);
        Err(codes::STREAM_CAPTURE_IMPLICIT)
    }

    /// Before work is submitted to a stream, captured or not.
    ///
    /// # Errors
    /// Invalidated for a stream of such a capture; implicit, with the end of those captures, for the legacy stream.
    pub fn admit_work(&mut self, number: u64) -> Result<(), Code> {
        if self.captures.is_empty() {
            return Ok(());
        }
        match self.capture_status(number) {
            NONE => self.not_beside_captures(number),
            ACTIVE => Ok(()),
            _ => Err(codes::STREAM_CAPTURE_INVALIDATED),
        }
    }

    /// Before what cannot become a node: the stream must not be one that captures.
    ///
    /// # Errors
    /// Unsupported with the end of the stream's capture; implicit as [`World::admit_work`].
    pub fn outside_captures(&mut self, number: u64) -> Result<(), Code> {
        if self.captures.is_empty() {
            return Ok(());
        }
        if let Some(capture) = self.capture_of(number) {
            self.invalidate(&[capture]);
            return Err(codes::STREAM_CAPTURE_UNSUPPORTED);
        }
        self.not_beside_captures(number)
    }

    /// Before a call that a capture may forbid although it has nothing to do with its streams: a relaxed thread may make
    /// it, another one only while it has no capture of its own that is not relaxed, and one in global mode only while
    /// nobody captures in global mode.
    ///
    /// # Errors
    /// Unsupported, with the end of the captures that forbid it.
    pub fn beside_captures(&mut self) -> Result<(), Code> {
        let mode = thread::capture_mode();
        if self.captures.is_empty() || mode == RELAXED {
            return Ok(());
        }
        let thread = thread::number();
        let forbids = |capture: &Capture| {
            let own = capture.thread == thread && capture.mode != RELAXED;
            own || (mode == GLOBAL && capture.mode == GLOBAL)
        };
        let captures: Vec<u64> =
            self.captures.iter().filter(|(_, capture)| forbids(capture)).map(|(id, _)| *id).collect();
        if captures.is_empty() {
            return Ok(());
        }
        self.invalidate(&captures);
        Err(codes::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Before a call about all streams of a context.
    ///
    /// # Errors
    /// Unsupported, with the end of the captures of its streams.
    pub fn no_capture_in(&mut self, context_id: u64) -> Result<(), Code> {
        let inside =
            |number: &u64| self.streams.get(number).is_some_and(|stream| stream.context_id == context_id);
        let captures = self.captures.iter().filter(|(_, capture)| capture.tails.keys().any(inside));
        let captures: Vec<u64> = captures.map(|(id, _)| *id).collect();
        if captures.is_empty() {
            return Ok(());
        }
        self.invalidate(&captures);
        Err(codes::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Begins a capture on a stream; its nodes go into `graph` or a new one, behind `after`.
    ///
    /// # Errors
    /// Unsupported on the legacy stream, illegal state for a stream or graph that captures already, invalid value.
    pub fn begin_capture(
        &mut self,
        number: u64,
        mode: u32,
        graph: Option<u64>,
        after: Vec<u64>,
    ) -> Result<(), Code> {
        if mode > RELAXED {
            return Err(codes::INVALID_VALUE);
        }
        if self.streams.get(&number).is_none_or(|stream| stream.role == Role::Legacy) {
            return Err(codes::STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.is_captured(number) {
            return Err(codes::ILLEGAL_STATE);
        }
        let graph = match graph {
            Some(graph) if self.capture_into(graph).is_some() => return Err(codes::ILLEGAL_STATE),
            Some(graph) => graph,
            None => self.create_graph()?,
        };
        let id = self.fresh_id();
        if let Some(graph) = self.graphs.get_mut(graph)
            && graph.capture_id == 0
        {
            graph.capture_id = id;
        }
        let capture = Capture {
            origin: number,
            mode,
            thread: thread::number(),
            graph,
            valid: true,
            tails: BTreeMap::from([(number, after)]),
            lost: Vec::new(),
            shown: Vec::new(),
        };
        self.captures.insert(id, capture);
        Ok(())
    }

    /// The capture that is building a graph.
    pub fn capture_into(&self, graph: u64) -> Option<u64> {
        self.captures.iter().find(|(_, capture)| capture.graph == graph).map(|(id, _)| *id)
    }

    /// Ends the capture that a stream began. The graph that was made.
    ///
    /// # Errors
    /// Illegal state without a capture; else what is wrong with it: the graph is gone then.
    pub fn end_capture(&mut self, number: u64) -> Result<u64, Code> {
        let id = self.capture_of(number).ok_or(codes::ILLEGAL_STATE)?;
        let Some(capture) = self.captures.get_mut(&id) else { return Err(codes::ILLEGAL_STATE) };
        if capture.origin != number {
            capture.valid = false;
            return Err(codes::STREAM_CAPTURE_UNMATCHED);
        }
        let result = if !capture.valid {
            Err(codes::STREAM_CAPTURE_INVALIDATED)
        } else if capture.mode != RELAXED && capture.thread != thread::number() {
            Err(codes::STREAM_CAPTURE_WRONG_THREAD)
        } else if self.is_joined(id) {
            Ok(())
        } else {
            Err(codes::STREAM_CAPTURE_UNJOINED)
        };
        let graph = self.captures.remove(&id).map_or(0, |capture| capture.graph);
        match result {
            Ok(()) => Ok(graph),
            Err(code) => {
                self.drop_graph(graph);
                Err(code)
            }
        }
    }

    /// Whether all that forked from the capture's first stream comes before the end of that stream.
    fn is_joined(&self, id: u64) -> bool {
        let Some(capture) = self.captures.get(&id) else { return true };
        let Some(end) = capture.tails.get(&capture.origin) else { return true };
        let forks = capture.tails.iter().filter(|(number, _)| **number != capture.origin);
        let mut last = forks.map(|(_, nodes)| nodes).chain(&capture.lost).flatten().peekable();
        if last.peek().is_none() {
            return true;
        }
        let before = self.with_ancestors(end);
        last.all(|node| before.contains(node))
    }

    /// A stream is destroyed: with it the capture it began, while a fork only goes missing.
    pub fn leave_capture(&mut self, number: u64) {
        let Some(id) = self.capture_of(number) else { return };
        let Some(capture) = self.captures.get_mut(&id) else { return };
        if capture.origin == number {
            let graph = capture.graph;
            self.captures.remove(&id);
            self.drop_graph(graph);
        } else if let Some(nodes) = capture.tails.remove(&number) {
            capture.lost.push(nodes);
        }
    }

    /// What a stream of a capture that goes on tells about it.
    pub fn capture_info(&mut self, number: u64) -> Option<Info> {
        let id = self.capture_of(number)?;
        let capture = self.captures.get_mut(&id).filter(|capture| capture.valid)?;
        capture.shown = capture.tails.get(&number)?.clone();
        let nodes = if capture.shown.is_empty() { std::ptr::null() } else { capture.shown.as_ptr() };
        let (graph, count) = (capture.graph, capture.shown.len());
        Some(Info { id: self.graphs.get(graph)?.capture_id, graph, nodes, count })
    }

    /// The graph and the nodes that the next work of a capturing stream goes behind.
    ///
    /// # Errors
    /// Illegal state without a capture, invalidated.
    pub fn capture_tail(&self, number: u64) -> Result<(u64, Vec<u64>), Code> {
        let id = self.capture_of(number).ok_or(codes::ILLEGAL_STATE)?;
        let capture = self.captures.get(&id).ok_or(codes::ILLEGAL_STATE)?;
        if !capture.valid {
            return Err(codes::STREAM_CAPTURE_INVALIDATED);
        }
        Ok((capture.graph, capture.tails.get(&number).cloned().unwrap_or_default()))
    }

    /// Sets or extends what the next work of a capturing stream goes behind.
    pub fn set_tail(&mut self, number: u64, nodes: &[u64], keep: bool) {
        let Some(id) = self.capture_of(number) else { return };
        let Some(tail) = self.captures.get_mut(&id).and_then(|capture| capture.tails.get_mut(&number)) else {
            return;
        };
        if !keep {
            tail.clear();
        }
        extend(tail, nodes);
    }

    /// Appends a node to what a stream captures.
    ///
    /// # Errors
    /// As [`World::capture_tail`], out of handles.
    pub fn capture_node(&mut self, number: u64, node: Node) -> Result<u64, Code> {
        let (graph, after) = self.capture_tail(number)?;
        let context = self.streams.get(&number).map_or(0, |stream| stream.context);
        let node = self.add_node(graph, &after, node, context)?;
        self.set_tail(number, &[node], false);
        Ok(node)
    }

    /// Makes a node of work for a capturing stream, or gives the work back.
    pub fn record(&mut self, number: u64, work: Work) -> Option<Work> {
        if self.captures.is_empty() || !self.is_captured(number) {
            return Some(work);
        }
        let node = match work {
            Work::Copy(copy) => Node::Copy(copy),
            Work::Fill(fill) => Node::Fill(fill),
            Work::Kernel(launch) => Node::Kernel(launch),
            Work::Host { function, data } => Node::Host { function, data },
            Work::Nothing => Node::Empty,
            other => return Some(other),
        };
        if let Err(code) = self.capture_node(number, node) {
            self.violation(format!("a capture on stream {number} could not take up work: code {code}"));
        }
        None
    }

    fn standing(&self, event: u64) -> Standing {
        let Some(captured) = self.events.get(event).and_then(|event| event.captured.as_ref()) else {
            return Standing::Uncaptured;
        };
        match self.captures.get(&captured.capture) {
            Some(capture) if capture.valid => Standing::Live(captured.capture),
            _ => Standing::Dead,
        }
    }

    /// Records an event on a capturing stream: it stands for the nodes that are the stream's last now.
    ///
    /// # Errors
    /// Invalidated.
    pub fn capture_event(&mut self, number: u64, event: u64) -> Result<(), Code> {
        let (_, nodes) = self.capture_tail(number)?;
        let capture = self.capture_of(number).ok_or(codes::ILLEGAL_STATE)?;
        let generation = self.fresh_id();
        let event = self.events.get_mut(event).ok_or(codes::INVALID_HANDLE)?;
        event.generation = generation;
        event.recorded = true;
        event.reached = None;
        event.marks.clear();
        event.captured = Some(Captured { capture, nodes });
        Ok(())
    }

    /// Before a question about an event, which one of a capture cannot answer. `harm`: the capture ends by it.
    ///
    /// # Errors
    /// Captured event; invalid value once that capture is no more.
    pub fn ask_event(&mut self, event: u64, harm: bool) -> Result<(), Code> {
        match self.standing(event) {
            Standing::Uncaptured => Ok(()),
            Standing::Live(capture) => {
                if harm {
                    self.invalidate(&[capture]);
                }
                Err(codes::CAPTURED_EVENT)
            }
            Standing::Dead => Err(codes::INVALID_VALUE),
        }
    }

    /// A stream is to wait for an event, where one of the two has to do with a capture. Whether that was all.
    ///
    /// # Errors
    /// What the meeting of the two comes to: isolation, merge, implicit, invalidated, invalid value.
    pub fn wait_in_capture(&mut self, number: u64, event: u64, external: bool) -> Result<bool, Code> {
        let own = self.capture_of(number);
        let standing = self.standing(event);
        let Some(own) = own else {
            let capture = match standing {
                Standing::Uncaptured => return self.not_beside_captures(number).map(|()| false),
                Standing::Dead => return Err(codes::INVALID_VALUE),
                Standing::Live(capture) => capture,
            };
            if self.streams.get(&number).is_some_and(|stream| stream.role == Role::Legacy) {
                self.invalidate(&[capture]);
                return Err(codes::STREAM_CAPTURE_IMPLICIT);
            }
            let nodes = self.events.get(event).and_then(|event| event.captured.clone());
            if let (Some(capture), Some(captured)) = (self.captures.get_mut(&capture), nodes) {
                capture.tails.insert(number, captured.nodes);
            }
            return Ok(true);
        };
        if self.captures.get(&own).is_some_and(|capture| !capture.valid) {
            return Err(codes::STREAM_CAPTURE_INVALIDATED);
        }
        let harm = |world: &mut World, captures: &[u64], code| {
            world.invalidate(captures);
            Err(code)
        };
        match standing {
            _ if external => self.capture_node(number, Node::Wait { event }).map(|_| true),
            Standing::Live(other) if other == own => {
                let captured = self.events.get(event).and_then(|event| event.captured.clone());
                self.set_tail(number, &captured.map_or(Vec::new(), |captured| captured.nodes), true);
                Ok(true)
            }
            Standing::Live(other) => harm(self, &[own, other], codes::STREAM_CAPTURE_MERGE),
            Standing::Dead => harm(self, &[own], codes::INVALID_VALUE),
            // An event that was never recorded is no reason to wait.
            Standing::Uncaptured if self.events.get(event).is_some_and(|event| !event.recorded) => Ok(true),
            Standing::Uncaptured => harm(self, &[own], codes::STREAM_CAPTURE_ISOLATION),
        }
    }
}

impl Session {
    /// Submits work to a stream, or makes a node of it where the stream captures.
    pub fn submit(&mut self, number: u64, after: Vec<crate::stream::Mark>, work: Work) {
        if let Some(work) = self.record(number, work) {
            self.enqueue(number, after, work);
        }
    }
}
