//! An adaptor that asks other code what to do when an allocation fails: it may make room, and have it tried again.
#![forbid(unsafe_code)]

use super::outside::{Outside, Told};
use super::source::{Request, Source, Stacked, Traits, Upstream, flags};
use crate::error::{Error, Result, Status};
use crate::kind::Kind;
use crate::log::log;
use std::any::Any;

/// As many times as one allocation is tried, whatever the callback says.
const MOST_ATTEMPTS: u32 = 1000;

/// The callbacks, as the C face hands them on.
pub trait Again: Send + Sync {
    /// Whether to try once more what has failed with `status` in attempt number `attempt`, of which the first is 1.
    fn again(&self, told: &Told<'_>, status: Status, attempt: u32) -> bool;
    fn destroy(&self);
}

pub struct FailureCallback {
    upstream: Upstream,
    callbacks: Box<dyn Again>,
    outside: Outside,
}

impl FailureCallback {
    pub fn new(upstream: Upstream, callbacks: Box<dyn Again>) -> Result<FailureCallback> {
        Stacked::require_room(&[&upstream])?;
        let kind = upstream.traits().kind.unwrap_or(Kind::Unknown);
        let outside = Outside::new("failure callback".into(), kind, false);
        Ok(FailureCallback { upstream, callbacks, outside })
    }

    /// What the callback says. When it cannot be asked, that is no.
    fn says_again(&self, request: &Request<'_>, error: &Error, attempt: u32) -> bool {
        let ask = |told: &Told<'_>| self.callbacks.again(told, error.status, attempt);
        match self.outside.call("the failure callback", request, ask) {
            Ok(answer) => answer.unwrap_or(false),
            Err(why) => {
                log!(Error, "the failure callback was not asked about {} bytes: {why}", request.size);
                false
            }
        }
    }
}

impl Source for FailureCallback {
    fn sort(&self) -> &'static str {
        "failure callback"
    }

    fn traits(&self) -> Traits {
        self.upstream.traits()
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        let mut request = *request;
        let mut attempt = 1;
        loop {
            let error = match self.upstream.allocate(&request) {
                Ok(address) => return Ok(address),
                Err(error) => error,
            };
            if attempt >= MOST_ATTEMPTS {
                return Err(error.context(format_args!(
                    "given up after {attempt} attempts, though the failure callback asked for one more"
                )));
            }
            if !self.says_again(&request, &error, attempt) {
                return Err(error);
            }
            if error.status == Status::OutOfMemory {
                request.flags |= flags::RETRY;
            }
            attempt += 1;
        }
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        self.upstream.deallocate(address, request)
    }

    fn upstream(&self) -> Option<&Upstream> {
        Some(&self.upstream)
    }

    fn stop(&self) {
        self.outside.stop();
        self.upstream.stop();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for FailureCallback {
    fn drop(&mut self) {
        self.outside.end(|| self.callbacks.destroy());
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, request, upstream};
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Asked {
        times: AtomicU32,
        last: AtomicU32,
        destroyed: AtomicU32,
    }

    struct Until(u32, Arc<Asked>);

    impl Again for Until {
        fn again(&self, told: &Told<'_>, status: Status, attempt: u32) -> bool {
            assert_eq!((told.request.size, status), (100, Status::OutOfMemory));
            assert_eq!(told.request.flags, if attempt == 1 { 0 } else { flags::RETRY });
            assert_eq!(self.1.times.fetch_add(1, Ordering::Relaxed) + 1, attempt);
            self.1.last.store(attempt, Ordering::Relaxed);
            attempt < self.0
        }
        fn destroy(&self) {
            self.1.destroyed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn of(fake: Fake, until: u32) -> (FailureCallback, super::super::fake::Below, Arc<Asked>) {
        let asked = Arc::new(Asked::default());
        let (below, fake) = upstream(fake);
        (FailureCallback::new(below, Box::new(Until(until, Arc::clone(&asked)))).unwrap(), fake, asked)
    }

    #[test]
    fn it_is_asked_until_it_gives_up() {
        let (adaptor, fake, asked) = of(Fake { fail_every: 1, ..Fake::default() }, 4);
        assert_eq!(adaptor.allocate(&request(100)).unwrap_err().status, Status::OutOfMemory);
        assert_eq!((asked.times.load(Ordering::Relaxed), fake.source().failures()), (4, 4));
        drop(adaptor);
        assert_eq!(asked.destroyed.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_success_ends_it() {
        let (adaptor, fake, asked) = of(Fake { fail_every: 2, ..Fake::default() }, 4);
        let first = adaptor.allocate(&request(100)).unwrap();
        let second = adaptor.allocate(&request(100)).unwrap();
        assert_eq!((asked.times.load(Ordering::Relaxed), fake.source().failures()), (1, 1));
        adaptor.deallocate(first, &request(100)).unwrap();
        adaptor.deallocate(second, &request(100)).unwrap();
    }

    #[test]
    fn it_comes_to_an_end_whatever_is_said() {
        let (adaptor, fake, asked) = of(Fake { fail_every: 1, ..Fake::default() }, u32::MAX);
        let error = adaptor.allocate(&request(100)).unwrap_err();
        assert!(error.message.contains("1000 attempts"), "{error}");
        assert_eq!((asked.times.load(Ordering::Relaxed), fake.source().failures()), (999, 1000));
    }

    #[test]
    fn once_stopped_nobody_is_asked_or_told() {
        let (adaptor, fake, asked) = of(Fake { fail_every: 1, ..Fake::default() }, 4);
        adaptor.stop();
        assert!(adaptor.allocate(&request(100)).is_err());
        drop(adaptor);
        let of = |count: &AtomicU32| count.load(Ordering::Relaxed);
        assert_eq!((of(&asked.times), of(&asked.destroyed), fake.source().failures()), (0, 0, 1));
        assert_eq!(fake.source().stops.load(Ordering::Relaxed), 1);
    }
}
