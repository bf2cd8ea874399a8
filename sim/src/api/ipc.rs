//! Sharing with other processes: which memory has a handle. The other side of a handle is not simulated.
use crate::attribute;
use crate::block::Kind;
use crate::call::{Entry, In, Out, call};
use crate::codes::{self, Code};
use crate::event;
use crate::share::Shared;

/// `CUipcMemHandle` and `CUipcEventHandle`: opaque to the program.
type IpcHandle = [u64; 8];
const MAGIC: u64 = u64::from_ne_bytes(*b"warpsimi");

fn process() -> u64 {
    u64::from(std::process::id())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuIpcGetMemHandle(handle: Out<IpcHandle>, address: u64) -> u32 {
    static E: Entry = Entry::new("cuIpcGetMemHandle");
    call(&E, [handle.address(), address], |session| {
        handle.check()?;
        let context = session.current()?.handle;
        let block = session.blocks.at(address).filter(|block| block.kind == Kind::Default);
        let block = block.ok_or(codes::INVALID_VALUE)?;
        if !session.devices[block.device].gpu.has(attribute::IPC_EVENT) {
            return Err(codes::NOT_SUPPORTED);
        }
        handle.put([MAGIC, process(), block.base, block.id, context, 0, 0, 0])
    })
}

fn open<T>(entry: &'static Entry, out: Out<T>, handle: In<IpcHandle>) -> Code {
    call(entry, [out.address(), handle.address()], |session| {
        out.check()?;
        session.current()?;
        let [magic, owner, ..] = handle.get()?;
        if magic != MAGIC {
            return Err(codes::INVALID_VALUE);
        }
        if owner == process() {
            return Err(codes::INVALID_CONTEXT);
        }
        session.note = Some("unsupported: memory of another process".into());
        Err(codes::NOT_SUPPORTED)
    })
}

/// The 64 bytes are passed by value; a struct of that size lies in memory either way.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ByValue(IpcHandle);

impl ByValue {
    fn by_reference(&self) -> In<IpcHandle> {
        In::from(&self.0)
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuIpcOpenMemHandle_v2(address: Out<u64>, handle: ByValue, flags: u32) -> u32 {
    static E: Entry = Entry::new("cuIpcOpenMemHandle_v2");
    let _ = flags;
    open(&E, address, handle.by_reference())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuIpcCloseMemHandle(address: u64) -> u32 {
    static E: Entry = Entry::new("cuIpcCloseMemHandle");
    call(&E, [address], |_| Err(codes::INVALID_VALUE))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuIpcGetEventHandle(handle: Out<IpcHandle>, event: u64) -> u32 {
    static E: Entry = Entry::new("cuIpcGetEventHandle");
    call(&E, [handle.address(), event], |session| {
        handle.check()?;
        let flags = session.event(event)?.flags;
        if flags & event::INTERPROCESS == 0 {
            return Err(codes::INVALID_HANDLE);
        }
        handle.put([MAGIC, process(), event, 0, 0, 0, 0, 0])
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuIpcOpenEventHandle(event: Out<u64>, handle: ByValue) -> u32 {
    static E: Entry = Entry::new("cuIpcOpenEventHandle");
    open(&E, event, handle.by_reference())
}

/// A dma-buf descriptor stands for whole pages of plain or mapped device memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetHandleForAddressRange(
    handle: Out<i32>,
    address: u64,
    size: usize,
    kind: u32,
    flags: u64,
) -> u32 {
    static E: Entry = Entry::new("cuMemGetHandleForAddressRange");
    call(&E, [handle.address(), address, size as u64, u64::from(kind), flags], |session| {
        handle.check()?;
        let block = session.blocks.at(address).ok_or(codes::INVALID_VALUE)?;
        let exportable = matches!(block.kind, Kind::Default | Kind::Mapping);
        if !exportable || kind != 1 || size == 0 || size as u64 > block.end() - address {
            return Err(codes::INVALID_VALUE);
        }
        if !session.devices[block.device].gpu.has(attribute::DMA_BUF) {
            return Err(codes::NOT_SUPPORTED);
        }
        let fd = session.share(Shared::Range)?;
        handle.put(fd)
    })
}
