//! Captures, and the graphs that come of them.

use super::{CaptureStatus, Driver, Failure, RawStream};
use crate::lock::Mutex;
use cudarc::driver::sys::{self, CUgraphEdgeData, CUgraphMem_attribute as MemoryAttribute};
use std::ffi::c_void;

native_handle!(
    /// A graph of the driver.
    RawGraph
);
native_handle!(
    /// A graph that can be launched.
    RawGraphExec
);
native_handle!(
    /// A node of a graph.
    RawNode
);

/// What a description of access says: of a GPU, and that it may read and write. It is three numbers: the sort of place, which
/// one, and the flags.
const DEVICE: u32 = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32;
const READ_WRITE: u32 = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as u32;
const _: () = assert!(size_of::<sys::CUmemAccessDesc>() == size_of::<[u32; 3]>());

/// Which calls of other threads a capture forbids. The numbers are the driver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum CaptureMode {
    Global = 0,
    ThreadLocal = 1,
    Relaxed = 2,
}

impl CaptureMode {
    pub fn of(number: i32) -> Option<CaptureMode> {
        [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed]
            .into_iter()
            .find(|mode| *mode as i32 == number)
    }

    fn native(self) -> sys::CUstreamCaptureMode {
        match self {
            CaptureMode::Global => sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            CaptureMode::ThreadLocal => sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CaptureMode::Relaxed => sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        }
    }
}

/// A node that the next work comes after, and of what sort the dependency is.
#[derive(Debug, Clone, Copy)]
pub struct Dependency {
    pub node: RawNode,
    edge: CUgraphEdgeData,
}

impl Dependency {
    /// The ordinary sort: all of the node comes before.
    pub fn on(node: RawNode) -> Dependency {
        Dependency { node, edge: NO_EDGE }
    }
}

const NO_EDGE: CUgraphEdgeData = CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };

/// The capture that a stream takes part in.
#[derive(Debug)]
pub struct CaptureInfo {
    /// False once something broke it: all that is left is to end it.
    pub active: bool,
    /// Of the capture, and of its graph; a graph that is captured into again keeps it.
    pub id: u64,
    /// To be read and added to, by the thread that captures; NULL when it is broken.
    pub graph: RawGraph,
    /// What the next work on the stream comes after.
    pub frontier: Vec<Dependency>,
}

/// Held while the driver's list of nodes is read: the next question about the same capture, by any thread, may replace it,
/// and frees ask about the captures of all streams.
static READING: Mutex<()> = Mutex::new(());

/// Bytes of a GPU that graphs hold: in use or kept for their next runs, until they are trimmed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GraphMemory {
    pub used: u64,
    pub used_high: u64,
    pub reserved: u64,
    pub reserved_high: u64,
}

impl Driver {
    /// Whether this driver can capture and run graphs with memory in them.
    pub fn has_graphs(&self) -> bool {
        self.graphs
    }

    pub fn begin_capture(&self, stream: RawStream, mode: CaptureMode) -> Result<(), Failure> {
        // SAFETY: the caller pins the stream.
        unsafe { self.table.cuStreamBeginCapture_v2(stream.0.cast(), mode.native()) }
    }

    /// Goes on capturing into a graph, after what `after` names.
    pub fn begin_capture_into(
        &self,
        stream: RawStream,
        graph: RawGraph,
        after: &[Dependency],
        mode: CaptureMode,
    ) -> Result<(), Failure> {
        let (nodes, edges) = split(after);
        // SAFETY: the caller pins the stream and owns the graph; the lists are as long as said.
        unsafe {
            self.table.cuStreamBeginCaptureToGraph(
                stream.0.cast(),
                graph.0.cast(),
                nodes.as_ptr(),
                edges.as_ptr(),
                nodes.len(),
                mode.native(),
            )
        }
    }

    /// Ends the capture on its first stream. The graph is the caller's.
    pub fn end_capture(&self, stream: RawStream) -> Result<RawGraph, Failure> {
        let mut graph = RawGraph::NULL;
        // SAFETY: the caller pins the stream; the out-pointer is valid and a graph handle is a pointer.
        unsafe { self.table.cuStreamEndCapture(stream.0.cast(), (&raw mut graph.0).cast())? };
        Ok(graph)
    }

