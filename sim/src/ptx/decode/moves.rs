//! Moves, conversions, comparisons and choices.
use super::{Body, Operand, Reader};
use crate::ptx::convert::Conversion;
use crate::ptx::operand::{Class, Type};
use crate::ptx::program::{Clock, Combine, Op, Slot, Special};
use crate::ptx::{Problem, float, integer};

const PREDICATE: Type = Type::new(Class::Predicate, 1);

/// The special registers that are fixed while a thread runs.
pub fn special(name: &str) -> Option<Special> {
    let axis = |stem: &str| match name.strip_prefix(stem)? {
        ".x" => Some(0),
        ".y" => Some(1),
        ".z" => Some(2),
        _ => None,
    };
    if let Some(axis) = axis("%tid") {
        return Some(Special::Thread(axis));
    }
    if let Some(axis) = axis("%ntid") {
        return Some(Special::BlockSize(axis));
    }
    if let Some(axis) = axis("%ctaid") {
        return Some(Special::Block(axis));
    }
    if let Some(axis) = axis("%nctaid") {
        return Some(Special::GridSize(axis));
    }
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::Warps,
        "%smid" => Special::Multiprocessor,
        "%nsmid" => Special::Multiprocessors,
        "%gridid" => Special::GridId,
        "WARP_SZ" => Special::WarpSize,
        "%dynamic_smem_size" => Special::DynamicShared,
        "%total_smem_size" => Special::TotalShared,
        "%lanemask_eq" => Special::Lanes(0),
        "%lanemask_lt" => Special::Lanes(1),
        "%lanemask_le" => Special::Lanes(2),
        "%lanemask_ge" => Special::Lanes(3),
        "%lanemask_gt" => Special::Lanes(4),
        _ => return None,
    })
}

fn clock(name: &str) -> Option<Clock> {
    Some(match name {
        "%clock" | "%clock64" => Clock::Steps,
        "%clock_hi" => Clock::StepsHigh,
        "%globaltimer" | "%globaltimer_lo" => Clock::Nanoseconds,
        "%globaltimer_hi" => Clock::NanosecondsHigh,
        _ => return None,
    })
}

/// Whether a name is one that the language keeps for itself.
pub fn is_special(name: &str) -> bool {
    const KEPT: &[&str] =
        &["%envreg", "%pm", "%cluster", "%is_explicit_cluster", "%reserved_smem", "%aggr", "%current_graph"];
    KEPT.iter().any(|kept| name.starts_with(kept)) || clock(name).is_some()
}

pub fn mov<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    let kind = reader.kind()?;
    if reader.parts.len() > 1 {
        return reader.unknown();
    }
    reader.count(2)?;
    if let Operand::Vector(parts) = reader.operand(1)? {
        let parts = parts.clone();
        return pack(body, reader, kind, &parts);
    }
    if let Operand::Vector(parts) = reader.operand(0)? {
        let parts = parts.clone();
        return unpack(body, reader, kind, &parts);
    }
    if kind.bytes == 1 && !kind.is_predicate() {
        return reader.malformed("no move of a byte");
    }
    if let Operand::Name(name) = reader.operand(1)?
        && body.find_register(name).is_none()
        && let Some(clock) = clock(name)
    {
        let to = body.result(reader, 0, kind)?;
        return Ok(Op::Time { clock, to });
    }
    let to = body.result(reader, 0, kind)?;
    let a = body.value(reader, 1, kind)?;
    let mask = kind.mask();
    // What is wider than the register, an address say, is cut to it.
    Ok(match mask {
        0xFFFF_FFFF => Op::One { f: |a| a & 0xFFFF_FFFF, to, a },
        0xFFFF => Op::One { f: |a| a & 0xFFFF, to, a },
        _ => Op::One { f: |a| a, to, a },
    })
}

fn part_type(reader: &Reader, kind: Type, count: usize) -> Result<Type, Problem> {
    match (kind.class, usize::from(kind.bytes), count) {
        (Class::Bits, bytes, 2 | 4) if bytes / count >= 1 => {
            Ok(Type::new(Class::Bits, (bytes / count) as u8))
        }
        _ => reader.mismatch(),
    }
}

fn pack<'a>(
    body: &mut Body<'a, '_>,
    reader: &Reader<'a, '_>,
    kind: Type,
    parts: &[Operand<'a>],
) -> Result<Op, Problem> {
    let part = part_type(reader, kind, parts.len())?;
    let to = body.result(reader, 0, kind)?;
    let mut slots = [0; 4];
    for (slot, operand) in slots.iter_mut().zip(parts) {
        *slot = body.wide_value(reader, operand, part)?;
    }
    Ok(Op::Pack { to, parts: slots, count: parts.len() as u8, bits: part.bits() as u8 })
}

fn unpack<'a>(
    body: &mut Body<'a, '_>,
    reader: &Reader<'a, '_>,
    kind: Type,
    parts: &[Operand<'a>],
) -> Result<Op, Problem> {
    let part = part_type(reader, kind, parts.len())?;
    let from = body.value(reader, 1, kind)?;
    let mut slots = [None; 4];
    for (slot, operand) in slots.iter_mut().zip(parts) {
        let Operand::Name(name) = operand else { return reader.mismatch() };
        if *name != "_" {
            *slot = match body.find_register(name) {
                Some(register) if register.kind.holds(part) => Some(register.slot),
                Some(_) => return reader.mismatch(),
                None => return reader.malformed(format!("Unknown symbol '{name}'")),
            };
        }
    }
    Ok(Op::Unpack { from, parts: slots, count: parts.len() as u8, bits: part.bits() as u8 })
}

