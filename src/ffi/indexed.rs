//! # Indexed arrays
//!
//! An array seen through index arrays. Along a dimension that has one, there are as many items as the index array has, and
//! the item at place i is the one that the data has at index number i; the other dimensions are the data's own. Indices
//! may repeat items, leave some out, and stand in any order. Nothing is copied.

use super::array::{
    found as found_array, given_value, numbers, put_numbers, warp_array, warp_array_options, with_request,
};
use super::boundary::{Grows, guard, handle, opaque, optional_out, out, out_struct, pointer};
use super::device::{found_device, told, warp_device};
use super::dtype::{face_of, warp_dtype};
use super::status::warp_status;
use super::stream::{given, warp_stream};
use crate::array::indexed::{self, IndexedArray};
use crate::array::{self, Extract, MAX_RANK, Named};
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::runtime;
use std::ffi::c_void;

/// An array seen through index arrays. Good until it is released or the library is shut down.
#[repr(C)]
pub struct warp_indexed_array {
    _private: [u8; 0],
}

/// What is known of an indexed array. It has no kind of its own: its data and each of its index arrays have theirs.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_indexed_array_info {
    /// sizeof(warp_indexed_array_info), set by the caller.
    pub struct_size: usize,
    /// The first item of the data, which need not be the first that is seen; NULL when the data has no items.
    pub data: *mut c_void,
    /// The device of the data and of the index arrays; NULL when that is no longer in the table.
    pub device: *mut warp_device,
    /// How many items are seen.
    pub count: u64,
    /// The type of the data's items, complete.
    pub dtype: warp_dtype,
    /// How many dimensions.
    pub rank: i32,
    /// Bit i is 1 when dimension i has an index array.
    pub indexed_dimensions: u32,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_indexed_array_info {
    const FIRST_SIZE: usize = size_of::<warp_indexed_array_info>();
    const NAME: &'static str = "warp_indexed_array_info";
}

/// An indexed array that a call names.
pub(super) fn found(indexed: *const warp_indexed_array) -> Result<Entered<IndexedArray>> {
    runtime::require_live()?;
    indexed::enter(handle(indexed))
}

/// Makes an indexed array. The indices are not read: they may be written later, in the order of a stream, and whether each
/// names an item of the data is the business of the code that uses them. It keeps the memory of the data and of the
/// index arrays as views do, so that their handles may be released before it. Nothing is allocated on a device.
///
/// @param data  the array that is seen; an array or a view, also with gaps.
/// @param indices  an index array for each dimension of the data, NULL for a dimension that stays whole: arrays or views
///     of one dimension, of int32, on the device of the data, in memory of any kind. May be NULL when the data has no
///     dimensions. Read during the call.
/// @param count  how many entries indices has: the rank of the data.
/// @param out  the indexed array, to be given back with warp_indexed_array_release().
/// @return WARP_ERROR_INVALID_ARGUMENT for another count, and for an index array of another type, with another number of
///     dimensions, or on another device than the data, which another context of the same GPU is too;
///     WARP_ERROR_UNKNOWN_POINTER when memory of the data or of an index array was freed by its address;
///     WARP_ERROR_SIZE_OVERFLOW for more items than can be counted; WARP_ERROR_DEVICE_LOST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_indexed_array_create(
    data: *const warp_array,
    indices: *const *const warp_array,
    count: usize,
    out: *mut *mut warp_indexed_array,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let data = found_array(data)?;
        let rank = data.dims().len();
        if count != rank {
            fail!(
                InvalidArgument,
                "{count} index arrays for data of {rank} dimensions; pass one for each, NULL for a dimension that stays whole"
            );
        }
        let indices = numbers(indices, rank as i32, "indices")?;
        out.put(opaque(indexed::create(&data, indices.iter().map(|index| handle(*index)))?));
        Ok(())
    })
}

