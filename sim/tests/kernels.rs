//! Kernels and the memory they meet: on each kind of machine, over peers, under seeds; what a fault ends, and what not.
mod driver;
use driver::*;

const DEVICE_POINTER: u32 = 3;

const TOUCH: &str = ".version 7.0\n.target sm_70\n.address_size 64\n
.visible .entry touch(.param .u64 at) { .reg .b64 %a; .reg .b32 %v; ld.param.u64 %a, [at];
  ld.u32 %v, [%a]; add.u32 %v, %v, 1; st.u32 [%a], %v; ret; }
.visible .entry look(.param .u64 at) { .reg .b64 %a; .reg .b32 %v; ld.param.u64 %a, [at]; ld.volatile.u32 %v, [%a]; ret; }
.visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 every) { .reg .b64 %a<3>; .reg .b32 %r<3>;
  ld.param.u64 %a0, [to]; ld.param.u64 %a1, [from]; ld.param.u32 %r0, [every]; mov.u32 %r1, %tid.x; mul.lo.u32 %r1, %r1, %r0;
  mul.wide.u32 %a2, %r1, 4; add.u64 %a0, %a0, %a2; add.u64 %a1, %a1, %a2; ld.global.u32 %r2, [%a1]; st.global.u32 [%a0], %r2; ret; }
.visible .entry stop() { trap; }
.visible .entry endless() { again: bra again; }
.visible .entry deadlock() { .reg .b32 %r; .reg .pred %p; mov.u32 %r, %tid.x; setp.eq.u32 %p, %r, 0; @%p bra one; bar.sync 1; ret; one: bar.sync 2; ret; }
";

/// Runs a kernel with one parameter, waits, and says what came back.
fn at(sim: &Sim, kernel: &str, address: u64) -> u32 {
    match sim.load(TOUCH) {
        Ok(module) => match sim.launch(sim.function(module, kernel), 1, 1, 0, &[address]) {
            SUCCESS => cuCtxSynchronize(),
            code => code,
        },
        Err(code) => code,
    }
}

fn touch(sim: &Sim, address: u64) -> u32 {
    at(sim, "touch", address)
}

/// Violations, as far as they say something.
fn violations() -> usize {
    warpsim_violation_count()
}

#[test]
fn each_machine_lets_its_kernels_touch_what_it_can() {
    for (machine, pageable) in [
        ("h200x2", false),
        ("discrete", false),
        ("hmm", true),
        ("ats", true),
        ("gb10", true),
        ("grace", true),
        ("wsl", false),
        ("vgpu", false),
    ] {
        let sim = Sim::start(machine);
        let plain = sim.alloc(64);
        ok(cuMemsetD32_v2(plain, 41, 16));
        ok(touch(&sim, plain));
        assert_eq!(sim.read(plain, 4), 42_u32.to_le_bytes(), "{machine}");
        let pinned = get(|out: &mut u64| cuMemAllocHost_v2(out, 64));
        ok(touch(&sim, pinned));
        if machine != "vgpu" {
            let managed = get(|out: &mut u64| cuMemAllocManaged(out, 64, 1));
            ok(touch(&sim, managed));
            let pooled = sim.alloc_async(64, 0);
            ok(touch(&sim, pooled));
        }
        let mut own = vec![5_u32; 4096];
        let address = own.as_mut_ptr() as u64;
        is(touch(&sim, address), if pageable { SUCCESS } else { ILLEGAL_ADDRESS });
        assert_eq!(own[0], if pageable { 6 } else { 5 }, "{machine}");
    }
}

