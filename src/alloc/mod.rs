//! Raw memory: who serves a request, the ledger of what was served, and how it is given back.

mod builtin;
mod describe;
mod free;
mod parked;
mod reached;
mod shortage;
mod statistics;
mod uses;

pub use crate::kind::{Kind, Rule};
pub use crate::tag::intern;
pub use describe::{PointerInfo, describe, was_freed};
pub use free::{FreeOptions, free};
pub use parked::{look_at_all, poll};
pub use shortage::make_room;
pub use statistics::{reset_peak, statistics};
pub use uses::{record_use, record_use_by, record_use_of};

use crate::capture::{self, Graph};
use crate::device::Device;
use crate::driver::MemoryClass;
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::ledger::{InsertError, Ledger, Record};
use crate::log::log;
use crate::pool;
use crate::stream::{self, Stream};
use crate::thread;

/// Every live block of the process. Never dropped.
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

/// What a caller asks for.
#[derive(Default)]
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
    pub tag: u32,
}

/// The largest size that is asked of anybody: beyond it, arithmetic on addresses would wrap.
const LARGEST: u64 = i64::MAX as u64;
/// What every kind gives without being asked.
const NATURAL_ALIGNMENT: u64 = 256;
const HOST_ALIGNMENT: u64 = 64;

/// Serves a request. Size 0 is success with address 0, and nobody is asked.
pub fn allocate(device: &'static Device, request: Request<'_>) -> Result<u64> {
    let Request { size, alignment, kind, stream, pool, tag } = request;
    if size > LARGEST {
        fail!(SizeOverflow, "{size} bytes is more than any address space has (the limit is 2^63 - 1)");
    }
    if alignment != 0 && !alignment.is_power_of_two() {
        fail!(BadAlignment, "alignment {alignment} is not a power of two; 0 asks for the kind's own");
    }
    if size.checked_add(alignment).is_none_or(|sum| sum > LARGEST) {
        fail!(SizeOverflow, "{size} bytes aligned to {alignment} is more than any address space has");
    }
    let kind = kind_for(device, kind, pool)?;
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
    if size == 0 {
        return Ok(0);
    }
    let order = builtin::Order { device, size, alignment, stream, pool, tag };
    match kind {
        Kind::CudaMempool => builtin::mempool(order),
        Kind::Host => builtin::host(order),
        Kind::Pinned => builtin::pinned(order),
        Kind::CudaDevice => builtin::device(order),
        Kind::CudaManaged => builtin::managed(order),
        Kind::Unknown => fail!(Internal, "a request without a kind"),
    }
}

/// Which allocator serves: the kind that was asked for, that of a pool that was, else what is switched on.
#[inline]
pub fn kind_for(device: &Device, asked: Option<Kind>, pool: Option<&pool::Entered>) -> Result<Kind> {
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
    LEDGER.for_each(|record| {
        slots.insert(record.pool());
    });
    slots
}

/// Enters a new block in the ledger. Memory that the driver gave while we thought it in use shows that the old
/// block was freed behind our back: its record is stale.
#[inline]
fn enter(me: &'static thread::Record, record: &Record) -> Result<()> {
    loop {
        match LEDGER.insert_as(me.number(), record) {
            Ok(()) => return Ok(()),
            Err(InsertError::Overlap(overlap)) => drop_stale(&overlap.0, record),
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
}

#[cold]
fn drop_stale(old: &Record, new: &Record) {
    let removed = LEDGER.remove(old.base(), |now| if now == old { Ok(()) } else { Err(()) });
    if let Ok(old) = removed {
        log!(
            Warning,
            "the driver gave {:#x} although {} bytes at {:#x} were not freed here: other code freed them; the old record is dropped",
            new.base(),
            old.size(),
            old.base()
        );
        statistics::count_stale(&old);
        statistics::count_free(thread::mine(), &old);
        if crate::runtime::is_forked() {
            // A child only forgets: what its parent's blocks hold may be locked by threads that are not there.
            return;
        }
        forget_holds(&old);
        // A new block at the same address has entered its own padding already.
        if old.base() != new.base() {
            let _ = builtin::take_native(&old);
        }
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
        reached::forget(record);
        // SAFETY: the record had the hold and is gone.
        unsafe {
            capture::held(record.graph()).forget(record.base());
            capture::release_hold(record.graph());
        }
    }
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
    LEDGER.find(address).map(Block)
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

    /// The slot of the pool that it came from, 0 for none.
    pub fn pool(&self) -> u32 {
        self.0.pool()
    }

    /// Whether kernels of another GPU may touch it, as was so when its graph captured it.
    pub fn is_reached_by_graph(&self, ordinal: i32) -> bool {
        reached::may(&self.0, ordinal)
    }

    /// Bytes from the address to the block's end.
    pub fn rest(&self, address: u64) -> u64 {
        self.0.size() - (address - self.0.base())
    }
}

/// Notes that a graph has run: its block that begins at this address exists from now on.
pub fn born(base: u64) {
    LEDGER.update(base, |record| record.set_flags(record.flags() & !NOT_YET));
}

/// After a fork, in the child: what other threads of the parent were doing to the ledger and the tags is forgotten.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    LEDGER.after_fork_in_child();
    // SAFETY: the caller's promise.
    unsafe { crate::tag::mend_in_child() };
}
