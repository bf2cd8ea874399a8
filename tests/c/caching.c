/*
 * caching.c: what the chapter Caching promises: memory that is freed is at once good for its own stream and for another one when
 * the work is done, what is asked of a cached block is answered as of any, what is kept goes back, and every call obeys what was
 * set the moment before.
 *
 * needs: simulator
 * valgrind: slow (a process for each of forty promises; the other programs of the cache go the same ways there)
 */
#define _GNU_SOURCE
#include "allocators.h"
#include "process.h"

static warp_allocator *cache_over(warp_allocator *upstream, uint64_t limit, uint64_t keep)
{
    warp_caching_options options = {.struct_size = sizeof options, .limit = limit, .keep = keep};
    warp_allocator *cache = NULL;
    CHECK_STATUS(warp_allocator_create_caching(upstream, &options, &cache), WARP_SUCCESS);
    CHECK(cache != NULL);
    return cache;
}

static warp_allocator *own_cache(warp_memory_kind kind)
{
    warp_allocator *cache = NULL;
    CHECK_STATUS(warp_allocator_get_caching(kind, &cache), WARP_SUCCESS);
    CHECK(cache != NULL);
    return cache;
}

static void release(warp_allocator *allocator)
{
    CHECK_STATUS(warp_allocator_release(allocator), WARP_SUCCESS);
}

static void freed(void *ptr)
{
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
}

static void *plain_alloc(warp_device *device, uint64_t size)
{
    void *ptr = NULL;
    CHECK_STATUS(warp_alloc(device, size, &ptr), WARP_SUCCESS);
    CHECK(ptr != NULL);
    return ptr;
}

static warp_caching_info measured_on(const warp_allocator *cache, warp_device *device)
{
    warp_caching_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_allocator_caching_measure(cache, device, &info), WARP_SUCCESS);
    CHECK_EQ_U64(info.reserved_bytes, info.used_bytes + info.free_bytes);
    CHECK(info.at_hand_bytes <= info.free_bytes && info.largest_free_bytes <= info.free_bytes);
    CHECK(info.live_bytes <= info.used_bytes);
    CHECK(device != NULL || info.reserved_bytes <= info.peak_reserved_bytes);
    return info;
}

static warp_caching_info measured(const warp_allocator *cache)
{
    return measured_on(cache, NULL);
}

static uint64_t trimmed(warp_allocator *cache, warp_device *device)
{
    uint64_t bytes = 0;
    CHECK_STATUS(warp_allocator_trim(cache, device, &bytes), WARP_SUCCESS);
    return bytes;
}

static void hold(warp_stream *stream)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native_stream(stream)), 0);
}

static void let_on(warp_stream *stream)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_release)(native_stream(stream)), 0);
}

/* Work that waits as long as its stream is held. */
static void fill_on(warp_stream *stream, void *ptr, uint64_t size)
{
    unsigned char byte = 7;
    CHECK_STATUS(warp_memory_fill(ptr, size, &byte, 1, stream), WARP_SUCCESS);
}

static warp_allocator *server_of(const void *ptr)
{
    return pointer_info(ptr).allocator;
}

static void check_no_violation(void)
{
    char text[300];
    size_t i;
    for (i = 0; SIMULATOR(warpsim_violation_get)(i, text, sizeof text) != 0; ++i)
        check_that(0, __FILE__, __LINE__, text);
}

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

/* ---- what is kept, and goes back ---------------------------------------------------------------------------------- */

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

/* ---- every call obeys what was set before it ------------------------------------------------------------------------ */

static void check_served_by(warp_device *device, warp_allocator *expected)
{
    int i;
    /* Three times: by what is asked, by what is remembered of it, and by what was freed. */
    for (i = 0; i < 3; ++i) {
        void *ptr = plain_alloc(device, 1000);
        CHECK_EQ_PTR(server_of(ptr), expected);
        freed(ptr);
    }
}

