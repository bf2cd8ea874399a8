/*
 * Every call of the driver that allocating, filling, copying and freeing make fails once, with each kind of code: nothing
 * crashes or hangs, a failure is told, what was not freed can be freed again, the caller's context is as before, nothing
 * is lost, and the next time all goes well.
 */
/* topology: h200x2 */
/* needs: simulator */
#define _POSIX_C_SOURCE 200809L
#include "blocks.h"

static const uint32_t codes[] = {1, 2, 201, 709, 719, 999};
#define CODES (sizeof codes / sizeof *codes)

static const char *const entries[] = {
    "cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing", "cuMemAlloc_v2",
    "cuMemAllocFromPoolAsync", "cuMemAllocManaged", "cuMemHostAlloc", "cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost",
    "cuMemcpyAsync", "cuMemcpyPeerAsync", "cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async", "cuStreamQuery",
    "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuStreamWaitEvent", "cuStreamSynchronize", "cuPointerGetAttributes",
    "cuStreamCreateWithPriority", "cuStreamDestroy_v2", "cuStreamGetId", "cuCtxGetStreamPriorityRange", "cuDevicePrimaryCtxGetState",
    "cuStreamGetCtx", "cuStreamGetFlags", "cuStreamGetPriority", "cuCtxSynchronize", "cuMemGetInfo_v2", "cuMemPoolTrimTo",
    "cuMemPoolGetAttribute", "cuDeviceGraphMemTrim"};
#define ENTRIES (sizeof entries / sizeof *entries)

/* Whether the entry point is one whose failure must be told by the call that met it: nothing else can do its work. */
static int does_the_work(const char *entry)
{
    static const char *const names[] = {"cuMemcpyAsync", "cuMemcpyPeerAsync", "cuMemsetD8Async", "cuMemsetD16Async",
                                        "cuMemsetD32Async", "cuStreamSynchronize"};
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; ++i)
        if (strcmp(entry, names[i]) == 0)
            return 1;
    return 0;
}

#define BLOCKS 8
#define SIZE 3000

struct scenario {
    void *blocks[BLOCKS];
    int told; /* calls that said that they failed */
};

static warp_device *first_gpu, *second_gpu, *host;

static int told(struct scenario *scenario, warp_status status)
{
    if (status != WARP_SUCCESS) {
        ++scenario->told;
        /* In words, too. */
        CHECK(warp_error_get_message()[0] != '\0');
    }
    return status == WARP_SUCCESS;
}

static void take(struct scenario *scenario, int index, warp_device *device, warp_memory_kind kind, warp_stream *stream)
{
    warp_alloc_options options = options_of(kind, stream);
    void *ptr = (void *)(uintptr_t)1;
    if (index == 3)
        options.alignment = 4096;
    if (!told(scenario, warp_alloc_with(device, SIZE, &options, &ptr)))
        CHECK_EQ_PTR(ptr, NULL);
    scenario->blocks[index] = ptr;
}

static void give(struct scenario *scenario, int index)
{
    void *ptr = scenario->blocks[index];
    if (told(scenario, warp_free(ptr)))
        scenario->blocks[index] = NULL;
    else
        CHECK_EQ_I64(pointer_info(ptr).is_owned, 1); /* nothing was freed */
}

