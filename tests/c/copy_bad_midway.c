/*
 * copy_bad_midway.c: copies in the middle of which a call of the driver fails, or memory runs out.
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

/* Where there is no memory for all of a copy that goes by way of other memory, it goes in smaller steps. */
TEST(temporary_memory_that_is_short)
{
    enum { ROWS = 5000, ROW = 300, APART = 400 }; /* a million and a half of bytes in two */
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_UNKNOWN, WARP_MEMORY_HOST};
    static const uint64_t room[] = {3 * MIB, MIB + 1, MIB, 4096};
    const int64_t shape[2] = {ROWS, ROW}, strides[2] = {APART, 1};
    const uint64_t size = (uint64_t)ROWS * APART;
    unsigned char *got, *expected;
    size_t from, to, k, went = 0, short_of = 0;
    if (check_under("valgrind"))
        SKIP("megabytes by kernels take minutes there");
    REQUIRE(start());
    got = (unsigned char *)malloc(size);
    expected = (unsigned char *)malloc(size);
    for (from = 0; from < 3; ++from)
        for (to = 0; to < 3; ++to) {
            warp_device *devices[2] = {from == 2 ? cpu() : gpu(1), to == 2 ? cpu() : gpu(0)};
            unsigned char *blocks[2] = {(unsigned char *)block_of(devices[0], size, kinds[from]), (unsigned char *)block_of(devices[1], size, kinds[to])};
            warp_array *arrays[2] = {NULL, NULL};
            warp_array_wrap_options options = {.struct_size = sizeof options, .strides = strides};
            for (k = 0; k < 2; ++k)
                CHECK_STATUS(warp_array_wrap(devices[k], blocks[k], warp_dtype_make(WARP_DTYPE_UINT, 8), 2, shape, &options, &arrays[k]), WARP_SUCCESS);
            for (k = 0; k < sizeof room / sizeof *room; ++k) {
                warp_statistics before[2] = {statistics_of(gpu(0), WARP_MEMORY_UNKNOWN), statistics_of(gpu(1), WARP_MEMORY_UNKNOWN)};
                warp_status status;
                int64_t row;
                int g;
                put_pattern(blocks[0], size, 10 * k + from);
                put_pattern(blocks[1], size, 100 + to);
                CHECK_STATUS(warp_memory_copy(got, blocks[0], size, NULL), WARP_SUCCESS);
                CHECK_STATUS(warp_memory_copy(expected, blocks[1], size, NULL), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
                for (row = 0; row < ROWS; ++row)
                    memcpy(expected + row * APART, got + row * APART, ROW);
                SIMULATOR(warpsim_out_of_memory_at_size)(room[k]);
                status = warp_array_copy(arrays[1], arrays[0], 0, 0, 0, NULL);
                SIMULATOR(warpsim_out_of_memory_at_size)(0);
                CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
                if (status == WARP_SUCCESS) {
                    ++went;
                    CHECK_STATUS(warp_memory_copy(got, blocks[1], size, NULL), WARP_SUCCESS);
                    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
                    CHECK(memcmp(got, expected, size) == 0);
                } else {
                    /* Not for want of as much as the smallest step. */
                    ++short_of;
                    CHECK(room[k] <= MIB);
                    CHECK_STATUS(status, WARP_ERROR_OUT_OF_MEMORY);
                }
                for (g = 0; g < 2; ++g)
                    CHECK_EQ_U64(statistics_of(gpu(g), WARP_MEMORY_UNKNOWN).live_blocks, before[g].live_blocks);
            }
            for (k = 0; k < 2; ++k) {
                release(arrays[k]);
                CHECK_STATUS(warp_free(blocks[k]), WARP_SUCCESS);
            }
        }
    CHECK(went >= 18);
    printf("\n    %u went, %u were short", (unsigned)went, (unsigned)short_of);
    free(got);
    free(expected);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
