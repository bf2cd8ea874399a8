//! What a GPU reached at one moment. A graph keeps that of its capture's begin, by which it is judged until the end.

use super::{Memory, ask_for_gpu, plain_is_reached_by_gpu, reaches};
use crate::device::{self, Device};
use crate::driver::Driver;
use crate::pool::{self, RawPool};
use crate::runtime;
use std::sync::OnceLock;

/// Which devices' memory a device reached. One that could not be asked it did not.
pub struct Snapshot {
    accessing: &'static Device,
    reached: Vec<Reached>,
}

struct Reached {
    target: &'static Device,
    /// Not known as long as nobody in the process was interested: a capture makes no memory only to be asked about.
    plain: OnceLock<bool>,
    /// The pool that was in use, and whether it was reached.
    pool: Option<(RawPool, bool)>,
}

impl Snapshot {
    /// Of a device that nobody asks about: the CPU, whose rules are others.
    pub fn of_nothing(accessing: &'static Device) -> Snapshot {
        Snapshot { accessing, reached: Vec::new() }
    }

    fn of(&self, target: u16) -> Option<&Reached> {
        self.reached.iter().find(|reached| reached.target.index() == target)
    }

    /// Whether it reached plain memory of the device of that index. What is asked for the first time now is as it is now.
    pub fn peer(&self, target: u16) -> bool {
        let Some(reached) = self.of(target) else { return false };
        if let Some(known) = reached.plain.get() {
            return *known;
        }
        let answer = runtime::driver()
            .and_then(|driver| plain_is_reached_by_gpu(driver, reached.target, self.accessing));
        answer.is_ok_and(|answer| *reached.plain.get_or_init(|| answer))
    }

    /// Whether it reached what comes from a pool of the device of that index; `None` when another one was in use.
    pub fn pool(&self, target: u16, pool: RawPool) -> Option<bool> {
        self.of(target)?.pool.filter(|(in_use, _)| *in_use == pool).map(|(_, reached)| reached)
    }
}

/// What the device reaches now. Asks the driver of other devices only.
pub fn snapshot(driver: &Driver, accessing: &'static Device) -> Snapshot {
    let ask = |target: &'static Device| {
        let plain = OnceLock::new();
        if let Ok(Some(answer)) = ask_for_gpu(driver, target, accessing, false) {
            let _ = plain.set(answer);
        }
        Reached { target, plain, pool: pool_reached(driver, target, accessing) }
    };
    let mut reached: Vec<_> = device::all().into_iter().filter(|device| device.is_cuda()).map(ask).collect();
    // Its own memory it reaches also when it was taken out of the list.
    if !reached.iter().any(|reached| std::ptr::eq(reached.target, accessing)) {
        reached.push(ask(accessing));
    }
    Snapshot { accessing, reached }
}

fn pool_reached(driver: &Driver, target: &Device, accessing: &Device) -> Option<(RawPool, bool)> {
    if !target.facts().memory_pools {
        return None;
    }
    let in_use = pool::enter_in_use(target);
    let memory = in_use.as_ref().map_or(Memory::InUse, Memory::Pool);
    let reached = reaches(driver, memory, target, accessing).unwrap_or(false);
    let native = match &in_use {
        Some(pool) => pool.native(),
        None => {
            let _relaxed = driver.relax_capture().ok()?;
            driver.current_pool(target.facts().device).ok()?
        }
    };
    Some((native, reached))
}
