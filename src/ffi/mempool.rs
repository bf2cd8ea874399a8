//! # Memory pools
//!
//! A memory pool gives device memory in the order of streams, and keeps what was freed for the next allocation. Every GPU that
//! supports them has one, which allocations of the device come from as long as pools are switched on and nothing else is said.
//! It is shared with all code of the process, and what it uses and keeps is counted for all of them. Further ones are created
//! here, or are other code's and wrapped; `mempool` of warp_alloc_options names one for a block, warp_mempool_use() for all
//! blocks of a device. A pool belongs to a GPU: it outlives contexts, and so do the blocks in it.
//!
//! A pool keeps up to its release threshold of unused memory when a stream, an event or the device is waited for, and gives
//! the rest back. The threshold is 0 unless somebody changed it, which makes the next allocation after a wait dear.
//!
//! The functions that end in `_of_device` are short for warp_mempool_get() and the one without.
//!
//! Unless it is said otherwise: WARP_ERROR_INVALID_ARGUMENT for the CPU, WARP_ERROR_NOT_SUPPORTED for a GPU without pools, and
//! WARP_ERROR_INVALID_HANDLE for a pool that was released. No context is made. Any thread, also while something is captured.

use super::boundary::{Grows, flags, guard, handle, opaque, options, out, out_struct};
use super::device::{found_device, found_devices, warp_device};
use super::peer_access::is_enabled;
use super::status::warp_status;
use crate::device;
use crate::error::Result;
use crate::peer::{self, Memory};
use crate::pool::{self, Entered, RawPool};
use crate::{alloc, runtime};
use std::ffi::c_void;

/// A memory pool. A device's own is good until the library is shut down, another one until it is released.
#[repr(C)]
pub struct warp_mempool {
    _private: [u8; 0],
}

/// A way in which the memory of a pool can be given to other processes.
pub type warp_mempool_handle_type = i32;

/// By a file descriptor.
pub const WARP_MEMPOOL_HANDLE_POSIX_FD: warp_mempool_handle_type = 1;
/// By a handle that also other machines of the fabric can take.
pub const WARP_MEMPOOL_HANDLE_FABRIC: warp_mempool_handle_type = 8;

/// How a new pool should be. All zero but struct_size is the default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_mempool_options {
    /// sizeof(warp_mempool_options), set by the caller.
    pub struct_size: usize,
    /// The most bytes that the pool may hold; the driver rounds it up, to 32 MiB on many GPUs. What captures allocate is their
    /// graphs' and not counted. 0 for what the GPU has.
    pub max_size: u64,
    /// Bytes that it keeps when something is waited for, any number.
    pub release_threshold: u64,
    /// A sum of WARP_MEMPOOL_HANDLE_… that its memory can be exported as. A capture cannot allocate from such a pool.
    pub handle_types: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_mempool_options {
    const FIRST_SIZE: usize = size_of::<warp_mempool_options>();
    const NAME: &'static str = "warp_mempool_options";
}

/// What is known of a pool without asking the driver.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_mempool_info {
    /// sizeof(warp_mempool_info), set by the caller.
    pub struct_size: usize,
    /// The device of its GPU; NULL when that is no longer in the table.
    pub device: *mut warp_device,
    /// The CUmemoryPool. It stays its owner's to destroy.
    pub native: *mut c_void,
    /// The most bytes that it was created with; 0 for no limit, and for a pool that others made.
    pub max_size: u64,
    /// The handle types that it was created with; 0 for a pool that others made.
    pub handle_types: u32,
    /// Was it created here?
    pub is_owned: u8,
    /// Is it a device's own?
    pub is_device_pool: u8,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_mempool_info {
    const FIRST_SIZE: usize = size_of::<warp_mempool_info>();
    const NAME: &'static str = "warp_mempool_info";
}

/// What a pool holds, in bytes, for all code of the process, as the driver counts it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_mempool_memory_info {
    /// sizeof(warp_mempool_memory_info), set by the caller.
    pub struct_size: usize,
    /// Bytes in blocks that are not freed. Memory of graphs is apart: warp_graph_query_memory().
    pub used: u64,
    /// The most of that since the last reset.
    pub used_high: u64,
    /// Bytes that the pool holds of the GPU's memory, in use or kept.
    pub reserved: u64,
    /// The most of that since the last reset.
    pub reserved_high: u64,
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_mempool_memory_info {
    const FIRST_SIZE: usize = size_of::<warp_mempool_memory_info>();
    const NAME: &'static str = "warp_mempool_memory_info";
}

