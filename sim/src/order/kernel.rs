//! The order of kernels: which blocks they touch is known when they have run, so what has to precede them, and what they
//! have to precede, is looked for then.
use std::collections::BTreeMap;

use super::{Bytes, Clock, Touch};
use crate::block::Block;
use crate::stream::Mark;
use crate::world::World;

/// What a kernel touched of a block: spans of bytes that it read and that it wrote, by their begins.
#[derive(Default)]
pub struct Touched {
    spans: [BTreeMap<u64, u64>; 2],
}

impl Touched {
    /// `exact`: which bytes it was matters, and not only that there were some.
    pub fn add(&mut self, at: u64, bytes: u64, write: bool, exact: bool) {
        let spans = &mut self.spans[usize::from(write)];
        if !exact && !spans.is_empty() {
            return;
        }
        let (mut begin, mut end) = (at, at + bytes);
        if let Some((from, to)) = spans.range(..=at).next_back().map(|(from, to)| (*from, *to))
            && to >= at
        {
            if to >= end {
                return;
            }
            begin = from;
        }
        while let Some((from, to)) = spans.range(at..=end).next().map(|(from, to)| (*from, *to)) {
            spans.remove(&from);
            end = end.max(to);
        }
        spans.insert(begin, end);
    }

    fn touches(self) -> impl Iterator<Item = Touch> {
        let all = self.spans.into_iter().zip([false, true]).filter(|(spans, _)| !spans.is_empty());
        all.map(|(spans, write)| Touch {
            what: "kernel",
            write,
            bytes: Bytes::Spans(spans.into_iter().collect()),
        })
    }
}

impl World {
    /// A kernel is submitted: what is known to precede it now, what the host has seen included.
    pub(super) fn note_launch(&mut self, mark: Mark, clock: &Clock) {
        let mut known = clock.clone();
        for (stream, seen) in &self.order.host {
            let sequence = known.entry(*stream).or_default();
            *sequence = (*sequence).max(*seen);
        }
        self.order.launches.insert((mark.stream, mark.sequence), known);
    }

    /// Whether a kernel, by what was known when it was submitted, comes after a mark.
    fn kernel_follows(&self, kernel: Mark, known: &Clock, mark: Mark) -> bool {
        mark.stream == kernel.stream
            || mark.sequence == 0
            || !self.streams.contains_key(&mark.stream)
            || known.get(&mark.stream).is_some_and(|sequence| *sequence >= mark.sequence)
    }

    /// Whether work that was submitted after a kernel comes after it for certain.
    fn follows_kernel(&self, mark: Mark, kernel: Mark) -> bool {
        mark.stream == kernel.stream
            || self.streams.get(&mark.stream).is_none_or(|stream| {
                let clock = stream.line.at(mark.sequence);
                clock.is_some_and(|clock| {
                    clock.get(&kernel.stream).is_some_and(|seen| *seen >= kernel.sequence)
                })
            })
    }

    /// A kernel has run: what it touched, by block.
    pub fn note_kernel(&mut self, mark: Mark, touched: BTreeMap<(u64, u64), Touched>) {
        if !self.tracking() {
            return;
        }
        let known = self.order.launches.remove(&(mark.stream, mark.sequence)).unwrap_or_default();
        for ((base, id), touched) in touched {
            for touch in touched.touches() {
                let found = self.unordered(mark, &known, id, &touch);
                for text in found {
                    let block = self.text_of_block(base, id);
                    self.violation(format!("{block}: {text}"));
                }
                self.keep_use(id, mark, touch);
            }
        }
    }

    /// What nothing orders against a kernel's use of a block.
    fn unordered(&self, mark: Mark, known: &Clock, id: u64, touch: &Touch) -> Vec<String> {
        let (number, what) = (mark.stream, touch.what);
        let Some(history) = self.order.blocks.get(&id) else { return Vec::new() };
        let mut found = Vec::new();
        if self.order_checks() {
            if let Some(allocated) =
                history.allocated.filter(|mark_of| !self.kernel_follows(mark, known, *mark_of))
            {
                found.push(format!(
                    "a {what} on stream {number} is not ordered behind its allocation on stream {}; nothing orders them",
                    allocated.stream
                ));
            }
            // Its free was checked before anybody knew of this use.
            if let Some(freed) = history.freed.filter(|freed| !self.follows_kernel(*freed, mark)) {
                found.push(format!(
                    "the free on stream {} is not ordered behind the {what} on stream {number}",
                    freed.stream
                ));
            }
        }
        for other in history.uses.iter().filter(|_| self.order.races) {
            if (other.touch.write || touch.write)
                && other.mark != mark
                && !self.kernel_follows(mark, known, other.mark)
                && !self.follows_kernel(other.mark, mark)
                && other.touch.bytes.overlap(&touch.bytes)
            {
                found.push(format!(
                    "a data race: a {what} on stream {number} and the {} on stream {}, on the same bytes; nothing orders them",
                    other.touch.what, other.mark.stream
                ));
            }
        }
        found.dedup();
        found
    }

    /// Whether the memory of a block is there for the GPUs by now.
    pub fn is_there(&self, block: &Block) -> bool {
        !block.absent && !self.order.blocks.get(&block.id).is_some_and(|history| history.absent)
    }

    /// A kernel touches an address that only the driver gives out, where there is nothing.
    pub fn note_missing(&mut self, address: u64) {
        let number = self.order.running.map_or(0, |mark| mark.stream);
        let covers = |ended: &&super::Ended| address.wrapping_sub(ended.base) < ended.size;
        let text = match self.order.ended.values().rev().find(covers) {
            Some(ended) => ended.before("kernel", number),
            None => {
                format!("memory at {address:#x}: none there when the kernel on stream {number} touched it")
            }
        };
        self.violation(text);
    }
}
