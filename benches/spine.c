/*
 * What the library costs beside the bare driver, in one run: starting, a pair of pool allocation and free, and asking
 * what a pointer is. Runs on a GPU or on the simulated driver, whichever is found; figures of the latter say nothing
 * about a GPU.
 *
 *     spine [rounds]
 *
 * Raw calls and ours are timed in turn, round by round; medians and 99th percentiles over the rounds are printed.
 */
#define _GNU_SOURCE
#include "rounds.h"

#include <inttypes.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*init_fn)(unsigned);
typedef int (*count_fn)(int *);
typedef int (*state_fn)(int, unsigned *, int *);
typedef int (*retain_fn)(void **, int);
typedef int (*set_current_fn)(void *);
typedef int (*get_current_fn)(void **);
typedef int (*stream_create_fn)(void **, unsigned);
typedef int (*stream_sync_fn)(void *);
typedef int (*alloc_async_fn)(uint64_t *, size_t, void *);
typedef int (*free_async_fn)(uint64_t, void *);
typedef int (*default_pool_fn)(void **, int);
typedef int (*pool_set_fn)(void *, int, void *);
typedef int (*exchange_fn)(int *);
typedef int (*capturing_fn)(void *, int *);
typedef int (*context_id_fn)(void *, unsigned long long *);

static int rounds = 101;

/* Runs one measurement in a process of its own, since a driver is started once in each. */
static double in_child(double (*measure)(void))
{
    int ends[2];
    double result = -1;
    if (pipe(ends))
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        result = measure();
        if (write(ends[1], &result, sizeof result) != sizeof result)
            _exit(1);
        _exit(0);
    }
    close(ends[1]);
    if (read(ends[0], &result, sizeof result) != sizeof result)
        result = -1;
    close(ends[0]);
    waitpid(child, NULL, 0);
    return result;
}

static double start_driver(void)
{
    double begin = now();
    init_fn init = (init_fn)driver_entry("cuInit");
    init(0);
    return now() - begin;
}

static double start_library(void)
{
    double begin = now();
    MUST(warp_init(NULL, NULL));
    double took = now() - begin;
    /* No context may have been made. */
    int count = 0;
    ((count_fn)driver_entry("cuDeviceGetCount"))(&count);
    for (int i = 0; i < count; i++) {
        unsigned flags;
        int active = 0;
        ((state_fn)driver_entry("cuDevicePrimaryCtxGetState"))(i, &flags, &active);
        if (active) {
            fprintf(stderr, "warp_init made a context on GPU %d\n", i);
            exit(1);
        }
    }
    return took;
}

static void bench_init(void)
{
    enum { N = 21 };
    double raw[N], ours[N], over[N];
    for (int i = 0; i < N; i++) {
        raw[i] = in_child(start_driver);
        ours[i] = in_child(start_library);
        over[i] = ours[i] - raw[i];
    }
    printf("init: driver %.2f ms, warp_init %.2f ms; over the driver %.2f ms (p99 %.2f)   held to 5\n",
           quantile(raw, N, .5) / 1e6, quantile(ours, N, .5) / 1e6, quantile(over, N, .5) / 1e6,
           quantile(over, N, .99) / 1e6);
    for (int i = 0; i < N; i++)
        raw[i] /= 1e6, ours[i] /= 1e6;
    record("start", "driver", "cuInit or warp_init", "ms", raw, N);
    record("start", "warpmem", "cuInit or warp_init", "ms", ours, N);
}

