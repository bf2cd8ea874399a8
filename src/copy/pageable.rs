//! Large copies between pageable memory and a GPU, as a pipeline: the copy threads move memory from or to page-locked buffers
//! piece by piece, and what a buffer holds goes over to the GPU, or comes from it, as soon as it is whole. The driver's own copy
//! does the same with one thread. Only the calling thread calls the driver.

use super::lanes::{self, BUFFER, Behind, Done, Fence, Lane, PAGEABLE, Pending, TakenBuffers};
use super::threads::{self, Pieces};
use crate::device::Device;
use crate::driver::{Driver, Failure, RawEvent};
use crate::error::{Error, Result, fail};
use crate::handle::Entered;
use crate::runtime;
use crate::stream::{self, Stream};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// From this size on the driver's own copy is slower.
pub const FROM: u64 = 1 << 20;

const SMALLEST_CHUNK: u64 = 512 << 10;
/// A copy has at least so many chunks, and room for so many of them, unless they get too small.
const CHUNKS: u64 = 8;
const ROOM: u64 = 6;
/// Pieces that threads take of each chunk.
const PIECES: u64 = 8;
/// As many buffers as a copy takes.
const BUFFERS: u64 = 8;

/// Whether a copy of so many bytes is to come here.
pub fn serves(size: u64) -> bool {
    size >= FROM && threads::count() != 0 && !runtime::is_forked()
}

/// The GPU of a copy, and the stream that it is ordered in. Its context is current, the thread's capture mode is relaxed.
pub struct Gpu<'a> {
    pub driver: &'static Driver,
    pub device: &'static Device,
    pub stream: &'a Entered<Stream>,
}

/// Copies `size` bytes to the GPU's memory at `dest`. `fill` is called with ranges of the copy's bytes, each byte being in one of
/// them, and the address of the buffer that these bytes are to be written to; from several threads at once. All of them were read
/// when this returns; the rest happens in the order of the stream.
pub fn upload(gpu: &Gpu<'_>, dest: u64, size: u64, fill: &(dyn Fn(Range<u64>, u64) + Sync)) -> Result<Done> {
    let Some((mut pipe, bays)) = Pipe::open(gpu, dest, size)? else { return Ok(Done::NoBuffers) };
    if !pipe.begin()? {
        return Ok(Done::Captured);
    }
    let sent = bays.work(fill, |pieces| pipe.send_all(&bays, pieces));
    let tied = sent.and_then(|last| pipe.tie(last));
    pipe.finish(tied)
}

/// Copies `size` bytes of the GPU's memory at `src`. As `upload`, with `drain` reading from the buffer; all bytes were written when
/// this returns.
pub fn download(
    gpu: &Gpu<'_>,
    src: u64,
    size: u64,
    drain: &(dyn Fn(Range<u64>, u64) + Sync),
) -> Result<Done> {
    let Some((mut pipe, bays)) = Pipe::open(gpu, src, size)? else { return Ok(Done::NoBuffers) };
    if !pipe.begin()? {
        return Ok(Done::Captured);
    }
    let fetched = bays.work(drain, |pieces| pipe.fetch_all(&bays, pieces));
    pipe.finish(fetched)
}

/// How the bytes of a copy are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Division {
    size: u64,
    chunk: u64,
    /// Of each chunk.
    pieces: u64,
}

impl Division {
    /// For so many bytes of buffers.
    fn new(size: u64, room: u64) -> Division {
        let chunk = lanes::chunk((size / CHUNKS).min(room / ROOM), SMALLEST_CHUNK);
        Division { size, chunk, pieces: PIECES }
    }

    fn chunks(&self) -> u64 {
        self.size.div_ceil(self.chunk)
    }

    fn range(&self, chunk: u64) -> Range<u64> {
        let start = chunk * self.chunk;
        start..self.size.min(start + self.chunk)
    }

