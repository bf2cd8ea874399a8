//! Filling arrays and indexed arrays, and copying between them.
#![forbid(unsafe_code)]

use super::create::allocate;
use super::dtype::Dtype;
use super::indexed::IndexedArray;
use super::layout::{Layout, Reach};
use super::storage::Storage;
use super::{ARRAYS, Array};
use crate::alloc::{self, Request};
use crate::capture::{Graph, Keep};
use crate::copy::{self, Index, Items, Operand, Runs, Side, Step};
use crate::device::Device;
use crate::error::{Result, fail};
use crate::handle::{Entered, Handle};
use crate::stream::Stream;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Sets every item to the caller's one, given by its address and size.
pub fn fill(array: &Array, value: (u64, u64), stream: Option<&Entered<Stream>>) -> Result<()> {
    require_size(array.dtype, value.1)?;
    if array.layout.is_empty() {
        return Ok(());
    }
    array.storage.require_present()?;
    set_items(array, &copy::read_pattern(value.0, value.1)?, stream)
}

/// As `fill`, of the items that index arrays pick.
pub fn fill_indexed(
    indexed: &IndexedArray,
    value: (u64, u64),
    stream: Option<&Entered<Stream>>,
) -> Result<()> {
    require_size(indexed.data().dtype, value.1)?;
    if indexed.count() == 0 {
        return Ok(());
    }
    let part = Part::of(&Named::Indexed(indexed))?;
    let graph =
        copy::fill_items(part.operand(), &part.shape(), &copy::read_pattern(value.0, value.1)?, stream)?;
    keep_wrapped(graph.as_ref(), &part.arrays);
    Ok(())
}

fn require_size(dtype: Dtype, size: u64) -> Result<()> {
    if size != u64::from(dtype.item_size()) {
        fail!(
            SizeMismatch,
            "the value has {size} bytes, and an item of {} has {}",
            dtype.name(),
            dtype.item_size()
        );
    }
    Ok(())
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
    let Some(graph) = graph else { return };
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
            array.strides()
        );
    }
    let reach = array.layout.reach();
    let runs = Runs {
        size: runs.size,
        disjoint: runs.disjoint,
        axes: runs.dims.iter().map(|dim| (dim.extent as u64, dim.stride as u64)).collect(),
    };
    copy::fill_runs(array.address - reach.below, reach.below + reach.above, &runs, item, stream)
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

/// What a copy names.
#[derive(Clone, Copy)]
pub enum Named<'a> {
    Array(&'a Array),
    Indexed(&'a IndexedArray),
}

impl Named<'_> {
    pub fn dtype(&self) -> Dtype {
        match self {
            Named::Array(array) => array.dtype,
            Named::Indexed(indexed) => indexed.data().dtype,
        }
    }

    pub fn count(&self) -> u64 {
        match self {
            Named::Array(array) => array.count(),
            Named::Indexed(indexed) => indexed.count(),
        }
    }

    pub fn shape(&self) -> SmallVec<[i64; 8]> {
        match self {
            Named::Array(array) => array.layout.shape(),
            Named::Indexed(indexed) => indexed.shape(),
        }
    }

    pub fn require_present(&self) -> Result<()> {
        match self {
            Named::Array(array) => array.require_present(),
            Named::Indexed(indexed) => {
                indexed.data().require_present()?;
                indexed.indices().try_for_each(Array::require_present)
            }
        }
    }
}

/// One end of a copy: along each axis how many items, and how to get to the next.
struct Part<'a> {
    address: u64,
    axes: SmallVec<[(u64, Step); 4]>,
    reach: Reach,
    /// Whose memory it is.
    arrays: SmallVec<[&'a Array; 2]>,
}

