//! The house keeps its rooms: arrows point from `ffi` to the concepts to `driver` and never back, only `driver` knows CUDA,
//! only `ffi` is called from C, and no file grows past what a reader can hold.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Longer files hold two ideas.
const LONGEST_FILE: usize = 700;

/// Functions that C calls, and C functions that are called, outside of the two rooms at the edge: file and reason.
const C_INSIDE: &[(&str, &str)] = &[
    ("src/runtime.rs", "the handler that the C library calls when the process exits"),
    ("src/thread.rs", "the handler that the C library calls when a thread ends"),
    ("src/copy/threads/start.rs", "the function that the C library runs in a new thread"),
    ("src/capture/gone.rs", "the handler that the driver calls when a graph is gone"),
    ("src/host_call.rs", "the handler that the driver calls in the order of a stream"),
    ("src/allocator/logging.rs", "the handler that the C library calls when the process exits"),
    ("src/config.rs", "secure_getenv, which the libc crate does not declare"),
];

/// What the driver room may know of the rest: the vocabulary of errors and settings.
const BELOW_DRIVER: &[&str] = &["driver", "error", "config", "lock", "log"];

/// The concepts, each behind those that it may name beside what all stand on: no two can need each other.
const CONCEPTS: &[(&str, &[&str])] = &[
    ("ledger", &[]),
    ("cache", &["ledger"]),
    ("kind", &["ledger"]),
    ("tag", &[]),
    ("device", &["driver"]),
    ("pool", &["device", "driver"]),
    ("stream", &["device", "driver"]),
    ("peer", &["device", "driver", "pool", "stream"]),
    ("capture", &["device", "driver", "peer", "stream"]),
    ("allocator", &["device", "driver", "kind", "ledger", "stream", "tag"]),
    (
        "alloc",
        &["allocator", "cache", "capture", "device", "driver", "kind", "ledger", "pool", "stream", "tag"],
    ),
    ("plug", &["alloc", "allocator", "device", "driver", "stream"]),
    ("event", &["capture", "device", "driver", "stream"]),
    ("copy", &["alloc", "capture", "device", "driver", "peer", "stream"]),
    ("host_call", &["capture", "device", "driver", "stream"]),
    ("managed", &["alloc", "allocator", "device", "driver", "stream", "kind"]),
    ("ipc", &["alloc", "allocator", "device", "driver"]),
    ("graph", &["alloc", "capture", "device", "driver", "stream"]),
    ("array", &["alloc", "capture", "copy", "device", "driver", "stream"]),
    ("access", &["alloc", "array", "capture", "device", "driver", "peer", "pool"]),
    ("scope", &["allocator", "device", "peer", "stream"]),
    ("report", &["device", "driver", "peer"]),
];

/// What every concept stands on.
const GROUND: &[&str] = &[
    "boundary", "config", "error", "fork", "handle", "lock", "log", "moment", "random", "runtime", "thread",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn name(path: &Path) -> String {
    path.strip_prefix(root()).expect("it is in the repository").to_string_lossy().into_owned()
}

/// What a source file says in code; comments and texts are not looked at.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words {
    identifiers: BTreeSet<String>,
    /// The rooms that it names as `crate::room`.
    rooms: BTreeSet<String>,
    /// It has `extern "C"`, as a block or before a function that has a name.
    is_c: bool,
}

fn words(source: &str) -> Words {
    let stream: TokenStream = source.parse().expect("a source file is made of tokens");
    let mut words = Words::default();
    collect(stream, &mut words);
    words
}

fn collect(stream: TokenStream, words: &mut Words) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => collect(group.stream(), words),
            TokenTree::Ident(ident) => {
                words.identifiers.insert(ident.to_string());
                if ident == "crate" {
                    words.rooms.extend(rooms_behind(&tokens[at + 1..]));
                }
                if ident == "extern" && tokens.get(at + 1).is_some_and(|abi| abi.to_string() == "\"C\"") {
                    // `extern "C" fn(...)` without a name is a type, and types may cross a room.
                    let block = matches!(tokens.get(at + 2), Some(TokenTree::Group(_)));
                    let named = matches!(tokens.get(at + 3), Some(TokenTree::Ident(_)));
                    words.is_c |= block || named;
                }
            }
            _ => {}
        }
    }
}

/// The first names in `::name` and `::{name::..., name}`.
fn rooms_behind(tokens: &[TokenTree]) -> Vec<String> {
    let colons =
        tokens.iter().take_while(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ':'));
    match (colons.count(), tokens.get(2)) {
        (2, Some(TokenTree::Ident(room))) => vec![room.to_string()],
        (2, Some(TokenTree::Group(group))) if group.delimiter() == Delimiter::Brace => {
            let mut first = true;
            let mut rooms = Vec::new();
            for token in group.stream() {
                match &token {
                    TokenTree::Ident(room) if first => rooms.push(room.to_string()),
                    _ => {}
                }
                first = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == ',');
            }
            rooms
        }
        _ => Vec::new(),
    }
}

