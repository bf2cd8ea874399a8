// Eleventh round: who may touch what, beyond one context a GPU: other contexts of the same GPU, memory of other processes, read-only
// mappings, pools of the host and of managed memory, captured allocations, and what the questions about it do to a capture.
// Build: g++ -O2 -std=c++17 driver_probe11.cpp -o probe11 -lcuda -lpthread      Run: ./probe11 [facts]
// With "facts" the part that measures time is left out.
#include "probe.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/socket.h>
#include <vector>

static CUcontext context[2];
static int devices;

static void start(bool second = true)
{
    MUST(cuDeviceGetCount(&devices));
    if (devices > 2)
        devices = 2;
    for (int i = 0; i < (second ? devices : 1); i++)
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

static CUcontext another(int device)
{
    CUcontext made = nullptr;
    MUST(cuCtxCreate(&made, nullptr, 0, device));
    return made;
}

static const char *PTX = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry touch(.param .u64 p) {
  .reg .u64 %a; .reg .u32 %v;
  ld.param.u64 %a, [p];
  ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret;
}
.visible .entry look(.param .u64 p, .param .u64 q) {
  .reg .u64 %a, %b; .reg .u32 %v;
  ld.param.u64 %a, [p]; ld.param.u64 %b, [q];
  ld.global.u32 %v, [%a]; st.global.u32 [%b], %v; ret;
}
)";

// A kernel in a context reads, or reads and writes, four bytes.
static CUresult run(CUcontext in, CUdeviceptr p, bool write)
{
    MUST(cuCtxSetCurrent(in));
    CUmodule module;
    CUfunction function;
    CUdeviceptr q = 0;
    MUST(cuMemAlloc(&q, 4096));
    MUST(cuModuleLoadData(&module, PTX));
    MUST(cuModuleGetFunction(&function, module, write ? "touch" : "look"));
    void *arguments[] = {&p, &q};
    CUresult code = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, arguments, nullptr);
    return code ? code : cuCtxSynchronize();
}

static std::string there(CUcontext in, CUdeviceptr p)
{
    MUST(cuCtxSetCurrent(in));
    CUdeviceptr q = 0;
    CUresult code = cuPointerGetAttribute(&q, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p);
    return std::string(name_of(code)) + (code ? "" : q == p ? " same" : " other");
}

// What the question says, then what a kernel meets.
static void ask_and_touch(const std::string &name, CUcontext in, CUdeviceptr p)
{
    printf("%s = %s, ", name.c_str(), there(in, p).c_str());
    printf("touch %s\n", name_of(run(in, p, true)));
    fflush(stdout);
}

static CUmemoryPool pool_of(int device)
{
    CUmemoryPool pool = nullptr;
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    return pool;
}

static CUresult grant(CUmemoryPool pool, int device, int flags)
{
    CUmemAccessDesc wanted = {};
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = device;
    wanted.flags = (CUmemAccess_flags)flags;
    return cuMemPoolSetAccess(pool, &wanted, 1);
}

static CUdeviceptr mapped(int device, std::vector<std::pair<int, int>> access)
{
    CUmemAllocationProp form = {};
    form.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    form.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    form.location.id = device;
    size_t size = 2 << 20;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p = 0;
    MUST(cuMemCreate(&handle, size, &form, 0));
    MUST(cuMemAddressReserve(&p, size, 0, 0, 0));
    MUST(cuMemMap(p, size, 0, handle, 0));
    for (auto [who, flags] : access) {
        CUmemAccessDesc wanted = {};
        wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        wanted.location.id = who;
        wanted.flags = (CUmemAccess_flags)flags;
        fact("mapping.set_access." + std::to_string(who) + "." + std::to_string(flags), cuMemSetAccess(p, size, &wanted, 1));
    }
    return p;
}

