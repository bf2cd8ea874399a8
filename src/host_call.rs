//! Functions of a caller's that a stream calls. On the CPU's stream at once, or in each run of the graph that the thread captures; on
//! a GPU's by the driver, in the order of the stream, on a thread of its own.
//!
//! What the driver is given is a number, and not an address: a call that was taken back, or whose graph is gone, is then one that
//! finds nothing, whatever the driver still makes of it.

use crate::boundary::call_out;
use crate::capture::{self, Keep, Work};
use crate::device::Device;
use crate::driver::Driver;
use crate::error::{Result, Status};
use crate::handle::Entered;
use crate::lock::Mutex;
use crate::stream::{self, Stream};
use crate::{runtime, thread};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// `"C-unwind"` so that something foreign that unwinds reaches our shim and not undefined behaviour.
pub type Function = unsafe extern "C-unwind" fn(user: *mut c_void);

/// A function that is to be called.
pub struct Call {
    pub function: Function,
    pub user: *mut c_void,
    /// What is called with the same when the function will not be called any more.
    pub release: Option<Function>,
}

// SAFETY: the caller of the C face says that both functions can be called with it on any thread.
unsafe impl Send for Call {}
// SAFETY: as above.
unsafe impl Sync for Call {}

/// A call, released with the last who has it: once it is surely taken.
struct TakenCall {
    call: Call,
    taken: AtomicBool,
}

impl TakenCall {
    fn new(call: Call) -> Arc<TakenCall> {
        Arc::new(TakenCall { call, taken: AtomicBool::new(false) })
    }

    /// It has come about: what the caller gave is ours from now on.
    fn take(&self) {
        self.taken.store(true, Ordering::Release);
    }

    fn call(&self) {
        let Call { function, user, .. } = self.call;
        // SAFETY: the caller says that the function can be called with that until it is released.
        call_out("a host function", None, || unsafe { function(user) });
    }
}

impl Drop for TakenCall {
    fn drop(&mut self) {
        if let (Some(release), true) = (self.call.release, *self.taken.get_mut()) {
            let user = self.call.user;
            // SAFETY: as in `call`, and this is the one call.
            call_out("the release of a host function", None, || unsafe { release(user) });
        }
    }
}

/// A step of a graph of the CPU.
struct Step(Arc<TakenCall>);

impl Work for Step {
    fn run(&self) -> Result<()> {
        self.0.call();
        Ok(())
    }
}

/// Has the function called in the order of the stream. On failure nothing was taken.
pub fn call(stream: &Entered<Stream>, call: Call) -> Result<()> {
    let taken = TakenCall::new(call);
    if stream.device().is_cuda() {
        return on_gpu(stream, &taken);
    }
    match capture::of_cpu()? {
        Some(graph) => graph.record(Box::new(Step(Arc::clone(&taken))))?,
        None => taken.call(),
    }
    taken.take();
    Ok(())
}

/// What the driver has still to call.
struct Entry {
    taken: Arc<TakenCall>,
    /// Whether that is once, and not in each run of a graph.
    once: bool,
    device: &'static Device,
}

/// By their numbers. No other code is called, and nothing is taken, under the lock.
static ENTRIES: Mutex<Option<HashMap<u64, Entry>>> = Mutex::new(None);
/// How many of them are called once.
static ONCE: AtomicUsize = AtomicUsize::new(0);

fn enter(taken: &Arc<TakenCall>, device: &'static Device, once: bool) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let entry = Entry { taken: Arc::clone(taken), once, device };
    ENTRIES.lock().get_or_insert_with(HashMap::new).insert(number, entry);
    ONCE.fetch_add(usize::from(once), Ordering::Relaxed);
    number
}

/// Takes a call out, which is not made from then on. `None` when it was made, or is being made, and was to be made once.
fn remove(number: u64) -> Option<Entry> {
    let entry = ENTRIES.lock().as_mut()?.remove(&number)?;
    ONCE.fetch_sub(usize::from(entry.once), Ordering::Relaxed);
    Some(entry)
}

