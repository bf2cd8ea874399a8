//! Executables of graphs, and what a launch submits.
//!
//! A launch becomes ordinary work: nodes go to hidden streams, a chain of them to one, behind the marks of the nodes that
//! come before; the launching stream goes on behind all of them. So a schedule may run independent nodes in any order, and
//! everything that knows streams knows launches.
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::call::Session;
use crate::codes::{self, Code};
use crate::graph::Node;
use crate::stream::{Mark, NON_BLOCKING};
use crate::user_object::Held;
use crate::work::{Operand, Work};
use crate::world::World;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_*`.
pub const AUTO_FREE: u64 = 1;
pub const UPLOAD: u64 = 2;
pub const DEVICE_LAUNCH: u64 = 4;
const USE_NODE_PRIORITY: u64 = 8;

/// `CUgraphInstantiateResult`.
pub const INSTANTIATED: u32 = 0;
pub const FAILED: u32 = 1;
pub const INVALID_STRUCTURE: u32 = 2;

/// A node of an executable. Those of child graphs stand among the others.
struct Step {
    node: Node,
    context: u64,
    /// Indices of the steps before it.
    after: Vec<usize>,
}

pub struct Executable {
    pub flags: u64,
    /// The graph it was made from, while that and this live.
    pub graph: u64,
    steps: Arc<Vec<Step>>,
    /// What its nodes allocate.
    allocations: Vec<u64>,
    objects: Held,
    /// The end of the last launch: the next one comes after it.
    last: Vec<Mark>,
    /// Launches that have not ended.
    running: u32,
    destroyed: bool,
}

impl World {
    /// Puts the nodes of a graph, in an order that respects theirs, behind `inputs`. The steps that nothing comes after.
    fn flatten(&self, graph: u64, inputs: &[usize], steps: &mut Vec<Step>) -> Option<Vec<usize>> {
        let nodes = &self.graphs.get(graph)?.nodes;
        let mut ends: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        let mut waiting: Vec<u64> = nodes.clone();
        while !waiting.is_empty() {
            let left = waiting.len();
            let mut next = Vec::new();
            for handle in waiting {
                let placed = self.nodes.get(handle)?;
                if !placed.after.iter().all(|node| ends.contains_key(node)) {
                    next.push(handle);
                    continue;
                }
                let mut after: Vec<usize> = placed.after.iter().flat_map(|node| ends[node].clone()).collect();
                if placed.after.is_empty() {
                    after.extend(inputs);
                }
                after.sort_unstable();
                after.dedup();
                let end = match &placed.node {
                    Node::Child { graph } => self.flatten(*graph, &after, steps)?,
                    node => {
                        steps.push(Step { node: node.clone(), context: placed.context, after });
                        vec![steps.len() - 1]
                    }
                };
                ends.insert(handle, end);
            }
            if next.len() == left {
                return None;
            }
            waiting = next;
        }
        let inner: Vec<u64> = nodes
            .iter()
            .filter_map(|node| self.nodes.get(*node))
            .flat_map(|placed| placed.after.clone())
            .collect();
        let leaves = nodes.iter().filter(|node| !inner.contains(node));
        let leaves: Vec<usize> = leaves.flat_map(|node| ends[node].clone()).collect();
        Some(if leaves.is_empty() { inputs.to_vec() } else { leaves })
    }

    /// Makes an executable. Its handle.
    ///
    /// # Errors
    /// A code, and a word on the graph: invalid structure for one with a cycle.
    pub fn instantiate(&mut self, graph: u64, flags: u64) -> Result<u64, (Code, u32)> {
        let failed = |code| (code, FAILED);
        self.graph(graph).map_err(failed)?;
        if flags & !(AUTO_FREE | UPLOAD | DEVICE_LAUNCH | USE_NODE_PRIORITY) != 0 {
            return Err(failed(codes::INVALID_VALUE));
        }
        if flags & DEVICE_LAUNCH != 0 {
            return Err(failed(codes::NOT_SUPPORTED));
        }
        let taken = self.executables.values().any(|exec| exec.graph == graph);
        if taken && self.has_memory(graph) {
            return Err(failed(codes::NOT_SUPPORTED));
        }
        let mut steps = Vec::new();
        if self.flatten(graph, &[], &mut steps).is_none() {
            return Err((codes::INVALID_VALUE, INVALID_STRUCTURE));
        }
        let unfit = steps.iter().any(|step| match &step.node {
            Node::Copy(copy) => copy.to.unfit || copy.from.unfit,
            Node::Fill(fill) => fill.to.unfit,
            _ => false,
        });
        if unfit {
            return Err(failed(codes::INVALID_VALUE));
        }
        let allocations = self.graph_memory.of_graph(graph);
        self.hold_arenas(&allocations);
        let objects = self.objects_of(graph);
        let objects = self.hold_again(&objects);
        let number = self.fresh_id();
        self.executables.insert(
            number,
            Executable {
                flags,
                graph,
                steps: Arc::new(steps),
                allocations,
                objects,
                last: Vec::new(),
                running: 0,
                destroyed: false,
            },
        );
        self.execs.insert(|_| number).map_err(failed)
    }

    /// The user objects of a graph and of its child graphs.
    fn objects_of(&self, graph: u64) -> Held {
        let Some(graph) = self.graphs.get(graph) else { return Held::new() };
        let mut all = graph.objects.clone();
        for node in graph.nodes.iter().filter_map(|node| self.nodes.get(*node)) {
            if let Node::Child { graph } = node.node {
                for (object, count) in self.objects_of(graph) {
                    *all.entry(object).or_default() += count;
                }
            }
        }
        all
    }

    /// # Errors
    /// Invalid value for what is no executable.
    pub fn executable(&self, handle: u64) -> Result<(u64, &Executable), Code> {
        let number = *self.execs.get(handle).ok_or(codes::INVALID_VALUE)?;
        Ok((number, self.executables.get(&number).ok_or(codes::INVALID_VALUE)?))
    }

    /// Takes an executable's handle away. It is gone when its last launch has ended.
    ///
    /// # Errors
    /// Invalid value for what is no executable.
    pub fn destroy_executable(&mut self, handle: u64) -> Result<(), Code> {
        let number = self.execs.remove(handle).ok_or(codes::INVALID_VALUE)?;
        if let Some(exec) = self.executables.get_mut(&number) {
            exec.destroyed = true;
            exec.graph = 0;
        }
        self.drop_if_done(number);
        Ok(())
    }

    fn drop_if_done(&mut self, number: u64) {
        let done = |exec: &Executable| exec.destroyed && exec.running == 0;
        if self.executables.get(&number).is_some_and(done)
            && let Some(exec) = self.executables.remove(&number)
        {
            self.release_arenas(&exec.allocations);
            // Whoever is told by a user object knows that all launches have run.
            if !exec.objects.is_empty() {
                self.seen(&exec.last);
            }
            self.let_go(&exec.objects);
        }
    }

    /// The last work of a launch has run.
    pub fn launch_ended(&mut self, number: u64) {
        if let Some(exec) = self.executables.get_mut(&number) {
            exec.running -= 1;
        }
        self.drop_if_done(number);
    }

    /// Memory for an operand in a launch that gave its allocations these blocks.
    fn bind(&self, operand: &mut Operand, blocks: &BTreeMap<u64, u64>) {
        if let Some((_, id)) = &mut operand.block {
            *id = blocks.get(id).copied().or_else(|| self.live_graph_block(*id)).unwrap_or(*id);
        }
    }

    /// Marks a live block as one whose free is on its way. Base and number.
    fn begin_graph_free(&mut self, allocation: u64, blocks: &BTreeMap<u64, u64>) -> Option<(u64, u64)> {
        let base = self.graph_memory.allocation(allocation)?.base;
        let own = blocks.get(&allocation).copied();
        let number = own.or_else(|| self.live_graph_block(allocation))?;
        if let Some(block) = self.blocks.at_mut(base).filter(|block| block.id == number) {
            block.freeing = true;
        }
        Some((base, number))
    }
}

/// A hidden stream of a launch, and the step that is its last so far.
struct Lane {
    stream: u64,
    context: u64,
    last: usize,
}

impl Session {
    /// Uploads an executable: its memory is there from then on, and a piece of work says so.
    ///
    /// # Errors
    /// Invalid value, out of memory.
    pub fn upload(&mut self, handle: u64, number: u64) -> Result<(), Code> {
        let allocations = self.executable(handle)?.1.allocations.clone();
        self.take_chunks(&allocations)?;
        self.enqueue(number, Vec::new(), Work::Nothing);
        Ok(())
    }

    /// What a launch must find before it submits anything.
    fn check_launch(&self, exec: &Executable) -> Result<Vec<u64>, Code> {
        let live: Vec<u64> =
            exec.allocations.iter().copied().filter(|id| self.live_graph_block(*id).is_some()).collect();
        if !live.is_empty() && exec.flags & AUTO_FREE == 0 {
            return Err(codes::INVALID_VALUE);
        }
        for step in exec.steps.iter() {
            if step.context != 0 {
                self.context(step.context)?;
            }
            if let Node::Free { allocation, .. } = step.node {
                let own = exec.allocations.contains(&allocation);
                if !own && self.live_graph_block(allocation).is_none() {
                    return Err(codes::INVALID_VALUE);
                }
            }
        }
        Ok(live)
    }

    /// Launches an executable on a stream.
    ///
    /// # Errors
    /// Invalid value for no executable, for memory of the last launch that still lives, for memory to free that does not;
    /// the state of a node's context; out of memory.
    pub fn launch(&mut self, handle: u64, number: u64) -> Result<(), Code> {
        let (exec_number, exec) = self.executable(handle)?;
        let (steps, last) = (Arc::clone(&exec.steps), exec.last.clone());
        let allocations = exec.allocations.clone();
        let live = self.check_launch(exec)?;
        let context = self.streams.get(&number).ok_or(codes::INVALID_HANDLE)?.context;
        self.take_chunks(&allocations)?;
        // Nothing of it runs before all of it is submitted: a host function lets other threads in.
        let gate = self.add_hidden_stream(context, NON_BLOCKING)?;
        self.enqueue(gate, Vec::new(), Work::Hold);
        let mut first = vec![self.end_of(gate)];
        first.extend(last);
        self.enqueue(number, first, Work::Nothing);
        for allocation in live {
            if let Some((base, id)) = self.begin_graph_free(allocation, &BTreeMap::new()) {
                self.enqueue(number, Vec::new(), Work::Free { base, id });
            }
        }
        let begin = self.end_of(number);
        let submitted = self.submit_steps(&steps, context, begin);
        if let Ok(ends) = &submitted {
            self.enqueue(number, ends.clone(), Work::Launched { exec: exec_number });
            let end = self.end_of(number);
            if let Some(exec) = self.executables.get_mut(&exec_number) {
                exec.running += 1;
                exec.last = vec![end];
            }
        }
        self.release_hold(gate);
        self.pump();
        submitted.map(drop)
    }

    /// Submits the steps of a launch by a stream of `context`. The ends of all lanes.
    fn submit_steps(&mut self, steps: &[Step], context: u64, begin: Mark) -> Result<Vec<Mark>, Code> {
        let mut lanes: Vec<Lane> = Vec::new();
        let mut marks: Vec<Mark> = Vec::new();
        let mut blocks = BTreeMap::new();
        for (index, step) in steps.iter().enumerate() {
            let context = if step.context == 0 { context } else { step.context };
            let follows = |lane: &&mut Lane| lane.context == context && step.after.contains(&lane.last);
            let stream = match lanes.iter_mut().find(follows) {
                Some(lane) => {
                    lane.last = index;
                    lane.stream
                }
                None => {
                    let stream = self.add_hidden_stream(context, NON_BLOCKING)?;
                    lanes.push(Lane { stream, context, last: index });
                    stream
                }
            };
            let mut after: Vec<Mark> = step.after.iter().map(|before| marks[*before]).collect();
            if after.is_empty() {
                after.push(begin);
            }
            self.submit_step(&step.node, stream, after, &mut blocks);
            marks.push(self.end_of(stream));
        }
        Ok(lanes.iter().map(|lane| self.end_of(lane.stream)).collect())
    }

    fn submit_step(
        &mut self,
        node: &Node,
        stream: u64,
        mut after: Vec<Mark>,
        blocks: &mut BTreeMap<u64, u64>,
    ) {
        let mut recorded = None;
        let work = match node {
            Node::Empty | Node::Child { .. } => Work::Nothing,
            Node::Copy(copy) => {
                let mut copy = copy.clone();
                self.bind(&mut copy.to, blocks);
                self.bind(&mut copy.from, blocks);
                Work::Copy(copy)
            }
            Node::Fill(fill) => {
                let mut fill = fill.clone();
                self.bind(&mut fill.to, blocks);
                Work::Fill(fill)
            }
            // What it touches is found when it runs.
            Node::Kernel(launch) => Work::Kernel(launch.clone()),
            Node::Host { function, data } => Work::Host { function: *function, data: *data },
            Node::Alloc { allocation } => {
                let base = self.graph_memory.allocation(*allocation).map_or(0, |one| one.base);
                let id = self.enter_graph_block(*allocation);
                blocks.insert(*allocation, id);
                Work::Allocate { base, id }
            }
            Node::Free { allocation, .. } => match self.begin_graph_free(*allocation, blocks) {
                Some((base, id)) => Work::Free { base, id },
                None => Work::Nothing,
            },
            Node::Record { event } => match self.begin_record(*event) {
                Some(generation) => {
                    recorded = Some(*event);
                    Work::Record { event: *event, generation }
                }
                None => {
                    self.violation(format!("a graph records the event {event:#x}, which is destroyed"));
                    Work::Nothing
                }
            },
            Node::Wait { event } => {
                match self.events.get(*event) {
                    Some(event) => after.extend(&event.marks),
                    None => {
                        self.violation(format!("a graph waits for the event {event:#x}, which is destroyed"))
                    }
                }
                Work::Nothing
            }
        };
        self.enqueue(stream, after, work);
        if let Some(event) = recorded {
            let mark = self.end_of(stream);
            self.set_marks(event, vec![mark]);
        }
    }
}
