/*
 * stream.c: streams of the library and of others, the current one, what is pending, and blocks that outlive their stream.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "devices.h"
#include "driver.h"
#include "process.h"

#include <pthread.h>
#include <warpmem.h>

static warp_stream *create(warp_device *on, uint32_t flags)
{
    warp_stream_options options = {.struct_size = sizeof options, .flags = flags};
    warp_stream *stream = NULL;
    CHECK_STATUS(warp_stream_create(on, &options, &stream), WARP_SUCCESS);
    return stream;
}

static warp_stream *current(warp_device *of)
{
    warp_stream *stream = NULL;
    CHECK_STATUS(warp_stream_get_current(of, &stream), WARP_SUCCESS);
    return stream;
}

static warp_stream_info info_of(warp_stream *of)
{
    warp_stream_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_stream_get_info(of, &info), WARP_SUCCESS);
    return info;
}

static uint64_t native_of(warp_stream *of)
{
    return (uint64_t)(uintptr_t)info_of(of).native;
}

static int idle(warp_stream *of)
{
    uint8_t answer = 9;
    CHECK_STATUS(warp_stream_query_idle(of, &answer), WARP_SUCCESS);
    return answer;
}

static void *alloc_on(warp_device *on, warp_stream *stream, warp_memory_kind kind)
{
    warp_alloc_options options = {.struct_size = sizeof options, .stream = stream, .kind = kind};
    void *block = NULL;
    CHECK_STATUS(warp_alloc_with(on, 4096, &options, &block), WARP_SUCCESS);
    return block;
}

/* Nothing live, nothing that a real machine would punish. */
static void check_clean(void)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

/* ---- Making ------------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(a_stream_is_what_was_asked_for)
{
    warp_stream_options options = {.struct_size = sizeof options};
    warp_stream *stream = NULL;
    warp_stream_info info;
    unsigned long long id = 0;
    int32_t priority;
    start_on("h200x2");
    CHECK_STATUS(warp_stream_create(device("cuda:1"), NULL, &stream), WARP_SUCCESS);
    info = info_of(stream);
    CHECK_EQ_PTR(info.device, device("cuda:1"));
    CHECK_EQ_U64(info.is_owned, 1);
    CHECK_EQ_U64(info.is_non_blocking, 0);
    CHECK_EQ_I64(info.priority, 0);
    CHECK(info.native != NULL && (uintptr_t)info.native > 2);
    CHECK_EQ_U64(SIMULATOR(cuStreamGetId)(info.native, &id), 0);
    CHECK_EQ_U64(info.id, id);
    CHECK_EQ_U64(info_of(create(device("cuda:1"), WARP_STREAM_NON_BLOCKING)).is_non_blocking, 1);
    for (priority = -5; priority <= 0; ++priority) {
        options.priority = priority;
        CHECK_STATUS(warp_stream_create(device("cuda:0"), &options, &stream), WARP_SUCCESS);
        CHECK_EQ_I64(info_of(stream).priority, priority);
    }
    {
        static const int32_t bad[] = {-6, 1, 1000, INT32_MIN, INT32_MAX};
        size_t i, before = SIMULATOR(warpsim_live_count)("stream");
        for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
            options.priority = bad[i];
            stream = (warp_stream *)1;
            CHECK_STATUS(warp_stream_create(device("cuda:0"), &options, &stream), WARP_ERROR_INVALID_ARGUMENT);
            CHECK_EQ_PTR(stream, NULL);
            CHECK_STR_CONTAINS(warp_error_get_message(), "-5");
        }
        options.priority = 0;
        options.flags = 2;
        CHECK_STATUS(warp_stream_create(device("cuda:0"), &options, &stream), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("stream"), before);
    }
    CHECK_STATUS(warp_stream_create(device("cpu"), NULL, &stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cpu\"");
    CHECK_STATUS(warp_stream_create(NULL, NULL, &stream), WARP_SUCCESS);
    CHECK_EQ_PTR(info_of(stream).device, device("cuda:0"));
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(ids_never_repeat_though_the_drivers_handles_do)
{
    uint64_t last = 0, first_native = 0;
    int i, repeated = 0;
    start_on("h200x2");
    for (i = 0; i < 300; ++i) {
        warp_stream *stream = create(device("cuda:0"), 0);
        warp_stream_info info = info_of(stream);
        CHECK(info.id > last);
        last = info.id;
        if (i == 0)
            first_native = (uint64_t)(uintptr_t)info.native;
        else
            repeated += (uint64_t)(uintptr_t)info.native == first_native;
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_get_info(stream, &info), WARP_ERROR_INVALID_HANDLE);
    }
    CHECK(repeated > 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("stream"), 0);
}

/* ---- Wrapping ------------------------------------------------------------------------------------------------------------ */

