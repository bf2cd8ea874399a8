//! The life of the library in a process: initialised or not, shut down, forked, at exit; and the one driver
//! file that was opened, or the reason why there is none.

use crate::driver::{Driver, show_version};
use crate::error::{Result, fail};
use crate::fork::Lock;
use crate::log;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};

const NEVER: u8 = 0;
const LIVE: u8 = 1;
const SHUT_DOWN: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NEVER);
static INITS: AtomicU32 = AtomicU32::new(0);
static TRANSITION: Lock<()> = Lock::new(());
static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(std::ptr::null_mut());
/// Whether this life of the library uses the GPUs of the driver.
static GPUS: AtomicBool = AtomicBool::new(false);
/// Why there are none; null for no reason.
static REASON: AtomicPtr<Reason> = AtomicPtr::new(std::ptr::null_mut());

/// Never freed: a former one may be being read. Each keeps hold of the one before it, so that none looks lost.
struct Reason {
    text: String,
    _former: *mut Reason,
}
static MEMPOOLS_AT_INIT: AtomicBool = AtomicBool::new(true);
static EXITING: AtomicBool = AtomicBool::new(false);
/// The process that initialised, for kernels that cannot wipe a page on fork.
static OWNER_PID: AtomicU32 = AtomicU32::new(0);
/// What puts the rooms above right in a forked child: a `fn()`, 0 before the first init.
static MEND: AtomicUsize = AtomicUsize::new(0);

/// What the byte of the owner's page says; a wiped one is 0: a child that nobody has looked after yet.
const FORKED: u8 = 0;
const OWNER: u8 = 1;
const MENDING: u8 = 2;
const MENDED: u8 = 3;

/// What a call looks at before anything else. On a page that the kernel wipes in a forked child: there all of it
/// is shut, and the slow path finds out why.
#[repr(C)]
struct Gate {
    /// `OWNER` in the process that initialised.
    mark: AtomicU8,
    /// 1 while the library is initialised and the process not exiting.
    open: AtomicU8,
    /// 1 from the first init until the process exits.
    freeing: AtomicU8,
    /// The driver, if it has GPUs, until the process exits.
    driver: AtomicPtr<Driver>,
}

static GATE: AtomicPtr<Gate> = AtomicPtr::new(std::ptr::null_mut());

#[inline(always)]
fn gate() -> Option<&'static Gate> {
    // SAFETY: NULL, or a page that is mapped for good; zeroed bytes are a gate.
    unsafe { GATE.load(Ordering::Acquire).as_ref() }
}

/// Opens and shuts the gate by what holds now.
fn set_gate() {
    let Some(gate) = gate().filter(|gate| gate.mark.load(Ordering::Acquire) == OWNER) else { return };
    loop {
        let (exiting, state) = (is_exiting(), STATE.load(Ordering::Acquire));
        let usable = opened_driver().filter(|driver| driver.device_count() > 0 && !exiting);
        let driver = usable.map_or(std::ptr::null_mut(), |driver| std::ptr::from_ref(driver).cast_mut());
        gate.driver.store(driver, Ordering::Release);
        gate.open.store(u8::from(state == LIVE && !exiting), Ordering::Release);
        gate.freeing.store(u8::from(state != NEVER && !exiting), Ordering::Release);
        // An exit that began meanwhile has shut it, and it was opened again just now.
        fence(Ordering::SeqCst);
        if is_exiting() == exiting {
            return;
        }
    }
}

/// What the first init may choose.
#[derive(Debug, Default)]
pub struct Options<'a> {
    pub driver_path: Option<&'a CStr>,
    pub no_cuda: bool,
    pub no_mempools: bool,
}

/// What the rooms above do when a life begins, and in the child of a fork.
pub struct Hooks<F> {
    /// Runs with the first init of a life.
    pub build_tables: F,
    /// Runs once in a forked child, before anything else there, while nobody else is inside the library. It must
    /// not ask whether the process was forked.
    pub mend_in_child: fn(),
}

