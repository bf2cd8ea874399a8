/*
 * free_rounds.c: the order of frees, a thousand times over: streams that the device's default one does not wait for, native
 * handles that come again, blocks that streams of two GPUs used. What a stream is still to read stays as it was written,
 * and the events that it takes are used again.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "blocks.h"
#include "process.h"

#include <warpmem.h>

#define ROUNDS (check_under("valgrind") ? 100 : 1000)
#define SIZE (16 * KIB)

static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED};
#define KIND_COUNT (sizeof kinds / sizeof *kinds)

static CUstream make_native(int32_t ordinal)
{
    CUstream native = NULL;
    SIMULATOR(cuCtxSetCurrent)(driver_primary(ordinal));
    CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, 1), 0);
    SIMULATOR(cuCtxSetCurrent)(NULL);
    return native;
}

static void hold(CUstream native)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native), 0);
}

static void let_go(CUstream native)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_release)((uint64_t)(uintptr_t)native), 0);
}

static void fill(void *ptr, unsigned char byte, warp_stream *stream)
{
    CHECK_STATUS(warp_memory_fill(ptr, SIZE, &byte, 1, stream), WARP_SUCCESS);
}

/* Whether all of it is that byte, once everything is done. */
static int is_all(const void *ptr, unsigned char byte)
{
    unsigned char bytes[SIZE];
    size_t i;
    CHECK_EQ_U64(SIMULATOR(warpsim_peek)((uint64_t)(uintptr_t)ptr, bytes, SIZE), 0);
    for (i = 0; i < SIZE; ++i)
        if (bytes[i] != byte)
            return 0;
    return 1;
}

static void check_clean(void)
{
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block_of(gpu(0), KIB, WARP_MEMORY_CUDA_DEVICE)), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

