/*
 * What only a real GPU proves about graphs: that memory comes back whatever the order of launches, frees and releases, that
 * data is right in every run, and that what a graph uses stays until no run of it goes on. One GPU is enough. All of it runs on
 * the simulated driver as well.
 */
#include "hardware_capture.h"

/* ---- Every order of launch, free and release -------------------------------------------------------------------------- */

enum { LAUNCH, FREE, RELEASE, STEPS };

static void live_and_end(warp_stream *stream, warp_stream *other, const int *order, int launches, uint64_t size)
{
    int launched = 0;
    begin(stream);
    void *ptr = pool_block(stream, size);
    fill(ptr, size, 0x5a, stream);
    warp_graph *graph = end(stream);
    for (int i = 0; i < STEPS; i++)
        if (order[i] == FREE) {
            if (launched)
                CHECK(device_holds(ptr, 4096, 0x5a, stream));
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        } else if (order[i] == RELEASE) {
            release(graph);
            graph = NULL;
        } else {
            for (; graph != NULL && launched < launches; launched++)
                launch(graph, launched % 2 ? other : stream);
            finish(other);
        }
    finish(stream);
}

PROCESS_TEST(every_order_of_launch_free_and_release_gives_all_back)
{
    static const int orders[][STEPS] = {{LAUNCH, FREE, RELEASE}, {LAUNCH, RELEASE, FREE}, {FREE, LAUNCH, RELEASE},
                                        {FREE, RELEASE, LAUNCH}, {RELEASE, FREE, LAUNCH}, {RELEASE, LAUNCH, FREE}};
    static const int launches[] = {0, 1, 3};
    const uint64_t size = 4 * MIB;
    uint64_t before = 0, graphs = 0;
    start();
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), *other = new_stream(gpu(0), 0);
    for (int cycle = -1; cycle < 100; cycle++) {
        for (size_t order = 0; order < sizeof orders / sizeof *orders; order++)
            for (size_t count = 0; count < sizeof launches / sizeof *launches; count++)
                live_and_end(stream, other, orders[order], launches[count], size);
        for (int abandoned = 0; abandoned < 2; abandoned++) {
            begin(stream);
            void *inside = pool_block(stream, size), *outside = abandoned ? pool_block(stream, size) : NULL;
            fill(inside, size, 1, stream);
            CHECK_STATUS(warp_free(inside), WARP_SUCCESS);
            if (abandoned) {
                CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
                CHECK_STATUS(warp_free(outside), WARP_SUCCESS);
            } else {
                warp_graph *graph = end(stream);
                for (int i = 0; i < 3; i++)
                    launch(graph, stream);
                release(graph);
                finish(stream);
            }
            CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_NONE);
        }
        if (cycle < 0) { /* what is loaded once is there by now */
            graphs = graph_memory_left(0);
            before = free_memory();
        }
    }
    CHECK_EQ_U64(graphs, 0);
    CHECK_MEMORY_BACK(graphs, before);
    CHECK_EQ_U64(live(gpu(0)), 0);
}

/* ---- Where frees stand ------------------------------------------------------------------------------------------------ */

static void *free_it(void *ptr)
{
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    return NULL;
}

