//! The state of the simulated machine and driver. Everything lives here, under one lock.
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::block::Blocks;
use crate::capture::Capture;
use crate::codes::{self, Code};
use crate::context::Context;
use crate::event::Event;
use crate::fault::Faults;
use crate::graph::{Graph, Placed};
use crate::graph_memory::GraphMemory;
use crate::handle::Handles;
use crate::launch::Executable;
use crate::module::{Function, Library, LibraryKernel, Module};
use crate::order::Order;
use crate::pool::Pool;
use crate::record::Log;
use crate::schedule::Schedule;
use crate::space::{ALIGNMENT, HostSpace, Space, StoreId};
use crate::store::Store;
use crate::stream::Stream;
use crate::topology::{Gpu, Topology};
use crate::trouble::Trouble;
use crate::user_object::{Destructor, UserObject};
use crate::vmm::Physical;

/// Where the address ranges begin: above the shadow memory of AddressSanitizer, below where programs are loaded.
const HOST_BASE: u64 = 0x2100 << 32;
const DEVICE_BASE: u64 = 0x2200 << 32;
const DEVICE_SPAN: u64 = 0x100 << 32;

/// One simulated GPU at work.
pub struct Device {
    pub gpu: Gpu,
    /// Addresses of plain allocations; those of pools lie apart from them.
    pub space: Space,
    pub pool_space: Space,
    /// Bytes taken from the device: plain allocations, what pools hold, physical allocations.
    pub used: u64,
    /// The handle of the primary context, the same through all its lives.
    pub primary: u64,
    pub default_pool: u64,
    pub current_pool: u64,
}

/// Everything.
pub struct World {
    pub topology: Topology,
    /// Why the asked topology could not be read.
    pub topology_error: Option<String>,
    /// Entry points that this driver does not have.
    pub hidden: BTreeSet<String>,
    pub initialized: bool,
    /// The driver is gone, as it is late at exit.
    pub gone: bool,
    pub faults: Faults,
    pub log: Log,
    pub devices: Vec<Device>,
    pub contexts: Handles<Context>,
    /// From stream handles to stream numbers; a destroyed stream keeps its number until its work is done.
    pub stream_handles: Handles<u64>,
    pub streams: BTreeMap<u64, Stream>,
    /// Numbers of the streams that have work waiting.
    pub busy: Vec<u64>,
    /// A synchronise releases the held streams that it waits for; otherwise it waits for another thread to do so.
    pub auto_release: bool,
    /// Which work is run when.
    pub schedule: Schedule,
    /// What precedes what.
    pub order: Order,
    pub events: Handles<Event>,
    /// Captures that have not ended, by their ids.
    pub captures: BTreeMap<u64, Capture>,
    pub graphs: Handles<Graph>,
    pub nodes: Handles<Placed>,
    /// From handles of executables to their numbers; a destroyed one keeps its number until its launches are done.
    pub execs: Handles<u64>,
    pub executables: BTreeMap<u64, Executable>,
    pub graph_memory: GraphMemory,
    pub user_objects: Handles<UserObject>,
    /// Destructors of user objects that are to be called.
    pub destructors: VecDeque<Destructor>,
    pub modules: Handles<Module>,
    pub functions: Handles<Function>,
    pub libraries: Handles<Library>,
    pub library_kernels: Handles<LibraryKernel>,
    /// Instructions that a kernel may run.
    pub kernel_limit: u64,
    /// A kernel did what no kernel may.
    pub trouble: Trouble,
    pub pools: Handles<Pool>,
    pub stores: Vec<Store>,
    pub free_stores: Vec<StoreId>,
    pub blocks: Blocks,
    pub host: HostSpace,
    pub pinned_bytes: u64,
    /// Some GPU closes managed memory while it works.
    pub has_fence: bool,
    /// Managed memory is closed to the CPU at present.
    pub fenced: bool,
    pub physicals: Handles<Physical>,
    /// Reserved address ranges for mappings: base to length.
    pub reservations: BTreeMap<u64, crate::vmm::Reservation>,
    /// Shared files by inode, for import in this process.
    pub shared: BTreeMap<u64, crate::share::Shared>,
    /// What a program did that a real machine would punish later or not at all.
    pub violations: Vec<String>,
    next_id: u64,
}

impl World {
    /// The world before `cuInit`, as the environment asks for it.
    pub fn new() -> World {
        let mut world = World {
            topology: Topology::parse("").unwrap_or_else(|_| unreachable!("the default topology")),
            topology_error: None,
            hidden: BTreeSet::new(),
            initialized: false,
            gone: false,
            faults: Faults::from_environment(),
            log: Log::from_environment(),
            devices: Vec::new(),
            contexts: Handles::new(),
            stream_handles: Handles::new(),
            streams: BTreeMap::new(),
            busy: Vec::new(),
            auto_release: true,
            schedule: Schedule::from_environment(),
            order: Order::from_environment(),
            events: Handles::new(),
            captures: BTreeMap::new(),
            graphs: Handles::new(),
            nodes: Handles::new(),
            execs: Handles::new(),
            executables: BTreeMap::new(),
            graph_memory: GraphMemory::default(),
            user_objects: Handles::new(),
            destructors: VecDeque::new(),
            modules: Handles::new(),
            functions: Handles::new(),
            libraries: Handles::new(),
            library_kernels: Handles::new(),
            kernel_limit: crate::kernel::LIMIT,
            trouble: Trouble::default(),
            pools: Handles::new(),
            stores: Vec::new(),
            free_stores: Vec::new(),
            blocks: Blocks::default(),
            host: HostSpace::new(HOST_BASE),
            pinned_bytes: 0,
            has_fence: false,
            fenced: false,
            physicals: Handles::new(),
            reservations: BTreeMap::new(),
            shared: BTreeMap::new(),
            violations: Vec::new(),
            next_id: 0,
        };
        let text = std::env::var("WARPSIM_TOPOLOGY").unwrap_or_default();
        if let Err(reason) = world.set_topology(&text) {
            eprintln!("warpsim: WARPSIM_TOPOLOGY: {reason}");
            world.topology_error = Some(reason);
        }
        world
    }