pub fn convert<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    let whole = reader.parts.iter().any(|part| matches!(*part, "rni" | "rzi" | "rmi" | "rpi"));
    let round = reader.take_round();
    let (saturate, flush) = (reader.take("sat"), reader.take("ftz"));
    let from = reader.kind()?;
    let to = reader.kind()?;
    if reader.parts.len() > 1 || from.is_predicate() || to.is_predicate() {
        return reader.unknown();
    }
    if from.class == Class::Bits || to.class == Class::Bits {
        return reader.malformed("no conversion of bits");
    }
    let narrows = from.is_float() && to.is_float() && to.bytes < from.bytes;
    let needs = narrows || (from.is_float() != to.is_float());
    let to_whole = from.is_float() && (to.is_integer() || to == from);
    let right = match round {
        None => !needs,
        Some(_) if whole => to_whole,
        Some(_) => narrows || (from.is_integer() && to.is_float()),
    };
    if !right {
        return reader.malformed(format!("Rounding modifier of '{}'", reader.opcode));
    }
    reader.count(2)?;
    let register = body.any_register(reader, 0)?;
    if !register.kind.holds(to) {
        return reader.mismatch();
    }
    let operand = reader.operand(1)?.clone();
    let a = body.wide_value(reader, &operand, from)?;
    let how = Conversion { from, to, round, saturate, flush, mask: register.kind.mask() };
    Ok(Op::Convert { how, to: register.slot, a })
}

pub fn select<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    if reader.parts[0] == "slct" {
        reader.take("ftz");
        let by = reader.kind()?;
        let kind = reader.kind()?;
        let float = by == Type::new(Class::Float, 4);
        if reader.parts.len() > 1 || !(float || by == Type::new(Class::Signed, 4)) {
            return reader.unknown();
        }
        reader.count(4)?;
        let (to, a, b) =
            (body.result(reader, 0, kind)?, body.value(reader, 1, kind)?, body.value(reader, 2, kind)?);
        let by = body.value(reader, 3, by)?;
        return Ok(Op::SelectBySign { float, to, a, b, by });
    }
    let kind = reader.kind()?;
    if reader.parts.len() > 1 || kind.is_predicate() || kind.bytes == 1 {
        return reader.unknown();
    }
    reader.count(4)?;
    let (to, a, b) =
        (body.result(reader, 0, kind)?, body.value(reader, 1, kind)?, body.value(reader, 2, kind)?);
    match body.predicate(reader, 3)? {
        (by, false) => Ok(Op::Select { to, a, b, by }),
        (by, true) => Ok(Op::Select { to, a: b, b: a, by }),
    }
}

fn take_combine(reader: &mut Reader) -> Option<Combine> {
    let all = [("and", Combine::And), ("or", Combine::Or), ("xor", Combine::Xor)];
    all.into_iter().find(|(word, _)| reader.take(word)).map(|(_, combine)| combine)
}

/// What the result of a comparison is combined with.
fn combined<'a>(
    body: &mut Body<'a, '_>,
    reader: &Reader<'a, '_>,
    combine: Option<Combine>,
    at: usize,
) -> Result<Option<(Combine, Slot, bool)>, Problem> {
    let Some(combine) = combine else {
        reader.count(at)?;
        return Ok(None);
    };
    reader.count(at + 1)?;
    let (slot, negated) = body.predicate(reader, at)?;
    Ok(Some((combine, slot, negated)))
}

pub fn compare<'a>(body: &mut Body<'a, '_>, reader: &mut Reader<'a, '_>) -> Result<Op, Problem> {
    let flush = reader.take("ftz");
    let combine = take_combine(reader);
    let kind = reader.kind()?;
    let result = if reader.parts[0] == "set" { Some(reader.kind()?) } else { None };
    let [_, name] = reader.parts[..] else { return reader.unknown() };
    let f = integer::compare(name, kind).or_else(|| float::compare(name, kind, flush));
    let Some(f) = f else { return reader.unknown() };
    if let Some(result) = result {
        let yes = match (result.class, result.bytes) {
            (Class::Unsigned | Class::Signed, 4) => u64::from(u32::MAX),
            (Class::Float, 4) => u64::from(1.0_f32.to_bits()),
            _ => return reader.unknown(),
        };
        let to = body.result(reader, 0, result)?;
        let (a, b) = (body.value(reader, 1, kind)?, body.value(reader, 2, kind)?);
        let with = combined(body, reader, combine, 3)?;
        return Ok(Op::Set { f, to, a, b, with, yes });
    }
    let other = match reader.operands.get(1) {
        Some(Operand::Beside("_")) => None,
        Some(Operand::Beside(_)) => Some(body.result(reader, 1, PREDICATE)?),
        _ => None,
    };
    let first = 1 + usize::from(matches!(reader.operands.get(1), Some(Operand::Beside(_))));
    let to = match reader.operand(0)? {
        Operand::Name("_") => body.take_slots(reader.line, 1)?,
        _ => body.result(reader, 0, PREDICATE)?,
    };
    let (a, b) = (body.value(reader, first, kind)?, body.value(reader, first + 1, kind)?);
    let with = combined(body, reader, combine, first + 2)?;
    Ok(Op::Compare { f, to, other, a, b, with })
}
