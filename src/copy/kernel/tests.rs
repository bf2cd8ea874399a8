//! The kernels on a simulated GPU: every byte that a copy writes, and that it writes no other.

use super::super::lab::{LOADING, Lab, POISON, ROOM, Random, content, fail_next, model};
use super::super::plan::{Axis, Index, Plan, Side, Step, Which};
use super::load::{Loading, load};
use super::*;
use crate::driver::CaptureMode;
use std::sync::LazyLock;

static KERNELS: LazyLock<Kernels> =
    LazyLock::new(|| Kernels::load(Lab::new().driver).expect("the kernels load"));

/// A GPU of few multiprocessors, so that threads go round. The kernels are loaded.
fn gpu(lab: &Lab) -> Gpu<'static> {
    Gpu { driver: lab.driver, kernels: &KERNELS, multiprocessors: 4, stream: lab.stream }
}

fn check(lab: &Lab, plan: &Plan, range: Range<u64>, src: &[u8], index: &[u8]) {
    lab.check(plan, range.clone(), (src, index), || {
        gpu(lab).copy(plan, range).expect("the copy is launched");
    });
}

/// Places for items of a shape: axes in any order, with gaps, backwards at times. The bytes from the first to behind the last,
/// and where the item at the origin is.
fn layout(random: &mut Random, shape: &[u64], item: u64, spread: bool) -> (Vec<i64>, u64, u64) {
    let mut order: Vec<usize> = (0..shape.len()).collect();
    if random.below(3) == 0 {
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
    }
    let (mut strides, mut span, mut origin) = (vec![0; shape.len()], item, 0);
    let unit = 1 << random.below(5);
    for &at in order.iter().rev() {
        let gap = if spread && random.flip() { random.below(5) * unit } else { 0 };
        let stride = span + gap;
        strides[at] = stride as i64;
        span += stride * (shape[at] - 1);
        if random.below(5) == 0 {
            origin += stride * (shape[at] - 1);
            strides[at] = -strides[at];
        }
    }
    (strides, span, origin)
}

/// A random plan within the rooms, with what its index arrays hold.
fn random_plan(random: &mut Random, lab: &Lab, index: &mut [u8]) -> Option<Plan> {
    let rank = random.below(6) as usize;
    let item = [1, 2, 3, 4, 8, 12, 16, 24, 48, 70, 100, 300][random.below(12) as usize];
    let most = [40, 40, 40, 14, 7, 5, 4][rank];
    let shape: Vec<u64> = (0..rank).map(|_| 1 + random.below(most)).collect();
    let mut ends = Vec::new();
    for base in [lab.dest, lab.src] {
        let is_src = base == lab.src;
        let spread = random.flip();
        let mut data = shape.clone();
        let mut indexed = vec![false; rank];
        for at in 0..rank {
            if random.below(8) == 0 {
                indexed[at] = true;
                data[at] = if is_src { 1 + random.below(shape[at] + 3) } else { shape[at] + random.below(3) };
            }
        }
        let (mut strides, span, origin) = layout(random, &data, item, spread);
        let start = random.below(20) * [1, 2, 4, 16, 32][random.below(5) as usize];
        if start + span > ROOM as u64 {
            return None;
        }
        let mut side = Side { address: base + start + origin, steps: Default::default() };
        for at in 0..rank {
            if is_src && !indexed[at] && random.below(12) == 0 {
                strides[at] = 0;
            }
            let index = indexed[at].then(|| {
                let stride = [4_i64, 4, 8, 5, -4][random.below(5) as usize];
                let room = shape[at] as i64 * stride.abs() + 4;
                let place =
                    random.below((ROOM as i64 - room) as u64) as i64 & if stride == 5 { !0 } else { !3 };
                let first = if stride < 0 { place + (shape[at] as i64 - 1) * -stride } else { place };
                // Every item of a destination has one place; some are outside.
                let mut numbers: Vec<i32> = (0..data[at] as i32).collect();
                for i in (1..numbers.len()).rev() {
                    numbers.swap(i, random.below(i as u64 + 1) as usize);
                }
                for i in 0..shape[at] {
                    let inside = if is_src { random.below(data[at]) as i32 } else { numbers[i as usize] };
                    let outside = [-1, data[at] as i32, i32::MIN, i32::MAX][random.below(4) as usize];
                    let number = if random.below(6) == 0 { outside } else { inside };
                    let from = (first + i as i64 * stride) as usize;
                    index[from..from + 4].copy_from_slice(&number.to_le_bytes());
                }
                Index { address: lab.index + first as u64, stride, limit: data[at] as i64 }
            });
            side.steps.push(Step { stride: strides[at], index });
        }
        ends.push(side);
    }
    let lead = if random.flip() { Which::Dest } else { Which::Src };
    Some(Plan::new(&shape, item, &ends[0], &ends[1], lead))
}