/// Counts an init. True when it was not the first, so that its options had no effect.
pub fn init(options: &Options<'_>, hooks: Hooks<impl FnOnce()>) -> Result<bool> {
    if EXITING.load(Ordering::Relaxed) {
        fail!(ShutDown, "the process is exiting; warpmem cannot be initialised any more");
    }
    let forked = is_forked();
    // Messages come when the lock is free, since their receiver may call back in.
    log::after(|| {
        let _transition = TRANSITION.write();
        let before = INITS.load(Ordering::Acquire);
        if before > 0 {
            // A forked child inherits its parent's life: the CPU goes on working, the driver cannot be used again.
            INITS.store(before.saturating_add(1), Ordering::Release);
            return Ok(true);
        }
        MEND.store(hooks.mend_in_child as usize, Ordering::Release);
        if !forked {
            claim_process();
        }
        MEMPOOLS_AT_INIT.store(!options.no_mempools && crate::config::mempools_at_init(), Ordering::Relaxed);
        if !forked || options.no_cuda {
            choose_gpus(options);
        }
        watch_exit();
        (hooks.build_tables)();
        STATE.store(LIVE, Ordering::Release);
        INITS.store(1, Ordering::Release);
        set_gate();
        Ok(false)
    })
}

/// Finds out whether there are GPUs to use in this life, and else why not.
fn choose_gpus(options: &Options<'_>) {
    let found = if options.no_cuda {
        Err("CUDA not used, as the init options ask".into())
    } else {
        open_driver(options)
            .and_then(|driver| if driver.device_count() > 0 { Ok(()) } else { Err(no_devices()) })
    };
    GPUS.store(found.is_ok(), Ordering::Release);
    give_reason(found.err().unwrap_or_default());
}

fn open_driver(options: &Options<'_>) -> std::result::Result<&'static Driver, String> {
    // One driver file a process: the one that a former life opened is still there and is used again.
    if let Some(driver) = opened_driver() {
        return Ok(driver);
    }
    let driver: &'static Driver = Box::leak(Box::new(Driver::load(options.driver_path)?));
    DRIVER.store(std::ptr::from_ref(driver).cast_mut(), Ordering::Release);
    Ok(driver)
}

fn no_devices() -> String {
    match opened_driver().map_or(0, Driver::version) {
        0 => "CUDA devices not available".into(),
        version => format!("CUDA devices not available (Driver {})", show_version(version)),
    }
}

/// None of the driver's devices could be described: this life has no GPUs.
pub fn give_up_gpus() {
    GPUS.store(false, Ordering::Release);
    give_reason(no_devices());
}

fn give_reason(text: String) {
    // There are as many as lives that began differently from the one before.
    if text != reason() {
        let former = REASON.load(Ordering::Acquire);
        REASON.store(Box::into_raw(Box::new(Reason { text, _former: former })), Ordering::Release);
    }
}

/// Counts a shutdown. `dismantle` runs with the last one.
pub fn shutdown(dismantle: impl FnOnce()) -> Result<()> {
    is_forked();
    log::after(|| {
        let _transition = TRANSITION.write();
        match INITS.load(Ordering::Acquire) {
            0 if STATE.load(Ordering::Acquire) == NEVER => {
                fail!(NotInitialized, "warp_shutdown without warp_init")
            }
            // Shutting down twice is what orderly clean-up code does.
            0 => {}
            // Whatever is still there ends with the process.
            before if EXITING.load(Ordering::Relaxed) => INITS.store(before - 1, Ordering::Release),
            1 => {
                STATE.store(SHUT_DOWN, Ordering::Release);
                INITS.store(0, Ordering::Release);
                set_gate();
                dismantle();
            }
            before => INITS.store(before - 1, Ordering::Release),
        }
        Ok(())
    })
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
                (*gate).mark.store(OWNER, Ordering::Relaxed);
                GATE.store(gate, Ordering::Release);
            } else {
                libc::munmap(page, 1);
            }
        }
    }
}

