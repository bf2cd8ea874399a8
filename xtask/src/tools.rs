//! Tools that the tests need beside a Rust toolchain, a C compiler and Python: the system's own where they will do, else from
//! a private Python environment, `.venv`, that is filled once and works without a network from then on.

use crate::shell::{Run, root};
use std::path::{Path, PathBuf};

/// The oldest CMake that reads our CMakeLists.txt.
const CMAKE_FLOOR: (u32, u32) = (3, 22);

/// Brings `cuda.h`, which the fact probes include. The version of the driver that the facts come from.
const CUDA_HEADERS: &str = "nvidia-cuda-runtime==13.0.96";

#[derive(Debug, Clone)]
pub struct CMake {
    pub cmake: PathBuf,
    pub ctest: PathBuf,
    /// Nothing means CMake's own default, make.
    pub ninja: Option<PathBuf>,
}

pub fn cmake() -> Result<CMake, String> {
    let (cmake, ctest) = match (on_path("cmake"), on_path("ctest")) {
        (Some(cmake), Some(ctest)) if cmake_version(&cmake).is_some_and(|version| version >= CMAKE_FLOOR) => {
            (cmake, ctest)
        }
        _ => (from_environment("cmake", "cmake")?, from_environment("ctest", "cmake")?),
    };
    let ninja = match on_path("ninja") {
        Some(ninja) => Some(ninja),
        None => from_environment("ninja", "ninja").ok(),
    };
    if ninja.is_none() && on_path("make").is_none() {
        return Err("there is neither ninja nor make".to_string());
    }
    Ok(CMake { cmake, ctest, ninja })
}

pub fn pkg_config() -> Result<PathBuf, String> {
    if let Some(found) = on_path("pkg-config").or_else(|| on_path("pkgconf")) {
        return Ok(found);
    }
    from_environment("pkgconf", "pkgconf")
}

pub fn python() -> Result<PathBuf, String> {
    on_path("python3").ok_or_else(|| "there is no python3".to_string())
}

/// The folder of `cuda.h`.
pub fn cuda_headers() -> Result<PathBuf, String> {
    if let Some(found) = cuda_headers_of_environment() {
        return Ok(found);
    }
    install(CUDA_HEADERS)?;
    cuda_headers_of_environment().ok_or_else(|| format!("{CUDA_HEADERS} brought no cuda.h"))
}

fn cuda_headers_of_environment() -> Option<PathBuf> {
    let pythons = std::fs::read_dir(root().join(".venv/lib")).ok()?;
    pythons.filter_map(Result::ok).find_map(|python| {
        let packages = python.path().join("site-packages/nvidia");
        let toolkits = std::fs::read_dir(packages).ok()?;
        toolkits
            .filter_map(Result::ok)
            .map(|toolkit| toolkit.path().join("include"))
            .find(|include| include.join("cuda.h").is_file())
    })
}

pub fn c_compiler() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".to_string())
}

pub fn cpp_compiler() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".to_string())
}

/// A program of the search path, tried by running it: a shim of a version manager may stand there for a program that is not
/// installed.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file() && runs(file))
}

fn runs(program: &Path) -> bool {
    Run::new(program).arg("--version").limit(20).finish(false).is_ok_and(|finished| finished.success)
}

fn cmake_version(cmake: &Path) -> Option<(u32, u32)> {
    let output = Run::new(cmake).arg("--version").keep().ok()?;
    let mut parts = output.lines().next()?.rsplit(' ').next()?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn from_environment(program: &str, package: &str) -> Result<PathBuf, String> {
    let file = root().join(".venv/bin").join(program);
    if !(file.is_file() && runs(&file)) {
        install(package)?;
    }
    if file.is_file() { Ok(file) } else { Err(format!("the package {package} brought no {program}")) }
}

fn install(package: &str) -> Result<(), String> {
    let folder = root().join(".venv");
    let python = folder.join("bin/python3");
    let within = |error: String| format!("{package} could not be fetched into .venv: {}", last_line(&error));
    if !(python.is_file() && runs(&python)) {
        let system = crate::tools::python()?;
        let made = Run::new(&system).args(["-m", "venv"]).arg(&folder).keep();
        if made.is_err() {
            // Some systems ship venv without the pip that goes into it; the system's pip can fill it from outside.
            Run::new(&system)
                .args(["-m", "venv", "--clear", "--without-pip"])
                .arg(&folder)
                .keep()
                .map_err(within)?;
        }
    }
    println!("fetching {package} into .venv");
    let inside =
        Run::new(&python).args(["-m", "pip", "--version"]).finish(false).is_ok_and(|done| done.success);
    let pip = if inside {
        Run::new(&python).args(["-m", "pip"])
    } else {
        Run::new(crate::tools::python()?).args(["-m", "pip", "--python"]).arg(&python)
    };
    pip.args(["install", "--quiet", "--disable-pip-version-check", package])
        .limit(300)
        .keep()
        .map_err(within)?;
    Ok(())
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or(text)
}
