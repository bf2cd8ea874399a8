//! Which GPU may touch whose memory. Everywhere (target, peer): the target owns the memory, the peer touches it; the other
//! direction is another matter. Peer access is between two contexts and governs plain memory, pool access is of a pool to a
//! GPU and governs what comes from it; neither says anything of the other. What is so is known to the driver alone, since
//! other libraries of the process change it too: it is asked each time, and asking changes nothing.

mod capability;
mod grant;
mod plain;
mod scopes;
mod set;
mod snapshot;
mod verify;

pub use grant::Memory;
pub use plain::is_address_reached;
pub use scopes::{begin, dismantle, end};
pub use set::{others_of, set};
pub use snapshot::{Snapshot, snapshot};
pub use verify::verify;

use crate::device::{self, Device};
use crate::driver::Driver;
use crate::error::Result;
use crate::{pool, runtime};

/// Whether the peer could be given access to the target's plain memory: the driver says so, and no verification failed. Legal
/// in captures.
pub fn supports(driver: &Driver, target: &Device, peer: &Device) -> Result<bool> {
    Ok(can_be_peers(driver, target, peer)? && !capability::has_failed(target, peer))
}

/// What the driver says of the pair, which other code goes by whatever a verification found.
fn can_be_peers(driver: &Driver, target: &Device, peer: &Device) -> Result<bool> {
    if !target.is_cuda() || !peer.is_cuda() {
        return Ok(false);
    }
    // The driver calls no GPU a peer of itself.
    if target.ordinal() == peer.ordinal() {
        return Ok(true);
    }
    capability::of(target, peer, || {
        driver.can_access_peer(peer.facts().device, target.facts().device).map_err(|f| peer.error(driver, f))
    })
}

/// Whether the peer could be given access to that memory of the target; a peer need not have pools itself. With the CPU on
/// either side there is none, which needs no driver.
pub fn can_be_enabled(memory: Memory<'_>, target: &Device, peer: &Device) -> Result<bool> {
    if !target.is_cuda() || !peer.is_cuda() {
        return Ok(false);
    }
    let driver = runtime::driver()?;
    Ok((memory.is_plain() || target.facts().memory_pools) && supports(driver, target, peer)?)
}

/// As `reaches`, for any two devices: the driver is needed only between GPUs.
pub fn is_enabled(memory: Memory<'_>, target: &Device, peer: &Device) -> Result<bool> {
    if !target.is_cuda() || !peer.is_cuda() {
        return Ok(false);
    }
    reaches(runtime::driver()?, memory, target, peer)
}

/// Whether the peer's GPU may touch the target's plain memory now, in whichever context: what is enabled in one of them serves
/// the others.
pub fn plain_is_reached_by_gpu(driver: &Driver, target: &Device, peer: &'static Device) -> Result<bool> {
    ask_for_gpu(driver, target, peer, true).map(|answer| answer.unwrap_or(false))
}

fn ask_for_gpu(driver: &Driver, target: &Device, peer: &'static Device, make: bool) -> Result<Option<bool>> {
    let own = ask_plain(driver, target, peer, make)?;
    let mut others = device::contexts_of(peer).into_iter().filter(|other| !std::ptr::eq(*other, peer));
    let is_given = |other| matches!(ask_plain(driver, target, other, make), Ok(Some(true)));
    Ok(if own == Some(false) && others.any(is_given) { Some(true) } else { own })
}

/// Whether the peer may touch the target's plain memory now; `None` when memory would have to be made for the question, and
/// that is not wanted.
fn ask_plain(driver: &Driver, target: &Device, peer: &Device, make: bool) -> Result<Option<bool>> {
    if std::ptr::eq(target, peer) {
        return Ok(Some(target.is_cuda()));
    }
    if !can_be_peers(driver, target, peer)? {
        return Ok(Some(false));
    }
    plain::is_enabled(driver, target, peer, make)
}

/// Whether the peer may touch that memory of the target now.
pub fn reaches(driver: &Driver, memory: Memory<'_>, target: &Device, peer: &Device) -> Result<bool> {
    if memory.is_plain() {
        return ask_plain(driver, target, peer, true).map(|answer| answer.unwrap_or(false));
    }
    if !target.facts().memory_pools || !can_be_peers(driver, target, peer)? {
        return Ok(false);
    }
    // The owner's access cannot be taken away, and need not be asked for.
    if target.ordinal() == peer.ordinal() {
        return Ok(true);
    }
    let _relaxed = driver.relax_capture().map_err(|f| target.error(driver, f))?;
    let ask = |pool| driver.pool_access(pool, peer.facts().device).map_err(|f| target.error(driver, f));
    if let Memory::Pool(pool) = memory {
        return ask(pool.native());
    }
    match pool::enter_in_use(target) {
        Some(pool) => ask(pool.native()),
        // What allocations would name. A question does not decide that.
        None => ask(driver.current_pool(target.facts().device).map_err(|f| target.error(driver, f))?),
    }
}
