//! The ledger against a plain map, and the soundness of its shape.

use std::collections::BTreeMap;

use super::inner::{Link, Node};
use super::*;

/// A small generator; the tests want many numbers, not good ones.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

/// Nodes in the tree.
#[derive(Default, Debug)]
struct Shape {
    leaves: usize,
    inners: usize,
    records: usize,
}

/// Walks the whole tree of a quiet ledger and checks everything that must hold.
fn check_shape(ledger: &Ledger) -> Shape {
    let mut shape = Shape::default();
    if ledger.root.link.load() != Link::NONE {
        check_node(ledger, ledger.root.link.load(), 0, u64::MAX, &mut shape);
    }
    shape
}

fn check_node(ledger: &Ledger, link: Link, low: u64, high: u64, shape: &mut Shape) -> usize {
    match ledger.node(link).expect("a link in the tree leads somewhere") {
        Node::Leaf(leaf) => {
            shape.leaves += 1;
            shape.records += leaf.count();
            assert!(!leaf.version.is_locked());
            assert_eq!((leaf.low(), leaf.high()), (low, high));
            let mut next = Some(low);
            for position in 0..leaf.count() {
                let record = leaf.record_at(position);
                assert!(next.is_some_and(|next| record.base() >= next));
                let last = record.last().expect("in range");
                assert!(last <= high);
                next = last.checked_add(1);
            }
            assert_eq!(leaf.live_slots().count(), leaf.count());
            0
        }
        Node::Inner(inner) => {
            shape.inners += 1;
            assert!(!inner.version.is_locked());
            let count = inner.count();
            assert!(count >= 1);
            let mut depths = (0..count).map(|at| {
                let low = if at == 0 { low } else { inner.part(at - 1) };
                let high = if at + 1 == count { high } else { inner.part(at) - 1 };
                assert!(low <= high);
                check_node(ledger, inner.child(at), low, high, shape)
            });
            let depth = depths.next().expect("at least one child");
            assert!(depths.all(|other| other == depth), "all leaves are equally deep");
            depth + 1
        }
    }
}

struct Model {
    ledger: Ledger,
    map: BTreeMap<u64, Record>,
}

impl Model {
    fn new() -> Self {
        Self { ledger: Ledger::new(), map: BTreeMap::new() }
    }

    fn at(&self, address: u64) -> Option<Record> {
        let (_, record) = self.map.range(..=address).next_back()?;
        record.contains(address).then_some(*record)
    }

    fn insert(&mut self, record: Record) {
        let Some(last) = record.last() else {
            assert_eq!(self.ledger.insert(record), Err(InsertError::AddressRange));
            return;
        };
        let in_the_way =
            self.at(record.base()).or_else(|| self.map.range(record.base()..=last).next().map(|(_, r)| *r));
        match (self.ledger.insert(record), in_the_way) {
            (Ok(()), None) => assert!(self.map.insert(record.base(), record).is_none()),
            (Err(InsertError::Overlap(Overlap(other))), Some(_)) => {
                assert_eq!(self.map.get(&other.base()), Some(&other));
                assert!(other.contains(record.base()) || record.contains(other.base()));
            }
            (got, expected) => panic!("{record:?}: {got:?}, the model has {expected:?}"),
        }
    }

    fn remove(&mut self, address: u64) {
        match self.ledger.remove(address, |_| Ok::<(), ()>(())) {
            Ok(record) => assert_eq!(self.map.remove(&address), Some(record)),
            Err(RemoveError::Interior(record)) => {
                assert_ne!(record.base(), address);
                assert_eq!(self.at(address), Some(record));
            }
            Err(RemoveError::Unknown | RemoveError::RecentlyFreed) => assert_eq!(self.at(address), None),
            Err(RemoveError::Refused(())) => unreachable!("the check agrees"),
        }
    }

    fn check(&self) {
        let shape = check_shape(&self.ledger);
        assert_eq!(shape.records, self.map.len());
        let mut expected = self.map.values();
        self.ledger.for_each(|record| assert_eq!(expected.next(), Some(&record)));
        assert!(expected.next().is_none());
        assert_eq!(self.ledger.is_empty(), self.map.is_empty());
    }
}

