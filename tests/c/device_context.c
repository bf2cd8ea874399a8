/*
 * device_context.c: the caller's current context, which no call changes, whatever the driver answers.
 *
 * valgrind: slow (a process for each call that fails; driver_failures.c has all of them fail in one)
 * needs: simulator
 */
#define _GNU_SOURCE

#include "devices.h"
#include "driver.h"
#include "process.h"

#include <warpmem.h>

/* Every call of the chapters, good and bad, with the context that was current before and after. */
static void make_all_calls(warp_device *gpu)
{
    warp_device *found = NULL;
    warp_stream *stream = NULL, *wrapped = NULL, *current = NULL, *untracked = NULL;
    warp_event *event = NULL, *other = NULL;
    warp_scope *scope = NULL;
    warp_stream_options unsure = {.struct_size = sizeof unsure, .flags = WARP_STREAM_UNTRACKED};
    warp_event_options timing = {.struct_size = sizeof timing, .flags = WARP_EVENT_TIMING};
    warp_event_info event_info = {.struct_size = sizeof event_info};
    float milliseconds;
    warp_stream_info stream_info = {.struct_size = sizeof stream_info};
    warp_device_info info = {.struct_size = sizeof info};
    warp_alloc_options options = {.struct_size = sizeof options};
    warp_stream_options bad = {.struct_size = sizeof bad, .priority = 1000};
    warp_pointer_info where = {.struct_size = sizeof where};
    uint64_t available, total;
    void *context = NULL, *block = NULL;
    static const warp_memory_kind kinds[] = {WARP_MEMORY_UNKNOWN, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL,
                                             WARP_MEMORY_CUDA_MANAGED, WARP_MEMORY_PINNED};
    char pattern = 1;
    uint8_t idle;
    size_t i;
    CUcontext before = driver_current();
#define SAME(call)                                     \
    do {                                               \
        (void)(call);                                  \
        CHECK_EQ_PTR(driver_current(), before);     \
    } while (0)
    SAME(warp_device_get("cuda", &found));
    SAME(warp_device_get("cuda:1", &found));
    SAME(warp_device_get("cuda:9", &found));
    SAME(warp_device_get_default(&found));
    SAME(warp_device_get_info(gpu, &info));
    SAME(warp_device_query_memory(gpu, &available, &total));
    SAME(warp_device_get_native_context(gpu, &context));
    SAME(warp_device_from_context(context, NULL, &found));
    SAME(warp_device_synchronize(gpu));
    SAME(warp_stream_create(gpu, &bad, &stream));
    SAME(warp_stream_create(gpu, NULL, &stream));
    SAME(warp_stream_wrap(gpu, (void *)1, &wrapped));
    SAME(warp_stream_get_info(wrapped, &stream_info));
    SAME(warp_stream_query_idle(wrapped, &idle));
    SAME(warp_stream_synchronize(wrapped));
    SAME(warp_stream_get_current(gpu, &current));
    SAME(warp_stream_set_current(gpu, stream));
    SAME(warp_stream_synchronize(NULL));
    SAME(warp_stream_wrap_with(gpu, (void *)1, &unsure, &untracked));
    SAME(warp_event_create(gpu, &timing, &event));
    SAME(warp_event_wrap(gpu, (void *)64, &other));
    SAME(warp_event_release(other));
    SAME(warp_event_create(gpu, &timing, &other));
    SAME(warp_event_get_info(event, &event_info));
    SAME(warp_event_record(event, wrapped));
    SAME(warp_event_record(other, NULL));
    SAME(warp_event_query_done(event, &idle));
    SAME(warp_stream_wait_event(stream, event));
    SAME(warp_stream_wait_event(wrapped, event));
    SAME(warp_stream_wait_event(NULL, event));
    SAME(warp_stream_wait_stream(stream, wrapped));
    SAME(warp_stream_wait_stream(NULL, stream));
    SAME(warp_event_synchronize(event));
    SAME(warp_event_synchronize(other));
    SAME(warp_event_measure_elapsed(event, other, &milliseconds));
    SAME(warp_event_release(event));
    SAME(warp_event_release(other));
    SAME(warp_scope_begin_device(gpu, &scope));
    SAME(warp_scope_end(scope));
    SAME(warp_scope_begin_stream(gpu, stream, &scope));
    SAME(warp_scope_end(scope));
    for (i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        warp_device *of = gpu;
        options.kind = kinds[i];
        if (kinds[i] == WARP_MEMORY_PINNED)
            SAME(warp_device_get("cpu", &of));
        SAME(warp_alloc_with(of, UINT64_C(1) << 50, &options, &block));
        block = NULL;
        SAME(warp_alloc_with(of, 4096, &options, &block));
        SAME(warp_memory_fill(block, 4096, &pattern, 1, NULL));
        SAME(warp_memory_fill(block, 4096, &pattern, 1, wrapped));
        SAME(warp_memory_copy(block, (char *)block + 64, 64, stream));
        SAME(warp_pointer_get_info(block, &where));
        SAME(warp_pointer_record_stream(block, wrapped));
        SAME(warp_pointer_record_stream(block, untracked));
        SAME(warp_free(block));
    }
    SAME(warp_stream_set_current(gpu, NULL));
    SAME(warp_stream_release(wrapped));
    SAME(warp_stream_release(untracked));
    SAME(warp_stream_release(stream));
    SAME(warp_stream_release(current));
}

