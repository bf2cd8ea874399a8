//! Blocks that were freed and that their allocators, of other code, have not got back: streams or graphs still use them. Calls
//! look after them that run other code's callbacks anyway, and those that wait for a GPU: a caller may hold a lock that a callback
//! wants, and must be able to know when one is called.

use super::parked::{self, Parked};
use super::patience::Patience;
use super::uses::Uses;
use super::{custom, parked::Settled, returned};
use crate::allocator;
use crate::device::Device;
use crate::driver::Driver;
use crate::fork::Lock;
use crate::ledger::Record;
use crate::log::{self, log};
use crate::runtime;
use crate::thread;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The oldest first.
static QUEUE: Lock<VecDeque<Parked>> = Lock::new(VecDeque::new());
/// What is in the queue or taken out for a look.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// As many blocks as one call looks at.
const LOOK_AT: usize = 16;

/// Whether a freed block's uses are over; else it is owed to its allocator from now on.
pub fn settle(driver: Option<&'static Driver>, owner: &'static Device, record: &Record, uses: Uses) -> bool {
    match parked::settle(driver, owner, record, uses) {
        Settled::Over => true,
        Settled::Not(waiting) => {
            waiting.park();
            false
        }
    }
}

/// Owes a block to its allocator without a look at its uses.
pub fn leave(owner: &'static Device, record: &Record, uses: Uses) {
    Parked::of_allocator(owner, record, uses).park();
}

/// Takes in a block whose graphs are over.
pub fn push(parked: Parked) {
    COUNT.fetch_add(1, Ordering::Release);
    QUEUE.write().push_back(parked);
}

/// Gives back some of what is owed and not used any more. Nothing inside of a callback, which may have a lock that another
/// one wants, nor under a lock of the library.
#[inline]
pub fn deliver() {
    if COUNT.load(Ordering::Acquire) != 0 {
        look(LOOK_AT);
    }
}

/// What a call does that waited for a GPU: looks at some of what was freed, the library's own and what is owed.
pub fn after_a_wait() {
    parked::poll();
    deliver();
}

/// Gives back all that is owed and not used any more.
pub fn deliver_all() {
    // Graphs that are over have some of it.
    parked::look_at_all();
    if COUNT.load(Ordering::Acquire) != 0 {
        look(usize::MAX);
    }
}

/// After a fork, in the child: what is owed there is the parent's.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe { QUEUE.replace_in_child(VecDeque::new()) };
    COUNT.store(0, Ordering::Release);
}

#[cold]
fn look(at_most: usize) {
    if allocator::is_inside_a_callback()
        || log::is_under_a_lock()
        || thread::is_in_drivers_callback()
        || runtime::is_exiting()
    {
        return;
    }
    // Without one there is memory of the host, which graphs of the CPU have used.
    let driver = runtime::driver().ok();
    for _ in 0..COUNT.load(Ordering::Acquire).min(at_most) {
        let Some(mut parked) = QUEUE.write().pop_front() else { return };
        let left = if parked.are_waits_over(driver) { hand_back(parked) } else { Some(parked) };
        match left {
            Some(parked) => QUEUE.write().push_back(parked),
            None => {
                COUNT.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

/// Gives a block back, or comes back with it when its allocator could not be asked, as often as that makes sense.
fn hand_back(mut parked: Parked) -> Option<Parked> {
    let error = returned::hand_back_late(parked.record()).err()?;
    if parked.may_be_offered_again() {
        return Some(parked);
    }
    log!(
        Error,
        "{} bytes at {:#x}, freed before, could not be given back to their allocator: {error}",
        parked.record().size(),
        parked.record().base()
    );
    custom::let_go(parked.record());
    None
}

/// Whether a block that is asked for is in the queue, or some block in the hand of another thread, which does not tell whose it is.
fn may_come(wanted: &impl Fn(&Record) -> bool) -> bool {
    let queue = QUEUE.write();
    COUNT.load(Ordering::Acquire) > queue.len() || queue.iter().any(|parked| wanted(parked.record()))
}

/// Waits for blocks that are asked for, at most for a time. Whether there may have been some.
pub fn drain(patience: &mut Patience, wanted: impl Fn(&Record) -> bool) -> bool {
    // Graphs that are over have some of it.
    parked::look_at_all();
    let were_some = may_come(&wanted);
    loop {
        deliver_all();
        if allocator::is_inside_a_callback()
            || runtime::is_forked()
            || !may_come(&wanted)
            || patience.is_over()
        {
            return were_some;
        }
        patience.pause();
    }
}
