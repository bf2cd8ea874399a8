//! Large copies from one GPU to another where neither reaches the other's memory: through a ring of page-locked buffers, so that
//! a chunk leaves the one while the one before it enters the other. The driver's own copy takes turns. The host waits for nothing.

use super::lanes::{self, BETWEEN, BUFFER, Behind, Done, Fence, Lane, Pending, TakenBuffers};
use crate::device::Device;
use crate::driver::{Driver, Failure, RawEvent};
use crate::error::{Error, Result};
use crate::handle::Entered;
use crate::stream::{self, Stream};

/// From this size on the driver's own copy is slower.
pub const FROM: u64 = 8 << 20;

const SMALLEST_CHUNK: u64 = 1 << 20;
/// A copy has at least so many chunks, unless they get too small.
const CHUNKS: u64 = 8;
/// As many buffers as a copy takes.
const BUFFERS: u64 = 4;

/// Copies `size` bytes in the order of the stream, which is of either device. Its context is current, the thread's capture mode is
/// relaxed.
pub fn copy(
    dest: (u64, &'static Device),
    src: (u64, &'static Device),
    size: u64,
    stream: &Entered<Stream>,
) -> Result<Done> {
    let driver = stream.device().require_cuda("a copy")?;
    let wanted = size.div_ceil(BUFFER).min(BUFFERS);
    let behind = Behind::of(stream);
    let taken = BETWEEN.take(driver, wanted as usize, behind, Pending::Any);
    if taken.buffers.is_empty() {
        return Ok(Done::NoBuffers);
    }
    let from = Lane::take(driver, src.1, behind)?;
    let to = Lane::take(driver, dest.1, behind)?;
    let mut bridge = Bridge { driver, stream, dest, src, from, to, taken, stops: Vec::new(), is_used: false };
    bridge.build(size)?;
    if !bridge.begin()? {
        return Ok(Done::Captured);
    }
    let copied = bridge.cross(size).and_then(|last| bridge.tie(last));
    bridge.finish(copied, behind)
}

struct Bridge<'a> {
    driver: &'static Driver,
    stream: &'a Entered<Stream>,
    dest: (u64, &'static Device),
    src: (u64, &'static Device),
    /// On the source's GPU.
    from: Lane,
    /// On the destination's.
    to: Lane,
    taken: TakenBuffers,
    stops: Vec<Stop>,
    /// Whether something was put on the lanes.
    is_used: bool,
}

/// Where chunks stop between the GPUs.
struct Stop {
    address: u64,
    buffer: usize,
    /// Behind the chunk's way in, on the source's lane.
    came: RawEvent,
    /// Behind its way out, on the destination's.
    left: RawEvent,
    is_used: bool,
    /// The number of its last chunk.
    number: u64,
}

impl Bridge<'_> {
    fn build(&mut self, size: u64) -> Result<()> {
        let chunk = lanes::chunk(size / CHUNKS, SMALLEST_CHUNK);
        let each = BUFFER / chunk;
        for at in 0..size.div_ceil(chunk).min(each * self.taken.buffers.len() as u64) {
            let buffer = (at / each) as usize;
            let address = self.taken.buffers[buffer].address() + at % each * chunk;
            let came = self.event_of(self.src.1)?;
            let left = self.event_of(self.dest.1).inspect_err(|_| stream::give_event(self.src.1, came))?;
            self.stops.push(Stop { address, buffer, came, left, is_used: false, number: 0 });
        }
        Ok(())
    }

    fn event_of(&self, device: &'static Device) -> Result<RawEvent> {
        let _context = device.enter(self.driver)?;
        stream::take_event(device, self.driver)
    }

    fn error(&self, device: &Device, failure: Failure) -> Error {
        device.error(self.driver, failure).context("a copy")
    }

    /// Has the source's lane come behind the stream; the other one waits for that. False when the stream is captured.
    fn begin(&mut self) -> Result<bool> {
        let follows = self.from.follow(self.driver, self.stream)?;
        if follows {
            for buffer in &self.taken.buffers {
                self.from.uses(buffer.address());
                self.to.uses(buffer.address());
            }
        }
        Ok(follows)
    }

    /// Puts everything on the lanes. Gives the event behind all of it.
    fn cross(&mut self, size: u64) -> Result<Option<RawEvent>> {
        let chunk = lanes::chunk(size / CHUNKS, SMALLEST_CHUNK);
        let mut last = None;
        for number in 0..size.div_ceil(chunk) {
            let at = (number % self.stops.len() as u64) as usize;
            let start = number * chunk;
            let bytes = chunk.min(size - start);
            self.enter_stop(at, self.src.0 + start, bytes)?;
            self.leave_stop(at, self.dest.0 + start, bytes)?;
            (self.stops[at].is_used, self.stops[at].number) = (true, number);
            last = Some(self.stops[at].left);
        }
        Ok(last)
    }

    fn enter_stop(&mut self, at: usize, src: u64, bytes: u64) -> Result<()> {
        let (driver, lane, device) = (self.driver, self.from.native(), self.src.1);
        let _context = device.enter(driver)?;
        let stop = &self.stops[at];
        let fence = self.taken.buffers[stop.buffer].fence.as_ref();
        let before = if stop.is_used { Some(stop.left) } else { fence.map(Fence::event) };
        self.is_used = true;
        let entered = before
            .map_or(Ok(()), |event| driver.wait_event(lane, event))
            .and_then(|()| driver.copy(stop.address, src, bytes as usize, lane))
            .and_then(|()| driver.record_event(stop.came, lane));
        entered.map_err(|f| self.error(device, f))
    }

    fn leave_stop(&mut self, at: usize, dest: u64, bytes: u64) -> Result<()> {
        let (driver, lane, device) = (self.driver, self.to.native(), self.dest.1);
        let _context = device.enter(driver)?;
        let stop = &self.stops[at];
        let left = driver
            .wait_event(lane, stop.came)
            .and_then(|()| driver.copy(dest, stop.address, bytes as usize, lane))
            .and_then(|()| driver.record_event(stop.left, lane));
        left.map_err(|f| self.error(device, f))
    }

    /// Has the stream wait for the last chunk.
    fn tie(&mut self, last: Option<RawEvent>) -> Result<()> {
        last.map_or(Ok(()), |last| lanes::tie(self.driver, self.stream, last))
    }

    /// Gives the buffers their fences. After a failure what is on its way is waited for, so that nothing is used too early by who
    /// does not know of it.
    fn finish(mut self, outcome: Result<()>, behind: Behind) -> Result<Done> {
        if outcome.is_ok() {
            self.stops.sort_by_key(|stop| stop.number);
            for stop in self.stops.drain(..) {
                stream::give_event(self.src.1, stop.came);
                let fence = Fence::new(self.dest.1, stop.left, behind);
                let former = self.taken.buffers[stop.buffer].fence.replace(fence);
                former.into_iter().for_each(Fence::give_back);
            }
        } else if self.is_used {
            let lanes = [&self.from, &self.to];
            let waited = lanes.map(|lane| self.driver.synchronize_stream(lane.native()));
            if waited.iter().any(|waited| waited.is_err()) {
                self.taken.is_doubtful = true;
                self.from.uses(self.src.0);
                self.to.uses(self.dest.0);
            }
        }
        outcome.map(|()| Done::Copied)
    }
}

impl Drop for Bridge<'_> {
    fn drop(&mut self) {
        for stop in self.stops.drain(..) {
            stream::give_event(self.src.1, stop.came);
            stream::give_event(self.dest.1, stop.left);
        }
    }
}
