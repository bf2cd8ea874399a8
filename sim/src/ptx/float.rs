//! Floating-point arithmetic with the rounding that an instruction asks for. A result that is no number is the
//! hardware's own; the host's rounding mode stays as it is, so what has to be rounded otherwise is computed with its error.
use super::operand::{Class, Round, Type};
use super::program::{Test, Three};

/// The hardware's answer where a result of 32 bits is no number.
const NAN32: f32 = f32::from_bits(0x7FFF_FFFF);

pub fn f32_of(slot: u64) -> f32 {
    f32::from_bits(slot as u32)
}

pub fn f64_of(slot: u64) -> f64 {
    f64::from_bits(slot)
}

pub fn put32(value: f32) -> u64 {
    u64::from(if value.is_nan() { NAN32.to_bits() } else { value.to_bits() })
}

/// A number so small that it has fewer digits becomes a zero of its sign.
pub fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0.0_f32.copysign(value) } else { value }
}

/// The next value in the direction of the rounding, if the exact one lies there: `error` is what is missing in `value`.
pub fn adjust64(value: f64, error: f64, round: Round) -> f64 {
    if error == 0.0 || error.is_nan() || !value.is_finite() {
        // An overflow that was rounded away from zero is the largest number where it should not have been.
        return match round {
            _ if !value.is_infinite() || error == 0.0 => value,
            Round::Zero => f64::MAX.copysign(value),
            Round::Down if value > 0.0 => f64::MAX,
            Round::Up if value < 0.0 => f64::MIN,
            _ => value,
        };
    }
    let above = error > 0.0;
    match round {
        Round::Up if above => value.next_up(),
        Round::Down if !above => value.next_down(),
        Round::Zero if value > 0.0 && !above => value.next_down(),
        Round::Zero if value < 0.0 && above => value.next_up(),
        _ => value,
    }
}

/// Rounds a double, of which `error` is missing, to a float.
pub fn narrow(value: f64, error: f64, round: Round) -> f32 {
    let near = value as f32;
    if value.is_nan() || value.is_infinite() {
        return near;
    }
    let rest = value - f64::from(near);
    let (below, above) = if rest == 0.0 { (error < 0.0, error > 0.0) } else { (rest < 0.0, rest > 0.0) };
    match round {
        Round::Nearest => halfway(value, error, near),
        Round::Up if above => near.next_up(),
        Round::Down if below => near.next_down(),
        Round::Zero if value > 0.0 && below => near.next_down(),
        Round::Zero if value < 0.0 && above => near.next_up(),
        _ => near,
    }
}

/// A double that lies just between two floats was rounded once already: what is missing in it decides.
fn halfway(value: f64, error: f64, near: f32) -> f32 {
    if error == 0.0 || !near.is_finite() {
        return near;
    }
    let rest = value - f64::from(near);
    let other = if rest > 0.0 { near.next_up() } else { near.next_down() };
    let tie = rest != 0.0 && f64::from(other) - value == rest;
    if tie && (error > 0.0) == (rest > 0.0) { other } else { near }
}

/// A sum and what is missing in it.
fn sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let part = s - a;
    (s, (a - (s - part)) + (b - part))
}

/// What an instruction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Arithmetic(Arithmetic),
    Divide,
    Fused,
    Negate,
    Absolute,
    Smaller,
    Larger,
    Root,
    InverseRoot,
    Inverse,
    Power,
    Logarithm,
    Sine,
    Cosine,
    HyperbolicTangent,
    /// The second operand with the sign of the first.
    CopySign,
}

#[derive(Clone, Copy, Debug)]
pub struct How {
    pub what: What,
    /// Of 64 bits.
    pub wide: bool,
    pub round: Round,
    pub flush: bool,
    pub saturate: bool,
}

