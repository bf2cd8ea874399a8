//! Filling ranges of bytes, wherever they live, with a pattern of any length.

use super::end::End;
use super::items::{Items, Job, Operand};
use super::plan::{Axis, Plan, Side, Step};
use super::put::{Put, take_stream};
use super::staged::Temporary;
use super::{by_cpu, host, kernel, make, prepare, recorded, room};
use crate::alloc;
use crate::capture::{self, Graph, Keep};
use crate::driver::FillValue;
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::stream::Stream;
use smallvec::SmallVec;
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
    fill_end(dest, &Runs::whole(size), &read_pattern(source, length)?, stream)
}

/// As `fill`, with a pattern that is in no memory of a caller's.
pub fn fill_with(
    dest: u64,
    size: u64,
    pattern: &[u8],
    stream: Option<&Entered<Stream>>,
) -> Result<Option<Entered<Graph>>> {
    fill_runs(dest, size, &Runs::whole(size), pattern, stream)
}

/// Equal stretches of a range of memory, each of which is filled alike.
#[derive(Clone)]
pub struct Runs {
    /// Bytes of each.
    pub size: u64,
    /// Whether no byte is in two of them.
    pub disjoint: bool,
    /// How many along each axis, and bytes from each to the next, upwards; outermost first.
    pub axes: SmallVec<[(u64, u64); 4]>,
}

impl Runs {
    fn whole(size: u64) -> Runs {
        Runs { size, disjoint: true, axes: SmallVec::new() }
    }

    fn count(&self) -> u64 {
        self.axes.iter().map(|(extent, _)| extent).product()
    }

    /// What copies the first run to all of them.
    pub fn spread(&self, first: u64) -> Plan {
        let axis =
            |&(extent, stride): &(u64, u64)| Axis { extent, dest: Step::by(stride as i64), src: Step::by(0) };
        Plan { dest: first, src: first, row: self.size, axes: self.axes.iter().map(axis).collect() }
    }

    /// Where each begins, from the start of the range.
    fn offsets(&self) -> impl Iterator<Item = u64> {
        (0..self.count()).map(|mut number| {
            let mut offset = 0;
            for (extent, stride) in self.axes.iter().rev() {
                offset += number % extent * stride;
                number /= extent;
            }
            offset
        })
    }
}

const FILLED: &str = "the memory to fill";

/// As many runs as are filled on a GPU by one call where it cannot load a kernel: each is a command of its own.
const MOST_RUNS_WITHOUT_A_KERNEL: u64 = 1 << 16;

