/*
 * contest.h: allocators of GPU memory that take turns in one process: the bare driver's, the library's, and those of the files
 * that WARPMEM_BENCH_PEERS names, with colons between. `contest` runs one measurement over all of them.
 *
 * In each round every contestant has its turn, in an order that moves on by one from round to round. Before the first round
 * each finds out how many repetitions fill the time of a turn; the rounds give nanoseconds of one repetition.
 *
 * Options of all programs that include this:
 *
 *     --rounds N         rounds, in place of the program's own number
 *     --milliseconds N   the time of a turn, in place of the program's own
 *     --only NAME        contestants whose name contains NAME; may be repeated
 *     --seconds N        no further round after so many seconds, in programs of long rounds; results tell of the rounds made
 *     --smoke            two rounds of one repetition or so: does it run at all
 */
#ifndef WARPMEM_BENCHES_CONTEST_H
#define WARPMEM_BENCHES_CONTEST_H

#include "contestant.h"
#include "rounds.h"

enum { MOST_CONTESTANTS = 24 };

/* ---- The driver ---------------------------------------------------------------------------------------------------------- */

enum { POOL_RELEASE_THRESHOLD = 4, POOL_RESERVED = 5, POOL_RESERVED_HIGH = 6 };

static struct {
    int (*set_current)(void *);
    int (*default_pool)(void **, int);
    int (*pool_set)(void *, int, void *);
    int (*pool_get)(void *, int, void *);
    int (*pool_trim)(void *, size_t);
    int (*stream_create)(void **, unsigned);
    int (*stream_destroy)(void *);
    int (*stream_sync)(void *);
    int (*alloc_async)(uint64_t *, size_t, void *);
    int (*free_async)(uint64_t, void *);
    int (*alloc)(uint64_t *, size_t);
    int (*free)(uint64_t);
    int (*alloc_host)(void **, size_t);
    int (*free_host)(void *);
    int (*fill)(uint64_t, unsigned char, size_t, void *);
    int (*copy)(uint64_t, uint64_t, size_t, void *);
    void *context, *pool;
} cu;

static warp_device *gpu, *host;

MAYBE_UNUSED static void find_entry(void *to, const char *name)
{
    void *entry = driver_entry(name);
    memcpy(to, &entry, sizeof entry);
}

MAYBE_UNUSED static void good(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "%s: the driver's code %d\n", what, code);
        exit(1);
    }
}
#define GOOD(call) good((call), #call)

MAYBE_UNUSED static void set_threshold(uint64_t bytes) { GOOD(cu.pool_set(cu.pool, POOL_RELEASE_THRESHOLD, &bytes)); }

/* ---- Options ------------------------------------------------------------------------------------------------------------- */

static struct {
    int rounds;
    double turn_ns;
    double end;
    int smoke;
    const char *only[8];
    int only_count;
    const char *files[8];
    int file_count;
} asked;

MAYBE_UNUSED static void read_options(int count, char **words, int rounds, double turn_ns)
{
    asked.rounds = rounds;
    asked.turn_ns = turn_ns;
    asked.end = 1e300;
    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? words[i + 1] : "";
        if (strcmp(words[i], "--smoke") == 0) {
            asked.smoke = 1;
            asked.rounds = 2;
            asked.turn_ns = 1;
        } else if (strcmp(words[i], "--rounds") == 0 && atoi(value) > 0) {
            asked.rounds = atoi(value), i++;
        } else if (strcmp(words[i], "--milliseconds") == 0 && atof(value) > 0) {
            asked.turn_ns = atof(value) * 1e6, i++;
        } else if (strcmp(words[i], "--seconds") == 0 && atof(value) > 0) {
            asked.end = now() + atof(value) * 1e9, i++;
        } else if (strcmp(words[i], "--only") == 0 && asked.only_count < 8) {
            asked.only[asked.only_count++] = value, i++;
        } else if (words[i][0] != '-' && asked.file_count < 8) {
            asked.files[asked.file_count++] = words[i];
        } else {
            fprintf(stderr, "%s: not an option here\n", words[i]);
            exit(2);
        }
    }
}

