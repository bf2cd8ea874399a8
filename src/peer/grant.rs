//! One permission that can be given and taken: a context's to the plain memory of another, or a GPU's to a pool.

use super::plain::Existing;
use super::{can_be_peers, capability, reaches};
use crate::device::{self, Device};
use crate::driver::{Driver, Failure};
use crate::error::{Error, Result, Status, error, fail};
use crate::pool;

/// What of a target's memory is meant.
#[derive(Clone, Copy)]
pub enum Memory<'a> {
    Plain,
    /// What comes from the pool in use.
    InUse,
    /// What comes from this pool of the target.
    Pool(&'a pool::Entered),
}

impl Memory<'_> {
    pub fn is_plain(self) -> bool {
        matches!(self, Memory::Plain)
    }

    fn name(self) -> &'static str {
        if self.is_plain() { "peer access" } else { "pool access" }
    }
}

fn refuse_failed(target: &Device, peer: &Device) -> Result<()> {
    if capability::has_failed(target, peer) {
        fail!(
            NotSupported,
            "\"{}\" is given no access to memory of \"{}\": the verification failed, what it writes there over the direct path does not arrive (warp_peer_access_verify); copies between them go by way of the host and work without it",
            peer.alias(),
            target.alias()
        );
    }
    Ok(())
}

#[derive(Clone)]
pub struct Grant {
    target: &'static Device,
    peer: &'static Device,
    /// `None` for plain memory.
    pool: Option<pool::Kept>,
}

impl PartialEq for Grant {
    fn eq(&self, other: &Grant) -> bool {
        // A pool's is the GPU's, in whichever context.
        self.pool == other.pool
            && if self.pool.is_some() {
                self.peer.ordinal() == other.peer.ordinal()
            } else {
                std::ptr::eq(self.target, other.target) && std::ptr::eq(self.peer, other.peer)
            }
    }
}

impl Grant {
    /// The permission that a request is about; `None` when there is nothing to do for it: what is so for good, and taking
    /// what there cannot be.
    pub fn of(
        memory: Memory<'_>,
        target: &'static Device,
        peer: &'static Device,
        enabled: bool,
    ) -> Result<Option<(&'static Driver, Grant)>> {
        if !target.is_cuda() || !peer.is_cuda() {
            if !enabled {
                return Ok(None);
            }
            let cpu = if target.is_cuda() { peer } else { target };
            fail!(
                InvalidArgument,
                "{} is between two GPUs, and \"{}\" is the CPU: what the CPU shares with GPUs is pinned or managed memory",
                memory.name(),
                cpu.alias()
            );
        }
        let plain = memory.is_plain();
        if !plain && !target.facts().memory_pools {
            if !enabled {
                return Ok(None);
            }
            fail!(
                NotSupported,
                "\"{}\" has no memory pools that \"{}\" could be given access to; its plain memory is opened with warp_peer_access_set_enabled()",
                target.alias(),
                peer.alias()
            );
        }
        if std::ptr::eq(target, peer) || !plain && target.ordinal() == peer.ordinal() {
            return Ok(None);
        }
        let driver = target.require_cuda(memory.name())?;
        peer.require_cuda(memory.name())?;
        if !can_be_peers(driver, target, peer)? {
            if !enabled {
                return Ok(None);
            }
            fail!(
                NotSupported,
                "\"{}\" cannot be given access to memory of \"{}\": the machine does not let the two be peers; copies between them work without it",
                peer.alias(),
                target.alias()
            );
        }
        if enabled {
            refuse_failed(target, peer)?;
        }
        let pool = match memory {
            Memory::Plain => None,
            Memory::InUse => Some(pool::enter_current(target)?.keep()),
            Memory::Pool(pool) => Some(pool.keep()),
        };
        Ok(Some((driver, Grant { target, peer, pool })))
    }

