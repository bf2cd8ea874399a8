/*
 * allocator_bad.c: allocators that fail and that lie, frees that are wrong, and a driver that fails under all of it. Whatever
 * happens, the status says who failed, the message names the way out, and no memory is lost or given back twice.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "access.h"
#include "allocators.h"

static struct recorder r;

static void begin_with(warp_memory_kind kind, uint32_t flags, warp_memory_kind below)
{
    memset(&r, 0, sizeof r);
    r.name = "liar";
    r.kind = kind;
    r.flags = flags;
    REQUIRE(start());
    created(&r, below);
}

static void end_it(void)
{
    let_go(&r);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_OVER(&r);
    CHECK_EQ_PTR(driver_current(), NULL);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* An allocation that must fail, for which the allocator gets its memory back so often. */
static void refused_at(warp_device *device, uint64_t size, warp_status status, const char *says, uint64_t given_back, int line)
{
    uint64_t blocks = statistics_of(device, 0).live_blocks, deallocates = r.deallocates, live = live_of(r.handle);
    void *ptr = NULL;
    int failures = check_failure_count();
    CHECK_STATUS(try_by(device, r.handle, size, NULL, &ptr), status);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "liar");
    CHECK_STR_CONTAINS(warp_error_get_message(), says);
    CHECK_EQ_U64(r.deallocates, deallocates + given_back);
    CHECK_EQ_U64(statistics_of(device, 0).live_blocks, blocks);
    CHECK_EQ_U64(live_of(r.handle), live);
    CHECK_EQ_PTR(driver_current(), NULL);
    if (check_failure_count() != failures)
        printf("\n      in line %d", line);
}
#define REFUSED(device, size, status, says, given_back) refused_at((device), (size), (status), (says), (given_back), __LINE__)
#define FAILED WARP_ERROR_ALLOCATOR_FAILED

TEST(statuses)
{
    static const warp_status statuses[] = {1,   2,   3,   4,   5,   6,   7,    8,    9,    10,        11,       12,
                                           13,  14,  15,  16,  17,  18,  100,  102,  103,  200,       900,      901,
                                           -1,  -7,  255, 256, 999, 1 << 20,   INT32_MAX, INT32_MIN};
    size_t i;
    begin_with(0, 0, WARP_MEMORY_CUDA_DEVICE);
    for (i = 0; i < sizeof statuses / sizeof *statuses; ++i) {
        char number[16];
        snprintf(number, sizeof number, "%d", statuses[i]);
        r.allocate_status = statuses[i];
        for (r.gives_null = 0; r.gives_null < 2; ++r.gives_null)
            REFUSED(gpu(0), 4096, FAILED, number, 0);
    }
    r.gives_null = 0;
    CHECK_EQ_U64(r.trims, 0);
    /* Out of memory is its own, and is asked once more. */
    r.allocates = 0;
    r.allocate_status = WARP_ERROR_OUT_OF_MEMORY;
    REFUSED(gpu(0), 4096, WARP_ERROR_OUT_OF_MEMORY, "trimmed and asked twice", 0);
    CHECK_EQ_U64(r.allocates, 2);
    CHECK_EQ_U64(r.trims, 1);
    CHECK_EQ_U64(r.trimmed.size, 4096);
    CHECK_EQ_U64(r.allocated.flags, WARP_ALLOC_REQUEST_RETRY);
    /* Success without memory. */
    r.allocate_status = 0;
    r.gives_null = 1;
    REFUSED(gpu(0), 4096, FAILED, "gave NULL", 0);
    r.gives_null = 0;
    CHECK_EQ_U64(r.deallocates, 0);
    end_it();
}

