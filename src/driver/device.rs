//! What the driver says of a GPU, without making a context.

use super::{Driver, Failure, truth};
use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUuuid};
use std::ffi::{CStr, c_char};

/// One GPU as the driver describes it. A question that the driver does not know is answered no.
#[derive(Debug, Clone, Default)]
pub struct DeviceFacts {
    pub device: i32,
    pub ordinal: i32,
    pub name: String,
    pub uuid: Option<[u8; 16]>,
    pub pci_bus_id: String,
    pub total_memory: u64,
    pub compute_capability: (i32, i32),
    pub multiprocessor_count: i32,
    pub max_shared_memory_per_block: i32,
    /// The most bytes from one row to the next that the driver's copies of rows take.
    pub max_pitch: i32,
    pub integrated: bool,
    pub unified_addressing: bool,
    pub managed_memory: bool,
    pub concurrent_managed_access: bool,
    pub pageable_memory_access: bool,
    pub host_page_tables: bool,
    pub direct_managed_access_from_host: bool,
    pub host_native_atomics: bool,
    pub memory_pools: bool,
    pub mempool_handle_types: i32,
    pub virtual_memory_management: bool,
    pub ipc_events: bool,
    pub dma_buf: bool,
    pub host_register: bool,
}

impl Driver {
    /// Asks everything about the GPU at `ordinal`.
    pub fn device_facts(&self, ordinal: i32) -> Result<DeviceFacts, Failure> {
        let mut facts = DeviceFacts { ordinal, ..Default::default() };
        let mut name = [0 as c_char; 256];
        let mut total = 0usize;
        // SAFETY: the out-pointers are valid and the buffer's length is its own.
        unsafe {
            self.table.cuDeviceGet(&mut facts.device, ordinal)?;
            self.table.cuDeviceGetName(name.as_mut_ptr(), name.len() as i32 - 1, facts.device)?;
            self.table.cuDeviceTotalMem_v2(&mut total, facts.device)?;
        }
        facts.name = text(&name);
        facts.total_memory = total as u64;

        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: the out-pointer is valid.
        if unsafe { self.table.cuDeviceGetUuid_v2(&mut uuid, facts.device) }.is_ok() {
            facts.uuid = Some(uuid.bytes.map(|b| b as u8));
        }
        let mut bus = [0 as c_char; 64];
        // SAFETY: the buffer's length is its own.
        if unsafe { self.table.cuDeviceGetPCIBusId(bus.as_mut_ptr(), bus.len() as i32 - 1, facts.device) }
            .is_ok()
        {
            facts.pci_bus_id = text(&bus);
        }

        let number = |attribute| self.attribute(attribute, facts.device);
        let yes = |attribute| truth(number(attribute));
        facts.compute_capability = (
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        );
        facts.multiprocessor_count = number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        facts.max_shared_memory_per_block =
            number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
        facts.max_pitch = number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH);
        facts.integrated = yes(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED);
        facts.unified_addressing = yes(Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
        facts.managed_memory = yes(Attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
        facts.concurrent_managed_access = yes(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
        facts.pageable_memory_access = yes(Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
        facts.host_page_tables =
            yes(Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
        facts.direct_managed_access_from_host =
            yes(Attribute::CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST);
        facts.host_native_atomics = yes(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED);
        facts.memory_pools = self.pools && yes(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
        facts.mempool_handle_types = number(Attribute::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES);
        facts.virtual_memory_management =
            yes(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
        facts.ipc_events = yes(Attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
        facts.dma_buf = yes(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
        facts.host_register = yes(Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
        Ok(facts)
    }

    fn attribute(&self, attribute: Attribute, device: i32) -> i32 {
        let mut value = 0;
        // SAFETY: the out-pointer is valid. An attribute newer than the driver is an error code, read as 0.
        match unsafe { self.table.cuDeviceGetAttribute(&mut value, attribute, device) } {
            Ok(()) => value,
            Err(_) => 0,
        }
    }

    /// Whether `accessing` could be given access to memory of `owner`. Says nothing about whether it has it.
    pub fn can_access_peer(&self, accessing: i32, owner: i32) -> Result<bool, Failure> {
        let mut can = 0;
        // SAFETY: the out-pointer is valid; bad devices are an error code.
        unsafe { self.table.cuDeviceCanAccessPeer(&mut can, accessing, owner)? };
        Ok(truth(can))
    }
}

/// A C string in a buffer whose last byte is 0.
fn text(buffer: &[c_char]) -> String {
    // SAFETY: the callers leave the last byte of their zeroed buffers to themselves, so there is a NUL.
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned()
}