#[test]
fn random_plans_are_copied_to_the_byte() {
    let lab = Lab::new();
    let mut random = Random(5);
    let src = content(&mut random);
    lab.put(lab.src, &src);
    let (mut done, mut parts, mut indexed) = (0, 0, 0);
    while done < 1200 {
        let mut index = vec![0; ROOM];
        // Two index arrays of a plan may meet, which only the places that are read last would notice: the model reads the same.
        let Some(plan) = random_plan(&mut random, &lab, &mut index) else { continue };
        if plan.is_indexed() && index_arrays_meet(&plan) {
            continue;
        }
        lab.put(lab.index, &index);
        let (size, word) = (plan.size(), plan.word());
        let words = size / word;
        let range = match random.below(3) {
            0 => {
                parts += 1;
                let start = random.below(words);
                start * word..(start + 1 + random.below(words - start)) * word
            }
            _ => 0..size,
        };
        check(&lab, &plan, range, &src, &index);
        done += 1;
        indexed += u64::from(plan.is_indexed());
    }
    assert!(parts > 200 && indexed > 200, "{parts} in part, {indexed} by index arrays");
}

fn index_arrays_meet(plan: &Plan) -> bool {
    let steps = plan.axes.iter().flat_map(|axis| [(axis.extent, axis.dest), (axis.extent, axis.src)]);
    let mut spans: Vec<(i64, i64)> = steps
        .filter_map(|(extent, step)| step.index.map(|index| (extent, index)))
        .map(|(extent, Index { address, stride, .. })| {
            let (first, last) = (address as i64, address as i64 + (extent as i64 - 1) * stride);
            (first.min(last), first.max(last) + 4)
        })
        .collect();
    spans.sort_unstable();
    spans.windows(2).any(|pair| pair[1].0 < pair[0].1)
}

fn plan(lab: &Lab, offsets: (u64, u64), row: u64, axes: &[(u64, i64, i64)]) -> Plan {
    let mut plan = Plan::line(lab.dest + offsets.0, lab.src + offsets.1, row);
    plan.axes.extend(axes.iter().map(|&(extent, dest, src)| Axis {
        extent,
        dest: Step::by(dest),
        src: Step::by(src),
    }));
    plan
}

#[test]
fn rows_anywhere_are_copied_whole_and_in_part() {
    let lab = Lab::new();
    let mut random = Random(6);
    let src = content(&mut random);
    lab.put(lab.src, &src);
    for offset in 0..34 {
        for (row, to, from) in
            [(64, 70, 81), (65, 65, 200), (100, 257, 100), (333, 336, 340), (129, 129, 129)]
        {
            let rows = plan(&lab, (offset, random.below(40)), row, &[(1 + random.below(9), to, from)]);
            check(&lab, &rows, 0..rows.size(), &src, &[]);
            let start = random.below(rows.size());
            check(&lab, &rows, start..start + 1 + random.below(rows.size() - start), &src, &[]);
        }
    }
    let planes = plan(&lab, (3, 1), 77, &[(3, 2000, -900), (2, 1000, 2800), (5, 101, 83)]);
    let planes = Plan { src: lab.src + 4001, ..planes };
    check(&lab, &planes, 0..planes.size(), &src, &[]);
    let line = plan(&lab, (5, 10), 5001, &[]);
    check(&lab, &line, 0..5001, &src, &[]);
    check(&lab, &line, 17..4018, &src, &[]);
}

