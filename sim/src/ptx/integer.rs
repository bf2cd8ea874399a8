//! Integer arithmetic, as the hardware does it at its edges: divisions by zero give ones, shifts by the width or more
//! nothing (or the sign), and nothing overflows.
use super::operand::{Class, Type};
use super::program::{One, Test, Three, Two};

/// A value in a slot, whose upper bits are zero.
pub trait Lane: Copy {
    fn take(slot: u64) -> Self;
    fn put(self) -> u64;
}

macro_rules! lanes {
    ($($own:ty as $bits:ty),+) => {
        $(impl Lane for $own {
            fn take(slot: u64) -> $own {
                slot as $own
            }
            fn put(self) -> u64 {
                u64::from(self as $bits)
            }
        })+
    };
}

lanes!(u8 as u8, u16 as u16, u32 as u32, u64 as u64, i8 as u8, i16 as u16, i32 as u32, i64 as u64);

impl Lane for bool {
    fn take(slot: u64) -> bool {
        slot != 0
    }
    fn put(self) -> u64 {
        u64::from(self)
    }
}

/// A function whose operands are seen as a type.
macro_rules! typed {
    (($($name:ident),+) => $body:expr, $as:ty, $lane:ty) => {{
        let f: $as = |$($name: u64),+| {
            $(let $name = <$lane as Lane>::take($name);)+
            Lane::put($body)
        };
        Some(f)
    }};
}

/// A function for each listed type, or none.
macro_rules! by_type {
    ($type:expr, $names:tt => $body:expr, $as:ty, [$($pattern:pat => $lane:ty),+ $(,)?]) => {
        match ($type.class, $type.bytes) {
            $($pattern => typed!($names => $body, $as, $lane),)+
            _ => None,
        }
    };
}

use Class::{Bits, Predicate, Signed, Unsigned};

/// Of 16, 32 and 64 bits, signed or not.
macro_rules! arithmetic {
    ($type:expr, $names:tt => $body:expr, $as:ty) => {
        by_type!($type, $names => $body, $as, [
            (Unsigned, 2) => u16, (Unsigned, 4) => u32, (Unsigned, 8) => u64,
            (Signed, 2) => i16, (Signed, 4) => i32, (Signed, 8) => i64,
        ])
    };
}

/// Of bits.
macro_rules! of_bits {
    ($type:expr, $names:tt => $body:expr, $as:ty) => {
        by_type!($type, $names => $body, $as, [
            (Bits, 2) => u16, (Bits, 4) => u32, (Bits, 8) => u64,
        ])
    };
}

macro_rules! division {
    ($type:expr, $operation:ident) => {
        match ($type.class, $type.bytes) {
            (Unsigned, 2) => quotient!(u16, u16::MAX, $operation),
            (Unsigned, 4) => quotient!(u32, u32::MAX, $operation),
            (Unsigned, 8) => quotient!(u64, u64::MAX, $operation),
            (Signed, 2) => quotient!(i16, -1_i16, $operation),
            (Signed, 4) => quotient!(i32, -1_i32, $operation),
            (Signed, 8) => quotient!(i64, -1_i64, $operation),
            _ => None,
        }
    };
}

macro_rules! quotient {
    ($lane:ty, $ones:expr, $operation:ident) => {{
        let f: Two = |a, b| match (<$lane>::take(a), <$lane>::take(b)) {
            (_, 0) => $ones.put(),
            (a, b) => a.$operation(b).put(),
        };
        Some(f)
    }};
}

macro_rules! upper {
    ($lane:ty, $wide:ty) => {{
        let f: Two = |a, b| {
            let product = <$wide>::from(<$lane>::take(a)) * <$wide>::from(<$lane>::take(b));
            ((product >> <$lane>::BITS) as $lane).put()
        };
        Some(f)
    }};
}

