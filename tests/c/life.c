/*
 * life.c: the library in a process that forks, exits in any order, loses its driver, or has a second copy of the library.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "driver.h"
#include "forked.h"

#include <pthread.h>
#include <signal.h>
#include <warpmem.h>

static void start(void)
{
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
}

/* ---- Fork ------------------------------------------------------------------------------------------------------------------ */

static void child_of_a_user(void *argument)
{
    struct blocks *blocks = argument;
    warp_pointer_info where = {.struct_size = sizeof where};
    warp_device *found = NULL;
    char byte = 1;
    uint64_t calls = SIMULATOR(warpsim_call_count)("*");
    use_cpu();
    check_forked();
    CHECK_STATUS(warp_device_get("cuda", &found), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_memory_fill(blocks->pool, 16, &byte, 1, NULL), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_memory_copy(&byte, blocks->plain, 1, NULL), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_pointer_get_info(blocks->plain, &where), WARP_SUCCESS);
    CHECK_EQ_U64(where.is_owned, 1);
    CHECK_EQ_STR(where.tag, "life");
    free_all(blocks);
    CHECK_STATUS(warp_free(blocks->plain), WARP_ERROR_DOUBLE_FREE);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("*"), calls);
}

static void child_that_starts_and_ends(void *argument)
{
    uint8_t started = 9, ignored = 9;
    (void)argument;
    CHECK_STATUS(warp_init(NULL, &ignored), WARP_SUCCESS);
    CHECK_EQ_U64(ignored, 1);
    use_cpu();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    use_cpu();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_library_is_initialized(&started), WARP_SUCCESS);
    CHECK_EQ_U64(started, 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_init(NULL, &ignored), WARP_SUCCESS);
    CHECK_EQ_U64(ignored, 0);
    use_cpu();
    check_forked();
}

static void child_with_children(void *argument)
{
    use_cpu();
    in_child(child_of_a_user, argument, 60);
    in_child(child_that_starts_and_ends, argument, 60);
    use_cpu();
}

