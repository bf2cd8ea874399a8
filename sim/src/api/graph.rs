//! Graphs: made, copied, looked at; executables and launches; graph memory; user objects. Nodes are in `node`.
use super::capture::{EdgeData, plain_edges};
use super::unsupported;
use crate::call::{Entry, In, Out, call};
use crate::codes::{self, Code};
use crate::graph_memory::bytes;
use crate::launch::{INSTANTIATED, UPLOAD};
use crate::work::HostFunction;

/// Writes a list where the caller has room for `count` of it, and how many that were; without room, how many there are.
fn put_list<const N: usize>(out: [Out<u64>; N], count: Out<usize>, all: &[[u64; N]]) -> Result<(), Code> {
    count.check()?;
    if out.iter().all(|out| out.address() == 0) {
        return count.put(all.len());
    }
    let room = count.get()?;
    if room == 0 || out.iter().any(|out| out.address() == 0) {
        return Err(codes::INVALID_VALUE);
    }
    for i in 0..room {
        let row = all.get(i).unwrap_or(&[0; N]);
        for (out, value) in out.iter().zip(row) {
            out.put_at(i, *value)?;
        }
    }
    count.put(room.min(all.len()))
}

fn column(values: impl IntoIterator<Item = u64>) -> Vec<[u64; 1]> {
    values.into_iter().map(|value| [value]).collect()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphCreate(graph: Out<u64>, flags: u32) -> u32 {
    static E: Entry = Entry::new("cuGraphCreate");
    call(&E, [graph.address(), u64::from(flags)], |session| {
        graph.check()?;
        if flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        let handle = session.create_graph()?;
        graph.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: u64) -> u32 {
    static E: Entry = Entry::new("cuGraphDestroy");
    call(&E, [graph], |session| session.destroy_graph(graph))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphClone(clone: Out<u64>, graph: u64) -> u32 {
    static E: Entry = Entry::new("cuGraphClone");
    call(&E, [clone.address(), graph], |session| {
        clone.check()?;
        let handle = session.clone_graph(graph, false)?;
        clone.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) -> u32 {
    static E: Entry = Entry::new("cuGraphGetNodes");
    call(&E, [graph, nodes.address(), count.address()], |session| {
        let all = column(session.graph(graph)?.nodes.iter().copied());
        put_list([nodes], count, &all)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetRootNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) -> u32 {
    static E: Entry = Entry::new("cuGraphGetRootNodes");
    call(&E, [graph, nodes.address(), count.address()], |session| {
        let root = |node: &u64| session.nodes.get(*node).is_some_and(|placed| placed.after.is_empty());
        let all = column(session.graph(graph)?.nodes.iter().copied().filter(root));
        put_list([nodes], count, &all)
    })
}

/// All edge data is zero.
fn put_edge_data(out: Out<EdgeData>, room: usize) -> Result<(), Code> {
    (0..room).filter(|_| out.address() != 0).try_for_each(|i| out.put_at(i, EdgeData::default()))
}

fn edges(
    entry: &'static Entry,
    graph: u64,
    from: Out<u64>,
    to: Out<u64>,
    data: Out<EdgeData>,
    count: Out<usize>,
) -> Code {
    call(entry, [graph, from.address(), to.address(), count.address()], |session| {
        let all: Vec<[u64; 2]> = session.edges(graph)?.into_iter().map(|(from, to)| [from, to]).collect();
        let room = if from.address() == 0 { 0 } else { count.get()? };
        put_list([from, to], count, &all)?;
        put_edge_data(data, room)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetEdges(graph: u64, from: Out<u64>, to: Out<u64>, count: Out<usize>) -> u32 {
    static E: Entry = Entry::new("cuGraphGetEdges");
    edges(&E, graph, from, to, Out::none(), count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetEdges_v2(
    graph: u64,
    from: Out<u64>,
    to: Out<u64>,
    data: Out<EdgeData>,
    count: Out<usize>,
) -> u32 {
    static E: Entry = Entry::new("cuGraphGetEdges_v2");
    edges(&E, graph, from, to, data, count)
}

/// The nodes before a node, or those after it.
fn neighbours(
    entry: &'static Entry,
    node: u64,
    before: bool,
    out: Out<u64>,
    data: Out<EdgeData>,
    count: Out<usize>,
) -> Code {
    call(entry, [node, out.address(), count.address()], |session| {
        let placed = session.node(node)?;
        let all = if before {
            column(placed.after.iter().copied())
        } else {
            let edges = session.edges(placed.graph)?;
            column(edges.into_iter().filter(|(from, _)| *from == node).map(|(_, to)| to))
        };
        let room = if out.address() == 0 { 0 } else { count.get()? };
        put_list([out], count, &all)?;
        put_edge_data(data, room)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetDependencies(node: u64, out: Out<u64>, count: Out<usize>) -> u32 {
    static E: Entry = Entry::new("cuGraphNodeGetDependencies");
    neighbours(&E, node, true, out, Out::none(), count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetDependencies_v2(
    node: u64,
    out: Out<u64>,
    data: Out<EdgeData>,
    count: Out<usize>,
) -> u32 {
    static E: Entry = Entry::new("cuGraphNodeGetDependencies_v2");
    neighbours(&E, node, true, out, data, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetDependentNodes(node: u64, out: Out<u64>, count: Out<usize>) -> u32 {
    static E: Entry = Entry::new("cuGraphNodeGetDependentNodes");
    neighbours(&E, node, false, out, Out::none(), count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetDependentNodes_v2(
    node: u64,
    out: Out<u64>,
    data: Out<EdgeData>,
    count: Out<usize>,
) -> u32 {
    static E: Entry = Entry::new("cuGraphNodeGetDependentNodes_v2");
    neighbours(&E, node, false, out, data, count)
}

fn add_dependencies(
    entry: &'static Entry,
    graph: u64,
    from: In<u64>,
    to: In<u64>,
    data: In<EdgeData>,
    count: usize,
) -> Code {
    call(entry, [graph, from.address(), to.address(), count as u64], |session| {
        let (from, to) = (from.list(count)?, to.list(count)?);
        plain_edges(data, count)?;
        session.add_dependencies(graph, &from, &to)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddDependencies(graph: u64, from: In<u64>, to: In<u64>, count: usize) -> u32 {
    static E: Entry = Entry::new("cuGraphAddDependencies");
    add_dependencies(&E, graph, from, to, In::none(), count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddDependencies_v2(
    graph: u64,
    from: In<u64>,
    to: In<u64>,
    data: In<EdgeData>,
    count: usize,
) -> u32 {
    static E: Entry = Entry::new("cuGraphAddDependencies_v2");
    add_dependencies(&E, graph, from, to, data, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphInstantiateWithFlags(exec: Out<u64>, graph: u64, flags: u64) -> u32 {
    static E: Entry = Entry::guarded("cuGraphInstantiateWithFlags");
    call(&E, [exec.address(), graph, flags], |session| {
        exec.check()?;
        if flags & UPLOAD != 0 {
            return Err(codes::INVALID_VALUE);
        }
        let handle = session.instantiate(graph, flags).map_err(|(code, _)| code)?;
        exec.put(handle)
    })
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InstantiateParams {
    flags: u64,
    upload_stream: u64,
    error_node: u64,
    result: u32,
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphInstantiateWithParams(
    exec: Out<u64>,
    graph: u64,
    params: Out<InstantiateParams>,
) -> u32 {
    static E: Entry = Entry::guarded("cuGraphInstantiateWithParams");
    call(&E, [exec.address(), graph, params.address()], |session| {
        exec.check()?;
        let asked = params.get()?;
        match session.instantiate(graph, asked.flags) {
            Ok(handle) => {
                params.put(InstantiateParams { error_node: 0, result: INSTANTIATED, ..asked })?;
                if asked.flags & UPLOAD != 0 {
                    let number = session.stream(asked.upload_stream)?;
                    session.outside_captures(number)?;
                    session.upload(handle, number)?;
                }
                exec.put(handle)
            }
            Err((code, result)) => {
                params.put(InstantiateParams { error_node: 0, result, ..asked })?;
                Err(code)
            }
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(exec: u64) -> u32 {
    static E: Entry = Entry::guarded("cuGraphExecDestroy");
    call(&E, [exec], |session| session.destroy_executable(exec))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecGetFlags(exec: u64, flags: Out<u64>) -> u32 {
    static E: Entry = Entry::new("cuGraphExecGetFlags");
    call(&E, [exec, flags.address()], |session| {
        let value = session.executable(exec)?.1.flags;
        flags.put(value)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecUpdate_v2() -> u32 {
    static E: Entry = Entry::new("cuGraphExecUpdate_v2");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphUpload(exec: u64, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuGraphUpload");
    call(&E, [exec, stream], |session| {
        let number = session.stream(stream)?;
        session.outside_captures(number)?;
        session.upload(exec, number)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(exec: u64, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuGraphLaunch");
    call(&E, [exec, stream], |session| {
        let number = session.stream(stream)?;
        session.outside_captures(number)?;
        session.launch(exec, number)
    })
}

/// Writes the graph in the language of Graphviz: enough to see its shape.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDebugDotPrint(graph: u64, path: In<u8>, flags: u32) -> u32 {
    static E: Entry = Entry::new("cuGraphDebugDotPrint");
    call(&E, [graph, path.address(), u64::from(flags)], |session| {
        let path = path.text()?;
        let mut text = "digraph dot {\n".to_owned();
        for node in &session.graph(graph)?.nodes {
            let kind = session.node(*node)?.node.kind();
            text.push_str(&format!("\"{node:#x}\" [label=\"{node:#x} type {kind}\"];\n"));
        }
        for (from, to) in session.edges(graph)? {
            text.push_str(&format!("\"{from:#x}\" -> \"{to:#x}\";\n"));
        }
        text.push_str("}\n");
        std::fs::write(path, text).map_err(|_| codes::OPERATING_SYSTEM)
    })
}

/// `CUgraphMem_attribute`.
const USED_CURRENT: u32 = 0;
const USED_HIGH: u32 = 1;
const RESERVED_CURRENT: u32 = 2;
const RESERVED_HIGH: u32 = 3;

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetGraphMemAttribute(device: i32, which: u32, value: Out<u64>) -> u32 {
    static E: Entry = Entry::new("cuDeviceGetGraphMemAttribute");
    call(&E, [device as u64, u64::from(which), value.address()], |session| {
        value.check()?;
        let usage = session.graph_memory.usage(session.ordinal(device)?);
        value.put(bytes(match which {
            USED_CURRENT => usage.used,
            USED_HIGH => usage.used_high,
            RESERVED_CURRENT => usage.reserved,
            RESERVED_HIGH => usage.reserved_high,
            _ => return Err(codes::INVALID_VALUE),
        }))
    })
}

/// High marks alone can be set, and only to what there is now, by zero.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceSetGraphMemAttribute(device: i32, which: u32, value: In<u64>) -> u32 {
    static E: Entry = Entry::new("cuDeviceSetGraphMemAttribute");
    call(&E, [device as u64, u64::from(which), value.address()], |session| {
        let device = session.ordinal(device)?;
        if value.get()? != 0 || !matches!(which, USED_HIGH | RESERVED_HIGH) {
            return Err(codes::INVALID_VALUE);
        }
        session.graph_memory.reset_high(device, which == RESERVED_HIGH);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGraphMemTrim(device: i32) -> u32 {
    static E: Entry = Entry::new("cuDeviceGraphMemTrim");
    call(&E, [device as u64], |session| {
        let device = session.ordinal(device)?;
        session.trim_graph_memory(device);
        Ok(())
    })
}

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which has to be given.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`.
const MOVE: u32 = 1;

#[unsafe(no_mangle)]
pub extern "C" fn cuUserObjectCreate(
    object: Out<u64>,
    data: u64,
    destroy: Option<HostFunction>,
    references: u32,
    flags: u32,
) -> u32 {
    static E: Entry = Entry::new("cuUserObjectCreate");
    let args = [object.address(), data, destroy.map_or(0, |destroy| destroy as usize as u64)];
    call(&E, args, |session| {
        object.check()?;
        let destroy = destroy.ok_or(codes::INVALID_VALUE)?;
        if references == 0 || flags != NO_DESTRUCTOR_SYNC {
            return Err(codes::INVALID_VALUE);
        }
        let handle = session.create_object(data, destroy, references)?;
        object.put(handle)
    })
}

/// # Errors
/// Invalid value for no references.
fn some(count: u32) -> Result<u64, Code> {
    if count == 0 { Err(codes::INVALID_VALUE) } else { Ok(u64::from(count)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuUserObjectRetain(object: u64, count: u32) -> u32 {
    static E: Entry = Entry::new("cuUserObjectRetain");
    call(&E, [object, u64::from(count)], |session| session.retain_object(object, some(count)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuUserObjectRelease(object: u64, count: u32) -> u32 {
    static E: Entry = Entry::new("cuUserObjectRelease");
    call(&E, [object, u64::from(count)], |session| session.release_object(object, some(count)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32) -> u32 {
    static E: Entry = Entry::new("cuGraphRetainUserObject");
    call(&E, [graph, object, u64::from(count), u64::from(flags)], |session| {
        let count = some(count)?;
        session.graph(graph)?;
        if flags & !MOVE != 0 || session.user_objects.get(object).is_none() {
            return Err(codes::INVALID_VALUE);
        }
        // Moved references are the caller's, who has them no more.
        if flags & MOVE == 0 {
            session.retain_object(object, count)?;
        }
        let graph = session.graphs.get_mut(graph).ok_or(codes::INVALID_VALUE)?;
        *graph.objects.entry(object).or_default() += count;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphReleaseUserObject(graph: u64, object: u64, count: u32) -> u32 {
    static E: Entry = Entry::new("cuGraphReleaseUserObject");
    call(&E, [graph, object, u64::from(count)], |session| {
        let count = some(count)?;
        let objects = &mut session.graphs.get_mut(graph).ok_or(codes::INVALID_VALUE)?.objects;
        let held = objects.remove(&object).unwrap_or(0);
        if held > count {
            objects.insert(object, held - count);
        }
        // The real driver takes the caller's word, and others lose their references then.
        if held < count {
            session.violation(format!("graph {graph:#x} releases {count} references, and has {held}"));
        }
        session.release_object(object, count)
    })
}
