//! The devices: the CPU, each GPU by its primary context, and foreign contexts that were registered. A device
//! is a GPU and a context; when the context dies, so does the device.

mod choice;
mod mempools;
mod overlay;
mod table;

pub use choice::{choice_of_thread, default_device, for_thread, restore_choice, set_default, set_for_thread};
pub use mempools::{mempool_override, override_mempool};
pub use overlay::Overlay;
pub use table::{
    PerDevice, all, at, build, by_alias, contexts_of, cuda_count, dismantle, ever_made, from_context,
    from_handle, heirs_of, mend_in_child, of_context, primary_of, remove,
};

pub use crate::driver::RawContext;

use crate::driver::{ContextGuard, DeviceFacts, Driver, Failure, RelaxedCapture};
use crate::error::{Error, Result, error, fail};
use crate::handle::{Handle, Tag, encode};
use crate::lock::Mutex;
use crate::log::log;
use crate::runtime;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// One device. Never freed: records and calls refer to it for as long as the process lives. What every call looks at is
/// in its first cache line.
#[repr(C, align(64))]
pub struct Device {
    context: AtomicPtr<std::ffi::c_void>,
    context_id: AtomicU64,
    /// Of this life of the table.
    handle: AtomicU64,
    index: u16,
    /// The index of the first device that it took the place of, its own when it took none.
    lineage: u16,
    cuda: bool,
    /// Registered from a context that somebody else owns.
    foreign: bool,
    /// Whether its handle is good.
    live: AtomicBool,
    /// Its context died: what was allocated there is gone.
    lost: AtomicBool,
    mempool_enabled: AtomicBool,
    // What a call needs only when something is to be set up or told.
    acquiring: Mutex<()>,
    alias: String,
    facts: DeviceFacts,
}

static LOSSES: AtomicU64 = AtomicU64::new(0);

/// How many devices were lost so far, for who has to look after what they took along.
#[inline]
pub fn losses() -> u64 {
    LOSSES.load(Ordering::Acquire)
}

impl Device {
    fn new(index: u16, alias: String, facts: DeviceFacts, cuda: bool) -> Device {
        let mempool_enabled = cuda && facts.memory_pools && runtime::mempools_at_init();
        Device {
            index,
            lineage: index,
            alias,
            facts,
            cuda,
            foreign: false,
            live: AtomicBool::new(true),
            handle: AtomicU64::new(encode(Tag::Device, u32::from(index), table::life())),
            lost: AtomicBool::new(false),
            context: AtomicPtr::new(std::ptr::null_mut()),
            context_id: AtomicU64::new(0),
            acquiring: Mutex::new(()),
            mempool_enabled: AtomicBool::new(mempool_enabled),
        }
    }

    /// The number that records carry; never given to another device of this process.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// What it has in common with the devices that took its place when contexts died.
    pub fn lineage(&self) -> u16 {
        self.lineage
    }

    pub fn handle(&self) -> Handle {
        self.handle.load(Ordering::Acquire)
    }

    /// A later life of the library takes it up again, under a new handle.
    fn begin_life(&self) {
        self.mempool_enabled
            .store(self.cuda && self.facts.memory_pools && runtime::mempools_at_init(), Ordering::Relaxed);
        let handle = encode(Tag::Device, u32::from(self.index), table::life());
        self.handle.store(handle, Ordering::Release);
        self.live.store(true, Ordering::Release);
    }

    pub fn alias(&self) -> &str {
        &self.alias
    }

    /// The GPU's number, -1 for the CPU.
    pub fn ordinal(&self) -> i32 {
        if self.cuda { self.facts.ordinal } else { -1 }
    }

    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    pub fn is_cuda(&self) -> bool {
        self.cuda
    }

    /// Whether it stands for its GPU's primary context.
    pub fn is_primary(&self) -> bool {
        self.cuda && !self.foreign
    }

    pub fn is_foreign(&self) -> bool {
        self.foreign
    }

    pub fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// An error when its context is gone, also when nobody has noticed. It need not have one.
    pub fn require_present(&self) -> Result<()> {
        if self.is_lost() {
            return Err(self.lost_error());
        }
        if self.has_context()
            && let Ok(driver) = runtime::driver()
        {
            self.context(driver)?;
        }
        Ok(())
    }

    /// Whether the GPU's work in other processes can be waited for; unknown never happens on Linux.
    pub fn ipc_supported(&self) -> bool {
        self.cuda && !self.facts.integrated && self.facts.ipc_events
    }

