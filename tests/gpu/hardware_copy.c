/*
 * hardware_copy.c: copies on real GPUs: random ones beside a slow copy (../c/copy_model.h), and those that need real memory and real
 * delays: gigabytes with gaps whose offsets pass 2^32, all pairs of kinds and devices with and without access, pageable memory
 * through page-locked buffers; temporary memory and page-locked blocks that are taken again under copies that still run.
 *
 *     hardware_copy                                all of it; needs 24 GiB of GPU memory and of host memory
 *     WARPMEM_COPY_SEEDS=500 hardware_copy random  more seeds
 *
 * On a simulated driver the sizes are small.
 *
 * topology: h200x2
 */
#include "hardware.h"

#include "../c/copy_model.h"

#include <sys/mman.h>

/* Bytes that a real GPU gets, and fewer for a simulated one. */
static uint64_t scaled(uint64_t size)
{
    return is_small() ? size / 2048 : size;
}

static void settle(void)
{
    size_t i;
    for (i = 0; i < gpus(); ++i) {
        warp_device *each = NULL;
        CHECK_STATUS(warp_device_get_at(i + 1, &each), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(each), WARP_SUCCESS);
    }
}

TEST(random_copies_are_what_a_slow_copy_makes)
{
    const uint64_t seeds = model_number_of("WARPMEM_COPY_SEEDS", is_small() ? 4 : 60);
    start();
    model_run(1000, seeds, 400, 4, 1);
    printf("\n    %" PRIu64 " copies of %" PRIu64 " items, %" PRIu64 " of them large, %" PRIu64 " denied", model.made, model.items, model.large,
           model.denied);
}

/* ---- Patterns --------------------------------------------------------------------------------------------------------- */

static uint64_t word_at(uint64_t index, uint64_t salt)
{
    uint64_t x = (index + salt) * 0x9e3779b97f4a7c15u;
    return x ^ (x >> 29);
}

static void write_words(uint64_t *words, uint64_t bytes, uint64_t salt)
{
    uint64_t i;
    for (i = 0; i < bytes / 8; ++i)
        words[i] = word_at(i, salt);
}

/* The first byte that is wrong, or `bytes`. */
static uint64_t first_wrong(const uint64_t *words, uint64_t bytes, uint64_t salt)
{
    uint64_t i;
    for (i = 0; i < bytes / 8; ++i)
        if (words[i] != word_at(i, salt))
            return i * 8;
    return bytes;
}

