//! Loads, stores, atomics, and addresses of one space in another.
use super::{Body, Name, Operand, Reader};
use crate::ptx::operand::{Class, Space, Type};
use crate::ptx::program::{Address, Elements, Op};
use crate::ptx::{Problem, float, integer};

/// Modifiers that say how accesses are ordered or kept, which makes no difference where one comes after another.
const ORDER: &[&str] = &[
    "weak",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "volatile",
    "mmio",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "unified",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::evict_last",
    "L2::evict_normal",
    "L2::evict_first",
    "L2::64B",
    "L2::128B",
    "L2::256B",
];

/// Those that memory of one thread cannot have.
const SHARING: &[&str] = &["relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"];

fn take_space(reader: &mut Reader) -> Space {
    let found = reader.parts.iter().skip(1).position(|part| Space::parse(part).is_some());
    found.and_then(|at| Space::parse(reader.parts.remove(at + 1))).unwrap_or(Space::Generic)
}

/// The address of an operand in brackets.
fn address<'a>(
    body: &mut Body<'a, '_>,
    reader: &Reader<'a, '_>,
    i: usize,
    space: Space,
) -> Result<Address, Problem> {
    let Operand::Memory(base, offset) = reader.operand(i)? else { return reader.mismatch() };
    let Some(name) = base else {
        return Ok(Address { space, base: body.constant(0), offset: *offset, mask: u64::MAX });
    };
    if let Some(register) = body.find_register(name) {
        let wide = register.kind.bytes == 8;
        let narrow = register.kind.bytes == 4 && !matches!(space, Space::Generic | Space::Global);
        if !register.kind.is_integer() || !(wide || narrow) {
            return reader.mismatch();
        }
        let mask = if wide { u64::MAX } else { u64::from(u32::MAX) };
        return Ok(Address { space, base: register.slot, offset: *offset, mask });
    }
    let of = match body.find_name(name) {
        Some(Name::Variable(_)) => Space::Global,
        Some(Name::SharedEnd) => Space::Shared,
        Some(Name::Place(space, _)) => space,
        Some(Name::Kernel) => return reader.mismatch(),
        None => return reader.malformed(format!("Unknown symbol '{name}'")),
    };
    // A variable by its name needs no space beside it, and another one is a mistake.
    if space != of && space != Space::Generic {
        return reader.mismatch();
    }
    let base = body.address_of(reader, name, 0)?;
    Ok(Address { space: of, base, offset: *offset, mask: u64::MAX })
}

/// `.v2`, `.v4` or one.
fn take_count(reader: &mut Reader) -> Result<usize, Problem> {
    match (reader.take("v2"), reader.take("v4"), reader.take("v8")) {
        (false, false, false) => Ok(1),
        (true, false, false) => Ok(2),
        (false, true, false) => Ok(4),
        _ => reader.unknown(),
    }
}

