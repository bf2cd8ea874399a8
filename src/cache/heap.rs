//! Memory by the chunk, cut into blocks and joined again. Every block has as its neighbours those that lie beside it in the same
//! chunk; free ones are in lists by size. What is taken is of the first list that surely serves, so nothing is searched.
//! Small blocks and large ones lie in chunks of different sorts: a few small blocks that live long would else keep large ones from
//! being joined.

use super::Lane;
use super::block::{self, Block, State};
use super::map::{self, Map};
use super::sizes::{CLASSES, GRANULE, LARGE_GRANULE, SMALL, class_below, class_of, rounded};
use crate::ledger::{InsertError, Record};

/// The finest step of large blocks' sizes.
const LARGE_STEP: u64 = SMALL / 16;
const WORDS: usize = CLASSES.div_ceil(64);

/// Free blocks of one sort of chunk, by class.
struct Lists {
    /// Which of them are not empty.
    bits: [u64; WORDS],
    first: [Option<&'static Block>; CLASSES],
}

impl Lists {
    fn new() -> Lists {
        Lists { bits: [0; WORDS], first: [None; CLASSES] }
    }

    fn put(&mut self, block: &'static Block) {
        let class = block.class();
        let next = self.first[class];
        block.next.set(next);
        block.previous.set(None);
        if let Some(next) = next {
            next.previous.set(Some(block));
        }
        self.first[class] = Some(block);
        self.bits[class / 64] |= 1 << (class % 64);
    }

    fn take(&mut self, block: &'static Block) {
        let class = block.class();
        let (next, previous) = (block.next.get(), block.previous.get());
        if let Some(next) = next {
            next.previous.set(previous);
        }
        match previous {
            Some(previous) => previous.next.set(next),
            None => {
                self.first[class] = next;
                if next.is_none() {
                    self.bits[class / 64] &= !(1 << (class % 64));
                }
            }
        }
    }

