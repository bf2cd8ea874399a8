/*
 * sim_kernel.c: kernels on the simulated driver: launched on streams, recorded in captures and graphs, over peers with and
 * without access, in random orders; and what a fault comes to, in processes of their own where that is for good.
 *
 * topology: h200x2
 * topology: hmm
 * topology: h200x2,fault=context
 * needs: simulator
 * valgrind: no (the simulator alone, which every other program runs there)
 */
#define _GNU_SOURCE
#define CHECK_WITHOUT_WARPMEM

#include "graphs.h"
#include "kernels.h"

enum { ILLEGAL_ADDRESS = 700, KERNEL = 0, FOUND_NOTHING = 500 };

static void *module;

/* A fresh machine with the kernels loaded for GPU 0. */
static void begin(uint64_t seed)
{
    uint32_t code = 0;
    start(seed);
    module = kernels_load(&code);
    CHECK_EQ_U64(code, 0);
}

static void touch(uint64_t address, CUstream stream)
{
    OK(kernels_launch_at(module, "touch", address, stream));
}

static void fill_words(uint64_t address, uint64_t count, uint32_t value, CUstream stream)
{
    void *params[3];
    params[0] = &address;
    params[1] = &count;
    params[2] = &value;
    OK(kernels_launch_many(module, "fill", count, stream, params));
}

static uint64_t sum_words(uint64_t address, uint64_t count, uint64_t to, CUstream stream)
{
    void *params[3];
    params[0] = &address;
    params[1] = &count;
    params[2] = &to;
    return kernels_launch_many(module, "sum", count, stream, params);
}

static uint64_t plain_block(size_t size)
{
    uint64_t block = 0;
    OK(D(cuMemAlloc_v2)(&block, size));
    return block;
}

static uint64_t value_at(uint64_t address, size_t size)
{
    uint64_t value = 0;
    OK(D(warpsim_peek)(address, &value, size));
    return value;
}

/* ---- Order ----------------------------------------------------------------------------------------------------------- */

TEST(kernels_are_work_of_their_stream)
{
    uint64_t seed;
    for (seed = 0; seed <= 60; ++seed) {
        CUstream a, b;
        uint64_t words, total;
        begin(seed);
        a = stream_of(NON_BLOCKING);
        b = stream_of(NON_BLOCKING);
        words = pool_block(4000, a);
        total = pool_block(8, a);
        fill_bytes(total, 0, 8, a);
        fill_words(words, 1000, 3, a);
        join(a, b);
        OK(sum_words(words, 1000, total, b));
        join(b, a);
        touch(words, a);
        OK(D(cuStreamSynchronize)(a));
        CHECK_EQ_U64(value_at(total, 8), 3000);
        CHECK_EQ_U64(value_at(words, 4), 4);
        OK(D(cuMemFreeAsync)(words, a));
        OK(D(cuMemFreeAsync)(total, a));
        OK(D(cuCtxSynchronize)());
        check_no_violation();
    }
}

TEST(a_kernel_waits_for_a_held_stream)
{
    CUstream stream;
    uint64_t block;
    begin(0);
    stream = stream_of(NON_BLOCKING);
    block = plain_block(4);
    fill_bytes(block, 0, 4, stream);
    D(warpsim_auto_release)(0);
    OK(D(warpsim_hold)((uint64_t)(uintptr_t)stream));
    touch(block, stream);
    CHECK_EQ_U64(D(cuStreamQuery)(stream), NOT_READY);
    CHECK_EQ_U64(value_at(block, 4), 0);
    OK(D(warpsim_release)((uint64_t)(uintptr_t)stream));
    OK(D(cuStreamQuery)(stream));
    CHECK_EQ_U64(value_at(block, 4), 1);
}

