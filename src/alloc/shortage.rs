//! When memory runs out: wait a bounded time for what is about to come free, give back what pools keep, try
//! once more, and else say what was asked, what there is and who has it.

use super::patience::Patience;
use super::{Kind, caching, owed, parked};
use crate::device::Device;
use crate::driver::{Driver, Failure};
use crate::error::{Error, Result, error};
use crate::pool::{self, Pool};
use crate::stream;
use std::collections::HashMap;
use std::sync::OnceLock;

/// What could not be served.
pub struct Shortage<'p> {
    pub device: &'static Device,
    pub kind: Kind,
    pub size: u64,
    /// The pool that was asked; `None` when none was.
    pub pool: Option<&'p Pool>,
}

/// Makes room and asks again: at once, whenever something has come free while streams are waited for, and when
/// they are done. Not for other failures, which come back as they are.
#[cold]
pub fn retry(
    driver: &'static Driver,
    shortage: &Shortage<'_>,
    failure: Failure,
    again: impl Fn() -> std::result::Result<u64, Failure>,
) -> Result<u64> {
    retry_with(driver, shortage.device, failure, again, |f| out_of_memory(driver, shortage, f))
}

/// As `retry`, for the launch of a graph, whose size is not known.
#[cold]
pub fn make_room<T>(
    driver: &'static Driver,
    device: &'static Device,
    failure: Failure,
    again: impl Fn() -> std::result::Result<T, Failure>,
) -> Result<T> {
    retry_with(driver, device, failure, again, |f| {
        why_out_of_memory(driver, device, f, None, "for the memory of a graph that is launched")
    })
}

fn retry_with<T>(
    driver: &'static Driver,
    device: &'static Device,
    failure: Failure,
    again: impl Fn() -> std::result::Result<T, Failure>,
    in_the_end: impl Fn(Failure) -> Error,
) -> Result<T> {
    if !failure.is_out_of_memory() {
        return Err(device.error(driver, failure));
    }
    let _context = device.enter(driver)?;
    let mut patience = Patience::new();
    let mut before = None;
    loop {
        // Asked first: what comes free after the answer is found by the next round.
        let last = nothing_pending(driver, device) || patience.is_over();
        owed::deliver_all();
        caching::give_back_unused(device);
        trim(driver, device);
        let now = (parked::given_back(), pool::usage(driver, device));
        if last || before.as_ref() != Some(&now) {
            match again() {
                Ok(got) => return Ok(got),
                Err(f) if !f.is_out_of_memory() => return Err(device.error(driver, f)),
                Err(f) if last => return Err(in_the_end(f)),
                Err(_) => before = Some(now),
            }
        }
        patience.pause();
    }
}

/// Whether waiting would bring nothing: no freed block of the device is parked, and none is about to go back to
/// its pool behind a stream's work.
fn nothing_pending(driver: &Driver, device: &Device) -> bool {
    let parked = parked::waiting(|owner, _| std::ptr::eq(owner, device)).0;
    parked == 0
        && !parked::some_in_hand()
        && stream::all_idle(device, driver)
        && parked::reclaim_is_idle(device, driver)
}

/// Gives back page-locked memory that a room above keeps for later.
static KEEPER: OnceLock<fn()> = OnceLock::new();

/// Names who keeps page-locked memory for later, to be asked for it when there is no more to be had.
pub fn set_keeper_of_pinned(give_back: fn()) {
    let _ = KEEPER.set(give_back);
}