/// Random operations on addresses made by `address`, with sizes made by `size`.
fn compare_with_model(
    seed: u64,
    steps: usize,
    mut address: impl FnMut(&mut Random) -> u64,
    mut size: impl FnMut(&mut Random) -> u64,
) {
    let mut random = Random(seed);
    let mut model = Model::new();
    for step in 0..steps {
        let at = address(&mut random);
        // Phases of growth and of decline, so that all of splitting, sharing and joining happens.
        let grows = (step / (steps / 6).max(1)).is_multiple_of(2);
        match random.below(16) {
            0..=3 => assert_eq!(model.ledger.find(at), model.at(at)),
            4 => model.remove(at),
            5 => {
                let found = model.ledger.update(at, |record| {
                    record.set_tag(step as u32);
                    *record = Record::new(1, 1).with_tag(record.tag()).with_pool(7);
                });
                assert_eq!(found, model.map.contains_key(&at));
                if let Some(record) = model.map.get_mut(&at) {
                    *record = Record::new(record.base(), record.size()).with_tag(step as u32).with_pool(7);
                }
            }
            choice if (choice < 13) == grows => {
                model.insert(Record::new(at, size(&mut random)).with_tag(step as u32).with_flags(3));
            }
            _ => {
                if let Some((base, _)) = model.map.range(at..).next() {
                    let base = *base;
                    model.remove(base);
                }
            }
        }
        if step % (steps / 8).max(1) == 0 {
            model.check();
        }
    }
    model.check();
    let bases: Vec<u64> = model.map.keys().copied().collect();
    for base in bases {
        model.remove(base);
    }
    model.check();
}

#[test]
fn agrees_with_a_map_on_adjacent_blocks() {
    compare_with_model(1, 60_000, |random| random.below(20_000) * 16, |random| (1 + random.below(3)) * 16);
}

#[test]
fn agrees_with_a_map_on_odd_addresses() {
    compare_with_model(2, 60_000, |random| random.below(400_000), |random| 1 + random.below(40));
}

#[test]
fn agrees_with_a_map_on_sizes_to_2_48() {
    compare_with_model(
        3,
        60_000,
        |random| random.next() >> 8,
        |random| 1 + (random.next() >> (16 + random.below(40))),
    );
}

#[test]
fn agrees_with_a_map_at_the_end_of_the_address_space() {
    compare_with_model(4, 40_000, |random| u64::MAX - random.below(30_000), |random| 1 + random.below(12));
}

#[test]
fn agrees_with_a_map_where_blocks_cross_leaves() {
    // Few huge blocks among many small ones: borders between leaves must give way, and empty leaves in between vanish.
    compare_with_model(
        5,
        60_000,
        |random| random.below(1 << 20) * 64,
        |random| if random.below(4) == 0 { 1 << (6 + random.below(18)) } else { 64 },
    );
}

#[test]
fn the_whole_address_space_is_one_block() {
    let ledger = Ledger::new();
    assert_eq!(ledger.insert(Record::new(1, u64::MAX)), Ok(()));
    assert_eq!(ledger.find(u64::MAX).map(|record| record.size()), Some(u64::MAX));
    assert_eq!(ledger.find(0), None);
    assert_eq!(ledger.insert(Record::new(0, 1)), Ok(()));
    assert!(matches!(ledger.insert(Record::new(1 << 40, 1 << 63)), Err(InsertError::Overlap(_))));
    assert_eq!(ledger.insert(Record::new(2, u64::MAX)), Err(InsertError::AddressRange));
    assert_eq!(ledger.insert(Record::new(2, 0)), Err(InsertError::AddressRange));
    assert_eq!(ledger.remove(0, |_| Ok::<(), ()>(())).map(|record| record.size()), Ok(1));
    assert_eq!(ledger.remove(0, |_| Ok::<(), ()>(())), Err(RemoveError::Unknown));
    check_shape(&ledger);
}

#[test]
fn a_block_over_many_emptied_leaves_is_taken_in() {
    let ledger = Ledger::new();
    for index in 0..20_000 {
        ledger.insert(Record::new(index * 64, 64)).expect("free");
    }
    for index in 100..19_900 {
        ledger.remove(index * 64, |_| Ok::<(), ()>(())).expect("live");
    }
    ledger.insert(Record::new(100 * 64, 19_800 * 64)).expect("all of it is free");
    check_shape(&ledger);
    assert_eq!(ledger.len(), 201);
}

