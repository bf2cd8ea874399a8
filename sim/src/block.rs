//! Live memory of every kind: one record a block, found by any address inside it.
use std::collections::BTreeMap;

use crate::advice::Advised;
use crate::codes::{self, Code};
use crate::reserve;
use crate::space::{ALIGNMENT, Slot, StoreId};
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Default,
    Pool,
    Pinned,
    Registered,
    /// A device address for registered memory, on machines where the host address does not serve.
    RegisteredAlias,
    Managed,
    Mapping,
    Imported,
    /// What a launch of a graph gave.
    Graph,
    /// A variable of a module.
    Variable,
}

/// Where the contents are.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    Store {
        store: StoreId,
        offset: u64,
    },
    /// In this process's own memory.
    Host(u64),
}

impl Place {
    pub fn plus(self, bytes: u64) -> Place {
        match self {
            Place::Store { store, offset } => Place::Store { store, offset: offset + bytes },
            Place::Host(address) => Place::Host(address + bytes),
        }
    }

    /// A number that grows with the address; it compares places of one block.
    pub fn position(self) -> u64 {
        match self {
            Place::Store { offset, .. } => offset,
            Place::Host(address) => address,
        }
    }
}

impl From<Slot> for Place {
    fn from(slot: Slot) -> Place {
        Place::Store { store: slot.store, offset: slot.offset }
    }
}

/// One live allocation, registration or mapping.
pub struct Block {
    pub base: u64,
    pub size: u64,
    pub kind: Kind,
    pub device: usize,
    pub context: u64,
    pub context_id: u64,
    pub place: Place,
    /// The address space to give back.
    pub slot: Option<Slot>,
    /// The pool, the physical allocation of a mapping, the alias of registered memory; else 0.
    pub source: u64,
    /// Process-wide unique: what BUFFER_ID answers.
    pub id: u64,
    pub sync_memops: bool,
    pub flags: u32,
    /// A free is queued; for every question the block is gone already.
    pub freeing: bool,
    /// The GPU's work that maps it has not run.
    pub absent: bool,
    /// Access by device, for mappings.
    pub access: BTreeMap<usize, u32>,
    /// Hints for managed memory.
    pub advised: Advised,
}

impl Block {
    pub fn end(&self) -> u64 {
        self.base + self.size
    }

    /// The address for kernels of page-locked memory.
    pub fn device_base(&self) -> u64 {
        if self.kind == Kind::Registered && self.source != 0 { self.source } else { self.base }
    }

    pub fn on_host(&self) -> bool {
        matches!(self.kind, Kind::Pinned | Kind::Registered | Kind::RegisteredAlias)
    }
}

/// The table of live blocks.
#[derive(Default)]
pub struct Blocks {
    by_base: BTreeMap<u64, Block>,
    /// Blocks whose free is queued and whose place was given to another one already, by number.
    fading: BTreeMap<u64, Block>,
}

impl Blocks {
    /// The block that contains the address.
    pub fn at(&self, address: u64) -> Option<&Block> {
        // One whose free is queued may lie in what is a larger block's by now.
        let (_, block) = self.by_base.range(..=address).rev().find(|(_, block)| !block.freeing)?;
        (address < block.end()).then_some(block)
    }

    pub fn at_mut(&mut self, address: u64) -> Option<&mut Block> {
        let (_, block) = self.by_base.range_mut(..=address).rev().find(|(_, block)| !block.freeing)?;
        (address < block.end()).then_some(block)
    }

    /// The block that begins at the address, one whose free is queued included.
    pub fn any(&self, base: u64) -> Option<&Block> {
        self.by_base.get(&base)
    }

    /// The block of this base and number, whatever its state.
    pub fn of(&self, base: u64, id: u64) -> Option<&Block> {
        self.by_base.get(&base).filter(|block| block.id == id).or_else(|| self.fading.get(&id))
    }

    /// Lets go of the place of a block whose free is queued; what is queued for it still finds it by its number.
    pub fn fade(&mut self, base: u64) -> Option<Slot> {
        let mut block = self.by_base.remove(&base)?;
        let slot = block.slot.take();
        self.fading.insert(block.id, block);
        slot
    }

