//! Which way a copy takes: the fastest that is legal. Nothing is done here, and nobody is asked more than the choice needs.

use super::end::{End, Reach};
use super::items::Job;
use super::pitched::pitched;
use super::plan::{Plan, Which};
use super::{between, kernel, pageable};
use crate::device::Device;
use crate::driver::{Driver, Pitched};
use crate::error::{Error, Result, error, fail};

/// How the bytes of a copy go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    Nothing,
    Host,
    HostThreads,
    Device,
    Pinned,
    Pageable,
    PageablePipelined,
    Peer,
    PeerStaged,
    PeerPipelined,
    Managed,
}

/// What makes a copy.
#[derive(Clone, Copy)]
pub enum How {
    /// One call of the driver for bytes that lie together.
    Line,
    /// The same, naming the contexts of two GPUs.
    Peer,
    /// One call of the driver for rows at even distances.
    Rows(Pitched),
    /// A kernel of the GPU, which reaches all that is used.
    Kernel(&'static Device),
    /// Between host memory that is packed, or unpacked, by the CPU and the memory of a GPU; that goes by way of memory without
    /// gaps where it has some.
    ByHost { is_piped: bool, by_way: bool },
    /// Bytes that lie together, from GPU to GPU through page-locked buffers.
    Across,
    /// By way of memory without gaps: the source is packed into some by a GPU, and the destination unpacked from some by one,
    /// where they have gaps.
    Staged { pack: Option<&'static Device>, unpack: Option<&'static Device> },
}

#[derive(Clone, Copy)]
pub struct Route {
    pub how: How,
    pub path: Path,
}

/// Where a copy is to be put.
#[derive(Clone, Copy)]
pub struct Place {
    pub driver: &'static Driver,
    /// The stream's.
    pub device: &'static Device,
    pub is_captured: bool,
}

impl Route {
    /// The way of a copy of which at least one end is a GPU's.
    pub fn find(job: &Job, place: Place) -> Result<Route> {
        let route = |how, path| Ok(Route { how, path });
        let (dest, src) = (&job.dest, &job.src);
        if job.meets {
            return Route::apart(job, place);
        }
        let host = [dest, src].into_iter().find(|end| end.is_host());
        if let Some(host) = host {
            return Route::with_host(job, place, host);
        }
        let path = if dest.reach == Reach::Managed || src.reach == Reach::Managed {
            Path::Managed
        } else if dest.is_at_home(place.device) && src.is_at_home(place.device) {
            Path::Device
        } else {
            Path::Peer
        };
        if needs_access(dest, src) {
            return Route::between(job, place, path);
        }
        if job.plan.is_line() {
            require_reach(job, place)?;
            return route(How::Line, path);
        }
        match Route::on_gpu(job, place, place.device, path)? {
            Some(route) => Ok(route),
            None => Route::between(job, place, path),
        }
    }

    /// By a GPU that reaches all of it: rows at even distances by the driver where it is good at them, else by a kernel.
    fn on_gpu(job: &Job, place: Place, gpu: &'static Device, path: Path) -> Result<Option<Route>> {
        let Place { driver, .. } = place;
        let is_here = std::ptr::eq(gpu, place.device);
        for end in job.ends() {
            if !end.is_reached_by(driver, gpu)? {
                return Ok(None);
            }
        }
        let found = |how| Ok(Some(Route { how, path }));
        let rows = || if is_here { rows(&job.plan, gpu) } else { None };
        // Over the host's bus the driver keeps up with a line; within a GPU the kernel is the faster one.
        if path == Path::Pinned
            && job.plan.row >= SHORTEST_ROW
            && let Some(rows) = rows()
        {
            return found(How::Rows(rows));
        }
        if kernel::is_available(driver, gpu)? {
            return found(How::Kernel(gpu));
        }
        if let Some(rows) = rows() {
            return found(How::Rows(rows));
        }
        no_kernel(gpu)
    }

