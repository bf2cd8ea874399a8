/*
 * cpu_captures.h: what tests of captures of the CPU share. Its stream is the calling thread's; blocks and steps on it.
 */
#ifndef WARPMEM_TESTS_CPU_CAPTURES_H
#define WARPMEM_TESTS_CPU_CAPTURES_H

#define _GNU_SOURCE

#include "devices.h"
#include "process.h"

#define UNUSED __attribute__((unused)) static

UNUSED warp_stream *cpu_stream(void)
{
    warp_stream *stream = NULL;
    CHECK_STATUS(warp_stream_get_current(device("cpu"), &stream), WARP_SUCCESS);
    return stream;
}

UNUSED void begin(void)
{
    CHECK_STATUS(warp_capture_begin(cpu_stream(), WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
}

UNUSED warp_graph *end(void)
{
    warp_graph *graph = NULL;
    CHECK_STATUS(warp_capture_end(cpu_stream(), &graph), WARP_SUCCESS);
    CHECK(graph != NULL);
    return graph;
}

UNUSED void launch(warp_graph *graph)
{
    CHECK_STATUS(warp_graph_launch(graph, NULL), WARP_SUCCESS);
}

UNUSED void release(warp_graph *graph)
{
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
}

UNUSED warp_capture_info capture_info(void)
{
    warp_capture_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_capture_query_info(cpu_stream(), &info), WARP_SUCCESS);
    return info;
}

UNUSED int state(void)
{
    return capture_info().state;
}

UNUSED void *host_block(uint64_t size)
{
    void *block = NULL;
    CHECK_STATUS(warp_alloc(device("cpu"), size, &block), WARP_SUCCESS);
    return block;
}

UNUSED void fill(void *block, unsigned char value, uint64_t size)
{
    CHECK_STATUS(warp_memory_fill(block, size, &value, 1, NULL), WARP_SUCCESS);
}

UNUSED void copy(void *to, const void *from, uint64_t size)
{
    CHECK_STATUS(warp_memory_copy(to, from, size, NULL), WARP_SUCCESS);
}

UNUSED void free_block(void *block)
{
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

UNUSED int all_are(const void *block, unsigned char value, uint64_t size)
{
    const unsigned char *bytes = block;
    uint64_t i;
    for (i = 0; i < size; ++i)
        if (bytes[i] != value)
            return 0;
    return 1;
}

UNUSED uint64_t live_on_cpu(void)
{
    warp_statistics of = {.struct_size = sizeof of};
    CHECK_STATUS(warp_statistics_get(device("cpu"), WARP_MEMORY_UNKNOWN, &of), WARP_SUCCESS);
    return of.live_blocks;
}

UNUSED void count_up(void *user)
{
    __atomic_add_fetch((int *)user, 1, __ATOMIC_SEQ_CST);
}

UNUSED void start(void)
{
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
}

UNUSED void finish(void)
{
    CHECK_EQ_U64(live_on_cpu(), 0);
    CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_NONE);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* Calls of the host that were released. */
UNUSED int release_count;

UNUSED void release_one(void *user)
{
    (void)user;
    __atomic_add_fetch(&release_count, 1, __ATOMIC_SEQ_CST);
}

UNUSED int released_now(void)
{
    return __atomic_load_n(&release_count, __ATOMIC_SEQ_CST);
}

UNUSED void call_on_cpu(warp_host_function function, void *user)
{
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), function, user, release_one), WARP_SUCCESS);
}

#define CHECK_SAYS(call, status, words)                            \
    do {                                                           \
        CHECK_STATUS(call, status);                                \
        CHECK_STR_CONTAINS(warp_error_get_message(), words);       \
    } while (0)
#define CHECK_REFUSED(call, words) CHECK_SAYS(call, WARP_ERROR_ILLEGAL_IN_CAPTURE, words)
#define CHECK_INVALID(call, words) CHECK_SAYS(call, WARP_ERROR_INVALID_ARGUMENT, words)

#endif
