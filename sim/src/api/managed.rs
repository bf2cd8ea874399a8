//! Managed memory: sent somewhere in a stream's order, hints, questions about them, attachment to streams.
use crate::advice::{self, Advice, CPU, Range};
use crate::attribute;
use crate::block::Kind;
use crate::call::{Entry, Out, Session, call};
use crate::codes::{self, Code};
use crate::pool::{LOCATION_DEVICE, LOCATION_HOST, Location};
use crate::work::Work;

/// What `[address, address + count)` is.
enum Memory {
    /// Pages of a managed block.
    Managed(Range),
    /// Managed memory of a pool, which takes no hints.
    OfPool { device: i32 },
    /// Pageable memory that the GPUs reach by themselves.
    Pageable,
    /// A size that goes around the address space is taken for nothing.
    Nothing,
}

fn memory(session: &Session, address: u64, count: usize) -> Result<Memory, Code> {
    if count == 0 {
        return Err(codes::INVALID_VALUE);
    }
    let Some(end) = address.checked_add(count as u64) else {
        let known = session.blocks.at(address).is_some_and(|block| session.is_managed(block));
        return if known { Ok(Memory::Nothing) } else { Err(codes::INVALID_VALUE) };
    };
    match session.blocks.at(address) {
        Some(block) if end > block.end() => Err(codes::INVALID_VALUE),
        Some(block) if block.kind == Kind::Managed => {
            Ok(Memory::Managed(advice::pages(block.base, address, end)))
        }
        Some(block) if session.is_managed(block) => Ok(Memory::OfPool { device: block.device as i32 }),
        None if !session.is_driver_address(address)
            && session.devices.iter().any(|device| device.gpu.has(attribute::PAGEABLE_MEMORY_ACCESS)) =>
        {
            Ok(Memory::Pageable)
        }
        _ => Err(codes::INVALID_VALUE),
    }
}

/// Whether managed memory can be sent to the place by work of a GPU: one that the CPU may look at meanwhile.
fn is_concurrent(session: &Session, device: usize) -> Result<(), Code> {
    let concurrent = session.devices[device].gpu.has(attribute::CONCURRENT_MANAGED_ACCESS);
    if concurrent { Ok(()) } else { Err(codes::INVALID_DEVICE) }
}

fn gpu(session: &Session, id: i32) -> Result<usize, Code> {
    session.device(id)?;
    Ok(id as usize)
}

fn destination(session: &Session, place: Location, stream: u64) -> Result<(), Code> {
    match place.kind {
        LOCATION_DEVICE => is_concurrent(session, gpu(session, place.id)?),
        LOCATION_HOST..=4 => is_concurrent(session, session.streams[&stream].device),
        _ => Err(codes::INVALID_VALUE),
    }
}

/// The location that the older calls name by a device or -1 for the host.
fn old_location(device: i32) -> Location {
    if device == -1 { CPU } else { Location { kind: LOCATION_DEVICE, id: device } }
}

