//! # Allocators
//!
//! An allocator is who gets memory and takes it back: a built-in one, one of the caller's callbacks, or one that stands on
//! others (see the chapter after this). It is installed for GPUs, named for one block in the options of an allocation, or asked
//! directly.
//!
//! Who serves an allocation, in this order: the allocator of its options; the built-in one of the kind, or the pool, of its
//! options; the innermost allocator scope of the thread for the device; the allocator installed for the device, else for all;
//! the pool, if pools are switched on; plain device memory. Scopes and installed allocators serve requests on GPUs that name
//! nothing: raw memory, arrays, copies that need room. Each block goes back to the allocator that made it, whatever is
//! installed by then.
//!
//! Lifetime. A handle is good as long as it has references: the caller's from its creation, one for each device that the
//! allocator is installed for, one for each open scope. The allocator itself lives until its last block is freed; then `destroy`
//! is called, once, with no lock held and never while the process exits.
//!
//! Callbacks are called by: allocations that the allocator serves, frees of its blocks (also by releasing arrays and graphs),
//! the functions of this chapter, waits for a device, a stream or an event, another allocator's allocations and frees, memory
//! running out on a GPU, and the last warp_shutdown(). By no other function, so a thread may hold a lock that a callback wants in
//! all others. A block that was freed and that streams or graphs still use is given back by a later one of those calls. Inside of
//! a callback every function may be called; an allocator that asks for memory that it serves itself fails when it is 10 deep.
//!
//! Around a callback for a GPU the device's context is current and the thread's capture mode relaxed, so that driver calls in it
//! break no capture; after it the caller's context is current again, whatever the callback left. Callbacks must not throw,
//! unwind or longjmp: that ends the process with a message.
//!
//! Memory that an allocator hands out is its own, or comes from warp_allocator_allocate(): a block of warp_alloc() is in use,
//! and handing it out is a failure. WARP_ERROR_ALLOCATOR_FAILED tells of an allocator that failed, gave NULL, an address that is
//! misaligned, in use, of another device, or unknown to the driver; nothing is lost: what can be given back to it is.

use super::boundary::{
    Grows, address, guard, handle, opaque, optional_out, options, out, out_struct, pointer, text,
};
use super::callbacks::Table;
use super::device::{found_device, warp_device};
use super::ipc::warp_ipc_memory;
use super::memory::{kind_of, warp_memory_kind};
use super::status::warp_status;
use super::stream::warp_stream;
use crate::alloc::{self, FreeOptions, Kind};
use crate::allocator::{self, Allocator, Custom, Statistics, Traits, flags};
use crate::device::Device;
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::stream::{self, Stream};
use crate::{runtime, scope};
use std::ffi::{c_char, c_void};

/// An allocator. Built-in ones are good as long as the process lives.
#[repr(C)]
pub struct warp_allocator {
    _private: [u8; 0],
}

/// In flags of a request: the stream is being captured, and what is put on it becomes part of a graph.
pub const WARP_ALLOC_REQUEST_IN_CAPTURE: u32 = 1;
/// In flags of a request: asked once more, after the allocator was out of memory and was trimmed.
pub const WARP_ALLOC_REQUEST_RETRY: u32 = 2;
/// In flags of a deallocation: no work uses the memory any more. There is no stream then; it may be gone.
pub const WARP_ALLOC_REQUEST_IDLE: u32 = 4;
/// In flags of a deallocation: the context that the memory was made in is gone, and with it all but a pool's memory. No
/// context is current. The allocator only forgets the block, or passes it on to the allocator below. By then the driver may
/// have given the address to another block.
pub const WARP_ALLOC_REQUEST_DEVICE_LOST: u32 = 8;

const _: () = assert!(
    flags::IN_CAPTURE == WARP_ALLOC_REQUEST_IN_CAPTURE
        && flags::RETRY == WARP_ALLOC_REQUEST_RETRY
        && flags::IDLE == WARP_ALLOC_REQUEST_IDLE
        && flags::DEVICE_LOST == WARP_ALLOC_REQUEST_DEVICE_LOST
);

