//! Giving a block back: found by its address alone, checked against what the caller says of it, and ordered
//! after the streams that used it.

use super::{HOLDS_STREAM, Kind, LEDGER, PER_THREAD, USED_ELSEWHERE, builtin, parked, statistics, uses};
use crate::device::{self, Device};
use crate::driver::{Driver, RawStream};
use crate::error::{Error, Result, Status, error};
use crate::handle::Entered;
use crate::ledger::{Record, RemoveError};
use crate::runtime;
use crate::stream::{self, Stream};

/// What the caller says of the block: checked where it is given.
#[derive(Default)]
pub struct FreeOptions {
    pub size: Option<u64>,
    pub alignment: Option<u64>,
    /// A stream that used the block, added to those that are known.
    pub stream: Option<Entered<Stream>>,
}

/// Frees the block that begins at `ptr`. NULL is success. When it fails nothing is freed.
pub fn free(ptr: u64, options: &FreeOptions) -> Result<()> {
    if ptr == 0 {
        return Ok(());
    }
    if runtime::is_exiting() {
        return Ok(());
    }
    runtime::require_once_live()?;
    let forked = runtime::is_forked();
    let record =
        LEDGER.remove(ptr, |record| check(record, options)).map_err(|refused| why_not(ptr, refused))?;
    if Kind::of_record(&record) == Kind::Host {
        builtin::free_host(record.base());
    } else if !forked {
        // In a fork it is the parent's memory: this process only forgets that it ever saw it.
        release(record, options).map_err(keep)?;
    }
    statistics::count_free(&record);
    Ok(())
}

/// Why a block was not given back, and its record with the holds that it still has.
pub(super) type Refusal = (Error, Record);

/// The driver did not take the block: it is still there, so it stays known.
#[cold]
fn keep((error, record): Refusal) -> Error {
    // Nobody can have got the address meanwhile, since nobody gave it back.
    if super::enter(record).is_err() {
        drop_holds(&record);
    }
    error
}

#[inline]
fn check(record: &Record, options: &FreeOptions) -> Result<()> {
    if let Some(size) = options.size
        && size != record.size()
    {
        return Err(wrong(record, "size", size, record.size()));
    }
    if let Some(alignment) = options.alignment
        && alignment > record.alignment()
    {
        return Err(wrong(record, "alignment", alignment, record.alignment()));
    }
    Ok(())
}

#[cold]
fn wrong(record: &Record, what: &str, said: u64, is: u64) -> Error {
    let status = if what == "size" { Status::SizeMismatch } else { Status::BadAlignment };
    Error::new(
        status,
        format!(
            "the block at {:#x} has {what} {is}, and the free says {said}; nothing was freed: pass the {what} of the allocation, or 0 for unchecked",
            record.base()
        ),
    )
}

#[cold]
fn why_not(ptr: u64, refused: RemoveError<Error>) -> Error {
    match refused {
        RemoveError::Refused(error) => error,
        RemoveError::Interior(record) => error!(
            InteriorPointer,
            "{ptr:#x} lies {} bytes inside the block of {} bytes at {:#x}; nothing was freed: free the block's first address",
            ptr - record.base(),
            record.size(),
            record.base()
        ),
        RemoveError::RecentlyFreed => {
            error!(DoubleFree, "{ptr:#x} was freed before; nothing was freed again")
        }
        RemoveError::Unknown => error!(
            UnknownPointer,
            "{ptr:#x} is no live block of this library; nothing was freed: free it with what allocated it"
        ),
    }
}

/// Gives the memory of a removed record back to where it came from.
fn release(record: Record, options: &FreeOptions) -> std::result::Result<(), Refusal> {
    let owner = match Kind::of_record(&record) {
        Kind::Pinned => device::at(record.context() as u16).ok_or_else(|| super::lost_record(&record)),
        _ => super::device_of(&record),
    };
    let owner = owner.map_err(|error| (error, record))?;
    let Ok(driver) = runtime::driver() else {
        // The driver is gone, and the memory with it.
        drop_holds(&record);
        return Ok(());
    };
    if owner.is_lost() {
        release_lost(driver, owner, record);
        return Ok(());
    }
    let alone = record.flags() & (USED_ELSEWHERE | PER_THREAD) == 0 && options.stream.is_none();
    if Kind::of_record(&record) == Kind::CudaMempool && alone {
        if let Some(stream) = stream::enter_held(record.stream()) {
            return release_on_own_stream(driver, owner, record, stream);
        }
    }
    release_after_all(driver, owner, record, options)
}

/// A failure on the way to the free: no failure at all when it came of the driver's or the context's end, with
/// which the memory went.
#[cold]
fn refused(
    driver: &'static Driver,
    owner: &'static Device,
    record: Record,
    error: Error,
) -> std::result::Result<(), Refusal> {
    if owner.is_lost() {
        release_lost(driver, owner, record);
    } else if driver.is_gone() {
        drop_holds(&record);
    } else {
        return Err((error, record));
    }
    Ok(())
}

