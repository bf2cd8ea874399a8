//! `cargo xtask gpu-kit`: one folder with all that is needed to test and measure on a machine that has a GPU and no Rust.

use crate::dist::{build_release, install_library, install_programs, shown};
use crate::programs::{self, Program};
use crate::shell::{Run, copy_as, copy_tree, make_folder, read_file, remove_folder, root, write_file};
use crate::tools::cuda_headers;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

const LIMIT_BYTES: u64 = 60_000_000;
const RUN: &str = include_str!("kit-run.sh");

pub fn command() -> Result<(), String> {
    build_release(&["warpmem"])?;
    let kit = root().join("gpu-kit");
    remove_folder(&kit)?;
    install_library(&kit.join("lib"))?;
    // Not among the tests in bin: what it prints is shown.
    install_programs(&kit)?;
    copy_tree(&root().join("include"), &kit.join("include"))?;
    make_folder(&kit.join("bin"))?;
    let folders = ["examples-c", "examples-cpp", "tests/c", "tests/cpp", "tests/gpu"];
    let programs: Vec<Program> = folders.into_iter().flat_map(programs::in_folder).collect();
    each_at_once(&programs, |program| add_program(program, &kit))?;
    for program in programs::in_folder("benches") {
        let binary = kit.join("bench").join(&program.stem);
        make_folder(&kit.join("bench"))?;
        program.compile(&kit.join("lib"), "$ORIGIN/../lib", None, &binary)?;
        strip(&binary)?;
    }
    for bench in benches()? {
        add_bench(&bench, &kit)?;
    }
    let folders = [
        ("tests/python", "python"),
        ("examples-python", "examples-python"),
        ("tests/gpu", "gpu"),
        ("benches/peers", "peers"),
    ];
    for (from, to) in folders {
        copy_tree(&root().join(from), &kit.join(to))?;
    }
    let run = kit.join("run.sh");
    write_file(&run, RUN)?;
    Run::new("chmod").arg("+x").arg(&run).keep()?;
    let size = size_of_tree(&kit)?;
    println!("{}: {:.1} MB", shown(&kit), size as f64 / 1e6);
    if size > LIMIT_BYTES {
        return Err(format!("the kit has {size} bytes, more than the {LIMIT_BYTES} that it may have"));
    }
    Ok(())
}

/// Does something for each, as many at a time as there are cores; answers the first failure.
fn each_at_once<T: Sync>(all: &[T], work: impl Fn(&T) -> Result<(), String> + Sync) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let until_none_is_left = || {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(one)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(until_none_is_left)).collect();
        let ended = workers.into_iter().map(|worker| worker.join().expect("a worker does not panic"));
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

fn add_program(program: &Program, kit: &Path) -> Result<(), String> {
    if !program.runs_on_hardware()? {
        println!("left out: {} is for the simulated driver", shown(&program.source));
        return Ok(());
    }
    let binary = kit.join("bin").join(format!("{}-{}", program.folder.replace('/', "-"), program.stem));
    let cuda =
        if read_file(&program.source)?.contains("#include <cuda.h>") { Some(cuda_headers()?) } else { None };
    program.compile(&kit.join("lib"), "$ORIGIN/../lib", cuda.as_deref(), &binary)?;
    strip(&binary)
}

fn add_bench(bench: &Path, kit: &Path) -> Result<(), String> {
    let name = bench.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // Cargo puts a hash behind the name.
    let name = name.rsplit_once('-').map_or(name.as_str(), |(stem, _)| stem);
    let copy = copy_as(bench, &kit.join("bench").join(name))?;
    strip(&copy)
}

fn strip(binary: &Path) -> Result<(), String> {
    Run::new("strip").arg("--strip-unneeded").arg(binary).keep().map(drop)
}

/// Builds the benchmarks; answers their executables.
fn benches() -> Result<Vec<PathBuf>, String> {
    if crate::shell::files_in(&root().join("benches"), &["rs"]).is_empty() {
        println!("left out: there are no benchmarks");
        return Ok(Vec::new());
    }
    let output = Run::cargo(["build", "--release", "--locked", "--package", "warpmem", "--bench", "*"])
        .arg("--message-format=json-render-diagnostics")
        .keep()
        .map_err(|error| {
            error.lines().filter(|line| !line.starts_with('{')).collect::<Vec<_>>().join("\n")
        })?;
    Ok(output.lines().filter(|line| line.contains("\"kind\":[\"bench\"]")).filter_map(executable).collect())
}

/// The executable that one of cargo's messages names.
fn executable(message: &str) -> Option<PathBuf> {
    let (_, rest) = message.split_once("\"executable\":\"")?;
    rest.split('"').next().map(PathBuf::from)
}

fn size_of_tree(folder: &Path) -> Result<u64, String> {
    let mut size = 0;
    for entry in std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let path = entry.map_err(|error| error.to_string())?.path();
        let data =
            std::fs::symlink_metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        size += if data.is_dir() { size_of_tree(&path)? } else { data.len() };
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_is_read_from_a_message() {
        let message = r#"{"reason":"x","target":{"kind":["bench"]},"executable":"/t/release/deps/pools-0a","fresh":true}"#;
        assert_eq!(executable(message), Some(PathBuf::from("/t/release/deps/pools-0a")));
        assert_eq!(executable(r#"{"executable":null}"#), None);
    }
}
