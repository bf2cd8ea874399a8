/*
 * copy_bad_midway.c: copies in the middle of which a call of the driver fails.
 *
 * topology: h200x2
 * topology: discrete,peers=0
 * topology: mixed
 * needs: simulator
 */
#define _POSIX_C_SOURCE 200809L
#include "copy_refused.h"

/* Calls of the driver that fail leave no temporary memory behind, and the next copy is right. */
TEST(copies_that_fail_half_way_leave_nothing)
{
    static const char *const entries[] = {"cuLaunchKernel", "cuMemcpyAsync", "cuMemcpyPeerAsync", "cuMemcpy2DAsync_v2", "cuMemAllocFromPoolAsync",
                                          "cuMemAllocAsync", "cuMemAlloc_v2", "cuEventRecord", "cuStreamWaitEvent", "cuModuleLoadData",
                                          "cuModuleLoadDataEx", "cuModuleGetFunction", "cuCtxSetCurrent", "cuStreamIsCapturing",
                                          "cuPointerGetAttributes", "cuEventCreate", "cuMemHostAlloc"};
    static const int pairs[][2] = {{GPU_A, GPU_B}, {GPU_A, HOST_B}, {HOST_A, GPU_B}, {FAR_AWAY, GPU_B}, {GPU_A, FAR_AWAY}, {GPU_A, PINNED}};
    const int64_t shape[2] = {5, 6}, to_strides[2] = {40, 5}, from_strides[2] = {4, 24};
    size_t e, i;
    uint64_t met = 0, nth;
    begin();
    for (i = 0; i < sizeof pairs / sizeof *pairs; ++i) {
        warp_array *dest = array_in(pairs[i][0], 3, 4, 2, shape, to_strides), *src = array_in(pairs[i][1], 1, 4, 2, shape, from_strides);
        for (e = 0; e < sizeof entries / sizeof *entries; ++e)
            for (nth = 1; nth < (check_under("valgrind") ? 3 : 6); ++nth) {
                warp_statistics before = statistics_of(gpu(0), WARP_MEMORY_UNKNOWN), far_before = statistics_of(gpu(1), WARP_MEMORY_UNKNOWN), after;
                int failures = check_failure_count(), r, c;
                unsigned char now[SIZE];
                warp_status status;
                SIMULATOR(warpsim_log_clear)();
                SIMULATOR(warpsim_fail)(entries[e], nth, 999);
                status = warp_array_copy(dest, src, 0, 0, 0, NULL);
                met += (uint64_t)SIMULATOR(warpsim_log_contains)("planned");
                if (status != WARP_SUCCESS)
                    CHECK(strlen(warp_error_get_message()) > 20);
                SIMULATOR(warpsim_fail_clear)();
                /* What is put back by the call that fails is not. */
                if (strcmp(entries[e], "cuCtxSetCurrent") != 0)
                    CHECK_EQ_PTR(driver_current(), NULL);
                SIMULATOR(cuCtxSetCurrent)(NULL);
                CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
                CHECK_STATUS(warp_array_copy(dest, src, 0, 0, 0, NULL), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
                for (r = 0; r < 5; ++r)
                    for (c = 0; c < 6; ++c)
                        memcpy(held[pairs[i][0]] + 3 + 40 * r + 5 * c, held[pairs[i][1]] + 1 + 4 * r + 24 * c, 4);
                look(pairs[i][0], now);
                CHECK(memcmp(now, held[pairs[i][0]], SIZE) == 0);
                after = statistics_of(gpu(0), WARP_MEMORY_UNKNOWN);
                CHECK_EQ_U64(after.live_blocks, before.live_blocks);
                after = statistics_of(gpu(1), WARP_MEMORY_UNKNOWN);
                CHECK_EQ_U64(after.live_blocks, far_before.live_blocks);
                if (check_failure_count() != failures)
                    printf("\n      call %" PRIu64 " of %s, from place %d to %d", nth, entries[e], pairs[i][1], pairs[i][0]);
                if (check_failure_count() > 20)
                    return;
            }
        release(dest);
        release(src);
    }
    CHECK(met > (check_under("valgrind") ? 20u : 50u));
    finish();
}

CHECK_MAIN()
