//! Serving frameworks that call plain functions: they name a GPU by its number and a stream by its native handle, or none at all,
//! and promise nothing about either.

use crate::alloc::{self, FreeOptions, Request};
use crate::allocator::Allocator;
use crate::device::{self, Device, PerDevice};
use crate::driver::RawStream;
use crate::error::{Result, error};
use crate::handle::{Entered, Handle};
use crate::runtime;
use crate::stream::{self, OnDemand, Stream};

/// A stream of each GPU on which nothing else is put, as one that nobody promises to keep: what belongs to it waits at its free
/// for all work of the context.
static SHARED: PerDevice<OnDemand> = PerDevice::new();

fn gpu(ordinal: i32) -> Result<&'static Device> {
    runtime::require_live()?;
    device::primary_of(ordinal).ok_or_else(|| {
        error!(NoSuchDevice, "there is no GPU {ordinal}; the table has {} of them", device::cuda_count())
    })
}

fn shared_stream(device: &'static Device) -> Result<Entered<Stream>> {
    SHARED.get_or_make(device, OnDemand::new).enter(|| {
        let own = stream::create(device, stream::Options { non_blocking: true, priority: 0 })?;
        // The one that is made stays open under its own handle, so that the native stream lasts.
        stream::enter(own).and_then(|made| stream::wrap(device, made.native(), true)).inspect_err(|_| {
            let _ = stream::release(own, |_| Ok(()));
        })
    })
}

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    for shared in device::ever_made().filter_map(|device| SHARED.get(device)) {
        // SAFETY: the caller's promise.
        unsafe { shared.mend_in_child() };
    }
}

/// A native stream under a handle of its own for the length of a call. What depends on it keeps it.
struct Wrapped(Handle);

impl Drop for Wrapped {
    fn drop(&mut self) {
        let _ = stream::release(self.0, |_| Ok(()));
    }
}

fn wrap(device: &'static Device, native: usize) -> Result<Wrapped> {
    let native = RawStream(std::ptr::with_exposed_provenance_mut(native));
    // The special ones are always there.
    stream::wrap(device, native, !native.is_special()).map(Wrapped)
}

/// Memory that belongs to a native stream of a GPU. When that is captured, the memory is no part of the graph and good at once.
pub fn alloc_on_stream(ordinal: i32, native: usize, size: u64) -> Result<u64> {
    let device = gpu(ordinal)?;
    let wrapped = wrap(device, native)?;
    let stream = stream::enter(wrapped.0)?;
    let driver = device.require_cuda("memory for a framework")?;
    // The default streams are those of the current context, and a thread of a framework's may have none.
    let context = stream.enter_context(driver)?;
    let capturing = stream.is_capturing(driver).map_err(|f| device.error(driver, f))?;
    drop(context);
    if capturing {
        return alloc_for_any_stream(device, size, None);
    }
    alloc::allocate(device, Request { size, stream: Some(&stream), ..Request::default() })
}

/// Memory of a GPU that is good on all streams, at once.
pub fn alloc_anywhere(ordinal: i32, size: u64, from: Option<&Entered<Allocator>>) -> Result<u64> {
    alloc_for_any_stream(gpu(ordinal)?, size, from)
}

fn alloc_for_any_stream(
    device: &'static Device,
    size: u64,
    allocator: Option<&Entered<Allocator>>,
) -> Result<u64> {
    let stream = shared_stream(device)?;
    let address =
        alloc::allocate(device, Request { size, allocator, stream: Some(&stream), ..Request::default() })?;
    // Nothing else is on that stream, so this does not wait for work.
    stream.synchronize().inspect_err(|_| {
        let _ = alloc::free(address, &FreeOptions::default());
    })?;
    Ok(address)
}

/// Frees what was allocated here; the size is checked where it is given.
pub fn free(address: u64, size: Option<u64>) -> Result<()> {
    alloc::free(address, &FreeOptions { size, ..FreeOptions::default() })
}

/// Notes that work on a native stream uses a block.
pub fn record_stream(address: u64, native: usize) -> Result<()> {
    runtime::require_live()?;
    let device = alloc::find(address)
        .and_then(|block| block.device())
        .filter(|device| device.is_cuda())
        .ok_or_else(|| error!(UnknownPointer, "{address:#x} lies in no live block of a GPU"))?;
    let wrapped = wrap(device, native)?;
    let stream = stream::enter(wrapped.0)?;
    alloc::record_use_of(address, &stream)
}
