//! What the driver knows about an address.
use crate::block::{Block, Kind, Place};
use crate::call::{Entry, In, Out, call};
use crate::codes::{self, Code};
use crate::world::World;

const CONTEXT: u32 = 1;
const MEMORY_TYPE: u32 = 2;
const DEVICE_POINTER: u32 = 3;
const HOST_POINTER: u32 = 4;
const SYNC_MEMOPS: u32 = 6;
const BUFFER_ID: u32 = 7;
const IS_MANAGED: u32 = 8;
const DEVICE_ORDINAL: u32 = 9;
const IS_LEGACY_IPC_CAPABLE: u32 = 10;
const RANGE_START: u32 = 11;
const RANGE_SIZE: u32 = 12;
const MAPPED: u32 = 13;
const ALLOWED_HANDLE_TYPES: u32 = 14;
const IS_RDMA_CAPABLE: u32 = 15;
const ACCESS_FLAGS: u32 = 16;
const MEMPOOL_HANDLE: u32 = 17;
const MAPPING_SIZE: u32 = 18;
const MAPPING_BASE: u32 = 19;
const MEMORY_BLOCK_ID: u32 = 20;
const IS_DECOMPRESS_CAPABLE: u32 = 21;

/// Bytes of an attribute's value.
fn width(which: u32) -> Option<usize> {
    match which {
        IS_MANAGED | MAPPED | IS_LEGACY_IPC_CAPABLE | IS_RDMA_CAPABLE | IS_DECOMPRESS_CAPABLE => Some(1),
        MEMORY_TYPE | DEVICE_ORDINAL | SYNC_MEMOPS => Some(4),
        CONTEXT | DEVICE_POINTER | HOST_POINTER | BUFFER_ID | RANGE_START | RANGE_SIZE
        | ALLOWED_HANDLE_TYPES | ACCESS_FLAGS | MEMPOOL_HANDLE | MAPPING_SIZE | MAPPING_BASE
        | MEMORY_BLOCK_ID => Some(8),
        _ => None,
    }
}

fn value(world: &World, block: &Block, address: u64, which: u32) -> Result<u64, Code> {
    let offset = address - block.base;
    let on_host = block.on_host();
    let in_process = matches!(block.place, Place::Host(_));
    let host_pool = block.kind == Kind::Pool && in_process && !world.is_managed(block);
    Ok(match which {
        // Pool and mapped memory belongs to a device, not to a context.
        CONTEXT => match block.kind {
            Kind::Pool | Kind::Mapping | Kind::Imported | Kind::Graph => 0,
            _ => block.context,
        },
        MEMORY_TYPE if on_host || host_pool => 1,
        MEMORY_TYPE => 2,
        DEVICE_POINTER => {
            if !world.has_address(block, world.current()?.handle) {
                return Err(codes::INVALID_VALUE);
            }
            block.device_base() + offset
        }
        HOST_POINTER => match block.place {
            Place::Host(base) => base + offset,
            Place::Store { .. } => return Err(codes::INVALID_VALUE),
        },
        SYNC_MEMOPS => u64::from(block.sync_memops),
        BUFFER_ID | MEMORY_BLOCK_ID => block.id,
        IS_MANAGED => u64::from(world.is_managed(block)),
        DEVICE_ORDINAL => block.device as u64,
        IS_LEGACY_IPC_CAPABLE => u64::from(
            block.kind == Kind::Default && world.devices[block.device].gpu.has(crate::attribute::IPC_EVENT),
        ),
        // The driver knows no range of what pools of the host gave.
        RANGE_START | RANGE_SIZE if host_pool => return Err(codes::INVALID_VALUE),
        RANGE_START | MAPPING_BASE => block.base,
        RANGE_SIZE | MAPPING_SIZE => block.size,
        MAPPED => 1,
        ALLOWED_HANDLE_TYPES => match block.kind {
            Kind::Pool => world.pools.get(block.source).map_or(0, |pool| u64::from(pool.handle_types)),
            Kind::Mapping => {
                world.physicals.get(block.source).map_or(0, |memory| u64::from(memory.handle_types))
            }
            _ => 0,
        },
        IS_RDMA_CAPABLE => u64::from(matches!(block.kind, Kind::Default)),
        ACCESS_FLAGS => 3,
        MEMPOOL_HANDLE if matches!(block.kind, Kind::Pool | Kind::Imported) => block.source,
        MEMPOOL_HANDLE | IS_DECOMPRESS_CAPABLE => 0,
        _ => return Err(codes::INVALID_VALUE),
    })
}

fn put(data: Out<u8>, which: u32, value: u64) -> Result<(), Code> {
    let width = width(which).ok_or(codes::INVALID_VALUE)?;
    for (i, byte) in value.to_ne_bytes().into_iter().take(width).enumerate() {
        data.put_at(i, byte)?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuPointerGetAttribute(data: Out<u8>, which: u32, address: u64) -> u32 {
    static E: Entry = Entry::new("cuPointerGetAttribute");
    call(&E, [data.address(), u64::from(which), address], |session| {
        data.check()?;
        let block = session.blocks.at(address).ok_or(codes::INVALID_VALUE)?;
        let value = value(session, block, address, which)?;
        put(data, which, value)
    })
}

/// The batched question answers with zeros (and ordinal -2) where the single one fails.
#[unsafe(no_mangle)]
pub extern "C" fn cuPointerGetAttributes(count: u32, which: In<u32>, data: In<Out<u8>>, address: u64) -> u32 {
    static E: Entry = Entry::new("cuPointerGetAttributes");
    call(&E, [u64::from(count), which.address(), data.address(), address], |session| {
        let which = which.list(count as usize)?;
        let data = data.list(count as usize)?;
        if which.iter().any(|which| width(*which).is_none()) {
            return Err(codes::INVALID_VALUE);
        }
        for (which, data) in which.into_iter().zip(data) {
            let known = session.blocks.at(address);
            let answer = known.map(|block| value(session, block, address, which));
            let unknown = if which == DEVICE_ORDINAL { -2_i64 as u64 } else { 0 };
            put(data, which, answer.and_then(Result::ok).unwrap_or(unknown))?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuPointerSetAttribute(value: In<u32>, which: u32, address: u64) -> u32 {
    static E: Entry = Entry::guarded("cuPointerSetAttribute");
    call(&E, [value.address(), u64::from(which), address], |session| {
        let on = value.get()? != 0;
        let block = session.blocks.at_mut(address).ok_or(codes::INVALID_VALUE)?;
        if which != SYNC_MEMOPS || block.kind == Kind::Managed {
            return Err(codes::INVALID_VALUE);
        }
        block.sync_memops = on;
        Ok(())
    })
}
