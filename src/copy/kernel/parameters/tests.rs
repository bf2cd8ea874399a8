use super::super::load::TEXT;
use super::super::pieces::{MOST, Reach};
use super::fill::Fill;
use super::*;
use crate::random::Random;
use std::ops::Range;

/// As the kernels divide.
fn divide(n: u32, by: Divisor) -> u32 {
    ((u64::from(n) * u64::from(by.magic)) >> 32) as u32 >> by.shift
}

#[test]
fn a_multiplication_divides_like_a_division() {
    let check = |divisor: u32, n: u32| {
        assert_eq!(divide(n, Divisor::by(divisor)), n / divisor, "{n} / {divisor}");
    };
    let largest = MOST as u32;
    for divisor in 2..1500 {
        for n in 0..3000 {
            check(divisor, n);
            check(divisor, largest - n);
        }
    }
    let mut random = Random(1);
    for _ in 0..300_000 {
        let divisor = random.spread(MOST).max(2) as u32;
        check(divisor, random.spread(MOST) as u32);
        // A wrong quotient shows beside multiples first.
        let multiple = divisor * (largest / divisor - random.below(u64::from(largest / divisor)) as u32);
        for n in [multiple - 1, multiple, multiple.saturating_add(1).min(largest)] {
            check(divisor, n);
        }
    }
    for shift in 1..31 {
        for divisor in [1 << shift, (1 << shift) + 1, (1_u32 << shift).max(3) - 1, largest] {
            for n in [0, 1, divisor - 1, divisor, largest - 1, largest] {
                check(divisor, n);
            }
        }
    }
    assert_eq!((divide(0, Divisor::by(1)), divide(0, Divisor::by(0))), (0, 0));
}

#[test]
fn parameters_are_as_large_as_the_kernels_say() {
    let declared = |name: &str| {
        let line = TEXT.lines().find(|line| line.starts_with(&format!(".visible .entry {name}(")));
        let line = line.unwrap_or_else(|| panic!("the text has {name}"));
        let number = |before: &str, behind: &str| {
            let (_, rest) = line.split_once(before).expect("it is there");
            rest.split_once(behind).expect("it ends").0.parse::<usize>().expect("it is a number")
        };
        (number("plan[", "]"), number(".align ", " "))
    };
    assert_eq!(declared("copy_few"), (size_of::<Few>(), align_of::<Few>()));
    assert_eq!(declared("copy_rows"), (size_of::<Rows>(), align_of::<Rows>()));
    assert_eq!(declared("copy_any"), (size_of::<Any>(), align_of::<Any>()));
    assert_eq!(declared("copy_tile"), (size_of::<Tile>(), align_of::<Tile>()));
    assert_eq!(declared("copy_wide_tile"), (size_of::<Tile>(), align_of::<Tile>()));
    assert_eq!(declared("fill_short"), (size_of::<FillShort>(), align_of::<FillShort>()));
    assert_eq!(declared("fill_rest"), (size_of::<FillRest>(), align_of::<FillRest>()));
}

#[test]
fn any_driver_from_12_0_on_and_any_gpu_from_maxwell_on_takes_the_text() {
    let code: Vec<&str> = TEXT.lines().filter(|line| line.starts_with('.')).take(3).collect();
    assert_eq!(code, [".version 6.4", ".target sm_50", ".address_size 64"]);
}

