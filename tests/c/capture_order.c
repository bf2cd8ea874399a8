/*
 * capture_order.c: where frees stand in a graph: behind every use, on whichever stream it was recorded, and before nothing that
 * has no need to wait; memory that is used again in the same capture; graphs inside graphs.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"

#define SIZE ((uint64_t)1 << 20)
#define MOST 512

/* What a graph looks like: its nodes, and which comes after which. */
struct shape {
    CUgraphNode nodes[MOST];
    int32_t types[MOST];
    size_t count;
    unsigned char after[MOST][MOST]; /* [a][b]: b comes after a, by one edge or several */
};

static size_t place_of(const struct shape *shape, CUgraphNode node)
{
    size_t i;
    for (i = 0; i < shape->count; ++i)
        if (shape->nodes[i] == node)
            return i;
    CHECK(!"a node of the graph");
    return 0;
}

static struct shape *shape_of(warp_graph *graph)
{
    CUgraph native = graph_info(graph).native_graph;
    static struct shape shape;
    static CUgraphNode from[MOST * 4], to[MOST * 4];
    size_t edges = 0, i, j, k;
    memset(&shape, 0, sizeof shape);
    CHECK_EQ_U64(SIMULATOR(cuGraphGetNodes)(native, NULL, &shape.count), 0);
    CHECK(shape.count <= MOST);
    CHECK_EQ_U64(SIMULATOR(cuGraphGetNodes)(native, shape.nodes, &shape.count), 0);
    for (i = 0; i < shape.count; ++i)
        CHECK_EQ_U64(SIMULATOR(cuGraphNodeGetType)(shape.nodes[i], &shape.types[i]), 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphGetEdges)(native, NULL, NULL, &edges), 0);
    CHECK(edges <= MOST * 4);
    CHECK_EQ_U64(SIMULATOR(cuGraphGetEdges)(native, from, to, &edges), 0);
    for (i = 0; i < edges; ++i)
        shape.after[place_of(&shape, from[i])][place_of(&shape, to[i])] = 1;
    for (k = 0; k < shape.count; ++k)
        for (i = 0; i < shape.count; ++i)
            if (shape.after[i][k])
                for (j = 0; j < shape.count; ++j)
                    shape.after[i][j] |= shape.after[k][j];
    return &shape;
}

static size_t count_of(const struct shape *shape, int32_t type)
{
    size_t i, count = 0;
    for (i = 0; i < shape->count; ++i)
        count += shape->types[i] == type;
    return count;
}

/* The n-th node of a type, in the order in which they were recorded. */
static size_t nth(const struct shape *shape, int32_t type, size_t n)
{
    size_t i;
    for (i = 0; i < shape->count; ++i)
        if (shape->types[i] == type && n-- == 0)
            return i;
    CHECK(!"a node of that type");
    return 0;
}

static CUevent event_of(int32_t ordinal)
{
    CUevent event = NULL;
    CUcontext before = driver_current();
    SIMULATOR(cuCtxSetCurrent)(driver_primary(ordinal));
    CHECK_EQ_U64(SIMULATOR(cuEventCreate)(&event, 2), 0);
    SIMULATOR(cuCtxSetCurrent)(before);
    return event;
}

/* The second stream goes on after what is on the first. */
static void after(warp_stream *first, warp_stream *second)
{
    CUevent event = event_of(0);
    CHECK_EQ_U64(SIMULATOR(cuEventRecord)(event, native_of(first)), 0);
    CHECK_EQ_U64(SIMULATOR(cuStreamWaitEvent)(native_of(second), event, 0), 0);
}

static void replay(warp_graph *graph, warp_stream *stream, int times)
{
    int i;
    for (i = 0; i < times; ++i)
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("graph_block"), 0);
}

