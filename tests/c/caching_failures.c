/*
 * caching_failures.c: every call of the driver fails once, with each kind of code, while a cache grows, lends, trims, takes over what a
 * released stream had, and ends: a failure is told or made good, nothing is lost or given twice, and the next time all goes well.
 *
 * needs: simulator
 */
#define _GNU_SOURCE
#include "allocators.h"
#include "process.h"

static const char *const entries[] = {
    "cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing", "cuMemAlloc_v2",
    "cuMemAllocFromPoolAsync", "cuMemAllocManaged", "cuMemFree_v2", "cuMemFreeAsync", "cuMemsetD8Async", "cuStreamQuery",
    "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuStreamWaitEvent", "cuStreamSynchronize", "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2", "cuCtxSynchronize", "cuEventSynchronize", "cuMemGetInfo_v2", "cuMemPoolTrimTo", "cuEventDestroy_v2",
    "cuStreamGetId", "cuCtxGetStreamPriorityRange"};
#define ENTRIES (sizeof entries / sizeof *entries)
static const uint32_t codes[] = {1, 2, 999};
#define CODES (sizeof codes / sizeof *codes)
#define BLOCKS 8

static warp_allocator *below;
static void *blocks[BLOCKS];
static int told;

static int went(warp_status status)
{
    if (status != WARP_SUCCESS) {
        ++told;
        CHECK(warp_error_get_message()[0] != '\0');
        CHECK(status != WARP_ERROR_INTERNAL && status != WARP_ERROR_DOUBLE_FREE && status != WARP_ERROR_UNKNOWN_POINTER);
    }
    return status == WARP_SUCCESS;
}

static void take(int which, warp_allocator *cache, uint64_t size, warp_stream *stream)
{
    void *ptr = NULL;
    int i;
    if (stream == NULL || cache == NULL || blocks[which] != NULL)
        return;
    if (!went(try_by(gpu(0), cache, size, stream, &ptr))) {
        CHECK_EQ_PTR(ptr, NULL);
        return;
    }
    for (i = 0; i < BLOCKS; ++i)
        CHECK(blocks[i] != ptr);
    blocks[which] = ptr;
    CHECK_EQ_U64(pointer_info(ptr).size, size);
    went(warp_memory_fill(ptr, size, "1", 1, stream));
}

static void give(int which)
{
    if (blocks[which] != NULL && went(warp_free(blocks[which])))
        blocks[which] = NULL;
}

static warp_stream *stream_if_any(void)
{
    warp_stream_options options = {.struct_size = sizeof options, .flags = WARP_STREAM_NON_BLOCKING};
    warp_stream *stream = NULL;
    went(warp_stream_create(gpu(0), &options, &stream));
    return stream;
}

static void drop_stream(warp_stream **stream)
{
    if (*stream != NULL && !went(warp_stream_release(*stream)))
        CHECK_STATUS(warp_stream_release(*stream), WARP_SUCCESS);
    *stream = NULL;
}

static int play(uint64_t keep)
{
    warp_caching_options options = {.struct_size = sizeof options, .limit = 64 * MIB, .keep = keep};
    warp_caching_info info = {.struct_size = sizeof info};
    warp_stream *first, *second, *third;
    warp_allocator *cache = NULL;
    uint64_t bytes = 0;
    told = 0;
    CHECK_STATUS(warp_allocator_create_caching(below, &options, &cache), WARP_SUCCESS);
    first = stream_if_any();
    second = stream_if_any();
    take(0, cache, 1000, first);
    take(1, cache, 5 * MIB, first);
    take(2, cache, 9 * MIB, second);
    give(1);
    if (first != NULL)
        went(warp_stream_synchronize(first));
    take(3, cache, 5 * MIB, second); /* lent */
    if (blocks[0] != NULL && second != NULL)
        went(warp_pointer_record_stream(blocks[0], second));
    give(2);
    went(warp_allocator_trim(cache, gpu(0), &bytes));
    give(0);
    drop_stream(&first);
    third = stream_if_any();
    take(4, cache, 2000, third); /* taken over */
    take(5, cache, 50 * MIB, third);
    take(6, cache, 40 * MIB, second); /* beyond the limit while that lives */
    give(5);
    take(5, cache, 40 * MIB, second);
    give(3);
    drop_stream(&third);
    went(warp_allocator_caching_measure(cache, NULL, &info));
    CHECK_EQ_U64(info.reserved_bytes, info.used_bytes + info.free_bytes);
    CHECK(info.reserved_bytes <= 64 * MIB);
    CHECK_STATUS(warp_allocator_release(cache), WARP_SUCCESS);
    give(4);
    give(5);
    give(6);
    drop_stream(&second);
    return told;
}

static void clear_up(void)
{
    int i, round;
    for (i = 0; i < BLOCKS; ++i) {
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
        blocks[i] = NULL;
    }
    for (round = 0; round < 2; ++round)
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
}

