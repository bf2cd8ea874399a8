/*
 * blocks.h: what the tests of the chapter Memory share: short ways to allocate and to look into memory, and one place
 * where a test proves that it left nothing behind.
 *
 *     uint64_t frees = calls("cuMemFree_v2");
 *     void *ptr = block_of(gpu(0), 4 * KIB, WARP_MEMORY_CUDA_MEMPOOL);
 */
#ifndef WARPMEM_TESTS_BLOCKS_H
#define WARPMEM_TESTS_BLOCKS_H

#include "check.h"
#include "devices.h"
#include "dice.h"
#include "driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define POOL_RELEASE_THRESHOLD 4
#define POOL_RESERVED 5

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

#define UNUSED __attribute__((unused)) static

/* How often the library (or the test) called an entry point of the driver. */
UNUSED uint64_t calls(const char *entry)
{
    return SIMULATOR(warpsim_call_count)(entry);
}

/* ---- devices and streams ------------------------------------------------------------------------------------------ */

UNUSED int start(void)
{
    return warp_init(NULL, NULL) == WARP_SUCCESS;
}

UNUSED size_t gpu_count(void)
{
    size_t count = 0;
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    return count;
}

UNUSED warp_device *cpu(void)
{
    return device("cpu");
}

UNUSED warp_device *gpu(int number)
{
    char alias[32];
    snprintf(alias, sizeof alias, "cuda:%d", number);
    return device(alias);
}

UNUSED warp_device_info info_of(warp_device *device)
{
    warp_device_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_device_get_info(device, &info), WARP_SUCCESS);
    return info;
}

UNUSED CUcontext context_of(warp_device *device)
{
    void *context = NULL;
    CHECK_STATUS(warp_device_get_native_context(device, &context), WARP_SUCCESS);
    return context;
}

UNUSED warp_stream *new_stream(warp_device *device, uint32_t flags)
{
    warp_stream_options options;
    warp_stream *stream = NULL;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.flags = flags;
    CHECK_STATUS(warp_stream_create(device, &options, &stream), WARP_SUCCESS);
    return stream;
}

UNUSED warp_stream *stream_of(warp_device *device)
{
    warp_stream *stream = NULL;
    CHECK_STATUS(warp_stream_get_current(device, &stream), WARP_SUCCESS);
    return stream;
}

UNUSED warp_stream_info stream_info(warp_stream *stream)
{
    warp_stream_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_stream_get_info(stream, &info), WARP_SUCCESS);
    return info;
}

UNUSED uint64_t native_stream(warp_stream *stream)
{
    return (uint64_t)(uintptr_t)stream_info(stream).native;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------- */

#define KINDS 6
UNUSED const char *kind_names[KINDS] = {"any", "HOST", "PINNED", "CUDA_DEVICE", "CUDA_MEMPOOL", "CUDA_MANAGED"};

/* Whether a device has memory of the kind. */
UNUSED int has_kind(warp_device *device, warp_memory_kind kind)
{
    warp_device_info info = info_of(device);
    switch (kind) {
    case WARP_MEMORY_HOST: return info.is_cpu;
    case WARP_MEMORY_PINNED: return info.is_cpu && gpu_count() != 0;
    case WARP_MEMORY_CUDA_DEVICE: return info.is_cuda;
    case WARP_MEMORY_CUDA_MEMPOOL: return info.is_cuda && info.is_mempool_supported;
    case WARP_MEMORY_CUDA_MANAGED: return info.is_cuda && info.is_managed_memory_supported;
    default: return 1;
    }
}

UNUSED warp_alloc_options options_of(warp_memory_kind kind, warp_stream *stream)
{
    warp_alloc_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.kind = kind;
    options.stream = stream;
    return options;
}

UNUSED void *block_on(warp_device *device, uint64_t size, warp_memory_kind kind, warp_stream *stream)
{
    warp_alloc_options options = options_of(kind, stream);
    void *ptr = NULL;
    CHECK_STATUS(warp_alloc_with(device, size, &options, &ptr), WARP_SUCCESS);
    CHECK(ptr != NULL);
    return ptr;
}

UNUSED void *block_of(warp_device *device, uint64_t size, warp_memory_kind kind)
{
    return block_on(device, size, kind, NULL);
}

UNUSED warp_pointer_info pointer_info(const void *ptr)
{
    warp_pointer_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_pointer_get_info(ptr, &info), WARP_SUCCESS);
    return info;
}

UNUSED warp_statistics statistics_of(warp_device *device, warp_memory_kind kind)
{
    warp_statistics statistics;
    memset(&statistics, 0, sizeof statistics);
    statistics.struct_size = sizeof statistics;
    CHECK_STATUS(warp_statistics_get(device, kind, &statistics), WARP_SUCCESS);
    return statistics;
}

