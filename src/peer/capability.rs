//! Which GPUs can be peers. That is the machine's, and does not change while the library lives, so it is asked once: the
//! driver takes longer to tell it than to tell whether access is given. Beside it, which pairs a verification found to lose
//! data: the driver goes on calling those peers, and the library uses them no more.

use crate::device::Device;
use crate::error::Result;
use std::sync::atomic::{AtomicU8, Ordering};

/// As many GPUs as are remembered of; further ones are asked about each time.
const MOST: usize = 64;
const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;
/// The driver says yes, and what is written does not arrive.
const FAILED: u8 = 3;

/// By the ordinals of target and peer.
static KNOWN: [[AtomicU8; MOST]; MOST] = [const { [const { AtomicU8::new(UNKNOWN) }; MOST] }; MOST];

fn place(target: &Device, peer: &Device) -> Option<&'static AtomicU8> {
    let index = |device: &Device| usize::try_from(device.ordinal()).ok();
    KNOWN.get(index(target)?)?.get(index(peer)?)
}

/// What the driver says of the pair, as it is known or as `ask` answers.
pub fn of(target: &Device, peer: &Device, ask: impl FnOnce() -> Result<bool>) -> Result<bool> {
    let place = place(target, peer);
    match place.map(|known| known.load(Ordering::Relaxed)) {
        Some(NO) => Ok(false),
        Some(YES | FAILED) => Ok(true),
        _ => {
            let can = ask()?;
            if let Some(known) = place {
                let answer = if can { YES } else { NO };
                // Unless a verification has failed meanwhile.
                let _ = known.compare_exchange(UNKNOWN, answer, Ordering::Relaxed, Ordering::Relaxed);
            }
            Ok(can)
        }
    }
}

/// Whether a verification of the pair failed in this life of the library.
pub fn has_failed(target: &Device, peer: &Device) -> bool {
    place(target, peer).is_some_and(|known| known.load(Ordering::Acquire) == FAILED)
}

/// Whether a failure of the pair can be remembered.
pub fn can_remember(target: &Device, peer: &Device) -> bool {
    place(target, peer).is_some()
}

/// The pair is not to be used any more in this life of the library.
pub fn note_failure(target: &Device, peer: &Device) {
    if let Some(known) = place(target, peer) {
        known.store(FAILED, Ordering::Release);
    }
}

/// The next life of the library may have another driver.
pub fn forget() {
    KNOWN.iter().flatten().for_each(|known| known.store(UNKNOWN, Ordering::Relaxed));
}
