//! Random plans against a copy byte by byte, with every byte around both ends looked at afterwards.
#![allow(clippy::single_range_in_vec_init)] // what is copied is a list of ranges, of which there may be one

use super::super::plan::{Axes, Axis, Index, Plan, Side, Step, Which};
use super::nest::{Leaf, Nest, Stretch};
use super::{Bad, copy, fill, first_bad, run};
use std::ops::Range;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

/// One end: its bytes with more around them, and where its first item is.
struct Memory {
    bytes: Vec<u8>,
    side: Side,
    /// Numbers of index arrays, which have to stay where they are.
    arrays: Vec<Vec<u8>>,
}

const AROUND: u64 = 80;
const BAD: [i32; 4] = [-1, i32::MIN, i32::MAX, 1 << 20];

/// Strides by which no two items share a byte, in a random order of the axes, with gaps and backwards ones; index arrays at
/// some of them, with bad numbers if `spoiled`. A source may repeat items.
fn memory(
    random: &mut Random,
    shape: &[u64],
    item: u64,
    which: Which,
    indexed: bool,
    spoiled: bool,
) -> Memory {
    let mut order: Vec<usize> = (0..shape.len()).collect();
    if random.one_in(2) {
        random.shuffle(&mut order);
    }
    let mut steps = vec![Step::by(0); shape.len()];
    let mut arrays = Vec::new();
    let gaps = random.one_in(2);
    let (mut size, mut start) = (item, 0);
    for &at in order.iter().rev() {
        let extent = shape[at];
        if which == Which::Src && random.one_in(8) {
            continue;
        }
        let gap = if gaps && random.one_in(2) { random.pick(&[1, item, 3 * item, 64]) } else { 0 };
        let stride = size + gap;
        let backwards = random.one_in(4);
        let mut places = extent;
        steps[at].stride = if backwards { -(stride as i64) } else { stride as i64 };
        if indexed && random.one_in(2) {
            places = extent + random.below(4);
            let mut numbers: Vec<i32> = (0..places as i32).collect();
            random.shuffle(&mut numbers);
            if which == Which::Src && random.one_in(2) {
                numbers = (0..extent).map(|_| random.below(places) as i32).collect();
            }
            numbers.truncate(extent as usize);
            if spoiled {
                for number in &mut numbers {
                    if random.one_in(5) {
                        *number = random.pick(&[BAD[0], BAD[1], BAD[2], BAD[3], places as i32]);
                    }
                }
            }
            let (array, index) = index_array(random, &numbers, places);
            arrays.push(array);
            steps[at].index = Some(index);
        }
        if backwards {
            start += stride * (places - 1);
        }
        size += stride * (places - 1);
    }
    let before = AROUND + random.below(64);
    let mut bytes: Vec<u8> = (0..before + size + AROUND).map(|_| random.next() as u8).collect();
    let address = bytes.as_mut_ptr().expose_provenance() as u64 + before + start;
    Memory { bytes, side: Side { address, steps: steps.into_iter().collect() }, arrays }
}

/// The numbers at some distance from each other, which may be backwards or odd.
fn index_array(random: &mut Random, numbers: &[i32], limit: u64) -> (Vec<u8>, Index) {
    let stride = random.pick(&[4_i64, 4, 4, 8, 5, -4, -12]);
    let step = stride.unsigned_abs() as usize;
    let first = random.below(8) as usize;
    let mut array = vec![0xa5; first + numbers.len() * step];
    for (at, number) in numbers.iter().enumerate() {
        let place = if stride < 0 { numbers.len() - 1 - at } else { at };
        array[first + place * step..][..4].copy_from_slice(&number.to_ne_bytes());
    }
    let last = if stride < 0 { (numbers.len() - 1) * step } else { 0 };
    let address = array.as_ptr().expose_provenance() as u64 + (first + last) as u64;
    (array, Index { address, stride, limit: limit as i64 })
}

