//! What copies of the CPU's reach beside the C library's copy of as many bytes, in GB/s of bytes that are copied.
//!
//! Prints medians of rounds in which both take turns: `cargo bench --bench host_copies`, best on one core (`taskset -c 0`), with a part
//! of a row's name behind it for only those.

// The executor needs nothing of the library but plans. Its tests are not run here.
#[allow(dead_code, unused_imports)]
#[path = "../src/copy/host/mod.rs"]
mod host;
#[allow(dead_code, unused_imports)]
#[path = "../src/copy/plan.rs"]
mod plan;

use plan::{Axis, Index, Plan, Step};
use std::hint::black_box;

const ROUNDS: usize = 9;
const SIZE: usize = 256 << 20;
/// Room for rows that are twice as far from each other as they are long.
const ROOM: usize = 2 * SIZE + 4096;

/// Seconds that this thread has run.
fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a whole `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn seconds(work: &mut dyn FnMut()) -> f64 {
    let start = thread_time();
    work();
    thread_time() - start
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

struct Bench {
    dest: Vec<u8>,
    src: Vec<u8>,
    only: Vec<String>,
}

impl Bench {
    fn dest(&mut self) -> u64 {
        (self.dest.as_mut_ptr().expose_provenance() as u64).next_multiple_of(4096)
    }

    fn src(&self) -> u64 {
        (self.src.as_ptr().expose_provenance() as u64).next_multiple_of(4096)
    }

    /// `ours` beside `theirs`, both of which move `size` bytes `times` times.
    fn compare(
        &self,
        what: &str,
        size: usize,
        times: usize,
        (name, theirs): (&str, &mut dyn FnMut()),
        ours: &mut dyn FnMut(),
    ) {
        if !self.only.is_empty() && !self.only.iter().any(|only| what.contains(only.as_str())) {
            return;
        }
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let (a, b) = (
                seconds(&mut || (0..times).for_each(|_| theirs())),
                seconds(&mut || (0..times).for_each(|_| ours())),
            );
            // The first one touches memory that is new.
            if round > 0 {
                first.push(a);
                second.push(b);
            }
        }
        let rate = |times_taken: Vec<f64>| (size * times) as f64 / median(times_taken) / 1e9;
        let (theirs, ours) = (rate(first), rate(second));
        println!("{what:<44} {ours:>7.2} GB/s, {name} {theirs:>7.2}, ratio {:.2}", ours / theirs);
    }

    /// A plan beside memcpy of as many bytes.
    fn plan(&mut self, what: &str, plan: &Plan) {
        let size = plan.size() as usize;
        let (dest, src) = (self.dest() as usize, self.src() as usize);
        let mut memcpy = || {
            let (dest, src) =
                (std::ptr::with_exposed_provenance_mut::<u8>(dest), std::ptr::with_exposed_provenance(src));
            // SAFETY: both have more room than any plan here.
            unsafe { std::ptr::copy_nonoverlapping::<u8>(black_box(src), black_box(dest), size) };
        };
        let times = ((64 << 20) / size).max(1);
        self.compare(what, size, times, ("memcpy", &mut memcpy), &mut || {
            // SAFETY: the plans stay in the memory of the bench.
            unsafe { host::run(black_box(plan), 0..u64::MAX) };
        });
    }

    fn rows(&mut self, what: &str, row: u64, count: u64, dest_stride: i64, src_stride: i64) {
        let axis = Axis { extent: count, dest: Step::by(dest_stride), src: Step::by(src_stride) };
        let plan = Plan { dest: self.dest(), src: self.src(), row, axes: [axis].into_iter().collect() };
        self.plan(what, &plan);
    }

    fn transpose(&mut self, what: &str, side: u64, item: u64, shift: u64) {
        let long = (side * item) as i64;
        let axes = [
            Axis { extent: side, dest: Step::by(long), src: Step::by(item as i64) },
            Axis { extent: side, dest: Step::by(item as i64), src: Step::by(long) },
        ];
        let plan =
            Plan { dest: self.dest() + shift, src: self.src(), row: item, axes: axes.into_iter().collect() };
        self.plan(&format!("transpose {what}"), &plan);
        let (dest, src) = (plan.dest as usize, plan.src as usize);
        match item {
            4 => self.beside_naive::<u32>(what, side as usize, (dest, src), &plan),
            1 => self.beside_naive::<u8>(what, side as usize, (dest, src), &plan),
            2 => self.beside_naive::<u16>(what, side as usize, (dest, src), &plan),
            8 => self.beside_naive::<u64>(what, side as usize, (dest, src), &plan),
            _ => {}
        }
    }

    fn beside_naive<T: Copy>(&self, what: &str, side: usize, (dest, src): (usize, usize), plan: &Plan) {
        let mut naive = || {
            let (dest, src) = (
                std::ptr::with_exposed_provenance_mut::<T>(dest),
                std::ptr::with_exposed_provenance::<T>(src),
            );
            for i in 0..side {
                for j in 0..side {
                    // SAFETY: both are squares of that side.
                    unsafe { dest.add(i * side + j).write(src.add(j * side + i).read()) };
                }
            }
        };
        let size = side * side * size_of::<T>();
        self.compare(&format!("transpose {what}"), size, 1, ("naive", &mut naive), &mut || {
            // SAFETY: the plans stay in the memory of the bench.
            unsafe { host::run(black_box(plan), 0..u64::MAX) };
        });
    }

    /// Every `step`-th item of one end, beside the loop that one writes for it.
    fn items<T: Copy>(&mut self, what: &str, count: usize, (to, from): (usize, usize)) {
        let item = size_of::<T>();
        let axis = Axis {
            extent: count as u64,
            dest: Step::by((to * item) as i64),
            src: Step::by((from * item) as i64),
        };
        let plan =
            Plan { dest: self.dest(), src: self.src(), row: item as u64, axes: [axis].into_iter().collect() };
        let (dest, src) = (plan.dest as usize, plan.src as usize);
        let mut simple = || {
            let (dest, src) = (
                std::ptr::with_exposed_provenance_mut::<T>(black_box(dest)),
                std::ptr::with_exposed_provenance::<T>(src),
            );
            for at in 0..count {
                // SAFETY: as for the plan.
                unsafe { dest.add(at * to).write(src.add(at * from).read()) };
            }
        };
        self.compare(
            what,
            count * item,
            ((32 << 20) / (count * item)).max(1),
            ("a loop", &mut simple),
            &mut || {
                // SAFETY: the plans stay in the memory of the bench.
                unsafe { host::run(black_box(&plan), 0..u64::MAX) };
            },
        );
        self.plan(what, &plan);
    }

    fn pattern(&mut self, length: usize, size: usize) {
        let dest = self.dest();
        let pattern: Vec<u8> = (1..=length as u8).collect();
        let to = dest as usize;
        let mut memset = || {
            // SAFETY: the bench has more room than that.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(black_box(to)).write_bytes(7, size) };
        };
        let what = format!("pattern of {length} bytes, {} KiB", size >> 10);
        self.compare(&what, size, ((64 << 20) / size).max(1), ("memset", &mut memset), &mut || {
            // SAFETY: as before, and the pattern is a vector of its own.
            unsafe { host::fill(dest, size as u64, black_box(&pattern)) };
        });
    }

    /// A plan that reads one item again and again.
    fn strided_fill(&mut self, what: &str, item: u64, axes: &[(u64, i64)]) {
        let axes =
            axes.iter().map(|&(extent, stride)| Axis { extent, dest: Step::by(stride), src: Step::by(0) });
        let plan = Plan { dest: self.dest(), src: self.src(), row: item, axes: axes.collect() };
        let (to, size) = (plan.dest as usize, plan.size() as usize);
        let mut memset = || {
            // SAFETY: the bench has more room than that.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(black_box(to)).write_bytes(7, size) };
        };
        self.compare(what, size, 1, ("memset", &mut memset), &mut || {
            // SAFETY: the plans stay in the memory of the bench.
            unsafe { host::run(black_box(&plan), 0..u64::MAX) };
        });
    }

    fn indexed(&mut self, what: &str, row: u64, count: u64, limit: u64, scatter: bool) {
        let mut state = 88172645463325252_u64;
        let mut numbers: Vec<i32> = (0..limit as i32).collect();
        for at in (1..numbers.len()).rev() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            numbers.swap(at, (state % (at as u64 + 1)) as usize);
        }
        let index =
            Index { address: numbers.as_ptr().expose_provenance() as u64, stride: 4, limit: limit as i64 };
        let picked = Step { stride: row as i64, index: Some(index) };
        let plain = Step::by(row as i64);
        let (dest, src) = if scatter { (picked, plain) } else { (plain, picked) };
        let axis = Axis { extent: count, dest, src };
        let plan = Plan { dest: self.dest(), src: self.src(), row, axes: [axis].into_iter().collect() };
        self.plan(what, &plan);
        if self.only.is_empty() || self.only.iter().any(|only| what.contains(only.as_str())) {
            let mut look = || {
                // SAFETY: the numbers are in the vector.
                assert!(unsafe { host::first_bad(black_box(&plan)) }.is_none());
            };
            let time = median((0..ROUNDS).map(|_| seconds(&mut look)).collect());
            println!("{:<44} {:>7.2} ns a number", format!("check of a {what}"), time * 1e9 / count as f64);
        }
    }
}

fn main() {
    // Test runners ask bench targets for their tests.
    if std::env::args().any(|argument| argument == "--list" || argument == "--test") {
        return;
    }
    let only = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let mut bench = Bench { dest: vec![1; ROOM], src: vec![2; ROOM], only };
    let (dest, src) = (bench.dest(), bench.src());
    for size in [64, 4096, 1 << 20, 32 << 20, SIZE as u64] {
        bench.plan(&format!("line of {size} bytes"), &Plan::line(dest, src, size));
    }
    for (size, called) in [(4 << 20, "4 MiB"), (SIZE as u64, "256 MiB")] {
        for row in [64, 256, 4096] {
            let stride = row as i64;
            for (gaps, to, from) in [
                ("gaps in src", stride, stride + 64),
                ("gaps in dest", stride + 64, stride),
                ("gaps in both", stride + 64, stride + 64),
                ("odd gaps in both", stride + 13, stride + 7),
            ] {
                bench.rows(&format!("rows of {row}, {gaps}, {called}"), row, size / row, to, from);
            }
        }
        bench.rows(&format!("rows of 12 of 16, {called}"), 12, size / 16, 12, 16);
        bench.rows(&format!("rows of 3 to 4, {called}"), 3, size / 4, 4, 3);
    }
    for (count, called) in [(16, "64 bytes"), (1 << 16, "256 KiB"), (32 << 20, "128 MiB")] {
        bench.items::<u32>(&format!("every 2nd f32, {called}"), count, (1, 2));
        bench.items::<u32>(&format!("f32 to every 2nd, {called}"), count, (2, 1));
        bench.items::<u32>(&format!("every 7th f32, {called}"), count / 2, (1, 7));
        bench.items::<u64>(&format!("every 2nd f64, {called}"), count / 2, (1, 2));
    }
    for (what, side, item, shift) in [
        ("f32, 8192 squared", 8192, 4, 0),
        ("f32, 8195 squared", 8195, 4, 0),
        ("f32, 8192 squared, odd", 8192, 4, 4),
        ("f32, 8256 squared", 8256, 4, 0),
        ("f32, 2000 squared", 2000, 4, 0),
        ("f32, 100 squared", 100, 4, 0),
        ("f64, 4096 squared", 4096, 8, 0),
        ("f64, 5000 squared", 5000, 8, 0),
        ("u8, 8192 squared", 8192, 1, 0),
        ("f16, 8192 squared", 8192, 2, 0),
        ("16 bytes, 4096 squared", 4096, 16, 0),
    ] {
        bench.transpose(what, side, item, shift);
    }
    let pixels = Plan {
        dest,
        src,
        row: 4,
        axes: [
            Axis { extent: 1 << 24, dest: Step::by(12), src: Step::by(4) },
            Axis { extent: 3, dest: Step::by(4), src: Step::by(4 << 24) },
        ]
        .into_iter()
        .collect(),
    };
    bench.plan("three planes to pixels of f32", &pixels);
    let mut planes = pixels;
    for axis in &mut planes.axes {
        std::mem::swap(&mut axis.dest, &mut axis.src);
    }
    planes.axes.swap(0, 1);
    bench.plan("pixels to three planes of f32", &planes);
    bench.indexed("gather of rows of 256", 256, 1 << 20, 1 << 20, false);
    bench.indexed("scatter of rows of 256", 256, 1 << 20, 1 << 20, true);
    bench.indexed("gather of f32", 4, 1 << 16, 1 << 16, false);
    bench.strided_fill("fill of every 2nd f32", 4, &[(32 << 20, 8)]);
    bench.strided_fill("fill of 64 of every 128 bytes by f32", 4, &[(2 << 20, 128), (16, 4)]);
    bench.strided_fill("fill of 256 of every 320 bytes by f32", 4, &[(1 << 20, 320), (64, 4)]);
    for size in [1 << 14, 1 << 20, SIZE] {
        for length in [1, 3, 8, 12, 16, 100] {
            bench.pattern(length, size);
        }
    }
}