TEST(addresses_that_cannot_be_used)
{
    warp_alloc_request request = {.struct_size = sizeof request, .size = 8192, .stream = NULL};
    void *reserve = NULL, *far = NULL, *foreign, *foreign_far, *host, *pinned;
    begin_with(0, 0, WARP_MEMORY_CUDA_DEVICE);
    request.device = gpu(0);
    CHECK_STATUS(warp_allocator_allocate(r.below, &request, &reserve), WARP_SUCCESS);
    request.device = gpu(1);
    CHECK_STATUS(warp_allocator_allocate(r.below, &request, &far), WARP_SUCCESS);
    foreign = foreign_plain(context_of(gpu(0)), 8192);
    foreign_far = foreign_plain(context_of(gpu(1)), 8192);
    pinned = foreign_pinned(context_of(gpu(0)), 8192);
    host = aligned_alloc(4096, 8192);

    r.gives = (char *)reserve + 8;
    REFUSED(gpu(0), 64, FAILED, "not aligned to 256", 1);
    r.gives = (char *)foreign + 128;
    REFUSED(gpu(0), 64, FAILED, "not aligned to 256", 1);
    r.gives = (char *)reserve + 4096;
    REFUSED(gpu(0), 4097, FAILED, "4096 bytes before the end", 1);
    r.gives = (char *)foreign + 4096;
    REFUSED(gpu(0), 4097, FAILED, "4096 bytes before the end", 1);
    r.gives = far;
    REFUSED(gpu(0), 64, FAILED, "\"cuda:1\"", 1);
    r.gives = foreign_far;
    REFUSED(gpu(0), 64, FAILED, "GPU 1", 1);
    r.gives = host;
    REFUSED(gpu(0), 64, FAILED, "nothing that the driver knows", 1);
    r.gives = at(0x1000);
    REFUSED(gpu(0), 64, FAILED, "nothing that the driver knows", 1);
    r.gives = at(~(uint64_t)0xFFF);
    REFUSED(gpu(0), 4096, FAILED, "past the end of the address space", 1);
    REFUSED(gpu(0), 8192, FAILED, "past the end of the address space", 1);
    r.gives = pinned;
    {
        void *ptr = NULL;
        warp_status status = try_by(gpu(0), r.handle, 64, NULL, &ptr);
        CHECK_STATUS(status, FAILED);
        CHECK_EQ_U64(r.outs, 0);
    }
    /* What fits to the byte is fine. */
    r.gives = (char *)foreign + 4096;
    {
        void *ptr = block_by(gpu(0), r.handle, 4096, NULL);
        CHECK_EQ_PTR(ptr, r.gives);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    }
    r.gives = NULL;
    request.device = NULL;
    CHECK_STATUS(warp_allocator_deallocate(r.below, reserve, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_deallocate(r.below, far, NULL), WARP_SUCCESS);
    IN(context_of(gpu(0)), DRIVER(cuMemFree_v2, address_of(foreign)); DRIVER(cuMemFreeHost, pinned));
    IN(context_of(gpu(1)), DRIVER(cuMemFree_v2, address_of(foreign_far)));
    free(host);
    end_it();
}

/* What is in use already: nobody's block changes, and the liar does not get it back. */
TEST(addresses_that_are_in_use)
{
    struct recorder other = {.name = "other"};
    void *own, *builtin_block, *others, *arena;
    warp_pointer_info before[3];
    void *blocks[3];
    int i, where;
    begin_with(0, 0, WARP_MEMORY_CUDA_DEVICE);
    created(&other, WARP_MEMORY_CUDA_DEVICE);
    arena = foreign_plain(context_of(gpu(0)), 16384);
    r.gives = (char *)arena + 4096;
    blocks[0] = own = block_by(gpu(0), r.handle, 4096, NULL);
    r.gives = NULL;
    blocks[1] = builtin_block = block_of(gpu(0), 4096, WARP_MEMORY_CUDA_DEVICE);
    blocks[2] = others = block_by(gpu(0), other.handle, 4096, NULL);
    for (i = 0; i < 3; ++i)
        before[i] = pointer_info(blocks[i]);
    for (i = 0; i < 3; ++i)
        for (where = -1; where < 2; ++where) { /* across its first byte, the same, inside */
            void *ptr = NULL;
            uint64_t freed = r.deallocates, failures = (uint64_t)check_failure_count();
            warp_pointer_info info;
            if (i != 0 && where != 0)
                continue; /* past what the driver gave */
            r.gives = (char *)blocks[i] + where * 2048;
            CHECK_STATUS(try_by(gpu(0), r.handle, where < 0 ? 2049 : 1024, NULL, &ptr), FAILED);
            CHECK_EQ_PTR(ptr, NULL);
            CHECK_STR_CONTAINS(warp_error_get_message(), "live block");
            CHECK_STR_CONTAINS(warp_error_get_message(), i == 0 ? "that it gave out before" : "warp_allocator_allocate");
            CHECK_EQ_U64(r.deallocates, freed);
            info = pointer_info(blocks[i]);
            CHECK_EQ_I64(memcmp(&info, &before[i], sizeof info), 0);
            /* Its own list has it now; it knows that it is not out. */
            r.outs -= 1;
            if (check_failure_count() != (int)failures)
                printf("\n      block %d, place %d", i, where);
        }
    CHECK_EQ_U64(live_of(r.handle), 1);
    CHECK_EQ_U64(statistics_of(gpu(0), 0).live_blocks, 3);
    r.gives = NULL;
    CHECK_STATUS(warp_free(builtin_block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(others), WARP_SUCCESS);
    CHECK_STATUS(warp_free(own), WARP_SUCCESS);
    let_go(&other);
    CHECK_OVER(&other);
    IN(context_of(gpu(0)), DRIVER(cuMemFree_v2, address_of(arena)));
    end_it();
}

TEST(host_memory_that_is_none)
{
    void *device_memory;
    begin_with(0, WARP_ALLOCATOR_HOST_MEMORY, WARP_MEMORY_HOST);
    device_memory = foreign_plain(context_of(gpu(0)), 8192);
    r.gives = device_memory;
    REFUSED(cpu(), 64, FAILED, "host memory", 1);
    IN(context_of(gpu(0)), DRIVER(cuMemFree_v2, address_of(device_memory)));
    r.gives = NULL;
    r.offset = 8;
    REFUSED(cpu(), 64, FAILED, "not aligned to 64", 1);
    r.offset = 0;
    r.gives_null = 1;
    REFUSED(cpu(), 64, FAILED, "gave NULL", 0);
    r.gives_null = 0;
    {
        void *ptr = block_by(cpu(), r.handle, 64, NULL);
        r.deallocate_status = -3;
        CHECK_STATUS(warp_free(ptr), FAILED);
        CHECK_STATUS(warp_free(ptr), WARP_ERROR_DOUBLE_FREE);
        r.deallocate_status = 0;
    }
    end_it();
}

TEST(deallocations_that_fail)
{
    static const warp_status statuses[] = {3, WARP_ERROR_OUT_OF_MEMORY, WARP_ERROR_ALLOCATOR_FAILED, WARP_ERROR_BUSY, -9};
    int64_t shape = 64;
    warp_array *array = NULL;
    warp_alloc_request request = {.struct_size = sizeof request, .size = 4096};
    void *ptr = NULL;
    size_t i;
    begin_with(0, 0, WARP_MEMORY_CUDA_DEVICE);
    for (i = 0; i < sizeof statuses / sizeof *statuses; ++i) {
        char number[16];
        ptr = block_by(gpu(0), r.handle, 4096, NULL);
        snprintf(number, sizeof number, "%d", statuses[i]);
        r.deallocate_status = statuses[i];
        CHECK_STATUS(warp_free(ptr), FAILED);
        CHECK_STR_CONTAINS(warp_error_get_message(), "liar");
        CHECK_STR_CONTAINS(warp_error_get_message(), number);
        CHECK_STR_CONTAINS(warp_error_get_message(), "not given to it again");
        CHECK_EQ_U64(r.deallocates, i + 1);
        CHECK_EQ_U64(allocator_info(r.handle).failed_deallocations, i + 1);
        CHECK_EQ_U64(statistics_of(gpu(0), 0).live_blocks, 0);
        CHECK_EQ_U64(live_of(r.handle), 0);
        CHECK_STATUS(warp_free(ptr), WARP_ERROR_DOUBLE_FREE);
        CHECK_EQ_U64(r.deallocates, i + 1);
        r.deallocate_status = 0;
    }
    /* Direct memory is no other. */
    request.device = gpu(0);
    CHECK_STATUS(warp_allocator_allocate(r.handle, &request, &ptr), WARP_SUCCESS);
    r.deallocate_status = 77;
    CHECK_STATUS(warp_allocator_deallocate(r.handle, ptr, NULL), FAILED);
    CHECK_EQ_U64(live_of(r.handle), 0);
    r.deallocate_status = 0;
    /* Late ones have nobody to tell but the log. */
    listen_to_log(WARP_LOG_ERROR);
    ptr = block_by(gpu(0), r.handle, 4096, NULL);
    SIMULATOR(warpsim_hold)(native_stream(stream_of(gpu(0))));
    CHECK_STATUS(warp_memory_fill(ptr, 4096, "x", 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    r.deallocate_status = 78;
    SIMULATOR(warpsim_release_all)();
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STR_CONTAINS(logged_text, "78");
    CHECK_EQ_I64(logged_lines, 1);
    /* Of an array, it is gone all the same. */
    r.deallocate_status = 0;
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), r.handle), WARP_SUCCESS);
    CHECK_STATUS(warp_array_zeros(gpu(0), F32, 1, &shape, NULL, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    r.deallocate_status = 79;
    warp_array_release(array);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(statistics_of(gpu(0), 0).live_blocks, 0);
    CHECK_EQ_U64(allocator_info(r.handle).failed_deallocations, 8);
    CHECK_STATUS(warp_array_release(array), WARP_ERROR_INVALID_HANDLE);
    r.deallocate_status = 0;
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
    end_it();
}

/* A callback that fails to note a stream is waited for instead; one that cannot trim is asked all the same. */
TEST(other_callbacks_that_fail)
{
    warp_stream *stream;
    void *ptr;
    begin_with(0, WARP_ALLOCATOR_STREAM_ORDERED, WARP_MEMORY_CUDA_MEMPOOL);
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    ptr = block_by(gpu(0), r.handle, 4096, NULL);
    CHECK_STATUS(warp_pointer_record_stream(ptr, stream), WARP_SUCCESS);
    SIMULATOR(warpsim_hold)(native_stream(stream));
    CHECK_STATUS(warp_memory_fill(ptr, 4096, "y", 1, stream), WARP_SUCCESS);
    r.record_status = WARP_ERROR_BUSY;
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.records, 1);
    CHECK_EQ_U64(r.deallocates, 0);
    SIMULATOR(warpsim_release_all)();
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 1);
    CHECK_EQ_U64(r.deallocated.flags, WARP_ALLOC_REQUEST_IDLE);
    listen_to_log(WARP_LOG_WARNING);
    r.out_of_memory = 1;
    r.trim_status = 5;
    ptr = block_by(gpu(0), r.handle, 4096, NULL);
    CHECK_STR_CONTAINS(logged_text, "could not be trimmed");
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    end_it();
}

/* A free that the driver refused half-way is made again, with a stream that it is to wait for. */
TEST(a_free_that_was_refused)
{
    static const char *const ways[] = {"cuCtxSetCurrent", "cuCtxGetCurrent", "cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing"};
    warp_free_options options = {.struct_size = sizeof options};
    warp_stream *other;
    uint64_t nth, refused = 0;
    size_t way;
    begin_with(0, WARP_ALLOCATOR_STREAM_ORDERED, WARP_MEMORY_CUDA_MEMPOOL);
    other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    for (way = 0; way < sizeof ways / sizeof *ways; ++way)
        for (nth = 1; nth < 10; ++nth) {
            void *ptr = block_by(gpu(0), r.handle, 4096, NULL);
            uint64_t deallocates = r.deallocates, records = r.records;
            if (nth % 2)
                CHECK_STATUS(warp_memory_fill(ptr, 4096, "w", 1, other), WARP_SUCCESS);
            SIMULATOR(warpsim_fail)(ways[way], nth, 999);
            if (warp_free(ptr) != WARP_SUCCESS) {
                SIMULATOR(warpsim_fail_clear)();
                ++refused;
                CHECK_EQ_I64(pointer_info(ptr).is_owned, 1);
                CHECK_EQ_U64(r.deallocates, deallocates);
                SIMULATOR(warpsim_hold)(native_stream(other));
                CHECK_STATUS(warp_memory_fill(ptr, 4096, "v", 1, other), WARP_SUCCESS);
                options.stream = other;
                CHECK_STATUS(warp_free_with(ptr, &options), WARP_SUCCESS);
                /* It was told of the stream, or has to wait. */
                CHECK(r.records != records || r.deallocates == deallocates);
                SIMULATOR(warpsim_release_all)();
            }
            SIMULATOR(warpsim_fail_clear)();
            SIMULATOR(cuCtxSetCurrent)(NULL);
            set_thread_mode(0);
            CHECK_STATUS(warp_stream_synchronize(other), WARP_SUCCESS);
            CHECK_EQ_U64(r.deallocates, deallocates + 1);
            if (check_failure_count() > 10)
                return;
        }
    CHECK(refused >= 4);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    end_it();
}

/* ---- Frees that are wrong ----------------------------------------------------------------------------------------------- */

TEST(wrong_frees)
{
    warp_free_options options = {.struct_size = sizeof options};
    unsigned char local[64];
    void *ptr;
    begin_with(WARP_MEMORY_CUDA_DEVICE, 0, WARP_MEMORY_CUDA_DEVICE);
    ptr = block_by(gpu(0), r.handle, 4096, NULL);
    CHECK_STATUS(warp_free((char *)ptr + 256), WARP_ERROR_INTERIOR_POINTER);
    CHECK_STATUS(warp_free((char *)ptr + 4096), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STATUS(warp_free(local), WARP_ERROR_UNKNOWN_POINTER);
    options.size = 4095;
    CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_SIZE_MISMATCH);
    options.size = 4096;
    options.alignment = 512;
    CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_BAD_ALIGNMENT);
    options.alignment = 256;
    options.stream = (warp_stream *)gpu(0);
    CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_INVALID_HANDLE);
    options.stream = NULL;
    CHECK_EQ_U64(r.deallocates, 0);
    CHECK_EQ_I64(pointer_info(ptr).is_owned, 1);
    CHECK_STATUS(warp_free_with(ptr, &options), WARP_SUCCESS);
    CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_DOUBLE_FREE);
    CHECK_STATUS(warp_free(ptr), WARP_ERROR_DOUBLE_FREE);
    CHECK_EQ_U64(r.deallocates, 1);
    CHECK_STATUS(warp_free(NULL), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 1);
    end_it();
}

