/*
 * caching.c: memory that is freed is at once good for its own stream and for another one when the work is done; how large blocks are;
 * what is asked of a cached block is answered as of any, and the counts add up.
 *
 * needs: simulator
 * valgrind: slow (a process for each promise; the threads, failures and captures of the cache go the same ways there)
 */
#define _GNU_SOURCE
#include "caches.h"
#include "process.h"

/* ---- reuse -------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(what_is_freed_is_at_once_good_for_its_stream_and_costs_no_call)
{
    warp_allocator *cache;
    warp_stream *stream;
    void *first, *second;
    uint64_t before;
    int i;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    first = block_by(gpu(0), cache, 1000, stream);
    hold(stream);
    fill_on(stream, first, 1000);
    freed(first);
    before = calls("*");
    for (i = 0; i < 100; ++i) {
        second = block_by(gpu(0), cache, 1000, stream);
        CHECK_EQ_PTR(second, first);
        freed(second);
    }
    /* The stream's native handle was asked for, so each allocation has to look whether other code captures it, and no more. */
    CHECK(calls("*") - before <= 500);
    CHECK_EQ_U64(calls("cuMemAlloc_v2"), 1);
    CHECK_EQ_U64(calls("cuMemFree_v2"), 0);
    let_on(stream);
    release(cache);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_no_violation();
}

PROCESS_TEST(nothing_is_asked_of_the_driver_for_a_stream_of_ones_own)
{
    warp_allocator *cache;
    warp_device *device;
    void *first, *second;
    uint64_t before;
    int i;
    start_on("h200x2");
    device = gpu(0);
    CHECK_STATUS(warp_allocator_set_caching_for_all(1), WARP_SUCCESS);
    cache = own_cache(WARP_MEMORY_UNKNOWN);
    freed(plain_alloc(device, 100));
    first = plain_alloc(device, 1000);
    CHECK_EQ_PTR(server_of(first), cache);
    freed(first);
    before = calls("*");
    for (i = 0; i < 100; ++i) {
        second = plain_alloc(device, 1 + (uint64_t)i * 5);
        CHECK((second == first) == (i * 5 >= 512));
        freed(second);
    }
    CHECK_EQ_U64(calls("*"), before);
}

PROCESS_TEST(another_stream_gets_it_when_the_work_is_done_and_not_before)
{
    warp_allocator *cache;
    warp_stream *first, *second;
    uint64_t allocations;
    void *a, *b, *c;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    first = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    second = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    /* It had more before, so that it grows without giving anything back. */
    freed(block_by(gpu(0), cache, 64 * MIB, first));
    CHECK(trimmed(cache, gpu(0)) != 0);
    a = block_by(gpu(0), cache, 4 * MIB, first);
    hold(first);
    fill_on(first, a, 4 * MIB);
    freed(a);
    b = block_by(gpu(0), cache, 4 * MIB, second);
    CHECK(b != a);
    freed(b);
    let_on(first);
    /* Both are the second's, one after the other, without more memory. */
    allocations = calls("cuMemAlloc_v2");
    b = block_by(gpu(0), cache, 4 * MIB, second);
    c = block_by(gpu(0), cache, 4 * MIB, second);
    CHECK(b == a || c == a);
    CHECK_EQ_U64(calls("cuMemAlloc_v2"), allocations);
    freed(b);
    freed(c);
    CHECK_STATUS(warp_stream_release(first), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(second), WARP_SUCCESS);
    release(cache);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    check_no_violation();
}

PROCESS_TEST(memory_of_a_released_stream_serves_the_next_one_when_its_work_is_done)
{
    warp_allocator *cache;
    warp_stream *first, *second, *third;
    uint64_t native;
    void *a, *b, *c;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    first = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    native = native_stream(first);
    a = block_by(gpu(0), cache, 3000, first);
    hold(first);
    fill_on(first, a, 3000);
    freed(a);
    CHECK_STATUS(warp_stream_release(first), WARP_SUCCESS);
    second = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    b = block_by(gpu(0), cache, 3000, second);
    CHECK(b != a);
    SIMULATOR(warpsim_release)(native);
    SIMULATOR(warpsim_release_all)();
    third = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    c = block_by(gpu(0), cache, 3000, third);
    CHECK_EQ_PTR(c, a);
    freed(b);
    freed(c);
    CHECK_STATUS(warp_stream_release(second), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(third), WARP_SUCCESS);
    release(cache);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    check_no_violation();
}

