//! What pipelines work with and keep from one copy to the next: streams of the library's own, called lanes, and page-locked
//! buffers. Neither is given to a copy while work that it has nothing to do with is pending there: it would wait for that too.

use crate::alloc::{self, FreeOptions};
use crate::device::{Device, PerDevice};
use crate::driver::{Driver, RawEvent, RawStream};
use crate::error::{Result, Status};
use crate::handle::{Entered, Handle};
use crate::lock::Mutex;
use crate::log;
use crate::runtime;
use crate::stream::{self, Stream};
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of each buffer. It takes the driver about a millisecond to make one.
pub const BUFFER: u64 = 4 << 20;

/// What goes over at once, of about so many bytes: whole ones fit into a buffer. Large ones are the faster, small ones let a short
/// copy begin and end sooner.
pub fn chunk(bytes: u64, smallest: u64) -> u64 {
    (1 << bytes.max(1).ilog2()).clamp(smallest, BUFFER)
}

/// What became of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Done {
    Copied,
    /// Nothing, since there are no buffers to be had: the driver is to copy.
    NoBuffers,
    /// Nothing, since the stream is captured by now: the copy is to be recorded, or refused.
    Captured,
}

const TAG: &CStr = c"warpmem copy staging";

/// The stream of a caller's that something was done for, and came after. What comes after the same one again has nothing new
/// to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind {
    stream: u64,
    /// Whose default stream it is, if it is a thread's own; else 0.
    thread: u32,
}

impl Behind {
    pub fn of(stream: &Stream) -> Behind {
        let thread = if stream.is_per_thread() { stream::thread_mark() } else { 0 };
        Behind { stream: stream.id(), thread }
    }
}

/// A stream of the library's own that one copy has to itself.
pub struct Lane {
    stream: Entered<Stream>,
    behind: Behind,
}

struct KeptLane {
    /// Stale since a shutdown.
    handle: Handle,
    /// What its last work came after.
    behind: Behind,
}

static LANES: PerDevice<Mutex<Vec<KeptLane>>> = PerDevice::new();

/// As many are kept for each device; more there are while as many copies go on at once.
const LANES_KEPT: usize = 16;

impl Lane {
    /// A lane on which nothing is pending but what `behind` comes after anyway.
    pub fn take(driver: &Driver, device: &'static Device, behind: Behind) -> Result<Lane> {
        let kept = LANES.get_or_make(device, Mutex::default);
        let of_same = || {
            let mut kept = kept.lock();
            let at = kept.iter().position(|lane| lane.behind == behind)?;
            Some(kept.remove(at).handle)
        };
        while let Some(handle) = of_same() {
            if let Ok(stream) = stream::enter(handle) {
                return Ok(Lane { stream, behind });
            }
        }
        let mut busy = Vec::new();
        let idle = std::iter::from_fn(|| kept.lock().pop()).find_map(|lane| {
            let stream = stream::enter(lane.handle).ok()?;
            if driver.stream_is_idle(stream.native()) == Ok(true) {
                return Some(stream);
            }
            busy.push(lane);
            None
        });
        kept.lock().append(&mut busy);
        if let Some(stream) = idle {
            return Ok(Lane { stream, behind });
        }
        let handle = stream::create(device, stream::Options { non_blocking: true, priority: 0 })?;
        Ok(Lane { stream: stream::enter(handle)?, behind })
    }

    pub fn native(&self) -> RawStream {
        self.stream.native()
    }

    pub fn stream(&self) -> &Entered<Stream> {
        &self.stream
    }

    /// Has the lane wait for the work so far of a stream whose context is current. False when that is captured.
    pub fn follow(&self, driver: &'static Driver, first: &Entered<Stream>) -> Result<bool> {
        let device = first.device();
        let event = stream::take_event(device, driver)?;
        let marked = first.outside_captures(driver, "a copy", || driver.record_event(event, first.native()));
        let follows = match marked {
            Ok(()) => match driver.wait_event(self.native(), event) {
                Ok(()) => Ok(true),
                Err(f) => Err(self.stream.device().error(driver, f).context("a copy")),
            },
            Err(error) if error.status == Status::IllegalInCapture => Ok(false),
            Err(error) => Err(error),
        };
        // The wait is for what was recorded, whatever becomes of the event.
        stream::give_event(device, event);
        follows
    }

