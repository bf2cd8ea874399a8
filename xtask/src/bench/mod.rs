//! `cargo xtask bench`: the programs of `benches/`, one after another, and what they found as one file, one table and two plots.

mod plot;
mod results;
mod table;

use crate::dist::{build_release, link_library, release_folder, shown};
use crate::shell::{Run, make_folder, read_file, root, write_file};
use crate::tally::Tally;
use crate::{dist, kit};
use results::Results;
use std::path::Path;
use std::time::Instant;

const USAGE: &str = "\
cargo xtask bench [NAME ...]          run all that benches/plan.txt has, or those named, on the simulated driver
cargo xtask bench --gpu [NAME ...]    the same on the GPU of this machine, beside the libraries that are installed here
cargo xtask bench --from FILE ...     make the table and the plots from what other runs wrote, here or on another machine
";

const PLAN: &str = include_str!("../../../benches/plan.txt");

/// One program of the plan with its arguments: on a GPU, on the simulator, and for a trial; `None` where it is not run unless
/// somebody names it.
struct Planned {
    name: &'static str,
    arguments: [Option<Vec<&'static str>>; 3],
}

#[derive(Clone, Copy)]
enum Surroundings {
    Gpu,
    Simulator,
    Trial,
}

pub fn command(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--help" | "-h", ..] => {
            print!("{USAGE}");
            Ok(())
        }
        ["--from", files @ ..] if !files.is_empty() => {
            let mut results = Results::default();
            for file in files {
                results.read(&read_file(Path::new(file))?);
            }
            publish(&results)
        }
        ["--gpu", names @ ..] => run_and_publish(names, Surroundings::Gpu),
        names => run_and_publish(names, Surroundings::Simulator),
    }
}

fn run_and_publish(names: &[&str], surroundings: Surroundings) -> Result<(), String> {
    let plan = plan();
    if let Some(unknown) = names.iter().find(|name| !plan.iter().any(|planned| planned.name == **name)) {
        let known: Vec<&str> = plan.iter().map(|planned| planned.name).collect();
        return Err(format!("there is no benchmark {unknown}; there are {}\n\n{USAGE}", known.join(", ")));
    }
    println!("building, which takes a minute or two the first time");
    build_release(&["warpmem", "warpsim"])?;
    let folder = dist::fresh_folder("bench")?;
    link_library(&release_folder().join("libwarpmem.so"), &folder.join("lib"))?;
    let bench = folder.join("bench");
    kit::compile_benches(&folder.join("lib"), &bench)?;
    if names.iter().any(|name| !bench.join(name).is_file()) {
        kit::add_cargo_benches(&bench)?;
    }
    let mut results = Results::default();
    let line = ["cargo xtask bench", if matches!(surroundings, Surroundings::Gpu) { "--gpu" } else { "" }]
        .into_iter()
        .chain(names.iter().copied())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>();
    results.about = about(surroundings, &line.join(" "));
    let mimalloc = kit::mimalloc();
    let peers = match surroundings {
        Surroundings::Gpu => peers(&folder, &mut results),
        _ => {
            for library in ["RMM", "PyTorch", "CuPy", "Warp"] {
                results.absent(library, "the simulated driver serves no CUDA runtime");
            }
            String::new()
        }
    };
    for planned in &plan {
        let arguments = planned.arguments(surroundings);
        let chosen = if names.is_empty() { arguments.is_some() } else { names.contains(&planned.name) };
        if !chosen {
            continue;
        }
        let start = Instant::now();
        let mut run = Run::new(bench.join(planned.name)).args(arguments.unwrap_or_default());
        if let Some(file) = &mimalloc {
            run = run.env("WARPMEM_BENCH_MIMALLOC", file);
        }
        run = in_surroundings(run, surroundings, &release_folder().join("libwarpsim.so"));
        let finished = run.env("WARPMEM_BENCH_PEERS", &peers).limit(600).finish(false)?;
        results.read(&finished.output);
        println!("{:16} {:6.1} s", planned.name, start.elapsed().as_secs_f64());
        if !finished.success {
            println!("{}", finished.output.trim_end());
            return Err(format!("{} failed", planned.name));
        }
        let has_results = finished.output.lines().any(|line| line.starts_with("{\"bench\""));
        for line in finished.output.lines().filter(|line| !has_results || results::says_nothing(line)) {
            println!("    {line}");
        }
    }
    if matches!(surroundings, Surroundings::Gpu) {
        results.read(&python_peers(&folder)?);
    }
    publish(&results)
}

fn in_surroundings(run: Run, surroundings: Surroundings, simulator: &Path) -> Run {
    let run = run.env("WARPMEM_BENCH_JSON", "1");
    match surroundings {
        Surroundings::Gpu => run,
        _ => run.env("WARPMEM_LIBCUDA", simulator).env("WARPSIM_TOPOLOGY", "h200x2"),
    }
}

