//! # Caching
//!
//! An allocator that keeps what is freed for the next who asks: a block that was freed on a stream is at once good for that stream, on
//! any thread, and nothing is asked of the driver. It stands on any allocator, which it gets memory from in chunks of 2 MiB and more;
//! chunks are cut into blocks and joined again, small blocks and large ones in chunks of their own.
//!
//! What belongs to one stream goes to another one only when the work of the first is done. Each thread has some blocks at hand (up to
//! 64 MiB and one block a stream, of small blocks, and as much of large ones), which it takes and gives without a lock; other threads
//! of the stream get them when there is nothing else. The memory of a stream that was released serves the next stream when its work is done.
//!
//! A block is as large as what was asked for, up to the next of 16 steps between two powers of two: 3 percent more on average. The
//! ledger, statistics and access checks know blocks by what was asked for. Memory that is kept counts as reserved, not as live.
//!
//! While a stream is captured its allocations pass the cache by: they become nodes of the graph, if what is below serves captures.
//! Passed by as well: alignments above 256 bytes, streams that are special or untracked. What passes it by counts
//! against the limit all the same.
//!
//! When memory runs out, here, below, or for a built-in allocator that a cache stands on, chunks that nobody uses go back before the
//! request is asked once more. Chunks whose streams still work are waited for, and blocks that were freed and that other streams still
//! use: at most two seconds each, never in a capture or a callback, and not when nothing of that sort is there. Chunks go back too with
//! warp_allocator_trim(), above `keep`, and, when their work is done, before the allocator would have more memory than ever before.
//!
//! A block that is at hand is given without a call of the driver. So a context that other code has destroyed or reset is noticed by the
//! next call that has to do with the driver, and what was given before is memory of the dead context.
//!
//! Unless it is said otherwise: WARP_ERROR_INVALID_HANDLE for an allocator that is none or was released, WARP_ERROR_FORKED in a child
//! of a fork for what its parent made. Any thread.

use super::allocator::{found, warp_allocator};
use super::boundary::{Grows, guard, opaque, options, out, out_struct, text};
use super::device::{found_device, warp_device};
use super::memory::{kind_of, warp_memory_kind};
use super::status::warp_status;
use crate::alloc::caching;
use crate::allocator::{self, Upstream};
use crate::error::Result;
use crate::handle::Entered;
use std::ffi::c_char;

/// How a caching allocator is to be. All zero but struct_size is the default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_caching_options {
    /// sizeof(warp_caching_options), set by the caller.
    pub struct_size: usize,
    /// As many bytes as it may have from below, of all devices together; 0 for any number. What would exceed it is
    /// WARP_ERROR_OUT_OF_MEMORY.
    pub limit: u64,
    /// As many unused bytes as it keeps in chunks that nobody uses, and as each thread has at hand in small blocks, and in large ones,
    /// with one block more; more goes back when a chunk comes free. 0 for any number.
    pub keep: u64,
    /// A name for messages and lists; copied. NULL for none.
    pub name: *const c_char,
}

// SAFETY: `repr(C)`, begins with its size, numbers and a raw pointer.
unsafe impl Grows for warp_caching_options {
    const FIRST_SIZE: usize = size_of::<warp_caching_options>();
    const NAME: &'static str = "warp_caching_options";
}

/// What a caching allocator has.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_caching_info {
    /// sizeof(warp_caching_info), set by the caller.
    pub struct_size: usize,
    /// Bytes that it has from below.
    pub reserved_bytes: u64,
    /// The most that it ever had, of all devices together.
    pub peak_reserved_bytes: u64,
    /// Bytes of live blocks, as they were asked for.
    pub live_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Bytes of live blocks, as they are cut.
    pub used_bytes: u64,
    /// Unused bytes. Of them, those in a single piece are largest_free_bytes at the most: what fraction the rest is tells how far the
    /// memory is broken up.
    pub free_bytes: u64,
    /// Of free_bytes, those that threads have at hand.
    pub at_hand_bytes: u64,
    /// The largest block that could be served without more memory, leaving aside what is at hand.
    pub largest_free_bytes: u64,
    /// Pieces of memory that it has from below.
    pub chunks: u64,
    /// Blocks that were served by what a thread had at hand.
    pub served_at_hand: u64,
    /// Blocks that were cut from chunks.
    pub served_by_cutting: u64,
    /// How often more memory was asked for.
    pub growths: u64,
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_caching_info {
    const FIRST_SIZE: usize = size_of::<warp_caching_info>();
    const NAME: &'static str = "warp_caching_info";
}

