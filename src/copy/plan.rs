//! What a copy of items comes down to: rows of bytes, and the axes along which they are repeated. Pure arithmetic on what was
//! checked before: every place that a plan names lies in the memory that it is for, but those that index arrays lead to.
//!
//! The order of the items means nothing to a copy, so axes are turned round, sorted and merged until as few are left as can be.
//! The bytes of a plan are numbered in the order of its axes, the last one fastest, as they lie in *linear* memory: what goes
//! through a buffer is packed in that order on the way in and unpacked in the same on the way out.
#![forbid(unsafe_code)]

use smallvec::{Array, SmallVec};

/// The two ends of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Dest,
    Src,
}

/// The numbers by which an axis picks items: `int32` ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    /// Of the first number.
    pub address: u64,
    /// Bytes from each to the next.
    pub stride: i64,
    /// Numbers from 0 to below this are items.
    pub limit: i64,
}

/// How an end goes on along an axis: bytes from each item to the next, or to the item after the one that is numbered 0 where
/// an index array says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub stride: i64,
    pub index: Option<Index>,
}

impl Step {
    pub fn by(stride: i64) -> Step {
        Step { stride, index: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    pub extent: u64,
    pub dest: Step,
    pub src: Step,
}

impl Axis {
    pub fn is_indexed(&self) -> bool {
        self.dest.index.is_some() || self.src.index.is_some()
    }

    pub fn step(&self, which: Which) -> Step {
        match which {
            Which::Dest => self.dest,
            Which::Src => self.src,
        }
    }

    /// Whether going once along the inner axis and on is a step of this one, at both ends.
    fn follows(&self, inner: &Axis) -> bool {
        let goes_on = |outer: Step, inner_step: Step| {
            i64::try_from(inner.extent).ok().and_then(|extent| inner_step.stride.checked_mul(extent))
                == Some(outer.stride)
        };
        !self.is_indexed()
            && !inner.is_indexed()
            && goes_on(self.dest, inner.dest)
            && goes_on(self.src, inner.src)
    }
}

/// Few axes without an allocation.
pub type Axes = SmallVec<[Axis; 3]>;

/// Makes axes that go on where the row or the next axis inside ends one with it, wherever a sorted plan has such.
pub fn merge<A: Array<Item = Axis>>(row: &mut u64, axes: &mut SmallVec<A>) {
    while let Some(axis) = axes.last() {
        if axis.is_indexed() || axis.dest.stride != *row as i64 || axis.src.stride != *row as i64 {
            break;
        }
        *row *= axis.extent;
        axes.pop();
    }
    for at in (1..axes.len()).rev() {
        if axes[at - 1].follows(&axes[at]) {
            let inner = axes.remove(at);
            axes[at - 1] = Axis { extent: axes[at - 1].extent * inner.extent, ..inner };
        }
    }
}

/// One end, before it becomes part of a plan: the address of the item at the origin, and one step for each dimension.
#[derive(Debug, Clone)]
pub struct Side {
    pub address: u64,
    pub steps: SmallVec<[Step; 4]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Where the first row is written.
    pub dest: u64,
    /// Where it is read.
    pub src: u64,
    /// Bytes that lie together at both ends.
    pub row: u64,
    /// Outermost first; none where one row is all.
    pub axes: Axes,
}

impl Plan {
    /// `size` bytes that lie together at both ends.
    pub fn line(dest: u64, src: u64, size: u64) -> Plan {
        Plan { dest, src, row: size, axes: Axes::new() }
    }

    /// The items of a shape without zeros, each of `item` bytes. The axes are in the order in which the `lead` lies in memory,
    /// so that it is linear if it has no gaps.
    pub fn new(shape: &[u64], item: u64, dest: &Side, src: &Side, lead: Which) -> Plan {
        let mut plan = Plan { dest: dest.address, src: src.address, row: item, axes: Axes::new() };
        for ((&extent, &to), &from) in shape.iter().zip(&dest.steps).zip(&src.steps) {
            let mut axis = Axis { extent, dest: to, src: from };
            if axis.is_indexed() {
                plan.axes.push(axis);
            } else if extent > 1 {
                // Backwards at the leading end is forwards from the other end of the axis.
                let stride = axis.step(lead).stride;
                let other = match lead {
                    Which::Dest => axis.src.stride,
                    Which::Src => axis.dest.stride,
                };
                if stride < 0 || stride == 0 && other < 0 {
                    let last = (extent - 1) as i64;
                    plan.dest = plan.dest.wrapping_add_signed(axis.dest.stride.wrapping_mul(last));
                    plan.src = plan.src.wrapping_add_signed(axis.src.stride.wrapping_mul(last));
                    axis.dest.stride = axis.dest.stride.wrapping_neg();
                    axis.src.stride = axis.src.stride.wrapping_neg();
                }
                plan.axes.push(axis);
            }
        }
        plan.axes.sort_by_key(|axis| std::cmp::Reverse(axis.step(lead).stride.unsigned_abs()));
        plan.merge();
        plan
    }

    fn merge(&mut self) {
        merge(&mut self.row, &mut self.axes);
    }

    /// How many rows.
    pub fn rows(&self) -> u64 {
        self.axes.iter().map(|axis| axis.extent).product()
    }

    /// Bytes of all rows.
    pub fn size(&self) -> u64 {
        self.rows() * self.row
    }

    /// Whether one row is all.
    pub fn is_line(&self) -> bool {
        self.axes.is_empty()
    }

    pub fn is_indexed(&self) -> bool {
        self.axes.iter().any(Axis::is_indexed)
    }

    pub fn address(&self, which: Which) -> u64 {
        match which {
            Which::Dest => self.dest,
            Which::Src => self.src,
        }
    }

    /// Whether an end's bytes follow each other without gaps, in the order of the plan.
    pub fn is_linear(&self, which: Which) -> bool {
        let mut expected = self.row as i64;
        self.axes.iter().rev().all(|axis| {
            let step = axis.step(which);
            let follows = step.index.is_none() && step.stride == expected;
            expected = expected.wrapping_mul(axis.extent as i64);
            follows
        })
    }

    /// The same plan with one end in linear memory, whose first byte is at `address`. Not to be merged anew: the order of the
    /// bytes has to stay.
    pub fn with_linear(&self, which: Which, address: u64) -> Plan {
        let mut plan = self.clone();
        let mut stride = self.row as i64;
        for axis in plan.axes.iter_mut().rev() {
            let step = Step::by(stride);
            stride = stride.wrapping_mul(axis.extent as i64);
            match which {
                Which::Dest => axis.dest = step,
                Which::Src => axis.src = step,
            }
        }
        match which {
            Which::Dest => plan.dest = address,
            Which::Src => plan.src = address,
        }
        plan
    }

    /// The largest power of two, at most 16, that divides every address, stride and row: what can be moved at once everywhere.
    pub fn word(&self) -> u64 {
        let strides = self.axes.iter().map(|axis| axis.dest.stride as u64 | axis.src.stride as u64);
        let all = strides.fold(self.dest | self.src | self.row | 16, |all, stride| all | stride);
        1 << all.trailing_zeros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(address: u64, strides: &[i64]) -> Side {
        Side { address, steps: strides.iter().map(|&stride| Step::by(stride)).collect() }
    }

    #[test]
    fn what_lies_together_at_both_ends_is_one_row() {
        let plan =
            Plan::new(&[2, 3, 4], 8, &side(1000, &[96, 32, 8]), &side(5000, &[96, 32, 8]), Which::Dest);
        assert_eq!(plan, Plan::line(1000, 5000, 192));
        assert!(plan.is_line() && plan.is_linear(Which::Dest) && plan.is_linear(Which::Src));
        // The same order at both ends, though not that of rows.
        let plan = Plan::new(&[4, 3], 8, &side(0, &[8, 32]), &side(64, &[8, 32]), Which::Dest);
        assert_eq!(plan, Plan::line(0, 64, 96));
    }

    #[test]
    fn gaps_stay_and_what_can_be_merged_is() {
        // Rows of 12 bytes out of 16, of 5 x 7 of them.
        let plan = Plan::new(&[5, 7, 3], 4, &side(0, &[84, 12, 4]), &side(0, &[112, 16, 4]), Which::Dest);
        assert_eq!(plan.row, 12);
        assert_eq!(plan.axes.len(), 1);
        assert_eq!(plan.axes[0], Axis { extent: 35, dest: Step::by(12), src: Step::by(16) });
        assert!(plan.is_linear(Which::Dest) && !plan.is_linear(Which::Src));
        assert_eq!((plan.rows(), plan.size(), plan.word()), (35, 420, 4));
    }

    #[test]
    fn backwards_at_both_ends_is_forwards() {
        let plan = Plan::new(&[10], 4, &side(136, &[-4]), &side(236, &[-4]), Which::Dest);
        assert_eq!(plan, Plan::line(100, 200, 40));
        let plan = Plan::new(&[10], 4, &side(136, &[-4]), &side(200, &[4]), Which::Dest);
        assert_eq!((plan.dest, plan.src), (100, 236));
        assert_eq!(plan.axes[0], Axis { extent: 10, dest: Step::by(4), src: Step::by(-4) });
        let plan = Plan::new(&[10], 4, &side(100, &[4]), &side(236, &[-4]), Which::Src);
        assert_eq!((plan.dest, plan.src), (136, 200));
        assert_eq!(plan.axes[0], Axis { extent: 10, dest: Step::by(-4), src: Step::by(4) });
    }

    #[test]
    fn the_lead_says_the_order_of_the_axes() {
        let (dest, src) = (side(0, &[20, 4]), side(0, &[4, 12]));
        let by_dest = Plan::new(&[3, 5], 4, &dest, &src, Which::Dest);
        assert_eq!(by_dest.axes.iter().map(|axis| axis.extent).collect::<Vec<_>>(), [3, 5]);
        assert!(by_dest.is_linear(Which::Dest));
        let by_src = Plan::new(&[3, 5], 4, &dest, &src, Which::Src);
        assert_eq!(by_src.axes.iter().map(|axis| axis.extent).collect::<Vec<_>>(), [5, 3]);
        assert!(by_src.is_linear(Which::Src));
    }

    #[test]
    fn an_axis_with_an_index_stays_as_it_is() {
        let index = Index { address: 64, stride: 4, limit: 9 };
        let mut src = side(0, &[16, 4]);
        src.steps[0].index = Some(index);
        let plan = Plan::new(&[1, 4], 4, &side(0, &[16, 4]), &src, Which::Dest);
        assert_eq!(plan.row, 16);
        assert_eq!(plan.axes[0].src, Step { stride: 16, index: Some(index) });
        assert!(plan.is_indexed() && plan.is_linear(Which::Dest) && !plan.is_linear(Which::Src));
    }

    #[test]
    fn an_end_becomes_linear_in_the_order_of_the_plan() {
        let plan = Plan::new(&[2, 3], 4, &side(0, &[4, 100]), &side(0, &[64, 8]), Which::Dest);
        let packed = plan.with_linear(Which::Dest, 1 << 20);
        assert!(packed.is_linear(Which::Dest));
        assert_eq!((packed.dest, packed.src, packed.size()), (1 << 20, plan.src, 24));
        let unpacked = plan.with_linear(Which::Src, 1 << 20);
        assert!(unpacked.is_linear(Which::Src));
        assert_eq!(unpacked.axes[0].dest, plan.axes[0].dest);
    }
}
