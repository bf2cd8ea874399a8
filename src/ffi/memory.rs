//! # Memory
//!
//! Blocks of bytes of any kind on any device, found again by their address alone: a free, a copy and a question need
//! nothing but a pointer. Every block is in the library's ledger from its allocation to its free.

use super::allocator::{given_allocator, warp_allocator};
use super::boundary::{
    Grows, address, guard, handle, opaque, options, out, out_struct, pointer, seen_options, text,
};
use super::device::{found_device, told, warp_device};
use super::mempool::{given_pool, warp_mempool};
use super::status::warp_status;
use super::stream::{given, warp_stream};
use crate::alloc::caching::{self, Asked};
use crate::alloc::{self, FreeOptions, Kind, Request, Rule};
use crate::copy;
use crate::error::{Result, fail};
use crate::runtime;
use std::ffi::{c_char, c_void};

/// Where memory comes from. Says nothing about where it resides, or who may touch it now.
pub type warp_memory_kind = i32;

/// Not known, or the device's choice.
pub const WARP_MEMORY_UNKNOWN: warp_memory_kind = 0;
/// Ordinary host memory.
pub const WARP_MEMORY_HOST: warp_memory_kind = 1;
/// Page-locked host memory, or host memory that was registered with CUDA.
pub const WARP_MEMORY_PINNED: warp_memory_kind = 2;
/// Plain device memory.
pub const WARP_MEMORY_CUDA_DEVICE: warp_memory_kind = 3;
/// Memory of a stream-ordered pool, or of a graph.
pub const WARP_MEMORY_CUDA_MEMPOOL: warp_memory_kind = 4;
/// Managed memory.
pub const WARP_MEMORY_CUDA_MANAGED: warp_memory_kind = 5;

/// The rule that governs who may touch a block.
pub type warp_access_rule = i32;

/// Not known.
pub const WARP_ACCESS_RULE_UNKNOWN: warp_access_rule = 0;
/// Host memory: the CPU, and GPUs that reach pageable memory.
pub const WARP_ACCESS_RULE_PAGEABLE: warp_access_rule = 1;
/// Page-locked memory: the CPU and every GPU with unified addressing.
pub const WARP_ACCESS_RULE_PINNED: warp_access_rule = 2;
/// Device memory: its GPU, and GPUs with peer access to its context.
pub const WARP_ACCESS_RULE_PEER: warp_access_rule = 3;
/// Pool memory: its GPU, and GPUs that the pool gives access.
pub const WARP_ACCESS_RULE_POOL: warp_access_rule = 4;
/// A mapping of virtual memory management: those that it was mapped for.
pub const WARP_ACCESS_RULE_MAPPING: warp_access_rule = 5;
/// A graph's memory: those that could when it was captured.
pub const WARP_ACCESS_RULE_GRAPH_FIXED: warp_access_rule = 6;
/// Managed memory: GPUs that support it, and the CPU by the GPU's capabilities.
pub const WARP_ACCESS_RULE_MANAGED: warp_access_rule = 7;

const _: () = {
    assert!(Kind::Host as i32 == WARP_MEMORY_HOST && Kind::Pinned as i32 == WARP_MEMORY_PINNED);
    assert!(Kind::CudaDevice as i32 == WARP_MEMORY_CUDA_DEVICE);
    assert!(Kind::CudaMempool as i32 == WARP_MEMORY_CUDA_MEMPOOL);
    assert!(Kind::CudaManaged as i32 == WARP_MEMORY_CUDA_MANAGED);
    assert!(
        Rule::Pageable as i32 == WARP_ACCESS_RULE_PAGEABLE && Rule::Pinned as i32 == WARP_ACCESS_RULE_PINNED
    );
    assert!(Rule::Peer as i32 == WARP_ACCESS_RULE_PEER && Rule::Pool as i32 == WARP_ACCESS_RULE_POOL);
    assert!(Rule::Mapping as i32 == WARP_ACCESS_RULE_MAPPING);
    assert!(Rule::GraphFixed as i32 == WARP_ACCESS_RULE_GRAPH_FIXED);
    assert!(Rule::Managed as i32 == WARP_ACCESS_RULE_MANAGED);
};

