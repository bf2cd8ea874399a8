//! The life of the library in a process: initialised or not, shut down, forked, at exit; and the one driver
//! file that was opened, or the reason why there is none.

use crate::driver::Driver;
use crate::error::{Result, fail};
use parking_lot::Mutex;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

const NEVER: u8 = 0;
const LIVE: u8 = 1;
const SHUT_DOWN: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NEVER);
static INITS: AtomicU32 = AtomicU32::new(0);
static TRANSITION: Mutex<()> = Mutex::new(());
static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(std::ptr::null_mut());
static REASON: Mutex<String> = Mutex::new(String::new());
static MEMPOOLS_AT_INIT: AtomicBool = AtomicBool::new(true);
static EXITING: AtomicBool = AtomicBool::new(false);

/// What a call has to look at before anything else. On a page that the kernel wipes in a forked child, so that
/// there everything is shut and the slow path finds out why.
#[repr(C)]
struct Gate {
    /// 1 in the process that initialised.
    owner: AtomicU8,
    /// 1 while the library is initialised and the process not exiting.
    open: AtomicU8,
    /// 1 since the first init, until the process exits.
    freeing: AtomicU8,
    /// The driver while there are GPUs to use, until the process exits.
    driver: AtomicPtr<Driver>,
}

static GATE: AtomicPtr<Gate> = AtomicPtr::new(std::ptr::null_mut());

#[inline(always)]
fn gate() -> Option<&'static Gate> {
    // SAFETY: set once, to a page that is mapped for good; zeroed bytes are a gate.
    unsafe { GATE.load(Ordering::Acquire).as_ref() }
}

/// Sets the gate to what holds now.
fn set_gate() {
    let Some(gate) = gate() else { return };
    let exiting = is_exiting();
    let state = STATE.load(Ordering::Acquire);
    // SAFETY: set once to a leaked box.
    let usable =
        unsafe { DRIVER.load(Ordering::Acquire).as_ref() }.filter(|driver| driver.device_count() > 0);
    let driver = usable
        .filter(|_| !exiting)
        .map_or(std::ptr::null_mut(), |driver| std::ptr::from_ref(driver).cast_mut());
    gate.driver.store(driver, Ordering::Release);
    gate.open.store(u8::from(state == LIVE && !exiting), Ordering::Release);
    gate.freeing.store(u8::from(state != NEVER && !exiting), Ordering::Release);
}

/// The process that initialised, for kernels that cannot wipe a page on fork.
static OWNER_PID: AtomicU32 = AtomicU32::new(0);

/// What the first init may choose.
#[derive(Debug, Default)]
pub struct Options<'a> {
    pub driver_path: Option<&'a CStr>,
    pub no_cuda: bool,
    pub no_mempools: bool,
}

/// Counts an init. True when it was not the first, so that its options had no effect.
pub fn init(options: &Options<'_>, build_tables: impl FnOnce()) -> Result<bool> {
    if EXITING.load(Ordering::Relaxed) {
        fail!(ShutDown, "the process is exiting; warpmem cannot be initialised any more");
    }
    if is_forked() {
        // What the parent had is inherited: the CPU goes on working, the driver cannot be used again.
        INITS.fetch_add(1, Ordering::AcqRel);
        STATE.store(LIVE, Ordering::Release);
        return Ok(true);
    }
    let _transition = TRANSITION.lock();
    if INITS.fetch_add(1, Ordering::AcqRel) > 0 {
        return Ok(true);
    }
    claim_process();
    MEMPOOLS_AT_INIT.store(!options.no_mempools && crate::config::mempools_at_init(), Ordering::Relaxed);
    open_driver(options);
    watch_exit();
    build_tables();
    STATE.store(LIVE, Ordering::Release);
    set_gate();
    Ok(false)
}

fn open_driver(options: &Options<'_>) {
    // One driver file a process: the one that a former life opened is still there and is used again.
    if !DRIVER.load(Ordering::Acquire).is_null() {
        return;
    }
    if options.no_cuda {
        *REASON.lock() = "CUDA not used, as the init options ask".into();
        return;
    }
    match Driver::load(options.driver_path) {
        Ok(driver) => {
            if driver.device_count() == 0 {
                *REASON.lock() = "CUDA devices not available".into();
            }
            DRIVER.store(Box::into_raw(Box::new(driver)), Ordering::Release);
        }
        Err(reason) => *REASON.lock() = reason,
    }
}

/// Counts a shutdown. `dismantle` runs with the last one.
pub fn shutdown(dismantle: impl FnOnce()) -> Result<()> {
    if is_forked() || EXITING.load(Ordering::Relaxed) {
        INITS.store(INITS.load(Ordering::Acquire).saturating_sub(1), Ordering::Release);
        return Ok(());
    }
    let _transition = TRANSITION.lock();
    match INITS.load(Ordering::Acquire) {
        0 if STATE.load(Ordering::Acquire) == NEVER => {
            fail!(NotInitialized, "warp_shutdown without warp_init")
        }
        // Shutting down twice is what orderly clean-up code does.
        0 => return Ok(()),
        1 => {
            STATE.store(SHUT_DOWN, Ordering::Release);
            set_gate();
            dismantle();
        }
        _ => {}
    }
    INITS.fetch_sub(1, Ordering::AcqRel);
    Ok(())
}

