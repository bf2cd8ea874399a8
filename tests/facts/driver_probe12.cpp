// Twelfth round: peer and pool access as a library under them meets them: two contexts of one GPU, questions without contexts,
// what may be called while captures go on, and whether access that is taken waits for work that uses it.
// Build: g++ -O2 -std=c++17 driver_probe12.cpp -o probe12 -lcuda -lpthread      Run: ./probe12
#include "probe.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#ifndef BUSY_BYTES
#define BUSY_BYTES (4ull << 30) // copied 20 times to keep a stream busy; small on a simulator
#endif

static int devices;
static CUcontext context[2];

static void start()
{
    MUST(cuDeviceGetCount(&devices));
    for (int i = 0; i < devices && i < 2; i++)
        MUST(cuDevicePrimaryCtxRetain(&context[i], i));
    MUST(cuCtxSetCurrent(context[0]));
}

static void fact(const std::string &name, CUresult code)
{
    printf("%s = %s\n", name.c_str(), name_of(code));
    fflush(stdout);
}

static void number(const std::string &name, long long value)
{
    printf("%s = %lld\n", name.c_str(), value);
    fflush(stdout);
}

static CUresult reaches(CUcontext from, CUdeviceptr ptr)
{
    CUdeviceptr there = 0;
    CUcontext before = nullptr;
    MUST(cuCtxGetCurrent(&before));
    MUST(cuCtxSetCurrent(from));
    CUresult code = cuPointerGetAttribute(&there, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr);
    MUST(cuCtxSetCurrent(before));
    return code;
}

// The other context must be of the same GPU: is memory of the one to be touched in the other, and can that be asked for?
static void two_contexts()
{
    start();
    CUcontext second = nullptr, gone = nullptr;
    CUdeviceptr first_memory = 0, second_memory = 0;
#if CUDA_VERSION >= 13000
    MUST(cuCtxCreate(&second, nullptr, 0, 0));
#else
    MUST(cuCtxCreate(&second, 0, 0));
#endif
    MUST(cuMemAlloc(&second_memory, 4096));
    MUST(cuCtxPopCurrent(&gone));
    MUST(cuMemAlloc(&first_memory, 4096));
    int can = -1;
    fact("twoctx.can_access_peer", cuDeviceCanAccessPeer(&can, 0, 0));
    number("twoctx.can", can);
    fact("twoctx.first_from_second", reaches(second, first_memory));
    fact("twoctx.second_from_first", reaches(context[0], second_memory));
    MUST(cuCtxSetCurrent(second));
    fact("twoctx.enable_first_in_second", cuCtxEnablePeerAccess(context[0], 0));
    fact("twoctx.disable_first_in_second", cuCtxDisablePeerAccess(context[0]));
    fact("twoctx.first_from_second_after", reaches(second, first_memory));
    fact("twoctx.copy_in_second", cuMemcpyDtoD(second_memory, first_memory, 4096));
    if (devices > 1) {
        // Access is between contexts: what the primary ones have, another has not.
        MUST(cuCtxSetCurrent(context[1]));
        fact("twoctx.enable_primary_in_other_gpu", cuCtxEnablePeerAccess(context[0], 0));
        fact("twoctx.other_gpu_reaches_primary", reaches(context[1], first_memory));
        fact("twoctx.other_gpu_reaches_second", reaches(context[1], second_memory));
        fact("twoctx.enable_second_in_other_gpu", cuCtxEnablePeerAccess(second, 0));
        fact("twoctx.other_gpu_reaches_second_now", reaches(context[1], second_memory));
        MUST(cuCtxDestroy(second));
        fact("twoctx.disable_destroyed", cuCtxDisablePeerAccess(second));
        fact("twoctx.enable_destroyed", cuCtxEnablePeerAccess(second, 0));
    }
}

static void without_contexts()
{
    MUST(cuDeviceGetCount(&devices));
    if (devices < 2)
        return;
    CUmemoryPool pool = nullptr;
    CUmemLocation place = {};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUmemAccessDesc wanted = {};
    unsigned int state = 0;
    int active = -1;
    place.type = CU_MEM_LOCATION_TYPE_DEVICE;
    place.id = 1;
    wanted.location = place;
    fact("nocontext.pool", cuDeviceGetMemPool(&pool, 0));
    fact("nocontext.get_access", cuMemPoolGetAccess(&flags, pool, &place));
    number("nocontext.access", flags);
    wanted.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    fact("nocontext.set_access", cuMemPoolSetAccess(pool, &wanted, 1));
    fact("nocontext.get_access_after", cuMemPoolGetAccess(&flags, pool, &place));
    number("nocontext.access_after", flags);
    wanted.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    fact("nocontext.take_access", cuMemPoolSetAccess(pool, &wanted, 1));
    place.id = 0;
    fact("nocontext.own", cuMemPoolGetAccess(&flags, pool, &place));
    number("nocontext.own_access", flags);
    for (int i = 0; i < 2; i++) {
        MUST(cuDevicePrimaryCtxGetState(i, &state, &active));
        number("nocontext.active_after." + std::to_string(i), active);
    }
}

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (cuStreamIsCapturing(stream, &status))
        return (CUstreamCaptureStatus)-1;
    return status;
}

