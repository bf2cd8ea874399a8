//! # Devices
//!
//! A device is the CPU, or a GPU together with a context: its primary one, or a foreign one that was registered.
//! "cpu", "cuda:0" and so on name them; "cuda" is the GPU whose context is current, and NULL, wherever a device is
//! expected, is the calling thread's default device. Handles of devices are not released. Nothing here makes a
//! context unless it says so.

use super::boundary::{Grows, field, guard, handle, opaque, out, out_struct, utf8};
use super::status::warp_status;
use crate::device::RawContext;
use crate::error::{Result, fail};
use crate::{alloc, device, pool, runtime, stream};
use std::ffi::{c_char, c_void};

/// A device. The handle stays good until the library is shut down, or the device's context dies or is removed.
#[repr(C)]
pub struct warp_device {
    _private: [u8; 0],
}

/// Everything that is known of a device without asking the driver. For the CPU, what speaks of GPUs is zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_device_info {
    /// sizeof(warp_device_info), set by the caller.
    pub struct_size: usize,
    /// The name it is found by, such as "cuda:0".
    pub alias: [c_char; 64],
    /// The product's name.
    pub name: [c_char; 256],
    /// The GPU's unique id, "GPU-" and 8-4-4-4-12 hex digits; empty for the CPU.
    pub uuid: [c_char; 48],
    /// Domain, bus and device, such as "00000000:1B:00"; empty for the CPU.
    pub pci_bus_id: [c_char; 32],
    /// The GPU's number as the driver counts, -1 for the CPU.
    pub ordinal: i32,
    /// 10 * major + minor of the compute capability.
    pub arch: i32,
    /// Multiprocessors.
    pub sm_count: i32,
    /// Bytes of shared memory that one block can opt in to.
    pub max_shared_memory_per_block: i32,
    /// Bytes of memory.
    pub total_memory: u64,
    /// The context's id, 0 before it is made.
    pub context_id: u64,
    /// The CPU?
    pub is_cpu: u8,
    /// A GPU?
    pub is_cuda: u8,
    /// Does it stand for the GPU's primary context?
    pub is_primary: u8,
    /// Has its context been made through this library, or was it registered with one?
    pub has_context: u8,
    /// Do the GPU and the CPU share one range of addresses?
    pub is_uva: u8,
    /// Does the GPU share the host's physical memory?
    pub is_integrated: u8,
    /// Can the GPU reach pageable host memory?
    pub is_cpu_memory_access_from_gpu_supported: u8,
    /// Can the CPU reach managed memory that resides on the GPU without moving it?
    pub is_gpu_memory_access_from_cpu_supported: u8,
    /// Does the hardware have atomics between the GPU and the CPU?
    pub is_cpu_gpu_atomic_supported: u8,
    /// Is there managed memory?
    pub is_managed_memory_supported: u8,
    /// May the CPU touch managed memory while the GPU works?
    pub is_concurrent_managed_access_supported: u8,
    /// Are there stream-ordered memory pools?
    pub is_mempool_supported: u8,
    /// Do default requests of the calling thread come from the pool?
    pub is_mempool_enabled: u8,
    /// Can memory and events be shared with other processes?
    pub is_ipc_supported: u8,
    /// Is there virtual memory management?
    pub is_virtual_memory_supported: u8,
    /// Can memory be exported as a dma-buf?
    pub is_dma_buf_supported: u8,
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_device_info {
    const FIRST_SIZE: usize = size_of::<warp_device_info>();
    const NAME: &'static str = "warp_device_info";
}

/// A device that a call names; NULL is the default one.
pub(super) fn found_device(device: *const warp_device) -> Result<&'static device::Device> {
    runtime::require_live()?;
    device::from_handle(handle(device))
}

/// The handle by which a device is told to the caller; NULL for none, and for one that is no longer in the table.
pub(super) fn told(device: Option<&device::Device>) -> *mut warp_device {
    match device {
        Some(device) if device.is_live() => opaque(device.handle()),
        _ => std::ptr::null_mut(),
    }
}

/// The devices of a list that a call names; `None` for NULL and a count of 0, which stand for all that there are to name.
pub(super) fn found_devices(
    list: *const *mut warp_device,
    count: usize,
    name: &str,
) -> Result<Option<Vec<&'static device::Device>>> {
    runtime::require_live()?;
    if list.is_null() {
        if count != 0 {
            fail!(InvalidArgument, "{name} is NULL, its count {count}; pass NULL and 0 for every GPU");
        }
        return Ok(None);
    }
    if count > isize::MAX as usize / size_of::<*mut warp_device>() {
        fail!(InvalidArgument, "{name} has a count of {count}, more than there can be in memory");
    }
    // SAFETY: the caller says that there are `count` handles; each may lie anywhere.
    let given = (0..count).map(|i| unsafe { list.add(i).read_unaligned() });
    given.map(|device| found_device(device)).collect::<Result<Vec<_>>>().map(Some)
}

