//! An adaptor that counts what goes through it, over its life and over measurements that nest.
#![forbid(unsafe_code)]

use super::source::{Request, Source, Stacked, Statistics, Traits, Upstream, may_be_repeated};
use crate::error::{Result, fail};
use crate::fork::Own;
use crate::lock::Mutex;
use std::any::Any;

/// As many measurements as may be open at once.
const DEEPEST: usize = 4096;

/// What a measurement began with. What was since then is the difference to now.
#[derive(Debug, Clone, Copy, Default)]
struct Frame {
    start: Totals,
    /// The most that was live since it began, in all.
    peak_bytes: u64,
    peak_blocks: u64,
}

/// Counts that only grow.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    allocated_bytes: u64,
    allocated_blocks: u64,
    freed_bytes: u64,
    freed_blocks: u64,
    failures: u64,
}

impl Totals {
    fn live(&self) -> (u64, u64) {
        // Sums that have wrapped still have the right difference.
        (
            self.allocated_bytes.wrapping_sub(self.freed_bytes),
            self.allocated_blocks.wrapping_sub(self.freed_blocks),
        )
    }
}

/// One lock for all, since a peak is of one moment.
#[derive(Debug, Default)]
struct Counts {
    now: Totals,
    /// Over the whole life.
    life: Frame,
    /// The open measurements, the innermost last. Only that one's peak is kept up; it is folded into the next when it ends.
    open: Vec<Frame>,
}

impl Counts {
    fn top(&mut self) -> &mut Frame {
        self.open.last_mut().unwrap_or(&mut self.life)
    }

    fn allocated(&mut self, bytes: u64) {
        self.now.allocated_bytes = self.now.allocated_bytes.wrapping_add(bytes);
        self.now.allocated_blocks += 1;
        let (live_bytes, live_blocks) = self.now.live();
        let top = self.top();
        top.peak_bytes = top.peak_bytes.max(live_bytes);
        top.peak_blocks = top.peak_blocks.max(live_blocks);
    }

    fn freed(&mut self, bytes: u64) {
        self.now.freed_bytes = self.now.freed_bytes.wrapping_add(bytes);
        self.now.freed_blocks += 1;
    }

    /// Takes back a `freed`.
    fn freed_not(&mut self, bytes: u64) {
        self.now.freed_bytes = self.now.freed_bytes.wrapping_sub(bytes);
        self.now.freed_blocks -= 1;
    }

    fn push(&mut self) {
        let (peak_bytes, peak_blocks) = self.now.live();
        self.open.push(Frame { start: self.now, peak_bytes, peak_blocks });
    }

    fn pop(&mut self) -> Option<Statistics> {
        let frame = self.open.pop()?;
        let outer = self.top();
        outer.peak_bytes = outer.peak_bytes.max(frame.peak_bytes);
        outer.peak_blocks = outer.peak_blocks.max(frame.peak_blocks);
        Some(since(&frame, &self.now))
    }

    /// Since the beginning. Open measurements have kept their peaks to themselves.
    fn whole(&self) -> Statistics {
        let fold = |mut life: Frame, frame: &Frame| {
            life.peak_bytes = life.peak_bytes.max(frame.peak_bytes);
            life.peak_blocks = life.peak_blocks.max(frame.peak_blocks);
            life
        };
        since(&self.open.iter().fold(self.life, fold), &self.now)
    }
}

/// What was between the start of a frame and now.
fn since(frame: &Frame, now: &Totals) -> Statistics {
    let (start_bytes, start_blocks) = frame.start.live();
    let (live_bytes, live_blocks) = now.live();
    Statistics {
        live_bytes: live_bytes.saturating_sub(start_bytes),
        peak_bytes: frame.peak_bytes.saturating_sub(start_bytes),
        live_blocks: live_blocks.saturating_sub(start_blocks),
        peak_blocks: frame.peak_blocks.saturating_sub(start_blocks),
        total_bytes: now.allocated_bytes.wrapping_sub(frame.start.allocated_bytes),
        total_blocks: now.allocated_blocks - frame.start.allocated_blocks,
        failures: now.failures - frame.start.failures,
        reserved_bytes: 0,
    }
}

pub struct Counting {
    upstream: Upstream,
    counts: Own<Mutex<Counts>>,
}

impl Counting {
    pub fn new(upstream: Upstream) -> Result<Counting> {
        Stacked::require_room(&[&upstream])?;
        Ok(Counting { upstream, counts: Own::new(Mutex::default()) })
    }

