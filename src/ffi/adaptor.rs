//! # Allocator adaptors
//!
//! Allocators that stand on another one, the upstream, and add something: a limit, an account, a list of what is out, a log, a way
//! out of failures, an alignment, a second source, hints for managed memory. Each is an allocator like any other: it is
//! installed, named or asked directly, and can be the upstream of the next, in any order: up to 16 on top of each other, and 64
//! that one request may meet. It makes the kind of memory that its upstream makes, and serves captures if that does.
//!
//! An adaptor keeps its upstream alive: the caller may release its own reference at once. Keep the handle of what is to be asked
//! later, as limits, statistics, tracking and logs are: each function here wants the handle of its own sort, and not that of an
//! adaptor above it. Blocks that others have of the upstream are not the adaptor's; only what goes through it is counted, limited
//! and listed, of all devices together. For an account of each GPU make one for each.
//!
//! A block that was freed and that streams or graphs still use is out until the upstream has it back; so wait for its device
//! (warp_device_synchronize()) before a look at what is left. After the last warp_shutdown() there is nothing to ask any more.
//!
//! An allocation that is out of memory is asked for once more after the allocator was trimmed (WARP_ALLOC_REQUEST_RETRY), and an
//! adaptor sees both requests.
//!
//! Unless it is said otherwise: WARP_ERROR_INVALID_HANDLE for an allocator that is none or was released,
//! WARP_ERROR_INVALID_ARGUMENT for an adaptor of another sort and for a stack that is too high, WARP_ERROR_FORKED in a child
//! of a fork for what its parent made. Any thread; no lock is held while an upstream or a callback is called.

use super::allocator::{
    account, found, warp_alloc_request, warp_allocator, warp_allocator_destroy_callback,
    warp_allocator_statistics,
};
use super::boundary::{flags, guard, opaque, optional_out, out, out_struct, pointer, put_text, text};
use super::callbacks::Failures;
use super::device::{found_device, told, warp_device};
use super::managed::warp_managed_advice;
use super::status::warp_status;
use crate::allocator::{
    self, Aligned, Allocator, Block, Counting, FailureCallback, Fallback, Limit, Logging, Source, Tracking,
    Upstream,
};
use crate::device::Device;
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::managed::{self, Hint, Hinting};
use crate::tag;
use std::ffi::{CStr, c_char, c_void};

/// For warp_allocator_create_tracking(): each block knows by which calls it was allocated. Costs some microseconds for each
/// allocation.
pub const WARP_TRACKING_BACKTRACES: u32 = 1;

/// As many callers as a warp_tracked_block names.
const CALLERS: usize = 16;

/// A block that is out, as warp_allocator_tracking_list() gives it. It grows at its end: the stride says how far a caller knows it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_tracked_block {
    /// The first address.
    pub ptr: *mut c_void,
    /// Bytes, as they were asked for.
    pub size: u64,
    /// The device that it was allocated for; NULL when that is no longer in the table.
    pub device: *mut warp_device,
    /// Id of the stream that it was allocated on; 0 for none.
    pub stream_id: u64,
    /// Its tag, good as long as the process lives; NULL for none.
    pub tag: *const c_char,
    /// When it was allocated: nanoseconds since the adaptor was made.
    pub time_ns: u64,
    /// A small number of the thread that allocated it. Threads that ended have theirs used again.
    pub thread: u64,
    /// How many of callers are set; 0 unless backtraces were asked for.
    pub caller_count: u32,
    /// 0.
    pub reserved: u32,
    /// Return addresses of the calls that it came from, the innermost first, without those of the library. dladdr() tells the
    /// file and the function of one; so does the report.
    pub callers: [*mut c_void; 16],
}

/// Says what to do about an allocation that failed. May allocate and free, make room, wait; must not throw.
///
/// @param user  as given to warp_allocator_create_failure_callback().
/// @param request  what was asked for; good during the call.
/// @param status  why the upstream failed.
/// @param attempt  how often this request has failed now, from 1 on.
/// @return nonzero to ask the upstream once more, 0 to give up.
pub type warp_allocator_failure_callback = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        request: *const warp_alloc_request,
        status: warp_status,
        attempt: u32,
    ) -> i32,
>;

fn upstream(allocator: *const warp_allocator) -> Result<Upstream> {
    found(allocator).map(|allocator| Upstream::of(&allocator))
}

fn made(source: impl Source + 'static) -> Result<*mut warp_allocator> {
    allocator::create(Box::new(source), None).map(opaque)
}