static void map_access(const std::string &name, CUdeviceptr p, int device)
{
    CUmemLocation place = {};
    place.type = CU_MEM_LOCATION_TYPE_DEVICE;
    place.id = device;
    unsigned long long flags = 9;
    CUresult code = cuMemGetAccess(&flags, &place, p);
    printf("%s = %s %llu\n", name.c_str(), name_of(code), flags);
    fflush(stdout);
}

static CUdeviceptr memory(const std::string &kind)
{
    CUdeviceptr p = 0;
    if (kind == "plain")
        MUST(cuMemAlloc(&p, 4096));
    else if (kind == "managed")
        MUST(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
    else if (kind == "pool") {
        MUST(cuMemAllocAsync(&p, 4096, 0));
        MUST(cuCtxSynchronize());
    } else if (kind == "mapping")
        p = mapped(0, {{0, 3}});
    else if (kind == "pinned" || kind == "pinned_portable") {
        void *h = nullptr;
        MUST(cuMemHostAlloc(&h, 4096, kind == "pinned" ? 0 : CU_MEMHOSTALLOC_PORTABLE));
        p = (CUdeviceptr)h;
    } else if (kind == "registered") {
        void *h = aligned_alloc(4096, 4096);
        memset(h, 0, 4096);
        MUST(cuMemHostRegister(h, 4096, 0));
        p = (CUdeviceptr)h;
    }
    return p;
}

static void classes(const std::string &name, CUdeviceptr p)
{
    unsigned type = 0, managed = 0;
    int ordinal = -9;
    CUcontext owner = nullptr;
    CUmemoryPool pool = nullptr;
    CUdeviceptr base = 0;
    size_t size = 0;
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                  CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                  CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *out[] = {&type, &managed, &ordinal, &owner, &pool, &base, &size};
    CUresult code = cuPointerGetAttributes(7, what, out, p);
    CUmemGenericAllocationHandle handle;
    CUresult retained = cuMemRetainAllocationHandle(&handle, (void *)p);
    printf("%s = %s type=%u managed=%u ordinal=%d context=%d pool=%d range=%d retain=%s\n", name.c_str(), name_of(code), type, managed & 255,
           ordinal, owner != nullptr, pool != nullptr, base <= p && p < base + size, name_of(retained));
    fflush(stdout);
}

// Another context of the same GPU.
static void contexts()
{
    for (std::string kind : {"plain", "pool", "managed", "mapping", "pinned", "pinned_portable", "registered"})
        in_child("context." + kind, [&] {
            start(false);
            CUdeviceptr p = memory(kind);
            ask_and_touch("context.primary_memory_from_another." + kind, another(0), p);
        });
    for (std::string kind : {"plain", "pool", "managed"})
        in_child("context.reverse." + kind, [&] {
            start(false);
            CUcontext second = another(0);
            CUdeviceptr p = memory(kind);
            classes("context.another." + kind, p);
            MUST(cuCtxSetCurrent(context[0]));
            ask_and_touch("context.memory_of_another_from_primary." + kind, context[0], p);
            (void)second;
        });
    in_child("context.peer", [&] {
        start(false);
        CUcontext second = another(0);
        fact("context.enable_primary_from_another", cuCtxEnablePeerAccess(context[0], 0));
        MUST(cuCtxSetCurrent(context[0]));
        fact("context.enable_another_from_primary", cuCtxEnablePeerAccess(second, 0));
        fact("context.disable_another_from_primary", cuCtxDisablePeerAccess(second));
    });
    in_child("context.none", [&] {
        start(false);
        CUdeviceptr p = memory("plain"), q = memory("pool");
        MUST(cuCtxSetCurrent(nullptr));
        CUdeviceptr out = 0;
        fact("context.none.DEVICE_POINTER.plain", cuPointerGetAttribute(&out, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p));
        fact("context.none.DEVICE_POINTER.pool", cuPointerGetAttribute(&out, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, q));
        CUmemAccess_flags flags;
        CUmemLocation place = {};
        place.type = CU_MEM_LOCATION_TYPE_DEVICE;
        fact("context.none.pool_access", cuMemPoolGetAccess(&flags, pool_of(0), &place));
    });
    if (devices < 2)
        return;
    in_child("context.peer.second_of_peer", [&] {
        start();
        CUdeviceptr p = memory("plain");
        CUcontext second = another(1);
        MUST(cuCtxSetCurrent(context[1]));
        MUST(cuCtxEnablePeerAccess(context[0], 0));
        ask_and_touch("context.peer_enabled_in_primary_from_another.plain", second, p);
    });
    in_child("context.peer.enabled_in_second", [&] {
        start();
        CUdeviceptr p = memory("plain");
        CUcontext second = another(1);
        fact("context.enable_in_another", cuCtxEnablePeerAccess(context[0], 0));
        ask_and_touch("context.peer_enabled_in_another_from_primary.plain", context[1], p);
        ask_and_touch("context.peer_enabled_in_another_from_it.plain", second, p);
    });
    in_child("context.peer.owner_second", [&] {
        start();
        CUcontext second = another(0);
        CUdeviceptr p = memory("plain");
        MUST(cuCtxSetCurrent(context[1]));
        fact("context.enable_to_primary", cuCtxEnablePeerAccess(context[0], 0));
        printf("context.memory_of_another.peer_to_primary = %s\n", there(context[1], p).c_str());
        MUST(cuCtxSetCurrent(context[1]));
        fact("context.enable_to_another", cuCtxEnablePeerAccess(second, 0));
        ask_and_touch("context.memory_of_another.peer_to_it", context[1], p);
    });
    in_child("context.peer.owner_second_primary", [&] {
        start();
        another(0);
        CUdeviceptr p = memory("plain");
        MUST(cuCtxSetCurrent(context[1]));
        MUST(cuCtxEnablePeerAccess(context[0], 0));
        ask_and_touch("context.memory_of_another.peer_to_primary_only", context[1], p);
    });
    in_child("context.pool_second", [&] {
        start();
        CUdeviceptr p = memory("pool");
        MUST(grant(pool_of(0), 1, 3));
        ask_and_touch("context.pool_granted_from_another", another(1), p);
    });
    in_child("context.inactive", [&] {
        start(false);
        CUmemAccess_flags flags;
        CUmemLocation place = {};
        place.type = CU_MEM_LOCATION_TYPE_DEVICE;
        place.id = 1;
        fact("context.inactive.grant", grant(pool_of(0), 1, 3));
        fact("context.inactive.pool_access", cuMemPoolGetAccess(&flags, pool_of(0), &place));
        CUdeviceptr p = memory("pool"), m = mapped(0, {{0, 3}, {1, 3}});
        map_access("context.inactive.map_access", m, 1);
        unsigned state = 0;
        int active = 9;
        MUST(cuDevicePrimaryCtxGetState(1, &state, &active));
        number("context.inactive.still", active);
        MUST(cuDevicePrimaryCtxRetain(&context[1], 1));
        ask_and_touch("context.inactive.pool_granted", context[1], p);
    });
}

// Mappings that may only be read, and mappings that nobody may touch.
static void mappings()
{
    in_child("mapping.own_read", [] {
        start(false);
        CUdeviceptr p = mapped(0, {{0, 3}, {0, 1}});
        map_access("mapping.own_read.get_access", p, 0);
        printf("mapping.own_read.there = %s\n", there(context[0], p).c_str());
        fact("mapping.own_read.look", run(context[0], p, false));
        fact("mapping.own_read.touch", run(context[0], p, true));
    });
    in_child("mapping.none", [] {
        start(false);
        CUdeviceptr p = mapped(0, {});
        map_access("mapping.none.get_access", p, 0);
        classes("mapping.none.class", p);
        ask_and_touch("mapping.none", context[0], p);
    });
    if (devices < 2)
        return;
    in_child("mapping.peer_read", [] {
        start();
        CUdeviceptr p = mapped(0, {{0, 3}, {1, 1}});
        map_access("mapping.peer_read.get_access", p, 1);
        printf("mapping.peer_read.there = %s\n", there(context[1], p).c_str());
        fact("mapping.peer_read.look", run(context[1], p, false));
        fact("mapping.peer_read.touch", run(context[1], p, true));
    });
    in_child("mapping.other_only", [] {
        start();
        CUdeviceptr p = mapped(0, {{1, 3}});
        map_access("mapping.other_only.get_access.0", p, 0);
        printf("mapping.other_only.from_1 = %s\n", there(context[1], p).c_str());
        ask_and_touch("mapping.other_only.from_owner", context[0], p);
    });
}

static CUmemoryPool made_pool(CUmemAllocationType type, CUmemLocationType where, int id, size_t most = 0, unsigned handles = 0)
{
    CUmemPoolProps form = {};
    form.allocType = type;
    form.location.type = where;
    form.location.id = id;
    form.maxSize = most;
    form.handleTypes = (CUmemAllocationHandleType)handles;
    CUmemoryPool pool = nullptr;
    CUresult code = cuMemPoolCreate(&pool, &form);
    printf("pool.create.type%d.place%d.max%zu.handles%u = %s\n", (int)type, (int)where, most, handles, name_of(code));
    return pool;
}

// Pools of other kinds of memory.
static void pools()
{
    const int last = devices - 1;
    for (int granted = 0; granted < 2; granted++)
        for (int from = 0; from <= last; from++)
            in_child("pool.host", [&] {
                start();
                std::string name = "pool.host.granted" + std::to_string(granted) + ".from" + std::to_string(from);
                CUmemoryPool pool = made_pool(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST, 0);
                if (!pool)
                    return;
                if (granted)
                    fact(name + ".grant", grant(pool, from, 3));
                CUdeviceptr p = 0;
                fact(name + ".alloc", cuMemAllocFromPoolAsync(&p, 4096, pool, 0));
                MUST(cuCtxSynchronize());
                classes(name + ".class", p);
                *(volatile int *)p = 5;
                number(name + ".host", *(volatile int *)p);
                ask_and_touch(name, context[from], p);
            });
    for (int from = 0; from <= last; from++)
        in_child("pool.managed", [&] {
            start();
            std::string name = "pool.managed.from" + std::to_string(from);
            CUmemoryPool pool = made_pool(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, 0);
            if (!pool)
                return;
            CUdeviceptr p = 0;
            fact(name + ".alloc", cuMemAllocFromPoolAsync(&p, 4096, pool, 0));
            MUST(cuCtxSynchronize());
            classes(name + ".class", p);
            CUmemAccess_flags flags = (CUmemAccess_flags)9;
            CUmemLocation place = {};
            place.type = CU_MEM_LOCATION_TYPE_DEVICE;
            place.id = from;
            CUresult code = cuMemPoolGetAccess(&flags, pool, &place);
            printf("%s.access = %s %d\n", name.c_str(), name_of(code), (int)flags);
            *(volatile int *)p = 5;
            number(name + ".host", *(volatile int *)p);
            ask_and_touch(name, context[from], p);
        });
    in_child("pool.max", [] {
        start(false);
        CUmemoryPool pool = made_pool(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 0, 64 << 20);
        CUdeviceptr p = 0, q = 0, r = 0;
        fact("pool.max.half", cuMemAllocFromPoolAsync(&p, 32 << 20, pool, 0));
        fact("pool.max.more", cuMemAllocFromPoolAsync(&q, 48 << 20, pool, 0));
        fact("pool.max.rest", cuMemAllocFromPoolAsync(&r, 32 << 20, pool, 0));
    });
    in_child("pool.odd_max", [] {
        start(false);
        CUmemoryPool pool = made_pool(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 0, 1000);
        CUdeviceptr p = 0;
        fact("pool.odd_max.alloc", cuMemAllocFromPoolAsync(&p, 4096, pool, 0));
    });
    in_child("pool.handles", [] {
        start(false);
        for (unsigned handles : {1u, 8u, 9u, 2u, 16u})
            made_pool(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 0, 0, handles);
    });
}

// Allocations in captures, from which pool, and who may touch them.
static CUgraphExec captured(CUstream stream, CUmemoryPool pool, CUdeviceptr *p, const std::string &name)
{
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUresult code = pool ? cuMemAllocFromPoolAsync(p, 4096, pool, stream) : cuMemAllocAsync(p, 4096, stream);
    fact(name + ".alloc", code);
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph so_far;
    const CUgraphNode *nodes = nullptr;
    size_t count = 0;
    if (!code && !cuStreamGetCaptureInfo(stream, &status, &id, &so_far, &nodes, nullptr, &count) && count == 1) {
        CUDA_MEM_ALLOC_NODE_PARAMS params = {};
        MUST(cuGraphMemAllocNodeGetParams(nodes[0], &params));
        printf("%s.access_count = %zu\n", name.c_str(), params.accessDescCount);
        for (size_t i = 0; i < params.accessDescCount; i++)
            printf("%s.access.%zu = %d %d\n", name.c_str(), i, params.accessDescs[i].location.id, (int)params.accessDescs[i].flags);
    }
    CUresult end = cuStreamEndCapture(stream, &graph);
    fact(name + ".end", end);
    if (!end && graph && !code) {
        MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    }
    return exec;
}

static void graphs()
{
    if (devices < 2)
        return;
    for (int granted = 0; granted < 2; granted++)
        for (int own = 0; own < 2; own++)
            in_child("graph", [&] {
                start();
                std::string name = std::string("graph.") + (own ? "created" : "default") + ".granted" + std::to_string(granted);
                CUmemoryPool pool = own ? made_pool(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 0) : pool_of(0);
                if (granted)
                    MUST(grant(pool, 1, 3));
                CUstream stream;
                MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
                CUdeviceptr p = 0;
                CUgraphExec exec = captured(stream, pool, &p, name);
                if (!exec)
                    return;
                printf("%s.there_before = %s\n", name.c_str(), there(context[1], p).c_str());
                MUST(cuCtxSetCurrent(context[0]));
                MUST(cuGraphLaunch(exec, stream));
                MUST(cuStreamSynchronize(stream));
                printf("%s.there_own = %s\n", name.c_str(), there(context[0], p).c_str());
                ask_and_touch(name, context[1], p);
            });
    in_child("graph.handles", [&] {
        start();
        CUmemoryPool pool = made_pool(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 0, 0, 1);
        CUstream stream;
        MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CUdeviceptr p = 0;
        captured(stream, pool, &p, "graph.pool_with_handles");
    });
    in_child("graph.max", [&] {
        start();
        CUmemoryPool pool = made_pool(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 0, 64 << 20);
        CUstream stream;
        MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CUdeviceptr p = 0;
        captured(stream, pool, &p, "graph.pool_with_max");
    });
}

// What questions and changes do to a capture of the same thread, plain and with the mode relaxed.
static void beside_captures()
{
    struct Call {
        const char *name;
        std::function<CUresult()> make;
    };
    static CUdeviceptr plain, pooled, map;
    CUmemLocation place = {};
    place.type = CU_MEM_LOCATION_TYPE_DEVICE;
    std::vector<Call> calls = {
        {"DEVICE_POINTER", [] { CUdeviceptr q; return cuPointerGetAttribute(&q, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, plain); }},
        {"DEVICE_POINTER_pool", [] { CUdeviceptr q; return cuPointerGetAttribute(&q, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pooled); }},
        {"cuMemGetAccess", [place] { unsigned long long f; return cuMemGetAccess(&f, &place, map); }},
        {"cuMemRetainAllocationHandle", [] { CUmemGenericAllocationHandle h; return cuMemRetainAllocationHandle(&h, (void *)map); }},
        {"cuMemPoolGetAccess", [place] { CUmemAccess_flags f; CUmemLocation l = place; return cuMemPoolGetAccess(&f, pool_of(0), &l); }},
        {"cuMemPoolSetAccess", [] { return grant(pool_of(0), 1, 3); }},
        {"cuMemPoolSetAccess_none", [] { return grant(pool_of(0), 1, 0); }},
        {"cuCtxEnablePeerAccess", [] { return cuCtxEnablePeerAccess(context[1], 0); }},
        {"cuCtxDisablePeerAccess", [] { return cuCtxDisablePeerAccess(context[1]); }},
        {"cuMemPoolCreate_Destroy", [] { CUmemPoolProps form = {}; form.allocType = CU_MEM_ALLOCATION_TYPE_PINNED; form.location.type = CU_MEM_LOCATION_TYPE_DEVICE; CUmemoryPool pool; CUresult code = cuMemPoolCreate(&pool, &form); return code ? code : cuMemPoolDestroy(pool); }},
        {"cuMemPoolSetAttribute", [] { cuuint64_t v = 0; return cuMemPoolSetAttribute(pool_of(0), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v); }},
        {"cuDeviceGetDefaultMemPool", [] { CUmemoryPool pool; return cuDeviceGetDefaultMemPool(&pool, 0); }},
        {"cuDevicePrimaryCtxGetState", [] { unsigned f; int a; return cuDevicePrimaryCtxGetState(0, &f, &a); }},
        {"cuDevicePrimaryCtxRetain", [] { CUcontext c; return cuDevicePrimaryCtxRetain(&c, 0); }},
        {"cuDevicePrimaryCtxRelease", [] { return cuDevicePrimaryCtxRelease(0); }},
        {"cuDeviceCanAccessPeer", [] { int can; return cuDeviceCanAccessPeer(&can, 0, 1); }},
        {"cuPointerGetAttributes", [] { unsigned type; CUpointer_attribute what = CU_POINTER_ATTRIBUTE_MEMORY_TYPE; void *out = &type; return cuPointerGetAttributes(1, &what, &out, plain); }},
        {"alloc_and_free", [] { CUdeviceptr q; CUresult code = cuMemAlloc(&q, 4); return code ? code : cuMemFree(q); }},
        {"cuCtxSynchronize", [] { return cuCtxSynchronize(); }},
        {"cuStreamSynchronize_other", [] { CUstream t; MUST(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING)); return cuStreamSynchronize(t); }},
    };
    if (devices < 2)
        return;
    for (int relaxed = 0; relaxed < 2; relaxed++)
        for (int mode = 0; mode < 2; mode++)
            for (auto &call : calls)
                in_child(std::string("capture.") + call.name, [&] {
                    start();
                    plain = memory("plain"), pooled = memory("pool"), map = mapped(0, {});
                    CUstream stream;
                    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
                    if (std::string(call.name) == "cuCtxDisablePeerAccess")
                        MUST(cuCtxEnablePeerAccess(context[1], 0));
                    MUST(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
                    CUstreamCaptureMode other = CU_STREAM_CAPTURE_MODE_RELAXED;
                    if (relaxed)
                        MUST(cuThreadExchangeStreamCaptureMode(&other));
                    CUresult code = call.make();
                    CUstreamCaptureStatus status;
                    cuStreamIsCapturing(stream, &status);
                    CUgraph graph;
                    CUresult end = cuStreamEndCapture(stream, &graph);
                    printf("capture.mode%d.%s.%s = %s status=%d end=%s\n", mode, relaxed ? "relaxed" : "plain", call.name, name_of(code), (int)status,
                           name_of(end));
                });
}

// Memory of another process: plain memory by its handle, a pool by a file.
static void imported()
{
    struct Offer {
        CUipcMemHandle handle;
        CUmemPoolPtrExportData pointer;
        int ok;
    };
    for (int from = 0; from < devices; from++)
        for (int peer = 0; peer < (from ? 2 : 1); peer++)
            in_child("imported", [&] {
                // The memory's owner has a process of its own, below this one, which has not used the driver yet but for cuInit.
                int pair[2];
                if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
                    return;
                start();
                fflush(stdout);
                char path[64];
                snprintf(path, sizeof path, "%d", pair[1]);
                pid_t owner = fork();
                if (owner == 0) {
                    execl("/proc/self/exe", "probe11", "owner", path, (char *)nullptr);
                    _exit(1);
                }
                auto dismiss = [&] {
                    char bye = 0;
                    if (write(pair[0], &bye, 1) != 1)
                        printf("!! the owner is gone\n");
                    waitpid(owner, nullptr, 0);
                };
                Offer offer = {};
                int file = -1;
                char control[CMSG_SPACE(sizeof(int))] = {};
                iovec data = {&offer, sizeof offer};
                msghdr message = {};
                message.msg_iov = &data;
                message.msg_iovlen = 1;
                message.msg_control = control;
                message.msg_controllen = sizeof control;
                if (recvmsg(pair[0], &message, 0) == (ssize_t)sizeof offer)
                    if (cmsghdr *head = CMSG_FIRSTHDR(&message))
                        memcpy(&file, CMSG_DATA(head), sizeof file);
                std::string name = "imported.from" + std::to_string(from) + ".peer" + std::to_string(peer);
                number(name + ".offered", offer.ok && file >= 0);
                CUdeviceptr p = 0, q = 0;
                fact(name + ".open", cuIpcOpenMemHandle(&p, offer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
                classes(name + ".plain", p);
                CUmemoryPool pool = nullptr;
                fact(name + ".pool", cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
                fact(name + ".pointer", cuMemPoolImportPointer(&q, pool, &offer.pointer));
                // A driver that takes no memory of others has nothing to touch.
                if (!p || !q)
                    return dismiss();
                classes(name + ".pooled", q);
                CUmemAccess_flags flags = (CUmemAccess_flags)9;
                CUmemLocation place = {};
                place.type = CU_MEM_LOCATION_TYPE_DEVICE;
                place.id = from;
                CUresult code = cuMemPoolGetAccess(&flags, pool, &place);
                printf("%s.pool_access = %s %d\n", name.c_str(), name_of(code), (int)flags);
                if (peer) {
                    MUST(cuCtxSetCurrent(context[from]));
                    fact(name + ".enable", cuCtxEnablePeerAccess(context[0], 0));
                    MUST(cuCtxSetCurrent(context[0]));
                    fact(name + ".grant", grant(pool, from, 3));
                }
                printf("%s.pooled.there = %s\n", name.c_str(), there(context[from], q).c_str());
                printf("%s.plain.there = %s\n", name.c_str(), there(context[from], p).c_str());
                fflush(stdout);
                if (from == 0 || peer) {
                    fact(name + ".pooled.touch", run(context[from], q, true));
                    fact(name + ".plain.touch", run(context[from], p, true));
                } else
                    fact(name + ".plain.touch", run(context[from], p, true));
                dismiss();
            });
}

static int own(int socket)
{
    struct {
        CUipcMemHandle handle;
        CUmemPoolPtrExportData pointer;
        int ok;
    } offer = {};
    MUST(cuInit(0));
    start(false);
    CUdeviceptr p = memory("plain"), q = 0;
    CUmemPoolProps form = {};
    form.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    form.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    form.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemoryPool pool = nullptr;
    int file = -1;
    CUresult codes[] = {cuIpcGetMemHandle(&offer.handle, p), cuMemPoolCreate(&pool, &form), cuMemAllocFromPoolAsync(&q, 4096, pool, 0),
                        cuCtxSynchronize(), cuMemPoolExportToShareableHandle(&file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                        cuMemPoolExportPointer(&offer.pointer, q)};
    offer.ok = 1;
    for (CUresult code : codes)
        offer.ok &= code == CUDA_SUCCESS;
    char control[CMSG_SPACE(sizeof(int))] = {};
    iovec data = {&offer, sizeof offer};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(head), &file, sizeof file);
    if (sendmsg(socket, &message, 0) < 0)
        return 1;
    char bye;
    return read(socket, &bye, 1) == 1 ? 0 : 1;
}

template <class F> static void cost(const char *name, F call, int times)
{
    double best = 1e18;
    for (int round = 0; round < 9; round++) {
        auto before = std::chrono::steady_clock::now();
        for (int i = 0; i < times; i++)
            call();
        double each = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - before).count() / times;
        best = each < best ? each : best;
    }
    printf("cost.%s ns=%.1f\n", name, best);
}

static void costs()
{
    start();
    CUdeviceptr plain = memory("plain"), pooled = memory("pool"), map = mapped(0, {{0, 3}});
    auto ask = [](CUdeviceptr p) { CUdeviceptr q; cuPointerGetAttribute(&q, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p); };
    MUST(cuCtxSetCurrent(context[0]));
    cost("DEVICE_POINTER.own.plain", [&] { ask(plain); }, 10000);
    cost("DEVICE_POINTER.own.pool", [&] { ask(pooled); }, 10000);
    if (devices > 1) {
        MUST(cuCtxSetCurrent(context[1]));
        cost("DEVICE_POINTER.peer_without.plain", [&] { ask(plain); }, 10000);
        cost("DEVICE_POINTER.peer_without.pool", [&] { ask(pooled); }, 10000);
        cost("DEVICE_POINTER.peer_without.mapping", [&] { ask(map); }, 10000);
        MUST(cuCtxEnablePeerAccess(context[0], 0));
        cost("DEVICE_POINTER.peer_with.plain", [&] { ask(plain); }, 10000);
    }
    CUmemLocation place = {};
    place.type = CU_MEM_LOCATION_TYPE_DEVICE;
    place.id = devices - 1;
    CUmemAccess_flags flags;
    unsigned long long wide;
    CUmemoryPool pool = pool_of(0);
    cost("cuMemPoolGetAccess", [&] { cuMemPoolGetAccess(&flags, pool, &place); }, 10000);
    cost("cuMemGetAccess", [&] { cuMemGetAccess(&wide, &place, map); }, 10000);
    cost("ctx_set_pair", [&] { cuCtxSetCurrent(context[0]); cuCtxSetCurrent(context[devices - 1]); }, 10000);
    int active;
    unsigned state;
    cost("cuDevicePrimaryCtxGetState", [&] { cuDevicePrimaryCtxGetState(0, &state, &active); }, 10000);
    unsigned long long id;
    cost("cuCtxGetId", [&] { cuCtxGetId(context[0], &id); }, 10000);
    int can;
    cost("cuDeviceCanAccessPeer", [&] { cuDeviceCanAccessPeer(&can, devices - 1, 0); }, 1000);
}

int main(int count, char **words)
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    std::string what = count > 1 ? words[1] : "all";
    if (what == "owner")
        return own(atoi(words[2]));
    fflush(stdout);
    pid_t counting = fork();
    if (counting == 0) {
        int found = 0;
        MUST(cuInit(0));
        cuDeviceGetCount(&found);
        _exit(found);
    }
    int status = 0;
    waitpid(counting, &status, 0);
    devices = WEXITSTATUS(status) > 2 ? 2 : WEXITSTATUS(status);
    contexts();
    mappings();
    pools();
    graphs();
    beside_captures();
    imported();
    if (what != "facts")
        in_child("costs", costs);
    return 0;
}
