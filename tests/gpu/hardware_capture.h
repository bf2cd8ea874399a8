/*
 * hardware_capture.h: what the tests of captures, graphs and events on real GPUs share: short ways to call, and looking whether
 * memory came back, which threads of the driver bring about some time after its last use.
 */
#ifndef WARPMEM_TESTS_HARDWARE_CAPTURE_H
#define WARPMEM_TESTS_HARDWARE_CAPTURE_H

#include "hardware.h"

#include <unistd.h>

#define EVENT_RECORD(e, s) CU((void *, void *), "cuEventRecord")(e, s)
#define INSTANTIATE(exec, graph, flags) \
    CU((void **, void *, unsigned long long), "cuGraphInstantiateWithFlags")(exec, graph, flags)
#define EXEC_DESTROY(exec) CU((void *), "cuGraphExecDestroy")(exec)
#define LAUNCH_NATIVE(exec, s) CU((void *, void *), "cuGraphLaunch")(exec, s)
#define DEFAULT_POOL(out, n) CU((void **, int), "cuDeviceGetDefaultMemPool")(out, n)
#define POOL_USED(pool, out) CU((void *, int, void *), "cuMemPoolGetAttribute")(pool, 7, out)
enum { AUTO_FREE_ON_LAUNCH = 1 };

/* Seconds that something may take to come about which a thread of the driver brings. */
#define PATIENCE 10.0

CHECK_MAYBE_UNUSED static warp_device *gpu(int ordinal)
{
    return device(ordinal == 0 ? "cuda:0" : "cuda:1");
}

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

CHECK_MAYBE_UNUSED static void *pool_block(warp_stream *stream, uint64_t size)
{
    return block(device("cuda:0"), size, WARP_MEMORY_CUDA_MEMPOOL, stream);
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

CHECK_MAYBE_UNUSED static void release(warp_graph *graph)
{
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
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
