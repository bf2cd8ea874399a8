//! Handles: 64-bit values that name an object without being its address, and the tables behind them.
//!
//! A handle mixes the object's type, slot and generation with a salt of this copy of the library, so that a
//! stale, foreign, wrong-type or made-up value is told from a live one and never followed.
//!
//! An object is *entered* by a call and *held* by what depends on it: a block by its stream, a view by its
//! array. Closing it makes the handle stale at once; when the last call inside has left it is retired (its
//! native part goes), and when the last hold is gone its slot is reused, the oldest free slot first.

use crate::error::{Result, fail};
use crossbeam_queue::SegQueue;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// What a handle names. The numbers never leave the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    Device = 1,
    Stream = 2,
    Array = 3,
}

impl Tag {
    const ALL: [Tag; 3] = [Tag::Device, Tag::Stream, Tag::Array];

    fn name(self) -> &'static str {
        match self {
            Tag::Device => "device",
            Tag::Stream => "stream",
            Tag::Array => "array",
        }
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

/// An odd multiplier and its inverse modulo 2^64.
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

/// The salt of this copy of the library; also its instance id.
pub fn salt() -> u64 {
    static SALT: AtomicU64 = AtomicU64::new(0);
    let salt = SALT.load(Ordering::Relaxed);
    if salt != 0 {
        return salt;
    }
    let mut random = 0u64;
    // SAFETY: writes at most the eight bytes of `random`.
    let got = unsafe { libc::getrandom((&raw mut random).cast(), 8, libc::GRND_NONBLOCK) };
    if got != 8 {
        // Early at boot there may be no randomness; two copies of the library still differ by address.
        random = (&raw const SALT).addr() as u64 ^ u64::from(std::process::id()) << 40;
    }
    random |= 1;
    match SALT.compare_exchange(0, random, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => random,
        Err(first) => first,
    }
}

#[inline]
pub fn encode(tag: Tag, slot: u32, generation: u32) -> Handle {
    let raw = (tag as u64) << TAG_SHIFT | u64::from(generation) << SLOT_BITS | u64::from(slot);
    let mixed = (raw ^ salt()).wrapping_mul(MIX);
    mixed ^ mixed >> 32
}

#[inline]
fn unmix(handle: Handle) -> u64 {
    let mixed = handle ^ handle >> 32;
    mixed.wrapping_mul(UNMIX) ^ salt()
}

/// Slot and generation, when the value has the form of a handle of this type.
#[inline]
pub fn decode(tag: Tag, handle: Handle) -> Option<(u32, u32)> {
    let raw = unmix(handle);
    (raw >> TAG_SHIFT == tag as u64).then_some((raw as u32, (raw >> SLOT_BITS) as u32 & GENERATION_MAX))
}

/// Why a value is no handle of a live object of this type.
#[cold]
pub fn invalid(tag: Tag, handle: Handle) -> crate::error::Error {
    let name = tag.name();
    let message = if handle == 0 {
        format!("the {name} handle is NULL")
    } else {
        match Tag::of(unmix(handle) >> TAG_SHIFT) {
            Some(actual) if actual == tag => {
                format!(
                    "the {name} handle {handle:#x} is stale: its {name} was released, removed or shut down"
                )
            }
            Some(actual) => format!("the handle {handle:#x} is of type {}, not {name}", actual.name()),
            None => format!(
                "{handle:#x} is not a {name} handle of this library: it was never one, or another copy of the library made it"
            ),
        }
    };
    crate::error::Error::new(crate::error::Status::InvalidHandle, message)
}

// The state word of a slot: generation, live bit, calls inside, holds.
const HOLD: u64 = 1;
const HOLDS_MASK: u64 = (1 << 30) - 1;
const CALL: u64 = 1 << 30;
const CALLS_MASK: u64 = ((1 << 13) - 1) << 30;
const LIVE: u64 = 1 << 43;
const GENERATION_SHIFT: u32 = 44;

fn generation_of(state: u64) -> u32 {
    (state >> GENERATION_SHIFT) as u32
}

/// What lives in a registry.
pub trait Object: Send + Sync + 'static {
    const TAG: Tag;

    /// A number of the object's that `word_of` reads without entering; fixed when the object is put in.
    fn word(&self) -> u64 {
        0
    }

    /// Runs once, when the object is closed and no call is inside: the native part goes here. What is held
    /// by others stays readable until the last hold is gone and the value is dropped.
    fn retire(&self) {}
}

