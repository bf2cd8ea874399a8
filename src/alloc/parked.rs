//! Blocks whose free was asked for and whose streams still work. The driver's own frees of plain, managed and
//! page-locked memory wait for all work of the context, so such a block is parked until the streams that used
//! it are done, and only then given back. There is no background thread: later calls look. The last runs of released
//! graphs are waited for in the same way.

use super::builtin::{self, Native};
use super::patience::Patience;
use super::uses::{Use, Uses};
use super::{Kind, LEDGER, OF_GRAPH, direct, owed};
use crate::capture::{self, Keep};
use crate::device::{self, Device, PerDevice};
use crate::driver::{Driver, Failure, RawEvent, RawStream};
use crate::error::Result;
use crate::ledger::Record;
use crate::lock::Mutex;
use crate::log::log;
use crate::runtime;
use crate::stream::{self, Ended};
use crate::thread;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// A stream whose work a free must come after. Has the use's hold on it.
struct Wait {
    of: Use,
    /// Recorded on the stream since the free; `None` while that was not possible, or when it has ended.
    event: Option<RawEvent>,
}

impl Wait {
    fn let_go(self) {
        if let Some(event) = self.event {
            // SAFETY: the use has a hold.
            stream::give_event(unsafe { stream::held(self.of.held) }.device(), event);
        }
        self.of.let_go();
    }
}

pub struct Parked {
    owner: &'static Device,
    record: Record,
    native: Native,
    waits: Vec<Wait>,
    /// Graphs whose runs use it, with holds on them. The one that is not over yet has it in its keeping.
    graphs: Vec<u32>,
    /// How often the driver refused to take it back.
    refusals: u32,
}

impl Parked {
    /// Lets go of the graphs that are over; the first that is not is left in front.
    fn settle_graphs(&mut self) {
        while let Some(graph) = self.graphs.last().copied() {
            // SAFETY: the list has a hold on each.
            if !unsafe { capture::held(graph) }.is_over() {
                return;
            }
            self.graphs.pop();
            // SAFETY: the list had the hold, and has it no more.
            unsafe { capture::release_hold(graph) };
        }
    }

    /// A block that its allocator is to have back, which knows it by its address.
    pub fn of_allocator(owner: &'static Device, record: &Record, uses: Uses) -> Parked {
        Parked::new(owner, record, builtin::take_native(record), uses)
    }

    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Looks whether the streams are done. Without a driver there is no work of theirs.
    pub fn are_waits_over(&mut self, driver: Option<&'static Driver>) -> bool {
        match driver {
            Some(driver) => {
                if let Ok(_relaxed) = driver.relax_capture() {
                    settle_waits(driver, &mut self.waits);
                }
            }
            None => std::mem::take(&mut self.waits).into_iter().for_each(Wait::let_go),
        }
        self.waits.is_empty()
    }

    /// Notes that it was not taken back. Whether it is to be offered once more.
    pub fn may_be_offered_again(&mut self) -> bool {
        self.refusals += 1;
        self.refusals < OFFERS
    }

    /// Has it wait for its uses.
    pub fn park(self) {
        park(self);
    }

    /// Whether nothing uses it any more.
    fn is_free(&self) -> bool {
        self.waits.is_empty() && self.graphs.is_empty()
    }

    fn new(owner: &'static Device, record: &Record, native: Native, uses: Uses) -> Parked {
        let waits = uses.streams.into_iter().map(|of| Wait { of, event: None }).collect();
        Parked { owner, record: *record, native, waits, graphs: uses.graphs, refusals: 0 }
    }
}

impl Keep for Parked {
    fn give_back(self: Box<Self>) {
        park(*self);
    }

    fn forget(self: Box<Self>) {
        let Parked { waits, graphs, .. } = *self;
        waits.into_iter().for_each(Wait::let_go);
        Uses { graphs, ..Uses::default() }.let_go();
    }
}

/// A freed block for the graph that it is a part of to keep.
pub fn kept_by_graph(owner: &'static Device, record: &Record, native: Native, uses: Uses) -> Box<dyn Keep> {
    Box::new(Parked::new(owner, record, native, uses))
}

/// The oldest first.
static QUEUE: Mutex<VecDeque<Parked>> = Mutex::new(VecDeque::new());
/// What is in the queue or taken out for a look, so that a call that finds nothing parked pays one load.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Blocks that were parked and are given back.
static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

/// As often as a block is offered to a driver that refuses it.
const OFFERS: u32 = 16;

