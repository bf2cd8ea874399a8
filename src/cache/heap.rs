//! Memory by the chunk, cut into blocks and joined again. Every block has as its neighbours those that lie beside it in the same
//! chunk; free ones are in lists by size. What is taken is of the first list that surely serves, so nothing is searched.
//! Small blocks and large ones lie in chunks of different sorts: a few small blocks that live long would else keep large ones from
//! being joined.

use super::Lane;
use super::block::{self, Block, Links, State};
use super::map::{self, Map};
use super::sizes::{
    CLASSES, GRANULE, LARGE_GRANULE, SMALL, STEPPED, class_below, class_of, rounded, size_of,
};
use crate::ledger::{InsertError, Record};

/// The finest step of large blocks' sizes.
const LARGE_STEP: u64 = SMALL / 16;
const WORDS: usize = CLASSES.div_ceil(64);

/// Free blocks of one sort, by class.
struct Lists {
    /// Which of them are not empty; and which of these words are not 0.
    bits: [u64; WORDS],
    words: u64,
    /// Never freed: blocks lead here. Heaps are lanes', which are not freed either.
    heads: &'static [Links; CLASSES],
}

impl Lists {
    fn new() -> Lists {
        let heads: &'static [Links; CLASSES] = Box::leak(Box::new(std::array::from_fn(|_| Links::default())));
        let lists = Lists { bits: [0; WORDS], words: 0, heads };
        heads.iter().for_each(Links::close);
        lists
    }

    #[inline(always)]
    fn put(&mut self, block: &'static Block, class: usize) {
        self.heads[class].put(block);
        self.bits[class / 64] |= 1 << (class % 64);
        self.words |= 1 << (class / 64);
    }

    #[inline(always)]
    fn take(&mut self, block: &'static Block, class: usize) {
        let was_last = Links::take(block);
        let bits = self.bits[class / 64] & !(u64::from(was_last) << (class % 64));
        self.bits[class / 64] = bits;
        self.words &= !(u64::from(bits == 0) << (class / 64));
    }

    /// The smallest class from `class` on that has a block.
    #[inline(always)]
    fn first_from(&self, class: usize) -> Option<usize> {
        let word = class / 64;
        let bits = self.bits[word] & (u64::MAX << (class % 64));
        if bits != 0 {
            return Some(word * 64 + bits.trailing_zeros() as usize);
        }
        let words = self.words & (u64::MAX << word << 1);
        if words == 0 {
            return None;
        }
        let word = words.trailing_zeros() as usize;
        Some(word * 64 + self.bits[word].trailing_zeros() as usize)
    }

    /// A free block of at least `size` bytes, hardly larger than the smallest that there is; `class` is that below the size.
    #[inline(always)]
    fn find(&self, size: u64, class: usize) -> Option<&'static Block> {
        // Those of a class have what a request of it is rounded to.
        if size <= STEPPED {
            return self.heads[self.first_from(class)?].first();
        }
        self.find_very_large(size, class)
    }

    /// Their sizes lie between those of classes.
    #[cold]
    fn find_very_large(&self, size: u64, class: usize) -> Option<&'static Block> {
        // In the list of its own class some are too small, and all are in those above.
        const TRIES: usize = 8;
        let head = &self.heads[class];
        let mut block = head.first();
        for _ in 0..TRIES {
            match block {
                Some(found) if found.size() >= size => return block,
                Some(found) => block = head.behind(&found.links),
                None => break,
            }
        }
        if class + 1 == CLASSES {
            return None;
        }
        self.heads[self.first_from(class + 1)?].first()
    }

    fn largest(&self) -> u64 {
        let Some(word) = self.words.checked_ilog2() else { return 0 };
        let class = word as usize * 64 + self.bits[word as usize].ilog2() as usize;
        let mut largest = 0;
        self.each_of(class, |block| largest = largest.max(block.size()));
        largest
    }

    fn each(&self, mut visit: impl FnMut(&'static Block)) {
        for (word, bits) in self.bits.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                self.each_of(word * 64 + bits.trailing_zeros() as usize, &mut visit);
                bits &= bits - 1;
            }
        }
    }

    fn each_of(&self, class: usize, mut visit: impl FnMut(&'static Block)) {
        let head = &self.heads[class];
        let mut block = head.first();
        while let Some(found) = block {
            block = head.behind(&found.links);
            visit(found);
        }
    }
}

