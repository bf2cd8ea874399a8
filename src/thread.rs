//! What each thread keeps for the library, in a place that others can look at: the objects that its calls are
//! inside of, its share of the counts, and what it gave back and will probably take again. Only the thread itself writes, so
//! writing needs no locked instruction.
//!
//! Records are never freed. One whose thread has ended serves the next new thread, counts and all.

mod fences;

pub use fences::{heavy_fence, light_fence};

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// As many objects as the nested calls of one thread can be inside of.
const PLACES: usize = 64;
const COUNTS: usize = 32;

#[repr(C, align(128))]
pub struct Record {
    /// Which places are taken. Read and written by the thread itself only.
    taken: AtomicU64,
    taken_by_thread: AtomicBool,
    /// The kernel's number of its thread if that was ending already when it took the record, else 0: then nobody may
    /// be told when the thread is gone.
    ending: AtomicI32,
    number: usize,
    /// How many threads have had it.
    tenants: AtomicU32,
    /// What is called when its thread has ended: a `fn()`, 0 for nothing.
    at_end: AtomicUsize,
    /// Addresses of slots that a call of this thread is inside of; 0 is none. The first are in the same cache line.
    inside: [AtomicUsize; PLACES],
    /// How many callbacks of other code the thread is in the middle of. The thread's own.
    callbacks: AtomicU32,
    /// Whether the thread, in the middle of one, waits for other threads to leave theirs.
    awaits_callbacks: AtomicBool,
    /// How often something changed for the thread alone, and for those that had the record before.
    changes: AtomicU64,
    /// What a room above keeps for the thread; never taken back.
    attached: AtomicPtr<()>,
    counts: [Count; COUNTS],
    spares: [Spare; SPARES],
    next: AtomicPtr<Record>,
}

impl Record {
    /// A small number that no other living thread has.
    #[inline]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The thread that has the record now.
    pub fn tenant(&'static self) -> Tenant {
        Tenant { record: self, nth: self.tenants.load(Ordering::Relaxed) }
    }

    /// Has something called when the thread has ended, on it and once. It may take no lock, and is all that is called.
    pub fn at_end(&self, call: fn()) {
        self.at_end.store(call as usize, Ordering::Relaxed);
    }

    /// How many callbacks of other code the thread is in the middle of.
    #[inline]
    pub fn callbacks(&self) -> u32 {
        self.callbacks.load(Ordering::Relaxed)
    }

    /// To be set by the thread itself.
    #[inline]
    pub fn set_callbacks(&self, depth: u32) {
        self.callbacks.store(depth, Ordering::Relaxed);
    }

    /// Says that the thread waits for others in the middle of a callback, while the guard lives.
    pub fn await_callbacks(&'static self) -> Awaiting {
        self.awaits_callbacks.store(true, Ordering::SeqCst);
        Awaiting(self)
    }

    /// How often something changed for the thread alone.
    #[inline(always)]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// To be called by the thread itself.
    pub fn change(&self) {
        self.changes.store(self.changes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// What one room above keeps for the thread, and for the next one that has the record; NULL at first, and in the child of a fork
    /// for all threads but the one that forked. Read and written by the thread itself only.
    #[inline(always)]
    pub fn attached(&self) -> &AtomicPtr<()> {
        &self.attached
    }

    /// Whether the thread is inside of as many objects as it can be.
    pub fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) == u64::MAX
    }

    /// Adds one to the first or the second count of `key`. False when the record has no room for it. For the
    /// record's own thread only.
    #[inline]
    pub fn count(&self, key: u32, second: bool) -> bool {
        let count = &self.counts[key as usize % COUNTS];
        let owner = count.key.load(Ordering::Relaxed);
        if owner != key + 1 && !self.take_count(count, owner, key) {
            return false;
        }
        let counter = if second { &count.second } else { &count.first };
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
        true
    }

    /// Of `bytes` more in use under `key`, those that the shared sum must be raised by.
    #[inline]
    pub fn take_float(&self, key: u32, bytes: u64) -> u64 {
        let count = &self.counts[key as usize % COUNTS];
        if count.key.load(Ordering::Relaxed) != key + 1 {
            return bytes;
        }
        let float = count.float.load(Ordering::Relaxed);
        let used = float.min(bytes);
        count.float.store(float - used, Ordering::Release);
        bytes - used
    }

