//! Handles: 64-bit values that name an object without being its address, and the tables behind them.
//!
//! A handle mixes the object's type, slot and generation with a salt of this copy of the library, so that a
//! stale, foreign, wrong-type or made-up value is told from a live one and never followed.

mod registry;

pub use registry::{Entered, Hold, MARK_MAX, Marked, Object, Registry};

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a handle names. The numbers never leave the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    Device = 1,
    Stream = 2,
    Array = 3,
    Event = 4,
    Scope = 5,
    Graph = 6,
    Mempool = 7,
    IndexedArray = 8,
    Allocator = 9,
}

impl Tag {
    const ALL: [Tag; 9] = [
        Tag::Device,
        Tag::Stream,
        Tag::Array,
        Tag::Event,
        Tag::Scope,
        Tag::Graph,
        Tag::Mempool,
        Tag::IndexedArray,
        Tag::Allocator,
    ];

    fn name(self) -> &'static str {
        match self {
            Tag::Device => "device",
            Tag::Stream => "stream",
            Tag::Array => "array",
            Tag::Event => "event",
            Tag::Scope => "scope",
            Tag::Graph => "graph",
            Tag::Allocator => "allocator",
            Tag::IndexedArray => "indexed array",
            Tag::Mempool => "memory pool",
        }
    }

    /// With its article.
    fn a_name(self) -> String {
        let name = self.name();
        let article = if name.starts_with(['a', 'e', 'i']) { "an" } else { "a" };
        format!("{article} {name}")
    }

    fn of(raw: u64) -> Option<Tag> {
        Tag::ALL.into_iter().find(|tag| *tag as u64 == raw)
    }
}

pub type Handle = u64;

const SLOT_BITS: u32 = 32;
const GENERATION_BITS: u32 = 20;
const GENERATION_MAX: u32 = (1 << GENERATION_BITS) - 1;
const TAG_SHIFT: u32 = SLOT_BITS + GENERATION_BITS;

/// Handles keep the top bit clear: languages whose pointers are signed numbers take them as they are.
const BITS: u64 = u64::MAX >> 1;

/// An odd multiplier and its inverse modulo 2^64, and so modulo 2^63.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const UNMIX: u64 = inverse(MIX);

const fn inverse(odd: u64) -> u64 {
    // Newton's iteration doubles the number of right bits.
    let mut x = odd;
    let mut i = 0;
    while i < 6 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        i += 1;
    }
    x
}

static SALT: AtomicU64 = AtomicU64::new(0);

/// The salt of this copy of the library; also its instance id.
#[inline]
pub fn salt() -> u64 {
    match SALT.load(Ordering::Relaxed) {
        0 => make_salt(),
        salt => salt,
    }
}

#[cold]
fn make_salt() -> u64 {
    let mut random = 0u64;
    // SAFETY: writes at most the eight bytes of `random`.
    let got = unsafe { libc::getrandom((&raw mut random).cast(), 8, libc::GRND_NONBLOCK) };
    if got != 8 {
        // Early at boot there may be no randomness; two copies of the library still differ by address.
        random = (&raw const SALT).addr() as u64 ^ u64::from(std::process::id()) << 40;
    }
    random = random & BITS | 1;
    match SALT.compare_exchange(0, random, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => random,
        Err(first) => first,
    }
}

/// More than the largest slot that any handle was made of.
static SLOTS: AtomicU32 = AtomicU32::new(0);

#[inline]
pub fn encode(tag: Tag, slot: u32, generation: u32) -> Handle {
    if slot >= SLOTS.load(Ordering::Relaxed) {
        SLOTS.fetch_max(slot.saturating_add(1), Ordering::Relaxed);
    }
    compose(tag, slot, generation)
}

#[inline]
fn compose(tag: Tag, slot: u32, generation: u32) -> Handle {
    let generation = generation & GENERATION_MAX;
    let raw = (tag as u64) << TAG_SHIFT | u64::from(generation) << SLOT_BITS | u64::from(slot);
    let mixed = (raw ^ salt()).wrapping_mul(MIX) & BITS;
    mixed ^ mixed >> 32
}

#[inline]
fn unmix(salt: u64, handle: Handle) -> u64 {
    let mixed = handle ^ handle >> 32;
    mixed.wrapping_mul(UNMIX) & BITS ^ salt
}

/// Slot and generation, when the value has the form of a handle of this type.
#[inline]
pub fn decode(tag: Tag, handle: Handle) -> Option<(u32, u32)> {
    decode_with(salt(), tag, handle)
}

/// As `decode`, for one who has the salt.
#[inline(always)]
fn decode_with(salt: u64, tag: Tag, handle: Handle) -> Option<(u32, u32)> {
    let raw = unmix(salt, handle);
    (raw >> TAG_SHIFT == tag as u64).then_some((raw as u32, (raw >> SLOT_BITS) as u32 & GENERATION_MAX))
}

/// Why a value is no handle of this type, when its form alone would not tell.
#[cold]
pub fn never(tag: Tag, handle: Handle) -> crate::error::Error {
    match decode(tag, handle) {
        None => invalid(tag, handle),
        Some(_) => crate::error::error!(
            InvalidHandle,
            "{handle:#x} is not {} handle of this library: it was never one",
            tag.a_name()
        ),
    }
}

/// Why a value is no handle of a live object of this type.
#[cold]
pub fn invalid(tag: Tag, handle: Handle) -> crate::error::Error {
    let name = tag.name();
    let message = if handle == 0 {
        format!("the {name} handle is NULL")
    } else if handle as u32 as u64 == handle || handle as i32 as u64 == handle {
        // What remains of a handle there says nothing of its type.
        format!(
            "{handle:#x} is not {} handle of this library: handles have 64 bits, and this has 32; a language that calls C by itself has to be told so",
            tag.a_name()
        )
    } else {
        let raw = unmix(salt(), handle);
        // One value in two hundred looks like a handle of some type, and hardly any of these like one that there can have been.
        let was_made = (raw as u32) < SLOTS.load(Ordering::Relaxed);
        match Tag::of(raw >> TAG_SHIFT).filter(|_| was_made) {
            Some(actual) if actual == tag => {
                format!(
                    "the {name} handle {handle:#x} is stale: its {name} was released, removed or shut down"
                )
            }
            Some(actual) => format!("the handle {handle:#x} is of type {}, not {name}", actual.name()),
            None => format!(
                "{handle:#x} is not {} handle of this library: it was never one, or another copy of the library made it",
                tag.a_name()
            ),
        }
    };
    crate::error::Error::new(crate::error::Status::InvalidHandle, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn what_another_copy_made_is_not_taken_for_a_handle_of_another_type() {
        let mut random = Random(1);
        for _ in 0..20_000 {
            let error = invalid(Tag::Device, random.next() & BITS | 1 << 40);
            assert!(error.message.contains("another copy"), "{}", error.message);
        }
    }
}
