//! Conversions between types.
use super::float::{self, f32_of, f64_of, flush, narrow, narrow16, put32, saturate32, saturate64, widen16};
use super::operand::{Class, Round, Type};

/// What a conversion does, and how wide the register is that gets the result.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    pub from: Type,
    pub to: Type,
    pub round: Option<Round>,
    pub saturate: bool,
    pub flush: bool,
    /// The bits of the register that gets the result.
    pub mask: u64,
}

/// A value of an integer type, signed or not, as a number.
fn integer(value: u64, kind: Type) -> i128 {
    let shift = 64 - kind.bits();
    match kind.class {
        Class::Signed => i128::from(((value << shift) as i64) >> shift),
        _ => i128::from(value & kind.mask()),
    }
}

fn range(kind: Type) -> (i128, i128) {
    match kind.class {
        Class::Signed => (-(1 << (kind.bits() - 1)), (1 << (kind.bits() - 1)) - 1),
        _ => (0, (1 << kind.bits()) - 1),
    }
}

/// An integer's bits in a register: the sign goes on to its end.
fn placed(value: i128, how: &Conversion) -> u64 {
    let bits = value as u64 & how.to.mask();
    if how.to.class == Class::Signed { integer(bits, how.to) as u64 & how.mask } else { bits }
}

fn whole(value: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => value.round_ties_even(),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
    }
}

fn from_float(value: f64, how: &Conversion) -> u64 {
    if value.is_nan() {
        // The hardware's own answer for what is no number, where one of the two is of 64 bits.
        let wide = how.to.bytes == 8 || how.from.bytes == 8;
        return if wide { placed(1 << (how.to.bits() - 1), how) } else { 0 };
    }
    let (low, high) = range(how.to);
    let value = whole(value, how.round.unwrap_or(Round::Zero));
    placed((value as i128).clamp(low, high), how)
}

/// An integer as a double, and what is missing in it.
fn doubled(value: i128) -> (f64, f64) {
    let near = value as f64;
    (near, (value - near as i128) as f64)
}

/// Runs a conversion.
pub fn convert(value: u64, how: &Conversion) -> u64 {
    let round = how.round.unwrap_or(Round::Nearest);
    if how.from.is_float() {
        let value = match how.from.bytes {
            2 => f64::from(widen16(value as u16)),
            4 if how.flush => f64::from(flush(f32_of(value))),
            4 => f64::from(f32_of(value)),
            _ => f64_of(value),
        };
        if !how.to.is_float() {
            return from_float(value, how);
        }
        // Of one size, the rounding is one to a whole number.
        let value =
            if how.from == how.to { how.round.map_or(value, |round| whole(value, round)) } else { value };
        return to_float(value, 0.0, round, how);
    }
    let value = integer(value, how.from);
    if how.to.is_float() {
        let (value, error) = doubled(value);
        return to_float(value, error, round, how);
    }
    let (low, high) = range(how.to);
    placed(if how.saturate { value.clamp(low, high) } else { value }, how)
}

fn to_float(value: f64, error: f64, round: Round, how: &Conversion) -> u64 {
    match how.to.bytes {
        2 => {
            let value = if how.saturate { saturate64(value) } else { value };
            u64::from(narrow16(value, round))
        }
        4 => {
            let value = narrow(value, error, round);
            let value = if how.flush { flush(value) } else { value };
            put32(if how.saturate { saturate32(value) } else { value })
        }
        _ => {
            let value = float::adjust64(value, error, round);
            (if how.saturate { saturate64(value) } else { value }).to_bits()
        }
    }
}