/* ---- A driver that fails ------------------------------------------------------------------------------------------------ */

static const char *const entries[] = {
    "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxGetId", "cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing", "cuMemAlloc_v2",
    "cuMemAllocFromPoolAsync", "cuMemFree_v2", "cuMemFreeAsync", "cuStreamQuery", "cuEventCreate", "cuEventRecord", "cuEventQuery",
    "cuStreamWaitEvent", "cuPointerGetAttributes", "cuPointerGetAttribute", "cuMemsetD8Async", "cuStreamSynchronize",
    "cuCtxSynchronize"};
#define ENTRIES (sizeof entries / sizeof *entries)
static const uint32_t codes[] = {1, 2, 201, 719, 999};
#define CODES (sizeof codes / sizeof *codes)

static struct recorder ordered;
static warp_stream *streams[2];

#define BLOCKS 5
static void *blocks[BLOCKS];

/* Allocates, uses and frees through two allocators. What was not freed stays in the list. */
static int play(void)
{
    int told = 0, i;
    warp_array *array = NULL;
    int64_t shape = 100;
    for (i = 0; i < BLOCKS; ++i) {
        void *ptr = NULL;
        if (blocks[i] == NULL)
            told += try_by(gpu(i == 4), i % 2 ? ordered.handle : r.handle, 3000, i == 4 ? NULL : streams[i / 2], &ptr) != 0;
        else
            continue;
        if (ptr != NULL && i == 1)
            told += warp_memory_fill(ptr, 3000, "z", 1, streams[0]) != 0;
        if (ptr != NULL && i == 2) {
            told += warp_pointer_record_stream(ptr, streams[0]) != 0;
            SIMULATOR(warpsim_hold)(native_stream(streams[0]));
            told += warp_memory_fill(ptr, 3000, "z", 1, streams[0]) != 0;
        }
        if (ptr != NULL && i == 3)
            told += warp_pointer_record_stream(ptr, streams[0]) != 0;
        blocks[i] = ptr;
    }
    told += warp_array_zeros(gpu(0), F32, 1, &shape, NULL, &array) != 0;
    for (i = 0; i < BLOCKS; ++i)
        if (blocks[i] != NULL) {
            if (warp_free(blocks[i]) == WARP_SUCCESS) {
                blocks[i] = NULL;
            } else {
                ++told;
                CHECK_EQ_I64(pointer_info(blocks[i]).is_owned, 1); /* nothing was freed */
            }
        }
    if (array != NULL)
        told += warp_array_release(array) != 0;
    SIMULATOR(warpsim_release_all)();
    told += warp_stream_synchronize(streams[0]) != 0;
    return told;
}

