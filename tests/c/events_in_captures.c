/*
 * events_in_captures.c: events of streams that are captured. What would break a capture is refused, and the capture goes on; what
 * spreads a capture over streams and joins them again works, over GPUs too.
 *
 * needs: simulator
 */
#include "captures.h"

#include <pthread.h>
#include <time.h>

#define SIZE 4096

static warp_event *event_on(const char *alias, uint32_t flags)
{
    warp_event_options options = {.struct_size = sizeof options, .flags = flags};
    warp_event *event = NULL;
    CHECK_STATUS(warp_event_create(device(alias), &options, &event), WARP_SUCCESS);
    return event;
}

static void record(warp_event *event, warp_stream *stream)
{
    CHECK_STATUS(warp_event_record(event, stream), WARP_SUCCESS);
}

static int done(warp_event *event)
{
    uint8_t answer = 9;
    CHECK_STATUS(warp_event_query_done(event, &answer), WARP_SUCCESS);
    return answer;
}

static void begin_global(warp_stream *stream)
{
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
}

/* Ends a capture that must be whole. */
static void end_whole(warp_stream *stream)
{
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    CHECK_STATUS(warp_graph_release(end(stream)), WARP_SUCCESS);
}

static void check_not_asked(warp_event *event, warp_event *plain)
{
    uint8_t answer = 9;
    float milliseconds = 9;
    CHECK_STATUS(warp_event_query_done(event, &answer), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_EQ_U64(answer, 0);
    CHECK_STR_CONTAINS(warp_error_get_message(), "last recorded in a capture");
    CHECK_STATUS(warp_event_synchronize(event), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "record it on a stream that is not captured");
    CHECK_STATUS(warp_event_measure_elapsed(event, event, &milliseconds), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_event_measure_elapsed(event, plain, &milliseconds), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_event_measure_elapsed(plain, event, &milliseconds), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK(milliseconds == 0);
}

PROCESS_TEST(the_host_does_not_ask_for_an_event_of_a_capture)
{
    warp_stream *a, *b;
    warp_event *event, *plain;
    void *block;
    start_on("h200x2");
    a = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    b = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    event = event_on("cuda:0", WARP_EVENT_TIMING);
    plain = event_on("cuda:0", WARP_EVENT_TIMING);
    block = alloc_on("cuda:0", a, SIZE);
    record(plain, b);
    begin_global(a);
    fill_byte(block, 1, SIZE, a);
    record(event, a);
    check_not_asked(event, plain);
    /* Other events can be asked for beside any capture. */
    CHECK(done(plain));
    CHECK_STATUS(warp_event_synchronize(plain), WARP_SUCCESS);
    end_whole(a);
    check_not_asked(event, plain);
    CHECK_STATUS(warp_stream_wait_event(b, event), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "has ended");
    begin_global(b);
    CHECK_STATUS(warp_stream_wait_event(b, event), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    end_whole(b);
    record(event, b);
    CHECK_STATUS(warp_event_synchronize(event), WARP_SUCCESS);
    CHECK(done(event));
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(a), WARP_SUCCESS);
    check_clean();
}

PROCESS_TEST(an_event_recorded_anew_or_released_leaves_the_capture_alone)
{
    warp_stream *a, *b;
    warp_event *event, *released;
    float milliseconds = -1;
    start_on("h200x2");
    a = make_stream("cuda:0", 0);
    b = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    event = event_on("cuda:0", WARP_EVENT_TIMING);
    released = event_on("cuda:0", 0);
    begin_global(a);
    record(event, a);
    record(released, a);
    CHECK_STATUS(warp_event_release(released), WARP_SUCCESS);
    record(event, b);
    CHECK_STATUS(warp_event_synchronize(event), WARP_SUCCESS);
    CHECK(done(event));
    CHECK_STATUS(warp_event_measure_elapsed(event, event, &milliseconds), WARP_SUCCESS);
    end_whole(a);
    check_clean();
}

PROCESS_TEST(a_captured_stream_waits_for_nothing_outside)
{
    warp_stream *a, *b, *c;
    warp_event *outside, *fresh, *inside, *host;
    start_on("h200x2");
    a = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    b = make_stream("cuda:1", WARP_STREAM_NON_BLOCKING);
    c = make_stream("cuda:0", 0);
    outside = event_on("cuda:0", 0);
    fresh = event_on("cuda:0", 0);
    inside = event_on("cuda:0", 0);
    host = event_on("cpu", 0);
    record(outside, c);
    record(host, NULL);
    begin_global(a);
    begin_global(b);
    record(inside, a);
    CHECK_STATUS(warp_stream_wait_event(a, outside), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "which is not");
    CHECK_STATUS(warp_stream_wait_stream(a, c), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    /* There is nothing to wait for. */
    CHECK_STATUS(warp_stream_wait_event(a, fresh), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(a, host), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(a, a), WARP_SUCCESS);
    /* Two captures stay two. */
    CHECK_STATUS(warp_stream_wait_event(b, inside), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "another one");
    CHECK_STATUS(warp_stream_wait_stream(b, a), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_wait_stream(a, b), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    record(outside, c);
    CHECK(done(outside));
    end_whole(b);
    end_whole(a);
    check_clean();
}

/* By an event or by the streams themselves, to a stream of this GPU or of the other. */
static void spread(int by_event, const char *alias, uint32_t flags)
{
    warp_stream *a = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING), *b = make_stream(alias, flags);
    warp_event *forks = event_on("cuda:0", 0), *joins = event_on(alias, 0);
    void *block = alloc_on("cuda:0", a, SIZE), *other = alloc_on(alias, b, SIZE);
    warp_graph *graph;
    CHECK_STATUS(warp_stream_synchronize(a), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(b), WARP_SUCCESS);
    begin_global(a);
    fill_byte(block, 3, SIZE, a);
    if (by_event) {
        record(forks, a);
        CHECK_STATUS(warp_stream_wait_event(b, forks), WARP_SUCCESS);
    } else {
        CHECK_STATUS(warp_stream_wait_stream(b, a), WARP_SUCCESS);
    }
    CHECK_EQ_I64(state_of(b), WARP_CAPTURE_STATE_ACTIVE);
    CHECK_EQ_U64(capture_of(b).id, capture_of(a).id);
    fill_byte(other, 4, SIZE, b);
    if (by_event) {
        record(joins, b);
        CHECK_STATUS(warp_stream_wait_event(a, joins), WARP_SUCCESS);
    } else {
        CHECK_STATUS(warp_stream_wait_stream(a, b), WARP_SUCCESS);
    }
    graph = end(a);
    CHECK_EQ_I64(state_of(b), WARP_CAPTURE_STATE_NONE);
    CHECK_STATUS(warp_graph_launch(graph, a), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(a), WARP_SUCCESS);
    CHECK(holds(block, 3, SIZE, a));
    CHECK(holds(other, 4, SIZE, b));
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    /* The library's own events serve on: what is asked of one is asked of work. */
    CHECK_STATUS(warp_stream_wait_stream(a, b), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(other), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(a), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(b), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(forks), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(joins), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(a), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(b), WARP_SUCCESS);
}

PROCESS_TEST(a_capture_spreads_over_streams_and_is_joined)
{
    int way;
    start_on("h200x2");
    for (way = 0; way < 8; ++way)
        spread(way & 1, way & 2 ? "cuda:1" : "cuda:0", way & 4 ? WARP_STREAM_NON_BLOCKING : 0);
    check_clean();
}

PROCESS_TEST(the_legacy_stream_stays_out_of_captures)
{
    int blocking;
    start_on("h200x2");
    for (blocking = 0; blocking < 2; ++blocking) {
        warp_stream *a = make_stream("cuda:0", blocking ? 0 : WARP_STREAM_NON_BLOCKING), *legacy = NULL;
        warp_event *inside = event_on("cuda:0", 0), *outside = event_on("cuda:0", 0);
        CHECK_STATUS(warp_stream_wrap(device("cuda:0"), NULL, &legacy), WARP_SUCCESS);
        begin_global(a);
        record(inside, a);
        CHECK_STATUS(warp_stream_wait_event(legacy, inside), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STATUS(warp_stream_wait_stream(legacy, a), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STATUS(warp_stream_wait_stream(a, legacy), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STATUS(warp_event_record(outside, legacy), blocking ? WARP_ERROR_ILLEGAL_IN_CAPTURE : WARP_SUCCESS);
        end_whole(a);
        record(outside, legacy);
        CHECK_STATUS(warp_stream_release(legacy), WARP_SUCCESS);
    }
    check_clean();
}

PROCESS_TEST(an_event_from_before_a_pause_is_not_waited_for_after_it)
{
    warp_stream *a, *b;
    warp_event *before, *after;
    start_on("h200x2");
    a = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    b = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    before = event_on("cuda:0", 0);
    after = event_on("cuda:0", 0);
    CHECK_STATUS(warp_capture_begin(a, WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
    record(before, a);
    CHECK_STATUS(warp_capture_pause(a), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(b, before), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    record(after, a); /* of work that runs */
    CHECK_STATUS(warp_event_synchronize(after), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_resume(a), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(a, before), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_wait_event(a, after), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    record(after, a);
    CHECK_STATUS(warp_stream_wait_event(b, after), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(b, before), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_wait_stream(a, b), WARP_SUCCESS);
    end_whole(a);
    check_clean();
}

PROCESS_TEST(a_broken_capture_is_said_to_be_broken)
{
    warp_stream *a, *b;
    warp_event *event, *before;
    CUgraph graph = NULL;
    start_on("h200x2");
    a = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    b = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    event = event_on("cuda:0", 0);
    before = event_on("cuda:0", 0);
    CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native_of(a), 0), 0);
    record(before, a);
    CHECK(SIMULATOR(cuStreamSynchronize)(native_of(a)) != 0);
    CHECK_STATUS(warp_event_record(event, a), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "broken");
    CHECK_STATUS(warp_stream_wait_event(a, event), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_wait_stream(a, b), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_wait_stream(b, a), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK(SIMULATOR(cuStreamEndCapture)(native_of(a), &graph) != 0);
    record(before, a);
    CHECK_STATUS(warp_event_synchronize(before), WARP_SUCCESS);
    check_clean();
}

static void *wait_for(void *event)
{
    CHECK_STATUS(warp_event_synchronize(event), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(an_event_that_a_thread_waits_for_is_not_recorded_in_a_capture)
{
    warp_stream *a, *held;
    warp_event *event;
    pthread_t thread;
    struct timespec pause = {.tv_nsec = 1000000};
    start_on("h200x2");
    a = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    held = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    event = event_on("cuda:0", 0);
    SIMULATOR(warpsim_auto_release)(0);
    SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(held));
    record(event, held);
    REQUIRE(pthread_create(&thread, NULL, wait_for, event) == 0);
    while (SIMULATOR(warpsim_call_count)("cuEventSynchronize") == 0)
        nanosleep(&pause, NULL);
    begin_global(a);
    CHECK_STATUS(warp_event_record(event, a), WARP_ERROR_BUSY);
    end_whole(a);
    SIMULATOR(warpsim_release_all)();
    pthread_join(thread, NULL);
    check_clean();
}

/* Frees of what an untracked stream used come when no capture is known to run in its context. */
PROCESS_TEST(a_free_behind_an_untracked_stream_waits_for_captures)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED};
    size_t i;
    int way;
    start_on("h200x2");
    for (i = 0; i < 3; ++i)
        for (way = 0; way < 2; ++way) {
            warp_stream_options options = {.struct_size = sizeof options, .flags = WARP_STREAM_UNTRACKED};
            warp_stream *a = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING), *untracked = NULL;
            CUstream theirs = native_of(make_stream("cuda:0", 0)), foreign = native_of(make_stream("cuda:0", 0));
            CUgraph graph = NULL;
            void *block = NULL;
            CHECK_STATUS(warp_stream_wrap_with(device("cuda:0"), theirs, &options, &untracked), WARP_SUCCESS);
            CHECK_STATUS(try_alloc("cuda:0", untracked, kinds[i], SIZE, &block), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(untracked), WARP_SUCCESS);
            /* Seen by the library's own stream, or by the legacy one. */
            if (way == 0)
                begin_global(a);
            else
                CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(foreign, 0), 0);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 1);
            if (way == 0)
                end_whole(a);
            else
                CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(foreign, &graph), 0);
            CHECK_STATUS(warp_stream_synchronize(a), WARP_SUCCESS); /* looks at what is parked */
            CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
            if (graph != NULL)
                CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(graph), 0);
        }
    check_clean();
}

/* A stream of the other GPU that takes part in a capture is not where it ends, and what goes wrong there breaks nothing. */
PROCESS_TEST(a_capture_that_spread_to_another_gpu_ends_where_it_began)
{
    warp_stream *a, *b;
    warp_stream_info info = {.struct_size = sizeof info};
    warp_graph *graph = (warp_graph *)1;
    void *block;
    char id[64];
    start_on("h200x2");
    a = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    b = make_stream("cuda:1", 0);
    block = alloc_on("cuda:1", b, SIZE);
    CHECK_STATUS(warp_stream_synchronize(b), WARP_SUCCESS);
    begin_global(a);
    CHECK_STATUS(warp_capture_end(b, &graph), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "no capture");
    CHECK_EQ_PTR(graph, NULL);
    CHECK_STATUS(warp_stream_wait_stream(b, a), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_info(a, &info), WARP_SUCCESS);
    snprintf(id, sizeof id, "stream with id %llu", (unsigned long long)info.id);
    graph = (warp_graph *)1;
    CHECK_STATUS(warp_capture_end(b, &graph), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), id);
    CHECK_EQ_PTR(graph, NULL);
    CHECK_STATUS(warp_capture_abandon(b), WARP_ERROR_INVALID_ARGUMENT);
    CHECK(warp_capture_pause(b) != WARP_SUCCESS);
    CHECK_STATUS(warp_capture_begin(b, WARP_CAPTURE_RELAXED), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_release(b), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_EQ_U64(capture_of(b).origin_stream_id, info.id);
    fill_byte(block, 5, SIZE, b);
    CHECK_EQ_I64(state_of(a), WARP_CAPTURE_STATE_ACTIVE);
    graph = end(a); /* which joins b */
    CHECK_EQ_I64(state_of(b), WARP_CAPTURE_STATE_NONE);
    CHECK_STATUS(warp_graph_launch(graph, b), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_graph_launch(graph, a), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(a), WARP_SUCCESS);
    CHECK(holds(block, 5, SIZE, b));
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(b), WARP_SUCCESS);
    check_clean();
}

CHECK_MAIN()
