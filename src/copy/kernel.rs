//! Copies and fills by a GPU's own kernels: what the driver has no call for, or a slow one.
//!
//! - `pieces`: a plan cut so that 31 bits are enough for a kernel's arithmetic.
//! - `parameters`: what the kernels in `copy.ptx` are told, and how many threads they get.
//! - `load`: the kernels in each device's context.

mod load;
mod parameters;
mod pieces;
#[cfg(test)]
mod tests;

pub use parameters::is_short;

use super::plan::Plan;
use crate::device::Device;
use crate::driver::{Driver, Failure, Launch, RawFunction, RawStream};
use crate::error::Result;
use load::Kernels;
use parameters::{Any, Few, FillRest, FillShort, Rows, Side, Tile};
use pieces::{Block, Reach};
use std::ops::Range;

/// Whether the GPU can run the kernels. The device has a context, current or not, and the thread's capture mode is relaxed, since
/// they are loaded at the first question.
pub fn is_available(driver: &'static Driver, device: &'static Device) -> Result<bool> {
    // One that only other code has made so far is held from now on.
    device.context(driver)?;
    match load::kernels(driver, device) {
        Ok(_) => Ok(true),
        Err(f) if f.is_program_refused() => Ok(false),
        Err(f) => Err(device.error(driver, f).context("the kernels for copies")),
    }
}

/// Has the GPU copy the bytes of a plan that are numbered by a range, in the order of the stream. Items that index arrays
/// put outside of the data are left out.
///
/// The device's context is current, the thread's capture mode is relaxed, and the GPU may touch both ends, which share no
/// byte, and the index arrays.
pub fn run(
    driver: &'static Driver,
    device: &'static Device,
    plan: &Plan,
    range: Range<u64>,
    stream: RawStream,
) -> std::result::Result<(), Failure> {
    gpu(driver, device, stream)?.copy(plan, range)
}

/// Has the GPU fill `size` bytes with repetitions of a short pattern, the last of which may be cut off. As `run`.
pub fn fill_pattern(
    driver: &'static Driver,
    device: &'static Device,
    dest: u64,
    size: u64,
    pattern: &[u8],
    stream: RawStream,
) -> std::result::Result<(), Failure> {
    gpu(driver, device, stream)?.fill(dest, size, pattern)
}

/// Has the GPU repeat the first `length` bytes of memory over the rest of its `size` bytes, the last of which may be cut off. As
/// `run`.
pub fn fill_rest(
    driver: &'static Driver,
    device: &'static Device,
    dest: u64,
    size: u64,
    length: u64,
    stream: RawStream,
) -> std::result::Result<(), Failure> {
    gpu(driver, device, stream)?.fill_rest(dest, size, length)
}

fn gpu(
    driver: &'static Driver,
    device: &'static Device,
    stream: RawStream,
) -> std::result::Result<Gpu<'static>, Failure> {
    let multiprocessors = device.facts().multiprocessor_count.max(1) as u32;
    Ok(Gpu { driver, kernels: load::kernels(driver, device)?, multiprocessors, stream })
}

/// Where kernels are launched.
struct Gpu<'k> {
    driver: &'k Driver,
    kernels: &'k Kernels,
    multiprocessors: u32,
    stream: RawStream,
}

/// What divides a plan's bytes evenly, and a range's ends.
fn word_of(plan: &Plan, range: &Range<u64>) -> u64 {
    1 << (plan.word() | range.start | range.end).trailing_zeros()
}

/// A range in three: whole parts of `size` bytes, and what is before and behind those.
fn whole_parts(range: &Range<u64>, size: u64) -> (Range<u64>, Range<u64>, Range<u64>) {
    let start = range.start.checked_next_multiple_of(size).map_or(range.end, |start| start.min(range.end));
    let end = (range.end / size * size).max(start);
    (range.start..start, start..end, end..range.end)
}

