//! Loops over rows of one size.

use super::nest::Stretch;
use super::stream;

/// Rows so long that it matters little that lines are torn where they begin and end.
const LONG: u64 = 1024;

/// How far what an index array picks is from where its axis begins.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pick {
    pub dest: isize,
    pub src: isize,
}

/// Copies the rows of a grid from its first one on.
///
/// # Safety
/// Every row may be read at the source and written at the destination, the rows have `row` bytes, which the loops are for, and
/// no byte is in both ends. If they are written past the cache, the caller calls `stream::settle` before anybody reads them.
type Grid = unsafe fn(*mut u8, *const u8, outer: Stretch, inner: Stretch, row: usize);

/// Copies picked rows at each place of a stretch.
///
/// # Safety
/// As for `Grid`, of those rows.
type Picked = unsafe fn(*mut u8, *const u8, outer: Stretch, picks: &[Pick], row: usize);

#[derive(Debug, Clone, Copy)]
pub struct Moves {
    pub grid: Grid,
    pub picked: Picked,
}

impl Moves {
    /// For rows of that many bytes, which lie anywhere.
    pub fn of(row: u64) -> Moves {
        match row {
            1 => Moves::by::<One<1>>(),
            2 => Moves::by::<One<2>>(),
            3 => Moves::by::<Two<2>>(),
            4 => Moves::by::<One<4>>(),
            5..8 => Moves::by::<Two<4>>(),
            8 => Moves::by::<One<8>>(),
            9..16 => Moves::by::<Two<8>>(),
            16 => Moves::by::<One<16>>(),
            17..32 => Moves::by::<Two<16>>(),
            32 => Moves::by::<One<32>>(),
            33..64 => Moves::by::<Two<32>>(),
            64 => Moves::by::<One<64>>(),
            65..=128 => Moves::by::<Two<64>>(),
            _ => Moves::by::<Any>(),
        }
    }

    /// For the same, to be written past the cache if that is worth it. Of several strides of the destination, all bits that any
    /// of them has.
    pub fn past(dest: u64, row: u64, strides: u64) -> Moves {
        if row >= LONG {
            Moves::by::<Past>()
        } else if (dest | row | strides).is_multiple_of(stream::LINE as u64) {
            Moves::by::<Lines>()
        } else {
            Moves::of(row)
        }
    }

    fn by<M: Move>() -> Moves {
        Moves { grid: grid::<M>, picked: picked::<M> }
    }
}

/// As many picks ahead of the one that is copied, rows are fetched: nothing else could tell where they are.
const AHEAD: usize = 8;

/// As many bytes of a row are fetched ahead: the processor finds the rest by itself.
const MOST_FETCHED: usize = 256;

/// A way to copy a row.
trait Move {
    /// Whether rows that are picked are fetched ahead. The small ones are many in the same line.
    const IS_FETCHED: bool = false;

    /// # Safety
    /// The row may be read at `src` and written at `dest`, which are apart, and its size is one that the way is for.
    unsafe fn row(dest: *mut u8, src: *const u8, row: usize);
}

/// Rows of the size of a word.
struct One<const WORD: usize>;

/// Rows of one to two words: the second ends where the row does.
struct Two<const WORD: usize>;

/// Rows of any size.
struct Any;

/// Rows of whole lines that are written past the cache.
struct Lines;

/// Long rows that are written past the cache.
struct Past;

impl<const WORD: usize> Move for One<WORD> {
    #[inline(always)]
    unsafe fn row(dest: *mut u8, src: *const u8, _: usize) {
        // SAFETY: the caller's word.
        unsafe { dest.copy_from_nonoverlapping(src, WORD) };
    }
}

impl<const WORD: usize> Move for Two<WORD> {
    #[inline(always)]
    unsafe fn row(dest: *mut u8, src: *const u8, row: usize) {
        let second = row - WORD;
        // SAFETY: both words are inside of the row, whose ends are apart.
        unsafe {
            dest.copy_from_nonoverlapping(src, WORD);
            dest.add(second).copy_from_nonoverlapping(src.add(second), WORD);
        }
    }
}

impl Move for Any {
    const IS_FETCHED: bool = true;

    #[inline(always)]
    unsafe fn row(dest: *mut u8, src: *const u8, row: usize) {
        // SAFETY: the caller's word.
        unsafe { dest.copy_from_nonoverlapping(src, row) };
    }
}

impl Move for Lines {
    const IS_FETCHED: bool = true;

    #[inline(always)]
    unsafe fn row(dest: *mut u8, src: *const u8, row: usize) {
        for at in (0..row).step_by(stream::LINE) {
            // SAFETY: the lines of the row.
            unsafe { stream::move_line(dest.add(at), src.add(at)) };
        }
    }
}

impl Move for Past {
    const IS_FETCHED: bool = true;

    #[inline(always)]
    unsafe fn row(dest: *mut u8, src: *const u8, row: usize) {
        // SAFETY: the caller's word.
        unsafe { stream::copy(dest, src, row) };
    }
}

/// # Safety
/// As `Grid` says.
unsafe fn grid<M: Move>(mut dest: *mut u8, mut src: *const u8, outer: Stretch, inner: Stretch, row: usize) {
    let (to, from) = (inner.dest as isize, inner.src as isize);
    for _ in 0..outer.count {
        let (mut d, mut s) = (dest, src);
        // SAFETY: places of the grid, by the caller's word. Pointers go past the last one without being used.
        unsafe {
            for _ in 0..inner.count / 4 {
                M::row(d, s, row);
                M::row(d.wrapping_offset(to), s.wrapping_offset(from), row);
                M::row(d.wrapping_offset(2 * to), s.wrapping_offset(2 * from), row);
                M::row(d.wrapping_offset(3 * to), s.wrapping_offset(3 * from), row);
                (d, s) = (d.wrapping_offset(4 * to), s.wrapping_offset(4 * from));
            }
            for _ in 0..inner.count % 4 {
                M::row(d, s, row);
                (d, s) = (d.wrapping_offset(to), s.wrapping_offset(from));
            }
        }
        (dest, src) = (dest.wrapping_offset(outer.dest as isize), src.wrapping_offset(outer.src as isize));
    }
}

/// # Safety
/// As `Picked` says.
unsafe fn picked<M: Move>(mut dest: *mut u8, mut src: *const u8, outer: Stretch, picks: &[Pick], row: usize) {
    for _ in 0..outer.count {
        for (at, pick) in picks.iter().enumerate() {
            if M::IS_FETCHED
                && let Some(soon) = picks.get(at + AHEAD)
            {
                let soon = src.wrapping_offset(soon.src);
                (0..row.min(MOST_FETCHED))
                    .step_by(stream::LINE)
                    .for_each(|at| stream::fetch(soon.wrapping_add(at)));
            }
            // SAFETY: a picked row, by the caller's word.
            unsafe { M::row(dest.wrapping_offset(pick.dest), src.wrapping_offset(pick.src), row) };
        }
        (dest, src) = (dest.wrapping_offset(outer.dest as isize), src.wrapping_offset(outer.src as isize));
    }
}
