//! Arithmetic: the function for an opcode and its type, and its operands.
use super::{Body, Reader};
use crate::ptx::float::{self, How, What};
use crate::ptx::operand::{Class, Round, Type};
use crate::ptx::program::Op;
use crate::ptx::{Problem, integer};

const WORD: Type = Type::new(Class::Unsigned, 4);

/// Decodes an arithmetic instruction.
///
/// # Errors
/// What is wrong with it, or that it is not interpreted.
pub fn decode<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    match reader.parts[0] {
        "add" | "sub" | "addc" | "subc"
            if reader.parts[1..].contains(&"cc") || reader.parts[0].ends_with('c') =>
        {
            return carry(body, reader);
        }
        "bfi" => return insert(body, reader),
        "lop3" => return lookup(body, reader),
        _ => {}
    }
    let known = [
        "add", "sub", "mul", "mad", "fma", "div", "rem", "neg", "abs", "min", "max", "and", "or", "xor",
        "not", "cnot", "shl", "shr", "shf", "popc", "clz", "brev", "bfind", "bfe", "prmt", "sad", "mul24",
        "mad24", "sqrt", "rsqrt", "rcp", "ex2", "lg2", "sin", "cos", "tanh", "copysign",
    ];
    if !known.contains(&reader.parts[0]) {
        return if is_instruction(reader.parts[0]) {
            reader.unknown()
        } else {
            reader.malformed(format!("Not a name of any known instruction: '{}'", reader.parts[0]))
        };
    }
    let kind = reader.kind()?;
    if kind.is_float() { floating(body, reader, kind) } else { whole(body, reader, kind) }
}

/// Instructions of the language that are not interpreted; what is not among them is none.
fn is_instruction(name: &str) -> bool {
    const OTHERS: &[&str] = &[
        "activemask",
        "alloca",
        "bmsk",
        "call",
        "clusterlaunchcontrol",
        "cp",
        "createpolicy",
        "dp2a",
        "dp4a",
        "elect",
        "fns",
        "getctarank",
        "istypep",
        "ldmatrix",
        "madc",
        "mapa",
        "match",
        "mbarrier",
        "mma",
        "movmatrix",
        "multimem",
        "pmevent",
        "redux",
        "setmaxnreg",
        "shfl",
        "stackrestore",
        "stacksave",
        "stmatrix",
        "suld",
        "suq",
        "sured",
        "sust",
        "szext",
        "tcgen05",
        "tensormap",
        "tex",
        "tld4",
        "txq",
        "vabsdiff",
        "vabsdiff2",
        "vabsdiff4",
        "vadd",
        "vadd2",
        "vadd4",
        "vavrg2",
        "vavrg4",
        "vmad",
        "vmax",
        "vmax2",
        "vmax4",
        "vmin",
        "vmin2",
        "vmin4",
        "vote",
        "vset",
        "vset2",
        "vset4",
        "vshl",
        "vshr",
        "vsub",
        "vsub2",
        "vsub4",
        "wgmma",
        "wmma",
        "testp",
        "brx",
    ];
    OTHERS.contains(&name)
}

/// The types of the operands behind the result.
fn operands_of(name: &str, kind: Type) -> [Type; 3] {
    let bits = Type::new(Class::Bits, kind.bytes);
    match name.split('.').next().unwrap_or(name) {
        "shl" | "shr" => [kind, WORD, WORD],
        "bfe" => [kind, WORD, WORD],
        "shf" | "prmt" => [kind, kind, WORD],
        "popc" | "clz" | "brev" | "bfind" => [if name == "bfind" { kind } else { bits }; 3],
        "mad" if name.ends_with("wide") => [kind, kind, Type::new(kind.class, kind.bytes * 2)],
        _ => [kind; 3],
    }
}

fn result_of(name: &str, kind: Type) -> Type {
    match name {
        "popc" | "clz" | "bfind" => WORD,
        name if name.ends_with(".wide") => Type::new(kind.class, kind.bytes.saturating_mul(2)),
        _ => kind,
    }
}

