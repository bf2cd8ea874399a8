//! What the ledger knows of one live block, in 48 bytes.

/// The words of a record besides its base: what a leaf keeps in a slot's body.
pub(super) const BODY_WORDS: usize = 5;

/// One live allocation. `base` and `size` are fixed once made; everything else is carried for the rooms above, which
/// give the numbers their meaning (a *slot* is an index into a table of theirs, zero where they say nothing).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Record {
    base: u64,
    size: u64,
    stream: u32,
    context: u32,
    pool: u32,
    allocator: u32,
    graph: u32,
    tag: u32,
    device: u16,
    flags: u16,
    alignment_log2: u8,
    /// Bits 0..3 the kind, bits 4..7 the rule.
    kind_and_rule: u8,
}

impl Record {
    /// A record of the block `[base, base + size)`, everything else zero and the alignment 1.
    #[must_use]
    pub const fn new(base: u64, size: u64) -> Self {
        Self {
            base,
            size,
            stream: 0,
            context: 0,
            pool: 0,
            allocator: 0,
            graph: 0,
            tag: 0,
            device: 0,
            flags: 0,
            alignment_log2: 0,
            kind_and_rule: 0,
        }
    }

    /// The alignment the block was asked with, rounded down to a power of two; zero counts as one.
    #[must_use]
    pub const fn with_alignment(mut self, alignment: u64) -> Self {
        self.alignment_log2 = if alignment == 0 { 0 } else { alignment.ilog2() as u8 };
        self
    }

    /// The memory kind, 0..=7; higher bits are dropped.
    #[must_use]
    pub const fn with_kind(mut self, kind: u8) -> Self {
        self.set_kind(kind);
        self
    }

    /// The access rule, 0..=7; higher bits are dropped.
    #[must_use]
    pub const fn with_rule(mut self, rule: u8) -> Self {
        self.set_rule(rule);
        self
    }

    /// The index of the device the block lives on.
    #[must_use]
    pub const fn with_device(mut self, device: u16) -> Self {
        self.device = device;
        self
    }

    /// Bits whose meaning belongs to the rooms above.
    #[must_use]
    pub const fn with_flags(mut self, flags: u16) -> Self {
        self.flags = flags;
        self
    }

    /// The slot of the stream the block was allocated on.
    #[must_use]
    pub const fn with_stream(mut self, stream: u32) -> Self {
        self.stream = stream;
        self
    }

    /// The slot of the context the block belongs to.
    #[must_use]
    pub const fn with_context(mut self, context: u32) -> Self {
        self.context = context;
        self
    }

    /// The slot of the pool that made the block.
    #[must_use]
    pub const fn with_pool(mut self, pool: u32) -> Self {
        self.pool = pool;
        self
    }

    /// The slot of the allocator that made the block.
    #[must_use]
    pub const fn with_allocator(mut self, allocator: u32) -> Self {
        self.allocator = allocator;
        self
    }

    /// The slot of the graph that owns the block.
    #[must_use]
    pub const fn with_graph(mut self, graph: u32) -> Self {
        self.graph = graph;
        self
    }

    /// The caller's tag.
    #[must_use]
    pub const fn with_tag(mut self, tag: u32) -> Self {
        self.tag = tag;
        self
    }

    /// The same of the block `[base, base + size)`.
    #[must_use]
    pub const fn moved(mut self, base: u64, size: u64) -> Self {
        self.base = base;
        self.size = size;
        self
    }

    /// The first address of the block.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// The size in bytes, never zero in a live record.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The last address of the block, or `None` if it is empty or runs past the end of the address space.
    #[must_use]
    pub const fn last(&self) -> Option<u64> {
        match self.size.checked_sub(1) {
            Some(reach) => self.base.checked_add(reach),
            None => None,
        }
    }