static void bench_pairs(void)
{
    warp_device *device = NULL;
    warp_stream *stream = NULL;
    void *context = NULL, *pool = NULL, *native = NULL;
    uint64_t keep_all = UINT64_MAX;
    MUST(warp_device_get("cuda:0", &device));
    MUST(warp_device_get_native_context(device, &context));
    ((set_current_fn)driver_entry("cuCtxSetCurrent"))(context);
    ((default_pool_fn)driver_entry("cuDeviceGetDefaultMemPool"))(&pool, 0);
    ((pool_set_fn)driver_entry("cuMemPoolSetAttribute"))(pool, 4 /* RELEASE_THRESHOLD */, &keep_all);
    ((stream_create_fn)driver_entry("cuStreamCreate"))(&native, 1);
    MUST(warp_stream_wrap(device, native, &stream));
    alloc_async_fn raw_alloc = (alloc_async_fn)driver_entry("cuMemAllocAsync");
    free_async_fn raw_free = (free_async_fn)driver_entry("cuMemFreeAsync");
    stream_sync_fn sync = (stream_sync_fn)driver_entry("cuStreamSynchronize");
    exchange_fn exchange = (exchange_fn)driver_entry("cuThreadExchangeStreamCaptureMode");
    capturing_fn capturing = (capturing_fn)driver_entry("cuStreamIsCapturing");
    context_id_fn context_id = (context_id_fn)driver_entry("cuCtxGetId");

    double *raw = calloc((size_t)rounds, sizeof *raw), *ours = calloc((size_t)rounds, sizeof *ours);
    double *plain = calloc((size_t)rounds, sizeof *plain), *over = calloc((size_t)rounds, sizeof *over);
    double *guarded = calloc((size_t)rounds, sizeof *guarded);
    const size_t sizes[] = {256, 65536, 1 << 20, 16 << 20, 256 << 20};
    const int pairs = 2000;
    warp_alloc_options options = {.struct_size = sizeof options, .stream = stream};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int r = -1; r < rounds; r++) {
            uint64_t p;
            void *q;
            double a = now();
            for (int i = 0; i < pairs; i++) {
                raw_alloc(&p, sizes[s], native);
                raw_free(p, native);
            }
            /* The same with what keeps a pair from breaking, or joining, somebody's capture, and from naming a stream
             * of a context that is gone. */
            double g = now();
            for (int i = 0; i < pairs; i++) {
                int mode = 2, status;
                unsigned long long id;
                context_id(context, &id);
                capturing(native, &status);
                exchange(&mode);
                raw_alloc(&p, sizes[s], native);
                exchange(&mode);
                mode = 2;
                context_id(context, &id);
                exchange(&mode);
                raw_free(p, native);
                exchange(&mode);
            }
            double b = now();
            for (int i = 0; i < pairs; i++) {
                MUST(warp_alloc_with(device, sizes[s], &options, &q));
                MUST(warp_free(q));
            }
            double c = now();
            for (int i = 0; i < pairs; i++) {
                MUST(warp_alloc(device, sizes[s], &q));
                MUST(warp_free(q));
            }
            double d = now();
            sync(native);
            MUST(warp_device_synchronize(device));
            if (r < 0)
                continue; /* warm-up */
            raw[r] = (g - a) / pairs;
            guarded[r] = (b - g) / pairs;
            ours[r] = (c - b) / pairs;
            plain[r] = (d - c) / pairs;
            over[r] = ours[r] - raw[r];
        }
        printf("pool pair of %9zu bytes: raw %.0f ns (p99 %.0f), raw with the guards' driver calls %.0f, explicit stream "
               "%.0f (p99 %.0f), current stream %.0f; over raw %.0f ns   held to 120\n",
               sizes[s], quantile(raw, rounds, .5), quantile(raw, rounds, .99), quantile(guarded, rounds, .5),
               quantile(ours, rounds, .5), quantile(ours, rounds, .99), quantile(plain, rounds, .5),
               quantile(over, rounds, .5));
        char what[64];
        snprintf(what, sizeof what, "explicit stream, %zu bytes", sizes[s]);
        record("spine pair", "driver", what, "ns", raw, rounds);
        record("spine pair", "warpmem", what, "ns", ours, rounds);
        snprintf(what, sizeof what, "current stream, %zu bytes", sizes[s]);
        record("spine pair", "warpmem", what, "ns", plain, rounds);
    }
    MUST(warp_stream_release(stream));
    free(raw), free(ours), free(plain), free(over), free(guarded);
}

