//! An allocator that gives the driver a hint for each block of managed memory that it hands on.

use super::{Advice, advise, prefetch};
use crate::allocator::{Request, Source, Stacked, Traits, Upstream};
use crate::device::Device;
use crate::error::{Result, fail};
use crate::kind::Kind;
use crate::log::log;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the driver is told of new memory. Where no device is named it is the one that asks for the memory.
pub enum Hint {
    /// Send it to a device, on the stream that the memory belongs to.
    Prefetch(Option<&'static Device>),
    Advise(Advice, Option<&'static Device>),
}

pub struct Hinting {
    upstream: Upstream,
    hint: Hint,
    /// Whether it was said that a hint was refused: memory without one is as good.
    told: AtomicBool,
}

impl Hinting {
    pub fn new(upstream: Upstream, hint: Hint) -> Result<Hinting> {
        let traits = upstream.traits();
        if traits.host || traits.kind.is_some_and(|kind| kind != Kind::CudaManaged) {
            fail!(
                InvalidArgument,
                "hints are for managed memory, and {} makes {}; build on warp_allocator_get_builtin(WARP_MEMORY_CUDA_MANAGED)",
                upstream.title(),
                traits.kind.map_or("host memory", Kind::name)
            );
        }
        if let Hint::Advise(advice, _) = hint
            && advice.is_undoing()
        {
            fail!(
                InvalidArgument,
                "new memory has no advice that could be taken back; use one of WARP_MANAGED_ADVICE_SET_…"
            );
        }
        Stacked::require_room(&[&upstream])?;
        Ok(Hinting { upstream, hint, told: AtomicBool::new(false) })
    }

    fn give_hint(&self, address: u64, request: &Request<'_>) -> Result<()> {
        match self.hint {
            Hint::Prefetch(target) => {
                prefetch(address, request.size, target.unwrap_or(request.device), request.stream)
            }
            Hint::Advise(advice, device) => {
                advise(address, request.size, advice, device.unwrap_or(request.device))
            }
        }
    }
}

impl Source for Hinting {
    fn sort(&self) -> &'static str {
        match self.hint {
            Hint::Prefetch(_) => "prefetch",
            Hint::Advise(..) => "advise",
        }
    }

    fn traits(&self) -> Traits {
        // No capture takes managed memory, nor a prefetch.
        Traits { captures: false, ..self.upstream.traits() }
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        let address = self.upstream.allocate(request)?;
        if let Err(error) = self.give_hint(address, request)
            && !self.told.swap(true, Ordering::Relaxed)
        {
            log!(Warning, "{} gives no hints: {error}", self.sort());
        }
        Ok(address)
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        self.upstream.deallocate(address, request)
    }

    fn upstream(&self) -> Option<&Upstream> {
        Some(&self.upstream)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