/// Handlers run in the reverse order of their registration: registered after `cuInit`, ours runs before the
/// driver's own and no call of ours meets a driver half taken down. Once more when a later life opens the first.
fn watch_exit() {
    const WITHOUT_DRIVER: u8 = 1;
    const WITH_DRIVER: u8 = 2;
    static WATCHING: AtomicU8 = AtomicU8::new(0);
    let now = if opened_driver().is_some() { WITH_DRIVER } else { WITHOUT_DRIVER };
    if WATCHING.fetch_max(now, Ordering::Relaxed) < now {
        // SAFETY: the handler only sets flags, and the library is never unmapped.
        unsafe { libc::atexit(exiting) };
    }
}

extern "C" fn exiting() {
    EXITING.store(true, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    set_gate();
}

/// Whether this process is a fork of the one that initialised. The first to ask in a child puts right what the
/// fork left behind.
#[inline]
pub fn is_forked() -> bool {
    if let Some(gate) = gate() {
        return gate.mark.load(Ordering::Acquire) != OWNER && in_child(&gate.mark);
    }
    let owner = OWNER_PID.load(Ordering::Relaxed);
    owner != 0 && owner != std::process::id() && in_child_by_number()
}

#[cold]
fn in_child(mark: &AtomicU8) -> bool {
    loop {
        match mark.compare_exchange(FORKED, MENDING, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                mend();
                mark.store(MENDED, Ordering::Release);
            }
            Err(MENDED) => return true,
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// As `in_child` without a page: the number of the process that was put right, and whether that is done.
#[cold]
fn in_child_by_number() -> bool {
    static MENDED_PID: AtomicU32 = AtomicU32::new(0);
    static MENDING_PID: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id();
    if MENDED_PID.load(Ordering::Acquire) != own {
        if MENDING_PID.swap(own, Ordering::AcqRel) == own {
            while MENDED_PID.load(Ordering::Acquire) != own {
                std::thread::yield_now();
            }
        } else {
            mend();
            MENDED_PID.store(own, Ordering::Release);
        }
    }
    true
}

fn mend() {
    // SAFETY: the marks above let one thread of the child in here, and nobody past them before it is done.
    unsafe { TRANSITION.replace_in_child(()) };
    // A parent that was just starting or ending left no life to inherit.
    if STATE.load(Ordering::Acquire) != LIVE {
        INITS.store(0, Ordering::Release);
    }
    let hook = MEND.load(Ordering::Acquire);
    if hook != 0 {
        // SAFETY: only `init` writes it, from a `fn()`.
        unsafe { std::mem::transmute::<usize, fn()>(hook)() };
    }
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
    is_forked();
    if STATE.load(Ordering::Acquire) == LIVE && !is_exiting() { Ok(()) } else { Err(not_live()) }
}

/// Like `require_live`, for what stays possible after shutdown: freeing.
#[inline]
pub fn require_once_live() -> Result<()> {
    is_forked();
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

/// Whether a free finds everything as usual: initialised once, not forked, not exiting.
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
        no_gpu()
    } else {
        error!(
            Forked,
            "this process was forked after warpmem was initialised; CUDA cannot be used in it: start workers with spawn, or initialise after the fork"
        )
    }
}

#[cold]
fn no_gpu() -> crate::error::Error {
    crate::error::error!(NoSuchDevice, "there is no usable GPU: {}", reason())
}

/// The driver, for a call that asks for a GPU by other means than a device of this life.
pub fn driver_of_gpus() -> Result<&'static Driver> {
    if GPUS.load(Ordering::Acquire) { driver() } else { Err(no_gpu()) }
}

/// Whether this life has GPUs, usable at this moment or not.
pub fn has_gpus() -> bool {
    GPUS.load(Ordering::Acquire)
}

/// The driver if one was opened, usable or not.
pub fn opened_driver() -> Option<&'static Driver> {
    // SAFETY: set once to a leaked box.
    unsafe { DRIVER.load(Ordering::Acquire).as_ref() }
}

/// Why there is no usable GPU; empty when there is one.
pub fn reason() -> String {
    // SAFETY: null, or a box that is never freed.
    unsafe { REASON.load(Ordering::Acquire).as_ref() }.map(|reason| reason.text.clone()).unwrap_or_default()
}

/// Whether pools start enabled on devices that have them.
pub fn mempools_at_init() -> bool {
    MEMPOOLS_AT_INIT.load(Ordering::Relaxed)
}
