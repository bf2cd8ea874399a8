//! The objects that handles name, by slot.
//!
//! An object is *entered* by a call and *held* by what depends on it: a stream by its blocks, an array by its
//! views. Closing it makes the handle stale at once; when the last call inside has left it is retired (its
//! native part goes), and when the last hold is gone its slot is reused, the oldest free slot first. Entering
//! writes nothing that another thread writes.

use super::{GENERATION_MAX, Handle, Tag, decode, decode_with, encode, invalid, salt};
use crate::error::{Result, fail};
use crate::fork::Distrusted;
use crate::thread::{self, Place};
use crossbeam_queue::SegQueue;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

// The state word of a slot: generation, live bit, the bit that somebody retires it, the bit that this is done, the object's mark,
// holds.
const HOLD: u64 = 1;
const HOLDS_MASK: u64 = (1 << 32) - 1;
const MARK_SHIFT: u32 = 32;
const MARK_BITS: u32 = 9;
const DONE: u64 = 1 << 41;
const RETIRED: u64 = 1 << 42;
const LIVE: u64 = 1 << 43;
const GENERATION_SHIFT: u32 = 44;

const _: () = assert!(1u64 << (MARK_SHIFT + MARK_BITS) == DONE && HOLDS_MASK >> MARK_SHIFT == 0);

fn generation_of(state: u64) -> u32 {
    (state >> GENERATION_SHIFT) as u32
}

/// Whether the state is of a closed object of that generation that nobody has begun to retire.
fn is_due(state: u64, generation: u32) -> bool {
    state & RETIRED == 0 && is_ending(state, generation)
}

/// Whether the state is of a closed object of that generation whose native part may still be there.
fn is_ending(state: u64, generation: u32) -> bool {
    state & (LIVE | DONE) == 0 && state & HOLDS_MASK != 0 && generation_of(state) == generation
}

/// What lives in a registry.
pub trait Object: Send + Sync + 'static {
    const TAG: Tag;

    /// A number of the object's that `word_of` reads without entering, until `set_word` changes it.
    fn word(&self) -> u64 {
        0
    }

    /// A small number of the object's, for as long as it lives: up to `MARK_MAX`, 0 for none. Whether a handle names an object
    /// with a certain one is told without entering it.
    fn mark(&self) -> u64 {
        0
    }

    /// Runs once, when the object is closed and no call is inside: the native part goes here. What is held
    /// by others stays readable until the last hold is gone and the value is dropped.
    fn retire(&self) {}
}

/// The largest mark.
pub const MARK_MAX: u64 = (1 << MARK_BITS) - 1;

