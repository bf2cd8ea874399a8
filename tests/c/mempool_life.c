/*
 * mempool_life.c: how memory pools begin and end: released while blocks live, while a device uses them, while other threads
 * allocate; in captures; with contexts that die, forks, shutdown and a new start; and with drivers that fail.
 *
 * needs: simulator
 */
#include "mempools.h"

#include "forked.h"

#include <pthread.h>

static void use(warp_device *device, warp_mempool *pool)
{
    CHECK_STATUS(warp_mempool_use(device, pool), WARP_SUCCESS);
}

static void finish(void)
{
    CHECK_EQ_U64(made_pools(), 0);
    CHECK_NOTHING_LEFT();
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(blocks_outlive_the_handle_of_their_pool)
{
    warp_mempool *pool, *next;
    void *ptr;
    start_on("h200x2");
    pool = create(gpu(0));
    ptr = alloc_from(gpu(0), pool, 5000);
    put_pattern(ptr, 5000, 1);
    release(pool);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 1);
    /* The handle is stale at once, the block is as good as before. */
    CHECK_STATUS(warp_mempool_release(pool), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_mempool_trim(pool, 0), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_mempool_use(gpu(0), pool), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_I64(pointer_info(ptr).kind, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_EQ_U64(find_pattern(ptr, 5000, 1), 5000);
    next = create(gpu(0));
    CHECK(next != pool);
    free_now(ptr);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(made_pools(), 1);
    release(next);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 2);
    finish();
}

PROCESS_TEST(a_device_keeps_the_pool_that_it_uses)
{
    warp_mempool *pool, *kept, *next;
    void *ptr, *native;
    start_on("h200x2");
    pool = create(gpu(0));
    native = pool_info(pool).native;
    use(gpu(0), pool);
    release(pool);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 0);
    CHECK_STATUS(warp_mempool_trim(pool, 0), WARP_ERROR_INVALID_HANDLE);
    ptr = plain_alloc(gpu(0), 100);
    CHECK_EQ_PTR(pool_of(ptr), native);
    /* It can still be named, by what the device says, and that is nobody's to release. */
    kept = pool_in_use(gpu(0));
    CHECK(kept != pool);
    CHECK_EQ_PTR(pool_info(kept).native, native);
    CHECK_EQ_I64(pool_info(kept).is_owned, 1);
    CHECK_STATUS(warp_mempool_release(kept), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_mempool_use()");
    CHECK_STATUS(warp_mempool_set_release_threshold(kept, 5), WARP_SUCCESS);
    free_now(alloc_from(gpu(0), kept, 100));
    use(gpu(0), kept);
    CHECK_EQ_PTR(pool_info(pool_in_use(gpu(0))).native, native);
    kept = pool_in_use(gpu(0));
    /* When it uses another one the pool is over. */
    next = create(gpu(0));
    use(gpu(0), next);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 1);
    CHECK_STATUS(warp_mempool_trim(kept, 0), WARP_ERROR_INVALID_HANDLE);
    free_now(ptr);
    use(gpu(0), NULL);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 1);
    CHECK_EQ_U64(made_pools(), 1);
    release(next);
    finish();
}

PROCESS_TEST(a_pool_of_others_stays_theirs)
{
    warp_mempool *pool = NULL, *again = NULL, *own = NULL;
    CUmemoryPool theirs;
    void *ptr;
    start_on("h200x2");
    theirs = foreign_pool(0, 0);
    CHECK_STATUS(warp_mempool_wrap(gpu(0), theirs, &pool), WARP_SUCCESS);
    CHECK_EQ_PTR(driver_current(), NULL);
    CHECK_EQ_U64(live("pool"), 0);
    CHECK_EQ_PTR(pool_info(pool).native, theirs);
    CHECK_EQ_PTR(pool_info(pool).device, gpu(0));
    CHECK_EQ_I64(pool_info(pool).is_owned, 0);
    CHECK_EQ_I64(pool_info(pool).is_device_pool, 0);
    CHECK_EQ_U64(pool_memory(pool).reserved, 0); /* the proof left nothing */
    ptr = alloc_from(gpu(0), pool, 1000);
    CHECK_EQ_PTR(pool_of(ptr), theirs);
    /* Twice is the same pool under a further handle; each is released. */
    CHECK_STATUS(warp_mempool_wrap(gpu(0), theirs, &again), WARP_SUCCESS);
    CHECK(again != pool);
    release(pool);
    CHECK_EQ_PTR(pool_info(again).native, theirs);
    release(again);
    CHECK_STATUS(warp_mempool_release(again), WARP_ERROR_INVALID_HANDLE);
    free_now(ptr);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 0);
    /* The device's own is what it is. */
    CHECK_STATUS(warp_mempool_wrap(gpu(0), driver_pool(0), &own), WARP_SUCCESS);
    CHECK_EQ_PTR(own, pool_in_use(gpu(0)));
    CHECK_STATUS(warp_mempool_release(own), WARP_ERROR_INVALID_ARGUMENT);
    /* One that was created here is destroyed with the last of its handles. */
    pool = create(gpu(0));
    CHECK_STATUS(warp_mempool_wrap(gpu(0), pool_info(pool).native, &again), WARP_SUCCESS);
    release(pool);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 0);
    CHECK_EQ_I64(pool_info(again).is_owned, 1);
    release(again);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 1);
    CHECK_EQ_U64(SIMULATOR(cuMemPoolDestroy)(theirs), 0);
    finish();
}

