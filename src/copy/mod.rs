//! Filling and copying ranges of bytes, wherever they live.

mod end;
mod fill;
#[allow(dead_code)] // until copies go by it
mod plan;

pub use fill::{Runs, fill, fill_runs, fill_with, read_pattern};

use crate::alloc;
use crate::capture::{self, Graph};
use crate::device::Device;
use crate::driver::Driver;
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::stream::{self, Stream};
use end::{End, Reach};
use fill::keep_pattern;
use std::sync::Arc;

/// After work was put on a stream that was not captured: another thread may have begun a capture there meanwhile. What may be a
/// part of its graph is kept by it, and the call is told.
#[inline]
fn settle_begun(
    stream: &Entered<Stream>,
    before: u64,
    used: &[&End],
    read: Option<&Arc<Vec<u8>>>,
) -> Result<()> {
    if !stream::began_since(before) {
        return Ok(());
    }
    let meanwhile = capture::began_meanwhile(stream, before);
    for graph in meanwhile.graphs {
        for end in used.iter().filter(|end| end.block.is_some()) {
            // One that its caller freed during the call is the caller's fault.
            let _ = alloc::record_use_by(end.address, &graph);
        }
        if let Some(bytes) = read {
            keep_pattern(bytes, &graph);
        }
    }
    if meanwhile.is_refused { Err(capture::fell_into_another(stream)) } else { Ok(()) }
}

/// Copies `size` bytes. Between host memory it has happened when this returns; else it happens in the order of
/// the stream: the one given, else the current one of the destination's GPU, else of the source's; a GPU that only
/// lends its name to managed memory comes last.
///
/// On a stream that is captured it is recorded, and happens in every run of the graph, which is given.
pub fn copy(
    dest: u64,
    src: u64,
    size: u64,
    stream: Option<&Entered<Stream>>,
) -> Result<Option<Entered<Graph>>> {
    if size == 0 {
        return Ok(None);
    }
    let dest = End::find(dest, size, "the destination")?;
    let src = End::find(src, size, "the source")?;
    // Every GPU reaches managed memory, so the other end's does it, which alone is sure to reach its own memory.
    let own = |end: &End| end.gpu.filter(|_| end.reach != Reach::Managed);
    let home = own(&dest).or(own(&src)).or(dest.gpu).or(src.gpu);
    let Some(home) = home else {
        if let Some(stream) = stream.filter(|s| s.device().is_cuda()) {
            fail!(
                InvalidArgument,
                "a copy from host to host runs at once and not on a stream of \"{}\"; pass no stream, after synchronising it",
                stream.device().alias()
            );
        }
        copy_host(dest.address, src.address, size);
        return Ok(None);
    };
    let mut current = None;
    let stream = take_stream(stream, home, &mut current)?;
    let device = stream.device();
    let managed = dest.reach == Reach::Managed || src.reach == Reach::Managed;
    let is_at_home = |gpu: &'static Device| gpu.ordinal() == device.ordinal();
    if !managed && !dest.gpu.is_some_and(is_at_home) && !src.gpu.is_some_and(is_at_home) {
        fail!(
            InvalidArgument,
            "neither end of the copy is memory of \"{}\", whose stream was given; pass a stream of \"{}\", or none",
            device.alias(),
            home.alias()
        );
    }
    let driver = device.require_cuda("a copy")?;
    let _context = device.enter(driver)?;
    // May call back, so it comes before the question.
    alloc::poll();
    let begun = stream::begun();
    let capturing = stream.is_capturing(driver).map_err(|f| device.error(driver, f))?;
    let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
    let graph = if capturing { capture::of_stream(driver, stream)? } else { None };
    // Before: a call that fails half-way has used it all the same.
    dest.note_use(stream, graph.as_ref())?;
    src.note_use(stream, graph.as_ref())?;
    let copied = match (dest.gpu, src.gpu) {
        (Some(to), Some(from)) if !std::ptr::eq(to, from) && needs_peer_copy(dest.reach, src.reach) => {
            if capturing {
                return record_peer_copy(driver, (&dest, to), (&src, from), size, stream).map(|()| graph);
            }
            let ends = ((dest.address, to.context(driver)?), (src.address, from.context(driver)?));
            driver.copy_peer(ends.0, ends.1, size as usize, stream.native())
        }
        _ => driver.copy(dest.address, src.address, size as usize, stream.native()),
    };
    let settled = if graph.is_none() { settle_begun(stream, begun, &[&dest, &src], None) } else { Ok(()) };
    settled?;
    copied.map_err(|f| device.error(driver, f).context("a copy"))?;
    Ok(graph)
}

/// Records a copy between two GPUs. The driver has no peer copy in a capture, only the plain one, which the GPU of the
/// current context makes: that has to reach both ends, so it is the destination's or else the source's. A refusal leaves
/// the capture alone.
#[cold]
fn record_peer_copy(
    driver: &'static Driver,
    (dest, to): (&End, &'static Device),
    (src, from): (&End, &'static Device),
    size: u64,
    stream: &Entered<Stream>,
) -> Result<()> {
    for device in [to, from] {
        let _context = device.enter(driver)?;
        match driver.copy(dest.address, src.address, size as usize, stream.native()) {
            Ok(()) => return Ok(()),
            Err(f) if f.is_invalid_value() => {}
            Err(f) => return Err(stream.device().error(driver, f).context("a copy")),
        }
    }
    fail!(
        AccessDenied,
        "a copy of {size} bytes from \"{}\" to \"{}\" cannot be recorded: both ends are pool memory, and neither GPU may touch the other's pool; either let one before the capture begins (cuMemPoolSetAccess), or allocate one end before it with WARP_MEMORY_CUDA_DEVICE; the capture goes on",
        from.alias(),
        to.alias()
    )
}

/// Between two GPUs: whether the copy must name both contexts. What a pool has given to nobody else is out of a
/// plain copy's reach; managed memory is at home on every GPU.
fn needs_peer_copy(dest: Reach, src: Reach) -> bool {
    let managed = dest == Reach::Managed || src == Reach::Managed;
    !managed || dest == Reach::Granted || src == Reach::Granted
}

fn copy_host(dest: u64, src: u64, size: u64) {
    // SAFETY: both ranges are host memory: ours and inside their blocks, or the caller's word for it. They may
    // overlap.
    unsafe {
        std::ptr::copy(
            std::ptr::with_exposed_provenance::<u8>(src as usize),
            std::ptr::with_exposed_provenance_mut::<u8>(dest as usize),
            size as usize,
        );
    }
}

fn take_stream<'a>(
    asked: Option<&'a Entered<Stream>>,
    home: &'static Device,
    current: &'a mut Option<Entered<Stream>>,
) -> Result<&'a Entered<Stream>> {
    match asked {
        Some(stream) if stream.device().is_cuda() => Ok(stream),
        Some(_) => fail!(
            InvalidArgument,
            "memory of \"{}\" is not reached by a stream of the CPU; pass a stream of that device, or none",
            home.alias()
        ),
        None => Ok(current.insert(stream::current(home)?)),
    }
}
