/*
 * graph_lives.c: memory that a capture allocated, in every order of launching its graph, freeing the block and releasing the
 * graph, and when the capture comes to nothing. Nothing leaks, nothing is freed twice, and a block is what it should be for as
 * long as somebody may use it: whatever stream the graph is launched on, whatever context is current, and whoever frees.
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
    for (i = 0; i < (check_under("valgrind") ? 10 : 100); ++i)
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

/* ---- Where it is launched, and what is current ------------------------------------------------------------------------ */

/* On every kind of stream of its GPU, the default one, the special ones, one that other code destroys right after. */
PROCESS_TEST(a_graph_is_launched_on_any_stream_of_its_gpu)
{
    int way;
    start_on("h200x2");
    for (way = 0; way < 8; ++way) {
        warp_stream_options untracked = {.struct_size = sizeof untracked, .flags = way == 5 ? WARP_STREAM_UNTRACKED : 0};
        struct life life = captured();
        warp_stream *on = NULL;
        CUstream native = NULL;
        uint64_t held;
        if (way == 0) {
            CHECK_STATUS(warp_stream_get_current(device("cuda:0"), &on), WARP_SUCCESS);
        } else if (way < 4) { /* 0, 1, 2 */
            CHECK_STATUS(warp_stream_wrap(device("cuda:0"), (void *)(uintptr_t)(way - 1), &on), WARP_SUCCESS);
        } else if (way < 6) {
            SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
            CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, 1), 0);
            SIMULATOR(cuCtxSetCurrent)(NULL);
            CHECK_STATUS(warp_stream_wrap_with(device("cuda:0"), native, &untracked, &on), WARP_SUCCESS);
        } else {
            on = make_stream("cuda:0", way == 6 ? 0 : WARP_STREAM_NON_BLOCKING);
        }
        CHECK_STATUS(warp_graph_launch(life.graph, on), WARP_SUCCESS);
        ++life.launches;
        CHECK_STATUS(warp_stream_synchronize(on), WARP_SUCCESS);
        CHECK(holds(life.block, 0x5a, SIZE, on));
        held = (uint64_t)(uintptr_t)native_of(on);
        SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
        CHECK_EQ_U64(SIMULATOR(warpsim_hold)(held), 0);
        SIMULATOR(cuCtxSetCurrent)(NULL);
        SIMULATOR(warpsim_auto_release)(0);
        CHECK_STATUS(warp_graph_launch(life.graph, on), WARP_SUCCESS);
        /* A stream of other code: what the library still needs of it is done when its handle is released; one that is
         * not tracked may go without that. */
        if (way == 4)
            CHECK_STATUS(warp_stream_release(on), WARP_SUCCESS);
        if (native != NULL)
            CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
        CHECK_STATUS(warp_free(life.block), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(life.graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_trim_memory(device("cuda:0")), WARP_SUCCESS);
        CHECK_EQ_U64(live("graph_block"), 1);
        SIMULATOR(warpsim_release_all)();
        SIMULATOR(warpsim_auto_release)(1);
        CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
        if (way != 0 && way != 4)
            CHECK_STATUS(warp_stream_release(on), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(life.stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(life.other), WARP_SUCCESS);
        CHECK_EQ_U64(graph_memory_after_trim(), 0);
        CHECK_EQ_U64(graph_memory_after_trim(), 0);
        check_clean();
        if (check_failure_count() != 0) {
            printf("\n    way %d", way);
            return;
        }
    }
}

uint32_t cuThreadExchangeStreamCaptureMode(int32_t *mode);

/* How the thread's calls count for captures of other threads. */
static int32_t exchange_mode(int32_t mode)
{
    CHECK_EQ_U64(SIMULATOR(cuThreadExchangeStreamCaptureMode)(&mode), 0);
    return mode;
}

/* Each call works on the GPU of its stream or graph, whatever is current, and leaves that as it is, and what the thread's
 * calls count for in captures: also when it fails. */
