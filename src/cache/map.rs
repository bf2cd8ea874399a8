//! Which block an address lies in: for each chunk a table of the places where its blocks begin. Written by the chunk's heap, under its
//! lock; read by anybody at any time. A reader may find a block that is another one by then, so the block has the last word. Tables
//! are never freed, and those of chunks that are gone serve others of about their size.

use super::block::{self, Block, State};
use crate::fork::Lock;
use crate::ledger::{InsertError, Ledger, RecentFrees, Record};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The chunks there are, each behind its record, whose graph is the number of its table. A cache may stand on another one: then its
/// chunks lie in blocks of that, and are found one level up.
static CHUNKS: [Ledger; 16] = [const { Ledger::new() }; 16];
/// Where blocks began that went back to a heap: what tells a second free when the chunk is gone as well.
static FREED: RecentFrees = RecentFrees::new();
/// How many levels there ever were.
static LEVELS: AtomicUsize = AtomicUsize::new(0);

/// Where the blocks of one chunk begin. In a cache line, but for the tables.
#[repr(align(64))]
pub struct Map {
    number: u32,
    /// The chunk's number among those of its heap.
    chunk: AtomicU32,
    base: AtomicU64,
    granule_log2: AtomicU32,
    level: AtomicUsize,
    /// For each place the number of the block that begins there.
    blocks: Box<[AtomicU32]>,
    /// Whether one does.
    begins: Box<[AtomicU64]>,
}

impl Map {
    #[inline]
    fn place(&self, address: u64) -> usize {
        let offset = address.wrapping_sub(self.base.load(Ordering::Relaxed));
        (offset >> self.granule_log2.load(Ordering::Relaxed)) as usize
    }

    /// For its heap.
    pub fn chunk(&self) -> u32 {
        self.chunk.load(Ordering::Relaxed)
    }

    pub fn set_chunk(&self, number: u32) {
        self.chunk.store(number, Ordering::Relaxed);
    }

    /// The last place at or before an address of its chunk.
    #[inline]
    pub fn down(&self, address: u64) -> u64 {
        let base = self.base.load(Ordering::Relaxed);
        base + ((address - base) & self.granule().wrapping_neg())
    }

    /// Blocks begin at multiples of it.
    #[inline]
    pub fn granule(&self) -> u64 {
        1 << self.granule_log2.load(Ordering::Relaxed)
    }

    /// Says that a block begins there.
    #[inline]
    pub fn begin(&self, block: &Block) {
        let place = self.place(block.base());
        self.blocks[place].store(block.index(), Ordering::Relaxed);
        let word = &self.begins[place / 64];
        word.store(word.load(Ordering::Relaxed) | 1 << (place % 64), Ordering::Release);
    }

    /// Says that none does any more.
    #[inline]
    pub fn end(&self, base: u64) {
        let place = self.place(base);
        let word = &self.begins[place / 64];
        word.store(word.load(Ordering::Relaxed) & !(1 << (place % 64)), Ordering::Release);
    }

    /// The block that begins at or before an address.
    fn find(&self, address: u64) -> Option<&'static Block> {
        let place = self.place(address);
        let mut word = place / 64;
        let mut bits = self.begins.get(word)?.load(Ordering::Acquire) & (u64::MAX >> (63 - place % 64));
        while bits == 0 {
            word = word.checked_sub(1)?;
            bits = self.begins[word].load(Ordering::Acquire);
        }
        let begin = word * 64 + 63 - bits.leading_zeros() as usize;
        block::at(self.blocks[begin].load(Ordering::Acquire))
    }

    /// The block that begins at an address, if one does; for who only has an idea that the table is that of its chunk: the block has to
    /// say so itself.
    #[inline(always)]
    pub fn hint(&self, address: u64) -> Option<&'static Block> {
        block::at(self.blocks.get(self.place(address))?.load(Ordering::Acquire))
    }

    pub fn each(&self, mut visit: impl FnMut(&'static Block)) {
        for (at, word) in self.begins.iter().enumerate() {
            let mut bits = word.load(Ordering::Acquire);
            while bits != 0 {
                let place = at * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(block) = block::at(self.blocks[place].load(Ordering::Acquire)) {
                    visit(block);
                }
            }
        }
    }
}

/// More places than these are spared by larger granules.
const MOST_PLACES: u64 = 1 << 15;
/// The logarithms of how many places tables have.
const SORTS: usize = 16;
const MAPS: usize = 20;
const FIRST: u32 = 64;

/// All tables by their numbers. Part k has twice as many as the one before.
static TABLE: [AtomicPtr<AtomicPtr<Map>>; MAPS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MAPS];

struct Unused {
    made: u32,
    maps: [Vec<&'static Map>; SORTS],
}

static UNUSED: Lock<Unused> = Lock::new(Unused { made: 0, maps: [const { Vec::new() }; SORTS] });

/// After a fork, in the child: what the parent had is given up.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    CHUNKS.iter().for_each(Ledger::after_fork_in_child);
    let parts = TABLE.iter().take_while(|part| !part.load(Ordering::Acquire).is_null()).count();
    // A part that a thread was filling is given up.
    let made = FIRST * ((1 << parts) - 1);
    // SAFETY: the caller's promise.
    unsafe { UNUSED.replace_in_child(Unused { made, maps: [const { Vec::new() }; SORTS] }) };
}

