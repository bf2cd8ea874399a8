//! How a call comes in and goes out: counted, checked against forks and planned failures, run under the one lock,
//! logged, and never unwound into C.
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::codes::{self, Code};
use crate::thread;
use crate::world::World;

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| Mutex::new(World::new()));
/// Told whenever queued work was finished or a stream released.
static PROGRESS: Condvar = Condvar::new();
static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
/// A page that the kernel wipes in a forked child; null until the driver is initialised.
static FORK_MARK: AtomicPtr<u64> = AtomicPtr::new(ptr::null_mut());

/// One exported entry point; each export owns a static one.
pub struct Entry {
    pub name: &'static str,
    /// May be called before `cuInit`.
    early: bool,
    /// A capture may forbid it, wherever it is.
    guarded: bool,
    count: AtomicU64,
    known: AtomicBool,
    next: AtomicPtr<Entry>,
}

impl Entry {
    pub const fn new(name: &'static str) -> Entry {
        Entry {
            name,
            early: false,
            guarded: false,
            count: AtomicU64::new(0),
            known: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub const fn early(name: &'static str) -> Entry {
        let mut entry = Entry::new(name);
        entry.early = true;
        entry
    }

    /// One that a capture may forbid although it names no stream.
    pub const fn guarded(name: &'static str) -> Entry {
        let mut entry = Entry::new(name);
        entry.guarded = true;
        entry
    }

    fn counted(&'static self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if !self.known.load(Ordering::Relaxed) && !self.known.swap(true, Ordering::AcqRel) {
            let own = ptr::from_ref(self).cast_mut();
            let mut head = ENTRIES.load(Ordering::Acquire);
            loop {
                self.next.store(head, Ordering::Release);
                match ENTRIES.compare_exchange_weak(head, own, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(newer) => head = newer,
                }
            }
        }
    }
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    let mut at = ENTRIES.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: the list holds only addresses of statics, linked before they became visible.
        let entry = unsafe { at.as_ref() }?;
        at = entry.next.load(Ordering::Acquire);
        Some(entry)
    })
}

/// How often an entry point was called since the start or the last reset.
pub fn count(name: &str) -> u64 {
    entries().filter(|entry| entry.name == name).map(|entry| entry.count.load(Ordering::Relaxed)).sum()
}

/// How often any entry point was called.
pub fn count_all() -> u64 {
    entries().map(|entry| entry.count.load(Ordering::Relaxed)).sum()
}

pub fn clear_counts() {
    entries().for_each(|entry| entry.count.store(0, Ordering::Relaxed));
}

