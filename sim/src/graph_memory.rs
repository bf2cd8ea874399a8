//! The memory of allocation nodes: addresses that stay the same for all launches, and what physical memory they take.
//!
//! A graph's addresses come from arenas of its own; an arena is used again when its graph, its executables and all memory
//! in it are gone. Memory exists from a launch to its free: a live block of [`Kind::Graph`], as of any other kind. What it
//! takes of the device is counted in chunks of arenas, and kept until a trim.
use std::collections::{BTreeMap, BTreeSet};

use crate::api::pool::AccessDescription;
use crate::block::{Kind, Place};
use crate::codes::{self, Code};
use crate::pool::READ_WRITE;
use crate::reserve::Range;
use crate::space::{ALIGNMENT, StoreId};
use crate::work::Operand;
use crate::world::World;

/// Physical memory is counted in these.
const CHUNK: u64 = 32 << 20;
/// The addresses that a graph takes at once.
const ARENA: u64 = 256 << 20;
/// What allocation nodes can take of a device's addresses in all.
const ADDRESSES: u64 = 256 << 30;
const BASE: u64 = 0x2300 << 32;
const SPAN: u64 = 0x100 << 32;

/// Addresses of one graph, or of none until the next one.
struct Arena {
    device: usize,
    range: Range,
    store: StoreId,
    /// The graph, its executables, live blocks.
    users: usize,
}

/// The memory of one allocation node.
#[derive(Clone)]
pub struct Allocation {
    pub base: u64,
    pub size: u64,
    pub device: usize,
    pub context: u64,
    pub graph: u64,
    pub node: u64,
    /// The free node of the same graph.
    pub freed_by: Option<u64>,
    /// Access of devices, fixed here for good.
    pub access: BTreeMap<usize, u32>,
    /// That of devices beside its own, as the node tells it: it stays where it is as long as the allocation.
    pub told: Box<[AccessDescription]>,
    arena: usize,
}

impl Allocation {
    fn end(&self) -> u64 {
        self.base + self.size.next_multiple_of(ALIGNMENT)
    }
}

/// What a device's graphs take of its memory, in chunks.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    pub used: u64,
    pub used_high: u64,
    pub reserved: u64,
    pub reserved_high: u64,
}

#[derive(Default)]
pub struct GraphMemory {
    arenas: Vec<Arena>,
    /// Arenas without users; the last one is the next to be used.
    free: Vec<usize>,
    /// By number, in order of making.
    allocations: BTreeMap<u64, Allocation>,
    usage: BTreeMap<usize, Usage>,
    /// The allocation of each live block, by the block's number.
    instances: BTreeMap<u64, u64>,
}

impl GraphMemory {
    fn at(&self, address: u64) -> Option<&Arena> {
        self.arenas.iter().find(|arena| arena.range.contains(address))
    }

    pub fn allocation(&self, id: u64) -> Option<&Allocation> {
        self.allocations.get(&id)
    }

    /// The allocation that an address belongs to; the youngest where a graph uses addresses again.
    pub fn find(&self, address: u64) -> Option<(u64, &Allocation)> {
        let mut all = self.allocations.iter().rev();
        let found = all.find(|(_, one)| address.wrapping_sub(one.base) < one.size);
        found.map(|(id, allocation)| (*id, allocation))
    }

    pub fn of_graph(&self, graph: u64) -> Vec<u64> {
        self.allocations.iter().filter(|(_, one)| one.graph == graph).map(|(id, _)| *id).collect()
    }

    /// The graph is gone; its handle may be another's soon.
    pub fn leave_graph(&mut self, graph: u64) {
        for one in self.allocations.values_mut().filter(|one| one.graph == graph) {
            one.graph = 0;
        }
    }

    fn arenas_of(&self, allocations: &[u64]) -> BTreeSet<usize> {
        allocations.iter().filter_map(|id| self.allocations.get(id)).map(|one| one.arena).collect()
    }

    /// The chunks that allocations lie in. Those of one arena are counted as they lie in it.
    fn chunks<'a>(
        &self,
        allocations: impl Iterator<Item = &'a u64>,
        device: usize,
    ) -> BTreeSet<(usize, u64)> {
        let mut chunks = BTreeSet::new();
        for one in allocations.filter_map(|id| self.allocations.get(id)).filter(|one| one.device == device) {
            let start = one.base - self.arenas[one.arena].range.base;
            let end = start + (one.end() - one.base);
            chunks.extend((start / CHUNK..end.div_ceil(CHUNK)).map(|chunk| (one.arena, chunk)));
        }
        chunks
    }

    pub fn usage(&self, device: usize) -> Usage {
        self.usage.get(&device).copied().unwrap_or_default()
    }

    fn usage_mut(&mut self, device: usize) -> &mut Usage {
        self.usage.entry(device).or_default()
    }

    /// Brings a high mark down to what there is now.
    pub fn reset_high(&mut self, device: usize, reserved: bool) {
        let usage = self.usage_mut(device);
        if reserved {
            usage.reserved_high = usage.reserved;
        } else {
            usage.used_high = usage.used;
        }
    }
}

