/*
 * event.c: events of the library and of others: what they wait for, across streams and GPUs, what they measure, who may
 * record them where, and how they end.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "blocks.h"
#include "driver_without.h"
#include "forked.h"
#include "process.h"

#include <pthread.h>
#include <time.h>
#include <warpmem.h>

typedef void *CUevent;
uint32_t cuEventCreate(CUevent *out, uint32_t flags);
uint32_t cuEventRecord(CUevent event, CUstream stream);
uint32_t cuEventQuery(CUevent event);
uint32_t cuEventDestroy_v2(CUevent event);

static warp_event *event_on(warp_device *on, uint32_t flags)
{
    warp_event_options options = {.struct_size = sizeof options, .flags = flags};
    warp_event *event = NULL;
    CHECK_STATUS(warp_event_create(on, &options, &event), WARP_SUCCESS);
    return event;
}

static warp_event_info event_info(warp_event *event)
{
    warp_event_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_event_get_info(event, &info), WARP_SUCCESS);
    return info;
}

static int done(warp_event *event)
{
    uint8_t answer = 9;
    CHECK_STATUS(warp_event_query_done(event, &answer), WARP_SUCCESS);
    return answer;
}

static int idle(warp_stream *stream)
{
    uint8_t answer = 9;
    CHECK_STATUS(warp_stream_query_idle(stream, &answer), WARP_SUCCESS);
    return answer;
}

static void record(warp_event *event, warp_stream *stream)
{
    CHECK_STATUS(warp_event_record(event, stream), WARP_SUCCESS);
}

static void hold(warp_stream *stream)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native_stream(stream)), 0);
}

static void let_go(warp_stream *stream)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_release)(native_stream(stream)), 0);
}

/* Nothing live, nothing that a real machine would punish, and nobody's context changed. The library's spare events stay. */
static void check_clean(size_t events)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("event"), events);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

