//! The ends of a copy: what lies at an address, as far as the ledger or the driver knows.

use crate::alloc::{self, Block, Kind};
use crate::capture::Graph;
use crate::device::{self, Device};
use crate::driver::MemoryClass;
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::runtime;
use crate::stream::Stream;

/// One end of a copy.
pub struct End {
    pub address: u64,
    /// The GPU whose memory it is, managed memory's home included; `None` for host memory.
    pub gpu: Option<&'static Device>,
    pub reach: Reach,
    /// The block of this library that it lies in.
    pub block: Option<Block>,
}

/// From where the driver's plain copy reaches memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// From the context of any GPU, by whatever way the driver finds: host, plain device and managed memory.
    Anywhere,
    /// As above, and every GPU has it as its own.
    Managed,
    /// Only from where it may be accessed: pools and mappings.
    Granted,
}

impl End {
    /// What the address is, and that the range stays in its block as far as that is known.
    pub fn find(address: u64, size: u64, what: &str) -> Result<End> {
        if address == 0 {
            fail!(InvalidArgument, "{what} is NULL, and {size} bytes are not nothing");
        }
        if size > i64::MAX as u64 || address.checked_add(size).is_none() {
            fail!(SizeOverflow, "{size} bytes at {address:#x} pass the end of the address space");
        }
        if let Some(block) = alloc::find(address) {
            let rest = block.rest(address);
            if size > rest {
                fail!(
                    InvalidArgument,
                    "{what}: {size} bytes at {address:#x} pass the end of the block of {} bytes at {:#x} by {}",
                    block.size(),
                    block.base(),
                    size - rest
                );
            }
            let gpu = block.device().filter(|d| d.is_cuda());
            // Page-locked pages are gone as well, and touching them would be a fault.
            if let Some(lost) = block.lost() {
                return Err(lost.lost_error());
            }
            let reach = match block.kind() {
                Kind::CudaManaged => Reach::Managed,
                Kind::CudaMempool => Reach::Granted,
                _ => Reach::Anywhere,
            };
            return Ok(End { address, gpu, reach, block: Some(block) });
        }
        End::find_foreign(address, size, what)
    }

    #[cold]
    fn find_foreign(address: u64, size: u64, what: &str) -> Result<End> {
        let host = End { address, gpu: None, reach: Reach::Anywhere, block: None };
        let Ok(driver) = runtime::driver() else { return Ok(host) };
        let facts = driver.pointer_facts(address).map_err(|f| driver.error(f))?;
        if matches!(facts.class, MemoryClass::Unknown | MemoryClass::Host) {
            // Else the CPU would touch it, and fault.
            if alloc::was_freed(address) {
                fail!(UnknownPointer, "{what} at {address:#x} was freed before; use it before it is freed");
            }
            return Ok(host);
        }
        if facts.size != 0 && address - facts.base + size > facts.size {
            fail!(
                InvalidArgument,
                "{what}: {size} bytes at {address:#x} pass the end of the driver's block of {} bytes at {:#x}",
                facts.size,
                facts.base
            );
        }
        let gpu = device::of_context(driver, facts.context).or_else(|| device::primary_of(facts.ordinal));
        let Some(gpu) = gpu else {
            fail!(
                NoSuchDevice,
                "{what} at {address:#x} is memory of GPU {}, which is not in the table",
                facts.ordinal
            )
        };
        let reach = match facts.class {
            MemoryClass::Managed => Reach::Managed,
            MemoryClass::Pool | MemoryClass::Mapping | MemoryClass::Graph => Reach::Granted,
            _ => Reach::Anywhere,
        };
        Ok(End { address, gpu: Some(gpu), reach, block: None })
    }

    /// Notes that work on the stream uses it, or runs of the graph that the stream is captured into. An error when it does
    /// not exist yet.
    pub fn note_use(&self, stream: &Entered<Stream>, graph: Option<&Entered<Graph>>) -> Result<()> {
        let Some(block) = self.block else { return Ok(()) };
        block.require_existing(graph)?;
        match graph {
            Some(graph) => alloc::record_use_by(self.address, graph),
            None => {
                alloc::record_use(self.address, stream);
                Ok(())
            }
        }
    }
}