PROCESS_TEST(a_pool_that_becomes_a_devices_own_is_one_pool)
{
    CUmemoryPool theirs;
    warp_mempool *wrapped = NULL;
    start_on("h200x2");
    theirs = foreign_pool(1, 0);
    /* A second context of the GPU asks for the first time when other code has changed what is current. */
    CHECK_STATUS(warp_mempool_wrap(gpu(1), theirs, &wrapped), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuDeviceSetMemPool)(1, theirs), 0);
    {
        warp_device *second = NULL;
        CUcontext foreign = driver_foreign(1);
        CHECK_STATUS(warp_device_from_context(foreign, NULL, &second), WARP_SUCCESS);
        CHECK_EQ_PTR(pool_info(pool_in_use(second)).native, theirs);
        CHECK_EQ_I64(pool_info(wrapped).is_device_pool, 1);
        /* The handle of the wrap is its caller's, that of the device is not. */
        release(wrapped);
        CHECK_STATUS(warp_mempool_release(pool_in_use(second)), WARP_ERROR_INVALID_ARGUMENT);
        free_now(plain_alloc(second, 100));
    }
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 0);
    CHECK_NOTHING_LEFT();
}

/* Slots of pools that are over are used again, but not while a block names them. */
PROCESS_TEST(many_pools_come_and_go_beside_blocks_that_stay)
{
    void *kept[40];
    int i;
    start_on("h200x2");
    for (i = 0; i < 400; ++i) {
        warp_mempool *pool = create(gpu(i % 2));
        void *ptr = alloc_from(gpu(i % 2), pool, 1000);
        put_pattern(ptr, 1000, (uint64_t)i);
        release(pool);
        if (i % 10 == 0)
            kept[i / 10] = ptr;
        else
            free_now(ptr);
    }
    CHECK_EQ_U64(made_pools(), 0);
    CHECK_EQ_U64(live("pool"), 40);
    for (i = 0; i < 40; ++i) {
        CHECK_EQ_U64(find_pattern(kept[i], 1000, (uint64_t)i * 10), 1000);
        CHECK_EQ_I64(pointer_info(kept[i]).ordinal, 0);
        free_now(kept[i]);
    }
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    finish();
}

/* A device's own pool gets a slot when it is first met, and none that blocks of a pool that is over still name. */
PROCESS_TEST(blocks_of_pools_that_are_over_are_not_taken_for_a_devices_own)
{
    void *kept[20];
    uint8_t can;
    int i, round;
    start_on("h200x2");
    for (i = 0; i < 20; ++i) {
        warp_mempool *pool = create(gpu(1));
        kept[i] = alloc_from(gpu(1), pool, 1000);
        release(pool);
    }
    for (round = 0; round < 2; ++round) {
        for (i = 0; i < 20; ++i) {
            /* Asked twice: a pool that is over stays so, whoever asks. */
            CHECK_STATUS(warp_access_can_pointer(gpu(0), kept[i], &can), WARP_SUCCESS);
            CHECK_EQ_U64(can, 0);
            CHECK_STATUS(warp_access_can_pointer(gpu(0), kept[i], &can), WARP_SUCCESS);
            CHECK_EQ_U64(can, 0);
        }
        free_now(plain_alloc(gpu(0), 100));
    }
    for (i = 0; i < 20; ++i)
        free_now(kept[i]);
    CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
    finish();
}

