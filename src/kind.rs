//! Kinds of memory, and the rules that govern who may touch them: two words that every room has.
#![forbid(unsafe_code)]

use crate::ledger::Record;

/// Where a block's memory comes from. The numbers are part of the ABI and fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    Unknown = 0,
    Host = 1,
    Pinned = 2,
    CudaDevice = 3,
    CudaMempool = 4,
    CudaManaged = 5,
}

impl Kind {
    pub const ALL: [Kind; 6] =
        [Kind::Unknown, Kind::Host, Kind::Pinned, Kind::CudaDevice, Kind::CudaMempool, Kind::CudaManaged];

    pub fn of(number: i32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as i32 == number)
    }

    pub fn of_record(record: &Record) -> Kind {
        Kind::of(i32::from(record.kind())).unwrap_or(Kind::Unknown)
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::Unknown => "UNKNOWN",
            Kind::Host => "HOST",
            Kind::Pinned => "PINNED",
            Kind::CudaDevice => "CUDA_DEVICE",
            Kind::CudaMempool => "CUDA_MEMPOOL",
            Kind::CudaManaged => "CUDA_MANAGED",
        }
    }

    /// Whether the CPU may touch it without asking anybody.
    pub fn is_host(self) -> bool {
        matches!(self, Kind::Host | Kind::Pinned)
    }
}

/// The rule that governs who may touch a block. The numbers are part of the ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Rule {
    Unknown = 0,
    Pageable = 1,
    Pinned = 2,
    Peer = 3,
    Pool = 4,
    Mapping = 5,
    GraphFixed = 6,
    Managed = 7,
}

impl Rule {
    pub const ALL: [Rule; 8] = [
        Rule::Unknown,
        Rule::Pageable,
        Rule::Pinned,
        Rule::Peer,
        Rule::Pool,
        Rule::Mapping,
        Rule::GraphFixed,
        Rule::Managed,
    ];

    /// What governs memory of a kind that we made.
    pub fn of_kind(kind: Kind) -> Rule {
        match kind {
            Kind::Unknown => Rule::Unknown,
            Kind::Host => Rule::Pageable,
            Kind::Pinned => Rule::Pinned,
            Kind::CudaDevice => Rule::Peer,
            Kind::CudaMempool => Rule::Pool,
            Kind::CudaManaged => Rule::Managed,
        }
    }

    /// By place, since pointer queries come through here: see the assertion below.
    pub fn of_record(record: &Record) -> Rule {
        Rule::ALL.get(usize::from(record.rule())).copied().unwrap_or(Rule::Unknown)
    }
}

const _: () = {
    let mut i = 0;
    while i < Rule::ALL.len() {
        assert!(Rule::ALL[i] as usize == i, "a rule stands at its number");
        i += 1;
    }
};
