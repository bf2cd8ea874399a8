//! Which allocator serves the default requests for a GPU: what the thread's scopes say, else what was installed for the device,
//! else for all.

use super::{ALLOCATORS, Allocator};
use crate::device::{self, Device, Overlay, PerDevice};
use crate::error::{Result, fail};
use crate::fork::Lock;
use crate::handle::{Entered, Handle};
use crate::moment;
use crate::thread;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What was chosen for a device.
#[derive(Default)]
struct Choice {
    /// Whether it has one of its own; else it follows what was chosen for all.
    is_own: AtomicBool,
    /// The allocator, 0 for the built-in one.
    handle: AtomicU64,
}

/// By the first device of a lineage: what takes the place of a lost one is served as it was.
static CHOICES: PerDevice<Choice> = PerDevice::new();
static FOR_ALL: AtomicU64 = AtomicU64::new(0);
/// Whether anything was ever installed or any scope opened. Most programs do not, and pay for neither.
static EVER: AtomicBool = AtomicBool::new(false);
/// Held while something is chosen; readers do not ask.
static CHOOSING: Lock<()> = Lock::new(());

thread_local! {
    static THREAD: Overlay<Handle> = const { Overlay::new(0) };
}

fn choice_of(device: &Device) -> Option<&'static Choice> {
    CHOICES.get(device::at(device.lineage())?)
}

/// What was chosen, 0 for the built-in one.
fn chosen(device: &Device) -> Handle {
    while let Some(choice) = choice_of(device).filter(|choice| choice.is_own.load(Ordering::Acquire)) {
        let handle = choice.handle.load(Ordering::Acquire);
        // Else it was just given up for what is chosen for all.
        if choice.is_own.load(Ordering::Acquire) {
            return handle;
        }
    }
    FOR_ALL.load(Ordering::Acquire)
}

/// The allocator that serves default requests of the calling thread for the device; `None` for the built-in one.
#[inline]
pub fn effective(device: &Device) -> Result<Option<Entered<Allocator>>> {
    if EVER.load(Ordering::Relaxed) { find(device) } else { Ok(None) }
}

fn find(device: &Device) -> Result<Option<Entered<Allocator>>> {
    if !device.is_cuda() {
        return Ok(None);
    }
    if let Some(handle) = thread_override(device) {
        return enter(handle);
    }
    loop {
        let handle = chosen(device);
        match enter(handle)? {
            // Another one was chosen just now, and this one let go of.
            None if handle != chosen(device) => {}
            found => return Ok(found),
        }
    }
}

fn enter(handle: Handle) -> Result<Option<Entered<Allocator>>> {
    if handle == 0 {
        return Ok(None);
    }
    let entered = ALLOCATORS.enter(handle).ok();
    if entered.is_none() && thread::mine().is_full() {
        fail!(
            AllocatorFailed,
            "this thread is inside of too many calls to reach the allocator of the device: callbacks ask for memory too deep in each other"
        );
    }
    Ok(entered)
}

/// The handle of what serves default requests of the calling thread, 0 for the built-in one.
pub fn installed(device: &Device) -> Handle {
    let found = effective(device).ok().flatten();
    found.map_or(0, |allocator| super::handle_of(allocator.index()))
}

/// What the calling thread's scopes say for the device, if they do.
pub fn thread_override(device: &Device) -> Option<Handle> {
    THREAD.with(|own| own.get(device))
}

/// Has the calling thread find that allocator, 0 for the built-in one, or what was installed. Done by scopes alone, which have a
/// reference.
pub fn override_for_thread(device: &Device, handle: Option<Handle>) {
    EVER.store(true, Ordering::Relaxed);
    THREAD.with(|own| own.set(device, handle));
    moment::passed_here();
}

/// An error unless the allocator can serve a GPU's default requests.
fn require_for_gpus(allocator: &Allocator) -> Result<()> {
    if allocator.traits().host {
        fail!(
            InvalidArgument,
            "{} makes host memory and cannot serve GPUs; name it in the options of an allocation on \"cpu\"",
            allocator.title()
        );
    }
    Ok(())
}

/// A reference to an allocator that is to serve a GPU, 0 for the built-in one.
pub fn refer(device: &Device, handle: Handle) -> Result<()> {
    if !device.is_cuda() {
        fail!(
            InvalidArgument,
            "an allocator is installed for CUDA devices, and \"{}\" is the CPU; name it in the options of an allocation there",
            device.alias()
        );
    }
    refer_to(handle)
}

fn refer_to(handle: Handle) -> Result<()> {
    if handle == 0 {
        return Ok(());
    }
    let allocator = ALLOCATORS.enter(handle)?;
    require_for_gpus(&allocator)?;
    drop(allocator);
    super::retain(handle)
}

/// Gives a reference back, where no lock is held: with the last one callbacks may be called.
pub fn unrefer(handle: Handle) {
    if handle != 0 {
        // A shutdown may have made it stale, and has its reference.
        let _ = super::release(handle);
    }
}

/// Installs an allocator for one GPU, 0 for the built-in one.
pub fn install(device: &'static Device, handle: Handle) -> Result<()> {
    refer(device, handle)?;
    EVER.store(true, Ordering::Relaxed);
    let first = device::at(device.lineage()).unwrap_or(device);
    let choice = CHOICES.get_or_make(first, Choice::default);
    let before = {
        let _alone = CHOOSING.write();
        let before = choice.handle.swap(handle, Ordering::AcqRel);
        choice.is_own.store(true, Ordering::Release);
        before
    };
    moment::passed();
    unrefer(before);
    Ok(())
}

/// Installs an allocator for every GPU there is and will be, 0 for the built-in ones.
pub fn install_for_all(handle: Handle) -> Result<()> {
    if handle != 0 && device::cuda_count() == 0 {
        refer_to(handle)?;
        unrefer(handle);
        fail!(
            NoSuchDevice,
            "there is no GPU to install an allocator for: {}; NULL is always fine",
            crate::runtime::reason()
        );
    }
    refer_to(handle)?;
    EVER.store(true, Ordering::Relaxed);
    let before = {
        let _alone = CHOOSING.write();
        let before = vec![FOR_ALL.swap(handle, Ordering::AcqRel)];
        give_up_choices(before)
    };
    moment::passed();
    before.into_iter().for_each(unrefer);
    Ok(())
}

/// At shutdown: the built-in ones serve again. Gives the handles of the others, whose references are whoever asks's.
pub(super) fn reset() -> Vec<Handle> {
    let _alone = CHOOSING.write();
    give_up_choices(vec![FOR_ALL.swap(0, Ordering::AcqRel)])
}

/// Every device follows what was chosen for all; what was its own is added to the list.
fn give_up_choices(mut before: Vec<Handle>) -> Vec<Handle> {
    for choice in device::ever_made().filter_map(|device| CHOICES.get(device)) {
        choice.is_own.store(false, Ordering::Release);
        before.push(choice.handle.swap(0, Ordering::AcqRel));
    }
    before
}

/// After a fork, in the child: what the parent's allocators made is the parent's.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub(super) unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe { CHOOSING.replace_in_child(()) };
}
