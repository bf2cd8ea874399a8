//! Blocks of other code's allocators on their way back: after what uses them, to who made them, once.

use super::custom::{let_go, slot_of};
use super::free::{self, FreeOptions};
use super::uses::{self, Use, Uses};
use super::{
    HOLDS_STREAM, Kind, OF_GRAPH, PER_THREAD, USED_ELSEWHERE, forget_graph, forget_holds, owed, statistics,
};
use crate::allocator::{self, Request, flags};
use crate::device::Device;
use crate::driver::Driver;
use crate::error::{Error, Result, error, fail};
use crate::handle::Entered;
use crate::ledger::{Ledger, Record};
use crate::log::log;
use crate::runtime;
use crate::stream::{self, Stream};
use crate::thread;

/// What came of a free.
enum Released {
    /// The allocator has it back, or will have; what it said of it.
    Gone(Result<()>),
    /// Nothing happened.
    Refused(Error),
}

/// Frees a block whose record was just taken out of a ledger.
pub fn free(
    ledger: &Ledger,
    me: &'static thread::Record,
    mut record: Record,
    options: &FreeOptions<'_>,
) -> Result<()> {
    owed::deliver();
    match release(me, &mut record, options) {
        Released::Gone(told) => {
            statistics::count_free(ledger, me, &record);
            told
        }
        // Of an array: nobody else knows the block.
        Released::Refused(_) if options.home.is_some() => {
            if let Some(owner) = super::owner_of(&record) {
                let uses = free::take_uses(&mut record);
                owed::leave(owner, &record, uses);
            }
            statistics::count_free(ledger, me, &record);
            Ok(())
        }
        Released::Refused(error) => {
            free::keep(ledger, record);
            Err(error)
        }
    }
}

fn release(me: &'static thread::Record, record: &mut Record, options: &FreeOptions<'_>) -> Released {
    let Some(slot) = slot_of(record) else {
        return Released::Refused(error!(Internal, "a block at {:#x} of no allocator", record.base()));
    };
    // SAFETY: the record has a hold.
    if unsafe { allocator::held(slot) }.is_of_parent() {
        // The child only forgets: the parent has the block.
        return Released::Gone(Ok(()));
    }
    let Some(owner) = super::owner_of(record) else {
        return Released::Refused(error!(Internal, "the record of {:#x} names no device", record.base()));
    };
    if Kind::of_record(record).is_host() || !owner.is_cuda() {
        return match owner.is_lost() {
            true => Released::Gone(release_lost(me, record)),
            false => release_on_host(me, owner, record, options),
        };
    }
    let Ok(driver) = runtime::driver() else {
        // The driver is gone, and the memory with it.
        forget_holds(record);
        let_go(record);
        return Released::Gone(Ok(()));
    };
    if owner.is_lost() {
        return Released::Gone(release_lost(me, record));
    }
    match release_in_order(me, driver, owner, record, options) {
        Released::Refused(_) if owner.is_lost() => Released::Gone(release_lost(me, record)),
        Released::Refused(_) if driver.is_gone() => {
            // The memory went with it. The allocator stays, since it was not asked.
            forget_holds(record);
            Released::Gone(Ok(()))
        }
        released => released,
    }
}

/// At once where the allocator takes memory back in the order of the block's own stream, and no other used it.
fn release_in_order(
    me: &'static thread::Record,
    driver: &'static Driver,
    owner: &'static Device,
    record: &mut Record,
    options: &FreeOptions<'_>,
) -> Released {
    // SAFETY: the record has a hold.
    let is_ordered = slot_of(record).is_some_and(|slot| unsafe { allocator::held(slot) }.traits().ordered);
    if is_ordered
        && options.stream.is_none_or(|stream| free::is_own(record, stream))
        && record.flags() & (HOLDS_STREAM | USED_ELSEWHERE) == HOLDS_STREAM
        && (record.flags() & PER_THREAD == 0 || stream::is_this_thread(uses::own_thread(record)))
        && let Some(stream) = stream::enter_held(me, record.stream())
        && !stream.is_untracked()
    {
        let asked = stream
            .enter_context(driver)
            .and_then(|_context| stream.is_capturing(driver).map_err(|f| owner.error(driver, f)));
        match asked {
            Err(error) => return Released::Refused(error),
            // Memory of a graph is freed by who made it, in the capture or after it.
            Ok(capturing) if !capturing || record.flags() & OF_GRAPH != 0 => {
                let flags = if capturing { flags::IN_CAPTURE } else { 0 };
                return match hand_back(me, record, Some(&stream), flags) {
                    Ok(told) => {
                        record.set_flags(record.flags() & !HOLDS_STREAM);
                        // SAFETY: the record had the hold and is gone.
                        unsafe { stream.leave_releasing() };
                        Released::Gone(told)
                    }
                    Err(error) => Released::Refused(error),
                };
            }
            // What comes before the capture is not its, and must not be touched in it.
            Ok(_) => {}
        }
    }
    release_after_all(me, driver, owner, record, options)
}

/// The general way: after every stream that is known to have used the block.
fn release_after_all(
    me: &'static thread::Record,
    driver: &'static Driver,
    owner: &'static Device,
    record: &mut Record,
    options: &FreeOptions<'_>,
) -> Released {
    let _entered = match owner.enter_relaxed(driver) {
        Ok(entered) => entered,
        Err(error) => return Released::Refused(error),
    };
    // Not of a block whose free was refused before: its uses are over, and its stream may be.
    let has_stream = record.flags() & HOLDS_STREAM != 0;
    let mut after = free::take_uses(record);
    after.streams.extend(options.stream.map(Use::on));
    if has_stream && tell_of_streams(me, driver, record, &after) {
        let own = after.streams.first().and_then(|of| stream::enter_held(me, of.held));
        let told = hand_back(me, record, own.as_ref(), 0);
        drop(own);
        if let Ok(told) = told {
            after.let_go();
            return Released::Gone(told);
        }
    }
    match owed::settle(Some(driver), owner, record, after) {
        true => released(hand_back(me, record, None, flags::IDLE)),
        false => Released::Gone(Ok(())),
    }
}

