//! The ledger under many threads: nothing torn, nothing lost, nothing given out twice.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use warpmem::ledger::{InsertError, Ledger, Record, RemoveError};

const THREADS: usize = 8;
const DURATION: Duration = Duration::from_millis(1500);

struct Random(u64);

impl Random {
    fn new(thread: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ ((thread as u64 + 1) << 32))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A number made of every other field, so that a record pieced together from two is noticed.
fn checksum(record: &Record) -> u32 {
    let mut sum =
        record.base().wrapping_mul(31).wrapping_add(record.size()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for field in [record.stream(), record.context(), record.pool(), record.allocator(), record.graph()] {
        sum = (sum ^ u64::from(field)).wrapping_mul(0x2545_f491_4f6c_dd1d);
    }
    sum ^= u64::from(record.flags()) << 16 | u64::from(record.device()) << 32 | u64::from(record.kind());
    (sum ^ (sum >> 32)) as u32
}

fn sealed(record: Record) -> Record {
    record.with_tag(checksum(&record))
}

fn some_record(base: u64, size: u64, random: &mut Random) -> Record {
    let number = random.next();
    let record = Record::new(base, size)
        .with_stream(number as u32)
        .with_context((number >> 32) as u32)
        .with_pool((number >> 16) as u32)
        .with_allocator((number >> 7) as u32)
        .with_graph((number >> 23) as u32)
        .with_flags(number as u16)
        .with_device((number >> 48) as u16)
        .with_kind(number as u8);
    sealed(record)
}

fn assert_whole(record: &Record) {
    assert_eq!(record.tag(), checksum(record), "torn: {record:?}");
}

fn agree(_: &Record) -> Result<(), ()> {
    Ok(())
}

/// Everybody everywhere: blocks of 1 to 8 units, some of 2,000, all over one area.
#[test]
fn shared_areas_under_random_operations() {
    const UNIT: u64 = 64;
    const UNITS: u64 = 40_000;
    let ledger = Ledger::new();
    let (inserted, removed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Which unit is taken, kept beside the ledger: set after an insert, cleared before the removal can be seen.
    let owners: Vec<AtomicBool> = (0..UNITS + 4096).map(|_| AtomicBool::new(false)).collect();
    let end = Instant::now() + DURATION;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (ledger, inserted, removed, owners) = (&ledger, &inserted, &removed, &owners);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut round = 0_u64;
                while Instant::now() < end {
                    round += 1;
                    let growing = (round / 64).is_multiple_of(2);
                    for _ in 0..64 {
                        let unit = random.below(UNITS);
                        let base = unit * UNIT;
                        match random.below(8) {
                            0..=2 => {
                                let address = base + random.below(UNIT);
                                if let Some(record) = ledger.find(address) {
                                    assert_whole(&record);
                                    assert!(record.contains(address));
                                }
                            }
                            3 => {
                                ledger.update(base, |record| {
                                    assert_whole(record);
                                    record.set_flags(record.flags().wrapping_add(1));
                                    record.set_pool(random.next() as u32);
                                    *record = sealed(*record);
                                });
                            }
                            choice if (choice < 7) == growing => {
                                let units = if random.below(50) == 0 { 2000 } else { 1 + random.below(8) };
                                let record = some_record(base, units * UNIT, &mut random);
                                match ledger.insert(record) {
                                    Ok(()) => {
                                        inserted.fetch_add(1, Relaxed);
                                    }
                                    Err(InsertError::Overlap(other)) => {
                                        assert_whole(&other.0);
                                        assert!(other.0.contains(base) || record.contains(other.0.base()));
                                    }
                                    Err(error) => panic!("{error}"),
                                }
                            }
                            _ => {
                                let taken = ledger.remove(base, |record| {
                                    assert_whole(record);
                                    // Whoever removes holds the block alone: overlapping blocks would meet here.
                                    let first = record.base() / UNIT;
                                    for unit in first..first + record.size() / UNIT {
                                        assert!(!owners[unit as usize].swap(true, Relaxed));
                                    }
                                    for unit in first..first + record.size() / UNIT {
                                        owners[unit as usize].store(false, Relaxed);
                                    }
                                    Ok::<(), ()>(())
                                });
                                match taken {
                                    Ok(_) => {
                                        removed.fetch_add(1, Relaxed);
                                    }
                                    Err(RemoveError::Interior(record)) => {
                                        assert_whole(&record);
                                        assert!(record.contains(base) && record.base() != base);
                                    }
                                    Err(_) => {}
                                }
                            }
                        }
                    }
                }
            });
        }
    });
    let live = inserted.into_inner() - removed.into_inner();
    assert_eq!(ledger.len(), live);
    let mut end_of_last = 0;
    let mut seen = 0;
    ledger.for_each(|record| {
        assert_whole(&record);
        assert!(record.base() >= end_of_last);
        end_of_last = record.base() + record.size();
        assert_eq!(ledger.find(record.base() + record.size() - 1), Some(record));
        seen += 1;
    });
    assert_eq!(seen, live);
    ledger.drain_where(|_| true, |record| assert_whole(&record));
    assert!(ledger.is_empty());
}