/* Everything once. What fails is told and left out; what was not freed stays in the list. */
static void play(struct scenario *scenario)
{
    unsigned char bytes[SIZE], got[SIZE];
    warp_stream *stream = NULL, *other = NULL;
    warp_pointer_info info;
    int i, all = 1;
    memset(scenario, 0, sizeof *scenario);
    write_pattern(bytes, SIZE, 1);
    memset(got, 0, SIZE);
    told(scenario, warp_stream_create(first_gpu, NULL, &stream));
    told(scenario, warp_stream_create(second_gpu, NULL, &other));
    take(scenario, 0, first_gpu, WARP_MEMORY_CUDA_MEMPOOL, stream);
    take(scenario, 1, first_gpu, WARP_MEMORY_CUDA_DEVICE, stream);
    take(scenario, 2, first_gpu, WARP_MEMORY_CUDA_MANAGED, NULL);
    take(scenario, 3, second_gpu, WARP_MEMORY_CUDA_MEMPOOL, other);
    take(scenario, 4, host, WARP_MEMORY_PINNED, NULL);
    take(scenario, 5, host, WARP_MEMORY_HOST, NULL);
    take(scenario, 6, first_gpu, WARP_MEMORY_CUDA_MEMPOOL, stream);
    take(scenario, 7, second_gpu, WARP_MEMORY_CUDA_DEVICE, NULL);
    for (i = 0; i < BLOCKS; ++i)
        all &= scenario->blocks[i] != NULL;
    if (all && stream != NULL && other != NULL) {
        void **b = scenario->blocks;
        int before = scenario->told;
        memset(&info, 0, sizeof info);
        info.struct_size = sizeof info;
        told(scenario, warp_pointer_get_info(&info, &info));
        told(scenario, warp_memory_fill(b[0], 10, "a", 1, stream));
        told(scenario, warp_memory_fill(b[0], 10, "ab", 2, stream));
        told(scenario, warp_memory_fill(b[0], 12, "abcd", 4, stream));
        told(scenario, warp_memory_fill(b[0], 30, "abc", 3, stream));
        told(scenario, warp_memory_copy(b[1], bytes, SIZE, stream));
        told(scenario, warp_memory_copy(b[2], b[1], SIZE, stream));
        told(scenario, warp_memory_copy(b[3], b[1], SIZE, stream)); /* to the other GPU */
        told(scenario, warp_stream_synchronize(stream));
        told(scenario, warp_memory_copy(b[4], b[3], SIZE, other));
        told(scenario, warp_stream_synchronize(other));
        told(scenario, warp_memory_copy(b[5], b[4], SIZE, NULL));
        told(scenario, warp_memory_copy(got, b[5], SIZE, NULL));
        if (scenario->told == before)
            CHECK_EQ_U64(pattern_ends(got, SIZE, 1), SIZE);
        told(scenario, warp_pointer_record_stream(b[6], other));
        told(scenario, warp_pointer_record_stream(b[2], other));
        told(scenario, warp_pointer_record_stream(b[4], other));
        SIMULATOR(warpsim_hold)(native_stream(other));
        told(scenario, warp_memory_copy(b[3], b[4], SIZE, other));
    }
    for (i = BLOCKS; i-- > 0;)
        if (scenario->blocks[i] != NULL)
            give(scenario, i);
    SIMULATOR(warpsim_release_all)();
    if (stream != NULL)
        told(scenario, warp_stream_release(stream));
    if (other != NULL)
        told(scenario, warp_stream_release(other));
    /* Calls that look at what is parked. */
    stream = other = NULL;
    if (told(scenario, warp_stream_get_current(second_gpu, &other)))
        told(scenario, warp_stream_synchronize(other));
    if (told(scenario, warp_stream_get_current(first_gpu, &stream)))
        told(scenario, warp_stream_synchronize(stream));
}

static void free_the_rest(struct scenario *scenario)
{
    int i;
    for (i = 0; i < BLOCKS; ++i)
        if (scenario->blocks[i] != NULL)
            CHECK_STATUS(warp_free(scenario->blocks[i]), WARP_SUCCESS);
}

static void find_devices(void)
{
    first_gpu = gpu(0);
    second_gpu = gpu(1);
    host = cpu();
}

static int log_errors;
static uint64_t due; /* failures that were met */

static void note_errors(void *user, warp_log_level level, const char *message)
{
    (void)user, (void)message;
    if (level == WARP_LOG_ERROR)
        ++log_errors;
}

/* Native memory that is alive: for it to be lost, somebody must have been told. */
static size_t native_blocks(void)
{
    return SIMULATOR(warpsim_live_count)("default") + SIMULATOR(warpsim_live_count)("pool") + SIMULATOR(warpsim_live_count)("pinned") +
           SIMULATOR(warpsim_live_count)("managed");
}

static uint64_t library_blocks(void)
{
    return statistics_of(first_gpu, 0).live_blocks + statistics_of(second_gpu, 0).live_blocks +
           statistics_of(host, 0).live_blocks;
}

