//! Who may touch what: one function over plain facts, which knows no driver and no ledger. Where the facts do not decide, it
//! says which question has to be asked, and decides by the answer.

use crate::alloc::Rule;

/// What is known of the device whose code would touch the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Toucher {
    pub cuda: bool,
    pub unified_addressing: bool,
    /// It reaches ordinary host memory.
    pub pageable_access: bool,
    pub managed_memory: bool,
}

/// Where memory is at home, seen from the toucher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    SameDevice,
    /// The same GPU by another context of it.
    SameGpu,
    /// A GPU that the toucher is not.
    OtherGpu,
    /// The CPU, where the toucher is a GPU.
    Host,
    /// Nobody knows.
    Unknown,
}

/// What is known of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub place: Place,
    pub rule: Rule,
    /// Of the GPU that it is at home on; false on the CPU.
    pub managed_memory: bool,
    pub concurrent_managed_access: bool,
    pub direct_access_from_host: bool,
}

/// What only the driver, or what was noted before, can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Does plain memory of a context have an address on the toucher's GPU?
    Reach,
    /// Does the memory's pool let the toucher in?
    PoolAccess,
    /// What may the toucher do with the mapping?
    MappingAccess,
    /// Could the toucher reach the pool when the memory was captured?
    GraphAccess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
    /// No, and it cannot be allowed: the two GPUs are no peers.
    Never,
    /// No, although peer access is enabled: memory of another process, or of a context that is no device.
    NotByPeers,
    ReadOnly,
    /// There is none.
    Silence,
}

/// What the toucher may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum Access {
    Accessible = 1,
    /// Not to be proved.
    Unverified = 2,
    Inaccessible = 3,
}

/// Why; each reason belongs to one answer. The numbers are part of the ABI: accessible below 100, inaccessible below 200.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Reason {
    Empty = 1,
    SameDevice = 2,
    SameGpu = 3,
    PinnedMapping = 4,
    PageableAccess = 5,
    ManagedConcurrent = 6,
    ManagedDirect = 7,
    ManagedOnBoth = 8,
    PeerAccess = 9,
    PoolAccess = 10,
    Mapped = 11,
    GraphAccess = 12,
    NoPageableAccess = 101,
    NoUnifiedAddressing = 102,
    DeviceMemory = 103,
    ManagedNotConcurrent = 104,
    ManagedNotSupported = 105,
    NotPeers = 106,
    NoPeerAccess = 107,
    NoPoolAccess = 108,
    NotMapped = 109,
    NoGraphAccess = 110,
    OtherProcess = 111,
    NotOnLaunchDevice = 112,
    UnknownMemory = 201,
    MappedReadOnly = 202,
    ForeignGraph = 203,
    NoAnswer = 204,
}

impl Reason {
    pub const ALL: [Reason; 28] = [
        Reason::Empty,
        Reason::SameDevice,
        Reason::SameGpu,
        Reason::PinnedMapping,
        Reason::PageableAccess,
        Reason::ManagedConcurrent,
        Reason::ManagedDirect,
        Reason::ManagedOnBoth,
        Reason::PeerAccess,
        Reason::PoolAccess,
        Reason::Mapped,
        Reason::GraphAccess,
        Reason::NoPageableAccess,
        Reason::NoUnifiedAddressing,
        Reason::DeviceMemory,
        Reason::ManagedNotConcurrent,
        Reason::ManagedNotSupported,
        Reason::NotPeers,
        Reason::NoPeerAccess,
        Reason::NoPoolAccess,
        Reason::NotMapped,
        Reason::NoGraphAccess,
        Reason::OtherProcess,
        Reason::NotOnLaunchDevice,
        Reason::UnknownMemory,
        Reason::MappedReadOnly,
        Reason::ForeignGraph,
        Reason::NoAnswer,
    ];

    pub fn access(self) -> Access {
        match self as i32 {
            ..=99 => Access::Accessible,
            100..=199 => Access::Inaccessible,
            _ => Access::Unverified,
        }
    }
}

/// The question whose answer `judge` needs, where the facts alone do not decide.
pub fn question(toucher: Toucher, memory: Memory) -> Option<Question> {
    match (memory.place, memory.rule) {
        _ if !toucher.cuda => None,
        // A mapping is for whom it was mapped, on its own GPU too.
        (Place::SameDevice | Place::SameGpu | Place::OtherGpu, Rule::Mapping) => {
            Some(Question::MappingAccess)
        }
        (Place::OtherGpu, Rule::Peer) => Some(Question::Reach),
        (Place::OtherGpu | Place::Host, Rule::Pool) => Some(Question::PoolAccess),
        (Place::OtherGpu, Rule::GraphFixed) => Some(Question::GraphAccess),
        _ => None,
    }
}

