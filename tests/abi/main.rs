//! The promises of the binary interface: the header is what the source says, it compiles cleanly wherever C or C++ does, the
//! library exports what the header declares and nothing else, and no size, offset, value or signature changes unnoticed.
//!
//! `WARPMEM_BLESS=1` (`cargo xtask bless`) rewrites the committed files instead of failing.

mod chapters;
mod compile;
mod declarations;
mod exports;
mod header;
mod layout;

use std::path::{Path, PathBuf};

/// The repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header_path() -> PathBuf {
    root().join("include/warpmem.h")
}

/// The committed header. A test that rewrites it may run beside this one, so it is never seen half written.
fn committed_header() -> String {
    std::fs::read_to_string(header_path())
        .expect("include/warpmem.h is there: `cargo xtask header` writes it")
}

fn blessing() -> bool {
    std::env::var_os("WARPMEM_BLESS").is_some_and(|value| value == "1")
}

/// Compares what was made now with a committed file, or with `WARPMEM_BLESS=1` writes it.
fn compare_with_committed(path: &Path, now: &str, remedy: &str) {
    if blessing() {
        std::fs::create_dir_all(path.parent().expect("a file is in a folder"))
            .expect("the folder can be made");
        let beside = path.with_extension("new");
        std::fs::write(&beside, now).expect("the file can be written");
        std::fs::rename(&beside, path).expect("the file can be replaced");
        return;
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    if committed != now {
        panic!("{} is stale; {remedy}\n{}", path.display(), difference(&committed, now));
    }
}

/// The first lines that only one of two texts has, enough to see what changed.
fn difference(committed: &str, now: &str) -> String {
    const SHOWN: usize = 20;
    let only_in = |here: &str, there: &str, mark: char| {
        let mut count = std::collections::HashMap::new();
        there.lines().for_each(|line| *count.entry(line.to_string()).or_insert(0i64) += 1);
        here.lines()
            .enumerate()
            .filter(|(_, line)| {
                let left = count.entry(line.to_string()).or_insert(0);
                *left -= 1;
                *left < 0
            })
            .map(|(at, line)| format!("  {mark} {:5}  {line}", at + 1))
            .collect::<Vec<_>>()
    };
    let gone = only_in(committed, now, '-');
    let come = only_in(now, committed, '+');
    if gone.is_empty() && come.is_empty() {
        return "  the same lines in another order".to_string();
    }
    let mut shown: Vec<String> = Vec::new();
    for lines in [gone, come] {
        let more = lines.len().saturating_sub(SHOWN);
        shown.extend(lines.into_iter().take(SHOWN));
        if more != 0 {
            shown.push(format!("    and {more} more"));
        }
    }
    shown.join("\n")
}

#[test]
fn a_difference_shows_lines_that_only_one_side_has() {
    assert_eq!(difference("a\nb\nc", "a\nx\nc"), "  -     2  b\n  +     2  x");
    assert_eq!(difference("a\nb", "b\na"), "  the same lines in another order");
}
