// Fourteenth round: managed memory and handles for other processes: what can be prefetched where, advised and asked, on which
// streams, beside captures, and which memory has a legacy handle.
// Build: g++ -O1 -std=c++17 driver_probe14.cpp -o probe14 -lcuda -lpthread -ldl      Run: ./probe14
#include "capture_probe.h"

#include <dlfcn.h>
#include <sys/mman.h>

static const size_t SIZE = 4 << 20;
static CUcontext second;
static CUdeviceptr managed;
static CUstream stream, other_gpu;

// The forms with a device's number, which today's header does not declare any more.
typedef CUresult (*old_prefetch_function)(CUdeviceptr, size_t, CUdevice, CUstream);
typedef CUresult (*old_advise_function)(CUdeviceptr, size_t, CUmem_advise, CUdevice);
static old_prefetch_function old_prefetch;
static old_advise_function old_advise;

static CUmemLocation at(int type, int id)
{
    CUmemLocation place = {};
    place.type = (CUmemLocationType)type;
    place.id = id;
    return place;
}
static const CUmemLocation gpu0 = at(CU_MEM_LOCATION_TYPE_DEVICE, 0), gpu1 = at(CU_MEM_LOCATION_TYPE_DEVICE, 1);
static const CUmemLocation cpu = at(CU_MEM_LOCATION_TYPE_HOST, 0);

static CUresult prefetch(CUdeviceptr ptr, size_t size, CUmemLocation to, CUstream on, unsigned flags = 0)
{
    return cuMemPrefetchAsync_v2(ptr, size, to, flags, on);
}

static void stage(const char *name, const std::function<void()> &body)
{
    in_child(name, [&] {
        start();
        MUST(cuDevicePrimaryCtxRetain(&second, 1));
        MUST(cuCtxSetCurrent(second));
        other_gpu = make_stream();
        MUST(cuCtxSetCurrent(context));
        stream = make_stream();
        MUST(cuMemAllocManaged(&managed, SIZE, CU_MEM_ATTACH_GLOBAL));
        MUST(cuMemAlloc(&plain, 4096));
        old_prefetch = (old_prefetch_function)dlsym(RTLD_DEFAULT, "cuMemPrefetchAsync");
        old_advise = (old_advise_function)dlsym(RTLD_DEFAULT, "cuMemAdvise");
        body();
    });
}

static std::string asked(CUmem_range_attribute what, CUdeviceptr ptr, size_t size)
{
    int value = -77;
    CUresult code = cuMemRangeGetAttribute(&value, sizeof value, what, ptr, size);
    return code ? short_name(code) + (value == -77 ? "" : "+" + std::to_string(value)) : std::to_string(value);
}

static std::string accessors(CUdeviceptr ptr, size_t size, size_t count = 3)
{
    int value[8] = {-77, -77, -77, -77, -77, -77, -77, -77};
    CUresult code = cuMemRangeGetAttribute(value, count * sizeof *value, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, ptr, size);
    std::string text = code ? short_name(code) : "";
    for (size_t i = 0; i < count && !code; i++)
        text += (i ? "," : "") + std::to_string(value[i]);
    return text;
}

// All that the driver tells of a range.
static void state(const std::string &name, CUdeviceptr ptr = 0, size_t size = SIZE)
{
    ptr = ptr ? ptr : managed;
    line(name + ".state", "mostly=" + asked(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, ptr, size) +
             " preferred=" + asked(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, ptr, size) + "/" +
             asked(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, ptr, size) + "/" +
             asked(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, ptr, size) + " by=" + accessors(ptr, size) +
             " last=" + asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, ptr, size) + "/" +
             asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, ptr, size) + "/" +
             asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID, ptr, size));
}

