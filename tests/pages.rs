//! The pages say what is so: their snippets of C stand word for word in a program that is compiled and run, every example is
//! shown somewhere, and links lead to files.

use std::path::{Path, PathBuf};

const PAGES: &[&str] = &[
    "README.md",
    "docs/guide.md",
    "docs/names.md",
    "docs/abi.md",
    "docs/architecture.md",
    "docs/performance.md",
    "docs/info.md",
    "docs/replay.md",
    "sim/README.md",
];

/// Pages whose code is quoted from examples, and the languages of it. (The Python of the README is run by a test of its own.)
const QUOTING: &[(&str, &[&str])] = &[("README.md", &["c"]), ("docs/guide.md", &["c", "cpp", "python"])];

/// The folders of examples.
const EXAMPLES: &[&str] = &["examples-c", "examples-cpp", "examples-python"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The targets of a line's links that are neither on the web nor on the same page, without what stands behind `#`.
fn links(line: &str) -> Vec<&str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .collect()
}

/// The blocks of a page in a language, each with the example in it that was linked last before it.
fn quotes(page: &str, language: &str) -> Vec<(Option<String>, Vec<String>)> {
    let ending = if language == "python" { ".py".to_string() } else { format!(".{language}") };
    let mut found = Vec::new();
    let mut source = None;
    let mut fence: Option<(bool, Vec<String>)> = None;
    for line in page.lines() {
        match &mut fence {
            Some((is_wanted, block)) if line == "```" => {
                if *is_wanted {
                    found.push((source.clone(), std::mem::take(block)));
                }
                fence = None;
            }
            Some((_, block)) => block.push(line.to_string()),
            None if line.starts_with("```") => fence = Some((&line[3..] == language, Vec::new())),
            None => {
                let example = links(line).into_iter().rfind(|target| target.ends_with(&ending));
                source = example.map(str::to_string).or(source);
            }
        }
    }
    found
}

#[test]
fn snippets_stand_word_for_word_in_programs_that_run() {
    let pages = QUOTING.iter().flat_map(|(page, languages)| languages.iter().map(move |of| (page, of)));
    for (page, language) in pages {
        let path = root().join(page);
        let folder = path.parent().expect("a page is in a folder");
        let quotes = quotes(&read(&path), language);
        assert!(!quotes.is_empty(), "{page} quotes nothing in {language}");
        for (source, block) in quotes {
            let source = source.unwrap_or_else(|| panic!("{page}: no example is linked before {block:#?}"));
            let program = read(&folder.join(&source));
            let lines: Vec<&str> = program.lines().collect();
            assert!(
                lines.windows(block.len()).any(|window| window == block),
                "{page}: {source} does not have these lines:\n{}",
                block.join("\n")
            );
        }
    }
}

#[test]
fn every_example_is_shown() {
    let pages: String = QUOTING.iter().map(|(page, _)| read(&root().join(page))).collect();
    for folder in EXAMPLES {
        for entry in std::fs::read_dir(root().join(folder)).expect("the examples can be listed") {
            let path = entry.expect("the examples can be listed").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            assert!(!path.is_file() || pages.contains(name.as_ref()), "no page shows {folder}/{name}");
        }
    }
}

#[test]
fn links_lead_to_files() {
    let mut broken: Vec<String> = Vec::new();
    for page in PAGES {
        let path = root().join(page);
        let folder: PathBuf = path.parent().expect("a page is in a folder").to_path_buf();
        for line in read(&path).lines() {
            let dead = links(line).into_iter().filter(|target| !folder.join(target).exists());
            broken.extend(dead.map(|target| format!("{page}: {target}")));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_quote_belongs_to_the_example_linked_last() {
    let page = "[a](x/a.c) and [b](b.c#main)\n```sh\ncc\n```\ntext [c](c.md)\n```c\nint x;\n```\n";
    assert_eq!(quotes(page, "c"), [(Some("b.c".to_string()), vec!["int x;".to_string()])]);
    let page = "[a](a.py) and [b](b.c)\n```python\nx = 1\n```\n```c\nint x;\n```\n";
    assert_eq!(quotes(page, "python"), [(Some("a.py".to_string()), vec!["x = 1".to_string()])]);
    assert_eq!(links("[w](https://x.y) [s](#here) [f](f.md#part)"), ["f.md"]);
}
