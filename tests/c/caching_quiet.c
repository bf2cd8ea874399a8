/*
 * caching_quiet.c: a block that is taken from what a thread has at hand, and given back, costs no memory of the host and no call of the
 * driver, whatever its size and wherever the memory is; and page-locked memory that a copy still reads is given to nobody.
 *
 * needs: simulator
 * valgrind: no (it has its own malloc and free, and these are not asked)
 */
#define _GNU_SOURCE
#include "caches.h"
#include "process.h"
#include "counted.h"

static void take_and_give(warp_device *device, warp_allocator *cache, uint64_t size, warp_stream *stream)
{
    warp_alloc_options options = {.struct_size = sizeof options, .stream = stream, .allocator = cache};
    void *ptr = NULL;
    CHECK_STATUS(warp_alloc_with(device, size, &options, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
}

static void check_quiet(warp_device *device, warp_allocator *cache, warp_stream *stream)
{
    static const uint64_t sizes[] = {1, 256, 5000, 65536, 3 * MIB, 40 * MIB, 256 * MIB};
    size_t s;
    int i;
    for (s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
        uint64_t driver;
        int before;
        /* The second one is remembered. */
        take_and_give(device, cache, sizes[s], stream);
        take_and_give(device, cache, sizes[s], stream);
        driver = calls("*");
        before = allocations;
        for (i = 0; i < 1000; ++i)
            take_and_give(device, cache, sizes[s], stream);
        CHECK(!counts || allocations == before);
        CHECK_EQ_U64(calls("*"), driver);
    }
}

PROCESS_TEST(a_pair_at_hand_costs_no_memory_and_no_call)
{
    warp_stream *stream;
    start_on("h200x2");
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    check_quiet(gpu(0), own_cache(WARP_MEMORY_UNKNOWN), stream);
    check_quiet(gpu(0), own_cache(WARP_MEMORY_CUDA_MEMPOOL), stream);
    check_quiet(cpu(), own_cache(WARP_MEMORY_PINNED), NULL);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

PROCESS_TEST(page_locked_memory_that_a_copy_reads_is_given_to_nobody)
{
    warp_allocator *cache;
    warp_stream *stream;
    void *there, *a, *b, *blocks[32];
    int i, found = 0;
    start_on("h200x2");
    cache = own_cache(WARP_MEMORY_PINNED);
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    there = block_of(gpu(0), 64 * KIB, WARP_MEMORY_CUDA_DEVICE);
    freed(block_by(cpu(), cache, 64 * KIB, NULL));
    a = block_by(cpu(), cache, 64 * KIB, NULL);
    memset(a, 5, 64 * KIB);
    hold(stream);
    CHECK_STATUS(warp_memory_copy(there, a, 64 * KIB, stream), WARP_SUCCESS);
    freed(a);
    CHECK_STATUS(warp_free(a), WARP_ERROR_DOUBLE_FREE);
    b = block_by(cpu(), cache, 64 * KIB, NULL);
    CHECK(b != a);
    memset(b, 6, 64 * KIB);
    let_on(stream);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    /* A call that is more than usual looks at what waits; then it serves again. */
    freed(tagged(cpu(), cache, 1, NULL));
    for (i = 0; i < 32; ++i) {
        blocks[i] = block_by(cpu(), cache, 64 * KIB, NULL);
        found += blocks[i] == a;
    }
    CHECK_EQ_I64(found, 1);
    for (i = 0; i < 32; ++i)
        freed(blocks[i]);
    /* What the copy has read is what was there before the free. */
    CHECK_STATUS(warp_memory_copy(b, there, 64 * KIB, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_I64(((unsigned char *)b)[64 * KIB - 1], 5);
    freed(b);
    freed(there);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_no_violation();
}

CHECK_MAIN()
