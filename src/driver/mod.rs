//! The only room that knows CUDA: which file is the driver, its entry points, its codes, and the calls that
//! the concepts make, in their own words. Nothing above this room names a `cu…` function or type.

macro_rules! native_handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub *mut c_void);
        // SAFETY: an opaque token of the driver, which accepts it from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
        impl $name {
            pub const NULL: $name = $name(std::ptr::null_mut());
        }
    };
}

mod code;
mod context;
mod copy;
mod device;
mod graph;
mod kernel;
mod locate;
mod managed;
mod memory;
mod peer;
mod pointer;
mod pool;
mod stream;
mod table;

pub use code::{CAPTURE_INVALIDATED, Failure};
pub use context::{ContextGuard, RelaxedCapture};
pub use copy::{Pitch, Pitched, Place};
pub use device::DeviceFacts;
pub use graph::{CaptureInfo, CaptureMode, Dependency, GraphMemory, RawGraph, RawGraphExec, RawNode};
pub use kernel::Launch;
pub use managed::{Advice, IpcHandle};
pub use memory::FillValue;
pub use pointer::MemoryClass;
pub use pool::{PoolForm, PoolMemory};
pub use stream::CaptureStatus;

use crate::error::{Error, Status};
use std::ffi::{CStr, c_char, c_int, c_void};
use table::Table;

/// The oldest driver that is used: context ids and per-stream ids came with it.
const OLDEST_VERSION: i32 = 12000;

native_handle!(
    /// A context of the driver.
    RawContext
);
native_handle!(
    /// A stream of the driver; NULL, 1 and 2 are its special ones.
    RawStream
);
native_handle!(
    /// An event of the driver.
    RawEvent
);
native_handle!(
    /// A memory pool of the driver.
    RawPool
);

native_handle!(
    /// A program in a context.
    RawModule
);
native_handle!(
    /// A kernel in a context.
    RawFunction
);

