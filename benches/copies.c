/*
 * What copies and fills reach, beside the bare driver, in one run: pageable memory by the copy threads, GPU to GPU with and
 * without access, items with gaps, fills, and what a small copy costs over the raw call. All data is checked to the byte. Runs on
 * GPUs or on the simulated driver; figures of the latter say nothing about a GPU.
 *
 *     copies [MiB of the large copies, 2048] [rounds, 7] [parts, of: host small pageable gaps fills between; all]
 *
 * Raw calls and ours are timed in turn, round by round; medians are printed, of small copies 99th percentiles too.
 */
#define _GNU_SOURCE
#include "rounds.h"

#include <inttypes.h>

typedef int (*copy_fn)(uint64_t, uint64_t, size_t, void *);
typedef int (*peer_fn)(uint64_t, void *, uint64_t, void *, size_t, void *);
typedef int (*wait_fn)(void *);
typedef int (*set_current_fn)(void *);

static int rounds = 7;
static uint64_t large = UINT64_C(2048) << 20;
static copy_fn raw_copy;
static peer_fn raw_peer;
static wait_fn raw_wait;
static set_current_fn set_current;

static void *native_of(warp_stream *stream)
{
    warp_stream_info info = {.struct_size = sizeof info};
    MUST(warp_stream_get_info(stream, &info));
    return info.native;
}

static void *block(warp_device *device, uint64_t size, warp_memory_kind kind)
{
    void *ptr = NULL;
    warp_alloc_options options = {.struct_size = sizeof options};
    options.kind = kind;
    MUST(warp_alloc_with(device, size, &options, &ptr));
    return ptr;
}

static void good(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "%s: the driver's code %d\n", what, code);
        exit(1);
    }
}

/* Bytes that tell where they belong. */
static void write_bytes(unsigned char *to, uint64_t size, uint64_t seed)
{
    for (uint64_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word = (i + seed) * UINT64_C(0x9e3779b97f4a7c15);
        memcpy(to + i, &word, 8);
    }
}

static void check(const void *a, const void *b, uint64_t size, const char *what)
{
    if (memcmp(a, b, size) != 0) {
        fprintf(stderr, "%s: the data is wrong\n", what);
        exit(1);
    }
}

struct way {
    void *to, *from;
    uint64_t size;
    warp_stream *stream;
    void *native, *contexts[2];
    int is_raw;
};

static double once(const struct way *way)
{
    double begin = now();
    if (!way->is_raw)
        MUST(warp_memory_copy(way->to, way->from, way->size, way->stream));
    else if (way->contexts[0] != NULL)
        good(raw_peer((uint64_t)way->to, way->contexts[0], (uint64_t)way->from, way->contexts[1], way->size, way->native),
             "cuMemcpyPeerAsync");
    else
        good(raw_copy((uint64_t)way->to, (uint64_t)way->from, way->size, way->native), "cuMemcpyAsync");
    good(raw_wait(way->native), "cuStreamSynchronize");
    return now() - begin;
}

static const char *path_of(const struct way *way)
{
    static const char *const names[] = {"nothing",   "host",   "host, threads", "device",           "pinned",
                                        "pageable",  "pageable, pipelined",     "peer",             "peer, staged",
                                        "peer, pipelined", "managed"};
    warp_copy_request request = {.struct_size = sizeof request};
    warp_copy_info info = {.struct_size = sizeof info};
    request.dest = way->to;
    request.src = way->from;
    request.size = way->size;
    MUST(warp_copy_get_path(&request, way->stream, &info));
    return names[info.path];
}

/* Ours beside the raw call; GB/s of both. */
static void beside_raw(const char *what, struct way way)
{
    double ours[64], raw[64];
    for (int i = -1; i < rounds; i++) {
        way.is_raw = 0;
        double took = once(&way);
        way.is_raw = 1;
        double raw_took = once(&way);
        if (i >= 0) {
            ours[i] = (double)way.size / took;
            raw[i] = (double)way.size / raw_took;
        }
    }
    printf("  %-34s %9.2f MiB %8.1f GB/s   raw %8.1f GB/s   %5.1f %%   (%s)\n", what, (double)way.size / 1048576,
           quantile(ours, rounds, 0.5), quantile(raw, rounds, 0.5),
           100 * quantile(ours, rounds, 0.5) / quantile(raw, rounds, 0.5), path_of(&way));
    char named[128];
    snprintf(named, sizeof named, "%s, %.2f MiB", what, (double)way.size / 1048576);
    record("copies", "driver", named, "GB/s", raw, rounds);
    record("copies", "warpmem", named, "GB/s", ours, rounds);
}

