// Sixth round: captures and graphs: what each call does while a stream captures, forks and joins, the life of graphs, of
// their executables, of the memory in them and of user objects.
// Build: g++ -O1 -std=c++17 driver_probe6.cpp -o probe6 -lcuda -lpthread      Run: ./probe6
#include "probe.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

static CUdevice device;
static CUcontext context;

static std::string short_name(CUresult code)
{
    std::string name = name_of(code);
    const std::string prefix = "CUDA_ERROR_";
    return name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name == "CUDA_SUCCESS" ? "ok" : name;
}

static void start()
{
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
}

static CUstream make_stream(unsigned flags = CU_STREAM_NON_BLOCKING)
{
    CUstream stream = nullptr;
    MUST(cuStreamCreate(&stream, flags));
    return stream;
}

static CUevent make_event()
{
    CUevent event = nullptr;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static int status_of(CUstream stream)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)9;
    CUresult code = cuStreamIsCapturing(stream, &status);
    return code ? -(int)code : (int)status;
}

static size_t node_count(CUgraph graph)
{
    size_t count = 0;
    MUST(cuGraphGetNodes(graph, nullptr, &count));
    return count;
}

static std::string types_of(CUgraph graph)
{
    size_t count = node_count(graph);
    std::vector<CUgraphNode> nodes(count);
    if (count)
        MUST(cuGraphGetNodes(graph, nodes.data(), &count));
    std::string text;
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        MUST(cuGraphNodeGetType(nodes[i], &type));
        text += (i ? "," : "") + std::to_string((int)type);
    }
    return text.empty() ? "none" : text;
}

static void fact(const std::string &name, CUresult code)
{
    printf("%s = %s\n", name.c_str(), short_name(code).c_str());
}

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

static void CUDA_CB nothing(void *) {}

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

static CUdeviceptr address;
static void *host;
static size_t size_a, size_b;
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
    {"cuMemcpyDtoHAsync_pageable_own", [](Things &t) { return cuMemcpyDtoHAsync(t.pageable, t.plain, 4096, t.capturing); }},
    {"cuMemcpyDtoHAsync_pageable_other", [](Things &t) { return cuMemcpyDtoHAsync(t.pageable, t.plain, 4096, t.other); }},
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
    {"cuStreamWaitEvent_recorded_own_external", [](Things &t) { return cuStreamWaitEvent(t.capturing, t.recorded, 1); }},
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
    {"cuStreamBeginCapture_again", [](Things &t) { return cuStreamBeginCapture(t.capturing, CU_STREAM_CAPTURE_MODE_RELAXED); }},
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

static void one_call(const std::string &name, int mode, unsigned flags, bool own, const Call &call)
{
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
               short_name(end).c_str(), graph && !(own && code == CUDA_SUCCESS && std::string(call.name) == "cuGraphDestroy")
                   ? types_of(graph).c_str() : "no_graph");
    });
}

// ---- Forks, joins, and how a capture ends ----

static CUdeviceptr plain;

static void begin(CUstream stream, int mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
{
    MUST(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

static void work(CUstream stream)
{
    MUST(cuMemsetD8Async(plain, 1, 4096, stream));
}

// Puts `to` behind all that `from` has by now, in its capture if there is one.
static CUevent link(CUstream from, CUstream to)
{
    CUevent event = make_event();
    MUST(cuEventRecord(event, from));
    MUST(cuStreamWaitEvent(to, event, 0));
    return event;
}

static std::string info_of(CUstream stream)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)9;
    cuuint64_t id = 99;
    CUgraph graph = (CUgraph)1;
    const CUgraphNode *nodes = nullptr;
    size_t count = 99;
    CUresult code = cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, nullptr, &count);
    return short_name(code) + " status=" + std::to_string((int)status) + " id=" + (id == 99 ? "unset" : id ? "some" : "0") +
           " graph=" + (graph == (CUgraph)1 ? "unset" : graph ? "some" : "0") + " count=" +
           (count == 99 ? std::string("unset") : std::to_string(count));
}

static std::string end_of(CUstream stream)
{
    CUgraph graph = (CUgraph)1;
    CUresult code = cuStreamEndCapture(stream, &graph);
    std::string what = graph == (CUgraph)1 ? "unset" : graph ? types_of(graph) : "0";
    return short_name(code) + " graph=" + what;
}

static void line(const std::string &name, const std::string &text)
{
    printf("%s = %s\n", name.c_str(), text.c_str());
}

static void scene(const char *name, const std::function<void(std::string)> &body)
{
    in_child(name, [&] {
        start();
        MUST(cuMemAlloc(&plain, 4096));
        body(name);
    });
}

