//! The order in which a block of whole rows is copied. Pure arithmetic: the order means nothing to what is copied, only to how
//! fast memory is.
#![forbid(unsafe_code)]

use super::super::plan::{Axis, Step, merge};
use smallvec::SmallVec;
use std::ops::Range;

/// As many axes as a plan may have, without an allocation.
type Axes = SmallVec<[Axis; 32]>;

/// Rows this long fill their lines of the cache and are fetched ahead of by the processor: the order of them matters no more.
const LONG_ROW: u64 = 2048;

/// Along an inner axis of less bytes there are other axes that decide.
const SHORT_AXIS: u64 = 256;

/// Along an axis without numbers that has less places, those of the index array outside of it are worth more.
const FEW_PLACES: u64 = 8;

/// Places at equal distances at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    pub count: u64,
    pub dest: i64,
    pub src: i64,
}

impl Stretch {
    pub const ONE: Stretch = Stretch { count: 1, dest: 0, src: 0 };

    fn of(axis: &Axis) -> Stretch {
        Stretch { count: axis.extent, dest: axis.dest.stride, src: axis.src.stride }
    }
}

/// What is innermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf {
    /// A row.
    Line,
    /// Rows along two stretches.
    Grid { outer: Stretch, inner: Stretch },
    /// Rows along a stretch, at each of them those that an index array picks.
    Picked { outer: Stretch, inner: Axis },
    /// Rows along two stretches, one of which is the denser one at one end, and one at the other.
    Tiles { along_dest: Stretch, along_src: Stretch, inner: Stretch },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nest {
    pub dest: u64,
    pub src: u64,
    pub row: u64,
    /// The outer ones, outermost first.
    pub axes: Axes,
    pub leaf: Leaf,
}

impl Nest {
    /// A row, and no axes yet.
    #[inline(always)]
    pub fn of_row(dest: u64, src: u64, row: u64) -> Nest {
        Nest { dest, src, row, axes: Axes::new(), leaf: Leaf::Line }
    }

    /// Puts axes around it, which all have places. In place, since room for all that there may be is much to move.
    pub fn surround(&mut self, axes: impl Iterator<Item = Axis>) {
        for mut axis in axes {
            if axis.is_indexed() {
                self.axes.push(axis);
            } else if axis.extent > 1 {
                if axis.dest.stride < 0 {
                    let last = (axis.extent - 1) as i64;
                    self.dest = self.dest.wrapping_add_signed(axis.dest.stride.wrapping_mul(last));
                    self.src = self.src.wrapping_add_signed(axis.src.stride.wrapping_mul(last));
                    axis.dest.stride = axis.dest.stride.wrapping_neg();
                    axis.src.stride = axis.src.stride.wrapping_neg();
                }
                self.axes.push(axis);
            }
        }
        let distances = |axis: &Axis| (axis.dest.stride.unsigned_abs(), axis.src.stride.unsigned_abs());
        self.axes.sort_unstable_by_key(|axis| std::cmp::Reverse(distances(axis)));
        merge(&mut self.row, &mut self.axes);
        self.leaf = self.take_leaf();
    }

    fn take_leaf(&mut self) -> Leaf {
        let Some(last) = self.axes.last().copied() else { return Leaf::Line };
        if last.is_indexed() {
            self.axes.pop();
            return Leaf::Picked { outer: self.take_stretch(), inner: last };
        }
        let count = self.axes.len();
        if self.row < LONG_ROW {
            if let Some((along_dest, along_src)) = self.take_disagreeing(count) {
                return Leaf::Tiles { along_dest, along_src, inner: Stretch::ONE };
            }
            let densest = last.dest.stride.unsigned_abs().max(last.src.stride.unsigned_abs());
            if densest.saturating_mul(last.extent) <= SHORT_AXIS
                && let Some((along_dest, along_src)) = self.take_disagreeing(count - 1)
            {
                self.axes.pop();
                return Leaf::Tiles { along_dest, along_src, inner: Stretch::of(&last) };
            }
        }
        self.axes.pop();
        let inner = Stretch::of(&last);
        if inner.count < FEW_PLACES
            && let Some(index) = self.take_last(Axis::is_indexed)
        {
            return Leaf::Picked { outer: inner, inner: index };
        }
        Leaf::Grid { outer: self.take_stretch(), inner }
    }

    fn take_last(&mut self, suits: impl Fn(&Axis) -> bool) -> Option<Axis> {
        self.axes.last().is_some_and(suits).then(|| self.axes.pop())?
    }

    /// The innermost of the axes that are left, if it has no index array.
    fn take_stretch(&mut self) -> Stretch {
        self.take_last(|axis| !axis.is_indexed()).map_or(Stretch::ONE, |axis| Stretch::of(&axis))
    }

    /// The densest axis of each end among the first `count`, if they are two. An end that stays where it is along an axis has no
    /// opinion.
    fn take_disagreeing(&mut self, count: usize) -> Option<(Stretch, Stretch)> {
        let axes = self.axes.get(..count)?;
        let at_dest = count.checked_sub(1)?;
        let dest = axes.get(at_dest)?;
        let (at_src, src) = axes
            .iter()
            .enumerate()
            .filter(|(_, axis)| !axis.is_indexed() && axis.src.stride != 0)
            .min_by_key(|(_, axis)| axis.src.stride.unsigned_abs())?;
        let agree = dest.src.stride.unsigned_abs() <= src.src.stride.unsigned_abs();
        if dest.is_indexed() || agree {
            return None;
        }
        let stretches = (Stretch::of(dest), Stretch::of(src));
        self.axes.remove(at_dest);
        self.axes.remove(at_src);
        Some(stretches)
    }

    /// All bits that any stride of the destination has.
    pub fn dest_strides(&self) -> u64 {
        let of = |stretch: &Stretch| stretch.dest as u64;
        let leaf = match &self.leaf {
            Leaf::Line => 0,
            Leaf::Grid { outer, inner } => of(outer) | of(inner),
            Leaf::Picked { outer, inner } => of(outer) | inner.dest.stride as u64,
            Leaf::Tiles { along_dest, along_src, inner } => of(along_dest) | of(along_src) | of(inner),
        };
        self.axes.iter().fold(leaf, |all, axis| all | axis.dest.stride as u64)
    }
}

/// The axis from one of its places to another, with where it begins at both ends.
pub fn cut(axis: &Axis, dest: u64, src: u64, places: Range<u64>) -> (u64, u64, Axis) {
    let cut = |step: Step, base: u64| match step.index {
        None => {
            (base.wrapping_add_signed(step.stride.wrapping_mul(places.start as i64)), Step::by(step.stride))
        }
        Some(mut index) => {
            let skipped = index.stride.wrapping_mul(places.start as i64);
            index.address = index.address.wrapping_add_signed(skipped);
            (base, Step { index: Some(index), ..step })
        }
    };
    let ((dest, dest_step), (src, src_step)) = (cut(axis.dest, dest), cut(axis.src, src));
    (dest, src, Axis { extent: places.end - places.start, dest: dest_step, src: src_step })
}