/// What is asked of an allocator: the same in an allocation and in the deallocation of what came of it, but for flags and the
/// stream. Good during the call. A callback passes it on as it is to the allocator below.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_alloc_request {
    /// sizeof(warp_alloc_request) of who fills it in.
    pub struct_size: usize,
    /// Bytes. Never 0 in a callback.
    pub size: u64,
    /// What the address must be a multiple of, a power of two: in a callback at least 256 for GPUs, 64 for the CPU. For
    /// warp_allocator_allocate() 0 is the kind's own.
    pub alignment: u64,
    /// The device that the memory is for. NULL in warp_allocator_allocate() is that of the current context, or the CPU for an
    /// allocator of host memory; NULL in a callback is a device that is no longer in the table.
    pub device: *mut warp_device,
    /// The stream that the memory belongs to; NULL in a callback for the CPU, and when it is gone. NULL in
    /// warp_allocator_allocate() is the device's current one. In a deallocation, one that the memory is used on.
    pub stream: *mut warp_stream,
    /// The CUcontext of the device; NULL for the CPU. Set by the library.
    pub native_context: *mut c_void,
    /// The CUstream, where there is a stream. Set by the library.
    pub native_stream: *mut c_void,
    /// Id of the stream; 0 without one. Set by the library.
    pub stream_id: u64,
    /// The block's tag; NULL for none.
    pub tag: *const c_char,
    /// The GPU's number, -1 for the CPU. Set by the library.
    pub ordinal: i32,
    /// The kind that the allocator says it makes. Set by the library.
    pub kind: warp_memory_kind,
    /// WARP_ALLOC_REQUEST_… bits. Set by the library.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_alloc_request {
    const FIRST_SIZE: usize = size_of::<warp_alloc_request>();
    const NAME: &'static str = "warp_alloc_request";
}

/// An account of an allocator's own. What it does not count is 0.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_allocator_statistics {
    /// sizeof(warp_allocator_statistics) of who fills it in.
    pub struct_size: usize,
    /// Bytes that are out.
    pub live_bytes: u64,
    /// The most that live_bytes was.
    pub peak_bytes: u64,
    /// Blocks that are out.
    pub live_blocks: u64,
    /// The most that live_blocks was.
    pub peak_blocks: u64,
    /// Bytes of all allocations so far.
    pub total_bytes: u64,
    /// How many there were.
    pub total_blocks: u64,
    /// Allocations that failed.
    pub failures: u64,
    /// Bytes that the allocator has from below, out or not.
    pub reserved_bytes: u64,
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_allocator_statistics {
    const FIRST_SIZE: usize = size_of::<warp_allocator_statistics>();
    const NAME: &'static str = "warp_allocator_statistics";
}

/// In flags of a vtable: deallocate may be called while work on the block's own stream still uses the memory, and the allocator
/// orders its next use after that; allocate and deallocate may be called on a stream that is captured. Without it deallocate is
/// called when all work that uses the memory is done, and the allocator serves no captures.
pub const WARP_ALLOCATOR_STREAM_ORDERED: u32 = 1;
/// In flags of a vtable: the callbacks make a context current themselves where they need one, leave the caller's as it was, and
/// break no capture. Nothing is put around them.
pub const WARP_ALLOCATOR_MANAGES_CONTEXT: u32 = 2;
/// In flags of a vtable: makes host memory, for the CPU.
pub const WARP_ALLOCATOR_HOST_MEMORY: u32 = 4;

/// Gets memory.
///
/// @param user  as given to warp_allocator_create().
/// @param request  what is asked.
/// @param out  where the address goes; NULL before the call. Not looked at after a failure: what was got until then stays the
///     callback's.
/// @return WARP_SUCCESS; WARP_ERROR_OUT_OF_MEMORY to be trimmed and asked once more; any other number is a failure. NULL is a
///     failure whatever is returned. Return the status of a call of the library that failed inside, and its message is told too.
pub type warp_allocator_allocate_callback = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        request: *const warp_alloc_request,
        out: *mut *mut c_void,
    ) -> warp_status,
>;

