//! Streams: made, asked, waited for; host functions; the thread's capture mode.
use crate::call::{Entry, Out, Session, call};
use crate::codes::{self, Code};
use crate::schedule::MISSING_JOINS;
use crate::stream::NON_BLOCKING;
use crate::thread;
use crate::work::{HostFunction, Work};

pub const GREATEST_PRIORITY: i32 = -5;
/// `CU_EVENT_WAIT_EXTERNAL`: a node of a graph that waits, and no join within a capture.
const EXTERNAL: u32 = 1;

fn create(entry: &'static Entry, stream: Out<u64>, flags: u32, priority: i32) -> Code {
    call(entry, [stream.address(), u64::from(flags), priority as u64], |session| {
        stream.check()?;
        if flags & !NON_BLOCKING != 0 {
            return Err(codes::INVALID_VALUE);
        }
        let handle = session.create_stream(flags, priority.clamp(GREATEST_PRIORITY, 0))?;
        stream.put(handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamCreate(stream: Out<u64>, flags: u32) -> u32 {
    static E: Entry = Entry::new("cuStreamCreate");
    create(&E, stream, flags, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) -> u32 {
    static E: Entry = Entry::new("cuStreamCreateWithPriority");
    create(&E, stream, flags, priority)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: u64) -> u32 {
    static E: Entry = Entry::new("cuStreamDestroy_v2");
    call(&E, [stream], |session| {
        if stream <= 2 {
            return Err(codes::INVALID_HANDLE);
        }
        let number = session.stream(stream)?;
        session.destroy_stream(number);
        Ok(())
    })
}

/// How far a stream has come cannot be asked while it captures, nor what a capture may forbid.
fn admit_question(session: &mut Session, number: u64) -> Result<(), Code> {
    if !session.is_captured(number) {
        session.beside_captures()?;
    }
    session.outside_captures(number)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: u64) -> u32 {
    static E: Entry = Entry::new("cuStreamSynchronize");
    call(&E, [stream], |session| {
        let number = session.stream(stream)?;
        admit_question(session, number)?;
        session.synchronize_stream(number);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(stream: u64) -> u32 {
    static E: Entry = Entry::new("cuStreamQuery");
    call(&E, [stream], |session| {
        let number = session.stream(stream)?;
        admit_question(session, number)?;
        let end = session.end_of(number);
        let idle = session.poll(number, &[end]);
        if idle { Ok(()) } else { Err(codes::NOT_READY) }
    })
}

/// Answers a question about a stream, which may be one that captures; to ask the legacy one ends captures that it would wait for.
fn ask<T>(entry: &'static Entry, stream: u64, out: Out<T>, answer: fn(&crate::stream::Stream) -> T) -> Code {
    call(entry, [stream, out.address()], |session| {
        let number = session.stream(stream)?;
        session.not_beside_captures(number)?;
        let stream = session.streams.get(&number).ok_or(codes::INVALID_HANDLE)?;
        out.put(answer(stream))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetId(stream: u64, id: Out<u64>) -> u32 {
    static E: Entry = Entry::new("cuStreamGetId");
    call(&E, [stream, id.address()], |session| {
        let number = session.stream(stream)?;
        session.outside_captures(number)?;
        id.put(number)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetCtx(stream: u64, context: Out<u64>) -> u32 {
    static E: Entry = Entry::new("cuStreamGetCtx");
    ask(&E, stream, context, |stream| stream.context)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetFlags(stream: u64, flags: Out<u32>) -> u32 {
    static E: Entry = Entry::new("cuStreamGetFlags");
    call(&E, [stream, flags.address()], |session| {
        let number = session.stream(stream)?;
        session.outside_captures(number)?;
        flags.put(session.streams.get(&number).ok_or(codes::INVALID_HANDLE)?.flags)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetPriority(stream: u64, priority: Out<i32>) -> u32 {
    static E: Entry = Entry::new("cuStreamGetPriority");
    ask(&E, stream, priority, |stream| stream.priority)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetDevice(stream: u64, device: Out<i32>) -> u32 {
    static E: Entry = Entry::new("cuStreamGetDevice");
    ask(&E, stream, device, |stream| stream.device as i32)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32) -> u32 {
    static E: Entry = Entry::new("cuStreamWaitEvent");
    call(&E, [stream, event, u64::from(flags)], |session| {
        let number = session.stream(stream)?;
        if flags > EXTERNAL {
            return Err(codes::INVALID_VALUE);
        }
        let marks = session.event(event)?.marks.clone();
        if session.wait_in_capture(number, event, flags == EXTERNAL)? {
            return Ok(());
        }
        if session.schedule.misorder & MISSING_JOINS == 0 {
            session.submit(number, marks, Work::Nothing);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchHostFunc(stream: u64, function: Option<HostFunction>, data: u64) -> u32 {
    static E: Entry = Entry::new("cuLaunchHostFunc");
    call(&E, [stream, function.map_or(0, |function| function as usize as u64), data], |session| {
        let number = session.stream(stream)?;
        let function = function.ok_or(codes::INVALID_VALUE)?;
        session.admit_work(number)?;
        session.submit(number, Vec::new(), Work::Host { function, data });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) -> u32 {
    static E: Entry = Entry::new("cuThreadExchangeStreamCaptureMode");
    call(&E, [mode.address()], |_| {
        // The driver takes any number; those it does not know work as thread-local.
        let wanted = mode.get()?;
        mode.put(thread::exchange_capture_mode(wanted))
    })
}
