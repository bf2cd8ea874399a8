/*
 * The chapter Memory given bad input: each mistake has a status of its own and words that name the way out, and changes
 * nothing: no driver call, no block more or less, no byte.
 */
/* topology: h200x2 */
/* topology: mixed */
/* topology: none */
/* topology: - */
#define _POSIX_C_SOURCE 200809L
#include "blocks.h"

#include <pthread.h>

/* What no refused call may change. */
struct state {
    uint64_t calls, blocks, bytes, allocations, frees, native;
};

static struct state state_now(void)
{
    struct state state;
    size_t count = 0, i;
    memset(&state, 0, sizeof state);
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    for (i = 0; i < count; ++i) {
        warp_device *device = NULL;
        warp_statistics statistics;
        CHECK_STATUS(warp_device_get_at(i, &device), WARP_SUCCESS);
        statistics = statistics_of(device, WARP_MEMORY_UNKNOWN);
        state.blocks += statistics.live_blocks;
        state.bytes += statistics.live_bytes;
        state.allocations += statistics.allocations;
        state.frees += statistics.frees;
    }
    if (simulator_is_here()) {
        /* What an unknown address is may be asked. */
        state.calls = calls("*") - calls("cuPointerGetAttributes");
        state.native = SIMULATOR(warpsim_live_count)("*");
    }
    return state;
}

static void check_same(struct state before, struct state now, int with_calls, int line)
{
    check_u64(now.blocks, before.blocks, __FILE__, line, "live blocks");
    check_u64(now.bytes, before.bytes, __FILE__, line, "live bytes");
    check_u64(now.allocations, before.allocations, __FILE__, line, "allocations");
    check_u64(now.frees, before.frees, __FILE__, line, "frees");
    check_u64(now.native, before.native, __FILE__, line, "the driver's live blocks");
    if (with_calls)
        check_u64(now.calls, before.calls, __FILE__, line, "driver calls");
}

/* The call is refused with the status, its message says some words, and nothing has changed. */
#define REFUSED(call, status, words)                              \
    do {                                                          \
        struct state before_ = state_now();                       \
        CHECK_STATUS(call, status);                               \
        CHECK_STR_CONTAINS(warp_error_get_message(), words);      \
        check_same(before_, state_now(), 1, __LINE__);            \
    } while (0)

static warp_device *default_device(void)
{
    warp_device *device = NULL;
    CHECK_STATUS(warp_device_get_default(&device), WARP_SUCCESS);
    return device;
}

#define FOREIGN_POINTER ((void *)(uintptr_t)0x1234567)