/// Where byte `at` of a plan is at an end; `None` where a number is bad.
fn place_of(plan: &Plan, which: Which, at: u64) -> Option<u64> {
    let (mut rest, mut address) = (at / plan.row, plan.address(which));
    for axis in plan.axes.iter().rev() {
        let place = rest % axis.extent;
        rest /= axis.extent;
        let step = axis.step(which);
        let times = match step.index {
            None => place as i64,
            Some(index) => {
                let at = index.address.wrapping_add_signed(index.stride * place as i64) as usize;
                // SAFETY: the array has a number for each place.
                let bytes = unsafe { std::ptr::with_exposed_provenance::<[u8; 4]>(at).read() };
                let number = i64::from(i32::from_ne_bytes(bytes));
                if number < 0 || number >= index.limit {
                    return None;
                }
                number
            }
        };
        address = address.wrapping_add_signed(step.stride.wrapping_mul(times));
    }
    Some(address + at % plan.row)
}

/// What the memory of the destination is after the bytes `range` were copied one by one.
fn copied(plan: &Plan, range: Range<u64>, dest: &[u8], src: &[u8]) -> Vec<u8> {
    let mut after = dest.to_vec();
    let offset = |address: u64, bytes: &[u8]| (address - bytes.as_ptr().addr() as u64) as usize;
    for at in range {
        if let (Some(to), Some(from)) = (place_of(plan, Which::Dest, at), place_of(plan, Which::Src, at)) {
            after[offset(to, dest)] = src[offset(from, src)];
        }
    }
    after
}

#[allow(clippy::ptr_arg)] // nothing but the copy may hold the bytes themselves meanwhile
fn check(plan: &Plan, ranges: &[Range<u64>], dest: &mut Vec<u8>, src: &[u8], past: bool) {
    let mut expected = dest.to_vec();
    for range in ranges {
        // In place of the copy, where the plan's addresses are.
        let after = copied(plan, range.clone(), dest, src);
        for (at, byte) in after.into_iter().enumerate() {
            if byte != dest[at] {
                expected[at] = byte;
            }
        }
    }
    let before = src.to_vec();
    for range in ranges {
        // SAFETY: both ends of the plan lie in these, and what is outside of the plan is in no row.
        unsafe { copy(plan, range.clone(), past) };
    }
    if let Some(at) = (0..dest.len()).find(|at| dest[*at] != expected[*at]) {
        panic!(
            "byte {at} of the destination's memory is {:#x} and should be {:#x}, after {ranges:?} of {plan:#x?} (past the cache: {past})",
            dest[at], expected[at]
        );
    }
    assert!(before == src, "the source changed by {ranges:?} of {plan:#x?}");
}

/// The whole, a part, or parts that are the whole together.
fn ranges(random: &mut Random, size: u64) -> Vec<Range<u64>> {
    match random.below(4) {
        0 => vec![0..size],
        1 | 2 => {
            let start = random.below(size + 1);
            vec![start..start + random.below(size - start + 1)]
        }
        _ => {
            let mut cuts: Vec<u64> = (0..random.below(5)).map(|_| random.below(size + 1)).collect();
            cuts.extend([0, size]);
            cuts.sort_unstable();
            let mut parts: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
            random.shuffle(&mut parts);
            parts
        }
    }
}

fn random_shape(random: &mut Random, item: u64) -> Vec<u64> {
    let rank = random.below(7) as usize;
    let mut shape: Vec<u64> = (0..rank)
        .map(|_| if random.one_in(3) { 1 + random.below(70) } else { 1 + random.below(6) })
        .collect();
    // Not more than the copy byte by byte is done with soon.
    while shape.iter().product::<u64>() * item > 30_000 {
        let largest = (0..rank).max_by_key(|at| shape[*at]).expect("else one item is all");
        shape[largest] = shape[largest].div_ceil(2);
    }
    shape
}

const ITEMS: [u64; 20] = [1, 1, 2, 2, 3, 4, 4, 4, 5, 7, 8, 8, 8, 12, 16, 24, 48, 64, 100, 300];

