/*
 * forked.h: what the child of a fork can do and what it cannot, for the tests of forks.
 */
#ifndef WARPMEM_TESTS_FORKED_H
#define WARPMEM_TESTS_FORKED_H

#include "devices.h"
#include "process.h"

CHECK_MAYBE_UNUSED static void *alloc(const char *alias, warp_memory_kind kind)
{
    warp_alloc_options options = {.struct_size = sizeof options, .kind = kind, .tag = "life"};
    void *block = NULL;
    CHECK_STATUS(warp_alloc_with(device(alias), 4096, &options, &block), WARP_SUCCESS);
    return block;
}

/* One block of each kind. */
struct blocks {
    void *host, *pinned, *pool, *plain, *managed;
};

CHECK_MAYBE_UNUSED static struct blocks alloc_all(void)
{
    struct blocks blocks;
    blocks.host = alloc("cpu", WARP_MEMORY_HOST);
    blocks.pinned = alloc("cpu", WARP_MEMORY_PINNED);
    blocks.pool = alloc("cuda:1", WARP_MEMORY_CUDA_MEMPOOL);
    blocks.plain = alloc("cuda:1", WARP_MEMORY_CUDA_DEVICE);
    blocks.managed = alloc("cuda:1", WARP_MEMORY_CUDA_MANAGED);
    return blocks;
}

CHECK_MAYBE_UNUSED static void free_all(const struct blocks *blocks)
{
    CHECK_STATUS(warp_free(blocks->host), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks->pinned), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks->pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks->plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks->managed), WARP_SUCCESS);
}

/* Runs a body in a forked child of the test's process, for so many seconds at most. */
CHECK_MAYBE_UNUSED static void in_child(void (*body)(void *), void *argument, unsigned patience)
{
    pid_t child;
    fflush(stdout);
    child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        __atomic_store_n(&check_failures, 0, __ATOMIC_SEQ_CST);
        alarm(patience);
        body(argument);
        exit(check_failure_count() == 0 ? 0 : 1);
    }
    CHECK_EQ_I64(process_wait(child), 0);
}

/* What a child can do: everything on the CPU. */
CHECK_MAYBE_UNUSED static void use_cpu(void)
{
    warp_alloc_options options = {.struct_size = sizeof options, .tag = "child", .alignment = 4096};
    warp_pointer_info where = {.struct_size = sizeof where};
    warp_statistics counts = {.struct_size = sizeof counts};
    warp_stream *stream = NULL;
    char byte = 3, text[4096];
    void *block = NULL, *other = NULL;
    int i;
    for (i = 0; i < 100; ++i) {
        CHECK_STATUS(warp_alloc_with(device("cpu"), 4096, &options, &block), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc(device("cpu"), 100, &other), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(block, 4096, &byte, 1, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(other, block, 100, NULL), WARP_SUCCESS);
        CHECK_EQ_I64(((char *)other)[99], 3);
        CHECK_STATUS(warp_pointer_get_info((char *)block + 5, &where), WARP_SUCCESS);
        CHECK_EQ_PTR(where.base, block);
        CHECK_EQ_STR(where.tag, "child");
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(other), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(block), WARP_ERROR_DOUBLE_FREE);
    CHECK_STATUS(warp_stream_get_current(device("cpu"), &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_statistics_get(device("cpu"), WARP_MEMORY_HOST, &counts), WARP_SUCCESS);
    CHECK_STATUS(warp_library_get_report(text, sizeof text, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
}

CHECK_MAYBE_UNUSED static void check_forked(void)
{
    warp_stream *stream = (warp_stream *)1;
    warp_alloc_options pinned = {.struct_size = sizeof pinned, .kind = WARP_MEMORY_PINNED};
    void *block = (void *)1;
    uint64_t available = 9, total = 9;
    CHECK_STATUS(warp_alloc(device("cuda:1"), 64, &block), WARP_ERROR_FORKED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "fork");
    CHECK_EQ_PTR(block, NULL);
    CHECK_STATUS(warp_alloc_with(device("cpu"), 64, &pinned, &block), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_stream_create(device("cuda:0"), NULL, &stream), WARP_ERROR_FORKED);
    CHECK_EQ_PTR(stream, NULL);
    CHECK_STATUS(warp_stream_wrap(device("cuda:0"), NULL, &stream), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_device_query_memory(device("cuda:0"), &available, &total), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_ERROR_FORKED);
}

#endif
