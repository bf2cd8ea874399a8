/*
 * fork_under_load.c: forks while other threads are anywhere inside the library.
 *
 * needs: simulator
 * valgrind: no (what a thread held that the fork left behind is lost in the child)
 */
#define _GNU_SOURCE

#include "driver.h"
#include "forked.h"

#include <pthread.h>

/* Everything that takes a lock, over and over. */
static int stop;

static void heard(void *user, warp_log_level level, const char *message)
{
    (void)user;
    (void)level;
    (void)message;
}

static void *busy(void *number)
{
    uint64_t round = 0, seed = (uintptr_t)number;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        warp_device *gpu = device(seed & 1 ? "cuda:0" : "cuda:1");
        warp_alloc_options options = {.struct_size = sizeof options};
        warp_stream *stream = NULL;
        void *blocks[8] = {NULL};
        char tag[32];
        size_t i;
        /* Every tag a few times, new ones to the end. */
        snprintf(tag, sizeof tag, "tag %d", (int)(seed * 1000 + round / 8));
        options.tag = tag;
        for (i = 0; i < 4; ++i)
            CHECK_STATUS(warp_alloc_with(device("cpu"), 64 << i, &options, &blocks[i]), WARP_SUCCESS);
        for (i = 4; i < 8; ++i)
            CHECK_STATUS(warp_alloc_with(gpu, 64 << i, &options, &blocks[i]), WARP_SUCCESS);
        if (round % 16 == 0) {
            CHECK_STATUS(warp_stream_create(gpu, NULL, &stream), WARP_SUCCESS);
            CHECK_STATUS(warp_pointer_record_stream(blocks[4], stream), WARP_SUCCESS);
            CHECK_STATUS(warp_log_set_callback(heard, NULL, WARP_LOG_DEBUG), WARP_SUCCESS);
        }
        if (seed == 1 && round % 64 == 0) {
            CUcontext context = driver_foreign(0);
            warp_device *mine = NULL;
            CHECK_STATUS(warp_device_from_context(context, NULL, &mine), WARP_SUCCESS);
            if (round % 128 == 0)
                CHECK_STATUS(warp_device_remove(mine), WARP_SUCCESS);
            SIMULATOR(cuCtxDestroy_v2)(context);
            warp_device_synchronize(mine);
        }
        for (i = 0; i < 8; ++i)
            CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        ++round;
    }
    return NULL;
}

static void child_of_the_busy(void *argument)
{
    struct blocks *blocks = argument;
    use_cpu();
    check_forked();
    free_all(blocks);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    use_cpu();
}

PROCESS_TEST(no_lock_of_another_thread_is_inherited)
{
    pthread_t threads[4];
    struct blocks blocks;
    size_t i;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    blocks = alloc_all();
    for (i = 0; i < 4; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, busy, (void *)(i + 1)) == 0);
    for (i = 0; i < 100; ++i) {
        in_child(child_of_the_busy, &blocks, 30);
        usleep(1000);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    free_all(&blocks);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

CHECK_MAIN()