    /// An error unless this is a GPU that may be used now; `what` says what was asked of it.
    #[inline]
    pub fn require_cuda(&self, what: &str) -> Result<&'static Driver> {
        if !self.cuda {
            fail!(InvalidArgument, "{what} needs a CUDA device, and \"{}\" is the CPU", self.alias);
        }
        if self.is_lost() {
            return Err(self.lost_error());
        }
        runtime::driver()
    }

    #[cold]
    pub fn lost_error(&self) -> Error {
        error!(
            DeviceLost,
            "device \"{}\" is lost: its context was destroyed or reset by other code, and what was allocated there with it; get the device again with warp_device_get",
            self.alias
        )
    }

    /// Whether somebody has made this device's context through us.
    pub fn has_context(&self) -> bool {
        !self.context.load(Ordering::Acquire).is_null()
    }

    /// The context as it was found last, NULL before there is one.
    #[inline]
    pub fn context_if_any(&self) -> RawContext {
        RawContext(self.context.load(Ordering::Acquire))
    }

    /// The context's id, 0 before there is one.
    pub fn context_id(&self) -> u64 {
        self.context_id.load(Ordering::Acquire)
    }

    /// The device's context; the primary one is retained at the first call. An error when it died behind the
    /// library's back: its streams went with it, and the driver crashes on them once the GPU has another context.
    /// The handle alone does not tell, since that one may get the same.
    #[inline]
    pub fn context(&self, driver: &Driver) -> Result<RawContext> {
        let context = RawContext(self.context.load(Ordering::Acquire));
        if context.is_null() {
            return self.acquire_context(driver);
        }
        match driver.context_id(context) {
            Ok(id) if id == self.context_id() => Ok(context),
            answer => Err(self.context_is_gone(driver, answer)),
        }
    }

    #[cold]
    fn context_is_gone(&self, driver: &Driver, answer: std::result::Result<u64, Failure>) -> Error {
        match answer {
            Err(f) if f.is_driver_gone() || !(f.is_context_gone() || f.is_invalid_context()) => {
                driver.error(f).context(format_args!("on \"{}\"", self.alias))
            }
            Err(f) => {
                self.lose();
                self.lost_error().with_driver_code(f.code)
            }
            Ok(_) => {
                self.lose();
                self.lost_error()
            }
        }
    }

    /// From now on the device is lost, and its GPU gets a fresh one.
    fn lose(&self) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            LOSSES.fetch_add(1, Ordering::AcqRel);
            table::replace_lost(self);
            crate::moment::passed();
            // After that: a callback which asks for the device by its name gets the fresh one.
            log!(Warning, "device \"{}\" is lost: its context is gone", self.alias);
        }
    }

    /// Whether its context, if it has one, is still the one that it was made with.
    fn is_whole(&self, driver: &Driver) -> bool {
        !self.has_context() || self.context(driver).is_ok() || !self.is_lost()
    }

    #[cold]
    fn acquire_context(&self, driver: &Driver) -> Result<RawContext> {
        let _one = self.acquiring.lock();
        let context = RawContext(self.context.load(Ordering::Acquire));
        if !context.is_null() {
            return Ok(context);
        }
        let context = driver
            .retain_primary_context(self.facts.device)
            .map_err(|f| driver.error(f).context(format_args!("the context of \"{}\"", self.alias)))?;
        let id = match driver.context_id(context) {
            Ok(id) => id,
            Err(f) => {
                let _ = driver.release_primary_context(self.facts.device);
                return Err(driver.error(f));
            }
        };
        self.context_id.store(id, Ordering::Release);
        self.context.store(context.0, Ordering::Release);
        Ok(context)
    }

    /// Makes the device's context current until the guard goes.
    #[inline]
    pub fn enter(&self, driver: &'static Driver) -> Result<ContextGuard<'static>> {
        let context = self.context(driver)?;
        driver.enter(context).map_err(|f| self.error(driver, f))
    }

    /// As `enter`, and the thread's capture mode is relaxed until then too.
    #[inline]
    pub fn enter_relaxed(
        &self,
        driver: &'static Driver,
    ) -> Result<(RelaxedCapture<'static>, ContextGuard<'static>)> {
        let context = self.enter(driver)?;
        let relaxed = driver.relax_capture().map_err(|f| self.error(driver, f))?;
        // The mode is put back first.
        Ok((relaxed, context))
    }

    /// A failure of a call on this device, as an error; notices when it means that the device is lost.
    #[cold]
    pub fn error(&self, driver: &Driver, failure: Failure) -> Error {
        if self.notice(driver, failure) {
            return self.lost_error().with_driver_code(failure.code);
        }
        driver.error(failure).context(format_args!("on \"{}\"", self.alias))
    }

    /// Whether the failure came of the context's death; then the device is lost from now on.
    #[cold]
    pub fn notice(&self, driver: &Driver, failure: Failure) -> bool {
        if self.is_lost() {
            return true;
        }
        // Other calls fail with a destroyed context in their arguments; ask about our own.
        if (failure.is_context_gone() || failure.is_invalid_context()) && self.has_context() {
            let _ = self.context(driver);
        }
        self.is_lost()
    }

    /// Free and total memory in bytes. A GPU whose context nobody uses is given one for the question only.
    pub fn memory_info(&self) -> Result<(u64, u64)> {
        if !self.cuda {
            return Ok(table::host_memory());
        }
        let driver = self.require_cuda("memory information")?;
        if self.has_context() {
            let _context = self.enter(driver)?;
            return driver.memory_info().map_err(|f| self.error(driver, f));
        }
        let context = driver
            .retain_primary_context(self.facts.device)
            .map_err(|f| driver.error(f).context(format_args!("the context of \"{}\"", self.alias)))?;
        let answer = driver.enter(context).and_then(|_current| driver.memory_info());
        let _ = driver.release_primary_context(self.facts.device);
        answer.map_err(|f| self.error(driver, f))
    }
}
