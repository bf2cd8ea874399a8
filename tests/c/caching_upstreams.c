/*
 * caching_upstreams.c: caches over every sort of allocator, and others over caches; devices that are lost with blocks of theirs.
 *
 * needs: simulator
 * valgrind: slow (a process for each promise; the threads, failures and captures of the cache go the same ways there)
 */
#define _GNU_SOURCE
#include "caches.h"
#include "process.h"

/* ---- what it stands on ---------------------------------------------------------------------------------------------- */

static void use_and_check(warp_allocator *cache, warp_device *device)
{
    void *blocks[12];
    int i, round;
    for (round = 0; round < 3; ++round) {
        for (i = 0; i < 12; ++i) {
            blocks[i] = block_by(device, cache, ((uint64_t)1 << i * 2) + 3, NULL);
            put_pattern(blocks[i], ((uint64_t)1 << i * 2) + 3, (uint64_t)i);
        }
        for (i = 0; i < 12; ++i) {
            CHECK_EQ_U64(find_pattern(blocks[i], ((uint64_t)1 << i * 2) + 3, (uint64_t)i), ((uint64_t)1 << i * 2) + 3);
            CHECK_EQ_PTR(server_of(blocks[i]), cache);
            freed(blocks[i]);
        }
    }
    CHECK_EQ_U64(live_of(cache), 0);
}

PROCESS_TEST(a_cache_stands_on_any_allocator)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_HOST, WARP_MEMORY_PINNED, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL,
                                             WARP_MEMORY_CUDA_MANAGED};
    size_t k;
    int sort;
    start_on("h200x2");
    for (k = 0; k < sizeof kinds / sizeof *kinds; ++k) {
        warp_device *on = k < 2 ? cpu() : gpu(1);
        for (sort = check_under("valgrind") ? (int)k % 3 : 0; sort < 6; sort += check_under("valgrind") ? 3 : 1) {
            warp_allocator *below = builtin(kinds[k]), *between = NULL, *cache;
            switch (sort) {
            case 0: break;
            case 1: CHECK_STATUS(warp_allocator_create_limit(below, GIB, &between), WARP_SUCCESS); break;
            case 2: CHECK_STATUS(warp_allocator_create_tracking(below, 0, &between), WARP_SUCCESS); break;
            case 3: CHECK_STATUS(warp_allocator_create_statistics(below, &between), WARP_SUCCESS); break;
            case 4: CHECK_STATUS(warp_allocator_create_aligned(below, 4096, &between), WARP_SUCCESS); break;
            case 5: CHECK_STATUS(warp_allocator_create_fallback(below, below, &between), WARP_SUCCESS); break;
                        }
            cache = cache_over(between != NULL ? between : below, 0, 0);
            use_and_check(cache, on);
            if (between != NULL)
                release(between);
            use_and_check(cache, on);
            release(cache);
            if (check_failure_count() != 0) {
                printf("\n    (on kind %s, sort %d)", kind_names[kinds[k]], sort);
                return;
            }
        }
    }
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(a_cache_stands_on_a_cache)
{
    warp_allocator *below, *cache, *limit = NULL;
    int between;
    start_on("h200x2");
    for (between = 0; between < 2; ++between) {
        void *ptr = NULL;
        below = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
        if (between)
            CHECK_STATUS(warp_allocator_create_limit(below, GIB, &limit), WARP_SUCCESS);
        cache = cache_over(between ? limit : below, 0, 0);
        CHECK_STATUS(try_by(gpu(0), cache, 100, NULL, &ptr), WARP_SUCCESS);
        if (ptr != NULL) {
            CHECK_EQ_U64(pointer_info(ptr).size, 100);
            CHECK_EQ_PTR(server_of(ptr), cache);
            freed(ptr);
        }
        /* Whatever became of it, nothing is lost. */
        (void)trimmed(cache, gpu(0));
        CHECK_EQ_U64(measured(below).used_bytes, 0);
        release(cache);
        if (between)
            release(limit);
        release(below);
    }
    CHECK_NOTHING_LEFT();
}

/* And others on it. */
PROCESS_TEST(others_stand_on_a_cache)
{
    warp_allocator *cache, *limit = NULL, *tracking = NULL;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    CHECK_STATUS(warp_allocator_create_limit(cache, GIB, &limit), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_tracking(limit, 0, &tracking), WARP_SUCCESS);
    use_and_check(limit, gpu(0));
    use_and_check(tracking, gpu(0));
    CHECK_EQ_U64(measured(cache).used_bytes, 0);
    release(limit);
    use_and_check(tracking, gpu(0));
    release(cache);
    use_and_check(tracking, gpu(0));
    release(tracking);
    CHECK_NOTHING_LEFT();
}