    fn with_host(job: &Job, place: Place, host: &End) -> Result<Route> {
        let is_managed = job.dest.reach == Reach::Managed || job.src.reach == Reach::Managed;
        let path = match host.reach {
            _ if is_managed => Path::Managed,
            Reach::Locked => Path::Pinned,
            _ => Path::Pageable,
        };
        // What the GPU reads by the host's page tables, it reads as fast as page-locked memory.
        let is_piped = path == Path::Pageable
            && !place.is_captured
            && !place.device.facts().host_page_tables
            && pageable::serves(job.size());
        if job.plan.is_line() && !is_piped {
            require_reach(job, place)?;
            return Ok(Route { how: How::Line, path });
        }
        let (host_end, gpu_end) =
            if job.dest.is_host() { (Which::Dest, Which::Src) } else { (Which::Src, Which::Dest) };
        // Index arrays in ordinary memory are the CPU's to read.
        if host.reach == Reach::Locked
            && !job.is_indexed(host_end)
            && !(is_scattered(job, host_end) && !place.is_captured && pageable::serves(job.size()))
            && let Some(route) = Route::on_gpu(job, place, place.device, path)?
        {
            return Ok(route);
        }
        if place.is_captured {
            if let Some(rows) = rows(&job.plan, place.device) {
                return Ok(Route { how: How::Rows(rows), path });
            }
            fail!(
                IllegalInCapture,
                "a copy between \"{}\" and ordinary host memory with gaps cannot be recorded, since the CPU would pack it; copy it to an array without gaps before the capture, or use page-locked memory (WARP_MEMORY_PINNED); the capture goes on",
                place.device.alias()
            );
        }
        let is_piped = !is_managed && pageable::serves(job.size());
        let by_way = !job.plan.is_linear(gpu_end);
        require_reach(job, place)?;
        if by_way {
            let gpu = worker(job, gpu_end, place)?;
            if !std::ptr::eq(gpu, place.device) {
                fail!(
                    AccessDenied,
                    "\"{}\", whose stream was given, may not touch what the memory at {:#x} is indexed by; pass a stream of \"{}\", or none",
                    place.device.alias(),
                    job.end(gpu_end).address,
                    gpu.alias()
                );
            }
            if !kernel::is_available(place.driver, gpu)? {
                return no_kernel(gpu);
            }
        }
        let path = if is_piped { Path::PageablePipelined } else { path };
        Ok(Route { how: How::ByHost { is_piped, by_way }, path })
    }

