//! What can be shared, what is refused by its kind, and pools of other places.
mod driver;
use driver::*;

const POSIX_FD: u32 = 1;
const MEMORY_TYPE: u32 = 2;
const DEVICE_POINTER: u32 = 3;
const IS_MANAGED: u32 = 8;
const HOST: u64 = 1;

fn close(fd: i32) {
    // SAFETY: the descriptor was made for this test.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

#[test]
fn an_exported_pool_pointer_is_another_address_of_the_same_memory() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    let pool = get(|pool| cuMemPoolCreate(pool, &PoolProperties::on_device(0, POSIX_FD)));
    let block = get(|address| cuMemAllocFromPoolAsync(address, 4096, pool, stream));
    sim.write(block, b"shared");
    let fd = get(|fd| cuMemPoolExportToShareableHandle(fd, pool, POSIX_FD, 0));
    let imported = get(|pool| cuMemPoolImportFromShareableHandle(pool, fd as u64, POSIX_FD, 0));
    let mut data = [0; 8];
    ok(cuMemPoolExportPointer(&mut data, block));
    is(cuMemPoolImportPointer(&mut 0, pool, &data), INVALID_VALUE);
    let alias = get(|address| cuMemPoolImportPointer(address, imported, &data));
    assert_ne!(alias, block);
    assert_eq!(sim.read(alias, 6), b"shared");
    is(cuMemAllocFromPoolAsync(&mut 0, 64, imported, stream), INVALID_VALUE);
    ok(cuMemFreeAsync(alias, stream));
    assert_eq!(sim.read(block, 6), b"shared", "the importer's free ends the alias alone");
    ok(cuMemFreeAsync(block, stream));
    is(cuMemPoolImportPointer(&mut 0, imported, &data), INVALID_VALUE);
    ok(cuMemPoolDestroy(imported));
    ok(cuMemPoolDestroy(pool));
    assert_eq!((sim.live("*"), sim.live("mempool"), warpsim_device_used(0)), (0, 0, 0));
    close(fd);
}

/// Peer access opens nothing that comes from elsewhere: the imported pool does, and for as long as any of it is in use.
#[test]
fn imported_memory_is_opened_by_its_own_pool() {
    let sim = Sim::start("h200x2");
    let owner = sim.enter(0);
    let pool = get(|pool| cuMemPoolCreate(pool, &PoolProperties::on_device(0, POSIX_FD)));
    let block = get(|address| cuMemAllocFromPoolAsync(address, 4096, pool, 0));
    let fd = get(|fd| cuMemPoolExportToShareableHandle(fd, pool, POSIX_FD, 0));
    let imported = get(|pool| cuMemPoolImportFromShareableHandle(pool, fd as u64, POSIX_FD, 0));
    let mut data = [0; 8];
    ok(cuMemPoolExportPointer(&mut data, block));
    let alias = get(|address| cuMemPoolImportPointer(address, imported, &data));
    let reach = |address| cuPointerGetAttribute(&mut 0, DEVICE_POINTER, address) == SUCCESS;
    assert!(reach(alias));
    sim.enter(1);
    ok(cuCtxEnablePeerAccess(owner, 0));
    assert!(!reach(alias));
    let access = Access { location: Location { kind: 1, id: 1 }, flags: 3 };
    ok(cuMemPoolSetAccess(pool, &access, 1));
    assert!(!reach(alias), "the exporter's pool is another one");
    ok(cuMemPoolSetAccess(imported, &access, 1));
    assert!(reach(alias));
    ok(cuMemPoolDestroy(imported));
    assert!(reach(alias), "a destroyed pool lives on for its memory");
    is(cuMemPoolImportPointer(&mut 0, imported, &data), INVALID_VALUE);
    ok(cuMemFree_v2(alias));
    ok(cuMemFree_v2(block));
    ok(cuMemPoolDestroy(pool));
    assert_eq!((sim.live("*"), sim.live("mempool")), (0, 0));
    close(fd);
}