/// An instruction by its name, and how many operands it has. `about`: an approximation is asked for, which here is the
/// nearest number.
pub fn instruction(name: &str, about: bool) -> Option<(What, usize)> {
    Some(match name {
        "add" => (What::Arithmetic(Arithmetic::Add), 2),
        "sub" => (What::Arithmetic(Arithmetic::Subtract), 2),
        "mul" => (What::Arithmetic(Arithmetic::Multiply), 2),
        "div" => (What::Divide, 2),
        "fma" | "mad" => (What::Fused, 3),
        "neg" => (What::Negate, 1),
        "abs" => (What::Absolute, 1),
        "min" => (What::Smaller, 2),
        "max" => (What::Larger, 2),
        "sqrt" => (What::Root, 1),
        "rcp" => (What::Inverse, 1),
        "copysign" => (What::CopySign, 2),
        "rsqrt" if about => (What::InverseRoot, 1),
        "ex2" if about => (What::Power, 1),
        "lg2" if about => (What::Logarithm, 1),
        "sin" if about => (What::Sine, 1),
        "cos" if about => (What::Cosine, 1),
        "tanh" if about => (What::HyperbolicTangent, 1),
        _ => return None,
    })
}

/// Runs an instruction.
pub fn compute(how: How, a: u64, b: u64, c: u64) -> u64 {
    if how.wide { compute64(how, f64_of(a), f64_of(b), f64_of(c)) } else { compute32(how, a, b, c) }
}

fn compute32(how: How, a: u64, b: u64, c: u64) -> u64 {
    let own = |slot| if how.flush { flush(f32_of(slot)) } else { f32_of(slot) };
    let (a, b, c) = (own(a), own(b), own(c));
    let value = match how.what {
        What::Arithmetic(what) => arithmetic32(what, how.round, a, b),
        What::Divide => arithmetic32(Arithmetic::Divide, how.round, a, b),
        What::Fused => fused32(how.round, a, b, c),
        // A sign is changed without a look at the rest.
        What::Negate => return u64::from((-a).to_bits()),
        What::Absolute => return u64::from(a.abs().to_bits()),
        What::CopySign => return u64::from(b.copysign(a).to_bits()),
        What::Smaller => choose32(a, b, false),
        What::Larger => choose32(a, b, true),
        What::Root => root32(how.round, a),
        What::InverseRoot => (1.0 / f64::from(a).sqrt()) as f32,
        What::Inverse => arithmetic32(Arithmetic::Divide, how.round, 1.0, a),
        What::Power => f64::from(a).exp2() as f32,
        What::Logarithm => f64::from(a).log2() as f32,
        What::Sine => f64::from(a).sin() as f32,
        What::Cosine => f64::from(a).cos() as f32,
        What::HyperbolicTangent => f64::from(a).tanh() as f32,
    };
    let value = if how.flush { flush(value) } else { value };
    put32(if how.saturate { saturate32(value) } else { value })
}

fn compute64(how: How, a: f64, b: f64, c: f64) -> u64 {
    let value = match how.what {
        What::Arithmetic(what) => arithmetic64(what, how.round, a, b),
        What::Divide => arithmetic64(Arithmetic::Divide, how.round, a, b),
        What::Fused => a.mul_add(b, c),
        What::Negate => -a,
        What::Absolute => a.abs(),
        What::CopySign => b.copysign(a),
        What::Smaller => choose64(a, b, false),
        What::Larger => choose64(a, b, true),
        What::Root => root64(how.round, a),
        What::InverseRoot => 1.0 / a.sqrt(),
        What::Inverse => arithmetic64(Arithmetic::Divide, how.round, 1.0, a),
        What::Power => a.exp2(),
        What::Logarithm => a.log2(),
        What::Sine => a.sin(),
        What::Cosine => a.cos(),
        What::HyperbolicTangent => a.tanh(),
    };
    (if how.saturate { saturate64(value) } else { value }).to_bits()
}

/// What an atomic instruction makes of the old value and its operand.
pub fn atomic(name: &str, kind: Type) -> Option<Three> {
    match (name, kind.class, kind.bytes) {
        ("add", Class::Float, 4) => Some(|old, b, _| put32(f32_of(old) + f32_of(b))),
        ("add", Class::Float, 8) => Some(|old, b, _| (f64_of(old) + f64_of(b)).to_bits()),
        _ => None,
    }
}