static void pageable(warp_device *gpu, warp_stream *stream)
{
    unsigned char *host = malloc(large), *back = malloc(large);
    void *device = block(gpu, large, WARP_MEMORY_CUDA_DEVICE);
    const uint32_t threads[] = {0, 2, 4, 8, 12, 16};
    uint32_t before = 0;
    write_bytes(host, large, 1);
    memset(back, 1, large);
    MUST(warp_copy_get_threads(&before));
    printf("pageable memory of the host (%" PRIu32 " copy threads by default)\n", before);
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        uint32_t got = 0;
        char name[64];
        MUST(warp_copy_set_threads(threads[t]));
        MUST(warp_copy_get_threads(&got));
        if (got != threads[t])
            continue;
        struct way up = {.to = device, .from = host, .size = large, .stream = stream, .native = native_of(stream)};
        struct way down = {.to = back, .from = device, .size = large, .stream = stream, .native = native_of(stream)};
        snprintf(name, sizeof name, "host to device, %" PRIu32 " threads", got);
        beside_raw(name, up);
        memset(back, 1, large);
        once(&down);
        check(back, host, large, name);
        snprintf(name, sizeof name, "device to host, %" PRIu32 " threads", got);
        beside_raw(name, down);
        check(back, host, large, name);
    }
    MUST(warp_copy_set_threads(before));
    for (uint64_t size = large < (UINT64_C(256) << 20) ? large : UINT64_C(256) << 20; size >= 512 << 10; size /= 2) {
        beside_raw("host to device", (struct way){.to = device, .from = host, .size = size, .stream = stream, .native = native_of(stream)});
        beside_raw("device to host", (struct way){.to = back, .from = device, .size = size, .stream = stream, .native = native_of(stream)});
    }
    check(back, host, large, "pageable memory");
    MUST(warp_free(device));
    free(host);
    free(back);
}

/* Bytes to or from anywhere, there when this returns. */
static void carry(void *to, const void *from, uint64_t size)
{
    size_t count = 0;
    MUST(warp_memory_copy(to, from, size, NULL));
    MUST(warp_device_get_count(&count));
    for (size_t i = 1; i < count; i++) {
        warp_device *device = NULL;
        MUST(warp_device_get_at(i, &device));
        MUST(warp_device_synchronize(device));
    }
}

static void between(warp_device *first, warp_device *second, warp_stream *stream, warp_memory_kind kind, const char *name)
{
    void *from = block(first, large, kind), *to = block(second, large, kind);
    unsigned char *host = malloc(large), *back = malloc(large);
    void *contexts[2] = {NULL, NULL};
    char what[80];
    write_bytes(host, large, 2);
    MUST(warp_device_get_native_context(second, &contexts[0]));
    MUST(warp_device_get_native_context(first, &contexts[1]));
    MUST(warp_memory_copy(from, host, large, NULL));
    MUST(warp_device_synchronize(first));
    for (uint64_t size = large; size >= (1 << 20); size /= size > (UINT64_C(64) << 20) ? 8 : 2) {
        struct way way = {.to = to, .from = from, .size = size, .stream = stream, .native = native_of(stream)};
        memcpy(way.contexts, contexts, sizeof contexts);
        snprintf(what, sizeof what, "GPU to GPU, %s", name);
        MUST(warp_memory_fill(to, size, "", 1, NULL));
        MUST(warp_device_synchronize(second));
        once(&way);
        carry(back, to, size);
        check(back, host, size, what);
        beside_raw(what, way);
    }
    MUST(warp_free(from));
    MUST(warp_free(to));
    free(host);
    free(back);
}

