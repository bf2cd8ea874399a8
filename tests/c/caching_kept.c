/*
 * caching_kept.c: what a cache keeps and when it goes back: by a trim, beyond what is to be kept, for a limit, and before anybody is
 * out of memory.
 *
 * needs: simulator
 * valgrind: slow (a process for each promise; the threads, failures and captures of the cache go the same ways there)
 */
#define _GNU_SOURCE
#include "caches.h"
#include "process.h"

PROCESS_TEST(trimming_gives_all_back_that_nobody_uses)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    size_t k;
    start_on("h200x2");
    for (k = 0; k < sizeof kinds / sizeof *kinds; ++k) {
        warp_allocator *cache = cache_over(builtin(kinds[k]), 0, 0);
        uint64_t used = SIMULATOR(warpsim_live_bytes)("*"), kept;
        void *a = block_by(gpu(0), cache, 5 * MIB, NULL), *b = block_by(gpu(0), cache, 100, NULL), *c = block_by(gpu(1), cache, 100, NULL);
        freed(a);
        CHECK_EQ_U64(measured_on(cache, gpu(0)).free_bytes, 6 * MIB + 2 * MIB - 512);
        CHECK_EQ_U64(trimmed(cache, gpu(0)), 6 * MIB);
        CHECK_EQ_U64(measured_on(cache, gpu(0)).reserved_bytes, 2 * MIB);
        freed(c);
        CHECK_EQ_U64(trimmed(cache, gpu(0)), 0);
        freed(b);
        kept = SIMULATOR(warpsim_live_bytes)("*");
        CHECK(kept >= used + 4 * MIB);
        CHECK_EQ_U64(trimmed(cache, gpu(0)), 2 * MIB);
        CHECK_EQ_U64(trimmed(cache, gpu(1)), 2 * MIB);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_bytes)("*"), used);
        release(cache);
    }
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(a_limit_holds_and_what_is_kept_makes_room)
{
    warp_allocator *cache;
    void *a, *b, *ptr = (void *)1;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 10 * MIB, 0);
    a = block_by(gpu(0), cache, 6 * MIB, NULL);
    b = block_by(gpu(1), cache, 4 * MIB, NULL);
    CHECK_STATUS(try_by(gpu(0), cache, 1, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "may reserve 10485760 bytes");
    freed(a);
    /* Another size of the same device: what is there goes back first. */
    a = block_by(gpu(0), cache, 5 * MIB, NULL);
    freed(a);
    a = block_by(gpu(0), cache, 100, NULL);
    CHECK(measured(cache).reserved_bytes <= 10 * MIB);
    CHECK_EQ_U64(measured(cache).peak_reserved_bytes, 10 * MIB);
    freed(b);
    freed(a);
    CHECK_STATUS(try_by(gpu(0), cache, 11 * MIB, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_U64(measured(cache).live_blocks, 0);
    release(cache);
    CHECK_NOTHING_LEFT();
}

/* "Of all devices together": so what another device has kept and nobody uses makes room as well. */
PROCESS_TEST(a_limit_is_met_by_what_another_device_keeps)
{
    warp_allocator *cache;
    void *ptr;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 10 * MIB, 0);
    freed(block_by(gpu(1), cache, 8 * MIB, NULL));
    CHECK_STATUS(try_by(gpu(0), cache, 8 * MIB, NULL, &ptr), WARP_SUCCESS);
    if (ptr != NULL)
        freed(ptr);
    release(cache);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(what_passes_the_cache_by_counts_against_its_limit)
{
    warp_allocator *cache;
    warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, NULL);
    void *ptr = NULL;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 4 * MIB, 0);
    options.allocator = cache;
    options.alignment = 4096;
    CHECK_STATUS(warp_alloc_with(gpu(0), 64 * MIB, &options, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    if (ptr != NULL)
        freed(ptr);
    release(cache);
    CHECK_NOTHING_LEFT();
}

static warp_allocator *nested;
static void *inner_block;

static void allocate_inside(struct recorder *r, const warp_alloc_request *request)
{
    r->on_allocate = NULL;
    (void)try_by(request->device, nested, 4 * MIB, NULL, &inner_block);
}

/* Two requests of which each has room, and both together do not: here one in the middle of the other, as of two threads. */
PROCESS_TEST(a_limit_holds_for_requests_at_the_same_time)
{
    static struct recorder r;
    warp_allocator *cache;
    void *ptr = NULL;
    warp_status status;
    start_on("h200x2");
    r.kind = WARP_MEMORY_CUDA_DEVICE;
    cache = nested = cache_over(created(&r, WARP_MEMORY_CUDA_DEVICE), 6 * MIB, 0);
    r.on_allocate = allocate_inside;
    status = try_by(gpu(0), cache, 4 * MIB, NULL, &ptr);
    CHECK((status == WARP_SUCCESS) + (inner_block != NULL) == 1);
    CHECK(measured(cache).peak_reserved_bytes <= 6 * MIB);
    if (status == WARP_SUCCESS)
        freed(ptr);
    if (inner_block != NULL)
        freed(inner_block);
    release(cache);
    let_go(&r);
    CHECK_OVER(&r);
}

PROCESS_TEST(more_than_is_to_be_kept_goes_back)
{
    warp_allocator *cache;
    void *blocks[8];
    int i;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 8 * MIB);
    for (i = 0; i < 8; ++i)
        blocks[i] = block_by(gpu(0), cache, 4 * MIB, NULL);
    CHECK_EQ_U64(measured(cache).reserved_bytes, 32 * MIB);
    for (i = 0; i < 8; ++i)
        freed(blocks[i]);
    CHECK_EQ_U64(measured(cache).used_bytes, 0);
    /* Kept as whole chunks, and at hand of one thread with one block more. */
    CHECK(measured(cache).reserved_bytes <= 8 * MIB + 8 * MIB + 4 * MIB);
    CHECK(measured(cache).reserved_bytes >= 8 * MIB);
    release(cache);
    CHECK_NOTHING_LEFT();
}

static void *leave_some_at_hand(void *argument)
{
    warp_allocator *cache = (warp_allocator *)argument;
    void *blocks[8];
    int i;
    for (i = 0; i < 8; ++i)
        blocks[i] = block_by(gpu(0), cache, MIB + MIB / 2, NULL);
    for (i = 0; i < 8; ++i)
        freed(blocks[i]);
    return NULL;
}

/* What threads have at hand is not counted before it is joined, by who needs a larger block. */
PROCESS_TEST(no_more_is_kept_either_when_chunks_come_free_at_threads_hands)
{
    pthread_t thread;
    warp_allocator *cache;
    void *ptr;
    int i;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 4 * MIB);
    for (i = 0; i < 3; ++i) {
        REQUIRE(pthread_create(&thread, NULL, leave_some_at_hand, cache) == 0);
        pthread_join(thread, NULL);
    }
    leave_some_at_hand(cache);
    ptr = block_by(gpu(0), cache, 3 * MIB, NULL);
    CHECK_EQ_U64(measured(cache).at_hand_bytes, 0);
    CHECK_EQ_U64(measured(cache).free_bytes, 4 * MIB + MIB);
    freed(ptr);
    release(cache);
}

