/*
 * sim_capture.c: captures on the simulated driver, where the facts of one stream and one thread do not reach: forks and
 * joins, what is said while the capture goes on, other threads, other devices, contexts that end.
 */
/* needs: simulator
 * valgrind: no (the simulator alone, which every other program runs there) */
#define _POSIX_C_SOURCE 200809L
#define CHECK_WITHOUT_WARPMEM

#include "graphs.h"

#include <pthread.h>

static uint64_t plain_block(void)
{
    uint64_t block = 0;
    OK(D(cuMemAlloc_v2)(&block, 4 * KIB));
    return block;
}

static void fill(uint64_t block, uint8_t value, CUstream stream)
{
    fill_bytes(block, value, 4 * KIB, stream);
}

static void begin(CUstream stream, uint32_t mode)
{
    OK(D(cuStreamBeginCapture_v2)(stream, mode));
}

static uint32_t status_of(CUstream stream)
{
    uint32_t status = 9;
    OK(D(cuStreamIsCapturing)(stream, &status));
    return status;
}

static uint64_t id_of(CUstream stream)
{
    uint32_t status = 9;
    uint64_t id = 0;
    OK(D(cuStreamGetCaptureInfo_v2)(stream, &status, &id, NULL, NULL, NULL));
    CHECK_EQ_U64(status, CAPTURING);
    return id;
}

/* Ends a capture that something is wrong with. */
static uint32_t bad_end(CUstream stream)
{
    CUgraph graph = &graph;
    uint32_t code = D(cuStreamEndCapture)(stream, &graph);
    CHECK(graph == NULL);
    return code;
}

static int depends(CUgraph graph, size_t before, size_t after)
{
    CUgraphNode nodes[16], from[16], to[16];
    size_t count = 16, edges = 16, i;
    OK(D(cuGraphGetNodes)(graph, nodes, &count));
    OK(D(cuGraphGetEdges)(graph, from, to, &edges));
    for (i = 0; i < edges; ++i)
        if (from[i] == nodes[before] && to[i] == nodes[after])
            return 1;
    return 0;
}

static size_t edge_count(CUgraph graph)
{
    size_t count = 0;
    OK(D(cuGraphGetEdges)(graph, NULL, NULL, &count));
    return count;
}

TEST(captured_work_does_not_run)
{
    CUstream stream;
    CUgraph graph;
    uint64_t block;
    start(0);
    forget_order();
    stream = stream_of(NON_BLOCKING);
    block = plain_block();
    fill(block, 1, stream);
    begin(stream, THREAD_LOCAL);
    fill(block, 2, stream);
    mark(stream, 'a');
    graph = end(stream);
    CHECK_EQ_U64(byte_at(block), 1);
    CHECK_EQ_STR(order, "");
    CHECK_EQ_U64(node_count(graph), 2);
    CHECK_EQ_U64(type_of(graph, 0), FILL);
    CHECK_EQ_U64(type_of(graph, 1), HOST);
    CHECK(depends(graph, 0, 1));
    check_no_violation();
}

TEST(a_fork_and_its_join_make_a_diamond)
{
    CUstream a, b;
    CUgraph graph;
    uint64_t block;
    start(0);
    a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
    block = plain_block();
    begin(a, GLOBAL);
    fill(block, 1, a);
    join(a, b);
    CHECK_EQ_U64(status_of(b), CAPTURING);
    CHECK_EQ_U64(id_of(a), id_of(b));
    fill(block, 2, a);
    fill(block, 3, b);
    join(b, a);
    fill(block, 4, a);
    graph = end(a);
    CHECK_EQ_U64(status_of(b), NOT_CAPTURING);
    CHECK_EQ_U64(node_count(graph), 4);
    CHECK_EQ_U64(edge_count(graph), 4);
    CHECK(depends(graph, 0, 1) && depends(graph, 0, 2) && depends(graph, 1, 3) && depends(graph, 2, 3));
    /* Both streams are free for ordinary work again. */
    fill(block, 5, a);
    fill(block, 6, b);
    CHECK_EQ_U64(byte_at(block), 6);
}

