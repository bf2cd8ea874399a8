//! Which file is the driver, and how it is opened: the init option, else `WARPMEM_LIBCUDA`, else
//! `libcuda.so.1`. Never `libcuda.so`: that name is the toolkit's link-time stub. Never closed again.

use std::ffi::{CStr, CString, c_void};

/// The name the installed driver answers to; opening it joins the copy that another library already mapped.
pub const SYSTEM_DRIVER: &CStr = c"libcuda.so.1";

/// An opened driver file.
pub struct Opened {
    handle: *mut c_void,
}

// SAFETY: a dlopen handle is an opaque token that dlsym accepts from any thread.
unsafe impl Send for Opened {}
// SAFETY: as above; dlsym is thread-safe.
unsafe impl Sync for Opened {}

impl Opened {
    /// Opens `path`. The loader's own words come back when it cannot.
    pub fn open(path: &CStr) -> Result<Opened, String> {
        // SAFETY: `path` is NUL-terminated; running the constructors of the driver that the user chose is
        // what opening a driver means. RTLD_NOW so that a broken file fails here and not in a later call.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: dlerror returns NULL or a NUL-terminated string that lasts until this thread's next
            // dl call.
            let message = unsafe {
                let text = libc::dlerror();
                if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy().into_owned()) }
            };
            return Err(message.unwrap_or_else(|| "the loader gave no reason".into()));
        }
        Ok(Opened { handle })
    }

    /// The address of `name`, NULL where the file lacks it.
    pub fn find(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle came from dlopen and is never closed; `name` is NUL-terminated.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }
}

/// The file to open, in order of precedence. A set-uid program takes no path from its environment.
pub fn choose(option: Option<&CStr>) -> CString {
    if let Some(path) = option {
        return path.to_owned();
    }
    crate::config::environment("WARPMEM_LIBCUDA")
        .and_then(|path| CString::new(path).ok())
        .unwrap_or_else(|| SYSTEM_DRIVER.to_owned())
}
