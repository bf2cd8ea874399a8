//! Giving a block back: found by its address alone, checked against what the caller says of it, and ordered
//! after the streams that used it.

use super::uses::{self, Use, Uses};
use super::{
    HOLDS_STREAM, Kind, LEDGER, OF_GRAPH, PER_THREAD, USED_ELSEWHERE, builtin, caching, custom, direct,
    forget_graph, forget_holds, parked, reached, returned, statistics,
};
use crate::capture::{self, Freed};
use crate::device::Device;
use crate::driver::Driver;
use crate::error::{Error, Result, Status, error, fail};
use crate::handle::Entered;
use crate::ledger::{Ledger, Record, RemoveError};
use crate::runtime;
use crate::stream::{self, Stream};
use crate::thread;

/// What the caller says of the block: checked where it is given.
#[derive(Default, Clone, Copy)]
pub struct FreeOptions<'a> {
    pub size: Option<u64>,
    pub alignment: Option<u64>,
    /// For a block that only the caller knows: in whose context it was made, since once that is gone the address may be
    /// that of another block. When the driver refuses such a block, later calls offer it again, and the free succeeds.
    pub home: Option<&'static Device>,
    /// What kind it must be of.
    pub kind: Option<Kind>,
    /// It died with its context: an address that is another block's by now, or nobody's, is left alone, and the free succeeds.
    pub is_lost: bool,
    /// A stream that used the block, added to those that are known.
    pub stream: Option<&'a Entered<Stream>>,
}

/// Frees the block that begins at `ptr`. NULL is success. When it fails nothing is freed.
#[inline]
pub fn free(ptr: u64, options: &FreeOptions<'_>) -> Result<()> {
    free_in(&LEDGER, ptr, options)
}

/// As `free`, of a block that is in that ledger.
#[inline]
pub fn free_in(ledger: &Ledger, ptr: u64, options: &FreeOptions<'_>) -> Result<()> {
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
    if options.is_lost && !is_lost_at(ledger, ptr) {
        return Ok(());
    }
    if caching::ever_was()
        && std::ptr::eq(ledger, &LEDGER)
        && let Some(freed) = caching::free_found(ptr, forked, options, check)
    {
        return freed;
    }
    let me = thread::mine();
    let mut record = match ledger.remove_as(me.number(), ptr, |record| check(record, options)) {
        Ok(record) => record,
        Err(refused) => return Err(why_not(ledger, ptr, refused)),
    };
    if record.allocator() != 0 {
        return returned::free(ledger, me, record, options);
    }
    if Kind::of_record(&record) == Kind::Host {
        free_host(&mut record);
    } else if !forked {
        // A forked child only forgets that it ever saw its parent's memory.
        let refused = release(me, &mut record, options).err();
        match (refused, super::owner_of(&record)) {
            (None, _) => {}
            // Of an array: nobody else knows the block.
            (Some(_), Some(owner)) if options.home.is_some() => offer_again(owner, &mut record),
            (Some(error), _) => {
                keep(ledger, record);
                return Err(error);
            }
        }
    }
    statistics::count_free(ledger, me, &record);
    Ok(())
}

#[cold]
fn is_lost_at(ledger: &Ledger, ptr: u64) -> bool {
    ledger
        .find(ptr)
        .is_some_and(|record| record.base() == ptr && super::owner_of(&record).is_some_and(Device::is_lost))
}

/// Host memory goes back at once, unless runs of a graph use it.
#[inline]
fn free_host(record: &mut Record) {
    if record.flags() & USED_ELSEWHERE != 0
        && let Some(cpu) = super::owner_of(record)
    {
        let uses = take_uses(record);
        parked::free_host_after(cpu, record, uses);
    } else {
        builtin::free_host(record.base());
    }
}

/// Sees to the free of a block that was refused now and that only the caller knew.
#[cold]
fn offer_again(owner: &'static Device, record: &mut Record) {
    let uses = take_uses(record);
    if record.flags() & OF_GRAPH == 0 {
        parked::offer_again(owner, record, uses);
        return;
    }
    let native = builtin::take_native(record);
    let address = native.address();
    reached::forget(record);
    // SAFETY: the record has a hold, given back below.
    unsafe { capture::held(record.graph()) }.leave(
        record.base(),
        address,
        parked::kept_by_graph(owner, record, native, uses),
    );
    // SAFETY: as above; the record is gone.
    unsafe { capture::release_hold(record.graph()) };
}

/// Takes a block in again that could not be given back, so that its free can be tried once more.
#[cold]
pub fn keep(ledger: &Ledger, record: Record) {
    if ledger.insert(record).is_err() {
        // The driver has given the address to somebody else: it was freed after all.
        statistics::count_free(ledger, thread::mine(), &record);
        forget_holds(&record);
        custom::let_go(&record);
    }
}

