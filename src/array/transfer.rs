//! Filling arrays and copying between them.
#![forbid(unsafe_code)]

use super::create::allocate;
use super::layout::Layout;
use super::storage::Storage;
use super::{ARRAYS, Array};
use crate::alloc::{self, Request};
use crate::capture::{Graph, Keep};
use crate::copy::{self, Runs};
use crate::device::Device;
use crate::error::{Result, fail};
use crate::handle::{Entered, Handle};
use crate::runtime;
use crate::stream::Stream;
use std::sync::Arc;

/// Sets every item to the caller's one, given by its address and size.
pub fn fill(array: &Array, (item, size): (u64, u64), stream: Option<&Entered<Stream>>) -> Result<()> {
    let item_size = array.layout.item_size();
    if size != item_size {
        fail!(
            SizeMismatch,
            "the value has {size} bytes, and an item of {} has {item_size}",
            array.dtype.name()
        );
    }
    if array.layout.is_empty() {
        return Ok(());
    }
    array.storage.require_present()?;
    set_items(array, &copy::read_pattern(item, size)?, stream)
}

fn set_items(array: &Array, item: &[u8], stream: Option<&Entered<Stream>>) -> Result<()> {
    let graph = if array.is_contiguous() {
        copy::fill_with(array.address, array.size(), item, stream)?
    } else {
        set_torn_items(array, item, stream)?
    };
    keep_wrapped(graph.as_ref(), &[array]);
    Ok(())
}

/// Has the graph keep the memory of the array: a block of this library by its address, and wrapped memory that somebody
/// is to be told of by the array's storage.
pub fn retain(graph: &Entered<Graph>, array: &Array) -> Result<()> {
    if !array.layout.is_empty() {
        array.storage.require_present()?;
        // Wrapped memory may be a block of this library too.
        if array.storage.is_owned() || alloc::find(array.storage.address).is_some() {
            alloc::record_use_by(array.storage.address, graph)?;
        }
    }
    keep_wrapped(Some(graph), &[array]);
    Ok(())
}

/// As `retain`, of arrays that a copy or a fill was recorded with: their blocks are kept already.
fn keep_wrapped(graph: Option<&Entered<Graph>>, arrays: &[&Array]) {
    // In a forked child no run of a graph is to come, and a thread that is not there may have the graph locked.
    let Some(graph) = graph.filter(|_| !runtime::is_forked()) else { return };
    for storage in arrays.iter().map(|array| &array.storage).filter(|storage| storage.has_deleter()) {
        drop(graph.keep(Box::new(KeptStorage(Arc::clone(storage)))));
    }
}

struct KeptStorage(Arc<Storage>);

impl Keep for KeptStorage {
    fn give_back(self: Box<Self>) {
        drop(self.0);
    }

    fn forget(self: Box<Self>) {
        self.give_back();
    }
}

fn set_torn_items(
    array: &Array,
    item: &[u8],
    stream: Option<&Entered<Stream>>,
) -> Result<Option<Entered<Graph>>> {
    let runs = array.layout.runs();
    if runs.torn {
        fail!(
            InvalidArgument,
            "items share bytes with their neighbours (shape {:?}, strides {:?}), and not all can have the same value",
            array.layout.shape(),
            array.dims().iter().map(|dim| dim.stride).collect::<Vec<_>>()
        );
    }
    let reach = array.layout.reach();
    copy::fill_runs(
        array.address - reach.below,
        reach.below + reach.above,
        Runs { size: runs.size, count: runs.count, disjoint: runs.disjoint, offsets: runs.offsets() },
        item,
        stream,
    )
}

/// Fills an array that nobody else has seen, in one go where that can be: what lies between its items is its own.
pub(super) fn fill_new(array: &Array, pattern: &[u8], stream: Option<&Entered<Stream>>) -> Result<()> {
    let item_size = array.layout.item_size();
    let even =
        array.dims().iter().all(|dim| dim.extent == 1 || dim.stride.unsigned_abs().is_multiple_of(item_size));
    if even || pattern.len() == 1 {
        copy::fill_with(array.address, array.layout.reach().above, pattern, stream).map(drop)
    } else {
        set_items(array, pattern, stream)
    }
}

/// Copies `count` items, 0 for all of the source, each position counted in items.
pub fn copy(
    dest: &Array,
    src: &Array,
    dest_offset: u64,
    src_offset: u64,
    count: u64,
    stream: Option<&Entered<Stream>>,
) -> Result<()> {
    let item_size = dest.layout.item_size();
    if item_size != src.layout.item_size() {
        fail!(
            SizeMismatch,
            "Incompatible array data types: the destination's {} has {item_size} bytes, the source's {} has {}",
            dest.dtype.name(),
            src.dtype.name(),
            src.layout.item_size()
        );
    }
    let count = if count == 0 { src.count() } else { count };
    if count == 0 {
        return Ok(());
    }
    dest.storage.require_present()?;
    src.storage.require_present()?;
    for (what, array, offset) in [("the source", src, src_offset), ("the destination", dest, dest_offset)] {
        if offset.checked_add(count).is_none_or(|end| end > array.count()) {
            fail!(
                InvalidArgument,
                "{count} items from item {offset} on pass the end of {what}, which has {}",
                array.count()
            );
        }
        array.require_contiguous(what)?;
    }
    // Inside arrays whose bytes can be counted.
    let graph = copy::copy(
        dest.address + dest_offset * item_size,
        src.address + src_offset * item_size,
        count * item_size,
        stream,
    )?;
    keep_wrapped(graph.as_ref(), &[dest, src]);
    Ok(())
}

/// Makes an array on `device` with the same type, shape and items. The stream of the request is the destination's
/// if that is a GPU, else the source's.
pub fn clone_to(src: &Array, device: &'static Device, mut request: Request<'_>) -> Result<Handle> {
    src.require_contiguous("the source")?;
    if !src.layout.is_empty() {
        src.storage.require_present()?;
    }
    let stream = request.stream;
    if !device.is_cuda() && stream.is_some_and(|stream| stream.device().is_cuda()) {
        request.stream = None;
    }
    let layout = Layout::contiguous(&src.layout.shape(), src.dtype.item_size())?;
    let array = allocate(device, src.dtype, layout, request)?;
    let graph = copy::copy(array.address, src.address, src.size(), stream)?;
    keep_wrapped(graph.as_ref(), &[src]);
    ARRAYS.insert(array)
}
