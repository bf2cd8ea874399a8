/*
 * managed_ops.c: managed memory is sent somewhere and advised on: where it goes and on which stream, what is refused before the
 * driver is asked, beside captures, on GPUs that lack something, with an older driver, and with every call of the driver failing.
 *
 * valgrind: slow (a process for each of nearly thirty answers; managed.c and adaptor_hints.c send and advise there)
 * needs: simulator
 */
#include "captures.h"

#include "arena.h"
#include "driver_without.h"
#include "foreign.h"
#include "forked.h"

#include <pthread.h>

#define SIZE (8 * (uint64_t)4096)
#define PAGE ((uint64_t)4096)

static warp_managed_state state_in(const void *ptr, uint64_t size)
{
    warp_managed_state state = {.struct_size = sizeof state};
    CHECK_STATUS(warp_managed_query_state(ptr, size, &state), WARP_SUCCESS);
    return state;
}

static int is_accessed_by(const void *ptr, uint64_t size, warp_device *by)
{
    uint8_t answer = 9;
    CHECK_STATUS(warp_managed_query_accessed_by(ptr, size, by, &answer), WARP_SUCCESS);
    return answer;
}

static void *managed_of(warp_device *device)
{
    return block_of(device, SIZE, WARP_MEMORY_CUDA_MANAGED);
}

/* Calls of the driver that would do or tell something. */
static uint64_t asked(void)
{
    return calls("cuMemPrefetchAsync_v2") + calls("cuMemPrefetchAsync") + calls("cuMemAdvise_v2") + calls("cuMemAdvise") +
           calls("cuMemRangeGetAttribute");
}

/* All four functions answer the same, and the driver is not asked. */
static void check_refused(const void *ptr, uint64_t size, warp_status status, const char *text)
{
    warp_managed_state state;
    uint64_t before = asked();
    uint8_t answer = 9;
    memset(&state, 0x55, sizeof state);
    state.struct_size = sizeof state;
    CHECK_STATUS(warp_managed_prefetch(ptr, size, gpu(0), NULL), status);
    CHECK_STR_CONTAINS(warp_error_get_message(), text);
    CHECK_STATUS(warp_managed_advise(ptr, size, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, gpu(0)), status);
    CHECK_STR_CONTAINS(warp_error_get_message(), text);
    CHECK_STATUS(warp_managed_query_state(ptr, size, &state), status);
    CHECK_STR_CONTAINS(warp_error_get_message(), text);
    CHECK_EQ_PTR(state.preferred, NULL);
    CHECK_EQ_I64(state.last_prefetch_ordinal, 0);
    CHECK_STATUS(warp_managed_query_accessed_by(ptr, size, gpu(0), &answer), status);
    CHECK_STR_CONTAINS(warp_error_get_message(), text);
    CHECK_EQ_U64(answer, 0);
    CHECK_EQ_U64(asked(), before);
}

