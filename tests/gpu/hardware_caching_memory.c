/*
 * hardware_caching_memory.c: a real GPU that runs out of memory while caches keep some; limits, and what goes back to the driver in truth.
 * Needs 24 GiB of GPU memory.
 *
 * topology: h200x2
 * topology: h200
 * valgrind: slow (a process for each promise; caching_threads.c is under it)
 */
#include "hardware_caching.h"

/* ---- When memory runs out --------------------------------------------------------------------------------------------- */

enum { PARTS = 6, END = 4096 };

static void write_ends(void *ptr, uint64_t size, int value, warp_stream *stream)
{
    fill(ptr, END, value, stream);
    fill((char *)ptr + size - END, END, value, stream);
}

static int ends_hold(const void *ptr, uint64_t size, unsigned char value, warp_stream *stream)
{
    return device_holds(ptr, END, value, stream) && device_holds((const char *)ptr + size - END, END, value, stream);
}

/* Has a cache keep so much that it is more than half of what was free; a stream still works on it if it is busy. */
static void have_kept(warp_allocator *cache, uint64_t most, warp_stream *stream, int is_busy)
{
    const uint64_t part = most / PARTS / (2 * MIB) * 2 * MIB;
    void *parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i] = block_by(gpu(0), cache, part, stream);
    if (is_busy)
        keep_busy(stream);
    for (int i = 0; i < PARTS; i++) {
        if (parts[i] != NULL)
            write_ends(parts[i], part, i, stream);
        freed(parts[i]);
    }
    CHECK(measured(cache).free_bytes >= PARTS * part);
}

/* On a simulated driver no work goes on by itself. */
static void *go_on_soon(void *stream)
{
    usleep(20000);
    CHECK_EQ_U64(SIMULATOR(warpsim_release)((uint64_t)(uintptr_t)stream), 0);
    return NULL;
}

enum asker { FOR_PLAIN, FOR_POOL, FOR_A_CACHE, ASKERS };

static warp_status ask(enum asker asker, warp_allocator *other, uint64_t size, warp_stream *stream, void **out)
{
    warp_alloc_options options = options_of(asker == FOR_POOL ? WARP_MEMORY_CUDA_MEMPOOL : WARP_MEMORY_CUDA_DEVICE, stream);
    if (asker == FOR_A_CACHE)
        return try_by(gpu(0), other, size, stream, out);
    return warp_alloc_with(gpu(0), size, &options, out);
}

static uint64_t memory_in_all(void)
{
    uint64_t available = 0, total = 0;
    CHECK_STATUS(warp_device_query_memory(gpu(0), &available, &total), WARP_SUCCESS);
    return total;
}

