//! Giving and taking access.

use super::grant::{Grant, Memory};
use super::{can_be_peers, scopes, supports};
use crate::device::{self, Device};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::{log, stream};

/// Gives each peer access to the target's memory, or takes it, one request of the driver a pair: all of them or none. What is
/// so already, by whomever, stays as it is.
pub fn set(
    memory: Memory<'_>,
    target: &'static Device,
    peers: &[&'static Device],
    enabled: bool,
) -> Result<()> {
    let mut grants: Vec<Grant> = Vec::with_capacity(peers.len());
    let mut found = None;
    for peer in peers {
        if let Some((driver, grant)) = Grant::of(memory, target, peer, enabled)? {
            found = Some(driver);
            grants.push(grant);
        }
    }
    let Some(driver) = found else { return Ok(()) };
    scopes::refuse_opposite(&grants, enabled)?;
    get_ready(driver, &grants, enabled)?;
    scopes::change(&grants, enabled, || put_all(driver, &grants, enabled))
}

/// Every other GPU that can be a peer of the target; to take access, also one whose verification failed: other code may have
/// given it.
pub fn others_of(target: &'static Device, enabled: bool) -> Result<Vec<&'static Device>> {
    let mut others = Vec::new();
    if !target.is_cuda() {
        return Ok(others);
    }
    let driver = target.require_cuda("access")?;
    for device in device::all() {
        let is_other = device.is_primary() && device.ordinal() != target.ordinal();
        let can = if enabled { supports } else { can_be_peers };
        if is_other && can(driver, target, device)? {
            others.push(device);
        }
    }
    Ok(others)
}

/// Does what must be done before anything is given or taken, and with no lock held: contexts are made, or work that may
/// still need the access is waited for.
pub fn get_ready(driver: &'static Driver, grants: &[Grant], enabled: bool) -> Result<()> {
    if enabled {
        return grants.iter().try_for_each(|grant| grant.prepare(driver));
    }
    let mut users: Vec<&'static Device> = grants.iter().flat_map(Grant::users).collect();
    users.sort_by_key(|device| device.index());
    users.dedup_by_key(|device| device.index());
    users.into_iter().try_for_each(|device| {
        stream::wait_for_work(device, driver)
            .map_err(|error| error.context("waiting for work that may need the access, which stays"))
    })
}

/// Gives or takes each of them, or none.
pub fn put_all(driver: &'static Driver, grants: &[Grant], enabled: bool) -> Result<()> {
    let mut changed: Vec<&Grant> = Vec::new();
    for grant in grants {
        match grant.put(driver, enabled) {
            Ok(true) => changed.push(grant),
            Ok(false) => {}
            Err(error) => return Err(undo(driver, &changed, enabled, error)),
        }
    }
    Ok(())
}

/// Takes back what was changed before the one that failed.
#[cold]
fn undo(driver: &'static Driver, changed: &[&Grant], enabled: bool, mut error: Error) -> Error {
    for grant in changed.iter().rev() {
        if let Err(again) = grant.put(driver, !enabled) {
            log::log!(Error, "{} was not put back: {again}", grant.describe());
            error.message = format!("{} (and {} could not be put back)", error.message, grant.describe());
        }
    }
    error
}
