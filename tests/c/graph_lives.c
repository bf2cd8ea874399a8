/*
 * graph_lives.c: memory that a capture allocated, in every order of launching its graph, freeing the block and releasing the
 * graph, and when the capture comes to nothing. Nothing leaks, nothing is freed twice, and a block is what it should be for as
 * long as somebody may use it.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"

#define SIZE ((uint64_t)1 << 20)

/* What can be done with a graph and its block, in an order. */
enum { LAUNCH, FREE, RELEASE, STEPS };

struct life {
    warp_stream *stream, *other;
    warp_graph *graph;
    void *block;
    int launches;
};

static struct life captured(void)
{
    struct life life = {.stream = make_stream("cuda:0", 0), .other = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING)};
    begin(life.stream);
    life.block = alloc_on("cuda:0", life.stream, SIZE);
    fill_byte(life.block, 0x5a, SIZE, life.stream);
    life.graph = end(life.stream);
    return life;
}

static void launch(struct life *life, int times)
{
    int i;
    for (i = 0; i < times; ++i) {
        /* Runs of one graph come one after the other, whatever streams they are put on. */
        CHECK_STATUS(warp_graph_launch(life->graph, i % 2 == 0 ? life->stream : life->other), WARP_SUCCESS);
        ++life->launches;
    }
    CHECK_STATUS(warp_stream_synchronize(life->stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(life->other), WARP_SUCCESS);
}

static void check_usable(const struct life *life, int freed)
{
    char byte;
    if (freed)
        return;
    if (life->launches != 0) {
        CHECK(holds(life->block, 0x5a, SIZE, life->stream));
        return;
    }
    CHECK_STATUS(warp_memory_copy(&byte, life->block, 1, life->stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "has not been launched");
    CHECK_STATUS(warp_memory_fill(life->block, 1, "x", 1, life->stream), WARP_ERROR_INVALID_ARGUMENT);
}

static void live_through(const int *order, int times)
{
    struct life life = captured();
    int i, freed = 0, released = 0;
    check_usable(&life, 0);
    for (i = 0; i < STEPS; ++i) {
        switch (order[i]) {
        case LAUNCH:
            if (!released)
                launch(&life, times);
            break;
        case FREE:
            CHECK_STATUS(warp_free(life.block), WARP_SUCCESS);
            CHECK_STATUS(warp_free(life.block), WARP_ERROR_DOUBLE_FREE);
            freed = 1;
            break;
        default:
            CHECK_STATUS(warp_graph_release(life.graph), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_launch(life.graph, life.stream), WARP_ERROR_INVALID_HANDLE);
            CHECK_STATUS(warp_graph_release(life.graph), WARP_ERROR_INVALID_HANDLE);
            released = 1;
        }
        check_usable(&life, freed);
    }
    CHECK_STATUS(warp_stream_synchronize(life.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(life.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(life.other), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(every_order_of_launch_free_and_release_ends_with_nothing_left)
{
    static const int orders[][STEPS] = {
        {LAUNCH, FREE, RELEASE}, {LAUNCH, RELEASE, FREE}, {FREE, LAUNCH, RELEASE},
        {FREE, RELEASE, LAUNCH}, {RELEASE, FREE, LAUNCH}, {RELEASE, LAUNCH, FREE},
    };
    static const int launches[] = {0, 1, 3};
    size_t order, count;
    start_on("h200x2");
    for (order = 0; order < sizeof orders / sizeof *orders; ++order)
        for (count = 0; count < sizeof launches / sizeof *launches; ++count)
            live_through(orders[order], launches[count]);
}

PROCESS_TEST(a_hundred_lives_leave_nothing)
{
    static const int order[] = {LAUNCH, RELEASE, FREE};
    int i;
    start_on("h200x2");
    for (i = 0; i < 100; ++i)
        live_through(order, 1);
}

PROCESS_TEST(a_block_that_is_freed_between_two_launches_is_there_for_the_second)
{
    struct life life;
    start_on("h200x2");
    life = captured();
    launch(&life, 1);
    CHECK_STATUS(warp_free(life.block), WARP_SUCCESS);
    launch(&life, 3);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("graph_block"), 1);
    CHECK_STATUS(warp_graph_release(life.graph), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(a_block_freed_in_its_capture_is_the_graphs_own)
{
    warp_stream *stream;
    warp_graph *graph;
    void *block;
    int i;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    begin(stream);
    block = alloc_on("cuda:0", stream, SIZE);
    fill_byte(block, 1, SIZE, stream);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_ERROR_DOUBLE_FREE);
    graph = end(stream);
    CHECK_EQ_U64(graph_info(graph).block_count, 0);
    for (i = 0; i < 3; ++i)
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("graph_block"), 0);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(blocks_of_an_abandoned_capture_never_come_into_being)
{
    int freed_before;
    start_on("h200x2");
    for (freed_before = 0; freed_before < 2; ++freed_before) {
        warp_stream *stream = make_stream("cuda:0", 0);
        warp_graph *graph;
        void *kept, *gone, *next;
        begin(stream);
        kept = alloc_on("cuda:0", stream, SIZE);
        gone = alloc_on("cuda:0", stream, SIZE);
        CHECK_STATUS(warp_free(gone), WARP_SUCCESS);
        if (freed_before)
            CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
        CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_NONE);
        CHECK_STATUS(warp_capture_abandon(stream), WARP_ERROR_INVALID_ARGUMENT);
        if (!freed_before) {
            CHECK_STATUS(warp_memory_fill(kept, 1, "x", 1, stream), WARP_ERROR_INVALID_ARGUMENT);
            CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
        }
        /* The next capture works. */
        begin(stream);
        next = alloc_on("cuda:0", stream, SIZE);
        fill_byte(next, 9, SIZE, stream);
        graph = end(stream);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK(holds(next, 9, SIZE, stream));
        CHECK_STATUS(warp_free(next), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_EQ_U64(graph_memory_after_trim(), 0);
        check_clean();
    }
}

PROCESS_TEST(the_address_of_a_block_that_never_came_into_being_is_not_given_out_again)
{
    struct life life;
    warp_stream *stream;
    warp_graph *graph;
    void *second;
    start_on("h200x2");
    life = captured();
    CHECK_STATUS(warp_graph_release(life.graph), WARP_SUCCESS);
    stream = make_stream("cuda:0", 0);
    begin(stream);
    second = alloc_on("cuda:0", stream, SIZE);
    graph = end(stream);
    CHECK(second != life.block);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(life.block), WARP_SUCCESS);
    fill_byte(second, 3, SIZE, stream);
    CHECK(holds(second, 3, SIZE, stream));
    CHECK_STATUS(warp_free(second), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    check_clean();
}

PROCESS_TEST(a_graph_that_is_released_while_it_runs_gives_its_memory_back_when_it_has_run)
{
    struct life life;
    start_on("h200x2");
    life = captured();
    launch(&life, 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(life.stream)), 0);
    CHECK_STATUS(warp_graph_launch(life.graph, life.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(life.block), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(life.graph), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("graph_block"), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_release)((uint64_t)(uintptr_t)native_of(life.stream)), 0);
    CHECK_STATUS(warp_stream_synchronize(life.stream), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(a_shutdown_leaves_blocks_of_graphs_to_be_freed)
{
    struct life ran, idle;
    start_on("h200x2");
    ran = captured();
    idle = captured();
    launch(&ran, 1);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("graph_exec"), 0);
    CHECK_STATUS(warp_free(ran.block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(idle.block), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("graph_block"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("graph"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(a_shutdown_in_a_capture_gives_it_up)
{
    warp_stream *stream;
    void *block;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    begin(stream);
    block = alloc_on("cuda:0", stream, SIZE);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("graph"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("stream"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

CHECK_MAIN()
