// Fifth round: when an asynchronous copy has read, or written, pageable memory; what pool memory of an ended context still
// allows; and the events of such a context.
// Build: g++ -O2 -std=c++17 driver_probe5.cpp -o probe5 -lcuda      Run: ./probe5
#include "probe.h"

#include <cstdlib>
#include <cstring>

#ifndef BUSY_BYTES
#define BUSY_BYTES (2ull << 30) // copied 20 times to keep a stream busy; small on a simulator
#endif

static CUdevice device;
static CUcontext context;

static void start()
{
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
}

static CUdeviceptr make(const std::string &kind, size_t size, CUstream stream)
{
    CUdeviceptr ptr = 0;
    if (kind == "plain")
        MUST(cuMemAlloc(&ptr, size));
    if (kind == "pool") {
        MUST(cuMemAllocAsync(&ptr, size, stream));
        MUST(cuStreamSynchronize(stream));
    }
    if (kind == "managed_gpu" || kind == "managed_cpu")
        MUST(cuMemAllocManaged(&ptr, size, CU_MEM_ATTACH_GLOBAL));
    if (kind == "pinned") {
        void *host = nullptr;
        MUST(cuMemAllocHost(&host, size));
        ptr = (CUdeviceptr)host;
    }
    // Managed memory resides where it was touched last.
    if (kind == "managed_cpu")
        memset((void *)ptr, 9, size);
    else
        MUST(cuMemsetD8Async(ptr, 9, size, stream));
    MUST(cuStreamSynchronize(stream));
    return ptr;
}

static bool all(const unsigned char *bytes, size_t size, unsigned char value)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

static void pageable(const std::string &kind, size_t size, bool busy)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr a = 0, b = 0, ptr = make(kind, size, stream);
    auto *host = (unsigned char *)malloc(size), *check = (unsigned char *)malloc(size);
    if (busy) {
        MUST(cuMemAlloc(&a, BUSY_BYTES));
        MUST(cuMemAlloc(&b, BUSY_BYTES));
    }
    auto occupy = [&] {
        for (int i = 0; busy && i < 20; i++)
            MUST(cuMemcpyDtoDAsync(b, a, BUSY_BYTES, stream));
    };
    const std::string name = kind + "." + std::to_string(size) + (busy ? ".busy" : ".idle");
    int read_before_return = 1, written_before_return = 1, in_order = 1;
    for (int round = 0; round < 20; round++) {
        // To the other memory: the source changes as soon as the call has returned.
        memset(host, 1, size);
        occupy();
        MUST(cuMemcpyAsync(ptr, (CUdeviceptr)host, size, stream));
        memset(host, 2, size);
        MUST(cuStreamSynchronize(stream));
        MUST(cuMemcpyDtoH(check, ptr, size));
        read_before_return &= all(check, size, 1);
        // Back: it must be there as soon as the call has returned, and be what the stream's work before it made.
        MUST(cuMemsetD8Async(ptr, 3, size, stream));
        MUST(cuStreamSynchronize(stream));
        occupy();
        MUST(cuMemsetD8Async(ptr, 4, size, stream));
        memset(host, 5, size);
        MUST(cuMemcpyAsync((CUdeviceptr)host, ptr, size, stream));
        written_before_return &= host[0] != 5 && host[size - 1] != 5;
        MUST(cuStreamSynchronize(stream));
        in_order &= all(host, size, 4);
        if (busy && round == 2)
            break;
    }
    printf("pageable.%s read_before_return=%d written_before_return=%d in_order=%d\n", name.c_str(), read_before_return,
           written_before_return, in_order);
    fflush(stdout);
}

int main()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (const char *kind : {"plain", "pool", "managed_gpu", "managed_cpu", "pinned"})
        for (size_t size : {size_t(57), size_t(20000), size_t(1) << 20, size_t(16) << 20})
            for (bool busy : {false, true})
                in_child(kind, [&] {
                    start();
                    pageable(kind, size, busy);
                });
    for (int how = 0; how < 2; how++)
        for (int ask = 0; ask < 3; ask++) {
            const std::string prefix = how == 0 ? "gone.reset." : "gone.destroyed.";
            in_child(prefix + std::to_string(ask), [&] {
                CUstream stream;
                CUevent event;
                CUdeviceptr pool = 0;
                CUmemoryPool default_pool;
                uint64_t used = 99;
                if (how == 0)
                    start();
                else {
                    MUST(cuDeviceGet(&device, 0));
                    MUST(cuCtxCreate(&context, nullptr, 0, device));
                }
                MUST(cuStreamCreate(&stream, 0));
                MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
                MUST(cuEventRecord(event, stream));
                MUST(cuMemAllocAsync(&pool, 1 << 20, stream));
                MUST(cuStreamSynchronize(stream));
                if (how == 0)
                    MUST(cuDevicePrimaryCtxReset(device));
                else
                    MUST(cuCtxDestroy(context));
                start();
                MUST(cuDeviceGetDefaultMemPool(&default_pool, device));
                if (ask == 0)
                    printf("%sfresh.cuEventQuery_old_event = %s\n", prefix.c_str(), name_of(cuEventQuery(event)));
                if (ask == 1) {
                    printf("%sfresh.cuMemFreeAsync_pool = %s\n", prefix.c_str(), name_of(cuMemFreeAsync(pool, nullptr)));
                    MUST(cuCtxSynchronize());
                    MUST(cuMemPoolGetAttribute(default_pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
                    printf("%sfresh.pool_used_after = %llu\n", prefix.c_str(), (unsigned long long)used);
                }
                if (ask == 2) {
                    MUST(cuMemPoolGetAttribute(default_pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
                    printf("%sfresh.pool_used_before = %llu\n", prefix.c_str(), (unsigned long long)used);
                }
            });
        }
    puts("done = 1");
}