    /// Of `bytes` less in use under `key`, those that the shared sum must be lowered by.
    #[inline]
    pub fn give_float(&self, key: u32, bytes: u64) -> u64 {
        let count = &self.counts[key as usize % COUNTS];
        if count.key.load(Ordering::Relaxed) != key + 1 {
            return bytes;
        }
        let float = count.float.load(Ordering::Relaxed) + bytes;
        let kept = if float > FLOAT { 0 } else { float };
        count.float.store(kept, Ordering::Release);
        float - kept
    }

    /// Counts one more, of `bytes` that the thread has kept to itself. False when it has fewer, and nothing is counted.
    #[inline(always)]
    pub fn count_from_float(&self, key: u32, bytes: u64) -> bool {
        let count = &self.counts[key as usize % COUNTS];
        let float = count.float.load(Ordering::Relaxed);
        if count.key.load(Ordering::Relaxed) != key + 1 || float < bytes {
            return false;
        }
        count.first.store(count.first.load(Ordering::Relaxed) + 1, Ordering::Release);
        count.float.store(float - bytes, Ordering::Release);
        true
    }

    /// Counts one of the second sort, of a cached block, and has the thread keep its bytes to itself: more than `give_float` keeps, and a
    /// single block of any size, so that who takes and gives large ones writes nothing shared. `None` when the record has no room,
    /// and nothing is counted; else the bytes that the shared sum must be lowered by.
    #[inline(always)]
    pub fn count_to_float(&self, key: u32, bytes: u64) -> Option<u64> {
        let count = &self.counts[key as usize % COUNTS];
        if count.key.load(Ordering::Relaxed) != key + 1 {
            return None;
        }
        let float = count.float.load(Ordering::Relaxed);
        let sum = float + bytes;
        let less = if float != 0 && sum > CACHED_FLOAT { sum - CACHED_FLOAT / 2 } else { 0 };
        count.second.store(count.second.load(Ordering::Relaxed) + 1, Ordering::Release);
        count.float.store(sum - less, Ordering::Release);
        Some(less)
    }

    /// The bytes that the thread kept to itself under `key`, no more kept.
    pub fn end_float(&self, key: u32) -> u64 {
        let count = &self.counts[key as usize % COUNTS];
        if count.key.load(Ordering::Relaxed) == key + 1 { count.float.swap(0, Ordering::AcqRel) } else { 0 }
    }

    /// Whether a call of this thread is inside of the slot's object.
    pub fn is_inside(&self, slot: usize) -> bool {
        self.inside.iter().any(|inside| inside.load(Ordering::Acquire) == slot)
    }

    /// Takes a hold on `slot` that this thread gave back before. For a thread that is inside of the slot's object.
    #[inline]
    pub fn take_spare(&self, slot: usize) -> bool {
        let spare = self.spare(slot);
        let holds = spare.holds.load(Ordering::Relaxed);
        if holds == 0 || spare.slot.load(Ordering::Relaxed) != slot {
            return false;
        }
        spare.holds.store(holds - 1, Ordering::Release);
        true
    }

    /// Keeps a hold on `slot` for the next one to be taken. For a thread that is inside of the slot's object.
    #[inline]
    pub fn give_spare(&self, slot: usize) -> bool {
        let spare = self.spare(slot);
        let holds = spare.holds.load(Ordering::Relaxed);
        if spare.slot.load(Ordering::Relaxed) != slot {
            if holds != 0 {
                return false;
            }
            spare.slot.store(slot, Ordering::Release);
        }
        spare.holds.store(holds + 1, Ordering::Release);
        true
    }

    #[inline]
    fn spare(&self, slot: usize) -> &Spare {
        // Slots are tens of bytes apart.
        &self.spares[(slot >> 6 ^ slot >> 10) % SPARES]
    }

    #[cold]
    fn take_count(&self, count: &Count, owner: u32, key: u32) -> bool {
        if owner == 0 {
            count.key.store(key + 1, Ordering::Release);
        }
        owner == 0
    }
}

/// A thread, living or not.
#[derive(Clone, Copy)]
pub struct Tenant {
    record: &'static Record,
    nth: u32,
}

impl Tenant {
    /// Whether it has surely ended.
    pub fn has_ended(self) -> bool {
        let Tenant { record, nth } = self;
        let ending = record.ending.load(Ordering::Acquire);
        !record.taken_by_thread.load(Ordering::Acquire)
            || record.tenants.load(Ordering::Acquire) != nth
            || ending != 0 && is_gone(ending)
    }
}

