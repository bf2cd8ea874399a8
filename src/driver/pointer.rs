//! What the driver says of an address that is not in our ledger.

use super::pool::place_of;
use super::{Driver, Failure, RawContext, RawPool};
use cudarc::driver::sys::CUpointer_attribute as Attribute;
use std::ffi::c_void;

/// How the driver classifies an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryClass {
    /// Not the driver's: pageable memory, or nothing.
    Unknown,
    Managed,
    /// Page-locked or registered host memory.
    Host,
    /// Host memory from a pool, named in the facts: for GPUs that the pool gives access.
    HostPool,
    /// Plain device memory of a context.
    Device,
    /// From a pool, named in the facts.
    Pool,
    /// A mapping of virtual memory management.
    Mapping,
    /// Device memory that belongs to no context, pool or mapping: a graph's.
    Graph,
}

/// The driver's answer about one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerFacts {
    pub class: MemoryClass,
    /// The GPU that the driver names for it, -1 where it names none.
    pub ordinal: i32,
    /// NULL for memory that belongs to no context.
    pub context: RawContext,
    pub pool: RawPool,
    /// The block's first address and size, 0 where unknown.
    pub base: u64,
    pub size: u64,
    /// Registered memory may answer at another address on the device.
    pub device_pointer: u64,
}

impl Driver {
    /// Classifies an address. Needs no current context.
    pub fn pointer_facts(&self, ptr: u64) -> Result<PointerFacts, Failure> {
        let (mut kind, mut managed, mut ordinal) = (0u32, 0u32, -2i32);
        let (mut context, mut pool) = (RawContext::NULL, RawPool::NULL);
        let (mut base, mut size, mut device_pointer) = (0u64, 0usize, 0u64);
        let mut attributes = [
            Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            Attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
            Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        ];
        let mut out: [*mut c_void; 8] = [
            (&raw mut kind).cast(),
            (&raw mut managed).cast(),
            (&raw mut ordinal).cast(),
            (&raw mut context.0).cast(),
            (&raw mut pool.0).cast(),
            (&raw mut base).cast(),
            (&raw mut size).cast(),
            (&raw mut device_pointer).cast(),
        ];
        // SAFETY: as many out-pointers as attributes, each to storage at least as large as the driver
        // writes; the batched query answers zeros for an address it does not know.
        unsafe {
            self.table.cuPointerGetAttributes(
                attributes.len() as u32,
                attributes.as_mut_ptr(),
                out.as_mut_ptr(),
                ptr,
            )?;
        }
        const HOST: u32 = 1;
        const DEVICE: u32 = 2;
        // The managed flag is one byte of the word that was zeroed.
        let class = match kind {
            _ if managed & 0xff != 0 => MemoryClass::Managed,
            HOST if !pool.is_null() => MemoryClass::HostPool,
            HOST => MemoryClass::Host,
            DEVICE if !pool.is_null() => MemoryClass::Pool,
            DEVICE if !context.is_null() => MemoryClass::Device,
            DEVICE if self.is_mapping(ptr)? => MemoryClass::Mapping,
            DEVICE => MemoryClass::Graph,
            _ => MemoryClass::Unknown,
        };
        Ok(PointerFacts {
            class,
            ordinal: if class == MemoryClass::Unknown { -1 } else { ordinal },
            context,
            pool,
            base,
            size: size as u64,
            device_pointer,
        })
    }

    /// Whether the address is mapped by virtual memory management: only such memory has an allocation
    /// handle to retain.
    fn is_mapping(&self, ptr: u64) -> Result<bool, Failure> {
        let mut handle = 0;
        let memory = std::ptr::with_exposed_provenance_mut(ptr as usize);
        // SAFETY: the out-pointer is valid; any other address is an error code.
        match unsafe { self.table.cuMemRetainAllocationHandle(&mut handle, memory) } {
            // SAFETY: the handle that was retained is released at once.
            Ok(()) => unsafe { self.table.cuMemRelease(handle) }.map(|()| true),
            Err(f) if f.is_invalid_value() || f.is_not_supported() || f.is_missing() => Ok(false),
            Err(f) => Err(f),
        }
    }

    /// Whether kernels of the device may touch a mapping of virtual memory management: to read, and to write. Needs no
    /// context.
    pub fn mapping_access(&self, ptr: u64, device: i32) -> Result<(bool, bool), Failure> {
        let (mut flags, place) = (0u64, place_of(device));
        // SAFETY: the out-pointer is valid; an address that is no mapping is an error code.
        unsafe { self.table.cuMemGetAccess(&raw mut flags, &raw const place, ptr)? };
        const READ: u64 = 1;
        const WRITE: u64 = 2;
        Ok((flags & READ != 0, flags & WRITE != 0))
    }
}
