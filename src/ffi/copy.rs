//! # Copies
//!
//! Copies of items and of bytes take the fastest way that is legal between any two devices and kinds of memory, with gaps or
//! without; which one that is can be asked. A copy with a GPU at one end is work of a stream: it comes after what was put there
//! before, and what is put there later comes after it, also where other streams, the copy threads, or temporary memory take
//! part. The caller orders it after what produced the source. A call takes no longer than putting it on the stream, but for
//! ordinary (pageable) host memory, which has been read, or written, when the call returns, and for copies from host to host.
//!
//! Large copies of pageable memory go through page-locked buffers, filled and emptied by *copy threads*. They start with the
//! first such copy and end with warp_shutdown(). The buffers are kept meanwhile, in no count of blocks: up to 4 MiB for each
//! thread and two more, twice, and up to 128 MiB for copies between GPUs. Within a capture the driver's own way is recorded.
//!
//! Ends that overlap are copied as if all of the source was read first. Items of a destination that share bytes with each
//! other are refused. Numbers of an index array that lead out of its data are refused where they are in host memory; a GPU
//! leaves such items out: nothing is read or written outside.

use super::array::{found as found_array, warp_array};
use super::boundary::{Grows, address, guard, optional_out, options, out, out_struct};
use super::device::{told, warp_device};
use super::indexed::{found as found_indexed, warp_indexed_array};
use super::status::warp_status;
use super::stream::{given, warp_stream};
use crate::array::{self, Array, Copy, Extract, IndexedArray, Named};
use crate::copy::{self, Description, How, Path, Several};
use crate::error::{Error, Result, fail};
use crate::handle::Hold;
use crate::runtime;
use std::ffi::c_void;

/// The way that the bytes of a copy go.
pub type warp_copy_path = i32;

/// Nothing is to be copied.
pub const WARP_COPY_PATH_NONE: warp_copy_path = 0;
/// From host to host, by the calling thread.
pub const WARP_COPY_PATH_HOST: warp_copy_path = 1;
/// From host to host, by the copy threads as well.
pub const WARP_COPY_PATH_HOST_THREADS: warp_copy_path = 2;
/// Within the memory of one GPU.
pub const WARP_COPY_PATH_DEVICE: warp_copy_path = 3;
/// Between a GPU and page-locked memory, by the GPU itself.
pub const WARP_COPY_PATH_PINNED: warp_copy_path = 4;
/// Between a GPU and pageable memory, by the calling thread or the driver.
pub const WARP_COPY_PATH_PAGEABLE: warp_copy_path = 5;
/// Between a GPU and pageable memory, by the copy threads through page-locked buffers.
pub const WARP_COPY_PATH_PAGEABLE_PIPELINED: warp_copy_path = 6;
/// From GPU to GPU directly.
pub const WARP_COPY_PATH_PEER: warp_copy_path = 7;
/// From GPU to GPU without access, staged by the driver.
pub const WARP_COPY_PATH_PEER_STAGED: warp_copy_path = 8;
/// From GPU to GPU without access, through page-locked buffers.
pub const WARP_COPY_PATH_PEER_PIPELINED: warp_copy_path = 9;
/// An end is managed memory, which the driver finds where it is.
pub const WARP_COPY_PATH_MANAGED: warp_copy_path = 10;

const _: () = {
    assert!(Path::Nothing as i32 == WARP_COPY_PATH_NONE && Path::Host as i32 == WARP_COPY_PATH_HOST);
    assert!(Path::HostThreads as i32 == WARP_COPY_PATH_HOST_THREADS);
    assert!(Path::Device as i32 == WARP_COPY_PATH_DEVICE && Path::Pinned as i32 == WARP_COPY_PATH_PINNED);
    assert!(Path::Pageable as i32 == WARP_COPY_PATH_PAGEABLE);
    assert!(Path::PageablePipelined as i32 == WARP_COPY_PATH_PAGEABLE_PIPELINED);
    assert!(
        Path::Peer as i32 == WARP_COPY_PATH_PEER && Path::PeerStaged as i32 == WARP_COPY_PATH_PEER_STAGED
    );
    assert!(Path::PeerPipelined as i32 == WARP_COPY_PATH_PEER_PIPELINED);
    assert!(Path::Managed as i32 == WARP_COPY_PATH_MANAGED);
};

/// What makes a copy.
pub type warp_copy_method = i32;