fn sort<'a, S: Source + 'static>(of: &'a Entered<Allocator>, name: &str) -> Result<&'a S> {
    of.as_sort(name)
}

/// Makes an adaptor that never has more than so many bytes out at once, however many threads ask. Bytes count as they are asked
/// for, from before the upstream is asked until it has the block back: blocks that were freed and that streams still use count.
///
/// @param upstream  the allocator below.
/// @param limit  bytes.
/// @param out  the adaptor, to be given back with warp_allocator_release(). What would exceed the limit is
///     WARP_ERROR_OUT_OF_MEMORY, with the limit, what is out and what was asked in the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_create_limit(
    upstream: *mut warp_allocator,
    limit: u64,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(made(Limit::new(self::upstream(upstream)?, limit)?)?);
        Ok(())
    })
}

/// Changes the limit, for requests from now on. What is out stays out, also where it is more.
///
/// @param allocator  a limit adaptor.
/// @param limit  bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_limit_set(allocator: *mut warp_allocator, limit: u64) -> warp_status {
    guard(|| {
        let allocator = found(allocator)?;
        sort::<Limit>(&allocator, "limit")?.set_limit(limit);
        Ok(())
    })
}

/// The limit and what is out.
///
/// @param allocator  a limit adaptor.
/// @param out_limit  bytes that may be out at once; may be NULL.
/// @param out_used  bytes that are out, or are being asked for; may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_limit_get(
    allocator: *const warp_allocator,
    out_limit: *mut u64,
    out_used: *mut u64,
) -> warp_status {
    guard(|| {
        let (out_limit, out_used) = (optional_out(out_limit), optional_out(out_used));
        let allocator = found(allocator)?;
        let (limit, used) = sort::<Limit>(&allocator, "limit")?.figures();
        if let Some(out) = out_limit {
            out.put(limit);
        }
        if let Some(out) = out_used {
            out.put(used);
        }
        Ok(())
    })
}

/// Makes an adaptor that counts what goes through it. warp_allocator_get_statistics() tells of its whole life;
/// warp_allocator_statistics_push() and _pop() measure a part of it.
///
/// @param upstream  the allocator below.
/// @param out  the adaptor, to be given back with warp_allocator_release().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_create_statistics(
    upstream: *mut warp_allocator,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(made(Counting::new(self::upstream(upstream)?)?)?);
        Ok(())
    })
}

/// Begins a measurement, inside of those that are open. It is the adaptor's and counts all threads.
///
/// @param allocator  a statistics adaptor.
/// @return WARP_ERROR_NOT_SUPPORTED when 4096 are open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_statistics_push(allocator: *mut warp_allocator) -> warp_status {
    guard(|| {
        let allocator = found(allocator)?;
        sort::<Counting>(&allocator, "statistics")?.push()
    })
}

/// Ends the measurement that was begun last, and tells what was in it. Those around it have it in theirs.
///
/// @param allocator  a statistics adaptor.
/// @param out  filled as far as its struct_size goes. Totals and failures are of the measurement; live and peak are what there is
///     now, and was at most, beyond what was live when it began, 0 where that is less. reserved_bytes is 0.
/// @return WARP_ERROR_INVALID_ARGUMENT when none is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_statistics_pop(
    allocator: *mut warp_allocator,
    out: *mut warp_allocator_statistics,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let allocator = found(allocator)?;
        let statistics = sort::<Counting>(&allocator, "statistics")?.pop()?;
        out.put(account(&statistics));
        Ok(())
    })
}

/// Makes an adaptor that knows which of its blocks are out. An address that the upstream gives while it is out is
/// WARP_ERROR_ALLOCATOR_FAILED; its first owner keeps it.
///
/// @param upstream  the allocator below.
/// @param flags  0 or WARP_TRACKING_BACKTRACES.
/// @param out  the adaptor, to be given back with warp_allocator_release().
/// @return WARP_ERROR_INVALID_ARGUMENT also for unknown flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_create_tracking(
    upstream: *mut warp_allocator,
    flags: u32,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let flags = self::flags(flags, WARP_TRACKING_BACKTRACES, "flags")?;
        let with_backtraces = flags & WARP_TRACKING_BACKTRACES != 0;
        out.put(made(Tracking::new(self::upstream(upstream)?, with_backtraces)?)?);
        Ok(())
    })
}

/// Writes which blocks are out, by their tags: the tags with most bytes first, and of each the 16 largest blocks, with their callers
/// if backtraces were asked for: the function where it is exported (a program's own are with -rdynamic), and the place in the file,
/// for `addr2line -f -e FILE PLACE`.
///
/// @param allocator  a tracking adaptor.
/// @param buffer  receives the text, UTF-8 and terminated, cut when it does not fit; may be NULL with capacity 0.
/// @param capacity  bytes of the buffer.
/// @param out_needed  the bytes that the whole text takes, its NUL included; may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_tracking_report(
    allocator: *const warp_allocator,
    buffer: *mut c_char,
    capacity: usize,
    out_needed: *mut usize,
) -> warp_status {
    guard(|| {
        let needed = optional_out(out_needed);
        put_text("", buffer, capacity, None)?;
        let allocator = found(allocator)?;
        put_text(&sort::<Tracking>(&allocator, "tracking")?.report(), buffer, capacity, needed)
    })
}