    /// The block of this base and number, to be changed.
    pub fn of_mut(&mut self, base: u64, id: u64) -> Option<&mut Block> {
        match self.by_base.get_mut(&base) {
            Some(block) if block.id == id => Some(block),
            _ => self.fading.get_mut(&id),
        }
    }

    /// All blocks at an address that the GPUs may still meet there: the one that is for every question, and those whose
    /// free is queued.
    pub fn met_at(&self, address: u64) -> impl Iterator<Item = &Block> {
        let mut questioned = false;
        let by_base = self.by_base.range(..=address).rev().map(|(_, block)| block);
        let by_base = by_base.take_while(move |block| !std::mem::replace(&mut questioned, !block.freeing));
        let covers = move |block: &&Block| address.wrapping_sub(block.base) < block.size;
        by_base.chain(self.fading.values()).filter(covers)
    }

    pub fn insert(&mut self, block: Block) {
        self.by_base.insert(block.base, block);
    }

    pub fn remove(&mut self, base: u64) -> Option<Block> {
        self.by_base.remove(&base)
    }

    /// The blocks that begin in `[from, to)`.
    pub fn within(&self, from: u64, to: u64) -> impl Iterator<Item = &Block> {
        self.by_base.range(from..to).map(|(_, block)| block)
    }

    /// Whether any block overlaps `[from, to)`.
    pub fn overlaps(&self, from: u64, to: u64) -> bool {
        self.by_base.range(..to).next_back().is_some_and(|(_, block)| block.end() > from)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Block> {
        self.by_base.values()
    }
}

impl World {
    /// Enters a block into the table.
    pub fn enter(
        &mut self,
        kind: Kind,
        device: usize,
        context: u64,
        slot: Option<Slot>,
        base: u64,
        size: u64,
    ) -> u64 {
        let id = self.fresh_id();
        let context_id = self.contexts.get(context).map_or(0, |context| context.id);
        let place = slot.map_or(Place::Host(base), Place::from);
        self.blocks.insert(Block {
            base,
            size,
            kind,
            device,
            context,
            context_id,
            place,
            slot,
            source: 0,
            id,
            sync_memops: kind == Kind::Managed,
            flags: 0,
            freeing: false,
            absent: false,
            access: BTreeMap::new(),
            advised: Advised::default(),
        });
        base
    }

    /// # Errors
    /// Invalid value for no bytes, no context, out of memory.
    pub fn alloc_default(&mut self, size: u64) -> Result<u64, Code> {
        let context = self.current()?;
        let (context, device) = (context.handle, context.device);
        if size == 0 {
            return Err(codes::INVALID_VALUE);
        }
        self.admit_size(size)?;
        let rounded = size.checked_next_multiple_of(ALIGNMENT).ok_or(codes::OUT_OF_MEMORY)?;
        self.charge(device, rounded)?;
        match self.take_space(device, size, false) {
            Ok(slot) => Ok(self.enter(Kind::Default, device, context, Some(slot), slot.va, size)),
            Err(code) => {
                self.devices[device].used -= rounded;
                Err(code)
            }
        }
    }

    /// Page-locked memory; no bytes are a success without an address.
    ///
    /// # Errors
    /// No context, out of memory.
    pub fn alloc_pinned(&mut self, size: u64, flags: u32) -> Result<u64, Code> {
        let context = self.current()?;
        let (context, device) = (context.handle, context.device);
        if size == 0 {
            return Ok(0);
        }
        self.admit_size(size)?;
        self.charge_pinned(size)?;
        match self.host.take(size) {
            Ok(base) => {
                self.enter(Kind::Pinned, device, context, None, base, size);
                if let Some(block) = self.blocks.at_mut(base) {
                    block.flags = flags;
                }
                Ok(base)
            }
            Err(code) => {
                self.pinned_bytes -= size;
                Err(code)
            }
        }
    }