/// Nobody: nothing is to be copied.
pub const WARP_COPY_METHOD_NONE: warp_copy_method = 0;
/// The driver, by one call.
pub const WARP_COPY_METHOD_DRIVER: warp_copy_method = 1;
/// A kernel of the library, on the device that is told.
pub const WARP_COPY_METHOD_KERNEL: warp_copy_method = 2;
/// The CPU, which packs or unpacks pageable memory where a GPU has the other end.
pub const WARP_COPY_METHOD_CPU: warp_copy_method = 3;
/// Several steps, by way of temporary memory or page-locked buffers.
pub const WARP_COPY_METHOD_STAGED: warp_copy_method = 4;

/// A copy. Each end is memory, an array or an indexed array; what is not used is NULL. All zero but struct_size is a copy of
/// nothing from nowhere, which is refused.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_copy_request {
    /// sizeof(warp_copy_request), set by the caller.
    pub struct_size: usize,
    /// Where to, as for warp_memory_copy().
    pub dest: *mut c_void,
    /// Where from, as for warp_memory_copy().
    pub src: *const c_void,
    /// Bytes, where both ends are memory.
    pub size: u64,
    /// Where to, as for warp_array_copy().
    pub dest_array: *mut warp_array,
    /// Where from, as for warp_array_copy().
    pub src_array: *const warp_array,
    /// Where to, as for warp_indexed_array_scatter().
    pub dest_indexed: *mut warp_indexed_array,
    /// Where from, as for warp_indexed_array_gather().
    pub src_indexed: *const warp_indexed_array,
    /// Between arrays: the first item to write.
    pub dest_offset: u64,
    /// Between arrays: the first item to read.
    pub src_offset: u64,
    /// Between arrays: how many items; 0 for as many as the source has.
    pub count: u64,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_copy_request {
    const FIRST_SIZE: usize = size_of::<warp_copy_request>();
    const NAME: &'static str = "warp_copy_request";
}

/// What a copy would do.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_copy_info {
    /// sizeof(warp_copy_info), set by the caller.
    pub struct_size: usize,
    /// Whose stream it is put on, or whose kernel makes it; the CPU from host to host.
    pub device: *mut warp_device,
    /// Bytes that are copied.
    pub size: u64,
    /// Bytes of temporary memory on GPUs at a time. Page-locked buffers, which are kept, are not counted.
    pub staging: u64,
    /// The way.
    pub path: warp_copy_path,
    /// WARP_COPY_METHOD_…
    pub method: warp_copy_method,
    /// Does the call only put the copy on the stream, or into the graph that this is captured into? 0 when the calling thread
    /// moves bytes, or waits for their end: host to host, and pageable memory.
    pub is_async: u8,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_copy_info {
    const FIRST_SIZE: usize = size_of::<warp_copy_info>();
    const NAME: &'static str = "warp_copy_info";
}

/// What a request names, kept for as long as it is worked on.
struct Ends {
    dest: End,
    src: End,
    extract: Extract,
    size: u64,
}

/// Held and not entered: a thread can be inside of so many objects only, and a batch may name more.
enum End {
    Memory(u64),
    Array(Hold<Array>),
    Indexed(Hold<IndexedArray>),
}

impl End {
    fn of(
        memory: u64,
        array: *const warp_array,
        indexed: *const warp_indexed_array,
        what: &str,
    ) -> Result<End> {
        match (memory != 0, !array.is_null(), !indexed.is_null()) {
            (true, false, false) => Ok(End::Memory(memory)),
            (false, true, false) => Ok(End::Array(found_array(array)?.lasting_hold())),
            (false, false, true) => Ok(End::Indexed(found_indexed(indexed)?.lasting_hold())),
            (false, false, false) => Ok(End::Memory(0)),
            _ => fail!(
                InvalidArgument,
                "the request names more than one {what}; it is memory, an array or an indexed array, and the others are NULL"
            ),
        }
    }

    fn named(&self) -> Option<Named<'_>> {
        match self {
            End::Memory(_) => None,
            End::Array(array) => Some(Named::Array(array)),
            End::Indexed(indexed) => Some(Named::Indexed(indexed)),
        }
    }
}

/// A request that was looked at: what is to be copied, and for arrays who keeps their memory.
enum Asked<'a> {
    Bytes { dest: u64, src: u64, size: u64 },
    Items(Option<Box<Copy<'a>>>),
}