static void new_streams(void)
{
    streams[0] = new_stream(gpu(0), 0);
    streams[1] = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
}

static void clear_up(void)
{
    int i;
    /* A context whose id cannot be asked is taken for a dead one, and its streams with it. */
    if (warp_stream_synchronize(streams[0]) == WARP_ERROR_DEVICE_LOST) {
        CHECK_STATUS(warp_stream_release(streams[0]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(streams[1]), WARP_SUCCESS);
        new_streams();
    }
    for (i = 0; i < BLOCKS; ++i) {
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
        blocks[i] = NULL;
    }
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
}

TEST(every_call_of_the_driver_fails)
{
    uint64_t before[ENTRIES], count, nth, met = 0;
    size_t e, c;
    begin_with(0, 0, WARP_MEMORY_CUDA_DEVICE);
    memset(&ordered, 0, sizeof ordered);
    ordered.name = "ordered";
    ordered.flags = WARP_ALLOCATOR_STREAM_ORDERED;
    created(&ordered, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), r.handle), WARP_SUCCESS);
    new_streams();
    CHECK_EQ_I64(play(), 0);
    clear_up();
    CHECK_EQ_I64(play(), 0);
    clear_up();
    for (e = 0; e < ENTRIES; ++e) {
        before[e] = calls(entries[e]);
        CHECK_EQ_I64(play(), 0);
        clear_up();
        count = calls(entries[e]) - before[e];
        for (nth = 1; nth <= count; ++nth)
            for (c = check_under("valgrind") ? CODES - 1 : 0; c < CODES; ++c) {
                int failures = check_failure_count();
                CUcontext current = nth % 2 ? NULL : context_of(gpu(1));
                SIMULATOR(cuCtxSetCurrent)(current);
                SIMULATOR(warpsim_log_clear)();
                SIMULATOR(warpsim_fail)(entries[e], nth, codes[c]);
                play();
                met += (uint64_t)SIMULATOR(warpsim_log_contains)("planned");
                SIMULATOR(warpsim_fail_clear)();
                if (strcmp(entries[e], "cuCtxSetCurrent") != 0)
                    CHECK_EQ_PTR(driver_current(), current);
                /* What is put back by the call that fails is not. */
                if (strcmp(entries[e], "cuThreadExchangeStreamCaptureMode") != 0)
                    CHECK_EQ_I64(thread_mode(), 0);
                set_thread_mode(0);
                SIMULATOR(cuCtxSetCurrent)(NULL);
                clear_up();
                CHECK_EQ_U64(r.outs, 0);
                CHECK_EQ_U64(ordered.outs, 0);
                CHECK_EQ_U64(statistics_of(gpu(0), 0).live_blocks, 0);
                CHECK_EQ_U64(statistics_of(gpu(1), 0).live_blocks, 0);
                CHECK_EQ_U64(live_of(r.handle), 0);
                CHECK_EQ_U64(live_of(r.below), 0);
                CHECK_EQ_U64(live_of(ordered.below), 0);
                CHECK_EQ_I64(play(), 0);
                clear_up();
                if (check_failure_count() != failures)
                    printf("\n      call %" PRIu64 " of %s answered %u", nth, entries[e], codes[c]);
                if (check_failure_count() > 20)
                    return;
            }
    }
    CHECK(met > 100);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(streams[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(streams[1]), WARP_SUCCESS);
    let_go(&ordered);
    let_go(&r);
    CHECK_OVER(&r);
    CHECK_OVER(&ordered);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
