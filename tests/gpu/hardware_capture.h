/*
 * hardware_capture.h: what the tests of captures, graphs and events on real GPUs share.
 */
#ifndef WARPMEM_TESTS_HARDWARE_CAPTURE_H
#define WARPMEM_TESTS_HARDWARE_CAPTURE_H

#include "hardware.h"
#include "hardware_calls.h"

CHECK_MAYBE_UNUSED static warp_device *gpu(int ordinal)
{
    return device(ordinal == 0 ? "cuda:0" : "cuda:1");
}

CHECK_MAYBE_UNUSED static void *pool_block(warp_stream *stream, uint64_t size)
{
    return block(device("cuda:0"), size, WARP_MEMORY_CUDA_MEMPOOL, stream);
}

CHECK_MAYBE_UNUSED static void release(warp_graph *graph)
{
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
}

/* Whether the driver knows the memory any more. */
CHECK_MAYBE_UNUSED static int is_there(const void *ptr)
{
    unsigned type = 0;
    return MEMORY_TYPE(&type, (address)ptr) == SUCCESS;
}

/* Calls that look at what waits to be given back, and wait for no work of others. */
CHECK_MAYBE_UNUSED static void look(void)
{
    warp_stream *stream = new_stream(device("cuda:0"), WARP_STREAM_NON_BLOCKING);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

/* Whether the memory is given back, before PATIENCE is over, by calls that look. */
CHECK_MAYBE_UNUSED static int goes(const void *ptr)
{
    double begun = now();
    while (is_there(ptr)) {
        if (now() - begun > PATIENCE)
            return 0;
        look();
        usleep(1000);
    }
    return 1;
}

/* What the first GPU's pool has given out once it came down to that or PATIENCE is over. */
CHECK_MAYBE_UNUSED static uint64_t pool_used_left(uint64_t expected)
{
    double begun = now();
    uint64_t used = 0;
    void *pool = NULL;
    CHECK_EQ_I64(DEFAULT_POOL(&pool, 0), SUCCESS);
    for (;;) {
        CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
        CHECK_EQ_I64(POOL_USED(pool, &used), SUCCESS);
        if (used <= expected || now() - begun > PATIENCE)
            return used;
        look();
        usleep(1000);
    }
}

#endif
