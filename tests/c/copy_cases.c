/*
 * copy_cases.c: copies that went wrong elsewhere. A copy between GPUs read temporary memory that the next one had taken over
 * already (case CP-01); page-locked memory was freed under a copy that used it (CP-02); sizes, strides and offsets did not fit
 * into 32 bits (CP-03). Case OM-05, the limit of page-locked memory, is in out_of_memory.c.
 *
 * topology: h200x2,peers=0
 * topology: h200x2
 * topology: mixed,memory=40GiB
 * needs: simulator
 */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE 1
#include "captures.h"

#include <sys/mman.h>

/* ---- CP-01: temporary memory is nobody else's until it was read ------------------------------------------------------- */

enum { SLOTS = 8, ROWS = 6, COLUMNS = 5, GAP = 3 };

/* An array of int32 items, with gaps or without, and what it is a view of. */
struct matrix {
    warp_array *whole, *view;
    int is_strided;
};

static const int64_t shape_of[2] = {ROWS, COLUMNS};

static struct matrix matrix_on(const char *alias, warp_memory_kind kind, int is_strided)
{
    struct matrix matrix = {NULL, NULL, is_strided};
    const int64_t all[2] = {ROWS * GAP, COLUMNS * GAP}, step[2] = {GAP, GAP};
    warp_array_options options = {.struct_size = sizeof options, .kind = kind};
    const int32_t nothing = -1;
    CHECK_STATUS(warp_array_full(device(alias), warp_dtype_make(WARP_DTYPE_INT, 32), 2, is_strided ? all : shape_of, &nothing, &options,
                                 &matrix.whole),
                 WARP_SUCCESS);
    if (is_strided)
        CHECK_STATUS(warp_array_slice(matrix.whole, 2, NULL, NULL, step, &matrix.view), WARP_SUCCESS);
    else
        CHECK_STATUS(warp_array_slice(matrix.whole, 0, NULL, NULL, NULL, &matrix.view), WARP_SUCCESS);
    return matrix;
}

static void drop(struct matrix *matrix)
{
    CHECK_STATUS(warp_array_release(matrix->view), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(matrix->whole), WARP_SUCCESS);
}

static warp_array_info about(const warp_array *array)
{
    warp_array_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_array_get_info(array, &info), WARP_SUCCESS);
    return info;
}

/* Whether the items of the view have the value, and all others what they had; all work is done. */
static int is_whole(const struct matrix *matrix, int32_t value)
{
    const int rows = matrix->is_strided ? ROWS * GAP : ROWS, columns = matrix->is_strided ? COLUMNS * GAP : COLUMNS;
    int32_t items[ROWS * GAP * COLUMNS * GAP];
    warp_array_info info = about(matrix->whole);
    int row, column, wrong = 0, step = matrix->is_strided ? GAP : 1;
    if (SIMULATOR(warpsim_peek)((uint64_t)(uintptr_t)info.data, items, info.size) != 0)
        memcpy(items, info.data, info.size);
    for (row = 0; row < rows; ++row)
        for (column = 0; column < columns; ++column)
            wrong += items[row * columns + column] != (row % step == 0 && column % step == 0 ? value : -1);
    return wrong == 0;
}

struct way {
    const char *name;
    const char *from, *to;
    warp_memory_kind from_kind, to_kind;
    int from_strided, to_strided, on_source;
};

static const struct way ways[] = {
    {"a strided source", "cuda:0", "cuda:1", 0, 0, 1, 0, 0},
    {"a strided source, on its stream", "cuda:0", "cuda:1", 0, 0, 1, 0, 1},
    {"a strided destination", "cuda:0", "cuda:1", 0, 0, 0, 1, 0},
    {"a strided destination, on the source's stream", "cuda:0", "cuda:1", 0, 0, 0, 1, 1},
    {"both strided", "cuda:0", "cuda:1", 0, 0, 1, 1, 0},
    {"both strided, on the source's stream", "cuda:0", "cuda:1", 0, 0, 1, 1, 1},
    {"both strided, the other way", "cuda:1", "cuda:0", 0, 0, 1, 1, 0},
    {"plain memory", "cuda:0", "cuda:1", WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_DEVICE, 1, 1, 0},
    {"from the host", "cpu", "cuda:0", WARP_MEMORY_HOST, 0, 1, 1, 0},
    {"from the host to rows", "cpu", "cuda:1", WARP_MEMORY_HOST, 0, 1, 0, 0},
    {"from page-locked memory", "cpu", "cuda:0", WARP_MEMORY_PINNED, 0, 1, 1, 0},
    {"to the host", "cuda:0", "cpu", 0, WARP_MEMORY_HOST, 1, 1, 1},
    {"to the host from rows", "cuda:1", "cpu", 0, WARP_MEMORY_HOST, 0, 1, 1},
    {"to page-locked memory", "cuda:0", "cpu", 0, WARP_MEMORY_PINNED, 1, 1, 1},
};
enum { WAYS = sizeof ways / sizeof *ways };

