//! # Status and errors
//!
//! Every function that can fail says so by its status, and keeps a record of the failure for the thread that
//! called it: the status, the driver's own code where there was one, and a sentence that names the way out.

use super::boundary::{Grows, guard, out_struct};
use crate::error::{Error, Status, count_kept};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_char;

/// The outcome of a call. 0 is success; 1 to 99 are the caller's doing, 100 to 199 the machine's, 200 to 299 the
/// driver's, 900 a defect of the library. Numbers never change their meaning.
pub type warp_status = i32;

/// It worked.
pub const WARP_SUCCESS: warp_status = 0;
/// warp_init() was not called.
pub const WARP_ERROR_NOT_INITIALIZED: warp_status = 1;
/// The library was shut down, or the process is exiting.
pub const WARP_ERROR_SHUT_DOWN: warp_status = 2;
/// An argument is NULL, unknown or contradicts another.
pub const WARP_ERROR_INVALID_ARGUMENT: warp_status = 3;
/// A handle is stale, of another type, of another copy of the library, or none at all.
pub const WARP_ERROR_INVALID_HANDLE: warp_status = 4;
/// There is no device of that name, or no usable GPU.
pub const WARP_ERROR_NO_SUCH_DEVICE: warp_status = 5;
/// A size, a shape or a sum of sizes is more than any address space has.
pub const WARP_ERROR_SIZE_OVERFLOW: warp_status = 6;
/// An alignment is no power of two, or not what the block has.
pub const WARP_ERROR_BAD_ALIGNMENT: warp_status = 7;
/// An address lies in no live block of the library.
pub const WARP_ERROR_UNKNOWN_POINTER: warp_status = 8;
/// An address lies inside a block where the block's first address is needed.
pub const WARP_ERROR_INTERIOR_POINTER: warp_status = 9;
/// A block was freed before.
pub const WARP_ERROR_DOUBLE_FREE: warp_status = 10;
/// A size or an element size is not the one that the memory has.
pub const WARP_ERROR_SIZE_MISMATCH: warp_status = 11;
/// A device may not touch this memory.
pub const WARP_ERROR_ACCESS_DENIED: warp_status = 12;
/// What was asked cannot be part of a graph, and a capture is under way.
pub const WARP_ERROR_ILLEGAL_IN_CAPTURE: warp_status = 13;
/// A device has as many peers as it can have.
pub const WARP_ERROR_PEER_LIMIT: warp_status = 14;
/// A scope was ended out of order, twice, or on another thread.
pub const WARP_ERROR_SCOPE_ORDER: warp_status = 15;
/// Somebody else is using what would be changed, or it is not done yet.
pub const WARP_ERROR_BUSY: warp_status = 16;
/// The process was forked after the library was initialised; GPUs cannot be used in it.
pub const WARP_ERROR_FORKED: warp_status = 17;
/// This device, driver or version of the library cannot do it.
pub const WARP_ERROR_NOT_SUPPORTED: warp_status = 100;
/// There is not enough memory of the kind that was asked for.
pub const WARP_ERROR_OUT_OF_MEMORY: warp_status = 101;
/// A device's context was destroyed, or a kernel's fault made it unusable.
pub const WARP_ERROR_DEVICE_LOST: warp_status = 102;
/// A custom allocator failed, or broke its contract.
pub const WARP_ERROR_ALLOCATOR_FAILED: warp_status = 103;
/// The driver refused; its code is in the record.
pub const WARP_ERROR_DRIVER: warp_status = 200;
/// A defect of the library; its state is intact.
pub const WARP_ERROR_INTERNAL: warp_status = 900;

/// The constant's number for each status: the one place that ties the two rooms together.
const NUMBERS: [(Status, warp_status); 23] = [
    (Status::NotInitialized, WARP_ERROR_NOT_INITIALIZED),
    (Status::ShutDown, WARP_ERROR_SHUT_DOWN),
    (Status::InvalidArgument, WARP_ERROR_INVALID_ARGUMENT),
    (Status::InvalidHandle, WARP_ERROR_INVALID_HANDLE),
    (Status::NoSuchDevice, WARP_ERROR_NO_SUCH_DEVICE),
    (Status::SizeOverflow, WARP_ERROR_SIZE_OVERFLOW),
    (Status::BadAlignment, WARP_ERROR_BAD_ALIGNMENT),
    (Status::UnknownPointer, WARP_ERROR_UNKNOWN_POINTER),
    (Status::InteriorPointer, WARP_ERROR_INTERIOR_POINTER),
    (Status::DoubleFree, WARP_ERROR_DOUBLE_FREE),
    (Status::SizeMismatch, WARP_ERROR_SIZE_MISMATCH),
    (Status::AccessDenied, WARP_ERROR_ACCESS_DENIED),
    (Status::IllegalInCapture, WARP_ERROR_ILLEGAL_IN_CAPTURE),
    (Status::PeerLimit, WARP_ERROR_PEER_LIMIT),
    (Status::ScopeOrder, WARP_ERROR_SCOPE_ORDER),
    (Status::Busy, WARP_ERROR_BUSY),
    (Status::Forked, WARP_ERROR_FORKED),
    (Status::NotSupported, WARP_ERROR_NOT_SUPPORTED),
    (Status::OutOfMemory, WARP_ERROR_OUT_OF_MEMORY),
    (Status::DeviceLost, WARP_ERROR_DEVICE_LOST),
    (Status::AllocatorFailed, WARP_ERROR_ALLOCATOR_FAILED),
    (Status::DriverError, WARP_ERROR_DRIVER),
    (Status::Internal, WARP_ERROR_INTERNAL),
];

