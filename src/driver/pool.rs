//! Memory pools: which there are, what they hold, and which GPUs may touch their memory. What asks or changes a pool is unsafe
//! for captures unless the thread's capture mode is relaxed.

use super::{Driver, Failure, RawPool};
use cudarc::driver::sys::{
    CUmemAccess_flags as AccessFlags, CUmemAccessDesc, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute as PoolAttribute, CUmemPoolProps,
};

/// How a new pool should be.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolForm {
    /// Bits of the handle types that its memory can be exported as.
    pub handle_types: u32,
    /// The most bytes that it may hold; 0 for no bound of its own.
    pub max_size: usize,
}

/// What a pool holds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolMemory {
    pub used: u64,
    pub used_high: u64,
    pub reserved: u64,
    pub reserved_high: u64,
}

/// A GPU as a place that memory is at, or is used from.
pub(super) fn place_of(device: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

impl Driver {
    /// The pool that plain asynchronous allocations of the device come from at this moment.
    pub fn current_pool(&self, device: i32) -> Result<RawPool, Failure> {
        let mut pool = RawPool::NULL;
        // SAFETY: the out-pointer is valid and a pool handle is a pointer.
        unsafe { self.table.cuDeviceGetMemPool((&raw mut pool.0).cast(), device)? };
        Ok(pool)
    }

    /// A new pool of the device's memory.
    pub fn create_pool(&self, device: i32, form: PoolForm) -> Result<RawPool, Failure> {
        // SAFETY: zeroed bytes are a value of it: numbers, a NULL pointer, and the enums' zero.
        let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = place_of(device);
        properties.maxSize = form.max_size;
        // SAFETY: bits of handle types are written as the 32-bit number that they are, whatever the declaration lists.
        unsafe { (&raw mut properties.handleTypes).cast::<u32>().write(form.handle_types) };
        let mut pool = RawPool::NULL;
        // SAFETY: both pointers are valid and a pool handle is a pointer.
        unsafe { self.table.cuMemPoolCreate((&raw mut pool.0).cast(), &raw const properties)? };
        Ok(pool)
    }

    /// Ends a pool that we created. Its live blocks stay, and can be freed.
    pub fn destroy_pool(&self, pool: RawPool) -> Result<(), Failure> {
        // SAFETY: a pool of this driver that nobody of us names any more.
        unsafe { self.table.cuMemPoolDestroy(pool.0.cast()) }
    }

    /// Gives unused memory of the pool back, all but `keep` bytes.
    pub fn trim_pool(&self, pool: RawPool, keep: usize) -> Result<(), Failure> {
        // SAFETY: a pool handle of this driver.
        unsafe { self.table.cuMemPoolTrimTo(pool.0.cast(), keep) }
    }

    fn pool_attribute(&self, pool: RawPool, attribute: PoolAttribute) -> Result<u64, Failure> {
        let mut value = 0u64;
        // SAFETY: a pool handle of this driver; the attributes that are asked here are 64 bits wide.
        unsafe { self.table.cuMemPoolGetAttribute(pool.0.cast(), attribute, (&raw mut value).cast())? };
        Ok(value)
    }

    fn set_pool_attribute(
        &self,
        pool: RawPool,
        attribute: PoolAttribute,
        mut value: u64,
    ) -> Result<(), Failure> {
        // SAFETY: as in `pool_attribute`.
        unsafe { self.table.cuMemPoolSetAttribute(pool.0.cast(), attribute, (&raw mut value).cast()) }
    }

    /// Bytes of the pool that are in use and that are reserved, now.
    pub fn pool_usage(&self, pool: RawPool) -> Result<(u64, u64), Failure> {
        Ok((
            self.pool_attribute(pool, PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            self.pool_attribute(pool, PoolAttribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
        ))
    }

    /// What the pool holds, and the most of it since the marks were reset.
    pub fn pool_memory(&self, pool: RawPool) -> Result<PoolMemory, Failure> {
        let (used, reserved) = self.pool_usage(pool)?;
        Ok(PoolMemory {
            used,
            used_high: self.pool_attribute(pool, PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
            reserved,
            reserved_high: self.pool_attribute(pool, PoolAttribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
        })
    }

    /// Brings the high marks of the pool down to what is so now.
    pub fn reset_pool_high(&self, pool: RawPool) -> Result<(), Failure> {
        self.set_pool_attribute(pool, PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)?;
        self.set_pool_attribute(pool, PoolAttribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0)
    }

    /// Bytes that the pool keeps when the device is waited for.
    pub fn pool_threshold(&self, pool: RawPool) -> Result<u64, Failure> {
        self.pool_attribute(pool, PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    }

    pub fn set_pool_threshold(&self, pool: RawPool, bytes: u64) -> Result<(), Failure> {
        self.set_pool_attribute(pool, PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
    }

    /// Whether kernels of the device may read and write the pool's memory. Needs no context, also not of the device.
    pub fn pool_access(&self, pool: RawPool, device: i32) -> Result<bool, Failure> {
        let (mut flags, mut place) = (0u32, place_of(device));
        // SAFETY: a pool handle of this driver; the flags are one 32-bit number, kept as that.
        unsafe {
            self.table.cuMemPoolGetAccess((&raw mut flags).cast(), pool.0.cast(), &raw mut place)?;
        }
        Ok(flags == AccessFlags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as u32)
    }

    /// Lets kernels of the device touch all memory of the pool, or no longer.
    pub fn set_pool_access(&self, pool: RawPool, device: i32, access: bool) -> Result<(), Failure> {
        let flags = if access {
            AccessFlags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        } else {
            AccessFlags::CU_MEM_ACCESS_FLAGS_PROT_NONE
        };
        let wanted = CUmemAccessDesc { location: place_of(device), flags };
        // SAFETY: a pool handle of this driver and one description.
        unsafe { self.table.cuMemPoolSetAccess(pool.0.cast(), &raw const wanted, 1) }
    }
}
