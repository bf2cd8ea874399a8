/*
 * access_captured.c: access that is asked for while something is captured. A thread that captures on the launch device is told what
 * was so when that began, by which its graph will run; others are told what is so now. Nobody's capture is disturbed. Cases PA-04
 * and AC-01.
 *
 * valgrind: slow (rules over what a capture remembers; access_live.c asks there, the programs of captures capture)
 * needs: simulator
 */
#define _GNU_SOURCE

#include "access.h"

#include "captures.h"

#include <pthread.h>

static const int modes[] = {WARP_CAPTURE_GLOBAL, WARP_CAPTURE_THREAD_LOCAL, WARP_CAPTURE_RELAXED};

/* Gives or takes both kinds of access of cuda:1 to cuda:0, by the library or by other code. */
static void change(int outside, int on)
{
    if (outside) {
        PEER->outside(0, 1, on);
        POOL->outside(0, 1, on);
    } else {
        turn(PEER, gpu(0), gpu(1), on);
        turn(POOL, gpu(0), gpu(1), on);
    }
}

struct set {
    void *plain, *pooled, *managed, *pinned, *mapping, *foreign;
    warp_array *array;
};

static struct set make_set(void)
{
    struct set set;
    context_of(gpu(1));
    set.plain = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    set.pooled = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
    set.managed = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MANAGED);
    set.pinned = block_of(cpu(), 64, WARP_MEMORY_PINNED);
    set.mapping = mapping_of(0);
    set.foreign = foreign_plain(context_of(gpu(0)), 64);
    set.array = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL, F32, 8);
    map_for(set.mapping, 0, 3);
    return set;
}

