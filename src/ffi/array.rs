//! # Arrays
//!
//! Items of one type at regular places in memory: a shape, and strides in bytes from each item to the next. An array is
//! made in memory of its own, or around memory that other code allocated. Views see the same memory in another way;
//! each is a handle of its own, and the memory stays until the array and all its views are released, in any order.
//! Vectors and matrices are trailing dimensions, or the lanes of a type.

use super::allocator::{given_allocator, warp_allocator};
use super::boundary::{
    Grows, Plain, address, guard, handle, opaque, options, out, out_struct, pointer, text,
};
use super::device::{found_device, told, warp_device};
use super::dtype::{dtype_of, face_of, warp_dtype};
use super::memory::{kind_of, warp_access_rule, warp_memory_kind};
use super::mempool::{given_pool, warp_mempool};
use super::status::warp_status;
use super::stream::{given, warp_stream};
use crate::alloc::{self, Request};
use crate::allocator::Allocator;
use crate::array::{self, Array, Content, External, Extract, Form, Named};
use crate::error::{Result, fail};
use crate::handle::Entered;
use crate::pool;
use crate::runtime;
use crate::stream::Stream;
use std::ffi::{c_char, c_void};

/// An array, or a view of one. Good until it is released or the library is shut down.
#[repr(C)]
pub struct warp_array {
    _private: [u8; 0],
}

/// As many dimensions as an array can have.
pub const WARP_ARRAY_MAX_RANK: i32 = 32;

const _: () = assert!(array::MAX_RANK == WARP_ARRAY_MAX_RANK as usize);

/// How a new array should be. All zero but struct_size is the default: rows without gaps, in memory as warp_alloc()
/// would choose it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_array_options {
    /// sizeof(warp_array_options), set by the caller.
    pub struct_size: usize,
    /// One for each dimension, in bytes, 0 or more; NULL for rows without gaps. Read during the call.
    pub strides: *const i64,
    /// A power of two, in bytes; 0 for the kind's own (64 for HOST, 256 for the others).
    pub alignment: u64,
    /// A name for what the array is, for statistics and messages; copied. NULL for none.
    pub tag: *const c_char,
    /// The stream that the memory belongs to and that fills it, of the same device; NULL for the device's current
    /// stream. What uses the array on other streams has to come after that.
    pub stream: *mut warp_stream,
    /// As in warp_alloc_options; 0 for what the device has switched on.
    pub kind: warp_memory_kind,
    /// The pool that the memory comes from, as in warp_alloc_options; NULL for what the device allocates from.
    pub mempool: *mut warp_mempool,
    /// The allocator that serves it, as `allocator` of warp_alloc_options.
    pub allocator: *mut warp_allocator,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_array_options {
    const FIRST_SIZE: usize = std::mem::offset_of!(warp_array_options, mempool);
    const NAME: &'static str = "warp_array_options";
}

/// Gives wrapped memory back to where it came from. Called once, when the array and its views are all released, on
/// the thread that released the last of them or called the last warp_shutdown(), with the array's device current if
/// that is a GPU. Work that was put on streams may still be using the memory: wait for it, or free in its order. In a
/// forked child and at exit it is called for ordinary host memory only.
///
/// @param user  deleter_user of the options.
/// @param ptr  the pointer that was wrapped.
/// @param size  the capacity of the options, else the bytes that the array reaches from ptr on.
pub type warp_array_deleter = Option<unsafe extern "C" fn(user: *mut c_void, ptr: *mut c_void, size: u64)>;

/// How to wrap memory. All zero but struct_size is the default: rows without gaps, in memory that the caller keeps for
/// as long as the array lives.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_array_wrap_options {
    /// sizeof(warp_array_wrap_options), set by the caller.
    pub struct_size: usize,
    /// One for each dimension, in bytes; negative ones lead to items before the pointer. NULL for rows without gaps.
    /// Read during the call.
    pub strides: *const i64,
    /// Bytes that there are from the pointer on; 0 for as many as the array reaches.
    pub capacity: u64,
    /// Gives the memory back; NULL when that is not the array's business. Not called when the wrap fails.
    pub deleter: warp_array_deleter,
    /// Passed to deleter.
    pub deleter_user: *mut c_void,
    /// What the memory is said to be; the wrap fails if it is another kind, or if that cannot be found out. 0 for
    /// whatever it is.
    pub kind: warp_memory_kind,
}

