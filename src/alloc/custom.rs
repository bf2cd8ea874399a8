//! Blocks that allocators of other code make, and those that stand on others: how they are asked, what is known of what they
//! give, and when they get it back.
//!
//! What an allocator has from another one is not a caller's block and stands in a book of its own (`direct`). A block that lies
//! in it is known by it: of the same kind and pool, and of the same graph.

use super::builtin::{self, Order};
use super::free::{self, FreeOptions};
use super::uses::{self, Use, Uses};
use super::{
    HOLDS_STREAM, HOST_ALIGNMENT, Kind, LEDGER, MADE_ELSEWHERE, NATURAL_ALIGNMENT, NOT_YET, OF_GRAPH,
    PER_THREAD, Rule, USED_ELSEWHERE, describe, direct, forget_graph, forget_holds, owed, statistics,
};
use crate::allocator::{self, Allocator, Request, flags};
use crate::capture;
use crate::device::Device;
use crate::driver::Driver;
use crate::error::{Error, Result, Status, error, fail};
use crate::handle::{Entered, Handle};
use crate::ledger::{InsertError, Ledger, Record};
use crate::log::log;
use crate::runtime;
use crate::stream::{self, Stream};
use crate::thread;
use std::time::Duration;

/// How long blocks of an allocator whose streams still work are waited for when it is out of memory.
const PATIENCE: Duration = Duration::from_secs(2);

/// The slot of the allocator that made a block. Records count from 1.
fn slot_of(record: &Record) -> Option<u32> {
    record.allocator().checked_sub(1)
}

/// The handle of the allocator that made a block, 0 for a built-in one.
pub fn handle_of(record: &Record) -> Handle {
    slot_of(record).map_or(0, allocator::handle_of)
}

/// Blocks and bytes that live of an allocator, in callers' hands and given out directly; of a built-in one the latter.
pub fn live_of(allocator: &Entered<Allocator>) -> (u64, u64) {
    live_of_slot(allocator.index(), allocator)
}

/// As `live_of`, of an allocator that is held in that slot.
pub fn live_of_slot(slot: u32, allocator: &Allocator) -> (u64, u64) {
    let mut live = (0, 0);
    let mut count = |record: Record| {
        live.0 += 1;
        live.1 += record.size();
    };
    if let Some(kind) = allocator.builtin() {
        direct::RESERVES.for_each(|record| {
            if Kind::of_record(&record) == kind {
                count(record);
            }
        });
        return live;
    }
    LEDGER.for_each(|record| {
        if slot_of(&record) == Some(slot) {
            count(record);
        }
    });
    if let Some(book) = allocator.book_if_any() {
        book.for_each(count);
    }
    live
}

/// Lets go of the allocator of a record that is gone without a deallocation.
pub fn let_go(record: &Record) {
    if let Some(slot) = slot_of(record) {
        // SAFETY: the record had the hold and is gone.
        unsafe { allocator::release_hold(slot) };
    }
}

/// Serves a request by an allocator that is not a built-in one.
pub fn allocate(order: Order<'_>, from: &Entered<Allocator>) -> Result<u64> {
    let device = order.device;
    owed::deliver();
    if !device.is_cuda() {
        return on_host(&order, from);
    }
    let driver = device.require_cuda("memory of an allocator")?;
    let mut current = None;
    let stream = builtin::stream_for(order.stream, device, &mut current)?;
    let context = stream.enter_context(driver)?;
    let capturing = stream.is_capturing(driver).map_err(|f| device.error(driver, f))?;
    drop(context);
    if capturing && !from.traits().captures {
        return Err(not_in_a_capture(from, stream));
    }
    let request = Request {
        device,
        size: order.size,
        alignment: order.alignment.max(NATURAL_ALIGNMENT),
        stream: Some(stream),
        tag: order.tag,
        flags: if capturing { flags::IN_CAPTURE } else { 0 },
    };
    let address = serve(from, &request)?;
    let made = what_was_made(from, &request, address).inspect_err(|_| give_back(from, address, &request))?;
    let (per_thread, thread) = builtin::own_thread(stream);
    let record = made
        .record(address, &request)
        .with_stream(stream.hold())
        .with_context(thread)
        .with_allocator(from.hold() + 1);
    let record = record.with_flags(record.flags() | HOLDS_STREAM | per_thread);
    enter(order.ledger, from, &record)?;
    if capturing && record.flags() & OF_GRAPH == 0 {
        keep_in_graph(driver, stream, &record);
    }
    Ok(address)
}

