/*
 * mempool_access.c: whether kernels of one GPU may touch what comes from a pool of another: what is answered, set and refused,
 * with other libraries that set it too. Cases MP-02, PA-01, PA-03 and PA-04, as far as they are about this.
 *
 * needs: simulator
 */
#include "peers.h"

uint32_t cuDeviceSetMemPool(int32_t device, CUmemoryPool pool);

PROCESS_TEST(the_table_of_answers)
{
    start_on("h200x2");
    check_cpu_answers(POOL, gpu(0));
    check_cpu_answers(POOL, cpu());
    check_self_answers(POOL, gpu(0), 1);
    check_self_answers(POOL, gpu(1), 1);
    check_pair(POOL, gpu(0), gpu(1));
    check_pair(POOL, gpu(1), gpu(0));
    turn(POOL, NULL, gpu(1), 0x80);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 1);
    CHECK_EQ_I64(has(POOL, gpu(1), gpu(0)), 0);
    /* None of this needs a context, or memory. */
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(calls("cuDevicePrimaryCtxRetain"), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_target_without_pools_has_none_to_open)
{
    /* MP-02: the second GPU has no pools; the first one's may be opened to it. */
    warp_device *list[2];
    void *pooled, *plain;
    start_on("mixed");
    check_self_answers(POOL, gpu(0), 1);
    check_self_answers(POOL, gpu(1), 0);
    /* Its own pools, too, cannot be asked for. */
    refused(POOL, gpu(1), gpu(1), 1, WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "no memory pools");
    check_pair(POOL, gpu(0), gpu(1));
    check_unsupported(POOL, gpu(1), gpu(0));
    CHECK_STR_CONTAINS(warp_error_get_message(), "no memory pools");
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_peer_access_set_enabled");
    check_cpu_answers(POOL, gpu(1));
    CHECK_STATUS(POOL->set_for(gpu(1), NULL, 0, 1), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(POOL->set_for(gpu(1), NULL, 0, 0), WARP_SUCCESS);
    list[0] = gpu(0);
    list[1] = cpu();
    CHECK_STATUS(POOL->set_for(gpu(1), list, 1, 1), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(POOL->set_for(gpu(1), list, 2, 0), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
    /* Peer access is another matter, and both serve. */
    check_pair(PEER, gpu(1), gpu(0));
    pooled = block_of(gpu(0), 4096, WARP_MEMORY_CUDA_MEMPOOL);
    plain = block_of(gpu(1), 4096, WARP_MEMORY_UNKNOWN);
    put_pattern(plain, 4096, 3);
    copy_now(pooled, plain, 4096, NULL);
    CHECK_EQ_U64(find_pattern(pooled, 4096, 3), 4096);
    turn(POOL, gpu(0), gpu(1), 1);
    put_pattern(plain, 4096, 4);
    copy_now(pooled, plain, 4096, NULL);
    CHECK_EQ_U64(find_pattern(pooled, 4096, 4), 4096);
    CHECK_STATUS(warp_free(pooled), WARP_SUCCESS);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
}

PROCESS_TEST(machines_without_pools_or_peers)
{
    start_on("vgpu");
    check_self_answers(POOL, gpu(0), 0);
    check_cpu_answers(POOL, gpu(0));
    CHECK_STATUS(POOL->set_for(gpu(0), NULL, 0, 1), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_U64(calls("cuDeviceGetMemPool"), 0);
}

PROCESS_TEST(machines_without_peers)
{
    start_on("discrete,peers=0");
    check_self_answers(POOL, gpu(0), 1);
    check_unsupported(POOL, gpu(0), gpu(1));
    check_unsupported(POOL, gpu(1), gpu(0));
    CHECK_STATUS(POOL->set_for(gpu(0), NULL, 0, 1), WARP_SUCCESS);
    CHECK_EQ_U64(calls(POOL->gives), 0);
}

PROCESS_TEST(machines_without_a_gpu)
{
    start_on("none");
    check_cpu_answers(POOL, cpu());
    CHECK_STATUS(POOL->set_for(cpu(), NULL, 0, 1), WARP_ERROR_INVALID_ARGUMENT);
}

PROCESS_TEST(machines_that_are_connected_in_part)
{
    static const int expected[4][4] = {{1, 1, 0, 0}, {1, 1, 0, 0}, {1, 0, 1, 1}, {0, 0, 1, 1}};
    int target, peer;
    start_on("partial");
    for (target = 0; target < 4; ++target)
        for (peer = 0; peer < 4; ++peer) {
            if (target == peer)
                check_self_answers(POOL, gpu(target), 1);
            else if (expected[target][peer])
                check_pair(POOL, gpu(target), gpu(peer));
            else
                check_unsupported(POOL, gpu(target), gpu(peer));
        }
}

PROCESS_TEST(what_others_granted_is_read_and_off_asks_the_driver)
{
    /* PA-04: granted before the start, taken, granted again outside. */
    uint64_t sets;
    setenv("WARPSIM_TOPOLOGY", "h200x2", 1);
    CHECK_EQ_U64(SIMULATOR(cuInit)(0), 0);
    pool_outside(0, 1, 1);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 1);
    sets = calls(POOL->takes);
    turn(POOL, gpu(0), gpu(1), 0);
    CHECK_EQ_U64(calls(POOL->takes), sets + 1);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 0);
    pool_outside(0, 1, 1);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 1);
    turn(POOL, gpu(0), gpu(1), 1);
    pool_outside(0, 1, 0);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 0);
    turn(POOL, gpu(0), gpu(1), 1);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 1);
}