    /// The chunk of a piece and its bytes; of the last chunk some pieces are empty.
    fn piece(&self, number: u64) -> (u64, Range<u64>) {
        let chunk = number / self.pieces;
        let whole = self.range(chunk);
        let step = self.chunk / self.pieces;
        let start = whole.start + number % self.pieces * step;
        (chunk, start.min(whole.end)..whole.end.min(start + step))
    }
}

/// Where the chunks pass through, each in its turn: the part of a pipeline that the threads see.
struct Bays {
    division: Division,
    bays: Vec<Bay>,
}

struct Bay {
    address: u64,
    /// Pieces of its present chunk that the threads have not moved yet.
    left: AtomicU64,
}

impl Bays {
    fn of(&self, chunk: u64) -> (usize, &Bay) {
        let at = (chunk % self.bays.len() as u64) as usize;
        (at, &self.bays[at])
    }

    fn count(&self) -> u64 {
        self.bays.len() as u64
    }

    fn is_moved(&self, chunk: u64) -> bool {
        self.of(chunk).1.left.load(Ordering::Acquire) == 0
    }

    fn work<R>(
        &self,
        move_bytes: &(dyn Fn(Range<u64>, u64) + Sync),
        lead: impl FnOnce(&Pieces<'_>) -> R,
    ) -> R {
        let work = |number| {
            let (chunk, bytes) = self.division.piece(number);
            let bay = self.of(chunk).1;
            if !bytes.is_empty() {
                let address = bay.address + bytes.start % self.division.chunk;
                move_bytes(bytes, address);
            }
            bay.left.fetch_sub(1, Ordering::Release);
        };
        threads::with(&work, lead)
    }
}

/// The part of a pipeline that calls the driver.
struct Pipe<'a> {
    gpu: &'a Gpu<'a>,
    /// The memory of the GPU.
    address: u64,
    behind: Behind,
    lane: Lane,
    taken: TakenBuffers,
    /// Of each bay.
    marks: Vec<Mark>,
    /// Whether copies may be on their way that no mark tells of.
    is_unmarked: bool,
}

struct Mark {
    event: RawEvent,
    /// Behind the bay's last copy, which is not known to be done.
    is_pending: bool,
    /// The number of that copy on the lane.
    number: u64,
    /// The buffer that the bay lies in.
    buffer: usize,
}

impl<'a> Pipe<'a> {
    /// `None` without buffers.
    fn open(gpu: &'a Gpu<'a>, address: u64, size: u64) -> Result<Option<(Pipe<'a>, Bays)>> {
        let Gpu { driver, device, stream } = *gpu;
        let behind = Behind::of(stream);
        let wanted = size.div_ceil(BUFFER).min(BUFFERS);
        let taken = PAGEABLE.take(driver, wanted as usize, behind, Pending::Own);
        if taken.buffers.is_empty() {
            return Ok(None);
        }
        let lane = Lane::take(driver, device, behind)?;
        let division = Division::new(size, taken.buffers.len() as u64 * BUFFER);
        let mut pipe = Pipe { gpu, address, behind, lane, taken, marks: Vec::new(), is_unmarked: false };
        let mut bays = Bays { division, bays: Vec::new() };
        let each = BUFFER / division.chunk;
        for at in 0..division.chunks().min(each * pipe.taken.buffers.len() as u64) {
            let buffer = (at / each) as usize;
            let address = pipe.taken.buffers[buffer].address() + at % each * division.chunk;
            bays.bays.push(Bay { address, left: AtomicU64::new(0) });
            let event = stream::take_event(device, driver)?;
            pipe.marks.push(Mark { event, is_pending: false, number: 0, buffer });
        }
        Ok(Some((pipe, bays)))
    }

    /// Has the lane come behind the stream. False when that is captured.
    fn begin(&mut self) -> Result<bool> {
        let follows = self.lane.follow(self.gpu.driver, self.gpu.stream)?;
        if follows {
            self.taken.buffers.iter().for_each(|buffer| self.lane.uses(buffer.address()));
        }
        Ok(follows)
    }