static void drop_set(struct set *set)
{
    CHECK_STATUS(warp_free(set->plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(set->pooled), WARP_SUCCESS);
    CHECK_STATUS(warp_free(set->managed), WARP_SUCCESS);
    CHECK_STATUS(warp_free(set->pinned), WARP_SUCCESS);
    drop(set->array);
    unmap(set->mapping);
}

/* Every question, from cuda:1, cuda:0 and the CPU, when `given` is what holds. */
static void ask_all(const struct set *set, int given, int given_now)
{
    static char stack_like[8];
    expect_pointer_at(gpu(1), set->plain, EITHER(given, PEER_ACCESS, NO_PEER_ACCESS), "plain", __LINE__);
    expect_pointer_at(gpu(1), set->pooled, EITHER(given, POOL_ACCESS, NO_POOL_ACCESS), "pool", __LINE__);
    expect_array_at(gpu(1), set->array, EITHER(given, POOL_ACCESS, NO_POOL_ACCESS), "array", __LINE__);
    CHECK_EQ_I64(can_device(gpu(1), gpu(0)), given);
    /* What is not the library's is as it is now. */
    expect_pointer_at(gpu(1), set->foreign, EITHER(given_now, PEER_ACCESS, NO_PEER_ACCESS), "foreign", __LINE__);
    EXPECT_POINTER(gpu(1), set->managed, MANAGED_ON_BOTH);
    EXPECT_POINTER(gpu(1), set->pinned, PINNED_MAPPING);
    EXPECT_POINTER(gpu(1), set->mapping, NOT_MAPPED);
    EXPECT_POINTER(gpu(0), set->mapping, MAPPED);
    EXPECT_POINTER(gpu(1), stack_like, UNKNOWN_MEMORY);
    EXPECT_POINTER(gpu(0), set->plain, SAME_DEVICE);
    EXPECT_POINTER(gpu(0), set->foreign, SAME_DEVICE);
    EXPECT_POINTER(cpu(), set->pooled, DEVICE_MEMORY);
    EXPECT_POINTER(cpu(), set->managed, MANAGED_CONCURRENT);
    EXPECT_ARRAY(cpu(), set->array, DEVICE_MEMORY);
}

PROCESS_TEST(answers_are_those_of_the_captures_begin)
{
    /* PA-04: in a capture, what was noted when it began. */
    size_t m;
    int outside, given;
    struct set set;
    start_on("h200x2");
    set = make_set();
    for (m = 0; m < 3; ++m)
        for (outside = 0; outside < 2; ++outside)
            for (given = 0; given < 2; ++given) {
                warp_stream *stream = new_stream(gpu(1), 0);
                warp_graph *graph = NULL;
                change(outside, given);
                ask_all(&set, given, given);
                CHECK_STATUS(warp_capture_begin(stream, modes[m]), WARP_SUCCESS);
                ask_all(&set, given, given);
                change(outside, !given);
                ask_all(&set, given, !given);
                change(outside, given);
                ask_all(&set, given, given);
                change(outside, !given);
                CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
                CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
                /* Over: as it is now. */
                ask_all(&set, !given, !given);
                CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
                CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            }
    drop_set(&set);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_capture_on_another_device_does_not_fix_the_answers)
{
    size_t m;
    struct set set;
    start_on("h200x2");
    set = make_set();
    for (m = 0; m < 3; ++m) {
        warp_stream *stream = new_stream(gpu(0), 0);
        warp_graph *graph = NULL;
        change(0, 0);
        CHECK_STATUS(warp_capture_begin(stream, modes[m]), WARP_SUCCESS);
        ask_all(&set, 0, 0);
        change(1, 1);
        ask_all(&set, 1, 1);
        change(0, 0);
        ask_all(&set, 0, 0);
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    drop_set(&set);
}

PROCESS_TEST(a_capture_that_is_paused_or_adopted)
{
    CUstream native = NULL;
    CUgraph theirs = NULL;
    warp_stream *stream, *wrapped = NULL;
    struct set set;
    start_on("h200x2");
    set = make_set();
    stream = new_stream(gpu(1), 0);
    ask_all(&set, 0, 0);
    begin(stream);
    change(0, 1);
    ask_all(&set, 0, 1);
    /* What is launched in a pause runs now. */
    CHECK_STATUS(warp_capture_pause(stream), WARP_SUCCESS);
    ask_all(&set, 1, 1);
    CHECK_STATUS(warp_capture_resume(stream), WARP_SUCCESS);
    ask_all(&set, 0, 1);
    CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
    ask_all(&set, 1, 1);
    /* One that other code began is known from its adoption on. */
    change(0, 0);
    IN(context_of(gpu(1)), DRIVER(cuStreamCreate, &native, 1));
    CHECK_STATUS(warp_stream_wrap(gpu(1), native, &wrapped), WARP_SUCCESS);
    DRIVER(cuStreamBeginCapture_v2, native, 1);
    change(1, 1);
    CHECK_STATUS(warp_capture_adopt(wrapped, 0), WARP_SUCCESS);
    ask_all(&set, 1, 1);
    change(1, 0);
    ask_all(&set, 1, 0);
    DRIVER(cuStreamEndCapture, native, &theirs);
    CHECK(theirs != NULL);
    drop_set(&set);
}

PROCESS_TEST(the_pool_that_is_used_later_is_not_judged_by_the_one_before)
{
    warp_mempool *created = NULL;
    warp_stream *stream;
    void *first, *second, *third;
    warp_alloc_options options;
    start_on("h200x2");
    CHECK_STATUS(warp_mempool_create(gpu(0), NULL, &created), WARP_SUCCESS);
    options = options_of(0, NULL);
    options.mempool = created;
    first = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_STATUS(warp_alloc_with(gpu(0), 64, &options, &second), WARP_SUCCESS);
    turn(POOL, gpu(0), gpu(1), 1);
    stream = new_stream(gpu(1), 0);
    begin(stream);
    EXPECT_POINTER(gpu(1), first, POOL_ACCESS);
    EXPECT_POINTER(gpu(1), second, NO_POOL_ACCESS);
    CHECK_STATUS(warp_mempool_use(gpu(0), created), WARP_SUCCESS);
    third = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
    EXPECT_POINTER(gpu(1), first, POOL_ACCESS);
    EXPECT_POINTER(gpu(1), second, NO_POOL_ACCESS);
    EXPECT_POINTER(gpu(1), third, NO_POOL_ACCESS);
    CHECK_EQ_I64(can_device(gpu(1), gpu(0)), 0);
    CHECK_STATUS(warp_mempool_set_access(created, gpu(1), 1), WARP_SUCCESS);
    EXPECT_POINTER(gpu(1), third, POOL_ACCESS);
    CHECK_EQ_I64(can_device(gpu(1), gpu(0)), 1);
    CHECK_STATUS(warp_graph_release(end(stream)), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_use(gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_release(created), WARP_SUCCESS);
    CHECK_STATUS(warp_free(first), WARP_SUCCESS);
    CHECK_STATUS(warp_free(second), WARP_SUCCESS);
    CHECK_STATUS(warp_free(third), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_GONE();
}

PROCESS_TEST(memory_of_the_capture_itself)
{
    /* What the capture allocated, seen from its own device and from another one, before and after its launch. */
    warp_stream *stream;
    warp_graph *graph;
    warp_array *array = NULL;
    warp_array_options options = {.struct_size = sizeof options};
    const int64_t count = 8;
    int given;
    start_on("h200x2");
    for (given = 0; given < 2; ++given) {
        const warp_access_reason from_other = EITHER(given, GRAPH_ACCESS, NO_GRAPH_ACCESS);
        stream = new_stream(gpu(0), 0);
        turn(POOL, gpu(0), gpu(1), given);
        begin(stream);
        options.stream = stream;
        CHECK_STATUS(warp_array_empty(gpu(0), F32, 1, &count, &options, &array), WARP_SUCCESS);
        EXPECT_ARRAY(gpu(0), array, SAME_DEVICE);
        expect_array_at(gpu(1), array, from_other, "in the capture", __LINE__);
        EXPECT_ARRAY(cpu(), array, DEVICE_MEMORY);
        turn(POOL, gpu(0), gpu(1), !given);
        expect_array_at(gpu(1), array, from_other, "changed meanwhile", __LINE__);
        graph = end(stream);
        expect_array_at(gpu(1), array, from_other, "before its launch", __LINE__);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        expect_array_at(gpu(1), array, from_other, "after its launch", __LINE__);
        EXPECT_ARRAY(gpu(0), array, SAME_DEVICE);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        drop(array);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_GONE();
}

/* ---- Another thread ---------------------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;
static int other_mode;

static void *capture_in_a_thread(void *device)
{
    warp_stream *stream = new_stream(device, 0);
    warp_graph *graph = NULL;
    CHECK_STATUS(warp_capture_begin(stream, other_mode), WARP_SUCCESS);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(captures_of_other_threads_are_not_disturbed_and_fix_nothing)
{
    size_t m;
    int device;
    struct set set;
    start_on("h200x2");
    set = make_set();
    pthread_barrier_init(&barrier, NULL, 2);
    for (m = 0; m < 3; ++m)
        for (device = 0; device < 2; ++device) {
            pthread_t thread;
            other_mode = modes[m];
            change(0, 0);
            pthread_create(&thread, NULL, capture_in_a_thread, gpu(device));
            pthread_barrier_wait(&barrier);
            ask_all(&set, 0, 0);
            change(1, 1);
            ask_all(&set, 1, 1);
            change(0, 0);
            ask_all(&set, 0, 0);
            pthread_barrier_wait(&barrier);
            pthread_join(thread, NULL);
        }
    drop_set(&set);
    CHECK_EQ_PTR(driver_current(), NULL);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(the_first_question_of_all_in_a_capture)
{
    /* Nobody asked about these peers before: memory to ask about may be made now, in whatever mode, and harms nothing. */
    size_t m;
    start_on("h200x2,gpus=6");
    for (m = 0; m < 6; ++m)
        context_of(gpu((int)m));
    for (m = 0; m < 3; ++m) {
        warp_stream *stream = new_stream(gpu(5), 0);
        warp_graph *graph = NULL;
        void *plain = block_of(gpu((int)m), 64, WARP_MEMORY_CUDA_DEVICE);
        void *theirs = foreign_plain(context_of(gpu((int)m + 1)), 64);
        CHECK_STATUS(warp_capture_begin(stream, modes[m]), WARP_SUCCESS);
        EXPECT_POINTER(gpu(5), plain, NO_PEER_ACCESS);
        EXPECT_POINTER(gpu(5), theirs, NO_PEER_ACCESS);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(to_do_what_the_message_says_makes_memory_of_a_graph_legal)
{
    int round;
    start_on("h200x2");
    for (round = 0; round < 2; ++round) {
        warp_stream *stream = new_stream(gpu(0), 0);
        warp_launch_argument argument = {.name = "x", .kind = WARP_LAUNCH_POINTER};
        warp_graph *graph;
        void *block;
        begin(stream);
        block = alloc_on("cuda:0", stream, 64);
        graph = end(stream);
        argument.value = block;
        CHECK_STATUS(check_launch(gpu(1), &argument, 1, WARP_LAUNCH_CHECKED),
                     round ? WARP_SUCCESS : WARP_ERROR_ACCESS_DENIED);
        if (!round) {
            CHECK_STR_CONTAINS(warp_error_get_message(),
                               "warp_mempool_access_set_enabled(\"cuda:0\", \"cuda:1\", 1) before the capture begins");
            turn(POOL, gpu(0), gpu(1), 1);
        }
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_GONE();
}

PROCESS_TEST(an_unwanted_launch_is_refused_and_the_capture_goes_on)
{
    /* AC-01, in a capture. */
    size_t m;
    struct set set;
    start_on("h200x2");
    set = make_set();
    for (m = 0; m < 3; ++m) {
        warp_stream *stream = new_stream(gpu(1), 0);
        warp_graph *graph = NULL;
        warp_launch_argument arguments[2] = {{.name = "x", .value = set.pinned, .kind = WARP_LAUNCH_POINTER},
                                             {.name = "y", .value = set.array, .kind = WARP_LAUNCH_ARRAY}};
        void *block;
        CHECK_STATUS(warp_capture_begin(stream, modes[m]), WARP_SUCCESS);
        CHECK_STATUS(check_launch(gpu(1), arguments, 2, WARP_LAUNCH_CHECKED), WARP_ERROR_ACCESS_DENIED);
        CHECK_STR_CONTAINS(warp_error_get_message(), "\"y\"");
        CHECK_STATUS(check_launch(gpu(1), arguments, 1, WARP_LAUNCH_CHECKED), WARP_SUCCESS);
        CHECK_STATUS(check_launch(gpu(1), arguments, 2, WARP_LAUNCH_STRICT), WARP_ERROR_ACCESS_DENIED);
        block = alloc_on("cuda:1", stream, 64);
        fill_byte(block, 7, 64, stream);
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK(holds(block, 7, 64, stream));
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    drop_set(&set);
}

CHECK_MAIN()
