//! From statements to instructions: names become slots, and each opcode with its modifiers the function it stands for.
mod arithmetic;
mod flow;
mod memory;
mod moves;

use std::collections::BTreeMap;

use super::lex::Number;
use super::operand::{Class, Round, Space, Type};
use super::program::{Instruction, Kernel, Op, Slot, Special};
use super::{Problem, malformed, unknown};

/// The most registers of a thread.
const REGISTERS: u32 = 1 << 16;

/// What a name stands for, if it is no register.
#[derive(Clone, Copy, Debug)]
pub enum Name {
    Variable(u32),
    /// A place in the kernel's own memory or its parameters.
    Place(Space, u64),
    SharedEnd,
    Kernel,
}

#[derive(Clone, Debug)]
pub enum Operand<'a> {
    Name(&'a str),
    /// A predicate, the other way round.
    Not(&'a str),
    Number(Number),
    Memory(Option<&'a str>, u64),
    Sum(&'a str, u64),
    Vector(Vec<Operand<'a>>),
    /// The second of two results.
    Beside(&'a str),
}

#[derive(Debug)]
pub struct Statement<'a> {
    pub line: u32,
    pub guard: Option<(&'a str, bool)>,
    pub opcode: &'a str,
    pub operands: Vec<Operand<'a>>,
}

/// A register by its slot.
#[derive(Clone, Copy)]
struct Register {
    slot: Slot,
    kind: Type,
}

/// Registers that were declared together: the first one, and how many.
#[derive(Clone, Copy)]
struct Range {
    first: Register,
    count: u32,
}

#[derive(Default)]
struct Scope<'a> {
    outer: Option<usize>,
    registers: BTreeMap<&'a str, Register>,
    ranges: BTreeMap<&'a str, Range>,
    names: BTreeMap<&'a str, Name>,
    labels: BTreeMap<&'a str, u32>,
}

/// A kernel while its body is read.
pub struct Body<'a, 'm> {
    pub kernel: Kernel,
    module: &'m BTreeMap<&'a str, Name>,
    scopes: Vec<Scope<'a>>,
    scope: usize,
    /// Constants by value, and special registers, whose slots come behind all registers: they are numbered from the end.
    constants: BTreeMap<u64, Slot>,
    specials: Vec<Special>,
    /// Branches whose targets are known at the end: instruction, scope, label, line.
    branches: Vec<(usize, usize, &'a str, u32)>,
}

/// Slots of constants and specials have these bits until the number of registers is known.
const CONSTANT: Slot = 1 << 31;
const SPECIAL: Slot = 1 << 30;

impl<'a, 'm> Body<'a, 'm> {
    pub fn new(name: &str, module: &'m BTreeMap<&'a str, Name>, shared: u64) -> Body<'a, 'm> {
        let kernel = Kernel {
            name: name.into(),
            parameters: Vec::new(),
            parameter_bytes: 0,
            registers: 0,
            slots: Vec::new(),
            specials: Vec::new(),
            shared,
            local: 0,
            max_threads: 1024,
            block: None,
            code: Vec::new(),
        };
        Body {
            kernel,
            module,
            scopes: vec![Scope::default()],
            scope: 0,
            constants: BTreeMap::new(),
            specials: Vec::new(),
            branches: Vec::new(),
        }
    }

    pub fn open_scope(&mut self) {
        self.scopes.push(Scope { outer: Some(self.scope), ..Scope::default() });
        self.scope = self.scopes.len() - 1;
    }

    pub fn close_scope(&mut self) {
        self.scope = self.scopes[self.scope].outer.unwrap_or(0);
    }

    fn own(&mut self) -> &mut Scope<'a> {
        &mut self.scopes[self.scope]
    }

    /// The present scope and those around it, from the inside.
    fn outwards(&self, from: usize) -> impl Iterator<Item = &Scope<'a>> {
        let mut next = Some(from);
        std::iter::from_fn(move || {
            let scope = &self.scopes[next?];
            next = scope.outer;
            Some(scope)
        })
    }

    fn is_new(&mut self, line: u32, name: &str) -> Result<(), Problem> {
        let scope = self.own();
        let taken = scope.registers.contains_key(name)
            || scope.names.contains_key(name)
            || scope.labels.contains_key(name);
        if taken { malformed(line, format!("Duplicate definition of '{name}'")) } else { Ok(()) }
    }

    pub fn declare(&mut self, line: u32, name: &'a str, what: Name) -> Result<(), Problem> {
        self.is_new(line, name)?;
        self.own().names.insert(name, what);
        Ok(())
    }

    fn take_slots(&mut self, line: u32, count: u32) -> Result<Slot, Problem> {
        let first = self.kernel.registers;
        if first + count > REGISTERS {
            return malformed(line, "too many registers");
        }
        self.kernel.registers += count;
        Ok(first)
    }

    pub fn register(&mut self, line: u32, name: &'a str, kind: Type) -> Result<(), Problem> {
        self.is_new(line, name)?;
        let slot = self.take_slots(line, 1)?;
        self.own().registers.insert(name, Register { slot, kind });
        Ok(())
    }

    /// Registers `name0` to one before `name<count>`.
    pub fn register_range(
        &mut self,
        line: u32,
        name: &'a str,
        count: u32,
        kind: Type,
    ) -> Result<(), Problem> {
        let slot = self.take_slots(line, count)?;
        let range = Range { first: Register { slot, kind }, count };
        match self.own().ranges.insert(name, range) {
            None => Ok(()),
            Some(_) => malformed(line, format!("Duplicate definition of '{name}'")),
        }
    }

    pub fn label(&mut self, line: u32, name: &'a str) -> Result<(), Problem> {
        self.is_new(line, name)?;
        let at = self.kernel.code.len() as u32;
        self.own().labels.insert(name, at);
        Ok(())
    }

    /// The register of a name.
    fn find_register(&self, name: &str) -> Option<Register> {
        let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let digits = &name[stem.len()..];
        let plain = digits == "0" || !digits.starts_with('0');
        let index = if plain { digits.parse::<u32>().ok() } else { None };
        self.outwards(self.scope).find_map(|scope| {
            scope.registers.get(name).copied().or_else(|| {
                let range = scope.ranges.get(stem)?;
                let index = index.filter(|index| *index < range.count)?;
                Some(Register { slot: range.first.slot + index, ..range.first })
            })
        })
    }

    fn find_name(&self, name: &str) -> Option<Name> {
        let own = self.outwards(self.scope).find_map(|scope| scope.names.get(name).copied());
        own.or_else(|| self.module.get(name).copied())
    }

    fn constant(&mut self, value: u64) -> Slot {
        let next = CONSTANT | self.constants.len() as Slot;
        *self.constants.entry(value).or_insert(next)
    }

    fn special(&mut self, what: Special) -> Slot {
        let at = self.specials.iter().position(|known| *known == what).unwrap_or_else(|| {
            self.specials.push(what);
            self.specials.len() - 1
        });
        SPECIAL | at as Slot
    }

    fn push(&mut self, guard: Option<(Slot, bool)>, op: Op) {
        self.kernel.code.push(Instruction { guard, op });
    }

    /// The whole kernel: branches get their targets, constants and specials their slots.
    pub fn finish(mut self) -> Result<Kernel, Problem> {
        self.push(None, Op::Return);
        for (at, scope, label, line) in std::mem::take(&mut self.branches) {
            let target = self.outwards(scope).find_map(|scope| scope.labels.get(label).copied());
            let Some(target) = target else { return malformed(line, format!("Unknown symbol '{label}'")) };
            self.kernel.code[at].op = Op::Branch { to: target };
        }
        let registers = self.kernel.registers;
        let constants = self.constants.len() as u32;
        let place = move |slot: &mut Slot| {
            if *slot & CONSTANT != 0 {
                *slot = registers + (*slot & !CONSTANT);
            } else if *slot & SPECIAL != 0 {
                *slot = registers + constants + (*slot & !SPECIAL);
            }
        };
        for instruction in &mut self.kernel.code {
            if let Some((slot, _)) = &mut instruction.guard {
                place(slot);
            }
            flow::each_slot(&mut instruction.op, &place);
        }
        let mut slots = vec![0; registers as usize + self.constants.len() + self.specials.len()];
        for (value, slot) in &self.constants {
            slots[(registers + (slot & !CONSTANT)) as usize] = *value;
        }
        let first = registers + constants;
        let specials = self.specials.iter().enumerate();
        self.kernel.specials = specials.map(|(i, special)| (first + i as u32, *special)).collect();
        self.kernel.slots = slots;
        Ok(self.kernel)
    }
}

/// A statement on its way: what has been read of its modifiers and operands.
struct Reader<'a, 'b> {
    line: u32,
    opcode: &'a str,
    /// The opcode's name and modifiers.
    parts: Vec<&'a str>,
    operands: &'b [Operand<'a>],
}

impl<'a> Reader<'a, '_> {
    /// It is known to the language perhaps, but not here.
    fn unknown<T>(&self) -> Result<T, Problem> {
        unknown(self.line, format!("'{}'", self.opcode))
    }

    fn malformed<T>(&self, text: impl Into<String>) -> Result<T, Problem> {
        malformed(self.line, text)
    }

    fn mismatch<T>(&self) -> Result<T, Problem> {
        self.malformed(format!("Arguments mismatch for instruction '{}'", self.parts[0]))
    }

    /// Takes a modifier if it is there.
    fn take(&mut self, modifier: &str) -> bool {
        match self.parts.iter().skip(1).position(|part| *part == modifier) {
            Some(at) => {
                self.parts.remove(at + 1);
                true
            }
            None => false,
        }
    }

    fn take_any(&mut self, modifiers: &[&str]) {
        for modifier in modifiers {
            self.take(modifier);
        }
    }

    fn take_round(&mut self) -> Option<Round> {
        let at = self.parts.iter().skip(1).position(|part| Round::parse(part).is_some())?;
        Round::parse(self.parts.remove(at + 1))
    }

    /// The type at the end of the opcode.
    fn kind(&mut self) -> Result<Type, Problem> {
        let last = if self.parts.len() > 1 { self.parts.pop() } else { None };
        let Some(last) = last else { return self.malformed(format!("'{}' without a type", self.opcode)) };
        match Type::parse(last) {
            Some(kind) => Ok(kind),
            None => self.unknown(),
        }
    }

    /// What is left of the opcode, which has to be known.
    fn rest(&self) -> String {
        self.parts.join(".")
    }

    fn count(&self, count: usize) -> Result<(), Problem> {
        if self.operands.len() == count { Ok(()) } else { self.mismatch() }
    }

    fn operand(&self, i: usize) -> Result<&Operand<'a>, Problem> {
        match self.operands.get(i) {
            Some(operand) => Ok(operand),
            None => self.mismatch(),
        }
    }
}

