//! How pools begin and end: created, wrapped, named by handles, released.

use super::choice;
use super::table::{self, Properties};
use super::{Entered, Pool, RawPool};
use crate::device::Device;
use crate::driver::{Driver, Failure, MemoryClass, PoolForm};
use crate::error::{Error, Result, error, fail};
use crate::handle::{Handle, Object, Registry, Tag};
use crate::log::{self, log};
use crate::runtime;
use std::collections::HashSet;

/// What a name of a pool is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The handle of a device's own pool.
    Device,
    /// A handle that was given for a pool that was created or wrapped.
    Caller,
    /// What keeps a pool for a device that uses it.
    Use,
}

/// One name of a pool. While a call is inside of it the pool is not destroyed.
pub struct Named {
    pub(super) pool: &'static Pool,
    pub(super) origin: Origin,
}

impl Object for Named {
    const TAG: Tag = Tag::Mempool;

    fn retire(&self) {
        leave(self.pool);
    }
}

pub(super) static NAMES: Registry<Named> = Registry::new();

/// Gives one use of a pool back. With the last a pool that was created here is destroyed; the driver keeps its live blocks
/// until they are freed.
pub(super) fn leave(pool: &'static Pool) {
    // The pools of a forked child are its parent's.
    if runtime::is_forked() || !pool.leave() {
        return;
    }
    if pool.is_created()
        && let Ok(driver) = runtime::driver()
        && let Err(failure) = relaxed(driver, || driver.destroy_pool(pool.native()))
        && !failure.is_driver_gone()
    {
        log!(Error, "{} was not destroyed: {}", pool.name(), driver.describe(failure));
    }
    pool.done();
}

/// Makes a call that a capture elsewhere would count as unsafe.
pub(super) fn relaxed<R>(
    driver: &Driver,
    call: impl FnOnce() -> std::result::Result<R, Failure>,
) -> std::result::Result<R, Failure> {
    let _relaxed = driver.relax_capture()?;
    call()
}

/// Enters the pool that a handle names.
pub fn enter(handle: Handle) -> Result<Entered> {
    let inside = NAMES.enter(handle)?;
    Ok(Entered { pool: inside.pool, _inside: Some(inside) })
}

/// How a new pool should be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Form {
    /// 0 for no bound of its own.
    pub max_size: u64,
    pub release_threshold: u64,
    /// Bits of the handle types that its memory can be exported as.
    pub handle_types: u32,
}

/// The driver for a call about the pools of a device.
pub(super) fn driver_for(device: &Device, what: &str) -> Result<&'static Driver> {
    device.require_mempools(what)?;
    device.require_cuda(what)
}

/// Makes a pool. `named` has the slots of pools that records name.
pub fn create(device: &'static Device, form: Form, named: impl FnOnce() -> HashSet<u32>) -> Result<Handle> {
    let driver = driver_for(device, "creating a memory pool")?;
    // A bound that is none is not given to the driver, which works on a very large one for minutes.
    let max_size = if form.max_size >= device.facts().total_memory { 0 } else { form.max_size };
    let shape = PoolForm { handle_types: form.handle_types, max_size: max_size as usize };
    let native = relaxed(driver, || driver.create_pool(device.facts().device, shape))
        .map_err(|f| not_created(driver, device, form.handle_types, f))?;
    let made = || {
        if form.release_threshold != 0 {
            relaxed(driver, || driver.set_pool_threshold(native, form.release_threshold))
                .map_err(|f| device.error(driver, f).context("the release threshold of a new memory pool"))?;
        }
        let properties = Properties {
            native,
            device,
            is_created: true,
            is_of_device: false,
            handle_types: form.handle_types,
            max_size: form.max_size,
        };
        table::insert(&properties, named)
    };
    let pool = made().inspect_err(|_| {
        let _ = relaxed(driver, || driver.destroy_pool(native));
    })?;
    name(pool, Origin::Caller)
}

/// Names a pool that the caller has counted a user of, which is given back when it cannot be named.
pub(super) fn name(pool: &'static Pool, origin: Origin) -> Result<Handle> {
    NAMES.insert(Named { pool, origin }).inspect_err(|_| leave(pool))
}

#[cold]
fn not_created(driver: &Driver, device: &Device, handle_types: u32, failure: Failure) -> Error {
    // Where a handle type does not work the driver says no more than that a value is wrong, even if it lists the type.
    if handle_types != 0 && (failure.is_invalid_value() || failure.is_not_supported()) {
        return error!(
            NotSupported,
            "\"{}\" gives no memory pool whose memory can be exported as {} (the driver lists {:#x}); create the pool without handle types",
            device.alias(),
            show_handle_types(handle_types),
            device.facts().mempool_handle_types
        )
        .with_driver_code(failure.code);
    }
    device.error(driver, failure).context("creating a memory pool")
}