#[test]
fn random_plans_copy_what_byte_by_byte_does() {
    let mut random = Random(0x5eed);
    for round in 0..4000 {
        let item = random.pick(&ITEMS);
        let shape = random_shape(&mut random, item);
        let (indexed, spoiled) = (random.one_in(3), random.one_in(3));
        let mut dest = memory(&mut random, &shape, item, Which::Dest, indexed, spoiled);
        let src = memory(&mut random, &shape, item, Which::Src, indexed, spoiled);
        let lead = random.pick(&[Which::Dest, Which::Src]);
        let mut plan = Plan::new(&shape, item, &dest.side, &src.side, lead);
        if random.one_in(3) {
            // As they came, neither sorted nor merged.
            let axes = shape.iter().zip(dest.side.steps.iter().zip(&src.side.steps));
            plan = Plan { dest: dest.side.address, src: src.side.address, row: item, axes: Axes::new() };
            plan.axes.extend(axes.map(|(&extent, (&dest, &src))| Axis { extent, dest, src }));
        }
        let ranges = ranges(&mut random, plan.size());
        check(&plan, &ranges, &mut dest.bytes, &src.bytes, round % 3 == 0);
        drop((dest.arrays, src.arrays));
    }
}

#[test]
fn ends_that_became_linear_are_packed_and_unpacked() {
    let mut random = Random(77);
    for round in 0..600 {
        let item = random.pick(&ITEMS);
        let shape = random_shape(&mut random, item);
        let mut dest = memory(&mut random, &shape, item, Which::Dest, round % 2 == 0, false);
        let src = memory(&mut random, &shape, item, Which::Src, round % 2 == 0, false);
        let plan = Plan::new(&shape, item, &dest.side, &src.side, Which::Dest);
        let range = ranges(&mut random, plan.size()).swap_remove(0);
        let length = range.end - range.start;
        // A buffer for just the range: the plan's first byte would be somewhere before it.
        let mut buffer = vec![0x11_u8; (length + 2 * AROUND) as usize];
        let first = buffer.as_mut_ptr().expose_provenance() as u64 + AROUND - range.start;
        check(
            &plan.with_linear(Which::Dest, first),
            std::slice::from_ref(&range),
            &mut buffer,
            &src.bytes,
            round % 3 == 0,
        );
        check(&plan.with_linear(Which::Src, first), &[range], &mut dest.bytes, &buffer, round % 3 == 0);
    }
}

/// Both ends in rows without gaps, the destination's axes being the source's in another order.
fn turned(dest: u64, src: u64, shape: &[u64], order: &[usize], item: u64) -> Plan {
    let mut steps = vec![(Step::by(0), Step::by(0)); shape.len()];
    let (mut to, mut from) = (item as i64, item as i64);
    for at in (0..shape.len()).rev() {
        steps[at].1 = Step::by(from);
        from *= shape[at] as i64;
        steps[order[at]].0 = Step::by(to);
        to *= shape[order[at]] as i64;
    }
    let dest = Side { address: dest, steps: steps.iter().map(|step| step.0).collect() };
    let src = Side { address: src, steps: steps.iter().map(|step| step.1).collect() };
    Plan::new(shape, item, &dest, &src, Which::Dest)
}

#[test]
fn turned_arrays_of_all_sizes_of_items_come_out_right() {
    let mut random = Random(4321);
    for item in [1, 2, 3, 4, 8, 16, 20, 64, 200] {
        for (shape, order) in [
            (vec![64, 64], vec![1, 0]),
            (vec![67, 131], vec![1, 0]),
            (vec![520, 17], vec![1, 0]),
            (vec![17, 520], vec![1, 0]),
            (vec![3, 700], vec![1, 0]),
            (vec![700, 3], vec![1, 0]),
            (vec![1100, 5], vec![1, 0]),
            (vec![5, 33, 18], vec![2, 1, 0]),
            (vec![5, 33, 18], vec![0, 2, 1]),
            (vec![40, 30, 2], vec![1, 0, 2]),
            (vec![3, 4, 5, 6, 7], vec![4, 2, 0, 3, 1]),
        ] {
            let size = shape.iter().product::<u64>() * item;
            let src: Vec<u8> = (0..size + 128).map(|_| random.next() as u8).collect();
            for (offset, past) in [(0, true), (0, false), (1, true), (16, true), (40, false)] {
                let mut dest = vec![0_u8; size as usize + 256];
                let to = (dest.as_mut_ptr().expose_provenance() as u64).next_multiple_of(64) + offset;
                let from = src.as_ptr().expose_provenance() as u64 + random.below(64);
                let plan = turned(to, from, &shape, &order, item);
                let start = if random.one_in(2) { random.below(size) } else { 0 };
                check(&plan, &[start..size], &mut dest, &src, past);
            }
        }
    }
}

