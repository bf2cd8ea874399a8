//! The copy threads, with as many of them as a test wants.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;

/// With so many threads, whatever the machine has.
fn crew(count: u32) -> &'static Crew {
    let crew: &'static Crew = Box::leak(Box::new(Crew::new(|| 64, || true)));
    crew.asked.store(count, Ordering::Relaxed);
    crew
}

fn threads_of(crew: &Crew) -> usize {
    lock(&crew.workers).len()
}

fn zeros(count: usize) -> Vec<AtomicUsize> {
    (0..count).map(|_| AtomicUsize::new(0)).collect()
}

fn each_once(runs: &[AtomicUsize]) -> bool {
    runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1)
}

#[test]
fn every_piece_runs_exactly_once() {
    for count in [0, 1, 3, 8] {
        let crew = crew(count);
        for pieces in [0, 1, 2, 7, 1000] {
            let runs = zeros(pieces);
            crew.for_each(pieces as u64, &|piece| {
                runs[piece as usize].fetch_add(1, Ordering::Relaxed);
            });
            assert!(each_once(&runs), "{pieces} pieces on {count} threads");
        }
        assert_eq!(threads_of(crew), count as usize);
        crew.shrink(0);
        assert_eq!(threads_of(crew), 0);
    }
}

#[test]
fn many_callers_share_the_threads_while_their_number_changes() {
    const CALLERS: usize = 6;
    let crew = crew(3);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                scope.spawn(move || {
                    for round in 0..300 {
                        let runs = zeros((caller * 7 + round) % 40);
                        crew.for_each(runs.len() as u64, &|piece| {
                            runs[piece as usize].fetch_add(1, Ordering::Relaxed);
                            if piece % 16 == 0 {
                                std::thread::yield_now();
                            }
                        });
                        assert!(each_once(&runs), "caller {caller}, round {round}");
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            for count in (0..5).cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                crew.asked.store(count, Ordering::Relaxed);
                crew.shrink(count);
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        let ended: Vec<_> = callers.into_iter().map(|caller| caller.join().is_ok()).collect();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(ended, [true; CALLERS]);
    });
    assert!(lock(&crew.desk).jobs.is_empty());
    crew.shrink(0);
    assert_eq!(threads_of(crew), 0);
}

#[test]
fn threads_take_from_jobs_in_turn() {
    let work = |_: u64| {};
    let mut desk = Desk::default();
    for number in 1..=3 {
        let (next, offered) = (0, [0, 2, 0, 3][number as usize]);
        let work: Work<'static> = Box::leak(Box::new(work));
        desk.jobs.push(Entry { number, work, next, offered, running: 0, is_awaited: false, panic: None });
    }
    let taken: Vec<_> =
        std::iter::from_fn(|| desk.take_in_turn().map(|piece| (piece.job, piece.number))).collect();
    assert_eq!(taken, [(1, 0), (3, 0), (1, 1), (3, 1), (3, 2)]);
    assert!(desk.jobs.iter().map(|job| job.running).eq([2, 0, 3]));
}

#[test]
fn a_job_is_led_step_by_step() {
    for count in [0, 1, 4] {
        let crew = crew(count);
        let runs = zeros(90);
        let done = AtomicUsize::new(0);
        let work = |piece: u64| {
            runs[piece as usize].fetch_add(1, Ordering::Relaxed);
            done.fetch_add(1, Ordering::Release);
        };
        crew.with(&work, |job| {
            for step in 1..=9 {
                job.offer(step * 10);
                let all = || done.load(Ordering::Acquire) as u64 == step * 10;
                assert!(job.wait_until(all) && all(), "on {count} threads");
                assert!(!job.wait_until(|| false));
                assert!(!job.help());
            }
        });
        assert!(each_once(&runs));
        crew.shrink(0);
    }
}

#[test]
fn what_was_not_begun_when_the_lead_ends_is_never_run() {
    let crew = crew(2);
    for _ in 0..200 {
        let over = AtomicBool::new(false);
        let runs = AtomicUsize::new(0);
        let work = |_: u64| {
            assert!(!over.load(Ordering::SeqCst));
            runs.fetch_add(1, Ordering::Relaxed);
        };
        crew.with(&work, |job| {
            job.offer(1000);
            job.help();
        });
        over.store(true, Ordering::SeqCst);
        let ended = runs.load(Ordering::Relaxed);
        assert!((1..=1000).contains(&ended));
        std::thread::yield_now();
        assert_eq!(runs.load(Ordering::Relaxed), ended);
    }
    assert!(lock(&crew.desk).jobs.is_empty());
    crew.shrink(0);
}

#[test]
fn threads_end_and_start_anew() {
    let crew = crew(5);
    for _ in 0..20 {
        crew.for_each(10, &|_| {});
        assert_eq!(threads_of(crew), 5);
        crew.shrink(2);
        assert_eq!(threads_of(crew), 2);
        crew.shrink(0);
        assert_eq!(threads_of(crew), 0);
    }
}

#[test]
fn without_leave_to_start_the_caller_does_it_all() {
    let crew: &'static Crew = Box::leak(Box::new(Crew::new(|| 8, || false)));
    let me = std::thread::current().id();
    let runs = AtomicUsize::new(0);
    crew.for_each(50, &|_| {
        assert_eq!(std::thread::current().id(), me);
        runs.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!((runs.load(Ordering::Relaxed), threads_of(crew)), (50, 0));
}

#[test]
fn no_more_than_half_of_the_cores() {
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(count(), DEFAULT_COUNT.min(cores as u32 / 2));
    let crew: &'static Crew = Box::leak(Box::new(Crew::new(|| 3, || true)));
    for (asked, got) in [(0, 0), (2, 2), (3, 3), (u32::MAX, 3)] {
        crew.asked.store(asked, Ordering::Relaxed);
        assert_eq!(crew.count(), got);
    }
    crew.for_each(10, &|_| {});
    assert_eq!(threads_of(crew), 3);
    crew.shrink(0);
}

#[test]
fn a_panic_comes_out_where_the_work_came_from() {
    let crew = crew(2);
    for bad in [0, 37, 99] {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            crew.for_each(100, &|piece| {
                if piece == bad {
                    // No message: this one is meant.
                    resume_unwind(Box::new(piece));
                }
            });
        }));
        assert_eq!(outcome.unwrap_err().downcast_ref::<u64>(), Some(&bad));
    }
    let runs = zeros(10);
    crew.for_each(10, &|piece| {
        runs[piece as usize].fetch_add(1, Ordering::Relaxed);
    });
    assert!(each_once(&runs));
    assert!(lock(&crew.desk).jobs.is_empty());
    crew.shrink(0);
}

