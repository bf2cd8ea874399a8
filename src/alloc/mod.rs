//! Raw memory: who serves a request, the ledger of what was served, and how it is given back.

mod builtin;
pub mod caching;
mod custom;
mod describe;
mod direct;
mod free;
mod owed;
mod parked;
mod patience;
mod reached;
mod returned;
mod shortage;
mod statistics;
mod uses;

pub use crate::kind::{Kind, Rule};
pub use crate::tag::intern;
pub use custom::{live_of, live_of_slot};
pub use describe::{PointerInfo, describe, describe_by_driver, was_freed};
pub use direct::{
    allocate_directly, builtin_allocator, deallocate_directly, device_of_context, effective_allocator, trim,
};
pub use free::{FreeOptions, free};
pub use owed::{after_a_wait, deliver_all};
pub use parked::{look_at_all, poll, poll_graphs, poll_seldom};
pub use shortage::{make_room, set_keeper_of_pinned};
pub use statistics::{reset_peak, statistics};
pub use uses::{record_use, record_use_by, record_use_of, record_use_of_block};

use crate::allocator::{self, Allocator};
use crate::capture::{self, Graph};
use crate::device::Device;
use crate::driver::MemoryClass;
use crate::error::{Result, fail};
use crate::handle::{Entered, Handle};
use crate::ledger::{InsertError, Ledger, Record};
use crate::log::log;
use crate::pool;
use crate::stream::{self, Stream};
use crate::thread;

/// Every block that a caller has. Never dropped.
static LEDGER: Ledger = Ledger::new();

/// A record says that streams beside its own used the block.
const USED_ELSEWHERE: u16 = 1;
/// The driver's address lies before the block's, for the sake of its alignment.
const PADDED: u16 = 2;
/// The block holds its stream.
const HOLDS_STREAM: u16 = 4;
/// The stream is its thread's own default stream.
const PER_THREAD: u16 = 8;
/// The block was allocated in a capture: it is its graph's, which the record holds.
const OF_GRAPH: u16 = 16;
/// The graph has not run yet, as far as is known, and the block does not exist.
const NOT_YET: u16 = 32;
/// An allocator of other code made the block, and not of what it had from this library.
const MADE_ELSEWHERE: u16 = 64;
/// The library has the block for itself: it is in no count of a caller's blocks.
const OWN_USE: u16 = 128;

/// What a caller asks for.
#[derive(Default, Clone, Copy)]
pub struct Request<'a> {
    pub size: u64,
    /// 0 for the kind's own, else a power of two.
    pub alignment: u64,
    /// `None` for the device's choice.
    pub kind: Option<Kind>,
    /// `None` for the current stream of the device.
    pub stream: Option<&'a Entered<Stream>>,
    /// `None` for what the device allocates from.
    pub pool: Option<&'a pool::Entered>,
    /// `None` for what serves the device.
    pub allocator: Option<&'a Entered<Allocator>>,
    pub tag: u32,
}

/// The largest size that is asked of anybody: beyond it, arithmetic on addresses would wrap.
const LARGEST: u64 = i64::MAX as u64;
/// What every kind gives without being asked.
const NATURAL_ALIGNMENT: u64 = 256;
const HOST_ALIGNMENT: u64 = 64;

/// Serves a request. Size 0 is success with address 0, and nobody is asked.
pub fn allocate(device: &'static Device, request: Request<'_>) -> Result<u64> {
    let installed = request.installed(device)?;
    let from = request.allocator.or(installed.as_ref());
    if let Some(from) = from {
        return allocate_by(device, &request, from);
    }
    request.check(device)?;
    let kind = kind_for(device, request.kind, request.pool)?;
    if request.size == 0 {
        return Ok(0);
    }
    builtin_of(kind, request.order(device, &LEDGER))
}