// SAFETY: `repr(C)`, begins with its size; numbers, raw pointers and an optional function pointer.
unsafe impl Grows for warp_array_wrap_options {
    const FIRST_SIZE: usize = size_of::<warp_array_wrap_options>();
    const NAME: &'static str = "warp_array_wrap_options";
}

/// What is known of an array.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_array_info {
    /// sizeof(warp_array_info), set by the caller.
    pub struct_size: usize,
    /// The first item, that with index 0 in every dimension; NULL when there are no items.
    pub data: *mut c_void,
    /// Its device; NULL when that is no longer in the table.
    pub device: *mut warp_device,
    /// How many items.
    pub count: u64,
    /// Bytes of all items; what lies between them is not counted.
    pub size: u64,
    /// Bytes of the memory that the array shares with its views.
    pub capacity: u64,
    /// The type of its items, complete.
    pub dtype: warp_dtype,
    /// How many dimensions.
    pub rank: i32,
    /// Where its memory comes from: as it was allocated, or as it was found when it was wrapped.
    pub kind: warp_memory_kind,
    /// What governs who may touch it.
    pub rule: warp_access_rule,
    /// Do the items follow each other in row order without gaps?
    pub is_contiguous: u8,
    /// Was it made from another array, whose memory it shares?
    pub is_view: u8,
    /// Is its memory a block that the library allocated for it?
    pub is_owned: u8,
    /// Is its memory wrapped and given back by a deleter?
    pub has_deleter: u8,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_array_info {
    const FIRST_SIZE: usize = size_of::<warp_array_info>();
    const NAME: &'static str = "warp_array_info";
}

/// An array that a call names.
#[inline]
pub(super) fn found(array: *const warp_array) -> Result<Entered<Array>> {
    runtime::require_live()?;
    array::enter(handle(array))
}

/// One entry for each dimension, of the caller's.
pub(super) fn numbers<'a, T: Plain>(from: *const T, rank: i32, name: &str) -> Result<&'a [T]> {
    if !(0..=WARP_ARRAY_MAX_RANK).contains(&rank) {
        fail!(InvalidArgument, "{rank} dimensions; an array has 0 to {WARP_ARRAY_MAX_RANK}");
    }
    if rank == 0 {
        return Ok(&[]);
    }
    if from.is_null() || !from.is_aligned() {
        fail!(InvalidArgument, "{name} is {from:?}; it is where the entries for {rank} dimensions are");
    }
    // SAFETY: aligned and not NULL; the caller says that there are as many entries as dimensions, for the call.
    Ok(unsafe { std::slice::from_raw_parts(from, rank as usize) })
}

/// One number for each dimension, where the caller may leave them out.
pub(super) fn optional_numbers<'a, T: Plain>(
    from: *const T,
    rank: i32,
    name: &str,
) -> Result<Option<&'a [T]>> {
    if from.is_null() { Ok(None) } else { numbers(from, rank, name).map(Some) }
}

fn form<'a>(dtype: warp_dtype, rank: i32, shape: *const i64, strides: *const i64) -> Result<Form<'a>> {
    Ok(Form {
        dtype: dtype_of(dtype)?,
        shape: numbers(shape, rank, "shape")?,
        strides: optional_numbers(strides, rank, "strides")?,
    })
}

fn request_of<'a>(
    options: &warp_array_options,
    stream: Option<&'a Entered<Stream>>,
    pool: Option<&'a pool::Entered>,
    allocator: Option<&'a Entered<Allocator>>,
) -> Result<Request<'a>> {
    Ok(Request {
        size: 0,
        alignment: options.alignment,
        kind: kind_of(options.kind)?,
        stream,
        pool,
        allocator,
        tag: text(options.tag).map_or(0, alloc::intern),
    })
}