struct Slot<T> {
    state: AtomicU64,
    word: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

const FIRST_CHUNK: u32 = 32;
const CHUNKS: usize = 26;

/// All objects of one type. Lives in a `static`; its memory is kept for reuse and never given back.
pub struct Registry<T> {
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    next: AtomicU32,
    free: SegQueue<u32>,
}

// SAFETY: values are reached through the state word's protocol only, shared as `&T`; T is Send + Sync.
unsafe impl<T: Object> Sync for Registry<T> {}

impl<T: Object> Default for Registry<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Object> Registry<T> {
    pub const fn new() -> Registry<T> {
        Registry {
            chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS],
            next: AtomicU32::new(0),
            free: SegQueue::new(),
        }
    }

    fn place(index: u32) -> (usize, u32) {
        let k = (index / FIRST_CHUNK + 1).ilog2();
        (k as usize, index - FIRST_CHUNK * ((1 << k) - 1))
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, offset) = Self::place(index);
        let base = self.chunks.get(chunk)?.load(Ordering::Acquire);
        if base.is_null() {
            return None;
        }
        // SAFETY: chunk k has FIRST_CHUNK << k slots, `place` keeps the offset below that, and chunks are
        // never freed. Slots start zeroed, which is a valid free slot.
        Some(unsafe { &*base.add(offset as usize) })
    }

    fn grow(&self) -> Result<u32> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let (chunk, _) = Self::place(index);
        if chunk >= CHUNKS {
            self.next.fetch_sub(1, Ordering::Relaxed);
            fail!(OutOfMemory, "too many live {}s", T::TAG.name());
        }
        let entry = &self.chunks[chunk];
        if entry.load(Ordering::Acquire).is_null() {
            let Ok(layout) = Layout::array::<Slot<T>>((FIRST_CHUNK as usize) << chunk) else {
                fail!(OutOfMemory, "the table of {}s cannot grow", T::TAG.name());
            };
            // SAFETY: the layout is not empty.
            let fresh = unsafe { alloc_zeroed(layout) }.cast::<Slot<T>>();
            if fresh.is_null() {
                // The index is abandoned; a later call that reaches this chunk may have more luck.
                fail!(OutOfMemory, "no host memory for the table of {}s", T::TAG.name());
            }
            if entry
                .compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                // SAFETY: allocated above with this layout and not published.
                unsafe { dealloc(fresh.cast(), layout) };
            }
        }
        Ok(index)
    }

    /// Puts the object in and names it.
    pub fn insert(&self, value: T) -> Result<Handle> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow()?,
        };
        let Some(slot) = self.slot(index) else {
            fail!(Internal, "a slot of the table of {}s is missing", T::TAG.name());
        };
        slot.word.store(value.word(), Ordering::Relaxed);
        // SAFETY: a free slot has no value, and whoever took its index owns it until it is live.
        unsafe { (*slot.value.get()).write(value) };
        let generation = generation_of(slot.state.load(Ordering::Relaxed));
        slot.state.store(u64::from(generation) << GENERATION_SHIFT | LIVE | HOLD, Ordering::Release);
        Ok(encode(T::TAG, index, generation))
    }

    /// The handle that an index stands for at this moment.
    pub fn handle_of(&self, index: u32) -> Handle {
        let state = self.slot(index).map_or(0, |slot| slot.state.load(Ordering::Relaxed));
        encode(T::TAG, index, generation_of(state))
    }

    fn try_enter(&'static self, index: u32, generation: Option<u32>) -> Option<Entered<T>> {
        let slot = self.slot(index)?;
        let mut state = slot.state.load(Ordering::Relaxed);
        loop {
            let stale = generation.is_some_and(|g| g != generation_of(state));
            if state & LIVE == 0 || stale || state & CALLS_MASK == CALLS_MASK {
                return None;
            }
            match slot.state.compare_exchange_weak(state, state + CALL, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Some(Entered { registry: self, index }),
                Err(now) => state = now,
            }
        }
    }

    /// Keeps the object from being retired while the guard lives.
    #[inline]
    pub fn enter(&'static self, handle: Handle) -> Result<Entered<T>> {
        match decode(T::TAG, handle).and_then(|(index, generation)| self.try_enter(index, Some(generation))) {
            Some(entered) => Ok(entered),
            None => Err(invalid(T::TAG, handle)),
        }
    }

    /// Enters an object that the caller holds; `None` once it is closed.
    #[inline]
    pub fn enter_held(&'static self, held: u32) -> Option<Entered<T>> {
        self.try_enter(held, None)
    }

    /// The object that the caller holds, closed or not.
    ///
    /// # Safety
    /// The caller has a hold on `held` for as long as the reference lives.
    pub unsafe fn held(&self, held: u32) -> &T {
        let slot = self.slot(held).expect("a held slot exists");
        // SAFETY: a hold keeps the value in place.
        unsafe { (*slot.value.get()).assume_init_ref() }
    }

    /// The word of the object that the caller saw held. Without a hold of its own it may be a later object's.
    #[inline]
    pub fn word_of(&self, index: u32) -> u64 {
        self.slot(index).map_or(0, |slot| slot.word.load(Ordering::Relaxed))
    }

    /// Gives back a hold.
    ///
    /// # Safety
    /// The caller has that hold, and has it no more afterwards.
    #[inline]
    pub unsafe fn release_hold(&self, held: u32) {
        let Some(slot) = self.slot(held) else { return };
        let before = slot.state.fetch_sub(HOLD, Ordering::AcqRel);
        if before & HOLDS_MASK == HOLD {
            self.reclaim(slot, held, before);
        }
    }

    #[cold]
    fn reclaim(&self, slot: &Slot<T>, index: u32, before: u64) {
        // SAFETY: the last hold is gone, so the object is closed, retired, and nobody can reach the value.
        unsafe { (*slot.value.get()).assume_init_drop() };
        let generation = generation_of(before);
        if generation < GENERATION_MAX {
            slot.state.store(u64::from(generation + 1) << GENERATION_SHIFT, Ordering::Release);
            self.free.push(index);
        }
    }

    /// Makes the handle stale. The object is retired when the guard and all other calls inside are gone.
    pub fn close(&'static self, handle: Handle) -> Result<Entered<T>> {
        decode(T::TAG, handle)
            .and_then(|(index, generation)| self.try_close(index, Some(generation)))
            .ok_or_else(|| invalid(T::TAG, handle))
    }

    fn try_close(&'static self, index: u32, generation: Option<u32>) -> Option<Entered<T>> {
        let slot = self.slot(index)?;
        let mut state = slot.state.load(Ordering::Relaxed);
        loop {
            if state & LIVE == 0 || generation.is_some_and(|g| g != generation_of(state)) {
                return None;
            }
            let closed = (state & !LIVE) + CALL;
            match slot.state.compare_exchange_weak(state, closed, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(Entered { registry: self, index }),
                Err(now) => state = now,
            }
        }
    }

    /// Makes every handle stale. The objects are retired when the guards, and the calls inside, are gone.
    pub fn close_all(&'static self) -> Vec<Entered<T>> {
        (0..self.next.load(Ordering::Acquire)).filter_map(|index| self.try_close(index, None)).collect()
    }

    /// Closes every object that the predicate names.
    pub fn close_where(&'static self, mut predicate: impl FnMut(&T) -> bool) {
        for index in 0..self.next.load(Ordering::Acquire) {
            let wanted = self.try_enter(index, None).is_some_and(|object| predicate(&object));
            if wanted {
                drop(self.try_close(index, None));
            }
        }
    }
}

