//! Managed memory: where it is sent, hints, and what the driver tells of them. And handles of memory for other processes.

use super::pool::place_of;
use super::{Driver, Failure, RawStream};
use cudarc::driver::sys::{
    CUipcMemHandle, CUmem_advise, CUmem_range_attribute, CUmemLocation, CUmemLocationType,
};
use std::ffi::{c_int, c_void};

/// The CPU as the driver's older calls name it.
const CPU: i32 = -1;

/// A hint for managed memory. The numbers are the driver's, and part of the ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Advice {
    SetReadMostly = 1,
    UnsetReadMostly = 2,
    SetPreferredLocation = 3,
    UnsetPreferredLocation = 4,
    SetAccessedBy = 5,
    UnsetAccessedBy = 6,
}

impl Advice {
    /// Whether it takes another one back.
    pub fn is_undoing(self) -> bool {
        matches!(self, Advice::UnsetReadMostly | Advice::UnsetPreferredLocation | Advice::UnsetAccessedBy)
    }

    pub const ALL: [Advice; 6] = [
        Advice::SetReadMostly,
        Advice::UnsetReadMostly,
        Advice::SetPreferredLocation,
        Advice::UnsetPreferredLocation,
        Advice::SetAccessedBy,
        Advice::UnsetAccessedBy,
    ];

    fn native(self) -> CUmem_advise {
        match self {
            Advice::SetReadMostly => CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY,
            Advice::UnsetReadMostly => CUmem_advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY,
            Advice::SetPreferredLocation => CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
            Advice::UnsetPreferredLocation => CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
            Advice::SetAccessedBy => CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY,
            Advice::UnsetAccessedBy => CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY,
        }
    }
}

/// What the driver tells of a range of managed memory: what holds for all of it. Places are GPUs by their ordinals, -1 for the
/// CPU and -2 for none.
#[derive(Debug, Clone, Copy)]
pub struct ManagedState {
    pub read_mostly: bool,
    pub preferred: i32,
    pub last_prefetch: i32,
}

/// The bytes that stand for a block in other processes.
pub type IpcHandle = [u8; 64];

/// A GPU by its ordinal, or the CPU.
fn location(place: i32) -> CUmemLocation {
    if place == CPU {
        CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, id: 0 }
    } else {
        place_of(place)
    }
}

impl Driver {
    /// Has a range of managed memory moved to a place, in the order of the stream. Needs no current context unless the stream is
    /// a special one. Breaks the capture of a stream that is captured.
    pub fn prefetch(&self, ptr: u64, size: usize, place: i32, stream: RawStream) -> Result<(), Failure> {
        let stream = stream.0.cast();
        // SAFETY: the caller pins the stream; any range that is not managed memory is an error code.
        let newer = unsafe { self.table.cuMemPrefetchAsync_v2(ptr, size, location(place), 0, stream) };
        match newer {
            // SAFETY: as above.
            Err(f) if f.is_missing() => unsafe { self.table.cuMemPrefetchAsync(ptr, size, place, stream) },
            said => said,
        }
    }

    /// Gives a hint for a range of managed memory. Needs a current context.
    pub fn advise(&self, ptr: u64, size: usize, advice: Advice, place: i32) -> Result<(), Failure> {
        let advice = advice.native();
        // SAFETY: any range that is not managed memory is an error code.
        let newer = unsafe { self.table.cuMemAdvise_v2(ptr, size, advice, location(place)) };
        match newer {
            // SAFETY: as above.
            Err(f) if f.is_missing() => unsafe { self.table.cuMemAdvise(ptr, size, advice, place) },
            said => said,
        }
    }

    /// Asks for what was said of a range of managed memory. Needs a current context.
    pub fn managed_state(&self, ptr: u64, size: usize) -> Result<ManagedState, Failure> {
        let ask = |attribute| {
            let mut value: c_int = 0;
            let out: *mut c_void = (&raw mut value).cast();
            // SAFETY: the out-pointer is valid for the four bytes that these attributes have.
            unsafe { self.table.cuMemRangeGetAttribute(out, size_of::<c_int>(), attribute, ptr, size) }
                .map(|()| value)
        };
        Ok(ManagedState {
            read_mostly: ask(CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY)? != 0,
            preferred: ask(CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION)?,
            last_prefetch: ask(CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)?,
        })
    }

    /// Whether a range of managed memory was said to be accessed by a place. Needs a current context.
    pub fn managed_is_accessed_by(&self, ptr: u64, size: usize, place: i32) -> Result<bool, Failure> {
        const NONE: c_int = -2;
        // The GPUs that there are, and the CPU.
        let mut places = vec![NONE; self.device_count.max(0) as usize + 1];
        let attribute = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
        let bytes = size_of_val(places.as_slice());
        // SAFETY: the out-pointer is valid for as many bytes as are named.
        unsafe {
            self.table.cuMemRangeGetAttribute(places.as_mut_ptr().cast(), bytes, attribute, ptr, size)?;
        }
        Ok(places.contains(&place))
    }

    /// The handle of the block that an address lies in. Needs a current context, which the handle depends on.
    pub fn ipc_handle(&self, ptr: u64) -> Result<IpcHandle, Failure> {
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the out-pointer is valid; memory that has no handle is an error code.
        unsafe { self.table.cuIpcGetMemHandle(&raw mut handle, ptr)? };
        Ok(handle.reserved.map(|byte| byte as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::Advice;

    #[test]
    fn advices_have_the_numbers_of_the_driver() {
        for advice in Advice::ALL {
            assert_eq!(advice as i32, advice.native() as i32);
        }
    }
}
