//! `cargo xtask test`: every test that there is, cheap ones first, and one line that sums them up.

mod consumers;
mod instructions;
mod native;
mod rust;

use crate::shell::{Run, root};
use crate::tally::Tally;
use crate::{dist, tools};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

/// How a step ends when it does not end with a count.
pub enum Problem {
    /// It could not be run at all: what is missing.
    LeftOut(String),
    Failed(String),
}

impl From<String> for Problem {
    fn from(message: String) -> Problem {
        Problem::Failed(message)
    }
}

/// What a step has to say besides its count.
#[derive(Default)]
pub struct Notes {
    pub left_out: Vec<String>,
    /// Output of what failed, for the reader who looks for the reason.
    pub failures: Vec<String>,
}

type StepRun = fn(&mut Notes) -> Result<Tally, Problem>;

struct Step {
    name: &'static str,
    about: &'static str,
    run: StepRun,
}

const STEPS: &[Step] = &[
    Step { name: "format", about: "rustfmt finds nothing to change", run: rust::format },
    Step { name: "lint", about: "clippy finds nothing to say", run: rust::lint },
    Step { name: "build", about: "the library and the simulated driver are built", run: rust::build },
    Step { name: "rust", about: "the Rust tests of all packages", run: rust::test },
    Step {
        name: "facts",
        about: "the simulated driver answers the fact probes as a real one did",
        run: facts,
    },
    Step { name: "c", about: "the C and C++ tests and the examples, by ctest", run: native::ctest },
    Step { name: "python", about: "the ctypes tests", run: python },
    Step {
        name: "consumers",
        about: "outside projects that use an installed library",
        run: consumers::installed,
    },
    Step { name: "dist", about: "outside projects that use the release archive", run: consumers::archive },
    Step { name: "demo", about: "the tour runs on what is here", run: demo },
    Step {
        name: "kit",
        about: "what goes to GPU machines builds and is small, and its benchmarks run",
        run: kit,
    },
    Step {
        name: "instructions",
        about: "the calls that are made most often take few instructions",
        run: instructions::count,
    },
    Step { name: "valgrind", about: "C and C++ tests once more, under valgrind", run: native::valgrind },
    Step {
        name: "sanitize",
        about: "the same and more with the compiler's sanitizers",
        run: native::sanitize,
    },
    Step { name: "abidiff", about: "the binary interface against that of the last release", run: abidiff },
];

