//! Copies between host memory, which the CPU makes.

use super::items::{self, Job};
use super::plan::{Plan, Which};
use super::room;
use super::{host, recorded, threads};
use crate::capture::{self, Graph};
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::stream::Stream;

/// At once, or in each run of the graph that this thread captures on the CPU.
pub fn run(job: &Job, stream: Option<&Entered<Stream>>) -> Result<Option<Entered<Graph>>> {
    refuse_gpu_stream(stream)?;
    if let Some(graph) = capture::of_cpu()? {
        recorded::copy(&graph, job)?;
        return Ok(Some(graph));
    }
    require_good_numbers(job)?;
    let mut between =
        if job.meets && !job.plan.is_line() { Some(room::of(job.size(), room::BETWEEN)?) } else { None };
    let buffer = between.as_mut().map(|bytes| bytes.as_mut_ptr().expose_provenance() as u64);
    // SAFETY: both ends were found to lie in memory of the host, or are the caller's word.
    unsafe { move_now(&job.plan, job.meets, buffer) };
    Ok(None)
}

/// Moves all of a plan's bytes; by way of a buffer, where the ends meet and are no lines.
///
/// # Safety
/// Both ends are memory of the host for as long as this takes; if they meet in other ways than as lines, the buffer holds as many
/// bytes as the plan has, apart from both.
pub unsafe fn move_now(plan: &Plan, meets: bool, buffer: Option<u64>) {
    if items::changes_nothing(plan) {
        return;
    }
    let size = plan.size();
    // SAFETY: the caller's promise; pieces of a plan whose ends are apart are apart, and a line may meet itself.
    unsafe {
        match buffer {
            Some(buffer) => by_way(plan, buffer),
            None if !meets && threads::serve_host(size) => {
                threads::host(size, &|piece| host::run(plan, piece))
            }
            None => host::run(plan, 0..size),
        }
    }
}

/// Reads all before the first is written.
///
/// # Safety
/// As `host::run` but that the ends may meet; there are as many bytes at `buffer`, apart from both.
unsafe fn by_way(plan: &Plan, buffer: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        host::run(&plan.with_linear(Which::Dest, buffer), 0..plan.size());
        host::run(&plan.with_linear(Which::Src, buffer), 0..plan.size());
    }
}

/// An error for index arrays in host memory that lead out of what they pick from, before anything is written. Numbers in the
/// memory of a GPU are not to be had here.
pub fn require_good_numbers(job: &Job) -> Result<()> {
    if !job.plan.is_indexed() {
        return Ok(());
    }
    let mut plan = job.plan.clone();
    for which in [Which::Dest, Which::Src] {
        if !job.end(which).is_host() {
            plan = plan.with_linear(which, 0);
        }
    }
    require_good(&plan)
}

/// As `require_good_numbers`, of a copy that is made now and not recorded: each run looks at its numbers.
pub fn require_good_numbers_now(job: &Job) -> Result<()> {
    if capture::of_cpu()?.is_some() { Ok(()) } else { require_good_numbers(job) }
}

/// As `require_good_numbers`, of a plan whose index arrays are all in host memory.
pub fn require_good(plan: &Plan) -> Result<()> {
    // SAFETY: index arrays were found to lie in memory of the host, or are the caller's word.
    let Some(bad) = (unsafe { host::first_bad(plan) }) else { return Ok(()) };
    let end = if bad.which == Which::Dest { "destination" } else { "source" };
    fail!(
        InvalidArgument,
        "number {} of an index array of the {end} is {}, and there are {} items along that dimension, counted from 0; nothing was written: put numbers of items there",
        bad.position,
        bad.number,
        bad.index.limit
    )
}

/// Host memory is copied at once, which has no order with what a GPU does.
pub fn refuse_gpu_stream(stream: Option<&Entered<Stream>>) -> Result<()> {
    if let Some(stream) = stream.filter(|s| s.device().is_cuda()) {
        fail!(
            InvalidArgument,
            "a copy from host to host runs at once and not on a stream of \"{}\"; pass no stream, after synchronising it",
            stream.device().alias()
        );
    }
    Ok(())
}
