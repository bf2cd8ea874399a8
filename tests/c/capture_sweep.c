/*
 * capture_sweep.c: a whole life of a graph, from the begin of its capture to its release, in which the driver fails one of its
 * calls, each in turn. Nothing crashes, hangs or is lost, and the next life is a good one.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"

#define SIZE ((uint64_t)1 << 20)

struct life {
    warp_stream *stream, *fork;
    warp_graph *graph;
    void *a, *b, *outside;
    CUevent forked, joined;
};

/* Captures with a fork and a join, launches twice, frees and releases. Stops at the first failure, as a careful caller does. */
static warp_status live_once(struct life *life)
{
    CUstream stream = native_of(life->stream), fork = native_of(life->fork);
    warp_status status;
    int launch;
#define TRY(call)                   \
    do {                            \
        status = (call);            \
        if (status != WARP_SUCCESS) \
            return status;          \
    } while (0)
#define TRY_NATIVE(call)           \
    do {                           \
        if ((call) != 0)           \
            return WARP_ERROR_DRIVER; \
    } while (0)
    TRY(try_alloc("cuda:0", life->fork, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &life->outside));
    TRY(warp_stream_synchronize(life->fork)); /* the graph runs on the other stream too */
    TRY(warp_capture_begin(life->stream, WARP_CAPTURE_THREAD_LOCAL));
    TRY(try_alloc("cuda:0", life->stream, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &life->a));
    TRY_NATIVE(SIMULATOR(cuEventRecord)(life->forked, stream));
    TRY_NATIVE(SIMULATOR(cuStreamWaitEvent)(fork, life->forked, 0));
    TRY(try_alloc("cuda:0", life->fork, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &life->b));
    TRY(warp_memory_fill(life->a, SIZE, "abc", 1, life->stream));
    TRY(warp_memory_copy(life->b, life->outside, SIZE, life->fork));
    TRY_NATIVE(SIMULATOR(cuEventRecord)(life->joined, fork));
    TRY_NATIVE(SIMULATOR(cuStreamWaitEvent)(stream, life->joined, 0));
    TRY(warp_free(life->a));
    life->a = NULL;
    TRY(warp_capture_end(life->stream, &life->graph));
    for (launch = 0; launch < 2; ++launch)
        TRY(warp_graph_launch(life->graph, launch == 0 ? life->stream : life->fork));
    TRY(warp_stream_synchronize(life->stream));
    TRY(warp_stream_synchronize(life->fork));
    TRY(warp_free(life->outside));
    life->outside = NULL;
    TRY(warp_free(life->b));
    life->b = NULL;
    TRY(warp_graph_release(life->graph));
    life->graph = NULL;
    return WARP_SUCCESS;
}

static int failure_was_met(void)
{
    return SIMULATOR(warpsim_log_contains)("planned");
}