/// Lists the blocks that are out, by address.
///
/// @param allocator  a tracking adaptor.
/// @param blocks  receives them; may be NULL with capacity 0.
/// @param stride  bytes from one to the next, sizeof(warp_tracked_block) of the caller. What a newer caller has beyond this
///     version's fields is zeroed.
/// @param capacity  how many there is room for.
/// @param out_count  how many are out, also where that is more; may be NULL.
/// @return WARP_ERROR_INVALID_ARGUMENT also for a stride that is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_tracking_list(
    allocator: *const warp_allocator,
    blocks: *mut warp_tracked_block,
    stride: usize,
    capacity: usize,
    out_count: *mut usize,
) -> warp_status {
    guard(|| {
        const FIRST_SIZE: usize = size_of::<warp_tracked_block>();
        let count = optional_out(out_count);
        if capacity != 0 && blocks.is_null() {
            fail!(
                InvalidArgument,
                "blocks is NULL, its capacity {capacity}; pass 0 to ask for the number only"
            );
        }
        if capacity != 0 && !(FIRST_SIZE..=1 << 16).contains(&stride) {
            fail!(InvalidArgument, "stride is {stride}; pass sizeof(warp_tracked_block), {FIRST_SIZE} here");
        }
        let allocator = found(allocator)?;
        let out = sort::<Tracking>(&allocator, "tracking")?.blocks();
        for (at, block) in out.iter().take(capacity).enumerate() {
            let block = shown(block);
            let known = size_of::<warp_tracked_block>().min(stride);
            // SAFETY: the caller says that there are `capacity` places of `stride` bytes each.
            unsafe {
                let place = blocks.cast::<u8>().add(at * stride);
                std::ptr::copy_nonoverlapping((&raw const block).cast::<u8>(), place, known);
                place.add(known).write_bytes(0, stride - known);
            }
        }
        if let Some(count) = count {
            count.put(out.len());
        }
        Ok(())
    })
}

fn shown(block: &Block) -> warp_tracked_block {
    let mut callers = [std::ptr::null_mut(); CALLERS];
    let known = block.callers();
    for (place, caller) in callers.iter_mut().zip(known) {
        *place = std::ptr::without_provenance_mut(*caller);
    }
    warp_tracked_block {
        ptr: pointer(block.address),
        size: block.size,
        device: told(Some(block.device)),
        stream_id: block.stream_id,
        tag: tag::tag_name(block.tag).map_or(std::ptr::null(), CStr::as_ptr),
        time_ns: block.time,
        thread: block.thread as u64,
        caller_count: known.len().min(CALLERS) as u32,
        reserved: 0,
        callers,
    }
}

/// Makes an adaptor that writes every allocation and deallocation into a file, one line each, when it is over. The format is in
/// docs/replay.md; `warpmem-replay` replays such a file. Lines are kept until 64 KiB of them are there, warp_allocator_logging_flush()
/// is called, the adaptor goes, or the process exits.
///
/// @param upstream  the allocator below.
/// @param path  the file, which is made or emptied. A pipe is refused.
/// @param out  the adaptor, to be given back with warp_allocator_release(). When the disk is full, allocations go on, and the file
///     ends with the last line that fitted: the log callback is told once, and each flush.
/// @return WARP_ERROR_INVALID_ARGUMENT also when the file cannot be opened, with its path and the reason.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_create_logging(
    upstream: *mut warp_allocator,
    path: *const c_char,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let upstream = self::upstream(upstream)?;
        let Some(path) = text(path) else {
            fail!(InvalidArgument, "path is NULL; it names the file that the log goes to");
        };
        out.put(made(Logging::new(upstream, path)?)?);
        Ok(())
    })
}

/// Writes the lines that wait.
///
/// @param allocator  a logging adaptor.
/// @return WARP_ERROR_ALLOCATOR_FAILED when lines are missing from the file, now or since an earlier failure, with the reason and
///     how many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_logging_flush(allocator: *mut warp_allocator) -> warp_status {
    guard(|| {
        let allocator = found(allocator)?;
        sort::<Logging>(&allocator, "logging")?.flush()
    })
}