/// The pool that a caller names.
fn found(pool: *const warp_mempool) -> Result<Entered> {
    runtime::require_live()?;
    pool::enter(handle(pool))
}

/// A pool that a caller may leave out.
#[inline]
pub(super) fn given_pool(pool: *const warp_mempool) -> Result<Option<Entered>> {
    if pool.is_null() { Ok(None) } else { found(pool).map(Some) }
}

/// The pool that a device allocates from now.
fn found_of(device: *mut warp_device, what: &str) -> Result<Entered> {
    let device = found_device(device)?;
    device.require_mempools(what)?;
    device.require_cuda(what)?;
    pool::enter_current(device)
}

/// Whether a device has memory pools: some GPUs, as virtual ones, do not. Cheap.
///
/// @param device  the device; NULL for the default.
/// @param out  1 or 0; 0 for the CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_is_supported(device: *mut warp_device, out: *mut u8) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(u8::from(found_device(device)?.facts().memory_pools));
        Ok(())
    })
}

/// Whether what names no kind comes from the pool, on the calling thread: as its innermost scope says, else as the process
/// chose. Cheap.
///
/// @param device  the device; NULL for the default.
/// @param out  1 or 0; 0 for the CPU and where there are no pools.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_is_enabled(device: *mut warp_device, out: *mut u8) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(u8::from(found_device(device)?.mempool_enabled()));
        Ok(())
    })
}

/// Switches the pools of a device on or off for the process. Blocks that are there stay what they are, and are freed as what
/// they are. Pools start on where there are any, unless WARP_INIT_DISABLE_MEMPOOLS or the environment says otherwise.
///
/// @param device  the device; NULL for the default.
/// @param enabled  nonzero for on. Off is success everywhere.
/// @return for on: WARP_ERROR_INVALID_ARGUMENT for the CPU, WARP_ERROR_NOT_SUPPORTED for a GPU without pools; nothing changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_set_enabled(device: *mut warp_device, enabled: u8) -> warp_status {
    guard(|| found_device(device)?.set_mempool_enabled(enabled != 0))
}

/// Switches the pools of several devices on or off for the process: of all or of none.
///
/// @param devices  count of them; NULL with count 0 for every GPU.
/// @param count  how many.
/// @param enabled  nonzero for on.
/// @return as warp_mempool_set_enabled(), with the first device that cannot in the message; nothing changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_set_enabled_for(
    devices: *const *mut warp_device,
    count: usize,
    enabled: u8,
) -> warp_status {
    guard(|| {
        let all = found_devices(devices, count, "devices")?
            .unwrap_or_else(|| device::all().into_iter().filter(|device| device.is_cuda()).collect());
        if enabled != 0 {
            all.iter().try_for_each(|device| device.require_mempools("switching memory pools on"))?;
        }
        all.iter().try_for_each(|device| device.set_mempool_enabled(enabled != 0))
    })
}

/// The pool that allocations of a device come from now: its own, which is what the driver has it allocate from when that is
/// asked first, or the one of warp_mempool_use().
///
/// @param device  the device; NULL for the default.
/// @param out  the pool, which is not to be released for this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_get(
    device: *mut warp_device,
    out: *mut *mut warp_mempool,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(opaque(pool::get(found_device(device)?)?));
        Ok(())
    })
}

/// Makes a pool of a GPU's memory. Nothing allocates from it before it is named.
///
/// @param device  the device; NULL for the default.
/// @param options  how it should be; NULL for the defaults.
/// @param out  the pool, to be released with warp_mempool_release().
/// @return WARP_ERROR_NOT_SUPPORTED also for handle types that the system does not give; WARP_ERROR_INVALID_ARGUMENT for
///     unknown ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_create(
    device: *mut warp_device,
    options: *const warp_mempool_options,
    out: *mut *mut warp_mempool,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        let given = self::options(options)?;
        const KNOWN: i32 = WARP_MEMPOOL_HANDLE_POSIX_FD | WARP_MEMPOOL_HANDLE_FABRIC;
        let form = pool::Form {
            max_size: given.max_size,
            release_threshold: given.release_threshold,
            handle_types: flags(given.handle_types, KNOWN as u32, "handle_types")?,
        };
        flags(given.reserved, 0, "reserved")?;
        out.put(opaque(pool::create(device, form, alloc::pools_in_records)?));
        Ok(())
    })
}