/// A pair of counts that only one thread adds to.
#[derive(Default)]
struct Count {
    /// What is counted, plus one; 0 is nothing yet. Never changes again.
    key: AtomicU32,
    first: AtomicU64,
    second: AtomicU64,
    /// Bytes that were given back and not yet taken off the shared sum; the next taking uses them up first.
    float: AtomicU64,
}

/// Holds on a slot that this thread gave back and that are still counted there: the next ones that it takes.
#[derive(Default)]
struct Spare {
    slot: AtomicUsize,
    holds: AtomicU32,
}

const SPARES: usize = 16;
/// As many bytes as a thread keeps to itself for each key.
const FLOAT: u64 = 1 << 20;
/// The same of cached blocks, which are taken and given more often: about as many as a thread has at hand.
const CACHED_FLOAT: u64 = 64 << 20;

static ALL: AtomicPtr<Record> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static MINE: Cell<Option<&'static Record>> = const { Cell::new(None) };
    /// Whether the thread has begun to run the destructors of its end.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread's record.
#[inline]
pub fn mine() -> &'static Record {
    match MINE.get() {
        Some(record) => record,
        None => claim(),
    }
}

#[cold]
fn claim() -> &'static Record {
    let record = all()
        .find(|record| {
            record.taken_by_thread.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
        .or_else(take_over)
        .unwrap_or_else(make);
    record.tenants.fetch_add(1, Ordering::AcqRel);
    record.change();
    record.at_end.store(0, Ordering::Relaxed);
    record.ending.store(if ENDING.get() { kernel_number() } else { 0 }, Ordering::Release);
    MINE.set(Some(record));
    give_back_at_exit(record);
    record
}

/// A record whose thread took it so late in its own end that the C library told us nothing any more.
fn take_over() -> Option<&'static Record> {
    all().find(|record| {
        let thread = record.ending.load(Ordering::Acquire);
        thread != 0
            && record.taken_by_thread.load(Ordering::Acquire)
            && is_gone(thread)
            && record.ending.compare_exchange(thread, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

fn kernel_number() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Whether no thread of this process has the number. A number that was given again makes it look alive.
fn is_gone(thread: i32) -> bool {
    // SAFETY: signal 0 is sent to nobody; it only asks.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) };
    answer != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

fn make() -> &'static Record {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let record: &'static Record = Box::leak(Box::new(Record {
        number: NEXT.fetch_add(1, Ordering::Relaxed),
        tenants: AtomicU32::new(0),
        at_end: AtomicUsize::new(0),
        inside: [const { AtomicUsize::new(0) }; PLACES],
        taken: AtomicU64::new(0),
        callbacks: AtomicU32::new(0),
        awaits_callbacks: AtomicBool::new(false),
        changes: AtomicU64::new(0),
        attached: AtomicPtr::new(std::ptr::null_mut()),
        counts: Default::default(),
        spares: Default::default(),
        taken_by_thread: AtomicBool::new(true),
        ending: AtomicI32::new(0),
        next: AtomicPtr::new(std::ptr::null_mut()),
    }));
    let mut head = ALL.load(Ordering::Acquire);
    loop {
        record.next.store(head, Ordering::Relaxed);
        let new = std::ptr::from_ref(record).cast_mut();
        match ALL.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return record,
            Err(now) => head = now,
        }
    }
}

/// Every record there is, of living threads and of ended ones.
fn all() -> impl Iterator<Item = &'static Record> {
    let mut at = ALL.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: records are leaked boxes.
        let record = unsafe { at.as_ref() }?;
        at = record.next.load(Ordering::Acquire);
        Some(record)
    })
}

/// Has the record given back when the thread ends. A destructor of the C library's, since one of Rust's would
/// make the variable unusable for calls that come even later.
fn give_back_at_exit(record: &'static Record) {
    static KEY: AtomicU32 = AtomicU32::new(NONE);
    const NONE: u32 = u32::MAX;
    let mut key = KEY.load(Ordering::Acquire);
    if key == NONE {
        let mut made = 0;
        // SAFETY: the destructor is a function of a library that is never unmapped.
        if unsafe { libc::pthread_key_create(&mut made, Some(thread_ends)) } != 0 {
            // Without a key the record stays with its ended thread; only memory is lost.
            return;
        }
        key = match KEY.compare_exchange(NONE, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(first) => {
                // SAFETY: made just now and not published.
                unsafe { libc::pthread_key_delete(made) };
                first
            }
        };
    }
    // SAFETY: a key of this process; the value is the record's address.
    unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(record).cast()) };
}

