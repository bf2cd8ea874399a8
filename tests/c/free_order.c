/*
 * Frees come after the work that used the block: on its own stream, on every stream on which the library saw it used, and
 * on those that the caller names. Pool memory goes back in stream order; plain, managed and page-locked memory is parked
 * while those streams work, and never makes a call wait.
 */
/* topology: h200x2 */
/* needs: simulator */
#define _POSIX_C_SOURCE 200809L
#include "blocks.h"

#include <pthread.h>

static const warp_memory_kind parked_kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED, WARP_MEMORY_PINNED};
#define PARKED_KINDS (sizeof parked_kinds / sizeof *parked_kinds)

static uint64_t plain_frees(void)
{
    return calls("cuMemFree_v2") + calls("cuMemFreeHost");
}

static const char *sim_kind(warp_memory_kind kind)
{
    static const char *const names[KINDS] = {"", "", "pinned", "default", "pool", "managed"};
    return names[kind];
}

static void hold(warp_stream *stream)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native_stream(stream)), 0);
}

static void let_go(warp_stream *stream)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_release)(native_stream(stream)), 0);
}

/* A call that looks at what is parked, and waits for nothing itself: a plain free would wait for the whole context. */
static void look(void)
{
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

static void use_by_fill(void *ptr, warp_stream *stream)
{
    CHECK_STATUS(warp_memory_fill(ptr, 64, "x", 1, stream), WARP_SUCCESS);
}

static unsigned char *device_buffer;

static void use_as_source(void *ptr, warp_stream *stream)
{
    CHECK_STATUS(warp_memory_copy(device_buffer, ptr, 64, stream), WARP_SUCCESS);
}

static void use_as_target(void *ptr, warp_stream *stream)
{
    CHECK_STATUS(warp_memory_copy(ptr, device_buffer, 64, stream), WARP_SUCCESS);
}

static void use_by_name(void *ptr, warp_stream *stream)
{
    CHECK_STATUS(warp_pointer_record_stream((char *)ptr + 33, stream), WARP_SUCCESS);
}

static void use_nothing(void *ptr, warp_stream *stream)
{
    (void)ptr, (void)stream;
}

typedef void (*use_function)(void *ptr, warp_stream *stream);
static const use_function uses[] = {use_as_source, use_as_target, use_by_name, use_by_fill};

TEST(a_pool_block_of_one_stream_is_one_call)
{
    warp_stream *stream, *current;
    void *ptr;
    REQUIRE(start());
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    current = stream_of(gpu(0));
    ptr = block_on(gpu(0), MIB, WARP_MEMORY_CUDA_MEMPOOL, stream);
    use_by_fill(ptr, stream);
    hold(stream);
    hold(current);
    uint64_t frees = calls("cuMemFreeAsync"), all = calls("*"), modes = calls("cuThreadExchangeStreamCaptureMode");
    uint64_t questions = calls("cuCtxGetId");
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuMemFreeAsync"), frees + 1);
    /* Beside the free itself there is the capture guard's pair, the question whether the context lives, and no more. */
    CHECK_EQ_U64(calls("cuThreadExchangeStreamCaptureMode"), modes + 2);
    CHECK_EQ_U64(calls("*"), all + 3 + (calls("cuCtxGetId") - questions));
    CHECK(calls("cuCtxGetId") - questions <= 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1); /* its stream works */
    let_go(stream);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 0); /* though another works on */
    let_go(current);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(a_block_of_an_idle_stream_is_freed_at_once)
{
    size_t i;
    for (i = 0; i < PARKED_KINDS; ++i) {
        warp_memory_kind kind = parked_kinds[i];
        warp_device *home = kind == WARP_MEMORY_PINNED ? cpu() : gpu(0);
        void *ptr = block_of(home, MIB, kind);
        uint64_t frees = plain_frees();
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_EQ_U64(plain_frees(), frees + 1);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kind)), 0);
    }
    CHECK_NOTHING_LEFT();
}