static int is_asked(const char *library)
{
    int found = asked.only_count == 0;
    for (int i = 0; i < asked.only_count; i++)
        found |= strstr(library, asked.only[i]) != NULL;
    return found;
}

/* ---- Who takes part ------------------------------------------------------------------------------------------------------ */

static void *raw_allocate(size_t size, void *stream)
{
    uint64_t address = 0;
    return cu.alloc_async(&address, size, stream) == 0 ? (void *)(uintptr_t)address : NULL;
}

static void raw_release(void *ptr, size_t size, void *stream)
{
    (void)size;
    GOOD(cu.free_async((uintptr_t)ptr, stream));
}

static uint64_t pool_attribute(int which)
{
    uint64_t value = 0;
    GOOD(cu.pool_get(cu.pool, which, &value));
    return value;
}

static uint64_t pool_reserved(void) { return pool_attribute(POOL_RESERVED); }
static uint64_t pool_peak(void) { return pool_attribute(POOL_RESERVED_HIGH); }

static void pool_reset(void)
{
    uint64_t zero = 0;
    MUST(warp_device_synchronize(gpu));
    GOOD(cu.pool_trim(cu.pool, 0));
    GOOD(cu.pool_set(cu.pool, POOL_RESERVED_HIGH, &zero));
}

static void *plain_allocate(size_t size, void *stream)
{
    uint64_t address = 0;
    (void)stream;
    return cu.alloc(&address, size) == 0 ? (void *)(uintptr_t)address : NULL;
}

static void plain_release(void *ptr, size_t size, void *stream)
{
    (void)size, (void)stream;
    GOOD(cu.free((uintptr_t)ptr));
}

/* A stream of the library. */
typedef struct lane {
    warp_stream *stream;
    warp_alloc_options options;
} lane;

static lane *lane_of(warp_stream *stream)
{
    lane *made = (lane *)calloc(1, sizeof *made);
    if (made == NULL)
        exit(1);
    made->stream = stream;
    made->options.struct_size = sizeof made->options;
    made->options.stream = stream;
    return made;
}

/* One that it made, and whose CUstream nobody was told. */
static void *lane_open(void *native)
{
    warp_stream *stream = NULL;
    (void)native;
    MUST(warp_stream_create(gpu, NULL, &stream));
    return lane_of(stream);
}

/* One that other code knows: whether it is captured, the driver has to be asked. */
static void *lane_wrap(void *native)
{
    warp_stream *stream = NULL;
    MUST(warp_stream_wrap(gpu, native, &stream));
    return lane_of(stream);
}

static void lane_wait(void *stream) { MUST(warp_stream_synchronize(((lane *)stream)->stream)); }

static void lane_close(void *stream)
{
    lane *done = (lane *)stream;
    MUST(warp_stream_release(done->stream));
    free(done);
}

static void *pool_allocate(size_t size, void *stream)
{
    void *ptr = NULL;
    return warp_alloc_with(gpu, size, &((lane *)stream)->options, &ptr) == WARP_SUCCESS ? ptr : NULL;
}

static void our_release(void *ptr, size_t size, void *stream)
{
    (void)size, (void)stream;
    MUST(warp_free(ptr));
}

static void *pinned_allocate(size_t size, void *stream)
{
    void *ptr = NULL;
    (void)stream;
    return cu.alloc_host(&ptr, size) == 0 ? ptr : NULL;
}

static void pinned_release(void *ptr, size_t size, void *stream)
{
    (void)size, (void)stream;
    GOOD(cu.free_host(ptr));
}

static void *our_pinned_allocate(size_t size, void *stream)
{
    static warp_alloc_options options = {.struct_size = sizeof options, .kind = WARP_MEMORY_PINNED};
    void *ptr = NULL;
    (void)stream;
    return warp_alloc_with(host, size, &options, &ptr) == WARP_SUCCESS ? ptr : NULL;
}