PROCESS_TEST(caching_is_switched_on_and_off_between_any_two_calls)
{
    warp_allocator *cache, *other, *scoped;
    warp_scope *scope = NULL, *inner = NULL;
    warp_device *first, *second;
    int round;
    start_on("h200x2");
    cache = own_cache(WARP_MEMORY_UNKNOWN);
    other = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    scoped = cache_over(builtin(WARP_MEMORY_CUDA_MANAGED), 0, 0);
    first = gpu(0);
    second = gpu(1);
    for (round = 0; round < 3; ++round) {
        check_served_by(first, NULL);
        CHECK_STATUS(warp_allocator_set_caching_for_all(1), WARP_SUCCESS);
        check_served_by(first, cache);
        check_served_by(second, cache);
        CHECK_STATUS(warp_allocator_set_for_device(first, other), WARP_SUCCESS);
        check_served_by(first, other);
        check_served_by(second, cache);
        CHECK_STATUS(warp_scope_begin_allocator(first, scoped, &scope), WARP_SUCCESS);
        check_served_by(first, scoped);
        check_served_by(second, cache);
        CHECK_STATUS(warp_scope_begin_allocator(first, NULL, &inner), WARP_SUCCESS);
        check_served_by(first, NULL);
        CHECK_STATUS(warp_scope_end(inner), WARP_SUCCESS);
        check_served_by(first, scoped);
        CHECK_STATUS(warp_allocator_set_for_device(first, NULL), WARP_SUCCESS);
        check_served_by(first, scoped);
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
        check_served_by(first, NULL);
        CHECK_STATUS(warp_allocator_set_caching_for_all(0), WARP_SUCCESS);
        check_served_by(first, NULL);
        check_served_by(second, NULL);
    }
    release(other);
    release(scoped);
}

static uint64_t stream_id_of(warp_stream *stream)
{
    return stream_info(stream).id;
}

static warp_device *device_named(const char *alias)
{
    return device(alias);
}

static void check_served_on(warp_device *device, warp_stream *stream, const char *alias)
{
    int i;
    for (i = 0; i < 3; ++i) {
        void *ptr = plain_alloc(device, 1000);
        warp_pointer_info info = pointer_info(ptr);
        CHECK_EQ_PTR(info.device, device_named(alias));
        if (stream != NULL)
            CHECK_EQ_U64(info.stream_id, stream_id_of(stream));
        freed(ptr);
    }
}

