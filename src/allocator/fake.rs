//! For unit tests: an allocator whose addresses are made up, and a library that is live for the CPU.

use super::source::{Request, Source, Statistics, Traits, Upstream};
use super::{Allocator, create, enter};
use crate::device::{self, Device};
use crate::error::{Result, Status, fail};
use crate::handle::{Handle, Hold};
use crate::runtime;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Each block with its size, by address.
#[derive(Default)]
pub struct State {
    out: BTreeMap<u64, u64>,
    next: u64,
    bytes: u64,
    most: u64,
    /// Every request that it was asked for: size and alignment, 0 for those that were taken back.
    calls: Vec<(&'static str, u64, u64, u64)>,
}

#[derive(Default)]
pub struct Fake {
    /// Every allocation of so many fails; 0 for none.
    pub fail_every: u64,
    pub status: Option<Status>,
    pub host: bool,
    pub captures: bool,
    /// Given for every allocation, if it is not 0.
    pub always: u64,
    pub asked: AtomicU64,
    pub failed: AtomicU64,
    pub is_well: std::sync::atomic::AtomicBool,
    pub stops: AtomicU64,
    /// So many deallocations more are refused, with nothing done.
    pub busy: AtomicU64,
    pub state: Mutex<State>,
}

impl Fake {
    pub fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub fn stop_failing(&self) {
        self.is_well.store(true, Ordering::Relaxed);
    }

    pub fn most_out(&self) -> u64 {
        self.state.lock().unwrap().most
    }

    pub fn blocks(&self) -> usize {
        self.state.lock().unwrap().out.len()
    }

    /// What was called since the last question: name, address, size, alignment.
    pub fn take_calls(&self) -> Vec<(&'static str, u64, u64, u64)> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }
}

impl Source for Fake {
    fn sort(&self) -> &'static str {
        "fake"
    }

    fn traits(&self) -> Traits {
        Traits { host: self.host, captures: self.captures, ordered: true, any_stream: false, kind: None }
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let fails = self.fail_every != 0 && asked.is_multiple_of(self.fail_every);
        if fails && !self.is_well.load(Ordering::Relaxed) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            match self.status {
                Some(status) => return Err(crate::error::Error::new(status, "as planned")),
                None => fail!(OutOfMemory, "as planned"),
            }
        }
        let mut state = self.state.lock().unwrap();
        if self.always != 0 {
            return Ok(self.always);
        }
        // Aligned as asked, and not to the next power of two.
        let address = state.next.max(0x10_0000).next_multiple_of(2 * request.alignment) + request.alignment;
        state.next = address + request.size;
        state.out.insert(address, request.size);
        state.bytes += request.size;
        state.most = state.most.max(state.bytes);
        state.calls.push(("allocate", address, request.size, request.alignment));
        Ok(address)
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        if self.busy.load(Ordering::Relaxed) != 0 {
            self.busy.fetch_sub(1, Ordering::Relaxed);
            fail!(Busy, "as planned");
        }
        let mut state = self.state.lock().unwrap();
        state.calls.push(("deallocate", address, request.size, request.alignment));
        match state.out.remove(&address) {
            Some(size) if size == request.size => {
                state.bytes -= size;
                Ok(())
            }
            other => fail!(AllocatorFailed, "{address:#x} of {} bytes: {other:?}", request.size),
        }
    }

    fn trim(&self, _: &Request<'_>) -> Result<u64> {
        Ok(11)
    }

    fn records_streams(&self) -> bool {
        true
    }

    fn record_stream(&self, address: u64, request: &Request<'_>) -> Result<bool> {
        self.state.lock().unwrap().calls.push(("record_stream", address, request.size, request.alignment));
        Ok(true)
    }

    fn statistics(&self) -> Result<Option<Statistics>> {
        Ok(Some(Statistics { reserved_bytes: 77, ..Statistics::default() }))
    }

    fn stop(&self) {
        self.stops.fetch_add(1, Ordering::Relaxed);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The fake allocator of a test, which keeps it.
pub struct Below {
    hold: Hold<Allocator>,
    handle: Handle,
}

impl Below {
    pub fn source(&self) -> &Fake {
        self.hold.as_sort("fake").unwrap()
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        super::release(self.handle).unwrap();
    }
}

/// The library, live for the whole test program, without a driver.
pub fn live() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let options = runtime::Options { no_cuda: true, ..runtime::Options::default() };
        runtime::init(&options, runtime::Hooks { build_tables: device::build, mend_in_child: || {} })
            .unwrap();
    });
}

pub fn cpu() -> &'static Device {
    live();
    device::at(0).expect("the CPU is always there")
}

pub fn upstream(fake: Fake) -> (Upstream, Below) {
    live();
    let handle = create(Box::new(fake), None).unwrap();
    let entered = enter(handle).unwrap();
    (Upstream::of(&entered), Below { hold: entered.lasting_hold(), handle })
}

pub fn request(size: u64) -> Request<'static> {
    Request { device: cpu(), size, alignment: 16, stream: None, tag: 0, flags: 0 }
}

/// Every adaptor finds a block as it was when the allocator below did not take it.
#[test]
fn a_deallocation_that_was_refused_is_made_again() {
    use super::{Aligned, Counting, Fallback, Limit, Tracking};
    type Make = fn(Upstream) -> Box<dyn Source>;
    let makes: [(Make, u64); 5] = [
        (|below| Box::new(Aligned::new(below, 4096).unwrap()), 0),
        (|below| Box::new(Limit::new(below, 1000).unwrap()), 0),
        (|below| Box::new(Counting::new(below).unwrap()), 1),
        (|below| Box::new(Tracking::new(below, false).unwrap()), 0),
        (
            |below| {
                let (first, _) = upstream(Fake { fail_every: 1, ..Fake::default() });
                Box::new(Fallback::new(first, below).unwrap())
            },
            0,
        ),
    ];
    for (make, counted) in makes {
        let (below, fake) = upstream(Fake::default());
        let adaptor = make(below);
        let live = || adaptor.statistics().unwrap().map_or(0, |counts| counts.live_blocks);
        let address = adaptor.allocate(&request(600)).unwrap();
        for _ in 0..2 {
            fake.source().busy.store(1, Ordering::Relaxed);
            let error = adaptor.deallocate(address, &request(600)).unwrap_err();
            assert_eq!(error.status, Status::Busy, "{}", adaptor.sort());
            assert_eq!((fake.source().blocks(), live()), (1, counted), "{}", adaptor.sort());
        }
        if let Some(limit) = adaptor.as_any().downcast_ref::<Limit>() {
            assert_eq!(limit.figures(), (1000, 600));
        }
        adaptor.deallocate(address, &request(600)).unwrap();
        assert_eq!((fake.source().blocks(), live()), (0, 0), "{}", adaptor.sort());
        if let Some(limit) = adaptor.as_any().downcast_ref::<Limit>() {
            assert_eq!(limit.figures(), (1000, 0));
        }
    }
}
