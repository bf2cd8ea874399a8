//! # Types of items
//!
//! What one item of an array is, in the terms of DLPack: a code, the bits of one lane, the lanes. Every item is a whole
//! number of bytes: those of a type of less than a byte take one each.

use crate::array::{Dtype, code};
use crate::error::Result;

/// Signed integers, of 1, 2, 4, … 128 bits. The type codes up to 17 are those of DLPack.
pub const WARP_DTYPE_INT: u8 = 0;
/// Unsigned integers, of 1, 2, 4, … 128 bits.
pub const WARP_DTYPE_UINT: u8 = 1;
/// IEEE floating point, of 16, 32, 64 or 128 bits.
pub const WARP_DTYPE_FLOAT: u8 = 2;
/// A handle that only the caller understands.
pub const WARP_DTYPE_OPAQUE_HANDLE: u8 = 3;
/// bfloat16, of 16 bits.
pub const WARP_DTYPE_BFLOAT: u8 = 4;
/// Two floating-point numbers, of 32, 64 or 128 bits together.
pub const WARP_DTYPE_COMPLEX: u8 = 5;
/// Truth values, of 8 bits.
pub const WARP_DTYPE_BOOL: u8 = 6;
/// Floating point of 8 bits, in the format that the name says; so the seven that follow.
pub const WARP_DTYPE_FLOAT8_E3M4: u8 = 7;
pub const WARP_DTYPE_FLOAT8_E4M3: u8 = 8;
pub const WARP_DTYPE_FLOAT8_E4M3B11FNUZ: u8 = 9;
pub const WARP_DTYPE_FLOAT8_E4M3FN: u8 = 10;
pub const WARP_DTYPE_FLOAT8_E4M3FNUZ: u8 = 11;
pub const WARP_DTYPE_FLOAT8_E5M2: u8 = 12;
pub const WARP_DTYPE_FLOAT8_E5M2FNUZ: u8 = 13;
pub const WARP_DTYPE_FLOAT8_E8M0FNU: u8 = 14;
/// Floating point of 6 bits; a lone item takes a whole byte, lanes are packed.
pub const WARP_DTYPE_FLOAT6_E2M3FN: u8 = 15;
pub const WARP_DTYPE_FLOAT6_E3M2FN: u8 = 16;
/// Floating point of 4 bits; a lone item takes a whole byte, lanes are packed.
pub const WARP_DTYPE_FLOAT4_E2M1FN: u8 = 17;
/// Bytes that only the caller understands, item_size of them.
pub const WARP_DTYPE_OPAQUE: u8 = 255;

const _: () = {
    assert!(code::INT == WARP_DTYPE_INT && code::UINT == WARP_DTYPE_UINT);
    assert!(code::FLOAT == WARP_DTYPE_FLOAT && code::OPAQUE_HANDLE == WARP_DTYPE_OPAQUE_HANDLE);
    assert!(code::BFLOAT == WARP_DTYPE_BFLOAT && code::COMPLEX == WARP_DTYPE_COMPLEX);
    assert!(code::BOOL == WARP_DTYPE_BOOL && code::OPAQUE == WARP_DTYPE_OPAQUE);
    assert!(code::FLOAT8_E3M4 == WARP_DTYPE_FLOAT8_E3M4);
    assert!(code::FLOAT8_E8M0FNU == WARP_DTYPE_FLOAT8_E8M0FNU);
    assert!(code::FLOAT6_E2M3FN == WARP_DTYPE_FLOAT6_E2M3FN);
    assert!(code::FLOAT6_E3M2FN == WARP_DTYPE_FLOAT6_E3M2FN);
    assert!(code::FLOAT4_E2M1FN == WARP_DTYPE_FLOAT4_E2M1FN);
};

/// The type of an item, passed by value. The first three fields are DLPack's DLDataType.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_dtype {
    /// A WARP_DTYPE_… constant.
    pub code: u8,
    /// Bits of one lane; not looked at for WARP_DTYPE_OPAQUE.
    pub bits: u8,
    /// Lanes of one item; 0 means 1.
    pub lanes: u16,
    /// Bytes of one item, all its lanes together; 0 for what follows from bits and lanes. WARP_DTYPE_OPAQUE has to
    /// say it.
    pub item_size: u32,
}

pub(super) fn dtype_of(given: warp_dtype) -> Result<Dtype> {
    Dtype::new(given.code, given.bits, given.lanes, given.item_size)
}

pub(super) fn face_of(dtype: Dtype) -> warp_dtype {
    warp_dtype { code: dtype.code(), bits: dtype.bits(), lanes: dtype.lanes(), item_size: dtype.item_size() }
}

/// The type of one lane with this code and so many bits, complete: warp_dtype_make(WARP_DTYPE_FLOAT, 32) is a float.
/// Never fails; for a type that does not exist all fields are zero, and every function refuses that. Any thread, before
/// warp_init() too.
///
/// @param code  a WARP_DTYPE_… constant other than WARP_DTYPE_OPAQUE.
/// @param bits  bits of an item.
#[unsafe(no_mangle)]
pub extern "C" fn warp_dtype_make(code: u8, bits: u8) -> warp_dtype {
    let none = warp_dtype { code: 0, bits: 0, lanes: 0, item_size: 0 };
    Dtype::new(code, bits, 1, 0).map_or(none, face_of)
}
