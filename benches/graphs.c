/*
 * What captures, graphs and events cost beside the bare driver, in one run. Runs on a GPU or on the simulated driver, whichever
 * is found; figures of the latter say nothing about a GPU.
 *
 *     graphs [rounds]
 *
 * Raw calls and ours are timed in turn, round by round, and take turns at being first; medians and 99th percentiles over the
 * rounds are printed, with what the difference is held to. Differences are medians of each round's own.
 */
#define _GNU_SOURCE
#include "rounds.h"

#include <inttypes.h>

static int rounds = 101;

/* The driver's own calls, as other code makes them. */
typedef void *handle;
static struct {
    int (*set_current)(handle);
    int (*context_id)(handle, unsigned long long *);
    int (*stream_create)(handle *, unsigned);
    int (*stream_sync)(handle);
    int (*capturing)(handle, int *);
    int (*exchange)(int *);
    int (*alloc)(uint64_t *, size_t, handle);
    int (*free)(uint64_t, handle);
    int (*fill)(uint64_t, unsigned char, size_t, handle);
    int (*default_pool)(handle *, int);
    int (*pool_set)(handle, int, void *);
    int (*event_create)(handle *, unsigned);
    int (*event_record)(handle, handle);
    int (*event_query)(handle);
    int (*wait_event)(handle, handle, unsigned);
    int (*begin)(handle, int);
    int (*end)(handle, handle *);
    int (*instantiate)(handle *, handle, unsigned long long);
    int (*launch)(handle, handle);
    int (*exec_destroy)(handle);
    int (*graph_destroy)(handle);
} cu;

enum { THREAD_LOCAL = 1, RELAXED = 2, RELEASE_THRESHOLD = 4, AUTO_FREE_ON_LAUNCH = 1, DISABLE_TIMING = 2 };

static void find_driver(void)
{
    const struct {
        void *entry;
        const char *name;
    } all[] = {{&cu.set_current, "cuCtxSetCurrent"},
               {&cu.context_id, "cuCtxGetId"},
               {&cu.stream_create, "cuStreamCreate"},
               {&cu.stream_sync, "cuStreamSynchronize"},
               {&cu.capturing, "cuStreamIsCapturing"},
               {&cu.exchange, "cuThreadExchangeStreamCaptureMode"},
               {&cu.alloc, "cuMemAllocAsync"},
               {&cu.free, "cuMemFreeAsync"},
               {&cu.fill, "cuMemsetD8Async"},
               {&cu.default_pool, "cuDeviceGetDefaultMemPool"},
               {&cu.pool_set, "cuMemPoolSetAttribute"},
               {&cu.event_create, "cuEventCreate"},
               {&cu.event_record, "cuEventRecord"},
               {&cu.event_query, "cuEventQuery"},
               {&cu.wait_event, "cuStreamWaitEvent"},
               {&cu.begin, "cuStreamBeginCapture_v2"},
               {&cu.end, "cuStreamEndCapture"},
               {&cu.instantiate, "cuGraphInstantiateWithFlags"},
               {&cu.launch, "cuGraphLaunch"},
               {&cu.exec_destroy, "cuGraphExecDestroy"},
               {&cu.graph_destroy, "cuGraphDestroy"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *found = driver_entry(all[i].name);
        memcpy(all[i].entry, &found, sizeof found);
    }
}

static void check(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "%s: the driver says %d\n", what, code);
        exit(1);
    }
}
#define CHECK(call) check((call), #call)

/* ---- Rounds, and what is told of them ---------------------------------------------------------------------------------- */

/* One of two ways to do a thing: the nanoseconds that it took this time, for each of how often it does it. */
typedef double (*way)(long argument);

struct result {
    double raw, ours, over, share;
};

