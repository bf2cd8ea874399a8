/*
 * capture_hostile.c: callers who do what no sensible one does: two threads that end one capture, or begin one on a stream that is
 * just being released, captures of other code that end without a word, one handle for every thread's own default stream.
 *
 * topology: h200x2
 * needs: simulator
 * valgrind: no (threads that meet by the thousand take minutes there)
 */
#include "captures.h"

#include <pthread.h>
#include <sched.h>

#define SIZE ((uint64_t)4096)

static void use_natively(void)
{
    CUcontext context = NULL;
    CHECK_STATUS(warp_device_get_native_context(device("cuda:0"), &context), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context), 0);
}

static void check_left_nothing(void)
{
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

/* Only a thread that captures is refused this. */
static void check_thread_captures_nothing(void)
{
    void *block = NULL;
    CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

/* ---- each thread's own default stream, by one handle ---- */

static warp_stream *own;

static void *capture_own(void *argument)
{
    warp_graph *graph = NULL;
    void *block;
    (void)argument;
    CHECK_EQ_I64(state_of(own), WARP_CAPTURE_STATE_NONE);
    CHECK_STATUS(warp_capture_end(own, &graph), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "no capture goes on");
    CHECK_STATUS(warp_stream_release(own), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    begin(own);
    block = alloc_on("cuda:0", own, SIZE);
    CHECK_STATUS(warp_capture_pause(own), WARP_SUCCESS);
    CHECK_EQ_I64(state_of(own), WARP_CAPTURE_STATE_PAUSED);
    CHECK_STATUS(warp_capture_resume(own), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_end(own, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    begin(own);
    CHECK_STATUS(warp_capture_abandon(own), WARP_SUCCESS);
    CHECK_EQ_I64(state_of(own), WARP_CAPTURE_STATE_NONE);
    return NULL;
}

PROCESS_TEST(two_threads_capture_their_own_default_streams_by_one_handle)
{
    int paused;
    start_on("h200x2");
    for (paused = 0; paused < 2; ++paused) {
        pthread_t other;
        CHECK_STATUS(warp_stream_wrap(device("cuda:0"), (void *)2, &own), WARP_SUCCESS);
        begin(own);
        if (paused)
            CHECK_STATUS(warp_capture_pause(own), WARP_SUCCESS);
        REQUIRE(pthread_create(&other, NULL, capture_own, NULL) == 0);
        pthread_join(other, NULL);
        CHECK_EQ_I64(state_of(own), paused ? WARP_CAPTURE_STATE_PAUSED : WARP_CAPTURE_STATE_ACTIVE);
        CHECK_STATUS(warp_graph_release(end(own)), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    }
    check_left_nothing();
}

/* ---- captures that end without a word ---- */

PROCESS_TEST(a_capture_begins_where_other_code_ended_one_without_a_word)
{
    warp_stream *stream;
    CUgraph other = NULL;
    warp_graph *graph;
    void *block;
    int adopted;
    start_on("h200x2");
    use_natively();
    stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    for (adopted = 0; adopted < 2; ++adopted) {
        CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native_of(stream), WARP_CAPTURE_THREAD_LOCAL), 0);
        if (adopted)
            CHECK_STATUS(warp_capture_adopt(stream, 0), WARP_SUCCESS);
        else
            CHECK_STATUS(warp_free(alloc_on("cuda:0", stream, SIZE)), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native_of(stream), &other), 0);
        begin(stream);
        CHECK_EQ_I64(capture_of(stream).is_owned, 1);
        block = alloc_on("cuda:0", stream, SIZE);
        fill_byte(block, 3, SIZE, stream);
        graph = end(stream);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_NONE);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK(holds(block, 3, SIZE, stream));
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(other), 0);
    }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_left_nothing();
}

PROCESS_TEST(the_second_of_two_captures_of_other_code_is_the_one_that_is_ended)
{
    warp_stream *stream;
    CUgraph first = NULL, second = NULL;
    start_on("h200x2");
    use_natively();
    stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native_of(stream), WARP_CAPTURE_THREAD_LOCAL), 0);
    CHECK_STATUS(warp_capture_adopt(stream, 0), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native_of(stream), &first), 0);
    CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native_of(stream), WARP_CAPTURE_THREAD_LOCAL), 0);
    CHECK_STATUS(warp_capture_adopt(stream, 0), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_end(stream, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_end(stream, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "begun by other code");
    CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native_of(stream), &second), 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(first), 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(second), 0);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_left_nothing();
}

