//! Order: what waits for what when a stream is kept busy, events, host functions, dead streams.
mod driver;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use driver::*;

#[test]
fn held_work_waits_and_is_done_in_order() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    let block = sim.alloc(4);
    ok(cuMemsetD8_v2(block, 1, 4));
    ok(warpsim_hold(stream));
    is(cuStreamQuery(stream), NOT_READY);
    let event = sim.event();
    ok(cuEventQuery(event));
    ok(cuMemsetD8Async(block, 2, 4, stream));
    ok(cuEventRecord(event, stream));
    ok(cuMemsetD8Async(block, 3, 2, stream));
    is(cuEventQuery(event), NOT_READY);
    assert_eq!(sim.peek(block, 4), [1; 4]);
    ok(warpsim_release(stream));
    ok(cuStreamQuery(stream));
    ok(cuEventQuery(event));
    assert_eq!(sim.peek(block, 4), [3, 3, 2, 2]);
}

#[test]
fn a_synchronise_releases_what_it_waits_for_and_no_more() {
    let sim = Sim::start("h200");
    let [first, second, other] = [0; 3].map(|_| sim.stream(NON_BLOCKING));
    for stream in [first, other] {
        ok(warpsim_hold(stream));
    }
    let event = sim.event();
    ok(cuEventRecord(event, first));
    ok(cuStreamWaitEvent(second, event, 0));
    is(cuStreamQuery(second), NOT_READY);
    ok(cuStreamSynchronize(second));
    ok(cuStreamQuery(first));
    is(cuStreamQuery(other), NOT_READY);
    ok(cuCtxSynchronize());
    ok(cuStreamQuery(other));
}

#[test]
fn a_hold_that_comes_after_an_event_stays_when_the_event_is_waited_for() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    let event = sim.event();
    ok(warpsim_hold(stream));
    ok(cuEventRecord(event, stream));
    ok(warpsim_hold(stream));
    ok(cuEventSynchronize(event));
    is(cuStreamQuery(stream), NOT_READY);
    warpsim_release_all();
    ok(cuStreamQuery(stream));
}

#[test]
fn default_streams_have_numbers_of_their_own() {
    let sim = Sim::start("h200");
    let context = get(|context| cuCtxGetCurrent(context));
    let number = |stream| get(|id| cuStreamGetId(stream, id));
    let (legacy, own) = (number(0), number(2));
    assert_eq!((number(1), number(2)), (legacy, own));
    let other = thread::spawn(move || {
        is(cuStreamGetId(2, &mut 0), INVALID_CONTEXT);
        ok(cuCtxSetCurrent(context));
        [0, 2].map(|stream| get(|id| cuStreamGetId(stream, id)))
    });
    let [legacy_there, own_there] = other.join().expect("no panic");
    assert_eq!(legacy_there, legacy);
    assert!(own_there != own && own != legacy);
    is(cuStreamDestroy_v2(0), INVALID_HANDLE);
    drop(sim);
}

#[test]
fn a_later_record_does_not_change_what_was_waited_for() {
    let sim = Sim::start("h200");
    let [a, b, c] = [0; 3].map(|_| sim.stream(NON_BLOCKING));
    let event = sim.event();
    ok(warpsim_hold(a));
    ok(warpsim_hold(b));
    ok(cuEventRecord(event, a));
    ok(cuStreamWaitEvent(c, event, 0));
    ok(cuEventRecord(event, b));
    ok(warpsim_release(a));
    ok(cuStreamQuery(c));
    is(cuEventQuery(event), NOT_READY);
    ok(warpsim_release(b));
    ok(cuEventQuery(event));
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_only() {
    let sim = Sim::start("h200");
    let (blocking, free) = (sim.stream(0), sim.stream(NON_BLOCKING));
    let block = sim.alloc(8);
    ok(warpsim_hold(free));
    ok(cuMemsetD8Async(block, 1, 8, 0));
    ok(cuStreamQuery(0));
    ok(warpsim_hold(blocking));
    ok(cuMemsetD8Async(block, 2, 8, 0));
    is(cuStreamQuery(0), NOT_READY);
    let late = sim.stream(0);
    ok(cuMemsetD8Async(block, 3, 8, late));
    is(cuStreamQuery(late), NOT_READY);
    assert_eq!(sim.peek(block, 1), [1]);
    // A copy without a stream goes over the legacy stream, so it comes after all of this.
    assert_eq!(sim.read(block, 1), [3]);
    ok(cuStreamQuery(late));
    is(cuStreamQuery(free), NOT_READY);
}

#[test]
fn a_queued_free_takes_effect_in_its_turn() {
    let sim = Sim::start("h200");
    let [user, freer] = [0; 2].map(|_| sim.stream(NON_BLOCKING));
    let block = sim.alloc_async(4096, user);
    ok(cuMemsetD8Async(block, 1, 4096, user));
    ok(warpsim_hold(freer));
    ok(cuMemFreeAsync(block, freer));
    is(cuMemFreeAsync(block, freer), INVALID_VALUE);
    is(cuMemFree_v2(block), INVALID_VALUE);
    assert_eq!(sim.live("pool"), 1);
    assert_eq!(sim.peek(block, 1), [1]);
    assert_ne!(sim.alloc_async(4096, user), block);
    ok(warpsim_release(freer));
    assert_eq!(sim.peek(block, 1), [0xDD]);
    assert_eq!(sim.alloc_async(4096, user), block);
}

#[test]
fn work_on_memory_that_was_freed_before_its_turn_is_a_violation() {
    let sim = Sim::start("h200");
    let [user, freer] = [0; 2].map(|_| sim.stream(NON_BLOCKING));
    let block = sim.alloc_async(4096, user);
    ok(warpsim_hold(user));
    ok(cuMemsetD8Async(block, 1, 16, user));
    ok(cuMemFreeAsync(block, freer));
    assert_eq!(warpsim_violation_count(), 0);
    ok(warpsim_release(user));
    assert_eq!(warpsim_violation_count(), 1);
}

type Free = fn(u64) -> u32;

#[test]
fn a_plain_free_waits_for_the_device() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    let pinned = get(|address| cuMemAllocHost_v2(address, 64));
    let frees: [(u64, Free); 2] = [(sim.alloc(64), |at| cuMemFree_v2(at)), (pinned, |at| cuMemFreeHost(at))];
    for (block, free) in frees {
        ok(warpsim_hold(stream));
        ok(cuMemsetD8Async(block, 1, 64, stream));
        ok(free(block));
        ok(cuStreamQuery(stream));
    }
    assert_eq!((sim.live("*"), warpsim_violation_count()), (0, 0));
}

