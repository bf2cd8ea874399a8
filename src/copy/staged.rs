//! Copies by way of memory without gaps: packed where they come from, moved as they lie, unpacked where they go. What is taken
//! for that is given back behind the last work that uses it.

use super::items::Job;
use super::lanes::{Behind, Done, Lane};
use super::pageable;
use super::plan::{Plan, Which};
use super::put::Put;
use super::{by_cpu, host, kernel, make, prepare, room};
use crate::alloc::{self, FreeOptions, Request};
use crate::capture;
use crate::device::Device;
use crate::driver::FillValue;
use crate::error::{Result, Status};
use crate::handle::Entered;
use crate::log::log;
use crate::stream::Stream;
use std::ops::Range;

/// As much memory as is taken for one step: larger copies go in several.
pub const STEP: u64 = 256 << 20;

/// Where memory is short steps are smaller, down to this.
const LEAST: u64 = 1 << 20;

/// Memory of a GPU for the length of a call. Whoever serves that GPU serves it.
pub struct Temporary {
    address: u64,
}

impl Temporary {
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn on(gpu: &'static Device, stream: &Entered<Stream>, size: u64) -> Result<Temporary> {
        let request =
            Request { size, stream: Some(stream), tag: alloc::intern(c"copy staging"), ..Request::default() };
        let address = alloc::allocate(gpu, request)
            .map_err(|e| e.context(format_args!("{size} bytes for a copy by way of other memory")))?;
        Ok(Temporary { address })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let free = || alloc::free(self.address, &FreeOptions::default());
        // Twice, since nobody else will and the driver may refuse for a passing reason.
        if let Err(error) = free().or_else(|_| free()) {
            log!(Error, "the memory that a copy went by, at {:#x}, was not freed: {error}", self.address);
        }
    }
}

/// Makes a copy of so many bytes step by step. One for which there is no memory is made again in smaller ones, of a quarter each
/// time, since every one of them may wait for memory that is about to come free. Ends of such a copy do not meet: what a step did
/// before it failed is done again.
fn in_steps(size: u64, mut step: impl FnMut(Range<u64>) -> Result<()>) -> Result<()> {
    let (mut done, mut most) = (0, STEP);
    while done < size {
        let range = done..(done + most).min(size);
        let taken = range.end - range.start;
        match step(range.clone()) {
            Err(error) if error.status == Status::OutOfMemory && taken > LEAST => {
                most = (taken / 4).max(LEAST)
            }
            made => {
                made?;
                done = range.end;
            }
        }
    }
    Ok(())
}

/// The plan with one end in a buffer that holds the bytes from `range.start` on.
fn through(plan: &Plan, which: Which, buffer: u64, range: &Range<u64>) -> Plan {
    plan.with_linear(which, buffer.wrapping_sub(range.start))
}

/// Puts work of a GPU in the place of the call's stream: there if it is that GPU's, else on a lane, which comes behind the
/// stream's work so far, and which that goes on behind.
pub fn on_gpu<R>(
    put: &Put<'_>,
    gpu: &'static Device,
    job: &Job,
    work: impl FnOnce(&Entered<Stream>) -> Result<R>,
) -> Result<R> {
    if std::ptr::eq(gpu, put.device()) {
        return work(put.stream);
    }
    let driver = put.driver;
    let lane = Lane::take(driver, gpu, Behind::of(put.stream))?;
    if !lane.follow(driver, put.stream)? {
        return Err(capture::fell_into_another(put.stream));
    }
    let done = {
        let _context = gpu.enter(driver)?;
        work(lane.stream())
    };
    // Also after a failure: what was put there uses the caller's memory.
    let led = lane.lead(driver, put.stream);
    if led.is_err() && driver.synchronize_stream(lane.native()).is_err() {
        // Nobody else knows of the lane's work.
        job.ends().for_each(|end| lane.uses(end.address));
    }
    let result = done?;
    led.map(|()| result)
}