/* ---- captures ------------------------------------------------------------------------------------------------------ */

PROCESS_TEST(captures_allocate_from_the_pool_in_use)
{
    warp_stream *stream;
    warp_mempool *pool, *named;
    warp_graph *graph;
    CUmemoryPool theirs;
    void *a, *b = NULL;
    uint64_t from;
    start_on("h200x2");
    theirs = foreign_pool(0, 0);
    stream = new_stream(gpu(0), 0);
    pool = create(gpu(0));
    named = create(gpu(0));
    use(gpu(0), pool);
    begin(stream);
    from = calls("cuMemAllocFromPoolAsync");
    a = alloc_on("cuda:0", stream, 1000);
    CHECK_STATUS(try_alloc_from(gpu(0), named, 1000, stream, &b), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuMemAllocFromPoolAsync"), from + 2);
    fill_byte(a, 5, 1000, stream);
    fill_byte(b, 6, 1000, stream);
    /* Pools are made, asked, changed and released meanwhile: by this thread, in any mode, with no harm to the capture. */
    {
        warp_mempool *other = create(gpu(0));
        uint64_t bytes = 1;
        CHECK_STATUS(warp_mempool_set_release_threshold(other, 7), WARP_SUCCESS);
        CHECK_STATUS(warp_mempool_query_release_threshold(other, &bytes), WARP_SUCCESS);
        (void)pool_memory(other);
        CHECK_STATUS(warp_mempool_reset_memory_high(other), WARP_SUCCESS);
        CHECK_STATUS(warp_mempool_trim(other, 0), WARP_SUCCESS);
        CHECK_STATUS(warp_mempool_set_access(other, gpu(1), 1), WARP_SUCCESS);
        use(gpu(0), other);
        use(gpu(0), NULL);
        release(other);
        release(named);
        CHECK_STATUS(warp_mempool_wrap(gpu(0), driver_pool(0), &other), WARP_SUCCESS);
        CHECK_STATUS(warp_mempool_wrap(gpu(0), theirs, &other), WARP_SUCCESS);
        release(other);
    }
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    graph = end(stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(a, 5, 1000, stream));
    CHECK(holds(b, 6, 1000, stream));
    CHECK_EQ_I64(pointer_info(a).rule, WARP_ACCESS_RULE_GRAPH_FIXED);
    release(pool);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    free_now(a);
    free_now(b);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuMemPoolDestroy)(theirs), 0);
    finish();
    check_clean();
}

/* What the driver refuses is refused before, and the capture goes on. */
PROCESS_TEST(a_capture_cannot_allocate_what_could_be_exported)
{
    warp_stream *stream;
    warp_mempool *pool, *wrapped = NULL;
    CUmemoryPool theirs;
    warp_graph *graph;
    uint64_t from;
    void *ptr = NULL, *good;
    start_on("h200x2");
    stream = new_stream(gpu(0), 0);
    pool = create_with(gpu(0), 0, 0, WARP_MEMPOOL_HANDLE_POSIX_FD);
    theirs = foreign_pool(0, 1);
    CHECK_STATUS(warp_mempool_wrap(gpu(0), theirs, &wrapped), WARP_SUCCESS);
    use(gpu(0), pool);
    begin(stream);
    from = calls("cuMemAllocFromPoolAsync");
    CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_UNKNOWN, 1000, &ptr), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "exported");
    CHECK_EQ_U64(calls("cuMemAllocFromPoolAsync"), from);
    /* Of a pool of others only the driver knows. */
    CHECK_STATUS(try_alloc_from(gpu(0), wrapped, 1000, stream, &ptr), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "exported");
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    use(gpu(0), NULL);
    good = alloc_on("cuda:0", stream, 1000);
    fill_byte(good, 9, 1000, stream);
    graph = end(stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(holds(good, 9, 1000, stream));
    free_now(good);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    release(pool);
    release(wrapped);
    CHECK_EQ_U64(SIMULATOR(cuMemPoolDestroy)(theirs), 0);
    finish();
}

