//! `warpmem-replay`: makes the calls of an allocation log again on an allocator of choice, and says whether two logs are of the
//! same allocations.

mod compare;
mod face;
mod figures;
mod log;
mod replay;

use log::Log;
use replay::Wish;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
warpmem-replay [options] LOG
warpmem-replay --compare A B

Makes the allocations and deallocations of a log again, in its order and on one thread, and says how many there were, how
much was out at most, what failed and how long it took. A logging adaptor of libwarpmem writes such a log. With --compare:
whether two logs are of the same allocations, whatever their addresses, times and threads.

  --allocator NAME  default (plain device memory), mempool, managed, pinned or host; else what the device is served with
  --device N        all on GPU N; else on the devices that the log names
  --limit BYTES     have no more than so many bytes out at once
  --log OUT         write a log of the replay
  --json            as JSON, described in docs/replay.md
  -h, --help        this text
  -V, --version     the version

The exit status is 0 when all was served, or the logs are the same; 1 when something failed, or they differ; 2 for bad
arguments, and for a file that is no log, with its line.
";

/// What was asked for.
enum Wished {
    Replay { log: PathBuf, wish: Wish, json: bool },
    Compare(PathBuf, PathBuf),
    Usage,
    Version,
}

fn main() -> ExitCode {
    let wished = match read_arguments(lexopt::Parser::from_env()) {
        Ok(wished) => wished,
        Err(error) => return complain(&format!("{error}; warpmem-replay --help has what there is"), 2),
    };
    let (text, status) = match wished {
        Wished::Usage => (USAGE.to_string(), 0),
        Wished::Version => (format!("warpmem-replay {}\n", face::version()), 0),
        Wished::Compare(a, b) => match compared(&a, &b) {
            Ok(outcome) => outcome,
            Err(what) => return complain(&what, 2),
        },
        Wished::Replay { log, wish, json } => match replayed(&log, &wish, json) {
            Ok(outcome) => outcome,
            Err((what, status)) => return complain(&what, status),
        },
    };
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has seen enough is no failure.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain(&format!("the output could not be written: {error}"), 1)
        }
        _ => ExitCode::from(status),
    }
}

fn compared(a: &Path, b: &Path) -> Result<(String, u8), String> {
    let (log_a, log_b) = (Log::read(a)?, Log::read(b)?);
    let (name_a, name_b) = (a.display().to_string(), b.display().to_string());
    Ok(match compare::difference((&name_a, &log_a), (&name_b, &log_b)) {
        None => ("the same\n".to_string(), 0),
        Some(difference) => (difference, 1),
    })
}

fn replayed(path: &Path, wish: &Wish, json: bool) -> Result<(String, u8), (String, u8)> {
    if let Some(out) = &wish.log
        && replay::is_same_file(path, Path::new(out))
    {
        return Err((format!("{out} is the log that is replayed; name another file with --log"), 2));
    }
    let log = Log::read(path).map_err(|what| (what, 2))?;
    let figures = replay::replay(&log, wish).map_err(|what| (what, 1))?;
    let text = if json { figures.to_json() } else { figures.to_text(&path.display().to_string()) };
    Ok((text, u8::from(!figures.went_well())))
}

fn read_arguments(mut arguments: lexopt::Parser) -> Result<Wished, lexopt::Error> {
    use lexopt::Arg::{Long, Short, Value};
    use lexopt::ValueExt;
    let (mut json, mut compare, mut wish, mut files) = (false, false, Wish::default(), Vec::new());
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("json") => json = true,
            Long("compare") => compare = true,
            Long("allocator") => {
                let name = arguments.value()?.string()?;
                if !face::BUILTIN.iter().any(|(known, _)| *known == name) {
                    return Err(format!("there is no allocator \"{name}\"").into());
                }
                wish.allocator = Some(name);
            }
            Long("device") => wish.device = Some(i32::from(arguments.value()?.parse::<u16>()?)),
            Long("limit") => wish.limit = Some(arguments.value()?.parse()?),
            Long("log") => wish.log = Some(arguments.value()?.string()?),
            Long("help") | Short('h') => return Ok(Wished::Usage),
            Long("version") | Short('V') => return Ok(Wished::Version),
            Value(file) => files.push(PathBuf::from(file)),
            other => return Err(other.unexpected()),
        }
    }
    let is_plain = !json && wish.allocator.is_none() && wish.device.is_none() && wish.limit.is_none();
    match (compare, <[PathBuf; 2]>::try_from(files)) {
        (true, Ok(_)) if !is_plain || wish.log.is_some() => {
            Err("--compare takes two logs and nothing else".into())
        }
        (true, Ok([a, b])) => Ok(Wished::Compare(a, b)),
        (true, Err(_)) => Err("--compare takes two logs".into()),
        (false, Err(mut files)) if files.len() == 1 => {
            let log = files.remove(0);
            let host = wish.allocator.as_deref().is_some_and(|name| name == "host" || name == "pinned");
            if host && wish.device.is_some() {
                return Err("--device names a GPU, and that allocator makes host memory".into());
            }
            Ok(Wished::Replay { log, wish, json })
        }
        (false, _) => Err("name one log".into()),
    }
}

fn complain(what: &str, status: u8) -> ExitCode {
    // Nothing can be done when that fails too.
    let _ = writeln!(std::io::stderr(), "warpmem-replay: {what}");
    ExitCode::from(status)
}
