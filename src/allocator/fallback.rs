//! An adaptor that asks a second allocator for what a first one cannot give.
#![forbid(unsafe_code)]

use super::shards::Shards;
use super::source::{Exported, Request, Source, Stacked, Traits, Upstream, flags, may_be_repeated};
use crate::error::{Error, Result, Status, fail};
use std::any::Any;

pub struct Fallback {
    first: Upstream,
    second: Upstream,
    /// What the second one gave; all else is of the first.
    of_second: Shards<()>,
}

impl Fallback {
    pub fn new(first: Upstream, second: Upstream) -> Result<Fallback> {
        if first.traits().host != second.traits().host {
            let sort =
                |upstream: &Upstream| if upstream.traits().host { "host memory" } else { "memory for GPUs" };
            fail!(
                InvalidArgument,
                "{} makes {} and {} makes {}; what serves for the other must make memory of the same sort",
                first.title(),
                sort(&first),
                second.title(),
                sort(&second)
            );
        }
        Stacked::require_room(&[&first, &second])?;
        Ok(Fallback { first, second, of_second: Shards::new() })
    }

    fn owner(&self, address: u64) -> &Upstream {
        if self.of_second.get(address).is_some() { &self.second } else { &self.first }
    }

    fn ask_second(&self, request: &Request<'_>) -> Result<u64> {
        let address = self.second.allocate(request)?;
        if !self.of_second.insert(address, ()) {
            // Its first owner still uses it.
            fail!(
                AllocatorFailed,
                "{} gave {address:#x}, which was not given back yet; it is not used",
                self.second.title()
            );
        }
        Ok(address)
    }
}

/// Whether another allocator may have what this one had not. What is wrong with the request is wrong for both.
fn may_be_elsewhere(error: &Error) -> bool {
    matches!(error.status, Status::OutOfMemory | Status::AllocatorFailed)
}

