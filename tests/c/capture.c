/*
 * capture.c: captures begun, ended, paused, adopted; what is refused while they go on, and wrong calls; none of which breaks one.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"

#include <pthread.h>

#define SIZE ((uint64_t)1 << 16)

/* The capture is as good as if nothing had happened: it takes an allocation, ends, and its graph runs. */
static void check_alive(warp_stream *stream)
{
    void *block;
    warp_graph *graph;
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    block = alloc_on("cuda:0", stream, SIZE);
    fill_byte(block, 7, SIZE, stream);
    graph = end(stream);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_NONE);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(block, 7, SIZE, stream));
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
}

#define CHECK_REFUSED(call, words)                               \
    do {                                                         \
        CHECK_STATUS(call, WARP_ERROR_ILLEGAL_IN_CAPTURE);       \
        CHECK_STR_CONTAINS(warp_error_get_message(), words);     \
    } while (0)

#define CHECK_INVALID(call, words)                               \
    do {                                                         \
        CHECK_STATUS(call, WARP_ERROR_INVALID_ARGUMENT);         \
        CHECK_STR_CONTAINS(warp_error_get_message(), words);     \
    } while (0)

PROCESS_TEST(a_capture_is_what_was_asked_for)
{
    int32_t mode;
    start_on("h200x2");
    for (mode = WARP_CAPTURE_GLOBAL; mode <= WARP_CAPTURE_RELAXED; ++mode) {
        warp_stream *stream = make_stream("cuda:0", mode == 1 ? WARP_STREAM_NON_BLOCKING : 0);
        warp_stream_info info = {.struct_size = sizeof info};
        warp_capture_info capture = capture_of(stream);
        int32_t status = 9;
        CHECK_EQ_I64(capture.state, WARP_CAPTURE_STATE_NONE);
        CHECK_EQ_U64(capture.id, 0);
        CHECK_STATUS(warp_capture_begin(stream, mode), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuStreamIsCapturing)(native_of(stream), &status), 0);
        CHECK_EQ_I64(status, 1);
        capture = capture_of(stream);
        CHECK_STATUS(warp_stream_get_info(stream, &info), WARP_SUCCESS);
        CHECK_EQ_I64(capture.state, WARP_CAPTURE_STATE_ACTIVE);
        CHECK_EQ_I64(capture.mode, mode);
        CHECK_EQ_U64(capture.is_owned, 1);
        CHECK_EQ_U64(capture.origin_stream_id, info.id);
        CHECK(capture.id != 0);
        check_alive(stream);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(memory_of_a_capture_says_what_it_is)
{
    warp_pointer_info info = {.struct_size = sizeof info};
    warp_stream *stream;
    char *block;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    begin(stream);
    block = alloc_on("cuda:0", stream, SIZE);
    CHECK_STATUS(warp_pointer_get_info(block + 100, &info), WARP_SUCCESS);
    CHECK_EQ_PTR(info.base, block);
    CHECK_EQ_U64(info.size, SIZE);
    CHECK_EQ_I64(info.kind, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_EQ_I64(info.rule, WARP_ACCESS_RULE_GRAPH_FIXED);
    CHECK_EQ_PTR(info.device, device("cuda:0"));
    CHECK_EQ_U64(info.is_owned, 1);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    /* Nothing is a success and no node. */
    CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_CUDA_MEMPOOL, 0, (void **)&block), WARP_SUCCESS);
    CHECK_EQ_PTR(block, NULL);
    check_alive(stream);
    check_clean();
}