    /// Chooses the machine. Only before `cuInit`.
    ///
    /// # Errors
    /// A sentence that names what was not understood, or that it is too late.
    pub fn set_topology(&mut self, text: &str) -> Result<(), String> {
        if self.initialized {
            return Err("the driver is initialised already; call warpsim_reset first".into());
        }
        self.topology = Topology::parse(text)?;
        self.topology_error = None;
        self.hidden = self.topology.missing.iter().cloned().collect();
        self.hidden.extend(crate::symbol::newer_than(self.topology.driver).map(str::to_owned));
        Ok(())
    }

    /// Builds the machine; what `cuInit` does.
    ///
    /// # Errors
    /// The code the topology asks for, unknown for a topology that could not be read.
    pub fn initialize(&mut self) -> Result<(), Code> {
        if self.initialized {
            return Ok(());
        }
        if self.topology_error.is_some() {
            return Err(codes::UNKNOWN);
        }
        if self.topology.init_code != codes::SUCCESS {
            return Err(self.topology.init_code);
        }
        if self.topology.gpus.is_empty() {
            return Err(codes::NO_DEVICE);
        }
        for (ordinal, gpu) in self.topology.gpus.clone().into_iter().enumerate() {
            let base = DEVICE_BASE + ordinal as u64 * DEVICE_SPAN;
            let space = Space::new(base, ALIGNMENT);
            let pool_space = Space::new(base + DEVICE_SPAN / 2, ALIGNMENT);
            let primary = self.contexts.insert(|handle| Context::primary(handle, ordinal))?;
            let default_pool = self.pools.insert(|handle| Pool::of_device(handle, ordinal))?;
            self.devices.push(Device {
                gpu,
                space,
                pool_space,
                used: 0,
                primary,
                default_pool,
                current_pool: default_pool,
            });
        }
        self.has_fence =
            self.devices.iter().any(|device| !device.gpu.has(crate::attribute::CONCURRENT_MANAGED_ACCESS));
        self.initialized = true;
        crate::call::mark_process();
        Ok(())
    }

    /// A number that was never given out before.
    pub fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// # Errors
    /// Invalid device for an ordinal that is none.
    pub fn device(&self, ordinal: i32) -> Result<&Device, Code> {
        usize::try_from(ordinal)
            .ok()
            .and_then(|ordinal| self.devices.get(ordinal))
            .ok_or(codes::INVALID_DEVICE)
    }

    /// # Errors
    /// Invalid device for an ordinal that is none.
    pub fn ordinal(&self, ordinal: i32) -> Result<usize, Code> {
        self.device(ordinal).map(|_| ordinal as usize)
    }

    pub fn new_store(&mut self) -> StoreId {
        if let Some(id) = self.free_stores.pop() {
            return id;
        }
        self.stores.push(Store::new(self.topology.fresh_byte));
        (self.stores.len() - 1) as StoreId
    }

    /// Takes device address space with a store behind it.
    ///
    /// # Errors
    /// Out of memory when the kernel has no address space left.
    pub fn take_space(&mut self, device: usize, size: u64, pool: bool) -> Result<crate::space::Slot, Code> {
        let World { devices, stores, topology, .. } = self;
        let Device { space, pool_space, .. } = &mut devices[device];
        let space = if pool { pool_space } else { space };
        space.take(size, &mut || {
            stores.push(Store::new(topology.fresh_byte));
            (stores.len() - 1) as StoreId
        })
    }

    /// Counts `bytes` as taken from the device, or refuses as a full device or a planned failure would.
    ///
    /// # Errors
    /// Out of memory.
    pub fn charge(&mut self, device: usize, bytes: u64) -> Result<(), Code> {
        if let Some(limit) = self.faults.total_limit {
            let total: u64 = self.devices.iter().map(|device| device.used).sum();
            if total.saturating_add(bytes) > limit {
                return Err(codes::OUT_OF_MEMORY);
            }
        }
        let device = &mut self.devices[device];
        let used = device.used.checked_add(bytes).ok_or(codes::OUT_OF_MEMORY)?;
        if used > device.gpu.memory {
            return Err(codes::OUT_OF_MEMORY);
        }
        device.used = used;
        Ok(())
    }

    /// Whether a request of this size is one that a test wants to fail.
    ///
    /// # Errors
    /// Out of memory.
    pub fn admit_size(&self, size: u64) -> Result<(), Code> {
        match self.faults.size_limit {
            Some(limit) if size >= limit => Err(codes::OUT_OF_MEMORY),
            _ => Ok(()),
        }
    }

    pub fn violation(&mut self, text: String) {
        self.violations.push(text);
    }
}
