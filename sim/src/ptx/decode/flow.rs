//! Where a thread goes on, and what it waits for.
use super::{Body, Operand, Reader};
use crate::ptx::Problem;
use crate::ptx::operand::{Class, Type};
use crate::ptx::program::{Op, Slot};

/// Decodes an instruction about the way of a thread.
///
/// # Errors
/// What is wrong with it, or that it is not interpreted.
pub fn decode<'a>(
    body: &mut Body<'a, '_>,
    reader: &mut Reader<'a, '_>,
    guard: Option<(Slot, bool)>,
) -> Result<(), Problem> {
    const WORD: Type = Type::new(Class::Bits, 4);
    let op = match reader.parts[0] {
        "bra" => {
            reader.take("uni");
            let [Operand::Name(label)] = reader.operands[..] else { return reader.mismatch() };
            if reader.parts.len() > 1 {
                return reader.unknown();
            }
            let at = body.kernel.code.len();
            body.branches.push((at, body.scope, label, reader.line));
            Op::Branch { to: 0 }
        }
        "ret" | "exit" => {
            reader.take("uni");
            reader.count(0)?;
            Op::Return
        }
        "trap" | "brkpt" => {
            reader.count(0)?;
            Op::Trap
        }
        // Accesses are made one after another anyway, and time is not what is simulated.
        "membar" | "fence" | "nanosleep" | "griddepcontrol" => Op::Nothing,
        _ => {
            reader.take_any(&["cta", "aligned"]);
            match reader.rest().as_str() {
                "bar.sync" | "barrier.sync" => {
                    let number = body.value(reader, 0, WORD)?;
                    let threads =
                        if reader.operands.len() > 1 { Some(body.value(reader, 1, WORD)?) } else { None };
                    if reader.operands.len() > 2 {
                        return reader.mismatch();
                    }
                    Op::Barrier { number, threads }
                }
                "bar.warp.sync" => {
                    reader.count(1)?;
                    body.value(reader, 0, WORD)?;
                    Op::WarpBarrier
                }
                _ => return reader.unknown(),
            }
        }
    };
    body.push(guard, op);
    Ok(())
}

/// Shows all slots of an instruction to `place`.
pub fn each_slot(op: &mut Op, place: &impl Fn(&mut Slot)) {
    match op {
        Op::Nothing | Op::Branch { .. } | Op::WarpBarrier | Op::Return | Op::Trap => {}
        Op::One { to, a, .. }
        | Op::Convert { to, a, .. }
        | Op::Offset { to, a, .. }
        | Op::IsIn { to, a, .. } => {
            place(to);
            place(a);
        }
        Op::Two { to, a, b, .. } | Op::Carry { to, a, b, .. } => [to, a, b].into_iter().for_each(place),
        Op::Three { to, a, b, c, .. } | Op::Float { to, a, b, c, .. } => {
            [to, a, b, c].into_iter().for_each(place)
        }
        Op::Compare { to, other, a, b, with, .. } => {
            [to, a, b].into_iter().for_each(place);
            other.iter_mut().for_each(place);
            with.iter_mut().for_each(|(_, slot, _)| place(slot));
        }
        Op::Set { to, a, b, with, .. } => {
            [to, a, b].into_iter().for_each(place);
            with.iter_mut().for_each(|(_, slot, _)| place(slot));
        }
        Op::Select { to, a, b, by } | Op::SelectBySign { to, a, b, by, .. } => {
            [to, a, b, by].into_iter().for_each(place);
        }
        Op::Pack { to, parts, .. } => {
            place(to);
            parts.iter_mut().for_each(place);
        }
        Op::Unpack { from, parts, .. } => {
            place(from);
            parts.iter_mut().flatten().for_each(place);
        }
        Op::Load { from: at, elements } | Op::Store { to: at, elements } => {
            place(&mut at.base);
            elements.slots.iter_mut().for_each(place);
        }
        Op::Atomic { at, to, b, c, .. } => {
            place(&mut at.base);
            to.iter_mut().for_each(place);
            place(b);
            place(c);
        }
        Op::Time { to, .. } => place(to),
        Op::Barrier { number, threads } => {
            place(number);
            threads.iter_mut().for_each(place);
        }
    }
}