/// What to allocate. All zero but struct_size is the default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_alloc_options {
    /// sizeof(warp_alloc_options), set by the caller.
    pub struct_size: usize,
    /// A power of two, in bytes; 0 for the kind's own (64 for HOST, 256 for the others).
    pub alignment: u64,
    /// A name for what the block is, for statistics and messages; copied, up to 65536 different ones are told apart.
    /// NULL for none.
    pub tag: *const c_char,
    /// The stream that the block belongs to, of the same device: work there may use it at once, and its free comes
    /// after that work. NULL for the device's current stream.
    pub stream: *mut warp_stream,
    /// WARP_MEMORY_HOST or _PINNED on the CPU, _CUDA_DEVICE, _CUDA_MEMPOOL or _CUDA_MANAGED on a GPU; 0 for what the
    /// device has switched on.
    pub kind: warp_memory_kind,
    /// The pool that the block comes from, of the same GPU, whether pools are switched on or not; NULL for what the device
    /// allocates from.
    pub mempool: *mut warp_mempool,
    /// The allocator that serves it, for that sort of device; NULL for what serves the device. With a kind only if it is the
    /// allocator's.
    pub allocator: *mut warp_allocator,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_alloc_options {
    const FIRST_SIZE: usize = std::mem::offset_of!(warp_alloc_options, mempool);
    const NAME: &'static str = "warp_alloc_options";
}

/// What is known of a block that is freed: a mistake is found before anything is freed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_free_options {
    /// sizeof(warp_free_options), set by the caller.
    pub struct_size: usize,
    /// The size of the allocation; 0 is not checked.
    pub size: u64,
    /// What alignment the block must have at least; 0 is not checked.
    pub alignment: u64,
    /// A stream that uses the block and that the library does not know of; NULL for none. The free comes after its
    /// work as well.
    pub stream: *mut warp_stream,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_free_options {
    const FIRST_SIZE: usize = size_of::<warp_free_options>();
    const NAME: &'static str = "warp_free_options";
}

/// What an address is.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_pointer_info {
    /// sizeof(warp_pointer_info), set by the caller.
    pub struct_size: usize,
    /// First address of the block; NULL when the address is unknown.
    pub base: *mut c_void,
    /// Bytes of the block.
    pub size: u64,
    /// Alignment that the block was given; 0 when it is not the library's.
    pub alignment: u64,
    /// The device that the block belongs to; NULL when it is unknown, or that device is no longer in the table.
    pub device: *mut warp_device,
    /// The tag it was allocated with, NULL for none; lasts as long as the process.
    pub tag: *const c_char,
    /// Id of the stream that the block belongs to, 0 for none.
    pub stream_id: u64,
    /// Id of the context that the block belongs to, 0 for none.
    pub context_id: u64,
    /// The GPU's number, -1 for host memory and when unknown.
    pub ordinal: i32,
    /// Where it comes from.
    pub kind: warp_memory_kind,
    /// What governs who may touch it.
    pub rule: warp_access_rule,
    /// Is it a block of this library, to be freed with warp_free()?
    pub is_owned: u8,
    /// Did the context that it was allocated in die? Then only a free is left to do.
    pub is_lost: u8,
    /// The allocator that made it, where that was not a built-in one; else NULL.
    pub allocator: *mut warp_allocator,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_pointer_info {
    const FIRST_SIZE: usize = std::mem::offset_of!(warp_pointer_info, allocator);
    const NAME: &'static str = "warp_pointer_info";
}

/// Counts of blocks, kept by the library for what it allocated. The driver's own figures for a pool are others: they
/// count every user of it, and what it keeps.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_statistics {
    /// sizeof(warp_statistics), set by the caller.
    pub struct_size: usize,
    /// Bytes of live blocks, as they were asked for.
    pub live_bytes: u64,
    /// The most that live_bytes was since the start or the last reset. For all kinds together, the sum of theirs. Where
    /// threads free what others allocated, up to 1 MiB a thread too much; of cached blocks up to 64 MiB, or a single
    /// one of any size.
    pub peak_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Allocations that were served.
    pub allocations: u64,
    /// Blocks that were freed.
    pub frees: u64,
    /// Blocks that other code freed behind the library's back, found out when their address came again.
    pub stale_blocks: u64,
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_statistics {
    const FIRST_SIZE: usize = size_of::<warp_statistics>();
    const NAME: &'static str = "warp_statistics";
}

