//! What an item is: the type codes of DLPack, and how many bytes an item takes. Items are whole bytes: those of a
//! type of less than a byte are padded, one item a byte.
#![forbid(unsafe_code)]

use crate::copy::Pattern;
use crate::error::{Result, fail};
use smallvec::smallvec;

/// The codes of DLPack; the numbers are fixed there.
pub mod code {
    pub const INT: u8 = 0;
    pub const UINT: u8 = 1;
    pub const FLOAT: u8 = 2;
    pub const OPAQUE_HANDLE: u8 = 3;
    pub const BFLOAT: u8 = 4;
    pub const COMPLEX: u8 = 5;
    pub const BOOL: u8 = 6;
    pub const FLOAT8_E3M4: u8 = 7;
    pub const FLOAT8_E8M0FNU: u8 = 14;
    pub const FLOAT6_E2M3FN: u8 = 15;
    pub const FLOAT6_E3M2FN: u8 = 16;
    pub const FLOAT4_E2M1FN: u8 = 17;
    /// Not one of DLPack's: bytes that only the caller understands.
    pub const OPAQUE: u8 = 255;
}

/// The type of an item, complete and consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dtype {
    code: u8,
    bits: u8,
    lanes: u16,
    item_size: u32,
}

impl Dtype {
    /// Completes what is left at zero, one lane and the size that follows, and checks the rest.
    pub fn new(code: u8, bits: u8, lanes: u16, item_size: u32) -> Result<Dtype> {
        let lanes = lanes.max(1);
        if code == code::OPAQUE {
            if item_size == 0 {
                fail!(InvalidArgument, "an opaque item has an item_size of at least 1; here it is 0");
            }
            return Ok(Dtype { code, bits, lanes, item_size });
        }
        let known = match code {
            code::INT | code::UINT => bits.is_power_of_two(),
            code::FLOAT => matches!(bits, 16 | 32 | 64 | 128),
            code::OPAQUE_HANDLE => bits.is_power_of_two() && bits >= 8,
            code::BFLOAT => bits == 16,
            code::COMPLEX => matches!(bits, 32 | 64 | 128),
            code::BOOL => bits == 8,
            code::FLOAT8_E3M4..=code::FLOAT8_E8M0FNU => bits == 8,
            code::FLOAT6_E2M3FN | code::FLOAT6_E3M2FN => bits == 6,
            code::FLOAT4_E2M1FN => bits == 4,
            _ => {
                fail!(
                    InvalidArgument,
                    "{code} is no type code; use a WARP_DTYPE_… constant, WARP_DTYPE_OPAQUE with an item_size for types of your own"
                )
            }
        };
        if !known {
            fail!(
                InvalidArgument,
                "there is no {} of {bits} bits; use WARP_DTYPE_OPAQUE with an item_size for types of your own",
                stem(code)
            );
        }
        let follows = (u32::from(bits) * u32::from(lanes)).div_ceil(8);
        if item_size != 0 && item_size != follows {
            fail!(
                SizeMismatch,
                "an item of {lanes} x {}{bits} has {follows} bytes, and item_size is {item_size}; leave it at 0",
                stem(code)
            );
        }
        Ok(Dtype { code, bits, lanes, item_size: follows })
    }

    pub fn code(&self) -> u8 {
        self.code
    }

    pub fn bits(&self) -> u8 {
        self.bits
    }

    pub fn lanes(&self) -> u16 {
        self.lanes
    }

    pub fn item_size(&self) -> u32 {
        self.item_size
    }

    /// As messages name it, such as `float32` or `int8x4`.
    pub fn name(&self) -> String {
        let lanes = if self.lanes == 1 { String::new() } else { format!("x{}", self.lanes) };
        match self.code {
            code::OPAQUE => format!("an opaque type of {} bytes", self.item_size),
            // Their format, and so their width, is in the name.
            code::BOOL | code::FLOAT8_E3M4..=code::FLOAT4_E2M1FN => format!("{}{lanes}", stem(self.code)),
            _ => format!("{}{}{lanes}", stem(self.code), self.bits),
        }
    }

    /// An item whose every lane is 1.
    pub fn one(&self) -> Result<Pattern> {
        let lane: Pattern = match (self.code, self.bits) {
            (code::INT | code::UINT, bits) if bits >= 8 || self.lanes == 1 => integer_one(bits),
            (code::BOOL, _) => smallvec![1],
            (code::FLOAT, 16) => Pattern::from_slice(&0x3c00u16.to_ne_bytes()),
            (code::FLOAT, 32) => Pattern::from_slice(&1f32.to_ne_bytes()),
            (code::FLOAT, 64) => Pattern::from_slice(&1f64.to_ne_bytes()),
            (code::BFLOAT, _) => Pattern::from_slice(&0x3f80u16.to_ne_bytes()),
            (code::COMPLEX, bits) => {
                let mut real = Dtype::new(code::FLOAT, bits / 2, 1, 0)?.one()?;
                real.resize(real.len() * 2, 0);
                real
            }
            _ => fail!(
                NotSupported,
                "what 1 is in {} is not known here; pass the item to warp_array_full",
                self.name()
            ),
        };
        Ok(lane.iter().copied().cycle().take(self.item_size as usize).collect())
    }
}