PROCESS_TEST(calls_on_captures_and_graphs_keep_the_callers_context_and_capture_mode)
{
    static const char *const failing[] = {NULL, "cuStreamBeginCapture_v2", "cuMemAllocFromPoolAsync", "cuMemsetD8Async",
                                          "cuStreamBeginCaptureToGraph", "cuGraphAddMemFreeNode", "cuStreamEndCapture",
                                          "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuMemFreeAsync", "cuGraphExecDestroy",
                                          "cuGraphDestroy", "cuDeviceGraphMemTrim", "cuCtxSetCurrent"};
    int gpu, current;
    size_t i;
#define KEPT(call)                                     \
    do {                                               \
        (void)(call);                                  \
        CHECK_EQ_PTR(driver_current(), is_current);    \
        CHECK_EQ_I64(exchange_mode(mode), mode);       \
    } while (0)
    start_on("h200x2");
    for (gpu = 0; gpu < 2; ++gpu)
        for (current = 0; current < 3; ++current)
            for (i = 0; i < sizeof failing / sizeof *failing; ++i) {
                const char *alias = gpu == 0 ? "cuda:0" : "cuda:1";
                warp_stream *stream = make_stream(alias, 0);
                CUcontext is_current = current == 2 ? NULL : driver_primary(current);
                void *kept = NULL, *gone = NULL;
                warp_graph *graph = NULL;
                int32_t mode = (int32_t)((i + (size_t)current) % 3);
                int run;
                CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(is_current), 0);
                exchange_mode(mode);
                if (failing[i] != NULL)
                    fail(failing[i], 1, 999);
                KEPT(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL));
                KEPT(try_alloc(alias, stream, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &kept));
                KEPT(try_alloc(alias, stream, WARP_MEMORY_CUDA_MEMPOOL, SIZE, &gone));
                KEPT(warp_memory_fill(kept, SIZE, "k", 1, stream));
                KEPT(warp_memory_fill(gone, SIZE, "g", 1, stream));
                KEPT(warp_capture_pause(stream));
                KEPT(warp_capture_resume(stream));
                KEPT(state_of(stream));
                if (warp_free(gone) != WARP_SUCCESS)
                    CHECK_STATUS(warp_free(gone), WARP_SUCCESS);
                KEPT(0);
                KEPT(warp_capture_end(stream, &graph));
                for (run = 0; run < 2; ++run)
                    KEPT(warp_graph_launch(graph, stream));
                KEPT(warp_stream_synchronize(stream));
                if (failing[i] == NULL)
                    CHECK(holds(kept, 'k', SIZE, stream));
                KEPT(warp_free(kept));
                KEPT(warp_graph_release(graph));
                KEPT(warp_graph_trim_memory(device(alias)));
                SIMULATOR(warpsim_fail_clear)();
                if (state_of(stream) != WARP_CAPTURE_STATE_NONE)
                    KEPT(warp_capture_abandon(stream));
                KEPT(warp_stream_release(stream));
                KEPT(warp_graph_trim_memory(device(alias)));
                CHECK_STATUS(warp_device_synchronize(device(alias)), WARP_SUCCESS);
                KEPT(warp_graph_trim_memory(device(alias)));
                CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
                CHECK_EQ_U64(live_blocks(), 0);
                check_clean();
                if (check_failure_count() != 0) {
                    printf("\n    gpu %d, current %d, failing %s", gpu, current, failing[i] != NULL ? failing[i] : "nothing");
                    return;
                }
            }
#undef KEPT
}

