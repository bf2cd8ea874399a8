/*
 * sim_graph.c: graphs on the simulated driver: what a launch may run in which order, what of it overlaps, how long memory
 * and user objects live, and what wrong programs are told.
 */
/* needs: simulator
 * valgrind: no (the simulator alone, which every other program runs there) */
#define _POSIX_C_SOURCE 200809L
#define CHECK_WITHOUT_WARPMEM

#include "graphs.h"

#include <pthread.h>

enum { AUTO_FREE = 1, MOVE = 1, NO_DESTRUCTOR_SYNC = 1 };
enum { USED = 0, USED_HIGH = 1, RESERVED = 2 };

static CUstream stream;

static void begin(uint64_t seed)
{
    start(seed);
    forget_order();
    stream = stream_of(NON_BLOCKING);
}

static void capture(void)
{
    OK(D(cuStreamBeginCapture_v2)(stream, RELAXED));
}

static uint64_t take(size_t size)
{
    return pool_block(size, stream);
}

static void give(uint64_t block)
{
    OK(D(cuMemFreeAsync)(block, stream));
}

static void fill(uint64_t block, uint8_t value, size_t size)
{
    fill_bytes(block, value, size, stream);
}

static void run(CUgraphExec exec)
{
    OK(D(cuGraphLaunch)(exec, stream));
    OK(D(cuStreamSynchronize)(stream));
}

static void hold(CUstream held)
{
    D(warpsim_auto_release)(0);
    OK(D(warpsim_hold)((uint64_t)(uintptr_t)held));
}

static void release(CUstream held)
{
    OK(D(warpsim_release)((uint64_t)(uintptr_t)held));
}

static uint64_t graph_memory(uint32_t attribute)
{
    uint64_t value = 0;
    OK(D(cuDeviceGetGraphMemAttribute)(0, attribute, &value));
    return value / MIB;
}

static CUgraphNode host_node(CUgraph graph, char name, const CUgraphNode *after, size_t count)
{
    CUhostParams params = {append, (void *)(uintptr_t)name};
    CUgraphNode node = NULL;
    OK(D(cuGraphAddHostNode)(&node, graph, after, count, &params));
    return node;
}

/* ---- Orders --------------------------------------------------------------------------------------------------------- */

/* a before b and c, which do not know each other, and d after both. */
static CUgraph diamond(void)
{
    CUgraph graph = NULL;
    CUgraphNode middle[2], first;
    OK(D(cuGraphCreate)(&graph, 0));
    first = host_node(graph, 'a', NULL, 0);
    middle[0] = host_node(graph, 'b', &first, 1);
    middle[1] = host_node(graph, 'c', &first, 1);
    host_node(graph, 'd', middle, 2);
    return graph;
}

TEST(independent_nodes_run_in_any_order_and_dependent_ones_in_theirs)
{
    size_t seen[2] = {0};
    uint64_t seed;
    for (seed = 1; seed <= 100; ++seed) {
        begin(seed);
        mark(stream, '<');
        OK(D(cuGraphLaunch)(ready(diamond(), 0), stream));
        mark(stream, '>');
        OK(D(cuStreamSynchronize)(stream));
        REQUIRE(strcmp(order, "<abcd>") == 0 || strcmp(order, "<acbd>") == 0);
        ++seen[order[2] == 'b'];
    }
    CHECK(seen[0] != 0 && seen[1] != 0);
}

TEST(a_launch_waits_for_its_stream_and_its_stream_for_it)
{
    CUgraphExec exec;
    begin(0);
    exec = ready(diamond(), 0);
    hold(stream);
    OK(D(cuGraphLaunch)(exec, stream));
    mark(stream, 'e');
    CHECK_EQ_STR(order, "");
    release(stream);
    CHECK_EQ_STR(order, "abcde");
}

TEST(launches_of_one_executable_never_overlap)
{
    uint64_t seed;
    for (seed = 1; seed <= 100; ++seed) {
        CUstream other;
        CUgraphExec exec;
        begin(seed);
        other = stream_of(NON_BLOCKING);
        exec = ready(diamond(), 0);
        OK(D(cuGraphLaunch)(exec, stream));
        OK(D(cuGraphLaunch)(exec, other));
        OK(D(cuCtxSynchronize)());
        REQUIRE(strlen(order) == 8);
        CHECK(order[0] == 'a' && order[3] == 'd' && order[4] == 'a' && order[7] == 'd');
    }
}