/// How many devices there are: the CPU, the GPUs, and registered contexts.
///
/// @param out  the count, at least 1.
/// @return WARP_ERROR_NOT_INITIALIZED before warp_init().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_get_count(out: *mut usize) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        runtime::require_live()?;
        out.put(device::all().len());
        Ok(())
    })
}

/// How many GPUs there are.
///
/// @param out  the count; 0 is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_get_cuda_count(out: *mut usize) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        runtime::require_live()?;
        out.put(device::cuda_count());
        Ok(())
    })
}

/// The device at a place in the list: the CPU first, then the GPUs by number, then registered contexts in the order
/// they came. Registering and removing change the places behind.
///
/// @param index  0 to the count less one.
/// @param out  the device.
/// @return WARP_ERROR_NO_SUCH_DEVICE beyond the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_get_at(index: usize, out: *mut *mut warp_device) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        runtime::require_live()?;
        let all = device::all();
        match all.get(index) {
            Some(device) => out.put(opaque(device.handle())),
            None => fail!(NoSuchDevice, "there is no device {index}; there are {}", all.len()),
        }
        Ok(())
    })
}

/// Finds a device by its name.
///
/// @param alias  "cpu"; "cuda:N"; a registered context's alias; "cuda" for the GPU whose context is current on
///     this thread (registered now if it is new), else the default device if that is a GPU, else the first GPU;
///     NULL for the default device.
/// @param out  the device.
/// @return WARP_ERROR_NO_SUCH_DEVICE when nothing has that name, with what there is and why in the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_get(alias: *const c_char, out: *mut *mut warp_device) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        runtime::require_live()?;
        let device = match utf8(alias, "the alias")? {
            Some(alias) => device::by_alias(alias)?,
            None => device::default_device()?,
        };
        out.put(opaque(device.handle()));
        Ok(())
    })
}

/// Describes a device. Cheap.
///
/// @param device  the device; NULL for the default.
/// @param out  filled as far as its struct_size goes.
/// @return WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST when the device's context died.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_get_info(
    device: *const warp_device,
    out: *mut warp_device_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        out.put(describe(found_device(device)?));
        Ok(())
    })
}

fn describe(device: &device::Device) -> warp_device_info {
    let facts = device.facts();
    let (major, minor) = facts.compute_capability;
    let cuda = device.is_cuda();
    let total_memory =
        if cuda { facts.total_memory } else { device.memory_info().map_or(0, |(_, total)| total) };
    warp_device_info {
        struct_size: size_of::<warp_device_info>(),
        alias: field(device.alias()),
        name: field(&facts.name),
        uuid: field(&facts.uuid.map(show_uuid).unwrap_or_default()),
        pci_bus_id: field(&show_pci(&facts.pci_bus_id)),
        ordinal: device.ordinal(),
        arch: 10 * major + minor,
        sm_count: facts.multiprocessor_count,
        max_shared_memory_per_block: facts.max_shared_memory_per_block,
        total_memory,
        context_id: device.context_id(),
        is_cpu: u8::from(!cuda),
        is_cuda: u8::from(cuda),
        is_primary: u8::from(device.is_primary()),
        has_context: u8::from(device.has_context()),
        is_uva: u8::from(facts.unified_addressing),
        is_integrated: u8::from(facts.integrated),
        is_cpu_memory_access_from_gpu_supported: u8::from(facts.pageable_memory_access),
        is_gpu_memory_access_from_cpu_supported: u8::from(facts.direct_managed_access_from_host),
        is_cpu_gpu_atomic_supported: u8::from(facts.host_native_atomics),
        is_managed_memory_supported: u8::from(facts.managed_memory),
        is_concurrent_managed_access_supported: u8::from(facts.concurrent_managed_access),
        is_mempool_supported: u8::from(facts.memory_pools),
        is_mempool_enabled: u8::from(device.mempool_enabled()),
        is_ipc_supported: u8::from(device.ipc_supported()),
        is_virtual_memory_supported: u8::from(facts.virtual_memory_management),
        is_dma_buf_supported: u8::from(facts.dma_buf),
    }
}

/// `0000:1b:00.0`, as some drivers say it, as `00000000:1B:00`.
fn show_pci(said: &str) -> String {
    let whole = said.to_ascii_uppercase();
    let shown = || {
        let mut parts = whole.split(':');
        let domain = u32::from_str_radix(parts.next()?, 16).ok()?;
        let (bus, slot) = (parts.next()?, parts.next()?);
        Some(format!("{domain:08X}:{bus}:{}", slot.split('.').next()?))
    };
    shown().unwrap_or_else(|| whole.clone())
}