    /// The capture that the stream takes part in, `None` without one.
    pub fn capture_info(&self, stream: RawStream) -> Result<Option<CaptureInfo>, Failure> {
        let (mut status, mut id, mut graph) = (0u32, 0, RawGraph::NULL);
        let mut nodes: *const sys::CUgraphNode = std::ptr::null();
        let mut edges: *const CUgraphEdgeData = std::ptr::null();
        let mut count = 0;
        let _alone = READING.lock();
        // SAFETY: the caller pins the stream; the out-pointers are valid, and the status is one 32-bit number.
        unsafe {
            self.table.cuStreamGetCaptureInfo_v3(
                stream.0.cast(),
                (&raw mut status).cast(),
                &mut id,
                (&raw mut graph.0).cast(),
                &mut nodes,
                &mut edges,
                &mut count,
            )?;
        }
        let active = match CaptureStatus::of(status) {
            CaptureStatus::None => return Ok(None),
            status => status == CaptureStatus::Active,
        };
        let frontier = if active && !nodes.is_null() {
            // SAFETY: the driver's lists have `count` entries and stay until the next call on the stream, for which the
            // lock is needed; the edges may be left out when none says anything.
            let at = |i| unsafe {
                let edge = if edges.is_null() { NO_EDGE } else { *edges.add(i) };
                Dependency { node: RawNode((*nodes.add(i)).cast()), edge }
            };
            (0..count).map(at).collect()
        } else {
            Vec::new()
        };
        Ok(Some(CaptureInfo { active, id, graph, frontier }))
    }

    /// The number of the capture that the stream takes part in, whole or broken.
    pub fn capture_id(&self, stream: RawStream) -> Result<Option<u64>, Failure> {
        let (mut status, mut id) = (0u32, 0);
        let none: *mut c_void = std::ptr::null_mut();
        let _alone = READING.lock();
        // SAFETY: the caller pins the stream; the status is one 32-bit number, and what is not asked for is NULL.
        unsafe {
            self.table.cuStreamGetCaptureInfo_v3(
                stream.0.cast(),
                (&raw mut status).cast(),
                &mut id,
                none.cast(),
                none.cast(),
                none.cast(),
                none.cast(),
            )?;
        }
        Ok((CaptureStatus::of(status) != CaptureStatus::None).then_some(id))
    }

    /// Makes the next work on a capturing stream come after `after`, and nothing else.
    pub fn set_frontier(&self, stream: RawStream, after: &[Dependency]) -> Result<(), Failure> {
        const SET: u32 = 1;
        self.update_frontier(stream, after, SET)
    }

    /// Makes the next work on a capturing stream come after `after` too.
    pub fn add_to_frontier(&self, stream: RawStream, after: &[Dependency]) -> Result<(), Failure> {
        const ADD: u32 = 0;
        self.update_frontier(stream, after, ADD)
    }

    fn update_frontier(&self, stream: RawStream, after: &[Dependency], how: u32) -> Result<(), Failure> {
        let (mut nodes, edges) = split(after);
        // SAFETY: the caller pins the stream; the nodes are of the graph that it captures; the lists are as long as said.
        unsafe {
            self.table.cuStreamUpdateCaptureDependencies_v2(
                stream.0.cast(),
                nodes.as_mut_ptr(),
                edges.as_ptr(),
                nodes.len(),
                how,
            )
        }
    }

    /// Frees a graph's memory in the graph, after the given nodes.
    pub fn add_free_node(&self, graph: RawGraph, after: &[RawNode], ptr: u64) -> Result<RawNode, Failure> {
        let mut node = RawNode::NULL;
        // SAFETY: the caller owns the graph or captures it; the list is as long as said; handles are pointers.
        unsafe {
            self.table.cuGraphAddMemFreeNode(
                (&raw mut node.0).cast(),
                graph.0.cast(),
                after.as_ptr().cast(),
                after.len(),
                ptr,
            )?;
        }
        Ok(node)
    }

    /// Runs a copy of another graph inside a graph, after the given nodes. Refused for graphs with memory of their own.
    pub fn add_child_node(
        &self,
        graph: RawGraph,
        after: &[RawNode],
        child: RawGraph,
    ) -> Result<RawNode, Failure> {
        let mut node = RawNode::NULL;
        // SAFETY: as `add_free_node`; the caller owns the child.
        unsafe {
            self.table.cuGraphAddChildGraphNode(
                (&raw mut node.0).cast(),
                graph.0.cast(),
                after.as_ptr().cast(),
                after.len(),
                child.0.cast(),
            )?;
        }
        Ok(node)
    }

    /// The nodes that come directly after a node.
    pub fn dependents(&self, node: RawNode) -> Result<Vec<RawNode>, Failure> {
        // Most nodes have one: so many are had by one question, and fewer answers than room are all there are.
        const FEW: usize = 4;
        let mut room = FEW;
        loop {
            let mut nodes = vec![RawNode::NULL; room];
            let mut edges = vec![NO_EDGE; room];
            let mut count = room;
            // SAFETY: a node of a graph that the caller owns or captures; the lists have room for `count`, and a node handle
            // is a pointer.
            unsafe {
                self.table.cuGraphNodeGetDependentNodes_v2(
                    node.0.cast(),
                    nodes.as_mut_ptr().cast(),
                    edges.as_mut_ptr(),
                    &mut count,
                )?;
            }
            if count < room {
                nodes.truncate(count);
                return Ok(nodes);
            }
            room *= 8;
        }
    }