/// What entering looks at, and the beginning of the value, is in one cache line.
#[repr(C, align(64))]
struct Slot<T> {
    state: AtomicU64,
    word: AtomicU64,
    /// Where the slot is, for a guard that knows only the slot. Written when a value is put in.
    registry: AtomicPtr<Registry<T>>,
    index: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

impl<T> Slot<T> {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Most programs have no more of anything, and find it without asking in which chunk it is.
const FIRST_CHUNK: u32 = 256;
const CHUNKS: usize = 24;

/// What `Registry::marked` has looked up once for many handles.
pub struct Marked<T: 'static> {
    registry: &'static Registry<T>,
    /// The first chunk, if there is one: chunks stay where they are.
    first: *const Slot<T>,
    salt: u64,
    mark: u64,
}

impl<T: Object> Marked<T> {
    #[inline(always)]
    pub fn has(&self, handle: Handle) -> bool {
        const COMPARED: u64 = !(HOLDS_MASK | RETIRED);
        let Some((index, generation)) = decode_with(self.salt, T::TAG, handle) else { return false };
        let slot = if index < FIRST_CHUNK && !self.first.is_null() {
            // SAFETY: the first chunk has that many slots, and is never freed.
            unsafe { &*self.first.add(index as usize) }
        } else {
            let Some(slot) = self.registry.slot(index) else { return false };
            slot
        };
        let wanted = u64::from(generation) << GENERATION_SHIFT | LIVE | self.mark << MARK_SHIFT;
        slot.state.load(Ordering::Acquire) & COMPARED == wanted
    }
}

/// All objects of one type. Lives in a `static`; its memory is kept for reuse and never given back.
pub struct Registry<T> {
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    next: AtomicU32,
    free: UnsafeCell<SegQueue<u32>>,
    distrusted: Distrusted<SegQueue<u32>>,
}

// SAFETY: the queue of free slots is replaced only while nobody else is here; values are reached through the state word's protocol only, shared as `&T`; T is Send + Sync.
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
            free: UnsafeCell::new(SegQueue::new()),
            distrusted: Distrusted::new(),
        }
    }

    #[inline]
    fn free(&self) -> &SegQueue<u32> {
        // SAFETY: written only by `mend_in_child`, which is alone.
        unsafe { &*self.free.get() }
    }

    /// After a fork, in the child: a thread that was putting a slot in the queue, or taking one out, will never
    /// finish, and others would wait for it. The slots that were free are given up.
    ///
    /// # Safety
    /// In the child, before any other use of the registry there.
    pub unsafe fn mend_in_child(&self) {
        // SAFETY: nobody else is here. The old queue is not dropped, since it may be half changed.
        unsafe { self.distrusted.replace(self.free.get(), SegQueue::new()) };
    }

    #[inline(always)]
    fn place(index: u32) -> (usize, u32) {
        let k = (index / FIRST_CHUNK + 1).ilog2();
        (k as usize, index - FIRST_CHUNK * ((1 << k) - 1))
    }

    #[inline(always)]
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
    pub fn insert(&'static self, value: T) -> Result<Handle> {
        let index = match self.free().pop() {
            Some(index) => index,
            None => self.grow()?,
        };
        let Some(slot) = self.slot(index) else {
            fail!(Internal, "a slot of the table of {}s is missing", T::TAG.name());
        };
        slot.word.store(value.word(), Ordering::Relaxed);
        slot.registry.store(std::ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
        slot.index.store(index, Ordering::Relaxed);
        let mark = value.mark().min(MARK_MAX) << MARK_SHIFT;
        // SAFETY: a free slot has no value, and whoever took its index owns it until it is live.
        unsafe { (*slot.value.get()).write(value) };
        let generation = generation_of(slot.state.load(Ordering::Relaxed));
        slot.state.store(u64::from(generation) << GENERATION_SHIFT | LIVE | mark | HOLD, Ordering::Release);
        Ok(encode(T::TAG, index, generation))
    }

    /// The handle that an index stands for at this moment.
    pub fn handle_of(&self, index: u32) -> Handle {
        let state = self.slot(index).map_or(0, |slot| slot.state.load(Ordering::Relaxed));
        encode(T::TAG, index, generation_of(state))
    }

    #[inline(always)]
    fn try_enter(
        &'static self,
        thread: &'static thread::Record,
        index: u32,
        generation: Option<u32>,
    ) -> Option<Entered<T>> {
        let slot = self.slot(index)?;
        let is_it = |state: u64| state & LIVE != 0 && generation.is_none_or(|g| g == generation_of(state));
        if !is_it(slot.state.load(Ordering::Relaxed)) {
            return None;
        }
        let entered = Entered { slot, place: Place::take(thread, slot.address())?, local: PhantomData };
        // Asked again now that the closer would see us: the first answer may have been overtaken. If it was,
        // dropping the guard looks after what we may have kept from being retired.
        is_it(slot.state.load(Ordering::Acquire)).then_some(entered)
    }

    /// Keeps the object from being retired while the guard lives.
    #[inline]
    pub fn enter(&'static self, handle: Handle) -> Result<Entered<T>> {
        self.enter_as(thread::mine(), handle)
    }

    /// `enter` for a caller that has its thread's record at hand.
    #[inline]
    pub fn enter_as(&'static self, thread: &'static thread::Record, handle: Handle) -> Result<Entered<T>> {
        match decode(T::TAG, handle)
            .and_then(|(index, generation)| self.try_enter(thread, index, Some(generation)))
        {
            Some(entered) => Ok(entered),
            None => Err(invalid(T::TAG, handle)),
        }
    }

    /// As `enter`, also of an object that was closed while a call of this thread, in whose middle this one is made, is inside.
    pub fn enter_from_within(&'static self, handle: Handle) -> Result<Entered<T>> {
        let thread = thread::mine();
        self.enter_as(thread, handle).or_else(|stale| {
            let within = decode(T::TAG, handle).and_then(|(index, generation)| {
                // Nobody else comes to be in the slot while a call is inside.
                let slot = self.slot(index).filter(|slot| thread.is_inside(slot.address()))?;
                if !is_due(slot.state.load(Ordering::Acquire), generation) {
                    return None;
                }
                Some(Entered { slot, place: Place::take(thread, slot.address())?, local: PhantomData })
            });
            within.ok_or(stale)
        })
    }

    /// Enters an object that the caller holds; `None` once it is closed.
    #[inline]
    pub fn enter_held(&'static self, thread: &'static thread::Record, held: u32) -> Option<Entered<T>> {
        self.try_enter(thread, held, None)
    }

    /// Says that a call of this thread is inside of an object that the caller holds, closed or not. `None` when the thread is
    /// inside of too many.
    ///
    /// # Safety
    /// The caller has a hold on `held` for as long as the guard lives.
    pub unsafe fn enter_closed(
        &'static self,
        thread: &'static thread::Record,
        held: u32,
    ) -> Option<Entered<T>> {
        let slot = self.slot(held)?;
        Some(Entered { slot, place: Place::take(thread, slot.address())?, local: PhantomData })
    }

    /// Comes back when no call of another thread is inside of the object that the caller holds; at once when the asking thread is
    /// inside, since two of those would wait for each other. To be asked when calls that enter from now on leave it alone.
    ///
    /// # Safety
    /// The caller has a hold on `held`.
    pub unsafe fn wait_for_others(&'static self, held: u32) {
        let Some(slot) = self.slot(held) else { return };
        let me = thread::mine();
        if me.is_inside(slot.address()) {
            return;
        }
        me.set_waits_for_others(me.callbacks() != 0);
        while thread::anyone_else_inside(me, slot.address()) {
            std::thread::sleep(std::time::Duration::from_micros(20));
        }
        me.set_waits_for_others(false);
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

    /// Tells handles of live objects that have this mark; of the mark 0 there are none. Enters nothing.
    #[inline(always)]
    pub fn marked(&'static self, mark: u64) -> Marked<T> {
        // No live object is done.
        let mark = if mark == 0 { DONE >> MARK_SHIFT } else { mark };
        Marked { registry: self, first: self.chunks[0].load(Ordering::Acquire), salt: salt(), mark }
    }

    /// Takes another hold.
    ///
    /// # Safety
    /// The caller has a hold on `held`, or knows of one that lasts for the length of the call.
    pub unsafe fn hold_again(&self, held: u32) {
        if let Some(slot) = self.slot(held) {
            slot.state.fetch_add(HOLD, Ordering::Relaxed);
        }
    }

    /// A hold on the object of a handle, closed or not, as long as anybody has one.
    pub fn hold(&'static self, handle: Handle) -> Option<Hold<T>> {
        let (index, generation) = decode(T::TAG, handle)?;
        let slot = self.slot(index)?;
        let more = |state| {
            let is_there = state & HOLDS_MASK != 0 && generation_of(state) == generation;
            is_there.then_some(state + HOLD)
        };
        slot.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Hold { registry: self, index })
    }

    /// Changes the word of an object that the caller is inside of.
    pub fn set_word(&self, index: u32, word: u64) {
        if let Some(slot) = self.slot(index) {
            slot.word.store(word, Ordering::Relaxed);
        }
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
            self.free().push(index);
        }
    }

    /// Makes the handle stale. The object is retired when the guard and all other calls inside are gone.
    pub fn close(&'static self, handle: Handle) -> Result<Entered<T>> {
        decode(T::TAG, handle)
            .and_then(|(index, generation)| self.try_close(index, Some(generation)))
            .ok_or_else(|| invalid(T::TAG, handle))
    }

    /// Comes back when the object of a handle that was closed is retired: when the calls that other threads were inside of it
    /// with have left. At once where a call of this thread is inside, in whose middle this one is made.
    pub fn wait_for_retirement(&'static self, handle: Handle) {
        let Some((index, generation)) = decode(T::TAG, handle) else { return };
        let Some(slot) = self.slot(index) else { return };
        while is_ending(slot.state.load(Ordering::Acquire), generation)
            && !thread::mine().is_inside(slot.address())
        {
            std::thread::sleep(std::time::Duration::from_micros(20));
            // The last may have left before it could see that it was.
            self.try_retire(slot, index);
        }
    }

    fn try_close(&'static self, index: u32, generation: Option<u32>) -> Option<Entered<T>> {
        let entered = self.try_enter(thread::mine(), index, generation)?;
        let mut state = entered.slot.state.load(Ordering::Relaxed);
        while state & LIVE != 0 {
            match entered.slot.state.compare_exchange_weak(
                state,
                state & !LIVE,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(entered),
                Err(now) => state = now,
            }
        }
        None
    }

    /// Retires a closed object if nobody is inside any more.
    #[cold]
    fn try_retire(&self, slot: &Slot<T>, index: u32) {
        let state = slot.state.load(Ordering::Acquire);
        let generation = generation_of(state);
        if is_due(state, generation) && !thread::anyone_inside(slot.address()) {
            self.retire(slot, index, generation);
        }
    }

    /// Retires the object of that generation, which nobody is inside of; of several callers one does it. The slot may
    /// have another by now, closed as well and with calls inside.
    fn retire(&self, slot: &Slot<T>, index: u32, generation: u32) {
        let retired = slot.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            is_due(state, generation).then_some(state | RETIRED)
        });
        if retired.is_err() {
            return;
        }
        slot.state.fetch_sub(u64::from(thread::collect_spares(slot.address())) * HOLD, Ordering::AcqRel);
        // SAFETY: the registry's own hold is given back only here.
        unsafe {
            self.held(index).retire();
            slot.state.fetch_or(DONE, Ordering::AcqRel);
            self.release_hold(index);
        }
    }

    /// Whether all live objects satisfy the predicate; stops at the first that does not.
    pub fn all(&'static self, mut predicate: impl FnMut(&T) -> bool) -> bool {
        (0..self.next.load(Ordering::Acquire))
            .all(|index| self.try_enter(thread::mine(), index, None).is_none_or(|object| predicate(&object)))
    }

    /// Makes every handle stale, and keeps the values until the holds that are given are dropped.
    pub fn close_all(&'static self) -> Vec<Hold<T>> {
        self.close_all_but(|_| false)
    }

    /// As `close_all`, but for the objects that the predicate names.
    pub fn close_all_but(&'static self, mut stays: impl FnMut(&T) -> bool) -> Vec<Hold<T>> {
        (0..self.next.load(Ordering::Acquire))
            .filter(|index| {
                self.try_enter(thread::mine(), *index, None).is_some_and(|object| !stays(&object))
            })
            .filter_map(|index| self.try_close(index, None))
            .map(|closed| closed.lasting_hold())
            .collect()
    }

    /// Closes every object that the predicate names.
    pub fn close_where(&'static self, mut predicate: impl FnMut(&T) -> bool) {
        for index in 0..self.next.load(Ordering::Acquire) {
            let wanted = self.try_enter(thread::mine(), index, None).is_some_and(|object| predicate(&object));
            if wanted {
                drop(self.try_close(index, None));
            }
        }
    }
}

