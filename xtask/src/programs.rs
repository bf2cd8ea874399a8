//! The small C and C++ programs of the repository, compiled without CMake: for the demo and for the kit.

use crate::shell::{Run, files_in, read_file, root};
use crate::tools::{c_compiler, cpp_compiler};
use std::path::{Path, PathBuf};

const DEFAULT_TOPOLOGY: &str = "h200x2";

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
    /// The simulated machines on which it is to run, `-` being one without a driver (`cmake/programs.cmake` has the syntax).
    pub fn topologies(&self) -> Result<Vec<String>, String> {
        let named: Vec<String> = self
            .remarks()?
            .iter()
            .filter_map(|remark| remark.strip_prefix("topology:"))
            .map(|topology| topology.trim().to_string())
            .collect();
        Ok(if named.is_empty() { vec![DEFAULT_TOPOLOGY.to_string()] } else { named })
    }

    /// Whether it runs on a machine as it is: it can do with the usual topology and does not say `needs: simulator`.
    pub fn runs_on_hardware(&self) -> Result<bool, String> {
        Ok(!self.needs("simulator")?
            && self.topologies()?.iter().any(|topology| topology == DEFAULT_TOPOLOGY))
    }

    /// Whether the simulated driver shows what it is to show.
    pub fn runs_simulated(&self) -> Result<bool, String> {
        Ok(!self.needs("hardware")?)
    }

    fn needs(&self, what: &str) -> Result<bool, String> {
        Ok(self.remarks()?.iter().any(|remark| remark.strip_prefix("needs: ") == Some(what)))
    }

    /// The comment lines near the top, without the marks of a comment.
    fn remarks(&self) -> Result<Vec<String>, String> {
        let text = read_file(&self.source)?;
        let comments = text.lines().take(40).map(str::trim).filter(|line| line.starts_with(['/', '*']));
        Ok(comments
            .map(|line| line.trim_start_matches(['/', '*']).trim_end_matches("*/").trim().to_string())
            .collect())
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
    fn programs_for_one_sort_of_driver_are_told_apart() {
        let folder = std::env::temp_dir().join(format!("warpmem-programs-{}", std::process::id()));
        for (name, text, on_hardware, simulated) in [
            ("plain", "int main(void) { return 0; }\n", true, true),
            ("both", "// topology: h200x2\n/* topology: mixed */\n", true, true),
            ("other", "/* topology: ten */\n", false, true),
            ("none", "// topology: -\n", false, true),
            ("needs", "/*\n * needs: simulator\n */\n", false, true),
            ("real", "/*\n * needs: hardware\n */\n", true, false),
        ] {
            let source = folder.join(format!("{name}.c"));
            write_file(&source, text).expect("a file in the temporary folder");
            let program = Program { source, folder: "x".to_string(), stem: name.to_string() };
            assert_eq!(program.runs_on_hardware(), Ok(on_hardware), "{name}");
            assert_eq!(program.runs_simulated(), Ok(simulated), "{name}");
        }
        std::fs::remove_dir_all(&folder).expect("the folder can be removed");
    }
}