#[test]
fn more_numbers_than_are_read_at_once_pick_what_they_name() {
    let mut random = Random(2024);
    for item in [1, 4, 100, 256] {
        for (at, spoiled) in [(0, false), (1, true), (2, false), (3, true)] {
            let count = random.pick(&[255, 256, 257, 700]);
            let mut numbers: Vec<i32> = (0..count as i32).collect();
            random.shuffle(&mut numbers);
            if spoiled {
                numbers.iter_mut().skip(7).step_by(11).for_each(|number| *number = -2);
            }
            let (array, index) = index_array(&mut random, &numbers, count);
            let picked = Step { stride: item as i64, index: Some(index) };
            let (dest, src) =
                if at < 2 { (Step::by(item as i64), picked) } else { (picked, Step::by(item as i64)) };
            let side = (count * item) as i64;
            let outer = Axis { extent: 3, dest: Step::by(side), src: Step::by(side) };
            let from: Vec<u8> = (0..3 * side + 64).map(|_| random.next() as u8).collect();
            let mut to = vec![0xee_u8; 3 * side as usize + 128];
            let plan = Plan {
                dest: (to.as_mut_ptr().expose_provenance() as u64).next_multiple_of(64),
                src: from.as_ptr().expose_provenance() as u64 + 1,
                row: item,
                axes: [outer, Axis { extent: count, dest, src }].into_iter().collect(),
            };
            check(&plan, &[0..plan.size()], &mut to, &from, at % 2 == 0);
            drop(array);
        }
    }
}

#[test]
fn a_line_may_overlap_itself() {
    for (dest, src) in [(100, 90), (90, 100), (100, 100), (100, 101), (3000, 10), (10, 3000)] {
        for past in [false, true] {
            let mut bytes: Vec<u8> = (0..6000_u32).map(|at| (at * 7 + at / 256) as u8).collect();
            let mut expected = bytes.clone();
            expected.copy_within(src..src + 2900, dest);
            let base = bytes.as_mut_ptr().expose_provenance() as u64;
            let plan = Plan::line(base + dest as u64, base + src as u64, 2900);
            // SAFETY: both are in `bytes`, and nobody else is.
            unsafe { copy(&plan, 0..2900, past) };
            assert!(bytes == expected, "2900 bytes from {src} to {dest}, past the cache: {past}");
        }
    }
}

#[test]
fn as_many_axes_as_there_can_be_take_any_range() {
    let mut random = Random(99);
    let src: Vec<u8> = (0..1 << 16).map(|at: u32| (at * 31 + at / 256) as u8).collect();
    for round in 0..200 {
        // Four thousand million rows, of which a few are copied to a buffer that has room for just them.
        let mut axes: Vec<Axis> =
            (0..32).map(|_| Axis { extent: 2, dest: Step::by(0), src: Step::by(0) }).collect();
        let mut offsets: Vec<i64> = (0..32).map(|at| if at < 15 { 1 << at } else { 0 }).collect();
        random.shuffle(&mut offsets);
        for (axis, offset) in axes.iter_mut().zip(offsets) {
            axis.src.stride = offset;
        }
        let row = random.pick(&[1, 3, 4, 8, 40]);
        let plan = Plan {
            dest: 0,
            src: src.as_ptr().expose_provenance() as u64,
            row,
            axes: axes.into_iter().collect(),
        };
        let start = random.below(plan.size() - 20_000);
        let range = start..start + random.below(20_000);
        let mut dest = vec![0x77_u8; 20_000 + 2 * AROUND as usize];
        let first = (dest.as_mut_ptr().expose_provenance() as u64 + AROUND).wrapping_sub(start);
        check(&plan.with_linear(Which::Dest, first), &[range], &mut dest, &src, round % 2 == 0);
    }
}

