//! Logs that a program of several threads writes through the library are replayed, and the log of the replay is compared with
//! them; changed ones differ, and what is no log is refused. `cargo xtask test rust` builds the simulated driver and names it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr::{null, null_mut};
use warpmem::ffi::adaptor::{
    warp_allocator_create_limit, warp_allocator_create_logging, warp_allocator_logging_flush,
};
use warpmem::ffi::allocator::{
    warp_alloc_request, warp_allocator, warp_allocator_allocate, warp_allocator_deallocate,
    warp_allocator_get_builtin, warp_allocator_release,
};
use warpmem::ffi::device::{warp_device, warp_device_get};
use warpmem::ffi::library::warp_init;
use warpmem::ffi::memory::{
    WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_HOST, warp_memory_kind,
};
use warpmem::ffi::status::WARP_SUCCESS;

const THREADS: u64 = 4;
const ROUNDS: u64 = 400;

struct Ran {
    status: i32,
    out: String,
    err: String,
}

fn run(arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpmem-replay"));
    command.args(arguments).env("WARPSIM_TOPOLOGY", "h200x2");
    assert!(std::env::var_os("WARPMEM_LIBCUDA").is_some(), "WARPMEM_LIBCUDA names the simulated driver");
    let Output { status, stdout, stderr } = command.output().expect("it can be run");
    let text = |bytes| String::from_utf8(bytes).expect("it writes UTF-8");
    Ran { status: status.code().expect("it ends by itself"), out: text(stdout), err: text(stderr) }
}

/// A folder of a test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("warpmem-replay-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path of ours").to_string()
    }

    fn with(&self, name: &str, text: &str) -> String {
        let path = self.file(name);
        std::fs::write(&path, text).expect("a file can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn ok(what: &str, status: i32) {
    assert_eq!(status, WARP_SUCCESS, "{what}");
}

#[derive(Clone, Copy)]
struct Shared(*mut warp_allocator, *mut warp_device);
// SAFETY: handles, which any thread may use.
unsafe impl Send for Shared {}

/// What a thread does: allocates and frees at random, keeps some, and asks for what is refused.
fn work(Shared(allocator, device): Shared, seed: u64) {
    let mut random = seed;
    let mut kept = Vec::new();
    for round in 0..ROUNDS {
        let tag =
            [null(), c"weights".as_ptr(), c"a \"tag\", with\\all\n".as_ptr()][next(&mut random) as usize % 3];
        let request = warp_alloc_request {
            struct_size: size_of::<warp_alloc_request>(),
            size: if round % 97 == 96 { 1 << 30 } else { 1 + next(&mut random) % 5000 },
            alignment: [0, 256, 4096][next(&mut random) as usize % 3],
            device,
            stream: null_mut(),
            native_context: null_mut(),
            native_stream: null_mut(),
            stream_id: 0,
            tag,
            ordinal: 0,
            kind: 0,
            flags: 0,
            reserved: 0,
        };
        let mut block = null_mut();
        // SAFETY: handles of the library, a struct of the size that it says, and a place for the answer.
        let status = unsafe { warp_allocator_allocate(allocator, &request, &mut block) };
        assert_eq!(status == WARP_SUCCESS, request.size < 1 << 30, "{status}");
        if status == WARP_SUCCESS {
            kept.push(block);
        }
        if kept.len() > 20 {
            let at = next(&mut random) as usize % kept.len();
            // SAFETY: a block of the allocator that nobody uses.
            ok("deallocate", unsafe { warp_allocator_deallocate(allocator, kept.swap_remove(at), null()) });
        }
    }
    // All but a few go back.
    for block in kept.drain(3..) {
        // SAFETY: as above.
        ok("deallocate", unsafe { warp_allocator_deallocate(allocator, block, null()) });
    }
}

/// A log of some threads, with failures and with blocks that are not given back.
fn write_log(kind: warp_memory_kind, alias: &std::ffi::CStr, path: &str, threads: u64) {
    let (mut base, mut limit, mut logging, mut device) = (null_mut(), null_mut(), null_mut(), null_mut());
    let name = std::ffi::CString::new(path).expect("a path has no NUL");
    // SAFETY: terminated texts, handles of the library, and places for the answers.
    unsafe {
        ok("init", warp_init(null(), null_mut()));
        ok("device", warp_device_get(alias.as_ptr(), &mut device));
        ok("builtin", warp_allocator_get_builtin(kind, &mut base));
        ok("limit", warp_allocator_create_limit(base, 100 << 20, &mut limit));
        ok("logging", warp_allocator_create_logging(limit, name.as_ptr(), &mut logging));
    }
    let shared = Shared(logging, device);
    std::thread::scope(|scope| {
        for seed in 0..threads {
            scope.spawn(move || {
                // All of it, not the two pointers.
                let shared = shared;
                work(shared, seed);
            });
        }
    });
    // SAFETY: handles of the library.
    unsafe {
        ok("flush", warp_allocator_logging_flush(logging));
        ok("release", warp_allocator_release(limit));
        ok("release", warp_allocator_release(logging));
    }
}

fn json(arguments: &[&str]) -> Value {
    let ran = run(arguments);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{}", ran.out);
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.out))
}