/* ---- streams that memory came for, and others ------------------------------------------------------------------------------ */

/* A chunk that came for one stream is another one's by now, which still works on it, and goes back. What is below knows it as the
 * first one's. */
static void lend_and_give_back(int released)
{
    warp_allocator *below, *cache;
    warp_stream *first, *second, *third;
    void *lent, *next;
    start_on("h200x2");
    below = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    cache = cache_over(below, 0, 0);
    first = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    lent = block_by(gpu(0), cache, 4 * MIB, first);
    freed(lent);
    if (released)
        CHECK_STATUS(warp_stream_release(first), WARP_SUCCESS);
    second = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    third = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    CHECK_EQ_PTR(block_by(gpu(0), cache, 4 * MIB, second), lent);
    hold(second);
    fill_on(second, lent, 4 * MIB);
    freed(lent);
    (void)trimmed(cache, gpu(0));
    next = block_by(gpu(0), below, 4 * MIB, released ? third : first);
    CHECK(next != lent);
    freed(next);
    let_on(second);
    CHECK_STATUS(warp_stream_synchronize(second), WARP_SUCCESS);
    (void)trimmed(cache, gpu(0));
    CHECK_EQ_U64(measured(cache).reserved_bytes, 0);
    CHECK_EQ_U64(measured(below).used_bytes, 0);
    /* At the end it goes back whatever the stream does, which is waited for. */
    freed(block_by(gpu(0), cache, 4 * MIB, third));
    lent = block_by(gpu(0), cache, 4 * MIB, second);
    hold(second);
    fill_on(second, lent, 4 * MIB);
    freed(lent);
    release(cache);
    CHECK_EQ_U64(measured(below).used_bytes, 0);
    let_on(second);
    if (!released)
        CHECK_STATUS(warp_stream_release(first), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(second), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(third), WARP_SUCCESS);
    release(below);
    CHECK_NOTHING_LEFT();
    check_no_violation();
}

PROCESS_TEST(what_was_lent_to_another_stream_goes_back_to_a_cache_when_that_is_done)
{
    lend_and_give_back(0);
}

PROCESS_TEST(what_a_released_stream_left_to_the_next_goes_back_to_a_cache_when_that_is_done)
{
    lend_and_give_back(1);
}

uint32_t cuStreamIsCapturing(CUstream stream, int32_t *out);

static int back_in_a_capture, back_on_another;
static CUstream made_for;

static void note_stream_made_for(struct recorder *r, const warp_alloc_request *request)
{
    (void)r;
    made_for = request->native_stream;
}

static void note_stream_back(struct recorder *r, const warp_alloc_request *request)
{
    int32_t captured = 0;
    (void)r;
    if (request->stream == NULL)
        return;
    CHECK_EQ_U64(SIMULATOR(cuStreamIsCapturing)(request->native_stream, &captured), 0);
    back_in_a_capture += captured != 0;
    back_on_another += request->native_stream != made_for;
}