/// Takes memory back.
///
/// @param user  as given to warp_allocator_create().
/// @param ptr  what allocate gave, also where that was refused, as for its alignment.
/// @param request  as it was in the allocation, but for flags and the stream.
/// @return WARP_SUCCESS. It is not given a second time, whatever is returned; a failure is told to whoever frees, or where that
///     was long ago to the log callback, and counted (`failed_deallocations` of warp_allocator_info).
pub type warp_allocator_deallocate_callback = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        ptr: *mut c_void,
        request: *const warp_alloc_request,
    ) -> warp_status,
>;

/// The last call, when no block of the allocator lives and nothing refers to it.
pub type warp_allocator_destroy_callback = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// Gives unused memory back to where it came from. The allocation is made once more whatever becomes of it.
///
/// @param user  as given to warp_allocator_create().
/// @param request  the allocation that is out of memory; its size 0 asks for all there is. Never NULL.
/// @param out_freed  how many bytes were given back; 0 before the call.
/// @return WARP_SUCCESS, also when there was nothing. A failure is a message to the log callback, or that of
///     warp_allocator_trim().
pub type warp_allocator_trim_callback = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        request: *const warp_alloc_request,
        out_freed: *mut u64,
    ) -> warp_status,
>;

/// Fills in the allocator's own account; struct_size is set, all else 0 before the call. Any status but WARP_SUCCESS is that of
/// warp_allocator_get_statistics(), as WARP_ERROR_ALLOCATOR_FAILED.
pub type warp_allocator_get_statistics_callback =
    Option<unsafe extern "C" fn(user: *mut c_void, out: *mut warp_allocator_statistics) -> warp_status>;

/// Notes that work on request's stream uses the block, so that its next use comes after that. For stream-ordered allocators;
/// without it, and for a block for which it returns anything but WARP_SUCCESS, the library waits for other streams before it
/// deallocates.
pub type warp_allocator_record_stream_callback = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        ptr: *mut c_void,
        request: *const warp_alloc_request,
    ) -> warp_status,
>;

/// Tells by what other processes open a block: for memory that the allocator knows more of than the driver says. Without it, and
/// from other kinds of allocators, warp_ipc_export() goes by what the driver says of the memory.
///
/// @param ptr  the block's first address.
/// @param out  handle, size and offset of the block's first address in it; ordinal is set, all else 0 before the call.
pub type warp_allocator_export_ipc_callback = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        ptr: *mut c_void,
        request: *const warp_alloc_request,
        out: *mut warp_ipc_memory,
    ) -> warp_status,
>;

/// The callbacks of an allocator, copied when it is created. What is NULL is not offered. Called on any thread, on several at once.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_allocator_vtable {
    /// sizeof(warp_allocator_vtable), set by the caller.
    pub struct_size: usize,
    /// For messages and lists; copied. NULL for none.
    pub name: *const c_char,
    /// The kind of memory that it makes, which is believed. 0 when it may be several kinds: then the driver is asked about each
    /// block.
    pub kind: warp_memory_kind,
    /// WARP_ALLOCATOR_… bits.
    pub flags: u32,
    /// Required.
    pub allocate: warp_allocator_allocate_callback,
    /// Required.
    pub deallocate: warp_allocator_deallocate_callback,
    /// Called once, at the end.
    pub destroy: warp_allocator_destroy_callback,
    /// Called before a request is made once more that was out of memory, and by warp_allocator_trim().
    pub trim: warp_allocator_trim_callback,
    /// Called by warp_allocator_get_statistics().
    pub get_statistics: warp_allocator_get_statistics_callback,
    /// Called before a deallocation, for each other stream that used the block.
    pub record_stream: warp_allocator_record_stream_callback,
    /// Called by warp_ipc_export().
    pub export_ipc: warp_allocator_export_ipc_callback,
}

// SAFETY: `repr(C)`, begins with its size; numbers, raw pointers and optional function pointers.
unsafe impl Grows for warp_allocator_vtable {
    const FIRST_SIZE: usize = size_of::<warp_allocator_vtable>();
    const NAME: &'static str = "warp_allocator_vtable";
}