/// A hold that gives itself back.
pub struct Hold<T: Object> {
    registry: &'static Registry<T>,
    index: u32,
}

impl<T: Object> Hold<T> {
    /// The slot's number, the name of the hold.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Says that a call of this thread is inside, as long as the guard lives, which is shorter than this. `None` when it is inside
    /// of too many objects.
    pub fn enter(&self, thread: &'static thread::Record) -> Option<Entered<T>> {
        // SAFETY: the hold is this guard's.
        unsafe { self.registry.enter_closed(thread, self.index) }
    }
}

impl<T: Object> Deref for Hold<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the hold is this guard's.
        unsafe { self.registry.held(self.index) }
    }
}

impl<T: Object> Drop for Hold<T> {
    fn drop(&mut self) {
        // SAFETY: the hold is this guard's, and the guard is going.
        unsafe { self.registry.release_hold(self.index) };
    }
}

/// A call inside an object. Stays on its thread.
pub struct Entered<T: Object> {
    slot: &'static Slot<T>,
    place: Place,
    local: PhantomData<*const ()>,
}

impl<T: Object> Entered<T> {
    /// A hold that gives itself back.
    pub fn lasting_hold(&self) -> Hold<T> {
        // SAFETY: written when the value was put in; registries that values are put in live for ever.
        let registry = unsafe { &*self.slot.registry.load(Ordering::Relaxed) };
        Hold { registry, index: self.hold() }
    }