fn integer_one(bits: u8) -> Pattern {
    let mut item: Pattern = smallvec![0; usize::from(bits).div_ceil(8)];
    let lowest = if cfg!(target_endian = "little") { 0 } else { item.len() - 1 };
    item[lowest] = 1;
    item
}

fn stem(code: u8) -> &'static str {
    match code {
        code::INT => "int",
        code::UINT => "uint",
        code::FLOAT => "float",
        code::OPAQUE_HANDLE => "handle",
        code::BFLOAT => "bfloat",
        code::COMPLEX => "complex",
        code::BOOL => "bool",
        code::FLOAT8_E3M4 => "float8_e3m4",
        8 => "float8_e4m3",
        9 => "float8_e4m3b11fnuz",
        10 => "float8_e4m3fn",
        11 => "float8_e4m3fnuz",
        12 => "float8_e5m2",
        13 => "float8_e5m2fnuz",
        code::FLOAT8_E8M0FNU => "float8_e8m0fnu",
        code::FLOAT6_E2M3FN => "float6_e2m3fn",
        code::FLOAT6_E3M2FN => "float6_e3m2fn",
        code::FLOAT4_E2M1FN => "float4_e2m1fn",
        _ => "opaque",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    fn one(code: u8, bits: u8, lanes: u16) -> Vec<u8> {
        Dtype::new(code, bits, lanes, 0).unwrap().one().unwrap().to_vec()
    }

    #[test]
    fn the_size_follows_from_bits_and_lanes() {
        let size = |code, bits, lanes| Dtype::new(code, bits, lanes, 0).unwrap().item_size();
        assert_eq!((size(code::FLOAT, 32, 0), size(code::FLOAT, 32, 4), size(code::INT, 4, 1)), (4, 16, 1));
        assert_eq!((size(code::UINT, 1, 9), size(code::COMPLEX, 128, 1), size(16, 6, 4)), (2, 16, 3));
        assert_eq!(size(code::UINT, 128, u16::MAX), 1_048_560);
        assert_eq!(Dtype::new(code::OPAQUE, 0, 0, 12).unwrap().item_size(), 12);
        assert!(Dtype::new(code::FLOAT, 32, 1, 4).is_ok());
    }

    #[test]
    fn types_that_are_none_are_refused() {
        let status = |code, bits, item_size| Dtype::new(code, bits, 1, item_size).unwrap_err().status;
        assert_eq!(status(code::FLOAT, 32, 8), Status::SizeMismatch);
        assert_eq!(status(code::OPAQUE, 8, 0), Status::InvalidArgument);
        for (code, bits) in [(0, 0), (0, 3), (2, 8), (2, 80), (4, 32), (5, 16), (6, 1), (7, 4), (15, 8)] {
            assert_eq!(status(code, bits, 0), Status::InvalidArgument, "{code} {bits}");
        }
        for code in 18..code::OPAQUE {
            assert_eq!(status(code, 8, 1), Status::InvalidArgument);
        }
    }

    #[test]
    fn one_is_one_in_every_lane() {
        assert_eq!(one(code::INT, 32, 1), 1i32.to_ne_bytes());
        assert_eq!(one(code::UINT, 128, 1), 1u128.to_ne_bytes());
        assert_eq!(one(code::INT, 4, 1), [1]);
        assert_eq!(one(code::FLOAT, 32, 2), [1f32.to_ne_bytes(), 1f32.to_ne_bytes()].concat());
        assert_eq!(one(code::COMPLEX, 64, 1), [1f32.to_ne_bytes(), 0f32.to_ne_bytes()].concat());
        assert_eq!(one(code::BFLOAT, 16, 1), ((1f32.to_bits() >> 16) as u16).to_ne_bytes());
        assert_eq!(one(code::BOOL, 8, 3), [1, 1, 1]);
        for (code, bits, lanes) in
            [(code::INT, 4, 2), (code::FLOAT, 128, 1), (code::OPAQUE_HANDLE, 64, 1), (10, 8, 1)]
        {
            let refused = Dtype::new(code, bits, lanes, 0).unwrap().one().unwrap_err();
            assert_eq!(refused.status, Status::NotSupported);
            assert!(refused.message.contains("warp_array_full"));
        }
        assert!(Dtype::new(code::OPAQUE, 0, 0, 12).unwrap().one().is_err());
    }

    #[test]
    fn names_are_those_of_the_field() {
        let name = |code, bits, lanes| Dtype::new(code, bits, lanes, 0).unwrap().name();
        assert_eq!(name(code::FLOAT, 32, 1), "float32");
        assert_eq!(name(code::INT, 8, 4), "int8x4");
        assert_eq!(name(code::BOOL, 8, 1), "bool");
        assert_eq!(name(17, 4, 2), "float4_e2m1fnx2");
    }
}
