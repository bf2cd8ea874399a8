//! Kernels as text: a part of PTX, parsed, decoded and interpreted. Nothing in here knows contexts, streams or blocks; what
//! a kernel reads and writes beyond its own block of threads goes through [`Memory`].
//!
//! - `lex`, `cursor`, `parse`, `variable`, `statement`: from text to declarations and statements; `decode`: from a statement to an [`program::Instruction`].
//! - `program`: what comes out; `operand`: types and state spaces.
//! - `integer`, `float`, `convert`: the arithmetic, one function an instruction and type.
//! - `run`: a grid of threads; `step`: one instruction of one thread.
mod convert;
mod cursor;
mod decode;
mod float;
mod integer;
mod lex;
mod operand;
mod parse;
mod program;
mod run;
mod statement;
mod step;
mod variable;

pub use parse::parse;
pub use program::{Kernel, Program};
pub use run::{Grid, Memory, Stop, run};

/// Why a text is no program for this interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// It does not begin as PTX does.
    NoPtx,
    /// It is in a version of the language that the driver does not know yet.
    Version(String),
    /// It is no valid PTX: the line and what is wrong there.
    Malformed(u32, String),
    /// It may be valid, and uses what is not interpreted: the line and its name.
    Unknown(u32, String),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Problem::NoPtx => write!(out, "the image is no PTX"),
            Problem::Version(text) => write!(out, "unsupported PTX version {text}"),
            Problem::Malformed(line, text) => write!(out, "ptx input, line {line}; error   : {text}"),
            Problem::Unknown(line, name) => {
                write!(out, "ptx input, line {line}; error   : {name} is not simulated")
            }
        }
    }
}

/// # Errors
/// Always: malformed.
fn malformed<T>(line: u32, text: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::Malformed(line, text.into()))
}

/// # Errors
/// Always: unknown.
fn unknown<T>(line: u32, name: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::Unknown(line, name.into()))
}