static void *host_memory(uint64_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static warp_array *wrapped(warp_device *on, void *ptr, uint32_t item, int32_t rank, const int64_t *shape, const int64_t *strides)
{
    warp_dtype dtype = {WARP_DTYPE_OPAQUE, 0, 0, 0};
    warp_array_wrap_options options = {.struct_size = sizeof options, .strides = strides};
    warp_array *array = NULL;
    dtype.item_size = item;
    CHECK_STATUS(warp_array_wrap(on, ptr, dtype, rank, shape, &options, &array), WARP_SUCCESS);
    return array;
}

static void drop(warp_array *array)
{
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
}

/* ---- Large, with gaps ------------------------------------------------------------------------------------------------- */

/* 2 GiB in rows that lie 2 rows and a bit apart, so that the last ones begin behind 2^32; packed, spread, packed again and back
 * on the host, by each way. */
TEST(gigabytes_with_gaps)
{
    static const struct {
        const char *name;
        uint64_t row;
        uint32_t item;
        int64_t gap;
    } cases[] = {
        {"rows of 4 KiB", 4096, 4, 4104},
        {"rows of 1 MiB", 1 << 20, 16, (1 << 20) + 64},
        {"rows of 72 bytes", 72, 8, 84},
        {"items of 20 bytes", 20, 20, 23},
        {"bytes", 1, 1, 2},
    };
    warp_device *gpu, *cpu = NULL;
    uint64_t *in, *out;
    char *packed, *spread, *host_spread;
    size_t i;
    start();
    gpu = device("cuda:0");
    CHECK_STATUS(warp_device_get("cpu", &cpu), WARP_SUCCESS);
    {
        const uint64_t size = scaled(2 * GIB + 64 * MIB), room = scaled(7 * GIB);
        in = host_memory(size);
        out = host_memory(size);
        host_spread = host_memory(room);
        REQUIRE(in != NULL && out != NULL && host_spread != NULL);
        packed = block(gpu, size, WARP_MEMORY_CUDA_DEVICE, NULL);
        spread = block(gpu, room, WARP_MEMORY_CUDA_MEMPOOL, NULL);
        for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
            /* Single bytes are many: fewer of them, still over 2^32 by the stride of the rows. */
            const uint64_t rows = size / cases[i].row / (cases[i].row < 64 ? 16 : 1), columns = cases[i].row / cases[i].item;
            const uint64_t bytes = rows * cases[i].row / 8 * 8;
            const int64_t shape[2] = {(int64_t)rows, (int64_t)columns};
            const int64_t pitch = cases[i].row < 64 ? (int64_t)((room - 64) / rows) : (int64_t)cases[i].row + cases[i].gap;
            const int64_t strides[2] = {pitch, (int64_t)cases[i].item};
            warp_array *dense = wrapped(gpu, packed, cases[i].item, 2, shape, NULL), *sparse = wrapped(gpu, spread + 5, cases[i].item, 2, shape, strides);
            warp_array *from_host = wrapped(cpu, in, cases[i].item, 2, shape, NULL), *to_host = wrapped(cpu, out, cases[i].item, 2, shape, NULL);
            warp_array *sparse_host = wrapped(cpu, host_spread + 3, cases[i].item, 2, shape, strides);
            const double began = now();
            int before = check_failure_count();
            CHECK(is_small() || (uint64_t)pitch * (rows - 1) > UINT64_C(1) << 32);
            write_words(in, bytes, i * 1000);
            /* Up with gaps, within the GPU without them, down. */
            CHECK_STATUS(warp_array_copy(sparse, from_host, 0, 0, 0, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_array_fill(dense, in, cases[i].item, NULL), WARP_SUCCESS);
            settle();
            CHECK_STATUS(warp_array_copy(dense, sparse, 0, 0, 0, NULL), WARP_SUCCESS);
            settle();
            memset(out, 0xEE, bytes);
            CHECK_STATUS(warp_array_copy(to_host, dense, 0, 0, 0, NULL), WARP_SUCCESS);
            settle();
            CHECK_EQ_U64(first_wrong(out, bytes, i * 1000), bytes);
            /* The other way: spread within the GPU, down with gaps, packed on the host. */
            write_words(in, bytes, i * 1000 + 7);
            CHECK_STATUS(warp_array_copy(dense, from_host, 0, 0, 0, NULL), WARP_SUCCESS);
            settle();
            CHECK_STATUS(warp_array_copy(sparse, dense, 0, 0, 0, NULL), WARP_SUCCESS);
            settle();
            CHECK_STATUS(warp_array_copy(sparse_host, sparse, 0, 0, 0, NULL), WARP_SUCCESS);
            settle();
            memset(out, 0xEE, bytes);
            CHECK_STATUS(warp_array_copy(to_host, sparse_host, 0, 0, 0, NULL), WARP_SUCCESS);
            CHECK_EQ_U64(first_wrong(out, bytes, i * 1000 + 7), bytes);
            drop(dense);
            drop(sparse);
            drop(from_host);
            drop(to_host);
            drop(sparse_host);
            printf("\n    %s: %.1f GiB in %.1f s", cases[i].name, (double)bytes / (double)GIB, now() - began);
            if (check_failure_count() != before)
                printf(", wrong");
        }
        CHECK_STATUS(warp_free(packed), WARP_SUCCESS);
        CHECK_STATUS(warp_free(spread), WARP_SUCCESS);
        settle();
        munmap(in, size);
        munmap(out, size);
        munmap(host_spread, room);
    }
}

/* A matrix of 2 GiB is turned round on the GPU, and back by the way to the host. */
TEST(a_large_matrix_is_turned_round)
{
    const int64_t rows = is_small() ? 96 : 65536, columns = is_small() ? 72 : 8192;
    const int64_t shape[2] = {rows, columns}, turned_shape[2] = {columns, rows}, turned_strides[2] = {4, 4 * columns};
    const uint64_t bytes = (uint64_t)(rows * columns) * 4;
    warp_device *gpu, *cpu = NULL;
    uint32_t *host;
    char *first, *second;
    warp_array *matrix, *view, *result, *back;
    int64_t row, column;
    uint64_t wrong = 0;
    start();
    gpu = device("cuda:0");
    CHECK_STATUS(warp_device_get("cpu", &cpu), WARP_SUCCESS);
    host = host_memory(bytes);
    REQUIRE(host != NULL);
    for (row = 0; row < rows * columns; ++row)
        host[row] = (uint32_t)row * 2654435761u;
    first = block(gpu, bytes, WARP_MEMORY_CUDA_DEVICE, NULL);
    second = block(gpu, bytes, WARP_MEMORY_CUDA_MEMPOOL, NULL);
    CHECK_STATUS(warp_memory_copy(first, host, bytes, NULL), WARP_SUCCESS);
    settle();
    matrix = wrapped(gpu, first, 4, 2, shape, NULL);
    view = wrapped(gpu, first, 4, 2, turned_shape, turned_strides);
    result = wrapped(gpu, second, 4, 2, turned_shape, NULL);
    CHECK_STATUS(warp_array_copy(result, view, 0, 0, 0, NULL), WARP_SUCCESS);
    settle();
    memset(host, 0, bytes);
    CHECK_STATUS(warp_memory_copy(host, second, bytes, NULL), WARP_SUCCESS);
    settle();
    for (column = 0; column < columns; ++column)
        for (row = 0; row < rows; ++row)
            wrong += host[column * rows + row] != (uint32_t)(row * columns + column) * 2654435761u;
    CHECK_EQ_U64(wrong, 0);
    /* Into a turned view of host memory. */
    back = wrapped(cpu, host, 4, 2, turned_shape, turned_strides);
    memset(host, 0, bytes);
    CHECK_STATUS(warp_array_copy(back, result, 0, 0, 0, NULL), WARP_SUCCESS);
    settle();
    for (row = 0; row < rows * columns; ++row)
        wrong += host[row] != (uint32_t)row * 2654435761u;
    CHECK_EQ_U64(wrong, 0);
    drop(matrix);
    drop(view);
    drop(result);
    drop(back);
    CHECK_STATUS(warp_free(first), WARP_SUCCESS);
    CHECK_STATUS(warp_free(second), WARP_SUCCESS);
    settle();
    munmap(host, bytes);
}

/* ---- All pairs -------------------------------------------------------------------------------------------------------- */

enum { ORDINARY, LOCKED, PLAIN, POOL, MANAGED, KINDS };
static const char *const kind_names[] = {"pageable", "page-locked", "plain", "pool", "managed"};

static char *memory_of(int kind, int gpu, uint64_t size)
{
    static const warp_memory_kind kinds[] = {0, WARP_MEMORY_PINNED, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    if (kind == ORDINARY)
        return malloc(size);
    return block(device(kind == LOCKED ? "cpu" : gpu == 0 ? "cuda:0" : "cuda:1"), size, kinds[kind], NULL);
}

static void give_back(int kind, char *memory)
{
    if (kind == ORDINARY)
        free(memory);
    else
        CHECK_STATUS(warp_free(memory), WARP_SUCCESS);
}

static warp_device *owner_of(int kind, int gpu)
{
    return device(kind <= LOCKED ? "cpu" : gpu == 0 ? "cuda:0" : "cuda:1");
}

/* From each kind of memory to each, flat at odd places and in rows with gaps; all bytes of the destination are looked at. */
static void all_pairs(const char *access)
{
    const uint64_t size = scaled(48 * MIB), flat = scaled(40 * MIB) + 13;
    const int64_t row_bytes = 3000, rows = (int64_t)(size / 3200) - 2, shape[2] = {rows, row_bytes / 4}, strides[2] = {3200, 4};
    unsigned char *expected = malloc(size), *got = malloc(size), *source = malloc(size);
    int from, to, from_gpu, to_gpu, gap;
    uint64_t pairs = 0;
    for (from = 0; from < KINDS; ++from)
        for (from_gpu = 0; from_gpu < (from <= LOCKED ? 1 : (int)gpus() < 2 ? 1 : 2); ++from_gpu)
            for (to = 0; to < KINDS; ++to)
                for (to_gpu = 0; to_gpu < (to <= LOCKED ? 1 : (int)gpus() < 2 ? 1 : 2); ++to_gpu)
                    for (gap = 0; gap < 2; ++gap) {
                        char *src = memory_of(from, from_gpu, size), *dest = memory_of(to, to_gpu, size);
                        int before = check_failure_count();
                        int64_t r;
                        ++pairs;
                        write_words((uint64_t *)(void *)source, size / 8 * 8, pairs * 77);
                        write_words((uint64_t *)(void *)expected, size / 8 * 8, pairs * 77 + 5);
                        settle();
                        CHECK_STATUS(warp_memory_copy(src, source, size, NULL), WARP_SUCCESS);
                        CHECK_STATUS(warp_memory_copy(dest, expected, size, NULL), WARP_SUCCESS);
                        settle();
                        if (gap == 0) {
                            CHECK_STATUS(warp_memory_copy(dest + 7, src + 3, flat, NULL), WARP_SUCCESS);
                            memcpy(expected + 7, source + 3, flat);
                        } else {
                            warp_array *out = wrapped(owner_of(to, to_gpu), dest + 4, 4, 2, shape, strides);
                            warp_array *in = wrapped(owner_of(from, from_gpu), src + 40, 4, 2, shape, strides);
                            CHECK_STATUS(warp_array_copy(out, in, 0, 0, 0, NULL), WARP_SUCCESS);
                            for (r = 0; r < rows; ++r)
                                memcpy(expected + 4 + 3200 * r, source + 40 + 3200 * r, (size_t)row_bytes);
                            drop(out);
                            drop(in);
                        }
                        settle();
                        CHECK_STATUS(warp_memory_copy(got, dest, size, NULL), WARP_SUCCESS);
                        settle();
                        CHECK(memcmp(got, expected, size) == 0);
                        if (check_failure_count() != before)
                            printf("\n      %s of GPU %d to %s of GPU %d%s, access: %s", kind_names[from], from_gpu, kind_names[to], to_gpu,
                                   gap ? ", with gaps" : "", access);
                        give_back(from, src);
                        give_back(to, dest);
                        if (check_failure_count() > 10)
                            return;
                    }
    printf("\n    %" PRIu64 " pairs, access: %s", pairs, access);
    free(expected);
    free(got);
    free(source);
}

static void let(uint8_t enabled)
{
    warp_device *one = device("cuda:0"), *two = device("cuda:1");
    uint8_t can = 0;
    CHECK_STATUS(warp_peer_access_is_supported(one, two, &can), WARP_SUCCESS);
    if (!can)
        return;
    CHECK_STATUS(warp_peer_access_set_enabled(one, two, enabled), WARP_SUCCESS);
    CHECK_STATUS(warp_peer_access_set_enabled(two, one, enabled), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_access_set_enabled(one, two, enabled), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_access_set_enabled(two, one, enabled), WARP_SUCCESS);
}

TEST(every_pair_of_kinds_and_devices)
{
    start();
    all_pairs("none");
    if (gpus() < 2)
        return;
    let(1);
    all_pairs("all");
    let(0);
    settle();
}

/* ---- CP-01 ------------------------------------------------------------------------------------------------------------ */

enum { SLOTS = 8, SIDE = 96 };

/* Copies between GPUs back to back, of other data each, by way of temporary memory that is taken again at once. */
static uint64_t recycled(int from_strided, int to_strided, int on_source, uint64_t rounds)
{
    const int64_t shape[2] = {SIDE, SIDE}, strides[2] = {12 * SIDE, 12};
    const uint64_t size = 12 * SIDE * SIDE;
    warp_stream *streams[2] = {new_stream(device("cuda:0"), WARP_STREAM_NON_BLOCKING), new_stream(device("cuda:1"), WARP_STREAM_NON_BLOCKING)};
    warp_stream *on = streams[!on_source];
    char *from[SLOTS], *to[SLOTS];
    warp_array *source[SLOTS], *target[SLOTS];
    int32_t *seen = malloc(size), value = 1;
    uint64_t round, wrong = 0, i;
    int slot;
    for (slot = 0; slot < SLOTS; ++slot) {
        from[slot] = block(device("cuda:0"), size, WARP_MEMORY_CUDA_MEMPOOL, streams[0]);
        to[slot] = block(device("cuda:1"), size, WARP_MEMORY_CUDA_MEMPOOL, streams[1]);
        source[slot] = wrapped(device("cuda:0"), from[slot], 4, 2, shape, from_strided ? strides : NULL);
        target[slot] = wrapped(device("cuda:1"), to[slot], 4, 2, shape, to_strided ? strides : NULL);
    }
    settle();
    for (round = 0; round < rounds; round += SLOTS) {
        for (slot = 0; slot < SLOTS; ++slot) {
            const int32_t now_value = value + slot;
            CHECK_STATUS(warp_array_fill(source[slot], &now_value, 4, streams[0]), WARP_SUCCESS);
            if (on != streams[0])
                CHECK_STATUS(warp_stream_wait_stream(on, streams[0]), WARP_SUCCESS);
            CHECK_STATUS(warp_array_copy(target[slot], source[slot], 0, 0, 0, on), WARP_SUCCESS);
        }
        CHECK_STATUS(warp_stream_synchronize(on), WARP_SUCCESS);
        for (slot = 0; slot < SLOTS; ++slot) {
            CHECK_STATUS(warp_memory_copy(seen, to[slot], size, streams[1]), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(streams[1]), WARP_SUCCESS);
            for (i = 0; i < SIDE * SIDE; ++i)
                wrong += seen[to_strided ? 3 * i : i] != value + slot;
        }
        value += SLOTS;
        if (check_failure_count() > 5)
            break;
    }
    for (slot = 0; slot < SLOTS; ++slot) {
        drop(source[slot]);
        drop(target[slot]);
        CHECK_STATUS(warp_free(from[slot]), WARP_SUCCESS);
        CHECK_STATUS(warp_free(to[slot]), WARP_SUCCESS);
    }
    settle();
    CHECK_STATUS(warp_stream_release(streams[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(streams[1]), WARP_SUCCESS);
    free(seen);
    return wrong;
}

TEST(temporary_memory_is_read_before_it_is_given_out_again)
{
    const uint64_t rounds = is_small() ? 64 : 2000;
    int way, pools;
    start();
    if (gpus() < 2)
        SKIP("needs two GPUs");
    for (pools = 1; pools >= 0; --pools) {
        CHECK_STATUS(warp_mempool_set_enabled(device("cuda:0"), (uint8_t)pools), WARP_SUCCESS);
        CHECK_STATUS(warp_mempool_set_enabled(device("cuda:1"), (uint8_t)pools), WARP_SUCCESS);
        for (way = 1; way < 8; ++way)
            if ((way & 3) != 0)
                CHECK_EQ_U64(recycled(way & 1, way >> 1 & 1, way >> 2, pools ? rounds : rounds / 4), 0);
    }
    CHECK_STATUS(warp_mempool_set_enabled(device("cuda:0"), 1), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_enabled(device("cuda:1"), 1), WARP_SUCCESS);
}

/* ---- CP-02 ------------------------------------------------------------------------------------------------------------ */

/* Page-locked blocks are freed and taken again under copies of tens of microseconds that read and write them. */
TEST(page_locked_memory_is_freed_under_copies)
{
    const uint64_t size = scaled(2 * MIB) + 64, rounds = is_small() ? 100 : 3000;
    warp_stream *stream;
    char *there;
    uint64_t round, wrong = 0, most = 0;
    unsigned char *seen;
    start();
    stream = new_stream(device("cuda:0"), WARP_STREAM_NON_BLOCKING);
    there = block(device("cuda:0"), size, WARP_MEMORY_CUDA_MEMPOOL, stream);
    seen = malloc(size);
    for (round = 0; round < rounds; ++round) {
        unsigned char *first = (unsigned char *)block(device("cpu"), size, WARP_MEMORY_PINNED, NULL), *second, *third;
        const unsigned char value = (unsigned char)(1 + round % 250);
        memset(first, value, size);
        CHECK_STATUS(warp_memory_copy(there, first, size, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(first), WARP_SUCCESS);
        second = (unsigned char *)block(device("cpu"), size, WARP_MEMORY_PINNED, NULL);
        memset(second, 0xEE, size);
        CHECK_STATUS(warp_memory_copy(second, there, size, stream), WARP_SUCCESS);
        /* What is written to is freed, and the next block is not what comes there. */
        CHECK_STATUS(warp_free(second), WARP_SUCCESS);
        third = (unsigned char *)block(device("cpu"), size, WARP_MEMORY_PINNED, NULL);
        memset(third, 0xDD, size);
        CHECK_STATUS(warp_memory_copy(seen, there, size, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        wrong += !all_are(seen, size, value) + !all_are(third, size, 0xDD);
        CHECK_STATUS(warp_free(third), WARP_SUCCESS);
        if (round == 100)
            most = live(device("cpu"));
        else if (round > 100)
            wrong += live(device("cpu")) > most + 4;
        if (wrong != 0)
            break;
    }
    CHECK_EQ_U64(wrong, 0);
    CHECK_EQ_U64(round, rounds);
    CHECK_STATUS(warp_free(there), WARP_SUCCESS);
    settle();
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    free(seen);
}

/* ---- CP-03 ------------------------------------------------------------------------------------------------------------ */

static int holds_byte(const char *at, unsigned char value)
{
    unsigned char byte = 0;
    CHECK_STATUS(warp_memory_copy(&byte, at, 1, NULL), WARP_SUCCESS);
    settle();
    return byte == value;
}

/* Both ends of what was filled and copied, and the bytes beside them. */
TEST(sizes_around_32_bits)
{
    static const uint64_t sizes[] = {(UINT64_C(1) << 31) - 1, UINT64_C(1) << 31, (UINT64_C(1) << 32) - 1, UINT64_C(1) << 32,
                                     (UINT64_C(1) << 32) + 256, UINT64_C(5) << 30};
    const uint64_t room = scaled(UINT64_C(5) << 30) + 4096;
    char *from, *to[3];
    unsigned char *host;
    size_t i;
    int k;
    start();
    from = block(device("cuda:0"), room, WARP_MEMORY_CUDA_DEVICE, NULL);
    to[0] = block(device("cuda:0"), room, WARP_MEMORY_CUDA_MEMPOOL, NULL);
    to[1] = gpus() > 1 ? block(device("cuda:1"), room, WARP_MEMORY_CUDA_DEVICE, NULL) : NULL;
    to[2] = host_memory(room);
    REQUIRE(to[2] != NULL);
    host = (unsigned char *)to[2];
    for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        const uint64_t size = scaled(sizes[i]);
        const unsigned char value = (unsigned char)(10 + i);
        CHECK_STATUS(warp_memory_fill(from, room, "\x01", 1, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(from + 1, size, &value, 1, NULL), WARP_SUCCESS);
        settle();
        CHECK(holds_byte(from, 1) && holds_byte(from + 1, value) && holds_byte(from + size, value) && holds_byte(from + size + 1, 1));
        for (k = 0; k < 3; ++k) {
            if (to[k] == NULL)
                continue;
            if (k < 2)
                CHECK_STATUS(warp_memory_fill(to[k], room, "\x02", 1, NULL), WARP_SUCCESS);
            else
                memset(to[k], 2, room);
            settle();
            CHECK_STATUS(warp_memory_copy(to[k] + 2, from + 1, size, NULL), WARP_SUCCESS);
            settle();
            if (k < 2)
                CHECK(holds_byte(to[k] + 1, 2) && holds_byte(to[k] + 2, value) && holds_byte(to[k] + size + 1, value) && holds_byte(to[k] + size + 2, 2));
            else
                CHECK(host[1] == 2 && all_are(host + 2, size, value) && host[size + 2] == 2);
        }
        /* And up from pageable memory. */
        CHECK_STATUS(warp_memory_fill(from, room, "\x03", 1, NULL), WARP_SUCCESS);
        settle();
        CHECK_STATUS(warp_memory_copy(from + 3, to[2] + 2, size, NULL), WARP_SUCCESS);
        settle();
        CHECK(holds_byte(from + 2, 3) && holds_byte(from + 3, value) && holds_byte(from + size + 2, value) && holds_byte(from + size + 3, 3));
        if (check_failure_count() != 0) {
            printf("\n      %llu bytes", (unsigned long long)size);
            break;
        }
    }
    CHECK_STATUS(warp_free(from), WARP_SUCCESS);
    CHECK_STATUS(warp_free(to[0]), WARP_SUCCESS);
    if (to[1] != NULL)
        CHECK_STATUS(warp_free(to[1]), WARP_SUCCESS);
    settle();
    munmap(to[2], room);
}

/* ---- Captures --------------------------------------------------------------------------------------------------------- */

/* Rows with gaps, a turned matrix and picked items become nodes, and read what is there in each run. */
TEST(copies_with_gaps_are_right_in_each_run_of_a_graph)
{
    enum { ROWS = 60, COLUMNS = 44, RUNS = 3 };
    const int64_t shape[2] = {ROWS, COLUMNS}, turned[2] = {COLUMNS, ROWS}, turned_strides[2] = {4, 4 * COLUMNS}, gaps[2] = {8 * COLUMNS, 8};
    const int64_t picks_count = COLUMNS;
    warp_device *gpu;
    warp_stream *stream;
    char *source, *spread, *result, *numbers;
    int32_t *host, *back, picks[COLUMNS];
    warp_array *in, *in_turned, *wide, *out, *index, *picked_from;
    const warp_array *indices[2] = {NULL, NULL};
    warp_indexed_array *indexed = NULL;
    warp_graph *graph = NULL;
    int run, r, c;
    uint64_t wrong = 0;
    start();
    gpu = device("cuda:0");
    stream = new_stream(gpu, WARP_STREAM_NON_BLOCKING);
    source = block(gpu, 4 * ROWS * COLUMNS, WARP_MEMORY_CUDA_DEVICE, stream);
    spread = block(gpu, 8 * ROWS * COLUMNS, WARP_MEMORY_CUDA_MEMPOOL, stream);
    result = block(gpu, 4 * ROWS * COLUMNS, WARP_MEMORY_CUDA_MEMPOOL, stream);
    numbers = block(gpu, sizeof picks, WARP_MEMORY_CUDA_MEMPOOL, stream);
    host = (int32_t *)block(device("cpu"), 4 * ROWS * COLUMNS, WARP_MEMORY_PINNED, NULL);
    back = (int32_t *)block(device("cpu"), 8 * ROWS * COLUMNS, WARP_MEMORY_PINNED, NULL);
    for (c = 0; c < COLUMNS; ++c)
        picks[c] = (c * 7 + 3) % COLUMNS;
    CHECK_STATUS(warp_memory_copy(numbers, picks, sizeof picks, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    in = wrapped(gpu, source, 4, 2, shape, NULL);
    in_turned = wrapped(gpu, source, 4, 2, turned, turned_strides);
    wide = wrapped(gpu, spread, 4, 2, shape, gaps);
    out = wrapped(gpu, result, 4, 2, turned, NULL);
    picked_from = wrapped(device("cpu"), back, 4, 2, turned, (const int64_t[]){8 * ROWS, 8});
    CHECK_STATUS(warp_array_wrap(gpu, numbers, warp_dtype_make(WARP_DTYPE_INT, 32), 1, &picks_count, NULL, &index), WARP_SUCCESS);
    indices[0] = index;
    CHECK_STATUS(warp_indexed_array_create(in_turned, indices, 2, &indexed), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(source, host, 4 * ROWS * COLUMNS, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_array_copy(wide, in, 0, 0, 0, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_indexed_array_gather(out, indexed, stream), WARP_SUCCESS);
    /* With gaps in page-locked memory. */
    CHECK_STATUS(warp_array_copy(picked_from, out, 0, 0, 0, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    for (run = 1; run <= RUNS; ++run) {
        int32_t *seen = malloc(8 * ROWS * COLUMNS);
        for (r = 0; r < ROWS * COLUMNS; ++r)
            host[r] = r * 31 + run;
        memset(back, 0, 8 * ROWS * COLUMNS);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        for (c = 0; c < COLUMNS; ++c)
            for (r = 0; r < ROWS; ++r)
                wrong += back[2 * (c * ROWS + r)] != host[r * COLUMNS + picks[c]];
        CHECK_STATUS(warp_memory_copy(seen, spread, 8 * ROWS * COLUMNS, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        for (r = 0; r < ROWS * COLUMNS; ++r)
            wrong += seen[2 * r] != host[r];
        free(seen);
    }
    CHECK_EQ_U64(wrong, 0);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
    drop(index);
    drop(in);
    drop(in_turned);
    drop(wide);
    drop(out);
    drop(picked_from);
    CHECK_STATUS(warp_free(source), WARP_SUCCESS);
    CHECK_STATUS(warp_free(spread), WARP_SUCCESS);
    CHECK_STATUS(warp_free(result), WARP_SUCCESS);
    CHECK_STATUS(warp_free(numbers), WARP_SUCCESS);
    CHECK_STATUS(warp_free(host), WARP_SUCCESS);
    CHECK_STATUS(warp_free(back), WARP_SUCCESS);
    settle();
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

/* Numbers that lead out of the data, on a real GPU: those items are left out, and there is no fault. */
TEST(numbers_that_lead_out_are_left_out)
{
    enum { ITEMS = 4096 };
    const int64_t count = ITEMS, extent = 1000;
    int32_t *numbers, *values, *seen;
    warp_device *gpu;
    char *data_block, *number_block, *line_block;
    warp_array *data, *index, *line;
    const warp_array *indices[1];
    warp_indexed_array *indexed = NULL;
    int i, wrong = 0;
    start();
    gpu = device("cuda:0");
    numbers = malloc(4 * ITEMS);
    values = malloc(4 * ITEMS);
    seen = malloc(4 * ITEMS);
    data_block = block(gpu, 4000, WARP_MEMORY_CUDA_DEVICE, NULL);
    number_block = block(gpu, 4 * ITEMS, WARP_MEMORY_CUDA_MEMPOOL, NULL);
    line_block = block(gpu, 4 * ITEMS, WARP_MEMORY_CUDA_MEMPOOL, NULL);
    for (i = 0; i < ITEMS; ++i) {
        numbers[i] = i % 3 == 0 ? INT32_MIN + i : i % 3 == 1 ? 1000 + i * 500000 : i % 1000;
        values[i] = i * 3;
    }
    CHECK_STATUS(warp_memory_copy(data_block, values, 4000, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(number_block, numbers, 4 * ITEMS, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_fill(line_block, 4 * ITEMS, "\x77", 1, NULL), WARP_SUCCESS);
    settle();
    data = wrapped(gpu, data_block, 4, 1, &extent, NULL);
    line = wrapped(gpu, line_block, 4, 1, &count, NULL);
    CHECK_STATUS(warp_array_wrap(gpu, number_block, warp_dtype_make(WARP_DTYPE_INT, 32), 1, &count, NULL, &index), WARP_SUCCESS);
    indices[0] = index;
    CHECK_STATUS(warp_indexed_array_create(data, indices, 1, &indexed), WARP_SUCCESS);
    CHECK_STATUS(warp_indexed_array_gather(line, indexed, NULL), WARP_SUCCESS);
    settle();
    CHECK_STATUS(warp_memory_copy(seen, line_block, 4 * ITEMS, NULL), WARP_SUCCESS);
    settle();
    for (i = 0; i < ITEMS; ++i)
        wrong += seen[i] != (i % 3 == 2 ? values[i % 1000] : 0x77777777);
    CHECK_EQ_I64(wrong, 0);
    CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
    drop(index);
    drop(line);
    drop(data);
    CHECK_STATUS(warp_free(data_block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(number_block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(line_block), WARP_SUCCESS);
    settle();
    free(numbers);
    free(values);
    free(seen);
}

CHECK_MAIN()
