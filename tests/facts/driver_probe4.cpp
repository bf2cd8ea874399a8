// Fourth round: what is left of a context that was reset, destroyed or released: its streams, events and memory; and what
// needs a current context at all.
// Build: g++ -O2 -std=c++17 driver_probe4.cpp -o probe4 -lcuda      Run: ./probe4
#include "probe.h"

#include <thread>

static void fact(const std::string &name, CUresult code)
{
    printf("%s = %s\n", name.c_str(), name_of(code));
}

static CUdevice device;
static CUcontext context;

struct Things {
    CUstream stream;
    CUevent event;
    CUdeviceptr plain, pool, managed;
    void *pinned;
    unsigned long long id;
};

static Things make_things()
{
    Things t;
    MUST(cuStreamCreate(&t.stream, 0));
    MUST(cuEventCreate(&t.event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(t.event, t.stream));
    MUST(cuMemAlloc(&t.plain, 4096));
    MUST(cuMemAllocAsync(&t.pool, 4096, t.stream));
    MUST(cuMemAllocManaged(&t.managed, 4096, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemAllocHost(&t.pinned, 4096));
    MUST(cuStreamSynchronize(t.stream));
    MUST(cuCtxGetId(context, &t.id));
    return t;
}

static const char *const ends[] = {"reset", "destroyed", "released"};

static Things end_a_context(int how)
{
    MUST(cuDeviceGet(&device, 0));
    if (how == 1) {
        MUST(cuCtxCreate(&context, nullptr, 0, device));
    } else {
        MUST(cuDevicePrimaryCtxRetain(&context, device));
        MUST(cuCtxSetCurrent(context));
    }
    Things t = make_things();
    if (how == 0)
        MUST(cuDevicePrimaryCtxReset(device));
    if (how == 1)
        MUST(cuCtxDestroy(context));
    if (how == 2)
        MUST(cuDevicePrimaryCtxRelease(device));
    return t;
}

static void gone(int how)
{
    const std::string prefix = std::string("gone.") + ends[how] + ".";
    unsigned long long id = 0;
    unsigned number = 0;
    CUstreamCaptureStatus status;
    CUcontext other = nullptr;
    CUdeviceptr ptr = 0;
    CUdevice of = -1;
    auto one = [&](const char *name, const std::function<CUresult(Things &)> &call) {
        in_child(prefix + name, [&] {
            Things t = end_a_context(how);
            fact(prefix + name, call(t));
        });
    };
    one("cuCtxGetId", [&](Things &) { return cuCtxGetId(context, &id); });
    one("cuCtxGetApiVersion", [&](Things &) { return cuCtxGetApiVersion(context, &number); });
    one("cuCtxPushCurrent", [&](Things &) { return cuCtxPushCurrent(context); });
    one("cuCtxGetDevice", [&](Things &) { return cuCtxGetDevice(&of); });
    one("cuStreamQuery", [&](Things &t) { return cuStreamQuery(t.stream); });
    one("cuStreamGetId", [&](Things &t) { return cuStreamGetId(t.stream, &id); });
    one("cuStreamGetCtx", [&](Things &t) { return cuStreamGetCtx(t.stream, &other); });
    one("cuStreamIsCapturing", [&](Things &t) { return cuStreamIsCapturing(t.stream, &status); });
    one("cuEventQuery", [&](Things &t) { return cuEventQuery(t.event); });
    one("cuEventRecord", [&](Things &t) { return cuEventRecord(t.event, t.stream); });
    one("cuMemAllocAsync", [&](Things &t) { return cuMemAllocAsync(&ptr, 4096, t.stream); });
    one("cuMemAlloc", [&](Things &) {
        MUST(cuCtxSetCurrent(context));
        return cuMemAlloc(&ptr, 4096);
    });
    one("cuMemFreeAsync_legacy_stream", [&](Things &t) { return cuMemFreeAsync(t.pool, nullptr); });
    one("cuMemFreeAsync_own_stream", [&](Things &t) { return cuMemFreeAsync(t.pool, t.stream); });
    one("cuMemFree_plain", [&](Things &t) { return cuMemFree(t.plain); });
    one("cuMemFree_managed", [&](Things &t) { return cuMemFree(t.managed); });
    one("cuMemFreeHost", [&](Things &t) { return cuMemFreeHost(t.pinned); });
    one("MEMORY_TYPE_plain",
        [&](Things &t) { return cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, t.plain); });
    one("MEMORY_TYPE_pool",
        [&](Things &t) { return cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, t.pool); });

    in_child(prefix + "again", [&] {
        Things t = end_a_context(how);
        unsigned flags = 0;
        int active = -1;
        MUST(cuDevicePrimaryCtxGetState(device, &flags, &active));
        printf("%sprimary_active = %d\n", prefix.c_str(), active);
        MUST(cuCtxGetCurrent(&other));
        printf("%sstill_current = %d\n", prefix.c_str(), other == context);
        CUcontext fresh = nullptr;
        MUST(cuDevicePrimaryCtxRetain(&fresh, device));
        MUST(cuCtxGetId(fresh, &id));
        printf("%sfresh_primary same_handle=%d same_id=%d\n", prefix.c_str(), fresh == context, id == t.id);
        MUST(cuCtxSetCurrent(fresh));
        fact(prefix + "fresh.MEMORY_TYPE_plain",
             cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, t.plain));
        fact(prefix + "fresh.MEMORY_TYPE_pool",
             cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, t.pool));
        fact(prefix + "fresh.cuStreamQuery_old_stream", cuStreamQuery(t.stream));
        fact(prefix + "fresh.cuEventQuery_old_event", cuEventQuery(t.event));
        fact(prefix + "fresh.cuMemFreeAsync_pool", cuMemFreeAsync(t.pool, nullptr));
        fact(prefix + "fresh.cuMemFree_plain", cuMemFree(t.plain));
    });
}