/// A call inside an object.
pub struct Entered<T: Object> {
    registry: &'static Registry<T>,
    index: u32,
}

impl<T: Object> Entered<T> {
    /// The slot's number, the name of a hold.
    pub fn index(&self) -> u32 {
        self.index
    }

    fn slot(&self) -> &'static Slot<T> {
        self.registry.slot(self.index).expect("an entered slot exists")
    }

    /// Takes a hold, to be given back by `release_hold`.
    #[inline]
    pub fn hold(&self) -> u32 {
        // The count cannot overflow: each hold stands for an object in memory of tens of bytes.
        self.slot().state.fetch_add(HOLD, Ordering::Relaxed);
        self.index
    }
}

impl<T: Object> Entered<T> {
    /// Leaves the object and keeps a hold on it, in one step.
    #[inline]
    pub fn leave_holding(self) -> u32 {
        let index = self.index;
        self.slot().state.fetch_add(HOLD, Ordering::Relaxed);
        index
    }
}

impl<T: Object> Deref for Entered<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a call inside keeps the value in place, as does the registry's own hold until retirement.
        unsafe { (*self.slot().value.get()).assume_init_ref() }
    }
}

impl<T: Object> Clone for Entered<T> {
    fn clone(&self) -> Self {
        self.slot().state.fetch_add(CALL, Ordering::Relaxed);
        Entered { registry: self.registry, index: self.index }
    }
}

