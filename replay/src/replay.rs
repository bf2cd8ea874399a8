//! Makes the calls of a log again, one after the other.

use crate::face::{self, Allocator, Answer, Block, Device, Request, Stream};
use crate::figures::{Figures, Times};
use crate::log::{Action, Call, Log};
use std::collections::HashMap;
use std::ffi::CString;
use std::path::Path;
use std::time::Instant;

/// How a log is to be replayed.
#[derive(Debug, Default)]
pub struct Wish {
    /// One of `face::BUILTIN` by its name; else what serves the devices where nothing is named.
    pub allocator: Option<String>,
    /// The GPU that all of it goes to; else the one that each line names.
    pub device: Option<i32>,
    pub limit: Option<u64>,
    pub log: Option<String>,
}

/// Where calls go.
struct Stage {
    allocators: HashMap<i32, Allocator>,
    devices: HashMap<i32, Device>,
    streams: HashMap<(i32, u64), Stream>,
    tags: HashMap<Vec<u8>, CString>,
}

/// The device of a line: the CPU where host memory is wanted, a GPU where it is not.
fn place_of(call: &Call, wish: &Wish, host: bool) -> i32 {
    if host { -1 } else { wish.device.unwrap_or(call.device.max(0)) }
}

/// Replays a log. What is still out at its end is left to the end of the process, so that a log of the replay ends as this one.
pub fn replay(log: &Log, wish: &Wish) -> Answer<Figures> {
    face::start()?;
    let kind = wish.allocator.as_ref().map(|name| {
        let of_name = face::BUILTIN.iter().find(|(known, _)| known == name);
        of_name.expect("the command line was checked").1
    });
    // An allocator makes host memory or memory for GPUs, and so is its log.
    let is_on_host = log.calls.first().is_some_and(|call| call.device < 0) && wish.device.is_none();
    let host = kind.map_or(is_on_host, face::is_host);
    let mut stage = Stage {
        allocators: HashMap::new(),
        devices: HashMap::new(),
        streams: HashMap::new(),
        tags: HashMap::new(),
    };
    let mut places: Vec<i32> = log.calls.iter().map(|call| place_of(call, wish, host)).collect();
    places.sort_unstable();
    places.dedup();
    for place in &places {
        let device = face::device(*place).map_err(|error| match place {
            0.. => format!("{error}; --device names another GPU, and --allocator host needs none"),
            _ => error,
        })?;
        stage.devices.insert(*place, device);
    }
    let shared = match kind {
        Some(kind) => Some(stacked(face::builtin(kind)?, wish)?),
        None if places.len() > 1 && (wish.limit.is_some() || wish.log.is_some()) => {
            return Err(format!(
                "the log is of {} devices, and a limit or a log is of one allocator; name it with --allocator, or a GPU with --device",
                places.len()
            ));
        }
        None => None,
    };
    for place in places {
        let own = match shared {
            Some(shared) => shared,
            None => stacked(face::usual(stage.devices[&place])?, wish)?,
        };
        stage.allocators.insert(place, own);
    }
    for call in log.calls.iter().filter(|call| call.action == Action::Allocate) {
        stage.prepare(call, place_of(call, wish, host))?;
    }
    let figures = stage.run(log, wish, host);
    if wish.log.is_some() {
        for logged in stage.allocators.values() {
            face::flush(*logged)?;
        }
    }
    for device in stage.devices.values() {
        face::synchronize(*device)?;
    }
    Ok(figures)
}

/// The allocator with what is wished around it; the log outermost, so that it has what the limit refuses.
fn stacked(base: Allocator, wish: &Wish) -> Answer<Allocator> {
    let limited = match wish.limit {
        Some(limit) => face::limited(base, limit)?,
        None => base,
    };
    match &wish.log {
        Some(path) => face::logged(limited, &face::text(path)?),
        None => Ok(limited),
    }
}

impl Stage {
    /// What the call needs and is not to be measured.
    fn prepare(&mut self, call: &Call, place: i32) -> Answer<()> {
        if !call.tag.is_empty() && !self.tags.contains_key(&call.tag) {
            let tag = CString::new(call.tag.clone())
                .map_err(|_| format!("the tag of line {} has a NUL in it", call.line))?;
            self.tags.insert(call.tag.clone(), tag);
        }
        if place >= 0 && call.stream != 0 && !self.streams.contains_key(&(place, call.stream)) {
            self.streams.insert((place, call.stream), face::new_stream(self.devices[&place])?);
        }
        Ok(())
    }

    fn run(&self, log: &Log, wish: &Wish, host: bool) -> Figures {
        let mut figures = Figures::default();
        let (mut allocations, mut deallocations) = (Times::default(), Times::default());
        let mut out: Vec<Option<(Allocator, Block)>> = (0..log.blocks).map(|_| None).collect();
        let start = Instant::now();
        for call in &log.calls {
            match call.action {
                Action::Fail => figures.failed_in_log += 1,
                Action::Allocate => {
                    let place = place_of(call, wish, host);
                    let allocator = self.allocators[&place];
                    let request = Request {
                        size: call.size,
                        alignment: call.alignment,
                        device: self.devices[&place],
                        stream: self.streams.get(&(place, call.stream)).copied().unwrap_or(Stream::NONE),
                        tag: self.tags.get(&call.tag).map(CString::as_c_str),
                    };
                    match allocations.of(|| allocator.allocate(&request)) {
                        Ok(block) => {
                            out[call.block] = Some((allocator, block));
                            figures.allocated(call.size);
                        }
                        Err(why) => figures.failed(call.line, why),
                    }
                }
                Action::Deallocate => match out[call.block].take() {
                    None => figures.skipped += 1,
                    Some((allocator, block)) => {
                        figures.deallocated(call.size);
                        if let Err(why) = deallocations.of(|| allocator.deallocate(block)) {
                            figures.refused(call.line, why);
                        }
                    }
                },
            }
        }
        figures.seconds = start.elapsed().as_secs_f64();
        figures.allocation_ns = allocations.told();
        figures.deallocation_ns = deallocations.told();
        figures
    }
}

/// Whether two paths are of one file.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_goes_where_it_is_wished() {
        let call = |device| Call {
            line: 3,
            action: Action::Allocate,
            size: 1,
            alignment: 1,
            device,
            stream: 0,
            tag: Vec::new(),
            block: 0,
        };
        let on = |device| Wish { device, ..Wish::default() };
        assert_eq!(place_of(&call(1), &on(None), false), 1);
        assert_eq!(place_of(&call(1), &on(Some(0)), false), 0);
        assert_eq!(place_of(&call(-1), &on(None), false), 0);
        assert_eq!(place_of(&call(1), &on(None), true), -1);
    }
}
