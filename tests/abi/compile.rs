//! Compiling small C and C++ programs, and the claim that the header is clean wherever it is included.

use crate::{header_path, root};
use std::path::{Path, PathBuf};
use std::process::Command;

const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wundef", "-Werror"];

/// The C compiler: `$CC` or `cc`.
pub fn c_compiler() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".to_string())
}

fn cpp_compiler() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".to_string())
}

/// A folder of this test's own under the build folder.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder under the build folder can be made");
    folder
}

fn compile_alone(compiler: &str, standard: &str, source: &Path) -> Result<(), String> {
    let output = Command::new(compiler)
        .arg(standard)
        .args(STRICT)
        .arg("-fsyntax-only")
        .arg("-I")
        .arg(root().join("include"))
        .arg(source)
        .output()
        .map_err(|error| format!("{compiler}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Compiles a source in every standard that the compiler knows; answers how many those were.
fn clean_in(compiler: &str, standards: &[&str], source: &Path, empty: &Path) -> usize {
    let mut tried = 0;
    for standard in standards {
        if compile_alone(compiler, standard, empty).is_err() {
            println!("left out: {compiler} does not know {standard}");
            continue;
        }
        tried += 1;
        if let Err(error) = compile_alone(compiler, standard, source) {
            panic!("{} is not clean with {compiler} {standard}:\n{error}", source.display());
        }
    }
    tried
}

/// The header alone, twice, and every integer constant used: a macro is only looked at where it is used.
fn source_with_every_constant() -> String {
    let mut source = "#include \"warpmem.h\"\n#include \"warpmem.h\"\n".to_string();
    for declaration in crate::layout::integer_constants() {
        source.push_str(&format!(
            "extern int use_{0}[({0}) == ({0}) ? 1 : 2];\n#if ({0}) != ({0})\n#error {0}\n#endif\n",
            declaration.name
        ));
    }
    source
}

#[test]
fn the_header_is_clean_in_every_c_and_cpp_standard() {
    assert!(header_path().is_file());
    let folder = scratch("header-alone");
    for (compiler, extension, standards) in [
        (c_compiler(), "c", &["-std=c99", "-std=c11", "-std=c17", "-std=c2x", "-std=c23"][..]),
        (cpp_compiler(), "cpp", &["-std=c++11", "-std=c++14", "-std=c++17", "-std=c++20", "-std=c++23"][..]),
    ] {
        let source = folder.join(format!("twice.{extension}"));
        let empty = folder.join(format!("empty.{extension}"));
        std::fs::write(&source, source_with_every_constant()).expect("the source can be written");
        std::fs::write(&empty, "typedef int nothing;\n").expect("the source can be written");
        assert!(clean_in(&compiler, standards, &source, &empty) >= 3, "{compiler} knows too few standards");
    }
}