/* Fails one call after the other until none is left to fail. */
static void sweep(uint32_t code, uint64_t first)
{
    const uint64_t step = check_under("valgrind") ? 3 : 1;
    CUcontext context = NULL;
    uint64_t nth, met = 0;
    struct life life = {.stream = make_stream("cuda:0", 0), .fork = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING)};
    CHECK_STATUS(warp_device_get_native_context(device("cuda:0"), &context), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context), 0);
    CHECK_EQ_U64(SIMULATOR(cuEventCreate)(&life.forked, 2), 0);
    CHECK_EQ_U64(SIMULATOR(cuEventCreate)(&life.joined, 2), 0);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    CHECK_STATUS(live_once(&life), WARP_SUCCESS);
    /* The three sweeps share the calls under valgrind. */
    for (nth = step == 1 ? 1 : 1 + first;; nth += step) {
        char line[300] = "", planned[300] = "";
        const char *freed;
        warp_status status;
        size_t i;
        SIMULATOR(warpsim_log_clear)();
        fail("*", nth, code);
        status = live_once(&life);
        for (i = 0; SIMULATOR(warpsim_log_get)(i, line, sizeof line) != 0; ++i)
            if (strstr(line, "planned") != NULL)
                memcpy(planned, line, sizeof planned);
        if (status != WARP_SUCCESS && status != WARP_ERROR_DRIVER)
            CHECK(strlen(warp_error_get_message()) > 20);
        if (!failure_was_met()) {
            CHECK_STATUS(status, WARP_SUCCESS);
            clear();
            break;
        }
        ++met;
        clear();
        /* Whose context was current cannot be put back when the driver refuses that. */
        if (strstr(planned, "cuCtxSetCurrent(0)") != NULL)
            CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
        /* A careful caller gives back what there is; each of it can be given back. */
        if (state_of(life.stream) != WARP_CAPTURE_STATE_NONE)
            CHECK_STATUS(warp_capture_abandon(life.stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(life.a), WARP_SUCCESS);
        CHECK_STATUS(warp_free(life.b), WARP_SUCCESS);
        CHECK_STATUS(warp_free(life.outside), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(life.graph), WARP_SUCCESS);
        life.a = life.b = life.outside = NULL;
        life.graph = NULL;
        CHECK_EQ_I64(state_of(life.stream), WARP_CAPTURE_STATE_NONE);
        CHECK_EQ_I64(state_of(life.fork), WARP_CAPTURE_STATE_NONE);
        /* The next one works. */
        CHECK_STATUS(live_once(&life), WARP_SUCCESS);
        /* That there is no such memory is an answer: then it went with its run, for all that the library knows. */
        if (code == 1 && (freed = strstr(planned, "cuMemFreeAsync(")) != NULL) {
            CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context), 0);
            SIMULATOR(cuMemFree_v2)(strtoull(freed + strlen("cuMemFreeAsync("), NULL, 16));
            CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
        }
        CHECK_EQ_U64(graph_memory_after_trim(), 0);
        CHECK_EQ_U64(live_blocks(), 0);
        check_clean();
        if (check_failure_count() != 0) {
            printf("\n    code %u at call %" PRIu64 ": %s", code, nth, planned);
            return;
        }
    }
    CHECK(met > 60 / step);
}

PROCESS_TEST(every_call_of_a_life_may_run_out_of_memory)
{
    start_on("h200x2");
    sweep(2, 0);
}

PROCESS_TEST(every_call_of_a_life_may_be_refused)
{
    start_on("h200x2");
    sweep(1, 1);
}

PROCESS_TEST(every_call_of_a_life_may_fail)
{
    start_on("h200x2");
    sweep(999, 2);
}

/* A driver that answers nothing any more, from any call on: nothing can be given back, and nothing crashes or hangs. */
PROCESS_TEST(a_driver_that_fails_from_some_call_on_is_survived)
{
    uint64_t calls;
    CUcontext context = NULL;
    start_on("h200x2");
    CHECK_STATUS(warp_device_get_native_context(device("cuda:0"), &context), WARP_SUCCESS);
    for (calls = 0; calls < 170; calls += check_under("valgrind") ? 13 : 1) {
        struct life life = {.stream = make_stream("cuda:0", 0), .fork = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING)};
        CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context), 0);
        CHECK_EQ_U64(SIMULATOR(cuEventCreate)(&life.forked, 2), 0);
        CHECK_EQ_U64(SIMULATOR(cuEventCreate)(&life.joined, 2), 0);
        CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
        SIMULATOR(warpsim_fail_after)(calls, 999);
        live_once(&life);
        warp_capture_abandon(life.stream);
        warp_free(life.a);
        warp_free(life.b);
        warp_free(life.outside);
        warp_graph_release(life.graph);
        clear();
        warp_capture_abandon(life.stream);
        warp_free(life.a);
        warp_free(life.b);
        warp_free(life.outside);
        SIMULATOR(cuCtxSetCurrent)(NULL);
        CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
        if (check_failure_count() != 0) {
            printf("\n    from call %" PRIu64 " on", calls);
            return;
        }
    }
    /* Other streams work as ever. */
    warp_stream *stream = make_stream("cuda:0", 0);
    warp_graph *graph;
    void *block;
    begin(stream);
    block = alloc_on("cuda:0", stream, SIZE);
    fill_byte(block, 0x42, SIZE, stream);
    graph = end(stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(block, 0x42, SIZE, stream));
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
}

CHECK_MAIN()
