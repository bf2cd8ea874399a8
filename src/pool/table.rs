//! Every pool of the process by its slot. Looked at without a lock; pools come in under one.

use super::{Kept, Pool};
use crate::device::Device;
use crate::driver::RawPool;
use crate::error::{Result, fail};
use crate::fork::Lock;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// As many pools as there can be at a time, with those that records still name.
const CAPACITY: usize = 1 << 16;

/// Slots are looked through for one to be used again when so many wait: that takes a walk of the ledger.
const WORTH_A_WALK: usize = 16;

/// By slot less one. Untouched pages of it cost nothing.
static POOLS: [AtomicPtr<Pool>; CAPACITY] = [const { AtomicPtr::new(std::ptr::null_mut()) }; CAPACITY];
static COUNT: AtomicU32 = AtomicU32::new(0);
static CHANGING: Lock<()> = Lock::new(());

/// What a pool is, when it comes in.
pub(super) struct Properties {
    pub native: RawPool,
    pub device: &'static Device,
    pub is_created: bool,
    pub is_of_device: bool,
    pub handle_types: u32,
    pub max_size: u64,
}

/// The pool that a record's slot names: `Record::pool()`, of which 0 is none.
#[inline]
pub fn of_record(slot: u32) -> Option<&'static Pool> {
    let entry = POOLS.get((slot as usize).checked_sub(1)?)?;
    // SAFETY: set once, to a leaked box.
    unsafe { entry.load(Ordering::Acquire).as_ref() }
}

fn all() -> impl Iterator<Item = &'static Pool> {
    (1..=COUNT.load(Ordering::Acquire)).filter_map(of_record)
}

/// The pools of the device's GPU that are not over, kept.
pub fn all_on(device: &'static Device) -> impl Iterator<Item = Kept> {
    all().filter_map(Pool::keep).filter(|pool| pool.is_on(device))
}

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub(super) unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe { CHANGING.replace_in_child(()) };
}

/// The pool of that native one, with one more user; a new one with one where it is not known. A device's own has one user that
/// stays, so that it is never over. `named` has the slots that records name.
pub(super) fn find_or_add(
    properties: &Properties,
    named: impl FnOnce() -> HashSet<u32>,
) -> Result<&'static Pool> {
    let _changing = CHANGING.write();
    let Some(pool) = known(properties.native) else {
        return match former(properties) {
            Some(pool) => Ok(pool),
            None => add(properties, named),
        };
    };
    // A wrapped pool may turn out to be what a device allocates from.
    if properties.is_of_device && pool.is_of_device.swap(true, Ordering::Relaxed) {
        pool.leave();
    }
    Ok(pool)
}

/// The known pool of that native one, with one more user.
pub(super) fn find(native: RawPool) -> Option<&'static Pool> {
    let _changing = CHANGING.write();
    known(native)
}

fn known(native: RawPool) -> Option<&'static Pool> {
    all().find(|pool| pool.native() == native && !pool.is_past() && pool.join())
}

/// What was a device's own in a former life and is it again, as most are: the driver's default ones are never destroyed. Its
/// one user has stayed.
fn former(properties: &Properties) -> Option<&'static Pool> {
    let is_it = |pool: &&'static Pool| {
        properties.is_of_device
            && pool.native() == properties.native
            && pool.is_past()
            && pool.is_on(properties.device)
    };
    let pool = all().find(is_it)?;
    pool.is_past.store(false, Ordering::Release);
    Some(pool)
}

/// As if records named all of them, so that none is used again.
pub(super) fn every_slot() -> HashSet<u32> {
    all().map(Pool::slot).collect()
}

/// A pool that was made just now, with one user.
pub(super) fn insert(properties: &Properties, named: impl FnOnce() -> HashSet<u32>) -> Result<&'static Pool> {
    let _changing = CHANGING.write();
    add(properties, named)
}

fn add(properties: &Properties, named: impl FnOnce() -> HashSet<u32>) -> Result<&'static Pool> {
    if let Some(pool) = to_be_used_again(named) {
        pool.native.store(properties.native.0, Ordering::Relaxed);
        pool.device.store(u32::from(properties.device.index()), Ordering::Relaxed);
        pool.is_created.store(properties.is_created, Ordering::Relaxed);
        pool.is_of_device.store(properties.is_of_device, Ordering::Relaxed);
        pool.handle_types.store(properties.handle_types, Ordering::Relaxed);
        pool.max_size.store(properties.max_size, Ordering::Relaxed);
        pool.handle.store(0, Ordering::Relaxed);
        pool.is_over.store(false, Ordering::Relaxed);
        pool.users.store(1, Ordering::Release);
        return Ok(pool);
    }
    let index = COUNT.load(Ordering::Relaxed);
    let Some(entry) = POOLS.get(index as usize) else {
        fail!(
            OutOfMemory,
            "{CAPACITY} memory pools are in use or have live blocks; release some, and free theirs"
        );
    };
    let pool: &'static Pool = Box::leak(Box::new(Pool {
        slot: index + 1,
        native: AtomicPtr::new(properties.native.0),
        device: AtomicU32::new(u32::from(properties.device.index())),
        users: AtomicU32::new(1),
        is_over: AtomicBool::new(false),
        is_created: AtomicBool::new(properties.is_created),
        is_of_device: AtomicBool::new(properties.is_of_device),
        is_past: AtomicBool::new(false),
        handle_types: AtomicU32::new(properties.handle_types),
        max_size: AtomicU64::new(properties.max_size),
        handle: AtomicU64::new(0),
    }));
    entry.store(std::ptr::from_ref(pool).cast_mut(), Ordering::Release);
    COUNT.store(index + 1, Ordering::Release);
    Ok(pool)
}

/// The first pool that is over and that no record names.
fn to_be_used_again(named: impl FnOnce() -> HashSet<u32>) -> Option<&'static Pool> {
    let waiting: Vec<_> = all().filter(|pool| pool.is_over.load(Ordering::Acquire)).collect();
    if waiting.len() < WORTH_A_WALK {
        return None;
    }
    // After the question which are over: whoever was inside of one has entered its block by then.
    let named = named();
    waiting.into_iter().find(|pool| !named.contains(&pool.slot))
}

impl Pool {
    /// Counts one more user, unless it is over.
    pub(super) fn join(&self) -> bool {
        self.users
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |users| (users != 0).then(|| users + 1))
            .is_ok()
    }

    /// Counts one user less. True for the last: what is to be done to the pool is then the caller's alone, and `done` with it.
    pub(super) fn leave(&self) -> bool {
        self.users.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Nothing of the pool is going on any more.
    pub(super) fn done(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}
