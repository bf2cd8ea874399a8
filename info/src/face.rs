//! The C interface of the library, with Rust's types: the only place that calls it.

use crate::found::{Message, Problem};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError};
use warpmem::ffi::device::{
    warp_device, warp_device_get_at, warp_device_get_count, warp_device_get_info, warp_device_info,
    warp_device_query_memory,
};
use warpmem::ffi::library::{
    WARP_LOG_ERROR, WARP_LOG_WARNING, warp_init, warp_init_options, warp_library_get_report, warp_log_level,
    warp_shutdown, warp_version_get_number, warp_version_get_string,
};
use warpmem::ffi::mempool::{
    warp_mempool, warp_mempool_get, warp_mempool_get_info, warp_mempool_info, warp_mempool_memory_info,
    warp_mempool_query_memory, warp_mempool_query_release_threshold,
};
use warpmem::ffi::mempool_access::{warp_mempool_access_is_supported, warp_mempool_access_query_enabled};
use warpmem::ffi::peer_access::{warp_peer_access_is_supported, warp_peer_access_query_enabled};
use warpmem::ffi::status::{
    WARP_SUCCESS, warp_error, warp_error_get_last, warp_status, warp_status_get_name,
};

pub type Answer<T> = Result<T, Problem>;

/// A device's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device(*mut warp_device);

/// The handle of a memory pool.
#[derive(Debug, Clone, Copy)]
pub struct Pool(*mut warp_mempool);

/// A question about two devices: the one that owns the memory and the one that would touch it.
type AboutTwo =
    unsafe extern "C" fn(target: *const warp_device, peer: *const warp_device, out: *mut u8) -> warp_status;

/// What may be asked about two devices.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    name: &'static str,
    ask: AboutTwo,
}

pub const PEER_ACCESS_SUPPORTED: Question =
    Question { name: "warp_peer_access_is_supported", ask: warp_peer_access_is_supported };
pub const PEER_ACCESS_ENABLED: Question =
    Question { name: "warp_peer_access_query_enabled", ask: warp_peer_access_query_enabled };
pub const MEMPOOL_ACCESS_SUPPORTED: Question =
    Question { name: "warp_mempool_access_is_supported", ask: warp_mempool_access_is_supported };
pub const MEMPOOL_ACCESS_ENABLED: Question =
    Question { name: "warp_mempool_access_query_enabled", ask: warp_mempool_access_query_enabled };

static MESSAGES: Mutex<Vec<Message>> = Mutex::new(Vec::new());

unsafe extern "C" fn keep_message(_: *mut c_void, level: warp_log_level, message: *const c_char) {
    let level = if level == WARP_LOG_ERROR { "error" } else { "warning" };
    // SAFETY: the library passes a terminated text that is valid during the call.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    MESSAGES.lock().unwrap_or_else(PoisonError::into_inner).push(Message { level, text });
}

/// The library, started; it ends with this.
#[derive(Debug)]
pub struct Library(());

impl Library {
    pub fn start() -> Answer<Library> {
        let options = warp_init_options {
            struct_size: size_of::<warp_init_options>(),
            driver_path: null(),
            flags: 0,
            log_level: WARP_LOG_WARNING,
            log: Some(keep_message),
            log_user: null_mut(),
        };
        // SAFETY: the options are filled in, and the callback is good for as long as the process.
        answer("warp_init", unsafe { warp_init(&options, null_mut()) })?;
        Ok(Library(()))
    }

    pub fn report(&self) -> Answer<String> {
        let mut needed = 0;
        // SAFETY: no bytes are written where the capacity is 0.
        answer("warp_library_get_report", unsafe { warp_library_get_report(null_mut(), 0, &mut needed) })?;
        let mut buffer = vec![0u8; needed];
        // SAFETY: the buffer has that many bytes.
        let status = unsafe { warp_library_get_report(buffer.as_mut_ptr().cast(), needed, null_mut()) };
        answer("warp_library_get_report", status)?;
        Ok(until_nul(&buffer))
    }

    pub fn device_count(&self) -> Answer<usize> {
        let mut count = 0;
        // SAFETY: a place for the answer.
        answer("warp_device_get_count", unsafe { warp_device_get_count(&mut count) })?;
        Ok(count)
    }

    pub fn device_at(&self, index: usize) -> Answer<Device> {
        let mut device = null_mut();
        // SAFETY: a place for the answer.
        let status = unsafe { warp_device_get_at(index, &mut device) };
        answer(&format!("warp_device_get_at({index})"), status)?;
        Ok(Device(device))
    }