/// The verdict. `answer` is looked at only where there is a `question`.
pub fn judge(toucher: Toucher, memory: Memory, answer: Answer) -> Reason {
    if let Some(question) = question(toucher, memory) {
        return match by_answer(question, answer) {
            // The GPU reaches the pages of a host pool by the host's own tables.
            refused
                if refused.access() == Access::Inaccessible
                    && memory.place == Place::Host
                    && toucher.pageable_access =>
            {
                Reason::PageableAccess
            }
            reason => reason,
        };
    }
    match (toucher.cuda, memory.place) {
        (_, Place::SameDevice) => Reason::SameDevice,
        (_, Place::SameGpu) => Reason::SameGpu,
        (_, Place::Unknown) => Reason::UnknownMemory,
        (true, Place::Host) => from_gpu(toucher, memory.rule),
        (true, Place::OtherGpu) => match memory.rule {
            Rule::Managed if toucher.managed_memory && memory.managed_memory => Reason::ManagedOnBoth,
            Rule::Managed => Reason::ManagedNotSupported,
            _ => Reason::UnknownMemory,
        },
        (false, _) => from_cpu(memory),
    }
}

fn by_answer(question: Question, answer: Answer) -> Reason {
    match (question, answer) {
        (_, Answer::Silence) => match question {
            // What other code captured does not tell.
            Question::GraphAccess => Reason::ForeignGraph,
            _ => Reason::NoAnswer,
        },
        (Question::Reach, Answer::Yes) => Reason::PeerAccess,
        (Question::Reach, Answer::NotByPeers) => Reason::OtherProcess,
        (Question::Reach, Answer::Never) => Reason::NotPeers,
        (Question::Reach, Answer::No | Answer::ReadOnly) => Reason::NoPeerAccess,
        (Question::PoolAccess, Answer::Yes) => Reason::PoolAccess,
        (Question::PoolAccess, Answer::Never) => Reason::NotPeers,
        (Question::PoolAccess, _) => Reason::NoPoolAccess,
        (Question::MappingAccess, Answer::Yes) => Reason::Mapped,
        (Question::MappingAccess, Answer::ReadOnly) => Reason::MappedReadOnly,
        (Question::MappingAccess, _) => Reason::NotMapped,
        (Question::GraphAccess, Answer::Yes) => Reason::GraphAccess,
        (Question::GraphAccess, _) => Reason::NoGraphAccess,
    }
}

/// A GPU and memory of the host.
fn from_gpu(toucher: Toucher, rule: Rule) -> Reason {
    match rule {
        Rule::Pinned if toucher.unified_addressing => Reason::PinnedMapping,
        _ if toucher.pageable_access => Reason::PageableAccess,
        Rule::Pinned => Reason::NoUnifiedAddressing,
        Rule::Unknown => Reason::UnknownMemory,
        _ => Reason::NoPageableAccess,
    }
}

