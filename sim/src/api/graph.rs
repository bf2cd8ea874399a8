//! Captures and graphs: exported so that programs link, refused by name. Arguments are not looked at.
use super::unsupported;
use crate::call::Entry;

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2() -> u32 {
    static E: Entry = Entry::new("cuStreamBeginCapture_v2");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCaptureToGraph() -> u32 {
    static E: Entry = Entry::new("cuStreamBeginCaptureToGraph");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamEndCapture() -> u32 {
    static E: Entry = Entry::new("cuStreamEndCapture");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamUpdateCaptureDependencies() -> u32 {
    static E: Entry = Entry::new("cuStreamUpdateCaptureDependencies");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamUpdateCaptureDependencies_v2() -> u32 {
    static E: Entry = Entry::new("cuStreamUpdateCaptureDependencies_v2");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphCreate() -> u32 {
    static E: Entry = Entry::new("cuGraphCreate");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy() -> u32 {
    static E: Entry = Entry::new("cuGraphDestroy");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphClone() -> u32 {
    static E: Entry = Entry::new("cuGraphClone");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphInstantiateWithFlags() -> u32 {
    static E: Entry = Entry::new("cuGraphInstantiateWithFlags");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphInstantiateWithParams() -> u32 {
    static E: Entry = Entry::new("cuGraphInstantiateWithParams");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch() -> u32 {
    static E: Entry = Entry::new("cuGraphLaunch");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphUpload() -> u32 {
    static E: Entry = Entry::new("cuGraphUpload");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy() -> u32 {
    static E: Entry = Entry::new("cuGraphExecDestroy");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecGetFlags() -> u32 {
    static E: Entry = Entry::new("cuGraphExecGetFlags");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecUpdate_v2() -> u32 {
    static E: Entry = Entry::new("cuGraphExecUpdate_v2");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetNodes() -> u32 {
    static E: Entry = Entry::new("cuGraphGetNodes");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetRootNodes() -> u32 {
    static E: Entry = Entry::new("cuGraphGetRootNodes");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetEdges() -> u32 {
    static E: Entry = Entry::new("cuGraphGetEdges");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphGetEdges_v2() -> u32 {
    static E: Entry = Entry::new("cuGraphGetEdges_v2");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetType() -> u32 {
    static E: Entry = Entry::new("cuGraphNodeGetType");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetDependencies() -> u32 {
    static E: Entry = Entry::new("cuGraphNodeGetDependencies");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetDependencies_v2() -> u32 {
    static E: Entry = Entry::new("cuGraphNodeGetDependencies_v2");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetDependentNodes() -> u32 {
    static E: Entry = Entry::new("cuGraphNodeGetDependentNodes");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeGetDependentNodes_v2() -> u32 {
    static E: Entry = Entry::new("cuGraphNodeGetDependentNodes_v2");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddDependencies() -> u32 {
    static E: Entry = Entry::new("cuGraphAddDependencies");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddDependencies_v2() -> u32 {
    static E: Entry = Entry::new("cuGraphAddDependencies_v2");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddKernelNode_v2() -> u32 {
    static E: Entry = Entry::new("cuGraphAddKernelNode_v2");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphKernelNodeGetParams_v2() -> u32 {
    static E: Entry = Entry::new("cuGraphKernelNodeGetParams_v2");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddMemcpyNode() -> u32 {
    static E: Entry = Entry::new("cuGraphAddMemcpyNode");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddMemsetNode() -> u32 {
    static E: Entry = Entry::new("cuGraphAddMemsetNode");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddHostNode() -> u32 {
    static E: Entry = Entry::new("cuGraphAddHostNode");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddChildGraphNode() -> u32 {
    static E: Entry = Entry::new("cuGraphAddChildGraphNode");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphChildGraphNodeGetGraph() -> u32 {
    static E: Entry = Entry::new("cuGraphChildGraphNodeGetGraph");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddEmptyNode() -> u32 {
    static E: Entry = Entry::new("cuGraphAddEmptyNode");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddEventRecordNode() -> u32 {
    static E: Entry = Entry::new("cuGraphAddEventRecordNode");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddEventWaitNode() -> u32 {
    static E: Entry = Entry::new("cuGraphAddEventWaitNode");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddMemAllocNode() -> u32 {
    static E: Entry = Entry::new("cuGraphAddMemAllocNode");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphMemAllocNodeGetParams() -> u32 {
    static E: Entry = Entry::new("cuGraphMemAllocNodeGetParams");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddMemFreeNode() -> u32 {
    static E: Entry = Entry::new("cuGraphAddMemFreeNode");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphMemFreeNodeGetParams() -> u32 {
    static E: Entry = Entry::new("cuGraphMemFreeNodeGetParams");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddNode() -> u32 {
    static E: Entry = Entry::new("cuGraphAddNode");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddNode_v2() -> u32 {
    static E: Entry = Entry::new("cuGraphAddNode_v2");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroyNode() -> u32 {
    static E: Entry = Entry::new("cuGraphDestroyNode");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDebugDotPrint() -> u32 {
    static E: Entry = Entry::new("cuGraphDebugDotPrint");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGraphMemTrim() -> u32 {
    static E: Entry = Entry::new("cuDeviceGraphMemTrim");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetGraphMemAttribute() -> u32 {
    static E: Entry = Entry::new("cuDeviceGetGraphMemAttribute");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceSetGraphMemAttribute() -> u32 {
    static E: Entry = Entry::new("cuDeviceSetGraphMemAttribute");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuUserObjectCreate() -> u32 {
    static E: Entry = Entry::new("cuUserObjectCreate");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuUserObjectRetain() -> u32 {
    static E: Entry = Entry::new("cuUserObjectRetain");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuUserObjectRelease() -> u32 {
    static E: Entry = Entry::new("cuUserObjectRelease");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphRetainUserObject() -> u32 {
    static E: Entry = Entry::new("cuGraphRetainUserObject");
    unsupported(&E)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphReleaseUserObject() -> u32 {
    static E: Entry = Entry::new("cuGraphReleaseUserObject");
    unsupported(&E)
}
