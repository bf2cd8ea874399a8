//! Memory pools.
use crate::attribute;
use crate::block::Kind;
use crate::call::{Entry, In, Out, call};
use crate::codes::{self, Code};
use crate::pool::{LOCATION_DEVICE, Location, Pool};
use crate::share::Shared;
use crate::world::World;

const PINNED: u32 = 1;
const MANAGED: u32 = 2;
const POSIX_FD: u32 = 1;

const RELEASE_THRESHOLD: u32 = 4;
const RESERVED_CURRENT: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED_CURRENT: u32 = 7;
const USED_HIGH: u32 = 8;

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolProperties {
    kind: u32,
    handle_types: u32,
    location: Location,
    security: u64,
    max_size: usize,
    usage: u16,
    reserved: [u8; 54],
}

impl PoolProperties {
    /// The device of plain device memory, which is all that allocation nodes can give.
    pub fn plain_device(&self) -> Option<i32> {
        let plain = self.kind == PINNED && self.location.kind == LOCATION_DEVICE && self.handle_types == 0;
        plain.then_some(self.location.id)
    }

    pub fn of_device(device: usize) -> PoolProperties {
        PoolProperties {
            kind: PINNED,
            handle_types: 0,
            location: Location { kind: LOCATION_DEVICE, id: device as i32 },
            security: 0,
            max_size: 0,
            usage: 0,
            reserved: [0; 54],
        }
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AccessDescription {
    location: Location,
    flags: u32,
}

impl AccessDescription {
    pub fn of_device(device: usize, flags: u32) -> AccessDescription {
        AccessDescription { location: Location { kind: LOCATION_DEVICE, id: device as i32 }, flags }
    }

    pub fn pair(self) -> (Location, u32) {
        (self.location, self.flags)
    }
}

/// The device that stands behind a pool's place, and whether it has such pools.
fn pool_device(world: &World, kind: u32, location: Location) -> Result<usize, Code> {
    let host_attribute = match (kind, location.kind) {
        (PINNED | MANAGED, LOCATION_DEVICE) => {
            let device = world.ordinal(location.id)?;
            world.has_pools(device)?;
            let managed = kind == MANAGED;
            if managed && !world.devices[device].gpu.has(attribute::CONCURRENT_MANAGED_ACCESS) {
                return Err(codes::NOT_SUPPORTED);
            }
            return Ok(device);
        }
        (PINNED, 2) => attribute::HOST_POOLS,
        (PINNED, 3) => attribute::HOST_NUMA_POOLS,
        (MANAGED, 0 | 2 | 3) => attribute::CONCURRENT_MANAGED_ACCESS,
        _ => return Err(codes::INVALID_VALUE),
    };
    if world.devices[0].gpu.has(host_attribute) { Ok(0) } else { Err(codes::NOT_SUPPORTED) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolCreate(pool: Out<u64>, properties: In<PoolProperties>) -> u32 {
    static E: Entry = Entry::guarded("cuMemPoolCreate");
    call(&E, [pool.address(), properties.address()], |session| {
        pool.check()?;
        let wanted = properties.get()?;
        let device = pool_device(session, wanted.kind, wanted.location)?;
        let supported = session.devices[device].gpu.attribute(attribute::POOL_HANDLE_TYPES) as u32;
        if wanted.handle_types & !supported != 0 || (wanted.kind == MANAGED && wanted.handle_types != 0) {
            return Err(codes::INVALID_VALUE);
        }
        let handle = session.pools.insert(|handle| Pool {
            handle_types: wanted.handle_types,
            max_size: wanted.max_size as u64,
            managed: wanted.kind == MANAGED,
            ..Pool::new(handle, device, wanted.location)
        })?;
        pool.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolDestroy(pool: u64) -> u32 {
    static E: Entry = Entry::guarded("cuMemPoolDestroy");
    call(&E, [pool], |session| session.destroy_pool(pool))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolTrimTo(pool: u64, keep: usize) -> u32 {
    static E: Entry = Entry::guarded("cuMemPoolTrimTo");
    call(&E, [pool, keep as u64], |session| {
        session.whole_pool(pool)?;
        session.shrink_pool(pool, keep as u64);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolGetAttribute(pool: u64, which: u32, value: Out<u64>) -> u32 {
    static E: Entry = Entry::guarded("cuMemPoolGetAttribute");
    call(&E, [pool, u64::from(which), value.address()], |session| {
        value.check()?;
        let asked = session.whole_pool(pool)?;
        value_of(asked, which, value)
    })
}

fn value_of(pool: &Pool, which: u32, value: Out<u64>) -> Result<(), Code> {
    match which {
        1..=3 => value.cast::<i32>().put(pool.reuse[which as usize - 1]),
        RELEASE_THRESHOLD => value.put(pool.threshold),
        RESERVED_CURRENT => value.put(pool.reserved),
        RESERVED_HIGH => value.put(pool.reserved_high),
        USED_CURRENT => value.put(pool.used),
        USED_HIGH => value.put(pool.used_high),
        _ => Err(codes::INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolSetAttribute(pool: u64, which: u32, value: In<u64>) -> u32 {
    static E: Entry = Entry::guarded("cuMemPoolSetAttribute");
    call(&E, [pool, u64::from(which), value.address()], |session| {
        session.whole_pool(pool)?;
        let changed = session.pool_mut(pool)?;
        match which {
            1..=3 => changed.reuse[which as usize - 1] = value.cast::<i32>().get()?,
            RELEASE_THRESHOLD => changed.threshold = value.get()?,
            // A high mark can only be brought down to the present value, by writing zero.
            RESERVED_HIGH if value.get()? == 0 => changed.reserved_high = changed.reserved,
            USED_HIGH if value.get()? == 0 => changed.used_high = changed.used,
            _ => return Err(codes::INVALID_VALUE),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolSetAccess(pool: u64, wanted: In<AccessDescription>, count: usize) -> u32 {
    static E: Entry = Entry::guarded("cuMemPoolSetAccess");
    call(&E, [pool, wanted.address(), count as u64], |session| {
        let wanted: Vec<_> = wanted.list(count)?.into_iter().map(AccessDescription::pair).collect();
        session.set_pool_access(pool, &wanted)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolGetAccess(flags: Out<u32>, pool: u64, location: In<Location>) -> u32 {
    static E: Entry = Entry::guarded("cuMemPoolGetAccess");
    call(&E, [flags.address(), pool, location.address()], |session| {
        flags.check()?;
        let location = location.get()?;
        session.pool(pool)?;
        if location.kind != LOCATION_DEVICE {
            return Err(codes::INVALID_VALUE);
        }
        let device = session.ordinal(location.id)?;
        flags.put(session.pool_access(pool, device))
    })
}

/// The default or current pool of a place; the host and managed ones are not simulated.
fn pool_of_place(
    entry: &'static Entry,
    pool: Out<u64>,
    location: In<Location>,
    kind: u32,
    find: fn(&crate::world::Device) -> u64,
) -> Code {
    call(entry, [pool.address(), location.address(), u64::from(kind)], |session| {
        pool.check()?;
        let location = location.get()?;
        let device = pool_device(session, kind, location)?;
        if kind != PINNED || location.kind != LOCATION_DEVICE {
            session.note = Some(format!("unsupported: {} for this place", session.entry).into());
            return Err(codes::NOT_SUPPORTED);
        }
        pool.put(find(&session.devices[device]))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetDefaultMemPool(pool: Out<u64>, location: In<Location>, kind: u32) -> u32 {
    static E: Entry = Entry::new("cuMemGetDefaultMemPool");
    pool_of_place(&E, pool, location, kind, |device| device.default_pool)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetMemPool(pool: Out<u64>, location: In<Location>, kind: u32) -> u32 {
    static E: Entry = Entry::new("cuMemGetMemPool");
    pool_of_place(&E, pool, location, kind, |device| device.current_pool)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemSetMemPool(location: In<Location>, kind: u32, pool: u64) -> u32 {
    static E: Entry = Entry::guarded("cuMemSetMemPool");
    call(&E, [location.address(), u64::from(kind), pool], |session| {
        let location = location.get()?;
        let device = pool_device(session, kind, location)?;
        let chosen = session.pool(pool)?;
        if chosen.location != location || chosen.managed != (kind == MANAGED) || chosen.destroyed {
            return Err(codes::INVALID_VALUE);
        }
        if chosen.on_device() {
            session.devices[device].current_pool = pool;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolExportToShareableHandle(
    handle: Out<i32>,
    pool: u64,
    kind: u32,
    flags: u64,
) -> u32 {
    static E: Entry = Entry::new("cuMemPoolExportToShareableHandle");
    call(&E, [handle.address(), pool, u64::from(kind), flags], |session| {
        handle.check()?;
        let exported = session.pool(pool)?;
        if flags != 0 || kind != POSIX_FD || exported.handle_types & kind == 0 || exported.imported {
            return Err(codes::INVALID_VALUE);
        }
        let fd = session.share(Shared::Pool(pool))?;
        handle.put(fd)
    })
}

/// The descriptor itself is passed where a pointer stands.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolImportFromShareableHandle(
    pool: Out<u64>,
    handle: u64,
    kind: u32,
    flags: u64,
) -> u32 {
    static E: Entry = Entry::new("cuMemPoolImportFromShareableHandle");
    call(&E, [pool.address(), handle, u64::from(kind), flags], |session| {
        pool.check()?;
        if kind != POSIX_FD || flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        let Some(Shared::Pool(source)) = session.shared_by(handle as i32) else {
            return Err(codes::INVALID_VALUE);
        };
        let (device, location) = (session.pool(source)?.device, session.pool(source)?.location);
        let imported =
            session.pools.insert(|handle| Pool { imported: true, ..Pool::new(handle, device, location) })?;
        pool.put(imported)
    })
}

/// `CUmemPoolPtrExportData`: opaque to the program.
type PointerExport = [u64; 8];
const EXPORT_MAGIC: u64 = u64::from_ne_bytes(*b"warpsimp");

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolExportPointer(data: Out<PointerExport>, address: u64) -> u32 {
    static E: Entry = Entry::new("cuMemPoolExportPointer");
    call(&E, [data.address(), address], |session| {
        data.check()?;
        let block = session.blocks.at(address).filter(|block| block.kind == Kind::Pool);
        let block = block.ok_or(codes::INVALID_VALUE)?;
        if session.pool(block.source)?.handle_types == 0 {
            return Err(codes::INVALID_VALUE);
        }
        data.put([EXPORT_MAGIC, block.base, block.id, 0, 0, 0, 0, 0])
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolImportPointer(address: Out<u64>, pool: u64, data: In<PointerExport>) -> u32 {
    static E: Entry = Entry::new("cuMemPoolImportPointer");
    call(&E, [address.address(), pool, data.address()], |session| {
        address.check()?;
        let [magic, base, id, ..] = data.get()?;
        let importer = session.whole_pool(pool)?;
        if magic != EXPORT_MAGIC || !importer.imported {
            return Err(codes::INVALID_VALUE);
        }
        let block = session.blocks.at(base).filter(|block| block.id == id).ok_or(codes::INVALID_VALUE)?;
        let (size, place, device) = (block.size, block.place, block.device);
        let context = session.devices[device].primary;
        let slot = session.take_space(device, size, true)?;
        session.enter(Kind::Imported, device, context, Some(slot), slot.va, size);
        if let Some(alias) = session.blocks.at_mut(slot.va) {
            alias.place = place;
            alias.source = pool;
        }
        session.pool_mut(pool)?.blocks += 1;
        address.put(slot.va)
    })
}
