//! Filling and copying ranges of bytes, wherever they live.

use crate::alloc::{self, Block, Kind};
use crate::capture::{self, Graph, Keep};
use crate::device::{self, Device};
use crate::driver::{Driver, FillValue, MemoryClass};
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::runtime;
use crate::stream::{self, Stream};
use std::sync::Arc;

/// One end of a copy.
struct End {
    address: u64,
    /// The GPU whose memory it is, managed memory's home included; `None` for host memory.
    gpu: Option<&'static Device>,
    reach: Reach,
    /// The block of this library that it lies in.
    block: Option<Block>,
}

/// From where the driver's plain copy reaches memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// From the context of any GPU, by whatever way the driver finds: host, plain device and managed memory.
    Anywhere,
    /// As above, and every GPU has it as its own.
    Managed,
    /// Only from where it may be accessed: pools and mappings.
    Granted,
}

impl End {
    /// What the address is, and that the range stays in its block as far as that is known.
    fn find(address: u64, size: u64, what: &str) -> Result<End> {
        if address == 0 {
            fail!(InvalidArgument, "{what} is NULL, and {size} bytes are not nothing");
        }
        if size > i64::MAX as u64 || address.checked_add(size).is_none() {
            fail!(SizeOverflow, "{size} bytes at {address:#x} pass the end of the address space");
        }
        if let Some(block) = alloc::find(address) {
            let rest = block.rest(address);
            if size > rest {
                fail!(
                    InvalidArgument,
                    "{what}: {size} bytes at {address:#x} pass the end of the block of {} bytes at {:#x} by {}",
                    block.size(),
                    block.base(),
                    size - rest
                );
            }
            let gpu = block.device().filter(|d| d.is_cuda());
            // Page-locked pages are gone as well, and touching them would be a fault.
            if let Some(lost) = block.lost() {
                return Err(lost.lost_error());
            }
            let reach = match block.kind() {
                Kind::CudaManaged => Reach::Managed,
                Kind::CudaMempool => Reach::Granted,
                _ => Reach::Anywhere,
            };
            return Ok(End { address, gpu, reach, block: Some(block) });
        }
        End::find_foreign(address, size, what)
    }

    #[cold]
    fn find_foreign(address: u64, size: u64, what: &str) -> Result<End> {
        let host = End { address, gpu: None, reach: Reach::Anywhere, block: None };
        let Ok(driver) = runtime::driver() else { return Ok(host) };
        let facts = driver.pointer_facts(address).map_err(|f| driver.error(f))?;
        if matches!(facts.class, MemoryClass::Unknown | MemoryClass::Host) {
            // Else the CPU would touch it, and fault.
            if alloc::was_freed(address) {
                fail!(UnknownPointer, "{what} at {address:#x} was freed before; use it before it is freed");
            }
            return Ok(host);
        }
        if facts.size != 0 && address - facts.base + size > facts.size {
            fail!(
                InvalidArgument,
                "{what}: {size} bytes at {address:#x} pass the end of the driver's block of {} bytes at {:#x}",
                facts.size,
                facts.base
            );
        }
        let gpu = device::of_context(driver, facts.context).or_else(|| device::primary_of(facts.ordinal));
        let Some(gpu) = gpu else {
            fail!(
                NoSuchDevice,
                "{what} at {address:#x} is memory of GPU {}, which is not in the table",
                facts.ordinal
            )
        };
        let reach = match facts.class {
            MemoryClass::Managed => Reach::Managed,
            MemoryClass::Pool | MemoryClass::Mapping | MemoryClass::Graph => Reach::Granted,
            _ => Reach::Anywhere,
        };
        Ok(End { address, gpu: Some(gpu), reach, block: None })
    }

    /// Notes that work on the stream uses it, or runs of the graph that the stream is captured into. An error when it does
    /// not exist yet.
    fn note_use(&self, stream: &Entered<Stream>, graph: Option<&Entered<Graph>>) -> Result<()> {
        let Some(block) = self.block else { return Ok(()) };
        block.require_existing(graph)?;
        match graph {
            Some(graph) => alloc::record_use_by(self.address, graph),
            None => {
                alloc::record_use(self.address, stream);
                Ok(())
            }
        }
    }
}

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