/// What the functions that make new arrays have in common.
fn make(
    device: *mut warp_device,
    dtype: warp_dtype,
    rank: i32,
    shape: *const i64,
    options: *const warp_array_options,
    content: Content,
    out: *mut *mut warp_array,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        let given_options = self::options(options)?;
        let form = form(dtype, rank, shape, given_options.strides)?;
        let stream = given(given_options.stream)?;
        let pool = given_pool(given_options.mempool)?;
        let allocator = given_allocator(given_options.allocator)?;
        let request = request_of(&given_options, stream.as_ref(), pool.as_ref(), allocator.as_ref())?;
        out.put(opaque(array::create(device, form, request, content)?));
        Ok(())
    })
}

/// Makes an array whose items are undefined.
///
/// @param device  the device; NULL for the default.
/// @param dtype  the type of the items.
/// @param rank  how many dimensions, 0 to 32; an array without dimensions has one item.
/// @param shape  items along each dimension, 0 or more; may be NULL for rank 0. Read during the call. A 0 makes an
///     array without items: nothing is allocated.
/// @param options  how it should be; NULL for the defaults. With strides the memory reaches to the last item.
/// @param out  the array, to be given back with warp_array_release(). Its memory is not to be given to warp_free().
/// @return what warp_alloc_with() returns, and WARP_ERROR_SIZE_OVERFLOW for a shape or strides that no address space
///     has; WARP_ERROR_INVALID_ARGUMENT for a dtype, rank or shape that is none; WARP_ERROR_SIZE_MISMATCH for an
///     item_size that contradicts the dtype; WARP_ERROR_NOT_SUPPORTED for negative strides, which a view can have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_empty(
    device: *mut warp_device,
    dtype: warp_dtype,
    rank: i32,
    shape: *const i64,
    options: *const warp_array_options,
    out: *mut *mut warp_array,
) -> warp_status {
    make(device, dtype, rank, shape, options, Content::Undefined, out)
}

/// Makes an array of items whose bytes are all zero. Host memory is filled when the call returns; memory of a GPU in
/// the order of the stream.
///
/// @param device  the device; NULL for the default.
/// @param dtype  the type of the items.
/// @param rank  how many dimensions.
/// @param shape  items along each dimension.
/// @param options  how it should be; NULL for the defaults.
/// @param out  the array, to be given back with warp_array_release().
/// @return as warp_array_empty().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_zeros(
    device: *mut warp_device,
    dtype: warp_dtype,
    rank: i32,
    shape: *const i64,
    options: *const warp_array_options,
    out: *mut *mut warp_array,
) -> warp_status {
    make(device, dtype, rank, shape, options, Content::Zeros, out)
}

/// Makes an array of ones: integers, truth values, bfloat16, floating point of up to 64 bits, complex numbers (1 + 0i);
/// in every lane.
///
/// @param device  the device; NULL for the default.
/// @param dtype  the type of the items.
/// @param rank  how many dimensions.
/// @param shape  items along each dimension.
/// @param options  how it should be; NULL for the defaults.
/// @param out  the array, to be given back with warp_array_release().
/// @return as warp_array_empty(), and WARP_ERROR_NOT_SUPPORTED for other types: use warp_array_full().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_ones(
    device: *mut warp_device,
    dtype: warp_dtype,
    rank: i32,
    shape: *const i64,
    options: *const warp_array_options,
    out: *mut *mut warp_array,
) -> warp_status {
    make(device, dtype, rank, shape, options, Content::Ones, out)
}

/// Makes an array in which every item is the same.
///
/// @param device  the device; NULL for the default.
/// @param dtype  the type of the items.
/// @param rank  how many dimensions.
/// @param shape  items along each dimension.
/// @param value  one item, in host memory; read before the call returns.
/// @param options  how it should be; NULL for the defaults.
/// @param out  the array, to be given back with warp_array_release().
/// @return as warp_array_empty(), and WARP_ERROR_INVALID_ARGUMENT for strides that have items share some of their bytes;
///     WARP_ERROR_NOT_SUPPORTED on a GPU that cannot load a kernel, for more than 65536 separate pieces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_full(
    device: *mut warp_device,
    dtype: warp_dtype,
    rank: i32,
    shape: *const i64,
    value: *const c_void,
    options: *const warp_array_options,
    out: *mut *mut warp_array,
) -> warp_status {
    if value.is_null() {
        return guard(|| {
            self::out(out, "out")?;
            fail!(InvalidArgument, "value is NULL; it is where the item is that fills the array");
        });
    }
    make(device, dtype, rank, shape, options, Content::Item(address(value)), out)
}

