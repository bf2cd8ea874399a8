/*
 * capture_failures.c: captures, launches and releases in which the driver fails; captures that other code breaks; launches that
 * find no memory. Each error is told once, and nothing is lost. Case OM-01, as far as it is about captures.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"

#include <pthread.h>
#include <sched.h>

#define SIZE ((uint64_t)1 << 20)

/* A call of the driver that fails, as warpsim_fail has it, and what the library says then. */
struct failing {
    const char *entry;
    uint64_t nth;
    uint32_t code;
    warp_status status;
};

static warp_stream *start_with_a_stream(void)
{
    start_on("h200x2");
    return make_stream("cuda:0", 0);
}

static void plan(const struct failing *of)
{
    fail(of->entry, of->nth, of->code);
}

/* The error is there and says what happened. */
static void check_message(void)
{
    CHECK(strlen(warp_error_get_message()) > 20);
}

/* The graph of a capture that allocates a block and fills the first SIZE bytes of it. */
static warp_graph *graph_of_a_block(warp_stream *stream, uint64_t size, unsigned char value, void **block)
{
    begin(stream);
    *block = alloc_on("cuda:0", stream, size);
    fill_byte(*block, value, SIZE, stream);
    return end(stream);
}

/* It runs and leaves that in its block; then both go. */
static void check_runs_and_goes(warp_graph *graph, void *block, unsigned char value, warp_stream *stream)
{
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(block, value, SIZE, stream));
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
}

/* Two blocks of a capture; a block of before is copied to the second one, and freed. */
static void capture_two_blocks(warp_stream *stream, void *used, void **a, void **b)
{
    *a = alloc_on("cuda:0", stream, SIZE);
    *b = alloc_on("cuda:0", stream, SIZE);
    CHECK_STATUS(warp_memory_copy(*b, used, SIZE, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(used), WARP_SUCCESS); /* kept for the runs that never come */
}

/* What must work after any failure: the stream is an ordinary one, and the next capture is whole. */
static void check_next(warp_stream *stream)
{
    warp_graph *graph;
    void *block;
    int32_t status = -1;
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_NONE);
    CHECK_EQ_U64(SIMULATOR(cuStreamIsCapturing)(native_of(stream), &status), 0);
    CHECK_EQ_I64(status, 0);
    graph = graph_of_a_block(stream, SIZE, 0x42, &block);
    check_runs_and_goes(graph, block, 0x42, stream);
}

static void check_back(warp_stream *stream)
{
    check_next(stream);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    CHECK_EQ_U64(live_blocks(), 0);
    check_clean();
}

PROCESS_TEST(a_begin_that_fails_leaves_an_ordinary_stream)
{
    static const struct failing cases[] = {
        {"cuStreamBeginCapture_v2", 1, 999, WARP_ERROR_DRIVER},
        {"cuStreamBeginCapture_v2", 1, 2, WARP_ERROR_OUT_OF_MEMORY},
        {"cuStreamGetCaptureInfo_v3", 1, 999, WARP_ERROR_DRIVER},
        {"cuStreamGetCaptureInfo_v3", 2, 999, WARP_ERROR_DRIVER},
        {"cuThreadExchangeStreamCaptureMode", 1, 999, WARP_ERROR_DRIVER},
    };
    warp_stream *stream;
    size_t i;
    stream = start_with_a_stream();
    for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
        plan(&cases[i]);
        CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), cases[i].status);
        check_message();
        clear();
        CHECK_STATUS(warp_capture_abandon(stream), WARP_ERROR_INVALID_ARGUMENT);
        check_back(stream);
    }
}

