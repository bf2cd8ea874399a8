/*
 * caches.h: what the tests of the chapter Caching share: short ways to make a cache, to look into it, and to have work wait.
 *
 *     warp_allocator *cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
 *     freed(block_by(gpu(0), cache, 1000, NULL));
 *     CHECK_EQ_U64(measured(cache).live_blocks, 0);
 */
#ifndef WARPMEM_TESTS_CACHES_H
#define WARPMEM_TESTS_CACHES_H

#include "allocators.h"

UNUSED warp_allocator *cache_over(warp_allocator *upstream, uint64_t limit, uint64_t keep)
{
    warp_caching_options options = {.struct_size = sizeof options, .limit = limit, .keep = keep};
    warp_allocator *cache = NULL;
    CHECK_STATUS(warp_allocator_create_caching(upstream, &options, &cache), WARP_SUCCESS);
    CHECK(cache != NULL);
    return cache;
}

UNUSED warp_allocator *own_cache(warp_memory_kind kind)
{
    warp_allocator *cache = NULL;
    CHECK_STATUS(warp_allocator_get_caching(kind, &cache), WARP_SUCCESS);
    CHECK(cache != NULL);
    return cache;
}

UNUSED void release(warp_allocator *allocator)
{
    CHECK_STATUS(warp_allocator_release(allocator), WARP_SUCCESS);
}

UNUSED void freed(void *ptr)
{
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
}

UNUSED void *plain_alloc(warp_device *device, uint64_t size)
{
    void *ptr = NULL;
    CHECK_STATUS(warp_alloc(device, size, &ptr), WARP_SUCCESS);
    CHECK(ptr != NULL);
    return ptr;
}

/* What holds at any time, also of a cache whose blocks a lost device took along. */
UNUSED warp_caching_info figures_of(const warp_allocator *cache, warp_device *device)
{
    warp_caching_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_allocator_caching_measure(cache, device, &info), WARP_SUCCESS);
    CHECK_EQ_U64(info.reserved_bytes, info.used_bytes + info.free_bytes);
    return info;
}

UNUSED warp_caching_info measured_on(const warp_allocator *cache, warp_device *device)
{
    warp_caching_info info = figures_of(cache, device);
    CHECK(info.at_hand_bytes <= info.free_bytes && info.largest_free_bytes <= info.free_bytes);
    CHECK(info.live_bytes <= info.used_bytes);
    CHECK(device != NULL || info.reserved_bytes <= info.peak_reserved_bytes);
    return info;
}

UNUSED warp_caching_info measured(const warp_allocator *cache)
{
    return measured_on(cache, NULL);
}

UNUSED uint64_t trimmed(warp_allocator *cache, warp_device *device)
{
    uint64_t bytes = 0;
    CHECK_STATUS(warp_allocator_trim(cache, device, &bytes), WARP_SUCCESS);
    return bytes;
}

UNUSED void hold(warp_stream *stream)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native_stream(stream)), 0);
}

UNUSED void let_on(warp_stream *stream)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_release)(native_stream(stream)), 0);
}

/* Work that waits as long as its stream is held. */
UNUSED void fill_on(warp_stream *stream, void *ptr, uint64_t size)
{
    unsigned char byte = 7;
    CHECK_STATUS(warp_memory_fill(ptr, size, &byte, 1, stream), WARP_SUCCESS);
}

UNUSED warp_allocator *server_of(const void *ptr)
{
    return pointer_info(ptr).allocator;
}

UNUSED int is_of_graph(const void *ptr)
{
    return pointer_info(ptr).rule == WARP_ACCESS_RULE_GRAPH_FIXED;
}

UNUSED void check_no_violation(void)
{
    char text[300];
    size_t i;
    for (i = 0; SIMULATOR(warpsim_violation_get)(i, text, sizeof text) != 0; ++i)
        check_that(0, __FILE__, __LINE__, text);
}

/* By more than the usual way: with a tag that the program has as text. */
UNUSED void *tagged(warp_device *device, warp_allocator *cache, uint64_t size, warp_stream *stream)
{
    warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, stream);
    void *ptr = NULL;
    options.allocator = cache;
    options.tag = "tagged";
    CHECK_STATUS(warp_alloc_with(device, size, &options, &ptr), WARP_SUCCESS);
    return ptr;
}

/* Nobody has a block of it, and all that it has is known as free. */
UNUSED void check_empty(const warp_allocator *cache)
{
    warp_caching_info info = measured(cache);
    CHECK_EQ_U64(info.live_blocks, 0);
    CHECK_EQ_U64(info.used_bytes, 0);
    CHECK_EQ_U64(info.free_bytes, info.reserved_bytes);
}

#endif