/* Other code captures in GLOBAL mode on another thread: the driver would break that for nearly every call on pools. */
PROCESS_TEST(captures_of_others_are_not_broken)
{
    CUstream theirs = NULL;
    CUgraph graph = NULL;
    CUcontext context;
    CUmemoryPool native;
    warp_mempool *pool, *wrapped = NULL;
    int32_t status = 9;
    uint8_t can = 9;
    start_on("h200x2");
    context = context_of(gpu(0));
    free_now(plain_alloc(gpu(0), 10));
    native = foreign_pool(0, 0);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context), 0);
    CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&theirs, 1), 0);
    CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(theirs, 0), 0);
    pool = create_with(gpu(0), 1 << 30, 5, 0);
    free_now(alloc_from(gpu(0), pool, 100));
    use(gpu(0), pool);
    free_now(plain_alloc(gpu(0), 100));
    (void)pool_memory(pool);
    CHECK_EQ_U64(threshold_of(pool), 5);
    CHECK_STATUS(warp_mempool_set_release_fraction(pool, 0.1), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_reset_memory_high(pool), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_trim(pool, 0), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_access(pool, gpu(1), 1), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_query_access(pool, gpu(1), &can), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_wrap(gpu(0), native, &wrapped), WARP_SUCCESS);
    (void)pool_in_use(gpu(1));
    CHECK_STATUS(warp_mempool_set_enabled(gpu(0), 0), WARP_SUCCESS);
    use(gpu(0), NULL);
    release(pool);
    release(wrapped);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 1);
    CHECK_EQ_U64(SIMULATOR(cuStreamIsCapturing)(theirs, &status), 0);
    CHECK_EQ_I64(status, 1);
    CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(theirs, &graph), 0);
    CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(graph), 0);
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(theirs), 0);
    CHECK_EQ_U64(SIMULATOR(cuMemPoolDestroy)(native), 0);
    CHECK_EQ_PTR(driver_current(), context);
    CHECK_NOTHING_LEFT();
}

/* ---- the library's lives ------------------------------------------------------------------------------------------- */

PROCESS_TEST(shutdown_ends_pools_and_a_new_life_begins_with_the_devices_own)
{
    warp_mempool *pool, *used, *own;
    void *ptr, *other;
    start_on("h200x2");
    own = pool_in_use(gpu(0));
    pool = create(gpu(0));
    used = create(gpu(0));
    use(gpu(0), used);
    ptr = alloc_from(gpu(0), pool, 3000);
    other = plain_alloc(gpu(0), 3000);
    CHECK_EQ_PTR(pool_of(other), pool_info(used).native);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 2);
    CHECK_STATUS(warp_mempool_trim(pool, 0), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_mempool_release(pool), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_U64(made_pools(), 0);
    CHECK_EQ_U64(live("pool"), 2);
    free_now(other);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_trim(own, 0), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_mempool_use(gpu(0), used), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(pool_info(pool_in_use(gpu(0))).native, driver_pool(0));
    CHECK_EQ_I64(pool_info(pool_in_use(gpu(0))).is_device_pool, 1);
    CHECK(pool_in_use(gpu(0)) != own);
    other = plain_alloc(gpu(0), 100);
    CHECK_EQ_PTR(pool_of(other), driver_pool(0));
    free_now(other);
    free_now(ptr);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    finish();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 2);
}

/* What was a device's own when the library was shut down is its owner's again, and a later pool may have its name. */
PROCESS_TEST(a_former_own_pool_is_forgotten_by_the_next_life)
{
    CUmemoryPool first, again = NULL;
    warp_mempool *pool = NULL;
    void *kept;
    uint8_t can = 9;
    int tries, on;
    for (on = 0; on < 2; ++on) {
        setenv("WARPSIM_TOPOLOGY", "h200x2,peer.0.1=broken", 1);
        first = foreign_pool(0, 0);
        CHECK_EQ_U64(SIMULATOR(cuDeviceSetMemPool)(0, first), 0);
        REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        kept = plain_alloc(gpu(0), 100);
        CHECK_EQ_PTR(pool_info(pool_in_use(gpu(0))).native, first);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuMemPoolDestroy)(first), 0);
        for (tries = 0; tries < 8 && again != first; ++tries)
            again = foreign_pool(on, 0);
        REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_access_can_pointer(gpu(1), kept, &can), WARP_SUCCESS);
        CHECK_EQ_U64(can, 0);
        CHECK(pool_info(pool_in_use(gpu(0))).native != first);
        CHECK_STATUS(warp_mempool_wrap(gpu(on), again, &pool), WARP_SUCCESS);
        CHECK_EQ_I64(pool_info(pool).is_device_pool, 0);
        CHECK_EQ_PTR(pool_info(pool).device, gpu(on));
        release(pool);
        /* Nor is it in the way when everything between the two is closed. */
        CHECK_STATUS(warp_peer_access_verify(gpu(1), gpu(0), &can), WARP_SUCCESS);
        CHECK_EQ_U64(can, 0);
        free_now(kept);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
}