/// Makes an array around memory that other code allocated. The memory must last until the array and its views are
/// released: that it does is not watched, not even for blocks of the library. Where it really is gets checked, by the ledger for
/// blocks of the library, else by the driver; on the CPU an address that neither knows is taken for ordinary host memory.
///
/// @param device  the device that the memory is said to be on; NULL for the default. Page-locked memory is on the CPU,
///     managed memory on any device.
/// @param ptr  the item with index 0 in every dimension; NULL only for an array without items.
/// @param dtype  the type of the items.
/// @param rank  how many dimensions, 0 to 32.
/// @param shape  items along each dimension, 0 or more; may be NULL for rank 0.
/// @param options  strides, capacity, deleter; NULL for the defaults.
/// @param out  the array, to be given back with warp_array_release().
/// @return WARP_ERROR_INVALID_ARGUMENT for NULL, memory of another device or kind than is said, memory that the driver
///     does not know on a GPU that does not reach ordinary host memory, a range that passes the end of its block or of
///     the capacity; WARP_ERROR_SIZE_OVERFLOW, WARP_ERROR_SIZE_MISMATCH as warp_array_empty(). The deleter is not
///     called then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_wrap(
    device: *mut warp_device,
    ptr: *mut c_void,
    dtype: warp_dtype,
    rank: i32,
    shape: *const i64,
    options: *const warp_array_wrap_options,
    out: *mut *mut warp_array,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let device = found_device(device)?;
        let given_options = self::options(options)?;
        let form = form(dtype, rank, shape, given_options.strides)?;
        let external = External {
            address: address(ptr),
            capacity: given_options.capacity,
            kind: kind_of(given_options.kind)?,
            deleter: unwinding(given_options.deleter).map(|call| {
                let call = CallersDeleter { call, user: given_options.deleter_user, ptr };
                Box::new(move |size| call.run(size)) as array::Deleter
            }),
        };
        out.put(opaque(array::wrap(device, form, external)?));
        Ok(())
    })
}

/// A deleter and what it is to be given.
struct CallersDeleter {
    call: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, u64),
    user: *mut c_void,
    ptr: *mut c_void,
}

// SAFETY: who wraps memory with a deleter promises that it may be called on any thread.
unsafe impl Send for CallersDeleter {}
// SAFETY: as above.
unsafe impl Sync for CallersDeleter {}

impl CallersDeleter {
    fn run(self, size: u64) {
        // SAFETY: the caller's function, with the arguments that it is documented to get.
        unsafe { (self.call)(self.user, self.ptr, size) }
    }
}

/// The same function, called through an ABI that lets a foreign exception reach our shim.
fn unwinding(
    deleter: warp_array_deleter,
) -> Option<unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, u64)> {
    // SAFETY: the two ABIs differ only in what happens when the callee unwinds.
    unsafe {
        std::mem::transmute::<
            warp_array_deleter,
            Option<unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, u64)>,
        >(deleter)
    }
}

/// Gives an array back. The handle is stale at once. With the last array that shares it the memory is freed, after the
/// work on the streams that it was used on as warp_free() does, or given to its deleter.
///
/// @param array  an array or a view; NULL does nothing.
/// @return WARP_ERROR_INVALID_HANDLE, also for an array that was released before or by the last warp_shutdown().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_release(array: *mut warp_array) -> warp_status {
    guard(|| {
        runtime::require_once_live()?;
        if array.is_null() { Ok(()) } else { array::release(handle(array)) }
    })
}

