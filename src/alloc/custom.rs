//! Blocks that allocators of other code make, and those that stand on others: how they are asked, and what is known of what
//! they give. When they get it back is in `returned`.
//!
//! What an allocator has from another one is not a caller's block and stands in a book of its own (`direct`). A block that lies
//! in it is known by it: of the same kind and pool, and of the same graph.

use super::builtin::{self, Order};
use super::free;
use super::patience::Patience;
use super::returned::request_of;
use super::uses;
use super::{
    HOLDS_STREAM, HOST_ALIGNMENT, Kind, LEDGER, MADE_ELSEWHERE, NATURAL_ALIGNMENT, NOT_YET, OF_GRAPH, Rule,
    caching, describe, direct, forget_holds, owed, statistics,
};
use crate::allocator::{self, Allocator, Request, flags};
use crate::capture;
use crate::device::Device;
use crate::driver::Driver;
use crate::error::{Error, Result, Status, error, fail};
use crate::handle::{Entered, Handle};
use crate::ledger::{InsertError, Ledger, Overlap, Record};
use crate::log::log;
use crate::stream::Stream;

/// The slot of the allocator that made a block. Records count from 1.
pub fn slot_of(record: &Record) -> Option<u32> {
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
            let is_its = match Kind::of_record(&record) {
                // The default one makes either, and records do not say through which handle they came.
                Kind::CudaDevice | Kind::CudaMempool if kind == Kind::Unknown => true,
                other => other == kind,
            };
            if is_its {
                count(record);
            }
        });
        return live;
    }
    caching::each(|record| {
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
    if !capturing && let Some(served) = serve_cached(&order, from, Some(stream)) {
        return served;
    }
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
    // Direct memory is its taker's to keep.
    if capturing && record.flags() & OF_GRAPH == 0 && std::ptr::eq(order.ledger, &LEDGER) {
        keep_in_graph(driver, stream, &record);
    }
    Ok(address)
}

/// Memory of the CPU belongs to no stream.
fn on_host(order: &Order<'_>, from: &Entered<Allocator>) -> Result<u64> {
    let recording = builtin::recording_on_cpu(order.size)?;
    if recording.is_none()
        && let Some(served) = serve_cached(order, from, None)
    {
        return served;
    }
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
    enter(order.ledger, from, &record)?;
    builtin::keep_for(recording, order.ledger, &record);
    Ok(address)
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

/// Asks a cache on its own way; once more, when it is out of memory, after it got back what it is owed. What it keeps it has given
/// back itself.
#[inline]
fn serve_cached(
    order: &Order<'_>,
    from: &Entered<Allocator>,
    stream: Option<&Entered<Stream>>,
) -> Option<Result<u64>> {
    match caching::allocate(order, from, stream) {
        Some(Err(error))
            if error.status == Status::OutOfMemory
                && owed::drain(&mut Patience::new(), |record| slot_of(record) == Some(from.index())) =>
        {
            caching::allocate(order, from, stream)
        }
        served => served,
    }
}

#[cold]
fn serve_again(from: &Entered<Allocator>, request: &Request<'_>, first: Error) -> Result<u64> {
    owed::drain(&mut Patience::new(), |record| slot_of(record) == Some(from.index()));
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

/// What cannot be used is the allocator's again.
fn give_back(from: &Allocator, address: u64, request: &Request<'_>) {
    allocator::tell_of_unusable(from.deallocate(address, request));
}

/// What is known of memory that an allocator gave.
pub struct Made {
    kind: Kind,
    rule: Rule,
    pool: u32,
    /// The graph that it is memory of, with a hold on it.
    graph: Option<u32>,
    /// Of page-locked memory that the library made: the GPU in whose context.
    home: Option<u32>,
    flags: u16,
}

impl Made {
    #[inline]
    pub fn record(&self, address: u64, request: &Request<'_>) -> Record {
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
            record.with_context(self.home.unwrap_or(u32::from(request.device.index())))
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
    Made { kind, rule: Rule::of_kind(kind), pool: 0, graph: None, home: None, flags }
}

/// Finds out what an allocator gave: what it had from here itself, what it says it makes, or what the driver says it is.
#[inline]
pub fn what_was_made(from: &Allocator, request: &Request<'_>, address: u64) -> Result<Made> {
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
            home: None,
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
            Ok(Made { kind, rule: found.rule, pool: 0, graph: None, home: None, flags: MADE_ELSEWHERE })
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
    // An allocator that hands out what is not its own may do so while its owner gives that back.
    if is_graphs && !capture::hold_if_held(reserve.graph()) {
        return Err(wrong(from, address, format_args!("memory of a graph that is being freed")));
    }
    Ok(Made {
        kind,
        rule: Rule::of_record(reserve),
        pool: reserve.pool(),
        graph: is_graphs.then(|| reserve.graph()),
        home: (kind == Kind::Pinned).then(|| reserve.context()),
        flags: reserve.flags() & (OF_GRAPH | NOT_YET),
    })
}

#[cold]
fn wrong(from: &Allocator, address: u64, what: std::fmt::Arguments<'_>) -> Error {
    error!(AllocatorFailed, "{} gave {address:#x}, which is {what}; it has it back", from.title())
}

/// Enters a block. An address that somebody has already is the allocator's failure, and not given back to it: it is in use.
fn enter(ledger: &Ledger, from: &Entered<Allocator>, record: &Record) -> Result<()> {
    caching::make_way();
    let me = from.thread();
    let refused = loop {
        // A cached block may be one that the ledger does not know.
        if std::ptr::eq(ledger, &LEDGER)
            && let Some(old) = caching::find_unknown(record.base())
        {
            break InsertError::Overlap(Overlap(old));
        }
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
                "that it gave out before and has not got back"
            } else {
                "that it did not make: memory for an allocator to hand out comes from warp_allocator_allocate"
            };
            fail!(
                AllocatorFailed,
                "{} gave {:#x} for {} bytes, and the {} bytes at {:#x} are a live block {whose}; the block is as it was",
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