PROCESS_TEST(an_end_that_fails_unwinds_the_capture)
{
    static const struct failing cases[] = {
        {"cuStreamEndCapture", 1, 999, WARP_ERROR_DRIVER},
        {"cuStreamEndCapture", 1, 2, WARP_ERROR_OUT_OF_MEMORY},
        {"cuStreamGetCaptureInfo_v3", 1, 999, WARP_ERROR_DRIVER},
        {"cuStreamGetCaptureInfo_v3", 2, 999, WARP_ERROR_DRIVER},
        {"cuGraphGetNodes", 1, 999, WARP_ERROR_DRIVER},
        {"cuGraphGetEdges_v2", 1, 999, WARP_ERROR_DRIVER},
        {"cuThreadExchangeStreamCaptureMode", 1, 999, WARP_ERROR_DRIVER},
    };
    warp_stream *stream;
    void *kept;
    size_t i;
    int paused;
    stream = start_with_a_stream();
    kept = alloc_on("cuda:0", stream, SIZE);
    for (paused = 0; paused < 2; ++paused)
        for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
            warp_graph *graph = (warp_graph *)1;
            void *a, *b, *used = alloc_on("cuda:0", stream, SIZE);
            warp_status status;
            int met;
            size_t pool = live("pool");
            begin(stream);
            capture_two_blocks(stream, used, &a, &b);
            CHECK_STATUS(warp_free(a), WARP_SUCCESS);
            if (paused)
                CHECK_STATUS(warp_capture_pause(stream), WARP_SUCCESS);
            plan(&cases[i]);
            SIMULATOR(warpsim_log_clear)();
            CHECK_EQ_U64(live("pool"), pool);
            status = warp_capture_end(stream, &graph);
            met = SIMULATOR(warpsim_log_contains)("planned");
            clear();
            if (!met) { /* it got by without the call */
                CHECK(paused);
                CHECK_STATUS(status, WARP_SUCCESS);
                CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            } else {
                CHECK_STATUS(status, cases[i].status);
                check_message();
                CHECK_EQ_PTR(graph, NULL);
                /* Told once. */
                CHECK_STATUS(warp_capture_end(stream, &graph), WARP_ERROR_INVALID_ARGUMENT);
                CHECK_STATUS(warp_graph_launch(graph, stream), WARP_ERROR_INVALID_HANDLE);
            }
            CHECK_STATUS(warp_memory_fill(b, 1, "x", 1, stream), WARP_ERROR_INVALID_ARGUMENT);
            CHECK_STATUS(warp_free(b), WARP_SUCCESS);
            CHECK_STATUS(warp_free(b), WARP_ERROR_DOUBLE_FREE);
            CHECK_EQ_U64(live_blocks(), 1);
            check_next(stream);
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
            CHECK_EQ_U64(graph_memory_after_trim(), 0);
            CHECK_EQ_U64(live("pool"), 1);
            CHECK_EQ_U64(live("graph"), 0);
            CHECK_EQ_U64(live("user_object"), 0);
            if (check_failure_count() != 0) {
                printf("\n    with %s, call %d, paused %d", cases[i].entry, (int)cases[i].nth, paused);
                return;
            }
        }
    CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
    check_back(stream);
}

PROCESS_TEST(an_allocation_in_a_capture_that_fails_leaves_the_capture_whole)
{
    static const struct failing cases[] = {
        {"cuMemAllocFromPoolAsync", 1, 2, WARP_ERROR_OUT_OF_MEMORY}, {"cuMemAllocFromPoolAsync", 1, 999, WARP_ERROR_DRIVER},
        {"cuStreamGetCaptureInfo_v3", 1, 999, WARP_ERROR_DRIVER},    {"cuStreamGetCaptureInfo_v3", 2, 999, WARP_ERROR_DRIVER},
        {"cuThreadExchangeStreamCaptureMode", 1, 999, WARP_ERROR_DRIVER},
    };
    warp_stream *stream;
    size_t i;
    stream = start_with_a_stream();
    for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
        warp_graph *graph;
        void *block = (void *)1, *good;
        int run;
        begin(stream);
        good = alloc_on("cuda:0", stream, SIZE);
        plan(&cases[i]);
        CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &block), cases[i].status);
        check_message();
        clear();
        CHECK_EQ_PTR(block, NULL);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        fill_byte(good, 7, SIZE, stream);
        graph = end(stream);
        CHECK_EQ_U64(graph_info(graph).block_count, 1);
        for (run = 0; run < 2; ++run) {
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK(holds(good, 7, SIZE, stream));
            CHECK_EQ_U64(live("graph_block"), 1);
        }
        CHECK_STATUS(warp_free(good), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        check_back(stream);
    }
}

