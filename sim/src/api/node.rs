//! Nodes of graphs: added, asked, removed.
use super::capture::{EdgeData, plain_edges};
use super::copy::{self, Copy3D, Target};
use super::fill::{self, Rows};
use super::kernel_node::{KernelParams, kernel_node};
use super::pool::{AccessDescription, PoolProperties};
use crate::call::{Entry, In, Out, Session, call};
use crate::codes::{self, Code};
use crate::graph::Node;
use crate::pool::LOCATION_DEVICE;
use crate::thread;
use crate::work::HostFunction;

/// Where a node goes.
#[derive(Clone, Copy)]
pub struct Where {
    pub out: Out<u64>,
    pub graph: u64,
    pub dependencies: In<u64>,
    pub count: usize,
}

impl Where {
    fn after(&self) -> Result<Vec<u64>, Code> {
        self.out.check()?;
        self.dependencies.list(self.count)
    }
}

/// Adds what `make` makes.
pub fn add(
    entry: &'static Entry,
    place: Where,
    make: impl FnOnce(&mut Session, &[u64]) -> Result<u64, Code>,
) -> Code {
    let args = [place.out.address(), place.graph, place.dependencies.address(), place.count as u64];
    call(entry, args, |session| {
        let after = place.after()?;
        session.graph(place.graph)?;
        let node = make(session, &after)?;
        place.out.put(node)
    })
}

/// The context that a node names, or the current one.
pub fn context_of(session: &Session, context: u64) -> Result<u64, Code> {
    let handle = if context == 0 { thread::current() } else { context };
    Ok(session.context(handle)?.handle)
}

/// How operands of a node are resolved: as those of captured work.
fn as_captured(session: &Session, context: u64) -> Result<Target, Code> {
    Ok(Target { number: 0, context: context_of(session, context)?, captured: true })
}

