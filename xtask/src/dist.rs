//! `cargo xtask dist`: an installed tree made without CMake, and its archive. What is in it is what `cmake --install` puts into
//! a prefix, so that `find_package`, pkg-config and a bare compiler find the same things.

use crate::shell::write_file;
use crate::shell::{
    Run, build_folder, copy_as, copy_into, copy_tree, files_in, make_folder, read_file, remove_folder, root,
};
use std::path::{Path, PathBuf};

pub fn command() -> Result<(), String> {
    let tree = make()?;
    let archive = pack(&tree)?;
    println!("{}\n{}", shown(&tree), shown(&archive));
    Ok(())
}

/// Makes `dist/warpmem-VERSION-TARGET`.
pub fn make() -> Result<PathBuf, String> {
    build_release(&["warpmem"])?;
    let tree = root().join("dist").join(format!("warpmem-{}-{}", version(), target()?));
    remove_folder(&tree)?;
    install_library(&tree.join("lib"))?;
    install_programs(&tree.join("bin"))?;
    let archive = copy_into(&release_folder().join("libwarpmem.a"), &tree.join("lib"))?;
    Run::new("strip").arg("--strip-debug").arg(&archive).keep()?;
    copy_tree(&root().join("include"), &tree.join("include"))?;
    let package = tree.join("share/cmake/warpmem");
    copy_into(&root().join("cmake/warpmem-config.cmake"), &package)?;
    fill("cmake/warpmem-config-version.cmake.in", &package.join("warpmem-config-version.cmake"))?;
    fill("cmake/warpmem.pc.in", &tree.join("lib/pkgconfig/warpmem.pc"))?;
    let documents = tree.join("share/doc/warpmem");
    for name in ["LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md", "README.md"] {
        let file = root().join(name);
        if file.is_file() {
            copy_into(&file, &documents)?;
        }
    }
    // As in the repository, so that the links between them lead somewhere.
    for page in files_in(&root().join("docs"), &["md"]) {
        copy_into(&page, &documents.join("docs"))?;
    }
    for folder in ["examples-c", "examples-cpp", "examples-python"] {
        for example in files_in(&root().join(folder), &["c", "cpp", "py"]) {
            copy_into(&example, &documents.join(folder))?;
        }
    }
    Ok(tree)
}

/// Packs a tree beside itself; the same files give the same archive.
pub fn pack(tree: &Path) -> Result<PathBuf, String> {
    let (Some(folder), Some(name)) = (tree.parent(), tree.file_name()) else {
        return Err(format!("{} is no folder of a folder", tree.display()));
    };
    let archive = folder.join(format!("{}.tar.gz", name.to_string_lossy()));
    Run::new("tar")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf"])
        .arg(&archive)
        .arg("-C")
        .arg(folder)
        .arg(name)
        .keep()?;
    Ok(archive)
}

/// Puts the stripped shared library and its links into a folder.
pub fn install_library(folder: &Path) -> Result<(), String> {
    let library = link_library(&release_folder().join("libwarpmem.so"), folder)?;
    Run::new("strip").arg("--strip-unneeded").arg(&library).keep().map(drop)
}

/// The programs that are released.
const PROGRAMS: [&str; 2] = ["warpmem-info", "warpmem-replay"];

/// Builds the programs, which have the library in themselves, and puts them into a folder, stripped.
pub fn install_programs(folder: &Path) -> Result<(), String> {
    // By one cargo, which links both at once.
    let mut build = Run::cargo(["build", "--release", "--locked"]);
    for name in PROGRAMS {
        build = build.args(["--package", name, "--bin", name]);
    }
    build.keep()?;
    for name in PROGRAMS {
        let program = copy_into(&release_folder().join(name), folder)?;
        Run::new("strip").arg("--strip-unneeded").arg(&program).keep()?;
    }
    Ok(())
}

/// Puts a built shared library into a folder under its full name, with the links by which it is found.
pub fn link_library(library: &Path, folder: &Path) -> Result<PathBuf, String> {
    let real = format!("libwarpmem.so.{}", version());
    let soname = format!("libwarpmem.so.{}", series());
    let copy = copy_as(library, &folder.join(&real))?;
    for (target, link) in [(real.as_str(), soname.as_str()), (soname.as_str(), "libwarpmem.so")] {
        std::os::unix::fs::symlink(target, folder.join(link)).map_err(|error| format!("{link}: {error}"))?;
    }
    Ok(copy)
}

pub fn build_release(packages: &[&str]) -> Result<(), String> {
    let mut run = Run::cargo(["build", "--release", "--locked", "--lib"]);
    for package in packages {
        run = run.args(["--package", package]);
    }
    run.keep().map(drop)
}

pub fn release_folder() -> PathBuf {
    target_folder().join("release")
}

/// Where cargo builds.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// The version of the library, from the one place where it is written.
pub fn version() -> &'static str {
    let manifest = include_str!("../../Cargo.toml");
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    line.and_then(|rest| rest.split('"').next()).expect("Cargo.toml has the version")
}

/// The part of the version that callers have to match.
pub fn series() -> String {
    let mut parts = version().split('.');
    match (parts.next(), parts.next()) {
        (Some("0"), Some(minor)) => format!("0.{minor}"),
        (Some(major), _) => major.to_string(),
        _ => version().to_string(),
    }
}

fn target() -> Result<String, String> {
    let output =
        Run::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_string())).arg("-vV").keep()?;
    output
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_string)
        .ok_or_else(|| "rustc names no host".to_string())
}

fn fill(template: &str, to: &Path) -> Result<(), String> {
    let text = read_file(&root().join(template))?
        .replace("@WARPMEM_VERSION@", version())
        .replace("@WARPMEM_PC_PREFIX@", "${pcfiledir}/../..")
        .replace("@WARPMEM_PC_LIBDIR@", "${prefix}/lib")
        .replace("@WARPMEM_PC_INCLUDEDIR@", "${prefix}/include");
    write_file(to, &text)
}

/// A path as the reader of the output writes it.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// A folder of the build that is empty.
pub fn fresh_folder(name: &str) -> Result<PathBuf, String> {
    let folder = build_folder(name);
    remove_folder(&folder)?;
    make_folder(&folder)?;
    Ok(folder)
}