/* The one block of a capture was freed in it: the graph holds none, and runs again and again. */
static void check_freed_in_the_graph(warp_stream *stream)
{
    warp_graph *graph = end(stream);
    CHECK_EQ_U64(graph_info(graph).block_count, 0);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    check_back(stream);
}

PROCESS_TEST(a_free_in_a_capture_that_fails_can_be_made_again)
{
    static const char *const entries[] = {"cuGraphAddMemFreeNode", "cuStreamGetCaptureInfo_v3", "cuGraphNodeGetDependentNodes_v2",
                                          "cuThreadExchangeStreamCaptureMode"};
    warp_stream *stream;
    size_t i;
    stream = start_with_a_stream();
    for (i = 0; i < sizeof entries / sizeof *entries; ++i) {
        void *block;
        begin(stream);
        block = alloc_on("cuda:0", stream, SIZE);
        fill_byte(block, 7, SIZE, stream);
        fail(entries[i], 1, 999);
        CHECK_STATUS(warp_free(block), WARP_ERROR_DRIVER);
        check_message();
        clear();
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        fill_byte(block, 8, SIZE, stream);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_ERROR_DOUBLE_FREE);
        check_freed_in_the_graph(stream);
    }
}

/* The free is in the graph; a stream that could not be moved behind it waits for less, and nothing is lost. */
PROCESS_TEST(a_free_whose_stream_cannot_be_moved_on_is_made_all_the_same)
{
    warp_stream *stream;
    void *block;
    stream = start_with_a_stream();
    begin(stream);
    block = alloc_on("cuda:0", stream, SIZE);
    fail("cuStreamUpdateCaptureDependencies_v2", 1, 999);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    clear();
    check_freed_in_the_graph(stream);
}

PROCESS_TEST(a_launch_that_fails_runs_nothing_and_can_be_made_again)
{
    static const struct failing cases[] = {
        {"cuGraphInstantiateWithFlags", 1, 999, WARP_ERROR_DRIVER},
        {"cuGraphInstantiateWithFlags", 1, 801, WARP_ERROR_NOT_SUPPORTED},
        {"cuGraphLaunch", 1, 999, WARP_ERROR_DRIVER},
        {"cuThreadExchangeStreamCaptureMode", 1, 999, WARP_ERROR_DRIVER},
        {"cuGraphUpload", 1, 999, WARP_SUCCESS},
    };
    warp_stream *stream;
    size_t i;
    stream = start_with_a_stream();
    for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
        warp_graph *graph;
        void *block;
        int ran = cases[i].status == WARP_SUCCESS;
        graph = graph_of_a_block(stream, SIZE, 7, &block);
        plan(&cases[i]);
        CHECK_STATUS(warp_graph_launch(graph, stream), cases[i].status);
        if (!ran)
            check_message();
        clear();
        CHECK_EQ_I64(graph_info(graph).is_launched, ran);
        CHECK_EQ_U64(live("graph_block"), (size_t)ran);
        CHECK_STATUS(warp_memory_fill(block, 1, "x", 1, stream), ran ? WARP_SUCCESS : WARP_ERROR_INVALID_ARGUMENT);
        check_runs_and_goes(graph, block, 7, stream);
        check_back(stream);
    }
}

