//! Copies and fills: shapes, borders, and which memory a copy may reach.
mod driver;
use driver::*;

fn numbers(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * 7 + i / 256) as u8).collect()
}

#[test]
fn long_copies_cross_all_inner_borders() {
    let sim = Sim::start("h200x2");
    let data = numbers(300_000);
    let (a, b) = (sim.alloc(data.len() + 10), sim.alloc(data.len() + 10));
    sim.write(a + 3, &data);
    ok(cuMemcpyDtoD_v2(b + 7, a + 3, data.len()));
    assert_eq!(sim.read(b + 7, data.len()), data);
    assert_eq!(sim.read(b, 7), [0xCD; 7]);
    is(cuMemcpyDtoD_v2(b + 11, a, data.len()), INVALID_VALUE);
    is(cuMemcpyDtoD_v2(0, a, 1), INVALID_VALUE);
    let mut outside = 0_u64;
    is(cuMemcpyDtoD_v2(&raw mut outside as u64, a, 8), INVALID_VALUE);
}

#[test]
fn rows_are_copied_by_pitch() {
    let sim = Sim::start("h200");
    let data = numbers(8 * 10);
    let block = sim.alloc(1024);
    ok(cuMemsetD8_v2(block, 0, 1024));
    let mut copy = Copy2D {
        from: Plane { x: 2, y: 1, kind: 1, host: data.as_ptr() as u64, pitch: 10, ..Plane::default() },
        to: Plane { x: 5, y: 0, kind: 2, device: block, pitch: 100, ..Plane::default() },
        width: 6,
        height: 7,
    };
    ok(cuMemcpy2D_v2(&copy));
    for row in 0..7 {
        let got = sim.read(block + 100 * row, 100);
        let from = 10 * (row as usize + 1) + 2;
        assert_eq!(got[5..11], data[from..from + 6]);
        assert!(got[..5].iter().chain(&got[11..]).all(|byte| *byte == 0));
    }
    copy.to.pitch = 5;
    is(cuMemcpy2D_v2(&copy), INVALID_VALUE);
    copy.height = 1;
    is(cuMemcpy2D_v2(&copy), INVALID_VALUE);
    copy.height = 7;
    copy.to.pitch = usize::MAX / 2;
    is(cuMemcpy2D_v2(&copy), INVALID_VALUE);
    copy.to.pitch = 100;
    copy.to.kind = 3;
    is(cuMemcpy2D_v2(&copy), INVALID_VALUE);
    copy.to.array = 4096;
    is(cuMemcpy2D_v2(&copy), NOT_SUPPORTED);
}

#[test]
fn fills_repeat_their_element() {
    let sim = Sim::start("h200");
    let block = sim.alloc(200_000);
    ok(cuMemsetD32_v2(block, 0x0403_0201, 50_000));
    let got = sim.read(block, 200_000);
    assert!(got.chunks(4).all(|element| element == [1, 2, 3, 4]));
    is(cuMemsetD32_v2(block + 2, 0, 1), INVALID_VALUE);
    is(cuMemsetD32_v2(block, 0, usize::MAX / 2), INVALID_VALUE);
    ok(cuMemsetD2D16_v2(block, 10, 0x0909, 3, 4));
    let got = sim.read(block, 40);
    for (i, byte) in got.iter().enumerate() {
        assert_eq!(*byte, if i % 10 < 6 { 9 } else { (i % 4) as u8 + 1 });
    }
    is(cuMemsetD2D32_v2(block, 67, 0, 16, 2), INVALID_VALUE);
    ok(cuMemsetD2D32_v2(block, 68, 0, 16, 2));
}

#[test]
fn pool_memory_is_reached_by_grant_only_and_peer_copies_always() {
    let sim = Sim::start("h200x2");
    let zero = sim.enter(0);
    let stream = sim.stream(NON_BLOCKING);
    let from = sim.alloc_async(16, stream);
    sim.write(from, &[3; 16]);
    let one = sim.enter(1);
    let to = sim.alloc(16);
    is(cuMemcpyDtoD_v2(to, from, 16), INVALID_VALUE);
    ok(cuMemcpyPeer(to, one, from, zero, 16));
    assert_eq!(sim.read(to, 16), [3; 16]);
    is(cuMemcpyPeer(to, one, from, one, 16), INVALID_VALUE);
    is(cuMemcpyPeer(to, one, from, 0, 16), INVALID_VALUE);
    ok(cuMemcpyPeer(to, 0, from, zero, 16));
    ok(warpsim_external_pool_access(0, 1, 3));
    ok(cuMemcpyDtoD_v2(to, from, 16));
    ok(cuMemcpyPeer(to, one, from, one, 16));
    is(cuMemcpyPeer(to, one, from, 77, 16), INVALID_CONTEXT);
}

