//! The C and C++ tests and the examples, built by CMake and run by ctest: as they are, and under valgrind.

use super::{Notes, Problem};
use crate::dist::target_folder;
use crate::shell::{Run, build_folder, root};
use crate::tally::Tally;
use crate::tools::{self, CMake};
use std::path::Path;

const VALGRIND: &str = "valgrind;--quiet;--error-exitcode=9;--leak-check=full;--show-leak-kinds=definite,indirect;\
                        --errors-for-leak-kinds=definite,indirect;--fair-sched=yes;--child-silent-after-fork=yes";

pub fn ctest(notes: &mut Notes) -> Result<Tally, Problem> {
    let tools = tools::cmake().map_err(Problem::LeftOut)?;
    let build = build_folder("cmake");
    build_project(&tools, root(), &build, &project_options())?;
    run_ctest(notes, &tools, &build, &[])
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
    // What the tests leave out themselves has been said without valgrind.
    let said = notes.left_out.len();
    let tally = run_ctest(notes, &tools, &build, &["--label-exclude", "no-valgrind"]);
    notes.left_out.truncate(said);
    tally
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

fn run_ctest(notes: &mut Notes, tools: &CMake, build: &Path, options: &[&str]) -> Result<Tally, Problem> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let finished = Run::new(&tools.ctest)
        .arg("--test-dir")
        .arg(build)
        .args(["--verbose", "--no-tests=error", "--parallel", &jobs])
        .args(options)
        .limit(1500)
        .finish(false)?;
    let tally = Tally::of_ctest(&finished.output).with_exit(finished.success);
    let (failures, left_out) = Tally::words_of_ctest(&finished.output);
    notes.left_out.extend(left_out);
    if tally.failed != 0 {
        notes.failures.push(if failures.is_empty() { finished.output } else { failures });
    }
    Ok(tally)
}