    /// The slot's number, the name of a hold.
    #[inline]
    pub fn index(&self) -> u32 {
        self.slot.index.load(Ordering::Relaxed)
    }

    /// The record of the thread that is inside.
    #[inline]
    pub fn thread(&self) -> &'static thread::Record {
        self.place.record()
    }

    #[cold]
    fn retire_if_last(&self) {
        // SAFETY: written when the value was put in; registries that values are put in live for ever.
        let registry = unsafe { &*self.slot.registry.load(Ordering::Relaxed) };
        registry.try_retire(self.slot, self.index());
    }

    /// Takes a hold, to be given back by `release_hold` or `leave_releasing`.
    #[inline]
    pub fn hold(&self) -> u32 {
        if !self.thread().take_spare(self.slot.address()) {
            // The count cannot overflow: each hold stands for an object in memory of tens of bytes.
            self.slot.state.fetch_add(HOLD, Ordering::Relaxed);
        }
        self.index()
    }

    /// Leaves the object and gives back a hold on it.
    ///
    /// # Safety
    /// The caller has that hold, and has it no more afterwards.
    #[inline]
    pub unsafe fn leave_releasing(self) {
        // One's own hold is kept for the next of this thread; the closer collects it.
        if !self.thread().give_spare(self.slot.address()) {
            // The registry's own hold is there as long as a call is inside, so this is not the last.
            self.slot.state.fetch_sub(HOLD, Ordering::AcqRel);
        }
    }
}

impl<T: Object> Deref for Entered<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the registry's own hold keeps the value in place until retirement, which a call inside
        // keeps from happening.
        unsafe { (*self.slot.value.get()).assume_init_ref() }
    }
}

impl<T: Object> Drop for Entered<T> {
    #[inline]
    fn drop(&mut self) {
        self.place.give_back();
        if self.slot.state.load(Ordering::Acquire) & (LIVE | RETIRED) == 0 {
            self.retire_if_last();
        }
    }
}

#[cfg(test)]
mod tests;