/// Sets the mark by which a forked child knows itself. Called by a successful `cuInit`.
pub fn mark_process() {
    if !FORK_MARK.load(Ordering::Acquire).is_null() {
        return;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new private page, wiped in children from before its address is published.
    unsafe {
        let page = libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if page == libc::MAP_FAILED || libc::madvise(page, 4096, libc::MADV_WIPEONFORK) != 0 {
            return;
        }
        page.cast::<u64>().write(1);
        FORK_MARK.store(page.cast(), Ordering::Release);
    }
}

/// Forgets the mark; the next `cuInit`, in whichever process, sets a new one.
pub fn unmark_process() {
    FORK_MARK.store(ptr::null_mut(), Ordering::Release);
}

/// Whether this process is a child forked after the driver was initialised.
pub fn forked() -> bool {
    let mark = FORK_MARK.load(Ordering::Acquire);
    // SAFETY: a published mark is never unmapped.
    !mark.is_null() && unsafe { mark.read_volatile() } == 0
}

/// The world for control functions, which are neither counted nor logged.
pub fn world() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn progress() {
    PROGRESS.notify_all();
}

/// A call in progress: the world under the lock, which can be let go for a while.
pub struct Session {
    guard: Option<MutexGuard<'static, World>>,
    pub entry: &'static str,
    pub note: Option<Box<str>>,
    /// The context of the last stream or event that the call named.
    pub named: u64,
}

impl Session {
    fn new(entry: &'static str) -> Session {
        Session { guard: Some(world()), entry, note: None, named: 0 }
    }

    /// A session for a control function that lets the lock go (host functions run without it).
    pub fn control() -> Session {
        Session::new("warpsim")
    }

    /// Puts what is said of a fault into the log.
    fn told(&mut self, heard: Result<(), (Code, String)>) -> Result<(), Code> {
        heard.map_err(|(code, text)| {
            self.note = Some(text.into());
            code
        })
    }

    /// Runs `body` without the lock. Host functions and faults happen here.
    pub fn unlocked<R>(&mut self, body: impl FnOnce() -> R) -> R {
        self.guard = None;
        let result = body();
        self.guard = Some(world());
        result
    }

    /// Waits until some other thread made progress.
    pub fn wait(&mut self) {
        if let Some(guard) = self.guard.take() {
            self.guard = Some(PROGRESS.wait(guard).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Deref for Session {
    type Target = World;
    fn deref(&self) -> &World {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("the lock is held outside of `unlocked` and `wait`"),
        }
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut World {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("the lock is held outside of `unlocked` and `wait`"),
        }
    }
}

/// Runs one driver call.
pub fn call<const N: usize>(
    entry: &'static Entry,
    args: [u64; N],
    body: impl FnOnce(&mut Session) -> Result<(), Code>,
) -> Code {
    if forked() {
        return codes::NOT_INITIALIZED;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        entry.counted();
        let mut session = Session::new(entry.name);
        let result = admit(entry, &mut session).and_then(|()| {
            session.tick();
            let heard = session.hear(entry.name);
            session.told(heard)?;
            body(&mut session)?;
            let heard = session.hear_after(entry.name, session.named);
            session.told(heard)
        });
        session.run_destructors();
        let code = result.err().unwrap_or(codes::SUCCESS);
        let note = session.note.take();
        session.log.add(thread::number(), entry.name, &args, code, note);
        code
    }));
    outcome.unwrap_or(codes::UNKNOWN)
}

/// What a host function may call beside what needs no driver at work, as measured. A real driver lets it wait for its own
/// stream too, for ever; that is refused here.
const PERMITTED: &[&str] = &[
    "cuStreamIsCapturing",
    "cuStreamBeginCapture_v2",
    "cuStreamQuery",
    "cuThreadExchangeStreamCaptureMode",
    "cuMemsetD8Async",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuMemsetD2D8Async",
    "cuMemsetD2D16Async",
    "cuMemsetD2D32Async",
    "cuLaunchHostFunc",
];

/// Whether the call may reach its own code at all.
fn admit(entry: &Entry, session: &mut Session) -> Result<(), Code> {
    let world = &mut **session;
    if world.gone {
        return Err(codes::DEINITIALIZED);
    }
    if !world.hidden.is_empty() && world.hidden.contains(entry.name) {
        return Err(codes::NOT_FOUND);
    }
    if thread::in_host_function() && !entry.early && !PERMITTED.contains(&entry.name) {
        return Err(codes::NOT_PERMITTED);
    }
    if let Some(code) = world.faults.due(entry.name) {
        session.note = Some("planned".into());
        return Err(code);
    }
    if !world.initialized && !entry.early {
        return Err(codes::NOT_INITIALIZED);
    }
    if entry.guarded { world.beside_captures() } else { Ok(()) }
}

/// A result parameter: null, or valid for one write, as the driver's contract says.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Out<T> {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// A result parameter of our own.
    pub fn to(value: &mut T) -> Out<T> {
        Out(value)
    }

    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// The same address for another type.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// An address that the caller left in memory.
    pub fn at(address: u64) -> Out<T> {
        Out(address as usize as *mut T)
    }

    /// A null parameter of our own.
    pub const fn none() -> Out<T> {
        Out(ptr::null_mut())
    }

    /// The place so many bytes further on in the caller's struct.
    pub fn past(self, bytes: u64) -> Out<T> {
        Out(self.0.wrapping_byte_add(bytes as usize))
    }

    /// # Errors
    /// Invalid value for null.
    pub fn check(self) -> Result<(), Code> {
        if self.0.is_null() { Err(codes::INVALID_VALUE) } else { Ok(()) }
    }

    /// # Errors
    /// Invalid value for null.
    pub fn put(self, value: T) -> Result<(), Code> {
        self.check()?;
        // SAFETY: not null, so valid for a write by the contract of the entry point.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the `i`-th of several.
    ///
    /// # Errors
    /// Invalid value for null.
    pub fn put_at(self, i: usize, value: T) -> Result<(), Code> {
        self.check()?;
        // SAFETY: not null, so valid for as many writes as the entry point's contract says.
        unsafe { self.0.add(i).write_unaligned(value) };
        Ok(())
    }

    /// Writes where the caller gave an address.
    pub fn put_if(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: as in `put`.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

impl<T: Copy> Out<T> {
    /// Reads a parameter that goes both ways.
    ///
    /// # Errors
    /// Invalid value for null.
    pub fn get(self) -> Result<T, Code> {
        In(self.0.cast_const()).get()
    }
}

/// An input parameter: null, or valid for reads, as the driver's contract says.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// An address that the caller left in memory.
    pub fn at(address: u64) -> In<T> {
        In(address as usize as *const T)
    }

    /// The place so many bytes further on.
    pub fn past(self, bytes: u64) -> In<T> {
        In(self.0.wrapping_byte_add(bytes as usize))
    }

    /// A null parameter of our own.
    pub const fn none() -> In<T> {
        In(ptr::null())
    }

    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// The same address for another type.
    pub fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }

    /// # Errors
    /// Invalid value for null.
    pub fn get(self) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        // SAFETY: not null, so valid for a read by the contract of the entry point.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// # Errors
    /// Invalid value for null with a nonzero count.
    pub fn list(self, count: usize) -> Result<Vec<T>, Code> {
        if count > 0 && self.0.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        // SAFETY: valid for `count` reads by the contract of the entry point.
        Ok((0..count).map(|i| unsafe { self.0.add(i).read_unaligned() }).collect())
    }
}

impl<T> From<&T> for In<T> {
    fn from(value: &T) -> In<T> {
        In(value)
    }
}

impl In<u8> {
    /// A C string.
    ///
    /// # Errors
    /// Invalid value for null or text that is not UTF-8.
    pub fn text(self) -> Result<String, Code> {
        if self.0.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        // SAFETY: not null, so a terminated string by the contract of the entry point.
        let text = unsafe { std::ffi::CStr::from_ptr(self.0.cast()) };
        text.to_str().map(str::to_owned).map_err(|_| codes::INVALID_VALUE)
    }
}
