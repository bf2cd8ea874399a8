//! Graphs at work: launched, keeping what they use, and the memory that they hold on a GPU.
#![forbid(unsafe_code)]

use crate::alloc;
use crate::capture::{self, Graph};
use crate::device::Device;
use crate::driver::{Driver, GraphMemory, RawGraph, RawGraphExec};
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::runtime;
use crate::stream::{self, Stream};

/// Runs the graph in the order of the stream; on a stream that is captured it becomes a part of what is captured. One of the CPU has
/// run when this returns.
pub fn launch(graph: &Entered<Graph>, stream: &Entered<Stream>) -> Result<()> {
    let device = graph.device();
    if !std::ptr::eq(stream.device(), device) {
        fail!(
            InvalidArgument,
            "the graph {} was captured on \"{}\" and cannot be launched on the stream (id {}) of \"{}\"; pass a stream of its own device",
            graph.id(),
            device.alias(),
            stream.id(),
            stream.device().alias()
        );
    }
    if !device.is_cuda() {
        return match capture::of_cpu()? {
            Some(outer) => capture::record_child(&outer, graph),
            None => graph.run(),
        };
    }
    let driver = device.require_cuda("a launch")?;
    let _context = device.enter(driver)?;
    // May call back, so it comes before the question.
    alloc::poll();
    let begun = stream::begun();
    if stream.is_capturing(driver).map_err(|f| device.error(driver, f))? {
        return record_launch(driver, graph, stream);
    }
    let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
    let first = match graph.launch(driver, stream) {
        // The memory of a graph is made when it is launched.
        Err(f) if f.is_out_of_memory() => {
            alloc::make_room(driver, device, f, || graph.launch(driver, stream))?
        }
        launched => launched.map_err(|f| device.error(driver, f).context("the launch of a graph"))?,
    };
    match first {
        // Another thread's launch that is told otherwise comes after this.
        Some(true) => {
            graph.blocks().into_iter().for_each(alloc::born);
            graph.has_begun();
        }
        Some(false) => {}
        None => fail!(
            InvalidArgument,
            "the graph {} is not one to be launched here: its capture goes on, or other code has it",
            graph.id()
        ),
    }
    if stream::began_since(begun) {
        let meanwhile = capture::began_meanwhile(stream, begun);
        meanwhile.graphs.iter().for_each(|outer| capture::end_after(graph, outer));
        if meanwhile.is_refused {
            return Err(capture::fell_into_another(stream));
        }
    }
    Ok(())
}

/// A graph inside another one. It is copied there, so either may be released first.
#[cold]
fn record_launch(driver: &'static Driver, graph: &Entered<Graph>, stream: &Entered<Stream>) -> Result<()> {
    let device = graph.device();
    let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
    let Some(outer) = capture::of_stream(driver, stream)? else {
        fail!(IllegalInCapture, "the capture of the stream (id {}) ended meanwhile", stream.id());
    };
    let refused = || {
        crate::error::error!(
            IllegalInCapture,
            "the graph {} allocates memory and cannot be a part of the capture {}, which goes on; capture it with memory that is allocated before, or launch it after the capture",
            graph.id(),
            outer.id()
        )
    };
    if graph.has_allocated() {
        return Err(refused());
    }
    capture::share(driver, graph)?;
    match outer.add_child(driver, stream.native(), graph) {
        Ok(true) => Ok(()),
        Ok(false) => fail!(
            InvalidArgument,
            "the graph {} cannot be a part of the capture {}: it is not whole, or another thread captures",
            graph.id(),
            outer.id()
        ),
        Err(f) if f.is_not_supported() => Err(refused().with_driver_code(f.code)),
        Err(f) => Err(device.error(driver, f).context("the launch of a graph in a capture")),
    }
}

/// The driver's graph and what is launched, for other code to look at and use.
pub fn natives(graph: &Entered<Graph>) -> Result<(RawGraph, RawGraphExec)> {
    if graph.device().is_cuda()
        && !graph.device().is_lost()
        && let Ok(driver) = runtime::driver()
    {
        let device = graph.device();
        let _entered = device.enter_relaxed(driver)?;
        capture::share(driver, graph)?;
    }
    Ok(graph.natives())
}

/// Has the graph keep the block that the address lies in until no run of it can use it.
pub fn retain(graph: &Entered<Graph>, address: u64) -> Result<()> {
    alloc::record_use_by(address, graph)
}

/// What graphs hold of a GPU's memory.
pub fn memory(device: &'static Device) -> Result<GraphMemory> {
    with_driver(device, |driver| driver.graph_memory(device.facts().device))
}

/// Gives back what graphs hold of a GPU's memory and no run uses.
pub fn trim_memory(device: &'static Device) -> Result<()> {
    alloc::look_at_all();
    with_driver(device, |driver| driver.trim_graph_memory(device.facts().device))
}

/// Brings the high marks down to what is so now.
pub fn reset_memory_high(device: &'static Device) -> Result<()> {
    with_driver(device, |driver| driver.reset_graph_memory_high(device.facts().device))
}

fn with_driver<R>(
    device: &'static Device,
    ask: impl FnOnce(&'static Driver) -> std::result::Result<R, crate::driver::Failure>,
) -> Result<R> {
    let driver = device.require_cuda("the memory of graphs")?;
    let _entered = device.enter_relaxed(driver)?;
    ask(driver).map_err(|f| device.error(driver, f))
}