/// Memory that came in one piece, and goes back as that.
#[derive(Debug, Clone, Copy)]
pub struct Chunk {
    pub base: u64,
    pub size: u64,
    /// Whether it is for small blocks.
    pub small: bool,
    /// Whether it came for another stream than the one whose memory it is now.
    pub moved: bool,
    /// What is known of all blocks in it.
    pub like: Record,
}

/// A chunk that a heap has.
struct Kept {
    chunk: Chunk,
    map: &'static Map,
}

/// Why a chunk was not taken in.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// No memory for what is to be known of it.
    NoMemory,
    /// Some of its addresses are another chunk's.
    InUse,
}

/// See the top of the file. Its user keeps others out.
pub struct Heap {
    /// Whose blocks they are.
    pub(super) lane: Option<&'static Lane>,
    /// Free blocks, by `sort`.
    lists: [Lists; 4],
    chunks: Vec<Option<Kept>>,
    no_chunks: Vec<u32>,
    spare: Vec<&'static Block>,
    /// Bytes of all chunks.
    pub reserved: u64,
    /// Bytes in free blocks.
    pub free: u64,
    /// Bytes in chunks that are free as a whole.
    pub whole: u64,
}

impl Heap {
    pub fn new() -> Heap {
        Heap {
            lane: None,
            lists: std::array::from_fn(|_| Lists::new()),
            chunks: Vec::new(),
            no_chunks: Vec::new(),
            spare: Vec::new(),
            reserved: 0,
            free: 0,
            whole: 0,
        }
    }

