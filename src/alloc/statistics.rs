//! Counts a device and kind: what is live, what the most was, how often. Kept apart from the driver's own
//! figures, which count other users of the same pool and round sizes up.

use super::{Kind, LEDGER, OWN_USE};
use crate::device::{Device, PerDevice};
use crate::ledger::{Ledger, Record};
use crate::thread;
use std::sync::atomic::{AtomicU64, Ordering};

/// A line of its own for each kind, so that kinds do not slow each other. How often is counted by each thread
/// for itself; here is what has no room in a thread's record.
#[derive(Default)]
#[repr(align(64))]
struct Counters {
    bytes: AtomicU64,
    peak: AtomicU64,
    allocations: AtomicU64,
    frees: AtomicU64,
    stale: AtomicU64,
}

fn key(device: u16, kind: usize) -> u32 {
    u32::from(device) * 8 + kind as u32
}

static COUNTERS: PerDevice<[Counters; 6]> = PerDevice::new();

/// A sum of bytes that may be less than nothing for a moment: a block goes with its device before the thread that got it has counted
/// it.
fn or_nothing(bytes: u64) -> u64 {
    if bytes > i64::MAX as u64 { 0 } else { bytes }
}

/// What the counts say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    pub live_bytes: u64,
    pub peak_bytes: u64,
    pub live_blocks: u64,
    pub allocations: u64,
    pub frees: u64,
    /// Blocks that other code freed behind the library's back.
    pub stale_blocks: u64,
}

#[inline]
fn counters(device: &'static Device, kind: u8) -> Option<&'static Counters> {
    COUNTERS.get_or_make(device, Default::default).get(usize::from(kind))
}

/// Whether a block is one that callers use: what allocators have from each other is counted once.
#[inline]
fn is_counted(ledger: &Ledger, record: &Record) -> bool {
    std::ptr::eq(ledger, &LEDGER) && record.flags() & OWN_USE == 0
}

#[inline]
pub fn count_alloc(ledger: &Ledger, me: &thread::Record, record: &Record) {
    if is_counted(ledger, record)
        && let Some(device) = crate::device::at(record.device())
    {
        count_alloc_of(me, device, record.kind(), record.size());
    }
}

/// Counts a block of a caller's.
#[inline(always)]
pub fn count_alloc_of(me: &thread::Record, device: &'static Device, kind: u8, size: u64) {
    let Some(counters) = counters(device, kind) else { return };
    let key = key(device.index(), usize::from(kind));
    if !me.count(key, false) {
        counters.allocations.fetch_add(1, Ordering::Relaxed);
    }
    let more = me.take_float(key, size);
    if more != 0 {
        let bytes = or_nothing(counters.bytes.fetch_add(more, Ordering::Relaxed).wrapping_add(more));
        if bytes > counters.peak.load(Ordering::Relaxed) {
            counters.peak.fetch_max(bytes, Ordering::Relaxed);
        }
    }
}

#[inline]
pub fn count_free(ledger: &Ledger, me: &thread::Record, record: &Record) {
    if is_counted(ledger, record)
        && let Some(device) = crate::device::at(record.device())
    {
        count_free_of(me, device, record.kind(), record.size());
    }
}

/// Counts the free of a block of a caller's.
#[inline(always)]
pub fn count_free_of(me: &thread::Record, device: &'static Device, kind: u8, size: u64) {
    let Some(counters) = counters(device, kind) else { return };
    let key = key(device.index(), usize::from(kind));
    if !me.count(key, true) {
        counters.frees.fetch_add(1, Ordering::Relaxed);
    }
    let less = me.give_float(key, size);
    if less != 0 {
        counters.bytes.fetch_sub(less, Ordering::Relaxed);
    }
}

/// As `count_alloc_of`, of a cached block.
#[inline(always)]
pub fn count_cached_alloc(me: &thread::Record, device: &'static Device, kind: u8, size: u64) {
    if !me.count_from_float(key(device.index(), usize::from(kind)), size) {
        count_shared_alloc(me, device, kind, size);
    }
}

#[inline(never)]
fn count_shared_alloc(me: &thread::Record, device: &'static Device, kind: u8, size: u64) {
    count_alloc_of(me, device, kind, size);
}

/// As `count_free_of`, of a cached block.
#[inline(always)]
pub fn count_cached_free(me: &thread::Record, device: &'static Device, kind: u8, size: u64) {
    let less = me.count_to_float(key(device.index(), usize::from(kind)), size);
    if less != Some(0) {
        count_shared_free(me, device, kind, size, less);
    }
}

/// `less` is what the shared sum is to be lowered by; `None` when nothing is counted yet.
#[cold]
fn count_shared_free(me: &thread::Record, device: &'static Device, kind: u8, size: u64, less: Option<u64>) {
    match (less, counters(device, kind)) {
        (Some(less), Some(counters)) => _ = counters.bytes.fetch_sub(less, Ordering::Relaxed),
        (Some(_), None) => {}
        (None, _) => count_free_of(me, device, kind, size),
    }
}

pub fn count_stale(record: &Record) {
    if let Some(counters) = crate::device::at(record.device()).and_then(|of| counters(of, record.kind())) {
        counters.stale.fetch_add(1, Ordering::Relaxed);
    }
}

/// The counts of one kind on the device, or of all its kinds together; the peak of all is the sum of theirs.
pub fn statistics(device: &Device, kind: Option<Kind>) -> Statistics {
    let mut sum = Statistics::default();
    let Some(all) = COUNTERS.get(device) else { return sum };
    for (number, (counters, of)) in all.iter().zip(Kind::ALL).enumerate() {
        if kind.is_some_and(|kind| kind != of) {
            continue;
        }
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Frees first: a block that goes between the two reads is then counted live, never negative.
        let shared_frees = load(&counters.frees);
        let (allocations, frees) = thread::counted(key(device.index(), number));
        let allocations = allocations + load(&counters.allocations);
        let frees = frees + shared_frees;
        sum.live_bytes +=
            or_nothing(load(&counters.bytes).wrapping_sub(thread::floating(key(device.index(), number))));
        sum.peak_bytes += load(&counters.peak);
        sum.live_blocks += allocations.saturating_sub(frees);
        sum.allocations += allocations;
        sum.frees += frees;
        sum.stale_blocks += load(&counters.stale);
    }
    sum
}

/// Lets the peaks of the device begin again at what is live.
pub fn reset_peak(device: &Device) {
    if let Some(all) = COUNTERS.get(device) {
        for (number, counters) in all.iter().enumerate() {
            // The next peak begins at what is live, as far as this thread can tell.
            let own = thread::mine().end_float(key(device.index(), number));
            let bytes = counters.bytes.fetch_sub(own, Ordering::Relaxed).wrapping_sub(own);
            counters.peak.store(or_nothing(bytes), Ordering::Relaxed);
        }
    }
}