pub(super) fn kind_of(number: warp_memory_kind) -> Result<Option<Kind>> {
    match Kind::of(number) {
        Some(Kind::Unknown) => Ok(None),
        Some(kind) => Ok(Some(kind)),
        None => fail!(InvalidArgument, "{number} is no memory kind; use a WARP_MEMORY_… constant"),
    }
}

/// Allocates memory of the kind that the device has switched on: host memory on the CPU; on a GPU pool memory on the
/// current stream, or plain device memory where there are no pools or they are off.
///
/// @param device  the device; NULL for the default.
/// @param size  bytes; 0 succeeds with NULL, and nobody is asked.
/// @param out  the first address, to be given to warp_free(). Aligned to 256 bytes, 64 on the CPU. The contents are
///     undefined.
/// @return WARP_ERROR_OUT_OF_MEMORY with what was asked and what there is, after freed blocks were waited for and the
///     pools trimmed; WARP_ERROR_SIZE_OVERFLOW above 2^63 - 1; WARP_ERROR_ILLEGAL_IN_CAPTURE for what a capture
///     cannot have: any but pool memory on a stream that is captured, page-locked memory on a thread that captures. The
///     capture goes on unharmed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_alloc(
    device: *mut warp_device,
    size: u64,
    out: *mut *mut c_void,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let asked = Asked { device: handle(device), ..Asked::default() };
        let address = match caching::allocate_again(asked, size) {
            Some(address) => address,
            None => allocate_usual_anew(device, size)?,
        };
        out.put(pointer(address));
        Ok(())
    })
}

/// As `allocate_anew`, without options: there is nothing to read, and no stream or allocator to look for.
#[inline(never)]
fn allocate_usual_anew(device: *mut warp_device, size: u64) -> Result<u64> {
    let asked = Asked { device: handle(device), ..Asked::default() };
    caching::remembering(asked, || {
        alloc::allocate(found_device(device)?, Request { size, ..Request::default() })
    })
}

/// Allocates memory of a kind, on a stream, with an alignment and a tag.
///
/// @param device  the device; NULL for the default.
/// @param size  bytes; 0 succeeds with NULL, and nobody is asked.
/// @param options  what to allocate; NULL is warp_alloc().
/// @param out  the first address, to be given to warp_free().
/// @return as warp_alloc(), and WARP_ERROR_BAD_ALIGNMENT for no power of two; WARP_ERROR_INVALID_ARGUMENT for a kind
///     that is unknown or of the other sort of device, a stream of another device, or a pool of another GPU or with another
///     kind than WARP_MEMORY_CUDA_MEMPOOL; WARP_ERROR_NOT_SUPPORTED for pools, managed or page-locked memory where there are
///     none: it is never replaced by another kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_alloc_with(
    device: *mut warp_device,
    size: u64,
    options: *const warp_alloc_options,
    out: *mut *mut c_void,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let asked = seen_options(options).and_then(|options| usual(device, options));
        let address = match asked.and_then(|asked| caching::allocate_again(asked, size)) {
            Some(address) => address,
            None => allocate_anew(device, size, options)?,
        };
        out.put(pointer(address));
        Ok(())
    })
}

/// Out of the way of what is remembered, which would else go to and fro between registers and the stack.
#[inline(never)]
fn allocate_anew(device: *mut warp_device, size: u64, options: *const warp_alloc_options) -> Result<u64> {
    let options = self::options(options)?;
    let allocate = || allocate_with(device, size, &options);
    match usual(device, &options) {
        Some(asked) => caching::remembering(asked, allocate),
        None => allocate(),
    }
}

/// What is asked for, where that is memory as it usually is: nothing but size, stream and allocator.
#[inline]
fn usual(device: *const warp_device, options: &warp_alloc_options) -> Option<Asked> {
    let plain = options.alignment <= 1
        && options.tag.is_null()
        && options.kind == WARP_MEMORY_UNKNOWN
        && options.mempool.is_null();
    plain.then(|| Asked {
        device: handle(device),
        stream: handle(options.stream),
        allocator: handle(options.allocator),
    })
}

fn allocate_with(device: *mut warp_device, size: u64, options: &warp_alloc_options) -> Result<u64> {
    let device = found_device(device)?;
    let stream = given(options.stream)?;
    let pool = given_pool(options.mempool)?;
    let allocator = given_allocator(options.allocator)?;
    let request = Request {
        size,
        alignment: options.alignment,
        kind: kind_of(options.kind)?,
        stream: stream.as_ref(),
        pool: pool.as_ref(),
        allocator: allocator.as_ref(),
        tag: text(options.tag).map_or(0, alloc::intern),
    };
    alloc::allocate(device, request)
}