static void captures()
{
    scene("info", [](std::string n) {
        CUstream s = make_stream();
        line(n + ".idle", info_of(s));
        begin(s);
        line(n + ".begun", info_of(s));
        work(s);
        line(n + ".one", info_of(s));
        cuCtxSynchronize();
        line(n + ".invalid", info_of(s));
        line(n + ".end", end_of(s));
        line(n + ".after", info_of(s));
    });
    scene("begin", [](std::string n) {
        CUstream s = make_stream();
        fact(n + ".mode7", cuStreamBeginCapture(s, (CUstreamCaptureMode)7));
        fact(n + ".per_thread", cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        line(n + ".per_thread.end", end_of(CU_STREAM_PER_THREAD));
        fact(n + ".legacy", cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
        fact(n + ".end_legacy", cuStreamEndCapture(CU_STREAM_LEGACY, nullptr));
        begin(s);
        fact(n + ".end_null", cuStreamEndCapture(s, nullptr));
        printf("%s.end_null.status = %d\n", n.c_str(), status_of(s));
        CUstreamCaptureMode mode = (CUstreamCaptureMode)3;
        fact(n + ".exchange_bad", cuThreadExchangeStreamCaptureMode(&mode));
    });
    for (int mode = 0; mode < 3; mode++)
        scene("thread", [=](std::string n) {
            n += std::to_string(mode);
            CUstream s = make_stream();
            begin(s, mode);
            std::thread([&] {
                MUST(cuCtxSetCurrent(context));
                fact(n + ".work", cuMemsetD8Async(plain, 1, 16, s));
                line(n + ".end_elsewhere", end_of(s));
            }).join();
            printf("%s.status = %d\n", n.c_str(), status_of(s));
            line(n + ".end", end_of(s));
        });
    scene("fork", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        begin(s);
        work(s);
        CUevent e = make_event();
        MUST(cuEventRecord(e, s));
        line(n + ".before", info_of(t));
        MUST(cuStreamWaitEvent(t, e, 0));
        line(n + ".forked", info_of(t));
        work(s);
        work(t);
        link(t, s);
        line(n + ".joined", info_of(s));
        line(n + ".joined_fork", info_of(t));
        work(s);
        fact(n + ".query_captured", cuEventQuery(e));
        printf("%s.query_captured.status = %d\n", n.c_str(), status_of(s));
        line(n + ".end", end_of(s));
        printf("%s.status_after = %d %d\n", n.c_str(), status_of(s), status_of(t));
        fact(n + ".query_after", cuEventQuery(e));
        fact(n + ".wait_after", cuStreamWaitEvent(s, e, 0));
        fact(n + ".sync_after", cuEventSynchronize(e));
        begin(s);
        fact(n + ".wait_in_next", cuStreamWaitEvent(s, e, 0));
        printf("%s.wait_in_next.status = %d\n", n.c_str(), status_of(s));
        line(n + ".next_end", end_of(s));
        MUST(cuEventRecord(e, s));
        fact(n + ".query_recorded_again", cuEventSynchronize(e));
    });
    scene("event_after_end", [](std::string n) {
        CUstream s = make_stream();
        CUevent e = make_event();
        begin(s);
        work(s);
        MUST(cuEventRecord(e, s));
        line(n + ".end", end_of(s));
        fact(n + ".query", cuEventQuery(e));
        fact(n + ".synchronize", cuEventSynchronize(e));
        fact(n + ".wait", cuStreamWaitEvent(s, e, 0));
        float ms;
        fact(n + ".elapsed", cuEventElapsedTime(&ms, e, e));
        begin(s);
        fact(n + ".wait_in_next", cuStreamWaitEvent(s, e, 0));
        printf("%s.wait_in_next.status = %d\n", n.c_str(), status_of(s));
        line(n + ".next_end", end_of(s));
        MUST(cuEventRecord(e, s));
        fact(n + ".recorded_again", cuEventSynchronize(e));
    });
    for (int mode = 0; mode < 3; mode++)
        scene("context_sync", [=](std::string n) {
            n += std::to_string(mode);
            CUstream s = make_stream();
            begin(s, mode);
            std::thread([&] {
                MUST(cuCtxSetCurrent(context));
                CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
                MUST(cuThreadExchangeStreamCaptureMode(&relaxed));
                fact(n + ".relaxed_thread", cuCtxSynchronize());
            }).join();
            printf("%s.status = %d\n", n.c_str(), status_of(s));
            line(n + ".end", end_of(s));
        });
    scene("context_sync_elsewhere", [](std::string n) {
        CUstream s = make_stream();
        CUcontext other;
        MUST(cuCtxCreate(&other, nullptr, 0, device));
        MUST(cuCtxSetCurrent(context));
        begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
        MUST(cuCtxSetCurrent(other));
        fact(n + ".relaxed", cuCtxSynchronize());
        MUST(cuCtxSetCurrent(context));
        line(n + ".relaxed.end", end_of(s));
        begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
        MUST(cuCtxSetCurrent(other));
        fact(n + ".global", cuCtxSynchronize());
        MUST(cuCtxSetCurrent(context));
        line(n + ".global.end", end_of(s));
    });
    for (int mode = 0; mode < 3; mode++)
        scene("thread_mode", [=](std::string n) {
            // What another thread's own mode means beside a capture of each mode.
            for (int own = 0; own < 4; own++) {
                CUstream s = make_stream();
                begin(s, mode);
                CUresult code = CUDA_SUCCESS, here = CUDA_SUCCESS;
                std::thread([&] {
                    MUST(cuCtxSetCurrent(context));
                    CUstreamCaptureMode m = (CUstreamCaptureMode)own;
                    MUST(cuThreadExchangeStreamCaptureMode(&m));
                    code = cuMemAlloc(&address, 4096);
                }).join();
                int status = status_of(s);
                CUstreamCaptureMode m = (CUstreamCaptureMode)own;
                MUST(cuThreadExchangeStreamCaptureMode(&m));
                here = cuMemAlloc(&address, 4096);
                MUST(cuThreadExchangeStreamCaptureMode(&m));
                printf("%s.capture%d.thread%d = elsewhere %s status=%d here %s status=%d\n", n.c_str(), mode, own,
                       short_name(code).c_str(), status, short_name(here).c_str(), status_of(s));
                end_of(s);
            }
        });
    scene("sync_captured", [](std::string n) {
        CUstream s = make_stream();
        CUevent e = make_event();
        begin(s);
        MUST(cuEventRecord(e, s));
        fact(n, cuEventSynchronize(e));
        printf("%s.status = %d\n", n.c_str(), status_of(s));
    });
    scene("elapsed_captured", [](std::string n) {
        CUstream s = make_stream();
        CUevent a, b;
        MUST(cuEventCreate(&a, 0));
        MUST(cuEventCreate(&b, 0));
        begin(s);
        MUST(cuEventRecord(a, s));
        MUST(cuEventRecord(b, s));
        float ms;
        fact(n, cuEventElapsedTime(&ms, a, b));
        printf("%s.status = %d\n", n.c_str(), status_of(s));
        fact(n + ".destroy", cuEventDestroy(a));
        printf("%s.destroy.status = %d\n", n.c_str(), status_of(s));
    });
    scene("event_moves", [](std::string n) {
        // An event that was captured is recorded elsewhere, and waited for again by the capture.
        CUstream s = make_stream(), t = make_stream();
        CUevent e = make_event();
        begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
        work(s);
        MUST(cuEventRecord(e, s));
        fact(n + ".record_outside", cuEventRecord(e, t));
        fact(n + ".query", cuEventQuery(e));
        fact(n + ".wait", cuStreamWaitEvent(s, e, 0));
        printf("%s.status = %d\n", n.c_str(), status_of(s));
        line(n + ".end", end_of(s));
    });
    scene("unjoined", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        begin(s);
        work(s);
        link(s, t);
        line(n + ".empty_fork", end_of(s));
        printf("%s.empty_fork.status = %d %d\n", n.c_str(), status_of(s), status_of(t));
        begin(s);
        link(s, t);
        work(t);
        line(n + ".end", end_of(s));
        printf("%s.status = %d %d\n", n.c_str(), status_of(s), status_of(t));
        line(n + ".end_again", end_of(s));
        line(n + ".end_fork", end_of(t));
        begin(s);
        link(s, t);
        work(t);
        link(t, s);
        work(t);
        line(n + ".work_after_join", end_of(s));
        begin(s);
        link(s, t);
        work(t);
        link(t, s);
        MUST(cuEventRecord(make_event(), t));
        line(n + ".record_after_join", end_of(s));
    });
    scene("unmatched", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        begin(s);
        link(s, t);
        work(t);
        fact(n + ".begin_fork", cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        line(n + ".end_fork", end_of(t));
        printf("%s.status = %d %d\n", n.c_str(), status_of(s), status_of(t));
        line(n + ".end", end_of(s));
        printf("%s.status_after = %d %d\n", n.c_str(), status_of(s), status_of(t));
    });
    scene("isolation", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        CUevent e = make_event();
        begin(s);
        MUST(cuEventRecord(e, t));
        fact(n + ".wait", cuStreamWaitEvent(s, e, 0));
        printf("%s.status = %d\n", n.c_str(), status_of(s));
        line(n + ".end", end_of(s));
        begin(s);
        CUevent c = make_event();
        MUST(cuEventRecord(c, s));
        fact(n + ".legacy_waits", cuStreamWaitEvent(nullptr, c, 0));
        printf("%s.legacy_waits.status = %d\n", n.c_str(), status_of(s));
        line(n + ".legacy_waits.end", end_of(s));
    });
    scene("merge", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        CUevent e = make_event();
        begin(s);
        begin(t);
        work(s);
        MUST(cuEventRecord(e, s));
        fact(n + ".wait", cuStreamWaitEvent(t, e, 0));
        printf("%s.status = %d %d\n", n.c_str(), status_of(s), status_of(t));
        line(n + ".end", end_of(s) + " and " + end_of(t));
    });
    scene("invalid", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        CUevent e = make_event();
        begin(s);
        work(s);
        MUST(cuEventRecord(e, s));
        link(s, t);
        cuStreamSynchronize(s);
        printf("%s.status = %d %d\n", n.c_str(), status_of(s), status_of(t));
        fact(n + ".work", cuMemsetD8Async(plain, 1, 16, s));
        fact(n + ".work_fork", cuMemsetD8Async(plain, 1, 16, t));
        fact(n + ".alloc", cuMemAllocAsync(&address, 16, s));
        fact(n + ".free", cuMemFreeAsync(plain, s));
        fact(n + ".record", cuEventRecord(make_event(), s));
        fact(n + ".wait", cuStreamWaitEvent(s, e, 0));
        fact(n + ".wait_other", cuStreamWaitEvent(make_stream(), e, 0));
        fact(n + ".host", cuLaunchHostFunc(s, nothing, nullptr));
        fact(n + ".query", cuStreamQuery(s));
        fact(n + ".begin", cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        fact(n + ".update", cuStreamUpdateCaptureDependencies(s, nullptr, nullptr, 0, 1));
        line(n + ".info_fork", info_of(t));
        line(n + ".end_fork", end_of(t));
        line(n + ".end", end_of(s));
        printf("%s.status_after = %d %d\n", n.c_str(), status_of(s), status_of(t));
    });
    scene("destroy_origin", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        begin(s);
        work(s);
        link(s, t);
        fact(n, cuStreamDestroy(s));
        printf("%s.fork_status = %d\n", n.c_str(), status_of(t));
        line(n + ".end_fork", end_of(t));
        printf("%s.fork_after = %d\n", n.c_str(), status_of(t));
        fact(n + ".alloc_after", cuMemAlloc(&address, 4096));
    });
    scene("destroy_fork", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        begin(s);
        link(s, t);
        work(t);
        fact(n, cuStreamDestroy(t));
        printf("%s.status = %d\n", n.c_str(), status_of(s));
        line(n + ".end", end_of(s));
    });
    scene("to_graph", [](std::string n) {
        CUstream s = make_stream();
        CUgraph g;
        CUgraphNode a, b;
        MUST(cuGraphCreate(&g, 0));
        MUST(cuGraphAddEmptyNode(&a, g, nullptr, 0));
        MUST(cuGraphAddEmptyNode(&b, g, nullptr, 0));
        fact(n + ".begin", cuStreamBeginCaptureToGraph(s, g, &a, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
        line(n + ".info", info_of(s));
        fact(n + ".second", cuStreamBeginCaptureToGraph(make_stream(), g, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
        fact(n + ".destroy", cuGraphDestroy(g));
        work(s);
        CUgraph same = nullptr;
        MUST(cuStreamEndCapture(s, &same));
        printf("%s.same=%d types=%s\n", n.c_str(), same == g, types_of(g).c_str());
        size_t count = 0;
        MUST(cuGraphGetEdges(g, nullptr, nullptr, nullptr, &count));
        printf("%s.edges = %zu\n", n.c_str(), count);
        begin(s, 2);
        cuStreamSynchronize(s);
        line(n + ".invalid_own", end_of(s));
        MUST(cuStreamBeginCaptureToGraph(s, g, &b, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
        cuStreamSynchronize(s);
        line(n + ".invalid", end_of(s));
        fact(n + ".graph_after_invalid", cuGraphGetNodes(g, nullptr, &count));
    });
    scene("update", [](std::string n) {
        CUstream s = make_stream();
        CUgraph g;
        CUgraphNode node, node2;
        CUstreamCaptureStatus status;
        fact(n + ".idle", cuStreamUpdateCaptureDependencies(s, nullptr, nullptr, 0, 0));
        begin(s);
        work(s);
        MUST(cuStreamGetCaptureInfo(s, &status, nullptr, &g, nullptr, nullptr, nullptr));
        MUST(cuGraphAddEmptyNode(&node, g, nullptr, 0));
        MUST(cuGraphAddEmptyNode(&node2, g, nullptr, 0));
        fact(n + ".add", cuStreamUpdateCaptureDependencies(s, &node, nullptr, 1, 0));
        line(n + ".add.info", info_of(s));
        fact(n + ".add_again", cuStreamUpdateCaptureDependencies(s, &node, nullptr, 1, 0));
        line(n + ".add_again.info", info_of(s));
        fact(n + ".set", cuStreamUpdateCaptureDependencies(s, &node2, nullptr, 1, 1));
        line(n + ".set.info", info_of(s));
        work(s);
        line(n + ".end", end_of(s));
        begin(s);
        work(s);
        MUST(cuStreamGetCaptureInfo(s, &status, nullptr, &g, nullptr, nullptr, nullptr));
        MUST(cuStreamUpdateCaptureDependencies(s, nullptr, nullptr, 0, 1));
        line(n + ".set_none_end", end_of(s));
    });
}

// ---- Graphs and the memory in them ----

static CUstream stream;

static CUgraph captured(const std::function<void()> &body)
{
    CUgraph graph = nullptr;
    begin(stream);
    body();
    MUST(cuStreamEndCapture(stream, &graph));
    return graph;
}

static CUgraphExec ready(CUgraph graph, unsigned flags = 0)
{
    CUgraphExec exec = nullptr;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, flags));
    return exec;
}

static void run(CUgraphExec exec)
{
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
}

static CUdeviceptr take(size_t size)
{
    CUdeviceptr ptr = 0;
    MUST(cuMemAllocAsync(&ptr, size, stream));
    return ptr;
}

static void memory(const std::string &name)
{
    const CUgraphMem_attribute which[] = {CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
                                          CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH};
    std::string text;
    for (auto attribute : which) {
        cuuint64_t value = 0;
        MUST(cuDeviceGetGraphMemAttribute(device, attribute, &value));
        text += " " + std::to_string(value >> 20) + ((value & ((1 << 20) - 1)) ? "+" : "");
    }
    printf("%s = MiB%s\n", name.c_str(), text.c_str());
}

static void graph_scene(const char *name, const std::function<void(std::string)> &body)
{
    scene(name, [&](std::string n) {
        stream = make_stream();
        body(n);
    });
}

static void graph_memory()
{
    const size_t MiB = 1 << 20;
    for (size_t mib : {1, 31, 33, 100})
        graph_scene("gmem", [=](std::string n) {
            n += std::to_string(mib);
            memory(n + ".start");
            CUdeviceptr p = 0;
            CUgraph g = captured([&] { p = take(mib * MiB); });
            memory(n + ".captured");
            CUgraphExec x = ready(g);
            memory(n + ".instantiated");
            run(x);
            memory(n + ".launched");
            MUST(cuMemFreeAsync(p, stream));
            memory(n + ".freed");
            MUST(cuStreamSynchronize(stream));
            memory(n + ".synced");
            run(x);
            memory(n + ".relaunched");
            MUST(cuGraphExecDestroy(x));
            memory(n + ".exec_destroyed");
            MUST(cuGraphDestroy(g));
            MUST(cuMemFreeAsync(p, stream));
            MUST(cuStreamSynchronize(stream));
            memory(n + ".all_gone");
            MUST(cuDeviceGraphMemTrim(device));
            memory(n + ".trimmed");
            cuuint64_t zero = 0, five = 5;
            fact(n + ".reset_used", cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
            fact(n + ".reset_reserved", cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
            memory(n + ".reset");
            fact(n + ".set_five", cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &five));
            fact(n + ".set_current", cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero));
        });
    graph_scene("gmem_inner", [=](std::string n) {
        CUdeviceptr p[3];
        CUgraph g = captured([&] {
            for (auto &q : p) {
                q = take(40 * MiB);
                MUST(cuMemsetD8Async(q, 1, 40 * MiB, stream));
                MUST(cuMemFreeAsync(q, stream));
            }
        });
        printf("%s.same_address = %d %d\n", n.c_str(), p[0] == p[1], p[1] == p[2]);
        CUgraphExec x = ready(g);
        memory(n + ".instantiated");
        run(x);
        memory(n + ".launched");
        MUST(cuDeviceGraphMemTrim(device));
        memory(n + ".trimmed_with_exec");
        run(x);
        memory(n + ".launched_again");
        MUST(cuGraphExecDestroy(x));
        memory(n + ".exec_destroyed");
        MUST(cuDeviceGraphMemTrim(device));
        memory(n + ".trimmed");
        MUST(cuGraphDestroy(g));
        CUdeviceptr q = 0;
        CUgraph h = captured([&] { q = take(40 * MiB); });
        printf("%s.address_after_destroy = %d\n", n.c_str(), q == p[0]);
        MUST(cuGraphDestroy(h));
    });
    graph_scene("gmem_three", [=](std::string n) {
        CUdeviceptr p[3];
        CUgraph g = captured([&] {
            for (auto &q : p)
                q = take(40 * MiB);
            for (auto &q : p)
                MUST(cuMemFreeAsync(q, stream));
        });
        CUgraphExec x = ready(g);
        run(x);
        memory(n + ".launched");
        MUST(cuGraphExecDestroy(x));
        MUST(cuGraphDestroy(g));
    });
    graph_scene("gmem_two_graphs", [=](std::string n) {
        auto make = [&] { return captured([&] { CUdeviceptr q = take(40 * MiB); MUST(cuMemFreeAsync(q, stream)); }); };
        CUgraph g = make(), h = make();
        CUgraphExec x = ready(g), y = ready(h);
        memory(n + ".instantiated");
        run(x);
        memory(n + ".one");
        run(y);
        memory(n + ".two");
        run(x);
        memory(n + ".one_again");
    });
    graph_scene("gmem_small", [=](std::string n) {
        CUdeviceptr a = 0, b = 0, c = 0;
        CUgraph g = captured([&] { a = take(100); b = take(100); c = take(3 * MiB); });
        printf("%s.distance = %lld %lld\n", n.c_str(), (long long)(b - a), (long long)(c - b));
        printf("%s.alignment = %llu %llu %llu\n", n.c_str(), a % (2 * MiB), b % 512, c % (2 * MiB));
        CUgraphExec x = ready(g);
        run(x);
        memory(n + ".launched");
        size_t size = 0;
        CUdeviceptr base = 0;
        MUST(cuMemGetAddressRange(&base, &size, a + 1));
        printf("%s.range = %d %zu\n", n.c_str(), base == a, size);
        size_t free_before, free_after, total;
        MUST(cuMemGetInfo(&free_before, &total));
        for (CUdeviceptr p : {a, b, c})
            MUST(cuMemFreeAsync(p, stream));
        MUST(cuStreamSynchronize(stream));
        memory(n + ".freed");
        MUST(cuDeviceGraphMemTrim(device));
        MUST(cuMemGetInfo(&free_after, &total));
        printf("%s.trim_gives_back = %zu MiB\n", n.c_str(), (free_after - free_before) >> 20);
    });
    graph_scene("gfree", [=](std::string n) {
        CUdeviceptr p = 0;
        CUresult twice = CUDA_SUCCESS, other = CUDA_SUCCESS, use = CUDA_SUCCESS, interior = CUDA_SUCCESS;
        CUgraph g = captured([&] {
            p = take(4096);
            interior = cuMemFreeAsync(p + 512, stream);
            MUST(cuMemFreeAsync(p, stream));
            twice = cuMemFreeAsync(p, stream);
            use = cuMemsetD8Async(p, 1, 4096, stream);
        });
        fact(n + ".interior", interior);
        fact(n + ".twice", twice);
        fact(n + ".use_after", use);
        line(n + ".types", types_of(g));
        CUgraph h = captured([&] { other = cuMemFreeAsync(p, stream); });
        fact(n + ".other_graph_of_freed", other);
        CUdeviceptr q = 0;
        CUgraph a = captured([&] { q = take(4096); });
        CUgraph b = captured([&] {
            fact(n + ".use_in_other_graph", cuMemsetD8Async(q, 1, 4096, stream));
            fact(n + ".free_in_other_graph", cuMemFreeAsync(q, stream));
        });
        CUgraph c = captured([&] { fact(n + ".free_in_third_graph", cuMemFreeAsync(q, stream)); });
        CUgraph d = captured([&] { fact(n + ".too_long", cuMemsetD8Async(q, 1, 8 << 20, stream)); });
        CUgraphExec z = nullptr;
        fact(n + ".too_long.instantiate", cuGraphInstantiateWithFlags(&z, d, 0));
        fact(n + ".instantiate_free_graph", cuGraphInstantiateWithFlags(&z, c, 0));
        fact(n + ".instantiate_free_graph_again", cuGraphInstantiateWithFlags(&z, c, 0));
        CUgraphExec x = ready(a), y = ready(b);
        fact(n + ".free_graph_before_alloc", cuGraphLaunch(y, stream));
        run(x);
        fact(n + ".free_graph", cuGraphLaunch(y, stream));
        MUST(cuStreamSynchronize(stream));
        fact(n + ".free_graph_again", cuGraphLaunch(y, stream));
        fact(n + ".free_outside", cuMemFreeAsync(q, stream));
        fact(n + ".alloc_again", cuGraphLaunch(x, stream));
        MUST(cuStreamSynchronize(stream));
        fact(n + ".destroy_alloc_graph", cuGraphDestroy(a));
        fact(n + ".destroy_alloc_exec", cuGraphExecDestroy(x));
        fact(n + ".free_by_other_graph_after", cuGraphLaunch(y, stream));
        MUST(cuStreamSynchronize(stream));
    });
    graph_scene("gnodes", [=](std::string n) {
        CUdeviceptr p = 0, zero = 1;
        CUgraph g = captured([&] {
            MUST(cuMemAllocAsync(&zero, 0, stream));
            p = take(4096);
            MUST(cuMemcpyDtoDAsync(p, plain, 4096, stream));
            MUST(cuLaunchHostFunc(stream, nothing, nullptr));
            MUST(cuEventRecord(make_event(), stream));
            MUST(cuMemcpyAsync(p, plain, 0, stream));
        });
        printf("%s.zero = %d\n", n.c_str(), zero == 0);
        line(n + ".types", types_of(g));
        size_t count = 3;
        CUgraphNode nodes[8] = {};
        fact(n + ".get_some", cuGraphGetNodes(g, nodes, &count));
        printf("%s.get_some.count = %zu\n", n.c_str(), count);
        count = 8;
        nodes[7] = (CUgraphNode)1;
        MUST(cuGraphGetNodes(g, nodes, &count));
        printf("%s.get_more.count = %zu rest=%s\n", n.c_str(), count, nodes[7] ? "unset" : "0");
        fact(n + ".remove_alloc", cuGraphDestroyNode(nodes[0]));
        fact(n + ".remove_last", cuGraphDestroyNode(nodes[count - 1]));
        CUgraph clone = nullptr;
        fact(n + ".clone", cuGraphClone(&clone, g));
        CUgraph parent;
        CUgraphNode child;
        MUST(cuGraphCreate(&parent, 0));
        fact(n + ".child", cuGraphAddChildGraphNode(&child, parent, nullptr, 0, g));
        fact(n + ".add_dependency_to_alloc", cuGraphAddDependencies(g, &nodes[1], &nodes[2], nullptr, 1));
        fact(n + ".add_dependency_same", cuGraphAddDependencies(g, &nodes[0], &nodes[2], nullptr, 1));
        CUgraphExec x = ready(g);
        fact(n + ".launch_in_capture", (begin(stream, 2), cuGraphLaunch(x, stream)));
        printf("%s.launch_in_capture.status = %d\n", n.c_str(), status_of(stream));
        line(n + ".launch_in_capture.end", end_of(stream));
        fact(n + ".second_instantiate", cuGraphInstantiateWithFlags(&x, g, 0));
        fact(n + ".add_node_after_instantiate", cuGraphAddEmptyNode(&child, g, nullptr, 0));
        fact(n + ".upload", cuGraphUpload(x, stream));
        fact(n + ".upload_again", cuGraphUpload(x, stream));
        MUST(cuStreamSynchronize(stream));
        memory(n + ".uploaded");
        fact(n + ".launch", cuGraphLaunch(x, stream));
        fact(n + ".launch_again", cuGraphLaunch(x, stream));
        MUST(cuStreamSynchronize(stream));
        fact(n + ".upload_while_live", cuGraphUpload(x, stream));
        fact(n + ".bad_flags", cuGraphInstantiateWithFlags(&x, parent, 1 << 20));
        cuuint64_t flags = 9;
        fact(n + ".flags", cuGraphExecGetFlags(x, &flags));
        printf("%s.flags.value = %llu\n", n.c_str(), (unsigned long long)flags);
        MUST(cuGraphExecDestroy(x));
        CUgraphExec y = ready(g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        MUST(cuGraphExecGetFlags(y, &flags));
        printf("%s.flags.autofree = %llu\n", n.c_str(), (unsigned long long)flags);
        CUDA_GRAPH_INSTANTIATE_PARAMS with = {};
        with.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
        with.hUploadStream = stream;
        fact(n + ".with_params", cuGraphInstantiateWithParams(&x, parent, &with));
        printf("%s.with_params.result = %d\n", n.c_str(), (int)with.result_out);
        CUgraph cyclic;
        CUgraphNode first, second;
        MUST(cuGraphCreate(&cyclic, 0));
        MUST(cuGraphAddEmptyNode(&first, cyclic, nullptr, 0));
        MUST(cuGraphAddEmptyNode(&second, cyclic, &first, 1));
        fact(n + ".cycle", cuGraphAddDependencies(cyclic, &second, &first, nullptr, 1));
        fact(n + ".cycle.self", cuGraphAddDependencies(cyclic, &second, &second, nullptr, 1));
        fact(n + ".cycle.instantiate", cuGraphInstantiateWithFlags(&x, cyclic, 0));
        with = {};
        fact(n + ".cycle.with_params", cuGraphInstantiateWithParams(&x, cyclic, &with));
        printf("%s.cycle.with_params.result = %d\n", n.c_str(), (int)with.result_out);
        CUgraphNode gone;
        CUgraph plain_graph;
        MUST(cuGraphCreate(&plain_graph, 0));
        MUST(cuGraphAddEmptyNode(&first, plain_graph, nullptr, 0));
        MUST(cuGraphAddEmptyNode(&gone, plain_graph, &first, 1));
        MUST(cuGraphAddEmptyNode(&second, plain_graph, &gone, 1));
        fact(n + ".destroy_node", cuGraphDestroyNode(gone));
        size_t edges = 9;
        MUST(cuGraphGetEdges(plain_graph, nullptr, nullptr, nullptr, &edges));
        printf("%s.destroy_node.edges = %zu\n", n.c_str(), edges);
        MUST(cuGraphGetRootNodes(plain_graph, nullptr, &edges));
        printf("%s.destroy_node.roots = %zu\n", n.c_str(), edges);
        fact(n + ".same_dependency_twice", [&] {
            CUgraphNode both[] = {first, first};
            return cuGraphAddEmptyNode(&gone, plain_graph, both, 2);
        }());
        fact(n + ".child_plain", cuGraphAddChildGraphNode(&child, parent, nullptr, 0, plain_graph));
        CUgraph inside = nullptr;
        fact(n + ".child_get", cuGraphChildGraphNodeGetGraph(child, &inside));
        printf("%s.child_get.same = %d\n", n.c_str(), inside == plain_graph);
        fact(n + ".child_destroy", cuGraphDestroy(inside));
        fact(n + ".child_add", cuGraphAddEmptyNode(&gone, inside, nullptr, 0));
        fact(n + ".child_add_memory", [&] {
            CUDA_MEM_ALLOC_NODE_PARAMS params = {};
            params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
            params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            params.bytesize = 4096;
            return cuGraphAddMemAllocNode(&gone, inside, nullptr, 0, &params);
        }());
        fact(n + ".destroyed_graph", (MUST(cuGraphDestroy(parent)), cuGraphGetNodes(parent, nullptr, &count)));
        fact(n + ".null_graph", cuGraphGetNodes(nullptr, nullptr, &count));
        fact(n + ".null_exec", cuGraphLaunch(nullptr, stream));
    });
    graph_scene("galloc", [=](std::string n) {
        CUgraph g;
        CUgraphNode node, free_node;
        MUST(cuGraphCreate(&g, 0));
        CUDA_MEM_ALLOC_NODE_PARAMS params = {}, back = {};
        params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        params.bytesize = 4096;
        fact(n + ".add", cuGraphAddMemAllocNode(&node, g, nullptr, 0, &params));
        printf("%s.address = %s\n", n.c_str(), params.dptr ? "some" : "0");
        CUdeviceptr p = 0;
        fact(n + ".params", cuGraphMemAllocNodeGetParams(node, &back));
        printf("%s.params same=%d size=%zu\n", n.c_str(), back.dptr == params.dptr, back.bytesize);
        params.bytesize = 0;
        CUgraphNode none;
        fact(n + ".zero", cuGraphAddMemAllocNode(&none, g, nullptr, 0, &params));
        fact(n + ".free_unordered", cuGraphAddMemFreeNode(&free_node, g, nullptr, 0, back.dptr));
        fact(n + ".free", cuGraphAddMemFreeNode(&free_node, g, &node, 1, back.dptr));
        fact(n + ".free_again", cuGraphAddMemFreeNode(&none, g, &node, 1, back.dptr));
        fact(n + ".free_params", cuGraphMemFreeNodeGetParams(free_node, &p));
        printf("%s.free_params same=%d\n", n.c_str(), p == back.dptr);
        fact(n + ".alloc_params_of_free", cuGraphMemAllocNodeGetParams(free_node, &back));
        fact(n + ".free_foreign", cuGraphAddMemFreeNode(&none, g, nullptr, 0, plain));
        CUgraph h;
        CUgraphNode foreign;
        MUST(cuGraphCreate(&h, 0));
        fact(n + ".foreign_dependency", cuGraphAddEmptyNode(&foreign, h, &node, 1));
        fact(n + ".destroy_free_node", cuGraphDestroyNode(free_node));
        fact(n + ".add_to_used_clone", cuGraphClone(&h, g));
    });
    graph_scene("gmem_live", [=](std::string n) {
        CUdeviceptr a = 0, b = 0, c = 0;
        CUgraph g = captured([&] { a = take(40 * MiB); b = take(40 * MiB); });
        CUgraph h = captured([&] { c = take(40 * MiB); });
        CUgraphExec x = ready(g), y = ready(h);
        run(x);
        memory(n + ".one");
        run(y);
        memory(n + ".two");
        MUST(cuDeviceGraphMemTrim(device));
        memory(n + ".trimmed_live");
        MUST(cuMemFreeAsync(b, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuDeviceGraphMemTrim(device));
        memory(n + ".trimmed_half");
        MUST(cuMemFreeAsync(c, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuDeviceGraphMemTrim(device));
        memory(n + ".trimmed_one");
        fact(n + ".launch_half_live", cuGraphLaunch(x, stream));
    });
    graph_scene("gmem_big", [=](std::string n) {
        begin(stream);
        fact(n + ".over_the_device", cuMemAllocAsync(&address, (size_t)200 << 30, stream));
        line(n + ".end", end_of(stream));
        CUgraph g = captured([&] { for (int i = 0; i < 2; i++) take((size_t)100 << 30); });
        CUgraphExec x = nullptr;
        fact(n + ".instantiate", cuGraphInstantiateWithFlags(&x, g, 0));
        if (x) {
            fact(n + ".launch", cuGraphLaunch(x, stream));
            fact(n + ".sync", cuStreamSynchronize(stream));
            memory(n + ".after");
        }
    });
    graph_scene("gread", [=](std::string n) {
        // When a captured copy reads pageable memory.
        auto *bytes = (unsigned char *)malloc(64);
        unsigned char back[64];
        memset(bytes, 1, 64);
        CUgraph g = captured([&] { MUST(cuMemcpyHtoDAsync(plain, bytes, 64, stream)); });
        memset(bytes, 2, 64);
        CUgraphExec x = ready(g);
        memset(bytes, 3, 64);
        run(x);
        MUST(cuMemcpyDtoH(back, plain, 64));
        printf("%s.first = %d\n", n.c_str(), back[5]);
        memset(bytes, 4, 64);
        run(x);
        MUST(cuMemcpyDtoH(back, plain, 64));
        printf("%s.second = %d\n", n.c_str(), back[5]);
    });
    graph_scene("glive", [=](std::string n) {
        CUdeviceptr p = 0;
        CUgraph g = captured([&] { p = take(MiB); });
        CUgraphExec x = ready(g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        run(x);
        MUST(cuGraphExecDestroy(x));
        fact(n + ".instantiate_again", cuGraphInstantiateWithFlags(&x, g, 0));
        fact(n + ".launch_while_live", cuGraphLaunch(x, stream));
        fact(n + ".free", cuMemFreeAsync(p, stream));
        fact(n + ".launch", cuGraphLaunch(x, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuGraphDestroy(g));
        MUST(cuMemFreeAsync(p, stream));
        fact(n + ".launch_after_graph_destroy", cuGraphLaunch(x, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuGraphExecDestroy(x));
        CUdeviceptr q = 0;
        CUgraph h = captured([&] { q = take(MiB); });
        printf("%s.address_of_live_not_reused = %d\n", n.c_str(), p != q);
        MUST(cuMemFreeAsync(p, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuGraphDestroy(h));
        h = captured([&] { q = take(MiB); });
        printf("%s.address_after_free = %d\n", n.c_str(), p == q);
    });
}

// ---- User objects ----

static int destroyed;
static CUresult from_destructor;
static bool same_thread;
static std::thread::id caller;

static void CUDA_CB destructor(void *)
{
    destroyed++;
    same_thread = std::this_thread::get_id() == caller;
    CUdeviceptr p;
    from_destructor = cuMemAlloc(&p, 4096);
}

static CUuserObject make_object(unsigned references)
{
    CUuserObject object = nullptr;
    MUST(cuUserObjectCreate(&object, nullptr, destructor, references, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    return object;
}

static void settle()
{
    for (int i = 0; i < 200 && !destroyed; i++)
        usleep(1000);
}

static void user_objects()
{
    graph_scene("object", [](std::string n) {
        caller = std::this_thread::get_id();
        CUuserObject o;
        fact(n + ".no_flags", cuUserObjectCreate(&o, nullptr, destructor, 1, 0));
        fact(n + ".no_references", cuUserObjectCreate(&o, nullptr, destructor, 0, 1));
        fact(n + ".no_destructor", cuUserObjectCreate(&o, nullptr, nullptr, 1, 1));
        o = make_object(2);
        MUST(cuUserObjectRetain(o, 1));
        fact(n + ".release_two", cuUserObjectRelease(o, 2));
        printf("%s.after_two = %d\n", n.c_str(), destroyed);
        fact(n + ".release_last", cuUserObjectRelease(o, 1));
        printf("%s.at_once = %d\n", n.c_str(), destroyed);
        settle();
        printf("%s.after_last = %d same_thread=%d call=%s\n", n.c_str(), destroyed, same_thread,
               short_name(from_destructor).c_str());
    });
    graph_scene("object_in_graph", [](std::string n) {
        CUuserObject o = make_object(1);
        CUgraph g, clone;
        MUST(cuGraphCreate(&g, 0));
        fact(n + ".move_flags", cuGraphRetainUserObject(g, o, 1, 7));
        fact(n + ".move", cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
        fact(n + ".zero", cuGraphRetainUserObject(g, o, 0, 0));
        MUST(cuGraphClone(&clone, g));
        CUgraphExec x = ready(clone);
        MUST(cuGraphDestroy(g));
        usleep(20000);
        printf("%s.graph_gone = %d\n", n.c_str(), destroyed);
        MUST(cuGraphDestroy(clone));
        usleep(20000);
        printf("%s.clone_gone = %d\n", n.c_str(), destroyed);
        run(x);
        MUST(cuGraphExecDestroy(x));
        usleep(20000);
        printf("%s.exec_gone = %d\n", n.c_str(), destroyed);
        MUST(cuCtxSynchronize());
        settle();
        printf("%s.after_sync = %d\n", n.c_str(), destroyed);
    });
    graph_scene("object_released", [](std::string n) {
        CUuserObject o = make_object(1);
        CUgraph g;
        MUST(cuGraphCreate(&g, 0));
        MUST(cuGraphRetainUserObject(g, o, 1, 0));
        fact(n + ".release", cuGraphReleaseUserObject(g, o, 1));
        printf("%s.still = %d\n", n.c_str(), destroyed);
        fact(n + ".release_own", cuUserObjectRelease(o, 1));
        settle();
        printf("%s.gone = %d\n", n.c_str(), destroyed);
        MUST(cuGraphDestroy(g));
    });
    graph_scene("object_in_parent", [](std::string n) {
        CUuserObject o = make_object(1);
        CUgraph g, parent;
        CUgraphNode node;
        MUST(cuGraphCreate(&g, 0));
        MUST(cuGraphCreate(&parent, 0));
        MUST(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
        MUST(cuGraphAddChildGraphNode(&node, parent, nullptr, 0, g));
        MUST(cuGraphDestroy(g));
        usleep(20000);
        printf("%s.child_gone = %d\n", n.c_str(), destroyed);
        MUST(cuGraphDestroy(parent));
        settle();
        printf("%s.parent_gone = %d\n", n.c_str(), destroyed);
    });
    graph_scene("object_in_invalid_capture", [](std::string n) {
        CUuserObject o = make_object(1);
        CUgraph g;
        CUstreamCaptureStatus status;
        begin(stream);
        MUST(cuStreamGetCaptureInfo(stream, &status, nullptr, &g, nullptr, nullptr, nullptr));
        MUST(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
        cuStreamSynchronize(stream);
        printf("%s.invalid = %d\n", n.c_str(), destroyed);
        line(n + ".end", end_of(stream));
        settle();
        printf("%s.gone = %d\n", n.c_str(), destroyed);
    });
}

int main()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (const Call &call : calls)
        one_call(std::string("global.") + call.name, CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_NON_BLOCKING, false, call);
    for (const Call &call : calls)
        one_call(std::string("blocking.") + call.name, CU_STREAM_CAPTURE_MODE_RELAXED, 0, false, call);
    for (const Call &call : own_calls)
        one_call(std::string("own.") + call.name, CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING, true, call);
    captures();
    graph_memory();
    user_objects();
    puts("done = 1");
}
