/*
 * access_live.c: access as it is at the moment of the question, whoever changed it, and questions that cannot be answered: contexts
 * that died, memory that was freed, handles that are none, a driver that fails, a child of a fork. Cases PA-04 and MP-06.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "access.h"
#include "forked.h"

#include <pthread.h>

/* ---- Other libraries --------------------------------------------------------------------------------------------- */

PROCESS_TEST(what_others_change_is_told_at_once)
{
    void *plain, *pooled, *theirs, *their_pooled;
    int round;
    start_on("h200x2");
    /* PA-04: granted before anybody asked. */
    POOL->outside(0, 1, 1);
    plain = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    pooled = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
    theirs = foreign_plain(context_of(gpu(0)), 64);
    their_pooled = foreign_pooled(context_of(gpu(0)), NULL, 64);
    EXPECT_POINTER(gpu(1), pooled, POOL_ACCESS);
    EXPECT_POINTER(gpu(1), plain, NO_PEER_ACCESS);
    context_of(gpu(1));
    for (round = 0; round < 8; ++round) {
        const int peer = round & 1, pool = round >> 1 & 1, back = round >> 2;
        PEER->outside(0, 1, peer);
        POOL->outside(0, 1, pool);
        PEER->outside(1, 0, back);
        POOL->outside(1, 0, back);
        CHECK_EQ_I64(can_pointer(gpu(1), plain), peer);
        CHECK_EQ_I64(can_pointer(gpu(1), theirs), peer);
        CHECK_EQ_I64(can_pointer(gpu(1), pooled), pool);
        CHECK_EQ_I64(can_pointer(gpu(1), their_pooled), pool);
        CHECK_EQ_I64(can_device(gpu(1), gpu(0)), pool);
        CHECK_EQ_I64(can_device(gpu(0), gpu(1)), back);
    }
    /* Off by the library, on outside, off by the library. */
    turn(POOL, gpu(0), gpu(1), 0);
    EXPECT_POINTER(gpu(1), pooled, NO_POOL_ACCESS);
    POOL->outside(0, 1, 1);
    EXPECT_POINTER(gpu(1), pooled, POOL_ACCESS);
    turn(POOL, gpu(0), gpu(1), 0);
    EXPECT_POINTER(gpu(1), pooled, NO_POOL_ACCESS);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pooled), WARP_SUCCESS);
    CHECK_EQ_PTR(driver_current(), NULL);
}

/* ---- Asking changes nothing -------------------------------------------------------------------------------------- */

PROCESS_TEST(asking_makes_no_context)
{
    static char unknown[8];
    void *plain, *pooled, *managed, *host;
    int i;
    start_on("h200x2,gpus=3");
    host = block_of(cpu(), 64, WARP_MEMORY_HOST);
    for (i = 0; i < 3; ++i) {
        EXPECT_POINTER(gpu(i), host, NO_PAGEABLE_ACCESS);
        EXPECT_POINTER(gpu(i), unknown, UNKNOWN_MEMORY);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
    plain = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    pooled = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
    managed = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MANAGED);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 1);
    for (i = 1; i < 3; ++i) {
        uint64_t retains = calls("cuDevicePrimaryCtxRetain");
        EXPECT_POINTER(gpu(i), plain, NO_PEER_ACCESS);
        EXPECT_POINTER(gpu(i), pooled, NO_POOL_ACCESS);
        EXPECT_POINTER(gpu(i), managed, MANAGED_ON_BOTH);
        CHECK_EQ_I64(can_device(gpu(i), gpu(0)), 0);
        CHECK_EQ_I64(can_device(gpu(0), gpu(i)), 0);
        CHECK_EQ_U64(calls("cuDevicePrimaryCtxRetain"), retains);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 1);
    CHECK(!info_of(gpu(1)).has_context);
    /* A pool's access needs none. */
    turn(POOL, gpu(0), gpu(1), 1);
    EXPECT_POINTER(gpu(1), pooled, POOL_ACCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 1);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pooled), WARP_SUCCESS);
    CHECK_STATUS(warp_free(managed), WARP_SUCCESS);
    CHECK_STATUS(warp_free(host), WARP_SUCCESS);
    CHECK_GONE();
}