TEST(launches_of_two_executables_may_overlap)
{
    size_t overlapped = 0;
    uint64_t seed;
    for (seed = 1; seed <= 100; ++seed) {
        CUgraph graph;
        begin(seed);
        graph = diamond();
        OK(D(cuGraphLaunch)(ready(graph, 0), stream));
        OK(D(cuGraphLaunch)(ready(graph, 0), stream_of(NON_BLOCKING)));
        OK(D(cuCtxSynchronize)());
        REQUIRE(strlen(order) == 8);
        overlapped += order[3] != 'd';
    }
    CHECK(overlapped != 0);
}

TEST(a_child_graph_runs_in_its_place_and_is_a_copy)
{
    CUgraph graph = NULL, child;
    CUgraphNode before, inner = NULL;
    begin(0);
    child = diamond();
    OK(D(cuGraphCreate)(&graph, 0));
    before = host_node(graph, '(', NULL, 0);
    OK(D(cuGraphAddChildGraphNode)(&inner, graph, &before, 1, child));
    host_node(graph, ')', &inner, 1);
    /* What happens to the original afterwards is not the copy's business. */
    host_node(child, 'x', NULL, 0);
    OK(D(cuGraphDestroy)(child));
    CHECK_EQ_U64(D(warpsim_live_count)("graph"), 1);
    run(ready(graph, 0));
    CHECK_EQ_STR(order, "(abcd)");
}

TEST(a_clone_goes_its_own_way)
{
    CUgraph graph, clone = NULL;
    CUgraphExec exec;
    begin(0);
    graph = diamond();
    OK(D(cuGraphClone)(&clone, graph));
    host_node(graph, 'x', NULL, 0);
    CHECK_EQ_U64(node_count(clone), 4);
    OK(D(cuGraphDestroy)(graph));
    exec = ready(clone, 0);
    OK(D(cuGraphDestroy)(clone));
    run(exec);
    CHECK_EQ_STR(order, "abcd");
}

TEST(event_nodes_order_a_graph_against_streams)
{
    CUgraph graph = NULL;
    CUgraphNode wait = NULL, record = NULL, work;
    CUevent before = NULL, after = NULL;
    CUstream other;
    begin(0);
    other = stream_of(NON_BLOCKING);
    OK(D(cuEventCreate)(&before, 2));
    OK(D(cuEventCreate)(&after, 2));
    OK(D(cuGraphCreate)(&graph, 0));
    OK(D(cuGraphAddEventWaitNode)(&wait, graph, NULL, 0, before));
    work = host_node(graph, 'g', &wait, 1);
    OK(D(cuGraphAddEventRecordNode)(&record, graph, &work, 1, after));
    hold(other);
    mark(other, 'a');
    OK(D(cuEventRecord)(before, other));
    OK(D(cuGraphLaunch)(ready(graph, 0), stream));
    OK(D(cuStreamWaitEvent)(other, after, 0));
    mark(other, 'z');
    CHECK_EQ_U64(D(cuEventQuery)(after), NOT_READY);
    CHECK_EQ_STR(order, "");
    release(other);
    CHECK_EQ_U64(D(cuEventQuery)(after), 0);
    CHECK_EQ_STR(order, "agz");
}

TEST(a_captured_copy_reads_the_program_s_memory_when_it_runs)
{
    uint64_t block = 0;
    uint8_t bytes[64];
    CUgraphExec exec;
    begin(0);
    OK(D(cuMemAlloc_v2)(&block, sizeof bytes));
    memset(bytes, 1, sizeof bytes);
    capture();
    OK(D(cuMemcpyAsync)(block, (uint64_t)(uintptr_t)bytes, sizeof bytes, stream));
    exec = ready(end(stream), 0);
    hold(stream);
    OK(D(cuGraphLaunch)(exec, stream));
    memset(bytes, 2, sizeof bytes);
    release(stream);
    CHECK_EQ_U64(byte_at(block), 2);
}

/* ---- Memory --------------------------------------------------------------------------------------------------------- */

TEST(an_address_is_given_again_only_behind_its_free)
{
    CUstream other;
    uint64_t first, second, third, beside = 0;
    begin(0);
    other = stream_of(NON_BLOCKING);
    capture();
    join(stream, other);
    first = take(MIB);
    give(first);
    second = take(MIB);
    give(second);
    third = take(2 * MIB);
    CHECK_EQ_U64(first, second);
    CHECK_EQ_U64(first, third);
    give(third);
    /* The other branch does not know of the free. */
    OK(D(cuMemAllocAsync)(&beside, MIB, other));
    CHECK(beside >= first + 2 * MIB || beside + MIB <= first);
    OK(D(cuMemFreeAsync)(beside, other));
    join(other, stream);
    run(ready(end(stream), 0));
    check_no_violation();
    CHECK_EQ_U64(D(warpsim_live_count)("graph_block"), 0);
}

