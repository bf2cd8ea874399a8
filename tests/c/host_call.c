/*
 * host_call.c: functions that streams of GPUs call: in order, in captures and their graphs, when nothing will call them, and what
 * they may do.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"
#include "driver_without.h"

#include <pthread.h>

#define SIZE ((uint64_t)4096)

uint32_t cuCtxDestroy_v2(CUcontext context);

/* Calls of one function and its release. */
struct count {
    int calls, releases;
};

static void called(void *user)
{
    struct count *count = user;
    CHECK_EQ_I64(__atomic_load_n(&count->releases, __ATOMIC_SEQ_CST), 0);
    __atomic_add_fetch(&count->calls, 1, __ATOMIC_SEQ_CST);
}

static void released(void *user)
{
    __atomic_add_fetch(&((struct count *)user)->releases, 1, __ATOMIC_SEQ_CST);
}

static warp_status try_call(warp_stream *stream, struct count *count)
{
    return warp_stream_host_call(stream, called, count, released);
}

static void call(warp_stream *stream, struct count *count)
{
    CHECK_STATUS(try_call(stream, count), WARP_SUCCESS);
}

static void wait_for(warp_stream *stream)
{
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
}

#define CHECK_COUNT(count, made, gone)      \
    do {                                    \
        CHECK_EQ_I64((count).calls, made);  \
        CHECK_EQ_I64((count).releases, gone); \
    } while (0)

#define CHECK_SAYS(call, status, words)                      \
    do {                                                     \
        CHECK_STATUS(call, status);                          \
        CHECK_STR_CONTAINS(warp_error_get_message(), words); \
    } while (0)

static void end_of(warp_stream *stream)
{
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_clean();
}

/* ---- plain calls ----------------------------------------------------------------------------------------------------- */

PROCESS_TEST(a_function_is_called_once_when_the_stream_has_come_to_it)
{
    warp_stream *stream;
    struct count counts[3];
    start_on("h200x2");
    memset(counts, 0, sizeof counts);
    stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    CHECK_SAYS(warp_stream_host_call(stream, NULL, &counts[0], released), WARP_ERROR_INVALID_ARGUMENT, "NULL");
    CHECK_STATUS(warp_stream_host_call((warp_stream *)((uintptr_t)stream + 1), called, &counts[0], released), WARP_ERROR_INVALID_HANDLE);
    call(stream, &counts[0]);
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(stream)), 0);
    call(stream, &counts[1]);
    CHECK_COUNT(counts[1], 0, 0);
    wait_for(stream);
    CHECK_COUNT(counts[0], 1, 1);
    CHECK_COUNT(counts[1], 1, 1);
    CHECK_STATUS(warp_stream_host_call(stream, called, &counts[2], NULL), WARP_SUCCESS);
    wait_for(stream);
    CHECK_COUNT(counts[2], 1, 0);
    end_of(stream);
}

static const unsigned char *seen_by_function;
static int right, wrong;

/* The copy before it has brought 5; the one behind it takes 6 back. */
static void look_and_write(void *user)
{
    if (seen_by_function[SIZE - 1] == 5)
        ++right;
    else
        ++wrong;
    memset(user, 6, SIZE);
}

PROCESS_TEST(work_before_and_behind_a_function_is_in_order_in_every_schedule)
{
    uint64_t seed;
    start_on("h200x2");
    right = wrong = 0;
    for (seed = 0; seed < 300 && check_failure_count() == 0; ++seed) {
        warp_stream *stream, *other;
        void *block, *pinned = NULL;
        warp_graph *graph = NULL;
        int captured = seed % 2 == 1;
        SIMULATOR(warpsim_schedule)(seed);
        stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
        other = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
        block = alloc_on("cuda:0", stream, SIZE);
        CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &pinned), WARP_SUCCESS);
        memset(pinned, 0, SIZE);
        seen_by_function = pinned;
        if (captured)
            begin(stream);
        fill_byte(block, 5, SIZE, stream);
        CHECK_STATUS(warp_memory_copy(pinned, block, SIZE, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_host_call(stream, look_and_write, pinned, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(block, pinned, SIZE, stream), WARP_SUCCESS);
        if (captured) {
            graph = end(stream);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        }
        fill_byte(block, 1, 1, stream);
        CHECK_STATUS(warp_stream_wait_stream(other, stream), WARP_SUCCESS);
        CHECK(holds((char *)block + 1, 6, SIZE - 1, other));
        if (captured)
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(pinned), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    }
    CHECK_EQ_I64(wrong, 0);
    CHECK_EQ_I64(right, 150 + 2 * 150);
    SIMULATOR(warpsim_schedule)(0);
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    check_clean();
}

