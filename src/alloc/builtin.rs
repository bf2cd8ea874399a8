//! The built-in allocators: host, pinned, device, pool, managed. Each gets memory and enters it in the ledger,
//! or leaves everything as it was.

use super::uses::{self, Use, Uses};
use super::{
    HOLDS_STREAM, HOST_ALIGNMENT, Kind, LEDGER, NATURAL_ALIGNMENT, NOT_YET, OF_GRAPH, OWN_USE, PADDED,
    PER_THREAD, Rule, caching, enter, forget_holds, parked, reached, shortage, statistics,
};
use crate::capture::{self, Graph, Keep};
use crate::device::{self, Device};
use crate::driver::{Driver, Failure, MemoryClass};
use crate::error::{Error, Result, error, fail};
use crate::handle::Entered;
use crate::ledger::{InsertError, Ledger, Record};
use crate::lock::Mutex;
use crate::pool::{self, Pool};
use crate::runtime;
use crate::stream::{self, Stream};
use crate::thread;
use std::collections::HashMap;

/// A request that passed its checks.
pub struct Order<'a> {
    pub device: &'static Device,
    pub size: u64,
    pub alignment: u64,
    pub stream: Option<&'a Entered<Stream>>,
    pub pool: Option<&'a pool::Entered>,
    pub tag: u32,
    /// For the library itself: not worth a wait, in no count, and kept by no graph that the thread captures on the CPU.
    pub own_use: bool,
    /// Where the block is entered.
    pub ledger: &'a Ledger,
}

impl Order<'_> {
    fn record(&self, base: u64, kind: Kind, natural: u64) -> Record {
        Record::new(base, self.size)
            .with_alignment(self.alignment.max(natural))
            .with_kind(kind as u8)
            .with_rule(Rule::of_kind(kind) as u8)
            .with_device(self.device.index())
            .with_tag(self.tag)
    }

    /// What to ask the driver for so that the block can be aligned inside it.
    #[inline]
    fn padded_size(&self) -> usize {
        if self.alignment <= NATURAL_ALIGNMENT {
            self.size as usize
        } else {
            (self.size + self.alignment) as usize
        }
    }

    /// The aligned address in what the driver gave, remembered when it is another one.
    #[inline]
    fn place(&self, native: u64) -> (u64, u16) {
        if self.alignment <= NATURAL_ALIGNMENT {
            return (native, 0);
        }
        let base = native.next_multiple_of(self.alignment);
        if base == native {
            return (native, 0);
        }
        PADDINGS.lock().get_or_insert_with(HashMap::new).insert(base, native);
        (base, PADDED)
    }
}

/// The stream that a block belongs to: the one asked for, else the device's current one, kept in `current`.
#[inline]
pub fn stream_for<'a>(
    asked: Option<&'a Entered<Stream>>,
    device: &'static Device,
    current: &'a mut Option<Entered<Stream>>,
) -> Result<&'a Entered<Stream>> {
    match asked {
        Some(stream) => Ok(stream),
        None => Ok(current.insert(stream::current(device)?)),
    }
}

/// The pool that a block comes from: the one asked for, else what the device allocates from, kept in `current` if it has to
/// be.
#[inline(always)]
fn pool_for<'a>(
    asked: Option<&'a pool::Entered>,
    device: &'static Device,
    current: &'a mut Option<pool::Entered>,
) -> Result<&'a Pool> {
    if let Some(pool) = asked {
        return Ok(pool);
    }
    match pool::own_in_use(device) {
        Some(pool) => Ok(pool),
        None => Ok(current.insert(pool::enter_current(device)?)),
    }
}

/// Blocks that lie inside what the driver gave, by their address.
static PADDINGS: Mutex<Option<HashMap<u64, u64>>> = Mutex::new(None);

/// The address that the driver knows a block by, while the block is being given back.
#[derive(Debug, Clone, Copy)]
pub struct Native(u64);

impl Native {
    #[inline]
    pub fn address(self) -> u64 {
        self.0
    }

    /// Remembers it again, when the block was not given back.
    pub fn keep(self, record: &Record) {
        if record.flags() & PADDED != 0 {
            // Other code may have freed the block behind our back, and a new one at its address entered its own.
            PADDINGS.lock().get_or_insert_with(HashMap::new).entry(record.base()).or_insert(self.0);
        }
    }
}

