/*
 * Large copies where something is in the way: calls of the driver that fail, page-locked memory that is not to be had, captures,
 * contexts that die. The error is told, nothing is lost or used too early, and the next copy works.
 */
/* topology: h200x2,peers=0 */
/* needs: simulator */
#define _GNU_SOURCE
#include "pipelines.h"

#include <pthread.h>

#define SIZE (6 * MIB + 1001)
#define FAR (9 * MIB + 501)

/* ---- every call fails once ------------------------------------------------------------------------------------------ */

static const char *const entries[] = {
    "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxGetId", "cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing", "cuMemHostAlloc",
    "cuMemFreeHost", "cuMemcpyAsync", "cuMemcpyPeerAsync", "cuStreamQuery", "cuEventCreate", "cuEventRecord", "cuEventQuery",
    "cuEventSynchronize", "cuStreamWaitEvent", "cuStreamSynchronize", "cuPointerGetAttributes", "cuPointerGetAttribute",
    "cuStreamCreateWithPriority", "cuStreamGetId", "cuCtxGetStreamPriorityRange"};
#define ENTRIES (sizeof entries / sizeof *entries)

static const uint32_t codes[] = {2, 201, 999};
#define CODES (sizeof codes / sizeof *codes)

struct scene {
    warp_stream *streams[2];
    unsigned char *here, *there; /* on each GPU */
    unsigned char *source, *got, *expected;
};

static struct scene scene_of(void)
{
    struct scene scene;
    int i;
    for (i = 0; i < 2; ++i)
        scene.streams[i] = new_stream(gpu(i), WARP_STREAM_NON_BLOCKING);
    scene.here = (unsigned char *)block_on(gpu(0), FAR, WARP_MEMORY_CUDA_DEVICE, scene.streams[0]);
    scene.there = (unsigned char *)block_on(gpu(1), FAR, WARP_MEMORY_CUDA_MEMPOOL, scene.streams[1]);
    scene.source = (unsigned char *)malloc(FAR);
    scene.got = (unsigned char *)malloc(FAR);
    scene.expected = words_of(FAR, 1);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
    return scene;
}

static void end_of(struct scene *scene)
{
    int i;
    CHECK_STATUS(warp_free(scene->here), WARP_SUCCESS);
    CHECK_STATUS(warp_free(scene->there), WARP_SUCCESS);
    for (i = 0; i < 2; ++i)
        CHECK_STATUS(warp_stream_release(scene->streams[i]), WARP_SUCCESS);
    free(scene->source);
    free(scene->got);
    free(scene->expected);
}

static int told;

static int goes(warp_status status)
{
    if (status != WARP_SUCCESS) {
        ++told;
        CHECK(strlen(warp_error_get_message()) > 10);
    }
    return status == WARP_SUCCESS;
}

/* The order between the streams is the caller's to see to, also when the first try fails. */
static void put_in_order(warp_stream *stream, warp_stream *other)
{
    if (!goes(warp_stream_wait_stream(stream, other)))
        goes(warp_stream_wait_stream(stream, other));
}

/* Up, over, and down again; what said that it went has gone. */
static void play(struct scene *scene, uint64_t seed)
{
    warp_stream **s = scene->streams;
    int went;
    told = 0;
    write_words(scene->source, FAR, seed);
    memcpy(scene->expected, scene->source, FAR);
    memset(scene->got, 0, FAR);
    went = goes(warp_memory_copy(scene->here, scene->source, FAR, s[0]));
    memset(scene->source, 0xEE, FAR); /* nobody reads it any more, whatever became of the copy */
    put_in_order(s[1], s[0]);
    went &= goes(warp_memory_copy(scene->there, scene->here, FAR, s[1]));
    went &= goes(warp_memory_copy(scene->got, scene->there, SIZE, s[1]));
    if (went)
        CHECK_EQ_U64(differ_at(scene->got, scene->expected, SIZE), SIZE);
    /* Nor does anybody write this one. */
    memset(scene->got, 0x11, FAR);
    put_in_order(s[0], s[1]);
    goes(warp_stream_synchronize(s[1]));
    goes(warp_stream_synchronize(s[0]));
    SIMULATOR(warpsim_run)(0);
    CHECK(scene->got[0] == 0x11 && memcmp(scene->got, scene->got + 1, FAR - 1) == 0);
}

