/*
 * What only a real driver proves of events and of untracked streams: that nobody's capture breaks, that captures spread over
 * streams and are joined, and that a stream may be dead when its blocks are freed. Each test has a process of its own.
 *
 * needs: hardware
 */
#include "hardware_driver.h"

#include "../c/process.h"

enum { ACTIVE = 1, BROKEN = 2, GLOBAL = 0 };

static warp_device *gpu;

static void start(void)
{
    void *context = NULL;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    gpu = device("cuda:0");
    CHECK_STATUS(warp_device_get_native_context(gpu, &context), WARP_SUCCESS);
    CHECK_EQ_I64(CU((void *), "cuCtxSetCurrent")(context), 0);
}

static warp_stream *new_stream(uint32_t flags)
{
    warp_stream_options options = {.struct_size = sizeof options, .flags = flags};
    warp_stream *stream = NULL;
    CHECK_STATUS(warp_stream_create(gpu, &options, &stream), WARP_SUCCESS);
    return stream;
}

static warp_stream *wrap(void *handle, uint32_t flags)
{
    warp_stream_options options = {.struct_size = sizeof options, .flags = flags};
    warp_stream *stream = NULL;
    CHECK_STATUS(warp_stream_wrap_with(gpu, handle, &options, &stream), WARP_SUCCESS);
    return stream;
}

static warp_event *new_event(uint32_t flags)
{
    warp_event_options options = {.struct_size = sizeof options, .flags = flags};
    warp_event *event = NULL;
    CHECK_STATUS(warp_event_create(gpu, &options, &event), WARP_SUCCESS);
    return event;
}

static void *new_native(void)
{
    void *stream = NULL;
    CHECK_EQ_I64(CU((void **, unsigned), "cuStreamCreate")(&stream, 1), 0);
    return stream;
}

static void *block_on(uint64_t size, warp_memory_kind kind, warp_stream *stream)
{
    warp_alloc_options options = {.struct_size = sizeof options, .kind = kind, .stream = stream};
    void *ptr = NULL;
    CHECK_STATUS(warp_alloc_with(gpu, size, &options, &ptr), WARP_SUCCESS);
    return ptr;
}

static int capturing(void *handle)
{
    int status = -1;
    CHECK_EQ_I64(CU((void *, int *), "cuStreamIsCapturing")(handle, &status), 0);
    return status;
}

static void begin(warp_stream *stream)
{
    CHECK_EQ_I64(CU((void *, int), "cuStreamBeginCapture_v2")(native(stream), GLOBAL), 0);
}

/* Ends a capture that must be whole. */
static void *end_into_graph(warp_stream *stream)
{
    void *graph = NULL;
    CHECK_EQ_I64(capturing(native(stream)), ACTIVE);
    CHECK_EQ_I64(CU((void *, void **), "cuStreamEndCapture")(native(stream), &graph), 0);
    CHECK(graph != NULL);
    return graph;
}

/* The same, and runs its graph, which a capture elsewhere would not survive. */
static void end(warp_stream *stream)
{
    void *graph = end_into_graph(stream), *exec = NULL;
    CHECK_EQ_I64(CU((void **, void *, unsigned long long), "cuGraphInstantiateWithFlags")(&exec, graph, 0), 0);
    CHECK_EQ_I64(CU((void *, void *), "cuGraphLaunch")(exec, native(stream)), 0);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_I64(CU((void *), "cuGraphExecDestroy")(exec), 0);
    CHECK_EQ_I64(CU((void *), "cuGraphDestroy")(graph), 0);
}

/* A little work of other code, so that graphs are not empty. */
static uint64_t scratch;
static void work_on(warp_stream *stream)
{
    CHECK_EQ_I64(CU((uint64_t, unsigned char, size_t, void *), "cuMemsetD8Async")(scratch, 1, 4096, native(stream)), 0);
}

static void make_scratch(void)
{
    CHECK_EQ_I64(CU((uint64_t *, size_t), "cuMemAlloc_v2")(&scratch, 8 * GIB), 0);
}

/* Tens of milliseconds, with memory that was there before any capture began. */
static void keep_scratch_busy(void *handle)
{
    int i;
    for (i = 0; i < 30; ++i)
        CHECK_EQ_I64(CU((uint64_t, uint64_t, size_t, void *), "cuMemcpyDtoDAsync_v2")(scratch + 4 * GIB, scratch, 4 * GIB, handle), 0);
    CHECK_EQ_I64(CU((void *), "cuStreamQuery")(handle), 600);
}

