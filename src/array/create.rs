//! New arrays, in memory of their own.
#![forbid(unsafe_code)]

use super::dtype::Dtype;
use super::layout::Layout;
use super::storage::{Owner, Storage};
use super::{ARRAYS, Array, Form, transfer};
use crate::alloc::{self, Request, Rule};
use crate::copy;
use crate::device::Device;
use crate::error::{Result, fail};
use crate::handle::Handle;
use smallvec::smallvec;

/// What a new array holds.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    Undefined,
    Zeros,
    Ones,
    /// The caller's item at this address, everywhere.
    Item(u64),
}

/// Makes an array. The size of the request is the array's business, all else of it is the caller's.
pub fn create(
    device: &'static Device,
    form: Form<'_>,
    request: Request<'_>,
    content: Content,
) -> Result<Handle> {
    let layout = form.layout()?;
    if let Some(at) = form.strides.and_then(|strides| strides.iter().position(|stride| *stride < 0)) {
        fail!(
            NotSupported,
            "stride {at} of a new array is negative; make the array with positive strides and turn it round with warp_array_slice and a step of -1"
        );
    }
    // Found out first, so that what cannot be filled costs no allocation.
    let pattern = match content {
        Content::Item(address) if !layout.is_empty() => {
            copy::read_pattern(address, u64::from(form.dtype.item_size()))?
        }
        Content::Ones => form.dtype.one()?,
        Content::Zeros => smallvec![0],
        Content::Undefined | Content::Item(_) => smallvec![],
    };
    let stream = request.stream;
    let array = allocate(device, form.dtype, layout, request)?;
    if !pattern.is_empty() {
        transfer::fill_new(&array, &pattern, stream)?;
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
    let size = layout.reach().above;
    let request = Request { size, ..request };
    let address = alloc::allocate(device, request)?;
    let storage = match alloc::find(address) {
        Some(block) if address != 0 => {
            let home = block.home().unwrap_or(device);
            Storage::new((device, home), address, size, (block.kind(), block.rule()), Owner::Library)
        }
        // Nothing was needed; it is of the kind that it would have been.
        _ => {
            let kind = alloc::kind_of(device, &request)?;
            Storage::new((device, device), 0, 0, (kind, Rule::of_kind(kind)), Owner::Lender)
        }
    };
    Ok(Array::new(storage, dtype, layout))
}
