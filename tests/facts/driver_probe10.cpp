// Tenth round: pools that a program makes itself. Their limits, what a destroyed one still answers, what captures may allocate
// from, and what a reset of the device leaves.
// Build: g++ -O2 -std=c++17 driver_probe10.cpp -o probe10 -lcuda      Run: ./probe10, with two GPUs
#include "probe.h"

static CUcontext context;
static CUstream stream;

static void start()
{
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void fact(const std::string &name, CUresult code)
{
    printf("%s = %s\n", name.c_str(), name_of(code));
}

static CUresult make(CUmemoryPool *pool, int device, int handle_types, size_t max_size)
{
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = (CUmemAllocationHandleType)handle_types;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = device;
    props.maxSize = max_size;
    return cuMemPoolCreate(pool, &props);
}

static CUmemoryPool made(int device = 0, int handle_types = 0, size_t max_size = 0)
{
    CUmemoryPool pool = nullptr;
    MUST(make(&pool, device, handle_types, max_size));
    return pool;
}

static unsigned long long value(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t answer = 0;
    MUST(cuMemPoolGetAttribute(pool, attribute, &answer));
    return answer;
}

static void memory(const std::string &name, CUmemoryPool pool)
{
    printf("%s threshold=%llu reserved=%llu used=%llu\n", name.c_str(), value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD),
           value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
}

static void without_a_context(const std::string &n)
{
    for (int types : {0, 1, 2, 4, 8, 9, 16}) {
        CUmemoryPool pool = nullptr;
        CUresult code = make(&pool, 0, types, 0);
        fact(n + ".create.handle_types" + std::to_string(types), code);
        if (code == CUDA_SUCCESS)
            fact(n + ".destroy", cuMemPoolDestroy(pool));
    }
    CUmemoryPool pool = made(), current = nullptr;
    cuuint64_t most = ~0ull, zero = 0;
    fact(n + ".current_pool", cuDeviceGetMemPool(&current, 0));
    fact(n + ".threshold.set", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most));
    memory(n, pool);
    fact(n + ".high.reset", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    fact(n + ".reserved_high.reset", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
    fact(n + ".trim", cuMemPoolTrimTo(pool, 0));
    fact(n + ".trim_to_all", cuMemPoolTrimTo(pool, ~0ull));
    CUcontext now = nullptr;
    MUST(cuCtxGetCurrent(&now));
    printf("%s.current_context = %d\n", n.c_str(), now != nullptr);
}

static void limit(const std::string &n, size_t most)
{
    start();
    CUmemoryPool pool = made(0, 0, most);
    CUdeviceptr small = 0, large = 0;
    fact(n + ".one_byte", cuMemAllocFromPoolAsync(&small, 1, pool, stream));
    memory(n + ".one_byte", pool);
    fact(n + ".beside", cuMemAllocFromPoolAsync(&large, most, pool, stream));
    if (large)
        MUST(cuMemFreeAsync(large, stream));
    MUST(cuMemFreeAsync(small, stream));
    MUST(cuStreamSynchronize(stream));
    fact(n + ".alone", cuMemAllocFromPoolAsync(&large, most, pool, stream));
    memory(n + ".alone", pool);
    fact(n + ".more", cuMemAllocFromPoolAsync(&small, 32 << 20, pool, stream));
}

static void destroyed(const std::string &n, bool live)
{
    start();
    CUmemoryPool pool = made(), named = nullptr;
    CUdeviceptr block = 0, other = 0;
    cuuint64_t answer = 0;
    if (live)
        MUST(cuMemAllocFromPoolAsync(&block, 4096, pool, stream));
    MUST(cuStreamSynchronize(stream));
    fact(n + ".destroy", cuMemPoolDestroy(pool));
    fact(n + ".alloc", cuMemAllocFromPoolAsync(&other, 4096, pool, stream));
    fact(n + ".get", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &answer));
    fact(n + ".set", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &answer));
    fact(n + ".trim", cuMemPoolTrimTo(pool, 0));
    fact(n + ".again", cuMemPoolDestroy(pool));
    if (!live)
        return;
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = 1;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    fact(n + ".set_access", cuMemPoolSetAccess(pool, &access, 1));
    fact(n + ".pool_of_block", cuPointerGetAttribute(&named, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, block));
    printf("%s.pool_of_block.same = %d\n", n.c_str(), named == pool);
    fact(n + ".free", cuMemFreeAsync(block, stream));
    fact(n + ".wait", cuStreamSynchronize(stream));
}

