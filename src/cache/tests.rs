use super::heap::Heap;
use super::sizes::GRANULE;
use super::*;
use crate::ledger::Record;
use crate::random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Addresses that no other test has.
fn addresses(bytes: u64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 44);
    NEXT.fetch_add(bytes.next_multiple_of(2 << 20) + (2 << 20), Ordering::Relaxed)
}

fn chunk(size: u64, small: bool) -> Chunk {
    let base = addresses(size);
    Chunk { base, size, small, moved: false, like: Record::new(base, size).with_kind(3) }
}

fn lane() -> &'static Lane {
    Lane::make(&Owner {
        device: 1,
        stream: None,
        allocator: 7,
        most_at_hand: 64 << 20,
        totals: Totals::make(0),
    })
}

/// Log-uniform.
fn some_size(random: &mut Random, least_log2: u64, most_log2: u64) -> u64 {
    let log2 = least_log2 + random.below(most_log2 - least_log2);
    (1 << log2) + random.below(1 << log2)
}

fn serve(heap: &mut Heap, size: u64) -> &'static Block {
    heap.take(size).unwrap_or_else(|| {
        let (bytes, small) = chunk_for(size);
        heap.add(chunk(bytes, small)).expect("a chunk is taken in");
        heap.take(size).expect("a chunk that was made for it serves a request")
    })
}

#[test]
fn blocks_never_overlap_and_all_of_them_come_together_again() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut heap = Heap::new();
    let mut live: BTreeMap<u64, &'static Block> = BTreeMap::new();
    for step in 0..60_000 {
        if live.len() < 300 && random.below(100) < 55 {
            let size = some_size(&mut random, 5, 25);
            let block = serve(&mut heap, size);
            assert!(
                block.size() >= size && block.base().is_multiple_of(GRANULE),
                "step {step}: {size} bytes"
            );
            let before = live.range(..=block.base()).next_back();
            assert!(before.is_none_or(|(base, before)| base + before.size() <= block.base()), "step {step}");
            let behind = live.range(block.base()..).next();
            assert!(behind.is_none_or(|(base, _)| block.base() + block.size() <= *base), "step {step}");
            let (found, like) = find(block.base() + random.below(block.size())).expect("it is found");
            assert!(std::ptr::eq(found, block) && like.kind() == 3, "step {step}");
            live.insert(block.base(), block);
        } else if let Some((&base, _)) = live.iter().nth(random.below(live.len().max(1) as u64) as usize) {
            let block = live.remove(&base).expect("it is live");
            heap.put(block);
        }
        let used: u64 = live.values().map(|block| block.size()).sum();
        assert_eq!(heap.reserved - heap.free, used, "step {step}");
        assert!(heap.whole <= heap.free, "step {step}");
    }
    for block in live.into_values() {
        heap.put(block);
    }
    assert_eq!((heap.free, heap.whole), (heap.reserved, heap.reserved));
    let (chunks, reserved) = (heap.chunks(), heap.reserved);
    let removed = heap.remove_whole(u64::MAX, |_| true);
    assert_eq!(removed.len(), chunks);
    assert_eq!(removed.iter().map(|chunk| chunk.size).sum::<u64>(), reserved);
    assert_eq!((heap.reserved, heap.free, heap.whole, heap.largest_free()), (0, 0, 0, 0));
    assert!(removed.iter().all(|chunk| find(chunk.base).is_none()), "a chunk that is gone is not found");
}

#[test]
fn a_chunk_whose_addresses_are_taken_is_refused() {
    let mut heap = Heap::new();
    let first = chunk(4 << 20, false);
    assert_eq!(heap.add(first), Ok(()));
    assert_eq!(heap.add(Chunk { base: first.base + (2 << 20), ..first }), Err(Refused::InUse));
    assert_eq!((heap.reserved, heap.chunks()), (4 << 20, 1));
    assert_eq!(heap.remove_whole(1, |_| true).len(), 1);
    assert_eq!(heap.add(Chunk { base: first.base + (2 << 20), ..first }), Ok(()));
    heap.remove_whole(1, |_| true);
}

#[test]
fn what_is_given_back_is_what_is_just_enough() {
    let mut heap = Heap::new();
    for mebibytes in [2, 4, 8, 16] {
        heap.add(chunk(mebibytes << 20, false)).expect("a chunk is taken in");
    }
    let sizes = |chunks: Vec<Chunk>| chunks.into_iter().map(|chunk| chunk.size >> 20).collect::<Vec<_>>();
    assert_eq!(sizes(heap.remove_whole(5 << 20, |_| true)), [8]);
    assert_eq!(sizes(heap.remove_whole(19 << 20, |_| true)), [16, 4]);
    assert_eq!(sizes(heap.remove_whole(u64::MAX, |_| true)), [2]);
}

