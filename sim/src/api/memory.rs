//! Device and managed memory: allocation, frees, questions about sizes, hints for managed memory.
use crate::attribute;
use crate::block::Kind;
use crate::call::{Entry, Out, Session, call};
use crate::codes::{self, Code};
use crate::pool::{LOCATION_DEVICE, Location};
use crate::work::Work;

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) -> u32 {
    static E: Entry = Entry::guarded("cuMemAlloc_v2");
    call(&E, [address.address(), bytes as u64], |session| {
        address.check()?;
        let base = session.alloc_default(bytes as u64)?;
        address.put(base)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocPitch_v2(
    address: Out<u64>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: u32,
) -> u32 {
    static E: Entry = Entry::guarded("cuMemAllocPitch_v2");
    call(
        &E,
        [address.address(), pitch.address(), width as u64, height as u64, u64::from(element)],
        |session| {
            address.check()?;
            pitch.check()?;
            if !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
                return Err(codes::INVALID_VALUE);
            }
            let row = width.checked_next_multiple_of(512).ok_or(codes::OUT_OF_MEMORY)?;
            let bytes = row.checked_mul(height).ok_or(codes::OUT_OF_MEMORY)?;
            let base = session.alloc_default(bytes as u64)?;
            pitch.put(row)?;
            address.put(base)
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocManaged(address: Out<u64>, bytes: usize, flags: u32) -> u32 {
    static E: Entry = Entry::guarded("cuMemAllocManaged");
    call(&E, [address.address(), bytes as u64, u64::from(flags)], |session| {
        address.check()?;
        let base = session.alloc_managed(bytes as u64, flags)?;
        address.put(base)
    })
}

/// Marks a block as being freed, so that no other call finds it. Its number, kind, device, source and size.
fn begin_free(
    session: &mut Session,
    base: u64,
    allowed: &[Kind],
) -> Result<(u64, Kind, usize, u64, u64), Code> {
    let block = session.blocks.at_mut(base).filter(|block| block.base == base).ok_or(codes::INVALID_VALUE)?;
    if !allowed.contains(&block.kind) {
        return Err(codes::INVALID_VALUE);
    }
    block.freeing = true;
    Ok((block.id, block.kind, block.device, block.source, block.size))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    static E: Entry = Entry::guarded("cuMemFree_v2");
    call(&E, [address], |session| {
        session.current_is_not_dead()?;
        if address == 0 {
            return Ok(());
        }
        let allowed = [Kind::Default, Kind::Pool, Kind::Managed, Kind::Imported, Kind::Graph];
        let (id, kind, device, source, size) = begin_free(session, address, &allowed)?;
        session.synchronize_device(device);
        if kind == Kind::Pool {
            session.plain_free_of_pool_block(source, size);
        }
        session.finish_free(address, id);
        session.release_pools(device);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(address: u64, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemFreeAsync");
    call(&E, [address, stream], |session| {
        session.current_is_not_dead()?;
        if address == 0 {
            return Ok(());
        }
        let stream = session.stream(stream)?;
        if session.is_captured(stream) {
            let (graph, after) = session.capture_tail(stream)?;
            let context = session.streams.get(&stream).map_or(0, |stream| stream.context);
            let node = session.add_free_node(graph, &after, address, context)?;
            session.set_tail(stream, &[node], false);
            return Ok(());
        }
        session.beside_captures()?;
        session.admit_work(stream)?;
        if session
            .blocks
            .at(address)
            .is_some_and(|block| block.base == address && block.kind == Kind::Managed)
        {
            return Err(codes::NOT_SUPPORTED);
        }
        let allowed = [Kind::Default, Kind::Pool, Kind::Imported, Kind::Graph];
        let (id, ..) = begin_free(session, address, &allowed)?;
        let stream = session.stream_for_free(stream);
        session.submit(stream, Vec::new(), Work::Free { base: address, id });
        Ok(())
    })
}

/// An allocation that becomes a node. No bytes are a success without an address and without a node.
fn capture_alloc(session: &mut Session, pool: u64, size: u64, number: u64) -> Result<u64, Code> {
    let (graph, after) = session.capture_tail(number)?;
    let context = session.streams.get(&number).map_or(0, |stream| stream.context);
    let source = session.pool(pool)?;
    let device = source.device;
    if source.destroyed || source.imported || !source.on_device() {
        return Err(codes::INVALID_VALUE);
    }
    // What graphs own cannot be exported.
    if source.handle_types != 0 {
        return Err(codes::NOT_SUPPORTED);
    }
    if size == 0 {
        return Ok(0);
    }
    let access = session.access_of_pool(pool, device);
    let (node, base) = session.add_alloc_node(graph, &after, (device, context), size, access)?;
    session.set_tail(number, &[node], false);
    Ok(base)
}

fn alloc_async(session: &mut Session, pool: Option<u64>, bytes: usize, stream: u64) -> Result<u64, Code> {
    let number = session.stream(stream)?;
    let stream = session.streams.get(&number).ok_or(codes::INVALID_HANDLE)?;
    let (device, context) = (stream.device, stream.context);
    session.has_pools(device)?;
    let pool = pool.unwrap_or(session.devices[device].current_pool);
    if session.is_captured(number) {
        return capture_alloc(session, pool, bytes as u64, number);
    }
    session.beside_captures()?;
    session.admit_work(number)?;
    session.alloc_in_order(pool, bytes as u64, number, context)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemAllocAsync");
    call(&E, [address.address(), bytes as u64, stream], |session| {
        address.check()?;
        let base = alloc_async(session, None, bytes, stream)?;
        address.put(base)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocFromPoolAsync(address: Out<u64>, bytes: usize, pool: u64, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemAllocFromPoolAsync");
    call(&E, [address.address(), bytes as u64, pool, stream], |session| {
        address.check()?;
        let base = alloc_async(session, Some(pool), bytes, stream)?;
        address.put(base)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> u32 {
    static E: Entry = Entry::new("cuMemGetInfo_v2");
    call(&E, [free.address(), total.address()], |session| {
        free.check()?;
        total.check()?;
        let device = &session.devices[session.current()?.device];
        free.put((device.gpu.memory - device.used) as usize)?;
        total.put(device.gpu.memory as usize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) -> u32 {
    static E: Entry = Entry::new("cuMemGetAddressRange_v2");
    call(&E, [base.address(), size.address(), address], |session| {
        let block = session.blocks.at(address).ok_or(codes::NOT_FOUND)?;
        base.put_if(block.base);
        size.put_if(block.size as usize);
        Ok(())
    })
}

/// Whether `[address, address + count)` is managed memory, or pageable memory that the GPUs can reach.
fn managed_range(session: &Session, address: u64, count: usize) -> Result<(), Code> {
    let end = address.checked_add(count as u64).ok_or(codes::INVALID_VALUE)?;
    if count == 0 {
        return Err(codes::INVALID_VALUE);
    }
    match session.blocks.at(address) {
        Some(block) if block.kind == Kind::Managed && end <= block.end() => Ok(()),
        None if !session.is_driver_address(address)
            && session.devices.iter().any(|device| device.gpu.has(attribute::PAGEABLE_MEMORY_ACCESS)) =>
        {
            Ok(())
        }
        _ => Err(codes::INVALID_VALUE),
    }
}

/// A place that managed memory can be sent to: a device with concurrent access, or the host.
fn destination(session: &Session, location: Location) -> Result<(), Code> {
    match location.kind {
        LOCATION_DEVICE => {
            let gpu = &session.device(location.id)?.gpu;
            if gpu.has(attribute::CONCURRENT_MANAGED_ACCESS) { Ok(()) } else { Err(codes::INVALID_DEVICE) }
        }
        2..=4 => Ok(()),
        _ => Err(codes::INVALID_VALUE),
    }
}

/// The location that the older calls name by a device or -1 for the host.
fn old_location(device: i32) -> Location {
    if device == -1 { Location { kind: 2, id: 0 } } else { Location { kind: LOCATION_DEVICE, id: device } }
}

fn prefetch(
    entry: &'static Entry,
    address: u64,
    count: usize,
    location: Location,
    flags: u32,
    stream: u64,
) -> Code {
    let args = [address, count as u64, u64::from(location.kind), location.id as u64, stream];
    call(entry, args, |session| {
        let number = session.stream(stream)?;
        session.outside_captures(number)?;
        managed_range(session, address, count)?;
        destination(session, location)?;
        if flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        session.submit(number, Vec::new(), Work::Nothing);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPrefetchAsync_v2(
    address: u64,
    count: usize,
    location: Location,
    flags: u32,
    stream: u64,
) -> u32 {
    static E: Entry = Entry::new("cuMemPrefetchAsync_v2");
    prefetch(&E, address, count, location, flags, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPrefetchAsync(address: u64, count: usize, device: i32, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemPrefetchAsync");
    prefetch(&E, address, count, old_location(device), 0, stream)
}

fn advise(entry: &'static Entry, address: u64, count: usize, advice: u32, location: Location) -> Code {
    let args = [address, count as u64, u64::from(advice), u64::from(location.kind), location.id as u64];
    call(entry, args, |session| {
        managed_range(session, address, count)?;
        match advice {
            // Read-mostly, set and unset, and unset preferred location ignore the place.
            1 | 2 | 4 => Ok(()),
            3 | 5 | 6 => destination(session, location),
            _ => Err(codes::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise_v2(address: u64, count: usize, advice: u32, location: Location) -> u32 {
    static E: Entry = Entry::guarded("cuMemAdvise_v2");
    advise(&E, address, count, advice, location)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise(address: u64, count: usize, advice: u32, device: i32) -> u32 {
    static E: Entry = Entry::guarded("cuMemAdvise");
    advise(&E, address, count, advice, old_location(device))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamAttachMemAsync(stream: u64, address: u64, length: usize, flags: u32) -> u32 {
    static E: Entry = Entry::new("cuStreamAttachMemAsync");
    call(&E, [stream, address, length as u64, u64::from(flags)], |session| {
        let number = session.stream(stream)?;
        if !session.is_captured(number) {
            session.beside_captures()?;
        }
        session.outside_captures(number)?;
        let block = session.blocks.at(address).ok_or(codes::INVALID_VALUE)?;
        let whole = length == 0 || length as u64 == block.size;
        if block.kind != Kind::Managed || !whole || !matches!(flags, 1 | 2 | 4) {
            return Err(codes::INVALID_VALUE);
        }
        session.submit(number, Vec::new(), Work::Nothing);
        Ok(())
    })
}
