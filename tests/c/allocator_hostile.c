/*
 * Allocators among hostile neighbours: what others do in the middle of a callback, or at the same moment on another thread.
 */
#define _GNU_SOURCE
#include "allocators.h"
#include "captures.h"

/* ---- A stream that goes in the middle of a callback ------------------------------------------------------------------- */

static void release_its_stream(struct recorder *r, const warp_alloc_request *request)
{
    (void)r;
    CHECK_STATUS(warp_stream_release(request->stream), WARP_SUCCESS);
}

/* As when another thread does it at that moment: what the callback passes on is good for as long as it runs. */
TEST(a_stream_released_while_its_block_comes_back)
{
    static const uint32_t flags[] = {WARP_ALLOCATOR_STREAM_ORDERED, WARP_ALLOCATOR_STREAM_ORDERED | WARP_ALLOCATOR_MANAGES_CONTEXT};
    int i, busy;
    if (!simulator_is_here())
        SKIP("needs the simulated driver");
    for (i = 0; i < 4; ++i) {
        struct recorder r = {.flags = flags[i % 2]};
        warp_stream *stream;
        void *block;
        busy = i / 2;
        CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        created(&r, WARP_MEMORY_CUDA_MEMPOOL);
        stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        block = block_by(gpu(0), r.handle, 4096, stream);
        if (busy)
            SIMULATOR(warpsim_hold)(native_stream(stream));
        fill_byte(block, 7, 4096, stream);
        r.on_deallocate = release_its_stream;
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        r.on_deallocate = NULL;
        CHECK_STATUS(warp_stream_release(stream), WARP_ERROR_INVALID_HANDLE);
        SIMULATOR(warpsim_release_all)();
        let_go(&r);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK_OVER(&r);
        CHECK_EQ_U64(live_of(r.below), 0);
        CHECK_NOTHING_LEFT();
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
}

TEST(a_stream_released_while_memory_is_asked_for)
{
    struct recorder r = {.flags = WARP_ALLOCATOR_STREAM_ORDERED, .on_allocate = release_its_stream};
    warp_stream *stream;
    void *block;
    if (!simulator_is_here())
        SKIP("needs the simulated driver");
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    created(&r, WARP_MEMORY_CUDA_MEMPOOL);
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    block = block_by(gpu(0), r.handle, 4096, stream);
    CHECK_STATUS(warp_stream_release(stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    let_go(&r);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_OVER(&r);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