/// What the driver calls.
unsafe extern "C" fn called(number: *mut c_void) {
    let number = number.addr() as u64;
    let found = ENTRIES
        .lock()
        .as_ref()
        .and_then(|entries| entries.get(&number))
        .map(|entry| (Arc::clone(&entry.taken), entry.once));
    let taken = match found {
        Some((taken, false)) => taken,
        // Whoever takes it out has it.
        Some((_, true)) => match remove(number) {
            Some(entry) => entry.taken,
            None => return,
        },
        None => return,
    };
    thread::in_drivers_callback(|| {
        taken.call();
        drop(taken);
    });
}

/// A call in the keeping of the graph that has it.
struct Kept(u64);

impl Keep for Kept {
    fn give_back(self: Box<Self>) {
        drop(remove(self.0));
    }

    fn forget(self: Box<Self>) {
        self.give_back();
    }
}

fn on_gpu(stream: &Entered<Stream>, taken: &Arc<TakenCall>) -> Result<()> {
    let device = stream.device();
    let driver = device.require_cuda("a host function")?;
    release_lost(Device::is_lost);
    let put = put(driver, stream, taken);
    match &put {
        Ok(()) => taken.take(),
        // After a fault, too, nothing that was put on the device's streams before is called any more.
        Err(error) if error.status == Status::DeviceLost => release_lost(|other| std::ptr::eq(other, device)),
        Err(_) => {}
    }
    put
}

fn put(driver: &'static Driver, stream: &Entered<Stream>, taken: &Arc<TakenCall>) -> Result<()> {
    let device = stream.device();
    let _context = stream.enter_context(driver)?;
    let _relaxed = driver.relax_capture().map_err(|f| device.error(driver, f))?;
    loop {
        let begun = stream::begun();
        let capturing = stream.is_capturing(driver).map_err(|f| device.error(driver, f))?;
        let graph = if capturing { capture::of_stream(driver, stream)? } else { None };
        let number = enter(taken, device, graph.is_none());
        let data = std::ptr::without_provenance_mut(number as usize);
        if let Err(f) = driver.launch_host_function(stream.native(), called, data) {
            drop(remove(number));
            return Err(device.error(driver, f).context("a host function"));
        }
        if let Some(graph) = graph {
            if let Some(over) = graph.keep(Box::new(Kept(number))) {
                // Other code has ended it by now.
                over.give_back();
            }
            return Ok(());
        }
        if !stream::began_since(begun) {
            return Ok(());
        }
        // It may have fallen into a capture that another thread just began. What is taken back there is a step that does nothing.
        let meanwhile = capture::began_meanwhile(stream, begun);
        let fell = meanwhile.is_refused || meanwhile.is_void || !meanwhile.graphs.is_empty();
        match fell.then(|| remove(number)).flatten() {
            // It did not, or has been called: it was work like all else.
            None => return Ok(()),
            Some(_) if meanwhile.is_refused => return Err(capture::fell_into_another(stream)),
            Some(_) => {}
        }
    }
}

/// Releases what will not be called since its context is gone: the driver says nothing of that.
fn release_lost(lost: impl Fn(&Device) -> bool) {
    if ONCE.load(Ordering::Relaxed) == 0 {
        return;
    }
    let gone: Vec<Entry> = match ENTRIES.lock().as_mut() {
        Some(entries) => {
            let is_gone = |_: &u64, entry: &mut Entry| entry.once && lost(entry.device);
            entries.extract_if(is_gone).map(|(_, entry)| entry).collect()
        }
        None => return,
    };
    ONCE.fetch_sub(gone.len(), Ordering::Relaxed);
    drop(gone);
}

/// At shutdown, with no lock held: releases what is called no more. What is on streams of living contexts is called yet.
pub fn dismantle() {
    if !runtime::is_forked() {
        release_lost(Device::is_lost);
    }
}