fn whole<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>, kind: Type) -> Result<Op, Problem> {
    let name = reader.rest();
    let types = operands_of(&name, kind);
    let result = result_of(&name, kind);
    if let Some(f) = integer::one(&name, kind) {
        reader.count(2)?;
        let to = body.result(reader, 0, result)?;
        return Ok(Op::One { f, to, a: body.value(reader, 1, types[0])? });
    }
    if let Some(f) = integer::two(&name, kind) {
        reader.count(3)?;
        let to = body.result(reader, 0, result)?;
        let (a, b) = (body.value(reader, 1, types[0])?, body.value(reader, 2, types[1])?);
        return Ok(Op::Two { f, to, a, b });
    }
    if let Some(f) = integer::three(&name, kind) {
        reader.count(4)?;
        let to = body.result(reader, 0, result)?;
        let (a, b) = (body.value(reader, 1, types[0])?, body.value(reader, 2, types[1])?);
        return Ok(Op::Three { f, to, a, b, c: body.value(reader, 3, types[2])? });
    }
    reader.unknown()
}

fn floating<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>, kind: Type) -> Result<Op, Problem> {
    let round = reader.take_round();
    let flush = reader.take("ftz");
    let saturate = reader.take("sat");
    let about = reader.take("approx") || reader.take("full");
    let name = reader.rest();
    let needs = matches!(name.as_str(), "div" | "sqrt" | "rcp") && !about;
    if (needs || name == "fma") && round.is_none() {
        return reader.malformed(format!("Rounding modifier required for instruction '{name}'"));
    }
    let Some((what, count)) = float::instruction(&name, about) else { return reader.unknown() };
    let round = round.unwrap_or(Round::Nearest);
    let directed = round != Round::Nearest;
    if kind.bytes == 2
        || (kind.bytes == 8
            && (flush || (about && what != What::Divide) || (directed && what == What::Fused)))
    {
        return reader.unknown();
    }
    let how = How { what, wide: kind.bytes == 8, round, flush, saturate };
    reader.count(1 + count)?;
    let to = body.result(reader, 0, kind)?;
    let a = body.value(reader, 1, kind)?;
    let b = if count > 1 { body.value(reader, 2, kind)? } else { a };
    let c = if count > 2 { body.value(reader, 3, kind)? } else { a };
    Ok(Op::Float { how, to, a, b, c })
}

fn carry<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    let gives = reader.take("cc");
    let kind = reader.kind()?;
    let takes = reader.parts[0].ends_with('c');
    let subtract = reader.parts[0].starts_with("sub");
    if reader.parts.len() > 1 || !matches!(kind.class, Class::Unsigned | Class::Signed) || kind.bytes < 4 {
        return reader.unknown();
    }
    reader.count(3)?;
    let to = body.result(reader, 0, kind)?;
    let (a, b) = (body.value(reader, 1, kind)?, body.value(reader, 2, kind)?);
    Ok(Op::Carry { subtract, wide: kind.bytes == 8, takes, gives, to, a, b })
}

/// `bfi` has four operands: the last two, which are small, are put together in one register.
fn insert<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    let kind = reader.kind()?;
    if reader.parts.len() > 1 || kind.class != Class::Bits || kind.bytes < 4 {
        return reader.unknown();
    }
    reader.count(5)?;
    let to = body.result(reader, 0, kind)?;
    let (a, b) = (body.value(reader, 1, kind)?, body.value(reader, 2, kind)?);
    let (from, length) = (body.value(reader, 3, WORD)?, body.value(reader, 4, WORD)?);
    let both = body.take_slots(reader.line, 1)?;
    body.push(None, Op::Pack { to: both, parts: [from, length, from, from], count: 2, bits: 32 });
    Ok(match kind.bytes {
        4 => Op::Three { f: |a, b, both| integer::insert(a, b, both, both >> 32, 32), to, a, b, c: both },
        _ => Op::Three { f: |a, b, both| integer::insert(a, b, both, both >> 32, 64), to, a, b, c: both },
    })
}

fn lookup<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    let kind = reader.kind()?;
    if reader.parts.len() > 1 || kind != Type::new(Class::Bits, 4) {
        return reader.unknown();
    }
    reader.count(5)?;
    let to = body.result(reader, 0, kind)?;
    let (a, b) = (body.value(reader, 1, kind)?, body.value(reader, 2, kind)?);
    let (c, rows) = (body.value(reader, 3, kind)?, body.value(reader, 4, WORD)?);
    let both = body.take_slots(reader.line, 1)?;
    body.push(None, Op::Pack { to: both, parts: [c, rows, c, c], count: 2, bits: 32 });
    let f = |a: u64, b: u64, both: u64| integer::table(a, b, both & 0xFFFF_FFFF, both >> 32);
    Ok(Op::Three { f, to, a, b, c: both })
}
