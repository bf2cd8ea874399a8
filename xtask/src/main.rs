//! The commands of the README: `cargo xtask <command>`.

mod bench;
mod demo;
mod dist;
mod kit;
mod programs;
mod shell;
mod tally;
mod test;
mod tools;

use shell::{Run, root};

const USAGE: &str = "\
cargo xtask <command>

  test [STEP ...]   run everything, or the steps named (`test --list` names them); ends with `N passed, N failed`
  demo              build the library and the tour, and run it on the GPUs that are here, or on two simulated ones
  dist              make dist/warpmem-VERSION-TARGET, an installed tree, and its archive
  gpu-kit           make gpu-kit/, all that is needed to test and measure on a machine with a GPU and without Rust
  bench [NAME ...]  run the benchmarks, or those named: one table, one JSON file, two plots (`bench --help`)
  header            write include/warpmem.h from src/ffi
  bless             accept today's header, symbols and layouts as the committed ones
";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let done = match command {
        "test" => test::command(rest),
        "demo" => demo::command(),
        "dist" => dist::command(),
        "gpu-kit" => kit::command(),
        "bench" => bench::command(rest),
        "header" => bless("header::"),
        "bless" => bless("header::").and_then(|()| bless("")).and_then(|()| test::write_abi_baseline()),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(format!("there is no command {other}\n\n{USAGE}")),
    };
    if let Err(error) = done {
        // A run of the tests has said all there is to say in its last line.
        if !error.is_empty() {
            eprintln!("{error}");
        }
        std::process::exit(1);
    }
}

/// Lets the tests of the binary interface write what they would compare with. The header comes before what is read from it.
fn bless(filter: &str) -> Result<(), String> {
    std::fs::create_dir_all(root().join("include")).map_err(|error| error.to_string())?;
    Run::cargo(["test", "--quiet", "--locked", "--package", "warpmem", "--test", "abi", filter])
        .env("WARPMEM_BLESS", "1")
        .show()
}
