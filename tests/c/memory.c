/*
 * Allocating: every kind on every device of every machine, which allocator serves a request, sizes, alignments, and
 * that each block goes back the way it came, whatever was switched since.
 */
/* topology: h200x2 */
/* topology: mixed */
/* topology: vgpu */
/* topology: wsl */
/* topology: gpux10 */
/* topology: none */
/* topology: - */
#define _POSIX_C_SOURCE 200809L
#include "blocks.h"

#define MAX_DEVICES 16

static const char *const alloc_entries[KINDS] = {NULL, NULL, "cuMemHostAlloc", "cuMemAlloc_v2", "cuMemAllocFromPoolAsync",
                                                 "cuMemAllocManaged"};
static const char *const free_entries[KINDS] = {NULL, NULL, "cuMemFreeHost", "cuMemFree_v2", "cuMemFreeAsync",
                                                "cuMemFree_v2"};
static const char *const pool_entries[] = {"cuMemAllocFromPoolAsync", "cuMemAllocAsync", "cuMemFreeAsync",
                                           "cuDeviceGetMemPool", "cuDeviceGetDefaultMemPool", "cuMemPoolTrimTo",
                                           "cuMemPoolGetAttribute", "cuMemPoolSetAttribute", "cuMemPoolSetAccess"};

static uint64_t calls_if_simulated(const char *entry)
{
    return entry != NULL && simulator_is_here() ? calls(entry) : 0;
}

static size_t devices(warp_device **out)
{
    size_t count = 0, i;
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    if (count > MAX_DEVICES)
        count = MAX_DEVICES;
    for (i = 0; i < count; ++i)
        CHECK_STATUS(warp_device_get_at(i, &out[i]), WARP_SUCCESS);
    return count;
}

static uint64_t natural_alignment(warp_memory_kind kind)
{
    return kind == WARP_MEMORY_HOST ? 64 : 256;
}

static warp_access_rule rule_of(warp_memory_kind kind)
{
    static const warp_access_rule rules[KINDS] = {WARP_ACCESS_RULE_UNKNOWN, WARP_ACCESS_RULE_PAGEABLE,
                                                  WARP_ACCESS_RULE_PINNED,  WARP_ACCESS_RULE_PEER,
                                                  WARP_ACCESS_RULE_POOL,    WARP_ACCESS_RULE_MANAGED};
    return rules[kind];
}

/* The record of a fresh block says what was asked. */
static void check_record(void *ptr, warp_device *device, uint64_t size, warp_memory_kind kind)
{
    warp_pointer_info info = pointer_info(ptr);
    warp_device_info home = info_of(device);
    CHECK_EQ_PTR(info.base, ptr);
    CHECK_EQ_U64(info.size, size);
    CHECK_EQ_I64(info.kind, kind);
    CHECK_EQ_I64(info.rule, rule_of(kind));
    CHECK_EQ_PTR(info.device, device);
    CHECK_EQ_I64(info.ordinal, home.ordinal);
    CHECK_EQ_I64(info.is_owned, 1);
    CHECK_EQ_I64(info.is_lost, 0);
    if (kind == WARP_MEMORY_PINNED)
        CHECK(info.context_id != 0); /* that of a GPU, though the block is the CPU's */
    else
        CHECK_EQ_U64(info.context_id, home.context_id);
    CHECK_EQ_U64((uintptr_t)ptr % natural_alignment(kind), 0);
    if (kind != WARP_MEMORY_HOST && kind != WARP_MEMORY_PINNED)
        CHECK_EQ_U64(info.stream_id, stream_info(stream_of(device)).id);
}