PROCESS_TEST(a_context_that_other_code_holds_is_borrowed_for_the_question)
{
    void *plain;
    uint64_t retains, releases;
    start_on("h200x2");
    plain = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    driver_primary(1);
    retains = calls("cuDevicePrimaryCtxRetain");
    releases = calls("cuDevicePrimaryCtxRelease_v2");
    EXPECT_POINTER(gpu(1), plain, NO_PEER_ACCESS);
    CHECK(calls("cuDevicePrimaryCtxRetain") > retains);
    CHECK_EQ_U64(calls("cuDevicePrimaryCtxRetain") - retains, calls("cuDevicePrimaryCtxRelease_v2") - releases);
    PEER->outside(0, 1, 1);
    EXPECT_POINTER(gpu(1), plain, PEER_ACCESS);
    CHECK_EQ_U64(calls("cuDevicePrimaryCtxRetain") - retains, calls("cuDevicePrimaryCtxRelease_v2") - releases);
    CHECK(!info_of(gpu(1)).has_context);
    /* Its holder lets go: there is no access any more, and nothing holds the context. */
    DRIVER(cuDevicePrimaryCtxRelease_v2, 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 1);
    EXPECT_POINTER(gpu(1), plain, NO_PEER_ACCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 1);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
}

PROCESS_TEST(the_callers_current_context_stays_as_it_is)
{
    void *blocks[4];
    CUcontext contexts[4];
    int i, c, d;
    start_on("h200x2");
    for (i = 0; i < 3; ++i)
        blocks[i] = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE + i);
    contexts[0] = NULL;
    contexts[1] = context_of(gpu(0));
    contexts[2] = context_of(gpu(1));
    contexts[3] = driver_foreign(1);
    blocks[3] = foreign_plain(contexts[3], 64);
    for (c = 0; c < 4; ++c) {
        DRIVER(cuCtxSetCurrent, contexts[c]);
        for (i = 0; i < 4; ++i)
            for (d = -1; d < 2; ++d) {
                pointer_access(d < 0 ? cpu() : gpu(d), blocks[i]);
                CHECK_EQ_PTR(driver_current(), contexts[c]);
                can_device(d < 0 ? cpu() : gpu(d), gpu(0));
                CHECK_EQ_PTR(driver_current(), contexts[c]);
            }
    }
}

static uint64_t changes(void)
{
    return calls("cuMemPoolSetAccess") + calls("cuCtxEnablePeerAccess") + calls("cuCtxDisablePeerAccess") +
           calls("cuMemSetAccess");
}

PROCESS_TEST(asking_changes_nothing)
{
    static const char *const things[] = {"default", "pool",  "managed", "pinned",  "mapping",
                                         "stream",  "event", "mempool", "context", "graph"};
    size_t before[10], t;
    void *plain, *pooled, *mapping;
    uint64_t sets;
    int round;
    start_on("h200x2");
    plain = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    pooled = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
    mapping = mapping_of(0);
    context_of(gpu(1));
    EXPECT_POINTER(gpu(1), plain, NO_PEER_ACCESS);
    for (t = 0; t < 10; ++t)
        before[t] = SIMULATOR(warpsim_live_count)(things[t]);
    sets = changes();
    for (round = 0; round < 3; ++round) {
        EXPECT_POINTER(gpu(1), plain, NO_PEER_ACCESS);
        EXPECT_POINTER(gpu(1), pooled, NO_POOL_ACCESS);
        EXPECT_POINTER(gpu(1), mapping, NOT_MAPPED);
        can_device(gpu(1), gpu(0));
    }
    for (t = 0; t < 10; ++t)
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(things[t]), before[t]);
    CHECK_EQ_U64(changes(), sets);
}

PROCESS_TEST(the_librarys_own_memory_is_answered_for_without_the_driver_where_it_can_be)
{
    void *pooled;
    warp_array *array;
    uint64_t before;
    warp_device *own, *host;
    warp_launch_argument argument = {.name = "a", .kind = WARP_LAUNCH_ARRAY};
    start_on("h200x2");
    own = gpu(0);
    host = cpu();
    pooled = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
    array = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
    argument.value = array;
    before = calls("*");
    CHECK_EQ_I64(can_pointer(own, pooled), 1);
    CHECK_EQ_I64(can_device(host, own), 0);
    CHECK_EQ_I64(can_device(own, host), 0);
    CHECK_EQ_I64(can_array(own, array), 1);
    CHECK_STATUS(check_launch(own, &argument, 1, WARP_LAUNCH_CHECKED), WARP_SUCCESS);
    CHECK_STATUS(check_launch(own, &argument, 1, WARP_LAUNCH_STRICT), WARP_SUCCESS);
    CHECK_EQ_U64(calls("*"), before);
    drop(array);
    CHECK_STATUS(warp_free(pooled), WARP_SUCCESS);
}

/* ---- What is gone ------------------------------------------------------------------------------------------------ */