static warp_allocator *cache, *outside_cache, *pinned_cache;

/* Threads share the options of a stream that they share: they write there only what is not there yet. */
static void name_allocator(warp_alloc_options *options, warp_allocator *allocator)
{
    if (options->allocator != allocator)
        options->allocator = allocator;
}

static int pinned_cache_begin(void)
{
    return warp_allocator_get_caching(WARP_MEMORY_PINNED, &pinned_cache) != WARP_SUCCESS;
}

static void *pinned_cache_allocate(size_t size, void *stream)
{
    static warp_alloc_options options = {.struct_size = sizeof options};
    void *ptr = NULL;
    (void)stream;
    name_allocator(&options, pinned_cache);
    return warp_alloc_with(host, size, &options, &ptr) == WARP_SUCCESS ? ptr : NULL;
}

/* One of our own and not the library's, whose peak is never forgotten; it keeps the same memory. */
static int cache_begin(void)
{
    warp_allocator *below = NULL;
    MUST(warp_allocator_get_builtin(WARP_MEMORY_CUDA_DEVICE, &below));
    return warp_allocator_create_caching(below, NULL, &cache) != WARP_SUCCESS;
}

static void cache_end(void)
{
    MUST(warp_allocator_release(cache));
    cache = NULL;
}

static void *cache_allocate(size_t size, void *stream)
{
    void *ptr = NULL;
    warp_alloc_options *options = &((lane *)stream)->options;
    name_allocator(options, cache);
    return warp_alloc_with(gpu, size, options, &ptr) == WARP_SUCCESS ? ptr : NULL;
}

/* The library's, so that the two do not take each other's memory. */
static int outside_begin(void) { return warp_allocator_get_caching(0, &outside_cache) != WARP_SUCCESS; }

static void *outside_allocate(size_t size, void *stream)
{
    void *ptr = NULL;
    warp_alloc_options *options = &((lane *)stream)->options;
    name_allocator(options, outside_cache);
    return warp_alloc_with(gpu, size, options, &ptr) == WARP_SUCCESS ? ptr : NULL;
}

static warp_caching_info cache_info(void)
{
    warp_caching_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    MUST(warp_allocator_caching_measure(cache, gpu, &info));
    return info;
}

static uint64_t cache_reserved(void) { return cache_info().reserved_bytes; }
static uint64_t cache_peak(void) { return cache_info().peak_reserved_bytes; }

/* One that starts from nothing. */
static void cache_reset(void)
{
    cache_end();
    if (cache_begin() != 0)
        exit(1);
    pool_reset();
}

static const contestant AT_HOME[] = {
    {.name = "driver", .allocate = raw_allocate, .release = raw_release, .reserved = pool_reserved, .peak_reserved = pool_peak,
     .reset = pool_reset},
    {.name = "driver, plain", .flags = CONTESTANT_SYNCHRONOUS, .allocate = plain_allocate, .release = plain_release},
    {.name = "warpmem", .open_stream = lane_open, .close_stream = lane_close, .wait = lane_wait, .allocate = pool_allocate,
     .release = our_release, .reserved = pool_reserved, .peak_reserved = pool_peak, .reset = pool_reset},
    {.name = "warpmem cache", .begin = cache_begin, .end = cache_end, .open_stream = lane_open, .close_stream = lane_close,
     .wait = lane_wait, .allocate = cache_allocate, .release = our_release, .reserved = cache_reserved, .peak_reserved = cache_peak,
     .reset = cache_reset},
    {.name = "warpmem, outside stream", .flags = CONTESTANT_VARIANT, .open_stream = lane_wrap, .close_stream = lane_close,
     .wait = lane_wait, .allocate = pool_allocate, .release = our_release},
    {.name = "warpmem cache, outside stream", .flags = CONTESTANT_VARIANT, .begin = outside_begin, .open_stream = lane_wrap,
     .close_stream = lane_close, .wait = lane_wait, .allocate = outside_allocate, .release = our_release},
    {.name = "driver", .flags = CONTESTANT_PINNED, .allocate = pinned_allocate, .release = pinned_release},
    {.name = "warpmem", .flags = CONTESTANT_PINNED, .allocate = our_pinned_allocate, .release = our_release},
    {.name = "warpmem cache", .flags = CONTESTANT_PINNED, .begin = pinned_cache_begin, .allocate = pinned_cache_allocate,
     .release = our_release},
};