TEST(the_default_request_is_served_by_what_the_device_has_switched_on)
{
    warp_device *list[MAX_DEVICES];
    size_t count, i;
    REQUIRE(start());
    count = devices(list);
    for (i = 0; i < count; ++i) {
        warp_device_info info = info_of(list[i]);
        warp_memory_kind expected = info.is_cpu                 ? WARP_MEMORY_HOST
                                    : info.is_mempool_supported ? WARP_MEMORY_CUDA_MEMPOOL
                                                                : WARP_MEMORY_CUDA_DEVICE;
        uint64_t before[KINDS], frees = calls_if_simulated(free_entries[expected]);
        void *ptr = NULL;
        int kind;
        CHECK_EQ_I64(info.is_mempool_enabled, info.is_mempool_supported);
        for (kind = 0; kind < KINDS; ++kind)
            before[kind] = calls_if_simulated(alloc_entries[kind]);
        CHECK_STATUS(warp_alloc(list[i], 1000, &ptr), WARP_SUCCESS);
        check_record(ptr, list[i], 1000, expected);
        for (kind = 0; kind < KINDS; ++kind)
            if (alloc_entries[kind] != NULL && simulator_is_here())
                CHECK_EQ_U64(calls(alloc_entries[kind]), before[kind] + (kind == expected));
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        if (free_entries[expected] != NULL && simulator_is_here())
            CHECK_EQ_U64(calls(free_entries[expected]), frees + 1);
    }
    CHECK_NOTHING_LEFT();
}

/* OM-05, for the machine without a GPU: page-locked memory is not to be had there, and the message names what is. */
TEST(every_kind_on_every_device)
{
    warp_device *list[MAX_DEVICES];
    size_t count = devices(list), i;
    int kind;
    for (i = 0; i < count; ++i)
        for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind) {
            warp_alloc_options options = options_of(kind, NULL);
            int host_kind = kind == WARP_MEMORY_HOST || kind == WARP_MEMORY_PINNED;
            void *ptr = &options;
            uint64_t all = simulator_is_here() ? calls("*") : 0;
            warp_status status = warp_alloc_with(list[i], 4096, &options, &ptr);
            if (host_kind != info_of(list[i]).is_cpu) {
                CHECK_STATUS(status, WARP_ERROR_INVALID_ARGUMENT);
                CHECK_STR_CONTAINS(warp_error_get_message(), kind_names[kind]);
            } else if (!has_kind(list[i], kind)) {
                CHECK_STATUS(status, WARP_ERROR_NOT_SUPPORTED);
                if (kind == WARP_MEMORY_PINNED)
                    CHECK_STR_CONTAINS(warp_error_get_message(), "WARP_MEMORY_HOST");
            } else {
                REQUIRE_STATUS(status, WARP_SUCCESS);
                check_record(ptr, list[i], 4096, kind);
                put_pattern(ptr, 4096, (uint64_t)kind);
                CHECK_EQ_U64(find_pattern(ptr, 4096, (uint64_t)kind), 4096);
                CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
                continue;
            }
            /* Refused: nothing came out and the driver was not asked. */
            CHECK_EQ_PTR(ptr, NULL);
            if (simulator_is_here())
                CHECK_EQ_U64(calls("*"), all);
        }
    CHECK_NOTHING_LEFT();
}

/* MP-01. */
TEST(no_pool_entry_is_called_where_there_are_no_pools)
{
    warp_device *list[MAX_DEVICES];
    size_t count = devices(list), i;
    void *ptr = NULL;
    int somewhere = 0;
    if (!simulator_is_here())
        SKIP("needs the simulated driver");
    for (i = 0; i < count; ++i)
        somewhere |= info_of(list[i]).is_mempool_supported;
    for (i = 0; i < count; ++i)
        if (info_of(list[i]).is_cuda && !info_of(list[i]).is_mempool_supported) {
            uint64_t before = 0, after = 0;
            size_t e;
            for (e = 0; e < sizeof pool_entries / sizeof *pool_entries; ++e)
                before += calls(pool_entries[e]);
            CHECK_STATUS(warp_alloc(list[i], MIB, &ptr), WARP_SUCCESS);
            put_pattern(ptr, 100, 1);
            CHECK_EQ_U64(find_pattern(ptr, 100, 1), 100);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            SIMULATOR(warpsim_out_of_memory_at_size)(1);
            CHECK_STATUS(warp_alloc(list[i], MIB, &ptr), WARP_ERROR_OUT_OF_MEMORY);
            SIMULATOR(warpsim_fail_clear)();
            for (e = 0; e < sizeof pool_entries / sizeof *pool_entries; ++e) {
                after += calls(pool_entries[e]);
                if (!somewhere)
                    CHECK_EQ_U64(calls(pool_entries[e]), 0);
            }
            CHECK_EQ_U64(after, before);
        }
    CHECK_NOTHING_LEFT();
}

