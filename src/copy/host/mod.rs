//! Copy plans carried out by the CPU, where both ends are memory of the host.
//!
//! A range of a plan's bytes is taken apart into parts of rows at its ends and blocks of whole rows (here), the axes of a block
//! are put into the order in which memory is fast (`nest`), and what is innermost there is moved by loops made for the size of
//! its rows (`moves`), by tiles where the two ends disagree about what lies together (`tile`), or as lines of the cache
//! (`stream`). Nothing here allocates: recorded copies are replayed by it.

mod moves;
mod nest;
#[cfg(target_arch = "x86_64")]
mod square;
mod stream;
#[cfg(test)]
mod tests;
mod tile;

pub use stream::fill;

use super::plan::{Axis, Index, Plan, Step, Which};
use moves::{Moves, Pick};
use nest::{Leaf, Nest, Stretch, cut};
use std::ops::Range;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// Copies of at least as many bytes leave nothing in the cache that anybody would find there.
const PAST_THE_CACHE: u64 = 16 << 20;

/// As many numbers of an index array are read before what they pick is copied.
const MOST_PICKS: usize = 256;

/// Rows that are repeated for less bytes are as well copied one by one.
const SHORTEST_PATTERN: u64 = 4 * stream::LINE as u64;

/// Longer runs of a repeated row are made anew rather than copied from the first: it has left the cache by then.
const LONGEST_MODEL: u64 = 1 << 17;

/// A number of an index array that names no item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad {
    pub which: Which,
    /// The axis of the plan.
    pub axis: usize,
    pub index: Index,
    /// Of the number in its array.
    pub position: u64,
    pub number: i32,
}

/// Copies the bytes of the plan that have the numbers `range`; those past its end are nothing. What lies at a number that its
/// index array should not have is left out.
///
/// # Safety
/// Every byte of `range` that a plan without index arrays names is host memory that may be read at the source and written at
/// the destination, and so is each item that a number below its limit names, and every index array may be read. No thread
/// writes to the source or touches the destination meanwhile. The ends have no byte in common, but those of a line, which may
/// overlap if the range is all of it.
pub unsafe fn run(plan: &Plan, range: Range<u64>) {
    let size = plan.size();
    // SAFETY: the caller's word.
    unsafe { copy(plan, range.start..range.end.min(size), size >= PAST_THE_CACHE) };
}

/// As `run`, for a destination that is read next: it stays in the cache, however large the plan is.
///
/// # Safety
/// As for `run`.
pub unsafe fn run_near(plan: &Plan, range: Range<u64>) {
    // SAFETY: the caller's word.
    unsafe { copy(plan, range.start..range.end.min(plan.size()), false) };
}

/// As `run`, of a range that ends where the plan does or before.
///
/// # Safety
/// As for `run`.
unsafe fn copy(plan: &Plan, range: Range<u64>, past: bool) {
    if range.is_empty() {
        return;
    }
    if plan.is_line() {
        let (dest, src) = (plan.dest.wrapping_add(range.start), plan.src.wrapping_add(range.start));
        // SAFETY: the caller's word for these bytes of the line.
        unsafe { move_line(dest, src, range.end - range.start, past) };
    } else {
        // SAFETY: the caller's word, for the same plan and range.
        unsafe { Copier { row: plan.row, past }.bytes(&plan.axes, plan.dest, plan.src, range) };
    }
    if past {
        stream::settle();
    }
}

/// The first number of any index array that names no item, if there is one.
///
/// # Safety
/// Every index array of the plan is host memory that may be read.
pub unsafe fn first_bad(plan: &Plan) -> Option<Bad> {
    if plan.size() == 0 {
        return None;
    }
    for (at, axis) in plan.axes.iter().enumerate() {
        for which in [Which::Dest, Which::Src] {
            let Some(index) = axis.step(which).index else { continue };
            for position in 0..axis.extent {
                // SAFETY: the array has as many numbers as the axis has places.
                let number = unsafe { number(&index, position) };
                if !(0..index.limit).contains(&i64::from(number)) {
                    return Some(Bad { which, axis: at, index, position, number });
                }
            }
        }
    }
    None
}

/// A number of an index array.
///
/// # Safety
/// It is host memory that may be read.
#[inline(always)]
unsafe fn number(index: &Index, position: u64) -> i32 {
    /// Index arrays may lie anywhere.
    #[repr(C, packed)]
    struct Anywhere(i32);
    let address = index.address.wrapping_add_signed(index.stride.wrapping_mul(position as i64));
    // SAFETY: the caller's word. Volatile, so that it is read once: what was compared with the limit is what is used, whoever
    // writes there meanwhile.
    unsafe { with_exposed_provenance::<Anywhere>(address as usize).read_volatile() }.0
}