PROCESS_TEST(the_owner_is_never_named_to_the_driver)
{
    /* PA-04: one request a pair, so that one refusal does not block others; the target among them is nothing to ask for. */
    warp_device *list[4];
    uint64_t sets;
    int on;
    start_on("h200x2,gpus=4");
    list[0] = gpu(0);
    list[1] = gpu(1);
    list[2] = gpu(2);
    list[3] = gpu(0);
    for (on = 1; on >= 0; --on) {
        sets = calls(POOL->gives);
        CHECK_STATUS(POOL->set_for(gpu(0), list, 4, (uint8_t)on), WARP_SUCCESS);
        CHECK_EQ_U64(calls(POOL->gives), sets + 2);
        CHECK_EQ_I64(has(POOL, gpu(0), gpu(0)), 1);
        CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), on);
        CHECK_EQ_I64(has(POOL, gpu(0), gpu(2)), on);
        CHECK_EQ_I64(has(POOL, gpu(0), gpu(3)), 0);
    }
    CHECK_STATUS(POOL->set_for(gpu(0), NULL, 0, 1), WARP_SUCCESS);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)) + has(POOL, gpu(0), gpu(2)) + has(POOL, gpu(0), gpu(3)), 3);
}

PROCESS_TEST(pools_have_no_limit_of_peers)
{
    int i;
    start_on("gpux10");
    CHECK_STATUS(POOL->set_for(gpu(0), NULL, 0, 1), WARP_SUCCESS);
    for (i = 1; i < 10; ++i) {
        CHECK_EQ_I64(has(POOL, gpu(0), gpu(i)), 1);
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(i)), 0);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
}

PROCESS_TEST(a_bulk_call_that_fails_in_the_middle_puts_back_what_it_changed)
{
    int on, nth, i;
    start_on("h200x2,gpus=6");
    pool_outside(0, 3, 1);
    for (on = 1; on >= 0; --on)
        for (nth = 1; nth <= 5; ++nth) {
            char peer[32];
            snprintf(peer, sizeof peer, "\"cuda:%d\"", nth);
            CHECK_EQ_U64(SIMULATOR(warpsim_fail)(POOL->gives, (uint64_t)nth, 999), 0);
            CHECK_STATUS(POOL->set_for(gpu(0), NULL, 0, (uint8_t)on), WARP_ERROR_DRIVER);
            names_pair("\"cuda:0\"", peer);
            for (i = 1; i < 6; ++i)
                CHECK_EQ_I64(has(POOL, gpu(0), gpu(i)), on ? i == 3 : 1);
            if (nth == 5)
                CHECK_STATUS(POOL->set_for(gpu(0), NULL, 0, (uint8_t)on), WARP_SUCCESS);
        }
    for (i = 1; i < 6; ++i)
        CHECK_EQ_I64(has(POOL, gpu(0), gpu(i)), 0);
}

PROCESS_TEST(a_pool_is_its_gpus_in_all_contexts)
{
    warp_device *other = NULL;
    start_on("h200x2");
    CHECK_STATUS(warp_device_from_context(driver_foreign(1), NULL, &other), WARP_SUCCESS);
    CHECK_EQ_I64(can(POOL, gpu(1), other), 1);
    CHECK_EQ_I64(has(POOL, gpu(1), other), 1);
    turn(POOL, gpu(1), other, 0);
    turn(POOL, other, gpu(1), 1);
    CHECK_EQ_I64(has(POOL, other, gpu(1)), 1);
    CHECK_EQ_U64(calls(POOL->gives), 0);
    CHECK_EQ_I64(can(POOL, gpu(0), other), 1);
    turn(POOL, gpu(0), other, 1);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 1);
    turn(POOL, gpu(0), gpu(1), 0);
    CHECK_EQ_I64(has(POOL, gpu(0), other), 0);
    turn(POOL, other, gpu(0), 1);
    CHECK_EQ_I64(has(POOL, gpu(1), gpu(0)), 1);
}