    /// What a node allocates, `None` for one that does something else.
    pub fn allocated_by(&self, node: RawNode) -> Option<u64> {
        let params = self.allocation(node)?;
        // SAFETY: the driver filled it, and any number is a value of the field.
        Some(unsafe { (&raw const (*params.as_ptr()).dptr).read() })
    }

    /// The GPUs beside its own that may touch what a node allocates, as the pool's access was when it was captured.
    pub fn allocation_access(&self, node: RawNode) -> Vec<i32> {
        let Some(params) = self.allocation(node) else { return Vec::new() };
        let params = params.as_ptr();
        // SAFETY: the driver filled both fields.
        let (first, count) = unsafe {
            ((&raw const (*params).accessDescs).read(), (&raw const (*params).accessDescCount).read())
        };
        if first.is_null() {
            return Vec::new();
        }
        // SAFETY: the node's own list, which nobody changes while the caller captures; read as numbers, whatever the enums list.
        let given = unsafe { std::slice::from_raw_parts(first.cast::<[u32; 3]>(), count) };
        let is_given = |[sort, _, flags]: &&[u32; 3]| (*sort, *flags) == (DEVICE, READ_WRITE);
        given.iter().filter(is_given).map(|[_, id, _]| *id as i32).collect()
    }

    /// How a node allocates, `None` for one that does something else. To be read field by field where it is, since the rest may
    /// hold numbers that its enums do not list.
    fn allocation(&self, node: RawNode) -> Option<std::mem::MaybeUninit<sys::CUDA_MEM_ALLOC_NODE_PARAMS>> {
        let mut params = std::mem::MaybeUninit::zeroed();
        // SAFETY: a node of a graph that the caller owns or captures; the driver fills the struct, or refuses.
        unsafe { self.table.cuGraphMemAllocNodeGetParams(node.0.cast(), params.as_mut_ptr()) }.ok()?;
        Some(params)
    }

    /// All nodes of a graph.
    pub fn graph_nodes(&self, graph: RawGraph) -> Result<Vec<RawNode>, Failure> {
        let mut count = 0;
        // SAFETY: the caller owns the graph or captures it; without a list only the number is written.
        unsafe { self.table.cuGraphGetNodes(graph.0.cast(), std::ptr::null_mut(), &mut count)? };
        let mut nodes = vec![RawNode::NULL; count];
        if count != 0 {
            // SAFETY: as above; the list has room for `count`.
            unsafe { self.table.cuGraphGetNodes(graph.0.cast(), nodes.as_mut_ptr().cast(), &mut count)? };
        }
        nodes.truncate(count);
        Ok(nodes)
    }

    /// How many nodes and edges a graph has.
    pub fn graph_size(&self, graph: RawGraph) -> Result<(usize, usize), Failure> {
        let (mut nodes, mut edges) = (0, 0);
        let none = std::ptr::null_mut();
        // SAFETY: as `graph_nodes`; without lists only the numbers are written.
        unsafe {
            self.table.cuGraphGetNodes(graph.0.cast(), none, &mut nodes)?;
            self.table.cuGraphGetEdges_v2(graph.0.cast(), none, none, std::ptr::null_mut(), &mut edges)?;
        }
        Ok((nodes, edges))
    }

    /// The nodes of a graph that something comes directly after, each as often as that is so.
    pub fn nodes_with_dependents(&self, graph: RawGraph) -> Result<Vec<RawNode>, Failure> {
        let mut count = 0;
        let none = std::ptr::null_mut();
        // SAFETY: as `graph_nodes`.
        unsafe {
            self.table.cuGraphGetEdges_v2(graph.0.cast(), none, none, std::ptr::null_mut(), &mut count)?
        };
        let mut from = vec![RawNode::NULL; count];
        let mut to = vec![RawNode::NULL; count];
        let mut edges = vec![NO_EDGE; count];
        if count != 0 {
            // SAFETY: as above; the lists have room for `count`.
            unsafe {
                self.table.cuGraphGetEdges_v2(
                    graph.0.cast(),
                    from.as_mut_ptr().cast(),
                    to.as_mut_ptr().cast(),
                    edges.as_mut_ptr(),
                    &mut count,
                )?;
            }
        }
        from.truncate(count);
        Ok(from)
    }