#[test]
fn grids_are_bounded_and_have_a_thread_for_each_word() {
    for multiprocessors in [1, 4, 132, 100_000] {
        let most = most_blocks(multiprocessors);
        assert!(most <= (1 << 10) * BLOCKS);
        for (count, lead) in [1, 31, 32, 33, 255, 256, 257, 1024, 1025, 1 << 20, MOST as u32]
            .into_iter()
            .flat_map(|count| [(count, 0), (count, 127)])
        {
            let head = Head { first: 5, count, ..Head::default() };
            for each in [2, 4] {
                let launch = head.launch(lead, each, multiprocessors);
                let Launch { blocks, threads, shared } = launch;
                assert!((1..=most).contains(&blocks), "{count} words: {launch:?}");
                assert!(threads.is_multiple_of(32) && (32..=THREADS).contains(&threads) && shared == 0);
                let at_once = u64::from(blocks) * u64::from(threads) * u64::from(each);
                assert!(at_once >= u64::from(count + lead) || blocks == most, "{count} words: {launch:?}");
                // The kernel's numbers stay within 32 bits when the last threads go on past the end.
                assert!(MOST + 127 + at_once <= u64::from(u32::MAX), "{launch:?}");
            }
        }
    }
}

#[test]
fn a_step_of_all_threads_of_a_fill_is_whole_lines_and_whole_patterns() {
    for multiprocessors in [1, 132, 100_000] {
        for period in [16, 48, 64, 1008, 1024, 16 * 1001, 1 << 20] {
            for size in [16, 100, 1 << 20, 1 << 40] {
                let (fill, launch) = Fill::of(1 << 20, size, period, multiprocessors).expect("not too long");
                assert!(fill.stride > 0 && fill.stride <= launch.blocks * launch.threads);
                let step = u64::from(fill.stride) * UNIT;
                assert!(step.is_multiple_of(period) && step.is_multiple_of(LINE));
                assert_eq!((fill.end, u64::from(fill.period)), ((1 << 20) + size / 16 * 16, period / 16));
            }
        }
    }
    assert!(Fill::of(0, 1 << 40, 16 * ((1 << 20) + 1), 132).is_none(), "there are not so many threads");
}

fn place(block: &Block, number: u64) -> (u64, u64) {
    let (mut dest, mut src, mut rest) = (block.dest, block.src, number);
    for axis in &block.axes {
        let at = (rest % axis.extent) as i64;
        rest /= axis.extent;
        dest = dest.wrapping_add_signed(at.wrapping_mul(axis.dest.stride));
        src = src.wrapping_add_signed(at.wrapping_mul(axis.src.stride));
    }
    assert_eq!(rest, 0);
    (dest, src)
}

/// As `copy_few` and `copy_rows` find places, in 32 bits.
fn gone(turns: &[Turn], count: u32, mut n: u32, (to, from): (i32, i32)) -> (i64, i64) {
    let (mut dest, mut src) = ((n as i32).wrapping_mul(to), (n as i32).wrapping_mul(from));
    for turn in &turns[..count as usize] {
        n = divide(n, turn.by);
        dest = dest.wrapping_add((n as i32).wrapping_mul(turn.dest));
        src = src.wrapping_add((n as i32).wrapping_mul(turn.src));
    }
    (i64::from(dest), i64::from(src))
}

fn few_place(few: &Few, n: u32) -> (u64, u64) {
    let (dest, src) = gone(&few.turns, few.head.axes, n, (few.dest, few.src));
    let size = 1_i64 << few.head.word;
    (few.head.dest.wrapping_add_signed(dest * size), few.head.src.wrapping_add_signed(src * size))
}

fn rows_place(rows: &Rows, n: u32) -> (u64, u64) {
    let row = divide(n, rows.units);
    let (dest, src) = gone(&rows.turns, rows.head.axes, row, (rows.dest, rows.src));
    (rows.head.dest.wrapping_add_signed(dest), rows.head.src.wrapping_add_signed(src))
}

/// As `copy_any` does it.
fn any_place(any: &Any, mut n: u32) -> (u64, u64) {
    let (mut dest, mut src) = (any.head.dest, any.head.src);
    for axis in &any.axes[..any.head.axes as usize] {
        let by = divide(n, axis.by);
        let rest = n.wrapping_add((by as i32).wrapping_mul(axis.minus_extent) as u32);
        dest = dest.wrapping_add_signed(i64::from(rest).wrapping_mul(axis.dest));
        src = src.wrapping_add_signed(i64::from(rest).wrapping_mul(axis.src));
        n = by;
    }
    (dest, src)
}