/// Gives an indexed array back. The handle is stale at once. The memory of the data and of each index array goes with the
/// last array, view or indexed array that shares it, as warp_array_release() says.
///
/// @param indexed  the indexed array; NULL does nothing.
/// @return WARP_ERROR_INVALID_HANDLE, also for one that was released before or by the last warp_shutdown().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_indexed_array_release(indexed: *mut warp_indexed_array) -> warp_status {
    guard(|| {
        runtime::require_once_live()?;
        if indexed.is_null() { Ok(()) } else { indexed::release(handle(indexed)) }
    })
}

/// Describes an indexed array. Cheap.
///
/// @param indexed  the indexed array.
/// @param out  filled as far as its struct_size goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_indexed_array_get_info(
    indexed: *const warp_indexed_array,
    out: *mut warp_indexed_array_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let indexed = found(indexed)?;
        let (data, device) = (indexed.data(), indexed.device());
        let has_index = |dimension: &usize| indexed.index_along(*dimension).is_some();
        out.put(warp_indexed_array_info {
            struct_size: size_of::<warp_indexed_array_info>(),
            data: pointer(data.address()),
            device: told(Some(device)),
            count: indexed.count(),
            dtype: face_of(data.dtype()),
            rank: indexed.rank() as i32,
            indexed_dimensions: (0..indexed.rank()).filter(has_index).map(|dimension| 1 << dimension).sum(),
        });
        Ok(())
    })
}

/// Tells the shape of an indexed array. Cheap.
///
/// @param indexed  the indexed array.
/// @param out_shape  items along each dimension: as many as its index array has, else as the data has. What there is no
///     dimension for becomes 0. May be NULL, to ask for the rank alone.
/// @param capacity  as many numbers as out_shape has, at least the rank; WARP_ARRAY_MAX_RANK is always enough. Not looked at
///     when out_shape is NULL.
/// @param out_rank  how many dimensions; may be NULL.
/// @return WARP_ERROR_INVALID_ARGUMENT for a capacity below the rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_indexed_array_get_shape(
    indexed: *const warp_indexed_array,
    out_shape: *mut i64,
    capacity: usize,
    out_rank: *mut usize,
) -> warp_status {
    guard(|| {
        let out_rank = optional_out(out_rank);
        put_numbers(out_shape, std::iter::repeat_n(0, capacity.min(MAX_RANK)));
        let indexed = found(indexed)?;
        if !out_shape.is_null() && capacity < indexed.rank() {
            fail!(
                InvalidArgument,
                "the indexed array has {} dimensions, and there is room for {capacity}; WARP_ARRAY_MAX_RANK is enough for any",
                indexed.rank()
            );
        }
        put_numbers(out_shape, indexed.shape().into_iter());
        if let Some(out_rank) = out_rank {
            out_rank.put(indexed.rank());
        }
        Ok(())
    })
}

/// Makes a view of the data of an indexed array, the whole of it.
///
/// @param indexed  the indexed array.
/// @param out  the view, to be given back with warp_array_release(). It keeps the data's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_indexed_array_get_data(
    indexed: *const warp_indexed_array,
    out: *mut *mut warp_array,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        out.put(opaque(found(indexed)?.data().slice(&[])?));
        Ok(())
    })
}

/// Makes a view of the index array of one dimension.
///
/// @param indexed  the indexed array.
/// @param dimension  which dimension, below the rank.
/// @param out  the view, to be given back with warp_array_release(); it keeps the index array's memory. NULL when the
///     dimension is whole.
/// @return WARP_ERROR_INVALID_ARGUMENT for a dimension that there is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_indexed_array_get_index(
    indexed: *const warp_indexed_array,
    dimension: usize,
    out: *mut *mut warp_array,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let indexed = found(indexed)?;
        if dimension >= indexed.rank() {
            fail!(
                InvalidArgument,
                "there is no dimension {dimension} in an indexed array of {}; they are counted from 0",
                indexed.rank()
            );
        }
        if let Some(index) = indexed.index_along(dimension) {
            out.put(opaque(index.slice(&[])?));
        }
        Ok(())
    })
}