unsafe extern "C" fn thread_ends(record: *mut std::ffi::c_void) {
    MINE.set(None);
    ENDING.set(true);
    // SAFETY: the value set by `give_back_at_exit`, a leaked box.
    let record = unsafe { &*record.cast::<Record>() };
    record.ending.store(0, Ordering::Relaxed);
    let at_end = record.at_end.swap(0, Ordering::Relaxed);
    record.taken_by_thread.store(false, Ordering::Release);
    if at_end != 0 {
        // SAFETY: only `at_end` writes it, from a `fn()`.
        unsafe { std::mem::transmute::<usize, fn()>(at_end)() };
    }
}

thread_local! {
    /// How many callbacks of the driver the thread is in the middle of.
    static DRIVERS: Cell<u32> = const { Cell::new(0) };
}

/// Runs something in the middle of a callback of the driver, where that serves nobody.
pub fn in_drivers_callback<R>(body: impl FnOnce() -> R) -> R {
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            DRIVERS.set(DRIVERS.get() - 1);
        }
    }
    DRIVERS.set(DRIVERS.get() + 1);
    let _inside = Inside;
    body()
}

/// Whether the thread is in the middle of a callback of the driver.
pub fn is_in_drivers_callback() -> bool {
    DRIVERS.get() != 0
}

/// A thread that waits for others in the middle of a callback.
pub struct Awaiting(&'static Record);

impl Drop for Awaiting {
    fn drop(&mut self) {
        self.0.awaits_callbacks.store(false, Ordering::SeqCst);
    }
}

/// A place of this thread's record that says which slot a call is inside of.
#[derive(Clone, Copy)]
pub struct Place {
    record: &'static Record,
    number: u32,
}

impl Place {
    /// Says that a call of this thread is inside of `slot`. `None` when it is inside of too many.
    #[inline(always)]
    pub fn take(record: &'static Record, slot: usize) -> Option<Place> {
        let taken = record.taken.load(Ordering::Relaxed);
        let number = (!taken).trailing_zeros();
        if number as usize >= PLACES {
            return None;
        }
        record.taken.store(taken | 1 << number, Ordering::Relaxed);
        record.inside[number as usize].store(slot, Ordering::Release);
        light_fence();
        Some(Place { record, number })
    }

    /// The thread's record that it is a place of.
    #[inline]
    pub fn record(&self) -> &'static Record {
        self.record
    }

    /// Says that the call has left.
    #[inline(always)]
    pub fn give_back(self) {
        self.record.inside[self.number as usize].store(0, Ordering::Release);
        let taken = self.record.taken.load(Ordering::Relaxed);
        self.record.taken.store(taken & !(1 << self.number), Ordering::Relaxed);
        light_fence();
    }
}

/// Whether a call of any thread is inside of `slot`. To be asked when none can enter any more, and answered after
/// a barrier on all of them.
#[cold]
pub fn anyone_inside(slot: usize) -> bool {
    heavy_fence();
    all().any(|record| record.is_inside(slot))
}

/// As `anyone_inside`, of threads beside the one whose record this is. When that waits in the middle of a callback, others that do
/// so too are not counted: none of them would come to an end before the other.
#[cold]
pub fn anyone_else_inside(own: &'static Record, slot: usize) -> bool {
    heavy_fence();
    let waits = |record: &Record| record.awaits_callbacks.load(Ordering::SeqCst);
    let left_out = |record: &Record| std::ptr::eq(record, own) || waits(own) && waits(record);
    all().filter(|record| !left_out(record)).any(|record| record.is_inside(slot))
}

/// Takes from all threads the holds on `slot` that they keep for later. To be asked when nobody is inside of its
/// object and nobody can enter any more: then no thread changes them.
#[cold]
pub fn collect_spares(slot: usize) -> u32 {
    // A thread may turn an entry without holds over to another slot at any moment, and one with holds never. So the
    // holds are read first: those of another slot come with its address.
    let has_some = |spare: &&Spare| {
        spare.holds.load(Ordering::Acquire) != 0 && spare.slot.load(Ordering::Acquire) == slot
    };
    all()
        .map(|record| record.spare(slot))
        .filter(has_some)
        .map(|spare| spare.holds.swap(0, Ordering::AcqRel))
        .sum()
}

