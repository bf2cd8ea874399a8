//! Settings that come from the environment. A program that runs with raised privileges takes none of them.

use std::ffi::CString;

/// The variable's value, `None` when unset, empty, or when the process runs set-uid or set-gid.
pub fn environment(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: `name` is NUL-terminated; secure_getenv returns NULL or a NUL-terminated string of the
    // environment, copied at once.
    let value = unsafe {
        let value = secure_getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        std::ffi::CStr::from_ptr(value).to_string_lossy().into_owned()
    };
    (!value.is_empty()).then_some(value)
}

unsafe extern "C" {
    // libc declares it for glibc targets only in some versions; the symbol is in every glibc since 2.17.
    fn secure_getenv(name: *const std::ffi::c_char) -> *mut std::ffi::c_char;
}

/// Whether pools start enabled: `WARPMEM_ENABLE_MEMPOOLS_AT_INIT`, else `WARP_ENABLE_MEMPOOLS_AT_INIT`; the
/// values 0, false and no, in any case, turn them off.
pub fn mempools_at_init() -> bool {
    environment("WARPMEM_ENABLE_MEMPOOLS_AT_INIT")
        .or_else(|| environment("WARP_ENABLE_MEMPOOLS_AT_INIT"))
        .is_none_or(|value| !["0", "false", "no"].contains(&value.trim().to_ascii_lowercase().as_str()))
}
