//! Functions of modules: asked, set, launched.
use super::unsupported;
use crate::attribute;
use crate::call::{Entry, In, Out, Session, call};
use crate::codes::{self, Code};
use crate::kernel::{Launch, SHARED_BY_DEFAULT};
use crate::module::Function;
use crate::work::Work;

/// `CUfunction_attribute`.
const MAX_THREADS: u32 = 0;
const SHARED: u32 = 1;
const CONSTANT: u32 = 2;
const LOCAL: u32 = 3;
const REGISTERS: u32 = 4;
const PTX_VERSION: u32 = 5;
const BINARY_VERSION: u32 = 6;
const CACHE_MODE: u32 = 7;
const DYNAMIC_SHARED: u32 = 8;
const CARVEOUT: u32 = 9;
/// One past the last attribute of this driver; those of clusters are zero.
const ATTRIBUTES: u32 = 16;

/// A function by a handle of its own or of a library's kernel.
fn function_by(session: &mut Session, handle: u64) -> Result<u64, Code> {
    if session.functions.get(handle).is_some() {
        return Ok(handle);
    }
    let context = session.current().map(|context| context.handle).unwrap_or_default();
    session.function_in(handle, context)
}

fn device_of(session: &Session, function: &Function) -> usize {
    session.contexts.get(function.context).map_or(0, |context| context.device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetAttribute(value: Out<i32>, which: u32, function: u64) -> u32 {
    static E: Entry = Entry::new("cuFuncGetAttribute");
    call(&E, [value.address(), u64::from(which), function], |session| {
        value.check()?;
        if which >= ATTRIBUTES {
            return Err(codes::INVALID_VALUE);
        }
        let handle = function_by(session, function)?;
        let function = session.function(handle)?;
        let (kernel, gpu) = (&function.code.kernel, &session.devices[device_of(session, function)].gpu);
        value.put(match which {
            MAX_THREADS => kernel.max_threads as i32,
            SHARED => kernel.shared as i32,
            LOCAL => kernel.local as i32,
            // As many as a compiler might come to.
            REGISTERS => kernel.registers.clamp(8, 255).next_multiple_of(2).min(255) as i32,
            PTX_VERSION => function.version as i32,
            BINARY_VERSION => {
                gpu.attribute(attribute::CAPABILITY_MAJOR) * 10 + gpu.attribute(attribute::CAPABILITY_MINOR)
            }
            DYNAMIC_SHARED => function.dynamic as i32,
            CARVEOUT => function.carveout,
            CONSTANT | CACHE_MODE => 0,
            _ => 0,
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(function: u64, which: u32, value: i32) -> u32 {
    static E: Entry = Entry::new("cuFuncSetAttribute");
    call(&E, [function, u64::from(which), value as u64], |session| {
        let handle = function_by(session, function)?;
        let function = session.function(handle)?;
        let most = session.devices[device_of(session, function)].gpu.attribute(attribute::SHARED_OPT_IN);
        let own = function.code.kernel.shared as i64;
        let function = session.functions.get_mut(handle).ok_or(codes::INVALID_HANDLE)?;
        match which {
            DYNAMIC_SHARED if value >= 0 && i64::from(value) + own <= i64::from(most) => {
                function.dynamic = value as u32
            }
            CARVEOUT if (-1..=100).contains(&value) => function.carveout = value,
            _ => return Err(codes::INVALID_VALUE),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetModule(module: Out<u64>, function: u64) -> u32 {
    static E: Entry = Entry::new("cuFuncGetModule");
    call(&E, [module.address(), function], |session| {
        module.check()?;
        let handle = session.function(function).map_err(|_| codes::INVALID_VALUE)?.module;
        module.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetName(name: Out<*const libc::c_char>, function: u64) -> u32 {
    static E: Entry = Entry::new("cuFuncGetName");
    call(&E, [name.address(), function], |session| {
        name.check()?;
        let own = match session.functions.get(function) {
            Some(function) => function.name.as_ptr(),
            None => session.library_kernels.get(function).ok_or(codes::INVALID_VALUE)?.name.as_ptr(),
        };
        name.put(own)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncLoad(function: u64) -> u32 {
    static E: Entry = Entry::new("cuFuncLoad");
    call(&E, [function], |session| session.function(function).map(|_| ()))
}

/// As many blocks as the threads and the shared memory of a multiprocessor have room for.
#[unsafe(no_mangle)]
pub extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<i32>,
    function: u64,
    threads: i32,
    shared: usize,
) -> u32 {
    static E: Entry = Entry::new("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    call(&E, [blocks.address(), function, threads as u64, shared as u64], |session| {
        blocks.check()?;
        let handle = function_by(session, function)?;
        let function = session.function(handle)?;
        if threads <= 0 {
            return Err(codes::INVALID_VALUE);
        }
        let gpu = &session.devices[device_of(session, function)].gpu;
        let warps = (threads as u32).div_ceil(32) * 32;
        let by_threads = gpu.attribute(attribute::THREADS_OF_MULTIPROCESSOR) / warps as i32;
        let each = function.code.kernel.shared + shared as u64 + 1024;
        let by_shared = (gpu.attribute(attribute::SHARED_OF_MULTIPROCESSOR) as u64 / each) as i32;
        let most = gpu.attribute(attribute::BLOCKS_OF_MULTIPROCESSOR);
        let fits = threads as u32 <= function.code.kernel.max_threads;
        blocks.put(if fits { by_threads.min(by_shared).min(most) } else { 0 })
    })
}

/// The shape of a launch, as the driver's structs begin with it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
}

/// What is passed to a kernel: an address for each parameter, or a buffer with all of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Passed {
    pub each: In<u64>,
    pub extra: In<u64>,
}

/// `CU_LAUNCH_PARAM_*`.
const END: u64 = 0;
const BUFFER: u64 = 1;
const BUFFER_SIZE: u64 = 2;

/// The bytes of a kernel's parameters.
fn parameters(function: &Function, passed: Passed) -> Result<Vec<u8>, Code> {
    let kernel = &function.code.kernel;
    let mut bytes = vec![0; kernel.parameter_bytes];
    let (each, extra) = (passed.each.address() != 0, passed.extra.address() != 0);
    match (each, extra) {
        (true, true) => return Err(codes::INVALID_VALUE),
        (false, false) if !bytes.is_empty() => return Err(codes::INVALID_VALUE),
        (false, false) => {}
        (true, false) => {
            let addresses = passed.each.list(kernel.parameters.len())?;
            for (one, address) in kernel.parameters.iter().zip(addresses) {
                let from: In<u8> = In::at(address);
                bytes[one.offset..one.offset + one.size].copy_from_slice(&from.list(one.size)?);
            }
        }
        (false, true) => {
            let (mut buffer, mut size) = (0, None);
            for at in (0..).step_by(2) {
                let word = |i: u64| passed.extra.past(8 * i).get();
                match word(at)? {
                    END => break,
                    BUFFER => buffer = word(at + 1)?,
                    BUFFER_SIZE => size = Some(In::<usize>::at(word(at + 1)?).get()?),
                    _ => return Err(codes::INVALID_VALUE),
                }
            }
            let size = size.ok_or(codes::INVALID_VALUE)?;
            if size > bytes.len() {
                return Err(codes::LAUNCH_OUT_OF_RESOURCES);
            }
            bytes[..size].copy_from_slice(&In::<u8>::at(buffer).list(size)?);
        }
    }
    Ok(bytes)
}

/// # Errors
/// Invalid value for a shape that the device or the kernel has no room for.
fn check_shape(session: &Session, function: &Function, shape: &Shape) -> Result<(), Code> {
    let gpu = &session.devices[device_of(session, function)].gpu;
    let kernel = &function.code.kernel;
    let fits = |sizes: [u32; 3], first: i32| {
        (first..).zip(sizes).all(|(which, size)| size > 0 && u64::from(size) <= gpu.attribute(which) as u64)
    };
    let threads: u64 = shape.block.iter().map(|size| u64::from(*size)).product();
    let shared = kernel.shared + u64::from(shape.shared);
    let allowed = u64::from(function.dynamic).max(u64::from(SHARED_BY_DEFAULT).saturating_sub(kernel.shared));
    let right = fits(shape.block, attribute::MAX_BLOCK_X)
        && fits(shape.grid, attribute::MAX_GRID_X)
        && threads <= u64::from(kernel.max_threads)
        && kernel.block.is_none_or(|block| block == shape.block)
        && u64::from(shape.shared) <= allowed
        && shared <= gpu.attribute(attribute::SHARED_OPT_IN) as u64;
    if right { Ok(()) } else { Err(codes::INVALID_VALUE) }
}

/// A launch by a function in its context.
///
/// # Errors
/// Invalid handle, invalid value, out of resources.
pub fn describe(session: &mut Session, handle: u64, shape: &Shape, passed: Passed) -> Result<Launch, Code> {
    let function = session.function(handle)?;
    check_shape(session, function, shape)?;
    let parameters = parameters(function, passed)?;
    let code = function.code.clone();
    let Shape { grid, block, shared } = *shape;
    Ok(Launch { code, function: handle, parameters, grid, block, shared, shown: Vec::new() })
}

fn launch(
    session: &mut Session,
    function: u64,
    shape: &Shape,
    stream: u64,
    passed: Passed,
) -> Result<(), Code> {
    if session.functions.get(function).is_none() && session.library_kernels.get(function).is_none() {
        return Err(codes::INVALID_HANDLE);
    }
    let number = session.stream(stream)?;
    let context = session.streams.get(&number).ok_or(codes::INVALID_HANDLE)?.context;
    let handle = session.function_in(function, context)?;
    if session.function(handle)?.context != context {
        return Err(codes::INVALID_HANDLE);
    }
    let launch = describe(session, handle, shape, passed);
    if launch.is_err()
        && check_shape(session, session.function(handle)?, shape).is_err()
        && session.is_captured(number)
    {
        // Not all mistakes end a capture, but this one does.
        _ = session.outside_captures(number);
    }
    let launch = launch?;
    session.admit_work(number)?;
    session.submit(number, Vec::new(), Work::Kernel(Box::new(launch)));
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernel(
    function: u64,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: u64,
    each: In<u64>,
    extra: In<u64>,
) -> u32 {
    static E: Entry = Entry::new("cuLaunchKernel");
    let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
    call(&E, [function, u64::from(grid_x), u64::from(block_x), u64::from(shared), stream], |session| {
        launch(session, function, &shape, stream, Passed { each, extra })
    })
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: u64,
    attributes: u64,
    count: u32,
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernelEx(
    config: In<LaunchConfig>,
    function: u64,
    each: In<u64>,
    extra: In<u64>,
) -> u32 {
    static E: Entry = Entry::new("cuLaunchKernelEx");
    call(&E, [config.address(), function], |session| {
        let LaunchConfig { grid, block, shared, stream, attributes, count } = config.get()?;
        if count > 0 && attributes == 0 {
            return Err(codes::INVALID_VALUE);
        }
        // An attribute of type 0 asks for nothing.
        if let Some(kind) = (0..u64::from(count)).find_map(|i| {
            In::<u32>::at(attributes + ATTRIBUTE_BYTES * i).get().ok().filter(|kind| *kind != 0)
        }) {
            session.note = Some(format!("unsupported: a launch attribute of type {kind}").into());
            return Err(codes::NOT_SUPPORTED);
        }
        launch(session, function, &Shape { grid, block, shared }, stream, Passed { each, extra })
    })
}

/// Bytes of a `CUlaunchAttribute`.
const ATTRIBUTE_BYTES: u64 = 72;

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchCooperativeKernel() -> u32 {
    static E: Entry = Entry::new("cuLaunchCooperativeKernel");
    unsupported(&E)
}
