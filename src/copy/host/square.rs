//! Squares of small items turned in registers, where the processor has instructions that interleave vectors.

use super::moves::Moves;
use super::nest::Stretch;
use super::stream::LINE;
use super::tile::{Tile, Whole};
use std::arch::x86_64::{
    __m128i, _mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128, _mm_stream_si128, _mm_unpackhi_epi8,
    _mm_unpackhi_epi16, _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi8, _mm_unpacklo_epi16,
    _mm_unpacklo_epi32, _mm_unpacklo_epi64,
};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// Bytes of a register.
const WIDTH: usize = 16;

/// The way to copy a tile of items of that size.
pub fn tile_for(item: u64) -> Option<Tile> {
    match item {
        1 => Some(squares::<16>),
        2 => Some(squares::<8>),
        4 => Some(squares::<4>),
        8 => Some(squares::<2>),
        16 => Some(squares::<1>),
        _ => None,
    }
}

/// A tile by squares of `SIDE` items, and what is left at its edges by itself.
///
/// # Safety
/// As for `tile::copy`; the items have `WIDTH / SIDE` bytes and are next to each other along the destination's stretch there, and
/// along the source's stretch there.
unsafe fn squares<const SIDE: usize>(tile: &Whole, moves: &Moves, past: bool) {
    let Whole { dest, src, along_dest, along_src, .. } = *tile;
    let item = WIDTH / SIDE;
    let to = with_exposed_provenance_mut::<u8>(dest as usize);
    let from = with_exposed_provenance::<u8>(src as usize);
    let (across, along) = (along_src.dest as isize, along_dest.src as isize);
    let (width, height) = (along_dest.count as usize, along_src.count as usize);
    let (wide, high) = (width / SIDE * SIDE, height / SIDE * SIDE);
    let lines =
        past && SIDE <= 8 && wide * item == LINE && (dest | across as u64).is_multiple_of(LINE as u64);
    // SAFETY: squares inside of the tile, and the grids are what is right of them and below.
    unsafe {
        for y in (0..high).step_by(SIDE) {
            for x in (0..wide).step_by(SIDE) {
                let to = to.wrapping_offset(y as isize * across).wrapping_add(x * item);
                let from = from.wrapping_offset(x as isize * along).wrapping_add(y * item);
                match lines {
                    true => square::<SIDE, true>(to, across, from, along),
                    false => square::<SIDE, false>(to, across, from, along),
                }
            }
        }
        if wide < width {
            let right = Stretch { count: (width - wide) as u64, ..along_dest };
            let (to, from) = (to.wrapping_add(wide * item), from.wrapping_offset(wide as isize * along));
            (moves.grid)(to, from, along_src, right, item);
        }
        if high < height {
            let below = Stretch { count: (height - high) as u64, ..along_src };
            let left = Stretch { count: wide as u64, ..along_dest };
            let (to, from) = (to.wrapping_offset(high as isize * across), from.wrapping_add(high * item));
            (moves.grid)(to, from, below, left, item);
        }
    }
}

/// Turns a square: row `i` of the destination is column `i` of the source.
///
/// # Safety
/// `SIDE` rows of `WIDTH` bytes may be read at the source and written at the destination. If `PAST`, those of the destination are
/// aligned to it.
#[inline(always)]
unsafe fn square<const SIDE: usize, const PAST: bool>(
    dest: *mut u8,
    across: isize,
    src: *const u8,
    along: isize,
) {
    let put = |at: usize, row: __m128i| {
        let to = dest.wrapping_offset(at as isize * across).cast::<__m128i>();
        // SAFETY: the caller's word.
        unsafe { if PAST { _mm_stream_si128(to, row) } else { _mm_storeu_si128(to, row) } }
    };
    // SAFETY: the caller's word.
    unsafe {
        if SIDE < 16 {
            let rows = turned::<SIDE, SIDE>(src, along);
            rows.into_iter().enumerate().for_each(|(at, row)| put(at, row));
        } else {
            // There are not as many registers. Each half has two halves of columns in a register.
            let upper = turned::<SIDE, 8>(src, along);
            let lower = turned::<SIDE, 8>(src.wrapping_offset(8 * along), along);
            for (at, (a, b)) in upper.into_iter().zip(lower).enumerate() {
                put(2 * at, _mm_unpacklo_epi64(a, b));
                put(2 * at + 1, _mm_unpackhi_epi64(a, b));
            }
        }
    }
}

/// `ROWS` rows of a square, column by column.
///
/// # Safety
/// They may be read.
#[inline(always)]
unsafe fn turned<const SIDE: usize, const ROWS: usize>(src: *const u8, along: isize) -> [__m128i; ROWS] {
    // SAFETY: the caller's word.
    let mut rows = unsafe {
        let mut rows = [_mm_setzero_si128(); ROWS];
        for (at, row) in rows.iter_mut().enumerate() {
            *row = _mm_loadu_si128(src.wrapping_offset(at as isize * along).cast::<__m128i>());
        }
        rows
    };
    // Each time moves one bit from the number of a row to that of a column. Without a loop all stays in registers.
    if ROWS > 1 {
        rows = interleaved::<SIDE, ROWS>(rows);
    }
    if ROWS > 2 {
        rows = interleaved::<SIDE, ROWS>(rows);
    }
    if ROWS > 4 {
        rows = interleaved::<SIDE, ROWS>(rows);
    }
    rows
}

/// Each row of the first half with one of the second, item by item.
#[inline(always)]
fn interleaved<const SIDE: usize, const ROWS: usize>(rows: [__m128i; ROWS]) -> [__m128i; ROWS] {
    let mut mixed = rows;
    for at in 0..ROWS / 2 {
        let (a, b) = (rows[at], rows[at + ROWS / 2]);
        // SAFETY: every processor of this architecture has these instructions.
        (mixed[2 * at], mixed[2 * at + 1]) = unsafe {
            match SIDE {
                16 => (_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)),
                8 => (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b)),
                4 => (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)),
                _ => (_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)),
            }
        };
    }
    mixed
}