impl Ends {
    fn of(request: *const warp_copy_request) -> Result<Ends> {
        runtime::require_live()?;
        if request.is_null() {
            fail!(InvalidArgument, "request is NULL; it says what is to be copied");
        }
        let given = options(request)?;
        Ok(Ends {
            dest: End::of(address(given.dest), given.dest_array, given.dest_indexed, "destination")?,
            src: End::of(address(given.src), given.src_array, given.src_indexed, "source")?,
            extract: Extract {
                dest_offset: given.dest_offset,
                src_offset: given.src_offset,
                count: given.count,
            },
            size: given.size,
        })
    }

    fn asked(&self) -> Result<Asked<'_>> {
        let Extract { dest_offset, src_offset, count } = self.extract;
        match (&self.dest, &self.src, self.dest.named().zip(self.src.named())) {
            (_, _, Some((dest, src))) => {
                if self.size != 0 {
                    fail!(
                        InvalidArgument,
                        "size is {} bytes, and arrays are copied by items; leave it at 0 and use count",
                        self.size
                    );
                }
                array::plan_copy(dest, src, self.extract).map(|copy| Asked::Items(copy.map(Box::new)))
            }
            (&End::Memory(dest), &End::Memory(src), None) => {
                if dest == 0 && src == 0 && self.size == 0 {
                    fail!(
                        InvalidArgument,
                        "the request names no destination and no source; set dest and src, or arrays"
                    );
                }
                if (dest_offset, src_offset, count) != (0, 0, 0) {
                    fail!(
                        InvalidArgument,
                        "offsets and a count are of arrays; add bytes to dest and src, and use size"
                    );
                }
                Ok(Asked::Bytes { dest, src, size: self.size })
            }
            _ => fail!(
                InvalidArgument,
                "one end of the request is memory and the other an array; wrap the memory with warp_array_wrap(), or pass the array's data"
            ),
        }
    }
}

impl Asked<'_> {
    fn describe(&self, stream: *mut warp_stream) -> Result<Description> {
        let stream = given(stream)?;
        match self {
            Asked::Bytes { dest, src, size } => copy::describe_line(*dest, *src, *size, stream.as_ref()),
            Asked::Items(Some(copy)) => copy::describe_items(&copy.items, stream.as_ref()),
            Asked::Items(None) => copy::describe_nothing(),
        }
    }

    fn several(&self) -> Several<'_> {
        match self {
            Asked::Bytes { dest, src, size } => Several::Bytes { dest: *dest, src: *src, size: *size },
            Asked::Items(Some(copy)) => Several::Items(&copy.items),
            Asked::Items(None) => Several::Nothing,
        }
    }
}

/// Tells what a copy would do now, without doing it. That may change with access, with allocators, and inside of a capture.
/// Any thread.
///
/// @param request  the copy.
/// @param stream  where it would be put; NULL for the stream that the copy would choose.
/// @param out  filled as far as its struct_size goes.
/// @return as warp_copy_run() would return before anything is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_copy_get_path(
    request: *const warp_copy_request,
    stream: *mut warp_stream,
    out: *mut warp_copy_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let ends = Ends::of(request)?;
        let told_of = ends.asked()?.describe(stream)?;
        out.put(warp_copy_info {
            struct_size: size_of::<warp_copy_info>(),
            device: told(Some(told_of.device)),
            size: told_of.size,
            staging: told_of.staging,
            path: told_of.path as warp_copy_path,
            method: match (told_of.path, told_of.how) {
                (Path::Nothing, _) => WARP_COPY_METHOD_NONE,
                (Path::Host | Path::HostThreads, _) => WARP_COPY_METHOD_CPU,
                (_, How::Line | How::Peer | How::Rows(_)) => WARP_COPY_METHOD_DRIVER,
                (_, How::Kernel(_)) => WARP_COPY_METHOD_KERNEL,
                (_, How::ByHost { is_piped: false, by_way: false }) => WARP_COPY_METHOD_CPU,
                (_, How::ByHost { .. } | How::Across | How::Staged { .. }) => WARP_COPY_METHOD_STAGED,
            },
            is_async: u8::from(told_of.is_async),
        });
        Ok(())
    })
}

