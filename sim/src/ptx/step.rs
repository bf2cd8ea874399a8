//! One instruction of one thread.
use super::convert::convert;
use super::float;
use super::operand::{Space, WINDOW};
use super::program::{Address, Combine, Elements, Op, Slot};
use super::run::{Block, Memory, State, Stop, Thread};

/// Where a thread goes on.
pub enum Next {
    Following,
    At(u32),
    /// With the following instruction, when it need not wait any more.
    Waits(State),
}

fn combined(thread: &Thread, holds: bool, with: Option<(Combine, Slot, bool)>) -> bool {
    let Some((combine, slot, negated)) = with else { return holds };
    let other = (thread.slots[slot as usize] != 0) != negated;
    match combine {
        Combine::And => holds && other,
        Combine::Or => holds || other,
        Combine::Xor => holds != other,
    }
}

/// Runs an instruction whose guard holds.
///
/// # Errors
/// What ends the grid.
#[inline(always)]
pub fn step<M: Memory>(block: &mut Block<M>, thread: &mut Thread, op: &Op) -> Result<Next, Stop> {
    let get = |slot: Slot| thread.slots[slot as usize];
    let (to, value) = match *op {
        Op::Nothing => return Ok(Next::Following),
        Op::One { f, to, a } => (to, f(get(a))),
        Op::Two { f, to, a, b } => (to, f(get(a), get(b))),
        Op::Three { f, to, a, b, c } => (to, f(get(a), get(b), get(c))),
        Op::Float { how, to, a, b, c } => (to, float::compute(how, get(a), get(b), get(c))),
        Op::Convert { ref how, to, a } => (to, convert(get(a), how)),
        Op::Offset { to, a, by } => (to, get(a).wrapping_add(by)),
        Op::Select { to, a, b, by } => (to, if get(by) != 0 { get(a) } else { get(b) }),
        Op::SelectBySign { float, to, a, b, by } => {
            let by = get(by);
            let first = if float { float::f32_of(by) >= 0.0 } else { (by as i32) >= 0 };
            (to, if first { get(a) } else { get(b) })
        }
        Op::Set { f, to, a, b, with, yes } => {
            let holds = combined(thread, f(get(a), get(b)), with);
            (to, if holds { yes } else { 0 })
        }
        Op::Compare { f, to, other, a, b, with } => {
            let holds = f(get(a), get(b));
            // The second result is that of the opposite comparison, combined in the same way.
            let against = other.map(|other| (other, combined(thread, !holds, with)));
            let holds = combined(thread, holds, with);
            if let Some((other, value)) = against {
                thread.slots[other as usize] = u64::from(value);
            }
            (to, u64::from(holds))
        }
        Op::Carry { subtract, wide, takes, gives, to, a, b } => {
            let bits = if wide { 64 } else { 32 };
            let (a, b) = (u128::from(get(a)), u128::from(get(b)));
            let flag = u128::from(takes && thread.carry);
            let sum = if subtract { a.wrapping_sub(b).wrapping_sub(flag) } else { a + b + flag };
            if gives {
                thread.carry = sum >> bits & 1 != 0;
            }
            (to, (sum & ((1 << bits) - 1)) as u64)
        }
        Op::Pack { to, parts, count, bits } => {
            let mask = u64::MAX >> (64 - u32::from(bits));
            let parts = parts[..usize::from(count)].iter().enumerate();
            (to, parts.fold(0, |all, (i, part)| all | (get(*part) & mask) << (i as u32 * u32::from(bits))))
        }
        Op::Unpack { from, parts, count, bits } => {
            let (value, mask) = (get(from), u64::MAX >> (64 - u32::from(bits)));
            for (i, part) in parts[..usize::from(count)].iter().enumerate() {
                if let Some(part) = part {
                    thread.slots[*part as usize] = value >> (i as u32 * u32::from(bits)) & mask;
                }
            }
            return Ok(Next::Following);
        }
        Op::IsIn { space, to, a } => {
            let at = get(a);
            let in_window = |space: Space| at.wrapping_sub(space.window()) < WINDOW;
            let own = match space {
                Space::Global => !in_window(Space::Shared) && !in_window(Space::Local),
                space => in_window(space),
            };
            (to, u64::from(own))
        }
        Op::Time { clock, to } => (to, block.time(clock)),
        Op::Load { from, ref elements } => return load(block, thread, from, elements),
        Op::Store { to, ref elements } => return store(block, thread, to, elements),
        Op::Atomic { f, at, bytes, to, b, c } => {
            let (bytes, b, c) = (usize::from(bytes), get(b), get(c));
            let (space, address) = block.resolve(thread, at, bytes)?;
            let mut held = [0; 8];
            block.read(thread, space, address, &mut held[..bytes])?;
            let old = u64::from_le_bytes(held);
            let new = f(old, b, c);
            block.write(thread, space, address, &new.to_le_bytes()[..bytes])?;
            match to {
                Some(to) => (to, old),
                None => return Ok(Next::Following),
            }
        }
        Op::Branch { to } => return Ok(Next::At(to)),
        Op::Barrier { number, threads } => {
            let threads = threads.map(|threads| get(threads) as u32);
            return Ok(Next::Waits(State::Waits { number: get(number) as u32, threads }));
        }
        Op::WarpBarrier => return Ok(Next::Waits(State::WaitsForWarp)),
        Op::Return => return Ok(Next::Waits(State::Done)),
        Op::Trap => return Err(Stop::Trapped),
    };
    thread.slots[to as usize] = value;
    Ok(Next::Following)
}