/// What is known of an allocator.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_allocator_info {
    /// sizeof(warp_allocator_info), set by the caller.
    pub struct_size: usize,
    /// The kind that it makes; 0 when that is not known before.
    pub kind: warp_memory_kind,
    /// The WARP_ALLOCATOR_… bits that hold for it.
    pub flags: u32,
    /// How many references its handle has; 0 for a built-in one, which needs none.
    pub references: u32,
    /// 0.
    pub reserved: u32,
    /// Deallocations that it refused.
    pub failed_deallocations: u64,
    /// Which sort it is: "built-in", "custom", or an adaptor's name such as "limit"; cut where it must be.
    pub sort: [c_char; 32],
    /// The name of its vtable, or of its kind; cut where it must be.
    pub name: [c_char; 64],
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_allocator_info {
    const FIRST_SIZE: usize = size_of::<warp_allocator_info>();
    const NAME: &'static str = "warp_allocator_info";
}

/// An allocator that a call names.
pub(super) fn found(allocator: *const warp_allocator) -> Result<Entered<Allocator>> {
    runtime::require_live()?;
    allocator::enter(handle(allocator))
}

/// One that the caller may leave out.
pub(super) fn given_allocator(allocator: *const warp_allocator) -> Result<Option<Entered<Allocator>>> {
    if allocator.is_null() { Ok(None) } else { found(allocator).map(Some) }
}

/// Statistics as a struct of the C face.
pub(super) fn account(statistics: &Statistics) -> warp_allocator_statistics {
    warp_allocator_statistics {
        struct_size: size_of::<warp_allocator_statistics>(),
        live_bytes: statistics.live_bytes,
        peak_bytes: statistics.peak_bytes,
        live_blocks: statistics.live_blocks,
        peak_blocks: statistics.peak_blocks,
        total_bytes: statistics.total_bytes,
        total_blocks: statistics.total_blocks,
        failures: statistics.failures,
        reserved_bytes: statistics.reserved_bytes,
    }
}

/// Makes an allocator of callbacks. Its memory goes nowhere yet: see warp_allocator_set_for_device() and `allocator` of
/// warp_alloc_options.
///
/// @param vtable  the callbacks; copied.
/// @param user  passed to them. May be used until destroy was called.
/// @param out  the allocator, with one reference, to be given back with warp_allocator_release().
/// @return WARP_ERROR_INVALID_ARGUMENT for a vtable without allocate or deallocate, unknown flags or kinds, and a kind that is
///     not of the memory that the flags say; nothing is kept and destroy is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_create(
    vtable: *const warp_allocator_vtable,
    user: *mut c_void,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        runtime::require_live()?;
        if vtable.is_null() {
            fail!(InvalidArgument, "vtable is NULL; it says what the allocator can do");
        }
        let vtable = options(vtable)?;
        let known =
            WARP_ALLOCATOR_STREAM_ORDERED | WARP_ALLOCATOR_MANAGES_CONTEXT | WARP_ALLOCATOR_HOST_MEMORY;
        let flags = super::boundary::flags(vtable.flags, known, "flags")?;
        let kind = kind_of(vtable.kind)?;
        let host = flags & WARP_ALLOCATOR_HOST_MEMORY != 0;
        if let Some(kind) = kind.filter(|kind| kind.is_host() != host) {
            fail!(
                InvalidArgument,
                "the vtable says that it makes {} memory and that it makes {}; set WARP_ALLOCATOR_HOST_MEMORY for memory of the CPU, and only then",
                kind.name(),
                if host { "host memory" } else { "memory of GPUs" }
            );
        }
        let is_ordered = flags & WARP_ALLOCATOR_STREAM_ORDERED != 0;
        let traits = Traits { host, captures: is_ordered, ordered: is_ordered, any_stream: false, kind };
        let name = text(vtable.name).unwrap_or_default();
        let table = Box::new(Table::new(&vtable, user)?);
        let custom = Custom::new(table, name, traits, flags & WARP_ALLOCATOR_MANAGES_CONTEXT != 0);
        out.put(opaque(allocator::create(Box::new(custom), Some(name))?));
        Ok(())
    })
}

