/*
 * What nobody should do, and what happens all the same: things given back twice at once, blocks freed under arrays, callbacks
 * that call everything, threads that end at bad moments, and very many of everything.
 */
/* topology: h200x2 */
/* needs: simulator */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include "driver.h"
#include "process.h"

#include <pthread.h>
#include <time.h>

uint32_t cuCtxSynchronize(void);

/* The watched runs are slow: a part of the numbers shows the same. */
static size_t many(size_t count)
{
    return check_under("valgrind") || check_under("sanitizer") ? count / 50 + 1 : count;
}

static warp_device *named(const char *name)
{
    warp_device *device = NULL;
    CHECK_STATUS(warp_device_get(name, &device), WARP_SUCCESS);
    return device;
}

static void *block_of(warp_device *device, uint64_t size, warp_memory_kind kind, warp_stream *stream)
{
    warp_alloc_options options = {0};
    void *ptr = NULL;
    options.struct_size = sizeof options;
    options.kind = kind;
    options.stream = stream;
    CHECK_STATUS(warp_alloc_with(device, size, &options, &ptr), WARP_SUCCESS);
    return ptr;
}

static warp_stream *new_stream(warp_device *device)
{
    warp_stream *stream = NULL;
    CHECK_STATUS(warp_stream_create(device, NULL, &stream), WARP_SUCCESS);
    return stream;
}

static uint64_t live_blocks(warp_device *device)
{
    warp_statistics counts = {0};
    counts.struct_size = sizeof counts;
    CHECK_STATUS(warp_statistics_get(device, WARP_MEMORY_UNKNOWN, &counts), WARP_SUCCESS);
    return counts.live_blocks;
}

static warp_array *bytes_of(warp_device *device, int64_t count, warp_memory_kind kind)
{
    warp_array_options options = {0};
    warp_array *array = NULL;
    options.struct_size = sizeof options;
    options.kind = kind;
    CHECK_STATUS(warp_array_empty(device, warp_dtype_make(WARP_DTYPE_UINT, 8), 1, &count, &options, &array), WARP_SUCCESS);
    return array;
}

static void *data_of(warp_array *array)
{
    warp_array_info info = {0};
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_array_get_info(array, &info), WARP_SUCCESS);
    return info.data;
}

/* KiB of memory that the process has. */
static long resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0, all = 0;
    if (file != NULL && fscanf(file, "%ld %ld", &all, &pages) != 2)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return pages * 4;
}

/* ---- Given back twice, by two threads at once ---------------------------------------------------------------------- */

struct race {
    pthread_barrier_t *barrier;
    void *what;
    int kind, succeeded;
};

static void *give_back(void *argument)
{
    struct race *race = argument;
    warp_status status;
    pthread_barrier_wait(race->barrier);
    status = race->kind == 0 ? warp_stream_release(race->what)
             : race->kind == 1 ? warp_array_release(race->what)
                               : warp_free(race->what);
    race->succeeded = status == WARP_SUCCESS;
    return NULL;
}

static void check_race(int kind, void *what)
{
    pthread_barrier_t barrier;
    struct race races[2];
    pthread_t other;
    pthread_barrier_init(&barrier, NULL, 2);
    races[0].barrier = races[1].barrier = &barrier;
    races[0].what = races[1].what = what;
    races[0].kind = races[1].kind = kind;
    pthread_create(&other, NULL, give_back, &races[1]);
    give_back(&races[0]);
    pthread_join(other, NULL);
    pthread_barrier_destroy(&barrier);
    CHECK_EQ_I64(races[0].succeeded + races[1].succeeded, 1);
}

