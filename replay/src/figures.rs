//! What came of a replay. The fields are those of the JSON, which `docs/replay.md` describes: a change there is a new `SCHEMA`, an
//! addition is not.

use serde::Serialize;
use std::fmt::Write;
use std::time::Instant;

pub const SCHEMA: u32 = 1;

/// As many failures as are told one by one.
const MOST_TOLD: usize = 10;

#[derive(Debug, Serialize)]
pub struct Figures {
    pub schema: u32,
    pub allocations: u64,
    pub deallocations: u64,
    /// Allocations that the log has and the replay was not given.
    pub failures: u64,
    /// Deallocations that failed.
    pub refused: u64,
    /// Deallocations of what the replay was not given.
    pub skipped: u64,
    /// Requests that failed when the log was written; they are not made again.
    pub failed_in_log: u64,
    pub total_bytes: u64,
    pub peak_bytes: u64,
    pub peak_blocks: u64,
    /// What the log does not give back.
    pub live_bytes: u64,
    pub live_blocks: u64,
    pub seconds: f64,
    pub allocation_ns: Nanoseconds,
    pub deallocation_ns: Nanoseconds,
    /// The first of what failed: the line of the log, and why.
    pub problems: Vec<Problem>,
}

/// Times of calls; 0 where there were none.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Nanoseconds {
    pub mean: u64,
    pub median: u64,
    pub p99: u64,
    pub max: u64,
}

#[derive(Debug, Serialize)]
pub struct Problem {
    pub line: usize,
    pub message: String,
}

impl Default for Figures {
    fn default() -> Figures {
        Figures {
            schema: SCHEMA,
            allocations: 0,
            deallocations: 0,
            failures: 0,
            refused: 0,
            skipped: 0,
            failed_in_log: 0,
            total_bytes: 0,
            peak_bytes: 0,
            peak_blocks: 0,
            live_bytes: 0,
            live_blocks: 0,
            seconds: 0.0,
            allocation_ns: Nanoseconds::default(),
            deallocation_ns: Nanoseconds::default(),
            problems: Vec::new(),
        }
    }
}

impl Figures {
    pub fn allocated(&mut self, bytes: u64) {
        self.allocations += 1;
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        self.live_blocks += 1;
        self.live_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
        self.peak_blocks = self.peak_blocks.max(self.live_blocks);
    }

    pub fn deallocated(&mut self, bytes: u64) {
        self.deallocations += 1;
        self.live_blocks -= 1;
        self.live_bytes -= bytes;
    }

    pub fn failed(&mut self, line: usize, why: String) {
        self.failures += 1;
        self.tell(line, why);
    }

    pub fn refused(&mut self, line: usize, why: String) {
        self.refused += 1;
        self.tell(line, why);
    }

    fn tell(&mut self, line: usize, message: String) {
        if self.problems.len() < MOST_TOLD {
            self.problems.push(Problem { line, message });
        }
    }

    pub fn went_well(&self) -> bool {
        self.failures == 0 && self.refused == 0
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers, texts and lists are JSON") + "\n"
    }

    pub fn to_text(&self, name: &str) -> String {
        let mut text = String::new();
        let mut row = |what: &str, value: String| {
            // Writing to a text does not fail.
            let _ = writeln!(text, "{what:<24}{value}");
        };
        row("allocations", self.allocations.to_string());
        row("deallocations", self.deallocations.to_string());
        row("failures", self.failures.to_string());
        row("refused deallocations", self.refused.to_string());
        row("skipped deallocations", self.skipped.to_string());
        row("failures of the log", self.failed_in_log.to_string());
        row("peak", format!("{} bytes, {} blocks", self.peak_bytes, self.peak_blocks));
        row("total", format!("{} bytes", self.total_bytes));
        row("out at the end", format!("{} bytes, {} blocks", self.live_bytes, self.live_blocks));
        row("time", format!("{:.6} s", self.seconds));
        for (what, times) in [("allocation", self.allocation_ns), ("deallocation", self.deallocation_ns)] {
            let Nanoseconds { mean, median, p99, max } = times;
            row(what, format!("{mean} ns mean, {median} median, {p99} p99, {max} at most"));
        }
        for problem in &self.problems {
            let _ = writeln!(text, "{name}:{}: {}", problem.line, problem.message);
        }
        text
    }
}

/// How long calls took.
#[derive(Debug, Default)]
pub struct Times(Vec<u64>);

impl Times {
    pub fn of<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = call();
        self.0.push(start.elapsed().as_nanos() as u64);
        result
    }

    pub fn told(mut self) -> Nanoseconds {
        let Some(last) = self.0.len().checked_sub(1) else { return Nanoseconds::default() };
        self.0.sort_unstable();
        let sum: u128 = self.0.iter().map(|time| u128::from(*time)).sum();
        Nanoseconds {
            mean: (sum / self.0.len() as u128) as u64,
            median: self.0[last / 2],
            p99: self.0[last * 99 / 100],
            max: self.0[last],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_up() {
        assert_eq!(Times::default().told(), Nanoseconds::default());
        assert_eq!(
            Times((1..=101).rev().collect()).told(),
            Nanoseconds { mean: 51, median: 51, p99: 100, max: 101 }
        );
    }

    #[test]
    fn a_peak_is_of_one_moment() {
        let mut figures = Figures::default();
        figures.allocated(100);
        figures.allocated(50);
        figures.deallocated(100);
        figures.allocated(60);
        assert_eq!((figures.peak_bytes, figures.peak_blocks, figures.live_bytes), (150, 2, 110));
        assert_eq!((figures.total_bytes, figures.went_well()), (210, true));
    }
}