static void fail_once(const char *entry, uint64_t nth, uint32_t code, CUcontext current)
{
    struct scenario scenario;
    int failures = check_failure_count(), was_due, logged = log_errors;
    uint64_t lines;
    size_t native;
    SIMULATOR(cuCtxSetCurrent)(current);
    SIMULATOR(warpsim_log_clear)();
    SIMULATOR(warpsim_fail)(entry, nth, code);
    play(&scenario);
    lines = SIMULATOR(warpsim_log_total)();
    was_due = lines != 0 && SIMULATOR(warpsim_log_contains)("planned");
    SIMULATOR(warpsim_fail_clear)();
    due += (uint64_t)was_due;
    if (was_due && does_the_work(entry))
        CHECK(scenario.told != 0);
    if (strcmp(entry, "cuCtxSetCurrent") != 0) /* a context that cannot be restored is not */
        CHECK_EQ_PTR(driver_current(), current);
    SIMULATOR(cuCtxSetCurrent)(current);
    free_the_rest(&scenario);
    CHECK_STATUS(warp_device_synchronize(first_gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(second_gpu), WARP_SUCCESS);
    CHECK_EQ_U64(library_blocks(), 0);
    native = native_blocks();
    /* A free that is made later has nobody to tell but the log. */
    CHECK(native == 0 || log_errors != logged);
    play(&scenario);
    CHECK_EQ_I64(scenario.told, 0);
    free_the_rest(&scenario);
    CHECK_STATUS(warp_device_synchronize(first_gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(second_gpu), WARP_SUCCESS);
    CHECK_EQ_U64(native_blocks(), native);
    CHECK_EQ_U64(library_blocks(), 0);
    if (check_failure_count() != failures) {
        size_t i;
        char line[300];
        printf("\n      call %" PRIu64 " of %s answered %u", nth, entry, code);
        if (getenv("CHECK_VERBOSE") != NULL)
            for (i = 0; i < SIMULATOR(warpsim_log_count)(); ++i) {
                SIMULATOR(warpsim_log_get)(i, line, sizeof line);
                printf("\n        %s", line);
            }
    }
}

TEST(every_call_fails_once_with_every_kind_of_code)
{
    struct scenario scenario;
    uint64_t counts[ENTRIES], before[ENTRIES], nth, runs = 0;
    size_t e, c;
    CUcontext contexts[3];
    REQUIRE(start());
    CHECK_STATUS(warp_log_set_callback(note_errors, NULL, WARP_LOG_ERROR), WARP_SUCCESS);
    find_devices();
    contexts[0] = NULL;
    contexts[1] = context_of(first_gpu);
    contexts[2] = context_of(second_gpu);
    play(&scenario); /* makes what is made once */
    CHECK_EQ_I64(scenario.told, 0);
    for (e = 0; e < ENTRIES; ++e)
        before[e] = calls(entries[e]);
    play(&scenario);
    REQUIRE(scenario.told == 0);
    for (e = 0; e < ENTRIES; ++e)
        counts[e] = calls(entries[e]) - before[e];
    CHECK_EQ_U64(native_blocks(), 0);
    for (e = 0; e < ENTRIES; ++e)
        for (nth = 1; nth <= counts[e] && nth <= 60; ++nth)
            for (c = check_under("valgrind") ? CODES - 1 : 0; c < CODES; ++c) {
                size_t left = native_blocks();
                fail_once(entries[e], nth, codes[c], contexts[runs++ % 3]);
                if (native_blocks() != left || check_failure_count() > 30)
                    return;
            }
    SIMULATOR(cuCtxSetCurrent)(NULL);
    CHECK(runs > 200);
    CHECK(due > runs * 9 / 10); /* how often a context is switched depends on the one that is current */
    CHECK_NOTHING_LEFT();
}

/* Only at the beginning: the first use of everything. */
TEST(the_first_uses_fail)
{
    static const char *const firsts[] = {"cuDevicePrimaryCtxRetain", "cuCtxGetId", "cuDeviceGetMemPool", "cuDeviceGetDefaultMemPool",
                                         "cuStreamCreateWithPriority", "cuStreamGetId", "cuCtxSetCurrent", "cuEventCreate"};
    size_t e, c;
    uint64_t nth;
    for (e = 0; e < sizeof firsts / sizeof *firsts; ++e)
        for (c = check_under("valgrind") ? CODES - 1 : 0; c < CODES; ++c)
            for (nth = 1; nth <= 2; ++nth) {
                struct scenario scenario;
                size_t left = native_blocks();
                int failures = check_failure_count();
                SIMULATOR(cuCtxSetCurrent)(NULL);
                CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
                REQUIRE(start());
                find_devices();
                SIMULATOR(warpsim_fail)(firsts[e], nth, codes[c]);
                play(&scenario);
                SIMULATOR(warpsim_fail_clear)();
                if (strcmp(firsts[e], "cuCtxSetCurrent") != 0)
                    CHECK_EQ_PTR(driver_current(), NULL);
                SIMULATOR(cuCtxSetCurrent)(NULL);
                find_devices(); /* a device that was taken for lost has a successor */
                free_the_rest(&scenario);
                CHECK_STATUS(warp_device_synchronize(first_gpu), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(second_gpu), WARP_SUCCESS);
                CHECK_EQ_U64(library_blocks(), 0);
                if (strcmp(firsts[e], "cuCtxGetId") != 0)
                    CHECK_EQ_U64(native_blocks(), left);
                play(&scenario);
                CHECK_EQ_I64(scenario.told, 0);
                free_the_rest(&scenario);
                if (check_failure_count() != failures)
                    printf("\n      call %" PRIu64 " of %s answered %u", nth, firsts[e], codes[c]);
                if (check_failure_count() > 30)
                    return;
            }
}

CHECK_MAIN()
