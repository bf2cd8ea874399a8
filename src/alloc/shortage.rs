//! When memory runs out: wait a bounded time for what is about to come free, give back what pools keep, try
//! once more, and else say what was asked, what there is and who has it.

use super::{Kind, LEDGER, parked, tag};
use crate::device::Device;
use crate::driver::{Driver, Failure};
use crate::error::{Error, Result, error};
use std::collections::HashMap;
use std::time::Duration;

/// How long blocks whose streams still work are waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What could not be served.
pub struct Shortage {
    pub device: &'static Device,
    pub kind: Kind,
    pub size: u64,
}

/// Makes room and asks once more. Not for other failures, which come back as they are.
#[cold]
pub fn retry(
    driver: &'static Driver,
    shortage: &Shortage,
    failure: Failure,
    again: impl Fn() -> std::result::Result<u64, Failure>,
) -> Result<u64> {
    let device = shortage.device;
    if !failure.is_out_of_memory() {
        return Err(device.error(driver, failure));
    }
    let _context = device.enter(driver)?;
    parked::drain(device, PATIENCE);
    trim(driver, device);
    match again() {
        Ok(ptr) => Ok(ptr),
        Err(f) if f.is_out_of_memory() => {
            // Frees that were handed to the pool in stream order may not have happened yet.
            if settle_pool(driver, device) {
                trim(driver, device);
                if let Ok(ptr) = again() {
                    return Ok(ptr);
                }
            }
            Err(out_of_memory(driver, shortage, f))
        }
        Err(f) => Err(device.error(driver, f)),
    }
}

/// As `retry`, for page-locked memory: its limit is the host's, so nothing of a GPU is given back.
#[cold]
pub fn retry_pinned(
    driver: &'static Driver,
    owner: &'static Device,
    size: u64,
    failure: Failure,
    again: impl Fn() -> std::result::Result<u64, Failure>,
) -> Result<u64> {
    if !failure.is_out_of_memory() {
        return Err(owner.error(driver, failure));
    }
    let failure = if parked::drain(owner, PATIENCE) {
        match again() {
            Ok(ptr) => return Ok(ptr),
            Err(f) => f,
        }
    } else {
        failure
    };
    if !failure.is_out_of_memory() {
        return Err(owner.error(driver, failure));
    }
    let live = super::statistics(crate::device::all()[0], Some(Kind::Pinned)).live_bytes;
    Err(error!(
        OutOfMemory,
        "out of page-locked host memory (not GPU memory): asked {size} bytes (PINNED), {live} are pinned by this library; the system limits page-locked memory: pin less, or ask for WARP_MEMORY_HOST"
    )
    .with_driver_code(failure.code))
}

fn trim(driver: &Driver, device: &Device) {
    if let Some(pool) = device.pool_in_use() {
        let _ = driver.trim_pool(pool, 0);
        let _ = driver.trim_graph_memory(device.facts().device);
    }
}

/// Waits, for a bounded time, until the pool's frees have happened. True when some did.
fn settle_pool(driver: &'static Driver, device: &'static Device) -> bool {
    let Some(pool) = device.pool_in_use() else { return false };
    let kept =
        |driver: &Driver| driver.pool_usage(pool).map_or(0, |(used, reserved)| reserved - used.min(reserved));
    if kept(driver) == 0 {
        return false;
    }
    let Ok(stream) = crate::stream::current(device) else { return false };
    let deadline = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < deadline {
        match driver.stream_is_idle(stream.native()) {
            Ok(false) => std::thread::sleep(Duration::from_millis(1)),
            Ok(true) => return true,
            Err(_) => return false,
        }
    }
    false
}

fn out_of_memory(driver: &Driver, shortage: &Shortage, failure: Failure) -> Error {
    let Shortage { device, kind, size } = shortage;
    let (free, total) = driver.memory_info().unwrap_or((0, 0));
    let pool = match device.pool_in_use().map(|pool| driver.pool_usage(pool)) {
        Some(Ok((used, reserved))) => format!("the pool uses {used} and reserves {reserved}; "),
        _ => String::new(),
    };
    let (blocks, bytes) = parked::waiting(device);
    let waiting = if blocks == 0 {
        String::new()
    } else {
        format!("; {bytes} bytes in {blocks} freed blocks wait for their streams")
    };
    error!(
        OutOfMemory,
        "out of memory on \"{}\": asked {size} bytes ({}); {pool}free {free} of {total}{}{waiting}",
        device.alias(),
        kind.name(),
        consumers(device)
    )
    .with_driver_code(failure.code)
}

/// The largest groups of live blocks of the device, by kind and tag.
fn consumers(device: &Device) -> String {
    let mut groups: HashMap<(Kind, u32), (u64, u64)> = HashMap::new();
    LEDGER.for_each(|record| {
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
            let name = tag::tag_name(*number).map(|name| format!(" \"{}\"", name.to_string_lossy()));
            format!("{bytes} bytes in {blocks} blocks of {}{}", kind.name(), name.unwrap_or_default())
        })
        .collect();
    if shown.is_empty() { String::new() } else { format!("; largest here: {}", shown.join(", ")) }
}