/// As `allocate`, by an allocator that is named or installed.
#[inline(never)]
fn allocate_by(device: &'static Device, request: &Request<'_>, from: &Entered<Allocator>) -> Result<u64> {
    request.check(device)?;
    let kind = kind_by(device, request, from)?;
    if request.size == 0 {
        return Ok(0);
    }
    let order = request.order(device, &LEDGER);
    match from.builtin() {
        Some(_) => builtin_of(kind, order),
        None => custom::allocate(order, from),
    }
}

fn builtin_of(kind: Kind, order: builtin::Order<'_>) -> Result<u64> {
    match kind {
        Kind::CudaMempool => builtin::mempool(order),
        Kind::Host => builtin::host(order),
        Kind::Pinned => builtin::pinned(order),
        Kind::CudaDevice => builtin::device(order),
        Kind::CudaManaged => builtin::managed(order),
        Kind::Unknown => fail!(Internal, "a request without a kind"),
    }
}

/// Page-locked memory for the library itself, which can do without: where it is short none is waited for, nor given back by others. It
/// is in no count of blocks.
pub fn allocate_pinned_for_own_use(size: u64, tag: u32) -> Result<u64> {
    let request = Request { size, tag, ..Request::default() };
    let order = request.order(direct::device_of_context(true)?, &LEDGER);
    builtin::pinned(builtin::Order { own_use: true, ..order })
}

impl<'a> Request<'a> {
    /// What serves it where it names nothing: what the thread or the device has, `None` for the built-in one.
    #[inline]
    fn installed(&self, device: &Device) -> Result<Option<Entered<Allocator>>> {
        if self.allocator.is_some() || self.kind.is_some() || self.pool.is_some() {
            return Ok(None);
        }
        allocator::effective(device)
    }

    /// An error for numbers that nobody can serve.
    #[inline]
    fn check(&self, device: &'static Device) -> Result<()> {
        let Request { size, alignment, stream, .. } = *self;
        if size > LARGEST {
            fail!(SizeOverflow, "{size} bytes is more than any address space has (the limit is 2^63 - 1)");
        }
        if alignment != 0 && !alignment.is_power_of_two() {
            fail!(BadAlignment, "alignment {alignment} is not a power of two; 0 asks for the kind's own");
        }
        if size.checked_add(alignment).is_none_or(|sum| sum > LARGEST) {
            fail!(SizeOverflow, "{size} bytes aligned to {alignment} is more than any address space has");
        }
        if let Some(stream) = stream
            && !std::ptr::eq(stream.device(), device)
        {
            fail!(
                InvalidArgument,
                "the stream belongs to \"{}\", the memory is asked of \"{}\"; use a stream of that device",
                stream.device().alias(),
                device.alias()
            );
        }
        Ok(())
    }

    #[inline]
    fn order(&self, device: &'static Device, ledger: &'a Ledger) -> builtin::Order<'a> {
        let Request { size, alignment, stream, pool, tag, .. } = *self;
        builtin::Order { device, size, alignment, stream, pool, tag, own_use: false, ledger }
    }
}

/// The kind of what a request would be served with; unknown where an allocator of other code does not say.
pub fn kind_of(device: &Device, request: &Request<'_>) -> Result<Kind> {
    let installed = request.installed(device)?;
    match request.allocator.or(installed.as_ref()) {
        Some(from) => kind_by(device, request, from),
        None => kind_for(device, request.kind, request.pool),
    }
}

/// The kind of what an allocator makes for a request, if it may serve that.
#[inline]
fn kind_by(device: &Device, request: &Request<'_>, from: &Allocator) -> Result<Kind> {
    let traits = from.traits();
    if request.pool.is_none()
        && request.kind.is_none()
        && traits.host != device.is_cuda()
        && from.builtin().is_none()
    {
        return Ok(traits.kind.unwrap_or(Kind::Unknown));
    }
    kind_by_all(device, request, from)
}