/* NULL is the current stream: of the default device for a capture, of the graph's for a launch. */
PROCESS_TEST(the_current_stream_is_captured_where_none_is_named)
{
    int scoped;
    start_on("h200x2");
    CHECK_STATUS(warp_device_set_default(device("cuda:1")), WARP_SUCCESS);
    for (scoped = 0; scoped < 2; ++scoped) {
        warp_stream *stream = make_stream("cuda:1", WARP_STREAM_NON_BLOCKING), *standard = NULL;
        warp_scope *scope = NULL;
        warp_graph *graph = NULL;
        void *block = NULL;
        CHECK_STATUS(warp_stream_get_current(device("cuda:1"), &standard), WARP_SUCCESS);
        if (scoped)
            CHECK_STATUS(warp_scope_begin_stream(NULL, stream, &scope), WARP_SUCCESS);
        begin(NULL);
        CHECK_EQ_I64(state_of(stream), scoped ? WARP_CAPTURE_STATE_ACTIVE : WARP_CAPTURE_STATE_NONE);
        CHECK_EQ_I64(state_of(standard), scoped ? WARP_CAPTURE_STATE_NONE : WARP_CAPTURE_STATE_ACTIVE);
        CHECK_EQ_I64(state_of(NULL), WARP_CAPTURE_STATE_ACTIVE);
        CHECK_STATUS(warp_alloc(NULL, SIZE, &block), WARP_SUCCESS);
        fill_byte(block, 2, SIZE, NULL);
        CHECK_STATUS(warp_capture_pause(NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_capture_resume(NULL), WARP_SUCCESS);
        graph = end(NULL);
        CHECK_EQ_PTR(graph_info(graph).device, device("cuda:1"));
        CHECK_EQ_U64(graph_info(graph).block_count, 1);
        CHECK_STATUS(warp_device_set_default(device("cuda:0")), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_launch(graph, NULL), WARP_SUCCESS);
        CHECK(holds(block, 2, SIZE, scoped ? stream : standard));
        CHECK_STATUS(warp_device_set_default(device("cuda:1")), WARP_SUCCESS);
        begin(NULL);
        CHECK_STATUS(warp_capture_abandon(NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_SUCCESS);
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_trim_memory(NULL), WARP_SUCCESS);
        check_clean();
    }
}

/* ---- Frees and releases by the thread that captures ------------------------------------------------------------------- */

/* Of what has nothing to do with its capture, on this GPU and the other, idle and busy. */
PROCESS_TEST(the_thread_that_captures_frees_and_releases_what_is_not_of_its_capture)
{
    static const struct {
        const char *alias;
        warp_memory_kind kind;
    } others[] = {
        {"cuda:0", WARP_MEMORY_CUDA_MEMPOOL}, {"cuda:0", WARP_MEMORY_CUDA_DEVICE}, {"cuda:0", WARP_MEMORY_CUDA_MANAGED},
        {"cuda:1", WARP_MEMORY_CUDA_MEMPOOL}, {"cuda:1", WARP_MEMORY_CUDA_DEVICE}, {"cuda:1", WARP_MEMORY_CUDA_MANAGED},
        {"cpu", WARP_MEMORY_PINNED},          {"cpu", WARP_MEMORY_HOST},
    };
    enum { OTHERS = sizeof others / sizeof *others };
    warp_capture_mode mode;
    int busy, flags;
    start_on("h200x2");
    SIMULATOR(warpsim_auto_release)(0);
    for (mode = WARP_CAPTURE_GLOBAL; mode <= WARP_CAPTURE_RELAXED; ++mode)
        for (flags = 0; flags < 2; ++flags)
            for (busy = 0; busy < 2; ++busy) {
                warp_stream *stream = make_stream("cuda:0", (uint32_t)flags), *own[OTHERS], *host;
                struct life never = captured(), ran = captured(), runs = captured();
                void *blocks[OTHERS], *mine, *made = NULL;
                warp_graph *graph = NULL;
                size_t i;
                launch(&ran, 1);
                launch(&runs, 1);
                host = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
                for (i = 0; i < OTHERS; ++i) {
                    int gpu = strcmp(others[i].alias, "cpu") != 0;
                    own[i] = gpu ? make_stream(others[i].alias, WARP_STREAM_NON_BLOCKING) : host;
                    CHECK_STATUS(try_alloc(others[i].alias, gpu ? own[i] : NULL, others[i].kind, SIZE, &blocks[i]), WARP_SUCCESS);
                    if (gpu)
                        CHECK_STATUS(warp_stream_synchronize(own[i]), WARP_SUCCESS);
                    /* Nobody frees plain host memory under a copy without waiting for it. */
                    if (busy && others[i].kind != WARP_MEMORY_HOST) {
                        CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(own[i])), 0);
                        CHECK_STATUS(warp_pointer_record_stream(blocks[i], own[i]), WARP_SUCCESS);
                        if (gpu)
                            fill_byte(blocks[i], 1, SIZE, own[i]);
                    }
                }
                if (busy) {
                    CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(runs.other)), 0);
                    CHECK_STATUS(warp_graph_launch(runs.graph, runs.other), WARP_SUCCESS);
                }
                CHECK_STATUS(warp_capture_begin(stream, mode), WARP_SUCCESS);
                mine = alloc_on("cuda:0", stream, SIZE);
                for (i = 0; i < OTHERS; ++i) {
                    CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
                    CHECK_STATUS(warp_free(blocks[i]), WARP_ERROR_DOUBLE_FREE);
                }
                CHECK_STATUS(warp_graph_release(never.graph), WARP_SUCCESS);
                CHECK_STATUS(warp_graph_release(ran.graph), WARP_SUCCESS);
                CHECK_STATUS(warp_graph_release(runs.graph), WARP_SUCCESS);
                CHECK_STATUS(warp_free(never.block), WARP_SUCCESS);
                CHECK_STATUS(warp_free(ran.block), WARP_SUCCESS);
                CHECK_STATUS(warp_free(runs.block), WARP_SUCCESS);
                CHECK_STATUS(warp_graph_trim_memory(device("cuda:0")), WARP_SUCCESS);
                CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_HOST, SIZE, &made), WARP_SUCCESS);
                CHECK_STATUS(warp_free(made), WARP_SUCCESS);
                CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
                SIMULATOR(warpsim_release_all)();
                fill_byte(mine, 6, SIZE, stream);
                CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
                CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
                CHECK(holds(mine, 6, SIZE, stream));
                CHECK_STATUS(warp_free(mine), WARP_SUCCESS);
                CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_SUCCESS);
                for (i = 0; i < OTHERS; ++i)
                    if (own[i] != host)
                        CHECK_STATUS(warp_stream_release(own[i]), WARP_SUCCESS);
                CHECK_STATUS(warp_stream_release(host), WARP_SUCCESS);
                CHECK_EQ_U64(graph_memory_after_trim(), 0);
                CHECK_EQ_U64(graph_memory_after_trim(), 0);
                CHECK_EQ_U64(live_blocks(), 0);
                check_clean();
                if (check_failure_count() != 0) {
                    printf("\n    mode %d, flags %d, busy %d", (int)mode, flags, busy);
                    return;
                }
            }
}

CHECK_MAIN()
