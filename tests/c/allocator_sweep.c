/*
 * allocator_sweep.c: every call of the driver fails once, with each kind of code, while a stream-ordered allocator serves captures:
 * allocations and frees there, launches, the end of graphs. Nothing is lost, nothing given back twice, and the next time all goes
 * well.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "access.h"
#include "allocators.h"
#include "captures.h"

static const char *const entries[] = {
    "cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing", "cuStreamGetCaptureInfo_v2",
    "cuStreamGetCaptureInfo_v3", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuStreamBeginCapture_v2", "cuStreamEndCapture",
    "cuStreamUpdateCaptureDependencies", "cuStreamUpdateCaptureDependencies_v2", "cuGraphAddMemFreeNode", "cuGraphInstantiateWithFlags",
    "cuGraphLaunch", "cuGraphDestroy", "cuGraphExecDestroy", "cuMemAlloc_v2", "cuMemFree_v2", "cuEventCreate", "cuEventRecord",
    "cuEventQuery", "cuStreamQuery", "cuMemsetD8Async", "cuGraphGetNodes", "cuGraphMemAllocNodeGetParams", "cuMemPoolGetAccess"};
#define ENTRIES (sizeof entries / sizeof *entries)
static const uint32_t codes[] = {1, 2, 999};
#define CODES (sizeof codes / sizeof *codes)

static struct recorder r, plain;
static warp_stream *stream;
static void *blocks[4];
static int told;

static int went(warp_status status)
{
    told += status != WARP_SUCCESS;
    return status == WARP_SUCCESS;
}

static void free_block(int which)
{
    if (blocks[which] != NULL && went(warp_free(blocks[which])))
        blocks[which] = NULL;
}

/* One capture with blocks freed in it, after it, and from before it; launched, released. */
static int play(void)
{
    warp_graph *graph = NULL;
    int i, began;
    told = 0;
    if (went(try_by(gpu(0), plain.handle, 1000, stream, &blocks[0])))
        went(warp_memory_fill(blocks[0], 1000, "0", 1, stream));
    began = went(warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL));
    for (i = 1; i < 4; ++i)
        if (went(try_by(gpu(0), r.handle, 1000, stream, &blocks[i])))
            went(warp_memory_fill(blocks[i], 1000, "1", 1, stream));
    if (blocks[0] != NULL)
        went(warp_memory_fill(blocks[0], 1000, "2", 1, stream));
    free_block(0);
    free_block(1);
    if (began) {
        if (went(warp_capture_end(stream, &graph))) {
            free_block(2);
            went(warp_graph_launch(graph, stream));
            went(warp_graph_launch(graph, stream));
        } else {
            warp_capture_abandon(stream);
        }
    }
    free_block(3);
    if (graph != NULL && !went(warp_graph_release(graph)))
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    for (i = 0; i < 4; ++i)
        free_block(i);
    went(warp_stream_synchronize(stream));
    return told;
}

/* What is left after a failure can be freed now. */
static void clear_up(void)
{
    int i;
    if (state_of(stream) != WARP_CAPTURE_STATE_NONE)
        CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
    for (i = 0; i < 4; ++i) {
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
        blocks[i] = NULL;
    }
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_trim_memory(gpu(0)), WARP_SUCCESS);
}

TEST(every_call_of_the_driver_fails_in_a_capture)
{
    uint64_t before, count, nth, met = 0;
    size_t e, c;
    memset(&r, 0, sizeof r);
    memset(&plain, 0, sizeof plain);
    r.flags = WARP_ALLOCATOR_STREAM_ORDERED;
    r.offset = 256;
    REQUIRE(start());
    created(&r, WARP_MEMORY_CUDA_MEMPOOL);
    created(&plain, WARP_MEMORY_CUDA_DEVICE);
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    CHECK_EQ_I64(play(), 0);
    clear_up();
    for (e = 0; e < ENTRIES; ++e) {
        before = calls(entries[e]);
        CHECK_EQ_I64(play(), 0);
        clear_up();
        count = calls(entries[e]) - before;
        for (nth = 1; nth <= count; ++nth)
            for (c = check_under("valgrind") ? CODES - 1 : 0; c < CODES; ++c) {
                int failures = check_failure_count();
                SIMULATOR(warpsim_log_clear)();
                SIMULATOR(warpsim_fail)(entries[e], nth, codes[c]);
                play();
                met += (uint64_t)SIMULATOR(warpsim_log_contains)("planned");
                SIMULATOR(warpsim_fail_clear)();
                SIMULATOR(cuCtxSetCurrent)(NULL);
                set_thread_mode(0);
                clear_up();
                CHECK_EQ_U64(r.outs, 0);
                CHECK_EQ_U64(plain.outs, 0);
                CHECK_EQ_U64(r.wrong, 0);
                CHECK_EQ_U64(live_of(r.handle), 0);
                CHECK_EQ_U64(live_of(r.below), 0);
                CHECK_EQ_U64(live_of(plain.below), 0);
                CHECK_EQ_U64(statistics_of(gpu(0), 0).live_blocks, 0);
                CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
                CHECK_EQ_I64(play(), 0);
                clear_up();
                if (check_failure_count() != failures)
                    printf("\n      call %" PRIu64 " of %s answered %u", nth, entries[e], codes[c]);
                if (check_failure_count() > 20)
                    return;
            }
    }
    CHECK(met > 50);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    let_go(&r);
    let_go(&plain);
    CHECK_OVER(&r);
    CHECK_OVER(&plain);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