/* A block of a stream that is gone stays what it was, also when another stream takes that one's memory over. */
PROCESS_TEST(a_block_keeps_its_stream_when_the_memory_beside_it_goes_to_another)
{
    warp_allocator *cache;
    warp_stream *first, *second;
    uint64_t id;
    void *a, *b;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    first = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    a = block_by(gpu(0), cache, 3000, first);
    id = pointer_info(a).stream_id;
    CHECK(id != 0);
    CHECK_STATUS(warp_stream_release(first), WARP_SUCCESS);
    second = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    b = block_by(gpu(0), cache, 3000, second);
    CHECK(pointer_info(b).stream_id != id);
    CHECK(pointer_info(a).stream_id != pointer_info(b).stream_id);
    freed(a);
    freed(b);
    release(cache);
    CHECK_STATUS(warp_stream_release(second), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

PROCESS_TEST(a_stream_that_is_recorded_keeps_a_block_from_the_next)
{
    warp_allocator *cache;
    warp_alloc_options options;
    warp_stream *own, *other;
    void *a, *b, *c;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    own = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    a = block_by(gpu(0), cache, 3000, own);
    hold(other);
    fill_on(other, a, 3000);
    CHECK_STATUS(warp_pointer_record_stream(a, other), WARP_SUCCESS);
    CHECK_EQ_U64(pointer_info(a).size, 3000);
    CHECK_EQ_PTR(server_of(a), cache);
    freed(a);
    CHECK_STATUS(warp_free(a), WARP_ERROR_DOUBLE_FREE);
    b = block_by(gpu(0), cache, 3000, own);
    CHECK(b != a);
    let_on(other);
    /* A call that is more than usual looks at what waits. */
    options = options_of(WARP_MEMORY_UNKNOWN, other);
    options.allocator = cache;
    options.tag = "more than usual";
    CHECK_STATUS(warp_alloc_with(gpu(0), 1, &options, &c), WARP_SUCCESS);
    freed(c);
    CHECK_EQ_U64(measured(cache).used_bytes, 3072);
    c = block_by(gpu(0), cache, 3000, own);
    CHECK_EQ_PTR(c, a);
    freed(b);
    freed(c);
    release(cache);
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    check_no_violation();
}

PROCESS_TEST(a_free_on_another_stream_comes_after_its_work)
{
    warp_allocator *cache;
    warp_stream *own, *other;
    warp_free_options options = {.struct_size = sizeof options};
    void *a, *b;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    own = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    a = block_by(gpu(0), cache, 3000, own);
    hold(other);
    fill_on(other, a, 3000);
    options.stream = other;
    CHECK_STATUS(warp_free_with(a, &options), WARP_SUCCESS);
    b = block_by(gpu(0), cache, 3000, own);
    CHECK(b != a);
    let_on(other);
    freed(b);
    release(cache);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    freed(plain_alloc(gpu(0), 1));
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 0);
    check_no_violation();
}

/* Memory of the CPU belongs to no stream, so whichever a free names is waited for: also the first that there ever was. */
PROCESS_TEST(page_locked_memory_is_kept_from_others_while_the_stream_of_its_free_works)
{
    warp_allocator *cache;
    warp_stream *streams[3];
    warp_free_options options = {.struct_size = sizeof options};
    void *on_gpu, *a, *b;
    int i;
    start_on("h200x2");
    for (i = 0; i < 3; ++i)
        streams[i] = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    cache = own_cache(WARP_MEMORY_PINNED);
    on_gpu = block_of(gpu(0), 4096, WARP_MEMORY_CUDA_DEVICE);
    for (i = 0; i < 3; ++i) {
        a = block_by(cpu(), cache, 4096, NULL);
        hold(streams[i]);
        fill_on(streams[i], on_gpu, 4096);
        options.stream = streams[i];
        CHECK_STATUS(warp_free_with(a, &options), WARP_SUCCESS);
        b = block_by(cpu(), cache, 4096, NULL);
        CHECK(b != a);
        freed(b);
        let_on(streams[i]);
        CHECK_STATUS(warp_stream_release(streams[i]), WARP_SUCCESS);
    }
    freed(on_gpu);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(measured(cache).used_bytes, 0);
    check_no_violation();
}

/* Two streams that are never done, of which one at a time has a block: after the first round both have what they need. */
PROCESS_TEST(streams_that_take_turns_ask_for_no_memory)
{
    warp_allocator *cache;
    warp_stream *streams[2];
    uint64_t allocations = 0;
    int i;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    for (i = 0; i < 2; ++i) {
        streams[i] = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        hold(streams[i]);
    }
    for (i = 0; i < 20; ++i) {
        void *ptr = block_by(gpu(0), cache, 4 * MIB, streams[i % 2]);
        fill_on(streams[i % 2], ptr, 4 * MIB);
        freed(ptr);
        if (i == 3)
            allocations = calls("cuMemAlloc_v2");
    }
    CHECK_EQ_U64(calls("cuMemAlloc_v2"), allocations);
    CHECK(allocations <= 4);
    for (i = 0; i < 2; ++i) {
        let_on(streams[i]);
        CHECK_STATUS(warp_stream_release(streams[i]), WARP_SUCCESS);
    }
    release(cache);
    CHECK_NOTHING_LEFT();
}

/* ---- sizes -------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(blocks_are_as_large_as_the_next_of_sixteen_steps)
{
    warp_allocator *cache;
    uint64_t size = 1, random = 5;
    int i, rounds = check_under("valgrind") ? 50 : 1000;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    for (i = 0; i < rounds; ++i) {
        void *ptr = block_by(gpu(0), cache, size, NULL);
        warp_caching_info info = measured(cache);
        CHECK_EQ_U64((uintptr_t)ptr % 512, 0);
        CHECK_EQ_U64(info.live_bytes, size);
        CHECK_EQ_U64(info.live_blocks, 1);
        CHECK(info.used_bytes >= size);
        if (size <= 8 * KIB)
            CHECK_EQ_U64(info.used_bytes, (size + 511) / 512 * 512);
        else if (size > 64 * MIB)
            CHECK_EQ_U64(info.used_bytes, (size + 2 * MIB - 1) / (2 * MIB) * 2 * MIB);
        else
            CHECK((info.used_bytes - size) * 16 <= size);
        freed(ptr);
        CHECK(trimmed(cache, gpu(0)) >= size);
        CHECK_EQ_U64(measured(cache).reserved_bytes, 0);
        size = next_random(&random) % ((uint64_t)1 << (1 + next_random(&random) % 33)) + 1;
    }
    release(cache);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

PROCESS_TEST(nothing_and_far_too_much_are_answered_as_by_any_allocator)
{
    static const uint64_t huge[] = {(uint64_t)1 << 40, ((uint64_t)1 << 40) + 1, (uint64_t)1 << 50, INT64_MAX - 4095};
    warp_allocator *cache;
    void *ptr = (void *)1;
    size_t i;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    CHECK_STATUS(try_by(gpu(0), cache, 0, NULL, &ptr), WARP_SUCCESS);
    CHECK_EQ_PTR(ptr, NULL);
    freed(block_by(gpu(0), cache, 100, NULL));
    CHECK_STATUS(try_by(gpu(0), cache, 0, NULL, &ptr), WARP_SUCCESS);
    CHECK_EQ_PTR(ptr, NULL);
    for (i = 0; i < sizeof huge / sizeof *huge; ++i) {
        CHECK_STATUS(try_by(gpu(0), cache, huge[i], NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_EQ_PTR(ptr, NULL);
    }
    CHECK_STATUS(try_by(gpu(0), cache, (uint64_t)INT64_MAX + 1, NULL, &ptr), WARP_ERROR_SIZE_OVERFLOW);
    CHECK_STATUS(try_by(gpu(0), cache, UINT64_MAX, NULL, &ptr), WARP_ERROR_SIZE_OVERFLOW);
    CHECK_EQ_U64(measured(cache).live_blocks, 0);
    /* It serves on. */
    freed(block_by(gpu(0), cache, 100, NULL));
    release(cache);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

PROCESS_TEST(any_alignment_is_served_and_given_back)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_HOST, WARP_MEMORY_PINNED,
                                             WARP_MEMORY_CUDA_MANAGED};
    size_t k;
    start_on("h200x2");
    for (k = 0; k < sizeof kinds / sizeof *kinds; ++k) {
        warp_allocator *cache = cache_over(builtin(kinds[k]), 0, 0);
        warp_device *on = kinds[k] == WARP_MEMORY_HOST || kinds[k] == WARP_MEMORY_PINNED ? cpu() : gpu(0);
        uint64_t alignment;
        void *blocks[21];
        int n = 0;
        for (alignment = 1; alignment <= MIB; alignment *= 2) {
            warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, NULL);
            warp_free_options check = {.struct_size = sizeof check, .size = 700, .alignment = alignment};
            options.allocator = cache;
            options.alignment = alignment;
            CHECK_STATUS(warp_alloc_with(on, 700, &options, &blocks[n]), WARP_SUCCESS);
            CHECK_EQ_U64((uintptr_t)blocks[n] % alignment, 0);
            CHECK(pointer_info(blocks[n]).alignment >= alignment);
            CHECK_EQ_PTR(server_of(blocks[n]), cache);
            if (n % 2 == 1)
                CHECK_STATUS(warp_free_with(blocks[n], &check), WARP_SUCCESS);
            ++n;
        }
        for (n = 0; n < 21; n += 2)
            freed(blocks[n]);
        CHECK_EQ_U64(live_of(cache), 0);
        CHECK_EQ_U64(measured(cache).live_blocks, 0);
        release(cache);
    }
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* The driver hands memory out by 2 MiB: a byte more would take twice as much. */
PROCESS_TEST(the_driver_is_asked_for_round_sizes)
{
    warp_allocator *cache;
    void *small, *large;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    small = block_by(gpu(0), cache, 100, NULL);
    large = block_by(gpu(0), cache, 4 * MIB, NULL);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_bytes)("default"), 6 * MIB);
    CHECK_EQ_U64(measured(cache).reserved_bytes, 6 * MIB);
    freed(small);
    freed(large);
    release(cache);
    CHECK_NOTHING_LEFT();
}

