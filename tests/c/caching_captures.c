/*
 * caching_captures.c: caches and captures, of the library and of other code: what is allocated in one is the graph's, what was there
 * before is kept while its runs may use it, and nothing that other threads do breaks one.
 *
 * needs: simulator
 */
#include "captures.h"
#include "caches.h"

#include <pthread.h>

#define SIZE ((uint64_t)100000)

static warp_allocator *cache;
static warp_stream *stream, *elsewhere;

static warp_status try_cached(warp_stream *on, uint64_t size, void **out)
{
    warp_alloc_options options = {.struct_size = sizeof options, .stream = on, .allocator = cache};
    return warp_alloc_with(device("cuda:0"), size, &options, out);
}

static void *cached(warp_stream *on, uint64_t size)
{
    void *block = NULL;
    CHECK_STATUS(try_cached(on, size, &block), WARP_SUCCESS);
    CHECK(block != NULL);
    return block;
}

/* With the library's own cache for GPUs, which serves captures from pools. */
static void begin_test(void)
{
    start_on("h200x2");
    CHECK_STATUS(warp_allocator_get_caching(WARP_MEMORY_UNKNOWN, &cache), WARP_SUCCESS);
    stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    elsewhere = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
}

static void end_test(void)
{
    uint64_t bytes = 0;
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(elsewhere), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_trim(cache, device("cuda:0"), &bytes), WARP_SUCCESS);
    CHECK_EQ_U64(live_blocks(), 0);
    (void)graph_memory_after_trim();
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(what_is_allocated_in_a_capture_is_the_graphs)
{
    warp_graph *graph;
    void *in, *both, *before;
    int i;
    begin_test();
    /* So that the thread remembers who serves the stream. */
    before = cached(stream, SIZE);
    freed(cached(stream, SIZE));
    freed(cached(stream, SIZE));
    begin(stream);
    both = cached(stream, SIZE);
    CHECK(is_of_graph(both));
    in = cached(stream, SIZE);
    CHECK(is_of_graph(in));
    CHECK(in != before && both != before);
    fill_byte(in, 3, SIZE, stream);
    CHECK_STATUS(warp_memory_copy(both, in, SIZE, stream), WARP_SUCCESS);
    freed(in);
    graph = end(stream);
    /* The capture is over, and the cache serves again. */
    in = cached(stream, SIZE);
    CHECK(!is_of_graph(in));
    freed(in);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(both, 3, SIZE, stream));
    freed(both);
    for (i = 0; i < 3; ++i) {
        in = cached(stream, SIZE);
        CHECK(!is_of_graph(in));
        fill_byte(in, 9, SIZE, stream);
        CHECK(holds(in, 9, SIZE, stream));
        freed(in);
    }
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    freed(before);
    end_test();
}

/* A graph may run again, so nobody else gets what it uses. */
PROCESS_TEST(a_block_of_before_that_a_graph_uses_is_kept_for_it)
{
    warp_graph *graph;
    int when;
    begin_test();
    for (when = 0; when < 2; ++when) {
        void *block = cached(stream, SIZE), *result = cached(stream, SIZE), *next[8];
        int i;
        fill_byte(block, 1, SIZE, stream);
        begin(stream);
        CHECK_STATUS(warp_memory_copy(result, block, SIZE, stream), WARP_SUCCESS);
        fill_byte(block, 2, SIZE, stream);
        if (when == 0)
            freed(block);
        graph = end(stream);
        if (when == 1)
            freed(block);
        CHECK_STATUS(warp_free(block), WARP_ERROR_DOUBLE_FREE);
        for (i = 0; i < 8; ++i) {
            next[i] = cached(stream, SIZE);
            CHECK(next[i] != block);
            fill_byte(next[i], (unsigned char)(10 + i), SIZE, stream);
        }
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK(holds(result, 2, SIZE, stream));
        for (i = 0; i < 8; ++i) {
            CHECK(holds(next[i], (unsigned char)(10 + i), SIZE, stream));
            freed(next[i]);
        }
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        freed(result);
    }
    end_test();
}