    /// From GPU to GPU where the plain copy does not find its way.
    fn between(job: &Job, place: Place, path: Path) -> Result<Route> {
        let Place { driver, device, is_captured } = place;
        let gpus = [job.dest.gpu, job.src.gpu].into_iter().flatten();
        if job.plan.is_line() {
            let direct = path == Path::Device || reaches_across(job, driver)?;
            let is_worth_it = !direct && !is_captured && job.size() >= between::FROM;
            return Ok(if is_worth_it {
                Route { how: How::Across, path: Path::PeerPipelined }
            } else {
                Route { how: How::Peer, path: if direct { path } else { Path::PeerStaged } }
            });
        }
        // The stream's own GPU needs no waits.
        let mut gpus: smallvec::SmallVec<[&'static Device; 2]> = gpus.collect();
        gpus.sort_by_key(|gpu| gpu.ordinal() != device.ordinal());
        for gpu in gpus {
            let gpu = if gpu.ordinal() == device.ordinal() { device } else { gpu };
            if is_captured && !std::ptr::eq(gpu, device) {
                continue;
            }
            if let Some(route) = Route::on_gpu(job, place, gpu, path)? {
                return Ok(route);
            }
        }
        let by_whom = |which| {
            if job.plan.is_linear(which) { Ok(None) } else { worker(job, which, place).map(Some) }
        };
        let (pack, unpack) = (by_whom(Which::Src)?, by_whom(Which::Dest)?);
        require_kernels(place, [pack, unpack].into_iter().flatten())?;
        let how = How::Staged { pack, unpack };
        if is_captured {
            return Err(not_recorded(device));
        }
        let path = if job.size() >= between::FROM { Path::PeerPipelined } else { Path::PeerStaged };
        Ok(Route { how, path })
    }

    /// What is read may have been written by then: all of it is read first. The ends meet in the memory of one GPU.
    fn apart(job: &Job, place: Place) -> Result<Route> {
        let path = if job.dest.reach == Reach::Managed { Path::Managed } else { Path::Device };
        let (pack, unpack) = (worker(job, Which::Src, place)?, worker(job, Which::Dest, place)?);
        if place.is_captured && !(std::ptr::eq(pack, place.device) && std::ptr::eq(unpack, place.device)) {
            return Err(not_recorded(place.device));
        }
        if !job.plan.is_line() {
            require_kernels(place, [pack, unpack])?;
        }
        Ok(Route { how: How::Staged { pack: Some(pack), unpack: Some(unpack) }, path })
    }
}

/// Who packs or unpacks an end: the stream's GPU if that reaches it and what it is indexed by, else the end's own.
fn worker(job: &Job, which: Which, place: Place) -> Result<&'static Device> {
    let end = job.end(which);
    let own = end.gpu.filter(|gpu| !std::ptr::eq(*gpu, place.device));
    for gpu in std::iter::once(place.device).chain(own) {
        let mut all = job.indices.iter().filter(|(of, _)| *of == which).map(|(_, index)| index).chain([end]);
        if all.try_fold(true, |yes, end| Ok::<_, Error>(yes && end.is_reached_by(place.driver, gpu)?))? {
            return Ok(gpu);
        }
    }
    fail!(
        AccessDenied,
        "no GPU of the copy may touch the memory at {:#x} and the index arrays that pick from it; have them where one reaches both, or let one (warp_peer_access_set_enabled, warp_mempool_access_set_enabled)",
        end.address
    )
}

#[cold]
fn not_recorded(device: &Device) -> Error {
    error!(
        AccessDenied,
        "a copy of items with gaps that cannot be made by \"{}\" alone, which may not touch all of it, is not recorded; let it (warp_peer_access_set_enabled, warp_mempool_access_set_enabled) before the capture begins, or copy without gaps; the capture goes on",
        device.alias()
    )
}

/// The plain copy is made by the stream's GPU, and the driver finds any memory for it but that of pools and mappings.
fn require_reach(job: &Job, place: Place) -> Result<()> {
    for end in [&job.dest, &job.src] {
        if end.reach == Reach::Granted
            && !end.is_reached_by(place.driver, place.device)?
            && let Some(gpu) = end.gpu
        {
            fail!(
                AccessDenied,
                "\"{}\", whose stream was given, may not touch the memory at {:#x}, which is \"{}\"'s; pass a stream of that device, or none",
                place.device.alias(),
                end.address,
                gpu.alias()
            );
        }
    }
    Ok(())
}

/// Bytes of a row from which on the driver's copy of rows keeps up with that of a line.
const SHORTEST_ROW: u64 = 64;

/// The plan as the driver copies rows, if it can.
fn rows(plan: &Plan, gpu: &Device) -> Option<Pitched> {
    pitched(plan, u64::try_from(gpu.facts().max_pitch).unwrap_or(0))
}

/// Whether a GPU would write the host's memory in bits that its bus carries one by one, slower than the CPU spreads them.
fn is_scattered(job: &Job, host_end: Which) -> bool {
    const SMALLEST: u64 = 32;
    host_end == Which::Dest && job.plan.row < SMALLEST && !job.plan.is_linear(host_end)
}

fn require_kernels(place: Place, gpus: impl IntoIterator<Item = &'static Device>) -> Result<()> {
    for gpu in gpus {
        if !kernel::is_available(place.driver, gpu)? {
            return no_kernel(gpu);
        }
    }
    Ok(())
}

fn no_kernel<T>(device: &Device) -> Result<T> {
    fail!(
        NotSupported,
        "a copy of items with gaps on \"{}\" needs a kernel, and this driver cannot load one; copy row by row",
        device.alias()
    )
}

/// Whether the copy must name both contexts. What a pool has given to nobody else is out of a plain copy's reach; managed
/// memory is at home on every GPU.
pub fn needs_access(dest: &End, src: &End) -> bool {
    let (Some(to), Some(from)) = (dest.gpu, src.gpu) else { return false };
    let managed = dest.reach == Reach::Managed || src.reach == Reach::Managed;
    let granted = dest.reach == Reach::Granted || src.reach == Reach::Granted;
    !std::ptr::eq(to, from) && (!managed || granted)
}

/// Whether one of the GPUs reaches the other's end, so that the driver sends the bytes straight there.
fn reaches_across(job: &Job, driver: &Driver) -> Result<bool> {
    let (Some(to), Some(from)) = (job.dest.gpu, job.src.gpu) else { return Ok(false) };
    Ok(job.src.is_reached_by(driver, to)? || job.dest.is_reached_by(driver, from)?)
}