/// Makes an adaptor that asks a callback what to do when its upstream fails: the callback may make room and have the upstream asked
/// once more. An allocation is given up after 1000 attempts, whatever it says. It is called as the callbacks of allocators are:
/// with the device's context current, the thread's capture mode relaxed, and not deeper than 10 in each other.
///
/// @param upstream  the allocator below.
/// @param callback  what to ask.
/// @param destroy  called once when the adaptor goes, as that of a vtable; NULL for nothing.
/// @param user  passed to both.
/// @param out  the adaptor, to be given back with warp_allocator_release(). After warp_allocator_stop() it passes failures on, and
///     destroy is not called.
/// @return WARP_ERROR_INVALID_ARGUMENT also without a callback. After a failure destroy is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_create_failure_callback(
    upstream: *mut warp_allocator,
    callback: warp_allocator_failure_callback,
    destroy: warp_allocator_destroy_callback,
    user: *mut c_void,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let upstream = self::upstream(upstream)?;
        let Some(callback) = callback else {
            fail!(InvalidArgument, "callback is NULL; it says what to do when an allocation fails");
        };
        let callbacks = Box::new(Failures::new(callback, destroy, user));
        out.put(made(FailureCallback::new(upstream, callbacks)?)?);
        Ok(())
    })
}

/// Makes an adaptor whose blocks are all aligned to at least so many bytes, whatever its upstream can do: it asks for more, and
/// gives the upstream back what that gave. What is asked with a larger alignment goes down as it is.
///
/// @param upstream  the allocator below.
/// @param alignment  a power of two, at most 2^40.
/// @param out  the adaptor, to be given back with warp_allocator_release(). Sizes that overflow are WARP_ERROR_SIZE_OVERFLOW.
/// @return WARP_ERROR_BAD_ALIGNMENT for no such power of two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_create_aligned(
    upstream: *mut warp_allocator,
    alignment: u64,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(made(Aligned::new(self::upstream(upstream)?, alignment)?)?);
        Ok(())
    })
}

/// Makes an adaptor that asks a second allocator when the first is out of memory or fails. Other errors are the request's, and the
/// second is not asked. Each block goes back to the one that made it. It serves captures when both do, and is stream-ordered when
/// both are.
///
/// @param first  asked first.
/// @param second  asked when the first could not serve: an allocator of the same sort of memory, host or GPU.
/// @param out  the adaptor, to be given back with warp_allocator_release(). When both fail the message names both reasons.
/// @return WARP_ERROR_INVALID_ARGUMENT also when one makes host memory and the other does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_create_fallback(
    first: *mut warp_allocator,
    second: *mut warp_allocator,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let (first, second) = (upstream(first)?, upstream(second)?);
        out.put(made(Fallback::new(first, second)?)?);
        Ok(())
    })
}

/// Makes an adaptor that has new managed memory sent to a device at once, on the stream that the memory belongs to: work that comes
/// later on that stream finds it there. A prefetch that is refused is told once by a message, and the memory is as good without.
///
/// @param upstream  an allocator of managed memory, such as warp_allocator_get_builtin(WARP_MEMORY_CUDA_MANAGED), or one that does
///     not say its kind.
/// @param target  where to; a GPU, or "cpu"; NULL for the GPU that the memory is asked for.
/// @param out  the adaptor, to be given back with warp_allocator_release(). It serves no captures, which take no managed memory.
/// @return WARP_ERROR_INVALID_ARGUMENT also for an upstream that makes other memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_create_prefetch(
    upstream: *mut warp_allocator,
    target: *mut warp_device,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let upstream = self::upstream(upstream)?;
        let target = given_device(target)?;
        out.put(made(Hinting::new(upstream, Hint::Prefetch(target))?)?);
        Ok(())
    })
}

/// Makes an adaptor that gives the driver a hint for new managed memory, as warp_managed_advise() does. A hint that is refused is
/// told once by a message, and the memory is as good without.
///
/// @param upstream  as for warp_allocator_create_prefetch().
/// @param advice  WARP_MANAGED_ADVICE_SET_READ_MOSTLY, _SET_PREFERRED_LOCATION or _SET_ACCESSED_BY.
/// @param device  the device that it is about; NULL for the GPU that the memory is asked for.
/// @param out  the adaptor, to be given back with warp_allocator_release().
/// @return WARP_ERROR_INVALID_ARGUMENT also for an upstream that makes other memory, and for any other advice: new memory has none
///     that could be taken back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_allocator_create_advise(
    upstream: *mut warp_allocator,
    advice: warp_managed_advice,
    device: *mut warp_device,
    out: *mut *mut warp_allocator,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let upstream = self::upstream(upstream)?;
        let advice = managed::advice_of(advice)?;
        let device = given_device(device)?;
        out.put(made(Hinting::new(upstream, Hint::Advise(advice, device))?)?);
        Ok(())
    })
}

/// A device that a call may leave out.
fn given_device(device: *mut warp_device) -> Result<Option<&'static Device>> {
    if device.is_null() { Ok(None) } else { found_device(device).map(Some) }
}