/* Pools belong to a GPU and not to a context: when that dies, what the device was told to use is what the next one uses. */
PROCESS_TEST(pools_outlive_contexts)
{
    warp_mempool *pool, *own;
    warp_device *lost;
    void *ptr, *next;
    start_on("h200x2");
    lost = gpu(0);
    own = pool_in_use(lost);
    pool = create(lost);
    use(lost, pool);
    ptr = plain_alloc(lost, 1000);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    CHECK_STATUS(warp_mempool_get(lost, &own), WARP_SUCCESS); /* nobody has noticed */
    CHECK(gpu(0) != lost);
    CHECK_STATUS(warp_mempool_use(lost, NULL), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_mempool_get(lost, &own), WARP_ERROR_DEVICE_LOST);
    CHECK_EQ_PTR(pool_in_use(gpu(0)), pool);
    CHECK_EQ_PTR(pool_info(pool).device, gpu(0));
    CHECK_EQ_U64(pool_memory(pool).used, 1000); /* its blocks are there */
    next = plain_alloc(gpu(0), 500);
    CHECK_EQ_PTR(pool_of(next), pool_info(pool).native);
    free_now(next);
    free_now(ptr);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    use(gpu(0), NULL);
    CHECK_EQ_PTR(pool_info(pool_in_use(gpu(0))).native, driver_pool(0));
    release(pool);
    finish();
}

PROCESS_TEST(a_forked_child_only_forgets)
{
    warp_mempool *pool, *used;
    void *ptr;
    pid_t child;
    start_on("h200x2");
    pool = create(gpu(0));
    used = create(gpu(0));
    use(gpu(0), used);
    ptr = alloc_from(gpu(0), pool, 100);
    fflush(stdout);
    child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        warp_mempool *other = (warp_mempool *)1;
        warp_mempool_memory_info memory = {.struct_size = sizeof memory};
        void *block = (void *)1;
        uint64_t bytes;
        uint8_t can;
        CHECK_STATUS(warp_mempool_create(gpu(0), NULL, &other), WARP_ERROR_FORKED);
        CHECK_EQ_PTR(other, NULL);
        CHECK_STATUS(warp_mempool_wrap(gpu(0), (void *)0x100, &other), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_mempool_get(gpu(0), &other), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_mempool_use(gpu(0), NULL), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_mempool_query_memory(pool, &memory), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_mempool_trim(pool, 0), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_mempool_query_release_threshold_of_device(gpu(0), &bytes), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_mempool_query_access(pool, gpu(1), &can), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_mempool_set_access(pool, gpu(1), 1), WARP_ERROR_FORKED);
        CHECK_STATUS(try_alloc_from(gpu(0), pool, 100, NULL, &block), WARP_ERROR_FORKED);
        CHECK_EQ_I64(pool_info(pool).is_owned, 1);
        CHECK_STATUS(warp_mempool_set_enabled(gpu(0), 0), WARP_SUCCESS);
        free_now(ptr);
        release(pool);
        CHECK_STATUS(warp_mempool_release(pool), WARP_ERROR_INVALID_HANDLE);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        exit(check_failure_count() == 0 ? 0 : 1);
    }
    CHECK_EQ_I64(process_wait(child), 0);
    CHECK_EQ_I64(is_enabled(gpu(0)), 1);
    CHECK_EQ_U64(pool_memory(pool).used, 100);
    free_now(ptr);
    release(pool);
    use(gpu(0), NULL);
    release(used);
    finish();
}

/* ---- threads ------------------------------------------------------------------------------------------------------- */

static int stop;
static warp_device *first;