/// Copies the items that an indexed array shows into an array of the same shape, on any device. Ordered as warp_memory_copy()
/// is. The numbers are read when the copy is made, in the order of the stream where they are in a GPU's memory; those in memory
/// of the host during the call. Index arrays must not lie in what is written.
///
/// @param dest  where to, with any strides.
/// @param src  what to gather.
/// @param stream  where to put it; NULL for the stream that warp_memory_copy() chooses.
/// @return as warp_array_copy(); WARP_ERROR_INVALID_ARGUMENT for a number in host memory that leads out of the data, and nothing
///     is written. A GPU leaves such items as they are in the destination; to the host, or to another GPU, zeros may arrive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_indexed_array_gather(
    dest: *mut warp_array,
    src: *const warp_indexed_array,
    stream: *mut warp_stream,
) -> warp_status {
    guard(|| {
        let (dest, src) = (found_array(dest)?, found(src)?);
        array::copy(Named::Array(&dest), Named::Indexed(&src), Extract::default(), given(stream)?.as_ref())
    })
}

/// Copies an array to the items that an indexed array of the same shape shows, on any device. Where numbers repeat, it is left
/// to chance which item stays.
///
/// @param dest  where to scatter.
/// @param src  where from, with any strides.
/// @param stream  where to put it; NULL for the stream that warp_memory_copy() chooses.
/// @return as warp_indexed_array_gather().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_indexed_array_scatter(
    dest: *mut warp_indexed_array,
    src: *const warp_array,
    stream: *mut warp_stream,
) -> warp_status {
    guard(|| {
        let (dest, src) = (found(dest)?, found_array(src)?);
        array::copy(Named::Indexed(&dest), Named::Array(&src), Extract::default(), given(stream)?.as_ref())
    })
}

/// Copies the items that one indexed array shows to those that another of the same shape shows, on any two devices.
///
/// @param dest  where to scatter.
/// @param src  what to gather.
/// @param stream  where to put it; NULL for the stream that warp_memory_copy() chooses.
/// @return as warp_indexed_array_gather().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_indexed_array_copy(
    dest: *mut warp_indexed_array,
    src: *const warp_indexed_array,
    stream: *mut warp_stream,
) -> warp_status {
    guard(|| {
        let (dest, src) = (found(dest)?, found(src)?);
        array::copy(Named::Indexed(&dest), Named::Indexed(&src), Extract::default(), given(stream)?.as_ref())
    })
}

/// Sets every item that an indexed array shows; other items of its data are not touched.
///
/// @param indexed  the indexed array.
/// @param value  one item, in host memory; read before the call returns.
/// @param value_size  its bytes, the item_size of the data's type.
/// @param stream  where to put it; NULL for the current stream of the memory's device.
/// @return as warp_array_fill() and warp_indexed_array_scatter().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_indexed_array_fill(
    indexed: *mut warp_indexed_array,
    value: *const c_void,
    value_size: u64,
    stream: *mut warp_stream,
) -> warp_status {
    guard(|| {
        let indexed = found(indexed)?;
        array::fill_indexed(&indexed, given_value(value, value_size)?, given(stream)?.as_ref())
    })
}

/// Makes a new array of the items that an indexed array shows, on any device, in rows without gaps.
///
/// @param indexed  what to gather.
/// @param device  where to; NULL for its own device.
/// @param options  how the new array should be, as for warp_array_clone().
/// @param out  the new array, to be given back with warp_array_release().
/// @return as warp_array_clone() and warp_indexed_array_gather().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_indexed_array_clone(
    indexed: *const warp_indexed_array,
    device: *mut warp_device,
    options: *const warp_array_options,
    out: *mut *mut warp_array,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let indexed = found(indexed)?;
        let device = if device.is_null() { indexed.device() } else { found_device(device)? };
        with_request(options, |request| {
            out.put(opaque(array::clone_to(Named::Indexed(&indexed), device, request)?));
            Ok(())
        })
    })
}
