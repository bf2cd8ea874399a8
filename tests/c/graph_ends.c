/*
 * graph_ends.c: the end of everything while captures go on and graphs run: exit, shutdown, fork, and a GPU whose context dies.
 * No crash, no hang, frees are quiet, and what the library kept is given back.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"
#include "forked.h"

#include <pthread.h>
#include <semaphore.h>

#define SIZE ((uint64_t)1 << 16)
#define U8 (warp_dtype_make(WARP_DTYPE_UINT, 8))

/* A graph with a block of its own that keeps blocks of other kinds, which were freed, and wrapped memory. */
struct rich {
    warp_stream *stream;
    warp_graph *graph;
    void *block, *inner;
    int deleted;
    char wrapped[64];
};

static void deleter(void *user, void *ptr, uint64_t size)
{
    (void)ptr;
    (void)size;
    ++*(int *)user;
}

static void begin_rich(struct rich *rich)
{
    static const int64_t shape[] = {64};
    warp_array_wrap_options options = {.struct_size = sizeof options, .deleter = deleter, .deleter_user = &rich->deleted};
    warp_array *array = NULL;
    void *pool, *host = NULL, *pinned = NULL;
    memset(rich, 0, sizeof *rich);
    rich->stream = make_stream("cuda:0", 0);
    pool = alloc_on("cuda:0", rich->stream, SIZE);
    CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_HOST, SIZE, &host), WARP_SUCCESS);
    CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &pinned), WARP_SUCCESS);
    memset(host, 3, SIZE);
    memset(pinned, 4, SIZE);
    CHECK_STATUS(warp_array_wrap(device("cpu"), rich->wrapped, U8, 1, shape, &options, &array), WARP_SUCCESS);
    begin(rich->stream);
    rich->block = alloc_on("cuda:0", rich->stream, SIZE);
    rich->inner = alloc_on("cuda:0", rich->stream, SIZE);
    CHECK_STATUS(warp_memory_copy(rich->block, host, SIZE, rich->stream), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(pool, pinned, SIZE, rich->stream), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_fill(rich->inner, 15, "abcde", 5, rich->stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(rich->inner), WARP_SUCCESS);
    CHECK_STATUS(warp_free(host), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pinned), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    {
        warp_array *onto = NULL;
        CHECK_STATUS(warp_array_wrap(device("cuda:0"), rich->block, U8, 1, shape, NULL, &onto), WARP_SUCCESS);
        CHECK_STATUS(warp_array_copy(onto, array, 0, 0, 0, rich->stream), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(onto), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    CHECK_EQ_I64(rich->deleted, 0);
}

static void make_rich(struct rich *rich)
{
    begin_rich(rich);
    rich->graph = end(rich->stream);
}

static void hold(warp_stream *stream)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(stream)), 0);
}

/* ---- exit ---- */