/* A release has nobody to tell; what the driver refuses once is done all the same. */
PROCESS_TEST(a_release_that_the_driver_refuses_loses_nothing)
{
    static const char *const entries[] = {"cuGraphExecDestroy", "cuGraphDestroy", "cuThreadExchangeStreamCaptureMode"};
    warp_stream *stream;
    size_t i;
    int launched;
    stream = start_with_a_stream();
    for (launched = 0; launched < 2; ++launched)
        for (i = 0; i < sizeof entries / sizeof *entries; ++i) {
            warp_graph *graph;
            void *block, *used = alloc_on("cuda:0", stream, SIZE);
            begin(stream);
            block = alloc_on("cuda:0", stream, SIZE);
            CHECK_STATUS(warp_memory_copy(block, used, SIZE, stream), WARP_SUCCESS);
            graph = end(stream);
            if (launched)
                CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
            CHECK_STATUS(warp_free(used), WARP_SUCCESS);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            fail(entries[i], 1, 999);
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            clear();
            CHECK_STATUS(warp_graph_release(graph), WARP_ERROR_INVALID_HANDLE);
            check_back(stream);
            if (check_failure_count() != 0) {
                printf("\n    with %s, launched %d", entries[i], launched);
                return;
            }
        }
}

/* ---- captures that other code breaks ---- */

static void check_broken(warp_stream *stream, void *a, void *b)
{
    warp_graph *graph = NULL;
    void *more = (void *)1;
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_INVALIDATED);
    CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &more), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_EQ_PTR(more, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "broken");
    CHECK_STATUS(warp_memory_fill(b, 1, "x", 1, stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_capture_pause(stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_capture_resume(stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_free(a), WARP_SUCCESS);
    CHECK_STATUS(warp_free(a), WARP_ERROR_DOUBLE_FREE);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_INVALIDATED);
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "broken");
    CHECK_EQ_PTR(graph, NULL);
    CHECK_STATUS(warp_free(b), WARP_SUCCESS);
}

PROCESS_TEST(a_capture_that_other_code_breaks_is_unwound)
{
    int how;
    warp_stream *stream;
    stream = start_with_a_stream();
    for (how = 0; how < 4; ++how) {
        warp_stream *fork = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
        void *a, *b, *used = alloc_on("cuda:0", fork, SIZE);
        CUcontext context = NULL;
        CUgraph graph = NULL;
        CUevent event = NULL;
        uint64_t other = 0;
        CHECK_STATUS(warp_device_get_native_context(device("cuda:0"), &context), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context), 0);
        CHECK_EQ_U64(SIMULATOR(cuEventCreate)(&event, 2), 0);
        CHECK_STATUS(warp_capture_begin(stream, how == 0 ? WARP_CAPTURE_GLOBAL : WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
        capture_two_blocks(stream, used, &a, &b);
        CHECK_EQ_U64(live("pool"), 1);
        switch (how) {
        case 0:
        case 1: /* an allocation that nobody relaxed */
            CHECK(SIMULATOR(cuMemAlloc_v2)(&other, 4096) != 0);
            break;
        case 2: /* waiting for the stream */
            CHECK(SIMULATOR(cuStreamSynchronize)(native_of(stream)) != 0);
            break;
        default: /* an end on a stream that only takes part */
            CHECK_EQ_U64(SIMULATOR(cuEventRecord)(event, native_of(stream)), 0);
            CHECK_EQ_U64(SIMULATOR(cuStreamWaitEvent)(native_of(fork), event, 0), 0);
            CHECK(SIMULATOR(cuStreamEndCapture)(native_of(fork), &graph) != 0);
        }
        CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
        check_broken(stream, a, b);
        CHECK_STATUS(warp_stream_release(fork), WARP_SUCCESS);
        check_back(stream);
        if (check_failure_count() != 0) {
            printf("\n    way %d", how);
            return;
        }
    }
}

PROCESS_TEST(a_capture_that_other_code_ends_is_unwound)
{
    int abandoned;
    warp_stream *stream;
    stream = start_with_a_stream();
    for (abandoned = 0; abandoned < 2; ++abandoned) {
        warp_graph *graph = NULL;
        CUgraph native = NULL;
        void *a, *b, *used = alloc_on("cuda:0", stream, SIZE);
        begin(stream);
        capture_two_blocks(stream, used, &a, &b);
        CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native_of(stream), &native), 0);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_NONE);
        CHECK_STATUS(warp_free(a), WARP_SUCCESS);
        CHECK_STATUS(warp_capture_pause(stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        if (abandoned)
            CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
        else {
            CHECK_STATUS(warp_capture_end(stream, &graph), WARP_ERROR_ILLEGAL_IN_CAPTURE);
            CHECK_STR_CONTAINS(warp_error_get_message(), "other code ended it");
            CHECK_EQ_PTR(graph, NULL);
        }
        CHECK_STATUS(warp_free(b), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(native), 0);
        check_back(stream);
    }
}

