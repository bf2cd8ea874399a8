//! # The library
//!
//! Starting and ending, versions, the report, and messages. warp_init() works on every machine: without a GPU, or
//! without a driver that can be used, there is the CPU, and the report says why.

use super::boundary::{Grows, flags, guard, optional_out, options, out, put_text, text};
use super::status::warp_status;
use crate::error::{Result, fail};
use crate::{
    access, alloc, allocator, array, capture, copy, device, event, handle, host_call, log, peer, plug, pool,
    report, runtime, stream, thread,
};
use std::ffi::{c_char, c_void};

/// How grave a message is. A callback is given its level and everything graver.
pub type warp_log_level = i32;

/// Something failed that no call could report.
pub const WARP_LOG_ERROR: warp_log_level = 1;
/// Something is probably wrong, and work goes on.
pub const WARP_LOG_WARNING: warp_log_level = 2;
/// Worth knowing.
pub const WARP_LOG_INFO: warp_log_level = 3;
/// For those who look for a fault.
pub const WARP_LOG_DEBUG: warp_log_level = 4;

/// Receives a message: UTF-8, one line, valid during the call. Called on whichever thread had something to say,
/// with no lock held that another call could want; it may call back into the library. It must not throw.
pub type warp_log_callback =
    Option<unsafe extern "C" fn(user: *mut c_void, level: warp_log_level, message: *const c_char)>;

/// Do not look for a CUDA driver: CPU only.
pub const WARP_INIT_DISABLE_CUDA: u32 = 1;
/// Start with stream-ordered pools off, whatever the environment says.
pub const WARP_INIT_DISABLE_MEMPOOLS: u32 = 2;

/// How to start. All zero but struct_size is the default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_init_options {
    /// sizeof(warp_init_options), set by the caller.
    pub struct_size: usize,
    /// Path of the CUDA driver's file. NULL: the environment variable WARPMEM_LIBCUDA, else "libcuda.so.1".
    pub driver_path: *const c_char,
    /// WARP_INIT_… bits.
    pub flags: u32,
    /// For log: the least grave level that is wanted. 0 means WARP_LOG_WARNING.
    pub log_level: warp_log_level,
    /// Where messages go from the start; NULL leaves what warp_log_set_callback() has set.
    pub log: warp_log_callback,
    /// Passed to log.
    pub log_user: *mut c_void,
}

// SAFETY: `repr(C)`, begins with its size; numbers, raw pointers and an optional function pointer.
unsafe impl Grows for warp_init_options {
    const FIRST_SIZE: usize = size_of::<warp_init_options>();
    const NAME: &'static str = "warp_init_options";
}

/// Starts the library in this process, and counts: each call is matched by a warp_shutdown(). Only the first one
/// looks at its options. Looks for the driver and lists the devices; makes no CUDA context.
///
/// @param options  how to start; NULL for the defaults.
/// @param out_options_ignored  1 when the library was started already, so that these options had no effect; may
///     be NULL.
/// @return WARP_SUCCESS also when there is no GPU; WARP_ERROR_INVALID_ARGUMENT for unknown flags, an unknown log
///     level or a struct_size that is not set; WARP_ERROR_SHUT_DOWN when the process is exiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_init(
    options: *const warp_init_options,
    out_options_ignored: *mut u8,
) -> warp_status {
    guard(|| {
        let ignored = optional_out(out_options_ignored);
        let given = self::options(options)?;
        let flags = flags(given.flags, WARP_INIT_DISABLE_CUDA | WARP_INIT_DISABLE_MEMPOOLS, "flags")?;
        let level = if given.log_level == 0 { WARP_LOG_WARNING } else { given.log_level };
        if !(WARP_LOG_ERROR..=WARP_LOG_DEBUG).contains(&level) {
            fail!(InvalidArgument, "log_level {level} is unknown; use WARP_LOG_ERROR to WARP_LOG_DEBUG");
        }
        let start = runtime::Options {
            driver_path: text(given.driver_path),
            no_cuda: flags & WARP_INIT_DISABLE_CUDA != 0,
            no_mempools: flags & WARP_INIT_DISABLE_MEMPOOLS != 0,
        };
        let set_log = || -> Result<()> {
            match given.log {
                Some(_) => log::set(unwinding(given.log), given.log_user, level),
                None => Ok(()),
            }
        };
        let build_tables = || {
            // Before the tables, so that what is odd about a device can be told.
            let _ = set_log();
            device::build();
            report::warn();
            log::log!(Info, "warpmem {} found {} GPUs", env!("CARGO_PKG_VERSION"), device::cuda_count());
        };
        let late = runtime::init(&start, runtime::Hooks { build_tables, mend_in_child })?;
        if let Some(ignored) = ignored {
            ignored.put(u8::from(late));
        }
        Ok(())
    })
}

/// Puts every room right that the CPU's path goes through.
fn mend_in_child() {
    // SAFETY: called once in the child of a fork, while no other thread of it is in the library.
    unsafe {
        thread::after_fork_in_child();
        log::mend_in_child();
        device::mend_in_child();
        stream::mend_in_child();
        event::mend_in_child();
        pool::mend_in_child();
        array::mend_in_child();
        array::indexed::mend_in_child();
        capture::mend_in_child();
        allocator::mend_in_child();
        alloc::mend_in_child();
        plug::mend_in_child();
        access::mend_in_child();
    }
}

