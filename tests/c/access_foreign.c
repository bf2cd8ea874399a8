/*
 * access_foreign.c: memory that the library did not allocate: of other contexts, pools, graphs and places, as the driver knows it
 * when it is asked. Cases PA-03 and PA-04, and what the reference's section 13.2 calls its weaknesses.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "access.h"

#include "captures.h"

uint32_t cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool, uint32_t type, uint64_t flags);
uint32_t cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle, uint32_t type, uint64_t flags);
uint32_t cuMemPoolExportPointer(void *data, uint64_t ptr);
uint32_t cuMemPoolImportPointer(uint64_t *out, CUmemoryPool pool, void *data);

#define FD 1

static warp_device *registered(CUcontext context)
{
    warp_device *device = NULL;
    CHECK_STATUS(warp_device_from_context(context, NULL, &device), WARP_SUCCESS);
    return device;
}

/* ---- Several contexts of one GPU --------------------------------------------------------------------------------- */

PROCESS_TEST(a_home_that_was_removed_is_not_told_by_a_stale_handle)
{
    CUcontext context;
    warp_device *second;
    warp_launch_argument argument = {.name = "a", .kind = WARP_LAUNCH_POINTER};
    warp_launch_report report = {.struct_size = sizeof report};
    void *block;
    start_on("h200x2");
    context = driver_foreign(0);
    second = registered(context);
    block = block_of(second, 64, WARP_MEMORY_CUDA_DEVICE);
    argument.value = block;
    CHECK_EQ_PTR(pointer_access(gpu(1), block).device, second);
    CHECK_STATUS(warp_launch_check(gpu(1), "k", &argument, 1, sizeof argument, WARP_LAUNCH_CHECKED, &report),
                 WARP_ERROR_ACCESS_DENIED);
    CHECK_EQ_PTR(report.device, second);
    CHECK_STATUS(warp_device_remove(second), WARP_SUCCESS);
    CHECK_EQ_PTR(pointer_access(gpu(1), block).device, NULL);
    CHECK_EQ_I64(pointer_access(gpu(1), block).reason, WARP_ACCESS_REASON_NO_PEER_ACCESS);
    CHECK_STATUS(warp_launch_check(gpu(1), "k", &argument, 1, sizeof argument, WARP_LAUNCH_CHECKED, &report),
                 WARP_ERROR_ACCESS_DENIED);
    CHECK_EQ_PTR(report.device, NULL);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

PROCESS_TEST(memory_of_another_context_of_the_gpu_is_accessible)
{
    CUcontext context;
    warp_device *second;
    void *theirs[3], *ours[3], *mapping;
    int i, known;
    start_on("h200x2");
    context_of(gpu(0));
    context = driver_foreign(0);
    theirs[0] = foreign_plain(context, 64);
    theirs[1] = foreign_pooled(context, NULL, 64);
    theirs[2] = foreign_managed(context, 64);
    for (i = 0; i < 3; ++i)
        ours[i] = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE + i);
    /* Not registered, its memory is taken for the GPU's own. */
    for (i = 0; i < 3; ++i)
        EXPECT_POINTER(gpu(0), theirs[i], SAME_DEVICE);
    second = registered(context);
    CHECK_EQ_STR(alias_of(second), "cuda:0.0");
    for (known = 0; known < 3; ++known) {
        EXPECT_POINTER(gpu(0), theirs[0], SAME_GPU);
        EXPECT_POINTER(second, theirs[0], SAME_DEVICE);
        for (i = 0; i < 3; ++i) {
            EXPECT_POINTER(second, ours[i], SAME_GPU);
            EXPECT_POINTER(gpu(0), ours[i], SAME_DEVICE);
            CHECK_EQ_I64(can_pointer(gpu(0), theirs[i]), 1);
            CHECK_EQ_I64(can_pointer(second, theirs[i]), 1);
        }
        CHECK_EQ_I64(can_device(gpu(0), second), 1);
        CHECK_EQ_I64(can_device(second, gpu(0)), 1);
        /* Strict mode wants the launch device itself, as the reference does. */
        {
            warp_launch_argument argument = {.name = "a", .value = theirs[0], .kind = WARP_LAUNCH_POINTER};
            CHECK_STATUS(check_launch(gpu(0), &argument, 1, WARP_LAUNCH_STRICT), WARP_ERROR_ACCESS_DENIED);
            CHECK_STATUS(check_launch(second, &argument, 1, WARP_LAUNCH_STRICT), WARP_SUCCESS);
        }
        turn(POOL, gpu(0), gpu(1), known & 1);
    }
    /* A mapping is for the GPU, in all its contexts. */
    mapping = mapping_of(0);
    EXPECT_POINTER(gpu(0), mapping, NOT_MAPPED);
    EXPECT_POINTER(second, mapping, NOT_MAPPED);
    map_for(mapping, 0, 3);
    EXPECT_POINTER(gpu(0), mapping, MAPPED);
    EXPECT_POINTER(second, mapping, MAPPED);
    unmap(mapping);
    /* The library's memory in the second context, and the first. */
    {
        void *block = block_of(second, 64, WARP_MEMORY_CUDA_DEVICE);
        EXPECT_POINTER(gpu(0), block, SAME_GPU);
        EXPECT_POINTER(second, block, SAME_DEVICE);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    }
    for (i = 0; i < 3; ++i)
        CHECK_STATUS(warp_free(ours[i]), WARP_SUCCESS);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(what_is_enabled_in_one_context_of_a_gpu_serves_its_others)
{
    CUcontext context;
    warp_device *second;
    void *plain;
    start_on("h200x2");
    plain = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    context = driver_foreign(1);
    second = registered(context);
    context_of(gpu(1));
    EXPECT_POINTER(gpu(1), plain, NO_PEER_ACCESS);
    EXPECT_POINTER(second, plain, NO_PEER_ACCESS);
    turn(PEER, gpu(0), second, 1);
    EXPECT_POINTER(gpu(1), plain, PEER_ACCESS);
    EXPECT_POINTER(second, plain, PEER_ACCESS);
    CHECK_STATUS(warp_mempool_set_enabled(gpu(0), 0), WARP_SUCCESS);
    CHECK_EQ_I64(can_device(second, gpu(0)), 1);
    CHECK_EQ_I64(can_device(gpu(1), gpu(0)), 1);
    /* In a capture on the first context as well. */
    {
        warp_stream *stream = new_stream(gpu(1), 0);
        begin(stream);
        EXPECT_POINTER(gpu(1), plain, PEER_ACCESS);
        turn(PEER, gpu(0), second, 0);
        EXPECT_POINTER(gpu(1), plain, PEER_ACCESS);
        CHECK_EQ_I64(can_device(gpu(1), gpu(0)), 1);
        CHECK_STATUS(warp_graph_release(end(stream)), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    EXPECT_POINTER(gpu(1), plain, NO_PEER_ACCESS);
    turn(PEER, gpu(0), gpu(1), 1);
    EXPECT_POINTER(second, plain, PEER_ACCESS);
    turn(PEER, gpu(0), gpu(1), 0);
    EXPECT_POINTER(second, plain, NO_PEER_ACCESS);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_context_that_is_gone_is_no_matter_for_the_gpus_others)
{
    CUcontext context;
    warp_device *second;
    void *plain, *theirs;
    uint8_t out = 9;
    start_on("h200x2");
    plain = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    context_of(gpu(1));
    context = driver_foreign(1);
    second = registered(context);
    EXPECT_POINTER(gpu(1), plain, NO_PEER_ACCESS);
    theirs = foreign_plain(context_of(gpu(0)), 64);
    DRIVER(cuCtxDestroy_v2, context);
    /* Nobody has noticed yet. */
    EXPECT_POINTER(gpu(1), plain, NO_PEER_ACCESS);
    EXPECT_POINTER(gpu(1), theirs, NO_PEER_ACCESS);
    CHECK_STATUS(warp_mempool_set_enabled(gpu(0), 0), WARP_SUCCESS);
    CHECK_EQ_I64(can_device(gpu(1), gpu(0)), 0);
    turn(PEER, gpu(0), gpu(1), 1);
    EXPECT_POINTER(gpu(1), plain, PEER_ACCESS);
    CHECK_EQ_I64(can_device(gpu(1), gpu(0)), 1);
    CHECK_STATUS(warp_access_can_pointer(second, plain, &out), WARP_ERROR_DEVICE_LOST);
    CHECK_EQ_U64(out, 0);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(peer_access_to_one_context_does_not_lead_to_another)
{
    /* Memory of a context that is no device looks as that of another process does: peer access to the GPU's own context is
     * enabled, and the memory is not reached. Another process is not to be had on a simulated machine. */
    CUcontext context;
    warp_device *second;
    void *theirs;
    warp_launch_argument argument = {.name = "a", .kind = WARP_LAUNCH_POINTER};
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    context = driver_foreign(0);
    theirs = foreign_plain(context, 64);
    argument.value = theirs;
    EXPECT_POINTER(gpu(1), theirs, NO_PEER_ACCESS);
    turn(PEER, gpu(0), gpu(1), 1);
    EXPECT_POINTER(gpu(1), theirs, OTHER_PROCESS);
    CHECK_STATUS(check_launch(gpu(1), &argument, 1, WARP_LAUNCH_CHECKED), WARP_ERROR_ACCESS_DENIED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "another process");
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_device_from_context");
    second = registered(context);
    EXPECT_POINTER(gpu(1), theirs, NO_PEER_ACCESS);
    turn(PEER, second, gpu(1), 1);
    EXPECT_POINTER(gpu(1), theirs, PEER_ACCESS);
    turn(PEER, gpu(0), gpu(1), 0);
    EXPECT_POINTER(gpu(1), theirs, PEER_ACCESS);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_refusal_is_told_also_when_there_is_no_memory_to_ask_about)
{
    void *theirs;
    start_on("h200x2");
    context_of(gpu(1));
    theirs = foreign_plain(context_of(gpu(0)), 64);
    SIMULATOR(warpsim_out_of_memory_at_size)(1);
    EXPECT_POINTER(gpu(1), theirs, NO_PEER_ACCESS);
    SIMULATOR(warpsim_fail_clear)();
    EXPECT_POINTER(gpu(1), theirs, NO_PEER_ACCESS);
}

/* ---- Pools ------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(each_pool_has_its_own_access)
{
    enum { DEVICES, CREATED, WRAPPED, FOREIGN, POOLS };
    CUmemoryPool native[POOLS] = {NULL};
    warp_mempool *created = NULL, *wrapped = NULL;
    void *blocks[POOLS];
    int i, given;
    start_on("h200x2");
    context_of(gpu(0));
    CHECK_STATUS(warp_mempool_create(gpu(0), NULL, &created), WARP_SUCCESS);
    native[WRAPPED] = foreign_pool(0, 0);
    native[FOREIGN] = foreign_pool(0, 0);
    CHECK_STATUS(warp_mempool_wrap(gpu(0), native[WRAPPED], &wrapped), WARP_SUCCESS);
    {
        warp_mempool_info info = {.struct_size = sizeof info};
        CHECK_STATUS(warp_mempool_get_info(created, &info), WARP_SUCCESS);
        native[CREATED] = info.native;
        DRIVER(cuDeviceGetMemPool, &native[DEVICES], 0);
    }
    {
        warp_alloc_options options = options_of(0, NULL);
        CHECK_STATUS(warp_alloc_with(gpu(0), 64, &options, &blocks[DEVICES]), WARP_SUCCESS);
        options.mempool = created;
        CHECK_STATUS(warp_alloc_with(gpu(0), 64, &options, &blocks[CREATED]), WARP_SUCCESS);
        options.mempool = wrapped;
        CHECK_STATUS(warp_alloc_with(gpu(0), 64, &options, &blocks[WRAPPED]), WARP_SUCCESS);
        blocks[FOREIGN] = foreign_pooled(context_of(gpu(0)), native[FOREIGN], 64);
    }
    for (given = 0; given < 1 << POOLS; ++given) {
        for (i = 0; i < POOLS; ++i)
            grant_pool(native[i], 1, given >> i & 1 ? 3 : 0);
        for (i = 0; i < POOLS; ++i) {
            expect_pointer_at(gpu(1), blocks[i], EITHER(given >> i & 1, POOL_ACCESS, NO_POOL_ACCESS), "pool", __LINE__);
            CHECK_EQ_I64(can_pointer(gpu(0), blocks[i]), 1);
        }
        CHECK_EQ_I64(can_device(gpu(1), gpu(0)), given & 1);
    }
    /* Another pool is used from now on; what the first one gave is judged by the first one. */
    grant_pool(native[DEVICES], 1, 3);
    grant_pool(native[CREATED], 1, 0);
    CHECK_STATUS(warp_mempool_use(gpu(0), created), WARP_SUCCESS);
    EXPECT_POINTER(gpu(1), blocks[DEVICES], POOL_ACCESS);
    EXPECT_POINTER(gpu(1), blocks[CREATED], NO_POOL_ACCESS);
    CHECK_EQ_I64(can_device(gpu(1), gpu(0)), 0);
    /* A handle that was released is no matter for the blocks. */
    CHECK_STATUS(warp_mempool_use(gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_access(created, gpu(1), 1), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_release(created), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_release(wrapped), WARP_SUCCESS);
    CHECK_EQ_I64(can_pointer(gpu(0), blocks[CREATED]), 1);
    for (i = 0; i < FOREIGN; ++i)
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(memory_whose_pool_was_destroyed_is_asked_about_without_harm)
{
    CUmemoryPool pool;
    void *block;
    warp_access_info info;
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    pool = foreign_pool(0, 0);
    grant_pool(pool, 1, 3);
    block = foreign_pooled(context_of(gpu(0)), pool, 64);
    EXPECT_POINTER(gpu(1), block, POOL_ACCESS);
    DRIVER(cuMemPoolDestroy, pool);
    /* It may be that the driver still tells, and that it does not. */
    info = pointer_access(gpu(1), block);
    CHECK(info.reason == WARP_ACCESS_REASON_POOL_ACCESS || info.access == UNVERIFIED);
    EXPECT_POINTER(gpu(0), block, SAME_DEVICE);
    EXPECT_POINTER(cpu(), block, DEVICE_MEMORY);
}

PROCESS_TEST(pools_of_the_host_and_of_managed_memory)
{
    struct pool_properties host = {.kind = 1, .location = {2, 0}}, managed = {.kind = 2, .location = {1, 0}};
    CUmemoryPool pools[2] = {NULL, NULL};
    void *on_host, *shared;
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    DRIVER(cuMemPoolCreate, &pools[0], &host);
    on_host = foreign_pooled(context_of(gpu(0)), pools[0], 64);
    CHECK_EQ_I64(pointer_info(on_host).rule, WARP_ACCESS_RULE_POOL);
    EXPECT_POINTER(cpu(), on_host, SAME_DEVICE);
    EXPECT_POINTER(gpu(0), on_host, NO_POOL_ACCESS);
    EXPECT_POINTER(gpu(1), on_host, NO_POOL_ACCESS);
    grant_pool(pools[0], 1, 3);
    EXPECT_POINTER(gpu(0), on_host, NO_POOL_ACCESS);
    EXPECT_POINTER(gpu(1), on_host, POOL_ACCESS);
    CHECK_EQ_PTR(pointer_access(gpu(1), on_host).device, cpu());
    DRIVER(cuMemPoolCreate, &pools[1], &managed);
    shared = foreign_pooled(context_of(gpu(0)), pools[1], 64);
    EXPECT_POINTER(cpu(), shared, MANAGED_CONCURRENT);
    EXPECT_POINTER(gpu(0), shared, SAME_DEVICE);
    EXPECT_POINTER(gpu(1), shared, MANAGED_ON_BOTH);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_pool_of_the_host_and_a_gpu_that_reaches_pageable_memory)
{
    struct pool_properties host = {.kind = 1, .location = {2, 0}};
    CUmemoryPool pool = NULL;
    void *block;
    start_on("h200x2,pageable=1");
    context_of(gpu(0));
    DRIVER(cuMemPoolCreate, &pool, &host);
    block = foreign_pooled(context_of(gpu(0)), pool, 64);
    EXPECT_POINTER(gpu(0), block, PAGEABLE_ACCESS);
    grant_pool(pool, 0, 3);
    EXPECT_POINTER(gpu(0), block, POOL_ACCESS);
}

PROCESS_TEST(an_imported_pool_goes_by_its_own_access)
{
    struct pool_properties properties = {.kind = 1, .handle_types = FD, .location = {1, 0}};
    CUmemoryPool pool = NULL, imported = NULL;
    int fd = -1;
    uint64_t there = 0;
    unsigned char data[64] = {0};
    void *block;
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    DRIVER(cuMemPoolCreate, &pool, &properties);
    block = foreign_pooled(context_of(gpu(0)), pool, 64);
    DRIVER(cuMemPoolExportToShareableHandle, &fd, pool, FD, 0);
    DRIVER(cuMemPoolImportFromShareableHandle, &imported, (void *)(intptr_t)fd, FD, 0);
    DRIVER(cuMemPoolExportPointer, data, address_of(block));
    IN(context_of(gpu(0)), DRIVER(cuMemPoolImportPointer, &there, imported, data));
    close(fd);
    EXPECT_POINTER(gpu(0), at(there), SAME_DEVICE);
    EXPECT_POINTER(gpu(1), at(there), NO_POOL_ACCESS);
    /* Neither peer access, nor that of the pool here in use, nor that of the pool that it is imported from. */
    turn(PEER, gpu(0), gpu(1), 1);
    turn(POOL, gpu(0), gpu(1), 1);
    grant_pool(pool, 1, 3);
    EXPECT_POINTER(gpu(1), block, POOL_ACCESS);
    EXPECT_POINTER(gpu(1), at(there), NO_POOL_ACCESS);
    grant_pool(imported, 1, 3);
    EXPECT_POINTER(gpu(1), at(there), POOL_ACCESS);
}

/* ---- Graphs of other code ---------------------------------------------------------------------------------------- */

PROCESS_TEST(memory_of_a_graph_that_other_code_captured_cannot_be_verified)
{
    CUcontext context;
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    uint64_t block = 0;
    start_on("h200x2");
    context_of(gpu(1));
    context = context_of(gpu(0));
    turn(POOL, gpu(0), gpu(1), 1);
    DRIVER(cuCtxSetCurrent, context);
    DRIVER(cuStreamCreate, &stream, 1);
    DRIVER(cuStreamBeginCapture_v2, stream, 1);
    DRIVER(cuMemAllocAsync, &block, 4096, stream);
    DRIVER(cuStreamEndCapture, stream, &graph);
    DRIVER(cuGraphInstantiateWithFlags, &exec, graph, 0);
    DRIVER(cuGraphLaunch, exec, stream);
    DRIVER(cuStreamSynchronize, stream);
    DRIVER(cuCtxSetCurrent, NULL);
    EXPECT_POINTER(gpu(0), at(block), SAME_DEVICE);
    EXPECT_POINTER(cpu(), at(block), DEVICE_MEMORY);
    EXPECT_POINTER(gpu(1), at(block), FOREIGN_GRAPH);
    CHECK_EQ_I64(pointer_access(gpu(1), at(block)).rule, WARP_ACCESS_RULE_GRAPH_FIXED);
    turn(PEER, gpu(0), gpu(1), 1);
    EXPECT_POINTER(gpu(1), at(block), FOREIGN_GRAPH);
}

/* ---- Mappings ---------------------------------------------------------------------------------------------------- */

PROCESS_TEST(a_mapping_is_for_whom_it_was_mapped)
{
    /* 13.2: expandable segments of other frameworks; peer access does not govern them. Every choice of flags for both. */
    static const uint32_t flags[] = {0, 1, 3};
    static const warp_access_reason expected[] = {WARP_ACCESS_REASON_NOT_MAPPED, WARP_ACCESS_REASON_MAPPED_READ_ONLY,
                                                  WARP_ACCESS_REASON_MAPPED};
    void *mapping;
    int own, other, round;
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    mapping = mapping_of(0);
    for (round = 0; round < 2; ++round) {
        for (own = 0; own < 3; ++own)
            for (other = 0; other < 3; ++other) {
                map_for(mapping, 0, flags[own]);
                map_for(mapping, 1, flags[other]);
                expect_pointer_at(gpu(0), mapping, expected[own], "own", __LINE__);
                expect_pointer_at(gpu(1), (char *)mapping + MAPPING_SIZE - 1, expected[other], "other", __LINE__);
                EXPECT_POINTER(cpu(), mapping, DEVICE_MEMORY);
            }
        turn(PEER, gpu(0), gpu(1), 1);
        turn(POOL, gpu(0), gpu(1), 1);
    }
    unmap(mapping);
    EXPECT_POINTER(gpu(0), mapping, UNKNOWN_MEMORY);
}

CHECK_MAIN()