/* Before other code gets the native graph the driver has to promise its news. */
PROCESS_TEST(a_native_graph_is_given_away_only_when_its_end_will_be_known)
{
    static const char *const entries[] = {"cuUserObjectCreate", "cuGraphRetainUserObject"};
    size_t i;
    start_on("h200x2");
    for (i = 0; i < 2; ++i) {
        warp_stream *stream = make_stream("cuda:0", 0);
        warp_graph_info info = {.struct_size = sizeof info};
        warp_graph *graph, *outer;
        void *kept = alloc_on("cuda:0", stream, SIZE);
        begin(stream);
        fill_byte(kept, 1, SIZE, stream);
        graph = end(stream);
        CHECK_EQ_U64(live("user_object"), 0);
        fail(entries[i], 1, 999);
        CHECK_STATUS(warp_graph_get_info(graph, &info), WARP_ERROR_DRIVER);
        CHECK_EQ_PTR(info.native_graph, NULL);
        begin(stream);
        fail(entries[i], 1, 999);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_ERROR_DRIVER);
        clear();
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        outer = end(stream);
        CHECK_STATUS(warp_graph_get_info(graph, &info), WARP_SUCCESS);
        CHECK(info.native_graph != NULL);
        CHECK_EQ_U64(live("user_object"), 1);
        CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_launch(outer, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_U64(live("pool"), 1);
        CHECK_STATUS(warp_graph_release(outer), WARP_SUCCESS);
        check_back(stream);
    }
}

/* Its address stays the block's until that is freed: two live blocks never have the same one. */
PROCESS_TEST(the_address_of_a_block_of_a_capture_that_was_given_up_is_not_given_out_again)
{
    int how;
    start_on("h200x2");
    for (how = 0; how < 3; ++how) {
        warp_stream *stream = make_stream("cuda:0", 0);
        warp_graph *graph = NULL;
        void *old, *freed, *block;
        begin(stream);
        old = alloc_on("cuda:0", stream, SIZE);
        freed = alloc_on("cuda:0", stream, SIZE);
        CHECK_STATUS(warp_free(freed), WARP_SUCCESS);
        if (how == 0)
            CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
        else if (how == 1) {
            CHECK_STATUS(warp_capture_pause(stream), WARP_SUCCESS);
            CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
        } else {
            fail("cuGraphGetNodes", 1, 999);
            CHECK_STATUS(warp_capture_end(stream, &graph), WARP_ERROR_DRIVER);
            clear();
        }
        begin(stream);
        block = alloc_on("cuda:0", stream, SIZE);
        CHECK(block != old);
        fill_byte(block, 6, SIZE, stream);
        graph = end(stream);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(old, 1, "x", 1, stream), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_free(old), WARP_SUCCESS);
        CHECK(holds(block, 6, SIZE, stream));
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        check_back(stream);
    }
}