PROCESS_TEST(a_free_comes_after_every_stream_that_used_the_block)
{
    int who;
    start_on("h200x2");
    /* Whose stream the block is from, and that the free knows nothing of where it was used. */
    for (who = 0; who < 2; ++who) {
        warp_stream *a = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING), *b = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
        struct shape *shape;
        warp_graph *graph;
        size_t freed, use;
        void *block;
        begin(a);
        after(a, b);
        block = alloc_on("cuda:0", who == 0 ? a : b, SIZE);
        after(who == 0 ? a : b, who == 0 ? b : a);
        fill_byte(block, 1, SIZE / 2, a);
        /* As a kernel does that the library does not see. */
        CHECK_EQ_U64(SIMULATOR(cuMemsetD8Async)((uint64_t)(uintptr_t)block + SIZE / 2, 2, SIZE / 2, native_of(b)), 0);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        after(b, a);
        graph = end(a);
        shape = shape_of(graph);
        CHECK_EQ_U64(count_of(shape, NODE_MEM_ALLOC), 1);
        CHECK_EQ_U64(count_of(shape, NODE_MEM_FREE), 1);
        CHECK_EQ_U64(count_of(shape, NODE_MEMSET), 2);
        freed = nth(shape, NODE_MEM_FREE, 0);
        for (use = 0; use < 2; ++use)
            CHECK(shape->after[nth(shape, NODE_MEMSET, use)][freed]);
        replay(graph, a, 100);
    }
    check_clean();
}

PROCESS_TEST(only_the_streams_that_used_a_block_wait_for_its_free)
{
    warp_stream *a, *b, *c;
    struct shape *shape;
    warp_graph *graph;
    void *block, *outside;
    size_t freed;
    start_on("h200x2");
    a = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    b = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    c = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    outside = alloc_on("cuda:0", a, SIZE);
    CHECK_STATUS(warp_stream_synchronize(a), WARP_SUCCESS);
    begin(a);
    after(a, c); /* c goes its own way */
    block = alloc_on("cuda:0", a, SIZE);
    after(a, b);
    fill_byte(block, 1, SIZE, b);
    fill_byte(outside, 1, 64, c); /* 1 */
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    fill_byte(outside, 2, 64, c);          /* 2 */
    fill_byte((char *)outside + 64, 3, 64, b); /* 3 */
    after(b, a);
    after(c, a);
    graph = end(a);
    shape = shape_of(graph);
    CHECK_EQ_U64(count_of(shape, NODE_MEMSET), 4);
    freed = nth(shape, NODE_MEM_FREE, 0);
    CHECK(shape->after[nth(shape, NODE_MEMSET, 0)][freed]);
    CHECK(!shape->after[nth(shape, NODE_MEMSET, 1)][freed]);
    CHECK(!shape->after[freed][nth(shape, NODE_MEMSET, 2)]);
    CHECK(shape->after[freed][nth(shape, NODE_MEMSET, 3)]);
    CHECK_STATUS(warp_free(outside), WARP_SUCCESS);
    replay(graph, a, 10);
    check_clean();
}

