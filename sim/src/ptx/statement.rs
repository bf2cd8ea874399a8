//! Kernels: their parameters, and the statements of their bodies.
use super::cursor::Cursor;
use super::decode::{self, Body, Name, Operand, Statement};
use super::lex::{Kind, Number};
use super::operand::{Space, Type};
use super::program::{Kernel, Parameter};
use super::variable::{LARGEST, LOCAL, declared};
use super::{Problem, malformed, unknown};

/// The most bytes of parameters that a kernel has.
const PARAMETERS: u64 = 32764;
/// The most registers that one declaration makes.
const REGISTERS: u64 = 1 << 16;

impl<'a> Cursor<'a> {
    /// A kernel behind its name.
    pub fn kernel(&mut self, body: &mut Body<'a, '_>) -> Result<(), Problem> {
        if self.take('(') && !self.take(')') {
            self.parameters(body)?;
        }
        self.tuning(&mut body.kernel)?;
        if self.peek() == Kind::Mark(';') {
            return unknown(self.line(), "a kernel of another module");
        }
        self.expect('{')?;
        let mut depth = 1_u32;
        while depth > 0 {
            if self.take('{') {
                depth += 1;
                body.open_scope();
            } else if self.take('}') {
                depth -= 1;
                body.close_scope();
            } else {
                self.statement(body)?;
            }
        }
        Ok(())
    }

    fn parameters(&mut self, body: &mut Body<'a, '_>) -> Result<(), Problem> {
        loop {
            let line = self.line();
            if self.directive()? != ".param" {
                return malformed(line, "a parameter without .param");
            }
            let one = declared(self, true)?;
            let offset = (body.kernel.parameter_bytes as u64).next_multiple_of(one.align);
            let end = offset + one.size;
            if end > PARAMETERS || one.open {
                return malformed(line, "too many bytes of parameters");
            }
            body.kernel.parameters.push(Parameter { offset: offset as usize, size: one.size as usize });
            body.kernel.parameter_bytes = end as usize;
            body.declare(line, one.name, Name::Place(Space::Param, offset))?;
            if !self.take(',') {
                return self.expect(')');
            }
        }
    }

    /// What a kernel says of the launches that it is for.
    fn tuning(&mut self, kernel: &mut Kernel) -> Result<(), Problem> {
        while let Kind::Word(word) = self.peek() {
            let line = self.line();
            self.next();
            match word {
                ".maxntid" | ".reqntid" => {
                    let mut shape = [1_u32; 3];
                    for (i, size) in shape.iter_mut().enumerate() {
                        if i > 0 && !self.take(',') {
                            break;
                        }
                        *size = u32::try_from(self.whole()?).unwrap_or(u32::MAX);
                    }
                    kernel.max_threads =
                        shape.iter().fold(1_u32, |all, size| all.saturating_mul(*size)).clamp(1, 1024);
                    if word == ".reqntid" {
                        kernel.block = Some(shape);
                    }
                }
                ".maxnreg" | ".minnctapersm" | ".maxnctapersm" => _ = self.whole()?,
                ".noreturn" => {}
                ".pragma" => self.pragma()?,
                word => return unknown(line, word),
            }
        }
        Ok(())
    }

    fn statement(&mut self, body: &mut Body<'a, '_>) -> Result<(), Problem> {
        let line = self.line();
        match (self.peek(), self.second()) {
            (Kind::Mark(';'), _) => {
                self.next();
                Ok(())
            }
            (Kind::Word(word), _) if word.starts_with('.') => {
                self.next();
                match word {
                    ".reg" => self.registers(body),
                    ".shared" | ".local" => self.own_variable(body, line, word == ".shared"),
                    ".loc" | ".file" => {
                        self.skip_line();
                        Ok(())
                    }
                    ".pragma" => self.pragma(),
                    word => unknown(line, word),
                }
            }
            (Kind::Word(name), Kind::Mark(':')) => {
                self.next();
                self.next();
                body.label(line, name)
            }
            (Kind::Word(_) | Kind::Mark('@'), _) => {
                let statement = self.instruction()?;
                decode::decode(body, &statement)
            }
            (Kind::End, _) => malformed(line, "the text ends within a kernel"),
            _ => malformed(line, "no statement where there has to be one"),
        }
    }

