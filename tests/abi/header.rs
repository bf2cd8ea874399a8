//! `include/warpmem.h` is what cbindgen and the doc comments of `src/ffi` say it is.

use crate::{chapters, compare_with_committed, header_path, root};
use std::path::{Path, PathBuf};

#[test]
fn the_committed_header_is_what_the_source_says() {
    let now = generate().unwrap_or_else(|error| panic!("the header cannot be written: {error}"));
    compare_with_committed(&header_path(), &now, "`cargo xtask header` writes it anew");
}

/// The whole header, from the sources of today.
fn generate() -> Result<String, String> {
    let room = root().join("src/ffi");
    let mut sources = Vec::new();
    let mut chapters = Vec::new();
    for module in chapters::module_names(&read(&room.join("mod.rs"))?)? {
        let path = module_file(&room, &module)?;
        let chapter =
            chapters::Chapter::read(&read(&path)?).map_err(|error| format!("{}: {error}", path.display()))?;
        if !chapter.names.is_empty() {
            sources.push(path);
            chapters.push(chapter);
        }
    }
    let mut config = cbindgen::Config::from_file(root().join("cbindgen.toml"))?;
    let opening = config.header.take().unwrap_or_default();
    let guard = config.include_guard.take().ok_or("cbindgen.toml names no include guard")?;
    config.cpp_compat = false;
    // A type alias that no function uses is still there for callers.
    config.export.include = chapters.iter().flat_map(|chapter| chapter.types.keys().cloned()).collect();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in &sources {
        builder = builder.with_src(source);
    }
    let mut declared = Vec::new();
    builder.generate().map_err(|error| error.to_string())?.write(&mut declared);
    let declared = String::from_utf8(declared).map_err(|error| error.to_string())?;
    let body = chapters::arrange(&declared, &chapters)?;
    Ok(frame(opening.trim(), &guard, &body))
}

fn module_file(room: &Path, module: &str) -> Result<PathBuf, String> {
    let candidates = [room.join(format!("{module}.rs")), room.join(module).join("mod.rs")];
    candidates
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| format!("src/ffi has no module {module}"))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// What stands around the chapters.
fn frame(opening: &str, guard: &str, body: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let (major, minor, patch) =
        (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH"));
    let uses_bool = crate::declarations::identifiers(&crate::declarations::without_comments(body))
        .iter()
        .any(|(word, _)| *word == "bool");
    let bool_include = if uses_bool { "#include <stdbool.h>\n" } else { "" };
    format!(
        "{opening}
/* Written by cbindgen from src/ffi: change it there. */

#ifndef {guard}
#define {guard}

{bool_include}#include <stddef.h>
#include <stdint.h>

/* The version of this header. Give WARP_VERSION to warp_version_check() to compare it with the library that was loaded. */
#define WARP_VERSION_MAJOR {major}
#define WARP_VERSION_MINOR {minor}
#define WARP_VERSION_PATCH {patch}
#define WARP_VERSION_STRING \"{version}\"
#define WARP_VERSION (10000 * WARP_VERSION_MAJOR + 100 * WARP_VERSION_MINOR + WARP_VERSION_PATCH)

#ifdef __cplusplus
extern \"C\" {{
#endif

{}

#ifdef __cplusplus
}} /* extern \"C\" */
#endif

#endif /* {guard} */
",
        body.trim()
    )
}
