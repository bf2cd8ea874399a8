/*
 * stream_untracked.c: streams of other code that may be destroyed at any time: the library touches one only in a call that
 * names it, and frees what was used there after all work of the context.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "blocks.h"
#include "driver_without.h"
#include "process.h"

#include <warpmem.h>

static CUstream make_native(int32_t ordinal, uint32_t flags)
{
    CUstream native = NULL;
    SIMULATOR(cuCtxSetCurrent)(driver_primary(ordinal));
    CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, flags), 0);
    SIMULATOR(cuCtxSetCurrent)(NULL);
    return native;
}

static warp_stream *wrap(warp_device *on, CUstream native, uint32_t flags)
{
    warp_stream_options options = {.struct_size = sizeof options, .flags = flags};
    warp_stream *stream = NULL;
    CHECK_STATUS(warp_stream_wrap_with(on, native, &options, &stream), WARP_SUCCESS);
    return stream;
}

/* A call that looks at what is parked, and waits for nothing itself: a plain free would wait for the whole context. */
static void look(void)
{
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

static void check_clean(void)
{
    look();
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(an_untracked_stream_is_a_wrapped_one_that_says_so)
{
    CUstream native;
    warp_stream *stream, *tracked = NULL;
    warp_stream_options options = {.struct_size = sizeof options, .flags = WARP_STREAM_UNTRACKED};
    unsigned long long id = 0;
    start_on("h200x2");
    native = make_native(1, 1);
    stream = wrap(gpu(1), native, WARP_STREAM_UNTRACKED);
    SIMULATOR(cuStreamGetId)(native, &id);
    CHECK_EQ_U64(stream_info(stream).is_untracked, 1);
    CHECK_EQ_U64(stream_info(stream).is_owned, 0);
    CHECK_EQ_U64(stream_info(stream).is_non_blocking, 1);
    CHECK_EQ_U64(stream_info(stream).id, id);
    CHECK_EQ_PTR(stream_info(stream).native, native);
    tracked = wrap(gpu(1), native, 0);
    CHECK_EQ_U64(stream_info(tracked).is_untracked, 0);
    CHECK_STATUS(warp_stream_release(tracked), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wrap_with(gpu(1), native, NULL, &tracked), WARP_SUCCESS);
    CHECK_EQ_U64(stream_info(tracked).is_untracked, 0);
    CHECK_STATUS(warp_stream_release(tracked), WARP_SUCCESS);
    /* The library's own streams are tracked; and what a stream is, wrapping does not change. */
    CHECK_STATUS(warp_stream_create(gpu(1), &options, &tracked), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_stream_wrap_with");
    CHECK_EQ_PTR(tracked, NULL);
    options.flags = WARP_STREAM_NON_BLOCKING;
    CHECK_STATUS(warp_stream_wrap_with(gpu(1), native, &options, &tracked), WARP_ERROR_INVALID_ARGUMENT);
    options.flags = 4;
    CHECK_STATUS(warp_stream_wrap_with(gpu(1), native, &options, &tracked), WARP_ERROR_INVALID_ARGUMENT);
    options.flags = 0;
    options.priority = -1;
    CHECK_STATUS(warp_stream_wrap_with(gpu(1), native, &options, &tracked), WARP_ERROR_INVALID_ARGUMENT);
    options.priority = 0;
    CHECK_STATUS(warp_stream_wrap_with(gpu(0), native, &options, &tracked), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_stream_wrap_with(cpu(), native, &options, &tracked), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_stream_wrap_with(gpu(1), native, &options, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    /* What is known of it is still told, and it is let go without the driver. */
    CHECK_EQ_U64(stream_info(stream).id, id);
    {
        uint64_t before = calls("*");
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_EQ_U64(calls("*"), before);
    }
    check_clean();
}

/* Blocks of every kind that were allocated there, or used there, after the stream's end; and in the order of its work. */
static void free_behind(warp_memory_kind kind, int allocated_there, int released_first, int reused)
{
    warp_device *home = kind == WARP_MEMORY_PINNED ? cpu() : gpu(0);
    CUstream native = make_native(0, 1), next = NULL;
    warp_stream *stream = wrap(gpu(0), native, WARP_STREAM_UNTRACKED);
    static const char *const live[KINDS] = {"*", "*", "pinned", "default", "pool", "managed"};
    void *ptr = block_on(home, MIB, kind, allocated_there ? stream : NULL);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    SIMULATOR(warpsim_auto_release)(0);
    SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native);
    if (kind == WARP_MEMORY_PINNED)
        CHECK_STATUS(warp_pointer_record_stream(ptr, stream), WARP_SUCCESS);
    else
        CHECK_STATUS(warp_memory_fill(ptr, MIB, "\5", 1, stream), WARP_SUCCESS);
    /* Its work goes on when it is destroyed, and the driver may give its handle to somebody else. */
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    if (reused)
        next = make_native(0, 1);
    if (released_first)
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    look();
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(live[kind]), 1);
    SIMULATOR(warpsim_release_all)();
    SIMULATOR(warpsim_auto_release)(1);
    look();
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(live[kind]), 0);
    if (!released_first)
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    if (next != NULL)
        CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(next), 0);
}

PROCESS_TEST(blocks_are_freed_after_all_work_of_the_context)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_DEVICE,
                                             WARP_MEMORY_CUDA_MANAGED, WARP_MEMORY_PINNED};
    size_t i;
    int way;
    start_on("h200x2");
    look();
    for (i = 0; i < sizeof kinds / sizeof *kinds; ++i)
        for (way = 0; way < 8; ++way)
            if (kinds[i] != WARP_MEMORY_PINNED || way & 1)
                free_behind(kinds[i], !(way & 1), way >> 1 & 1, way >> 2);
    check_clean();
}

