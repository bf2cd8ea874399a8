//! Which machine the driver shows, and what it refuses on each.
mod driver;
use driver::*;

fn attribute(which: i32, device: i32) -> i32 {
    get(|value| cuDeviceGetAttribute(value, which, device))
}

fn devices() -> i32 {
    get(|count| cuDeviceGetCount(count))
}

fn refusal(topology: &str) -> String {
    let _sim = Sim::choose("");
    let text = std::ffi::CString::new(topology).expect("no zero byte");
    let mut message = [0; 200];
    // SAFETY: a terminated text and a buffer of the length given.
    let code = unsafe { warpsim_set_topology(text.as_ptr(), message.as_mut_ptr(), message.len()) };
    is(code, INVALID_VALUE);
    // SAFETY: the message is terminated.
    unsafe { std::ffi::CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned()
}

#[test]
fn every_preset_starts() {
    let presets = [
        ("h200x2", 2),
        ("h200", 1),
        ("discrete", 2),
        ("hmm", 2),
        ("ats", 1),
        ("gb10", 1),
        ("grace", 1),
        ("wsl", 1),
        ("vgpu", 1),
        ("mixed", 2),
        ("gpux10", 10),
        ("partial", 4),
    ];
    for (preset, count) in presets {
        let sim = Sim::start(preset);
        assert_eq!(devices(), count, "{preset}");
        ok(cuMemFree_v2(sim.alloc(100)));
    }
    let _sim = Sim::choose("none");
    is(cuInit(0), NO_DEVICE);
    is(cuDeviceGetCount(&mut 0), NOT_INITIALIZED);
}

#[test]
fn changes_apply_from_left_to_right() {
    let _sim = Sim::start("discrete,memory=8GiB,gpus=3,gpu1.pools=0,gpu2.memory=512MiB,peer.0.1=0,88=1");
    assert_eq!(devices(), 3);
    assert_eq!([attribute(115, 0), attribute(115, 1), attribute(115, 2)], [1, 0, 1]);
    assert_eq!(get(|bytes| cuDeviceTotalMem_v2(bytes, 1)), 8 << 30);
    assert_eq!(get(|bytes| cuDeviceTotalMem_v2(bytes, 2)), 512 << 20);
    assert_eq!(attribute(88, 2), 1);
    let can = |a, b| get(|can| cuDeviceCanAccessPeer(can, a, b));
    assert_eq!([can(0, 1), can(1, 0), can(0, 2), can(2, 0)], [0, 1, 1, 1]);
}

#[test]
fn presets_have_the_traits_they_are_named_for() {
    let traits = [
        ("discrete", [1, 1, 0, 0]),
        ("hmm", [1, 1, 1, 0]),
        ("ats", [1, 1, 1, 0]),
        ("grace", [1, 1, 1, 1]),
        ("wsl", [1, 0, 0, 0]),
        ("vgpu", [0, 0, 0, 0]),
    ];
    for (preset, wanted) in traits {
        let _sim = Sim::start(preset);
        assert_eq!([83, 89, 88, 101].map(|which| attribute(which, 0)), wanted, "{preset}");
    }
}

#[test]
fn what_is_not_understood_is_named() {
    assert!(refusal("h100").contains("h100"));
    assert!(refusal("h200,colour=1").contains("colour"));
    assert!(refusal("h200,gpu3.pools=0").contains("no GPU 3"));
    assert!(refusal("h200,memory=lots").contains("lots"));
    assert!(refusal("h200,pools").contains("key=value"));
    assert!(refusal("h200x2,peer.0.0=1").contains("no peer of itself"));
}

#[test]
fn the_driver_can_be_old_or_broken() {
    let _sim = Sim::choose("h200,driver=11080,init_code=STUB_LIBRARY,missing=cuMemPoolCreate");
    is(cuInit(0), 34);
    assert_eq!(get(|version| cuDriverGetVersion(version)), 11080);
    is(cuCtxGetId(0, &mut 0), NOT_FOUND);
}

#[test]
fn a_device_without_pools_refuses_them_and_serves_the_rest() {
    let sim = Sim::start("mixed");
    sim.enter(1);
    let stream = sim.stream(NON_BLOCKING);
    is(cuMemAllocAsync(&mut 0, 4096, stream), NOT_SUPPORTED);
    is(cuDeviceGetDefaultMemPool(&mut 0, 1), NOT_SUPPORTED);
    let plain = sim.alloc(4096);
    ok(cuMemFreeAsync(plain, stream));
    assert_eq!(sim.live("*"), 0);
}

#[test]
fn the_ninth_peer_is_one_too_many() {
    let sim = Sim::start("gpux10");
    let target = get(|context| cuDevicePrimaryCtxRetain(context, 0));
    for device in 1..10 {
        sim.enter(device);
        is(cuCtxEnablePeerAccess(target, 0), if device == 9 { TOO_MANY_PEERS } else { SUCCESS });
    }
    sim.enter(1);
    ok(cuCtxDisablePeerAccess(target));
    sim.enter(9);
    ok(cuCtxEnablePeerAccess(target, 0));
}

#[test]
fn peers_can_be_one_way() {
    let sim = Sim::start("partial");
    let [zero, two] = [0, 2].map(|device| get(|context| cuDevicePrimaryCtxRetain(context, device)));
    sim.enter(2);
    is(cuCtxEnablePeerAccess(zero, 0), PEER_ACCESS_UNSUPPORTED);
    sim.enter(0);
    ok(cuCtxEnablePeerAccess(two, 0));
    let pool = sim.pool(0);
    let grant = |id| Access { location: Location { kind: 1, id }, flags: 3 };
    // 2 cannot reach 0, and one refusal refuses the whole request.
    is(cuMemPoolSetAccess(pool, &grant(2), 1), INVALID_DEVICE);
    ok(cuMemPoolSetAccess(pool, &grant(1), 1));
    assert_eq!(get(|flags| cuMemPoolGetAccess(flags, pool, &grant(1).location)), 3);
}
