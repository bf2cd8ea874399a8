//! What a text becomes: kernels of decoded instructions, and the variables of the module.
use super::convert::Conversion;
use super::float::How;
use super::operand::Space;

/// A register or constant of a thread: an index into its slots.
pub type Slot = u32;

pub type One = fn(u64) -> u64;
pub type Two = fn(u64, u64) -> u64;
pub type Three = fn(u64, u64, u64) -> u64;
pub type Test = fn(u64, u64) -> bool;

/// A variable of the module, in device memory.
#[derive(Debug)]
pub struct Variable {
    pub name: String,
    pub size: u64,
    /// What it holds at first; zeros where this is shorter.
    pub contents: Vec<u8>,
}

#[derive(Debug)]
pub struct Program {
    pub kernels: Vec<std::sync::Arc<Kernel>>,
    pub variables: Vec<Variable>,
    /// Major and minor, as the language counts.
    pub version: (u32, u32),
    /// The number of the oldest architecture that it is for.
    pub target: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub offset: usize,
    pub size: usize,
}

/// What a slot is filled with before a thread begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Thread(u8),
    BlockSize(u8),
    Block(u8),
    GridSize(u8),
    Lane,
    Warp,
    Warps,
    Multiprocessor,
    Multiprocessors,
    GridId,
    WarpSize,
    DynamicShared,
    TotalShared,
    /// Lanes equal to, below, up to, from, above the thread's own.
    Lanes(u8),
    /// The address of a variable of the module.
    Variable(u32),
    /// The first byte of shared memory whose size the launch says.
    SharedEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Steps,
    StepsHigh,
    Nanoseconds,
    NanosecondsHigh,
}

/// How a predicate result is combined with another predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub space: Space,
    pub base: Slot,
    pub offset: u64,
    /// Bits of the base that count.
    pub mask: u64,
}

/// The elements of a load or store.
#[derive(Clone, Copy, Debug)]
pub struct Elements {
    pub bytes: u8,
    pub count: u8,
    /// Sign bits fill the register up to the mask.
    pub signed: bool,
    pub mask: u64,
    pub slots: [Slot; 4],
}

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Nothing,
    One {
        f: One,
        to: Slot,
        a: Slot,
    },
    Two {
        f: Two,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Three {
        f: Three,
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Float {
        how: How,
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// Add (or subtract), with the carry flag going in, out, or both.
    Carry {
        subtract: bool,
        wide: bool,
        takes: bool,
        gives: bool,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Compare {
        f: Test,
        to: Slot,
        other: Option<Slot>,
        a: Slot,
        b: Slot,
        with: Option<(Combine, Slot, bool)>,
    },
    /// One of two values by a comparison.
    Set {
        f: Test,
        to: Slot,
        a: Slot,
        b: Slot,
        with: Option<(Combine, Slot, bool)>,
        yes: u64,
    },
    Select {
        to: Slot,
        a: Slot,
        b: Slot,
        by: Slot,
    },
    /// As select, by the sign of a number.
    SelectBySign {
        float: bool,
        to: Slot,
        a: Slot,
        b: Slot,
        by: Slot,
    },
    Convert {
        how: Conversion,
        to: Slot,
        a: Slot,
    },
    /// One register of several parts, and the other way round.
    Pack {
        to: Slot,
        parts: [Slot; 4],
        count: u8,
        bits: u8,
    },
    Unpack {
        from: Slot,
        parts: [Option<Slot>; 4],
        count: u8,
        bits: u8,
    },
    Load {
        from: Address,
        elements: Elements,
    },
    Store {
        to: Address,
        elements: Elements,
    },
    /// A read, a computation of what was read and one or two operands, a write.
    Atomic {
        f: Three,
        at: Address,
        bytes: u8,
        to: Option<Slot>,
        b: Slot,
        c: Slot,
    },
    Offset {
        to: Slot,
        a: Slot,
        by: u64,
    },
    IsIn {
        space: Space,
        to: Slot,
        a: Slot,
    },
    Time {
        clock: Clock,
        to: Slot,
    },
    Branch {
        to: u32,
    },
    /// Waits for the block's threads (a number of them, where that is said) at one of its barriers.
    Barrier {
        number: Slot,
        threads: Option<Slot>,
    },
    /// Waits for the threads of the warp.
    WarpBarrier,
    Return,
    Trap,
}

#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    /// The predicate that has to hold, or has to not hold.
    pub guard: Option<(Slot, bool)>,
    pub op: Op,
}

#[derive(Debug)]
pub struct Kernel {
    pub name: String,
    pub parameters: Vec<Parameter>,
    /// Bytes of all parameters.
    pub parameter_bytes: usize,
    pub registers: u32,
    /// What a thread's slots hold at first: its registers, then constants.
    pub slots: Vec<u64>,
    pub specials: Vec<(Slot, Special)>,
    /// Bytes of a block's own variables, and of a thread's.
    pub shared: u64,
    pub local: u64,
    /// The most threads of a block that it was written for.
    pub max_threads: u32,
    /// The shape of blocks that it demands.
    pub block: Option<[u32; 3]>,
    pub code: Vec<Instruction>,
}
