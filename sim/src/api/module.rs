//! Modules and kernels: exported so that programs link, refused by name. Arguments are not looked at.
use super::unsupported;
use crate::call::Entry;

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoad() -> u32 {
    static E: Entry = Entry::new("cuModuleLoad");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadData() -> u32 {
    static E: Entry = Entry::new("cuModuleLoadData");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadDataEx() -> u32 {
    static E: Entry = Entry::new("cuModuleLoadDataEx");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadFatBinary() -> u32 {
    static E: Entry = Entry::new("cuModuleLoadFatBinary");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload() -> u32 {
    static E: Entry = Entry::new("cuModuleUnload");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetFunction() -> u32 {
    static E: Entry = Entry::new("cuModuleGetFunction");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetGlobal_v2() -> u32 {
    static E: Entry = Entry::new("cuModuleGetGlobal_v2");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetLoadingMode() -> u32 {
    static E: Entry = Entry::new("cuModuleGetLoadingMode");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryLoadData() -> u32 {
    static E: Entry = Entry::new("cuLibraryLoadData");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryUnload() -> u32 {
    static E: Entry = Entry::new("cuLibraryUnload");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryGetKernel() -> u32 {
    static E: Entry = Entry::new("cuLibraryGetKernel");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryGetModule() -> u32 {
    static E: Entry = Entry::new("cuLibraryGetModule");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuKernelGetFunction() -> u32 {
    static E: Entry = Entry::new("cuKernelGetFunction");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetAttribute() -> u32 {
    static E: Entry = Entry::new("cuFuncGetAttribute");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute() -> u32 {
    static E: Entry = Entry::new("cuFuncSetAttribute");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetModule() -> u32 {
    static E: Entry = Entry::new("cuFuncGetModule");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetName() -> u32 {
    static E: Entry = Entry::new("cuFuncGetName");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncLoad() -> u32 {
    static E: Entry = Entry::new("cuFuncLoad");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernel() -> u32 {
    static E: Entry = Entry::new("cuLaunchKernel");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernelEx() -> u32 {
    static E: Entry = Entry::new("cuLaunchKernelEx");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchCooperativeKernel() -> u32 {
    static E: Entry = Entry::new("cuLaunchCooperativeKernel");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor() -> u32 {
    static E: Entry = Entry::new("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    unsupported(&E)
}