/// Fills runs inside the `span` bytes from `dest` on, each with repetitions of `pattern`, whose length divides
/// their size.
pub fn fill_runs(
    dest: u64,
    span: u64,
    runs: &Runs,
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
    runs: &Runs,
    pattern: &[u8],
    stream: Option<&Entered<Stream>>,
) -> Result<Option<Entered<Graph>>> {
    let Some(home) = dest.gpu else { return fill_by_cpu(&dest, runs, pattern, stream) };
    let mut current = None;
    let stream = take_stream(stream, home, &mut current)?;
    let mut put = Put::on(stream, "a fill")?;
    put.require_existing([&dest].into_iter())?;
    // The driver would refuse, in a capture only when the graph is made ready.
    if !dest.is_reached_by(put.driver, put.device())? {
        fail!(
            AccessDenied,
            "\"{}\", whose stream was given, may not touch the memory to fill, which is \"{}\"'s; pass a stream of that device, or none",
            put.device().alias(),
            home.alias()
        );
    }
    let (driver, device) = (put.driver, put.device());
    // What the driver sets in one call needs none, and the first question takes the time to load it.
    let is_plain = runs.axes.is_empty() && simple(dest.address, pattern).is_some();
    let kernel = !is_plain && {
        put.relax()?;
        kernel::is_available(driver, device)?
    };
    if runs.count() > MOST_RUNS_WITHOUT_A_KERNEL && !kernel {
        fail!(
            NotSupported,
            "a fill of {} separate runs of {} bytes on \"{}\", which cannot load a kernel: at most {MOST_RUNS_WITHOUT_A_KERNEL} are filled by one call; fill memory without gaps, or fewer rows at a time",
            runs.count(),
            runs.size,
            home.alias()
        );
    }
    put.note_use([&dest].into_iter())?;
    // What the driver reads, it reads in each run of a graph, which the fill may be a part of unseen.
    let is_read = !(simple(dest.address, pattern).is_some() || kernel && kernel::is_short(pattern.len()));
    let lasting = if is_read { Some(Arc::new(room::copy_of(pattern, NO_ROOM)?)) } else { None };
    if let Some((bytes, graph)) = lasting.as_ref().zip(put.graph.as_ref()) {
        keep_pattern(bytes, graph);
    }
    let pattern = lasting.as_ref().map_or(pattern, |bytes| bytes.as_slice());
    let native = put.stream.native();
    let filled = if runs.axes.is_empty() {
        fill_device(&put, dest.address, runs.size, pattern, kernel)
    } else if kernel {
        let spread = runs.spread(dest.address);
        // The first is what is copied. Where runs overlap, all of them hold the same.
        let start = if runs.disjoint { runs.size } else { 0 };
        fill_device(&put, dest.address, runs.size, pattern, kernel)
            .and_then(|()| kernel::run(driver, device, &spread, start..spread.size(), native))
    } else {
        runs.offsets()
            .try_for_each(|offset| fill_device(&put, dest.address + offset, runs.size, pattern, kernel))
    };
    let filled = filled.map_err(|f| put.failed(f, "a fill"));
    let settled = put.settle([&dest].into_iter(), lasting.as_ref());
    filled.and(settled)
}

/// Sets items that index arrays pick to one that is given by its bytes.
pub fn fill_items(
    dest: Operand,
    shape: &[u64],
    item: &[u8],
    stream: Option<&Entered<Stream>>,
) -> Result<Option<Entered<Graph>>> {
    let size = item.len() as u64;
    let bytes = Arc::new(room::copy_of(item, NO_ROOM)?);
    let address = bytes.as_ptr().expose_provenance() as u64;
    let steps = shape.iter().map(|_| Step::by(0)).collect();
    let src = Operand { side: Side { address, steps }, below: 0, above: size };
    let mut items = Items { shape: shape.into(), item: size, dest, src };
    let mut job = Job::of(&items)?;
    job.passes = true;
    let Some(home) = job.dest.gpu else { return by_cpu::run(&job, stream) };
    let mut current = None;
    let stream = take_stream(stream, home, &mut current)?;
    let mut put = Put::on(stream, "a fill")?;
    put.relax()?;
    put.require_existing(job.ends())?;
    // A kernel reads it where it is near.
    let near = Temporary::on(put.device(), stream, size)?;
    if let Some(graph) = &put.graph {
        keep_pattern(&bytes, graph);
    }
    put.driver
        .copy(near.address(), address, item.len(), stream.native())
        .map_err(|f| put.failed(f, "a fill of items"))?;
    items.src.side.address = near.address();
    let job = Job::of(&items)?;
    let filled = prepare(&job, &put).and_then(|route| make(&job, &put, route));
    let settled = put.settle(job.ends(), Some(&bytes));
    filled.and(settled)
}

/// At once, or in each run of the graph that this thread captures on the CPU.
fn fill_by_cpu(
    dest: &End,
    runs: &Runs,
    pattern: &[u8],
    stream: Option<&Entered<Stream>>,
) -> Result<Option<Entered<Graph>>> {
    if let Some(stream) = stream.filter(|s| s.device().is_cuda()) {
        fail!(
            InvalidArgument,
            "host memory is filled at once and not on a stream of \"{}\"; pass no stream, after synchronising it",
            stream.device().alias()
        );
    }
    if let Some(graph) = capture::of_cpu()? {
        recorded::fill(&graph, dest, runs, pattern)?;
        return Ok(Some(graph));
    }
    // SAFETY: the end was found to lie in memory of the host, or is the caller's word; the pattern is a copy.
    unsafe { fill_on_host(dest.address, runs, &runs.spread(dest.address), pattern) };
    Ok(None)
}

