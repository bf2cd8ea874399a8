/* mempools.h: what the tests of memory pools share: short ways to pools and what they tell, and the driver's own calls on them. */
#ifndef WARPMEM_TESTS_MEMPOOLS_H
#define WARPMEM_TESTS_MEMPOOLS_H

#define _GNU_SOURCE

#include "blocks.h"
#include "captures.h"
#include "foreign.h"
#include "process.h"

#include <warpmem.h>

/* The driver's calls on pools, as other code makes them. */
uint32_t cuDeviceSetMemPool(int32_t device, CUmemoryPool pool);
uint32_t cuDeviceGetDefaultMemPool(CUmemoryPool *out, int32_t device);
uint32_t cuMemPoolExportToShareableHandle(int32_t *out, CUmemoryPool pool, int32_t type, uint64_t flags);
uint32_t cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle, int32_t type, uint64_t flags);
uint32_t cuPointerGetAttribute(void *out, int32_t attribute, uint64_t ptr);

#define POINTER_POOL 17
#define OUT_OF_MEMORY 2

UNUSED CUmemoryPool driver_pool(int32_t device)
{
    CUmemoryPool pool = NULL;
    CHECK_EQ_U64(SIMULATOR(cuDeviceGetMemPool)(&pool, device), 0);
    return pool;
}

/* The driver's pool that an address comes from. */
UNUSED CUmemoryPool pool_of(const void *ptr)
{
    CUmemoryPool pool = NULL;
    CHECK_EQ_U64(SIMULATOR(cuPointerGetAttribute)(&pool, POINTER_POOL, (uint64_t)(uintptr_t)ptr), 0);
    return pool;
}

UNUSED warp_mempool *pool_in_use(warp_device *device)
{
    warp_mempool *pool = NULL;
    CHECK_STATUS(warp_mempool_get(device, &pool), WARP_SUCCESS);
    CHECK(pool != NULL);
    return pool;
}

UNUSED warp_mempool *create_with(warp_device *device, uint64_t max_size, uint64_t threshold, uint32_t handle_types)
{
    warp_mempool_options options;
    warp_mempool *pool = NULL;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.max_size = max_size;
    options.release_threshold = threshold;
    options.handle_types = handle_types;
    CHECK_STATUS(warp_mempool_create(device, &options, &pool), WARP_SUCCESS);
    CHECK(pool != NULL);
    return pool;
}

UNUSED warp_mempool *create(warp_device *device)
{
    return create_with(device, 0, 0, 0);
}

UNUSED void release(warp_mempool *pool)
{
    CHECK_STATUS(warp_mempool_release(pool), WARP_SUCCESS);
}

UNUSED warp_mempool_info pool_info(warp_mempool *pool)
{
    warp_mempool_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_mempool_get_info(pool, &info), WARP_SUCCESS);
    return info;
}

UNUSED warp_mempool_memory_info pool_memory(warp_mempool *pool)
{
    warp_mempool_memory_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_mempool_query_memory(pool, &info), WARP_SUCCESS);
    return info;
}

UNUSED uint64_t threshold_of(warp_mempool *pool)
{
    uint64_t bytes = 99;
    CHECK_STATUS(warp_mempool_query_release_threshold(pool, &bytes), WARP_SUCCESS);
    return bytes;
}

UNUSED int is_enabled(warp_device *device)
{
    uint8_t enabled = 9;
    CHECK_STATUS(warp_mempool_is_enabled(device, &enabled), WARP_SUCCESS);
    return enabled;
}

UNUSED int is_supported(warp_device *device)
{
    uint8_t supported = 9;
    CHECK_STATUS(warp_mempool_is_supported(device, &supported), WARP_SUCCESS);
    return supported;
}

UNUSED warp_status try_alloc_from(warp_device *device, warp_mempool *pool, uint64_t size, warp_stream *stream, void **out)
{
    warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, stream);
    options.mempool = pool;
    *out = (void *)(uintptr_t)1;
    return warp_alloc_with(device, size, &options, out);
}

UNUSED void *alloc_from(warp_device *device, warp_mempool *pool, uint64_t size)
{
    void *ptr = NULL;
    CHECK_STATUS(try_alloc_from(device, pool, size, NULL, &ptr), WARP_SUCCESS);
    return ptr;
}

/* A block of the kind that is switched on. */
UNUSED void *plain_alloc(warp_device *device, uint64_t size)
{
    void *ptr = NULL;
    CHECK_STATUS(warp_alloc(device, size, &ptr), WARP_SUCCESS);
    CHECK(ptr != NULL);
    return ptr;
}

UNUSED void free_now(void *ptr)
{
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
}

/* Pools that the driver has beside the ones that its devices were born with. */
UNUSED size_t made_pools(void)
{
    return live("mempool");
}

/* Calls of every entry point of pools. */
UNUSED uint64_t pool_calls(void)
{
    static const char *const entries[] = {"cuDeviceGetMemPool",    "cuDeviceGetDefaultMemPool", "cuMemAllocFromPoolAsync",
                                          "cuMemAllocAsync",       "cuMemPoolCreate",           "cuMemPoolDestroy",
                                          "cuMemPoolTrimTo",       "cuMemPoolGetAttribute",     "cuMemPoolSetAttribute",
                                          "cuMemPoolGetAccess",    "cuMemPoolSetAccess",        "cuDeviceGraphMemTrim"};
    uint64_t sum = 0;
    size_t i;
    for (i = 0; i < sizeof entries / sizeof *entries; ++i)
        sum += calls(entries[i]);
    return sum;
}

#endif
