/*
 * mempool.c: memory pools: on and off for the process and for a thread, a device's own and those that a program makes, what
 * they hold and keep, and machines that have none.
 *
 * needs: simulator
 */
#include "mempools.h"

#include <pthread.h>

static warp_scope *with_pools(warp_device *device, uint8_t enabled)
{
    warp_scope *scope = NULL;
    CHECK_STATUS(warp_scope_begin_mempool(device, enabled, &scope), WARP_SUCCESS);
    CHECK(scope != NULL);
    return scope;
}

static void end_scope(warp_scope *scope)
{
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
}

static void enable(warp_device *device, uint8_t enabled)
{
    CHECK_STATUS(warp_mempool_set_enabled(device, enabled), WARP_SUCCESS);
}

/* What a default request of the device is served with now. */
static int default_kind(warp_device *device)
{
    void *ptr = plain_alloc(device, 100);
    int kind = pointer_info(ptr).kind;
    free_now(ptr);
    return kind;
}

PROCESS_TEST(pools_are_switched_on_and_off_and_blocks_stay_what_they_are)
{
    void *pooled, *plain;
    warp_device *first;
    uint64_t async_frees, all;
    start_on("h200x2");
    CHECK_EQ_I64(is_supported(gpu(0)), 1);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    pooled = plain_alloc(gpu(0), 1000);
    put_pattern(pooled, 1000, 1);
    /* The switch is the library's own: the driver is not told. */
    first = gpu(0);
    all = calls("*");
    enable(first, 0);
    CHECK_EQ_I64(is_enabled(first), 0);
    CHECK_EQ_U64(calls("*"), all);
    CHECK_EQ_I64(info_of(gpu(0)).is_mempool_enabled, 0);
    CHECK_EQ_I64(is_enabled(gpu(1)), 1);
    CHECK_EQ_I64(default_kind(gpu(0)), WARP_MEMORY_CUDA_DEVICE);
    CHECK_EQ_I64(default_kind(gpu(1)), WARP_MEMORY_CUDA_MEMPOOL);
    /* Naming the kind, or a pool, is as good as ever. */
    free_now(block_of(gpu(0), 100, WARP_MEMORY_CUDA_MEMPOOL));
    {
        void *named = alloc_from(gpu(0), pool_in_use(gpu(0)), 100);
        CHECK_EQ_I64(pointer_info(named).kind, WARP_MEMORY_CUDA_MEMPOOL);
        free_now(named);
    }
    plain = plain_alloc(gpu(0), 1000);
    put_pattern(plain, 1000, 2);
    CHECK_EQ_I64(pointer_info(pooled).kind, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_EQ_I64(pointer_info(pooled).rule, WARP_ACCESS_RULE_POOL);
    enable(gpu(0), 7); /* any value but zero is true */
    CHECK_EQ_I64(pointer_info(plain).kind, WARP_MEMORY_CUDA_DEVICE);
    CHECK_EQ_I64(pointer_info(plain).rule, WARP_ACCESS_RULE_PEER);
    CHECK_EQ_U64(find_pattern(pooled, 1000, 1), 1000);
    CHECK_EQ_U64(find_pattern(plain, 1000, 2), 1000);
    /* Each goes back to where it came from. */
    async_frees = calls("cuMemFreeAsync");
    free_now(plain);
    CHECK_EQ_U64(calls("cuMemFreeAsync"), async_frees);
    enable(gpu(0), 0);
    free_now(pooled);
    CHECK_EQ_U64(calls("cuMemFreeAsync"), async_frees + 1);
    CHECK_NOTHING_LEFT();
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_scope_switches_pools_for_its_thread)
{
    warp_scope *outer, *inner, *other;
    start_on("h200x2");
    outer = with_pools(gpu(0), 0);
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    CHECK_EQ_I64(info_of(gpu(0)).is_mempool_enabled, 0);
    CHECK_EQ_I64(is_enabled(gpu(1)), 1);
    CHECK_EQ_I64(default_kind(gpu(0)), WARP_MEMORY_CUDA_DEVICE);
    other = with_pools(gpu(1), 0);
    inner = with_pools(gpu(0), 1);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    CHECK_EQ_I64(is_enabled(gpu(1)), 0);
    /* What the process chooses is seen when no scope lies over it. */
    enable(gpu(0), 0);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    CHECK_EQ_I64(default_kind(gpu(0)), WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_STATUS(warp_scope_end(outer), WARP_ERROR_SCOPE_ORDER);
    end_scope(inner);
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    end_scope(other);
    CHECK_EQ_I64(is_enabled(gpu(1)), 1);
    enable(gpu(0), 1);
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    end_scope(outer);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    CHECK_STATUS(warp_scope_end(outer), WARP_ERROR_SCOPE_ORDER);
    CHECK_NOTHING_LEFT();
}

static void *see_the_process(void *argument)
{
    warp_scope *scope;
    (void)argument;
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    scope = with_pools(gpu(1), 0);
    CHECK_EQ_I64(default_kind(gpu(1)), WARP_MEMORY_CUDA_DEVICE);
    (void)scope; /* ends with the thread */
    return NULL;
}

/* A context that dies takes the device, and not what the thread chose: the device that takes its place goes on with it. */
PROCESS_TEST(a_scope_goes_on_when_the_device_is_reset)
{
    warp_scope *outer = NULL, *inner = NULL;
    void *ptr;
    start_on("h200x2");
    context_of(gpu(0));
    CHECK_STATUS(warp_scope_begin_mempool(gpu(0), 0, &outer), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    context_of(gpu(0));
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    CHECK_EQ_I64(is_enabled(gpu(1)), 1);
    ptr = plain_alloc(gpu(0), 100);
    CHECK_EQ_I64(pointer_info(ptr).kind, WARP_MEMORY_CUDA_DEVICE);
    free_now(ptr);
    CHECK_STATUS(warp_scope_begin_mempool(gpu(0), 1, &inner), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    context_of(gpu(0));
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    CHECK_STATUS(warp_scope_end(inner), WARP_SUCCESS);
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    CHECK_STATUS(warp_scope_end(outer), WARP_SUCCESS);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
}

PROCESS_TEST(threads_have_scopes_of_their_own)
{
    warp_scope *scope;
    pthread_t thread;
    int i;
    start_on("h200x2");
    scope = with_pools(gpu(0), 0);
    for (i = 0; i < 3; ++i) {
        REQUIRE(pthread_create(&thread, NULL, see_the_process, NULL) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
    }
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    CHECK_EQ_I64(is_enabled(gpu(1)), 1);
    end_scope(scope);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(as_many_scopes_as_a_thread_can_have_fit)
{
    warp_scope *scopes[64], *more = (warp_scope *)1;
    int i;
    start_on("h200x2,gpus=64");
    for (i = 0; i < 64; ++i)
        scopes[i] = with_pools(gpu(i), 0);
    CHECK_STATUS(warp_scope_begin_mempool(gpu(0), 1, &more), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_PTR(more, NULL);
    for (i = 0; i < 64; ++i)
        CHECK_EQ_I64(is_enabled(gpu(i)), 0);
    while (i-- > 0) {
        end_scope(scopes[i]);
        CHECK_EQ_I64(is_enabled(gpu(i)), 1);
    }
}

PROCESS_TEST(pools_start_off_when_init_says_so)
{
    warp_init_options options = {.struct_size = sizeof options, .flags = WARP_INIT_DISABLE_MEMPOOLS};
    warp_device *later = NULL;
    setenv("WARPSIM_TOPOLOGY", "h200x2", 1);
    CHECK_STATUS(warp_init(&options, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(is_supported(gpu(0)), 1);
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    /* And for a context of other code that is registered later. */
    CHECK_STATUS(warp_device_from_context(driver_foreign(0), NULL, &later), WARP_SUCCESS);
    CHECK_EQ_I64(is_supported(later), 1);
    CHECK_EQ_I64(is_enabled(later), 0);
    enable(gpu(0), 1);
    CHECK_EQ_I64(is_enabled(later), 0);
    CHECK_EQ_I64(default_kind(gpu(0)), WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_EQ_I64(default_kind(gpu(1)), WARP_MEMORY_CUDA_DEVICE);
    /* What was chosen ends with the life of the library. */
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    CHECK_EQ_I64(is_enabled(gpu(1)), 1);
}

/* ---- machines without ---------------------------------------------------------------------------------------------- */

/* Everything that needs a pool, on a device that has none. */
static void check_refused(warp_device *device, warp_status status)
{
    warp_mempool *pool = (warp_mempool *)1;
    warp_mempool_memory_info memory = {.struct_size = sizeof memory, .used = 7};
    warp_scope *scope = (warp_scope *)1;
    uint64_t bytes = 7;
    CHECK_EQ_I64(is_supported(device), 0);
    CHECK_EQ_I64(is_enabled(device), 0);
    CHECK_STATUS(warp_mempool_set_enabled(device, 1), status);
    CHECK_STR_CONTAINS(warp_error_get_message(), alias_of(device));
    CHECK_STATUS(warp_mempool_set_enabled_for(&device, 1, 1), status);
    CHECK_STATUS(warp_scope_begin_mempool(device, 1, &scope), status);
    CHECK_EQ_PTR(scope, NULL);
    CHECK_EQ_I64(is_enabled(device), 0);
    CHECK_STATUS(warp_mempool_get(device, &pool), status);
    CHECK_EQ_PTR(pool, NULL);
    CHECK_STATUS(warp_mempool_create(device, NULL, &pool), status);
    CHECK_STATUS(warp_mempool_wrap(device, (void *)0x1000, &pool), status);
    CHECK_STATUS(warp_mempool_use(device, NULL), status);
    CHECK_STATUS(warp_mempool_query_memory_of_device(device, &memory), status);
    CHECK_EQ_U64(memory.used, 0);
    CHECK_STATUS(warp_mempool_reset_memory_high_of_device(device), status);
    CHECK_STATUS(warp_mempool_trim_of_device(device, 0), status);
    CHECK_STATUS(warp_mempool_set_release_threshold_of_device(device, 1), status);
    CHECK_STATUS(warp_mempool_set_release_fraction_of_device(device, 0.5), status);
    CHECK_STATUS(warp_mempool_query_release_threshold_of_device(device, &bytes), status);
    CHECK_EQ_U64(bytes, 0);
    CHECK_STR_CONTAINS(warp_error_get_message(), alias_of(device));
    /* Off is what they are. */
    CHECK_STATUS(warp_mempool_set_enabled(device, 0), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_enabled_for(&device, 1, 0), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_begin_mempool(device, 0, &scope), WARP_SUCCESS);
    CHECK_EQ_I64(is_enabled(device), 0);
    end_scope(scope);
}

/* MP-01: a GPU without pools. Plain memory works and is freed behind its stream, what needs pools is a named error, a capture goes
 * on, and no entry point of pools is ever called. What the report says of such a GPU: library_driver.c. */
PROCESS_TEST(a_gpu_without_pools_is_never_asked_for_one)
{
    warp_stream *stream;
    warp_graph *graph = NULL;
    void *ptr = (void *)1, *large = NULL, *before;
    uint64_t frees;
    start_on("vgpu");
    check_refused(gpu(0), WARP_ERROR_NOT_SUPPORTED);
    check_refused(cpu(), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_I64(default_kind(gpu(0)), WARP_MEMORY_CUDA_DEVICE);
    ptr = plain_alloc(gpu(0), MIB);
    put_pattern(ptr, MIB, 3);
    CHECK_EQ_U64(find_pattern(ptr, MIB, 3), MIB);
    free_now(ptr);
    /* Every GPU there is. */
    CHECK_STATUS(warp_mempool_set_enabled_for(NULL, 0, 1), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_mempool_set_enabled_for(NULL, 0, 0), WARP_SUCCESS);
    stream = new_stream(gpu(0), 0);
    ptr = block_on(gpu(0), MIB, WARP_MEMORY_UNKNOWN, stream);
    /* The real free comes behind what the stream does with the block. */
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native_stream(stream)), 0);
    fill_byte(ptr, 1, MIB, stream);
    frees = calls("cuMemFree_v2");
    free_now(ptr);
    CHECK_EQ_U64(calls("cuMemFree_v2"), frees);
    CHECK_EQ_U64(SIMULATOR(warpsim_release)(native_stream(stream)), 0);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    before = block_on(gpu(0), MIB, WARP_MEMORY_UNKNOWN, stream);
    CHECK_EQ_U64(calls("cuMemFree_v2"), frees + 1);
    begin(stream);
    CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_CUDA_MEMPOOL, 100, &ptr), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_UNKNOWN, 100, &ptr), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "no memory pools");
    /* The capture is as good as before: what is recorded now runs. */
    fill_byte(before, 6, MIB, stream);
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(before, 6, MIB, stream));
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    free_now(before);
    /* Running out of memory asks no pool either. */
    CHECK_STATUS(warp_alloc(gpu(0), 64 * GIB, &large), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(pool_calls(), 0);
    CHECK_NOTHING_LEFT();
}

/* MP-02: one GPU has pools and the other has none. */
PROCESS_TEST(each_gpu_of_a_mixed_machine_is_what_it_is)
{
    warp_device *both[2], *good_only[1];
    warp_mempool *pool;
    void *a, *b;
    start_on("mixed");
    both[0] = gpu(0);
    both[1] = gpu(1);
    good_only[0] = gpu(0);
    check_refused(gpu(1), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    enable(gpu(0), 0);
    /* All or none, whichever comes first. */
    CHECK_STATUS(warp_mempool_set_enabled_for(both, 2, 1), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:1\"");
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    CHECK_STATUS(warp_mempool_set_enabled_for(NULL, 0, 1), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    CHECK_STATUS(warp_mempool_set_enabled_for(good_only, 1, 1), WARP_SUCCESS);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    CHECK_STATUS(warp_mempool_set_enabled_for(both, 2, 0), WARP_SUCCESS);
    CHECK_EQ_I64(is_enabled(gpu(0)), 0);
    enable(gpu(0), 1);
    CHECK_EQ_I64(default_kind(gpu(0)), WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_EQ_I64(default_kind(gpu(1)), WARP_MEMORY_CUDA_DEVICE);
    /* A pool of one is none of the other. */
    pool = create(gpu(0));
    CHECK_STATUS(try_alloc_from(gpu(1), pool, 100, NULL, &a), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(a, NULL);
    CHECK_STATUS(warp_mempool_use(gpu(1), pool), WARP_ERROR_NOT_SUPPORTED);
    /* Its memory can be given to the other, by their link. */
    {
        uint8_t can = 9;
        CHECK_STATUS(warp_mempool_query_access(pool, gpu(1), &can), WARP_SUCCESS);
        CHECK_EQ_I64(can, 0);
        CHECK_STATUS(warp_mempool_set_access(pool, gpu(1), 1), WARP_SUCCESS);
        CHECK_STATUS(warp_mempool_query_access(pool, gpu(1), &can), WARP_SUCCESS);
        CHECK_EQ_I64(can, 1);
    }
    release(pool);
    a = plain_alloc(gpu(0), 5000);
    b = plain_alloc(gpu(1), 5000);
    put_pattern(a, 5000, 4);
    copy_now(b, a, 5000, NULL);
    CHECK_EQ_U64(find_pattern(b, 5000, 4), 5000);
    free_now(a);
    free_now(b);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(without_a_gpu_there_are_no_pools_and_no_errors_for_none)
{
    start_on("none");
    check_refused(cpu(), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_set_enabled_for(NULL, 0, 1), WARP_SUCCESS);
    CHECK_EQ_I64(default_kind(cpu()), WARP_MEMORY_HOST);
    CHECK_EQ_U64(pool_calls(), 0);
}

/* MP-03: the device lists a handle type, and the driver makes no pool with it. */
PROCESS_TEST(handle_types_that_the_system_does_not_give_are_named)
{
    warp_mempool_options options = {.struct_size = sizeof options, .handle_types = WARP_MEMPOOL_HANDLE_POSIX_FD};
    warp_mempool *pool = (warp_mempool *)1;
    warp_error error = {.struct_size = sizeof error};
    void *ptr;
    start_on("wsl,handle_types=1");
    CHECK_EQ_U64(SIMULATOR(warpsim_fail)("cuMemPoolCreate", 1, 1), 0);
    CHECK_STATUS(warp_mempool_create(gpu(0), &options, &pool), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_PTR(pool, NULL);
    CHECK_STATUS(warp_error_get_last(&error), WARP_SUCCESS);
    CHECK_STR_CONTAINS(error.message, "POSIX_FD");
    CHECK_STR_CONTAINS(error.message, "\"cuda:0\"");
    CHECK_EQ_I64(error.driver_code, 1);
    /* One that it does not list. */
    options.handle_types = WARP_MEMPOOL_HANDLE_FABRIC;
    CHECK_STATUS(warp_mempool_create(gpu(0), &options, &pool), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "FABRIC");
    CHECK_EQ_U64(made_pools(), 0);
    CHECK_EQ_I64(info_of(gpu(0)).is_ipc_supported, 0);
    /* Nothing of it stays: neither here nor in the driver, which was asked when the program asked. */
    CHECK_EQ_U64(calls("cuMemPoolCreate"), 2);
    CHECK_EQ_PTR(driver_current(), NULL);
    CHECK_EQ_I64(default_kind(gpu(0)), WARP_MEMORY_CUDA_MEMPOOL);
    pool = create(gpu(0));
    ptr = alloc_from(gpu(0), pool, 1000);
    put_pattern(ptr, 1000, 5);
    CHECK_EQ_U64(find_pattern(ptr, 1000, 5), 1000);
    free_now(ptr);
    release(pool);
    CHECK_NOTHING_LEFT();
}

/* ---- the device's pool, and others --------------------------------------------------------------------------------- */

PROCESS_TEST(a_devices_pool_is_its_current_one_at_the_first_use)
{
    CUmemoryPool theirs, later;
    warp_mempool *pool;
    void *ptr;
    setenv("WARPSIM_TOPOLOGY", "h200x2", 1);
    theirs = foreign_pool(0, 0);
    later = foreign_pool(0, 0);
    CHECK_EQ_U64(SIMULATOR(cuDeviceSetMemPool)(0, theirs), 0);
    start_on("h200x2");
    pool = pool_in_use(gpu(0));
    CHECK_EQ_PTR(pool_info(pool).native, theirs);
    CHECK_EQ_I64(pool_info(pool).is_owned, 0);
    CHECK_EQ_I64(pool_info(pool).is_device_pool, 1);
    CHECK_EQ_PTR(pool_info(pool).device, gpu(0));
    CHECK_EQ_U64(pool_info(pool).max_size, 0);
    CHECK_EQ_PTR(driver_current(), NULL);
    /* What others make current later does not move us. */
    CHECK_EQ_U64(SIMULATOR(cuDeviceSetMemPool)(0, later), 0);
    ptr = plain_alloc(gpu(0), 1000);
    CHECK_EQ_PTR(pool_of(ptr), theirs);
    CHECK_EQ_PTR(pool_in_use(gpu(0)), pool);
    free_now(ptr);
    CHECK(pool_in_use(gpu(1)) != pool);
    CHECK_EQ_PTR(pool_info(pool_in_use(gpu(1))).native, driver_pool(1));
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(every_gpu_has_a_pool_of_its_own)
{
    int i;
    start_on("gpux10");
    for (i = 0; i < 10; ++i) {
        CHECK_EQ_PTR(pool_info(pool_in_use(gpu(i))).device, gpu(i));
        CHECK_STATUS(warp_mempool_set_release_threshold_of_device(gpu(i), 1000 + (uint64_t)i), WARP_SUCCESS);
    }
    for (i = 0; i < 10; ++i) {
        CHECK_EQ_U64(threshold_of(pool_in_use(gpu(i))), 1000 + (uint64_t)i);
        CHECK_EQ_I64(info_of(gpu(i)).has_context, 0); /* asking makes no context */
    }
}

PROCESS_TEST(pools_that_a_program_makes_serve_what_names_them)
{
    warp_mempool *pool, *second;
    warp_mempool_info info;
    void *ptr, *other, *own;
    start_on("h200x2");
    pool = create_with(gpu(0), 0, 12345, WARP_MEMPOOL_HANDLE_POSIX_FD);
    second = create(gpu(0));
    info = pool_info(pool);
    CHECK_EQ_PTR(info.device, gpu(0));
    CHECK_EQ_I64(info.is_owned, 1);
    CHECK_EQ_I64(info.is_device_pool, 0);
    CHECK_EQ_I64(info.handle_types, WARP_MEMPOOL_HANDLE_POSIX_FD);
    CHECK_EQ_U64(info.max_size, 0);
    CHECK_EQ_U64(threshold_of(pool), 12345);
    CHECK_EQ_U64(threshold_of(second), 0);
    CHECK(info.native != NULL && info.native != driver_pool(0));
    ptr = alloc_from(gpu(0), pool, 1000);
    other = alloc_from(gpu(0), second, 1000);
    own = plain_alloc(gpu(0), 1000);
    CHECK_EQ_PTR(pool_of(ptr), info.native);
    CHECK_EQ_PTR(pool_of(other), pool_info(second).native);
    CHECK_EQ_PTR(pool_of(own), driver_pool(0));
    CHECK_EQ_I64(pointer_info(ptr).kind, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_EQ_U64(pool_memory(pool).used, 1000);
    /* The kind may be said as well. */
    {
        warp_alloc_options options = options_of(WARP_MEMORY_CUDA_MEMPOOL, NULL);
        options.mempool = pool;
        options.alignment = 1 << 16;
        void *aligned = NULL;
        CHECK_STATUS(warp_alloc_with(gpu(0), 100, &options, &aligned), WARP_SUCCESS);
        CHECK_EQ_U64((uintptr_t)aligned % (1 << 16), 0);
        CHECK_EQ_PTR(pool_of(aligned), info.native);
        free_now(aligned);
    }
    /* Arrays, of no items too. */
    {
        warp_array_options options = {.struct_size = sizeof options, .mempool = pool};
        warp_array_info of = {.struct_size = sizeof of};
        const warp_dtype float32 = {2, 32, 1, 4};
        warp_array *array = NULL;
        int64_t shape = 10, none = 0;
        CHECK_STATUS(warp_array_zeros(gpu(0), float32, 1, &shape, &options, &array), WARP_SUCCESS);
        CHECK_STATUS(warp_array_get_info(array, &of), WARP_SUCCESS);
        CHECK_EQ_PTR(pool_of(of.data), info.native);
        CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
        enable(gpu(0), 0);
        CHECK_STATUS(warp_array_zeros(gpu(0), float32, 1, &none, &options, &array), WARP_SUCCESS);
        CHECK_STATUS(warp_array_get_info(array, &of), WARP_SUCCESS);
        CHECK_EQ_I64(of.kind, WARP_MEMORY_CUDA_MEMPOOL);
        CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
        enable(gpu(0), 1);
    }
    free_now(ptr);
    free_now(other);
    free_now(own);
    release(pool);
    release(second);
    CHECK_EQ_U64(made_pools(), 0);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(a_device_allocates_from_the_pool_that_it_is_told_to_use)
{
    warp_mempool *own, *pool, *second;
    void *before, *ptr, *kind, *other;
    start_on("h200x2");
    own = pool_in_use(gpu(0));
    before = plain_alloc(gpu(0), 100);
    pool = create(gpu(0));
    second = create(gpu(0));
    CHECK_STATUS(warp_mempool_use(gpu(0), pool), WARP_SUCCESS);
    CHECK_EQ_PTR(pool_in_use(gpu(0)), pool);
    CHECK(pool_in_use(gpu(1)) != pool);
    ptr = plain_alloc(gpu(0), 100);
    kind = block_of(gpu(0), 100, WARP_MEMORY_CUDA_MEMPOOL);
    other = plain_alloc(gpu(1), 100);
    CHECK_EQ_PTR(pool_of(ptr), pool_info(pool).native);
    CHECK_EQ_PTR(pool_of(kind), pool_info(pool).native);
    CHECK_EQ_PTR(pool_of(other), driver_pool(1));
    CHECK_EQ_PTR(pool_of(before), pool_info(own).native);
    CHECK_EQ_U64(pool_memory(pool).used, 200);
    CHECK_STATUS(warp_mempool_set_release_threshold_of_device(gpu(0), 99), WARP_SUCCESS);
    CHECK_EQ_U64(threshold_of(pool), 99);
    CHECK_EQ_U64(threshold_of(own), 0);
    CHECK_STATUS(warp_mempool_use(gpu(0), second), WARP_SUCCESS);
    free_now(ptr);
    ptr = plain_alloc(gpu(0), 100);
    CHECK_EQ_PTR(pool_of(ptr), pool_info(second).native);
    /* The device's own, named or not. */
    CHECK_STATUS(warp_mempool_use(gpu(0), NULL), WARP_SUCCESS);
    CHECK_EQ_PTR(pool_in_use(gpu(0)), own);
    CHECK_STATUS(warp_mempool_use(gpu(0), pool), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_use(gpu(0), own), WARP_SUCCESS);
    CHECK_EQ_PTR(pool_in_use(gpu(0)), own);
    free_now(ptr);
    free_now(kind);
    free_now(before);
    free_now(other);
    release(pool);
    release(second);
    CHECK_EQ_U64(made_pools(), 0);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(contexts_of_one_gpu_share_its_pools)
{
    CUcontext foreign;
    warp_device *second = NULL;
    warp_mempool *pool;
    void *ptr;
    start_on("h200x2");
    foreign = driver_foreign(0);
    CHECK_STATUS(warp_device_from_context(foreign, NULL, &second), WARP_SUCCESS);
    CHECK_EQ_PTR(pool_in_use(second), pool_in_use(gpu(0)));
    pool = create(gpu(0));
    ptr = alloc_from(second, pool, 100);
    CHECK_EQ_PTR(pool_of(ptr), pool_info(pool).native);
    CHECK_STATUS(warp_mempool_use(second, pool), WARP_SUCCESS);
    CHECK_EQ_PTR(pool_in_use(second), pool);
    CHECK(pool_in_use(gpu(0)) != pool);
    /* Each context has its own switch. */
    enable(second, 0);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    free_now(ptr);
    release(pool);
    CHECK_EQ_U64(made_pools(), 1);
    /* A context that is taken out of the table uses none. */
    CHECK_STATUS(warp_device_remove(second), WARP_SUCCESS);
    CHECK_EQ_U64(made_pools(), 0);
    CHECK_NOTHING_LEFT();
}

/* ---- what pools hold and keep -------------------------------------------------------------------------------------- */

PROCESS_TEST(the_threshold_is_the_drivers_and_any_number)
{
    static const uint64_t values[] = {0, 1, 42000, UINT64_C(1) << 40, UINT64_MAX};
    uint64_t total, other = 77;
    warp_mempool *pool;
    size_t i;
    start_on("h200x2");
    pool = pool_in_use(gpu(0));
    total = info_of(gpu(0)).total_memory;
    CHECK_EQ_U64(threshold_of(pool), 0);
    for (i = 0; i < sizeof values / sizeof *values; ++i) {
        CHECK_STATUS(warp_mempool_set_release_threshold(pool, values[i]), WARP_SUCCESS);
        CHECK_EQ_U64(threshold_of(pool), values[i]);
    }
    CHECK_STATUS(warp_mempool_set_release_fraction(pool, 0.5), WARP_SUCCESS);
    CHECK_EQ_U64(threshold_of(pool), total / 2);
    CHECK_STATUS(warp_mempool_set_release_fraction(pool, 1), WARP_SUCCESS);
    CHECK_EQ_U64(threshold_of(pool), total);
    CHECK_STATUS(warp_mempool_set_release_fraction(pool, 1.0 / 3), WARP_SUCCESS);
    CHECK_EQ_U64(threshold_of(pool), (uint64_t)(1.0 / 3 * (double)total));
    CHECK_STATUS(warp_mempool_set_release_fraction(pool, -0.0), WARP_SUCCESS);
    CHECK_EQ_U64(threshold_of(pool), 0);
    /* Other code sets it too. */
    CHECK_EQ_U64(SIMULATOR(cuMemPoolSetAttribute)(driver_pool(0), POOL_RELEASE_THRESHOLD, &other), 0);
    CHECK_EQ_U64(threshold_of(pool), 77);
    other = 0;
    CHECK_STATUS(warp_mempool_query_release_threshold_of_device(gpu(0), &other), WARP_SUCCESS);
    CHECK_EQ_U64(other, 77);
    CHECK_STATUS(warp_mempool_set_release_fraction_of_device(gpu(1), 0.25), WARP_SUCCESS);
    CHECK_EQ_U64(threshold_of(pool_in_use(gpu(1))), total / 4);
    CHECK_EQ_U64(threshold_of(pool), 77);
}

PROCESS_TEST(a_pool_keeps_as_much_as_its_threshold_says)
{
    warp_mempool *pool;
    start_on("h200x2");
    pool = create_with(gpu(0), 0, UINT64_MAX, 0);
    free_now(alloc_from(gpu(0), pool, 256 * MIB));
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(pool_memory(pool).reserved, 256 * MIB);
    CHECK_STATUS(warp_mempool_trim(pool, 64 * MIB), WARP_SUCCESS);
    CHECK_EQ_U64(pool_memory(pool).reserved, 64 * MIB);
    CHECK_STATUS(warp_mempool_trim(pool, UINT64_MAX), WARP_SUCCESS);
    CHECK_EQ_U64(pool_memory(pool).reserved, 64 * MIB);
    CHECK_STATUS(warp_mempool_trim(pool, 0), WARP_SUCCESS);
    CHECK_EQ_U64(pool_memory(pool).reserved, 0);
    CHECK_STATUS(warp_mempool_set_release_threshold(pool, 0), WARP_SUCCESS);
    free_now(alloc_from(gpu(0), pool, 256 * MIB));
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(pool_memory(pool).reserved, 0);
    release(pool);
    CHECK_NOTHING_LEFT();
}

static uint64_t memory_left(warp_device *device)
{
    uint64_t left = 0, total = 0;
    CHECK_STATUS(warp_device_query_memory(device, &left, &total), WARP_SUCCESS);
    return left;
}

/* OM-03: the pool's figures are the driver's, of all its users, and apart from the library's own counts and from what the device
 * has left. High marks fall only when they are reset. Where there are no pools to ask: check_refused above. */
PROCESS_TEST(used_and_reserved_are_the_drivers_and_ours_are_ours)
{
    warp_mempool_memory_info memory = {.struct_size = sizeof memory};
    warp_mempool *pool;
    CUcontext context;
    uint64_t theirs = 0, left;
    void *ptr;
    start_on("h200x2");
    pool = pool_in_use(gpu(0));
    context = context_of(gpu(0));
    left = memory_left(gpu(0));
    ptr = plain_alloc(gpu(0), 12);
    /* Twelve bytes here, in the pool as the driver counts, and of the device as much as the driver reserves. */
    CHECK_EQ_U64(statistics_of(gpu(0), WARP_MEMORY_CUDA_MEMPOOL).live_bytes, 12);
    CHECK_EQ_U64(pool_memory(pool).used, 12);
    CHECK_EQ_U64(pool_memory(pool).reserved, 32 * MIB);
    CHECK_EQ_U64(left - memory_left(gpu(0)), 32 * MIB);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context), 0);
    CHECK_EQ_U64(SIMULATOR(cuMemAllocAsync)(&theirs, 5000, NULL), 0);
    CHECK_EQ_U64(pool_memory(pool).used, 5012);
    CHECK_EQ_U64(statistics_of(gpu(0), WARP_MEMORY_CUDA_MEMPOOL).live_bytes, 12);
    free_now(ptr);
    CHECK_EQ_U64(pool_memory(pool).used, 5000);
    CHECK_EQ_U64(pool_memory(pool).used_high, 5012);
    CHECK_EQ_U64(statistics_of(gpu(0), WARP_MEMORY_CUDA_MEMPOOL).live_bytes, 0);
    CHECK_EQ_U64(SIMULATOR(cuMemFreeAsync)(theirs, NULL), 0);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_query_memory_of_device(gpu(0), &memory), WARP_SUCCESS);
    CHECK_EQ_U64(memory.used, 0);
    CHECK_EQ_U64(memory.used_high, 5012);
    CHECK_EQ_U64(memory.reserved, 0);
    CHECK_EQ_U64(memory.reserved_high, 32 * MIB);
    CHECK_EQ_U64(memory_left(gpu(0)), left);
    CHECK_EQ_U64(statistics_of(gpu(0), WARP_MEMORY_CUDA_MEMPOOL).peak_bytes, 12);
    /* A smaller block leaves the marks where they are. */
    free_now(plain_alloc(gpu(0), 100));
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(pool_memory(pool).used_high, 5012);
    /* Whether pools are on says nothing of what they hold. */
    enable(gpu(0), 0);
    CHECK_EQ_U64(pool_memory(pool).used_high, 5012);
    CHECK_STATUS(warp_mempool_reset_memory_high(pool), WARP_SUCCESS);
    CHECK_EQ_U64(pool_memory(pool).used_high, 0);
    CHECK_EQ_U64(pool_memory(pool).reserved_high, 0);
    ptr = block_of(gpu(0), 1000, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_STATUS(warp_mempool_reset_memory_high_of_device(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(pool_memory(pool).used_high, 1000);
    CHECK_EQ_U64(pool_memory(pool).reserved_high, 32 * MIB);
    CHECK_STATUS(warp_mempool_trim_of_device(gpu(0), 0), WARP_SUCCESS);
    free_now(ptr);
    CHECK_EQ_PTR(driver_current(), context);
    CHECK_NOTHING_LEFT();
}

/* The limit of one pool is out of memory there, with the limit in the message, and nowhere else. */
PROCESS_TEST(a_pools_own_limit_is_named)
{
    char limit[64];
    warp_mempool *pool;
    void *first, *ptr, *again;
    start_on("h200x2");
    pool = create_with(gpu(0), 64 * MIB, 0, 0);
    CHECK_EQ_U64(pool_info(pool).max_size, 64 * MIB);
    first = alloc_from(gpu(0), pool, 40 * MIB);
    CHECK_STATUS(try_alloc_from(gpu(0), pool, 40 * MIB, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_PTR(ptr, NULL);
    snprintf(limit, sizeof limit, "limit of %llu", (unsigned long long)(64 * MIB));
    CHECK_STR_CONTAINS(warp_error_get_message(), limit);
    CHECK_STR_CONTAINS(warp_error_get_message(), "the created pool");
    CHECK_STR_CONTAINS(warp_error_get_message(), "uses 41943040");
    free_now(plain_alloc(gpu(0), 256 * MIB));
    free_now(first);
    again = alloc_from(gpu(0), pool, 40 * MIB);
    free_now(again);
    release(pool);
    /* A limit that is none. */
    pool = create_with(gpu(0), UINT64_MAX, 0, 0);
    CHECK_EQ_U64(pool_info(pool).max_size, UINT64_MAX);
    free_now(alloc_from(gpu(0), pool, 256 * MIB));
    release(pool);
    CHECK_NOTHING_LEFT();
}

/* OM-01: what pools keep and do not use is given back, also by pools that a program made or wrapped, before anything is out of
 * memory; the message tells of the pool that was asked. */
PROCESS_TEST(every_pool_gives_back_what_it_keeps)
{
    warp_mempool *pool, *wrapped = NULL;
    CUmemoryPool theirs;
    void *ptr, *rest;
    start_on("h200x2,memory=8GiB");
    pool = create_with(gpu(0), 0, UINT64_MAX, 0);
    theirs = foreign_pool(0, 0);
    CHECK_STATUS(warp_mempool_wrap(gpu(0), theirs, &wrapped), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_release_threshold(wrapped, UINT64_MAX), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_release_fraction_of_device(gpu(0), 1), WARP_SUCCESS);
    free_now(alloc_from(gpu(0), pool, 2 * GIB));
    free_now(alloc_from(gpu(0), wrapped, 2 * GIB));
    free_now(plain_alloc(gpu(0), 2 * GIB));
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_device_used)(0), 6 * GIB);
    ptr = block_of(gpu(0), 5 * GIB, WARP_MEMORY_CUDA_DEVICE);
    CHECK_EQ_U64(SIMULATOR(warpsim_device_used)(0), 5 * GIB);
    CHECK_STATUS(try_alloc_from(gpu(0), pool, 4 * GIB, NULL, &rest), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "the created pool");
    CHECK_STATUS(try_alloc_from(gpu(0), wrapped, 4 * GIB, NULL, &rest), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "the wrapped pool");
    CHECK_STATUS(warp_alloc(gpu(0), 4 * GIB, &rest), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "the device's pool");
    free_now(ptr);
    rest = alloc_from(gpu(0), pool, 4 * GIB);
    free_now(rest);
    release(pool);
    release(wrapped);
    CHECK_EQ_U64(SIMULATOR(cuMemPoolDestroy)(theirs), 0);
    CHECK_NOTHING_LEFT();
}

/* ---- access to one pool -------------------------------------------------------------------------------------------- */

static int may_touch(warp_mempool *pool, warp_device *peer)
{
    uint8_t can = 9;
    CHECK_STATUS(warp_mempool_query_access(pool, peer, &can), WARP_SUCCESS);
    return can;
}

PROCESS_TEST(access_to_a_pool_is_told_to_that_pool)
{
    warp_mempool *pool, *own;
    start_on("partial");
    pool = create(gpu(0));
    own = pool_in_use(gpu(0));
    CHECK_EQ_I64(may_touch(pool, gpu(0)), 1);
    CHECK_EQ_I64(may_touch(pool, gpu(1)), 0);
    CHECK_EQ_I64(may_touch(pool, cpu()), 0);
    CHECK_STATUS(warp_mempool_set_access(pool, gpu(1), 1), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_access(pool, gpu(1), 1), WARP_SUCCESS);
    CHECK_EQ_I64(may_touch(pool, gpu(1)), 1);
    CHECK_EQ_I64(may_touch(own, gpu(1)), 0);
    /* Other code grants too. */
    CHECK_EQ_U64(SIMULATOR(warpsim_external_pool_access)(0, 1, 3), 0);
    CHECK_EQ_I64(may_touch(own, gpu(1)), 1);
    CHECK_STATUS(warp_mempool_set_access(own, gpu(1), 0), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_access(own, gpu(1), 0), WARP_SUCCESS);
    CHECK_EQ_I64(may_touch(own, gpu(1)), 0);
    CHECK_EQ_I64(may_touch(pool, gpu(1)), 1);
    /* No peers; one's own; the CPU. */
    CHECK_STATUS(warp_mempool_set_access(pool, gpu(3), 1), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:3\"");
    CHECK_STATUS(warp_mempool_set_access(pool, gpu(3), 0), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_access(pool, gpu(0), 0), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_access(pool, gpu(0), 1), WARP_SUCCESS);
    CHECK_EQ_I64(may_touch(pool, gpu(0)), 1);
    CHECK_STATUS(warp_mempool_set_access(pool, cpu(), 1), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_set_access(pool, cpu(), 0), WARP_SUCCESS);
    /* The link from 0 to 2 works one way only: 0 may touch 2's memory, 2 not 0's. */
    CHECK_STATUS(warp_mempool_set_access(pool, gpu(2), 1), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_mempool_set_access(pool_in_use(gpu(2)), gpu(0), 1), WARP_SUCCESS);
    CHECK_EQ_I64(may_touch(pool_in_use(gpu(2)), gpu(0)), 1);
    release(pool);
}

CHECK_MAIN()