static void prefetches()
{
    state("fresh");
    auto to = [](const char *name, CUmemLocation place) {
        fact(std::string("prefetch.") + name, prefetch(managed, SIZE, place, stream));
        MUST(cuStreamSynchronize(stream));
        state(std::string("prefetch.") + name);
    };
    to("own_gpu", gpu0);
    to("other_gpu", gpu1);
    to("cpu", cpu);
    to("cpu_id_5", at(CU_MEM_LOCATION_TYPE_HOST, 5));
    to("numa_0", at(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0));
    to("numa_current", at(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0));
    to("nowhere", at(0, 0));
    to("type_99", at(99, 0));
    to("gpu_99", at(CU_MEM_LOCATION_TYPE_DEVICE, 99));
    to("gpu_minus_1", at(CU_MEM_LOCATION_TYPE_DEVICE, -1));
    auto range = [](const char *name, CUdeviceptr ptr, size_t size) {
        fact(std::string("prefetch.") + name, prefetch(ptr, size, gpu0, stream));
        MUST(cuStreamSynchronize(stream));
    };
    range("size_0", managed, 0);
    range("past_end", managed + SIZE - 4096, 8192);
    range("from_end", managed + SIZE, 4096);
    range("size_wraps", managed, ~(size_t)0);
    range("null", 0, 4096);
    range("garbage", 0x123456789000, 4096);
    fact("prefetch.flags_1", prefetch(managed, SIZE, gpu0, stream, 1));
    // Parts: how far a prefetch of a few bytes goes.
    MUST(prefetch(managed, SIZE, cpu, stream));
    range("part", managed + (1 << 20) + 100, 100);
    state("part.whole");
    state("part.itself", managed + (1 << 20) + 100, 100);
    state("part.page", managed + (1 << 20), 4096);
    state("part.next_page", managed + (1 << 20) + 4096, 4096);
    state("part.large_page", managed + (1 << 20), 65536);
    range("half", managed, SIZE / 2);
    state("half.first", managed, SIZE / 2);
    state("half.second", managed + SIZE / 2, SIZE / 2);
    state("half.over", managed + SIZE / 2 - 4096, 8192);
    // Two blocks that lie side by side are two.
    CUdeviceptr freed;
    MUST(cuMemAllocManaged(&freed, 4096, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemFree(freed));
    range("freed", freed, 4096);
    CUdeviceptr small;
    MUST(cuMemAllocManaged(&small, 100, CU_MEM_ATTACH_GLOBAL));
    range("small", small, 100);
    range("small_past_end", small, 101);
    state("small", small, 100);
    state("small_past_end", small, 101);
}

static void streams()
{
    auto on = [](const char *name, CUstream where, CUmemLocation place) {
        fact(std::string("stream.") + name, prefetch(managed, SIZE, place, where));
        MUST(cuCtxSynchronize());
        line(std::string("stream.") + name + ".last", asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, managed, SIZE));
    };
    on("null", nullptr, gpu0);
    on("legacy", CU_STREAM_LEGACY, cpu);
    on("per_thread", CU_STREAM_PER_THREAD, gpu0);
    on("blocking", make_stream(0), cpu);
    on("other_gpu_to_other", other_gpu, gpu1);
    on("other_gpu_to_own", other_gpu, gpu0);
    on("other_gpu_to_cpu", other_gpu, cpu);
    MUST(cuCtxSetCurrent(second));
    on("other_context_current", stream, gpu0);
    on("other_context_null", nullptr, gpu0);
    MUST(cuCtxSetCurrent(nullptr));
    fact("stream.no_context", prefetch(managed, SIZE, cpu, stream));
    fact("stream.no_context_null", prefetch(managed, SIZE, cpu, nullptr));
    fact("nocontext.advise", cuMemAdvise_v2(managed, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu0));
    line("nocontext.asked", asked(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, SIZE));
    fact("nocontext.alloc", cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
    CUipcMemHandle handle;
    fact("nocontext.ipc", cuIpcGetMemHandle(&handle, plain));
    MUST(cuCtxSetCurrent(context));
    fact("alloc.flags_0", cuMemAllocManaged(&address, 4096, 0));
    fact("alloc.flags_3", cuMemAllocManaged(&address, 4096, 3));
    fact("alloc.flags_8", cuMemAllocManaged(&address, 4096, 8));
    fact("alloc.size_0", cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL));
    fact("alloc.host", cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_HOST));
    fact("attached_to_host.prefetch", prefetch(address, 4096, gpu0, stream));
    // The data is the same wherever it goes, and the prefetch stands in the stream's order.
    MUST(cuMemsetD8Async(managed, 7, SIZE, stream));
    MUST(prefetch(managed, SIZE, cpu, stream));
    MUST(prefetch(managed, SIZE, gpu1, stream));
    MUST(cuStreamSynchronize(stream));
    line("data", std::to_string(((unsigned char *)managed)[SIZE - 1]));
}

