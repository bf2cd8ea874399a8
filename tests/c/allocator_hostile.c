/*
 * Allocators among hostile neighbours: what others do in the middle of a callback, or at the same moment on another thread.
 *
 * needs: simulator
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

/* ---- Stopping each other ------------------------------------------------------------------------------------------------- */

static struct recorder stopping[2];
static pthread_barrier_t both_inside;

static void stop_the_other(struct recorder *r, const warp_alloc_request *request)
{
    (void)request;
    pthread_barrier_wait(&both_inside);
    CHECK_STATUS(warp_allocator_stop(stopping[r == &stopping[0]].handle), WARP_SUCCESS);
}

static void *ask_one(void *which)
{
    void *ptr = NULL;
    CHECK_STATUS(try_by(cpu(), ((struct recorder *)which)->handle, 64, NULL, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    return NULL;
}

/* Each is inside of the one that the other waits for: neither waits for ever. */
TEST(callbacks_of_two_allocators_stop_each_other)
{
    pthread_t threads[2];
    int i;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    pthread_barrier_init(&both_inside, NULL, 2);
    for (i = 0; i < 2; ++i) {
        stopping[i].flags = WARP_ALLOCATOR_HOST_MEMORY;
        stopping[i].on_allocate = stop_the_other;
        created(&stopping[i], WARP_MEMORY_HOST);
    }
    for (i = 0; i < 2; ++i)
        pthread_create(&threads[i], NULL, ask_one, &stopping[i]);
    for (i = 0; i < 2; ++i) {
        pthread_join(threads[i], NULL);
        CHECK_EQ_U64(stopping[i].deallocates, 0);
        let_go(&stopping[i]);
    }
    for (i = 0; i < 2; ++i) /* what a stopped one had is the test's to give back */
        CHECK_STATUS(warp_allocator_deallocate(stopping[i].below, stopping[i].out[0].ptr, NULL), WARP_SUCCESS);
    pthread_barrier_destroy(&both_inside);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
