//! How many instructions of the library the calls take that programs make most often, counted by callgrind on the simulated driver.
//! Times depend on the machine and on who else uses it; this does not. The bounds leave a quarter for other compilers.

use super::{Notes, Problem};
use crate::dist::{self, build_release};
use crate::programs;
use crate::shell::{Run, read_file};
use crate::tally::Tally;
use crate::tools;
use std::collections::HashMap;

/// The cases of `tests/instructions/cases.c`, and the most instructions of the library for each round of one.
const CASES: &[(&str, u64)] = &[
    ("cache_pair", 450),
    ("pinned_cache_pair", 450),
    ("default_cache_pair", 420),
    ("cut_and_join", 980),
    ("pool_pair", 2200),
    ("host_pair", 1400),
    ("pointer_info", 360),
    ("array_access", 150),
    ("error_path", 1300),
    ("other_code_host_pair", 2600),
    ("other_code_gpu_pair", 3250),
    ("small_copy", 1400),
    ("small_fill", 1800),
    ("event_record", 800),
];
/// What each case does.
const ROUNDS: u64 = 1000;

pub fn count(notes: &mut Notes) -> Result<Tally, Problem> {
    let Some(valgrind) = tools::on_path("valgrind") else {
        return Err(Problem::LeftOut("valgrind is not here".to_string()));
    };
    super::build_needed()?;
    build_release(&["warpmem"])?;
    let work = dist::fresh_folder("instructions")?;
    dist::install_library(&work)?;
    let binary = work.join("cases");
    for program in programs::in_folder("tests/instructions") {
        program.compile(&work, &work.display().to_string(), None, &binary)?;
    }
    let mut tally = Tally::default();
    for (case, most) in CASES {
        let profile = work.join(format!("{case}.out"));
        Run::new(&valgrind)
            .arg("--tool=callgrind")
            .arg(format!("--toggle-collect={case}"))
            .arg(format!("--callgrind-out-file={}", profile.display()))
            .arg(&binary)
            .arg(case)
            .env("WARPMEM_LIBCUDA", super::simulator())
            .env("WARPSIM_TOPOLOGY", "h200x2")
            .limit(120)
            .keep()?;
        let each = of_library(&read_file(&profile)?) / ROUNDS;
        println!("{case}: {each} instructions (at most {most})");
        // None at all would say that the case was not counted.
        let is_good = (1..=*most).contains(&each);
        if !is_good {
            notes
                .failures
                .push(format!("{case} takes {each} instructions of the library, and may take 1 to {most}"));
        }
        tally += Tally::of_one(is_good);
    }
    Ok(tally)
}

/// The instructions in the functions of libwarpmem, by callgrind's own file format: lines of costs belong to the object that was
/// named last, but for the line behind `calls=`, which has those of a function that is called.
fn of_library(profile: &str) -> u64 {
    let mut names: HashMap<&str, bool> = HashMap::new();
    let (mut ours, mut is_calls, mut sum) = (false, false, 0);
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            let (number, name) = object.split_once(' ').unwrap_or((object, ""));
            if !name.is_empty() {
                names.insert(number, name.contains("libwarpmem"));
            }
            ours = names.get(number).copied().unwrap_or(false);
        } else if let Some(object) = line.strip_prefix("cob=") {
            if let Some((number, name)) = object.split_once(' ') {
                names.insert(number, name.contains("libwarpmem"));
            }
        } else if line.starts_with("calls=") {
            is_calls = true;
        } else if line
            .starts_with(|first: char| first.is_ascii_digit() || first == '+' || first == '-' || first == '*')
        {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
            if ours && !is_calls {
                sum += cost.unwrap_or(0);
            }
            is_calls = false;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::of_library;

    #[test]
    fn only_costs_of_the_library_itself_count() {
        let profile = "events: Ir\n\nob=(1) /lib/libc.so.6\nfn=(1) malloc\n12 7\n\nob=(2) /x/libwarpmem.so.0.1\nfn=(2) warp_free\n\
                       10 5\n+3 2\ncob=(1)\ncfn=(1)\ncalls=3 12\n11 700\n* 1\n\nob=(1)\nfn=(3) free\n4 9\n\nob=(2)\nfn=(4) x\n-2 40\n";
        assert_eq!(of_library(profile), 48);
    }
}
