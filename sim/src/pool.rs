//! Stream-ordered pools: what is used, what is held, who may touch it.
use std::collections::BTreeMap;

use crate::attribute;
use crate::block::Kind;
use crate::codes::{self, Code};
use crate::space::{ALIGNMENT, Slot};
use crate::world::World;

/// How much a pool takes from its device at a time.
const GROWTH: u64 = 32 << 20;
/// The least it can take where the device is nearly full.
const GRANULE: u64 = 2 << 20;

pub const LOCATION_DEVICE: u32 = 1;
pub const LOCATION_HOST: u32 = 2;
pub const READ_WRITE: u32 = 3;

/// A place that memory can be at, as C lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub kind: u32,
    pub id: i32,
}

/// A pool. A destroyed one lives on until its last block is freed.
pub struct Pool {
    pub handle: u64,
    pub device: usize,
    pub location: Location,
    pub managed: bool,
    pub is_default: bool,
    pub handle_types: u32,
    pub max_size: u64,
    /// The three reuse attributes.
    pub reuse: [i32; 3],
    pub threshold: u64,
    pub reserved: u64,
    pub reserved_high: u64,
    pub used: u64,
    pub used_high: u64,
    /// Bytes in live blocks. Differs from `used` after a plain free of a pool block, which the counter never sees.
    pub live: u64,
    pub blocks: usize,
    /// Access of other devices.
    pub access: BTreeMap<usize, u32>,
    pub destroyed: bool,
    pub imported: bool,
}

impl Pool {
    pub fn new(handle: u64, device: usize, location: Location) -> Pool {
        Pool {
            handle,
            device,
            location,
            managed: false,
            is_default: false,
            handle_types: 0,
            max_size: 0,
            reuse: [1; 3],
            threshold: 0,
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            live: 0,
            blocks: 0,
            access: BTreeMap::new(),
            destroyed: false,
            imported: false,
        }
    }

    pub fn of_device(handle: u64, device: usize) -> Pool {
        let location = Location { kind: LOCATION_DEVICE, id: device as i32 };
        Pool { is_default: true, ..Pool::new(handle, device, location) }
    }

    pub fn on_device(&self) -> bool {
        self.location.kind == LOCATION_DEVICE && !self.managed
    }
}

impl World {
    /// # Errors
    /// Invalid value for what is no pool.
    pub fn pool(&self, handle: u64) -> Result<&Pool, Code> {
        self.pools.get(handle).ok_or(codes::INVALID_VALUE)
    }

    /// A pool that is not destroyed. One that lives on for its blocks tells and takes nothing but access.
    ///
    /// # Errors
    /// Invalid value for anything else.
    pub fn whole_pool(&self, handle: u64) -> Result<&Pool, Code> {
        self.pool(handle).ok().filter(|pool| !pool.destroyed).ok_or(codes::INVALID_VALUE)
    }

    /// # Errors
    /// Invalid value for what is no pool.
    pub fn pool_mut(&mut self, handle: u64) -> Result<&mut Pool, Code> {
        self.pools.get_mut(handle).ok_or(codes::INVALID_VALUE)
    }

    /// # Errors
    /// Not supported by the device.
    pub fn has_pools(&self, device: usize) -> Result<(), Code> {
        let has = self.devices[device].gpu.has(attribute::MEMORY_POOLS);
        if has { Ok(()) } else { Err(codes::NOT_SUPPORTED) }
    }

    /// The access flags that a device has on a pool's memory. Of managed memory this says nothing: any GPU may touch that.
    pub fn pool_access(&self, handle: u64, device: usize) -> u32 {
        let Some(pool) = self.pools.get(handle) else { return 0 };
        if pool.on_device() && pool.device == device {
            return READ_WRITE;
        }
        pool.access.get(&device).copied().unwrap_or(0)
    }

    /// Grows a pool until `bytes` more fit.
    fn make_room(&mut self, handle: u64, bytes: u64) -> Result<(), Code> {
        let pool = self.pool(handle)?;
        if pool.reserved - pool.live.min(pool.reserved) >= bytes {
            return Ok(());
        }
        let (device, reserved, live, max, on_device) =
            (pool.device, pool.reserved, pool.live, pool.max_size, pool.on_device());
        // The bound that a program gives is rounded up to what pools grow by.
        let max = max.checked_next_multiple_of(GROWTH).unwrap_or(0);
        let round = |bytes: u64, unit| bytes.checked_next_multiple_of(unit).ok_or(codes::OUT_OF_MEMORY);
        // Where there is no room for more, what it holds and does not use becomes a part of the new block.
        let totals = [
            reserved.saturating_add(round(bytes, GROWTH)?),
            reserved.saturating_add(round(bytes, GRANULE)?),
            round(live.saturating_add(bytes), GROWTH)?.max(reserved),
        ];
        for total in totals {
            if (max == 0 || total <= max) && (!on_device || self.charge(device, total - reserved).is_ok()) {
                let pool = self.pool_mut(handle)?;
                pool.reserved = total;
                pool.reserved_high = pool.reserved_high.max(total);
                return Ok(());
            }
        }
        Err(codes::OUT_OF_MEMORY)
    }