PROCESS_TEST(the_callers_context_is_the_same_after_every_call)
{
    CUcontext zero;
    start_on("h200x2,memory=1GiB");
    make_all_calls(device("cuda:1"));
    zero = driver_primary(0);
    CHECK(SIMULATOR(cuCtxSetCurrent)(zero) == 0);
    make_all_calls(device("cuda:1"));
    CHECK(SIMULATOR(cuCtxSetCurrent)(driver_primary(1)) == 0);
    make_all_calls(device("cuda:1"));
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

/* Each call of the driver that the library makes fails once, in turn: no crash, no changed context. */
static void check_with_failures(const char *entry, uint32_t code)
{
    CUcontext zero;
    uint64_t nth, calls = 1;
    start_on("h200x2,memory=1GiB");
    zero = driver_primary(0);
    CHECK(SIMULATOR(cuCtxSetCurrent)(zero) == 0);
    /* As often as it is called; of what is called all the time, the beginning. */
    for (nth = 1; nth <= calls && nth <= 24; ++nth) {
        warp_device *gpu = NULL;
        SIMULATOR(warpsim_fail)(entry, nth, code);
        calls = SIMULATOR(warpsim_call_count)(entry);
        if (warp_device_get("cuda:1", &gpu) == WARP_SUCCESS)
            make_all_calls(gpu);
        calls = SIMULATOR(warpsim_call_count)(entry) - calls;
        SIMULATOR(warpsim_fail_clear)();
        /* Whatever failed, the next call works. */
        {
            void *block = NULL;
            gpu = device("cuda:1");
            CHECK_STATUS(warp_alloc(gpu, 1000, &block), WARP_SUCCESS);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        }
    }
}

#define FAILURE_TEST(entry)                                                                   \
    PROCESS_TEST(failures_of_##entry) { check_with_failures(#entry, 999); }
FAILURE_TEST(cuDevicePrimaryCtxRetain)
FAILURE_TEST(cuCtxGetId)
FAILURE_TEST(cuCtxGetDevice)
FAILURE_TEST(cuStreamCreateWithPriority)
FAILURE_TEST(cuStreamGetId)
FAILURE_TEST(cuStreamGetCtx)
FAILURE_TEST(cuStreamIsCapturing)
FAILURE_TEST(cuThreadExchangeStreamCaptureMode)
FAILURE_TEST(cuMemAllocFromPoolAsync)
FAILURE_TEST(cuMemAlloc_v2)
FAILURE_TEST(cuMemAllocManaged)
FAILURE_TEST(cuMemHostAlloc)
FAILURE_TEST(cuEventCreate)
FAILURE_TEST(cuEventRecord)
FAILURE_TEST(cuEventSynchronize)
FAILURE_TEST(cuEventElapsedTime_v2)
FAILURE_TEST(cuEventDestroy_v2)
FAILURE_TEST(cuStreamWaitEvent)
FAILURE_TEST(cuCtxRecordEvent)
FAILURE_TEST(cuStreamQuery)
FAILURE_TEST(cuMemGetInfo_v2)
FAILURE_TEST(cuDeviceGetMemPool)

PROCESS_TEST(a_failed_switch_of_contexts_allocates_nothing)
{
    warp_alloc_options plain = {.struct_size = sizeof plain, .kind = WARP_MEMORY_CUDA_DEVICE};
    void *block = (void *)1, *live = NULL;
    CUcontext zero;
    start_on("h200x2");
    zero = driver_primary(0);
    CHECK(SIMULATOR(cuCtxSetCurrent)(zero) == 0);
    CHECK_STATUS(warp_alloc_with(device("cuda:1"), 1000, &plain, &live), WARP_SUCCESS);
    SIMULATOR(warpsim_fail)("cuCtxSetCurrent", 1, 999);
    CHECK_STATUS(warp_alloc_with(device("cuda:1"), 1000, &plain, &block), WARP_ERROR_DRIVER);
    CHECK_EQ_PTR(block, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "cuCtxSetCurrent");
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 1);
    CHECK_EQ_PTR(driver_current(), zero);
    SIMULATOR(warpsim_fail)("cuCtxGetCurrent", 1, 999);
    CHECK_STATUS(warp_alloc_with(device("cuda:1"), 1000, &plain, &block), WARP_ERROR_DRIVER);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 1);
    /* A free that cannot switch frees nothing, and says so; the block is not lost. */
    SIMULATOR(warpsim_fail)("cuCtxSetCurrent", 1, 999);
    CHECK_STATUS(warp_free(live), WARP_ERROR_DRIVER);
    CHECK_EQ_PTR(driver_current(), zero);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 1);
    CHECK_STATUS(warp_free(live), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 0);
}