    /// All permissions that the peer's GPU may have from the library for memory of the target's, in whichever contexts.
    pub fn all_between(target: &'static Device, peer: &'static Device) -> Result<Vec<Grant>> {
        let of_gpu = |gpu: &'static Device| {
            device::all().into_iter().filter(|device| device.is_cuda() && device.ordinal() == gpu.ordinal())
        };
        let mut grants = Vec::new();
        for target in of_gpu(target) {
            grants.extend(of_gpu(peer).map(|peer| Grant { target, peer, pool: None }));
        }
        if target.facts().memory_pools {
            // What allocations name is known from now on.
            drop(pool::enter_current(target)?);
            grants.extend(pool::all_on(target).map(|pool| Grant { target, peer, pool: Some(pool) }));
        }
        Ok(grants)
    }

    /// Whether it is of that GPU's memory to that other GPU.
    pub fn is_between(&self, target: &Device, peer: &Device) -> bool {
        self.target.ordinal() == target.ordinal() && self.peer.ordinal() == peer.ordinal()
    }

    /// An error when it would go over a path that a verification found to lose data.
    pub fn refuse_failed(&self) -> Result<()> {
        refuse_failed(self.target, self.peer)
    }

    /// What it is, for messages.
    pub fn describe(&self) -> String {
        let memory = match &self.pool {
            None => "plain memory".into(),
            Some(pool) if pool.is_of_device() => "the pool".into(),
            Some(pool) => pool.name(),
        };
        format!("access of \"{}\" to {memory} of \"{}\"", self.peer.alias(), self.target.alias())
    }

    /// Whether a context that it was about is gone, and it with that. A pool is the GPU's, and stays.
    pub fn is_void(&self) -> bool {
        self.pool.is_none() && (self.target.is_lost() || self.peer.is_lost())
    }

    /// Makes the contexts that it is between.
    pub fn prepare(&self, driver: &'static Driver) -> Result<()> {
        if self.pool.is_none() {
            self.target.context(driver)?;
            self.peer.context(driver)?;
        }
        Ok(())
    }

    /// The devices whose work may be using it: a pool's is of all contexts of the two GPUs.
    pub fn users(&self) -> Vec<&'static Device> {
        let ends = [self.target, self.peer];
        if self.pool.is_none() {
            return ends.to_vec();
        }
        let ordinals = ends.map(Device::ordinal);
        device::all().into_iter().filter(|device| ordinals.contains(&device.ordinal())).collect()
    }

    /// Whether it is given now.
    pub fn is_given(&self, driver: &'static Driver) -> Result<bool> {
        match &self.pool {
            None => reaches(driver, Memory::Plain, self.target, self.peer),
            Some(pool) => {
                let _relaxed = driver.relax_capture().map_err(|f| self.failed(driver, f))?;
                let given = driver.pool_access(pool.native(), self.peer.facts().device);
                given.map_err(|f| self.failed(driver, f))
            }
        }
    }

    /// Gives or takes it, and says whether that changed anything.
    pub fn put(&self, driver: &'static Driver, given: bool) -> Result<bool> {
        match &self.pool {
            None if given => self.enable(driver),
            None => self.disable(driver),
            Some(pool) => {
                let before = self.is_given(driver)?;
                let _relaxed = driver.relax_capture().map_err(|f| self.failed(driver, f))?;
                let put = driver.set_pool_access(pool.native(), self.peer.facts().device, given);
                put.map(|()| before != given).map_err(|f| self.failed(driver, f))
            }
        }
    }

    fn enable(&self, driver: &'static Driver) -> Result<bool> {
        let target = self.target.context(driver)?;
        let _entered = self.peer.enter_relaxed(driver)?;
        let changed = match driver.enable_peer(target) {
            Ok(()) => true,
            // By other code, or by an earlier call.
            Err(f) if f.is_peer_enabled_already() => false,
            Err(f) if f.is_peer_limit() => return Err(self.at_the_limit(driver, f)),
            Err(f) => return Err(self.failed(driver, f)),
        };
        // From now on captures begin with the answer, since nothing is to be made for the question any more.
        let _ = self.is_given(driver);
        Ok(changed)
    }

    fn disable(&self, driver: &'static Driver) -> Result<bool> {
        let _relaxed = driver.relax_capture().map_err(|f| self.failed(driver, f))?;
        let (Some(target), Some(peer)) =
            (Existing::of(driver, self.target)?, Existing::of(driver, self.peer)?)
        else {
            return Ok(false);
        };
        let _current = driver.enter(peer.context).map_err(|f| self.failed(driver, f))?;
        match driver.disable_peer(target.context) {
            Ok(()) => Ok(true),
            Err(f) if f.is_peer_not_enabled() => Ok(false),
            Err(f) => Err(self.failed(driver, f)),
        }
    }

    #[cold]
    fn failed(&self, driver: &Driver, failure: Failure) -> Error {
        if self.target.notice(driver, failure) {
            return self.target.lost_error().with_driver_code(failure.code);
        }
        let mut error = self.peer.error(driver, failure);
        if failure.is_peer_unsupported() {
            error.status = Status::NotSupported;
        }
        error.context(self.describe())
    }

    #[cold]
    fn at_the_limit(&self, driver: &Driver, failure: Failure) -> Error {
        let known = |device: &'static Device| {
            let is_given = |target, peer| reaches(driver, Memory::Plain, target, peer).unwrap_or(false);
            let is_peer = |other: &&'static Device| {
                other.is_primary()
                    && other.ordinal() != device.ordinal()
                    && (is_given(device, other) || is_given(other, device))
            };
            format!("{} of \"{}\"", device::all().into_iter().filter(is_peer).count(), device.alias())
        };
        error!(
            PeerLimit,
            "{}: one of the two has as many peers as a GPU can have, other libraries' included; enabled now are {} and {}, in either direction. Switch one off that is not needed with warp_peer_access_set_enabled(); copies work without it",
            self.describe(),
            known(self.target),
            known(self.peer)
        )
        .with_driver_code(failure.code)
    }
}
