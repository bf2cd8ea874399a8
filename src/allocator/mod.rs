//! Allocators as objects: made here or by other code, installed for devices, stacked on each other, and alive until the last
//! block that they made is given back. What they have in common is `source::Source`; `custom` is one of callbacks, `install`
//! says which serves a device. The built-in ones are made by `alloc`, which stands on this room.

mod aligned;
mod backtrace;
mod custom;
mod failure_callback;
#[cfg(test)]
mod fake;
mod fallback;
mod install;
mod limit;
mod logging;
mod outside;
mod shards;
mod source;
mod statistics;
mod tracking;

pub use aligned::Aligned;
pub use custom::{Callbacks, Custom};
pub use failure_callback::{Again, FailureCallback};
pub use fallback::Fallback;
pub use install::{
    effective, install, install_for_all, installed, override_for_thread, refer, thread_override, unrefer,
};
pub use limit::Limit;
pub use logging::Logging;
pub use outside::{Told, is_inside_a_callback};
pub use source::{
    Exported, Request, Source, Stacked, Statistics, Traits, Upstream, flags, may_be_repeated,
    tell_of_unusable,
};
pub use statistics::Counting;
pub use tracking::{Block, Tracking};

use crate::error::{Error, Result, error};
use crate::handle::{Entered, Handle, Hold, Object, Registry, Tag};
use crate::ledger::Ledger;
use crate::log::log;
use crate::moment;
use crate::runtime;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

static ALLOCATORS: Registry<Allocator> = Registry::new();

/// An allocator. Whoever holds its slot keeps it alive; references are what keeps its handle good.
pub struct Allocator {
    source: Box<dyn Source>,
    name: CString,
    traits: Traits,
    /// Of callers, of devices that it is installed for, of scopes. With the last one the handle becomes stale.
    references: AtomicU32,
    /// What was handed out directly, beside the blocks of the library.
    book: OnceLock<Box<Ledger>>,
    /// Deallocations that failed.
    failed_deallocations: AtomicU64,
    /// The process that made it.
    process: u32,
    /// Never goes, nor does its handle.
    is_for_good: bool,
    /// Its reference is the library's: callers have none to give back.
    is_librarys: AtomicBool,
}

impl Object for Allocator {
    const TAG: Tag = Tag::Allocator;
}

impl Allocator {
    fn new(source: Box<dyn Source>, name: CString) -> Allocator {
        let traits = source.traits();
        let is_for_good = source.builtin().is_some();
        Allocator {
            source,
            name,
            traits,
            references: AtomicU32::new(1),
            book: OnceLock::new(),
            failed_deallocations: AtomicU64::new(0),
            process: std::process::id(),
            is_for_good,
            is_librarys: AtomicBool::new(false),
        }
    }

    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// For messages: what it is, and its name if it has one.
    pub fn title(&self) -> String {
        let sort = self.source.sort();
        match self.name.to_string_lossy() {
            name if name.is_empty() => format!("the {sort} allocator"),
            name => format!("the {sort} allocator \"{name}\""),
        }
    }

