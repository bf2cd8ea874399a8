//! What memory does: faults, poison, accounting, lifetimes, many blocks.
mod driver;
use driver::*;

const RELEASE_THRESHOLD: u32 = 4;
const RESERVED: u32 = 5;
const USED: u32 = 7;
const DEVICE_POINTER: u32 = 3;

/// Reads a byte as the CPU does.
fn touch(address: u64) -> i32 {
    // SAFETY: only called in children, where a fault is the answer.
    unsafe { i32::from((address as usize as *const u8).read_volatile()) }
}

#[test]
fn the_cpu_faults_on_device_memory_alone() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    let pinned = get(|address| cuMemAllocHost_v2(address, 4096));
    let managed = get(|address| cuMemAllocManaged(address, 4096, 1));
    let (plain, pooled) = (sim.alloc(4096), sim.alloc_async(4096, stream));
    assert_eq!(sim.child(|| touch(plain)), -libc::SIGSEGV);
    assert_eq!(sim.child(|| touch(pooled)), -libc::SIGSEGV);
    assert_eq!(sim.child(|| touch(pinned) + touch(managed)), 0);
    ok(cuMemFreeHost(pinned));
    assert_eq!(sim.child(|| touch(pinned)), -libc::SIGSEGV);
}

#[test]
fn fresh_memory_is_not_zero_and_freed_memory_is_poison() {
    let sim = Sim::start("h200,fresh=0x5A");
    let block = sim.alloc(10_000);
    assert_eq!(sim.read(block, 10_000), vec![0x5A; 10_000]);
    sim.write(block + 5000, &[1, 2, 3]);
    let mut wanted = vec![0x5A; 10_000];
    wanted[5000..5003].copy_from_slice(&[1, 2, 3]);
    assert_eq!(sim.read(block, 10_000), wanted);
    ok(cuMemFree_v2(block));
    assert_eq!(sim.peek(block + 4096, 4096), vec![0xDD; 4096], "the page that was written");
    assert_eq!(sim.peek(block, 4096), vec![0x5A; 4096], "a page that never was");
    let again = sim.alloc(10_000);
    assert_eq!(again, block, "addresses are used again at once");
    assert_eq!(sim.read(block + 5000, 3), [0xDD; 3]);
}

#[test]
fn poison_stays_inside_the_block() {
    let sim = Sim::start("h200");
    let blocks: Vec<u64> = (0..3).map(|_| sim.alloc(512)).collect();
    for block in &blocks {
        ok(cuMemsetD8_v2(*block, 7, 512));
    }
    ok(cuMemFree_v2(blocks[1]));
    assert_eq!(sim.read(blocks[0], 512), [7; 512]);
    assert_eq!(sim.read(blocks[2], 512), [7; 512]);
    is(cuMemsetD8_v2(blocks[1], 7, 1), INVALID_VALUE);
    is(cuMemsetD8_v2(blocks[0], 7, 513), INVALID_VALUE);
}

#[test]
fn large_devices_fit_on_small_machines() {
    let sim = Sim::start("h200");
    let size = 100_usize << 30;
    let block = sim.alloc(size);
    sim.write(block + size as u64 - 4, b"last");
    assert_eq!(sim.read(block + size as u64 - 4, 4), b"last");
    is(cuMemAlloc_v2(&mut 0, size), OUT_OF_MEMORY);
    let (mut free, mut total) = (0, 0);
    ok(cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!((total - free, total), (size, 150_109_880_320));
    ok(cuMemFree_v2(block));
    assert_eq!(warpsim_device_used(0), 0);
}

#[test]
fn pools_hold_and_release() {
    let sim = Sim::start("h200");
    let (pool, stream) = (sim.pool(0), sim.stream(NON_BLOCKING));
    let small = sim.alloc_async(12, stream);
    assert_eq!((sim.pool_value(pool, USED), sim.pool_value(pool, RESERVED)), (12, 32 << 20));
    let large = sim.alloc_async(40 * MIB, stream);
    assert_eq!(sim.pool_value(pool, RESERVED), 96 << 20);
    assert_eq!(warpsim_device_used(0), 96 << 20);
    ok(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &mut (64 << 20)));
    ok(cuMemFreeAsync(large, stream));
    assert_eq!(sim.pool_value(pool, RESERVED), 96 << 20, "nothing goes back before a synchronise");
    ok(cuStreamSynchronize(stream));
    assert_eq!(sim.pool_value(pool, RESERVED), 64 << 20);
    ok(cuMemPoolTrimTo(pool, 0));
    assert_eq!(sim.pool_value(pool, RESERVED), 32 << 20, "what is in use stays");
    ok(cuMemFreeAsync(small, stream));
    ok(cuMemPoolTrimTo(pool, 0));
    assert_eq!(warpsim_device_used(0), 0);
}

