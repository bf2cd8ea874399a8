/*
 * cpu_capture_threads.c: captures and graphs of the CPU on many threads, on threads that end, over shutdowns.
 *
 * topology: h200x2
 * topology: -
 */
#include "cpu_captures.h"

#include <pthread.h>

#define SIZE ((uint64_t)1 << 12)

/* Waits until a number that another thread changes is so. */
static void await(const int *number, int value)
{
    int i;
    for (i = 0; i < 20000 && __atomic_load_n(number, __ATOMIC_SEQ_CST) != value; ++i)
        usleep(1000);
    CHECK_EQ_I64(__atomic_load_n(number, __ATOMIC_SEQ_CST), value);
}

/* ---- threads on their own ------------------------------------------------------------------------------------------- */

static void *capture_and_launch(void *argument)
{
    unsigned char number = (unsigned char)(uintptr_t)argument;
    int round;
    for (round = 0; round < 30; ++round) {
        unsigned char *a = host_block(SIZE), *b, temporary[64];
        warp_graph *graph, *inner;
        int calls = 0;
        memset(a, 0, SIZE);
        begin();
        fill(a, number, SIZE);
        inner = end();
        begin();
        b = host_block(SIZE);
        memset(temporary, number + 1, sizeof temporary);
        launch(inner);
        copy(b, a, SIZE);
        copy(b + 64, temporary, 64);
        call_on_cpu(count_up, &calls);
        memset(temporary, 0, sizeof temporary);
        CHECK(all_are(a, 0, SIZE));
        graph = end();
        release(inner);
        free_block(a);
        launch(graph);
        launch(graph);
        CHECK(all_are(b, number, 64) && all_are(b + 64, (unsigned char)(number + 1), 64));
        CHECK(all_are(b + 128, number, SIZE - 128));
        CHECK_EQ_I64(calls, 2);
        free_block(b);
        release(graph);
    }
    return NULL;
}

TEST(eight_threads_capture_and_launch_each_its_own)
{
    pthread_t threads[8];
    unsigned char *block;
    warp_graph *graph;
    uintptr_t i;
    start();
    release_count = 0;
    block = host_block(SIZE);
    memset(block, 0, SIZE);
    /* This one goes on meanwhile, and has nothing of theirs. */
    begin();
    fill(block, 1, 8);
    for (i = 0; i < 8; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, capture_and_launch, (void *)(10 * i + 1)) == 0);
    for (i = 0; i < 8; ++i)
        pthread_join(threads[i], NULL);
    graph = end();
    launch(graph);
    CHECK(all_are(block, 1, 8) && all_are(block + 8, 0, SIZE - 8));
    release(graph);
    CHECK_EQ_I64(released_now(), 8 * 30);
    free_block(block);
    finish();
}

/* ---- one graph on several threads ------------------------------------------------------------------------------------ */

static int inside, overlaps, runs;

static void stay_a_while(void *user)
{
    (void)user;
    if (__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST) != 1)
        __atomic_add_fetch(&overlaps, 1, __ATOMIC_SEQ_CST);
    usleep(300);
    __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&runs, 1, __ATOMIC_SEQ_CST);
}

static void *launch_forty_times(void *graph)
{
    int i;
    for (i = 0; i < 40; ++i)
        launch(graph);
    return NULL;
}

TEST(runs_of_one_graph_never_overlap)
{
    pthread_t threads[4];
    warp_graph *graph;
    int i;
    start();
    inside = overlaps = runs = release_count = 0;
    begin();
    call_on_cpu(stay_a_while, NULL);
    graph = end();
    for (i = 0; i < 4; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, launch_forty_times, graph) == 0);
    for (i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    CHECK_EQ_I64(overlaps, 0);
    CHECK_EQ_I64(runs, 160);
    release(graph);
    CHECK_EQ_I64(released_now(), 1);
    finish();
}

TEST(nor_do_runs_of_graphs_that_have_it_as_a_part)
{
    pthread_t threads[3];
    warp_graph *graphs[3];
    int i;
    start();
    inside = overlaps = runs = release_count = 0;
    begin();
    call_on_cpu(stay_a_while, NULL);
    graphs[0] = end();
    for (i = 1; i < 3; ++i) {
        begin();
        launch(graphs[0]);
        launch(graphs[0]);
        graphs[i] = end();
    }
    for (i = 0; i < 3; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, launch_forty_times, graphs[i]) == 0);
    for (i = 0; i < 3; ++i)
        pthread_join(threads[i], NULL);
    CHECK_EQ_I64(overlaps, 0);
    CHECK_EQ_I64(runs, 40 + 2 * 80);
    for (i = 0; i < 3; ++i)
        release(graphs[i]);
    CHECK_EQ_I64(released_now(), 1);
    finish();
}