/// Frees a block, on any thread and with any context current, also while something is captured. The memory is used again
/// only after the work on the stream that it belongs to, and on every stream that the library saw it used on; for other
/// streams see warp_pointer_record_stream(). Pool memory goes back in stream order without waiting; plain, managed and page-locked
/// memory at once when those streams are idle, else later, on a call that looks. A block that was allocated in a capture
/// is freed by its graph when it is freed in the same capture; else it goes back when nothing of the graph can use it any
/// more. So does any block that a graph keeps.
///
/// @param ptr  the first address of a live block; NULL does nothing.
/// @return with nothing freed: WARP_ERROR_UNKNOWN_POINTER for memory that is not the library's,
///     WARP_ERROR_INTERIOR_POINTER, WARP_ERROR_DOUBLE_FREE for a block that was freed a short while ago. After the last
///     warp_shutdown() frees still work. In a forked child, at exit and when the driver is gone they succeed quietly.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_free(ptr: *mut c_void) -> warp_status {
    guard(|| {
        let address = address(ptr);
        if caching::free_again(address) { Ok(()) } else { alloc::free(address, &FreeOptions::default()) }
    })
}

/// Frees a block as warp_free() does, after checking what the caller says of it.
///
/// @param ptr  the first address of a live block; NULL does nothing.
/// @param options  what to check; NULL is warp_free().
/// @return as warp_free(), and with nothing freed: WARP_ERROR_SIZE_MISMATCH, WARP_ERROR_BAD_ALIGNMENT,
///     WARP_ERROR_INVALID_HANDLE for the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_free_with(ptr: *mut c_void, options: *const warp_free_options) -> warp_status {
    guard(|| {
        let given_options = self::options(options)?;
        let nonzero = |value: u64| (value != 0).then_some(value);
        let stream = given(given_options.stream)?;
        let options = FreeOptions {
            size: nonzero(given_options.size),
            alignment: nonzero(given_options.alignment),
            stream: stream.as_ref(),
            ..FreeOptions::default()
        };
        alloc::free(address(ptr), &options)
    })
}

/// Tells that work on a stream uses a block, so that its free comes after that work. The library knows by itself of
/// what it puts on streams: fills and copies; kernels on other streams than the block's own are the caller's to name.
/// On a stream that is captured: the graph keeps the block, as warp_graph_retain() does.
///
/// @param ptr  any address inside a block of the library.
/// @param stream  the stream; NULL for the current one of the default device.
/// @return WARP_ERROR_UNKNOWN_POINTER, WARP_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_pointer_record_stream(
    ptr: *const c_void,
    stream: *mut warp_stream,
) -> warp_status {
    guard(|| {
        runtime::require_live()?;
        let stream = match given(stream)? {
            Some(stream) => stream,
            None => crate::stream::current(crate::device::default_device()?)?,
        };
        alloc::record_use_of(address(ptr), &stream)
    })
}

/// Tells what an address is: from the ledger for blocks of the library, at the cost of a lookup; else from the
/// driver. Interior addresses are as good as the first. An address that nobody knows is no error: its kind is
/// WARP_MEMORY_UNKNOWN.
///
/// @param ptr  any address; NULL is unknown.
/// @param out  filled as far as its struct_size goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_pointer_get_info(
    ptr: *const c_void,
    out: *mut warp_pointer_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let info = alloc::describe(address(ptr))?;
        out.put(warp_pointer_info {
            struct_size: size_of::<warp_pointer_info>(),
            base: pointer(info.base),
            size: info.size,
            alignment: info.alignment,
            device: told(info.device),
            tag: info.tag.map_or(std::ptr::null(), std::ffi::CStr::as_ptr),
            stream_id: info.stream_id,
            context_id: info.context_id,
            ordinal: info.ordinal,
            kind: info.kind as warp_memory_kind,
            rule: info.rule as warp_access_rule,
            is_owned: u8::from(info.owned),
            is_lost: u8::from(info.lost),
            allocator: opaque(info.allocator),
        });
        Ok(())
    })
}

