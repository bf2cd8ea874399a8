//! Ordinary memory of the host for a copy or a fill: to be had, or an error that says what it was for.

use crate::error::{Result, fail};

/// What is told when there is none for what a copy goes by.
pub const BETWEEN: &str = "that a copy goes by; copy less at once";

/// Zeros. `purpose` ends the message when there is no memory for them.
pub fn of(size: u64, purpose: &str) -> Result<Vec<u8>> {
    let mut bytes = empty(size, purpose)?;
    bytes.resize(size as usize, 0);
    Ok(bytes)
}

/// The same bytes in memory of our own.
pub fn copy_of(bytes: &[u8], purpose: &str) -> Result<Vec<u8>> {
    let mut copy = empty(bytes.len() as u64, purpose)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

fn empty(size: u64, purpose: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(size as usize).is_err() {
        fail!(OutOfMemory, "no host memory for {size} bytes {purpose}");
    }
    Ok(bytes)
}

/// What lies at an address.
///
/// # Safety
/// There are `size` bytes of host memory there, which nobody writes to while they are looked at.
pub unsafe fn bytes_at<'a>(address: u64, size: u64) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address as usize), size as usize) }
}