/// One more reference, to be given back with warp_allocator_release().
///
/// @param allocator  an allocator; a built-in one needs no references, and NULL does nothing.
/// @return WARP_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_retain(allocator: *mut warp_allocator) -> warp_status {
    guard(|| {
        runtime::require_live()?;
        if allocator.is_null() { Ok(()) } else { allocator::retain(handle(allocator)) }
    })
}

/// Gives a reference back. With the last one the handle becomes stale; the allocator is destroyed when its last block is freed, at
/// once if there is none.
///
/// @param allocator  an allocator; NULL, and a built-in one, do nothing.
/// @return WARP_ERROR_INVALID_HANDLE, also after warp_shutdown(), which gives all references back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_release(allocator: *mut warp_allocator) -> warp_status {
    guard(|| {
        runtime::require_once_live()?;
        if allocator.is_null() || runtime::is_exiting() {
            return Ok(());
        }
        alloc::deliver_all();
        allocator::release(handle(allocator))
    })
}

/// Has no callback of the allocator be called from now on, and waits for those that run on other threads: for code that is about
/// to be unloaded, or an interpreter that ends. Allocations fail from then on; blocks can be freed, and the allocator does not get
/// them back; it is not destroyed. Holds for the allocators below an adaptor as well.
///
/// @param allocator  the allocator; also a stale handle of one, as long as blocks of it live. A built-in one has no callbacks.
/// @return WARP_ERROR_INVALID_HANDLE when it is gone: destroy has returned then, unless this is called inside of a callback. After
///     the last warp_shutdown() too. Must not be called with a lock that a callback wants.
///     Inside of a callback of the allocator it does not wait. Inside of one of another allocator it does not wait for
///     threads that are inside of this function in a callback themselves: they would wait for each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_stop(allocator: *mut warp_allocator) -> warp_status {
    guard(|| {
        runtime::require_once_live()?;
        allocator::stop(handle(allocator))
    })
}

/// A built-in allocator, to name it, install it or build on it.
///
/// @param kind  WARP_MEMORY_HOST or _PINNED for the CPU, _CUDA_DEVICE, _CUDA_MEMPOOL or _CUDA_MANAGED for every GPU that has such
///     memory; WARP_MEMORY_UNKNOWN for what each GPU has switched on: its pool, or plain device memory where pools are off or not
///     there.
/// @param out  the allocator: the same each time, good as long as the process lives, with nothing to release.
/// @return WARP_ERROR_INVALID_ARGUMENT for no kind. Also without a GPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_get_builtin(
    kind: warp_memory_kind,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        runtime::require_live()?;
        out.put(opaque(alloc::builtin_allocator(kind_of(kind)?.unwrap_or(Kind::Unknown))?));
        Ok(())
    })
}

/// What is known of an allocator.
///
/// @param allocator  the allocator.
/// @param out  filled as far as its struct_size goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_get_info(
    allocator: *const warp_allocator,
    out: *mut warp_allocator_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let allocator = found(allocator)?;
        let Traits { host, ordered, captures, kind, .. } = allocator.traits();
        let builtin = allocator.builtin().is_some();
        out.put(warp_allocator_info {
            struct_size: size_of::<warp_allocator_info>(),
            kind: kind.map_or(0, |kind| kind as warp_memory_kind),
            flags: if host { WARP_ALLOCATOR_HOST_MEMORY } else { 0 }
                | if ordered && captures { WARP_ALLOCATOR_STREAM_ORDERED } else { 0 },
            references: if builtin { 0 } else { allocator.references() },
            reserved: 0,
            failed_deallocations: allocator.failed_deallocations(),
            sort: super::boundary::field(allocator.sort()),
            name: super::boundary::field(&allocator.name().to_string_lossy()),
        });
        Ok(())
    })
}