/// Describes an array. Cheap.
///
/// @param array  the array.
/// @param out  filled as far as its struct_size goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_get_info(
    array: *const warp_array,
    out: *mut warp_array_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let array = found(array)?;
        let device = array.device();
        out.put(warp_array_info {
            struct_size: size_of::<warp_array_info>(),
            data: pointer(array.address()),
            device: told(Some(device)),
            count: array.count(),
            size: array.size(),
            capacity: array.capacity(),
            dtype: face_of(array.dtype()),
            rank: array.dims().len() as i32,
            kind: array.kind() as warp_memory_kind,
            rule: array.rule() as warp_access_rule,
            is_contiguous: u8::from(array.is_contiguous()),
            is_view: u8::from(array.is_view()),
            is_owned: u8::from(array.is_owned()),
            has_deleter: u8::from(array.has_deleter()),
        });
        Ok(())
    })
}

/// Tells the shape of an array and its strides. Cheap. Strides of an array without items mean nothing.
///
/// @param array  the array.
/// @param capacity  as many numbers as each of the two places has, at least the array's rank; WARP_ARRAY_MAX_RANK is
///     always enough.
/// @param out_shape  items along each dimension; may be NULL. What the array has no dimension for becomes 0.
/// @param out_strides  bytes from each item to the next along each dimension; may be NULL, and likewise.
/// @return WARP_ERROR_INVALID_ARGUMENT for a capacity below the rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_get_shape(
    array: *const warp_array,
    capacity: i32,
    out_shape: *mut i64,
    out_strides: *mut i64,
) -> warp_status {
    guard(|| {
        let places = usize::try_from(capacity).unwrap_or(0).min(array::MAX_RANK);
        let zeros = std::iter::repeat_n(0, places);
        put_numbers(out_shape, zeros.clone());
        put_numbers(out_strides, zeros);
        let array = found(array)?;
        if places < array.dims().len() {
            fail!(
                InvalidArgument,
                "the array has {} dimensions, and there is room for {capacity}; WARP_ARRAY_MAX_RANK is enough for any",
                array.dims().len()
            );
        }
        put_numbers(out_shape, array.dims().iter().map(|dim| dim.extent));
        put_numbers(out_strides, array.dims().iter().map(|dim| dim.stride));
        Ok(())
    })
}

pub(super) fn put_numbers(place: *mut i64, numbers: impl Iterator<Item = i64>) {
    if place.is_null() {
        return;
    }
    for (at, number) in numbers.enumerate() {
        // SAFETY: no more numbers than the caller says that there is room for.
        unsafe { place.add(at).write_unaligned(number) };
    }
}

/// Sets every item of an array or a view; what lies between its items is not touched. Host memory is filled when the
/// call returns; memory of a GPU in the order of the stream.
///
/// @param array  the array.
/// @param value  one item, in host memory; read before the call returns.
/// @param value_size  its bytes, the item_size of the array's type.
/// @param stream  where to put it; NULL for the current stream of the memory's device.
/// @return WARP_ERROR_SIZE_MISMATCH; WARP_ERROR_INVALID_ARGUMENT for items that share bytes with each other;
///     WARP_ERROR_ACCESS_DENIED for a stream of another GPU, which may not touch them; WARP_ERROR_NOT_SUPPORTED on a GPU that
///     cannot load a kernel, for more than 65536 separate pieces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_fill(
    array: *mut warp_array,
    value: *const c_void,
    value_size: u64,
    stream: *mut warp_stream,
) -> warp_status {
    guard(|| {
        let array = found(array)?;
        array::fill(&array, given_value(value, value_size)?, given(stream)?.as_ref())
    })
}

/// An item of the caller's.
pub(super) fn given_value(value: *const c_void, size: u64) -> Result<(u64, u64)> {
    if value.is_null() {
        fail!(InvalidArgument, "value is NULL; it is where the item is that fills the array");
    }
    Ok((address(value), size))
}

