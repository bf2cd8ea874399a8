//! Memory by the chunk, cut into blocks and joined again. Every block has as its neighbours those that lie beside it in the same
//! chunk; free ones are in lists by size. What is taken is of the first list that surely serves, so nothing is searched.
//! Small blocks and large ones lie in chunks of different sorts: a few small blocks that live long would else keep large ones from
//! being joined.

use super::Lane;
use super::block::{self, Block, State};
use super::sizes::{CLASSES, GRANULE, LARGE_GRANULE, SMALL, class_below, class_of, rounded};
use crate::ledger::Record;

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
    /// What is known of all blocks in it.
    pub like: Record,
}

/// See the top of the file. Its user keeps others out.
pub struct Heap {
    /// Whose blocks they are.
    pub(super) lane: Option<&'static Lane>,
    small: Lists,
    large: Lists,
    chunks: Vec<Option<Chunk>>,
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
            chunks: Vec::new(),
            no_chunks: Vec::new(),
            spare: Vec::new(),
            reserved: 0,
            free: 0,
            whole: 0,
        }
    }

    fn lists(&mut self, chunk: u32) -> &mut Lists {
        match self.chunks[chunk as usize] {
            Some(Chunk { small: true, .. }) => &mut self.small,
            _ => &mut self.large,
        }
    }

    /// Takes in a piece of memory. False without memory for what is to be known of it.
    pub fn add(&mut self, chunk: Chunk) -> bool {
        let Some(block) = self.unused() else { return false };
        let number = self.no_chunks.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            self.chunks.len() as u32 - 1
        });
        self.chunks[number as usize] = Some(chunk);
        block.place(chunk.base, chunk.size, number);
        block.before.set(None);
        block.behind.set(None);
        block.set_state(State::Free);
        self.reserved += chunk.size;
        self.free += chunk.size;
        self.whole += chunk.size;
        self.lists(number).put(block);
        true
    }

    /// A block of at least `size` bytes, with what is known of its chunk; in the hands of whoever takes it, but not handed out.
    pub fn take(&mut self, size: u64) -> Option<(&'static Block, Record)> {
        let wanted = rounded(size);
        let (lists, least) = match wanted <= SMALL {
            true => (&self.small, GRANULE),
            // The finest step of their sizes.
            false => (&self.large, SMALL / 16),
        };
        let block = lists.find(wanted)?;
        let number = block.chunk();
        let like = self.chunks[number as usize]?.like;
        let was_whole = is_whole(block);
        self.lists(number).take(block);
        self.free -= block.size();
        if was_whole {
            self.whole -= block.size();
        }
        if block.size() - wanted >= least
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
            self.free += rest.size();
            self.lists(number).put(rest);
        }
        block.take_for(self.lane, like.kind());
        Some((block, like))
    }

    /// Takes back what `take` gave. It is joined to free neighbours, and the block may be another one's part afterwards; comes back
    /// when its chunk is free as a whole now.
    pub fn put(&mut self, block: &'static Block) -> Option<&'static Block> {
        let number = block.chunk();
        self.free += block.size();
        let mut joined = block;
        joined.set_state(State::Free);
        if let Some(behind) = block.behind.get().filter(|behind| behind.state() == State::Free) {
            self.lists(number).take(behind);
            self.join(block, behind);
        }
        if let Some(before) = block.before.get().filter(|before| before.state() == State::Free) {
            self.lists(number).take(before);
            self.join(before, block);
            joined = before;
        }
        self.lists(number).put(joined);
        if !is_whole(joined) {
            return None;
        }
        self.whole += joined.size();
        Some(joined)
    }

    /// Makes the second part of the first.
    fn join(&mut self, first: &'static Block, second: &'static Block) {
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
        let chunk = self.chunks[number as usize]?;
        self.lists(number).take(block);
        self.chunks[number as usize] = None;
        self.no_chunks.push(number);
        self.reserved -= chunk.size;
        self.free -= chunk.size;
        self.whole -= chunk.size;
        self.retire(block);
        Some(chunk)
    }

    /// Chunks that are free as a whole, given up until they have `bytes` together: the one that is just enough, else the largest.
    pub fn remove_whole(&mut self, bytes: u64) -> Vec<Chunk> {
        let mut whole = Vec::new();
        for lists in [&self.small, &self.large] {
            lists.each(|block| {
                if is_whole(block) {
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
        let lists = if small { &self.small } else { &self.large };
        let mut best: Option<&'static Block> = None;
        lists.each(|block| {
            let fits = is_whole(block) && block.size() >= bytes && block.size() / 2 <= bytes;
            if fits && best.is_none_or(|best| block.size() < best.size()) {
                best = Some(block);
            }
        });
        best
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
        self.small.largest().max(self.large.largest())
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