    /// Takes in a piece of memory.
    pub fn add(&mut self, chunk: Chunk) -> Result<(), Refused> {
        let granule = if chunk.small { GRANULE } else { LARGE_STEP };
        let map = map::make(chunk.base, chunk.size, granule).ok_or(Refused::NoMemory)?;
        let Some(block) = self.unused() else {
            map::give_back(map);
            return Err(Refused::NoMemory);
        };
        let number = self.no_chunks.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            self.chunks.len() as u32 - 1
        });
        map.set_chunk(number);
        block.begin(chunk.base, chunk.size, self.lane, map, chunk.like.kind(), chunk.small);
        block.set_state(State::Free);
        map.begin(block);
        if let Err(error) = map::enter(map, chunk.base, chunk.size, &chunk.like) {
            self.retire(block);
            self.no_chunks.push(number);
            map::give_back(map);
            return Err(match error {
                InsertError::OutOfMemory => Refused::NoMemory,
                InsertError::Overlap(_) | InsertError::AddressRange => Refused::InUse,
            });
        }
        self.chunks[number as usize] = Some(Kept { chunk, map });
        self.reserved += chunk.size;
        self.free += chunk.size;
        self.whole += chunk.size;
        self.lists[sort(chunk.small, true)].put(block, block.class());
        Ok(())
    }

    /// A block of at least `size` bytes; in the hands of whoever takes it, but not handed out.
    #[inline]
    pub fn take(&mut self, size: u64) -> Option<&'static Block> {
        let (wanted, class) = if size <= STEPPED {
            let class = class_of(size);
            (size_of(class), class)
        } else {
            let wanted = rounded(size);
            (wanted, class_below(wanted))
        };
        let small = wanted <= SMALL;
        let mut from = sort(small, false);
        let mut found = self.lists[from].find(wanted, class);
        if found.is_none() {
            from = sort(small, true);
            found = self.lists[from].find(wanted, class);
        }
        let block = found?;
        let least = if small { GRANULE } else { LARGE_STEP };
        if block.size() >= wanted + least
            && let Some(end) = self.cut(block, wanted, from)
        {
            return Some(end);
        }
        self.take_from_list(block, from == sort(small, true));
        block.set_state(State::AtHand);
        Some(block)
    }

    /// Of a free block, which may be all of its chunk.
    #[inline(always)]
    fn take_from_list(&mut self, block: &'static Block, whole: bool) {
        let size = block.size();
        self.lists[sort(block.is_small(), whole)].take(block, block.class());
        self.free -= size;
        self.whole -= if whole { size } else { 0 };
    }

    /// The end of a free block, of at least `wanted` bytes. What is left stays where it is, mostly even in its list.
    #[inline(always)]
    fn cut(&mut self, block: &'static Block, wanted: u64, from: usize) -> Option<&'static Block> {
        let (map, size) = (block.map(), block.size());
        // In a very large chunk blocks begin at multiples of more.
        let base = map.down(block.base() + size - wanted);
        let left = base - block.base();
        if left == 0 {
            return None;
        }
        let end = self.unused()?;
        end.begin_in(block, base, size - left);
        let behind = block.behind.get();
        end.before.set(Some(block));
        end.behind.set(behind);
        if let Some(behind) = behind {
            behind.before.set(Some(end));
        }
        block.behind.set(Some(end));
        end.set_state(State::AtHand);
        map.begin(end);
        let to = sort(block.is_small(), false);
        self.move_to(block, left, from, to);
        self.free -= size - left;
        self.whole -= if from == to { 0 } else { size };
        Some(end)
    }

    /// A free block has another size now, and may belong into other lists.
    #[inline(always)]
    fn move_to(&mut self, block: &'static Block, size: u64, from: usize, to: usize) {
        let (before, class) = (block.class(), class_below(size));
        if from != to || before != class {
            self.lists[from].take(block, before);
            self.lists[to].put(block, class);
        }
        block.resize(size, class);
    }

    /// Takes back what `take` gave. It is joined to free neighbours, and the block may be another one's part afterwards; comes back
    /// when its chunk is free as a whole now.
    #[inline]
    pub fn put(&mut self, block: &'static Block) -> Option<&'static Block> {
        map::note_freed(block);
        let is_free = |beside: &&'static Block| beside.state() == State::Free;
        let (mut size, small) = (block.size(), block.is_small());
        let (before, mut behind) = (block.before.get(), block.behind.get());
        let broken = sort(small, false);
        self.free += size;
        if let Some(free) = behind.filter(is_free) {
            self.lists[broken].take(free, free.class());
            size += free.size();
            behind = free.behind.get();
            block.map().end(free.base());
            self.retire(free);
        }
        let free = before.filter(is_free);
        let joined = free.unwrap_or(block);
        joined.behind.set(behind);
        if let Some(behind) = behind {
            behind.before.set(Some(joined));
        }
        let whole = is_whole(joined);
        let to = sort(small, whole);
        if let Some(free) = free {
            size += free.size();
            block.map().end(block.base());
            self.retire(block);
            self.move_to(free, size, broken, to);
        } else {
            let class = class_below(size);
            block.resize(size, class);
            block.set_state(State::Free);
            self.lists[to].put(block, class);
        }
        if !whole {
            return None;
        }
        self.whole += size;
        Some(joined)
    }

    #[inline]
    fn retire(&mut self, block: &'static Block) {
        const KEPT: usize = 256;
        block.set_state(State::Void);
        self.spare.push(block);
        if self.spare.len() > KEPT {
            block::give_unused(self.spare.drain(KEPT / 2..));
        }
    }

    #[inline]
    fn unused(&mut self) -> Option<&'static Block> {
        if self.spare.is_empty() {
            block::unused(&mut self.spare)?;
        }
        self.spare.pop()
    }

    /// Gives up a chunk that is free as a whole.
    pub fn remove(&mut self, block: &'static Block) -> Option<Chunk> {
        let number = block.map().chunk();
        self.take_from_list(block, true);
        let Kept { chunk, map } = self.chunks[number as usize].take()?;
        self.no_chunks.push(number);
        map::leave(chunk.base, map);
        map::give_back(map);
        self.reserved -= chunk.size;
        self.retire(block);
        Some(chunk)
    }

    /// Whether it has such a chunk.
    pub fn has(&self, is_it: impl Fn(&Chunk) -> bool) -> bool {
        self.chunks.iter().flatten().any(|kept| is_it(&kept.chunk))
    }

    /// Gives up chunks whose memory is no more, whatever is in them. `told` is called with the blocks that the ledger knows.
    pub fn remove_dead(&mut self, is_dead: impl Fn(&Chunk) -> bool, mut told: impl FnMut(u64)) -> Vec<Chunk> {
        let mut removed = Vec::new();
        for number in 0..self.chunks.len() {
            let dead = self.chunks[number].as_ref().filter(|kept| is_dead(&kept.chunk));
            let Some(map) = dead.map(|kept| kept.map) else { continue };
            map.each(|block| {
                loop {
                    let life = block.life();
                    debug_assert!(life.state() != State::AtHand, "of a lane that is not closed");
                    match life.state() {
                        State::Free => self.take_from_list(block, is_whole(block)),
                        // Said before the block is none any more: who gives it back finds it in either place.
                        State::Told => told(block.base()),
                        _ => {}
                    }
                    // Who enters it in the ledger takes no lock of ours, and is waited for.
                    if life.state() != State::Telling && block.turn(life, State::Void) {
                        break;
                    }
                    std::thread::yield_now();
                }
                self.spare.push(block);
            });
            if let Some(Kept { chunk, map }) = self.chunks[number].take() {
                self.no_chunks.push(number as u32);
                map::leave(chunk.base, map);
                map::give_back(map);
                self.reserved -= chunk.size;
                removed.push(chunk);
            }
        }
        removed
    }

    /// Notes that all chunks are another stream's memory from now on.
    pub fn move_all(&mut self) {
        self.chunks.iter_mut().flatten().for_each(|kept| kept.chunk.moved = true);
    }

    /// Of the chunks that are free as a whole those that may go, given up until they have `bytes` together: the one that is just
    /// enough, else the largest.
    pub fn remove_whole(&mut self, bytes: u64, may_go: impl Fn(&Chunk) -> bool) -> Vec<Chunk> {
        let mut whole = Vec::new();
        for small in [true, false] {
            self.lists[sort(small, true)].each(|block| {
                let kept = self.chunks[block.map().chunk() as usize].as_ref();
                if kept.is_some_and(|kept| may_go(&kept.chunk)) {
                    whole.push(block);
                }
            });
        }
        whole.sort_by_key(|block| block.size());
        let mut removed = Vec::new();
        let mut missing = bytes;
        while missing != 0 && !whole.is_empty() {
            let enough = whole.partition_point(|block| block.size() < missing);
            let block = whole.remove(enough.min(whole.len() - 1));
            missing = missing.saturating_sub(block.size());
            removed.extend(self.remove(block));
        }
        removed
    }

    /// The smallest chunk that is free as a whole, is of that sort and serves that many bytes without wasting as many.
    fn find_whole(&self, bytes: u64, small: bool) -> Option<&'static Block> {
        let lists = &self.lists[sort(small, true)];
        lists.find(bytes, class_below(bytes)).filter(|block| block.size() / 2 <= bytes)
    }

    pub fn has_whole(&self, bytes: u64, small: bool) -> bool {
        self.whole >= bytes && self.find_whole(bytes, small).is_some()
    }

    /// Gives up the chunk that `has_whole` has found.
    pub fn remove_one(&mut self, bytes: u64, small: bool) -> Option<Chunk> {
        let block = self.find_whole(bytes, small)?;
        self.remove(block)
    }

    pub fn chunks(&self) -> usize {
        self.chunks.len() - self.no_chunks.len()
    }

    pub fn largest_free(&self) -> u64 {
        self.lists.iter().map(Lists::largest).max().unwrap_or(0)
    }
}

impl Default for Heap {
    fn default() -> Self {
        Heap::new()
    }
}

/// Which lists free blocks are in: those of chunks for small blocks or of others, of which other blocks are in use, or which are free as a
/// whole. The latter are broken up only for what fits nowhere else.
#[inline(always)]
fn sort(small: bool, whole: bool) -> usize {
    usize::from(!small) + 2 * usize::from(whole)
}

/// Whether it is all of its chunk.
fn is_whole(block: &Block) -> bool {
    block.before.get().is_none() && block.behind.get().is_none()
}

/// How many bytes to ask for, so that a request of `size` bytes can be served, and whether they are for small blocks.
pub fn chunk_for(size: u64) -> (u64, bool) {
    let wanted = rounded(size);
    if wanted <= SMALL { (LARGE_GRANULE, true) } else { (wanted.next_multiple_of(LARGE_GRANULE), false) }
}

const _: () = assert!(class_of(SMALL) < CLASSES);