#[test]
fn every_field_comes_back() {
    let ledger = Ledger::new();
    let record = Record::new(0x9fff_8000_0000_0000, 1 << 62)
        .with_alignment(1 << 63)
        .with_kind(7)
        .with_rule(5)
        .with_device(u16::MAX)
        .with_flags(0x8001)
        .with_stream(u32::MAX)
        .with_context(0x1234_5678)
        .with_pool(0x8765_4321)
        .with_allocator(3)
        .with_graph(u32::MAX - 1)
        .with_tag(0xdead_beef);
    ledger.insert(record).expect("free");
    assert_eq!(ledger.find(0x9fff_8000_0000_0001), Some(record));
    let found = ledger.find(record.base()).expect("live");
    assert_eq!((found.alignment(), found.kind(), found.rule(), found.device()), (1 << 63, 7, 5, u16::MAX));
    assert_eq!((found.flags(), found.stream(), found.context()), (0x8001, u32::MAX, 0x1234_5678));
    assert_eq!((found.pool(), found.allocator(), found.graph()), (0x8765_4321, 3, u32::MAX - 1));
    assert_eq!(found.tag(), 0xdead_beef);
}

#[test]
fn each_wrong_removal_has_its_own_error_and_changes_nothing() {
    let ledger = Ledger::new();
    assert_eq!(ledger.remove(4096, |_| Ok::<(), ()>(())), Err(RemoveError::Unknown));
    let record = Record::new(4096, 512);
    ledger.insert(record).expect("free");
    assert_eq!(ledger.remove(4100, |_| Ok::<(), ()>(())), Err(RemoveError::Interior(record)));
    assert_eq!(ledger.remove(4096 + 512, |_| Ok::<(), ()>(())), Err(RemoveError::Unknown));
    let wrong_size = |live: &Record| if live.size() == 256 { Ok(()) } else { Err(live.size()) };
    assert_eq!(ledger.remove(4096, wrong_size), Err(RemoveError::Refused(512)));
    assert_eq!(ledger.find(4607), Some(record));
    assert_eq!(ledger.remove(4096, |_| Ok::<(), ()>(())), Ok(record));
    assert_eq!(ledger.remove(4096, |_| Ok::<(), ()>(())), Err(RemoveError::RecentlyFreed));
    assert_eq!(ledger.remove(4100, |_| Ok::<(), ()>(())), Err(RemoveError::Unknown));
    ledger.insert(Record::new(4000, 512)).expect("free again");
    assert_eq!(ledger.remove(4096, |_| Ok::<(), ()>(())), Err(RemoveError::Interior(Record::new(4000, 512))));
}

#[test]
fn a_check_that_panics_leaves_the_record_and_no_lock() {
    let ledger = Ledger::new();
    ledger.insert(Record::new(64, 64)).expect("free");
    let result =
        std::panic::catch_unwind(|| ledger.remove::<()>(64, |_| std::panic::resume_unwind(Box::new(1))));
    assert!(result.is_err());
    assert!(ledger.remove(64, |_| Ok::<(), ()>(())).is_ok());
}

#[test]
fn walks_see_what_overlaps_their_range() {
    let ledger = Ledger::new();
    for index in 0..1000 {
        ledger.insert(Record::new(index * 100, 50)).expect("free");
    }
    let mut seen = Vec::new();
    ledger.for_each_in(1020, 5300, |record| seen.push(record.base() / 100));
    assert_eq!(seen, (10..=53).collect::<Vec<_>>());
    seen.clear();
    ledger.for_each_in(1050, 1099, |record| seen.push(record.base()));
    assert!(seen.is_empty());
    ledger.for_each_in(2, 1, |_| unreachable!("an empty range"));
}

#[test]
fn a_drain_takes_exactly_what_it_is_told() {
    let ledger = Ledger::new();
    for index in 0..50_000_u32 {
        ledger.insert(Record::new(u64::from(index) * 256, 256).with_context(index % 7)).expect("free");
    }
    let mut removed = 0;
    let mut previous = None;
    ledger.drain_where(
        |record| record.context() != 3,
        |record| {
            assert!(previous < Some(record.base()));
            assert_eq!(ledger.find(record.base()), None);
            previous = Some(record.base());
            removed += 1;
        },
    );
    assert_eq!(removed + ledger.len(), 50_000);
    ledger.for_each(|record| assert_eq!(record.context(), 3));
    let shape = check_shape(&ledger);
    assert!(shape.leaves <= shape.records / 6, "{shape:?}");
    ledger.drain_where(|_| true, |_| {});
    assert!(ledger.is_empty());
    let shape = check_shape(&ledger);
    assert!(shape.leaves + shape.inners <= 4, "{shape:?}");
}

const MILLION: u64 = 1_000_000;