/* Other code ends what the library began, and the library is asked to begin again: the first capture came to nothing. */
PROCESS_TEST(a_capture_begins_where_other_code_ended_one_of_the_library)
{
    warp_stream *stream;
    CUgraph stolen = NULL;
    warp_graph *graph;
    void *lost, *block;
    start_on("h200x2");
    use_natively();
    stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    begin(stream);
    lost = alloc_on("cuda:0", stream, SIZE);
    CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native_of(stream), &stolen), 0);
    begin(stream);
    block = alloc_on("cuda:0", stream, SIZE);
    fill_byte(block, 5, SIZE, stream);
    graph = end(stream);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_NONE);
    CHECK_EQ_U64(graph_info(graph).block_count, 1);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(block, 5, SIZE, stream));
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(lost), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    check_thread_captures_nothing();
    CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(stolen), 0);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_left_nothing();
}

/* Other code ends what the library began and begins a capture of its own there, which is not the library's to end. */
PROCESS_TEST(a_capture_of_other_code_in_the_place_of_the_librarys_is_left_alone)
{
    warp_stream *stream;
    CUgraph stolen = NULL, theirs = NULL;
    warp_graph *graph = NULL;
    int how;
    start_on("h200x2");
    use_natively();
    stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    for (how = 0; how < 3; ++how) {
        begin(stream);
        CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native_of(stream), &stolen), 0);
        CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native_of(stream), WARP_CAPTURE_THREAD_LOCAL), 0);
        if (how == 0) {
            CHECK_STATUS(warp_capture_end(stream, &graph), WARP_ERROR_ILLEGAL_IN_CAPTURE);
            CHECK_STR_CONTAINS(warp_error_get_message(), "is not there any more");
        } else if (how == 1) {
            CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
        } else {
            CHECK_STATUS(warp_capture_pause(stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
            CHECK_STR_CONTAINS(warp_error_get_message(), "is not there any more");
            CHECK_STATUS(warp_capture_adopt(stream, 0), WARP_SUCCESS);
        }
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native_of(stream), &theirs), 0);
        CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(stolen), 0);
        CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(theirs), 0);
    }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_thread_captures_nothing();
    check_left_nothing();
}

/* ---- two threads and one capture ---- */

static pthread_barrier_t together;
static warp_stream *common;
static struct ending {
    int how;
    warp_graph *graph;
    warp_status status;
} endings[2];