static void *launch_until_stale(void *graph)
{
    warp_status status;
    int count = 0;
    while ((status = warp_graph_launch(graph, NULL)) == WARP_SUCCESS)
        ++count;
    CHECK_STATUS(status, WARP_ERROR_INVALID_HANDLE);
    return NULL;
}

TEST(a_graph_is_released_while_threads_launch_it)
{
    int round;
    start();
    for (round = 0; round < 30; ++round) {
        pthread_t threads[4];
        warp_graph *graph;
        unsigned char *block = host_block(SIZE);
        int i, calls = 0;
        release_count = 0;
        begin();
        fill(block, 3, SIZE);
        call_on_cpu(count_up, &calls);
        graph = end();
        free_block(block);
        for (i = 0; i < 4; ++i)
            REQUIRE(pthread_create(&threads[i], NULL, launch_until_stale, graph) == 0);
        while (__atomic_load_n(&calls, __ATOMIC_SEQ_CST) < 20)
            ;
        release(graph);
        for (i = 0; i < 4; ++i)
            pthread_join(threads[i], NULL);
        /* It may have ended in a call that was late; the next one looks after what it has left. */
        begin();
        CHECK_STATUS(warp_capture_abandon(cpu_stream()), WARP_SUCCESS);
        CHECK_EQ_I64(released_now(), 1);
    }
    finish();
}

struct circle {
    warp_graph *graphs[2];
    int arrived, busy, done;
};

static struct circle circle;

static void launch_the_other(void *user)
{
    int which = (int)(uintptr_t)user;
    warp_status status;
    if (__atomic_add_fetch(&circle.arrived, 1, __ATOMIC_SEQ_CST) <= 2)
        await(&circle.arrived, 2);
    status = warp_graph_launch(circle.graphs[!which], NULL);
    if (status == WARP_ERROR_BUSY)
        __atomic_add_fetch(&circle.busy, 1, __ATOMIC_SEQ_CST);
    else
        /* The other's function launches the graph that is running here. */
        CHECK_STATUS(status, WARP_SUCCESS);
}

