//! Graphs and their nodes. Executables and launches are in `launch`, the memory of allocation nodes in `graph_memory`.
use std::collections::{BTreeMap, BTreeSet};

use crate::codes::{self, Code};
use crate::kernel::Launch;
use crate::user_object::Held;
use crate::work::{Copy, Fill, HostFunction};
use crate::world::World;

/// What a node does.
#[derive(Clone)]
pub enum Node {
    Empty,
    Copy(Box<Copy>),
    Fill(Box<Fill>),
    Kernel(Box<Launch>),
    Host {
        function: HostFunction,
        data: u64,
    },
    Record {
        event: u64,
    },
    Wait {
        event: u64,
    },
    /// The number of the allocation, in both.
    Alloc {
        allocation: u64,
    },
    Free {
        allocation: u64,
        base: u64,
    },
    /// A graph of the node's own.
    Child {
        graph: u64,
    },
}

impl Node {
    /// `CUgraphNodeType`.
    pub fn kind(&self) -> u32 {
        match self {
            Node::Kernel(_) => 0,
            Node::Copy(_) => 1,
            Node::Fill(_) => 2,
            Node::Host { .. } => 3,
            Node::Child { .. } => 4,
            Node::Empty => 5,
            Node::Wait { .. } => 6,
            Node::Record { .. } => 7,
            Node::Alloc { .. } => 10,
            Node::Free { .. } => 11,
        }
    }

    fn is_memory(&self) -> bool {
        matches!(self, Node::Alloc { .. } | Node::Free { .. })
    }
}

/// A node in its graph.
pub struct Placed {
    pub graph: u64,
    pub node: Node,
    /// The nodes that come before it, in the order in which that was said.
    pub after: Vec<u64>,
    /// The context it runs in; 0: the launching stream's.
    pub context: u64,
}

#[derive(Default)]
pub struct Graph {
    /// In order of making.
    pub nodes: Vec<u64>,
    pub objects: Held,
    /// Owned by a node of another graph.
    pub is_child: bool,
    /// What captures into it answer as their id: that of the first; 0 before there was one.
    pub capture_id: u64,
}

impl World {
    /// # Errors
    /// Invalid value for what is no graph.
    pub fn graph(&self, handle: u64) -> Result<&Graph, Code> {
        self.graphs.get(handle).ok_or(codes::INVALID_VALUE)
    }

    /// # Errors
    /// Invalid value for what is no node.
    pub fn node(&self, handle: u64) -> Result<&Placed, Code> {
        self.nodes.get(handle).ok_or(codes::INVALID_VALUE)
    }

    /// # Errors
    /// Out of handles.
    pub fn create_graph(&mut self) -> Result<u64, Code> {
        self.graphs.insert(|_| Graph::default())
    }

    /// # Errors
    /// Invalid value if one of the nodes is none of the graph.
    pub fn all_of_graph(&self, graph: u64, nodes: &[u64]) -> Result<(), Code> {
        self.graph(graph)?;
        let own = |node: &u64| self.nodes.get(*node).is_some_and(|placed| placed.graph == graph);
        if nodes.iter().all(own) { Ok(()) } else { Err(codes::INVALID_VALUE) }
    }

    /// Adds a node behind others.
    ///
    /// # Errors
    /// Invalid value for dependencies that are none of the graph's nodes or named twice; out of handles.
    pub fn add_node(&mut self, graph: u64, after: &[u64], node: Node, context: u64) -> Result<u64, Code> {
        self.all_of_graph(graph, after)?;
        if after.iter().collect::<BTreeSet<_>>().len() != after.len() {
            return Err(codes::INVALID_VALUE);
        }
        let placed = Placed { graph, node, after: after.to_vec(), context };
        let handle = self.nodes.insert(|_| placed)?;
        if let Some(graph) = self.graphs.get_mut(graph) {
            graph.nodes.push(handle);
        }
        Ok(handle)
    }

    /// Adds a node that allocates. It and its address.
    ///
    /// # Errors
    /// As [`World::add_node`], out of memory.
    pub fn add_alloc_node(
        &mut self,
        graph: u64,
        after: &[u64],
        (device, context): (usize, u64),
        size: u64,
        access: BTreeMap<usize, u32>,
    ) -> Result<(u64, u64), Code> {
        self.all_of_graph(graph, after)?;
        if self.graph(graph)?.is_child {
            return Err(codes::NOT_SUPPORTED);
        }
        let before = self.with_ancestors(after);
        let allocation = self.reserve_in_graph(graph, device, context, size, access, &before)?;
        let node = self.add_node(graph, after, Node::Alloc { allocation }, context)?;
        self.set_allocation_node(allocation, node);
        Ok((node, self.graph_memory.allocation(allocation).map_or(0, |one| one.base)))
    }

    /// Adds a node that frees what an allocation node gives.
    ///
    /// # Errors
    /// As [`World::add_node`]; invalid value for other addresses and for what its graph frees already.
    pub fn add_free_node(
        &mut self,
        graph: u64,
        after: &[u64],
        address: u64,
        context: u64,
    ) -> Result<u64, Code> {
        let allocation = self.freed_allocation(address)?;
        if self.graph(graph)?.is_child {
            return Err(codes::NOT_SUPPORTED);
        }
        let node = self.add_node(graph, after, Node::Free { allocation, base: address }, context)?;
        self.note_free_node(allocation, graph, node);
        Ok(node)
    }

