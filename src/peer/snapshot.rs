//! What a GPU reached at one moment. A graph keeps that of its capture's begin: while it goes on nobody asks the driver.

use super::{is_enabled, pool_is_enabled};
use crate::device::{self, Device};
use crate::driver::Driver;

/// Which devices' memory a device reached; one that could not be asked, or has no context, it did not.
#[derive(Debug, Default)]
pub struct Snapshot {
    reached: Vec<Reached>,
}

#[derive(Debug, Clone, Copy)]
struct Reached {
    target: u16,
    plain: bool,
    pool: bool,
}

impl Snapshot {
    fn of(&self, target: u16) -> Option<&Reached> {
        self.reached.iter().find(|reached| reached.target == target)
    }

    /// Whether it reached plain memory of the device of that index.
    pub fn peer(&self, target: u16) -> bool {
        self.of(target).is_some_and(|reached| reached.plain)
    }

    /// Whether it reached what comes from the pool in use of the device of that index.
    pub fn pool(&self, target: u16) -> bool {
        self.of(target).is_some_and(|reached| reached.pool)
    }
}

/// What the device reaches now. Asks the driver of other devices only.
pub fn snapshot(driver: &Driver, accessing: &'static Device) -> Snapshot {
    let ask = |target: &'static Device| Reached {
        target: target.index(),
        plain: is_enabled(driver, target, accessing).unwrap_or(false),
        pool: pool_is_enabled(driver, target, accessing).unwrap_or(false),
    };
    let mut reached: Vec<_> = device::all().into_iter().filter(|device| device.is_cuda()).map(ask).collect();
    // Its own memory it reaches also when it was taken out of the list.
    if !reached.iter().any(|reached| reached.target == accessing.index()) {
        reached.push(ask(accessing));
    }
    Snapshot { reached }
}
