//! Of the kernels that turn two axes round.
#![forbid(unsafe_code)]

use super::super::super::plan::{Axis, Plan};
use super::{Divisor, SECTOR, THREADS, most_blocks};
use crate::driver::Launch;

/// An axis of squares in `copy_tile`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct TileAxis {
    by: Divisor,
    minus_extent: i32,
    _rest: u32,
    /// Words that a step is along each axis that is turned round.
    a: u32,
    b: u32,
    dest: i64,
    src: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Steps {
    dest: i64,
    src: i64,
}

/// Of `copy_tile`.
#[repr(C, align(16))]
#[derive(Clone, Copy, Default)]
pub struct Tile {
    dest: u64,
    src: u64,
    pub(super) squares: u32,
    word: u32,
    pub(super) a_extent: u32,
    pub(super) b_extent: u32,
    pub(super) count: u32,
    _rest: u32,
    a: Steps,
    b: Steps,
    _more: u64,
    axes: [TileAxis; 10],
    _end: [u64; 4],
}

/// Which of the kernels it is for, by the words along a side of their squares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// `copy_tile`.
    Narrow = 32,
    /// `copy_wide_tile`.
    Wide = 64,
}

impl Tile {
    /// Of a whole plan of single words that is denser along one axis at the source, and along another at the destination.
    pub fn of(plan: &Plan, word: u64) -> Option<(Tile, Side)> {
        if plan.row != word || plan.is_indexed() {
            return None;
        }
        let (a_at, a) = densest(plan, |axis| axis.src.stride)?;
        let (b_at, b) = densest(plan, |axis| axis.dest.stride)?;
        // Where words lie together at one end, they lie apart at the other.
        let apart = a.dest.stride.unsigned_abs().min(b.src.stride.unsigned_abs());
        let together = a.src.stride.unsigned_abs().max(b.dest.stride.unsigned_abs());
        if a_at == b_at || together > SECTOR || apart < 2 * SECTOR {
            return None;
        }
        let side = match a.extent.min(b.extent) {
            48.. if word <= 4 => Side::Wide,
            24.. => Side::Narrow,
            _ => return None,
        };
        let mut tile = Tile {
            dest: plan.dest,
            src: plan.src,
            word: word.trailing_zeros(),
            a_extent: i32::try_from(a.extent).ok()? as u32,
            b_extent: i32::try_from(b.extent).ok()? as u32,
            a: Steps { dest: a.dest.stride, src: a.src.stride },
            b: Steps { dest: b.dest.stride, src: b.src.stride },
            ..Tile::default()
        };
        let length = side as u32;
        let squares = |axis: &Axis| axis.extent.div_ceil(u64::from(length));
        let mut count = 1;
        tile.push(&mut count, squares(b), (0, length), along(b, i64::from(length)))?;
        tile.push(&mut count, squares(a), (length, 0), along(a, i64::from(length)))?;
        for (at, axis) in plan.axes.iter().enumerate().rev() {
            if at != a_at && at != b_at {
                tile.push(&mut count, axis.extent, (0, 0), along(axis, 1))?;
            }
        }
        tile.squares = i32::try_from(count).ok()? as u32;
        let last = (tile.count as usize).saturating_sub(1);
        tile.axes[last].by = Divisor::default();
        tile.axes[last].minus_extent = 0;
        tile.count = tile.count.max(1);
        Some((tile, side))
    }

    fn push(&mut self, squares: &mut u64, extent: u64, (a, b): (u32, u32), steps: Steps) -> Option<()> {
        if extent == 1 {
            return Some(());
        }
        *squares = squares.checked_mul(extent)?;
        let short = u32::try_from(extent).ok()?;
        *self.axes.get_mut(self.count as usize)? = TileAxis {
            by: Divisor::by(short),
            minus_extent: (short as i32).wrapping_neg(),
            a,
            b,
            dest: steps.dest,
            src: steps.src,
            ..TileAxis::default()
        };
        self.count += 1;
        Some(())
    }

    pub fn launch(&self, side: Side, multiprocessors: u32) -> Launch {
        let word = 1 << self.word;
        // So that the columns of a square lie in different banks of memory.
        let gap = match side {
            Side::Narrow => word,
            Side::Wide => 4,
        };
        let length = side as u32;
        let shared = length * (length * word + gap);
        Launch { blocks: self.squares.min(most_blocks(multiprocessors)), threads: THREADS, shared }
    }
}

fn along(axis: &Axis, steps: i64) -> Steps {
    Steps { dest: axis.dest.stride.wrapping_mul(steps), src: axis.src.stride.wrapping_mul(steps) }
}

/// The axis with the shortest stride that goes somewhere.
fn densest(plan: &Plan, stride: impl Fn(&Axis) -> i64) -> Option<(usize, &Axis)> {
    let moving = plan.axes.iter().enumerate().filter(|(_, axis)| axis.extent > 1 && stride(axis) != 0);
    moving.min_by_key(|(_, axis)| stride(axis).unsigned_abs())
}
