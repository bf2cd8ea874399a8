//! From tokens to declarations: the module's directives, its variables, and its kernels with their bodies.
use std::collections::BTreeMap;
use std::sync::Arc;

use super::cursor::Cursor;
use super::decode::{Body, Name};
use super::lex::{self, Kind};
use super::operand::Space;
use super::program::{Program, Variable};
use super::variable::{LARGEST, contents, declared};
use super::{Problem, malformed, unknown};

struct Parser<'a> {
    cursor: Cursor<'a>,
    program: Program,
    /// What names mean outside of kernels.
    names: BTreeMap<&'a str, Name>,
    /// Bytes of shared variables outside of kernels, which every kernel has.
    shared: u64,
}

/// Reads a module.
///
/// # Errors
/// What is wrong with it, or what of it is not interpreted.
pub fn parse(source: &str, newest: (u32, u32)) -> Result<Program, Problem> {
    let tokens = lex::tokens(source)?;
    if tokens[0].kind != Kind::Word(".version") {
        return Err(Problem::NoPtx);
    }
    let program = Program { kernels: Vec::new(), variables: Vec::new(), version: (0, 0), target: 0 };
    let mut cursor = Cursor::new(tokens);
    cursor.next();
    let mut parser = Parser { cursor, program, names: BTreeMap::new(), shared: 0 };
    parser.version(newest)?;
    parser.target()?;
    while parser.cursor.peek() != Kind::End {
        parser.item()?;
    }
    Ok(parser.program)
}

impl<'a> Parser<'a> {
    fn version(&mut self, newest: (u32, u32)) -> Result<(), Problem> {
        let line = self.cursor.line();
        let Kind::Number(text) = self.cursor.next() else { return malformed(line, "no version") };
        let parts =
            text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        match parts {
            Some(version) if version <= newest => self.program.version = version,
            Some(_) => return Err(Problem::Version(text.into())),
            None => return malformed(line, format!("'{text}' is no version")),
        }
        Ok(())
    }

    fn target(&mut self) -> Result<(), Problem> {
        let line = self.cursor.line();
        if !self.cursor.take_word(".target") {
            return malformed(line, "no .target behind the version");
        }
        loop {
            match self.cursor.name()? {
                "debug" | "map_f64_to_f32" | "texmode_unified" | "texmode_independent" => {}
                name => {
                    let digits = name.strip_prefix("sm_").map(|name| name.trim_end_matches(['a', 'f']));
                    match digits.and_then(|digits| digits.parse().ok()) {
                        Some(number @ 10..=130) => self.program.target = number,
                        _ => return malformed(line, format!("no target is called '{name}'")),
                    }
                }
            }
            if !self.cursor.take(',') {
                break;
            }
        }
        if self.cursor.take_word(".address_size") && self.cursor.whole()? != 64 {
            return unknown(line, "an address size of 32 bits");
        }
        Ok(())
    }

    fn item(&mut self) -> Result<(), Problem> {
        let line = self.cursor.line();
        let mut external = false;
        loop {
            match self.cursor.directive()? {
                ".visible" | ".weak" => {}
                ".extern" => external = true,
                ".common" => return unknown(line, ".common"),
                ".entry" if !external => return self.kernel(),
                ".global" | ".const" => return self.variables(line, external),
                ".shared" => return self.shared_variable(),
                ".file" | ".loc" => {
                    self.cursor.skip_line();
                    return Ok(());
                }
                ".section" => return self.cursor.skip_braces(),
                ".pragma" => return self.cursor.pragma(),
                word => return unknown(line, word),
            }
        }
    }

    fn declare(&mut self, line: u32, name: &'a str, what: Name) -> Result<(), Problem> {
        match self.names.insert(name, what) {
            None => Ok(()),
            Some(_) => malformed(line, format!("Duplicate definition of '{name}'")),
        }
    }

    fn variables(&mut self, line: u32, external: bool) -> Result<(), Problem> {
        if external {
            return unknown(line, "a variable of another module");
        }
        if self.cursor.peek() == Kind::Word(".attribute") {
            return unknown(line, ".attribute");
        }
        let one = declared(&mut self.cursor, false)?;
        if one.open {
            return unknown(line, "an array without a size");
        }
        let contents =
            if self.cursor.take('=') { contents(&mut self.cursor, one.kind, one.size)? } else { Vec::new() };
        self.cursor.expect(';')?;
        let index = self.program.variables.len() as u32;
        self.program.variables.push(Variable { name: one.name.into(), size: one.size, contents });
        self.declare(line, one.name, Name::Variable(index))
    }

    /// One shared variable of all kernels.
    fn shared_variable(&mut self) -> Result<(), Problem> {
        let line = self.cursor.line();
        let one = declared(&mut self.cursor, false)?;
        self.cursor.expect(';')?;
        let what = if one.open {
            Name::SharedEnd
        } else {
            let offset = self.shared.next_multiple_of(one.align);
            self.shared = offset + one.size;
            Name::Place(Space::Shared, offset)
        };
        if self.shared > LARGEST {
            return malformed(line, format!("'{}' is too large", one.name));
        }
        self.declare(line, one.name, what)
    }

    fn kernel(&mut self) -> Result<(), Problem> {
        let line = self.cursor.line();
        let name = self.cursor.name()?;
        let mut body = Body::new(name, &self.names, self.shared);
        self.cursor.kernel(&mut body)?;
        let kernel = body.finish()?;
        self.declare(line, name, Name::Kernel)?;
        self.program.kernels.push(Arc::new(kernel));
        Ok(())
    }
}