PROCESS_TEST(a_forked_child_has_the_cpu)
{
    struct blocks blocks;
    start();
    blocks = alloc_all();
    in_child(child_of_a_user, &blocks, 60);
    in_child(child_that_starts_and_ends, NULL, 60);
    in_child(child_with_children, &blocks, 60);
    /* The parent goes on. */
    free_all(&blocks);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    blocks = alloc_all();
    free_all(&blocks);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

static void child_of_the_dead(void *argument)
{
    warp_device *found = NULL;
    (void)argument;
    CHECK_STATUS(warp_device_get("cpu", &found), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    use_cpu();
    check_forked();
}

PROCESS_TEST(a_child_of_a_process_that_shut_down)
{
    start();
    alloc_all();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    in_child(child_of_the_dead, NULL, 60);
}

static void child_without_gpus(void *argument)
{
    warp_device *found = NULL;
    (void)argument;
    use_cpu();
    CHECK_STATUS(warp_device_get("cuda:0", &found), WARP_ERROR_NO_SUCH_DEVICE);
}

PROCESS_TEST(a_child_of_a_process_without_gpus)
{
    setenv("WARPSIM_TOPOLOGY", "none", 1);
    start();
    in_child(child_without_gpus, NULL, 60);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void child_that_only_exits(void *argument) { (void)argument; }

PROCESS_TEST(a_child_that_only_exits_is_quiet)
{
    start();
    alloc_all();
    in_child(child_that_only_exits, NULL, 60);
}

static void *child_thread(void *unused)
{
    (void)unused;
    use_cpu();
    return NULL;
}

static void child_with_threads(void *argument)
{
    pthread_t threads[8];
    size_t i;
    (void)argument;
    /* Who comes first puts right what the fork left; the others wait for that. */
    for (i = 0; i < 8; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, child_thread, NULL) == 0);
    for (i = 0; i < 8; ++i)
        pthread_join(threads[i], NULL);
}

PROCESS_TEST(the_first_calls_of_a_child_may_come_from_many_threads)
{
    int i;
    start();
    alloc_all();
    for (i = 0; i < (check_under("valgrind") ? 2 : 10); ++i)
        in_child(child_with_threads, NULL, 60);
}

/* ---- Exit -------------------------------------------------------------------------------------------------------------------- */

static struct blocks left;
static uint64_t calls_at_exit;

/* In an exit handler a failed check can be told by the exit status alone. */
static void end_if_failed(void)
{
    if (check_failure_count() != 0) {
        fflush(stdout);
        _exit(1);
    }
}

/* Registered after the start, it runs before the library notices the exit. */
static void early_handler(void)
{
    void *block = NULL;
    CHECK_STATUS(warp_alloc(device("cuda:1"), 64, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    free_all(&left);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    end_if_failed();
}

/* Registered before, it runs behind it. */
static void late_handler(void)
{
    warp_device *found = (warp_device *)1;
    void *block = (void *)1;
    calls_at_exit = SIMULATOR(warpsim_call_count)("*");
    free_all(&left);
    CHECK_STATUS(warp_device_get("cuda:1", &found), WARP_ERROR_SHUT_DOWN);
    CHECK_EQ_PTR(found, NULL);
    CHECK_STATUS(warp_alloc(NULL, 64, &block), WARP_ERROR_SHUT_DOWN);
    CHECK_STR_CONTAINS(warp_error_get_message(), "exiting");
    CHECK_EQ_PTR(block, NULL);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("*"), calls_at_exit);
    end_if_failed();
}

PROCESS_TEST(handlers_registered_after_the_start_still_free)
{
    start();
    left = alloc_all();
    atexit(early_handler);
}

PROCESS_TEST(handlers_registered_before_the_start_free_quietly)
{
    atexit(late_handler);
    start();
    left = alloc_all();
}

PROCESS_TEST(handlers_behind_a_shutdown)
{
    atexit(late_handler);
    start();
    left = alloc_all();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void never(void *user, warp_log_level level, const char *message)
{
    (void)user;
    (void)level;
    printf("\n    called at exit: %s", message);
    fflush(stdout);
    _exit(1);
}

PROCESS_TEST(everything_may_be_alive_at_exit)
{
    CUcontext context;
    warp_device *mine = NULL;
    warp_stream *stream = NULL;
    void *block;
    char byte = 1;
    start();
    left = alloc_all();
    context = driver_foreign(0);
    CHECK_STATUS(warp_device_from_context(context, NULL, &mine), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_create(mine, NULL, &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_set_current(mine, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(mine, 64, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_create(device("cuda:1"), NULL, &stream), WARP_SUCCESS);
    {
        warp_stream_info info = {.struct_size = sizeof info};
        CHECK_STATUS(warp_stream_get_info(stream, &info), WARP_SUCCESS);
        SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)info.native);
    }
    CHECK_STATUS(warp_memory_fill(left.plain, 16, &byte, 1, stream), WARP_SUCCESS);
    /* Parked, for its stream is busy. */
    CHECK_STATUS(warp_free(left.plain), WARP_SUCCESS);
    CHECK_STATUS(warp_log_set_callback(never, NULL, WARP_LOG_DEBUG), WARP_SUCCESS);
}

static void *until_the_end(void *unused)
{
    (void)unused;
    for (;;) {
        warp_device *gpu = NULL;
        void *block = NULL;
        if (warp_device_get("cuda:1", &gpu) == WARP_SUCCESS && warp_alloc(gpu, 64, &block) == WARP_SUCCESS)
            warp_free(block);
        if (warp_alloc(NULL, 64, &block) == WARP_SUCCESS)
            warp_free(block);
    }
    return NULL;
}

PROCESS_TEST(other_threads_may_be_inside_at_exit)
{
    pthread_t thread;
    int i;
    start();
    left = alloc_all();
    for (i = 0; i < 4; ++i)
        REQUIRE(pthread_create(&thread, NULL, until_the_end, NULL) == 0);
    usleep(100000);
}

PROCESS_TEST(a_driver_that_went_first)
{
    warp_device *gpu;
    warp_stream *stream = NULL;
    void *block = (void *)1, *other = NULL;
    warp_alloc_options plain = {.struct_size = sizeof plain, .kind = WARP_MEMORY_CUDA_DEVICE};
    warp_pointer_info where = {.struct_size = sizeof where};
    start();
    left = alloc_all();
    gpu = device("cuda:1");
    CHECK_STATUS(warp_stream_create(gpu, NULL, &stream), WARP_SUCCESS);
    SIMULATOR(warpsim_deinitialize)();
    /* Allocations say what happened, in the driver's own words. */
    CHECK_STATUS(warp_alloc(gpu, 64, &block), WARP_ERROR_DEVICE_LOST);
    CHECK_STR_CONTAINS(warp_error_get_message(), "CUDA_ERROR_DEINITIALIZED");
    CHECK_EQ_PTR(block, NULL);
    CHECK_STATUS(warp_alloc_with(gpu, 64, &plain, &block), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_device_synchronize(gpu), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_pointer_get_info(left.pool, &where), WARP_SUCCESS);
    CHECK_EQ_U64(where.is_owned, 1);
    CHECK_STATUS(warp_alloc(device("cpu"), 64, &other), WARP_SUCCESS);
    CHECK_STATUS(warp_free(other), WARP_SUCCESS);
    free_all(&left);
    CHECK_STATUS(warp_free(left.pool), WARP_ERROR_DOUBLE_FREE);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* Each call of the driver on the way of a free may be the first that finds it gone. */
PROCESS_TEST(a_driver_that_goes_in_the_middle)
{
    int after;
    start();
    for (after = 0; after < 12; ++after) {
        left = alloc_all();
        SIMULATOR(warpsim_fail_after)((uint64_t)after, 4);
        CHECK_STATUS(warp_free(left.pool), WARP_SUCCESS);
        SIMULATOR(warpsim_fail_clear)();
        SIMULATOR(warpsim_fail_after)((uint64_t)after, 4);
        CHECK_STATUS(warp_free(left.plain), WARP_SUCCESS);
        SIMULATOR(warpsim_fail_clear)();
        SIMULATOR(warpsim_fail_after)((uint64_t)after, 4);
        CHECK_STATUS(warp_free(left.pinned), WARP_SUCCESS);
        SIMULATOR(warpsim_fail_clear)();
    }
}

/* ---- Threads that start and end --------------------------------------------------------------------------------------------------- */

static void *start_and_end(void *unused)
{
    int i;
    (void)unused;
    for (i = 0; i < 200; ++i) {
        void *block = NULL;
        CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc(device("cuda:1"), 64, &block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
    return NULL;
}

PROCESS_TEST(many_threads_may_start_and_end_the_library)
{
    pthread_t threads[8];
    uint8_t started = 9;
    size_t i;
    for (i = 0; i < 8; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, start_and_end, NULL) == 0);
    for (i = 0; i < 8; ++i)
        pthread_join(threads[i], NULL);
    CHECK_STATUS(warp_library_is_initialized(&started), WARP_SUCCESS);
    CHECK_EQ_U64(started, 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

/* ---- A second copy of the library ---------------------------------------------------------------------------------------------------- */

static int copy_file(const char *from, const char *to)
{
    FILE *source = fopen(from, "rb"), *target = fopen(to, "wb");
    char piece[65536];
    size_t got;
    int whole = source != NULL && target != NULL;
    while (whole && (got = fread(piece, 1, sizeof piece, source)) > 0)
        whole = fwrite(piece, 1, got, target) == got;
    if (source != NULL)
        fclose(source);
    if (target != NULL)
        whole = fclose(target) == 0 && whole;
    return whole;
}

#define OF(library, name) ((__typeof__(&name))dlsym(library, #name))

PROCESS_TEST(a_second_copy_is_another_library_and_outlives_its_dlclose)
{
    char path[4096];
    Dl_info own;
    void *second, *again;
    uint64_t here = 0, there = 0;
    warp_device *gpu, *its = NULL;
    void *block = NULL, *mine;
    warp_device_info info = {.struct_size = sizeof info};
    __typeof__(&warp_free) free_there;
    __typeof__(&warp_alloc) alloc_there;
    start();
    REQUIRE(process_make_file(path, sizeof path));
    REQUIRE(dladdr((void *)(uintptr_t)&warp_init, &own) != 0 && copy_file(own.dli_fname, path));
    second = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    REQUIRE(second != NULL);
    CHECK_STATUS(warp_library_get_instance_id(&here), WARP_SUCCESS);
    CHECK_STATUS(OF(second, warp_library_get_instance_id)(&there), WARP_SUCCESS);
    CHECK(here != there);
    CHECK_STATUS(OF(second, warp_shutdown)(), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(OF(second, warp_init)(NULL, NULL), WARP_SUCCESS);
    gpu = device("cuda:1");
    CHECK_STATUS(OF(second, warp_device_get)("cuda:1", &its), WARP_SUCCESS);
    CHECK(its != gpu);
    /* Neither takes the other's handles or blocks. */
    CHECK_STATUS(warp_device_get_info(its, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "another copy");
    CHECK_STATUS(OF(second, warp_device_get_info)(gpu, &info), WARP_ERROR_INVALID_HANDLE);
    mine = alloc("cuda:1", WARP_MEMORY_CUDA_MEMPOOL);
    alloc_there = OF(second, warp_alloc);
    free_there = OF(second, warp_free);
    CHECK_STATUS(alloc_there(its, 64, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STATUS(free_there(mine), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STATUS(warp_free(mine), WARP_SUCCESS);
    /* Closed it stays, for deleters that were handed out. */
    CHECK_EQ_I64(dlclose(second), 0);
    CHECK_STATUS(free_there(block), WARP_SUCCESS);
    CHECK_STATUS(alloc_there(its, 64, &block), WARP_SUCCESS);
    CHECK_STATUS(free_there(block), WARP_SUCCESS);
    /* Opened twice it is one. */
    again = dlopen(own.dli_fname, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(again != NULL);
    CHECK_STATUS(OF(again, warp_library_get_instance_id)(&there), WARP_SUCCESS);
    CHECK_EQ_U64(there, here);
    CHECK_EQ_I64(dlclose(again), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

CHECK_MAIN()