/* ---- captures -------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(a_graph_calls_in_each_run_and_releases_when_it_is_gone)
{
    warp_stream *stream;
    warp_graph *graph, *outer;
    struct count count;
    int which;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    for (which = 0; which < 4; ++which) {
        memset(&count, 0, sizeof count);
        begin(stream);
        call(stream, &count);
        if (which == 0) {
            /* Given up. */
            CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
            CHECK_COUNT(count, 0, 1);
            continue;
        }
        graph = end(stream);
        CHECK_COUNT(count, 0, 0);
        if (which == 1) {
            /* Never launched. */
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            CHECK_COUNT(count, 0, 1);
            continue;
        }
        if (which == 2) {
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(stream)), 0);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            CHECK_COUNT(count, 2, 0);
            wait_for(stream);
            CHECK_COUNT(count, 3, 1);
            continue;
        }
        /* As a part of another one. */
        begin(stream);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        outer = end(stream);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_COUNT(count, 0, 0);
        CHECK_STATUS(warp_graph_launch(outer, stream), WARP_SUCCESS);
        wait_for(stream);
        CHECK_COUNT(count, 1, 0);
        CHECK_STATUS(warp_graph_release(outer), WARP_SUCCESS);
        wait_for(stream);
        CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
        CHECK_COUNT(count, 1, 1);
    }
    end_of(stream);
}

PROCESS_TEST(a_capture_of_other_code_calls_too)
{
    warp_stream *stream;
    CUstream native;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    struct count count = {0, 0};
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    native = native_of(stream);
    CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native, 2), 0);
    call(stream, &count);
    CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native, &graph), 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphInstantiateWithFlags)(&exec, graph, 0), 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphLaunch)(exec, native), 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphLaunch)(exec, native), 0);
    wait_for(stream);
    CHECK_COUNT(count, 2, 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphExecDestroy)(exec), 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(graph), 0);
    wait_for(stream);
    CHECK_COUNT(count, 2, 1);
    end_of(stream);
}

struct on_thread {
    warp_stream *stream;
    struct count count;
    warp_status status;
    char message[512];
};

static void *call_there(void *argument)
{
    struct on_thread *there = argument;
    there->status = try_call(there->stream, &there->count);
    snprintf(there->message, sizeof there->message, "%s", there->status == 0 ? "" : warp_error_get_message());
    return NULL;
}

static struct on_thread call_on_another_thread(warp_stream *stream)
{
    struct on_thread there;
    pthread_t thread;
    memset(&there, 0, sizeof there);
    there.stream = stream;
    CHECK(pthread_create(&thread, NULL, call_there, &there) == 0);
    pthread_join(thread, NULL);
    return there;
}

static struct on_thread relaxed;

static void *call_relaxed(void *argument)
{
    (void)argument;
    return call_there(&relaxed);
}

