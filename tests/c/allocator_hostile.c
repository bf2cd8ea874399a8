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

/* ---- A driver that refuses ---------------------------------------------------------------------------------------------- */

/* Whatever it says, nothing was freed: no adaptor forgets the block, and the next free goes well. */
TEST(a_refused_free_is_made_again_through_any_adaptor)
{
    static const uint32_t codes[] = {1, 2, 101, 201, 600, 801, 900, 906, 999};
    size_t code, sort;
    if (!simulator_is_here())
        SKIP("needs the simulated driver");
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    for (code = 0; code < sizeof codes / sizeof *codes; ++code) {
        for (sort = 0; sort < 5; ++sort) {
            warp_allocator *below = builtin(WARP_MEMORY_CUDA_DEVICE), *adaptor = NULL;
            warp_allocator_info info;
            void *block, *direct = NULL;
            warp_alloc_request request = {.struct_size = sizeof request, .size = 4096, .device = gpu(0)};
            switch (sort) {
            case 0: CHECK_STATUS(warp_allocator_create_limit(below, 8192 + 16384, &adaptor), WARP_SUCCESS); break;
            case 1: CHECK_STATUS(warp_allocator_create_statistics(below, &adaptor), WARP_SUCCESS); break;
            case 2: CHECK_STATUS(warp_allocator_create_tracking(below, 0, &adaptor), WARP_SUCCESS); break;
            case 3: CHECK_STATUS(warp_allocator_create_aligned(below, 8192, &adaptor), WARP_SUCCESS); break;
            default: CHECK_STATUS(warp_allocator_create_fallback(below, below, &adaptor), WARP_SUCCESS); break;
            }
            block = block_by(gpu(0), adaptor, 4096, NULL);
            CHECK_STATUS(warp_allocator_allocate(adaptor, &request, &direct), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(warpsim_fail)("cuMemFree_v2", 1, codes[code]), 0);
            CHECK(warp_free(block) != WARP_SUCCESS);
            CHECK_EQ_I64(pointer_info(block).is_owned, 1);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(warpsim_fail)("cuMemFree_v2", 1, codes[code]), 0);
            CHECK(warp_allocator_deallocate(adaptor, direct, NULL) != WARP_SUCCESS);
            CHECK_STATUS(warp_allocator_deallocate(adaptor, direct, NULL), WARP_SUCCESS);
            CHECK_EQ_U64(live_of(adaptor), 0);
            CHECK_EQ_U64(live_of(below), 0);
            info = allocator_info(adaptor);
            CHECK_EQ_U64(info.failed_deallocations, 0);
            CHECK_STATUS(warp_allocator_release(adaptor), WARP_SUCCESS);
            if (check_failure_count() != 0) {
                printf("\n    the driver's code %u, adaptor %d", (unsigned)codes[code], (int)sort);
                return;
            }
        }
    }
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