/// As many blocks as one call looks at, so that it takes a bounded time however many are parked.
const LOOK_AT: usize = 16;

/// How a driver gives a block back. The context of the block's owner is current.
fn give_back(
    driver: &Driver,
    owner: &Device,
    record: &Record,
    native: Native,
) -> std::result::Result<(), Failure> {
    let address = native.address();
    if record.flags() & OF_GRAPH != 0 {
        return give_back_of_graph(driver, owner, record, address);
    }
    match Kind::of_record(record) {
        Kind::CudaDevice | Kind::CudaManaged => driver.free_device(address),
        Kind::Pinned => driver.free_pinned(address),
        Kind::CudaMempool => match reclaim_stream(owner, driver) {
            Ok(stream) => driver.free_async(address, stream),
            // Works for pool memory too, at the price of waiting for the context.
            Err(_) => driver.free_device(address),
        },
        Kind::Host | Kind::Unknown => Ok(()),
    }
}

/// A block that a graph allocated in its last run and did not free. It may be that it never ran, or that other code freed
/// the block: then there is nothing to give back, and its address may be that of another one.
fn give_back_of_graph(
    driver: &Driver,
    owner: &Device,
    record: &Record,
    address: u64,
) -> std::result::Result<(), Failure> {
    if LEDGER.find(record.base()).is_some() || direct::RESERVES.find(record.base()).is_some() {
        return Ok(());
    }
    match driver.free_async(address, reclaim_stream(owner, driver)?) {
        Err(f) if f.is_invalid_value() => Ok(()),
        freed => freed,
    }
}

