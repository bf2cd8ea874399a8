//! How items lie in memory: shapes and strides, and what a view makes of them. Pure arithmetic, in bytes, that
//! cannot overflow: what does not fit an address space is refused when a layout is made.
#![forbid(unsafe_code)]

use crate::error::{Result, fail};
use smallvec::SmallVec;

/// As many dimensions as an array can have.
pub const MAX_RANK: usize = 32;

/// One dimension: how many items, and how many bytes from each to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dim {
    pub extent: i64,
    pub stride: i64,
}

/// Dimensions, few of them without an allocation.
pub(super) type Dims = SmallVec<[Dim; 4]>;

/// Where the items are, relative to the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    dims: Dims,
    item_size: i64,
    count: u64,
    contiguous: bool,
}

/// The bytes that a layout touches, counted from the address of its first item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Bytes before it, which negative strides lead to.
    pub below: u64,
    /// Bytes from it on.
    pub above: u64,
}

impl Layout {
    /// Items in row order without gaps.
    pub fn contiguous(shape: &[i64], item_size: u32) -> Result<Layout> {
        let count = count_items(shape, item_size)?;
        let mut dims: Dims = shape.iter().map(|&extent| Dim { extent, stride: 0 }).collect();
        let mut stride = i64::from(item_size);
        for dim in dims.iter_mut().rev() {
            dim.stride = stride;
            // Only an empty array can get past what an i64 holds, and its strides lead nowhere.
            stride = stride.checked_mul(dim.extent.max(1)).unwrap_or(0);
        }
        Ok(Layout { dims, item_size: i64::from(item_size), count, contiguous: true })
    }

    /// Items at strides of the caller's choice.
    pub fn strided(shape: &[i64], strides: &[i64], item_size: u32) -> Result<Layout> {
        let count = count_items(shape, item_size)?;
        if strides.len() != shape.len() {
            fail!(InvalidArgument, "{} strides for {} dimensions", strides.len(), shape.len());
        }
        let dims: Dims = shape.iter().zip(strides).map(|(&extent, &stride)| Dim { extent, stride }).collect();
        let layout = Layout::of(dims, i64::from(item_size), count);
        if count > 0 {
            layout.check_reach(shape, strides)?;
        }
        Ok(layout)
    }

    /// A layout whose reach is known to fit.
    pub(super) fn of(dims: Dims, item_size: i64, count: u64) -> Layout {
        let contiguous = is_contiguous(&dims, item_size, count);
        Layout { dims, item_size, count, contiguous }
    }

    fn check_reach(&self, shape: &[i64], strides: &[i64]) -> Result<()> {
        let (mut below, mut above) = (0i128, i128::from(self.item_size));
        for dim in &self.dims {
            // Less than 2^126, and the sums are checked before they can grow on.
            let far = i128::from(dim.extent - 1) * i128::from(dim.stride);
            if far < 0 {
                below -= far;
            } else {
                above += far;
            }
            if below > i128::from(i64::MAX) || above > i128::from(i64::MAX) {
                fail!(
                    SizeOverflow,
                    "shape {shape:?} with strides {strides:?} reaches further than any address space goes (the limit is 2^63 - 1 bytes)"
                );
            }
        }
        Ok(())
    }

    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    pub fn shape(&self) -> SmallVec<[i64; 8]> {
        self.dims.iter().map(|dim| dim.extent).collect()
    }

    pub fn item_size(&self) -> u64 {
        self.item_size as u64
    }

