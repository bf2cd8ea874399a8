//! A layout as a set of runs: stretches of memory that are full of items. For work that treats all items alike, so
//! that their order does not matter.
#![forbid(unsafe_code)]

use super::layout::{Dim, Dims, Layout};
use smallvec::{SmallVec, smallvec};

/// Equal stretches at regular distances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    /// Bytes of each run.
    pub size: u64,
    /// Whether no byte is in two of them.
    pub disjoint: bool,
    /// Whether two items may share some of their bytes and not all.
    pub torn: bool,
    /// Where they begin, outermost first; strides are positive.
    pub dims: Dims,
}

impl Layout {
    /// The runs of a layout that has items; offsets count from its lowest byte.
    pub fn runs(&self) -> Runs {
        let item_size = self.item_size();
        // A dimension that runs backwards has the same items as one that runs forwards from its other end, and one
        // that stays in place has one item.
        let mut dims: SmallVec<[(u64, u64); 4]> = self
            .dims()
            .iter()
            .filter(|dim| dim.extent > 1 && dim.stride != 0)
            .map(|dim| (dim.stride.unsigned_abs(), dim.extent as u64))
            .collect();
        dims.sort_unstable();
        let uneven = dims.iter().any(|(stride, _)| !stride.is_multiple_of(item_size));
        let (mut size, mut span, mut disjoint) = (item_size, item_size, true);
        let mut outer: Dims = smallvec![];
        for (stride, extent) in dims {
            disjoint &= stride >= span;
            span += (extent - 1) * stride;
            match outer.last_mut() {
                None if stride == size => size *= extent,
                Some(inner) if inner.stride.checked_mul(inner.extent) == Some(stride as i64) => {
                    inner.extent *= extent as i64;
                }
                _ => outer.push(Dim { extent: extent as i64, stride: stride as i64 }),
            }
        }
        outer.reverse();
        Runs { size, disjoint, torn: uneven && !disjoint, dims: outer }
    }
}