TEST(every_capture_has_an_id_of_its_own)
{
    CUstream a, b;
    uint64_t first;
    start(0);
    a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
    begin(a, RELAXED);
    begin(b, RELAXED);
    first = id_of(a);
    CHECK(first != 0 && first != id_of(b));
    CHECK(end(a) != end(b));
    begin(a, RELAXED);
    CHECK(first != id_of(a));
    end(a);
}

TEST(a_fork_of_a_fork_has_to_come_back_too)
{
    CUstream a, b, c;
    uint64_t block;
    start(0);
    a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING), c = stream_of(NON_BLOCKING);
    block = plain_block();
    begin(a, THREAD_LOCAL);
    join(a, b);
    join(b, c);
    fill(block, 1, c);
    join(b, a);
    CHECK_EQ_U64(bad_end(a), UNJOINED);
    CHECK_EQ_U64(D(warpsim_live_count)("graph"), 0);
    begin(a, THREAD_LOCAL);
    join(a, b);
    join(b, c);
    fill(block, 1, c);
    join(c, b);
    join(b, a);
    CHECK_EQ_U64(node_count(end(a)), 1);
}

static void *end_elsewhere(void *stream)
{
    CHECK_EQ_U64(bad_end(stream), WRONG_THREAD);
    return NULL;
}

static void *continue_elsewhere(void *stream)
{
    uint64_t block = 0;
    OK(D(cuCtxSetCurrent)(context));
    OK(D(cuMemAllocAsync)(&block, KIB, stream));
    OK(D(cuMemFreeAsync)(block, stream));
    OK(D(cuGraphDestroy)(end(stream)));
    return NULL;
}

static void elsewhere(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    CHECK_EQ_I64(pthread_create(&thread, NULL, body, argument), 0);
    pthread_join(thread, NULL);
}

TEST(only_a_relaxed_capture_is_ended_by_another_thread)
{
    CUstream stream;
    start(0);
    stream = stream_of(NON_BLOCKING);
    begin(stream, THREAD_LOCAL);
    elsewhere(end_elsewhere, stream);
    CHECK_EQ_U64(status_of(stream), NOT_CAPTURING);
    begin(stream, RELAXED);
    elsewhere(continue_elsewhere, stream);
    CHECK_EQ_U64(status_of(stream), NOT_CAPTURING);
    CHECK_EQ_U64(D(warpsim_live_count)("graph"), 0);
}

TEST(a_capture_into_a_graph_goes_on_where_it_was_told_to)
{
    CUstream stream;
    CUgraph graph, same;
    CUgraphNode nodes[4] = {NULL}, last;
    size_t count = 4;
    uint64_t block;
    start(0);
    stream = stream_of(NON_BLOCKING);
    block = plain_block();
    begin(stream, THREAD_LOCAL);
    fill(block, 1, stream);
    fill(block, 2, stream);
    graph = end(stream);
    /* A pause: work between the two captures is ordinary. */
    fill(block, 7, stream);
    CHECK_EQ_U64(byte_at(block), 7);
    OK(D(cuGraphGetNodes)(graph, nodes, &count));
    last = nodes[1];
    CHECK_EQ_U64(D(cuStreamBeginCaptureToGraph)(stream, graph, &stream, NULL, 1, THREAD_LOCAL), INVALID_VALUE);
    OK(D(cuStreamBeginCaptureToGraph)(stream, graph, &last, NULL, 1, THREAD_LOCAL));
    fill(block, 3, stream);
    same = end(stream);
    CHECK(same == graph);
    CHECK_EQ_U64(node_count(graph), 3);
    CHECK(depends(graph, 0, 1) && depends(graph, 1, 2) && !depends(graph, 0, 2));
    OK(D(cuGraphLaunch)(ready(graph, 0), stream));
    CHECK_EQ_U64(byte_at(block), 3);
}