/// Runs each of the kit's benchmarks as shortly as it can be run, on the simulator: they end, and say something.
pub fn try_all(kit: &Path, simulator: &Path, failures: &mut Vec<String>) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for planned in plan() {
        let Some(arguments) = planned.arguments(Surroundings::Trial) else { continue };
        let run = Run::new(kit.join("bench").join(planned.name)).args(arguments).limit(60);
        let finished = in_surroundings(run, Surroundings::Trial, simulator).finish(false)?;
        let mut results = Results::default();
        results.read(&finished.output);
        let works = finished.success && !results.rows.is_empty();
        if !works {
            failures.push(format!("{}:\n{}", planned.name, finished.output));
        }
        tally += Tally::of_one(works);
    }
    Ok(tally)
}

impl Planned {
    fn arguments(&self, surroundings: Surroundings) -> Option<Vec<&'static str>> {
        self.arguments[surroundings as usize].clone()
    }
}

fn plan() -> Vec<Planned> {
    PLAN.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let mut parts = line.split('|').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let arguments = [(); 3].map(|()| match parts.next() {
                None | Some("-") => None,
                Some(words) => Some(words.split_whitespace().collect()),
            });
            Planned { name, arguments }
        })
        .collect()
}

/// Builds the files of other libraries that are installed here; answers them with colons between.
fn peers(folder: &Path, results: &mut Results) -> String {
    let built = Run::new("bash")
        .arg(root().join("benches/peers/build.sh"))
        .arg(folder.join("peers"))
        .arg(folder.join("bench/pairs"))
        .limit(200)
        .finish(false);
    let output = built.map(|finished| finished.output).unwrap_or_default();
    results.read(&output);
    let files = output.lines().filter_map(|line| line.strip_prefix("built: "));
    files.collect::<Vec<_>>().join(":")
}

fn python_peers(folder: &Path) -> Result<String, String> {
    let python = crate::tools::python()?;
    let log = folder.join("trace-1.log");
    Run::new(folder.join("bench/trace")).args(["--make", "1"]).arg(&log).keep()?;
    let script = root().join("benches/peers/python_peers.py");
    Ok(Run::new(python).arg("-B").arg(script).arg(log).limit(120).finish(false)?.output)
}

fn about(surroundings: Surroundings, command: &str) -> Vec<(String, String)> {
    let machine = match surroundings {
        Surroundings::Gpu => format!("{}, {}", gpu_name(), processor()),
        _ => format!("simulated GPUs, {}", processor()),
    };
    let date = Run::new("date").args(["-u", "+%F"]).keep().unwrap_or_default();
    [("machine", machine.as_str()), ("date", date.trim()), ("command", command)]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .to_vec()
}

fn gpu_name() -> String {
    let asked =
        Run::new("nvidia-smi").args(["--query-gpu=name,driver_version", "--format=csv,noheader"]).keep();
    asked.map_or_else(|_| "a GPU".to_string(), |text| text.trim().replace('\n', "; "))
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named =
        text.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores of {}", named.map_or("a processor", |(_, name)| name.trim()))
}

/// Writes the file and the plots, and shows the table.
fn publish(results: &Results) -> Result<(), String> {
    if results.rows.is_empty() {
        println!("no line of a table");
        return Ok(());
    }
    let folder = dist::target_folder().join("bench");
    make_folder(&folder)?;
    write_file(&folder.join("results.json"), &results.to_json())?;
    let table = table::markdown(results);
    write_file(&folder.join("table.md"), &table)?;
    let mut written = vec!["results.json".to_string(), "table.md".to_string()];
    for (name, picture) in [("scaling.svg", plot::scaling(results)), ("latency.svg", plot::latency(results))]
    {
        let file = folder.join(name);
        match picture {
            Some(picture) => {
                write_file(&file, &picture)?;
                written.push(name.to_string());
            }
            // That of an earlier run would pass for this one's.
            None if file.exists() => std::fs::remove_file(&file).map_err(|error| error.to_string())?,
            None => {}
        }
    }
    println!("\n{table}\nin {}: {}", shown(&folder), written.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_names_every_benchmark_and_nothing_else() {
        let mut planned: Vec<String> = plan().iter().map(|planned| planned.name.to_string()).collect();
        let mut there: Vec<String> = crate::shell::files_in(&root().join("benches"), &["c", "cpp", "rs"])
            .iter()
            .filter_map(|file| Some(file.file_stem()?.to_string_lossy().into_owned()))
            .collect();
        planned.sort();
        there.sort();
        assert_eq!(planned, there);
        assert_eq!(crate::programs::in_folder("benches").len() + 2, there.len());
    }

    #[test]
    fn a_line_of_the_plan_has_arguments_for_each_surroundings() {
        let plan = plan();
        let copies = plan.iter().find(|planned| planned.name == "copies").expect("it is in the plan");
        assert_eq!(copies.arguments(Surroundings::Gpu), Some(vec!["256", "5"]));
        assert_eq!(copies.arguments(Surroundings::Trial), Some(vec!["4", "1"]));
        let ledger = plan.iter().find(|planned| planned.name == "ledger").expect("it is in the plan");
        assert_eq!(ledger.arguments(Surroundings::Simulator), None);
    }
}