/* ---- what an address is ------------------------------------------------------------------------------------------- */

PROCESS_TEST(a_cached_block_is_described_as_it_was_asked_for)
{
    warp_allocator *cache;
    warp_stream *stream;
    warp_alloc_options options;
    warp_pointer_info info;
    void *ptr = NULL;
    int told;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    stream = new_stream(gpu(1), WARP_STREAM_NON_BLOCKING);
    for (told = 0; told < 2; ++told) {
        options = options_of(WARP_MEMORY_UNKNOWN, stream);
        options.allocator = cache;
        options.tag = "cached";
        CHECK_STATUS(warp_alloc_with(gpu(1), 700, &options, &ptr), WARP_SUCCESS);
        if (told)
            CHECK_STATUS(warp_pointer_record_stream(ptr, stream_of(gpu(1))), WARP_SUCCESS);
        info = pointer_info((char *)ptr + 699);
        CHECK_EQ_PTR(info.base, ptr);
        CHECK_EQ_U64(info.size, 700);
        CHECK(info.alignment >= 256);
        CHECK_EQ_PTR(info.device, gpu(1));
        CHECK_EQ_STR(info.tag, "cached");
        CHECK_EQ_U64(info.stream_id, stream_info(stream).id);
        CHECK_EQ_I64(info.ordinal, 1);
        CHECK_EQ_I64(info.kind, WARP_MEMORY_CUDA_DEVICE);
        CHECK_EQ_I64(info.rule, WARP_ACCESS_RULE_PEER);
        CHECK_EQ_I64(info.is_owned, 1);
        CHECK_EQ_I64(info.is_lost, 0);
        CHECK_EQ_PTR(info.allocator, cache);
        /* The rest of what was cut is nobody's. */
        info = pointer_info((char *)ptr + 700);
        CHECK_EQ_I64(info.is_owned, 0);
        CHECK(info.base != ptr || info.size != 700);
        freed(ptr);
        CHECK_STATUS(warp_stream_synchronize(stream_of(gpu(1))), WARP_SUCCESS);
        info = pointer_info(ptr);
        CHECK_EQ_I64(info.is_owned, 0);
        /* The tag of the last one is not that of the next. */
        options.tag = NULL;
        CHECK_STATUS(warp_alloc_with(gpu(1), 690, &options, &ptr), WARP_SUCCESS);
        CHECK(pointer_info(ptr).tag == NULL);
        CHECK_EQ_U64(pointer_info(ptr).size, 690);
        freed(ptr);
    }
    release(cache);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(a_wrong_free_says_what_is_wrong_and_frees_nothing)
{
    warp_allocator *cache;
    warp_free_options options;
    char local[64];
    void *ptr, *other;
    int way;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    /* A block that is at hand, one that the ledger knows, and one past the cache. */
    for (way = 0; way < 3; ++way) {
        warp_alloc_options wanted = options_of(WARP_MEMORY_UNKNOWN, NULL);
        warp_stream *stream = new_stream(gpu(0), 0);
        wanted.allocator = cache;
        wanted.alignment = way == 2 ? 4096 : 0;
        CHECK_STATUS(warp_alloc_with(gpu(0), 1000, &wanted, &ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc_with(gpu(0), 1000, &wanted, &other), WARP_SUCCESS);
        if (way == 1)
            CHECK_STATUS(warp_pointer_record_stream(ptr, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free((char *)ptr + 1), WARP_ERROR_INTERIOR_POINTER);
        CHECK_STATUS(warp_free((char *)ptr + 999), WARP_ERROR_INTERIOR_POINTER);
        CHECK_STATUS(warp_free(local), WARP_ERROR_UNKNOWN_POINTER);
        memset(&options, 0, sizeof options);
        options.struct_size = sizeof options;
        options.size = 1001;
        CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_SIZE_MISMATCH);
        options.size = 1024;
        CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_SIZE_MISMATCH);
        options.size = 1000;
        options.alignment = (uint64_t)1 << 45;
        CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_BAD_ALIGNMENT);
        options.alignment = 3;
        CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_BAD_ALIGNMENT);
        options.alignment = 256;
        options.stream = (warp_stream *)(uintptr_t)0x1234;
        CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_INVALID_HANDLE);
        options.stream = NULL;
        CHECK_EQ_U64(live_of(cache), 2);
        CHECK_EQ_U64(pointer_info(ptr).size, 1000);
        CHECK_STATUS(warp_free_with(ptr, &options), WARP_SUCCESS);
        CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_DOUBLE_FREE);
        CHECK_STATUS(warp_free(ptr), WARP_ERROR_DOUBLE_FREE);
        if (way != 2)
            CHECK_STATUS(warp_free((char *)ptr + 512), WARP_ERROR_DOUBLE_FREE);
        CHECK_EQ_U64(live_of(cache), 1);
        freed(other);
        CHECK_STATUS(warp_free(other), WARP_ERROR_DOUBLE_FREE);
        CHECK_EQ_U64(live_of(cache), 0);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_EQ_U64(statistics_of(gpu(0), WARP_MEMORY_CUDA_DEVICE).live_blocks, 0);
    CHECK(trimmed(cache, gpu(0)) > 0);
    CHECK_STATUS(warp_free(other), WARP_ERROR_DOUBLE_FREE);
    release(cache);
    CHECK_NOTHING_LEFT();
}