fn kind_by_all(device: &Device, request: &Request<'_>, from: &Allocator) -> Result<Kind> {
    if request.pool.is_some() {
        fail!(InvalidArgument, "a memory pool and {} are named; name one of them", from.title());
    }
    let traits = from.traits();
    let asked = request.kind.filter(|kind| *kind != Kind::Unknown);
    if let Some(asked) = asked
        && traits.kind != Some(asked)
    {
        fail!(
            InvalidArgument,
            "{} memory is asked of {}, which {}; leave the kind at 0, or name no allocator",
            asked.name(),
            from.title(),
            traits.kind.map_or("does not say what it makes".into(), |kind| format!("makes {}", kind.name()))
        );
    }
    if traits.host == device.is_cuda() {
        let way = if traits.host { "ask it of the device \"cpu\"" } else { "ask it of a device \"cuda:N\"" };
        fail!(
            InvalidArgument,
            "{} makes {} memory, not memory of \"{}\"; {way}",
            from.title(),
            if traits.host { "host" } else { "GPU" },
            device.alias()
        );
    }
    match from.builtin() {
        Some(kind) => kind_for(device, Some(kind), None),
        None => Ok(traits.kind.unwrap_or(Kind::Unknown)),
    }
}

/// Which built-in allocator serves: the kind that was asked for, that of a pool that was, else what is switched on.
#[inline]
fn kind_for(device: &Device, asked: Option<Kind>, pool: Option<&pool::Entered>) -> Result<Kind> {
    if let Some(pool) = pool {
        return kind_of_pool(device, asked, pool);
    }
    let Some(kind) = asked.filter(|kind| *kind != Kind::Unknown) else {
        return Ok(match (device.mempool_enabled(), device.is_cuda()) {
            (true, _) => Kind::CudaMempool,
            (false, true) => Kind::CudaDevice,
            (false, false) => Kind::Host,
        });
    };
    if kind.is_host() == device.is_cuda() {
        let (belongs, way) = if kind.is_host() {
            ("the CPU", "ask it of the device \"cpu\"")
        } else {
            ("a GPU", "ask it of a device \"cuda:N\"")
        };
        fail!(
            InvalidArgument,
            "{} memory belongs to {belongs}, not to \"{}\"; {way}",
            kind.name(),
            device.alias()
        );
    }
    if kind == Kind::CudaMempool && !device.facts().memory_pools {
        fail!(
            NotSupported,
            "\"{}\" has no memory pools; ask for WARP_MEMORY_CUDA_DEVICE, or for no kind",
            device.alias()
        );
    }
    if kind == Kind::CudaManaged && !device.facts().managed_memory {
        fail!(
            NotSupported,
            "\"{}\" does not support managed memory; ask for WARP_MEMORY_CUDA_DEVICE, or for no kind",
            device.alias()
        );
    }
    Ok(kind)
}

/// A pool serves what it is named for, whether pools are switched on or not.
#[inline(never)]
fn kind_of_pool(device: &Device, asked: Option<Kind>, pool: &pool::Entered) -> Result<Kind> {
    match asked {
        None | Some(Kind::Unknown | Kind::CudaMempool) => {}
        Some(kind) => fail!(
            InvalidArgument,
            "{} memory does not come from a memory pool, and one is named; name no pool, or ask for WARP_MEMORY_CUDA_MEMPOOL",
            kind.name()
        ),
    }
    pool.require_on(device)?;
    Ok(Kind::CudaMempool)
}

/// The slots of pools that records name, graphs' included.
pub fn pools_in_records() -> std::collections::HashSet<u32> {
    let mut slots = std::collections::HashSet::new();
    let mut note = |record: Record| {
        slots.insert(record.pool());
    };
    LEDGER.for_each(&mut note);
    direct::RESERVES.for_each(note);
    slots
}

/// Enters a new block in the ledger. Memory that the driver gave while we thought it in use shows that the old
/// block was freed behind our back: its record is stale.
#[inline]
fn enter(ledger: &Ledger, me: &'static thread::Record, record: &Record) -> Result<()> {
    while let Some(stale) = enter_unless_stale(ledger, me, record)? {
        drop_stale(ledger, &stale, record);
    }
    Ok(())
}