static void *allocate_from_the_device(void *argument)
{
    uint64_t *count = (uint64_t *)argument;
    warp_stream *stream = new_stream(first, 0);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        warp_alloc_options options = options_of(WARP_MEMORY_CUDA_MEMPOOL, stream);
        void *ptr = NULL;
        CHECK_STATUS(warp_alloc_with(first, 1000, &options, &ptr), WARP_SUCCESS);
        free_now(ptr);
        __atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
    }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    return NULL;
}

/* Pools are used, changed and released while other threads allocate: no allocation fails, and none meets a pool that is over. */
PROCESS_TEST(the_pool_in_use_changes_under_threads_that_allocate)
{
    pthread_t threads[4];
    uint64_t counts[4] = {0};
    int i;
    start_on("h200x2");
    first = gpu(0);
    (void)pool_in_use(first);
    for (i = 0; i < 4; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, allocate_from_the_device, &counts[i]) == 0);
    /* On a busy machine a thread may come late. */
    for (i = 0; i < 4; ++i)
        while (__atomic_load_n(&counts[i], __ATOMIC_RELAXED) == 0)
            usleep(100);
    for (i = 0; i < 300; ++i) {
        warp_mempool *pool = create(first);
        use(first, pool);
        free_now(alloc_from(first, pool, 10));
        if (i % 2 == 0)
            release(pool);
        if (i % 3 == 0)
            use(first, NULL);
        if (i % 2 != 0)
            release(pool);
    }
    use(first, NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 4; ++i)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 300);
    finish();
}

static warp_mempool *shared;

static void *allocate_until_it_is_stale(void *argument)
{
    warp_status status;
    do {
        void *ptr = NULL;
        status = try_alloc_from(first, shared, 1000, NULL, &ptr);
        if (status == WARP_SUCCESS)
            free_now(ptr);
    } while (status == WARP_SUCCESS);
    CHECK_STATUS(status, WARP_ERROR_INVALID_HANDLE);
    return argument;
}

