//! The parameters of the kernels in `copy.ptx`, which reads them by their offsets.
#![forbid(unsafe_code)]

mod fill;
#[cfg(test)]
mod tests;
mod tile;

pub use fill::{FillRest, FillShort, is_short};
pub use tile::{Side, Tile};

use super::super::plan::{Axis, Index, Plan, Step, Which};
use super::pieces::{Block, Piece};
use crate::driver::Launch;

/// Threads of a block.
const THREADS: u32 = 256;
/// Blocks for each multiprocessor at most. Many more than can run at a time: those that wait make up for others that take longer.
const BLOCKS: u32 = 1024;
/// Bytes of memory that are best written by one warp: less than a sector of 32 is read before.
const LINE: u64 = 128;
const SECTOR: u64 = 32;
/// Bytes that a thread moves at once at most.
const UNIT: u64 = 16;

/// How numbers below 2^31 are divided: `(n * magic >> 32) >> shift`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Divisor {
    magic: u32,
    shift: u32,
}

impl Divisor {
    /// By at least 2. By less there is nothing to divide but zeros, and they stay zeros.
    fn by(divisor: u32) -> Divisor {
        if divisor < 2 {
            return Divisor::default();
        }
        // With 2^shift < divisor <= 2^(shift + 1) this is 2^(32 + shift) / divisor, rounded up by less than a part of
        // 2^(shift + 1), which is too little to show in a quotient of 31 bits.
        let shift = (divisor - 1).ilog2();
        let magic = (1_u64 << (32 + shift)).div_ceil(u64::from(divisor));
        Divisor { magic: magic as u32, shift }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Head {
    dest: u64,
    src: u64,
    first: u32,
    count: u32,
    axes: u32,
    /// The words' size as a power of two; for rows, bytes of each.
    word: u32,
}

impl Head {
    fn of(piece: &Piece, axes: usize, word: u32) -> Head {
        let Piece { block, first, end } = piece;
        Head { dest: block.dest, src: block.src, first: *first, count: end - first, axes: axes as u32, word }
    }

    /// Threads for its words, so many for each, and some more before the first.
    fn launch(&self, lead: u32, words_at_once: u32, multiprocessors: u32) -> Launch {
        let all = self.count + lead;
        let threads = all.next_multiple_of(32).clamp(32, THREADS);
        let blocks = all.div_ceil(threads * words_at_once).clamp(1, most_blocks(multiprocessors));
        Launch { blocks, threads, shared: 0 }
    }
}

/// Threads that do nothing, before the one that moves the first word: so many that warps begin where lines of the destination
/// do, as far as its words lie together.
fn lead(piece: &Piece, word: u64) -> u32 {
    let block = &piece.block;
    let is_known = block.axes.iter().all(|axis| axis.dest.index.is_none());
    let is_dense = block.axes.first().is_some_and(|axis| axis.dest.stride == word as i64);
    if is_known && is_dense { (block.dest_of(u64::from(piece.first)) % LINE / word) as u32 } else { 0 }
}

/// How often the axes so far have been gone through, and what one more time adds to the places of both ends.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Turn {
    by: Divisor,
    dest: i32,
    src: i32,
}

impl Turn {
    /// From an axis to the one around it.
    fn between(inner: &Axis, outer: &Axis, unit: i64) -> Turn {
        let adds = |inner_step: Step, outer_step: Step| {
            let back = (inner.extent as i64).wrapping_mul(inner_step.stride / unit);
            (outer_step.stride / unit).wrapping_sub(back) as i32
        };
        Turn {
            by: Divisor::by(inner.extent as u32),
            dest: adds(inner.dest, outer.dest),
            src: adds(inner.src, outer.src),
        }
    }
}

/// Fills in what is between axes; `None` when there are more of them than turns, or index arrays.
fn turns(turns: &mut [Turn], axes: &[Axis], unit: i64) -> Option<()> {
    for (at, pair) in axes.windows(2).enumerate() {
        *turns.get_mut(at)? = Turn::between(&pair[0], &pair[1], unit);
    }
    axes.iter().all(|axis| axis.dest.index.is_none() && axis.src.index.is_none()).then_some(())
}

/// Of `copy_few`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Few {
    head: Head,
    lead: u32,
    dest: i32,
    src: i32,
    turns: [Turn; 3],
    _rest: u32,
}

impl Few {
    /// Of a piece whose words lie near each other.
    pub fn of(piece: &Piece, word: u64) -> Option<Few> {
        let axes = &piece.block.axes;
        let unit = word as i64;
        let mut few = Few { lead: lead(piece, word), ..Few::default() };
        turns(&mut few.turns, axes, unit)?;
        if let Some(innermost) = axes.first() {
            few.dest = (innermost.dest.stride / unit) as i32;
            few.src = (innermost.src.stride / unit) as i32;
        }
        few.head = Head::of(piece, axes.len().saturating_sub(1), word.trailing_zeros());
        Some(few)
    }

    pub fn launch(&self, multiprocessors: u32) -> Launch {
        self.head.launch(self.lead, 4, multiprocessors)
    }

