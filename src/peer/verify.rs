//! Whether what a GPU writes directly to memory of another arrives. Some machines let GPUs be peers, and then their direct copies
//! lose data without a word. By default the driver is trusted; this asks the hardware. A test has memory and streams of its own,
//! and keeps access on while it goes on as a scope would. A path that fails is closed, and is not opened again in this life of
//! the library.

use super::grant::{Grant, Memory};
use super::set::{get_ready, put_all};
use super::{capability, scopes};
use crate::device::Device;
use crate::driver::{Driver, Failure, RawStream};
use crate::error::{Error, Result, fail};
use crate::lock::Mutex;
use crate::log::{self, log};
use crate::runtime;
use std::time::{Duration, Instant};

/// Bytes that are written; a test takes them once of the target and twice of the peer.
const SIZE: usize = 1 << 20;

/// How long a copy is waited for: broken paths may also never answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// One test goes on at a time: a path is not closed under another that goes over it. Inside are those whose copies never
/// ended. A forked child does not come here.
static TESTS: Mutex<Tests> = Mutex::new(Tests { count: 0, hanging: Vec::new() });

struct Tests {
    /// How many there were in this process.
    count: u64,
    hanging: Vec<Test>,
}

/// Whether what the peer writes directly to plain memory of the target arrives there, and comes back.
pub fn verify(target: &'static Device, peer: &'static Device) -> Result<bool> {
    let Some((driver, grant)) = Grant::of(Memory::Plain, target, peer, false)? else {
        // There is nothing to take of these: the CPU and those that are no peers, which giving refuses, and a device itself.
        return Grant::of(Memory::Plain, target, peer, true).map(|_| true);
    };
    if target.ordinal() == peer.ordinal() {
        return Ok(true);
    }
    if !capability::can_remember(target, peer) {
        fail!(
            NotSupported,
            "a failure of \"{}\" and \"{}\" could not be remembered: only the first 64 GPUs can be verified",
            target.alias(),
            peer.alias()
        );
    }
    log::after(|| {
        let mut tests = TESTS.lock();
        // A shutdown may have been waiting for the test before this one.
        runtime::require_live()?;
        if capability::has_failed(target, peer) {
            // Other code may have given access since.
            close(driver, target, peer)?;
            return Ok(false);
        }
        tests.hanging.retain_mut(|test| !test.is_over());
        if tests.hanging.iter().any(|test| test.grant.is_between(target, peer)) {
            fail!(Busy, "{}: the copies of an earlier verification have not ended yet", grant.describe());
        }
        tests.count += 1;
        let number = scopes::number_of_test(tests.count);
        let found = scopes::keep(number, driver, &grant, true)?;
        let mut test = Test::new(driver, grant, number, target, peer);
        let mut arrived = test.run();
        if !test.is_given_back(&mut arrived) {
            tests.hanging.push(test);
            return arrived;
        }
        if arrived == Ok(false) {
            match close(driver, target, peer) {
                Ok(()) => return Ok(false),
                Err(error) => {
                    arrived = Err(error.context(
                        "what was written did not arrive, but the access could not be taken, and all is as before",
                    ));
                }
            }
        }
        let put_back = scopes::end(number).or_else(|_| super::set(Memory::Plain, target, &[peer], found));
        arrived.and_then(|arrived| put_back.map(|()| arrived))
    })
}

/// Takes everything that the peer's GPU may touch of the target's, and sees to it that it is not given again.
fn close(driver: &'static Driver, target: &'static Device, peer: &'static Device) -> Result<()> {
    let grants = Grant::all_between(target, peer)?;
    get_ready(driver, &grants, false)?;
    scopes::close(target, peer, || put_all(driver, &grants, false))
}

/// At shutdown. A test that goes on is waited for. What hangs is left as it is: access that is taken from a copy under way takes
/// the whole context.
pub fn dismantle() {
    let hanging = std::mem::take(&mut TESTS.lock().hanging);
    for mut test in hanging {
        if !test.is_over() {
            scopes::leave(test.number);
            log!(
                Warning,
                "the copies of a verification have not ended: {} and their memory stay",
                test.grant.describe()
            );
            // Copies may still be reading it.
            std::mem::forget(test);
        }
    }
}

/// The two GPUs of a path.
#[derive(Clone, Copy)]
enum End {
    Target,
    Peer,
}

/// What a test has taken on one GPU.
struct Side {
    device: &'static Device,
    stream: Option<RawStream>,
    blocks: Vec<u64>,
}

struct Test {
    driver: &'static Driver,
    grant: Grant,
    number: u64,
    target: Side,
    peer: Side,
    /// What goes over the path, what is there before, and what came back.
    pattern: Vec<u8>,
    before: Vec<u8>,
    read: Vec<u8>,
    /// A copy was waited for in vain.
    hangs: bool,
}

impl Side {
    fn failed(&self, driver: &Driver, failure: Failure) -> Error {
        self.device.error(driver, failure)
    }

    fn take(&mut self, driver: &'static Driver, blocks: usize) -> Result<()> {
        let _entered = self.device.enter_relaxed(driver)?;
        self.stream = Some(driver.create_stream(true, 0).map_err(|f| self.failed(driver, f))?);
        for _ in 0..blocks {
            self.blocks.push(driver.alloc_device(SIZE).map_err(|f| self.failed(driver, f))?);
        }
        Ok(())
    }

    fn copy(&self, driver: &'static Driver, dest: u64, src: u64) -> Result<()> {
        let _entered = self.device.enter_relaxed(driver)?;
        let Some(stream) = self.stream else { return Ok(()) };
        driver.copy(dest, src, SIZE, stream).map_err(|f| self.failed(driver, f))
    }