static uint64_t random_state = 88172645463325252ull;
static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

static void shuffle(void **values, size_t n)
{
    for (size_t i = n - 1; i > 0; i--) {
        size_t j = next_random() % (i + 1);
        void *t = values[i];
        values[i] = values[j];
        values[j] = t;
    }
}

/* What this machine takes to follow a pointer that is in no cache, over as much memory as the blocks' records. */
static double dependent_miss(size_t n)
{
    struct node {
        struct node *next;
        char rest[56];
    } *nodes = aligned_alloc(64, n * sizeof *nodes);
    void **order = malloc(n * sizeof *order);
    if (!nodes || !order)
        exit(1);
    for (size_t i = 0; i < n; i++)
        order[i] = &nodes[i];
    shuffle(order, n);
    for (size_t i = 0; i < n; i++)
        ((struct node *)order[i])->next = order[(i + 1) % n];
    struct node *at = order[0];
    double begin = now();
    for (size_t i = 0; i < n; i++)
        at = at->next;
    double took = (now() - begin) / (double)n;
    if (!at)
        exit(1);
    free(order);
    free(nodes);
    return took;
}

static void bench_pointer_info(void)
{
    warp_device *cpu = NULL;
    const size_t live = 1000000, hot = 1000;
    void **blocks = malloc(live * sizeof *blocks);
    double *times = calloc((size_t)rounds, sizeof *times);
    warp_pointer_info info = {.struct_size = sizeof info};
    uint64_t seen = 0;
    MUST(warp_device_get("cpu", &cpu));
    double begin = now();
    for (size_t i = 0; i < live; i++)
        MUST(warp_alloc(cpu, 64, &blocks[i]));
    double made = (now() - begin) / (double)live;
    shuffle(blocks, live);

    for (int r = 0; r < rounds; r++) {
        begin = now();
        for (size_t k = 0; k < 50; k++)
            for (size_t i = 0; i < hot; i++) {
                MUST(warp_pointer_get_info((char *)blocks[i] + 8, &info));
                seen += info.size;
            }
        times[r] = (now() - begin) / (50.0 * (double)hot);
    }
    printf("pointer info, %zu hot of %zu live: %.1f ns (p99 %.1f)   held to 25\n", hot, live,
           quantile(times, rounds, .5), quantile(times, rounds, .99));
    record("pointer info", "warpmem", "1000 hot of 1000000 live", "ns", times, rounds);

    double miss = dependent_miss(live);
    int few = rounds < 11 ? rounds : 11;
    for (int r = 0; r < few; r++) {
        begin = now();
        for (size_t i = 0; i < live; i++) {
            MUST(warp_pointer_get_info((char *)blocks[i] + 8, &info));
            seen += info.size;
        }
        times[r] = (now() - begin) / (double)live;
    }
    double random = quantile(times, few, .5);
    record("pointer info", "warpmem", "random of 1000000 live", "ns", times, few);
    printf("pointer info, random of %zu live: %.1f ns; a dependent miss here is %.1f ns: %.2f misses   held to 3\n",
           live, random, miss, random / miss);

    begin = now();
    for (size_t i = 0; i < live; i++)
        MUST(warp_free(blocks[i]));
    printf("host blocks of 64 bytes: %.1f ns to allocate, %.1f to free in random order (of which malloc and free are the larger part)\n",
           made, (now() - begin) / (double)live);
    if (seen == 0)
        exit(1);
    free(blocks);
    free(times);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rounds = atoi(argv[1]) > 0 ? atoi(argv[1]) : rounds;
    bench_init();
    MUST(warp_init(NULL, NULL));
    size_t gpus = 0;
    MUST(warp_device_get_cuda_count(&gpus));
    if (gpus)
        bench_pairs();
    bench_pointer_info();
    MUST(warp_shutdown());
    return 0;
}