/* ---- Where it goes ------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(memory_goes_where_it_is_sent_and_holds_the_same)
{
    char *block;
    warp_managed_state state;
    start_on("h200x2");
    block = managed_of(gpu(0));
    state = state_in(block, 0);
    CHECK_EQ_I64(state.last_prefetch_ordinal, WARP_MANAGED_NOWHERE);
    CHECK_EQ_PTR(state.last_prefetch, NULL);
    put_pattern(block, SIZE, 5);
    CHECK_STATUS(warp_managed_prefetch(block, SIZE, gpu(1), NULL), WARP_SUCCESS);
    state = state_in(block, SIZE);
    CHECK_EQ_PTR(state.last_prefetch, gpu(1));
    CHECK_EQ_I64(state.last_prefetch_ordinal, 1);
    CHECK_STATUS(warp_managed_prefetch(block, 0, cpu(), NULL), WARP_SUCCESS);
    state = state_in(block, 0);
    CHECK_EQ_PTR(state.last_prefetch, cpu());
    CHECK_EQ_I64(state.last_prefetch_ordinal, -1);
    /* A part, and from within to the end; the default device. */
    CHECK_STATUS(warp_managed_prefetch(block + PAGE, PAGE, gpu(1), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_managed_prefetch(block + 5 * PAGE + 7, 0, NULL, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(state_in(block, PAGE).last_prefetch_ordinal, -1);
    CHECK_EQ_I64(state_in(block + PAGE, PAGE).last_prefetch_ordinal, 1);
    CHECK_EQ_I64(state_in(block + 2 * PAGE, 3 * PAGE).last_prefetch_ordinal, -1);
    CHECK_EQ_I64(state_in(block + 5 * PAGE, 0).last_prefetch_ordinal, 0);
    CHECK_EQ_I64(state_in(block, 0).last_prefetch_ordinal, WARP_MANAGED_NOWHERE);
    CHECK_EQ_U64(find_pattern(block, SIZE, 5), SIZE);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* Whether a prefetch went to the stream: the block's free waits for it. */
static void check_goes_to(warp_stream *named, warp_device *target, warp_device *home, uint64_t native)
{
    void *block = managed_of(home);
    uint64_t frees;
    CHECK_STATUS(warp_device_synchronize(home), WARP_SUCCESS);
    SIMULATOR(warpsim_hold)(native);
    CHECK_STATUS(warp_managed_prefetch(block, 0, target, named), WARP_SUCCESS);
    frees = calls("cuMemFree_v2");
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuMemFree_v2"), frees);
    SIMULATOR(warpsim_release)(native);
    CHECK_STATUS(warp_device_synchronize(home), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(target), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuMemFree_v2"), frees + 1);
}

PROCESS_TEST(it_goes_in_the_order_of_a_stream_and_the_free_comes_after_it)
{
    warp_stream *stream, *other, *overriding;
    start_on("h200x2");
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    other = new_stream(gpu(1), WARP_STREAM_NON_BLOCKING);
    overriding = new_stream(gpu(1), 0);
    check_goes_to(stream, gpu(0), gpu(0), native_stream(stream));
    check_goes_to(other, gpu(0), gpu(0), native_stream(other)); /* any GPU's stream will do */
    check_goes_to(other, cpu(), gpu(0), native_stream(other));
    check_goes_to(NULL, gpu(1), gpu(0), native_stream(stream_of(gpu(1))));
    check_goes_to(NULL, cpu(), gpu(1), native_stream(stream_of(gpu(1))));
    CHECK_STATUS(warp_stream_set_current(gpu(1), overriding), WARP_SUCCESS);
    check_goes_to(NULL, gpu(1), gpu(0), native_stream(overriding));
    CHECK_STATUS(warp_stream_set_current(gpu(1), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(overriding), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(the_special_streams_are_those_of_their_device)
{
    void *block, *special;
    uintptr_t native;
    start_on("h200x2");
    block = managed_of(gpu(0));
    for (native = 0; native < 3; ++native) {
        warp_stream *stream = NULL;
        special = (void *)native;
        CHECK_STATUS(warp_stream_wrap(gpu(1), special, &stream), WARP_SUCCESS);
        CHECK_STATUS(warp_managed_prefetch(block, 0, gpu((int)native % 2), stream), WARP_SUCCESS);
        CHECK_EQ_I64(state_in(block, 0).last_prefetch_ordinal, (int)native % 2);
        CHECK_EQ_PTR(driver_current(), NULL);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(in_every_order_that_streams_allow_the_data_stays)
{
    uint64_t seed;
    start_on("h200x2");
    for (seed = 1; seed <= 25; ++seed) {
        warp_stream *stream, *other;
        char *block, *copy;
        SIMULATOR(warpsim_schedule)(seed);
        stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        other = new_stream(gpu(1), WARP_STREAM_NON_BLOCKING);
        block = block_on(gpu(0), SIZE, WARP_MEMORY_CUDA_MANAGED, stream);
        copy = block_on(gpu(0), SIZE, WARP_MEMORY_CUDA_MEMPOOL, stream);
        fill_byte(block, (unsigned char)seed, SIZE, stream);
        CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(1), stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wait_stream(other, stream), WARP_SUCCESS);
        fill_byte(block + PAGE, 99, PAGE, other);
        CHECK_STATUS(warp_managed_prefetch(block, 2 * PAGE, cpu(), other), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wait_stream(stream, other), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(copy, block, SIZE, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK(holds(copy, (unsigned char)seed, PAGE, stream));
        CHECK(holds(copy + PAGE, 99, PAGE, stream));
        CHECK(holds(copy + 2 * PAGE, (unsigned char)seed, SIZE - 2 * PAGE, stream));
        CHECK_STATUS(warp_free(copy), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
        CHECK_NOTHING_LEFT();
    }
    SIMULATOR(warpsim_schedule)(0);
}

/* ---- Hints --------------------------------------------------------------------------------------------------------------- */

static void advise(const void *ptr, uint64_t size, warp_managed_advice advice, warp_device *device)
{
    CHECK_STATUS(warp_managed_advise(ptr, size, advice, device), WARP_SUCCESS);
}

PROCESS_TEST(each_hint_is_set_and_taken_back)
{
    char *block;
    warp_managed_state state;
    start_on("h200x2");
    block = managed_of(gpu(0));
    state = state_in(block, 0);
    CHECK(!state.is_read_mostly && state.preferred == NULL && state.preferred_ordinal == WARP_MANAGED_NOWHERE);
    advise(block, 0, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, NULL);
    advise(block, 0, WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION, gpu(1));
    advise(block, 0, WARP_MANAGED_ADVICE_SET_ACCESSED_BY, cpu());
    advise(block + PAGE, 0, WARP_MANAGED_ADVICE_SET_ACCESSED_BY, gpu(1));
    state = state_in(block, 0);
    CHECK_EQ_I64(state.is_read_mostly, 1);
    CHECK_EQ_PTR(state.preferred, gpu(1));
    CHECK_EQ_I64(state.preferred_ordinal, 1);
    CHECK_EQ_I64(is_accessed_by(block, 0, cpu()), 1);
    CHECK_EQ_I64(is_accessed_by(block, 0, gpu(0)), 0);
    CHECK_EQ_I64(is_accessed_by(block, 0, gpu(1)), 0); /* not all of it */
    CHECK_EQ_I64(is_accessed_by(block + PAGE, 0, gpu(1)), 1);
    advise(block, PAGE, WARP_MANAGED_ADVICE_UNSET_READ_MOSTLY, NULL);
    CHECK_EQ_I64(state_in(block, 0).is_read_mostly, 0);
    CHECK_EQ_I64(state_in(block + PAGE, 0).is_read_mostly, 1);
    advise(block, 0, WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION, cpu());
    state = state_in(block, 0);
    CHECK_EQ_PTR(state.preferred, cpu());
    CHECK_EQ_I64(state.preferred_ordinal, -1);
    advise(block, 0, WARP_MANAGED_ADVICE_UNSET_PREFERRED_LOCATION, NULL);
    CHECK_EQ_I64(state_in(block, 0).preferred_ordinal, WARP_MANAGED_NOWHERE);
    advise(block, 0, WARP_MANAGED_ADVICE_UNSET_ACCESSED_BY, cpu());
    advise(block, 0, WARP_MANAGED_ADVICE_UNSET_ACCESSED_BY, gpu(1));
    CHECK_EQ_I64(is_accessed_by(block, 0, cpu()) + is_accessed_by(block + PAGE, 0, gpu(1)), 0);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* Whichever context is current stays so, and makes no difference. */
PROCESS_TEST(the_callers_context_stays)
{
    CUcontext contexts[3];
    warp_device *devices[2];
    void *block;
    int i;
    start_on("h200x2");
    devices[0] = gpu(0), devices[1] = gpu(1);
    block = managed_of(devices[0]);
    contexts[0] = NULL, contexts[1] = context_of(devices[1]), contexts[2] = driver_foreign(0);
    for (i = 0; i < 3; ++i) {
        CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(contexts[i]), 0);
        CHECK_STATUS(warp_managed_prefetch(block, 0, devices[i % 2], NULL), WARP_SUCCESS);
        advise(block, 0, WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION, devices[i % 2]);
        CHECK_EQ_PTR(state_in(block, 0).preferred, devices[i % 2]);
        CHECK_EQ_I64(state_in(block, 0).last_prefetch_ordinal, i % 2);
        CHECK_STATUS(warp_managed_prefetch(&i, 0, devices[0], NULL), WARP_ERROR_UNKNOWN_POINTER);
        CHECK_EQ_PTR(driver_current(), contexts[i]);
    }
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

PROCESS_TEST(memory_of_other_code_is_as_good)
{
    struct pool_properties properties = {.kind = 2, .location = {1, 0}}; /* managed */
    CUmemoryPool pool = NULL;
    CUcontext own;
    char *theirs, *pooled;
    start_on("h200x2");
    own = driver_foreign(1); /* a context that the library does not know */
    theirs = foreign_managed(own, SIZE);
    CHECK_STATUS(warp_managed_prefetch(theirs + PAGE, 0, gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_managed_prefetch(theirs, PAGE, cpu(), NULL), WARP_SUCCESS);
    advise(theirs, 0, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, NULL);
    CHECK_EQ_I64(state_in(theirs + PAGE, 0).last_prefetch_ordinal, 0);
    CHECK_EQ_I64(state_in(theirs, PAGE).last_prefetch_ordinal, -1);
    CHECK_EQ_I64(state_in(theirs, 0).is_read_mostly, 1);
    check_refused(theirs + PAGE, SIZE - PAGE + 1, WARP_ERROR_INVALID_ARGUMENT, "pass the end");
    /* Managed memory of a pool goes where it is sent, and takes no hint. */
    DRIVER(cuMemPoolCreate, &pool, &properties);
    pooled = foreign_pooled(driver_primary(0), pool, SIZE);
    CHECK_STATUS(warp_managed_prefetch(pooled, 0, gpu(1), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_managed_advise(pooled, 0, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, NULL), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "pools");
    CHECK_EQ_I64(state_in(pooled, 0).preferred_ordinal, 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_block_of_another_allocator_ends_where_it_ends)
{
    struct arena arena = {0};
    char *first, *second;
    start_on("h200x2");
    arena.from = foreign_managed(driver_primary(0), 16 * PAGE);
    first = carved(&arena, WARP_MEMORY_CUDA_MANAGED, PAGE);
    second = carved(&arena, WARP_MEMORY_UNKNOWN, 2 * PAGE);
    CHECK_STATUS(warp_managed_prefetch(first, PAGE, gpu(1), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_managed_prefetch(second, 0, cpu(), NULL), WARP_SUCCESS);
    CHECK_EQ_I64(state_in(first, 0).last_prefetch_ordinal, 1);
    CHECK_EQ_I64(state_in(second, 0).last_prefetch_ordinal, -1);
    CHECK_EQ_I64(state_in(arena.from + 3 * PAGE, 0).last_prefetch_ordinal, WARP_MANAGED_NOWHERE);
    check_refused(first, PAGE + 1, WARP_ERROR_INVALID_ARGUMENT, "pass the end");
    CHECK_STATUS(warp_free(first), WARP_SUCCESS);
    CHECK_STATUS(warp_free(second), WARP_SUCCESS);
    CHECK_EQ_I64(arena.live, 0);
}

/* ---- What is refused ----------------------------------------------------------------------------------------------------- */

PROCESS_TEST(other_memory_is_refused_by_its_kind)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_HOST, WARP_MEMORY_PINNED, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL};
    CUcontext theirs;
    void *mapping;
    int i;
    start_on("h200x2");
    for (i = 0; i < 4; ++i) {
        char *block = block_of(kinds[i] <= WARP_MEMORY_PINNED ? cpu() : gpu(0), SIZE, kinds[i]);
        check_refused(block + 5, 1, WARP_ERROR_INVALID_ARGUMENT, kind_names[kinds[i]]);
        check_refused(block, 2 * SIZE, WARP_ERROR_INVALID_ARGUMENT, kind_names[kinds[i]]);
        CHECK_STR_CONTAINS(warp_error_get_message(), "WARP_MEMORY_CUDA_MANAGED");
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    }
    theirs = driver_primary(0);
    check_refused(foreign_plain(theirs, SIZE), 0, WARP_ERROR_INVALID_ARGUMENT, "CUDA_DEVICE");
    check_refused(foreign_pooled(theirs, NULL, SIZE), 0, WARP_ERROR_INVALID_ARGUMENT, "CUDA_MEMPOOL");
    check_refused(foreign_pinned(theirs, SIZE), 0, WARP_ERROR_INVALID_ARGUMENT, "PINNED");
    mapping = mapping_of(0);
    map_for(mapping, 0, 3);
    check_refused(mapping, 0, WARP_ERROR_INVALID_ARGUMENT, "CUDA_DEVICE");
    check_refused(&i, sizeof i, WARP_ERROR_UNKNOWN_POINTER, "no block that is known");
    check_refused((void *)(uintptr_t)77, 1, WARP_ERROR_UNKNOWN_POINTER, "no block that is known");
}

PROCESS_TEST(ranges_stay_in_their_block)
{
    char *block;
    start_on("h200x2");
    block = managed_of(gpu(0));
    check_refused(NULL, 0, WARP_ERROR_INVALID_ARGUMENT, "NULL");
    check_refused(block, SIZE + 1, WARP_ERROR_INVALID_ARGUMENT, "by 1");
    check_refused(block + SIZE - 1, 2, WARP_ERROR_INVALID_ARGUMENT, "by 1");
    check_refused(block + 1, UINT64_MAX, WARP_ERROR_INVALID_ARGUMENT, "pass the end");
    check_refused(block + 1, UINT64_MAX - (uint64_t)(uintptr_t)block, WARP_ERROR_INVALID_ARGUMENT, "pass the end");
    check_refused(block + SIZE, 0, WARP_ERROR_UNKNOWN_POINTER, "no block that is known");
    CHECK_STATUS(warp_managed_prefetch(block + SIZE - 1, 0, gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_managed_prefetch(block + SIZE - 1, 1, gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    check_refused(block, 1, WARP_ERROR_UNKNOWN_POINTER, "no block that is known");
    CHECK_STR_CONTAINS(warp_error_get_message(), "freed before");
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(nonsense_is_refused_by_name)
{
    warp_managed_state state = {.struct_size = sizeof state};
    warp_stream *stream, *host_stream;
    warp_managed_advice advice;
    void *block;
    uint8_t answer;
    uint64_t before;
    CHECK_STATUS(warp_managed_prefetch(&state, 1, NULL, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_managed_advise(&state, 1, 1, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_managed_query_state(&state, 1, &state), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_managed_query_accessed_by(&state, 1, NULL, &answer), WARP_ERROR_NOT_INITIALIZED);
    start_on("h200x2");
    block = managed_of(gpu(0));
    stream = new_stream(gpu(0), 0);
    host_stream = stream_of(cpu());
    before = asked();
    CHECK_STATUS(warp_managed_prefetch(block, 0, (warp_device *)block, NULL), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_managed_prefetch(block, 0, (warp_device *)stream, NULL), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(0), (warp_stream *)block), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(0), (warp_stream *)gpu(0)), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(0), host_stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "the CPU's");
    for (advice = -1; advice < 9; ++advice)
        if (advice < WARP_MANAGED_ADVICE_SET_READ_MOSTLY || advice > WARP_MANAGED_ADVICE_UNSET_ACCESSED_BY) {
            CHECK_STATUS(warp_managed_advise(block, 0, advice, gpu(0)), WARP_ERROR_INVALID_ARGUMENT);
            CHECK_STR_CONTAINS(warp_error_get_message(), "WARP_MANAGED_ADVICE_");
        }
    CHECK_STATUS(warp_managed_advise(block, 0, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, (warp_device *)stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_managed_query_state(block, 0, NULL), WARP_ERROR_INVALID_ARGUMENT);
    state.struct_size = 0;
    CHECK_STATUS(warp_managed_query_state(block, 0, &state), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_managed_state");
    CHECK_STATUS(warp_managed_query_accessed_by(block, 0, gpu(0), NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_managed_query_accessed_by(block, 0, (warp_device *)stream, &answer), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(0), stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_U64(asked(), before);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_managed_prefetch(block, 0, NULL, NULL), WARP_ERROR_SHUT_DOWN);
}

/* ---- GPUs and drivers that lack something -------------------------------------------------------------------------------- */

PROCESS_TEST(a_gpu_that_the_cpu_waits_for_takes_no_part)
{
    warp_managed_state state;
    void *block;
    uint64_t before;
    start_on("wsl");
    block = managed_of(gpu(0));
    before = asked();
    CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(0), NULL), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:0\" lacks concurrent managed access");
    CHECK_STATUS(warp_managed_prefetch(block, 0, cpu(), NULL), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:0\" lacks concurrent managed access");
    CHECK_STATUS(warp_managed_advise(block, 0, WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION, gpu(0)), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_managed_advise(block, 0, WARP_MANAGED_ADVICE_SET_ACCESSED_BY, gpu(0)), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:0\" lacks concurrent managed access");
    CHECK_EQ_U64(asked(), before);
    advise(block, 0, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, gpu(0)); /* is about no device */
    advise(block, 0, WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION, cpu());
    state = state_in(block, 0);
    CHECK(state.is_read_mostly && state.preferred == cpu());
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

static void check_second_takes_no_part(const char *topology, const char *lacks)
{
    warp_stream *stream;
    void *block;
    uint64_t before;
    start_on(topology);
    block = managed_of(gpu(0));
    stream = new_stream(gpu(1), 0);
    before = asked();
    CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(1), NULL), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), lacks);
    CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(0), stream), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), lacks);
    CHECK_STATUS(warp_managed_prefetch(block, 0, cpu(), stream), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_managed_advise(block, 0, WARP_MANAGED_ADVICE_SET_ACCESSED_BY, gpu(1)), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), lacks);
    CHECK_EQ_U64(asked(), before);
    CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_managed_prefetch(block, 0, cpu(), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(one_gpu_without_managed_memory_keeps_nobody_else_from_it)
{
    check_second_takes_no_part("h200x2,gpu1.managed=0", "\"cuda:1\" lacks managed memory");
}

PROCESS_TEST(one_gpu_without_concurrent_access_keeps_nobody_else_from_it)
{
    check_second_takes_no_part("h200x2,gpu1.concurrent=0", "\"cuda:1\" lacks concurrent managed access");
}

PROCESS_TEST(without_a_gpu_there_is_a_plain_answer)
{
    char here[64];
    void *block;
    start_on("none");
    block = block_of(cpu(), 64, WARP_MEMORY_HOST);
    CHECK_STATUS(warp_managed_prefetch(block, 0, cpu(), NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "HOST");
    CHECK_STATUS(warp_managed_prefetch(here, 0, NULL, NULL), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_STATUS(warp_managed_advise(here, 0, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, NULL), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

/* As of 12.1: the places are numbers of devices. */
PROCESS_TEST(an_older_driver_has_the_older_calls)
{
    void *block;
    start_without("cuMemPrefetchAsync_v2");
    block = managed_of(gpu(0));
    CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(0), NULL), WARP_SUCCESS);
    CHECK_EQ_I64(state_in(block, 0).last_prefetch_ordinal, 0);
    CHECK_STATUS(warp_managed_prefetch(block, 0, cpu(), NULL), WARP_SUCCESS);
    CHECK_EQ_I64(state_in(block, 0).last_prefetch_ordinal, -1);
    CHECK_EQ_U64(calls("cuMemPrefetchAsync"), 2);
    CHECK_EQ_U64(calls("cuMemPrefetchAsync_v2"), 0);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

PROCESS_TEST(and_the_older_hints)
{
    void *block;
    start_without("cuMemAdvise_v2");
    block = managed_of(gpu(0));
    advise(block, 0, WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION, cpu());
    advise(block, 0, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, cpu());
    CHECK_EQ_I64(state_in(block, 0).preferred_ordinal, -1);
    CHECK_EQ_U64(calls("cuMemAdvise"), 2);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

PROCESS_TEST(a_driver_that_tells_nothing_is_named)
{
    warp_managed_state state = {.struct_size = sizeof state};
    void *block;
    start_without("cuMemRangeGetAttribute");
    block = managed_of(gpu(0));
    CHECK_STATUS(warp_managed_query_state(block, 0, &state), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "cuMemRangeGetAttribute");
    CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

/* ---- Captures ------------------------------------------------------------------------------------------------------------ */

struct beside {
    void *block;
    warp_stream *captured, *other;
    int is_over, sent, refused;
};

/* What any thread may do while `captured` is captured. */
static void *work_beside(void *argument)
{
    struct beside *b = argument;
    uint64_t before = calls("cuMemPrefetchAsync_v2");
    CHECK_STATUS(warp_managed_prefetch(b->block, 0, gpu(0), b->captured), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "a prefetch cannot be recorded");
    CHECK_EQ_U64(calls("cuMemPrefetchAsync_v2"), before);
    CHECK_STATUS(warp_managed_prefetch(b->block, 0, gpu(1), b->other), WARP_SUCCESS);
    CHECK_STATUS(warp_managed_prefetch(b->block, 0, gpu(0), NULL), WARP_SUCCESS);
    advise(b->block, 0, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, NULL);
    advise(b->block, 0, WARP_MANAGED_ADVICE_SET_ACCESSED_BY, gpu(1));
    CHECK_EQ_I64(is_accessed_by(b->block, 0, gpu(1)), 1);
    CHECK_EQ_I64(state_in(b->block, 0).last_prefetch_ordinal, 0);
    return NULL;
}

static void on_a_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, body, argument) == 0);
    pthread_join(thread, NULL);
}

PROCESS_TEST(captures_go_on_whatever_is_sent)
{
    static const int modes[] = {WARP_CAPTURE_GLOBAL, WARP_CAPTURE_THREAD_LOCAL, WARP_CAPTURE_RELAXED};
    struct beside b;
    int m;
    start_on("h200x2");
    b.block = managed_of(gpu(0));
    b.captured = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    b.other = new_stream(gpu(1), WARP_STREAM_NON_BLOCKING);
    for (m = 0; m < 3; ++m) {
        warp_graph *graph;
        CHECK_STATUS(warp_capture_begin(b.captured, modes[m]), WARP_SUCCESS);
        fill_byte(b.block, (unsigned char)(m + 1), SIZE, b.captured);
        work_beside(&b);
        on_a_thread(work_beside, &b);
        CHECK_EQ_I64(state_of(b.captured), WARP_CAPTURE_STATE_ACTIVE);
        graph = end(b.captured);
        CHECK_STATUS(warp_graph_launch(graph, b.captured), WARP_SUCCESS);
        CHECK(holds(b.block, (unsigned char)(m + 1), SIZE, b.captured));
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(b.block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(b.captured), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(b.other), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(so_do_captures_of_other_code)
{
    struct beside b;
    CUgraph graph = NULL;
    warp_stream *legacy = NULL;
    int mode;
    start_on("h200x2");
    b.block = managed_of(gpu(0));
    b.captured = new_stream(gpu(0), 0); /* blocking: the legacy stream of its context would have to wait for it */
    b.other = new_stream(gpu(1), 0);
    CHECK_STATUS(warp_stream_wrap(gpu(0), NULL, &legacy), WARP_SUCCESS);
    for (mode = 0; mode < 3; ++mode) {
        CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native_of(b.captured), mode), 0);
        work_beside(&b);
        on_a_thread(work_beside, &b);
        CHECK_STATUS(warp_managed_prefetch(b.block, 0, gpu(0), legacy), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native_of(b.captured), &graph), 0);
        CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(graph), 0);
    }
    CHECK_STATUS(warp_managed_prefetch(b.block, 0, gpu(0), legacy), WARP_SUCCESS);
    CHECK_STATUS(warp_free(b.block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(legacy), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(b.captured), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(b.other), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

static void *send_on_and_on(void *argument)
{
    struct beside *b = argument;
    while (!__atomic_load_n(&b->is_over, __ATOMIC_ACQUIRE)) {
        warp_status status = warp_managed_prefetch(b->block, 0, cpu(), b->captured);
        if (status == WARP_SUCCESS)
            __atomic_fetch_add(&b->sent, 1, __ATOMIC_RELAXED);
        else if (status == WARP_ERROR_ILLEGAL_IN_CAPTURE)
            __atomic_fetch_add(&b->refused, 1, __ATOMIC_RELAXED);
        else
            CHECK_STATUS(status, WARP_SUCCESS);
    }
    return NULL;
}

/* The question whether a stream is captured, and the prefetch, leave no room for a begin between them. */
PROCESS_TEST(a_capture_that_begins_meanwhile_is_not_broken)
{
    const int enough = check_under("valgrind") ? 20 : 3000;
    struct beside b = {0};
    pthread_t thread;
    int round = 0;
    start_on("h200x2");
    b.block = managed_of(gpu(0));
    b.captured = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    REQUIRE(pthread_create(&thread, NULL, send_on_and_on, &b) == 0);
    /* Until they have met often enough. */
    do {
        begin(b.captured);
        CHECK_STATUS(warp_graph_release(end(b.captured)), WARP_SUCCESS);
        ++round;
    } while (check_failure_count() == 0 && (round < enough || __atomic_load_n(&b.sent, __ATOMIC_RELAXED) < enough ||
                                            __atomic_load_n(&b.refused, __ATOMIC_RELAXED) < enough));
    __atomic_store_n(&b.is_over, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    CHECK_STATUS(warp_free(b.block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(b.captured), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* ---- Ends, threads, failures --------------------------------------------------------------------------------------------- */

PROCESS_TEST(what_a_dead_context_had_is_lost)
{
    void *block, *other;
    warp_device *first, *second;
    warp_stream *stream;
    start_on("h200x2");
    first = gpu(0), second = gpu(1);
    block = managed_of(first);
    other = managed_of(second);
    stream = new_stream(first, 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    CHECK_STATUS(warp_managed_prefetch(block, 0, second, NULL), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_managed_advise(block, 0, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, second), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_managed_prefetch(other, 0, second, stream), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_managed_prefetch(other, 0, gpu(0), NULL), WARP_SUCCESS); /* what took its place */
    CHECK_EQ_I64(state_in(other, 0).last_prefetch_ordinal, 0);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(other), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

static void use_in_child(void *block)
{
    warp_managed_state state = {.struct_size = sizeof state};
    uint8_t answer;
    CHECK_STATUS(warp_managed_prefetch(block, 0, cpu(), NULL), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(0), NULL), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_managed_advise(block, 0, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, cpu()), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_managed_query_state(block, 0, &state), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_managed_query_accessed_by(&state, 0, cpu(), &answer), WARP_ERROR_FORKED);
}

PROCESS_TEST(a_forked_child_sends_nothing)
{
    void *block;
    start_on("h200x2");
    block = managed_of(gpu(0));
    in_child(use_in_child, block, 60);
    CHECK_STATUS(warp_managed_prefetch(block, 0, gpu(1), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

#define THREADS 4

static void *send_about(void *number)
{
    int n = (int)(intptr_t)number, round;
    warp_stream *stream = new_stream(gpu(n % 2), WARP_STREAM_NON_BLOCKING);
    for (round = 0; round < (check_under("valgrind") ? 20 : 200); ++round) {
        char *block = managed_of(gpu(round % 2));
        CHECK_STATUS(warp_managed_prefetch(block + PAGE, PAGE, gpu(n % 2), stream), WARP_SUCCESS);
        advise(block, 0, WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION, gpu(n % 2));
        CHECK_STATUS(warp_managed_prefetch(block, 0, round % 3 ? cpu() : gpu(1), NULL), WARP_SUCCESS);
        CHECK_EQ_I64(state_in(block, 0).last_prefetch_ordinal, round % 3 ? -1 : 1);
        CHECK_EQ_I64(state_in(block, 0).preferred_ordinal, n % 2);
        if (round % 50 == n) { /* nobody's prefetch falls into it */
            begin(stream);
            CHECK_STATUS(warp_managed_prefetch(block, 0, cpu(), stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
            CHECK_STATUS(warp_graph_release(end(stream)), WARP_SUCCESS);
        }
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(threads_send_their_blocks_about)
{
    pthread_t threads[THREADS];
    intptr_t n;
    start_on("h200x2");
    for (n = 0; n < THREADS; ++n)
        REQUIRE(pthread_create(&threads[n], NULL, send_about, (void *)n) == 0);
    for (n = 0; n < THREADS; ++n)
        pthread_join(threads[n], NULL);
    CHECK_NOTHING_LEFT();
}

/* Everything once; the first failure, or success. */
static warp_status play(warp_stream *stream, void **block)
{
    warp_managed_state state = {.struct_size = sizeof state};
    warp_alloc_options options = options_of(WARP_MEMORY_CUDA_MANAGED, stream);
    uint8_t answer = 0;
    warp_status status = warp_alloc_with(gpu(0), SIZE, &options, block);
    if (status == WARP_SUCCESS)
        status = warp_managed_prefetch(*block, 0, gpu(1), NULL);
    if (status == WARP_SUCCESS)
        status = warp_managed_prefetch(*block, PAGE, cpu(), stream);
    if (status == WARP_SUCCESS)
        status = warp_managed_advise(*block, 0, WARP_MANAGED_ADVICE_SET_ACCESSED_BY, gpu(1));
    if (status == WARP_SUCCESS)
        status = warp_managed_query_state(*block, 0, &state);
    if (status == WARP_SUCCESS)
        status = warp_managed_query_accessed_by(*block, 0, gpu(1), &answer);
    if (status == WARP_SUCCESS)
        CHECK_EQ_I64(answer, 1);
    return status;
}

static void sweep(uint32_t code)
{
    CUcontext current;
    warp_stream *stream;
    uint64_t nth, met = 0;
    start_on("h200x2");
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    current = context_of(gpu(1));
    for (nth = 1; nth < 500; ++nth) {
        void *block = NULL;
        warp_status status;
        int failures = check_failure_count();
        CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(current), 0);
        SIMULATOR(warpsim_log_clear)();
        if (nth > 1) /* the first time all goes well */
            fail("*", nth - 1, code);
        status = play(stream, &block);
        if (!SIMULATOR(warpsim_log_contains)("planned")) {
            clear();
            CHECK_STATUS(status, WARP_SUCCESS);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            if (nth > 1)
                break;
            continue;
        }
        ++met;
        clear();
        if (status != WARP_SUCCESS)
            CHECK(strlen(warp_error_get_message()) > 20);
        /* Whose context was current cannot be put back when the driver refuses that. */
        if (driver_current() != current)
            CHECK(SIMULATOR(warpsim_log_contains)("cuCtxSetCurrent"));
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        block = NULL;
        CHECK_STATUS(play(stream, &block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        if (check_failure_count() != failures) {
            printf("\n    code %u at call %" PRIu64, code, nth - 1);
            return;
        }
    }
    CHECK(met > 25);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(every_call_of_the_driver_may_fail)
{
    sweep(999);
}

PROCESS_TEST(every_call_of_the_driver_may_refuse)
{
    sweep(1);
}

CHECK_MAIN()
