/*
 * What only a real GPU proves about events and the order of streams: that time is measured and data arrives, on the other GPU
 * too where there is one, that events fork and join captures; and that a stream may be destroyed under its work. All of it runs
 * on the simulated driver as well.
 */
#include "hardware_capture.h"

/* ---- Events ----------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(events_measure_work_and_order_streams)
{
    const uint64_t size = 16 * MIB;
    warp_event_options timing = {.struct_size = sizeof timing, .flags = WARP_EVENT_TIMING};
    warp_event *first = NULL, *last = NULL;
    float milliseconds = -1;
    uint8_t done = 1;
    start();
    warp_stream *producer = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    void *source = block(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, producer);
    CHECK_STATUS(warp_event_create(gpu(0), &timing, &first), WARP_SUCCESS);
    CHECK_STATUS(warp_event_create(gpu(0), &timing, &last), WARP_SUCCESS);
    for (int far = 0; far < (gpus() > 1 ? 2 : 1); far++)
        for (int by_stream = 0; by_stream < 2; by_stream++) {
            unsigned char value = (unsigned char)(1 + far * 2 + by_stream);
            warp_stream *consumer = new_stream(gpu(far), WARP_STREAM_NON_BLOCKING);
            void *target = block(gpu(far), size, WARP_MEMORY_CUDA_DEVICE, consumer);
            fill(source, size, 0xee, producer);
            finish(producer);
            CHECK_STATUS(warp_event_record(first, producer), WARP_SUCCESS);
            keep_busy(producer);
            fill(source, size, value, producer);
            CHECK_STATUS(warp_event_record(last, producer), WARP_SUCCESS);
            CHECK_STATUS(warp_event_query_done(last, &done), WARP_SUCCESS);
            CHECK_EQ_I64(done, 0);
            CHECK_STATUS(warp_event_measure_elapsed(first, last, &milliseconds), WARP_ERROR_BUSY);
            if (by_stream)
                wait_for(consumer, producer);
            else
                CHECK_STATUS(warp_stream_wait_event(consumer, last), WARP_SUCCESS);
            copy(target, source, size, consumer);
            CHECK(device_holds(target, size, value, consumer));
            CHECK_STATUS(warp_event_query_done(last, &done), WARP_SUCCESS);
            CHECK_EQ_I64(done, 1);
            CHECK_STATUS(warp_event_measure_elapsed(first, last, &milliseconds), WARP_SUCCESS);
            printf("    %.3f ms measured\n", (double)milliseconds);
            CHECK(milliseconds > 0);
            CHECK_STATUS(warp_free(target), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(consumer), WARP_SUCCESS);
        }
    CHECK_STATUS(warp_free(source), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(first), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(last), WARP_SUCCESS);
}

PROCESS_TEST(events_fork_and_join_in_a_capture)
{
    const uint64_t size = MIB;
    warp_event *forked = NULL, *joined = NULL;
    start();
    warp_stream *a = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), *b = new_stream(gpu(0), 0);
    unsigned char *result = block(device("cpu"), 2 * size, WARP_MEMORY_PINNED, NULL);
    CHECK_STATUS(warp_event_create(gpu(0), NULL, &forked), WARP_SUCCESS);
    CHECK_STATUS(warp_event_create(gpu(0), NULL, &joined), WARP_SUCCESS);
    begin(a);
    char *ptr = pool_block(a, 2 * size);
    CHECK_STATUS(warp_event_record(forked, a), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(b, forked), WARP_SUCCESS);
    CHECK_EQ_I64(state_of(b), WARP_CAPTURE_STATE_ACTIVE);
    fill(ptr, size, 1, a);
    fill(ptr + size, size, 2, b);
    CHECK_STATUS(warp_event_record(joined, b), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(a, joined), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(joined), WARP_SUCCESS);
    copy(result, ptr, 2 * size, a);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    warp_graph *graph = end(a);
    for (int i = 0; i < 20; i++) {
        memset(result, 0, 2 * size);
        launch(graph, i % 2 ? a : b);
        finish(i % 2 ? a : b);
        CHECK(all_are(result, size, 1) && all_are(result + size, size, 2));
    }
    release(graph);
    CHECK_STATUS(warp_event_release(forked), WARP_SUCCESS);
    CHECK_STATUS(warp_free(result), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_left(0), 0);
}

/* ---- Streams that others may destroy ---------------------------------------------------------------------------------- */

PROCESS_TEST(an_untracked_stream_is_destroyed_under_its_work)
{
    start();
    warp_stream *looker = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    keep_busy(looker);
    finish(looker);
    for (int released_first = 0; released_first < 2; released_first++) {
        warp_stream_options options = {.struct_size = sizeof options, .flags = WARP_STREAM_UNTRACKED};
        warp_stream *stream = NULL;
        void *foreign = NULL, *event = NULL, *pool = NULL;
        uint64_t before = 0;
        REQUIRE(DEFAULT_POOL(&pool, 0) == SUCCESS);
        CHECK_EQ_I64(POOL_USED(pool, &before), SUCCESS);
        REQUIRE(CU((void **, unsigned), "cuStreamCreate")(&foreign, 1) == SUCCESS);
        REQUIRE(CU((void **, unsigned), "cuEventCreate")(&event, 2) == SUCCESS);
        REQUIRE_STATUS(warp_stream_wrap_with(gpu(0), foreign, &options, &stream), WARP_SUCCESS);
        void *pooled = pool_block(stream, MIB), *plain = block(gpu(0), MIB, WARP_MEMORY_CUDA_DEVICE, stream);
        keep_native_busy(foreign);
        fill(pooled, MIB, 1, stream);
        fill(plain, MIB, 2, stream);
        REQUIRE(EVENT_RECORD(event, foreign) == SUCCESS);
        if (released_first)
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_EQ_I64(CU((void *), "cuStreamDestroy_v2")(foreign), SUCCESS);
        CHECK_STATUS(warp_free(pooled), WARP_SUCCESS);
        CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
        CHECK(is_there(plain)); /* a pool block counts as freed once its free is queued */
        CHECK_EQ_I64(CU((void *), "cuEventQuery")(event), NOT_READY); /* else this shows nothing */
        CHECK_EQ_I64(CU((void *), "cuEventSynchronize")(event), SUCCESS);
        CHECK(goes(plain));
        CHECK_EQ_U64(pool_used_left(before), before);
        if (!released_first)
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_EQ_I64(CU((void *), "cuEventDestroy_v2")(event), SUCCESS);
    }
    CHECK_EQ_U64(live(gpu(0)), 0);
}

CHECK_MAIN()