static int done(warp_event *event)
{
    uint8_t answer = 9;
    CHECK_STATUS(warp_event_query_done(event, &answer), WARP_SUCCESS);
    return answer;
}

static void check_not_asked(warp_event *event)
{
    uint8_t answer = 9;
    float milliseconds = 9;
    warp_event *other = new_event(WARP_EVENT_TIMING);
    CHECK_STATUS(warp_event_record(other, new_stream(WARP_STREAM_NON_BLOCKING)), WARP_SUCCESS);
    CHECK_STATUS(warp_event_query_done(event, &answer), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_event_synchronize(event), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_event_measure_elapsed(event, event, &milliseconds), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_event_measure_elapsed(event, other, &milliseconds), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_event_measure_elapsed(other, event, &milliseconds), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_event_release(other), WARP_SUCCESS);
}

PROCESS_TEST(the_host_does_not_ask_for_an_event_of_a_capture)
{
    warp_stream *a, *b;
    warp_event *event;
    start();
    make_scratch();
    a = new_stream(WARP_STREAM_NON_BLOCKING);
    b = new_stream(WARP_STREAM_NON_BLOCKING);
    event = new_event(WARP_EVENT_TIMING);
    begin(a);
    work_on(a);
    CHECK_STATUS(warp_event_record(event, a), WARP_SUCCESS);
    check_not_asked(event);
    end(a);
    check_not_asked(event);
    CHECK_STATUS(warp_stream_wait_event(b, event), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "has ended");
    /* In a capture, one that has ended is another one. */
    begin(b);
    CHECK_STATUS(warp_stream_wait_event(b, event), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    end(b);
    CHECK_STATUS(warp_event_record(event, b), WARP_SUCCESS);
    CHECK_STATUS(warp_event_synchronize(event), WARP_SUCCESS);
    CHECK(done(event));
}

PROCESS_TEST(an_event_recorded_anew_is_forgotten_by_the_capture)
{
    warp_stream *a, *b;
    warp_event *event, *released;
    float milliseconds = -1;
    start();
    make_scratch();
    a = new_stream(WARP_STREAM_NON_BLOCKING);
    b = new_stream(WARP_STREAM_NON_BLOCKING);
    event = new_event(WARP_EVENT_TIMING);
    released = new_event(0);
    begin(a);
    work_on(a);
    CHECK_STATUS(warp_event_record(event, a), WARP_SUCCESS);
    CHECK_STATUS(warp_event_record(released, a), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(released), WARP_SUCCESS);
    CHECK_STATUS(warp_event_record(event, b), WARP_SUCCESS);
    CHECK_STATUS(warp_event_synchronize(event), WARP_SUCCESS);
    CHECK(done(event));
    CHECK_STATUS(warp_event_measure_elapsed(event, event, &milliseconds), WARP_SUCCESS);
    CHECK(milliseconds == 0);
    end(a);
}

PROCESS_TEST(a_captured_stream_waits_for_nothing_outside)
{
    warp_stream *a, *b, *c;
    warp_event *outside, *fresh, *inside;
    start();
    make_scratch();
    a = new_stream(WARP_STREAM_NON_BLOCKING);
    b = new_stream(WARP_STREAM_NON_BLOCKING);
    c = new_stream(0);
    outside = new_event(0);
    fresh = new_event(0);
    inside = new_event(0);
    CHECK_STATUS(warp_event_record(outside, c), WARP_SUCCESS);
    begin(a);
    begin(b);
    work_on(a);
    work_on(b);
    CHECK_STATUS(warp_event_record(inside, a), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(a, outside), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_wait_stream(a, c), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_wait_event(a, fresh), WARP_SUCCESS);
    /* Two captures stay two. */
    CHECK_STATUS(warp_stream_wait_event(b, inside), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_wait_stream(b, a), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_wait_stream(a, b), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_wait_stream(a, a), WARP_SUCCESS);
    /* Beside them all goes on. */
    CHECK_STATUS(warp_event_record(outside, c), WARP_SUCCESS);
    CHECK_STATUS(warp_event_synchronize(outside), WARP_SUCCESS);
    CHECK(done(outside) && done(fresh));
    end_into_graph(b);
    end_into_graph(a);
}

PROCESS_TEST(a_capture_spreads_over_streams_and_is_joined)
{
    int way;
    start();
    make_scratch();
    for (way = 0; way < 3; ++way) {
        warp_stream *a = new_stream(WARP_STREAM_NON_BLOCKING), *b = new_stream(way == 2 ? 0 : WARP_STREAM_NON_BLOCKING);
        warp_event *event = new_event(0);
        void *block;
        begin(a);
        work_on(a);
        if (way == 0) {
            CHECK_STATUS(warp_event_record(event, a), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_wait_event(b, event), WARP_SUCCESS);
        } else {
            CHECK_STATUS(warp_stream_wait_stream(b, a), WARP_SUCCESS);
        }
        CHECK_EQ_I64(capturing(native(b)), ACTIVE);
        work_on(b);
        if (way == 0) {
            CHECK_STATUS(warp_event_record(event, b), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_wait_event(a, event), WARP_SUCCESS);
        } else {
            CHECK_STATUS(warp_stream_wait_stream(a, b), WARP_SUCCESS);
        }
        work_on(a);
        end(a);
        CHECK_EQ_I64(capturing(native(b)), 0);
        /* The library's own events serve on. */
        block = block_on(MIB, WARP_MEMORY_CUDA_DEVICE, a);
        CHECK_STATUS(warp_memory_fill(block, MIB, "\1", 1, b), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wait_stream(a, b), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(a), WARP_SUCCESS);
        CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(a), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(b), WARP_SUCCESS);
    }
}