/* "While work on the block's own stream still uses the memory", and of a capture only what is its own. */
PROCESS_TEST(callbacks_get_chunks_back_on_the_stream_that_they_came_for)
{
    static struct recorder r;
    warp_allocator *cache;
    warp_stream *one, *two;
    warp_graph *graph = NULL;
    void *ptr;
    start_on("h200x2");
    r.kind = WARP_MEMORY_CUDA_DEVICE;
    r.flags = WARP_ALLOCATOR_STREAM_ORDERED;
    r.without = NO_TRIM; /* so that a trim says what the cache gave back */
    r.on_allocate = note_stream_made_for;
    r.on_deallocate = note_stream_back;
    cache = cache_over(created(&r, WARP_MEMORY_CUDA_DEVICE), 0, 0);
    let_go(&r);
    one = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    two = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    freed(block_by(gpu(0), cache, 4 * MIB, one));
    CHECK_STATUS(warp_capture_begin(one, WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
    CHECK_EQ_U64(trimmed(cache, gpu(0)), 0);
    CHECK_STATUS(warp_capture_end(one, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_EQ_I64(back_in_a_capture, 0);
    CHECK_EQ_U64(trimmed(cache, gpu(0)), 4 * MIB);
    /* Lent to another one, which works on it. */
    ptr = block_by(gpu(0), cache, 4 * MIB, one);
    freed(ptr);
    CHECK_EQ_PTR(block_by(gpu(0), cache, 4 * MIB, two), ptr);
    hold(two);
    fill_on(two, ptr, 4 * MIB);
    freed(ptr);
    (void)trimmed(cache, gpu(0));
    CHECK_EQ_I64(back_on_another, 0);
    let_on(two);
    CHECK_STATUS(warp_stream_synchronize(two), WARP_SUCCESS);
    CHECK_EQ_U64(trimmed(cache, gpu(0)), 4 * MIB);
    release(cache);
    CHECK_OVER(&r);
    CHECK_EQ_I64(back_on_another, 0);
    CHECK_STATUS(warp_stream_release(one), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(two), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(an_upstream_of_callbacks_gets_every_chunk_back_once)
{
    static struct recorder r;
    static const uint32_t flags[] = {0, WARP_ALLOCATOR_STREAM_ORDERED};
    int way;
    start_on("h200x2");
    for (way = 0; way < 8; ++way) {
        warp_allocator *cache;
        warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        void *late;
        memset(&r, 0, sizeof r);
        r.kind = WARP_MEMORY_CUDA_DEVICE;
        r.flags = flags[way % 2];
        cache = cache_over(created(&r, WARP_MEMORY_CUDA_DEVICE), 0, 0);
        let_go(&r);
        use_and_check(cache, gpu(0));
        CHECK(r.outs != 0);
        CHECK_EQ_U64(r.allocated.size % (2 * MIB), 0);
        CHECK_EQ_U64(r.outs, measured(cache).chunks);
        late = block_by(gpu(0), cache, 3 * MIB, stream);
        if (way & 2)
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        if (way & 4)
            freed(late);
        CHECK_EQ_U64(COUNT_OF(r.destroys), 0);
        release(cache);
        if (!(way & 4)) {
            CHECK_EQ_U64(COUNT_OF(r.destroys), 0);
            CHECK_EQ_U64(r.outs, 1);
            CHECK_EQ_U64(pointer_info(late).size, 3 * MIB);
            freed(late);
        }
        CHECK_OVER(&r);
        CHECK_EQ_U64(r.allocates, r.deallocates);
        if (!(way & 2))
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_NOTHING_LEFT();
}

/* ---- devices that are lost ------------------------------------------------------------------------------------------ */

PROCESS_TEST(a_lost_devices_blocks_are_freed_and_the_next_one_serves)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    size_t k;
    int way;
    start_on("h200x2");
    for (k = 0; k < 3; ++k)
        for (way = 0; way < 4; ++way) {
            warp_allocator *cache = cache_over(builtin(kinds[k]), 0, 0);
            warp_device *device = gpu(0);
            void *a = block_by(device, cache, 1000, NULL), *b = block_by(device, cache, 5 * MIB, NULL), *c;
            uint64_t unused = 0;
            if (way & 1)
                freed(b);
            if (way & 2)
                freed(a);
            CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
            CHECK_STATUS(warp_device_query_memory(device, &unused, &unused), WARP_ERROR_DEVICE_LOST);
            CHECK_STATUS(try_by(device, cache, 1000, NULL, &c), WARP_ERROR_DEVICE_LOST);
            if (!(way & 2)) {
                CHECK_EQ_I64(pointer_info(a).is_lost, 1);
                CHECK_EQ_U64(pointer_info(a).size, 1000);
            }
            CHECK(gpu(0) != device);
            c = block_by(gpu(0), cache, 1000, NULL);
            CHECK_EQ_I64(pointer_info(c).is_lost, 0);
            put_pattern(c, 1000, 4);
            if (!(way & 2) && c != a)
                freed(a);
            if (!(way & 1))
                freed(b);
            CHECK_EQ_U64(find_pattern(c, 1000, 4), 1000);
            freed(c);
            release(cache);
            if (check_failure_count() != 0) {
                printf("\n    (kind %s, way %d)", kind_names[kinds[k]], way);
                return;
            }
        }
    CHECK_NOTHING_LEFT();
}

/* What is at hand is given without a call of the driver; once one has noticed that the context is gone, nothing of it is given. */
PROCESS_TEST(no_block_of_a_dead_context_is_handed_out_once_that_is_known)
{
    warp_allocator *cache;
    warp_device *device;
    void *ptr;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    device = gpu(0);
    freed(block_by(device, cache, 1000, NULL));
    freed(block_by(device, cache, 1000, NULL));
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    CHECK_STATUS(warp_device_synchronize(device), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(try_by(device, cache, 1000, NULL, &ptr), WARP_ERROR_DEVICE_LOST);
    release(cache);
}

/* A block that no cache has lies where a lost device's cached memory lay: in use then, at hand, or free. */
PROCESS_TEST(blocks_of_no_cache_lie_where_a_lost_devices_cache_was)
{
    int way;
    start_on("h200x2");
    for (way = 0; way < 6; ++way) {
        warp_allocator *cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0), *limit = NULL;
        warp_device *device = gpu(0);
        void *old = block_by(device, cache, 4 * MIB, NULL), *now;
        CHECK_STATUS(warp_allocator_create_limit(builtin(WARP_MEMORY_CUDA_DEVICE), GIB, &limit), WARP_SUCCESS);
        if (way % 3 != 0)
            freed(old);
        if (way % 3 == 2)
            freed(block_by(device, cache, 4 * MIB - 1 * KIB, NULL));
        CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
        CHECK_STATUS(warp_device_synchronize(device), WARP_ERROR_DEVICE_LOST);
        now = way < 3 ? block_of(gpu(0), 4 * MIB, WARP_MEMORY_CUDA_DEVICE) : block_by(gpu(0), limit, 4 * MIB, NULL);
        CHECK_EQ_PTR(now, old);
        CHECK_EQ_PTR(pointer_info((char *)now + 3 * MIB).base, now);
        CHECK_EQ_I64(pointer_info(now).is_owned, 1);
        CHECK_EQ_I64(pointer_info(now).is_lost, 0);
        CHECK_EQ_PTR(server_of(now), way < 3 ? NULL : limit);
        put_pattern(now, 4 * MIB, (uint64_t)way);
        if (way % 2)
            (void)trimmed(cache, gpu(0));
        freed(block_by(gpu(0), cache, 100, NULL));
        CHECK_EQ_U64(find_pattern(now, 4 * MIB, (uint64_t)way), 4 * MIB);
        freed(now);
        CHECK_STATUS(warp_free(now), WARP_ERROR_DOUBLE_FREE);
        release(limit);
        release(cache);
        if (check_failure_count() != 0) {
            printf("\n    (way %d)", way);
            return;
        }
    }
    CHECK_NOTHING_LEFT();
}

/* Page-locked memory goes with the context that it was made in, though it is the CPU's; what came of another one stays. */
PROCESS_TEST(page_locked_memory_of_a_dead_context_is_handed_out_no_more)
{
    warp_allocator *cache;
    warp_device *device;
    void *dead[3], *alive[3], *ptr;
    int i;
    start_on("h200x2");
    cache = own_cache(WARP_MEMORY_PINNED);
    device = gpu(0);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(driver_primary(0)), 0);
    for (i = 0; i < 3; ++i)
        dead[i] = block_by(cpu(), cache, i == 2 ? 3 * MIB : 700 * KIB, NULL);
    CHECK_STATUS(warp_device_synchronize(device), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context_of(gpu(1))), 0);
    for (i = 0; i < 3; ++i) {
        alive[i] = block_by(cpu(), cache, 5 * MIB, NULL);
        put_pattern(alive[i], 5 * MIB, (uint64_t)i);
    }
    freed(dead[0]);
    freed(alive[0]);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    CHECK_STATUS(warp_device_synchronize(device), WARP_ERROR_DEVICE_LOST);
    CHECK_EQ_I64(pointer_info(dead[1]).is_lost, 1);
    CHECK_EQ_I64(pointer_info(alive[1]).is_lost, 0);
    for (i = 0; i < 3; ++i) {
        ptr = i == 2 ? tagged(cpu(), cache, 700 * KIB, NULL) : block_by(cpu(), cache, 700 * KIB, NULL);
        CHECK_EQ_I64(pointer_info(ptr).is_lost, 0);
        put_pattern(ptr, 700 * KIB, 9);
        freed(ptr);
    }
    CHECK_EQ_U64(find_pattern(alive[1], 5 * MIB, 1), 5 * MIB);
    /* Where the new chunk is nothing is left of the old block. */
    for (i = 1; i < 3; ++i)
        if (pointer_info(dead[i]).is_owned)
            freed(dead[i]);
    ptr = block_by(cpu(), cache, 5 * MIB, NULL);
    CHECK_EQ_PTR(ptr, alive[0]);
    freed(ptr);
    freed(alive[1]);
    freed(alive[2]);
    check_empty(cache);
    CHECK_EQ_U64(trimmed(cache, cpu()), 3 * 6 * MIB + 2 * MIB);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pinned"), 0);
}

/* And through others. */
PROCESS_TEST(page_locked_memory_that_allocators_hand_on_is_lost_with_its_context)
{
    warp_allocator *limit = NULL;
    warp_device *device;
    void *ptr;
    start_on("h200x2");
    device = gpu(0);
    CHECK_STATUS(warp_allocator_create_limit(builtin(WARP_MEMORY_PINNED), GIB, &limit), WARP_SUCCESS);
    ptr = block_by(cpu(), limit, 1000, NULL);
    CHECK_EQ_I64(pointer_info(ptr).is_lost, 0);
    CHECK_STATUS(warp_device_synchronize(device), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    CHECK_STATUS(warp_device_synchronize(device), WARP_ERROR_DEVICE_LOST);
    CHECK_EQ_I64(pointer_info(ptr).is_lost, 1);
    freed(ptr);
    CHECK_EQ_U64(live_of(limit), 0);
    release(limit);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