/// Page tables are the GPU's, the questions about addresses a context's.
#[test]
fn what_one_context_was_given_serves_the_kernels_of_all_on_its_gpu() {
    let reach = |address| cuPointerGetAttribute(&mut 0, DEVICE_POINTER, address) == SUCCESS;
    let sim = Sim::start("h200x2");
    let owner = sim.enter(0);
    let plain = sim.alloc(64);
    let primary = sim.enter(1);
    let second = get(|context| cuCtxCreate_v4(context, None, 0, 1));
    ok(cuCtxEnablePeerAccess(owner, 0));
    assert!(reach(plain));
    ok(touch(&sim, plain));
    ok(cuCtxSetCurrent(primary));
    assert!(!reach(plain));
    ok(touch(&sim, plain));
    // The end of the context that was given access is the end of it.
    ok(cuCtxDestroy_v2(second));
    is(touch(&sim, plain), ILLEGAL_ADDRESS);
}

#[test]
fn memory_of_a_second_context_is_open_to_its_own_peers_only() {
    let sim = Sim::start("h200x2");
    let owner = sim.enter(0);
    let other = get(|context| cuCtxCreate_v4(context, None, 0, 0));
    let plain = sim.alloc(64);
    sim.enter(1);
    ok(cuCtxEnablePeerAccess(owner, 0));
    is(cuPointerGetAttribute(&mut 0, DEVICE_POINTER, plain), INVALID_VALUE);
    ok(cuCtxEnablePeerAccess(other, 0));
    ok(touch(&sim, plain));
    ok(cuCtxDisablePeerAccess(other));
    is(touch(&sim, plain), ILLEGAL_ADDRESS);
}

#[test]
fn bad_addresses_are_illegal_and_never_a_crash() {
    for machine in ["h200", "hmm"] {
        for (address, code) in [
            (0, ILLEGAL_ADDRESS),
            (8, ILLEGAL_ADDRESS),
            (6, MISALIGNED_ADDRESS),
            (0xFFFF_FFFF_FFFF_FFF0, ILLEGAL_ADDRESS),
            (0x8000_0000_0000, ILLEGAL_ADDRESS),
            (0x1234_5678_9ABC_DEF0, ILLEGAL_ADDRESS),
        ] {
            let sim = Sim::start(machine);
            is(touch(&sim, address), code);
            let sim = {
                drop(sim);
                Sim::start(machine)
            };
            is(at(&sim, "look", address), code);
        }
        // Code of the program can be read at most.
        let sim = Sim::start(machine);
        let code = (touch as *const () as u64) & !3;
        is(touch(&sim, code), ILLEGAL_ADDRESS);
    }
    let sim = Sim::start("h200");
    let block = sim.alloc(1024);
    is(touch(&sim, block + 1024), ILLEGAL_ADDRESS);
    assert!(sim.logged("kernel 'touch' on stream"));
    assert!(sim.logged("a read of 4 bytes at"));
}

#[test]
fn registered_memory_is_met_at_its_own_address_or_at_its_alias() {
    for machine in ["h200", "h200,registered_host_pointer=0"] {
        let mut own = vec![1_u32; 2048];
        let host = own.as_mut_ptr();
        let alias = {
            let sim = Sim::start(machine);
            // SAFETY: the memory lives until it is unregistered.
            ok(unsafe { cuMemHostRegister_v2(host.cast(), 8192, 0) });
            let mut alias = 0;
            // SAFETY: as above.
            ok(unsafe { cuMemHostGetDevicePointer_v2(&mut alias, host.cast(), 0) });
            ok(touch(&sim, alias));
            assert_eq!(own[0], 2);
            let same = alias == host as u64;
            is(touch(&sim, host as u64), if same { SUCCESS } else { ILLEGAL_ADDRESS });
            same
        };
        assert_eq!(alias, machine == "h200");
    }
}

#[test]
fn a_kernel_passes_the_fence_around_managed_memory() {
    for seed in 1..30 {
        let sim = Sim::choose("wsl");
        warpsim_schedule(seed);
        ok(cuInit(0));
        sim.enter(0);
        let stream = sim.stream(NON_BLOCKING);
        let managed = get(|out: &mut u64| cuMemAllocManaged(out, 64, 1));
        let module = sim.load(TOUCH).map_err(name).expect("a good program");
        for _ in 0..3 {
            ok(sim.launch(sim.function(module, "touch"), 1, 1, stream, &[managed]));
        }
        ok(cuStreamSynchronize(stream));
        assert_eq!(sim.peek(managed, 4), [3, 0, 0, 0]);
        assert_eq!(violations(), 0);
    }
}

