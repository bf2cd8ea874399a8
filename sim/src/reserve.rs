//! Address ranges taken from the kernel without memory behind them: touching one is a real fault.
use std::io;

pub const HOST_PAGE: u64 = 4096;

/// A reserved range; given back when dropped.
pub struct Range {
    pub base: u64,
    pub len: u64,
}

impl Range {
    /// Reserves `len` bytes at `wanted` where that is free, else anywhere.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn new(wanted: u64, len: u64) -> io::Result<Range> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let fixed = if wanted == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
        for (at, more) in [(wanted, fixed), (0, 0)] {
            // SAFETY: a new private mapping; NOREPLACE keeps it off every existing one.
            let base = unsafe {
                libc::mmap(
                    at as usize as *mut libc::c_void,
                    len as usize,
                    libc::PROT_NONE,
                    flags | more,
                    -1,
                    0,
                )
            };
            if base != libc::MAP_FAILED {
                return Ok(Range { base: base as u64, len });
            }
        }
        Err(io::Error::last_os_error())
    }

    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.len
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: the range was made by `new` and nothing of the simulator points into it any more.
        unsafe { libc::munmap(self.base as usize as *mut libc::c_void, self.len as usize) };
    }
}

/// Opens pages inside a reserved range to the CPU.
///
/// # Errors
/// The kernel's refusal (for instance too many mappings).
pub fn open_pages(base: u64, len: u64) -> io::Result<()> {
    // SAFETY: the pages lie in a range reserved by `Range::new`, which nothing else uses.
    let failed = unsafe {
        libc::mprotect(base as usize as *mut libc::c_void, len as usize, libc::PROT_READ | libc::PROT_WRITE)
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes pages to the CPU and forgets what they held. Where the kernel refuses (too many mappings) they stay open
/// but poisoned, so that a late access still shows.
pub fn close_pages(base: u64, len: u64) {
    let address = base as usize as *mut libc::c_void;
    // SAFETY: as for `open_pages`; the block that owned the pages is gone from the table.
    unsafe {
        if libc::mprotect(address, len as usize, libc::PROT_NONE) == 0 {
            libc::madvise(address, len as usize, libc::MADV_DONTNEED);
        } else {
            std::ptr::write_bytes(address.cast::<u8>(), crate::store::POISON, len as usize);
        }
    }
}
