//! Filling and copying memory, wherever it lives. A copy is checked whole (`items`), comes down to rows and axes (`plan`), is
//! sent the fastest way that is legal (`route`), and made: by the CPU (`host`, `threads`), by the driver, by a kernel (`kernel`),
//! or in pieces through page-locked buffers (`pageable`, `between`).

mod batch;
mod between;
mod by_cpu;
mod end;
mod fill;
mod host;
mod items;
mod kernel;
#[cfg(test)]
mod lab;
mod lanes;
mod pageable;
mod path;
mod pitched;
mod plan;
mod put;
mod recorded;
mod room;
mod route;
mod staged;
mod threads;

pub use batch::{Several, copy_all};
pub use fill::{Pattern, Runs, fill, fill_items, fill_runs, fill_with, read_pattern};
pub use items::{Items, Operand};
pub use path::{Description, describe_items, describe_line, describe_nothing};
pub use plan::{Index, Side, Step};
pub use route::{How, Path};
pub use threads::dismantle as end_threads;

use crate::capture::{self, Graph};
use crate::device::Device;
use crate::driver;
use crate::error::{Result, Status, fail};
use crate::handle::Entered;
use crate::stream::Stream;
use end::{End, Reach};
use items::Job;
use lanes::Done;
use put::{Put, take_stream};
use route::{Place, Route};

/// Copies `size` bytes. Between host memory it has happened when this returns; else it happens in the order of
/// the stream: the one given, else the current one of the destination's GPU, else of the source's; a GPU that only
/// lends its name to managed memory comes last.
///
/// On a stream that is captured it is recorded, and happens in every run of the graph, which is given.
pub fn copy(dest: u64, src: u64, size: u64, stream: Option<&Entered<Stream>>) -> Result<()> {
    if size == 0 {
        return Ok(());
    }
    let (dest, src) = (End::find(dest, size, items::DEST)?, End::find(src, size, items::SRC)?);
    match simple_home(&dest, &src) {
        Some(home) if stream.is_none_or(|stream| std::ptr::eq(stream.device(), home)) => {
            copy_simply(home, &dest, &src, stream)
        }
        _ => run(&Job { passes: true, ..Job::between(dest, src) }, stream, &|_| ()),
    }
}

/// The GPU of a copy of bytes for which there is nothing to choose: within its memory, or between that and the host, by one
/// call of the driver.
#[inline]
fn simple_home(dest: &End, src: &End) -> Option<&'static Device> {
    let (end, host) = match (dest.gpu, src.gpu) {
        (Some(to), Some(from)) => {
            let managed = dest.reach == Reach::Managed || src.reach == Reach::Managed;
            return (std::ptr::eq(to, from) && !managed && !dest.meets(src)).then_some(to);
        }
        (Some(_), None) => (dest, src),
        (None, Some(_)) => (src, dest),
        (None, None) => return None,
    };
    let simple = host.reach == Reach::Locked || !pageable::serves(host.size);
    end.own_gpu().filter(|gpu| simple && !gpu.facts().host_page_tables)
}

#[inline]
fn copy_simply(home: &'static Device, dest: &End, src: &End, stream: Option<&Entered<Stream>>) -> Result<()> {
    if stream.is_none() {
        recorded::refuse_unnamed([dest, src].into_iter(), home)?;
    }
    let mut current = None;
    let put = Put::on(take_stream(stream, home, &mut current)?, "a copy")?;
    let ends = || [dest, src].into_iter();
    put.note_use(ends())?;
    let made = put
        .driver
        .copy(dest.address, src.address, dest.size as usize, put.stream.native())
        .map_err(|f| put.failed(f, "a copy"));
    // A copy that failed half-way may have fallen into a capture all the same.
    let settled = put.settle(ends(), None);
    made.and(settled.map(drop))
}

/// Copies items, as `copy` does. `recorded` is told of the graph that the copy is a part of, also when it fails half-way.
pub fn copy_items(
    items: &Items,
    stream: Option<&Entered<Stream>>,
    recorded: &dyn Fn(&Entered<Graph>),
) -> Result<()> {
    run(&Job::of(items)?, stream, recorded)
}

/// Sets how many copy threads there may be.
pub fn set_threads(count: u32) {
    threads::set_count(count);
    if threads::count() == 0 {
        lanes::give_back();
    }
}

/// How many copy threads there may be.
pub fn threads() -> u32 {
    threads::count()
}

/// At shutdown, while streams and devices are still there.
pub fn dismantle() {
    lanes::give_back();
}

/// The GPU that a copy is put on when it names no stream; `None` where the CPU makes it.
fn home_of(job: &Job) -> Option<&'static Device> {
    // Every GPU reaches managed memory, so the other end's does it, which alone is sure to reach its own memory.
    let (dest, src) = (&job.dest, &job.src);
    dest.own_gpu().or(src.own_gpu()).or(dest.gpu).or(src.gpu)
}

/// An error for a stream that the copy cannot be put on.
fn require_end_at(job: &Job, device: &'static Device, home: &'static Device) -> Result<()> {
    let managed = job.dest.reach == Reach::Managed || job.src.reach == Reach::Managed;
    if managed || job.dest.is_at_home(device) || job.src.is_at_home(device) {
        return Ok(());
    }
    fail!(
        InvalidArgument,
        "neither end of the copy is memory of \"{}\", whose stream was given; pass a stream of \"{}\", or none",
        device.alias(),
        home.alias()
    )
}