static void free_while_busy(warp_memory_kind kind, use_function use, int own_stream)
{
    warp_device *home = kind == WARP_MEMORY_PINNED ? cpu() : gpu(0);
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    void *ptr = block_on(home, MIB, kind, own_stream && kind != WARP_MEMORY_PINNED ? stream : NULL);
    uint64_t frees, round;
    void *other;
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    SIMULATOR(warpsim_auto_release)(0); /* whoever waits for the stream, hangs */
    hold(stream);
    use(ptr, stream);
    frees = plain_frees();
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(plain_frees(), frees);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kind)), 1);
    /* Freed for the caller: not known, not to be freed again, and not counted. */
    CHECK_EQ_I64(statistics_of(home, kind).live_blocks, 0);
    CHECK_STATUS(warp_free(ptr), WARP_ERROR_DOUBLE_FREE);
    for (round = 0; round < 3; ++round)
        look();
    other = block_of(home, MIB, kind);
    CHECK(other != ptr);
    CHECK_EQ_U64(plain_frees(), frees);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kind)), 2);
    let_go(stream);
    look();
    CHECK_EQ_U64(plain_frees(), frees + 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kind)), 1);
    look();
    CHECK_EQ_U64(plain_frees(), frees + 1);
    CHECK_STATUS(warp_free(other), WARP_SUCCESS);
    SIMULATOR(warpsim_auto_release)(1);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

TEST(plain_managed_and_pinned_blocks_are_parked_while_a_stream_uses_them)
{
    size_t i, u;
    device_buffer = (unsigned char *)block_of(gpu(0), KIB, WARP_MEMORY_CUDA_MEMPOOL);
    for (i = 0; i < PARKED_KINDS; ++i)
        for (u = 0; u < sizeof uses / sizeof *uses; ++u)
            if (uses[u] != use_by_fill || parked_kinds[i] != WARP_MEMORY_PINNED) {
                free_while_busy(parked_kinds[i], uses[u], 0);
                free_while_busy(parked_kinds[i], uses[u], 1);
            }
    /* On its own stream no use needs to be seen. */
    free_while_busy(WARP_MEMORY_CUDA_DEVICE, use_nothing, 1);
    free_while_busy(WARP_MEMORY_CUDA_MANAGED, use_nothing, 1);
    CHECK_STATUS(warp_free(device_buffer), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(a_pool_block_that_two_streams_used_is_freed_after_both_and_neither_waits)
{
    size_t u, first;
    device_buffer = (unsigned char *)block_of(gpu(0), KIB, WARP_MEMORY_CUDA_DEVICE);
    for (u = 0; u < sizeof uses / sizeof *uses; ++u) {
        for (first = 0; first < 2; ++first) {
            warp_stream *streams[2];
            uint64_t frees, waits, plain;
            void *ptr;
            streams[0] = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
            streams[1] = new_stream(gpu(0), 0);
            ptr = block_on(gpu(0), MIB, WARP_MEMORY_CUDA_MEMPOOL, streams[0]);
            hold(streams[0]);
            hold(streams[1]);
            uses[u](ptr, streams[1]);
            frees = calls("cuMemFreeAsync");
            plain = plain_frees();
            waits = calls("cuStreamWaitEvent");
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            CHECK_EQ_U64(calls("cuMemFreeAsync"), frees + 1);
            CHECK_EQ_U64(calls("cuStreamWaitEvent"), waits + 2);
            CHECK_EQ_U64(plain_frees(), plain);
            CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1);
            let_go(streams[first]);
            CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1);
            /* The one that was let go is not made to wait for the other. */
            uint8_t idle = 0;
            CHECK_STATUS(warp_stream_query_idle(streams[first], &idle), WARP_SUCCESS);
            CHECK_EQ_I64(idle, 1);
            let_go(streams[!first]);
            CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 0);
            CHECK_STATUS(warp_stream_release(streams[0]), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(streams[1]), WARP_SUCCESS);
        }
    }
    CHECK_STATUS(warp_free(device_buffer), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(a_stream_named_at_the_free_is_waited_for)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED, WARP_MEMORY_PINNED,
                                             WARP_MEMORY_CUDA_MEMPOOL};
    size_t i;
    for (i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        /* Of another GPU too. */
        warp_stream *stream = new_stream(gpu(i % 2 == 0), WARP_STREAM_NON_BLOCKING);
        void *ptr = block_of(kinds[i] == WARP_MEMORY_PINNED ? cpu() : gpu(0), MIB, kinds[i]);
        warp_free_options options;
        memset(&options, 0, sizeof options);
        options.struct_size = sizeof options;
        options.stream = stream;
        hold(stream);
        CHECK_STATUS(warp_free_with(ptr, &options), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kinds[i])), 1);
        look();
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kinds[i])), 1);
        let_go(stream);
        look();
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kinds[i])), 0);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_NOTHING_LEFT();
}