/// Where an end is at a place along an axis, from where the axis begins.
///
/// # Safety
/// As for `number`, where the axis has an index array.
#[inline(always)]
unsafe fn step_to(step: &Step, base: u64, place: u64) -> Option<u64> {
    let times = match &step.index {
        None => place as i64,
        Some(index) => {
            // SAFETY: the caller's word.
            let number = i64::from(unsafe { number(index, place) });
            if !(0..index.limit).contains(&number) {
                return None;
            }
            number
        }
    };
    Some(base.wrapping_add_signed(step.stride.wrapping_mul(times)))
}

/// Destination and source at a place along an axis; `None` where an index array names no item.
///
/// # Safety
/// As for `number`, where the axis has an index array.
#[inline(always)]
unsafe fn place_at(axis: &Axis, dest: u64, src: u64, place: u64) -> Option<(u64, u64)> {
    // SAFETY: the caller's word.
    unsafe { Some((step_to(&axis.dest, dest, place)?, step_to(&axis.src, src, place)?)) }
}

/// Copies bytes that lie together at both ends, which may overlap.
///
/// # Safety
/// The source may be read, and the destination written, by nobody else meanwhile.
unsafe fn move_line(dest: u64, src: u64, size: u64, past: bool) {
    let apart = dest.abs_diff(src) >= size;
    let size = size as usize;
    let (to, from) =
        (with_exposed_provenance_mut::<u8>(dest as usize), with_exposed_provenance::<u8>(src as usize));
    // SAFETY: the caller's word; `apart` says whether they overlap.
    unsafe {
        match (apart, past) {
            (true, true) => stream::copy(to, from, size),
            (true, false) => to.copy_from_nonoverlapping(from, size),
            (false, _) => to.copy_from(from, size),
        }
    }
}

/// What stays the same for all parts of a copy.
#[derive(Clone, Copy)]
struct Copier {
    row: u64,
    /// Whether the destination is written past the cache.
    past: bool,
}

/// Each takes addresses and axes that stand for bytes of the plan that `run` was given, so its caller's word is theirs.
impl Copier {
    /// Bytes that begin and end anywhere.
    ///
    /// # Safety
    /// As for `run`, of these bytes of these axes; there is at least one.
    unsafe fn bytes(&self, axes: &[Axis], dest: u64, src: u64, range: Range<u64>) {
        let (mut first, head) = (range.start / self.row, range.start % self.row);
        let (last, tail) = (range.end / self.row, range.end % self.row);
        // SAFETY: rows and parts of rows of the same range.
        unsafe {
            if first == last {
                return self.part_of_row(axes, dest, src, first, head..tail);
            }
            if head > 0 {
                self.part_of_row(axes, dest, src, first, head..self.row);
                first += 1;
            }
            if first < last {
                self.rows(axes, dest, src, first..last);
            }
            if tail > 0 {
                self.part_of_row(axes, dest, src, last, 0..tail);
            }
        }
    }

    /// # Safety
    /// As for `run`, of these bytes of that row.
    unsafe fn part_of_row(&self, axes: &[Axis], mut dest: u64, mut src: u64, row: u64, part: Range<u64>) {
        let mut rest = row;
        for axis in axes.iter().rev() {
            // SAFETY: the index arrays of the axis have a number for each of its places.
            match unsafe { place_at(axis, dest, src, rest % axis.extent) } {
                Some(place) => (dest, src) = place,
                None => return,
            }
            rest /= axis.extent;
        }
        let (dest, src) = (dest.wrapping_add(part.start), src.wrapping_add(part.start));
        // SAFETY: the addresses are those of the row, which is named by good numbers, and the part is inside of it.
        unsafe { move_line(dest, src, part.end - part.start, false) };
    }

    /// Whole rows, which may begin and end anywhere along every axis: what is left at both ends of the first axis goes one axis
    /// further, and all between is a block.
    ///
    /// # Safety
    /// As for `run`, of these rows; there is at least one.
    unsafe fn rows(&self, axes: &[Axis], dest: u64, src: u64, rows: Range<u64>) {
        // SAFETY: each call is for rows of the same range, at places that good numbers name.
        unsafe {
            let Some((axis, inner)) = axes.split_first() else {
                return move_line(dest, src, self.row, self.past);
            };
            let each: u64 = inner.iter().map(|axis| axis.extent).product();
            let inside = |place: u64, rows: Range<u64>| {
                if let Some((dest, src)) = place_at(axis, dest, src, place) {
                    self.rows(inner, dest, src, rows);
                }
            };
            let (mut first, head) = (rows.start / each, rows.start % each);
            let (last, tail) = (rows.end / each, rows.end % each);
            if first == last {
                return inside(first, head..tail);
            }
            if head > 0 {
                inside(first, head..each);
                first += 1;
            }
            match last - first {
                0 => {}
                1 => inside(first, 0..each),
                _ => self.block(axis, inner, dest, src, first..last),
            }
            if tail > 0 {
                inside(last, 0..tail);
            }
        }
    }

