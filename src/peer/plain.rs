//! Peer access between two contexts, as it is now. The driver has no question for it, but one that comes to the same: whether
//! an address of the one context has a meaning in the other, which is so exactly when a kernel there may touch it.

use crate::device::{self, Device, PerDevice};
use crate::driver::{Driver, Failure, RawContext};
use crate::error::Result;
use crate::lock::Mutex;

/// The context of a device, if somebody holds it: ours, or one that other code made, which is held as well for a while.
pub struct Existing<'d> {
    driver: &'d Driver,
    device: &'d Device,
    pub context: RawContext,
    borrowed: bool,
}

impl<'d> Existing<'d> {
    pub fn of(driver: &'d Driver, device: &'d Device) -> Result<Option<Existing<'d>>> {
        if device.has_context() {
            let context = device.context(driver)?;
            return Ok(Some(Existing { driver, device, context, borrowed: false }));
        }
        let ordinal = device.facts().device;
        if !driver.primary_context_is_active(ordinal).map_err(|f| device.error(driver, f))? {
            return Ok(None);
        }
        let context = driver.retain_primary_context(ordinal).map_err(|f| device.error(driver, f))?;
        Ok(Some(Existing { driver, device, context, borrowed: true }))
    }
}

impl Existing<'_> {
    fn reaches(&self, address: u64) -> Result<bool> {
        let failed = |f| self.device.error(self.driver, f);
        let _current = self.driver.enter(self.context).map_err(failed)?;
        self.driver.reaches(address).map_err(failed)
    }
}

impl Drop for Existing<'_> {
    fn drop(&mut self) {
        if self.borrowed {
            let _ = self.driver.release_primary_context(self.device.facts().device);
        }
    }
}

/// Plain memory of a context that is there to be asked about.
struct Probe {
    context_id: u64,
    address: u64,
}

/// Made at the first question and kept, since the driver's free would wait for all work of the context; it goes with that. A
/// block of the caller's would do as well, but may be freed while it is asked about, and finding one may mean a walk through
/// all that there are.
static PROBES: PerDevice<Mutex<Option<Probe>>> = PerDevice::new();

/// The address of plain memory of the device's context, `None` when there is none yet and none is to be made. The thread's
/// capture mode is relaxed.
fn probe(
    driver: &Driver,
    device: &Device,
    context: RawContext,
    make: bool,
) -> std::result::Result<Option<u64>, Failure> {
    let id = driver.context_id(context)?;
    let mut probe = PROBES.get_or_make(device, Mutex::default).lock();
    if let Some(known) = probe.as_ref().filter(|known| known.context_id == id) {
        return Ok(Some(known.address));
    }
    if !make {
        return Ok(None);
    }
    let _current = driver.enter(context)?;
    let address = driver.alloc_device(1)?;
    *probe = Some(Probe { context_id: id, address });
    Ok(Some(address))
}

/// Whether the peer's context may touch plain memory of the target's. Contexts that nobody holds have no access. `None` when
/// there is nothing of the target's yet to ask about, and nothing is to be made.
pub fn is_enabled(driver: &Driver, target: &Device, peer: &Device, make: bool) -> Result<Option<bool>> {
    let _relaxed = driver.relax_capture().map_err(|f| peer.error(driver, f))?;
    let (Some(owner), Some(accessing)) = (Existing::of(driver, target)?, Existing::of(driver, peer)?) else {
        return Ok(Some(false));
    };
    let probe = probe(driver, target, owner.context, make);
    let probe = probe.map_err(|f| target.error(driver, f).context("a byte of plain memory to ask about"))?;
    probe.map(|address| accessing.reaches(address)).transpose()
}

/// Whether kernels of a GPU may touch the memory at an address, in whichever of its contexts: what one of them may, the others
/// may as well, though the driver tells of each by itself.
pub fn is_address_reached(driver: &Driver, gpu: &'static Device, address: u64) -> Result<bool> {
    let [first, others @ ..] = &*device::contexts_of(gpu) else { return Ok(false) };
    // That another context of the GPU is gone does not matter here.
    Ok(has_address(driver, first, address)?
        || others.iter().any(|other| has_address(driver, other, address).unwrap_or(false)))
}

/// Whether an address has a meaning in the device's context; in one that nobody holds it has none.
fn has_address(driver: &Driver, device: &Device, address: u64) -> Result<bool> {
    Existing::of(driver, device)?.map_or(Ok(false), |accessing| accessing.reaches(address))
}