PROCESS_TEST(to_take_access_waits_for_work_that_may_need_it)
{
    /* PA-01, of pools. */
    unsigned char *from, *to;
    int side;
    start_on("h200x2");
    for (side = 0; side < 2; ++side) {
        warp_stream *stream;
        turn(POOL, gpu(0), gpu(1), 1);
        from = block_of(gpu(0), 4096, WARP_MEMORY_CUDA_MEMPOOL);
        to = block_of(gpu(1), 4096, WARP_MEMORY_CUDA_MEMPOOL);
        put_pattern(from, 4096, 5);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
        stream = new_stream(gpu(side), WARP_STREAM_NON_BLOCKING);
        SIMULATOR(warpsim_hold)(native_stream(stream));
        CHECK_STATUS(warp_memory_copy(to, from, 4096, stream), WARP_SUCCESS);
        turn(POOL, gpu(0), gpu(1), 0);
        CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 0);
        {
            uint8_t idle = 9;
            CHECK_STATUS(warp_stream_query_idle(stream, &idle), WARP_SUCCESS);
            CHECK_EQ_U64(idle, 1);
        }
        CHECK_EQ_U64(find_pattern(to, 4096, 5), 4096);
        CHECK_STATUS(warp_free(from), WARP_SUCCESS);
        CHECK_STATUS(warp_free(to), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

/* ---- Pools by name ---------------------------------------------------------------------------------------------------------- */

static warp_mempool *new_pool(warp_device *device)
{
    warp_mempool *pool = NULL;
    CHECK_STATUS(warp_mempool_create(device, NULL, &pool), WARP_SUCCESS);
    return pool;
}

static int pool_has(warp_mempool *pool, warp_device *peer)
{
    uint8_t answer = 9;
    CHECK_STATUS(warp_mempool_query_access(pool, peer, &answer), WARP_SUCCESS);
    CHECK(answer <= 1);
    return answer;
}

PROCESS_TEST(asking_does_not_choose_the_pool)
{
    warp_mempool *other, *used = NULL;
    warp_mempool_info info = {.struct_size = sizeof info};
    CUmemoryPool own = NULL;
    start_on("h200x2");
    CHECK_EQ_U64(SIMULATOR(cuDeviceGetMemPool)(&own, 0), 0);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 0);
    pool_outside(0, 1, 1);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 1);
    other = new_pool(gpu(0));
    CHECK_STATUS(warp_mempool_get_info(other, &info), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuDeviceSetMemPool)(0, info.native), 0);
    /* What would be used now is asked about, and used. */
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 0);
    CHECK_STATUS(warp_mempool_get(gpu(0), &used), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_get_info(used, &info), WARP_SUCCESS);
    CHECK(info.native != own);
    CHECK_EQ_U64(SIMULATOR(cuDeviceSetMemPool)(0, own), 0);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 0);
}