static warp_stream *stream_on(const char *alias)
{
    return strcmp(alias, "cpu") == 0 ? NULL : make_stream(alias, WARP_STREAM_NON_BLOCKING);
}

static void wait_for(warp_stream *later, warp_stream *first)
{
    if (later != NULL && first != NULL && later != first)
        CHECK_STATUS(warp_stream_wait_stream(later, first), WARP_SUCCESS);
}

static void has_value(const struct way *way, warp_array *array, int32_t value, warp_stream *stream)
{
    /* Host memory that a copy reads later may be written when that was waited for. */
    CHECK_STATUS(warp_array_fill(array, &value, 4, strcmp(way->from, "cpu") == 0 ? NULL : stream), WARP_SUCCESS);
}

/* Copies back to back, each of other data. `held`: the stream that they go on stands still until all are put there. */
static void rounds(const struct way *way, int count, int held)
{
    warp_stream *from_stream = stream_on(way->from), *to_stream = stream_on(way->to);
    warp_stream *on = way->on_source ? from_stream : to_stream;
    const int at_once = way->from_kind == WARP_MEMORY_PINNED || way->to_kind == WARP_MEMORY_HOST;
    struct matrix from[SLOTS], to[SLOTS];
    int32_t value = 1;
    int slot, round, before = check_failure_count();
    for (slot = 0; slot < SLOTS; ++slot) {
        from[slot] = matrix_on(way->from, way->from_kind, way->from_strided);
        to[slot] = matrix_on(way->to, way->to_kind, way->to_strided);
    }
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_SUCCESS);
    for (round = 0; round < count; round += SLOTS) {
        /* A call that waits releases what it waits for, so a copy to ordinary memory comes to its end. */
        if (held)
            CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(on)), 0);
        for (slot = 0; slot < SLOTS; ++slot) {
            has_value(way, from[slot].view, value + slot, from_stream);
            wait_for(on, from_stream);
            CHECK_STATUS(warp_array_copy(to[slot].view, from[slot].view, 0, 0, 0, on), WARP_SUCCESS);
            /* Ordinary memory was read by now. */
            if (strcmp(way->from, "cpu") == 0 && !at_once)
                has_value(way, from[slot].view, -77, NULL);
        }
        if (held)
            SIMULATOR(warpsim_release_all)();
        CHECK_STATUS(warp_stream_synchronize(on), WARP_SUCCESS);
        for (slot = 0; slot < SLOTS; ++slot)
            CHECK(is_whole(&to[slot], value + slot));
        value += SLOTS;
        if (check_failure_count() != before) {
            printf("\n      %s, round %d%s", way->name, round, held ? ", held" : "");
            break;
        }
    }
    for (slot = 0; slot < SLOTS; ++slot) {
        drop(&from[slot]);
        drop(&to[slot]);
    }
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(from_stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(to_stream), WARP_SUCCESS);
}

static void use_pools(int enabled)
{
    int gpu;
    for (gpu = 0; gpu < 2; ++gpu) {
        warp_device *of = device(gpu == 0 ? "cuda:0" : "cuda:1");
        uint8_t is_supported = 0;
        CHECK_STATUS(warp_mempool_is_supported(of, &is_supported), WARP_SUCCESS);
        if (is_supported)
            CHECK_STATUS(warp_mempool_set_enabled(of, (uint8_t)enabled), WARP_SUCCESS);
    }
}

