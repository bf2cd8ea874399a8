//! Which GPUs may touch a pool's memory, asked of and told to one pool.

use super::Pool;
use crate::device::Device;
use crate::error::{Result, fail};
use crate::runtime;

impl Pool {
    /// Whether kernels of the device may touch the pool's memory now. The CPU may not.
    pub fn is_accessible_to(&self, peer: &Device) -> Result<bool> {
        if !peer.is_cuda() || self.is_on(peer) {
            return Ok(peer.is_cuda());
        }
        self.ask("the access to a pool", |driver| driver.pool_access(self.native(), peer.facts().device))
    }

    /// Lets kernels of the device touch the pool's memory, that which is there included, or no longer. Taking from a device
    /// what it cannot have is nothing, and a GPU keeps the access to its own.
    pub fn set_accessible_to(&self, peer: &Device, access: bool) -> Result<()> {
        if self.is_on(peer) {
            return Ok(());
        }
        let own = self.device();
        if !peer.is_cuda() && access {
            fail!(
                InvalidArgument,
                "the CPU cannot be given access to a memory pool of \"{}\"; copy, or use page-locked or managed memory",
                own.alias()
            );
        }
        let driver = runtime::driver()?;
        let can = peer.is_cuda()
            && driver
                .can_access_peer(peer.facts().device, own.facts().device)
                .map_err(|f| own.error(driver, f))?;
        match (can, access) {
            (true, _) => self.ask("the access to a pool", |driver| {
                driver.set_pool_access(self.native(), peer.facts().device, access)
            }),
            (false, true) => fail!(
                NotSupported,
                "\"{}\" cannot be given access to memory of \"{}\": the GPUs are no peers; copies between them go through the host",
                peer.alias(),
                own.alias()
            ),
            (false, false) => Ok(()),
        }
    }
}