/// Memory of the CPU belongs to no stream.
fn on_host(order: &Order<'_>, from: &Entered<Allocator>) -> Result<u64> {
    let request = Request {
        device: order.device,
        size: order.size,
        alignment: order.alignment.max(HOST_ALIGNMENT),
        stream: None,
        tag: order.tag,
        flags: 0,
    };
    let address = serve(from, &request)?;
    let made = what_was_made(from, &request, address).inspect_err(|_| give_back(from, address, &request))?;
    let record = made.record(address, &request).with_allocator(from.hold() + 1);
    enter(order.ledger, from, &record).map(|()| address)
}

#[cold]
fn not_in_a_capture(from: &Allocator, stream: &Stream) -> Error {
    error!(
        IllegalInCapture,
        "{} cannot serve the stream (id {}) of \"{}\", which is being captured and goes on: only stream-ordered allocators can; allocate before the capture begins, or name WARP_MEMORY_CUDA_MEMPOOL",
        from.title(),
        stream.id(),
        stream.device().alias()
    )
}

/// Asks the allocator; when it is out of memory once more, after it got back what it is owed and gave back what it keeps.
#[inline]
fn serve(from: &Entered<Allocator>, request: &Request<'_>) -> Result<u64> {
    match from.allocate(request) {
        Err(error) if error.status == Status::OutOfMemory && request.flags & flags::IN_CAPTURE == 0 => {
            serve_again(from, request, error)
        }
        served => served,
    }
}

#[cold]
fn serve_again(from: &Entered<Allocator>, request: &Request<'_>, first: Error) -> Result<u64> {
    owed::drain(PATIENCE, |record| slot_of(record) == Some(from.index()));
    if let Err(error) = from.trim(request) {
        log!(Warning, "{} could not be trimmed: {error}", from.title());
    }
    let again = Request { flags: request.flags | flags::RETRY, ..*request };
    from.allocate(&again).map_err(|error| {
        let (blocks, bytes) = live_of(from);
        let mut last = if error.status == Status::OutOfMemory { error } else { first };
        last.message = format!(
            "{}; {} has {bytes} bytes out in {blocks} blocks, and was trimmed and asked twice",
            last.message,
            from.title()
        );
        last
    })
}

fn give_back(from: &Allocator, address: u64, request: &Request<'_>) {
    if let Err(error) = from.deallocate(address, request) {
        log!(Error, "what cannot be used was not taken back: {error}");
    }
}

/// What is known of memory that an allocator gave.
struct Made {
    kind: Kind,
    rule: Rule,
    pool: u32,
    /// The graph that it is memory of, with a hold on it.
    graph: Option<u32>,
    flags: u16,
}

impl Made {
    #[inline]
    fn record(&self, address: u64, request: &Request<'_>) -> Record {
        let record = Record::new(address, request.size)
            .with_alignment(request.alignment)
            .with_kind(self.kind as u8)
            .with_rule(self.rule as u8)
            .with_device(request.device.index())
            .with_tag(request.tag)
            .with_pool(self.pool)
            .with_flags(self.flags);
        // Page-locked memory names its GPU as the context; that of other code belongs to none.
        let record = if request.device.is_cuda() {
            record
        } else {
            record.with_context(u32::from(request.device.index()))
        };
        match self.graph {
            Some(graph) => record.with_graph(graph),
            None => record,
        }
    }
}