fn high(kind: Type) -> Option<Two> {
    match (kind.class, kind.bytes) {
        (Unsigned, 2) => upper!(u16, u32),
        (Unsigned, 4) => upper!(u32, u64),
        (Unsigned, 8) => upper!(u64, u128),
        (Signed, 2) => upper!(i16, i32),
        (Signed, 4) => upper!(i32, i64),
        (Signed, 8) => upper!(i64, i128),
        _ => None,
    }
}

fn wide(kind: Type) -> Option<Two> {
    Some(match (kind.class, kind.bytes) {
        (Unsigned, 2) => |a, b| (u32::from(a as u16) * u32::from(b as u16)).put(),
        (Unsigned, 4) => |a, b| u64::from(a as u32) * u64::from(b as u32),
        (Signed, 2) => |a, b| (i32::from(a as i16) * i32::from(b as i16)).put(),
        (Signed, 4) => |a, b| (i64::from(a as i32) * i64::from(b as i32)).put(),
        _ => return None,
    })
}

/// The 24 lowest bits of an operand.
fn low24(kind: Type, high: bool) -> Option<Two> {
    Some(match (kind.class, kind.bytes, high) {
        (Unsigned, 4, false) => |a, b| ((a & 0xFF_FFFF) * (b & 0xFF_FFFF)) as u32 as u64,
        (Unsigned, 4, true) => |a, b| (((a & 0xFF_FFFF) * (b & 0xFF_FFFF)) >> 16) as u32 as u64,
        (Signed, 4, false) => |a, b| (signed24(a) * signed24(b)) as u32 as u64,
        (Signed, 4, true) => |a, b| ((signed24(a) * signed24(b)) >> 16) as u32 as u64,
        _ => return None,
    })
}

fn signed24(value: u64) -> i64 {
    i64::from((value as u32) << 8) << 32 >> 40
}

/// An instruction of two operands by its name.
pub fn two(name: &str, kind: Type) -> Option<Two> {
    match name {
        "add" => arithmetic!(kind, (a, b) => a.wrapping_add(b), Two),
        "sub" => arithmetic!(kind, (a, b) => a.wrapping_sub(b), Two),
        "add.sat" if kind == Type::new(Signed, 4) => {
            by_type!(kind, (a, b) => a.saturating_add(b), Two, [(Signed, 4) => i32])
        }
        "sub.sat" if kind == Type::new(Signed, 4) => {
            by_type!(kind, (a, b) => a.saturating_sub(b), Two, [(Signed, 4) => i32])
        }
        "mul.lo" => arithmetic!(kind, (a, b) => a.wrapping_mul(b), Two),
        "mul.hi" => high(kind),
        "mul.wide" => wide(kind),
        "mul24.lo" => low24(kind, false),
        "mul24.hi" => low24(kind, true),
        "div" => division!(kind, wrapping_div),
        "rem" => division!(kind, wrapping_rem),
        "min" => arithmetic!(kind, (a, b) => a.min(b), Two),
        "max" => arithmetic!(kind, (a, b) => a.max(b), Two),
        "and" | "or" | "xor" => logic(name, kind),
        "shl" => Some(match (kind.class, kind.bytes) {
            (Bits, 2) => |a, b| (a as u16).checked_shl(b as u32).unwrap_or(0).put(),
            (Bits, 4) => |a, b| (a as u32).checked_shl(b as u32).unwrap_or(0).put(),
            (Bits, 8) => |a, b| a.checked_shl(b as u32).unwrap_or(0),
            _ => return None,
        }),
        "shr" => Some(match (kind.class, kind.bytes) {
            (Bits | Unsigned, 2) => |a, b| (a as u16).checked_shr(b as u32).unwrap_or(0).put(),
            (Bits | Unsigned, 4) => |a, b| (a as u32).checked_shr(b as u32).unwrap_or(0).put(),
            (Bits | Unsigned, 8) => |a, b| a.checked_shr(b as u32).unwrap_or(0),
            (Signed, 2) => |a, b| ((a as i16) >> (b as u32).min(15)).put(),
            (Signed, 4) => |a, b| ((a as i32) >> (b as u32).min(31)).put(),
            (Signed, 8) => |a, b| ((a as i64) >> (b as u32).min(63)).put(),
            _ => return None,
        }),
        _ => None,
    }
}