/// Bytes of a number of chunks.
pub fn bytes(chunks: u64) -> u64 {
    chunks * CHUNK
}

impl World {
    /// What lies behind an address of graph memory, whether any is there now or not.
    pub fn graph_place(&self, address: u64) -> Option<Place> {
        let arena = self.graph_memory.at(address)?;
        Some(Place::Store { store: arena.store, offset: address - arena.range.base })
    }

    /// Memory of an allocation node for an access by another node. An access past its end is found out when the graph is
    /// instantiated, and whether there is any memory only when it runs.
    ///
    /// # Errors
    /// Invalid value where the device of the context may not touch it.
    pub fn graph_operand(&self, address: u64, span: u64, context: u64) -> Result<Option<Operand>, Code> {
        let Some((id, allocation)) = self.graph_memory.find(address) else { return Ok(None) };
        let Some(place) = self.graph_place(address) else { return Ok(None) };
        let device = self.context(context)?.device;
        if !allocation.access.contains_key(&device) {
            return Err(codes::INVALID_VALUE);
        }
        let unfit = span > allocation.size - (address - allocation.base);
        Ok(Some(Operand { place, block: Some((allocation.base, id)), staged: None, unfit }))
    }

    fn new_arena(&mut self, device: usize, size: u64) -> Result<usize, Code> {
        let fits = |index: &usize| {
            let arena = &self.graph_memory.arenas[*index];
            arena.device == device && arena.range.len >= size
        };
        if let Some(at) = self.graph_memory.free.iter().rposition(fits) {
            return Ok(self.graph_memory.free.remove(at));
        }
        let len = size.max(ARENA).checked_next_multiple_of(CHUNK).ok_or(codes::OUT_OF_MEMORY)?;
        let own = self.graph_memory.arenas.iter().filter(|arena| arena.device == device);
        let taken: u64 = own.map(|arena| arena.range.len).sum();
        if taken.saturating_add(len) > ADDRESSES {
            return Err(codes::OUT_OF_MEMORY);
        }
        let wanted = BASE + device as u64 * SPAN + taken;
        let range = Range::new(wanted, len).map_err(|_| codes::OUT_OF_MEMORY)?;
        let store = self.new_store();
        self.graph_memory.arenas.push(Arena { device, range, store, users: 0 });
        Ok(self.graph_memory.arenas.len() - 1)
    }

    /// A free place of `size` bytes in the arenas of a graph: none that another allocation has, unless its free comes
    /// before.
    fn place_in_graph(
        &self,
        graph: u64,
        device: usize,
        size: u64,
        before: &BTreeSet<u64>,
    ) -> Option<(usize, u64)> {
        let own = self.graph_memory.of_graph(graph);
        for index in self.graph_memory.arenas_of(&own) {
            let arena = &self.graph_memory.arenas[index];
            if arena.device != device {
                continue;
            }
            let all = own.iter().filter_map(|id| self.graph_memory.allocations.get(id));
            let mut taken: Vec<(u64, u64)> = all
                .filter(|one| one.arena == index && one.freed_by.is_none_or(|free| !before.contains(&free)))
                .map(|one| (one.base, one.end()))
                .collect();
            taken.sort_unstable();
            let mut at = arena.range.base;
            for (start, end) in taken {
                if start >= at + size {
                    break;
                }
                at = at.max(end);
            }
            if at + size <= arena.range.base + arena.range.len {
                return Some((index, at));
            }
        }
        None
    }

    /// Memory for an allocation node that comes after the nodes in `before`. Its number; the caller names the node.
    ///
    /// # Errors
    /// Out of memory.
    pub fn reserve_in_graph(
        &mut self,
        graph: u64,
        device: usize,
        context: u64,
        size: u64,
        access: BTreeMap<usize, u32>,
        before: &BTreeSet<u64>,
    ) -> Result<u64, Code> {
        self.admit_size(size)?;
        let rounded = size.checked_next_multiple_of(ALIGNMENT).ok_or(codes::OUT_OF_MEMORY)?;
        let (arena, base) = match self.place_in_graph(graph, device, rounded, before) {
            Some(found) => found,
            None => {
                let arena = self.new_arena(device, rounded)?;
                self.graph_memory.arenas[arena].users += 1;
                (arena, self.graph_memory.arenas[arena].range.base)
            }
        };
        let id = self.fresh_id();
        let others = access.iter().filter(|(other, _)| **other != device);
        let told = others.map(|(other, flags)| AccessDescription::of_device(*other, *flags)).collect();
        let allocation =
            Allocation { base, size, device, context, graph, node: 0, freed_by: None, access, told, arena };
        self.graph_memory.allocations.insert(id, allocation);
        Ok(id)
    }

    pub fn set_allocation_node(&mut self, id: u64, node: u64) {
        if let Some(allocation) = self.graph_memory.allocations.get_mut(&id) {
            allocation.node = node;
        }
    }

