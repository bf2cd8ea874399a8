//! Which GPUs can be peers. That is the machine's, and does not change while the library lives, so it is asked once: the
//! driver takes longer to tell it than to tell whether access is given.

use crate::device::Device;
use crate::error::Result;
use std::sync::atomic::{AtomicU8, Ordering};

/// As many GPUs as are remembered of; further ones are asked about each time.
const MOST: usize = 64;
const NO: u8 = 1;
const YES: u8 = 2;

/// By the ordinals of target and peer.
static KNOWN: [[AtomicU8; MOST]; MOST] = [const { [const { AtomicU8::new(0) }; MOST] }; MOST];

fn place(target: &Device, peer: &Device) -> Option<&'static AtomicU8> {
    let index = |device: &Device| usize::try_from(device.ordinal()).ok();
    KNOWN.get(index(target)?)?.get(index(peer)?)
}

/// What is known of the pair, or what `ask` answers.
pub fn of(target: &Device, peer: &Device, ask: impl FnOnce() -> Result<bool>) -> Result<bool> {
    let place = place(target, peer);
    match place.map(|known| known.load(Ordering::Relaxed)) {
        Some(NO) => Ok(false),
        Some(YES) => Ok(true),
        _ => {
            let can = ask()?;
            if let Some(known) = place {
                known.store(if can { YES } else { NO }, Ordering::Relaxed);
            }
            Ok(can)
        }
    }
}

/// The next life of the library may have another driver.
pub fn forget() {
    KNOWN.iter().flatten().for_each(|known| known.store(0, Ordering::Relaxed));
}
