//! The call log: the last calls in order, and notes about what happened during them.
use std::collections::VecDeque;
use std::fmt::Write;

use crate::codes::{self, Code};

const DEFAULT_CAPACITY: usize = 8192;
pub const ARGS: usize = 6;

struct Line {
    thread: u64,
    entry: &'static str,
    args: [u64; ARGS],
    count: u8,
    result: Code,
    note: Option<Box<str>>,
}

/// A bounded log; the oldest lines go first.
pub struct Log {
    capacity: usize,
    lines: VecDeque<Line>,
    /// Lines ever written, those that were dropped included.
    total: u64,
}

impl Log {
    pub fn from_environment() -> Log {
        let capacity = std::env::var("WARPSIM_LOG").ok().and_then(|text| text.parse().ok());
        Log { capacity: capacity.unwrap_or(DEFAULT_CAPACITY), lines: VecDeque::new(), total: 0 }
    }

    /// 0 switches the log off.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.lines.len() > capacity {
            self.lines.pop_front();
        }
    }

    pub fn add(
        &mut self,
        thread: u64,
        entry: &'static str,
        args: &[u64],
        result: Code,
        note: Option<Box<str>>,
    ) {
        if self.capacity == 0 {
            return;
        }
        if self.lines.len() == self.capacity {
            self.lines.pop_front();
        }
        let mut kept = [0; ARGS];
        let count = args.len().min(ARGS);
        kept[..count].copy_from_slice(&args[..count]);
        self.lines.push_back(Line { thread, entry, args: kept, count: count as u8, result, note });
        self.total += 1;
    }

    pub fn clear(&mut self) {
        self.lines.clear();
        self.total = 0;
    }

    /// Lines that can still be read.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Lines written since the last clear.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// A line as text: `[thread] entry(args) = CODE; note`, small arguments in decimal, large ones in hex.
    pub fn line(&self, index: usize) -> Option<String> {
        let line = self.lines.get(index)?;
        let mut text = format!("[{}] {}(", line.thread, line.entry);
        for (i, arg) in line.args[..usize::from(line.count)].iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let written =
                if *arg < 1 << 32 { write!(text, "{comma}{arg}") } else { write!(text, "{comma}{arg:#x}") };
            debug_assert!(written.is_ok(), "writing to a String");
        }
        match codes::name(line.result) {
            Some(name) => text.push_str(&format!(") = {}", name.to_string_lossy())),
            None => text.push_str(&format!(") = {}", line.result)),
        }
        if let Some(note) = &line.note {
            text.push_str("; ");
            text.push_str(note);
        }
        Some(text)
    }

    pub fn contains(&self, text: &str) -> bool {
        (0..self.lines.len()).any(|i| self.line(i).is_some_and(|line| line.contains(text)))
    }
}
