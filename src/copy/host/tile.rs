//! Copies whose ends disagree about which items lie together, as transposing does: done tile by tile, so that each line of the cache
//! and each entry of the TLB is used up at both ends while it is there.

use super::moves::Moves;
use super::nest::Stretch;
use super::stream::LINE;
use std::ops::Range;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// Places along both stretches after which the next part begins: both ends of a part are in a few hundred pages, as many as the TLB
/// knows well.
const PART: u64 = 512;

/// What one end of a tile may take, if there is not more in it than one line of each row.
const SMALL: u64 = 8192;

/// All that is to be copied.
#[derive(Debug, Clone, Copy)]
pub struct Whole {
    pub dest: u64,
    pub src: u64,
    pub row: u64,
    /// The denser stretch of the destination.
    pub along_dest: Stretch,
    /// The denser stretch of the source.
    pub along_src: Stretch,
    /// What is at each place of them.
    pub inner: Stretch,
}

/// A way to copy a tile.
///
/// # Safety
/// As for `copy`, of all that the tile is.
pub type Tile = unsafe fn(&Whole, &Moves, past: bool);

/// # Safety
/// Every row may be read at the source and written at the destination, no byte is in both ends, and the moves are for such rows.
/// If `past`, the caller calls `stream::settle` before anybody reads the destination.
pub unsafe fn copy(whole: &Whole, moves: &Moves, past: bool) {
    let Whole { row, along_dest, along_src, .. } = *whole;
    let line = LINE as u64;
    let squares = squares_for(whole);
    let tile = squares.unwrap_or(plain);
    let (wide, high) = match squares {
        Some(_) => (line / row, line / row),
        None => (steps(&along_dest, along_dest.dest), steps(&along_src, along_src.src)),
    };
    // The first squares end where lines do.
    let first = |base: u64, across: i64, whole: u64| {
        let rest = base.wrapping_neg() % line;
        let ends = rest > 0 && rest.is_multiple_of(row) && (across as u64).is_multiple_of(line);
        if squares.is_some() && ends { rest / row } else { whole }
    };
    let first_wide = first(whole.dest, along_src.dest, PART);
    let first_high = first(whole.src, along_dest.src, PART);
    for part_x in cuts(0..along_dest.count, first_wide, PART) {
        for part_y in cuts(0..along_src.count, first_high, PART) {
            for x in cuts(part_x.clone(), wide, wide) {
                for y in cuts(part_y.clone(), high, high) {
                    let part = whole.part(&x, &y);
                    // SAFETY: a part of the whole.
                    unsafe { tile(&part, moves, past) };
                }
            }
        }
    }
}

impl Whole {
    fn part(&self, x: &Range<u64>, y: &Range<u64>) -> Whole {
        let at = |base: u64, along_dest: i64, along_src: i64| {
            base.wrapping_add_signed(along_dest.wrapping_mul(x.start as i64))
                .wrapping_add_signed(along_src.wrapping_mul(y.start as i64))
        };
        Whole {
            dest: at(self.dest, self.along_dest.dest, self.along_src.dest),
            src: at(self.src, self.along_dest.src, self.along_src.src),
            along_dest: Stretch { count: x.end - x.start, ..self.along_dest },
            along_src: Stretch { count: y.end - y.start, ..self.along_src },
            ..*self
        }
    }
}

/// Cuts a range into one of the size `first` and others of the size `step`, the last of which may be shorter.
fn cuts(range: Range<u64>, first: u64, step: u64) -> impl Iterator<Item = Range<u64>> {
    let (mut at, mut size) = (range.start, first);
    std::iter::from_fn(move || {
        let cut = at..at + size.min(range.end - at);
        (at, size) = (cut.end, step);
        (!cut.is_empty()).then_some(cut)
    })
}

/// Places of a tile along a stretch: enough of the dense end to fill lines of it, and more where both ends are dense.
fn steps(along: &Stretch, dense: i64) -> u64 {
    let line = (LINE as u64 / dense.unsigned_abs().max(1)).clamp(8, LINE as u64);
    (SMALL / along.dest.unsigned_abs().max(along.src.unsigned_abs()).max(1)).max(line)
}

/// A tile of any rows.
///
/// # Safety
/// As for `copy`.
unsafe fn plain(tile: &Whole, moves: &Moves, _: bool) {
    let (to, from) = (
        with_exposed_provenance_mut::<u8>(tile.dest as usize),
        with_exposed_provenance::<u8>(tile.src as usize),
    );
    let Whole { along_dest, along_src, inner, .. } = *tile;
    let row = tile.row as usize;
    // SAFETY: all places of the tile, each once; the caller's word.
    unsafe {
        if inner.count > 1 {
            for y in 0..along_src.count as isize {
                let to = to.wrapping_offset(y * along_src.dest as isize);
                (moves.grid)(to, from.wrapping_offset(y * along_src.src as isize), along_dest, inner, row);
            }
        } else if along_dest.count < along_src.count {
            (moves.grid)(to, from, along_dest, along_src, row);
        } else {
            (moves.grid)(to, from, along_src, along_dest, row);
        }
    }
}

/// The way for tiles whose items are next to each other along either stretch at one end: squares of them are turned in registers.
fn squares_for(whole: &Whole) -> Option<Tile> {
    let Whole { row, along_dest, along_src, inner, .. } = *whole;
    let dense = along_dest.dest == row as i64 && along_src.src == row as i64;
    let wide = along_dest.count.min(along_src.count) * row >= 2 * 16;
    if !dense || !wide || inner.count > 1 {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    return super::square::tile_for(row);
    #[cfg(not(target_arch = "x86_64"))]
    None
}
