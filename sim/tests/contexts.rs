//! What is left of a context that was reset, released or destroyed, and what it leaves current.
mod driver;
use driver::*;

const MEMORY_TYPE: u32 = 2;

/// What a context had.
struct Left {
    context: u64,
    id: u64,
    stream: u64,
    event: u64,
    plain: u64,
    pooled: u64,
    managed: u64,
    pinned: u64,
}

fn fill(sim: &Sim, context: u64) -> Left {
    let stream = sim.stream(NON_BLOCKING);
    let event = sim.event();
    ok(cuEventRecord(event, stream));
    Left {
        context,
        id: get(|id| cuCtxGetId(context, id)),
        stream,
        event,
        plain: sim.alloc(4096),
        pooled: sim.alloc_async(4096, stream),
        managed: get(|address| cuMemAllocManaged(address, 4096, 1)),
        pinned: get(|address| cuMemAllocHost_v2(address, 4096)),
    }
}

/// A primary context, filled and then reset (0) or released (1), or a created one, filled and destroyed (2). The
/// machine has no other context.
fn end_a_context(sim: &Sim, how: usize) -> Left {
    let context = match how {
        2 => get(|context| cuCtxCreate_v4(context, None, 0, 0)),
        _ => get(|context| cuDevicePrimaryCtxRetain(context, 0)),
    };
    ok(cuCtxSetCurrent(context));
    let left = fill(sim, context);
    match how {
        0 => ok(warpsim_reset_device(0)),
        1 => ok(cuDevicePrimaryCtxRelease_v2(0)),
        _ => ok(cuCtxDestroy_v2(context)),
    }
    left
}

/// A machine without a context, and a thread without a current one: its stack is not forgotten by a reset.
fn machine() -> Sim {
    let sim = Sim::choose("h200");
    ok(cuInit(0));
    while cuCtxPopCurrent_v2(&mut 0) == SUCCESS {}
    sim
}

#[test]
fn orphans_say_that_their_context_is_destroyed() {
    for how in 0..3 {
        let sim = machine();
        let left = end_a_context(&sim, how);
        is(cuCtxGetId(left.context, &mut 0), CONTEXT_IS_DESTROYED);
        is(cuStreamQuery(left.stream), CONTEXT_IS_DESTROYED);
        is(cuStreamGetId(left.stream, &mut 0), CONTEXT_IS_DESTROYED);
        is(cuStreamSynchronize(left.stream), CONTEXT_IS_DESTROYED);
        is(cuStreamWaitEvent(left.stream, left.event, 0), CONTEXT_IS_DESTROYED);
        is(cuEventRecord(left.event, left.stream), CONTEXT_IS_DESTROYED);
        is(cuEventQuery(left.event), CONTEXT_IS_DESTROYED);
        is(cuEventSynchronize(left.event), CONTEXT_IS_DESTROYED);
        is(cuMemAllocAsync(&mut 0, 64, left.stream), CONTEXT_IS_DESTROYED);
        is(cuMemFreeAsync(left.pooled, left.stream), CONTEXT_IS_DESTROYED);
        is(cuStreamDestroy_v2(left.stream), CONTEXT_IS_DESTROYED);
        is(cuEventDestroy_v2(left.event), CONTEXT_IS_DESTROYED);
        assert_eq!(["stream", "event", "context"].map(|kind| sim.live(kind)), [0; 3]);
        assert_eq!(warpsim_violation_count(), 0);
    }
}

#[test]
fn a_primary_context_stays_current_and_a_destroyed_one_does_not() {
    for how in 0..3 {
        let sim = machine();
        let left = end_a_context(&sim, how);
        let primary = how < 2;
        assert_eq!(get(|context| cuCtxGetCurrent(context)), if primary { left.context } else { 0 });
        is(cuCtxGetDevice(&mut -1), if primary { SUCCESS } else { INVALID_CONTEXT });
        // A plain free asks about the current context before the address.
        let refused = if primary { CONTEXT_IS_DESTROYED } else { INVALID_VALUE };
        is(cuMemFree_v2(left.plain), refused);
        is(cuMemFree_v2(left.managed), refused);
        is(cuMemFreeHost(left.pinned), refused);
        is(cuMemFreeAsync(left.pooled, 0), if primary { CONTEXT_IS_DESTROYED } else { INVALID_CONTEXT });
        ok(cuCtxPushCurrent_v2(left.context));
        is(cuMemAlloc_v2(&mut 0, 64), CONTEXT_IS_DESTROYED);
        is(cuCtxGetApiVersion(left.context, &mut 0), INVALID_CONTEXT);
        drop(sim);
    }
}