fn slot(number: u32) -> Option<&'static AtomicPtr<Map>> {
    let part = (number / FIRST + 1).ilog2();
    let first = TABLE.get(part as usize)?.load(Ordering::Acquire);
    // SAFETY: NULL, or a leaked part with that many places.
    (!first.is_null()).then(|| unsafe { &*first.add((number - FIRST * ((1 << part) - 1)) as usize) })
}

fn at(number: u32) -> Option<&'static Map> {
    // SAFETY: NULL or a leaked box.
    unsafe { slot(number)?.load(Ordering::Acquire).as_ref() }
}

/// A table for a chunk whose blocks begin at multiples of `granule` at least; `None` when there are too many.
pub fn make(base: u64, size: u64, granule: u64) -> Option<&'static Map> {
    let granule = granule.max(size.div_ceil(MOST_PLACES).next_power_of_two());
    let sort = size.div_ceil(granule).next_power_of_two().ilog2().max(6) as usize;
    let mut unused = UNUSED.write();
    let map = match unused.maps.get_mut(sort)?.pop() {
        Some(map) => map,
        None => make_new(&mut unused, 1 << sort)?,
    };
    map.base.store(base, Ordering::Relaxed);
    map.granule_log2.store(granule.ilog2(), Ordering::Relaxed);
    Some(map)
}

fn make_new(unused: &mut Unused, places: usize) -> Option<&'static Map> {
    let number = unused.made;
    let part = (number / FIRST + 1).ilog2();
    let place = TABLE.get(part as usize)?;
    if place.load(Ordering::Acquire).is_null() {
        let fresh: Box<[AtomicPtr<Map>]> =
            (0..FIRST << part).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        place.store(Box::leak(fresh).as_mut_ptr(), Ordering::Release);
    }
    let map: &'static Map = Box::leak(Box::new(Map {
        number,
        chunk: AtomicU32::new(0),
        base: AtomicU64::new(0),
        granule_log2: AtomicU32::new(0),
        level: AtomicUsize::new(0),
        blocks: (0..places).map(|_| AtomicU32::new(0)).collect(),
        begins: (0..places / 64).map(|_| AtomicU64::new(0)).collect(),
    }));
    slot(number)?.store(std::ptr::from_ref(map).cast_mut(), Ordering::Release);
    unused.made += 1;
    Some(map)
}

/// Gives a table back whose chunk is gone from among the others.
pub fn give_back(map: &'static Map) {
    for word in &map.begins {
        word.store(0, Ordering::Release);
    }
    let sort = map.blocks.len().ilog2() as usize;
    UNUSED.write().maps[sort].push(map);
}

/// Has the addresses of a chunk be found. An error when some are another chunk's; but for those of a single block that a caller has
/// and the ledger, or its own allocator, knows: who got that block makes a chunk of it.
pub fn enter(map: &'static Map, base: u64, size: u64, like: &Record) -> Result<(), InsertError> {
    let record = like.moved(base, size).with_graph(map.number);
    for (level, chunks) in CHUNKS.iter().enumerate() {
        match chunks.insert(record) {
            Ok(()) => {
                map.level.store(level, Ordering::Release);
                LEVELS.fetch_max(level + 1, Ordering::AcqRel);
                return Ok(());
            }
            Err(InsertError::Overlap(_)) if level + 1 < CHUNKS.len() && lies_in_told(level, base, size) => {}
            Err(error) => return Err(error),
        }
    }
    Err(InsertError::OutOfMemory)
}

/// Whether a range lies in one block of that level that was given out as any allocator's.
fn lies_in_told(level: usize, base: u64, size: u64) -> bool {
    find_at(level, base)
        .is_some_and(|(block, _)| block.state() == State::Told && base + size <= block.base() + block.size())
}

/// Notes that a block goes back to its heap.
pub fn note_freed(block: &Block) {
    FREED.note(block.base());
}

/// Whether a block that began there went back to its heap a short while ago.
pub fn was_freed(base: u64) -> bool {
    FREED.has(base)
}

/// The addresses of a chunk are not found any more.
pub fn leave(base: u64, map: &Map) {
    let _ = CHUNKS[map.level.load(Ordering::Acquire)]
        .remove(base, |record| if record.graph() == map.number { Ok(()) } else { Err(()) });
}

fn find_at(level: usize, address: u64) -> Option<(&'static Block, Record)> {
    let chunk = CHUNKS[level].find(address)?;
    Some((at(chunk.graph())?.find(address)?, chunk))
}

/// The cached block that an address lies in, whoever has it, and what is known of its chunk. Of caches on top of each other it is the
/// topmost one's.
#[inline]
pub fn find(address: u64) -> Option<(&'static Block, Record)> {
    (0..LEVELS.load(Ordering::Acquire)).rev().find_map(|level| find_at(level, address))
}

/// The block at an address of a certain allocator's cache.
pub fn find_of(allocator: u32, address: u64) -> Option<&'static Block> {
    let is_its = |block: &Block| block.lane().is_some_and(|lane| lane.of().allocator() == allocator);
    (0..LEVELS.load(Ordering::Acquire))
        .filter_map(|level| find_at(level, address))
        .map(|(block, _)| block)
        .find(|block| is_its(block))
}

/// Every cached block, whoever has it, and what is known of its chunk.
pub fn each(mut visit: impl FnMut(&'static Block, &Record)) {
    for chunks in &CHUNKS[..LEVELS.load(Ordering::Acquire)] {
        chunks.for_each(|chunk| {
            if let Some(map) = at(chunk.graph()) {
                map.each(|block| visit(block, &chunk));
            }
        });
    }
}