    /// All rows at some of the places along the first axis.
    ///
    /// # Safety
    /// As for `run`, of these rows; there is at least one.
    #[inline(never)] // it has much on the stack, and `rows` is inside of itself
    unsafe fn block(&self, axis: &Axis, inner: &[Axis], dest: u64, src: u64, places: Range<u64>) {
        let (dest, src, axis) = cut(axis, dest, src, places);
        let mut nest = Nest::of_row(dest, src, self.row);
        nest.surround(std::iter::once(axis).chain(inner.iter().copied()));
        let copier = Copier { row: nest.row, past: self.past };
        let moves = self.moves(nest.dest, nest.row, nest.dest_strides());
        // SAFETY: the nest stands for the same bytes in another order, and its leaf for what its axes do not.
        unsafe {
            match nest.leaf {
                Leaf::Line => move_line(nest.dest, nest.src, nest.row, self.past),
                Leaf::Grid { outer, inner } => {
                    each(&nest.axes, nest.dest, nest.src, &|dest, src| {
                        copier.grid(&moves, dest, src, outer, inner);
                    });
                }
                Leaf::Picked { outer, inner } => copier.picked(&moves, &nest, outer, &inner),
                Leaf::Tiles { along_dest, along_src, inner } => {
                    each(&nest.axes, nest.dest, nest.src, &|dest, src| {
                        let whole = tile::Whole { dest, src, row: nest.row, along_dest, along_src, inner };
                        tile::copy(&whole, &moves, self.past);
                    });
                }
            }
        }
    }

    fn moves(&self, dest: u64, row: u64, strides: u64) -> Moves {
        if self.past { Moves::past(dest, row, strides) } else { Moves::of(row) }
    }

    /// # Safety
    /// As for `run`, of the rows of the grid.
    unsafe fn grid(&self, moves: &Moves, dest: u64, src: u64, outer: Stretch, inner: Stretch) {
        let to = with_exposed_provenance_mut::<u8>(dest as usize);
        let from = with_exposed_provenance::<u8>(src as usize);
        let (row, size) = (self.row as usize, self.row * inner.count);
        // Whether one row is written over and over without gaps, and whether all that is the same from place to place outside.
        let repeats = inner.src == 0 && inner.dest == self.row as i64;
        let alike = outer.src == 0 && outer.count > 1 && size <= LONGEST_MODEL;
        if !repeats || !alike && size < SHORTEST_PATTERN {
            // SAFETY: the caller's word.
            return unsafe { (moves.grid)(to, from, outer, inner, row) };
        }
        let made = if alike { 1 } else { outer.count };
        for at in 0..made as isize {
            let to = to.wrapping_offset(at * outer.dest as isize);
            let from = from.wrapping_offset(at * outer.src as isize);
            // SAFETY: the inner rows follow each other, as was just seen, and take `size` bytes. What is copied on is not written past
            // the cache.
            unsafe { stream::repeat(to, from, row, size as usize, self.past && !alike) };
        }
        if alike {
            let others = Stretch { count: outer.count - 1, ..outer };
            let moves = self.moves(dest, size, outer.dest as u64);
            let next = to.wrapping_offset(outer.dest as isize);
            // SAFETY: the first is written, and the others are apart from it, as all rows of a destination are.
            unsafe { (moves.grid)(next, to, Stretch::ONE, others, size as usize) };
        }
    }

    /// # Safety
    /// As for `run`, of all rows of the nest whose leaf this is.
    unsafe fn picked(&self, moves: &Moves, nest: &Nest, outer: Stretch, inner: &Axis) {
        let mut picks = [Pick::default(); MOST_PICKS];
        let mut place = 0;
        while place < inner.extent {
            let end = place + (inner.extent - place).min(MOST_PICKS as u64);
            let mut count = 0;
            for place in place..end {
                // SAFETY: the index arrays have a number for each place.
                if let Some((dest, src)) = unsafe { place_at(inner, 0, 0, place) } {
                    picks[count] = Pick { dest: dest as isize, src: src as isize };
                    count += 1;
                }
            }
            place = end;
            // SAFETY: what good numbers pick, at each place of the other axes.
            unsafe {
                each(&nest.axes, nest.dest, nest.src, &|dest, src| {
                    let to = with_exposed_provenance_mut::<u8>(dest as usize);
                    let from = with_exposed_provenance::<u8>(src as usize);
                    (moves.picked)(to, from, outer, &picks[..count], self.row as usize);
                });
            }
        }
    }
}

/// Goes to all places of the axes that good numbers name.
///
/// # Safety
/// As for `number`, where an axis has an index array.
unsafe fn each(axes: &[Axis], dest: u64, src: u64, leaf: &impl Fn(u64, u64)) {
    let Some((axis, inner)) = axes.split_first() else { return leaf(dest, src) };
    for place in 0..axis.extent {
        // SAFETY: the caller's word.
        unsafe {
            if let Some((dest, src)) = place_at(axis, dest, src, place) {
                each(inner, dest, src, leaf);
            }
        }
    }
}