/* No violations, and nothing left. */
static void check_right(void)
{
    char text[512];
    size_t i;
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_SUCCESS);
    CHECK_EQ_U64(live_blocks(), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    for (i = 0; i < 5 && SIMULATOR(warpsim_violation_get)(i, text, sizeof text) != 0; ++i)
        printf("\n    %s", text);
}

/* CP-01: 10,000 rounds in all, in the driver's own order and in others. */
static void recycled(int pools)
{
    int way, seed;
    const int each = check_under("valgrind") ? 8 : check_under("sanitizer") ? 64 : 360;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    SIMULATOR(warpsim_races)(1);
    use_pools(pools);
    for (way = 0; way < WAYS; ++way) {
        rounds(&ways[way], each / 4, 0);
        rounds(&ways[way], each / 4, 1);
    }
    for (way = 0; way < WAYS; ++way)
        for (seed = 1; seed <= (check_under("valgrind") ? 1 : 5); ++seed) {
            SIMULATOR(warpsim_schedule)((uint64_t)(100 * way + seed));
            rounds(&ways[way], each / 10, 0);
            SIMULATOR(warpsim_schedule)(0);
        }
    check_right();
}

PROCESS_TEST(temporary_memory_of_pools_is_not_given_out_before_it_was_read)
{
    recycled(1);
}

PROCESS_TEST(temporary_memory_without_pools_is_not_given_out_before_it_was_read)
{
    recycled(0);
}

/* In a process of its own, whose words are thrown away: does a library notice that gives temporary memory back too early? */
static int is_found(int pools, uint32_t mistake)
{
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        int before = check_failure_count();
        if (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL)
            _exit(1);
        SIMULATOR(warpsim_misorder)(mistake);
        recycled(pools);
        _exit(check_failure_count() != before ? 42 : 0);
    }
    return process_wait(child) != 0;
}

PROCESS_TEST(memory_that_is_given_back_too_early_would_be_found)
{
    if (check_under("valgrind"))
        return;
    CHECK(!is_found(1, 0));
    CHECK(is_found(1, 1)); /* pool memory is freed on a stream of its own */
    CHECK(is_found(0, 4)); /* all work is said to be done */
}

/* ---- CP-02: page-locked memory under copies that use it --------------------------------------------------------------- */

static void *pinned(uint64_t size)
{
    void *block = NULL;
    CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, size, &block), WARP_SUCCESS);
    return block;
}

static unsigned char byte_of(const void *block)
{
    unsigned char value = 0;
    CHECK_EQ_U64(SIMULATOR(warpsim_peek)((uint64_t)(uintptr_t)block, &value, 1), 0);
    return value;
}

