//! What every allocator can do, whoever made it: get memory, take it back, and say what it is like.
#![forbid(unsafe_code)]

use super::Allocator;
use crate::device::Device;
use crate::driver::IpcHandle;
use crate::error::{Error, Result, Status, fail};
use crate::handle::{Entered, Hold};
use crate::kind::Kind;
use crate::log::log;
use crate::stream::Stream;
use crate::thread;
use std::any::Any;

/// What is asked of an allocator. The same for an allocation and for the deallocation of what came of it.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub device: &'static Device,
    /// Bytes, never 0.
    pub size: u64,
    /// A power of two.
    pub alignment: u64,
    /// The stream that the memory belongs to; `None` on the CPU, and where it is gone by now.
    pub stream: Option<&'a Entered<Stream>>,
    /// The number of its tag, 0 for none.
    pub tag: u32,
    /// Bits of `flags`.
    pub flags: u32,
}

/// What a request says beside its numbers. Part of the ABI.
pub mod flags {
    /// The stream is being captured: what is put on it becomes part of a graph.
    pub const IN_CAPTURE: u32 = 1;
    /// It was asked before, and the allocator was out of memory.
    pub const RETRY: u32 = 2;
    /// No work uses the memory any more, and the stream may be gone.
    pub const IDLE: u32 = 4;
    /// The context that the memory was made in is gone, and with it all but a pool's memory.
    pub const DEVICE_LOST: u32 = 8;
}

/// What an allocator is like. Of one that stands on others: what all of them are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// It makes host memory, for the CPU; else memory for GPUs.
    pub host: bool,
    /// It may serve a stream that is being captured.
    pub captures: bool,
    /// It takes memory back while work of the stream that it belongs to still uses it.
    pub ordered: bool,
    /// And while work of any other stream does that the deallocation names, or that is captured.
    pub any_stream: bool,
    /// The kind of what it makes, where it says so.
    pub kind: Option<Kind>,
}

impl Traits {
    /// Those of an allocator that hands out what either of two makes.
    pub fn and(self, other: Traits) -> Traits {
        Traits {
            host: self.host && other.host,
            captures: self.captures && other.captures,
            ordered: self.ordered && other.ordered,
            any_stream: self.any_stream && other.any_stream,
            kind: self.kind.filter(|kind| other.kind == Some(*kind)),
        }
    }
}

/// Whether a deallocation that failed did nothing, and can go well when it is made again: the allocator could not be asked, or the
/// driver refused.
pub fn may_be_repeated(error: &Error) -> bool {
    matches!(
        error.status,
        Status::Busy
            | Status::DriverError
            | Status::DeviceLost
            | Status::OutOfMemory
            | Status::NotSupported
            | Status::IllegalInCapture
    )
}

/// Tells of memory that an allocator gave, that nobody can use, and that it did not take back either.
pub fn tell_of_unusable(taken_back: Result<()>) {
    if let Err(error) = taken_back {
        log!(Error, "what cannot be used was not taken back: {error}");
    }
}

/// What an allocator tells of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    pub live_bytes: u64,
    pub peak_bytes: u64,
    pub live_blocks: u64,
    pub peak_blocks: u64,
    /// Bytes and blocks since the start, and requests that came to nothing.
    pub total_bytes: u64,
    pub total_blocks: u64,
    pub failures: u64,
    /// Bytes that it has from below, live or not; 0 where it does not know.
    pub reserved_bytes: u64,
}

/// What another process needs to reach an address.
#[derive(Debug, Clone, Copy)]
pub struct Exported {
    pub handle: IpcHandle,
    /// From what the handle opens to the address.
    pub offset: u64,
    /// Bytes of what the handle opens.
    pub size: u64,
    pub ordinal: i32,
}

/// An allocator as others see it. Called from any thread, with no lock of the library held; may be called again while a
/// call is in it.
pub trait Source: Send + Sync {
    /// What sort it is, such as "limit".
    fn sort(&self) -> &'static str;

    fn traits(&self) -> Traits;