/* Other code captures a stream that it wrapped, or whose native handle it asked for, without a word to the library. */
PROCESS_TEST(captures_of_other_code_are_seen_by_the_next_call)
{
    CUcontext context = NULL;
    CUstream native = NULL;
    warp_stream *wrapped = NULL;
    int way, round;
    begin_test();
    CHECK_STATUS(warp_device_get_native_context(device("cuda:0"), &context), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context), 0);
    for (way = 0; way < 2; ++way) {
        warp_stream *on = stream;
        if (way == 1) {
            CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, 1), 0);
            CHECK_STATUS(warp_stream_wrap(device("cuda:0"), native, &wrapped), WARP_SUCCESS);
            on = wrapped;
        }
        for (round = 0; round < 3; ++round) {
            CUgraph graph = NULL;
            void *block, *before = cached(on, SIZE);
            freed(cached(on, SIZE));
            freed(cached(on, SIZE));
            if (way == 0)
                native = native_of(on);
            CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native, WARP_CAPTURE_THREAD_LOCAL), 0);
            block = cached(on, SIZE);
            CHECK(is_of_graph(block));
            CHECK(!is_of_graph(before));
            freed(block);
            freed(before);
            CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native, &graph), 0);
            CHECK(graph != NULL);
            block = cached(on, SIZE);
            CHECK(!is_of_graph(block));
            freed(block);
            CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(graph), 0);
        }
        if (way == 1) {
            CHECK_STATUS(warp_stream_release(wrapped), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
        }
    }
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    end_test();
}

/* A stream whose native handle nobody has is joined to a capture of other code by an event. */
PROCESS_TEST(a_stream_that_joins_a_capture_of_other_code_is_captured)
{
    CUcontext context = NULL;
    CUgraph graph = NULL;
    CUstream native;
    warp_event *event = NULL, *back = NULL;
    void *block;
    begin_test();
    CHECK_STATUS(warp_device_get_native_context(device("cuda:0"), &context), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context), 0);
    CHECK_STATUS(warp_event_create(device("cuda:0"), NULL, &event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_create(device("cuda:0"), NULL, &back), WARP_SUCCESS);
    freed(cached(elsewhere, SIZE));
    freed(cached(elsewhere, SIZE));
    native = native_of(stream);
    CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native, WARP_CAPTURE_THREAD_LOCAL), 0);
    CHECK_STATUS(warp_event_record(event, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(elsewhere, event), WARP_SUCCESS);
    block = cached(elsewhere, SIZE);
    CHECK(is_of_graph(block));
    freed(block);
    CHECK_STATUS(warp_event_record(back, elsewhere), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(stream, back), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native, &graph), 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(graph), 0);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(back), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    end_test();
}

static pthread_barrier_t together;

static void *use_beside(void *argument)
{
    uint64_t bytes = 0;
    warp_stream *own = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    int i;
    (void)argument;
    pthread_barrier_wait(&together);
    for (i = 0; i < 20; ++i) {
        void *block = cached(i % 2 ? own : elsewhere, SIZE << i % 8);
        fill_byte(block, 1, SIZE, i % 2 ? own : elsewhere);
        CHECK_STATUS(warp_pointer_record_stream(block, i % 2 ? elsewhere : own), WARP_SUCCESS);
        freed(block);
        CHECK_STATUS(warp_allocator_trim(cache, device("cuda:0"), &bytes), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    own = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    freed(cached(own, SIZE));
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    pthread_barrier_wait(&together);
    return NULL;
}

/* In GLOBAL mode most calls of any thread would break it. */
PROCESS_TEST(other_threads_break_no_capture)
{
    int mode;
    for (mode = 0; mode < 3; ++mode) {
        static const warp_capture_mode modes[] = {WARP_CAPTURE_GLOBAL, WARP_CAPTURE_THREAD_LOCAL, WARP_CAPTURE_RELAXED};
        warp_graph *graph = NULL;
        pthread_t other;
        void *block, *kept;
        if (mode == 0)
            begin_test();
        kept = cached(stream, SIZE);
        freed(cached(stream, 40 * SIZE));
        pthread_barrier_init(&together, NULL, 2);
        REQUIRE(pthread_create(&other, NULL, use_beside, NULL) == 0);
        CHECK_STATUS(warp_capture_begin(stream, modes[mode]), WARP_SUCCESS);
        block = cached(stream, SIZE);
        fill_byte(block, 4, SIZE, stream);
        fill_byte(kept, 5, SIZE, stream);
        pthread_barrier_wait(&together);
        pthread_barrier_wait(&together);
        freed(block);
        freed(kept);
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        pthread_join(other, NULL);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    }
    end_test();
}

/* A capture of the CPU: as with any allocator, its blocks are kept by the graph. */
PROCESS_TEST(captures_of_the_cpu_keep_cached_host_memory)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_HOST, WARP_MEMORY_PINNED};
    int k;
    start_on("h200x2");
    for (k = 0; k < 2; ++k) {
        warp_stream *on = NULL;
        warp_alloc_options options = {.struct_size = sizeof options};
        warp_graph *graph = NULL;
        unsigned char *before = NULL, *next = NULL, result = 0, byte = 6;
        CHECK_STATUS(warp_allocator_get_caching(kinds[k], &options.allocator), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_get_current(device("cpu"), &on), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc_with(device("cpu"), 1000, &options, (void **)&before), WARP_SUCCESS);
        CHECK_STATUS(warp_capture_begin(on, WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(before, 1000, &byte, 1, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(&result, before + 999, 1, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_free(before), WARP_SUCCESS);
        CHECK_STATUS(warp_capture_end(on, &graph), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc_with(device("cpu"), 1000, &options, (void **)&next), WARP_SUCCESS);
        CHECK(next != before);
        memset(next, 1, 1000);
        CHECK_STATUS(warp_graph_launch(graph, on), WARP_SUCCESS);
        CHECK_EQ_I64(result, 6);
        CHECK_EQ_I64(next[999], 1);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_free(next), WARP_SUCCESS);
    }
    CHECK_EQ_U64(live_blocks(), 0);
}

/* A stream that nobody else has ever seen becomes part of a capture of other code by a wait, and by nothing else. */
static void join_foreign_capture(void (*join)(warp_stream *joining, warp_stream *theirs, CUstream native))
{
    warp_stream *theirs = NULL;
    CUstream native = NULL;
    CUgraph graph = NULL;
    void *before, *in;
    int i;
    begin_test();
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(driver_primary(0)), 0);
    CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, 1), 0);
    CHECK_STATUS(warp_stream_wrap(device("cuda:0"), native, &theirs), WARP_SUCCESS);
    /* Often enough that the thread remembers who serves the stream. */
    for (i = 0; i < 4; ++i)
        freed(cached(stream, SIZE));
    before = cached(stream, SIZE);
    freed(before);
    CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native, 0), 0);
    join(stream, theirs, native);
    in = cached(stream, SIZE);
    CHECK(is_of_graph(in));
    CHECK(in != before);
    freed(in);
    CHECK_STATUS(warp_stream_wait_stream(theirs, stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native, &graph), 0);
    /* It is over, and the cache serves again. */
    in = cached(stream, SIZE);
    CHECK(!is_of_graph(in));
    freed(in);
    CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(graph), 0);
    CHECK_STATUS(warp_stream_release(theirs), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    end_test();
}

