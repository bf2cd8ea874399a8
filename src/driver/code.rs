//! Driver codes as numbers, and what they mean to us. A code this file does not know stays a number.

/// A call of the driver that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub entry: &'static str,
    pub code: u32,
}

pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const NOT_INITIALIZED: u32 = 3;
pub const DEINITIALIZED: u32 = 4;
pub const STUB_LIBRARY: u32 = 34;
pub const NO_DEVICE: u32 = 100;
pub const INVALID_CONTEXT: u32 = 201;
pub const PEER_ACCESS_UNSUPPORTED: u32 = 217;
pub const INVALID_HANDLE: u32 = 400;
pub const NOT_FOUND: u32 = 500;
pub const NOT_READY: u32 = 600;
pub const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
pub const PEER_ACCESS_NOT_ENABLED: u32 = 705;
pub const CONTEXT_IS_DESTROYED: u32 = 709;
pub const TOO_MANY_PEERS: u32 = 711;
pub const NOT_PERMITTED: u32 = 800;
pub const NOT_SUPPORTED: u32 = 801;
/// First and last of the codes that a kernel's fault leaves in its context for good.
const STICKY: [u32; 8] = [214, 700, 702, 710, 714, 715, 717, 719];
/// The program is not for this driver or GPU, there is no compiler for it or that is not to be used, or a name is not found.
const NO_PROGRAM: [u32; 7] = [200, 209, 218, 221, 222, 223, NOT_FOUND];
const CAPTURE_CODES: std::ops::RangeInclusive<u32> = 900..=908;
/// What every call on the streams of a capture answers once it is broken.
pub const CAPTURE_INVALIDATED: u32 = 901;

/// Not a driver code: the driver's file lacks the entry point.
const MISSING: u32 = u32::MAX;

impl Failure {
    #[cold]
    pub fn code(entry: &'static str, code: u32) -> Failure {
        Failure { entry, code }
    }

    #[cold]
    pub fn missing(entry: &'static str) -> Failure {
        Failure { entry, code: MISSING }
    }

    pub fn is_missing(&self) -> bool {
        self.code == MISSING
    }

    pub fn is_not_supported(&self) -> bool {
        self.code == NOT_SUPPORTED
    }

    /// The driver will never run the program.
    pub fn is_program_refused(&self) -> bool {
        NO_PROGRAM.contains(&self.code) || self.is_not_supported() || self.is_missing()
    }

    /// The calling thread is in the middle of a callback of the driver.
    pub fn is_not_permitted(&self) -> bool {
        self.code == NOT_PERMITTED
    }

    /// What was asked for by its name is not there.
    pub fn is_not_found(&self) -> bool {
        self.code == NOT_FOUND
    }

    pub fn is_out_of_memory(&self) -> bool {
        self.code == OUT_OF_MEMORY
    }

    pub fn is_invalid_value(&self) -> bool {
        self.code == INVALID_VALUE
    }

    pub fn is_invalid_handle(&self) -> bool {
        self.code == INVALID_HANDLE
    }

    /// The two contexts can never be peers, as those of one GPU.
    pub fn is_peer_unsupported(&self) -> bool {
        self.code == PEER_ACCESS_UNSUPPORTED
    }

    pub fn is_peer_enabled_already(&self) -> bool {
        self.code == PEER_ACCESS_ALREADY_ENABLED
    }

    pub fn is_peer_not_enabled(&self) -> bool {
        self.code == PEER_ACCESS_NOT_ENABLED
    }

    /// A GPU has as many peers as it can have, those of other libraries included.
    pub fn is_peer_limit(&self) -> bool {
        self.code == TOO_MANY_PEERS
    }

    pub fn is_not_ready(&self) -> bool {
        self.code == NOT_READY
    }

    /// The whole driver is gone: at exit, or before `cuInit` in a forked child.
    pub fn is_driver_gone(&self) -> bool {
        matches!(self.code, DEINITIALIZED | NOT_INITIALIZED)
    }

    /// The context named by the call is no longer there. Its streams, events and plain memory went with it.
    pub fn is_context_gone(&self) -> bool {
        self.code == CONTEXT_IS_DESTROYED || self.is_driver_gone()
    }

    /// The context is no context (any more), or there is none current.
    pub fn is_invalid_context(&self) -> bool {
        self.code == INVALID_CONTEXT
    }

    /// A kernel faulted in the context: every later call there fails the same way.
    pub fn is_sticky(&self) -> bool {
        STICKY.contains(&self.code)
    }

    pub fn is_capture(&self) -> bool {
        CAPTURE_CODES.contains(&self.code)
    }
}
