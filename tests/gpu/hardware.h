/*
 * hardware.h: what the tests for real GPUs share: the driver beside the library (hardware_driver.h), and short ways to start,
 * to make streams and blocks, and to count. They run on the simulated driver too.
 */
#ifndef WARPMEM_TESTS_HARDWARE_H
#define WARPMEM_TESTS_HARDWARE_H

#include "hardware_driver.h"

#include "../c/process.h"

CHECK_MAYBE_UNUSED static size_t gpus(void)
{
    size_t count = 0;
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    return count;
}

CHECK_MAYBE_UNUSED static warp_stream *new_stream(warp_device *of, uint32_t flags)
{
    warp_stream_options options = {.struct_size = sizeof options, .flags = flags};
    warp_stream *stream = NULL;
    CHECK_STATUS(warp_stream_create(of, &options, &stream), WARP_SUCCESS);
    return stream;
}

CHECK_MAYBE_UNUSED static void *block(warp_device *of, uint64_t size, warp_memory_kind kind, warp_stream *stream)
{
    warp_alloc_options options = {.struct_size = sizeof options, .kind = kind, .stream = stream};
    void *ptr = NULL;
    CHECK_STATUS(warp_alloc_with(of, size, &options, &ptr), WARP_SUCCESS);
    return ptr;
}

CHECK_MAYBE_UNUSED static uint64_t live(warp_device *of)
{
    warp_statistics counts = {.struct_size = sizeof counts};
    CHECK_STATUS(warp_statistics_get(of, WARP_MEMORY_UNKNOWN, &counts), WARP_SUCCESS);
    return counts.live_blocks;
}

/* The library started, and a context of the first GPU current. */
CHECK_MAYBE_UNUSED static void start(void)
{
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    REQUIRE(gpus() > 0);
    use_first_gpu();
}

#endif