/* MP-01 and MG-02, in a capture. */
PROCESS_TEST(what_a_capture_cannot_have_is_refused_and_it_goes_on)
{
    static const struct {
        const char *topology;
        warp_memory_kind kind;
        warp_status status;
        const char *words;
    } refusals[] = {
        {"h200x2", WARP_MEMORY_CUDA_DEVICE, WARP_ERROR_ILLEGAL_IN_CAPTURE, "ask for WARP_MEMORY_CUDA_MEMPOOL"},
        {"h200x2", WARP_MEMORY_CUDA_MANAGED, WARP_ERROR_ILLEGAL_IN_CAPTURE, "before the capture begins"},
        {"vgpu", WARP_MEMORY_CUDA_MEMPOOL, WARP_ERROR_NOT_SUPPORTED, "has no memory pools"},
        {"vgpu", WARP_MEMORY_UNKNOWN, WARP_ERROR_ILLEGAL_IN_CAPTURE, "has no memory pools"},
        {"vgpu", WARP_MEMORY_CUDA_DEVICE, WARP_ERROR_ILLEGAL_IN_CAPTURE, "allocate before the capture begins"},
    };
    size_t i;
    for (i = 0; i < sizeof refusals / sizeof *refusals; ++i) {
        pid_t child = fork();
        if (child == 0) {
            warp_stream *stream;
            warp_graph *graph = NULL;
            void *block = &block;
            uint64_t allocs, frees;
            start_on(refusals[i].topology);
            stream = make_stream("cuda:0", 0);
            begin(stream);
            allocs = SIMULATOR(warpsim_call_count)("cuMemAlloc_v2") + SIMULATOR(warpsim_call_count)("cuMemAllocManaged");
            CHECK_STATUS(try_alloc("cuda:0", stream, refusals[i].kind, SIZE, &block), refusals[i].status);
            CHECK_EQ_PTR(block, NULL);
            CHECK_STR_CONTAINS(warp_error_get_message(), refusals[i].words);
            frees = SIMULATOR(warpsim_call_count)("cuMemAlloc_v2") + SIMULATOR(warpsim_call_count)("cuMemAllocManaged");
            CHECK_EQ_U64(allocs, frees);
            CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
            CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            fflush(stdout);
            exit(check_failure_count() != 0);
        }
        CHECK_EQ_I64(process_wait(child), 0);
    }
}

PROCESS_TEST(pools_switched_off_are_named_as_the_reason)
{
    warp_init_options options = {.struct_size = sizeof options, .flags = WARP_INIT_DISABLE_MEMPOOLS};
    warp_stream *stream;
    void *block = NULL;
    setenv("WARPSIM_TOPOLOGY", "h200x2", 1);
    CHECK_STATUS(warp_init(&options, NULL), WARP_SUCCESS);
    stream = make_stream("cuda:0", 0);
    begin(stream);
    CHECK_REFUSED(try_alloc("cuda:0", stream, WARP_MEMORY_UNKNOWN, SIZE, &block), "switched off");
    CHECK_EQ_PTR(block, NULL);
    check_alive(stream);
    check_clean();
}

static void *alloc_pinned(void *out)
{
    CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, out), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(the_capturing_thread_gets_no_page_locked_memory_and_others_do)
{
    warp_stream *stream;
    void *block = NULL;
    pthread_t thread;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
    CHECK_REFUSED(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &block), "page-locked");
    CHECK_EQ_PTR(block, NULL);
    pthread_create(&thread, NULL, alloc_pinned, &block);
    pthread_join(thread, NULL);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_pause(stream), WARP_SUCCESS);
    alloc_pinned(&block);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_resume(stream), WARP_SUCCESS);
    check_alive(stream);
    alloc_pinned(&block);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    check_clean();
}

PROCESS_TEST(a_part_of_another_graph_gets_no_allocations)
{
    warp_capture_options options = {.struct_size = sizeof options, .flags = WARP_CAPTURE_NO_ALLOCATIONS};
    warp_stream *stream;
    warp_graph *graph = (warp_graph *)1;
    CUgraph body = NULL;
    size_t nodes = 9;
    void *block = NULL, *outside;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    outside = alloc_on("cuda:0", stream, SIZE);
    CHECK_STATUS(warp_capture_begin_with(stream, WARP_CAPTURE_RELAXED, &options), WARP_SUCCESS);
    CHECK_REFUSED(try_alloc("cuda:0", stream, WARP_MEMORY_UNKNOWN, SIZE, &block), "part of another");
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    /* Into a graph of the caller's, which the end does not give away. */
    CHECK_EQ_U64(SIMULATOR(cuGraphCreate)(&body, 0), 0);
    options.native_graph = body;
    CHECK_STATUS(warp_capture_begin_with(stream, WARP_CAPTURE_RELAXED, &options), WARP_SUCCESS);
    CHECK_REFUSED(try_alloc("cuda:0", stream, WARP_MEMORY_UNKNOWN, SIZE, &block), "part of another");
    fill_byte(outside, 3, SIZE, stream);
    graph = (warp_graph *)1;
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK_EQ_PTR(graph, NULL);
    CHECK_EQ_U64(SIMULATOR(cuGraphGetNodes)(body, NULL, &nodes), 0);
    CHECK_EQ_U64(nodes, 1);
    /* The body keeps what was recorded. */
    CHECK_STATUS(warp_free(outside), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1);
    CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(body), 0);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    check_clean();
    options.native_graph = NULL;
    options.flags = 2;
    CHECK_STATUS(warp_capture_begin_with(stream, WARP_CAPTURE_RELAXED, &options), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_NONE);
}

