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
        // A hint and not a demand: sanitizers keep parts of the address space to themselves.
        // SAFETY: a new private mapping, which without MAP_FIXED lies on no existing one.
        let base = unsafe {
            libc::mmap(wanted as usize as *mut libc::c_void, len as usize, libc::PROT_NONE, flags, -1, 0)
        };
        if base == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Range { base: base as u64, len })
        }
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

/// Closes pages to the CPU for a while; what they hold stays. A refusal leaves them open, which hides a fault but
/// makes none.
pub fn fence_pages(base: u64, len: u64) {
    // SAFETY: as for `open_pages`.
    unsafe { libc::mprotect(base as usize as *mut libc::c_void, len as usize, libc::PROT_NONE) };
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