/// A block that its allocator was not asked to take back is a caller's as before.
fn released(handed_back: Result<Result<()>>) -> Released {
    handed_back.map_or_else(Released::Refused, Released::Gone)
}

/// Has the allocator order the deallocation after all streams itself. False where it cannot, for one of them.
fn tell_of_streams(
    me: &'static thread::Record,
    driver: &'static Driver,
    record: &Record,
    uses: &Uses,
) -> bool {
    let Some(slot) = slot_of(record) else { return false };
    // SAFETY: the record has a hold.
    let of = unsafe { allocator::held(slot) };
    if !of.traits().ordered || !of.records_streams() || !uses.graphs.is_empty() {
        return false;
    }
    let mut streams = Vec::new();
    for used in &uses.streams {
        match stream::enter_held(me, used.held) {
            Some(stream)
                if !stream.is_untracked()
                    && !used.is_another_threads()
                    && stream.is_surely_not_captured(driver) =>
            {
                streams.push(stream);
            }
            _ => return false,
        }
    }
    // The first is its own.
    streams.iter().skip(1).all(|stream| {
        of.record_stream(record.base(), &request_of(record, Some(stream), 0)).unwrap_or_else(|error| {
            log!(Warning, "the use of a block on another stream is waited for: {error}");
            false
        })
    })
}

fn release_on_host(
    me: &'static thread::Record,
    owner: &'static Device,
    record: &mut Record,
    options: &FreeOptions<'_>,
) -> Released {
    let stream = options.stream.filter(|stream| stream.device().is_cuda());
    if record.flags() & USED_ELSEWHERE != 0 || stream.is_some() {
        let mut after = free::take_uses(record);
        after.streams.extend(stream.map(Use::on));
        if !owed::settle(runtime::driver().ok(), owner, record, after) {
            return Released::Gone(Ok(()));
        }
    }
    released(hand_back(me, record, None, flags::IDLE))
}

/// The context that the block was made in is gone: its maker is told, and must not touch it.
fn release_lost(me: &'static thread::Record, record: &mut Record) -> Result<()> {
    free::take_uses(record).let_go();
    hand_back(me, record, None, flags::IDLE | flags::DEVICE_LOST).unwrap_or_else(|_| {
        if let Some(owner) = super::owner_of(record) {
            owed::leave(owner, record, Uses::default());
        }
        Ok(())
    })
}

/// What the allocator of a block was asked for it, as far as the record says.
pub fn request_of<'a>(record: &Record, stream: Option<&'a Entered<Stream>>, flags: u32) -> Request<'a> {
    let device = crate::device::at(record.device()).expect("a record names a device");
    Request { device, size: record.size(), alignment: record.alignment(), stream, tag: record.tag(), flags }
}

/// Gives a block back to its allocator, and lets go of what the record held of it and of its graph; what the allocator said.
/// An error when it was not asked: then nothing has changed.
fn hand_back(
    me: &'static thread::Record,
    record: &Record,
    stream: Option<&Entered<Stream>>,
    flags: u32,
) -> Result<Result<()>> {
    let Some(slot) = slot_of(record) else { return Ok(Ok(())) };
    let request = request_of(record, stream, flags);
    let told = match allocator::enter_held(me, slot) {
        Some(allocator) => {
            let told = taken(allocator.deallocate(record.base(), &request))?;
            // SAFETY: the record had the hold and is gone.
            unsafe { allocator.leave_releasing() };
            told
        }
        None => hand_back_closed(me, slot, record.base(), &request)?,
    };
    forget_graph(record);
    Ok(told)
}

/// As the middle of `hand_back`, to an allocator whose handle is stale.
#[cold]
fn hand_back_closed(
    me: &'static thread::Record,
    slot: u32,
    address: u64,
    request: &Request<'_>,
) -> Result<Result<()>> {
    // SAFETY: the record has the hold until the end.
    let told = match unsafe { allocator::enter_closed(me, slot) } {
        Some(allocator) => taken(allocator.deallocate(address, request))?,
        None => fail!(
            Busy,
            "{} bytes at {address:#x} do not go back to their allocator now: too many calls are inside of each other",
            request.size
        ),
    };
    // SAFETY: the record had the hold and is gone. The allocator may go with it.
    unsafe { allocator::release_hold(slot) };
    Ok(told)
}

/// Tells an allocator's own failure, after which the block is gone, from what kept it from being asked.
fn taken(told: Result<()>) -> Result<Result<()>> {
    match told {
        Err(error) if allocator::may_be_repeated(&error) => Err(error),
        told => Ok(told),
    }
}

/// As `hand_back`, of a block whose uses are over since. An error when the allocator was not asked.
pub fn hand_back_late(record: &Record) -> Result<()> {
    let is_lost = super::owner_of(record).is_some_and(Device::is_lost);
    let lost = if is_lost { flags::DEVICE_LOST } else { 0 };
    if let Err(error) = hand_back(thread::mine(), record, None, flags::IDLE | lost)? {
        log!(Error, "a block that was freed before: {error}");
    }
    Ok(())
}
