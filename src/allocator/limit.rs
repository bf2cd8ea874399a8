//! An adaptor that keeps the bytes that are out at once within a limit.
#![forbid(unsafe_code)]

use super::source::{Request, Source, Stacked, Traits, Upstream, may_be_repeated};
use crate::error::{Error, Result, error};
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Limit {
    upstream: Upstream,
    limit: AtomicU64,
    /// Bytes that are out, or that the upstream is being asked for, or has not taken back yet.
    used: AtomicU64,
}

impl Limit {
    pub fn new(upstream: Upstream, limit: u64) -> Result<Limit> {
        Stacked::require_room(&[&upstream])?;
        Ok(Limit { upstream, limit: AtomicU64::new(limit), used: AtomicU64::new(0) })
    }

    /// What is out already stays out, also where it is more.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Release);
    }

    /// The limit, and the bytes that are out.
    pub fn figures(&self) -> (u64, u64) {
        (self.limit.load(Ordering::Acquire), self.used.load(Ordering::Acquire))
    }

    /// Bytes are taken only when they fit, so nobody is refused because of a request that is refused too.
    fn reserve(&self, bytes: u64) -> Result<()> {
        let mut refused = (0, 0);
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            let limit = self.limit.load(Ordering::Acquire);
            refused = (limit, used);
            used.checked_add(bytes).filter(|sum| *sum <= limit)
        });
        taken.map(drop).map_err(|_| exceeded(refused, bytes))
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }
}

#[cold]
fn exceeded((limit, used): (u64, u64), bytes: u64) -> Error {
    error!(
        OutOfMemory,
        "the limit allocator may have {limit} bytes out at once, {used} are out, and {bytes} were asked for; free some of it, or raise the limit with warp_allocator_limit_set"
    )
}

impl Source for Limit {
    fn sort(&self) -> &'static str {
        "limit"
    }

    fn traits(&self) -> Traits {
        self.upstream.traits()
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        self.reserve(request.size)?;
        self.upstream.allocate(request).inspect_err(|_| self.give_back(request.size))
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        let outcome = self.upstream.deallocate(address, request);
        if !outcome.as_ref().is_err_and(may_be_repeated) {
            self.give_back(request.size);
        }
        outcome
    }

    fn upstream(&self) -> Option<&Upstream> {
        Some(&self.upstream)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, request, upstream};
    use super::*;
    use crate::error::Status;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn what_fits_succeeds_and_what_does_not_names_the_figures() {
        let limit = Limit::new(upstream(Fake::default()).0, 1000).unwrap();
        let first = limit.allocate(&request(600)).unwrap();
        let error = limit.allocate(&request(401)).unwrap_err();
        assert_eq!(error.status, Status::OutOfMemory);
        for part in ["1000 bytes", "600 are out", "401 were", "warp_allocator_limit_set"] {
            assert!(error.message.contains(part), "{part}: {}", error.message);
        }
        limit.allocate(&request(400)).unwrap();
        assert_eq!(limit.figures(), (1000, 1000));
        assert_eq!(limit.allocate(&request(u64::MAX)).unwrap_err().status, Status::OutOfMemory);
        limit.deallocate(first, &request(600)).unwrap();
        assert_eq!(limit.figures(), (1000, 400));
        limit.set_limit(100);
        assert_eq!(limit.allocate(&request(1)).unwrap_err().status, Status::OutOfMemory);
        limit.set_limit(u64::MAX);
        limit.allocate(&request(5000)).unwrap();
        assert_eq!(limit.figures(), (u64::MAX, 5400));
    }

    #[test]
    fn a_failure_below_leaves_nothing_reserved() {
        let fake = Fake { fail_every: 1, ..Fake::default() };
        let limit = Limit::new(upstream(fake).0, 1000).unwrap();
        assert_eq!(limit.allocate(&request(600)).unwrap_err().status, Status::OutOfMemory);
        assert_eq!(limit.figures(), (1000, 0));
    }

    #[test]
    fn sixteen_threads_never_exceed_it_and_fill_it_exactly() {
        let (below, fake) = upstream(Fake { fail_every: 7, ..Fake::default() });
        let limit = Limit::new(below, 64 * 100).unwrap();
        let failed_below = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        match limit.allocate(&request(64)) {
                            Ok(address) => limit.deallocate(address, &request(64)).unwrap(),
                            Err(error) if error.message.contains("limit") => panic!("{error}"),
                            Err(_) => drop(failed_below.fetch_add(1, Ordering::Relaxed)),
                        }
                    }
                });
            }
        });
        assert_eq!(limit.figures().1, 0);
        assert_eq!(failed_below.load(Ordering::Relaxed), fake.source().failures());
        fake.source().stop_failing();
        let served = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        served.fetch_add(u64::from(limit.allocate(&request(64)).is_ok()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(served.load(Ordering::Relaxed), 100, "as many as fit, and no fewer");
        assert_eq!(fake.source().most_out(), 6400);
    }
}