/// Takes the address that the driver knows the block by. Before the block is given back: the next one at the
/// same address has its own.
#[inline]
pub fn take_native(record: &Record) -> Native {
    if record.flags() & PADDED == 0 {
        return Native(record.base());
    }
    let native = PADDINGS.lock().as_mut().and_then(|paddings| paddings.remove(&record.base()));
    Native(native.unwrap_or(record.base()))
}

/// Stream-ordered memory of the device's pool. The hot path: an explicit ordinary stream needs no context.
pub fn mempool(order: Order<'_>) -> Result<u64> {
    let device = order.device;
    let driver = device.require_cuda("pool memory")?;
    parked::poll_seldom();
    let mut current = None;
    let stream = stream_for(order.stream, device, &mut current)?;
    let _context = stream.enter_context(driver)?;
    let begun = stream::begun();
    if stream.is_capturing(driver).map_err(|f| device.error(driver, f))? {
        return in_capture(&order, driver, stream);
    }
    let mut in_use = None;
    let pool = pool_for(order.pool, device, &mut in_use)?;
    let size = order.padded_size();
    let native = {
        let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
        match driver.alloc_from_pool(size, pool.native(), stream.native()) {
            Ok(native) => native,
            Err(failure) => {
                shortage::retry(driver, &order.shortage(Kind::CudaMempool, Some(pool)), failure, || {
                    driver.alloc_from_pool(size, pool.native(), stream.native())
                })?
            }
        }
    };
    if stream::began_since(begun) {
        refuse_recorded(&order, driver, stream, begun, native)?;
    }
    let (base, flags) = order.place(native);
    let (per_thread, thread) = own_thread(stream);
    let held = stream.hold();
    let record = order
        .record(base, Kind::CudaMempool, NATURAL_ALIGNMENT)
        .with_pool(pool.slot())
        .with_stream(held)
        .with_context(thread)
        .with_flags(flags | HOLDS_STREAM | per_thread);
    settle(order.ledger, stream.thread(), record, || {
        // SAFETY: the record was refused, so the hold is still this function's.
        let stream = unsafe { stream::held(held) };
        let _relaxed = driver.relax_capture();
        let _ = driver.free_async(native, stream.native());
        // SAFETY: as above.
        unsafe { stream::release_hold(held) };
    })
}

/// An error where the memory is not the pool's but of a graph: another thread began a capture of the stream after it was asked
/// whether it is captured.
#[cold]
fn refuse_recorded(
    order: &Order<'_>,
    driver: &'static Driver,
    stream: &Entered<Stream>,
    begun: u64,
    native: u64,
) -> Result<()> {
    // Without it the driver may refuse, and the last run then leaves the memory.
    let _entered = order.device.enter_relaxed(driver);
    if driver.pointer_facts(native).is_ok_and(|facts| facts.class == MemoryClass::Pool) {
        return Ok(());
    }
    let record = order.record(native, Kind::CudaMempool, NATURAL_ALIGNMENT).with_flags(OF_GRAPH);
    let uses = Uses { streams: vec![Use::on(stream)], ..Uses::default() };
    let mut stray = Some(parked::kept_by_graph(order.device, &record, Native(native), uses));
    let meanwhile = capture::began_meanwhile(stream, begun);
    for graph in meanwhile.graphs {
        stray = stray.and_then(|stray| graph.take_stray(driver, native, stray));
    }
    // Else of a graph that was released since. One that came to nothing has no memory, and its address may be another's.
    let end = if meanwhile.is_void { Keep::forget } else { Keep::give_back };
    stray.into_iter().for_each(end);
    Err(capture::fell_into_another(stream))
}