/* A block is copied to the GPU, freed, and another one taken and written over at once. */
static void freed_under_copies(int count, int held, int strided)
{
    enum { SIZE = 960 };
    const int64_t shape[2] = {8, 60}, strides[2] = {120, 2}, packed[2] = {60, 1};
    warp_stream *stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    char *on_gpu = alloc_on("cuda:0", stream, SIZE);
    int round, before = check_failure_count();
    size_t most = 0;
    uint64_t most_bytes = 0;
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    for (round = 0; round < count; ++round) {
        unsigned char *first = pinned(SIZE), *second, *third;
        const unsigned char value = (unsigned char)(1 + round % 250);
        memset(first, value, SIZE);
        if (held)
            SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(stream));
        if (strided) {
            warp_array *dest = NULL, *src = NULL;
            warp_array_wrap_options options = {.struct_size = sizeof options, .strides = strides};
            CHECK_STATUS(warp_array_wrap(device("cpu"), first, warp_dtype_make(WARP_DTYPE_UINT, 8), 2, shape, &options, &src), WARP_SUCCESS);
            options.strides = packed;
            CHECK_STATUS(warp_array_wrap(device("cuda:0"), on_gpu, warp_dtype_make(WARP_DTYPE_UINT, 8), 2, shape, &options, &dest), WARP_SUCCESS);
            CHECK_STATUS(warp_array_copy(dest, src, 0, 0, 0, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_array_release(dest), WARP_SUCCESS);
            CHECK_STATUS(warp_array_release(src), WARP_SUCCESS);
        } else {
            CHECK_STATUS(warp_memory_copy(on_gpu, first, SIZE, stream), WARP_SUCCESS);
        }
        CHECK_STATUS(warp_free(first), WARP_SUCCESS);
        second = pinned(SIZE);
        memset(second, 0xEE, SIZE);
        /* And back: what is read into is freed before it is there. */
        third = pinned(SIZE);
        CHECK_STATUS(warp_memory_copy(third, on_gpu, 480, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(third), WARP_SUCCESS);
        third = pinned(SIZE);
        memset(third, 0xDD, SIZE);
        CHECK_STATUS(warp_memory_copy(second, on_gpu, 480, stream), WARP_SUCCESS);
        if (held)
            SIMULATOR(warpsim_release_all)();
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK(second[0] == value && second[479] == value && second[480] == 0xEE);
        CHECK(third[0] == 0xDD && third[SIZE - 1] == 0xDD);
        CHECK_EQ_U64(byte_of(on_gpu + 479), value);
        CHECK_STATUS(warp_free(second), WARP_SUCCESS);
        CHECK_STATUS(warp_free(third), WARP_SUCCESS);
        if (round == 50) {
            most = live("pinned");
            most_bytes = SIMULATOR(warpsim_live_bytes)("pinned");
        } else if (round > 50) {
            CHECK(live("pinned") <= most + 8);
            CHECK(SIMULATOR(warpsim_live_bytes)("pinned") <= most_bytes + 8 * 4096);
        }
        if (check_failure_count() != before) {
            printf("\n      round %d%s%s", round, held ? ", held" : "", strided ? ", strided" : "");
            break;
        }
    }
    CHECK_STATUS(warp_free(on_gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

PROCESS_TEST(page_locked_memory_is_freed_under_copies)
{
    const int count = check_under("valgrind") ? 20 : check_under("sanitizer") ? 400 : 2500;
    int way, seed;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    SIMULATOR(warpsim_races)(1);
    for (way = 0; way < 4; ++way)
        freed_under_copies(count, way / 2, way % 2);
    for (seed = 1; seed <= 10; ++seed) {
        SIMULATOR(warpsim_schedule)((uint64_t)seed);
        freed_under_copies(count / 10, 0, seed % 2);
        SIMULATOR(warpsim_schedule)(0);
    }
    check_right();
}

/* A capture holds what it has recorded, until its graph is gone. */
PROCESS_TEST(page_locked_memory_is_freed_in_the_capture_that_uses_it)
{
    enum { SIZE = 512 };
    int round, run;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    for (round = 0; round < (check_under("valgrind") ? 5 : 200); ++round) {
        warp_stream *stream = make_stream("cuda:0", 0);
        unsigned char *in = pinned(SIZE), *out = pinned(SIZE), *other;
        void *block = NULL;
        warp_graph *graph;
        CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_CUDA_DEVICE, SIZE, &block), WARP_SUCCESS);
        memset(in, 1, SIZE);
        memset(out, 0, SIZE);
        begin(stream);
        CHECK_STATUS(warp_memory_copy(block, in, SIZE, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(out, block, SIZE, stream), WARP_SUCCESS);
        /* Freed in the capture or behind it: the graph has it. */
        if (round % 2) {
            CHECK_STATUS(warp_free(in), WARP_SUCCESS);
            CHECK_STATUS(warp_free(out), WARP_SUCCESS);
        }
        graph = end(stream);
        if (round % 2 == 0) {
            CHECK_STATUS(warp_free(in), WARP_SUCCESS);
            CHECK_STATUS(warp_free(out), WARP_SUCCESS);
        }
        other = pinned(SIZE);
        CHECK(other != in && other != out);
        memset(other, 0xEE, SIZE);
        for (run = 1; run < 4; ++run) {
            /* It is there as long as the graph is. */
            memset(in, 10 * run, SIZE);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
            CHECK(out[0] == 10 * run && out[SIZE - 1] == 10 * run);
        }
        CHECK(other[0] == 0xEE && other[SIZE - 1] == 0xEE);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_free(other), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK(live("pinned") <= 4);
    }
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    CHECK_EQ_U64(live("pinned"), 0);
    check_right();
}

/* ---- CP-03: more than 32 bits ----------------------------------------------------------------------------------------- */

#define GIB ((uint64_t)1 << 30)
#define FAR_SIZE (9 * GIB)

/* Places in a large block, by 16 bytes each. */
static void mark(const void *block, uint64_t at, unsigned char value)
{
    unsigned char bytes[16];
    memset(bytes, value, sizeof bytes);
    CHECK_STATUS(warp_memory_copy((char *)(uintptr_t)block + at, bytes, sizeof bytes, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_SUCCESS);
}

static void *large(const char *alias)
{
    void *block = NULL;
    CHECK_STATUS(try_alloc(alias, NULL, WARP_MEMORY_CUDA_DEVICE, FAR_SIZE, &block), WARP_SUCCESS);
    return block;
}

static void synchronize_both(void)
{
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_SUCCESS);
}

/* Whether the driver was asked to copy just so many bytes from there to here. It was not let do so, which would move them all. */
static int was_asked(const void *to, const void *from, uint64_t size)
{
    char line[512], ends[96], bytes[2][32];
    size_t i, k;
    snprintf(ends, sizeof ends, "(%#llx, ", (unsigned long long)(uintptr_t)to);
    snprintf(bytes[0], sizeof bytes[0], ", %llu, ", (unsigned long long)size);
    snprintf(bytes[1], sizeof bytes[1], ", %#llx, ", (unsigned long long)size);
    for (i = 0; SIMULATOR(warpsim_log_get)(i, line, sizeof line) != 0; ++i) {
        char source[32];
        snprintf(source, sizeof source, " %#llx, ", (unsigned long long)(uintptr_t)from);
        for (k = 0; k < 2; ++k)
            if (strstr(line, "planned") != NULL && strstr(line, ends) != NULL && strstr(line, source) != NULL && strstr(line, bytes[k]) != NULL)
                return 1;
    }
    for (i = 0; SIMULATOR(warpsim_log_get)(i, line, sizeof line) != 0; ++i)
        if (strstr(line, "cuMemcpy") != NULL)
            printf("\n      %s", line);
    return 0;
}

static void plan(void)
{
    SIMULATOR(warpsim_log_clear)();
    fail("cuMemcpyAsync", 1, 999);
    fail("cuMemcpyPeerAsync", 1, 999);
}

/* Sizes, offsets and counts reach the driver as they are. */
PROCESS_TEST(sizes_of_more_than_32_bits)
{
    static const uint64_t sizes[] = {(UINT64_C(1) << 31) - 1, UINT64_C(1) << 31, (UINT64_C(1) << 32) - 1, UINT64_C(1) << 32,
                                     (UINT64_C(1) << 32) + 256, 5 * (UINT64_C(1) << 30)};
    char *from, *to[2];
    size_t i, k;
    uint8_t is_supported = 0;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    /* Without access there are buffers in between. */
    CHECK_STATUS(warp_peer_access_is_supported(device("cuda:0"), device("cuda:1"), &is_supported), WARP_SUCCESS);
    if (is_supported)
        CHECK_STATUS(warp_peer_access_set_enabled(device("cuda:0"), device("cuda:1"), 1), WARP_SUCCESS);
    from = large("cuda:0");
    to[0] = large("cuda:0");
    to[1] = large("cuda:1");
    for (i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        for (k = 0; k < (is_supported ? 2 : 1); ++k) {
            const uint64_t size = sizes[i], rest = FAR_SIZE - size;
            const int64_t count = (int64_t)size, long_count = (int64_t)FAR_SIZE;
            warp_array *src = NULL, *dest = NULL;
            warp_copy_request request = {.struct_size = sizeof request};
            warp_copy_info info = {.struct_size = sizeof info};
            plan();
            CHECK_STATUS(warp_memory_copy(to[k], from, size, NULL), WARP_ERROR_DRIVER);
            CHECK(was_asked(to[k], from, size));
            clear();
            /* As arrays, the last items of a larger one. */
            CHECK_STATUS(warp_array_wrap(device("cuda:0"), from, warp_dtype_make(WARP_DTYPE_UINT, 8), 1, &count, NULL, &src), WARP_SUCCESS);
            CHECK_STATUS(warp_array_wrap(device(k == 0 ? "cuda:0" : "cuda:1"), to[k], warp_dtype_make(WARP_DTYPE_UINT, 8), 1, &long_count, NULL, &dest), WARP_SUCCESS);
            request.dest_array = dest;
            request.src_array = src;
            request.dest_offset = rest;
            CHECK_STATUS(warp_copy_get_path(&request, NULL, &info), WARP_SUCCESS);
            CHECK_EQ_U64(info.size, size);
            plan();
            CHECK_STATUS(warp_copy_run(&request, NULL), WARP_ERROR_DRIVER);
            CHECK(was_asked(to[k] + rest, from, size));
            clear();
            request.dest_offset = rest + 1;
            CHECK_STATUS(warp_copy_run(&request, NULL), WARP_ERROR_INVALID_ARGUMENT);
            /* Few items behind very many, which are really copied. */
            mark(from, size - 16, 4);
            mark(to[k], FAR_SIZE - 16, 9);
            CHECK_STATUS(warp_array_copy(dest, src, FAR_SIZE - 5, size - 5, 5, NULL), WARP_SUCCESS);
            synchronize_both();
            {
                unsigned char bytes[16];
                CHECK_EQ_U64(SIMULATOR(warpsim_peek)((uint64_t)(uintptr_t)to[k] + FAR_SIZE - 16, bytes, 16), 0);
                CHECK(bytes[10] == 9 && bytes[11] == 4 && bytes[15] == 4);
            }
            CHECK_STATUS(warp_array_release(src), WARP_SUCCESS);
            CHECK_STATUS(warp_array_release(dest), WARP_SUCCESS);
            if (check_failure_count() != 0) {
                printf("\n      %llu bytes to GPU %d", (unsigned long long)size, (int)k);
                return;
            }
        }
    /* Of items of more bytes: the products pass 32 bits, the counts do not. */
    {
        const int64_t count = INT64_C(70000000), half = count / 2;
        const uint64_t item = 64;
        warp_dtype dtype = {WARP_DTYPE_OPAQUE, 0, 0, 64};
        warp_array *src = NULL, *dest = NULL;
        CHECK_STATUS(warp_array_wrap(device("cuda:0"), from, dtype, 1, &count, NULL, &src), WARP_SUCCESS);
        CHECK_STATUS(warp_array_wrap(device("cuda:0"), to[0], dtype, 1, &count, NULL, &dest), WARP_SUCCESS);
        plan();
        CHECK_STATUS(warp_array_copy(dest, src, (uint64_t)half, 0, (uint64_t)half, NULL), WARP_ERROR_DRIVER);
        CHECK(was_asked(to[0] + half * 64, from, (uint64_t)half * item));
        plan();
        CHECK_STATUS(warp_array_copy(dest, src, 0, 0, 0, NULL), WARP_ERROR_DRIVER);
        CHECK(was_asked(to[0], from, (uint64_t)count * item));
        clear();
        CHECK_STATUS(warp_array_release(src), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(dest), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(from), WARP_SUCCESS);
    CHECK_STATUS(warp_free(to[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_free(to[1]), WARP_SUCCESS);
    check_right();
}

/* Where items are, in 64 bits, and which byte each gets. */
struct layout {
    const char *name;
    int32_t rank;
    int64_t shape[3], strides[3], first;
};

static const struct layout layouts[] = {
    {"rows 2^31 apart", 2, {3, 20}, {INT64_C(1) << 31, 1}, 0},
    {"rows just over 2^32 apart", 2, {2, 20}, {(INT64_C(1) << 32) + 7, 1}, 3},
    {"items over 2^31 apart", 1, {4}, {(INT64_C(1) << 31) + 12345}, 1},
    {"many rows, the last behind 2^32", 2, {70, 3}, {(INT64_C(1) << 26) + 1, 5}, 17},
    {"backwards from behind 2^33", 2, {3, 4}, {-(INT64_C(1) << 32), -1}, (INT64_C(1) << 33) + 100},
    {"slices 2^32 apart", 3, {2, 3, 4}, {INT64_C(1) << 32, INT64_C(1) << 30, 2}, 9},
    {"columns far apart", 2, {5, 3}, {11, INT64_C(1) << 32}, 1},
    {"two ways far", 3, {2, 2, 3}, {INT64_C(1) << 32, (INT64_C(1) << 31) + 1, 7}, 5},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static uint64_t count_of(const struct layout *layout)
{
    uint64_t count = 1;
    int32_t i;
    for (i = 0; i < layout->rank; ++i)
        count *= (uint64_t)layout->shape[i];
    return count;
}

static int64_t place_of(const struct layout *layout, uint64_t number)
{
    int64_t at = layout->first;
    int32_t i;
    for (i = layout->rank - 1; i >= 0; --i) {
        at += (int64_t)(number % (uint64_t)layout->shape[i]) * layout->strides[i];
        number /= (uint64_t)layout->shape[i];
    }
    return at;
}

static warp_array *laid_out(warp_device *on, char *block, const struct layout *layout)
{
    warp_array_wrap_options options = {.struct_size = sizeof options, .strides = layout->strides};
    warp_array *array = NULL;
    CHECK_STATUS(warp_array_wrap(on, block + layout->first, warp_dtype_make(WARP_DTYPE_UINT, 8), layout->rank, layout->shape, &options, &array),
                 WARP_SUCCESS);
    return array;
}

static unsigned char peek(const char *block, int64_t at, int is_host)
{
    unsigned char byte = 0;
    if (is_host)
        return (unsigned char)block[at];
    CHECK_EQ_U64(SIMULATOR(warpsim_peek)((uint64_t)(uintptr_t)block + (uint64_t)at, &byte, 1), 0);
    return byte;
}

static unsigned char byte_for(uint64_t number, int round)
{
    return (unsigned char)(number * 37 + number / 251 + (uint64_t)round * 101 + 1);
}

/* Between a packed array and one whose items lie further apart than 32 bits tell, in all kinds of large memory. */
PROCESS_TEST(strides_and_offsets_of_more_than_32_bits)
{
    char *places[3], *packed_host, *packed_gpu;
    warp_device *on[3];
    int which, other;
    size_t l;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    places[0] = large("cuda:0");
    places[1] = large("cuda:1");
    /* Pages that nobody touches cost nothing. */
    places[2] = mmap(NULL, FAR_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(places[2] != MAP_FAILED);
    on[0] = device("cuda:0");
    on[1] = device("cuda:1");
    on[2] = device("cpu");
    packed_host = malloc(1 << 16);
    packed_gpu = alloc_on("cuda:0", NULL, 1 << 16);
    for (l = 0; l < LAYOUTS; ++l)
        for (which = 0; which < 3; ++which)
            for (other = 0; other < 2; ++other) {
                const struct layout *layout = &layouts[l];
                const uint64_t count = count_of(layout);
                const int round = (int)l * 6 + which * 2 + other;
                char *packed = other == 0 ? packed_host : packed_gpu;
                warp_array *far_array = laid_out(on[which], places[which], layout), *near = NULL, *again = NULL;
                uint64_t i, wrong = 0;
                int before = check_failure_count();
                CHECK_STATUS(warp_array_wrap(other == 0 ? on[2] : on[0], packed, warp_dtype_make(WARP_DTYPE_UINT, 8), layout->rank, layout->shape, NULL, &near), WARP_SUCCESS);
                for (i = 0; i < count; ++i)
                    packed_host[i] = (char)byte_for(i, round);
                if (other == 1) {
                    CHECK_STATUS(warp_memory_copy(packed_gpu, packed_host, count, NULL), WARP_SUCCESS);
                    synchronize_both();
                }
                CHECK_STATUS(warp_array_copy(far_array, near, 0, 0, 0, NULL), WARP_SUCCESS);
                synchronize_both();
                for (i = 0; i < count; ++i)
                    wrong += peek(places[which], place_of(layout, i), which == 2) != byte_for(i, round);
                CHECK_EQ_U64(wrong, 0);
                /* And back, to where nothing of it is. */
                CHECK_STATUS(warp_array_fill(near, "\0", 1, NULL), WARP_SUCCESS);
                synchronize_both();
                CHECK_STATUS(warp_array_copy(near, far_array, 0, 0, 0, NULL), WARP_SUCCESS);
                synchronize_both();
                for (i = 0; i < count; ++i)
                    wrong += peek(packed, (int64_t)i, other == 0) != byte_for(i, round);
                CHECK_EQ_U64(wrong, 0);
                CHECK_STATUS(warp_array_clone(far_array, on[0], NULL, &again), WARP_SUCCESS);
                synchronize_both();
                for (i = 0; i < count; ++i)
                    wrong += peek(about(again).data, (int64_t)i, 0) != byte_for(i, round);
                CHECK_EQ_U64(wrong, 0);
                CHECK_STATUS(warp_array_fill(far_array, "z", 1, NULL), WARP_SUCCESS);
                synchronize_both();
                for (i = 0; i < count; ++i)
                    wrong += peek(places[which], place_of(layout, i), which == 2) != 'z';
                CHECK_EQ_U64(wrong, 0);
                CHECK_STATUS(warp_array_release(again), WARP_SUCCESS);
                CHECK_STATUS(warp_array_release(near), WARP_SUCCESS);
                CHECK_STATUS(warp_array_release(far_array), WARP_SUCCESS);
                if (check_failure_count() != before)
                    printf("\n      %s, of %s, packed on %s", layout->name, which == 2 ? "the host" : which == 0 ? "GPU 0" : "GPU 1", other == 0 ? "the host" : "GPU 0");
                if (check_failure_count() > 10)
                    return;
            }
    munmap(places[2], FAR_SIZE);
    free(packed_host);
    CHECK_STATUS(warp_free(packed_gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_free(places[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_free(places[1]), WARP_SUCCESS);
    synchronize_both();
    check_right();
}

/* Numbers of items times strides that pass 32 bits. */
PROCESS_TEST(items_that_index_arrays_find_far_away)
{
    static const int32_t picks[5] = {0, 1 << 20, 3, 700001, (1 << 20) - 1};
    const int64_t extent = (1 << 20) + 1, stride = 8192, five = 5;
    warp_dtype numbers = warp_dtype_make(WARP_DTYPE_INT, 32), items = warp_dtype_make(WARP_DTYPE_INT, 64);
    int which;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    for (which = 0; which < 2; ++which) {
        warp_device *on = device(which == 0 ? "cuda:0" : "cpu");
        char *block = which == 0 ? large("cuda:0") : mmap(NULL, FAR_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        warp_array_wrap_options options = {.struct_size = sizeof options, .strides = &stride};
        warp_array *data = NULL, *index = NULL, *line = NULL;
        warp_indexed_array *indexed = NULL;
        int64_t values[5] = {11, 22, 33, 44, 55};
        uint64_t i;
        CHECK_STATUS(warp_array_wrap(on, block, items, 1, &extent, &options, &data), WARP_SUCCESS);
        CHECK_STATUS(warp_array_empty(on, numbers, 1, &five, NULL, &index), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(about(index).data, picks, sizeof picks, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_array_empty(device("cuda:0"), items, 1, &five, NULL, &line), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(about(line).data, values, sizeof values, NULL), WARP_SUCCESS);
        synchronize_both();
        {
            const warp_array *indices[1] = {index};
            CHECK_STATUS(warp_indexed_array_create(data, indices, 1, &indexed), WARP_SUCCESS);
        }
        CHECK_STATUS(warp_indexed_array_scatter(indexed, line, NULL), WARP_SUCCESS);
        synchronize_both();
        for (i = 0; i < 5; ++i)
            CHECK_EQ_U64(peek(block, (int64_t)picks[i] * stride, which == 1), (uint64_t)values[i]);
        CHECK_STATUS(warp_array_fill(line, "12345678", 8, NULL), WARP_SUCCESS);
        synchronize_both();
        CHECK_STATUS(warp_indexed_array_gather(line, indexed, NULL), WARP_SUCCESS);
        synchronize_both();
        for (i = 0; i < 5; ++i)
            CHECK_EQ_U64(peek(about(line).data, (int64_t)i * 8, 0), (uint64_t)values[i]);
        CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(line), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(index), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(data), WARP_SUCCESS);
        if (which == 0)
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        else
            munmap(block, FAR_SIZE);
    }
    synchronize_both();
    check_right();
}

CHECK_MAIN()