#[test]
fn pool_memory_outlives_its_context_and_is_freed_in_the_next() {
    for how in 0..3 {
        let sim = machine();
        let left = end_a_context(&sim, how);
        assert_eq!((sim.live("*"), sim.live("pool")), (1, 1));
        ok(cuPointerGetAttribute(&mut 0, MEMORY_TYPE, left.pooled));
        is(cuPointerGetAttribute(&mut 0, MEMORY_TYPE, left.plain), INVALID_VALUE);
        let next = sim.enter(0);
        assert_eq!(next == left.context, how < 2);
        assert_ne!(get(|id| cuCtxGetId(next, id)), left.id);
        ok(cuPointerGetAttribute(&mut 0, MEMORY_TYPE, left.pooled));
        sim.write(left.pooled, &[1; 4096]);
        assert_eq!(sim.read(left.pooled, 1), [1]);
        ok(cuMemFreeAsync(left.pooled, 0));
        ok(cuCtxSynchronize());
        assert_eq!((sim.live("*"), warpsim_device_used(0), warpsim_violation_count()), (0, 0, 0));
    }
}

#[test]
fn a_reset_gives_back_what_the_default_pool_does_not_need() {
    let sim = machine();
    let context = sim.enter(0);
    let stream = sim.stream(NON_BLOCKING);
    let block = sim.alloc_async(64 << 20, stream);
    let kept = sim.alloc_async(4096, stream);
    ok(cuMemFreeAsync(block, stream));
    assert_eq!(warpsim_device_used(0), 96 << 20);
    ok(warpsim_reset_device(0));
    assert_eq!((warpsim_device_used(0), sim.live("pool")), (32 << 20, 1));
    assert_eq!(sim.enter(0), context);
    ok(cuMemFreeAsync(kept, 0));
    ok(cuCtxSynchronize());
    assert_eq!(warpsim_device_used(0), 0);
}

#[test]
fn orphans_crash_once_there_is_another_context() {
    for how in 0..3 {
        let sim = machine();
        let crash = sim.child(|| {
            warpsim_reset();
            cuInit(0);
            let left = end_a_context(&sim, how);
            sim.enter(0);
            cuStreamQuery(left.stream) as i32
        });
        assert_eq!(crash, -libc::SIGSEGV);
        let left = end_a_context(&sim, how);
        sim.enter(0);
        warpsim_dead_stream_crashes(0);
        is(cuStreamQuery(left.stream), INVALID_HANDLE);
        assert_eq!(warpsim_violation_count(), 1);
        // The driver knows its events longer.
        is(cuEventQuery(left.event), INVALID_CONTEXT);
        assert_eq!(warpsim_violation_count(), 1);
        // The stream's handle is used again.
        assert_eq!(sim.stream(NON_BLOCKING), left.stream);
    }
}

#[test]
fn work_that_waited_goes_with_its_context_and_its_frees_are_made() {
    let sim = machine();
    sim.enter(0);
    let stream = sim.stream(NON_BLOCKING);
    let [written, freed] = [0; 2].map(|_| sim.alloc_async(64, stream));
    ok(warpsim_hold(stream));
    ok(cuMemsetD8Async(written, 7, 64, stream));
    ok(cuMemFreeAsync(freed, stream));
    assert_eq!(sim.live("pool"), 2);
    ok(warpsim_reset_device(0));
    assert_eq!(sim.live("pool"), 1);
    assert_ne!(sim.peek(written, 1), [7]);
    sim.enter(0);
    ok(cuCtxSynchronize());
}