fn random_plan(random: &mut Random, word: u64, axes: u64) -> Plan {
    let mut plan = Plan::line(1 << 60, 3 << 60, word * (1 + random.spread(5000)));
    let mut left: u64 = 1 << 38;
    for _ in 0..axes {
        let extent = 2 + random.spread((left / 2).max(1));
        left = (left / extent).max(1);
        let mut step = || {
            Step::by(((random.spread(1 << 36) * word) as i64).wrapping_mul([1, -1][random.below(2) as usize]))
        };
        plan.axes.push(Axis { extent, dest: step(), src: step() });
    }
    plan
}

/// Cuts a range and looks at numbers of each piece. How many pieces there were.
fn check_pieces(
    random: &mut Random,
    block: &Block,
    range: Range<u64>,
    reach: Reach,
    find: impl Fn(&Piece, u32) -> (u64, u64),
) -> u64 {
    let (mut next, mut pieces) = (range.start, 0);
    let end = range.end;
    // More of them than these are not looked at.
    let stop = block.clone().cut(range, reach, &mut |piece| {
        let count = u64::from(piece.end - piece.first);
        assert!(piece.first < piece.end && piece.block.count() <= MOST, "{piece:?}");
        for at in [0, count - 1, count / 2, random.below(count), random.below(count)] {
            assert_eq!(
                find(&piece, piece.first + at as u32),
                place(block, next + at),
                "word {at} of {piece:?}"
            );
        }
        next += count;
        pieces += 1;
        if pieces < 500 { Ok(()) } else { Err(()) }
    });
    assert!(stop.is_err() || next == end, "the pieces end at {next}, not at {end}");
    pieces
}

#[test]
fn pieces_are_all_words_in_order_and_kernels_find_their_places() {
    let mut random = Random(2);
    let (mut cut, mut near, mut whole) = (0, 0, 0);
    for round in 0..4000 {
        let word = 1 << random.below(5);
        let axes = random.below(if round % 2 == 0 { 4 } else { 7 });
        let plan = random_plan(&mut random, word, axes);
        let block = Block::of_words(&plan, word);
        let total = block.count();
        let start = if random.below(2) == 0 { 0 } else { random.spread(total - 1) };
        let length = if random.below(2) == 0 { total - start } else { 1 + random.spread(total - start - 1) };
        let range = start..start + length.min(total - start);
        let pieces = check_pieces(&mut random, &block, range.clone(), Reach::Any, |piece, n| {
            any_place(&Any::of(piece, word).expect("it has few enough axes"), n)
        });
        cut += u64::from(pieces > 1);
        whole += u64::from(pieces == 1);
        if Few::fits(&block) {
            near += 1;
            check_pieces(&mut random, &block, range, Reach::Near(word), |piece, n| {
                few_place(&Few::of(piece, word).expect("it has few enough axes"), n)
            });
        }
    }
    assert!(cut > 300 && near > 300 && whole > 300, "{cut} cut, {near} near, {whole} whole");
}

#[test]
fn rows_are_found_by_their_units() {
    let mut random = Random(3);
    for _ in 0..2000 {
        let axes = random.below(4);
        let mut plan = random_plan(&mut random, 1, axes);
        plan.row += Rows::SHORTEST;
        let units = Rows::units(plan.row);
        let block = Block::of_rows(&plan, units);
        assert!(Rows::fits(&block, plan.row));
        let rows = plan.rows();
        let start = random.below(rows);
        let range = start * units..(start + 1 + random.below(rows - start)) * units;
        check_pieces(&mut random, &block, range, Reach::Near(1), |piece, n| {
            rows_place(&Rows::of(piece, plan.row).expect("it has few enough axes"), n)
        });
    }
}