/* OM-04; arrays without items: array.c, access and launch checks of them: access.c, captures: graph_arrays.c. */
TEST(zero_bytes_ask_nobody)
{
    warp_device *list[MAX_DEVICES];
    size_t count = devices(list), i;
    int kind;
    uint64_t all = simulator_is_here() ? calls("*") : 0;
    for (i = 0; i < count; ++i) {
        void *ptr = &ptr;
        warp_statistics before = statistics_of(list[i], WARP_MEMORY_UNKNOWN), after;
        CHECK_STATUS(warp_alloc(list[i], 0, &ptr), WARP_SUCCESS);
        CHECK_EQ_PTR(ptr, NULL);
        for (kind = 0; kind < KINDS; ++kind)
            if (has_kind(list[i], kind)) {
                warp_alloc_options options = options_of(kind, NULL);
                options.alignment = 4096;
                options.tag = "nothing";
                ptr = &ptr;
                CHECK_STATUS(warp_alloc_with(list[i], 0, &options, &ptr), WARP_SUCCESS);
                CHECK_EQ_PTR(ptr, NULL);
            }
        after = statistics_of(list[i], WARP_MEMORY_UNKNOWN);
        CHECK_EQ_U64(after.allocations, before.allocations);
    }
    CHECK_STATUS(warp_free(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free_with(NULL, NULL), WARP_SUCCESS);
    if (simulator_is_here())
        CHECK_EQ_U64(calls("*"), all);
}

TEST(sizes_are_exact_at_both_ends)
{
    static const uint64_t sizes[] = {1, 2, 255, 256, 257, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 33 * MIB};
    warp_device *list[MAX_DEVICES];
    size_t count = devices(list), i, s;
    int kind;
    for (i = 0; i < count && i < 4; ++i)
        for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind)
            for (s = 0; s < sizeof sizes / sizeof *sizes; ++s)
                if (has_kind(list[i], kind)) {
                    uint64_t size = sizes[s], end = size < 64 ? size : 64;
                    unsigned char *left = (unsigned char *)block_of(list[i], size, kind);
                    unsigned char *ptr = (unsigned char *)block_of(list[i], size, kind);
                    unsigned char *right = (unsigned char *)block_of(list[i], size, kind);
                    put_pattern(left, end, 1);
                    put_pattern(left + size - end, end, 1);
                    put_pattern(right, end, 2);
                    put_pattern(right + size - end, end, 2);
                    CHECK_STATUS(warp_memory_fill(ptr, size, "\x3c", 1, NULL), WARP_SUCCESS);
                    put_pattern(ptr, end, 3);
                    put_pattern(ptr + size - end, end, 3);
                    CHECK_EQ_U64(find_pattern(ptr + size - end, end, 3), end);
                    CHECK_EQ_U64(find_pattern(left + size - end, end, 1), end);
                    CHECK_EQ_U64(find_pattern(right + size - end, end, 2), end);
                    CHECK_EQ_U64(pointer_info(ptr + size - 1).size, size);
                    CHECK_STATUS(warp_free(left), WARP_SUCCESS);
                    CHECK_STATUS(warp_free(right), WARP_SUCCESS);
                    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
                }
    CHECK_NOTHING_LEFT();
}

