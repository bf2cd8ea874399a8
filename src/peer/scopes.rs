//! Scopes that keep a permission given, or taken, in the whole process. Those that want the same are one: the first remembers
//! what it found, the last puts that back. None that wants the opposite begins meanwhile, nor is the opposite set. A test of a
//! path is such a scope as well, and of a path that fails it no scope is left.

use super::grant::{Grant, Memory};
use super::set::get_ready;
use super::{capability, verify};
use crate::device::Device;
use crate::driver::Driver;
use crate::error::{Result, fail};
use crate::lock::Mutex;
use crate::{log, runtime};

/// A permission that scopes keep as they want it.
struct Held {
    grant: Grant,
    wanted: bool,
    found: bool,
    /// The numbers of the scopes.
    scopes: Vec<u64>,
}

/// Tests have the upper half of the numbers.
const TESTS: u64 = 1 << 63;

/// The number of the test that comes so many after the first.
pub fn number_of_test(count: u64) -> u64 {
    TESTS | count
}

impl Held {
    /// Whether nobody but tests keeps it so.
    fn is_for_tests(&self) -> bool {
        self.scopes.iter().all(|number| number & TESTS != 0)
    }
}

/// Held while a permission is changed, so that what a scope finds is nothing passing. The driver is called meanwhile; nothing
/// is waited for. A forked child does not come here.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

fn check(held: &[Held], grants: &[Grant], enabled: bool) -> Result<()> {
    if enabled {
        grants.iter().try_for_each(Grant::refuse_failed)?;
    }
    let opposite = |grant: &Grant| held.iter().find(|held| held.grant == *grant && held.wanted != enabled);
    if let Some(held) = grants.iter().find_map(opposite) {
        if held.is_for_tests() {
            fail!(
                Busy,
                "{} is being verified by another call and stays enabled until that is over; try again then",
                held.grant.describe()
            );
        }
        fail!(
            Busy,
            "{} is kept {} by open scopes ({}); end those first",
            held.grant.describe(),
            if held.wanted { "enabled" } else { "disabled" },
            held.scopes.len()
        );
    }
    Ok(())
}

/// An error when an open scope wants the opposite.
pub fn refuse_opposite(grants: &[Grant], enabled: bool) -> Result<()> {
    check(&HELD.lock(), grants, enabled)
}

/// Changes permissions, unless an open scope wants the opposite.
pub fn change(grants: &[Grant], enabled: bool, change: impl FnOnce() -> Result<()>) -> Result<()> {
    // Messages come when the lock is free: their receiver may come here.
    log::after(|| {
        let mut held = HELD.lock();
        check(&held, grants, enabled)?;
        change()?;
        // What was set while a test went on is what is so after it.
        for held in held.iter_mut().filter(|held| held.is_for_tests() && grants.contains(&held.grant)) {
            held.found = enabled;
        }
        Ok(())
    })
}

/// Takes everything that the peer's GPU may touch of the target's, for good: scopes that kept it are over, and no other finds
/// that it was given. `take` takes all of it or fails, and then nothing has changed.
pub fn close(target: &Device, peer: &Device, take: impl FnOnce() -> Result<()>) -> Result<()> {
    log::after(|| {
        // What they kept is let go of when the lock is free.
        let mut over = Vec::new();
        let mut held = HELD.lock();
        take()?;
        capability::note_failure(target, peer);
        for mut each in std::mem::take(&mut *held) {
            if each.wanted && each.grant.is_between(target, peer) {
                over.push(each);
                continue;
            }
            each.found &= !each.grant.is_between(target, peer);
            held.push(each);
        }
        drop(held);
        Ok(())
    })
}

/// Opens the scope of that number.
pub fn begin(
    number: u64,
    memory: Memory<'_>,
    target: &'static Device,
    peer: &'static Device,
    enabled: bool,
) -> Result<()> {
    let Some((driver, grant)) = Grant::of(memory, target, peer, enabled)? else { return Ok(()) };
    keep(number, driver, &grant, enabled).map(drop)
}