static void reset(const std::string &n)
{
    start();
    CUmemoryPool pool = made(), was = nullptr, is = nullptr;
    CUdeviceptr block = 0, fresh = 0;
    cuuint64_t bytes = 1 << 30;
    MUST(cuDeviceGetMemPool(&was, 0));
    MUST(cuDeviceSetMemPool(0, pool));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
    MUST(cuMemAllocFromPoolAsync(&block, 1 << 20, pool, stream));
    MUST(cuStreamSynchronize(stream));
    fact(n + ".reset", cuDevicePrimaryCtxReset(0));
    MUST(cuDeviceGetMemPool(&is, 0));
    printf("%s.current = %s\n", n.c_str(), is == pool ? "stays" : is == was ? "default" : "other");
    memory(n, pool);
    start();
    fact(n + ".alloc", cuMemAllocFromPoolAsync(&fresh, 4096, pool, stream));
    fact(n + ".free", cuMemFreeAsync(block, stream));
    fact(n + ".wait", cuStreamSynchronize(stream));
    memory(n + ".freed", pool);
    fact(n + ".destroy_current", cuMemPoolDestroy(pool));
    MUST(cuDeviceGetMemPool(&is, 0));
    printf("%s.destroyed.current = %s\n", n.c_str(), is == was ? "default" : "other");
}

static void other_device(const std::string &n)
{
    start();
    CUmemoryPool pool = made(1);
    CUdeviceptr block = 0;
    int ordinal = -1;
    fact(n + ".alloc", cuMemAllocFromPoolAsync(&block, 4096, pool, stream));
    fact(n + ".ordinal", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block));
    printf("%s.ordinal = %d\n", n.c_str(), ordinal);
    fact(n + ".free", cuMemFreeAsync(block, stream));
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = 1;
    fact(n + ".own_access.none", cuMemPoolSetAccess(pool, &access, 1));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    fact(n + ".own_access.read_write", cuMemPoolSetAccess(pool, &access, 1));
}

enum Destroyed { NEVER, IN_CAPTURE, BEFORE_LAUNCH };

static void captured(const std::string &n, int handle_types, size_t most, size_t size, Destroyed when)
{
    start();
    CUmemoryPool pool = made(0, handle_types, most), named = nullptr;
    CUdeviceptr block = 0;
    CUstreamCaptureStatus status;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    fact(n + ".alloc", cuMemAllocFromPoolAsync(&block, size, pool, stream));
    MUST(cuStreamIsCapturing(stream, &status));
    printf("%s.status = %d\n", n.c_str(), (int)status);
    if (when == IN_CAPTURE) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        MUST(cuThreadExchangeStreamCaptureMode(&mode));
        fact(n + ".destroy", cuMemPoolDestroy(pool));
        MUST(cuThreadExchangeStreamCaptureMode(&mode));
    }
    fact(n + ".end", cuStreamEndCapture(stream, &graph));
    if (when == BEFORE_LAUNCH)
        fact(n + ".destroy", cuMemPoolDestroy(pool));
    fact(n + ".instantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
    fact(n + ".launch", cuGraphLaunch(exec, stream));
    fact(n + ".wait", cuStreamSynchronize(stream));
    if (when == NEVER)
        memory(n, pool);
    if (!block)
        return;
    fact(n + ".pool_of_block", cuPointerGetAttribute(&named, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, block));
    printf("%s.pool_of_block = %s\n", n.c_str(), named == pool ? "same" : named ? "other" : "none");
    fact(n + ".free", cuMemFreeAsync(block, stream));
}

int main()
{
    auto scene = [](const std::string &name, const std::function<void(const std::string &)> &body) {
        in_child(name, [&] { body(name); });
    };
    scene("plain", without_a_context);
    for (size_t most : {1ul, 4ul << 20, 64ul << 20, 65ul << 20})
        scene("limit" + std::to_string(most), [=](std::string n) { limit(n, most); });
    scene("destroyed.empty", [](std::string n) { destroyed(n, false); });
    scene("destroyed.live", [](std::string n) { destroyed(n, true); });
    scene("reset", reset);
    scene("other", other_device);
    scene("capture.plain", [](std::string n) { captured(n, 0, 0, 1 << 20, NEVER); });
    scene("capture.exportable", [](std::string n) { captured(n, 1, 0, 1 << 20, NEVER); });
    scene("capture.beyond_limit", [](std::string n) { captured(n, 0, 64 << 20, 128 << 20, NEVER); });
    scene("capture.destroyed_in", [](std::string n) { captured(n, 0, 0, 1 << 20, IN_CAPTURE); });
    scene("capture.destroyed_before_launch", [](std::string n) { captured(n, 0, 0, 1 << 20, BEFORE_LAUNCH); });
    return 0;
}