static int was_planned(void)
{
    return SIMULATOR(warpsim_log_total)() != 0 && SIMULATOR(warpsim_log_contains)("planned");
}

/* Whether nothing but its failure being told can be right. */
static int does_the_work(const char *entry)
{
    return strcmp(entry, "cuMemcpyAsync") == 0;
}

static void fail_once(struct scene *scene, const char *entry, uint64_t nth, uint32_t code, uint64_t seed)
{
    int failures = check_failure_count();
    CUcontext current = driver_current();
    SIMULATOR(warpsim_log_clear)();
    SIMULATOR(warpsim_fail)(entry, nth, code);
    play(scene, seed);
    if (was_planned() && does_the_work(entry))
        CHECK(told != 0);
    SIMULATOR(warpsim_fail_clear)();
    if (strcmp(entry, "cuCtxSetCurrent") != 0)
        CHECK_EQ_PTR(driver_current(), current);
    SIMULATOR(cuCtxSetCurrent)(current);
    play(scene, seed + 1);
    CHECK_EQ_I64(told, 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    if (check_failure_count() != failures) {
        size_t i;
        char line[300];
        printf("\n      call %" PRIu64 " of %s answered %u, seed %" PRIu64, nth, entry, code, seed);
        for (i = 0; i < SIMULATOR(warpsim_violation_count)(); ++i) {
            SIMULATOR(warpsim_violation_get)(i, line, sizeof line);
            printf("\n        %s", line);
        }
    }
}

static void every_call_fails(uint64_t schedule)
{
    const int watched = check_under("valgrind") || check_under("sanitizer");
    struct scene scene;
    uint64_t before[ENTRIES], counts[ENTRIES], nth, runs = 0, streams, events;
    size_t e, c;
    REQUIRE(start());
    SIMULATOR(warpsim_schedule)(schedule);
    if (schedule != 0)
        SIMULATOR(warpsim_races)(1);
    set_threads(4);
    scene = scene_of();
    play(&scene, 1);
    for (e = 0; e < ENTRIES; ++e)
        before[e] = calls(entries[e]);
    play(&scene, 2);
    REQUIRE(told == 0);
    for (e = 0; e < ENTRIES; ++e)
        counts[e] = calls(entries[e]) - before[e];
    streams = SIMULATOR(warpsim_live_count)("stream");
    events = SIMULATOR(warpsim_live_count)("event");
    for (e = 0; e < ENTRIES; ++e) {
        uint64_t most = counts[e] + 2, step = 1 + most / 4;
        if (watched)
            most = 1;
        for (nth = 1; nth <= most; nth += nth < 4 ? 1 : step)
            for (c = schedule != 0 || watched ? CODES - 1 : 0; c < CODES; ++c) {
                /* Half of the time nothing is there yet. */
                if (strcmp(entries[e], "cuCtxGetId") == 0 && codes[c] == 201)
                    continue; /* the device is lost then */
                if (runs % 2 == 1)
                    give_back_copy_buffers();
                fail_once(&scene, entries[e], nth, codes[c], ++runs * 2);
                if (check_failure_count() > 20)
                    return;
            }
    }
    CHECK(runs > (watched ? 15u : schedule != 0 ? 60u : 200u));
    /* Lanes and events are kept for later, as many as were in use at a time, and a few that nobody was sure of. */
    CHECK(SIMULATOR(warpsim_live_count)("stream") <= streams + 8);
    CHECK(SIMULATOR(warpsim_live_count)("event") <= events + 100);
    end_of(&scene);
    SIMULATOR(warpsim_schedule)(0);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(every_call_fails_once)
{
    every_call_fails(0);
}

PROCESS_TEST(every_call_fails_once_while_gpus_lag)
{
    if (check_under("valgrind"))
        return; /* the order of things is no other there */
    every_call_fails(23);
}

/* A driver that fails for good, from each call on: the calls come back, and so does the process. */
PROCESS_TEST(a_driver_that_fails_from_some_call_on)
{
    uint64_t calls_before;
    for (calls_before = 1; calls_before < 400; calls_before += 1 + calls_before * (check_under("valgrind") ? 16 : 1) / 8) {
        struct scene scene;
        fflush(stdout);
        if (fork() == 0) {
            alarm(60);
            REQUIRE(start());
            scene = scene_of();
            SIMULATOR(warpsim_fail_after)(calls_before, 999);
            play(&scene, 1);
            play(&scene, 2);
            warp_copy_set_threads(0);
            warp_shutdown();
            _exit(check_failure_count() == 0 ? 0 : 1);
        }
        {
            int status = 0;
            CHECK(wait(&status) > 0);
            CHECK_EQ_I64(status, 0);
            if (status != 0)
                printf("\n      after %" PRIu64 " calls", calls_before);
        }
    }
}

/* ---- no page-locked memory ------------------------------------------------------------------------------------------- */

PROCESS_TEST(without_page_locked_memory_the_driver_copies)
{
    struct scene scene;
    uint64_t peer;
    setenv("WARPSIM_TOPOLOGY", "h200x2,peers=0,pinned_limit=1MiB", 1);
    REQUIRE(start());
    scene = scene_of();
    peer = calls("cuMemcpyPeerAsync");
    play(&scene, 1);
    CHECK_EQ_I64(told, 0);
    CHECK_EQ_U64(kept_buffers(), 0);
    CHECK_EQ_U64(calls("cuMemcpyPeerAsync"), peer + 1);
    CHECK(calls("cuMemHostAlloc") != 0);
    end_of(&scene);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(with_little_page_locked_memory_a_few_buffers_do)
{
    struct scene scene;
    setenv("WARPSIM_TOPOLOGY", "h200x2,peers=0,pinned_limit=10MiB", 1);
    REQUIRE(start());
    if (threads() == 0)
        SKIP("needs copy threads");
    scene = scene_of();
    play(&scene, 1);
    CHECK_EQ_I64(told, 0);
    play(&scene, 2);
    CHECK_EQ_I64(told, 0);
    CHECK(kept_buffers() >= 1 && kept_buffers() <= 2);
    end_of(&scene);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(buffers_go_back_when_others_want_page_locked_memory)
{
    struct scene scene;
    void *block;
    setenv("WARPSIM_TOPOLOGY", "h200x2,peers=0,pinned_limit=40MiB", 1);
    REQUIRE(start());
    if (threads() == 0)
        SKIP("needs copy threads");
    scene = scene_of();
    play(&scene, 1);
    CHECK_EQ_I64(told, 0);
    CHECK(kept_buffers() >= 2);
    block = block_of(cpu(), 38 * MIB, WARP_MEMORY_PINNED);
    CHECK_EQ_U64(kept_buffers(), 1); /* the caller's */
    play(&scene, 2);
    CHECK_EQ_I64(told, 0);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    play(&scene, 3);
    CHECK_EQ_I64(told, 0);
    CHECK(kept_buffers() >= 2);
    end_of(&scene);
    CHECK_NOTHING_LEFT();
}

/* ---- captures -------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(in_a_capture_the_driver_copies)
{
    unsigned char *device, *source, *got;
    warp_stream *stream;
    warp_graph *graph = NULL;
    REQUIRE(start());
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    device = (unsigned char *)block_on(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE, stream);
    source = words_of(SIZE, 1);
    REQUIRE_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
    copy(device, source, SIZE, stream);
    CHECK_EQ_U64(kept_buffers(), 0);
    REQUIRE_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    write_words(source, SIZE, 2); /* read in each run */
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    synchronize(stream);
    got = fetched(device, SIZE, stream);
    CHECK_EQ_U64(differ_at(got, source, SIZE), SIZE);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_free(device), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    free(source);
    free(got);
    CHECK_NOTHING_LEFT();
}

/* A thread that captures, in the strictest mode, and copies on another stream at the same time; buffers are there or not. */
PROCESS_TEST(beside_a_capture)
{
    struct scene scene;
    warp_stream *captured;
    warp_graph *graph = NULL;
    int round;
    REQUIRE(start());
    scene = scene_of();
    captured = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    for (round = 0; round < 3; ++round) {
        REQUIRE_STATUS(warp_capture_begin(captured, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
        play(&scene, (uint64_t)round);
        CHECK_EQ_I64(told, 0);
        CHECK_STATUS(warp_memory_fill(scene.here, 10, "x", 1, captured), WARP_SUCCESS);
        CHECK_STATUS(warp_capture_end(captured, &graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        if (round == 0) {
            play(&scene, 9);
            CHECK_EQ_I64(told, 0);
        }
    }
    CHECK_STATUS(warp_stream_release(captured), WARP_SUCCESS);
    end_of(&scene);
    CHECK_NOTHING_LEFT();
}

static int go_on = 1;
static uint64_t copied;

static void *copy_until_told(void *argument)
{
    struct scene *scene = (struct scene *)argument;
    while (__atomic_load_n(&go_on, __ATOMIC_SEQ_CST)) {
        warp_status up, over, down;
        up = warp_memory_copy(scene->here, scene->source, SIZE, scene->streams[0]);
        over = warp_memory_copy(scene->there, scene->here, FAR, scene->streams[0]);
        down = warp_memory_copy(scene->got, scene->here, SIZE, scene->streams[0]);
        CHECK(up == WARP_SUCCESS || up == WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK(over == WARP_SUCCESS || over == WARP_ERROR_ILLEGAL_IN_CAPTURE || over == WARP_ERROR_ACCESS_DENIED);
        CHECK(down == WARP_SUCCESS || down == WARP_ERROR_ILLEGAL_IN_CAPTURE);
        if (up == WARP_SUCCESS)
            __atomic_fetch_add(&copied, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

/* Captures of the very stream that another thread copies on: none of them is broken. */
PROCESS_TEST(captures_that_begin_in_the_middle)
{
    struct scene scene;
    pthread_t other;
    const int rounds = check_under("valgrind") ? 20 : 400;
    int round;
    REQUIRE(start());
    scene = scene_of();
    write_words(scene.source, FAR, 1);
    REQUIRE(pthread_create(&other, NULL, copy_until_told, &scene) == 0);
    /* On a busy machine the other thread may be a while in coming. */
    for (round = 0; round < rounds || (__atomic_load_n(&copied, __ATOMIC_SEQ_CST) == 0 && round < 1000 * rounds); ++round) {
        warp_graph *graph = NULL;
        CHECK_STATUS(warp_capture_begin(scene.streams[0], WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
        if (round % 3 == 0)
            usleep(200);
        CHECK_STATUS(warp_capture_end(scene.streams[0], &graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        usleep(round % 7 * 100);
        if (check_failure_count() > 10)
            break;
    }
    __atomic_store_n(&go_on, 0, __ATOMIC_SEQ_CST);
    REQUIRE(pthread_join(other, NULL) == 0);
    CHECK(copied != 0);
    play(&scene, 5);
    CHECK_EQ_I64(told, 0);
    end_of(&scene);
    CHECK_NOTHING_LEFT();
}

/* ---- contexts that die ------------------------------------------------------------------------------------------------ */

PROCESS_TEST(a_context_that_dies_takes_its_lanes_and_buffers_along)
{
    int dead;
    REQUIRE(start());
    for (dead = 0; dead < 2; ++dead) {
        struct scene scene = scene_of(), after;
        play(&scene, 1);
        CHECK_EQ_I64(told, 0);
        REQUIRE(SIMULATOR(warpsim_reset_device)(dead) == 0);
        play(&scene, 2);
        CHECK(told != 0); /* lost, and nothing is touched that is gone */
        end_of(&scene); /* before its addresses are others' */
        after = scene_of();
        play(&after, 3);
        CHECK_EQ_I64(told, 0);
        play(&after, 4);
        CHECK_EQ_I64(told, 0);
        end_of(&after);
    }
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
