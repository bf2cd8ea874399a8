/*
 * Memory that runs out: freed blocks are waited for, pools give back what they keep, the request is made once more, and
 * only then it fails, with what was asked, what there is and who has it. The next call works. Cases OM-01 and OM-05; what graphs
 * keep, and memory that runs out in a capture, are in capture_failures.c.
 */
/* topology: h200x2,memory=8GiB,pinned_limit=64MiB */
/* topology: mixed,memory=8GiB,pinned_limit=64MiB */
/* needs: simulator */
#define _POSIX_C_SOURCE 200809L
#include "blocks.h"

#include <pthread.h>
#include <time.h>

#define OUT_OF_MEMORY 2

static warp_status try_alloc(warp_device *device, uint64_t size, warp_memory_kind kind, warp_stream *stream, void **out)
{
    warp_alloc_options options = options_of(kind, stream);
    *out = (void *)(uintptr_t)1;
    return warp_alloc_with(device, size, &options, out);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void set_threshold(int device, uint64_t bytes)
{
    CUmemoryPool pool = NULL;
    CHECK_EQ_U64(SIMULATOR(cuDeviceGetMemPool)(&pool, device), 0);
    CHECK_EQ_U64(SIMULATOR(cuMemPoolSetAttribute)(pool, POOL_RELEASE_THRESHOLD, &bytes), 0);
}

static uint64_t reserved(int device)
{
    CUmemoryPool pool = NULL;
    uint64_t bytes = 0;
    CHECK_EQ_U64(SIMULATOR(cuDeviceGetMemPool)(&pool, device), 0);
    CHECK_EQ_U64(SIMULATOR(cuMemPoolGetAttribute)(pool, POOL_RESERVED, &bytes), 0);
    return bytes;
}

struct delayed {
    pthread_t thread;
    uint64_t stream;
    int milliseconds;
};

static void *release_later(void *argument)
{
    struct delayed *delayed = (struct delayed *)argument;
    struct timespec pause;
    pause.tv_sec = 0;
    pause.tv_nsec = delayed->milliseconds * 1000000l;
    nanosleep(&pause, NULL);
    CHECK_EQ_U64(SIMULATOR(warpsim_release)(delayed->stream), 0);
    return NULL;
}

/* Keeps the stream busy for a while, as a kernel does. */
static void busy_for(struct delayed *delayed, warp_stream *stream, int milliseconds)
{
    delayed->stream = native_stream(stream);
    delayed->milliseconds = milliseconds;
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(delayed->stream), 0);
    CHECK_EQ_I64(pthread_create(&delayed->thread, NULL, release_later, delayed), 0);
}

