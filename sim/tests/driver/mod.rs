//! The simulated driver as a test sees it: the C names, and a guard that starts it afresh.
#![allow(dead_code, non_snake_case, reason = "each test file uses a part of it")]
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpsim as _;

pub const SUCCESS: u32 = 0;
pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const NOT_INITIALIZED: u32 = 3;
pub const DEINITIALIZED: u32 = 4;
pub const NO_DEVICE: u32 = 100;
pub const INVALID_DEVICE: u32 = 101;
pub const INVALID_CONTEXT: u32 = 201;
pub const PEER_ACCESS_UNSUPPORTED: u32 = 217;
pub const INVALID_IMAGE: u32 = 200;
pub const INVALID_PTX: u32 = 218;
pub const INVALID_HANDLE: u32 = 400;
pub const ILLEGAL_ADDRESS: u32 = 700;
pub const LAUNCH_TIMEOUT: u32 = 702;
pub const MISALIGNED_ADDRESS: u32 = 716;
pub const LAUNCH_FAILED: u32 = 719;
pub const NOT_FOUND: u32 = 500;
pub const NOT_READY: u32 = 600;
pub const TOO_MANY_PEERS: u32 = 711;
pub const CONTEXT_IS_DESTROYED: u32 = 709;
pub const NOT_PERMITTED: u32 = 800;
pub const NOT_SUPPORTED: u32 = 801;

