//! Page-locked host memory: allocated and registered.
use crate::block::Kind;
use crate::call::{Entry, Out, call};
use crate::codes::{self, Code};

/// Portable, device map, write-combined.
const ALLOC_FLAGS: u32 = 7;

fn alloc(entry: &'static Entry, address: Out<u64>, bytes: usize, flags: u32) -> Code {
    call(entry, [address.address(), bytes as u64, u64::from(flags)], |session| {
        address.check()?;
        if flags & !ALLOC_FLAGS != 0 {
            return Err(codes::INVALID_VALUE);
        }
        let base = session.alloc_pinned(bytes as u64, flags)?;
        address.put(base)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocHost_v2(address: Out<u64>, bytes: usize) -> u32 {
    static E: Entry = Entry::guarded("cuMemAllocHost_v2");
    alloc(&E, address, bytes, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostAlloc(address: Out<u64>, bytes: usize, flags: u32) -> u32 {
    static E: Entry = Entry::guarded("cuMemHostAlloc");
    alloc(&E, address, bytes, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(address: u64) -> u32 {
    static E: Entry = Entry::guarded("cuMemFreeHost");
    call(&E, [address], |session| {
        session.current_is_not_dead()?;
        if address == 0 {
            return Ok(());
        }
        let block = session
            .blocks
            .at_mut(address)
            .filter(|block| block.base == address && block.kind == Kind::Pinned);
        let block = block.ok_or(codes::INVALID_VALUE)?;
        block.freeing = true;
        let (id, device) = (block.id, block.device);
        session.synchronize_device(device);
        session.finish_free(address, id);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32) -> u32 {
    static E: Entry = Entry::guarded("cuMemHostRegister_v2");
    call(&E, [address, bytes as u64, u64::from(flags)], |session| {
        session.register(address, bytes as u64, flags)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(address: u64) -> u32 {
    static E: Entry = Entry::guarded("cuMemHostUnregister");
    call(&E, [address], |session| {
        session.current_is_not_dead()?;
        session.unregister(address)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostGetDevicePointer_v2(device: Out<u64>, address: u64, flags: u32) -> u32 {
    static E: Entry = Entry::new("cuMemHostGetDevicePointer_v2");
    call(&E, [device.address(), address, u64::from(flags)], |session| {
        device.check()?;
        session.current()?;
        if flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        let block = session.blocks.at(address).filter(|block| block.on_host()).ok_or(codes::INVALID_VALUE)?;
        let offset = address - block.base;
        device.put(block.device_base() + offset)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostGetFlags(flags: Out<u32>, address: u64) -> u32 {
    static E: Entry = Entry::new("cuMemHostGetFlags");
    call(&E, [flags.address(), address], |session| {
        let block = session.blocks.at(address).filter(|block| block.kind == Kind::Pinned);
        let value = block.ok_or(codes::INVALID_VALUE)?.flags;
        // With unified addressing all page-locked memory is mapped.
        flags.put(value | 2)
    })
}