/// Counts and the peak, worked out from the text alone.
fn expected(log: &str) -> (u64, u64, u64, u64) {
    let (mut allocations, mut deallocations, mut live, mut peak) = (0, 0, 0_u64, 0);
    for line in log.lines().skip(2) {
        let fields: Vec<&str> = line.split(',').collect();
        let size: u64 = fields[4].parse().expect("a size");
        match fields[2] {
            "allocate" => {
                allocations += 1;
                live += size;
                peak = peak.max(live);
            }
            "deallocate" => {
                deallocations += 1;
                live -= size;
            }
            _ => {}
        }
    }
    (allocations, deallocations, peak, live)
}

#[test]
fn a_replay_reproduces_the_log() {
    let folder = Folder::new("reproduces");
    for (at, (kind, alias, choices)) in [
        (WARP_MEMORY_HOST, c"cpu", &[&[][..], &["--allocator", "host"], &["--allocator", "mempool"]][..]),
        (
            WARP_MEMORY_CUDA_MEMPOOL,
            c"cuda:1",
            &[
                &[][..],
                &["--allocator", "default"],
                &["--allocator", "managed", "--device", "0"],
                &["--allocator", "pinned"],
            ],
        ),
        (WARP_MEMORY_CUDA_DEVICE, c"cuda:0", &[&["--limit", "104857600"][..], &["--device", "1"]]),
    ]
    .into_iter()
    .enumerate()
    {
        let log = folder.file(&format!("{at}.log"));
        write_log(kind, alias, &log, THREADS);
        let text = std::fs::read_to_string(&log).expect("the log is there");
        let (allocations, deallocations, peak, live) = expected(&text);
        assert_eq!(allocations, THREADS * (ROUNDS - ROUNDS / 97), "{kind}");
        for (choice, options) in choices.iter().enumerate() {
            let again = folder.file(&format!("{at}-{choice}.log"));
            let mut arguments = vec!["--json", "--log", &again];
            arguments.extend(*options);
            arguments.push(&log);
            let figures = json(&arguments);
            assert_eq!(figures["schema"], 1);
            assert_eq!(figures["allocations"], allocations, "{options:?}");
            assert_eq!(figures["deallocations"], deallocations, "{options:?}");
            assert_eq!(figures["peak_bytes"], peak, "{options:?}");
            assert_eq!(figures["live_bytes"], live, "{options:?}");
            assert_eq!(figures["failures"], 0, "{options:?}");
            // Each request that failed was asked twice.
            assert_eq!(figures["failed_in_log"], 2 * THREADS * (ROUNDS / 97), "{options:?}");
            assert!(figures["allocation_ns"]["median"].as_u64() > Some(0), "{figures}");
            let same = run(&["--compare", &log, &again]);
            assert_eq!(
                (same.status, same.out.as_str(), same.err.as_str()),
                (0, "the same\n", ""),
                "{options:?}"
            );
            // And the replay of the replay.
            let third = folder.file("third.log");
            json(&["--json", "--log", &third, &again]);
            assert_eq!(run(&["--compare", &log, &third]).status, 0, "{options:?}");
        }
    }
}

type Change<'a> = dyn Fn(&mut Vec<String>) + 'a;

#[test]
fn a_changed_log_differs_and_the_place_is_named() {
    let folder = Folder::new("differs");
    let log = folder.file("a.log");
    write_log(WARP_MEMORY_HOST, c"cpu", &log, 1);
    let text = std::fs::read_to_string(&log).expect("the log is there");
    let lines: Vec<&str> = text.lines().collect();
    let place = |action: &str, from: usize| {
        let is = |line: &str| line.split(',').nth(2) == Some(action);
        from + lines[from..].iter().position(|line| is(line)).expect("there is one")
    };
    let with = |change: &Change<'_>| {
        let mut changed: Vec<String> = lines.iter().map(ToString::to_string).collect();
        change(&mut changed);
        folder.with("b.log", &(changed.join("\n") + "\n"))
    };
    let allocation = place("allocate", 500);
    let deallocation = place("deallocate", 300);
    // Changes an allocation, and the end of its block in the same way.
    let change = |lines: &mut Vec<String>, from: &str, to: &str| {
        let tail = lines[allocation].split(",allocate,").nth(1).expect("an allocation").to_string();
        assert!(tail.contains(from), "{from}: {tail}");
        let ends = |line: &&mut String| line.contains(",deallocate,") && line.ends_with(&tail);
        let end = lines.iter_mut().skip(allocation).find(ends).expect("it is given back");
        *end = end.replace(from, to);
        lines[allocation] = lines[allocation].replace(from, to);
    };
    let fields: Vec<&str> = lines[allocation].split(',').collect();
    let (size, tag) =
        (format!("{},{},", fields[3], fields[4]), lines[allocation].split('"').nth(1).expect("a tag"));
    let other_size = format!("{},{}1,", fields[3], fields[4]);
    let changes: [&Change<'_>; 3] = [
        &|lines| change(lines, &size, &other_size),
        &|lines| change(lines, &format!(",\"{tag}"), &format!(",\"changed {tag}")),
        // One deallocation less.
        &|lines| drop(lines.remove(deallocation)),
    ];
    for (at, change) in changes.iter().enumerate() {
        let changed = with(change);
        let differ = run(&["--compare", &log, &changed]);
        assert_eq!((differ.status, differ.err.as_str()), (1, ""), "change {at}: {}", differ.out);
        let line = if at == 2 { deallocation } else { allocation } + 1;
        assert!(differ.out.contains(&format!("{log}:{line}: ")), "change {at}: {}", differ.out);
    }
    let shorter = with(&|lines| drop(lines.pop()));
    let differ = run(&["--compare", &shorter, &log]);
    assert_eq!(differ.status, 1);
    assert!(differ.out.contains(&format!("{shorter}: ends\n")), "{}", differ.out);
}