/// Memory of the graph that the stream is captured into. It has its address now, and exists in each run of the graph.
#[cold]
fn in_capture(order: &Order<'_>, driver: &'static Driver, stream: &Entered<Stream>) -> Result<u64> {
    let device = order.device;
    let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
    let mut in_use = None;
    let pool = pool_for(order.pool, device, &mut in_use)?;
    let Some(graph) = capture::of_stream(driver, stream)? else {
        fail!(
            IllegalInCapture,
            "the capture of the stream (id {}) ended while memory was asked of it on another thread",
            stream.id()
        );
    };
    if pool.handle_types() != 0 {
        return Err(not_from_an_exportable_pool(pool, order.size, graph.id()));
    }
    if graph.origin.no_allocations {
        fail!(
            IllegalInCapture,
            "an allocation of {} bytes in the capture {}, whose graph will be a part of another: only graphs that are launched themselves may allocate; allocate before the capture begins, or in the outer capture",
            order.size,
            graph.id()
        );
    }
    let me = stream.thread();
    let give_back = |record: &Record, native| {
        let _ = take_native(record);
        let _ = driver.free_async(native, stream.native());
        forget_holds(record);
    };
    caching::make_way();
    let mut unusable = Vec::new();
    let served = loop {
        let (record, native) = match record_alloc(order, driver, pool, stream, &graph) {
            Ok(allocated) => allocated,
            Err(error) => break Err(error),
        };
        // A block whose capture was broken never came into being and is still the caller's to free, by an address that the
        // driver has given out again: the free of the one would be that of the other.
        if super::is_void(super::find_anywhere(record.base())) {
            unusable.push((record, native));
            continue;
        }
        match order.ledger.insert_as(me.number(), &record) {
            Ok(()) => {
                statistics::count_alloc(order.ledger, me, &record);
                break Ok(record.base());
            }
            Err(InsertError::Overlap(old)) if super::is_void(Some(old.0)) => {
                unusable.push((record, native));
            }
            Err(_) => break settle(order.ledger, me, record, || give_back(&record, native)),
        }
    };
    unusable.iter().for_each(|(record, native)| give_back(record, *native));
    served
}

/// Puts one allocation into the capture, and makes its record.
fn record_alloc(
    order: &Order<'_>,
    driver: &'static Driver,
    pool: &Pool,
    stream: &Entered<Stream>,
    graph: &Entered<Graph>,
) -> Result<(Record, u64)> {
    let native =
        driver.alloc_from_pool(order.padded_size(), pool.native(), stream.native()).map_err(|f| {
            match f.is_not_supported() && !pool.is_created() {
                // Of a wrapped pool nobody told.
                true => not_from_an_exportable_pool(pool, order.size, graph.id()).with_driver_code(f.code),
                false => order.device.error(driver, f).context("an allocation in a capture"),
            }
        })?;
    let Some(node) = capture::node_of(driver, stream, native) else {
        let _ = driver.free_async(native, stream.native());
        fail!(DriverError, "the driver does not tell which node of the capture {} allocates", graph.id());
    };
    let (base, flags) = order.place(native);
    let (per_thread, thread) = own_thread(stream);
    graph.allocated(base, node);
    let record = order
        .record(base, Kind::CudaMempool, NATURAL_ALIGNMENT)
        .with_rule(Rule::GraphFixed as u8)
        .with_pool(pool.slot())
        .with_stream(stream.hold())
        .with_context(thread)
        .with_graph(graph.hold())
        .with_flags(flags | HOLDS_STREAM | per_thread | OF_GRAPH | NOT_YET);
    if driver.device_count() > 1 {
        reached::note(&record, driver.allocation_access(node));
    }
    Ok((record, native))
}

/// Why a capture cannot have memory of a pool whose memory can be exported: what a graph owns cannot.
#[cold]
fn not_from_an_exportable_pool(pool: &Pool, size: u64, capture: u64) -> Error {
    error!(
        IllegalInCapture,
        "an allocation of {size} bytes in the capture {capture}, which goes on: {} of \"{}\" makes memory that can be exported, and a graph's cannot; name a pool without handle types, or allocate before the capture begins",
        pool.name(),
        pool.device().alias()
    )
}

/// Plain device memory. Belongs to a stream like any other block: its free comes after that stream's work.
pub fn device(order: Order<'_>) -> Result<u64> {
    context_memory(order, Kind::CudaDevice, Driver::alloc_device)
}

/// Managed memory.
pub fn managed(order: Order<'_>) -> Result<u64> {
    context_memory(order, Kind::CudaManaged, Driver::alloc_managed)
}

