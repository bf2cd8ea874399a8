//! The library as a process meets it: loaded by name, looked up by symbol, forked, under valgrind.
mod driver;
use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, ptr};

use driver::*;

/// The library that was built beside this test.
fn library() -> PathBuf {
    let test = env::current_exe().expect("a running test has a file");
    test.parent().expect("a file lies in a folder").join("libwarpsim.so")
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a folder for scratch files");
    folder
}

fn run(command: &mut Command) -> (i32, String) {
    let output = command.output().expect("the program starts");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text)
}

/// Builds a program in C that is linked to nothing of ours.
fn build(source: &str, folder: &Path, flags: &[&str]) -> PathBuf {
    let program = folder.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-g", "-Wall", "-Wextra", "-Werror"]).args(flags).arg("-I").arg(include);
    command.arg(source).arg("-o").arg(&program).args(["-ldl", "-lpthread"]);
    let (status, text) = run(&mut command);
    assert_eq!(status, 0, "{text}");
    program
}

#[test]
fn a_forked_child_is_told_so_at_once() {
    let sim = Sim::start("h200");
    let block = sim.alloc(64);
    let stream = sim.stream(NON_BLOCKING);
    let refused = sim.child(|| {
        let answers = [
            cuInit(0),
            cuMemAlloc_v2(&mut 0, 64),
            cuMemFree_v2(block),
            cuMemFreeAsync(block, stream),
            cuStreamQuery(stream),
            cuCtxSetCurrent(0),
            cuDeviceGetCount(&mut 0),
        ];
        answers.iter().filter(|answer| **answer != NOT_INITIALIZED).count() as i32
    });
    assert_eq!(refused, 0);
    ok(cuMemFree_v2(block));
}

#[test]
fn a_child_forked_while_another_thread_calls_does_not_hang() {
    let sim = Sim::start("h200");
    let context = get(|context| cuCtxGetCurrent(context));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ok(cuCtxSetCurrent(context));
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                ok(cuMemFree_v2(sim.alloc(4096)));
            }
        });
        for _ in 0..50 {
            assert_eq!(sim.child(|| (cuMemAlloc_v2(&mut 0, 64) == NOT_INITIALIZED) as i32), 1);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

type ProcAddress = extern "C" fn(*const c_char, &mut *mut c_void, i32, u64, &mut u32) -> u32;

#[test]
fn entry_points_are_found_by_name_and_version() {
    let file = CString::new(library().to_str().expect("UTF-8")).expect("no zero byte");
    // SAFETY: the library was built by this crate, and the types are those of its exports.
    let (get_proc, set_topology, symbol) = unsafe {
        let handle = libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null());
        let find = |name: &std::ffi::CStr| libc::dlsym(handle, name.as_ptr());
        (
            std::mem::transmute::<*mut c_void, ProcAddress>(find(c"cuGetProcAddress_v2")),
            std::mem::transmute::<*mut c_void, extern "C" fn(*const c_char, *mut c_char, usize) -> u32>(
                find(c"warpsim_set_topology"),
            ),
            std::mem::transmute::<*mut c_void, extern "C" fn(*const c_char) -> *mut c_void>(find(
                c"warpsim_symbol",
            )),
        )
    };
    let topology = c"h200,driver=12040,missing=cuMemPoolCreate";
    ok(set_topology(topology.as_ptr(), ptr::null_mut(), 0));
    let look = |name: &std::ffi::CStr, version: i32| {
        let (mut function, mut status) = (ptr::null_mut(), 9);
        let code = get_proc(name.as_ptr(), &mut function, version, 0, &mut status);
        assert_eq!(code == SUCCESS, !function.is_null());
        (function, status)
    };
    let exported = |name: &std::ffi::CStr| symbol(name.as_ptr());
    assert_eq!(look(c"cuMemAlloc", 12000), (exported(c"cuMemAlloc_v2"), 0));
    assert_eq!(look(c"cuCtxCreate", 11000), (exported(c"cuCtxCreate_v2"), 0));
    assert_eq!(
        look(c"cuCtxCreate", 13000),
        (exported(c"cuCtxCreate_v3"), 0),
        "the newest that a 12.4 driver has"
    );
    assert_eq!(look(c"cuMemFreeAsync", 11020), (exported(c"cuMemFreeAsync"), 0));
    assert_eq!(look(c"cuStreamGetId", 11020), (ptr::null_mut(), 2), "too new for the caller");
    assert_eq!(look(c"cuMemPoolCreate", 12000), (ptr::null_mut(), 1));
    assert_eq!(look(c"cuNoSuchThing", 12000), (ptr::null_mut(), 1));
    assert_eq!(look(c"warpsim_reset", 12000), (ptr::null_mut(), 1));
    assert!(exported(c"cuMemPoolCreate").is_null() && exported(c"cuCtxCreate_v4").is_null());
}

