//! Other ways to see the same items: sliced, reshaped, transposed, reinterpreted. A view that would need a copy is
//! refused.
#![forbid(unsafe_code)]

use super::layout::{Dim, Dims, Layout, MAX_RANK, count_items};
use crate::error::{Result, fail};
use smallvec::smallvec;

/// A layout and where its first item is, in bytes from the first item of what it is a view of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub layout: Layout,
    pub offset: i64,
}

/// Which items of one dimension: from `start` on, `step` apart, before `stop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// `None` is the first item in the direction of the step.
    pub start: Option<i64>,
    /// `None` is behind the last item in the direction of the step.
    pub stop: Option<i64>,
    pub step: i64,
}

impl Range {
    /// The first index and the number of items.
    fn resolve(&self, extent: i64, at: usize) -> Result<(i64, i64)> {
        let Range { start, stop, step } = *self;
        if step == 0 {
            fail!(
                InvalidArgument,
                "dimension {at}: a slice with step 0 stays where it is; the step is at least 1, or negative"
            );
        }
        let (first, behind) = if step > 0 { (0, extent) } else { (extent - 1, -1) };
        let (start, stop) = (start.unwrap_or(first), stop.unwrap_or(behind));
        let inside = if step > 0 {
            0 <= start && start <= stop && stop <= extent
        } else {
            extent > start && start >= stop && stop >= -1
        };
        if !inside {
            let rule = if step > 0 { "0 <= start <= stop <= extent" } else { "extent > start >= stop >= -1" };
            fail!(
                InvalidArgument,
                "dimension {at}: start {start}, stop {stop}, step {step} is no slice of {extent} items; it must be {rule}"
            );
        }
        let distance = (i128::from(stop) - i128::from(start)).unsigned_abs();
        Ok((start, distance.div_ceil(u128::from(step.unsigned_abs())) as i64))
    }
}

impl Layout {
    /// Cuts the first dimensions, one range each; the others stay whole.
    pub fn slice(&self, ranges: &[Range]) -> Result<View> {
        if ranges.len() > self.rank() {
            fail!(
                InvalidArgument,
                "{} dimensions are to be cut, and the array has {}",
                ranges.len(),
                self.rank()
            );
        }
        let mut dims: Dims = self.dims().into();
        let mut offset = 0;
        for (at, (dim, range)) in dims.iter_mut().zip(ranges).enumerate() {
            let (start, extent) = range.resolve(dim.extent, at)?;
            if extent > 0 && !self.is_empty() {
                offset += start * dim.stride;
            }
            // Where there is no second item the stride leads nowhere and may be anything.
            let stride = dim.stride.checked_mul(range.step).unwrap_or(dim.stride);
            *dim = Dim { extent, stride };
        }
        // What is left of extents whose product fits has a product that fits.
        let count = if self.is_empty() { 0 } else { dims.iter().map(|dim| dim.extent as u64).product() };
        let offset = if count == 0 { 0 } else { offset };
        Ok(View { layout: Layout::of(dims, self.item_size() as i64, count), offset })
    }

    /// The same items in the same order in another shape. One dimension may be -1: what is left.
    pub fn reshape(&self, shape: &[i64]) -> Result<View> {
        let shape = self.complete(shape)?;
        let item_size = self.item_size() as i64;
        if self.is_contiguous() {
            return Ok(View { layout: Layout::contiguous(&shape, item_size as u32)?, offset: 0 });
        }
        // From the last dimension on, each new one takes its part of the innermost piece of even spacing that is
        // not used up. One that does not divide it would have items of two spacings.
        let mut pieces = pieces(self.dims()).into_iter();
        let mut piece = Dim { extent: 1, stride: item_size };
        let mut dims: Dims = shape.iter().map(|&extent| Dim { extent, stride: 0 }).collect();
        for dim in dims.iter_mut().rev() {
            if dim.extent > 1 && piece.extent == 1 {
                piece = pieces.next().unwrap_or(piece);
            }
            if piece.extent % dim.extent != 0 {
                fail!(
                    NotSupported,
                    "shape {:?} with strides {:?} cannot be seen as {shape:?} without a copy; make it contiguous first",
                    self.shape(),
                    self.dims().iter().map(|dim| dim.stride).collect::<Vec<_>>()
                );
            }
            dim.stride = piece.stride;
            piece.extent /= dim.extent;
            // Only behind the last item of the piece can this pass the end of an i64, and there nothing is.
            piece.stride = piece.stride.wrapping_mul(dim.extent);
        }
        Ok(View { layout: Layout::of(dims, item_size, self.count()), offset: 0 })
    }

