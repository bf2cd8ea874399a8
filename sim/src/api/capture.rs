//! Stream captures.
use crate::call::{Entry, In, Out, call};
use crate::capture::{ACTIVE, Info};
use crate::codes::{self, Code};

/// `CUgraphEdgeData` of the only kind there is: all of one node before all of the other.
pub type EdgeData = [u8; 8];

/// Refuses order between parts of nodes, which only kernels have.
pub fn plain_edges(edges: In<EdgeData>, count: usize) -> Result<(), Code> {
    if edges.address() == 0 {
        return Ok(());
    }
    let plain = edges.list(count)?.iter().all(|edge| *edge == EdgeData::default());
    if plain { Ok(()) } else { Err(codes::INVALID_VALUE) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(stream: u64, mode: u32) -> u32 {
    static E: Entry = Entry::new("cuStreamBeginCapture_v2");
    call(&E, [stream, u64::from(mode)], |session| {
        let number = session.stream(stream)?;
        session.begin_capture(number, mode, None, Vec::new())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCaptureToGraph(
    stream: u64,
    graph: u64,
    dependencies: In<u64>,
    edges: In<EdgeData>,
    count: usize,
    mode: u32,
) -> u32 {
    static E: Entry = Entry::new("cuStreamBeginCaptureToGraph");
    call(&E, [stream, graph, dependencies.address(), count as u64, u64::from(mode)], |session| {
        let number = session.stream(stream)?;
        let after = dependencies.list(count)?;
        plain_edges(edges, count)?;
        session.all_of_graph(graph, &after)?;
        session.begin_capture(number, mode, Some(graph), after)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamEndCapture(stream: u64, graph: Out<u64>) -> u32 {
    static E: Entry = Entry::new("cuStreamEndCapture");
    call(&E, [stream, graph.address()], |session| {
        graph.put_if(0);
        let number = session.stream(stream)?;
        let made = session.end_capture(number)?;
        graph.put_if(made);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamIsCapturing(stream: u64, status: Out<u32>) -> u32 {
    static E: Entry = Entry::new("cuStreamIsCapturing");
    call(&E, [stream, status.address()], |session| {
        let number = session.stream(stream)?;
        session.ask_stream(number)?;
        status.put(session.capture_status(number))
    })
}

struct Asked {
    stream: u64,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<u64>,
    nodes: Out<*const u64>,
    edges: Out<u64>,
    count: Out<usize>,
}

/// Of a stream that does not capture, or captures in vain, nothing but the status is written.
fn info(entry: &'static Entry, asked: &Asked) -> Code {
    call(entry, [asked.stream, asked.status.address(), asked.id.address()], |session| {
        let number = session.stream(asked.stream)?;
        session.ask_stream(number)?;
        let status = session.capture_status(number);
        asked.status.put(status)?;
        if status == ACTIVE
            && let Some(Info { id, graph, nodes, count }) = session.capture_info(number)
        {
            asked.id.put_if(id);
            asked.graph.put_if(graph);
            asked.nodes.put_if(nodes);
            asked.edges.put_if(0);
            asked.count.put_if(count);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: u64,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<u64>,
    nodes: Out<*const u64>,
    count: Out<usize>,
) -> u32 {
    static E: Entry = Entry::new("cuStreamGetCaptureInfo_v2");
    let mut edges = 0;
    info(&E, &Asked { stream, status, id, graph, nodes, edges: Out::to(&mut edges), count })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetCaptureInfo_v3(
    stream: u64,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<u64>,
    nodes: Out<*const u64>,
    edges: Out<u64>,
    count: Out<usize>,
) -> u32 {
    static E: Entry = Entry::new("cuStreamGetCaptureInfo_v3");
    info(&E, &Asked { stream, status, id, graph, nodes, edges, count })
}

/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`; 0 adds.
const SET: u32 = 1;

fn update(
    entry: &'static Entry,
    stream: u64,
    dependencies: In<u64>,
    edges: In<EdgeData>,
    count: usize,
    flags: u32,
) -> Code {
    call(entry, [stream, dependencies.address(), count as u64, u64::from(flags)], |session| {
        let number = session.stream(stream)?;
        if flags > SET {
            return Err(codes::INVALID_VALUE);
        }
        let (graph, _) = session.capture_tail(number)?;
        let nodes = dependencies.list(count)?;
        plain_edges(edges, count)?;
        session.all_of_graph(graph, &nodes)?;
        session.set_tail(number, &nodes, flags != SET);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamUpdateCaptureDependencies(
    stream: u64,
    dependencies: In<u64>,
    count: usize,
    flags: u32,
) -> u32 {
    static E: Entry = Entry::new("cuStreamUpdateCaptureDependencies");
    update(&E, stream, dependencies, In::none(), count, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamUpdateCaptureDependencies_v2(
    stream: u64,
    dependencies: In<u64>,
    edges: In<EdgeData>,
    count: usize,
    flags: u32,
) -> u32 {
    static E: Entry = Entry::new("cuStreamUpdateCaptureDependencies_v2");
    update(&E, stream, dependencies, edges, count, flags)
}