/// The names that begin with `warpsim_` and stand before an opening bracket.
fn control_names(text: &str) -> std::collections::BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split('(').filter_map(|part| part.rsplit(|c| !is_name(c)).next());
    words.filter(|word| word.starts_with("warpsim_")).map(str::to_owned).collect()
}

#[test]
fn the_header_declares_what_is_exported() {
    let declared = control_names(include_str!("../include/warpsim.h"));
    let defined = control_names(include_str!("../src/api/control.rs"));
    assert!(!declared.is_empty());
    assert_eq!(declared, defined);
}

#[test]
fn a_copy_of_the_library_can_lack_names() {
    let folder = scratch("hidden");
    let copy = folder.join("libcuda.so.1");
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/hide_symbols.py");
    let hide = |name: &str| run(Command::new("python3").arg(&tool).arg(library()).arg(&copy).arg(name));
    let (status, text) = hide("cuNoSuchThing");
    assert!(status != 0 && text.contains("cuNoSuchThing"), "{text}");
    let (status, text) = hide("cuCtxGetId");
    assert_eq!(status, 0, "{text}");
    let file = CString::new(copy.to_str().expect("UTF-8")).expect("no zero byte");
    // SAFETY: the library was built by this crate.
    unsafe {
        let handle = libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null());
        assert!(libc::dlsym(handle, c"cuCtxGetId".as_ptr()).is_null());
        assert!(!libc::dlsym(handle, c"cuCtxGetDevice".as_ptr()).is_null());
    }
}

#[test]
fn a_small_program_is_clean_under_valgrind() {
    let program = build("walk.c", &scratch("walk"), &[]);
    let (status, text) = run(Command::new(&program).arg(library()));
    assert_eq!((status, text.trim()), (0, "done"));
    if run(Command::new("sh").args(["-c", "command -v valgrind"])).0 != 0 {
        eprintln!("valgrind is not installed: the program ran without it");
        return;
    }
    let options = ["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    let (status, text) = run(Command::new("valgrind").args(options).arg(&program).arg(library()));
    assert_eq!((status, text.trim()), (0, "done"));
}

#[test]
fn a_small_program_is_clean_under_address_sanitizer() {
    let program = build("walk.c", &scratch("walk-asan"), &["-fsanitize=address,undefined"]);
    let (status, text) = run(Command::new(&program).arg(library()));
    assert_eq!((status, text.trim()), (0, "done"));
}

#[test]
fn planned_failures_and_the_machine_come_from_the_environment() {
    let program = build("walk.c", &scratch("walk-environment"), &[]);
    let walk = |variable: &str, value: &str| run(Command::new(&program).arg(library()).env(variable, value));
    assert_eq!(walk("WARPSIM_TOPOLOGY", "discrete,gpus=3").0, 0);
    let (status, text) = walk("WARPSIM_FAIL", "cuMemAlloc_v2:1:2");
    assert!(status == 1 && text.contains("cuMemAlloc_v2: 2"), "{text}");
    let (status, text) = walk("WARPSIM_TOPOLOGY", "none");
    assert!(status == 1 && text.contains("cuInit: 100"), "{text}");
    let (status, text) = walk("WARPSIM_TOPOLOGY", "h200,colour=1");
    assert!(status == 1 && text.contains("colour") && text.contains("cuInit: 999"), "{text}");
}