    /// The shape with its -1 worked out, for exactly the items that there are.
    fn complete(&self, shape: &[i64]) -> Result<Dims64> {
        let mut complete: Dims64 = shape.into();
        if shape.len() > MAX_RANK {
            fail!(InvalidArgument, "{} dimensions; an array has at most {MAX_RANK}", shape.len());
        }
        let mut open = shape.iter().enumerate().filter(|(_, extent)| **extent == -1).map(|(at, _)| at);
        if let Some(at) = open.next() {
            if open.next().is_some() {
                fail!(InvalidArgument, "shape {shape:?} leaves more than one dimension open");
            }
            complete[at] = 1;
            let others = count_items(&complete, 1)?;
            if others == 0 || !self.count().is_multiple_of(others) {
                fail!(
                    InvalidArgument,
                    "{} items cannot be divided so that shape {shape:?} comes out even",
                    self.count()
                );
            }
            complete[at] = (self.count() / others) as i64;
        }
        let count = count_items(&complete, self.item_size() as u32)?;
        if count != self.count() {
            fail!(InvalidArgument, "shape {shape:?} has {count} items, and the array has {}", self.count());
        }
        Ok(complete)
    }

    /// The dimensions in another order; `None` turns the order round.
    pub fn transpose(&self, axes: Option<&[i32]>) -> Result<View> {
        let rank = self.rank();
        let mut dims: Dims = self.dims().iter().rev().copied().collect();
        if let Some(axes) = axes {
            if axes.len() != rank {
                fail!(InvalidArgument, "{} axes for an array of {rank} dimensions", axes.len());
            }
            let mut seen = [false; MAX_RANK];
            for (dim, &axis) in dims.iter_mut().zip(axes) {
                let Some(from) = usize::try_from(axis).ok().filter(|from| *from < rank) else {
                    fail!(InvalidArgument, "axis {axis} of {axes:?}: the axes are 0 to {}", rank - 1);
                };
                if std::mem::replace(&mut seen[from], true) {
                    fail!(
                        InvalidArgument,
                        "axis {axis} stands twice in {axes:?}; each axis stands there once"
                    );
                }
                *dim = self.dims()[from];
            }
        }
        Ok(View { layout: Layout::of(dims, self.item_size() as i64, self.count()), offset: 0 })
    }

    /// The same bytes as items of another size. Another size changes the last dimension, which must then be without
    /// gaps.
    pub fn reinterpret(&self, item_size: u32) -> Result<View> {
        let (old, new) = (self.item_size() as i64, i64::from(item_size));
        let mut dims: Dims = self.dims().into();
        if old == new {
            return Ok(View { layout: self.clone(), offset: 0 });
        }
        let Some(last) = dims.last_mut() else {
            fail!(
                SizeMismatch,
                "an array without dimensions has one item of {old} bytes and cannot have items of {new}; reshape it to one dimension first"
            );
        };
        if last.extent > 1 && last.stride != old {
            fail!(
                NotSupported,
                "items of {old} bytes can be seen as items of {new} only where the last dimension has no gaps; here its stride is {}: make it contiguous first",
                last.stride
            );
        }
        // An empty array's extents may be anything, so that this product need not fit.
        let Some(bytes) = last.extent.checked_mul(old) else {
            fail!(SizeOverflow, "the last dimension has {} items of {old} bytes", last.extent);
        };
        if bytes % new != 0 {
            fail!(
                SizeMismatch,
                "the last dimension has {} items of {old} bytes, which is no whole number of items of {new}",
                last.extent
            );
        }
        *last = Dim { extent: bytes / new, stride: new };
        let count = self.size() / new as u64;
        Ok(View { layout: Layout::of(dims, new, count), offset: 0 })
    }
}

type Dims64 = smallvec::SmallVec<[i64; 8]>;

/// The dimensions joined where one goes on at the spacing of the next, innermost first.
fn pieces(dims: &[Dim]) -> Dims {
    let mut pieces: Dims = smallvec![];
    for dim in dims.iter().rev().filter(|dim| dim.extent != 1) {
        match pieces.last_mut() {
            Some(inner) if inner.stride.checked_mul(inner.extent) == Some(dim.stride) => {
                inner.extent *= dim.extent;
            }
            _ => pieces.push(*dim),
        }
    }
    pieces
}
