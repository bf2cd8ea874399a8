/*
 * Copies and fills between all kinds of memory on all devices: byte-exact, at odd places, with the neighbours untouched.
 */
/* topology: h200x2 */
/* topology: h200x2,peers=0 */
/* topology: mixed */
/* topology: vgpu */
/* topology: wsl */
/* topology: none */
/* topology: - */
#define _POSIX_C_SOURCE 200809L
#include "blocks.h"

#define PAGEABLE KINDS /* from malloc: nothing that the library knows */
#define MAX_PLACES 16

struct place {
    warp_device *device;
    int kind, gpu;
};

static size_t places(struct place *out)
{
    size_t count = 0;
    int g, kind;
    out[count].device = cpu();
    out[count].gpu = -1;
    out[count++].kind = PAGEABLE;
    for (g = -1; g < (int)gpu_count() && g < 2; ++g)
        for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind) {
            warp_device *device = g < 0 ? cpu() : gpu(g);
            if (has_kind(device, kind)) {
                out[count].device = device;
                out[count].gpu = g;
                out[count++].kind = kind;
            }
        }
    return count;
}

static unsigned char *get(struct place place, uint64_t size)
{
    if (place.kind == PAGEABLE)
        return (unsigned char *)malloc((size_t)size);
    return (unsigned char *)block_of(place.device, size, place.kind);
}

static void give(struct place place, unsigned char *ptr)
{
    if (place.kind == PAGEABLE)
        free(ptr);
    else
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
}

/* Brings work on all GPUs to an end: the caller orders a copy after what produced its source. */
static void settle(void)
{
    int g;
    for (g = 0; g < (int)gpu_count() && g < 2; ++g)
        CHECK_STATUS(warp_device_synchronize(gpu(g)), WARP_SUCCESS);
}

static void describe(struct place from, struct place to, uint64_t size)
{
    const char *const names[] = {"any", "HOST", "PINNED", "CUDA_DEVICE", "CUDA_MEMPOOL", "CUDA_MANAGED", "malloc"};
    printf("\n      from %s of GPU %d to %s of GPU %d, %" PRIu64 " bytes", names[from.kind], from.gpu, names[to.kind], to.gpu,
           size);
}

#define ROOM 9000

TEST(every_pair_of_places)
{
    static const uint64_t sizes[] = {1, 2, 3, 7, 255, 256, 257, 4097, 8191};
    static const uint64_t offsets[] = {0, 1, 13, 256};
    struct place list[MAX_PLACES];
    unsigned char *expected = (unsigned char *)malloc(ROOM), *got = (unsigned char *)malloc(ROOM);
    size_t count, from, to, s, o;
    REQUIRE(start());
    count = places(list);
    for (from = 0; from < count; ++from) {
        unsigned char *source = get(list[from], ROOM);
        put_pattern(source, ROOM, from);
        settle();
        for (to = 0; to < count; ++to) {
            unsigned char *dest = get(list[to], ROOM);
            put_pattern(dest, ROOM, 100 + to);
            write_pattern(expected, ROOM, 100 + to);
            settle();
            for (s = 0; s < sizeof sizes / sizeof *sizes; ++s)
                for (o = check_under("valgrind") ? 3 : 0; o < sizeof offsets / sizeof *offsets; ++o) {
                    uint64_t at = offsets[o], left = offsets[(o + s) % 4], i;
                    int before = check_failure_count();
                    CHECK_STATUS(warp_memory_copy(dest + at, source + left, sizes[s], NULL), WARP_SUCCESS);
                    settle();
                    for (i = 0; i < sizes[s]; ++i)
                        expected[at + i] = byte_at(left + i, from);
                    copy_now(got, dest, ROOM, NULL);
                    settle();
                    CHECK(memcmp(got, expected, ROOM) == 0);
                    if (check_failure_count() != before)
                        describe(list[from], list[to], sizes[s]);
                    REQUIRE(check_failure_count() < 10);
                }
            give(list[to], dest);
        }
        CHECK_EQ_U64(find_pattern(source, ROOM, from), ROOM);
        give(list[from], source);
    }
    free(expected);
    free(got);
    CHECK_NOTHING_LEFT();
}