/// Fills `size` bytes with repetitions of a pattern of the caller's, given by its address and length, which divides the
/// size. Host memory is filled when this returns; device memory, managed memory included, in the order of the stream.
pub fn fill(
    dest: u64,
    size: u64,
    pattern: (u64, u64),
    stream: Option<&Entered<Stream>>,
) -> Result<Option<Entered<Graph>>> {
    let (source, length) = pattern;
    if length == 0 || !size.is_multiple_of(length) {
        fail!(InvalidArgument, "{size} bytes are no whole number of patterns of {length} bytes");
    }
    if size == 0 {
        return Ok(None);
    }
    let dest = End::find(dest, size, FILLED)?;
    fill_end(dest, Runs::whole(size), &read_pattern(source, length)?, stream)
}

/// As `fill`, with a pattern that is in no memory of a caller's.
pub fn fill_with(
    dest: u64,
    size: u64,
    pattern: &[u8],
    stream: Option<&Entered<Stream>>,
) -> Result<Option<Entered<Graph>>> {
    fill_runs(dest, size, Runs::whole(size), pattern, stream)
}

/// Equal stretches of a range of memory.
pub struct Runs<I> {
    /// Bytes of each.
    pub size: u64,
    pub count: u64,
    /// Whether no byte is in two of them.
    pub disjoint: bool,
    /// Where each begins, from the start of the range.
    pub offsets: I,
}

impl Runs<std::iter::Once<u64>> {
    fn whole(size: u64) -> Self {
        Runs { size, count: 1, disjoint: true, offsets: std::iter::once(0) }
    }
}

const FILLED: &str = "the memory to fill";

/// As many runs as are filled on a GPU by one call: each is a command of its own.
const MOST_RUNS_ON_A_GPU: u64 = 1 << 16;

/// Fills runs inside the `span` bytes from `dest` on, each with repetitions of `pattern`, whose length divides
/// their size.
pub fn fill_runs(
    dest: u64,
    span: u64,
    runs: Runs<impl Iterator<Item = u64>>,
    pattern: &[u8],
    stream: Option<&Entered<Stream>>,
) -> Result<Option<Entered<Graph>>> {
    if pattern.is_empty() || !runs.size.is_multiple_of(pattern.len() as u64) {
        fail!(
            InvalidArgument,
            "{} bytes are no whole number of patterns of {} bytes",
            runs.size,
            pattern.len()
        );
    }
    if span == 0 {
        return Ok(None);
    }
    fill_end(End::find(dest, span, FILLED)?, runs, pattern, stream)
}

fn fill_end(
    dest: End,
    runs: Runs<impl Iterator<Item = u64>>,
    pattern: &[u8],
    stream: Option<&Entered<Stream>>,
) -> Result<Option<Entered<Graph>>> {
    let Some(home) = dest.gpu else {
        if let Some(stream) = stream.filter(|s| s.device().is_cuda()) {
            fail!(
                InvalidArgument,
                "host memory is filled at once and not on a stream of \"{}\"; pass no stream, after synchronising it",
                stream.device().alias()
            );
        }
        for offset in runs.offsets {
            fill_host(dest.address + offset, runs.size, pattern);
        }
        return Ok(None);
    };
    if runs.count > MOST_RUNS_ON_A_GPU {
        fail!(
            NotSupported,
            "a fill of {} separate runs of {} bytes on \"{}\", and at most {MOST_RUNS_ON_A_GPU} are filled by one call; fill memory without gaps, or fewer rows at a time",
            runs.count,
            runs.size,
            home.alias()
        );
    }
    let mut current = None;
    let stream = take_stream(stream, home, &mut current)?;
    let device = stream.device();
    let driver = device.require_cuda("a fill")?;
    let _context = device.enter(driver)?;
    alloc::poll();
    let begun = stream::begun();
    let capturing = stream.is_capturing(driver).map_err(|f| device.error(driver, f))?;
    let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
    let graph = if capturing { capture::of_stream(driver, stream)? } else { None };
    // Before: a fill that fails half-way has used it all the same.
    dest.note_use(stream, graph.as_ref())?;
    // The driver reads one that it does not set by itself: in each run of a graph, which the fill may be a part of unseen.
    let mut offsets = runs.offsets.peekable();
    let is_set =
        runs.count == 1 && offsets.peek().is_some_and(|o| simple(dest.address + o, pattern).is_some());
    let runs = Runs { size: runs.size, count: runs.count, disjoint: runs.disjoint, offsets };
    let lasting = if is_set { None } else { Some(copy_of(pattern)?) };
    if let Some((bytes, graph)) = lasting.as_ref().zip(graph.as_ref()) {
        keep_pattern(bytes, graph);
    }
    let pattern = lasting.as_ref().map_or(pattern, |bytes| bytes.as_slice());
    let filled = fill_device_runs(driver, dest.address, runs, pattern, stream);
    let settled =
        if graph.is_none() { settle_begun(stream, begun, &[&dest], lasting.as_ref()) } else { Ok(()) };
    settled?;
    filled.map_err(|f| device.error(driver, f).context("a fill"))?;
    Ok(graph)
}

