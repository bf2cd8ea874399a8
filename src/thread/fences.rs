//! A pair of fences of which one side is nearly free: the kernel makes every thread pass a barrier when the rare
//! side asks, so the frequent side need only keep the compiler from reordering.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

const UNTRIED: u8 = 0;
const ASYMMETRIC: u8 = 1;
const SYMMETRIC: u8 = 2;
/// As `SYMMETRIC`, and a thread may still be in between that found `ASYMMETRIC`.
const GIVING_UP: u8 = 3;
static FENCES: AtomicU8 = AtomicU8::new(UNTRIED);

/// For the frequent side: what comes before it is seen, by whoever made a `heavy_fence`, before what comes after.
#[inline(always)]
pub fn light_fence() {
    if FENCES.load(Ordering::Relaxed) == ASYMMETRIC {
        compiler_fence(Ordering::SeqCst);
    } else {
        strong_light_fence();
    }
}

#[cold]
fn strong_light_fence() {
    if FENCES.load(Ordering::Relaxed) == UNTRIED {
        let works = barrier_on_all();
        let found = if works { ASYMMETRIC } else { SYMMETRIC };
        // The first answer is everybody's.
        let _ = FENCES.compare_exchange(UNTRIED, found, Ordering::SeqCst, Ordering::SeqCst);
    }
    fence(Ordering::SeqCst);
}

/// Makes every thread pass a barrier. A forked child has to register anew first.
fn barrier_on_all() -> bool {
    membarrier(PRIVATE_EXPEDITED) || membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED)
}

/// For the rare side.
#[cold]
pub fn heavy_fence() {
    fence(Ordering::SeqCst);
    match FENCES.load(Ordering::SeqCst) {
        ASYMMETRIC if !barrier_on_all() => give_up_asymmetry(),
        GIVING_UP => give_up_asymmetry(),
        _ => {}
    }
}

/// The kernel's barrier is not to be had any more, since the process filters its system calls. From now on both
/// sides pay. A thread that took the cheap side just before is waited for: what a processor has written is seen by
/// all long before the time is over.
#[cold]
fn give_up_asymmetry() {
    FENCES.store(GIVING_UP, Ordering::SeqCst);
    std::thread::sleep(std::time::Duration::from_millis(5));
    FENCES.store(SYMMETRIC, Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

fn membarrier(command: i32) -> bool {
    // SAFETY: takes no pointers; a kernel without it answers ENOSYS.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