TEST(a_stream_of_either_device)
{
    struct place list[MAX_PLACES];
    size_t count = places(list), from, to;
    int s;
    for (s = 0; s < (int)gpu_count() && s < 2; ++s) {
        warp_stream *stream = new_stream(gpu(s), WARP_STREAM_NON_BLOCKING);
        for (from = 0; from < count; ++from)
            for (to = 0; to < count; ++to) {
                unsigned char *source, *dest;
                if (list[from].gpu != s && list[to].gpu != s)
                    continue;
                source = get(list[from], 1000);
                dest = get(list[to], 1000);
                put_pattern(source, 1000, from);
                put_pattern(dest, 1000, 50);
                settle();
                CHECK_STATUS(warp_memory_copy(dest, source, 1000, stream), WARP_SUCCESS);
                CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
                CHECK_EQ_U64(find_pattern(dest, 1000, from), 1000);
                give(list[from], source);
                give(list[to], dest);
            }
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_NOTHING_LEFT();
}

TEST(copies_inside_one_block_may_overlap_on_the_host)
{
    int kind, delta;
    for (kind = WARP_MEMORY_HOST; kind <= WARP_MEMORY_PINNED; ++kind) {
        unsigned char *ptr, *expected;
        if (!has_kind(cpu(), kind))
            continue;
        ptr = (unsigned char *)block_of(cpu(), 1000, kind);
        expected = (unsigned char *)malloc(1000);
        for (delta = -50; delta <= 50; delta += 10) {
            write_pattern(ptr, 1000, 1);
            write_pattern(expected, 1000, 1);
            memmove(expected + 100 + delta, expected + 100, 700);
            CHECK_STATUS(warp_memory_copy(ptr + 100 + delta, ptr + 100, 700, NULL), WARP_SUCCESS);
            CHECK(memcmp(ptr, expected, 1000) == 0);
        }
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        free(expected);
    }
    CHECK_NOTHING_LEFT();
}

/* CP-03: offsets that do not fit in 32 bits. */
TEST(far_into_a_block)
{
    unsigned char *device, *other;
    const uint64_t size = 5 * GIB;
    if (gpu_count() < 2)
        SKIP("needs two GPUs");
    device = (unsigned char *)block_of(gpu(0), size, WARP_MEMORY_CUDA_DEVICE);
    other = (unsigned char *)block_of(gpu((int)gpu_count() - 1), size, WARP_MEMORY_CUDA_DEVICE);
    REQUIRE(device != NULL && other != NULL);
    put_pattern(device + size - 5000, 5000, 1);
    put_pattern(device + 4 * GIB - 2500, 5000, 2);
    CHECK_STATUS(warp_memory_fill(device, 5000, "abc", 1, NULL), WARP_SUCCESS);
    settle();
    CHECK_STATUS(warp_memory_copy(other + size - 5000, device + size - 5000, 5000, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(other + 4 * GIB - 2500, device + 4 * GIB - 2500, 5000, NULL), WARP_SUCCESS);
    settle();
    CHECK_EQ_U64(find_pattern(other + size - 5000, 5000, 1), 5000);
    CHECK_EQ_U64(find_pattern(other + 4 * GIB - 2500, 5000, 2), 5000);
    /* Fills that end exactly at the block's end and cross the fourth gibibyte. */
    CHECK_STATUS(warp_memory_fill(other + 4 * GIB - 6, 12, "xyz", 3, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_fill(other + size - 6, 6, "xyz", 3, NULL), WARP_SUCCESS);
    {
        unsigned char bytes[12];
        copy_now(bytes, other + 4 * GIB - 6, 12, NULL);
        CHECK(memcmp(bytes, "xyzxyzxyzxyz", 12) == 0);
        copy_now(bytes, other + size - 6, 6, NULL);
        CHECK(memcmp(bytes, "xyzxyz", 6) == 0);
    }
    CHECK_STATUS(warp_memory_copy(other, device + 1, size, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_free(device), WARP_SUCCESS);
    CHECK_STATUS(warp_free(other), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(what_does_not_fit_is_refused_before_the_driver_is_asked)
{
    struct place list[MAX_PLACES];
    size_t count = places(list), from, to;
    for (from = 0; from < count; ++from)
        for (to = 0; to < count; ++to) {
            unsigned char *source = get(list[from], 1000), *dest = get(list[to], 1000);
            uint64_t all;
            put_pattern(dest, 1000, 5);
            settle();
            all = simulator_is_here() ? calls("*") - calls("cuPointerGetAttributes") : 0;
            if (list[to].kind != PAGEABLE) {
                CHECK_STATUS(warp_memory_copy(dest + 1, source, 1000, NULL), WARP_ERROR_INVALID_ARGUMENT);
                CHECK_STR_CONTAINS(warp_error_get_message(), "the destination");
            }
            if (list[from].kind != PAGEABLE) {
                CHECK_STATUS(warp_memory_copy(dest, source + 1, 1000, NULL), WARP_ERROR_INVALID_ARGUMENT);
                CHECK_STR_CONTAINS(warp_error_get_message(), "by 1");
            }
            if (simulator_is_here())
                CHECK_EQ_U64(calls("*") - calls("cuPointerGetAttributes"), all);
            CHECK_EQ_U64(find_pattern(dest, 1000, 5), 1000);
            give(list[from], source);
            give(list[to], dest);
        }
    CHECK_NOTHING_LEFT();
}

TEST(fills_of_every_pattern_at_every_place)
{
    static const uint64_t offsets[] = {0, 1, 2, 3, 4, 7, 8, 255};
    static const uint64_t repeats[] = {1, 2, 3, 17, 100};
    struct place list[MAX_PLACES];
    unsigned char pattern[40], *expected = (unsigned char *)malloc(ROOM), *got = (unsigned char *)malloc(ROOM);
    size_t count = places(list), p, length, o, i, form;
    for (p = 0; p < count; ++p) {
        unsigned char *ptr = get(list[p], ROOM);
        put_pattern(ptr, ROOM, p);
        write_pattern(expected, ROOM, p);
        settle();
        for (length = 1; length <= 17; length += check_under("valgrind") ? 5 : 1)
            for (form = 0; form < 4; ++form) /* no period, all the same, period two, period four */
                for (o = 0; o < sizeof offsets / sizeof *offsets; ++o) {
                    uint64_t repeat = repeats[(o + length + form) % 5], at = offsets[o];
                    int before = check_failure_count();
                    for (i = 0; i < length; ++i)
                        pattern[i] = byte_at(form == 0 ? i : form == 1 ? 0 : form == 2 ? i % 2 : i % 4, length * 8 + o);
                    CHECK_STATUS(warp_memory_fill(ptr + at, repeat * length, pattern, length, NULL), WARP_SUCCESS);
                    /* The pattern was read before the call returned. */
                    for (i = 0; i < repeat * length; ++i)
                        expected[at + i] = pattern[i % length];
                    memset(pattern, 0xEE, sizeof pattern);
                    settle();
                    copy_now(got, ptr, ROOM, NULL);
                    settle();
                    CHECK(memcmp(got, expected, ROOM) == 0);
                    if (check_failure_count() != before) {
                        describe(list[p], list[p], repeat * length);
                        printf(", pattern of %u bytes, form %u, offset %" PRIu64, (unsigned)length, (unsigned)form, at);
                    }
                    REQUIRE(check_failure_count() < 10);
                }
        give(list[p], ptr);
    }
    free(expected);
    free(got);
    CHECK_NOTHING_LEFT();
}

TEST(the_pattern_may_lie_anywhere_on_the_host)
{
    /* In page-locked memory, which the driver reads when the copy runs, and in the range that is filled. */
    struct place list[MAX_PLACES];
    size_t count = places(list), p, length, i;
    for (p = 0; p < count; ++p) {
        unsigned char got[120], *ptr = get(list[p], 120), *pattern;
        if (gpu_count() != 0) {
            for (length = 1; length <= 12; ++length) {
                warp_stream *stream = list[p].gpu < 0 ? NULL : new_stream(list[p].device, WARP_STREAM_NON_BLOCKING);
                pattern = (unsigned char *)block_of(cpu(), 12, WARP_MEMORY_PINNED);
                write_pattern(pattern, length, length);
                if (stream != NULL && simulator_is_here())
                    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native_stream(stream)), 0);
                CHECK_STATUS(warp_memory_fill(ptr, 10 * length, pattern, length, stream), WARP_SUCCESS);
                memset(pattern, 0xEE, 12);
                CHECK_STATUS(warp_free(pattern), WARP_SUCCESS);
                if (stream != NULL) {
                    if (simulator_is_here())
                        CHECK_EQ_U64(SIMULATOR(warpsim_release)(native_stream(stream)), 0);
                    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
                    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
                }
                copy_now(got, ptr, 10 * length, NULL);
                settle();
                for (i = 0; i < 10 * length; ++i)
                    REQUIRE(got[i] == byte_at(i % length, length));
            }
        }
        if (list[p].gpu < 0) {
            /* The first bytes of a block over all of it, and bytes from its middle. */
            write_pattern(ptr, 120, 3);
            CHECK_STATUS(warp_memory_fill(ptr, 120, ptr, 10, NULL), WARP_SUCCESS);
            for (i = 0; i < 120; ++i)
                REQUIRE(ptr[i] == byte_at(i % 10, 3));
            write_pattern(ptr, 120, 4);
            CHECK_STATUS(warp_memory_fill(ptr, 120, ptr + 35, 12, NULL), WARP_SUCCESS);
            for (i = 0; i < 120; ++i)
                REQUIRE(ptr[i] == byte_at(35 + i % 12, 4));
            write_pattern(ptr, 120, 5);
            CHECK_STATUS(warp_memory_fill(ptr + 5, 110, ptr, 11, NULL), WARP_SUCCESS);
            for (i = 0; i < 110; ++i)
                REQUIRE(ptr[5 + i] == byte_at(i % 11, 5));
        }
        give(list[p], ptr);
    }
    CHECK_NOTHING_LEFT();
}

TEST(work_on_a_stream_is_done_in_its_order)
{
    warp_stream *stream;
    unsigned char *a, *b, got[16];
    int i;
    if (gpu_count() == 0 || !simulator_is_here())
        SKIP("needs simulated GPUs");
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    a = (unsigned char *)block_on(gpu(0), 1000, WARP_MEMORY_CUDA_DEVICE, stream);
    b = (unsigned char *)block_on(gpu(0), 1000, WARP_MEMORY_CUDA_DEVICE, stream);
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native_stream(stream)), 0);
    for (i = 0; i < 50; ++i) {
        /* A pageable source is read before the call returns, whenever the copy then runs. */
        memset(got, i, sizeof got);
        CHECK_STATUS(warp_memory_copy(a, got, sizeof got, stream), WARP_SUCCESS);
        memset(got, 0xEE, sizeof got);
        CHECK_STATUS(warp_memory_copy(b + 16 * i, a, sizeof got, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(a, 3, "abc", 3, stream), WARP_SUCCESS);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_release)(native_stream(stream)), 0);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    for (i = 0; i < 50; ++i) {
        copy_now(got, b + 16 * i, sizeof got, stream);
        CHECK(got[0] == i && got[15] == i);
    }
    CHECK_STATUS(warp_free(a), WARP_SUCCESS);
    CHECK_STATUS(warp_free(b), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
