//! What the program shows, on simulated machines and on those that have no GPU or a broken driver: both as text and as JSON,
//! against what the machine is said to be. `cargo xtask test rust` builds the simulated driver and names it.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

struct Ran {
    status: i32,
    out: String,
    err: String,
}

fn program(arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpmem-info"));
    command.args(arguments).env_remove("WARPSIM_TOPOLOGY").envs(environment.iter().copied());
    assert!(std::env::var_os("WARPMEM_LIBCUDA").is_some(), "WARPMEM_LIBCUDA names the simulated driver");
    command
}

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
    let Output { status, stdout, stderr } = program(arguments, environment).output().expect("it can be run");
    let text = |bytes| String::from_utf8(bytes).expect("it writes UTF-8");
    Ran { status: status.code().expect("it ends by itself"), out: text(stdout), err: text(stderr) }
}

/// The output of a run that had nothing to complain about.
fn shown(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let ran = run(arguments, environment);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{environment:?}: {}", ran.out);
    ran.out
}

fn json(arguments: &[&str], environment: &[(&str, &str)]) -> Value {
    let mut all = vec!["--json"];
    all.extend(arguments);
    parse(&shown(&all, environment))
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn on(topology: &str) -> [(&str, &str); 1] {
    [("WARPSIM_TOPOLOGY", topology)]
}

fn gpus(found: &Value) -> Vec<&Value> {
    let devices = found["devices"].as_array().expect("a list of devices");
    devices.iter().filter(|device| device["is_cuda"] == true).collect()
}

/// The rows of a matrix in the text.
fn matrix_in(text: &str, name: &str) -> Vec<Vec<bool>> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("  {name}: ")));
    let header: Vec<&str> =
        lines.nth(1).unwrap_or_else(|| panic!("no {name}: {text}")).split_whitespace().collect();
    let rows = lines.take_while(|line| !line.is_empty()).enumerate().map(|(row, line)| {
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), header.get(row).copied(), "{text}");
        words
            .map(|word| match word {
                "yes" => true,
                "no" => false,
                other => panic!("{other} in {text}"),
            })
            .collect()
    });
    rows.collect()
}

