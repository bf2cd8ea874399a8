//! The ends of a copy: what lies at an address, as far as the ledger or the driver knows.

use crate::alloc::{self, Block, Kind};
use crate::capture::Graph;
use crate::device::{self, Device};
use crate::driver::{Driver, MemoryClass};
use crate::error::{Result, Status, fail};
use crate::handle::Entered;
use crate::peer;
use crate::runtime;
use crate::stream::Stream;

/// The memory at one end of a copy.
pub struct End {
    /// The first byte that is used.
    pub address: u64,
    /// Bytes from the first to the last that is used.
    pub size: u64,
    /// The GPU whose memory it is, managed memory's home included; `None` for host memory.
    pub gpu: Option<&'static Device>,
    pub reach: Reach,
    /// The block of this library that it lies in.
    pub block: Option<Block>,
}

/// Who reaches memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Ordinary memory of the host.
    Pageable,
    /// Memory of the host that other code registered by halves, or that GPUs have at another address. The driver may use it
    /// after its call, and kernels are not sent there.
    Registered,
    /// Page-locked memory of the host.
    Locked,
    /// Every GPU has it as its own.
    Managed,
    /// Memory of a GPU that the driver's plain copy finds from the context of any other.
    Plain,
    /// Pools and mappings: only from where it may be accessed.
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
                Kind::Pinned => Reach::Locked,
                _ if gpu.is_none() => Reach::Pageable,
                _ => Reach::Plain,
            };
            return Ok(End { address, size, gpu, reach, block: Some(block) });
        }
        End::find_foreign(address, size, what)
    }

    #[cold]
    fn find_foreign(address: u64, size: u64, what: &str) -> Result<End> {
        let host = |reach| End { address, size, gpu: None, reach, block: None };
        let Ok(driver) = runtime::driver() else { return Ok(host(Reach::Pageable)) };
        let facts = driver.pointer_facts(address).map_err(|f| driver.error(f))?;
        if matches!(facts.class, MemoryClass::Unknown | MemoryClass::Host | MemoryClass::HostPool) {
            // Else the CPU would touch it, and fault.
            if alloc::was_freed(address) {
                fail!(UnknownPointer, "{what} at {address:#x} was freed before; use it before it is freed");
            }
            if facts.class != MemoryClass::Host {
                return Ok(host(Reach::Pageable));
            }
            let locked = facts.device_pointer == address
                && facts.size != 0
                && address - facts.base + size <= facts.size;
            return Ok(host(if locked { Reach::Locked } else { Reach::Registered }));
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
            _ => Reach::Plain,
        };
        Ok(End { address, size, gpu: Some(gpu), reach, block: None })
    }

    pub fn is_host(&self) -> bool {
        self.gpu.is_none()
    }

    /// The GPU that alone is sure to reach it. Every GPU reaches managed memory.
    pub fn own_gpu(&self) -> Option<&'static Device> {
        self.gpu.filter(|_| self.reach != Reach::Managed)
    }

    pub fn is_at_home(&self, device: &Device) -> bool {
        self.gpu.is_some_and(|gpu| gpu.ordinal() == device.ordinal())
    }

    /// Whether kernels of the GPU may touch it.
    pub fn is_reached_by(&self, driver: &Driver, gpu: &'static Device) -> Result<bool> {
        match self.reach {
            Reach::Pageable | Reach::Registered => Ok(false),
            Reach::Managed => Ok(true),
            // What other code registered may be so for one context alone.
            Reach::Locked if self.block.is_some() => Ok(true),
            Reach::Plain | Reach::Granted if self.is_at_home(gpu) => Ok(true),
            _ => match peer::is_address_reached(driver, gpu, self.address) {
                // A driver that cannot tell stages what it has to.
                Err(error) if error.status == Status::NotSupported => Ok(false),
                answer => answer,
            },
        }
    }

    /// Whether it shares bytes with another end. What two addresses of one GPU have in common, the ranges show.
    pub fn meets(&self, other: &End) -> bool {
        self.address < other.address + other.size && other.address < self.address + self.size
    }

    /// Notes that work on the stream uses it, or runs of the graph that the stream is captured into. An error when it does
    /// not exist yet.
    pub fn note_use(&self, stream: &Entered<Stream>, graph: Option<&Entered<Graph>>) -> Result<()> {
        let Some(block) = &self.block else { return Ok(()) };
        block.require_existing(graph)?;
        match graph {
            Some(graph) => alloc::record_use_by(self.address, graph),
            None => {
                alloc::record_use_of_block(block, stream);
                Ok(())
            }
        }
    }
}
