//! Memory for other processes: which of it has a handle, and what of the block a handle stands for. What a handle opens is the
//! driver's whole block, so an address travels as a handle and an offset.

pub use crate::allocator::Exported;

use crate::alloc::{self, Block, Kind, Rule};
use crate::allocator;
use crate::device::{self, Device};
use crate::driver::{Driver, MemoryClass, RawContext};
use crate::error::{Error, Result, error, fail};
use crate::runtime;

/// The handle of the block that the address lies in.
pub fn export(address: u64) -> Result<Exported> {
    if address == 0 {
        fail!(
            InvalidArgument,
            "NULL has no handle for other processes; pass an address in a block of memory"
        );
    }
    let found = alloc::find(address);
    if let Some(block) = &found
        && let Some(exported) = export_by_allocator(address, block)?
    {
        return Ok(exported);
    }
    match found {
        // What an allocator did not say the driver tells.
        Some(block) if block.kind() != Kind::Unknown => export_block(address, &block),
        _ => export_foreign(address),
    }
}

/// By what its allocator tells of the block, if it does.
fn export_by_allocator(address: u64, block: &Block) -> Result<Option<Exported>> {
    // Once its handle is stale nobody is there to ask.
    let handle = block.allocator();
    let Ok(of) = allocator::enter(handle) else { return Ok(None) };
    // Asked now that it stays: a block that was freed meanwhile may be another allocator's.
    if alloc::find(address).is_none_or(|now| now.base() != block.base() || now.allocator() != handle) {
        return Ok(None);
    }
    let exported = of.export_ipc(block.base(), &block.request())?;
    Ok(exported.map(|exported| Exported {
        offset: exported.offset.saturating_add(address - block.base()),
        ..exported
    }))
}

fn export_block(address: u64, block: &Block) -> Result<Exported> {
    let (kind, rule) = (block.kind(), block.rule());
    if kind != Kind::CudaDevice || rule != Rule::Peer {
        return Err(refused(address, kind, rule));
    }
    if let Some(lost) = block.lost() {
        return Err(lost.lost_error());
    }
    let Some(home) = block.home() else { fail!(Internal, "a block of no device") };
    require_supported(home)?;
    let driver = home.require_cuda("a handle for other processes")?;
    let _relaxed = driver.relax_capture().map_err(|f| home.error(driver, f))?;
    ask(driver, address, home.context(driver)?)
}

fn export_foreign(address: u64) -> Result<Exported> {
    let driver = runtime::driver()?;
    let _relaxed = driver.relax_capture().map_err(|f| driver.error(f))?;
    let facts = driver.pointer_facts(address).map_err(|f| driver.error(f))?;
    require_plain(address, facts.class)?;
    if let Some(gpu) = device::primary_of(facts.ordinal) {
        require_supported(gpu)?;
    }
    ask(driver, address, facts.context)
}

/// An error for memory that the driver does not take for plain memory of a GPU.
fn require_plain(address: u64, class: MemoryClass) -> Result<()> {
    let (kind, rule) = match class {
        MemoryClass::Device => return Ok(()),
        MemoryClass::Unknown => return Err(unknown(address)),
        MemoryClass::Managed => (Kind::CudaManaged, Rule::Managed),
        MemoryClass::Host => (Kind::Pinned, Rule::Pinned),
        MemoryClass::HostPool => (Kind::Pinned, Rule::Pool),
        MemoryClass::Pool => (Kind::CudaMempool, Rule::Pool),
        MemoryClass::Mapping => (Kind::CudaDevice, Rule::Mapping),
        MemoryClass::Graph => (Kind::CudaMempool, Rule::GraphFixed),
    };
    Err(refused(address, kind, rule))
}

fn require_supported(gpu: &Device) -> Result<()> {
    if gpu.ipc_supported() {
        return Ok(());
    }
    fail!(
        NotSupported,
        "\"{}\" shares no memory by legacy handles (is_ipc_supported){}",
        gpu.alias(),
        if gpu.facts().mempool_handle_types != 0 {
            "; allocate from a memory pool that was created with handle_types"
        } else {
            "; pass the data by way of the host"
        }
    )
}

/// Asks in the memory's own context, on which the handle depends. The driver's block may begin before ours, and be longer.
fn ask(driver: &'static Driver, address: u64, context: RawContext) -> Result<Exported> {
    let failed = |f| match device::of_context(driver, context) {
        Some(device) => device.error(driver, f),
        None => driver.error(f),
    };
    let _current = driver.enter(context).map_err(failed)?;
    let facts = driver.pointer_facts(address).map_err(failed)?;
    require_plain(address, facts.class)?;
    let handle = driver.ipc_handle(address).map_err(|f| {
        if f.is_invalid_value() || f.is_not_supported() {
            return error!(
                NotSupported,
                "the driver gives no handle for the memory at {address:#x} ({}): that of another process, which was opened here, is not passed on; have the process that allocated it export it",
                driver.describe(f)
            )
            .with_driver_code(f.code);
        }
        failed(f).context("a handle for other processes")
    })?;
    Ok(Exported { handle, offset: address - facts.base, size: facts.size, ordinal: facts.ordinal })
}

#[cold]
fn unknown(address: u64) -> Error {
    let (was_freed, way) = if alloc::was_freed(address) {
        (" any more: it was freed before", "export it before it is freed")
    } else {
        ("", "memory of the host is shared by the system's own means (shm_open)")
    };
    error!(UnknownPointer, "{address:#x} lies in no block of a GPU that is known{was_freed}; {way}")
}

/// Why memory of this sort has no legacy handle, and how else it is shared.
#[cold]
fn refused(address: u64, kind: Kind, rule: Rule) -> Error {
    let way = match (kind, rule) {
        (_, Rule::GraphFixed) => {
            "memory of a graph stays in its process; copy it to a block of WARP_MEMORY_CUDA_DEVICE, and export that"
        }
        (_, Rule::Mapping) => "a mapping is shared by whoever made it, with cuMemExportToShareableHandle",
        (Kind::CudaMempool, _) => {
            "allocate it with WARP_MEMORY_CUDA_DEVICE, or from a memory pool that was created with handle_types, which is exported as a whole"
        }
        (Kind::CudaManaged, _) => "allocate it with WARP_MEMORY_CUDA_DEVICE",
        _ => {
            "memory of the host is shared by the system's own means (shm_open), and copied from and to there"
        }
    };
    let what = match rule {
        Rule::GraphFixed => "a graph's",
        Rule::Mapping => "a mapping of virtual memory management",
        _ => kind.name(),
    };
    error!(
        NotSupported,
        "{address:#x} lies in memory that has no legacy handle for other processes, {what}: {way}"
    )
}
