//! What precedes what, whatever the schedule happens to run first: clocks, and reports of frees and allocations that
//! nothing orders against a use.
//!
//! A clock names, for each stream, how many of its pieces of work come before something for certain: by the stream's own
//! order, by events, by the legacy stream's rules, or because the host had seen them done when the work was submitted.
//! There is one clock for the host, all threads together: what threads tell each other cannot be seen here, and to
//! believe too much order is the side on which nothing is reported falsely.
mod kernel;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::block::{Block, Kind};
use crate::stream::{Mark, NON_BLOCKING, Role, Stream};
use crate::work::{Layout, Operand, Shape, Work};
use crate::world::World;

pub use kernel::Touched;

/// Pieces of work by stream.
type Clock = BTreeMap<u64, u64>;

/// How many changes of a stream's clock are kept; what is older counts as having the oldest one kept.
const CHANGES: usize = 512;
/// Uses of a block that are kept to find races.
const USES: usize = 128;
/// Blocks that have ended and are still named in a report.
const ENDED: usize = 4096;
/// Rows that are compared one by one for a race; a larger pair is not looked at.
const ROWS: usize = 1 << 20;

/// A stream's clock through time: from which piece of work on it was which.
#[derive(Default)]
pub struct Line {
    changes: VecDeque<(u64, Arc<Clock>)>,
}

impl Line {
    fn at(&self, sequence: u64) -> Option<&Arc<Clock>> {
        let index = self.changes.partition_point(|(from, _)| *from <= sequence).checked_sub(1)?;
        Some(&self.changes[index].1)
    }

    fn push(&mut self, sequence: u64, clock: Clock, seen: u64) {
        self.changes.push_back((sequence, Arc::new(clock)));
        while self.changes.len() > 1 && self.changes[1].0 <= seen {
            self.changes.pop_front();
        }
        if self.changes.len() > CHANGES {
            let oldest = self.changes.pop_front();
            if let (Some((from, _)), Some(next)) = (oldest, self.changes.front_mut()) {
                next.0 = from;
            }
        }
    }
}

/// The bytes of a block that a piece of work touches.
#[derive(Clone)]
enum Bytes {
    Rows {
        start: u64,
        shape: Shape,
        layout: Layout,
    },
    /// Begins and ends, in order.
    Spans(Vec<(u64, u64)>),
}

impl Bytes {
    fn rows(&self) -> usize {
        match self {
            Bytes::Rows { shape, .. } => shape.height * shape.depth,
            Bytes::Spans(spans) => spans.len(),
        }
    }

    /// The first byte, and one past the last.
    fn hull(&self) -> (u64, u64) {
        match self {
            Bytes::Rows { start, shape, layout } => (*start, start + layout.span(*shape).unwrap_or(0)),
            Bytes::Spans(spans) => {
                (spans.first().map_or(0, |span| span.0), spans.last().map_or(0, |span| span.1))
            }
        }
    }

    /// The begin and end of the `i`-th row.
    fn row(&self, i: usize) -> (u64, u64) {
        match self {
            Bytes::Rows { start, shape, layout } => {
                let (z, y) = (i / shape.height, i % shape.height);
                let begin = start + (z * layout.slice + y * layout.pitch) as u64;
                (begin, begin + shape.width as u64)
            }
            Bytes::Spans(spans) => spans[i],
        }
    }

    fn overlap(&self, other: &Bytes) -> bool {
        let meet = |a: (u64, u64), b: (u64, u64)| a.0 < b.1 && b.0 < a.1;
        meet(self.hull(), other.hull())
            && self.rows().saturating_mul(other.rows()) <= ROWS
            && (0..self.rows()).any(|a| (0..other.rows()).any(|b| meet(self.row(a), other.row(b))))
    }
}

/// One use of a block.
struct Touch {
    what: &'static str,
    write: bool,
    bytes: Bytes,
}

struct Use {
    mark: Mark,
    touch: Touch,
}

/// What is known of a live block's order.
#[derive(Default)]
struct History {
    /// The work that allocates it, for stream-ordered memory.
    allocated: Option<Mark>,
    /// That work has not run.
    absent: bool,
    /// The work that frees it was submitted, and checked then.
    freed: Option<Mark>,
    uses: Vec<Use>,
}

/// A block that has ended: by the work of a stream, or at once by a call.
struct Ended {
    base: u64,
    size: u64,
    text: String,
    stream: Option<u64>,
}

impl Ended {
    /// That it ended before a piece of work on a stream.
    fn before(&self, what: &str, number: u64) -> String {
        let text = &self.text;
        match self.stream {
            Some(other) => format!(
                "{text}: freed on stream {other} before the {what} on stream {number} ran; nothing orders stream {other} \
                 behind stream {number}"
            ),
            None => format!("{text}: freed at once before the {what} on stream {number} ran"),
        }
    }
}