TEST(pinned_memory_freed_under_a_copy_keeps_its_bytes)
{
    /* To the GPU: the source may not change or go before the copy has run. */
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    void *target = block_on(gpu(0), MIB, WARP_MEMORY_CUDA_DEVICE, stream);
    unsigned char *source, *again;
    uint64_t round;
    for (round = 0; round < 20; ++round) {
        source = (unsigned char *)block_of(cpu(), MIB / 4, WARP_MEMORY_PINNED);
        write_pattern(source, MIB / 4, round);
        hold(stream);
        CHECK_STATUS(warp_memory_copy(target, source, MIB / 4, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(source), WARP_SUCCESS);
        again = (unsigned char *)block_of(cpu(), MIB / 4, WARP_MEMORY_PINNED);
        CHECK(again != source);
        memset(again, 0x5A, MIB / 4);
        let_go(stream);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_U64(find_pattern(target, MIB / 4, round), MIB / 4);
        CHECK_STATUS(warp_free(again), WARP_SUCCESS);
    }
    look();
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pinned"), 0);
    /* From the GPU: what is written late must land in memory that is nobody else's yet. */
    for (round = 0; round < 20; ++round) {
        source = (unsigned char *)block_of(cpu(), MIB / 4, WARP_MEMORY_PINNED);
        hold(stream);
        CHECK_STATUS(warp_memory_copy(source, target, MIB / 4, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(source), WARP_SUCCESS);
        again = (unsigned char *)block_of(cpu(), MIB / 4, WARP_MEMORY_PINNED);
        write_pattern(again, MIB / 4, 1000 + round);
        let_go(stream);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_U64(pattern_ends(again, MIB / 4, 1000 + round), MIB / 4);
        CHECK_STATUS(warp_free(again), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(target), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(a_fill_that_failed_half_way_is_waited_for)
{
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    void *ptr = block_of(gpu(0), MIB, WARP_MEMORY_CUDA_MEMPOOL);
    unsigned char pattern[1002];
    size_t i;
    for (i = 0; i < sizeof pattern; ++i)
        pattern[i] = (unsigned char)(i * 7 + i / 256);
    hold(stream);
    /* The pattern went over, and is not repeated. */
    SIMULATOR(warpsim_fail)("cuLaunchKernel", 1, 999);
    CHECK_STATUS(warp_memory_fill(ptr, 100 * sizeof pattern, pattern, sizeof pattern, stream), WARP_ERROR_DRIVER);
    SIMULATOR(warpsim_fail_clear)();
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1);
    let_go(stream);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 0);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* ST-01: the stream is gone before the free, while its work still runs. */
static void free_after_release(warp_memory_kind kind, int wrapped, int reused)
{
    warp_stream *stream, *next = NULL;
    CUstream native = NULL;
    uint64_t handle;
    void *ptr;
    if (wrapped) {
        CUcontext before = driver_current();
        SIMULATOR(cuCtxSetCurrent)(context_of(gpu(0)));
        CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, 1), 0);
        SIMULATOR(cuCtxSetCurrent)(before);
        REQUIRE_STATUS(warp_stream_wrap(gpu(0), native, &stream), WARP_SUCCESS);
    } else {
        stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    }
    handle = native_stream(stream);
    ptr = block_on(gpu(0), MIB, kind, stream);
    hold(stream);
    use_by_fill(ptr, stream);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    if (wrapped)
        CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    if (reused)
        next = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    look();
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kind)), 1);
    /* The handle may be dead, or another stream's by now: the holds go all together. */
    (void)handle;
    SIMULATOR(warpsim_release_all)();
    look();
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kind)), 0);
    if (next != NULL)
        CHECK_STATUS(warp_stream_release(next), WARP_SUCCESS);
}

