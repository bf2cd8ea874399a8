//! Where a call came from: return addresses, which cost little to take, and their names, which are looked for when somebody
//! reads them.

use std::ffi::{CStr, c_void};
use std::fmt::Write;

/// As many return addresses as are kept.
const MOST_FRAMES: usize = 48;

#[derive(Debug)]
pub struct Backtrace {
    frames: Box<[usize]>,
}

impl Backtrace {
    /// The callers of the calling function, the innermost first.
    #[inline(never)]
    pub fn capture() -> Backtrace {
        let mut frames = [std::ptr::null_mut::<c_void>(); MOST_FRAMES];
        // SAFETY: the array has that many places.
        let count = unsafe { libc::backtrace(frames.as_mut_ptr(), MOST_FRAMES as i32) };
        let count = usize::try_from(count).unwrap_or(0).min(MOST_FRAMES);
        Backtrace { frames: frames[..count].iter().map(|frame| frame.addr()).collect() }
    }

    /// Without the frames of the library itself, where it is a file of its own.
    pub fn callers(&self) -> &[usize] {
        let own = object_of(Backtrace::capture as fn() -> Backtrace as usize);
        if own.is_none() || own == object_of(program()) {
            return &self.frames;
        }
        // What watches a program may have put itself in front.
        let mut frames = self.frames.iter().enumerate();
        let mut place = |is_own: bool| frames.find(|(_, frame)| (object_of(**frame) == own) == is_own);
        let first = place(true).and_then(|_| place(false));
        first.map_or(&self.frames, |(first, _)| &self.frames[first..])
    }

    /// One line for each caller, each after `indent`.
    pub fn write(&self, text: &mut String, indent: &str) {
        for frame in self.callers() {
            // Writing to a text does not fail.
            let _ = writeln!(text, "{indent}{}", describe(*frame));
        }
    }
}

/// An address of the program's own file.
fn program() -> usize {
    // SAFETY: asks for a number.
    unsafe { libc::getauxval(libc::AT_PHDR) as usize }
}

fn look_up(address: usize) -> Option<libc::Dl_info> {
    // SAFETY: numbers and pointers, for which all zero is a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about; the answer goes into `info`.
    let known = unsafe { libc::dladdr(std::ptr::without_provenance(address), &raw mut info) };
    (known != 0).then_some(info)
}

/// Where the file that an address belongs to is loaded.
fn object_of(address: usize) -> Option<usize> {
    look_up(address).map(|info| info.dli_fbase.addr())
}

/// A return address by the symbol and the file that it lies in, as far as they are known.
fn describe(address: usize) -> String {
    // The call before it: the address itself may be the next function's.
    let Some(info) = look_up(address.saturating_sub(1)) else { return format!("{address:#x}") };
    // SAFETY: NULL, or a terminated text of the loader's that lasts while the file is loaded.
    let text = |text: *const libc::c_char| (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
    let file = text(info.dli_fname).map_or_else(String::new, |name| {
        let name = name.to_string_lossy();
        name.rsplit('/').next().unwrap_or_default().to_string()
    });
    let in_file = address.wrapping_sub(info.dli_fbase.addr());
    match text(info.dli_sname) {
        Some(symbol) => {
            let in_symbol = address.wrapping_sub(info.dli_saddr.addr());
            format!("{}+{in_symbol:#x} ({file}+{in_file:#x})", symbol.to_string_lossy())
        }
        None => format!("{file}+{in_file:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_and_told() {
        let backtrace = Backtrace::capture();
        // The test's own threads: this function, the harness and the C library's start of a thread.
        assert!(backtrace.callers().len() > 3, "{backtrace:?}");
        let mut text = String::new();
        backtrace.write(&mut text, "  ");
        assert_eq!(text.lines().count(), backtrace.callers().len());
        assert!(text.lines().all(|line| line.starts_with("  ") && line.contains("+0x")), "{text}");
    }

    #[test]
    fn an_address_of_no_file_is_told_as_a_number() {
        assert_eq!(describe(0x11), "0x11");
    }
}