#[test]
fn a_forked_child_is_alone_whatever_the_locks_say() {
    let crew = crew(2);
    crew.for_each(10, &|_| {});
    let busy = (lock(&crew.desk), lock(&crew.workers));
    // SAFETY: the child touches the crew, which is under test, and memory of its own, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: as above; the alarm ends it if it hangs.
        unsafe { libc::alarm(20) };
        let runs = [const { AtomicUsize::new(0) }; 100];
        crew.for_each(100, &|piece| {
            runs[piece as usize].fetch_add(1, Ordering::Relaxed);
        });
        crew.shrink(0);
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!each_once(&runs))) };
    }
    drop(busy);
    let mut status = 0;
    // SAFETY: the out-pointer is valid.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child hung, or did not do everything");
    assert_eq!(threads_of(crew), 2);
    crew.shrink(0);
}

/// The calling thread's name, and the signals of some that it does not get.
fn name_and_blocked() -> (String, Vec<i32>) {
    let mut name = [0 as libc::c_char; 16];
    // SAFETY: the buffer's length is its own, the name is terminated; the mask is plain numbers, which the call writes.
    unsafe {
        libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr(), name.len());
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        let some = [libc::SIGINT, libc::SIGTERM, libc::SIGALRM, libc::SIGUSR1, libc::SIGCHLD, libc::SIGSEGV];
        let blocked = some.into_iter().filter(|signal| libc::sigismember(&mask, *signal) == 1).collect();
        (std::ffi::CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned(), blocked)
    }
}

#[test]
fn they_have_names_and_no_signals() {
    let crew = crew(3);
    let found = Mutex::new(Vec::new());
    // Each has a piece at the same time.
    let all = Barrier::new(4);
    crew.for_each(4, &|_| {
        all.wait();
        lock(&found).push(name_and_blocked());
    });
    let mut found =
        lock(&found).drain(..).filter(|(name, _)| name.starts_with("warpmem")).collect::<Vec<_>>();
    found.sort();
    let blocked = vec![libc::SIGINT, libc::SIGTERM, libc::SIGALRM, libc::SIGUSR1, libc::SIGCHLD];
    let expected: Vec<_> = (0..3).map(|number| (format!("warpmem-copy-{number}"), blocked.clone())).collect();
    assert_eq!(found, expected);
    // The thread that started them goes on getting its own.
    assert_eq!(name_and_blocked().1, []);
    crew.shrink(0);
}

#[test]
fn host_ranges_cover_everything_once() {
    // 1 MiB pieces at most on one thread; counted by blocks of 4 KiB.
    for size in [0, 1, 4096, HOST_FROM - 1, HOST_FROM, HOST_FROM + 1, 33 << 20] {
        let blocks = zeros((size as usize).div_ceil(4096));
        let bytes = AtomicU64::new(0);
        host(size, &|range| {
            assert!(range.start.is_multiple_of(4096) && range.end <= size);
            bytes.fetch_add(range.end - range.start, Ordering::Relaxed);
            for block in range.start / 4096..range.end.div_ceil(4096) {
                blocks[block as usize].fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(bytes.load(Ordering::Relaxed), size);
        assert!(each_once(&blocks));
    }
}
