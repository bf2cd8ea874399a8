/*
 * What an address is, and what is counted: of the library's blocks from its ledger, of other memory from the driver;
 * counts that equal a model's after thousands of operations; and blocks that other code freed behind the library's back.
 */
/* topology: h200x2 */
/* topology: wsl */
/* topology: - */
#define _POSIX_C_SOURCE 200809L
#include "blocks.h"

static void check_unknown(const void *ptr, int line)
{
    warp_pointer_info info;
    memset(&info, 0xEE, sizeof info);
    info.struct_size = sizeof info;
    check_that(warp_pointer_get_info(ptr, &info) == WARP_SUCCESS, __FILE__, line, "an unknown address is no failure");
    check_ptr(info.base, NULL, __FILE__, line, "base");
    check_u64(info.size, 0, __FILE__, line, "size");
    check_u64(info.alignment, 0, __FILE__, line, "alignment");
    check_ptr(info.device, NULL, __FILE__, line, "device");
    check_ptr(info.tag, NULL, __FILE__, line, "tag");
    check_u64(info.stream_id, 0, __FILE__, line, "stream_id");
    check_u64(info.context_id, 0, __FILE__, line, "context_id");
    check_i64(info.ordinal, -1, __FILE__, line, "ordinal");
    check_i64(info.kind, WARP_MEMORY_UNKNOWN, __FILE__, line, "kind");
    check_i64(info.rule, WARP_ACCESS_RULE_UNKNOWN, __FILE__, line, "rule");
    check_i64(info.is_owned, 0, __FILE__, line, "is_owned");
    check_i64(info.is_lost, 0, __FILE__, line, "is_lost");
}

static void check_inside(const unsigned char *ptr, uint64_t size, warp_memory_kind kind)
{
    uint64_t offsets[6];
    size_t i;
    offsets[0] = 0;
    offsets[1] = 1;
    offsets[2] = size / 3;
    offsets[3] = size / 2;
    offsets[4] = size - 1;
    offsets[5] = size - 2;
    for (i = 0; i < 6; ++i) {
        warp_pointer_info info = pointer_info(ptr + offsets[i]);
        CHECK_EQ_PTR(info.base, ptr);
        CHECK_EQ_U64(info.size, size);
        CHECK_EQ_I64(info.kind, kind);
        CHECK_EQ_I64(info.is_owned, 1);
        CHECK_EQ_STR(info.tag, "weights");
    }
}

TEST(every_address_of_a_block_and_none_beside_it)
{
    int kind, g;
    REQUIRE(start());
    for (g = -1; g < (int)gpu_count(); ++g)
        for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind) {
            warp_device *device = g < 0 ? cpu() : gpu(g);
            warp_alloc_options options = options_of(kind, NULL);
            unsigned char *ptr = NULL, *neighbour;
            uint64_t all;
            if (!has_kind(device, kind))
                continue;
            options.tag = "weights";
            REQUIRE_STATUS(warp_alloc_with(device, 1000, &options, (void **)&ptr), WARP_SUCCESS);
            neighbour = (unsigned char *)block_of(device, 1000, kind);
            all = simulator_is_here() ? calls("*") : 0;
            check_inside(ptr, 1000, kind);
            if (simulator_is_here())
                CHECK_EQ_U64(calls("*"), all); /* the ledger knows */
            /* One past the end is the neighbour's, or is not known as the library's; never this block's. */
            CHECK(pointer_info(ptr + 1000).base != ptr || !pointer_info(ptr + 1000).is_owned);
            CHECK(pointer_info(ptr - 1).base != ptr || !pointer_info(ptr - 1).is_owned);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            CHECK(!pointer_info(ptr).is_owned);
            if (kind != WARP_MEMORY_HOST && simulator_is_here())
                check_unknown(ptr, __LINE__);
            CHECK_STATUS(warp_free(neighbour), WARP_SUCCESS);
        }
    CHECK_NOTHING_LEFT();
}

static int global_variable;

TEST(addresses_that_nobody_knows)
{
    int local = 0;
    void *foreign = malloc(100);
    int reaches_pageable = gpu_count() != 0 && info_of(gpu(0)).is_cpu_memory_access_from_gpu_supported;
    check_unknown(NULL, __LINE__);
    check_unknown((void *)(uintptr_t)1, __LINE__);
    check_unknown((void *)(uintptr_t)UINT64_MAX, __LINE__);
    check_unknown((void *)(uintptr_t)((uint64_t)1 << 63), __LINE__);
    check_unknown((void *)(uintptr_t)0xdeadbeefdeadbeefull, __LINE__);
    (void)reaches_pageable; /* makes no difference: nobody allocated it with CUDA */
    check_unknown(&local, __LINE__);
    check_unknown(&global_variable, __LINE__);
    check_unknown(foreign, __LINE__);
    free(foreign);
    check_unknown((void *)(uintptr_t)&check_unknown, __LINE__);
}

