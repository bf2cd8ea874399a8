/*
 * caching_model.c: random operations on caches, held against a list of the blocks that there are: none overlaps another one, each is
 * aligned and is what was asked for, and the counts are those of the list.
 *
 * A failure prints its seed; CACHING_MODEL_SEED=N repeats that one alone.
 * needs: simulator
 */
#define _GNU_SOURCE
#include "allocators.h"
#include "process.h"

#define MOST 400
#define CACHES 3
#define STREAMS 3

struct held {
    char *ptr;
    uint64_t size, alignment, stream;
    int cache, tagged;
};

static struct held list[MOST];
static int count;
static warp_allocator *caches[CACHES];
static warp_device *devices[CACHES];
static warp_stream *streams[CACHES][STREAMS];
static uint64_t random_state, bytes[CACHES], blocks[CACHES];

static uint64_t chance(uint64_t below)
{
    return next_random(&random_state) % below;
}

/* Mostly small, and at the edges of the steps. */
static uint64_t chance_size(void)
{
    uint64_t size = chance((uint64_t)1 << (1 + chance(chance(4) == 0 ? 27 : 16))) + 1;
    if (chance(3) == 0)
        size = (size + 511) / 512 * 512 + (chance(3) - 1);
    return size == 0 ? 1 : size;
}

static void allocate(void)
{
    struct held held = {.cache = (int)chance(CACHES), .size = chance_size()};
    warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, NULL);
    void *ptr = NULL;
    int i;
    if (count == MOST)
        return;
    options.allocator = caches[held.cache];
    options.stream = streams[held.cache][chance(STREAMS)];
    held.tagged = chance(4) == 0;
    options.tag = held.tagged ? "model" : NULL;
    options.alignment = chance(16) == 0 ? (uint64_t)1 << chance(17) : 0;
    held.alignment = options.alignment > 64 ? options.alignment : 64;
    held.stream = options.stream != NULL && held.cache != 0 ? stream_info(options.stream).id : 0;
    REQUIRE_STATUS(warp_alloc_with(devices[held.cache], held.size, &options, &ptr), WARP_SUCCESS);
    held.ptr = ptr;
    CHECK_EQ_U64((uintptr_t)ptr % held.alignment, 0);
    for (i = 0; i < count; ++i)
        if (list[i].ptr < held.ptr + held.size && held.ptr < list[i].ptr + list[i].size) {
            CHECK_EQ_PTR(held.ptr, list[i].ptr + list[i].size);
            return;
        }
    bytes[held.cache] += held.size;
    blocks[held.cache] += 1;
    list[count++] = held;
}

static void look(const struct held *held)
{
    uint64_t at = chance(held->size);
    warp_pointer_info info = pointer_info(held->ptr + at);
    CHECK_EQ_PTR(info.base, held->ptr);
    CHECK_EQ_U64(info.size, held->size);
    CHECK_EQ_PTR(info.allocator, caches[held->cache]);
    CHECK_EQ_PTR(info.device, devices[held->cache]);
    CHECK(info.alignment >= held->alignment);
    CHECK((info.tag != NULL) == held->tagged);
    if (held->stream != 0)
        CHECK_EQ_U64(info.stream_id, held->stream);
}

static void free_one(int at)
{
    struct held held = list[at];
    warp_free_options options = {.struct_size = sizeof options, .size = held.size, .alignment = held.alignment};
    switch (chance(8)) {
    case 0:
        if (held.size > 1)
            CHECK_STATUS(warp_free(held.ptr + 1 + chance(held.size - 1)), WARP_ERROR_INTERIOR_POINTER);
        break;
    case 1:
        options.size += 1;
        CHECK_STATUS(warp_free_with(held.ptr, &options), WARP_ERROR_SIZE_MISMATCH);
        options.size -= 1;
        break;
    case 2:
        if (held.cache != 0)
            CHECK_STATUS(warp_pointer_record_stream(held.ptr, streams[held.cache][chance(STREAMS)]), WARP_SUCCESS);
        break;
    }
    look(&held);
    if (chance(2))
        CHECK_STATUS(warp_free(held.ptr), WARP_SUCCESS);
    else
        CHECK_STATUS(warp_free_with(held.ptr, &options), WARP_SUCCESS);
    /* Where the chunk went with it, nobody knows the address any more. */
    if (chance(8) == 0) {
        warp_status again = warp_free(held.ptr);
        if (again != WARP_ERROR_UNKNOWN_POINTER)
            CHECK_STATUS(again, WARP_ERROR_DOUBLE_FREE);
    }
    bytes[held.cache] -= held.size;
    blocks[held.cache] -= 1;
    list[at] = list[--count];
}