impl RawContext {
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl RawPool {
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl RawStream {
    /// The stream that waits for, and is waited on by, every blocking stream of the current context.
    pub const LEGACY: RawStream = RawStream(std::ptr::without_provenance_mut(1));
    /// The calling thread's own default stream.
    pub const PER_THREAD: RawStream = RawStream(std::ptr::without_provenance_mut(2));

    /// The special streams mean another stream in another context or thread.
    pub fn is_special(self) -> bool {
        self.0.addr() <= 2
    }
}

type NameOf = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;

/// A driver that was opened, initialised and found usable. Lives as long as the process.
pub struct Driver {
    table: Table,
    // Outside the table, because cudarc declares them with its enum, and these are asked about codes that
    // the enum does not list.
    error_name: Option<NameOf>,
    error_string: Option<NameOf>,
    version: i32,
    device_count: i32,
    pools: bool,
    graphs: bool,
    /// The first entry point for kernels that is missing.
    no_kernels: Option<&'static str>,
}

impl Driver {
    /// Opens the chosen file and initialises it. On failure the reason, as one sentence for the report.
    pub fn load(path: Option<&CStr>) -> Result<Driver, String> {
        let path = locate::choose(path);
        let file = locate::Opened::open(&path).map_err(|why| format!("CUDA driver not found ({why})"))?;
        let table = Table::fill(|name| file.find(name));
        let shown = path.to_string_lossy();
        let missing = table.missing();
        let lacking: Vec<_> = table::REQUIRED.iter().filter(|name| missing.contains(name)).copied().collect();

        // SAFETY: resolved from the driver by name; both have had this C signature since CUDA 6.
        let name_of = |name| unsafe { std::mem::transmute::<*mut c_void, Option<NameOf>>(file.find(name)) };
        let mut driver = Driver {
            error_name: name_of(c"cuGetErrorName"),
            error_string: name_of(c"cuGetErrorString"),
            pools: !table::POOLS.iter().any(|name| missing.contains(name)),
            no_kernels: table::KERNELS.iter().find(|name| missing.contains(name)).copied(),
            graphs: !table::GRAPHS.iter().any(|name| missing.contains(name)),
            table,
            version: 0,
            device_count: 0,
        };

        // The version may be asked before cuInit, and tells an old driver from one that lacks a name.
        // SAFETY: the out-pointer is valid.
        if unsafe { driver.table.cuDriverGetVersion(&mut driver.version) }.is_ok()
            && (1..OLDEST_VERSION).contains(&driver.version)
        {
            return Err(format!(
                "CUDA driver {} is too old ({} or newer is needed)",
                show_version(driver.version),
                show_version(OLDEST_VERSION)
            ));
        }
        if !lacking.is_empty() {
            return Err(format!("CUDA driver {shown} lacks {}", lacking.join(", ")));
        }
        // SAFETY: flags must be 0.
        match unsafe { driver.table.cuInit(0) } {
            Ok(()) => {}
            Err(f) if f.code == code::STUB_LIBRARY => {
                return Err(format!(
                    "{shown} is the toolkit's stub, not a driver (code 34): install the driver or name its libcuda.so.1"
                ));
            }
            // A driver without a device is whole; there is just nothing to list.
            Err(f) if f.code == code::NO_DEVICE => return Ok(driver),
            Err(f) => return Err(format!("CUDA driver failed to initialize ({})", driver.describe(f))),
        }
        // SAFETY: the out-pointers are valid.
        unsafe {
            driver
                .table
                .cuDriverGetVersion(&mut driver.version)
                .and_then(|()| driver.table.cuDeviceGetCount(&mut driver.device_count))
                .map_err(|f| format!("CUDA driver failed to initialize ({})", driver.describe(f)))?;
        }
        Ok(driver)
    }

    /// Whether the driver has been taken down, as it is late in a process's exit.
    #[cold]
    pub fn is_gone(&self) -> bool {
        self.current_context().is_err_and(|f| f.is_driver_gone())
    }

    /// As the driver counts: 13000 is 13.0.
    pub fn version(&self) -> i32 {
        self.version
    }

    pub fn device_count(&self) -> i32 {
        self.device_count
    }

    /// `CUDA_ERROR_OUT_OF_MEMORY (2) from cuMemAlloc_v2: out of memory`.
    #[cold]
    pub fn describe(&self, failure: Failure) -> String {
        if failure.is_missing() {
            return format!("this driver lacks {}", failure.entry);
        }
        let text = |ask: Option<NameOf>| {
            let mut out: *const c_char = std::ptr::null();
            // SAFETY: the out-pointer is valid; the driver answers with NULL or a static string.
            unsafe {
                ask.filter(|ask| ask(failure.code, &mut out) == 0 && !out.is_null())
                    .map(|_| CStr::from_ptr(out).to_string_lossy())
            }
        };
        match (text(self.error_name), text(self.error_string)) {
            (Some(name), Some(string)) => {
                format!("{name} ({}) from {}: {string}", failure.code, failure.entry)
            }
            _ => format!("code {} from {}", failure.code, failure.entry),
        }
    }

    /// The failure as an error of the library: which status it is, the number, and the driver's own words.
    #[cold]
    pub fn error(&self, failure: Failure) -> Error {
        let status = if failure.is_out_of_memory() {
            Status::OutOfMemory
        } else if failure.is_missing() || failure.code == code::NOT_SUPPORTED {
            Status::NotSupported
        } else if failure.is_capture() {
            Status::IllegalInCapture
        } else if failure.is_context_gone() || failure.is_sticky() {
            Status::DeviceLost
        } else {
            Status::DriverError
        };
        let number = if failure.is_missing() { 0 } else { failure.code };
        let mut error = Error::new(status, self.describe(failure)).with_driver_code(number);
        if failure.is_not_permitted() {
            error.message.push_str(
                "; so the driver answers in a host function of a stream, where it serves nobody: call from another thread",
            );
        }
        error
    }
}

/// `13000` as `13.0`.
pub fn show_version(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The driver's int answer to a yes-or-no question.
fn truth(value: c_int) -> bool {
    value > 0
}
