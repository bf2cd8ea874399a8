//! The entry points of the driver that this library calls, each listed once. A signature that disagrees with
//! cudarc's does not compile, but for the few that cudarc has dropped and older drivers still have; every entry is
//! optional at load and a missing one is an ordinary failure.

use super::code::Failure;
use cudarc::driver::sys::{self, *};
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

macro_rules! entry_points {
    ($( $name:ident ( $($arg:ident : $ty:ty),* ); )*
     @by_hand $( $dropped:ident ( $($dropped_arg:ident : $dropped_ty:ty),* ); )*) => {
        // The signatures are cudarc's; only the result is a plain number, since a code that cudarc does not list must
        // not become a Rust enum.
        $( const _: unsafe fn($($ty),*) -> CUresult = sys::$name; )*

        table! {
            $( $name ( $($arg : $ty),* ); )*
            $( $dropped ( $($dropped_arg : $dropped_ty),* ); )*
        }
    };
}

macro_rules! table {
    ($( $name:ident ( $($arg:ident : $ty:ty),* ); )*) => {
        /// Addresses found in the driver's file, `None` where it lacks the name.
        #[allow(non_snake_case)]
        pub struct Table { $( $name: Option<unsafe extern "C" fn($($ty),*) -> u32>, )* }

        /// Every name in the table, in order.
        #[cfg(test)]
        pub const NAMES: &[&str] = &[ $( stringify!($name), )* ];

        impl Table {
            /// Fills the table, asking `find` for each name.
            pub fn fill(mut find: impl FnMut(&CStr) -> *mut c_void) -> Table {
                Table { $( $name: {
                    let address = find(const {
                        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("an entry point's name has a NUL"),
                        }
                    });
                    // SAFETY: a driver that exports this name does so with the C signature that cudarc
                    // declares, or declared (checked above); NULL becomes None by the layout of Option<fn>.
                    unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($ty),*) -> u32>>(address) }
                }, )* }
            }

            /// The names that the driver lacks.
            pub fn missing(&self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $( if self.$name.is_none() { names.push(stringify!($name)); } )*
                names
            }

            $(
                /// # Safety
                /// As the driver's documentation of the entry point says for its arguments.
                #[allow(non_snake_case, clippy::too_many_arguments)]
                #[inline(always)]
                pub unsafe fn $name(&self, $($arg: $ty),*) -> Result<(), Failure> {
                    match self.$name {
                        // SAFETY: the caller keeps the entry point's own rules.
                        Some(entry) => match unsafe { entry($($arg),*) } {
                            0 => Ok(()),
                            code => Err(Failure::code(stringify!($name), code)),
                        },
                        None => Err(Failure::missing(stringify!($name))),
                    }
                }
            )*
        }
    };
}