    /// The allocation that a free node of `graph` frees.
    ///
    /// # Errors
    /// Invalid value for no beginning of an allocation, and for one that its own graph frees.
    pub fn freed_allocation(&self, address: u64) -> Result<u64, Code> {
        let found = self.graph_memory.find(address).filter(|(_, one)| one.base == address);
        let (id, allocation) = found.ok_or(codes::INVALID_VALUE)?;
        if allocation.freed_by.is_some() { Err(codes::INVALID_VALUE) } else { Ok(id) }
    }

    /// Notes the free node where it is one of the allocation's own graph.
    pub fn note_free_node(&mut self, id: u64, graph: u64, node: u64) {
        if let Some(allocation) = self.graph_memory.allocations.get_mut(&id).filter(|one| one.graph == graph)
        {
            allocation.freed_by = Some(node);
        }
    }

    /// Keeps the arenas of these allocations for one more user.
    pub fn hold_arenas(&mut self, allocations: &[u64]) {
        for arena in self.graph_memory.arenas_of(allocations) {
            self.graph_memory.arenas[arena].users += 1;
        }
    }

    /// A user of the arenas of these allocations is gone; with the last one the addresses are free for other graphs.
    pub fn release_arenas(&mut self, allocations: &[u64]) {
        for index in self.graph_memory.arenas_of(allocations) {
            let arena = &mut self.graph_memory.arenas[index];
            arena.users -= 1;
            if arena.users == 0 {
                self.graph_memory.allocations.retain(|_, one| one.arena != index);
                self.graph_memory.free.push(index);
            }
        }
    }

    /// The live block of an allocation, if there is one for every question.
    pub fn live_graph_block(&self, id: u64) -> Option<u64> {
        let allocation = self.graph_memory.allocations.get(&id)?;
        let block = self.blocks.any(allocation.base).filter(|block| !block.freeing)?;
        (self.graph_memory.instances.get(&block.id) == Some(&id)).then_some(block.id)
    }

    /// Takes physical memory for allocations that are to live at once with those that do.
    ///
    /// # Errors
    /// Out of memory.
    pub fn take_chunks(&mut self, allocations: &[u64]) -> Result<(), Code> {
        let devices: BTreeSet<usize> = allocations
            .iter()
            .filter_map(|id| self.graph_memory.allocation(*id))
            .map(|one| one.device)
            .collect();
        for device in devices {
            let needed = {
                let memory = &self.graph_memory;
                memory.chunks(memory.instances.values().chain(allocations), device).len() as u64
            };
            let reserved = self.graph_memory.usage(device).reserved;
            if needed > reserved {
                // The real driver takes powers of two.
                let grown = (needed - reserved).next_power_of_two();
                self.charge(device, bytes(grown))?;
                self.graph_memory.usage_mut(device).reserved += grown;
            }
            let usage = self.graph_memory.usage_mut(device);
            usage.used = usage.used.max(needed);
            usage.used_high = usage.used_high.max(usage.used);
            usage.reserved_high = usage.reserved_high.max(usage.reserved);
        }
        Ok(())
    }

    /// Gives back what no live memory needs.
    pub fn trim_graph_memory(&mut self, device: usize) {
        let memory = &self.graph_memory;
        let live = memory.chunks(memory.instances.values(), device).len() as u64;
        let usage = self.graph_memory.usage_mut(device);
        let freed = usage.reserved - live;
        usage.used = live;
        usage.reserved = live;
        self.devices[device].used -= bytes(freed);
    }

    /// The block of an allocation in a new launch. It is there for every question from now on, and for the GPU from its
    /// own piece of work on. Its number.
    pub fn enter_graph_block(&mut self, id: u64) -> u64 {
        let Some(allocation) = self.graph_memory.allocations.get(&id).cloned() else { return 0 };
        let Allocation { base, size, device, context, access, .. } = allocation;
        // The one before it is freed by work that comes earlier.
        self.blocks.fade(base);
        self.enter(Kind::Graph, device, context, None, base, size);
        let place = self.graph_place(base);
        let Some(block) = self.blocks.at_mut(base) else { return 0 };
        block.access = access;
        block.absent = true;
        block.place = place.unwrap_or(block.place);
        let number = block.id;
        self.graph_memory.instances.insert(number, id);
        self.hold_arenas(&[id]);
        number
    }

    /// The block of an allocation has ended.
    pub fn graph_block_ended(&mut self, number: u64) {
        if let Some(id) = self.graph_memory.instances.remove(&number) {
            self.release_arenas(&[id]);
        }
    }

    /// Access to memory that is taken from a pool now.
    pub fn access_of_pool(&self, pool: u64, device: usize) -> BTreeMap<usize, u32> {
        let mut access = self.pools.get(pool).map(|pool| pool.access.clone()).unwrap_or_default();
        access.insert(device, READ_WRITE);
        access
    }
}