PROCESS_TEST(a_free_that_the_driver_refuses_keeps_the_block)
{
    void *block = NULL;
    warp_pointer_info where = {.struct_size = sizeof where};
    start_on("h200x2");
    CHECK_STATUS(warp_alloc(device("cuda:1"), 1000, &block), WARP_SUCCESS);
    SIMULATOR(warpsim_fail)("cuMemFreeAsync", 1, 999);
    CHECK_STATUS(warp_free(block), WARP_ERROR_DRIVER);
    CHECK_STATUS(warp_pointer_get_info(block, &where), WARP_SUCCESS);
    CHECK_EQ_U64(where.is_owned, 1);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

/* Blocks of four GPUs are freed while another one is current. */
PROCESS_TEST(frees_go_to_the_blocks_own_gpu)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL,
                                             WARP_MEMORY_CUDA_MANAGED};
    void *blocks[4][3] = {{NULL}};
    CUcontext three;
    size_t gpu, kind;
    start_on("h200x2,gpus=4");
    for (gpu = 0; gpu < 4; ++gpu)
        for (kind = 0; kind < 3; ++kind) {
            char name[16];
            warp_alloc_options options = {.struct_size = sizeof options, .kind = kinds[kind]};
            snprintf(name, sizeof name, "cuda:%zu", gpu);
            CHECK_STATUS(warp_alloc_with(device(name), 1 << 20, &options, &blocks[gpu][kind]), WARP_SUCCESS);
        }
    three = driver_primary(3);
    CHECK(SIMULATOR(cuCtxSetCurrent)(three) == 0);
    for (gpu = 0; gpu < 4; ++gpu)
        for (kind = 0; kind < 3; ++kind)
            CHECK_STATUS(warp_free(blocks[gpu][kind]), WARP_SUCCESS);
    CHECK_EQ_PTR(driver_current(), three);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

CHECK_MAIN()