fn copy_node(
    session: &mut Session,
    graph: u64,
    after: &[u64],
    asked: &Copy3D,
    context: u64,
) -> Result<u64, Code> {
    let target = as_captured(session, context)?;
    let copy = copy::describe(session, asked, &target, false)?.ok_or(codes::INVALID_VALUE)?;
    session.add_node(graph, after, Node::Copy(Box::new(copy)), target.context)
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FillParams {
    to: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

fn fill_node(
    session: &mut Session,
    graph: u64,
    after: &[u64],
    asked: &FillParams,
    context: u64,
) -> Result<u64, Code> {
    if !matches!(asked.element, 1 | 2 | 4) {
        return Err(codes::INVALID_VALUE);
    }
    let target = as_captured(session, context)?;
    let pattern = &asked.value.to_le_bytes()[..asked.element as usize];
    let width = asked.width.checked_mul(pattern.len()).ok_or(codes::INVALID_VALUE)?;
    let rows = Rows { to: asked.to, pitch: asked.pitch, width, height: asked.height, pattern };
    let mut pieces = fill::describe(session, &rows, &target)?;
    let piece = if pieces.len() == 1 { pieces.pop() } else { None };
    let fill = piece.ok_or(codes::INVALID_VALUE)?;
    session.add_node(graph, after, Node::Fill(Box::new(fill)), target.context)
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostParams {
    function: Option<HostFunction>,
    data: u64,
}

fn host_node(session: &mut Session, graph: u64, after: &[u64], asked: HostParams) -> Result<u64, Code> {
    let function = asked.function.ok_or(codes::INVALID_VALUE)?;
    let context = context_of(session, 0)?;
    session.add_node(graph, after, Node::Host { function, data: asked.data }, context)
}

fn child_node(session: &mut Session, graph: u64, after: &[u64], child: u64) -> Result<u64, Code> {
    if child == graph {
        return Err(codes::INVALID_VALUE);
    }
    session.all_of_graph(graph, after)?;
    let copy = session.clone_graph(child, true)?;
    session.add_node(graph, after, Node::Child { graph: copy }, 0)
}

fn event_node(
    session: &mut Session,
    graph: u64,
    after: &[u64],
    event: u64,
    records: bool,
) -> Result<u64, Code> {
    let context = session.event(event)?.context;
    let node = if records { Node::Record { event } } else { Node::Wait { event } };
    session.add_node(graph, after, node, context)
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`, of both versions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocParams {
    properties: PoolProperties,
    access: In<AccessDescription>,
    access_count: usize,
    size: usize,
    address: u64,
}

/// The node and its address.
fn alloc_node(
    session: &mut Session,
    graph: u64,
    after: &[u64],
    asked: &AllocParams,
) -> Result<(u64, u64), Code> {
    let device = asked.properties.plain_device().ok_or(codes::INVALID_VALUE)?;
    let device = session.ordinal(device)?;
    session.has_pools(device)?;
    if asked.size == 0 {
        return Err(codes::INVALID_VALUE);
    }
    let mut access = session.access_of_pool(0, device);
    for (location, flags) in asked.access.list(asked.access_count)?.into_iter().map(AccessDescription::pair) {
        if location.kind != LOCATION_DEVICE {
            return Err(codes::INVALID_VALUE);
        }
        let other = session.ordinal(location.id)?;
        if other != device && !session.can_access_peer(other, device) {
            return Err(codes::INVALID_DEVICE);
        }
        if flags != 0 {
            access.insert(other, flags);
        }
    }
    let current = session.contexts.get(thread::current()).filter(|context| context.device == device);
    let context = current.map_or(session.devices[device].primary, |context| context.handle);
    let context = context_of(session, context)?;
    session.add_alloc_node(graph, after, (device, context), asked.size as u64, access)
}

fn free_node(session: &mut Session, graph: u64, after: &[u64], address: u64) -> Result<u64, Code> {
    let allocation = session.freed_allocation(address)?;
    let context = session.graph_memory.allocation(allocation).map_or(0, |one| one.context);
    session.add_free_node(graph, after, address, context)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddEmptyNode(out: Out<u64>, graph: u64, dependencies: In<u64>, count: usize) -> u32 {
    static E: Entry = Entry::new("cuGraphAddEmptyNode");
    add(&E, Where { out, graph, dependencies, count }, |session, after| {
        session.add_node(graph, after, Node::Empty, 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddMemcpyNode(
    out: Out<u64>,
    graph: u64,
    dependencies: In<u64>,
    count: usize,
    params: In<Copy3D>,
    context: u64,
) -> u32 {
    static E: Entry = Entry::new("cuGraphAddMemcpyNode");
    add(&E, Where { out, graph, dependencies, count }, |session, after| {
        copy_node(session, graph, after, &params.get()?, context)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddMemsetNode(
    out: Out<u64>,
    graph: u64,
    dependencies: In<u64>,
    count: usize,
    params: In<FillParams>,
    context: u64,
) -> u32 {
    static E: Entry = Entry::new("cuGraphAddMemsetNode");
    add(&E, Where { out, graph, dependencies, count }, |session, after| {
        fill_node(session, graph, after, &params.get()?, context)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddHostNode(
    out: Out<u64>,
    graph: u64,
    dependencies: In<u64>,
    count: usize,
    params: In<HostParams>,
) -> u32 {
    static E: Entry = Entry::new("cuGraphAddHostNode");
    add(&E, Where { out, graph, dependencies, count }, |session, after| {
        host_node(session, graph, after, params.get()?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddChildGraphNode(
    out: Out<u64>,
    graph: u64,
    dependencies: In<u64>,
    count: usize,
    child: u64,
) -> u32 {
    static E: Entry = Entry::new("cuGraphAddChildGraphNode");
    add(&E, Where { out, graph, dependencies, count }, |session, after| {
        child_node(session, graph, after, child)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphChildGraphNodeGetGraph(node: u64, graph: Out<u64>) -> u32 {
    static E: Entry = Entry::new("cuGraphChildGraphNodeGetGraph");
    call(&E, [node, graph.address()], |session| match session.node(node)?.node {
        Node::Child { graph: child } => graph.put(child),
        _ => Err(codes::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddEventRecordNode(
    out: Out<u64>,
    graph: u64,
    dependencies: In<u64>,
    count: usize,
    event: u64,
) -> u32 {
    static E: Entry = Entry::new("cuGraphAddEventRecordNode");
    add(&E, Where { out, graph, dependencies, count }, |session, after| {
        event_node(session, graph, after, event, true)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddEventWaitNode(
    out: Out<u64>,
    graph: u64,
    dependencies: In<u64>,
    count: usize,
    event: u64,
) -> u32 {
    static E: Entry = Entry::new("cuGraphAddEventWaitNode");
    add(&E, Where { out, graph, dependencies, count }, |session, after| {
        event_node(session, graph, after, event, false)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddMemAllocNode(
    out: Out<u64>,
    graph: u64,
    dependencies: In<u64>,
    count: usize,
    params: Out<AllocParams>,
) -> u32 {
    static E: Entry = Entry::new("cuGraphAddMemAllocNode");
    add(&E, Where { out, graph, dependencies, count }, |session, after| {
        let asked = params.get()?;
        let (node, address) = alloc_node(session, graph, after, &asked)?;
        params.put(AllocParams { address, ..asked })?;
        Ok(node)
    })
}

/// The properties that the node was made with are told as far as they matter: the place.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphMemAllocNodeGetParams(node: u64, params: Out<AllocParams>) -> u32 {
    static E: Entry = Entry::new("cuGraphMemAllocNodeGetParams");
    call(&E, [node, params.address()], |session| {
        let Node::Alloc { allocation } = session.node(node)?.node else { return Err(codes::INVALID_VALUE) };
        let one = session.graph_memory.allocation(allocation).ok_or(codes::INVALID_VALUE)?;
        params.put(AllocParams {
            properties: PoolProperties::of_device(one.device),
            access: one.told.first().map_or(In::none(), In::from),
            access_count: one.told.len(),
            size: one.size as usize,
            address: one.base,
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddMemFreeNode(
    out: Out<u64>,
    graph: u64,
    dependencies: In<u64>,
    count: usize,
    address: u64,
) -> u32 {
    static E: Entry = Entry::new("cuGraphAddMemFreeNode");
    add(&E, Where { out, graph, dependencies, count }, |session, after| {
        free_node(session, graph, after, address)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphMemFreeNodeGetParams(node: u64, address: Out<u64>) -> u32 {
    static E: Entry = Entry::new("cuGraphMemFreeNodeGetParams");
    call(&E, [node, address.address()], |session| match session.node(node)?.node {
        Node::Free { base, .. } => address.put(base),
        _ => Err(codes::INVALID_VALUE),
    })
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyParams {
    flags: i32,
    reserved: i32,
    context: u64,
    copy: Copy3D,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FillParamsV2 {
    fill: FillParams,
    context: u64,
}

/// Where the parameters of a kind lie in `CUgraphNodeParams`, behind its type and reserved words.
const PARAMS_AT: u64 = 16;

/// Adds a node of any kind.
fn add_any(entry: &'static Entry, place: Where, params: Out<u32>) -> Code {
    add(entry, place, |session, after| {
        let kind = params.get()?;
        let graph = place.graph;
        let body = params.past(PARAMS_AT);
        match kind {
            0 => kernel_node(session, graph, after, &body.cast::<KernelParams>().get()?),
            1 => {
                let asked = body.cast::<CopyParams>().get()?;
                copy_node(session, graph, after, &asked.copy, asked.context)
            }
            2 => {
                let asked = body.cast::<FillParamsV2>().get()?;
                fill_node(session, graph, after, &asked.fill, asked.context)
            }
            3 => host_node(session, graph, after, body.cast::<HostParams>().get()?),
            4 => child_node(session, graph, after, body.cast::<u64>().get()?),
            5 => session.add_node(graph, after, Node::Empty, 0),
            6 | 7 => event_node(session, graph, after, body.cast::<u64>().get()?, kind == 7),
            10 => {
                let params = body.cast::<AllocParams>();
                let asked = params.get()?;
                let (node, address) = alloc_node(session, graph, after, &asked)?;
                params.put(AllocParams { address, ..asked })?;
                Ok(node)
            }
            11 => free_node(session, graph, after, body.cast::<u64>().get()?),
            _ => {
                session.note = Some(format!("unsupported: a node of type {kind}").into());
                Err(codes::NOT_SUPPORTED)
            }
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddNode(
    out: Out<u64>,
    graph: u64,
    dependencies: In<u64>,
    count: usize,
    params: Out<u32>,
) -> u32 {
    static E: Entry = Entry::new("cuGraphAddNode");
    add_any(&E, Where { out, graph, dependencies, count }, params)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddNode_v2(
    out: Out<u64>,
    graph: u64,
    dependencies: In<u64>,
    edges: In<EdgeData>,
    count: usize,
    params: Out<u32>,
) -> u32 {
    static E: Entry = Entry::new("cuGraphAddNode_v2");
    if plain_edges(edges, count).is_err() {
        return codes::INVALID_VALUE;
    }
    add_any(&E, Where { out, graph, dependencies, count }, params)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetType(node: u64, kind: Out<u32>) -> u32 {
    static E: Entry = Entry::new("cuGraphNodeGetType");
    call(&E, [node, kind.address()], |session| {
        let value = session.node(node)?.node.kind();
        kind.put(value)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroyNode(node: u64) -> u32 {
    static E: Entry = Entry::new("cuGraphDestroyNode");
    call(&E, [node], |session| session.destroy_node(node))
}