#[test]
fn what_is_turned_round_is_copied_whole_and_in_part() {
    let lab = Lab::new();
    let mut random = Random(7);
    let src = content(&mut random);
    lab.put(lab.src, &src);
    for word in [1, 2, 4, 8, 16] {
        let byte = word as i64;
        for (a, b) in [(32, 32), (33, 70), (64, 64), (65, 48), (130, 50), (31, 24)] {
            let (dest_pitch, src_pitch) = ((b as i64 + 2) * byte, (a as i64 + 3) * byte);
            let turned = plan(&lab, (word * 3, word), word, &[(a, dest_pitch, byte), (b, byte, src_pitch)]);
            check(&lab, &turned, 0..turned.size(), &src, &[]);
            let (start, end) = (random.below(a * b / 2), a * b - random.below(a * b / 3));
            check(&lab, &turned, start * word..end * word, &src, &[]);
        }
        // A batch, one end of which goes backwards.
        let batch = plan(
            &lab,
            (0, 2 * 33 * 40 * word),
            word,
            &[(3, 33 * 40 * byte, -33 * 40 * byte), (33, 40 * byte, byte), (40, byte, 33 * byte)],
        );
        check(&lab, &batch, 0..batch.size(), &src, &[]);
    }
}

#[test]
fn fills_repeat_any_pattern_to_the_last_byte_and_no_further() {
    let lab = Lab::new();
    let mut random = Random(8);
    for length in [1, 2, 3, 7, 8, 12, 16, 20, 48, 60, 63, 128, 1024, 65, 1000, 3001] {
        let pattern: Vec<u8> = (0..length).map(|_| random.below(100) as u8).collect();
        for size in [1, 15, 16, 100, 127, 128, 1000, 5003, 40_000, 100_000] {
            let offset = random.below(200) as usize;
            let mut wanted = vec![POISON; ROOM];
            lab.put(lab.dest, &wanted);
            let dest = lab.dest + offset as u64;
            if is_short(length) {
                gpu(&lab).fill(dest, size as u64, &pattern).expect("the fill is launched");
            } else {
                lab.put(dest, &pattern[..length.min(size)]);
                gpu(&lab).fill_rest(dest, size as u64, length as u64).expect("the fill is launched");
            }
            for (at, byte) in wanted[offset..offset + size].iter_mut().enumerate() {
                *byte = pattern[at % length];
            }
            let got = lab.get(lab.dest, ROOM);
            let wrong = (0..ROOM).find(|&at| got[at] != wanted[at]);
            assert_eq!(wrong, None, "{size} bytes at +{offset} with a pattern of {length}");
        }
    }
}

#[test]
fn a_pattern_that_no_kernel_takes_is_a_failure_and_writes_nothing() {
    let lab = Lab::new();
    lab.put(lab.dest, &[POISON; 4096]);
    let long = vec![1; 1025];
    assert!(gpu(&lab).fill(lab.dest, 4096, &long).is_err_and(|failure| failure.is_missing()));
    assert!(gpu(&lab).fill_rest(lab.dest, 1 << 40, (1 << 21) + 1).is_err_and(|failure| failure.is_missing()));
    assert_eq!(lab.get(lab.dest, 4096), [POISON; 4096]);
}