TEST(memory_that_other_code_made)
{
    uint64_t device = 0, managed = 0, pool = 0;
    void *pinned = NULL;
    CUcontext before;
    char *page = NULL;
    warp_pointer_info info;
    int g;
    if (gpu_count() == 0 || !simulator_is_here())
        SKIP("needs simulated GPUs");
    before = driver_current();
    for (g = 0; g < (int)gpu_count(); ++g) {
        SIMULATOR(cuCtxSetCurrent)(context_of(gpu(g)));
        CHECK_EQ_U64(SIMULATOR(cuMemAlloc_v2)(&device, 10000), 0);
        info = pointer_info((void *)(uintptr_t)(device + 5000));
        CHECK_EQ_I64(info.kind, WARP_MEMORY_CUDA_DEVICE);
        CHECK_EQ_I64(info.rule, WARP_ACCESS_RULE_PEER);
        CHECK_EQ_PTR(info.device, gpu(g));
        CHECK_EQ_I64(info.ordinal, g);
        CHECK_EQ_U64(info.context_id, info_of(gpu(g)).context_id);
        CHECK_EQ_U64((uint64_t)(uintptr_t)info.base, device);
        CHECK_EQ_U64(info.size, 10000);
        CHECK_EQ_I64(info.is_owned, 0);
        CHECK_EQ_U64(info.alignment, 0);
        CHECK_EQ_U64(info.stream_id, 0);
        CHECK_STATUS(warp_free((void *)(uintptr_t)device), WARP_ERROR_UNKNOWN_POINTER);
        CHECK_EQ_U64(SIMULATOR(cuMemAllocManaged)(&managed, 10000, 1), 0);
        info = pointer_info((void *)(uintptr_t)(managed + 1));
        CHECK_EQ_I64(info.kind, WARP_MEMORY_CUDA_MANAGED);
        CHECK_EQ_I64(info.rule, WARP_ACCESS_RULE_MANAGED);
        CHECK_EQ_I64(info.ordinal, g);
        CHECK_EQ_I64(info.is_owned, 0);
        CHECK_EQ_U64(SIMULATOR(cuMemAllocAsync)(&pool, 10000, NULL), 0);
        info = pointer_info((void *)(uintptr_t)(pool + 9999));
        CHECK_EQ_I64(info.kind, WARP_MEMORY_CUDA_MEMPOOL);
        CHECK_EQ_I64(info.rule, WARP_ACCESS_RULE_POOL);
        CHECK_EQ_I64(info.ordinal, g);
        CHECK_EQ_PTR(info.device, gpu(g));
        CHECK_EQ_U64(SIMULATOR(cuMemHostAlloc)(&pinned, 10000, 1), 0);
        info = pointer_info((char *)pinned + 77);
        CHECK_EQ_I64(info.kind, WARP_MEMORY_PINNED);
        CHECK_EQ_I64(info.rule, WARP_ACCESS_RULE_PINNED);
        CHECK_EQ_PTR(info.device, cpu());
        CHECK_EQ_I64(info.ordinal, -1);
        CHECK_EQ_I64(info.is_owned, 0);
        REQUIRE(posix_memalign((void **)&page, 4096, 8192) == 0);
        check_unknown(page, __LINE__);
        CHECK_EQ_U64(SIMULATOR(cuMemHostRegister_v2)(page, 8192, 1), 0);
        info = pointer_info(page + 5000);
        CHECK_EQ_I64(info.kind, WARP_MEMORY_PINNED);
        CHECK_EQ_PTR(info.device, cpu());
        CHECK_EQ_U64(SIMULATOR(cuMemHostUnregister)(page), 0);
        check_unknown(page, __LINE__);
        free(page);
        /* All of it can be filled and copied as one's own, and ranges are checked. */
        CHECK_STATUS(warp_memory_fill((void *)(uintptr_t)device, 10000, "ab", 2, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy((void *)(uintptr_t)managed, (void *)(uintptr_t)device, 10000, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy((void *)(uintptr_t)pool, (void *)(uintptr_t)managed, 10000, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(pinned, (void *)(uintptr_t)pool, 10000, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(gpu(g)), WARP_SUCCESS);
        CHECK(memcmp(pinned, "abab", 4) == 0 && memcmp((char *)pinned + 9996, "abab", 4) == 0);
        CHECK_STATUS(warp_memory_fill((void *)(uintptr_t)(device + 9990), 12, "ab", 2, NULL), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_U64(SIMULATOR(cuMemFree_v2)(device), 0);
        CHECK_EQ_U64(SIMULATOR(cuMemFree_v2)(managed), 0);
        CHECK_EQ_U64(SIMULATOR(cuMemFreeAsync)(pool, NULL), 0);
        CHECK_EQ_U64(SIMULATOR(cuMemFreeHost)(pinned), 0);
        check_unknown((void *)(uintptr_t)device, __LINE__);
        check_unknown((void *)(uintptr_t)managed, __LINE__);
        check_unknown(pinned, __LINE__);
    }
    SIMULATOR(cuCtxSetCurrent)(before);
    CHECK_NOTHING_LEFT();
}

/* ---- counts ------------------------------------------------------------------------------------------------------- */

static void check_counts(warp_device *device, warp_memory_kind kind, uint64_t bytes, uint64_t blocks, uint64_t peak)
{
    warp_statistics statistics = statistics_of(device, kind);
    CHECK_EQ_U64(statistics.live_bytes, bytes);
    CHECK_EQ_U64(statistics.live_blocks, blocks);
    CHECK_EQ_U64(statistics.peak_bytes, peak);
    CHECK_EQ_U64(statistics.allocations - statistics.frees, blocks);
}

TEST(counts_are_of_what_was_asked_for)
{
    int g, kind;
    for (g = -1; g < (int)gpu_count(); ++g)
        for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind) {
            warp_device *device = g < 0 ? cpu() : gpu(g);
            void *first, *second;
            if (!has_kind(device, kind))
                continue;
            CHECK_STATUS(warp_statistics_reset_peak(device), WARP_SUCCESS);
            check_counts(device, kind, 0, 0, 0);
            first = block_of(device, 12, kind); /* the driver rounds that up */
            check_counts(device, kind, 12, 1, 12);
            second = block_of(device, 1000, kind);
            check_counts(device, kind, 1012, 2, 1012);
            check_counts(device, WARP_MEMORY_UNKNOWN, 1012, 2, 1012);
            CHECK_STATUS(warp_free(first), WARP_SUCCESS);
            check_counts(device, kind, 1000, 1, 1012);
            CHECK_STATUS(warp_free(first), WARP_ERROR_DOUBLE_FREE);
            check_counts(device, kind, 1000, 1, 1012);
            CHECK_STATUS(warp_statistics_reset_peak(device), WARP_SUCCESS);
            check_counts(device, kind, 1000, 1, 1000);
            CHECK_STATUS(warp_free(second), WARP_SUCCESS);
            check_counts(device, kind, 0, 0, 1000);
        }
    if (gpu_count() != 0) { /* page-locked memory is the CPU's, wherever the context is */
        void *pinned = block_of(cpu(), 100, WARP_MEMORY_PINNED);
        check_counts(gpu(0), WARP_MEMORY_PINNED, 0, 0, 0);
        CHECK_EQ_U64(statistics_of(cpu(), WARP_MEMORY_PINNED).live_bytes, 100);
        CHECK_STATUS(warp_free(pinned), WARP_SUCCESS);
    }
    CHECK_NOTHING_LEFT();
}

TEST(counts_equal_a_models_after_ten_thousand_operations)
{
    enum { SLOTS = 200, DEVICES = 3 };
    struct {
        void *ptr;
        uint64_t size;
        int device, kind;
    } slots[SLOTS];
    struct {
        uint64_t bytes, blocks, peak, allocations, frees;
    } model[DEVICES][KINDS];
    warp_statistics before[DEVICES][KINDS];
    warp_device *devices[DEVICES];
    uint64_t random = 7;
    int device_count = 0, d, kind, i, operation;
    memset(slots, 0, sizeof slots);
    memset(model, 0, sizeof model);
    devices[device_count++] = cpu();
    for (d = 0; d < (int)gpu_count() && device_count < DEVICES; ++d)
        devices[device_count++] = gpu(d);
    for (d = 0; d < device_count; ++d) {
        CHECK_STATUS(warp_statistics_reset_peak(devices[d]), WARP_SUCCESS);
        for (kind = 0; kind < KINDS; ++kind)
            before[d][kind] = statistics_of(devices[d], kind);
    }
    for (operation = 0; operation < 10000; ++operation) {
        i = (int)(next_random(&random) % SLOTS);
        if (slots[i].ptr != NULL) {
            CHECK_STATUS(warp_free(slots[i].ptr), WARP_SUCCESS);
            model[slots[i].device][slots[i].kind].bytes -= slots[i].size;
            --model[slots[i].device][slots[i].kind].blocks;
            ++model[slots[i].device][slots[i].kind].frees;
            slots[i].ptr = NULL;
        } else {
            d = (int)(next_random(&random) % (uint64_t)device_count);
            do
                kind = WARP_MEMORY_HOST + (int)(next_random(&random) % (KINDS - 1));
            while (!has_kind(devices[d], kind));
            slots[i].size = 1 + next_random(&random) % 100000;
            slots[i].device = d;
            slots[i].kind = kind;
            slots[i].ptr = block_of(devices[d], slots[i].size, kind);
            model[d][kind].bytes += slots[i].size;
            ++model[d][kind].blocks;
            ++model[d][kind].allocations;
            if (model[d][kind].bytes > model[d][kind].peak)
                model[d][kind].peak = model[d][kind].bytes;
        }
        if (operation % 500 == 499)
            for (d = 0; d < device_count; ++d) {
                uint64_t bytes = 0, peak = 0;
                for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind) {
                    warp_statistics now = statistics_of(devices[d], kind);
                    CHECK_EQ_U64(now.live_bytes, model[d][kind].bytes);
                    CHECK_EQ_U64(now.live_blocks, model[d][kind].blocks);
                    CHECK_EQ_U64(now.peak_bytes, model[d][kind].peak);
                    CHECK_EQ_U64(now.allocations - before[d][kind].allocations, model[d][kind].allocations);
                    CHECK_EQ_U64(now.frees - before[d][kind].frees, model[d][kind].frees);
                    bytes += model[d][kind].bytes;
                    peak += model[d][kind].peak;
                }
                CHECK_EQ_U64(statistics_of(devices[d], 0).live_bytes, bytes);
                CHECK_EQ_U64(statistics_of(devices[d], 0).peak_bytes, peak);
            }
        if (operation == 5000)
            for (d = 0; d < device_count; ++d) {
                CHECK_STATUS(warp_statistics_reset_peak(devices[d]), WARP_SUCCESS);
                for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind)
                    model[d][kind].peak = model[d][kind].bytes;
            }
    }
    for (i = 0; i < SLOTS; ++i)
        CHECK_STATUS(warp_free(slots[i].ptr), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* OM-03: other users of the same pool are the driver's business. */
TEST(other_users_of_the_pool_are_not_counted)
{
    uint64_t foreign = 0;
    CUcontext before;
    if (gpu_count() == 0 || !simulator_is_here() || !has_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL))
        SKIP("needs a simulated GPU with pools");
    before = driver_current();
    SIMULATOR(cuCtxSetCurrent)(context_of(gpu(0)));
    CHECK_EQ_U64(SIMULATOR(cuMemAllocAsync)(&foreign, 123456, NULL), 0);
    check_counts(gpu(0), WARP_MEMORY_CUDA_MEMPOOL, 0, 0, statistics_of(gpu(0), WARP_MEMORY_CUDA_MEMPOOL).peak_bytes);
    CHECK_EQ_U64(SIMULATOR(cuMemFreeAsync)(foreign, NULL), 0);
    SIMULATOR(cuCtxSetCurrent)(before);
    CHECK_NOTHING_LEFT();
}

/* ---- freed behind the library's back ------------------------------------------------------------------------------- */

static char last_message[2000];
static int warnings;

static void note_message(void *user, warp_log_level level, const char *message)
{
    (void)user;
    if (level == WARP_LOG_WARNING) {
        ++warnings;
        snprintf(last_message, sizeof last_message, "%s", message);
    }
}

static void free_behind_the_back(warp_memory_kind kind, uint64_t alignment)
{
    warp_device *device = kind == WARP_MEMORY_PINNED ? cpu() : gpu(0);
    warp_alloc_options options = options_of(kind, NULL);
    unsigned char *ptr = NULL, *again = NULL, *blocks[64];
    warp_statistics before = statistics_of(device, kind), after;
    warp_stream *other = new_stream(gpu(0), 0);
    CUcontext current = driver_current();
    uint64_t native;
    int n, count = 0, warned = warnings;
    options.alignment = alignment;
    options.tag = "stale";
    REQUIRE_STATUS(warp_alloc_with(device, 5000, &options, (void **)&ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_record_stream(ptr, other), WARP_SUCCESS);
    /* Other code finds out where the allocation begins and frees it. */
    for (native = (uint64_t)(uintptr_t)ptr; native > (uint64_t)(uintptr_t)ptr - (alignment == 0 ? 1 : alignment);
         native -= 256) {
        uint32_t code;
        SIMULATOR(cuCtxSetCurrent)(context_of(gpu(0)));
        code = kind == WARP_MEMORY_PINNED         ? SIMULATOR(cuMemFreeHost)((void *)(uintptr_t)native)
               : kind == WARP_MEMORY_CUDA_MEMPOOL ? SIMULATOR(cuMemFreeAsync)(native, NULL)
                                                  : SIMULATOR(cuMemFree_v2)(native);
        SIMULATOR(cuCtxSetCurrent)(current);
        if (code == 0)
            break;
    }
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    /* The library cannot know it yet. */
    CHECK_EQ_I64(pointer_info(ptr).is_owned, 1);
    /* Until the driver gives the place to somebody again. */
    while (count < 64 && warnings == warned) {
        REQUIRE_STATUS(warp_alloc_with(device, 5000, &options, (void **)&again), WARP_SUCCESS);
        blocks[count++] = again;
    }
    CHECK_EQ_I64(warnings, warned + 1);
    CHECK_STR_CONTAINS(last_message, "5000 bytes");
    CHECK_STR_CONTAINS(last_message, "other code freed");
    after = statistics_of(device, kind);
    CHECK_EQ_U64(after.stale_blocks, before.stale_blocks + 1);
    CHECK_EQ_U64(after.live_blocks, before.live_blocks + (uint64_t)count);
    CHECK_EQ_U64(after.live_bytes, before.live_bytes + (uint64_t)count * 5000);
    CHECK_EQ_I64(pointer_info(again).is_owned, 1);
    put_pattern(again, 5000, 3);
    CHECK_EQ_U64(find_pattern(again, 5000, 3), 5000);
    for (n = 0; n < count; ++n)
        CHECK_STATUS(warp_free(blocks[n]), WARP_SUCCESS);
    CHECK_STATUS(warp_free(again), WARP_ERROR_DOUBLE_FREE);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(a_block_that_other_code_freed_is_found_out_when_its_place_comes_again)
{
    int kind;
    if (gpu_count() == 0 || !simulator_is_here())
        SKIP("needs simulated GPUs");
    CHECK_STATUS(warp_log_set_callback(note_message, NULL, WARP_LOG_WARNING), WARP_SUCCESS);
    for (kind = WARP_MEMORY_PINNED; kind < KINDS; ++kind) {
        free_behind_the_back(kind, 0);
        free_behind_the_back(kind, 4096);
        free_behind_the_back(kind, MIB);
    }
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, WARP_LOG_WARNING), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(an_old_record_does_not_hide_where_its_successor_begins)
{
    /* The stale block lay at the same address, aligned inside another allocation: the new one's own must be freed. */
    warp_alloc_options options = options_of(WARP_MEMORY_CUDA_DEVICE, NULL);
    uint64_t stale;
    unsigned char *first = NULL, *second = NULL;
    void *shift[8];
    int tries;
    if (gpu_count() == 0 || !simulator_is_here())
        SKIP("needs simulated GPUs");
    options.alignment = 64 * KIB;
    stale = statistics_of(gpu(0), WARP_MEMORY_CUDA_DEVICE).stale_blocks;
    for (tries = 0; tries < 8; ++tries) {
        uint64_t native, freed = 0;
        CUcontext current = driver_current();
        REQUIRE_STATUS(warp_alloc_with(gpu(0), 1000, &options, (void **)&first), WARP_SUCCESS);
        SIMULATOR(cuCtxSetCurrent)(context_of(gpu(0)));
        for (native = (uint64_t)(uintptr_t)first; !freed && native > (uint64_t)(uintptr_t)first - 64 * KIB; native -= 256)
            freed = SIMULATOR(cuMemFree_v2)(native) == 0;
        SIMULATOR(cuCtxSetCurrent)(current);
        CHECK(freed);
        REQUIRE_STATUS(warp_alloc_with(gpu(0), 1000, &options, (void **)&second), WARP_SUCCESS);
        CHECK_EQ_PTR(second, first);
        CHECK_STATUS(warp_free(second), WARP_SUCCESS);
        /* So that the next one begins elsewhere in its allocation. */
        shift[tries] = block_of(gpu(0), 1000 + 300 * (uint64_t)tries, WARP_MEMORY_CUDA_DEVICE);
    }
    CHECK_EQ_U64(statistics_of(gpu(0), WARP_MEMORY_CUDA_DEVICE).stale_blocks, stale + 8);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 8);
    for (tries = 0; tries < 8; ++tries)
        CHECK_STATUS(warp_free(shift[tries]), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