/// Items that bad numbers of an index array leave out when they are packed are zeros on their way, and nothing that somebody left
/// there.
fn clear_for_numbers(
    put: &Put<'_>,
    job: &Job,
    packed: Which,
    buffer: &Temporary,
    size: u64,
    stream: &Entered<Stream>,
) -> Result<()> {
    if !job.is_indexed(packed) {
        return Ok(());
    }
    let cleared = put.driver.fill(buffer.address, FillValue::U8(0), size as usize, stream.native());
    cleared.map_err(|f| stream.device().error(put.driver, f).context("a step of a copy"))
}

/// Moves bytes of a plan within what a GPU reaches; a context of it is current.
fn move_on_gpu(
    put: &Put<'_>,
    gpu: &'static Device,
    plan: &Plan,
    range: Range<u64>,
    stream: &Entered<Stream>,
) -> Result<()> {
    let moved = if plan.is_line() {
        let size = (range.end - range.start) as usize;
        let (dest, src) = (plan.dest.wrapping_add(range.start), plan.src.wrapping_add(range.start));
        put.driver.copy(dest, src, size, stream.native())
    } else {
        kernel::run(put.driver, gpu, plan, range, stream.native())
    };
    moved.map_err(|f| gpu.error(put.driver, f).context("a step of a copy"))
}

/// Between the memory of GPUs, or within that of one where the source is overwritten. By whom the source is packed, and the
/// destination unpacked, where they are.
pub fn by_way(
    put: &Put<'_>,
    job: &Job,
    pack: Option<&'static Device>,
    unpack: Option<&'static Device>,
) -> Result<()> {
    // What is overwritten has to be read whole.
    if job.meets {
        return step(put, job, pack, unpack, 0..job.size());
    }
    in_steps(job.size(), |range| step(put, job, pack, unpack, range))
}

fn step(
    put: &Put<'_>,
    job: &Job,
    pack: Option<&'static Device>,
    unpack: Option<&'static Device>,
    range: Range<u64>,
) -> Result<()> {
    let plan = &job.plan;
    let size = range.end - range.start;
    let mut packed = None;
    if let Some(from) = pack {
        packed = Some(on_gpu(put, from, job, |stream| {
            let buffer = Temporary::on(from, stream, size)?;
            clear_for_numbers(put, job, Which::Src, &buffer, size, stream)?;
            let plan = through(plan, Which::Dest, buffer.address, &range);
            move_on_gpu(put, from, &plan, range.clone(), stream)?;
            Ok(buffer)
        })?);
    }
    let moved = packed.as_ref().map_or(plan.src.wrapping_add(range.start), |buffer| buffer.address);
    let Some(to) = unpack else {
        let moved = move_line(put, plan.dest.wrapping_add(range.start), moved, size);
        packed.iter().for_each(|buffer| put.settle_temporary(buffer.address));
        return moved;
    };
    let mut arrived = None;
    if !pack.is_some_and(|from| std::ptr::eq(to, from)) {
        let buffer = on_gpu(put, to, job, |stream| Temporary::on(to, stream, size))?;
        move_line(put, buffer.address, moved, size)?;
        arrived = Some(buffer);
    }
    let buffer = arrived.as_ref().map_or(moved, |buffer| buffer.address);
    on_gpu(put, to, job, |stream| {
        let plan = through(plan, Which::Src, buffer, &range);
        alloc::record_use(buffer, stream);
        move_on_gpu(put, to, &plan, range.clone(), stream)
    })?;
    // What was done on a stream of our own is done before whatever comes on the call's.
    for buffer in packed.iter().chain(&arrived) {
        alloc::record_use(buffer.address, put.stream);
        put.settle_temporary(buffer.address);
    }
    Ok(())
}

/// Bytes that lie together, the way that is best for them.
fn move_line(put: &Put<'_>, dest: u64, src: u64, size: u64) -> Result<()> {
    let line = Job::line(dest, src, size)?;
    make(&line, put, prepare(&line, put)?)
}