    /// Whether the work of its stream has ended, or does so in time.
    fn is_idle_within(&self, driver: &'static Driver, patience: Duration) -> Result<bool> {
        let Some(stream) = self.stream else { return Ok(true) };
        let _entered = self.device.enter_relaxed(driver)?;
        let end = Instant::now() + patience;
        loop {
            if driver.stream_is_idle(stream).map_err(|f| self.failed(driver, f))? {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// What a dead context had went with it.
    fn give_back(&mut self, driver: &'static Driver) -> Result<()> {
        let entered = self.device.enter_relaxed(driver);
        if self.device.is_lost() {
            self.stream = None;
            self.blocks.clear();
            return Ok(());
        }
        let _entered = entered?;
        if let Some(stream) = self.stream {
            driver.destroy_stream(stream).map_err(|f| self.failed(driver, f))?;
            self.stream = None;
        }
        while let Some(block) = self.blocks.last() {
            driver.free_device(*block).map_err(|f| self.failed(driver, f))?;
            self.blocks.pop();
        }
        Ok(())
    }
}

impl Test {
    fn new(
        driver: &'static Driver,
        grant: Grant,
        number: u64,
        target: &'static Device,
        peer: &'static Device,
    ) -> Test {
        let side = |device| Side { device, stream: None, blocks: Vec::new() };
        let (pattern, before) = (pattern(number, 0), pattern(number, u64::MAX));
        let read = vec![0; SIZE];
        Test {
            driver,
            grant,
            number,
            target: side(target),
            peer: side(peer),
            pattern,
            before,
            read,
            hangs: false,
        }
    }

    /// Whether everything arrived. What it took is given back by `is_given_back`.
    fn run(&mut self) -> Result<bool> {
        let driver = self.driver;
        self.target.take(driver, 1)?;
        self.peer.take(driver, 2)?;
        let (there, written, back) = (self.target.blocks[0], self.peer.blocks[0], self.peer.blocks[1]);
        // No byte is right before it was written.
        self.target.copy(driver, there, address(&self.before))?;
        self.peer.copy(driver, back, address(&self.before))?;
        self.peer.copy(driver, written, address(&self.pattern))?;
        self.wait(End::Target)?;
        self.wait(End::Peer)?;
        // Over the path, by the peer, there and back.
        self.peer.copy(driver, there, written)?;
        self.peer.copy(driver, back, there)?;
        self.wait(End::Peer)?;
        // Without access the driver would have gone by way of the host, which says nothing.
        let direct = {
            let _entered = self.peer.device.enter_relaxed(driver)?;
            driver.reaches(there).map_err(|f| self.peer.failed(driver, f))?
        };
        if !direct {
            fail!(Busy, "{} was taken by other code while it was verified; try again", self.grant.describe());
        }
        let owner = self.is_read_at(End::Target, there)?;
        let peer = self.is_read_at(End::Peer, back)?;
        if !(owner && peer) {
            log!(
                Warning,
                "direct copies of \"{}\" lose data in memory of \"{}\" ({}): once the access is taken, copies between them go by way of the host",
                self.peer.device.alias(),
                self.target.device.alias(),
                if owner { "what it reads is wrong" } else { "what it writes does not arrive" }
            );
        }
        Ok(owner && peer)
    }

    fn side(&self, end: End) -> &Side {
        match end {
            End::Target => &self.target,
            End::Peer => &self.peer,
        }
    }

    fn wait(&mut self, end: End) -> Result<()> {
        if self.side(end).is_idle_within(self.driver, PATIENCE)? {
            return Ok(());
        }
        self.hangs = true;
        fail!(
            Busy,
            "{}: copies to verify it have not ended for {} seconds, so nothing is known; until they end the access and their memory stay as they are",
            self.grant.describe(),
            PATIENCE.as_secs()
        );
    }

    /// Whether the pattern is in a block, as its own GPU brings it to the host.
    fn is_read_at(&mut self, end: End, block: u64) -> Result<bool> {
        self.read.copy_from_slice(&self.before);
        let read = self.read.as_mut_ptr().expose_provenance() as u64;
        self.side(end).copy(self.driver, read, block)?;
        self.wait(end)?;
        Ok(self.read == self.pattern)
    }

    /// Gives everything back once no copy uses it; false when one hangs. What cannot be given back becomes the outcome.
    fn is_given_back(&mut self, outcome: &mut Result<bool>) -> bool {
        let driver = self.driver;
        let patience = if self.hangs { Duration::ZERO } else { PATIENCE };
        for side in [&self.peer, &self.target] {
            // Twice, since a question that failed says nothing; of a context that faulted or is gone no copy goes on.
            let idle =
                side.is_idle_within(driver, patience).or_else(|_| side.is_idle_within(driver, patience));
            if idle == Ok(false) {
                return false;
            }
        }
        for side in [&mut self.peer, &mut self.target] {
            // Twice, since what is refused now nobody gives back later.
            let given = side.give_back(driver).or_else(|_| side.give_back(driver));
            if let (Err(error), Ok(_)) = (given, &outcome) {
                *outcome = Err(error.context("memory of the verification was not given back"));
            }
        }
        true
    }

    /// As `is_given_back`, for one whose copies hung; then access is as it was before it.
    fn is_over(&mut self) -> bool {
        let mut outcome = Ok(true);
        if !self.is_given_back(&mut outcome) {
            return false;
        }
        if let Err(error) = outcome.and_then(|_| scopes::end(self.number)) {
            log!(Error, "after a verification that did not end in time: {error}");
        }
        true
    }
}

fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

/// Bytes of which no two stretches are alike, nor those of two tests; `turned` are those bits that are the other way.
fn pattern(number: u64, turned: u64) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        let mixed = (number ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word.copy_from_slice(&(mixed ^ turned).to_le_bytes());
    }
    bytes
}
