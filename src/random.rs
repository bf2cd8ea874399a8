//! Numbers without a pattern for tests, the same in every run.

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Of every size up to a limit.
    pub fn spread(&mut self, limit: u64) -> u64 {
        let bits = 1 + self.below(u64::from(limit.max(1).ilog2()) + 1);
        (self.next() & (u64::MAX >> (64 - bits))).min(limit)
    }

    pub fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}