static void old_forms()
{
    line("old.there", std::to_string(old_prefetch != nullptr) + std::to_string(old_advise != nullptr));
    if (!old_prefetch || !old_advise)
        return;
    for (int to : {0, 1, -1, -2, 99}) {
        std::string name = "old.prefetch." + std::to_string(to);
        fact(name, old_prefetch(managed, SIZE, to, stream));
        MUST(cuStreamSynchronize(stream));
        state(name);
    }
    fact("old.prefetch.size_0", old_prefetch(managed, 0, 0, stream));
    fact("old.prefetch.plain", old_prefetch(plain, 4096, 0, stream));
    for (int to : {0, 1, -1, -2, 99}) {
        std::string name = "old.advise." + std::to_string(to);
        fact(name, old_advise(managed, SIZE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, to));
        state(name);
    }
    fact("old.advise.unset", old_advise(managed, SIZE, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 99));
    fact("old.advise.mostly", old_advise(managed, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, 99));
    state("old.advise.mostly");
}

static void advices()
{
    struct Place {
        const char *name;
        CUmemLocation place;
    } places[] = {{"gpu0", gpu0}, {"gpu1", gpu1}, {"cpu", cpu}, {"numa_0", at(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0)},
        {"numa_current", at(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0)}, {"nowhere", at(0, 0)},
        {"gpu_99", at(CU_MEM_LOCATION_TYPE_DEVICE, 99)}};
    for (int advice = 0; advice <= 7; advice++) {
        for (Place &p : places) {
            std::string name = "advise." + std::to_string(advice) + "." + p.name;
            fact(name, cuMemAdvise_v2(managed, SIZE, (CUmem_advise)advice, p.place));
            state(name);
        }
    }
    auto fresh = [](const char *name, const std::function<void(CUdeviceptr)> &body) {
        CUdeviceptr block;
        MUST(cuMemAllocManaged(&block, SIZE, CU_MEM_ATTACH_GLOBAL));
        body(block);
        state(std::string("both.") + name, block);
        MUST(cuMemFree(block));
    };
    auto advise = [](CUdeviceptr ptr, CUmem_advise advice, CUmemLocation place, size_t size = SIZE) {
        MUST(cuMemAdvise_v2(ptr, size, advice, place));
    };
    fresh("mostly_then_preferred", [&](CUdeviceptr b) {
        advise(b, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu0);
        advise(b, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, gpu1);
        advise(b, CU_MEM_ADVISE_SET_ACCESSED_BY, gpu0);
        advise(b, CU_MEM_ADVISE_SET_ACCESSED_BY, cpu);
    });
    fresh("accessed_by_all", [&](CUdeviceptr b) {
        advise(b, CU_MEM_ADVISE_SET_ACCESSED_BY, gpu1);
        advise(b, CU_MEM_ADVISE_SET_ACCESSED_BY, gpu0);
        advise(b, CU_MEM_ADVISE_SET_ACCESSED_BY, cpu);
        line("by.one", accessors(b, SIZE, 1));
        line("by.two", accessors(b, SIZE, 2));
        line("by.many", accessors(b, SIZE, 6));
        line("by.none", accessors(b, SIZE, 0));
    });
    fresh("accessed_by_here_and_there", [&](CUdeviceptr b) {
        advise(b, CU_MEM_ADVISE_SET_ACCESSED_BY, gpu0, SIZE / 2);
        advise(b, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu0, SIZE / 2);
        advise(b, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, gpu0, SIZE / 2);
        state("here", b, SIZE / 2);
        state("there", b + SIZE / 2, SIZE / 2);
    });
    fresh("preferred_differs", [&](CUdeviceptr b) {
        advise(b, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, gpu0, SIZE / 2);
        advise(b + SIZE / 2, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, gpu1, SIZE / 2);
    });
    fresh("small", [&](CUdeviceptr b) {
        advise(b + 5000, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu0, 100);
        state("small.itself", b + 5000, 100);
        state("small.page", b + 4096, 4096);
        state("small.before", b, 4096);
        state("small.after", b + 8192, 4096);
        state("small.wide", b + 4096, 8192);
    });
    fresh("over_pages", [&](CUdeviceptr b) {
        advise(b + 4095, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu0, 2);
        state("over_pages.both", b, 8192);
    });
    fresh("unset_by_another", [&](CUdeviceptr b) {
        advise(b, CU_MEM_ADVISE_SET_ACCESSED_BY, gpu0);
        advise(b, CU_MEM_ADVISE_UNSET_ACCESSED_BY, gpu1);
    });
    fact("advise.size_0", cuMemAdvise_v2(managed, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu0));
    fact("advise.past_end", cuMemAdvise_v2(managed + SIZE - 4096, 8192, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu0));
    fact("advise.null", cuMemAdvise_v2(0, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu0));
    // What questions are refused.
    int value[4];
    fact("ask.size_0", cuMemRangeGetAttribute(value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, 0));
    fact("ask.past_end", cuMemRangeGetAttribute(value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed + SIZE - 4096, 8192));
    fact("ask.null_out", cuMemRangeGetAttribute(nullptr, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, SIZE));
    fact("ask.two_bytes", cuMemRangeGetAttribute(value, 2, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, SIZE));
    fact("ask.eight_bytes", cuMemRangeGetAttribute(value, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, SIZE));
    fact("ask.six_bytes_by", cuMemRangeGetAttribute(value, 6, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, managed, SIZE));
    fact("ask.attribute_0", cuMemRangeGetAttribute(value, 4, (CUmem_range_attribute)0, managed, SIZE));
    fact("ask.attribute_9", cuMemRangeGetAttribute(value, 4, (CUmem_range_attribute)9, managed, SIZE));
}

