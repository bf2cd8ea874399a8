//! Virtual memory management.
use crate::api::pool::AccessDescription;
use crate::block::Kind;
use crate::call::{Entry, In, Out, call};
use crate::codes;
use crate::pool::{LOCATION_DEVICE, Location};
use crate::share::Shared;
use crate::vmm::GRANULARITY;

const PINNED: u32 = 1;
const POSIX_FD: u32 = 1;

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocationProperties {
    kind: u32,
    handle_types: u32,
    location: Location,
    metadata: u64,
    flags: [u8; 8],
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAllocationGranularity(
    granularity: Out<usize>,
    properties: In<AllocationProperties>,
    option: u32,
) -> u32 {
    static E: Entry = Entry::new("cuMemGetAllocationGranularity");
    call(&E, [granularity.address(), properties.address(), u64::from(option)], |session| {
        granularity.check()?;
        let properties = properties.get()?;
        if properties.kind != PINNED || option > 1 {
            return Err(codes::INVALID_VALUE);
        }
        if properties.location.kind == LOCATION_DEVICE {
            session.device(properties.location.id)?;
        }
        granularity.put(GRANULARITY as usize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemCreate(
    handle: Out<u64>,
    size: usize,
    properties: In<AllocationProperties>,
    flags: u64,
) -> u32 {
    static E: Entry = Entry::new("cuMemCreate");
    call(&E, [handle.address(), size as u64, properties.address(), flags], |session| {
        handle.check()?;
        let wanted = properties.get()?;
        if wanted.kind != PINNED || flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        let created = session.create_physical(size as u64, wanted.location, wanted.handle_types)?;
        handle.put(created)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> u32 {
    static E: Entry = Entry::new("cuMemRelease");
    call(&E, [handle], |session| session.release_physical(handle))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressReserve(
    address: Out<u64>,
    size: usize,
    alignment: usize,
    wanted: u64,
    flags: u64,
) -> u32 {
    static E: Entry = Entry::new("cuMemAddressReserve");
    call(&E, [address.address(), size as u64, alignment as u64, wanted, flags], |session| {
        address.check()?;
        if flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        let base = session.reserve_addresses(size as u64, alignment as u64, wanted)?;
        address.put(base)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(address: u64, size: usize) -> u32 {
    static E: Entry = Entry::new("cuMemAddressFree");
    call(&E, [address, size as u64], |session| session.free_addresses(address, size as u64))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64) -> u32 {
    static E: Entry = Entry::new("cuMemMap");
    call(&E, [address, size as u64, offset as u64, handle, flags], |session| {
        if flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        session.map(address, size as u64, offset as u64, handle)
    })
}

/// Unmapping is not ordered by streams: the driver waits for the work of the device first.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(address: u64, size: usize) -> u32 {
    static E: Entry = Entry::new("cuMemUnmap");
    call(&E, [address, size as u64], |session| {
        if let Some(device) = session.blocks.at(address).map(|block| block.device) {
            session.synchronize_device(device);
        }
        session.unmap(address, size as u64)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemSetAccess(
    address: u64,
    size: usize,
    wanted: In<AccessDescription>,
    count: usize,
) -> u32 {
    static E: Entry = Entry::new("cuMemSetAccess");
    call(&E, [address, size as u64, wanted.address(), count as u64], |session| {
        let wanted: Vec<_> = wanted.list(count)?.into_iter().map(AccessDescription::pair).collect();
        session.set_mapping_access(address, size as u64, &wanted)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) -> u32 {
    static E: Entry = Entry::new("cuMemGetAccess");
    call(&E, [flags.address(), location.address(), address], |session| {
        flags.check()?;
        let location = location.get()?;
        if location.kind != LOCATION_DEVICE {
            return Err(codes::INVALID_VALUE);
        }
        let device = session.ordinal(location.id)?;
        let block = session.blocks.at(address).filter(|block| block.kind == Kind::Mapping);
        let access = block.ok_or(codes::INVALID_VALUE)?.access.get(&device).copied().unwrap_or(0);
        flags.put(u64::from(access))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRetainAllocationHandle(handle: Out<u64>, address: u64) -> u32 {
    static E: Entry = Entry::new("cuMemRetainAllocationHandle");
    call(&E, [handle.address(), address], |session| {
        handle.check()?;
        let block = session.blocks.at(address).filter(|block| block.kind == Kind::Mapping);
        let source = block.ok_or(codes::INVALID_VALUE)?.source;
        session.physical_mut(source)?.handles += 1;
        handle.put(source)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAllocationPropertiesFromHandle(
    properties: Out<AllocationProperties>,
    handle: u64,
) -> u32 {
    static E: Entry = Entry::new("cuMemGetAllocationPropertiesFromHandle");
    call(&E, [properties.address(), handle], |session| {
        let physical = session.physical_mut(handle)?;
        properties.put(AllocationProperties {
            kind: PINNED,
            handle_types: physical.handle_types,
            location: Location { kind: LOCATION_DEVICE, id: physical.device as i32 },
            metadata: 0,
            flags: [0; 8],
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemExportToShareableHandle(out: Out<i32>, handle: u64, kind: u32, flags: u64) -> u32 {
    static E: Entry = Entry::new("cuMemExportToShareableHandle");
    call(&E, [out.address(), handle, u64::from(kind), flags], |session| {
        out.check()?;
        if kind != POSIX_FD || flags != 0 || session.physical_mut(handle)?.handle_types & kind == 0 {
            return Err(codes::INVALID_VALUE);
        }
        let fd = session.share(Shared::Physical(handle))?;
        out.put(fd)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemImportFromShareableHandle(handle: Out<u64>, os_handle: u64, kind: u32) -> u32 {
    static E: Entry = Entry::new("cuMemImportFromShareableHandle");
    call(&E, [handle.address(), os_handle, u64::from(kind)], |session| {
        handle.check()?;
        let Some(Shared::Physical(source)) = session.shared_by(os_handle as i32) else {
            return Err(codes::INVALID_VALUE);
        };
        if kind != POSIX_FD {
            return Err(codes::INVALID_VALUE);
        }
        session.physical_mut(source)?.handles += 1;
        handle.put(source)
    })
}
