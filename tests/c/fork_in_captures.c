/*
 * fork_in_captures.c: forks while other threads capture, launch and release graphs.
 *
 * topology: h200x2
 * needs: simulator
 * valgrind: no (what a thread held that the fork left behind is lost in the child)
 */
#include "captures.h"
#include "forked.h"

#include <pthread.h>

#define SIZE ((uint64_t)1 << 16)

static int stop;

static void *capture_on(void *argument)
{
    warp_stream *stream = argument;
    void *shared = alloc_on("cuda:0", stream, SIZE);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        warp_graph *graph;
        void *block;
        begin(stream);
        block = alloc_on("cuda:0", stream, SIZE);
        CHECK_STATUS(warp_memory_copy(block, shared, SIZE, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(block, 15, "abcde", 5, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        graph = end(stream);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(shared), WARP_SUCCESS);
    return NULL;
}

struct of_child {
    warp_stream *streams[3];
    warp_graph *graph;
    void *host, *block;
};

static void use_graphs_in_the_child(void *argument)
{
    struct of_child *of = argument;
    warp_graph *graph;
    warp_graph_info info = {.struct_size = sizeof info};
    void *pinned;
    int i;
    CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, 64, &pinned), WARP_ERROR_FORKED);
    for (i = 0; i < 3; ++i) {
        CHECK_STATUS(warp_capture_begin(of->streams[i], WARP_CAPTURE_RELAXED), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_capture_end(of->streams[i], &graph), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_stream_release(of->streams[i]), WARP_SUCCESS);
    }
    warp_graph_get_info(of->graph, &info);
    CHECK_STATUS(warp_graph_release(of->graph), WARP_SUCCESS);
    CHECK_STATUS(warp_free(of->host), WARP_SUCCESS);
    CHECK_STATUS(warp_free(of->block), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

PROCESS_TEST(forks_among_captures_leave_no_lock_behind)
{
    pthread_t threads[3];
    struct of_child of = {{NULL}, NULL, NULL, NULL};
    warp_stream *mine;
    int i;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    mine = make_stream("cuda:0", 0);
    CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_HOST, SIZE, &of.host), WARP_SUCCESS);
    begin(mine);
    of.block = alloc_on("cuda:0", mine, SIZE);
    CHECK_STATUS(warp_memory_copy(of.block, of.host, SIZE, mine), WARP_SUCCESS);
    of.graph = end(mine);
    for (i = 0; i < 3; ++i) {
        of.streams[i] = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
        REQUIRE(pthread_create(&threads[i], NULL, capture_on, of.streams[i]) == 0);
    }
    for (i = 0; i < 150 && check_failure_count() == 0; ++i)
        in_child(use_graphs_in_the_child, &of, 60);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 3; ++i)
        pthread_join(threads[i], NULL);
    CHECK_STATUS(warp_graph_release(of.graph), WARP_SUCCESS);
    CHECK_STATUS(warp_free(of.host), WARP_SUCCESS);
    CHECK_STATUS(warp_free(of.block), WARP_SUCCESS);
    for (i = 0; i < 3; ++i)
        CHECK_STATUS(warp_stream_synchronize(of.streams[i]), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

CHECK_MAIN()