#[test]
fn pageable_sources_are_taken_at_once_and_pinned_ones_when_the_copy_runs() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    let (from_pageable, from_pinned) = (sim.alloc(4), sim.alloc(4));
    let pinned = get(|address| cuMemAllocHost_v2(address, 4));
    // SAFETY: pinned memory of four bytes, used by this thread alone.
    let pinned_bytes = unsafe { std::slice::from_raw_parts_mut(pinned as usize as *mut u8, 4) };
    let mut pageable = *b"old!";
    pinned_bytes.copy_from_slice(b"old!");
    ok(warpsim_hold(stream));
    // SAFETY: both sources are four bytes.
    unsafe {
        ok(cuMemcpyHtoDAsync_v2(from_pageable, pageable.as_ptr().cast(), 4, stream));
        ok(cuMemcpyHtoDAsync_v2(from_pinned, pinned_bytes.as_ptr().cast(), 4, stream));
    }
    pageable.copy_from_slice(b"new!");
    pinned_bytes.copy_from_slice(b"new!");
    ok(warpsim_release(stream));
    assert_eq!((sim.read(from_pageable, 4), sim.read(from_pinned, 4)), (b"old!".to_vec(), b"new!".to_vec()));
    assert_eq!(pageable, *b"new!");
}

static SEEN: AtomicU32 = AtomicU32::new(0);
static COUNT: AtomicU64 = AtomicU64::new(0);

extern "C" fn call_back_in(count: &'static AtomicU64) {
    // Would hang if the lock were held.
    SEEN.store(cuCtxSynchronize(), Ordering::SeqCst);
    count.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn host_functions_run_unlocked_in_order_and_may_not_wait() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    ok(cuLaunchHostFunc(stream, Some(call_back_in), &COUNT));
    assert_eq!(COUNT.load(Ordering::SeqCst), 1);
    is(SEEN.load(Ordering::SeqCst), NOT_PERMITTED);
    ok(warpsim_hold(stream));
    ok(cuLaunchHostFunc(stream, Some(call_back_in), &COUNT));
    assert_eq!(COUNT.load(Ordering::SeqCst), 1);
    ok(cuStreamSynchronize(stream));
    assert_eq!(COUNT.load(Ordering::SeqCst), 2);
    is(cuLaunchHostFunc(stream, None, &COUNT), INVALID_VALUE);
}

static INNER: AtomicU64 = AtomicU64::new(0);
static STREAMS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

