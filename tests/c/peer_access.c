/*
 * peer_access.c: whether kernels of one GPU may touch plain memory of another: what is answered, set, refused and put back, with
 * other libraries that set it too. Cases PA-01 to PA-04, PA-06 and MP-06, as far as they are about this.
 *
 * valgrind: slow (thirty processes for answers in numbers; mempool_access.c and access_live.c give and take access there)
 * needs: simulator
 */
#include "peers.h"

#include "forked.h"
#include "report.h"

#include <pthread.h>

uint32_t cuStreamBeginCapture_v2(CUstream stream, int32_t mode);
uint32_t cuStreamEndCapture(CUstream stream, void **out);
uint32_t cuStreamIsCapturing(CUstream stream, int32_t *out);
uint32_t cuStreamQuery(CUstream stream);
uint32_t cuGraphDestroy(void *graph);

/* ---- What is answered ----------------------------------------------------------------------------------------------- */

PROCESS_TEST(the_table_of_answers)
{
    start_on("h200x2");
    check_cpu_answers(PEER, gpu(0));
    check_cpu_answers(PEER, cpu());
    check_self_answers(PEER, gpu(0), 1);
    check_self_answers(PEER, gpu(1), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
    check_pair(PEER, gpu(0), gpu(1));
    check_pair(PEER, gpu(1), gpu(0));
    /* NULL is the default device, as everywhere. */
    turn(PEER, NULL, gpu(1), 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    CHECK_EQ_I64(has(PEER, NULL, NULL), 1);
    /* Any value but zero is true. */
    turn(PEER, gpu(1), gpu(0), 0x80);
    CHECK_EQ_I64(has(PEER, gpu(1), gpu(0)), 1);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(asking_makes_no_context_and_setting_makes_both)
{
    start_on("h200x2,gpus=3");
    CHECK_EQ_I64(can(PEER, gpu(0), gpu(1)), 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    /* Nor does it to take what is not there. */
    turn(PEER, gpu(0), gpu(1), 0);
    CHECK_EQ_U64(calls("cuDevicePrimaryCtxRetain"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
    context_of(gpu(0));
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    CHECK_EQ_I64(has(PEER, gpu(1), gpu(0)), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 1);
    turn(PEER, gpu(0), gpu(1), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 2);
    CHECK(info_of(gpu(1)).has_context);
    /* The questions take one byte of each target, once. */
    CHECK_EQ_I64(has(PEER, gpu(1), gpu(0)), 0);
    CHECK_EQ_I64(has(PEER, gpu(1), gpu(0)), 0);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 2);
    CHECK_EQ_I64(has(PEER, gpu(2), gpu(1)), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 2);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(contexts_that_other_code_holds_count_also_unused_here)
{
    start_on("h200x2");
    driver_primary(0);
    driver_primary(1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    peer_outside(0, 1, 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    CHECK_EQ_I64(has(PEER, gpu(1), gpu(0)), 0);
    /* It is taken there too, and they stay other code's. */
    turn(PEER, gpu(0), gpu(1), 0);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    peer_outside(0, 1, 1);
    CHECK(!info_of(gpu(0)).has_context && !info_of(gpu(1)).has_context);
    SIMULATOR(cuDevicePrimaryCtxRelease_v2)(1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    SIMULATOR(cuDevicePrimaryCtxRelease_v2)(0);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    /* And again in the next contexts. */
    driver_primary(0);
    driver_primary(1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    peer_outside(0, 1, 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
}

PROCESS_TEST(machines_that_are_connected_in_part)
{
    /* 0-1 and 2-3 both ways; 0 may reach 2. */
    static const int expected[4][4] = {{1, 1, 0, 0}, {1, 1, 0, 0}, {1, 0, 1, 1}, {0, 0, 1, 1}};
    int target, peer;
    start_on("partial");
    for (target = 0; target < 4; ++target)
        for (peer = 0; peer < 4; ++peer) {
            if (target == peer)
                check_self_answers(PEER, gpu(target), 1);
            else if (expected[target][peer])
                check_pair(PEER, gpu(target), gpu(peer));
            else
                check_unsupported(PEER, gpu(target), gpu(peer));
        }
}

PROCESS_TEST(refusals_of_what_cannot_be_make_no_context)
{
    start_on("discrete,peers=0");
    check_unsupported(PEER, gpu(0), gpu(1));
    check_unsupported(PEER, gpu(1), gpu(0));
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
}

PROCESS_TEST(machines_with_one_gpu_or_none)
{
    /* MP-06: one instance is all that a process sees. */
    warp_device *none = (warp_device *)1;
    start_on("vgpu");
    check_self_answers(PEER, gpu(0), 1);
    check_cpu_answers(PEER, gpu(0));
    CHECK_STATUS(warp_device_get("cuda:1", &none), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_STATUS(warp_device_get("cuda:-1", &none), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_STATUS(PEER->set_for(gpu(0), NULL, 0, 1), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
}

PROCESS_TEST(machines_without_a_gpu)
{
    start_on("none");
    check_cpu_answers(PEER, cpu());
    CHECK_STATUS(PEER->set_for(cpu(), NULL, 0, 1), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(PEER->set_for(cpu(), NULL, 0, 0), WARP_SUCCESS);
}

PROCESS_TEST(two_contexts_of_one_gpu_reach_each_other_and_are_no_peers)
{
    warp_device *other = NULL;
    CUcontext context;
    start_on("h200x2");
    context = driver_foreign(0);
    CHECK_STATUS(warp_device_from_context(context, NULL, &other), WARP_SUCCESS);
    CHECK_EQ_STR(alias_of(other), "cuda:0.0");
    CHECK_EQ_I64(can(PEER, gpu(0), other), 1);
    CHECK_EQ_I64(can(PEER, other, gpu(0)), 1);
    check_self_answers(PEER, other, 1);
    /* The context of the GPU's own device does not exist yet. */
    CHECK_EQ_I64(has(PEER, gpu(0), other), 0);
    context_of(gpu(0));
    /* As hardware has it: their memory is common, and to be peers is refused. */
    CHECK_EQ_I64(has(PEER, gpu(0), other), 1);
    CHECK_EQ_I64(has(PEER, other, gpu(0)), 1);
    refused(PEER, gpu(0), other, 1, WARP_ERROR_NOT_SUPPORTED);
    names_pair("\"cuda:0\"", "\"cuda:0.0\"");
    CHECK_STR_CONTAINS(warp_error_get_message(), "PEER_ACCESS_UNSUPPORTED");
    turn(PEER, gpu(0), other, 0);
    CHECK_EQ_I64(has(PEER, gpu(0), other), 1);
    /* To another GPU each context is a device of its own. */
    turn(PEER, gpu(0), gpu(1), 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    CHECK_EQ_I64(has(PEER, other, gpu(1)), 0);
    check_pair(PEER, other, gpu(1));
    check_pair(PEER, gpu(1), other);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    turn(PEER, other, gpu(1), 1);
    /* It dies: it is no device any more, and what was between the others stays. */
    SIMULATOR(cuCtxDestroy_v2)(context);
    {
        uint8_t answer = 9;
        CHECK_STATUS(PEER->query(other, gpu(1), &answer), WARP_ERROR_DEVICE_LOST);
        CHECK_EQ_U64(answer, 0);
        CHECK_STATUS(PEER->set(other, gpu(1), 0), WARP_ERROR_DEVICE_LOST);
        CHECK_STATUS(PEER->set(gpu(1), other, 1), WARP_ERROR_DEVICE_LOST);
    }
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    CHECK_EQ_PTR(driver_current(), NULL);
}

/* ---- Other libraries -------------------------------------------------------------------------------------------------- */

PROCESS_TEST(enabled_by_others_is_no_failure_and_read_as_it_is)
{
    /* PA-01 and PA-04: no table of our own goes stale, and what the driver says of the second time is no error of anybody. */
    unsigned char *from, *to;
    int round;
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    from = block_of(gpu(0), 4096, WARP_MEMORY_CUDA_DEVICE);
    to = block_of(gpu(1), 4096, WARP_MEMORY_CUDA_DEVICE);
    for (round = 0; round < 3; ++round) {
        peer_outside(0, 1, 1);
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
        turn(PEER, gpu(0), gpu(1), 1);
        CHECK_EQ_STR(warp_error_get_message(), "");
        turn(PEER, gpu(0), gpu(1), 1);
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
        CHECK_EQ_STR(warp_error_get_message(), "");
        /* What comes next is not told of it. */
        put_pattern(from, 4096, (uint64_t)round);
        copy_now(to, from, 4096, NULL);
        CHECK_EQ_U64(find_pattern(to, 4096, (uint64_t)round), 4096);
        CHECK_EQ_STR(warp_error_get_message(), "");
        peer_outside(0, 1, 0);
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
        turn(PEER, gpu(0), gpu(1), 0);
        turn(PEER, gpu(0), gpu(1), 1);
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
        peer_outside(0, 1, 0);
        turn(PEER, gpu(0), gpu(1), 0);
        turn(PEER, gpu(0), gpu(1), 0);
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
        CHECK_EQ_STR(warp_error_get_message(), "");
    }
    CHECK_STATUS(warp_free(from), WARP_SUCCESS);
    CHECK_STATUS(warp_free(to), WARP_SUCCESS);
}

PROCESS_TEST(nothing_is_given_that_nobody_asked_for)
{
    /* Access that comes by itself breaks copies on some machines and slows allocation on others. */
    static const warp_memory_kind kinds_of_gpu[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    size_t a, b, i;
    start_on("h200x2,gpus=3");
    for (a = 0; a < 3; ++a)
        for (b = 0; b < 3; ++b) {
            void *from = block_of(gpu(0), 4096, kinds_of_gpu[a]), *to = block_of(gpu(1), 4096, kinds_of_gpu[b]);
            put_pattern(from, 4096, a * 3 + b);
            copy_now(to, from, 4096, NULL);
            CHECK_EQ_U64(find_pattern(to, 4096, a * 3 + b), 4096);
            CHECK_STATUS(warp_free(from), WARP_SUCCESS);
            CHECK_STATUS(warp_free(to), WARP_SUCCESS);
        }
    for (i = 0; i < 2; ++i) {
        CHECK_EQ_U64(calls(kinds[i].gives), 0);
        for (a = 0; a < 3; ++a)
            for (b = 0; b < 3; ++b)
                CHECK_EQ_I64(has(&kinds[i], gpu((int)a), gpu((int)b)), a == b);
    }
}

PROCESS_TEST(peer_and_pool_access_and_the_directions_are_four_facts)
{
    /* PA-03. */
    int wanted, i;
    start_on("h200x2");
    for (wanted = 0; wanted < 16; ++wanted) {
        for (i = 0; i < 4; ++i)
            turn(&kinds[i & 1], gpu(i >> 1), gpu(!(i >> 1)), wanted >> i & 1);
        for (i = 0; i < 4; ++i)
            CHECK_EQ_I64(has(&kinds[i & 1], gpu(i >> 1), gpu(!(i >> 1))), wanted >> i & 1);
    }
}

PROCESS_TEST(a_gpu_has_eight_peers_and_the_ninth_is_its_own_error)
{
    /* PA-02. */
    unsigned char *from, *to;
    int i;
    start_on("gpux10");
    for (i = 1; i <= 8; ++i)
        turn(PEER, gpu(0), gpu(i), 1);
    refused(PEER, gpu(0), gpu(9), 1, WARP_ERROR_PEER_LIMIT);
    names_pair("\"cuda:0\"", "\"cuda:9\"");
    CHECK_STR_CONTAINS(warp_error_get_message(), "8 of \"cuda:0\"");
    CHECK_STR_CONTAINS(warp_error_get_message(), "0 of \"cuda:9\"");
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_peer_access_set_enabled");
    for (i = 1; i <= 8; ++i)
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(i)), 1);
    CHECK_EQ_I64(can(PEER, gpu(0), gpu(9)), 1);
    /* The other direction is the same connection. */
    refused(PEER, gpu(9), gpu(0), 1, WARP_ERROR_PEER_LIMIT);
    turn(PEER, gpu(1), gpu(0), 1);
    /* Copies do without. */
    from = block_of(gpu(0), 4096, WARP_MEMORY_CUDA_DEVICE);
    to = block_of(gpu(9), 4096, WARP_MEMORY_CUDA_DEVICE);
    put_pattern(from, 4096, 9);
    copy_now(to, from, 4096, NULL);
    CHECK_EQ_U64(find_pattern(to, 4096, 9), 4096);
    /* Kernels of the ninth do not, and of the eighth do. */
    {
        uint8_t reached = 9;
        CHECK_STATUS(warp_access_can_pointer(gpu(9), from, &reached), WARP_SUCCESS);
        CHECK_EQ_U64(reached, 0);
        CHECK_STATUS(warp_access_can_pointer(gpu(8), from, &reached), WARP_SUCCESS);
        CHECK_EQ_U64(reached, 1);
    }
    CHECK_STATUS(warp_free(from), WARP_SUCCESS);
    CHECK_STATUS(warp_free(to), WARP_SUCCESS);
    /* One that is given back makes room; it was a connection both ways. */
    turn(PEER, gpu(0), gpu(1), 0);
    refused(PEER, gpu(0), gpu(9), 1, WARP_ERROR_PEER_LIMIT);
    turn(PEER, gpu(1), gpu(0), 0);
    turn(PEER, gpu(0), gpu(9), 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(9)), 1);
    /* Those of others count. */
    refused(PEER, gpu(0), gpu(1), 1, WARP_ERROR_PEER_LIMIT);
    peer_outside(0, 8, 0);
    turn(PEER, gpu(0), gpu(1), 1);
    peer_outside(0, 1, 0);
    peer_outside(0, 8, 1);
    refused(PEER, gpu(0), gpu(1), 1, WARP_ERROR_PEER_LIMIT);
}

PROCESS_TEST(a_link_that_loses_data_is_the_drivers_and_off_helps)
{
    /* PA-06: the driver is trusted; without access the copy goes another way. */
    unsigned char *from, *to;
    warp_stream *stream;
    start_on("h200x2,peer.1.0=broken");
    CHECK_EQ_I64(can(PEER, gpu(0), gpu(1)), 1);
    from = block_of(gpu(0), 4096, WARP_MEMORY_CUDA_DEVICE);
    to = block_of(gpu(1), 4096, WARP_MEMORY_CUDA_DEVICE);
    stream = stream_of(gpu(1));
    put_pattern(from, 4096, 1);
    put_pattern(to, 4096, 2);
    turn(PEER, gpu(0), gpu(1), 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    copy_now(to, from, 4096, stream);
    turn(PEER, gpu(0), gpu(1), 0);
    copy_now(to, from, 4096, stream);
    CHECK_EQ_U64(find_pattern(to, 4096, 1), 4096);
    CHECK_STATUS(warp_free(from), WARP_SUCCESS);
    CHECK_STATUS(warp_free(to), WARP_SUCCESS);
}

/* ---- All or none ------------------------------------------------------------------------------------------------------- */

static int enabled_of(int target, int count)
{
    int peer, sum = 0;
    for (peer = 0; peer < count; ++peer)
        sum += peer != target && has(PEER, gpu(target), gpu(peer));
    return sum;
}

PROCESS_TEST(many_peers_are_set_for_all_or_for_none)
{
    warp_device *list[6];
    int i;
    start_on("partial");
    list[0] = gpu(1);
    list[1] = gpu(0);
    CHECK_STATUS(PEER->set_for(gpu(0), list, 2, 1), WARP_SUCCESS);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    CHECK_STATUS(PEER->set_for(gpu(0), list, 2, 0), WARP_SUCCESS);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    /* 3 reaches 2; 1 does not, and is named. */
    list[0] = gpu(3);
    list[1] = gpu(1);
    CHECK_STATUS(PEER->set_for(gpu(2), list, 2, 1), WARP_ERROR_NOT_SUPPORTED);
    names_pair("\"cuda:2\"", "\"cuda:1\"");
    CHECK_EQ_I64(enabled_of(2, 4), 0);
    list[1] = cpu();
    CHECK_STATUS(PEER->set_for(gpu(2), list, 2, 1), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_I64(enabled_of(2, 4), 0);
    list[1] = (warp_device *)64;
    CHECK_STATUS(PEER->set_for(gpu(2), list, 2, 1), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_I64(enabled_of(2, 4), 0);
    /* To take it, those that cannot have it are no trouble. */
    list[1] = cpu();
    list[2] = gpu(1);
    list[3] = gpu(2);
    turn(PEER, gpu(2), gpu(3), 1);
    CHECK_STATUS(PEER->set_for(gpu(2), list, 4, 0), WARP_SUCCESS);
    CHECK_EQ_I64(enabled_of(2, 4), 0);
    /* Twice the same is once; NULL in the list is the default device. */
    list[1] = gpu(3);
    list[2] = NULL;
    CHECK_STATUS(PEER->set_for(gpu(2), list, 3, 1), WARP_SUCCESS);
    CHECK_EQ_I64(has(PEER, gpu(2), gpu(0)), 1);
    CHECK_EQ_I64(enabled_of(2, 4), 2);
    /* Nobody, and everybody who can. */
    CHECK_STATUS(PEER->set_for(gpu(2), list, 0, 0), WARP_SUCCESS);
    CHECK_EQ_I64(enabled_of(2, 4), 2);
    CHECK_STATUS(PEER->set_for(gpu(2), NULL, 0, 0), WARP_SUCCESS);
    CHECK_EQ_I64(enabled_of(2, 4), 0);
    for (i = 0; i < 4; ++i)
        CHECK_STATUS(PEER->set_for(gpu(i), NULL, 0, 1), WARP_SUCCESS);
    CHECK_EQ_I64(enabled_of(0, 4), 1);
    CHECK_EQ_I64(enabled_of(1, 4), 1);
    CHECK_EQ_I64(enabled_of(2, 4), 2);
    CHECK_EQ_I64(enabled_of(3, 4), 1);
    CHECK_STATUS(PEER->set_for(gpu(2), NULL, 2, 1), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(PEER->set_for(gpu(2), list, SIZE_MAX, 1), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(PEER->set_for((warp_device *)64, NULL, 0, 1), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(PEER->set_for(cpu(), NULL, 0, 1), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(PEER->set_for(cpu(), NULL, 0, 0), WARP_SUCCESS);
}

PROCESS_TEST(a_bulk_call_that_fails_in_the_middle_puts_back_what_it_changed)
{
    int on, nth, i;
    start_on("h200x2,gpus=6");
    context_of(gpu(3));
    context_of(gpu(0));
    peer_outside(0, 3, 1);
    for (on = 1; on >= 0; --on)
        for (nth = 1; nth <= 5; ++nth) {
            const char *entry = on ? PEER->gives : PEER->takes;
            char peer[32];
            snprintf(peer, sizeof peer, "\"cuda:%d\"", nth);
            CHECK_EQ_U64(SIMULATOR(warpsim_fail)(entry, (uint64_t)nth, 999), 0);
            CHECK_STATUS(PEER->set_for(gpu(0), NULL, 0, (uint8_t)on), WARP_ERROR_DRIVER);
            names_pair("\"cuda:0\"", peer);
            CHECK_STR_CONTAINS(warp_error_get_message(), entry);
            for (i = 1; i < 6; ++i)
                CHECK_EQ_I64(has(PEER, gpu(0), gpu(i)), on ? i == 3 : 1);
            if (nth == 5)
                CHECK_STATUS(PEER->set_for(gpu(0), NULL, 0, (uint8_t)on), WARP_SUCCESS);
        }
    for (i = 1; i < 6; ++i)
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(i)), 0);
    /* What cannot be put back is said too. */
    SIMULATOR(warpsim_fail)(PEER->gives, 3, 999);
    SIMULATOR(warpsim_fail)(PEER->takes, 2, 999);
    CHECK_STATUS(PEER->set_for(gpu(0), NULL, 0, 1), WARP_ERROR_DRIVER);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:3\"");
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:1\" to plain memory of \"cuda:0\" could not be put back");
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(2)), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_bulk_call_that_meets_the_limit_leaves_nothing)
{
    /* PA-02. */
    int i;
    start_on("gpux10");
    turn(PEER, gpu(0), gpu(4), 1);
    CHECK_STATUS(PEER->set_for(gpu(0), NULL, 0, 1), WARP_ERROR_PEER_LIMIT);
    names_pair("\"cuda:0\"", "\"cuda:9\"");
    for (i = 1; i < 10; ++i)
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(i)), i == 4);
}

/* ---- Work, captures, threads --------------------------------------------------------------------------------------------- */

PROCESS_TEST(to_take_access_waits_for_work_that_may_need_it)
{
    /* PA-01: on hardware a copy that loses its access faults, and its context with it. The driver does not wait. */
    unsigned char *from, *to;
    int side, other, released;
    start_on("h200x2");
    from = block_of(gpu(0), 4096, WARP_MEMORY_CUDA_DEVICE);
    to = block_of(gpu(1), 4096, WARP_MEMORY_CUDA_DEVICE);
    put_pattern(from, 4096, 5);
    for (side = 0; side < 2; ++side)
        for (other = 0; other < 3; ++other) {
            warp_stream *stream = NULL;
            CUstream native = NULL;
            uint8_t zero = 0;
            CHECK_STATUS(warp_memory_fill(to, 4096, &zero, 1, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
            turn(PEER, gpu(0), gpu(1), 1);
            if (other == 0) {
                stream = new_stream(gpu(side), WARP_STREAM_NON_BLOCKING);
            } else {
                /* Streams of other code: wrapped, and blocking ones that the library has not met. */
                SIMULATOR(cuCtxSetCurrent)(context_of(gpu(side)));
                SIMULATOR(cuStreamCreate)(&native, other == 1 ? 1 : 0);
                SIMULATOR(cuCtxSetCurrent)(NULL);
                CHECK_STATUS(warp_stream_wrap(gpu(side), native, &stream), WARP_SUCCESS);
            }
            native = stream_info(stream).native;
            SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native);
            CHECK_STATUS(warp_memory_copy(to, from, 4096, stream), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(cuStreamQuery)(native), 600);
            SIMULATOR(warpsim_log_clear)();
            turn(PEER, gpu(0), gpu(1), 0);
            CHECK_EQ_U64(SIMULATOR(cuStreamQuery)(native), 0);
            CHECK(SIMULATOR(warpsim_log_contains)("cuEventSynchronize"));
            CHECK_EQ_U64(find_pattern(to, 4096, 5), 4096);
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
        }
    /* What cannot be waited for is not taken. */
    turn(PEER, gpu(0), gpu(1), 1);
    released = 0;
    for (side = 0; side < 2; ++side) {
        warp_stream *stream = new_stream(gpu(side), WARP_STREAM_NON_BLOCKING);
        SIMULATOR(warpsim_hold)(native_stream(stream));
        CHECK_STATUS(warp_memory_copy(to, from, 4096, stream), WARP_SUCCESS);
        SIMULATOR(warpsim_fail)("cuEventSynchronize", 1, 999);
        CHECK_STATUS(PEER->set(gpu(0), gpu(1), 0), WARP_ERROR_DRIVER);
        CHECK_STR_CONTAINS(warp_error_get_message(), "waiting for work");
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
        SIMULATOR(warpsim_fail_clear)();
        SIMULATOR(warpsim_release_all)();
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        ++released;
    }
    CHECK_EQ_I64(released, 2);
    turn(PEER, gpu(0), gpu(1), 0);
    CHECK_STATUS(warp_free(from), WARP_SUCCESS);
    CHECK_STATUS(warp_free(to), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

struct capturing {
    int mode, foreign, device;
    unsigned flags;
};

/* Everything there is, while the stream is captured. */
static void *use_everything(void *unused)
{
    int on, i;
    (void)unused;
    for (on = 1; on >= 0; --on)
        for (i = 0; i < 2; ++i) {
            warp_scope *scope = NULL;
            const struct access *access = &kinds[i];
            CHECK_EQ_I64(can(access, gpu(0), gpu(1)), 1);
            turn(access, gpu(0), gpu(1), on);
            turn(access, gpu(1), gpu(0), on);
            CHECK_EQ_I64(has(access, gpu(0), gpu(1)), on);
            CHECK_EQ_I64(has(access, gpu(1), gpu(0)), on);
            CHECK_STATUS(access->set_for(gpu(0), NULL, 0, (uint8_t)!on), WARP_SUCCESS);
            CHECK_EQ_I64(has(access, gpu(0), gpu(1)), !on);
            CHECK_STATUS(access->begin(gpu(0), gpu(1), (uint8_t)on, &scope), WARP_SUCCESS);
            CHECK_EQ_I64(has(access, gpu(0), gpu(1)), on);
            CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
            CHECK_EQ_I64(has(access, gpu(0), gpu(1)), !on);
            turn(access, gpu(0), gpu(1), on);
        }
    return NULL;
}

PROCESS_TEST(no_capture_is_disturbed)
{
    int mode, owner, where, thread, blocking;
    start_on("h200x2");
    for (mode = 0; mode < 3; ++mode)
        for (owner = 0; owner < 2; ++owner)
            for (where = 0; where < 2; ++where)
                for (blocking = 0; blocking < 2; ++blocking)
                    for (thread = 0; thread < 2; ++thread) {
                        warp_stream *stream = new_stream(gpu(where), blocking ? 0 : WARP_STREAM_NON_BLOCKING);
                        CUstream native = stream_info(stream).native;
                        warp_graph *graph = NULL;
                        void *outside = NULL;
                        int32_t state = -1;
                        if (owner == 0) {
                            static const warp_capture_mode modes[3] = {WARP_CAPTURE_GLOBAL, WARP_CAPTURE_THREAD_LOCAL,
                                                                       WARP_CAPTURE_RELAXED};
                            CHECK_STATUS(warp_capture_begin(stream, modes[mode]), WARP_SUCCESS);
                        } else {
                            CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native, mode), 0);
                        }
                        if (thread) {
                            pthread_t other;
                            REQUIRE(pthread_create(&other, NULL, use_everything, NULL) == 0);
                            pthread_join(other, NULL);
                        } else {
                            use_everything(NULL);
                        }
                        CHECK_EQ_U64(SIMULATOR(cuStreamIsCapturing)(native, &state), 0);
                        CHECK_EQ_I64(state, 1);
                        if (owner == 0) {
                            CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
                            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
                        } else {
                            CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native, &outside), 0);
                            CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(outside), 0);
                        }
                        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
                        if (check_failure_count() != 0) {
                            printf("\n    in mode %d, owner %d, gpu %d, blocking %d, thread %d", mode, owner, where, blocking, thread);
                            return;
                        }
                    }
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

static int stop;

static void *read_on_and_on(void *argument)
{
    uint64_t *answers = argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && check_failure_count() == 0) {
        ++answers[has(PEER, gpu(0), gpu(1))];
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(2)), 1);
        CHECK_EQ_I64(has(PEER, gpu(2), gpu(0)), 0);
        CHECK_EQ_I64(has(POOL, gpu(0), gpu(2)), 0);
    }
    return NULL;
}

static void *set_on_and_on(void *argument)
{
    int i;
    for (i = 0; i < 200; ++i)
        turn(PEER, gpu(0), gpu(1), (i + (int)(uintptr_t)argument) & 1);
    return NULL;
}

PROCESS_TEST(threads_set_and_read)
{
    pthread_t readers[3], setters[3];
    uint64_t answers[3][2] = {{0}};
    int i;
    start_on("h200x2,gpus=3");
    turn(PEER, gpu(0), gpu(2), 1);
    for (i = 0; i < 3; ++i) {
        REQUIRE(pthread_create(&readers[i], NULL, read_on_and_on, answers[i]) == 0);
        REQUIRE(pthread_create(&setters[i], NULL, set_on_and_on, (void *)(uintptr_t)i) == 0);
    }
    for (i = 0; i < 3; ++i)
        pthread_join(setters[i], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 3; ++i) {
        pthread_join(readers[i], NULL);
        CHECK(answers[i][0] + answers[i][1] > 0);
    }
    turn(PEER, gpu(0), gpu(1), 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    /* One byte of each target was enough for all. */
    CHECK(SIMULATOR(warpsim_live_count)("default") <= 3);
}

/* ---- What goes wrong -------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(every_call_of_the_driver_may_fail)
{
    static const uint32_t codes[] = {999, 2, 801};
    int on, what, i;
    size_t c;
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    SIMULATOR(cuCtxSetCurrent)(context_of(gpu(0)));
    for (c = 0; c < sizeof codes / sizeof *codes; ++c)
        for (i = 0; i < 2; ++i)
            for (on = 0; on < 2; ++on)
                for (what = 0; what < 4; ++what) {
                    const struct access *access = &kinds[i];
                    uint64_t nth;
                    for (nth = 1; nth < 100; ++nth) {
                        warp_status status;
                        warp_scope *scope = NULL;
                        uint8_t answer = 9;
                        uint64_t before;
                        turn(access, gpu(0), gpu(1), !on);
                        before = calls("*");
                        SIMULATOR(warpsim_fail)("*", nth, codes[c]);
                        switch (what) {
                        case 0: status = access->query(gpu(0), gpu(1), &answer); break;
                        case 1: status = access->set(gpu(0), gpu(1), (uint8_t)on); break;
                        case 2: status = access->set_for(gpu(0), NULL, 0, (uint8_t)on); break;
                        default: status = access->begin(gpu(0), gpu(1), (uint8_t)on, &scope); break;
                        }
                        SIMULATOR(warpsim_fail_clear)();
                        if (status != WARP_SUCCESS && what == 0)
                            CHECK_EQ_U64(answer, 0);
                        if (status != WARP_SUCCESS)
                            CHECK(strlen(warp_error_get_message()) > 10);
                        /* All or none, whatever failed. Guards put back what they can. */
                        CHECK_EQ_I64(has(access, gpu(0), gpu(1)), status == WARP_SUCCESS && what != 0 ? on : !on);
                        if (scope != NULL)
                            CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
                        if (check_failure_count() != 0) {
                            printf("\n    %s, on %d, what %d, call %d, code %u", access->name, on, what, (int)nth, codes[c]);
                            return;
                        }
                        SIMULATOR(cuCtxSetCurrent)(context_of(gpu(0)));
                        if (calls("*") - before < nth)
                            break;
                    }
                    CHECK(nth > 3 && nth < 100);
                }
}

PROCESS_TEST(the_first_question_needs_a_byte_that_may_not_be_had)
{
    uint8_t answer = 9;
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    peer_outside(0, 1, 1);
    SIMULATOR(warpsim_fail)("cuMemAlloc_v2", 1, 2);
    CHECK_STATUS(PEER->query(gpu(0), gpu(1), &answer), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_U64(answer, 0);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:0\"");
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_context_that_is_reset_loses_what_it_had)
{
    warp_device *lost;
    uint8_t answer = 9;
    int side;
    start_on("h200x2");
    for (side = 0; side < 2; ++side) {
        turn(PEER, gpu(0), gpu(1), 1);
        turn(PEER, gpu(1), gpu(0), 1);
        lost = gpu(side);
        CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(side), 0);
        if (side)
            CHECK_STATUS(PEER->query(lost, gpu(0), &answer), WARP_ERROR_DEVICE_LOST);
        else
            CHECK_STATUS(PEER->query(gpu(1), lost, &answer), WARP_ERROR_DEVICE_LOST);
        CHECK_EQ_U64(answer, 0);
        CHECK_STATUS(PEER->set(lost, gpu(!side), 1), WARP_ERROR_DEVICE_LOST);
        CHECK_STATUS(PEER->set(gpu(!side), lost, 0), WARP_ERROR_DEVICE_LOST);
        CHECK(gpu(side) != lost);
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
        CHECK_EQ_I64(has(PEER, gpu(1), gpu(0)), 0);
        check_pair(PEER, gpu(0), gpu(1));
        check_pair(PEER, gpu(1), gpu(0));
    }
}

PROCESS_TEST(bad_arguments_are_told_apart)
{
    warp_stream *stream;
    warp_scope *scope = (warp_scope *)1;
    int i;
    start_on("h200x2");
    stream = stream_of(gpu(0));
    for (i = 0; i < 2; ++i) {
        const struct access *access = &kinds[i];
        warp_device *bad[] = {(warp_device *)64, (warp_device *)stream, (warp_device *)(uintptr_t)0xfffffffffffffff8u};
        size_t b;
        CHECK_STATUS(access->is_supported(gpu(0), gpu(1), NULL), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(access->query(gpu(0), gpu(1), NULL), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(access->begin(gpu(0), gpu(1), 1, NULL), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_I64(has(access, gpu(0), gpu(1)), 0);
        for (b = 0; b < sizeof bad / sizeof *bad; ++b) {
            uint8_t answer = 9;
            CHECK_STATUS(access->is_supported(bad[b], gpu(1), &answer), WARP_ERROR_INVALID_HANDLE);
            CHECK_EQ_U64(answer, 0);
            answer = 9;
            CHECK_STATUS(access->query(gpu(1), bad[b], &answer), WARP_ERROR_INVALID_HANDLE);
            CHECK_EQ_U64(answer, 0);
            CHECK_STATUS(access->set(bad[b], gpu(1), 1), WARP_ERROR_INVALID_HANDLE);
            CHECK_STATUS(access->set(gpu(1), bad[b], 0), WARP_ERROR_INVALID_HANDLE);
            CHECK_STATUS(access->begin(bad[b], gpu(1), 1, &scope), WARP_ERROR_INVALID_HANDLE);
            CHECK_EQ_PTR(scope, NULL);
        }
    }
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    {
        uint8_t answer = 9;
        CHECK_STATUS(PEER->query(NULL, NULL, &answer), WARP_ERROR_SHUT_DOWN);
        CHECK_STATUS(PEER->set(NULL, NULL, 1), WARP_ERROR_SHUT_DOWN);
    }
    /* Access is the driver's: it outlives the library, and the next life reads it. */
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    turn(PEER, gpu(0), gpu(1), 1);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
}

static void use_in_child(void *unused)
{
    int i;
    (void)unused;
    for (i = 0; i < 2; ++i) {
        const struct access *access = &kinds[i];
        uint8_t answer = 9;
        warp_scope *scope = (warp_scope *)1;
        check_cpu_answers(access, cpu());
        CHECK_STATUS(access->is_supported(gpu(0), gpu(1), &answer), WARP_ERROR_FORKED);
        CHECK_STATUS(access->query(gpu(0), gpu(1), &answer), WARP_ERROR_FORKED);
        CHECK_EQ_U64(answer, 0);
        CHECK_STATUS(access->set(gpu(0), gpu(1), 1), WARP_ERROR_FORKED);
        CHECK_STATUS(access->set(gpu(0), gpu(1), 0), WARP_ERROR_FORKED);
        CHECK_STATUS(access->set_for(gpu(0), NULL, 0, 1), WARP_ERROR_FORKED);
        CHECK_STATUS(access->begin(gpu(0), gpu(1), 0, &scope), WARP_ERROR_FORKED);
        CHECK_EQ_PTR(scope, NULL);
    }
    use_cpu();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

PROCESS_TEST(a_forked_child_is_refused)
{
    start_on("h200x2");
    turn(PEER, gpu(0), gpu(1), 1);
    turn(POOL, gpu(0), gpu(1), 1);
    in_child(use_in_child, NULL, 60);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 1);
}

/* ---- The report ------------------------------------------------------------------------------------------------------------ */

struct heard {
    char messages[4][512];
    int levels[4], count;
};

static void listen(void *user, warp_log_level level, const char *message)
{
    struct heard *heard = user;
    if (heard->count < 4) {
        heard->levels[heard->count] = level;
        snprintf(heard->messages[heard->count], sizeof heard->messages[0], "%s", message);
    }
    ++heard->count;
}

static struct heard start_and_hear(const char *topology)
{
    static struct heard heard;
    warp_init_options options = {.struct_size = sizeof options, .log = listen, .log_user = &heard};
    setenv("WARPSIM_TOPOLOGY", topology, 1);
    CHECK_STATUS(warp_init(&options, NULL), WARP_SUCCESS);
    return heard;
}

PROCESS_TEST(the_report_of_full_support)
{
    CHECK_EQ_I64(start_and_hear("discrete").count, 0);
    check_report("warpmem 0.1.0 initialized:\n"
                 "   CUDA Driver 13.0\n"
                 "   Devices:\n"
                 "     \"cpu\"      : \"%s\"\n"
                 "     \"cuda:0\"   : \"Simulated Discrete GPU\" (24 GiB, sm_86, mempool enabled)\n"
                 "     \"cuda:1\"   : \"Simulated Discrete GPU\" (24 GiB, sm_86, mempool enabled)\n"
                 "   CUDA peer access:\n"
                 "     Supported fully (all-directional)\n");
}

PROCESS_TEST(the_report_of_partial_support)
{
    CHECK_EQ_I64(start_and_hear("partial").count, 0);
    CHECK_STR_CONTAINS(report(), "   CUDA peer access:\n"
                                 "     Supported partially (see access matrix)\n"
                                 "     \"cuda:0\"   : [1, 1, 0, 0]\n"
                                 "     \"cuda:1\"   : [1, 1, 0, 0]\n"
                                 "     \"cuda:2\"   : [1, 0, 1, 1]\n"
                                 "     \"cuda:3\"   : [0, 0, 1, 1]\n");
    /* What is enabled is no part of it. */
    {
        char before[8192];
        snprintf(before, sizeof before, "%s", report());
        turn(PEER, gpu(0), gpu(1), 1);
        CHECK_EQ_STR(report(), before);
    }
}

PROCESS_TEST(the_report_of_no_support)
{
    CHECK_EQ_I64(start_and_hear("discrete,peers=0").count, 0);
    CHECK_STR_CONTAINS(report(), "   CUDA peer access:\n     Not supported\n");
    CHECK(strstr(report(), "matrix") == NULL);
}

PROCESS_TEST(devices_without_pools_are_warned_of)
{
    struct heard heard = start_and_hear("h200x2,gpus=3,gpu0.pools=0,gpu2.pools=0");
    CHECK_EQ_I64(heard.count, 1);
    CHECK_EQ_I64(heard.levels[0], WARP_LOG_WARNING);
    CHECK_STR_CONTAINS(heard.messages[0], "memory pools was not detected on devices [\"cuda:0\", \"cuda:2\"]");
    CHECK_STR_CONTAINS(heard.messages[0], "CUDA graphs");
    CHECK_STR_CONTAINS(heard.messages[0], "UVM driver");
    CHECK_STR_CONTAINS(report(), "mempool not supported");
}

PROCESS_TEST(devices_without_unified_addressing_are_warned_of)
{
    struct heard heard = start_and_hear("mixed,gpu0.uva=0");
    CHECK_EQ_I64(heard.count, 2);
    CHECK_EQ_I64(heard.levels[0], WARP_LOG_WARNING);
    CHECK_STR_CONTAINS(heard.messages[0], "Unified Virtual Addressing (UVA) was not detected on devices [\"cuda:0\"]");
    CHECK_EQ_I64(heard.levels[1], WARP_LOG_WARNING);
    CHECK_STR_CONTAINS(heard.messages[1], "on devices [\"cuda:1\"]");
}

CHECK_MAIN()