fn logic(name: &str, kind: Type) -> Option<Two> {
    if !matches!(kind.class, Bits | Predicate) || (kind.class == Bits && kind.bytes == 1) {
        return None;
    }
    Some(match name {
        "and" => |a, b| a & b,
        "or" => |a, b| a | b,
        _ => |a, b| a ^ b,
    })
}

/// An instruction of one operand by its name.
pub fn one(name: &str, kind: Type) -> Option<One> {
    match name {
        "neg" => by_type!(kind, (a) => a.wrapping_neg(), One,
            [(Signed, 2) => i16, (Signed, 4) => i32, (Signed, 8) => i64]),
        "abs" => by_type!(kind, (a) => a.wrapping_abs(), One,
            [(Signed, 2) => i16, (Signed, 4) => i32, (Signed, 8) => i64]),
        "not" => by_type!(kind, (a) => !a, One,
            [(Bits, 2) => u16, (Bits, 4) => u32, (Bits, 8) => u64, (Predicate, 1) => bool]),
        "cnot" => of_bits!(kind, (a) => u64::from(a == 0), One),
        "popc" => by_type!(kind, (a) => a.count_ones(), One, [(Bits, 4) => u32, (Bits, 8) => u64]),
        "clz" => by_type!(kind, (a) => a.leading_zeros(), One, [(Bits, 4) => u32, (Bits, 8) => u64]),
        "brev" => by_type!(kind, (a) => a.reverse_bits(), One, [(Bits, 4) => u32, (Bits, 8) => u64]),
        "bfind" => Some(match (kind.class, kind.bytes) {
            (Unsigned, 4) => |a| found(u64::from(a as u32)),
            (Unsigned, 8) => found,
            (Signed, 4) => |a| found(u64::from((a as u32) ^ ((a as i32) >> 31) as u32)),
            (Signed, 8) => |a| found(a ^ ((a as i64) >> 63) as u64),
            _ => return None,
        }),
        _ => None,
    }
}

/// The place of the highest bit that is set; ones for none.
fn found(value: u64) -> u64 {
    value.checked_ilog2().unwrap_or(u32::MAX).put()
}

