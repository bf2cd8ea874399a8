//! Managed memory on the move: sent to a device in a stream's order, hints for where it should be, and what the driver tells of
//! both. It may be any managed memory, of this library or of other code. The driver knows all of it page by page; nothing is
//! kept here.

mod hinting;

pub use crate::driver::Advice;
pub use hinting::{Hint, Hinting};

use crate::alloc::{self, Kind};
use crate::device::{self, Device};
use crate::driver::Driver;
use crate::error::{Result, error, fail};
use crate::handle::Entered;
use crate::runtime;
use crate::stream::{self, Stream};

/// The place that is none, as the driver numbers it.
pub const NOWHERE: i32 = -2;

/// A range of managed memory inside of one block.
struct Range {
    address: u64,
    size: u64,
    /// The GPU whose context it was made in.
    home: &'static Device,
}

impl Range {
    /// The range, which goes to the end of its block when no size is given. `what` says what was asked of it.
    fn find(address: u64, size: u64, what: &str) -> Result<Range> {
        if address == 0 {
            fail!(InvalidArgument, "{what} is asked for NULL; pass an address in a block of managed memory");
        }
        let block = alloc::find(address);
        if let Some(lost) = block.as_ref().and_then(alloc::Block::lost) {
            return Err(lost.lost_error());
        }
        // A block of ours is told without the driver.
        let info = alloc::describe(address)?;
        if info.kind == Kind::Unknown && !info.owned {
            runtime::driver()?;
            fail!(
                UnknownPointer,
                "{what} needs managed memory, and {address:#x} lies in no block that is known{}; pass memory that was allocated with WARP_MEMORY_CUDA_MANAGED and not freed",
                if alloc::was_freed(address) { " any more: it was freed before" } else { "" }
            );
        }
        if info.kind != Kind::CudaManaged {
            fail!(
                InvalidArgument,
                "{what} needs managed memory, and the block of {} bytes at {:#x} is {} memory; allocate it with WARP_MEMORY_CUDA_MANAGED",
                info.size,
                info.base,
                info.kind.name()
            );
        }
        let rest = info.size - (address - info.base);
        if size > rest {
            fail!(
                InvalidArgument,
                "{what}: {size} bytes at {address:#x} pass the end of the block of {} bytes at {:#x} by {}; a size of 0 goes to its end",
                info.size,
                info.base,
                size - rest
            );
        }
        let Some(home) = info.device else {
            fail!(
                NoSuchDevice,
                "{what}: {address:#x} is managed memory of GPU {}, which is not in the table",
                info.ordinal
            )
        };
        runtime::driver()?;
        home.require_present()?;
        Ok(Range { address, size: if size == 0 { rest } else { size }, home })
    }

