//! What every copy and fill does around its calls of the driver: find the stream, enter its context, see whether it is captured,
//! note what is used, and look afterwards whether a capture began meanwhile.

use super::end::End;
use super::fill::keep_pattern;
use crate::alloc;
use crate::capture::{self, Graph};
use crate::device::Device;
use crate::driver::{ContextGuard, Driver, Failure, RelaxedCapture};
use crate::error::{Error, Result, fail};
use crate::handle::Entered;
use crate::stream::{self, Stream};
use std::sync::Arc;

/// A stream on which something is put by this call.
pub struct Put<'a> {
    pub driver: &'static Driver,
    pub stream: &'a Entered<Stream>,
    /// What is put on the stream becomes a part of a graph.
    pub is_captured: bool,
    /// That graph, where it is known.
    pub graph: Option<Entered<Graph>>,
    begun: u64,
    // The mode is put back first.
    relaxed: Option<RelaxedCapture<'static>>,
    _context: ContextGuard<'static>,
}

impl<'a> Put<'a> {
    pub fn on(stream: &'a Entered<Stream>, what: &str) -> Result<Put<'a>> {
        let device = stream.device();
        let driver = device.require_cuda(what)?;
        let context = device.enter(driver)?;
        // May call back, so it comes before the question.
        alloc::poll_seldom();
        let begun = stream::begun();
        let is_captured = stream.is_capturing(driver).map_err(|f| device.error(driver, f))?;
        let mut put =
            Put { driver, stream, is_captured, graph: None, begun, relaxed: None, _context: context };
        if is_captured {
            put.relax()?;
            put.graph = capture::of_stream(driver, stream)?;
        }
        Ok(put)
    }

    /// Before calls that the driver counts as unsafe while something is captured. What is put on streams is none of them.
    pub fn relax(&mut self) -> Result<()> {
        if self.relaxed.is_none() {
            let relaxed = self.driver.relax_capture();
            self.relaxed = Some(relaxed.map_err(|f| self.device().error(self.driver, f))?);
        }
        Ok(())
    }

    pub fn device(&self) -> &'static Device {
        self.stream.device()
    }

    pub fn failed(&self, failure: Failure, what: &str) -> Error {
        self.device().error(self.driver, failure).context(what)
    }

    /// An error for memory that does not exist yet.
    pub fn require_existing<'e>(&self, ends: impl Iterator<Item = &'e End>) -> Result<()> {
        for block in ends.filter_map(|end| end.block.as_ref()) {
            block.require_existing(self.graph.as_ref())?;
        }
        Ok(())
    }

    /// Notes that what is put uses these. To be called before: a call that fails half-way has used them all the same.
    pub fn note_use<'e>(&self, ends: impl Iterator<Item = &'e End>) -> Result<()> {
        for end in ends {
            end.note_use(self.stream, self.graph.as_ref())?;
        }
        Ok(())
    }

    /// After work was put on a stream that was not captured: another thread may have begun a capture there meanwhile. What may
    /// be a part of its graph is kept by it, and the call is told. `read` is what the driver reads of ours.
    #[inline]
    pub fn settle<'e>(
        self,
        used: impl Iterator<Item = &'e End>,
        read: Option<&Arc<Vec<u8>>>,
    ) -> Result<Option<Entered<Graph>>> {
        if self.graph.is_none() && stream::began_since(self.begun) {
            self.settle_begun(used, read)?;
        }
        Ok(self.graph)
    }

    /// As `settle`, of memory that this call took for itself and is about to give back.
    pub fn settle_temporary(&self, address: u64) {
        if self.graph.is_none() && stream::began_since(self.begun) {
            for graph in capture::began_meanwhile(self.stream, self.begun).graphs {
                let _ = alloc::record_use_by(address, &graph);
            }
        }
    }

    #[cold]
    fn settle_begun<'e>(
        &self,
        used: impl Iterator<Item = &'e End>,
        read: Option<&Arc<Vec<u8>>>,
    ) -> Result<()> {
        let meanwhile = capture::began_meanwhile(self.stream, self.begun);
        let used: Vec<_> = used.filter(|end| end.block.is_some()).collect();
        for graph in meanwhile.graphs {
            for end in &used {
                // One that its caller freed during the call is the caller's fault.
                let _ = alloc::record_use_by(end.address, &graph);
            }
            if let Some(bytes) = read {
                keep_pattern(bytes, &graph);
            }
        }
        if meanwhile.is_refused { Err(capture::fell_into_another(self.stream)) } else { Ok(()) }
    }
}

/// The stream that was asked for, if it is a GPU's, else the current one of the memory's home.
#[inline]
pub fn take_stream<'a>(
    asked: Option<&'a Entered<Stream>>,
    home: &'static Device,
    current: &'a mut Option<Entered<Stream>>,
) -> Result<&'a Entered<Stream>> {
    match asked {
        Some(stream) if stream.device().is_cuda() => Ok(stream),
        Some(_) => fail!(
            InvalidArgument,
            "memory of \"{}\" is not reached by a stream of the CPU; pass a stream of that device, or none",
            home.alias()
        ),
        None => Ok(current.insert(stream::current(home)?)),
    }
}