/// A simulated machine: each GPU's name, GiB, and whether it has pools; and whether `peer` may be a peer of `target`.
struct Machine {
    topology: &'static str,
    gpus: Vec<(&'static str, f64, bool)>,
    can: fn(target: usize, peer: usize) -> bool,
}

fn machines() -> Vec<Machine> {
    const ALL: fn(usize, usize) -> bool = |_, _| true;
    let discrete = ("Simulated Discrete GPU", 24.0, true);
    vec![
        Machine { topology: "h200x2", gpus: vec![("NVIDIA H200", 139.8, true); 2], can: ALL },
        Machine { topology: "discrete", gpus: vec![discrete; 2], can: ALL },
        Machine { topology: "discrete,peers=0", gpus: vec![discrete; 2], can: |target, peer| target == peer },
        Machine {
            topology: "mixed",
            gpus: vec![discrete, ("Simulated GPU without pools", 8.0, false)],
            can: ALL,
        },
        Machine {
            topology: "partial",
            gpus: vec![discrete; 4],
            // The last is the link that works in one direction only: GPU 0 touches memory of GPU 2.
            can: |target, peer| target / 2 == peer / 2 || (target, peer) == (2, 0),
        },
        Machine { topology: "gpux10", gpus: vec![discrete; 10], can: ALL },
        Machine { topology: "wsl", gpus: vec![("Simulated WSL GPU", 16.0, true)], can: ALL },
        Machine { topology: "vgpu", gpus: vec![("Simulated vGPU", 8.0, false)], can: ALL },
    ]
}

#[test]
fn devices_pools_and_matrices_are_the_machines() {
    for Machine { topology, gpus: expected, can } in machines() {
        let found = json(&[], &on(topology));
        let text = shown(&[], &on(topology));
        assert_eq!(found["driver"]["version"], "13.0", "{topology}");
        assert_eq!(found["driver"]["reason"], Value::Null, "{topology}");
        assert!(text.starts_with("libwarpmem 0.1.0\nCUDA driver 13.0\n"), "{text}");
        assert_eq!(found["devices"][0]["alias"], "cpu", "{topology}");

        let gpus = gpus(&found);
        assert_eq!(gpus.len(), expected.len(), "{topology}");
        for (ordinal, (gpu, (name, gib, pools))) in gpus.iter().zip(&expected).enumerate() {
            assert_eq!(gpu["alias"], format!("cuda:{ordinal}"));
            assert_eq!(gpu["ordinal"], ordinal);
            assert_eq!(gpu["name"], *name);
            let total = gpu["total_memory"].as_f64().expect("a number") / f64::from(1 << 30);
            assert!((total - gib).abs() < 0.05, "{topology}: {total} GiB");
            assert_eq!(gpu["capabilities"]["is_mempool_supported"], *pools, "{topology}");
            assert_eq!(gpu["is_mempool_enabled"], *pools, "{topology}");
            assert_eq!(gpu["mempool"].is_object(), *pools, "{topology}");
            assert!(text.contains(&format!("  cuda:{ordinal}  {name} ")), "{text}");
            assert!(text.contains(&format!("{gib:.1} GiB")), "{text}");
            assert!(text.contains(gpu["uuid"].as_str().expect("a text")), "{text}");
            assert!(text.contains(gpu["pci_bus_id"].as_str().expect("a text")), "{text}");
        }
        check_matrices(&found, &text, &expected, can);
    }
}

fn check_matrices(found: &Value, text: &str, gpus: &[(&str, f64, bool)], can: fn(usize, usize) -> bool) {
    type Cell<'a> = &'a dyn Fn(usize, usize) -> bool;
    let pools = |target: usize| gpus[target].2;
    // In a process that has just begun nothing is enabled but a GPU's access to itself.
    let expected: [(&str, &str, Cell<'_>); 4] = [
        ("peer_access_supported", "peer access supported", &can),
        ("peer_access_enabled", "peer access enabled", &|target, peer| target == peer),
        ("mempool_access_supported", "pool access supported", &|target, peer| {
            pools(target) && can(target, peer)
        }),
        ("mempool_access_enabled", "pool access enabled", &|target, peer| pools(target) && target == peer),
    ];
    for (field, name, cell) in expected {
        let count = gpus.len();
        let matrix: Vec<Vec<bool>> =
            (0..count).map(|target| (0..count).map(|peer| cell(target, peer)).collect()).collect();
        assert_eq!(found["access"][field], serde_json::json!(matrix), "{field}: {text}");
        if count > 1 {
            assert_eq!(matrix_in(text, name), matrix, "{name}: {text}");
        } else {
            assert!(text.contains("Access between GPUs: there is one\n"), "{text}");
        }
    }
}

#[test]
fn capabilities_are_the_machines() {
    let named = |topology: &str, names: &[&str]| {
        let found = json(&[], &on(topology));
        let gpu = &gpus(&found)[0]["capabilities"];
        names.iter().map(|name| gpu[*name].as_bool().unwrap_or_else(|| panic!("{name}"))).collect::<Vec<_>>()
    };
    let concurrent = "is_concurrent_managed_access_supported";
    let managed = "is_managed_memory_supported";
    let virtual_memory = "is_virtual_memory_supported";
    assert_eq!(
        named("wsl", &["is_uva", managed, concurrent, "is_dma_buf_supported"]),
        [true, true, false, false]
    );
    assert_eq!(named("vgpu", &[managed, concurrent, virtual_memory]), [false; 3]);
    assert_eq!(named("h200x2", &[managed, concurrent, virtual_memory, "is_ipc_supported"]), [true; 4]);
    assert_eq!(
        named(
            "grace",
            &["is_cpu_memory_access_from_gpu_supported", "is_gpu_memory_access_from_cpu_supported"]
        ),
        [true; 2]
    );
    assert_eq!(named("gb10", &["is_integrated", "is_cpu_gpu_atomic_supported"]), [true; 2]);

    let text = shown(&[], &on("h200x2,gpu1.concurrent=0"));
    assert!(text.contains("\n  managed memory while it works       yes    no\n"), "{text}");
}

#[test]
fn the_text_fits_a_terminal_on_eight_gpus() {
    let name = "A name that is longer than any that was ever given to a product of that kind";
    let topology = format!("h200,gpus=8,peer.0.1=0,name={name}");
    for arguments in [&[][..], &["--memory"][..]] {
        let text = shown(arguments, &on(&topology));
        assert!(text.contains("  cuda:7  A name that is longer than any"), "{text}");
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(100), "{longest:?}: {text}");
    }
    let text = shown(&[], &on("gpux10,pools=0"));
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(110), "{longest:?}: {text}");
}

