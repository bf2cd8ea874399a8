//! Arrays in memory that somebody else allocated: what the caller claims of it is compared with what the ledger and
//! the driver know.
#![forbid(unsafe_code)]

use super::storage::{Deleter, Owner, Storage};
use super::{ARRAYS, Array, Form};
use crate::alloc::{self, Kind, PointerInfo, Rule};
use crate::device::Device;
use crate::error::{Result, error, fail};
use crate::handle::Handle;
use crate::runtime;
use std::sync::Arc;

/// Somebody else's memory.
pub struct External {
    /// Where the first item is.
    pub address: u64,
    /// Bytes from there on; 0 for what the array reaches.
    pub capacity: u64,
    /// What the caller takes it for, to be checked; `None` is found out.
    pub kind: Option<Kind>,
    pub deleter: Option<Deleter>,
}

/// Makes an array of it. The deleter is not called when this fails.
pub fn wrap(device: &'static Device, form: Form<'_>, external: External) -> Result<Handle> {
    let External { address, capacity, kind, deleter } = external;
    let layout = form.layout()?;
    let reach = layout.reach();
    if address == 0 && !layout.is_empty() {
        fail!(
            InvalidArgument,
            "the pointer to wrap is NULL, and the shape {:?} has {} items; allocate with warp_array_empty",
            form.shape,
            layout.count()
        );
    }
    if capacity != 0 && capacity < reach.above {
        fail!(
            InvalidArgument,
            "the array reaches {} bytes from its first item, and the capacity is {capacity}",
            reach.above
        );
    }
    let capacity = capacity.max(reach.above);
    if address < reach.below || address.checked_add(capacity).is_none() {
        fail!(
            SizeOverflow,
            "an array at {address:#x} that reaches {} bytes down and {capacity} up leaves the address space",
            reach.below
        );
    }
    let found = if layout.is_empty() {
        (kind.unwrap_or(if device.is_cuda() { Kind::Unknown } else { Kind::Host }), Rule::Unknown)
    } else {
        classify(device, address - reach.below, reach.below + capacity, kind)?
    };
    let owner = deleter.map_or(Owner::Lender, Owner::Deleter);
    let home = alloc::find(address).and_then(|block| block.home()).unwrap_or(device);
    let storage = Storage::new((device, home), address, capacity, found, owner);
    let array = Array::new(storage, form.dtype, layout);
    let storage = Arc::clone(&array.storage);
    ARRAYS.insert(array).inspect_err(|_| storage.recall())
}

/// What the memory is, if it is what the caller says.
fn classify(device: &'static Device, low: u64, size: u64, claim: Option<Kind>) -> Result<(Kind, Rule)> {
    let info = alloc::describe(low)?;
    let found = if info.rule == Rule::Unknown && info.kind == Kind::Unknown {
        unknown(device, low)?
    } else {
        check_device(device, low, &info)?;
        check_range(low, size, &info)?;
        (info.kind, info.rule)
    };
    match claim {
        Some(claim) if claim != found.0 => fail!(
            InvalidArgument,
            "the memory at {low:#x} is said to be {} and is {}; leave the kind at WARP_MEMORY_UNKNOWN to have it found out",
            claim.name(),
            found.0.name()
        ),
        _ => Ok(found),
    }
}

/// An address that neither the ledger nor the driver knows: ordinary host memory, or nothing.
fn unknown(device: &'static Device, low: u64) -> Result<(Kind, Rule)> {
    if !device.is_cuda() {
        return Ok((Kind::Host, Rule::Pageable));
    }
    runtime::driver()?;
    if !device.facts().pageable_memory_access {
        fail!(
            InvalidArgument,
            "{low:#x} is not memory of \"{}\": the driver does not know it, and the device does not reach ordinary host memory; wrap it on \"cpu\"",
            device.alias()
        );
    }
    // The device reaches it if it is host memory, which nobody can be asked.
    Ok((Kind::Unknown, Rule::Unknown))
}

fn check_device(claimed: &'static Device, low: u64, info: &PointerInfo) -> Result<()> {
    // Managed memory is at home everywhere.
    if info.kind == Kind::CudaManaged {
        return Ok(());
    }
    let actual = info.device.ok_or_else(|| {
        error!(
            NoSuchDevice,
            "{low:#x} is memory of GPU {}, which is not in the table of devices, and not of \"{}\"",
            info.ordinal,
            claimed.alias()
        )
    })?;
    if actual.is_lost() {
        return Err(actual.lost_error());
    }
    // Pools, mappings and graphs belong to a GPU, plain memory to one context of it. A block that outlived a shutdown
    // names a device of the former table.
    let same_gpu = claimed.ordinal() == actual.ordinal()
        && (info.rule != Rule::Peer || claimed.is_primary() && actual.is_primary());
    let same = if claimed.is_cuda() && actual.is_cuda() {
        same_gpu || std::ptr::eq(claimed, actual)
    } else {
        claimed.is_cuda() == actual.is_cuda()
    };
    if !same {
        fail!(
            InvalidArgument,
            "{low:#x} is {} memory of \"{}\", and the array is said to be on \"{}\"; wrap it on \"{}\"",
            info.kind.name(),
            actual.alias(),
            claimed.alias(),
            actual.alias()
        );
    }
    Ok(())
}

fn check_range(low: u64, size: u64, info: &PointerInfo) -> Result<()> {
    // Registered memory, and memory of some other makers, has no size that is known.
    if info.size == 0 {
        return Ok(());
    }
    let rest = info.size - (low - info.base).min(info.size);
    if size > rest {
        fail!(
            InvalidArgument,
            "{size} bytes at {low:#x} pass the end of the block of {} bytes at {:#x} by {}",
            info.size,
            info.base,
            size - rest
        );
    }
    Ok(())
}
