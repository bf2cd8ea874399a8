//! Why a device may touch memory, or not, in words.

use super::{Finding, Reason};
use crate::device::Device;

/// How messages name a memory's home.
pub(super) fn alias(device: Option<&Device>) -> String {
    device.map_or_else(|| "no device that is known".into(), |device| format!("\"{}\"", device.alias()))
}

impl Finding {
    /// Why, in words, and what would make it legal.
    pub fn explain(&self, toucher: &Device) -> String {
        let (to, home) = (format!("\"{}\"", toucher.alias()), alias(self.home));
        match self.reason {
            Reason::Empty => "there is no memory to touch".into(),
            Reason::SameDevice => format!("the memory is of {to} itself"),
            Reason::SameGpu => format!("the memory is of the same GPU as {to}"),
            Reason::PinnedMapping => "page-locked memory is mapped into every GPU".into(),
            Reason::PageableAccess => format!("{to} reaches pageable host memory"),
            Reason::ManagedConcurrent => format!("{home} lets the CPU touch managed memory while it works"),
            Reason::ManagedDirect => format!("the CPU reaches managed memory on {home} directly"),
            Reason::ManagedOnBoth => format!("both {to} and {home} support managed memory"),
            Reason::PeerAccess => format!("peer access of {to} to {home} is enabled"),
            Reason::PoolAccess => format!("the pool of {home} gives access to {to}"),
            Reason::Mapped => format!("the mapping is for {to} too"),
            Reason::GraphAccess => format!("the pool gave access to {to} when the memory was captured"),
            Reason::NoPageableAccess => format!(
                "{to} does not reach pageable host memory; allocate it as WARP_MEMORY_PINNED, register it with CUDA, or copy it with warp_array_clone()"
            ),
            Reason::NoUnifiedAddressing => format!(
                "{to} has no unified addressing, so page-locked memory has another address there; copy it with warp_array_clone()"
            ),
            Reason::DeviceMemory => format!(
                "the CPU cannot touch memory of {home}; copy it with warp_array_clone(), or allocate it as WARP_MEMORY_CUDA_MANAGED"
            ),
            Reason::ManagedNotConcurrent => format!(
                "{home} does not let the CPU touch managed memory while it works, and whether it works cannot be told; copy it with warp_array_clone()"
            ),
            Reason::ManagedNotSupported => {
                format!("{to} and {home} do not both support managed memory; copy it with warp_array_clone()")
            }
            Reason::NotPeers => format!(
                "{to} and {home} cannot be peers on this machine; copy it with warp_array_clone(), or allocate it as WARP_MEMORY_CUDA_MANAGED"
            ),
            Reason::NoPeerAccess => format!(
                "peer access of {to} to {home} is not enabled; enable it with warp_peer_access_set_enabled({home}, {to}, 1)"
            ),
            Reason::NoPoolAccess => format!(
                "the pool does not give access to {to}; grant it with warp_mempool_access_set_enabled({home}, {to}, 1), or warp_mempool_set_access() for a pool of your own"
            ),
            Reason::NotMapped => format!(
                "the memory is mapped, and not for {to}; whoever mapped it can set that with cuMemSetAccess()"
            ),
            Reason::NoGraphAccess => format!(
                "the pool gave no access to {to} when the graph was captured, which fixes that; grant it with warp_mempool_access_set_enabled({home}, {to}, 1) before the capture begins"
            ),
            Reason::OtherProcess => format!(
                "peer access of {to} to {home} is enabled and does not lead there: the memory is another process's, whose handle is to be opened on {to} instead, or of a context of that GPU that is no device here, to be registered with warp_device_from_context()"
            ),
            Reason::NotOnLaunchDevice => format!(
                "strict mode wants every argument on {to}; WARP_LAUNCH_CHECKED lets pass what that may touch"
            ),
            Reason::UnknownMemory => {
                "neither the library nor the driver knows the memory; what is allocated here or registered with CUDA is known".into()
            }
            Reason::MappedReadOnly => {
                format!("the mapping lets {to} read it only; whoever mapped it can let it write with cuMemSetAccess()")
            }
            Reason::ForeignGraph => {
                "the memory is of a graph that other code captured, which alone knows who may touch it; of a graph that is captured here it is known".into()
            }
            Reason::NoAnswer => "the driver did not tell; warp_access_get_status() asks it again".into(),
        }
    }
}