// The concepts' number is the ABI's, for every status.
const _: () = {
    let mut i = 0;
    while i < NUMBERS.len() {
        assert!(NUMBERS[i].0 as i32 == NUMBERS[i].1 && NUMBERS[i].0 as i32 == Status::ALL[i] as i32);
        i += 1;
    }
};

/// The bytes of an error's message, its terminating NUL included.
pub const WARP_ERROR_MESSAGE_SIZE: i32 = 1024;

/// A failure, as it was kept for the thread that met it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_error {
    /// sizeof(warp_error), set by the caller.
    pub struct_size: usize,
    /// The status that the failing call returned; WARP_SUCCESS if no call of this thread has failed yet.
    pub status: warp_status,
    /// The driver's own code (a CUresult), 0 when the driver was not what failed.
    pub driver_code: i32,
    /// What happened, with names, sizes and the way out; UTF-8, always terminated, cut when it is longer.
    pub message: [c_char; 1024],
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_error {
    const FIRST_SIZE: usize = size_of::<warp_error>();
    const NAME: &'static str = "warp_error";
}

struct Kept {
    status: warp_status,
    driver_code: i32,
    length: usize,
    message: [u8; WARP_ERROR_MESSAGE_SIZE as usize],
}

thread_local! {
    // No destructor, so that it can be read and written as late in a thread's or the process's life as a call
    // can come.
    static LAST: RefCell<Kept> = const {
        RefCell::new(Kept { status: WARP_SUCCESS, driver_code: 0, length: 0, message: [0; 1024] })
    };
}

/// Keeps the failure for this thread and gives its status.
#[cold]
pub(super) fn keep(error: &Error) -> warp_status {
    let status = error.status as warp_status;
    count_kept();
    LAST.with_borrow_mut(|kept| {
        kept.status = status;
        kept.driver_code = error.driver_code as i32;
        let mut length = error.message.len().min(kept.message.len() - 1);
        while !error.message.is_char_boundary(length) {
            length -= 1;
        }
        kept.message[..length].copy_from_slice(&error.message.as_bytes()[..length]);
        kept.message[length] = 0;
        kept.length = length;
    });
    status
}

/// The message of the thread's last failure, if it had this status.
pub(super) fn last_of(status: warp_status) -> Option<String> {
    LAST.with_borrow(|kept| {
        let message = String::from_utf8_lossy(&kept.message[..kept.length]);
        (kept.status == status).then(|| message.into_owned())
    })
}

#[cold]
pub(super) fn keep_panic(panic: &(dyn Any + Send)) -> warp_status {
    let what = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message");
    keep(&Error::new(Status::Internal, format!("a defect of warpmem was caught: {what}; please report it")))
}

/// Copies the record of the calling thread's last failure. It lasts until that thread's next failing call;
/// a success does not touch it, so use it to explain a failure and not to detect one.
///
/// @param out  filled as far as its struct_size goes.
/// @return WARP_SUCCESS, or WARP_ERROR_INVALID_ARGUMENT when out is NULL or its struct_size is not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_error_get_last(out: *mut warp_error) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        LAST.with_borrow(|kept| {
            let mut error = warp_error {
                struct_size: size_of::<warp_error>(),
                status: kept.status,
                driver_code: kept.driver_code,
                message: [0; 1024],
            };
            for (to, from) in error.message.iter_mut().zip(&kept.message[..kept.length]) {
                *to = *from as c_char;
            }
            out.put(error);
        });
        Ok(())
    })
}

/// The message of the calling thread's last failure, as in warp_error_get_last(). Never NULL, empty before the
/// first failure. The text belongs to the library and lasts until this thread's next failing call.
#[unsafe(no_mangle)]
pub extern "C" fn warp_error_get_message() -> *const c_char {
    LAST.with(|kept| kept.as_ptr().wrapping_byte_add(std::mem::offset_of!(Kept, message))).cast()
}

/// The name of a status, such as "WARP_ERROR_BUSY"; "WARP_ERROR_UNKNOWN" for a number that is none. The text is
/// static. Any thread, before warp_init() too.
#[unsafe(no_mangle)]
pub extern "C" fn warp_status_get_name(status: warp_status) -> *const c_char {
    if status == WARP_SUCCESS {
        return c"WARP_SUCCESS".as_ptr();
    }
    Status::of(status).map_or(c"WARP_ERROR_UNKNOWN", Status::name).as_ptr()
}
