/*
 * cpu_capture_forks.c: what becomes of captures and graphs of the CPU in the child of a fork, also one that is made while other
 * threads capture, launch and keep, or in the middle of a run.
 *
 * topology: h200x2
 * topology: -
 * valgrind: no (what the parent's graphs keep is not given back in a child)
 */
#include "cpu_captures.h"
#include "forked.h"

#include <pthread.h>

#define SIZE ((uint64_t)1 << 12)

struct of_parent {
    warp_graph *graph, *inner;
    unsigned char *used, *made, *plain, *recorded;
};

static void use_graphs_in_the_child(void *argument)
{
    struct of_parent *of = argument;
    warp_graph *graph, *mine;
    unsigned char *block, *temporary;
    int calls = 0;
    /* The capture goes on here. */
    CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_ACTIVE);
    fill(of->recorded + 8, 2, 8);
    call_on_cpu(count_up, &calls);
    block = host_block(SIZE);
    fill(block, 4, SIZE);
    CHECK(all_are(of->recorded, 0, 16));
    mine = end();
    free_block(block);
    launch(mine);
    launch(mine);
    CHECK(all_are(of->recorded, 1, 8) && all_are(of->recorded + 8, 2, 8) && all_are(block, 4, SIZE));
    CHECK_EQ_I64(calls, 2);
    /* What the parent captured runs here as well, also when its blocks are freed here. */
    free_block(of->used);
    free_block(of->made);
    memset(of->used, 0, SIZE);
    launch(of->graph);
    CHECK(all_are(of->used, 7, SIZE) && all_are(of->made, 7, SIZE));
    /* New ones, and what they keep. */
    temporary = malloc(SIZE);
    memset(temporary, 9, SIZE);
    begin();
    CHECK_STATUS(warp_graph_retain(mine, of->plain), WARP_SUCCESS);
    block = host_block(SIZE);
    copy(block, temporary, SIZE);
    copy(of->plain, block, SIZE);
    launch(of->graph);
    call_on_cpu(count_up, &calls);
    free(temporary);
    graph = end();
    free_block(block);
    free_block(of->plain);
    launch(graph);
    CHECK(all_are(of->plain, 9, SIZE));
    CHECK_EQ_I64(calls, 3);
    release(of->inner);
    release(graph);
    CHECK_EQ_I64(released_now(), 1);
    release(mine);
    CHECK_EQ_I64(released_now(), 2);
    release(of->graph);
    free_block(of->recorded);
    use_cpu();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void set_up(struct of_parent *of)
{
    of->used = host_block(SIZE);
    of->plain = host_block(SIZE);
    of->recorded = host_block(16);
    memset(of->recorded, 0, 16);
    begin();
    fill(of->used, 7, SIZE);
    of->inner = end();
    begin();
    of->made = host_block(SIZE);
    launch(of->inner);
    copy(of->made, of->used, SIZE);
    of->graph = end();
    begin();
    fill(of->recorded, 1, 8);
}

static void tear_down(struct of_parent *of)
{
    warp_graph *graph = end();
    launch(graph);
    CHECK(all_are(of->recorded, 1, 8) && all_are(of->recorded + 8, 0, 8));
    launch(of->graph);
    CHECK(all_are(of->made, 7, SIZE));
    release(graph);
    release(of->graph);
    release(of->inner);
    free_block(of->used);
    free_block(of->made);
    free_block(of->plain);
    free_block(of->recorded);
}

PROCESS_TEST(a_child_goes_on_with_graphs_and_captures)
{
    struct of_parent of;
    start();
    release_count = 0;
    set_up(&of);
    in_child(use_graphs_in_the_child, &of, 60);
    tear_down(&of);
    finish();
}

static int stop;

static void *capture_all_the_time(void *shared)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        unsigned char *block = host_block(SIZE);
        warp_graph *graph;
        int calls = 0;
        begin();
        fill(block, 1, SIZE);
        CHECK_STATUS(warp_stream_host_call(cpu_stream(), count_up, &calls, NULL), WARP_SUCCESS);
        launch(shared);
        graph = end();
        free_block(block);
        launch(graph);
        launch(shared);
        CHECK_STATUS(warp_graph_retain(shared, &stop), WARP_ERROR_UNKNOWN_POINTER);
        release(graph);
    }
    return NULL;
}

PROCESS_TEST(forks_among_threads_that_capture_leave_no_lock_behind)
{
    struct of_parent of;
    pthread_t threads[3];
    int i;
    setenv("WARPSIM_LOG", "0", 1);
    start();
    release_count = 0;
    set_up(&of);
    for (i = 0; i < 3; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, capture_all_the_time, of.graph) == 0);
    for (i = 0; i < (check_under("valgrind") ? 10 : 150) && check_failure_count() == 0; ++i)
        in_child(use_graphs_in_the_child, &of, 60);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 3; ++i)
        pthread_join(threads[i], NULL);
    tear_down(&of);
    finish();
}

static struct {
    warp_graph *graph;
    pid_t child;
    int forks;
} forked;

static void fork_in_the_middle(void *user)
{
    (void)user;
    if (forked.forks++ != 0)
        return;
    forked.child = fork();
    if (forked.child == 0) {
        alarm(60);
        CHECK_REFUSED(warp_graph_launch(forked.graph, NULL), "own run");
    }
}

PROCESS_TEST(a_fork_in_the_middle_of_a_run_goes_on_on_both_sides)
{
    unsigned char *block;
    start();
    block = host_block(16);
    memset(block, 0, 16);
    begin();
    fill(block, 1, 8);
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), fork_in_the_middle, NULL, NULL), WARP_SUCCESS);
    fill(block + 8, 2, 8);
    forked.graph = end();
    launch(forked.graph);
    CHECK(all_are(block, 1, 8) && all_are(block + 8, 2, 8));
    if (forked.child == 0) {
        /* The run is over here, so that there can be another one. */
        launch(forked.graph);
        exit(check_failure_count() == 0 ? 0 : 1);
    }
    if (forked.child > 0)
        CHECK_EQ_I64(process_wait(forked.child), 0);
    release(forked.graph);
    free_block(block);
    finish();
}

CHECK_MAIN()