/* ---- Making -------------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(an_event_is_what_was_asked_for)
{
    uint32_t flags;
    warp_event *event = NULL;
    warp_event_options options = {.struct_size = sizeof options, .flags = 4};
    start_on("h200x2");
    for (flags = 0; flags < 4; ++flags) {
        warp_event_info info;
        event = event_on(device("cuda:1"), flags);
        info = event_info(event);
        CHECK_EQ_PTR(info.device, device("cuda:1"));
        CHECK(info.native != NULL);
        CHECK_EQ_U64(info.flags, flags);
        CHECK_EQ_U64(info.is_owned, 1);
        CHECK(done(event));
        CHECK_STATUS(warp_event_synchronize(event), WARP_SUCCESS);
        CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
        CHECK_STATUS(warp_event_release(event), WARP_ERROR_INVALID_HANDLE);
    }
    CHECK_STATUS(warp_event_create(device("cuda:0"), &options, &event), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(event, NULL);
    options.flags = 0;
    options.reserved = 1;
    CHECK_STATUS(warp_event_create(device("cuda:0"), &options, &event), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_event_create(NULL, NULL, &event), WARP_SUCCESS);
    CHECK_EQ_PTR(event_info(event).device, device("cuda:0"));
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_event_create(NULL, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    check_clean(0);
}

PROCESS_TEST(an_event_that_the_driver_refuses_leaves_nothing)
{
    warp_event *event = (warp_event *)1;
    start_on("h200x2");
    SIMULATOR(warpsim_fail)("cuEventCreate", 1, 2);
    CHECK_STATUS(warp_event_create(device("cuda:0"), NULL, &event), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_PTR(event, NULL);
    event = event_on(device("cuda:0"), 0);
    SIMULATOR(warpsim_fail)("cuEventRecord", 1, 999);
    CHECK_STATUS(warp_event_record(event, NULL), WARP_ERROR_DRIVER);
    SIMULATOR(warpsim_fail)("cuEventQuery", 1, 999);
    uint8_t answer = 9;
    CHECK_STATUS(warp_event_query_done(event, &answer), WARP_ERROR_DRIVER);
    CHECK_EQ_U64(answer, 0);
    SIMULATOR(warpsim_fail)("cuEventSynchronize", 1, 719);
    CHECK_STATUS(warp_event_synchronize(event), WARP_ERROR_DEVICE_LOST);
    SIMULATOR(warpsim_fail)("cuStreamWaitEvent", 1, 999);
    CHECK_STATUS(warp_stream_wait_event(NULL, event), WARP_ERROR_DRIVER);
    CHECK(done(event));
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    check_clean(0);
}

/* ---- Waiting ------------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(an_event_is_reached_after_the_work_before_it)
{
    warp_stream *stream;
    warp_event *event;
    void *block;
    start_on("h200x2");
    stream = new_stream(device("cuda:1"), WARP_STREAM_NON_BLOCKING);
    event = event_on(device("cuda:1"), 0);
    block = block_on(device("cuda:1"), 4096, WARP_MEMORY_CUDA_MEMPOOL, stream);
    hold(stream);
    record(event, stream);
    CHECK(!done(event));
    let_go(stream);
    CHECK(done(event));
    /* Recorded anew, it counts for what came before the last record. */
    hold(stream);
    CHECK_STATUS(warp_memory_fill(block, 4096, "\7", 1, stream), WARP_SUCCESS);
    record(event, stream);
    CHECK(!done(event));
    CHECK_STATUS(warp_event_synchronize(event), WARP_SUCCESS);
    CHECK(done(event));
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    /* NULL is the current stream of the event's device, not of the default one. */
    CHECK_STATUS(warp_stream_set_current(device("cuda:1"), stream), WARP_SUCCESS);
    hold(stream);
    record(event, NULL);
    CHECK(!done(event));
    let_go(stream);
    CHECK(done(event));
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(a_stream_waits_for_an_event_of_any_device)
{
    int from, to;
    start_on("h200x2");
    for (from = 0; from < 2; ++from)
        for (to = 0; to < 2; ++to) {
            warp_stream *first = new_stream(gpu(from), WARP_STREAM_NON_BLOCKING);
            warp_stream *then = new_stream(gpu(to), WARP_STREAM_NON_BLOCKING);
            warp_event *event = event_on(gpu(from), 0);
            /* Before the first record there is nothing to wait for. */
            CHECK_STATUS(warp_stream_wait_event(then, event), WARP_SUCCESS);
            CHECK(idle(then));
            hold(first);
            record(event, first);
            CHECK_STATUS(warp_stream_wait_event(then, event), WARP_SUCCESS);
            CHECK(!idle(then));
            /* Neither a later record nor the end of the event changes what is waited for. */
            hold(first);
            record(event, first);
            CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
            CHECK(!idle(then));
            SIMULATOR(warpsim_release_all)();
            CHECK(idle(then));
            CHECK_STATUS(warp_stream_release(first), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(then), WARP_SUCCESS);
        }
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_stream_waits_for_another_stream)
{
    int from, to;
    start_on("h200x2");
    for (from = 0; from < 2; ++from)
        for (to = 0; to < 2; ++to) {
            warp_stream *first = new_stream(gpu(from), WARP_STREAM_NON_BLOCKING);
            warp_stream *then = new_stream(gpu(to), WARP_STREAM_NON_BLOCKING);
            hold(first);
            CHECK_STATUS(warp_stream_wait_stream(then, first), WARP_SUCCESS);
            CHECK(!idle(then));
            /* What comes on the first from now on is not waited for. */
            let_go(first);
            hold(first);
            CHECK(idle(then));
            let_go(first);
            CHECK_STATUS(warp_stream_release(first), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(then), WARP_SUCCESS);
        }
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_stream_does_not_wait_for_itself)
{
    warp_stream *one, *again = NULL, *legacy[2] = {NULL, NULL}, *per_thread[2] = {NULL, NULL};
    uint64_t records;
    size_t i;
    start_on("h200x2");
    one = new_stream(device("cuda:0"), 0);
    CHECK_STATUS(warp_stream_wrap(device("cuda:0"), stream_info(one).native, &again), WARP_SUCCESS);
    for (i = 0; i < 2; ++i) {
        CHECK_STATUS(warp_stream_wrap(device("cuda:0"), (void *)i, &legacy[i]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wrap(device("cuda:0"), (void *)2, &per_thread[i]), WARP_SUCCESS);
    }
    records = calls("cuEventRecord");
    CHECK_STATUS(warp_stream_wait_stream(one, one), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(one, again), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(legacy[0], legacy[1]), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(per_thread[0], per_thread[1]), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuEventRecord"), records);
    CHECK_STATUS(warp_stream_wait_stream(one, per_thread[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(per_thread[0], one), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuEventRecord"), records + 2);
    /* NULL is the current stream. */
    CHECK_STATUS(warp_stream_set_current(device("cuda:0"), one), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(NULL, one), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuEventRecord"), records + 2);
    CHECK_STATUS(warp_stream_wait_stream(one, NULL), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(the_special_streams_are_those_of_their_device)
{
    static const uintptr_t natives[] = {0, 1, 2};
    size_t i;
    start_on("h200x2");
    SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
    for (i = 0; i < 3; ++i) {
        warp_stream *special = NULL, *then = new_stream(device("cuda:0"), WARP_STREAM_NON_BLOCKING);
        warp_stream *held = new_stream(device("cuda:1"), 0);
        warp_event *event = event_on(device("cuda:1"), 0);
        CHECK_STATUS(warp_stream_wrap(device("cuda:1"), (void *)natives[i], &special), WARP_SUCCESS);
        hold(held);
        CHECK_STATUS(warp_stream_wait_stream(special, held), WARP_SUCCESS);
        record(event, special);
        CHECK(!done(event));
        CHECK_STATUS(warp_stream_wait_event(then, event), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wait_stream(then, special), WARP_SUCCESS);
        CHECK(!idle(then));
        let_go(held);
        CHECK(idle(then));
        CHECK(done(event));
        CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(special), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(held), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(then), WARP_SUCCESS);
    }
    CHECK_EQ_PTR(driver_current(), driver_primary(0));
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

/* ---- Devices ------------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(an_event_is_recorded_on_streams_of_its_own_device)
{
    warp_stream *other;
    warp_event *event, *host;
    uint64_t records;
    start_on("h200x2");
    other = new_stream(device("cuda:1"), 0);
    event = event_on(device("cuda:0"), 0);
    host = event_on(device("cpu"), 0);
    records = calls("cuEventRecord");
    CHECK_STATUS(warp_event_record(event, other), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:0\"");
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:1\"");
    CHECK_STATUS(warp_event_record(event, stream_of(device("cpu"))), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_event_record(host, other), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(calls("cuEventRecord"), records);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(host), WARP_SUCCESS);
    check_clean(0);
}

PROCESS_TEST(an_event_of_the_cpu_is_reached_at_once)
{
    warp_event *start, *end;
    warp_stream *stream;
    warp_event *of_gpu;
    float milliseconds = -1;
    uint64_t waits;
    struct timespec pause = {.tv_nsec = 2000000};
    start_on("h200x2");
    start = event_on(device("cpu"), WARP_EVENT_TIMING);
    end = event_on(device("cpu"), WARP_EVENT_TIMING);
    CHECK_EQ_PTR(event_info(start).native, NULL);
    CHECK_EQ_PTR(event_info(start).device, device("cpu"));
    CHECK_EQ_U64(event_info(start).flags, WARP_EVENT_TIMING);
    CHECK_EQ_U64(event_info(start).is_owned, 1);
    CHECK_STATUS(warp_event_measure_elapsed(start, end, &milliseconds), WARP_ERROR_INVALID_ARGUMENT);
    CHECK(milliseconds == 0);
    record(start, NULL);
    nanosleep(&pause, NULL);
    record(end, stream_of(device("cpu")));
    CHECK(done(start) && done(end));
    CHECK_STATUS(warp_event_synchronize(end), WARP_SUCCESS);
    CHECK_STATUS(warp_event_measure_elapsed(start, end, &milliseconds), WARP_SUCCESS);
    CHECK(milliseconds >= 2 && milliseconds < 60000);
    CHECK_STATUS(warp_event_measure_elapsed(end, start, &milliseconds), WARP_SUCCESS);
    CHECK(milliseconds <= -2);
    /* A GPU has nothing to wait for, and the CPU cannot wait inside its stream. */
    stream = new_stream(device("cuda:0"), 0);
    of_gpu = event_on(device("cuda:0"), 0);
    waits = calls("cuStreamWaitEvent");
    CHECK_STATUS(warp_stream_wait_event(stream, end), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(stream, stream_of(device("cpu"))), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(stream_of(device("cpu")), end), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(stream_of(device("cpu")), stream_of(device("cpu"))), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuStreamWaitEvent"), waits);
    CHECK_STATUS(warp_stream_wait_event(stream_of(device("cpu")), of_gpu), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_event_synchronize");
    CHECK_STATUS(warp_stream_wait_stream(stream_of(device("cpu")), stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_stream_synchronize");
    CHECK_STATUS(warp_event_release(of_gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(start), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(end), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_clean(1);
}

PROCESS_TEST(there_are_events_without_a_gpu)
{
    warp_event *event = NULL;
    setenv("WARPMEM_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    event = event_on(NULL, WARP_EVENT_TIMING);
    record(event, NULL);
    CHECK(done(event));
    CHECK_STATUS(warp_stream_wait_event(NULL, event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_wrap(NULL, (void *)64, &event), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cpu\"");
}

/* ---- Events of others ---------------------------------------------------------------------------------------------------- */

PROCESS_TEST(an_event_of_others_is_named_and_not_destroyed)
{
    CUevent native = NULL, foreign = NULL;
    warp_event *event = NULL, *wrong = NULL;
    warp_stream *stream;
    start_on("h200x2");
    SIMULATOR(cuCtxSetCurrent)(driver_primary(1));
    REQUIRE(SIMULATOR(cuEventCreate)(&native, 2) == 0);
    SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
    REQUIRE(SIMULATOR(cuEventCreate)(&foreign, 2) == 0);
    SIMULATOR(cuCtxSetCurrent)(NULL);
    CHECK_STATUS(warp_event_wrap(device("cuda:1"), NULL, &event), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_event_wrap(device("cpu"), native, &event), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(event, NULL);
    CHECK_STATUS(warp_event_wrap(device("cuda:1"), native, &event), WARP_SUCCESS);
    CHECK_EQ_PTR(event_info(event).native, native);
    CHECK_EQ_U64(event_info(event).is_owned, 0);
    CHECK_EQ_U64(event_info(event).flags, 0);
    stream = new_stream(device("cuda:1"), 0);
    hold(stream);
    /* Other code records it, and the library sees that. */
    CHECK_EQ_U64(SIMULATOR(cuEventRecord)(native, stream_info(stream).native), 0);
    CHECK(!done(event));
    let_go(stream);
    CHECK(done(event));
    /* An event of another context is only found out by using it. */
    CHECK_STATUS(warp_event_wrap(device("cuda:1"), foreign, &wrong), WARP_SUCCESS);
    CHECK_STATUS(warp_event_record(wrong, stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:1\"");
    CHECK_STATUS(warp_event_release(wrong), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuEventDestroy_v2)(native), 0);
    CHECK_EQ_U64(SIMULATOR(cuEventDestroy_v2)(foreign), 0);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_clean(1);
}

/* ---- Time ---------------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(time_is_measured_between_events)
{
    warp_stream *stream;
    warp_event *start, *end, *plain, *other;
    float milliseconds = -1;
    struct timespec pause = {.tv_nsec = 1000000};
    start_on("h200x2");
    stream = new_stream(device("cuda:0"), 0);
    start = event_on(device("cuda:0"), WARP_EVENT_TIMING);
    end = event_on(device("cuda:0"), WARP_EVENT_TIMING | WARP_EVENT_BLOCKING_SYNC);
    plain = event_on(device("cuda:0"), 0);
    other = event_on(device("cuda:1"), WARP_EVENT_TIMING);
    CHECK_STATUS(warp_event_measure_elapsed(start, end, &milliseconds), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "never recorded");
    CHECK(milliseconds == 0);
    record(start, stream);
    CHECK_STATUS(warp_event_measure_elapsed(start, start, &milliseconds), WARP_SUCCESS);
    CHECK(milliseconds == 0);
    hold(stream);
    record(end, stream);
    record(plain, stream);
    milliseconds = -1;
    CHECK_STATUS(warp_event_measure_elapsed(start, end, &milliseconds), WARP_ERROR_BUSY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_event_synchronize");
    CHECK(milliseconds == 0);
    nanosleep(&pause, NULL);
    let_go(stream);
    CHECK_STATUS(warp_event_synchronize(end), WARP_SUCCESS);
    CHECK_STATUS(warp_event_measure_elapsed(start, end, &milliseconds), WARP_SUCCESS);
    CHECK(milliseconds > 0 && milliseconds < 60000);
    CHECK_STATUS(warp_event_measure_elapsed(end, start, &milliseconds), WARP_SUCCESS);
    CHECK(milliseconds < 0);
    CHECK_STATUS(warp_event_measure_elapsed(start, plain, &milliseconds), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "WARP_EVENT_TIMING");
    CHECK_STATUS(warp_event_measure_elapsed(start, other, &milliseconds), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:1\"");
    CHECK_STATUS(warp_event_measure_elapsed(start, end, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_event_release(start), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(end), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(plain), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(other), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_clean(1);
}

PROCESS_TEST(a_driver_without_the_newer_call_measures_by_the_older_one)
{
    warp_event *start, *end;
    float milliseconds = -1;
    start_without("cuEventElapsedTime_v2");
    start = event_on(device("cuda:0"), WARP_EVENT_TIMING);
    end = event_on(device("cuda:0"), WARP_EVENT_TIMING);
    record(start, NULL);
    record(end, NULL);
    CHECK_STATUS(warp_event_synchronize(end), WARP_SUCCESS);
    CHECK_STATUS(warp_event_measure_elapsed(start, end, &milliseconds), WARP_SUCCESS);
    CHECK(milliseconds >= 0);
    CHECK_EQ_U64(calls("cuEventElapsedTime"), 1);
    CHECK_EQ_U64(calls("cuEventElapsedTime_v2"), 0);
}

PROCESS_TEST(a_driver_without_waiting_has_events_all_the_same)
{
    warp_event *event;
    start_without("cuEventSynchronize");
    event = event_on(device("cuda:0"), 0);
    record(event, NULL);
    CHECK(done(event));
    CHECK_STATUS(warp_event_synchronize(event), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "cuEventSynchronize");
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
}

/* ---- Ending -------------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(an_event_of_a_dead_context_says_that_its_device_is_lost)
{
    warp_event *event, *stays;
    warp_stream *stream, *other;
    uint8_t answer;
    float milliseconds;
    start_on("h200x2");
    stream = new_stream(device("cuda:0"), 0);
    other = new_stream(device("cuda:1"), 0);
    event = event_on(device("cuda:0"), WARP_EVENT_TIMING);
    stays = event_on(device("cuda:1"), 0);
    record(event, stream);
    record(stays, other);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    CHECK_STATUS(warp_event_record(event, NULL), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_event_query_done(event, &answer), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_event_synchronize(event), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_event_measure_elapsed(event, event, &milliseconds), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_stream_wait_event(other, event), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_stream_wait_event(stream, stays), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_stream_wait_stream(other, stream), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_stream_wait_stream(stream, other), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK(done(stays));
    CHECK_STATUS(warp_event_release(stays), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(a_dead_context_is_found_out_by_whoever_asks_first)
{
    int which;
    start_on("h200x2");
    for (which = 0; which < 6; ++which) {
        warp_device *lost = device("cuda:0");
        warp_stream *stream = new_stream(lost, 0), *other = new_stream(device("cuda:1"), 0);
        warp_event *event = event_on(lost, 0);
        uint8_t answer;
        record(event, stream);
        CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
        /* Another one takes its place, perhaps with the same handle. */
        driver_primary(0);
        switch (which) {
        case 0: CHECK_STATUS(warp_event_record(event, stream), WARP_ERROR_DEVICE_LOST); break;
        case 1: CHECK_STATUS(warp_event_query_done(event, &answer), WARP_ERROR_DEVICE_LOST); break;
        case 2: CHECK_STATUS(warp_event_synchronize(event), WARP_ERROR_DEVICE_LOST); break;
        case 3: CHECK_STATUS(warp_stream_wait_event(other, event), WARP_ERROR_DEVICE_LOST); break;
        case 4: CHECK_STATUS(warp_stream_wait_stream(other, stream), WARP_ERROR_DEVICE_LOST); break;
        default: break; /* its end */
        }
        CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
        CHECK(device("cuda:0") != lost);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(shutdown_makes_events_stale_and_destroys_them)
{
    warp_event *event, *host;
    warp_event_info info = {.struct_size = sizeof info};
    start_on("h200x2");
    event = event_on(device("cuda:0"), 0);
    host = event_on(device("cpu"), 0);
    record(event, NULL);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_event_get_info(event, &info), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_event_release(event), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_event_release(host), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_event_get_info(event, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "stale");
    CHECK_STATUS(warp_event_get_info((warp_event *)stream_of(device("cuda:0")), &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "of type stream");
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

static void check_in_child(void *events)
{
    warp_event **both = events;
    uint8_t answer = 9;
    float milliseconds;
    CHECK_STATUS(warp_event_record(both[0], NULL), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_event_query_done(both[0], &answer), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_event_synchronize(both[0]), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_event_release(both[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_event_record(both[1], NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_event_query_done(both[1], &answer), WARP_SUCCESS);
    CHECK_STATUS(warp_event_measure_elapsed(both[1], both[1], &milliseconds), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(both[1]), WARP_SUCCESS);
}

PROCESS_TEST(a_forked_child_has_the_cpus_events)
{
    warp_event *both[2];
    start_on("h200x2");
    both[0] = event_on(device("cuda:0"), 0);
    both[1] = event_on(device("cpu"), WARP_EVENT_TIMING);
    record(both[0], NULL);
    in_child(check_in_child, both, 60);
    CHECK(done(both[0]));
    CHECK_STATUS(warp_event_release(both[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(both[1]), WARP_SUCCESS);
}

/* ---- Threads ------------------------------------------------------------------------------------------------------------- */

static struct {
    warp_event *events[2];
} shared;

static void *use_events(void *stream)
{
    int i;
    for (i = 0; i < 400; ++i) {
        float milliseconds;
        uint8_t answer;
        warp_status status;
        warp_event *mine = shared.events[i & 1], *other = shared.events[~i & 1];
        CHECK_STATUS(warp_event_record(mine, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wait_event(stream, other), WARP_SUCCESS);
        CHECK_STATUS(warp_event_query_done(other, &answer), WARP_SUCCESS);
        CHECK_STATUS(warp_event_synchronize(mine), WARP_SUCCESS);
        status = i % 3 ? warp_event_measure_elapsed(mine, other, &milliseconds)
                       : warp_event_measure_elapsed(other, mine, &milliseconds);
        CHECK(status == WARP_SUCCESS || status == WARP_ERROR_BUSY || status == WARP_ERROR_INVALID_ARGUMENT);
    }
    return NULL;
}

PROCESS_TEST(threads_use_the_same_events)
{
    pthread_t threads[4];
    warp_stream *streams[4];
    size_t i;
    start_on("h200x2");
    for (i = 0; i < 2; ++i)
        shared.events[i] = event_on(device("cuda:0"), WARP_EVENT_TIMING);
    for (i = 0; i < 4; ++i) {
        streams[i] = new_stream(device("cuda:0"), WARP_STREAM_NON_BLOCKING);
        REQUIRE(pthread_create(&threads[i], NULL, use_events, streams[i]) == 0);
    }
    for (i = 0; i < 4; ++i) {
        pthread_join(threads[i], NULL);
        CHECK_STATUS(warp_stream_release(streams[i]), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_event_release(shared.events[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(shared.events[1]), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

CHECK_MAIN()