    fn error(&self, failure: Failure) -> Error {
        self.gpu.device.error(self.gpu.driver, failure).context("a copy")
    }

    /// Sends chunk after chunk to the GPU. Gives the bay of the last one.
    fn send_all(&mut self, bays: &Bays, pieces: &Pieces<'_>) -> Result<usize> {
        let chunks = bays.division.chunks();
        let (mut opened, mut sent) = (0, 0);
        while sent < chunks {
            let before = opened;
            while opened < chunks && opened - sent < bays.count() && self.is_done(bays.of(opened).0)? {
                bays.of(opened).1.left.store(bays.division.pieces, Ordering::Relaxed);
                opened += 1;
            }
            if opened != before {
                pieces.offer(opened * bays.division.pieces);
            }
            if sent == opened {
                self.wait(bays.of(opened).0)?;
            } else if bays.is_moved(sent) {
                let (range, (at, bay)) = (bays.division.range(sent), bays.of(sent));
                self.copy(at, self.address + range.start, bay.address, range.end - range.start, sent)?;
                sent += 1;
            } else if !pieces.help() {
                wait_for_threads(bays, pieces, sent)?;
            }
        }
        Ok(bays.of(chunks - 1).0)
    }

    /// Fetches chunk after chunk from the GPU.
    fn fetch_all(&mut self, bays: &Bays, pieces: &Pieces<'_>) -> Result<()> {
        let chunks = bays.division.chunks();
        let (mut asked, mut opened) = (0, 0);
        while opened < chunks {
            while asked < chunks && asked - opened < bays.count() && bays.is_moved(asked) {
                let (range, (at, bay)) = (bays.division.range(asked), bays.of(asked));
                // What still reads from the buffer was put there for the same stream, and comes before.
                bay.left.store(bays.division.pieces, Ordering::Relaxed);
                self.copy(at, bay.address, self.address + range.start, range.end - range.start, asked)?;
                self.pass_fence(at);
                asked += 1;
            }
            let before = opened;
            while opened < asked && self.is_done(bays.of(opened).0)? {
                opened += 1;
            }
            if opened != before {
                pieces.offer(opened * bays.division.pieces);
            }
            if opened == chunks || pieces.help() {
                continue;
            }
            if opened < asked {
                self.wait(bays.of(opened).0)?;
            } else {
                wait_for_threads(bays, pieces, asked)?;
            }
        }
        // It ends when what others have begun is done.
        while pieces.help() {}
        Ok(())
    }

    /// Puts one copy on the lane, and the mark of the bay behind it.
    fn copy(&mut self, at: usize, dest: u64, src: u64, size: u64, number: u64) -> Result<()> {
        let (driver, lane) = (self.gpu.driver, self.lane.native());
        self.is_unmarked = true;
        driver.copy(dest, src, size as usize, lane).map_err(|f| self.error(f))?;
        let mark = &mut self.marks[at];
        (mark.is_pending, mark.number) = (true, number);
        let recorded = driver.record_event(mark.event, lane);
        recorded.map_err(|f| self.error(f))?;
        self.is_unmarked = false;
        Ok(())
    }

    /// Whether the copies are done that a bay was used for.
    fn is_done(&mut self, at: usize) -> Result<bool> {
        let driver = self.gpu.driver;
        if self.marks[at].is_pending {
            if !driver.event_is_done(self.marks[at].event).map_err(|f| self.error(f))? {
                return Ok(false);
            }
            self.marks[at].is_pending = false;
        }
        let fence = self.taken.buffers[self.marks[at].buffer].fence.as_ref();
        if fence.is_some_and(|fence| !fence.is_over(driver)) {
            return Ok(false);
        }
        self.pass_fence(at);
        Ok(true)
    }