TEST(a_free_is_ordered_after_a_stream_that_is_gone)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED, WARP_MEMORY_CUDA_MEMPOOL};
    size_t i;
    for (i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        free_after_release(kinds[i], 0, 0);
        free_after_release(kinds[i], 0, 1);
        free_after_release(kinds[i], 1, 0);
        free_after_release(kinds[i], 1, 1);
    }
    CHECK_NOTHING_LEFT();
}

TEST(a_stream_that_only_used_the_block_may_go_first_too)
{
    size_t i;
    for (i = 0; i < 4; ++i) {
        warp_memory_kind kind = i < PARKED_KINDS ? parked_kinds[i] : WARP_MEMORY_CUDA_MEMPOOL;
        warp_stream *stream = new_stream(gpu(1), 0);
        void *ptr = block_of(kind == WARP_MEMORY_PINNED ? cpu() : gpu(0), MIB, kind);
        hold(stream);
        CHECK_STATUS(warp_pointer_record_stream(ptr, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        look();
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kind)), 1);
        SIMULATOR(warpsim_release_all)();
        look();
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kind)), 0);
    }
    CHECK_NOTHING_LEFT();
}

/* ST-02: the default stream's implicit order does not cover a non-blocking stream. */
TEST(a_foreign_non_blocking_stream_is_waited_for)
{
    CUstream native = NULL;
    CUcontext before = driver_current();
    warp_stream *stream = NULL;
    uint64_t round;
    SIMULATOR(cuCtxSetCurrent)(context_of(gpu(0)));
    CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, 1), 0);
    SIMULATOR(cuCtxSetCurrent)(before);
    REQUIRE_STATUS(warp_stream_wrap(gpu(0), native, &stream), WARP_SUCCESS);
    REQUIRE_STATUS(warp_stream_set_current(gpu(0), stream), WARP_SUCCESS);
    for (round = 0; round < 50; ++round) {
        void *first = NULL, *second = NULL, *out = block_on(gpu(0), 4 * KIB, WARP_MEMORY_CUDA_DEVICE, stream);
        CHECK_STATUS(warp_alloc(gpu(0), 4 * KIB, &first), WARP_SUCCESS);
        put_pattern(first, 4 * KIB, round);
        hold(stream);
        CHECK_STATUS(warp_memory_copy(out, first, 4 * KIB, NULL), WARP_SUCCESS);
        /* Freed while the default stream of the device is the current one. */
        CHECK_STATUS(warp_stream_set_current(gpu(0), NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_free(first), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc(gpu(0), 4 * KIB, &second), WARP_SUCCESS);
        CHECK(second != first);
        use_by_fill(second, NULL);
        CHECK_STATUS(warp_stream_set_current(gpu(0), stream), WARP_SUCCESS);
        let_go(stream);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_U64(find_pattern(out, 4 * KIB, round), 4 * KIB);
        CHECK_STATUS(warp_free(second), WARP_SUCCESS);
        CHECK_STATUS(warp_free(out), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_stream_set_current(gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    CHECK_NOTHING_LEFT();
}

/* ---- no growth ---------------------------------------------------------------------------------------------------- */

TEST(many_rounds_keep_no_events_and_no_blocks)
{
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), *other = new_stream(gpu(1), 0);
    size_t events = 0, streams = SIMULATOR(warpsim_live_count)("stream"), round, i;
    for (round = 0; round < 500; ++round) {
        void *blocks[4];
        hold(stream);
        for (i = 0; i < 4; ++i) {
            warp_memory_kind kind = i < PARKED_KINDS ? parked_kinds[i] : WARP_MEMORY_CUDA_MEMPOOL;
            blocks[i] = block_of(kind == WARP_MEMORY_PINNED ? cpu() : gpu(0), KIB, kind);
            CHECK_STATUS(warp_pointer_record_stream(blocks[i], stream), WARP_SUCCESS);
            CHECK_STATUS(warp_pointer_record_stream(blocks[i], other), WARP_SUCCESS);
            CHECK_STATUS(warp_pointer_record_stream(blocks[i], stream), WARP_SUCCESS);
        }
        for (i = 0; i < 4; ++i)
            CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
        let_go(stream);
        look();
        if (round == 10)
            events = SIMULATOR(warpsim_live_count)("event");
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("event"), events);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("stream"), streams);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default") + SIMULATOR(warpsim_live_count)("managed") +
                     SIMULATOR(warpsim_live_count)("pinned") + SIMULATOR(warpsim_live_count)("pool"), 0);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(a_long_lived_block_forgets_streams_that_are_gone)
{
    void *ptr = block_of(cpu(), KIB, WARP_MEMORY_PINNED), *pool = block_of(gpu(0), KIB, WARP_MEMORY_CUDA_MEMPOOL);
    size_t events = 0, streams = SIMULATOR(warpsim_live_count)("stream"), round;
    for (round = 0; round < 2000; ++round) {
        warp_stream *stream = new_stream(gpu(round % 2), 0);
        CHECK_STATUS(warp_pointer_record_stream(ptr, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_pointer_record_stream(pool, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        if (round == 200)
            events = SIMULATOR(warpsim_live_count)("event");
    }
    CHECK(SIMULATOR(warpsim_live_count)("event") <= events + 8);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("stream"), streams);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(what_is_parked_is_found_by_any_later_call_of_the_chapter)
{
    /* A program that goes on with pool memory alone, or only copies, must not keep plain memory for ever. */
    int way;
    for (way = 0; way < 6; ++way) {
        warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        void *pool = block_of(gpu(0), KIB, WARP_MEMORY_CUDA_MEMPOOL);
        void *ptr = block_on(gpu(0), MIB, WARP_MEMORY_CUDA_DEVICE, stream);
        void *pinned = block_of(cpu(), MIB, WARP_MEMORY_PINNED), *again = NULL;
        CHECK_STATUS(warp_pointer_record_stream(pinned, stream), WARP_SUCCESS);
        hold(stream);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_free(pinned), WARP_SUCCESS);
        let_go(stream);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 1);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pinned"), 1);
        switch (way) {
        case 0: again = block_of(gpu(0), KIB, WARP_MEMORY_CUDA_MEMPOOL); break;
        case 1: CHECK_STATUS(warp_free(pool), WARP_SUCCESS); pool = NULL; break;
        case 2: CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS); break;
        case 3: CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS); break;
        case 4: CHECK_STATUS(warp_memory_fill(pool, 1, "", 1, NULL), WARP_SUCCESS); break;
        case 5: again = block_of(gpu(1), KIB, WARP_MEMORY_CUDA_DEVICE); break;
        }
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), way == 5 ? 1 : 0);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pinned"), 0);
        CHECK_STATUS(warp_free(again), WARP_SUCCESS);
        CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_NOTHING_LEFT();
}