fn show_uuid(uuid: [u8; 16]) -> String {
    let mut text = String::from("GPU-");
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Asks for the memory of a device. A GPU whose context nobody uses is given one for the question only.
///
/// @param device  the device; NULL for the default.
/// @param out_free  bytes that are free: of the GPU, or of the host what can be had without swapping.
/// @param out_total  all bytes.
/// @return WARP_ERROR_DEVICE_LOST, WARP_ERROR_FORKED in a forked child, WARP_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_query_memory(
    device: *const warp_device,
    out_free: *mut u64,
    out_total: *mut u64,
) -> warp_status {
    guard(|| {
        let (free_out, total_out) = (out(out_free, "out_free"), out(out_total, "out_total"));
        let (free_out, total_out) = (free_out?, total_out?);
        let (free, total) = found_device(device)?.memory_info()?;
        free_out.put(free);
        total_out.put(total);
        Ok(())
    })
}

/// The device's native context, a CUcontext. Makes the primary context of a GPU if this library had not retained
/// it yet; it stays the library's, which keeps it. It is not made current: for launches of your own do so, with
/// cuCtxSetCurrent().
///
/// @param device  a CUDA device; NULL for the default.
/// @param out  the context.
/// @return WARP_ERROR_INVALID_ARGUMENT for the CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_get_native_context(
    device: *const warp_device,
    out: *mut *mut c_void,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        let driver = device.require_cuda("a native context")?;
        out.put(device.context(driver)?.0);
        Ok(())
    })
}

/// The device of a native context. One that is not in the table is registered: as "cuda:N.K", K counting from 0
/// for each GPU, or under the alias that is given. The context stays its owner's, and should outlive what is
/// allocated in it; when it dies the device is lost, and frees of what was there succeed quietly.
///
/// @param native_context  a CUcontext.
/// @param alias  a name of its own, UTF-8, up to 63 bytes, not "cpu", "cuda" or beginning with "cuda:"; NULL for
///     "cuda:N.K".
/// @param out  the device.
/// @return WARP_ERROR_INVALID_ARGUMENT for NULL, an alias that is taken or cannot be one, or a context that has
///     another name already; WARP_ERROR_DEVICE_LOST for a destroyed context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_from_context(
    native_context: *mut c_void,
    alias: *const c_char,
    out: *mut *mut warp_device,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        runtime::require_live()?;
        let device = device::from_context(RawContext(native_context), utf8(alias, "the alias")?)?;
        out.put(opaque(device.handle()));
        Ok(())
    })
}

/// Takes a registered context out of the table. Its handle becomes stale; blocks that live there stay valid and
/// can be freed while the context lives.
///
/// @param device  a device that warp_device_from_context() registered.
/// @return WARP_ERROR_INVALID_ARGUMENT for any other device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_remove(device: *mut warp_device) -> warp_status {
    guard(|| {
        let device = found_device(device)?;
        device::remove(device)?;
        pool::forget_device(device);
        Ok(())
    })
}

/// The device that NULL means on this thread: what the thread chose, else what the process chose, else (worked
/// out once) the device of the context that is current, else the first GPU, else the CPU.
///
/// @param out  the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_get_default(out: *mut *mut warp_device) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(opaque(device::default_device()?.handle()));
        Ok(())
    })
}

/// Chooses the default device of the process: of every thread that has not chosen for itself. No context is made
/// current.
///
/// @param device  the device.
/// @return WARP_ERROR_INVALID_ARGUMENT for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_set_default(device: *mut warp_device) -> warp_status {
    guard(|| {
        runtime::require_live()?;
        if device.is_null() {
            fail!(InvalidArgument, "the default device cannot be NULL, which means the default device");
        }
        device::set_default(found_device(device)?);
        Ok(())
    })
}

/// Chooses the default device of the calling thread only.
///
/// @param device  the device; NULL to go back to the process's choice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_set_for_thread(device: *mut warp_device) -> warp_status {
    guard(|| {
        runtime::require_live()?;
        let chosen = if device.is_null() { None } else { Some(found_device(device)?) };
        device::set_for_thread(chosen);
        Ok(())
    })
}

/// The calling thread's own choice.
///
/// @param out  the device, NULL when the thread has not chosen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_get_for_thread(out: *mut *mut warp_device) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        runtime::require_live()?;
        if let Some(device) = device::for_thread() {
            out.put(opaque(device.handle()));
        }
        Ok(())
    })
}

/// Waits until all work of the device's context is done; returns at once for the CPU and for a GPU that was not
/// used yet. May block for as long as the work takes.
///
/// @param device  the device; NULL for the default.
/// @return WARP_ERROR_DEVICE_LOST also when a kernel faulted; WARP_ERROR_ILLEGAL_IN_CAPTURE while a stream of the
///     context is being captured. The capture goes on unharmed if the stream has a handle of the library or is a
///     blocking one; other captures the driver breaks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_device_synchronize(device: *mut warp_device) -> warp_status {
    guard(|| {
        stream::synchronize_device(found_device(device)?)?;
        alloc::after_a_wait();
        Ok(())
    })
}
