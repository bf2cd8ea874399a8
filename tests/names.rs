//! `docs/names.md` is complete and true: every function of the header stands there once, every name of C that it uses is in the
//! header, and every Python name that this project answers for has its line.

use std::collections::BTreeSet;
use std::path::Path;

/// NVIDIA Warp's public names for what its guide to memory describes, under the headings of the page.
const PYTHON: &[(&str, &str)] = &[
    (
        "Devices",
        "init get_device get_devices get_cuda_device get_cuda_devices get_cuda_device_count get_preferred_device set_device \
         ScopedDevice map_cuda_device unmap_cuda_device is_cpu_available is_cuda_available is_device_available Device \
         Device.total_memory Device.free_memory Device.context Device.get_allocator Device.can_access Device.is_capturing \
         synchronize_device",
    ),
    ("Streams", "Stream get_stream set_stream ScopedStream synchronize_stream Event"),
    (
        "Pools",
        "is_mempool_supported is_mempool_enabled set_mempool_enabled ScopedMempool set_mempool_release_threshold \
         get_mempool_release_threshold get_mempool_used_mem_current get_mempool_used_mem_high",
    ),
    (
        "Access",
        "is_mempool_access_supported is_mempool_access_enabled set_mempool_access_enabled ScopedMempoolAccess \
         is_peer_access_supported is_peer_access_enabled set_peer_access_enabled ScopedPeerAccess can_access \
         config.launch_array_access_mode config.LaunchArrayAccessMode",
    ),
    (
        "Allocators",
        "Allocator set_cuda_allocator set_device_allocator get_device_allocator ScopedAllocator CudaManagedAllocator \
         utils.AllocatorRmm",
    ),
    (
        "Arrays and kinds",
        "MemoryKind array.memory_kind array empty zeros ones full clone copy array.fill_ array.contiguous array.to array.reshape \
         array.transpose array.view indexedarray",
    ),
    (
        "Captures",
        "capture_begin capture_end capture_launch ScopedCapture CaptureMode capture_if capture_while capture_save \
         capture_load capture_pause capture_resume",
    ),
    (
        "Sharing",
        "array.ipc_handle from_ipc_handle Event.ipc_handle event_from_ipc_handle from_dlpack to_dlpack",
    ),
    ("Tracking", "ScopedMemoryTracker print_memory_report config.track_memory"),
    (
        "Settings",
        "config.enable_mempools_at_init config.verify_cuda config.enable_graph_capture_module_load_by_default",
    ),
];

/// Names of the environment, which no header declares.
const VARIABLES: &[&str] = &["WARP_ENABLE_MEMPOOLS_AT_INIT"];

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words of a text that begin as the library's names do.
fn names(text: &str) -> Vec<&str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
        .filter(|word| {
            let rest = word.strip_prefix("warp_").or(word.strip_prefix("WARP_"));
            // `warp_` and `WARP_MEMORY_` alone stand for all that begins so.
            rest.is_some_and(|rest| !rest.is_empty() && !rest.ends_with('_'))
        })
        .collect()
}

fn without_comments(header: &str) -> String {
    let mut parts = header.split("/*");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| text + part.split_once("*/").map_or("", |(_, rest)| rest))
}

/// The functions that the header declares, in its order: names before an opening parenthesis.
fn functions(header: &str) -> Vec<String> {
    let code: String = without_comments(header);
    code.lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| {
            let (before, _) = line.split_once('(')?;
            names(before).last().filter(|name| before.ends_with(**name)).map(|name| name.to_string())
        })
        .collect()
}

/// A table's rows, as the texts of their two cells; a heading's second cell is empty.
fn rows(part: &str) -> Vec<(&str, &str)> {
    part.lines()
        .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|')?.split_once('|'))
        .map(|(first, second)| (first.trim(), second.trim()))
        .filter(|(first, _)| first.starts_with('`') || first.starts_with("**"))
        .collect()
}

/// The page's two tables.
fn tables(page: &str) -> (&str, &str) {
    page.split_once("\n## Every function\n").expect("the page has the heading `## Every function`")
}

#[test]
fn every_function_has_its_line_in_the_order_of_the_header() {
    let page = read("docs/names.md");
    let listed: Vec<String> =
        rows(tables(&page).1).iter().map(|(name, _)| name.trim_matches('`').to_string()).collect();
    let listed: Vec<String> = listed.into_iter().filter(|name| !name.starts_with("**")).collect();
    let declared = functions(&read("include/warpmem.h"));
    let missing: Vec<_> = declared.iter().filter(|name| !listed.contains(name)).collect();
    assert!(missing.is_empty(), "docs/names.md has no line for {missing:?}");
    assert_eq!(listed, declared, "docs/names.md has the functions of the header, in its order");
}

#[test]
fn every_python_name_has_its_line_under_its_heading() {
    let page = read("docs/names.md");
    let mut listed: Vec<(String, Vec<String>)> = Vec::new();
    for (name, meaning) in rows(tables(&page).0) {
        if name.starts_with("**") {
            listed.push((name.trim_matches('*').to_string(), Vec::new()));
            continue;
        }
        let is_answer =
            meaning.starts_with('`') || meaning.starts_with("not yet") || meaning.starts_with("outside");
        assert!(
            is_answer,
            "{name} is answered neither with a call nor with \"not yet\" or \"outside\": {meaning}"
        );
        listed.last_mut().expect("a heading comes first").1.push(name.trim_matches('`').to_string());
    }
    let expected: Vec<(String, Vec<String>)> = PYTHON
        .iter()
        .map(|(heading, names)| (heading.to_string(), names.split_whitespace().map(str::to_string).collect()))
        .collect();
    assert_eq!(listed, expected);
}

#[test]
fn every_c_name_of_the_pages_is_in_the_header() {
    let header = read("include/warpmem.h");
    let known: BTreeSet<&str> = names(&header).into_iter().chain(VARIABLES.iter().copied()).collect();
    for page in [
        "README.md",
        "docs/guide.md",
        "docs/names.md",
        "docs/abi.md",
        "docs/architecture.md",
        "docs/performance.md",
    ] {
        let text = read(page);
        let unknown: BTreeSet<&str> = names(&text).into_iter().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{page} names what the header does not have: {unknown:?}");
    }
}

#[test]
fn functions_are_told_from_types_calls_and_comments() {
    let header = "/* warp_in_a_comment(x) */\ntypedef void (*warp_callback)(void *user);\n#define WARP_X(y) y\n\
                  warp_status warp_one(void);\nconst char *warp_two(warp_status status,\n    warp_callback f);\n\
                  typedef struct warp_three warp_three;\n";
    assert_eq!(functions(header), ["warp_one", "warp_two"]);
}