macro_rules! test {
    (|$a:ident, $b:ident| $body:expr, $kind:expr, $flush:expr) => {
        match ($kind.bytes, $flush) {
            (4, false) => Some(
                (|a, b| {
                    let ($a, $b) = (f32_of(a), f32_of(b));
                    $body
                }) as Test,
            ),
            (4, true) => Some(|a, b| {
                let ($a, $b) = (flush(f32_of(a)), flush(f32_of(b)));
                $body
            }),
            (8, false) => Some(|a, b| {
                let ($a, $b) = (f64_of(a), f64_of(b));
                $body
            }),
            _ => None,
        }
    };
}

/// A comparison by its name; those that end with `u` hold for what is no number.
#[expect(
    clippy::double_comparisons,
    clippy::neg_cmp_op_on_partial_ord,
    reason = "what is no number compares as nothing"
)]
pub fn compare(name: &str, kind: Type, flushes: bool) -> Option<Test> {
    if kind.class != Class::Float {
        return None;
    }
    match name {
        "eq" => test!(|a, b| a == b, kind, flushes),
        "ne" => test!(|a, b| a < b || a > b, kind, flushes),
        "lt" => test!(|a, b| a < b, kind, flushes),
        "le" => test!(|a, b| a <= b, kind, flushes),
        "gt" => test!(|a, b| a > b, kind, flushes),
        "ge" => test!(|a, b| a >= b, kind, flushes),
        "equ" => test!(|a, b| !(a < b || a > b), kind, flushes),
        "neu" => test!(|a, b| a != b, kind, flushes),
        "ltu" => test!(|a, b| !(a >= b), kind, flushes),
        "leu" => test!(|a, b| !(a > b), kind, flushes),
        "gtu" => test!(|a, b| !(a <= b), kind, flushes),
        "geu" => test!(|a, b| !(a < b), kind, flushes),
        "num" => test!(|a, b| !a.is_nan() && !b.is_nan(), kind, flushes),
        "nan" => test!(|a, b| a.is_nan() || b.is_nan(), kind, flushes),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

pub fn arithmetic32(what: Arithmetic, round: Round, a: f32, b: f32) -> f32 {
    if round == Round::Nearest {
        return match what {
            Arithmetic::Add => a + b,
            Arithmetic::Subtract => a - b,
            Arithmetic::Multiply => a * b,
            Arithmetic::Divide => a / b,
        };
    }
    let (x, y) = (f64::from(a), f64::from(b));
    let (value, error) = match what {
        Arithmetic::Add => sum(x, y),
        Arithmetic::Subtract => sum(x, -y),
        Arithmetic::Multiply => (x * y, 0.0),
        Arithmetic::Divide => {
            let q = x / y;
            (q, (-q).mul_add(y, x) * y.signum())
        }
    };
    if value == 0.0 && error == 0.0 {
        return zero_sum(what, round, value, x, y) as f32;
    }
    narrow(value, if error.is_nan() { 0.0 } else { error }, round)
}

/// Numbers that cancel each other out make a negative zero where the rounding is down.
fn zero_sum(what: Arithmetic, round: Round, value: f64, a: f64, b: f64) -> f64 {
    let b = if what == Arithmetic::Subtract { -b } else { b };
    let cancels = matches!(what, Arithmetic::Add | Arithmetic::Subtract)
        && a.is_sign_negative() != b.is_sign_negative();
    if cancels && round == Round::Down { -0.0 } else { value }
}

pub fn arithmetic64(what: Arithmetic, round: Round, a: f64, b: f64) -> f64 {
    let (value, error) = match what {
        Arithmetic::Add => sum(a, b),
        Arithmetic::Subtract => sum(a, -b),
        Arithmetic::Multiply => (a * b, a.mul_add(b, -(a * b))),
        Arithmetic::Divide => {
            let q = a / b;
            (q, (-q).mul_add(b, a) * b.signum())
        }
    };
    match round {
        Round::Nearest => value,
        _ if value == 0.0 && error == 0.0 => zero_sum(what, round, value, a, b),
        _ if value.is_infinite() && a.is_finite() && b.is_finite() && b != 0.0 => adjust64(value, 1.0, round),
        _ => adjust64(value, error, round),
    }
}

pub fn fused32(round: Round, a: f32, b: f32, c: f32) -> f32 {
    if round == Round::Nearest {
        return a.mul_add(b, c);
    }
    let (value, error) = sum(f64::from(a) * f64::from(b), f64::from(c));
    if value == 0.0 && error == 0.0 {
        return zero_sum(Arithmetic::Add, round, value, f64::from(a) * f64::from(b), f64::from(c)) as f32;
    }
    narrow(value, if error.is_nan() { 0.0 } else { error }, round)
}

pub fn root32(round: Round, a: f32) -> f32 {
    if round == Round::Nearest || !a.is_normal() && !a.is_subnormal() || a < 0.0 {
        return a.sqrt();
    }
    let root = f64::from(a).sqrt();
    narrow(root, (-root).mul_add(root, f64::from(a)), round)
}

pub fn root64(round: Round, a: f64) -> f64 {
    let root = a.sqrt();
    if round == Round::Nearest || !(a > 0.0 && a.is_finite()) {
        return root;
    }
    adjust64(root, (-root).mul_add(root, a), round)
}

/// The smaller or larger of two; one that is no number does not count, and a negative zero is the smaller.
pub fn choose32(a: f32, b: f32, larger: bool) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => NAN32,
        (true, false) => b,
        (false, true) => a,
        (false, false) if (a.total_cmp(&b).is_gt()) == larger => a,
        (false, false) => b,
    }
}