static void *release_shared(void *argument)
{
    warp_status status = warp_mempool_release(shared);
    CHECK(status == WARP_SUCCESS || status == WARP_ERROR_INVALID_HANDLE);
    if (status == WARP_SUCCESS)
        __atomic_add_fetch((int *)argument, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

PROCESS_TEST(of_many_releases_one_counts)
{
    int round;
    start_on("h200x2");
    first = gpu(0);
    for (round = 0; round < (check_under("valgrind") ? 10 : 50); ++round) {
        pthread_t users[3], releasers[3];
        int released = 0, i;
        shared = create(first);
        for (i = 0; i < 3; ++i)
            REQUIRE(pthread_create(&users[i], NULL, allocate_until_it_is_stale, NULL) == 0);
        for (i = 0; i < 3; ++i)
            REQUIRE(pthread_create(&releasers[i], NULL, release_shared, &released) == 0);
        for (i = 0; i < 3; ++i) {
            REQUIRE(pthread_join(users[i], NULL) == 0);
            REQUIRE(pthread_join(releasers[i], NULL) == 0);
        }
        CHECK_EQ_I64(released, 1);
        CHECK_EQ_U64(calls("cuMemPoolDestroy"), (uint64_t)round + 1);
    }
    finish();
}

/* When the release of a pool of other code returns, or a device stops using it, its owner may destroy it: no call meets a pool
 * that is gone. */
PROCESS_TEST(a_wrapped_pool_is_its_owners_again_when_the_release_returns)
{
    pthread_t users[3], others[2];
    uint64_t counts[2] = {0};
    int round, i;
    start_on("h200x2");
    first = gpu(0);
    (void)pool_in_use(first);
    for (i = 0; i < 2; ++i)
        REQUIRE(pthread_create(&others[i], NULL, allocate_from_the_device, &counts[i]) == 0);
    for (round = 0; round < (check_under("valgrind") ? 10 : 50); ++round) {
        CUmemoryPool theirs = foreign_pool(0, 0);
        CHECK_STATUS(warp_mempool_wrap(first, theirs, &shared), WARP_SUCCESS);
        for (i = 0; i < 3; ++i)
            REQUIRE(pthread_create(&users[i], NULL, allocate_until_it_is_stale, NULL) == 0);
        use(first, shared);
        release(shared);
        use(first, NULL);
        CHECK_EQ_U64(SIMULATOR(cuMemPoolDestroy)(theirs), 0);
        for (i = 0; i < 3; ++i)
            REQUIRE(pthread_join(users[i], NULL) == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 2; ++i)
        REQUIRE(pthread_join(others[i], NULL) == 0);
    finish();
}

static void *begin_alike(void *argument)
{
    *(warp_mempool **)argument = pool_in_use(first);
    return NULL;
}

PROCESS_TEST(the_first_uses_of_threads_agree)
{
    warp_mempool *seen[8];
    pthread_t threads[8];
    int i, g;
    start_on("gpux10");
    for (g = 0; g < 10; ++g) {
        first = gpu(g);
        for (i = 0; i < 8; ++i)
            REQUIRE(pthread_create(&threads[i], NULL, begin_alike, &seen[i]) == 0);
        for (i = 0; i < 8; ++i)
            REQUIRE(pthread_join(threads[i], NULL) == 0);
        for (i = 1; i < 8; ++i)
            CHECK_EQ_PTR(seen[i], seen[0]);
    }
}

/* ---- drivers that fail --------------------------------------------------------------------------------------------- */

static const char *const entries[] = {"cuDeviceGetMemPool",      "cuMemPoolCreate",         "cuMemPoolDestroy",
                                      "cuMemPoolTrimTo",         "cuMemPoolGetAttribute",   "cuMemPoolSetAttribute",
                                      "cuMemPoolGetAccess",      "cuMemPoolSetAccess",      "cuMemAllocFromPoolAsync",
                                      "cuMemFreeAsync",          "cuPointerGetAttributes",  "cuStreamCreateWithPriority",
                                      "cuStreamSynchronize",     "cuStreamDestroy_v2",      "cuThreadExchangeStreamCaptureMode",
                                      "cuDeviceCanAccessPeer"};

/* Everything that is done with pools, going on after failures. How many calls failed. */
static int everything(warp_device *device, warp_device *peer, CUmemoryPool theirs)
{
    warp_mempool_options options = {.struct_size = sizeof options, .release_threshold = 4096};
    warp_mempool_memory_info memory = {.struct_size = sizeof memory};
    warp_mempool *pool = NULL, *wrapped = NULL, *own = NULL;
    void *ptr = NULL;
    uint64_t bytes;
    uint8_t can;
    int failed = 0, pass;
#define TELL(call)                                              \
    do {                                                        \
        if ((call) != WARP_SUCCESS) {                           \
            ++failed;                                           \
            CHECK(warp_error_get_message()[0] != '\0');         \
        }                                                       \
    } while (0)
    TELL(warp_mempool_get(device, &own));
    TELL(warp_mempool_create(device, &options, &pool));
    TELL(warp_mempool_wrap(device, theirs, &wrapped));
    for (pass = 0; pass < 2; ++pass) {
        warp_mempool *one = pass == 0 ? pool : wrapped;
        if (one == NULL)
            continue;
        TELL(warp_mempool_use(device, one));
        TELL(try_alloc_from(device, NULL, 1000, NULL, &ptr));
        if (ptr != NULL && warp_free(ptr) != WARP_SUCCESS) {
            ++failed;
            free_now(ptr); /* the next time it goes */
        }
        ptr = NULL;
        TELL(warp_mempool_query_memory(one, &memory));
        TELL(warp_mempool_reset_memory_high(one));
        TELL(warp_mempool_set_release_fraction(one, 0.5));
        TELL(warp_mempool_query_release_threshold(one, &bytes));
        TELL(warp_mempool_trim(one, 0));
        TELL(warp_mempool_set_access(one, peer, 1));
        TELL(warp_mempool_query_access(one, peer, &can));
    }
    TELL(warp_mempool_use(device, NULL));
    if (warp_mempool_use(device, NULL) != WARP_SUCCESS)
        ++failed;
    if (pool != NULL)
        TELL(warp_mempool_release(pool));
    if (wrapped != NULL)
        TELL(warp_mempool_release(wrapped));
    return failed;
}

PROCESS_TEST(every_call_may_fail_once)
{
    static const uint32_t codes[] = {1, 2, 801, 999};
    CUmemoryPool theirs;
    size_t e, c;
    start_on("h200x2");
    theirs = foreign_pool(0, 0);
    CHECK_EQ_I64(everything(gpu(0), gpu(1), theirs), 0);
    for (e = 0; e < sizeof entries / sizeof *entries; ++e)
        for (c = 0; c < sizeof codes / sizeof *codes; ++c) {
            uint64_t nth, times;
            uint64_t before = calls(entries[e]);
            CHECK_EQ_I64(everything(gpu(0), gpu(1), theirs), 0);
            times = calls(entries[e]) - before;
            for (nth = 1; nth <= times; ++nth) {
                size_t pools = made_pools();
                fail(entries[e], nth, codes[c]);
                (void)everything(gpu(0), gpu(1), theirs);
                clear();
                CHECK_EQ_PTR(driver_current(), NULL);
                /* A pool is left where the driver would not destroy it, or not without harm to a capture. */
                if (strcmp(entries[e], "cuMemPoolDestroy") == 0)
                    CHECK_EQ_U64(made_pools(), pools + 1);
                else if (strcmp(entries[e], "cuThreadExchangeStreamCaptureMode") == 0)
                    CHECK(made_pools() <= pools + 1);
                else
                    CHECK_EQ_U64(made_pools(), pools);
                CHECK_EQ_PTR(pool_info(pool_in_use(gpu(0))).native, driver_pool(0));
                if (check_failure_count() != 0) {
                    printf("\n    after call %d of %s failed with %u", (int)nth, entries[e], codes[c]);
                    return;
                }
            }
        }
    CHECK_EQ_I64(everything(gpu(0), gpu(1), theirs), 0);
    CHECK_NOTHING_LEFT();
}

/* The first question what a device allocates from may fail, and is asked again. */
/* What is refused once is tried again: nobody else knows of the stream and the byte that proved the pool. */
PROCESS_TEST(what_a_wrap_takes_it_gives_back)
{
    static const char *const entries[] = {"cuStreamDestroy_v2", "cuMemFreeAsync", "cuPointerGetAttributes", "cuStreamSynchronize"};
    warp_mempool *pool = NULL;
    size_t i, streams;
    start_on("h200x2");
    free_now(plain_alloc(gpu(0), 100));
    streams = live("stream");
    for (i = 0; i < sizeof entries / sizeof *entries; ++i) {
        CUmemoryPool theirs = foreign_pool(0, 0);
        SIMULATOR(warpsim_fail)(entries[i], 1, 999);
        if (warp_mempool_wrap(gpu(0), theirs, &pool) == WARP_SUCCESS)
            release(pool);
        SIMULATOR(warpsim_fail_clear)();
        CHECK_EQ_U64(live("stream"), streams);
        CHECK_EQ_U64(live("pool"), 0);
        CHECK_EQ_U64(SIMULATOR(cuMemPoolDestroy)(theirs), 0);
    }
    finish();
}

PROCESS_TEST(a_first_use_that_fails_is_none)
{
    warp_mempool *pool = (warp_mempool *)1;
    void *ptr = (void *)1;
    start_on("h200x2");
    fail("cuDeviceGetMemPool", 1, 999);
    CHECK_STATUS(warp_mempool_get(gpu(0), &pool), WARP_ERROR_DRIVER);
    CHECK_EQ_PTR(pool, NULL);
    fail("cuDeviceGetMemPool", 1, 999);
    CHECK_STATUS(warp_alloc(gpu(0), 100, &ptr), WARP_ERROR_DRIVER);
    CHECK_EQ_PTR(ptr, NULL);
    free_now(plain_alloc(gpu(0), 100));
    CHECK_EQ_PTR(pool_info(pool_in_use(gpu(0))).native, driver_pool(0));
    finish();
}

/* Other code frees nothing of ours, and a pool that its owner destroyed is an error and no crash. */
PROCESS_TEST(a_wrapped_pool_that_its_owner_destroyed_is_an_error)
{
    warp_mempool *pool = NULL;
    CUmemoryPool theirs;
    void *ptr = (void *)1, *kept;
    start_on("h200x2");
    theirs = foreign_pool(0, 0);
    CHECK_STATUS(warp_mempool_wrap(gpu(0), theirs, &pool), WARP_SUCCESS);
    kept = alloc_from(gpu(0), pool, 100);
    CHECK_EQ_U64(SIMULATOR(cuMemPoolDestroy)(theirs), 0);
    CHECK_STATUS(try_alloc_from(gpu(0), pool, 100, NULL, &ptr), WARP_ERROR_DRIVER);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STATUS(warp_mempool_trim(pool, 0), WARP_ERROR_DRIVER);
    free_now(kept);
    release(pool);
    finish();
}

CHECK_MAIN()
