/*
 * hardware_calls.h: short ways to call what tests on real GPUs call most, and looking whether memory came back, which threads of
 * the driver bring about some time after its last use. It stands beside the headers of ../c too.
 */
#ifndef WARPMEM_TESTS_HARDWARE_CALLS_H
#define WARPMEM_TESTS_HARDWARE_CALLS_H

#include "hardware_driver.h"

#include <unistd.h>

/* Seconds that something may take to come about which a thread of the driver brings. */
#define PATIENCE 10.0

CHECK_MAYBE_UNUSED static void begin(warp_stream *stream)
{
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
}

CHECK_MAYBE_UNUSED static warp_graph *end(warp_stream *stream)
{
    warp_graph *graph = NULL;
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK(graph != NULL);
    return graph;
}

CHECK_MAYBE_UNUSED static void fill(void *ptr, uint64_t size, int value, warp_stream *stream)
{
    unsigned char byte = (unsigned char)value;
    CHECK_STATUS(warp_memory_fill(ptr, size, &byte, 1, stream), WARP_SUCCESS);
}

CHECK_MAYBE_UNUSED static void copy(void *dest, const void *src, uint64_t size, warp_stream *stream)
{
    CHECK_STATUS(warp_memory_copy(dest, src, size, stream), WARP_SUCCESS);
}

CHECK_MAYBE_UNUSED static void wait_for(warp_stream *stream, warp_stream *other)
{
    CHECK_STATUS(warp_stream_wait_stream(stream, other), WARP_SUCCESS);
}

CHECK_MAYBE_UNUSED static void launch(warp_graph *graph, warp_stream *stream)
{
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
}

CHECK_MAYBE_UNUSED static void finish(warp_stream *stream)
{
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
}

CHECK_MAYBE_UNUSED static int state_of(warp_stream *stream)
{
    warp_capture_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_capture_query_info(stream, &info), WARP_SUCCESS);
    return info.state;
}

CHECK_MAYBE_UNUSED static warp_graph_memory_info graph_memory(void)
{
    warp_graph_memory_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_graph_query_memory(device("cuda:0"), &info), WARP_SUCCESS);
    return info;
}

/* What graphs hold of the first GPU once it came down to that or PATIENCE is over: that a graph is gone is told by a thread of
 * the driver, some time after it was. */
CHECK_MAYBE_UNUSED static uint64_t graph_memory_left(uint64_t expected)
{
    double begun = now();
    uint64_t used;
    for (;;) {
        CHECK_STATUS(warp_graph_trim_memory(device("cuda:0")), WARP_SUCCESS);
        used = graph_memory().used;
        if (used <= expected || now() - begun > PATIENCE)
            return used;
        usleep(1000);
    }
}

CHECK_MAYBE_UNUSED static uint64_t free_memory(void)
{
    size_t bytes = 0, total = 0;
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    CHECK_EQ_I64(CU((size_t *, size_t *), "cuMemGetInfo_v2")(&bytes, &total), SUCCESS);
    return bytes;
}

/* What is lost of the GPU's free memory, in MiB; kernels and the driver's own tables may have come to stay. */
CHECK_MAYBE_UNUSED static uint64_t lost_since(uint64_t before)
{
    uint64_t after = free_memory();
    return after >= before ? 0 : (before - after) / MIB;
}
#define CHECK_MEMORY_BACK(graphs, before)                  \
    do {                                                   \
        CHECK_EQ_U64(graph_memory_left(graphs), graphs);   \
        CHECK(lost_since(before) <= 64);                   \
    } while (0)

#endif