// Each call beside a capture of a stream of the second GPU, the thread's own, with its mode relaxed.
static void captures(const char *kind, CUstreamCaptureMode mode, unsigned flags)
{
    start();
    if (devices < 2)
        return;
    CUstream stream = nullptr, other = nullptr;
    CUgraph graph = nullptr;
    CUevent event = nullptr;
    CUdeviceptr memory = 0, more = 0;
    CUmemoryPool pool = nullptr;
    CUmemLocation place = {};
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUmemAccessDesc wanted = {};
    CUcontext held = nullptr;
    unsigned int state = 0;
    int active = 0, can = 0;
    MUST(cuMemAlloc(&memory, 4096));
    MUST(cuDeviceGetMemPool(&pool, 0));
    MUST(cuCtxSetCurrent(context[1]));
    MUST(cuStreamCreate(&stream, flags));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, other));
    place.type = CU_MEM_LOCATION_TYPE_DEVICE;
    place.id = 1;
    wanted.location = place;
    MUST(cuStreamBeginCapture(stream, mode));
    auto said = [&](const char *name, CUresult code) {
        printf("%s.%s = %s status=%d\n", kind, name, name_of(code), (int)status_of(stream));
        fflush(stdout);
    };
    CUdeviceptr there = 0;
    said("pointer_attribute_unrelaxed", cuPointerGetAttribute(&there, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory));
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuThreadExchangeStreamCaptureMode(&relaxed));
    said("pointer_attribute", cuPointerGetAttribute(&there, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory));
    said("can_access_peer", cuDeviceCanAccessPeer(&can, 1, 0));
    said("primary_state", cuDevicePrimaryCtxGetState(0, &state, &active));
    said("primary_retain", cuDevicePrimaryCtxRetain(&held, 0));
    said("primary_release", cuDevicePrimaryCtxRelease(0));
    said("enable", cuCtxEnablePeerAccess(context[0], 0));
    said("enable_again", cuCtxEnablePeerAccess(context[0], 0));
    said("reaches", reaches(context[1], memory));
    said("disable", cuCtxDisablePeerAccess(context[0]));
    said("pool_get", cuMemPoolGetAccess(&access, pool, &place));
    wanted.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    said("pool_set", cuMemPoolSetAccess(pool, &wanted, 1));
    wanted.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    said("pool_take", cuMemPoolSetAccess(pool, &wanted, 1));
    said("event_record_other", cuEventRecord(event, other));
    said("event_synchronize", cuEventSynchronize(event));
    said("alloc_here", cuMemAlloc(&more, 1));
    MUST(cuCtxSetCurrent(context[0]));
    said("alloc_other_gpu", cuMemAlloc(&more, 1));
    said("enable_reverse", cuCtxEnablePeerAccess(context[1], 0));
    said("disable_reverse", cuCtxDisablePeerAccess(context[1]));
    MUST(cuCtxSetCurrent(context[1]));
    MUST(cuThreadExchangeStreamCaptureMode(&relaxed));
    said("end", cuStreamEndCapture(stream, &graph));
}

static double since(std::chrono::steady_clock::time_point start)
{
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Copies go from the first GPU to the second while the access is taken.
static void in_flight(bool pooled)
{
    start();
    if (devices < 2)
        return;
    const char *kind = pooled ? "inflight.pool" : "inflight.plain";
    CUstream stream = nullptr, owner = nullptr;
    CUdeviceptr source = 0, dest = 0;
    CUmemoryPool pool = nullptr;
    CUmemAccessDesc wanted = {};
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = 1;
    wanted.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    MUST(cuStreamCreate(&owner, CU_STREAM_NON_BLOCKING));
    MUST(cuDeviceGetMemPool(&pool, 0));
    if (pooled) {
        MUST(cuMemAllocAsync(&source, BUSY_BYTES, owner));
        MUST(cuMemPoolSetAccess(pool, &wanted, 1));
    } else {
        MUST(cuMemAlloc(&source, BUSY_BYTES));
    }
    MUST(cuMemsetD8Async(source, 7, BUSY_BYTES, owner));
    MUST(cuStreamSynchronize(owner));
    MUST(cuCtxSetCurrent(context[1]));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&dest, BUSY_BYTES));
    if (!pooled)
        MUST(cuCtxEnablePeerAccess(context[0], 0));
    auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; i++)
        MUST(cuMemcpyAsync(dest, source, BUSY_BYTES, stream));
    printf("%s.busy_ms = %.1f, %s\n", kind, since(begun), name_of(cuStreamQuery(stream)));
    begun = std::chrono::steady_clock::now();
    wanted.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUresult code = pooled ? cuMemPoolSetAccess(pool, &wanted, 1) : cuCtxDisablePeerAccess(context[0]);
    double took = since(begun);
    CUresult still = cuStreamQuery(stream);
    begun = std::chrono::steady_clock::now();
    CUresult end = cuStreamSynchronize(stream);
    printf("%s.take_ms = %.1f, then %s, rest_ms = %.1f\n", kind, took, name_of(still), since(begun));
    fact(std::string(kind) + ".take", code);
    fact(std::string(kind) + ".synchronize", end);
    unsigned char last = 0;
    CUresult read = cuMemcpyDtoH(&last, dest + BUSY_BYTES - 1, 1);
    fact(std::string(kind) + ".read", read);
    number(std::string(kind) + ".last_byte", last);
}

int main()
{
    in_child("twoctx", two_contexts);
    in_child("nocontext", without_contexts);
    in_child("global", [] { captures("global", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_NON_BLOCKING); });
    in_child("thread_local", [] { captures("thread_local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_NON_BLOCKING); });
    in_child("blocking", [] { captures("blocking", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_DEFAULT); });
    in_child("inflight.plain", [] { in_flight(false); });
    in_child("inflight.pool", [] { in_flight(true); });
    return 0;
}