TEST(a_missing_join_before_a_free_is_found_whatever_ran_first)
{
    uint64_t seed, late = 0, in_time = 0;
    for (seed = 1; seed <= 200; ++seed) {
        CUstream a, b;
        uint64_t block;
        begin(seed);
        a = stream_of(NON_BLOCKING);
        b = stream_of(NON_BLOCKING);
        block = pool_block(KIB, a);
        OK(D(cuStreamSynchronize)(a));
        touch(block, a);
        D(cuMemFreeAsync)(block, b);
        if (D(cuCtxSynchronize)() == 0) {
            CHECK(reported("is not ordered behind the kernel on stream"));
            ++in_time;
        } else {
            CHECK(reported("before the kernel on stream"));
            ++late;
        }
    }
    CHECK(late != 0 && in_time != 0);
}

TEST(memory_that_is_not_there_yet_is_found)
{
    uint64_t seed, early = 0;
    for (seed = 1; seed <= 200; ++seed) {
        CUstream a, b;
        uint64_t block;
        begin(seed);
        a = stream_of(NON_BLOCKING);
        b = stream_of(NON_BLOCKING);
        block = pool_block(KIB, a);
        if (kernels_launch_at(module, "touch", block, b) == 0)
            early += D(cuCtxSynchronize)() == ILLEGAL_ADDRESS;
        CHECK(D(warpsim_violation_count)() != 0);
    }
    CHECK(early != 0);
}

/* ---- Captures and graphs ----------------------------------------------------------------------------------------------- */

TEST(a_capture_keeps_the_parameters_of_its_moment)
{
    CUstream stream;
    CUgraph graph, outer = NULL;
    CUgraphNode child = NULL;
    CUgraphExec exec;
    uint64_t block, count = 64;
    uint32_t value = 7;
    void *params[3];
    int i;
    begin(0);
    stream = stream_of(NON_BLOCKING);
    block = plain_block(256);
    params[0] = &block;
    params[1] = &count;
    params[2] = &value;
    OK(D(cuStreamBeginCapture_v2)(stream, RELAXED));
    OK(kernels_launch_many(module, "fill", count, stream, params));
    value = 9;
    touch(block, stream);
    graph = end(stream);
    CHECK_EQ_U64(node_count(graph), 2);
    CHECK_EQ_U64(type_of(graph, 0), KERNEL);
    CHECK_EQ_U64(value_at(block, 1), 0xCD);
    exec = ready(graph, 0);
    for (i = 0; i < 3; ++i) {
        OK(D(cuGraphLaunch)(exec, stream));
        OK(D(cuStreamSynchronize)(stream));
        CHECK_EQ_U64(value_at(block, 4), 8);
        CHECK_EQ_U64(value_at(block + 4, 4), 7);
    }
    /* As a child of another graph, which has a copy of its own. */
    OK(D(cuGraphCreate)(&outer, 0));
    OK(D(cuGraphAddChildGraphNode)(&child, outer, NULL, 0, graph));
    OK(D(cuGraphDestroy)(graph));
    OK(D(cuMemsetD8Async)(block, 0, 256, stream));
    OK(D(cuGraphLaunch)(ready(outer, 0), stream));
    OK(D(cuStreamSynchronize)(stream));
    CHECK_EQ_U64(value_at(block, 4), 8);
    check_no_violation();
}

TEST(kernels_of_a_graph_meet_its_own_memory_in_every_order)
{
    uint64_t seed;
    for (seed = 0; seed <= 60; ++seed) {
        CUstream stream, fork;
        CUgraphExec exec;
        uint64_t total, words;
        begin(seed);
        stream = stream_of(NON_BLOCKING);
        fork = stream_of(NON_BLOCKING);
        total = plain_block(8);
        fill_bytes(total, 0, 8, stream);
        OK(D(cuStreamBeginCapture_v2)(stream, RELAXED));
        words = pool_block(400, stream);
        fill_words(words, 100, 2, stream);
        join(stream, fork);
        OK(sum_words(words, 50, total, fork));
        OK(sum_words(words + 200, 50, total, stream));
        join(fork, stream);
        OK(D(cuMemFreeAsync)(words, stream));
        exec = ready(end(stream), 0);
        OK(D(cuGraphLaunch)(exec, stream));
        OK(D(cuGraphLaunch)(exec, stream));
        OK(D(cuStreamSynchronize)(stream));
        CHECK_EQ_U64(value_at(total, 8), 400);
        check_no_violation();
    }
}