/* OM-01: out of memory once, and twice; then anything else. */
TEST(a_shortage_that_passes_is_not_seen)
{
    static const char *const entries[KINDS] = {NULL, NULL, "cuMemHostAlloc", "cuMemAlloc_v2", "cuMemAllocFromPoolAsync",
                                               "cuMemAllocManaged"};
    int kind;
    void *ptr;
    REQUIRE(start());
    for (kind = WARP_MEMORY_PINNED; kind < KINDS; ++kind) {
        warp_device *device = kind == WARP_MEMORY_PINNED ? cpu() : gpu(0);
        uint64_t before = calls(entries[kind]);
        SIMULATOR(warpsim_fail)(entries[kind], 1, OUT_OF_MEMORY);
        CHECK_STATUS(try_alloc(device, 1000, kind, NULL, &ptr), WARP_SUCCESS);
        CHECK_EQ_U64(calls(entries[kind]), before + 2);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        /* Twice is out of memory, and it is asked no third time. */
        before = calls(entries[kind]);
        SIMULATOR(warpsim_fail)(entries[kind], 1, OUT_OF_MEMORY);
        SIMULATOR(warpsim_fail)(entries[kind], 2, OUT_OF_MEMORY);
        CHECK_STATUS(try_alloc(device, 1000, kind, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_EQ_PTR(ptr, NULL);
        CHECK_EQ_U64(calls(entries[kind]), before + 2);
        /* Nothing of it stays. */
        CHECK_STATUS(try_alloc(device, 1000, kind, NULL, &ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(ptr, 1000, "x", 1, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    }
    CHECK_NOTHING_LEFT();
}

/* OM-01. */
TEST(the_message_says_what_was_asked_what_there_is_and_who_has_it)
{
    warp_alloc_options options = options_of(WARP_MEMORY_CUDA_MEMPOOL, NULL);
    void *weights = NULL, *cache = NULL, *rest, *ptr = NULL;
    warp_error error;
    options.tag = "weights";
    REQUIRE_STATUS(warp_alloc_with(gpu(0), 3 * GIB, &options, &weights), WARP_SUCCESS);
    options.tag = "cache";
    REQUIRE_STATUS(warp_alloc_with(gpu(0), 2 * GIB, &options, &cache), WARP_SUCCESS);
    rest = block_of(gpu(0), MIB, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(try_alloc(gpu(0), 4 * GIB, WARP_MEMORY_CUDA_DEVICE, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_PTR(ptr, NULL);
    memset(&error, 0, sizeof error);
    error.struct_size = sizeof error;
    CHECK_STATUS(warp_error_get_last(&error), WARP_SUCCESS);
    CHECK_EQ_I64(error.status, WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_I64(error.driver_code, OUT_OF_MEMORY);
    CHECK_STR_CONTAINS(error.message, "\"cuda:0\"");
    CHECK_STR_CONTAINS(error.message, "4294967296");  /* asked */
    CHECK_STR_CONTAINS(error.message, "CUDA_DEVICE");
    CHECK_STR_CONTAINS(error.message, "uses 5368709120");
    CHECK_STR_CONTAINS(error.message, "reserves 5368709120");
    CHECK_STR_CONTAINS(error.message, "of 8589934592"); /* total */
    CHECK_STR_CONTAINS(error.message, "3221225472 bytes in 1 blocks of CUDA_MEMPOOL \"weights\"");
    CHECK_STR_CONTAINS(error.message, "2147483648 bytes in 1 blocks of CUDA_MEMPOOL \"cache\"");
    CHECK(strstr(error.message, "weights") < strstr(error.message, "cache")); /* the largest first */
    CHECK_STR_CONTAINS(error.message, "1048576 bytes in 1 blocks of CUDA_DEVICE");
    CHECK_STATUS(warp_free(weights), WARP_SUCCESS);
    CHECK_STATUS(warp_free(cache), WARP_SUCCESS);
    CHECK_STATUS(warp_free(rest), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* OM-01: seven of eight GiB are reserved by a pool that uses none of it; and the reverse. */
TEST(what_a_pool_keeps_is_given_back)
{
    void *ptr, *other;
    set_threshold(0, UINT64_MAX);
    ptr = block_of(gpu(0), 7 * GIB, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK(reserved(0) >= 7 * GIB);
    CHECK_STATUS(try_alloc(gpu(0), 4 * GIB, WARP_MEMORY_CUDA_DEVICE, NULL, &ptr), WARP_SUCCESS);
    CHECK_EQ_U64(reserved(0), 0);
    /* The pool finds no room beside the plain block, and does when that is freed: at once, or behind a stream. */
    CHECK_STATUS(try_alloc(gpu(0), 5 * GIB, WARP_MEMORY_CUDA_MEMPOOL, NULL, &other), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(try_alloc(gpu(0), 5 * GIB, WARP_MEMORY_CUDA_MEMPOOL, NULL, &other), WARP_SUCCESS);
    CHECK_STATUS(warp_free(other), WARP_SUCCESS);
    set_threshold(0, 0);
    CHECK_NOTHING_LEFT();
}

/* A block is freed on a busy stream, and what has no room beside it is served when the stream is done. */
static void check_served_after_free(void *block, warp_memory_kind kind, warp_stream *stream, struct delayed *delayed)
{
    void *ptr = NULL;
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(try_alloc(gpu(0), 6 * GIB, kind, NULL, &ptr), WARP_SUCCESS);
    pthread_join(delayed->thread, NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
}

/* OM-01: frees that are pending on a stream. */
TEST(parked_blocks_are_waited_for)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL};
    size_t k;
    SIMULATOR(warpsim_auto_release)(0);
    for (k = 0; k < 2; ++k) {
        warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        void *parked = block_on(gpu(0), 6 * GIB, WARP_MEMORY_CUDA_DEVICE, stream);
        struct delayed delayed;
        busy_for(&delayed, stream, 100);
        check_served_after_free(parked, kinds[k], stream, &delayed);
    }
    SIMULATOR(warpsim_auto_release)(1);
    CHECK_NOTHING_LEFT();
}

/* OM-01: a pool's free on one stream, wanted by another and by the plain allocator. */
TEST(frees_in_stream_order_are_waited_for)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL};
    size_t k, twice;
    SIMULATOR(warpsim_auto_release)(0);
    for (k = 0; k < 2; ++k)
        for (twice = 0; twice < 2; ++twice) {
            warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
            void *freed = block_on(gpu(0), 6 * GIB, WARP_MEMORY_CUDA_MEMPOOL, twice ? NULL : stream);
            struct delayed delayed;
            busy_for(&delayed, stream, 100);
            if (twice) /* goes back behind both streams */
                CHECK_STATUS(warp_pointer_record_stream(freed, stream), WARP_SUCCESS);
            check_served_after_free(freed, kinds[k], stream, &delayed);
        }
    SIMULATOR(warpsim_auto_release)(1);
    CHECK_NOTHING_LEFT();
}

TEST(the_wait_ends)
{
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    void *parked = block_on(gpu(0), 6 * GIB, WARP_MEMORY_CUDA_DEVICE, stream), *ptr = NULL;
    double before;
    SIMULATOR(warpsim_auto_release)(0);
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native_stream(stream)), 0);
    CHECK_STATUS(warp_free(parked), WARP_SUCCESS);
    before = seconds();
    CHECK_STATUS(try_alloc(gpu(0), 6 * GIB, WARP_MEMORY_CUDA_DEVICE, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK(seconds() - before < 30);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "6442450944 bytes in 1 freed blocks wait for their streams");
    /* What fits is served at once while the stream goes on. */
    CHECK_STATUS(try_alloc(gpu(0), GIB, WARP_MEMORY_CUDA_DEVICE, NULL, &ptr), WARP_SUCCESS);
    SIMULATOR(warpsim_release_all)();
    SIMULATOR(warpsim_auto_release)(1);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(limits_by_size_and_in_total)
{
    void *first, *ptr;
    SIMULATOR(warpsim_out_of_memory_at_size)(MIB);
    CHECK_STATUS(try_alloc(gpu(0), MIB, WARP_MEMORY_CUDA_DEVICE, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(try_alloc(gpu(0), MIB - 1, WARP_MEMORY_CUDA_DEVICE, NULL, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    SIMULATOR(warpsim_fail_clear)();
    SIMULATOR(warpsim_out_of_memory_above_total)(100 * MIB);
    first = block_of(gpu(0), 60 * MIB, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(try_alloc(gpu(1), 60 * MIB, WARP_MEMORY_CUDA_DEVICE, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:1\"");
    CHECK_STATUS(warp_free(first), WARP_SUCCESS);
    CHECK_STATUS(try_alloc(gpu(1), 60 * MIB, WARP_MEMORY_CUDA_DEVICE, NULL, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    SIMULATOR(warpsim_fail_clear)();
    CHECK_NOTHING_LEFT();
}

/* OM-05: page-locked memory has a limit of its own, and it is not the GPU's. */
TEST(page_locked_memory_runs_out_by_itself)
{
    void *ptr, *rest;
    uint64_t trims = calls("cuMemPoolTrimTo") + calls("cuDeviceGraphMemTrim");
    CHECK_STATUS(try_alloc(cpu(), 128 * MIB, WARP_MEMORY_PINNED, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "page-locked host memory");
    CHECK_STR_CONTAINS(warp_error_get_message(), "not GPU memory");
    CHECK_STR_CONTAINS(warp_error_get_message(), "134217728");
    CHECK_STR_CONTAINS(warp_error_get_message(), "WARP_MEMORY_HOST");
    CHECK_EQ_U64(calls("cuMemPoolTrimTo") + calls("cuDeviceGraphMemTrim"), trims);
    CHECK_STATUS(try_alloc(cpu(), 128 * MIB, WARP_MEMORY_HOST, NULL, &ptr), WARP_SUCCESS);
    CHECK_EQ_I64(pointer_info(ptr).kind, WARP_MEMORY_HOST);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(try_alloc(gpu(0), GIB, WARP_MEMORY_UNKNOWN, NULL, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    rest = block_of(cpu(), 50 * MIB, WARP_MEMORY_PINNED);
    CHECK_STATUS(try_alloc(cpu(), 25 * MIB, WARP_MEMORY_PINNED, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "52428800 are pinned");
    CHECK_STATUS(warp_free(rest), WARP_SUCCESS);
    CHECK_STATUS(try_alloc(cpu(), 25 * MIB, WARP_MEMORY_PINNED, NULL, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(parked_page_locked_memory_is_waited_for_under_whatever_context_it_lies)
{
    int g;
    SIMULATOR(warpsim_auto_release)(0);
    for (g = 0; g < 2; ++g) {
        warp_stream *stream = new_stream(gpu(g), WARP_STREAM_NON_BLOCKING);
        CUcontext before = driver_current();
        struct delayed delayed;
        void *parked, *ptr = NULL;
        SIMULATOR(cuCtxSetCurrent)(context_of(gpu(g)));
        parked = block_of(cpu(), 50 * MIB, WARP_MEMORY_PINNED);
        busy_for(&delayed, stream, 100);
        CHECK_STATUS(warp_pointer_record_stream(parked, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(parked), WARP_SUCCESS);
        SIMULATOR(cuCtxSetCurrent)(context_of(gpu(!g)));
        CHECK_STATUS(try_alloc(cpu(), 50 * MIB, WARP_MEMORY_PINNED, NULL, &ptr), WARP_SUCCESS);
        SIMULATOR(cuCtxSetCurrent)(before);
        pthread_join(delayed.thread, NULL);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    SIMULATOR(warpsim_auto_release)(1);
    CHECK_NOTHING_LEFT();
}

TEST(the_host_runs_out_too)
{
    void *ptr;
    CHECK_STATUS(try_alloc(cpu(), (uint64_t)1 << 62, WARP_MEMORY_HOST, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "host memory");
    CHECK_STR_CONTAINS(warp_error_get_message(), "4611686018427387904");
    CHECK_STATUS(try_alloc(cpu(), 100, WARP_MEMORY_HOST, NULL, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* Threads that all want more than there is: as many succeed as fit, nobody is told of memory that is not there, and
 * nothing is lost on the way. */
static void *take_and_give(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument, *served = NULL;
    int i;
    served = (uint64_t *)calloc(1, sizeof *served);
    for (i = 0; i < 20; ++i) {
        void *ptr = NULL;
        warp_memory_kind kind = next_random(&random) % 2 ? WARP_MEMORY_CUDA_DEVICE : WARP_MEMORY_CUDA_MEMPOOL;
        warp_status status = try_alloc(gpu(0), 3 * GIB, kind, NULL, &ptr);
        if (status == WARP_SUCCESS) {
            ++*served;
            CHECK_STATUS(warp_memory_fill((char *)ptr + 3 * GIB - 10, 10, "", 1, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        } else {
            CHECK_STATUS(status, WARP_ERROR_OUT_OF_MEMORY);
            CHECK_EQ_PTR(ptr, NULL);
        }
    }
    return served;
}

TEST(threads_that_want_more_than_there_is)
{
    pthread_t threads[4];
    uint64_t total = 0;
    uintptr_t i;
    for (i = 0; i < 4; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)) == 0);
    for (i = 0; i < 4; ++i) {
        void *served = NULL;
        pthread_join(threads[i], &served);
        total += *(uint64_t *)served;
        free(served);
    }
    CHECK(total >= 20);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