/* ---- threads and contexts ----------------------------------------------------------------------------------------- */

static void *free_elsewhere(void *ptr)
{
    CUcontext before = driver_current();
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_PTR(driver_current(), before);
    return NULL;
}

static void free_on_another_thread(void *ptr)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, free_elsewhere, ptr) == 0);
    pthread_join(thread, NULL);
}

TEST(a_free_takes_the_device_from_the_block_and_keeps_the_callers_context)
{
    size_t g, c, k;
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED, WARP_MEMORY_CUDA_MEMPOOL,
                                             WARP_MEMORY_PINNED};
    for (k = 0; k < 4; ++k)
        for (g = 0; g < 2; ++g)
            for (c = 0; c < 4; ++c) {
                warp_device *home = kinds[k] == WARP_MEMORY_PINNED ? cpu() : gpu((int)g);
                CUcontext current = c == 2 ? NULL : context_of(gpu((int)c % 2));
                void *ptr;
                SIMULATOR(cuCtxSetCurrent)(current);
                ptr = block_of(home, KIB, kinds[k]);
                CHECK_EQ_PTR(driver_current(), current);
                if (kinds[k] != WARP_MEMORY_PINNED) {
                    CHECK_EQ_I64(pointer_info(ptr).ordinal, (int64_t)g);
                    CHECK_EQ_U64(SIMULATOR(warpsim_device_used)((int)!g), 0);
                }
                if (c == 3)
                    free_on_another_thread(ptr);
                else
                    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
                CHECK_EQ_PTR(driver_current(), current);
                CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
                CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kinds[k])), 0);
                CHECK_EQ_U64(SIMULATOR(warpsim_device_used)(0) + SIMULATOR(warpsim_device_used)(1), 0);
            }
    SIMULATOR(cuCtxSetCurrent)(NULL);
    CHECK_NOTHING_LEFT();
}