static void *end_common(void *argument)
{
    struct ending *ending = argument;
    pthread_barrier_wait(&together);
    ending->status = ending->how == 0   ? warp_capture_end(common, &ending->graph)
                     : ending->how == 1 ? warp_capture_abandon(common)
                                        : warp_capture_pause(common);
    if (ending->graph != NULL)
        CHECK_STATUS(warp_graph_launch(ending->graph, common), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(of_two_threads_that_end_one_relaxed_capture_one_does)
{
    int round, rounds = check_under("valgrind") ? 10 : 1000;
    void *block;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    common = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    block = alloc_on("cuda:0", common, SIZE);
    REQUIRE(pthread_barrier_init(&together, NULL, 2) == 0);
    for (round = 0; round < rounds && check_failure_count() == 0; ++round) {
        pthread_t threads[2];
        int i;
        CHECK_STATUS(warp_capture_begin(common, WARP_CAPTURE_RELAXED), WARP_SUCCESS);
        fill_byte(block, 1, SIZE, common);
        for (i = 0; i < 2; ++i) {
            /* The first ends it, the second ends it too, gives it up, or pauses it. */
            endings[i].how = i * round % 3;
            endings[i].graph = NULL;
            REQUIRE(pthread_create(&threads[i], NULL, end_common, &endings[i]) == 0);
        }
        for (i = 0; i < 2; ++i)
            pthread_join(threads[i], NULL);
        if (endings[1].how == 2)
            CHECK_STATUS(endings[0].status, WARP_SUCCESS);
        else
            CHECK_EQ_I64((endings[0].status == WARP_SUCCESS) + (endings[1].status == WARP_SUCCESS), 1);
        CHECK_EQ_I64(state_of(common), WARP_CAPTURE_STATE_NONE);
        for (i = 0; i < 2; ++i)
            CHECK_STATUS(warp_graph_release(endings[i].graph), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(common), WARP_SUCCESS);
    check_left_nothing();
}

static void *release_common(void *argument)
{
    pthread_barrier_wait(&together);
    *(warp_status *)argument = warp_stream_release(common);
    return NULL;
}

PROCESS_TEST(a_capture_begins_while_its_stream_is_released_or_not_at_all)
{
    int round, rounds = check_under("valgrind") ? 10 : 2000;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    REQUIRE(pthread_barrier_init(&together, NULL, 2) == 0);
    for (round = 0; round < rounds && check_failure_count() == 0; ++round) {
        warp_status begun, released = WARP_SUCCESS;
        pthread_t other;
        common = make_stream("cuda:0", (uint32_t)(round % 2));
        REQUIRE(pthread_create(&other, NULL, release_common, &released) == 0);
        pthread_barrier_wait(&together);
        begun = warp_capture_begin(common, WARP_CAPTURE_THREAD_LOCAL);
        pthread_join(other, NULL);
        CHECK_STATUS(released, begun == WARP_SUCCESS ? WARP_ERROR_ILLEGAL_IN_CAPTURE : WARP_SUCCESS);
        if (begun != WARP_SUCCESS) {
            CHECK_STATUS(begun, WARP_ERROR_INVALID_HANDLE);
            continue;
        }
        CHECK_STATUS(warp_graph_release(end(common)), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(common), WARP_SUCCESS);
    }
    check_thread_captures_nothing();
    check_left_nothing();
}

/* ---- deleters that come back in ---- */

#define LONG_ROW 20000
static warp_graph *row[LONG_ROW];
static int reached;
static char bytes[64];

static warp_array *wrap_bytes(warp_array_deleter deleter)
{
    warp_array_wrap_options options = {.struct_size = sizeof options, .deleter = deleter};
    int64_t shape[1] = {sizeof bytes};
    warp_array *array = NULL;
    CHECK_STATUS(warp_array_wrap(device("cpu"), bytes, warp_dtype_make(WARP_DTYPE_UINT, 8), 1, shape, &options, &array),
                 WARP_SUCCESS);
    return array;
}

static void release_the_next(void *user, void *ptr, uint64_t size)
{
    (void)user;
    (void)ptr;
    (void)size;
    if (++reached < LONG_ROW)
        CHECK_STATUS(warp_graph_release(row[reached]), WARP_SUCCESS);
}

PROCESS_TEST(graphs_that_keep_one_another_in_a_long_row_go_one_after_the_other)
{
    warp_stream *stream;
    int i;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    reached = check_under("valgrind") ? LONG_ROW - 100 : 0;
    for (i = reached; i < LONG_ROW; ++i) {
        warp_array *array = wrap_bytes(release_the_next);
        begin(stream);
        row[i] = end(stream);
        CHECK_STATUS(warp_graph_retain_array(row[i], array), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_graph_release(row[reached]), WARP_SUCCESS);
    CHECK_EQ_I64(reached, LONG_ROW);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_left_nothing();
}

static warp_stream *inner;

static void capture_and_launch(void *user, void *ptr, uint64_t size)
{
    warp_graph *graph;
    void *block;
    (void)user;
    (void)ptr;
    (void)size;
    ++reached;
    begin(inner);
    block = alloc_on("cuda:0", inner, SIZE);
    fill_byte(block, 1, SIZE, inner);
    CHECK_STATUS(warp_capture_pause(inner), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_resume(inner), WARP_SUCCESS);
    graph = end(inner);
    CHECK_STATUS(warp_graph_launch(graph, inner), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_trim_memory(device("cuda:0")), WARP_SUCCESS);
}

/* It is called by whichever call finds that the last run is over, also one in the middle of another capture. */
PROCESS_TEST(a_deleter_may_capture_whoever_calls_it)
{
    warp_stream *stream, *late;
    int way;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    late = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    inner = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    for (way = 0; way < 8; ++way) {
        int captured = way >= 4;
        warp_array *array = wrap_bytes(capture_and_launch);
        warp_graph *graph;
        begin(stream);
        graph = end(stream);
        CHECK_STATUS(warp_graph_retain_array(graph, array), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
        SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(late));
        CHECK_STATUS(warp_graph_launch(graph, late), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        if (captured)
            begin(stream);
        SIMULATOR(warpsim_release)((uint64_t)(uintptr_t)native_of(late));
        reached = 0;
        if (way % 4 == 0)
            CHECK_STATUS(warp_free(alloc_on("cuda:0", stream, SIZE)), WARP_SUCCESS);
        else if (way % 4 == 1)
            CHECK_STATUS(warp_graph_trim_memory(device("cuda:0")), WARP_SUCCESS);
        else if (way % 4 == 2)
            CHECK_STATUS(captured ? warp_capture_pause(stream) : warp_graph_release(NULL), WARP_SUCCESS);
        if (captured)
            CHECK_STATUS(warp_graph_release(end(stream)), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_trim_memory(device("cuda:0")), WARP_SUCCESS);
        CHECK_EQ_I64(reached, 1);
    }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(late), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(inner), WARP_SUCCESS);
    check_left_nothing();
}

/* ---- many blocks ---- */

/* A free comes behind all that comes after the allocation; a thousand in a row do not look at all of it a thousand times. */
PROCESS_TEST(a_thousand_frees_in_a_row_cost_a_thousand_times_one)
{
    enum { COUNT = 1000 };
    static void *blocks[COUNT];
    uint64_t calls;
    warp_stream *stream;
    warp_graph *graph;
    int i, backwards;
    void *result;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    result = alloc_on("cuda:0", stream, COUNT);
    for (backwards = 0; backwards < 2; ++backwards) {
        begin(stream);
        for (i = 0; i < COUNT; ++i) {
            blocks[i] = alloc_on("cuda:0", stream, 256);
            if (i % 100 == 0) {
                fill_byte(blocks[i], (unsigned char)i, 1, stream);
                CHECK_STATUS(warp_memory_copy((char *)result + i, blocks[i], 1, stream), WARP_SUCCESS);
            }
        }
        calls = SIMULATOR(warpsim_call_count)("*");
        for (i = 0; i < COUNT; ++i)
            CHECK_STATUS(warp_free(blocks[backwards ? COUNT - 1 - i : i]), WARP_SUCCESS);
        CHECK(SIMULATOR(warpsim_call_count)("*") - calls < 400 * COUNT);
        graph = end(stream);
        CHECK_EQ_U64(graph_info(graph).block_count, 0);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        for (i = 0; i < COUNT; i += 100)
            CHECK(holds((char *)result + i, (unsigned char)i, 1, stream));
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("graph_block"), 0);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(result), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_left_nothing();
}

/* ---- a stream that several threads work on while one of them captures it ---- */

static warp_stream *shared;
static int stop_working;
static long refused, done;

/* Done or refused; nothing else becomes of a call. */
static int went(warp_status status)
{
    if (status == WARP_SUCCESS) {
        __atomic_add_fetch(&done, 1, __ATOMIC_RELAXED);
        return 1;
    }
    CHECK_STATUS(status, WARP_ERROR_ILLEGAL_IN_CAPTURE);
    __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
    return 0;
}

static void *work_on_shared(void *argument)
{
    const unsigned char pattern[] = {1, 2, 3, 4, 5, 6, 7, 8};
    (void)argument;
    use_natively();
    while (!__atomic_load_n(&stop_working, __ATOMIC_RELAXED)) {
        void *from = NULL, *to = NULL;
        if (went(try_alloc("cuda:0", shared, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &from)) &&
            went(warp_memory_fill(from, SIZE, pattern, sizeof pattern, shared)) &&
            went(try_alloc("cuda:0", shared, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &to)))
            went(warp_memory_copy(to, from, SIZE, shared));
        /* Never refused, wherever the work went. */
        CHECK_STATUS(warp_free(to), WARP_SUCCESS);
        CHECK_STATUS(warp_free(from), WARP_SUCCESS);
    }
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    return NULL;
}

/* Captures a stream again and again on which other threads work. */
static void capture_under_work(void *(*work)(void *))
{
    enum { THREADS = 3 };
    const int rounds = check_under("valgrind") ? 8 : 300;
    pthread_t threads[THREADS];
    int i;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    shared = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    for (i = 0; i < THREADS; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (i = 0; i < rounds && check_failure_count() == 0; ++i) {
        const long before = __atomic_load_n(&done, __ATOMIC_RELAXED);
        warp_graph *graph;
        while (__atomic_load_n(&done, __ATOMIC_RELAXED) == before && check_failure_count() == 0)
            sched_yield();
        begin(shared);
        if (i % 3 == 0) {
            CHECK_STATUS(warp_capture_pause(shared), WARP_SUCCESS);
            CHECK_STATUS(warp_capture_resume(shared), WARP_SUCCESS);
        }
        graph = end(shared);
        CHECK_STATUS(warp_graph_launch(graph, shared), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_launch(graph, shared), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    }
    __atomic_store_n(&stop_working, 1, __ATOMIC_RELAXED);
    for (i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    CHECK_STATUS(warp_stream_synchronize(shared), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(shared), WARP_SUCCESS);
    /* What is left is given back on a stream of the library. */
    CHECK_STATUS(warp_graph_trim_memory(device("cuda:0")), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    check_left_nothing();
}

/* Their calls ask whether the stream is captured before they work on it, and the capture may begin in between: what fell into
 * it is kept for every run of the graph. */
PROCESS_TEST(work_that_falls_into_another_threads_capture_is_kept_by_its_graph)
{
    capture_under_work(work_on_shared);
}

static void *record_on_shared(void *argument)
{
    warp_event *event = NULL;
    (void)argument;
    CHECK_STATUS(warp_event_create(device("cuda:0"), NULL, &event), WARP_SUCCESS);
    while (!__atomic_load_n(&stop_working, __ATOMIC_RELAXED)) {
        uint8_t is_done = 0;
        if (went(warp_event_record(event, shared)))
            went(warp_event_query_done(event, &is_done));
    }
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    return NULL;
}

/* A question about an event that fell into a capture would break it, which its end would tell. */
PROCESS_TEST(an_event_that_falls_into_another_threads_capture_does_not_break_it)
{
    capture_under_work(record_on_shared);
}

static void *capture_own_again_and_again(void *argument)
{
    int i;
    (void)argument;
    for (i = 0; i < 300; ++i) {
        begin(own);
        CHECK_STATUS(warp_graph_release(end(own)), WARP_SUCCESS);
    }
    __atomic_store_n(&stop_working, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* One handle names another stream in each thread, and what one of them captures is nothing to the other. */
PROCESS_TEST(a_capture_of_a_threads_own_default_stream_refuses_other_threads_nothing)
{
    pthread_t other;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    CHECK_STATUS(warp_stream_wrap(device("cuda:0"), (void *)2, &own), WARP_SUCCESS);
    REQUIRE(pthread_create(&other, NULL, capture_own_again_and_again, NULL) == 0);
    do {
        void *block = alloc_on("cuda:0", own, SIZE);
        fill_byte(block, 1, SIZE, own);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    } while (!__atomic_load_n(&stop_working, __ATOMIC_RELAXED) && check_failure_count() == 0);
    pthread_join(other, NULL);
    CHECK_STATUS(warp_stream_synchronize(own), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    check_left_nothing();
}

/* ---- options that nobody knows ---- */

PROCESS_TEST(options_that_nobody_knows_are_refused)
{
    struct {
        warp_capture_options known;
        char later[32];
    } longer;
    warp_capture_options options = {.struct_size = sizeof options, .reserved = 5};
    warp_stream *stream;
    start_on("h200x2");
    stream = make_stream("cuda:1", 0);
    CHECK_STATUS(warp_capture_begin_with(stream, WARP_CAPTURE_RELAXED, &options), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "reserved");
    options.reserved = 0;
    for (options.flags = 2; options.flags != 0; options.flags <<= 1) {
        CHECK_STATUS(warp_capture_begin_with(stream, WARP_CAPTURE_RELAXED, &options), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_capture_adopt(stream, options.flags), WARP_ERROR_INVALID_ARGUMENT);
    }
    memset(&longer, 0, sizeof longer);
    longer.known.struct_size = sizeof longer;
    longer.later[3] = 1;
    CHECK_STATUS(warp_capture_begin_with(stream, WARP_CAPTURE_RELAXED, &longer.known), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_NONE);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_left_nothing();
}

CHECK_MAIN()