fn context_memory(
    order: Order<'_>,
    kind: Kind,
    get: impl Fn(&Driver, usize) -> std::result::Result<u64, Failure>,
) -> Result<u64> {
    let device = order.device;
    let driver = device.require_cuda(kind.name())?;
    let mut current = None;
    let stream = stream_for(order.stream, device, &mut current)?;
    let _context = device.enter(driver)?;
    if stream.is_capturing(driver).map_err(|f| device.error(driver, f))? {
        return Err(not_in_a_capture(stream, kind));
    }
    let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
    parked::poll();
    let size = order.padded_size();
    let native = match get(driver, size) {
        Ok(native) => native,
        Err(failure) => shortage::retry(driver, &order.shortage(kind, None), failure, || get(driver, size))?,
    };
    let (base, flags) = order.place(native);
    let (per_thread, thread) = own_thread(stream);
    let held = stream.hold();
    let record = order
        .record(base, kind, NATURAL_ALIGNMENT)
        .with_stream(held)
        .with_context(thread)
        .with_flags(flags | HOLDS_STREAM | per_thread);
    settle(order.ledger, stream.thread(), record, || {
        let _ = driver.free_device(native);
        // SAFETY: the record was refused, so the hold is still this function's.
        unsafe { stream::release_hold(held) };
    })
}

/// Why a capture cannot have memory of a kind, before the driver is asked and the capture broken.
#[cold]
fn not_in_a_capture(stream: &Stream, kind: Kind) -> Error {
    let device = stream.device();
    let way = match kind {
        Kind::CudaDevice if !device.facts().memory_pools => {
            "the device has no memory pools, which graphs allocate from: allocate before the capture begins, or while it is paused"
        }
        Kind::CudaDevice if !device.mempool_enabled() => {
            "memory pools are switched off there: ask for WARP_MEMORY_CUDA_MEMPOOL, switch them on, or allocate before the capture begins"
        }
        Kind::CudaDevice => {
            "ask for WARP_MEMORY_CUDA_MEMPOOL, whose allocations become part of the graph, or allocate before the capture begins"
        }
        _ => "allocate before the capture begins, while it is paused, or on a stream that is not captured",
    };
    error!(
        IllegalInCapture,
        "{} memory cannot be allocated in the capture of the stream (id {}) of \"{}\", which goes on; {way}",
        kind.name(),
        stream.id(),
        device.alias()
    )
}

/// A block on the calling thread's own default stream says so, and whose it is.
#[inline]
pub fn own_thread(stream: &Stream) -> (u16, u32) {
    if stream.is_per_thread() { (PER_THREAD, stream::thread_mark()) } else { (0, 0) }
}

/// Page-locked host memory, seen by every context and owned by one that is held as long as the block lives.
pub fn pinned(order: Order<'_>) -> Result<u64> {
    let driver = runtime::driver_of_gpus().map_err(|mut e| {
        e.status = if e.status == crate::error::Status::NoSuchDevice {
            crate::error::Status::NotSupported
        } else {
            e.status
        };
        e.context("pinned memory needs a usable GPU; ask for WARP_MEMORY_HOST")
    })?;
    if let Some(id) = capture::of_this_thread() {
        fail!(
            IllegalInCapture,
            "page-locked memory cannot be allocated by a thread that captures (the capture {id} goes on): no run of the graph would allocate it again; allocate before the capture begins, while it is paused, or on another thread"
        );
    }
    let recording = if order.own_use { None } else { recording_on_cpu(order.size)? };
    let owner = pinned_owner(driver)?;
    let _entered = owner.enter_relaxed(driver)?;
    parked::poll();
    let native = match driver.alloc_pinned(order.padded_size()) {
        Ok(native) => native,
        Err(failure) if order.own_use => return Err(owner.error(driver, failure)),
        Err(failure) => {
            shortage::retry_pinned(driver, owner, &order.shortage(Kind::Pinned, None), failure, || {
                driver.alloc_pinned(order.padded_size())
            })?
        }
    };
    let (base, flags) = order.place(native);
    let record = order
        .record(base, Kind::Pinned, NATURAL_ALIGNMENT)
        .with_context(u32::from(owner.index()))
        .with_flags(flags | if order.own_use { OWN_USE } else { 0 });
    let block = settle(order.ledger, thread::mine(), record, || {
        let _ = driver.free_pinned(native);
    })?;
    keep_for(recording, order.ledger, &record);
    Ok(block)
}