PROCESS_TEST(of_two_that_give_the_same_back_at_once_one_succeeds)
{
    size_t i;
    warp_device *gpu;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    gpu = named("cuda:0");
    for (i = 0; i < many(300); ++i) {
        check_race(0, new_stream(gpu));
        check_race(1, bytes_of(gpu, 100, WARP_MEMORY_UNKNOWN));
        check_race(2, block_of(gpu, 100, WARP_MEMORY_UNKNOWN, NULL));
    }
    CHECK_EQ_U64(live_blocks(gpu), 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

/* ---- Memory that goes away under what uses it ---------------------------------------------------------------------- */

PROCESS_TEST(the_block_of_an_array_is_freed_by_its_address)
{
    warp_device *gpu, *cpu;
    warp_array *array;
    warp_pointer_info info = {0};
    void *ptr;
    info.struct_size = sizeof info;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    gpu = named("cuda:0");
    cpu = named("cpu");
    array = bytes_of(gpu, 1000, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_free(data_of(array)), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    CHECK_EQ_U64(live_blocks(gpu), 0);
    /* Another block that got the address meanwhile, of another size, stays. */
    array = bytes_of(cpu, 1000, WARP_MEMORY_HOST);
    ptr = data_of(array);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    ptr = block_of(cpu, 1001, WARP_MEMORY_HOST, NULL);
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_get_info(ptr, &info), WARP_SUCCESS);
    CHECK_EQ_I64(info.is_owned, 1);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(live_blocks(cpu), 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* The addresses of a dead context come again: arrays that were there have nothing to do with them. */
static void check_reset_under_an_array(warp_memory_kind kind)
{
    warp_device *gpu = named("cuda:0"), *home = kind == WARP_MEMORY_PINNED ? named("cpu") : gpu;
    warp_array *array;
    void *old, *now = NULL;
    uint8_t byte = 7, got = 0;
    int64_t count = 3000;
    warp_array *clone = NULL;
    block_of(gpu, 1, WARP_MEMORY_CUDA_DEVICE, NULL); /* the context is there */
    array = bytes_of(home, count, kind);
    old = data_of(array);
    SIMULATOR(warpsim_reset_device)(0);
    gpu = named("cuda:0");
    home = kind == WARP_MEMORY_PINNED ? named("cpu") : gpu;
    while (now != old) {
        void *next = block_of(home, (uint64_t)count, kind, NULL);
        REQUIRE(next != NULL && live_blocks(home) < 1000);
        now = next;
    }
    if (kind != WARP_MEMORY_PINNED) {
        CHECK_STATUS(warp_memory_fill(now, (uint64_t)count, "x", 1, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(gpu), WARP_SUCCESS);
    } else {
        memset(now, 'x', (size_t)count);
    }
    CHECK_STATUS(warp_array_fill(array, &byte, 1, NULL), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_array_copy(array, array, 0, 0, 0, NULL), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_array_clone(array, NULL, NULL, &clone), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(&got, now, 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu), WARP_SUCCESS);
    CHECK_EQ_U64(got, 'x');
    CHECK_STATUS(warp_free(now), WARP_SUCCESS);
}

PROCESS_TEST(an_array_of_a_dead_context_leaves_the_next_block_at_its_address_alone)
{
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    check_reset_under_an_array(WARP_MEMORY_CUDA_DEVICE);
    check_reset_under_an_array(WARP_MEMORY_CUDA_MANAGED);
    check_reset_under_an_array(WARP_MEMORY_PINNED);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

PROCESS_TEST(the_memory_of_an_array_that_the_driver_refuses_goes_back_later)
{
    static const char *const entries[] = {"cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost", "cuThreadExchangeStreamCaptureMode"};
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_PINNED,
                                             WARP_MEMORY_CUDA_MANAGED};
    size_t i;
    warp_device *gpu, *cpu;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    gpu = named("cuda:0");
    cpu = named("cpu");
    for (i = 0; i < 4; ++i) {
        warp_array *array = bytes_of(kinds[i] == WARP_MEMORY_PINNED ? cpu : gpu, 100, kinds[i]);
        SIMULATOR(warpsim_fail)(entries[i], 1, 999);
        CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
        SIMULATOR(warpsim_fail_clear)();
        CHECK_EQ_U64(live_blocks(gpu) + live_blocks(cpu), 0);
        CHECK_STATUS(warp_free(block_of(gpu, 8, WARP_MEMORY_CUDA_DEVICE, NULL)), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    }
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* A pool is the GPU's and outlives a context: what another GPU still reads is not given back under it. */
PROCESS_TEST(pool_memory_of_a_lost_device_waits_for_what_another_gpu_does_with_it)
{
    warp_device *first, *second;
    warp_stream *other;
    warp_stream_info info = {0};
    void *ptr;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    info.struct_size = sizeof info;
    first = named("cuda:0");
    second = named("cuda:1");
    other = new_stream(second);
    CHECK_STATUS(warp_stream_get_info(other, &info), WARP_SUCCESS);
    ptr = block_of(first, 1000, WARP_MEMORY_CUDA_MEMPOOL, NULL);
    SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)info.native);
    CHECK_STATUS(warp_pointer_record_stream(ptr, other), WARP_SUCCESS);
    SIMULATOR(warpsim_reset_device)(0);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1);
    SIMULATOR(warpsim_release_all)();
    CHECK_STATUS(warp_free(block_of(second, 8, WARP_MEMORY_CUDA_DEVICE, NULL)), WARP_SUCCESS);
    SIMULATOR(cuCtxSynchronize)();
    CHECK_STATUS(warp_device_synchronize(named("cuda:0")), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(one_native_stream_has_two_handles)
{
    warp_device *gpu;
    CUstream native = NULL;
    warp_stream *first = NULL, *second = NULL;
    void *ptr;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    gpu = named("cuda:0");
    SIMULATOR(cuCtxSetCurrent)(driver_primary(0));
    SIMULATOR(cuStreamCreate)(&native, 1);
    CHECK_STATUS(warp_stream_wrap(gpu, native, &first), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wrap(gpu, native, &second), WARP_SUCCESS);
    ptr = block_of(gpu, 100, WARP_MEMORY_CUDA_DEVICE, first);
    SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native);
    CHECK_STATUS(warp_memory_fill(ptr, 100, "y", 1, second), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(first), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 1);
    SIMULATOR(warpsim_release)((uint64_t)(uintptr_t)native);
    CHECK_STATUS(warp_stream_synchronize(second), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(second), WARP_SUCCESS);
    SIMULATOR(cuStreamDestroy_v2)(native);
    CHECK_STATUS(warp_free(block_of(gpu, 8, WARP_MEMORY_CUDA_DEVICE, NULL)), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(a_context_is_removed_and_destroyed_under_its_blocks_and_streams)
{
    int round;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    for (round = 0; round < 20; ++round) {
        CUcontext context = driver_foreign(0);
        warp_device *device = NULL;
        warp_stream *stream, *current = NULL;
        void *plain, *pool, *kept;
        warp_array *array;
        CHECK_STATUS(warp_device_from_context(context, NULL, &device), WARP_SUCCESS);
        stream = new_stream(device);
        plain = block_of(device, 100, WARP_MEMORY_CUDA_DEVICE, stream);
        kept = block_of(device, 100, WARP_MEMORY_CUDA_DEVICE, stream);
        pool = block_of(device, 100, WARP_MEMORY_CUDA_MEMPOOL, stream);
        array = bytes_of(device, 100, WARP_MEMORY_CUDA_MEMPOOL);
        CHECK_STATUS(warp_stream_set_current(device, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_device_remove(device), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_get_current(device, &current), WARP_ERROR_INVALID_HANDLE);
        CHECK_STATUS(warp_memory_fill(plain, 100, "z", 1, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
        if (round % 2)
            SIMULATOR(cuCtxDestroy_v2)(context);
        CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
        CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        if (round % 2 == 0)
            SIMULATOR(cuCtxDestroy_v2)(context);
    }
    CHECK_STATUS(warp_free(block_of(named("cuda:0"), 8, WARP_MEMORY_CUDA_DEVICE, NULL)), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

/* ---- Callbacks that call back in ----------------------------------------------------------------------------------- */

struct meddler {
    warp_array *self, *next;
    void *ptr, *memory;
    int calls, ends_the_library;
};

static void meddle(void *user, void *ptr, uint64_t size)
{
    struct meddler *meddler = user;
    CUcontext other = driver_primary(1);
    void *got = NULL;
    (void)ptr;
    (void)size;
    ++meddler->calls;
    CHECK_STATUS(warp_array_release(meddler->self), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_free(meddler->ptr), WARP_SUCCESS);
    if (warp_alloc(NULL, 10, &got) == WARP_SUCCESS)
        CHECK_STATUS(warp_free(got), WARP_SUCCESS);
    if (meddler->next != NULL)
        CHECK_STATUS(warp_array_release(meddler->next), meddler->ends_the_library ? WARP_ERROR_INVALID_HANDLE : WARP_SUCCESS);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    if (meddler->ends_the_library)
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    SIMULATOR(cuCtxSetCurrent)(other);
}

static warp_array *meddled(warp_device *device, struct meddler *meddler, warp_array *next)
{
    warp_array_wrap_options options = {0};
    int64_t count = 10;
    warp_device *cpu = named("cpu");
    options.struct_size = sizeof options;
    options.deleter = meddle;
    options.deleter_user = meddler;
    meddler->ptr = block_of(device, 100, WARP_MEMORY_UNKNOWN, NULL);
    meddler->memory = block_of(device, 100, WARP_MEMORY_UNKNOWN, NULL);
    meddler->next = next;
    (void)cpu;
    CHECK_STATUS(warp_array_wrap(device, meddler->memory, warp_dtype_make(WARP_DTYPE_UINT, 8), 1, &count, &options,
                                 &meddler->self),
                 WARP_SUCCESS);
    return meddler->self;
}

PROCESS_TEST(deleters_may_free_allocate_release_begin_and_end)
{
    static struct meddler meddlers[40];
    CUcontext before;
    int i, round;
    for (round = 0; round < 2; ++round) {
        warp_array *next = NULL;
        memset(meddlers, 0, sizeof meddlers);
        REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        /* Each releases the one before it, deeper than a thread has places to note what it is inside of. */
        for (i = 0; i < 40; ++i)
            next = meddled(i % 3 ? named("cuda:0") : named("cpu"), &meddlers[i], next);
        before = driver_current();
        if (round == 0)
            CHECK_STATUS(warp_array_release(next), WARP_SUCCESS);
        else
            for (i = 0; i < 40; ++i)
                meddlers[i].ends_the_library = 1;
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_EQ_PTR(driver_current(), before);
        for (i = 0; i < 40; ++i) {
            CHECK_EQ_I64(meddlers[i].calls, 1);
            CHECK_STATUS(warp_free(meddlers[i].memory), WARP_SUCCESS);
        }
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

static int messages;

static void calls_everything(void *user, warp_log_level level, const char *message)
{
    warp_device *device = NULL;
    warp_stream *stream = NULL;
    warp_array *array = NULL;
    warp_mempool *pool = NULL;
    warp_scope *scope = NULL;
    warp_launch_argument argument;
    void *ptr = NULL;
    int64_t count = 4;
    uint8_t can = 0;
    (void)level;
    (void)message;
    (void)user;
    ++messages;
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_ERROR_BUSY);
    warp_init(NULL, NULL);
    warp_device_get("cuda:0", &device);
    warp_stream_create(device, NULL, &stream);
    warp_alloc(device, 64, &ptr);
    warp_memory_fill(ptr, 64, "q", 1, stream);
    warp_array_zeros(device, warp_dtype_make(WARP_DTYPE_INT, 8), 1, &count, NULL, &array);
    warp_mempool_create(device, NULL, &pool);
    warp_mempool_use(device, pool);
    warp_scope_begin_mempool(device, 1, &scope);
    warp_mempool_trim_of_device(device, 0);
    warp_mempool_access_set_enabled_for(device, NULL, 0, 1);
    warp_access_can(device, array, &can);
    memset(&argument, 0, sizeof argument);
    argument.value = array;
    warp_launch_check(device, "k", &argument, 1, sizeof argument, WARP_LAUNCH_CHECKED, NULL);
    warp_scope_end(scope);
    warp_mempool_use(device, NULL);
    warp_mempool_release(pool);
    warp_stream_release(stream);
    warp_array_release(array);
    warp_free(ptr);
    warp_device_synchronize(device);
    warp_shutdown();
}

PROCESS_TEST(a_log_callback_may_call_everything)
{
    warp_device *gpu;
    void *ptr;
    int round;
    CHECK_STATUS(warp_log_set_callback(calls_everything, NULL, WARP_LOG_DEBUG), WARP_SUCCESS);
    for (round = 0; round < 5; ++round) {
        REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        gpu = named("cuda:0");
        ptr = block_of(gpu, 100, WARP_MEMORY_CUDA_DEVICE, NULL);
        SIMULATOR(warpsim_reset_device)(0);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block_of(named("cuda:0"), 100, WARP_MEMORY_CUDA_DEVICE, NULL)), WARP_SUCCESS);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
    CHECK(messages >= 10);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

/* ---- Threads that end ---------------------------------------------------------------------------------------------- */

static pthread_key_t last_words;

static void frees_late(void *ptr)
{
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
}

/* Uses the library in every round of destructors, as what wants to be the last does. */
static void frees_as_late_as_can_be(void *count)
{
    warp_device *cpu = NULL;
    void *ptr = NULL;
    warp_device_get("cpu", &cpu);
    warp_alloc(cpu, 32, &ptr);
    warp_free(ptr);
    if ((uintptr_t)count > 1)
        pthread_setspecific(last_words, (void *)((uintptr_t)count - 1));
}

static void *short_life(void *late)
{
    warp_device *gpu = NULL, *cpu = NULL;
    warp_stream *stream = NULL;
    void *ptr = NULL;
    warp_device_get("cuda:0", &gpu);
    warp_device_get("cpu", &cpu);
    warp_device_set_for_thread(gpu);
    warp_stream_create(gpu, NULL, &stream);
    warp_stream_set_current(gpu, stream); /* and is not put back */
    CHECK_STATUS(warp_alloc(gpu, 100, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_fill(ptr, 100, "t", 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    if (late != NULL) {
        pthread_setspecific(last_words, late);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    } else {
        pthread_setspecific(last_words, ptr);
    }
    return NULL;
}

static void run_short_lives(size_t count, void *late)
{
    size_t i;
    for (i = 0; i < count; ++i) {
        pthread_t threads[4];
        int t;
        for (t = 0; t < 4; ++t)
            pthread_create(&threads[t], NULL, short_life, late);
        for (t = 0; t < 4; ++t)
            pthread_join(threads[t], NULL);
    }
}

static void check_short_lives(void (*destructor)(void *), void *late)
{
    long before;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    /* After the library's own key, so that the library is called once more when it has said goodbye. */
    CHECK_STATUS(warp_free(block_of(named("cuda:0"), 8, WARP_MEMORY_UNKNOWN, NULL)), WARP_SUCCESS);
    pthread_key_create(&last_words, destructor);
    run_short_lives(many(100), late);
    before = resident();
    run_short_lives(many(2000), late);
    if (!check_under("valgrind") && !check_under("sanitizer"))
        CHECK(resident() < before + 2000);
    CHECK_EQ_U64(live_blocks(named("cuda:0")), 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(threads_that_free_while_they_end)
{
    check_short_lives(frees_late, NULL);
}

PROCESS_TEST(threads_that_call_in_every_round_of_their_destructors)
{
    check_short_lives(frees_as_late_as_can_be, (void *)(uintptr_t)9);
}

/* ---- Very many ----------------------------------------------------------------------------------------------------- */

static uint64_t random_state = 88172645463325252u;

static uint64_t random_below(uint64_t end)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % end;
}

static void shuffle(void **items, size_t count)
{
    size_t i;
    for (i = count; i > 1; --i) {
        size_t j = (size_t)random_below(i);
        void *kept = items[i - 1];
        items[i - 1] = items[j];
        items[j] = kept;
    }
}

PROCESS_TEST(a_million_live_blocks)
{
    size_t count = many(1000000), i;
    void **blocks = calloc(count, sizeof *blocks);
    warp_device *cpu;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    cpu = named("cpu");
    for (i = 0; i < count; ++i)
        CHECK_STATUS(warp_alloc(cpu, 1 + i % 100, &blocks[i]), WARP_SUCCESS);
    CHECK_EQ_U64(live_blocks(cpu), count);
    shuffle(blocks, count);
    for (i = 0; i < count; ++i)
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
    CHECK_EQ_U64(live_blocks(cpu), 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    free(blocks);
}

PROCESS_TEST(seventy_thousand_arrays)
{
    size_t count = many(70000), i;
    void **arrays = calloc(count, sizeof *arrays);
    int64_t shape[33], strides[32];
    warp_array *array = NULL;
    warp_device *gpu;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    gpu = named("cuda:0");
    for (i = 0; i < 33; ++i)
        shape[i] = 1;
    shape[31] = 3;
    for (i = 0; i < count; ++i) {
        CHECK_STATUS(warp_array_empty(gpu, warp_dtype_make(WARP_DTYPE_FLOAT, 32), (int32_t)(i % 33), shape, NULL, &array),
                     WARP_SUCCESS);
        arrays[i] = array;
    }
    CHECK_STATUS(warp_array_empty(gpu, warp_dtype_make(WARP_DTYPE_FLOAT, 32), 33, shape, NULL, &array),
                 WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_get_shape(arrays[32], 32, shape, strides), WARP_SUCCESS);
    CHECK_EQ_I64(strides[0], 12);
    CHECK_EQ_I64(strides[31], 4);
    shuffle(arrays, count);
    for (i = 0; i < count / 2; ++i)
        CHECK_STATUS(warp_array_release(arrays[i]), WARP_SUCCESS);
    CHECK_EQ_U64(live_blocks(gpu), count - count / 2);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS); /* the others */
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    free(arrays);
}

PROCESS_TEST(ten_thousand_views_of_views)
{
    size_t count = many(10000), i;
    void **views = calloc(count, sizeof *views);
    warp_device *cpu;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    cpu = named("cpu");
    views[0] = bytes_of(cpu, (int64_t)count, WARP_MEMORY_HOST);
    for (i = 1; i < count; ++i) {
        int64_t start = 1;
        warp_array *view = NULL;
        CHECK_STATUS(warp_array_slice(views[i - 1], 1, &start, NULL, NULL, &view), WARP_SUCCESS);
        views[i] = view;
    }
    CHECK_EQ_PTR(data_of(views[count - 1]), (char *)data_of(views[0]) + count - 1);
    shuffle(views, count);
    for (i = 0; i < count; ++i) {
        CHECK_EQ_U64(live_blocks(cpu), 1);
        CHECK_STATUS(warp_array_release(views[i]), WARP_SUCCESS);
    }
    CHECK_EQ_U64(live_blocks(cpu), 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    free(views);
}

/* Everything once, on streams and devices that come and go. */
static void churn(size_t rounds, warp_device **devices)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED,
                                             WARP_MEMORY_PINNED, WARP_MEMORY_HOST};
    size_t i;
    for (i = 0; i < rounds; ++i) {
        warp_stream *stream = new_stream(devices[1]), *other = new_stream(devices[1 + i % 2]);
        size_t k = i % 5;
        warp_device *device = k < 3 ? devices[1] : devices[0];
        void *ptr = block_of(device, 1 + i % 5000, kinds[k], k < 3 ? stream : NULL);
        warp_array *array = bytes_of(device, 100, kinds[k]);
        if (k < 4)
            CHECK_STATUS(warp_pointer_record_stream(ptr, other), WARP_SUCCESS);
        if (i % 3 == 0)
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        if (k < 4)
            CHECK_STATUS(warp_pointer_record_stream(data_of(array), other), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        if (i % 3 != 0)
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    }
}

PROCESS_TEST(memory_does_not_grow)
{
    warp_device *devices[3];
    long before;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    devices[0] = named("cpu");
    devices[1] = named("cuda:0");
    devices[2] = named("cuda:1");
    churn(many(10000), devices);
    before = resident();
    churn(many(50000), devices);
    if (!check_under("valgrind") && !check_under("sanitizer"))
        CHECK(resident() < before + 2000);
    CHECK(SIMULATOR(warpsim_live_count)("stream") < 20);
    CHECK_STATUS(warp_device_synchronize(devices[1]), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block_of(devices[1], 8, WARP_MEMORY_CUDA_DEVICE, NULL)), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK(SIMULATOR(warpsim_live_count)("*") < 20);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

CHECK_MAIN()