    /// The smallest class from `class` on that has a block.
    fn first_from(&self, class: usize) -> Option<usize> {
        let mut word = class / 64;
        let mut bits = self.bits.get(word)? & (u64::MAX << (class % 64));
        while bits == 0 {
            word += 1;
            bits = *self.bits.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// A free block of at least `size` bytes, hardly larger than the smallest that there is.
    fn find(&self, size: u64) -> Option<&'static Block> {
        let class = class_below(size);
        // In the list of its own class some are too small, and all are in those above.
        const TRIES: usize = 8;
        let mut block = self.first[class];
        for _ in 0..TRIES {
            match block {
                Some(found) if found.size() >= size => return block,
                Some(found) => block = found.next.get(),
                None => break,
            }
        }
        self.first[self.first_from(class + 1)?]
    }

    fn largest(&self) -> u64 {
        let word = (0..WORDS).rev().find(|word| self.bits[*word] != 0);
        let Some(word) = word else { return 0 };
        let class = word * 64 + 63 - self.bits[word].leading_zeros() as usize;
        let mut largest = 0;
        let mut block = self.first[class];
        while let Some(found) = block {
            largest = largest.max(found.size());
            block = found.next.get();
        }
        largest
    }

    fn each(&self, mut visit: impl FnMut(&'static Block)) {
        for first in self.first {
            let mut block = first;
            while let Some(found) = block {
                block = found.next.get();
                visit(found);
            }
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
    /// Free blocks in chunks of which other blocks are in use.
    small: Lists,
    large: Lists,
    /// Chunks that are free as a whole. They are broken up only for what fits nowhere else.
    whole_small: Lists,
    whole_large: Lists,
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
            small: Lists::new(),
            large: Lists::new(),
            whole_small: Lists::new(),
            whole_large: Lists::new(),
            chunks: Vec::new(),
            no_chunks: Vec::new(),
            spare: Vec::new(),
            reserved: 0,
            free: 0,
            whole: 0,
        }
    }

    /// The lists that a free block is in.
    fn lists_of(&mut self, block: &Block) -> &mut Lists {
        let small = self.chunks[block.chunk() as usize].as_ref().is_some_and(|kept| kept.chunk.small);
        match (small, is_whole(block)) {
            (true, false) => &mut self.small,
            (false, false) => &mut self.large,
            (true, true) => &mut self.whole_small,
            (false, true) => &mut self.whole_large,
        }
    }

    fn put_in_list(&mut self, block: &'static Block) {
        self.free += block.size();
        if is_whole(block) {
            self.whole += block.size();
        }
        self.lists_of(block).put(block);
    }

    fn take_from_list(&mut self, block: &'static Block) {
        self.free -= block.size();
        if is_whole(block) {
            self.whole -= block.size();
        }
        self.lists_of(block).take(block);
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
        block.place(chunk.base, chunk.size, number);
        block.before.set(None);
        block.behind.set(None);
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
        self.put_in_list(block);
        Ok(())
    }

    /// A block of at least `size` bytes; in the hands of whoever takes it, but not handed out.
    pub fn take(&mut self, size: u64) -> Option<&'static Block> {
        let wanted = rounded(size);
        let (broken, whole, least) = match wanted <= SMALL {
            true => (&self.small, &self.whole_small, GRANULE),
            false => (&self.large, &self.whole_large, LARGE_STEP),
        };
        let block = broken.find(wanted).or_else(|| whole.find(wanted))?;
        let number = block.chunk();
        let Kept { chunk, map } = self.chunks[number as usize].as_ref()?;
        let (kind, map) = (chunk.like.kind(), *map);
        self.take_from_list(block);
        // In a very large chunk blocks begin at multiples of more.
        let wanted = wanted.next_multiple_of(map.granule());
        if block.size() >= wanted + least
            && let Some(rest) = self.unused()
        {
            rest.place(block.base() + wanted, block.size() - wanted, number);
            block.resize(wanted);
            let behind = block.behind.get();
            rest.before.set(Some(block));
            rest.behind.set(behind);
            if let Some(behind) = behind {
                behind.before.set(Some(rest));
            }
            block.behind.set(Some(rest));
            rest.set_state(State::Free);
            map.begin(rest);
            self.put_in_list(rest);
        }
        block.take_for(self.lane, kind);
        Some(block)
    }

    /// Takes back what `take` gave. It is joined to free neighbours, and the block may be another one's part afterwards; comes back
    /// when its chunk is free as a whole now.
    pub fn put(&mut self, block: &'static Block) -> Option<&'static Block> {
        map::note_freed(block);
        let mut joined = block;
        joined.set_state(State::Free);
        if let Some(behind) = block.behind.get().filter(|behind| behind.state() == State::Free) {
            self.take_from_list(behind);
            self.join(block, behind);
        }
        if let Some(before) = block.before.get().filter(|before| before.state() == State::Free) {
            self.take_from_list(before);
            self.join(before, block);
            joined = before;
        }
        self.put_in_list(joined);
        is_whole(joined).then_some(joined)
    }

    /// Makes the second part of the first.
    fn join(&mut self, first: &'static Block, second: &'static Block) {
        if let Some(kept) = &self.chunks[second.chunk() as usize] {
            kept.map.end(second.base());
        }
        first.resize(first.size() + second.size());
        let behind = second.behind.get();
        first.behind.set(behind);
        if let Some(behind) = behind {
            behind.before.set(Some(first));
        }
        self.retire(second);
    }

    fn retire(&mut self, block: &'static Block) {
        const KEPT: usize = 256;
        block.set_state(State::Void);
        self.spare.push(block);
        if self.spare.len() > KEPT {
            block::give_unused(self.spare.drain(KEPT / 2..));
        }
    }

    fn unused(&mut self) -> Option<&'static Block> {
        if self.spare.is_empty() {
            block::unused(&mut self.spare)?;
        }
        self.spare.pop()
    }

    /// Gives up a chunk that is free as a whole.
    pub fn remove(&mut self, block: &'static Block) -> Option<Chunk> {
        let number = block.chunk();
        self.take_from_list(block);
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
                // Who enters it in the ledger takes no lock of ours.
                while block.state() == State::Telling {
                    std::thread::yield_now();
                }
                match block.state() {
                    State::Free => self.take_from_list(block),
                    State::Told => told(block.base()),
                    _ => {}
                }
                block.set_state(State::Void);
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
        for lists in [&self.whole_small, &self.whole_large] {
            lists.each(|block| {
                if self.chunks[block.chunk() as usize].as_ref().is_some_and(|kept| may_go(&kept.chunk)) {
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
        let lists = if small { &self.whole_small } else { &self.whole_large };
        lists.find(bytes).filter(|block| block.size() / 2 <= bytes)
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
        let lists = [&self.small, &self.large, &self.whole_small, &self.whole_large];
        lists.into_iter().map(Lists::largest).max().unwrap_or(0)
    }
}

impl Default for Heap {
    fn default() -> Self {
        Heap::new()
    }
}

/// Whether it is all of its chunk.
pub fn is_whole(block: &Block) -> bool {
    block.before.get().is_none() && block.behind.get().is_none()
}

/// How many bytes to ask for, so that a request of `size` bytes can be served, and whether they are for small blocks.
pub fn chunk_for(size: u64) -> (u64, bool) {
    let wanted = rounded(size);
    if wanted <= SMALL { (LARGE_GRANULE, true) } else { (wanted.next_multiple_of(LARGE_GRANULE), false) }
}

const _: () = assert!(class_of(SMALL) < CLASSES);