PROCESS_TEST(an_older_driver_waits_for_the_context)
{
    warp_memory_kind kind;
    start_without("cuCtxRecordEvent");
    for (kind = WARP_MEMORY_CUDA_DEVICE; kind <= WARP_MEMORY_CUDA_MANAGED; ++kind) {
        CUstream native = make_native(0, 1);
        warp_stream *stream = wrap(gpu(0), native, WARP_STREAM_UNTRACKED);
        void *ptr = block_on(gpu(0), MIB, kind, stream);
        uint64_t waits = calls("cuCtxSynchronize");
        SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native);
        CHECK_STATUS(warp_memory_fill(ptr, MIB, "\5", 1, stream), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
        /* Whoever waits lets the stream go on here. */
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK(calls("cuCtxSynchronize") > waits);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    check_clean();
}

PROCESS_TEST(only_calls_that_name_the_stream_touch_it)
{
    CUstream native;
    warp_stream *stream;
    void *blocks[4];
    size_t i;
    start_on("h200x2");
    native = make_native(0, 1);
    stream = wrap(gpu(0), native, WARP_STREAM_UNTRACKED);
    for (i = 0; i < 4; ++i)
        blocks[i] = block_on(gpu(0), MIB, i & 1 ? WARP_MEMORY_CUDA_MEMPOOL : WARP_MEMORY_CUDA_DEVICE, stream);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    /* A dead stream crashes the simulated driver as it does the real one. */
    CHECK_STATUS(warp_free(blocks[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks[1]), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    look();
    /* Out of memory, all streams are asked whether they are busy. */
    SIMULATOR(warpsim_out_of_memory_at_size)(64 * MIB);
    {
        void *none = NULL;
        warp_alloc_options options = options_of(WARP_MEMORY_CUDA_DEVICE, NULL);
        CHECK_STATUS(warp_alloc_with(gpu(0), 64 * MIB, &options, &none), WARP_ERROR_OUT_OF_MEMORY);
        options.kind = WARP_MEMORY_CUDA_MEMPOOL;
        CHECK_STATUS(warp_alloc_with(gpu(0), 64 * MIB, &options, &none), WARP_ERROR_OUT_OF_MEMORY);
    }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks[2]), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks[3]), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(it_is_an_ordinary_stream_while_it_lives)
{
    CUstream native;
    warp_stream *stream, *other;
    warp_event *event = NULL;
    void *ptr;
    unsigned char seen = 0;
    start_on("h200x2");
    native = make_native(0, 0);
    stream = wrap(gpu(0), native, WARP_STREAM_UNTRACKED);
    other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    CHECK_STATUS(warp_stream_set_current(gpu(0), stream), WARP_SUCCESS);
    CHECK_STATUS(warp_event_create(gpu(0), NULL, &event), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(0), KIB, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_fill(ptr, KIB, "\3", 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_event_record(event, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(other, event), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(other, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(&seen, ptr, 1, other), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(other), WARP_SUCCESS);
    CHECK_EQ_I64(seen, 3);
    {
        warp_free_options options = {.struct_size = sizeof options, .stream = stream};
        CHECK_STATUS(warp_free_with(ptr, &options), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK(stream_of(gpu(0)) != stream);
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    check_clean();
}

PROCESS_TEST(a_block_used_on_many_untracked_streams_waits_once)
{
    void *ptr;
    int i;
    uint64_t marks;
    start_on("h200x2");
    ptr = block_of(gpu(0), MIB, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    for (i = 0; i < 100; ++i) {
        CUstream native = make_native(i & 1, 1);
        warp_stream *stream = wrap(gpu(i & 1), native, WARP_STREAM_UNTRACKED);
        CHECK_STATUS(warp_pointer_record_stream(ptr, stream), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    marks = calls("cuCtxRecordEvent");
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    /* One in each context. */
    CHECK_EQ_U64(calls("cuCtxRecordEvent"), marks + 2);
    check_clean();
}

PROCESS_TEST(a_mark_that_the_driver_refuses_is_made_later)
{
    warp_memory_kind kind;
    start_on("h200x2");
    look();
    for (kind = WARP_MEMORY_CUDA_DEVICE; kind <= WARP_MEMORY_CUDA_MANAGED; ++kind) {
        CUstream native = make_native(0, 1);
        warp_stream *stream = wrap(gpu(0), native, WARP_STREAM_UNTRACKED);
        void *ptr = block_on(gpu(0), MIB, kind, stream);
        CHECK_STATUS(warp_memory_fill(ptr, MIB, "\1", 1, stream), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
        /* 900: a capture in the context that nobody knew of. */
        SIMULATOR(warpsim_fail)("cuCtxRecordEvent", 0, 900);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        look();
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 1);
        SIMULATOR(warpsim_fail_clear)();
        look();
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    check_clean();
}

PROCESS_TEST(a_context_that_died_is_waited_for_no_more)
{
    CUstream native;
    warp_stream *stream;
    void *plain, *pool;
    start_on("h200x2");
    native = make_native(1, 1);
    stream = wrap(gpu(1), native, WARP_STREAM_UNTRACKED);
    plain = block_on(gpu(1), MIB, WARP_MEMORY_CUDA_DEVICE, stream);
    pool = block_on(gpu(1), MIB, WARP_MEMORY_CUDA_MEMPOOL, stream);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(1), 0);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    check_clean();
}

CHECK_MAIN()