PROCESS_TEST(three_blocks_one_after_the_other_cost_one)
{
    warp_graph_memory_info info = {.struct_size = sizeof info};
    warp_stream *stream;
    warp_graph *graph;
    void *first = NULL, *block;
    int i;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    begin(stream);
    for (i = 0; i < 3; ++i) {
        block = alloc_on("cuda:0", stream, (uint64_t)64 << 20);
        fill_byte(block, 1, SIZE, stream);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        if (first == NULL)
            first = block;
        CHECK_EQ_PTR(block, first);
    }
    graph = end(stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_query_memory(NULL, &info), WARP_SUCCESS);
    CHECK_EQ_U64(info.used_high, (uint64_t)64 << 20);
    CHECK_EQ_U64(info.reserved, info.used);
    CHECK_EQ_U64(info.reserved_high, (uint64_t)64 << 20);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    CHECK_STATUS(warp_graph_reset_memory_high(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_query_memory(NULL, &info), WARP_SUCCESS);
    CHECK_EQ_U64(info.used_high, 0);
    CHECK_EQ_U64(info.reserved_high, 0);
    check_clean();
}

PROCESS_TEST(fifty_captures_leave_no_memory_behind)
{
    warp_stream *stream;
    int i;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    for (i = 0; i < 50; ++i) {
        warp_graph *graph;
        void *block;
        begin(stream);
        CHECK_STATUS(warp_free(alloc_on("cuda:0", stream, SIZE)), WARP_SUCCESS);
        block = alloc_on("cuda:0", stream, SIZE * 3);
        graph = end(stream);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    }
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(large_alignments_are_freed_by_the_drivers_address)
{
    warp_stream *stream;
    warp_graph *graph;
    warp_alloc_options options = {.struct_size = sizeof options, .alignment = 1 << 16, .kind = WARP_MEMORY_CUDA_MEMPOOL};
    void *inside = NULL, *kept = NULL, *shift;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    options.stream = stream;
    begin(stream);
    shift = alloc_on("cuda:0", stream, 512);
    CHECK_STATUS(warp_alloc_with(device("cuda:0"), SIZE, &options, &inside), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc_with(device("cuda:0"), SIZE, &options, &kept), WARP_SUCCESS);
    CHECK_EQ_U64((uintptr_t)inside % (1 << 16), 0);
    CHECK_EQ_U64((uintptr_t)kept % (1 << 16), 0);
    fill_byte(inside, 1, SIZE, stream);
    fill_byte(kept, 2, SIZE, stream);
    CHECK_STATUS(warp_free(inside), WARP_SUCCESS);
    CHECK_STATUS(warp_free(shift), WARP_SUCCESS);
    graph = end(stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(kept, 2, SIZE, stream));
    CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
    replay(graph, stream, 2);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

/* ---- Frees that meet another capture ---------------------------------------------------------------------------------- */

PROCESS_TEST(a_block_freed_while_another_graph_is_captured_goes_with_its_own)
{
    warp_stream *stream, *other;
    warp_graph *first, *second;
    struct shape *shape;
    void *block, *mine;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    other = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    begin(stream);
    block = alloc_on("cuda:0", stream, SIZE);
    fill_byte(block, 1, SIZE, stream);
    first = end(stream);
    CHECK_STATUS(warp_graph_launch(first, stream), WARP_SUCCESS);
    begin(stream);
    mine = alloc_on("cuda:0", stream, SIZE);
    fill_byte(block, 2, SIZE, stream); /* of the first graph, which has run */
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(mine), WARP_SUCCESS);
    second = end(stream);
    shape = shape_of(second);
    CHECK_EQ_U64(count_of(shape, NODE_MEM_FREE), 1);
    CHECK_STATUS(warp_graph_launch(second, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(first), WARP_SUCCESS);
    /* The second graph's runs write to it. */
    CHECK_STATUS(warp_stream_synchronize(other), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("graph_block"), 1);
    CHECK_STATUS(warp_graph_launch(second, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(second), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(a_block_freed_while_a_body_is_captured_is_freed_in_its_own_graph)
{
    warp_capture_options options = {.struct_size = sizeof options, .flags = WARP_CAPTURE_NO_ALLOCATIONS};
    warp_stream *stream, *side;
    warp_graph *graph, *none = NULL;
    struct shape *shape;
    CUgraph body = NULL;
    size_t nodes = 9;
    void *block;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    side = make_stream("cuda:0", 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphCreate)(&body, 0), 0);
    options.native_graph = body;
    begin(stream);
    block = alloc_on("cuda:0", stream, SIZE);
    fill_byte(block, 1, SIZE, stream);
    CHECK_STATUS(warp_capture_pause(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_begin_with(side, WARP_CAPTURE_RELAXED, &options), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_end(side, &none), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_resume(stream), WARP_SUCCESS);
    graph = end(stream);
    shape = shape_of(graph);
    CHECK_EQ_U64(count_of(shape, NODE_MEM_FREE), 1);
    CHECK(shape->after[nth(shape, NODE_MEMSET, 0)][nth(shape, NODE_MEM_FREE, 0)]);
    CHECK_EQ_U64(SIMULATOR(cuGraphGetNodes)(body, NULL, &nodes), 0);
    CHECK_EQ_U64(nodes, 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(body), 0);
    replay(graph, stream, 3);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

/* The graph of a conditional body, say, into which two captures record: what the first one used and the second one frees is
 * freed behind both, once, or kept for as long as the graph may run. */
PROCESS_TEST(a_block_of_one_capture_is_freed_in_another_into_the_same_graph)
{
    int on_other_stream;
    start_on("h200x2");
    for (on_other_stream = 0; on_other_stream < 2; ++on_other_stream) {
        warp_capture_options options = {.struct_size = sizeof options};
        warp_stream *stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING), *other = make_stream("cuda:0", 0);
        warp_stream *second = on_other_stream ? other : stream;
        warp_graph *none = (warp_graph *)1;
        CUgraph shared = NULL;
        CUgraphExec exec = NULL;
        char *out = alloc_on("cuda:0", stream, SIZE);
        void *block;
        int run;
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuGraphCreate)(&shared, 0), 0);
        options.native_graph = shared;
        CHECK_STATUS(warp_capture_begin_with(stream, WARP_CAPTURE_THREAD_LOCAL, &options), WARP_SUCCESS);
        block = alloc_on("cuda:0", stream, SIZE);
        fill_byte(block, 0x77, SIZE, stream);
        CHECK_STATUS(warp_memory_copy(out, block, SIZE, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_capture_end(stream, &none), WARP_SUCCESS);
        CHECK_EQ_PTR(none, NULL);
        CHECK_STATUS(warp_capture_begin_with(second, WARP_CAPTURE_THREAD_LOCAL, &options), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_ERROR_DOUBLE_FREE);
        CHECK_STATUS(warp_capture_end(second, NULL), WARP_SUCCESS);
        SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
        CHECK_EQ_U64(SIMULATOR(cuGraphInstantiateWithFlags)(&exec, shared, 1), 0);
        for (run = 0; run < 3; ++run) {
            fill_byte(out, 0, SIZE, stream);
            CHECK_EQ_U64(SIMULATOR(cuGraphLaunch)(exec, native_of(stream)), 0);
            CHECK(holds(out, 0x77, SIZE, stream));
        }
        CHECK_EQ_U64(SIMULATOR(cuGraphExecDestroy)(exec), 0);
        CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(shared), 0);
        SIMULATOR(cuCtxSetCurrent)(NULL);
        CHECK_STATUS(warp_free(out), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
        CHECK_EQ_U64(graph_memory_after_trim(), 0);
        check_clean();
    }
}

/* Other code captures a body and says so: the driver would tell only when the outer graph is made. */
PROCESS_TEST(a_body_that_other_code_captures_gets_no_allocations)
{
    warp_stream *stream = NULL;
    CUstream native = NULL;
    CUgraph body = NULL;
    void *block = &block, *outside;
    size_t nodes = 9;
    start_on("h200x2");
    SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
    CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, 1), 0);
    CHECK_STATUS(warp_stream_wrap(device("cuda:0"), native, &stream), WARP_SUCCESS);
    outside = alloc_on("cuda:0", stream, SIZE);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native, 0), 0);
    CHECK_STATUS(warp_capture_adopt(stream, WARP_CAPTURE_NO_ALLOCATIONS), WARP_SUCCESS);
    CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &block), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "allocate before the capture begins");
    CHECK_EQ_PTR(block, NULL);
    fill_byte(outside, 4, SIZE, stream);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    CHECK_STATUS(warp_capture_end(stream, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native, &body), 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphGetNodes)(body, NULL, &nodes), 0);
    CHECK_EQ_U64(nodes, 1);
    CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(body), 0);
    SIMULATOR(cuCtxSetCurrent)(NULL);
    CHECK_STATUS(warp_free(outside), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    check_clean();
}