static void without_context()
{
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    Things t = make_things();
    CUdeviceptr base = 0;
    size_t size = 0;
    fact("range_of_pool_interior", cuMemGetAddressRange(&base, &size, t.pool + 100));
    printf("range_of_pool_interior.is_block = %d\n", base == t.pool && size == 4096);

    unsigned long long null_id = 0, legacy_id = 0, own_id = 0, other_id = 0, other_legacy = 0;
    MUST(cuStreamGetId(nullptr, &null_id));
    MUST(cuStreamGetId(CU_STREAM_LEGACY, &legacy_id));
    MUST(cuStreamGetId(CU_STREAM_PER_THREAD, &own_id));
    std::thread([&] {
        MUST(cuCtxSetCurrent(context));
        MUST(cuStreamGetId(CU_STREAM_PER_THREAD, &other_id));
        MUST(cuStreamGetId(CU_STREAM_LEGACY, &other_legacy));
    }).join();
    printf("stream_id null_is_legacy=%d legacy_is_one_for_all=%d per_thread_differs=%d\n", null_id == legacy_id,
           legacy_id == other_legacy, own_id != other_id);

    MUST(cuCtxSetCurrent(nullptr));
    unsigned number = 0;
    fact("none_current.cuMemsetD8Async", cuMemsetD8Async(t.pool, 0, 16, t.stream));
    fact("none_current.cuMemcpyAsync", cuMemcpyAsync(t.pool, t.plain, 16, t.stream));
    fact("none_current.cuStreamWaitEvent", cuStreamWaitEvent(t.stream, t.event, 0));
    fact("none_current.cuStreamSynchronize", cuStreamSynchronize(t.stream));
    fact("none_current.cuEventQuery", cuEventQuery(t.event));
    fact("none_current.cuPointerGetAttribute",
         cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, t.pool));
    fact("none_current.cuMemFreeHost", cuMemFreeHost(t.pinned));
    fact("none_current.cuMemFree_managed", cuMemFree(t.managed));
    fact("none_current.cuMemFree_plain", cuMemFree(t.plain));
    fact("none_current.cuStreamDestroy", cuStreamDestroy(t.stream));
    fact("none_current.cuStreamGetId_legacy", cuStreamGetId(nullptr, &null_id));
    fact("none_current.cuEventCreate", cuEventCreate(&t.event, CU_EVENT_DISABLE_TIMING));
}

int main()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (int how = 0; how < 3; how++)
        gone(how);
    in_child("none_current", without_context);
    puts("done = 1");
}
