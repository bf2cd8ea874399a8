// Sixth round: what each call does while a stream captures, to that capture and for the caller.
// Build: g++ -O1 -std=c++17 driver_probe6.cpp -o probe6 -lcuda -lpthread      Run: ./probe6
#include "capture_probe.h"

// What calls on other objects find: made before the capture begins.
struct Things {
    CUstream capturing, other, blocking;
    CUevent recorded, fresh, timed, timed_end;
    CUdeviceptr plain, plain2, pool, managed, reserved, mapped;
    CUmemGenericAllocationHandle physical, spare;
    CUmemoryPool default_pool, own_pool;
    void *pinned, *pinned2, *pageable, *registered;
    CUgraph graph, memory_graph;
    CUgraphExec exec;
    CUcontext created;
    CUuserObject object;
};

static Things make_things()
{
    Things t = {};
    t.other = make_stream();
    t.blocking = make_stream(0);
    t.recorded = make_event();
    t.fresh = make_event();
    MUST(cuEventCreate(&t.timed, 0));
    MUST(cuEventCreate(&t.timed_end, 0));
    MUST(cuEventRecord(t.recorded, t.other));
    MUST(cuEventRecord(t.timed, t.other));
    MUST(cuEventRecord(t.timed_end, t.other));
    MUST(cuMemAlloc(&t.plain, 4096));
    MUST(cuMemAlloc(&t.plain2, 4096));
    MUST(cuMemAllocAsync(&t.pool, 4096, t.other));
    MUST(cuMemAllocManaged(&t.managed, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemAllocHost(&t.pinned, 4096));
    MUST(cuMemAllocHost(&t.pinned2, 4096));
    t.pageable = aligned_alloc(4096, 4096);
    t.registered = aligned_alloc(4096, 4096);
    memset(t.pageable, 0, 4096);
    memset(t.registered, 0, 4096);
    MUST(cuMemHostRegister(t.registered, 4096, 0));
    MUST(cuDeviceGetDefaultMemPool(&t.default_pool, device));
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    MUST(cuMemPoolCreate(&t.own_pool, &props));
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    MUST(cuMemCreate(&t.physical, 2 << 20, &prop, 0));
    MUST(cuMemCreate(&t.spare, 2 << 20, &prop, 0));
    MUST(cuMemAddressReserve(&t.reserved, 4 << 20, 0, 0, 0));
    t.mapped = t.reserved + (2 << 20);
    MUST(cuMemMap(t.mapped, 2 << 20, 0, t.physical, 0));
    MUST(cuGraphCreate(&t.graph, 0));
    CUgraphNode node;
    MUST(cuGraphAddEmptyNode(&node, t.graph, nullptr, 0));
    MUST(cuGraphInstantiateWithFlags(&t.exec, t.graph, 0));
    MUST(cuUserObjectCreate(&t.object, nullptr, nothing, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    MUST(cuStreamSynchronize(t.other));
    return t;
}

// One call while a stream captures. The name, "flags of the capturing stream" and mode say how.
struct Call {
    const char *name;
    std::function<CUresult(Things &)> call;
};

static size_t size_a;
static unsigned long long number;
static cuuint64_t attribute;
static int integer;

static const std::vector<Call> calls = {
    {"cuMemAllocPitch", [](Things &) { return cuMemAllocPitch(&address, &size_a, 64, 64, 4); }},
    {"cuMemFree_managed", [](Things &t) { return cuMemFree(t.managed); }},
    {"cuMemFree_null", [](Things &) { return cuMemFree(0); }},
    {"cuMemFreeHost", [](Things &t) { return cuMemFreeHost(t.pinned); }},
    {"cuMemHostUnregister", [](Things &t) { return cuMemHostUnregister(t.registered); }},
    {"cuMemHostGetDevicePointer", [](Things &t) { return cuMemHostGetDevicePointer(&address, t.pinned, 0); }},
    {"cuMemGetAddressRange", [](Things &t) { return cuMemGetAddressRange(&address, &size_a, t.plain); }},
    {"cuPointerSetAttribute",
     [](Things &t) {
         int on = 1;
         return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, t.plain);
     }},
    {"cuMemAllocAsync_other", [](Things &t) { return cuMemAllocAsync(&address, 4096, t.other); }},
    {"cuMemAllocFromPoolAsync_other",
     [](Things &t) { return cuMemAllocFromPoolAsync(&address, 4096, t.own_pool, t.other); }},
    {"cuMemFreeAsync_other", [](Things &t) { return cuMemFreeAsync(t.pool, t.other); }},
    {"cuMemFreeAsync_plain_other", [](Things &t) { return cuMemFreeAsync(t.plain, t.other); }},
    {"cuMemFreeAsync_null_own", [](Things &t) { return cuMemFreeAsync(0, t.capturing); }},
    {"cuMemPoolCreate",
     [](Things &) {
         CUmemPoolProps props = {};
         CUmemoryPool pool;
         props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
         props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
         return cuMemPoolCreate(&pool, &props);
     }},
    {"cuMemPoolDestroy", [](Things &t) { return cuMemPoolDestroy(t.own_pool); }},
    {"cuDeviceSetMemPool", [](Things &t) { return cuDeviceSetMemPool(device, t.own_pool); }},
    {"cuDeviceGetMemPool", [](Things &t) { return cuDeviceGetMemPool(&t.own_pool, device); }},
    {"cuMemCreate",
     [](Things &t) {
         CUmemAllocationProp prop = {};
         prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
         prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
         return cuMemCreate(&t.spare, 2 << 20, &prop, 0);
     }},
    {"cuMemRelease", [](Things &t) { return cuMemRelease(t.spare); }},
    {"cuMemAddressReserve", [](Things &) { return cuMemAddressReserve(&address, 2 << 20, 0, 0, 0); }},
    {"cuMemMap", [](Things &t) { return cuMemMap(t.reserved, 2 << 20, 0, t.spare, 0); }},
    {"cuMemUnmap", [](Things &t) { return cuMemUnmap(t.mapped, 2 << 20); }},
    {"cuMemSetAccess",
     [](Things &t) {
         CUmemAccessDesc access = {};
         access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
         access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
         return cuMemSetAccess(t.mapped, 2 << 20, &access, 1);
     }},
    {"cuIpcGetMemHandle",
     [](Things &t) {
         CUipcMemHandle handle;
         return cuIpcGetMemHandle(&handle, t.plain);
     }},
    {"cuMemAdvise",
     [](Things &t) {
         CUmemLocation to = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
         return cuMemAdvise(t.managed, 1 << 20, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, to);
     }},
    {"cuMemPrefetchAsync_other",
     [](Things &t) {
         CUmemLocation to = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
         return cuMemPrefetchAsync(t.managed, 1 << 20, to, 0, t.other);
     }},
    {"cuMemPrefetchAsync_own",
     [](Things &t) {
         CUmemLocation to = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
         return cuMemPrefetchAsync(t.managed, 1 << 20, to, 0, t.capturing);
     }},
    {"cuStreamAttachMemAsync_other",
     [](Things &t) { return cuStreamAttachMemAsync(t.other, t.managed, 0, CU_MEM_ATTACH_SINGLE); }},
    {"cuStreamAttachMemAsync_own",
     [](Things &t) { return cuStreamAttachMemAsync(t.capturing, t.managed, 0, CU_MEM_ATTACH_SINGLE); }},
    {"cuMemcpyDtoDAsync_other", [](Things &t) { return cuMemcpyDtoDAsync(t.plain, t.plain2, 4096, t.other); }},
    {"cuMemcpyDtoHAsync_pageable_own",
     [](Things &t) { return cuMemcpyDtoHAsync(t.pageable, t.plain, 4096, t.capturing); }},
    {"cuMemcpyDtoHAsync_pageable_other",
     [](Things &t) { return cuMemcpyDtoHAsync(t.pageable, t.plain, 4096, t.other); }},
    {"cuMemcpyAsync_empty_own", [](Things &t) { return cuMemcpyAsync(t.plain, t.plain2, 0, t.capturing); }},
    {"cuMemsetD8Async_empty_own", [](Things &t) { return cuMemsetD8Async(t.plain, 0, 0, t.capturing); }},
    {"cuMemcpyDtoH", [](Things &t) { return cuMemcpyDtoH(t.pageable, t.plain, 4096); }},
    {"cuMemcpyDtoD", [](Things &t) { return cuMemcpyDtoD(t.plain, t.plain2, 4096); }},
    {"cuMemcpyPeer", [](Things &t) { return cuMemcpyPeer(t.plain, context, t.plain2, context, 4096); }},
    {"cuMemcpyPeerAsync_own",
     [](Things &t) { return cuMemcpyPeerAsync(t.plain, context, t.plain2, context, 4096, t.capturing); }},
    {"cuMemsetD8", [](Things &t) { return cuMemsetD8(t.plain, 1, 4096); }},
    {"cuMemcpyHtoDAsync_legacy", [](Things &t) { return cuMemcpyHtoDAsync(t.plain, t.pinned, 4096, nullptr); }},
    {"cuMemsetD8Async_legacy", [](Things &t) { return cuMemsetD8Async(t.plain, 1, 4096, nullptr); }},
    {"cuMemsetD8Async_per_thread", [](Things &t) { return cuMemsetD8Async(t.plain, 1, 4096, CU_STREAM_PER_THREAD); }},
    {"cuMemAllocAsync_legacy", [](Things &) { return cuMemAllocAsync(&address, 4096, nullptr); }},
    {"cuLaunchHostFunc_legacy", [](Things &) { return cuLaunchHostFunc(nullptr, nothing, nullptr); }},
    {"cuLaunchHostFunc_other", [](Things &t) { return cuLaunchHostFunc(t.other, nothing, nullptr); }},
    {"cuStreamQuery_own", [](Things &t) { return cuStreamQuery(t.capturing); }},
    {"cuStreamQuery_other", [](Things &t) { return cuStreamQuery(t.other); }},
    {"cuStreamQuery_legacy", [](Things &) { return cuStreamQuery(nullptr); }},
    {"cuStreamSynchronize_other", [](Things &t) { return cuStreamSynchronize(t.other); }},
    {"cuStreamSynchronize_legacy", [](Things &) { return cuStreamSynchronize(nullptr); }},
    {"cuStreamGetId_own", [](Things &t) { return cuStreamGetId(t.capturing, &number); }},
    {"cuStreamGetId_legacy", [](Things &) { return cuStreamGetId(nullptr, &number); }},
    {"cuStreamGetCtx_own", [](Things &t) { return cuStreamGetCtx(t.capturing, &t.created); }},
    {"cuStreamGetPriority_own", [](Things &t) { return cuStreamGetPriority(t.capturing, &integer); }},
    {"cuStreamGetCaptureInfo_legacy",
     [](Things &) {
         CUstreamCaptureStatus status;
         return cuStreamGetCaptureInfo(nullptr, &status, &attribute, nullptr, nullptr, nullptr, nullptr);
     }},
    {"cuStreamDestroy_other", [](Things &t) { return cuStreamDestroy(t.other); }},
    {"cuStreamWaitEvent_recorded_own", [](Things &t) { return cuStreamWaitEvent(t.capturing, t.recorded, 0); }},
    {"cuStreamWaitEvent_recorded_own_external",
     [](Things &t) { return cuStreamWaitEvent(t.capturing, t.recorded, 1); }},
    {"cuStreamWaitEvent_fresh_own", [](Things &t) { return cuStreamWaitEvent(t.capturing, t.fresh, 0); }},
    {"cuStreamWaitEvent_recorded_other", [](Things &t) { return cuStreamWaitEvent(t.other, t.recorded, 0); }},
    {"cuStreamWaitEvent_recorded_legacy", [](Things &t) { return cuStreamWaitEvent(nullptr, t.recorded, 0); }},
    {"cuEventRecord_other", [](Things &t) { return cuEventRecord(t.fresh, t.other); }},
    {"cuEventRecord_legacy", [](Things &t) { return cuEventRecord(t.fresh, nullptr); }},
    {"cuEventRecord_own_external", [](Things &t) { return cuEventRecordWithFlags(t.fresh, t.capturing, 1); }},
    {"cuEventRecord_other_external", [](Things &t) { return cuEventRecordWithFlags(t.fresh, t.other, 1); }},
    {"cuEventQuery", [](Things &t) { return cuEventQuery(t.recorded); }},
    {"cuEventQuery_fresh", [](Things &t) { return cuEventQuery(t.fresh); }},
    {"cuEventSynchronize", [](Things &t) { return cuEventSynchronize(t.recorded); }},
    {"cuEventElapsedTime",
     [](Things &t) {
         float time;
         return cuEventElapsedTime(&time, t.timed, t.timed_end);
     }},
    {"cuEventDestroy", [](Things &t) { return cuEventDestroy(t.recorded); }},
    {"cuEventCreate", [](Things &t) { return cuEventCreate(&t.fresh, 0); }},
    {"cuCtxRecordEvent", [](Things &t) { return cuCtxRecordEvent(context, t.fresh); }},
    {"cuCtxWaitEvent", [](Things &t) { return cuCtxWaitEvent(context, t.recorded); }},
    {"cuCtxCreate", [](Things &t) { return cuCtxCreate(&t.created, nullptr, 0, device); }},
    {"cuDevicePrimaryCtxRetain", [](Things &t) { return cuDevicePrimaryCtxRetain(&t.created, device); }},
    {"cuCtxSetLimit", [](Things &) { return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048); }},
    {"cuCtxGetLimit", [](Things &) { return cuCtxGetLimit(&size_a, CU_LIMIT_STACK_SIZE); }},
    {"cuDeviceGetGraphMemAttribute",
     [](Things &) { return cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &attribute); }},
    {"cuDeviceSetGraphMemAttribute",
     [](Things &) {
         attribute = 0;
         return cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &attribute);
     }},
    {"cuDeviceGraphMemTrim", [](Things &) { return cuDeviceGraphMemTrim(device); }},
    {"cuGraphCreate", [](Things &t) { return cuGraphCreate(&t.memory_graph, 0); }},
    {"cuGraphDestroy", [](Things &t) { return cuGraphDestroy(t.graph); }},
    {"cuGraphClone", [](Things &t) { return cuGraphClone(&t.memory_graph, t.graph); }},
    {"cuGraphInstantiate", [](Things &t) { return cuGraphInstantiateWithFlags(&t.exec, t.graph, 0); }},
    {"cuGraphExecDestroy", [](Things &t) { return cuGraphExecDestroy(t.exec); }},
    {"cuGraphUpload_other", [](Things &t) { return cuGraphUpload(t.exec, t.other); }},
    {"cuGraphUpload_own", [](Things &t) { return cuGraphUpload(t.exec, t.capturing); }},
    {"cuGraphLaunch_other", [](Things &t) { return cuGraphLaunch(t.exec, t.other); }},
    {"cuGraphLaunch_legacy", [](Things &t) { return cuGraphLaunch(t.exec, nullptr); }},
    {"cuGraphLaunch_own", [](Things &t) { return cuGraphLaunch(t.exec, t.capturing); }},
    {"cuUserObjectCreate",
     [](Things &t) { return cuUserObjectCreate(&t.object, nullptr, nothing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC); }},
    {"cuUserObjectRelease", [](Things &t) { return cuUserObjectRelease(t.object, 1); }},
};

