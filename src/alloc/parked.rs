//! Blocks whose free was asked for and whose streams still work. The driver's own frees of plain, managed and
//! page-locked memory wait for all work of the context, so such a block is parked until the streams that used
//! it are done, and only then given back. There is no background thread: later calls look.

use super::builtin;
use crate::device::{Device, PerDevice};
use crate::driver::{Driver, Failure, RawEvent, RawStream};
use crate::error::Result;
use crate::ledger::Record;
use crate::log::log;
use crate::runtime;
use crate::stream::{self, Ended};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A stream whose work a free must come after. Keeps a hold on it.
struct Wait {
    held: u32,
    /// Recorded on the stream since the free; `None` while that was not possible, or when it has ended.
    event: Option<RawEvent>,
}

struct Parked {
    record: Record,
    waits: Vec<Wait>,
}

#[derive(Default)]
struct Parking {
    queue: Mutex<VecDeque<Parked>>,
    /// So that a call that finds nothing parked pays one load.
    count: AtomicUsize,
}

static PARKING: PerDevice<Parking> = PerDevice::new();

/// How a driver gives a block back.
pub fn give_back(driver: &Driver, device: &Device, record: &Record) -> std::result::Result<(), Failure> {
    use super::Kind;
    let native = builtin::native_of(record);
    match Kind::of_record(record) {
        Kind::CudaDevice | Kind::CudaManaged => driver.free_device(native),
        Kind::Pinned => driver.free_pinned(native),
        Kind::CudaMempool => match reclaim_stream(device, driver) {
            Ok(stream) => driver.free_async(native, stream),
            // Works for pool memory too, at the price of waiting for the context.
            Err(_) => driver.free_device(native),
        },
        Kind::Host | Kind::Unknown => Ok(()),
    }
}

/// A stream of the device that nobody waits on: frees that must come after several streams go there, so that
/// no stream of the caller's is made to wait.
fn reclaim_stream(device: &Device, driver: &Driver) -> std::result::Result<RawStream, Failure> {
    static RECLAIM: PerDevice<Mutex<Option<RawStream>>> = PerDevice::new();
    let mut made = RECLAIM.get_or_make(device, Mutex::default).lock();
    match *made {
        Some(stream) => Ok(stream),
        None => {
            let stream = driver.create_stream(true, 0)?;
            *made = Some(stream);
            Ok(stream)
        }
    }
}

/// Whether a wait is over. Makes the mark on its stream when that was not possible before.
fn is_over(driver: &Driver, wait: &mut Wait) -> std::result::Result<bool, Failure> {
    if let Some(event) = wait.event {
        return driver.event_is_done(event);
    }
    if let Some(stream) = stream::enter_held(wait.held) {
        if stream.is_capturing(driver)? {
            return Ok(false);
        }
        if driver.stream_is_idle(stream.native())? {
            return Ok(true);
        }
        let Ok(event) = stream::take_event(stream.device(), driver) else { return Ok(false) };
        if let Err(failure) = driver.record_event(event, stream.native()) {
            stream::give_event(stream.device(), event);
            return Err(failure);
        }
        wait.event = Some(event);
        return Ok(false);
    }
    // SAFETY: the wait has a hold.
    match unsafe { stream::held(wait.held) }.ended() {
        Ended::NotYet => Ok(false),
        Ended::Event(event) => driver.event_is_done(event),
        Ended::Nothing => Ok(true),
    }
}

fn let_go(wait: Wait) {
    if let Some(event) = wait.event {
        // SAFETY: the wait has a hold.
        stream::give_event(unsafe { stream::held(wait.held) }.device(), event);
    }
    // SAFETY: the wait had the hold and is gone.
    unsafe { stream::release_hold(wait.held) };
}

/// Drops the waits that are over. An event is asked in its own device's context.
fn settle_waits(driver: &'static Driver, waits: &mut Vec<Wait>) {
    let mut i = 0;
    while i < waits.len() {
        // SAFETY: the wait has a hold.
        let device = unsafe { stream::held(waits[i].held) }.device();
        let over = device.is_lost()
            || match device.enter(driver) {
                Ok(_context) => match is_over(driver, &mut waits[i]) {
                    Ok(over) => over,
                    // A fault or a dead context: no work of that stream will ever run again.
                    Err(f) => device.notice(driver, f) || f.is_sticky(),
                },
                Err(_) => device.is_lost(),
            };
        if over { let_go(waits.swap_remove(i)) } else { i += 1 }
    }
}

/// Frees a block after the streams that it held: at once when they are idle, else later. The driver is
/// usable, and the context of the block's owner current.
pub fn free_after(
    driver: &'static Driver,
    owner: &'static Device,
    record: Record,
    streams: Vec<u32>,
) -> Result<()> {
    let mut waits: Vec<Wait> = streams.into_iter().map(|held| Wait { held, event: None }).collect();
    settle_waits(driver, &mut waits);
    if waits.is_empty() {
        return finish(driver, owner, &record);
    }
    let parking = PARKING.get_or_make(owner, Parking::default);
    parking.queue.lock().push_back(Parked { record, waits });
    parking.count.fetch_add(1, Ordering::Release);
    Ok(())
}