TEST(before_init_nothing_works_and_nothing_breaks)
{
    void *ptr = FOREIGN_POINTER;
    warp_pointer_info info;
    warp_statistics statistics;
    memset(&info, 0xEE, sizeof info);
    memset(&statistics, 0xEE, sizeof statistics);
    info.struct_size = sizeof info;
    statistics.struct_size = sizeof statistics;
    CHECK_STATUS(warp_alloc(NULL, 10, &ptr), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_PTR(ptr, NULL);
    ptr = FOREIGN_POINTER;
    CHECK_STATUS(warp_alloc_with(NULL, 10, NULL, &ptr), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STATUS(warp_free(FOREIGN_POINTER), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_init");
    CHECK_STATUS(warp_free(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free_with(FOREIGN_POINTER, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_pointer_get_info(FOREIGN_POINTER, &info), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_PTR(info.base, NULL);
    CHECK_EQ_I64(info.kind, 0);
    CHECK_STATUS(warp_pointer_record_stream(FOREIGN_POINTER, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_memory_fill(&info, 1, "", 1, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_memory_copy(&info, &statistics, 1, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_statistics_get(NULL, 0, &statistics), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_U64(statistics.live_bytes, 0);
    CHECK_STATUS(warp_statistics_reset_peak(NULL), WARP_ERROR_NOT_INITIALIZED);
    REQUIRE(start());
}

TEST(missing_outputs)
{
    REFUSED(warp_alloc(cpu(), 10, NULL), WARP_ERROR_INVALID_ARGUMENT, "NULL");
    REFUSED(warp_alloc(cpu(), 0, NULL), WARP_ERROR_INVALID_ARGUMENT, "NULL");
    REFUSED(warp_alloc_with(cpu(), 10, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT, "NULL");
    REFUSED(warp_pointer_get_info(FOREIGN_POINTER, NULL), WARP_ERROR_INVALID_ARGUMENT, "NULL");
    REFUSED(warp_statistics_get(cpu(), 0, NULL), WARP_ERROR_INVALID_ARGUMENT, "NULL");
}

TEST(sizes_that_no_address_space_has)
{
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 254, UINT64_MAX - 255, (uint64_t)1 << 63,
                                     ((uint64_t)1 << 63) + 1};
    size_t count = 0, i, s;
    int kind;
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    for (i = 0; i < count; ++i)
        for (s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
            warp_device *device = NULL;
            void *ptr = FOREIGN_POINTER;
            CHECK_STATUS(warp_device_get_at(i, &device), WARP_SUCCESS);
            REFUSED(warp_alloc(device, sizes[s], &ptr), WARP_ERROR_SIZE_OVERFLOW, "bytes");
            CHECK_EQ_PTR(ptr, NULL);
            for (kind = 0; kind < KINDS; ++kind) {
                warp_alloc_options options = options_of(kind, NULL);
                ptr = FOREIGN_POINTER;
                REFUSED(warp_alloc_with(device, sizes[s], &options, &ptr), WARP_ERROR_SIZE_OVERFLOW, "bytes");
                CHECK_EQ_PTR(ptr, NULL);
            }
        }
}

TEST(sizes_that_no_machine_has)
{
    static const uint64_t sizes[] = {((uint64_t)1 << 63) - 1, (uint64_t)1 << 62, (uint64_t)1 << 50};
    static const uint64_t alignments[] = {0, 1, 4096, (uint64_t)1 << 30};
    size_t count = 0, i, s, a;
    int kind;
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    for (i = 0; i < count; ++i)
        for (s = 0; s < sizeof sizes / sizeof *sizes; ++s)
            for (a = 0; a < sizeof alignments / sizeof *alignments; ++a)
                for (kind = 0; kind < KINDS; ++kind) {
                    warp_device *device = NULL;
                    warp_alloc_options options = options_of(kind, NULL);
                    struct state before;
                    void *ptr = FOREIGN_POINTER;
                    warp_status status;
                    CHECK_STATUS(warp_device_get_at(i, &device), WARP_SUCCESS);
                    /* Managed memory may be larger than a machine's. */
                    if (!has_kind(device, kind) || (kind == WARP_MEMORY_CUDA_MANAGED && sizes[s] >> 50 == 1))
                        continue;
                    /* valgrind ends a program that asks for such an alignment. */
                    if (alignments[a] >> 30 != 0 && check_under("valgrind"))
                        continue;
                    options.alignment = alignments[a];
                    before = state_now();
                    status = warp_alloc_with(device, sizes[s], &options, &ptr);
                    if (sizes[s] + alignments[a] > INT64_MAX)
                        CHECK_STATUS(status, WARP_ERROR_SIZE_OVERFLOW);
                    else
                        CHECK_STATUS(status, WARP_ERROR_OUT_OF_MEMORY);
                    CHECK_EQ_PTR(ptr, NULL);
                    check_same(before, state_now(), 0, __LINE__);
                }
}

TEST(alignments_that_are_none)
{
    static const uint64_t bad[] = {3, 255, 257, 768, ((uint64_t)1 << 63) - 1, UINT64_MAX, ((uint64_t)1 << 63) + 1};
    size_t count = 0, i, a;
    int kind;
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    for (i = 0; i < count; ++i)
        for (kind = 0; kind < KINDS; ++kind) {
            warp_device *device = NULL;
            warp_alloc_options options = options_of(kind, NULL);
            void *ptr = FOREIGN_POINTER;
            CHECK_STATUS(warp_device_get_at(i, &device), WARP_SUCCESS);
            if (!has_kind(device, kind))
                continue;
            for (a = 0; a < sizeof bad / sizeof *bad; ++a) {
                options.alignment = bad[a];
                ptr = FOREIGN_POINTER;
                REFUSED(warp_alloc_with(device, 100, &options, &ptr), WARP_ERROR_BAD_ALIGNMENT, "power of two");
                CHECK_EQ_PTR(ptr, NULL);
                REFUSED(warp_alloc_with(device, 0, &options, &ptr), WARP_ERROR_BAD_ALIGNMENT, "power of two");
            }
            /* A power of two, and still more than there is. */
            options.alignment = (uint64_t)1 << 63;
            ptr = FOREIGN_POINTER;
            REFUSED(warp_alloc_with(device, 100, &options, &ptr), WARP_ERROR_SIZE_OVERFLOW, "aligned");
            CHECK_EQ_PTR(ptr, NULL);
            options.alignment = (uint64_t)1 << 62;
            REFUSED(warp_alloc_with(device, (uint64_t)1 << 62, &options, &ptr), WARP_ERROR_SIZE_OVERFLOW, "aligned");
            if (kind != WARP_MEMORY_CUDA_MANAGED && !check_under("valgrind")) {
                struct state before = state_now();
                CHECK_STATUS(warp_alloc_with(device, 100, &options, &ptr), WARP_ERROR_OUT_OF_MEMORY);
                check_same(before, state_now(), 0, __LINE__);
            }
        }
}

TEST(kinds_that_are_none_or_elsewhere)
{
    static const warp_memory_kind bad[] = {-1, 6, 7, 255, 256 + 1, INT32_MAX, INT32_MIN};
    warp_device *device = default_device();
    warp_statistics statistics;
    size_t k;
    void *ptr = FOREIGN_POINTER;
    for (k = 0; k < sizeof bad / sizeof *bad; ++k) {
        warp_alloc_options options = options_of(bad[k], NULL);
        ptr = FOREIGN_POINTER;
        REFUSED(warp_alloc_with(device, 100, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT, "WARP_MEMORY_");
        CHECK_EQ_PTR(ptr, NULL);
        REFUSED(warp_alloc_with(device, 0, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT, "WARP_MEMORY_");
        statistics.struct_size = sizeof statistics;
        statistics.live_bytes = 77;
        REFUSED(warp_statistics_get(device, bad[k], &statistics), WARP_ERROR_INVALID_ARGUMENT, "WARP_MEMORY_");
        CHECK_EQ_U64(statistics.live_bytes, 0);
    }
    if (gpu_count() != 0) {
        warp_device *first = gpu(0);
        warp_alloc_options options = options_of(WARP_MEMORY_HOST, NULL);
        REFUSED(warp_alloc_with(first, 100, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT, "\"cpu\"");
        options.kind = WARP_MEMORY_PINNED;
        REFUSED(warp_alloc_with(first, 100, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT, "\"cpu\"");
    }
    {
        warp_alloc_options options = options_of(WARP_MEMORY_CUDA_DEVICE, NULL);
        REFUSED(warp_alloc_with(cpu(), 100, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT, "GPU");
        options.kind = WARP_MEMORY_CUDA_MEMPOOL;
        REFUSED(warp_alloc_with(cpu(), 0, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT, "GPU");
    }
}

TEST(devices_that_are_none)
{
    static const uint64_t bad[] = {1, 0x1000, 0xdeadbeefdeadbeefull, UINT64_MAX};
    warp_statistics statistics;
    void *ptr;
    size_t i;
    memset(&statistics, 0, sizeof statistics);
    statistics.struct_size = sizeof statistics;
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        warp_device *device = (warp_device *)(uintptr_t)bad[i];
        ptr = FOREIGN_POINTER;
        REFUSED(warp_alloc(device, 10, &ptr), WARP_ERROR_INVALID_HANDLE, "device");
        CHECK_EQ_PTR(ptr, NULL);
        REFUSED(warp_alloc_with(device, 0, NULL, &ptr), WARP_ERROR_INVALID_HANDLE, "device");
        REFUSED(warp_statistics_get(device, 0, &statistics), WARP_ERROR_INVALID_HANDLE, "device");
        REFUSED(warp_statistics_reset_peak(device), WARP_ERROR_INVALID_HANDLE, "device");
    }
    ptr = FOREIGN_POINTER;
    REFUSED(warp_alloc((warp_device *)&ptr, 10, &ptr), WARP_ERROR_INVALID_HANDLE, "device"); /* an address */
    CHECK_EQ_PTR(ptr, NULL);
}

TEST(streams_that_are_none_or_of_another_device)
{
    warp_device *device = default_device();
    warp_stream *wrong[4], *stream = stream_of(device);
    warp_alloc_options options;
    warp_free_options free_options;
    void *ptr = NULL, *block = block_of(device, 100, 0);
    unsigned char byte = 0;
    size_t i;
    memset(&free_options, 0, sizeof free_options);
    free_options.struct_size = sizeof free_options;
    wrong[0] = (warp_stream *)(uintptr_t)1;
    wrong[1] = (warp_stream *)(uintptr_t)0xdeadbeefdeadbeefull;
    wrong[2] = (warp_stream *)(void *)device; /* a handle, of another type */
    wrong[3] = gpu_count() == 0 ? wrong[0] : new_stream(gpu(0), 0);
    if (gpu_count() != 0)
        CHECK_STATUS(warp_stream_release(wrong[3]), WARP_SUCCESS); /* stale */
    for (i = 0; i < 4; ++i) {
        options = options_of(0, wrong[i]);
        free_options.stream = wrong[i];
        ptr = FOREIGN_POINTER;
        REFUSED(warp_alloc_with(device, 100, &options, &ptr), WARP_ERROR_INVALID_HANDLE, "stream");
        CHECK_EQ_PTR(ptr, NULL);
        REFUSED(warp_alloc_with(device, 0, &options, &ptr), WARP_ERROR_INVALID_HANDLE, "stream");
        REFUSED(warp_free_with(block, &free_options), WARP_ERROR_INVALID_HANDLE, "stream");
        REFUSED(warp_pointer_record_stream(block, wrong[i]), WARP_ERROR_INVALID_HANDLE, "stream");
        REFUSED(warp_memory_fill(block, 1, &byte, 1, wrong[i]), WARP_ERROR_INVALID_HANDLE, "stream");
        REFUSED(warp_memory_copy(block, &byte, 1, wrong[i]), WARP_ERROR_INVALID_HANDLE, "stream");
    }
    if (gpu_count() > 1) {
        warp_device *first = gpu(0), *host = cpu();
        warp_stream *other = new_stream(gpu(1), 0), *host_stream = stream_of(host);
        options = options_of(0, other);
        ptr = FOREIGN_POINTER;
        REFUSED(warp_alloc_with(first, 100, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT, "cuda:1");
        CHECK_EQ_PTR(ptr, NULL);
        REFUSED(warp_alloc_with(host, 100, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT, "cuda:1");
        options.stream = host_stream;
        REFUSED(warp_alloc_with(first, 100, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT, "cpu");
        CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
        /* Memory of the host on a stream of a GPU, and the other way round. */
        REFUSED(warp_memory_fill(&byte, 1, "", 1, stream), WARP_ERROR_INVALID_ARGUMENT, "stream");
        REFUSED(warp_memory_copy(&byte, &free_options, 1, stream), WARP_ERROR_INVALID_ARGUMENT, "stream");
        REFUSED(warp_memory_fill(block, 1, "", 1, host_stream), WARP_ERROR_INVALID_ARGUMENT, "stream");
        REFUSED(warp_memory_copy(block, &byte, 1, host_stream), WARP_ERROR_INVALID_ARGUMENT, "stream");
    }
    REFUSED(warp_pointer_record_stream(&options, stream), WARP_ERROR_UNKNOWN_POINTER, "no live block");
    REFUSED(warp_pointer_record_stream(NULL, stream), WARP_ERROR_UNKNOWN_POINTER, "no live block");
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    REFUSED(warp_pointer_record_stream(block, stream), WARP_ERROR_UNKNOWN_POINTER, "no live block");
    CHECK_NOTHING_LEFT();
}

/* A struct longer than this version's, and shorter, and never set. */
struct longer_alloc_options {
    warp_alloc_options known;
    uint64_t later[4];
};
struct longer_free_options {
    warp_free_options known;
    uint64_t later[4];
};
struct longer_info {
    warp_pointer_info known;
    uint64_t later[4];
};

TEST(struct_sizes)
{
    static const size_t bad[] = {0, 1, sizeof(size_t), offsetof(warp_alloc_options, mempool) - 1, (size_t)1 << 40, SIZE_MAX};
    struct longer_alloc_options alloc_options;
    struct longer_free_options free_options;
    struct longer_info info;
    warp_statistics statistics;
    void *ptr = FOREIGN_POINTER, *block = block_of(cpu(), 100, WARP_MEMORY_HOST);
    size_t i;
    memset(&alloc_options, 0, sizeof alloc_options);
    memset(&free_options, 0, sizeof free_options);
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        alloc_options.known.struct_size = bad[i];
        ptr = FOREIGN_POINTER;
        REFUSED(warp_alloc_with(cpu(), 100, &alloc_options.known, &ptr), WARP_ERROR_INVALID_ARGUMENT, "struct_size");
        CHECK_EQ_PTR(ptr, NULL);
        if (i != 3) {
            free_options.known.struct_size = info.known.struct_size = statistics.struct_size = bad[i];
            REFUSED(warp_free_with(block, &free_options.known), WARP_ERROR_INVALID_ARGUMENT, "struct_size");
            REFUSED(warp_pointer_get_info(block, &info.known), WARP_ERROR_INVALID_ARGUMENT, "struct_size");
            REFUSED(warp_statistics_get(cpu(), 0, &statistics), WARP_ERROR_INVALID_ARGUMENT, "struct_size");
        }
    }
    /* A newer caller's struct is good as long as what is unknown is zero. */
    alloc_options.known.struct_size = sizeof alloc_options;
    CHECK_STATUS(warp_alloc_with(cpu(), 100, &alloc_options.known, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    alloc_options.later[3] = 1;
    REFUSED(warp_alloc_with(cpu(), 100, &alloc_options.known, &ptr), WARP_ERROR_NOT_SUPPORTED, "warp_alloc_options");
    CHECK_EQ_PTR(ptr, NULL);
    free_options.known.struct_size = sizeof free_options;
    free_options.later[0] = 1;
    REFUSED(warp_free_with(block, &free_options.known), WARP_ERROR_NOT_SUPPORTED, "warp_free_options");
    memset(&info, 0xEE, sizeof info);
    info.known.struct_size = sizeof info;
    CHECK_STATUS(warp_pointer_get_info(block, &info.known), WARP_SUCCESS);
    CHECK_EQ_U64(info.known.size, 100);
    CHECK_EQ_U64(info.later[0] | info.later[3], 0);
    CHECK_EQ_U64(info.known.struct_size, sizeof info);
    free_options.later[0] = 0;
    CHECK_STATUS(warp_free_with(block, &free_options.known), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* ---- frees -------------------------------------------------------------------------------------------------------- */

static int global_variable;

TEST(pointers_that_are_not_the_librarys)
{
    int local = 0;
    void *foreign = malloc(1000);
    REFUSED(warp_free(&local), WARP_ERROR_UNKNOWN_POINTER, "nothing was freed");
    REFUSED(warp_free(&global_variable), WARP_ERROR_UNKNOWN_POINTER, "nothing was freed");
    REFUSED(warp_free(foreign), WARP_ERROR_UNKNOWN_POINTER, "free it with what allocated it");
    REFUSED(warp_free(FOREIGN_POINTER), WARP_ERROR_UNKNOWN_POINTER, "nothing was freed");
    REFUSED(warp_free((void *)(uintptr_t)UINT64_MAX), WARP_ERROR_UNKNOWN_POINTER, "nothing was freed");
    REFUSED(warp_free((void *)(uintptr_t)1), WARP_ERROR_UNKNOWN_POINTER, "nothing was freed");
    REFUSED(warp_free((void *)(uintptr_t)((uint64_t)1 << 63)), WARP_ERROR_UNKNOWN_POINTER, "nothing was freed");
    memset(foreign, 1, 1000);
    free(foreign);
}

TEST(interior_and_double_frees_of_every_kind)
{
    static const uint64_t offsets[] = {1, 8, 255, 256, 4095};
    int kind, g;
    size_t i;
    for (g = -1; g < (int)gpu_count(); ++g)
        for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind) {
            warp_device *device = g < 0 ? cpu() : gpu(g);
            unsigned char *ptr, *before, *after;
            if (!has_kind(device, kind))
                continue;
            before = (unsigned char *)block_of(device, 4096, kind);
            ptr = (unsigned char *)block_of(device, 4096, kind);
            after = (unsigned char *)block_of(device, 4096, kind);
            put_pattern(ptr, 4096, 9);
            for (i = 0; i < sizeof offsets / sizeof *offsets; ++i)
                REFUSED(warp_free(ptr + offsets[i]), WARP_ERROR_INTERIOR_POINTER, "first address");
            CHECK_EQ_U64(find_pattern(ptr, 4096, 9), 4096);
            /* What stands right before and behind is somebody else's or nobody's. */
            if (ptr - 4096 != before && ptr - 4096 != after)
                CHECK(warp_free(ptr - 1) != WARP_SUCCESS);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            for (i = 0; i < 3; ++i)
                REFUSED(warp_free(ptr), WARP_ERROR_DOUBLE_FREE, "freed before");
            REFUSED(warp_free(ptr + 1), WARP_ERROR_UNKNOWN_POINTER, "nothing was freed");
            CHECK_STATUS(warp_free(before), WARP_SUCCESS);
            CHECK_STATUS(warp_free(after), WARP_SUCCESS);
        }
    CHECK_NOTHING_LEFT();
}

TEST(a_freed_address_inside_a_new_block_frees_nothing)
{
    /* Aligned blocks lie inside of what their allocator gave; when that is given out whole, they are inside the new one. */
    enum { BLOCKS = 8 };
    const uint64_t size = 100 * KIB, alignment = MIB;
    int kind, g, i, k, inside = 0;
    for (g = -1; g < (int)gpu_count(); ++g)
        for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind) {
            warp_device *device = g < 0 ? cpu() : gpu(g);
            warp_alloc_options options = options_of(kind, NULL);
            unsigned char *old[BLOCKS], *fresh[BLOCKS];
            options.alignment = alignment;
            if (!has_kind(device, kind))
                continue;
            for (i = 0; i < BLOCKS; ++i)
                REQUIRE_STATUS(warp_alloc_with(device, size, &options, (void **)&old[i]), WARP_SUCCESS);
            for (i = 0; i < BLOCKS; ++i)
                CHECK_STATUS(warp_free(old[i]), WARP_SUCCESS);
            CHECK_STATUS(warp_device_synchronize(device), WARP_SUCCESS);
            for (i = 0; i < BLOCKS; ++i) {
                fresh[i] = (unsigned char *)block_of(device, size + alignment, kind);
                CHECK_STATUS(warp_memory_fill(fresh[i], size + alignment, &i, 1, NULL), WARP_SUCCESS);
            }
            for (i = 0; i < BLOCKS; ++i) {
                warp_status expected = WARP_ERROR_DOUBLE_FREE;
                int same = 0;
                for (k = 0; k < BLOCKS; ++k) {
                    same |= old[i] == fresh[k]; /* nobody can tell these apart */
                    if (old[i] > fresh[k] && old[i] < fresh[k] + size + alignment)
                        expected = WARP_ERROR_INTERIOR_POINTER;
                }
                if (!same)
                    REFUSED(warp_free(old[i]), expected, "");
                inside |= expected == WARP_ERROR_INTERIOR_POINTER;
            }
            for (i = 0; i < BLOCKS; ++i) {
                unsigned char byte = 0xEE;
                CHECK_EQ_U64(pointer_info(fresh[i]).size, size + alignment);
                copy_now(&byte, fresh[i] + size, 1, NULL);
                CHECK_EQ_I64(byte, i);
                CHECK_STATUS(warp_free(fresh[i]), WARP_SUCCESS);
            }
        }
    if (gpu_count() != 0 && simulator_is_here())
        CHECK(inside); /* else nothing was shown */
    CHECK_NOTHING_LEFT();
}

TEST(a_free_that_says_something_wrong)
{
    warp_device *device = default_device();
    warp_free_options options;
    void *ptr = block_of(device, 1000, 0);
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.size = 999;
    REFUSED(warp_free_with(ptr, &options), WARP_ERROR_SIZE_MISMATCH, "1000");
    CHECK_STR_CONTAINS(warp_error_get_message(), "nothing was freed");
    options.size = UINT64_MAX;
    REFUSED(warp_free_with(ptr, &options), WARP_ERROR_SIZE_MISMATCH, "1000");
    options.size = 1024; /* what an allocator may have rounded to */
    REFUSED(warp_free_with(ptr, &options), WARP_ERROR_SIZE_MISMATCH, "1024");
    options.size = 1000;
    options.alignment = 512;
    REFUSED(warp_free_with(ptr, &options), WARP_ERROR_BAD_ALIGNMENT, "nothing was freed");
    options.alignment = 3; /* no alignment at all */
    REFUSED(warp_free_with(ptr, &options), WARP_ERROR_BAD_ALIGNMENT, "power of two");
    options.alignment = 1;
    CHECK_STATUS(warp_free_with(ptr, &options), WARP_SUCCESS);
    REFUSED(warp_free_with(ptr, &options), WARP_ERROR_DOUBLE_FREE, "freed before");
    /* Checks do not come before the question whose block it is. */
    options.size = 1;
    REFUSED(warp_free_with(&options, &options), WARP_ERROR_UNKNOWN_POINTER, "nothing was freed");
    CHECK_STATUS(warp_free_with(NULL, &options), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

static void *free_and_note(void *ptr)
{
    return (void *)(intptr_t)(warp_free(ptr) == WARP_SUCCESS);
}

TEST(of_many_frees_of_one_block_one_succeeds)
{
    int round, i;
    for (round = 0; round < 100; ++round) {
        pthread_t threads[4];
        intptr_t successes = 0;
        void *ptr = block_of(default_device(), 100, 0);
        for (i = 0; i < 4; ++i)
            REQUIRE(pthread_create(&threads[i], NULL, free_and_note, ptr) == 0);
        for (i = 0; i < 4; ++i) {
            void *result;
            pthread_join(threads[i], &result);
            successes += (intptr_t)result;
        }
        CHECK_EQ_I64(successes, 1);
    }
    CHECK_NOTHING_LEFT();
}

/* ---- fills and copies --------------------------------------------------------------------------------------------- */

TEST(ranges_and_patterns_that_do_not_fit)
{
    static const uint64_t huge[] = {UINT64_MAX, (uint64_t)1 << 63, UINT64_MAX - 255};
    int kind, g;
    size_t i;
    unsigned char host[64];
    memset(host, 1, sizeof host);
    for (g = -1; g < (int)gpu_count(); ++g)
        for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind) {
            warp_device *device = g < 0 ? cpu() : gpu(g);
            unsigned char *ptr;
            if (!has_kind(device, kind))
                continue;
            ptr = (unsigned char *)block_of(device, 64, kind);
            put_pattern(ptr, 64, 4);
            REFUSED(warp_memory_fill(ptr, 65, "x", 1, NULL), WARP_ERROR_INVALID_ARGUMENT, "pass the end");
            REFUSED(warp_memory_fill(ptr + 63, 2, "x", 1, NULL), WARP_ERROR_INVALID_ARGUMENT, "pass the end");
            REFUSED(warp_memory_fill(ptr, 64, "xyz", 3, NULL), WARP_ERROR_INVALID_ARGUMENT, "whole number");
            REFUSED(warp_memory_fill(ptr, 2, "xyz", 3, NULL), WARP_ERROR_INVALID_ARGUMENT, "whole number");
            REFUSED(warp_memory_fill(ptr, 64, "x", 0, NULL), WARP_ERROR_INVALID_ARGUMENT, "pattern");
            REFUSED(warp_memory_fill(ptr, 64, NULL, 1, NULL), WARP_ERROR_INVALID_ARGUMENT, "pattern");
            REFUSED(warp_memory_fill(ptr, 0, NULL, 0, NULL), WARP_ERROR_INVALID_ARGUMENT, "pattern");
            REFUSED(warp_memory_fill(NULL, 64, "x", 1, NULL), WARP_ERROR_INVALID_ARGUMENT, "NULL");
            REFUSED(warp_memory_copy(ptr, host, 65, NULL), WARP_ERROR_INVALID_ARGUMENT, "destination");
            REFUSED(warp_memory_copy(host, ptr, 65, NULL), WARP_ERROR_INVALID_ARGUMENT, "source");
            REFUSED(warp_memory_copy(ptr + 60, ptr, 5, NULL), WARP_ERROR_INVALID_ARGUMENT, "destination");
            REFUSED(warp_memory_copy(ptr, ptr + 60, 5, NULL), WARP_ERROR_INVALID_ARGUMENT, "source");
            REFUSED(warp_memory_copy(ptr, NULL, 5, NULL), WARP_ERROR_INVALID_ARGUMENT, "source is NULL");
            REFUSED(warp_memory_copy(NULL, ptr, 5, NULL), WARP_ERROR_INVALID_ARGUMENT, "destination is NULL");
            for (i = 0; i < sizeof huge / sizeof *huge; ++i) {
                REFUSED(warp_memory_fill(ptr, huge[i], "x", 1, NULL), WARP_ERROR_SIZE_OVERFLOW, "address space");
                REFUSED(warp_memory_copy(ptr, host, huge[i], NULL), WARP_ERROR_SIZE_OVERFLOW, "address space");
                REFUSED(warp_memory_copy(host, ptr, huge[i], NULL), WARP_ERROR_SIZE_OVERFLOW, "address space");
            }
            REFUSED(warp_memory_fill(ptr, 64, "x", UINT64_MAX, NULL), WARP_ERROR_SIZE_OVERFLOW, "pattern");
            REFUSED(warp_memory_fill(ptr, (uint64_t)1 << 40, "x", (uint64_t)1 << 40, NULL), WARP_ERROR_INVALID_ARGUMENT,
                    "pass the end");
            /* Nothing is something that always fits. */
            CHECK_STATUS(warp_memory_fill(NULL, 0, "x", 1, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_memory_fill(ptr + 64, 0, "x", 1, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_memory_copy(NULL, NULL, 0, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_memory_copy(ptr + 64, host, 0, NULL), WARP_SUCCESS);
            CHECK_EQ_U64(find_pattern(ptr, 64, 4), 64);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        }
    CHECK_NOTHING_LEFT();
}

TEST(patterns_that_the_host_cannot_read)
{
    int kind;
    unsigned char *host, *dest;
    if (gpu_count() == 0)
        SKIP("needs a GPU");
    host = (unsigned char *)block_of(cpu(), 10, WARP_MEMORY_HOST);
    dest = (unsigned char *)block_of(default_device(), 300, 0);
    write_pattern(host, 10, 1);
    for (kind = WARP_MEMORY_CUDA_DEVICE; kind < KINDS; ++kind)
        if (has_kind(gpu(0), kind)) {
            unsigned char *ptr = (unsigned char *)block_of(gpu(0), 100, kind);
            REFUSED(warp_memory_fill(dest, 30, ptr + 1, 3, NULL), WARP_ERROR_INVALID_ARGUMENT, kind_names[kind]);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        }
    REFUSED(warp_memory_fill(dest, 30, host + 8, 3, NULL), WARP_ERROR_INVALID_ARGUMENT, "the pattern's 3 bytes");
    CHECK_STATUS(warp_memory_fill(dest, 30, host + 7, 3, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free(host), WARP_SUCCESS);
    CHECK_STATUS(warp_free(dest), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(a_copy_on_a_stream_of_neither_end)
{
    unsigned char byte = 0;
    void *ptr;
    warp_stream *stream;
    if (gpu_count() < 2)
        SKIP("needs two GPUs");
    ptr = block_of(gpu(0), 100, 0);
    stream = new_stream(gpu(1), 0);
    REFUSED(warp_memory_copy(ptr, &byte, 1, stream), WARP_ERROR_INVALID_ARGUMENT, "cuda:0");
    REFUSED(warp_memory_copy(&byte, ptr, 1, stream), WARP_ERROR_INVALID_ARGUMENT, "cuda:0");
    CHECK_STATUS(warp_memory_copy(&byte, ptr, 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(ranges_that_begin_before_a_block_or_pass_the_address_space)
{
    unsigned char *ptr = (unsigned char *)block_of(default_device(), 4096, 0), byte = 0;
    CHECK_STATUS(warp_memory_copy((void *)(uintptr_t)(UINT64_MAX - 4), ptr, 10, NULL), WARP_ERROR_SIZE_OVERFLOW);
    CHECK_STATUS(warp_memory_copy(ptr, (void *)(uintptr_t)(UINT64_MAX - 4), 10, NULL), WARP_ERROR_SIZE_OVERFLOW);
    CHECK_STATUS(warp_memory_fill((void *)(uintptr_t)(UINT64_MAX - 4), 10, "x", 1, NULL), WARP_ERROR_SIZE_OVERFLOW);
    CHECK_EQ_I64(byte, 0);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* ---- tags --------------------------------------------------------------------------------------------------------- */

TEST(tags_of_any_length_and_number)
{
    char *name = (char *)malloc(100001), text[32];
    const char *first;
    warp_alloc_options options = options_of(WARP_MEMORY_HOST, NULL);
    void *ptr = NULL;
    int i, count;
    memset(name, 'n', 100000);
    name[100000] = '\0';
    options.tag = name;
    REQUIRE_STATUS(warp_alloc_with(cpu(), 10, &options, &ptr), WARP_SUCCESS);
    name[0] = 'm'; /* it was copied */
    first = pointer_info(ptr).tag;
    REQUIRE(first != NULL);
    CHECK(first[0] == 'n' && strlen(first) == 100000);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_I64(first[99999], 'n'); /* and lasts */
    free(name);
    options.tag = "";
    REQUIRE_STATUS(warp_alloc_with(cpu(), 10, &options, &ptr), WARP_SUCCESS);
    CHECK_EQ_PTR(pointer_info(ptr).tag, NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    options.tag = "\xff\xfe not UTF-8";
    REQUIRE_STATUS(warp_alloc_with(cpu(), 10, &options, &ptr), WARP_SUCCESS);
    CHECK_EQ_STR(pointer_info(ptr).tag, options.tag);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    count = check_under("valgrind") ? 2000 : 70000;
    for (i = 0; i < count; ++i) {
        snprintf(text, sizeof text, "tag %d", i);
        options.tag = text;
        REQUIRE_STATUS(warp_alloc_with(cpu(), 10, &options, &ptr), WARP_SUCCESS);
        if (i < 65000)
            CHECK_EQ_STR(pointer_info(ptr).tag, text);
        else
            CHECK(pointer_info(ptr).tag != NULL);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        if (check_failure_count() > 10)
            return;
    }
    /* The early ones are still told apart when there are too many. */
    options.tag = "tag 17";
    REQUIRE_STATUS(warp_alloc_with(cpu(), 10, &options, &ptr), WARP_SUCCESS);
    CHECK_EQ_STR(pointer_info(ptr).tag, "tag 17");
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* ---- after the end ------------------------------------------------------------------------------------------------ */

TEST(after_shutdown_only_frees_work)
{
    warp_device *device = default_device(), *stale = device;
    warp_stream *stream = stream_of(device);
    unsigned char *ptr = (unsigned char *)block_of(device, 1000, 0), *host = (unsigned char *)block_of(cpu(), 10, 0);
    warp_free_options options;
    void *out = FOREIGN_POINTER;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(stale, 10, &out), WARP_ERROR_SHUT_DOWN);
    CHECK_EQ_PTR(out, NULL);
    CHECK_STATUS(warp_alloc(NULL, 10, &out), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_memory_fill(ptr, 10, "x", 1, NULL), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_memory_copy(ptr, &options, 10, NULL), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_pointer_record_stream(ptr, NULL), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_free(ptr + 1), WARP_ERROR_INTERIOR_POINTER);
    CHECK_STATUS(warp_free(&options), WARP_ERROR_UNKNOWN_POINTER);
    options.size = 999;
    CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_SIZE_MISMATCH);
    options.size = 0;
    options.stream = stream;
    CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_ERROR_DOUBLE_FREE);
    CHECK_STATUS(warp_free(host), WARP_SUCCESS);
    CHECK_STATUS(warp_free(NULL), WARP_SUCCESS);
    REQUIRE(start());
    CHECK_STATUS(warp_alloc(stale, 10, &out), WARP_ERROR_INVALID_HANDLE);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