PROCESS_TEST(a_stream_of_others_is_named_and_not_destroyed)
{
    CUstream native = NULL;
    warp_stream *stream = NULL, *again = NULL;
    warp_stream_info info;
    start_on("h200x2");
    SIMULATOR(cuCtxSetCurrent)(driver_primary(1));
    REQUIRE(SIMULATOR(cuStreamCreate)(&native, 1) == 0);
    SIMULATOR(cuCtxSetCurrent)(NULL);
    CHECK_STATUS(warp_stream_wrap(device("cuda:1"), native, &stream), WARP_SUCCESS);
    info = info_of(stream);
    CHECK_EQ_PTR(info.native, native);
    CHECK_EQ_U64(info.is_owned, 0);
    CHECK_EQ_U64(info.is_non_blocking, 1);
    CHECK_EQ_PTR(info.device, device("cuda:1"));
    CHECK_STATUS(warp_stream_wrap(device("cuda:1"), native, &again), WARP_SUCCESS);
    CHECK(again != stream);
    CHECK_EQ_U64(info_of(again).id, info.id);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK(idle(again));
    CHECK_STATUS(warp_stream_release(again), WARP_SUCCESS);
    /* Still there, its owner's. */
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    check_clean();
}

PROCESS_TEST(a_stream_of_another_device_or_context_is_refused)
{
    CUstream native = NULL, foreign = NULL;
    CUcontext context;
    warp_stream *stream = (warp_stream *)1;
    warp_device *mine = NULL;
    start_on("h200x2");
    SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
    REQUIRE(SIMULATOR(cuStreamCreate)(&native, 0) == 0);
    context = driver_foreign(1);
    SIMULATOR(cuCtxSetCurrent)(context);
    REQUIRE(SIMULATOR(cuStreamCreate)(&foreign, 0) == 0);
    SIMULATOR(cuCtxSetCurrent)(NULL);
    CHECK_STATUS(warp_stream_wrap(device("cuda:1"), native, &stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(stream, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:0\"");
    CHECK_STATUS(warp_stream_wrap(device("cuda:1"), foreign, &stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_device_from_context");
    CHECK_STATUS(warp_stream_wrap(device("cpu"), native, &stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_from_context(context, NULL, &mine), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wrap(mine, foreign, &stream), WARP_SUCCESS);
    CHECK_EQ_PTR(info_of(stream).device, mine);
    CHECK_STATUS(warp_stream_set_current(device("cuda:1"), stream), WARP_ERROR_INVALID_ARGUMENT);
}

PROCESS_TEST(the_special_streams_can_be_wrapped)
{
    static const uintptr_t natives[] = {0, 1, 2};
    size_t i;
    start_on("h200x2");
    /* Another GPU's context is current, and the special streams mean what is current. */
    SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
    for (i = 0; i < 3; ++i) {
        warp_stream *stream = NULL;
        void *blocks[3];
        warp_pointer_info where = {.struct_size = sizeof where};
        char byte = 5, seen = 0;
        CHECK_STATUS(warp_stream_wrap(device("cuda:1"), (void *)natives[i], &stream), WARP_SUCCESS);
        CHECK_EQ_U64((uintptr_t)info_of(stream).native, natives[i]);
        CHECK_EQ_U64(info_of(stream).is_owned, 0);
        CHECK_EQ_PTR(info_of(stream).device, device("cuda:1"));
        blocks[0] = alloc_on(device("cuda:1"), stream, WARP_MEMORY_CUDA_MEMPOOL);
        blocks[1] = alloc_on(device("cuda:1"), stream, WARP_MEMORY_CUDA_DEVICE);
        blocks[2] = alloc_on(device("cuda:1"), stream, WARP_MEMORY_CUDA_MANAGED);
        CHECK_STATUS(warp_pointer_get_info(blocks[0], &where), WARP_SUCCESS);
        CHECK_EQ_I64(where.ordinal, 1);
        CHECK_STATUS(warp_memory_fill(blocks[0], 4096, &byte, 1, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(&seen, blocks[0], 1, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_I64(seen, 5);
        CHECK(idle(stream));
        CHECK_STATUS(warp_free(blocks[0]), WARP_SUCCESS);
        CHECK_STATUS(warp_free(blocks[1]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(blocks[2]), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_SUCCESS);
    SIMULATOR(cuCtxSetCurrent)(NULL);
    check_clean();
}

/* ---- The current stream ---------------------------------------------------------------------------------------------------- */

static void *see_default(void *expected)
{
    CHECK_EQ_PTR(current(device("cuda:1")), expected);
    return NULL;
}

PROCESS_TEST(a_device_has_one_default_stream_and_a_thread_its_own_choice)
{
    warp_stream *standard, *mine;
    pthread_t thread;
    start_on("h200x2");
    standard = current(device("cuda:1"));
    CHECK_EQ_PTR(current(device("cuda:1")), standard);
    CHECK_EQ_U64(info_of(standard).is_owned, 1);
    CHECK_EQ_U64(info_of(standard).is_non_blocking, 0);
    CHECK_EQ_PTR(info_of(standard).device, device("cuda:1"));
    CHECK_STATUS(warp_stream_release(standard), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "default stream");
    mine = create(device("cuda:1"), 0);
    CHECK_STATUS(warp_stream_set_current(device("cuda:1"), mine), WARP_SUCCESS);
    CHECK_EQ_PTR(current(device("cuda:1")), mine);
    CHECK(current(device("cuda:0")) != mine);
    REQUIRE(pthread_create(&thread, NULL, see_default, standard) == 0);
    pthread_join(thread, NULL);
    CHECK_STATUS(warp_stream_set_current(device("cuda:1"), NULL), WARP_SUCCESS);
    CHECK_EQ_PTR(current(device("cuda:1")), standard);
    /* Released, it gives way to the default. */
    CHECK_STATUS(warp_stream_set_current(device("cuda:1"), mine), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(mine), WARP_SUCCESS);
    CHECK_EQ_PTR(current(device("cuda:1")), standard);
    CHECK_STATUS(warp_stream_set_current(device("cuda:1"), mine), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(current(device("cuda:1")), standard);
    CHECK_STATUS(warp_stream_set_current(device("cuda:1"), standard), WARP_SUCCESS);
    CHECK_EQ_PTR(current(device("cuda:1")), standard);
    CHECK_STATUS(warp_stream_release(NULL), WARP_SUCCESS);
}

PROCESS_TEST(a_call_that_names_no_stream_goes_to_the_current_one)
{
    warp_stream *mine;
    void *block;
    char byte = 1;
    start_on("h200x2");
    mine = create(device("cuda:1"), WARP_STREAM_NON_BLOCKING);
    CHECK_STATUS(warp_device_set_default(device("cuda:1")), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_set_current(NULL, mine), WARP_SUCCESS);
    CHECK(idle(NULL));
    block = alloc_on(device("cuda:1"), NULL, WARP_MEMORY_UNKNOWN);
    SIMULATOR(warpsim_hold)(native_of(mine));
    CHECK_STATUS(warp_memory_fill(block, 16, &byte, 1, NULL), WARP_SUCCESS);
    CHECK(!idle(mine));
    CHECK(!idle(NULL));
    SIMULATOR(warpsim_release)(native_of(mine));
    CHECK_STATUS(warp_stream_synchronize(NULL), WARP_SUCCESS);
    CHECK(idle(NULL));
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    check_clean();
}

PROCESS_TEST(a_default_stream_is_made_once_by_many_threads)
{
    pthread_t threads[8];
    warp_stream *standard;
    size_t i;
    start_on("h200x2");
    /* Whoever comes first makes it. */
    for (i = 0; i < 8; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, (void *(*)(void *))current, device("cuda:1")) == 0);
    standard = current(device("cuda:1"));
    for (i = 0; i < 8; ++i) {
        void *seen = NULL;
        pthread_join(threads[i], &seen);
        CHECK_EQ_PTR(seen, standard);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("stream"), 1);
}

PROCESS_TEST(the_cpu_has_one_stream_a_thread_and_it_is_always_done)
{
    warp_stream *standard;
    warp_stream_info info;
    void *block = NULL;
    char byte = 3;
    start_on("h200x2");
    standard = current(device("cpu"));
    info = info_of(standard);
    CHECK_EQ_PTR(info.device, device("cpu"));
    CHECK_EQ_PTR(info.native, NULL);
    CHECK(info.id != 0);
    CHECK(idle(standard));
    CHECK_STATUS(warp_stream_synchronize(standard), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(standard), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_stream_set_current(device("cuda:0"), standard), WARP_ERROR_INVALID_ARGUMENT);
    block = alloc_on(device("cpu"), standard, WARP_MEMORY_UNKNOWN);
    CHECK_STATUS(warp_memory_fill(block, 4096, &byte, 1, standard), WARP_SUCCESS);
    CHECK_EQ_I64(((char *)block)[4095], 3);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
}

/* ---- Ending while things are pending ---------------------------------------------------------------------------------------- */

PROCESS_TEST(work_goes_on_when_its_stream_is_released)
{
    warp_stream *stream;
    void *block;
    char byte = 6, seen = 0;
    start_on("h200x2");
    stream = create(device("cuda:0"), WARP_STREAM_NON_BLOCKING);
    block = alloc_on(device("cuda:0"), NULL, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    SIMULATOR(warpsim_hold)(native_of(stream));
    CHECK_STATUS(warp_memory_fill(block, 4096, &byte, 1, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_ERROR_INVALID_HANDLE);
    SIMULATOR(warpsim_release_all)();
    CHECK_EQ_U64(SIMULATOR(warpsim_peek)((uint64_t)(uintptr_t)block, &seen, 1), 0);
    CHECK_EQ_I64(seen, 6);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    check_clean();
}

/* A block is freed after its stream was released: never before the stream's work, and not with its dead handle. The
 * driver gives the handle to the next stream in between. */
static void check_free_after_release(warp_memory_kind kind, int wrapped, int held, int reused)
{
    warp_stream *stream = NULL, *next = NULL;
    CUstream native = NULL;
    void *block;
    char byte = 1;
    const char *name = kind == WARP_MEMORY_CUDA_MEMPOOL ? "pool" : kind == WARP_MEMORY_CUDA_DEVICE ? "default" : "managed";
    if (wrapped) {
        SIMULATOR(cuCtxSetCurrent)(driver_primary(1));
        REQUIRE(SIMULATOR(cuStreamCreate)(&native, 1) == 0);
        SIMULATOR(cuCtxSetCurrent)(NULL);
        CHECK_STATUS(warp_stream_wrap(device("cuda:1"), native, &stream), WARP_SUCCESS);
    } else {
        stream = create(device("cuda:1"), WARP_STREAM_NON_BLOCKING);
    }
    block = alloc_on(device("cuda:1"), stream, kind);
    SIMULATOR(warpsim_auto_release)(0);
    if (held)
        SIMULATOR(warpsim_hold)(native_of(stream));
    CHECK_STATUS(warp_memory_fill(block, 4096, &byte, 1, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    if (wrapped)
        CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    if (reused)
        next = create(device("cuda:1"), WARP_STREAM_NON_BLOCKING);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    if (held) {
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(name), 1);
        CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
        SIMULATOR(warpsim_release_all)();
    }
    SIMULATOR(warpsim_auto_release)(1);
    /* A later call looks at what is parked. */
    block = alloc_on(device("cuda:1"), NULL, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(name), 0);
    CHECK_STATUS(warp_stream_release(next), WARP_SUCCESS);
    check_clean();
}

/* The end of a stream that cannot be marked, because it is captured or the driver refuses, is not taken for reached. */
static void check_free_after_unmarked_end(const char *entry, uint32_t code, uint32_t flags)
{
    warp_stream *stream = create(device("cuda:1"), flags);
    void *block = alloc_on(device("cuda:1"), stream, WARP_MEMORY_CUDA_MEMPOOL);
    char byte = 1;
    uint64_t destroyed;
    SIMULATOR(warpsim_auto_release)(0);
    SIMULATOR(warpsim_hold)(native_of(stream));
    CHECK_STATUS(warp_memory_fill(block, 4096, &byte, 1, stream), WARP_SUCCESS);
    destroyed = SIMULATOR(warpsim_call_count)("cuStreamDestroy_v2");
    SIMULATOR(warpsim_fail)(entry, 0, code);
    /* A stream that is captured is not released one by one. */
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuStreamDestroy_v2"), destroyed);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    SIMULATOR(warpsim_fail_clear)();
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(device("cpu")), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1);
    SIMULATOR(warpsim_release_all)();
    SIMULATOR(warpsim_auto_release)(1);
    block = alloc_on(device("cuda:1"), NULL, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 0);
    CHECK(SIMULATOR(warpsim_call_count)("cuStreamDestroy_v2") > destroyed);
    check_clean();
}

PROCESS_TEST(a_stream_whose_end_is_not_marked_is_still_waited_for)
{
    static const uint32_t flags[] = {0, WARP_STREAM_NON_BLOCKING};
    size_t i;
    start_on("h200x2");
    for (i = 0; i < 2; ++i) {
        check_free_after_unmarked_end("cuStreamIsCapturing", 906, flags[i]);
        check_free_after_unmarked_end("cuEventRecord", 999, flags[i]);
    }
}

PROCESS_TEST(a_stream_of_a_faulted_context_ends)
{
    warp_stream *stream;
    void *block;
    uint64_t destroyed;
    start_on("h200x2");
    stream = create(device("cuda:1"), WARP_STREAM_NON_BLOCKING);
    block = alloc_on(device("cuda:1"), stream, WARP_MEMORY_CUDA_DEVICE);
    destroyed = SIMULATOR(warpsim_call_count)("cuStreamDestroy_v2");
    SIMULATOR(warpsim_fail)("cuStreamIsCapturing", 0, 700);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuStreamDestroy_v2"), destroyed + 1);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    SIMULATOR(warpsim_fail_clear)();
    check_clean();
}

PROCESS_TEST(what_would_break_a_capture_is_refused_before_the_driver_sees_it)
{
    warp_stream *stream;
    uint64_t synchronized, destroyed;
    start_on("h200x2");
    stream = create(device("cuda:0"), WARP_STREAM_NON_BLOCKING);
    synchronized = SIMULATOR(warpsim_call_count)("cuCtxSynchronize");
    destroyed = SIMULATOR(warpsim_call_count)("cuStreamDestroy_v2");
    SIMULATOR(warpsim_fail)("cuStreamIsCapturing", 0, 906);
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_release(stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    SIMULATOR(warpsim_fail_clear)();
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuCtxSynchronize"), synchronized);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuStreamDestroy_v2"), destroyed);
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_clean();
}

PROCESS_TEST(blocks_outlive_their_streams)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED};
    int kind, way;
    start_on("h200x2");
    for (kind = 0; kind < 3; ++kind)
        for (way = 0; way < 8; ++way)
            check_free_after_release(kinds[kind], way & 1, way >> 1 & 1, way >> 2 & 1);
    CHECK(SIMULATOR(warpsim_live_count)("event") < 40);
}

PROCESS_TEST(a_foreign_non_blocking_stream_is_waited_for)
{
    CUstream native = NULL;
    warp_stream *stream = NULL;
    void *block, *next;
    char byte = 1;
    int round;
    start_on("h200x2");
    SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
    REQUIRE(SIMULATOR(cuStreamCreate)(&native, 1) == 0);
    SIMULATOR(cuCtxSetCurrent)(NULL);
    SIMULATOR(warpsim_auto_release)(0);
    CHECK_STATUS(warp_stream_wrap(device("cuda:0"), native, &stream), WARP_SUCCESS);
    for (round = 0; round < 50; ++round) {
        /* Made while it is current, freed while the default is. */
        CHECK_STATUS(warp_stream_set_current(device("cuda:0"), stream), WARP_SUCCESS);
        block = alloc_on(device("cuda:0"), NULL, WARP_MEMORY_CUDA_MEMPOOL);
        SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native);
        CHECK_STATUS(warp_memory_fill(block, 4096, &byte, 1, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_set_current(device("cuda:0"), NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        next = alloc_on(device("cuda:0"), NULL, WARP_MEMORY_CUDA_MEMPOOL);
        CHECK(next != block);
        SIMULATOR(warpsim_release_all)();
        CHECK_STATUS(warp_free(next), WARP_SUCCESS);
    }
    /* And a use elsewhere that the caller names. */
    block = alloc_on(device("cuda:0"), NULL, WARP_MEMORY_CUDA_DEVICE);
    SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native);
    CHECK_STATUS(warp_memory_fill(block, 4096, &byte, 1, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_record_stream((char *)block + 7, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 1);
    SIMULATOR(warpsim_release_all)();
    SIMULATOR(warpsim_auto_release)(1);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    check_clean();
}

/* ---- Released under another thread's call -------------------------------------------------------------------------------------- */

struct waiter {
    warp_stream *stream;
    int inside, done;
    warp_status status;
};

static void *wait_for_stream(void *argument)
{
    struct waiter *waiter = argument;
    __atomic_store_n(&waiter->inside, 1, __ATOMIC_SEQ_CST);
    waiter->status = warp_stream_synchronize(waiter->stream);
    __atomic_store_n(&waiter->done, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

PROCESS_TEST(a_stream_is_destroyed_after_the_calls_inside_it)
{
    struct waiter waiter = {.stream = NULL};
    pthread_t thread;
    void *block;
    char byte = 1;
    uint64_t native;
    start_on("h200x2");
    waiter.stream = create(device("cuda:1"), 0);
    native = native_of(waiter.stream);
    block = alloc_on(device("cuda:1"), waiter.stream, WARP_MEMORY_CUDA_MEMPOOL);
    SIMULATOR(warpsim_auto_release)(0);
    SIMULATOR(warpsim_hold)(native);
    CHECK_STATUS(warp_memory_fill(block, 4096, &byte, 1, waiter.stream), WARP_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, wait_for_stream, &waiter) == 0);
    while (!__atomic_load_n(&waiter.inside, __ATOMIC_SEQ_CST) ||
           SIMULATOR(warpsim_call_count)("cuStreamIsCapturing") < 3)
        usleep(1000);
    usleep(20000);
    CHECK_STATUS(warp_stream_release(waiter.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(waiter.stream), WARP_ERROR_INVALID_HANDLE);
    CHECK(!__atomic_load_n(&waiter.done, __ATOMIC_SEQ_CST));
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuStreamDestroy_v2"), 0);
    /* Freed while the stream is between its handle's end and its own. */
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1);
    SIMULATOR(warpsim_release_all)();
    pthread_join(thread, NULL);
    CHECK_STATUS(waiter.status, WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuStreamDestroy_v2"), 1);
    SIMULATOR(warpsim_auto_release)(1);
    block = alloc_on(device("cuda:1"), NULL, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    check_clean();
}

CHECK_MAIN()