    /// How many items.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The bytes of all items.
    pub fn size(&self) -> u64 {
        self.count * self.item_size as u64
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the items follow each other in row order without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    pub fn reach(&self) -> Reach {
        if self.is_empty() {
            return Reach { below: 0, above: 0 };
        }
        let mut reach = Reach { below: 0, above: self.item_size as u64 };
        for dim in &self.dims {
            let far = (dim.extent - 1) as u64 * dim.stride.unsigned_abs();
            if dim.stride < 0 {
                reach.below += far;
            } else {
                reach.above += far;
            }
        }
        reach
    }
}

/// The items of a shape, once it is known that the shape makes sense and its bytes can be counted.
pub(super) fn count_items(shape: &[i64], item_size: u32) -> Result<u64> {
    if shape.len() > MAX_RANK {
        fail!(InvalidArgument, "{} dimensions; an array has at most {MAX_RANK}", shape.len());
    }
    if let Some(at) = shape.iter().position(|extent| *extent < 0) {
        fail!(InvalidArgument, "dimension {at} of shape {shape:?} is negative");
    }
    if shape.contains(&0) {
        return Ok(0);
    }
    let bytes = shape.iter().try_fold(i64::from(item_size), |product, extent| product.checked_mul(*extent));
    match bytes {
        Some(bytes) => Ok((bytes / i64::from(item_size)) as u64),
        None => fail!(
            SizeOverflow,
            "shape {shape:?} of items of {item_size} bytes is more than any address space has (the limit is 2^63 - 1 bytes)"
        ),
    }
}

fn is_contiguous(dims: &[Dim], item_size: i64, count: u64) -> bool {
    if count <= 1 {
        return true;
    }
    let mut expected = item_size;
    dims.iter().rev().filter(|dim| dim.extent != 1).all(|dim| {
        let follows = dim.stride == expected;
        // The product of all extents fits, so each product on the way does.
        expected *= dim.extent;
        follows
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    fn status(result: Result<Layout>) -> Status {
        result.expect_err("it is refused").status
    }

    #[test]
    fn row_order_has_its_strides_from_the_last_dimension() {
        let layout = Layout::contiguous(&[2, 3, 4], 8).unwrap();
        assert_eq!(layout.dims().iter().map(|d| d.stride).collect::<Vec<_>>(), [96, 32, 8]);
        assert_eq!((layout.count(), layout.size(), layout.is_contiguous()), (24, 192, true));
        assert_eq!(layout.reach(), Reach { below: 0, above: 192 });
    }

    #[test]
    fn no_dimension_is_one_item_and_a_zero_is_none() {
        let scalar = Layout::contiguous(&[], 4).unwrap();
        assert_eq!((scalar.count(), scalar.size(), scalar.rank()), (1, 4, 0));
        let empty = Layout::contiguous(&[3, 0, i64::MAX, i64::MAX], 8).unwrap();
        assert_eq!((empty.count(), empty.size(), empty.is_contiguous()), (0, 0, true));
        assert_eq!(empty.reach(), Reach { below: 0, above: 0 });
        let strided = Layout::strided(&[i64::MAX, 0], &[i64::MAX, i64::MIN], 8).unwrap();
        assert!(strided.is_empty() && strided.is_contiguous());
    }

    #[test]
    fn what_fits_no_address_space_is_refused() {
        assert_eq!(status(Layout::contiguous(&[1 << 62, 2], 1)), Status::SizeOverflow);
        assert_eq!(status(Layout::contiguous(&[i64::MAX], 2)), Status::SizeOverflow);
        assert!(Layout::contiguous(&[i64::MAX], 1).is_ok());
        assert_eq!(status(Layout::contiguous(&[2; 63], 1)), Status::InvalidArgument);
        assert_eq!(status(Layout::contiguous(&[1; 33], 1)), Status::InvalidArgument);
        assert!(Layout::contiguous(&[1; 32], 1).is_ok());
        assert_eq!(status(Layout::contiguous(&[-1], 1)), Status::InvalidArgument);
        assert_eq!(status(Layout::contiguous(&[0, -1], 1)), Status::InvalidArgument);
        assert_eq!(status(Layout::strided(&[3], &[i64::MAX], 1)), Status::SizeOverflow);
        assert_eq!(status(Layout::strided(&[3], &[i64::MIN], 1)), Status::SizeOverflow);
        assert_eq!(status(Layout::strided(&[2, 2], &[i64::MAX - 4, 8], 1)), Status::SizeOverflow);
        assert_eq!(status(Layout::strided(&[2; 32], &[i64::MAX; 32], 1)), Status::SizeOverflow);
        assert_eq!(status(Layout::strided(&[i64::MAX, 2], &[0, 0], 1)), Status::SizeOverflow);
        assert_eq!(status(Layout::strided(&[2], &[1, 1], 1)), Status::InvalidArgument);
    }

    #[test]
    fn the_reach_goes_both_ways() {
        let layout = Layout::strided(&[4, 3], &[-16, 100], 4).unwrap();
        assert_eq!(layout.reach(), Reach { below: 48, above: 204 });
        let repeated = Layout::strided(&[1000, 3], &[0, 4], 4).unwrap();
        assert_eq!(repeated.reach(), Reach { below: 0, above: 12 });
        assert!(!repeated.is_contiguous());
    }

    #[test]
    fn a_dimension_of_one_says_nothing_by_its_stride() {
        assert!(Layout::strided(&[1, 5, 1], &[-77, 4, i64::MIN], 4).unwrap().is_contiguous());
        assert!(!Layout::strided(&[5, 1], &[8, 4], 4).unwrap().is_contiguous());
        assert!(Layout::strided(&[1, 1], &[0, 0], 4).unwrap().is_contiguous());
    }
}