/// Memory of a kind that came from elsewhere.
#[inline]
fn plain(kind: Kind) -> Made {
    let flags = if kind == Kind::CudaDevice || kind == Kind::CudaMempool { MADE_ELSEWHERE } else { 0 };
    Made { kind, rule: Rule::of_kind(kind), pool: 0, graph: None, flags }
}

/// Finds out what an allocator gave: what it had from here itself, what it says it makes, or what the driver says it is.
#[inline]
fn what_was_made(from: &Allocator, request: &Request<'_>, address: u64) -> Result<Made> {
    match from.traits().kind {
        Some(kind) if direct::RESERVES.is_untouched() => Ok(plain(kind)),
        _ => find_out(from, request, address),
    }
}

fn find_out(from: &Allocator, request: &Request<'_>, address: u64) -> Result<Made> {
    let device = request.device;
    if !direct::RESERVES.is_untouched()
        && let Some(reserve) = direct::RESERVES.find(address)
    {
        return of_reserve(from, request, address, &reserve);
    }
    if let Some(kind) = from.traits().kind {
        return Ok(plain(kind));
    }
    let found = describe::describe_by_driver(address)?;
    if !device.is_cuda() {
        // Ordinary host memory is what no driver knows.
        return match found.kind {
            Kind::Unknown | Kind::Host => Ok(plain(Kind::Host)),
            Kind::Pinned => Ok(plain(Kind::Pinned)),
            Kind::CudaManaged => Ok(plain(Kind::CudaManaged)),
            kind => {
                Err(wrong(from, address, format_args!("{} memory, where host memory was asked", kind.name())))
            }
        };
    }
    match found.kind {
        // The driver knows memory of a graph from its first run on.
        Kind::Unknown if request.flags & flags::IN_CAPTURE != 0 => Ok(Made {
            kind: Kind::CudaMempool,
            rule: Rule::GraphFixed,
            pool: 0,
            graph: None,
            flags: MADE_ELSEWHERE,
        }),
        Kind::Unknown => Err(wrong(
            from,
            address,
            format_args!(
                "nothing that the driver knows, where memory of \"{}\" was asked; an allocator that says its kind in the vtable is believed",
                device.alias()
            ),
        )),
        Kind::CudaManaged => Ok(plain(Kind::CudaManaged)),
        kind if found.ordinal == device.ordinal() => {
            if found.size != 0 && found.base + found.size - address < request.size {
                return Err(wrong(
                    from,
                    address,
                    format_args!(
                        "{} bytes before the end of the driver's block, where {} were asked",
                        found.base + found.size - address,
                        request.size
                    ),
                ));
            }
            Ok(Made { kind, rule: found.rule, pool: 0, graph: None, flags: MADE_ELSEWHERE })
        }
        kind => Err(wrong(
            from,
            address,
            format_args!(
                "{} memory of GPU {}, where memory of \"{}\" was asked",
                kind.name(),
                found.ordinal,
                device.alias()
            ),
        )),
    }
}

fn of_reserve(from: &Allocator, request: &Request<'_>, address: u64, reserve: &Record) -> Result<Made> {
    let kind = Kind::of_record(reserve);
    let device = request.device;
    if reserve.device() != device.index() {
        let of = crate::device::at(reserve.device()).map_or("another device", Device::alias);
        return Err(wrong(
            from,
            address,
            format_args!(
                "{} memory of \"{of}\", where memory of \"{}\" was asked",
                kind.name(),
                device.alias()
            ),
        ));
    }
    let rest = reserve.size() - (address - reserve.base());
    if rest < request.size {
        return Err(wrong(
            from,
            address,
            format_args!("{rest} bytes before the end of what it lies in, where {} were asked", request.size),
        ));
    }
    let is_graphs = reserve.flags() & OF_GRAPH != 0;
    if is_graphs {
        // SAFETY: the reserve's record has a hold, and the allocator has the reserve, which it just handed out.
        unsafe { capture::hold_again(reserve.graph()) };
    }
    Ok(Made {
        kind,
        rule: Rule::of_record(reserve),
        pool: reserve.pool(),
        graph: is_graphs.then(|| reserve.graph()),
        flags: reserve.flags() & (OF_GRAPH | NOT_YET),
    })
}

