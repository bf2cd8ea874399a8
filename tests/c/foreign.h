/*
 * foreign.h: memory that other code has from the driver, of every origin: plain, managed, page-locked, of pools of its own, and
 * mapped.
 *
 *     CUmemoryPool theirs = foreign_pool(0, 0);
 *     void *ptr = foreign_pooled(driver_primary(0), theirs, 4096);
 */
#ifndef WARPMEM_TESTS_FOREIGN_H
#define WARPMEM_TESTS_FOREIGN_H

#include "blocks.h"

/* The driver's own calls, as other code makes them. */
struct location {
    uint32_t kind; /* 1: a GPU */
    int32_t id;
};
struct mapping_properties {
    uint32_t kind; /* 1: pinned */
    uint32_t handle_types;
    struct location location;
    uint64_t metadata;
    unsigned char flags[8];
};
struct mapping_access {
    struct location location;
    uint32_t flags; /* 0, 1 to read, 3 */
};
struct pool_properties {
    uint32_t kind, handle_types;
    struct location location;
    uint64_t security;
    size_t max_size;
    uint16_t usage;
    unsigned char reserved[54];
};
uint32_t cuMemCreate(uint64_t *out, size_t size, const struct mapping_properties *properties, uint64_t flags);
uint32_t cuMemRelease(uint64_t handle);
uint32_t cuMemAddressReserve(uint64_t *out, size_t size, size_t alignment, uint64_t wanted, uint64_t flags);
uint32_t cuMemAddressFree(uint64_t address, size_t size);
uint32_t cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, uint64_t flags);
uint32_t cuMemUnmap(uint64_t address, size_t size);
uint32_t cuMemSetAccess(uint64_t address, size_t size, const struct mapping_access *access, size_t count);
uint32_t cuMemPoolCreate(CUmemoryPool *out, const struct pool_properties *properties);
uint32_t cuMemPoolDestroy(CUmemoryPool pool);
uint32_t cuMemPoolSetAccess(CUmemoryPool pool, const struct mapping_access *access, size_t count);
uint32_t cuMemAllocFromPoolAsync(uint64_t *out, size_t size, CUmemoryPool pool, CUstream stream);

#define DRIVER(name, ...) CHECK_EQ_U64(SIMULATOR(name)(__VA_ARGS__), 0)

UNUSED void *at(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

UNUSED uint64_t address_of(const void *ptr)
{
    return (uint64_t)(uintptr_t)ptr;
}

/* Runs a call of the driver in a context and leaves none current. */
#define IN(context, ...)                    \
    do {                                    \
        DRIVER(cuCtxSetCurrent, (context)); \
        __VA_ARGS__;                        \
        DRIVER(cuCtxSetCurrent, NULL);      \
    } while (0)

UNUSED void *foreign_plain(CUcontext context, size_t size)
{
    uint64_t ptr = 0;
    IN(context, DRIVER(cuMemAlloc_v2, &ptr, size));
    return at(ptr);
}

UNUSED void *foreign_managed(CUcontext context, size_t size)
{
    uint64_t ptr = 0;
    IN(context, DRIVER(cuMemAllocManaged, &ptr, size, 1));
    return at(ptr);
}

UNUSED void *foreign_pooled(CUcontext context, CUmemoryPool pool, size_t size)
{
    uint64_t ptr = 0;
    if (pool == NULL)
        IN(context, DRIVER(cuMemAllocAsync, &ptr, size, NULL));
    else
        IN(context, DRIVER(cuMemAllocFromPoolAsync, &ptr, size, pool, NULL));
    return at(ptr);
}

UNUSED void *foreign_pinned(CUcontext context, size_t size)
{
    void *ptr = NULL;
    IN(context, DRIVER(cuMemHostAlloc, &ptr, size, 0));
    return ptr;
}

/* A pool of a GPU's memory, which can be exported as the handle types. */
UNUSED CUmemoryPool foreign_pool(int32_t ordinal, uint32_t handle_types)
{
    struct pool_properties properties = {.kind = 1, .handle_types = handle_types, .location = {1, ordinal}};
    CUmemoryPool pool = NULL;
    DRIVER(cuInit, 0);
    DRIVER(cuMemPoolCreate, &pool, &properties);
    return pool;
}

UNUSED void grant_pool(CUmemoryPool pool, int32_t to, uint32_t flags)
{
    struct mapping_access access = {{1, to}, flags};
    DRIVER(cuMemPoolSetAccess, pool, &access, 1);
}

#define MAPPING_SIZE ((size_t)2 << 20)

/* Memory of a GPU that is mapped and that nobody may touch yet. */
UNUSED void *mapping_of(int32_t ordinal)
{
    struct mapping_properties properties = {.kind = 1, .location = {1, ordinal}};
    uint64_t handle = 0, ptr = 0;
    DRIVER(cuMemCreate, &handle, MAPPING_SIZE, &properties, 0);
    DRIVER(cuMemAddressReserve, &ptr, MAPPING_SIZE, 0, 0, 0);
    DRIVER(cuMemMap, ptr, MAPPING_SIZE, 0, handle, 0);
    DRIVER(cuMemRelease, handle);
    return at(ptr);
}

UNUSED void map_for(void *mapping, int32_t ordinal, uint32_t flags)
{
    struct mapping_access access = {{1, ordinal}, flags};
    DRIVER(cuMemSetAccess, address_of(mapping), MAPPING_SIZE, &access, 1);
}

UNUSED void unmap(void *mapping)
{
    DRIVER(cuMemUnmap, address_of(mapping), MAPPING_SIZE);
    DRIVER(cuMemAddressFree, address_of(mapping), MAPPING_SIZE);
}

#endif