/// Copies items between arrays on any two devices, of any kinds, with any strides. The types may differ as long as the items
/// have the same size. Two arrays without gaps are taken as rows of items, whatever their shapes, and so are arrays of one
/// dimension: there the offsets and the count choose items. Any others have the same shape, and are copied whole. Ordered as
/// warp_memory_copy() is; which way it goes, warp_copy_get_path() tells.
///
/// @param dest  where to. What lies between its items is not touched.
/// @param src  where from. It may overlap the destination: all of it is read first.
/// @param dest_offset  the first item to write.
/// @param src_offset  the first item to read.
/// @param count  how many items; 0 for as many as the source has. A source without items is nothing to do.
/// @param stream  where to put it; NULL for the stream that warp_memory_copy() chooses.
/// @return WARP_ERROR_SIZE_MISMATCH for items of different sizes, and for different shapes; WARP_ERROR_INVALID_ARGUMENT for a
///     range that passes the end of either array, and for items of the destination that share bytes;
///     WARP_ERROR_NOT_SUPPORTED for an offset or a part of an array that is no row, and for gaps on a GPU that cannot load a
///     kernel; WARP_ERROR_OUT_OF_MEMORY when memory for a way with stops is not to be had; WARP_ERROR_ACCESS_DENIED for memory
///     that the stream's GPU may not touch; WARP_ERROR_ILLEGAL_IN_CAPTURE and _ACCESS_DENIED for what a graph cannot do, and the
///     capture goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_copy(
    dest: *mut warp_array,
    src: *const warp_array,
    dest_offset: u64,
    src_offset: u64,
    count: u64,
    stream: *mut warp_stream,
) -> warp_status {
    guard(|| {
        let (dest, src) = (found(dest)?, found(src)?);
        let extract = Extract { dest_offset, src_offset, count };
        array::copy(Named::Array(&dest), Named::Array(&src), extract, given(stream)?.as_ref())
    })
}

/// Makes a new array with the type, the shape and the items of another one, on any device, in rows without gaps.
///
/// @param array  what to copy.
/// @param device  where to; NULL for the array's own device.
/// @param options  how the new array should be; NULL for the defaults. Its strides must be NULL. Its stream, which the
///     copy is put on, is of the new array's device if that is a GPU, else of the old one's.
/// @param out  the new array, to be given back with warp_array_release().
/// @return as warp_array_empty() and warp_array_copy().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_clone(
    array: *const warp_array,
    device: *mut warp_device,
    options: *const warp_array_options,
    out: *mut *mut warp_array,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let array = found(array)?;
        let device = if device.is_null() { array.device() } else { found_device(device)? };
        with_request(options, |request| {
            out.put(opaque(array::clone_to(Named::Array(&array), device, request)?));
            Ok(())
        })
    })
}

/// Calls `make` with what the options of a copy ask for.
pub(super) fn with_request(
    options: *const warp_array_options,
    make: impl FnOnce(Request<'_>) -> Result<()>,
) -> Result<()> {
    let given_options = self::options(options)?;
    if !given_options.strides.is_null() {
        fail!(InvalidArgument, "a copy has rows without gaps; leave strides at NULL");
    }
    let stream = given(given_options.stream)?;
    let pool = given_pool(given_options.mempool)?;
    let allocator = given_allocator(given_options.allocator)?;
    make(request_of(&given_options, stream.as_ref(), pool.as_ref(), allocator.as_ref())?)
}

/// Brings an array to a device: a view of it where it is there already, whatever its strides, else a clone as
/// warp_array_clone() makes it. Either is given back in the same way.
///
/// @param array  the array.
/// @param device  where it is wanted; NULL for the default.
/// @param options  how a clone should be, as for warp_array_clone(); a view takes nothing from it.
/// @param out  the array there, to be given back with warp_array_release().
/// @return as warp_array_clone().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_to_device(
    array: *const warp_array,
    device: *mut warp_device,
    options: *const warp_array_options,
    out: *mut *mut warp_array,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let (array, device) = (found(array)?, found_device(device)?);
        with_request(options, |request| {
            out.put(opaque(array::to_device(&array, device, request)?));
            Ok(())
        })
    })
}

/// Makes an array one of rows without gaps: a view of it where it is that already, else a clone on its own device.
///
/// @param array  the array.
/// @param options  how a clone should be, as for warp_array_clone(); a view takes nothing from it.
/// @param out  the array without gaps, to be given back with warp_array_release().
/// @return as warp_array_clone().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_array_contiguous(
    array: *const warp_array,
    options: *const warp_array_options,
    out: *mut *mut warp_array,
) -> warp_status {
    guard(|| {
        let out = self::out(out, "out")?;
        let array = found(array)?;
        with_request(options, |request| {
            out.put(opaque(array::contiguous(&array, request)?));
            Ok(())
        })
    })
}