    /// Asks the driver, in the context that the memory belongs to, whatever is captured.
    fn ask<R>(
        &self,
        what: &str,
        ask: impl FnOnce(&'static Driver) -> std::result::Result<R, crate::driver::Failure>,
    ) -> Result<R> {
        let driver = runtime::driver()?;
        let _entered = self.home.enter_relaxed(driver)?;
        ask(driver).map_err(|f| self.home.error(driver, f).context(what))
    }
}

/// An error unless managed memory can be moved to or by the GPU while others look at it.
fn require_concurrent(device: &Device, what: &str) -> Result<()> {
    device.require_present()?;
    let (managed, concurrent) = (device.facts().managed_memory, device.facts().concurrent_managed_access);
    if managed && concurrent {
        return Ok(());
    }
    let (lacks, hence) = if managed {
        (
            "concurrent managed access (is_concurrent_managed_access_supported)",
            "there the driver itself moves managed memory when work begins; leave the call out, or use another GPU",
        )
    } else {
        ("managed memory (is_managed_memory_supported)", "name a GPU that has it")
    };
    fail!(NotSupported, "{what}: \"{}\" lacks {lacks}; {hence}", device.alias())
}

/// A device as a place for managed memory.
fn place(device: &Device, what: &str) -> Result<i32> {
    if device.is_cuda() {
        require_concurrent(device, what)?;
    }
    Ok(device.ordinal())
}

const PREFETCH: &str = "a prefetch";

/// Has the memory moved to a device, in the order of the stream: the one given, else the current one of the target, or of the
/// memory's own GPU when it goes to the CPU.
pub fn prefetch(
    address: u64,
    size: u64,
    target: &'static Device,
    stream: Option<&Entered<Stream>>,
) -> Result<()> {
    let range = Range::find(address, size, PREFETCH)?;
    let place = place(target, PREFETCH)?;
    let worker = match stream {
        Some(stream) => stream.device(),
        None if target.is_cuda() => target,
        None => range.home,
    };
    if !worker.is_cuda() {
        fail!(
            InvalidArgument,
            "a prefetch is work of a GPU, and the stream is the CPU's; pass a stream of a GPU, or none"
        );
    }
    require_concurrent(worker, PREFETCH)?;
    let mut current = None;
    let stream = match stream {
        Some(stream) => stream,
        None => current.insert(stream::current(worker)?),
    };
    let driver = runtime::driver()?;
    let _context = stream.enter_context(driver)?;
    // May call back, so it comes before the question.
    alloc::poll();
    stream.refuse_capture(driver, PREFETCH)?;
    let _relaxed = driver.relax_capture().map_err(|f| worker.error(driver, f))?;
    // Before: a call that fails half-way has used it all the same.
    alloc::record_use(range.address, stream);
    stream.outside_captures(driver, PREFETCH, || {
        driver.prefetch(range.address, range.size as usize, place, stream.native())
    })
}

/// Gives the driver a hint for the memory. Those that name no place take no notice of the device.
pub fn advise(address: u64, size: u64, advice: Advice, device: &'static Device) -> Result<()> {
    const ADVISE: &str = "advice";
    let range = Range::find(address, size, ADVISE)?;
    let place = match advice {
        Advice::SetPreferredLocation | Advice::SetAccessedBy | Advice::UnsetAccessedBy => {
            place(device, ADVISE)?
        }
        Advice::SetReadMostly | Advice::UnsetReadMostly | Advice::UnsetPreferredLocation => -1,
    };
    range.ask("advice for managed memory (the driver takes none for that of pools)", |driver| {
        driver.advise(range.address, range.size as usize, advice, place)
    })
}

/// A hint by its number.
pub fn advice_of(number: i32) -> Result<Advice> {
    Advice::ALL
        .into_iter()
        .find(|advice| *advice as i32 == number)
        .ok_or_else(|| error!(InvalidArgument, "{number} is no advice; use a WARP_MANAGED_ADVICE_… constant"))
}

/// What holds for all of a range.
pub struct State {
    pub is_read_mostly: bool,
    pub preferred: Place,
    pub last_prefetch: Place,
}

/// A place as it was told.
pub struct Place {
    /// The GPU's, -1 for the CPU, `NOWHERE`.
    pub ordinal: i32,
    pub device: Option<&'static Device>,
}

impl Place {
    fn of(ordinal: i32) -> Place {
        let device = match ordinal {
            -1 => device::all().into_iter().next(),
            ordinal => device::primary_of(ordinal),
        };
        Place { ordinal, device }
    }
}

const QUESTION: &str = "a question about managed memory";

/// What the driver was told of the memory.
pub fn state(address: u64, size: u64) -> Result<State> {
    let range = Range::find(address, size, QUESTION)?;
    let told = range.ask(QUESTION, |driver| driver.managed_state(range.address, range.size as usize))?;
    Ok(State {
        is_read_mostly: told.read_mostly,
        preferred: Place::of(told.preferred),
        last_prefetch: Place::of(told.last_prefetch),
    })
}

/// Whether the driver was told that all of the memory is accessed by the device.
pub fn is_accessed_by(address: u64, size: u64, device: &'static Device) -> Result<bool> {
    let range = Range::find(address, size, QUESTION)?;
    range.ask(QUESTION, |driver| {
        driver.managed_is_accessed_by(range.address, range.size as usize, device.ordinal())
    })
}