/// What the calling thread records on the CPU: the graph keeps what is allocated there meanwhile, for its runs. An error when it is
/// to do without.
#[inline]
pub fn recording_on_cpu(size: u64) -> Result<Option<Entered<Graph>>> {
    match capture::of_cpu()? {
        Some(graph) if graph.origin.no_allocations => fail!(
            IllegalInCapture,
            "an allocation of {size} bytes in the capture {} of the CPU, which was begun with WARP_CAPTURE_NO_ALLOCATIONS and goes on; allocate before it begins, or while it is paused",
            graph.id()
        ),
        recording => Ok(recording),
    }
}

/// Has the graph keep a block that was entered just now. What an allocator gave directly is its taker's to keep.
#[inline]
pub fn keep_for(recording: Option<Entered<Graph>>, ledger: &Ledger, record: &Record) {
    if let Some(graph) = recording
        && std::ptr::eq(ledger, &LEDGER)
    {
        uses::note_graph(record, &graph);
    }
}

/// Whose context owns new pinned memory: the caller's current one, else a primary one that is held already,
/// else the default CUDA device's.
fn pinned_owner(driver: &'static Driver) -> Result<&'static Device> {
    let current = driver.current_context().map_err(|f| driver.error(f))?;
    if !current.is_null()
        && let Some(device) = device::of_context(driver, current)
    {
        return Ok(device);
    }
    let all = device::all();
    if let Some(held) = all.iter().find(|d| d.is_primary() && d.has_context()) {
        return Ok(held);
    }
    let default = device::default_device()?;
    if default.is_cuda() {
        return Ok(default);
    }
    all.into_iter().find(|d| d.is_cuda()).ok_or_else(|| {
        error!(NotSupported, "pinned memory needs a GPU and there is none; ask for WARP_MEMORY_HOST")
    })
}

/// Ordinary host memory.
pub fn host(order: Order<'_>) -> Result<u64> {
    let recording = recording_on_cpu(order.size)?;
    let mut out: *mut std::ffi::c_void = std::ptr::null_mut();
    let alignment = order.alignment.max(HOST_ALIGNMENT) as usize;
    // SAFETY: the alignment is a power of two and a multiple of a pointer's size.
    let code = unsafe { libc::posix_memalign(&mut out, alignment, order.size as usize) };
    if code != 0 || out.is_null() {
        let (available, total) = order.device.memory_info().unwrap_or((0, 0));
        fail!(
            OutOfMemory,
            "out of host memory on \"cpu\": asked {} bytes (HOST, aligned to {alignment}); available {available} of {total}",
            order.size
        );
    }
    let base = out.expose_provenance() as u64;
    let record = order.record(base, Kind::Host, HOST_ALIGNMENT);
    settle(order.ledger, thread::mine(), record, || free_host(base))?;
    keep_for(recording, order.ledger, &record);
    Ok(base)
}

/// Gives host memory back.
pub fn free_host(base: u64) {
    // SAFETY: the ledger names only addresses that `host` got and that were not freed.
    unsafe { libc::free(std::ptr::with_exposed_provenance_mut(base as usize)) };
}

/// Enters the block in the ledger and counts it, or gives the memory back.
#[inline]
fn settle(
    ledger: &Ledger,
    me: &'static thread::Record,
    record: Record,
    give_back: impl FnOnce(),
) -> Result<u64> {
    caching::make_way();
    match enter(ledger, me, &record) {
        Ok(()) => {
            statistics::count_alloc(ledger, me, &record);
            Ok(record.base())
        }
        Err(error) => {
            let _ = take_native(&record);
            give_back();
            Err(error)
        }
    }
}

impl Order<'_> {
    fn shortage<'p>(&self, kind: Kind, pool: Option<&'p Pool>) -> shortage::Shortage<'p> {
        shortage::Shortage { device: self.device, kind, size: self.size, pool }
    }
}
