//! The C and C++ tests and the examples, built by CMake and run by ctest: as they are, and under valgrind.

use super::{Notes, Problem};
use crate::dist::{self, target_folder};
use crate::programs;
use crate::shell::{Run, build_folder, root, write_file};
use crate::tally::Tally;
use crate::tools::{self, CMake};
use std::path::Path;

const VALGRIND: &str = "valgrind;--quiet;--error-exitcode=9;--leak-check=full;--show-leak-kinds=definite,indirect;\
                        --errors-for-leak-kinds=definite,indirect;--fair-sched=yes;--child-silent-after-fork=yes";

const SANITIZE: &str = "-fsanitize=address,undefined";

pub fn ctest(notes: &mut Notes) -> Result<Tally, Problem> {
    let tools = match tools::cmake() {
        Ok(tools) => tools,
        Err(reason) => {
            notes.left_out.push(format!("CMake's part, the programs are compiled without it: {reason}"));
            return without_cmake(notes);
        }
    };
    let build = build_folder("cmake");
    build_project(&tools, root(), &build, &project_options())?;
    run_ctest(notes, &tools, &build, None)
}

pub fn valgrind(notes: &mut Notes) -> Result<Tally, Problem> {
    let Some(valgrind) = tools::on_path("valgrind") else {
        return Err(Problem::LeftOut("valgrind is not here".to_string()));
    };
    let tools = tools::cmake().map_err(Problem::LeftOut)?;
    let build = build_folder("valgrind");
    let launcher = VALGRIND.replacen("valgrind", &valgrind.display().to_string(), 1);
    let mut options = project_options();
    options.push(format!("-DWARPMEM_TEST_LAUNCHER={launcher}"));
    build_project(&tools, root(), &build, &options)?;
    again_under(notes, &tools, &build, "valgrind")
}

fn again_under(notes: &mut Notes, tools: &CMake, build: &Path, watcher: &str) -> Result<Tally, Problem> {
    // What the tests leave out themselves has been said by the run without a watcher.
    let said = notes.left_out.len();
    let tally = run_ctest(notes, tools, build, Some(watcher));
    notes.left_out.truncate(said);
    tally
}

/// The programs of C and C++ once more, with the compiler's own checks of memory and undefined behaviour in them.
pub fn sanitize(notes: &mut Notes) -> Result<Tally, Problem> {
    let tools = tools::cmake().map_err(Problem::LeftOut)?;
    let work = dist::fresh_folder("sanitize-probe")?;
    let probe = work.join("probe.c");
    write_file(&probe, "int main(void) { return 0; }\n")?;
    let compiled =
        Run::new(tools::c_compiler()).arg(SANITIZE).arg(&probe).arg("-o").arg(work.join("probe")).keep();
    if compiled.is_err() || Run::new(work.join("probe")).keep().is_err() {
        return Err(Problem::LeftOut(format!("the C compiler has no working {SANITIZE}")));
    }
    let build = build_folder("sanitize");
    let mut options = project_options();
    for language in ["C", "CXX"] {
        options.push(format!("-DCMAKE_{language}_FLAGS={SANITIZE} -fno-sanitize-recover=all -g"));
    }
    build_project(&tools, root(), &build, &options)?;
    again_under(notes, &tools, &build, "sanitizer")
}

/// Options of our own project: cargo's debug profile, in the folder where cargo builds anyway.
pub fn project_options() -> Vec<String> {
    vec![
        "-DCMAKE_BUILD_TYPE=Debug".to_string(),
        format!("-DWARPMEM_CARGO_TARGET_DIR={}", target_folder().display()),
    ]
}

/// Configures and builds a project.
pub fn build_project(tools: &CMake, source: &Path, build: &Path, options: &[String]) -> Result<(), String> {
    configure(tools, source, build, options)?;
    Run::new(&tools.cmake).arg("--build").arg(build).arg("--parallel").keep().map(drop)
}

pub fn configure(tools: &CMake, source: &Path, build: &Path, options: &[String]) -> Result<String, String> {
    let mut run = Run::new(&tools.cmake).arg("-S").arg(source).arg("-B").arg(build);
    if let Some(ninja) = &tools.ninja {
        run = run.args(["-G", "Ninja"]).arg(format!("-DCMAKE_MAKE_PROGRAM={}", ninja.display()));
    }
    run.args(options).keep()
}

/// The same programs in the same surroundings, compiled and run one by one.
fn without_cmake(notes: &mut Notes) -> Result<Tally, Problem> {
    super::build_needed()?;
    let work = dist::fresh_folder("programs")?;
    let library = work.join("lib");
    dist::link_library(&super::library(), &library)?;
    let mut tally = Tally::default();
    for folder in ["examples-c", "examples-cpp", "tests/c", "tests/cpp", "tests/gpu"] {
        for program in programs::in_folder(folder) {
            let name = format!("{folder}/{}", program.stem);
            let binary = work.join(name.replace('/', "-"));
            if let Err(error) = program.compile(&library, &library.display().to_string(), None, &binary) {
                notes.failures.push(error);
                tally += Tally::FAILED;
                continue;
            }
            let topologies = if program.runs_simulated()? { program.topologies()? } else { Vec::new() };
            for topology in topologies {
                tally += run_program(notes, &binary, &format!("{name}@{topology}"), &topology)?;
            }
        }
    }
    Ok(tally)
}

fn run_program(notes: &mut Notes, binary: &Path, name: &str, topology: &str) -> Result<Tally, Problem> {
    let run = Run::new(binary).limit(300);
    let run = match topology {
        "-" => run.env("WARPMEM_LIBCUDA", "/nonexistent/libcuda.so.1"),
        _ => run.env("WARPMEM_LIBCUDA", super::simulator()).env("WARPSIM_TOPOLOGY", topology),
    };
    let finished = run.finish(false)?;
    let tally = match Tally::of_last_line(&finished.output) {
        Some(own) => own.with_exit(finished.success),
        None => Tally::of_one(finished.success),
    };
    let skipped = finished.output.lines().filter(|line| line.contains(" left out: "));
    notes.left_out.extend(skipped.map(|line| format!("{name}: {line}")));
    if tally.failed != 0 {
        notes.failures.push(format!("{name}\n{}", finished.output));
    }
    Ok(tally)
}

fn run_ctest(
    notes: &mut Notes,
    tools: &CMake,
    build: &Path,
    watcher: Option<&str>,
) -> Result<Tally, Problem> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let mut run = Run::new(&tools.ctest)
        .arg("--test-dir")
        .arg(build)
        .args(["--verbose", "--no-tests=error", "--parallel", &jobs])
        .limit(1500);
    if let Some(watcher) = watcher {
        let spared = if watcher == "valgrind" { "unwatched|slow-valgrind" } else { "unwatched" };
        run = run
            .args(["--label-exclude", spared])
            .env("WARPMEM_TEST_UNDER", watcher)
            // A size that no machine has is an error to be reported, as malloc does, and no reason to abort.
            .env("ASAN_OPTIONS", "allocator_may_return_null=1");
    }
    let finished = run.finish(false)?;
    let tally = Tally::of_ctest(&finished.output).with_exit(finished.success);
    let (failures, left_out) = Tally::words_of_ctest(&finished.output);
    notes.left_out.extend(left_out);
    if tally.failed != 0 {
        notes.failures.push(if failures.is_empty() { finished.output } else { failures });
    }
    Ok(tally)
}