/// Counts what lives of an allocator, by a walk through all blocks: those of callers, and what it gave out directly. Of a built-in
/// allocator only the latter; for its blocks see warp_statistics_get().
///
/// @param allocator  the allocator.
/// @param out_blocks  how many; may be NULL.
/// @param out_bytes  their bytes, as they were asked for; may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_measure(
    allocator: *const warp_allocator,
    out_blocks: *mut u64,
    out_bytes: *mut u64,
) -> warp_status {
    guard(|| {
        let (out_blocks, out_bytes) = (optional_out(out_blocks), optional_out(out_bytes));
        let (blocks, bytes) = alloc::live_of(&found(allocator)?);
        if let Some(out) = out_blocks {
            out.put(blocks);
        }
        if let Some(out) = out_bytes {
            out.put(bytes);
        }
        Ok(())
    })
}

/// An allocator's own account.
///
/// @param allocator  one with a get_statistics callback, or a statistics adaptor.
/// @param out  filled as far as its struct_size goes.
/// @return WARP_ERROR_NOT_SUPPORTED for one that keeps no account; WARP_ERROR_ALLOCATOR_FAILED when its callback fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_get_statistics(
    allocator: *const warp_allocator,
    out: *mut warp_allocator_statistics,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let allocator = found(allocator)?;
        let Some(statistics) = allocator.statistics()? else {
            fail!(
                NotSupported,
                "{} keeps no account; put warp_allocator_create_statistics around it, or see warp_statistics_get",
                allocator.title()
            );
        };
        out.put(account(&statistics));
        Ok(())
    })
}

/// Has an allocator give back what it keeps unused, as it is asked to before memory runs out, and get what it is owed.
///
/// @param allocator  the allocator. A built-in one keeps nothing; for pools see warp_mempool_trim().
/// @param device  the device whose memory is wanted; NULL for the default.
/// @param out_freed  bytes that it says it gave back; may be NULL.
/// @return WARP_ERROR_ALLOCATOR_FAILED when its callback fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_trim(
    allocator: *mut warp_allocator,
    device: *mut warp_device,
    out_freed: *mut u64,
) -> warp_status {
    guard(|| {
        let out = optional_out(out_freed);
        let freed = alloc::trim(&found(allocator)?, found_device(device)?)?;
        if let Some(out) = out {
            out.put(freed);
        }
        Ok(())
    })
}

/// Installs an allocator for one GPU: what is allocated there and names nothing comes from it, on every thread whose scopes do not
/// say otherwise. What takes the GPU's place when its context dies is served by it too.
///
/// @param device  the GPU; NULL for the default device.
/// @param allocator  the allocator, which is referred to until another one takes its place; NULL for the built-in ones.
/// @return WARP_ERROR_INVALID_ARGUMENT for the CPU, and for an allocator of host memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_set_for_device(
    device: *mut warp_device,
    allocator: *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let device = found_device(device)?;
        alloc::deliver_all();
        allocator::install(device, handle(allocator))
    })
}

/// As warp_allocator_set_for_device() for every GPU, also those that join the table later. Takes the place of what was installed
/// for single ones.
///
/// @param allocator  the allocator; NULL for the built-in ones, which succeeds without a GPU as well.
/// @return WARP_ERROR_NO_SUCH_DEVICE when there is no GPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_set_for_all(allocator: *mut warp_allocator) -> warp_status {
    guard(|| {
        runtime::require_live()?;
        alloc::deliver_all();
        allocator::install_for_all(handle(allocator))
    })
}

/// The allocator that serves what the calling thread allocates on a device and that names nothing.
///
/// @param device  the device; NULL for the default.
/// @param out  the allocator: that of the thread's scopes, else the installed one, else the built-in one by what is switched on.
///     Good as long as it is that; warp_allocator_retain() keeps it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_get_for_device(
    device: *mut warp_device,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(opaque(alloc::effective_allocator(found_device(device)?)?));
        Ok(())
    })
}

/// Has what the calling thread allocates on a GPU, and that names nothing, come from an allocator until the scope ends. What is
/// installed meanwhile is seen when the scope ends. A thread that ends inside of
/// the scope leaves the scope's reference to warp_shutdown().
///
/// @param device  the GPU; NULL for the default device.
/// @param allocator  the allocator, which is referred to until the scope ends; NULL for the built-in ones.
/// @param out  the scope, to be ended with warp_scope_end().
/// @return as warp_allocator_set_for_device(); WARP_ERROR_NOT_SUPPORTED when the thread has 64 scopes open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_scope_begin_allocator(
    device: *mut warp_device,
    allocator: *mut warp_allocator,
    out: *mut *mut super::scope::warp_scope,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(opaque(scope::begin_allocator(found_device(device)?, handle(allocator))?));
        Ok(())
    })
}