    fn charge_pinned(&mut self, size: u64) -> Result<(), Code> {
        let total = self.pinned_bytes.checked_add(size).ok_or(codes::OUT_OF_MEMORY)?;
        if total > self.topology.pinned_limit {
            return Err(codes::OUT_OF_MEMORY);
        }
        self.pinned_bytes = total;
        Ok(())
    }

    /// # Errors
    /// Not supported by the device, invalid value, no context, out of memory.
    pub fn alloc_managed(&mut self, size: u64, flags: u32) -> Result<u64, Code> {
        let context = self.current()?;
        let (context, device) = (context.handle, context.device);
        if !self.devices[device].gpu.has(crate::attribute::MANAGED_MEMORY) {
            return Err(codes::NOT_SUPPORTED);
        }
        // GLOBAL 1, HOST 2, SINGLE 4: exactly one of the first two.
        if size == 0 || !matches!(flags, 1 | 2) {
            return Err(codes::INVALID_VALUE);
        }
        self.admit_size(size)?;
        if size > 1 << 46 {
            return Err(codes::OUT_OF_MEMORY);
        }
        let base = self.host.take(size)?;
        self.enter(Kind::Managed, device, context, None, base, size);
        if let Some(block) = self.blocks.at_mut(base) {
            block.flags = flags;
        }
        if self.fenced && flags == 1 {
            reserve::fence_pages(base, size.next_multiple_of(reserve::HOST_PAGE));
        }
        Ok(base)
    }