#[test]
fn a_copy_is_made_by_the_current_context_whatever_its_stream() {
    let sim = Sim::start("h200x2");
    let pinned = get(|address| cuMemAllocHost_v2(address, 16));
    let zero = sim.enter(0);
    let near = sim.stream(NON_BLOCKING);
    let (pool, plain) = (sim.alloc_async(16, near), sim.alloc(16));
    let one = sim.enter(1);
    let (far, there) = (sim.stream(NON_BLOCKING), sim.alloc(16));
    for captured in [false, true] {
        for stream in [near, far] {
            if captured {
                ok(cuStreamBeginCapture_v2(stream, 2));
            }
            for other in [pinned, plain, there] {
                ok(cuCtxSetCurrent(zero));
                ok(cuMemcpyAsync(pool, other, 16, stream));
                ok(cuCtxSetCurrent(one));
                is(cuMemcpyAsync(pool, other, 16, stream), INVALID_VALUE);
                // Without one it is that of the other end, or else the stream's.
                ok(cuCtxSetCurrent(0));
                let reached = if other == pinned { stream == near } else { other == plain };
                is(cuMemcpyAsync(other, pool, 16, stream), if reached { SUCCESS } else { INVALID_VALUE });
            }
            if captured {
                get(|graph| cuStreamEndCapture(stream, graph));
            }
        }
    }
}

#[test]
fn a_fill_has_to_be_in_reach_of_the_streams_gpu() {
    let sim = Sim::start("h200x2");
    let zero = sim.enter(0);
    let block = sim.alloc(16);
    let mut pageable = [1_u8; 16];
    let pageable_block = pageable.as_mut_ptr() as u64;
    sim.enter(1);
    let stream = sim.stream(NON_BLOCKING);
    ok(cuCtxSetCurrent(zero));
    is(cuMemsetD8Async(block, 5, 16, stream), INVALID_VALUE);
    // A capture takes it up, and no graph comes of it.
    for out_of_reach in [block, pageable_block] {
        ok(cuStreamBeginCapture_v2(stream, 2));
        ok(cuMemsetD8Async(out_of_reach, 5, 16, stream));
        let graph = get(|graph| cuStreamEndCapture(stream, graph));
        is(cuGraphInstantiateWithFlags(&mut 0, graph, 0), INVALID_VALUE);
    }
    sim.enter(1);
    ok(cuCtxEnablePeerAccess(zero, 0));
    ok(cuMemsetD8Async(block, 5, 16, stream));
    ok(cuStreamSynchronize(stream));
    assert_eq!(sim.read(block, 16), [5; 16]);
    assert_eq!(pageable, [1; 16]);
}

#[test]
fn a_broken_link_loses_direct_copies_without_a_word() {
    let sim = Sim::start("h200x2,peer.1.0=broken");
    let zero = sim.enter(0);
    let from = sim.alloc(4);
    ok(cuMemsetD8_v2(from, 1, 4));
    sim.enter(1);
    let to = sim.alloc(4);
    ok(cuMemsetD8_v2(to, 9, 4));
    ok(cuCtxEnablePeerAccess(zero, 0));
    ok(cuMemcpyDtoD_v2(to, from, 4));
    assert_eq!(sim.read(to, 4), [9; 4]);
    ok(cuCtxDisablePeerAccess(zero));
    ok(cuMemcpyDtoD_v2(to, from, 4));
    assert_eq!(sim.read(to, 4), [1; 4], "staged copies arrive");
}

#[test]
fn a_link_is_broken_for_the_one_that_goes_over_it() {
    let sim = Sim::start("h200x2,peer.1.0=broken");
    let zero = sim.enter(0);
    let there = sim.alloc(4);
    ok(cuMemsetD8_v2(there, 1, 4));
    let one = sim.enter(1);
    let here = sim.alloc(4);
    ok(cuMemsetD8_v2(here, 9, 4));
    ok(cuCtxEnablePeerAccess(zero, 0));
    ok(cuMemcpyDtoD_v2(there, here, 4));
    ok(cuMemsetD8_v2(there, 7, 4));
    assert_eq!(sim.read(there, 4), [1; 4], "neither copies nor fills of the one arrive");
    sim.enter(0);
    ok(cuCtxEnablePeerAccess(one, 0));
    ok(cuMemcpyDtoD_v2(here, there, 4));
    assert_eq!(sim.read(here, 4), [1; 4], "those of the other do");
    ok(cuMemsetD8_v2(here, 3, 4));
    assert_eq!(sim.read(here, 4), [3; 4]);
}

#[test]
fn pageable_memory_is_device_memory_where_the_gpu_shares_page_tables() {
    let mut data = [1_u8; 64];
    {
        let _sim = Sim::start("discrete");
        is(cuMemsetD8_v2(data.as_mut_ptr() as u64, 5, 64), INVALID_VALUE);
    }
    let _sim = Sim::start("ats");
    ok(cuMemsetD8_v2(data.as_mut_ptr() as u64, 5, 64));
    assert_eq!(data, [5; 64]);
}