fn claim_process() {
    OWNER_PID.store(std::process::id(), Ordering::Relaxed);
    if gate().is_some() {
        return;
    }
    // SAFETY: a fresh anonymous page that nobody else has; wiping it on fork touches nothing else.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            1,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page != libc::MAP_FAILED {
            if libc::madvise(page, 1, libc::MADV_WIPEONFORK) == 0 {
                let gate = page.cast::<Gate>();
                (*gate).owner.store(1, Ordering::Relaxed);
                GATE.store(gate, Ordering::Release);
            } else {
                libc::munmap(page, 1);
            }
        }
    }
}

/// Handlers run in the reverse order of their registration: registered after `cuInit`, ours runs before the
/// driver's own and no call of ours meets a driver half taken down.
fn watch_exit() {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    if !WATCHING.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler only sets a flag, and the library is never unmapped.
        unsafe { libc::atexit(exiting) };
    }
}

extern "C" fn exiting() {
    EXITING.store(true, Ordering::SeqCst);
    if !is_forked() {
        set_gate();
    }
}

/// Whether this process is a fork of the one that initialised.
#[inline]
pub fn is_forked() -> bool {
    if let Some(gate) = gate() {
        return gate.owner.load(Ordering::Relaxed) == 0;
    }
    let owner = OWNER_PID.load(Ordering::Relaxed);
    owner != 0 && owner != std::process::id()
}

/// Whether the process has begun to exit: nothing is done any more, and frees say that it is fine.
#[inline]
pub fn is_exiting() -> bool {
    EXITING.load(Ordering::Relaxed)
}

/// An error unless the library is initialised.
#[inline]
pub fn require_live() -> Result<()> {
    if gate().is_some_and(|gate| gate.open.load(Ordering::Acquire) == 1) {
        Ok(())
    } else {
        require_live_slowly()
    }
}

#[cold]
fn require_live_slowly() -> Result<()> {
    if STATE.load(Ordering::Acquire) == LIVE && !is_exiting() { Ok(()) } else { Err(not_live()) }
}

/// Like `require_live`, for what stays possible after shutdown: freeing.
#[inline]
pub fn require_once_live() -> Result<()> {
    if STATE.load(Ordering::Acquire) != NEVER { Ok(()) } else { Err(not_live()) }
}

#[cold]
fn not_live() -> crate::error::Error {
    use crate::error::error;
    if is_exiting() {
        error!(ShutDown, "the process is exiting; nothing new can be done")
    } else if STATE.load(Ordering::Acquire) == SHUT_DOWN {
        error!(ShutDown, "warpmem was shut down; call warp_init to use it again")
    } else {
        error!(NotInitialized, "warpmem is not initialised; call warp_init first")
    }
}

/// Whether a free finds everything in its ordinary state: initialised once, not forked, not exiting.
#[inline]
pub fn frees_as_usual() -> bool {
    gate().is_some_and(|gate| gate.freeing.load(Ordering::Acquire) == 1)
}

/// The driver, for a call that is about to use it.
#[inline]
pub fn driver() -> Result<&'static Driver> {
    // SAFETY: NULL or a leaked box.
    match gate().and_then(|gate| unsafe { gate.driver.load(Ordering::Acquire).as_ref() }) {
        Some(driver) => Ok(driver),
        None => driver_slowly(),
    }
}

#[cold]
fn driver_slowly() -> Result<&'static Driver> {
    let driver = DRIVER.load(Ordering::Acquire);
    // SAFETY: set once to a leaked box.
    match unsafe { driver.as_ref() } {
        Some(driver) if driver.device_count() > 0 && !is_forked() && !is_exiting() => Ok(driver),
        driver => Err(no_driver(driver.is_none_or(|driver| driver.device_count() == 0))),
    }
}

#[cold]
fn no_driver(absent: bool) -> crate::error::Error {
    use crate::error::error;
    if is_exiting() {
        error!(ShutDown, "the process is exiting; no GPU call is made any more")
    } else if absent {
        error!(NoSuchDevice, "there is no usable GPU: {}", reason())
    } else {
        error!(
            Forked,
            "this process was forked after warpmem was initialised; CUDA cannot be used in it: start workers with spawn, or initialise after the fork"
        )
    }
}

/// The driver if one was opened, usable or not.
pub fn opened_driver() -> Option<&'static Driver> {
    // SAFETY: set once to a leaked box.
    unsafe { DRIVER.load(Ordering::Acquire).as_ref() }
}

/// Why there is no usable GPU; empty when there is one.
pub fn reason() -> String {
    REASON.lock().clone()
}

/// Whether pools start enabled on devices that have them.
pub fn mempools_at_init() -> bool {
    MEMPOOLS_AT_INIT.load(Ordering::Relaxed)
}
