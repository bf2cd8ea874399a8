/* captures.h: what tests of captures and graphs share: streams, captures, blocks in them, and what must be left at the end. */
#ifndef WARPMEM_TESTS_CAPTURES_H
#define WARPMEM_TESTS_CAPTURES_H

#define _GNU_SOURCE

#include "devices.h"
#include "driver.h"
#include "process.h"

#include <warpmem.h>

/* The driver's own calls on captures, as other code makes them. */
typedef void *CUgraph;
typedef void *CUgraphExec;
typedef void *CUgraphNode;
typedef void *CUevent;
uint32_t cuStreamBeginCapture_v2(CUstream stream, int32_t mode);
uint32_t cuStreamEndCapture(CUstream stream, CUgraph *out);
uint32_t cuStreamIsCapturing(CUstream stream, int32_t *out);
uint32_t cuEventCreate(CUevent *out, uint32_t flags);
uint32_t cuEventRecord(CUevent event, CUstream stream);
uint32_t cuEventDestroy_v2(CUevent event);
uint32_t cuStreamWaitEvent(CUstream stream, CUevent event, uint32_t flags);
uint32_t cuGraphCreate(CUgraph *out, uint32_t flags);
uint32_t cuGraphDestroy(CUgraph graph);
uint32_t cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags);
uint32_t cuGraphExecDestroy(CUgraphExec exec);
uint32_t cuGraphLaunch(CUgraphExec exec, CUstream stream);
uint32_t cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
uint32_t cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);
uint32_t cuGraphNodeGetType(CUgraphNode node, int32_t *out);
uint32_t cuMemsetD8Async(uint64_t ptr, unsigned char value, size_t count, CUstream stream);
uint32_t cuMemcpyAsync(uint64_t dest, uint64_t src, size_t size, CUstream stream);

#define NODE_MEMSET 2
#define NODE_MEM_ALLOC 10
#define NODE_MEM_FREE 11

__attribute__((unused)) static warp_stream *make_stream(const char *alias, uint32_t flags)
{
    warp_stream_options options = {.struct_size = sizeof options, .flags = flags};
    warp_stream *stream = NULL;
    CHECK_STATUS(warp_stream_create(device(alias), &options, &stream), WARP_SUCCESS);
    return stream;
}

__attribute__((unused)) static CUstream native_of(warp_stream *stream)
{
    warp_stream_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_stream_get_info(stream, &info), WARP_SUCCESS);
    return info.native;
}

__attribute__((unused)) static warp_status try_alloc(const char *alias, warp_stream *stream, warp_memory_kind kind, uint64_t size,
                                                     void **out)
{
    warp_alloc_options options = {.struct_size = sizeof options, .stream = stream, .kind = kind};
    return warp_alloc_with(device(alias), size, &options, out);
}

__attribute__((unused)) static void *alloc_on(const char *alias, warp_stream *stream, uint64_t size)
{
    void *block = NULL;
    CHECK_STATUS(try_alloc(alias, stream, WARP_MEMORY_CUDA_MEMPOOL, size, &block), WARP_SUCCESS);
    CHECK(block != NULL);
    return block;
}

__attribute__((unused)) static void begin(warp_stream *stream)
{
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
}

__attribute__((unused)) static warp_graph *end(warp_stream *stream)
{
    warp_graph *graph = NULL;
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK(graph != NULL);
    return graph;
}

__attribute__((unused)) static warp_capture_info capture_of(warp_stream *stream)
{
    warp_capture_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_capture_query_info(stream, &info), WARP_SUCCESS);
    return info;
}

__attribute__((unused)) static int state_of(warp_stream *stream)
{
    return capture_of(stream).state;
}

__attribute__((unused)) static warp_graph_info graph_info(warp_graph *graph)
{
    warp_graph_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_graph_get_info(graph, &info), WARP_SUCCESS);
    return info;
}

/* Fills with one byte, in the order of the stream. */
__attribute__((unused)) static void fill_byte(void *block, unsigned char value, uint64_t size, warp_stream *stream)
{
    CHECK_STATUS(warp_memory_fill(block, size, &value, 1, stream), WARP_SUCCESS);
}

/* Whether all bytes of a block have a value now, after what is on the stream. In small steps, for which no buffers are kept. */
__attribute__((unused)) static int holds(const void *block, unsigned char value, uint64_t size, warp_stream *stream)
{
    unsigned char *host = malloc(size);
    uint64_t i, wrong = 0;
    for (i = 0; i < size; i += 65536)
        CHECK_STATUS(warp_memory_copy(host + i, (const char *)block + i, size - i < 65536 ? size - i : 65536, stream),
                     WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    for (i = 0; i < size; ++i)
        wrong += host[i] != value;
    free(host);
    return wrong == 0;
}

/* Bytes that graphs hold on the first GPU once what they do not use is trimmed. */
__attribute__((unused)) static uint64_t graph_memory_after_trim(void)
{
    warp_graph_memory_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_graph_trim_memory(device("cuda:0")), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_query_memory(device("cuda:0"), &info), WARP_SUCCESS);
    return info.used;
}

/* How many things of a kind the driver has. */
__attribute__((unused)) static size_t live(const char *kind)
{
    return SIMULATOR(warpsim_live_count)(kind);
}

/* Blocks that the library counts as live, of all devices. */
__attribute__((unused)) static uint64_t live_blocks(void)
{
    uint64_t blocks = 0;
    size_t count = 0, i;
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    for (i = 0; i < count; ++i) {
        warp_statistics of = {.struct_size = sizeof of};
        warp_device *device = NULL;
        CHECK_STATUS(warp_device_get_at(i, &device), WARP_SUCCESS);
        CHECK_STATUS(warp_statistics_get(device, WARP_MEMORY_UNKNOWN, &of), WARP_SUCCESS);
        blocks += of.live_blocks;
    }
    return blocks;
}

/* Plans that a call of the driver fails; as warpsim_fail. */
__attribute__((unused)) static void fail(const char *entry, uint64_t nth, uint32_t code)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_fail)(entry, nth, code), 0);
}

__attribute__((unused)) static void clear(void)
{
    SIMULATOR(warpsim_fail_clear)();
}

/* Nothing live, nothing that a real machine would punish. */
__attribute__((unused)) static void check_clean(void)
{
    char text[512];
    size_t i;
    CHECK_EQ_U64(live("*"), 0);
    CHECK_EQ_U64(live("graph"), 0);
    CHECK_EQ_U64(live("graph_exec"), 0);
    CHECK_EQ_U64(live("graph_block"), 0);
    CHECK_EQ_U64(live("user_object"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    for (i = 0; SIMULATOR(warpsim_violation_get)(i, text, sizeof text) != 0; ++i)
        printf("\n    %s", text);
    CHECK_EQ_PTR(driver_current(), NULL);
}

#endif