    /// # Errors
    /// Invalid value, already registered, no context, over the limit of page-locked memory.
    pub fn register(&mut self, base: u64, size: u64, flags: u32) -> Result<(), Code> {
        let context = self.current()?;
        let (context, device) = (context.handle, context.device);
        let end = base.checked_add(size).ok_or(codes::INVALID_VALUE)?;
        if base == 0 || size == 0 || flags & !0xF != 0 {
            return Err(codes::INVALID_VALUE);
        }
        if !self.devices[device].gpu.has(crate::attribute::HOST_REGISTER) {
            return Err(codes::NOT_SUPPORTED);
        }
        if self.blocks.overlaps(base, end) {
            return Err(codes::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let own_address = self.devices[device].gpu.has(crate::attribute::HOST_POINTER_FOR_REGISTERED);
        let slot = if own_address { None } else { Some(self.take_space(device, size, false)?) };
        if let Err(code) = self.charge_pinned(size) {
            if let Some(slot) = slot {
                self.devices[device].space.give(slot, size);
            }
            return Err(code);
        }
        self.enter(Kind::Registered, device, context, None, base, size);
        if let Some(block) = self.blocks.at_mut(base) {
            block.flags = flags;
            block.source = slot.map_or(0, |slot| slot.va);
        }
        if let Some(slot) = slot {
            self.enter(Kind::RegisteredAlias, device, context, Some(slot), slot.va, size);
            if let Some(block) = self.blocks.at_mut(slot.va) {
                block.place = Place::Host(base);
            }
        }
        Ok(())
    }

    /// # Errors
    /// Not registered.
    pub fn unregister(&mut self, base: u64) -> Result<(), Code> {
        match self.blocks.at(base) {
            Some(block) if block.kind == Kind::Registered && block.base == base => {}
            _ => return Err(codes::HOST_MEMORY_NOT_REGISTERED),
        }
        self.discard(base);
        Ok(())
    }

    /// Ends a block whatever its state.
    pub fn discard(&mut self, base: u64) {
        if let Some(id) = self.blocks.any(base).map(|block| block.id) {
            self.finish_free(base, id);
        }
    }

    /// The end of a block: what it held becomes poison and its address is free for the next.
    pub fn finish_free(&mut self, base: u64, id: u64) {
        if let Some(block) = self.blocks.fading.remove(&id) {
            // Its place and its share of the pool are another's by now.
            self.note_end(&block);
            self.poison(&block);
            self.graph_block_ended(id);
            return;
        }
        if self.blocks.any(base).is_none_or(|block| block.id != id) {
            return;
        }
        let Some(block) = self.blocks.remove(base) else { return };
        self.note_end(&block);
        match block.kind {
            Kind::Default | Kind::Variable => {
                self.poison(&block);
                self.devices[block.device].used -= block.size.next_multiple_of(ALIGNMENT);
            }
            Kind::Pool => {
                self.poison(&block);
                self.pool_block_ended(block.source, block.size);
            }
            Kind::Graph => {
                self.poison(&block);
                self.graph_block_ended(id);
            }
            Kind::Pinned | Kind::Registered => self.pinned_bytes -= block.size,
            Kind::Imported => self.leave_pool(block.source),
            Kind::Managed | Kind::RegisteredAlias | Kind::Mapping => {}
        }
        if block.kind == Kind::Registered && block.source != 0 {
            self.discard(block.source);
        }
        match (block.slot, block.kind) {
            (Some(slot), Kind::Pool | Kind::Imported) => {
                self.devices[block.device].pool_space.give(slot, block.size);
            }
            (Some(slot), _) => self.devices[block.device].space.give(slot, block.size),
            (None, Kind::Pinned | Kind::Managed | Kind::Pool) => self.host.give(base, block.size),
            (None, _) => {}
        }
    }

    fn poison(&mut self, block: &Block) {
        if let Place::Store { store, offset } = block.place {
            self.stores[store as usize].poison(offset, block.size);
        }
    }

    /// Whether kernels under `context` may touch the block. Page tables are the GPU's, so this is the same for all
    /// contexts of one.
    pub fn accessible(&self, block: &Block, context: u64) -> bool {
        let Some(device) = self.contexts.get(context).map(|context| context.device) else { return false };
        match block.kind {
            Kind::Default | Kind::Variable => self.is_open_to(device, block.context, block.device),
            Kind::Managed => self.touches_managed(device),
            Kind::Pool if self.is_managed(block) => self.touches_managed(device),
            // Memory of another process is opened by its pool alone: peer access does nothing for it.
            Kind::Pool | Kind::Imported => self.pool_access(block.source, device) & 1 != 0,
            Kind::Mapping | Kind::Graph => block.access.get(&device).is_some_and(|flags| flags & 1 != 0),
            Kind::Pinned | Kind::Registered | Kind::RegisteredAlias => true,
        }
    }

    fn touches_managed(&self, device: usize) -> bool {
        self.devices[device].gpu.has(crate::attribute::MANAGED_MEMORY)
    }

    /// Managed memory, from a pool or not.
    pub fn is_managed(&self, block: &Block) -> bool {
        block.kind == Kind::Managed
            || (block.kind == Kind::Pool && self.pools.get(block.source).is_some_and(|pool| pool.managed))
    }

    /// Whether the block has a device address for `context`, which is not for all that its kernels may touch: another
    /// context's peers do not count, and memory of graphs has one on its own device only.
    pub fn has_address(&self, block: &Block, context: u64) -> bool {
        let Some(asking) = self.contexts.get(context) else { return false };
        match block.kind {
            Kind::Default | Kind::Variable => self.reaches(asking, block.context, block.device),
            Kind::Graph => asking.device == block.device,
            _ => self.accessible(block, context),
        }
    }

    /// Whether what kernels, copies and fills under `context` do to the block is lost on the way. Memory of the host is on no
    /// link between GPUs, and managed memory comes to whoever touches it.
    pub fn is_link_broken(&self, block: &Block, context: u64) -> bool {
        let Some(accessing) = self.contexts.get(context) else { return false };
        let on_gpu = matches!(block.place, Place::Store { .. });
        on_gpu && self.topology.broken.contains(&(accessing.device, block.device))
    }

    /// The contents behind a device address where no block lives, as a late access would find them.
    pub fn place_of_dead(&self, address: u64) -> Option<Place> {
        let mut spaces = self.devices.iter().flat_map(|device| [&device.space, &device.pool_space]);
        spaces.find_map(|space| space.at(address)).map(Place::from).or_else(|| self.graph_place(address))
    }

    /// Whether the address lies where only the driver gives out memory.
    pub fn is_driver_address(&self, address: u64) -> bool {
        self.place_of_dead(address).is_some()
            || self.host.contains(address)
            || self.reservation_at(address).is_some()
    }
}
