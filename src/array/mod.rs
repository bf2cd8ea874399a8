//! Arrays: items of one type at regular places in memory that is shared with views and kept until the last of them
//! is released.

mod create;
mod dtype;
pub mod indexed;
mod layout;
#[cfg(test)]
mod model_tests;
mod runs;
mod storage;
mod transfer;
mod view;
mod wrap;

pub use create::{Content, create};
pub use dtype::{Dtype, code};
pub use indexed::IndexedArray;
pub use layout::{Dim, MAX_RANK};
pub use storage::Deleter;
pub use transfer::{
    Copy, Extract, Named, clone_to, contiguous, copy, fill, fill_indexed, plan_copy, retain, to_device,
};
pub use view::Range;
pub use wrap::{External, wrap};

use crate::alloc::{Block, Kind, Rule};
use crate::device::Device;
use crate::error::Result;
use crate::handle::{Entered, Handle, Hold, MARK_MAX, Marked, Object, Registry, Tag};
use layout::Layout;
use smallvec::SmallVec;
use std::sync::Arc;
use storage::Storage;
use view::View;

static ARRAYS: Registry<Array> = Registry::new();

/// The shape of what is to be made, and the caller's strides where rows without gaps are not what is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Form<'a> {
    pub dtype: Dtype,
    pub shape: &'a [i64],
    pub strides: Option<&'a [i64]>,
}

impl Form<'_> {
    fn layout(&self) -> Result<Layout> {
        match self.strides {
            None => Layout::contiguous(self.shape, self.dtype.item_size()),
            Some(strides) => Layout::strided(self.shape, strides, self.dtype.item_size()),
        }
    }
}

/// An array or a view of one.
pub struct Array {
    storage: Arc<Storage>,
    /// The first item's; 0 where there is none.
    address: u64,
    dtype: Dtype,
    layout: Layout,
    view: bool,
}

impl Object for Array {
    const TAG: Tag = Tag::Array;

    fn mark(&self) -> u64 {
        match self.rule() {
            Rule::Mapping => 0,
            Rule::Managed if !self.is_owned() => 0,
            _ => home_mark(self.device()),
        }
    }
}

/// What marks arrays whose memory is at home on a device, where that alone tells that the device may touch it: mappings are for
/// whom they were mapped, and managed memory may be wrapped on any device. 0 for devices that are too many.
fn home_mark(device: &Device) -> u64 {
    let mark = u64::from(device.index()) + 1;
    if mark > MARK_MAX { 0 } else { mark }
}

impl Array {
    fn new(storage: Storage, dtype: Dtype, layout: Layout) -> Array {
        let address = if layout.is_empty() { 0 } else { storage.address };
        Array { storage: Arc::new(storage), address, dtype, layout, view: false }
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub fn device(&self) -> &'static Device {
        self.storage.device
    }

    pub fn kind(&self) -> Kind {
        self.storage.kind
    }

    pub fn rule(&self) -> Rule {
        self.storage.rule
    }

    /// Bytes of the memory that it shares with its views.
    pub fn capacity(&self) -> u64 {
        self.storage.capacity
    }

    /// How many items.
    pub fn count(&self) -> u64 {
        self.layout.count()
    }

    /// The bytes of all items.
    pub fn size(&self) -> u64 {
        self.layout.size()
    }

    pub fn dims(&self) -> &[Dim] {
        self.layout.dims()
    }

    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    pub fn is_view(&self) -> bool {
        self.view
    }

    /// Whether its memory is a block that this library allocated for it.
    pub fn is_owned(&self) -> bool {
        self.storage.is_owned()
    }

    pub fn has_deleter(&self) -> bool {
        self.storage.has_deleter()
    }

    fn seen_as(&self, View { layout, offset }: View, dtype: Dtype) -> Array {
        // Views stay inside what their array reaches.
        let address = if layout.is_empty() { 0 } else { self.address.wrapping_add_signed(offset) };
        Array { storage: Arc::clone(&self.storage), address, dtype, layout, view: true }
    }

    /// A view of all of it, without a handle.
    fn whole(&self) -> Array {
        self.seen_as(View { layout: self.layout.clone(), offset: 0 }, self.dtype)
    }

    /// Whether the block is the one that was allocated for it.
    pub fn is_in(&self, block: &Block) -> bool {
        self.storage.is_in(block)
    }

    /// An error when its memory is gone: with its context, or freed by its address. An array without items has none.
    pub fn require_present(&self) -> Result<()> {
        if self.layout.is_empty() { Ok(()) } else { self.storage.require_present() }
    }

    /// A view of some of the items.
    pub fn slice(&self, ranges: &[Range]) -> Result<Handle> {
        ARRAYS.insert(self.seen_as(self.layout.slice(ranges)?, self.dtype))
    }

    /// A view in another shape.
    pub fn reshape(&self, shape: &[i64]) -> Result<Handle> {
        ARRAYS.insert(self.seen_as(self.layout.reshape(shape)?, self.dtype))
    }

    /// A view with its dimensions in another order; `None` turns the order round.
    pub fn transpose(&self, axes: Option<&[i32]>) -> Result<Handle> {
        ARRAYS.insert(self.seen_as(self.layout.transpose(axes)?, self.dtype))
    }

    /// A view of the same bytes as items of another type.
    pub fn reinterpret(&self, dtype: Dtype) -> Result<Handle> {
        let view = self
            .layout
            .reinterpret(dtype.item_size())
            .map_err(|e| e.context(format_args!("{} as {}", self.dtype.name(), dtype.name())))?;
        ARRAYS.insert(self.seen_as(view, dtype))
    }

    fn strides(&self) -> SmallVec<[i64; 8]> {
        self.dims().iter().map(|dim| dim.stride).collect()
    }
}

/// Keeps the array from being released while the guard lives.
#[inline]
pub fn enter(handle: Handle) -> Result<Entered<Array>> {
    ARRAYS.enter(handle)
}

/// Tells arrays whose memory is the device's own to touch by their handles alone. That costs a few nanoseconds, and does not look
/// whether the memory is still there.
pub struct PlainlyOn(Marked<Array>);

impl PlainlyOn {
    #[inline(always)]
    pub fn device(device: &Device) -> PlainlyOn {
        PlainlyOn(ARRAYS.marked(home_mark(device)))
    }

    #[inline(always)]
    pub fn is(&self, handle: Handle) -> bool {
        self.0.has(handle)
    }
}

/// Makes the handle stale. The memory goes with the last array that shares it.
pub fn release(handle: Handle) -> Result<()> {
    ARRAYS.close(handle).map(drop)
}

/// Makes every array's handle stale. Memory is given back when the holds are dropped, which calls deleters: not
/// while a lock is held.
pub fn close_all() -> Vec<Hold<Array>> {
    ARRAYS.close_all()
}

/// As `Registry::mend_in_child`.
pub unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe { ARRAYS.mend_in_child() };
}
