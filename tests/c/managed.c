/*
 * managed.c: managed memory where a GPU has none, where the CPU may not touch it while the GPU works, and beside captures.
 * Cases MG-01 and MG-02; who may touch it is in access.c.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "blocks.h"
#include "captures.h"

#include <pthread.h>

#define I32 (warp_dtype_make(WARP_DTYPE_INT, 32))

static warp_status try_managed(warp_device *device, warp_stream *stream, void **out)
{
    warp_alloc_options options = options_of(WARP_MEMORY_CUDA_MANAGED, stream);
    *out = (void *)1;
    return warp_alloc_with(device, 4096, &options, out);
}

static void check_managed_works(warp_device *device)
{
    void *ptr = NULL;
    CHECK_STATUS(try_managed(device, NULL, &ptr), WARP_SUCCESS);
    CHECK_EQ_I64(pointer_info(ptr).kind, WARP_MEMORY_CUDA_MANAGED);
    CHECK_EQ_PTR(pointer_info(ptr).device, device);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
}

PROCESS_TEST(a_gpu_without_managed_memory_says_what_it_lacks_and_the_other_has_it)
{
    /* MG-02. No context is current: the device that is named is the one that is meant. */
    const int64_t four = 4;
    warp_array_options options = {.struct_size = sizeof options, .kind = WARP_MEMORY_CUDA_MANAGED};
    warp_array *array = (warp_array *)1;
    uint64_t asked;
    void *ptr;
    int round;
    start_on("h200x2,gpu1.managed=0");
    for (round = 0; round < 2; ++round) {
        asked = calls("cuMemAllocManaged");
        CHECK_STATUS(try_managed(gpu(1), NULL, &ptr), WARP_ERROR_NOT_SUPPORTED);
        CHECK_EQ_PTR(ptr, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:1\"");
        CHECK_STR_CONTAINS(warp_error_get_message(), "managed memory");
        CHECK_STATUS(warp_array_zeros(gpu(1), I32, 1, &four, &options, &array), WARP_ERROR_NOT_SUPPORTED);
        CHECK_EQ_PTR(array, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "managed memory");
        CHECK_EQ_U64(calls("cuMemAllocManaged"), asked);
        check_managed_works(gpu(0));
        CHECK_EQ_PTR(driver_current(), NULL);
        /* Another GPU's context makes no difference. */
        CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context_of(gpu(1))), 0);
        check_managed_works(gpu(0));
        CHECK_EQ_PTR(driver_current(), context_of(gpu(1)));
        CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    }
    CHECK_NOTHING_LEFT();
}

static void *use_managed(void *device)
{
    check_managed_works((warp_device *)device);
    return NULL;
}

PROCESS_TEST(a_capture_gets_none_and_blocks_nobody_else)
{
    /* MG-02. */
    static const int modes[] = {WARP_CAPTURE_GLOBAL, WARP_CAPTURE_THREAD_LOCAL, WARP_CAPTURE_RELAXED};
    warp_stream *stream, *other;
    void *before, *ptr;
    size_t m;
    start_on("h200x2,gpus=3,gpu1.managed=0");
    stream = new_stream(gpu(0), 0);
    other = new_stream(gpu(2), 0);
    before = block_of(gpu(0), 4096, WARP_MEMORY_CUDA_MANAGED);
    for (m = 0; m < 3; ++m) {
        warp_graph *graph;
        pthread_t thread;
        uint64_t asked = calls("cuMemAllocManaged");
        CHECK_STATUS(warp_capture_begin(stream, modes[m]), WARP_SUCCESS);
        CHECK_STATUS(try_managed(gpu(0), stream, &ptr), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_EQ_PTR(ptr, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "MANAGED");
        /* A GPU that has none lacks it in a capture as well. */
        CHECK_STATUS(try_managed(gpu(1), NULL, &ptr), WARP_ERROR_NOT_SUPPORTED);
        CHECK_EQ_U64(calls("cuMemAllocManaged"), asked);
        /* Elsewhere there is some: on another GPU of this thread, and of other threads, in any context. */
        check_managed_works(gpu(2));
        CHECK_STATUS(try_managed(gpu(2), other, &ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        REQUIRE(pthread_create(&thread, NULL, use_managed, gpu(2)) == 0);
        pthread_join(thread, NULL);
        REQUIRE(pthread_create(&thread, NULL, use_managed, gpu(0)) == 0);
        pthread_join(thread, NULL);
        /* The capture goes on. */
        fill_byte(before, (unsigned char)(m + 1), 4096, stream);
        graph = end(stream);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK(holds(before, (unsigned char)(m + 1), 4096, stream));
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(before), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(arrays_of_managed_memory_are_not_touched_by_the_host)
{
    /* MG-01: while a kernel runs that uses other buffers, the pages are closed, and a touch is a fault. */
    const int64_t eight[1] = {8}, every_other[1] = {2};
    const int32_t seven = 7, nine = 9;
    int32_t numbers[8];
    warp_array_options options = {.struct_size = sizeof options, .kind = WARP_MEMORY_CUDA_MANAGED};
    warp_array *zeros = NULL, *ones = NULL, *full = NULL, *strided = NULL, *there = NULL, *here = NULL;
    warp_launch_argument argument = {.name = "m", .kind = WARP_LAUNCH_ARRAY};
    warp_array_info info = {.struct_size = sizeof info};
    warp_stream *busy;
    uint8_t can = 9;
    int i;
    start_on("h200x2,concurrent=0,host_direct=0");
    busy = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native_stream(busy)), 0);
    CHECK_STATUS(warp_array_zeros(gpu(0), I32, 1, eight, &options, &zeros), WARP_SUCCESS);
    CHECK_STATUS(warp_array_ones(gpu(0), I32, 1, eight, &options, &ones), WARP_SUCCESS);
    CHECK_STATUS(warp_array_full(gpu(0), I32, 1, eight, &seven, &options, &full), WARP_SUCCESS);
    CHECK_STATUS(warp_array_slice(zeros, 1, NULL, NULL, every_other, &strided), WARP_SUCCESS);
    CHECK_STATUS(warp_array_fill(strided, &nine, sizeof nine, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_copy(ones, full, 4, 0, 4, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_clone(ones, gpu(1), NULL, &there), WARP_SUCCESS);
    CHECK_STATUS(warp_array_clone(there, cpu(), NULL, &here), WARP_SUCCESS);
    argument.value = full;
    CHECK_STATUS(warp_access_can(cpu(), full, &can), WARP_SUCCESS);
    CHECK_EQ_U64(can, 0);
    CHECK_STATUS(warp_launch_check(cpu(), "k", &argument, 1, sizeof argument, WARP_LAUNCH_CHECKED, NULL), WARP_ERROR_ACCESS_DENIED);
    CHECK_STATUS(warp_launch_check(gpu(0), "k", &argument, 1, sizeof argument, WARP_LAUNCH_CHECKED, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_get_info(zeros, &info), WARP_SUCCESS);
    copy_now(numbers, info.data, sizeof numbers, NULL);
    for (i = 0; i < 8; ++i)
        CHECK_EQ_I64(numbers[i], i % 2 ? 0 : 9);
    CHECK_STATUS(warp_array_get_info(here, &info), WARP_SUCCESS);
    for (i = 0; i < 8; ++i)
        CHECK_EQ_I64(((const int32_t *)info.data)[i], i < 4 ? 1 : 7);
    CHECK_STATUS(warp_array_release(strided), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(zeros), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(ones), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(full), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(there), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(here), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_release)(native_stream(busy)), 0);
    CHECK_STATUS(warp_stream_release(busy), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