/* ---- Graphs inside graphs --------------------------------------------------------------------------------------------- */

PROCESS_TEST(a_graph_is_launched_into_a_capture_unless_it_allocates)
{
    warp_stream *stream;
    warp_graph *inner, *allocating, *outer;
    char *block;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    block = alloc_on("cuda:0", stream, SIZE);
    begin(stream);
    fill_byte(block, 1, SIZE, stream);
    inner = end(stream);
    begin(stream);
    CHECK_STATUS(warp_free(alloc_on("cuda:0", stream, SIZE)), WARP_SUCCESS);
    allocating = end(stream);
    begin(stream);
    CHECK_STATUS(warp_graph_launch(allocating, stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "allocates memory");
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    CHECK_STATUS(warp_graph_launch(inner, stream), WARP_SUCCESS);
    fill_byte(block, 2, SIZE / 2, stream);
    CHECK_STATUS(warp_free(alloc_on("cuda:0", stream, SIZE)), WARP_SUCCESS);
    outer = end(stream);
    /* The inner one lives on in the outer. */
    CHECK_STATUS(warp_graph_release(inner), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_launch(outer, stream), WARP_SUCCESS);
    CHECK(holds(block, 2, SIZE / 2, stream));
    CHECK(holds(block + SIZE / 2, 1, SIZE / 2, stream));
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_launch(outer, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    CHECK_STATUS(warp_graph_release(allocating), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(outer), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    check_clean();
}

CHECK_MAIN()