impl<T: Object> Drop for Entered<T> {
    #[inline]
    fn drop(&mut self) {
        let before = self.slot().state.fetch_sub(CALL, Ordering::AcqRel);
        if before & (LIVE | CALLS_MASK) == CALL {
            // Closed, and the last call is leaving; it happens once, since a closed object is not entered.
            // SAFETY: the registry's own hold is given back only below.
            unsafe {
                self.registry.held(self.index).retire();
                self.registry.release_hold(self.index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    struct Probe {
        retired: &'static AtomicUsize,
        dropped: &'static AtomicUsize,
    }
    impl Object for Probe {
        const TAG: Tag = Tag::Stream;
        fn retire(&self) {
            self.retired.fetch_add(1, Ordering::SeqCst);
        }
    }
    impl Drop for Probe {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn registry() -> (&'static Registry<Probe>, impl Fn() -> Probe, &'static AtomicUsize, &'static AtomicUsize)
    {
        let retired: &'static AtomicUsize = Box::leak(Box::default());
        let dropped: &'static AtomicUsize = Box::leak(Box::default());
        (Box::leak(Box::new(Registry::new())), move || Probe { retired, dropped }, retired, dropped)
    }

    #[test]
    fn a_handle_names_its_object_until_closed_and_never_again() {
        let (all, make, retired, dropped) = registry();
        let first = all.insert(make()).unwrap();
        assert!(all.enter(first).is_ok());
        drop(all.close(first).unwrap());
        assert_eq!((retired.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (1, 1));
        assert!(all.enter(first).is_err());
        assert!(all.close(first).is_err());
        let second = all.insert(make()).unwrap();
        assert_ne!(first, second);
        assert!(all.enter(first).is_err());
        assert!(all.enter(second).is_ok());
    }

    #[test]
    fn retirement_waits_for_the_calls_and_the_drop_for_the_holds() {
        let (all, make, retired, dropped) = registry();
        let handle = all.insert(make()).unwrap();
        let call = all.enter(handle).unwrap();
        let hold = call.hold();
        drop(all.close(handle).unwrap());
        assert_eq!(retired.load(Ordering::SeqCst), 0);
        assert!(all.enter_held(hold).is_none());
        drop(call);
        assert_eq!((retired.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (1, 0));
        // SAFETY: the hold taken above.
        unsafe { all.release_hold(hold) };
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn other_values_are_refused_with_a_reason() {
        let (all, make, ..) = registry();
        let handle = all.insert(make()).unwrap();
        let (slot, generation) = decode(Tag::Stream, handle).unwrap();
        for (value, reason) in [
            (0, "NULL"),
            (encode(Tag::Array, slot, generation), "is of type array, not stream"),
            (encode(Tag::Stream, slot, generation + 1), "stale"),
            (encode(Tag::Stream, 4_000_000_000, generation), "stale"),
            (0xdead_beef, "not a stream handle"),
        ] {
            let error = all.enter(value).err().unwrap();
            assert_eq!(error.status, crate::error::Status::InvalidHandle);
            assert!(error.message.contains(reason), "{}", error.message);
        }
    }

    #[test]
    fn slots_are_reused_oldest_first_and_retire_before_their_generation_wraps() {
        let (all, make, ..) = registry();
        let handles: Vec<_> = (0..100).map(|_| all.insert(make()).unwrap()).collect();
        for handle in &handles {
            drop(all.close(*handle).unwrap());
        }
        let again = all.insert(make()).unwrap();
        assert_eq!(decode(Tag::Stream, again).unwrap().0, decode(Tag::Stream, handles[0]).unwrap().0);
        drop(all.close(again).unwrap());

        let lone: &'static Registry<Probe> = Box::leak(Box::new(Registry::new()));
        let slot = decode(Tag::Stream, lone.insert(make()).unwrap()).unwrap().0;
        lone.slot(slot)
            .unwrap()
            .state
            .fetch_or(u64::from(GENERATION_MAX) << GENERATION_SHIFT, Ordering::SeqCst);
        drop(lone.close(lone.handle_of(slot)).unwrap());
        assert_ne!(decode(Tag::Stream, lone.insert(make()).unwrap()).unwrap().0, slot);
    }

    #[test]
    fn threads_that_enter_and_close_agree() {
        let (all, make, retired, dropped) = registry();
        for _ in 0..300 {
            let handle = all.insert(make()).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..50 {
                            drop(all.enter(handle));
                        }
                    });
                }
                let closers: Vec<_> = (0..2).map(|_| scope.spawn(|| all.close(handle).is_ok())).collect();
                assert_eq!(
                    closers
                        .into_iter()
                        .filter(|_| true)
                        .map(|c| c.join().unwrap())
                        .filter(|won| *won)
                        .count(),
                    1
                );
            });
        }
        assert_eq!((retired.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (300, 300));
    }
}
