/*
 * capture_copies.c: copies and fills that are recorded: within a GPU, to and from the host, between GPUs with and without access;
 * what cannot be recorded says at once why, and the capture goes on.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"

#define SIZE ((uint64_t)1 << 16)

static void *block_of(int gpu, warp_memory_kind kind, warp_stream *stream, unsigned char value)
{
    void *block = NULL;
    CHECK_STATUS(try_alloc(gpu == 0 ? "cuda:0" : "cuda:1", stream, kind, SIZE, &block), WARP_SUCCESS);
    fill_byte(block, value, SIZE, stream);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    return block;
}

/* Which GPU may touch the other's pool: 1 the first one's, 2 the second one's. */
static void grant(int pools)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_external_pool_access)(0, 1, pools & 1 ? 3 : 0), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_external_pool_access)(1, 0, pools & 2 ? 3 : 0), 0);
}

PROCESS_TEST(copies_between_gpus_are_recorded_wherever_the_driver_can)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    int granted, from_gpu, on, from_kind, to_kind;
    start_on("h200x2");
    for (granted = 0; granted < 4; ++granted)
        for (from_gpu = 0; from_gpu < 2; ++from_gpu)
            for (on = 0; on < 2; ++on)
                for (from_kind = 0; from_kind < 3; ++from_kind)
                    for (to_kind = 0; to_kind < 3; ++to_kind) {
                        warp_stream *streams[2] = {make_stream("cuda:0", 0), make_stream("cuda:1", 0)};
                        void *from = block_of(from_gpu, kinds[from_kind], streams[from_gpu], 0x11);
                        void *to = block_of(1 - from_gpu, kinds[to_kind], streams[1 - from_gpu], 0x22);
                        int refused = from_kind == 1 && to_kind == 1 && granted == 0;
                        warp_graph *graph;
                        begin(streams[on]);
                        if (refused) {
                            CHECK_STATUS(warp_memory_copy(to, from, SIZE, streams[on]), WARP_ERROR_ACCESS_DENIED);
                            CHECK_STR_CONTAINS(warp_error_get_message(), "before the capture begins");
                            CHECK_STR_CONTAINS(warp_error_get_message(), "WARP_MEMORY_CUDA_DEVICE");
                            CHECK_EQ_I64(state_of(streams[on]), WARP_CAPTURE_STATE_ACTIVE);
                        } else {
                            grant(granted);
                            CHECK_STATUS(warp_memory_copy(to, from, SIZE, streams[on]), WARP_SUCCESS);
                        }
                        graph = end(streams[on]);
                        CHECK_STATUS(warp_graph_launch(graph, streams[on]), WARP_SUCCESS);
                        CHECK_STATUS(warp_stream_synchronize(streams[on]), WARP_SUCCESS);
                        CHECK(holds(to, refused ? 0x22 : 0x11, SIZE, streams[1 - from_gpu]));
                        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
                        CHECK_STATUS(warp_free(from), WARP_SUCCESS);
                        CHECK_STATUS(warp_free(to), WARP_SUCCESS);
                        CHECK_STATUS(warp_stream_synchronize(streams[0]), WARP_SUCCESS);
                        CHECK_STATUS(warp_stream_synchronize(streams[1]), WARP_SUCCESS);
                        CHECK_STATUS(warp_stream_release(streams[0]), WARP_SUCCESS);
                        CHECK_STATUS(warp_stream_release(streams[1]), WARP_SUCCESS);
                        grant(0);
                    }
    check_clean();
}

PROCESS_TEST(a_refused_copy_can_be_mended_in_the_same_capture)
{
    warp_stream *stream, *far;
    warp_graph *graph;
    void *from, *to, *plain;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    far = make_stream("cuda:1", 0);
    from = block_of(1, WARP_MEMORY_CUDA_MEMPOOL, far, 5);
    to = block_of(0, WARP_MEMORY_CUDA_MEMPOOL, stream, 6);
    plain = block_of(0, WARP_MEMORY_CUDA_DEVICE, stream, 7);
    begin(stream);
    CHECK_STATUS(warp_memory_copy(to, from, SIZE, stream), WARP_ERROR_ACCESS_DENIED);
    CHECK_STATUS(warp_memory_copy(plain, from, SIZE, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(to, plain, SIZE, stream), WARP_SUCCESS);
    graph = end(stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(to, 5, SIZE, stream));
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_free(from), WARP_SUCCESS);
    CHECK_STATUS(warp_free(to), WARP_SUCCESS);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(far), WARP_SUCCESS);
    check_clean();
}

PROCESS_TEST(host_memory_is_read_and_written_in_each_run)
{
    static unsigned char in[4096], out[4096];
    warp_stream *stream;
    warp_graph *graph;
    char *block;
    int i;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    begin(stream);
    block = alloc_on("cuda:0", stream, sizeof in);
    CHECK_STATUS(warp_memory_copy(block, in, sizeof in, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(out, block, sizeof in, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    graph = end(stream);
    CHECK_EQ_U64(out[0], 0);
    for (i = 1; i < 4; ++i) {
        memset(in, i, sizeof in);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_U64(out[0], i);
        CHECK_EQ_U64(out[sizeof out - 1], i);
    }
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(ranges_are_checked_before_anything_is_recorded)
{
    warp_stream *stream, *far;
    warp_graph *graph;
    char *block, *other;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    far = make_stream("cuda:1", 0);
    other = block_of(0, WARP_MEMORY_CUDA_DEVICE, stream, 1);
    begin(stream);
    block = alloc_on("cuda:0", stream, SIZE);
    CHECK_STATUS(warp_memory_copy(block, other, SIZE + 1, stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_memory_copy(block + 1, other, SIZE, stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_memory_copy(NULL, other, 1, stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_memory_copy(block, other, SIZE, far), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_memory_fill(block, SIZE, "abc", 3, stream), WARP_ERROR_INVALID_ARGUMENT);
    /* Memory of a capture is for its own streams until it has run. */
    CHECK_STATUS(warp_memory_fill(block, 1, "x", 1, far), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    graph = end(stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_free(other), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

CHECK_MAIN()