static void small(const char *what, void *to, void *from, uint64_t size, warp_stream *stream)
{
    enum { CALLS = 200, ROUNDS = 201 };
    static double ours[ROUNDS], raw[ROUNDS], over[ROUNDS];
    void *native = native_of(stream);
    for (int i = -5; i < ROUNDS; i++) {
        double begin = now();
        for (int c = 0; c < CALLS; c++)
            (void)raw_copy((uint64_t)to, (uint64_t)from, size, native);
        double middle = now();
        good(raw_wait(native), "cuStreamSynchronize");
        double again = now();
        for (int c = 0; c < CALLS; c++)
            (void)warp_memory_copy(to, from, size, stream);
        double end = now();
        good(raw_wait(native), "cuStreamSynchronize");
        if (i >= 0) {
            raw[i] = (middle - begin) / CALLS;
            ours[i] = (end - again) / CALLS;
            over[i] = ours[i] - raw[i];
        }
    }
    printf("  %-34s %6" PRIu64 " bytes   ours %7.0f ns (p99 %7.0f)   raw %7.0f ns (p99 %7.0f)   over %6.0f ns\n", what, size,
           quantile(ours, ROUNDS, 0.5), quantile(ours, ROUNDS, 0.99), quantile(raw, ROUNDS, 0.5), quantile(raw, ROUNDS, 0.99),
           quantile(over, ROUNDS, 0.5));
    char named[128];
    snprintf(named, sizeof named, "call, %s, %" PRIu64 " bytes", what, size);
    record("copies", "driver", named, "ns", raw, ROUNDS);
    record("copies", "warpmem", named, "ns", ours, ROUNDS);
}

/* An array of rows of so many bytes, with gaps of 256 behind them, and one without. */
static warp_array *rows_of(warp_device *device, int64_t rows, int64_t row, int64_t gap, warp_memory_kind kind)
{
    const warp_dtype byte = warp_dtype_make(WARP_DTYPE_UINT, 8);
    const int64_t shape[2] = {rows, row}, strides[2] = {row + gap, 1};
    warp_array_options options = {.struct_size = sizeof options};
    warp_array *array = NULL;
    options.strides = strides;
    options.kind = kind;
    MUST(warp_array_empty(device, byte, 2, shape, &options, &array));
    return array;
}

static void *data_of(warp_array *array)
{
    warp_array_info info = {.struct_size = sizeof info};
    MUST(warp_array_get_info(array, &info));
    return info.data;
}

static double array_once(warp_array *to, warp_array *from, warp_stream *stream)
{
    double begin = now();
    MUST(warp_array_copy(to, from, 0, 0, 0, stream));
    if (stream != NULL)
        MUST(warp_stream_synchronize(stream));
    return now() - begin;
}

static void gaps(const char *what, warp_device *to, warp_memory_kind to_kind, warp_device *from, warp_memory_kind from_kind,
                 uint64_t size, warp_stream *stream)
{
    const int64_t widths[] = {4, 64, 256, 1024, 4096};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        int64_t row = widths[w], count = (int64_t)size / row / (row < 64 ? 16 : 1);
        uint64_t bytes = (uint64_t)(count * row), spread = (uint64_t)(count * (row + 256) - 256);
        warp_array *source = rows_of(from, count, row, 256, from_kind), *dest = rows_of(to, count, row, 256, to_kind);
        warp_array *line = rows_of(from, count, row, 0, from_kind), *other = rows_of(to, count, row, 0, to_kind);
        unsigned char *expected = malloc(spread), *got = malloc(spread);
        double strided[64], plain[64];
        write_bytes(expected, spread, (uint64_t)row);
        memset(got, 1, spread);
        carry(data_of(source), expected, spread);
        carry(data_of(dest), got, spread);
        carry(data_of(line), got, bytes);
        for (int i = -1; i < rounds; i++) {
            double a = array_once(dest, source, stream), b = array_once(other, line, stream);
            if (i >= 0) {
                strided[i] = (double)bytes / a;
                plain[i] = (double)bytes / b;
            }
        }
        carry(got, data_of(dest), spread);
        for (int64_t r = 0; r < count; r++)
            check(got + r * (row + 256), expected + r * (row + 256), (uint64_t)row, what);
        for (int64_t r = 0; r + 1 < count; r++)
            if (got[r * (row + 256) + row] != 1 || got[r * (row + 256) + row + 255] != 1) {
                fprintf(stderr, "%s: something between the rows was written\n", what);
                exit(1);
            }
        printf("  %-34s rows of %4" PRId64 "  %8.1f GB/s   contiguous %8.1f GB/s   %5.1f %%\n", what, row,
               quantile(strided, rounds, 0.5), quantile(plain, rounds, 0.5),
               100 * quantile(strided, rounds, 0.5) / quantile(plain, rounds, 0.5));
        free(expected);
        free(got);
        MUST(warp_array_release(source));
        MUST(warp_array_release(dest));
        MUST(warp_array_release(line));
        MUST(warp_array_release(other));
    }
}