#[test]
fn a_very_large_chunk_is_cut_in_larger_steps() {
    // The end of the second one is no place where a block could begin.
    for size in [64 << 30, (66 << 30) + (2 << 20)] {
        let mut heap = Heap::new();
        heap.add(chunk(size, false)).expect("a chunk is taken in");
        let blocks: Vec<_> = (0..10).map(|_| heap.take(3 << 20).expect("there is enough")).collect();
        for (at, block) in blocks.iter().enumerate() {
            for address in [block.base(), block.base() + block.size() - 1] {
                assert_eq!(
                    find(address).map(|(found, _)| found.base()),
                    Some(block.base()),
                    "{at} of {size}"
                );
            }
        }
        let used: u64 = blocks.iter().map(|block| block.size()).sum();
        assert_eq!(heap.free, size - used);
        for block in blocks {
            heap.put(block);
        }
        assert_eq!((heap.free, heap.whole), (size, size));
        heap.remove_whole(1, |_| true);
    }
}

/// What a trace of requests reserves at the most, over what was live at the most: a random one of log-uniform sizes, with up to a
/// thousand live blocks. The figure is what `sizes` and `heap` were chosen by.
#[test]
fn the_waste_of_a_random_trace() {
    for seed in 1..=3 {
        let mut random = Random(seed << 40 | 0x9e37_79b9);
        let mut heap = Heap::new();
        let mut live: Vec<(&'static Block, u64)> = Vec::new();
        let (mut bytes, mut peak_live, mut peak_reserved) = (0, 0, 0);
        for _ in 0..100_000 {
            if live.is_empty() || live.len() < 1000 && random.below(2) == 0 {
                let size = some_size(&mut random, 8, 26);
                let block = serve(&mut heap, size);
                live.push((block, size));
                bytes += size;
                peak_live = peak_live.max(bytes);
                peak_reserved = peak_reserved.max(heap.reserved);
            } else {
                let (block, size) = live.swap_remove(random.below(live.len() as u64) as usize);
                bytes -= size;
                heap.put(block);
            }
        }
        let ratio = peak_reserved as f64 / peak_live as f64;
        assert!(ratio < 1.35, "seed {seed}: {ratio:.3} times as much was reserved as was live");
        live.into_iter().for_each(|(block, _)| _ = heap.put(block));
        heap.remove_whole(u64::MAX, |_| true);
    }
}

#[test]
fn a_front_gives_a_block_once() {
    let lane = lane();
    lane.lock().add(chunk(2 << 20, true)).expect("a chunk is taken in");
    let front = lane.front(None).expect("the lane is open");
    assert!(front.take(1000, 0).is_none(), "nothing is at hand yet");
    let block = lane.lock().take(1000).expect("the heap has one");
    let life = block.hand_out(1000, 5).life;
    assert_eq!(block.out(life), Some((block.base(), 1000, 5)));
    let mut told = 0;
    assert_eq!(front.give(block, life, |asked| told = asked), Given::Done);
    assert_eq!(told, 1000);
    assert_eq!(front.give(block, life, |_| panic!("it was given")), Given::NotOut);
    assert_eq!(block.out(life), None);
    let Taken { block: again, life: next, .. } = front.take(900, 0).expect("it is at hand");
    assert!(std::ptr::eq(again, block));
    assert_eq!(front.give(block, life, |_| panic!("it was given")), Given::NotOut, "its former life is over");
    assert_eq!(front.give(block, next, |_| ()), Given::Done);
    assert!(lane.lock().gather(Some(front)));
    assert!(!lane.lock().gather(Some(front)), "there is nothing any more");
    assert_eq!(lane.lock().heap().whole, 2 << 20);
    lane.lock().close();
    assert!(front.take(900, 0).is_none() && lane.front(None).is_none());
    lane.lock().remove_whole(1, |_| true);
    assert!(!front.is_free());
    lane.give_up();
    assert!(front.is_free(), "a front of a lane that is given up may serve another one");
}

/// A block of `size` bytes that the lane's heap has, given to the front.
fn put_at_hand(lane: &'static Lane, front: &Front, size: u64) -> &'static Block {
    let Taken { block, life, .. } = lane.lock().take_out(size, 0).expect("the heap has one");
    assert_eq!(front.give(block, life, |_| ()), Given::Done);
    block
}

#[test]
fn what_the_heap_lacks_is_cut_from_what_is_at_hand() {
    let lane = lane();
    lane.lock().add(chunk(2 << 20, true)).expect("a chunk is taken in");
    let front = lane.front(None).expect("the lane is open");
    let all: Vec<_> = [1 << 20, 512 << 10, 512 << 10].map(|size| put_at_hand(lane, front, size)).into();
    assert!(lane.lock().take_out(1000, 0).is_none(), "the heap has nothing");
    let Taken { block: cut, life, .. } =
        lane.lock().take_out_for(front, 300 << 10, 9).expect("the thread has larger ones");
    assert!(all[1..].iter().any(|of| of.base() <= cut.base() && cut.base() < of.base() + (512 << 10)));
    assert_eq!(cut.size(), 304 << 10);
    // The other of that size and the larger one stay where they are.
    assert_eq!(front.bytes(), 1536 << 10);
    assert!(front.take(512 << 10, 0).is_some() && front.take(1 << 20, 0).is_some());
    assert!(lane.lock().take_out_for(front, 300 << 10, 9).is_none(), "what is left of it is too small");
    assert_eq!(front.give(cut, life, |_| ()), Given::Done);
    assert!(lane.lock().take_out_for(front, 400 << 10, 9).is_none(), "nothing at hand is larger");
}

#[test]
fn what_is_gathered_for_a_request_is_what_may_serve_it() {
    let lane = lane();
    lane.lock().add(chunk(2 << 20, true)).expect("a chunk is taken in");
    lane.lock().add(chunk(8 << 20, false)).expect("a chunk is taken in");
    let front = lane.front(None).expect("the lane is open");
    put_at_hand(lane, front, 1 << 20);
    put_at_hand(lane, front, 3 << 20);
    assert!(lane.lock().gather_for(Some(front), 8 << 20));
    assert_eq!(front.bytes(), 1 << 20, "a small block cannot become a part of a large one");
    assert!(!lane.lock().gather_for(Some(front), 8 << 20), "there is nothing of that sort any more");
    assert!(lane.lock().gather_for(Some(front), 100));
    assert_eq!((front.bytes(), lane.lock().heap().whole), (0, 10 << 20));
    lane.lock().remove_whole(u64::MAX, |_| true);
}

/// Large blocks that nobody takes again leave small ones their room.
#[test]
fn small_blocks_have_room_of_their_own_at_hand() {
    let lane = lane();
    lane.lock().add(chunk(2 << 20, true)).expect("a chunk is taken in");
    lane.lock().add(chunk(256 << 20, false)).expect("a chunk is taken in");
    let front = lane.front(None).expect("the lane is open");
    put_at_hand(lane, front, 65 << 20);
    let Taken { block: large, life, .. } = lane.lock().take_out(3 << 20, 0).expect("the heap has one");
    assert_eq!(front.give(large, life, |_| ()), Given::NoRoom);
    put_at_hand(lane, front, 1000);
    assert!(front.take(1000, 0).is_some());
}

/// Threads that take and give while another one takes everything from their hands: each block has one owner at any time.
#[test]
fn what_is_gathered_is_nobodys_meanwhile() {
    const THREADS: u64 = 4;
    let rounds = if cfg!(miri) { 100 } else { 20_000 };
    let lane = lane();
    for _ in 0..64 {
        lane.lock().add(chunk(2 << 20, true)).expect("a chunk is taken in");
    }
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            scope.spawn(move || {
                let front = lane.front(None).expect("the lane is open");
                let mut random = Random(thread);
                let mut mine = Vec::new();
                for round in 0..rounds {
                    let size = 512 << random.below(6);
                    let block = front.take(size, thread as u32);
                    let block = block.or_else(|| lane.lock().take_out(size, thread as u32));
                    mine.extend(block);
                    if mine.len() > 20 || round % 3 == 0 && !mine.is_empty() {
                        let Taken { block, life, .. } =
                            mine.swap_remove(random.below(mine.len() as u64) as usize);
                        let (_, _, tag) = block.out(life).expect("nobody else gives it back");
                        assert_eq!(u64::from(tag), thread, "a block has two owners");
                        if front.give(block, life, |_| ()) == Given::NoRoom {
                            assert!(lane.lock().put_out(block, life, |_| ()).is_some());
                        }
                    }
                }
                for Taken { block, life, .. } in mine {
                    assert!(lane.lock().put_out(block, life, |_| ()).is_some());
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..200 {
                lane.lock().gather(None);
                std::thread::yield_now();
            }
        });
    });
    let mut inner = lane.lock();
    inner.gather(None);
    assert_eq!(inner.heap().whole, inner.heap().reserved);
    inner.remove_whole(u64::MAX, |_| true);
}