/// Every file of the library for which something is wrong, with what it is.
fn offences(find: impl Fn(&str, &Words) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for path in rust_files("src") {
        let file = name(&path);
        let words = words(&std::fs::read_to_string(&path).expect("a source file can be read"));
        found.extend(find(&file, &words).map(|offence| format!("{file}: {offence}")));
    }
    found
}

fn is_cuda(word: &str) -> bool {
    let after = |prefix: &str, next: fn(char) -> bool| {
        word.strip_prefix(prefix).and_then(|rest| rest.chars().next()).is_some_and(next)
    };
    word == "cudarc"
        || after("cu", |letter| letter.is_ascii_uppercase())
        || after("CU", |letter| letter.is_ascii_lowercase())
        || word.starts_with("CU_")
        || word.starts_with("CUDA_ERROR")
}

#[test]
fn only_the_driver_room_knows_cuda() {
    let found = offences(|file, words| {
        let cuda: Vec<&String> = words.identifiers.iter().filter(|word| is_cuda(word)).collect();
        (!file.starts_with("src/driver/") && !cuda.is_empty()).then(|| format!("it names {cuda:?}"))
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn only_the_c_face_is_called_from_c() {
    let found = offences(|file, words| {
        let face = file.starts_with("src/ffi/");
        let edge =
            face || file.starts_with("src/driver/") || C_INSIDE.iter().any(|(known, _)| *known == file);
        let exported = ["no_mangle", "export_name"].iter().any(|mark| words.identifiers.contains(*mark));
        if !face && exported {
            Some("it exports a symbol".to_string())
        } else {
            (!edge && words.is_c).then(|| "it has extern \"C\"".to_string())
        }
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn arrows_point_from_the_c_face_to_the_concepts_to_the_driver() {
    let found = offences(|file, words| {
        if file.starts_with("src/ffi/") {
            return words
                .rooms
                .contains("driver")
                .then(|| "the C face reaches past the concepts".to_string());
        }
        if file.starts_with("src/driver/") {
            let above: Vec<&String> =
                words.rooms.iter().filter(|room| !BELOW_DRIVER.contains(&room.as_str())).collect();
            return (!above.is_empty()).then(|| format!("the driver room reaches up to {above:?}"));
        }
        words.rooms.contains("ffi").then(|| "a concept reaches up to the C face".to_string())
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn concepts_know_only_what_they_stand_on() {
    let found = offences(|file, words| {
        let room = file.strip_prefix("src/")?.split(['/', '.']).next()?;
        let below = match CONCEPTS.iter().find(|(concept, _)| *concept == room) {
            Some((_, below)) => *below,
            // The life of the process is among it, and has the driver.
            None if GROUND.contains(&room) => &["driver"],
            None if ["driver", "ffi", "lib"].contains(&room) => return None,
            None => return Some("no table of this test has it".into()),
        };
        let allowed =
            |name: &String| name == room || below.contains(&name.as_str()) || GROUND.contains(&name.as_str());
        let above: Vec<&String> = words.rooms.iter().filter(|name| !allowed(name)).collect();
        (!above.is_empty()).then(|| format!("it reaches up to {above:?}"))
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn each_concept_stands_behind_those_that_it_stands_on() {
    for (at, (concept, below)) in CONCEPTS.iter().enumerate() {
        let before = |name: &&&str| CONCEPTS[..at].iter().any(|(earlier, _)| earlier == *name);
        let late: Vec<_> = below.iter().filter(|name| **name != "driver" && !before(name)).collect();
        assert!(late.is_empty(), "{concept} names {late:?}, which do not stand before it");
    }
}

#[test]
fn no_file_is_so_long_that_it_needs_a_table_of_contents() {
    let mut found = Vec::new();
    for folder in ["src", "info", "replay", "sim/src", "xtask/src", "tests", "benches"] {
        for path in rust_files(folder) {
            let lines = std::fs::read_to_string(&path).expect("a source file can be read").lines().count();
            if lines > LONGEST_FILE {
                found.push(format!("{}: {lines} lines", name(&path)));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn code_is_told_from_comments_texts_and_types() {
    let source = r#"
        //! cuMemAlloc and crate::ffi in a comment
        use crate::{device::{self, Device}, driver::Failure};
        use crate::error::Result;
        type Callback = unsafe extern "C" fn(u32);
        fn talk() { log("cuMemAlloc", 'c'); crate::stream::run(); }
    "#;
    let plain = words(source);
    let rooms: Vec<&str> = plain.rooms.iter().map(String::as_str).collect();
    assert_eq!(rooms, ["device", "driver", "error", "stream"]);
    assert!(!plain.is_c && !plain.identifiers.iter().any(|word| is_cuda(word)));
    assert!(words("extern \"C\" fn named() {}").is_c);
    assert!(words("unsafe extern \"C\" { fn outside(); }").is_c);
    assert!(words("fn f() { let r: CUresult = 1; }").identifiers.iter().any(|word| is_cuda(word)));
    assert!(["cudarc", "cuInit", "CUdevice", "CU_POINTER_ATTRIBUTE"].iter().all(|word| is_cuda(word)));
    assert!(["cursor", "current", "CUBE", "CUDA_DEVICE"].iter().all(|word| !is_cuda(word)));
}