/* CP-03: what does not fit in 32 bits. */
TEST(five_gibibytes)
{
    static const uint64_t sizes[] = {5 * GIB, 4 * GIB, 4 * GIB + 256, 4 * GIB - 1, 2 * GIB, 2 * GIB - 1};
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL};
    size_t s, k;
    uint64_t at;
    if (gpu_count() == 0)
        SKIP("needs a GPU");
    for (s = 0; s < sizeof sizes / sizeof *sizes; ++s)
        for (k = 0; k < 2; ++k) {
            warp_device *device = gpu(0);
            unsigned char *ptr;
            if (!has_kind(device, kinds[k]))
                continue;
            ptr = (unsigned char *)block_of(device, sizes[s], kinds[k]);
            REQUIRE(ptr != NULL);
            put_pattern(ptr, 1000, 1);
            put_pattern(ptr + sizes[s] - 1000, 1000, 2);
            for (at = 2 * GIB - 500; at + 1000 < sizes[s] - 1000; at += 2 * GIB)
                put_pattern(ptr + at, 1000, at);
            CHECK_EQ_U64(find_pattern(ptr, 1000, 1), 1000);
            CHECK_EQ_U64(find_pattern(ptr + sizes[s] - 1000, 1000, 2), 1000);
            for (at = 2 * GIB - 500; at + 1000 < sizes[s] - 1000; at += 2 * GIB)
                CHECK_EQ_U64(find_pattern(ptr + at, 1000, at), 1000);
            CHECK_EQ_PTR(pointer_info(ptr + sizes[s] - 1).base, ptr);
            CHECK_STATUS(warp_memory_fill(ptr + sizes[s] - 3, 3, "abc", 3, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_memory_fill(ptr + sizes[s] - 3, 4, "abcd", 4, NULL), WARP_ERROR_INVALID_ARGUMENT);
            CHECK_EQ_U64(find_pattern(ptr + sizes[s] - 1000, 1000, 2), 997);
            CHECK_EQ_U64(statistics_of(device, kinds[k]).live_bytes, sizes[s]);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        }
    CHECK_NOTHING_LEFT();
}

TEST(alignments_are_kept)
{
    static const uint64_t alignments[] = {0, 1, 2, 4, 64, 128, 256, 512, 4096, 65536, MIB, 4 * MIB};
    static const uint64_t sizes[] = {1, 100, 4096, 70000};
    warp_device *list[MAX_DEVICES];
    size_t count = devices(list), i, a, s;
    int kind;
    for (i = 0; i < count && i < 3; ++i)
        for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind)
            for (a = 0; a < sizeof alignments / sizeof *alignments; ++a)
                for (s = 0; s < sizeof sizes / sizeof *sizes; ++s)
                    if (has_kind(list[i], kind)) {
                        warp_alloc_options options = options_of(kind, NULL);
                        warp_free_options checks;
                        uint64_t alignment = alignments[a], natural = natural_alignment(kind);
                        uint64_t expected = alignment > natural ? alignment : natural;
                        unsigned char *ptr[3];
                        int n;
                        options.alignment = alignment;
                        for (n = 0; n < 3; ++n) {
                            REQUIRE_STATUS(warp_alloc_with(list[i], sizes[s], &options, (void **)&ptr[n]), WARP_SUCCESS);
                            CHECK_EQ_U64((uintptr_t)ptr[n] % expected, 0);
                            CHECK_EQ_U64(pointer_info(ptr[n]).alignment, expected);
                            CHECK_EQ_U64(pointer_info(ptr[n]).size, sizes[s]);
                            CHECK_EQ_PTR(pointer_info(ptr[n] + sizes[s] - 1).base, ptr[n]);
                        }
                        put_pattern(ptr[1], sizes[s], 7);
                        put_pattern(ptr[0], sizes[s], 6);
                        put_pattern(ptr[2], sizes[s], 8);
                        CHECK_EQ_U64(find_pattern(ptr[1], sizes[s], 7), sizes[s]);
                        memset(&checks, 0, sizeof checks);
                        checks.struct_size = sizeof checks;
                        checks.alignment = expected * 2;
                        CHECK_STATUS(warp_free_with(ptr[1], &checks), WARP_ERROR_BAD_ALIGNMENT);
                        checks.alignment = expected;
                        checks.size = sizes[s];
                        CHECK_STATUS(warp_free_with(ptr[1], &checks), WARP_SUCCESS);
                        CHECK_STATUS(warp_free(ptr[0]), WARP_SUCCESS);
                        CHECK_STATUS(warp_free(ptr[2]), WARP_SUCCESS);
                    }
    CHECK_NOTHING_LEFT();
}