static void fills(warp_device *gpu, warp_stream *stream)
{
    uint64_t size = (large < (UINT64_C(1) << 30) ? large : UINT64_C(1) << 30) / 2520 * 2520;
    unsigned char *ptr = block(gpu, size, WARP_MEMORY_CUDA_DEVICE), *got = malloc(size), pattern[1000];
    const uint64_t lengths[] = {1, 4, 3, 8, 12, 24, 1000};
    double plain = 0;
    for (int i = 0; i < (int)sizeof pattern; i++)
        pattern[i] = (unsigned char)(i * 7 + i / 256 + 1);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        uint64_t bytes = size / lengths[l] * lengths[l];
        double rate[64];
        for (int i = -1; i < rounds; i++) {
            double begin = now();
            MUST(warp_memory_fill(ptr, bytes, pattern, lengths[l], stream));
            MUST(warp_stream_synchronize(stream));
            if (i >= 0)
                rate[i] = (double)bytes / (now() - begin);
        }
        MUST(warp_memory_copy(got, ptr, bytes, stream));
        for (uint64_t i = 0; i < bytes; i++)
            if (got[i] != pattern[i % lengths[l]]) {
                fprintf(stderr, "a fill of %" PRIu64 " bytes: byte %" PRIu64 " is wrong\n", lengths[l], i);
                exit(1);
            }
        if (l == 0)
            plain = quantile(rate, rounds, 0.5);
        printf("  a pattern of %4" PRIu64 " bytes              %8.1f GB/s   %5.1f %% of one byte\n", lengths[l],
               quantile(rate, rounds, 0.5), 100 * quantile(rate, rounds, 0.5) / plain);
    }
    MUST(warp_free(ptr));
    free(got);
}

/* Which parts were named; all if none were. */
static int chosen(int argc, char **argv, const char *part)
{
    int i;
    for (i = 3; i < argc; ++i)
        if (strcmp(argv[i], part) == 0)
            return 1;
    return argc <= 3;
}

static void on_the_host(warp_device *cpu, uint64_t bytes)
{
    printf("host to host, rows with gaps on both sides\n");
    MUST(warp_copy_set_threads(0));
    gaps("one thread", cpu, WARP_MEMORY_HOST, cpu, WARP_MEMORY_HOST, bytes, NULL);
    MUST(warp_copy_set_threads(4));
    gaps("4 copy threads at most", cpu, WARP_MEMORY_HOST, cpu, WARP_MEMORY_HOST, bytes, NULL);
}

static void of_few_bytes(warp_device *cpu, warp_device *gpu, warp_stream *stream)
{
    void *a = block(gpu, 1 << 20, WARP_MEMORY_CUDA_DEVICE), *b = block(gpu, 1 << 20, WARP_MEMORY_CUDA_DEVICE);
    void *p = block(gpu, 1 << 20, WARP_MEMORY_UNKNOWN), *q = block(cpu, 1 << 20, WARP_MEMORY_PINNED);
    printf("what a small copy costs over the raw call\n");
    small("within a GPU, plain", a, b, 4096, stream);
    small("within a GPU, pool", p, p == a ? b : a, 4096, stream);
    small("page-locked to device", a, q, 4096, stream);
    small("device to page-locked", q, a, 4096, stream);
    MUST(warp_free(a));
    MUST(warp_free(b));
    MUST(warp_free(p));
    MUST(warp_free(q));
}