    /// Has a stream whose context is current wait for the work so far of the lane.
    pub fn lead(&self, driver: &'static Driver, later: &Entered<Stream>) -> Result<()> {
        let device = self.stream.device();
        let event = {
            let _context = device.enter(driver)?;
            let event = stream::take_event(device, driver)?;
            if let Err(f) = driver.record_event(event, self.native()) {
                stream::give_event(device, event);
                return Err(device.error(driver, f).context("a copy"));
            }
            event
        };
        let tied = tie(driver, later, event);
        stream::give_event(device, event);
        tied
    }

    /// Has frees of the block at an address wait for the lane.
    pub fn uses(&self, address: u64) {
        alloc::record_use(address, &self.stream);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let device = self.stream.device();
        let handle = stream::handle_of(&self.stream);
        let mut kept = LANES.get_or_make(device, Mutex::default).lock();
        if kept.len() < LANES_KEPT && !device.is_lost() && runtime::require_live().is_ok() {
            kept.push(KeptLane { handle, behind: self.behind });
        } else {
            drop(kept);
            // Stale already after a shutdown.
            let _ = stream::release(handle, |_| Ok(()));
        }
    }
}

/// Has a stream, whose context is current, wait for an event of a lane. One that is captured by now is not touched: there the host
/// waits, and all that is put on it later comes after that as well.
pub fn tie(driver: &'static Driver, later: &Entered<Stream>, event: RawEvent) -> Result<()> {
    match later.outside_captures(driver, "a copy", || driver.wait_event(later.native(), event)) {
        Err(error) if error.status == Status::IllegalInCapture => {
            driver.synchronize_event(event).map_err(|f| later.device().error(driver, f).context("a copy"))
        }
        tied => tied,
    }
}

/// Work of a GPU after which a buffer may be used again.
pub struct Fence {
    device: &'static Device,
    event: RawEvent,
    behind: Behind,
}

impl Fence {
    /// Behind an event that was recorded on a lane of the device, and is the fence's from now on.
    pub fn new(device: &'static Device, event: RawEvent, behind: Behind) -> Fence {
        Fence { device, event, behind }
    }

    pub fn event(&self) -> RawEvent {
        self.event
    }

    pub fn is_over(&self, driver: &Driver) -> bool {
        // An event of a context that is gone went with it, as did the work, and is not to be asked about.
        match self.device.context(driver) {
            Ok(_) => driver.event_is_done(self.event).unwrap_or(false),
            Err(_) => self.device.is_lost(),
        }
    }

    pub fn give_back(self) {
        stream::give_event(self.device, self.event);
    }
}

/// A page-locked buffer.
pub struct Buffer {
    address: u64,
    /// In whose context it was made; without that its pages are gone.
    home: &'static Device,
    pub fence: Option<Fence>,
}

impl Buffer {
    pub fn address(&self) -> u64 {
        self.address
    }

    fn make() -> Option<Buffer> {
        // Why there is none does not matter: the driver copies without.
        let address = alloc::allocate_pinned_for_own_use(BUFFER, alloc::intern(TAG)).ok()?;
        match alloc::find(address).and_then(|block| block.home()) {
            Some(home) => Some(Buffer { address, home, fence: None }),
            None => {
                let _ = alloc::free(address, &FreeOptions::default());
                None
            }
        }
    }

    /// Gives its memory back, when the lanes that used it are done.
    fn discard(self) {
        if let Some(fence) = self.fence {
            fence.give_back();
        }
        // Nobody else knows the block, so one that is refused is offered again later.
        let _ = alloc::free(self.address, &FreeOptions { home: Some(self.home), ..FreeOptions::default() });
    }
}

/// Buffers for one purpose.
pub struct Ring {
    /// Those that no copy has, the longest unused first.
    spare: Mutex<Vec<Buffer>>,
    made: AtomicUsize,
    taken: AtomicUsize,
    /// As many as there may be.
    most: fn() -> usize,
}

/// For copies from and to pageable memory: what the threads work on, and as much again on its way.
pub static PAGEABLE: Ring = Ring::new(|| 2 * (super::threads::count() as usize + 2));
/// For copies between GPUs.
pub static BETWEEN: Ring = Ring::new(|| 32);

/// Whether a copy can do with buffers that are still in use for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pending {
    /// The host has to wait for them, so none but those behind the copy's own stream.
    Own,
    /// A GPU waits for them; they come last.
    Any,
}