/* The thread's current stream is a block's stream, and so is one that is named. */
TEST(a_block_belongs_to_the_stream_it_was_asked_on)
{
    warp_device *device;
    warp_stream *stream;
    int kind;
    if (gpu_count() == 0)
        SKIP("needs a GPU");
    device = gpu(0);
    stream = new_stream(device, 0);
    for (kind = WARP_MEMORY_CUDA_DEVICE; kind < KINDS; ++kind)
        if (has_kind(device, kind)) {
            void *named = block_on(device, 100, kind, stream), *current;
            CHECK_EQ_U64(pointer_info(named).stream_id, stream_info(stream).id);
            CHECK_STATUS(warp_stream_set_current(device, stream), WARP_SUCCESS);
            current = block_of(device, 100, kind);
            CHECK_EQ_U64(pointer_info(current).stream_id, stream_info(stream).id);
            CHECK_STATUS(warp_stream_set_current(device, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_free(named), WARP_SUCCESS);
            CHECK_STATUS(warp_free(current), WARP_SUCCESS);
        }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* Takes the library down and starts it with pools off or as they are by default. */
static void restart(int pools)
{
    warp_init_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.flags = pools ? 0 : WARP_INIT_DISABLE_MEMPOOLS;
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_init(&options, NULL), WARP_SUCCESS);
}

TEST(pools_can_be_off_from_the_start_and_still_be_asked_for)
{
    void *ptr = NULL, *pool;
    if (gpu_count() == 0)
        SKIP("needs a GPU");
    restart(0);
    CHECK_EQ_I64(info_of(gpu(0)).is_mempool_enabled, 0);
    CHECK_STATUS(warp_alloc(gpu(0), 100, &ptr), WARP_SUCCESS);
    check_record(ptr, gpu(0), 100, WARP_MEMORY_CUDA_DEVICE);
    if (has_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL)) {
        pool = block_of(gpu(0), 100, WARP_MEMORY_CUDA_MEMPOOL);
        check_record(pool, gpu(0), 100, WARP_MEMORY_CUDA_MEMPOOL);
        CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    setenv("WARPMEM_ENABLE_MEMPOOLS_AT_INIT", "0", 1);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(info_of(gpu(0)).is_mempool_enabled, 0);
    unsetenv("WARPMEM_ENABLE_MEMPOOLS_AT_INIT");
    restart(1);
    CHECK_EQ_I64(info_of(gpu(0)).is_mempool_enabled, info_of(gpu(0)).is_mempool_supported);
    CHECK_NOTHING_LEFT();
}

/* CA-03, CX-01: whatever is switched between, a block goes back the way it came, under its own device. */
TEST(every_block_goes_back_the_way_it_came)
{
    enum { BLOCKS = 300 };
    struct {
        void *ptr;
        warp_memory_kind kind;
    } live[BLOCKS];
    uint64_t random = 42, allocs[KINDS] = {0}, before_allocs[KINDS], before_frees[KINDS], plain;
    size_t i, left;
    int kind;
    for (kind = 0; kind < KINDS; ++kind) {
        before_allocs[kind] = calls_if_simulated(alloc_entries[kind]);
        before_frees[kind] = calls_if_simulated(free_entries[kind]);
    }
    for (i = 0; i < BLOCKS; ++i) {
        warp_device *list[MAX_DEVICES], *device;
        size_t count;
        if (i % 100 == 50)
            restart(i % 200 == 150);
        count = devices(list);
        device = list[next_random(&random) % count];
        do
            kind = (int)(next_random(&random) % KINDS);
        while (!has_kind(device, kind));
        live[i].ptr = block_of(device, 1 + next_random(&random) % 10000, kind);
        REQUIRE(live[i].ptr != NULL);
        live[i].kind = pointer_info(live[i].ptr).kind;
        CHECK(kind == WARP_MEMORY_UNKNOWN || live[i].kind == kind);
        ++allocs[live[i].kind];
    }
    restart(1);
    for (left = BLOCKS; left != 0; --left) {
        size_t chosen = next_random(&random) % left;
        if (left == BLOCKS / 2)
            restart(0);
        if (gpu_count() != 0 && simulator_is_here() && left % 7 == 0)
            SIMULATOR(cuCtxSetCurrent)(context_of(gpu((int)(left % gpu_count()))));
        CHECK_EQ_I64(pointer_info(live[chosen].ptr).kind, live[chosen].kind);
        CHECK_STATUS(warp_free(live[chosen].ptr), WARP_SUCCESS);
        live[chosen] = live[left - 1];
    }
    restart(1);
    if (simulator_is_here()) {
        for (kind = 0; kind < KINDS; ++kind)
            if (alloc_entries[kind] != NULL)
                CHECK_EQ_U64(calls(alloc_entries[kind]) - before_allocs[kind], allocs[kind]);
        CHECK_EQ_U64(calls("cuMemFreeHost") - before_frees[WARP_MEMORY_PINNED], allocs[WARP_MEMORY_PINNED]);
        CHECK_EQ_U64(calls("cuMemFreeAsync") - before_frees[WARP_MEMORY_CUDA_MEMPOOL], allocs[WARP_MEMORY_CUDA_MEMPOOL]);
        plain = allocs[WARP_MEMORY_CUDA_DEVICE] + allocs[WARP_MEMORY_CUDA_MANAGED];
        CHECK_EQ_U64(calls("cuMemFree_v2") - before_frees[WARP_MEMORY_CUDA_DEVICE], plain);
        SIMULATOR(cuCtxSetCurrent)(NULL);
    }
    CHECK_NOTHING_LEFT();
}

/* MG-01: where the CPU may not touch managed memory while the GPU works, the library never does. */
TEST(managed_memory_is_never_touched_by_the_host)
{
    warp_stream *busy;
    unsigned char *ptr, *host;
    uint64_t fills;
    if (gpu_count() == 0 || !simulator_is_here() || !has_kind(gpu(0), WARP_MEMORY_CUDA_MANAGED))
        SKIP("needs simulated managed memory");
    busy = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    ptr = (unsigned char *)block_of(gpu(0), 4096, WARP_MEMORY_CUDA_MANAGED);
    host = (unsigned char *)block_of(cpu(), 4096, WARP_MEMORY_HOST);
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native_stream(busy)), 0);
    fills = calls("cuMemsetD8Async");
    /* The simulated driver has closed the pages: a touch by the host is a segmentation fault. */
    CHECK_STATUS(warp_memory_fill(ptr, 4096, "\x11", 1, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuMemsetD8Async"), fills + 1);
    CHECK_STATUS(warp_memory_fill(ptr + 1, 12, "abcdef", 6, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(ptr + 100, ptr, 50, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(host, ptr, 4096, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(ptr + 200, host, 30, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(pointer_info(ptr + 5).kind, WARP_MEMORY_CUDA_MANAGED);
    CHECK_STATUS(warp_stream_synchronize(NULL), WARP_SUCCESS);
    CHECK_EQ_I64(host[0], 0x11);
    CHECK(memcmp(host + 1, "abcdefabcdef\x11", 13) == 0);
    CHECK(memcmp(host + 100, host, 50) == 0);
    CHECK_EQ_I64(host[150], 0x11);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(host), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_release)(native_stream(busy)), 0);
    CHECK_STATUS(warp_stream_release(busy), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* The caller's context is what it was, whichever device is asked. */
TEST(allocating_keeps_the_callers_context)
{
    warp_device *list[MAX_DEVICES];
    size_t count = devices(list), i, c;
    int kind;
    if (gpu_count() == 0 || !simulator_is_here())
        SKIP("needs simulated GPUs");
    for (c = 0; c <= gpu_count() && c < 3; ++c) {
        CUcontext current = c == 0 ? NULL : context_of(gpu((int)c - 1));
        SIMULATOR(cuCtxSetCurrent)(current);
        for (i = 0; i < count; ++i)
            for (kind = 0; kind < KINDS; ++kind) {
                warp_alloc_options options = options_of(kind, NULL);
                void *ptr = NULL;
                warp_status status = warp_alloc_with(list[i], 100, &options, &ptr);
                CHECK_EQ_PTR(driver_current(), current);
                if (status == WARP_SUCCESS) {
                    CHECK_STATUS(warp_memory_fill(ptr, 100, "q", 1, NULL), WARP_SUCCESS);
                    CHECK_EQ_PTR(driver_current(), current);
                    pointer_info(ptr);
                    CHECK_EQ_PTR(driver_current(), current);
                    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
                    CHECK_EQ_PTR(driver_current(), current);
                }
                /* And when the driver has no memory. */
                SIMULATOR(warpsim_out_of_memory_at_size)(1);
                CHECK(warp_alloc_with(list[i], 100, &options, &ptr) != WARP_SUCCESS || info_of(list[i]).is_cpu);
                CHECK_EQ_PTR(driver_current(), current);
                SIMULATOR(warpsim_fail_clear)();
                CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            }
    }
    SIMULATOR(cuCtxSetCurrent)(NULL);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
