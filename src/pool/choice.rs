//! Which pool a device allocates from: its own, or one that it was told to use.

use super::lives::{self, NAMES, Origin, driver_for};
use super::table::{self, Properties};
use super::{Entered, Pool};
use crate::device::{self, Device, PerDevice};
use crate::error::Result;
use crate::fork::Lock;
use crate::handle::{self, Handle, Tag};
use crate::{log, thread};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// A device's choice. Nothing is known before the first use.
struct Choice {
    /// The device's own pool, while it allocates from that. It is there for good and need not be entered.
    plain: AtomicPtr<Pool>,
    /// The device's own pool.
    own: AtomicPtr<Pool>,
    /// What keeps the pool that the device was told to use, to be entered; 0 for its own.
    told: AtomicU64,
    /// The handle that it was told by.
    by: AtomicU64,
    changing: Lock<()>,
}

impl Choice {
    fn new() -> Choice {
        Choice {
            plain: AtomicPtr::new(std::ptr::null_mut()),
            own: AtomicPtr::new(std::ptr::null_mut()),
            told: AtomicU64::new(0),
            by: AtomicU64::new(0),
            changing: Lock::new(()),
        }
    }

    #[inline]
    fn plain(&self) -> Option<&'static Pool> {
        // SAFETY: NULL, or a pool, which is never freed.
        unsafe { self.plain.load(Ordering::Acquire).as_ref() }
    }

    /// Has the device allocate from its own pool, under the lock. What kept another comes back, to be closed.
    fn go_home(&self) -> Handle {
        self.plain.store(self.own.load(Ordering::Relaxed), Ordering::Release);
        self.told.swap(0, Ordering::AcqRel)
    }

    /// Has the device allocate from what `told` keeps, under the lock.
    fn go_to(&self, told: Handle, by: Handle) -> Handle {
        self.by.store(by, Ordering::Relaxed);
        let former = self.told.swap(told, Ordering::AcqRel);
        self.plain.store(std::ptr::null_mut(), Ordering::Release);
        former
    }

    /// The pool that the device was told to use; `None` when it is its own, or is being changed, or nothing was asked yet.
    fn enter_told(&self) -> Option<Entered> {
        let told = self.told.load(Ordering::Acquire);
        if told == 0 {
            return None;
        }
        let inside = NAMES.enter_as(thread::mine(), told).ok()?;
        Some(Entered { pool: inside.pool, _inside: Some(inside) })
    }
}

static CHOICES: PerDevice<Choice> = PerDevice::new();

fn choice_of(device: &Device) -> &'static Choice {
    CHOICES.get_or_make(device, Choice::new)
}

fn all() -> impl Iterator<Item = &'static Choice> {
    device::ever_made().filter_map(|device| CHOICES.get(device))
}

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub(super) unsafe fn mend_in_child() {
    for choice in all() {
        // SAFETY: the caller's promise.
        unsafe { choice.changing.replace_in_child(()) };
    }
}

/// The device's own pool if it allocates from that, as most do: it need not be entered.
#[inline]
pub fn own_in_use(device: &Device) -> Option<&'static Pool> {
    CHOICES.get(device).and_then(Choice::plain)
}

/// The pool that allocations of the device name now, entered: the device's current one at the first use, whatever other code
/// makes current later, until the device is told to use another.
pub fn enter_current(device: &'static Device) -> Result<Entered> {
    match own_in_use(device) {
        Some(pool) => Ok(Entered { pool, _inside: None }),
        None => enter_other(device),
    }
}

#[inline(never)]
fn enter_other(device: &'static Device) -> Result<Entered> {
    let choice = choice_of(device);
    if let Some(entered) = choice.enter_told() {
        return Ok(entered);
    }
    log::after(|| {
        // Nobody changes the choice while this is held.
        let _changing = choice.changing.write();
        let own = settle(device, choice)?;
        match choice.told.load(Ordering::Acquire) {
            0 => Ok(Entered { pool: own, _inside: None }),
            // Where it is not entered now the thread is inside of more than it has places for.
            told => choice.enter_told().ok_or_else(|| handle::invalid(Tag::Mempool, told)),
        }
    })
}

/// What allocations of the device name now, if that was ever asked. What is done with it must allow for another thread that has the
/// device use another pool and releases this one; `enter_in_use` keeps it.
pub fn in_use(device: &Device) -> Option<&'static Pool> {
    enter_in_use(device).map(|entered| entered.pool)
}

/// As `in_use`, entered.
pub fn enter_in_use(device: &Device) -> Option<Entered> {
    let choice = CHOICES.get(device)?;
    match choice.plain() {
        Some(pool) => Some(Entered { pool, _inside: None }),
        None => choice.enter_told(),
    }
}