    fn registers(&mut self, body: &mut Body<'a, '_>) -> Result<(), Problem> {
        let line = self.line();
        let word = self.directive()?;
        if matches!(word, ".v2" | ".v4" | ".b128" | ".f16x2" | ".bf16" | ".tf32") {
            return unknown(line, format!("a register of {word}"));
        }
        let Some(kind) = Type::parse(word) else {
            return malformed(line, format!("no register is of type '{word}'"));
        };
        loop {
            let line = self.line();
            let name = self.name()?;
            if self.take('<') {
                let count = self.whole()?;
                self.expect('>')?;
                if count > REGISTERS {
                    return malformed(line, format!("{count} registers at once"));
                }
                body.register_range(line, name, count as u32, kind)?;
            } else {
                body.register(line, name, kind)?;
            }
            if !self.take(',') {
                return self.expect(';');
            }
        }
    }

    fn own_variable(&mut self, body: &mut Body<'a, '_>, line: u32, shared: bool) -> Result<(), Problem> {
        let one = declared(self, false)?;
        self.expect(';')?;
        if one.open {
            return malformed(line, format!("'{}' has no size", one.name));
        }
        let (space, size) = if shared {
            (Space::Shared, &mut body.kernel.shared)
        } else {
            (Space::Local, &mut body.kernel.local)
        };
        let offset = size.next_multiple_of(one.align);
        *size = offset + one.size;
        if *size > if shared { LARGEST } else { LOCAL } {
            return malformed(line, format!("'{}' is too large", one.name));
        }
        body.declare(line, one.name, Name::Place(space, offset))
    }

    fn instruction(&mut self) -> Result<Statement<'a>, Problem> {
        let line = self.line();
        let guard = if self.take('@') {
            let negated = self.take('!');
            Some((self.name()?, negated))
        } else {
            None
        };
        let Kind::Word(opcode) = self.next() else {
            return malformed(line, "no instruction where there has to be one");
        };
        let mut operands = Vec::new();
        if !self.take(';') {
            loop {
                operands.push(self.operand()?);
                if self.take('|') {
                    operands.push(Operand::Beside(self.name()?));
                }
                if self.take(';') {
                    break;
                }
                self.expect(',')?;
            }
        }
        Ok(Statement { line, guard, opcode, operands })
    }

    fn operand(&mut self) -> Result<Operand<'a>, Problem> {
        let line = self.line();
        match self.peek() {
            Kind::Mark('[') => {
                self.next();
                let base = match self.peek() {
                    Kind::Word(_) => Some(self.name()?),
                    _ => None,
                };
                let offset = if base.is_none() || self.take('+') || self.peek() == Kind::Mark('-') {
                    self.address_number()?
                } else {
                    0
                };
                if self.peek() == Kind::Mark(',') {
                    return unknown(line, "an address of several parts");
                }
                self.expect(']')?;
                Ok(Operand::Memory(base, offset))
            }
            Kind::Mark('{') => {
                self.next();
                let mut parts = Vec::new();
                loop {
                    if self.peek() == Kind::Mark('{') {
                        return malformed(line, "a vector in a vector");
                    }
                    parts.push(self.operand()?);
                    if parts.len() > 8 {
                        return malformed(line, "too many parts of a vector");
                    }
                    if self.take('}') {
                        return Ok(Operand::Vector(parts));
                    }
                    self.expect(',')?;
                }
            }
            Kind::Mark('!') => {
                self.next();
                Ok(Operand::Not(self.name()?))
            }
            Kind::Mark('-') | Kind::Number(_) => Ok(Operand::Number(self.signed()?)),
            Kind::Word(_) => {
                let name = self.name()?;
                if self.take('+') {
                    return Ok(Operand::Sum(name, self.address_number()?));
                }
                Ok(Operand::Name(name))
            }
            Kind::Mark('(') => unknown(line, "a call"),
            _ => malformed(line, "no operand where there has to be one"),
        }
    }

    fn address_number(&mut self) -> Result<u64, Problem> {
        let line = self.line();
        match self.signed()? {
            Number::Integer(value) => Ok(value),
            _ => malformed(line, "an address that is no whole number"),
        }
    }
}
