//! What the ledger costs: finds among a million live records, pairs of insert and remove, and how pairs scale.
//!
//! Prints medians of rounds: `cargo bench --bench ledger`, with `finds`, `pairs` or `scaling` behind it for only that.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use warpmem::ledger::{Ledger, Record};

const LIVE: u64 = 1_000_000;
const ROUNDS: usize = 21;
const STRIDE: u64 = 512;
const START: u64 = 0x7f00_0000_0000;
const HOT: usize = 1000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, (self.next() % (at as u64 + 1)) as usize);
        }
    }
}

/// Nanoseconds this thread has run: unlike the clock on the wall it stands still while other programs have the core.
fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a whole `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The median over the rounds of the nanoseconds that one of `count` operations of this thread took.
fn median(count: usize, round: impl FnMut()) -> f64 {
    median_by(thread_time, count, round)
}

fn median_by(clock: impl Fn() -> f64, count: usize, mut round: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = clock();
            round();
            (clock() - start) / count as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn report(what: &str, nanoseconds: f64) {
    println!("{what:<58} {nanoseconds:>8.1} ns");
}

fn record(base: u64) -> Record {
    Record::new(base, STRIDE).with_alignment(256).with_kind(3).with_tag(base as u32)
}

fn insert(ledger: &Ledger, base: u64) {
    ledger.insert(record(base)).expect("the place is free");
}

fn remove(ledger: &Ledger, base: u64) {
    black_box(
        ledger.remove(base, |live| if live.size() == STRIDE { Ok(()) } else { Err(()) }).expect("it is live"),
    );
}

/// A chase through `bytes` of lines in random order: what one miss costs when the next address depends on it.
fn dependent_miss(bytes: usize) -> f64 {
    const LINE_WORDS: usize = 8;
    let lines = bytes / 64;
    let mut order: Vec<usize> = (0..lines).collect();
    Random(3).shuffle(&mut order);
    let mut memory = vec![0_usize; lines * LINE_WORDS];
    for pair in order.windows(2) {
        memory[pair[0] * LINE_WORDS] = pair[1] * LINE_WORDS;
    }
    memory[order[lines - 1] * LINE_WORDS] = order[0] * LINE_WORDS;
    let mut at = 0;
    median(1_000_000, || {
        for _ in 0..1_000_000 {
            at = memory[at];
        }
        black_box(at);
    })
}

fn finds(order: &str, bases: &[u64], random: &mut Random) {
    let ledger = Ledger::new();
    bases.iter().for_each(|base| insert(&ledger, *base));
    println!(
        "{:<58} {:>8.2} bytes",
        format!("a record, {order}"),
        ledger.memory_bytes() as f64 / LIVE as f64
    );

    let mut hot: Vec<u64> =
        (0..HOT).map(|_| bases[(random.next() % LIVE) as usize] + random.next() % STRIDE).collect();
    random.shuffle(&mut hot);
    let rounds_of_hot = |addresses: &[u64]| {
        median(addresses.len() * 200, || {
            for _ in 0..200 {
                for address in addresses {
                    black_box(ledger.find(black_box(*address)));
                }
            }
        })
    };
    report(&format!("find, {HOT} hot interior pointers, {order}"), rounds_of_hot(&hot));
    let mut chained = 0;
    let dependent = median(HOT * 200, || {
        for _ in 0..200 {
            for address in &hot {
                let found = ledger.find(*address + (chained & 1)).or_else(|| ledger.find(*address));
                chained = found.map_or(0, |record| record.base() & 1);
            }
        }
        black_box(chained);
    });
    report(&format!("find, {HOT} hot, each waits for the one before"), dependent);
    report("find, 16 hot pointers", rounds_of_hot(&hot[..16]));

    let mut many: Vec<u64> = bases.iter().map(|base| base + 77).collect();
    random.shuffle(&mut many);
    many.truncate(200_000);
    let independent = median(many.len(), || {
        for address in &many {
            black_box(ledger.find(black_box(*address)));
        }
    });
    report(&format!("find, random, {order}"), independent);
    let mut chained = 0;
    let dependent = median(many.len(), || {
        for address in &many {
            chained = ledger.find(*address + (chained & 1)).map_or(0, |record| record.base() & 1);
        }
        black_box(chained);
    });
    report(&format!("find, random, each waits for the one before, {order}"), dependent);
    let miss = median(many.len(), || {
        for address in &many {
            black_box(ledger.find(black_box(*address | 1 << 60)));
        }
    });
    report("find, of what is not there", miss);
}

fn pairs(bases: &[u64], random: &mut Random) {
    let ledger = Ledger::new();
    bases.iter().for_each(|base| insert(&ledger, *base));
    let base = bases[bases.len() / 3];
    remove(&ledger, base);
    let same = median(100_000, || {
        for _ in 0..100_000 {
            insert(&ledger, base);
            remove(&ledger, base);
        }
    });
    report("pair, same address, among a million", same);

    let live: Vec<u64> = bases.iter().step_by(1000).copied().collect();
    insert(&ledger, base);
    let mut picks: Vec<u64> =
        (0..100_000).map(|_| live[(random.next() % live.len() as u64) as usize]).collect();
    random.shuffle(&mut picks);
    let random_pairs = median(picks.len(), || {
        for base in &picks {
            remove(&ledger, *base);
            insert(&ledger, *base);
        }
    });
    report("pair, one of 1,000 at random, among a million", random_pairs);
    drop(ledger);

    let mut shuffled = bases.to_vec();
    random.shuffle(&mut shuffled);
    let mut reverse = bases.to_vec();
    reverse.reverse();
    for (name, inserts, removes) in [
        ("pair, a million in order, then removed in order", bases, bases),
        ("pair, a million in order, then removed in reverse", bases, reverse.as_slice()),
        ("pair, a million in reverse, then removed in order", reverse.as_slice(), bases),
        ("pair, a million in order, then removed shuffled", bases, shuffled.as_slice()),
        ("pair, a million shuffled, then removed shuffled", shuffled.as_slice(), shuffled.as_slice()),
    ] {
        let ledger = Ledger::new();
        let time = median(bases.len(), || {
            inserts.iter().for_each(|base| insert(&ledger, *base));
            removes.iter().for_each(|base| remove(&ledger, *base));
        });
        report(name, time);
    }
}

fn scaling(threads: u64) {
    const AREA: u64 = 1 << 32;
    const BATCH: u64 = 1000;
    const BATCHES: u64 = 100;
    let ledger = Ledger::new();
    let epoch = Instant::now();
    let wall = || epoch.elapsed().as_secs_f64() * 1e9;
    let time = median_by(wall, (BATCH * BATCHES) as usize, || {
        let barrier = Barrier::new(threads as usize);
        thread::scope(|scope| {
            for thread in 0..threads {
                let (ledger, barrier) = (&ledger, &barrier);
                scope.spawn(move || {
                    let start = START + thread * AREA;
                    barrier.wait();
                    for _ in 0..BATCHES {
                        (0..BATCH).for_each(|index| insert(ledger, start + index * STRIDE));
                        (0..BATCH).for_each(|index| remove(ledger, start + index * STRIDE));
                    }
                });
            }
        });
    });
    println!(
        "{:<58} {:>8.1} ns, {:.1} million pairs a second",
        format!("pair, {threads} threads in own areas"),
        time,
        threads as f64 * 1e3 / time
    );
}

fn main() {
    // Test runners ask bench targets for their tests.
    if std::env::args().any(|argument| argument == "--list" || argument == "--test") {
        return;
    }
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let runs = |chapter: &str| chosen.is_empty() || chosen.iter().any(|name| name == chapter);
    report("a dependent miss in 64 MiB, small pages", dependent_miss(64 << 20));
    report("a dependent miss in 1 MiB", dependent_miss(1 << 20));
    let mut random = Random(7);
    let bases: Vec<u64> = (0..LIVE).map(|index| START + index * STRIDE).collect();
    if runs("finds") {
        finds("inserted in order", &bases, &mut random);
        let mut shuffled = bases.clone();
        random.shuffle(&mut shuffled);
        finds("inserted shuffled", &shuffled, &mut random);
    }
    if runs("pairs") {
        pairs(&bases, &mut random);
    }
    if runs("scaling") {
        for threads in [1, 2, 4, 8, 16] {
            if threads == 1
                || thread::available_parallelism().is_ok_and(|cores| cores.get() >= threads as usize)
            {
                scaling(threads);
            }
        }
    }
}