impl<'a> Part<'a> {
    /// All of what is named, which has items.
    fn of(named: &Named<'a>) -> Result<Part<'a>> {
        named.require_present()?;
        Ok(match *named {
            Named::Array(array) => Part {
                address: array.address,
                axes: array.dims().iter().map(|dim| (dim.extent as u64, Step::by(dim.stride))).collect(),
                reach: array.layout.reach(),
                arrays: smallvec![array],
            },
            Named::Indexed(indexed) => {
                let data = indexed.data();
                let axes = data.dims().iter().zip(indexed.shape()).enumerate();
                let step = |(at, (dim, extent)): (usize, (&super::Dim, i64))| {
                    let index = indexed.index_along(at).map(|index| Index {
                        address: index.address,
                        stride: index.dims()[0].stride,
                        limit: dim.extent,
                    });
                    (extent as u64, Step { stride: dim.stride, index })
                };
                Part {
                    address: data.address,
                    axes: axes.map(step).collect(),
                    reach: data.layout.reach(),
                    arrays: std::iter::once(data).chain(indexed.indices()).collect(),
                }
            }
        })
    }

    /// So many items from one on, of an array that is a row of them.
    fn row(array: &'a Array, offset: u64, count: u64, what: &str) -> Result<Part<'a>> {
        if offset.checked_add(count).is_none_or(|end| end > array.count()) {
            fail!(
                InvalidArgument,
                "{count} items from item {offset} on pass the end of {what}, which has {}",
                array.count()
            );
        }
        array.storage.require_present()?;
        let item = array.layout.item_size();
        let stride = match array.dims() {
            _ if array.is_contiguous() => item as i64,
            [dim] => dim.stride,
            _ => fail!(
                NotSupported,
                "{what} has gaps or another order than rows (shape {:?}, strides {:?}), so its items have no numbers for an offset and a count; take part of it with warp_array_slice() and copy that",
                array.layout.shape(),
                array.strides()
            ),
        };
        // All of these are inside of the array.
        let far = (count - 1) * stride.unsigned_abs();
        let (below, above) = if stride < 0 { (far, item) } else { (0, far + item) };
        Ok(Part {
            address: array.address.wrapping_add_signed(stride.wrapping_mul(offset as i64)),
            axes: smallvec![(count, Step::by(stride))],
            reach: Reach { below, above },
            arrays: smallvec![array],
        })
    }

    fn shape(&self) -> SmallVec<[u64; 4]> {
        self.axes.iter().map(|(extent, _)| *extent).collect()
    }

    fn operand(&self) -> Operand {
        let steps = self.axes.iter().map(|(_, step)| *step).collect();
        Operand {
            side: Side { address: self.address, steps },
            below: self.reach.below,
            above: self.reach.above,
        }
    }
}

/// Which items are copied: `count` of them, 0 for all of the source, each position counted in items.
#[derive(Debug, Default, Clone, Copy)]
pub struct Extract {
    pub dest_offset: u64,
    pub src_offset: u64,
    pub count: u64,
}

/// A copy between arrays, and whose memory it uses.
pub struct Copy<'a> {
    pub items: Items,
    arrays: SmallVec<[&'a Array; 4]>,
}

impl Copy<'_> {
    /// Has the graph that it was recorded in keep wrapped memory.
    pub fn keep(&self, graph: Option<&Entered<Graph>>) {
        keep_wrapped(graph, &self.arrays);
    }
}

/// What is to be copied; `None` for no items.
pub fn plan_copy<'a>(dest: Named<'a>, src: Named<'a>, extract: Extract) -> Result<Option<Copy<'a>>> {
    let item = dest.dtype().item_size();
    if item != src.dtype().item_size() {
        fail!(
            SizeMismatch,
            "Incompatible array data types: the destination's {} has {item} bytes, the source's {} has {}",
            dest.dtype().name(),
            src.dtype().name(),
            src.dtype().item_size()
        );
    }
    let Extract { dest_offset, src_offset, count } = extract;
    let count = if count == 0 { src.count() } else { count };
    if count == 0 {
        return Ok(None);
    }
    let is_whole = dest_offset == 0 && src_offset == 0 && count == src.count() && dest.shape() == src.shape();
    let (to, from) = match (dest, src) {
        (Named::Array(to), Named::Array(from)) if !is_whole || to.is_contiguous() && from.is_contiguous() => {
            // The source's end is looked at first, as it is what the count is of.
            let row = Part::row(from, src_offset, count, "the source");
            let both = row.and_then(|src| Ok((Part::row(to, dest_offset, count, "the destination")?, src)));
            both.map_err(|e| if is_row(to) && is_row(from) { e } else { unlike(&dest, &src, extract, e) })?
        }
        _ if is_whole => (Part::of(&dest)?, Part::of(&src)?),
        _ if dest.shape() != src.shape() => return Err(other_shapes(&dest, &src)),
        _ => fail!(
            NotSupported,
            "items of an indexed array have no numbers for an offset and a count; leave both at 0 and copy all of it"
        ),
    };
    let shape = to.shape();
    let (dest, src) = (to.operand(), from.operand());
    let arrays = to.arrays.into_iter().chain(from.arrays).collect();
    Ok(Some(Copy { items: Items { shape, item: u64::from(item), dest, src }, arrays }))
}

fn is_row(array: &Array) -> bool {
    array.is_contiguous() || array.dims().len() == 1
}

/// Why two arrays, one of which is no row, are not copied as a whole either.
fn unlike(
    dest: &Named<'_>,
    src: &Named<'_>,
    extract: Extract,
    error: crate::error::Error,
) -> crate::error::Error {
    let Extract { dest_offset, src_offset, count } = extract;
    if (dest_offset, src_offset) == (0, 0) && (count == 0 || count == src.count()) {
        other_shapes(dest, src)
    } else {
        error
    }
}

fn other_shapes(dest: &Named<'_>, src: &Named<'_>) -> crate::error::Error {
    crate::error::error!(
        SizeMismatch,
        "Incompatible array shapes: the destination has {:?}, the source {:?}; reshape or slice one of them to the other's",
        dest.shape(),
        src.shape()
    )
}

/// Copies items.
pub fn copy(
    dest: Named<'_>,
    src: Named<'_>,
    extract: Extract,
    stream: Option<&Entered<Stream>>,
) -> Result<()> {
    if let Some(copy) = plan_copy(dest, src, extract)? {
        copy::copy_items(&copy.items, stream, &|graph| copy.keep(Some(graph)))?;
    }
    Ok(())
}

/// Makes an array on `device` with the same type, shape and items, without gaps. The stream of the request is the
/// destination's if that is a GPU, else the source's.
pub fn clone_to(src: Named<'_>, device: &'static Device, mut request: Request<'_>) -> Result<Handle> {
    if src.count() != 0 {
        src.require_present()?;
    }
    let stream = request.stream;
    if !device.is_cuda() && stream.is_some_and(|stream| stream.device().is_cuda()) {
        request.stream = None;
    }
    let dtype = src.dtype();
    let layout = Layout::contiguous(&src.shape(), dtype.item_size())?;
    let array = allocate(device, dtype, layout, request)?;
    copy(Named::Array(&array), src, Extract::default(), stream)?;
    ARRAYS.insert(array)
}

/// The array on `device`: a view of it where it is there, else a clone.
pub fn to_device(src: &Array, device: &'static Device, request: Request<'_>) -> Result<Handle> {
    if std::ptr::eq(src.device(), device) {
        src.require_present()?;
        return src.slice(&[]);
    }
    clone_to(Named::Array(src), device, request)
}

/// The array without gaps: a view of it where it has none, else a clone on its own device.
pub fn contiguous(src: &Array, request: Request<'_>) -> Result<Handle> {
    if src.is_contiguous() {
        src.require_present()?;
        return src.slice(&[]);
    }
    clone_to(Named::Array(src), src.device(), request)
}