#[test]
fn without_a_gpu_there_is_the_reason() {
    let sim = std::env::var("WARPMEM_LIBCUDA").unwrap_or_default();
    for (library, topology, reason) in [
        ("/nonexistent/libcuda.so.1", "", "CUDA driver not found (/nonexistent/libcuda.so.1: cannot open"),
        ("/proc/self/status", "", "CUDA driver not found ("),
        ("libm.so.6", "", "CUDA driver libm.so.6 "),
        (&sim, "none", "CUDA devices not available (Driver 13.0)"),
        (&sim, "h200x2,init_code=34", "is the toolkit's stub, not a driver (code 34)"),
        (&sim, "h200x2,driver=11080", "CUDA driver 11.8 is too old (12.0 or newer is needed)"),
        (
            &sim,
            "h200x2,init_code=999",
            "CUDA driver failed to initialize (CUDA_ERROR_UNKNOWN (999) from cuInit",
        ),
    ] {
        let environment = [("WARPMEM_LIBCUDA", library), ("WARPSIM_TOPOLOGY", topology)];
        let found = json(&["--memory"], &environment);
        assert_eq!(found["driver"]["version"], Value::Null, "{reason}");
        let told = found["driver"]["reason"].as_str().unwrap_or_else(|| panic!("no reason: {reason}"));
        assert!(told.contains(reason), "{told}");
        assert_eq!(found["devices"].as_array().map(Vec::len), Some(1));
        assert_eq!(found["devices"][0]["is_cpu"], true);
        assert!(found["devices"][0]["memory"]["free"].as_u64() > Some(0));
        assert_eq!(found["access"]["gpus"], serde_json::json!([]));
        assert_eq!(found["access"]["peer_access_supported"], serde_json::json!([]));

        let text = shown(&[], &environment);
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&text).contains(&words(&format!("no GPU: {told}"))), "{text}");
        assert!(text.contains("\n  cpu  ") && !text.contains("cuda:"), "{text}");
    }
}

#[test]
fn free_memory_is_shown_when_it_is_asked_for() {
    let environment = on("h200x2,gpu1.memory=3GiB");
    let without = json(&[], &environment);
    assert!(without["devices"].as_array().expect("a list").iter().all(|device| device["memory"].is_null()));
    assert!(!shown(&[], &environment).contains("Free memory"));

    let with = json(&["--memory"], &environment);
    let gpu = gpus(&with)[1];
    assert_eq!(gpu["memory"]["total"], 3_u64 << 30);
    assert!(gpu["memory"]["free"].as_u64() <= Some(3 << 30));
    assert_eq!(gpu["has_context"], false, "it was for the question only");
    let text = shown(&["--memory"], &environment);
    assert!(text.contains("Free memory (each GPU was given a context for the question"), "{text}");
}

#[test]
fn where_no_context_can_be_made_all_else_is_shown() {
    let broken = [
        ("WARPSIM_TOPOLOGY", "partial"),
        ("WARPSIM_FAIL", "cuDevicePrimaryCtxRetain:0:2,cuCtxCreate_v2:0:2,cuCtxCreate_v4:0:2"),
    ];
    for arguments in [&[][..], &["--json"][..]] {
        assert_eq!(shown(arguments, &broken), shown(arguments, &on("partial")));
    }
    let ran = run(&["--json", "--memory"], &broken);
    let found = parse(&ran.out);
    assert_eq!(ran.status, 1);
    assert_eq!(found["problems"].as_array().map(Vec::len), Some(4), "{}", ran.out);
    assert_eq!(found["problems"][0]["status"], "WARP_ERROR_OUT_OF_MEMORY");
    assert!(gpus(&found).iter().all(|gpu| gpu["memory"].is_null()), "{}", ran.out);
    assert!(found["devices"][0]["memory"].is_object(), "the CPU needs none");
}