/// Fills memory with repetitions of a pattern. Host memory is filled when the call returns; memory of a GPU, managed
/// memory included, in the order of the stream. On a stream that is captured the fill is recorded, and the graph keeps the
/// pattern and the block.
///
/// @param ptr  the first byte to fill, inside any block, or any memory that the CPU or the stream's GPU can write.
/// @param size  bytes to fill, a multiple of pattern_size; 0 does nothing.
/// @param pattern  the bytes to repeat, in host memory, also inside of what is filled; they are read before the call
///     returns.
/// @param pattern_size  how many, at least 1.
/// @param stream  where to put it; NULL for the current stream of the memory's device.
/// @return WARP_ERROR_INVALID_ARGUMENT for a range that passes the end of its block, or sizes that do not divide.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_memory_fill(
    ptr: *mut c_void,
    size: u64,
    pattern: *const c_void,
    pattern_size: u64,
    stream: *mut warp_stream,
) -> warp_status {
    guard(|| {
        runtime::require_live()?;
        if pattern.is_null() || pattern_size == 0 {
            fail!(
                InvalidArgument,
                "the pattern is NULL or has no bytes; a pattern of one zero byte clears memory"
            );
        }
        if pattern_size > i64::MAX as u64 {
            fail!(SizeOverflow, "a pattern of {pattern_size} bytes is more than any address space has");
        }
        copy::fill(address(ptr), size, (address(pattern), pattern_size), given(stream)?.as_ref()).map(drop)
    })
}

/// Copies bytes between any two places: host and GPUs, any kinds, with or without access between the GPUs. Between
/// host memory the copy has happened when the call returns; else it happens in the order of the stream, and pageable
/// host memory is read, or written, before the call returns. The caller orders the copy after what produced the
/// source. Ends that overlap are copied as if all of the source was read first.
///
/// On a stream that is captured the copy is recorded: each run of the graph reads and writes the memory anew, pageable
/// host memory too. The graph keeps blocks of this library at both ends; other memory is the caller's to keep.
///
/// While the thread captures on the CPU a copy between host memory is recorded. A source that lies in no block of this library, nor
/// in what the capture has written to, is copied at once, and need not last; a destination is the caller's to keep.
///
/// @param dest  where to.
/// @param src  where from.
/// @param size  bytes; 0 does nothing.
/// @param stream  where to put it, of either device; NULL for the current stream of the destination's GPU, else of
///     the source's. Managed memory counts as a GPU's only where no other end is.
/// @return WARP_ERROR_INVALID_ARGUMENT for NULL, a range that passes the end of its block, and memory of a graph that was
///     not launched yet; WARP_ERROR_ACCESS_DENIED for a copy between the pools of two GPUs in a capture when neither may
///     touch the other's, and the capture goes on; WARP_ERROR_ILLEGAL_IN_CAPTURE between host memory and a GPU's without a
///     stream, while the thread captures on the CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_memory_copy(
    dest: *mut c_void,
    src: *const c_void,
    size: u64,
    stream: *mut warp_stream,
) -> warp_status {
    guard(|| {
        runtime::require_live()?;
        copy::copy(address(dest), address(src), size, given(stream)?.as_ref())
    })
}

/// Counts of the library's blocks of one kind on a device.
///
/// @param device  the device; NULL for the default. Page-locked memory belongs to the CPU.
/// @param kind  the kind; WARP_MEMORY_UNKNOWN for all of them together.
/// @param out  filled as far as its struct_size goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_statistics_get(
    device: *const warp_device,
    kind: warp_memory_kind,
    out: *mut warp_statistics,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let device = found_device(device)?;
        let counts = alloc::statistics(device, kind_of(kind)?);
        out.put(warp_statistics {
            struct_size: size_of::<warp_statistics>(),
            live_bytes: counts.live_bytes,
            peak_bytes: counts.peak_bytes,
            live_blocks: counts.live_blocks,
            allocations: counts.allocations,
            frees: counts.frees,
            stale_blocks: counts.stale_blocks,
        });
        Ok(())
    })
}

/// Lets the peaks of a device's counts begin again at what is live now.
///
/// @param device  the device; NULL for the default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_statistics_reset_peak(device: *mut warp_device) -> warp_status {
    guard(|| {
        alloc::reset_peak(found_device(device)?);
        Ok(())
    })
}