    pub fn fits(block: &Block) -> bool {
        block.axes.len() <= 4 && !block.is_indexed()
    }
}

/// Of `copy_rows`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Rows {
    head: Head,
    /// Units begin where sectors do.
    _lead: u32,
    minus_units: i32,
    units: Divisor,
    dest: i32,
    src: i32,
    turns: [Turn; 2],
    _rest: [u32; 2],
}

impl Rows {
    /// The shortest rows for which it pays. The kernel needs 32 bytes.
    pub const SHORTEST: u64 = 64;

    /// Whether rows are better taken apart by their bytes than by words: those are small, or warps would write parts of sectors.
    pub fn pay(plan: &Plan, word: u64) -> bool {
        let ends = plan.axes.iter().fold(plan.dest | plan.row, |all, axis| all | axis.dest.stride as u64);
        word < 8 || !ends.is_multiple_of(SECTOR) && !plan.is_linear(Which::Dest)
    }

    /// Units of 16 bytes in the sectors that a row may lie in.
    pub fn units(row: u64) -> u64 {
        (row + SECTOR - 1).div_ceil(SECTOR) * (SECTOR / UNIT)
    }

    /// Of a piece of rows, by their units.
    pub fn of(piece: &Piece, row: u64) -> Option<Rows> {
        let units = Rows::units(row) as u32;
        // The first one is that of the units, whose places the kernel finds by itself.
        let axes = piece.block.axes.get(1..)?;
        let mut rows =
            Rows { minus_units: (units as i32).wrapping_neg(), units: Divisor::by(units), ..Rows::default() };
        turns(&mut rows.turns, axes, 1)?;
        if let Some(innermost) = axes.first() {
            rows.dest = innermost.dest.stride as i32;
            rows.src = innermost.src.stride as i32;
        }
        rows.head = Head::of(piece, axes.len().saturating_sub(1), row as u32);
        Some(rows)
    }

    pub fn launch(&self, multiprocessors: u32) -> Launch {
        self.head.launch(0, 2, multiprocessors)
    }

    pub fn fits(block: &Block, row: u64) -> bool {
        row >= Rows::SHORTEST && Rows::units(row) < 1 << 30 && block.axes.len() <= 4 && !block.is_indexed()
    }
}

/// An axis of `copy_any`.
#[repr(C, align(16))]
#[derive(Clone, Copy, Default)]
struct AnyAxis {
    by: Divisor,
    minus_extent: i32,
    kind: u32,
    dest: i64,
    src: i64,
    dest_index: AnyIndex,
    src_index: AnyIndex,
    dest_limit: u32,
    src_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct AnyIndex {
    address: u64,
    stride: i64,
}

/// An index array, whether there is one, and the kind bit for one whose numbers lie at no multiples of their size.
fn indexed(index: Option<Index>) -> (AnyIndex, u32, u32) {
    let Some(Index { address, stride, limit }) = index else { return (AnyIndex::default(), 0, 0) };
    let split = if (address | stride as u64).is_multiple_of(4) { 0 } else { SPLIT };
    // Numbers have 31 bits: no limit beyond that is reached.
    (AnyIndex { address, stride }, limit.clamp(0, 1 << 31) as u32, INDEXED | split)
}

const INDEXED: u32 = 1;
const SPLIT: u32 = 2;

/// Axes of a piece at most: those of an array, and the words of its rows.
const AXES: usize = 33;

/// Of `copy_any`.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Any {
    head: Head,
    lead: u32,
    axes: [AnyAxis; AXES],
}

impl Any {
    /// `None` when there are too many axes.
    pub fn of(piece: &Piece, word: u64) -> Option<Any> {
        let axes = &piece.block.axes;
        let mut any = Any {
            // One that goes nowhere is one as well.
            head: Head::of(piece, axes.len().max(1), word.trailing_zeros()),
            lead: lead(piece, word),
            axes: [AnyAxis::default(); AXES],
        };
        for (at, axis) in axes.iter().enumerate() {
            let (dest_index, dest_limit, dest_kind) = indexed(axis.dest.index);
            let (src_index, src_limit, src_kind) = indexed(axis.src.index);
            // Nothing is around the last one: its step is all that is left of the number.
            let is_last = at + 1 == axes.len();
            *any.axes.get_mut(at)? = AnyAxis {
                by: if is_last { Divisor::default() } else { Divisor::by(axis.extent as u32) },
                minus_extent: if is_last { 0 } else { (axis.extent as i32).wrapping_neg() },
                kind: dest_kind | src_kind << 2,
                dest: axis.dest.stride,
                src: axis.src.stride,
                dest_index,
                src_index,
                dest_limit,
                src_limit,
            };
        }
        Some(any)
    }

    pub fn launch(&self, multiprocessors: u32) -> Launch {
        self.head.launch(self.lead, 4, multiprocessors)
    }
}

fn most_blocks(multiprocessors: u32) -> u32 {
    multiprocessors.clamp(1, 1 << 10) * BLOCKS
}