#[test]
fn what_a_driver_does_not_answer_is_named_and_all_else_is_shown() {
    let broken = [
        ("WARPSIM_TOPOLOGY", "h200x2"),
        ("WARPSIM_FAIL", "cuMemPoolGetAttribute:0:999,cuMemPoolGetAccess:2:999,cuDeviceGetMemPool:2:999"),
    ];
    let ran = run(&["--json"], &broken);
    assert_eq!((ran.status, ran.err.as_str()), (1, ""));
    let found = parse(&ran.out);
    let gpus = gpus(&found);
    assert_eq!(gpus[0]["mempool"]["used"], Value::Null);
    assert_eq!(gpus[0]["mempool"]["release_threshold"], Value::Null);
    assert_eq!(gpus[0]["mempool"]["is_device_pool"], true);
    assert_eq!(gpus[1]["mempool"], Value::Null);
    assert_eq!(
        found["access"]["mempool_access_enabled"],
        serde_json::json!([[true, false], [Value::Null, true]])
    );
    let questions: Vec<&str> = found["problems"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|problem| {
            assert_eq!(problem["status"], "WARP_ERROR_DRIVER");
            assert_eq!(problem["driver_code"], 999);
            problem["question"].as_str().expect("a text")
        })
        .collect();
    assert_eq!(
        questions,
        [
            "warp_mempool_query_memory(cuda:0)",
            "warp_mempool_query_release_threshold(cuda:0)",
            "warp_mempool_get(cuda:1)",
            "warp_mempool_access_query_enabled(cuda:1, cuda:0)",
        ]
    );

    let ran = run(&[], &broken);
    assert_eq!((ran.status, ran.err.as_str()), (1, ""));
    for said in [
        "What could not be asked\n",
        "  warp_mempool_get(cuda:1): WARP_ERROR_DRIVER: ",
        "  cuda:1  ?       yes\n",
    ] {
        assert!(ran.out.contains(said), "{said}: {}", ran.out);
    }
}

#[test]
fn what_the_library_says_is_passed_on() {
    let found = json(&[], &on("mixed"));
    assert_eq!(found["messages"][0]["level"], "warning");
    let told = found["messages"][0]["text"].as_str().expect("a text");
    assert!(told.contains("memory pools was not detected on devices [\"cuda:1\"]"), "{told}");
    assert!(shown(&[], &on("mixed")).contains("\nThe library says\n  warning: "));
    assert_eq!(json(&[], &on("h200x2"))["messages"], serde_json::json!([]));
}

#[test]
fn the_environment_is_heeded() {
    let off = [("WARPSIM_TOPOLOGY", "h200x2"), ("WARPMEM_ENABLE_MEMPOOLS_AT_INIT", "0")];
    let found = json(&[], &off);
    for gpu in gpus(&found) {
        assert_eq!(gpu["capabilities"]["is_mempool_supported"], true);
        assert_eq!(gpu["is_mempool_enabled"], false);
        assert!(gpu["mempool"].is_object());
    }
    let text = shown(&[], &off);
    assert!(text.contains("\n  cuda:1  no "), "{text}");
}

#[test]
fn bad_arguments_are_refused_in_a_line() {
    for arguments in [&["--jason"][..], &["-x"][..], &["--json", "more"][..], &["--memory=3"][..], &[""][..]]
    {
        let ran = run(arguments, &[]);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{arguments:?}");
        assert!(ran.err.starts_with("warpmem-info: ") && ran.err.ends_with('\n'), "{}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
}

#[test]
fn help_and_version() {
    let help = shown(&["--help"], &[]);
    for said in ["--json", "--memory", "--version", "exit status"] {
        assert!(help.contains(said), "{help}");
    }
    assert_eq!(shown(&["-h"], &[]), help);
    assert_eq!(shown(&["--version"], &[]), "warpmem-info 0.1.0\n");
    assert_eq!(shown(&["-V"], &[]), "warpmem-info 0.1.0\n");
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_a_reader_that_goes_is_none() {
    let mut child =
        program(&["--json"], &on("gpux10")).stdout(Stdio::piped()).spawn().expect("it can be run");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));

    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full is there");
    let ran = program(&[], &on("h200x2")).stdout(full).output().expect("it can be run");
    assert_eq!(ran.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&ran.stderr).starts_with("warpmem-info: the output could not be written: ")
    );
}

#[test]
fn every_field_is_described() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/info.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let broken = [("WARPSIM_TOPOLOGY", "mixed"), ("WARPSIM_FAIL", "cuMemPoolGetAttribute:1:999")];
    let found = parse(&run(&["--json", "--memory"], &broken).out);
    assert_eq!(found["schema"], 1);
    let mut names = Vec::new();
    collect_names(&found, &mut names);
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "docs/info.md does not describe {name}");
    }
}

fn collect_names(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if !names.contains(name) {
                    names.push(name.clone());
                }
                collect_names(value, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        _ => {}
    }
}