    pub fn sort(&self) -> &'static str {
        self.source.sort()
    }

    #[inline]
    pub fn traits(&self) -> Traits {
        self.traits
    }

    pub fn references(&self) -> u32 {
        self.references.load(Ordering::Relaxed)
    }

    pub fn failed_deallocations(&self) -> u64 {
        self.failed_deallocations.load(Ordering::Relaxed)
    }

    /// Whether it was made by the process that this one was forked from, whose threads may hold its locks. A built-in one has none,
    /// and serves host memory in a child as well.
    #[inline]
    pub fn is_of_parent(&self) -> bool {
        !self.is_for_good && runtime::is_forked() && self.process != std::process::id()
    }

    /// The kind of the built-in allocator that it is.
    #[inline]
    pub fn builtin(&self) -> Option<crate::kind::Kind> {
        if self.is_for_good { self.source.builtin() } else { None }
    }

    /// What was handed out directly and not taken back. An error in a child of its process, where a thread that is gone may have
    /// been making it.
    pub fn book(&self) -> Result<&Ledger> {
        if self.is_of_parent() {
            return Err(self.forked());
        }
        Ok(self.book.get_or_init(|| Box::new(Ledger::new())))
    }

    /// As `book`, if anything ever was.
    pub fn book_if_any(&self) -> Option<&Ledger> {
        self.book.get().map(Box::as_ref)
    }

    /// Gets memory of it, for a caller that is inside. What comes is an address that can be, aligned as asked.
    #[inline]
    pub fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        if self.is_of_parent() {
            return Err(self.forked());
        }
        self.source.allocate(request)
    }

    #[cold]
    fn forked(&self) -> Error {
        error!(
            Forked,
            "{} was made before this process was forked, and its locks may be held by threads that are not here; make one after the fork",
            self.title()
        )
    }

    /// Gives memory back to it. A failure is counted and told, and the memory gone, unless it `may_be_repeated`.
    #[inline]
    pub fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        if self.is_of_parent() {
            return Ok(());
        }
        self.source.deallocate(address, request).inspect_err(|error| {
            if !may_be_repeated(error) {
                self.failed_deallocations.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    pub fn trim(&self, request: &Request<'_>) -> Result<u64> {
        if self.is_of_parent() { Ok(0) } else { self.source.trim(request) }
    }

    pub fn record_stream(&self, address: u64, request: &Request<'_>) -> Result<bool> {
        if self.is_of_parent() {
            return Ok(true);
        }
        self.source.record_stream(address, request)
    }

    /// Whether it can be told of further streams that use a block.
    pub fn records_streams(&self) -> bool {
        self.source.records_streams()
    }

    pub fn export_ipc(&self, address: u64, request: &Request<'_>) -> Result<Option<Exported>> {
        if self.is_of_parent() { Ok(None) } else { self.source.export_ipc(address, request) }
    }

    pub fn statistics(&self) -> Result<Option<Statistics>> {
        if self.is_of_parent() { Ok(None) } else { self.source.statistics() }
    }

    /// The allocator as what only its sort can do; `None` when it is of another, or of the process that this one was forked from.
    #[inline]
    pub fn downcast<S: Source + 'static>(&self) -> Option<&S> {
        if self.is_of_parent() {
            return None;
        }
        self.source.as_any().downcast_ref()
    }

    /// As `downcast`, with an error that names the sort.
    pub fn as_sort<S: Source + 'static>(&self, sort: &str) -> Result<&S> {
        if self.is_of_parent() {
            return Err(self.forked());
        }
        self.downcast().ok_or_else(|| {
            error!(
                InvalidArgument,
                "{} is no {sort} allocator; pass what warp_allocator_create_{sort} made",
                self.title()
            )
        })
    }

    /// How many allocators one request may meet here and below.
    pub fn stacked(&self) -> Stacked {
        self.source.stacked()
    }

    /// From now on callers have no references to give back: the library has one.
    pub fn keep_for_library(&self) {
        self.is_librarys.store(true, Ordering::Release);
    }

    /// Whether callers' references are not counted.
    fn is_nobodys(&self) -> bool {
        self.is_for_good || self.is_librarys.load(Ordering::Acquire)
    }

    /// One more reference, unless there is none left.
    fn refer(&self) -> bool {
        let more = |references: u32| (references != 0).then(|| references.saturating_add(1));
        self.is_nobodys() || self.references.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// One less. True with the last.
    fn unrefer(&self) -> bool {
        let less = |references: u32| references.checked_sub(1);
        !self.is_nobodys() && self.references.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less) == Ok(1)
    }
}

/// Makes an allocator, with one reference for the caller.
pub fn create(source: Box<dyn Source>, name: Option<&CStr>) -> Result<Handle> {
    runtime::require_live()?;
    ALLOCATORS.insert(Allocator::new(source, name.unwrap_or_default().into()))
}

/// Keeps the allocator from going while the guard lives.
#[inline]
pub fn enter(handle: Handle) -> Result<Entered<Allocator>> {
    ALLOCATORS.enter(handle)
}

/// The allocator that a block holds; `None` once its handle is stale.
#[inline]
pub fn enter_held(thread: &'static crate::thread::Record, held: u32) -> Option<Entered<Allocator>> {
    ALLOCATORS.enter_held(thread, held)
}

/// The allocator of a handle that may be stale, as long as anything of it is alive.
pub fn hold(handle: Handle) -> Result<Hold<Allocator>> {
    ALLOCATORS.hold(handle).ok_or_else(|| crate::handle::invalid(Tag::Allocator, handle))
}

/// The allocator that a block holds.
///
/// # Safety
/// The caller has a hold on `held` for as long as the reference lives.
pub unsafe fn held(held: u32) -> &'static Allocator {
    // SAFETY: the caller's promise.
    unsafe { ALLOCATORS.held(held) }
}