TEST(a_launch_that_cannot_be_is_refused_at_once)
{
    CUstream stream;
    void *function = NULL, *params[1];
    uint64_t block, seven = 7;
    begin(0);
    stream = stream_of(NON_BLOCKING);
    block = plain_block(4);
    params[0] = &block;
    CHECK_EQ_U64(kernels_launch_at(module, "no such kernel", block, stream), FOUND_NOTHING);
    CHECK_EQ_U64(kernels_launch_many(module, "touch", 1, stream, NULL), INVALID_VALUE);
    OK(KERNELS_CALL("cuModuleGetFunction", (void **, void *, const char *), &function, module, "touch"));
    CHECK_EQ_U64(KERNELS_CALL("cuLaunchKernel",
                              (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                               void **),
                              function, 1, 1, 1, 2048, 1, 1, 0, stream, params, NULL),
                 INVALID_VALUE);
    OK(KERNELS_CALL("cuModuleUnload", (void *), module));
    CHECK_EQ_U64(kernels_launch_at(module, "touch", seven, stream), 400);
    CHECK_EQ_U64(D(warpsim_live_count)("module"), 0);
}

/* ---- Devices ---------------------------------------------------------------------------------------------------------- */

/* What GPU 1 is answered for memory of GPU 0 that a case sets up; in a process of its own, since that may be a fault. */
struct reach {
    const char *name;
    int pool, peer, access, revoke, graph;
    uint32_t answer;
};

static void pool_access(CUmemoryPool pool, uint32_t flags)
{
    struct {
        uint32_t kind, id, flags;
    } access = {1, 1, 0};
    access.flags = flags;
    OK(D(cuMemPoolSetAccess)(pool, &access, 1));
}

static uint32_t reach_from_the_other(void *argument)
{
    const struct reach *one = argument;
    CUcontext second = NULL;
    CUmemoryPool pool = NULL;
    CUstream stream;
    uint64_t block = 0;
    start(0);
    stream = stream_of(NON_BLOCKING);
    OK(D(cuDevicePrimaryCtxRetain)(&second, 1));
    OK(D(cuDeviceGetMemPool)(&pool, 0));
    if (one->access == 1)
        pool_access(pool, 3);
    if (one->graph) {
        OK(D(cuStreamBeginCapture_v2)(stream, RELAXED));
        block = pool_block(64, stream);
        OK(D(cuGraphLaunch)(ready(end(stream), 0), stream));
    } else {
        block = one->pool ? pool_block(64, stream) : plain_block(64);
    }
    OK(D(cuStreamSynchronize)(stream));
    if (one->access == 2)
        pool_access(pool, 3);
    if (one->revoke)
        pool_access(pool, 0);
    if (one->peer) {
        OK(D(cuCtxSetCurrent)(second));
        OK(KERNELS_CALL("cuCtxEnablePeerAccess", (CUcontext, unsigned), context, 0));
        OK(D(cuCtxSetCurrent)(context));
    }
    return check_failure_count() != 0 ? 1 : kernel_touch(1, block);
}