    /// Waits for them.
    fn wait(&mut self, at: usize) -> Result<()> {
        let mark = &self.marks[at];
        let fence = self.taken.buffers[mark.buffer].fence.as_ref().map(Fence::event);
        let event = if mark.is_pending { Some(mark.event) } else { fence };
        event.map_or(Ok(()), |event| self.gpu.driver.synchronize_event(event)).map_err(|f| self.error(f))
    }

    /// What used the buffer of a bay before this copy did is over, or comes before what is marked.
    fn pass_fence(&mut self, at: usize) {
        let fence = self.taken.buffers[self.marks[at].buffer].fence.take();
        fence.into_iter().for_each(Fence::give_back);
    }

    /// Has the stream wait for the last copy, whose bay is given.
    fn tie(&mut self, last: usize) -> Result<()> {
        lanes::tie(self.gpu.driver, self.gpu.stream, self.marks[last].event)
    }

    /// After a failure what is on its way is waited for, so that nothing is used too early by who does not know of it.
    fn finish(mut self, outcome: Result<()>) -> Result<Done> {
        if outcome.is_err() && (self.is_unmarked || self.marks.iter().any(|mark| mark.is_pending)) {
            if self.gpu.driver.synchronize_stream(self.lane.native()).is_ok() {
                self.marks.iter_mut().for_each(|mark| mark.is_pending = false);
            } else {
                self.taken.is_doubtful = true;
                self.lane.uses(self.address);
            }
        }
        outcome.map(|()| Done::Copied)
    }
}

impl Drop for Pipe<'_> {
    fn drop(&mut self) {
        let device = self.gpu.device;
        // In the order of the lane, so that the latest copy of each buffer is its fence in the end.
        self.marks.sort_by_key(|mark| mark.number);
        for mark in self.marks.drain(..) {
            if mark.is_pending {
                let fence = Fence::new(device, mark.event, self.behind);
                let former = self.taken.buffers[mark.buffer].fence.replace(fence);
                former.into_iter().for_each(Fence::give_back);
            } else {
                stream::give_event(device, mark.event);
            }
        }
    }
}

/// Waits until the threads have moved a chunk, whose pieces all have been begun.
fn wait_for_threads(bays: &Bays, pieces: &Pieces<'_>, chunk: u64) -> Result<()> {
    if pieces.wait_until(|| bays.is_moved(chunk)) {
        return Ok(());
    }
    fail!(Internal, "a piece of a copy was not moved")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_one_piece_of_its_chunk() {
        for size in [FROM, FROM + 1, 4 << 20, (4 << 20) - 1, (64 << 20) + 12_345, 3 << 30] {
            for buffers in 1..=BUFFERS {
                let division = Division::new(size, buffers * BUFFER);
                assert!(division.chunk.is_power_of_two() && BUFFER.is_multiple_of(division.chunk));
                assert!(division.chunk.is_multiple_of(division.pieces));
                let mut end = 0;
                for number in 0..division.chunks() * division.pieces {
                    let (chunk, bytes) = division.piece(number);
                    assert_eq!(bytes.start, end, "{division:?}");
                    let whole = division.range(chunk);
                    assert!(whole.start <= bytes.start && bytes.end <= whole.end);
                    assert!(bytes.is_empty() || bytes.start / division.chunk == chunk);
                    end = bytes.end;
                }
                assert_eq!(end, size);
            }
        }
    }

    #[test]
    fn chunks_suit_the_copy_and_its_buffers() {
        let chunk_of = |size, buffers| Division::new(size, buffers * BUFFER).chunk;
        assert_eq!(chunk_of(1 << 20, 1), SMALLEST_CHUNK);
        assert_eq!(chunk_of(8 << 20, 2), 1 << 20);
        assert_eq!(chunk_of(16 << 20, 4), 2 << 20);
        assert_eq!(chunk_of(2 << 30, 8), BUFFER);
        assert_eq!(chunk_of(2 << 30, 2), 1 << 20);
    }
}