    /// Memory from a pool; no bytes are a success without an address.
    ///
    /// # Errors
    /// Not supported by the device, out of memory.
    pub fn alloc_from_pool(&mut self, handle: u64, size: u64, context: u64) -> Result<u64, Code> {
        let pool = self.pool(handle)?;
        let (device, on_device) = (pool.device, pool.on_device());
        if pool.destroyed || pool.imported {
            return Err(codes::INVALID_VALUE);
        }
        if size == 0 {
            return Ok(0);
        }
        self.admit_size(size)?;
        let rounded = size.checked_next_multiple_of(ALIGNMENT).ok_or(codes::OUT_OF_MEMORY)?;
        if rounded > 1 << 46 {
            return Err(codes::OUT_OF_MEMORY);
        }
        self.make_room(handle, rounded)?;
        let (base, slot) = if on_device {
            let slot = self.take_space(device, size, true)?;
            (slot.va, Some(slot))
        } else {
            (self.host.take(size)?, None)
        };
        self.enter_pool_block(handle, device, context, slot, base, size);
        Ok(base)
    }

    /// Enters a block of a pool and counts it there.
    pub fn enter_pool_block(
        &mut self,
        handle: u64,
        device: usize,
        context: u64,
        slot: Option<Slot>,
        base: u64,
        size: u64,
    ) {
        self.enter(Kind::Pool, device, context, slot, base, size);
        if let Some(block) = self.blocks.at_mut(base) {
            block.source = handle;
        }
        if let Some(pool) = self.pools.get_mut(handle) {
            let rounded = size.next_multiple_of(ALIGNMENT);
            pool.live += rounded;
            pool.blocks += 1;
            pool.used += size;
            pool.used_high = pool.used_high.max(pool.used);
        }
    }

    /// A block of the pool is gone.
    pub fn pool_block_ended(&mut self, handle: u64, size: u64) {
        let rounded = size.next_multiple_of(ALIGNMENT);
        let Some(pool) = self.pools.get_mut(handle) else { return };
        pool.live -= rounded;
        pool.used = pool.used.saturating_sub(size);
        self.leave_pool(handle);
    }

    /// One block of the pool less; a destroyed pool ends with its last one.
    pub fn leave_pool(&mut self, handle: u64) {
        let Some(pool) = self.pools.get_mut(handle) else { return };
        pool.blocks -= 1;
        if pool.destroyed && pool.blocks == 0 {
            self.shrink_pool(handle, 0);
            self.pools.remove(handle);
        }
    }

    /// A plain free of a pool block gives the memory back, but the counter of used bytes stays: the real driver's
    /// answer after `cuMemFree` of a pool pointer.
    pub fn plain_free_of_pool_block(&mut self, handle: u64, size: u64) {
        if let Some(pool) = self.pools.get_mut(handle) {
            pool.used += size;
        }
    }

    /// Gives back what is held above `keep` and not in use.
    pub fn shrink_pool(&mut self, handle: u64, keep: u64) {
        let Some(pool) = self.pools.get_mut(handle) else { return };
        let floor = pool.live.next_multiple_of(GROWTH).max(keep);
        if pool.reserved > floor {
            let freed = pool.reserved - floor;
            pool.reserved = floor;
            if pool.on_device() {
                let device = pool.device;
                self.devices[device].used -= freed;
            }
        }
    }

    /// What a synchronise does: pools of the device give back what they hold above their thresholds.
    pub fn release_pools(&mut self, device: usize) {
        let over: Vec<(u64, u64)> = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.device == device && pool.reserved > pool.threshold)
            .map(|(handle, pool)| (handle, pool.threshold / GROWTH * GROWTH))
            .collect();
        for (handle, keep) in over {
            self.shrink_pool(handle, keep);
        }
    }

    /// # Errors
    /// Invalid value for the default pool or none.
    pub fn destroy_pool(&mut self, handle: u64) -> Result<(), Code> {
        let pool = self.pool_mut(handle)?;
        if pool.is_default || pool.destroyed {
            return Err(codes::INVALID_VALUE);
        }
        pool.destroyed = true;
        let (device, empty) = (pool.device, pool.blocks == 0);
        if self.devices[device].current_pool == handle {
            self.devices[device].current_pool = self.devices[device].default_pool;
        }
        if empty {
            self.shrink_pool(handle, 0);
            self.pools.remove(handle);
        }
        Ok(())
    }

    /// The default pool of a device whose primary context has ended is as at the start, unless blocks of it live on. Others
    /// stay as they are, and so does the choice which is current.
    pub fn reset_default_pool(&mut self, device: usize) {
        let handle = self.devices[device].default_pool;
        self.shrink_pool(handle, 0);
        if let Some(pool) = self.pools.get_mut(handle)
            && pool.blocks == 0
        {
            *pool = Pool::of_device(handle, device);
        }
    }

    /// Sets access for several devices, all or none of them.
    ///
    /// # Errors
    /// What the driver answers: the owner's access stays read-write, others need a peer connection.
    pub fn set_pool_access(&mut self, handle: u64, wanted: &[(Location, u32)]) -> Result<(), Code> {
        let pool = self.pool(handle)?;
        let (owner, on_device) = (pool.device, pool.on_device());
        let mut changes = Vec::new();
        for &(location, flags) in wanted {
            if location.kind != LOCATION_DEVICE {
                return Err(codes::INVALID_VALUE);
            }
            let device = self.ordinal(location.id)?;
            match flags {
                0 if device == owner && on_device => return Err(codes::INVALID_DEVICE),
                0 | READ_WRITE => {}
                1 => return Err(codes::NOT_SUPPORTED),
                _ => return Err(codes::INVALID_VALUE),
            }
            if device != owner || !on_device {
                if on_device && !self.can_access_peer(device, owner) {
                    return Err(codes::INVALID_DEVICE);
                }
                changes.push((device, flags));
            }
        }
        let pool = self.pool_mut(handle)?;
        for (device, flags) in changes {
            if flags == 0 {
                pool.access.remove(&device);
            } else {
                pool.access.insert(device, flags);
            }
        }
        Ok(())
    }
}
