//! Names of entry points: which version of a name a caller gets, and since which driver a name exists.
use std::ffi::{CStr, CString};
use std::ptr;

/// Entry points that are younger than a driver of 11.4, and the driver that brought them.
static SINCE: &[(&str, i32)] = &[
    ("cuCtxCreate_v3", 11040),
    ("cuGetProcAddress", 11030),
    ("cuGetProcAddress_v2", 12000),
    ("cuMemGetHandleForAddressRange", 11070),
    ("cuGraphInstantiateWithParams", 12000),
    ("cuStreamGetId", 12000),
    ("cuCtxGetId", 12000),
    ("cuLaunchKernelEx", 11060),
    ("cuModuleGetLoadingMode", 11070),
    ("cuLibraryLoadData", 12000),
    ("cuLibraryUnload", 12000),
    ("cuLibraryGetKernel", 12000),
    ("cuLibraryGetModule", 12000),
    ("cuKernelGetFunction", 12000),
    ("cuGraphAddKernelNode_v2", 12000),
    ("cuGraphKernelNodeGetParams_v2", 12000),
    ("cuFuncGetName", 12030),
    ("cuFuncLoad", 12040),
    ("cuMemAdvise_v2", 12020),
    ("cuMemPrefetchAsync_v2", 12020),
    ("cuStreamGetCaptureInfo_v3", 12030),
    ("cuStreamUpdateCaptureDependencies_v2", 12030),
    ("cuStreamBeginCaptureToGraph", 12030),
    ("cuGraphGetEdges_v2", 12030),
    ("cuGraphNodeGetDependencies_v2", 12030),
    ("cuGraphNodeGetDependentNodes_v2", 12030),
    ("cuGraphAddDependencies_v2", 12030),
    ("cuGraphAddNode", 12020),
    ("cuGraphAddNode_v2", 12030),
    ("cuCtxCreate_v4", 12050),
    ("cuCtxRecordEvent", 12050),
    ("cuCtxWaitEvent", 12050),
    ("cuEventElapsedTime_v2", 12080),
    ("cuStreamGetDevice", 12080),
    ("cuCtxGetDevice_v2", 13000),
    ("cuCtxSynchronize_v2", 13000),
    ("cuMemGetDefaultMemPool", 13000),
    ("cuMemGetMemPool", 13000),
    ("cuMemSetMemPool", 13000),
];

