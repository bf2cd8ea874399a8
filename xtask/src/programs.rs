//! The small C and C++ programs of the repository, compiled without CMake: for the demo and for the kit.

use crate::shell::{Run, files_in, read_file, root};
use crate::tools::{c_compiler, cpp_compiler};
use std::path::{Path, PathBuf};

/// A source file that is one program.
pub struct Program {
    pub source: PathBuf,
    /// Its folder and its stem: `tests/c` and `pools`.
    pub folder: String,
    pub stem: String,
}

/// The programs of one of the repository's folders.
pub fn in_folder(folder: &str) -> Vec<Program> {
    files_in(&root().join(folder), &["c", "cpp"])
        .into_iter()
        .filter_map(|source| {
            let stem = source.file_stem()?.to_string_lossy().into_owned();
            Some(Program { source, folder: folder.to_string(), stem })
        })
        .collect()
}

impl Program {
    /// Whether it runs on a machine as it is: it names no simulated topology of its own (`cmake/programs.cmake` has the
    /// syntax) and does not say `needs: simulator`.
    pub fn runs_on_hardware(&self) -> Result<bool, String> {
        let text = read_file(&self.source)?;
        let mut topologies = Vec::new();
        for line in text.lines().take(40) {
            let words = line.trim().trim_start_matches(['/', '*']).trim_end_matches("*/").trim();
            if words == "needs: simulator" {
                return Ok(false);
            }
            topologies.extend(words.strip_prefix("topology:").map(str::trim));
        }
        Ok(topologies.is_empty() || topologies.contains(&"h200x2"))
    }

    /// Compiles it against the header of the repository and the library in a folder; the library is found at run time under
    /// `rpath`. `cuda` is the folder of `cuda.h`, for a program that includes it.
    pub fn compile(
        &self,
        library_folder: &Path,
        rpath: &str,
        cuda: Option<&Path>,
        binary: &Path,
    ) -> Result<(), String> {
        let cpp = self.source.extension().is_some_and(|extension| extension == "cpp");
        let (compiler, standard) =
            if cpp { (cpp_compiler(), "-std=c++17") } else { (c_compiler(), "-std=c11") };
        let mut run = Run::new(compiler).args([standard, "-O2", "-Wall", "-Wextra", "-Werror"]);
        for include in ["include", "tests/c", "sim/include"] {
            run = run.arg("-I").arg(root().join(include));
        }
        if let Some(cuda) = cuda {
            // Not ours to keep free of warnings.
            run = run.arg("-isystem").arg(cuda);
        }
        run.arg(&self.source)
            .arg("-o")
            .arg(binary)
            .arg("-L")
            .arg(library_folder)
            .arg(format!("-Wl,-rpath,{rpath}"))
            .args(["-lwarpmem", "-pthread", "-ldl", "-lm"])
            .keep()
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::write_file;

    #[test]
    fn a_program_for_the_simulator_alone_is_told_apart() {
        let folder = std::env::temp_dir().join(format!("warpmem-programs-{}", std::process::id()));
        for (name, text, expected) in [
            ("plain", "int main(void) { return 0; }\n", true),
            ("both", "// topology: h200x2\n/* topology: mixed */\n", true),
            ("other", "/* topology: ten */\n", false),
            ("none", "// topology: -\n", false),
            ("needs", "/*\n * needs: simulator\n */\n", false),
        ] {
            let source = folder.join(format!("{name}.c"));
            write_file(&source, text).expect("a file in the temporary folder");
            let program = Program { source, folder: "x".to_string(), stem: name.to_string() };
            assert_eq!(program.runs_on_hardware(), Ok(expected), "{name}");
        }
        std::fs::remove_dir_all(&folder).expect("the folder can be removed");
    }
}
