//! # Views of arrays
//!
//! Other arrays of the same memory: some of the items, another shape, another order of the dimensions, another type. A
//! view costs no copy, and one that would need a copy is refused. It keeps the memory of its array, which may be
//! released before it.

use super::array::{WARP_ARRAY_MAX_RANK, found, numbers, optional_numbers, warp_array};
use super::boundary::{guard, opaque};
use super::dtype::{dtype_of, warp_dtype};
use super::status::warp_status;
use crate::array::{MAX_RANK, Range};
use crate::error::fail;

/// Makes a view of some of the items. Nothing is clamped: a slice that leaves the array is an error.
///
/// @param array  the array.
/// @param dims  how many dimensions are cut, from the first one on; the others stay whole. 0 makes a view of everything.
/// @param start  the first index in each of them; NULL for the first items, seen in the direction of the step.
/// @param stop  behind the last index in each of them; NULL for the end, seen in the direction of the step.
/// @param step  from each index to the next, not 0; NULL for 1. With a positive step 0 <= start <= stop <= extent, with
///     a negative one extent > start >= stop >= -1.
/// @param out  the view, to be given back with warp_array_release(). It keeps the memory.
/// @return WARP_ERROR_INVALID_ARGUMENT for what is no slice of the array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_slice(
    array: *mut warp_array,
    dims: i32,
    start: *const i64,
    stop: *const i64,
    step: *const i64,
    out: *mut *mut warp_array,
) -> warp_status {
    guard(|| {
        let out = super::boundary::out(out, "out")?;
        let array = found(array)?;
        if !(0..=WARP_ARRAY_MAX_RANK).contains(&dims) {
            fail!(
                InvalidArgument,
                "{dims} dimensions are to be cut; an array has 0 to {WARP_ARRAY_MAX_RANK}"
            );
        }
        let start = optional_numbers(start, dims, "start")?;
        let stop = optional_numbers(stop, dims, "stop")?;
        let step = optional_numbers(step, dims, "step")?;
        let mut ranges = [Range { start: None, stop: None, step: 1 }; MAX_RANK];
        let ranges = &mut ranges[..dims as usize];
        for (at, range) in ranges.iter_mut().enumerate() {
            let number = |numbers: Option<&[i64]>| numbers.map(|numbers| numbers[at]);
            *range = Range { start: number(start), stop: number(stop), step: number(step).unwrap_or(1) };
        }
        out.put(opaque(array.slice(ranges)?));
        Ok(())
    })
}

/// Makes a view of the same items, in the same row order, in another shape.
///
/// @param array  the array.
/// @param rank  how many dimensions the view has, 0 to 32.
/// @param shape  items along each of them, as many together as the array has; one may be -1 for what is left.
/// @param out  the view, to be given back with warp_array_release(). It keeps the memory.
/// @return WARP_ERROR_INVALID_ARGUMENT for another number of items; WARP_ERROR_NOT_SUPPORTED for an array with such
///     gaps, or in such an order, that the shape cannot be had without a copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_reshape(
    array: *mut warp_array,
    rank: i32,
    shape: *const i64,
    out: *mut *mut warp_array,
) -> warp_status {
    guard(|| {
        let out = super::boundary::out(out, "out")?;
        let array = found(array)?;
        out.put(opaque(array.reshape(numbers(shape, rank, "shape")?)?));
        Ok(())
    })
}

/// Makes a view with the dimensions in another order.
///
/// @param array  the array.
/// @param rank  how many axes are given, as many as the array has dimensions; not looked at when axes is NULL.
/// @param axes  which dimension of the array each one of the view is, 0 to rank - 1, each once; NULL turns the order
///     round.
/// @param out  the view, to be given back with warp_array_release(). It keeps the memory.
/// @return WARP_ERROR_INVALID_ARGUMENT for axes that are no order of the dimensions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_transpose(
    array: *mut warp_array,
    rank: i32,
    axes: *const i32,
    out: *mut *mut warp_array,
) -> warp_status {
    guard(|| {
        let out = super::boundary::out(out, "out")?;
        let array = found(array)?;
        let axes = optional_numbers(axes, rank, "axes")?;
        out.put(opaque(array.transpose(axes)?));
        Ok(())
    })
}

/// Makes a view of the same bytes as items of another type. With items of another size the last dimension gets longer
/// or shorter. Alignment is not looked at.
///
/// @param array  the array.
/// @param dtype  the type of the view's items.
/// @param out  the view, to be given back with warp_array_release(). It keeps the memory.
/// @return with items of another size: WARP_ERROR_SIZE_MISMATCH for an array without dimensions, or whose last dimension
///     has no whole number of them; WARP_ERROR_NOT_SUPPORTED when the last dimension has gaps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_reinterpret(
    array: *mut warp_array,
    dtype: warp_dtype,
    out: *mut *mut warp_array,
) -> warp_status {
    guard(|| {
        let out = super::boundary::out(out, "out")?;
        let array = found(array)?;
        out.put(opaque(array.reinterpret(dtype_of(dtype)?)?));
        Ok(())
    })
}