/// A queued free.
#[derive(Clone, Copy)]
pub struct PendingFree {
    pub base: u64,
    pub mark: Mark,
}

#[derive(Default)]
pub struct Order {
    /// Whether missing order is reported; unset, it is with a seed.
    pub checks: Option<bool>,
    /// Whether unordered accesses to the same bytes are reported too.
    pub races: bool,
    /// The piece of work that is being run.
    pub running: Option<Mark>,
    /// What is known to precede the kernels that wait: which blocks they touch is seen when they run.
    launches: BTreeMap<(u64, u64), Clock>,
    /// Pool blocks whose free is queued, by number.
    pub frees: BTreeMap<u64, PendingFree>,
    host: Clock,
    blocks: BTreeMap<u64, History>,
    ended: BTreeMap<u64, Ended>,
    /// Streams that are destroyed and done, and whose work the host has not seen done.
    ghosts: BTreeSet<u64>,
}

impl Order {
    pub fn from_environment() -> Order {
        let on = std::env::var("WARPSIM_RACES").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
        Order { races: on, ..Order::default() }
    }

    /// A block that ended without a free.
    pub fn forget(&mut self, id: u64) {
        self.blocks.remove(&id);
        self.frees.remove(&id);
    }
}

fn text_of(block: &Block) -> String {
    let kind = match block.kind {
        Kind::Default => "device memory",
        Kind::Pool => "pool memory",
        Kind::Pinned => "pinned memory",
        Kind::Registered | Kind::RegisteredAlias => "registered memory",
        Kind::Managed => "managed memory",
        Kind::Mapping => "mapped memory",
        Kind::Imported => "imported memory",
        Kind::Graph => "graph memory",
        Kind::Variable => "a variable of a module",
    };
    format!("{kind} at {:#x} ({} bytes)", block.base, block.size)
}

/// What a piece of work does to which blocks.
fn touches(work: &Work) -> Vec<(u64, u64, Touch)> {
    let touch = |operand: &Operand, what, write, shape, layout| {
        let (base, id) = operand.block?;
        let bytes = Bytes::Rows { start: operand.place.position(), shape, layout };
        Some((base, id, Touch { what, write, bytes }))
    };
    let found = match work {
        Work::Copy(copy) => [
            touch(&copy.from, "copy from it", false, copy.shape, copy.from_layout),
            touch(&copy.to, "copy to it", true, copy.shape, copy.to_layout),
        ],
        Work::Fill(fill) => [touch(&fill.to, "fill", true, fill.shape, fill.layout), None],
        _ => [None, None],
    };
    found.into_iter().flatten().collect()
}

impl World {
    /// Whether clocks are kept.
    pub fn tracking(&self) -> bool {
        self.deferred() || self.order.races || self.order_checks()
    }

    pub fn order_checks(&self) -> bool {
        self.order.checks.unwrap_or(self.deferred())
    }

    fn host_saw(&self, mark: Mark) -> bool {
        // A stream that is forgotten was seen done, or ended with its context.
        mark.sequence == 0
            || !self.streams.contains_key(&mark.stream)
            || self.order.host.get(&mark.stream).is_some_and(|seen| *seen >= mark.sequence)
    }

    /// All that precedes a mark and that the host has not seen, itself included.
    fn behind(&self, mark: Mark) -> impl Iterator<Item = Mark> {
        let clock = self.streams.get(&mark.stream).and_then(|stream| stream.line.at(mark.sequence));
        let before = clock.into_iter().flat_map(|clock| clock.iter());
        let before = before.map(|(&stream, &sequence)| Mark { stream, sequence });
        std::iter::once(mark).chain(before).filter(|mark| !self.host_saw(*mark))
    }

    /// The clock of the next piece of work of a stream that comes after the marks.
    fn next_clock(&self, stream: &Stream, after: &[Mark]) -> (Arc<Clock>, bool) {
        let old = stream.line.at(u64::MAX).cloned().unwrap_or_default();
        let mut news: Vec<Mark> = Vec::new();
        let implicit = self.implicit_marks(stream.number);
        for mark in implicit.iter().chain(after).flat_map(|mark| self.behind(*mark)) {
            let known = old.get(&mark.stream).is_some_and(|sequence| *sequence >= mark.sequence);
            if !known && mark.stream != stream.number {
                news.push(mark);
            }
        }
        if news.is_empty() {
            return (old, false);
        }
        let unseen = |(&stream, &sequence): (&u64, &u64)| {
            (!self.host_saw(Mark { stream, sequence })).then_some((stream, sequence))
        };
        let mut clock: Clock = old.iter().filter_map(unseen).collect();
        for mark in news {
            let known = clock.entry(mark.stream).or_default();
            *known = mark.sequence.max(*known);
        }
        (Arc::new(clock), true)
    }

