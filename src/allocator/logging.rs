//! An adaptor that writes every call into a file, one line each. `docs/replay.md` has the format; `warpmem-replay` reads it.

use super::source::{Request, Source, Stacked, Traits, Upstream};
use crate::error::{Error, Result, error};
use crate::fork::{Lock, Own};
use crate::lock::Mutex;
use crate::log::log;
use crate::{tag, thread};
use std::any::Any;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// What the file begins with. A change of the lines is another number.
const HEADER: &str =
    "warpmem-allocation-log 1\nthread,time,action,pointer,size,alignment,device,stream,tag,status\n";
/// Bytes that are kept before they are written.
const BUFFER: usize = 1 << 16;

/// The file, and lines that wait for being written. Only whole lines are.
struct Writer {
    path: PathBuf,
    file: File,
    waiting: Vec<u8>,
    lines_waiting: u64,
    /// Bytes in the file.
    written: u64,
    /// Why nothing is written any more, and how many lines are missing.
    failure: Option<String>,
    lines_lost: u64,
    /// The process ends: nobody may come to write what waits.
    is_ending: bool,
}

impl Writer {
    fn open(path: &CStr) -> Result<Writer> {
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let cannot = |why: &dyn std::fmt::Display| {
            error!(
                InvalidArgument,
                "the log \"{}\" cannot be opened for writing: {why}; name a file in a folder that is there",
                path.display()
            )
        };
        // Opening a pipe may wait for ever, and writing to one that nobody reads ends the process.
        let kind = std::fs::metadata(path).map(|data| data.file_type());
        if kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket()) {
            return Err(cannot(&"it is a pipe or a socket"));
        }
        let file = File::create(path).map_err(|error| cannot(&error))?;
        Ok(Writer {
            path: path.to_path_buf(),
            file,
            waiting: HEADER.as_bytes().to_vec(),
            lines_waiting: 0,
            written: 0,
            failure: None,
            lines_lost: 0,
            is_ending: false,
        })
    }

    /// Adds a line. True when writing failed just now, which is to be told when the lock is free.
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.failure.is_some() {
            self.lines_lost += 1;
            return false;
        }
        write(&mut self.waiting);
        self.lines_waiting += 1;
        (self.waiting.len() >= BUFFER || self.is_ending) && self.write_out()
    }

    /// As `add`. After a failure nothing is written any more, so that what is there has no gap.
    fn write_out(&mut self) -> bool {
        if self.failure.is_some() {
            return false;
        }
        let outcome = self.file.write_all(&self.waiting);
        let lines = std::mem::take(&mut self.lines_waiting);
        let bytes = self.waiting.len() as u64;
        self.waiting.clear();
        match outcome {
            Ok(()) => {
                self.written += bytes;
                false
            }
            Err(error) => {
                self.lines_lost += lines;
                self.failure = Some(error.to_string());
                // Half a line would be refused by whoever reads it. What is no file has no length.
                let _ = self.file.set_len(self.written);
                true
            }
        }
    }

    #[cold]
    fn broken(&self, why: &str) -> Error {
        error!(
            AllocatorFailed,
            "the log \"{}\" could not be written: {why}; it ends after {} bytes, and {} lines are missing. Allocations go on; log to another file with a new adaptor",
            self.path.display(),
            self.written,
            self.lines_lost
        )
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.write_out()
            && let Some(why) = &self.failure
        {
            log!(Error, "{}", self.broken(why));
        }
    }
}

/// The logs of this process, to be written when it ends.
static OPEN: Lock<Vec<Weak<Mutex<Writer>>>> = Lock::new(Vec::new());

fn keep_until_exit(writer: &Arc<Mutex<Writer>>) {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    let mut open = OPEN.write();
    open.retain(|log| log.strong_count() != 0);
    open.push(Arc::downgrade(writer));
    if !WATCHING.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is of a library that is never unmapped.
        unsafe { libc::atexit(exiting) };
    }
}

/// Writes what waits. Other threads may go on, or hold a lock for ever: then their log is left alone.
extern "C" fn exiting() {
    // A child of a fork first forgets the logs of its parent.
    crate::runtime::is_forked();
    let open: Vec<_> = OPEN.read().iter().filter_map(Weak::upgrade).collect();
    for log in open {
        if let Some(mut writer) = log.try_lock_for(std::time::Duration::from_millis(100)) {
            writer.write_out();
            writer.is_ending = true;
        }
    }
}

/// After a fork, in the child: what waits is its parent's to write.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub(super) unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe { OPEN.replace_in_child(Vec::new()) };
}

pub struct Logging {
    upstream: Upstream,
    start: Instant,
    writer: Own<Arc<Mutex<Writer>>>,
}

impl Logging {
    pub fn new(upstream: Upstream, path: &CStr) -> Result<Logging> {
        Stacked::require_room(&[&upstream])?;
        let writer = Arc::new(Mutex::new(Writer::open(path)?));
        keep_until_exit(&writer);
        Ok(Logging { upstream, start: Instant::now(), writer: Own::new(writer) })
    }

    /// Writes what waits. An error when something could not be written, now or before.
    pub fn flush(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        writer.write_out();
        match &writer.failure {
            None => Ok(()),
            Some(why) => Err(writer.broken(why)),
        }
    }

    fn note(&self, action: &str, address: u64, request: &Request<'_>, outcome: Option<&Error>) {
        let thread = thread::mine().number();
        let stream = request.stream.map_or(0, |stream| stream.id());
        let status = outcome.map_or(0, |error| error.status as i32);
        let mut writer = self.writer.lock();
        let has_failed = writer.add(|line| {
            // Taken under the lock, so that times never go back from one line to the next.
            let time = self.start.elapsed().as_nanos();
            // Writing to a vector does not fail.
            let _ = write!(
                line,
                "{thread},{time},{action},{address:#x},{},{},{},{stream},\"",
                request.size,
                request.alignment,
                request.device.ordinal()
            );
            escape(tag::tag_name(request.tag).unwrap_or_default().to_bytes(), line);
            let _ = writeln!(line, "\",{status}");
        });
        if !has_failed {
            return;
        }
        let told = writer.failure.as_deref().map(|why| writer.broken(why));
        drop(writer);
        if let Some(told) = told {
            log!(Error, "{told}");
        }
    }
}

/// A text as it stands between quotes: printable, and without a quote of its own.
fn escape(text: &[u8], line: &mut Vec<u8>) {
    for part in text.utf8_chunks() {
        for letter in part.valid().chars() {
            match letter {
                '"' => line.extend(b"\\\""),
                '\\' => line.extend(b"\\\\"),
                '\n' => line.extend(b"\\n"),
                control if control.is_ascii_control() => escape_byte(control as u8, line),
                letter => line.extend(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        part.invalid().iter().for_each(|byte| escape_byte(*byte, line));
    }
}

fn escape_byte(byte: u8, line: &mut Vec<u8>) {
    // Writing to a vector does not fail.
    let _ = write!(line, "\\x{byte:02x}");
}

impl Source for Logging {
    fn sort(&self) -> &'static str {
        "logging"
    }

    fn traits(&self) -> Traits {
        self.upstream.traits()
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        let outcome = self.upstream.allocate(request);
        match &outcome {
            Ok(address) => self.note("allocate", *address, request, None),
            Err(error) => self.note("allocate-failure", 0, request, Some(error)),
        }
        outcome
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        let outcome = self.upstream.deallocate(address, request);
        self.note("deallocate", address, request, outcome.as_ref().err());
        outcome
    }

    fn upstream(&self) -> Option<&Upstream> {
        Some(&self.upstream)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
#[path = "logging_tests.rs"]
mod tests;
