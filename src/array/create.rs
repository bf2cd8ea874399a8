//! New arrays, in memory of their own.
#![forbid(unsafe_code)]

use super::dtype::Dtype;
use super::layout::Layout;
use super::storage::{Owner, Storage};
use super::{ARRAYS, Array, Form, transfer};
use crate::alloc::{self, Request, Rule};
use crate::device::Device;
use crate::error::{Result, fail};
use crate::handle::Handle;

/// What a new array holds.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    Undefined,
    Zeros,
    Ones,
    /// This item, everywhere.
    Item(&'a [u8]),
}

/// Makes an array. The size of the request is the array's business, all else of it is the caller's.
pub fn create(
    device: &'static Device,
    form: Form<'_>,
    request: Request<'_>,
    content: Content<'_>,
) -> Result<Handle> {
    let layout = form.layout()?;
    if let Some(at) = form.strides.and_then(|strides| strides.iter().position(|stride| *stride < 0)) {
        fail!(
            NotSupported,
            "stride {at} of a new array is negative; make the array with positive strides and turn it round with warp_array_slice and a step of -1"
        );
    }
    // Found out first, so that a type that has no 1 costs no allocation.
    let one = if matches!(content, Content::Ones) { Some(form.dtype.one()?) } else { None };
    let stream = request.stream;
    let array = allocate(device, form.dtype, layout, request)?;
    match (content, &one) {
        (Content::Undefined, _) => {}
        (Content::Item(item), _) => transfer::fill_new(&array, item, stream)?,
        (Content::Ones, Some(item)) => transfer::fill_new(&array, item, stream)?,
        (Content::Zeros | Content::Ones, _) => transfer::fill_new(&array, &[0], stream)?,
    }
    ARRAYS.insert(array)
}

/// An array of undefined contents that has no handle yet.
pub(super) fn allocate(
    device: &'static Device,
    dtype: Dtype,
    layout: Layout,
    request: Request<'_>,
) -> Result<Array> {
    let asked = request.kind;
    let size = layout.reach().above;
    let address = alloc::allocate(device, Request { size, ..request })?;
    let storage = match alloc::find(address) {
        Some(block) if address != 0 => {
            Storage::new(device, address, size, (block.kind(), block.rule()), Owner::Library)
        }
        // Nothing was needed; it is of the kind that it would have been.
        _ => {
            let kind = alloc::kind_for(device, asked)?;
            Storage::new(device, 0, 0, (kind, Rule::of_kind(kind)), Owner::Lender)
        }
    };
    Ok(Array::new(storage, dtype, layout))
}