/* Times two ways round by round and prints a row. What is held to is nanoseconds over raw, or per cent, or nothing. */
static struct result compare(const char *what, way raw, way ours, long argument, double most_ns, double most_percent)
{
    double *times[2], *over;
    struct result result;
    int n = rounds;
    for (int i = 0; i < 2; i++)
        times[i] = calloc((size_t)n, sizeof **times);
    over = calloc((size_t)n, sizeof *over);
    for (int r = -2; r < n; r++) {
        double took[2];
        for (int i = 0; i < 2; i++) {
            int which = (r & 1) ^ i;
            took[which] = (which ? ours : raw)(argument);
        }
        if (r < 0)
            continue; /* warm-up */
        times[0][r] = took[0];
        times[1][r] = took[1];
        over[r] = took[1] - took[0];
    }
    result.raw = quantile(times[0], n, .5);
    result.ours = quantile(times[1], n, .5);
    result.over = quantile(over, n, .5);
    result.share = 100 * result.over / result.raw;
    double unit = result.raw < 20000 ? 1 : 1000;
    printf("%-62s raw %8.1f %s (p99 %.1f), ours %8.1f (p99 %.1f); over raw %.0f ns, %.1f %%", what, result.raw / unit,
           unit == 1 ? "ns" : "us", quantile(times[0], n, .99) / unit, result.ours / unit, quantile(times[1], n, .99) / unit,
           result.over, result.share);
    if (most_ns > 0)
        printf("   held to %.0f ns: %s", most_ns, result.over <= most_ns ? "met" : "MISSED");
    if (most_percent > 0)
        printf("   held to %.0f %%: %s", most_percent, result.share <= most_percent ? "met" : "MISSED");
    printf("\n");
    fflush(stdout);
    record("graphs", "driver", what, "ns", times[0], n);
    record("graphs", "warpmem", what, "ns", times[1], n);
    free(times[0]), free(times[1]), free(over);
    return result;
}

/* ---- What all use ------------------------------------------------------------------------------------------------------ */

enum { STREAMS = 4 };
static warp_device *device;
static handle context, native[STREAMS];
static warp_stream *stream[STREAMS];

static void *alloc_on(int s, size_t size)
{
    warp_alloc_options options = {.struct_size = sizeof options, .stream = stream[s], .kind = WARP_MEMORY_CUDA_MEMPOOL};
    void *ptr = NULL;
    MUST(warp_alloc_with(device, size, &options, &ptr));
    return ptr;
}

static void sync_all(void)
{
    for (int s = 0; s < STREAMS; s++)
        CHECK(cu.stream_sync(native[s]));
}

static void prepare(void)
{
    handle pool = NULL;
    uint64_t keep_all = UINT64_MAX;
    MUST(warp_device_get("cuda:0", &device));
    MUST(warp_device_get_native_context(device, &context));
    CHECK(cu.set_current(context));
    CHECK(cu.default_pool(&pool, 0));
    CHECK(cu.pool_set(pool, RELEASE_THRESHOLD, &keep_all));
    for (int s = 0; s < STREAMS; s++) {
        CHECK(cu.stream_create(&native[s], 1));
        MUST(warp_stream_wrap(device, native[s], &stream[s]));
    }
}

/* ---- Graphs ------------------------------------------------------------------------------------------------------------ */

enum { TRIPLES = 100, LAUNCHES = 50 };
static const size_t triple_size = 65536;

static handle raw_capture(void)
{
    handle graph = NULL;
    uint64_t p;
    CHECK(cu.begin(native[0], THREAD_LOCAL));
    for (int i = 0; i < TRIPLES; i++) {
        CHECK(cu.alloc(&p, triple_size, native[0]));
        CHECK(cu.fill(p, 1, triple_size, native[0]));
        CHECK(cu.free(p, native[0]));
    }
    CHECK(cu.end(native[0], &graph));
    return graph;
}

static warp_graph *our_capture(void)
{
    warp_graph *graph = NULL;
    unsigned char one = 1;
    MUST(warp_capture_begin(stream[0], WARP_CAPTURE_THREAD_LOCAL));
    for (int i = 0; i < TRIPLES; i++) {
        void *p = alloc_on(0, triple_size);
        MUST(warp_memory_fill(p, triple_size, &one, 1, stream[0]));
        MUST(warp_free(p));
    }
    MUST(warp_capture_end(stream[0], &graph));
    return graph;
}