TEST(nodes_added_by_hand_join_a_capture_by_its_dependencies)
{
    CUstream stream;
    CUgraph graph = NULL;
    CUgraphNode by_hand = NULL;
    CUhostParams host = {append, (void *)(uintptr_t)'h'};
    const CUgraphNode *tail = NULL;
    uint32_t status = 9;
    uint64_t id = 0;
    size_t count = 9;
    start(0);
    forget_order();
    stream = stream_of(NON_BLOCKING);
    begin(stream, RELAXED);
    mark(stream, 'a');
    OK(D(cuStreamGetCaptureInfo_v2)(stream, &status, &id, &graph, &tail, &count));
    CHECK_EQ_U64(count, 1);
    OK(D(cuGraphAddHostNode)(&by_hand, graph, tail, count, &host));
    OK(D(cuStreamUpdateCaptureDependencies)(stream, &by_hand, 1, 1));
    mark(stream, 'b');
    CHECK_EQ_U64(D(cuGraphDestroy)(graph), ILLEGAL_STATE);
    CHECK(end(stream) == graph);
    CHECK_EQ_U64(edge_count(graph), 2);
    OK(D(cuGraphLaunch)(ready(graph, 0), stream));
    CHECK_EQ_STR(order, "ahb");
}

TEST(a_capture_forks_to_another_device)
{
    CUcontext other = NULL;
    CUstream here, there;
    CUgraph graph;
    uint64_t block, far = 0;
    start(0);
    here = stream_of(NON_BLOCKING);
    block = plain_block();
    OK(D(cuDevicePrimaryCtxRetain)(&other, 1));
    OK(D(cuCtxSetCurrent)(other));
    there = stream_of(NON_BLOCKING);
    OK(D(cuMemAlloc_v2)(&far, 4 * KIB));
    OK(D(cuCtxSetCurrent)(context));
    begin(here, THREAD_LOCAL);
    fill(block, 1, here);
    join(here, there);
    fill(far, 2, there);
    OK(D(cuCtxSetCurrent)(other));
    join(there, here);
    graph = end(here);
    CHECK_EQ_U64(node_count(graph), 2);
    CHECK(depends(graph, 0, 1));
    OK(D(cuGraphLaunch)(ready(graph, 0), here));
    CHECK_EQ_U64(byte_at(block), 1);
    CHECK_EQ_U64(byte_at(far), 2);
    /* A synchronise of the other context ends a capture that reaches into it. */
    OK(D(cuCtxSetCurrent)(context));
    begin(here, RELAXED);
    join(here, there);
    OK(D(cuCtxSetCurrent)(other));
    CHECK_EQ_U64(D(cuCtxSynchronize)(), UNSUPPORTED);
    CHECK_EQ_U64(bad_end(here), INVALIDATED);
}

TEST(a_context_that_ends_takes_its_captures_along)
{
    CUcontext other = NULL;
    CUstream here, there;
    start(0);
    here = stream_of(NON_BLOCKING);
    OK(D(cuDevicePrimaryCtxRetain)(&other, 1));
    OK(D(cuCtxSetCurrent)(other));
    there = stream_of(NON_BLOCKING);
    begin(there, THREAD_LOCAL);
    join(there, here);
    CHECK_EQ_U64(status_of(here), CAPTURING);
    OK(D(cuDevicePrimaryCtxReset_v2)(1));
    OK(D(cuCtxSetCurrent)(context));
    CHECK_EQ_U64(status_of(here), NOT_CAPTURING);
    CHECK_EQ_U64(D(warpsim_live_count)("graph"), 0);
    fill(plain_block(), 1, here);
}

TEST(a_held_stream_captures_all_the_same)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    uint64_t block;
    start(0);
    D(warpsim_auto_release)(0);
    stream = stream_of(NON_BLOCKING);
    block = plain_block();
    fill(block, 1, stream);
    OK(D(warpsim_hold)((uint64_t)(uintptr_t)stream));
    fill(block, 2, stream);
    begin(stream, THREAD_LOCAL);
    fill(block, 3, stream);
    graph = end(stream);
    CHECK_EQ_U64(node_count(graph), 1);
    exec = ready(graph, 0);
    OK(D(cuGraphLaunch)(exec, stream));
    CHECK_EQ_U64(byte_at(block), 1);
    OK(D(warpsim_release)((uint64_t)(uintptr_t)stream));
    CHECK_EQ_U64(byte_at(block), 3);
}

CHECK_MAIN()