/// Makes a copy that is described by a struct: what warp_memory_copy(), warp_array_copy() and the copies of indexed arrays do.
/// Any thread.
///
/// @param request  the copy.
/// @param stream  where to put it, of either device; NULL for the stream that warp_memory_copy() chooses.
/// @return as those, WARP_ERROR_ACCESS_DENIED, _ILLEGAL_IN_CAPTURE, _NOT_SUPPORTED and _OUT_OF_MEMORY among them;
///     WARP_ERROR_INVALID_ARGUMENT for a request with two destinations or two sources, with memory at one end and an array at the
///     other, or without ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_copy_run(
    request: *const warp_copy_request,
    stream: *mut warp_stream,
) -> warp_status {
    guard(|| run_all(&[Ends::of(request)?], stream).map_err(|(_, error)| error))
}

/// Makes copies one after another, as if each had a call of its own, for less. All are checked before the first is made: if one
/// is wrong, nothing is done. Any thread.
///
/// @param requests  the copies.
/// @param stride  bytes from each to the next, sizeof(warp_copy_request) for an array of them.
/// @param count  how many; 0 does nothing.
/// @param stream  where to put them, of one device of each; NULL for the stream that each would choose.
/// @param out_bad  which of them failed, counted from 0; `count` when none did or it was not one of them. May be NULL.
/// @return as warp_copy_run(). What is found wrong before leaves everything as it was; after a failure of the driver, of memory, or
///     a capture that another thread begins meanwhile, the copies before the one that is told have been made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_copy_run_batch(
    requests: *const warp_copy_request,
    stride: usize,
    count: usize,
    stream: *mut warp_stream,
    out_bad: *mut usize,
) -> warp_status {
    guard(|| {
        let mut bad = count;
        let outcome = run_batch(requests, stride, count, stream, &mut bad);
        if let Some(out_bad) = optional_out(out_bad) {
            out_bad.put(bad);
        }
        outcome
    })
}

fn run_batch(
    requests: *const warp_copy_request,
    stride: usize,
    count: usize,
    stream: *mut warp_stream,
    bad: &mut usize,
) -> Result<()> {
    runtime::require_live()?;
    if count == 0 {
        return Ok(());
    }
    if requests.is_null() {
        fail!(InvalidArgument, "requests is NULL, and {count} of them are to be made");
    }
    if stride < size_of::<usize>()
        || stride.checked_mul(count).is_none_or(|bytes| bytes > isize::MAX as usize)
    {
        fail!(
            InvalidArgument,
            "stride is {stride} for {count} requests; it is sizeof(warp_copy_request), or the size of what each is a part of"
        );
    }
    let mut all = Vec::new();
    if all.try_reserve_exact(count).is_err() {
        fail!(OutOfMemory, "no host memory for {count} requests; make fewer at once");
    }
    for at in 0..count {
        let request = requests.wrapping_byte_add(at * stride);
        all.push(Ends::of(request).inspect_err(|_| *bad = at)?);
    }
    run_all(&all, stream).map_err(|(at, error)| {
        *bad = at;
        error
    })
}

fn run_all(all: &[Ends], stream: *mut warp_stream) -> std::result::Result<(), (usize, Error)> {
    let stream = given(stream).map_err(|e| (all.len(), e))?;
    let each = all.iter().enumerate();
    let asked = each
        .map(|(at, ends)| ends.asked().map_err(|e| (at, e)))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let copies: Vec<_> = asked.iter().map(Asked::several).collect();
    copy::copy_all(&copies, stream.as_ref(), &|at, graph| {
        if let Asked::Items(Some(copy)) = &asked[at] {
            copy.keep(Some(graph));
        }
    })
}

/// Sets how many copy threads large copies of pageable memory have, beside the thread that calls. Threads that are there
/// already end if there are more, and their buffers are given back with 0. For the process, any thread.
///
/// @param count  how many; 0 for none: such copies are left to the driver, and copies from host to host to the calling thread.
///     More than half of the machine's cores is taken as that. At the start it is 4, or that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_copy_set_threads(count: u32) -> warp_status {
    guard(|| {
        runtime::require_live()?;
        copy::set_threads(count);
        Ok(())
    })
}

/// Tells how many copy threads large copies may have, whether they have started or not. Cheap; any thread.
///
/// @param out  what warp_copy_set_threads() set, as far as that goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_copy_get_threads(out: *mut u32) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        runtime::require_live()?;
        out.put(copy::threads());
        Ok(())
    })
}
