//! Contexts: primary ones, created ones, the calling thread's stack of them.
use crate::call::{Entry, In, Out, call};
use crate::codes::{self, Code};
use crate::event::Event;
use crate::thread;
use crate::work::Work;
use crate::world::World;

/// Every scheduling, map-host and local-memory flag.
const FLAGS: u32 = 0x7F;

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) -> u32 {
    static E: Entry = Entry::new("cuDevicePrimaryCtxRetain");
    call(&E, [context.address(), device as u64], |session| {
        context.check()?;
        let device = session.ordinal(device)?;
        let handle = session.retain_primary(device)?;
        context.put(handle)
    })
}

fn release(entry: &'static Entry, device: i32) -> Code {
    call(entry, [device as u64], |session| {
        let device = session.ordinal(device)?;
        let handle = session.devices[device].primary;
        if session.contexts.get(handle).is_some_and(|context| context.retains == 1) {
            session.settle_context(handle);
        }
        session.release_primary(device)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease(device: i32) -> u32 {
    static E: Entry = Entry::new("cuDevicePrimaryCtxRelease");
    release(&E, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> u32 {
    static E: Entry = Entry::new("cuDevicePrimaryCtxRelease_v2");
    release(&E, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) -> u32 {
    static E: Entry = Entry::new("cuDevicePrimaryCtxGetState");
    call(&E, [device as u64, flags.address(), active.address()], |session| {
        let handle = session.device(device)?.primary;
        let context = session.contexts.get(handle).ok_or(codes::INVALID_CONTEXT)?;
        flags.put(context.flags)?;
        active.put(i32::from(context.alive()))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) -> u32 {
    static E: Entry = Entry::new("cuDevicePrimaryCtxSetFlags_v2");
    call(&E, [device as u64, u64::from(flags)], |session| {
        let handle = session.device(device)?.primary;
        if flags & !FLAGS != 0 {
            return Err(codes::INVALID_VALUE);
        }
        if let Some(context) = session.contexts.get_mut(handle) {
            context.flags = flags;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxReset_v2(device: i32) -> u32 {
    static E: Entry = Entry::new("cuDevicePrimaryCtxReset_v2");
    call(&E, [device as u64], |session| {
        let device = session.ordinal(device)?;
        let handle = session.devices[device].primary;
        session.settle_context(handle);
        session.end_context(handle);
        Ok(())
    })
}

fn create(entry: &'static Entry, context: Out<u64>, flags: u32, device: i32) -> Code {
    call(entry, [context.address(), u64::from(flags), device as u64], |session| {
        context.check()?;
        let device = session.ordinal(device)?;
        if flags & !FLAGS != 0 {
            return Err(codes::INVALID_VALUE);
        }
        let handle = session.create_context(device, flags)?;
        context.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxCreate_v2(context: Out<u64>, flags: u32, device: i32) -> u32 {
    static E: Entry = Entry::new("cuCtxCreate_v2");
    create(&E, context, flags, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxCreate_v3(
    context: Out<u64>,
    _affinity: In<u8>,
    _count: i32,
    flags: u32,
    device: i32,
) -> u32 {
    static E: Entry = Entry::new("cuCtxCreate_v3");
    create(&E, context, flags, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxCreate_v4(context: Out<u64>, _params: In<u8>, flags: u32, device: i32) -> u32 {
    static E: Entry = Entry::new("cuCtxCreate_v4");
    create(&E, context, flags, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDestroy_v2(context: u64) -> u32 {
    static E: Entry = Entry::new("cuCtxDestroy_v2");
    call(&E, [context], |session| {
        if session.context(context)?.primary {
            return Err(codes::INVALID_CONTEXT);
        }
        session.settle_context(context);
        session.end_context(context);
        if thread::current() == context {
            thread::pop();
        }
        Ok(())
    })
}

/// A handle that was a context at some time: enough to be made current.
fn known(world: &World, handle: u64) -> Result<(), Code> {
    world.contexts.get(handle).map(|_| ()).ok_or(codes::INVALID_CONTEXT)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: u64) -> u32 {
    static E: Entry = Entry::new("cuCtxPushCurrent_v2");
    call(&E, [context], |session| {
        known(session, context)?;
        thread::push(context)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPopCurrent_v2(context: Out<u64>) -> u32 {
    static E: Entry = Entry::new("cuCtxPopCurrent_v2");
    call(&E, [context.address()], |_| {
        let popped = thread::pop().ok_or(codes::INVALID_CONTEXT)?;
        context.put_if(popped);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: u64) -> u32 {
    static E: Entry = Entry::new("cuCtxSetCurrent");
    call(&E, [context], |session| {
        if context != 0 {
            known(session, context)?;
        }
        thread::set_current(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetCurrent(context: Out<u64>) -> u32 {
    static E: Entry = Entry::new("cuCtxGetCurrent");
    call(&E, [context.address()], |_| context.put(thread::current()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetDevice(device: Out<i32>) -> u32 {
    static E: Entry = Entry::new("cuCtxGetDevice");
    call(&E, [device.address()], |session| {
        // A primary context is of its device also while it is not alive.
        let ordinal = match session.current() {
            Ok(context) => context.device,
            Err(code) => {
                let dead = session.contexts.get(thread::current()).filter(|context| context.primary);
                dead.ok_or(code)?.device
            }
        };
        device.put(ordinal as i32)
    })
}

/// The context a call names: a handle, or 0 for the current one.
fn named(world: &World, handle: u64) -> Result<u64, Code> {
    let handle = if handle == 0 { thread::current() } else { handle };
    Ok(world.context(handle)?.handle)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetDevice_v2(device: Out<i32>, context: u64) -> u32 {
    static E: Entry = Entry::new("cuCtxGetDevice_v2");
    call(&E, [device.address(), context], |session| {
        let context = named(session, context)?;
        let ordinal = session.context(context)?.device;
        device.put(ordinal as i32)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetId(context: u64, id: Out<u64>) -> u32 {
    static E: Entry = Entry::new("cuCtxGetId");
    call(&E, [context, id.address()], |session| {
        let context = named(session, context)?;
        let number = session.context(context)?.id;
        id.put(number)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetFlags(flags: Out<u32>) -> u32 {
    static E: Entry = Entry::new("cuCtxGetFlags");
    call(&E, [flags.address()], |session| {
        let value = session.current()?.flags;
        flags.put(value)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetFlags(flags: u32) -> u32 {
    static E: Entry = Entry::new("cuCtxSetFlags");
    call(&E, [u64::from(flags)], |session| {
        if flags & !FLAGS != 0 {
            return Err(codes::INVALID_VALUE);
        }
        let handle = session.current()?.handle;
        session.context_mut(handle)?.flags = flags;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetApiVersion(context: u64, version: Out<u32>) -> u32 {
    static E: Entry = Entry::new("cuCtxGetApiVersion");
    call(&E, [context, version.address()], |session| {
        named(session, context).map_err(|_| codes::INVALID_CONTEXT)?;
        version.put(3020)
    })
}

fn limit_index(which: u32) -> Result<usize, Code> {
    // The two CIG limits exist only in contexts made for them.
    if which < 8 { Ok(which as usize) } else { Err(codes::UNSUPPORTED_LIMIT) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetLimit(value: Out<usize>, which: u32) -> u32 {
    static E: Entry = Entry::new("cuCtxGetLimit");
    call(&E, [value.address(), u64::from(which)], |session| {
        let limit = session.current()?.limits[limit_index(which)?];
        value.put(limit)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetLimit(which: u32, value: usize) -> u32 {
    static E: Entry = Entry::guarded("cuCtxSetLimit");
    call(&E, [u64::from(which), value as u64], |session| {
        let index = limit_index(which)?;
        let handle = session.current()?.handle;
        session.context_mut(handle)?.limits[index] = value;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetCacheConfig(config: Out<u32>) -> u32 {
    static E: Entry = Entry::new("cuCtxGetCacheConfig");
    call(&E, [config.address()], |session| {
        let value = session.current()?.cache_config;
        config.put(value)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCacheConfig(config: u32) -> u32 {
    static E: Entry = Entry::new("cuCtxSetCacheConfig");
    call(&E, [u64::from(config)], |session| {
        if config > 3 {
            return Err(codes::INVALID_VALUE);
        }
        let handle = session.current()?.handle;
        session.context_mut(handle)?.cache_config = config;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> u32 {
    static E: Entry = Entry::new("cuCtxGetStreamPriorityRange");
    call(&E, [least.address(), greatest.address()], |session| {
        session.current()?;
        least.put_if(0);
        greatest.put_if(super::stream::GREATEST_PRIORITY);
        Ok(())
    })
}

fn synchronize(session: &mut crate::call::Session, handle: u64) -> Result<(), Code> {
    let context = session.context(handle)?;
    let (id, device) = (context.id, context.device);
    session.no_capture_in(id)?;
    let ends = session.ends(|stream| stream.context_id == id);
    session.wait_for(&ends);
    session.release_pools(device);
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> u32 {
    static E: Entry = Entry::new("cuCtxSynchronize");
    call(&E, [], |session| synchronize(session, thread::current()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize_v2(context: u64) -> u32 {
    static E: Entry = Entry::new("cuCtxSynchronize_v2");
    call(&E, [context], |session| {
        let context = named(session, context)?;
        synchronize(session, context)
    })
}

/// An event that marks all work of a context.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxRecordEvent(context: u64, event: u64) -> u32 {
    static E: Entry = Entry::new("cuCtxRecordEvent");
    call(&E, [context, event], |session| {
        let context = named(session, context)?;
        let id = session.context(context)?.id;
        if session.event(event)?.context_id != id {
            return Err(codes::INVALID_HANDLE);
        }
        session.no_capture_in(id)?;
        let marks = session.ends(|stream| stream.context_id == id);
        let generation = session.fresh_id();
        let done = marks.iter().all(|mark| session.reached(*mark));
        let event = session.events.get_mut(event).ok_or(codes::INVALID_HANDLE)?;
        let reached = done.then(std::time::Instant::now);
        *event = Event { recorded: true, marks, generation, reached, captured: None, ..*event };
        Ok(())
    })
}

/// All work submitted to a context from now on comes after an event.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxWaitEvent(context: u64, event: u64) -> u32 {
    static E: Entry = Entry::new("cuCtxWaitEvent");
    call(&E, [context, event], |session| {
        let context = named(session, context)?;
        let id = session.context(context)?.id;
        session.no_capture_in(id)?;
        let marks = session.event(event)?.marks.clone();
        session.ask_event(event, true)?;
        let mut streams: Vec<u64> = session
            .streams
            .values()
            .filter(|stream| stream.context_id == id)
            .map(|stream| stream.number)
            .collect();
        streams.sort_unstable();
        for stream in streams {
            session.submit(stream, marks.clone(), Work::Nothing);
        }
        Ok(())
    })
}