/* Native handle 2: another stream in each thread. */
static warp_stream *wrap_native(uint64_t native)
{
    warp_stream *stream = NULL;
    CHECK_STATUS(warp_stream_wrap(gpu(0), (void *)(uintptr_t)native, &stream), WARP_SUCCESS);
    return stream;
}

/* Holds a special stream, which means that of the current context. */
static void hold_special(uint64_t native)
{
    CUcontext before = driver_current();
    SIMULATOR(cuCtxSetCurrent)(context_of(gpu(0)));
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native), 0);
    SIMULATOR(cuCtxSetCurrent)(before);
}

static void per_thread_block(warp_memory_kind kind, int elsewhere, int other_use)
{
    warp_stream *mine = wrap_native(2), *busy = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    void *ptr = block_on(gpu(0), MIB, kind, mine);
    if (other_use) {
        CHECK_STATUS(warp_pointer_record_stream(ptr, busy), WARP_SUCCESS);
        hold(busy);
    } else {
        hold_special(2);
    }
    use_by_fill(ptr, mine);
    if (elsewhere)
        free_on_another_thread(ptr);
    else
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    look();
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kind)), 1);
    SIMULATOR(warpsim_release_all)();
    look();
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kind)), 0);
    CHECK_STATUS(warp_stream_release(mine), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(busy), WARP_SUCCESS);
}

TEST(a_block_of_the_threads_own_default_stream_may_be_freed_by_another_thread)
{
    int elsewhere, other_use;
    for (elsewhere = 0; elsewhere < 2; ++elsewhere)
        for (other_use = 0; other_use < 2; ++other_use) {
            per_thread_block(WARP_MEMORY_CUDA_MEMPOOL, elsewhere, other_use);
            per_thread_block(WARP_MEMORY_CUDA_DEVICE, elsewhere, other_use);
            per_thread_block(WARP_MEMORY_CUDA_MANAGED, elsewhere, other_use);
        }
    CHECK_NOTHING_LEFT();
}

TEST(the_threads_own_default_stream_needs_no_other)
{
    /* As in programs in which each thread allocates, uses and frees for itself. */
    warp_stream *mine = wrap_native(2);
    void *pool = block_on(gpu(0), MIB, WARP_MEMORY_CUDA_MEMPOOL, mine);
    void *plain = block_on(gpu(0), MIB, WARP_MEMORY_CUDA_DEVICE, mine);
    uint64_t frees = calls("cuMemFreeAsync"), marks;
    use_by_fill(pool, mine);
    use_by_fill(plain, mine);
    marks = calls("cuEventRecord") + calls("cuStreamWaitEvent");
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuMemFreeAsync"), frees + 1);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuEventRecord") + calls("cuStreamWaitEvent"), marks);
    CHECK_STATUS(warp_stream_release(mine), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

struct per_thread_use {
    warp_stream *stream;
    void *ptr;
};

static void *use_on_own_default_stream(void *argument)
{
    struct per_thread_use *use = (struct per_thread_use *)argument;
    hold_special(2);
    use_by_fill(use->ptr, use->stream);
    return NULL;
}

TEST(a_use_on_another_threads_own_default_stream_is_waited_for)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED};
    size_t i, released;
    for (i = 0; i < 3; ++i)
        for (released = 0; released < 2; ++released) {
            struct per_thread_use use;
            pthread_t thread;
            use.stream = wrap_native(2);
            use.ptr = block_of(gpu(0), MIB, kinds[i]);
            REQUIRE(pthread_create(&thread, NULL, use_on_own_default_stream, &use) == 0);
            pthread_join(thread, NULL);
            if (released)
                CHECK_STATUS(warp_stream_release(use.stream), WARP_SUCCESS);
            CHECK_STATUS(warp_free(use.ptr), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kinds[i])), 1);
            SIMULATOR(warpsim_release_all)();
            look();
            CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kinds[i])), 0);
            if (!released)
                CHECK_STATUS(warp_stream_release(use.stream), WARP_SUCCESS);
        }
    CHECK_NOTHING_LEFT();
}

