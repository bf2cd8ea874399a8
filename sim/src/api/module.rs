//! Modules and libraries: loaded from text, asked for their functions and variables.
use super::unsupported;
use crate::call::{Entry, In, Out, Session, call};
use crate::codes::{self, Code};
use crate::module::Refusal;

/// `CUjit_option`.
const INFO_LOG: u32 = 3;
const INFO_LOG_SIZE: u32 = 4;
const ERROR_LOG: u32 = 5;
const ERROR_LOG_SIZE: u32 = 6;
/// One past the last option of this driver.
const OPTIONS: u32 = 35;

/// The text of an image, which ends with a zero.
fn image_bytes(image: In<u8>) -> Result<Vec<u8>, Code> {
    if image.address() == 0 {
        return Err(codes::INVALID_VALUE);
    }
    // SAFETY: not null, so a terminated text by the contract of the entry point; a binary is told by its first bytes.
    let text = unsafe { std::ffi::CStr::from_ptr(image.address() as usize as *const libc::c_char) };
    Ok(text.to_bytes().to_vec())
}

/// Writes a log where there is a buffer for it: the text, cut to the room, and how many bytes that are without its end.
fn put_log(options: &[u32], values: Out<u64>, (log, size): (u32, u32), text: &str) -> Result<(), Code> {
    let place = |option| options.iter().position(|other| *other == option);
    let Some(size_at) = place(size) else { return Ok(()) };
    let value = |at: usize| values.past(8 * at as u64).get();
    let room = value(size_at)? as u32 as usize;
    let buffer = place(log).map(value).transpose()?.unwrap_or(0);
    let mut written = 0;
    if buffer != 0 && room > 0 && !text.is_empty() {
        let out: Out<u8> = Out::at(buffer);
        for (i, byte) in text.bytes().take(room - 1).chain([0]).enumerate() {
            out.put_at(i, byte)?;
            written = i;
        }
    }
    values.put_at(size_at, written as u64)
}

/// What is said of an image that is refused.
fn refuse(session: &mut Session, refusal: &Refusal) -> Code {
    if !refusal.text.is_empty() {
        let kind = if refusal.unsupported { "unsupported: " } else { "" };
        session.note = Some(format!("{kind}{}", refusal.text).into());
    }
    refusal.code
}

fn load(
    entry: &'static Entry,
    module: Out<u64>,
    image: impl FnOnce() -> Result<Vec<u8>, Code>,
    asked: u64,
    (count, options, values): (u32, In<u32>, Out<u64>),
) -> Code {
    call(entry, [module.address(), asked, u64::from(count)], |session| {
        module.check()?;
        let options = options.list(count as usize)?;
        if options.iter().any(|option| *option >= OPTIONS) || (count > 0 && values.address() == 0) {
            return Err(codes::INVALID_VALUE);
        }
        let image = image()?;
        let context = session.current()?.handle;
        let loaded =
            session.read_program(&image).and_then(|program| session.load_module(program, context, 0));
        let text = loaded.as_ref().err().map_or("", |refusal| refusal.text.as_str());
        put_log(&options, values, (ERROR_LOG, ERROR_LOG_SIZE), text)?;
        put_log(&options, values, (INFO_LOG, INFO_LOG_SIZE), "")?;
        match loaded {
            Ok(handle) => module.put(handle),
            Err(refusal) => Err(refuse(session, &refusal)),
        }
    })
}