#[inline]
fn check(record: &Record, options: &FreeOptions<'_>) -> Result<()> {
    if let Some(home) = options.home
        && super::owner_of(record).is_none_or(|owner| !std::ptr::eq(owner, home))
    {
        fail!(UnknownPointer, "the block at {:#x} is another one by now; nothing was freed", record.base());
    }
    if let Some(kind) = options.kind
        && kind != Kind::of_record(record)
    {
        fail!(
            UnknownPointer,
            "the block at {:#x} is {} memory, not {}; nothing was freed: give it to the allocator that made it",
            record.base(),
            Kind::of_record(record).name(),
            kind.name()
        );
    }
    if let Some(size) = options.size
        && size != record.size()
    {
        return Err(wrong(record, "size", size, record.size()));
    }
    if let Some(alignment) = options.alignment {
        if !alignment.is_power_of_two() {
            fail!(
                BadAlignment,
                "alignment {alignment} is not a power of two (0 leaves it unchecked); nothing was freed"
            );
        }
        if alignment > record.alignment() {
            return Err(wrong(record, "alignment", alignment, record.alignment()));
        }
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

/// The refusal of a free in the middle of a block.
#[cold]
pub fn interior(ptr: u64, record: &Record) -> Error {
    error!(
        InteriorPointer,
        "{ptr:#x} lies {} bytes inside the block of {} bytes at {:#x}; nothing was freed: free the block's first address",
        ptr - record.base(),
        record.size(),
        record.base()
    )
}

#[cold]
fn twice(ptr: u64) -> Error {
    error!(DoubleFree, "{ptr:#x} was freed before; nothing was freed again")
}

#[cold]
fn why_not(ledger: &Ledger, ptr: u64, refused: RemoveError<Error>) -> Error {
    match refused {
        RemoveError::Refused(error) => error,
        RemoveError::Interior(record) => interior(ptr, &record),
        RemoveError::Unknown if std::ptr::eq(ledger, &LEDGER) && caching::was_freed(ptr) => twice(ptr),
        RemoveError::RecentlyFreed => twice(ptr),
        RemoveError::Unknown if std::ptr::eq(ledger, &LEDGER) && direct::RESERVES.find(ptr).is_some() => {
            error!(
                UnknownPointer,
                "{ptr:#x} is memory straight from a built-in allocator; nothing was freed: give it back with warp_allocator_deallocate"
            )
        }
        RemoveError::Unknown if !std::ptr::eq(ledger, &LEDGER) => error!(
            UnknownPointer,
            "{ptr:#x} is nothing that the allocator has out; nothing was freed: give it to the one that made it"
        ),
        RemoveError::Unknown => error!(
            UnknownPointer,
            "{ptr:#x} is no live block of this library; nothing was freed: free it with what allocated it"
        ),
    }
}

/// Gives the memory of a removed record back to where it came from. When it fails nothing was freed, and the
/// record says which streams it still holds.
#[inline]
fn release(me: &'static thread::Record, record: &mut Record, options: &FreeOptions<'_>) -> Result<()> {
    let Some(owner) = super::owner_of(record) else {
        fail!(Internal, "the record of {:#x} names no device", record.base())
    };
    let Ok(driver) = runtime::driver() else {
        // The driver is gone, and the memory with it.
        forget_holds(record);
        return Ok(());
    };
    if owner.is_lost() {
        return release_lost(driver, owner, record);
    }
    let freed = if Kind::of_record(record) == Kind::CudaMempool
        && options.stream.is_none_or(|stream| is_own(record, stream))
        && record.flags() & (HOLDS_STREAM | USED_ELSEWHERE | OF_GRAPH) == HOLDS_STREAM
        && (record.flags() & PER_THREAD == 0 || stream::is_this_thread(uses::own_thread(record)))
        && let Some(stream) = stream::enter_held(me, record.stream())
        && !stream.is_untracked()
    {
        release_on_own_stream(driver, owner, record, stream)
    } else if record.flags() & OF_GRAPH != 0 {
        release_to_graph(driver, owner, record, options)
    } else {
        release_after_all(driver, owner, record, options)
    };
    match freed {
        // The context died before the driver could be asked.
        Err(_) if owner.is_lost() => release_lost(driver, owner, record),
        // So did the whole driver, as late in the process's exit; the memory went with it.
        Err(_) if driver.is_gone() => {
            forget_holds(record);
            Ok(())
        }
        freed => freed,
    }
}

/// Whether the stream is the block's own, and the same one on this thread. Memory of the CPU has none.
pub fn is_own(record: &Record, stream: &Entered<Stream>) -> bool {
    record.flags() & HOLDS_STREAM != 0 && stream.index() == record.stream() && !stream.is_per_thread()
}

/// The hot path: a pool block that only its own stream used.
#[inline]
fn release_on_own_stream(
    driver: &'static Driver,
    owner: &'static Device,
    record: &mut Record,
    stream: Entered<Stream>,
) -> Result<()> {
    parked::poll_seldom();
    let context = stream.enter_context(driver)?;
    // Before it is given back: from then on the driver may give the address to somebody else.
    let native = builtin::take_native(record);
    let freed = match driver.relax_capture() {
        Ok(_relaxed) => driver.free_async(native.address(), stream.native()),
        Err(failure) => Err(failure),
    };
    match freed {
        Ok(()) => {
            // SAFETY: the record had the hold and is gone.
            unsafe { stream.leave_releasing() };
            Ok(())
        }
        Err(f) => {
            native.keep(record);
            // A capture on the stream refuses memory that is not its graph's, without harm; the free comes later. The
            // capture may have ended since.
            if f.is_driver_gone() {
                drop(stream);
                forget_holds(record);
                Ok(())
            } else if !owner.notice(driver, f)
                && (f.is_invalid_value() || stream.is_capturing(driver).unwrap_or(false))
            {
                drop(stream);
                drop(context);
                release_after_all(driver, owner, record, &FreeOptions::default())
            } else {
                Err(owner.error(driver, f))
            }
        }
    }
}

/// The general path: after every stream that is known to have used the block.
fn release_after_all(
    driver: &'static Driver,
    owner: &'static Device,
    record: &mut Record,
    options: &FreeOptions<'_>,
) -> Result<()> {
    let _entered = owner.enter_relaxed(driver)?;
    // The holds are the list's from here on, and gone when the free fails: then the uses were over.
    let mut after = take_uses(record);
    if let Some(stream) = options.stream {
        after.streams.push(Use::on(stream));
    }
    parked::poll();
    let free = if Kind::of_record(record) == Kind::CudaMempool {
        parked::free_pool_after
    } else {
        parked::free_after
    };
    free(driver, owner, record, after)
}

/// A block that a capture allocated: its graph frees it, or says what is to become of it.
fn release_to_graph(
    driver: &'static Driver,
    owner: &'static Device,
    record: &mut Record,
    options: &FreeOptions<'_>,
) -> Result<()> {
    let _entered = owner.enter_relaxed(driver)?;
    parked::poll();
    // What is recorded on a stream that is captured comes before the free by its place in the graph.
    let outside = match options.stream {
        Some(stream) if !stream.is_capturing(driver).map_err(|f| owner.error(driver, f))? => Some(stream),
        _ => None,
    };
    let uses_of = |record: &mut Record| {
        let mut uses = take_uses(record);
        uses.streams.extend(outside.map(Use::on));
        uses
    };
    let (held, base) = (record.graph(), record.base());
    // SAFETY: the record has a hold, given back below when the free has come about.
    let graph = unsafe { capture::held(held) };
    let native = builtin::take_native(record);
    let freed = graph.free(driver, base, native.address(), || {
        let uses = uses_of(record);
        parked::kept_by_graph(owner, record, native, uses)
    });
    let freed = match freed {
        Ok(freed) => freed,
        Err(f) => {
            native.keep(record);
            return Err(owner.error(driver, f).context("a free in a graph"));
        }
    };
    if freed == Freed::Now {
        native.keep(record);
        let uses = uses_of(record);
        parked::free_after(driver, owner, record, uses)?;
    } else {
        take_uses(record).let_go();
    }
    reached::forget(record);
    record.set_flags(record.flags() & !OF_GRAPH);
    // SAFETY: as above.
    unsafe { capture::release_hold(held) };
    Ok(())
}

/// The uses of a removed record, its own stream's included, with their holds. It has none afterwards.
pub fn take_uses(record: &mut Record) -> Uses {
    let mut taken =
        if record.flags() & USED_ELSEWHERE != 0 { uses::take(record.base()) } else { Uses::default() };
    if record.flags() & HOLDS_STREAM != 0 {
        taken.streams.insert(0, Use::of_own_stream(record));
    }
    record.set_flags(record.flags() & !(HOLDS_STREAM | USED_ELSEWHERE | PER_THREAD));
    taken
}

/// The context that the block was made in is gone, and the work of its streams with it.
fn release_lost(driver: &'static Driver, lost: &'static Device, record: &mut Record) -> Result<()> {
    let uses = take_uses(record);
    parked::free_lost(driver, lost, record, uses);
    forget_graph(record);
    record.set_flags(record.flags() & !OF_GRAPH);
    Ok(())
}