/// Plain names whose newest form has a suffix: name, first version that gives it, exported name. Oldest first.
static VERSIONS: &[(&str, i32, &str)] = &[
    ("cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2"),
    ("cuCtxCreate", 3020, "cuCtxCreate_v2"),
    ("cuCtxCreate", 11040, "cuCtxCreate_v3"),
    ("cuCtxCreate", 12050, "cuCtxCreate_v4"),
    ("cuMemGetInfo", 3020, "cuMemGetInfo_v2"),
    ("cuMemAlloc", 3020, "cuMemAlloc_v2"),
    ("cuMemAllocPitch", 3020, "cuMemAllocPitch_v2"),
    ("cuMemFree", 3020, "cuMemFree_v2"),
    ("cuMemGetAddressRange", 3020, "cuMemGetAddressRange_v2"),
    ("cuMemAllocHost", 3020, "cuMemAllocHost_v2"),
    ("cuMemHostGetDevicePointer", 3020, "cuMemHostGetDevicePointer_v2"),
    ("cuMemAdvise", 12020, "cuMemAdvise_v2"),
    ("cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"),
    ("cuMemcpyHtoD", 3020, "cuMemcpyHtoD_v2"),
    ("cuMemcpyDtoH", 3020, "cuMemcpyDtoH_v2"),
    ("cuMemcpyDtoD", 3020, "cuMemcpyDtoD_v2"),
    ("cuMemcpyHtoDAsync", 3020, "cuMemcpyHtoDAsync_v2"),
    ("cuMemcpyDtoHAsync", 3020, "cuMemcpyDtoHAsync_v2"),
    ("cuMemcpyDtoDAsync", 3020, "cuMemcpyDtoDAsync_v2"),
    ("cuMemcpy2D", 3020, "cuMemcpy2D_v2"),
    ("cuMemcpy2DUnaligned", 3020, "cuMemcpy2DUnaligned_v2"),
    ("cuMemcpy2DAsync", 3020, "cuMemcpy2DAsync_v2"),
    ("cuMemcpy3D", 3020, "cuMemcpy3D_v2"),
    ("cuMemcpy3DAsync", 3020, "cuMemcpy3DAsync_v2"),
    ("cuMemsetD8", 3020, "cuMemsetD8_v2"),
    ("cuMemsetD16", 3020, "cuMemsetD16_v2"),
    ("cuMemsetD32", 3020, "cuMemsetD32_v2"),
    ("cuMemsetD2D8", 3020, "cuMemsetD2D8_v2"),
    ("cuMemsetD2D16", 3020, "cuMemsetD2D16_v2"),
    ("cuMemsetD2D32", 3020, "cuMemsetD2D32_v2"),
    ("cuCtxDestroy", 4000, "cuCtxDestroy_v2"),
    ("cuCtxPopCurrent", 4000, "cuCtxPopCurrent_v2"),
    ("cuCtxPushCurrent", 4000, "cuCtxPushCurrent_v2"),
    ("cuStreamDestroy", 4000, "cuStreamDestroy_v2"),
    ("cuEventDestroy", 4000, "cuEventDestroy_v2"),
    ("cuModuleGetGlobal", 3020, "cuModuleGetGlobal_v2"),
    ("cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"),
    ("cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams_v2"),
    ("cuMemHostRegister", 6050, "cuMemHostRegister_v2"),
    ("cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"),
    ("cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"),
    ("cuDevicePrimaryCtxReset", 11000, "cuDevicePrimaryCtxReset_v2"),
    ("cuDevicePrimaryCtxSetFlags", 11000, "cuDevicePrimaryCtxSetFlags_v2"),
    ("cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"),
    ("cuIpcOpenMemHandle", 11000, "cuIpcOpenMemHandle_v2"),
    ("cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"),
    ("cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
    ("cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"),
    ("cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"),
    ("cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"),
    ("cuStreamUpdateCaptureDependencies", 11030, "cuStreamUpdateCaptureDependencies"),
    ("cuStreamUpdateCaptureDependencies", 12030, "cuStreamUpdateCaptureDependencies_v2"),
    ("cuGraphGetEdges", 10000, "cuGraphGetEdges"),
    ("cuGraphGetEdges", 12030, "cuGraphGetEdges_v2"),
    ("cuGraphNodeGetDependencies", 10000, "cuGraphNodeGetDependencies"),
    ("cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies_v2"),
    ("cuGraphNodeGetDependentNodes", 10000, "cuGraphNodeGetDependentNodes"),
    ("cuGraphNodeGetDependentNodes", 12030, "cuGraphNodeGetDependentNodes_v2"),
    ("cuGraphAddDependencies", 10000, "cuGraphAddDependencies"),
    ("cuGraphAddDependencies", 12030, "cuGraphAddDependencies_v2"),
    ("cuGraphAddNode", 12020, "cuGraphAddNode"),
    ("cuGraphAddNode", 12030, "cuGraphAddNode_v2"),
];

/// The entry points that a driver of this version does not have yet.
pub fn newer_than(driver: i32) -> impl Iterator<Item = &'static str> {
    SINCE.iter().filter(move |row| row.1 > driver).map(|row| row.0)
}

/// The exported name that `name` means for a caller of this version, and whether it exists only for newer callers.
pub fn exported(name: &str, version: i32) -> (&str, bool) {
    let mut rows = VERSIONS.iter().filter(|row| row.0 == name).peekable();
    let versioned = rows.peek().is_some();
    match rows.rfind(|row| row.1 <= version) {
        Some(row) => (row.2, false),
        None => (name, versioned || SINCE.iter().any(|row| row.0 == name && row.1 > version)),
    }
}

/// The address of an export of this very library; null for none.
pub fn address(name: &str) -> *mut libc::c_void {
    let Ok(symbol) = CString::new(name) else { return ptr::null_mut() };
    // SAFETY: dladdr fills the plain struct; its file name is a terminated string that lives as long as the library,
    // which is never unloaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let own = (address as *const ()).cast::<libc::c_void>();
        let mut handle = libc::RTLD_DEFAULT;
        if libc::dladdr(own, &raw mut info) != 0 && !info.dli_fname.is_null() {
            let file = CStr::from_ptr(info.dli_fname);
            let found = libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if !found.is_null() {
                handle = found;
            }
        }
        libc::dlsym(handle, symbol.as_ptr())
    }
}
