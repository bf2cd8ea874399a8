/*
 * capture_hostile.c: callers who do what no sensible one does: two threads that end one capture, or begin one on a stream that is
 * just being released, captures of other code that end without a word, one handle for every thread's own default stream.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"

#include <pthread.h>

#define SIZE ((uint64_t)4096)

static void check_left_nothing(void)
{
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

/* ---- each thread's own default stream, by one handle ---- */

static warp_stream *own;

static void *capture_own(void *argument)
{
    warp_graph *graph = NULL;
    void *block;
    (void)argument;
    CHECK_EQ_I64(state_of(own), WARP_CAPTURE_STATE_NONE);
    CHECK_STATUS(warp_capture_end(own, &graph), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "no capture goes on");
    CHECK_STATUS(warp_stream_release(own), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    begin(own);
    block = alloc_on("cuda:0", own, SIZE);
    CHECK_STATUS(warp_capture_pause(own), WARP_SUCCESS);
    CHECK_EQ_I64(state_of(own), WARP_CAPTURE_STATE_PAUSED);
    CHECK_STATUS(warp_capture_resume(own), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_end(own, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    begin(own);
    CHECK_STATUS(warp_capture_abandon(own), WARP_SUCCESS);
    CHECK_EQ_I64(state_of(own), WARP_CAPTURE_STATE_NONE);
    return NULL;
}

PROCESS_TEST(two_threads_capture_their_own_default_streams_by_one_handle)
{
    int paused;
    start_on("h200x2");
    for (paused = 0; paused < 2; ++paused) {
        pthread_t other;
        CHECK_STATUS(warp_stream_wrap(device("cuda:0"), (void *)2, &own), WARP_SUCCESS);
        begin(own);
        if (paused)
            CHECK_STATUS(warp_capture_pause(own), WARP_SUCCESS);
        REQUIRE(pthread_create(&other, NULL, capture_own, NULL) == 0);
        pthread_join(other, NULL);
        CHECK_EQ_I64(state_of(own), paused ? WARP_CAPTURE_STATE_PAUSED : WARP_CAPTURE_STATE_ACTIVE);
        CHECK_STATUS(warp_graph_release(end(own)), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    }
    check_left_nothing();
}

CHECK_MAIN()