#[test]
fn freed_memory_is_no_memory() {
    let sim = Sim::start("h200");
    let block = sim.alloc(64);
    ok(cuMemFree_v2(block));
    assert_eq!(violations(), 0);
    is(touch(&sim, block), ILLEGAL_ADDRESS);
    assert_eq!(violations(), 1);
}

#[test]
fn a_fault_ends_the_process_or_the_context_as_the_machine_says() {
    // As measured: everything, for ever.
    {
        let sim = Sim::start("h200x2");
        let other = sim.enter(1);
        sim.enter(0);
        is(touch(&sim, 8), ILLEGAL_ADDRESS);
        ok(cuCtxSetCurrent(other));
        let mut block = 0;
        is(cuMemAlloc_v2(&mut block, 64), ILLEGAL_ADDRESS);
        ok(warpsim_reset_device(0));
        ok(cuCtxSetCurrent(0));
        is(cuDevicePrimaryCtxRetain(&mut block, 0), ILLEGAL_ADDRESS);
    }
    // The kernel's own context, until it ends.
    let sim = Sim::start("h200x2,fault=context");
    let stream = sim.stream(NON_BLOCKING);
    let block = sim.alloc(64);
    is(touch(&sim, 8), ILLEGAL_ADDRESS);
    is(cuStreamQuery(stream), ILLEGAL_ADDRESS);
    is(cuMemFree_v2(block), ILLEGAL_ADDRESS);
    sim.enter(1);
    let other = sim.alloc(64);
    ok(touch(&sim, other));
    is(cuStreamSynchronize(stream), ILLEGAL_ADDRESS);
    ok(cuStreamQuery(sim.stream(0)));
    ok(warpsim_reset_device(0));
    sim.enter(0);
    let block = sim.alloc(64);
    ok(touch(&sim, block));
}

#[test]
fn traps_endless_loops_and_deadlocks_end() {
    for (kernel, threads, code) in
        [("stop", 1, LAUNCH_FAILED), ("endless", 1, LAUNCH_TIMEOUT), ("deadlock", 2, LAUNCH_TIMEOUT)]
    {
        let sim = Sim::start("h200");
        warpsim_kernel_limit(1_000_000);
        let module = sim.load(TOUCH).map_err(name).expect("a good program");
        ok(sim.launch(sim.function(module, kernel), 1, threads, 0, &[]));
        is(cuCtxSynchronize(), code);
        is(cuCtxSynchronize(), code);
    }
}

#[test]
fn modules_end_with_their_context_and_take_their_variables_along() {
    let sim = Sim::start("h200x2");
    let text = ".version 7.0\n.target sm_70\n.global .align 4 .u32 v = 3;\n.visible .entry k() { ret; }";
    let module = sim.load(text).map_err(name).expect("a good program");
    assert_eq!((sim.live("module"), sim.live("variable"), sim.live("*")), (1, 1, 0));
    let function = sim.function(module, "k");
    ok(warpsim_reset_device(0));
    assert_eq!((sim.live("module"), sim.live("variable")), (0, 0));
    sim.enter(0);
    is(sim.launch(function, 1, 1, 0, &[]), INVALID_HANDLE);
    is(cuModuleUnload(module), INVALID_HANDLE);
    assert_eq!(warpsim_device_used(0), 0);
}