static handle raw_instantiate(handle graph)
{
    handle exec = NULL;
    CHECK(cu.instantiate(&exec, graph, AUTO_FREE_ON_LAUNCH));
    return exec;
}

/* Argument 0 times the capture, 1 what makes it ready and launches it first. */
static double raw_make(long first_launch)
{
    double a = now();
    handle graph = raw_capture();
    double b = now();
    handle exec = raw_instantiate(graph);
    CHECK(cu.launch(exec, native[0]));
    double c = now();
    CHECK(cu.stream_sync(native[0]));
    CHECK(cu.exec_destroy(exec));
    CHECK(cu.graph_destroy(graph));
    return first_launch ? c - b : b - a;
}

static double our_make(long first_launch)
{
    double a = now();
    warp_graph *graph = our_capture();
    double b = now();
    MUST(warp_graph_launch(graph, stream[0]));
    double c = now();
    CHECK(cu.stream_sync(native[0]));
    MUST(warp_graph_release(graph));
    return first_launch ? c - b : b - a;
}

static handle raw_exec;
static warp_graph *our_graph;

/* The call alone, on a stream that has nothing to do. The first of a turn is not counted: between two graphs the driver maps
 * memory anew. */
static double raw_launch_idle(long times)
{
    double took = 0;
    for (long i = -1; i < times; i++) {
        double a = now();
        CHECK(cu.launch(raw_exec, native[0]));
        double b = now();
        CHECK(cu.stream_sync(native[0]));
        took += i < 0 ? 0 : b - a;
    }
    return took / (double)times;
}

static double our_launch_idle(long times)
{
    double took = 0;
    for (long i = -1; i < times; i++) {
        double a = now();
        MUST(warp_graph_launch(our_graph, stream[0]));
        double b = now();
        CHECK(cu.stream_sync(native[0]));
        took += i < 0 ? 0 : b - a;
    }
    return took / (double)times;
}

static double raw_launch_many(long times)
{
    CHECK(cu.launch(raw_exec, native[0]));
    CHECK(cu.stream_sync(native[0]));
    double a = now();
    for (long i = 0; i < times; i++)
        CHECK(cu.launch(raw_exec, native[0]));
    CHECK(cu.stream_sync(native[0]));
    return now() - a;
}

static double our_launch_many(long times)
{
    MUST(warp_graph_launch(our_graph, stream[0]));
    CHECK(cu.stream_sync(native[0]));
    double a = now();
    for (long i = 0; i < times; i++)
        MUST(warp_graph_launch(our_graph, stream[0]));
    CHECK(cu.stream_sync(native[0]));
    return now() - a;
}

static void bench_graphs(void)
{
    compare("capture of 100 alloc, fill, free:", raw_make, our_make, 0, 0, 0);
    compare("instantiate and first launch of it:", raw_make, our_make, 1, 0, 0);
    handle graph = raw_capture();
    raw_exec = raw_instantiate(graph);
    our_graph = our_capture();
    compare("launch of it, the call on an idle stream:", raw_launch_idle, our_launch_idle, 10, 0, 3);
    compare("50 launches of it and one synchronize:", raw_launch_many, our_launch_many, LAUNCHES, 0, 3);
    MUST(warp_graph_release(our_graph));
    CHECK(cu.exec_destroy(raw_exec));
    CHECK(cu.graph_destroy(graph));
}

/* ---- The guard of captures --------------------------------------------------------------------------------------------- */

enum { PAIRS = 2000 };

static double raw_pairs(long with_context)
{
    uint64_t p;
    (void)with_context;
    double a = now();
    for (int i = 0; i < PAIRS; i++) {
        cu.alloc(&p, 65536, native[0]);
        cu.free(p, native[0]);
    }
    double took = (now() - a) / PAIRS;
    CHECK(cu.stream_sync(native[0]));
    return took;
}