#[test]
fn a_full_pool_leaves_nothing_for_plain_allocations() {
    let sim = Sim::start("h200,memory=8GiB");
    let (pool, stream) = (sim.pool(0), sim.stream(NON_BLOCKING));
    let mut keep_all = u64::MAX;
    ok(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &mut keep_all));
    let block = sim.alloc_async(7 << 30, stream);
    ok(cuMemFreeAsync(block, stream));
    ok(cuStreamSynchronize(stream));
    is(cuMemAlloc_v2(&mut 0, 4 << 30), OUT_OF_MEMORY);
    ok(cuMemPoolTrimTo(pool, 0));
    ok(cuMemFree_v2(sim.alloc(4 << 30)));
}

#[test]
fn pool_access_is_not_peer_access() {
    let sim = Sim::start("h200x2");
    let owner = sim.enter(0);
    let stream = sim.stream(NON_BLOCKING);
    let (plain, pooled) = (sim.alloc(4096), sim.alloc_async(4096, stream));
    sim.enter(1);
    let reach = |address| cuPointerGetAttribute(&mut 0, DEVICE_POINTER, address) == SUCCESS;
    assert_eq!((reach(plain), reach(pooled)), (false, false));
    ok(warpsim_external_peer(1, 0, 1));
    assert_eq!((reach(plain), reach(pooled)), (true, false));
    ok(warpsim_external_pool_access(0, 1, 3));
    ok(cuCtxDisablePeerAccess(owner));
    assert_eq!((reach(plain), reach(pooled)), (false, true));
}

#[test]
fn mappings_share_their_physical_memory() {
    let sim = Sim::start("h200x2");
    let size = 4 * MIB;
    let here = Location { kind: 1, id: 0 };
    let properties =
        AllocationProperties { kind: 1, handle_types: 0, location: here, metadata: 0, flags: [0; 8] };
    let handle = get(|handle| cuMemCreate(handle, size, &properties, 0));
    let [a, b] = [0, 1].map(|_| get(|address| cuMemAddressReserve(address, size, 0, 0, 0)));
    ok(cuMemMap(a, size / 2, 0, handle, 0));
    ok(cuMemMap(a + size as u64 / 2, size / 2, size / 2, handle, 0));
    ok(cuMemMap(b, size, 0, handle, 0));
    is(cuMemsetD8_v2(a, 1, 4), INVALID_VALUE);
    for address in [a, b] {
        ok(cuMemSetAccess(address, size, &Access { location: here, flags: 3 }, 1));
    }
    // Over the border between two mappings.
    let border = size as u64 / 2 - 2;
    sim.write(a + border, b"abcd");
    assert_eq!(sim.read(b + border, 4), b"abcd");
    ok(cuMemRelease(handle));
    ok(cuMemUnmap(a, size));
    assert_eq!(sim.read(b + border, 4), b"abcd", "the last mapping keeps it");
    assert_eq!(warpsim_device_used(0), size as u64);
    is(cuMemAddressFree(b, size), INVALID_VALUE);
    ok(cuMemUnmap(b, size));
    ok(cuMemAddressFree(a, size));
    ok(cuMemAddressFree(b, size));
    assert_eq!((warpsim_device_used(0), sim.live("physical"), sim.live("reservation")), (0, 0, 0));
}