PROCESS_TEST(another_threads_capture_is_left_alone_unless_it_is_relaxed)
{
    warp_stream *stream;
    warp_graph *graph;
    struct on_thread there;
    pthread_t thread;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    begin(stream);
    there = call_on_another_thread(stream);
    CHECK_STATUS(there.status, WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(there.message, "another thread");
    graph = end(stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    wait_for(stream);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_COUNT(there.count, 0, 0);
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_RELAXED), WARP_SUCCESS);
    relaxed.stream = stream;
    REQUIRE(pthread_create(&thread, NULL, call_relaxed, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_STATUS(relaxed.status, WARP_SUCCESS);
    graph = end(stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    wait_for(stream);
    CHECK_COUNT(relaxed.count, 2, 1);
    end_of(stream);
}

static int stop;
static warp_stream *contested;

static void *capture_now_and_then(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        warp_graph *graph = NULL;
        if (warp_capture_begin(contested, WARP_CAPTURE_THREAD_LOCAL) != WARP_SUCCESS)
            continue;
        if (warp_capture_end(contested, &graph) != WARP_SUCCESS)
            continue;
        CHECK_STATUS(warp_graph_launch(graph, contested), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    }
    return NULL;
}

PROCESS_TEST(calls_beside_begins_are_made_once_or_not_taken)
{
    enum { CALLS = 3000 };
    static struct count counts[CALLS];
    static warp_status statuses[CALLS];
    pthread_t thread;
    int i, taken = 0, calls = check_under("valgrind") ? 300 : CALLS;
    start_on("h200x2");
    contested = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    REQUIRE(pthread_create(&thread, NULL, capture_now_and_then, NULL) == 0);
    for (i = 0; i < calls; ++i)
        taken += (statuses[i] = try_call(contested, &counts[i])) == WARP_SUCCESS;
    /* On a busy machine the other thread may have been in the middle of one capture all the time: what was not taken is tried again. */
    for (i = 0; taken == 0 && i < 10000; ++i) {
        usleep(100);
        taken += (statuses[0] = try_call(contested, &counts[0])) == WARP_SUCCESS;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    wait_for(contested);
    for (i = 0; i < calls; ++i) {
        int ok = statuses[i] == WARP_SUCCESS;
        CHECK(ok || statuses[i] == WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_COUNT(counts[i], ok, ok);
        if (check_failure_count() != 0)
            break;
    }
    CHECK(taken > 0);
    end_of(contested);
}

/* ---- when it cannot be ----------------------------------------------------------------------------------------------- */

PROCESS_TEST(what_fails_is_not_taken)
{
    warp_stream *stream;
    struct count count = {0, 0}, before = {0, 0};
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    fail("cuLaunchHostFunc", 1, 2);
    CHECK_STATUS(try_call(stream, &count), WARP_ERROR_OUT_OF_MEMORY);
    clear();
    begin(stream);
    fail("cuLaunchHostFunc", 1, 999);
    CHECK_STATUS(try_call(stream, &count), WARP_ERROR_DRIVER);
    clear();
    CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
    CHECK_COUNT(count, 0, 0);
    /* After a fault nothing is called any more, neither this nor what waits. */
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(stream)), 0);
    call(stream, &before);
    fail("cuLaunchHostFunc", 1, 700);
    CHECK_STATUS(try_call(stream, &count), WARP_ERROR_DEVICE_LOST);
    clear();
    CHECK_COUNT(before, 0, 1);
    CHECK_COUNT(count, 0, 0);
    wait_for(stream);
    CHECK_COUNT(before, 0, 1);
    end_of(stream);
}

PROCESS_TEST(a_context_that_dies_takes_its_calls_along_and_they_are_released)
{
    CUcontext theirs;
    warp_device *lost = NULL;
    warp_stream *stream = NULL, *other;
    struct count held = {0, 0}, captured = {0, 0}, late = {0, 0}, living = {0, 0}, at_end = {0, 0};
    warp_graph *graph;
    int round;
    start_on("h200x2");
    other = make_stream("cuda:0", 0);
    for (round = 0; round < 2; ++round) {
        theirs = driver_foreign(1);
        CHECK_STATUS(warp_device_from_context(theirs, NULL, &lost), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_create(lost, NULL, &stream), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(stream)), 0);
        if (round == 0) {
            begin(stream);
            call(stream, &captured);
            graph = end(stream);
            call(stream, &held);
            CHECK_EQ_U64(SIMULATOR(cuCtxDestroy_v2)(theirs), 0);
            CHECK_STATUS(try_call(stream, &late), WARP_ERROR_DEVICE_LOST);
            CHECK_COUNT(held, 0, 1);
            CHECK_COUNT(late, 0, 0);
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
            CHECK_COUNT(captured, 0, 1);
        } else {
            /* Nobody asks: the shutdown finds out. */
            call(stream, &at_end);
            CHECK_EQ_U64(SIMULATOR(cuCtxDestroy_v2)(theirs), 0);
            CHECK_STATUS(warp_device_synchronize(lost), WARP_ERROR_DEVICE_LOST);
            CHECK_COUNT(at_end, 0, 0);
        }
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(other)), 0);
    call(other, &living);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_COUNT(at_end, 0, 1);
    /* What is on a stream of a living context is called yet. */
    CHECK_COUNT(living, 0, 0);
    SIMULATOR(warpsim_release_all)();
    CHECK_COUNT(living, 1, 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(a_driver_without_host_functions_says_so)
{
    char copy[256];
    struct count count = {0, 0}, on_cpu = {0, 0};
    warp_stream *stream, *cpu = NULL;
    REQUIRE(process_make_file(copy, sizeof copy));
    REQUIRE(driver_without("cuLaunchHostFunc", copy));
    setenv("WARPMEM_LIBCUDA", copy, 1);
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    CHECK_STATUS(try_call(stream, &count), WARP_ERROR_NOT_SUPPORTED);
    CHECK_COUNT(count, 0, 0);
    CHECK_STATUS(warp_stream_get_current(device("cpu"), &cpu), WARP_SUCCESS);
    call(cpu, &on_cpu);
    CHECK_COUNT(on_cpu, 1, 1);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    unlink(copy);
}

/* ---- what a function may do ------------------------------------------------------------------------------------------- */

struct things {
    warp_stream *stream, *other;
    warp_graph *graph;
    warp_event *event;
    void *host, *pool, *plain;
    int done;
};

static void try_everything(void *user)
{
    struct things *of = user;
    void *block = NULL;
    unsigned char *mine = NULL;
    warp_stream *stream = NULL;
    warp_graph *graph = NULL;
    uint8_t flag = 0;
    int i;
    warp_graph_info graph_info = {.struct_size = sizeof graph_info};
    warp_capture_info capture = {.struct_size = sizeof capture};
    struct count nested = {0, 0};
    warp_stream *cpu = NULL;
    /* Of the CPU: as ever, captures included. */
    for (i = 0; i < 40; ++i) {
        CHECK_STATUS(warp_alloc(device("cpu"), SIZE, (void **)&mine), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(mine, SIZE, "\7", 1, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(of->host, mine, SIZE, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_free(mine), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_stream_get_current(device("cpu"), &cpu), WARP_SUCCESS);
    begin(cpu);
    CHECK_STATUS(warp_memory_fill(of->host, 1, "\1", 1, NULL), WARP_SUCCESS);
    graph = end(cpu);
    CHECK_STATUS(warp_graph_launch(graph, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    /* Of GPUs: an error, and no more. */
    CHECK(warp_alloc(device("cuda:0"), SIZE, &block) != WARP_SUCCESS);
    CHECK(try_alloc("cuda:0", of->stream, WARP_MEMORY_CUDA_DEVICE, SIZE, &block) != WARP_SUCCESS);
    CHECK(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &block) != WARP_SUCCESS);
    CHECK_STR_CONTAINS(warp_error_get_message(), "host function");
    CHECK(warp_memory_fill(of->pool, SIZE, "\1", 1, of->stream) != WARP_SUCCESS);
    CHECK(warp_memory_copy(of->pool, of->host, SIZE, of->stream) != WARP_SUCCESS);
    CHECK(warp_stream_synchronize(of->stream) != WARP_SUCCESS);
    CHECK(warp_stream_synchronize(of->other) != WARP_SUCCESS);
    CHECK(warp_stream_query_idle(of->stream, &flag) != WARP_SUCCESS);
    CHECK(warp_device_synchronize(device("cuda:0")) != WARP_SUCCESS);
    CHECK(warp_stream_create(device("cuda:0"), NULL, &stream) != WARP_SUCCESS);
    CHECK(warp_capture_begin(of->other, WARP_CAPTURE_RELAXED) != WARP_SUCCESS);
    CHECK(warp_capture_end(of->other, &graph) != WARP_SUCCESS);
    CHECK(warp_capture_query_info(of->other, &capture) != WARP_SUCCESS);
    CHECK(warp_graph_launch(of->graph, of->other) != WARP_SUCCESS);
    CHECK(warp_graph_get_info(of->graph, &graph_info) != WARP_SUCCESS);
    CHECK(warp_event_record(of->event, of->other) != WARP_SUCCESS);
    CHECK(warp_event_synchronize(of->event) != WARP_SUCCESS);
    CHECK(warp_stream_wait_event(of->other, of->event) != WARP_SUCCESS);
    CHECK(try_call(of->other, &nested) != WARP_SUCCESS);
    CHECK_COUNT(nested, 0, 0);
    CHECK(warp_free(of->pool) != WARP_SUCCESS);
    CHECK(warp_free(of->plain) != WARP_SUCCESS);
    ++of->done;
}

PROCESS_TEST(a_function_uses_the_cpu_and_is_refused_all_of_gpus)
{
    struct things of;
    void *parked[8], *pinned = NULL;
    warp_stream *busy;
    int captured, i;
    start_on("h200x2");
    for (captured = 0; captured < 2; ++captured) {
        warp_graph *graph = NULL;
        memset(&of, 0, sizeof of);
        of.stream = make_stream("cuda:0", 0);
        of.other = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
        busy = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
        of.pool = alloc_on("cuda:0", of.stream, SIZE);
        CHECK_STATUS(try_alloc("cuda:0", of.stream, WARP_MEMORY_CUDA_DEVICE, SIZE, &of.plain), WARP_SUCCESS);
        CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_HOST, SIZE, &of.host), WARP_SUCCESS);
        CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &pinned), WARP_SUCCESS);
        CHECK_STATUS(warp_event_create(device("cuda:0"), NULL, &of.event), WARP_SUCCESS);
        begin(of.other);
        fill_byte(of.pool, 1, SIZE, of.other);
        of.graph = end(of.other);
        /* Frees that wait: the function's calls look at none of them. */
        CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(busy)), 0);
        for (i = 0; i < 8; ++i) {
            CHECK_STATUS(try_alloc("cuda:0", busy, WARP_MEMORY_CUDA_DEVICE, SIZE, &parked[i]), WARP_SUCCESS);
            fill_byte(parked[i], 1, SIZE, busy);
            CHECK_STATUS(warp_free(parked[i]), WARP_SUCCESS);
        }
        CHECK_EQ_U64(live("default"), 9);
        if (captured)
            begin(of.stream);
        CHECK_STATUS(warp_stream_host_call(of.stream, try_everything, &of, NULL), WARP_SUCCESS);
        if (captured) {
            graph = end(of.stream);
            CHECK_STATUS(warp_graph_launch(graph, of.stream), WARP_SUCCESS);
        }
        wait_for(of.stream);
        CHECK_EQ_I64(of.done, 1);
        CHECK(((unsigned char *)of.host)[0] == 1 && ((unsigned char *)of.host)[1] == 7);
        CHECK_EQ_U64(live("default"), 9);
        wait_for(busy);
        /* Everything works as before. */
        CHECK_STATUS(warp_graph_launch(of.graph, of.other), WARP_SUCCESS);
        wait_for(of.other);
        CHECK(holds(of.pool, 1, SIZE, of.other));
        CHECK_STATUS(warp_free(of.pool), WARP_SUCCESS);
        CHECK_STATUS(warp_free(of.plain), WARP_SUCCESS);
        CHECK_STATUS(warp_free(of.host), WARP_SUCCESS);
        CHECK_STATUS(warp_free(pinned), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(of.graph), WARP_SUCCESS);
        if (captured)
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_event_release(of.event), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(of.other), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(busy), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(busy), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
        CHECK_EQ_U64(live("default"), 0);
        end_of(of.stream);
    }
}

CHECK_MAIN()