/// As `retry`, for page-locked memory: its limit is the host's, so nothing of a GPU is given back, and what is
/// parked under any GPU's context counts.
#[cold]
pub fn retry_pinned(
    driver: &'static Driver,
    owner: &'static Device,
    shortage: &Shortage<'_>,
    failure: Failure,
    again: impl Fn() -> std::result::Result<u64, Failure>,
) -> Result<u64> {
    if !failure.is_out_of_memory() {
        return Err(owner.error(driver, failure));
    }
    if let Some(give_back) = KEEPER.get() {
        give_back();
    }
    caching::give_back_unused(shortage.device);
    let mut patience = Patience::new();
    parked::drain(&mut patience, |_, kind| kind == Kind::Pinned);
    let mut asked = again();
    // What allocators are owed may be all that keeps chunks of caches from being free.
    if asked.as_ref().is_err_and(|f| f.is_out_of_memory())
        && owed::drain(&mut patience, |record| Kind::of_record(record) == Kind::Pinned)
    {
        caching::give_back_unused(shortage.device);
        asked = again();
    }
    let failure = match asked {
        Ok(ptr) => return Ok(ptr),
        Err(f) => f,
    };
    if !failure.is_out_of_memory() {
        return Err(owner.error(driver, failure));
    }
    let Shortage { device, kind, size, .. } = shortage;
    let live = super::statistics(device, Some(*kind)).live_bytes;
    let (blocks, bytes) = parked::waiting(|_, kind| kind == Kind::Pinned);
    Err(error!(
        OutOfMemory,
        "out of page-locked host memory (not GPU memory): asked {size} bytes (PINNED), {live} are pinned by this library{}; the system limits page-locked memory: pin less, or ask for WARP_MEMORY_HOST",
        still_waiting(blocks, bytes)
    )
    .with_driver_code(failure.code))
}

fn still_waiting(blocks: u64, bytes: u64) -> String {
    if blocks == 0 {
        return String::new();
    }
    format!("; {bytes} bytes in {blocks} freed blocks wait for their streams")
}

fn trim(driver: &'static Driver, device: &'static Device) {
    if pool::in_use(device).is_some() {
        // Without it the driver keeps what was freed, however long ago.
        let _ = stream::settle_pools(device, driver);
        pool::trim_all(driver, device);
        let _ = driver.trim_graph_memory(device.facts().device);
    }
}

fn out_of_memory(driver: &Driver, shortage: &Shortage<'_>, failure: Failure) -> Error {
    let Shortage { device, kind, size, pool } = *shortage;
    why_out_of_memory(driver, device, failure, pool, &format!("asked {size} bytes ({})", kind.name()))
}

fn why_out_of_memory(
    driver: &Driver,
    device: &'static Device,
    failure: Failure,
    asked_pool: Option<&Pool>,
    asked: &str,
) -> Error {
    let (free, total) = driver.memory_info().unwrap_or((0, 0));
    let in_use = pool::enter_in_use(device);
    let pool = asked_pool.or(in_use.as_deref()).map_or_else(String::new, |pool| show(driver, pool));
    let (blocks, bytes) = parked::waiting(|owner, _| std::ptr::eq(owner, device));
    let waiting = still_waiting(blocks, bytes);
    error!(
        OutOfMemory,
        "out of memory on \"{}\": {asked}; {pool}free {free} of {total}{}{waiting}",
        device.alias(),
        consumers(device)
    )
    .with_driver_code(failure.code)
}

/// What a pool holds, and how much it may.
fn show(driver: &Driver, pool: &Pool) -> String {
    let Ok((used, reserved)) = driver.pool_usage(pool.native()) else { return String::new() };
    let limit = match pool.max_size() {
        0 => String::new(),
        most => format!(
            " (it was created with its own limit of {most}, which the driver rounds up: free some of its blocks, or create one with a higher limit)"
        ),
    };
    format!("{} uses {used} and reserves {reserved}{limit}; ", pool.name())
}

/// The largest groups of live blocks of the device, by kind and tag.
fn consumers(device: &Device) -> String {
    let mut groups: HashMap<(Kind, u32), (u64, u64)> = HashMap::new();
    caching::each(|record| {
        if record.device() == device.index() {
            let group = groups.entry((Kind::of_record(&record), record.tag())).or_default();
            group.0 += record.size();
            group.1 += 1;
        }
    });
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, (bytes, _))| std::cmp::Reverse(*bytes));
    let shown: Vec<_> = groups
        .iter()
        .take(3)
        .map(|((kind, number), (bytes, blocks))| {
            let name = crate::tag::tag_name(*number).map(|name| format!(" \"{}\"", name.to_string_lossy()));
            format!("{bytes} bytes in {blocks} blocks of {}{}", kind.name(), name.unwrap_or_default())
        })
        .collect();
    if shown.is_empty() { String::new() } else { format!("; largest here: {}", shown.join(", ")) }
}