typedef struct entrant {
    const contestant *is;
    /* For the program's one thread. */
    void *native, *stream;
    /* It could not go on, and has no further turns. */
    int is_out;
} entrant;

static entrant field[MOST_CONTESTANTS];
static int field_count;

static void enter(const contestant *who, uint32_t with, uint32_t allowed)
{
    int fits = (who->flags & with) == with && (who->flags & ~(with | allowed)) == 0;
    if (!is_asked(who->name) || !fits || field_count == MOST_CONTESTANTS)
        return;
    if (who->begin != NULL && who->begin() != 0) {
        report_absent(who->name, "it could not be started");
        return;
    }
    entrant *made = &field[field_count++];
    made->is = who;
    if (cu.stream_create == NULL)
        return;
    GOOD(cu.stream_create(&made->native, 1));
    made->stream = who->open_stream ? who->open_stream(made->native) : made->native;
}

static void enter_file(const char *path, uint32_t with, uint32_t allowed)
{
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL), *entry = file ? dlsym(file, "warpmem_bench_contestants") : NULL;
    contestants_fn all;
    size_t count = 0;
    if (entry == NULL) {
        report_absent(path, dlerror());
        return;
    }
    memcpy(&all, &entry, sizeof entry);
    const contestant *who = all(&count);
    for (size_t i = 0; i < count; i++)
        enter(&who[i], with, allowed);
}

/* Starts the library and every contestant that has the flags `with` and no others but those allowed. 0 where there is no GPU, real
 * or simulated. */
MAYBE_UNUSED static int start_contest(uint32_t with, uint32_t allowed)
{
    size_t gpus = 0;
    MUST(warp_init(NULL, NULL));
    MUST(warp_device_get_cuda_count(&gpus));
    if (gpus == 0) {
        fprintf(stderr, "left out: there is no GPU\n");
        return 0;
    }
    MUST(warp_device_get("cuda:0", &gpu));
    MUST(warp_device_get("cpu", &host));
    MUST(warp_device_get_native_context(gpu, &cu.context));
    find_entry(&cu.set_current, "cuCtxSetCurrent");
    find_entry(&cu.default_pool, "cuDeviceGetDefaultMemPool");
    find_entry(&cu.pool_set, "cuMemPoolSetAttribute");
    find_entry(&cu.pool_get, "cuMemPoolGetAttribute");
    find_entry(&cu.pool_trim, "cuMemPoolTrimTo");
    find_entry(&cu.stream_create, "cuStreamCreate");
    find_entry(&cu.stream_destroy, "cuStreamDestroy_v2");
    find_entry(&cu.stream_sync, "cuStreamSynchronize");
    find_entry(&cu.alloc_async, "cuMemAllocAsync");
    find_entry(&cu.free_async, "cuMemFreeAsync");
    find_entry(&cu.alloc, "cuMemAlloc_v2");
    find_entry(&cu.free, "cuMemFree_v2");
    find_entry(&cu.alloc_host, "cuMemAllocHost_v2");
    find_entry(&cu.free_host, "cuMemFreeHost");
    find_entry(&cu.fill, "cuMemsetD8Async");
    find_entry(&cu.copy, "cuMemcpyAsync");
    GOOD(cu.set_current(cu.context));
    GOOD(cu.default_pool(&cu.pool, 0));
    set_threshold(UINT64_MAX);
    for (size_t i = 0; i < sizeof AT_HOME / sizeof *AT_HOME; i++)
        enter(&AT_HOME[i], with, allowed);
    const char *peers = getenv("WARPMEM_BENCH_PEERS");
    char *paths = peers != NULL ? strdup(peers) : NULL, *rest = NULL;
    for (char *path = paths ? strtok_r(paths, ":", &rest) : NULL; path != NULL; path = strtok_r(NULL, ":", &rest))
        enter_file(path, with, allowed);
    free(paths);
    return 1;
}