/// The bytes that threads keep to themselves under `key`: given back, and still in the shared sum.
pub fn floating(key: u32) -> u64 {
    all()
        .map(|record| &record.counts[key as usize % COUNTS])
        .filter(|count| count.key.load(Ordering::Acquire) == key + 1)
        .map(|count| count.float.load(Ordering::Acquire))
        .sum()
}

/// After a fork, in the child: the other threads are not there any more.
pub fn after_fork_in_child() {
    for record in all().filter(|record| !std::ptr::eq(*record, mine())) {
        for inside in &record.inside {
            inside.store(0, Ordering::Release);
        }
        record.taken.store(0, Ordering::Relaxed);
        // Its thread may have been in the middle of changing it: the next one makes another.
        record.attached.store(std::ptr::null_mut(), Ordering::Relaxed);
        record.set_callbacks(0);
        record.awaits_callbacks.store(false, Ordering::Relaxed);
        record.ending.store(0, Ordering::Relaxed);
        record.taken_by_thread.store(false, Ordering::Release);
    }
    // The thread that forked has another number here.
    if mine().ending.load(Ordering::Relaxed) != 0 {
        mine().ending.store(kernel_number(), Ordering::Release);
    }
}

/// The counts of `key`, over all threads.
pub fn counted(key: u32) -> (u64, u64) {
    let mut sum = (0, 0);
    for record in all() {
        let count = &record.counts[key as usize % COUNTS];
        if count.key.load(Ordering::Acquire) == key + 1 {
            // The second first: what is undone in between is then missing from neither.
            sum.1 += count.second.load(Ordering::Acquire);
            sum.0 += count.first.load(Ordering::Acquire);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_seen_by_others_until_it_is_given_back() {
        let slot = 0x1000;
        let place = Place::take(mine(), slot).unwrap();
        assert!(std::thread::spawn(move || anyone_inside(slot)).join().unwrap());
        place.give_back();
        assert!(!anyone_inside(slot));
    }

    #[test]
    fn places_run_out_and_come_back() {
        std::thread::spawn(|| {
            let places: Vec<_> = (0..PLACES).map(|i| Place::take(mine(), 0x2000 + i).unwrap()).collect();
            assert!(Place::take(mine(), 0x3000).is_none());
            places[7].give_back();
            Place::take(mine(), 0x3000).unwrap().give_back();
            places.iter().enumerate().filter(|(i, _)| *i != 7).for_each(|(_, place)| place.give_back());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_end_of_a_thread_is_seen_and_told() {
        static TOLD: AtomicU32 = AtomicU32::new(0);
        let tenant = std::thread::spawn(|| {
            mine().at_end(|| _ = TOLD.fetch_add(1, Ordering::SeqCst));
            assert!(!mine().tenant().has_ended());
            mine().tenant()
        });
        let tenant = tenant.join().unwrap();
        assert!(tenant.has_ended());
        assert_eq!(TOLD.load(Ordering::SeqCst), 1);
        // The next thread that has the record is another one, and nobody is told of its end.
        std::thread::spawn(move || {
            mine();
            assert!(tenant.has_ended());
        })
        .join()
        .unwrap();
        assert_eq!(TOLD.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_child_does_not_trust_what_threads_that_it_does_not_have_were_changing() {
        static WAITING: AtomicU32 = AtomicU32::new(0);
        const KEPT: *mut () = std::ptr::NonNull::dangling().as_ptr();
        let other = std::thread::spawn(|| {
            mine().attached().store(KEPT, Ordering::Relaxed);
            WAITING.store(1, Ordering::SeqCst);
            while WAITING.load(Ordering::SeqCst) == 1 {
                std::thread::yield_now();
            }
            mine().attached().store(std::ptr::null_mut(), Ordering::Relaxed);
        });
        while WAITING.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let own = mine();
        // SAFETY: the child only reads and writes records, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            after_fork_in_child();
            let mut others = all().filter(|record| !std::ptr::eq(*record, own));
            let status = i32::from(others.any(|record| record.attached.load(Ordering::Relaxed) == KEPT));
            // SAFETY: ends this process, without what others have for its end.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: the child of just now.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        WAITING.store(2, Ordering::SeqCst);
        other.join().unwrap();
    }

    #[test]
    fn counts_outlive_their_threads() {
        let key = 31 * 1000;
        for _ in 0..3 {
            std::thread::spawn(move || {
                assert!(mine().count(key, false));
                assert!(mine().count(key, true));
                assert!(mine().count(key, false));
            })
            .join()
            .unwrap();
        }
        assert_eq!(counted(key), (6, 3));
    }
}
