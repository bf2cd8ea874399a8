//! Memory straight from an allocator, for other allocators to build on and for frameworks that keep their own accounts: it is
//! given back to the allocator that made it, and is no block of the library's ledger. What the built-in allocators have out in
//! this way is in `RESERVES`, what another has is in its own book.

use super::custom;
use super::free::{self, FreeOptions};
use super::{Kind, Request, builtin_of, kind_by, owed};
use crate::allocator::{self, Allocator, Source, Traits, flags};
use crate::device::{self, Device};
use crate::error::{Result, error, fail};
use crate::fork::Lock;
use crate::handle::{Entered, Handle};
use crate::ledger::Ledger;
use crate::runtime;
use std::any::Any;

/// What the built-in allocators gave directly, and have not got back.
pub static RESERVES: Ledger = Ledger::new();

/// A built-in allocator as one of many; of the unknown kind what each GPU has switched on.
struct Builtin(Kind);

impl Builtin {
    fn made(&self) -> Option<Kind> {
        Some(self.0).filter(|kind| *kind != Kind::Unknown)
    }
}

impl Source for Builtin {
    fn sort(&self) -> &'static str {
        "built-in"
    }

    fn traits(&self) -> Traits {
        Traits {
            host: self.0.is_host(),
            // Where it is plain memory by then, the request is refused then.
            captures: matches!(self.0, Kind::CudaMempool | Kind::Unknown),
            // Frees go where the streams that used the memory are done.
            ordered: true,
            any_stream: true,
            kind: self.made(),
        }
    }

    fn allocate(&self, request: &allocator::Request<'_>) -> Result<u64> {
        let allocator::Request { device, size, alignment, stream, tag, .. } = *request;
        let order = Request { size, alignment, stream, tag, kind: Some(self.0), ..Request::default() };
        order.check(device)?;
        let kind = super::kind_for(device, order.kind, None)?;
        builtin_of(kind, order.order(device, &RESERVES))
    }

    fn deallocate(&self, address: u64, request: &allocator::Request<'_>) -> Result<()> {
        let options = FreeOptions {
            size: Some(request.size),
            kind: self.made(),
            stream: request.stream,
            is_lost: request.flags & flags::DEVICE_LOST != 0,
            ..FreeOptions::default()
        };
        free::free_in(&RESERVES, address, &options)
    }

    fn builtin(&self) -> Option<Kind> {
        Some(self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The built-in allocators by their kinds, 0 for one that nobody asked for.
static HANDLES: Lock<[Handle; Kind::ALL.len()]> = Lock::new([0; Kind::ALL.len()]);

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    RESERVES.after_fork_in_child();
    // SAFETY: the caller's promise; handles are numbers, and those that were written stay good.
    unsafe { HANDLES.keep_in_child([0; Kind::ALL.len()]) };
}

/// The allocator of what the calling thread allocates on the device and that names nothing.
pub fn effective_allocator(device: &'static Device) -> Result<Handle> {
    match allocator::installed(device) {
        0 => builtin_allocator(super::kind_for(device, None, None)?),
        handle => Ok(handle),
    }
}

/// The device that is meant where none is named: the CPU for host memory, else that of the current context.
pub fn device_of_context(host: bool) -> Result<&'static Device> {
    if host {
        return device::all()
            .into_iter()
            .next()
            .ok_or_else(|| error!(NoSuchDevice, "there is no device, not even the CPU"));
    }
    let driver = runtime::driver_of_gpus()?;
    let context = driver.current_context().map_err(|f| driver.error(f))?;
    if context.is_null() {
        fail!(
            InvalidArgument,
            "no device is named and the calling thread has no current context; name a device, or make a context current"
        );
    }
    device::of_context(driver, context).ok_or_else(|| {
        error!(
            InvalidArgument,
            "no device is named and the current context is not one that is known; name a device, or register the context with warp_device_from_context"
        )
    })
}

/// The handle of a built-in allocator: the same as long as the process lives.
pub fn builtin_allocator(kind: Kind) -> Result<Handle> {
    let mut handles = HANDLES.write();
    let handle = &mut handles[kind as usize];
    if *handle == 0 {
        let name = if kind == Kind::Unknown { "default" } else { kind.name() };
        let name = std::ffi::CString::new(name).unwrap_or_default();
        *handle = allocator::create(Box::new(Builtin(kind)), Some(&name))?;
    }
    Ok(*handle)
}

/// Memory of the allocator itself. Size 0 is success with address 0, and nobody is asked.
pub fn allocate_directly(
    from: &Entered<Allocator>,
    device: &'static Device,
    request: Request<'_>,
) -> Result<u64> {
    runtime::require_live()?;
    request.check(device)?;
    let kind = kind_by(device, &request, from)?;
    if request.size == 0 {
        return Ok(0);
    }
    match from.builtin() {
        Some(_) => builtin_of(kind, request.order(device, &RESERVES)),
        None => custom::allocate(request.order(device, from.book()?), from),
    }
}

/// Gives back what `allocate_directly` gave, also when the allocator's handle is stale by now. NULL is success.
pub fn deallocate_directly(handle: Handle, address: u64, options: &FreeOptions<'_>) -> Result<()> {
    let from = allocator::hold(handle)?;
    if address == 0 {
        return Ok(());
    }
    let kind = from.builtin().filter(|kind| *kind != Kind::Unknown);
    let options = FreeOptions { kind, ..*options };
    let freed = match from.builtin() {
        Some(_) => free::free_in(&RESERVES, address, &options),
        None => match from.book_if_any() {
            Some(book) => free::free_in(book, address, &options),
            None if options.is_lost => Ok(()),
            None => Err(error!(
                UnknownPointer,
                "{address:#x} is not of {}, which has nothing out directly; nothing was freed",
                from.title()
            )),
        },
    };
    freed.map_err(|mut error| {
        if error.status == crate::error::Status::UnknownPointer && super::caching::find(address).is_some() {
            error.message = format!(
                "{address:#x} is a block of the library, not memory straight from {}; free it with warp_free",
                from.title()
            );
        }
        error
    })
}

/// Gives memory that an allocator keeps back to where it came from; says how many bytes.
pub fn trim(of: &Entered<Allocator>, device: &'static Device) -> Result<u64> {
    runtime::require_live()?;
    owed::deliver_all();
    of.trim(&allocator::Request { device, size: 0, alignment: 1, stream: None, tag: 0, flags: 0 })
}