#[test]
fn only_plain_memory_has_an_ipc_handle() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    let plain = sim.alloc(64);
    let refused = [
        sim.alloc_async(64, stream),
        get(|address| cuMemAllocHost_v2(address, 64)),
        get(|address| cuMemAllocManaged(address, 64, 1)),
        0,
        77,
    ];
    let mut handle = [0; 8];
    for address in refused {
        is(cuIpcGetMemHandle(&mut handle, address), INVALID_VALUE);
    }
    ok(cuIpcGetMemHandle(&mut handle, plain + 8));
    is(cuIpcOpenMemHandle_v2(&mut 0, IpcHandle(handle), 1), INVALID_CONTEXT);
    is(cuIpcOpenMemHandle_v2(&mut 0, IpcHandle([1; 8]), 1), INVALID_VALUE);
    handle[1] += 1;
    is(cuIpcOpenMemHandle_v2(&mut 0, IpcHandle(handle), 1), NOT_SUPPORTED);
    assert!(sim.logged("unsupported: memory of another process"));
    is(cuIpcGetEventHandle(&mut handle, sim.event()), INVALID_HANDLE);
    ok(cuIpcGetEventHandle(&mut handle, get(|event| cuEventCreate(event, 6))));
    is(cuEventCreate(&mut 0, 4), INVALID_VALUE);
    let fd = get(|fd| cuMemGetHandleForAddressRange(fd, plain, 64, 1, 0));
    close(fd);
    is(cuMemGetHandleForAddressRange(&mut 0, plain, 65, 1, 0), INVALID_VALUE);
}

#[test]
fn a_device_can_be_without_ipc() {
    let sim = Sim::start("ats");
    is(cuIpcGetMemHandle(&mut [0; 8], sim.alloc(64)), NOT_SUPPORTED);
}

#[test]
fn handle_types_have_to_be_supported() {
    let _sim = Sim::start("wsl");
    is(cuMemPoolCreate(&mut 0, &PoolProperties::on_device(0, POSIX_FD)), INVALID_VALUE);
    let pool = get(|pool| cuMemPoolCreate(pool, &PoolProperties::on_device(0, 0)));
    is(cuMemPoolExportToShareableHandle(&mut 0, pool, POSIX_FD, 0), INVALID_VALUE);
    is(cuMemPoolCreate(&mut 0, &PoolProperties::on_device(3, 0)), INVALID_DEVICE);
}

#[test]
fn pools_can_be_small_on_the_host_or_managed() {
    let sim = Sim::start("h200");
    let stream = sim.stream(NON_BLOCKING);
    let small = PoolProperties { max_size: 64 * MIB, ..PoolProperties::on_device(0, 0) };
    let pool = get(|pool| cuMemPoolCreate(pool, &small));
    let block = get(|address| cuMemAllocFromPoolAsync(address, 40 * MIB, pool, stream));
    is(cuMemAllocFromPoolAsync(&mut 0, 40 * MIB, pool, stream), OUT_OF_MEMORY);
    ok(cuMemPoolDestroy(pool));
    is(cuMemAllocFromPoolAsync(&mut 0, 64, pool, stream), INVALID_VALUE);
    ok(cuMemFreeAsync(block, stream));
    assert_eq!(warpsim_device_used(0), 0, "a destroyed pool ends with its last block");

    let host = PoolProperties { location: Location { kind: 2, id: 0 }, ..PoolProperties::on_device(0, 0) };
    let managed = PoolProperties { kind: 2, ..PoolProperties::on_device(0, 0) };
    for (properties, kind, is_managed) in [(host, HOST, 0), (managed, 2, 1)] {
        let pool = get(|pool| cuMemPoolCreate(pool, &properties));
        let block = get(|address| cuMemAllocFromPoolAsync(address, 64, pool, stream));
        assert_eq!(get(|value: &mut u64| cuPointerGetAttribute(value, MEMORY_TYPE, block)), kind);
        assert_eq!(get(|value: &mut u64| cuPointerGetAttribute(value, IS_MANAGED, block)), is_managed);
        let here = Location { kind: 1, id: 0 };
        assert_eq!(get(|flags: &mut u32| cuMemPoolGetAccess(flags, pool, &here)), 0);
        if kind == HOST {
            // No GPU may touch it by itself.
            is(cuMemsetD8Async(block, 3, 64, stream), INVALID_VALUE);
            let access = Access { location: here, flags: 3 };
            ok(cuMemPoolSetAccess(pool, &access, 1));
        }
        ok(cuMemsetD8Async(block, 3, 64, stream));
        // SAFETY: host and managed memory of 64 bytes, alive and idle.
        assert_eq!(unsafe { (block as usize as *const [u8; 64]).read() }, [3; 64]);
        ok(cuMemFreeAsync(block, stream));
        ok(cuMemPoolDestroy(pool));
    }
    assert_eq!((sim.live("*"), sim.live("mempool")), (0, 0));
}