#[test]
fn what_lies_past_the_end_of_a_plan_is_nothing() {
    let src = [1_u8, 2, 3, 4, 5, 6];
    let mut dest = [0_u8; 8];
    let side = |address, stride| Side { address, steps: [Step::by(stride)].into_iter().collect() };
    let to = dest.as_mut_ptr().expose_provenance() as u64;
    let from = src.as_ptr().expose_provenance() as u64;
    let plan = Plan::new(&[3], 1, &side(to, 2), &side(from, 1), Which::Dest);
    // SAFETY: three bytes of each, and the ranges name none that the plan has not.
    unsafe {
        run(&plan, 1..u64::MAX);
        run(&plan, 3..9);
        run(&plan, 9..12);
        #[allow(clippy::reversed_empty_ranges)]
        run(&plan, 2..0);
        run(&Plan::line(to, from, 0), 0..1);
    }
    assert_eq!(dest, [0, 0, 2, 0, 3, 0, 0, 0]);
}

#[test]
fn large_copies_are_whole_to_the_last_byte() {
    // As large as takes the way past the cache.
    let (rows, row) = (70_001_usize, 256_usize);
    let src: Vec<u8> = (0..rows * (row + 24)).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    let mut dest = vec![0_u8; rows * row + 64];
    let to = dest.as_mut_ptr().expose_provenance() as u64 + 5;
    let from = src.as_ptr().expose_provenance() as u64;
    let axis = Axis { extent: rows as u64, dest: Step::by(256), src: Step::by(280) };
    let plan = Plan { dest: to, src: from, row: 256, axes: [axis].into_iter().collect() };
    // SAFETY: both ends have room for the rows.
    unsafe { run(&plan, 0..u64::MAX) };
    for (at, copied) in dest[5..].chunks_exact(row).take(rows).enumerate() {
        assert!(copied == &src[at * 280..at * 280 + 256], "row {at}");
    }
    assert!(
        dest[..5].iter().chain(&dest[5 + rows * row..]).all(|byte| *byte == 0),
        "something around changed"
    );
    let size = src.len().min(dest.len()) - 1;
    // SAFETY: both have that many bytes and one more.
    unsafe { run(&Plan::line(to - 5, from + 1, size as u64), 0..size as u64) };
    assert!(dest[..size] == src[1..=size], "a large line");
}

#[test]
fn the_first_bad_number_is_told_with_its_place() {
    let mut random = Random(5);
    let (good, index) = index_array(&mut random, &[3, 0, 1], 4);
    let (worse, bad_index) = index_array(&mut random, &[0, 9, 4, -1], 9);
    let mut plan = Plan { dest: 0, src: 0, row: 4, axes: Axes::new() };
    plan.axes.push(Axis { extent: 3, dest: Step::by(4), src: Step { stride: 4, index: Some(index) } });
    // SAFETY: the arrays have a number for each place of their axes.
    assert_eq!(unsafe { first_bad(&plan) }, None);
    plan.axes.push(Axis { extent: 4, dest: Step { stride: 64, index: Some(bad_index) }, src: Step::by(16) });
    let expected = Bad { which: Which::Dest, axis: 1, index: bad_index, position: 1, number: 9 };
    // SAFETY: as before.
    assert_eq!(unsafe { first_bad(&plan) }, Some(expected));
    plan.axes[1].dest.index.as_mut().expect("it was just put there").limit = 10;
    let expected = Bad { index: Index { limit: 10, ..bad_index }, position: 3, number: -1, ..expected };
    // SAFETY: as before.
    assert_eq!(unsafe { first_bad(&plan) }, Some(expected));
    plan.axes[0].extent = 0;
    // SAFETY: nothing is read, since there are no items.
    assert_eq!(unsafe { first_bad(&plan) }, None);
    drop((good, worse));
}