    /// Begins a measurement inside of those that are open.
    pub fn push(&self) -> Result<()> {
        let mut counts = self.counts.lock();
        if counts.open.len() >= DEEPEST {
            fail!(
                NotSupported,
                "{DEEPEST} measurements are open, the most there can be; end them with warp_allocator_statistics_pop"
            );
        }
        counts.push();
        Ok(())
    }

    /// Ends the innermost measurement, and says what was in it.
    pub fn pop(&self) -> Result<Statistics> {
        let Some(statistics) = self.counts.lock().pop() else {
            fail!(
                InvalidArgument,
                "no measurement is open; begin one with warp_allocator_statistics_push, once for each pop"
            );
        };
        Ok(statistics)
    }
}

impl Source for Counting {
    fn sort(&self) -> &'static str {
        "statistics"
    }

    fn traits(&self) -> Traits {
        self.upstream.traits()
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        let outcome = self.upstream.allocate(request);
        let mut counts = self.counts.lock();
        match outcome {
            Ok(_) => counts.allocated(request.size),
            Err(_) => counts.now.failures += 1,
        }
        outcome
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        // Before its memory can be another thread's, which would count it a second time.
        self.counts.lock().freed(request.size);
        self.upstream.deallocate(address, request).inspect_err(|error| {
            if may_be_repeated(error) {
                self.counts.lock().freed_not(request.size);
            }
        })
    }

    fn upstream(&self) -> Option<&Upstream> {
        Some(&self.upstream)
    }

    fn statistics(&self) -> Result<Option<Statistics>> {
        let reserved_bytes = self.upstream.statistics()?.map_or(0, |below| below.reserved_bytes);
        Ok(Some(Statistics { reserved_bytes, ..self.counts.lock().whole() }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, request, upstream};
    use super::*;

    fn figures(s: Statistics) -> [u64; 7] {
        [s.live_bytes, s.peak_bytes, s.live_blocks, s.peak_blocks, s.total_bytes, s.total_blocks, s.failures]
    }

    #[test]
    fn measurements_nest_and_fold_their_peaks_into_the_outer_one() {
        let (below, _fake) = upstream(Fake { fail_every: 5, ..Fake::default() });
        let counting = Counting::new(below).unwrap();
        let take = |bytes| counting.allocate(&request(bytes)).unwrap();
        let give = |address, bytes| counting.deallocate(address, &request(bytes)).unwrap();
        assert!(counting.pop().is_err(), "nothing is open");

        let old = take(1000);
        counting.push().unwrap();
        let a = take(300);
        counting.push().unwrap();
        let b = take(500);
        give(b, 500);
        give(old, 1000);
        let c = take(50);
        assert!(counting.allocate(&request(7)).is_err());
        let whole = counting.statistics().unwrap().unwrap();
        assert_eq!(figures(whole), [350, 1800, 2, 3, 1850, 4, 1], "open measurements are part of the whole");
        assert_eq!(whole.reserved_bytes, 77);
        // More was given back than taken: nothing of it is live.
        assert_eq!(figures(counting.pop().unwrap()), [0, 500, 0, 1, 550, 2, 1]);
        assert_eq!(figures(counting.pop().unwrap()), [0, 800, 1, 2, 850, 3, 1]);
        assert!(counting.pop().is_err());
        give(a, 300);
        give(c, 50);
        assert_eq!(figures(counting.statistics().unwrap().unwrap()), [0, 1800, 0, 3, 1850, 4, 1]);
    }

    #[test]
    fn sixteen_threads_are_counted_exactly() {
        let (below, fake) = upstream(Fake::default());
        let counting = Counting::new(below).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let address = counting.allocate(&request(32)).unwrap();
                        counting.deallocate(address, &request(32)).unwrap();
                    }
                });
            }
        });
        let whole = counting.statistics().unwrap().unwrap();
        assert_eq!((whole.live_bytes, whole.total_blocks, whole.total_bytes), (0, 8000, 256_000));
        assert!(whole.peak_bytes >= 32 && whole.peak_bytes <= fake.source().most_out(), "{whole:?}");
    }

    #[test]
    fn there_is_an_end_to_measurements() {
        let (below, _fake) = upstream(Fake::default());
        let counting = Counting::new(below).unwrap();
        (0..DEEPEST).for_each(|_| counting.push().unwrap());
        assert!(counting.push().is_err());
        (0..DEEPEST).for_each(|_| assert_eq!(counting.pop().unwrap().failures, 0));
        assert!(counting.pop().is_err());
    }
}