/// As `enter`, or gives the stale record that is in the way; to drop that calls other code.
#[inline]
fn enter_unless_stale(
    ledger: &Ledger,
    me: &'static thread::Record,
    record: &Record,
) -> Result<Option<Record>> {
    match ledger.insert_as(me.number(), record) {
        Ok(()) => Ok(None),
        Err(InsertError::Overlap(overlap)) => Ok(Some(overlap.0)),
        Err(InsertError::OutOfMemory) => fail!(OutOfMemory, "no host memory for the record of a block"),
        Err(InsertError::AddressRange) => {
            fail!(
                DriverError,
                "the driver gave {} bytes at {:#x}, past the end of the address space",
                record.size(),
                record.base()
            )
        }
    }
}

#[cold]
fn drop_stale(ledger: &Ledger, old: &Record, new: &Record) {
    let removed = ledger.remove(old.base(), |now| if now == old { Ok(()) } else { Err(()) });
    if let Ok(old) = removed {
        log!(
            Warning,
            "the driver gave {:#x} although {} bytes at {:#x} were not freed here: other code freed them; the old record is dropped",
            new.base(),
            old.size(),
            old.base()
        );
        statistics::count_stale(&old);
        statistics::count_free(ledger, thread::mine(), &old);
        if crate::runtime::is_forked() {
            // A child only forgets: what its parent's blocks hold may be locked by threads that are not there.
            return;
        }
        // A new block at the same address has entered its own padding already.
        if old.base() != new.base() {
            let _ = builtin::take_native(&old);
        }
        custom::drop_holds(old);
    }
}

/// Lets go of the streams and graphs that a record held, when its memory is not to be given back.
fn forget_holds(record: &Record) {
    if record.flags() & USED_ELSEWHERE != 0 {
        uses::take(record.base()).let_go();
    }
    forget_graph(record);
    if record.flags() & HOLDS_STREAM != 0 {
        // SAFETY: the record had the hold and is gone.
        unsafe { stream::release_hold(record.stream()) };
    }
}

/// Lets go of the graph that a removed record's block was allocated in, if it was.
fn forget_graph(record: &Record) {
    if record.flags() & OF_GRAPH != 0 {
        // What an allocator handed on is known to the graph as what it was made from.
        if record.allocator() == 0 {
            reached::forget(record);
            // SAFETY: the record has the hold.
            unsafe { capture::held(record.graph()) }.forget(record.base());
        }
        // SAFETY: the record had the hold and is gone.
        unsafe { capture::release_hold(record.graph()) };
    }
}

/// Whether it is a block whose capture came to nothing, and which nobody has freed.
fn is_void(block: Option<Record>) -> bool {
    block.is_some_and(|block| block.flags() & OF_GRAPH != 0 && capture::is_void(block.graph()))
}

/// The block of a caller's at an address, or what an allocator had directly.
fn find_anywhere(address: u64) -> Option<Record> {
    caching::find(address).or_else(|| direct::RESERVES.find(address))
}

/// The device in whose context a block was made: for page-locked memory, which belongs to the CPU, a GPU.
fn owner_of(record: &Record) -> Option<&'static Device> {
    let index =
        if Kind::of_record(record) == Kind::Pinned { record.context() as u16 } else { record.device() };
    crate::device::at(index)
}

/// The record of the block that an address lies in.
#[inline]
pub fn find(address: u64) -> Option<Block> {
    caching::find(address).map(Block)
}

/// A live block as other rooms see it.
#[derive(Debug, Clone, Copy)]
pub struct Block(Record);

impl Block {
    pub fn base(&self) -> u64 {
        self.0.base()
    }

    pub fn size(&self) -> u64 {
        self.0.size()
    }

    pub fn kind(&self) -> Kind {
        Kind::of_record(&self.0)
    }

