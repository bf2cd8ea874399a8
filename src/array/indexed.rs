//! Arrays seen through index arrays: along a dimension that has one, the item at place `i` is the data's item that number
//! `i` of the index array names. Those numbers are data, on a device and perhaps not written yet: nobody reads them here.

use super::dtype::{Dtype, code};
use super::layout::count_items;
use super::{Array, enter as enter_array};
use crate::device::Device;
use crate::error::{Result, fail};
use crate::handle::{Entered, Handle, Hold, Object, Registry, Tag};
use smallvec::SmallVec;

static INDEXED: Registry<IndexedArray> = Registry::new();

/// Data and its index arrays, as views that keep their memory.
pub struct IndexedArray {
    data: Array,
    /// One for each dimension of the data; `None` where the dimension is whole.
    indices: Box<[Option<Array>]>,
    count: u64,
}

impl Object for IndexedArray {
    const TAG: Tag = Tag::IndexedArray;
}

impl IndexedArray {
    /// Of the data and of every index array.
    pub fn device(&self) -> &'static Device {
        self.data.device()
    }

    pub fn data(&self) -> &Array {
        &self.data
    }

    /// The index array of a dimension; `None` where that is whole.
    pub fn index_along(&self, dimension: usize) -> Option<&Array> {
        self.indices.get(dimension)?.as_ref()
    }

    /// All index arrays that there are.
    pub fn indices(&self) -> impl Iterator<Item = &Array> {
        self.indices.iter().flatten()
    }

    pub fn rank(&self) -> usize {
        self.indices.len()
    }

    /// Items along each dimension.
    pub fn shape(&self) -> SmallVec<[i64; 8]> {
        shape(&self.data, &self.indices)
    }

    /// How many items.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// As many items as there are indices, or as the data has.
fn shape(data: &Array, indices: &[Option<Array>]) -> SmallVec<[i64; 8]> {
    let extents = data.dims().iter().map(|dim| dim.extent);
    extents
        .zip(indices)
        .map(|(extent, index)| index.as_ref().map_or(extent, |index| index.dims()[0].extent))
        .collect()
}

/// Makes one of the data and the handles of its index arrays, one for each dimension, 0 where that stays whole.
pub fn create(data: &Array, indices: impl ExactSizeIterator<Item = Handle>) -> Result<Handle> {
    debug_assert_eq!(indices.len(), data.dims().len());
    data.require_present().map_err(|e| e.context("the data"))?;
    let indices = indices
        .enumerate()
        .map(|(at, handle)| if handle == 0 { Ok(None) } else { index_of(data, at, handle).map(Some) })
        .collect::<Result<Box<[_]>>>()?;
    // Index arrays may repeat items, so that there are more of them than the data has.
    let count = count_items(&shape(data, &indices), data.dtype().item_size())?;
    INDEXED.insert(IndexedArray { data: data.whole(), indices, count })
}

/// The index array of one dimension, if it can be one for that data.
fn index_of(data: &Array, at: usize, handle: Handle) -> Result<Array> {
    let context = |e: crate::error::Error| e.context(format_args!("the index array of dimension {at}"));
    let index = enter_array(handle).map_err(context)?;
    index.require_present().map_err(context)?;
    if !is_index(index.dtype()) {
        fail!(
            InvalidArgument,
            "the index array of dimension {at} has items of {}; indices are int32, one lane each",
            index.dtype().name()
        );
    }
    if index.dims().len() != 1 {
        fail!(
            InvalidArgument,
            "the index array of dimension {at} has {} dimensions; it has one: reshape it",
            index.dims().len()
        );
    }
    if !std::ptr::eq(index.device(), data.device()) {
        fail!(
            InvalidArgument,
            "the index array of dimension {at} is on {}, and the data is on {}; bring both to one device with warp_array_clone",
            name(index.device()),
            name(data.device())
        );
    }
    Ok(index.whole())
}

/// A context that was removed and registered again is another device with the same name.
fn name(device: &Device) -> String {
    let removed = if device.is_live() { "" } else { ", which was removed" };
    format!("\"{}\"{removed}", device.alias())
}

fn is_index(dtype: Dtype) -> bool {
    (dtype.code(), dtype.bits(), dtype.lanes()) == (code::INT, 32, 1)
}

/// Keeps the indexed array from being released while the guard lives.
pub fn enter(handle: Handle) -> Result<Entered<IndexedArray>> {
    INDEXED.enter(handle)
}

/// Makes the handle stale. The memory of its parts goes with the last array that shares it.
pub fn release(handle: Handle) -> Result<()> {
    INDEXED.close(handle).map(drop)
}

/// As `close_all` of arrays.
pub fn close_all() -> Vec<Hold<IndexedArray>> {
    INDEXED.close_all()
}

/// As `Registry::mend_in_child`.
pub unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe { INDEXED.mend_in_child() };
}