fn bytes_a_record(bases: impl Iterator<Item = u64>) -> f64 {
    let ledger = Ledger::new();
    for base in bases {
        ledger.insert(Record::new(base, 512)).expect("free");
    }
    let shape = check_shape(&ledger);
    assert_eq!(shape.records as u64, MILLION);
    ledger.memory_bytes() as f64 / MILLION as f64
}

#[test]
fn a_record_takes_at_most_64_bytes_in_any_order() {
    let bases = || (0..MILLION).map(|index| 0x7f00_0000_0000 + index * 512);
    let ascending = bytes_a_record(bases());
    let descending = bytes_a_record(bases().rev());
    let mut shuffled: Vec<u64> = bases().collect();
    Random(9).shuffle(&mut shuffled);
    let random = bytes_a_record(shuffled.into_iter());
    println!("bytes a record: ascending {ascending:.2}, descending {descending:.2}, random {random:.2}");
    assert!(ascending <= 64.0 && descending <= 64.0 && random <= 64.0);
}

#[test]
fn memory_stays_bounded_over_rounds_of_churn() {
    let ledger = Ledger::new();
    let mut random = Random(11);
    let mut bases: Vec<u64> = Vec::new();
    let mut after_first = 0;
    for round in 0..50 {
        // Another area each round, so that nothing is reused by chance.
        bases.clear();
        bases.extend((0..10_000).map(|index| ((round * 10_000) + index) * 4096));
        random.shuffle(&mut bases);
        for base in &bases {
            ledger.insert(Record::new(*base, 4096)).expect("free");
        }
        random.shuffle(&mut bases);
        for base in &bases {
            ledger.remove(*base, |_| Ok::<(), ()>(())).expect("live");
        }
        if round == 0 {
            after_first = ledger.memory_bytes();
        }
    }
    let shape = check_shape(&ledger);
    assert!(shape.leaves <= 64, "{shape:?}");
    // Chunks are made whole: a round that needs one more node than any before takes 200 KiB.
    assert!(ledger.memory_bytes() <= after_first * 2, "{} after {after_first}", ledger.memory_bytes());
}

#[test]
fn a_thinned_out_ledger_joins_its_leaves() {
    let ledger = Ledger::new();
    let mut random = Random(12);
    let mut bases: Vec<u64> = (0..100_000).map(|index| index * 64).collect();
    random.shuffle(&mut bases);
    bases.iter().for_each(|base| ledger.insert(Record::new(*base, 64)).expect("free"));
    random.shuffle(&mut bases);
    for base in &bases[..95_000] {
        ledger.remove(*base, |_| Ok::<(), ()>(())).expect("live");
    }
    let shape = check_shape(&ledger);
    assert!(shape.leaves <= shape.records / 8, "{shape:?}");
    assert!(shape.inners <= shape.leaves / 8, "{shape:?}");
}

#[test]
fn a_forked_child_gets_over_a_writer_that_is_gone() {
    let ledger = Ledger::new();
    let mut random = Random(13);
    let mut bases: Vec<u64> = (0..10_000).map(|index| index * 64).collect();
    random.shuffle(&mut bases);
    bases.iter().for_each(|base| ledger.insert(Record::new(*base, 64)).expect("free"));
    // A split that stops half way: the records are in both leaves, and locks and a list are left held.
    let path = ledger.path_to(320_000).expect("not empty");
    let (_, step) = path.parent().expect("more than one leaf");
    let (other, held) = ledger.leaves.take(1).expect("memory");
    std::mem::forget(held);
    std::mem::forget(path.leaf.version.lock());
    std::mem::forget(step.node.version.lock());
    let copies = path.leaf.count() / 2;
    other.set_fences(path.leaf.base_at(copies), path.leaf.high());
    for position in copies..path.leaf.count() {
        let record = path.leaf.record_at(position);
        let last = record.last().expect("in range");
        assert!(matches!(other.admit(&record, last, NO_GUESS), Admission::Done(_)));
    }
    ledger.after_fork_in_child();
    let shape = check_shape(&ledger);
    assert_eq!(shape.records, 10_000);
    assert!(bases.iter().all(|base| ledger.find(*base + 63).is_some_and(|record| record.base() == *base)));
    let before = ledger.memory_bytes();
    ledger.after_fork_in_child();
    assert_eq!(check_shape(&ledger).records, 10_000);
    bases.iter().for_each(|base| assert!(ledger.remove(*base, |_| Ok::<(), ()>(())).is_ok()));
    assert!(ledger.is_empty());
    assert_eq!(ledger.memory_bytes(), before);
}