#[cold]
fn wrong(from: &Allocator, address: u64, what: std::fmt::Arguments<'_>) -> Error {
    error!(AllocatorFailed, "{} gave {address:#x}, which is {what}; it has it back", from.title())
}

/// Enters a block. An address that somebody has already is the allocator's failure, and not given back to it: it is in use.
fn enter(ledger: &Ledger, from: &Entered<Allocator>, record: &Record) -> Result<()> {
    let me = from.thread();
    let refused = loop {
        match ledger.insert_as(me.number(), record) {
            Ok(()) => {
                statistics::count_alloc(ledger, me, record);
                return Ok(());
            }
            // What died with its context is in nobody's use, and the driver gives its addresses again.
            Err(InsertError::Overlap(old)) if is_dead(&old.0) => super::drop_stale(ledger, &old.0, record),
            Err(refused) => break refused,
        }
    };
    if !matches!(refused, InsertError::Overlap(_)) {
        give_back(from, record.base(), &request_of(record, None, flags::IDLE));
    }
    forget_holds(record);
    let_go(record);
    match refused {
        InsertError::Overlap(old) => {
            let old = old.0;
            let whose = if old.allocator() == record.allocator() {
                "it gave that out before and has not got it back"
            } else {
                "which it did not make; memory for an allocator to hand out comes from warp_allocator_allocate"
            };
            fail!(
                AllocatorFailed,
                "{} gave {:#x} for {} bytes, and {} bytes at {:#x} there are a live block: {whose}; the block is as it was",
                from.title(),
                record.base(),
                record.size(),
                old.size(),
                old.base()
            )
        }
        InsertError::OutOfMemory => fail!(OutOfMemory, "no host memory for the record of a block"),
        InsertError::AddressRange => {
            fail!(
                AllocatorFailed,
                "{} gave {:#x}, past the end of the address space",
                from.title(),
                record.base()
            )
        }
    }
}

/// Whether a block died with its context, also when nobody has noticed. Memory of a pool does not.
fn is_dead(record: &Record) -> bool {
    Kind::of_record(record) != Kind::CudaMempool
        && super::owner_of(record).is_some_and(|owner| owner.require_present().is_err() && owner.is_lost())
}

/// A record is gone without a free. What died with its context its allocator is told of, later: whoever asks may not call it.
pub fn drop_holds(mut record: Record) {
    match super::owner_of(&record).filter(|owner| owner.is_lost()) {
        Some(owner) if record.allocator() != 0 => {
            let uses = free::take_uses(&mut record);
            owed::leave(owner, &record, uses);
        }
        _ => {
            forget_holds(&record);
            let_go(&record);
        }
    }
}

/// What an allocator gave in a capture stays in use for the graph's runs.
#[cold]
fn keep_in_graph(driver: &'static Driver, stream: &Entered<Stream>, record: &Record) {
    let Ok(_relaxed) = driver.relax_capture() else { return };
    match capture::of_stream(driver, stream) {
        Ok(Some(graph)) => uses::note_graph(record, &graph),
        Ok(None) => {}
        Err(error) => log!(Warning, "a block of a capture is not kept for its graph: {error}"),
    }
}

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
    if !owner.is_cuda() {
        return release_on_host(me, owner, record, options);
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
    let is_own = |stream: &&Entered<Stream>| stream.index() == record.stream() && !stream.is_per_thread();
    if is_ordered
        && options.stream.filter(|stream| !is_own(stream)).is_none()
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
    match owed::settle(driver, owner, record, after) {
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
                    && !stream.is_capturing(driver).unwrap_or(true) =>
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
    if (record.flags() & USED_ELSEWHERE != 0 || options.stream.is_some())
        && let Ok(driver) = runtime::driver()
    {
        let mut after = free::take_uses(record);
        after.streams.extend(options.stream.map(Use::on));
        if !owed::settle(driver, owner, record, after) {
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