pub fn choose64(a: f64, b: f64, larger: bool) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => a,
        (true, false) => b,
        (false, true) => a,
        (false, false) if (a.total_cmp(&b).is_gt()) == larger => a,
        (false, false) => b,
    }
}

/// Between 0 and 1; what is no number is 0.
pub fn saturate32(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) + 0.0 }
}

pub fn saturate64(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) + 0.0 }
}

/// A half-precision number as a float.
pub fn widen16(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let (exponent, digits) = (u32::from(half >> 10) & 0x1F, u32::from(half) & 0x3FF);
    match exponent {
        0 => f32::from_bits(sign | (digits as f32 * 2.0_f32.powi(-24)).to_bits()),
        31 if digits != 0 => NAN32,
        31 => f32::from_bits(sign | 0x7F80_0000),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | digits << 13),
    }
}

/// A float as a half-precision number.
pub fn narrow16(value: f64, round: Round) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    if value.is_nan() {
        return 0x7FFF;
    }
    let size = value.abs();
    if size.is_infinite() {
        return sign | 0x7C00;
    }
    // Units of the last place: half-precision numbers are whole numbers of them, in order of their bits.
    let exponent = if size < 2.0_f64.powi(-14) { -14 } else { (size.to_bits() >> 52) as i32 - 1023 };
    let unit = 2.0_f64.powi(exponent - 10);
    let units = size / unit;
    let negative = sign != 0;
    let rounded = match round {
        Round::Nearest => units.round_ties_even(),
        Round::Up if !negative => units.ceil(),
        Round::Down if negative => units.ceil(),
        _ => units.floor(),
    };
    let exact = rounded * unit;
    if exact >= 65520.0 || exact > 65504.0 {
        let away = matches!(round, Round::Nearest)
            || (round == Round::Up && !negative)
            || (round == Round::Down && negative);
        return sign | if away { 0x7C00 } else { 0x7BFF };
    }
    let bits = if exponent == -14 && rounded < 1024.0 {
        rounded as u16
    } else {
        // A carry goes on into the exponent, as it should.
        (((exponent + 15) as u16) << 10) + (rounded as u16 - 1024)
    };
    sign | bits
}