/// An instruction of three operands by its name.
pub fn three(name: &str, kind: Type) -> Option<Three> {
    match name {
        "mad.lo" => arithmetic!(kind, (a, b, c) => a.wrapping_mul(b).wrapping_add(c), Three),
        "mad.hi" => Some(match (kind.class, kind.bytes) {
            (Unsigned, 4) => |a, b, c| (((a * b) >> 32) as u32).wrapping_add(c as u32).put(),
            (Signed, 4) => |a, b, c| {
                let product = i64::from(a as i32) * i64::from(b as i32);
                ((product >> 32) as i32).wrapping_add(c as i32).put()
            },
            (Unsigned, 8) => |a, b, c| ((u128::from(a) * u128::from(b)) >> 64).wrapping_add(c.into()) as u64,
            (Signed, 8) => |a, b, c| {
                let product = i128::from(a as i64) * i128::from(b as i64);
                ((product >> 64) as u64).wrapping_add(c)
            },
            _ => return None,
        }),
        "mad.wide" => Some(match (kind.class, kind.bytes) {
            (Unsigned, 2) => {
                |a, b, c| (u32::from(a as u16) * u32::from(b as u16)).wrapping_add(c as u32).put()
            }
            (Signed, 2) => |a, b, c| (i32::from(a as i16) * i32::from(b as i16)).wrapping_add(c as i32).put(),
            (Unsigned, 4) => |a, b, c| (u64::from(a as u32) * u64::from(b as u32)).wrapping_add(c),
            (Signed, 4) => |a, b, c| (i64::from(a as i32) * i64::from(b as i32)).put().wrapping_add(c),
            _ => return None,
        }),
        "mad24.lo" => Some(match (kind.class, kind.bytes) {
            (Unsigned, 4) => |a, b, c| ((a & 0xFF_FFFF) * (b & 0xFF_FFFF)).wrapping_add(c) as u32 as u64,
            (Signed, 4) => |a, b, c| ((signed24(a) * signed24(b)) as u64).wrapping_add(c) as u32 as u64,
            _ => return None,
        }),
        "sad" => Some(match (kind.class, kind.bytes) {
            (Unsigned, 2) => |a, b, c| (a as u16).abs_diff(b as u16).wrapping_add(c as u16).put(),
            (Unsigned, 4) => |a, b, c| (a as u32).abs_diff(b as u32).wrapping_add(c as u32).put(),
            (Unsigned, 8) => |a, b, c| a.abs_diff(b).wrapping_add(c),
            (Signed, 2) => |a, b, c| (a as i16).abs_diff(b as i16).wrapping_add(c as u16).put(),
            (Signed, 4) => |a, b, c| (a as i32).abs_diff(b as i32).wrapping_add(c as u32).put(),
            (Signed, 8) => |a, b, c| (a as i64).abs_diff(b as i64).wrapping_add(c),
            _ => return None,
        }),
        "bfe" => Some(match (kind.class, kind.bytes) {
            (Unsigned, 4) => |a, b, c| extract(a, b, c, 32, false),
            (Unsigned, 8) => |a, b, c| extract(a, b, c, 64, false),
            (Signed, 4) => |a, b, c| extract(a, b, c, 32, true),
            (Signed, 8) => |a, b, c| extract(a, b, c, 64, true),
            _ => return None,
        }),
        "prmt" if kind == Type::new(Bits, 4) => Some(permute),
        "shf.l.wrap" if kind == Type::new(Bits, 4) => Some(|a, b, c| funnel(a, b, (c & 31) as u32, true)),
        "shf.l.clamp" if kind == Type::new(Bits, 4) => Some(|a, b, c| funnel(a, b, (c as u32).min(32), true)),
        "shf.r.wrap" if kind == Type::new(Bits, 4) => Some(|a, b, c| funnel(a, b, (c & 31) as u32, false)),
        "shf.r.clamp" if kind == Type::new(Bits, 4) => {
            Some(|a, b, c| funnel(a, b, (c as u32).min(32), false))
        }
        _ => None,
    }
}

fn funnel(low: u64, high: u64, by: u32, left: bool) -> u64 {
    let both = high << 32 | low & 0xFFFF_FFFF;
    let shifted = if left { (both << by) >> 32 } else { both >> by };
    shifted as u32 as u64
}

/// A field of bits; beyond the highest bit there are zeros, or the sign of the field's highest bit that is there.
fn extract(value: u64, from: u64, length: u64, width: u32, signed: bool) -> u64 {
    let (from, length) = ((from & 0xFF) as u32, (length & 0xFF) as u32);
    let mask = u64::MAX >> (64 - width);
    if length == 0 {
        return 0;
    }
    let last = (from + length - 1).min(width - 1);
    let sign = signed && value >> last & 1 != 0;
    let have = value.checked_shr(from).unwrap_or(0);
    let kept = length.min(width.saturating_sub(from));
    let field = if kept == 0 { 0 } else { have & (u64::MAX >> (64 - kept)) };
    if sign && kept < 64 { (field | u64::MAX << kept) & mask } else { field }
}

/// The base with a field of bits put in.
pub fn insert(field: u64, base: u64, from: u64, length: u64, width: u32) -> u64 {
    let (from, length) = ((from & 0xFF) as u32, (length & 0xFF) as u32);
    let length = length.min(width.saturating_sub(from));
    if length == 0 {
        return base;
    }
    let mask = (u64::MAX >> (64 - length)) << from;
    base & !mask | field << from & mask
}

