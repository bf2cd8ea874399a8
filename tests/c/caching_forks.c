/*
 * caching_forks.c: children of a fork: blocks of their parent's caches are forgotten quietly, host memory is cached anew, and the
 * parent notices nothing.
 *
 * needs: simulator
 * valgrind: no (what a thread held that the fork left behind is lost in the child)
 */
#define _GNU_SOURCE
#include "allocators.h"
#include "forked.h"

#include <pthread.h>

static warp_allocator *host_cache, *gpu_cache, *library_cache;
static void *host_block, *told_block, *gpu_block, *slack;
static int stop;

static void in_the_child(void *argument)
{
    warp_allocator *fresh = NULL;
    void *blocks[50];
    int i, round;
    (void)argument;
    CHECK_STATUS(try_by(cpu(), host_cache, 1000, NULL, &blocks[0]), WARP_ERROR_FORKED);
    CHECK_STATUS(try_by(gpu(0), gpu_cache, 1000, NULL, &blocks[0]), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_alloc(gpu(0), 1000, &blocks[0]), WARP_ERROR_FORKED);
    CHECK_EQ_U64(pointer_info(host_block).size, 1000);
    CHECK_STATUS(warp_free(host_block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(host_block), WARP_ERROR_DOUBLE_FREE);
    CHECK_STATUS(warp_free(told_block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(gpu_block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(gpu_block), WARP_ERROR_DOUBLE_FREE);
    CHECK_STATUS(warp_allocator_create_caching(builtin(WARP_MEMORY_HOST), NULL, &fresh), WARP_SUCCESS);
    for (round = 0; round < 3; ++round) {
        for (i = 0; i < 50; ++i) {
            blocks[i] = block_by(cpu(), fresh, 1000 + 5000 * (uint64_t)i, NULL);
            memset(blocks[i], i, 1000);
            CHECK_EQ_PTR(pointer_info(blocks[i]).allocator, fresh);
        }
        for (i = 0; i < 50; ++i) {
            CHECK_EQ_I64(((char *)blocks[i])[999], i);
            CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
        }
    }
    CHECK_STATUS(warp_allocator_release(fresh), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_get_caching(WARP_MEMORY_HOST, &fresh), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block_by(cpu(), fresh, 3000, NULL)), WARP_SUCCESS);
    use_cpu();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

PROCESS_TEST(a_child_forgets_its_parents_blocks_and_caches_anew)
{
    warp_stream *other;
    int round;
    start_on("h200x2");
    CHECK_STATUS(warp_allocator_create_caching(builtin(WARP_MEMORY_HOST), NULL, &host_cache), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_caching(builtin(WARP_MEMORY_CUDA_DEVICE), NULL, &gpu_cache), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_caching_for_all(1), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_get_caching(WARP_MEMORY_HOST, &library_cache), WARP_SUCCESS);
    other = new_stream(gpu(0), 0);
    for (round = 0; round < 2; ++round) {
        host_block = block_by(cpu(), host_cache, 1000, NULL);
        memset(host_block, 5, 1000);
        CHECK_STATUS(warp_free(block_by(cpu(), library_cache, 1000, NULL)), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc(gpu(0), 1000, &gpu_block), WARP_SUCCESS);
        told_block = block_by(gpu(0), gpu_cache, 1000, NULL);
        slack = block_by(gpu(0), gpu_cache, 1000, NULL);
        CHECK_STATUS(warp_free(slack), WARP_SUCCESS);
        CHECK_STATUS(warp_pointer_record_stream(told_block, other), WARP_SUCCESS);
        in_child(in_the_child, NULL, 60);
        CHECK_EQ_I64(((char *)host_block)[999], 5);
        CHECK_EQ_PTR(block_by(gpu(0), gpu_cache, 1000, NULL), slack);
        CHECK_STATUS(warp_free(slack), WARP_SUCCESS);
        CHECK_STATUS(warp_free(host_block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(gpu_block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(told_block), WARP_SUCCESS);
    }
    CHECK_EQ_U64(live_of(host_cache) + live_of(gpu_cache), 0);
    CHECK_STATUS(warp_allocator_release(host_cache), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(gpu_cache), WARP_SUCCESS);
}

static void measure_in_the_child(void *argument)
{
    warp_caching_info info = {.struct_size = sizeof info};
    (void)argument;
    CHECK_STATUS(warp_allocator_caching_measure(host_cache, NULL, &info), WARP_ERROR_FORKED);
}

PROCESS_TEST(a_child_cannot_measure_what_its_parent_made)
{
    start_on("h200x2");
    CHECK_STATUS(warp_allocator_create_caching(builtin(WARP_MEMORY_HOST), NULL, &host_cache), WARP_SUCCESS);
    in_child(measure_in_the_child, NULL, 20);
}

static void *keep_busy(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        void *ptr = block_by(cpu(), host_cache, next_random(&random) % 100000 + 1, NULL);
        uint64_t unused;
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        ptr = block_by(gpu(0), gpu_cache, next_random(&random) % 100000 + 1, NULL);
        if (next_random(&random) % 4 == 0)
            CHECK_STATUS(warp_pointer_record_stream(ptr, stream_of(gpu(0))), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        if (next_random(&random) % 16 == 0)
            CHECK_STATUS(warp_allocator_trim(host_cache, cpu(), &unused), WARP_SUCCESS);
    }
    return NULL;
}

/* Whatever a thread of the parent was in the middle of. */
PROCESS_TEST(a_child_of_a_busy_parent_caches_anew)
{
    pthread_t threads[3];
    int i, times = check_under("valgrind") ? 3 : 100;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    CHECK_STATUS(warp_allocator_create_caching(builtin(WARP_MEMORY_HOST), NULL, &host_cache), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_caching(builtin(WARP_MEMORY_CUDA_DEVICE), NULL, &gpu_cache), WARP_SUCCESS);
    for (i = 0; i < 3; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, keep_busy, (void *)(uintptr_t)(i + 1)) == 0);
    for (i = 0; i < times && check_failure_count() == 0; ++i) {
        host_block = block_by(cpu(), host_cache, 1000, NULL);
        gpu_block = block_by(gpu(0), gpu_cache, 1000, NULL);
        told_block = block_by(gpu(0), gpu_cache, 1000, NULL);
        in_child(in_the_child, NULL, 20);
        CHECK_STATUS(warp_free(host_block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(gpu_block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(told_block), WARP_SUCCESS);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (i = 0; i < 3; ++i)
        pthread_join(threads[i], NULL);
    CHECK_EQ_U64(live_of(host_cache) + live_of(gpu_cache), 0);
}

static warp_allocator *childs_cache;

/* Threads that do nothing else wait for each other at the locks of the cache. */
static void take_and_trim(warp_allocator *cache, uint64_t *random)
{
    uint64_t unused;
    CHECK_STATUS(warp_free(block_by(cpu(), cache, next_random(random) % 100000 + 1, NULL)), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_trim(cache, cpu(), &unused), WARP_SUCCESS);
}

static void *cache_in_a_child(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    int i;
    for (i = 0; i < 200; ++i)
        take_and_trim(childs_cache, &random);
    return NULL;
}

static void cache_on_threads_of_the_child(void *argument)
{
    pthread_t threads[12];
    int i;
    (void)argument;
    CHECK_STATUS(warp_allocator_create_caching(builtin(WARP_MEMORY_HOST), NULL, &childs_cache), WARP_SUCCESS);
    for (i = 0; i < 12; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, cache_in_a_child, (void *)(uintptr_t)(i + 1)) == 0);
    for (i = 0; i < 12; ++i)
        pthread_join(threads[i], NULL);
    CHECK_STATUS(warp_allocator_release(childs_cache), WARP_SUCCESS);
}

static void *crowd(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
        take_and_trim(host_cache, &random);
    return NULL;
}

/* The parent's threads wait for each other at locks when the child is made, and there nobody wakes them. */
PROCESS_TEST(threads_of_a_child_wait_for_each_other_only)
{
    pthread_t threads[8];
    int i, times = check_under("valgrind") ? 3 : 100;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    CHECK_STATUS(warp_allocator_create_caching(builtin(WARP_MEMORY_HOST), NULL, &host_cache), WARP_SUCCESS);
    for (i = 0; i < 8; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, crowd, (void *)(uintptr_t)(i + 1)) == 0);
    for (i = 0; i < times && check_failure_count() == 0; ++i)
        in_child(cache_on_threads_of_the_child, NULL, 20);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (i = 0; i < 8; ++i)
        pthread_join(threads[i], NULL);
}

CHECK_MAIN()