TEST(the_legacy_stream_is_left_alone)
{
    /* A held legacy stream would stop every blocking stream of the context; frees go on. */
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), *other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    void *ptr = block_on(gpu(0), MIB, WARP_MEMORY_CUDA_MEMPOOL, stream);
    CHECK_STATUS(warp_pointer_record_stream(ptr, other), WARP_SUCCESS);
    hold_special(1);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 0);
    ptr = block_on(gpu(0), MIB, WARP_MEMORY_CUDA_MEMPOOL, stream);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 0);
    SIMULATOR(warpsim_release_all)();
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(a_block_on_the_wrapped_legacy_stream)
{
    warp_stream *legacy = wrap_native(1), *blocking = new_stream(gpu(0), 0);
    warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_DEVICE};
    size_t i;
    for (i = 0; i < 2; ++i) {
        void *ptr = block_on(gpu(0), MIB, kinds[i], legacy);
        hold(blocking);
        use_by_fill(ptr, legacy); /* waits for the blocking stream */
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kinds[i])), 1);
        let_go(blocking);
        look();
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(sim_kind(kinds[i])), 0);
    }
    CHECK_STATUS(warp_stream_release(legacy), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(blocking), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* ---- the end of the library --------------------------------------------------------------------------------------- */

TEST(shutdown_does_not_wait_and_loses_nothing_that_is_parked)
{
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    void *parked = block_on(gpu(0), MIB, WARP_MEMORY_CUDA_DEVICE, stream);
    void *plain = block_on(gpu(0), MIB, WARP_MEMORY_CUDA_DEVICE, stream);
    void *pool = block_on(gpu(0), MIB, WARP_MEMORY_CUDA_MEMPOOL, stream);
    void *pinned = block_of(cpu(), MIB, WARP_MEMORY_PINNED), *host = block_of(cpu(), MIB, WARP_MEMORY_HOST);
    CHECK_STATUS(warp_pointer_record_stream(pinned, stream), WARP_SUCCESS);
    SIMULATOR(warpsim_auto_release)(0); /* whoever waits, hangs */
    hold(stream);
    CHECK_STATUS(warp_free(parked), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pinned), WARP_SUCCESS);
    CHECK_STATUS(warp_free(host), WARP_SUCCESS);
    CHECK_STATUS(warp_free(plain), WARP_ERROR_DOUBLE_FREE);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 2);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pinned"), 1);
    SIMULATOR(warpsim_release_all)();
    SIMULATOR(warpsim_auto_release)(1);
    REQUIRE(start());
    look();
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pinned"), 0);
    CHECK_NOTHING_LEFT();
}

TEST(a_block_outlives_a_life_of_the_library)
{
    void *device = block_of(gpu(0), MIB, WARP_MEMORY_CUDA_DEVICE), *pool = block_of(gpu(0), MIB, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    REQUIRE(start());
    CHECK_EQ_I64(pointer_info(device).kind, WARP_MEMORY_CUDA_DEVICE);
    CHECK_EQ_U64(pointer_info(pool).size, MIB);
    put_pattern(device, KIB, 3);
    CHECK_EQ_U64(find_pattern(device, KIB, 3), KIB);
    CHECK_STATUS(warp_free(device), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