PROCESS_TEST(the_legacy_stream_stays_out_of_captures)
{
    int blocking;
    start();
    make_scratch();
    for (blocking = 0; blocking < 2; ++blocking) {
        warp_stream *a = new_stream(blocking ? 0 : WARP_STREAM_NON_BLOCKING), *legacy = wrap(NULL, 0);
        warp_event *inside = new_event(0), *outside = new_event(0);
        begin(a);
        work_on(a);
        CHECK_STATUS(warp_event_record(inside, a), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wait_event(legacy, inside), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STATUS(warp_stream_wait_stream(legacy, a), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STATUS(warp_stream_wait_stream(a, legacy), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STATUS(warp_event_record(outside, legacy), blocking ? WARP_ERROR_ILLEGAL_IN_CAPTURE : WARP_SUCCESS);
        end(a);
        CHECK_STATUS(warp_event_record(outside, legacy), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(legacy), WARP_SUCCESS);
    }
}

PROCESS_TEST(a_broken_capture_is_said_to_be_broken)
{
    warp_stream *a, *b;
    warp_event *event, *before;
    void *graph = NULL;
    start();
    make_scratch();
    a = new_stream(WARP_STREAM_NON_BLOCKING);
    b = new_stream(WARP_STREAM_NON_BLOCKING);
    event = new_event(0);
    before = new_event(0);
    begin(a);
    CHECK_STATUS(warp_event_record(before, a), WARP_SUCCESS);
    CHECK(CU((void *), "cuStreamQuery")(native(a)) != 0);
    CHECK_EQ_I64(capturing(native(a)), BROKEN);
    CHECK_STATUS(warp_event_record(event, a), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "broken");
    CHECK_STATUS(warp_stream_wait_event(a, event), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_wait_event(b, before), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_wait_stream(b, a), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK(CU((void *, void **), "cuStreamEndCapture")(native(a), &graph) != 0);
    CHECK_EQ_I64(capturing(native(b)), 0);
    CHECK_STATUS(warp_event_record(before, a), WARP_SUCCESS);
    CHECK_STATUS(warp_event_synchronize(before), WARP_SUCCESS);
}

static void *wait_for(void *event)
{
    CHECK_STATUS(warp_event_synchronize(event), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(an_event_that_a_thread_waits_for_is_not_recorded_in_a_capture)
{
    warp_stream *a, *busy;
    warp_event *event;
    pthread_t thread;
    struct timespec pause = {.tv_nsec = 10000000};
    start();
    make_scratch();
    a = new_stream(WARP_STREAM_NON_BLOCKING);
    busy = new_stream(WARP_STREAM_NON_BLOCKING);
    event = new_event(WARP_EVENT_BLOCKING_SYNC);
    keep_scratch_busy(native(busy));
    CHECK_STATUS(warp_event_record(event, busy), WARP_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, wait_for, event) == 0);
    nanosleep(&pause, NULL);
    begin(a);
    work_on(a);
    CHECK_STATUS(warp_event_record(event, a), WARP_ERROR_BUSY);
    end(a);
    pthread_join(thread, NULL);
}

/* Untracked: blocks are freed while a capture runs in the context, and after their stream is dead. */
PROCESS_TEST(untracked_streams_may_be_dead_and_captures_go_on)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    size_t k;
    int way;
    start();
    make_scratch();
    for (k = 0; k < 3; ++k)
        for (way = 0; way < 3; ++way) {
            void *theirs = new_native(), *foreign = NULL, *graph = NULL;
            warp_stream *untracked = wrap(theirs, WARP_STREAM_UNTRACKED), *a = new_stream(WARP_STREAM_NON_BLOCKING);
            void *block = block_on(MIB, kinds[k], untracked);
            CHECK_STATUS(warp_memory_fill(block, MIB, "\1", 1, untracked), WARP_SUCCESS);
            keep_scratch_busy(theirs);
            CHECK_EQ_I64(CU((void *), "cuStreamDestroy_v2")(theirs), 0);
            /* A capture that the library sees by its own stream, or by the legacy one. */
            if (way == 1)
                begin(a);
            if (way == 2) {
                CHECK_EQ_I64(CU((void **, unsigned), "cuStreamCreate")(&foreign, 0), 0);
                CHECK_EQ_I64(CU((void *, int), "cuStreamBeginCapture_v2")(foreign, GLOBAL), 0);
            }
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(untracked), WARP_SUCCESS);
            if (way == 1)
                end(a);
            if (way == 2) {
                CHECK_EQ_I64(capturing(foreign), ACTIVE);
                CHECK_EQ_I64(CU((void *, void **), "cuStreamEndCapture")(foreign, &graph), 0);
                CHECK_EQ_I64(CU((void *), "cuStreamDestroy_v2")(foreign), 0);
            }
            CHECK_STATUS(warp_device_synchronize(gpu), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(a), WARP_SUCCESS); /* looks at what is parked */
            CHECK_STATUS(warp_stream_release(a), WARP_SUCCESS);
        }
    {
        warp_statistics counts = {.struct_size = sizeof counts};
        CHECK_STATUS(warp_statistics_get(gpu, WARP_MEMORY_UNKNOWN, &counts), WARP_SUCCESS);
        CHECK_EQ_U64(counts.live_blocks, 0);
    }
}

PROCESS_TEST(time_and_order_on_a_real_clock)
{
    warp_stream *a, *b;
    warp_event *start_event, *end_event, *after;
    float milliseconds = 0;
    start();
    make_scratch();
    a = new_stream(WARP_STREAM_NON_BLOCKING);
    b = new_stream(WARP_STREAM_NON_BLOCKING);
    start_event = new_event(WARP_EVENT_TIMING);
    end_event = new_event(WARP_EVENT_TIMING);
    after = new_event(0);
    CHECK_STATUS(warp_event_measure_elapsed(start_event, end_event, &milliseconds), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_event_record(start_event, a), WARP_SUCCESS);
    keep_scratch_busy(native(a));
    CHECK_STATUS(warp_event_record(end_event, a), WARP_SUCCESS);
    CHECK_STATUS(warp_event_measure_elapsed(start_event, end_event, &milliseconds), WARP_ERROR_BUSY);
    CHECK_STATUS(warp_stream_wait_event(b, end_event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_record(after, b), WARP_SUCCESS);
    CHECK(!done(after));
    CHECK_STATUS(warp_event_release(after), WARP_SUCCESS);
    CHECK_STATUS(warp_event_synchronize(end_event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_measure_elapsed(start_event, end_event, &milliseconds), WARP_SUCCESS);
    CHECK(milliseconds > 5 && milliseconds < 5000);
    CHECK_STATUS(warp_event_measure_elapsed(end_event, start_event, &milliseconds), WARP_SUCCESS);
    CHECK(milliseconds < -5);
}

CHECK_MAIN()