static warp_status array_status(const warp_device *device, const warp_array *array)
{
    warp_access_info info;
    warp_status status;
    uint8_t out = 9;
    memset(&info, 0xEE, sizeof info);
    info.struct_size = sizeof info;
    status = warp_access_get_status(device, array, &info);
    if (status != WARP_SUCCESS) {
        CHECK_STATUS(warp_access_can(device, array, &out), status);
        CHECK_EQ_U64(out, 0);
        CHECK(info.device == NULL && info.access == 0 && info.reason == 0 && info.kind == 0 && info.rule == 0);
        CHECK_EQ_U64(info.struct_size, sizeof info);
    }
    return status;
}

static warp_status pointer_status(const warp_device *device, const void *ptr)
{
    warp_access_info info;
    warp_status status;
    uint8_t out = 9;
    memset(&info, 0xEE, sizeof info);
    info.struct_size = sizeof info;
    status = warp_access_get_pointer_status(device, ptr, &info);
    if (status != WARP_SUCCESS) {
        CHECK_STATUS(warp_access_can_pointer(device, ptr, &out), status);
        CHECK_EQ_U64(out, 0);
        CHECK(info.device == NULL && info.access == 0 && info.reason == 0);
    }
    return status;
}

PROCESS_TEST(memory_and_devices_whose_context_died)
{
    warp_device *lost, *fresh;
    warp_array *array, *host;
    warp_launch_argument argument = {.name = "a", .kind = WARP_LAUNCH_ARRAY};
    warp_launch_report report = {.struct_size = sizeof report};
    void *plain, *pooled, *managed, *ours;
    uint8_t out = 9;
    start_on("h200x2");
    lost = gpu(0);
    plain = block_of(lost, 64, WARP_MEMORY_CUDA_DEVICE);
    pooled = block_of(lost, 64, WARP_MEMORY_CUDA_MEMPOOL);
    managed = block_of(lost, 64, WARP_MEMORY_CUDA_MANAGED);
    array = array_of_kind(lost, WARP_MEMORY_CUDA_DEVICE, F32, 8);
    host = array_of_kind(cpu(), WARP_MEMORY_HOST, F32, 8);
    ours = block_of(gpu(1), 64, WARP_MEMORY_CUDA_DEVICE);
    argument.value = array;
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    /* Nobody has noticed: who asks about the array is the first to be told. */
    CHECK_STATUS(array_status(gpu(1), array), WARP_ERROR_DEVICE_LOST);
    CHECK_STR_CONTAINS(warp_error_get_message(), "cuda:0");
    CHECK_STATUS(array_status(cpu(), array), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(pointer_status(gpu(1), plain), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(pointer_status(gpu(1), pooled), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(pointer_status(gpu(1), managed), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(pointer_status(cpu(), managed), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_launch_check(gpu(1), "k", &argument, 1, sizeof argument, WARP_LAUNCH_CHECKED, &report),
                 WARP_ERROR_DEVICE_LOST);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"k\"");
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"a\"");
    CHECK(report.accessible == 0 && report.access == 0 && report.device == NULL);
    /* The old device, and the one in its place. */
    CHECK_STATUS(pointer_status(lost, ours), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(array_status(lost, host), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_access_can_device(lost, gpu(1), &out), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_access_can_device(gpu(1), lost, &out), WARP_ERROR_DEVICE_LOST);
    CHECK_EQ_U64(out, 0);
    fresh = gpu(0);
    CHECK(fresh != lost);
    CHECK_STATUS(array_status(fresh, array), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(pointer_status(fresh, plain), WARP_ERROR_DEVICE_LOST);
    EXPECT_POINTER(fresh, ours, NO_PEER_ACCESS);
    EXPECT_ARRAY(cpu(), host, SAME_DEVICE);
    CHECK_EQ_I64(can_device(fresh, fresh), 1);
    drop(array);
    drop(host);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pooled), WARP_SUCCESS);
    CHECK_STATUS(warp_free(managed), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ours), WARP_SUCCESS);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_raw_pointer_is_the_first_to_find_that_its_context_died)
{
    void *plain;
    warp_access_info info = {.struct_size = sizeof info};
    warp_device *asking;
    start_on("h200x2");
    plain = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    context_of(gpu(1));
    asking = gpu(1);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    CHECK_STATUS(pointer_status(asking, plain), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
}

PROCESS_TEST(the_device_that_is_asked_about_died)
{
    void *plain, *pooled;
    warp_device *lost;
    start_on("h200x2");
    plain = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    pooled = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
    lost = gpu(1);
    context_of(lost);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(1), 0);
    CHECK_STATUS(pointer_status(lost, plain), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(pointer_status(lost, pooled), WARP_ERROR_DEVICE_LOST);
    EXPECT_POINTER(gpu(1), plain, NO_PEER_ACCESS);
    EXPECT_POINTER(gpu(1), pooled, NO_POOL_ACCESS);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pooled), WARP_SUCCESS);
}