    pub fn rule(&self) -> Rule {
        Rule::of_record(&self.0)
    }

    pub fn device(&self) -> Option<&'static Device> {
        crate::device::at(self.0.device())
    }

    /// The device in whose context it was made: for page-locked memory, which belongs to the CPU, a GPU.
    pub fn home(&self) -> Option<&'static Device> {
        owner_of(&self.0)
    }

    /// Whether the device is both the block's and the one in whose context it was made, and that is not known to be gone.
    #[inline]
    pub fn is_made_on(&self, device: &Device) -> bool {
        self.0.device() == device.index() && self.kind() != Kind::Pinned && !device.is_lost()
    }

    /// The device whose context died with the block in it.
    pub fn lost(&self) -> Option<&'static Device> {
        self.home().filter(|home| home.is_lost())
    }

    /// An error when the block is a graph's that has not run yet, unless `recording` is that graph: then what uses the
    /// block comes after its allocation in every run.
    pub fn require_existing(&self, recording: Option<&Entered<Graph>>) -> Result<()> {
        if self.0.flags() & NOT_YET == 0 || recording.is_some_and(|graph| graph.index() == self.0.graph()) {
            return Ok(());
        }
        // What other code launched is not seen here; the driver knows.
        if let Ok(driver) = crate::runtime::driver()
            && driver.pointer_facts(self.0.base()).is_ok_and(|facts| facts.class == MemoryClass::Graph)
        {
            born(self.0.base());
            return Ok(());
        }
        if capture::is_void(self.0.graph()) {
            fail!(
                InvalidArgument,
                "the block of {} bytes at {:#x} was allocated in a capture that was given up or failed, and never came into being; all that is left is to free it",
                self.size(),
                self.base()
            );
        }
        fail!(
            InvalidArgument,
            "the block of {} bytes at {:#x} is a graph's that has not been launched: its memory comes into being with the first launch; launch the graph, or record this in the capture that allocated the block",
            self.size(),
            self.base()
        )
    }

    /// The allocator of other code that made it; 0 for a built-in one.
    pub fn allocator(&self) -> Handle {
        custom::handle_of(&self.0)
    }

    /// What its allocator was asked for it.
    pub fn request(&self) -> allocator::Request<'static> {
        returned::request_of(&self.0, None, 0)
    }

    /// Whether only the driver knows who may touch it: other code made it, of the driver's memory.
    pub fn is_made_elsewhere(&self) -> bool {
        self.0.flags() & MADE_ELSEWHERE != 0
    }

    /// The slot of the pool that it came from, 0 for none.
    pub fn pool(&self) -> u32 {
        self.0.pool()
    }

    /// Whether kernels of another GPU may touch it, as was so when its graph captured it.
    pub fn is_reached_by_graph(&self, ordinal: i32) -> bool {
        // A graph knows what an allocator hands on as what it was made from.
        let made_from = if self.0.allocator() == 0 { None } else { direct::RESERVES.find(self.0.base()) };
        reached::may(&made_from.unwrap_or(self.0), ordinal)
    }

    /// Bytes from the address to the block's end.
    pub fn rest(&self, address: u64) -> u64 {
        self.0.size() - (address - self.0.base())
    }
}

/// Notes that a graph has run: its block that begins at this address exists from now on.
pub fn born(base: u64) {
    for ledger in [&LEDGER, &direct::RESERVES] {
        ledger.update(base, |record| record.set_flags(record.flags() & !NOT_YET));
    }
}

/// After a fork, in the child: what other threads of the parent were doing to the ledger and the tags is forgotten.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    LEDGER.after_fork_in_child();
    // SAFETY: the caller's promise.
    unsafe {
        direct::mend_in_child();
        uses::mend_in_child();
        owed::mend_in_child();
        caching::mend_in_child();
        crate::cache::mend_in_child();
        crate::tag::mend_in_child();
    }
}