/// Blocks that stay are found at any moment, however much comes and goes between them; walks see each exactly once.
#[test]
fn what_stays_is_always_found() {
    const STAYING: u64 = 4000;
    const SPACING: u64 = 64 * 64;
    let ledger = Ledger::new();
    let mut random = Random::new(99);
    for index in 0..STAYING {
        ledger.insert(some_record(index * SPACING, 64, &mut random)).expect("free");
    }
    let end = Instant::now() + DURATION;
    let finds = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (ledger, finds) = (&ledger, &finds);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut own = Vec::new();
                while Instant::now() < end {
                    if thread % 2 == 0 {
                        for _ in 0..200 {
                            let base = random.below(STAYING) * SPACING;
                            let record = ledger.find(base + random.below(64)).expect("it stays");
                            assert_whole(&record);
                            assert_eq!(record.base(), base);
                        }
                        finds.fetch_add(200, Relaxed);
                        if thread == 0 {
                            let mut next = 0;
                            ledger.for_each(|record| {
                                if record.base() % SPACING == 0 {
                                    assert_eq!(record.base(), next * SPACING);
                                    next += 1;
                                }
                            });
                            assert_eq!(next, STAYING);
                        }
                    } else {
                        // A crowd in a small part, then away with it: leaves split, share, join and go.
                        let start = random.below(STAYING - 64);
                        for _ in 0..2000 {
                            let base = (start + random.below(64)) * SPACING + 64 * (1 + random.below(63));
                            if ledger.insert(some_record(base, 64, &mut random)).is_ok() {
                                own.push(base);
                            }
                        }
                        for base in own.drain(..) {
                            assert_whole(&ledger.remove(base, agree).expect("nobody else removes it"));
                        }
                    }
                }
            });
        }
    });
    assert!(finds.into_inner() > 0);
    assert_eq!(ledger.len() as u64, STAYING);
}

/// Of many removals of one block one succeeds, and the others know that it was freed.
#[test]
fn one_of_racing_removals_wins() {
    const ROUNDS: u64 = 300;
    const BLOCKS: u64 = 100;
    let ledger = Ledger::new();
    let barrier = std::sync::Barrier::new(4);
    let wins = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (ledger, barrier, wins) = (&ledger, &barrier, &wins);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    if thread == 0 {
                        for block in 0..BLOCKS {
                            ledger.insert(Record::new(4096 + block * 256, 256)).expect("free");
                        }
                    }
                    barrier.wait();
                    for block in 0..BLOCKS {
                        let block = (block + round * thread) % BLOCKS;
                        match ledger.remove(4096 + block * 256, agree) {
                            Ok(_) => {
                                wins.fetch_add(1, Relaxed);
                            }
                            Err(error) => assert_eq!(error, RemoveError::RecentlyFreed),
                        }
                    }
                    barrier.wait();
                    if thread == 0 {
                        assert_eq!(wins.swap(0, Relaxed), BLOCKS);
                        assert!(ledger.is_empty());
                    }
                }
            });
        }
    });
}

/// Of many inserts that overlap one succeeds.
#[test]
fn one_of_racing_inserts_wins() {
    const ROUNDS: u64 = 2000;
    let ledger = Ledger::new();
    let barrier = std::sync::Barrier::new(4);
    let wins = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (ledger, barrier, wins) = (&ledger, &barrier, &wins);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    barrier.wait();
                    let base = round * 1000 + thread * 10;
                    if ledger.insert(Record::new(base, 100)).is_ok() {
                        wins.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(wins.into_inner(), ROUNDS);
    assert_eq!(ledger.len() as u64, ROUNDS);
}

/// Children forked while others write find every block that stays, and can go on.
#[test]
fn forked_children_go_on() {
    const STAYING: u64 = 300;
    let ledger = Ledger::new();
    for index in 0..STAYING {
        ledger.insert(Record::new(index * 4096, 64)).expect("free");
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..3 {
            let (ledger, done) = (&ledger, &done);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                while !done.load(Relaxed) {
                    let base = random.below(STAYING) * 4096 + 64 * (2 + random.below(62));
                    let _ = ledger.insert(Record::new(base, 64));
                    let _ = ledger.remove(base ^ 64, agree);
                }
            });
        }
        for _ in 0..25 {
            // SAFETY: the child calls nothing but the ledger and `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: the alarm ends a child that hangs.
                unsafe { libc::alarm(10) };
                ledger.after_fork_in_child();
                let all = (0..STAYING).all(|index| ledger.find(index * 4096 + 63).is_some());
                let fresh =
                    (0..500).all(|index| ledger.insert(Record::new((1 << 40) + index * 64, 64)).is_ok());
                let gone = (0..STAYING).all(|index| ledger.remove(index * 4096, agree).is_ok());
                // SAFETY: leaves at once, without the parent's exit handlers.
                unsafe { libc::_exit(if all && fresh && gone { 0 } else { 1 }) };
            }
            assert!(child > 0);
            let mut status = -1;
            // SAFETY: the child is ours and the pointer is to an integer.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            if status != 0 {
                done.store(true, Relaxed);
            }
            assert_eq!(status, 0, "the child failed or hung");
        }
        done.store(true, Relaxed);
    });
}