/* The calls that keep a pair from breaking, or joining, somebody's capture; and, beside them, those that keep it from naming a
 * stream of a context that is gone. */
static double guarded_pairs(long with_context)
{
    uint64_t p;
    unsigned long long id;
    double a = now();
    for (int i = 0; i < PAIRS; i++) {
        int mode = RELAXED, status;
        if (with_context)
            cu.context_id(context, &id);
        cu.capturing(native[0], &status);
        cu.exchange(&mode);
        cu.alloc(&p, 65536, native[0]);
        cu.exchange(&mode);
        mode = RELAXED;
        if (with_context)
            cu.context_id(context, &id);
        cu.exchange(&mode);
        cu.free(p, native[0]);
        cu.exchange(&mode);
    }
    double took = (now() - a) / PAIRS;
    CHECK(cu.stream_sync(native[0]));
    return took;
}

static void bench_guard(void)
{
    compare("pair of 64 KiB, with the driver calls of the capture guard:", raw_pairs, guarded_pairs, 0, 80, 0);
    compare("pair of 64 KiB, with those and the context's id:", raw_pairs, guarded_pairs, 1, 0, 0);
}

/* ---- Frees of what was used -------------------------------------------------------------------------------------------- */

enum { BLOCKS = 200 };
static handle marks[STREAMS];

