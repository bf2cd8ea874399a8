//! `warpmem-info`: what libwarpmem finds on a machine, as text or as JSON. It asks and changes nothing, and makes no CUDA
//! context unless it is told to.

mod face;
mod found;
mod look;
mod text;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

const USAGE: &str = "\
warpmem-info [--json] [--memory]

Shows what libwarpmem finds on this machine: the driver or the reason why there is none, the devices with their
capabilities and memory pools, and which GPU can touch and which may touch whose memory. Changes nothing, and makes no
CUDA context.

  --json         as JSON, described in docs/info.md
  --memory       also how much memory is free; each GPU is given a context for the question
  -h, --help     this text
  -V, --version  the version

The exit status is 0, also without a GPU; 1 when something could not be asked or written; 2 for bad arguments.
";

/// What was asked for.
enum Wish {
    Show { json: bool, memory: bool },
    Usage,
    Version,
}

fn main() -> ExitCode {
    let (text, status) = match read_arguments(lexopt::Parser::from_env()) {
        Ok(Wish::Usage) => (USAGE.to_string(), 0),
        Ok(Wish::Version) => (format!("warpmem-info {}\n", face::version()), 0),
        Ok(Wish::Show { json, memory }) => {
            let found = look::look(memory);
            let text = if json { found.to_json() } else { text::text(&found) };
            (text, u8::from(!found.problems.is_empty()))
        }
        Err(error) => {
            complain(&format!("{error}; warpmem-info --help has what there is"));
            return ExitCode::from(2);
        }
    };
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has seen enough is no failure.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain(&format!("the output could not be written: {error}"));
            ExitCode::from(1)
        }
        _ => ExitCode::from(status),
    }
}

fn read_arguments(mut arguments: lexopt::Parser) -> Result<Wish, lexopt::Error> {
    use lexopt::Arg::{Long, Short};
    let (mut json, mut memory) = (false, false);
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("json") => json = true,
            Long("memory") => memory = true,
            Long("help") | Short('h') => return Ok(Wish::Usage),
            Long("version") | Short('V') => return Ok(Wish::Version),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Wish::Show { json, memory })
}

fn complain(what: &str) {
    // Nothing can be done when that fails too.
    let _ = writeln!(std::io::stderr(), "warpmem-info: {what}");
}