#[test]
fn patterns_of_any_length_are_repeated_to_the_last_byte() {
    let mut random = Random(31);
    let lengths =
        [1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 63, 64, 65, 100, 1000, 2049, 4000, 4095, 4096, 4097, 9000];
    for length in lengths {
        for size in [1, 2, 3, 63, 64, 65, 127, 200, 4095, 4096, 4224, 4225, 5000, 8191, 30_000, 70_001] {
            let mut pattern: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            if random.one_in(5) {
                pattern.fill(9);
            }
            let offset = random.below(64) as usize;
            for past in [false, true] {
                let mut bytes = vec![0x42_u8; size + 128];
                let dest = bytes.as_mut_ptr().wrapping_add(offset);
                // SAFETY: `bytes` has more room than that, and the pattern is another vector.
                unsafe { super::stream::repeat(dest, pattern.as_ptr(), length, size, past) };
                super::stream::settle();
                let wrong = (0..size).find(|at| bytes[offset + at] != pattern[at % length]);
                assert_eq!(wrong, None, "{size} bytes of a pattern of {length}, past the cache: {past}");
                let around = bytes[..offset].iter().chain(&bytes[offset + size..]).all(|byte| *byte == 0x42);
                assert!(around, "{size} bytes of a pattern of {length} wrote around them");
            }
        }
    }
    let mut bytes = [7_u8; 4];
    // SAFETY: nothing is written.
    unsafe { fill(bytes.as_mut_ptr().expose_provenance() as u64, 0, &[1]) };
    // SAFETY: three bytes of the four.
    unsafe { fill(bytes.as_mut_ptr().expose_provenance() as u64, 3, &[8, 9]) };
    assert_eq!(bytes, [8, 9, 8, 7]);
}

#[test]
fn a_fill_is_a_copy_of_one_item_again_and_again() {
    let mut random = Random(8);
    for _ in 0..300 {
        let item = random.pick(&ITEMS);
        let shape = random_shape(&mut random, item);
        let mut dest = memory(&mut random, &shape, item, Which::Dest, false, false);
        let value: Vec<u8> = (0..item).map(|_| random.next() as u8).collect();
        let side = Side {
            address: value.as_ptr().expose_provenance() as u64,
            steps: shape.iter().map(|_| Step::by(0)).collect(),
        };
        let plan = Plan::new(&shape, item, &dest.side, &side, Which::Dest);
        let ranges = ranges(&mut random, plan.size());
        let past = random.one_in(2);
        check(&plan, &ranges, &mut dest.bytes, &value, past);
    }
}

/// Of extents and strides of the destination and the source, at the addresses 0.
fn nest(row: u64, axes: &[(u64, i64, i64)]) -> Nest {
    let axis =
        |&(extent, dest, src): &(u64, i64, i64)| Axis { extent, dest: Step::by(dest), src: Step::by(src) };
    let mut nest = Nest::of_row(0, 0, row);
    nest.surround(axes.iter().map(axis));
    nest
}

#[test]
fn what_lies_together_in_any_order_of_axes_is_one_line() {
    for axes in [[(3, 32, 32), (8, 4, 4)], [(8, 4, 4), (3, 32, 32)], [(8, 4, 4), (3, -32, -32)]] {
        let nest = nest(4, &axes);
        assert_eq!((nest.leaf, nest.row, nest.axes.len()), (Leaf::Line, 96, 0), "{axes:?}");
    }
}

#[test]
fn only_ends_that_disagree_are_tiled() {
    let stretch = |count, dest, src| Stretch { count, dest, src };
    let (short, long) = (stretch(50, 4, 400), stretch(100, 200, 4));
    let tiles = Leaf::Tiles { along_dest: short, along_src: long, inner: Stretch::ONE };
    assert_eq!(nest(4, &[(100, 200, 4), (50, 4, 400)]).leaf, tiles);
    let pairs = Leaf::Tiles {
        along_dest: stretch(50, 8, 1200),
        along_src: stretch(100, 400, 12),
        inner: stretch(2, 4, 8),
    };
    assert_eq!(nest(4, &[(2, 4, 8), (100, 400, 12), (50, 8, 1200)]).leaf, pairs);
    let grid = Leaf::Grid { outer: stretch(100, 400, 1000), inner: stretch(50, 4, 20) };
    assert_eq!(nest(4, &[(100, 400, 1000), (50, 4, 20)]).leaf, grid);
    // One item along the densest axis: the source has nothing to say there.
    let grid = Leaf::Grid { outer: stretch(100, 200, 4), inner: stretch(50, 4, 0) };
    assert_eq!(nest(4, &[(100, 200, 4), (50, 4, 0)]).leaf, grid);
}

#[test]
fn as_many_axes_as_there_can_be_need_no_memory_of_the_heap() {
    let axes: Vec<_> = (0..32).map(|at| (2, 3_i64 << at, 5_i64 << (31 - at))).collect();
    let nest = nest(1, &axes);
    assert!(!nest.axes.spilled() && nest.axes.len() == 30, "{nest:?}");
}
