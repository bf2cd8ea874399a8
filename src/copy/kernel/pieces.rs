//! Copies cut so that 31 bits number the words of each piece.
#![forbid(unsafe_code)]

use super::super::plan::{Axis, Plan, Step};
use smallvec::SmallVec;
use std::ops::Range;

/// Words of a piece at most.
pub const MOST: u64 = i32::MAX as u64;

/// Axes, the innermost first, the words of a row among them.
pub type Axes = SmallVec<[Axis; 5]>;

/// Words that are numbered along axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub dest: u64,
    pub src: u64,
    /// Those that take no step are there only for their index arrays, and come last.
    pub axes: Axes,
}

/// What one launch does: the words from one number on, below another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub block: Block,
    pub first: u32,
    pub end: u32,
}

/// How far apart words may lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Anywhere.
    Any,
    /// So far that 31 bits count what is between two of them, in units of so many bytes.
    Near(u64),
}

impl Block {
    /// The words of a plan.
    pub fn of_words(plan: &Plan, word: u64) -> Block {
        let step = Step::by(word as i64);
        Block::new(plan, Axis { extent: plan.row / word, dest: step, src: step })
    }

    /// The rows of a plan, as so many units each, which lie where the row does as far as this goes.
    pub fn of_rows(plan: &Plan, units: u64) -> Block {
        Block::new(plan, Axis { extent: units, dest: Step::by(0), src: Step::by(0) })
    }

    fn new(plan: &Plan, row: Axis) -> Block {
        let all = || std::iter::once(row).chain(plan.axes.iter().rev().copied());
        let moving = all().filter(|axis| axis.extent > 1);
        // Where an axis of one step stands among the others means nothing to the numbers.
        let standing = all().filter(|axis| axis.extent == 1 && is_indexed(axis));
        Block { dest: plan.dest, src: plan.src, axes: moving.chain(standing).collect() }
    }

    /// How many words.
    #[cfg(test)]
    pub fn count(&self) -> u64 {
        self.axes.iter().map(|axis| axis.extent).product()
    }

    pub fn is_indexed(&self) -> bool {
        self.axes.iter().any(is_indexed)
    }

    /// Where a word goes, where no index array says so.
    pub fn dest_of(&self, number: u64) -> u64 {
        let along = |(dest, rest): (u64, u64), axis: &Axis| {
            let at = (rest % axis.extent) as i64;
            (dest.wrapping_add_signed(at.wrapping_mul(axis.dest.stride)), rest / axis.extent)
        };
        self.axes.iter().fold((self.dest, number), along).0
    }

    /// What lies between the first word and the last at each end, in units, but along one axis.
    fn spans_but(&self, but: usize, unit: u64) -> (u128, u128) {
        let others = self.axes.iter().enumerate().filter(|(at, _)| *at != but);
        others.fold((0, 0), |(dest, src), (_, axis)| {
            let along =
                |step: Step| u128::from(axis.extent - 1) * u128::from(step.stride.unsigned_abs() / unit);
            (dest + along(axis.dest), src + along(axis.src))
        })
    }

    /// The outermost axis that takes steps, and the words of each of them.
    fn outermost(&self) -> Option<(usize, u64)> {
        let at = self.axes.iter().rposition(|axis| axis.extent > 1)?;
        Some((at, self.axes[..at].iter().map(|axis| axis.extent).product()))
    }

    /// How many steps of an axis one piece may have.
    fn steps_at_once(&self, at: usize, inner: u64, reach: Reach) -> u64 {
        let by_count = MOST / inner;
        let Reach::Near(unit) = reach else { return by_count };
        let (dest, src) = self.spans_but(at, unit);
        let axis = &self.axes[at];
        let by_span = |others: u128, step: Step| {
            let Some(left) = u128::from(MOST).checked_sub(others) else { return 0 };
            let each = u128::from(step.stride.unsigned_abs() / unit);
            left.checked_div(each).map_or(u64::MAX, |steps| steps as u64 + 1)
        };
        by_count.min(by_span(dest, axis.dest)).min(by_span(src, axis.src))
    }

    /// The same from a step of an axis on, so many of them.
    fn steps(&self, at: usize, from: u64, count: u64) -> Block {
        let mut part = self.clone();
        let axis = &mut part.axes[at];
        axis.extent = count;
        advance(&mut part.dest, &mut axis.dest, from);
        advance(&mut part.src, &mut axis.src, from);
        if count == 1 && !is_indexed(axis) {
            part.axes.remove(at);
        }
        part
    }

    /// Whether it is worth while to cut it into pieces whose words lie near each other: there are few, or they are large.
    pub fn is_near(&self, range: &Range<u64>, unit: u64) -> bool {
        const LARGE: u64 = 1 << 20;
        let Some((at, inner)) = self.outermost() else { return true };
        let steps = self.steps_at_once(at, inner, Reach::Near(unit));
        let wanted = range.end.div_ceil(inner) - range.start / inner;
        steps > 0 && (steps >= wanted || steps.saturating_mul(inner) >= LARGE)
    }

    /// Calls `each` with every piece of the words in a range, in order.
    pub fn cut<E>(
        self,
        range: Range<u64>,
        reach: Reach,
        each: &mut impl FnMut(Piece) -> Result<(), E>,
    ) -> Result<(), E> {
        if range.is_empty() {
            return Ok(());
        }
        let Some((at, inner)) = self.outermost() else {
            return each(Piece { block: self, first: 0, end: 1 });
        };
        let (from, to) = (range.start / inner, range.end.div_ceil(inner));
        let most = self.steps_at_once(at, inner, reach);
        let mut step = from;
        while step < to {
            let count = most.clamp(1, to - step);
            let before = step * inner;
            let words = range.start.max(before) - before..range.end.min((step + count) * inner) - before;
            let part = self.steps(at, step, count);
            if most == 0 {
                part.cut(words, reach, each)?;
            } else {
                each(Piece { block: part, first: words.start as u32, end: words.end as u32 })?;
            }
            step += count;
        }
        Ok(())
    }
}

fn is_indexed(axis: &Axis) -> bool {
    axis.dest.index.is_some() || axis.src.index.is_some()
}

/// Goes on along an axis: by its index array where it has one, which then begins later.
fn advance(address: &mut u64, step: &mut Step, by: u64) {
    match &mut step.index {
        Some(index) => {
            index.address = index.address.wrapping_add((by as i64).wrapping_mul(index.stride) as u64)
        }
        None => *address = address.wrapping_add((by as i64).wrapping_mul(step.stride) as u64),
    }
}