PROCESS_TEST(the_current_stream_and_the_default_device_are_those_of_the_moment)
{
    warp_stream *a, *b, *before;
    warp_scope *scope = NULL;
    warp_device *first, *second;
    void *ptr;
    int round;
    start_on("h200x2");
    first = gpu(0);
    second = gpu(1);
    CHECK_STATUS(warp_allocator_set_caching_for_all(1), WARP_SUCCESS);
    before = stream_of(first);
    for (round = 0; round < 3; ++round) {
        a = new_stream(first, WARP_STREAM_NON_BLOCKING);
        b = new_stream(first, WARP_STREAM_NON_BLOCKING);
        check_served_on(first, before, "cuda:0");
        CHECK_STATUS(warp_stream_set_current(first, a), WARP_SUCCESS);
        check_served_on(first, a, "cuda:0");
        CHECK_STATUS(warp_scope_begin_stream(first, b, &scope), WARP_SUCCESS);
        check_served_on(first, b, "cuda:0");
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
        check_served_on(first, a, "cuda:0");
        CHECK_STATUS(warp_stream_set_current(first, before), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(a), WARP_SUCCESS);
        ptr = block_by(first, NULL, 1000, b);
        freed(ptr);
        CHECK_STATUS(warp_stream_release(b), WARP_SUCCESS);
        CHECK_STATUS(try_by(first, NULL, 1000, b, &ptr), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_PTR(ptr, NULL);
        check_served_on(first, before, "cuda:0");
        CHECK_STATUS(warp_device_set_default(second), WARP_SUCCESS);
        check_served_on(NULL, NULL, "cuda:1");
        CHECK_STATUS(warp_device_set_for_thread(first), WARP_SUCCESS);
        check_served_on(NULL, NULL, "cuda:0");
        CHECK_STATUS(warp_scope_begin_device(second, &scope), WARP_SUCCESS);
        check_served_on(NULL, NULL, "cuda:1");
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
        check_served_on(NULL, NULL, "cuda:0");
        CHECK_STATUS(warp_device_set_for_thread(NULL), WARP_SUCCESS);
        check_served_on(NULL, NULL, "cuda:1");
        CHECK_STATUS(warp_device_set_default(first), WARP_SUCCESS);
        check_served_on(NULL, NULL, "cuda:0");
    }
}

PROCESS_TEST(a_released_or_stopped_cache_serves_no_more)
{
    static struct recorder r;
    warp_allocator *cache;
    void *ptr;
    int way;
    start_on("h200x2");
    for (way = 0; way < 3; ++way) {
        cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
        freed(block_by(gpu(0), cache, 1000, NULL));
        freed(block_by(gpu(0), cache, 1000, NULL));
        ptr = way == 1 ? block_by(gpu(0), cache, 1000, NULL) : NULL;
        release(cache);
        CHECK_STATUS(try_by(gpu(0), cache, 1000, NULL, &(void *){NULL}), WARP_ERROR_INVALID_HANDLE);
        if (ptr != NULL) {
            CHECK_EQ_U64(pointer_info(ptr).size, 1000);
            freed(ptr);
            CHECK_STATUS(warp_free(ptr), WARP_ERROR_DOUBLE_FREE);
        }
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    }
    r.kind = WARP_MEMORY_CUDA_DEVICE;
    cache = cache_over(created(&r, WARP_MEMORY_CUDA_DEVICE), 0, 0);
    ptr = block_by(gpu(0), cache, 1000, NULL);
    freed(block_by(gpu(0), cache, 5000, NULL));
    CHECK_STATUS(warp_allocator_stop(cache), WARP_SUCCESS);
    CHECK_STATUS(try_by(gpu(0), cache, 3 * MIB, NULL, &(void *){NULL}), WARP_ERROR_ALLOCATOR_FAILED);
    freed(ptr);
    release(cache);
    let_go(&r);
}

/* An address that a cache gave, and that another allocator gives now, is no reason to ask the cache the next time. */
PROCESS_TEST(an_address_that_a_cache_once_gave_brings_nobody_back_to_it)
{
    static struct recorder below, plain;
    warp_alloc_request request = {.struct_size = sizeof request};
    warp_allocator *cache;
    warp_device *device;
    void *place = NULL, *big, *small, *again;
    start_on("h200x2");
    device = gpu(0);
    below.kind = plain.kind = WARP_MEMORY_CUDA_DEVICE;
    cache = cache_over(created(&below, WARP_MEMORY_CUDA_DEVICE), 0, 0);
    (void)created(&plain, WARP_MEMORY_CUDA_DEVICE);
    request.device = device;
    request.size = 4 * MIB;
    request.alignment = 512;
    CHECK_STATUS(warp_allocator_allocate(below.below, &request, &place), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_device(device, cache), WARP_SUCCESS);
    small = plain_alloc(device, 1000);
    below.gives = place;
    big = plain_alloc(device, 4 * MIB);
    CHECK_EQ_PTR(big, place);
    CHECK_EQ_PTR(server_of(big), cache);
    freed(big);
    CHECK(trimmed(cache, device) != 0);
    CHECK_STATUS(warp_allocator_set_for_device(device, plain.handle), WARP_SUCCESS);
    plain.gives = place;
    again = plain_alloc(device, 4 * MIB);
    CHECK_EQ_PTR(again, big);
    CHECK_EQ_PTR(server_of(again), plain.handle);
    plain.gives = NULL;
    check_served_by(device, plain.handle);
    CHECK_EQ_U64(measured(cache).live_blocks, 1);
    freed(again);
    freed(small);
    CHECK_STATUS(warp_allocator_set_for_device(device, NULL), WARP_SUCCESS);
    release(cache);
    let_go(&below);
    let_go(&plain);
    CHECK_STATUS(warp_allocator_deallocate(below.below, place, &request), WARP_SUCCESS);
    CHECK_OVER(&below);
    CHECK_OVER(&plain);
}

static warp_allocator *for_thread;
static warp_device *of_thread;

static void *end_in_a_scope(void *argument)
{
    warp_scope *scope = NULL;
    (void)argument;
    CHECK_STATUS(warp_scope_begin_allocator(of_thread, for_thread, &scope), WARP_SUCCESS);
    check_served_by(of_thread, for_thread);
    return NULL;
}

static void *serve_plainly(void *argument)
{
    check_served_by(of_thread, argument);
    return NULL;
}

/* What a thread remembers is kept for the next one, and what it had set is not. */
PROCESS_TEST(a_thread_follows_none_that_ended_in_a_scope)
{
    pthread_t thread;
    int round;
    start_on("h200x2");
    for_thread = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    of_thread = gpu(0);
    for (round = 0; round < 4; ++round) {
        REQUIRE(pthread_create(&thread, NULL, end_in_a_scope, NULL) == 0);
        pthread_join(thread, NULL);
        REQUIRE(pthread_create(&thread, NULL, serve_plainly, NULL) == 0);
        pthread_join(thread, NULL);
    }
}

PROCESS_TEST(after_a_shutdown_the_next_life_caches_anew)
{
    warp_allocator *cache, *made;
    void *block, *other;
    int round;
    start_on("h200x2");
    for (round = 0; round < 3; ++round) {
        CHECK_STATUS(warp_allocator_set_caching_for_all(1), WARP_SUCCESS);
        cache = own_cache(WARP_MEMORY_UNKNOWN);
        made = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
        block = plain_alloc(gpu(0), 1000);
        CHECK_EQ_PTR(server_of(block), cache);
        other = block_by(gpu(0), made, 1000, NULL);
        freed(plain_alloc(gpu(0), 1000));
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc(NULL, 1000, &(void *){NULL}), WARP_ERROR_SHUT_DOWN);
        if (round == 1) {
            freed(block);
            freed(other);
        }
        CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        CHECK_STATUS(try_by(gpu(0), made, 1000, NULL, &(void *){NULL}), WARP_ERROR_INVALID_HANDLE);
        check_served_by(gpu(0), NULL);
        if (round != 1) {
            CHECK_EQ_U64(pointer_info(block).size, 1000);
            freed(block);
            freed(other);
        }
        CHECK_STATUS(warp_free(block), WARP_ERROR_DOUBLE_FREE);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 0);
    }
    CHECK_NOTHING_LEFT();
}

static warp_status began;

static void begin_again(struct recorder *r, const warp_alloc_request *request)
{
    (void)request;
    r->on_deallocate = NULL;
    began = warp_init(NULL, NULL);
}

/* At the last shutdown what was kept goes back with no lock held: the callback may begin the library anew. */
PROCESS_TEST(what_is_kept_goes_back_at_the_shutdown_with_no_lock_held)
{
    static struct recorder r;
    warp_allocator *cache;
    void *kept;
    alarm(60); /* what waits for itself does so for ever */
    start_on("h200x2");
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    cache = cache_over(r.handle, 0, 0);
    kept = block_by(gpu(0), cache, 1000, NULL);
    freed(block_by(gpu(0), cache, 5 * MIB, NULL));
    CHECK_EQ_U64(r.allocates, 2);
    began = -1;
    r.on_deallocate = begin_again;
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(began, WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 1);
    CHECK_EQ_U64(r.destroys, 0);
    freed(kept);
    CHECK_EQ_U64(r.deallocates, 2);
    CHECK_EQ_U64(r.destroys, 1);
    CHECK_EQ_U64(r.wrong, 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

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

CHECK_MAIN()