    /// The nodes and all that come before them.
    pub fn with_ancestors(&self, nodes: &[u64]) -> BTreeSet<u64> {
        let mut found: BTreeSet<u64> = nodes.iter().copied().collect();
        let mut open = nodes.to_vec();
        while let Some(placed) = open.pop().and_then(|node| self.nodes.get(node)) {
            open.extend(placed.after.iter().copied().filter(|node| found.insert(*node)));
        }
        found
    }

    /// What comes before what, pair by pair.
    ///
    /// # Errors
    /// Invalid value for what is no graph.
    pub fn edges(&self, graph: u64) -> Result<Vec<(u64, u64)>, Code> {
        let nodes = self.graph(graph)?.nodes.iter();
        let placed = nodes.filter_map(|node| Some((*node, self.nodes.get(*node)?)));
        Ok(placed.flat_map(|(to, placed)| placed.after.iter().map(move |from| (*from, to))).collect())
    }

    /// # Errors
    /// Invalid value for pairs that are there already, of one node with itself, or of nodes of other graphs.
    pub fn add_dependencies(&mut self, graph: u64, from: &[u64], to: &[u64]) -> Result<(), Code> {
        self.all_of_graph(graph, from)?;
        self.all_of_graph(graph, to)?;
        let mut known: BTreeSet<(u64, u64)> = self.edges(graph)?.into_iter().collect();
        let pairs = from.iter().copied().zip(to.iter().copied());
        if !pairs.clone().all(|(from, to)| from != to && known.insert((from, to))) {
            return Err(codes::INVALID_VALUE);
        }
        for (from, to) in pairs {
            if let Some(placed) = self.nodes.get_mut(to) {
                placed.after.push(from);
            }
        }
        Ok(())
    }

    /// Whether nodes of the graph allocate or free memory: such a graph cannot be copied, and has one executable.
    pub fn has_memory(&self, graph: u64) -> bool {
        let nodes = self.graphs.get(graph).into_iter().flat_map(|graph| &graph.nodes);
        nodes.filter_map(|node| self.nodes.get(*node)).any(|placed| placed.node.is_memory())
    }

    /// Removes a node and the order that it made.
    ///
    /// # Errors
    /// Illegal state in a graph that is being captured, not supported in one with memory.
    pub fn destroy_node(&mut self, handle: u64) -> Result<(), Code> {
        let graph = self.node(handle)?.graph;
        if self.capture_into(graph).is_some() {
            return Err(codes::ILLEGAL_STATE);
        }
        if self.has_memory(graph) {
            return Err(codes::NOT_SUPPORTED);
        }
        let others = self.graph(graph)?.nodes.clone();
        for other in others {
            if let Some(placed) = self.nodes.get_mut(other) {
                placed.after.retain(|node| *node != handle);
            }
        }
        if let Some(graph) = self.graphs.get_mut(graph) {
            graph.nodes.retain(|node| *node != handle);
        }
        self.drop_node(handle);
        Ok(())
    }

    fn drop_node(&mut self, handle: u64) {
        if let Some(Placed { node: Node::Child { graph }, .. }) = self.nodes.remove(handle) {
            self.drop_graph(graph);
        }
    }

    /// A copy of a graph, with copies of the graphs of its child nodes. It holds the same user objects.
    ///
    /// # Errors
    /// Not supported for a graph with memory; out of handles.
    pub fn clone_graph(&mut self, handle: u64, is_child: bool) -> Result<u64, Code> {
        let graph = self.graph(handle)?;
        if self.has_memory(handle) {
            return Err(codes::NOT_SUPPORTED);
        }
        let (nodes, objects) = (graph.nodes.clone(), graph.objects.clone());
        let objects = self.hold_again(&objects);
        let clone = self.graphs.insert(|_| Graph { nodes: Vec::new(), objects, is_child, capture_id: 0 })?;
        let mut copies = BTreeMap::new();
        // Dependencies can point forwards, so they are entered when all copies have their handles.
        for &old in &nodes {
            let placed = self.node(old)?;
            let (node, context) = (placed.node.clone(), placed.context);
            let node = match node {
                Node::Child { graph } => Node::Child { graph: self.clone_graph(graph, true)? },
                other => other,
            };
            copies.insert(old, self.add_node(clone, &[], node, context)?);
        }
        for (old, copy) in &copies {
            let after = &self.node(*old)?.after;
            let after = after.iter().filter_map(|node| copies.get(node).copied()).collect();
            if let Some(placed) = self.nodes.get_mut(*copy) {
                placed.after = after;
            }
        }
        Ok(clone)
    }

    /// # Errors
    /// Invalid value for what is no graph of the program's own, illegal state for one that is being captured.
    pub fn destroy_graph(&mut self, handle: u64) -> Result<(), Code> {
        if self.graph(handle)?.is_child {
            return Err(codes::INVALID_VALUE);
        }
        if self.capture_into(handle).is_some() {
            return Err(codes::ILLEGAL_STATE);
        }
        self.drop_graph(handle);
        Ok(())
    }

    /// Forgets a graph, whatever its state. Memory that its launches gave lives on.
    pub fn drop_graph(&mut self, handle: u64) {
        let Some(graph) = self.graphs.remove(handle) else { return };
        for node in graph.nodes {
            self.drop_node(node);
        }
        self.let_go(&graph.objects);
        let allocations = self.graph_memory.of_graph(handle);
        self.release_arenas(&allocations);
        self.graph_memory.leave_graph(handle);
        for exec in self.executables.values_mut().filter(|exec| exec.graph == handle) {
            exec.graph = 0;
        }
    }
}