/// Makes an allocator that keeps what another one makes.
///
/// @param upstream  the allocator below, which it keeps alive: a built-in one, of callbacks, or an adaptor, for GPUs or for the CPU.
/// @param options  how it is to be; NULL for the defaults.
/// @param out  the allocator, with one reference, to be given back with warp_allocator_release(). Blocks of it may outlive the handle.
/// @return as warp_allocator_create_limit().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_create_caching(
    upstream: *mut warp_allocator,
    options: *const warp_caching_options,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let given = self::options(options)?;
        let upstream = found(upstream)?;
        let settings = caching::Settings { limit: given.limit, keep: given.keep };
        let made = caching::Caching::new(Upstream::of(&upstream), None, settings)?;
        out.put(opaque(caching::create(made, text(given.name))?));
        Ok(())
    })
}

/// Gives the caching allocator that the library has for a kind of memory, with the default options. It serves all devices.
///
/// @param kind  0 for GPUs: it keeps plain device memory, and serves captures from the memory pool of the device where there is one.
///     WARP_MEMORY_CUDA_DEVICE, _CUDA_MEMPOOL, _CUDA_MANAGED for that memory alone; WARP_MEMORY_PINNED and _HOST for the CPU, to be
///     named in the options of an allocation there.
/// @param out  the allocator, the same each time until the last warp_shutdown(). It is not to be released.
/// @return WARP_ERROR_INVALID_ARGUMENT for an unknown kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_get_caching(
    kind: warp_memory_kind,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(opaque(caching::of_kind(kind_of(kind)?)?));
        Ok(())
    })
}

/// Has the library's caching allocator for GPUs serve all default requests of every GPU there is and will be, as
/// warp_allocator_set_for_all() does; or the built-in ones again.
///
/// @param enabled  nonzero to cache.
/// @return WARP_ERROR_NO_SUCH_DEVICE to cache without a GPU.
#[unsafe(no_mangle)]
pub extern "C" fn warp_allocator_set_caching_for_all(enabled: u8) -> warp_status {
    guard(|| {
        let handle = if enabled == 0 { 0 } else { caching::of_kind(None)? };
        allocator::install_for_all(handle)
    })
}

/// Measures what a caching allocator has: walks its lists and the ledger.
///
/// @param allocator  a caching allocator.
/// @param device  of which device; NULL for all together. Growths, cuts and the peak are of all in any case.
/// @param out  filled as far as its struct_size goes.
/// @return WARP_ERROR_INVALID_ARGUMENT for another sort of allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_caching_measure(
    allocator: *const warp_allocator,
    device: *mut warp_device,
    out: *mut warp_caching_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let of = found(allocator)?;
        let device = if device.is_null() { None } else { Some(found_device(device)?) };
        let measured = caching_of(&of)?.measure(device);
        out.put(warp_caching_info {
            struct_size: 0,
            reserved_bytes: measured.reserved,
            peak_reserved_bytes: measured.peak_reserved,
            live_bytes: measured.live,
            live_blocks: measured.live_blocks,
            used_bytes: measured.used,
            free_bytes: measured.free + measured.at_hand,
            at_hand_bytes: measured.at_hand,
            largest_free_bytes: measured.largest_free,
            chunks: measured.chunks,
            served_at_hand: measured.from_hand,
            served_by_cutting: measured.from_heap,
            growths: measured.grown,
        });
        Ok(())
    })
}

fn caching_of(allocator: &Entered<allocator::Allocator>) -> Result<&caching::Caching> {
    allocator.as_sort("caching")
}