pub const NON_BLOCKING: u32 = 1;
pub const MIB: usize = 1 << 20;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    pub kind: u32,
    pub id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Access {
    pub location: Location,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocationProperties {
    pub kind: u32,
    pub handle_types: u32,
    pub location: Location,
    pub metadata: u64,
    pub flags: [u8; 8],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolProperties {
    pub kind: u32,
    pub handle_types: u32,
    pub location: Location,
    pub security: u64,
    pub max_size: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

impl PoolProperties {
    /// Of pinned memory on a device, shared by the given handle types.
    pub fn on_device(id: i32, handle_types: u32) -> PoolProperties {
        let location = Location { kind: 1, id };
        PoolProperties {
            kind: 1,
            handle_types,
            location,
            security: 0,
            max_size: 0,
            usage: 0,
            reserved: [0; 54],
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle(pub [u64; 8]);

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Plane {
    pub x: usize,
    pub y: usize,
    pub kind: u32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub pitch: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Copy2D {
    pub from: Plane,
    pub to: Plane,
    pub width: usize,
    pub height: usize,
}

unsafe extern "C" {
    pub safe fn cuInit(flags: u32) -> u32;
    pub safe fn cuDriverGetVersion(version: &mut i32) -> u32;
    pub safe fn cuGetErrorName(code: u32, name: &mut *const c_char) -> u32;
    pub safe fn cuDeviceGetCount(count: &mut i32) -> u32;
    pub safe fn cuDeviceGetAttribute(value: &mut i32, which: i32, device: i32) -> u32;
    pub safe fn cuDeviceTotalMem_v2(bytes: &mut usize, device: i32) -> u32;
    pub safe fn cuDeviceCanAccessPeer(can: &mut i32, device: i32, peer: i32) -> u32;
    pub safe fn cuDeviceGetDefaultMemPool(pool: &mut u64, device: i32) -> u32;
    pub safe fn cuDevicePrimaryCtxRetain(context: &mut u64, device: i32) -> u32;
    pub safe fn cuDevicePrimaryCtxRelease_v2(device: i32) -> u32;
    pub safe fn cuCtxCreate_v4(context: &mut u64, params: Option<&u8>, flags: u32, device: i32) -> u32;
    pub safe fn cuCtxDestroy_v2(context: u64) -> u32;
    pub safe fn cuCtxSetCurrent(context: u64) -> u32;
    pub safe fn cuCtxGetCurrent(context: &mut u64) -> u32;
    pub safe fn cuCtxPushCurrent_v2(context: u64) -> u32;
    pub safe fn cuCtxPopCurrent_v2(context: &mut u64) -> u32;
    pub safe fn cuCtxGetApiVersion(context: u64, version: &mut u32) -> u32;
    pub safe fn cuCtxGetDevice(device: &mut i32) -> u32;
    pub safe fn cuCtxGetId(context: u64, id: &mut u64) -> u32;
    pub safe fn cuCtxSynchronize() -> u32;
    pub safe fn cuCtxEnablePeerAccess(context: u64, flags: u32) -> u32;
    pub safe fn cuCtxDisablePeerAccess(context: u64) -> u32;
    pub safe fn cuMemAlloc_v2(address: &mut u64, bytes: usize) -> u32;
    pub safe fn cuMemFree_v2(address: u64) -> u32;
    pub safe fn cuMemAllocAsync(address: &mut u64, bytes: usize, stream: u64) -> u32;
    pub safe fn cuMemFreeAsync(address: u64, stream: u64) -> u32;
    pub safe fn cuMemAllocManaged(address: &mut u64, bytes: usize, flags: u32) -> u32;
    pub safe fn cuMemAllocHost_v2(address: &mut u64, bytes: usize) -> u32;
    pub safe fn cuMemFreeHost(address: u64) -> u32;
    pub fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: u32) -> u32;
    pub fn cuMemHostUnregister(address: *mut c_void) -> u32;
    pub fn cuMemHostGetDevicePointer_v2(device: &mut u64, address: *mut c_void, flags: u32) -> u32;
    pub safe fn cuMemGetInfo_v2(free: &mut usize, total: &mut usize) -> u32;
    pub safe fn cuMemPrefetchAsync_v2(
        address: u64,
        bytes: usize,
        to: Location,
        flags: u32,
        stream: u64,
    ) -> u32;
    pub safe fn cuMemPrefetchAsync(address: u64, bytes: usize, device: i32, stream: u64) -> u32;
    pub safe fn cuMemAdvise_v2(address: u64, bytes: usize, advice: u32, to: Location) -> u32;
    pub safe fn cuMemRangeGetAttribute(
        data: &mut i32,
        bytes: usize,
        which: u32,
        address: u64,
        count: usize,
    ) -> u32;
    pub safe fn cuPointerGetAttribute(data: &mut u64, which: u32, address: u64) -> u32;
    pub safe fn cuMemPoolGetAttribute(pool: u64, which: u32, value: &mut u64) -> u32;
    pub safe fn cuMemPoolSetAttribute(pool: u64, which: u32, value: &mut u64) -> u32;
    pub safe fn cuMemPoolSetAccess(pool: u64, wanted: &Access, count: usize) -> u32;
    pub safe fn cuMemPoolGetAccess(flags: &mut u32, pool: u64, location: &Location) -> u32;
    pub safe fn cuMemPoolCreate(pool: &mut u64, properties: &PoolProperties) -> u32;
    pub safe fn cuMemPoolDestroy(pool: u64) -> u32;
    pub safe fn cuMemAllocFromPoolAsync(address: &mut u64, bytes: usize, pool: u64, stream: u64) -> u32;
    pub safe fn cuMemPoolExportToShareableHandle(handle: &mut i32, pool: u64, kind: u32, flags: u64) -> u32;
    pub safe fn cuMemPoolImportFromShareableHandle(pool: &mut u64, handle: u64, kind: u32, flags: u64)
    -> u32;
    pub safe fn cuMemPoolExportPointer(data: &mut [u64; 8], address: u64) -> u32;
    pub safe fn cuMemPoolImportPointer(address: &mut u64, pool: u64, data: &[u64; 8]) -> u32;
    pub safe fn cuIpcGetMemHandle(handle: &mut [u64; 8], address: u64) -> u32;
    pub safe fn cuIpcOpenMemHandle_v2(address: &mut u64, handle: IpcHandle, flags: u32) -> u32;
    pub safe fn cuIpcGetEventHandle(handle: &mut [u64; 8], event: u64) -> u32;
    pub safe fn cuMemGetHandleForAddressRange(
        fd: &mut i32,
        at: u64,
        bytes: usize,
        kind: u32,
        flags: u64,
    ) -> u32;
    pub safe fn cuMemPoolTrimTo(pool: u64, keep: usize) -> u32;
    pub safe fn cuMemCreate(
        handle: &mut u64,
        size: usize,
        properties: &AllocationProperties,
        flags: u64,
    ) -> u32;
    pub safe fn cuMemRelease(handle: u64) -> u32;
    pub safe fn cuMemAddressReserve(
        address: &mut u64,
        size: usize,
        alignment: usize,
        at: u64,
        flags: u64,
    ) -> u32;
    pub safe fn cuMemAddressFree(address: u64, size: usize) -> u32;
    pub safe fn cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64) -> u32;
    pub safe fn cuMemUnmap(address: u64, size: usize) -> u32;
    pub safe fn cuMemSetAccess(address: u64, size: usize, wanted: &Access, count: usize) -> u32;
    pub fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> u32;
    pub fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> u32;
    pub safe fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> u32;
    pub fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64) -> u32;
    pub fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64) -> u32;
    pub safe fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) -> u32;
    pub safe fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64) -> u32;
    pub safe fn cuMemcpyPeer(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize) -> u32;
    pub safe fn cuMemcpy2D_v2(copy: &Copy2D) -> u32;
    pub safe fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> u32;
    pub safe fn cuMemsetD32_v2(to: u64, value: u32, count: usize) -> u32;
    pub safe fn cuMemsetD2D16_v2(to: u64, pitch: usize, value: u16, width: usize, height: usize) -> u32;
    pub safe fn cuMemsetD2D32_v2(to: u64, pitch: usize, value: u32, width: usize, height: usize) -> u32;
    pub safe fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: u64) -> u32;
    pub safe fn cuStreamCreate(stream: &mut u64, flags: u32) -> u32;
    pub safe fn cuStreamDestroy_v2(stream: u64) -> u32;
    pub safe fn cuStreamSynchronize(stream: u64) -> u32;
    pub safe fn cuStreamQuery(stream: u64) -> u32;
    pub safe fn cuStreamGetId(stream: u64, id: &mut u64) -> u32;
    pub safe fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32) -> u32;
    pub safe fn cuStreamBeginCapture_v2(stream: u64, mode: u32) -> u32;
    pub safe fn cuStreamEndCapture(stream: u64, graph: &mut u64) -> u32;
    pub safe fn cuStreamIsCapturing(stream: u64, status: &mut u32) -> u32;
    pub safe fn cuGraphInstantiateWithFlags(exec: &mut u64, graph: u64, flags: u64) -> u32;
    pub safe fn cuThreadExchangeStreamCaptureMode(mode: &mut u32) -> u32;
    pub safe fn cuLaunchHostFunc(
        stream: u64,
        function: Option<extern "C" fn(&'static AtomicU64)>,
        data: &'static AtomicU64,
    ) -> u32;
    pub safe fn cuEventCreate(event: &mut u64, flags: u32) -> u32;
    pub safe fn cuEventRecord(event: u64, stream: u64) -> u32;
    pub safe fn cuEventQuery(event: u64) -> u32;
    pub safe fn cuEventSynchronize(event: u64) -> u32;
    pub safe fn cuEventElapsedTime_v2(milliseconds: &mut f32, start: u64, end: u64) -> u32;
    pub safe fn cuEventDestroy_v2(event: u64) -> u32;

    pub fn cuModuleLoadData(module: &mut u64, image: *const c_void) -> u32;
    pub fn cuModuleLoadDataEx(
        module: &mut u64,
        image: *const c_void,
        count: u32,
        options: *const u32,
        values: *mut *mut c_void,
    ) -> u32;
    pub safe fn cuModuleUnload(module: u64) -> u32;
    pub fn cuModuleGetFunction(function: &mut u64, module: u64, name: *const c_char) -> u32;
    pub fn cuModuleGetGlobal_v2(address: &mut u64, size: &mut usize, module: u64, name: *const c_char)
    -> u32;
    pub fn cuLaunchKernel(
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: u64,
        params: *const *const u64,
        extra: *const *const c_void,
    ) -> u32;

    pub safe fn warpsim_kernel_limit(instructions: u64);
    pub safe fn warpsim_schedule(seed: u64);
    pub safe fn warpsim_races(on: u8);
    pub fn warpsim_set_topology(text: *const c_char, message: *mut c_char, len: usize) -> u32;
    pub safe fn warpsim_reset();
    pub fn warpsim_fail(entry: *const c_char, nth: u64, code: u32) -> u32;
    pub safe fn warpsim_fail_after(calls: u64, code: u32);
    pub safe fn warpsim_fail_clear();
    pub safe fn warpsim_out_of_memory_at_size(bytes: u64);
    pub safe fn warpsim_out_of_memory_above_total(bytes: u64);
    pub safe fn warpsim_external_peer(accessing: i32, target: i32, on: u8) -> u32;
    pub safe fn warpsim_external_pool_access(owner: i32, accessing: i32, flags: u32) -> u32;
    pub safe fn warpsim_reset_device(device: i32) -> u32;
    pub safe fn warpsim_deinitialize();
    pub safe fn warpsim_hold(stream: u64) -> u32;
    pub safe fn warpsim_release(stream: u64) -> u32;
    pub safe fn warpsim_release_all();
    pub safe fn warpsim_auto_release(on: u8);
    pub safe fn warpsim_dead_stream_crashes(on: u8);
    pub safe fn warpsim_log_capacity(lines: usize);
    pub safe fn warpsim_log_clear();
    pub safe fn warpsim_log_count() -> usize;
    pub safe fn warpsim_log_total() -> u64;
    pub fn warpsim_log_get(index: usize, buffer: *mut c_char, len: usize) -> usize;
    pub fn warpsim_log_contains(text: *const c_char) -> i32;
    pub fn warpsim_call_count(entry: *const c_char) -> u64;
    pub fn warpsim_live_count(kind: *const c_char) -> usize;
    pub fn warpsim_live_bytes(kind: *const c_char) -> u64;
    pub safe fn warpsim_device_used(device: i32) -> u64;
    pub safe fn warpsim_violation_count() -> usize;
    pub fn warpsim_peek(address: u64, buffer: *mut c_void, len: usize) -> u32;
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The driver, started afresh for one test; other tests of the process wait until it is dropped.
pub struct Sim {
    _turn: MutexGuard<'static, ()>,
}

/// Fails the test with the names of the codes when they differ.
#[track_caller]
pub fn is(code: u32, wanted: u32) {
    assert_eq!(name(code), name(wanted));
}

#[track_caller]
pub fn ok(code: u32) {
    is(code, SUCCESS);
}

pub fn name(code: u32) -> String {
    let mut text = ptr::null();
    if cuGetErrorName(code, &mut text) != SUCCESS {
        return code.to_string();
    }
    // SAFETY: a text that is returned is static and terminated.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A call that writes one result.
#[track_caller]
pub fn get<T: Default>(call: impl FnOnce(&mut T) -> u32) -> T {
    let mut value = T::default();
    ok(call(&mut value));
    value
}

impl Sim {
    /// Chooses the machine, without `cuInit`.
    #[track_caller]
    pub fn choose(topology: &str) -> Sim {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let text = CString::new(topology).expect("no zero byte");
        warpsim_reset();
        // SAFETY: a terminated text; no buffer for a message.
        ok(unsafe { warpsim_set_topology(text.as_ptr(), ptr::null_mut(), 0) });
        Sim { _turn: turn }
    }

    /// Starts the machine, with the primary context of device 0 current.
    #[track_caller]
    pub fn start(topology: &str) -> Sim {
        let sim = Sim::choose(topology);
        ok(cuInit(0));
        sim.enter(0);
        sim
    }

    /// Retains a device's primary context and makes it current.
    #[track_caller]
    pub fn enter(&self, device: i32) -> u64 {
        let context = get(|context| cuDevicePrimaryCtxRetain(context, device));
        ok(cuCtxSetCurrent(context));
        context
    }

    #[track_caller]
    pub fn alloc(&self, bytes: usize) -> u64 {
        get(|address: &mut _| cuMemAlloc_v2(address, bytes))
    }

    #[track_caller]
    pub fn alloc_async(&self, bytes: usize, stream: u64) -> u64 {
        get(|address: &mut _| cuMemAllocAsync(address, bytes, stream))
    }

    #[track_caller]
    pub fn stream(&self, flags: u32) -> u64 {
        get(|stream: &mut _| cuStreamCreate(stream, flags))
    }

    #[track_caller]
    pub fn event(&self) -> u64 {
        get(|event: &mut _| cuEventCreate(event, 0))
    }

    #[track_caller]
    pub fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        // SAFETY: the buffer has as many bytes.
        ok(unsafe { cuMemcpyDtoH_v2(data.as_mut_ptr().cast(), address, bytes) });
        data
    }

    #[track_caller]
    pub fn write(&self, address: u64, data: &[u8]) {
        // SAFETY: the buffer has as many bytes.
        ok(unsafe { cuMemcpyHtoD_v2(address, data.as_ptr().cast(), data.len()) });
    }

    /// What is at an address, whatever its state.
    #[track_caller]
    pub fn peek(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        // SAFETY: the buffer has as many bytes.
        ok(unsafe { warpsim_peek(address, data.as_mut_ptr().cast(), bytes) });
        data
    }

    /// Loads a program into the current context: its handle, or the code.
    pub fn load(&self, text: &str) -> Result<u64, u32> {
        let text = CString::new(text).expect("no zero byte");
        let mut module = 0;
        // SAFETY: a terminated text.
        let code = unsafe { cuModuleLoadData(&mut module, text.as_ptr().cast()) };
        if code == SUCCESS { Ok(module) } else { Err(code) }
    }

    #[track_caller]
    pub fn function(&self, module: u64, name: &str) -> u64 {
        let name = CString::new(name).expect("no zero byte");
        // SAFETY: a terminated text.
        get(|function: &mut _| unsafe { cuModuleGetFunction(function, module, name.as_ptr()) })
    }

    /// Launches a kernel whose parameters all have at most 8 bytes.
    pub fn launch(&self, function: u64, blocks: u32, threads: u32, stream: u64, params: &[u64]) -> u32 {
        let addresses: Vec<*const u64> = params.iter().map(ptr::from_ref).collect();
        // SAFETY: an address for each parameter, and eight bytes at each.
        unsafe {
            cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, addresses.as_ptr(), ptr::null())
        }
    }

    pub fn pool(&self, device: i32) -> u64 {
        get(|pool: &mut _| cuDeviceGetDefaultMemPool(pool, device))
    }

    pub fn pool_value(&self, pool: u64, which: u32) -> u64 {
        get(|value: &mut _| cuMemPoolGetAttribute(pool, which, value))
    }

    pub fn calls(&self, entry: &str) -> u64 {
        let text = CString::new(entry).expect("no zero byte");
        // SAFETY: a terminated text.
        unsafe { warpsim_call_count(text.as_ptr()) }
    }

    pub fn live(&self, kind: &str) -> usize {
        let text = CString::new(kind).expect("no zero byte");
        // SAFETY: a terminated text.
        unsafe { warpsim_live_count(text.as_ptr()) }
    }

    pub fn logged(&self, text: &str) -> bool {
        let text = CString::new(text).expect("no zero byte");
        // SAFETY: a terminated text.
        unsafe { warpsim_log_contains(text.as_ptr()) != 0 }
    }

    /// How a forked child ends that runs `body` on this machine: its exit status, or minus its signal.
    pub fn child(&self, body: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child only makes calls that this test makes too, then ends without unwinding.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::_exit(body());
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
        }
    }
}
