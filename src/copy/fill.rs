//! Filling ranges of bytes, wherever they live, with a pattern of any length.

use super::end::End;
use super::{settle_begun, take_stream};
use crate::alloc;
use crate::capture::{self, Graph, Keep};
use crate::driver::{Driver, FillValue};
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::stream::{self, Stream};
use std::sync::Arc;

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
pub(super) fn keep_pattern(bytes: &Arc<Vec<u8>>, graph: &Entered<Graph>) {
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