// The calls on the graph that is being captured, and on the capturing stream.
static const std::vector<Call> own_calls = {
    {"cuGraphDestroy", [](Things &t) { return cuGraphDestroy(t.memory_graph); }},
    {"cuGraphInstantiate", [](Things &t) { return cuGraphInstantiateWithFlags(&t.exec, t.memory_graph, 0); }},
    {"cuGraphClone", [](Things &t) { return cuGraphClone(&t.graph, t.memory_graph); }},
    {"cuGraphAddEmptyNode",
     [](Things &t) {
         CUgraphNode node;
         return cuGraphAddEmptyNode(&node, t.memory_graph, nullptr, 0);
     }},
    {"cuGraphDestroyNode",
     [](Things &t) {
         CUgraphNode node;
         size_t count = 1;
         MUST(cuGraphGetNodes(t.memory_graph, &node, &count));
         return cuGraphDestroyNode(node);
     }},
    {"cuGraphRetainUserObject", [](Things &t) { return cuGraphRetainUserObject(t.memory_graph, t.object, 1, 0); }},
    {"cuStreamBeginCapture_again",
     [](Things &t) { return cuStreamBeginCapture(t.capturing, CU_STREAM_CAPTURE_MODE_RELAXED); }},
    {"cuStreamDestroy", [](Things &t) { return cuStreamDestroy(t.capturing); }},
    {"cuGraphAddChildGraphNode_into_other",
     [](Things &t) {
         CUgraphNode node;
         return cuGraphAddChildGraphNode(&node, t.graph, nullptr, 0, t.memory_graph);
     }},
    {"cuGraphLaunch_own", [](Things &t) { return cuGraphLaunch(t.exec, t.capturing); }},
    {"cuStreamUpdateCaptureDependencies_bad_flags",
     [](Things &t) { return cuStreamUpdateCaptureDependencies(t.capturing, nullptr, nullptr, 0, 7); }},
    {"cuStreamUpdateCaptureDependencies_set_none",
     [](Things &t) {
         return cuStreamUpdateCaptureDependencies(t.capturing, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
     }},
};

static void one_call(const char *prefix, int mode, unsigned flags, bool own, const Call &call)
{
    const std::string name = std::string(prefix) + call.name;
    in_child(name, [&] {
        start();
        Things t = make_things();
        t.capturing = make_stream(flags);
        MUST(cuStreamBeginCapture(t.capturing, (CUstreamCaptureMode)mode));
        if (own) {
            CUstreamCaptureStatus status;
            MUST(cuMemsetD8Async(t.plain, 1, 4096, t.capturing));
            MUST(cuStreamGetCaptureInfo(t.capturing, &status, &attribute, &t.memory_graph, nullptr, nullptr, nullptr));
        }
        CUresult code = call.call(t);
        if (own && std::string(call.name) == "cuStreamDestroy") {
            printf("%s = %s\n", name.c_str(), short_name(code).c_str());
            return;
        }
        int status = status_of(t.capturing);
        CUgraph graph = nullptr;
        CUresult end = cuStreamEndCapture(t.capturing, &graph);
        printf("%s = %s status=%d end=%s nodes=%s\n", name.c_str(), short_name(code).c_str(), status,
               short_name(end).c_str(), graph ? types_of(graph).c_str() : "no_graph");
    });
}

int main()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (const Call &call : calls)
        one_call("global.", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_NON_BLOCKING, false, call);
    for (const Call &call : calls)
        one_call("blocking.", CU_STREAM_CAPTURE_MODE_RELAXED, 0, false, call);
    for (const Call &call : own_calls)
        one_call("own.", CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING, true, call);
    puts("done = 1");
}