fn permute(a: u64, b: u64, selector: u64) -> u64 {
    let bytes = b << 32 | a & 0xFFFF_FFFF;
    (0..4).fold(0, |result, i| {
        let choice = selector >> (4 * i) & 0xF;
        let byte = bytes >> (8 * (choice & 7)) & 0xFF;
        let byte = if choice & 8 == 0 { byte } else { 0xFF * (byte >> 7) };
        result | byte << (8 * i)
    })
}

/// A function of three bits, given as its table, bit by bit.
pub fn table(a: u64, b: u64, c: u64, lookup: u64) -> u64 {
    (0..8).filter(|row| lookup >> row & 1 != 0).fold(0, |result, row| {
        let part = |value: u64, bit: u32| if row >> bit & 1 != 0 { value } else { !value };
        result | part(a, 2) & part(b, 1) & part(c, 0)
    }) & 0xFFFF_FFFF
}

macro_rules! test {
    ($type:expr, $names:tt => $body:expr) => {
        match ($type.class, $type.bytes) {
            (Bits | Unsigned, 2) => of_two!(u16, $names => $body),
            (Bits | Unsigned, 4) => of_two!(u32, $names => $body),
            (Bits | Unsigned, 8) => of_two!(u64, $names => $body),
            (Signed, 2) => of_two!(i16, $names => $body),
            (Signed, 4) => of_two!(i32, $names => $body),
            (Signed, 8) => of_two!(i64, $names => $body),
            _ => None,
        }
    };
}

macro_rules! of_two {
    ($lane:ty, ($a:ident, $b:ident) => $body:expr) => {{
        let f: Test = |a, b| {
            let ($a, $b) = (<$lane>::take(a), <$lane>::take(b));
            $body
        };
        Some(f)
    }};
}

/// A comparison by its name.
pub fn compare(name: &str, kind: Type) -> Option<Test> {
    let unsigned = matches!(name, "lo" | "ls" | "hi" | "hs");
    if (unsigned && kind.class != Unsigned) || (kind.class == Bits && !matches!(name, "eq" | "ne")) {
        return None;
    }
    match name {
        "eq" => test!(kind, (a, b) => a == b),
        "ne" => test!(kind, (a, b) => a != b),
        "lt" | "lo" => test!(kind, (a, b) => a < b),
        "le" | "ls" => test!(kind, (a, b) => a <= b),
        "gt" | "hi" => test!(kind, (a, b) => a > b),
        "ge" | "hs" => test!(kind, (a, b) => a >= b),
        _ => None,
    }
}

/// What an atomic instruction makes of the old value and its operands.
pub fn atomic(name: &str, kind: Type) -> Option<Three> {
    let wide_enough = kind.bytes >= 4;
    match name {
        _ if !wide_enough => None,
        "exch" if kind.class == Bits => Some(|_, b, _| b),
        "cas" if kind.class == Bits => Some(|old, b, c| if old == b { c } else { old }),
        "and" if kind.class == Bits => Some(|old, b, _| old & b),
        "or" if kind.class == Bits => Some(|old, b, _| old | b),
        "xor" if kind.class == Bits => Some(|old, b, _| old ^ b),
        "add" => by_type!(kind, (old, b, _c) => old.wrapping_add(b), Three,
            [(Unsigned, 4) => u32, (Unsigned, 8) => u64, (Signed, 4) => i32, (Signed, 8) => i64]),
        "min" => by_type!(kind, (old, b, _c) => old.min(b), Three,
            [(Unsigned, 4) => u32, (Unsigned, 8) => u64, (Signed, 4) => i32, (Signed, 8) => i64]),
        "max" => by_type!(kind, (old, b, _c) => old.max(b), Three,
            [(Unsigned, 4) => u32, (Unsigned, 8) => u64, (Signed, 4) => i32, (Signed, 8) => i64]),
        "inc" => {
            by_type!(kind, (old, b, _c) => if old >= b { 0 } else { old + 1 }, Three, [(Unsigned, 4) => u32])
        }
        "dec" => by_type!(kind, (old, b, _c) => if old == 0 || old > b { b } else { old - 1 }, Three,
            [(Unsigned, 4) => u32]),
        _ => None,
    }
}