/// Between host memory, which the CPU packs and unpacks, and the memory of the stream's GPU. `is_piped`: by the copy threads,
/// through page-locked buffers. `by_way`: the GPU's end has gaps.
pub fn by_host(put: &Put<'_>, job: &Job, is_piped: bool, by_way: bool) -> Result<()> {
    let uploads = job.src.is_host();
    let host_end = if uploads { Which::Src } else { Which::Dest };
    let gpu_end = if uploads { Which::Dest } else { Which::Src };
    if job.is_written_late() {
        put.stream.synchronize()?;
    }
    // Copies of the same call, or on the stream, may have changed them.
    by_cpu::require_good_numbers(job)?;
    if !by_way {
        return by_host_step(put, job, is_piped, job.plan.address(gpu_end), 0..job.size());
    }
    let gpu = put.device();
    in_steps(job.size(), |range| {
        let buffer = Temporary::on(gpu, put.stream, range.end - range.start)?;
        let plan = through(&job.plan, host_end, buffer.address, &range);
        let at_start = buffer.address.wrapping_sub(range.start);
        if uploads {
            by_host_step(put, job, is_piped, at_start, range.clone())?;
            move_on_gpu(put, gpu, &plan, range, put.stream)?;
        } else {
            clear_for_numbers(put, job, Which::Src, &buffer, range.end - range.start, put.stream)?;
            move_on_gpu(put, gpu, &plan, range.clone(), put.stream)?;
            by_host_step(put, job, is_piped, at_start, range)?;
        }
        put.settle_temporary(buffer.address);
        Ok(())
    })
}

/// As much as is packed at once where no page-locked buffers are used.
const PACKED: u64 = 1 << 20;

/// Bytes of the plan between the host's end and memory of the GPU without gaps, whose byte number 0 is at `linear`.
fn by_host_step(put: &Put<'_>, job: &Job, is_piped: bool, linear: u64, range: Range<u64>) -> Result<()> {
    let uploads = job.src.is_host();
    let gpu_end = if uploads { Which::Dest } else { Which::Src };
    let (size, start) = (range.end - range.start, range.start);
    // The CPU's part: between its own memory and a buffer that holds these bytes of the step.
    let by_cpu = |piece: Range<u64>, buffer: u64| {
        let piece = start + piece.start..start + piece.end;
        let plan = through(&job.plan, gpu_end, buffer, &piece);
        // SAFETY: the host's end was found to lie in memory of the host, or is the caller's word; the buffer has room for the
        // piece, and is nobody else's meanwhile.
        unsafe { if uploads { host::run_near(&plan, piece) } else { host::run(&plan, piece) } };
    };
    let linear = linear.wrapping_add(start);
    if is_piped {
        let gpu = pageable::Gpu { driver: put.driver, device: put.device(), stream: put.stream };
        let done = if uploads {
            pageable::upload(&gpu, linear, size, &by_cpu)?
        } else {
            pageable::download(&gpu, linear, size, &by_cpu)?
        };
        match done {
            Done::Copied => return Ok(()),
            Done::Captured => return Err(capture::fell_into_another(put.stream)),
            // What lies together needs no packing.
            Done::NoBuffers if job.plan.is_line() => {
                let (dest, src) = (job.plan.dest.wrapping_add(start), job.plan.src.wrapping_add(start));
                return put
                    .driver
                    .copy(dest, src, size as usize, put.stream.native())
                    .map_err(|f| put.failed(f, "a copy"));
            }
            Done::NoBuffers => {}
        }
    }
    let mut buffer = room::of(size.min(PACKED), room::BETWEEN)?;
    let address = buffer.as_mut_ptr().expose_provenance() as u64;
    let mut done = 0;
    while done < size {
        let piece = done..(done + PACKED).min(size);
        let bytes = (piece.end - piece.start) as usize;
        let at = linear.wrapping_add(done);
        done = piece.end;
        // The driver has read ordinary memory, or written it, when its call comes back; but not in a capture, whose runs would
        // use the buffer when it is gone.
        let go = |dest, src| {
            let moved = put.stream.outside_captures(put.driver, "a copy that the CPU packs", || {
                put.driver.copy(dest, src, bytes, put.stream.native())
            });
            moved.map_err(|error| match error.status {
                Status::IllegalInCapture => capture::fell_into_another(put.stream),
                _ => error.context("a copy that the CPU packs"),
            })?;
            if job.reads_late(put.device()) { put.stream.synchronize() } else { Ok(()) }
        };
        if uploads {
            by_cpu(piece, address);
            go(at, address)?;
        } else {
            go(address, at)?;
            by_cpu(piece, address);
        }
    }
    Ok(())
}