TEST(three_blocks_in_turn_take_the_memory_of_one)
{
    uint64_t used;
    int i;
    begin(0);
    used = D(warpsim_device_used)(0);
    capture();
    for (i = 0; i < 3; ++i)
        give(take(64 * MIB));
    run(ready(end(stream), 0));
    CHECK_EQ_U64(graph_memory(USED), 64);
    CHECK_EQ_U64(D(warpsim_device_used)(0), used + 64 * MIB);
    OK(D(cuDeviceGraphMemTrim)(0));
    CHECK_EQ_U64(D(warpsim_device_used)(0), used);
    CHECK_EQ_U64(graph_memory(USED_HIGH), 64);
    CHECK_EQ_U64(graph_memory(RESERVED), 0);
}

TEST(memory_lives_from_a_launch_to_its_free)
{
    CUgraph graph;
    CUgraphExec exec;
    uint64_t block, seed;
    for (seed = 0; seed <= 20; ++seed) {
        begin(seed);
        capture();
        block = take(MIB);
        fill(block, 42, MIB);
        graph = end(stream);
        exec = ready(graph, 0);
        CHECK_EQ_U64(D(cuMemFreeAsync)(block, stream), INVALID_VALUE);
        OK(D(cuGraphLaunch)(exec, stream));
        CHECK_EQ_U64(D(warpsim_live_bytes)("graph_block"), MIB);
        CHECK_EQ_U64(D(cuGraphLaunch)(exec, stream), INVALID_VALUE);
        /* Known for every call although the launch may not have run. */
        fill(block + 1, 43, 1);
        give(block);
        CHECK_EQ_U64(D(cuMemFreeAsync)(block, stream), INVALID_VALUE);
        OK(D(cuGraphLaunch)(exec, stream));
        OK(D(cuGraphDestroy)(graph));
        OK(D(cuGraphExecDestroy)(exec));
        OK(D(cuStreamSynchronize)(stream));
        CHECK_EQ_U64(byte_at(block), 42);
        give(block);
        OK(D(cuStreamSynchronize)(stream));
        CHECK_EQ_U64(byte_at(block), 0xDD);
        CHECK_EQ_U64(D(warpsim_live_count)("*"), 0);
        check_no_violation();
    }
}

TEST(auto_free_frees_in_stream_order)
{
    CUgraphExec exec;
    uint64_t block, seed;
    for (seed = 0; seed <= 20; ++seed) {
        begin(seed);
        capture();
        block = take(MIB);
        fill(block, 1, MIB);
        exec = ready(end(stream), AUTO_FREE);
        OK(D(cuGraphLaunch)(exec, stream));
        fill(block, 2, KIB);
        OK(D(cuGraphLaunch)(exec, stream));
        fill(block, 3, 1);
        OK(D(cuStreamSynchronize)(stream));
        CHECK_EQ_U64(byte_at(block), 3);
        CHECK_EQ_U64(byte_at(block + 1), 1);
        CHECK_EQ_U64(D(warpsim_live_count)("graph_block"), 1);
        check_no_violation();
    }
}

TEST(memory_of_one_graph_is_freed_by_another)
{
    CUgraphExec taking, giving;
    uint64_t block;
    begin(0);
    capture();
    block = take(MIB);
    taking = ready(end(stream), 0);
    capture();
    fill(block, 5, MIB);
    give(block);
    giving = ready(end(stream), 0);
    CHECK_EQ_U64(D(cuGraphLaunch)(giving, stream), INVALID_VALUE);
    run(taking);
    run(giving);
    CHECK_EQ_U64(D(warpsim_live_count)("graph_block"), 0);
    run(taking);
    run(giving);
    check_no_violation();
}

/* A branch uses memory that the other branch takes and gives back. */
static void use_beside(uint64_t seed, int ordered)
{
    CUstream other;
    uint64_t block;
    begin(seed);
    other = stream_of(NON_BLOCKING);
    capture();
    join(stream, other);
    block = take(MIB);
    if (ordered)
        join(stream, other);
    OK(D(cuMemsetD8Async)(block, 1, MIB, other));
    if (ordered)
        join(other, stream);
    give(block);
    join(other, stream);
    run(ready(end(stream), 0));
}