PROCESS_TEST(each_pool_has_an_access_of_its_own)
{
    warp_mempool *created, *own = NULL;
    start_on("h200x2,gpus=3,peer.2.0=0");
    created = new_pool(gpu(0));
    CHECK_STATUS(warp_mempool_get(gpu(0), &own), WARP_SUCCESS);
    CHECK_EQ_I64(pool_has(created, gpu(0)), 1);
    CHECK_EQ_I64(pool_has(created, cpu()), 0);
    CHECK_EQ_I64(pool_has(created, gpu(1)), 0);
    CHECK_EQ_I64(pool_has(created, gpu(2)), 0);
    CHECK_STATUS(warp_mempool_set_access(created, gpu(1), 1), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_access(created, gpu(1), 1), WARP_SUCCESS);
    CHECK_EQ_I64(pool_has(created, gpu(1)), 1);
    CHECK_EQ_I64(pool_has(own, gpu(1)), 0);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 0);
    /* The device's is that of the pool in use. */
    CHECK_STATUS(warp_mempool_use(gpu(0), created), WARP_SUCCESS);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 1);
    turn(POOL, gpu(0), gpu(1), 0);
    CHECK_EQ_I64(pool_has(created, gpu(1)), 0);
    CHECK_STATUS(warp_mempool_use(gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_access(own, gpu(1), 1), WARP_SUCCESS);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 1);
    /* The same refusals. */
    CHECK_STATUS(warp_mempool_set_access(created, cpu(), 1), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_mempool_set_access(created, cpu(), 0), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_access(created, gpu(2), 1), WARP_ERROR_NOT_SUPPORTED);
    names_pair("\"cuda:0\"", "\"cuda:2\"");
    CHECK_STATUS(warp_mempool_set_access(created, gpu(2), 0), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_access(created, gpu(0), 0), WARP_SUCCESS);
    CHECK_EQ_I64(pool_has(created, gpu(0)), 1);
    SIMULATOR(warpsim_fail)(POOL->gives, 1, 999);
    CHECK_STATUS(warp_mempool_set_access(created, gpu(1), 1), WARP_ERROR_DRIVER);
    CHECK_STR_CONTAINS(warp_error_get_message(), "the created pool");
    CHECK_EQ_I64(pool_has(created, gpu(1)), 0);
    CHECK_STATUS(warp_mempool_release(created), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_access(created, gpu(1), 1), WARP_ERROR_INVALID_HANDLE);
    {
        uint8_t answer = 9;
        CHECK_STATUS(warp_mempool_query_access(created, gpu(1), &answer), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_U64(answer, 0);
        CHECK_STATUS(warp_mempool_query_access(own, gpu(1), NULL), WARP_ERROR_INVALID_ARGUMENT);
    }
}

PROCESS_TEST(a_pool_that_comes_after_another_inherits_nothing_of_it)
{
    /* PA-04: its place here, and its address in the driver, may be those of one that was open. */
    int round;
    start_on("h200x2");
    for (round = 0; round < 200; ++round) {
        warp_mempool *pool = new_pool(gpu(0));
        warp_scope *scope = NULL;
        CHECK_EQ_I64(pool_has(pool, gpu(1)), 0);
        if (round % 3 == 0) {
            CHECK_STATUS(warp_mempool_use(gpu(0), pool), WARP_SUCCESS);
            CHECK_STATUS(POOL->begin(gpu(0), gpu(1), 1, &scope), WARP_SUCCESS);
            CHECK_STATUS(warp_mempool_use(gpu(0), NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
            CHECK_EQ_I64(pool_has(pool, gpu(1)), 0);
        }
        CHECK_STATUS(warp_mempool_set_access(pool, gpu(1), 1), WARP_SUCCESS);
        CHECK_EQ_I64(pool_has(pool, gpu(1)), 1);
        CHECK_STATUS(warp_mempool_release(pool), WARP_SUCCESS);
    }
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("mempool"), 0);
}

PROCESS_TEST(a_scope_keeps_the_pool_that_it_began_with)
{
    warp_mempool *created, *own = NULL;
    warp_scope *scope = NULL, *second = NULL;
    start_on("h200x2");
    created = new_pool(gpu(0));
    CHECK_STATUS(warp_mempool_get(gpu(0), &own), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_use(gpu(0), created), WARP_SUCCESS);
    CHECK_STATUS(POOL->begin(gpu(0), gpu(1), 1, &scope), WARP_SUCCESS);
    CHECK_EQ_I64(pool_has(created, gpu(1)), 1);
    CHECK_STATUS(warp_mempool_set_access(created, gpu(1), 0), WARP_ERROR_BUSY);
    CHECK_STATUS(warp_mempool_set_access(created, gpu(1), 1), WARP_SUCCESS);
    /* Another pool in use is another matter. */
    CHECK_STATUS(warp_mempool_use(gpu(0), NULL), WARP_SUCCESS);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 0);
    turn(POOL, gpu(0), gpu(1), 1);
    turn(POOL, gpu(0), gpu(1), 0);
    CHECK_STATUS(POOL->begin(gpu(0), gpu(1), 0, &second), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(second), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    CHECK_EQ_I64(pool_has(created, gpu(1)), 0);
    /* Released inside: it is destroyed when the scope has put back what was. */
    CHECK_STATUS(warp_mempool_use(gpu(0), created), WARP_SUCCESS);
    CHECK_STATUS(POOL->begin(gpu(0), gpu(1), 1, &scope), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_use(gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_release(created), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 0);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 1);
    /* And left open until the shutdown. */
    created = new_pool(gpu(0));
    CHECK_STATUS(warp_mempool_use(gpu(0), created), WARP_SUCCESS);
    CHECK_STATUS(POOL->begin(gpu(0), gpu(1), 1, &scope), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(calls("cuMemPoolDestroy"), 2);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

CHECK_MAIN()