#[test]
fn unmapping_under_work_is_a_violation() {
    let sim = Sim::start("h200");
    let here = Location { kind: 1, id: 0 };
    let properties =
        AllocationProperties { kind: 1, handle_types: 0, location: here, metadata: 0, flags: [0; 8] };
    let handle = get(|handle| cuMemCreate(handle, 2 * MIB, &properties, 0));
    let address = get(|address| cuMemAddressReserve(address, 2 * MIB, 0, 0, 0));
    ok(cuMemMap(address, 2 * MIB, 0, handle, 0));
    ok(cuMemSetAccess(address, 2 * MIB, &Access { location: here, flags: 3 }, 1));
    let stream = sim.stream(NON_BLOCKING);
    ok(warpsim_hold(stream));
    ok(cuMemsetD8Async(address, 1, 64, stream));
    ok(cuMemUnmap(address, 2 * MIB));
    ok(warpsim_release(stream));
    assert_eq!(warpsim_violation_count(), 1);
}

#[test]
fn a_context_takes_its_memory_along_but_not_that_of_pools() {
    let sim = Sim::start("h200x2");
    let (plain, pinned) = (sim.alloc(4096), get(|address| cuMemAllocHost_v2(address, 4096)));
    let stream = sim.stream(NON_BLOCKING);
    let pooled = sim.alloc_async(4096, stream);
    ok(cuDevicePrimaryCtxRelease_v2(0));
    is(cuMemFree_v2(plain), CONTEXT_IS_DESTROYED);
    sim.enter(1);
    is(cuMemFree_v2(plain), INVALID_VALUE);
    is(cuMemFreeHost(pinned), INVALID_VALUE);
    assert_eq!((sim.live("*"), sim.live("stream"), warpsim_device_used(0)), (1, 0, 32 << 20));
    sim.enter(0);
    ok(cuMemFreeAsync(pooled, 0));
    ok(cuCtxSynchronize());
    assert_eq!((sim.live("*"), warpsim_device_used(0)), (0, 0));
}

#[test]
fn managed_memory_is_closed_to_the_cpu_while_a_gpu_without_concurrent_access_works() {
    let sim = Sim::start("h200,concurrent=0");
    let managed = get(|address| cuMemAllocManaged(address, 4096, 1));
    let stream = sim.stream(NON_BLOCKING);
    for to in [Location { kind: 1, id: 0 }, Location { kind: 2, id: 0 }] {
        is(cuMemPrefetchAsync_v2(managed, 4096, to, 0, stream), INVALID_DEVICE);
    }
    assert_eq!(sim.child(|| touch(managed)), 0);
    ok(warpsim_hold(stream));
    assert_eq!(sim.child(|| touch(managed)), -libc::SIGSEGV);
    ok(cuMemsetD8Async(managed, 9, 4096, stream));
    ok(cuStreamSynchronize(stream));
    assert_eq!(sim.child(|| touch(managed)), 9);
}

const READ_MOSTLY: u32 = 1;
const PREFERRED_LOCATION: u32 = 2;
const LAST_PREFETCH_LOCATION: u32 = 4;

fn asked(which: u32, address: u64, bytes: usize) -> i32 {
    get(|value| cuMemRangeGetAttribute(value, 4, which, address, bytes))
}

#[test]
fn a_hint_holds_for_its_pages_and_ends_with_the_block() {
    let sim = Sim::start("h200x2");
    let (here, there) = (Location { kind: 1, id: 0 }, Location { kind: 1, id: 1 });
    let managed = get(|address| cuMemAllocManaged(address, 5 * 4096, 1));
    ok(cuMemAdvise_v2(managed + 4096, 2 * 4096, 1, here));
    ok(cuMemAdvise_v2(managed + 2 * 4096 + 9, 1, 3, there));
    let pages: Vec<_> = (0..5)
        .map(|page| managed + page * 4096)
        .map(|page| (asked(READ_MOSTLY, page, 4096), asked(PREFERRED_LOCATION, page, 1)))
        .collect();
    assert_eq!(pages, [(0, -2), (1, -2), (1, 1), (0, -2), (0, -2)]);
    assert_eq!(asked(READ_MOSTLY, managed + 4096, 2 * 4096), 1);
    assert_eq!(asked(PREFERRED_LOCATION, managed + 4096, 2 * 4096), -2);
    ok(cuMemAdvise_v2(managed, 5 * 4096, 2, here));
    assert_eq!(asked(READ_MOSTLY, managed + 4096, 4096), 0);
    assert_eq!(asked(PREFERRED_LOCATION, managed + 2 * 4096, 4096), 1);
    ok(cuMemFree_v2(managed));
    let again = get(|address| cuMemAllocManaged(address, 5 * 4096, 1));
    assert_eq!((again, asked(PREFERRED_LOCATION, again + 2 * 4096, 4096)), (managed, -2));
    ok(cuMemFree_v2(again));
    assert_eq!(sim.live("*"), 0);
}