static void sweep(warp_memory_kind kind)
{
    uint64_t met = 0, live;
    size_t e, c;
    start_on("h200x2");
    below = builtin(kind);
    play(0);
    clear_up();
    play(MIB);
    clear_up();
    live = SIMULATOR(warpsim_live_count)("default");
    for (e = 0; e < ENTRIES; e += check_under("valgrind") ? kind == WARP_MEMORY_CUDA_MANAGED ? 11 : 2 : 1) {
        uint64_t keep = e % 2 ? MIB : 0, before = calls(entries[e]), count, nth, step;
        int usual = play(keep);
        clear_up();
        count = calls(entries[e]) - before;
        /* Many calls are of the same places. */
        step = 1 + count / (check_under("valgrind") || check_under("sanitizer") ? 2 : 6);
        for (nth = 1; nth <= count; nth += step)
            for (c = step > 1 ? CODES - 1 : 0; c < CODES; ++c) {
                int failures = check_failure_count();
                SIMULATOR(warpsim_log_clear)();
                SIMULATOR(warpsim_fail)(entries[e], nth, codes[c]);
                play(keep);
                met += (uint64_t)SIMULATOR(warpsim_log_contains)("planned");
                SIMULATOR(warpsim_fail_clear)();
                SIMULATOR(cuCtxSetCurrent)(NULL);
                set_thread_mode(0);
                clear_up();
                CHECK_EQ_U64(live_of(below), 0);
                CHECK_EQ_U64(statistics_of(gpu(0), 0).live_blocks, 0);
                CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
                CHECK_EQ_I64(play(keep), usual);
                clear_up();
                CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), live);
                CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
                if (check_failure_count() != failures)
                    printf("\n      call %" PRIu64 " of %s answered %u", nth, entries[e], codes[c]);
                if (check_failure_count() > 20)
                    return;
            }
    }
    CHECK(met > 20 || check_under("valgrind"));
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(every_call_of_the_driver_fails_under_a_cache_of_plain_memory)
{
    sweep(WARP_MEMORY_CUDA_DEVICE);
}

PROCESS_TEST(every_call_of_the_driver_fails_under_a_cache_of_a_pool)
{
    sweep(WARP_MEMORY_CUDA_MEMPOOL);
}

PROCESS_TEST(every_call_of_the_driver_fails_under_a_cache_of_managed_memory)
{
    sweep(WARP_MEMORY_CUDA_MANAGED);
}

/* What does not go back when a cache ends is nobody's, and surely not the next cache's. */
PROCESS_TEST(what_cannot_go_back_at_the_end_comes_to_no_other_cache)
{
    static struct recorder r[2];
    static const warp_status answers[] = {WARP_ERROR_DRIVER, WARP_ERROR_BUSY, WARP_ERROR_OUT_OF_MEMORY, WARP_ERROR_DEVICE_LOST,
                                          WARP_ERROR_INVALID_ARGUMENT};
    size_t i;
    int way;
    start_on("h200x2");
    for (i = 0; i < sizeof answers / sizeof *answers; ++i)
        for (way = 0; way < 4; ++way) {
            warp_allocator *cache = NULL, *next = NULL;
            warp_caching_options options = {.struct_size = sizeof options, .keep = way & 1 ? 64 * MIB : 0};
            void *a, *b;
            memset(r, 0, sizeof r);
            r[0].flags = r[1].flags = way & 2 ? WARP_ALLOCATOR_STREAM_ORDERED : 0;
            CHECK_STATUS(warp_allocator_create_caching(created(&r[0], WARP_MEMORY_CUDA_DEVICE), &options, &cache), WARP_SUCCESS);
            CHECK_STATUS(warp_allocator_create_caching(created(&r[1], WARP_MEMORY_CUDA_DEVICE), &options, &next), WARP_SUCCESS);
            a = block_by(gpu(0), cache, 1000, NULL);
            CHECK_STATUS(warp_free(a), WARP_SUCCESS);
            r[0].deallocate_status = answers[i];
            CHECK_STATUS(warp_allocator_release(cache), WARP_SUCCESS);
            b = block_by(gpu(0), next, 1000, NULL);
            CHECK_EQ_U64(r[1].outs, 1);
            CHECK_EQ_U64(r[1].allocates, 1);
            CHECK_STATUS(warp_free(b), WARP_SUCCESS);
            CHECK_STATUS(warp_allocator_release(next), WARP_SUCCESS);
            CHECK_EVEN(&r[1]);
            CHECK_EQ_U64(r[0].wrong, 0);
            let_go(&r[0]);
            let_go(&r[1]);
            CHECK_EQ_U64(COUNT_OF(r[0].destroys), 1);
            CHECK_EQ_U64(COUNT_OF(r[1].destroys), 1);
            if (check_failure_count() != 0) {
                printf("\n    (answer %zu, way %d)", i, way);
                return;
            }
        }
}

CHECK_MAIN()