/// The hot path: a pool block that only its own stream used.
#[inline]
fn release_on_own_stream(
    driver: &'static Driver,
    owner: &'static Device,
    record: Record,
    stream: Entered<Stream>,
) -> std::result::Result<(), Refusal> {
    let freed = (|| {
        let _context = stream.enter_context(driver)?;
        let _relaxed = driver.relax_capture().map_err(|f| owner.error(driver, f))?;
        Ok(driver.free_async(builtin::native_of(&record), stream.native()))
    })();
    match freed {
        Ok(Ok(())) => {
            drop(stream);
            drop_holds(&record);
            Ok(())
        }
        Ok(Err(f)) => {
            let gone = f.is_driver_gone() || owner.notice(driver, f);
            // A capture on the stream refuses memory that is not its graph's, without harm; the free comes later.
            let captured = !gone && (f.is_capture() || stream.is_capturing(driver).unwrap_or(true));
            drop(stream);
            if captured {
                return release_after_all(driver, owner, record, &FreeOptions::default());
            }
            let error = owner.error(driver, f);
            refused(driver, owner, record, error)
        }
        Err(error) => {
            drop(stream);
            refused(driver, owner, record, error)
        }
    }
}

/// The general path: after every stream that is known to have used the block.
fn release_after_all(
    driver: &'static Driver,
    owner: &'static Device,
    record: Record,
    options: &FreeOptions,
) -> std::result::Result<(), Refusal> {
    let entered = owner.enter(driver).and_then(|context| {
        let relaxed = driver.relax_capture().map_err(|f| owner.error(driver, f))?;
        Ok((relaxed, context))
    });
    // The capture mode goes back before the context does.
    let _guards = match entered {
        Ok(guards) => guards,
        Err(error) => return refused(driver, owner, record, error),
    };
    let mut streams = Vec::new();
    if record.flags() & HOLDS_STREAM != 0 {
        streams.push(record.stream());
    }
    if record.flags() & USED_ELSEWHERE != 0 {
        streams.extend(uses::take(record.base()));
    }
    if let Some(stream) = &options.stream
        && !streams.contains(&stream.index())
    {
        streams.push(stream.hold());
    }
    parked::poll(owner);
    let freed = if Kind::of_record(&record) != Kind::CudaMempool {
        parked::free_after(driver, owner, record, streams)
    } else if record.flags() & PER_THREAD != 0 {
        release_per_thread(driver, owner, record, streams)
    } else {
        parked::free_pool_after(driver, owner, record, streams)
    };
    // The streams were let go: everything put on them before the free is done.
    freed.map_err(|error| {
        let mut record = record;
        record.set_flags(record.flags() & !(HOLDS_STREAM | USED_ELSEWHERE));
        (error, record)
    })
}

/// A block of a thread's own default stream may be freed by another thread, which cannot name that stream. The
/// legacy stream waits for all of them, and for every other blocking stream of the context.
fn release_per_thread(
    driver: &'static Driver,
    owner: &'static Device,
    record: Record,
    streams: Vec<u32>,
) -> Result<()> {
    match driver.free_async(builtin::native_of(&record), RawStream::LEGACY) {
        Ok(()) => {
            for held in streams {
                // SAFETY: the holds are this call's.
                unsafe { stream::release_hold(held) };
            }
            builtin::forget_padding_of(&record);
            Ok(())
        }
        // A capture of a blocking stream forbids the legacy stream; the block waits for it.
        Err(_) => parked::free_after(driver, owner, record, streams),
    }
}

/// The context that the block was made in is gone, and its plain memory with it; the reset of a primary context
/// takes the pool's blocks as well. A pool outlives every other context, and another one of the GPU gives its
/// blocks back.
fn release_lost(driver: &'static Driver, lost: &'static Device, record: Record) {
    // What is parked there will never be looked at otherwise.
    parked::poll(lost);
    if Kind::of_record(&record) == Kind::CudaMempool
        && lost.is_foreign()
        && let Some(heir) = device::heir_of(lost)
        && let Ok(_context) = heir.enter(driver)
        && let Ok(_relaxed) = driver.relax_capture()
    {
        let _ = parked::give_back(driver, heir, &record);
    }
    drop_holds(&record);
}

fn drop_holds(record: &Record) {
    if record.flags() & USED_ELSEWHERE != 0 {
        for held in uses::take(record.base()) {
            // SAFETY: the list of uses had the hold and is gone.
            unsafe { stream::release_hold(held) };
        }
    }
    builtin::forget_padding_of(record);
    if record.flags() & HOLDS_STREAM != 0 {
        // SAFETY: the record had the hold and is gone.
        unsafe { stream::release_hold(record.stream()) };
    }
}
