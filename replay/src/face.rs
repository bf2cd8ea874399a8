//! The C interface of the library, with Rust's types: the only place that calls it.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};
use warpmem::ffi::adaptor::{
    warp_allocator_create_limit, warp_allocator_create_logging, warp_allocator_logging_flush,
};
use warpmem::ffi::allocator::{
    warp_alloc_request, warp_allocator, warp_allocator_allocate, warp_allocator_deallocate,
    warp_allocator_get_builtin, warp_allocator_get_for_device,
};
use warpmem::ffi::device::{warp_device, warp_device_get, warp_device_synchronize};
use warpmem::ffi::library::{warp_init, warp_version_get_string};
use warpmem::ffi::memory::{
    WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_HOST,
    WARP_MEMORY_PINNED, warp_memory_kind,
};
use warpmem::ffi::status::{WARP_SUCCESS, warp_error_get_message, warp_status, warp_status_get_name};
use warpmem::ffi::stream::{warp_stream, warp_stream_create};

/// A failure in the library's words.
pub type Answer<T> = Result<T, String>;

/// The built-in allocators by the names of the command line.
pub const BUILTIN: &[(&str, warp_memory_kind)] = &[
    ("default", WARP_MEMORY_CUDA_DEVICE),
    ("mempool", WARP_MEMORY_CUDA_MEMPOOL),
    ("managed", WARP_MEMORY_CUDA_MANAGED),
    ("pinned", WARP_MEMORY_PINNED),
    ("host", WARP_MEMORY_HOST),
];

pub fn is_host(kind: warp_memory_kind) -> bool {
    kind == WARP_MEMORY_PINNED || kind == WARP_MEMORY_HOST
}

#[derive(Debug, Clone, Copy)]
pub struct Device(*mut warp_device);

#[derive(Debug, Clone, Copy)]
pub struct Stream(*mut warp_stream);

impl Stream {
    /// Of the CPU, and where none is named.
    pub const NONE: Stream = Stream(null_mut());
}

#[derive(Debug, Clone, Copy)]
pub struct Allocator(*mut warp_allocator);

/// Memory that an allocator gave.
#[derive(Debug)]
pub struct Block(*mut c_void);

/// Starts the library, for as long as the process lives.
pub fn start() -> Answer<()> {
    // SAFETY: both may be NULL.
    answer("warp_init", unsafe { warp_init(null(), null_mut()) })
}

/// The CPU for -1, else a GPU.
pub fn device(ordinal: i32) -> Answer<Device> {
    let alias = if ordinal < 0 { "cpu".to_string() } else { format!("cuda:{ordinal}") };
    let name = text(&alias)?;
    let mut device = null_mut();
    // SAFETY: a terminated text, and a place for the answer.
    answer(&alias, unsafe { warp_device_get(name.as_ptr(), &mut device) })?;
    Ok(Device(device))
}

pub fn synchronize(device: Device) -> Answer<()> {
    // SAFETY: a handle of the library.
    answer("warp_device_synchronize", unsafe { warp_device_synchronize(device.0) })
}

pub fn new_stream(device: Device) -> Answer<Stream> {
    let mut stream = null_mut();
    // SAFETY: a handle of the library, and a place for the answer.
    answer("warp_stream_create", unsafe { warp_stream_create(device.0, null(), &mut stream) })?;
    Ok(Stream(stream))
}

pub fn builtin(kind: warp_memory_kind) -> Answer<Allocator> {
    // SAFETY: a place for the answer.
    made("warp_allocator_get_builtin", |out| unsafe { warp_allocator_get_builtin(kind, out) })
}

/// What serves the device where nothing is named.
pub fn usual(device: Device) -> Answer<Allocator> {
    // SAFETY: a handle of the library, and a place for the answer.
    made("warp_allocator_get_for_device", |out| unsafe { warp_allocator_get_for_device(device.0, out) })
}

pub fn limited(upstream: Allocator, limit: u64) -> Answer<Allocator> {
    // SAFETY: a handle of the library, and a place for the answer.
    made("warp_allocator_create_limit", |out| unsafe { warp_allocator_create_limit(upstream.0, limit, out) })
}

pub fn logged(upstream: Allocator, path: &CStr) -> Answer<Allocator> {
    // SAFETY: a handle of the library, a terminated text, and a place for the answer.
    made("warp_allocator_create_logging", |out| unsafe {
        warp_allocator_create_logging(upstream.0, path.as_ptr(), out)
    })
}

pub fn flush(log: Allocator) -> Answer<()> {
    // SAFETY: a handle of the library.
    answer("warp_allocator_logging_flush", unsafe { warp_allocator_logging_flush(log.0) })
}

/// What is asked for.
#[derive(Debug)]
pub struct Request<'a> {
    pub size: u64,
    pub alignment: u64,
    pub device: Device,
    pub stream: Stream,
    pub tag: Option<&'a CStr>,
}

impl Request<'_> {
    fn raw(&self) -> warp_alloc_request {
        warp_alloc_request {
            struct_size: size_of::<warp_alloc_request>(),
            size: self.size,
            alignment: self.alignment,
            device: self.device.0,
            stream: self.stream.0,
            native_context: null_mut(),
            native_stream: null_mut(),
            stream_id: 0,
            tag: self.tag.map_or(null(), CStr::as_ptr),
            ordinal: 0,
            kind: 0,
            flags: 0,
            reserved: 0,
        }
    }
}

impl Allocator {
    pub fn allocate(self, request: &Request<'_>) -> Answer<Block> {
        let mut block = null_mut();
        // SAFETY: handles of the library, a struct of the size that it says, and a place for the answer.
        answer("warp_allocator_allocate", unsafe {
            warp_allocator_allocate(self.0, &request.raw(), &mut block)
        })?;
        Ok(Block(block))
    }

    /// Nothing uses the memory, so no stream is named.
    pub fn deallocate(self, block: Block) -> Answer<()> {
        // SAFETY: a handle of the library; the block is not used any more.
        answer("warp_allocator_deallocate", unsafe { warp_allocator_deallocate(self.0, block.0, null()) })
    }
}

pub fn version() -> String {
    static_text(warp_version_get_string())
}

/// A text as the library takes it.
pub fn text(text: &str) -> Answer<CString> {
    CString::new(text).map_err(|_| format!("{text:?} has a NUL in it"))
}

fn made(what: &str, make: impl FnOnce(&mut *mut warp_allocator) -> warp_status) -> Answer<Allocator> {
    let mut allocator = null_mut();
    answer(what, make(&mut allocator))?;
    Ok(Allocator(allocator))
}

fn static_text(text: *const c_char) -> String {
    // SAFETY: only called with terminated texts of the library that last long enough.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn answer(what: &str, status: warp_status) -> Answer<()> {
    if status == WARP_SUCCESS {
        return Ok(());
    }
    let name = static_text(warp_status_get_name(status));
    Err(format!("{what}: {name}: {}", static_text(warp_error_get_message())))
}