impl Gpu<'_> {
    fn copy(&self, plan: &Plan, range: Range<u64>) -> std::result::Result<(), Failure> {
        if range.is_empty() {
            return Ok(());
        }
        let word = word_of(plan, &range);
        if let Some(outermost) = plan.axes.first()
            && Tile::of(plan, word).is_some()
        {
            let (before, whole, behind) = whole_parts(&range, plan.size() / outermost.extent);
            self.copy_words(plan, before, word)?;
            self.copy_tiles(plan, whole, word)?;
            return self.copy_words(plan, behind, word);
        }
        if Rows::pay(plan, word) && Rows::fits(&Block::of_rows(plan, Rows::units(plan.row)), plan.row) {
            let (before, whole, behind) = whole_parts(&range, plan.row);
            self.copy_words(plan, before, word)?;
            self.copy_rows(plan, whole, word)?;
            return self.copy_words(plan, behind, word);
        }
        self.copy_words(plan, range, word)
    }

    /// Whole steps of the outermost axis of what is turned round; or word by word, when so few of them do not pay.
    fn copy_tiles(&self, plan: &Plan, range: Range<u64>, word: u64) -> std::result::Result<(), Failure> {
        let Some(outermost) = plan.axes.first() else { return Ok(()) };
        let step = plan.size() / outermost.extent;
        let (from, count) = (range.start / step, (range.end - range.start) / step);
        if count == 0 {
            return Ok(());
        }
        let mut part = plan.clone();
        let by = |stride: i64| stride.wrapping_mul(from as i64);
        part.dest = part.dest.wrapping_add_signed(by(outermost.dest.stride));
        part.src = part.src.wrapping_add_signed(by(outermost.src.stride));
        part.axes[0].extent = count;
        match Tile::of(&part, word) {
            Some((tile, side)) => {
                let kernel = match side {
                    Side::Narrow => self.kernels.copy_tile,
                    Side::Wide => self.kernels.copy_wide_tile,
                };
                self.launch(kernel, tile.launch(side, self.multiprocessors), &tile)
            }
            None => self.copy_words(plan, range, word),
        }
    }

    /// Whole rows, which may begin anywhere.
    fn copy_rows(&self, plan: &Plan, range: Range<u64>, word: u64) -> std::result::Result<(), Failure> {
        let units = Rows::units(plan.row);
        let block = Block::of_rows(plan, units);
        let rows = range.start / plan.row * units..range.end / plan.row * units;
        if !block.is_near(&rows, 1) {
            return self.copy_words(plan, range, word);
        }
        block.cut(rows, Reach::Near(1), &mut |piece| match Rows::of(&piece, plan.row) {
            Some(rows) => self.launch(self.kernels.copy_rows, rows.launch(self.multiprocessors), &rows),
            None => Err(too_many_axes()),
        })
    }

    fn copy_words(&self, plan: &Plan, range: Range<u64>, word: u64) -> std::result::Result<(), Failure> {
        let words = range.start / word..range.end / word;
        let block = Block::of_words(plan, word);
        if Few::fits(&block) && block.is_near(&words, word) {
            return block.cut(words, Reach::Near(word), &mut |piece| match Few::of(&piece, word) {
                Some(few) => self.launch(self.kernels.copy_few, few.launch(self.multiprocessors), &few),
                None => Err(too_many_axes()),
            });
        }
        block.cut(words, Reach::Any, &mut |piece| match Any::of(&piece, word) {
            Some(any) => self.launch(self.kernels.copy_any, any.launch(self.multiprocessors), &any),
            None => Err(too_many_axes()),
        })
    }

    fn fill(&self, dest: u64, size: u64, pattern: &[u8]) -> std::result::Result<(), Failure> {
        if size == 0 {
            return Ok(());
        }
        let (fill, launch) =
            FillShort::of(dest, size, pattern, self.multiprocessors).ok_or_else(too_long_a_pattern)?;
        self.launch(self.kernels.fill_short, launch, &fill)
    }

    fn fill_rest(&self, dest: u64, size: u64, length: u64) -> std::result::Result<(), Failure> {
        let needed = FillRest::needed(dest, length);
        let rest = if needed < size {
            Some(FillRest::of(dest, size, length, self.multiprocessors).ok_or_else(too_long_a_pattern)?)
        } else {
            None
        };
        let (mut done, needed) = (length, needed.min(size));
        while done < needed {
            let step = done.min(needed - done);
            self.driver.copy(dest + done, dest, step as usize, self.stream)?;
            done += step;
        }
        match rest {
            Some((fill, launch)) => self.launch(self.kernels.fill_rest, launch, &fill),
            None => Ok(()),
        }
    }

    fn launch<P: Copy>(
        &self,
        kernel: RawFunction,
        launch: Launch,
        parameters: &P,
    ) -> std::result::Result<(), Failure> {
        // SAFETY: each kernel is given what was built for it, and touches the places of a plan, or of what is to be filled, and
        // no others.
        unsafe { self.driver.launch(kernel, launch, parameters, self.stream) }
    }
}

fn too_long_a_pattern() -> Failure {
    Failure::missing("a kernel for so long a pattern")
}

/// Arrays have no more axes than the kernels take.
fn too_many_axes() -> Failure {
    Failure::missing("a kernel for so many axes")
}