/* A byte that differs from place to place and from seed to seed. */
UNUSED unsigned char byte_at(uint64_t place, uint64_t seed)
{
    uint64_t mixed = (place + 1) * 0x9e3779b97f4a7c15ull ^ (seed + 1) * 0xbf58476d1ce4e5b9ull;
    return (unsigned char)(mixed >> 33 ^ mixed >> 51);
}

UNUSED void write_pattern(unsigned char *bytes, uint64_t size, uint64_t seed)
{
    uint64_t i;
    for (i = 0; i < size; ++i)
        bytes[i] = byte_at(i, seed);
}

/* The first place that does not have the pattern, or size. */
UNUSED uint64_t pattern_ends(const unsigned char *bytes, uint64_t size, uint64_t seed)
{
    uint64_t i;
    for (i = 0; i < size; ++i)
        if (bytes[i] != byte_at(i, seed))
            return i;
    return size;
}

UNUSED void copy_now(void *dest, const void *src, uint64_t size, warp_stream *stream)
{
    CHECK_STATUS(warp_memory_copy(dest, src, size, stream), WARP_SUCCESS);
    if (stream != NULL)
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
}

/* Writes the pattern into memory of any kind, through a pageable buffer. */
UNUSED void put_pattern(void *ptr, uint64_t size, uint64_t seed)
{
    unsigned char *bytes = (unsigned char *)malloc((size_t)size);
    write_pattern(bytes, size, seed);
    copy_now(ptr, bytes, size, NULL);
    free(bytes);
}

/* The first place in memory of any kind that does not have the pattern, or size. */
UNUSED uint64_t find_pattern(const void *ptr, uint64_t size, uint64_t seed)
{
    unsigned char *bytes = (unsigned char *)malloc((size_t)size);
    uint64_t at;
    memset(bytes, 0xEE, (size_t)size);
    copy_now(bytes, ptr, size, NULL);
    at = pattern_ends(bytes, size, seed);
    free(bytes);
    return at;
}

/* What is kept for large copies goes back. */
UNUSED void give_back_copy_buffers(void)
{
    uint32_t threads = 0;
    CHECK_STATUS(warp_copy_get_threads(&threads), WARP_SUCCESS);
    CHECK_STATUS(warp_copy_set_threads(0), WARP_SUCCESS);
    CHECK_STATUS(warp_copy_set_threads(threads), WARP_SUCCESS);
}

/* Waits for all devices, lets parked blocks go, and proves that nothing is live: in the library's counts, and in the
 * simulated driver where that is what runs. */
UNUSED void check_nothing_left_at(const char *file, int line)
{
    static const char *const sim_kinds[] = {"default", "pool", "pinned", "managed"};
    size_t count = 0, index;
    warp_device_get_count(&count);
    if (simulator_is_here())
        SIMULATOR(warpsim_release_all)();
    give_back_copy_buffers();
    for (index = 0; index < count; ++index) {
        warp_device *device = NULL;
        void *ptr = NULL;
        check_that(warp_device_get_at(index, &device) == WARP_SUCCESS, file, line, "the device is there");
        check_that(warp_device_synchronize(device) == WARP_SUCCESS, file, line, "the device can be synchronised");
        /* A call that looks at what is parked. */
        if (info_of(device).is_cuda) {
            warp_alloc_options options = options_of(WARP_MEMORY_CUDA_DEVICE, NULL);
            check_that(warp_alloc_with(device, 1, &options, &ptr) == WARP_SUCCESS, file, line, "allocation works");
            check_that(warp_free(ptr) == WARP_SUCCESS, file, line, "freeing works");
            warp_device_synchronize(device);
        }
        check_u64(statistics_of(device, WARP_MEMORY_UNKNOWN).live_blocks, 0, file, line, "no blocks are left");
        check_u64(statistics_of(device, WARP_MEMORY_UNKNOWN).live_bytes, 0, file, line, "no bytes are left");
    }
    if (simulator_is_here()) {
        char violation[300];
        for (index = 0; index < sizeof sim_kinds / sizeof *sim_kinds; ++index)
            check_u64(SIMULATOR(warpsim_live_count)(sim_kinds[index]), 0, file, line, sim_kinds[index]);
        for (index = 0; index < SIMULATOR(warpsim_violation_count)(); ++index) {
            SIMULATOR(warpsim_violation_get)(index, violation, sizeof violation);
            check_that(0, file, line, violation);
        }
    }
}
#define CHECK_NOTHING_LEFT() check_nothing_left_at(__FILE__, __LINE__)

#ifdef __cplusplus
}
#endif

#endif