/// The device's own pool. The first to ask finds out what that is, and what the device uses; under the lock.
fn settle(device: &'static Device, choice: &Choice) -> Result<&'static Pool> {
    // SAFETY: NULL, or a pool, which is never freed.
    if let Some(own) = unsafe { choice.own.load(Ordering::Acquire).as_ref() } {
        return Ok(own);
    }
    let own = own_pool(device)?;
    choice.own.store(std::ptr::from_ref(own).cast_mut(), Ordering::Release);
    match inherited(device) {
        Some((told, by)) => choice.go_to(told, by),
        None => choice.go_home(),
    };
    Ok(own)
}

/// What a device was told to use that stood for the same GPU before its context died: pools do not die with contexts.
fn inherited(device: &Device) -> Option<(Handle, Handle)> {
    let former = |lost: &&Device| {
        lost.is_lost() && lost.ordinal() == device.ordinal() && lost.alias() == device.alias()
    };
    device::ever_made().filter(former).filter_map(|lost| CHOICES.get(lost)).find_map(|choice| {
        let _changing = choice.changing.write();
        let told = choice.go_home();
        (told != 0).then(|| (told, choice.by.load(Ordering::Relaxed)))
    })
}

/// What the driver has the device allocate from at this moment.
fn own_pool(device: &'static Device) -> Result<&'static Pool> {
    let driver = driver_for(device, "a memory pool")?;
    let native = driver.current_pool(device.facts().device).map_err(|f| device.error(driver, f))?;
    let properties =
        Properties { native, device, is_created: false, is_of_device: true, handle_types: 0, max_size: 0 };
    // A slot that is used again costs a walk, which is not for the first allocation of a device.
    let pool = table::find_or_add(&properties, table::every_slot)?;
    own_handle(pool)?;
    Ok(pool)
}

/// The handle of a device's own pool, in this life of the library.
pub(super) fn own_handle(pool: &'static Pool) -> Result<Handle> {
    let known = pool.handle.load(Ordering::Acquire);
    if NAMES.enter(known).is_ok() {
        return Ok(known);
    }
    pool.join();
    let fresh = lives::name(pool, Origin::Device)?;
    match pool.handle.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(fresh),
        Err(first) => {
            drop(NAMES.close(fresh));
            Ok(first)
        }
    }
}

/// A handle of the pool that allocations of the device name now: the one that the device was told by while that is good.
pub fn get(device: &'static Device) -> Result<Handle> {
    driver_for(device, "a memory pool")?;
    let choice = choice_of(device);
    log::after(|| {
        let _changing = choice.changing.write();
        let own = settle(device, choice)?;
        let (told, by) = (choice.told.load(Ordering::Acquire), choice.by.load(Ordering::Relaxed));
        match told {
            0 => own_handle(own),
            _ if NAMES.enter(by).is_ok() => Ok(by),
            told => Ok(told),
        }
    })
}

/// Has allocations of the device name another pool from now on; `None` is the device's own.
pub fn use_pool(device: &'static Device, by: Option<Handle>) -> Result<()> {
    driver_for(device, "using a memory pool")?;
    let wanted = by.map(lives::enter).transpose()?;
    if let Some(pool) = &wanted {
        pool.require_on(device)?;
    }
    let choice = choice_of(device);
    let former = log::after(|| {
        let _changing = choice.changing.write();
        let own = settle(device, choice)?;
        match &wanted {
            Some(entered) if !std::ptr::eq(entered.pool, own) => {
                entered.pool.join();
                let told = lives::name(entered.pool, Origin::Use)?;
                Ok(choice.go_to(told, by.unwrap_or_default()))
            }
            _ => Ok(choice.go_home()),
        }
    })?;
    close(former);
    Ok(())
}

fn close(former: Handle) {
    if former != 0 {
        // Gone already where the library was shut down meanwhile.
        let _ = lives::close(former);
    }
}

/// A device that is no longer in the table uses no pool.
pub fn forget_device(device: &Device) {
    if let Some(choice) = CHOICES.get(device) {
        let former = {
            let _changing = choice.changing.write();
            choice.go_home()
        };
        close(former);
    }
}

/// Every device is asked anew.
pub(super) fn dismantle() {
    for choice in all() {
        let former = {
            let _changing = choice.changing.write();
            let own = choice.own.swap(std::ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: NULL, or a pool, which is never freed.
            if let Some(own) = unsafe { own.as_ref() } {
                own.is_past.store(true, Ordering::Release);
            }
            choice.go_home()
        };
        close(former);
    }
}