/// The CPU and memory of a GPU.
fn from_cpu(memory: Memory) -> Reason {
    match memory.rule {
        Rule::Managed if memory.concurrent_managed_access => Reason::ManagedConcurrent,
        Rule::Managed if memory.direct_access_from_host => Reason::ManagedDirect,
        Rule::Managed => Reason::ManagedNotConcurrent,
        Rule::Unknown | Rule::Pageable | Rule::Pinned => Reason::UnknownMemory,
        Rule::Peer | Rule::Pool | Rule::Mapping | Rule::GraphFixed => Reason::DeviceMemory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOLS: [bool; 2] = [false, true];
    const PLACES: [Place; 5] =
        [Place::SameDevice, Place::SameGpu, Place::OtherGpu, Place::Host, Place::Unknown];
    const ANSWERS: [Answer; 6] =
        [Answer::Yes, Answer::No, Answer::Never, Answer::NotByPeers, Answer::ReadOnly, Answer::Silence];

    /// One line of the table that the function is held to. Read from the top, the first that matches counts; what a line says
    /// nothing of is written as `None`.
    struct Row {
        cuda: Option<bool>,
        place: Option<Place>,
        rules: &'static [Rule],
        when: fn(Toucher, Memory) -> bool,
        answers: &'static [Answer],
        reason: Reason,
    }

    fn always(_: Toucher, _: Memory) -> bool {
        true
    }

    fn table() -> Vec<Row> {
        let mut rows = Vec::new();
        let mut row = |cuda, place, rules, when, answers, reason| {
            rows.push(Row { cuda, place, rules, when, answers, reason });
        };
        const ANY: &[Answer] = &ANSWERS;
        const ALL: &[Rule] = &Rule::ALL;
        use Answer::{Never, No, NotByPeers, ReadOnly, Silence, Yes};
        use Place::{Host, OtherGpu, SameDevice, SameGpu, Unknown};
        let (gpu, cpu) = (Some(true), Some(false));

        // Mappings, from their own GPU and from others.
        for place in [SameDevice, SameGpu, OtherGpu] {
            let mapping: &[Rule] = &[Rule::Mapping];
            row(gpu, Some(place), mapping, always, &[Yes], Reason::Mapped);
            row(gpu, Some(place), mapping, always, &[ReadOnly], Reason::MappedReadOnly);
            row(gpu, Some(place), mapping, always, &[Silence], Reason::NoAnswer);
            row(gpu, Some(place), mapping, always, ANY, Reason::NotMapped);
        }
        row(None, Some(SameDevice), ALL, always, ANY, Reason::SameDevice);
        row(None, Some(SameGpu), ALL, always, ANY, Reason::SameGpu);
        row(None, Some(Unknown), ALL, always, ANY, Reason::UnknownMemory);

        // A GPU and memory of the CPU.
        row(gpu, Some(Host), &[Rule::Pinned], |t, _| t.unified_addressing, ANY, Reason::PinnedMapping);
        row(gpu, Some(Host), &[Rule::Pool], always, &[Yes], Reason::PoolAccess);
        row(gpu, Some(Host), &[Rule::Pool], always, &[Silence], Reason::NoAnswer);
        row(gpu, Some(Host), ALL, |t, _| t.pageable_access, ANY, Reason::PageableAccess);
        row(gpu, Some(Host), &[Rule::Pinned], always, ANY, Reason::NoUnifiedAddressing);
        row(gpu, Some(Host), &[Rule::Pool], always, &[Never], Reason::NotPeers);
        row(gpu, Some(Host), &[Rule::Pool], always, ANY, Reason::NoPoolAccess);
        row(gpu, Some(Host), &[Rule::Unknown], always, ANY, Reason::UnknownMemory);
        row(gpu, Some(Host), ALL, always, ANY, Reason::NoPageableAccess);

        // The CPU and memory of a GPU.
        let managed: &[Rule] = &[Rule::Managed];
        let of_gpu: &[Rule] = &[Rule::Peer, Rule::Pool, Rule::Mapping, Rule::GraphFixed];
        row(cpu, None, managed, |_, m| m.concurrent_managed_access, ANY, Reason::ManagedConcurrent);
        row(cpu, None, managed, |_, m| m.direct_access_from_host, ANY, Reason::ManagedDirect);
        row(cpu, None, managed, always, ANY, Reason::ManagedNotConcurrent);
        row(cpu, None, of_gpu, always, ANY, Reason::DeviceMemory);
        row(cpu, None, ALL, always, ANY, Reason::UnknownMemory);

        // Two GPUs.
        let both = |t: Toucher, m: Memory| t.managed_memory && m.managed_memory;
        row(gpu, Some(OtherGpu), managed, both, ANY, Reason::ManagedOnBoth);
        row(gpu, Some(OtherGpu), managed, always, ANY, Reason::ManagedNotSupported);
        row(gpu, Some(OtherGpu), &[Rule::Peer], always, &[Yes], Reason::PeerAccess);
        row(gpu, Some(OtherGpu), &[Rule::Peer], always, &[No, ReadOnly], Reason::NoPeerAccess);
        row(gpu, Some(OtherGpu), &[Rule::Peer], always, &[Never], Reason::NotPeers);
        row(gpu, Some(OtherGpu), &[Rule::Peer], always, &[NotByPeers], Reason::OtherProcess);
        row(gpu, Some(OtherGpu), &[Rule::Peer], always, &[Silence], Reason::NoAnswer);
        row(gpu, Some(OtherGpu), &[Rule::Pool], always, &[Yes], Reason::PoolAccess);
        row(gpu, Some(OtherGpu), &[Rule::Pool], always, &[Silence], Reason::NoAnswer);
        row(gpu, Some(OtherGpu), &[Rule::Pool], always, &[Never], Reason::NotPeers);
        row(gpu, Some(OtherGpu), &[Rule::Pool], always, ANY, Reason::NoPoolAccess);
        row(gpu, Some(OtherGpu), &[Rule::GraphFixed], always, &[Yes], Reason::GraphAccess);
        row(gpu, Some(OtherGpu), &[Rule::GraphFixed], always, &[Silence], Reason::ForeignGraph);
        row(gpu, Some(OtherGpu), &[Rule::GraphFixed], always, ANY, Reason::NoGraphAccess);
        row(gpu, Some(OtherGpu), ALL, always, ANY, Reason::UnknownMemory);
        rows
    }

    fn touchers() -> impl Iterator<Item = Toucher> {
        (0..16).map(|bits| Toucher {
            cuda: bits & 1 != 0,
            unified_addressing: bits & 2 != 0,
            pageable_access: bits & 4 != 0,
            managed_memory: bits & 8 != 0,
        })
    }

    fn memories() -> impl Iterator<Item = Memory> {
        let flags = BOOLS
            .into_iter()
            .flat_map(|a| BOOLS.into_iter().flat_map(move |b| BOOLS.into_iter().map(move |c| (a, b, c))));
        flags.flat_map(|(managed_memory, concurrent_managed_access, direct_access_from_host)| {
            PLACES.into_iter().flat_map(move |place| {
                Rule::ALL.into_iter().map(move |rule| Memory {
                    place,
                    rule,
                    managed_memory,
                    concurrent_managed_access,
                    direct_access_from_host,
                })
            })
        })
    }

    #[test]
    fn every_combination_is_as_the_table_says() {
        let table = table();
        let mut met = vec![0usize; table.len()];
        let mut combinations = 0;
        for toucher in touchers() {
            for memory in memories() {
                for answer in ANSWERS {
                    let (at, row) = table
                        .iter()
                        .enumerate()
                        .find(|(_, row)| {
                            row.cuda.is_none_or(|cuda| cuda == toucher.cuda)
                                && row.place.is_none_or(|place| place == memory.place)
                                && row.rules.contains(&memory.rule)
                                && (row.when)(toucher, memory)
                                && row.answers.contains(&answer)
                        })
                        .unwrap_or_else(|| panic!("no row for {toucher:?} {memory:?} {answer:?}"));
                    met[at] += 1;
                    combinations += 1;
                    let judged = judge(toucher, memory, answer);
                    assert_eq!(judged, row.reason, "{toucher:?} {memory:?} {answer:?}");
                }
            }
        }
        assert_eq!(combinations, 16 * 8 * PLACES.len() * Rule::ALL.len() * ANSWERS.len());
        let idle: Vec<_> =
            met.iter().enumerate().filter(|(_, times)| **times == 0).map(|(at, _)| at).collect();
        assert!(idle.is_empty(), "rows {idle:?} of the table are never met");
    }

    #[test]
    fn the_answer_counts_only_where_there_is_a_question() {
        for toucher in touchers() {
            for memory in memories() {
                let judged = ANSWERS.map(|answer| judge(toucher, memory, answer));
                let differ = judged.iter().any(|reason| *reason != judged[0]);
                assert_eq!(question(toucher, memory).is_some(), differ, "{toucher:?} {memory:?}: {judged:?}");
            }
        }
    }

    #[test]
    fn a_question_is_never_asked_for_the_cpu() {
        for toucher in touchers().filter(|toucher| !toucher.cuda) {
            assert!(memories().all(|memory| question(toucher, memory).is_none()));
        }
    }

    #[test]
    fn reasons_stand_in_the_range_of_their_answer() {
        use Access::{Accessible, Inaccessible, Unverified};
        let count = |access| Reason::ALL.iter().filter(|reason| reason.access() == access).count();
        assert_eq!((count(Accessible), count(Inaccessible), count(Unverified)), (12, 12, 4));
        assert!(Reason::ALL.windows(2).all(|pair| (pair[0] as i32) < pair[1] as i32));
        // Of several arrays the worst counts.
        assert!(Accessible < Unverified && Unverified < Inaccessible);
    }
}