/// Makes a pool of other code known. It stays its owner's, who keeps it as long as the handle is not released and no device
/// uses it. A pool that is known already gets a further handle; for a device's own it is the one of that. To prove where its
/// memory is, one byte is allocated from it and freed.
///
/// @param device  the device of its GPU; NULL for the default.
/// @param native_pool  a CUmemoryPool. What never was one the driver may crash on.
/// @param out  the pool, to be released with warp_mempool_release() unless it is a device's own.
/// @return WARP_ERROR_INVALID_ARGUMENT also for NULL, a pool of another GPU, one of managed or host memory, and one that was
///     destroyed or imported from another process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_wrap(
    device: *mut warp_device,
    native_pool: *mut c_void,
    out: *mut *mut warp_mempool,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        out.put(opaque(pool::wrap(device, RawPool(native_pool), alloc::pools_in_records)?));
        Ok(())
    })
}

/// Gives a pool back. The handle is stale at once; live blocks stay good and are freed as ever. A pool that was created here is
/// destroyed with its last handle, when calls inside of it have left and no device uses it. For a pool of other code such calls
/// of other threads are waited for: when this returns its owner may destroy it, if no device uses it. Also in a forked child,
/// where it only forgets.
///
/// @param pool  a pool; NULL does nothing.
/// @return WARP_ERROR_INVALID_ARGUMENT for a device's own, and for what warp_mempool_get() gave for a pool that was released
///     and is in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_release(pool: *mut warp_mempool) -> warp_status {
    guard(|| {
        runtime::require_once_live()?;
        if pool.is_null() { Ok(()) } else { self::pool::release(handle(pool)) }
    })
}

/// Has allocations of a device come from a pool from now on: what names no kind while pools are on, what names
/// WARP_MEMORY_CUDA_MEMPOOL, and what is captured. The device keeps the pool, also when it is released, until it uses another
/// or the library is shut down. Process-wide.
///
/// @param device  the device; NULL for the default.
/// @param pool  a pool of the same GPU; NULL for the device's own.
/// @return WARP_ERROR_INVALID_ARGUMENT also for a pool of another GPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_use(device: *mut warp_device, pool: *mut warp_mempool) -> warp_status {
    guard(|| {
        let device = found_device(device)?;
        self::pool::use_pool(device, (!pool.is_null()).then(|| handle(pool)))
    })
}

/// Describes a pool. Cheap.
///
/// @param pool  the pool.
/// @param out  filled as far as its struct_size goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_get_info(
    pool: *const warp_mempool,
    out: *mut warp_mempool_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let pool = found(pool)?;
        let device = Some(pool.device()).filter(|device| device.is_live());
        out.put(warp_mempool_info {
            struct_size: size_of::<warp_mempool_info>(),
            device: device.map_or(std::ptr::null_mut(), |device| opaque(device.handle())),
            native: pool.native().0,
            max_size: pool.max_size(),
            handle_types: pool.handle_types(),
            is_owned: u8::from(pool.is_created()),
            is_device_pool: u8::from(pool.is_of_device()),
        });
        Ok(())
    })
}

fn put_memory(pool: &Entered, out: super::boundary::OutStruct<warp_mempool_memory_info>) -> Result<()> {
    let held = pool.memory()?;
    out.put(warp_mempool_memory_info {
        struct_size: size_of::<warp_mempool_memory_info>(),
        used: held.used,
        used_high: held.used_high,
        reserved: held.reserved,
        reserved_high: held.reserved_high,
    });
    Ok(())
}

/// Asks the driver what a pool holds, for all code of the process. warp_statistics_get() counts the library's own blocks, by
/// the bytes that were asked for.
///
/// @param pool  the pool.
/// @param out  filled as far as its struct_size goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_query_memory(
    pool: *mut warp_mempool,
    out: *mut warp_mempool_memory_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        put_memory(&found(pool)?, out)
    })
}

/// Brings the high marks of a pool down to what is so now, for all that ask in the process.
///
/// @param pool  the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_reset_memory_high(pool: *mut warp_mempool) -> warp_status {
    guard(|| found(pool)?.reset_high())
}

/// Gives back what a pool holds and nothing uses. Waits for nothing: frees that streams have still to come to count for a
/// later call. Running out of memory does that too, with all pools of the device that handles name.
///
/// @param pool  the pool.
/// @param keep  bytes that it keeps, used ones included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_trim(pool: *mut warp_mempool, keep: u64) -> warp_status {
    guard(|| trim(&found(pool)?, keep))
}

