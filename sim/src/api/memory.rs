//! Device and managed memory: allocation, frees, questions about sizes.
use crate::block::Kind;
use crate::call::{Entry, Out, Session, call};
use crate::codes::{self, Code};
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