TEST(a_use_that_nothing_orders_behind_the_allocation_is_reported)
{
    size_t early = 0, late = 0;
    uint64_t seed;
    for (seed = 1; seed <= 50; ++seed) {
        use_beside(seed, 0);
        early += (size_t)reported("ran before its allocation");
        late += (size_t)reported("not ordered behind");
        use_beside(seed, 1);
        check_no_violation();
    }
    CHECK(early != 0 && late != 0);
}

TEST(a_graph_that_uses_memory_of_another_one_needs_it_to_live)
{
    CUgraphExec taking, using;
    uint64_t block;
    begin(0);
    capture();
    block = take(MIB);
    taking = ready(end(stream), 0);
    capture();
    fill(block, 1, MIB);
    using = ready(end(stream), 0);
    run(taking);
    run(using);
    check_no_violation();
    give(block);
    run(using);
    CHECK(reported("freed before the fill"));
}

TEST(a_launch_that_finds_no_memory_leaves_nothing_behind)
{
    CUgraphExec exec;
    uint64_t block, used;
    begin(0);
    capture();
    block = take(100 * MIB);
    exec = ready(end(stream), 0);
    used = D(warpsim_device_used)(0);
    D(warpsim_out_of_memory_above_total)(used + 64 * MIB);
    CHECK_EQ_U64(D(cuGraphLaunch)(exec, stream), OUT_OF_MEMORY);
    CHECK_EQ_U64(D(warpsim_device_used)(0), used);
    CHECK_EQ_U64(D(warpsim_live_count)("*"), 0);
    D(warpsim_out_of_memory_above_total)(0);
    run(exec);
    give(block);
}

static void allow(uint32_t flags)
{
    struct {
        uint32_t kind;
        int32_t device;
        uint32_t flags;
    } access = {1, 1, flags};
    CUmemoryPool pool = NULL;
    OK(D(cuDeviceGetMemPool)(&pool, 0));
    OK(D(cuMemPoolSetAccess)(pool, &access, 1));
}

TEST(access_of_other_devices_is_fixed_by_the_capture)
{
    CUcontext other = NULL;
    CUstream there;
    uint64_t with, without, far = 0;
    begin(0);
    allow(3);
    capture();
    with = take(4 * KIB);
    run(ready(end(stream), 0));
    allow(0);
    capture();
    without = take(4 * KIB);
    run(ready(end(stream), 0));
    allow(3);
    OK(D(cuDevicePrimaryCtxRetain)(&other, 1));
    OK(D(cuCtxSetCurrent)(other));
    there = stream_of(NON_BLOCKING);
    OK(D(cuMemAlloc_v2)(&far, 4 * KIB));
    OK(D(cuMemcpyAsync)(far, with, 4 * KIB, there));
    CHECK_EQ_U64(D(cuMemcpyAsync)(far, without, 4 * KIB, there), INVALID_VALUE);
}

/* ---- Lives ---------------------------------------------------------------------------------------------------------- */

static int destroyed;
static uint32_t answer_in_destructor, answer_beside;

static void *ask_current(void *unused)
{
    CUcontext current = NULL;
    answer_beside = D(cuCtxGetCurrent)(&current);
    return unused;
}

/* The destructor runs without the driver's lock: another thread gets its answer meanwhile. */
static void destructor(void *data)
{
    CUcontext current = NULL;
    pthread_t thread;
    destroyed += (int)(intptr_t)data;
    answer_in_destructor = D(cuCtxGetCurrent)(&current);
    CHECK_EQ_I64(pthread_create(&thread, NULL, ask_current, NULL), 0);
    pthread_join(thread, NULL);
}

static CUuserObject object_of(uint32_t references)
{
    CUuserObject object = NULL;
    destroyed = 0;
    answer_in_destructor = answer_beside = 99;
    OK(D(cuUserObjectCreate)(&object, (void *)1, destructor, references, NO_DESTRUCTOR_SYNC));
    return object;
}

TEST(a_destructor_runs_at_the_last_release)
{
    CUuserObject object;
    begin(0);
    object = object_of(2);
    OK(D(cuUserObjectRelease)(object, 1));
    CHECK_EQ_I64(destroyed, 0);
    CHECK_EQ_U64(D(warpsim_live_count)("user_object"), 1);
    OK(D(cuUserObjectRelease)(object, 1));
    CHECK_EQ_I64(destroyed, 1);
    CHECK_EQ_U64(answer_in_destructor, NOT_PERMITTED);
    CHECK_EQ_U64(answer_beside, 0);
    CHECK_EQ_U64(D(warpsim_live_count)("user_object"), 0);
    CHECK_EQ_U64(D(cuUserObjectRelease)(object, 1), INVALID_VALUE);
}