impl<'a> Body<'a, '_> {
    /// A register that gets a result of a type.
    fn result(&self, reader: &Reader, i: usize, kind: Type) -> Result<Slot, Problem> {
        let register = self.any_register(reader, i)?;
        if register.kind.serves(kind) { Ok(register.slot) } else { reader.mismatch() }
    }

    fn any_register(&self, reader: &Reader, i: usize) -> Result<Register, Problem> {
        match reader.operand(i)? {
            Operand::Name(name) | Operand::Beside(name) => match self.find_register(name) {
                Some(register) => Ok(register),
                None => reader.malformed(format!("Unknown symbol '{name}'")),
            },
            _ => reader.mismatch(),
        }
    }

    /// A value of a type: a register, a constant, a special register, an address.
    fn value(&mut self, reader: &Reader<'a, '_>, i: usize, kind: Type) -> Result<Slot, Problem> {
        let operand = reader.operand(i)?.clone();
        self.value_of(reader, &operand, kind, false)
    }

    /// As `value`, where the register may be wider than the type.
    fn wide_value(&mut self, reader: &Reader, operand: &Operand<'a>, kind: Type) -> Result<Slot, Problem> {
        self.value_of(reader, operand, kind, true)
    }

    fn value_of(
        &mut self,
        reader: &Reader,
        operand: &Operand<'a>,
        kind: Type,
        wide: bool,
    ) -> Result<Slot, Problem> {
        match operand {
            Operand::Number(number) => match (number, kind.class, kind.bytes) {
                (Number::Integer(value), Class::Bits | Class::Unsigned | Class::Signed, _) => {
                    Ok(self.constant(value & kind.mask()))
                }
                (Number::Integer(value), Class::Predicate, _) => Ok(self.constant(u64::from(*value != 0))),
                (Number::F32(bits), Class::Float | Class::Bits, 4) => Ok(self.constant(u64::from(*bits))),
                (Number::F64(bits), Class::Float | Class::Bits, 8) => Ok(self.constant(*bits)),
                (Number::F64(bits), Class::Float, 4) => {
                    Ok(self.constant(u64::from((f64::from_bits(*bits) as f32).to_bits())))
                }
                (Number::F32(bits), Class::Float, 8) => {
                    Ok(self.constant(f64::from(f32::from_bits(*bits)).to_bits()))
                }
                _ => reader.mismatch(),
            },
            Operand::Name(name) => {
                if let Some(register) = self.find_register(name) {
                    let fits = register.kind.serves(kind) || (wide && register.kind.holds(kind));
                    return if fits { Ok(register.slot) } else { reader.mismatch() };
                }
                if let Some(special) = moves::special(name) {
                    return Ok(self.special(special));
                }
                self.address_value(reader, name, 0, kind)
            }
            Operand::Sum(name, offset) => self.address_value(reader, name, *offset, kind),
            _ => reader.mismatch(),
        }
    }

    /// An address where a value of a type is wanted.
    fn address_value(
        &mut self,
        reader: &Reader,
        name: &str,
        offset: u64,
        kind: Type,
    ) -> Result<Slot, Problem> {
        let slot = self.address_of(reader, name, offset)?;
        if kind.is_integer() && kind.bytes >= 4 { Ok(slot) } else { reader.mismatch() }
    }

    /// The address of a variable in its own space, as a value.
    fn address_of(&mut self, reader: &Reader, name: &str, offset: u64) -> Result<Slot, Problem> {
        let slot = match self.find_name(name) {
            Some(Name::Variable(index)) => self.special(Special::Variable(index)),
            Some(Name::Place(_, place)) => return Ok(self.constant(place.wrapping_add(offset))),
            Some(Name::SharedEnd) => self.special(Special::SharedEnd),
            Some(Name::Kernel) => return unknown(reader.line, "the address of a kernel"),
            None if moves::is_special(name) => return unknown(reader.line, name),
            None => return reader.malformed(format!("Unknown symbol '{name}'")),
        };
        if offset == 0 {
            return Ok(slot);
        }
        let to = self.take_slots(reader.line, 1)?;
        self.push(None, Op::Offset { to, a: slot, by: offset });
        Ok(to)
    }

    /// A predicate and whether it is meant the other way round.
    fn predicate(&mut self, reader: &Reader, i: usize) -> Result<(Slot, bool), Problem> {
        let (name, negated) = match reader.operand(i)? {
            Operand::Name(name) => (*name, false),
            Operand::Not(name) => (*name, true),
            _ => return reader.mismatch(),
        };
        Ok((self.predicate_of(reader, name)?, negated))
    }

    fn predicate_of(&self, reader: &Reader, name: &str) -> Result<Slot, Problem> {
        match self.find_register(name) {
            Some(register) if register.kind.is_predicate() => Ok(register.slot),
            Some(_) => reader.mismatch(),
            None => reader.malformed(format!("Unknown symbol '{name}'")),
        }
    }
}