/// Ends what a warp_init() began. With the last one all handles become stale and nothing new can be made. Arrays
/// that were not released are released now: their memory is freed, their deleters are called, on this thread. Blocks
/// of warp_alloc() that are still live stay valid and can be freed. Allocators lose all their references; those with blocks that
/// live are named in messages (a warning each) and live on until the last of them is freed.
///
/// @return WARP_SUCCESS, also for one call too many; WARP_ERROR_NOT_INITIALIZED if there never was a warp_init().
#[unsafe(no_mangle)]
pub extern "C" fn warp_shutdown() -> warp_status {
    guard(|| {
        let mut arrays = None;
        let mut allocators = Vec::new();
        let outcome = runtime::shutdown(|| {
            arrays = Some((array::indexed::close_all(), array::close_all()));
            copy::dismantle();
            allocators = allocator::dismantle();
            peer::dismantle();
            capture::dismantle();
            event::dismantle();
            stream::dismantle();
            pool::dismantle();
            device::dismantle();
        });
        // Nobody can release an array any more, so its memory goes now: with no lock held, since deleters may call
        // back in. So may those of what graphs kept.
        if arrays.is_some() {
            copy::end_threads();
            drop(arrays);
            alloc::deliver_all();
            host_call::dismantle();
            allocator::let_go(&allocators, alloc::live_of_slot);
            drop(allocators);
        }
        outcome
    })
}

/// Whether the library is started.
///
/// @param out  1 between the first warp_init() and the last warp_shutdown(), else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_library_is_initialized(out: *mut u8) -> warp_status {
    guard(|| {
        self::out(out, "out")?.put(u8::from(runtime::require_live().is_ok()));
        Ok(())
    })
}

/// The version of the library that is loaded, as WARP_VERSION counts: 10000 * major + 100 * minor + patch. Any
/// thread, before warp_init() too.
#[unsafe(no_mangle)]
pub extern "C" fn warp_version_get_number() -> i32 {
    10000 * parse(env!("CARGO_PKG_VERSION_MAJOR"))
        + 100 * parse(env!("CARGO_PKG_VERSION_MINOR"))
        + parse(env!("CARGO_PKG_VERSION_PATCH"))
}

const fn parse(digits: &str) -> i32 {
    let (digits, mut value, mut i) = (digits.as_bytes(), 0, 0);
    while i < digits.len() {
        value = value * 10 + (digits[i] - b'0') as i32;
        i += 1;
    }
    value
}

/// The version of the library that is loaded, such as "0.1.0". The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn warp_version_get_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Whether a program that was compiled with one version of the header can use the library that is loaded: before
/// 1.0 the minor number must be the same and the library's patch not older, after it the major number and the
/// library not older.
///
/// @param header_version  WARP_VERSION of the header.
/// @return WARP_SUCCESS, or WARP_ERROR_NOT_SUPPORTED with both versions in the message. Any thread, before
///     warp_init() too.
#[unsafe(no_mangle)]
pub extern "C" fn warp_version_check(header_version: i32) -> warp_status {
    guard(|| {
        let loaded = warp_version_get_number();
        let family = |version: i32| if version < 10000 { version / 100 } else { version / 10000 + 100 };
        if header_version <= 0 || family(header_version) != family(loaded) || header_version > loaded {
            fail!(
                NotSupported,
                "compiled with version {} of warpmem, loaded is {}; use the header and the library of one release",
                shown(header_version),
                shown(loaded)
            );
        }
        Ok(())
    })
}

fn shown(version: i32) -> String {
    if version < 0 {
        return version.to_string();
    }
    format!("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)
}

/// A number that tells copies of the library in one process apart: the same number is the same copy, with the
/// same devices and blocks. Any thread, before warp_init() too.
///
/// @param out  the number, never 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_library_get_instance_id(out: *mut u64) -> warp_status {
    guard(|| {
        self::out(out, "out")?.put(handle::salt());
        Ok(())
    })
}

/// Writes the report of what was found: the driver or the reason why there is none, the devices, and which GPUs
/// reach which.
///
/// @param buffer  receives the text, UTF-8 and terminated, cut when it does not fit; may be NULL with capacity 0.
/// @param capacity  bytes of the buffer.
/// @param out_needed  the bytes that the whole text takes, its NUL included; may be NULL.
/// @return WARP_ERROR_NOT_INITIALIZED before warp_init().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_library_get_report(
    buffer: *mut c_char,
    capacity: usize,
    out_needed: *mut usize,
) -> warp_status {
    guard(|| {
        let needed = optional_out(out_needed);
        put_text("", buffer, capacity, None)?;
        put_text(&report::report()?, buffer, capacity, needed)
    })
}

/// Sets where messages go. When it returns, the callback that was set before is not running any more and will not
/// be called again.
///
/// @param callback  receives the messages; NULL for nobody.
/// @param user  passed to it.
/// @param level  the least grave level that is wanted, WARP_LOG_ERROR to WARP_LOG_DEBUG.
/// @return WARP_ERROR_INVALID_ARGUMENT for an unknown level; WARP_ERROR_BUSY when called from inside the callback.
///     Any thread, before warp_init() too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_log_set_callback(
    callback: warp_log_callback,
    user: *mut c_void,
    level: warp_log_level,
) -> warp_status {
    guard(|| {
        // A child of a fork takes its locks from who is gone before it waits for any.
        runtime::is_forked();
        log::set(unwinding(callback), user, level)
    })
}

/// The same function, called through an ABI that lets a foreign exception reach our shim.
fn unwinding(callback: warp_log_callback) -> Option<log::Callback> {
    // SAFETY: the two ABIs differ only in what happens when the callee unwinds.
    unsafe {
        std::mem::transmute::<
            Option<unsafe extern "C" fn(*mut c_void, i32, *const c_char)>,
            Option<log::Callback>,
        >(callback)
    }
}
