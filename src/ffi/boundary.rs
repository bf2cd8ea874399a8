//! What every function of the C face goes through: the barrier that nothing unwinds over, outputs, structs that
//! grow, strings, flags. Callers' pointers are read here and nowhere else.

use super::status::{self, warp_status};
use crate::error::{Result, fail};
use crate::handle::Handle;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an exported function. A failure is kept for this thread; a panic, which would be a defect
/// of ours, becomes a failure too.
#[inline]
pub fn guard(body: impl FnOnce() -> Result<()>) -> warp_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => status::WARP_SUCCESS,
        Ok(Err(error)) => status::keep(&error),
        Err(panic) => status::keep_panic(panic.as_ref()),
    }
}

/// Where a result goes. Zeroed when it is made, so that a failure leaves NULL or zero.
pub struct Out<T> {
    place: *mut T,
}

impl<T: Plain> Out<T> {
    #[inline]
    pub fn put(self, value: T) {
        // SAFETY: checked by `out`; a caller whose pointer is good for nothing has broken the one rule that
        // C cannot check.
        unsafe { self.place.write_unaligned(value) }
    }
}

/// A type that a C caller may see as zeroed bytes.
///
/// # Safety
/// All bytes zero is a value of the type, and it has no drop.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($ty:ty),*) => { $(
        // SAFETY: a number.
        unsafe impl Plain for $ty {}
    )* };
}
plain!(u8, i32, u32, i64, u64, usize, f32);
// SAFETY: NULL is a pointer.
unsafe impl<T> Plain for *mut T {}
// SAFETY: NULL is a pointer.
unsafe impl<T> Plain for *const T {}

/// A required output.
#[inline]
pub fn out<T: Plain>(place: *mut T, name: &str) -> Result<Out<T>> {
    if place.is_null() {
        return Err(null(name));
    }
    // SAFETY: not NULL; zero bytes are a value of `T` by `Plain`.
    unsafe { place.write_unaligned(std::mem::zeroed()) };
    Ok(Out { place })
}

/// An output that the caller may leave out.
#[inline]
pub fn optional_out<T: Plain>(place: *mut T) -> Option<Out<T>> {
    out(place, "").ok()
}

#[cold]
fn null(name: &str) -> crate::error::Error {
    crate::error::error!(InvalidArgument, "{name} is NULL; it is where the result goes")
}

/// A struct that crosses the boundary and grows at its end. Its first field is `struct_size`.
///
/// # Safety
/// `repr(C)`, begins with `struct_size: usize`, has no padding that matters, and every pattern of bytes that a
/// caller can write is a value of it (numbers, raw pointers, optional function pointers).
pub unsafe trait Grows: Copy {
    /// The size of the struct in the first version that had it.
    const FIRST_SIZE: usize;
    const NAME: &'static str;
}

/// A longer struct than any version of it could be is a `struct_size` that was never set.
const LONGEST: usize = 1 << 16;

#[inline]
fn struct_size<T: Grows>(from: *const T) -> Result<usize> {
    // SAFETY: not NULL (checked by the callers), and `struct_size` is the first field.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if !(T::FIRST_SIZE..=LONGEST).contains(&size) {
        return Err(unset_size::<T>(size));
    }
    Ok(size)
}

#[cold]
fn unset_size<T: Grows>(size: usize) -> crate::error::Error {
    crate::error::error!(
        InvalidArgument,
        "{}.struct_size is {size}; set it to sizeof({}), {} here",
        T::NAME,
        T::NAME,
        size_of::<T>()
    )
}

/// A caller's struct of options where it lies, if it has just our size: for a look at what is usual, before `options`.
#[inline(always)]
pub fn seen_options<'a, T: Grows>(from: *const T) -> Option<&'a T> {
    if from.is_null() || !from.is_aligned() {
        return None;
    }
    // SAFETY: not NULL and aligned; `struct_size` is the first field.
    let is_ours = unsafe { from.cast::<usize>().read() } == size_of::<T>();
    // SAFETY: the caller says that it has that many bytes, which are a value of `T` by `Grows`, and leaves them alone during the call.
    is_ours.then(|| unsafe { &*from })
}

/// Reads a struct of options. NULL is all defaults; a shorter one is an older caller's; a longer one is a newer
/// caller's and passes as long as what we do not know is zero.
#[inline]
pub fn options<T: Grows>(from: *const T) -> Result<T> {
    // SAFETY: zero bytes are a value of `T` by `Grows`.
    let mut value: T = unsafe { std::mem::zeroed() };
    if from.is_null() {
        return Ok(value);
    }
    let size = struct_size(from)?;
    if size == size_of::<T>() {
        // SAFETY: the caller says that its struct has the size of ours; any bytes are a value by `Grows`.
        return Ok(unsafe { from.read_unaligned() });
    }
    let known = size.min(size_of::<T>());
    // SAFETY: the caller says that its struct has `size` bytes; at most ours are copied, and the rest is read.
    let tail = unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast::<u8>(), known);
        std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known)
    };
    if tail.iter().any(|byte| *byte != 0) {
        fail!(
            NotSupported,
            "{} has fields beyond byte {known} that this version of warpmem ({}) does not know, and they are set",
            T::NAME,
            env!("CARGO_PKG_VERSION")
        );
    }
    Ok(value)
}