#[test]
fn copies_are_recorded_in_captures_beside_which_kernels_are_loaded() {
    let _one = LOADING.lock();
    let lab = Lab::new();
    let driver = lab.driver;
    let strided = plan(&lab, (0, 0), 4, &[(1000, 4, 8)]);
    let tail = plan(&lab, (5001, 3), 1001, &[(5, 1100, 2000)]);
    driver.begin_capture(lab.stream, CaptureMode::Global).expect("the capture begins");
    let fresh: &'static Loading = Box::leak(Box::default());
    {
        let _relaxed = driver.relax_capture().expect("the mode is the thread's own");
        let kernels = load(driver, lab.context(), fresh).expect("the kernels load beside a capture");
        let gpu = Gpu { kernels, ..gpu(&lab) };
        gpu.copy(&strided, 0..4000).expect("a copy is recorded");
        gpu.copy(&tail, 0..5005).expect("a copy is recorded");
        gpu.fill(lab.dest + 20_001, 3001, b"abc").expect("a fill is recorded");
    }
    let graph = driver.end_capture(lab.stream).expect("the capture is whole");
    assert_eq!(driver.graph_nodes(graph).map(|nodes| nodes.len()), Ok(3));
    let exec = driver.instantiate(graph).expect("the graph can run");
    let mut random = Random(9);
    for _ in 0..2 {
        let src = content(&mut random);
        let mut wanted = vec![POISON; ROOM];
        lab.put(lab.src, &src);
        lab.put(lab.dest, &wanted);
        driver.launch_graph(exec, lab.stream).expect("the graph runs");
        for (plan, size) in [(&strided, 4000), (&tail, 5005)] {
            model(plan, 0..size, (lab.dest, &mut wanted), (lab.src, &src), (0, &[]));
        }
        for (at, byte) in wanted[20_001..23_002].iter_mut().enumerate() {
            *byte = b"abc"[at % 3];
        }
        assert!(lab.get(lab.dest, ROOM) == wanted, "a run copies what is there then");
    }
    driver.destroy_exec(exec).expect("it is there");
    driver.destroy_graph(graph).expect("it is there");
}

#[test]
fn kernels_are_loaded_for_the_context_of_their_device_whichever_is_current() {
    let _one = LOADING.lock();
    let lab = Lab::new();
    let driver = lab.driver;
    let other = driver.retain_primary_context(1).expect("there is a second GPU");
    let fresh: &'static Loading = Box::leak(Box::default());
    let kernels = {
        let _other = driver.enter(other).expect("its context can be made current");
        let kernels = load(driver, lab.context(), fresh).expect("the kernels load");
        assert_eq!(driver.current_context(), Ok(other));
        kernels
    };
    let gpu = Gpu { kernels, ..gpu(&lab) };
    assert_eq!(gpu.fill(lab.dest, 1000, b"abc"), Ok(()));
    driver.release_primary_context(1).expect("it was retained");
}

#[test]
fn a_driver_that_refuses_the_kernels_is_asked_once_and_any_other_failure_passes() {
    let _one = LOADING.lock();
    let lab = Lab::new();
    let driver = lab.driver;
    // Not by what is planned below.
    LazyLock::force(&KERNELS);
    let load = |loading| load(driver, lab.context(), loading);
    let code = |loading: &'static Loading| load(loading).map(drop).map_err(|failure| failure.code);
    for refusal in [209, 218, 221, 222, 223, 500] {
        let loading: &'static Loading = Box::leak(Box::default());
        fail_next(c"cuModuleLoadData", refusal);
        assert_eq!(code(loading), Err(refusal));
        assert_eq!(code(loading), Err(refusal), "the driver was asked again");
    }
    // A driver that does not have it yet has loaded the code by then.
    let older: &'static Loading = Box::leak(Box::default());
    fail_next(c"cuFuncLoad", 500);
    assert_eq!(code(older), Ok(()));
    for (entry, passing) in [
        (c"cuModuleLoadData", 2),
        (c"cuModuleGetFunction", 2),
        (c"cuFuncLoad", 2),
        (c"cuModuleLoadData", 900),
    ] {
        let loading: &'static Loading = Box::leak(Box::default());
        fail_next(entry, passing);
        assert_eq!(code(loading), Err(passing));
        assert_eq!(code(loading), Ok(()), "after {passing} from {entry:?}");
        assert!(std::ptr::eq(load(loading).unwrap(), load(loading).unwrap()));
    }
}