/* ---- Wrong calls ------------------------------------------------------------------------------------------------------ */

PROCESS_TEST(what_would_break_a_capture_is_refused)
{
    warp_stream *stream, *second;
    warp_graph *graph = (warp_graph *)1;
    uint8_t idle;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    second = make_stream("cuda:0", 0);
    CHECK_INVALID(warp_capture_end(stream, &graph), "no capture");
    CHECK_EQ_PTR(graph, NULL);
    CHECK_INVALID(warp_capture_pause(stream), "no capture");
    CHECK_INVALID(warp_capture_resume(stream), "no capture");
    CHECK_INVALID(warp_capture_abandon(stream), "no capture");
    CHECK_INVALID(warp_capture_adopt(stream, 0), "not being captured");
    CHECK_INVALID(warp_capture_begin(stream, 3), "not a capture mode");
    CHECK_INVALID(warp_capture_begin(stream, -1), "not a capture mode");
    begin(stream);
    CHECK_REFUSED(warp_capture_begin(stream, WARP_CAPTURE_RELAXED), "captured already");
    CHECK_REFUSED(warp_capture_adopt(stream, 0), "began here");
    CHECK_REFUSED(warp_capture_resume(stream), "not paused");
    CHECK_REFUSED(warp_stream_synchronize(stream), "captured");
    CHECK_REFUSED(warp_stream_query_idle(stream, &idle), "captured");
    CHECK_REFUSED(warp_device_synchronize(device("cuda:0")), "capture");
    CHECK_REFUSED(warp_stream_release(stream), "end the capture");
    CHECK_INVALID(warp_capture_end(second, &graph), "no capture");
    CHECK_INVALID(warp_capture_end(stream, NULL), "goes on");
    check_alive(stream);
    CHECK_INVALID(warp_capture_end(stream, &graph), "no capture");
    check_clean();
}

