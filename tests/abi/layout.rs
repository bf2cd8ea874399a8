//! Sizes, offsets, values and signatures, as a C compiler sees them, against the committed record of them.

use crate::compile::{c_compiler, scratch};
use crate::declarations::{self, Declaration, Kind, without_comments};
use crate::{committed_header, compare_with_committed, root};
use std::process::Command;

/// The integer constants of the header, without the version, which is meant to change.
pub fn integer_constants() -> Vec<Declaration> {
    let all = declarations::read(&committed_header()).into_iter();
    all.filter(|one| one.kind == Kind::Constant && !is_version(&one.name)).collect()
}

fn is_version(name: &str) -> bool {
    name == "WARP_VERSION" || name.starts_with("WARP_VERSION_")
}

/// A C program that prints what the compiler makes of the header.
fn program(declared: &[Declaration]) -> String {
    let mut lines = Vec::new();
    for (at, declaration) in declared.iter().enumerate() {
        let name = &declaration.name;
        // A struct that is named early and described later is asked for once, where it is described.
        if declaration.kind == Kind::Struct && declared[at + 1..].iter().any(|later| later.name == *name) {
            continue;
        }
        match declaration.kind {
            Kind::Constant if is_version(name) => {}
            Kind::Constant => lines.push(format!("CONSTANT({name})")),
            Kind::Typedef if declaration.text.contains('(') => {
                lines.push(format!("SIGNATURE(\"{}\")", signature(&declaration.text)));
            }
            Kind::Typedef => lines.push(format!("SCALAR({name})")),
            Kind::Struct => {
                let fields = declaration.fields();
                if fields.is_empty() {
                    lines.push(format!("OPAQUE({name})"));
                } else {
                    lines.push(format!("STRUCT({name})"));
                    lines.extend(fields.iter().map(|field| format!("FIELD({name}, {field})")));
                }
            }
            Kind::Function => lines.push(format!("SIGNATURE(\"{}\")", signature(&declaration.text))),
        }
    }
    format!(
        r#"#include <warpmem.h>
#include <stdio.h>

#define CONSTANT(name) \
    if ((name) < 0) \
        printf("constant %s %lld\n", #name, (long long)(name)); \
    else \
        printf("constant %s %llu\n", #name, (unsigned long long)(name));
#define SCALAR(name) \
    printf("scalar %s size %zu %s\n", #name, sizeof(name), (name)-1 < (name)1 ? "signed" : "unsigned");
#define OPAQUE(name) printf("opaque %s\n", #name);
#define STRUCT(name) printf("struct %s size %zu alignment %zu\n", #name, sizeof(name), _Alignof(name));
#define FIELD(name, field) \
    printf("    %s offset %zu size %zu\n", #field, offsetof(name, field), sizeof(((name *)0)->field));
#define SIGNATURE(text) puts(text);

int main(void)
{{
    {}
    return 0;
}}
"#,
        lines.join("\n    ")
    )
}

fn signature(text: &str) -> String {
    without_comments(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn no_size_offset_value_or_signature_changes_unnoticed() {
    let folder = scratch("layout");
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program(&declarations::read(&committed_header())))
        .expect("the source can be written");
    let compiled = Command::new(c_compiler())
        .args(["-std=c11", "-w", "-I"])
        .arg(root().join("include"))
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .expect("there is a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&binary).output().expect("the program runs");
    assert!(output.status.success());
    compare_with_committed(
        &root().join("tests/abi/layout.txt"),
        &String::from_utf8_lossy(&output.stdout),
        "if that is meant, `cargo xtask bless` accepts it",
    );
}

#[test]
fn the_program_asks_for_everything() {
    let declared = declarations::read(
        "typedef struct warp_d warp_d;\n#define WARP_VERSION_MAJOR 0\n#define WARP_A 1\ntypedef int32_t warp_b;\ntypedef struct warp_c warp_c;\n\
         typedef struct warp_d { uint8_t e; } warp_d;\nvoid warp_f(warp_c  *c);",
    );
    let program = program(&declared);
    for line in ["CONSTANT(WARP_A)", "SCALAR(warp_b)", "OPAQUE(warp_c)", "STRUCT(warp_d)", "FIELD(warp_d, e)"]
    {
        assert!(program.contains(&format!("    {line}\n")), "{line} is missing in\n{program}");
    }
    assert!(program.contains("SIGNATURE(\"void warp_f(warp_c *c);\")"));
    assert!(!program.contains("WARP_VERSION_MAJOR") && !program.contains("OPAQUE(warp_d)"));
}
