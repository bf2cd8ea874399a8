//! Events.
use std::time::Instant;

use crate::call::{Entry, Out, Session, call};
use crate::codes::{self, Code};
use crate::event::{self, Event};
use crate::graph::Node;
use crate::work::Work;

/// Blocking sync, disable timing, interprocess.
const FLAGS: u32 = 7;
/// `CU_EVENT_RECORD_EXTERNAL`.
const EXTERNAL: u32 = 1;

#[unsafe(no_mangle)]
pub extern "C" fn cuEventCreate(event: Out<u64>, flags: u32) -> u32 {
    static E: Entry = Entry::new("cuEventCreate");
    call(&E, [event.address(), u64::from(flags)], |session| {
        event.check()?;
        let current = session.current()?;
        let (context, context_id) = (current.handle, current.id);
        let shared_with_timing = flags & event::INTERPROCESS != 0 && flags & event::DISABLE_TIMING == 0;
        if flags & !FLAGS != 0 || shared_with_timing {
            return Err(codes::INVALID_VALUE);
        }
        let handle = session.events.insert(|_| Event {
            context,
            context_id,
            flags,
            recorded: false,
            marks: Vec::new(),
            generation: 0,
            reached: None,
            captured: None,
        })?;
        event.put(handle)
    })
}

/// `external`: a node of a graph that records the event, and no mark within a capture.
fn record(session: &mut Session, event: u64, stream: u64, external: bool) -> Result<(), Code> {
    let number = session.stream(stream)?;
    let context_id = session.streams.get(&number).ok_or(codes::INVALID_HANDLE)?.context_id;
    if session.event(event)?.context_id != context_id {
        return Err(codes::INVALID_HANDLE);
    }
    session.admit_work(number)?;
    let captures = session.is_captured(number);
    if external {
        return if captures {
            session.capture_node(number, Node::Record { event }).map(drop)
        } else {
            Err(codes::ILLEGAL_STATE)
        };
    }
    if captures {
        return session.capture_event(number, event);
    }
    let generation = session.begin_record(event).ok_or(codes::INVALID_HANDLE)?;
    session.submit(number, Vec::new(), Work::Record { event, generation });
    let mark = session.end_of(number);
    session.set_marks(event, vec![mark]);
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: u64, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuEventRecord");
    call(&E, [event, stream], |session| record(session, event, stream, false))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecordWithFlags(event: u64, stream: u64, flags: u32) -> u32 {
    static E: Entry = Entry::new("cuEventRecordWithFlags");
    call(&E, [event, stream, u64::from(flags)], |session| {
        if flags > 1 {
            return Err(codes::INVALID_VALUE);
        }
        record(session, event, stream, flags == EXTERNAL)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: u64) -> u32 {
    static E: Entry = Entry::new("cuEventQuery");
    call(&E, [event], |session| {
        let marks = session.event(event)?.marks.clone();
        session.ask_event(event, true)?;
        session.beside_captures()?;
        let done = session.poll(event, &marks);
        if done { Ok(()) } else { Err(codes::NOT_READY) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(event: u64) -> u32 {
    static E: Entry = Entry::new("cuEventSynchronize");
    call(&E, [event], |session| {
        let asked = session.event(event)?;
        let (marks, context) = (asked.marks.clone(), asked.context);
        session.ask_event(event, true)?;
        session.beside_captures()?;
        session.wait_for(&marks);
        if let Some(device) = session.contexts.get(context).map(|context| context.device) {
            session.release_pools(device);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: u64) -> u32 {
    static E: Entry = Entry::new("cuEventDestroy_v2");
    call(&E, [event], |session| {
        session.event(event)?;
        session.events.remove(event);
        Ok(())
    })
}

fn elapsed(entry: &'static Entry, milliseconds: Out<f32>, start: u64, end: u64) -> Code {
    call(entry, [milliseconds.address(), start, end], |session| {
        milliseconds.check()?;
        session.ask_event(start, false)?;
        session.ask_event(end, false)?;
        let mut time = |handle: u64| -> Result<Instant, Code> {
            let event = session.event(handle)?;
            if event.flags & event::DISABLE_TIMING != 0 || !event.recorded {
                return Err(codes::INVALID_HANDLE);
            }
            let (reached, marks) = (event.reached, event.marks.clone());
            if reached.is_none() && !marks.iter().all(|mark| session.reached(*mark)) {
                return Err(codes::NOT_READY);
            }
            session.seen(&marks);
            // An event of a whole context has no work of its own that would note the time.
            let event = session.events.get_mut(handle).ok_or(codes::INVALID_HANDLE)?;
            Ok(*event.reached.get_or_insert_with(Instant::now))
        };
        let (start, end) = (time(start)?, time(end)?);
        let span = match end.checked_duration_since(start) {
            Some(span) => span.as_secs_f64(),
            None => -start.duration_since(end).as_secs_f64(),
        };
        milliseconds.put((span * 1e3) as f32)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) -> u32 {
    static E: Entry = Entry::new("cuEventElapsedTime");
    elapsed(&E, milliseconds, start, end)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: u64, end: u64) -> u32 {
    static E: Entry = Entry::new("cuEventElapsedTime_v2");
    elapsed(&E, milliseconds, start, end)
}