/// Keeps a permission as it is wanted until the end of that number. Whether it is given when the last of those is over.
pub fn keep(number: u64, driver: &'static Driver, grant: &Grant, enabled: bool) -> Result<bool> {
    let grants = std::slice::from_ref(grant);
    refuse_opposite(grants, enabled)?;
    get_ready(driver, grants, enabled)?;
    log::after(|| {
        let mut held = HELD.lock();
        check(&held, grants, enabled)?;
        if let Some(same) = held.iter_mut().find(|held| held.grant == *grant) {
            // Other code may have changed it meanwhile.
            grant.put(driver, enabled)?;
            same.scopes.push(number);
            return Ok(same.found);
        }
        let found = grant.is_given(driver)?;
        grant.put(driver, enabled)?;
        held.push(Held { grant: grant.clone(), wanted: enabled, found, scopes: vec![number] });
        Ok(found)
    })
}

/// Lets go of the permission as it is.
pub fn leave(number: u64) {
    let mut over = None;
    let mut held = HELD.lock();
    if let Some(at) = held.iter().position(|held| held.scopes.contains(&number)) {
        held[at].scopes.retain(|open| *open != number);
        if held[at].scopes.is_empty() {
            over = Some(held.swap_remove(at));
        }
    }
    drop(held);
    drop(over);
}

/// Ends the scope of that number; nothing to do when it kept nothing, or was ended by a shutdown. It is over also when what
/// it found cannot be put back.
pub fn end(number: u64) -> Result<()> {
    if runtime::is_forked() {
        return Ok(());
    }
    let mut waited = None;
    loop {
        // What it kept is let go of when the lock is free.
        let mut over = None;
        let mut to_wait_for = None;
        let ended = log::after(|| {
            let mut held = HELD.lock();
            let Some(at) = held.iter().position(|held| held.scopes.contains(&number)) else { return Ok(()) };
            if held[at].scopes.len() > 1 {
                held[at].scopes.retain(|open| *open != number);
                return Ok(());
            }
            // Only the last one knows that it is, and waits without the lock.
            let Some(waited) = waited.take() else {
                to_wait_for = Some((held[at].grant.clone(), held[at].found));
                return Ok(());
            };
            over.insert(held.swap_remove(at)).put_back(waited)
        });
        let Some((grant, found)) = to_wait_for else { return ended };
        waited = Some(wait(&grant, found));
    }
}

/// Waits for work that may need what is about to be taken.
fn wait(grant: &Grant, found: bool) -> Result<()> {
    match runtime::driver() {
        Ok(driver) if !found && !grant.is_void() => get_ready(driver, std::slice::from_ref(grant), false),
        _ => Ok(()),
    }
}

impl Held {
    /// Puts back what the first scope found, when the work that may need it was waited for.
    fn put_back(&self, waited: Result<()>) -> Result<()> {
        let Ok(driver) = runtime::driver() else { return Ok(()) };
        match waited.and_then(|()| self.grant.put(driver, self.found)) {
            // There is nothing left that it could be put back for.
            Err(_) if self.grant.is_void() => Ok(()),
            Err(error) => Err(error.context(format_args!(
                "the scope is over, but {} was not {} again as it was before",
                self.grant.describe(),
                if self.found { "enabled" } else { "disabled" }
            ))),
            Ok(_) => Ok(()),
        }
    }
}

/// At shutdown: what scopes that nobody ended have changed is as it was before.
pub fn dismantle() {
    if !runtime::is_forked() {
        verify::dismantle();
    }
    capability::forget();
    if runtime::is_forked() {
        return;
    }
    let open = std::mem::take(&mut *HELD.lock());
    for held in open {
        if let Err(error) = held.put_back(wait(&held.grant, held.found)) {
            log::log!(Error, "{error}");
        }
    }
}