const HEAD: &str =
    "warpmem-allocation-log 1\nthread,time,action,pointer,size,alignment,device,stream,tag,status\n";

#[test]
fn what_is_not_served_is_told_and_its_deallocation_skipped() {
    let folder = Folder::new("failures");
    let log = folder.with(
        "a.log",
        &format!(
            "{HEAD}1,1,allocate,0x1000,600,256,0,5,\"\",0\n1,2,allocate,0x2000,500,256,0,5,\"\",0\n\
             1,3,deallocate,0x2000,500,256,0,5,\"\",0\n1,4,allocate,0x3000,400,256,0,5,\"\",0\n\
             1,5,deallocate,0x1000,600,256,0,0,\"\",0\n"
        ),
    );
    let ran = run(&["--limit", "1000", &log]);
    assert_eq!((ran.status, ran.err.as_str()), (1, ""), "{}", ran.out);
    let words: Vec<String> =
        ran.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for row in [
        "allocations 2",
        "deallocations 1",
        "failures 1",
        "skipped deallocations 1",
        "peak 1000 bytes, 2 blocks",
        "out at the end 400 bytes, 1 blocks",
    ] {
        assert!(words.iter().any(|line| line == row), "{row}: {}", ran.out);
    }
    assert!(
        ran.out.contains(&format!("{log}:4: warp_allocator_allocate: WARP_ERROR_OUT_OF_MEMORY")),
        "{}",
        ran.out
    );
    let figures: Value = serde_json::from_str(&run(&["--json", "--limit", "1000", &log]).out).expect("JSON");
    assert_eq!(figures["problems"][0]["line"], 4);
    assert_eq!(figures["skipped"], 1);
}

#[test]
fn bad_files_and_arguments_are_refused() {
    let folder = Folder::new("bad");
    let good = folder.with("good.log", &format!("{HEAD}1,1,allocate,0x1000,600,256,0,5,\"\",0\n"));
    let torn = folder.with("torn.log", &format!("{HEAD}1,1,allocate,0x1000,600,256,0,5,\"\",0\n1,2,alloc"));
    let other = folder.with("other.log", "Thread,Time,Action,Pointer,Size,Stream\n");
    let missing = folder.file("missing.log");
    let elsewhere = folder.with("elsewhere.log", &format!("{HEAD}1,1,allocate,0x1000,600,256,7,5,\"\",0\n"));
    for (arguments, status, part) in [
        (&[torn.as_str()][..], 2, format!("{torn}:4: expected the end of the line")),
        (&[&other], 2, format!("{other}:1: expected \"warpmem-allocation-log 1\"")),
        (&["--compare", &good, &torn], 2, format!("{torn}:4: ")),
        (&[&missing], 2, format!("{missing}: No such file")),
        (&["--log", &good, &good], 2, "the log that is replayed".into()),
        (&["--log", "/nonexistent/out.log", &good], 1, "/nonexistent/out.log".into()),
        (&[&elsewhere], 1, "cuda:7".into()),
        (&[&elsewhere], 1, "; --device names another GPU, and --allocator host needs none".into()),
        (&["--device", "0", "--allocator", "host", &good], 2, "--device names a GPU".into()),
        (&["--allocator", "slab", &good], 2, "there is no allocator \"slab\"".into()),
        (&["--device", "-1", &good], 2, "--help".into()),
        (&["--limit", "many", &good], 2, "--help".into()),
        (&["--compare", &good], 2, "--compare takes two logs".into()),
        (&["--compare", "--json", &good, &good], 2, "nothing else".into()),
        (&[&good, &good], 2, "name one log".into()),
        (&[], 2, "name one log".into()),
        (&["--nothing", &good], 2, "--nothing".into()),
    ] {
        let ran = run(arguments);
        assert_eq!((ran.status, ran.out.as_str()), (status, ""), "{arguments:?}: {}", ran.err);
        assert!(
            ran.err.starts_with("warpmem-replay: ") && ran.err.contains(&part),
            "{arguments:?}: {}",
            ran.err
        );
    }
    assert_eq!(std::fs::read_to_string(Path::new(&good)).expect("it is whole").lines().count(), 3);
    assert!(run(&["--help"]).out.starts_with("warpmem-replay [options] LOG\n"));
    assert_eq!(run(&["--version"]).out, "warpmem-replay 0.1.0\n");
}