extern "C" fn count_inner(count: &'static AtomicU64) {
    count.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn call_what_is_permitted(block: &'static AtomicU64) {
    let [own, other] = [&STREAMS[0], &STREAMS[1]].map(|stream| stream.load(Ordering::SeqCst));
    let address = block.load(Ordering::SeqCst);
    is(cuCtxGetCurrent(&mut 0), NOT_PERMITTED);
    is(cuMemcpyAsync(address, address + 8, 8, other), NOT_PERMITTED);
    ok(cuStreamQuery(other));
    is(cuStreamQuery(own), NOT_READY);
    ok(cuMemsetD8Async(address, 4, 8, other));
    ok(cuStreamQuery(other));
    // One that is launched here runs when this one is back.
    ok(cuLaunchHostFunc(other, Some(count_inner), &INNER));
    assert_eq!(INNER.load(Ordering::SeqCst), 0);
    is(cuStreamQuery(other), NOT_READY);
    let mut mode = 2;
    ok(cuThreadExchangeStreamCaptureMode(&mut mode));
    assert_eq!(mode, 0, "a thread of the driver's own");
}

#[test]
fn host_functions_may_put_fills_and_other_host_functions_on_streams() {
    static BLOCK: AtomicU64 = AtomicU64::new(0);
    let sim = Sim::start("h200");
    for place in &STREAMS {
        place.store(sim.stream(NON_BLOCKING), Ordering::SeqCst);
    }
    BLOCK.store(sim.alloc(16), Ordering::SeqCst);
    let mut mode = 1;
    ok(cuThreadExchangeStreamCaptureMode(&mut mode));
    ok(cuLaunchHostFunc(STREAMS[0].load(Ordering::SeqCst), Some(call_what_is_permitted), &BLOCK));
    ok(cuCtxSynchronize());
    assert_eq!(INNER.load(Ordering::SeqCst), 1);
    assert_eq!(sim.read(BLOCK.load(Ordering::SeqCst), 8), [4; 8]);
    ok(cuThreadExchangeStreamCaptureMode(&mut mode));
    assert_eq!(mode, 1, "the thread's own mode is as it was");
}

#[test]
fn without_auto_release_a_synchronise_waits_for_another_thread() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    warpsim_auto_release(0);
    ok(warpsim_hold(stream));
    let done = AtomicU32::new(0);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            ok(cuStreamSynchronize(stream));
            done.store(1, Ordering::SeqCst);
        });
        thread::sleep(std::time::Duration::from_millis(30));
        assert_eq!(done.load(Ordering::SeqCst), 0);
        ok(warpsim_release(stream));
        waiter.join().expect("the waiter comes back");
    });
    assert_eq!(done.load(Ordering::SeqCst), 1);
    drop(sim);
}

#[test]
fn dead_streams_crash_or_are_told() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    let id = get(|id| cuStreamGetId(stream, id));
    ok(cuStreamDestroy_v2(stream));
    let crash = sim.child(|| {
        warpsim_reset();
        cuInit(0);
        sim.enter(0);
        let stream = sim.stream(0);
        cuStreamDestroy_v2(stream);
        cuStreamQuery(stream) as i32
    });
    assert_eq!(crash, -libc::SIGSEGV);
    warpsim_dead_stream_crashes(0);
    is(cuStreamQuery(stream), INVALID_HANDLE);
    assert!(sim.logged("dead stream"));
    let next = sim.stream(NON_BLOCKING);
    assert_eq!(next, stream, "the handle is used again");
    assert_ne!(get(|id| cuStreamGetId(next, id)), id, "the number is not");
}

#[test]
fn a_destroyed_stream_still_does_its_work() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    let block = sim.alloc(4);
    ok(warpsim_hold(stream));
    ok(cuMemsetD8Async(block, 4, 4, stream));
    ok(cuStreamDestroy_v2(stream));
    assert_eq!(sim.peek(block, 1), [0xCD]);
    ok(cuCtxSynchronize());
    assert_eq!(sim.peek(block, 1), [4]);
    assert_eq!(sim.live("stream"), 0);
}

#[test]
fn events_tell_time_and_their_context() {
    let sim = Sim::start("h200x2");
    let stream = sim.stream(NON_BLOCKING);
    let [start, end] = [0; 2].map(|_| sim.event());
    is(cuEventElapsedTime_v2(&mut 0.0, start, end), INVALID_HANDLE);
    ok(cuEventRecord(start, stream));
    ok(warpsim_hold(stream));
    ok(cuEventRecord(end, stream));
    is(cuEventElapsedTime_v2(&mut 0.0, start, end), NOT_READY);
    thread::sleep(std::time::Duration::from_millis(5));
    ok(cuEventSynchronize(end));
    assert!(get(|time| cuEventElapsedTime_v2(time, start, end)) >= 5.0);
    sim.enter(1);
    let foreign = sim.event();
    is(cuEventRecord(foreign, stream), INVALID_HANDLE);
    let there = sim.stream(NON_BLOCKING);
    ok(cuStreamWaitEvent(there, end, 0));
    ok(cuEventDestroy_v2(end));
    is(cuEventQuery(end), INVALID_HANDLE);
}

#[test]
fn the_capture_mode_belongs_to_the_thread() {
    let sim = Sim::start("h200");
    let exchange = |mut mode: u32| {
        ok(cuThreadExchangeStreamCaptureMode(&mut mode));
        mode
    };
    assert_eq!((exchange(2), exchange(1)), (0, 2));
    thread::spawn(move || assert_eq!(exchange(2), 0)).join().expect("no panic");
    assert_eq!(exchange(0), 1);
    is(cuStreamBeginCapture_v2(sim.stream(0), 7), INVALID_VALUE);
}