static void with_gaps(warp_device *cpu, warp_device *gpu, uint64_t bytes, warp_stream *stream)
{
    printf("items with gaps, within a GPU and over the host's bus\n");
    gaps("within a GPU", gpu, WARP_MEMORY_CUDA_DEVICE, gpu, WARP_MEMORY_CUDA_DEVICE, bytes, stream);
    gaps("page-locked to device", gpu, WARP_MEMORY_CUDA_DEVICE, cpu, WARP_MEMORY_PINNED, bytes / 4, stream);
    gaps("device to page-locked", cpu, WARP_MEMORY_PINNED, gpu, WARP_MEMORY_CUDA_DEVICE, bytes / 4, stream);
    gaps("pageable to device", gpu, WARP_MEMORY_CUDA_DEVICE, cpu, WARP_MEMORY_HOST, bytes / 4, stream);
    gaps("device to pageable", cpu, WARP_MEMORY_HOST, gpu, WARP_MEMORY_CUDA_DEVICE, bytes / 4, stream);
}

static void between_two(warp_device *gpu, uint64_t bytes, warp_stream *stream)
{
    warp_device *other = NULL;
    MUST(warp_device_get("cuda:1", &other));
    printf("GPU to GPU without access\n");
    between(gpu, other, stream, WARP_MEMORY_CUDA_DEVICE, "plain");
    between(gpu, other, stream, WARP_MEMORY_CUDA_MEMPOOL, "pool");
    gaps("with gaps, without access", other, WARP_MEMORY_CUDA_DEVICE, gpu, WARP_MEMORY_CUDA_DEVICE, bytes / 4, stream);
    MUST(warp_peer_access_set_enabled(gpu, other, 1));
    MUST(warp_peer_access_set_enabled(other, gpu, 1));
    MUST(warp_mempool_access_set_enabled(gpu, other, 1));
    MUST(warp_mempool_access_set_enabled(other, gpu, 1));
    printf("GPU to GPU with access\n");
    between(gpu, other, stream, WARP_MEMORY_CUDA_DEVICE, "plain");
    between(gpu, other, stream, WARP_MEMORY_CUDA_MEMPOOL, "pool");
    gaps("with gaps, with access", other, WARP_MEMORY_CUDA_DEVICE, gpu, WARP_MEMORY_CUDA_DEVICE, bytes / 4, stream);
}

int main(int argc, char **argv)
{
    size_t count = 0;
    warp_device *cpu = NULL, *gpu = NULL;
    warp_stream *stream = NULL;
    warp_stream_options options = {.struct_size = sizeof options, .flags = WARP_STREAM_NON_BLOCKING};
    uint64_t medium;
    if (argc > 1)
        large = strtoull(argv[1], NULL, 0) << 20;
    if (argc > 2)
        rounds = atoi(argv[2]);
    if (rounds < 1 || rounds > 64 || large < (1 << 20)) {
        fprintf(stderr, "1 to 64 rounds, and at least 1 MiB\n");
        return 1;
    }
    medium = large < (UINT64_C(512) << 20) ? large : UINT64_C(512) << 20;
    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST(warp_init(NULL, NULL));
    MUST(warp_device_get("cpu", &cpu));
    if (chosen(argc, argv, "host"))
        on_the_host(cpu, medium);
    MUST(warp_device_get_count(&count));
    if (count < 2) {
        printf("no GPU; what needs one is left out\n");
        return warp_shutdown() != WARP_SUCCESS;
    }
    raw_copy = (copy_fn)driver_entry("cuMemcpyAsync");
    raw_peer = (peer_fn)driver_entry("cuMemcpyPeerAsync");
    raw_wait = (wait_fn)driver_entry("cuStreamSynchronize");
    set_current = (set_current_fn)driver_entry("cuCtxSetCurrent");
    MUST(warp_device_get("cuda:0", &gpu));
    MUST(warp_stream_create(gpu, &options, &stream));
    {
        void *context = NULL;
        MUST(warp_device_get_native_context(gpu, &context));
        good(set_current(context), "cuCtxSetCurrent");
    }
    if (chosen(argc, argv, "small"))
        of_few_bytes(cpu, gpu, stream);
    if (chosen(argc, argv, "pageable"))
        pageable(gpu, stream);
    if (chosen(argc, argv, "gaps"))
        with_gaps(cpu, gpu, medium, stream);
    if (chosen(argc, argv, "fills")) {
        printf("fills\n");
        fills(gpu, stream);
    }
    if (chosen(argc, argv, "between")) {
        if (count < 3)
            printf("one GPU; what needs two is left out\n");
        else
            between_two(gpu, medium, stream);
    }
    MUST(warp_stream_release(stream));
    return warp_shutdown() != WARP_SUCCESS;
}