    /// Whether work with this clock, on this stream, comes after the mark.
    fn comes_after(&self, number: u64, clock: &Clock, mark: Mark) -> bool {
        mark.stream == number
            || self.host_saw(mark)
            || clock.get(&mark.stream).is_some_and(|sequence| *sequence >= mark.sequence)
    }

    /// Tells of marks whether work submitted now to a stream would come after them.
    pub fn order_now(&self, number: u64) -> impl Fn(Mark) -> bool {
        let stream = self.streams.get(&number);
        let clock = stream.map(|stream| self.next_clock(stream, &[]).0).unwrap_or_default();
        move |mark| self.comes_after(number, &clock, mark)
    }

    /// Gives a piece of work that is about to be submitted its clock, and looks for what should have come before it.
    pub fn note_order(&mut self, number: u64, after: &[Mark], work: &Work) {
        if !self.tracking() {
            return;
        }
        let Some(stream) = self.streams.get(&number) else { return };
        let mark = Mark { stream: number, sequence: stream.submitted + 1 };
        let (clock, changed) = self.next_clock(stream, after);
        if changed {
            let seen = self.order.host.get(&number).copied().unwrap_or(0);
            if let Some(stream) = self.streams.get_mut(&number) {
                stream.line.push(mark.sequence, Clock::clone(&clock), seen);
            }
        }
        match work {
            Work::Allocate { id, .. } => {
                let history = History { allocated: Some(mark), absent: true, ..History::default() };
                self.order.blocks.insert(*id, history);
            }
            Work::Free { base, id } => self.note_free(*base, *id, mark, &clock),
            Work::Kernel(_) => self.note_launch(mark, &clock),
            work => {
                for (base, id, touch) in touches(work) {
                    self.note_use(base, id, mark, &clock, touch);
                }
            }
        }
    }

    fn text_of_block(&self, base: u64, id: u64) -> String {
        self.blocks.of(base, id).map_or_else(|| format!("memory at {base:#x}"), text_of)
    }

    fn note_use(&mut self, base: u64, id: u64, mark: Mark, clock: &Clock, touch: Touch) {
        let number = mark.stream;
        let mut found = Vec::new();
        let what = touch.what;
        if let Some(history) = self.order.blocks.get(&id) {
            let late = history.allocated.filter(|allocated| !self.comes_after(number, clock, *allocated));
            if let Some(allocated) = late
                && self.order_checks()
            {
                found.push(format!(
                    "a {what} on stream {number} is not ordered behind its allocation on stream {}",
                    allocated.stream
                ));
            }
            for earlier in history.uses.iter().filter(|_| self.order.races) {
                if (earlier.touch.write || touch.write)
                    && earlier.mark != mark
                    && !self.comes_after(number, clock, earlier.mark)
                    && earlier.touch.bytes.overlap(&touch.bytes)
                {
                    found.push(format!(
                        "a data race: a {what} on stream {number} and the {} on stream {}, on the same bytes",
                        earlier.touch.what, earlier.mark.stream
                    ));
                }
            }
        }
        for text in found {
            let block = self.text_of_block(base, id);
            self.violation(format!("{block}: {text}; nothing orders them"));
        }
        self.keep_use(id, mark, touch);
    }

    /// Remembers a use, for what comes after it.
    fn keep_use(&mut self, id: u64, mark: Mark, touch: Touch) {
        let (races, number) = (self.order.races, mark.stream);
        let mut history = self.order.blocks.remove(&id).unwrap_or_default();
        // The last use of a stream stands for the earlier ones, except for races, which are about bytes.
        history.uses.retain(|other| !self.host_saw(other.mark) && (races || other.mark.stream != number));
        if history.uses.len() == USES {
            history.uses.remove(0);
        }
        history.uses.push(Use { mark, touch });
        self.order.blocks.insert(id, history);
    }

    fn note_free(&mut self, base: u64, id: u64, mark: Mark, clock: &Clock) {
        let number = mark.stream;
        let mut found = Vec::new();
        if self.order_checks()
            && let Some(history) = self.order.blocks.get(&id)
        {
            if let Some(allocated) = history.allocated
                && !self.comes_after(number, clock, allocated)
            {
                found.push(format!("its allocation on stream {}", allocated.stream));
            }
            for earlier in &history.uses {
                if !self.comes_after(number, clock, earlier.mark) {
                    found.push(format!("the {} on stream {}", earlier.touch.what, earlier.mark.stream));
                }
            }
        }
        // One line a stream: with races all uses are kept, and the last of a stream says it for all.
        found.dedup();
        for what in found {
            let block = self.text_of_block(base, id);
            self.violation(format!("{block}: the free on stream {number} is not ordered behind {what}"));
        }
        self.order.blocks.entry(id).or_default().freed = Some(mark);
        if self.blocks.of(base, id).is_some_and(|block| block.kind == Kind::Pool) {
            self.order.frees.insert(id, PendingFree { base, mark });
        }
    }