static void wait_for(const contestant *who, void *stream)
{
    if (who->wait != NULL)
        who->wait(stream);
    else
        GOOD(cu.stream_sync(stream));
}

/* A turn of pairs of an allocation and its free, of the size that it is given. */
MAYBE_UNUSED static double pairs_turn(const entrant *who, size_t times, const void *size)
{
    size_t bytes = *(const size_t *)size;
    double begin = now();
    for (size_t i = 0; i < times; i++) {
        void *ptr = who->is->allocate(bytes, who->stream);
        if (ptr == NULL)
            return -1;
        who->is->release(ptr, bytes, who->stream);
    }
    return now() - begin;
}

MAYBE_UNUSED static void end_contest(void)
{
    for (int i = 0; i < field_count; i++) {
        const contestant *who = field[i].is;
        wait_for(who, field[i].stream);
        if (who->close_stream != NULL)
            who->close_stream(field[i].stream);
        if (who->end != NULL)
            who->end();
        GOOD(cu.stream_destroy(field[i].native));
    }
    MUST(warp_shutdown());
}

/* Ends a contestant's part, and not that of the others. */
MAYBE_UNUSED static void put_out(entrant *who, const char *bench)
{
    fprintf(stderr, "left out: %s in %s: it was refused memory\n", who->is->name, bench);
    who->is_out = 1;
}

/* ---- Taking turns -------------------------------------------------------------------------------------------------------- */

/* Nanoseconds that so many repetitions took; below 0 for a contestant that cannot take part. */
typedef double (*turn_fn)(const entrant *who, size_t times, const void *with);

/* How many repetitions last as long as a turn is meant to. */
static size_t repetitions(const entrant *who, turn_fn turn, const void *with)
{
    size_t times = 1;
    /* What only the first one pays for is no guide. */
    if (turn(who, 1, with) < 0)
        return 0;
    for (;;) {
        double took = turn(who, times, with);
        if (took < 0)
            return 0;
        if (took >= asked.turn_ns || times >= 10000000)
            return times;
        double wanted = (double)times * asked.turn_ns / (took > 1 ? took : 1);
        times = wanted > (double)times * 8 ? times * 8 : (size_t)wanted + 1;
    }
}

/* A thousand million divided by nanoseconds and so on: what is told of one repetition. */
typedef double (*unit_fn)(double nanoseconds, const void *with);

/* Lets all take turns at one thing, and reports it. `convert` may be NULL, for nanoseconds. */
MAYBE_UNUSED static void contest(const char *bench, const char *what, const char *unit, turn_fn turn, unit_fn convert,
                                 const void *with)
{
    size_t times[MOST_CONTESTANTS];
    double *values = (double *)calloc((size_t)field_count * (size_t)asked.rounds + 1, sizeof *values);
    if (values == NULL)
        exit(1);
    for (int i = 0; i < field_count; i++)
        times[i] = field[i].is_out ? 0 : repetitions(&field[i], turn, with);
    for (int round = 0; round < asked.rounds; round++)
        for (int k = 0; k < field_count; k++) {
            int i = (round + k) % field_count;
            if (times[i] == 0)
                continue;
            double each = turn(&field[i], times[i], with) / (double)times[i];
            if (each < 0) {
                put_out(&field[i], bench);
                times[i] = 0;
                continue;
            }
            values[i * asked.rounds + round] = convert ? convert(each, with) : each;
        }
    for (int i = 0; i < field_count; i++)
        if (times[i] != 0)
            report(bench, field[i].is->name, what, unit, values + i * asked.rounds, asked.rounds);
    free(values);
}

#endif