/// Decodes a statement into the body.
///
/// # Errors
/// What is wrong with it, or that it is not interpreted.
pub fn decode<'a>(body: &mut Body<'a, '_>, statement: &Statement<'a>) -> Result<(), Problem> {
    let parts: Vec<&str> = statement.opcode.split('.').collect();
    let mut reader =
        Reader { line: statement.line, opcode: statement.opcode, parts, operands: &statement.operands };
    let guard = match statement.guard {
        Some((name, negated)) => Some((body.predicate_of(&reader, name)?, negated)),
        None => None,
    };
    let op = match reader.parts[0] {
        "ld" | "ldu" => memory::load(body, &mut reader),
        "st" => memory::store(body, &mut reader),
        "atom" | "red" => memory::atomic(body, &mut reader),
        "cvta" => memory::to_generic(body, &mut reader),
        "isspacep" => memory::is_in(body, &mut reader),
        "prefetch" | "prefetchu" | "discard" | "applypriority" => Ok(Op::Nothing),
        "mov" => moves::mov(body, &mut reader),
        "cvt" => moves::convert(body, &mut reader),
        "selp" | "slct" => moves::select(body, &mut reader),
        "setp" | "set" => moves::compare(body, &mut reader),
        "bra" | "ret" | "exit" | "trap" | "brkpt" | "bar" | "barrier" | "membar" | "fence" | "nanosleep"
        | "griddepcontrol" => return flow::decode(body, &mut reader, guard),
        _ => arithmetic::decode(body, &mut reader),
    }?;
    body.push(guard, op);
    Ok(())
}
