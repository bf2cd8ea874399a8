//! What an address is: from the ledger when the block is ours, else from the driver.

use super::{Kind, LEDGER, Rule, caching, custom, owner_of};
use crate::device::{self, Device};
use crate::driver::{MemoryClass, RawPool};
use crate::error::Result;
use crate::handle::Handle;
use crate::ledger::Record;
use crate::runtime;
use crate::stream;
use std::ffi::CStr;

/// The answer about one address.
pub struct PointerInfo {
    /// First address and size of the block; 0 where unknown.
    pub base: u64,
    pub size: u64,
    pub alignment: u64,
    pub kind: Kind,
    pub rule: Rule,
    /// `None` for an address that belongs to no device of the table.
    pub device: Option<&'static Device>,
    /// The GPU's number, -1 for the CPU and where unknown.
    pub ordinal: i32,
    /// Id of the stream that the block belongs to, 0 for none.
    pub stream_id: u64,
    pub context_id: u64,
    /// The pool that memory of other code came from, if it did.
    pub pool: Option<RawPool>,
    /// Whether the block is this library's, to be freed with it.
    pub owned: bool,
    /// Whether the context that it was made in died.
    pub lost: bool,
    pub tag: Option<&'static CStr>,
    /// The allocator of other code that made the block; 0 for none.
    pub allocator: Handle,
}

/// Describes the block that the address lies in.
#[inline(always)]
pub fn describe(address: u64) -> Result<PointerInfo> {
    runtime::require_once_live()?;
    match caching::find(address) {
        Some(record) => Ok(owned(&record)),
        None => describe_by_driver(address),
    }
}

#[inline(always)]
fn owned(record: &Record) -> PointerInfo {
    let (device, owner) = (device::at(record.device()), owner_of(record));
    let stream_id =
        if record.flags() & super::HOLDS_STREAM == 0 { 0 } else { stream::id_of(record.stream()) };
    PointerInfo {
        base: record.base(),
        size: record.size(),
        alignment: record.alignment(),
        kind: Kind::of_record(record),
        rule: Rule::of_record(record),
        device,
        ordinal: device.map_or(-1, Device::ordinal),
        stream_id,
        context_id: owner.map_or(0, Device::context_id),
        pool: None,
        owned: true,
        lost: owner.is_some_and(Device::is_lost),
        tag: if record.tag() == 0 { None } else { crate::tag::tag_name(record.tag()) },
        allocator: custom::handle_of(record),
    }
}

const UNKNOWN: PointerInfo = PointerInfo {
    base: 0,
    size: 0,
    alignment: 0,
    kind: Kind::Unknown,
    rule: Rule::Unknown,
    device: None,
    ordinal: -1,
    stream_id: 0,
    context_id: 0,
    pool: None,
    owned: false,
    lost: false,
    tag: None,
    allocator: 0,
};

/// The same as the driver alone knows it.
#[cold]
pub fn describe_by_driver(address: u64) -> Result<PointerInfo> {
    // Without a driver an address can only be unknown; that is an answer and no failure.
    let Ok(driver) = runtime::driver() else { return Ok(UNKNOWN) };
    let mut facts = driver.pointer_facts(address).map_err(|f| driver.error(f))?;
    // Where host memory is on the device depends on the context that is current; its own knows.
    if facts.class == MemoryClass::Host && facts.device_pointer == 0 && !facts.context.is_null() {
        let _current = driver.enter(facts.context).map_err(|f| driver.error(f))?;
        facts = driver.pointer_facts(address).map_err(|f| driver.error(f))?;
    }
    let (kind, rule) = match facts.class {
        MemoryClass::Unknown => return Ok(UNKNOWN),
        MemoryClass::Managed => (Kind::CudaManaged, Rule::Managed),
        // Registered memory that answers at another address on the device is not usable by its own.
        MemoryClass::Host if facts.device_pointer == address => (Kind::Pinned, Rule::Pinned),
        MemoryClass::Host => (Kind::Host, Rule::Pageable),
        MemoryClass::HostPool => (Kind::Pinned, Rule::Pool),
        MemoryClass::Device => (Kind::CudaDevice, Rule::Peer),
        MemoryClass::Pool => (Kind::CudaMempool, Rule::Pool),
        MemoryClass::Mapping => (Kind::CudaDevice, Rule::Mapping),
        MemoryClass::Graph => (Kind::CudaMempool, Rule::GraphFixed),
    };
    let device = if kind.is_host() {
        device::all().into_iter().next()
    } else {
        Some(facts.context)
            .filter(|context| !context.is_null())
            .and_then(|context| device::of_context(driver, context))
            .or_else(|| device::primary_of(facts.ordinal))
    };
    let context_id = if facts.context.is_null() { 0 } else { driver.context_id(facts.context).unwrap_or(0) };
    Ok(PointerInfo {
        base: facts.base,
        size: facts.size,
        kind,
        rule,
        device,
        ordinal: if kind.is_host() { -1 } else { facts.ordinal },
        context_id,
        pool: Some(facts.pool).filter(|pool| !pool.is_null()),
        ..UNKNOWN
    })
}

/// Whether an address that neither the ledger nor the driver knows is that of a block which was freed a short while ago, and
/// nothing that the CPU could touch has come there since.
pub fn was_freed(address: u64) -> bool {
    (LEDGER.is_recently_freed(address) || caching::is_kept(address)) && !is_readable(address)
}

/// Whether the CPU can read a byte there; where the kernel does not let us ask, it is taken for so.
fn is_readable(address: u64) -> bool {
    let mut byte = 0u8;
    let here = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let there = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(address as usize), iov_len: 1 };
    // SAFETY: one byte of our own is written; an address that cannot be read is an error code.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const here, 1, &raw const there, 1, 0) };
    read == 1 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}