const NO_OPTIONS: (u32, In<u32>, Out<u64>) = (0, In::none(), Out::none());

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoad(module: Out<u64>, path: In<u8>) -> u32 {
    static E: Entry = Entry::new("cuModuleLoad");
    let read = || std::fs::read(path.text()?).map_err(|_| codes::FILE_NOT_FOUND);
    load(&E, module, read, path.address(), NO_OPTIONS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadData(module: Out<u64>, image: In<u8>) -> u32 {
    static E: Entry = Entry::new("cuModuleLoadData");
    load(&E, module, || image_bytes(image), image.address(), NO_OPTIONS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadDataEx(
    module: Out<u64>,
    image: In<u8>,
    count: u32,
    options: In<u32>,
    values: Out<u64>,
) -> u32 {
    static E: Entry = Entry::new("cuModuleLoadDataEx");
    load(&E, module, || image_bytes(image), image.address(), (count, options, values))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadFatBinary() -> u32 {
    static E: Entry = Entry::new("cuModuleLoadFatBinary");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: u64) -> u32 {
    static E: Entry = Entry::guarded("cuModuleUnload");
    call(&E, [module], |session| {
        if session.module(module)?.library != 0 {
            return Err(codes::NOT_PERMITTED);
        }
        session.finish_context_of(module);
        session.drop_module(module);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetFunction(function: Out<u64>, module: u64, name: In<u8>) -> u32 {
    static E: Entry = Entry::new("cuModuleGetFunction");
    call(&E, [function.address(), module, name.address()], |session| {
        function.check()?;
        let name = some_name(name)?;
        let handle = session.function_of(module, &name)?;
        function.put(handle)
    })
}

/// # Errors
/// Invalid value for none.
fn some_name(name: In<u8>) -> Result<String, Code> {
    name.text().and_then(|name| if name.is_empty() { Err(codes::INVALID_VALUE) } else { Ok(name) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetGlobal_v2(
    address: Out<u64>,
    size: Out<usize>,
    module: u64,
    name: In<u8>,
) -> u32 {
    static E: Entry = Entry::new("cuModuleGetGlobal_v2");
    call(&E, [address.address(), size.address(), module, name.address()], |session| {
        let name = some_name(name)?;
        if address.address() == 0 && size.address() == 0 {
            return Err(codes::INVALID_VALUE);
        }
        let (at, bytes) = session.variable_of(module, &name)?;
        address.put_if(at);
        size.put_if(bytes as usize);
        Ok(())
    })
}

/// `CU_MODULE_LAZY_LOADING`.
const LAZY: u32 = 2;

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetLoadingMode(mode: Out<u32>) -> u32 {
    static E: Entry = Entry::new("cuModuleGetLoadingMode");
    call(&E, [mode.address()], |_| mode.put(LAZY))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryLoadData(
    library: Out<u64>,
    image: In<u8>,
    _jit_options: In<u32>,
    _jit_values: Out<u64>,
    _jit_count: u32,
    _options: In<u32>,
    _values: Out<u64>,
    _count: u32,
) -> u32 {
    static E: Entry = Entry::new("cuLibraryLoadData");
    call(&E, [library.address(), image.address()], |session| {
        library.check()?;
        let program = session.read_program(&image_bytes(image)?);
        if let Err(refusal) = &program {
            // The call answers for it when something of the library is wanted; the log has it now.
            refuse(session, refusal);
        }
        let handle = session.create_library(program)?;
        library.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryUnload(library: u64) -> u32 {
    static E: Entry = Entry::guarded("cuLibraryUnload");
    call(&E, [library], |session| session.drop_library(library))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryGetKernel(kernel: Out<u64>, library: u64, name: In<u8>) -> u32 {
    static E: Entry = Entry::new("cuLibraryGetKernel");
    call(&E, [kernel.address(), library, name.address()], |session| {
        kernel.check()?;
        let name = some_name(name)?;
        let handle = session.kernel_of(library, &name)?;
        kernel.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryGetModule(module: Out<u64>, library: u64) -> u32 {
    static E: Entry = Entry::new("cuLibraryGetModule");
    call(&E, [module.address(), library], |session| {
        module.check()?;
        let context = session.current()?.handle;
        let handle = session.module_of_library(library, context)?;
        module.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuKernelGetFunction(function: Out<u64>, kernel: u64) -> u32 {
    static E: Entry = Entry::new("cuKernelGetFunction");
    call(&E, [function.address(), kernel], |session| {
        function.check()?;
        let context = session.current()?.handle;
        let handle = session.function_in(kernel, context)?;
        function.put(handle)
    })
}
