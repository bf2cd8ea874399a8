/*
 * hardware_caching.h: what the tests of the caching allocator on real GPUs share: how a life of the library begins there, streams that
 * are kept busy, and caches of which everything has come back.
 *
 * All of them want one GPU, and what needs two says so. They run on the simulated driver as well, where blocks are smaller.
 */
#ifndef WARPMEM_TESTS_HARDWARE_CACHING_H
#define WARPMEM_TESTS_HARDWARE_CACHING_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../c/caches.h"

#include "../c/kernels.h"
#include "../c/process.h"
#include "hardware_calls.h"

#define UPLOAD(d, s, n, stream) CU((address, const void *, size_t, void *), "cuMemcpyHtoDAsync_v2")(d, s, n, stream)
#define DOWNLOAD(d, s, n, stream) CU((void *, address, size_t, void *), "cuMemcpyDtoHAsync_v2")(d, s, n, stream)
#define POOL_RESERVES(pool, out) CU((void *, int, void *), "cuMemPoolGetAttribute")(pool, POOL_RESERVED, out)

static const warp_memory_kind upstreams[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL};
#define UPSTREAMS (sizeof upstreams / sizeof *upstreams)

/* Of blocks that have a chunk for themselves: only such a one goes to another stream. */
CHECK_MAYBE_UNUSED static uint64_t large(void)
{
    return is_small() ? 2 * MIB : 8 * MIB;
}

/* What the driver loads by its first use is there afterwards; that may wait for all that works. */
CHECK_MAYBE_UNUSED static void call_all_once(void)
{
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    char *from = (char *)block_on(gpu(0), 64 * KIB, WARP_MEMORY_CUDA_DEVICE, stream);
    char *to = (char *)block_on(gpu(0), 64 * KIB, WARP_MEMORY_CUDA_MEMPOOL, stream);
    void *host = block_of(cpu(), 64 * KIB, WARP_MEMORY_PINNED);
    CHECK_STATUS(warp_memory_fill(from, 64 * KIB, "01234567", 8, stream), WARP_SUCCESS);
    fill(from, 64 * KIB, 1, stream);
    copy(to, from, 64 * KIB, stream);
    copy(host, to, 64 * KIB, stream);
    copy(from, host, 64 * KIB, stream);
    CHECK(device_holds(from, 64 * KIB, 1, stream));
    freed(from);
    freed(to);
    freed(host);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

/* A simulated GPU lags behind as a real one does, by a seed that WARPSIM_SEED may choose. */
CHECK_MAYBE_UNUSED static void begin_life(void)
{
    if (simulator_is_here() && getenv("WARPSIM_SEED") == NULL)
        SIMULATOR(warpsim_schedule)(5);
    if (simulator_is_here())
        SIMULATOR(warpsim_races)(1);
    REQUIRE(start());
    REQUIRE(gpu_count() > 0);
    use_first_gpu();
    call_all_once();
}

CHECK_MAYBE_UNUSED static address at(const void *ptr)
{
    return (address)(uintptr_t)ptr;
}

CHECK_MAYBE_UNUSED static warp_stream *stream_of_ones_own(void)
{
    return new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
}

CHECK_MAYBE_UNUSED static void let_stream_go(warp_stream *stream)
{
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

/* How long a stream is kept busy. The first time is longer: the blocks for it are made, and touched. */
CHECK_MAYBE_UNUSED static double busy_seconds(warp_stream *stream)
{
    double begun;
    keep_busy(stream);
    finish(stream);
    keep_busy(stream);
    begun = now();
    finish(stream);
    return now() - begun;
}

/* What took so long did not wait for the work of a busy stream, which is not done yet. A simulated stream is done once somebody
 * waits for it. */
CHECK_MAYBE_UNUSED static void check_no_wait(double took, double busy, warp_stream *stream)
{
    CHECK_EQ_I64(STREAM_QUERY(native(stream)), NOT_READY); /* else this shows nothing */
    CHECK(simulator_is_here() || took < busy / 4);
}

/* Whether nobody has anything of a cache any more, before PATIENCE is over. What was freed and still waits for streams or graphs is
 * looked at by calls that wait. */
CHECK_MAYBE_UNUSED static int comes_back(const warp_allocator *cache, warp_stream *stream)
{
    const double begun = now();
    while (measured(cache).used_bytes != 0) {
        if (now() - begun > PATIENCE)
            return 0;
        finish(stream);
        usleep(200);
    }
    return 1;
}

/* Nobody has a block of a cache, and all that it has of a device goes back: also what was a stream's that was released, once that
 * has come to its end. */
CHECK_MAYBE_UNUSED static void empty(warp_allocator *cache, warp_device *device)
{
    check_empty(cache);
    CHECK_STATUS(warp_device_synchronize(device), WARP_SUCCESS);
    (void)trimmed(cache, device);
    CHECK_EQ_U64(measured_on(cache, device).reserved_bytes, 0);
}

CHECK_MAYBE_UNUSED static void end_cache(warp_allocator *cache, warp_device *device)
{
    empty(cache, device);
    release(cache);
}

#endif
