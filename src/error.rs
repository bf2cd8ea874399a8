//! What can go wrong, as the concepts say it: a status, the driver's own code where there was one, and a
//! sentence that names the way out. The C face (`ffi::status`) turns this into a code and a record.

use std::cell::Cell;
use std::ffi::CStr;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Every kind of failure. The numbers are part of the ABI: never renumbered, retired ones never reused.
/// 1–99 the caller's doing, 100–199 the machine's, 200–299 the driver's, 900 ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    NotInitialized = 1,
    ShutDown = 2,
    InvalidArgument = 3,
    InvalidHandle = 4,
    NoSuchDevice = 5,
    SizeOverflow = 6,
    BadAlignment = 7,
    UnknownPointer = 8,
    InteriorPointer = 9,
    DoubleFree = 10,
    SizeMismatch = 11,
    AccessDenied = 12,
    IllegalInCapture = 13,
    PeerLimit = 14,
    ScopeOrder = 15,
    Busy = 16,
    Forked = 17,
    NotSupported = 100,
    OutOfMemory = 101,
    DeviceLost = 102,
    AllocatorFailed = 103,
    DriverError = 200,
    Internal = 900,
}

impl Status {
    /// All of them, for the tables and tests that must not miss one.
    pub const ALL: [Status; 23] = [
        Status::NotInitialized,
        Status::ShutDown,
        Status::InvalidArgument,
        Status::InvalidHandle,
        Status::NoSuchDevice,
        Status::SizeOverflow,
        Status::BadAlignment,
        Status::UnknownPointer,
        Status::InteriorPointer,
        Status::DoubleFree,
        Status::SizeMismatch,
        Status::AccessDenied,
        Status::IllegalInCapture,
        Status::PeerLimit,
        Status::ScopeOrder,
        Status::Busy,
        Status::Forked,
        Status::NotSupported,
        Status::OutOfMemory,
        Status::DeviceLost,
        Status::AllocatorFailed,
        Status::DriverError,
        Status::Internal,
    ];

    /// The name of its constant, as users know it.
    pub fn name(self) -> &'static CStr {
        match self {
            Status::NotInitialized => c"WARP_ERROR_NOT_INITIALIZED",
            Status::ShutDown => c"WARP_ERROR_SHUT_DOWN",
            Status::InvalidArgument => c"WARP_ERROR_INVALID_ARGUMENT",
            Status::InvalidHandle => c"WARP_ERROR_INVALID_HANDLE",
            Status::NoSuchDevice => c"WARP_ERROR_NO_SUCH_DEVICE",
            Status::SizeOverflow => c"WARP_ERROR_SIZE_OVERFLOW",
            Status::BadAlignment => c"WARP_ERROR_BAD_ALIGNMENT",
            Status::UnknownPointer => c"WARP_ERROR_UNKNOWN_POINTER",
            Status::InteriorPointer => c"WARP_ERROR_INTERIOR_POINTER",
            Status::DoubleFree => c"WARP_ERROR_DOUBLE_FREE",
            Status::SizeMismatch => c"WARP_ERROR_SIZE_MISMATCH",
            Status::AccessDenied => c"WARP_ERROR_ACCESS_DENIED",
            Status::IllegalInCapture => c"WARP_ERROR_ILLEGAL_IN_CAPTURE",
            Status::PeerLimit => c"WARP_ERROR_PEER_LIMIT",
            Status::ScopeOrder => c"WARP_ERROR_SCOPE_ORDER",
            Status::Busy => c"WARP_ERROR_BUSY",
            Status::Forked => c"WARP_ERROR_FORKED",
            Status::NotSupported => c"WARP_ERROR_NOT_SUPPORTED",
            Status::OutOfMemory => c"WARP_ERROR_OUT_OF_MEMORY",
            Status::DeviceLost => c"WARP_ERROR_DEVICE_LOST",
            Status::AllocatorFailed => c"WARP_ERROR_ALLOCATOR_FAILED",
            Status::DriverError => c"WARP_ERROR_DRIVER",
            Status::Internal => c"WARP_ERROR_INTERNAL",
        }
    }

    /// The status that has the number.
    pub fn of(number: i32) -> Option<Status> {
        Status::ALL.into_iter().find(|status| *status as i32 == number)
    }
}

/// A failure on its way up. Made only when something failed, so it may allocate; one word, so that what did not fail goes up in
/// registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Details>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Details {
    pub status: Status,
    /// The driver's `CUresult`, 0 where the driver was not involved.
    pub driver_code: u32,
    pub message: String,
}

impl Deref for Error {
    type Target = Details;
    fn deref(&self) -> &Details {
        &self.0
    }
}

impl DerefMut for Error {
    fn deref_mut(&mut self) -> &mut Details {
        &mut self.0
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

thread_local! {
    // No destructor, as for the record itself.
    static KEPT: Cell<u64> = const { Cell::new(0) };
}

/// How many failures were kept for this thread: whether there was one in between.
#[inline]
pub fn kept() -> u64 {
    KEPT.get()
}

/// One more was kept, by the C face.
pub fn count_kept() {
    KEPT.set(KEPT.get() + 1);
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    #[cold]
    pub fn new(status: Status, message: impl Into<String>) -> Error {
        Error(Box::new(Details { status, driver_code: 0, message: message.into() }))
    }

    #[cold]
    pub fn with_driver_code(mut self, code: u32) -> Error {
        self.driver_code = code;
        self
    }

    /// Puts what was being attempted in front of what went wrong.
    #[cold]
    pub fn context(mut self, what: impl fmt::Display) -> Error {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

/// `fail!(InvalidArgument, "…", …)` leaves the function with that error.
macro_rules! fail {
    ($status:ident, $($message:tt)*) => {
        return Err($crate::error::Error::new($crate::error::Status::$status, format!($($message)*)))
    };
}
pub(crate) use fail;

/// `error!(InvalidArgument, "…", …)` is that error as a value.
macro_rules! error {
    ($status:ident, $($message:tt)*) => {
        $crate::error::Error::new($crate::error::Status::$status, format!($($message)*))
    };
}
pub(crate) use error;