/* A block used on two streams, freed, and its memory used again at once on one of them: the results of each run are right. */
static void use_on_two_and_replay(int of_second, int how)
{
    enum { PLAINLY, ON_THE_OTHER_STREAM, ON_ANOTHER_THREAD, WHILE_PAUSED };
    const uint64_t size = 2 * MIB;
    warp_stream *a = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), *b = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    warp_stream *home = of_second ? b : a, *away = of_second ? a : b;
    unsigned char *in = block(device("cpu"), size, WARP_MEMORY_PINNED, NULL), *out[2];
    pthread_t thread;
    for (int i = 0; i < 2; i++)
        out[i] = block(device("cpu"), size, WARP_MEMORY_PINNED, NULL);
    begin(a);
    wait_for(b, a);
    void *used = pool_block(home, size);
    copy(used, in, size, home);
    wait_for(away, home);
    copy(out[0], used, size, a);
    copy(out[1], used, size, b);
    warp_free_options options = {.struct_size = sizeof options, .size = size, .stream = away};
    if (how == ON_THE_OTHER_STREAM)
        CHECK_STATUS(warp_free_with(used, &options), WARP_SUCCESS);
    else if (how == PLAINLY)
        CHECK_STATUS(warp_free(used), WARP_SUCCESS);
    if (how == WHILE_PAUSED) {
        CHECK_STATUS(warp_capture_pause(a), WARP_SUCCESS);
        CHECK_EQ_I64(state_of(a), WARP_CAPTURE_STATE_PAUSED);
        CHECK_STATUS(warp_free(used), WARP_SUCCESS);
        CHECK_STATUS(warp_capture_resume(a), WARP_SUCCESS);
    } else if (how == ON_ANOTHER_THREAD) {
        REQUIRE(pthread_create(&thread, NULL, free_it, used) == 0);
        pthread_join(thread, NULL);
    }
    warp_stream *next = how == WHILE_PAUSED ? a : away;
    void *again = pool_block(next, size);
    fill(again, size, 0xee, next);
    CHECK_STATUS(warp_free(again), WARP_SUCCESS);
    warp_graph *graph = end(a); /* joins */
    for (int run = 1; run <= 100; run++) {
        memset(in, run, size);
        memset(out[0], 0, size);
        memset(out[1], 0, size);
        launch(graph, run % 2 ? a : b);
        finish(run % 2 ? a : b);
        CHECK(all_are(out[0], size, (unsigned char)run) && all_are(out[1], size, (unsigned char)run));
    }
    release(graph);
    CHECK_STATUS(warp_free(in), WARP_SUCCESS);
    CHECK_STATUS(warp_free(out[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_free(out[1]), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(a), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(b), WARP_SUCCESS);
}

PROCESS_TEST(a_free_in_a_capture_comes_after_every_stream_that_used_the_block)
{
    start();
    for (int of_second = 0; of_second < 2; of_second++)
        for (int how = 0; how < 4; how++)
            use_on_two_and_replay(of_second, how);
    CHECK_EQ_U64(graph_memory_left(0), 0);
    CHECK_EQ_U64(live(gpu(0)) + live(device("cpu")), 0);
}

PROCESS_TEST(memory_freed_in_a_capture_is_used_again_in_it)
{
    const uint64_t size = 256 * MIB;
    uint64_t before = 0;
    start();
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    CHECK_EQ_U64(graph_memory_left(0), 0);
    for (int round = -1; round < 50; round++) {
        CHECK_STATUS(warp_graph_reset_memory_high(gpu(0)), WARP_SUCCESS);
        begin(stream);
        for (int i = 0; i < 3; i++) {
            void *ptr = pool_block(stream, size);
            fill(ptr, size, i, stream);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        }
        warp_graph *graph = end(stream);
        launch(graph, stream);
        finish(stream);
        uint64_t high = graph_memory().used_high;
        if (high < size || high >= 2 * size) /* the driver may round up */
            CHECK_EQ_U64(high, size);
        release(graph);
        CHECK_EQ_U64(graph_memory_left(0), 0);
        if (round < 0)
            before = free_memory();
    }
    CHECK_MEMORY_BACK(0, before);
}

/* ---- What a graph keeps ----------------------------------------------------------------------------------------------- */

enum { KEPT = 4, OTHERS = 4 };
static const warp_memory_kind kept_kinds[KEPT] = {WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_PINNED,
                                                  WARP_MEMORY_HOST};

static void *kept_block(int k, uint64_t size, warp_stream *stream)
{
    int on_gpu = kept_kinds[k] > WARP_MEMORY_PINNED;
    return block(on_gpu ? gpu(0) : device("cpu"), size, kept_kinds[k], on_gpu ? stream : NULL);
}

/* A graph that writes to blocks of the first kinds and reads them again; the blocks are freed once it is captured. */
static warp_graph *graph_over(int kinds, void **blocks, void **results, const void *seed, uint64_t size, warp_stream *stream)
{
    for (int k = 0; k < kinds; k++)
        blocks[k] = kept_block(k, size, stream);
    finish(stream);
    begin(stream);
    for (int k = 0; k < kinds; k++) {
        copy(blocks[k], seed, size, stream);
        copy(results[k], blocks[k], size, stream);
    }
    warp_graph *graph = end(stream);
    for (int k = 0; k < kinds; k++)
        CHECK_STATUS(warp_free(blocks[k]), WARP_SUCCESS);
    return graph;
}

PROCESS_TEST(a_graph_keeps_what_it_uses_until_its_last_run_is_done)
{
    const uint64_t size = 2 * MIB;
    void *blocks[KEPT], *others[KEPT][OTHERS], *results[KEPT], *pool = NULL;
    uint64_t used = 0, used_before = 0;
    start();
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), *second = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    void *seed = block(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream);
    for (int k = 0; k < KEPT; k++)
        results[k] = block(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream);
    REQUIRE(DEFAULT_POOL(&pool, 0) == SUCCESS);
    keep_busy(stream); /* the first touch of the large blocks is slow */
    finish(stream);
    CHECK_EQ_I64(POOL_USED(pool, &used_before), SUCCESS);
    warp_graph *graph = graph_over(KEPT, blocks, results, seed, size, stream);
    for (int run = 1; run <= 10; run++) {
        for (int k = 0; k < KEPT; k++)
            for (int i = 0; i < OTHERS; i++) {
                others[k][i] = kept_block(k, size, second);
                CHECK(others[k][i] != blocks[k]);
                if (kept_kinds[k] > WARP_MEMORY_PINNED)
                    fill(others[k][i], size, 0xee, second);
                else
                    memset(others[k][i], 0xee, size);
            }
        finish(second);
        fill(seed, size, run, stream);
        launch(graph, stream);
        for (int k = 0; k < KEPT; k++) {
            CHECK(device_holds(results[k], size, (unsigned char)run, stream));
            for (int i = 0; i < OTHERS; i++) {
                CHECK(kept_kinds[k] > WARP_MEMORY_PINNED ? device_holds(others[k][i], size, 0xee, second)
                                                         : all_are(others[k][i], size, 0xee));
                CHECK_STATUS(warp_free(others[k][i]), WARP_SUCCESS);
            }
        }
    }
    release(graph);
    CHECK(goes(blocks[1]) && goes(blocks[2]));
    /* Released behind a long run; without pageable memory, for which a launch may wait. */
    graph = graph_over(KEPT - 1, blocks, results, seed, size, stream);
    launch(graph, stream); /* the first takes longer */
    finish(stream);
    keep_busy(stream);
    fill(seed, size, 77, stream);
    launch(graph, stream);
    release(graph);
    for (int i = 0; i < 5; i++) {
        look();
        CHECK(is_there(blocks[1]) && is_there(blocks[2]));
        CHECK_EQ_I64(POOL_USED(pool, &used), SUCCESS);
        CHECK(used >= used_before + size);
    }
    CHECK_EQ_I64(STREAM_QUERY(native(stream)), NOT_READY); /* else this shows nothing */
    finish(stream);
    for (int k = 0; k < KEPT - 1; k++)
        CHECK(device_holds(results[k], size, 77, stream));
    CHECK(goes(blocks[1]) && goes(blocks[2]));
    CHECK_EQ_U64(pool_used_left(used_before), used_before);
    for (int k = 0; k < KEPT; k++)
        CHECK_STATUS(warp_free(results[k]), WARP_SUCCESS);
    CHECK_STATUS(warp_free(seed), WARP_SUCCESS);
    CHECK_EQ_U64(live(gpu(0)) + live(device("cpu")), 0);
}

PROCESS_TEST(memory_of_a_graph_that_is_released_in_a_long_run_stays_until_it_is_done)
{
    const uint64_t size = 64 * MIB;
    start();
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    unsigned char *result = block(device("cpu"), size, WARP_MEMORY_PINNED, NULL);
    keep_busy(stream);
    finish(stream);
    begin(stream);
    void *ptr = pool_block(stream, size);
    fill(ptr, size, 0x31, stream);
    copy(result, ptr, size, stream);
    warp_graph *graph = end(stream);
    launch(graph, stream);
    finish(stream);
    memset(result, 0, size);
    keep_busy(stream);
    launch(graph, stream);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    release(graph);
    look();
    CHECK(graph_memory().used >= size);
    CHECK_EQ_I64(STREAM_QUERY(native(stream)), NOT_READY);
    finish(stream);
    CHECK(all_are(result, size, 0x31));
    CHECK_EQ_U64(graph_memory_left(0), 0);
    CHECK_STATUS(warp_free(result), WARP_SUCCESS);
}

CHECK_MAIN()