static void join_by_their_event(warp_stream *joining, warp_stream *theirs, CUstream native)
{
    CUevent native_event = NULL;
    warp_event *event = NULL;
    (void)theirs;
    CHECK_EQ_U64(SIMULATOR(cuEventCreate)(&native_event, 2), 0);
    CHECK_EQ_U64(SIMULATOR(cuEventRecord)(native_event, native), 0);
    CHECK_STATUS(warp_event_wrap(device("cuda:0"), native_event, &event), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(joining, event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuEventDestroy_v2)(native_event), 0);
}

/* An event of the library's that other code records: it was recorded here before, outside of any capture. */
static void join_by_an_event_they_record(warp_stream *joining, warp_stream *theirs, CUstream native)
{
    warp_event *event = NULL;
    warp_event_info info = {.struct_size = sizeof info};
    (void)theirs;
    CHECK_STATUS(warp_event_create(device("cuda:0"), NULL, &event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_record(event, joining), WARP_SUCCESS);
    CHECK_STATUS(warp_event_get_info(event, &info), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuEventRecord)(info.native, native), 0);
    CHECK_STATUS(warp_stream_wait_event(joining, event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
}

static void join_by_our_event(warp_stream *joining, warp_stream *theirs, CUstream native)
{
    warp_event *event = NULL;
    (void)native;
    CHECK_STATUS(warp_event_create(device("cuda:0"), NULL, &event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_record(event, theirs), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(joining, event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
}

static void join_by_waiting_for_their_stream(warp_stream *joining, warp_stream *theirs, CUstream native)
{
    (void)native;
    CHECK_STATUS(warp_stream_wait_stream(joining, theirs), WARP_SUCCESS);
}

PROCESS_TEST(a_stream_that_joins_a_foreign_capture_by_its_event_is_not_served_from_the_cache)
{
    join_foreign_capture(join_by_their_event);
}

PROCESS_TEST(a_stream_that_joins_one_by_an_event_that_other_code_recorded_is_not_served_from_the_cache)
{
    join_foreign_capture(join_by_an_event_they_record);
}

PROCESS_TEST(a_stream_that_joins_one_by_an_event_of_ours_is_not_served_from_the_cache)
{
    join_foreign_capture(join_by_our_event);
}

PROCESS_TEST(a_stream_that_joins_one_by_a_wait_for_its_stream_is_not_served_from_the_cache)
{
    join_foreign_capture(join_by_waiting_for_their_stream);
}

CHECK_MAIN()