#[test]
fn warps_begin_with_lines_of_the_destination() {
    let lead = |dest: u64, word: u64, first: u64| {
        let mut plan = Plan::line(dest, 1 << 40, 96);
        plan.axes.push(Axis { extent: 1000, dest: Step::by(96), src: Step::by(200) });
        let block = Block::of_words(&plan, word);
        let mut leads = Vec::new();
        let count = block.count();
        block
            .cut(first..count, Reach::Near(word), &mut |piece| {
                leads.push(Few::of(&piece, word).expect("it has few axes").lead);
                Ok::<(), ()>(())
            })
            .expect("nothing fails");
        leads
    };
    assert_eq!(lead(1 << 20, 16, 0), [0]);
    assert_eq!(lead((1 << 20) + 16, 16, 0), [1]);
    assert_eq!(lead((1 << 20) + 36, 4, 0), [9]);
    assert_eq!(lead((1 << 20) + 127, 1, 0), [127]);
    // The 50th word is four bytes into the third row of 24, at 196.
    assert_eq!(lead(1 << 20, 4, 49), [(196 - 128) / 4]);
}

#[test]
fn words_that_lie_far_apart_are_left_to_the_kernel_for_any() {
    let far = |extent: u64, stride: i64| {
        let mut plan = Plan::line(0, 0, 4);
        plan.axes.push(Axis { extent, dest: Step::by(4), src: Step::by(stride) });
        let block = Block::of_words(&plan, 4);
        let count = block.count();
        block.is_near(&(0..count), 4)
    };
    assert!(far(1000, 1 << 22), "4 GiB are near");
    assert!(!far(1000, 1 << 30), "a launch for each few of 1000 words is none");
    assert!(far(1 << 30, 128), "large pieces are worth a launch each");
}

#[test]
fn what_is_turned_round_goes_by_squares() {
    let plan = |axes: &[(u64, i64, i64)]| {
        let mut plan = Plan::line(0, 1 << 40, 4);
        plan.axes.extend(axes.iter().map(|&(extent, dest, src)| Axis {
            extent,
            dest: Step::by(dest),
            src: Step::by(src),
        }));
        plan
    };
    let (tile, side) = Tile::of(&plan(&[(70, 180, 4), (45, 4, 280)]), 4).expect("a transpose");
    assert_eq!((tile.a_extent, tile.b_extent, tile.squares, tile.count, side), (70, 45, 6, 2, Side::Narrow));
    assert_eq!(tile.launch(side, 132), Launch { blocks: 6, threads: 256, shared: 4224 });
    let (wide, side) = Tile::of(&plan(&[(70, 600, 4), (150, 4, 280)]), 4).expect("a wide transpose");
    assert_eq!((wide.squares, wide.count, side), (6, 2, Side::Wide));
    assert_eq!(wide.launch(side, 132), Launch { blocks: 6, threads: 256, shared: 16640 });
    // One square, and a batch of them.
    let (one, _) = Tile::of(&plan(&[(32, 128, 4), (32, 4, 128)]), 4).expect("one square");
    assert_eq!((one.squares, one.count), (1, 1));
    let (batch, _) = Tile::of(&plan(&[(10, 8000, 8000), (40, 200, 4), (47, 4, 160)]), 4).expect("a batch");
    assert_eq!((batch.squares, batch.count), (40, 3));
    for (why, other) in [
        ("the same order at both ends", plan(&[(70, 180, 280), (45, 4, 4)])),
        ("too narrow", plan(&[(70, 12, 4), (3, 4, 280)])),
        ("no end is dense", plan(&[(70, 18000, 4), (45, 400, 280)])),
        ("nothing is read but one item", plan(&[(70, 180, 0), (45, 4, 0)])),
    ] {
        assert!(Tile::of(&other, 4).is_none(), "{why}");
    }
}

#[test]
fn patterns_are_short_when_they_fit_the_parameters() {
    assert!([1, 3, 12, 16, 63, 64, 126, 128, 256, 512, 1024].into_iter().all(is_short));
    assert!(![0, 65, 127, 130, 513, 1008 + 1, 1025, 2048, usize::MAX].into_iter().any(is_short));
}