pub fn command(arguments: &[String]) -> Result<(), String> {
    if arguments.iter().any(|argument| argument == "--list") {
        for step in STEPS {
            println!("{:10} {}", step.name, step.about);
        }
        return Ok(());
    }
    let asked: BTreeSet<&str> = arguments.iter().map(String::as_str).collect();
    if let Some(unknown) = asked.iter().find(|name| !STEPS.iter().any(|step| step.name == **name)) {
        return Err(format!("there is no step {unknown}; `cargo xtask test --list` names them"));
    }
    let chosen: Vec<&Step> =
        STEPS.iter().filter(|step| asked.is_empty() || asked.contains(step.name)).collect();

    let mut rows = Vec::new();
    let mut left_out = Vec::new();
    let mut total = Tally::default();
    for step in &chosen {
        println!("-- {}: {}", step.name, step.about);
        let start = Instant::now();
        let mut notes = Notes::default();
        let tally = match (step.run)(&mut notes) {
            Ok(tally) => tally,
            // Asked for by its name, a step that cannot run has failed.
            Err(Problem::LeftOut(reason)) if asked.is_empty() => {
                notes.left_out.push(reason);
                Tally::default()
            }
            Err(Problem::LeftOut(reason) | Problem::Failed(reason)) => {
                notes.failures.push(reason);
                Tally::FAILED
            }
        };
        for failure in &notes.failures {
            println!("{failure}");
        }
        total += tally;
        left_out.extend(notes.left_out.iter().map(|reason| format!("{}: {reason}", step.name)));
        rows.push((step.name, tally, start.elapsed()));
    }

    println!("\n{:10} {:>8} {:>8} {:>9}", "step", "passed", "failed", "seconds");
    for (name, tally, time) in &rows {
        println!("{name:10} {:>8} {:>8} {:>9.1}", tally.passed, tally.failed, time.as_secs_f64());
    }
    for reason in &left_out {
        println!("left out: {reason}");
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    if total.failed == 0 { Ok(()) } else { Err(String::new()) }
}

/// The library as `cargo build` makes it.
pub fn library() -> PathBuf {
    dist::target_folder().join("debug/libwarpmem.so")
}

/// The simulated driver as `cargo build` makes it.
pub fn simulator() -> PathBuf {
    dist::target_folder().join("debug/libwarpsim.so")
}

fn facts(notes: &mut Notes) -> Result<Tally, Problem> {
    let script = root().join("tests/facts/compare.py");
    if !script.is_file() {
        return Err(Problem::LeftOut("there is no tests/facts/compare.py".to_string()));
    }
    let include = tools::cuda_headers().map_err(Problem::LeftOut)?;
    let python = tools::python().map_err(Problem::LeftOut)?;
    build_needed()?;
    let finished = Run::new(python)
        .arg(script)
        .arg("--include")
        .arg(include)
        .arg("--driver")
        .arg(simulator())
        .arg("--out")
        .arg(dist::fresh_folder("facts")?)
        .finish(false)?;
    let tally = Tally::of_last_line(&finished.output).unwrap_or_default().with_exit(finished.success);
    notes.left_out.extend(
        finished.output.lines().filter_map(|line| line.strip_prefix("left out: ")).map(str::to_string),
    );
    if tally.failed != 0 {
        notes.failures.push(finished.output);
    }
    Ok(tally)
}

fn python(notes: &mut Notes) -> Result<Tally, Problem> {
    let tests = root().join("tests/python");
    if !tests.is_dir() {
        return Err(Problem::LeftOut("there is no tests/python".to_string()));
    }
    let python = tools::python().map_err(Problem::LeftOut)?;
    build_needed()?;
    let finished = Run::new(python)
        .args(["-B", "-m", "unittest", "discover", "-v", "-s"])
        .arg(tests)
        .env("WARPMEM_LIBRARY", library())
        .env("WARPMEM_LIBCUDA", simulator())
        .env("WARPSIM_TOPOLOGY", "h200x2")
        .finish(false)?;
    let (tally, skipped) = Tally::of_unittest(&finished.output);
    let mut tally = tally.with_exit(finished.success);
    if skipped != 0 {
        let named = finished.output.lines().filter(|line| line.contains("... skipped "));
        // Two are simulated.
        let (lacking, others): (Vec<&str>, Vec<&str>) = named.partition(|line| line.contains("GPU"));
        for line in lacking {
            notes.failures.push(format!("skipped for want of GPUs that are there: {line}"));
            tally += Tally::FAILED;
        }
        notes.left_out.extend(others.into_iter().map(str::to_string));
    }
    if tally.failed != 0 {
        notes.failures.push(finished.output);
    }
    Ok(tally)
}

fn demo(_: &mut Notes) -> Result<Tally, Problem> {
    crate::demo::command()?;
    Ok(Tally::of_one(true))
}

fn kit(notes: &mut Notes) -> Result<Tally, Problem> {
    crate::kit::command()?;
    build_needed()?;
    let mut tally = Tally::of_one(true);
    tally += crate::bench::try_all(&root().join("gpu-kit"), &simulator(), &mut notes.failures)?;
    Ok(tally)
}

/// A step that is run alone builds what it tests.
pub fn build_needed() -> Result<(), Problem> {
    rust::build_library_and_simulator().map_err(Problem::Failed)
}

fn abi_baseline() -> PathBuf {
    root().join(format!("tests/abi/warpmem-{}.abi", dist::series()))
}

fn abidiff(notes: &mut Notes) -> Result<Tally, Problem> {
    let Some(tool) = tools::on_path("abidiff") else {
        return Err(Problem::LeftOut("abidiff is not here".to_string()));
    };
    let baseline = abi_baseline();
    if !baseline.is_file() {
        return Err(Problem::LeftOut(format!("there is no {}", dist::shown(&baseline))));
    }
    build_needed()?;
    let finished = Run::new(tool).arg("--no-added-syms").arg(baseline).arg(library()).finish(false)?;
    if !finished.success {
        notes.failures.push(finished.output);
    }
    Ok(Tally::of_one(finished.success))
}

/// Writes what abidiff compares with, where the tool for it is present.
pub fn write_abi_baseline() -> Result<(), String> {
    let Some(tool) = tools::on_path("abidw") else {
        println!("left out: the record for abidiff, for want of abidw");
        return Ok(());
    };
    rust::build_library_and_simulator()?;
    Run::new(tool).arg("--out-file").arg(abi_baseline()).arg(library()).keep().map(drop)
}
