/*
 * mempool_bad.c: what callers of memory pools get wrong: each mistake is a status of its own with a message, results are zero,
 * and nothing has changed.
 *
 * needs: simulator
 */
#include "mempools.h"

#include <math.h>

/* Every function that takes a pool, with one that is none. */
static void check_none(warp_mempool *pool)
{
    warp_mempool_info info = {.struct_size = sizeof info, .is_owned = 9};
    warp_mempool_memory_info memory = {.struct_size = sizeof memory, .used = 9};
    uint64_t bytes = 9;
    uint8_t can = 9;
    void *ptr = NULL;
    CHECK_STATUS(warp_mempool_get_info(pool, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_I64(info.is_owned, 0);
    CHECK_STATUS(warp_mempool_query_memory(pool, &memory), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_U64(memory.used, 0);
    CHECK_STATUS(warp_mempool_reset_memory_high(pool), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_mempool_trim(pool, 0), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_mempool_set_release_threshold(pool, 0), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_mempool_set_release_fraction(pool, 0), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_mempool_query_release_threshold(pool, &bytes), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_U64(bytes, 0);
    CHECK_STATUS(warp_mempool_query_access(pool, gpu(1), &can), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_I64(can, 0);
    CHECK_STATUS(warp_mempool_set_access(pool, gpu(1), 1), WARP_ERROR_INVALID_HANDLE);
    if (pool == NULL)
        return;
    CHECK_STATUS(warp_mempool_release(pool), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_mempool_use(gpu(0), pool), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(try_alloc_from(gpu(0), pool, 100, NULL, &ptr), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STATUS(try_alloc_from(gpu(0), pool, 0, NULL, &ptr), WARP_ERROR_INVALID_HANDLE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "memory pool");
}

PROCESS_TEST(what_is_no_pool_is_an_invalid_handle)
{
    warp_mempool *stale;
    void *block;
    start_on("h200x2");
    stale = create(gpu(0));
    release(stale);
    block = plain_alloc(gpu(0), 100);
    check_none(NULL);
    check_none(stale);
    check_none((warp_mempool *)gpu(0));
    check_none((warp_mempool *)stream_of(gpu(0)));
    check_none((warp_mempool *)block);
    check_none((warp_mempool *)(uintptr_t)1);
    check_none((warp_mempool *)UINTPTR_MAX);
    check_none((warp_mempool *)driver_pool(0));
    /* And a pool is nothing else. */
    CHECK_STATUS(warp_device_synchronize((warp_device *)pool_in_use(gpu(0))), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_synchronize((warp_stream *)pool_in_use(gpu(0))), WARP_ERROR_INVALID_HANDLE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "memory pool");
    CHECK_STATUS(warp_mempool_release(NULL), WARP_SUCCESS);
    free_now(block);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(places_for_results_are_needed)
{
    warp_mempool_memory_info unset;
    warp_mempool_info small = {.struct_size = 8};
    warp_mempool *pool;
    start_on("h200x2");
    memset(&unset, 0, sizeof unset);
    pool = pool_in_use(gpu(0));
    CHECK_STATUS(warp_mempool_is_supported(gpu(0), NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_is_enabled(gpu(0), NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_scope_begin_mempool(gpu(0), 0, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    CHECK_STATUS(warp_mempool_get(gpu(0), NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_create(gpu(0), NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_wrap(gpu(0), driver_pool(0), NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_get_info(pool, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_get_info(pool, &small), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_query_memory(pool, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_query_memory(pool, &unset), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "struct_size");
    CHECK_STATUS(warp_mempool_query_memory_of_device(gpu(0), &unset), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_query_release_threshold(pool, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_query_release_threshold_of_device(gpu(0), NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_query_access(pool, gpu(1), NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(made_pools(), 0);
}

PROCESS_TEST(devices_that_are_none_change_nothing)
{
    warp_device *list[3];
    warp_mempool *pool = (warp_mempool *)1;
    start_on("h200x2");
    list[0] = gpu(0);
    list[1] = (warp_device *)(uintptr_t)0x1234;
    list[2] = gpu(1);
    CHECK_STATUS(warp_mempool_set_enabled_for(list, 3, 0), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    list[1] = cpu();
    CHECK_STATUS(warp_mempool_set_enabled_for(list, 3, 0), WARP_SUCCESS);
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    CHECK_EQ_I64(is_enabled(gpu(1)), 0);
    CHECK_STATUS(warp_mempool_set_enabled_for(list, 3, 1), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cpu\"");
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    CHECK_STATUS(warp_mempool_set_enabled_for(NULL, 3, 1), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_set_enabled_for(list, 0, 1), WARP_SUCCESS);
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    CHECK_STATUS(warp_mempool_set_enabled_for(NULL, 0, 1), WARP_SUCCESS);
    CHECK_EQ_I64(is_enabled(gpu(0)) + is_enabled(gpu(1)), 2);
    /* The same device twice is once, and a count that no list can have is no list. */
    list[1] = list[0];
    CHECK_STATUS(warp_mempool_set_enabled_for(list, 2, 0), WARP_SUCCESS);
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    CHECK_STATUS(warp_mempool_set_enabled_for(list, 2, 1), WARP_SUCCESS);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    CHECK_STATUS(warp_mempool_set_enabled_for(list, SIZE_MAX, 0), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_set_enabled_for(list, SIZE_MAX / sizeof *list, 0), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    /* NULL is the default device. */
    CHECK_STATUS(warp_device_set_default(gpu(1)), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_enabled(NULL, 0), WARP_SUCCESS);
    CHECK_EQ_I64(is_enabled(gpu(1)), 0);
    CHECK_EQ_PTR(pool_in_use(NULL), pool_in_use(gpu(1)));
    CHECK_STATUS(warp_mempool_get(list[1] = (warp_device *)(uintptr_t)3, &pool), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(pool, NULL);
}

PROCESS_TEST(a_pool_serves_its_own_gpu_and_kind)
{
    warp_alloc_options options;
    warp_mempool *pool;
    void *ptr = (void *)1;
    uint64_t before;
    start_on("h200x2");
    pool = create(gpu(0));
    before = calls("cuMemAllocFromPoolAsync");
    CHECK_STATUS(try_alloc_from(gpu(1), pool, 100, NULL, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:0\"");
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:1\"");
    CHECK_STATUS(try_alloc_from(cpu(), pool, 100, NULL, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(try_alloc_from(gpu(1), pool, 0, NULL, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_use(gpu(1), pool), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_use(cpu(), pool), WARP_ERROR_INVALID_ARGUMENT);
    options = options_of(WARP_MEMORY_CUDA_DEVICE, NULL);
    options.mempool = pool;
    CHECK_STATUS(warp_alloc_with(gpu(0), 100, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "CUDA_DEVICE");
    options.kind = WARP_MEMORY_CUDA_MANAGED;
    CHECK_STATUS(warp_alloc_with(gpu(0), 100, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    options.kind = WARP_MEMORY_PINNED;
    CHECK_STATUS(warp_alloc_with(cpu(), 100, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    options.kind = 0;
    options.stream = stream_of(gpu(1));
    CHECK_STATUS(warp_alloc_with(gpu(0), 100, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    options.stream = NULL;
    CHECK_STATUS(warp_alloc_with(gpu(0), UINT64_MAX, &options, &ptr), WARP_ERROR_SIZE_OVERFLOW);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_EQ_U64(calls("cuMemAllocFromPoolAsync"), before);
    /* No bytes ask nobody. */
    CHECK_STATUS(try_alloc_from(gpu(0), pool, 0, NULL, &ptr), WARP_SUCCESS);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_EQ_U64(calls("cuMemAllocFromPoolAsync"), before);
    release(pool);
    CHECK_NOTHING_LEFT();
}

/* A caller that was compiled before the field was there, and one from after. */
PROCESS_TEST(callers_of_other_versions_are_understood)
{
    struct {
        warp_alloc_options known;
        uint64_t unknown;
    } newer;
    warp_alloc_options older = options_of(WARP_MEMORY_UNKNOWN, NULL);
    void *ptr = NULL;
    start_on("h200x2");
    older.struct_size = offsetof(warp_alloc_options, mempool);
    older.mempool = (warp_mempool *)(uintptr_t)0x77; /* not looked at */
    CHECK_STATUS(warp_alloc_with(gpu(0), 100, &older, &ptr), WARP_SUCCESS);
    free_now(ptr);
    older.struct_size = offsetof(warp_alloc_options, mempool) - 1;
    CHECK_STATUS(warp_alloc_with(gpu(0), 100, &older, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    memset(&newer, 0, sizeof newer);
    newer.known.struct_size = sizeof newer;
    CHECK_STATUS(warp_alloc_with(gpu(0), 100, &newer.known, &ptr), WARP_SUCCESS);
    free_now(ptr);
    newer.unknown = 1;
    CHECK_STATUS(warp_alloc_with(gpu(0), 100, &newer.known, &ptr), WARP_ERROR_NOT_SUPPORTED);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(fractions_are_parts)
{
    static const double bad[] = {-0.1, -1, 1.0000001, 2, 1e300, NAN, INFINITY, -INFINITY};
    size_t i;
    start_on("h200x2");
    CHECK_STATUS(warp_mempool_set_release_threshold_of_device(gpu(0), 42000), WARP_SUCCESS);
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        CHECK_STATUS(warp_mempool_set_release_fraction(pool_in_use(gpu(0)), bad[i]), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_mempool_set_release_fraction_of_device(gpu(0), bad[i]), WARP_ERROR_INVALID_ARGUMENT);
    }
    CHECK_EQ_U64(threshold_of(pool_in_use(gpu(0))), 42000);
}

PROCESS_TEST(options_of_pools_are_looked_at)
{
    warp_mempool_options options = {.struct_size = sizeof options, .handle_types = 2};
    warp_mempool *pool = (warp_mempool *)1;
    start_on("h200x2");
    CHECK_STATUS(warp_mempool_create(gpu(0), &options, &pool), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(pool, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "handle_types");
    options.handle_types = UINT32_MAX;
    CHECK_STATUS(warp_mempool_create(gpu(0), &options, &pool), WARP_ERROR_INVALID_ARGUMENT);
    options.handle_types = 0;
    options.reserved = 1;
    CHECK_STATUS(warp_mempool_create(gpu(0), &options, &pool), WARP_ERROR_INVALID_ARGUMENT);
    options.reserved = 0;
    options.struct_size = 0;
    CHECK_STATUS(warp_mempool_create(gpu(0), &options, &pool), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(calls("cuMemPoolCreate"), 0);
    options.struct_size = sizeof options;
    options.handle_types = WARP_MEMPOOL_HANDLE_POSIX_FD | WARP_MEMPOOL_HANDLE_FABRIC;
    CHECK_STATUS(warp_mempool_create(gpu(0), &options, &pool), WARP_SUCCESS);
    CHECK_EQ_I64(pool_info(pool).handle_types, 9);
    release(pool);
}

/* Where a pool's memory is gets proved, and not believed. */
PROCESS_TEST(wrapping_what_is_not_a_pool_of_the_device_is_refused)
{
    struct pool_properties properties = {.kind = 2, .location = {1, 0}};
    CUmemoryPool theirs, destroyed, managed = NULL, imported = NULL;
    warp_mempool *pool = (warp_mempool *)1, *known;
    int32_t file = -1;
    start_on("h200x2");
    CHECK_STATUS(warp_mempool_wrap(gpu(0), NULL, &pool), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(pool, NULL);
    theirs = foreign_pool(1, 1);
    CHECK_STATUS(warp_mempool_wrap(gpu(0), theirs, &pool), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:1\"");
    CHECK_STATUS(warp_mempool_wrap(cpu(), theirs, &pool), WARP_ERROR_INVALID_ARGUMENT);
    /* A known pool is not asked. */
    known = create(gpu(1));
    CHECK_STATUS(warp_mempool_wrap(gpu(0), pool_info(known).native, &pool), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:1\"");
    (void)pool_in_use(gpu(1));
    CHECK_STATUS(warp_mempool_wrap(gpu(0), driver_pool(1), &pool), WARP_ERROR_INVALID_ARGUMENT);
    release(known);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 1);
    /* Destroyed, managed, imported. */
    destroyed = foreign_pool(0, 0);
    CHECK_EQ_U64(SIMULATOR(cuMemPoolDestroy)(destroyed), 0);
    CHECK_STATUS(warp_mempool_wrap(gpu(0), destroyed, &pool), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(SIMULATOR(cuMemPoolCreate)(&managed, &properties), 0);
    CHECK_STATUS(warp_mempool_wrap(gpu(0), managed, &pool), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(SIMULATOR(cuMemPoolExportToShareableHandle)(&file, theirs, 1, 0), 0);
    CHECK_EQ_U64(SIMULATOR(cuMemPoolImportFromShareableHandle)(&imported, (void *)(uintptr_t)file, 1, 0), 0);
    CHECK_STATUS(warp_mempool_wrap(gpu(1), imported, &pool), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "imported");
    CHECK_EQ_PTR(pool, NULL);
    CHECK_EQ_U64(live("pool"), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
    close(file);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(before_init_there_is_nothing)
{
    warp_mempool *pool = (warp_mempool *)1;
    uint8_t is = 9;
    CHECK_STATUS(warp_mempool_is_supported(NULL, &is), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_I64(is, 0);
    CHECK_STATUS(warp_mempool_set_enabled_for(NULL, 0, 1), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_mempool_create(NULL, NULL, &pool), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_PTR(pool, NULL);
    CHECK_STATUS(warp_mempool_trim(NULL, 0), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_mempool_release(NULL), WARP_ERROR_NOT_INITIALIZED);
}

CHECK_MAIN()