    /// Makes a graph launchable. What its last run allocated and nobody freed is freed by its next launch.
    pub fn instantiate(&self, graph: RawGraph) -> Result<RawGraphExec, Failure> {
        const AUTO_FREE_ON_LAUNCH: u64 = 1;
        let mut exec = RawGraphExec::NULL;
        // SAFETY: the caller owns the graph; the out-pointer is valid and a handle is a pointer.
        unsafe {
            self.table.cuGraphInstantiateWithFlags(
                (&raw mut exec.0).cast(),
                graph.0.cast(),
                AUTO_FREE_ON_LAUNCH,
            )?;
        }
        Ok(exec)
    }

    /// Brings a graph to the GPU ahead of its first launch.
    pub fn upload_graph(&self, exec: RawGraphExec, stream: RawStream) -> Result<(), Failure> {
        // SAFETY: the caller owns the executable and pins the stream.
        unsafe { self.table.cuGraphUpload(exec.0.cast(), stream.0.cast()) }
    }

    #[inline]
    pub fn launch_graph(&self, exec: RawGraphExec, stream: RawStream) -> Result<(), Failure> {
        // SAFETY: the caller owns the executable, launches it from one thread at a time, and pins the stream.
        unsafe { self.table.cuGraphLaunch(exec.0.cast(), stream.0.cast()) }
    }

    /// Gives a launchable graph back; runs of it go on to their end.
    pub fn destroy_exec(&self, exec: RawGraphExec) -> Result<(), Failure> {
        // SAFETY: the caller owned it and has it no more.
        unsafe { self.table.cuGraphExecDestroy(exec.0.cast()) }
    }

    pub fn destroy_graph(&self, graph: RawGraph) -> Result<(), Failure> {
        // SAFETY: the caller owned it and has it no more.
        unsafe { self.table.cuGraphDestroy(graph.0.cast()) }
    }

    /// Has `destroyed(data)` called once the graph and everything made of it, runs included, is gone; on any thread, which
    /// must not call the driver. A failure says whether it is called all the same.
    pub fn tell_when_gone(
        &self,
        graph: RawGraph,
        data: *mut c_void,
        destroyed: unsafe extern "C" fn(*mut c_void),
    ) -> Result<(), (Failure, bool)> {
        const NO_DESTRUCTOR_SYNC: u32 = 1;
        const MOVE: u32 = 1;
        let mut object: *mut c_void = std::ptr::null_mut();
        // SAFETY: the out-pointer is valid and a handle is a pointer; the caller keeps `data` good until the call back.
        unsafe {
            self.table
                .cuUserObjectCreate((&raw mut object).cast(), data, Some(destroyed), 1, NO_DESTRUCTOR_SYNC)
                .map_err(|f| (f, false))?;
        }
        // SAFETY: the caller owns the graph or captures it, and the one reference is this function's to give.
        unsafe { self.table.cuGraphRetainUserObject(graph.0.cast(), object.cast(), 1, MOVE) }.map_err(|f| {
            // SAFETY: the graph did not take the reference.
            let given_back = unsafe { self.table.cuUserObjectRelease(object.cast(), 1) };
            (f, given_back.is_ok())
        })
    }

    pub fn graph_memory(&self, device: i32) -> Result<GraphMemory, Failure> {
        let ask = |attribute| {
            let mut value = 0u64;
            // SAFETY: the attribute is written as 64 bits; the device came from the driver.
            unsafe {
                self.table.cuDeviceGetGraphMemAttribute(device, attribute, (&raw mut value).cast())?;
            }
            Ok(value)
        };
        Ok(GraphMemory {
            used: ask(MemoryAttribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)?,
            used_high: ask(MemoryAttribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?,
            reserved: ask(MemoryAttribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)?,
            reserved_high: ask(MemoryAttribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)?,
        })
    }

    /// Brings the high marks of graph memory down to what is so now.
    pub fn reset_graph_memory_high(&self, device: i32) -> Result<(), Failure> {
        for attribute in [
            MemoryAttribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
            MemoryAttribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
        ] {
            let mut zero = 0u64;
            // SAFETY: the attribute is read as 64 bits; the device came from the driver.
            unsafe {
                self.table.cuDeviceSetGraphMemAttribute(device, attribute, (&raw mut zero).cast())?;
            }
        }
        Ok(())
    }

    /// Gives back the memory that graphs hold and that is not in use.
    pub fn trim_graph_memory(&self, device: i32) -> Result<(), Failure> {
        // SAFETY: the device came from the driver.
        unsafe { self.table.cuDeviceGraphMemTrim(device) }
    }
}

fn split(dependencies: &[Dependency]) -> (Vec<sys::CUgraphNode>, Vec<CUgraphEdgeData>) {
    dependencies.iter().map(|d| (d.node.0.cast(), d.edge)).unzip()
}