/// A struct that a caller gives to be filled. Zeroed but for its size unless it is.
pub struct OutStruct<T> {
    place: *mut T,
    size: usize,
}

/// A required struct of results.
#[inline]
pub fn out_struct<T: Grows>(place: *mut T) -> Result<OutStruct<T>> {
    if place.is_null() {
        fail!(InvalidArgument, "the {} to fill is NULL", T::NAME);
    }
    Ok(OutStruct { place, size: struct_size(place)? })
}

const HEAD: usize = size_of::<usize>();

impl<T: Grows> OutStruct<T> {
    /// Fills it as far as the caller's version of it goes; a newer caller's further fields are zero.
    #[inline]
    pub fn put(self, value: T) {
        let (place, size) = (self.place.cast::<u8>(), self.size);
        std::mem::forget(self);
        let value = (&raw const value).cast::<u8>();
        // SAFETY: the caller says that its struct has `size` bytes, of which the first field keeps its value.
        unsafe {
            if size == size_of::<T>() {
                std::ptr::copy_nonoverlapping(
                    value.add(HEAD),
                    place.add(HEAD),
                    const { size_of::<T>() - HEAD },
                );
            } else {
                let known = size.min(size_of::<T>());
                std::ptr::copy_nonoverlapping(value.add(HEAD), place.add(HEAD), known - HEAD);
                place.add(known).write_bytes(0, size - known);
            }
        }
    }
}

impl<T> Drop for OutStruct<T> {
    fn drop(&mut self) {
        // SAFETY: as in `put`.
        unsafe { self.place.cast::<u8>().add(HEAD).write_bytes(0, self.size - HEAD) };
    }
}

/// A string of the caller's; NULL is none.
pub fn text<'a>(from: *const c_char) -> Option<&'a CStr> {
    // SAFETY: a caller's string is NUL-terminated and lasts for the call.
    (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) })
}

/// A string of the caller's that must be UTF-8.
pub fn utf8<'a>(from: *const c_char, name: &str) -> Result<Option<&'a str>> {
    match text(from).map(CStr::to_str) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => fail!(InvalidArgument, "{name} is not UTF-8"),
    }
}

/// Copies text into the caller's buffer as far as it goes, always terminated; says how much it would take.
pub fn put_text(text: &str, buffer: *mut c_char, capacity: usize, needed: Option<Out<usize>>) -> Result<()> {
    if buffer.is_null() && capacity != 0 {
        fail!(
            InvalidArgument,
            "the buffer is NULL, its capacity {capacity}; pass 0 to ask for the size only"
        );
    }
    if capacity != 0 {
        let mut fits = text.len().min(capacity - 1);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        // SAFETY: the caller says that the buffer has `capacity` bytes, and one is left for the NUL.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), fits);
            buffer.add(fits).write(0);
        }
    }
    if let Some(needed) = needed {
        needed.put(text.len() + 1);
    }
    Ok(())
}

/// Copies text into a fixed field, cut where it must be, always terminated.
pub fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    let mut fits = text.len().min(N - 1);
    while !text.is_char_boundary(fits) {
        fits -= 1;
    }
    for (to, from) in field.iter_mut().zip(&text.as_bytes()[..fits]) {
        *to = *from as c_char;
    }
    field
}

/// Flags, all of which must be known.
pub fn flags(given: u32, known: u32, name: &str) -> Result<u32> {
    if given & !known != 0 {
        fail!(InvalidArgument, "{name} has unknown bits {:#x}; known are {known:#x}", given & !known);
    }
    Ok(given)
}

/// The value of an opaque pointer.
#[inline]
pub fn handle<T>(pointer: *const T) -> Handle {
    pointer.addr() as Handle
}

/// A handle as the opaque pointer of its type.
#[inline]
pub fn opaque<T>(handle: Handle) -> *mut T {
    std::ptr::without_provenance_mut(handle as usize)
}

/// An address in whatever memory.
#[inline]
pub fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// An address that the library hands out.
#[inline]
pub fn pointer<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_that_tells_what_it_was() {
        assert_eq!(guard(|| panic!("torn")), status::WARP_ERROR_INTERNAL);
        // SAFETY: the text is this thread's and lasts until its next failure.
        let message = unsafe { CStr::from_ptr(status::warp_error_get_message()) };
        let message = message.to_str().expect("messages are UTF-8");
        assert_eq!(message, "a defect of warpmem was caught: torn; please report it");
        assert_eq!(guard(|| Ok(())), status::WARP_SUCCESS);
    }
}