/* As with any block that was freed a short while ago, also when its chunk has gone back since. */
PROCESS_TEST(a_second_free_is_known_as_one_when_the_memory_went_back)
{
    warp_allocator *cache;
    void *ptr;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    ptr = block_by(gpu(0), cache, 1000, NULL);
    freed(ptr);
    CHECK(trimmed(cache, gpu(0)) != 0);
    CHECK_STATUS(warp_free(ptr), WARP_ERROR_DOUBLE_FREE);
    release(cache);
}

/* ---- counts ------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(statistics_and_measures_add_up)
{
    warp_allocator *cache;
    warp_allocator_statistics own;
    warp_statistics counts;
    warp_caching_info info;
    void *blocks[60];
    uint64_t bytes = 0, size, most, random = 3;
    int i, round;
    start_on("h200x2");
    cache = cache_over(builtin(WARP_MEMORY_CUDA_MANAGED), 0, 0);
    for (round = 0; round < 3; ++round) {
        for (i = 0; i < 60; ++i) {
            size = next_random(&random) % (3 * MIB) + 1;
            blocks[i] = block_by(gpu(i % 2), cache, size, NULL);
            bytes += size;
        }
        most = bytes;
        counts = statistics_of(gpu(0), WARP_MEMORY_CUDA_MANAGED);
        CHECK_EQ_U64(counts.live_blocks, 30);
        CHECK_EQ_U64(counts.allocations, 30 * ((uint64_t)round + 1));
        CHECK_EQ_U64(counts.live_bytes + statistics_of(gpu(1), WARP_MEMORY_CUDA_MANAGED).live_bytes, bytes);
        CHECK(counts.peak_bytes >= counts.live_bytes);
        CHECK_EQ_U64(statistics_of(gpu(0), WARP_MEMORY_UNKNOWN).live_blocks, 30);
        CHECK_EQ_U64(statistics_of(gpu(0), WARP_MEMORY_CUDA_DEVICE).live_blocks, 0);
        info = measured(cache);
        CHECK_EQ_U64(info.live_blocks, 60);
        CHECK_EQ_U64(info.live_bytes, bytes);
        CHECK_EQ_U64(info.served_at_hand + info.served_by_cutting, 60 * ((uint64_t)round + 1));
        CHECK(info.reserved_bytes <= SIMULATOR(warpsim_live_bytes)("managed"));
        CHECK_EQ_U64(info.chunks, SIMULATOR(warpsim_live_count)("managed"));
        CHECK_EQ_U64(measured_on(cache, gpu(0)).reserved_bytes + measured_on(cache, gpu(1)).reserved_bytes, info.reserved_bytes);
        CHECK_EQ_U64(measured_on(cache, gpu(0)).live_bytes, counts.live_bytes);
        CHECK_EQ_U64(measured_on(cache, cpu()).reserved_bytes, 0);
        memset(&own, 0xAB, sizeof own);
        own.struct_size = sizeof own;
        CHECK_STATUS(warp_allocator_get_statistics(cache, &own), WARP_SUCCESS);
        CHECK_EQ_U64(own.live_bytes, bytes);
        CHECK_EQ_U64(own.live_blocks, 60);
        CHECK_EQ_U64(own.total_blocks, 60 * ((uint64_t)round + 1));
        CHECK_EQ_U64(own.reserved_bytes, info.reserved_bytes);
        for (i = 0; i < 60; ++i) {
            bytes -= pointer_info(blocks[i]).size;
            freed(blocks[i]);
            CHECK_EQ_U64(measured(cache).live_bytes, bytes);
        }
        CHECK_EQ_U64(bytes, 0);
        counts = statistics_of(gpu(0), WARP_MEMORY_CUDA_MANAGED);
        CHECK_EQ_U64(counts.live_blocks, 0);
        CHECK_EQ_U64(counts.live_bytes, 0);
        CHECK_EQ_U64(counts.frees, 30 * ((uint64_t)round + 1));
        CHECK(counts.peak_bytes != 0 && counts.peak_bytes < most);
        info = measured(cache);
        CHECK_EQ_U64(info.used_bytes, 0);
        CHECK_EQ_U64(info.free_bytes, info.reserved_bytes);
    }
    CHECK_EQ_U64(trimmed(cache, gpu(0)) + trimmed(cache, gpu(1)), info.reserved_bytes);
    info = measured(cache);
    CHECK_EQ_U64(info.reserved_bytes, 0);
    CHECK_EQ_U64(info.chunks, 0);
    CHECK_EQ_U64(info.largest_free_bytes, 0);
    CHECK(info.peak_reserved_bytes != 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("managed"), 0);
    release(cache);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(measuring_refuses_what_is_no_cache)
{
    warp_caching_info info = {.struct_size = sizeof info};
    warp_caching_options options = {.struct_size = sizeof options};
    warp_allocator *cache, *none = (warp_allocator *)1;
    start_on("h200x2");
    CHECK_STATUS(warp_allocator_caching_measure(builtin(WARP_MEMORY_HOST), NULL, &info), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_caching_measure((warp_allocator *)(uintptr_t)77, NULL, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_allocator_caching_measure(NULL, NULL, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_allocator_create_caching(NULL, NULL, &none), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(none, NULL);
    options.struct_size = 0;
    CHECK_STATUS(warp_allocator_create_caching(builtin(WARP_MEMORY_HOST), &options, &none), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_get_caching(77, &none), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_get_caching(-1, &none), WARP_ERROR_INVALID_ARGUMENT);
    cache = cache_over(builtin(WARP_MEMORY_HOST), 0, 0);
    CHECK_EQ_STR(allocator_info(cache).sort, "caching");
    CHECK_STATUS(warp_allocator_caching_measure(cache, (warp_device *)(uintptr_t)99, &info), WARP_ERROR_INVALID_HANDLE);
    info.struct_size = 0;
    CHECK_STATUS(warp_allocator_caching_measure(cache, NULL, &info), WARP_ERROR_INVALID_ARGUMENT);
    release(cache);
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_allocator_caching_measure(cache, NULL, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(own_cache(WARP_MEMORY_UNKNOWN), own_cache(WARP_MEMORY_UNKNOWN));
    CHECK(own_cache(WARP_MEMORY_UNKNOWN) != own_cache(WARP_MEMORY_CUDA_DEVICE));
}

CHECK_MAIN()
