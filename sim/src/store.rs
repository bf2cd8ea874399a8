//! What simulated memory holds: a sparse store that the CPU reaches only through the driver.
//!
//! Pages exist once something wrote to them, so a device of 140 GiB costs what a test touches. A page that was never
//! written reads as the fresh byte, a freed one as [`POISON`]: both are seen in a wrong result.
use std::collections::BTreeMap;

const PAGE: usize = 4 << 10;
const CHUNK: usize = 64 << 10;

/// What freed memory holds.
pub const POISON: u8 = 0xDD;

struct Chunk {
    /// One bit a page: written at some time.
    written: u16,
    bytes: Box<[u8]>,
}

impl Chunk {
    /// Makes the pages of `[at, at + n)` real; what the caller will not overwrite gets the fresh byte.
    fn prepare(&mut self, at: usize, n: usize, fresh: u8) {
        for page in at / PAGE..=(at + n - 1) / PAGE {
            if self.written & (1 << page) == 0 {
                self.bytes[page * PAGE..(page + 1) * PAGE].fill(fresh);
                self.written |= 1 << page;
            }
        }
    }
}

/// The contents of one address range.
pub struct Store {
    chunks: BTreeMap<u64, Chunk>,
    fresh: u8,
}

impl Store {
    pub fn new(fresh: u8) -> Store {
        Store { chunks: BTreeMap::new(), fresh }
    }

    fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == length {
                return None;
            }
            let position = offset + done as u64;
            let at = (position % CHUNK as u64) as usize;
            let n = (CHUNK - at).min(length - done);
            let piece = (position / CHUNK as u64, at, n, done);
            done += n;
            Some(piece)
        })
    }

    fn chunk(&mut self, index: u64, at: usize, n: usize) -> &mut [u8] {
        let chunk = self
            .chunks
            .entry(index)
            .or_insert_with(|| Chunk { written: 0, bytes: vec![0; CHUNK].into_boxed_slice() });
        chunk.prepare(at, n, self.fresh);
        &mut chunk.bytes[at..at + n]
    }

    pub fn write(&mut self, offset: u64, from: &[u8]) {
        for (index, at, n, done) in Self::pieces(offset, from.len()) {
            self.chunk(index, at, n).copy_from_slice(&from[done..done + n]);
        }
    }

    pub fn read(&self, offset: u64, to: &mut [u8]) {
        for (index, at, n, done) in Self::pieces(offset, to.len()) {
            let to = &mut to[done..done + n];
            let Some(chunk) = self.chunks.get(&index) else {
                to.fill(self.fresh);
                continue;
            };
            to.copy_from_slice(&chunk.bytes[at..at + n]);
            if chunk.written != u16::MAX {
                for page in (at / PAGE..=(at + n - 1) / PAGE).filter(|page| chunk.written & (1 << page) == 0)
                {
                    let (low, high) = ((page * PAGE).max(at), ((page + 1) * PAGE).min(at + n));
                    to[low - at..high - at].fill(self.fresh);
                }
            }
        }
    }

    /// Repeats `pattern` over `length` bytes; the length is a multiple of the pattern's.
    pub fn fill(&mut self, offset: u64, pattern: &[u8], length: usize) {
        for (index, at, n, done) in Self::pieces(offset, length) {
            let bytes = self.chunk(index, at, n);
            if let [byte] = pattern {
                bytes.fill(*byte);
            } else {
                for (i, byte) in bytes.iter_mut().enumerate() {
                    *byte = pattern[(done + i) % pattern.len()];
                }
            }
        }
    }

    /// Overwrites what was ever written in the range with [`POISON`].
    pub fn poison(&mut self, offset: u64, length: u64) {
        if self.chunks.is_empty() || length == 0 {
            return;
        }
        let chunk = CHUNK as u64;
        let end = offset + length;
        for (&index, stored) in self.chunks.range_mut(offset / chunk..=(end - 1) / chunk) {
            let base = index * chunk;
            for page in (0..CHUNK / PAGE).filter(|page| stored.written & (1 << page) != 0) {
                let low = (base + (page * PAGE) as u64).max(offset);
                let high = (base + ((page + 1) * PAGE) as u64).min(end);
                if low < high {
                    stored.bytes[(low - base) as usize..(high - base) as usize].fill(POISON);
                }
            }
        }
    }

    /// Forgets everything, as memory given back to the system is forgotten.
    pub fn clear(&mut self) {
        self.chunks.clear();
    }
}
