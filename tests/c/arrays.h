/* arrays.h: what the tests of arrays share: the devices that are there, what lives on them, and reading items back. */
#ifndef WARPMEM_TESTS_ARRAYS_H
#define WARPMEM_TESTS_ARRAYS_H

#include "check.h"

#define F32 (warp_dtype_make(WARP_DTYPE_FLOAT, 32))
#define F64 (warp_dtype_make(WARP_DTYPE_FLOAT, 64))
#define I32 (warp_dtype_make(WARP_DTYPE_INT, 32))
#define U8 (warp_dtype_make(WARP_DTYPE_UINT, 8))

static CHECK_MAYBE_UNUSED warp_device *cpu;
static CHECK_MAYBE_UNUSED warp_device *gpu[16];
static CHECK_MAYBE_UNUSED size_t gpus;

static CHECK_MAYBE_UNUSED void start(void)
{
    size_t count = 0, i;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get("cpu", &cpu), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    gpus = count - 1 < 16 ? count - 1 : 16;
    for (i = 0; i < gpus; ++i)
        CHECK_STATUS(warp_device_get_at(i + 1, &gpu[i]), WARP_SUCCESS);
}

static CHECK_MAYBE_UNUSED uint64_t live_bytes_of(warp_device *device)
{
    warp_statistics counts = {0};
    counts.struct_size = sizeof counts;
    CHECK_STATUS(warp_statistics_get(device, WARP_MEMORY_UNKNOWN, &counts), WARP_SUCCESS);
    return counts.live_bytes;
}

static CHECK_MAYBE_UNUSED uint64_t allocations_of(warp_device *device)
{
    warp_statistics counts = {0};
    counts.struct_size = sizeof counts;
    CHECK_STATUS(warp_statistics_get(device, WARP_MEMORY_UNKNOWN, &counts), WARP_SUCCESS);
    return counts.allocations;
}

/* Every test ends with this: nothing of any device may be left. */
static CHECK_MAYBE_UNUSED void finish(void)
{
    size_t i;
    CHECK_EQ_U64(live_bytes_of(cpu), 0);
    for (i = 0; i < gpus; ++i)
        CHECK_EQ_U64(live_bytes_of(gpu[i]), 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static CHECK_MAYBE_UNUSED warp_array_info info_of(warp_array *array)
{
    warp_array_info info = {0};
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_array_get_info(array, &info), WARP_SUCCESS);
    return info;
}

static CHECK_MAYBE_UNUSED void synchronize_all(void)
{
    size_t i;
    for (i = 0; i < gpus; ++i)
        CHECK_STATUS(warp_device_synchronize(gpu[i]), WARP_SUCCESS);
}

/* Reads bytes of any memory into host memory, after all work before. */
static CHECK_MAYBE_UNUSED void read_bytes(void *to, const void *from, uint64_t size)
{
    synchronize_all();
    CHECK_STATUS(warp_memory_copy(to, from, size, NULL), WARP_SUCCESS);
    synchronize_all();
}

/* The item that an array has at an index, of up to 8 bytes. */
static CHECK_MAYBE_UNUSED uint64_t item_at(warp_array *array, const int64_t *index)
{
    int64_t strides[WARP_ARRAY_MAX_RANK];
    warp_array_info info = info_of(array);
    const char *at = (const char *)info.data;
    uint64_t item = 0;
    int32_t i;
    CHECK_STATUS(warp_array_get_shape(array, WARP_ARRAY_MAX_RANK, NULL, strides), WARP_SUCCESS);
    for (i = 0; i < info.rank; ++i)
        at += index[i] * strides[i];
    read_bytes(&item, at, info.dtype.item_size);
    return item;
}

/* An int32 array on the CPU that counts 0, 1, 2, ... in row order. */
static CHECK_MAYBE_UNUSED warp_array *counting(int32_t rank, const int64_t *shape)
{
    warp_array *array = NULL;
    warp_array_info info;
    int32_t i;
    CHECK_STATUS(warp_array_empty(cpu, I32, rank, shape, NULL, &array), WARP_SUCCESS);
    info = info_of(array);
    for (i = 0; i < (int32_t)info.count; ++i)
        memcpy((char *)info.data + 4 * (size_t)i, &i, 4);
    return array;
}

static CHECK_MAYBE_UNUSED void release(warp_array *array)
{
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
}

#endif