/* What fits only when a cache gives up what it keeps is served; what fits nowhere is refused; and what is live stays as it is. */
PROCESS_TEST(what_a_cache_keeps_makes_room_for_others)
{
    warp_stream *stream, *other;
    uint64_t most, total;
    begin_life();
    stream = stream_of_ones_own();
    other = stream_of_ones_own();
    (void)busy_seconds(stream); /* which takes memory */
    total = memory_in_all();
    most = free_memory() / 10 * 6 / (2 * MIB) * 2 * MIB;
    for (int way = 0; way < (int)UPSTREAMS * ASKERS * 2; way++) {
        const warp_memory_kind kind = upstreams[way % UPSTREAMS];
        const int asker = way / (int)UPSTREAMS % ASKERS, is_busy = way / (int)UPSTREAMS / ASKERS;
        warp_allocator *cache = cache_over(builtin(kind), 0, 0), *next = cache_over(builtin(kind), 0, 0);
        void *live = block_by(gpu(0), cache, 100 * KIB, stream), *ptr = NULL;
        pthread_t thread;
        double begun;
        fill(live, 100 * KIB, 7, stream);
        have_kept(cache, most, stream, is_busy);
        if (is_busy && simulator_is_here())
            REQUIRE(pthread_create(&thread, NULL, go_on_soon, native(stream)) == 0);
        if (!is_busy)
            CHECK(free_memory() < most); /* else it fits anyway */
        begun = now();
        CHECK_STATUS(ask(asker, next, most, other, &ptr), WARP_SUCCESS);
        if (!simulator_is_here())
            printf("\n    %s%s for %s: %.0f ms", is_busy ? "busy " : "", kind_names[kind],
                   asker == FOR_PLAIN ? "plain memory" : asker == FOR_POOL ? "the pool" : "another cache", (now() - begun) * 1e3);
        if (is_busy && simulator_is_here())
            pthread_join(thread, NULL);
        if (ptr != NULL) {
            write_ends(ptr, most, 9, other);
            CHECK(ends_hold(ptr, most, 9, other));
        }
        CHECK(measured(cache).reserved_bytes < most / 2);
        CHECK(device_holds(live, 100 * KIB, 7, stream));
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);

        /* More than there is, while the one cache has a block out and the other keeps what was just freed. */
        CHECK_STATUS(ask(asker, next, total + GIB, other, &ptr), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_EQ_PTR(ptr, NULL);
        CHECK_EQ_U64(measured(cache).live_blocks, 1);
        CHECK_EQ_U64(measured(next).live_blocks, 0);
        CHECK(device_holds(live, 100 * KIB, 7, stream));
        ptr = block_by(gpu(0), cache, 3 * MIB, stream);
        fill(ptr, 3 * MIB, 8, stream);
        CHECK(device_holds(ptr, 3 * MIB, 8, stream));
        freed(ptr);
        freed(live);
        end_cache(cache, gpu(0));
        end_cache(next, gpu(0));
        CHECK(free_memory() >= most);
        if (check_failure_count() != 0) {
            printf("\n    (%s, asker %d, %s)", kind_names[kind], asker, is_busy ? "busy" : "idle");
            return;
        }
    }
    let_stream_go(stream);
    let_stream_go(other);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(a_limit_holds_whatever_the_gpu_has)
{
    enum { BLOCKS = 8 };
    const uint64_t size = large(), limit = BLOCKS * size;
    warp_stream *stream, *other;
    begin_life();
    stream = stream_of_ones_own();
    other = stream_of_ones_own();
    for (size_t k = 0; k < UPSTREAMS; k++) {
        warp_allocator *cache = cache_over(builtin(upstreams[k]), limit, 0);
        void *result = block_on(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream), *blocks[BLOCKS], *ptr = NULL;
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = block_by(gpu(0), cache, size, stream);
            fill(blocks[i], size, i, stream);
        }
        CHECK_STATUS(try_by(gpu(0), cache, size, stream, &ptr), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_EQ_PTR(ptr, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "may reserve");
        for (int i = 0; i < BLOCKS; i++)
            CHECK(device_holds(blocks[i], size, (unsigned char)i, stream));
        /* One makes room for another one, on another stream too. */
        freed(blocks[0]);
        blocks[0] = block_by(gpu(0), cache, size, other);
        fill(blocks[0], size, 99, other);
        CHECK(device_holds(blocks[0], size, 99, other));
        CHECK(measured(cache).reserved_bytes <= limit);
        /* Also while its own stream works on it: then it goes back in the order of that, and other memory comes. */
        keep_busy(stream);
        copy(result, blocks[1], size, stream);
        freed(blocks[1]);
        blocks[1] = block_by(gpu(0), cache, size, other);
        fill(blocks[1], size, 98, other);
        CHECK(measured(cache).reserved_bytes <= limit);
        CHECK(device_holds(result, size, 1, stream));
        CHECK(device_holds(blocks[1], size, 98, other));
        /* And all for one of all that there may be. */
        for (int i = 0; i < BLOCKS; i++)
            freed(blocks[i]);
        finish(other);
        ptr = block_by(gpu(0), cache, limit, stream);
        fill(ptr, limit, 5, stream);
        CHECK(device_holds(ptr, limit, 5, stream));
        CHECK_EQ_U64(measured(cache).reserved_bytes, limit);
        CHECK_EQ_U64(measured(cache).peak_reserved_bytes, limit);
        CHECK_STATUS(try_by(gpu(0), cache, 1, other, &blocks[0]), WARP_ERROR_OUT_OF_MEMORY);
        freed(ptr);
        freed(result);
        finish(stream);
        end_cache(cache, gpu(0));
    }
    let_stream_go(stream);
    let_stream_go(other);
    CHECK_NOTHING_LEFT();
}

/* ---- What goes back --------------------------------------------------------------------------------------------------- */

static uint64_t pool_has(uint64_t *reserved)
{
    uint64_t used = 0;
    void *pool = NULL;
    CHECK_EQ_I64(DEFAULT_POOL(&pool, 0), SUCCESS);
    CHECK_EQ_I64(POOL_USED(pool, &used), SUCCESS);
    CHECK_EQ_I64(POOL_RESERVES(pool, reserved), SUCCESS);
    return used;
}

/* Held against what the driver says: its free memory, and what its pool has. */
PROCESS_TEST(what_goes_back_is_the_drivers_again)
{
    enum { BLOCKS = 16 };
    const uint64_t size = 64 * MIB, all = BLOCKS * size;
    warp_stream *stream;
    begin_life();
    stream = stream_of_ones_own();
    for (size_t k = 0; k < UPSTREAMS; k++)
        for (int keeps = 0; keeps < 2; keeps++) {
            const uint64_t keep = keeps ? 2 * size : 0;
            warp_allocator *cache = cache_over(builtin(upstreams[k]), 0, keep);
            void *blocks[BLOCKS];
            uint64_t before, used, reserved, now_reserved = 0, kept;
            freed(block_by(gpu(0), cache, size, stream)); /* what the driver makes once is there then */
            finish(stream);
            (void)trimmed(cache, gpu(0));
            before = free_memory();
            used = pool_has(&reserved);
            for (int i = 0; i < BLOCKS; i++) {
                blocks[i] = block_by(gpu(0), cache, size, stream);
                write_ends(blocks[i], size, i, stream);
            }
            CHECK_EQ_U64(measured(cache).reserved_bytes, all);
            CHECK(lost_since(before) + 4 >= all / MIB);
            for (int i = 0; i < BLOCKS; i++)
                CHECK(ends_hold(blocks[i], size, (unsigned char)i, stream));
            for (int i = 0; i < BLOCKS; i++)
                freed(blocks[i]);
            finish(stream);
            kept = measured(cache).reserved_bytes;
            CHECK_EQ_U64(measured(cache).free_bytes, kept);
            if (keeps) {
                /* In whole chunks, and at hand of one thread with one block more. */
                CHECK(kept >= keep && kept <= keep + 64 * MIB + size);
                CHECK(lost_since(before) <= kept / MIB + 64);
            } else {
                CHECK_EQ_U64(kept, all);
            }
            CHECK(lost_since(before) + 4 >= kept / MIB);
            if (upstreams[k] == WARP_MEMORY_CUDA_MEMPOOL)
                CHECK_EQ_U64(pool_has(&now_reserved), used + kept);

            CHECK_EQ_U64(trimmed(cache, gpu(0)), kept);
            CHECK_EQ_U64(measured(cache).reserved_bytes, 0);
            CHECK(lost_since(before) <= 64);
            CHECK_EQ_U64(pool_has(&now_reserved), used);
            CHECK(now_reserved <= reserved);
            end_cache(cache, gpu(0));
        }
    let_stream_go(stream);
    CHECK_NOTHING_LEFT();
}

/* Before it would have more than it ever had, a cache gives up what it has in other sizes and nobody works on. */
PROCESS_TEST(more_than_ever_is_had_only_after_what_lies_idle_went_back)
{
    enum { BLOCKS = 4 };
    const uint64_t size = 256 * MIB, more = (BLOCKS + 1) * size;
    warp_stream *stream;
    begin_life();
    stream = stream_of_ones_own();
    for (size_t k = 0; k < UPSTREAMS; k++) {
        warp_allocator *cache = cache_over(builtin(upstreams[k]), 0, 0);
        void *blocks[BLOCKS], *one;
        uint64_t before = free_memory();
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = block_by(gpu(0), cache, size, stream);
        for (int i = 0; i < BLOCKS; i++)
            freed(blocks[i]);
        finish(stream);
        one = block_by(gpu(0), cache, more, stream);
        write_ends(one, more, 6, stream);
        CHECK(ends_hold(one, more, 6, stream));
        CHECK_EQ_U64(measured(cache).reserved_bytes, more);
        CHECK_EQ_U64(measured(cache).peak_reserved_bytes, more);
        CHECK(lost_since(before) <= more / MIB + 64);
        freed(one);
        finish(stream);
        end_cache(cache, gpu(0));
        CHECK(lost_since(before) <= 64);
    }
    let_stream_go(stream);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