fn load<M: Memory>(
    block: &mut Block<M>,
    thread: &mut Thread,
    from: Address,
    elements: &Elements,
) -> Result<Next, Stop> {
    let (width, count) = (usize::from(elements.bytes), usize::from(elements.count));
    let (space, address) = block.resolve(thread, from, width * count)?;
    let mut bytes = [0; 16];
    block.read(thread, space, address, &mut bytes[..width * count])?;
    for (i, slot) in elements.slots[..count].iter().enumerate() {
        let mut one = [0; 8];
        one[..width].copy_from_slice(&bytes[i * width..(i + 1) * width]);
        let value = u64::from_le_bytes(one);
        let shift = 64 - 8 * width as u32;
        let value =
            if elements.signed { ((value << shift) as i64 >> shift) as u64 & elements.mask } else { value };
        thread.slots[*slot as usize] = value;
    }
    Ok(Next::Following)
}

fn store<M: Memory>(
    block: &mut Block<M>,
    thread: &mut Thread,
    to: Address,
    elements: &Elements,
) -> Result<Next, Stop> {
    let (width, count) = (usize::from(elements.bytes), usize::from(elements.count));
    let (space, address) = block.resolve(thread, to, width * count)?;
    let mut bytes = [0; 16];
    for (i, slot) in elements.slots[..count].iter().enumerate() {
        let value = thread.slots[*slot as usize].to_le_bytes();
        bytes[i * width..(i + 1) * width].copy_from_slice(&value[..width]);
    }
    block.write(thread, space, address, &bytes[..width * count])?;
    Ok(Next::Following)
}

/// The bytes of an access in memory that is all here.
fn part(memory: &mut [u8], at: u64, bytes: usize) -> Option<&mut [u8]> {
    let end = at.checked_add(bytes as u64).filter(|end| *end <= memory.len() as u64)?;
    Some(&mut memory[at as usize..end as usize])
}

fn local_part(thread: &mut Thread, at: u64, bytes: usize, write: bool) -> Result<&mut [u8], Stop> {
    part(&mut thread.local, at, bytes).ok_or(Stop::Illegal { address: at, bytes, write })
}

impl<M: Memory> Block<'_, M> {
    fn shared_part(&mut self, at: u64, bytes: usize) -> Result<&mut [u8], Stop> {
        part(&mut self.shared, at, bytes).ok_or(Stop::OutOfShared { address: at })
    }

    fn read(&mut self, thread: &mut Thread, space: Space, at: u64, to: &mut [u8]) -> Result<(), Stop> {
        match space {
            Space::Generic | Space::Global => return self.memory.read(at, to),
            Space::Shared => to.copy_from_slice(self.shared_part(at, to.len())?),
            Space::Local => to.copy_from_slice(local_part(thread, at, to.len(), false)?),
            Space::Param => {
                let all = self.grid.parameters;
                let start = usize::try_from(at).unwrap_or(usize::MAX).min(all.len());
                // What lies behind the parameters is the launch's own, and reads as zeros.
                let have = to.len().min(all.len() - start);
                to.fill(0);
                to[..have].copy_from_slice(&all[start..start + have]);
            }
        }
        Ok(())
    }

    fn write(&mut self, thread: &mut Thread, space: Space, at: u64, from: &[u8]) -> Result<(), Stop> {
        match space {
            Space::Shared => self.shared_part(at, from.len())?.copy_from_slice(from),
            Space::Local => local_part(thread, at, from.len(), true)?.copy_from_slice(from),
            _ => return self.memory.write(at, from),
        }
        Ok(())
    }
}