/// Bytes that runs of a graph read.
struct Lasting(Arc<Vec<u8>>);

impl Keep for Lasting {
    fn give_back(self: Box<Self>) {
        drop(self.0);
    }

    fn forget(self: Box<Self>) {
        self.give_back();
    }
}

/// Has the pattern last as long as the graph, since every run of it reads it anew.
fn keep_pattern(bytes: &Arc<Vec<u8>>, graph: &Entered<Graph>) {
    // A graph that is over already has no run that would read it.
    drop(graph.keep(Box::new(Lasting(Arc::clone(bytes)))));
}

/// Room for the bytes of a pattern.
fn room_for(length: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(length).is_err() {
        fail!(OutOfMemory, "no host memory for a pattern of {length} bytes; fill with a shorter one");
    }
    Ok(bytes)
}

fn copy_of(pattern: &[u8]) -> Result<Arc<Vec<u8>>> {
    let mut bytes = room_for(pattern.len())?;
    bytes.extend_from_slice(pattern);
    Ok(Arc::new(bytes))
}

fn fill_device_runs(
    driver: &Driver,
    dest: u64,
    runs: Runs<impl Iterator<Item = u64>>,
    pattern: &[u8],
    stream: &Stream,
) -> std::result::Result<(), crate::driver::Failure> {
    let mut first = None;
    for offset in runs.offsets {
        let at = dest + offset;
        match first {
            // One that the driver cannot set is copied from the first, where a copy cannot meet itself.
            Some(from) if runs.disjoint && simple(at, pattern).is_none() => {
                driver.copy(at, from, runs.size as usize, stream.native())?;
            }
            _ => fill_device(driver, at, runs.size, pattern, stream)?,
        }
        first = first.or(Some(at));
    }
    Ok(())
}

/// A caller's pattern in pageable memory of our own. The caller's may lie in what is filled, or in page-locked memory, which
/// the driver would read only when its copy runs.
pub fn read_pattern(source: u64, length: u64) -> Result<Vec<u8>> {
    if let Some(block) = alloc::find(source) {
        if let Some(lost) = block.lost() {
            return Err(lost.lost_error());
        }
        if !block.kind().is_host() {
            fail!(
                InvalidArgument,
                "the pattern at {source:#x} lies in {} memory, and the host reads it: copy its bytes to the host first",
                block.kind().name()
            );
        }
        if length > block.rest(source) {
            fail!(
                InvalidArgument,
                "the pattern's {length} bytes at {source:#x} pass the end of the block of {} bytes at {:#x}",
                block.size(),
                block.base()
            );
        }
    }
    let length = length as usize;
    let mut pattern = room_for(length)?;
    // SAFETY: host memory that the caller says has that many bytes, and ours inside its block; the copy has room.
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::with_exposed_provenance::<u8>(source as usize),
            pattern.as_mut_ptr(),
            length,
        );
        pattern.set_len(length);
    }
    Ok(pattern)
}

