//! Failures on order, the call log, counters, and what other libraries might do.
mod driver;
use std::ffi::CString;
use std::thread;

use driver::*;

fn fail(entry: &str, nth: u64, code: u32) {
    let entry = CString::new(entry).expect("no zero byte");
    // SAFETY: a terminated text.
    ok(unsafe { warpsim_fail(entry.as_ptr(), nth, code) });
}

fn line(index: usize) -> String {
    let mut text = [0; 300];
    // SAFETY: a buffer of the length given.
    let needed = unsafe { warpsim_log_get(index, text.as_mut_ptr(), text.len()) };
    assert!(needed > 0 && needed < text.len());
    // SAFETY: the line is terminated.
    unsafe { std::ffi::CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
}

#[test]
fn the_nth_call_fails_once_and_does_nothing() {
    let sim = Sim::start("h200");
    fail("cuMemAlloc_v2", 2, 719);
    let first = sim.alloc(64);
    let mut address = 5;
    is(cuMemAlloc_v2(&mut address, 64), 719);
    assert_eq!((address, sim.live("default")), (5, 1));
    assert!(sim.logged("CUDA_ERROR_LAUNCH_FAILED; planned"));
    let third = sim.alloc(64);
    fail("cuMemFree_v2", 0, 46);
    is(cuMemFree_v2(first), 46);
    is(cuMemFree_v2(first), 46);
    warpsim_fail_clear();
    ok(cuMemFree_v2(first));
    ok(cuMemFree_v2(third));
}

#[test]
fn cuinit_and_queries_can_fail_too() {
    let _sim = Sim::choose("h200");
    fail("cuInit", 1, 999);
    is(cuInit(0), 999);
    ok(cuInit(0));
    fail("*", 1, 700);
    is(cuCtxSynchronize(), 700);
}

#[test]
fn everything_fails_after_a_number_of_calls() {
    let sim = Sim::start("h200");
    let block = sim.alloc(64);
    warpsim_fail_after(1, 719);
    is(cuMemFree_v2(block + 1), INVALID_VALUE);
    is(cuMemFree_v2(block), 719);
    is(cuCtxSynchronize(), 719);
}

#[test]
fn memory_runs_out_where_a_test_wants_it() {
    let sim = Sim::start("h200x2");
    let stream = sim.stream(NON_BLOCKING);
    warpsim_out_of_memory_at_size(1000);
    ok(cuMemFree_v2(sim.alloc(999)));
    is(cuMemAlloc_v2(&mut 0, 1000), OUT_OF_MEMORY);
    is(cuMemAllocAsync(&mut 0, 1000, stream), OUT_OF_MEMORY);
    is(cuMemAllocHost_v2(&mut 0, 1000), OUT_OF_MEMORY);
    is(cuMemAllocManaged(&mut 0, 1000, 1), OUT_OF_MEMORY);
    warpsim_out_of_memory_at_size(0);
    warpsim_out_of_memory_above_total(3 << 20);
    let block = sim.alloc(2 * MIB);
    sim.enter(1);
    is(cuMemAlloc_v2(&mut 0, 2 * MIB), OUT_OF_MEMORY);
    ok(cuMemFree_v2(block));
    ok(cuMemFree_v2(sim.alloc(2 * MIB)));
}

#[test]
fn the_driver_can_be_gone() {
    let sim = Sim::start("h200");
    let block = sim.alloc(64);
    warpsim_deinitialize();
    is(cuMemFree_v2(block), DEINITIALIZED);
    is(cuInit(0), DEINITIALIZED);
    is(cuCtxSetCurrent(0), DEINITIALIZED);
}

#[test]
fn the_log_is_in_order_and_bounded() {
    let sim = Sim::start("h200");
    warpsim_log_clear();
    let block = sim.alloc(777);
    ok(cuMemFree_v2(block));
    is(cuMemFree_v2(block), INVALID_VALUE);
    assert_eq!(warpsim_log_count(), 3);
    assert!(line(0).contains("cuMemAlloc_v2(") && line(0).ends_with(", 777) = CUDA_SUCCESS"), "{}", line(0));
    assert!(line(1).contains(&format!("cuMemFree_v2({block:#x}) = CUDA_SUCCESS")), "{}", line(1));
    assert!(line(2).ends_with("CUDA_ERROR_INVALID_VALUE"), "{}", line(2));
    assert!(sim.logged("= CUDA_ERROR_INVALID_VALUE") && !sim.logged("cuMemAllocManaged"));
    warpsim_log_capacity(2);
    ok(cuCtxSynchronize());
    assert_eq!((warpsim_log_count(), warpsim_log_total()), (2, 4));
    assert!(line(1).contains("cuCtxSynchronize()"));
    warpsim_log_capacity(0);
    ok(cuCtxSynchronize());
    assert_eq!(warpsim_log_count(), 0);
    assert_eq!((sim.calls("cuMemFree_v2"), sim.calls("cuCtxSynchronize"), sim.calls("cuMemcpy")), (2, 2, 0));
}

#[test]
fn a_device_can_be_reset_from_outside() {
    let sim = Sim::start("h200");
    let block = sim.alloc(64);
    let mut context = 0;
    ok(cuCtxGetCurrent(&mut context));
    let id = get(|id| cuCtxGetId(context, id));
    ok(warpsim_reset_device(0));
    is(cuMemFree_v2(block), CONTEXT_IS_DESTROYED);
    is(cuCtxGetId(context, &mut 0), CONTEXT_IS_DESTROYED);
    assert_eq!(sim.enter(0), context, "the handle comes back to life");
    assert_ne!(get(|id| cuCtxGetId(context, id)), id, "as another context");
    is(warpsim_reset_device(9), INVALID_DEVICE);
}

#[test]
fn created_contexts_live_and_die() {
    let sim = Sim::start("h200");
    let primary = get(|context| cuCtxGetCurrent(context));
    let created = get(|context| cuCtxCreate_v4(context, None, 0, 0));
    assert_eq!(get(|context| cuCtxGetCurrent(context)), created);
    sim.alloc(64);
    ok(cuCtxDestroy_v2(created));
    assert_eq!(get(|context| cuCtxGetCurrent(context)), primary);
    assert_eq!(sim.live("default"), 0);
    is(cuCtxDestroy_v2(created), CONTEXT_IS_DESTROYED);
    is(cuCtxDestroy_v2(primary), INVALID_CONTEXT);
    ok(cuCtxPushCurrent_v2(created));
    is(cuMemAlloc_v2(&mut 0, 64), CONTEXT_IS_DESTROYED);
    ok(cuCtxPopCurrent_v2(&mut 0));
    is(cuCtxSetCurrent(12345), INVALID_CONTEXT);
    ok(cuCtxSetCurrent(0));
    is(cuCtxPopCurrent_v2(&mut 0), INVALID_CONTEXT);
}

#[test]
fn many_threads_share_the_driver() {
    let sim = Sim::start("h200x2");
    let context = get(|context| cuCtxGetCurrent(context));
    thread::scope(|scope| {
        for seed in 0..4_usize {
            let sim = &sim;
            scope.spawn(move || {
                ok(cuCtxSetCurrent(context));
                let stream = sim.stream(NON_BLOCKING);
                for i in 0..500 {
                    let size = 1 + (i * 37 + seed * 101) % 9000;
                    let (plain, pooled) = (sim.alloc(size), sim.alloc_async(size, stream));
                    ok(cuMemsetD8Async(pooled, seed as u8, size, stream));
                    ok(cuMemcpyDtoDAsync_v2(plain, pooled, size, stream));
                    ok(cuMemFreeAsync(pooled, stream));
                    ok(cuStreamSynchronize(stream));
                    assert_eq!(sim.read(plain, size), vec![seed as u8; size]);
                    ok(cuMemFree_v2(plain));
                }
                ok(cuStreamDestroy_v2(stream));
            });
        }
    });
    assert_eq!((sim.live("*"), sim.live("stream"), warpsim_violation_count()), (0, 0, 0));
}