PROCESS_TEST(an_array_whose_memory_was_freed_by_its_address)
{
    warp_array *array, *view = NULL, *wrapped;
    const int64_t one[1] = {1}, three[1] = {3};
    warp_launch_argument argument = {.name = "a", .kind = WARP_LAUNCH_ARRAY};
    void *data;
    start_on("h200x2");
    array = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL, F32, 8);
    CHECK_STATUS(warp_array_slice(array, 1, one, three, NULL, &view), WARP_SUCCESS);
    data = data_of(array);
    wrapped = wrapped_on(gpu(0), data, 8);
    CHECK_STATUS(warp_free(data), WARP_SUCCESS);
    CHECK_STATUS(array_status(gpu(1), array), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STATUS(array_status(gpu(1), view), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STATUS(array_status(cpu(), view), WARP_ERROR_UNKNOWN_POINTER);
    argument.value = array;
    CHECK_STATUS(check_launch(gpu(1), &argument, 1, WARP_LAUNCH_CHECKED), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"a\"");
    CHECK_STATUS(check_launch(gpu(1), &argument, 1, WARP_LAUNCH_STRICT), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STATUS(check_launch(gpu(1), &argument, 1, WARP_LAUNCH_RELAXED), WARP_SUCCESS);
    /* On the array's own device the question finds out; the answers that are a few nanoseconds away go by the handle. */
    {
        warp_access_info info = {.struct_size = sizeof info};
        uint8_t out = 9;
        CHECK_STATUS(warp_access_get_status(gpu(0), array, &info), WARP_ERROR_UNKNOWN_POINTER);
        CHECK(info.access == 0 && info.reason == 0 && info.device == NULL);
        CHECK_STATUS(warp_access_can(gpu(0), array, &out), WARP_SUCCESS);
        CHECK_EQ_U64(out, 1);
        CHECK_STATUS(check_launch(gpu(0), &argument, 1, WARP_LAUNCH_CHECKED), WARP_SUCCESS);
    }
    /* Memory that somebody lent is the lender's to look after; what the driver knows no more is gone. */
    CHECK_STATUS(array_status(gpu(1), wrapped), WARP_ERROR_UNKNOWN_POINTER);
    {
        warp_access_info info = {.struct_size = sizeof info};
        CHECK_STATUS(warp_access_get_status(gpu(0), wrapped, &info), WARP_ERROR_UNKNOWN_POINTER);
    }
    drop(array);
    drop(view);
    drop(wrapped);
    CHECK_GONE();
}

/* ---- Handles ----------------------------------------------------------------------------------------------------- */

PROCESS_TEST(handles_that_are_none_and_outputs_that_are_missing)
{
    warp_array *array, *released, *grid = NULL;
    warp_indexed_array *indexed = NULL, *gone = NULL;
    const warp_array *indices[1] = {NULL};
    warp_access_info info = {.struct_size = sizeof info};
    warp_stream *stream;
    void *garbage[5];
    uint8_t out;
    size_t i, size;
    start_on("h200x2");
    array = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
    released = array_of_kind(gpu(0), WARP_MEMORY_UNKNOWN, F32, 8);
    drop(released);
    stream = stream_of(gpu(0));
    CHECK_STATUS(warp_indexed_array_create(array, indices, 1, &indexed), WARP_SUCCESS);
    CHECK_STATUS(warp_indexed_array_create(array, indices, 1, &gone), WARP_SUCCESS);
    CHECK_STATUS(warp_indexed_array_release(gone), WARP_SUCCESS);
    garbage[0] = NULL;
    garbage[1] = (void *)released;
    garbage[2] = (void *)stream;
    garbage[3] = (void *)(uintptr_t)0xdeadbeefcafe;
    garbage[4] = (void *)gpu(0);
    for (i = 0; i < 5; ++i) {
        CHECK_STATUS(array_status(gpu(0), garbage[i]), WARP_ERROR_INVALID_HANDLE);
        CHECK_STATUS(array_status(gpu(1), garbage[i]), WARP_ERROR_INVALID_HANDLE);
        out = 9;
        CHECK_STATUS(warp_access_can_indexed(gpu(0), garbage[i], &out), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_U64(out, 0);
        CHECK_STATUS(warp_access_get_indexed_status(gpu(0), garbage[i], &info), WARP_ERROR_INVALID_HANDLE);
        if (i > 0 && i < 4) {
            CHECK_STATUS(array_status(garbage[i], array), WARP_ERROR_INVALID_HANDLE);
            CHECK_STATUS(pointer_status(garbage[i], &out), WARP_ERROR_INVALID_HANDLE);
            CHECK_STATUS(warp_access_can_device(garbage[i], gpu(0), &out), WARP_ERROR_INVALID_HANDLE);
            CHECK_STATUS(warp_access_can_device(gpu(0), garbage[i], &out), WARP_ERROR_INVALID_HANDLE);
        }
    }
    CHECK_STATUS(array_status(gpu(0), (warp_array *)(void *)indexed), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_access_can_indexed(gpu(0), (warp_indexed_array *)(void *)array, &out), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_access_can_indexed(gpu(0), gone, &out), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_access_can(gpu(0), array, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_access_can_pointer(gpu(0), &out, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_access_can_indexed(gpu(0), indexed, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_access_can_device(gpu(0), gpu(0), NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_access_get_status(gpu(0), array, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_access_get_pointer_status(gpu(0), NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_access_get_indexed_status(gpu(0), indexed, NULL), WARP_ERROR_INVALID_ARGUMENT);
    /* A struct that is too short, or of no size; one of a newer caller. */
    for (size = 0; size < sizeof info; ++size) {
        unsigned char before[sizeof info];
        memset(&info, 0xEE, sizeof info);
        info.struct_size = size;
        memcpy(before, &info, sizeof info);
        CHECK_STATUS(warp_access_get_status(gpu(0), array, &info), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_access_get_pointer_status(gpu(0), NULL, &info), WARP_ERROR_INVALID_ARGUMENT);
        CHECK(memcmp(before, &info, sizeof info) == 0);
    }
    {
        struct {
            warp_access_info info;
            unsigned char more[24];
        } newer;
        memset(&newer, 0xEE, sizeof newer);
        newer.info.struct_size = sizeof newer;
        CHECK_STATUS(warp_access_get_status(gpu(0), array, &newer.info), WARP_SUCCESS);
        CHECK_EQ_I64(newer.info.reason, WARP_ACCESS_REASON_SAME_DEVICE);
        for (i = 0; i < sizeof newer.more; ++i)
            CHECK_EQ_U64(newer.more[i], 0);
    }
    /* NULL is the default device. */
    CHECK_STATUS(warp_device_set_default(gpu(1)), WARP_SUCCESS);
    EXPECT_ARRAY(NULL, array, NO_POOL_ACCESS);
    CHECK_STATUS(warp_device_set_default(gpu(0)), WARP_SUCCESS);
    EXPECT_ARRAY(NULL, array, SAME_DEVICE);
    (void)grid;
    CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
    drop(array);
    CHECK_GONE();
}

PROCESS_TEST(ordinals_that_are_none)
{
    /* MP-06: one instance is all that a process sees, whatever else the card is. An ordinal beyond it is no device, and nothing
     * that this one would not support. */
    static const char *const beyond[] = {"cuda:1", "cuda:-1", "cuda:7", "cuda:4294967296", "cuda:-9223372036854775808"};
    warp_device *none;
    size_t i;
    start_on("h200,peers=0,name=NVIDIA H200 MIG 1g.18gb,memory=16GiB");
    for (i = 0; i < sizeof beyond / sizeof *beyond; ++i) {
        none = (warp_device *)1;
        CHECK_STATUS(warp_device_get(beyond[i], &none), WARP_ERROR_NO_SUCH_DEVICE);
        CHECK_EQ_PTR(none, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), beyond[i]);
    }
    for (i = 2; i < 5; ++i) {
        none = (warp_device *)1;
        CHECK_STATUS(warp_device_get_at(i == 4 ? SIZE_MAX : i, &none), WARP_ERROR_NO_SUCH_DEVICE);
        CHECK_EQ_PTR(none, NULL);
    }
    for (i = 0; i < 2; ++i) {
        check_self_answers(&kinds[i], gpu(0), 1);
        check_cpu_answers(&kinds[i], gpu(0));
        CHECK_STATUS(kinds[i].set_for(gpu(0), NULL, 0, 1), WARP_SUCCESS);
        CHECK_STATUS(kinds[i].set((warp_device *)1, gpu(0), 1), WARP_ERROR_INVALID_HANDLE);
        CHECK_STATUS(kinds[i].set(gpu(0), (warp_device *)UINTPTR_MAX, 0), WARP_ERROR_INVALID_HANDLE);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
    CHECK_EQ_I64(can_device(gpu(0), gpu(0)), 1);
    CHECK_EQ_I64(can_device(gpu(0), cpu()), 0);
    CHECK_EQ_I64(can_device(cpu(), gpu(0)), 0);
}

PROCESS_TEST(before_the_start_and_after_the_shutdown)
{
    warp_array *array;
    warp_device *device, *host;
    void *block;
    uint8_t out = 9;
    setenv("WARPSIM_TOPOLOGY", "h200x2", 1);
    CHECK_STATUS(warp_access_can_pointer(NULL, NULL, &out), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_U64(out, 0);
    CHECK_STATUS(warp_access_can_device(NULL, NULL, &out), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    device = gpu(0);
    host = cpu();
    block = block_of(host, 64, WARP_MEMORY_HOST);
    array = array_of_kind(device, WARP_MEMORY_UNKNOWN, F32, 8);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(array_status(device, array), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(pointer_status(host, block), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_access_can_device(host, host, &out), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    /* Handles of before are stale; the block is there, of a device of the table before. */
    CHECK_STATUS(array_status(gpu(0), array), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(pointer_status(host, block), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_I64(can_pointer(gpu(0), NULL), 1);
    CHECK_EQ_I64(can_pointer(cpu(), block), 1);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

/* ---- Forks ------------------------------------------------------------------------------------------------------- */

struct inherited {
    warp_array *host, *pooled, *plain;
    void *theirs;
};

static void in_a_child(void *argument)
{
    struct inherited *inherited = argument;
    warp_launch_argument arguments[2] = {{.name = "h", .value = inherited->host}, {.name = "p", .value = inherited->pooled}};
    EXPECT_ARRAY(cpu(), inherited->host, SAME_DEVICE);
    CHECK_STATUS(check_launch(cpu(), arguments, 1, WARP_LAUNCH_STRICT), WARP_SUCCESS);
    /* What needs no driver is answered; the rest cannot be. */
    CHECK_STATUS(array_status(gpu(1), inherited->pooled), WARP_ERROR_FORKED);
    CHECK_STATUS(array_status(gpu(1), inherited->plain), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_launch_check(gpu(1), "k", &arguments[1], 1, sizeof *arguments, WARP_LAUNCH_CHECKED, NULL), WARP_ERROR_FORKED);
    CHECK_EQ_I64(pointer_access(gpu(1), inherited->theirs).access, UNVERIFIED);
    CHECK_EQ_I64(can_device(cpu(), cpu()), 1);
    {
        uint8_t out = 9;
        CHECK_STATUS(warp_access_can_device(gpu(1), gpu(0), &out), WARP_ERROR_FORKED);
        CHECK_EQ_U64(out, 0);
    }
    /* Warnings of a child are its own. */
    CHECK_STATUS(check_launch(cpu(), arguments, 1, WARP_LAUNCH_CHECKED), WARP_SUCCESS);
}

PROCESS_TEST(in_the_child_of_a_fork)
{
    struct inherited inherited;
    start_on("h200x2");
    inherited.host = array_of_kind(cpu(), WARP_MEMORY_HOST, F32, 8);
    inherited.pooled = array_of_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL, F32, 8);
    inherited.plain = array_of_kind(gpu(0), WARP_MEMORY_CUDA_DEVICE, F32, 8);
    inherited.theirs = foreign_plain(context_of(gpu(0)), 64);
    EXPECT_ARRAY(gpu(1), inherited.pooled, NO_POOL_ACCESS);
    in_child(in_a_child, &inherited, 60);
    EXPECT_ARRAY(gpu(1), inherited.pooled, NO_POOL_ACCESS);
    drop(inherited.host);
    drop(inherited.pooled);
    drop(inherited.plain);
    CHECK_GONE();
}

/* ---- A driver that fails ----------------------------------------------------------------------------------------- */

PROCESS_TEST(where_the_driver_does_not_answer_nothing_is_verified)
{
    static const char *const entries[] = {"cuPointerGetAttribute", "cuPointerGetAttributes", "cuMemPoolGetAccess", "cuMemGetAccess",
                                          "cuDeviceCanAccessPeer", "cuDevicePrimaryCtxGetState", "cuCtxSetCurrent",
                                          "cuThreadExchangeStreamCaptureMode", "cuCtxGetCurrent", "cuMemRetainAllocationHandle"};
    enum { PLAIN, POOLED, MANAGED, PINNED, MAPPING, THEIR_PLAIN, THEIR_POOLED, THEIR_MANAGED, BLOCKS };
    void *blocks[BLOCKS];
    warp_array *wrapped[BLOCKS];
    warp_access_reason expected[BLOCKS] = {
        WARP_ACCESS_REASON_PEER_ACCESS,    WARP_ACCESS_REASON_POOL_ACCESS, WARP_ACCESS_REASON_MANAGED_ON_BOTH,
        WARP_ACCESS_REASON_PINNED_MAPPING, WARP_ACCESS_REASON_MAPPED,      WARP_ACCESS_REASON_PEER_ACCESS,
        WARP_ACCESS_REASON_POOL_ACCESS,    WARP_ACCESS_REASON_MANAGED_ON_BOTH};
    int unanswered[sizeof entries / sizeof *entries] = {0};
    size_t e, b;
    int given;
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    blocks[PLAIN] = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    blocks[POOLED] = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
    blocks[MANAGED] = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MANAGED);
    blocks[PINNED] = block_of(cpu(), 64, WARP_MEMORY_PINNED);
    blocks[MAPPING] = mapping_of(0);
    blocks[THEIR_PLAIN] = foreign_plain(context_of(gpu(0)), 64);
    blocks[THEIR_POOLED] = foreign_pooled(context_of(gpu(0)), NULL, 64);
    blocks[THEIR_MANAGED] = foreign_managed(context_of(gpu(0)), 64);
    map_for(blocks[MAPPING], 0, 3);
    map_for(blocks[MAPPING], 1, 3);
    for (b = 0; b < BLOCKS; ++b)
        wrapped[b] = wrapped_on(b == PINNED ? cpu() : gpu(0), blocks[b], 8);
    for (given = 1; given >= 0; --given) {
        turn(PEER, gpu(0), gpu(1), given);
        turn(POOL, gpu(0), gpu(1), given);
        if (!given) {
            expected[PLAIN] = expected[THEIR_PLAIN] = WARP_ACCESS_REASON_NO_PEER_ACCESS;
            expected[POOLED] = expected[THEIR_POOLED] = WARP_ACCESS_REASON_NO_POOL_ACCESS;
        }
        for (e = 0; e < sizeof entries / sizeof *entries; ++e)
            for (b = 0; b < BLOCKS; ++b) {
                int way;
                for (way = 0; way < 2; ++way) {
                    warp_access_info info = {.struct_size = sizeof info};
                    warp_status status;
                    uint8_t out = 9;
                    CHECK_EQ_U64(SIMULATOR(warpsim_fail)(entries[e], 0, 999), 0);
                    status = way ? warp_access_get_status(gpu(1), wrapped[b], &info)
                                 : warp_access_get_pointer_status(gpu(1), blocks[b], &info);
                    CHECK_STATUS(status, WARP_SUCCESS);
                    /* What is told is true, or told to be unknown. */
                    if (info.reason != expected[b]) {
                        if (info.access != UNVERIFIED && !(info.access == INACCESSIBLE && access_by(expected[b]) == INACCESSIBLE)) {
                            check_note_failure();
                            printf("\n    %s fails: %s of block %zu", entries[e], warp_access_reason_get_name(info.reason), b);
                        }
                        unanswered[e] += info.reason == WARP_ACCESS_REASON_NO_ANSWER;
                    }
                    status = way ? warp_access_can(gpu(1), wrapped[b], &out) : warp_access_can_pointer(gpu(1), blocks[b], &out);
                    CHECK_STATUS(status, WARP_SUCCESS);
                    CHECK_EQ_U64(out, info.access == ACCESSIBLE);
                    SIMULATOR(warpsim_fail_clear)();
                    /* Nothing is broken by it. */
                    CHECK_EQ_PTR(driver_current(), NULL);
                }
            }
        for (b = 0; b < BLOCKS; ++b) {
            expect_pointer_at(gpu(1), blocks[b], expected[b], "afterwards", __LINE__);
            expect_array_at(gpu(1), wrapped[b], expected[b], "afterwards", __LINE__);
        }
    }
    for (e = 0; e < 4; ++e)
        CHECK(unanswered[e] != 0);
    /* The owner of memory is told also then. */
    SIMULATOR(warpsim_fail)("cuPointerGetAttributes", 0, 999);
    for (b = 0; b < BLOCKS; ++b)
        if (b != MAPPING && b != PINNED && b != MANAGED && b != THEIR_MANAGED)
            CHECK_EQ_I64(array_access(gpu(0), wrapped[b]).access, ACCESSIBLE);
    SIMULATOR(warpsim_fail_clear)();
}

PROCESS_TEST(an_answer_that_did_not_come_says_so)
{
    void *mapping, *pooled, *theirs;
    warp_launch_argument argument = {.name = "a", .kind = WARP_LAUNCH_POINTER};
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    mapping = mapping_of(0);
    pooled = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
    theirs = foreign_plain(context_of(gpu(0)), 64);
    SIMULATOR(warpsim_fail)("cuMemGetAccess", 0, 999);
    EXPECT_POINTER(gpu(1), mapping, NO_ANSWER);
    EXPECT_POINTER(gpu(0), mapping, NO_ANSWER);
    SIMULATOR(warpsim_fail)("cuMemPoolGetAccess", 0, 999);
    EXPECT_POINTER(gpu(1), pooled, NO_ANSWER);
    CHECK_EQ_PTR(pointer_access(gpu(1), pooled).device, gpu(0));
    argument.value = pooled;
    CHECK_STATUS(check_launch(gpu(1), &argument, 1, WARP_LAUNCH_CHECKED), WARP_SUCCESS);
    CHECK_STATUS(check_launch(gpu(1), &argument, 1, WARP_LAUNCH_STRICT), WARP_ERROR_ACCESS_DENIED);
    SIMULATOR(warpsim_fail)("cuPointerGetAttribute", 0, 999);
    EXPECT_POINTER(gpu(1), theirs, NO_ANSWER);
    SIMULATOR(warpsim_fail)("cuPointerGetAttributes", 0, 999);
    EXPECT_POINTER(gpu(0), theirs, NO_ANSWER);
    EXPECT_POINTER(cpu(), theirs, NO_ANSWER);
    CHECK(pointer_access(cpu(), theirs).device == NULL);
    SIMULATOR(warpsim_fail_clear)();
    {
        /* The rough question has no third answer. */
        uint8_t out = 9;
        SIMULATOR(warpsim_fail)("cuMemPoolGetAccess", 1, 999);
        CHECK_STATUS(warp_access_can_device(gpu(1), gpu(0), &out), WARP_ERROR_DRIVER);
        CHECK_EQ_U64(out, 0);
    }
    EXPECT_POINTER(gpu(1), pooled, NO_POOL_ACCESS);
    CHECK_STATUS(warp_free(pooled), WARP_SUCCESS);
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

static void *shared_plain, *shared_pooled;
static int running;

static void *ask_often(void *argument)
{
    int i;
    (void)argument;
    for (i = 0; i < 400; ++i) {
        warp_access_info plain = pointer_access(gpu(1), shared_plain), pooled = pointer_access(gpu(1), shared_pooled);
        CHECK(plain.reason == WARP_ACCESS_REASON_PEER_ACCESS || plain.reason == WARP_ACCESS_REASON_NO_PEER_ACCESS);
        CHECK(pooled.reason == WARP_ACCESS_REASON_POOL_ACCESS || pooled.reason == WARP_ACCESS_REASON_NO_POOL_ACCESS);
        CHECK_EQ_PTR(driver_current(), NULL);
    }
    return NULL;
}

static void *turn_often(void *argument)
{
    int on = 0;
    (void)argument;
    while (__atomic_load_n(&running, __ATOMIC_SEQ_CST)) {
        on = !on;
        turn(PEER, gpu(0), gpu(1), on);
        turn(POOL, gpu(0), gpu(1), !on);
    }
    return NULL;
}

static void *free_often(void *argument)
{
    (void)argument;
    while (__atomic_load_n(&running, __ATOMIC_SEQ_CST)) {
        void *block = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
        uint8_t out = 9;
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_access_can_pointer(gpu(1), block, &out), WARP_SUCCESS);
    }
    return NULL;
}

PROCESS_TEST(many_threads_ask_while_others_change_and_free)
{
    pthread_t asking[4], turning, freeing;
    int i;
    start_on("h200x2");
    shared_plain = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    shared_pooled = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
    context_of(gpu(1));
    running = 1;
    pthread_create(&turning, NULL, turn_often, NULL);
    pthread_create(&freeing, NULL, free_often, NULL);
    for (i = 0; i < 4; ++i)
        pthread_create(&asking[i], NULL, ask_often, NULL);
    for (i = 0; i < 4; ++i)
        pthread_join(asking[i], NULL);
    __atomic_store_n(&running, 0, __ATOMIC_SEQ_CST);
    pthread_join(turning, NULL);
    pthread_join(freeing, NULL);
    CHECK_STATUS(warp_free(shared_plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(shared_pooled), WARP_SUCCESS);
    CHECK_GONE();
}

CHECK_MAIN()