fn fill_host(dest: u64, size: u64, pattern: &[u8]) {
    let size = size as usize;
    // SAFETY: host memory of at least `size` bytes: ours and inside its block, or the caller's word for it.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>(dest as usize), size)
    };
    if let Some(byte) = single(pattern) {
        bytes.fill(byte);
        return;
    }
    // Doubling what is there moves memory at its own speed, in pieces that stay in the cache.
    const PIECE: usize = 1 << 18;
    let whole = (PIECE / pattern.len()).max(1) * pattern.len();
    bytes[..pattern.len()].copy_from_slice(pattern);
    let mut done = pattern.len();
    while done < size {
        let step = done.min(whole).min(size - done);
        bytes.copy_within(..step, done);
        done += step;
    }
}

/// The byte that the whole pattern consists of.
fn single(pattern: &[u8]) -> Option<u8> {
    pattern.iter().all(|byte| *byte == pattern[0]).then_some(pattern[0])
}

/// The pattern as something the driver can set by itself: its shortest period of 1, 2 or 4 bytes, if the
/// address suits it.
fn simple(dest: u64, pattern: &[u8]) -> Option<FillValue> {
    if let Some(byte) = single(pattern) {
        return Some(FillValue::U8(byte));
    }
    let period =
        |n: usize| pattern.len().is_multiple_of(n) && pattern.chunks(n).all(|chunk| *chunk == pattern[..n]);
    if period(2) && dest.is_multiple_of(2) {
        return Some(FillValue::U16(u16::from_ne_bytes([pattern[0], pattern[1]])));
    }
    if period(4) && dest.is_multiple_of(4) {
        return Some(FillValue::U32(u32::from_ne_bytes([pattern[0], pattern[1], pattern[2], pattern[3]])));
    }
    None
}

fn fill_device(
    driver: &Driver,
    dest: u64,
    size: u64,
    pattern: &[u8],
    stream: &Stream,
) -> std::result::Result<(), crate::driver::Failure> {
    if let Some(value) = simple(dest, pattern) {
        let width = match value {
            FillValue::U8(_) => 1,
            FillValue::U16(_) => 2,
            FillValue::U32(_) => 4,
        };
        return driver.fill(dest, value, (size / width) as usize, stream.native());
    }
    // The pattern goes over once, and doubles there. Pageable memory is read before the call returns.
    let first = pattern.len() as u64;
    driver.copy(dest, pattern.as_ptr().expose_provenance() as u64, pattern.len(), stream.native())?;
    let mut done = first;
    while done < size {
        let step = done.min(size - done);
        driver.copy(dest + done, dest, step as usize, stream.native())?;
        done += step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_set_by_the_driver_only_where_its_period_and_the_address_allow() {
        assert_eq!(simple(1, &[7, 7, 7]), Some(FillValue::U8(7)));
        assert_eq!(simple(2, &[1, 2]), Some(FillValue::U16(u16::from_ne_bytes([1, 2]))));
        assert_eq!(
            simple(4, &[1, 2, 3, 4, 1, 2, 3, 4]),
            Some(FillValue::U32(u32::from_ne_bytes([1, 2, 3, 4])))
        );
        assert_eq!(simple(1, &[1, 2]), None);
        assert_eq!(simple(2, &[1, 2, 3, 4]), None);
        assert_eq!(simple(4, &[1, 2, 3]), None);
        assert_eq!(simple(8, &[1, 2, 3, 4, 5, 6, 7, 8]), None);
    }

    #[test]
    fn host_fills_repeat_any_pattern_to_the_last_byte() {
        for pattern in [&[5u8][..], &[1, 2], &[1, 2, 3], &[1, 2, 3, 4, 5, 6, 7]] {
            for count in [1usize, 2, 3, 1000, 300_000] {
                let mut bytes = vec![0u8; pattern.len() * count + 1];
                fill_host(
                    bytes.as_mut_ptr().expose_provenance() as u64,
                    (pattern.len() * count) as u64,
                    pattern,
                );
                assert!(bytes[..pattern.len() * count].chunks(pattern.len()).all(|chunk| chunk == pattern));
                assert_eq!(bytes[pattern.len() * count], 0);
            }
        }
    }
}