    /// Before a block's record goes: a free that no stream makes comes after what the host has seen, and nothing else.
    pub fn note_end(&mut self, block: &Block) {
        self.order.frees.remove(&block.id);
        let history = self.order.blocks.remove(&block.id);
        let running = self.order.running.map(|mark| mark.stream);
        if let Some(history) = &history {
            if history.freed.is_none() && self.order_checks() {
                let late: Vec<&Use> =
                    history.uses.iter().filter(|earlier| !self.host_saw(earlier.mark)).collect();
                for earlier in late {
                    self.violation(format!(
                        "{}: freed at once, and nothing that the host waited for orders this behind the {} on stream {}",
                        text_of(block),
                        earlier.touch.what,
                        earlier.mark.stream
                    ));
                }
            }
            if let (true, Some(stream), Some(allocated)) = (history.absent, running, history.allocated) {
                self.violations.push(format!(
                    "{}: freed on stream {stream} before its allocation on stream {} ran; nothing orders stream {stream} \
                     behind stream {}",
                    text_of(block),
                    allocated.stream,
                    allocated.stream
                ));
            }
        }
        // Without waiting work there is nobody who could come too late.
        if !self.busy.is_empty() {
            let (base, size, text) = (block.base, block.size, text_of(block));
            self.order.ended.insert(block.id, Ended { base, size, text, stream: running });
            if self.order.ended.len() > ENDED {
                self.order.ended.pop_first();
            }
        }
    }

    /// The turn of an allocation has come.
    pub fn arrive(&mut self, base: u64, id: u64) {
        if let Some(block) = self.blocks.of_mut(base, id) {
            block.absent = false;
        }
        if let Some(history) = self.order.blocks.get_mut(&id) {
            history.absent = false;
        }
    }

    /// Whether a piece of work that runs now finds its block alive. What comes too early or too late is noted.
    pub fn finds(&mut self, base: u64, id: u64, what: &str) -> bool {
        let number = self.order.running.map_or(0, |mark| mark.stream);
        if self.blocks.of(base, id).is_some() {
            let absent = self.order.blocks.get(&id).filter(|history| history.absent);
            if let Some(allocated) = absent.and_then(|history| history.allocated) {
                let (block, other) = (self.text_of_block(base, id), allocated.stream);
                self.violation(format!(
                    "{block}: the {what} on stream {number} ran before its allocation on stream {other}; nothing orders \
                     stream {number} behind stream {other}"
                ));
            } else if self.blocks.of(base, id).is_some_and(|block| block.absent) {
                let block = self.text_of_block(base, id);
                self.violation(format!("{block}: the {what} on stream {number} ran before it was mapped"));
            }
            return true;
        }
        let text = match self.order.ended.get(&id) {
            Some(ended) => ended.before(what, number),
            None => format!("memory at {base:#x}: freed before the {what} on stream {number} ran"),
        };
        self.violation(text);
        false
    }

    /// The host has seen that the marks are reached.
    pub fn seen(&mut self, marks: &[Mark]) {
        if !self.tracking() {
            return;
        }
        let news: Vec<Mark> = marks.iter().flat_map(|mark| self.behind(*mark)).collect();
        for mark in news {
            let seen = self.order.host.entry(mark.stream).or_default();
            *seen = mark.sequence.max(*seen);
        }
        for number in self.order.ghosts.clone() {
            let end = self.end_of(number);
            if self.host_saw(end) && self.reached(end) {
                self.order.ghosts.remove(&number);
                self.drop_stream(number);
            }
        }
    }

    /// Forgets a destroyed stream that has nothing left to do, at once or when the host has seen that.
    pub fn forget_stream(&mut self, number: u64) {
        if self.tracking() && !self.host_saw(self.end_of(number)) {
            self.order.ghosts.insert(number);
        } else {
            self.drop_stream(number);
        }
    }

    pub fn drop_stream(&mut self, number: u64) -> Option<Stream> {
        self.order.host.remove(&number);
        self.order.launches.retain(|(stream, _), _| *stream != number);
        self.streams.remove(&number)
    }

    /// Whether work of one stream comes after what was submitted to another before it, by the legacy stream's rules.
    pub fn legacy_order(stream: &Stream, other: &Stream) -> bool {
        let blocking = |stream: &Stream| stream.role != Role::Legacy && stream.flags & NON_BLOCKING == 0;
        let related = other.context_id == stream.context_id && other.number != stream.number;
        related
            && match stream.role {
                Role::Legacy => blocking(other),
                _ => blocking(stream) && other.role == Role::Legacy,
            }
    }
}
