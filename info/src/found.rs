//! What was found. The fields are those of the JSON, which `docs/info.md` describes: a change there is a new `SCHEMA`, an
//! addition is not.

use serde::Serialize;

pub const SCHEMA: u32 = 1;

#[derive(Debug, Serialize)]
pub struct Found {
    pub schema: u32,
    pub library: Library,
    pub driver: Driver,
    pub devices: Vec<Device>,
    pub access: Access,
    pub messages: Vec<Message>,
    pub problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
pub struct Library {
    pub version: String,
    pub version_number: i32,
}

/// The driver's version, or the reason why there is no GPU.
#[derive(Debug, Default, Serialize)]
pub struct Driver {
    pub version: Option<String>,
    pub reason: Option<String>,
}

/// What a device is. What speaks of GPUs is nothing or false for the CPU.
#[derive(Debug, Serialize)]
pub struct Device {
    pub alias: String,
    pub name: String,
    pub is_cpu: bool,
    pub is_cuda: bool,
    pub ordinal: Option<i32>,
    pub uuid: Option<String>,
    pub pci_bus_id: Option<String>,
    pub arch: Option<i32>,
    pub sm_count: Option<i32>,
    pub max_shared_memory_per_block: Option<i32>,
    pub is_primary: bool,
    pub has_context: bool,
    pub total_memory: u64,
    pub memory: Option<Memory>,
    pub capabilities: Capabilities,
    pub is_mempool_enabled: bool,
    pub mempool: Option<Mempool>,
}

#[derive(Debug, Serialize)]
pub struct Memory {
    pub free: u64,
    pub total: u64,
}

#[derive(Debug, Serialize)]
pub struct Capabilities {
    pub is_uva: bool,
    pub is_integrated: bool,
    pub is_cpu_memory_access_from_gpu_supported: bool,
    pub is_gpu_memory_access_from_cpu_supported: bool,
    pub is_cpu_gpu_atomic_supported: bool,
    pub is_managed_memory_supported: bool,
    pub is_concurrent_managed_access_supported: bool,
    pub is_mempool_supported: bool,
    pub is_ipc_supported: bool,
    pub is_virtual_memory_supported: bool,
    pub is_dma_buf_supported: bool,
}

/// The pool that a device allocates from. What could not be asked is nothing.
#[derive(Debug, Serialize)]
pub struct Mempool {
    pub is_device_pool: bool,
    pub used: Option<u64>,
    pub used_high: Option<u64>,
    pub reserved: Option<u64>,
    pub reserved_high: Option<u64>,
    pub release_threshold: Option<u64>,
}

/// A row for each GPU that owns memory, a column for each that would touch it; nothing where it could not be asked.
pub type Matrix = Vec<Vec<Option<bool>>>;

#[derive(Debug, Default, Serialize)]
pub struct Access {
    pub gpus: Vec<String>,
    pub peer_access_supported: Matrix,
    pub peer_access_enabled: Matrix,
    pub mempool_access_supported: Matrix,
    pub mempool_access_enabled: Matrix,
}

/// What the library had to say meanwhile.
#[derive(Debug, Serialize)]
pub struct Message {
    pub level: &'static str,
    pub text: String,
}

/// A question that got no answer.
#[derive(Debug, Serialize)]
pub struct Problem {
    pub question: String,
    pub status: String,
    pub driver_code: i32,
    pub message: String,
}

impl Found {
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("numbers, texts and lists are JSON");
        json + "\n"
    }
}