#[test]
fn a_prefetch_is_work_of_its_stream_and_changes_no_byte() {
    let sim = Sim::start("h200x2");
    let managed = get(|address| cuMemAllocManaged(address, 8192, 1));
    let stream = sim.stream(NON_BLOCKING);
    ok(cuMemsetD8Async(managed, 9, 8192, stream));
    ok(warpsim_hold(stream));
    ok(cuMemPrefetchAsync(managed + 4096, 4096, 1, stream));
    is(cuStreamQuery(stream), NOT_READY);
    assert_eq!(asked(LAST_PREFETCH_LOCATION, managed + 4096, 4096), 1);
    assert_eq!(asked(LAST_PREFETCH_LOCATION, managed, 8192), -2);
    ok(cuMemPrefetchAsync(managed, 8192, -1, stream));
    ok(warpsim_release(stream));
    ok(cuStreamSynchronize(stream));
    assert_eq!((asked(LAST_PREFETCH_LOCATION, managed, 8192), touch(managed)), (-1, 9));
    is(cuMemPrefetchAsync(managed, 8193, 0, stream), INVALID_VALUE);
    is(cuMemPrefetchAsync(managed, 8192, 2, stream), INVALID_DEVICE);
}

#[test]
fn registered_memory_can_have_another_address_on_the_device() {
    let sim = Sim::start("h200,registered_host_pointer=0,pinned_limit=1MiB");
    let mut data = vec![5_u8; 8192];
    // SAFETY: the buffer outlives its registration.
    let device = unsafe {
        is(cuMemHostRegister_v2(data.as_mut_ptr().cast(), 2 * MIB, 0), OUT_OF_MEMORY);
        ok(cuMemHostRegister_v2(data.as_mut_ptr().cast(), data.len(), 0));
        is(cuMemHostRegister_v2(data.as_mut_ptr().add(100).cast(), 10, 0), 712);
        get(|device| cuMemHostGetDevicePointer_v2(device, data.as_mut_ptr().cast(), 0))
    };
    assert_ne!(device, data.as_ptr() as u64);
    assert_eq!(sim.read(device + 10, 2), [5, 5]);
    ok(cuMemsetD8_v2(device + 8191, 6, 1));
    assert_eq!(data[8191], 6);
    // SAFETY: as above.
    ok(unsafe { cuMemHostUnregister(data.as_mut_ptr().cast()) });
    is(cuMemsetD8_v2(device, 6, 1), INVALID_VALUE);
    assert_eq!(sim.live("*"), 0);
}

#[test]
fn two_hundred_thousand_blocks_do_not_meet_the_limit_of_mappings() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    let mut blocks = Vec::new();
    for i in 0..100_000_usize {
        blocks.push(sim.alloc(1 + i % 5000));
        blocks.push(sim.alloc_async(1 + i % 7000, stream));
    }
    assert_eq!(sim.live("*"), 200_000);
    for block in blocks.iter().step_by(1000) {
        sim.write(*block, &[1]);
    }
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    assert!(maps.lines().count() < 2000, "{} mappings", maps.lines().count());
    for (i, block) in blocks.iter().enumerate() {
        ok(if i % 2 == 0 { cuMemFree_v2(*block) } else { cuMemFreeAsync(*block, stream) });
    }
    ok(cuStreamSynchronize(stream));
    assert_eq!((sim.live("*"), warpsim_device_used(0)), (0, 0));
}
