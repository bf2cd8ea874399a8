/*
 * What only a real GPU proves about functions that streams call: that they are called in order, in each run of a graph and not after
 * it is gone, and that calls of the library from within one come back. Runs on one GPU or more, and on the simulated driver as well.
 */
#include "hardware_capture.h"

struct seen {
    unsigned char *host;
    uint64_t size;
    int calls, wrong, releases;
    unsigned char expected;
};

/* What the copy before it brought is there, and the copy behind it takes what this writes. */
static void look_and_write(void *user)
{
    struct seen *seen = user;
    if (!all_are(seen->host, seen->size, seen->expected))
        __atomic_add_fetch(&seen->wrong, 1, __ATOMIC_SEQ_CST);
    memset(seen->host, 77, seen->size);
    __atomic_add_fetch(&seen->calls, 1, __ATOMIC_SEQ_CST);
}

static void gone(void *user)
{
    __atomic_add_fetch(&((struct seen *)user)->releases, 1, __ATOMIC_SEQ_CST);
}

static int comes_to(int *number, int value)
{
    double begun = now();
    while (__atomic_load_n(number, __ATOMIC_SEQ_CST) != value && now() - begun < PATIENCE)
        usleep(1000);
    return __atomic_load_n(number, __ATOMIC_SEQ_CST) == value;
}

PROCESS_TEST(functions_are_called_in_order_and_in_each_run)
{
    const uint64_t size = 4 * MIB;
    struct seen seen = {.size = size, .expected = 5};
    warp_graph *graph;
    start();
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    void *ptr = pool_block(stream, size);
    seen.host = block(device("cpu"), size, WARP_MEMORY_PINNED, NULL);
    for (int captured = 0; captured < 2; captured++) {
        seen.calls = seen.releases = 0;
        keep_busy(stream);
        if (captured)
            begin(stream);
        fill(ptr, size, 5, stream);
        copy(seen.host, ptr, size, stream);
        CHECK_STATUS(warp_stream_host_call(stream, look_and_write, &seen, gone), WARP_SUCCESS);
        copy(ptr, seen.host, size, stream);
        if (!captured) {
            CHECK_EQ_I64(seen.calls, 0);
            finish(stream);
            CHECK_EQ_I64(seen.calls, 1);
            CHECK(comes_to(&seen.releases, 1));
        } else {
            graph = end(stream);
            for (int run = 0; run < 20; run++)
                CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            finish(stream);
            CHECK_EQ_I64(seen.calls, 20);
            /* Found out by a call that looks. */
            finish(stream);
            CHECK(comes_to(&seen.releases, 1));
        }
        CHECK_EQ_I64(seen.wrong, 0);
        CHECK(device_holds(ptr, size, 77, stream));
    }
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(seen.host), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

/* What a call from within a function answered; -1 for one that has not come back. */
struct attempt {
    const char *name;
    warp_status status;
    double seconds;
};

static struct {
    warp_stream *stream, *other;
    warp_event *event;
    warp_graph *graph;
    void *ptr, *plain, *host;
    struct attempt attempts[16];
    int count, done;
} within;

#define ATTEMPT(call)                                              \
    do {                                                           \
        struct attempt *attempt = &within.attempts[within.count++]; \
        double begun = now();                                      \
        attempt->name = #call;                                     \
        attempt->status = -1;                                      \
        attempt->status = (call);                                  \
        attempt->seconds = now() - begun;                          \
    } while (0)

static void try_calls(void *user)
{
    void *found = NULL;
    uint8_t idle = 0;
    (void)user;
    /* Of the CPU alone. */
    for (int i = 0; i < 40; i++) {
        void *mine = NULL;
        CHECK_STATUS(warp_alloc(device("cpu"), 4096, &mine), WARP_SUCCESS);
        fill(mine, 4096, 3, NULL);
        copy(within.host, mine, 4096, NULL);
        CHECK_STATUS(warp_free(mine), WARP_SUCCESS);
    }
    /* Not such that wait for this stream, which the driver may let wait for ever. */
    ATTEMPT(warp_alloc(gpu(0), 4096, &found));
    ATTEMPT(warp_stream_query_idle(within.other, &idle));
    ATTEMPT(warp_memory_fill(within.ptr, 16, "\1", 1, within.other));
    ATTEMPT(warp_event_record(within.event, within.other));
    ATTEMPT(warp_capture_begin(within.other, WARP_CAPTURE_RELAXED));
    ATTEMPT(warp_graph_launch(within.graph, within.other));
    ATTEMPT(warp_free(within.plain));
    within.done = 1;
}

PROCESS_TEST(calls_from_within_a_function_come_back)
{
    const uint64_t size = 1 * MIB;
    warp_event_options plain = {.struct_size = sizeof plain};
    void *parked[8];
    start();
    within.stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    within.other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    warp_stream *busy = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    CHECK_STATUS(warp_event_create(gpu(0), &plain, &within.event), WARP_SUCCESS);
    within.ptr = pool_block(within.other, size);
    within.plain = block(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, within.other);
    within.host = block(device("cpu"), 4096, WARP_MEMORY_HOST, NULL);
    begin(within.other);
    fill(within.ptr, size, 1, within.other);
    within.graph = end(within.other);
    CHECK_STATUS(warp_graph_launch(within.graph, within.other), WARP_SUCCESS);
    finish(within.other);
    keep_busy(busy);
    for (int i = 0; i < 8; i++) {
        parked[i] = block(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, busy);
        fill(parked[i], size, 1, busy);
        CHECK_STATUS(warp_free(parked[i]), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_stream_host_call(within.stream, try_calls, NULL, NULL), WARP_SUCCESS);
    CHECK(comes_to(&within.done, 1));
    for (int i = 0; i < within.count; i++) {
        struct attempt *attempt = &within.attempts[i];
        printf("\n    %-70s %d %s, %.1f us", attempt->name, attempt->status, warp_status_get_name(attempt->status),
               attempt->seconds * 1e6);
        CHECK(attempt->status != -1);
    }
    finish(within.stream);
    finish(busy);
    /* What was refused there is done here, and nothing was lost. */
    CHECK(all_are(within.host, 4096, 3));
    CHECK_STATUS(warp_graph_launch(within.graph, within.other), WARP_SUCCESS);
    CHECK(device_holds(within.ptr, size, 1, within.other));
    if (within.attempts[6].status != WARP_SUCCESS)
        CHECK_STATUS(warp_free(within.plain), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(within.graph), WARP_SUCCESS);
    CHECK_STATUS(warp_free(within.ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(within.host), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
}

CHECK_MAIN()
