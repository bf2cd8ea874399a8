//! Sharing by file descriptor. The other side of a share is found again in this process only.
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use crate::codes::{self, Code};
use crate::world::World;

/// What an exported file stands for.
#[derive(Clone, Copy, Debug)]
pub enum Shared {
    Pool(u64),
    Physical(u64),
    Range,
}

fn inode(fd: i32) -> Option<u64> {
    // SAFETY: stat is plain data that fstat fills; a bad descriptor is an error, not a fault.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &raw mut stat) == 0).then_some(stat)
    }?;
    Some(stat.st_ino)
}

impl World {
    /// A new descriptor that stands for `what`; the caller owns it.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn share(&mut self, what: Shared) -> Result<i32, Code> {
        // SAFETY: the name is a terminated string; a descriptor that was returned is owned by nobody else.
        let file = unsafe {
            let fd = libc::memfd_create(c"warpsim".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(codes::OPERATING_SYSTEM);
            }
            OwnedFd::from_raw_fd(fd)
        };
        let key = inode(file.as_raw_fd()).ok_or(codes::OPERATING_SYSTEM)?;
        self.shared.insert(key, what);
        Ok(file.into_raw_fd())
    }

    /// What a descriptor stands for, if it was exported by this process.
    pub fn shared_by(&self, fd: i32) -> Option<Shared> {
        self.shared.get(&inode(fd)?).copied()
    }
}