#[test]
fn a_late_fault_is_heard_by_the_next_call_that_asks() {
    for seed in 1..60 {
        let sim = Sim::choose("h200");
        warpsim_schedule(seed);
        ok(cuInit(0));
        sim.enter(0);
        let (stream, block) = (sim.stream(NON_BLOCKING), sim.alloc(64));
        let module = sim.load(TOUCH).map_err(name).expect("a good program");
        let function = sim.function(module, "touch");
        ok(sim.launch(function, 1, 1, stream, &[8]));
        // Work behind it is never done.
        let code = cuMemsetD8Async(block, 7, 64, stream);
        assert!(matches!(code, SUCCESS | ILLEGAL_ADDRESS), "{code}");
        is(cuStreamSynchronize(stream), ILLEGAL_ADDRESS);
        assert_eq!(sim.peek(block, 4), [0xCD; 4]);
    }
}

/// Two kernels on two streams that copy every second word of a block, beside each other or over each other.
#[track_caller]
fn races(offset: u64, joined: bool) -> usize {
    let mut found = 0;
    for seed in 1..30 {
        let sim = Sim::choose("h200");
        warpsim_schedule(seed);
        warpsim_races(1);
        ok(cuInit(0));
        sim.enter(0);
        let (a, b) = (sim.stream(NON_BLOCKING), sim.stream(NON_BLOCKING));
        let (to, from) = (sim.alloc(4096), sim.alloc(4096));
        ok(cuMemsetD32_v2(from, 1, 1024));
        let module = sim.load(TOUCH).map_err(name).expect("a good program");
        let copy = sim.function(module, "copy");
        ok(sim.launch(copy, 1, 64, a, &[to, from, 2]));
        if joined {
            let event = sim.event();
            ok(cuEventRecord(event, a));
            ok(cuStreamWaitEvent(b, event, 0));
        }
        ok(sim.launch(copy, 1, 64, b, &[to + offset, from, 2]));
        ok(cuCtxSynchronize());
        found += usize::from(violations() > 0);
    }
    found
}

#[test]
fn races_of_kernels_are_found_for_the_bytes_they_touched() {
    assert_eq!(races(0, false), 29, "the same words");
    assert_eq!(races(4, false), 0, "the words between");
    assert_eq!(races(0, true), 0, "one after the other");
}

#[test]
fn races_of_a_kernel_with_a_fill_are_found_whoever_came_first() {
    for kernel_first in [true, false] {
        for offset in [0, 4] {
            for seed in 1..30 {
                let sim = Sim::choose("h200");
                warpsim_schedule(seed);
                warpsim_races(1);
                ok(cuInit(0));
                sim.enter(0);
                let (a, b) = (sim.stream(NON_BLOCKING), sim.stream(NON_BLOCKING));
                let block = sim.alloc(64);
                let module = sim.load(TOUCH).map_err(name).expect("a good program");
                let function = sim.function(module, "touch");
                for step in [kernel_first, !kernel_first] {
                    if step {
                        ok(sim.launch(function, 1, 1, a, &[block]));
                    } else {
                        ok(cuMemsetD8Async(block + offset, 1, 4, b));
                    }
                }
                ok(cuCtxSynchronize());
                assert_eq!(violations() > 0, offset == 0, "seed {seed}, {kernel_first}");
            }
        }
    }
}

#[test]
fn a_free_that_nothing_orders_behind_a_kernel_is_found_under_every_seed() {
    let (mut ran_late, mut total) = (0, 0);
    for seed in 1..200 {
        let sim = Sim::choose("h200");
        warpsim_schedule(seed);
        ok(cuInit(0));
        sim.enter(0);
        let (a, b) = (sim.stream(NON_BLOCKING), sim.stream(NON_BLOCKING));
        let module = sim.load(TOUCH).map_err(name).expect("a good program");
        let function = sim.function(module, "touch");
        let block = sim.alloc_async(64, a);
        ok(cuStreamSynchronize(a));
        ok(sim.launch(function, 1, 1, a, &[block]));
        let freed = cuMemFreeAsync(block, b);
        let ended = cuCtxSynchronize();
        assert!(violations() > 0, "seed {seed}");
        ran_late += usize::from(freed == ILLEGAL_ADDRESS || ended == ILLEGAL_ADDRESS);
        total += 1;
    }
    assert!(ran_late > 0 && ran_late < total, "{ran_late} of {total}");
}