TEST(a_device_touches_memory_of_another_where_it_was_given_access)
{
    static struct reach all[] = {
        {"plain", 0, 0, 0, 0, 0, ILLEGAL_ADDRESS},
        {"plain, peer", 0, 1, 0, 0, 0, 0},
        {"pool", 1, 0, 0, 0, 0, ILLEGAL_ADDRESS},
        {"pool, peer", 1, 1, 0, 0, 0, ILLEGAL_ADDRESS},
        {"pool, access", 1, 0, 2, 0, 0, 0},
        {"pool, access revoked", 1, 0, 1, 1, 0, ILLEGAL_ADDRESS},
        /* Who may touch the memory of a graph is fixed when it is captured. */
        {"graph, access before", 0, 0, 1, 0, 1, 0},
        {"graph, access revoked", 0, 0, 1, 1, 1, 0},
        {"graph, access after", 0, 0, 2, 0, 1, ILLEGAL_ADDRESS},
        {"graph, peer", 0, 1, 0, 0, 1, ILLEGAL_ADDRESS},
    };
    size_t i;
    D(warpsim_reset)();
    for (i = 0; i < sizeof all / sizeof all[0]; ++i) {
        uint32_t answer = kernel_in_child(reach_from_the_other, &all[i]);
        if (answer != all[i].answer) {
            check_note_failure();
            printf("\n    %s: %u is not %u", all[i].name, answer, all[i].answer);
        }
    }
}

static uint32_t after_a_fault(void *unused)
{
    uint64_t block = 0;
    uint32_t first, second, other;
    int all = strstr(getenv("WARPSIM_TOPOLOGY"), "fault=context") == NULL;
    CUcontext next = NULL;
    (void)unused;
    start(0);
    OK(D(cuDevicePrimaryCtxRetain)(&next, 1));
    first = kernel_look(0, 8);
    /* The context that it was in is not to be used again, the other as the machine says. */
    second = D(cuMemAlloc_v2)(&block, 64);
    OK(D(cuCtxSetCurrent)(next));
    other = D(cuMemAlloc_v2)(&block, 64);
    CHECK_EQ_U64(first, ILLEGAL_ADDRESS);
    CHECK_EQ_U64(second, ILLEGAL_ADDRESS);
    CHECK_EQ_U64(other, all ? ILLEGAL_ADDRESS : 0);
    if (other == 0)
        OK(kernel_touch(1, block));
    return check_failure_count() != 0;
}

TEST(a_fault_is_for_good)
{
    D(warpsim_reset)();
    CHECK_EQ_U64(kernel_in_child(after_a_fault, NULL), 0);
}

static uint32_t touch_own_memory(void *unused)
{
    static uint32_t word = 4;
    uint32_t code;
    (void)unused;
    start(0);
    code = kernel_touch(0, (uint64_t)(uintptr_t)&word);
    return code == 0 && word != 5 ? 1 : code;
}

TEST(pageable_memory_is_touched_where_the_gpu_can)
{
    uint32_t wanted = strstr(getenv("WARPSIM_TOPOLOGY"), "hmm") != NULL ? 0 : ILLEGAL_ADDRESS;
    D(warpsim_reset)();
    CHECK_EQ_U64(kernel_in_child(touch_own_memory, NULL), wanted);
}

static uint32_t late(void *argument)
{
    CUstream stream;
    CUevent event;
    begin(*(const uint64_t *)argument);
    stream = stream_of(NON_BLOCKING);
    event = event_of();
    if (kernels_launch_at(module, "touch", 8, stream) != 0)
        return 1;
    /* These hear of it if it has run by then. */
    D(cuEventRecord)(event, stream);
    D(cuStreamQuery)(stream);
    return D(cuEventSynchronize)(event) == ILLEGAL_ADDRESS ? D(cuStreamSynchronize)(stream) : 2;
}

TEST(a_late_fault_is_heard_by_who_waits)
{
    uint64_t seed;
    D(warpsim_reset)();
    for (seed = 1; seed <= 20; ++seed)
        CHECK_EQ_U64(kernel_in_child(late, &seed), ILLEGAL_ADDRESS);
}

TEST(kernels_that_are_busy_come_to_an_end)
{
    uint64_t turns = 3000000;
    void *params[1];
    params[0] = &turns;
    begin(0);
    OK(kernels_launch_many(module, "spin", 1, NULL, params));
    OK(D(cuCtxSynchronize)());
}

CHECK_MAIN()