impl Source for Fallback {
    fn sort(&self) -> &'static str {
        "fallback"
    }

    fn traits(&self) -> Traits {
        self.first.traits().and(self.second.traits())
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        let may = |upstream: &Upstream| request.flags & flags::IN_CAPTURE == 0 || upstream.traits().captures;
        let first = match (may(&self.first), may(&self.second)) {
            (false, false) => {
                fail!(
                    IllegalInCapture,
                    "neither {} nor {} serves a stream that is being captured; allocate before the capture",
                    self.first.title(),
                    self.second.title()
                );
            }
            (false, true) => return self.ask_second(request),
            (true, false) => return self.first.allocate(request),
            (true, true) => match self.first.allocate(request) {
                Err(error) if may_be_elsewhere(&error) => error,
                outcome => return outcome,
            },
        };
        self.ask_second(request).map_err(|second| {
            let both = format!(
                "{}; before that, {} failed too: {}",
                second.message,
                self.first.title(),
                first.message
            );
            // Out of memory is what the first one may still be helped with.
            let status =
                if may_be_elsewhere(&second) { worse(first.status, second.status) } else { second.status };
            Error::new(status, both).with_driver_code(second.driver_code)
        })
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        // Forgotten first: once it is given back, the address may come again, from either.
        let is_of_second = self.of_second.remove(address).is_some();
        if is_of_second { &self.second } else { &self.first }.deallocate(address, request).inspect_err(
            |error| {
                if is_of_second && may_be_repeated(error) {
                    self.of_second.insert(address, ());
                }
            },
        )
    }

    fn trim(&self, request: &Request<'_>) -> Result<u64> {
        let (first, second) = (self.first.trim(request), self.second.trim(request));
        Ok(first?.saturating_add(second?))
    }

    fn records_streams(&self) -> bool {
        self.first.records_streams() && self.second.records_streams()
    }

    fn record_stream(&self, address: u64, request: &Request<'_>) -> Result<bool> {
        self.owner(address).record_stream(address, request)
    }

    fn export_ipc(&self, address: u64, request: &Request<'_>) -> Result<Option<Exported>> {
        self.owner(address).export_ipc(address, request)
    }

    fn stop(&self) {
        self.first.stop();
        self.second.stop();
    }

    fn stacked(&self) -> Stacked {
        Stacked::on(&[&self.first, &self.second])
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Of two failures the one that waiting and trimming may help.
fn worse(first: Status, second: Status) -> Status {
    if first == Status::OutOfMemory { first } else { second }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, request, upstream};
    use super::*;

    fn failing(status: Status) -> Fake {
        Fake { fail_every: 1, status: Some(status), ..Fake::default() }
    }

    #[test]
    fn the_second_serves_what_the_first_cannot() {
        for status in [Status::OutOfMemory, Status::AllocatorFailed] {
            let (first, at_first) = upstream(Fake { fail_every: 2, status: Some(status), ..Fake::default() });
            let (second, at_second) = upstream(Fake::default());
            let fallback = Fallback::new(first, second).unwrap();
            let a = fallback.allocate(&request(100)).unwrap();
            // The same sizes and calls give the same addresses there: one more, so that they differ.
            let unused = at_second.source().allocate(&request(5000)).unwrap();
            let b = fallback.allocate(&request(100)).unwrap();
            assert_eq!((at_first.source().blocks(), at_second.source().blocks()), (1, 2));
            assert!(fallback.record_stream(b, &request(100)).unwrap());
            assert!(at_second.source().take_calls().iter().any(|call| call.0 == "record_stream"));
            fallback.deallocate(b, &request(100)).unwrap();
            fallback.deallocate(a, &request(100)).unwrap();
            at_second.source().deallocate(unused, &request(5000)).unwrap();
            assert_eq!((at_first.source().blocks(), at_second.source().blocks()), (0, 0));
            assert_eq!(fallback.trim(&request(1)).unwrap(), 22);
            fallback.stop();
            let stops = |fake: &Fake| fake.stops.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!((stops(at_first.source()), stops(at_second.source())), (1, 1));
        }
    }

    #[test]
    fn what_is_wrong_with_the_request_is_not_asked_again() {
        let (first, _first) = upstream(failing(Status::InvalidArgument));
        let (second, at_second) = upstream(Fake::default());
        let fallback = Fallback::new(first, second).unwrap();
        assert_eq!(fallback.allocate(&request(100)).unwrap_err().status, Status::InvalidArgument);
        assert!(at_second.source().take_calls().is_empty());
    }

    #[test]
    fn when_both_fail_both_are_named() {
        for (at_first, at_second, both) in [
            (Status::OutOfMemory, Status::AllocatorFailed, Status::OutOfMemory),
            (Status::AllocatorFailed, Status::OutOfMemory, Status::OutOfMemory),
            (Status::AllocatorFailed, Status::AllocatorFailed, Status::AllocatorFailed),
            (Status::OutOfMemory, Status::InvalidArgument, Status::InvalidArgument),
        ] {
            let (first, _first) = upstream(failing(at_first));
            let (second, _second) = upstream(failing(at_second));
            let error = Fallback::new(first, second).unwrap().allocate(&request(100)).unwrap_err();
            assert_eq!(error.status, both);
            assert_eq!(error.message.matches("as planned").count(), 2, "{error}");
        }
    }

    #[test]
    fn in_a_capture_only_those_that_capture_are_asked() {
        let captured = Request { flags: flags::IN_CAPTURE, ..request(100) };
        for (can_first, can_second) in [(false, false), (true, false), (false, true), (true, true)] {
            let (first, at_first) = upstream(Fake { captures: can_first, ..failing(Status::OutOfMemory) });
            let (second, at_second) = upstream(Fake { captures: can_second, ..Fake::default() });
            let fallback = Fallback::new(first, second).unwrap();
            assert_eq!(fallback.traits().captures, can_first && can_second);
            let status = fallback.allocate(&captured).err().map(|error| error.status);
            assert_eq!(at_first.source().failures() == 1, can_first);
            assert_eq!(at_second.source().blocks() == 1, can_second);
            let expected = match (can_first, can_second) {
                (false, false) => Some(Status::IllegalInCapture),
                (true, false) => Some(Status::OutOfMemory),
                (_, true) => None,
            };
            assert_eq!(status, expected);
        }
    }

    #[test]
    fn host_memory_does_not_serve_for_memory_of_gpus() {
        let (first, _first) = upstream(Fake { host: true, ..Fake::default() });
        let (second, _second) = upstream(Fake::default());
        let error = Fallback::new(first, second).err().expect("they differ");
        assert_eq!(error.status, Status::InvalidArgument);
    }

    #[test]
    fn stacks_that_would_ask_without_end_are_refused() {
        let (mut top, _fake) = upstream(Fake::default());
        let mut kept = Vec::new();
        for height in 1.. {
            let again = upstream(Fake::default());
            let (next, below) = match Fallback::new(top, again.0) {
                Ok(fallback) => {
                    let handle = super::super::create(Box::new(fallback), None).unwrap();
                    let entered = super::super::enter(handle).unwrap();
                    (Upstream::of(&entered), (again.1, handle))
                }
                Err(error) => {
                    assert_eq!((error.status, height), (Status::InvalidArgument, 16), "{error}");
                    break;
                }
            };
            top = next;
            kept.push(below);
        }
        for (_, handle) in kept {
            super::super::release(handle).unwrap();
        }
    }
}