impl Ring {
    const fn new(most: fn() -> usize) -> Ring {
        Ring { spare: Mutex::new(Vec::new()), made: AtomicUsize::new(0), taken: AtomicUsize::new(0), most }
    }

    /// Up to so many buffers, those first that are not in use any more; none when there is no page-locked memory to be had.
    /// A GPU's context is current, which new ones are made in.
    pub fn take(
        &'static self,
        driver: &Driver,
        wanted: usize,
        behind: Behind,
        pending: Pending,
    ) -> TakenBuffers {
        // A copy takes no more than half of what is left, so that the next one finds something too.
        let left = (self.most)().saturating_sub(self.taken.load(Ordering::Relaxed));
        let wanted = wanted.min(left.div_ceil(2));
        let mut buffers = self.take_spare(driver, wanted, |_| false);
        while buffers.len() < wanted
            && let Some(buffer) = self.make()
        {
            buffers.push(buffer);
        }
        if buffers.len() < wanted {
            let own = |fence: &Fence| fence.behind == behind;
            buffers.extend(self.take_spare(driver, wanted - buffers.len(), own));
        }
        if pending == Pending::Any && buffers.len() < wanted {
            buffers.extend(self.take_spare(driver, wanted - buffers.len(), |_| true));
        }
        self.taken.fetch_add(buffers.len(), Ordering::Relaxed);
        TakenBuffers { ring: self, buffers, is_doubtful: false }
    }

    /// Those that no work is pending on, or none that matters.
    fn take_spare(&self, driver: &Driver, wanted: usize, can_wait: impl Fn(&Fence) -> bool) -> Vec<Buffer> {
        let (mut taken, mut gone) = (Vec::new(), Vec::new());
        // A device may be found to be lost, and whoever is told that may copy something.
        log::after(|| {
            let mut spare = self.spare.lock();
            for mut buffer in std::mem::take(&mut *spare) {
                if taken.len() == wanted {
                    spare.push(buffer);
                } else if buffer.home.require_present().is_err() {
                    gone.push(buffer);
                } else if buffer.fence.as_ref().is_none_or(|fence| fence.is_over(driver)) {
                    buffer.fence.take().into_iter().for_each(Fence::give_back);
                    taken.push(buffer);
                } else if buffer.fence.as_ref().is_some_and(&can_wait) {
                    taken.push(buffer);
                } else {
                    spare.push(buffer);
                }
            }
        });
        self.discard(gone);
        taken
    }

    fn make(&self) -> Option<Buffer> {
        let more = |made| (made < (self.most)()).then_some(made + 1);
        self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let buffer = Buffer::make();
        if buffer.is_none() {
            self.made.fetch_sub(1, Ordering::Relaxed);
        } else {
            alloc::set_keeper_of_pinned(give_back);
        }
        buffer
    }

    fn discard(&self, buffers: Vec<Buffer>) {
        self.made.fetch_sub(buffers.len(), Ordering::Relaxed);
        buffers.into_iter().for_each(Buffer::discard);
    }

    /// Keeps a buffer, or gives it back where that is not to be.
    fn put(&self, buffer: Buffer, is_good: bool) {
        let mut spare = self.spare.lock();
        // Asked under the lock: a shutdown that comes later finds what is put here.
        let keep = is_good
            && !buffer.home.is_lost()
            && self.made.load(Ordering::Relaxed) <= (self.most)()
            && runtime::require_live().is_ok();
        if keep {
            spare.push(buffer);
        } else {
            drop(spare);
            self.discard(vec![buffer]);
        }
    }
}

/// Buffers that one copy has.
pub struct TakenBuffers {
    ring: &'static Ring,
    pub buffers: Vec<Buffer>,
    /// Work may be pending on them that their fences know nothing of: they are not to be used again.
    pub is_doubtful: bool,
}

impl Drop for TakenBuffers {
    fn drop(&mut self) {
        self.ring.taken.fetch_sub(self.buffers.len(), Ordering::Relaxed);
        for buffer in self.buffers.drain(..) {
            self.ring.put(buffer, !self.is_doubtful);
        }
    }
}

/// Gives back all buffers that no copy has.
pub fn give_back() {
    // Their locks may be held by threads that a forked child does not have.
    if runtime::is_forked() {
        return;
    }
    for ring in [&PAGEABLE, &BETWEEN] {
        let spare = std::mem::take(&mut *ring.spare.lock());
        ring.discard(spare);
    }
}