// Memory of every other kind: what is it answered, and has it a handle for other processes.
static bool same(const CUipcMemHandle &a, const CUipcMemHandle &b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static void others()
{
    auto ask = [](const char *kind, CUdeviceptr ptr) {
        std::string name = std::string("kind.") + kind;
        CUipcMemHandle handle;
        fact(name + ".prefetch", prefetch(ptr, 4096, gpu0, stream));
        fact(name + ".prefetch_cpu", prefetch(ptr, 4096, cpu, stream));
        fact(name + ".advise", cuMemAdvise_v2(ptr, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu0));
        fact(name + ".unadvise", cuMemAdvise_v2(ptr, 4096, CU_MEM_ADVISE_UNSET_READ_MOSTLY, gpu0));
        line(name + ".mostly", asked(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, ptr, 4096));
        line(name + ".preferred", asked(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, ptr, 4096));
        fact(name + ".ipc", cuIpcGetMemHandle(&handle, ptr));
    };
    CUdeviceptr block, piece;
    void *host;
    ask("null", 0);
    ask("garbage", 0x123456789000);
    ask("plain", plain);
    ask("managed", managed);
    MUST(cuMemAllocAsync(&block, 4096, stream));
    ask("pool", block);
    CUmemPoolProps props = {};
    CUmemoryPool pool;
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = gpu0;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemAllocFromPoolAsync(&block, 4096, pool, stream));
    ask("shared_pool", block);
    props.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    CUresult made = cuMemPoolCreate(&pool, &props);
    fact("managed_pool", made);
    if (!made) {
        MUST(cuMemAllocFromPoolAsync(&block, 65536, pool, stream));
        MUST(cuStreamSynchronize(stream));
        ask("managed_pool", block);
    }
    MUST(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE));
    ask("pinned", (CUdeviceptr)host);
    host = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(host, 1, 65536);
    ask("pageable", (CUdeviceptr)host);
    MUST(cuMemHostRegister(host, 65536, 0));
    ask("registered", (CUdeviceptr)host);
    CUmemAllocationProp physical = {};
    CUmemGenericAllocationHandle memory;
    CUmemAccessDesc access = {};
    physical.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical.location = gpu0;
    access.location = gpu0;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    MUST(cuMemCreate(&memory, 2 << 20, &physical, 0));
    MUST(cuMemAddressReserve(&block, 2 << 20, 0, 0, 0));
    MUST(cuMemMap(block, 2 << 20, 0, memory, 0));
    MUST(cuMemSetAccess(block, 2 << 20, &access, 1));
    ask("mapping", block);
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    MUST(cuMemAllocAsync(&block, 4096, stream));
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuStreamEndCapture(stream, &graph));
    ask("graph_before", block);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    ask("graph", block);
    MUST(cuMemAlloc(&block, 8192));
    MUST(cuMemAlloc(&piece, 8192));
    CUipcMemHandle first, again, inside, beside;
    MUST(cuIpcGetMemHandle(&first, block));
    MUST(cuIpcGetMemHandle(&again, block));
    MUST(cuIpcGetMemHandle(&inside, block + 4097));
    MUST(cuIpcGetMemHandle(&beside, piece));
    line("ipc.again", same(first, again) ? "same" : "different");
    line("ipc.inside", same(first, inside) ? "same" : "different");
    line("ipc.beside", same(first, beside) ? "same" : "different");
    fact("ipc.null_out", cuIpcGetMemHandle(nullptr, block));
    fact("ipc.end", cuIpcGetMemHandle(&first, block + 8192 + (64ull << 30)));
    MUST(cuCtxSetCurrent(second));
    fact("ipc.other_context", cuIpcGetMemHandle(&first, block));
    line("ipc.other_context_handle", same(first, again) ? "same" : "different");
    MUST(cuMemFree(block));
    fact("ipc.freed", cuIpcGetMemHandle(&first, block));
}