TEST(references_that_a_graph_does_not_have_are_reported)
{
    CUgraph graph;
    CUuserObject object;
    begin(0);
    graph = diamond();
    object = object_of(2);
    OK(D(cuGraphRetainUserObject)(graph, object, 1, MOVE));
    OK(D(cuGraphReleaseUserObject)(graph, object, 1));
    check_no_violation();
    CHECK_EQ_I64(destroyed, 0);
    OK(D(cuGraphReleaseUserObject)(graph, object, 1));
    CHECK(reported("releases 1 references, and has 0"));
    CHECK_EQ_I64(destroyed, 1);
}

TEST(graphs_their_copies_and_executables_keep_user_objects)
{
    CUgraph graph, clone = NULL;
    CUgraphExec exec;
    begin(0);
    graph = diamond();
    OK(D(cuGraphRetainUserObject)(graph, object_of(1), 1, MOVE));
    OK(D(cuGraphClone)(&clone, graph));
    exec = ready(clone, 0);
    OK(D(cuGraphDestroy)(graph));
    OK(D(cuGraphDestroy)(clone));
    CHECK_EQ_I64(destroyed, 0);
    OK(D(cuGraphExecDestroy)(exec));
    CHECK_EQ_I64(destroyed, 1);
    CHECK_EQ_U64(D(warpsim_live_count)("graph") + D(warpsim_live_count)("graph_exec"), 0);
}

TEST(a_launch_that_runs_keeps_user_objects)
{
    CUgraph graph;
    CUgraphExec exec;
    begin(0);
    graph = diamond();
    OK(D(cuGraphRetainUserObject)(graph, object_of(1), 1, MOVE));
    exec = ready(graph, 0);
    hold(stream);
    OK(D(cuGraphLaunch)(exec, stream));
    OK(D(cuGraphDestroy)(graph));
    OK(D(cuGraphExecDestroy)(exec));
    CHECK_EQ_U64(D(cuGraphLaunch)(exec, stream), INVALID_VALUE);
    CHECK_EQ_U64(D(warpsim_live_count)("graph_exec"), 0);
    CHECK_EQ_I64(destroyed, 0);
    release(stream);
    CHECK_EQ_STR(order, "abcd");
    CHECK_EQ_I64(destroyed, 1);
}

TEST(a_graph_that_is_being_captured_takes_user_objects)
{
    CUgraph graph = NULL;
    uint32_t status;
    begin(0);
    capture();
    OK(D(cuStreamGetCaptureInfo_v2)(stream, &status, NULL, &graph, NULL, NULL));
    OK(D(cuGraphRetainUserObject)(graph, object_of(1), 1, MOVE));
    CHECK(end(stream) == graph);
    CHECK_EQ_I64(destroyed, 0);
    OK(D(cuGraphDestroy)(graph));
    CHECK_EQ_I64(destroyed, 1);
    /* A capture that is broken off drops its graph, and what that keeps. */
    capture();
    OK(D(cuStreamGetCaptureInfo_v2)(stream, &status, NULL, &graph, NULL, NULL));
    OK(D(cuGraphRetainUserObject)(graph, object_of(1), 1, MOVE));
    OK(D(cuStreamDestroy_v2)(stream));
    CHECK_EQ_I64(destroyed, 1);
}

TEST(a_context_that_ends_ends_its_launches)
{
    CUgraph graph;
    CUgraphExec exec;
    uint64_t block;
    begin(0);
    capture();
    block = take(MIB);
    fill(block, 1, MIB);
    give(block);
    graph = end(stream);
    OK(D(cuGraphRetainUserObject)(graph, object_of(1), 1, MOVE));
    exec = ready(graph, 0);
    hold(stream);
    OK(D(cuGraphLaunch)(exec, stream));
    OK(D(cuGraphDestroy)(graph));
    OK(D(cuGraphExecDestroy)(exec));
    OK(D(cuDevicePrimaryCtxReset_v2)(0));
    CHECK_EQ_I64(destroyed, 1);
    CHECK_EQ_U64(D(warpsim_live_count)("*"), 0);
}

CHECK_MAIN()