/* ST-02: the default stream's implicit order does not cover a foreign non-blocking stream, which is the current one. */
PROCESS_TEST(a_foreign_stream_reads_what_it_was_given)
{
    CUstream native;
    warp_stream *foreign = NULL, *standard;
    int round;
    start_on("h200x2");
    native = make_native(0);
    standard = stream_of(gpu(0));
    REQUIRE_STATUS(warp_stream_wrap(gpu(0), native, &foreign), WARP_SUCCESS);
    for (round = 0; round < ROUNDS && check_failure_count() == 0; ++round) {
        warp_memory_kind kind = kinds[(size_t)round % KIND_COUNT];
        void *out = block_on(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE, standard), *first, *second;
        unsigned char byte = (unsigned char)(1 + round % 200);
        warp_scope *scope = NULL;
        CHECK_STATUS(warp_scope_begin_stream(gpu(0), foreign, &scope), WARP_SUCCESS);
        /* By turns of the foreign stream and of the default one, used on the foreign one at once. */
        first = block_on(gpu(0), SIZE, kind, round & 1 ? standard : NULL);
        fill(first, byte, NULL);
        hold(native);
        CHECK_STATUS(warp_memory_copy(out, first, SIZE, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
        CHECK_STATUS(warp_free(first), WARP_SUCCESS);
        second = block_of(gpu(0), SIZE, kind);
        CHECK(second != first);
        fill(second, 0xEE, NULL);
        let_go(native);
        CHECK_STATUS(warp_stream_synchronize(foreign), WARP_SUCCESS);
        CHECK(is_all(out, byte));
        CHECK_STATUS(warp_free(second), WARP_SUCCESS);
        CHECK_STATUS(warp_free(out), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_stream_release(foreign), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    check_clean();
}

/* ST-01: streams go before the blocks that they used, and the driver gives their handles to others: to streams of the
 * library, to streams of other code, tracked and not. */
static void free_after_streams(uint32_t flags)
{
    void *seen[64] = {NULL};
    int round, repeated = 0;
    start_on("h200x2");
    for (round = 0; round < ROUNDS && check_failure_count() == 0; ++round) {
        warp_memory_kind kind = kinds[(size_t)round % KIND_COUNT];
        warp_stream_options options = {.struct_size = sizeof options, .flags = flags};
        void *out = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE), *block;
        CUstream native = NULL, next = NULL;
        warp_stream *stream = NULL;
        size_t place = (size_t)round % 64, i;
        if (flags == WARP_STREAM_NON_BLOCKING) {
            CHECK_STATUS(warp_stream_create(gpu(0), &options, &stream), WARP_SUCCESS);
            native = stream_info(stream).native;
        } else {
            native = make_native(0);
            CHECK_STATUS(warp_stream_wrap_with(gpu(0), native, &options, &stream), WARP_SUCCESS);
        }
        for (i = 0; i < 64; ++i)
            repeated += seen[i] == native;
        seen[place] = native;
        block = block_on(gpu(0), SIZE, kind, stream);
        fill(block, 7, stream);
        hold(native);
        CHECK_STATUS(warp_memory_copy(out, block, SIZE, stream), WARP_SUCCESS);
        if (flags == WARP_STREAM_UNTRACKED) {
            CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        } else {
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            if (flags == 0)
                CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
        }
        next = make_native(0);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        {
            void *again = block_of(gpu(0), SIZE, kind);
            CHECK(again != block);
            fill(again, 0xEE, NULL);
            SIMULATOR(warpsim_release_all)();
            CHECK(is_all(out, 7));
            CHECK_STATUS(warp_free(again), WARP_SUCCESS);
        }
        CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(next), 0);
        CHECK_STATUS(warp_free(out), WARP_SUCCESS);
    }
    CHECK(repeated > 0);
    check_clean();
}

PROCESS_TEST(handles_of_own_streams_come_again) { free_after_streams(WARP_STREAM_NON_BLOCKING); }
PROCESS_TEST(handles_of_foreign_streams_come_again) { free_after_streams(0); }
PROCESS_TEST(handles_of_untracked_streams_come_again) { free_after_streams(WARP_STREAM_UNTRACKED); }

/* Events belong to contexts: none is recorded on a stream of another one, and one that could not be recorded lets nothing
 * go early. */
PROCESS_TEST(streams_of_two_gpus_use_a_block)
{
    warp_stream *streams[2];
    int round;
    start_on("h200x2");
    streams[0] = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    streams[1] = new_stream(gpu(1), WARP_STREAM_NON_BLOCKING);
    for (round = 0; round < ROUNDS && check_failure_count() == 0; ++round) {
        warp_memory_kind kind = kinds[(size_t)round % KIND_COUNT];
        int home = round / 3 & 1;
        const char *live = kind == WARP_MEMORY_CUDA_MEMPOOL ? "pool" : kind == WARP_MEMORY_CUDA_DEVICE ? "default" : "managed";
        void *block = block_on(gpu(home), SIZE, kind, streams[home]);
        fill(block, 1, streams[home]);
        CHECK_STATUS(warp_pointer_record_stream(block, streams[!home]), WARP_SUCCESS);
        hold(stream_info(streams[!home]).native);
        if (round % 5 == 0)
            SIMULATOR(warpsim_fail)("cuEventRecord", 1 + (uint64_t)(round / 5 % 2), 999);
        else
            SIMULATOR(warpsim_log_clear)();
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK(round % 5 == 0 || !SIMULATOR(warpsim_log_contains)("INVALID_HANDLE"));
        SIMULATOR(warpsim_fail_clear)();
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(live), 1);
        let_go(stream_info(streams[!home]).native);
        CHECK_STATUS(warp_stream_synchronize(streams[0]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(streams[1]), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)(live), 0);
    }
    CHECK_STATUS(warp_stream_release(streams[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(streams[1]), WARP_SUCCESS);
    check_clean();
}

/* The events that frees and waits need are taken from what each context has, and put back: thousands of them are made by a
 * handful of driver calls. */
PROCESS_TEST(events_are_used_again)
{
    warp_stream *streams[2][2];
    uint64_t made = 0, records;
    int round, g;
    start_on("h200x2");
    for (g = 0; g < 4; ++g)
        streams[g & 1][g >> 1] = new_stream(gpu(g & 1), WARP_STREAM_NON_BLOCKING);
    records = calls("cuEventRecord");
    for (round = 0; round < ROUNDS && check_failure_count() == 0; ++round) {
        void *block = block_on(gpu(round & 1), SIZE, kinds[(size_t)round % KIND_COUNT], streams[round & 1][0]);
        for (g = 0; g < 2; ++g) {
            hold(stream_info(streams[g][1]).native);
            CHECK_STATUS(warp_pointer_record_stream(block, streams[g][1]), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_wait_stream(streams[g][0], streams[!g][0]), WARP_SUCCESS);
        }
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        for (g = 0; g < 2; ++g)
            let_go(stream_info(streams[g][1]).native);
        for (g = 0; g < 4; ++g)
            CHECK_STATUS(warp_stream_synchronize(streams[g & 1][g >> 1]), WARP_SUCCESS);
        if (round == 10)
            made = calls("cuEventCreate");
    }
    CHECK(calls("cuEventRecord") - records >= 3 * ROUNDS);
    CHECK_EQ_U64(calls("cuEventCreate"), made);
    for (g = 0; g < 4; ++g)
        CHECK_STATUS(warp_stream_release(streams[g & 1][g >> 1]), WARP_SUCCESS);
    check_clean();
}

CHECK_MAIN()
