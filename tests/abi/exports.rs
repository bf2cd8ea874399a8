//! The shared library exports the functions of the header and nothing else, under the name by which the loader is to know it.

use crate::declarations::{self, Kind};
use crate::{committed_header, compare_with_committed, root};
use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader};
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The library that was built together with this test: cargo puts both into one folder.
pub fn library_path() -> PathBuf {
    let program = std::env::current_exe().expect("the test knows its own path");
    let beside = program.parent().expect("a file is in a folder").join("libwarpmem.so");
    assert!(beside.is_file(), "{} was not built", beside.display());
    beside
}

fn exported(library: &[u8]) -> BTreeSet<String> {
    let file = ElfFile64::<object::Endianness>::parse(library).expect("the library is an ELF file");
    file.dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .map(|symbol| symbol.name().expect("a symbol has a name").to_string())
        .collect()
}

fn declared() -> BTreeSet<String> {
    declarations::read(&committed_header())
        .into_iter()
        .filter(|declaration| declaration.kind == Kind::Function)
        .map(|declaration| declaration.name)
        .collect()
}

#[test]
fn exactly_the_functions_of_the_header_are_exported() {
    let library = std::fs::read(library_path()).expect("the library can be read");
    let exported = exported(&library);
    let declared = declared();
    let stray: Vec<_> = exported.difference(&declared).collect();
    let missing: Vec<_> = declared.difference(&exported).collect();
    assert!(stray.is_empty(), "exported but not in the header: {stray:?}");
    assert!(missing.is_empty(), "in the header but not exported: {missing:?}");
    assert!(exported.iter().all(|name| name.starts_with("warp_")));
}

#[test]
fn no_exported_name_comes_or_goes_unnoticed() {
    let library = std::fs::read(library_path()).expect("the library can be read");
    let mut names: String = exported(&library).into_iter().collect::<Vec<_>>().join("\n");
    names.push('\n');
    compare_with_committed(
        &root().join("tests/abi/symbols.txt"),
        &names,
        "if that is meant, `cargo xtask bless` accepts it",
    );
}

#[test]
fn the_loader_knows_the_library_by_its_compatible_version_and_never_unmaps_it() {
    let library = std::fs::read(library_path()).expect("the library can be read");
    let header =
        elf::FileHeader64::<object::Endianness>::parse(&*library).expect("the library is an ELF file");
    let endian = header.endian().expect("it has a byte order");
    let sections = header.sections(endian, &*library).expect("it has sections");
    let (entries, strings) =
        sections.dynamic(endian, &*library).expect("it is readable").expect("it is dynamic");
    let strings = sections.strings(endian, &*library, strings).expect("it has dynamic strings");
    let mut soname = None;
    let mut flags = 0;
    for entry in entries {
        if entry.tag(endian) == elf::DT_SONAME {
            let name = entry.string(endian, strings).expect("the name is in the strings");
            soname = Some(String::from_utf8_lossy(name).into_owned());
        } else if entry.tag(endian) == elf::DT_FLAGS_1 {
            flags = entry.val(endian);
        }
    }
    let expected = match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => format!("libwarpmem.so.0.{}", env!("CARGO_PKG_VERSION_MINOR")),
        major => format!("libwarpmem.so.{major}"),
    };
    assert_eq!(soname, Some(expected));
    assert_ne!(flags & elf::DF_1_NODELETE.0, 0, "the library can be unmapped");
}