static void *launch_first(void *which)
{
    launch(circle.graphs[(uintptr_t)which]);
    __atomic_add_fetch(&circle.done, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void launch_other_quietly(void *user)
{
    int which = (int)(uintptr_t)user;
    if (__atomic_load_n(&circle.arrived, __ATOMIC_SEQ_CST) >= 2) {
        warp_status status = warp_graph_launch(circle.graphs[!which], NULL);
        CHECK(status == WARP_SUCCESS || status == WARP_ERROR_BUSY || status == WARP_ERROR_ILLEGAL_IN_CAPTURE);
        if (status == WARP_ERROR_BUSY)
            __atomic_add_fetch(&circle.busy, 1, __ATOMIC_SEQ_CST);
    } else {
        launch_the_other(user);
    }
}

TEST(threads_that_would_wait_for_each_other_are_told)
{
    int round;
    start();
    for (round = 0; round < 20; ++round) {
        pthread_t threads[2];
        uintptr_t i;
        memset(&circle, 0, sizeof circle);
        for (i = 0; i < 2; ++i) {
            begin();
            CHECK_STATUS(warp_stream_host_call(cpu_stream(), launch_other_quietly, (void *)i, NULL), WARP_SUCCESS);
            circle.graphs[i] = end();
        }
        for (i = 0; i < 2; ++i)
            REQUIRE(pthread_create(&threads[i], NULL, launch_first, (void *)i) == 0);
        for (i = 0; i < 2; ++i)
            pthread_join(threads[i], NULL);
        CHECK_EQ_I64(circle.done, 2);
        CHECK(circle.busy >= 1);
        release(circle.graphs[0]);
        release(circle.graphs[1]);
    }
    finish();
}

/* ---- in the middle of a run ----------------------------------------------------------------------------------------------- */

static struct {
    warp_graph *graph;
    unsigned char *used, *named;
    int running, done;
} middle;

static void wait_in_the_middle(void *user)
{
    (void)user;
    __atomic_store_n(&middle.running, 1, __ATOMIC_SEQ_CST);
    await(&middle.done, 1);
}

static void *use_everything_meanwhile(void *unused)
{
    warp_graph_info info = {.struct_size = sizeof info};
    warp_graph *other;
    unsigned char *block;
    int calls = 0, i;
    (void)unused;
    await(&middle.running, 1);
    CHECK_STATUS(warp_graph_get_info(middle.graph, &info), WARP_SUCCESS);
    CHECK_EQ_I64(info.is_launched, 1);
    CHECK_STATUS(warp_graph_retain(middle.graph, middle.named), WARP_SUCCESS);
    free_block(middle.named);
    free_block(middle.used);
    for (i = 0; i < 20; ++i) {
        begin();
        block = host_block(SIZE);
        fill(block, 1, SIZE);
        launch(middle.graph); /* recorded */
        call_on_cpu(count_up, &calls);
        other = end();
        free_block(block);
        release(other);
        begin();
        call_on_cpu(count_up, &calls);
        other = end();
        launch(other);
        release(other);
    }
    CHECK_EQ_I64(calls, 20);
    release(middle.graph);
    __atomic_store_n(&middle.done, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

TEST(a_function_in_a_run_keeps_no_other_call_waiting)
{
    pthread_t thread;
    start();
    memset(&middle, 0, sizeof middle);
    release_count = 0;
    middle.used = host_block(SIZE);
    middle.named = host_block(SIZE);
    begin();
    call_on_cpu(wait_in_the_middle, NULL);
    fill(middle.used, 8, SIZE);
    middle.graph = end();
    REQUIRE(pthread_create(&thread, NULL, use_everything_meanwhile, NULL) == 0);
    launch(middle.graph);
    pthread_join(thread, NULL);
    CHECK_EQ_I64(released_now(), 1 + 2 * 20);
    finish();
}

/* ---- threads that end ------------------------------------------------------------------------------------------------ */

static void *capture_and_leave(void *block)
{
    begin();
    fill(block, 1, SIZE);
    call_on_cpu(count_up, block);
    begin();
    call_on_cpu(count_up, block);
    CHECK_STATUS(warp_capture_pause(cpu_stream()), WARP_SUCCESS);
    free_block(block);
    return NULL;
}

TEST(what_a_thread_captured_when_it_ended_is_given_up)
{
    pthread_t thread;
    warp_graph *graph;
    int round;
    start();
    for (round = 0; round < 5; ++round) {
        unsigned char *block = host_block(SIZE);
        release_count = 0;
        memset(block, 0, SIZE);
        REQUIRE(pthread_create(&thread, NULL, capture_and_leave, block) == 0);
        pthread_join(thread, NULL);
        CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_NONE);
        /* A call that looks after what was freed. */
        begin();
        CHECK_EQ_I64(released_now(), 2);
        graph = end();
        release(graph);
    }
    finish();
}

/* ---- shutdowns ------------------------------------------------------------------------------------------------------- */

static int stage;

static void *capture_over_a_shutdown(void *unused)
{
    warp_graph *graph;
    unsigned char *block = host_block(SIZE);
    (void)unused;
    memset(block, 0, SIZE);
    begin();
    begin();
    fill(block, 1, SIZE);
    call_on_cpu(count_up, block);
    free_block(block);
    __atomic_store_n(&stage, 1, __ATOMIC_SEQ_CST);
    await(&stage, 2);
    CHECK_STATUS(warp_capture_end(NULL, &graph), WARP_ERROR_SHUT_DOWN);
    __atomic_store_n(&stage, 3, __ATOMIC_SEQ_CST);
    await(&stage, 4);
    CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_NONE);
    CHECK_INVALID(warp_capture_end(cpu_stream(), &graph), "no capture");
    begin();
    graph = end();
    launch(graph);
    release(graph);
    return NULL;
}

TEST(a_shutdown_gives_captures_up)
{
    pthread_t thread;
    warp_graph *graph, *kept;
    unsigned char *block, *outlives;
    int calls = 0;
    start();
    release_count = 0;
    stage = 0;
    REQUIRE(pthread_create(&thread, NULL, capture_over_a_shutdown, NULL) == 0);
    await(&stage, 1);
    block = host_block(SIZE);
    outlives = host_block(SIZE);
    memset(block, 0, SIZE);
    begin();
    call_on_cpu(count_up, &calls);
    kept = end();
    begin();
    fill(block, 1, SIZE);
    fill(outlives, 1, SIZE);
    call_on_cpu(count_up, &calls);
    launch(kept);
    free_block(block);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_I64(released_now(), 3);
    CHECK_EQ_I64(calls, 0);
    CHECK_STATUS(warp_graph_launch(kept, NULL), WARP_ERROR_SHUT_DOWN);
    __atomic_store_n(&stage, 2, __ATOMIC_SEQ_CST);
    await(&stage, 3);
    free_block(outlives);
    start();
    CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_NONE);
    CHECK_STATUS(warp_graph_launch(kept, NULL), WARP_ERROR_INVALID_HANDLE);
    block = host_block(SIZE);
    fill(block, 2, SIZE);
    CHECK(all_are(block, 2, SIZE));
    CHECK_INVALID(warp_capture_end(cpu_stream(), &graph), "no capture");
    __atomic_store_n(&stage, 4, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    free_block(block);
    finish();
}

CHECK_MAIN()