// What a process finds that opens the handles of a block, of a place inside of it, and of the block beside it.
static void importer(int in, int out)
{
    CUipcMemHandle handles[3];
    char done = 0;
    if (read(in, handles, sizeof handles) != (ssize_t)sizeof handles)
        return;
    start();
    const char *names[3] = {"base", "inside", "beside"};
    for (int i = 0; i < 3; i++) {
        std::string name = std::string("imported.") + names[i];
        CUdeviceptr block = 0, base = 0;
        size_t size = 0;
        uint32_t value = 0;
        CUipcMemHandle second_hand;
        CUresult code = cuIpcOpenMemHandle(&block, handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        fact(name, code);
        if (code)
            continue;
        MUST(cuMemcpyDtoH(&value, block, 4));
        MUST(cuMemGetAddressRange(&base, &size, block));
        line(name + ".value", std::to_string(value) + " from_base=" + std::to_string(block - base) + " size=" + std::to_string(size));
        fact(name + ".export", cuIpcGetMemHandle(&second_hand, block));
        fact(name + ".again", cuIpcOpenMemHandle(&block, handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    }
    fflush(stdout);
    (void)!write(out, &done, 1);
}

static void exporter(int out, int in)
{
    start();
    CUdeviceptr block, piece;
    CUipcMemHandle handles[3];
    char done;
    MUST(cuMemAlloc(&block, 8192));
    MUST(cuMemAlloc(&piece, 8192));
    MUST(cuMemsetD32(block, 1, 1024));
    MUST(cuMemsetD32(block + 4096, 2, 1024));
    MUST(cuMemsetD32(piece, 3, 1024));
    MUST(cuCtxSynchronize());
    MUST(cuIpcGetMemHandle(&handles[0], block));
    MUST(cuIpcGetMemHandle(&handles[1], block + 4096));
    MUST(cuIpcGetMemHandle(&handles[2], piece));
    if (write(out, handles, sizeof handles) != (ssize_t)sizeof handles || read(in, &done, 1) != 1)
        line("imported.end", "the other process is gone");
}

static void two_processes()
{
    int down[2], up[2];
    if (pipe(down) || pipe(up))
        return;
    fflush(stdout);
    if (fork() == 0) {
        close(up[1]);
        close(down[0]);
        in_child("exporter", [&] { exporter(down[1], up[0]); });
        fflush(stdout);
        _exit(0);
    }
    close(down[1]);
    close(up[0]);
    in_child("importer", [&] { importer(down[0], up[1]); });
    close(up[1]);
    wait(nullptr);
}

// Each call while a stream is captured, by the thread that captures or another, its mode relaxed or not.
static void captures(const char *mode_name, int mode)
{
    CUstream free_stream = make_stream(), blocking = make_stream(0);
    CUdeviceptr more;
    CUipcMemHandle handle;
    void *pinned;
    MUST(cuMemAllocManaged(&more, SIZE, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE));
    struct Call {
        const char *name;
        std::function<CUresult()> call;
    } calls[] = {
        {"prefetch_own", [&] { return prefetch(managed, SIZE, gpu0, stream); }},
        {"prefetch_own_cpu", [&] { return prefetch(managed, SIZE, cpu, stream); }},
        {"prefetch_own_old", [&] { return old_prefetch ? old_prefetch(managed, SIZE, 0, stream) : CUDA_ERROR_NOT_FOUND; }},
        {"prefetch_own_plain", [&] { return prefetch(plain, 4096, gpu0, stream); }},
        {"prefetch_own_size_0", [&] { return prefetch(managed, 0, gpu0, stream); }},
        {"prefetch_other", [&] { return prefetch(managed, SIZE, gpu0, free_stream); }},
        {"prefetch_other_plain", [&] { return prefetch(plain, 4096, gpu0, free_stream); }},
        {"prefetch_blocking", [&] { return prefetch(managed, SIZE, gpu0, blocking); }},
        {"prefetch_legacy", [&] { return prefetch(managed, SIZE, gpu0, CU_STREAM_LEGACY); }},
        {"prefetch_null", [&] { return prefetch(managed, SIZE, gpu0, nullptr); }},
        {"prefetch_other_gpu", [&] { return prefetch(managed, SIZE, gpu1, other_gpu); }},
        {"advise", [&] { return cuMemAdvise_v2(managed, SIZE, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu0); }},
        {"advise_preferred", [&] { return cuMemAdvise_v2(managed, SIZE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, cpu); }},
        {"advise_plain", [&] { return cuMemAdvise_v2(plain, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu0); }},
        {"ask", [&] { int v; return cuMemRangeGetAttribute(&v, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, SIZE); }},
        {"alloc_managed", [&] { return cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL); }},
        {"ipc", [&] { return cuIpcGetMemHandle(&handle, plain); }},
        {"ipc_managed", [&] { return cuIpcGetMemHandle(&handle, managed); }},
        {"ipc_pinned", [&] { return cuIpcGetMemHandle(&handle, (CUdeviceptr)pinned); }},
    };
    for (const char *who : {"same", "same_relaxed", "other", "other_relaxed"}) {
        bool here = strncmp(who, "same", 4) == 0, relaxed = strstr(who, "relaxed") != nullptr;
        for (Call &c : calls) {
            CUresult code = CUDA_SUCCESS;
            begin(stream, mode);
            work(stream);
            auto make = [&] {
                CUstreamCaptureMode now = CU_STREAM_CAPTURE_MODE_RELAXED;
                MUST(cuCtxSetCurrent(context));
                if (relaxed)
                    MUST(cuThreadExchangeStreamCaptureMode(&now));
                code = c.call();
                if (relaxed)
                    MUST(cuThreadExchangeStreamCaptureMode(&now));
            };
            if (here)
                make();
            else
                std::thread(make).join();
            int status = status_of(stream);
            std::string end = end_of(stream);
            line(std::string("capture.") + mode_name + "." + who + "." + c.name,
                short_name(code) + " status=" + std::to_string(status) + " end=" + end);
            MUST(cuCtxSynchronize());
        }
    }
}

int main()
{
    stage("prefetch", prefetches);
    stage("streams", streams);
    stage("old", old_forms);
    stage("advise", advices);
    stage("others", others);
    two_processes();
    stage("global", [] { captures("global", CU_STREAM_CAPTURE_MODE_GLOBAL); });
    stage("thread_local", [] { captures("thread_local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); });
    stage("relaxed", [] { captures("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED); });
    return 0;
}