PROCESS_TEST(an_exit_without_a_release_is_quiet)
{
    static struct rich whole, ran, running, capturing;
    start_on("h200x2");
    make_rich(&whole);
    make_rich(&ran);
    CHECK_STATUS(warp_graph_launch(ran.graph, ran.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(ran.stream), WARP_SUCCESS);
    make_rich(&running);
    hold(running.stream);
    CHECK_STATUS(warp_graph_launch(running.graph, running.stream), WARP_SUCCESS);
    begin_rich(&capturing);
}

static struct rich at_exit;

static void late(void)
{
    int failed = 0;
    failed |= warp_free(at_exit.block) != WARP_SUCCESS;
    warp_graph_release(at_exit.graph);
    warp_capture_abandon(at_exit.stream);
    warp_graph_launch(at_exit.graph, at_exit.stream);
    failed |= at_exit.deleted != 0;
    if (failed)
        fprintf(stderr, "late calls failed\n");
}

PROCESS_TEST(calls_from_a_handler_at_exit_are_quiet)
{
    atexit(late);
    start_on("h200x2");
    make_rich(&at_exit);
    CHECK_STATUS(warp_graph_launch(at_exit.graph, at_exit.stream), WARP_SUCCESS);
}

PROCESS_TEST(a_driver_that_is_gone_is_survived)
{
    struct rich rich, capturing;
    start_on("h200x2");
    make_rich(&rich);
    CHECK_STATUS(warp_graph_launch(rich.graph, rich.stream), WARP_SUCCESS);
    begin_rich(&capturing);
    SIMULATOR(warpsim_deinitialize)();
    CHECK_STATUS(warp_free(rich.block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(capturing.block), WARP_SUCCESS);
    CHECK(warp_graph_launch(rich.graph, rich.stream) != WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(rich.graph), WARP_SUCCESS);
    CHECK(warp_capture_end(capturing.stream, &capturing.graph) != WARP_SUCCESS);
    CHECK_EQ_PTR(capturing.graph, NULL);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* ---- shutdown ---- */

PROCESS_TEST(a_shutdown_while_a_graph_runs_leaves_the_run_what_it_uses)
{
    struct rich rich;
    start_on("h200x2");
    make_rich(&rich);
    CHECK_STATUS(warp_graph_launch(rich.graph, rich.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(rich.stream), WARP_SUCCESS);
    hold(rich.stream);
    CHECK_STATUS(warp_graph_launch(rich.graph, rich.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(rich.graph), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_I64(rich.deleted, 0);
    CHECK_EQ_U64(live("pool"), 1);
    CHECK_EQ_U64(live("pinned"), 1);
    CHECK_STATUS(warp_free(rich.block), WARP_SUCCESS);
    CHECK(live("graph_block") != 0);
    SIMULATOR(warpsim_release_all)();
    SIMULATOR(warpsim_run)(0);
    /* A later life of the library looks. */
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    graph_memory_after_trim();
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    CHECK_EQ_I64(rich.deleted, 1);
    check_clean();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

PROCESS_TEST(a_shutdown_with_whole_graphs_gives_back_what_they_keep)
{
    struct rich idle, ran;
    start_on("h200x2");
    make_rich(&idle);
    make_rich(&ran);
    CHECK_STATUS(warp_graph_launch(ran.graph, ran.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(ran.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_I64(idle.deleted, 1);
    CHECK_EQ_I64(ran.deleted, 1);
    CHECK_EQ_U64(live("pool"), 0);
    CHECK_EQ_U64(live("pinned"), 0);
    CHECK_STATUS(warp_free(idle.block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ran.block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ran.block), WARP_ERROR_DOUBLE_FREE);
    check_clean();
}

static int called_back;

static void call_back_in(void *user, void *ptr, uint64_t size)
{
    (void)ptr;
    (void)size;
    ++called_back;
    CHECK_STATUS(warp_free(user), WARP_SUCCESS);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

PROCESS_TEST(a_deleter_that_a_shutdown_calls_for_a_graph_may_call_back_in)
{
    static const int64_t shape[] = {64};
    static char memory[64];
    int capturing;
    alarm(30);
    for (capturing = 0; capturing < 2; ++capturing) {
        warp_array_wrap_options options = {.struct_size = sizeof options, .deleter = call_back_in};
        warp_array *array = NULL;
        warp_stream *stream;
        void *to;
        start_on("h200x2");
        stream = make_stream("cuda:0", 0);
        to = alloc_on("cuda:0", stream, SIZE);
        CHECK_STATUS(warp_alloc(device("cpu"), SIZE, &options.deleter_user), WARP_SUCCESS);
        CHECK_STATUS(warp_array_wrap(device("cpu"), memory, U8, 1, shape, &options, &array), WARP_SUCCESS);
        begin(stream);
        CHECK_STATUS(warp_memory_copy(to, memory, 64, stream), WARP_SUCCESS);
        if (capturing) {
            warp_array *onto = NULL;
            CHECK_STATUS(warp_array_wrap(device("cuda:0"), to, U8, 1, shape, NULL, &onto), WARP_SUCCESS);
            CHECK_STATUS(warp_array_copy(onto, array, 0, 0, 0, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_array_release(onto), WARP_SUCCESS);
        } else
            CHECK_STATUS(warp_graph_retain_array(end(stream), array), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
        CHECK_EQ_I64(called_back, capturing);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_EQ_I64(called_back, capturing + 1);
        CHECK_STATUS(warp_free(to), WARP_SUCCESS);
        CHECK_EQ_U64(live("*"), 0);
    }
}

static struct {
    sem_t captures, over;
    warp_capture_mode mode;
    struct rich rich;
} other;

static void *capture_over_a_shutdown(void *argument)
{
    warp_graph *graph = (warp_graph *)1;
    begin_rich(&other.rich);
    sem_post(&other.captures);
    sem_wait(&other.over);
    CHECK(warp_capture_end(other.rich.stream, &graph) != WARP_SUCCESS);
    CHECK_EQ_PTR(graph, NULL);
    CHECK_STATUS(warp_free(other.rich.block), WARP_SUCCESS);
    return argument;
}

PROCESS_TEST(a_shutdown_in_another_threads_capture_loses_nothing)
{
    pthread_t thread;
    start_on("h200x2");
    sem_init(&other.captures, 0, 0);
    sem_init(&other.over, 0, 0);
    REQUIRE(pthread_create(&thread, NULL, capture_over_a_shutdown, NULL) == 0);
    sem_wait(&other.captures);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    sem_post(&other.over);
    pthread_join(thread, NULL);
    /* The native capture is that thread's, and goes with the process. */
    CHECK_EQ_I64(other.rich.deleted, 1);
    CHECK_EQ_U64(live("pinned"), 0);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

/* ---- fork ---- */

static void in_the_child(void *argument)
{
    struct rich *rich = argument;
    warp_graph *graph = (warp_graph *)1;
    warp_capture_info capture = {.struct_size = sizeof capture};
    uint64_t calls = SIMULATOR(warpsim_call_count)("*");
    int i;
    use_cpu();
    check_forked();
    for (i = 0; i < 3; ++i) {
        CHECK_STATUS(warp_graph_launch(rich[i].graph, rich[i].stream), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_capture_begin(rich[i].stream, WARP_CAPTURE_RELAXED), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_capture_end(rich[i].stream, &graph), WARP_ERROR_FORKED);
        CHECK_EQ_PTR(graph, NULL);
        CHECK_STATUS(warp_capture_abandon(rich[i].stream), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_capture_query_info(rich[i].stream, &capture), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_free(rich[i].block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(rich[i].block), WARP_ERROR_DOUBLE_FREE);
        CHECK_STATUS(warp_graph_release(rich[i].graph), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(rich[3].block), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("*"), calls);
    for (i = 0; i < 4; ++i)
        CHECK_EQ_I64(rich[i].deleted, 0);
}

PROCESS_TEST(a_child_has_no_graphs_and_the_parents_go_on)
{
    struct rich rich[4];
    int i;
    start_on("h200x2");
    for (i = 0; i < 3; ++i)
        make_rich(&rich[i]);
    CHECK_STATUS(warp_graph_launch(rich[1].graph, rich[1].stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(rich[1].stream), WARP_SUCCESS);
    hold(rich[2].stream);
    CHECK_STATUS(warp_graph_launch(rich[2].graph, rich[2].stream), WARP_SUCCESS);
    begin_rich(&rich[3]);
    in_child(in_the_child, rich, 60);
    SIMULATOR(warpsim_release_all)();
    rich[3].graph = end(rich[3].stream);
    for (i = 0; i < 4; ++i) {
        CHECK_STATUS(warp_graph_launch(rich[i].graph, rich[i].stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(rich[i].stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(rich[i].graph), WARP_SUCCESS);
        CHECK_STATUS(warp_free(rich[i].block), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(rich[i].stream), WARP_SUCCESS);
    }
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    for (i = 0; i < 4; ++i)
        CHECK_EQ_I64(rich[i].deleted, 1);
    check_clean();
}

/* ---- a context that dies ---- */

static void lose(struct rich *rich, int capturing)
{
    warp_graph *graph = (warp_graph *)1;
    void *block = (void *)1;
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    if (capturing) {
        CHECK_STATUS(warp_capture_end(rich->stream, &graph), WARP_ERROR_DEVICE_LOST);
        CHECK_EQ_PTR(graph, NULL);
        CHECK(warp_capture_end(rich->stream, &graph) != WARP_SUCCESS);
    } else {
        CHECK_STATUS(warp_graph_launch(rich->graph, rich->stream), WARP_ERROR_DEVICE_LOST);
        CHECK_STATUS(warp_graph_launch(rich->graph, rich->stream), WARP_ERROR_DEVICE_LOST);
    }
    CHECK_STATUS(warp_capture_begin(rich->stream, WARP_CAPTURE_GLOBAL), WARP_ERROR_DEVICE_LOST);
    CHECK(try_alloc("cuda:0", rich->stream, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &block) != WARP_SUCCESS);
    CHECK_EQ_PTR(block, NULL);
    CHECK_STATUS(warp_memory_fill(rich->block, 1, "x", 1, NULL), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_free(rich->block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(rich->block), WARP_ERROR_DOUBLE_FREE);
    CHECK_STATUS(warp_graph_release(rich->graph), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(rich->stream), WARP_SUCCESS);
    /* Calls on the other GPU look at what is parked. */
    block = alloc_on("cuda:1", NULL, SIZE);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_trim_memory(device("cuda:1")), WARP_SUCCESS);
    CHECK_EQ_I64(rich->deleted, 1);
    CHECK_EQ_U64(live("pinned"), 0);
    CHECK_EQ_U64(live("pool"), 0); /* which another context of the GPU gave back */
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_context_that_dies_takes_a_capture_with_it)
{
    struct rich rich;
    start_on("h200x2");
    begin_rich(&rich);
    lose(&rich, 1);
}

PROCESS_TEST(a_context_that_dies_in_a_capture_that_is_given_up)
{
    struct rich rich;
    start_on("h200x2");
    begin_rich(&rich);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    warp_capture_abandon(rich.stream);
    CHECK_STATUS(warp_free(rich.block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(rich.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_trim_memory(device("cuda:1")), WARP_SUCCESS);
    CHECK_EQ_I64(rich.deleted, 1);
}

PROCESS_TEST(a_context_that_dies_in_a_paused_capture)
{
    struct rich rich;
    start_on("h200x2");
    begin_rich(&rich);
    CHECK_STATUS(warp_capture_pause(rich.stream), WARP_SUCCESS);
    lose(&rich, 1);
}

PROCESS_TEST(a_context_that_dies_takes_a_whole_graph_with_it)
{
    struct rich rich;
    start_on("h200x2");
    make_rich(&rich);
    lose(&rich, 0);
}

PROCESS_TEST(a_context_that_dies_takes_a_graph_that_ran_with_it)
{
    struct rich rich;
    start_on("h200x2");
    make_rich(&rich);
    CHECK_STATUS(warp_graph_launch(rich.graph, rich.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(rich.stream), WARP_SUCCESS);
    lose(&rich, 0);
}

PROCESS_TEST(a_context_that_dies_takes_a_run_with_it)
{
    struct rich rich;
    start_on("h200x2");
    make_rich(&rich);
    hold(rich.stream);
    CHECK_STATUS(warp_graph_launch(rich.graph, rich.stream), WARP_SUCCESS);
    lose(&rich, 0);
}

PROCESS_TEST(a_context_that_dies_under_a_run_of_a_released_graph)
{
    struct rich rich;
    int freed_first;
    start_on("h200x2");
    make_rich(&rich);
    freed_first = 1;
    hold(rich.stream);
    CHECK_STATUS(warp_graph_launch(rich.graph, rich.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(rich.graph), WARP_SUCCESS);
    if (freed_first)
        CHECK_STATUS(warp_free(rich.block), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    CHECK_STATUS(warp_stream_release(rich.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_trim_memory(device("cuda:1")), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_trim_memory(device("cuda:1")), WARP_SUCCESS);
    CHECK_EQ_I64(rich.deleted, 1);
    CHECK_EQ_U64(live("pinned"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

CHECK_MAIN()