PROCESS_TEST(what_is_kept_is_given_back_when_memory_runs_out)
{
    warp_allocator *cache;
    void *a;
    start_on("h200x2,memory=1GiB");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    freed(block_by(gpu(0), cache, 400 * MIB, NULL));
    freed(block_by(gpu(0), cache, 30 * MIB, NULL));
    a = block_by(gpu(0), cache, 900 * MIB, NULL);
    CHECK(a != NULL);
    freed(a);
    release(cache);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(out_of_memory_is_said_with_what_there_is_and_nothing_is_lost)
{
    warp_allocator *cache;
    void *a, *ptr = (void *)1;
    start_on("h200x2,memory=1GiB");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    a = block_by(gpu(0), cache, 600 * MIB, NULL);
    CHECK_STATUS(try_by(gpu(0), cache, 600 * MIB, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "the cache there has 629145600 bytes");
    CHECK_EQ_U64(measured(cache).live_blocks, 1);
    freed(a);
    freed(block_by(gpu(0), cache, 700 * MIB, NULL));
    release(cache);
    CHECK_NOTHING_LEFT();
}

/* ---- memory that comes free in a moment ----------------------------------------------------------------------------------- */

static void *let_on_soon(void *stream)
{
    usleep(50000);
    let_on((warp_stream *)stream);
    return NULL;
}

static void *let_all_on_soon(void *unused)
{
    usleep(50000);
    SIMULATOR(warpsim_release_all)();
    return unused;
}

/* What was freed and is still used on another stream, which has it for a while, is all that there may be. */
static void wait_for_what_is_owed(warp_device *on, warp_allocator *cache, uint64_t size)
{
    warp_stream *other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    void *block = block_by(on, cache, size, NULL), *next = NULL;
    void *on_gpu = block_of(gpu(0), size, WARP_MEMORY_CUDA_DEVICE);
    pthread_t thread;
    hold(other);
    CHECK_STATUS(warp_memory_copy(on_gpu, block, size, other), WARP_SUCCESS);
    freed(block);
    REQUIRE(pthread_create(&thread, NULL, let_on_soon, other) == 0);
    CHECK_STATUS(try_by(on, cache, size, NULL, &next), WARP_SUCCESS);
    pthread_join(thread, NULL);
    freed(next);
    freed(on_gpu);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
}

PROCESS_TEST(a_limit_is_met_by_what_is_freed_and_still_used_elsewhere)
{
    warp_allocator *cache;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 4 * MIB, 0);
    wait_for_what_is_owed(gpu(0), cache, 4 * MIB);
    release(cache);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(page_locked_memory_that_a_copy_still_reads_is_waited_for)
{
    void *ptr;
    start_on("h200x2,pinned_limit=7MiB");
    wait_for_what_is_owed(cpu(), own_cache(WARP_MEMORY_PINNED), 4 * MIB);
    /* Also by who asks for it past the cache. */
    ptr = block_of(cpu(), 6 * MIB, WARP_MEMORY_PINNED);
    freed(ptr);
}

/* What was freed is all that there may be, nobody has it, and its stream still works for a while: also one that was released. */
static void wait_for_a_stream(warp_allocator *cache, int released)
{
    warp_stream *own = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), *other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    pthread_t thread;
    void *block = block_by(gpu(0), cache, 400 * MIB, own), *next = NULL;
    hold(own);
    fill_on(own, block, MIB);
    freed(block);
    if (released)
        CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, let_all_on_soon, NULL) == 0);
    CHECK_STATUS(try_by(gpu(0), cache, 400 * MIB, other, &next), WARP_SUCCESS);
    pthread_join(thread, NULL);
    freed(next);
    if (!released)
        CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    release(cache);
    check_no_violation();
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(what_is_kept_for_a_stream_that_still_works_is_waited_for)
{
    static struct recorder r;
    warp_allocator *limit = NULL;
    start_on("h200x2,memory=700MiB");
    SIMULATOR(warpsim_auto_release)(0);
    wait_for_a_stream(cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0), 0);
    wait_for_a_stream(cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0), 1);
    wait_for_a_stream(cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 500 * MIB, 0), 1);
    /* And where memory only goes back when its work is done. */
    r.kind = WARP_MEMORY_CUDA_DEVICE;
    CHECK_STATUS(warp_allocator_create_limit(created(&r, WARP_MEMORY_CUDA_DEVICE), 500 * MIB, &limit), WARP_SUCCESS);
    let_go(&r);
    wait_for_a_stream(cache_over(limit, 0, 0), 0);
    wait_for_a_stream(cache_over(limit, 0, 0), 1);
    release(limit);
    CHECK_OVER(&r);
}

PROCESS_TEST(what_is_kept_makes_room_for_what_passes_the_cache_by)
{
    warp_allocator *cache;
    warp_stream *stream;
    warp_graph *graph = NULL;
    void *ptr = NULL;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_MEMPOOL), 10 * MIB, 0);
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    freed(block_by(gpu(0), cache, 8 * MIB, NULL));
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
    CHECK_STATUS(try_by(gpu(0), cache, 4 * MIB, stream, &ptr), WARP_SUCCESS);
    freed(ptr);
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK(measured(cache).peak_reserved_bytes <= 10 * MIB);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    release(cache);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