fn run(job: &Job, stream: Option<&Entered<Stream>>, recorded: &dyn Fn(&Entered<Graph>)) -> Result<()> {
    let Some(home) = home_of(job) else {
        return by_cpu::run(job, stream).map(|graph| graph.iter().for_each(recorded));
    };
    let mut current = None;
    let stream = stream_for(job, stream, home, &mut current)?;
    let mut put = Put::on(stream, "a copy")?;
    put.relax()?;
    let route = prepare(job, &put)?;
    put.graph.iter().for_each(recorded);
    let made = make(job, &put, route);
    // A copy that failed half-way may have fallen into a capture all the same.
    let settled = put.settle(job.ends(), None);
    made.and(settled.map(drop))
}

/// The stream of a GPU that a copy goes on.
fn stream_for<'a>(
    job: &Job,
    asked: Option<&'a Entered<Stream>>,
    home: &'static Device,
    current: &'a mut Option<Entered<Stream>>,
) -> Result<&'a Entered<Stream>> {
    if asked.is_none() {
        recorded::refuse_unnamed(job.ends(), home)?;
    }
    let stream = take_stream(asked, home, current)?;
    require_end_at(job, stream.device(), home)?;
    Ok(stream)
}

/// Chooses the way of a copy. An error for one that cannot be made; nothing is changed by then.
fn prepare(job: &Job, put: &Put<'_>) -> Result<Route> {
    put.require_existing(job.ends())?;
    let place = Place { driver: put.driver, device: put.device(), is_captured: put.is_captured };
    let route = Route::find(job, place)?;
    if let How::ByHost { .. } = route.how {
        by_cpu::require_good_numbers(job)?;
    }
    Ok(route)
}

/// Makes a copy on the stream that everything is ready for.
fn make(job: &Job, put: &Put<'_>, route: Route) -> Result<()> {
    put.note_use(job.ends())?;
    let (plan, size) = (&job.plan, job.size() as usize);
    let native = put.stream.native();
    match route.how {
        How::Line => {
            put.driver.copy(plan.dest, plan.src, size, native).map_err(|f| put.failed(f, "a copy"))?;
            // Pageable memory is not used any more when the call returns.
            if job.reads_late(put.device()) && !put.is_captured { put.stream.synchronize() } else { Ok(()) }
        }
        How::Peer if put.is_captured => record_peer_copy(put, job),
        How::Peer => copy_peer(put, job),
        How::Rows(rows) => {
            let place = |end: &End| match end.reach {
                Reach::Managed => driver::Place::Any,
                _ if end.is_host() => driver::Place::Host,
                _ => driver::Place::Device,
            };
            put.driver
                .copy_pitched(&rows, place(&job.dest), place(&job.src), native)
                .map_err(|f| put.failed(f, "a copy of rows"))
        }
        How::Kernel(gpu) if std::ptr::eq(gpu, put.device()) => {
            kernel::run(put.driver, gpu, plan, 0..job.size(), native)
                .map_err(|f| put.failed(f, "a copy by a kernel"))
        }
        How::Kernel(gpu) => staged::on_gpu(put, gpu, job, |stream| {
            kernel::run(put.driver, gpu, plan, 0..job.size(), stream.native())
                .map_err(|f| gpu.error(put.driver, f).context("a copy by a kernel"))
        }),
        How::ByHost { is_piped, by_way } => staged::by_host(put, job, is_piped, by_way),
        How::Across => {
            let (to, from) = job.gpus()?;
            match between::copy((plan.dest, to), (plan.src, from), job.size(), put.stream)? {
                Done::Copied => Ok(()),
                Done::NoBuffers => copy_peer(put, job),
                Done::Captured => Err(capture::fell_into_another(put.stream)),
            }
        }
        How::Staged { pack, unpack } => staged::by_way(put, job, pack, unpack),
    }
}

/// From GPU to GPU; the driver stages it where there is no access.
fn copy_peer(put: &Put<'_>, job: &Job) -> Result<()> {
    let (to, from) = job.gpus()?;
    let driver = put.driver;
    let ends = ((job.plan.dest, to.context(driver)?), (job.plan.src, from.context(driver)?));
    // A capture that another thread begins on the stream meanwhile would be broken.
    let copied = put.stream.outside_captures(driver, "a copy between GPUs", || {
        driver.copy_peer(ends.0, ends.1, job.size() as usize, put.stream.native())
    });
    copied.map_err(|error| match error.status {
        Status::IllegalInCapture => capture::fell_into_another(put.stream),
        _ => error.context("a copy between GPUs"),
    })
}

/// Records a copy between two GPUs. The driver has no peer copy in a capture, only the plain one, which the GPU of the
/// current context makes: that has to reach both ends, so it is the destination's or else the source's. A refusal leaves
/// the capture alone.
#[cold]
fn record_peer_copy(put: &Put<'_>, job: &Job) -> Result<()> {
    let (to, from) = job.gpus()?;
    for device in [to, from] {
        let _context = device.enter(put.driver)?;
        match put.driver.copy(job.plan.dest, job.plan.src, job.size() as usize, put.stream.native()) {
            Ok(()) => return Ok(()),
            Err(f) if f.is_invalid_value() => {}
            Err(f) => return Err(put.failed(f, "a copy")),
        }
    }
    fail!(
        AccessDenied,
        "a copy of {} bytes from \"{}\" to \"{}\" cannot be recorded: both ends are pool memory, and neither GPU may touch the other's pool; either let one before the capture begins (warp_mempool_access_set_enabled), or allocate one end before it with WARP_MEMORY_CUDA_DEVICE; the capture goes on",
        job.size(),
        from.alias(),
        to.alias()
    )
}