entry_points! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);

    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    cuDeviceGetAttribute(out: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    cuDeviceGetPCIBusId(out: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
    cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice);

    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int);
    cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxSetCurrent(context: CUcontext);
    cuCtxGetDevice(device: *mut CUdevice);
    cuCtxGetId(context: CUcontext, id: *mut c_ulonglong);
    cuCtxSynchronize();
    cuCtxRecordEvent(context: CUcontext, event: CUevent);
    cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
    cuCtxDisablePeerAccess(peer: CUcontext);

    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemAlloc_v2(out: *mut CUdeviceptr, size: usize);
    cuMemFree_v2(ptr: CUdeviceptr);
    cuMemHostAlloc(out: *mut *mut c_void, size: usize, flags: c_uint);
    cuMemFreeHost(ptr: *mut c_void);
    cuMemAllocManaged(out: *mut CUdeviceptr, size: usize, flags: c_uint);
    cuMemAllocFromPoolAsync(out: *mut CUdeviceptr, size: usize, pool: CUmemoryPool, stream: CUstream);
    cuMemFreeAsync(ptr: CUdeviceptr, stream: CUstream);
    cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
    cuMemPoolDestroy(pool: CUmemoryPool);
    cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
    cuMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation);
    cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize);

    cuMemPrefetchAsync_v2(ptr: CUdeviceptr, size: usize, place: CUmemLocation, flags: c_uint, stream: CUstream);
    cuMemAdvise_v2(ptr: CUdeviceptr, size: usize, advice: CUmem_advise, place: CUmemLocation);
    cuMemRangeGetAttribute(out: *mut c_void, bytes: usize, attribute: CUmem_range_attribute, ptr: CUdeviceptr, size: usize);
    cuIpcGetMemHandle(handle: *mut CUipcMemHandle, ptr: CUdeviceptr);

    cuMemGetAccess(flags: *mut c_ulonglong, location: *const CUmemLocation, ptr: CUdeviceptr);

    cuPointerGetAttribute(value: *mut c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr);
    cuPointerGetAttributes(count: c_uint, attributes: *mut CUpointer_attribute, out: *mut *mut c_void, ptr: CUdeviceptr);
    cuMemRetainAllocationHandle(out: *mut CUmemGenericAllocationHandle, address: *mut c_void);
    cuMemRelease(handle: CUmemGenericAllocationHandle);

    cuMemcpyAsync(dest: CUdeviceptr, src: CUdeviceptr, size: usize, stream: CUstream);
    cuMemcpyPeerAsync(dest: CUdeviceptr, dest_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, size: usize, stream: CUstream);
    cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream);
    cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream);
    cuMemsetD8Async(dest: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream);
    cuMemsetD16Async(dest: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream);
    cuMemsetD32Async(dest: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);

    cuStreamCreateWithPriority(out: *mut CUstream, flags: c_uint, priority: c_int);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuStreamQuery(stream: CUstream);
    cuStreamGetId(stream: CUstream, id: *mut c_ulonglong);
    cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    cuStreamGetFlags(stream: CUstream, flags: *mut c_uint);
    cuStreamGetPriority(stream: CUstream, priority: *mut c_int);
    cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void);
    cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);

    cuEventCreate(out: *mut CUevent, flags: c_uint);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventQuery(event: CUevent);
    cuEventSynchronize(event: CUevent);
    cuEventDestroy_v2(event: CUevent);
    cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent);

    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuFuncLoad(function: CUfunction);
    cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, each: *mut *mut c_void, extra: *mut *mut c_void);

    cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
    cuStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, nodes: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode);
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    cuStreamGetCaptureInfo_v3(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut cuuint64_t, graph: *mut CUgraph, nodes: *mut *const CUgraphNode, edges: *mut *const CUgraphEdgeData, count: *mut usize);
    cuStreamUpdateCaptureDependencies_v2(stream: CUstream, nodes: *mut CUgraphNode, edges: *const CUgraphEdgeData, count: usize, flags: c_uint);

    cuGraphDestroy(graph: CUgraph);
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphGetEdges_v2(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize);
    cuGraphNodeGetDependentNodes_v2(node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize);
    cuGraphMemAllocNodeGetParams(node: CUgraphNode, out: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
    cuGraphAddMemFreeNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, ptr: CUdeviceptr);
    cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, child: CUgraph);
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
    cuGraphUpload(exec: CUgraphExec, stream: CUstream);
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    cuGraphExecDestroy(exec: CUgraphExec);
    cuUserObjectCreate(object: *mut CUuserObject, data: *mut c_void, destroyed: CUhostFn, references: c_uint, flags: c_uint);
    cuUserObjectRelease(object: CUuserObject, count: c_uint);
    cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint);
    cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void);
    cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void);
    cuDeviceGraphMemTrim(device: CUdevice);

    @by_hand
    cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    cuMemPrefetchAsync(ptr: CUdeviceptr, size: usize, device: CUdevice, stream: CUstream);
    cuMemAdvise(ptr: CUdeviceptr, size: usize, advice: CUmem_advise, device: CUdevice);
}

/// Without these there is no using the driver at all; without any other, its feature is off.
pub const REQUIRED: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxGetState",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxGetDevice",
    "cuCtxGetId",
    "cuCtxSynchronize",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuPointerGetAttributes",
    "cuMemcpyAsync",
    "cuMemcpyPeerAsync",
    "cuMemsetD8Async",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuStreamGetId",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
];

/// What stream-ordered pools need.
pub const POOLS: &[&str] = &[
    "cuDeviceGetMemPool",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemPoolTrimTo",
    "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute",
    "cuMemPoolGetAccess",
    "cuMemPoolSetAccess",
];

/// What kernels need.
pub const KERNELS: &[&str] = &["cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel"];

/// What captures and graphs need; drivers before 12.3 lack some of it.
pub const GRAPHS: &[&str] = &[
    "cuStreamBeginCapture_v2",
    "cuStreamBeginCaptureToGraph",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v3",
    "cuStreamUpdateCaptureDependencies_v2",
    "cuGraphDestroy",
    "cuGraphGetNodes",
    "cuGraphGetEdges_v2",
    "cuGraphNodeGetDependentNodes_v2",
    "cuGraphMemAllocNodeGetParams",
    "cuGraphAddMemFreeNode",
    "cuGraphAddChildGraphNode",
    "cuGraphInstantiateWithFlags",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuUserObjectCreate",
    "cuUserObjectRelease",
    "cuGraphRetainUserObject",
    "cuDeviceGetGraphMemAttribute",
    "cuDeviceSetGraphMemAttribute",
    "cuDeviceGraphMemTrim",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_and_feature_names_are_in_the_table() {
        for name in REQUIRED.iter().chain(POOLS).chain(GRAPHS).chain(KERNELS) {
            assert!(NAMES.contains(name), "{name} is not an entry of the table");
        }
    }

    #[test]
    fn a_missing_entry_point_is_an_error_not_a_panic() {
        let table = Table::fill(|_| std::ptr::null_mut());
        assert_eq!(table.missing().len(), NAMES.len());
        // SAFETY: the entry is missing, so nothing is called.
        let failure = unsafe { table.cuInit(0) }.unwrap_err();
        assert!(failure.is_missing());
        assert_eq!(failure.entry, "cuInit");
    }
}
