/*
 * event_capture.c: events and waits between streams while something is captured: legal forks and joins work, and what the driver
 * would break a capture for is refused before it sees it.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"

#define SIZE ((uint64_t)1 << 12)

static warp_event *make_event(const char *alias, uint32_t flags)
{
    warp_event_options options = {.struct_size = sizeof options, .flags = flags};
    warp_event *event = NULL;
    CHECK_STATUS(warp_event_create(device(alias), &options, &event), WARP_SUCCESS);
    return event;
}

#define CHECK_REFUSED(call)                                \
    do {                                                   \
        CHECK_STATUS(call, WARP_ERROR_ILLEGAL_IN_CAPTURE); \
        CHECK(warp_error_get_message()[0] != '\0');        \
    } while (0)

/* The capture ends, and its graph fills the block. */
static void check_alive(warp_stream *stream, void *block)
{
    warp_graph *graph;
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    fill_byte(block, 0x77, SIZE, stream);
    graph = end(stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(block, 0x77, SIZE, stream));
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
}

PROCESS_TEST(an_event_recorded_in_a_capture_forks_and_joins)
{
    warp_stream *stream, *branch;
    warp_event *event;
    warp_graph *graph;
    char *block;
    uint8_t done = 9;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    branch = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    event = make_event("cuda:0", 0);
    block = alloc_on("cuda:0", stream, SIZE);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    begin(stream);
    CHECK_STATUS(warp_event_record(event, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(branch, event), WARP_SUCCESS);
    CHECK_EQ_I64(state_of(branch), WARP_CAPTURE_STATE_ACTIVE);
    CHECK_EQ_U64(capture_of(branch).id, capture_of(stream).id);
    fill_byte(block, 1, SIZE / 2, stream);
    fill_byte(block + SIZE / 2, 2, SIZE / 2, branch);
    CHECK_STATUS(warp_stream_wait_stream(stream, branch), WARP_SUCCESS);
    graph = end(stream);
    CHECK_EQ_I64(state_of(branch), WARP_CAPTURE_STATE_NONE);
    CHECK_STATUS(warp_graph_launch(graph, branch), WARP_SUCCESS);
    CHECK(holds(block, 1, SIZE / 2, branch));
    CHECK(holds(block + SIZE / 2, 2, SIZE / 2, branch));
    /* It marks a place in the graph until it is recorded anew. */
    CHECK_REFUSED(warp_event_query_done(event, &done));
    CHECK_REFUSED(warp_stream_wait_event(stream, event));
    CHECK_STATUS(warp_event_record(event, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_event_synchronize(event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_query_done(event, &done), WARP_SUCCESS);
    CHECK_EQ_U64(done, 1);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(branch), WARP_SUCCESS);
    check_clean();
}

PROCESS_TEST(waiting_for_a_captured_stream_joins_its_capture)
{
    warp_stream *stream, *branch, *far;
    warp_graph *graph;
    void *block, *remote;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    branch = make_stream("cuda:0", 0);
    far = make_stream("cuda:1", 0);
    remote = alloc_on("cuda:1", far, SIZE);
    CHECK_STATUS(warp_stream_synchronize(far), WARP_SUCCESS);
    begin(stream);
    block = alloc_on("cuda:0", stream, SIZE);
    CHECK_STATUS(warp_stream_wait_stream(branch, stream), WARP_SUCCESS);
    CHECK_EQ_I64(state_of(branch), WARP_CAPTURE_STATE_ACTIVE);
    CHECK_STATUS(warp_stream_wait_stream(far, stream), WARP_SUCCESS);
    CHECK_EQ_I64(state_of(far), WARP_CAPTURE_STATE_ACTIVE);
    fill_byte(block, 5, SIZE, branch);
    fill_byte(remote, 6, SIZE, far);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(stream, branch), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(stream, far), WARP_SUCCESS);
    graph = end(stream);
    CHECK_EQ_U64(graph_info(graph).block_count, 0);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK(holds(remote, 6, SIZE, far));
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_free(remote), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(far), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(what_crosses_the_edge_of_a_capture_is_refused)
{
    warp_stream *stream, *outside, *second;
    warp_event *live, *captured, *other, *fresh;
    void *block;
    uint8_t done;
    float time;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    second = make_stream("cuda:0", 0);
    outside = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    block = alloc_on("cuda:0", stream, SIZE);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    live = make_event("cuda:0", WARP_EVENT_TIMING);
    captured = make_event("cuda:0", WARP_EVENT_TIMING);
    other = make_event("cuda:0", 0);
    fresh = make_event("cuda:0", 0);
    CHECK_STATUS(warp_event_record(live, outside), WARP_SUCCESS);
    begin(stream);
    begin(second);
    CHECK_STATUS(warp_event_record(captured, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_event_record(other, second), WARP_SUCCESS);
    /* Into the capture. */
    CHECK_REFUSED(warp_stream_wait_event(stream, live));
    CHECK_REFUSED(warp_stream_wait_stream(stream, outside));
    /* Between captures. */
    CHECK_REFUSED(warp_stream_wait_event(stream, other));
    CHECK_REFUSED(warp_stream_wait_event(second, captured));
    CHECK_REFUSED(warp_stream_wait_stream(stream, second));
    CHECK_REFUSED(warp_stream_wait_stream(second, stream));
    /* Out of it, to the host. */
    CHECK_REFUSED(warp_event_query_done(captured, &done));
    CHECK_REFUSED(warp_event_synchronize(captured));
    CHECK_REFUSED(warp_event_measure_elapsed(live, captured, &time));
    CHECK_REFUSED(warp_event_measure_elapsed(captured, live, &time));
    /* What has to do with neither goes on. */
    CHECK_STATUS(warp_stream_wait_event(stream, fresh), WARP_SUCCESS);
    CHECK_STATUS(warp_event_query_done(live, &done), WARP_SUCCESS);
    CHECK_STATUS(warp_event_synchronize(live), WARP_SUCCESS);
    CHECK_STATUS(warp_event_record(live, outside), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(outside, live), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(captured), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(live), WARP_SUCCESS);
    check_alive(stream, block);
    check_alive(second, block);
    CHECK_STATUS(warp_event_release(other), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(fresh), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(outside), WARP_SUCCESS);
    check_clean();
}

PROCESS_TEST(the_legacy_stream_is_left_alone_while_a_blocking_stream_is_captured)
{
    warp_stream *stream, *legacy = NULL;
    warp_event *event, *captured;
    void *block;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    block = alloc_on("cuda:0", stream, SIZE);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wrap(device("cuda:0"), NULL, &legacy), WARP_SUCCESS);
    event = make_event("cuda:0", 0);
    captured = make_event("cuda:0", 0);
    begin(stream);
    CHECK_STATUS(warp_event_record(captured, stream), WARP_SUCCESS);
    CHECK_REFUSED(warp_event_record(event, legacy));
    CHECK_REFUSED(warp_stream_wait_event(legacy, event));
    CHECK_REFUSED(warp_stream_wait_event(legacy, captured));
    CHECK_REFUSED(warp_stream_wait_stream(legacy, stream));
    CHECK_REFUSED(warp_stream_wait_stream(stream, legacy));
    /* Naming it anew does no harm either. */
    CHECK_STATUS(warp_stream_release(legacy), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wrap(device("cuda:0"), (void *)(uintptr_t)1, &legacy), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(legacy), WARP_SUCCESS);
    check_alive(stream, block);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(captured), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
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

PROCESS_TEST(an_untracked_stream_is_marked_only_when_nothing_is_captured)
{
    warp_stream_options options = {.struct_size = sizeof options, .flags = WARP_STREAM_UNTRACKED};
    CUstream native = NULL;
    warp_stream *stream = NULL, *capturing;
    void *block, *outside;
    start_on("h200x2");
    SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
    capturing = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    outside = alloc_on("cuda:0", capturing, SIZE);
    CHECK_STATUS(warp_stream_synchronize(capturing), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, 1), 0);
    CHECK_STATUS(warp_stream_wrap_with(device("cuda:0"), native, &options, &stream), WARP_SUCCESS);
    block = alloc_on("cuda:0", stream, SIZE);
    fill_byte(block, 1, SIZE, stream);
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    begin(capturing);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 2);
    check_alive(capturing, outside);
    CHECK_STATUS(warp_free(outside), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(capturing), WARP_SUCCESS);
    SIMULATOR(cuCtxSetCurrent)(NULL);
    check_clean();
}

CHECK_MAIN()