/// Fills runs of host memory; `spread` is what they give for that.
///
/// # Safety
/// The runs from `dest` on are host memory, which nobody else uses meanwhile and the pattern is apart from.
pub unsafe fn fill_on_host(dest: u64, runs: &Runs, spread: &Plan, pattern: &[u8]) {
    // SAFETY: the caller's promise of each run.
    let fill = |offset| unsafe { fill_host(dest + offset, runs.size, pattern) };
    if !runs.disjoint {
        return runs.offsets().for_each(fill);
    }
    fill(0);
    if !runs.axes.is_empty() {
        // The first run is what is copied, so it is left out.
        // SAFETY: the caller's promise; the runs are apart.
        unsafe { host::run(spread, runs.size..spread.size()) };
    }
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

/// What is told when there is no host memory for a pattern.
const NO_ROOM: &str = "of a pattern; fill with a shorter one";

/// Patterns of as many bytes need no memory of the heap.
const SHORT: usize = 32;

/// The bytes that a fill repeats.
pub type Pattern = SmallVec<[u8; SHORT]>;

/// A caller's pattern in pageable memory of our own. The caller's may lie in what is filled, or in page-locked memory, which
/// the driver would read only when its copy runs.
pub fn read_pattern(source: u64, length: u64) -> Result<Pattern> {
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
    // SAFETY: host memory that the caller says has that many bytes, or ours and inside its block.
    let bytes = unsafe { room::bytes_at(source, length) };
    match bytes.len() {
        0..=SHORT => Ok(Pattern::from_slice(bytes)),
        _ => room::copy_of(bytes, NO_ROOM).map(Pattern::from_vec),
    }
}

/// # Safety
/// There are `size` bytes of host memory at `dest`, which nobody else uses meanwhile and the pattern is apart from.
unsafe fn fill_host(dest: u64, size: u64, pattern: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe { host::fill(dest, size, pattern) };
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

/// Fills memory of a GPU; by a kernel, if there is one, with what the driver does not set by itself.
fn fill_device(
    put: &Put<'_>,
    dest: u64,
    size: u64,
    pattern: &[u8],
    kernel: bool,
) -> std::result::Result<(), crate::driver::Failure> {
    let (driver, device, native) = (put.driver, put.device(), put.stream.native());
    if let Some(value) = simple(dest, pattern) {
        let width = match value {
            FillValue::U8(_) => 1,
            FillValue::U16(_) => 2,
            FillValue::U32(_) => 4,
        };
        return driver.fill(dest, value, (size / width) as usize, native);
    }
    if kernel && kernel::is_short(pattern.len()) {
        return kernel::fill_pattern(driver, device, dest, size, pattern, native);
    }
    // The pattern goes over once, and is repeated there. Pageable memory is read before the call returns.
    let first = pattern.len() as u64;
    driver.copy(dest, pattern.as_ptr().expose_provenance() as u64, pattern.len(), native)?;
    if kernel && first < size {
        return kernel::fill_rest(driver, device, dest, size, first, native);
    }
    let mut done = first;
    while done < size {
        let step = done.min(size - done);
        driver.copy(dest + done, dest, step as usize, native)?;
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
                let address = bytes.as_mut_ptr().expose_provenance() as u64;
                // SAFETY: there are more bytes than that.
                unsafe { fill_host(address, (pattern.len() * count) as u64, pattern) };
                assert!(bytes[..pattern.len() * count].chunks(pattern.len()).all(|chunk| chunk == pattern));
                assert_eq!(bytes[pattern.len() * count], 0);
            }
        }
    }
}
