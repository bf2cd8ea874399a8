//! What is known of one piece of cached memory, and where that is kept: for good, so that an old reference finds a block, if perhaps
//! another one, and never something else.

use super::Lane;
use super::map::Map;
use super::sizes;
use crate::fork::Lock;
use std::alloc::{Layout, alloc_zeroed};
use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Where a block is. What the number says holds while whoever may change it does not: see `Block::turn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// In no use, or joined to another one.
    Void = 0,
    /// In a heap's lists, changed under its lock.
    Free = 1,
    /// A thread has it at hand.
    AtHand = 2,
    /// A caller has it, and the ledger does not know it: how many bytes were asked for is said here.
    Out = 3,
    /// It is being entered in the ledger.
    Telling = 4,
    /// A caller has it as a block like any other, of which the ledger says everything.
    Told = 5,
}

/// A state of a block in one of its lives: from one time that it is handed out to the next. What was read of a block is true if this
/// is the same before and afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life(u64);

const STATE_BITS: u32 = 8;

impl Life {
    #[inline(always)]
    pub fn state(self) -> State {
        match self.0 as u8 {
            1 => State::Free,
            2 => State::AtHand,
            3 => State::Out,
            4 => State::Telling,
            5 => State::Told,
            _ => State::Void,
        }
    }

    #[inline(always)]
    fn with(self, state: State) -> Life {
        Life(self.0 >> STATE_BITS << STATE_BITS | state as u64)
    }

    #[inline(always)]
    fn next(self, state: State) -> Life {
        Life(self.0 + (1 << STATE_BITS)).with(state)
    }
}

/// A block that was handed out just now, and what is true of it in that life. The block itself may be another one at any moment, when
/// its chunk goes with a lost device.
#[derive(Clone, Copy)]
pub struct Taken {
    pub block: &'static Block,
    pub life: Life,
    pub base: u64,
    pub kind: u8,
}

/// Two cache lines: in the first what threads need to take and give it and its place in a list, in the second what a heap needs to cut and
/// join it. Processors fetch lines by twos, so that those of one block begin such a pair: the neighbour may be another thread's.
#[repr(C, align(128))]
pub struct Block {
    /// At the beginning, where the head of a list has its own.
    pub(super) links: Links,
    base: AtomicU64,
    size: AtomicU64,
    /// Bytes that the caller asked for.
    asked: AtomicU64,
    life: AtomicU64,
    lane: AtomicPtr<Lane>,
    tag: AtomicU32,
    class: AtomicU16,
    /// The memory kind of its chunk, and `SMALL` where that is for small blocks.
    sort: AtomicU16,
    /// The neighbours in the same chunk.
    pub(super) before: Link,
    pub(super) behind: Link,
    /// Of the chunk it lies in.
    map: AtomicPtr<Map>,
    index: AtomicU32,
}

const _: () = assert!(offset_of!(Block, links) == 0 && offset_of!(Block, before) == 64);

/// In `sort`, above the kind.
const SMALL: u16 = 1 << 8;

/// A block or none. Its owner says when it is read and written.
#[derive(Default)]
#[repr(transparent)]
pub struct Link(AtomicPtr<Block>);

impl Link {
    #[inline(always)]
    pub fn get(&self) -> Option<&'static Block> {
        // SAFETY: NULL or a block of the table, which are never freed.
        unsafe { self.0.load(Ordering::Relaxed).as_ref() }
    }

    #[inline(always)]
    pub fn set(&self, block: Option<&'static Block>) {
        let pointer = block.map_or(std::ptr::null_mut(), |block| std::ptr::from_ref(block).cast_mut());
        self.0.store(pointer, Ordering::Relaxed);
    }
}

/// The place of a block in a list, or the head of one. A heap's list is a ring that its head is a part of: lists are short, and whether
/// there is a next one cannot be foretold, so that nothing depends on it. At hand only `next` is used, and ends with none.
#[derive(Default)]
#[repr(C)]
pub struct Links {
    /// Also the next one at hand.
    pub(super) next: Link,
    previous: Link,
}

impl Links {
    #[inline(always)]
    fn pointer(&self) -> *mut Block {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Those that a link in a ring leads to.
    #[inline(always)]
    fn at(pointer: *mut Block) -> &'static Links {
        // SAFETY: in a ring, by the callers: a block, whose links are at its beginning, or a head, and neither is ever freed.
        unsafe { &*pointer.cast::<Links>() }
    }

    /// Makes it the head of an empty ring.
    pub(super) fn close(&'static self) {
        self.next.0.store(self.pointer(), Ordering::Relaxed);
        self.previous.0.store(self.pointer(), Ordering::Relaxed);
    }

    /// The first block of a ring of which this is the head.
    #[inline(always)]
    pub(super) fn first(&'static self) -> Option<&'static Block> {
        self.behind(self)
    }

    /// The block behind another one of the ring whose head this is, or behind the head.
    #[inline(always)]
    pub(super) fn behind(&'static self, of: &Links) -> Option<&'static Block> {
        let next = of.next.0.load(Ordering::Relaxed);
        // SAFETY: what is not the head is a block of the table, which are never freed.
        if std::ptr::eq(next, self.pointer()) { None } else { unsafe { next.as_ref() } }
    }

    /// Puts a block into the ring, behind this, its head.
    #[inline(always)]
    pub(super) fn put(&'static self, block: &'static Block) {
        let this = std::ptr::from_ref(block).cast_mut();
        let next = self.next.0.load(Ordering::Relaxed);
        block.links.next.0.store(next, Ordering::Relaxed);
        block.links.previous.0.store(self.pointer(), Ordering::Relaxed);
        Links::at(next).previous.0.store(this, Ordering::Relaxed);
        self.next.0.store(this, Ordering::Relaxed);
    }

    /// Takes a block out of its ring. True when it was the last.
    #[inline(always)]
    pub(super) fn take(block: &Block) -> bool {
        let next = block.links.next.0.load(Ordering::Relaxed);
        let previous = block.links.previous.0.load(Ordering::Relaxed);
        Links::at(next).previous.0.store(previous, Ordering::Relaxed);
        Links::at(previous).next.0.store(next, Ordering::Relaxed);
        std::ptr::eq(next, previous)
    }
}

impl Block {
    #[inline(always)]
    pub fn base(&self) -> u64 {
        self.base.load(Ordering::Relaxed)
    }

    /// All its bytes, as many as were asked for or more.
    #[inline(always)]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub fn class(&self) -> usize {
        self.class.load(Ordering::Relaxed) as usize
    }

    /// The memory kind of its chunk.
    #[inline(always)]
    pub fn kind(&self) -> u8 {
        self.sort.load(Ordering::Relaxed) as u8
    }

    /// Whether its chunk is for small blocks.
    #[inline(always)]
    pub(super) fn is_small(&self) -> bool {
        self.sort.load(Ordering::Relaxed) & SMALL != 0
    }

    /// Its number in the table.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index.load(Ordering::Relaxed)
    }

    /// Of the chunk that it lies, or lay, in.
    #[inline]
    pub fn table(&self) -> Option<&'static Map> {
        // SAFETY: NULL or a map, which are never freed.
        unsafe { self.map.load(Ordering::Relaxed).as_ref() }
    }

    /// Of the chunk it lies in; for its heap.
    #[inline(always)]
    pub(super) fn map(&self) -> &'static Map {
        // SAFETY: of a block in a chunk it is that chunk's, and maps are never freed.
        unsafe { &*self.map.load(Ordering::Relaxed) }
    }

    #[inline(always)]
    pub fn lane(&self) -> Option<&'static Lane> {
        // SAFETY: NULL or a lane, which are never freed.
        unsafe { self.lane.load(Ordering::Relaxed).as_ref() }
    }

    #[inline(always)]
    pub fn life(&self) -> Life {
        Life(self.life.load(Ordering::Acquire))
    }

    #[inline]
    pub fn state(&self) -> State {
        self.life().state()
    }

    /// The block that a caller has, or is being told of, becomes one of which the ledger says everything; for who alone may change it
    /// now.
    pub fn tell(&self) {
        self.set_state(State::Told);
    }

    /// From a life that it was seen in to a state of that, for the one of several who try that finds it there.
    #[inline(always)]
    pub fn turn(&self, from: Life, to: State) -> bool {
        self.life.compare_exchange(from.0, from.with(to).0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// For who alone may change it now.
    #[inline(always)]
    pub(super) fn set_state(&self, state: State) {
        let life = Life(self.life.load(Ordering::Relaxed));
        self.life.store(life.with(state).0, Ordering::Release);
    }

    /// What a caller is given: at hand before, or taken from a heap. A new life begins.
    #[inline(always)]
    pub fn hand_out(&'static self, asked: u64, tag: u32) -> Taken {
        let life = Life(self.life.load(Ordering::Relaxed)).next(State::Out);
        let taken = Taken { block: self, life, base: self.base(), kind: self.kind() };
        // Who reads what is written now does not see the life before, as `out` makes sure.
        fence(Ordering::Release);
        self.asked.store(asked, Ordering::Relaxed);
        self.tag.store(tag, Ordering::Relaxed);
        self.life.store(life.0, Ordering::Release);
        taken
    }

    /// As `hand_out`, of a block that the ledger is about to know everything of. A new life too: who found it told in the one before must
    /// not take it for the same.
    pub fn hand_out_told(&self) {
        let life = Life(self.life.load(Ordering::Relaxed)).next(State::Told);
        self.life.store(life.0, Ordering::Release);
    }

    /// The first address, and the bytes and the tag that its caller asked for, if the block is out in that life.
    #[inline]
    pub fn out(&self, life: Life) -> Option<(u64, u64, u32)> {
        if life.state() != State::Out {
            return None;
        }
        let said = (
            self.base.load(Ordering::Relaxed),
            self.asked.load(Ordering::Relaxed),
            self.tag.load(Ordering::Relaxed),
        );
        fence(Ordering::Acquire);
        (self.life.load(Ordering::Relaxed) == life.0).then_some(said)
    }

    /// Bytes that were asked for. For who knows that it is out.
    #[inline(always)]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// For its heap: all of a chunk.
    pub(super) fn begin(
        &self,
        base: u64,
        size: u64,
        lane: Option<&'static Lane>,
        map: &'static Map,
        kind: u8,
        small: bool,
    ) {
        let lane = lane.map_or(std::ptr::null_mut(), |lane| std::ptr::from_ref(lane).cast_mut());
        self.lane.store(lane, Ordering::Relaxed);
        self.map.store(std::ptr::from_ref(map).cast_mut(), Ordering::Relaxed);
        self.sort.store(u16::from(kind) | if small { SMALL } else { 0 }, Ordering::Relaxed);
        // As in `hand_out`.
        fence(Ordering::Release);
        self.base.store(base, Ordering::Relaxed);
        self.before.set(None);
        self.behind.set(None);
        self.resize(size, sizes::class_below(size));
    }

    /// For its heap: a part of another one's chunk.
    #[inline(always)]
    pub(super) fn begin_in(&self, other: &Block, base: u64, size: u64) {
        self.lane.store(other.lane.load(Ordering::Relaxed), Ordering::Relaxed);
        self.map.store(other.map.load(Ordering::Relaxed), Ordering::Relaxed);
        self.sort.store(other.sort.load(Ordering::Relaxed), Ordering::Relaxed);
        // As in `hand_out`.
        fence(Ordering::Release);
        self.base.store(base, Ordering::Relaxed);
        self.resize(size, sizes::class_below(size));
    }

    /// For its heap; `class` is that below the size.
    #[inline(always)]
    pub(super) fn resize(&self, size: u64, class: usize) {
        debug_assert_eq!(class, sizes::class_below(size));
        self.size.store(size, Ordering::Relaxed);
        self.class.store(class as u16, Ordering::Relaxed);
    }
}

const FIRST: u32 = 512;
const TABLES: usize = 20;

/// All blocks by their numbers. Part k has twice as many as the one before.
static TABLE: [AtomicPtr<Block>; TABLES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; TABLES];

struct Unused {
    blocks: Vec<&'static Block>,
    made: u32,
}

static UNUSED: Lock<Unused> = Lock::new(Unused { blocks: Vec::new(), made: 0 });

/// After a fork, in the child: what the parent had is given up.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    // A part that a thread was making may be there or not; the next one surely is not.
    let parts = TABLE.iter().take_while(|part| !part.load(Ordering::Acquire).is_null()).count();
    let made = FIRST * ((1 << parts) - 1);
    // SAFETY: the caller's promise.
    unsafe { UNUSED.replace_in_child(Unused { blocks: Vec::new(), made }) };
}

/// The block of a number.
#[inline(always)]
pub fn at(index: u32) -> Option<&'static Block> {
    let part = (index / FIRST + 1).ilog2();
    let first = TABLE.get(part as usize)?.load(Ordering::Acquire);
    // SAFETY: NULL, or a part with that many blocks, which is never freed.
    (!first.is_null()).then(|| unsafe { &*first.add((index - FIRST * ((1 << part) - 1)) as usize) })
}

/// Some blocks that nobody uses; `None` without memory for more.
pub(super) fn unused(into: &mut Vec<&'static Block>) -> Option<()> {
    const AT_ONCE: usize = 64;
    let mut unused = UNUSED.write();
    if unused.blocks.len() < AT_ONCE {
        make(&mut unused)?;
    }
    let rest = unused.blocks.len() - AT_ONCE;
    into.extend(unused.blocks.drain(rest..));
    Some(())
}

/// Gives blocks back that nobody uses any more.
pub(super) fn give_unused(blocks: impl Iterator<Item = &'static Block>) {
    UNUSED.write().blocks.extend(blocks);
}

fn make(unused: &mut Unused) -> Option<()> {
    let part = (unused.made / FIRST + 1).ilog2();
    let count = FIRST << part;
    let place = TABLE.get(part as usize)?;
    let layout = Layout::array::<Block>(count as usize).ok()?;
    // SAFETY: the layout is not empty.
    let first = unsafe { alloc_zeroed(layout) }.cast::<Block>();
    if first.is_null() {
        return None;
    }
    for number in 0..count {
        // SAFETY: in bounds; zeroed bytes are a block in no use.
        let block = unsafe { &*first.add(number as usize) };
        block.index.store(unused.made + number, Ordering::Relaxed);
        unused.blocks.push(block);
    }
    place.store(first, Ordering::Release);
    unused.made += count;
    Some(())
}