/// Frees a pool block that several streams used: the driver does the waiting, on a stream of ours.
pub fn free_pool_after(
    driver: &'static Driver,
    owner: &'static Device,
    record: Record,
    streams: Vec<u32>,
) -> Result<()> {
    if try_join(driver, owner, &record, &streams).is_err() {
        return free_after(driver, owner, record, streams);
    }
    for held in streams {
        // SAFETY: the holds are this call's.
        unsafe { stream::release_hold(held) };
    }
    builtin::forget_padding_of(&record);
    Ok(())
}

/// Orders the reclaim stream after every stream and frees there. Fails, with nothing freed, when a stream is
/// being captured or is just ending.
fn try_join(
    driver: &'static Driver,
    owner: &'static Device,
    record: &Record,
    streams: &[u32],
) -> std::result::Result<(), ()> {
    let reclaim = reclaim_stream(owner, driver).map_err(drop)?;
    for held in streams {
        if let Some(stream) = stream::enter_held(*held) {
            let device = stream.device();
            let _context = device.enter(driver).map_err(drop)?;
            if stream.is_per_thread() || stream.is_capturing(driver).unwrap_or(true) {
                return Err(());
            }
            let event = stream::take_event(device, driver).map_err(drop)?;
            // An event may be recorded anew once a wait for its last record is in place.
            let joined =
                driver.record_event(event, stream.native()).and_then(|()| driver.wait_event(reclaim, event));
            stream::give_event(device, event);
            joined.map_err(drop)?;
        } else {
            // SAFETY: the caller has the hold.
            match unsafe { stream::held(*held) }.ended() {
                Ended::NotYet => return Err(()),
                Ended::Event(event) => driver.wait_event(reclaim, event).map_err(drop)?,
                Ended::Nothing => {}
            }
        }
    }
    driver.free_async(builtin::native_of(record), reclaim).map_err(drop)
}

fn finish(driver: &Driver, owner: &'static Device, record: &Record) -> Result<()> {
    match give_back(driver, owner, record) {
        Err(f) if !f.is_driver_gone() && !owner.notice(driver, f) => Err(owner.error(driver, f)),
        _ => {
            builtin::forget_padding_of(record);
            Ok(())
        }
    }
}

/// Gives back what is parked on the device and whose streams are done.
#[inline]
pub fn poll(device: &'static Device) {
    if PARKING.get(device).is_some_and(|parking| parking.count.load(Ordering::Acquire) != 0) {
        look(device);
    }
}

#[cold]
fn look(device: &'static Device) {
    let Ok(driver) = runtime::driver() else { return };
    let Some(parking) = PARKING.get(device) else { return };
    let Ok(_context) = device.enter(driver) else { return abandon(device, parking) };
    let Ok(_relaxed) = driver.relax_capture() else { return };
    // Each block is taken out for its look: no lock is held while the driver may wait.
    for _ in 0..parking.count.load(Ordering::Acquire) {
        let Some(mut parked) = parking.queue.lock().pop_front() else { return };
        settle_waits(driver, &mut parked.waits);
        if !parked.waits.is_empty() && !device.is_lost() {
            parking.queue.lock().push_back(parked);
            continue;
        }
        parking.count.fetch_sub(1, Ordering::AcqRel);
        parked.waits.into_iter().for_each(let_go);
        if !device.is_lost()
            && let Err(error) = finish(driver, device, &parked.record)
        {
            log!(Error, "a parked block of {} bytes was not freed: {error}", parked.record.size());
        }
    }
}

/// The device is lost: what was parked there is gone.
fn abandon(device: &Device, parking: &Parking) {
    if device.is_lost() {
        let parked = std::mem::take(&mut *parking.queue.lock());
        parking.count.fetch_sub(parked.len(), Ordering::AcqRel);
        for block in parked {
            builtin::forget_padding_of(&block.record);
            block.waits.into_iter().for_each(let_go);
        }
    }
}

/// Waits for what is parked on the device, at most for a time. True when something was given back.
pub fn drain(device: &'static Device, patience: Duration) -> bool {
    let Some(parking) = PARKING.get(device) else { return false };
    let before = parking.count.load(Ordering::Acquire);
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_micros(20);
    loop {
        poll(device);
        let left = parking.count.load(Ordering::Acquire);
        if left == 0 || Instant::now() >= deadline {
            return left < before;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}

/// Blocks and bytes that are parked on the device.
pub fn waiting(device: &Device) -> (u64, u64) {
    PARKING.get(device).map_or((0, 0), |parking| {
        let queue = parking.queue.lock();
        (queue.len() as u64, queue.iter().map(|parked| parked.record.size()).sum())
    })
}