fn show_handle_types(types: u32) -> String {
    let known = [(1, "POSIX_FD (1)"), (8, "FABRIC (8)")];
    let names: Vec<_> = known.iter().filter(|(bit, _)| types & bit != 0).map(|(_, name)| *name).collect();
    names.join(" and ")
}

/// Names a pool of other code, which stays its owner's. One that is known already is the same pool under a further handle,
/// and a device's own is what it is.
pub fn wrap(
    device: &'static Device,
    native: RawPool,
    named: impl FnOnce() -> HashSet<u32>,
) -> Result<Handle> {
    let driver = driver_for(device, "wrapping a memory pool")?;
    if native.is_null() {
        fail!(InvalidArgument, "the memory pool to wrap is NULL");
    }
    // The device's own is known after this.
    choice::get(device)?;
    if let Some(pool) = table::find(native) {
        return wrap_known(device, pool);
    }
    let ordinal = prove(driver, device, native)?;
    if ordinal != device.ordinal() {
        fail!(
            InvalidArgument,
            "the memory pool {:p} gives memory of \"cuda:{ordinal}\", and \"{}\" was named; name its own device",
            native.0,
            device.alias()
        );
    }
    let properties =
        Properties { native, device, is_created: false, is_of_device: false, handle_types: 0, max_size: 0 };
    // Another thread may have wrapped it meanwhile.
    name(table::find_or_add(&properties, named)?, Origin::Caller)
}

fn wrap_known(device: &'static Device, pool: &'static Pool) -> Result<Handle> {
    let named = match pool.require_on(device) {
        Ok(()) if pool.is_of_device() => choice::own_handle(pool),
        Ok(()) => return name(pool, Origin::Caller),
        Err(error) => Err(error),
    };
    leave(pool);
    named
}

/// The GPU whose memory the pool gives, found out by an allocation on a stream that nobody else has: what the driver tells
/// of a pool does not say it.
fn prove(driver: &'static Driver, device: &'static Device, native: RawPool) -> Result<i32> {
    let _entered = device.enter_relaxed(driver)?;
    let error = |f: Failure| device.error(driver, f).context("wrapping a memory pool");
    let stream = driver.create_stream(true, 0).map_err(error)?;
    let facts = driver.alloc_from_pool(1, native, stream).and_then(|block| {
        let facts = driver.pointer_facts(block);
        // Once more where that fails: nobody else knows of the byte.
        let freed = driver.free_async(block, stream).or_else(|_| driver.free_async(block, stream));
        // What the pool took for this it gives back.
        let _ = driver.synchronize_stream(stream);
        freed.and(facts)
    });
    if let Err(f) = driver.destroy_stream(stream).or_else(|_| driver.destroy_stream(stream)) {
        log!(Error, "a stream that proved a memory pool was not destroyed: {}", driver.describe(f));
    }
    match facts {
        Ok(facts) if facts.class == MemoryClass::Pool && facts.pool == native => Ok(facts.ordinal),
        Ok(_) => fail!(
            InvalidArgument,
            "{:p} is no pool of device memory, and cannot be wrapped as one of \"{}\"",
            native.0,
            device.alias()
        ),
        Err(f) if f.is_invalid_value() => Err(error!(
            InvalidArgument,
            "{:p} is no memory pool that allocates: one that was destroyed, or was imported from another process, cannot be wrapped",
            native.0
        )
        .with_driver_code(f.code)),
        Err(f) => Err(error(f)),
    }
}

/// Makes a name stale. A pool of others may be destroyed by its owner from then on, so calls that other threads are inside of it
/// with are waited for.
pub(super) fn close(name: Handle) -> Result<()> {
    let closed = NAMES.close(name)?;
    let is_of_others = !closed.pool.is_created();
    drop(closed);
    if is_of_others && !runtime::is_forked() {
        NAMES.wait_for_retirement(name);
    }
    Ok(())
}

/// Makes a handle stale. Blocks of the pool stay good.
pub fn release(handle: Handle) -> Result<()> {
    log::after(|| {
        let named = NAMES.enter(handle)?;
        let (alias, way) =
            (named.pool.device().alias(), "warp_mempool_use() has the device allocate from another");
        match named.origin {
            Origin::Device => {
                fail!(
                    InvalidArgument,
                    "the pool belongs to the device \"{alias}\" and cannot be released; {way}"
                )
            }
            Origin::Use => fail!(
                InvalidArgument,
                "the pool was released before and is kept by \"{alias}\", which uses it; {way}"
            ),
            Origin::Caller => {}
        }
        drop(named);
        close(handle)
    })
}

/// Makes every handle stale and has every device allocate from its own pool again. Pools that were created are destroyed.
pub fn dismantle() {
    choice::dismantle();
    drop(NAMES.close_all());
}

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe {
        NAMES.mend_in_child();
        table::mend_in_child();
        choice::mend_in_child();
    }
}
