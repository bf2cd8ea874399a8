//! Copies and fills of host memory as steps of what the calling thread captures on the CPU.

use super::by_cpu;
use super::end::End;
use super::fill::{Runs, fill_on_host};
use super::items::Job;
use super::plan::Plan;
use super::room;
use crate::alloc;
use crate::capture::{self, Graph, Work};
use crate::device::Device;
use crate::error::{Result, fail};
use crate::handle::Entered;
use smallvec::SmallVec;

/// What is told when there is no host memory for what the runs read.
const NO_ROOM: &str =
    "that are in no block of this library; the capture goes on: have them in one, which the graph keeps";

/// Those with whose contexts page-locked memory goes.
type Owners = SmallVec<[&'static Device; 2]>;

fn owners_of<'a>(ends: impl Iterator<Item = &'a End>) -> Owners {
    ends.filter_map(|end| end.block?.home()).filter(|home| home.is_cuda()).collect()
}

/// An error when the pages are gone, which touching them would be a fault for.
fn require_present(owners: &Owners) -> Result<()> {
    owners.iter().try_for_each(|owner| owner.require_present())
}

/// A copy that each run makes.
struct CopyStep {
    owners: Owners,
    plan: Plan,
    meets: bool,
    /// What is read, as it was when it was recorded, where that is not by reference.
    _source: Option<Vec<u8>>,
    /// As much as all of it, where ends meet that are no lines; and where that is.
    _between: Option<Vec<u8>>,
    buffer: Option<u64>,
}

impl Work for CopyStep {
    fn run(&self) -> Result<()> {
        require_present(&self.owners)?;
        by_cpu::require_good(&self.plan)?;
        // SAFETY: both ends were found to lie in memory of the host when this was recorded, or are the caller's word; what lies in
        // blocks the graph keeps. The buffer is only this step's, and runs of a graph do not overlap.
        unsafe { by_cpu::move_now(&self.plan, self.meets, self.buffer) };
        Ok(())
    }
}

/// A fill that each run makes.
struct Fill {
    owners: Owners,
    dest: u64,
    runs: Runs,
    spread: Plan,
    pattern: Vec<u8>,
}

impl Work for Fill {
    fn run(&self) -> Result<()> {
        require_present(&self.owners)?;
        // SAFETY: as of a copy's destination; the pattern is this step's own.
        unsafe { fill_on_host(self.dest, &self.runs, &self.spread, &self.pattern) };
        Ok(())
    }
}

/// Has the graph keep the block that an end lies in.
fn keep(end: &End, graph: &Entered<Graph>) -> Result<()> {
    if end.block.is_some() { alloc::record_use_by(end.address, graph) } else { Ok(()) }
}

/// Notes what a step writes to, for later steps that read it.
fn note_written(dest: &End, graph: &Graph) {
    if dest.block.is_none() {
        graph.note_written(dest.address, dest.size);
    }
}

/// Records a copy. A source that `passes` is good for this call only, and is copied now: unless it lies in a block, which the
/// graph keeps, or in what the graph writes to, which stays for its runs anyway.
pub fn copy(graph: &Entered<Graph>, job: &Job) -> Result<()> {
    let (mut plan, src, mut source) = (job.plan.clone(), &job.src, None);
    if job.passes && src.block.is_none() && !graph.writes_to(src.address, src.size) {
        // SAFETY: host memory that the caller says has that many bytes.
        let bytes = room::copy_of(unsafe { room::bytes_at(src.address, src.size) }, NO_ROOM)?;
        let at = bytes.as_ptr().expose_provenance() as u64;
        plan.src = plan.src.wrapping_sub(src.address).wrapping_add(at);
        source = Some(bytes);
    }
    let meets = job.meets && source.is_none();
    let mut between =
        if meets && !plan.is_line() { Some(room::of(plan.size(), room::BETWEEN)?) } else { None };
    let buffer = between.as_mut().map(|bytes| bytes.as_mut_ptr().expose_provenance() as u64);
    for end in job.ends() {
        keep(end, graph)?;
    }
    let owners = owners_of(job.ends());
    graph.record(Box::new(CopyStep { owners, plan, meets, _source: source, _between: between, buffer }))?;
    note_written(&job.dest, graph);
    Ok(())
}

/// Records a fill.
pub fn fill(graph: &Entered<Graph>, dest: &End, runs: &Runs, pattern: &[u8]) -> Result<()> {
    let pattern = room::copy_of(pattern, NO_ROOM)?;
    keep(dest, graph)?;
    let step = Fill {
        owners: owners_of(std::iter::once(dest)),
        dest: dest.address,
        runs: runs.clone(),
        spread: runs.spread(dest.address),
        pattern,
    };
    graph.record(Box::new(step))?;
    note_written(dest, graph);
    Ok(())
}

/// An error for a copy between the host and a GPU that names no stream, while the calling thread captures on the CPU: it would run
/// once, now, and be missing in the runs of the graph.
pub fn refuse_unnamed<'a>(mut ends: impl Iterator<Item = &'a End>, gpu: &'static Device) -> Result<()> {
    if ends.any(End::is_host)
        && let Some(graph) = capture::of_cpu()?
    {
        fail!(
            IllegalInCapture,
            "a copy between host memory and \"{}\" cannot be recorded in the capture {} of the CPU, which goes on; pass the stream of the GPU to run it now, or pause the capture",
            gpu.alias(),
            graph.id()
        );
    }
    Ok(())
}
