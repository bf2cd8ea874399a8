//! Running other programs: with a time limit, their output shown or kept, and their failure as one message.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository")
}

/// A folder for what is built here and is no part of cargo's own output.
pub fn build_folder(name: &str) -> PathBuf {
    root().join("build").join(name)
}

/// One program with its arguments.
pub struct Run {
    words: Vec<String>,
    environment: Vec<(String, String)>,
    removed: Vec<String>,
    limit_seconds: u32,
}

pub struct Finished {
    pub success: bool,
    /// Both streams, in the order in which they were written.
    pub output: String,
}

impl Run {
    pub fn new(program: impl AsRef<OsStr>) -> Run {
        Run {
            words: vec![program.as_ref().to_string_lossy().into_owned()],
            environment: Vec::new(),
            // Cargo lets us find what it builds itself; what we run has its libraries where it was told.
            removed: vec!["LD_LIBRARY_PATH".to_string()],
            limit_seconds: 1200,
        }
    }

    pub fn cargo<const N: usize>(arguments: [&str; N]) -> Run {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
        Run::new(cargo).args(arguments)
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Run {
        self.words.push(argument.as_ref().to_string_lossy().into_owned());
        self
    }

    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(self, arguments: I) -> Run {
        arguments.into_iter().fold(self, Run::arg)
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.environment.push((name.to_string(), value.as_ref().to_string_lossy().into_owned()));
        self
    }

    pub fn without_env(mut self, name: &str) -> Run {
        self.removed.push(name.to_string());
        self
    }

    pub fn limit(mut self, seconds: u32) -> Run {
        self.limit_seconds = seconds;
        self
    }

    /// Runs it with its output where ours goes.
    pub fn show(self) -> Result<(), String> {
        let line = self.line();
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        let status = self.apply(&mut command).status().map_err(|error| format!("{line}: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("{line}: {status}")) }
    }

    /// Runs it and keeps the output; a failure's message has all of it.
    pub fn keep(self) -> Result<String, String> {
        let line = self.line();
        let finished = self.finish(false)?;
        if finished.success {
            Ok(finished.output)
        } else {
            Err(format!("$ {line}\n{}", finished.output.trim_end()))
        }
    }

    /// Runs it to its end, however that is. `Err` only when it cannot be started.
    pub fn finish(self, echo: bool) -> Result<Finished, String> {
        let line = self.line();
        // One pipe for both streams keeps their order, and `timeout` ends whatever the program has started too.
        let mut command = Command::new("timeout");
        command.arg("--kill-after=10").arg(self.limit_seconds.to_string());
        command.args(["sh", "-c", "exec \"$@\" 2>&1", "sh"]).args(&self.words);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = self.apply(&mut command).spawn().map_err(|error| format!("{line}: {error}"))?;
        let mut output = String::new();
        if let Some(pipe) = child.stdout.take() {
            let mut reader = BufReader::new(pipe);
            let mut bytes = Vec::new();
            while reader.read_until(b'\n', &mut bytes).map_err(|error| format!("{line}: {error}"))? != 0 {
                let text = String::from_utf8_lossy(&bytes);
                if echo {
                    print!("{text}");
                    // A closed terminal is no reason to stop the run.
                    let _ = std::io::stdout().flush();
                }
                output.push_str(&text);
                bytes.clear();
            }
        }
        let status = child.wait().map_err(|error| format!("{line}: {error}"))?;
        if status.code() == Some(124) {
            output.push_str(&format!("\nstopped after {} s\n", self.limit_seconds));
        }
        Ok(Finished { success: status.success(), output })
    }

    fn line(&self) -> String {
        self.words.join(" ")
    }

    fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for name in &self.removed {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).current_dir(root())
    }
}

/// Removes a folder and all in it, if it is there.
pub fn remove_folder(folder: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

pub fn make_folder(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Copies a file, its permissions too, into a folder that is made if need be.
pub fn copy_into(file: &Path, folder: &Path) -> Result<PathBuf, String> {
    let name = file.file_name().ok_or_else(|| format!("{} names no file", file.display()))?;
    copy_as(file, &folder.join(name))
}

pub fn copy_as(file: &Path, to: &Path) -> Result<PathBuf, String> {
    if let Some(folder) = to.parent() {
        make_folder(folder)?;
    }
    std::fs::copy(file, to).map_err(|error| format!("{} to {}: {error}", file.display(), to.display()))?;
    Ok(to.to_path_buf())
}

/// Copies what is in a folder, if there is one, into another; not what Python has compiled there.
pub fn copy_tree(from: &Path, to: &Path) -> Result<(), String> {
    let Ok(entries) = std::fs::read_dir(from) else { return Ok(()) };
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", from.display()))?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() && name != "__pycache__" {
            copy_tree(&path, &to.join(name))?;
        } else if path.is_file() {
            copy_into(&path, to)?;
        }
    }
    Ok(())
}

pub fn write_file(path: &Path, text: &str) -> Result<(), String> {
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

pub fn read_file(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The files of a folder (not of those below it) with one of these extensions, sorted; none if there is no such folder.
pub fn files_in(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file())
        .filter(|path| path.extension().is_some_and(|found| extensions.iter().any(|wanted| found == *wanted)))
        .collect();
    files.sort();
    files
}