/* A graph of the caller's stays the caller's, whatever becomes of a capture into it. */
PROCESS_TEST(a_capture_into_the_callers_graph_leaves_it_alone_when_it_fails)
{
    int how;
    warp_stream *stream;
    stream = start_with_a_stream();
    for (how = 0; how < 4; ++how) {
        warp_capture_options options = {.struct_size = sizeof options};
        warp_graph *graph = NULL;
        CUgraph native = NULL;
        void *used = alloc_on("cuda:0", stream, SIZE);
        size_t count = 99;
        CHECK_EQ_U64(SIMULATOR(cuGraphCreate)(&native, 0), 0);
        options.native_graph = native;
        if (how == 3)
            fail("cuStreamGetCaptureInfo_v3", 2, 999);
        CHECK_STATUS(warp_capture_begin_with(stream, WARP_CAPTURE_THREAD_LOCAL, &options),
                     how == 3 ? WARP_ERROR_DRIVER : WARP_SUCCESS);
        if (how != 3)
            fill_byte(used, 1, SIZE, stream);
        if (how == 0)
            CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
        if (how == 1) {
            CHECK_STATUS(warp_capture_pause(stream), WARP_SUCCESS);
            CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
        }
        if (how == 2) {
            fail("cuStreamEndCapture", 1, 999);
            CHECK_STATUS(warp_capture_end(stream, &graph), WARP_ERROR_DRIVER);
        }
        clear();
        CHECK_EQ_U64(live("graph"), 1);
        CHECK_EQ_U64(SIMULATOR(cuGraphGetNodes)(native, NULL, &count), 0);
        CHECK_EQ_U64(count, how == 3 ? 0 : 1);
        CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(native), 0);
        CHECK_STATUS(warp_free(used), WARP_SUCCESS);
        check_back(stream);
        if (check_failure_count() != 0) {
            printf("\n    way %d", how);
            return;
        }
    }
}

/* ---- launches without memory ---- */

static void *let_go_later(void *native)
{
    uint64_t tried = SIMULATOR(warpsim_call_count)("cuGraphLaunch") + 2;
    while (SIMULATOR(warpsim_call_count)("cuGraphLaunch") < tried && SIMULATOR(warpsim_call_count)("cuEventQuery") < 20)
        sched_yield();
    CHECK_EQ_U64(SIMULATOR(warpsim_release)((uint64_t)(uintptr_t)native), 0);
    return NULL;
}

PROCESS_TEST(a_launch_without_memory_waits_for_what_is_parked)
{
    int comes_free;
    start_on("h200x2");
    for (comes_free = 0; comes_free < 2; ++comes_free) {
        warp_stream *stream = make_stream("cuda:0", 0), *busy = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
        warp_graph *graph;
        void *block, *parked = NULL;
        uint64_t native = (uint64_t)(uintptr_t)native_of(busy);
        pthread_t thread;
        CHECK_STATUS(try_alloc("cuda:0", busy, WARP_MEMORY_CUDA_DEVICE, 64 * SIZE, &parked), WARP_SUCCESS);
        graph = graph_of_a_block(stream, 40 * SIZE, 5, &block);
        SIMULATOR(warpsim_out_of_memory_above_total)(SIMULATOR(warpsim_device_used)(0) + 8 * SIZE);
        CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native), 0);
        fill_byte(parked, 1, SIZE, busy);
        CHECK_STATUS(warp_free(parked), WARP_SUCCESS);
        CHECK_EQ_U64(live("default"), 1);
        if (comes_free)
            REQUIRE(pthread_create(&thread, NULL, let_go_later, (void *)(uintptr_t)native) == 0);
        CHECK_STATUS(warp_graph_launch(graph, stream), comes_free ? WARP_SUCCESS : WARP_ERROR_OUT_OF_MEMORY);
        if (comes_free)
            pthread_join(thread, NULL);
        else {
            CHECK_STR_CONTAINS(warp_error_get_message(), "wait for their streams");
            CHECK_EQ_I64(graph_info(graph).is_launched, 0);
            CHECK_EQ_U64(live("graph_block"), 0);
            CHECK_EQ_U64(SIMULATOR(warpsim_release)(native), 0);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        }
        CHECK_EQ_U64(live("default"), 0);
        CHECK(holds(block, 5, SIZE, stream));
        clear();
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(busy), WARP_SUCCESS);
        check_back(stream);
    }
}

