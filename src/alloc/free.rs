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
use crate::thread;

/// What the caller says of the block: checked where it is given.
#[derive(Default)]
pub struct FreeOptions<'a> {
    pub size: Option<u64>,
    pub alignment: Option<u64>,
    /// A stream that used the block, added to those that are known.
    pub stream: Option<&'a Entered<Stream>>,
}

/// Frees the block that begins at `ptr`. NULL is success. When it fails nothing is freed.
pub fn free(ptr: u64, options: &FreeOptions<'_>) -> Result<()> {
    if ptr == 0 {
        return Ok(());
    }
    let forked = if runtime::frees_as_usual() {
        false
    } else {
        if runtime::is_exiting() {
            return Ok(());
        }
        runtime::require_once_live()?;
        runtime::is_forked()
    };
    let me = thread::mine();
    let record = match LEDGER.remove_as(me.number(), ptr, |record| check(record, options)) {
        Ok(record) => record,
        Err(refused) => return Err(why_not(ptr, refused)),
    };
    statistics::count_free(me, &record);
    if Kind::of_record(&record) == Kind::Host {
        builtin::free_host(record.base());
        return Ok(());
    }
    if forked {
        // The parent's memory: this process only forgets that it ever saw it.
        return Ok(());
    }
    release(me, record, options)
}

#[inline]
fn check(record: &Record, options: &FreeOptions<'_>) -> Result<()> {
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
#[inline]
fn release(me: &'static thread::Record, record: Record, options: &FreeOptions<'_>) -> Result<()> {
    let owner = match Kind::of_record(&record) {
        Kind::Pinned => device::at(record.context() as u16).ok_or_else(|| super::lost_record(&record))?,
        _ => super::device_of(&record)?,
    };
    let Ok(driver) = runtime::driver() else {
        // The driver is gone, and the memory with it.
        drop_holds(&record);
        return Ok(());
    };
    if owner.is_lost() {
        return release_lost(driver, owner, record);
    }
    let alone = record.flags() & (USED_ELSEWHERE | PER_THREAD) == 0 && options.stream.is_none();
    if Kind::of_record(&record) == Kind::CudaMempool && alone {
        if let Some(stream) = stream::enter_held(me, record.stream()) {
            return release_on_own_stream(driver, owner, record, stream);
        }
    }
    release_after_all(driver, owner, record, options)
}

/// The hot path: a pool block that only its own stream used.
#[inline]
fn release_on_own_stream(
    driver: &'static Driver,
    owner: &'static Device,
    record: Record,
    stream: Entered<Stream>,
) -> Result<()> {
    let _context = stream.enter_if_special(driver)?;
    let freed = {
        let _relaxed = driver.relax_capture().map_err(|f| owner.error(driver, f))?;
        driver.free_async(builtin::native_of(&record), stream.native())
    };
    match freed {
        Ok(()) => {
            drop(stream);
            drop_holds(&record);
            Ok(())
        }
        Err(f) if f.is_driver_gone() || owner.notice(driver, f) => {
            drop(stream);
            drop_holds(&record);
            Ok(())
        }
        // A capture on the stream refuses memory that is not its graph's, without harm; the free comes later.
        Err(_) if stream.is_capturing(driver).unwrap_or(true) => {
            drop(stream);
            release_after_all(driver, owner, record, &FreeOptions::default())
        }
        Err(f) => {
            drop(stream);
            drop_holds(&record);
            Err(owner.error(driver, f))
        }
    }
}

/// The general path: after every stream that is known to have used the block.
fn release_after_all(
    driver: &'static Driver,
    owner: &'static Device,
    record: Record,
    options: &FreeOptions<'_>,
) -> Result<()> {
    let _context = owner.enter(driver)?;
    let _relaxed = driver.relax_capture().map_err(|f| owner.error(driver, f))?;
    let mut streams = Vec::new();
    if record.flags() & HOLDS_STREAM != 0 {
        streams.push(record.stream());
    }
    if record.flags() & USED_ELSEWHERE != 0 {
        streams.extend(uses::take(record.base()));
    }
    if let Some(stream) = options.stream
        && !streams.contains(&stream.index())
    {
        streams.push(stream.hold());
    }
    parked::poll(owner);
    if Kind::of_record(&record) != Kind::CudaMempool {
        return parked::free_after(driver, owner, record, streams);
    }
    if record.flags() & PER_THREAD != 0 {
        return release_per_thread(driver, owner, record, streams);
    }
    parked::free_pool_after(driver, owner, record, streams)
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

/// The context that the block was made in is gone. Its plain memory went with it; a pool is the GPU's and keeps
/// its blocks, which another context of that GPU can give back.
fn release_lost(driver: &'static Driver, lost: &'static Device, record: Record) -> Result<()> {
    if Kind::of_record(&record) == Kind::CudaMempool
        && let Some(heir) = device::primary_of(lost.ordinal())
        && heir.has_context()
        && let Ok(_context) = heir.enter(driver)
        && let Ok(_relaxed) = driver.relax_capture()
    {
        let _ = parked::give_back(driver, heir, &record);
    }
    drop_holds(&record);
    Ok(())
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