fn prefetch(
    entry: &'static Entry,
    address: u64,
    count: usize,
    place: Location,
    flags: u32,
    stream: u64,
) -> Code {
    let args = [address, count as u64, u64::from(place.kind), place.id as u64, stream];
    call(entry, args, |session| {
        let number = session.stream(stream)?;
        session.outside_captures(number)?;
        let memory = memory(session, address, count)?;
        destination(session, place, number)?;
        if flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        if let Memory::Managed(pages) = memory
            && let Some(block) = session.blocks.at_mut(address)
        {
            block.advised.change(pages, |advice| advice.sent = Some(advice::sent_to(place)));
        }
        session.submit(number, Vec::new(), Work::Nothing);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPrefetchAsync_v2(
    address: u64,
    count: usize,
    place: Location,
    flags: u32,
    stream: u64,
) -> u32 {
    static E: Entry = Entry::new("cuMemPrefetchAsync_v2");
    prefetch(&E, address, count, place, flags, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPrefetchAsync(address: u64, count: usize, device: i32, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemPrefetchAsync");
    prefetch(&E, address, count, old_location(device), 0, stream)
}

const SET_READ_MOSTLY: u32 = 1;
const UNSET_READ_MOSTLY: u32 = 2;
const SET_PREFERRED: u32 = 3;
const UNSET_PREFERRED: u32 = 4;
const SET_ACCESSED_BY: u32 = 5;
const UNSET_ACCESSED_BY: u32 = 6;

/// Whether an advice can name the place; the younger call knows no GPU that is none.
fn advised_place(session: &Session, advice: u32, place: Location, is_old: bool) -> Result<(), Code> {
    let by_place = matches!(advice, SET_PREFERRED | SET_ACCESSED_BY | UNSET_ACCESSED_BY);
    match place.kind {
        // The other advices do not look at it, but it has to be one.
        1..=4 if !by_place => Ok(()),
        LOCATION_DEVICE => {
            let unknown = if is_old { codes::INVALID_DEVICE } else { codes::INVALID_VALUE };
            is_concurrent(session, gpu(session, place.id).map_err(|_| unknown)?)
        }
        LOCATION_HOST => Ok(()),
        3..=4 if advice == SET_PREFERRED => Ok(()),
        _ => Err(codes::INVALID_VALUE),
    }
}

fn advise(
    entry: &'static Entry,
    address: u64,
    count: usize,
    advice: u32,
    place: Location,
    is_old: bool,
) -> Code {
    let args = [address, count as u64, u64::from(advice), u64::from(place.kind), place.id as u64];
    call(entry, args, |session| {
        session.current()?;
        let memory = memory(session, address, count)?;
        if !(SET_READ_MOSTLY..=UNSET_ACCESSED_BY).contains(&advice) {
            return Err(codes::INVALID_VALUE);
        }
        advised_place(session, advice, place, is_old)?;
        let pages = match memory {
            Memory::Managed(pages) => pages,
            Memory::OfPool { .. } => return Err(codes::NOT_SUPPORTED),
            Memory::Pageable | Memory::Nothing => return Ok(()),
        };
        let who = advice::ordinal(place);
        let change = |now: &mut Advice| match advice {
            SET_READ_MOSTLY => now.read_mostly = true,
            UNSET_READ_MOSTLY => now.read_mostly = false,
            SET_PREFERRED => now.preferred = Some(advice::preferred_at(place)),
            UNSET_PREFERRED => now.preferred = None,
            SET_ACCESSED_BY => {
                now.accessed_by.insert(who);
            }
            _ => {
                now.accessed_by.remove(&who);
            }
        };
        if let Some(block) = session.blocks.at_mut(address) {
            block.advised.change(pages, change);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise_v2(address: u64, count: usize, advice: u32, place: Location) -> u32 {
    static E: Entry = Entry::guarded("cuMemAdvise_v2");
    advise(&E, address, count, advice, place, false)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise(address: u64, count: usize, advice: u32, device: i32) -> u32 {
    static E: Entry = Entry::guarded("cuMemAdvise");
    advise(&E, address, count, advice, old_location(device), true)
}

const ACCESSED_BY: u32 = 3;

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRangeGetAttribute(
    data: Out<i32>,
    bytes: usize,
    attribute: u32,
    address: u64,
    count: usize,
) -> u32 {
    static E: Entry = Entry::new("cuMemRangeGetAttribute");
    let args = [data.address(), bytes as u64, u64::from(attribute), address, count as u64];
    call(&E, args, |session| {
        data.check()?;
        session.current()?;
        let said = match memory(session, address, count)? {
            Memory::Managed(pages) => match session.blocks.at(address) {
                Some(block) => block.advised.common(pages),
                None => Advice::default(),
            },
            Memory::OfPool { device } => {
                let at_home = Location { kind: LOCATION_DEVICE, id: device };
                Advice { preferred: Some(at_home), ..Advice::default() }
            }
            Memory::Pageable | Memory::Nothing => Advice::default(),
        };
        if attribute == ACCESSED_BY {
            let places = bytes / 4;
            if places == 0 || !bytes.is_multiple_of(4) {
                return Err(codes::INVALID_VALUE);
            }
            // GPUs by their numbers, the CPU last.
            let (cpu, gpus): (Vec<i32>, Vec<i32>) = said.accessed_by.iter().partition(|who| **who < 0);
            let mut named = gpus.into_iter().chain(cpu);
            return (0..places).try_for_each(|i| data.put_at(i, named.next().unwrap_or(advice::NOWHERE)));
        }
        if bytes != 4 {
            return Err(codes::INVALID_VALUE);
        }
        data.put(match attribute {
            1 => i32::from(said.read_mostly),
            2 => said.preferred.map_or(advice::NOWHERE, advice::ordinal),
            4 => said.sent.map_or(advice::NOWHERE, advice::ordinal),
            5 => said.preferred.map_or(0, |place| place.kind as i32),
            6 => said.preferred.map_or(advice::NOWHERE, |place| place.id),
            7 => said.sent.map_or(0, |place| place.kind as i32),
            8 => said.sent.map_or(advice::NOWHERE, |place| place.id),
            _ => return Err(codes::INVALID_VALUE),
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamAttachMemAsync(stream: u64, address: u64, length: usize, flags: u32) -> u32 {
    static E: Entry = Entry::new("cuStreamAttachMemAsync");
    call(&E, [stream, address, length as u64, u64::from(flags)], |session| {
        let number = session.stream(stream)?;
        if !session.is_captured(number) {
            session.beside_captures()?;
        }
        session.outside_captures(number)?;
        let block = session.blocks.at(address).ok_or(codes::INVALID_VALUE)?;
        let whole = length == 0 || length as u64 == block.size;
        if block.kind != Kind::Managed || !whole || !matches!(flags, 1 | 2 | 4) {
            return Err(codes::INVALID_VALUE);
        }
        session.submit(number, Vec::new(), Work::Nothing);
        Ok(())
    })
}