PROCESS_TEST(a_launch_that_can_never_have_its_memory_fails_at_once_and_later_works)
{
    warp_stream *stream;
    warp_graph *graph;
    void *block;
    stream = start_with_a_stream();
    graph = graph_of_a_block(stream, 40 * SIZE, 5, &block);
    SIMULATOR(warpsim_out_of_memory_above_total)(SIMULATOR(warpsim_device_used)(0) + 8 * SIZE);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "graph");
    CHECK_STATUS(warp_memory_fill(block, 1, "x", 1, stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_I64(graph_info(graph).is_launched, 0);
    clear();
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(block, 5, SIZE, stream));
    /* A later run has its memory already. */
    SIMULATOR(warpsim_out_of_memory_above_total)(SIMULATOR(warpsim_device_used)(0));
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    clear();
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    check_back(stream);
}

/* OM-01: a capture that finds no memory is told so at once: nothing is waited for, and nothing trimmed. */
PROCESS_TEST(in_a_capture_nothing_is_waited_for_or_trimmed)
{
    static const char *const entries[] = {"cuMemPoolTrimTo", "cuDeviceGraphMemTrim",  "cuStreamSynchronize",
                                          "cuCtxSynchronize", "cuEventSynchronize", "cuMemAllocFromPoolAsync"};
    uint64_t before[6];
    warp_stream *stream, *busy;
    warp_graph *graph;
    void *good, *parked = NULL, *block = (void *)1;
    size_t i;
    stream = start_with_a_stream();
    busy = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    CHECK_STATUS(try_alloc("cuda:0", busy, WARP_MEMORY_CUDA_DEVICE, SIZE, &parked), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(busy)), 0);
    fill_byte(parked, 1, SIZE, busy);
    CHECK_STATUS(warp_free(parked), WARP_SUCCESS);
    begin(stream);
    good = alloc_on("cuda:0", stream, SIZE);
    for (i = 0; i < 6; ++i)
        before[i] = SIMULATOR(warpsim_call_count)(entries[i]);
    fail("cuMemAllocFromPoolAsync", 1, 2);
    CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &block), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_PTR(block, NULL);
    for (i = 0; i < 6; ++i)
        CHECK_EQ_U64(SIMULATOR(warpsim_call_count)(entries[i]), before[i] + (i == 5));
    CHECK_EQ_U64(live("default"), 1);
    clear();
    fill_byte(good, 7, SIZE, stream);
    graph = end(stream);
    check_runs_and_goes(graph, good, 7, stream);
    SIMULATOR(warpsim_release_all)();
    CHECK_STATUS(warp_stream_release(busy), WARP_SUCCESS);
    check_back(stream);
}

/* OM-01: what graphs keep and do not use is given back too, to the plain allocator and to pools, and once is enough. */
PROCESS_TEST(what_graphs_keep_is_given_back_when_memory_runs_out)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    const uint64_t large = (uint64_t)768 << 20;
    warp_graph_memory_info info = {.struct_size = sizeof info};
    warp_stream *stream;
    size_t k;
    start_on("h200x2,memory=1GiB");
    stream = make_stream("cuda:0", 0);
    for (k = 0; k < 3; ++k) {
        warp_graph *graph;
        void *block;
        uint64_t trims;
        begin(stream);
        block = alloc_on("cuda:0", stream, large);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        graph = end(stream);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_query_memory(device("cuda:0"), &info), WARP_SUCCESS);
        CHECK(info.reserved >= large);
        trims = SIMULATOR(warpsim_call_count)("cuDeviceGraphMemTrim");
        CHECK_STATUS(try_alloc("cuda:0", stream, kinds[k], large, &block), WARP_SUCCESS);
        if (kinds[k] != WARP_MEMORY_CUDA_MANAGED)
            CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuDeviceGraphMemTrim"), trims + 1);
        fill_byte(block, 3, SIZE, stream);
        CHECK(holds(block, 3, SIZE, stream));
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_trim_memory(device("cuda:0")), WARP_SUCCESS);
    }
    check_back(stream);
}

CHECK_MAIN()
