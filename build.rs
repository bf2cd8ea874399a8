//! Link settings of the shared library, and the version file that cargo-c ships for CMake.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=cmake/warpmem-config-version.cmake.in");

    let part =
        |name: &str| std::env::var(format!("CARGO_PKG_VERSION_{name}")).expect("cargo sets the version");
    // What may be exchanged without recompiling: a minor version before 1.0, a major one after.
    let compatible = match part("MAJOR").as_str() {
        "0" => format!("0.{}", part("MINOR")),
        major => major.to_string(),
    };
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libwarpmem.so.{compatible}");
        // Threads, thread-local records and the driver keep addresses into the library: it can never be unmapped.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }

    let template =
        std::fs::read_to_string("cmake/warpmem-config-version.cmake.in").expect("the template is there");
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets the version");
    let out = std::env::var("OUT_DIR").expect("cargo sets the output folder");
    std::fs::write(
        Path::new(&out).join("warpmem-config-version.cmake"),
        template.replace("@WARPMEM_VERSION@", &version),
    )
    .expect("the output folder can be written");
}