/* Frees of blocks that so many streams filled, their own first. */
static double raw_free_used(long streams)
{
    uint64_t all[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        CHECK(cu.alloc(&all[i], 65536, native[0]));
    sync_all();
    for (int i = 0; i < BLOCKS; i++)
        for (int s = 0; s < streams; s++)
            CHECK(cu.fill(all[i], 1, 65536, native[s]));
    sync_all();
    double a = now();
    for (int i = 0; i < BLOCKS; i++) {
        for (int s = 1; s < streams; s++) {
            cu.event_record(marks[s], native[s]);
            cu.wait_event(native[0], marks[s], 0);
        }
        cu.free(all[i], native[0]);
    }
    double took = (now() - a) / BLOCKS;
    sync_all();
    return took;
}

static double our_free_used(long streams)
{
    void *all[BLOCKS];
    unsigned char one = 1;
    for (int i = 0; i < BLOCKS; i++)
        all[i] = alloc_on(0, 65536);
    sync_all();
    for (int i = 0; i < BLOCKS; i++)
        for (int s = 0; s < streams; s++)
            MUST(warp_memory_fill(all[i], 65536, &one, 1, stream[s]));
    sync_all();
    double a = now();
    for (int i = 0; i < BLOCKS; i++)
        MUST(warp_free(all[i]));
    double took = (now() - a) / BLOCKS;
    MUST(warp_device_synchronize(device));
    return took;
}

static double our_free_unused(long streams)
{
    (void)streams;
    return our_free_used(0);
}

static void bench_frees(void)
{
    for (int s = 0; s < STREAMS; s++)
        CHECK(cu.event_create(&marks[s], DISABLE_TIMING));
    compare("free of a pool block that nobody used:", raw_free_used, our_free_used, 0, 0, 0);
    compare("free of a pool block used on its own stream:", raw_free_used, our_free_used, 1, 40, 0);
    compare("   the same beside one that nobody used (\"raw\"), both ours:", our_free_unused, our_free_used, 1, 40, 0);
    compare("free of a pool block used on two streams:", raw_free_used, our_free_used, 2, 0, 0);
    compare("free of a pool block used on four streams:", raw_free_used, our_free_used, 4, 0, 0);
}

/* ---- Events ------------------------------------------------------------------------------------------------------------ */

enum { EVENTS = 500, RECORD = 0, WAIT, QUERY, WAIT_STREAM };
static handle raw_event;
static warp_event *our_event;

static double raw_events(long what)
{
    CHECK(cu.event_record(raw_event, native[0]));
    sync_all();
    double a = now();
    for (int i = 0; i < EVENTS; i++)
        switch (what) {
        case RECORD: cu.event_record(raw_event, native[0]); break;
        case WAIT: cu.wait_event(native[1], raw_event, 0); break;
        case QUERY: cu.event_query(raw_event); break;
        default:
            cu.event_record(raw_event, native[0]);
            cu.wait_event(native[1], raw_event, 0);
        }
    double took = (now() - a) / EVENTS;
    sync_all();
    return took;
}

static double our_events(long what)
{
    uint8_t done;
    MUST(warp_event_record(our_event, stream[0]));
    sync_all();
    double a = now();
    for (int i = 0; i < EVENTS; i++)
        switch (what) {
        case RECORD: MUST(warp_event_record(our_event, stream[0])); break;
        case WAIT: MUST(warp_stream_wait_event(stream[1], our_event)); break;
        case QUERY: MUST(warp_event_query_done(our_event, &done)); break;
        default: MUST(warp_stream_wait_stream(stream[1], stream[0]));
        }
    double took = (now() - a) / EVENTS;
    sync_all();
    return took;
}

static void bench_events(void)
{
    CHECK(cu.event_create(&raw_event, DISABLE_TIMING));
    MUST(warp_event_create(device, NULL, &our_event));
    compare("event record:", raw_events, our_events, RECORD, 0, 0);
    compare("stream waits for an event:", raw_events, our_events, WAIT, 0, 0);
    compare("event query:", raw_events, our_events, QUERY, 0, 0);
    compare("stream waits for a stream (raw: record and wait):", raw_events, our_events, WAIT_STREAM, 0, 0);
    MUST(warp_event_release(our_event));
}

/* ---- Frees in a capture ------------------------------------------------------------------------------------------------ */

static double raw_free_in_capture(long nodes)
{
    handle graph = NULL;
    uint64_t p;
    CHECK(cu.begin(native[0], THREAD_LOCAL));
    CHECK(cu.alloc(&p, triple_size, native[0]));
    for (long i = 0; i < nodes; i++)
        CHECK(cu.fill(p, 1, triple_size, native[0]));
    double a = now();
    CHECK(cu.free(p, native[0]));
    double took = now() - a;
    CHECK(cu.end(native[0], &graph));
    CHECK(cu.graph_destroy(graph));
    return took;
}

static double our_free_in_capture(long nodes)
{
    unsigned char one = 1;
    MUST(warp_capture_begin(stream[0], WARP_CAPTURE_THREAD_LOCAL));
    void *p = alloc_on(0, triple_size);
    for (long i = 0; i < nodes; i++)
        MUST(warp_memory_fill(p, triple_size, &one, 1, stream[0]));
    double a = now();
    MUST(warp_free(p));
    double took = now() - a;
    MUST(warp_capture_abandon(stream[0]));
    return took;
}

static void bench_frees_in_captures(void)
{
    char what[96];
    for (long nodes = 1; nodes <= 1000; nodes *= 10) {
        snprintf(what, sizeof what, "free in a capture, %ld nodes after the allocation:", nodes);
        compare(what, raw_free_in_capture, our_free_in_capture, nodes, 0, 0);
    }
}

int main(int argc, char **argv)
{
    size_t gpus = 0;
    if (argc > 1)
        rounds = atoi(argv[1]) > 0 ? atoi(argv[1]) : rounds;
    MUST(warp_init(NULL, NULL));
    MUST(warp_device_get_cuda_count(&gpus));
    if (gpus == 0) {
        printf("left out: there is no GPU\n");
        return 0;
    }
    find_driver();
    prepare();
    bench_graphs();
    bench_guard();
    bench_frees();
    bench_events();
    bench_frees_in_captures();
    for (int s = 0; s < STREAMS; s++)
        MUST(warp_stream_release(stream[s]));
    MUST(warp_shutdown());
    return 0;
}