fn trim(pool: &Entered, keep: u64) -> Result<()> {
    alloc::look_at_all();
    pool.trim(keep)
}

/// Sets how much a pool keeps when something is waited for, for all code of the process that has the pool.
///
/// @param pool  the pool.
/// @param bytes  any number; 0 keeps nothing, UINT64_MAX everything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_set_release_threshold(
    pool: *mut warp_mempool,
    bytes: u64,
) -> warp_status {
    guard(|| found(pool)?.set_release_threshold(bytes))
}

/// Sets how much a pool keeps as a part of the GPU's memory, rounded down to bytes.
///
/// @param pool  the pool.
/// @param fraction  0 to 1.
/// @return WARP_ERROR_INVALID_ARGUMENT also for any other number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_set_release_fraction(
    pool: *mut warp_mempool,
    fraction: f64,
) -> warp_status {
    guard(|| found(pool)?.set_release_fraction(fraction))
}

/// Asks the driver how much a pool keeps when something is waited for: other code may have set it.
///
/// @param pool  the pool.
/// @param out  bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_query_release_threshold(
    pool: *mut warp_mempool,
    out: *mut u64,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(found(pool)?.release_threshold()?);
        Ok(())
    })
}

/// As warp_mempool_query_memory(), of the pool that a device allocates from.
///
/// @param device  the device; NULL for the default.
/// @param out  filled as far as its struct_size goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_query_memory_of_device(
    device: *mut warp_device,
    out: *mut warp_mempool_memory_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        put_memory(&found_of(device, "the memory of its pool")?, out)
    })
}

/// As warp_mempool_reset_memory_high(), of the pool that a device allocates from.
///
/// @param device  the device; NULL for the default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_reset_memory_high_of_device(device: *mut warp_device) -> warp_status {
    guard(|| found_of(device, "the high marks of its pool")?.reset_high())
}

/// As warp_mempool_trim(), of the pool that a device allocates from.
///
/// @param device  the device; NULL for the default.
/// @param keep  bytes that it keeps, used ones included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_trim_of_device(device: *mut warp_device, keep: u64) -> warp_status {
    guard(|| trim(&found_of(device, "trimming its pool")?, keep))
}

/// As warp_mempool_set_release_threshold(), of the pool that a device allocates from.
///
/// @param device  the device; NULL for the default.
/// @param bytes  any number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_set_release_threshold_of_device(
    device: *mut warp_device,
    bytes: u64,
) -> warp_status {
    guard(|| found_of(device, "the release threshold of its pool")?.set_release_threshold(bytes))
}

/// As warp_mempool_set_release_fraction(), of the pool that a device allocates from.
///
/// @param device  the device; NULL for the default.
/// @param fraction  0 to 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_set_release_fraction_of_device(
    device: *mut warp_device,
    fraction: f64,
) -> warp_status {
    guard(|| found_of(device, "the release threshold of its pool")?.set_release_fraction(fraction))
}

/// As warp_mempool_query_release_threshold(), of the pool that a device allocates from.
///
/// @param device  the device; NULL for the default.
/// @param out  bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_query_release_threshold_of_device(
    device: *mut warp_device,
    out: *mut u64,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(found_of(device, "the release threshold of its pool")?.release_threshold()?);
        Ok(())
    })
}

/// As warp_mempool_access_query_enabled(), of one pool.
///
/// @param pool  the pool, whose GPU owns the memory.
/// @param peer_device  the device that touches it; NULL for the default.
/// @param out  1 or 0; 1 for the same GPU, 0 for the CPU.
/// @return WARP_ERROR_INVALID_HANDLE, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_query_access(
    pool: *mut warp_mempool,
    peer_device: *mut warp_device,
    out: *mut u8,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let pool = found(pool)?;
        let peer = found_device(peer_device)?;
        out.put(u8::from(is_enabled(Memory::Pool(&pool), pool.device(), peer)?));
        Ok(())
    })
}

/// As warp_mempool_access_set_enabled(), of one pool.
///
/// @param pool  the pool, whose GPU owns the memory.
/// @param peer_device  the device that touches it; NULL for the default.
/// @param enabled  nonzero to enable, 0 to disable.
/// @return as warp_mempool_access_set_enabled().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_mempool_set_access(
    pool: *mut warp_mempool,
    peer_device: *mut warp_device,
    enabled: u8,
) -> warp_status {
    guard(|| {
        let pool = found(pool)?;
        peer::set(Memory::Pool(&pool), pool.device(), &[found_device(peer_device)?], enabled != 0)
    })
}
