//! What can go wrong, as the concepts say it: a status, the driver's own code where there was one, and a
//! sentence that names the way out. The C face (`ffi::status`) turns this into a code and a record.

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
