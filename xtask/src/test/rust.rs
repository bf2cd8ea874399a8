//! The steps that are cargo's.

use super::{Notes, Problem, simulator};
use crate::shell::Run;
use crate::tally::Tally;

pub fn format(notes: &mut Notes) -> Result<Tally, Problem> {
    one(notes, Run::cargo(["fmt", "--all", "--check"]))
}

pub fn lint(notes: &mut Notes) -> Result<Tally, Problem> {
    one(
        notes,
        Run::cargo(["clippy", "--quiet", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]),
    )
}

pub fn build(_: &mut Notes) -> Result<Tally, Problem> {
    build_library_and_simulator()?;
    Ok(Tally::PASSED)
}

pub fn build_library_and_simulator() -> Result<(), String> {
    Run::cargo(["build", "--quiet", "--locked", "--package", "warpmem", "--package", "warpsim", "--lib"])
        .keep()
        .map(drop)
}

pub fn test(notes: &mut Notes) -> Result<Tally, Problem> {
    // Cargo builds the simulated driver as a library file only when it is asked for, not for the tests of another package.
    build_library_and_simulator()?;
    // Compiled first, so that the time limit below is the tests' own.
    Run::cargo(["test", "--quiet", "--workspace", "--locked", "--no-run"]).keep()?;
    let finished = Run::cargo(["test", "--workspace", "--locked", "--no-fail-fast"])
        .limit(600)
        .env("WARPMEM_LIBCUDA", simulator())
        .without_env("WARPSIM_TOPOLOGY")
        .finish(false)?;
    let (tally, ignored) = Tally::of_cargo_test(&finished.output);
    let tally = tally.with_exit(finished.success);
    if ignored != 0 {
        notes.left_out.push(format!("{ignored} tests that are marked as ignored"));
    }
    if tally.failed != 0 {
        notes.failures.push(without_successes(&finished.output));
    }
    Ok(tally)
}

/// What is left of cargo's output when the tests that passed are not named.
fn without_successes(output: &str) -> String {
    let told = |line: &&str| {
        let passed =
            line.starts_with("test ") && (line.ends_with("... ok") || line.starts_with("test result: ok"));
        let heading = line.starts_with("running ")
            || line.starts_with("     Running ")
            || line.starts_with("   Doc-tests ");
        !(passed || heading || line.is_empty())
    };
    output.lines().filter(told).collect::<Vec<_>>().join("\n")
}

/// A command that is one test.
fn one(notes: &mut Notes, run: Run) -> Result<Tally, Problem> {
    let finished = run.finish(false)?;
    if !finished.success {
        notes.failures.push(finished.output);
    }
    Ok(Tally::of_one(finished.success))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_not_lost_among_successes() {
        let output = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\n---- b stdout ----\npanicked\n\
                      test result: FAILED. 1 passed; 1 failed\n\nrunning 1 test\ntest c ... ok\n\n\
                      test result: ok. 1 passed; 0 failed\n";
        let left = "test b ... FAILED\n---- b stdout ----\npanicked\ntest result: FAILED. 1 passed; 1 failed";
        assert_eq!(without_successes(output), left);
    }
}