fn parts<'a, 'b>(reader: &'b Reader<'a, '_>, i: usize, count: usize) -> Result<&'b [Operand<'a>], Problem> {
    let operand = reader.operand(i)?;
    match operand {
        Operand::Vector(parts) if count > 1 && parts.len() == count => Ok(parts),
        Operand::Vector(_) => reader.mismatch(),
        _ if count == 1 => Ok(std::slice::from_ref(operand)),
        _ => reader.mismatch(),
    }
}

fn prologue(reader: &mut Reader) -> Result<(Space, usize, Type), Problem> {
    let space = take_space(reader);
    let count = take_count(reader)?;
    let own = matches!(space, Space::Param | Space::Local);
    if own && reader.parts.iter().any(|part| SHARING.contains(part)) {
        return reader.malformed("memory of one thread is neither volatile nor ordered");
    }
    reader.take_any(ORDER);
    let kind = reader.kind()?;
    if reader.parts.len() > 1 || kind.is_predicate() {
        return if reader.parts.contains(&"v3") {
            reader.malformed("a vector of three")
        } else {
            reader.unknown()
        };
    }
    if usize::from(kind.bytes) * count > 16 {
        return reader.malformed("a vector of more than 16 bytes");
    }
    Ok((space, count, kind))
}

pub fn load<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    let (space, count, kind) = prologue(reader)?;
    reader.count(2)?;
    let mut elements = Elements {
        bytes: kind.bytes,
        count: count as u8,
        signed: kind.class == Class::Signed,
        mask: 0,
        slots: [0; 4],
    };
    for (i, part) in parts(reader, 0, count)?.iter().enumerate() {
        let Operand::Name(name) = part else { return reader.mismatch() };
        if *name == "_" && count > 1 {
            elements.slots[i] = body.take_slots(reader.line, 1)?;
            continue;
        }
        let Some(register) = body.find_register(name) else {
            return reader.malformed(format!("Unknown symbol '{name}'"));
        };
        if !register.kind.holds(kind) {
            return reader.mismatch();
        }
        elements.slots[i] = register.slot;
        elements.mask = register.kind.mask();
    }
    let from = address(body, reader, 1, space)?;
    Ok(Op::Load { from, elements })
}

pub fn store<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    let (space, count, kind) = prologue(reader)?;
    reader.count(2)?;
    if space == Space::Param {
        return reader.unknown();
    }
    let to = address(body, reader, 0, space)?;
    let mut elements =
        Elements { bytes: kind.bytes, count: count as u8, signed: false, mask: 0, slots: [0; 4] };
    let values = parts(reader, 1, count)?.to_vec();
    for (i, value) in values.iter().enumerate() {
        elements.slots[i] = body.wide_value(reader, value, kind)?;
    }
    Ok(Op::Store { to, elements })
}

pub fn atomic<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    let returns = reader.parts[0] == "atom";
    let space = take_space(reader);
    reader.take_any(ORDER);
    reader.take("noftz");
    let kind = reader.kind()?;
    let [_, name] = reader.parts[..] else { return reader.unknown() };
    let f = integer::atomic(name, kind).or(float::atomic(name, kind));
    let Some(f) = f else { return reader.unknown() };
    if matches!(space, Space::Param | Space::Local) {
        return reader.malformed("an atomic instruction on memory of one thread");
    }
    let first = usize::from(returns);
    let compares = name == "cas";
    reader.count(first + 2 + usize::from(compares))?;
    let to = match returns {
        true if matches!(reader.operand(0)?, Operand::Name("_")) => None,
        true => Some(body.result(reader, 0, kind)?),
        false => None,
    };
    let at = address(body, reader, first, space)?;
    let b = body.value(reader, first + 1, kind)?;
    let c = if compares { body.value(reader, first + 2, kind)? } else { b };
    Ok(Op::Atomic { f, at, bytes: kind.bytes, to, b, c })
}

/// `cvta`: between an address in a space and a generic one.
pub fn to_generic<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    let kind = reader.kind()?;
    let back = reader.take("to");
    if reader.parts.iter().any(|part| part.starts_with("param")) {
        return reader.unknown();
    }
    let space = take_space(reader);
    reader.count(2)?;
    if kind != Type::new(Class::Unsigned, 8) || reader.parts.len() > 1 || space == Space::Generic {
        return reader.unknown();
    }
    let to = body.result(reader, 0, kind)?;
    let a = body.value(reader, 1, kind)?;
    let window = space.window();
    Ok(Op::Offset { to, a, by: if back { window.wrapping_neg() } else { window } })
}

pub fn is_in<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    let space = take_space(reader);
    if reader.parts.len() > 1 || matches!(space, Space::Generic | Space::Param) {
        return reader.unknown();
    }
    reader.count(2)?;
    let to = body.result(reader, 0, Type::new(Class::Predicate, 1))?;
    let a = body.value(reader, 1, Type::new(Class::Bits, 8))?;
    Ok(Op::IsIn { space, to, a })
}