static void check_counts(void)
{
    int i;
    for (i = 0; i < CACHES; ++i) {
        warp_caching_info info = {.struct_size = sizeof info};
        CHECK_STATUS(warp_allocator_caching_measure(caches[i], NULL, &info), WARP_SUCCESS);
        CHECK_EQ_U64(info.live_bytes, bytes[i]);
        CHECK_EQ_U64(info.live_blocks, blocks[i]);
        CHECK_EQ_U64(info.reserved_bytes, info.used_bytes + info.free_bytes);
        CHECK_EQ_U64(live_of(caches[i]), blocks[i]);
    }
}

static void run_seed(uint64_t seed, int operations)
{
    static const warp_memory_kind kinds[CACHES] = {WARP_MEMORY_HOST, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED};
    int i, j, full = 1;
    random_state = seed;
    count = 0;
    for (i = 0; i < CACHES; ++i) {
        warp_caching_options options = {.struct_size = sizeof options};
        options.keep = chance(3) == 0 ? chance(64 * MIB) + 1 : 0;
        devices[i] = i == 0 ? cpu() : gpu(i - 1);
        bytes[i] = blocks[i] = 0;
        CHECK_STATUS(warp_allocator_create_caching(builtin(kinds[i]), &options, &caches[i]), WARP_SUCCESS);
        for (j = 0; j < STREAMS; ++j)
            streams[i][j] = i == 0 ? NULL : new_stream(devices[i], WARP_STREAM_NON_BLOCKING);
    }
    for (i = 0; i < operations && check_failure_count() == 0; ++i) {
        uint64_t what = chance(1000);
        if (chance(500) == 0)
            full = !full;
        if (what == 0) {
            uint64_t freed = 0;
            int at = (int)chance(CACHES);
            CHECK_STATUS(warp_allocator_trim(caches[at], devices[at], &freed), WARP_SUCCESS);
        } else if (what < 3) {
            check_counts();
        } else if (what < 50 && count != 0) {
            look(&list[chance((uint64_t)count)]);
        } else if (count == 0 || chance(10) < (full ? 6 : 4)) {
            allocate();
        } else {
            free_one((int)chance((uint64_t)count));
        }
    }
    while (count != 0 && check_failure_count() == 0)
        free_one(count - 1);
    check_counts();
    for (i = 0; i < CACHES; ++i) {
        CHECK_STATUS(warp_allocator_release(caches[i]), WARP_SUCCESS);
        for (j = 0; j < STREAMS && i != 0; ++j)
            CHECK_STATUS(warp_stream_release(streams[i][j]), WARP_SUCCESS);
    }
    CHECK_NOTHING_LEFT();
    if (check_failure_count() != 0)
        printf("\n    CACHING_MODEL_SEED=%" PRIu64, seed);
}

PROCESS_TEST(random_operations_are_those_of_the_model)
{
    const char *given = getenv("CACHING_MODEL_SEED");
    uint64_t seed, last = check_under("valgrind") ? 2 : 20;
    int operations = check_under("valgrind") ? 500 : 10000;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    if (given != NULL) {
        run_seed(strtoull(given, NULL, 0), operations);
        return;
    }
    for (seed = 1; seed <= last && check_failure_count() == 0; ++seed)
        run_seed(seed, operations);
}

CHECK_MAIN()