/// The device of a direct request.
fn device_of(given: *mut warp_device, allocator: &Allocator) -> Result<&'static Device> {
    if given.is_null() { alloc::device_of_context(allocator.traits().host) } else { found_device(given) }
}

/// The stream of a direct request. In a callback that passes on what it is asked, another thread may have released it.
fn stream_of(given: *mut warp_stream) -> Result<Option<Entered<Stream>>> {
    if given.is_null() { Ok(None) } else { stream::enter_again(handle(given)).map(Some) }
}

/// Asks an allocator itself for memory: for allocators that build on another one, and for frameworks that keep their own account
/// of what they have. What comes is not a block of the library: it is not found by warp_pointer_get_info() as one, is not in its
/// counts, is kept by no graph that uses it, and goes back with warp_allocator_deallocate() and nothing else. Has the parameters of the callback, so that one
/// allocator can pass on what it is asked.
///
/// @param allocator  any allocator. It lives at least as long as the memory.
/// @param request  size, alignment, device, stream and tag; the rest is not looked at.
/// @param out  the first address; NULL for size 0, and nobody is asked.
/// @return as warp_alloc_with(); WARP_ERROR_INVALID_ARGUMENT also when no device is named and no context of a device is current.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_allocate(
    allocator: *mut warp_allocator,
    request: *const warp_alloc_request,
    out: *mut *mut c_void,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let allocator = found(allocator)?;
        let asked = required(request)?;
        let device = device_of(asked.device, &allocator)?;
        let stream = if device.is_cuda() { stream_of(asked.stream)? } else { None };
        let request = alloc::Request {
            size: asked.size,
            alignment: asked.alignment,
            stream: stream.as_ref(),
            tag: text(asked.tag).map_or(0, alloc::intern),
            ..alloc::Request::default()
        };
        out.put(pointer(alloc::allocate_directly(&allocator, device, request)?));
        Ok(())
    })
}

/// Gives memory of warp_allocator_allocate() back to the allocator that made it. It is used again only after the work on its own
/// stream, and on that of the request.
///
/// @param allocator  the allocator; also a stale handle of one, as long as memory of it is out.
/// @param ptr  the first address; NULL does nothing.
/// @param request  size and alignment are checked where they are not 0; stream is one that the memory is used on; with
///     WARP_ALLOC_REQUEST_DEVICE_LOST in flags an address that is other memory's by now is left alone. NULL checks nothing.
/// @return with nothing freed: WARP_ERROR_UNKNOWN_POINTER for what the allocator has not out directly,
///     WARP_ERROR_INTERIOR_POINTER, WARP_ERROR_DOUBLE_FREE, WARP_ERROR_SIZE_MISMATCH, WARP_ERROR_BAD_ALIGNMENT. With the memory
///     gone: WARP_ERROR_ALLOCATOR_FAILED. After the last warp_shutdown() too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_deallocate(
    allocator: *mut warp_allocator,
    ptr: *mut c_void,
    request: *const warp_alloc_request,
) -> warp_status {
    guard(|| {
        runtime::require_once_live()?;
        let asked = options(request)?;
        let nonzero = |value: u64| (value != 0).then_some(value);
        let stream = stream_of(asked.stream)?;
        let options = FreeOptions {
            size: nonzero(asked.size),
            alignment: nonzero(asked.alignment),
            stream: stream.as_ref().filter(|stream| stream.device().is_cuda()),
            is_lost: asked.flags & WARP_ALLOC_REQUEST_DEVICE_LOST != 0,
            ..FreeOptions::default()
        };
        alloc::deallocate_directly(handle(allocator), address(ptr), &options)
    })
}

fn required(request: *const warp_alloc_request) -> Result<warp_alloc_request> {
    if request.is_null() {
        fail!(InvalidArgument, "request is NULL; it says what is asked");
    }
    options(request)
}