    /// The first address of `request.size` bytes, never 0.
    fn allocate(&self, request: &Request<'_>) -> Result<u64>;

    /// Takes back what `allocate` gave. The memory is gone, also when this fails, unless the error `may_be_repeated`: then nothing
    /// was done, and the memory is as it was.
    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()>;

    /// The allocator below, for one that stands on a single one: what follows is asked of it, unless it is done here.
    fn upstream(&self) -> Option<&Upstream> {
        None
    }

    /// Gives memory that it keeps back to where it came from, and says how many bytes. `request.size` is what is needed, 0 for
    /// all there is.
    fn trim(&self, request: &Request<'_>) -> Result<u64> {
        self.upstream().map_or(Ok(0), |upstream| upstream.trim(request))
    }

    /// Whether `record_stream` may be asked.
    fn records_streams(&self) -> bool {
        self.upstream().is_some_and(|upstream| upstream.records_streams())
    }

    /// Notes that work on `request.stream` uses the memory, so that its deallocation comes after that work. False when the
    /// allocator cannot do that, and whoever asks has to wait for the work.
    fn record_stream(&self, address: u64, request: &Request<'_>) -> Result<bool> {
        self.upstream().map_or(Ok(false), |upstream| upstream.record_stream(address, request))
    }

    /// Its own account, `None` when it keeps none.
    fn statistics(&self) -> Result<Option<Statistics>> {
        Ok(None)
    }

    /// What other processes open the block by that begins at an address; `None` when the allocator leaves that to the library.
    fn export_ipc(&self, address: u64, request: &Request<'_>) -> Result<Option<Exported>> {
        self.upstream().map_or(Ok(None), |upstream| upstream.export_ipc(address, request))
    }

    /// The built-in allocator of that kind.
    fn builtin(&self) -> Option<Kind> {
        None
    }

    /// Callbacks of other code are not called any more, also not those below. Whoever asks waits for those that run.
    fn stop(&self) {
        if let Some(upstream) = self.upstream() {
            upstream.stop();
        }
    }

    /// Its handle is about to become stale. What of its memory is not known to the ledger as a block of its own has to be from now
    /// on. Locks may be held: no callback is called.
    fn closing(&self) {}

    /// Its handle is stale, and no lock is held: what it keeps for later goes back to where it came from.
    fn closed(&self) {}

    /// How many allocators one request may meet, itself included.
    fn stacked(&self) -> Stacked {
        Stacked::on(self.upstream().as_slice())
    }

    /// For what one sort alone can do.
    fn as_any(&self) -> &dyn Any;
}

/// The allocators that one request may meet: as many on top of each other, and as many in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stacked {
    pub high: u32,
    pub all: u32,
}

impl Stacked {
    /// A thread is inside of all that are on top of each other at once, and has room for 64 objects.
    const HIGHEST: u32 = 16;
    /// When each of them fails, all are asked.
    const MOST: u32 = 64;

    /// Those of an adaptor that stands on others.
    pub fn on(upstreams: &[&Upstream]) -> Stacked {
        let below = upstreams.iter().map(|upstream| upstream.stacked());
        below.fold(Stacked { high: 1, all: 1 }, |sum, below| Stacked {
            high: sum.high.max(1 + below.high),
            all: sum.all + below.all,
        })
    }

    /// An error unless calls find an end in such a stack.
    pub fn require_room(upstreams: &[&Upstream]) -> Result<()> {
        let Stacked { high, all } = Stacked::on(upstreams);
        if high > Stacked::HIGHEST || all > Stacked::MOST {
            fail!(
                InvalidArgument,
                "this would be {high} allocators on top of each other, {all} in all, and at most {} and {} are possible; build a lower stack",
                Stacked::HIGHEST,
                Stacked::MOST
            );
        }
        Ok(())
    }
}

/// The allocator that another one stands on. It lives as long.
pub struct Upstream(Hold<Allocator>);

impl Upstream {
    pub fn of(allocator: &Entered<Allocator>) -> Upstream {
        Upstream(allocator.lasting_hold())
    }

    /// Calls it, where whoever stops it can see that.
    fn call<R>(&self, call: impl FnOnce(&Allocator) -> Result<R>) -> Result<R> {
        let Some(inside) = self.0.enter(thread::mine()) else {
            fail!(AllocatorFailed, "{} is called by too many calls inside of each other", self.0.title());
        };
        call(&inside)
    }

    pub fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        self.call(|allocator| allocator.allocate(request))
    }

    pub fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        let Some(inside) = self.0.enter(thread::mine()) else {
            fail!(Busy, "{} is called by too many calls inside of each other", self.0.title());
        };
        inside.deallocate(address, request)
    }

    pub fn trim(&self, request: &Request<'_>) -> Result<u64> {
        self.call(|allocator| allocator.trim(request))
    }

    pub fn record_stream(&self, address: u64, request: &Request<'_>) -> Result<bool> {
        self.call(|allocator| allocator.record_stream(address, request))
    }

    pub fn export_ipc(&self, address: u64, request: &Request<'_>) -> Result<Option<Exported>> {
        self.call(|allocator| allocator.export_ipc(address, request))
    }

    pub fn statistics(&self) -> Result<Option<Statistics>> {
        self.call(Allocator::statistics)
    }

    /// As `Allocator::stop`.
    pub fn stop(&self) {
        super::stop_held(&self.0);
    }
}

impl std::ops::Deref for Upstream {
    type Target = Allocator;
    fn deref(&self) -> &Allocator {
        &self.0
    }
}