    /// Whether `address` lies in the block.
    #[must_use]
    pub const fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.size
    }

    /// The alignment in bytes, a power of two.
    #[must_use]
    pub const fn alignment(&self) -> u64 {
        1 << (self.alignment_log2 & 63)
    }

    /// The memory kind, 0..=7.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        self.kind_and_rule & 7
    }

    /// The access rule, 0..=7.
    #[must_use]
    pub const fn rule(&self) -> u8 {
        (self.kind_and_rule >> 4) & 7
    }

    /// The index of the device the block lives on.
    #[must_use]
    pub const fn device(&self) -> u16 {
        self.device
    }

    /// Bits whose meaning belongs to the rooms above.
    #[must_use]
    pub const fn flags(&self) -> u16 {
        self.flags
    }

    /// The slot of the stream the block was allocated on.
    #[must_use]
    pub const fn stream(&self) -> u32 {
        self.stream
    }

    /// The slot of the context the block belongs to.
    #[must_use]
    pub const fn context(&self) -> u32 {
        self.context
    }

    /// The slot of the pool that made the block.
    #[must_use]
    pub const fn pool(&self) -> u32 {
        self.pool
    }

    /// The slot of the allocator that made the block.
    #[must_use]
    pub const fn allocator(&self) -> u32 {
        self.allocator
    }

    /// The slot of the graph that owns the block.
    #[must_use]
    pub const fn graph(&self) -> u32 {
        self.graph
    }

    /// The caller's tag.
    #[must_use]
    pub const fn tag(&self) -> u32 {
        self.tag
    }

    /// Changes the memory kind, 0..=7; higher bits are dropped.
    pub const fn set_kind(&mut self, kind: u8) {
        self.kind_and_rule = (self.kind_and_rule & 0x70) | (kind & 7);
    }

    /// Changes the access rule, 0..=7; higher bits are dropped.
    pub const fn set_rule(&mut self, rule: u8) {
        self.kind_and_rule = (self.kind_and_rule & 0x07) | ((rule & 7) << 4);
    }

    /// Changes the flags.
    pub const fn set_flags(&mut self, flags: u16) {
        self.flags = flags;
    }

    /// Changes the stream slot.
    pub const fn set_stream(&mut self, stream: u32) {
        self.stream = stream;
    }

    /// Changes the context slot.
    pub const fn set_context(&mut self, context: u32) {
        self.context = context;
    }

    /// Changes the pool slot.
    pub const fn set_pool(&mut self, pool: u32) {
        self.pool = pool;
    }

    /// Changes the allocator slot.
    pub const fn set_allocator(&mut self, allocator: u32) {
        self.allocator = allocator;
    }

    /// Changes the slot of the owning graph.
    pub const fn set_graph(&mut self, graph: u32) {
        self.graph = graph;
    }

    /// Changes the tag.
    pub const fn set_tag(&mut self, tag: u32) {
        self.tag = tag;
    }

    /// The record with the place of another: what an update may not change.
    pub(super) const fn at_place_of(mut self, other: &Self) -> Self {
        self.base = other.base;
        self.size = other.size;
        self
    }

    /// Everything but the base; the size comes first because a slot is live exactly when that word is not zero.
    pub(super) const fn body(&self) -> [u64; BODY_WORDS] {
        [
            self.size,
            self.stream as u64 | (self.context as u64) << 32,
            self.pool as u64 | (self.allocator as u64) << 32,
            self.graph as u64 | (self.tag as u64) << 32,
            self.device as u64
                | (self.flags as u64) << 16
                | (self.alignment_log2 as u64) << 32
                | (self.kind_and_rule as u64) << 40,
        ]
    }

    /// The inverse of [`Record::body`].
    pub(super) const fn from_words(base: u64, body: [u64; BODY_WORDS]) -> Self {
        Self {
            base,
            size: body[0],
            stream: body[1] as u32,
            context: (body[1] >> 32) as u32,
            pool: body[2] as u32,
            allocator: (body[2] >> 32) as u32,
            graph: body[3] as u32,
            tag: (body[3] >> 32) as u32,
            device: body[4] as u16,
            flags: (body[4] >> 16) as u16,
            alignment_log2: (body[4] >> 32) as u8,
            kind_and_rule: (body[4] >> 40) as u8,
        }
    }
}