/// How a block is given back whose owner's context is gone. Its plain memory went with it; a pool is the GPU's and
/// keeps its blocks, which another context of that GPU can give back.
#[cold]
fn give_back_lost(driver: &'static Driver, lost: &Device, record: &Record, native: Native) -> Result<()> {
    if Kind::of_record(record) != Kind::CudaMempool {
        return Ok(());
    }
    let mut refused = lost.lost_error();
    for heir in device::heirs_of(lost) {
        let given = heir.enter(driver).and_then(|_context| match give_back(driver, heir, record, native) {
            Err(f) if !f.is_driver_gone() => Err(heir.error(driver, f)),
            _ => Ok(()),
        });
        match given {
            Ok(()) => return Ok(()),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Frees a block whose owner's context is gone, after what other GPUs still do with it.
#[cold]
pub fn free_lost(driver: &'static Driver, lost: &'static Device, record: &Record, uses: Uses) {
    let native = builtin::take_native(record);
    if Kind::of_record(record) != Kind::CudaMempool || record.flags() & OF_GRAPH != 0 {
        uses.let_go();
        return;
    }
    let mut parked = Parked::new(lost, record, native, uses);
    if let Ok(_relaxed) = driver.relax_capture() {
        settle_waits(driver, &mut parked.waits);
        parked.settle_graphs();
        if parked.is_free() && give_back_lost(driver, lost, record, native).is_ok() {
            return;
        }
    }
    park(parked);
}

static RECLAIM: PerDevice<Mutex<Option<RawStream>>> = PerDevice::new();

/// A stream of the device that nobody waits on: frees that must come after several streams go there, so that
/// no stream of the caller's is made to wait.
fn reclaim_stream(device: &Device, driver: &Driver) -> std::result::Result<RawStream, Failure> {
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

/// Whether frees that were ordered behind several streams have all happened.
pub fn reclaim_is_idle(device: &Device, driver: &Driver) -> bool {
    let made = RECLAIM.get(device).and_then(|made| *made.lock());
    made.is_none_or(|stream| driver.stream_is_idle(stream).unwrap_or(true))
}

/// Where the end of the use can be marked or waited for: its stream. Another thread's own default stream cannot
/// be named here; the legacy stream comes after it, as after every blocking stream of the context.
fn marked_on(stream: &stream::Stream, of: &Use) -> RawStream {
    if of.is_another_threads() { RawStream::LEGACY } else { stream.native() }
}

/// Whether a wait is over. Makes the mark on its stream when that was not possible before. The context of the
/// stream's device is current.
fn is_over(driver: &Driver, wait: &mut Wait) -> std::result::Result<bool, Failure> {
    if let Some(event) = wait.event {
        return driver.event_is_done(event);
    }
    // SAFETY: the wait has a hold.
    let untracked = unsafe { stream::held(wait.of.held) };
    if untracked.is_untracked() {
        return match stream::mark_context(untracked.device(), driver)? {
            Ended::NotYet => Ok(false),
            Ended::Nothing => Ok(true),
            Ended::Event(event) => driver.event_is_done(*wait.event.insert(event)),
        };
    }
    if let Some(stream) = stream::enter_held(thread::mine(), wait.of.held) {
        let place = marked_on(&stream, &wait.of);
        // The legacy stream's own work may be done while that of the streams it comes after is not.
        if place == stream.native() && stream::is_surely_idle(driver, &stream)? {
            return Ok(true);
        }
        let Some(event) = stream::mark_end(stream.device(), driver, place)? else { return Ok(false) };
        return match driver.event_is_done(event) {
            // It fell into a capture that has ended already.
            Err(f) if f.is_invalid_value() => {
                stream::give_event(stream.device(), event);
                Ok(false)
            }
            answer => {
                wait.event = Some(event);
                answer
            }
        };
    }
    // SAFETY: the wait has a hold.
    has_ended(driver, unsafe { stream::held(wait.of.held) })
}

/// Whether a stream that cannot be entered any more has done its work.
pub fn has_ended(driver: &Driver, stream: &stream::Stream) -> std::result::Result<bool, Failure> {
    match stream.ended() {
        Ended::NotYet => Ok(false),
        Ended::Event(event) => driver.event_is_done(event),
        Ended::Nothing => Ok(true),
    }
}

/// Drops the waits that are over. An event is asked in its own device's context.
fn settle_waits(driver: &'static Driver, waits: &mut Vec<Wait>) {
    let mut i = 0;
    while i < waits.len() {
        // SAFETY: the wait has a hold.
        let device = unsafe { stream::held(waits[i].of.held) }.device();
        let over = device.is_lost()
            || match device.enter(driver) {
                Ok(_context) => match is_over(driver, &mut waits[i]) {
                    Ok(over) => over,
                    // A fault or a dead context: no work of that stream will ever run again.
                    Err(f) => device.notice(driver, f) || f.is_sticky(),
                },
                Err(_) => device.is_lost(),
            };
        if over { waits.swap_remove(i).let_go() } else { i += 1 }
    }
}

/// Frees a block after its uses: at once when they are over, else later. The driver is usable, and the context
/// of the block's owner current. On failure nothing was freed, and the uses were over.
pub fn free_after(
    driver: &'static Driver,
    owner: &'static Device,
    record: &Record,
    uses: Uses,
) -> Result<()> {
    let native = builtin::take_native(record);
    let mut parked = Parked::new(owner, record, native, uses);
    settle_waits(driver, &mut parked.waits);
    parked.settle_graphs();
    if parked.is_free() {
        return finish(driver, owner, record, native).inspect_err(|_| native.keep(record));
    }
    park(parked);
    Ok(())
}

/// What a look at a freed block's uses found.
pub enum Settled {
    Over,
    Not(Parked),
}

/// Looks whether the uses of a freed block are over. A context is current where the driver needs one; without one there are the
/// uses of graphs of the CPU.
pub fn settle(
    driver: Option<&'static Driver>,
    owner: &'static Device,
    record: &Record,
    uses: Uses,
) -> Settled {
    let mut parked = Parked::of_allocator(owner, record, uses);
    parked.are_waits_over(driver);
    parked.settle_graphs();
    if parked.is_free() { Settled::Over } else { Settled::Not(parked) }
}

/// Host memory that graphs use is given back when they are over; in a forked child never, if that is not known of all of them.
pub fn free_host_after(cpu: &'static Device, record: &Record, uses: Uses) {
    if uses.lost {
        uses.let_go();
        return;
    }
    park(Parked::new(cpu, record, builtin::take_native(record), uses));
}

/// Takes in a block that is still used: its graphs have it one after the other, then it waits for its streams.
fn park(mut parked: Parked) {
    parked.settle_graphs();
    if let Some(graph) = parked.graphs.last().copied() {
        // SAFETY: the list has a hold on it. If it is over by now the block comes back, and the graph is not used again.
        if let Some(back) = unsafe { capture::held(graph) }.keep(Box::new(parked)) {
            back.give_back();
        }
        return;
    }
    if parked.record.allocator() != 0 {
        owed::push(parked);
        return;
    }
    if Kind::of_record(&parked.record) == Kind::Host {
        builtin::free_host(parked.record.base());
        return;
    }
    COUNT.fetch_add(1, Ordering::Release);
    QUEUE.lock().push_back(parked);
}

/// Keeps a block that the driver refused and that nobody else will free, to be offered again by later calls. The uses
/// are those that the free did not take.
#[cold]
pub fn offer_again(owner: &'static Device, record: &Record, uses: Uses) {
    let parked = Parked::new(owner, record, builtin::take_native(record), uses);
    park(Parked { refusals: 1, ..parked });
}

/// Frees a pool block that several streams used: the driver does the waiting, on a stream of ours. Its result
/// is that of `free_after`, which takes over where the driver cannot wait.
pub fn free_pool_after(
    driver: &'static Driver,
    owner: &'static Device,
    record: &Record,
    uses: Uses,
) -> Result<()> {
    let native = builtin::take_native(record);
    if !uses.graphs.is_empty() || try_join(driver, owner, native, &uses.streams).is_err() {
        native.keep(record);
        return free_after(driver, owner, record, uses);
    }
    uses.let_go();
    Ok(())
}

/// Orders the reclaim stream after every use and frees there. Fails, with nothing freed, when a stream is
/// being captured or is just ending.
fn try_join(
    driver: &'static Driver,
    owner: &'static Device,
    native: Native,
    uses: &[Use],
) -> std::result::Result<(), ()> {
    let reclaim = reclaim_stream(owner, driver).map_err(drop)?;
    for of in uses {
        // SAFETY: the caller has the hold.
        let untracked = unsafe { stream::held(of.held) };
        if untracked.is_untracked() {
            let device = untracked.device();
            let _context = device.enter(driver).map_err(drop)?;
            match stream::mark_context(device, driver).map_err(drop)? {
                Ended::NotYet => return Err(()),
                Ended::Nothing => {}
                Ended::Event(event) => {
                    let joined = driver.wait_event(reclaim, event);
                    stream::give_event(device, event);
                    joined.map_err(drop)?;
                }
            }
        } else if let Some(stream) = stream::enter_held(thread::mine(), of.held) {
            let device = stream.device();
            let place = marked_on(&stream, of);
            let _context = device.enter(driver).map_err(drop)?;
            let event = stream::mark_end(device, driver, place).map_err(drop)?.ok_or(())?;
            // An event may be recorded anew once a wait for its last record is in place.
            let joined = driver.wait_event(reclaim, event);
            stream::give_event(device, event);
            joined.map_err(drop)?;
        } else {
            // SAFETY: the caller has the hold.
            let stream = unsafe { stream::held(of.held) };
            // An event of a context that died must not be touched, and there is nothing to wait for.
            if stream.device().context(driver).is_err() {
                if stream.device().is_lost() {
                    continue;
                }
                return Err(());
            }
            match stream.ended() {
                Ended::NotYet => return Err(()),
                Ended::Event(event) => driver.wait_event(reclaim, event).map_err(drop)?,
                Ended::Nothing => {}
            }
        }
    }
    driver.free_async(native.address(), reclaim).map_err(drop)
}

fn finish(driver: &'static Driver, owner: &'static Device, record: &Record, native: Native) -> Result<()> {
    match give_back(driver, owner, record, native) {
        Ok(()) => Ok(()),
        Err(f) if f.is_driver_gone() => Ok(()),
        Err(f) if owner.notice(driver, f) => give_back_lost(driver, owner, record, native),
        Err(f) => Err(owner.error(driver, f)),
    }
}

/// Gives back what is parked and whose streams are done, as far as a call may take the time.
#[inline]
pub fn poll() {
    if COUNT.load(Ordering::Acquire) != 0 || capture::any_gone() {
        look(LOOK_AT);
    }
}

/// As `poll`, when there is something of graphs to give back: else nothing is looked at.
#[inline]
pub fn poll_graphs() {
    if capture::any_gone() {
        look(LOOK_AT);
    }
}

/// As `poll`, for the calls that are made most: while streams work, it looks now and then only.
#[inline]
pub fn poll_seldom() {
    if COUNT.load(Ordering::Acquire) != 0 || capture::any_gone() {
        look_if_time();
    }
}

#[cold]
fn look_if_time() {
    const PAUSE: u64 = 100_000;
    static START: OnceLock<Instant> = OnceLock::new();
    static QUIET_UNTIL: AtomicU64 = AtomicU64::new(0);
    let start = START.get_or_init(Instant::now);
    let now = start.elapsed().as_nanos() as u64;
    if now >= QUIET_UNTIL.load(Ordering::Relaxed) {
        let before = GIVEN_BACK.load(Ordering::Relaxed);
        look(LOOK_AT);
        if GIVEN_BACK.load(Ordering::Relaxed) == before {
            // From its end on, and longer where a look takes long: it is no more than a part of the time.
            let end = start.elapsed().as_nanos() as u64;
            QUIET_UNTIL.store(end + PAUSE.max(4 * (end - now)), Ordering::Relaxed);
        }
    }
}

/// Released graphs, held, and the end of their last runs.
static RUNS: Mutex<VecDeque<(u32, Wait)>> = Mutex::new(VecDeque::new());

/// Looks whether the last runs of released graphs are over.
#[cold]
fn look_at_runs(driver: &'static Driver, at_most: usize) {
    while let Some((graph, last)) = capture::take_ending() {
        RUNS.lock().push_back((graph, Wait { of: Use::of_run(last), event: None }));
    }
    let count = RUNS.lock().len().min(at_most);
    for _ in 0..count {
        // Taken out for the look, as blocks are.
        let Some((graph, wait)) = RUNS.lock().pop_front() else { return };
        let mut wait = vec![wait];
        settle_waits(driver, &mut wait);
        match wait.pop() {
            Some(wait) => RUNS.lock().push_back((graph, wait)),
            None => capture::run_ended(graph),
        }
    }
}

#[cold]
fn look(at_most: usize) {
    // There the driver refuses, and what it refuses is not offered for ever.
    if thread::is_in_drivers_callback() {
        return;
    }
    let Ok(driver) = runtime::driver() else {
        // What graphs of the CPU kept needs none, in a forked child either.
        if !runtime::is_exiting() {
            capture::settle_gone();
        }
        return;
    };
    let Ok(_relaxed) = driver.relax_capture() else { return };
    if capture::any_gone() {
        look_at_runs(driver, at_most);
        capture::settle_gone();
    }
    // Each block is taken out for its look: no lock is held while the driver may wait.
    for _ in 0..COUNT.load(Ordering::Acquire).min(at_most) {
        let Some(mut parked) = QUEUE.lock().pop_front() else { return };
        let owner = parked.owner;
        settle_waits(driver, &mut parked.waits);
        let context = owner.enter(driver);
        // The work of other GPUs goes on when the owner's context dies.
        if !parked.waits.is_empty() || context.is_err() && !owner.is_lost() {
            QUEUE.lock().push_back(parked);
            continue;
        }
        let given = if owner.is_lost() {
            give_back_lost(driver, owner, &parked.record, parked.native)
        } else {
            finish(driver, owner, &parked.record, parked.native)
        };
        if let Err(error) = given {
            parked.refusals += 1;
            if parked.refusals < OFFERS {
                QUEUE.lock().push_back(parked);
                continue;
            }
            log!(
                Error,
                "{} bytes of \"{}\" at {:#x}, freed before, could not be given back: {error}",
                parked.record.size(),
                owner.alias(),
                parked.record.base()
            );
        }
        GIVEN_BACK.fetch_add(1, Ordering::Relaxed);
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Looks at everything that is parked.
pub fn look_at_all() {
    if COUNT.load(Ordering::Acquire) != 0 || capture::any_gone() {
        look(usize::MAX);
    }
}

/// How many parked blocks were given back so far.
pub fn given_back() -> u64 {
    GIVEN_BACK.load(Ordering::Acquire)
}

/// Blocks and bytes that are parked, of those that are asked for.
pub fn waiting(wanted: impl Fn(&Device, Kind) -> bool) -> (u64, u64) {
    let queue = QUEUE.lock();
    let wanted = queue.iter().filter(|parked| wanted(parked.owner, Kind::of_record(&parked.record)));
    wanted.fold((0, 0), |(blocks, bytes), parked| (blocks + 1, bytes + parked.record.size()))
}

/// Whether some thread has a parked block in hand right now, which `waiting` does not see.
pub fn some_in_hand() -> bool {
    let queue = QUEUE.lock();
    COUNT.load(Ordering::Acquire) > queue.len() || capture::any_gone()
}

/// Waits for parked blocks of those that are asked for, at most for a time. True when something was given back.
pub fn drain(patience: &mut Patience, wanted: impl Fn(&Device, Kind) -> bool) -> bool {
    let before = given_back();
    loop {
        look_at_all();
        if (waiting(&wanted).0 == 0 && !some_in_hand()) || patience.is_over() {
            return given_back() != before;
        }
        patience.pause();
    }
}