PROCESS_TEST(special_streams_and_the_cpu)
{
    static const uintptr_t legacy[] = {0, 1};
    warp_stream *stream = NULL, *blocking;
    warp_graph *graph = NULL;
    void *block;
    size_t i;
    start_on("h200x2");
    CHECK_STATUS(warp_stream_get_current(device("cpu"), &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_RELAXED), WARP_SUCCESS);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    for (i = 0; i < 2; ++i) {
        CHECK_STATUS(warp_stream_wrap(device("cuda:0"), (void *)legacy[i], &stream), WARP_SUCCESS);
        CHECK_INVALID(warp_capture_begin(stream, WARP_CAPTURE_RELAXED), "legacy");
        /* While a blocking stream captures, nothing can be put on it without harm. */
        blocking = make_stream("cuda:0", 0);
        begin(blocking);
        CHECK_REFUSED(try_alloc("cuda:0", stream, WARP_MEMORY_UNKNOWN, SIZE, &block), "legacy");
        CHECK_REFUSED(warp_stream_synchronize(stream), "captured");
        check_alive(blocking);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_stream_get_current(device("cpu"), &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wrap(device("cuda:0"), (void *)(uintptr_t)2, &stream), WARP_SUCCESS);
    begin(stream);
    block = alloc_on("cuda:0", stream, SIZE);
    fill_byte(block, 1, SIZE, stream);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    check_clean();
}

struct ender {
    warp_stream *stream;
    warp_graph *graph;
    warp_status status, paused, given_up;
    char message[512];
};

static void *end_elsewhere(void *data)
{
    struct ender *ender = data;
    ender->paused = warp_capture_pause(ender->stream);
    ender->given_up = warp_capture_abandon(ender->stream);
    ender->status = warp_capture_end(ender->stream, &ender->graph);
    snprintf(ender->message, sizeof ender->message, "%s", warp_error_get_message());
    return NULL;
}

PROCESS_TEST(only_a_relaxed_capture_ends_on_another_thread)
{
    int32_t mode;
    start_on("h200x2");
    for (mode = WARP_CAPTURE_GLOBAL; mode < WARP_CAPTURE_RELAXED; ++mode) {
        struct ender ender = {.stream = make_stream("cuda:0", 0)};
        pthread_t thread;
        CHECK_STATUS(warp_capture_begin(ender.stream, mode), WARP_SUCCESS);
        pthread_create(&thread, NULL, end_elsewhere, &ender);
        pthread_join(thread, NULL);
        CHECK_STATUS(ender.status, WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STATUS(ender.paused, WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STATUS(ender.given_up, WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_EQ_PTR(ender.graph, NULL);
        CHECK_STR_CONTAINS(ender.message, "thread that began it");
        check_alive(ender.stream);
    }
    check_clean();
}

struct recorder {
    warp_stream *stream;
    void *block, *made;
    warp_status allocated, filled, copied, freed;
    char message[512];
};

static void *record_elsewhere(void *data)
{
    struct recorder *recorder = data;
    recorder->allocated = try_alloc("cuda:0", recorder->stream, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &recorder->made);
    snprintf(recorder->message, sizeof recorder->message, "%s", warp_error_get_message());
    recorder->filled = warp_memory_fill(recorder->block, SIZE, "y", 1, recorder->stream);
    recorder->copied = warp_memory_copy(recorder->block, recorder->block, SIZE, recorder->stream);
    recorder->freed = warp_free(recorder->made);
    return NULL;
}

PROCESS_TEST(another_thread_records_in_a_relaxed_capture_only)
{
    int32_t mode;
    start_on("h200x2");
    for (mode = WARP_CAPTURE_GLOBAL; mode <= WARP_CAPTURE_RELAXED; ++mode) {
        struct recorder recorder = {.stream = make_stream("cuda:0", 0)};
        int relaxed = mode == WARP_CAPTURE_RELAXED;
        pthread_t thread;
        CHECK_STATUS(warp_capture_begin(recorder.stream, mode), WARP_SUCCESS);
        recorder.block = alloc_on("cuda:0", recorder.stream, SIZE);
        pthread_create(&thread, NULL, record_elsewhere, &recorder);
        pthread_join(thread, NULL);
        CHECK_STATUS(recorder.allocated, relaxed ? WARP_SUCCESS : WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STATUS(recorder.filled, relaxed ? WARP_SUCCESS : WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STATUS(recorder.copied, relaxed ? WARP_SUCCESS : WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STATUS(recorder.freed, WARP_SUCCESS);
        if (!relaxed)
            CHECK_STR_CONTAINS(recorder.message, "by another thread");
        CHECK_STATUS(warp_free(recorder.block), WARP_SUCCESS);
        check_alive(recorder.stream);
    }
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(a_capture_is_ended_where_it_began)
{
    warp_stream *origin, *branch;
    warp_graph *graph = NULL;
    CUevent event = NULL;
    char id[64];
    warp_stream_info info = {.struct_size = sizeof info};
    start_on("h200x2");
    origin = make_stream("cuda:0", 0);
    branch = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
    CHECK_EQ_U64(SIMULATOR(cuEventCreate)(&event, 2), 0);
    begin(origin);
    CHECK_EQ_U64(SIMULATOR(cuEventRecord)(event, native_of(origin)), 0);
    CHECK_EQ_U64(SIMULATOR(cuStreamWaitEvent)(native_of(branch), event, 0), 0);
    CHECK_STATUS(warp_stream_get_info(origin, &info), WARP_SUCCESS);
    snprintf(id, sizeof id, "stream with id %llu", (unsigned long long)info.id);
    CHECK_EQ_I64(state_of(branch), WARP_CAPTURE_STATE_ACTIVE);
    CHECK_EQ_U64(capture_of(branch).origin_stream_id, info.id);
    CHECK_INVALID(warp_capture_end(branch, &graph), id);
    CHECK_INVALID(warp_capture_abandon(branch), id);
    CHECK_REFUSED(warp_capture_begin(branch, WARP_CAPTURE_RELAXED), "captured already");
    CHECK_REFUSED(warp_stream_release(branch), "captured");
    /* What was forked and not joined is joined by the end. */
    alloc_on("cuda:0", branch, SIZE);
    graph = end(origin);
    CHECK_EQ_I64(state_of(branch), WARP_CAPTURE_STATE_NONE);
    CHECK_STATUS(warp_graph_launch(graph, branch), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
}

PROCESS_TEST(graphs_and_streams_of_other_devices_and_dead_handles)
{
    warp_stream *stream, *far;
    warp_graph *graph;
    warp_graph_info info = {.struct_size = sizeof info};
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    far = make_stream("cuda:1", 0);
    begin(stream);
    graph = end(stream);
    CHECK_INVALID(warp_graph_launch(graph, far), "cuda:1");
    CHECK_STATUS(warp_graph_launch(NULL, stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_graph_launch((warp_graph *)stream, stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_graph_launch((warp_graph *)0x1234, stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_graph_get_info(graph, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_graph_retain(graph, &info), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STATUS(warp_graph_retain(graph, NULL), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STATUS(warp_graph_retain_array(graph, NULL), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_graph_query_memory(device("cpu"), NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_graph_trim_memory(device("cpu")), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_graph_launch(graph, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_get_info(graph, &info), WARP_SUCCESS);
    CHECK_EQ_PTR(info.device, device("cuda:0"));
    CHECK(info.native_graph != NULL && info.native_exec != NULL);
    CHECK_EQ_U64(info.is_launched, 1);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_get_info(graph, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_graph_retain(graph, &info), WARP_ERROR_INVALID_HANDLE);
    check_clean();
}

/* ---- Pausing ---------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(what_runs_in_a_pause_is_not_in_the_graph)
{
    warp_stream *stream;
    warp_graph *graph = NULL;
    char *block, *freed, *outside;
    uint64_t id;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    outside = alloc_on("cuda:0", stream, SIZE);
    begin(stream);
    id = capture_of(stream).id;
    block = alloc_on("cuda:0", stream, SIZE);
    freed = alloc_on("cuda:0", stream, SIZE);
    fill_byte(block, 1, SIZE, stream);
    fill_byte(freed, 1, SIZE, stream);
    CHECK_STATUS(warp_capture_pause(stream), WARP_SUCCESS);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_PAUSED);
    CHECK_EQ_U64(capture_of(stream).id, id);
    CHECK_REFUSED(warp_capture_pause(stream), "paused already");
    CHECK_REFUSED(warp_capture_begin(stream, WARP_CAPTURE_RELAXED), "paused");
    CHECK_REFUSED(warp_stream_release(stream), "paused");
    /* Runs now, once. */
    fill_byte(outside, 5, SIZE, stream);
    CHECK(holds(outside, 5, SIZE, stream));
    CHECK_STATUS(warp_free(alloc_on("cuda:0", stream, SIZE)), WARP_SUCCESS);
    /* The graph's memory is not there yet, and is freed in the graph. */
    CHECK_STATUS(warp_memory_fill(block, 1, "x", 1, stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_free(freed), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_resume(stream), WARP_SUCCESS);
    CHECK_EQ_U64(capture_of(stream).id, id);
    fill_byte(block, 2, SIZE / 2, stream);
    fill_byte(outside, 6, SIZE, stream);
    graph = end(stream);
    CHECK_EQ_U64(graph_info(graph).block_count, 1);
    CHECK(holds(outside, 5, SIZE, stream));
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(outside, 6, SIZE, stream));
    CHECK(holds(block, 2, SIZE / 2, stream));
    CHECK(holds(block + SIZE / 2, 1, SIZE / 2, stream));
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("graph_block"), 1);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(outside), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(a_capture_ends_from_a_pause)
{
    warp_stream *stream;
    warp_graph *graph = NULL;
    void *block;
    int given_up;
    start_on("h200x2");
    for (given_up = 0; given_up < 2; ++given_up) {
        stream = make_stream("cuda:0", 0);
        begin(stream);
        block = alloc_on("cuda:0", stream, SIZE);
        fill_byte(block, 4, SIZE, stream);
        CHECK_STATUS(warp_capture_pause(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        if (given_up) {
            CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
        } else {
            graph = end(stream);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        }
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_NONE);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

/* ---- Captures of other code ------------------------------------------------------------------------------------------- */

PROCESS_TEST(other_code_captures_and_the_library_allocates_in_it)
{
    int adopted, kept;
    start_on("h200x2");
    SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
    for (adopted = 0; adopted < 3; ++adopted)
        for (kept = 0; kept < 2; ++kept) {
            warp_stream *stream = NULL;
            warp_graph *none = (warp_graph *)1;
            CUstream native = NULL;
            CUgraph graph = NULL;
            CUgraphExec exec = NULL;
            void *block;
            int i;
            CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, 1), 0);
            CHECK_STATUS(warp_stream_wrap(device("cuda:0"), native, &stream), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native, 0), 0);
            if (adopted != 0) {
                CHECK_STATUS(warp_capture_adopt(stream, 0), WARP_SUCCESS);
                CHECK_STATUS(warp_capture_adopt(stream, 0), WARP_SUCCESS);
                CHECK_EQ_U64(capture_of(stream).is_owned, 0);
                CHECK_EQ_I64(capture_of(stream).mode, -1);
            }
            block = alloc_on("cuda:0", stream, SIZE);
            fill_byte(block, 8, SIZE, stream);
            if (!kept)
                CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            if (adopted == 2) {
                CHECK_STATUS(warp_capture_pause(stream), WARP_ERROR_NOT_SUPPORTED);
                CHECK_INVALID(warp_capture_abandon(stream), "other code");
                CHECK_STATUS(warp_capture_end(stream, kept ? &none : NULL), WARP_SUCCESS);
                CHECK(!kept || none == NULL);
            }
            CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native, &graph), 0);
            CHECK(graph != NULL);
            CHECK_EQ_U64(SIMULATOR(cuGraphInstantiateWithFlags)(&exec, graph, 1), 0);
            if (kept)
                CHECK_STATUS(warp_memory_fill(block, 1, "x", 1, stream), WARP_ERROR_INVALID_ARGUMENT);
            for (i = 0; i < 2; ++i)
                CHECK_EQ_U64(SIMULATOR(cuGraphLaunch)(exec, native), 0);
            if (kept)
                CHECK(holds(block, 8, SIZE, stream));
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
            if (kept && adopted == 1)
                CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(cuGraphExecDestroy)(exec), 0);
            CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(graph), 0);
            if (kept && adopted != 1) {
                CHECK(holds(block, 8, SIZE, stream));
                CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            }
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
            CHECK_EQ_U64(graph_memory_after_trim(), 0);
        }
    SIMULATOR(cuCtxSetCurrent)(NULL);
    check_clean();
}

PROCESS_TEST(a_capture_that_other_code_broke_says_so_and_the_next_one_works)
{
    warp_stream *stream;
    warp_graph *graph = (warp_graph *)1;
    uint64_t plain = 0;
    void *block, *refused = NULL;
    start_on("h200x2");
    SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
    stream = make_stream("cuda:0", 0);
    begin(stream);
    block = alloc_on("cuda:0", stream, SIZE);
    CHECK_EQ_U64(SIMULATOR(cuMemAlloc_v2)(&plain, SIZE), 900);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_INVALIDATED);
    CHECK_REFUSED(try_alloc("cuda:0", stream, WARP_MEMORY_UNKNOWN, SIZE, &refused), "broken");
    CHECK_REFUSED(warp_memory_fill(block, 1, "x", 1, stream), "broken");
    CHECK_REFUSED(warp_capture_end(stream, &graph), "broken");
    CHECK_EQ_PTR(graph, NULL);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_NONE);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    begin(stream);
    check_alive(stream);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    SIMULATOR(cuCtxSetCurrent)(NULL);
    check_clean();
}

PROCESS_TEST(a_stream_can_be_wrapped_while_it_is_captured)
{
    CUstream native = NULL;
    CUgraph graph = NULL;
    warp_stream *first = NULL, *second = NULL;
    warp_stream_info one = {.struct_size = sizeof one}, two = {.struct_size = sizeof two};
    void *block;
    start_on("h200x2");
    SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
    CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, 1), 0);
    CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native, 1), 0);
    CHECK_STATUS(warp_stream_wrap(device("cuda:0"), native, &first), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wrap(device("cuda:0"), native, &second), WARP_SUCCESS);
    CHECK_EQ_I64(state_of(first), WARP_CAPTURE_STATE_ACTIVE);
    CHECK_STATUS(warp_stream_get_info(first, &one), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_info(second, &two), WARP_SUCCESS);
    CHECK(one.id != 0 && two.id != 0 && one.id != two.id);
    block = alloc_on("cuda:0", first, SIZE);
    fill_byte(block, 3, SIZE, second);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(first, second), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native, &graph), 0);
    CHECK(graph != NULL);
    CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(graph), 0);
    CHECK_STATUS(warp_stream_synchronize(first), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(first), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(second), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    SIMULATOR(cuCtxSetCurrent)(NULL);
    check_clean();
}

CHECK_MAIN()