    pub fn device_info(&self, device: Device) -> Answer<warp_device_info> {
        // SAFETY: it is made of numbers, for which all zero is a value.
        let mut info: warp_device_info = unsafe { std::mem::zeroed() };
        info.struct_size = size_of::<warp_device_info>();
        // SAFETY: a handle of the library, and a struct of the size that it says.
        answer("warp_device_get_info", unsafe { warp_device_get_info(device.0, &mut info) })?;
        Ok(info)
    }

    /// Free and total bytes. A GPU is given a context for the question.
    pub fn device_memory(&self, device: Device, alias: &str) -> Answer<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: a handle of the library, and places for the answers.
        let status = unsafe { warp_device_query_memory(device.0, &mut free, &mut total) };
        answer(&format!("warp_device_query_memory({alias})"), status)?;
        Ok((free, total))
    }

    /// The pool that a device allocates from.
    pub fn pool_of(&self, device: Device, alias: &str) -> Answer<Pool> {
        let mut pool = null_mut();
        // SAFETY: a handle of the library, and a place for the answer.
        let status = unsafe { warp_mempool_get(device.0, &mut pool) };
        answer(&format!("warp_mempool_get({alias})"), status)?;
        Ok(Pool(pool))
    }

    pub fn pool_info(&self, pool: Pool, alias: &str) -> Answer<warp_mempool_info> {
        // SAFETY: it is made of numbers and raw pointers, for which all zero is a value.
        let mut info: warp_mempool_info = unsafe { std::mem::zeroed() };
        info.struct_size = size_of::<warp_mempool_info>();
        // SAFETY: a handle of the library, and a struct of the size that it says.
        let status = unsafe { warp_mempool_get_info(pool.0, &mut info) };
        answer(&format!("warp_mempool_get_info({alias})"), status)?;
        Ok(info)
    }

    pub fn pool_memory(&self, pool: Pool, alias: &str) -> Answer<warp_mempool_memory_info> {
        // SAFETY: it is made of numbers, for which all zero is a value.
        let mut info: warp_mempool_memory_info = unsafe { std::mem::zeroed() };
        info.struct_size = size_of::<warp_mempool_memory_info>();
        // SAFETY: a handle of the library, and a struct of the size that it says.
        let status = unsafe { warp_mempool_query_memory(pool.0, &mut info) };
        answer(&format!("warp_mempool_query_memory({alias})"), status)?;
        Ok(info)
    }

    pub fn pool_threshold(&self, pool: Pool, alias: &str) -> Answer<u64> {
        let mut bytes = 0;
        // SAFETY: a handle of the library, and a place for the answer.
        let status = unsafe { warp_mempool_query_release_threshold(pool.0, &mut bytes) };
        answer(&format!("warp_mempool_query_release_threshold({alias})"), status)?;
        Ok(bytes)
    }

    pub fn about_two(
        &self,
        question: Question,
        (target, target_alias): (Device, &str),
        (peer, peer_alias): (Device, &str),
    ) -> Answer<bool> {
        let mut out = 0;
        // SAFETY: two handles of the library, and a place for the answer.
        let status = unsafe { (question.ask)(target.0, peer.0, &mut out) };
        answer(&format!("{}({target_alias}, {peer_alias})", question.name), status)?;
        Ok(out != 0)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        warp_shutdown();
    }
}

/// What the library had to say so far.
pub fn take_messages() -> Vec<Message> {
    std::mem::take(&mut MESSAGES.lock().unwrap_or_else(PoisonError::into_inner))
}

pub fn version() -> String {
    static_text(warp_version_get_string())
}

pub fn version_number() -> i32 {
    warp_version_get_number()
}

/// A field of a struct that has text.
pub fn field(text: &[c_char]) -> String {
    until_nul(&text.iter().map(|byte| byte.cast_unsigned()).collect::<Vec<_>>())
}

fn until_nul(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn static_text(text: *const c_char) -> String {
    // SAFETY: only called with terminated texts of the library that last.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn answer(question: &str, status: warp_status) -> Answer<()> {
    if status == WARP_SUCCESS {
        return Ok(());
    }
    // SAFETY: it is made of numbers, for which all zero is a value.
    let mut error: warp_error = unsafe { std::mem::zeroed() };
    error.struct_size = size_of::<warp_error>();
    // SAFETY: a struct of the size that it says. Should that fail too, the record stays empty.
    unsafe { warp_error_get_last(&mut error) };
    Err(Problem {
        question: question.to_string(),
        status: static_text(warp_status_get_name(status)),
        driver_code: error.driver_code,
        message: field(&error.message),
    })
}
