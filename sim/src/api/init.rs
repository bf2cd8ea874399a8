//! Initialisation, version, error names, looking up entry points.
use std::ffi::c_char;
use std::ptr;

use crate::call::{Entry, In, Out, call, forked};
use crate::codes::{self, Code};
use crate::symbol;

/// A C string that lives as long as the library.
type Text = *const c_char;

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: u32) -> u32 {
    static E: Entry = Entry::early("cuInit");
    call(&E, [u64::from(flags)], |session| {
        if flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        session.initialize()
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDriverGetVersion(version: Out<i32>) -> u32 {
    static E: Entry = Entry::early("cuDriverGetVersion");
    call(&E, [version.address()], |session| version.put(session.topology.driver))
}

fn describe(code: Code, out: Out<Text>, find: fn(Code) -> Option<&'static std::ffi::CStr>) -> Code {
    match find(code) {
        Some(text) => out.put(text.as_ptr()).err().unwrap_or(codes::SUCCESS),
        None => {
            out.put_if(ptr::null());
            codes::INVALID_VALUE
        }
    }
}

/// Works without initialisation and in a forked child, as in the real driver.
#[unsafe(no_mangle)]
pub extern "C" fn cuGetErrorName(error: u32, text: Out<Text>) -> u32 {
    describe(error, text, codes::name)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetErrorString(error: u32, text: Out<Text>) -> u32 {
    describe(error, text, codes::text)
}

const FOUND: u32 = 0;
const NO_SUCH_SYMBOL: u32 = 1;
const TOO_NEW: u32 = 2;

fn look_up(
    entry: &'static Entry,
    symbol: In<u8>,
    function: Out<*mut libc::c_void>,
    version: i32,
    flags: u64,
    status: Out<u32>,
) -> Code {
    call(entry, [symbol.address(), function.address(), version as u64, flags], |session| {
        function.put(ptr::null_mut())?;
        let name = symbol.text()?;
        // DEFAULT, LEGACY_STREAM, PER_THREAD_DEFAULT_STREAM.
        if flags > 2 {
            return Err(codes::INVALID_VALUE);
        }
        let version = version.min(session.topology.driver);
        let (exported, newer) = symbol::exported(&name, version);
        let address =
            if session.hidden.contains(exported) { ptr::null_mut() } else { symbol::address(exported) };
        session.note = Some(exported.into());
        let known = !address.is_null() && name.starts_with("cu");
        status.put_if(match (known, newer) {
            (false, _) => NO_SUCH_SYMBOL,
            (true, true) => TOO_NEW,
            (true, false) => FOUND,
        });
        if !known || newer {
            return Err(codes::NOT_FOUND);
        }
        function.put(address)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetProcAddress_v2(
    symbol: In<u8>,
    function: Out<*mut libc::c_void>,
    version: i32,
    flags: u64,
    status: Out<u32>,
) -> u32 {
    static E: Entry = Entry::early("cuGetProcAddress_v2");
    look_up(&E, symbol, function, version, flags, status)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetProcAddress(
    symbol: In<u8>,
    function: Out<*mut libc::c_void>,
    version: i32,
    flags: u64,
) -> u32 {
    static E: Entry = Entry::early("cuGetProcAddress");
    let mut status = 0;
    look_up(&E, symbol, function, version, flags, Out::to(&mut status))
}

/// Private tables of the runtime: refused by name, so that a program that needs them says so.
#[unsafe(no_mangle)]
pub extern "C" fn cuGetExportTable(table: Out<*const libc::c_void>, _id: In<u8>) -> u32 {
    static E: Entry = Entry::early("cuGetExportTable");
    if forked() {
        return codes::NOT_INITIALIZED;
    }
    table.put_if(ptr::null());
    super::unsupported(&E)
}