/// Gives back a hold. With the last one the allocator is destroyed.
///
/// # Safety
/// The caller has that hold, and has it no more afterwards.
#[inline]
pub unsafe fn release_hold(held: u32) {
    // SAFETY: the caller's promise.
    unsafe { ALLOCATORS.release_hold(held) }
}

/// The handle that a slot stands for.
pub fn handle_of(index: u32) -> Handle {
    ALLOCATORS.handle_of(index)
}

/// Every allocator whose handle is good.
pub fn each(mut visit: impl FnMut(&Allocator)) {
    ALLOCATORS.all(|allocator| {
        visit(allocator);
        true
    });
}

/// The allocator in a slot, as long as anything of it is alive.
pub fn hold_by_slot(slot: u32) -> Option<Hold<Allocator>> {
    ALLOCATORS.hold(ALLOCATORS.handle_of(slot))
}

/// Takes another hold.
///
/// # Safety
/// The caller has one, or knows of one that lasts for the length of the call.
pub unsafe fn hold_again(held: u32) {
    // SAFETY: the caller's promise.
    unsafe { ALLOCATORS.hold_again(held) }
}

/// One more reference for the caller.
pub fn retain(handle: Handle) -> Result<()> {
    let allocator = enter(handle)?;
    if !allocator.refer() {
        return Err(crate::handle::invalid(Tag::Allocator, handle));
    }
    Ok(())
}

/// One reference less. With the last the handle becomes stale, and the allocator goes when the last block of it is given back.
pub fn release(handle: Handle) -> Result<()> {
    let allocator = enter(handle)?;
    let last = allocator.unrefer();
    if last {
        allocator.source.closing();
        // Of several who see the last go only one does.
        drop(ALLOCATORS.close(handle)?);
        moment::passed();
        allocator.source.closed();
    }
    Ok(())
}

/// From now on no callback of the allocator is called, nor of those below, and none is running any more but in the middle of which
/// this is called.
pub fn stop(handle: Handle) -> Result<()> {
    let allocator = hold(handle).inspect_err(|_| {
        // Its last callback may be running.
        ALLOCATORS.wait_for_drop(handle);
    })?;
    stop_held(&allocator);
    Ok(())
}

fn stop_held(allocator: &Hold<Allocator>) {
    allocator.source.stop();
    moment::passed();
    // SAFETY: the hold is the caller's.
    unsafe { ALLOCATORS.wait_for_others(allocator.index()) };
}

/// As `enter_held`, of one whose handle is stale.
///
/// # Safety
/// The caller has a hold on `held` for as long as the guard lives.
pub unsafe fn enter_closed(thread: &'static crate::thread::Record, held: u32) -> Option<Entered<Allocator>> {
    // SAFETY: the caller's promise.
    unsafe { ALLOCATORS.enter_closed(thread, held) }
}

/// At shutdown: nobody's any more, and every handle stale. What comes back keeps them, to be dropped where no lock is held.
pub fn dismantle() -> Vec<Hold<Allocator>> {
    for installed in install::reset() {
        // Only the count: nothing may go here, where a lock is held.
        if let Ok(allocator) = ALLOCATORS.enter(installed) {
            allocator.unrefer();
        }
    }
    ALLOCATORS.all(|allocator| {
        allocator.source.closing();
        true
    });
    moment::passed();
    // The built-in ones stay, for what was allocated of them directly.
    ALLOCATORS.close_all_but(|allocator| allocator.is_for_good)
}

/// Has allocators that are closed give back what they keep, and says what is still alive of them.
pub fn let_go(holds: &[Hold<Allocator>], live: impl Fn(u32, &Allocator) -> (u64, u64)) {
    for allocator in holds {
        allocator.source.closed();
        let (blocks, bytes) = live(allocator.index(), allocator);
        if blocks != 0 {
            log!(
                Warning,
                "{} outlives the shutdown: {blocks} blocks of it, {bytes} bytes, were not freed; it goes with the last of them",
                allocator.title()
            );
        } else if allocator.references() != 0 {
            log!(Info, "{} was not released before the shutdown", allocator.title());
        }
    }
}

/// After a fork, in the child.
///
/// # Safety
/// As `Registry::mend_in_child`.
pub unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe {
        ALLOCATORS.mend_in_child();
        ALLOCATORS.each_in_child(|allocator| {
            if let Some(book) = allocator.book_if_any() {
                book.after_fork_in_child();
            }
        });
        install::mend_in_child();
        logging::mend_in_child();
    }
}
