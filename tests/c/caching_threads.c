/*
 * caching_threads.c: threads that use caches as they like: blocks of others are freed, looked at and recorded on more streams, while
 * streams and caches come and go. A stamp in each block proves that nobody else has it, and in the end nothing is left.
 *
 * needs: simulator
 */
#define _GNU_SOURCE
#include "caches.h"
#include "process.h"

#include <sched.h>

#define THREADS 8
#define BLOCKS 64
#define STREAMS 4

/* A block that some thread has put where another one finds it. */
struct entry {
    unsigned char *ptr;
    uint64_t size, stamp;
};

static struct entry table[BLOCKS];
static pthread_mutex_t locks[BLOCKS];
static warp_allocator *shared;
static warp_device *where;
static warp_stream *streams[STREAMS];
static uint64_t stamps, rounds;
static int churning;

static void take_locks(void)
{
    int i;
    for (i = 0; i < BLOCKS; ++i)
        pthread_mutex_init(&locks[i], NULL);
    setenv("WARPSIM_LOG", "0", 1);
}

static void stamp_block(struct entry *entry)
{
    entry->stamp = __atomic_add_fetch(&stamps, 1, __ATOMIC_SEQ_CST);
    memcpy(entry->ptr, &entry->stamp, 8);
    memcpy(entry->ptr + entry->size - 8, &entry->stamp, 8);
}

static void check_stamp(const struct entry *entry)
{
    uint64_t first, last;
    memcpy(&first, entry->ptr, 8);
    memcpy(&last, entry->ptr + entry->size - 8, 8);
    CHECK_EQ_U64(first, entry->stamp);
    CHECK_EQ_U64(last, entry->stamp);
}

static uint64_t some_size(uint64_t *random)
{
    uint64_t log2 = next_random(random) % 20;
    return next_random(random) % ((uint64_t)1 << log2) + 16;
}

static void run_threads(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    uintptr_t i;
    for (i = 0; i < THREADS; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, body, (void *)(i + 1)) == 0);
    for (i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
}

/* ---- memory that the CPU sees --------------------------------------------------------------------------------------- */

static void *on_host(void *argument)
{
    uint64_t random = (uintptr_t)argument * 77, i;
    for (i = 0; i < rounds && check_failure_count() == 0; ++i) {
        uint64_t at = next_random(&random) % BLOCKS, what = next_random(&random) % 64;
        struct entry *entry = &table[at];
        if (what == 0) {
            uint64_t bytes = 0;
            CHECK_STATUS(warp_allocator_trim(shared, cpu(), &bytes), WARP_SUCCESS);
            continue;
        }
        if (what == 1) {
            warp_caching_info info = {.struct_size = sizeof info};
            CHECK_STATUS(warp_allocator_caching_measure(shared, NULL, &info), WARP_SUCCESS);
            continue;
        }
        if (what == 2) {
            /* Somebody else's, maybe gone by now: any answer, and no crash. */
            warp_pointer_info info = {.struct_size = sizeof info};
            CHECK_STATUS(warp_pointer_get_info(__atomic_load_n(&entry->ptr, __ATOMIC_RELAXED), &info), WARP_SUCCESS);
            continue;
        }
        pthread_mutex_lock(&locks[at]);
        if (entry->ptr == NULL) {
            entry->size = some_size(&random);
            entry->ptr = block_by(where, shared, entry->size, NULL);
            if (entry->ptr != NULL)
                stamp_block(entry);
        } else {
            warp_pointer_info info = {.struct_size = sizeof info};
            check_stamp(entry);
            if (what < 8) {
                CHECK_STATUS(warp_pointer_get_info(entry->ptr + entry->size / 2, &info), WARP_SUCCESS);
                CHECK_EQ_PTR(info.base, entry->ptr);
                CHECK_EQ_U64(info.size, entry->size);
            }
            CHECK_STATUS(warp_free(entry->ptr), WARP_SUCCESS);
            entry->ptr = NULL;
        }
        pthread_mutex_unlock(&locks[at]);
    }
    return NULL;
}

static void free_table(void)
{
    int i;
    for (i = 0; i < BLOCKS; ++i)
        if (table[i].ptr != NULL) {
            check_stamp(&table[i]);
            CHECK_STATUS(warp_free(table[i].ptr), WARP_SUCCESS);
            table[i].ptr = NULL;
        }
}

static void stamp_on_host(warp_memory_kind kind)
{
    warp_caching_options options = {.struct_size = sizeof options, .keep = 4 * MIB};
    take_locks();
    start_on("h200x2");
    where = cpu();
    rounds = check_under("valgrind") ? 300 : 20000;
    CHECK_STATUS(warp_allocator_create_caching(builtin(kind), &options, &shared), WARP_SUCCESS);
    run_threads(on_host);
    free_table();
    check_empty(shared);
    CHECK_EQ_U64(live_of(shared), 0);
    CHECK_STATUS(warp_allocator_release(shared), WARP_SUCCESS);
    CHECK_EQ_U64(statistics_of(where, kind).live_bytes, 0);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(no_two_threads_have_one_block_of_host_memory)
{
    stamp_on_host(WARP_MEMORY_HOST);
}

PROCESS_TEST(no_two_threads_have_one_block_of_pinned_memory)
{
    stamp_on_host(WARP_MEMORY_PINNED);
}

/* ---- caches that come and go ---------------------------------------------------------------------------------------- */

static warp_allocator *passing;

/* With whatever cache there is at the moment, until it is no more. */
static void *with_passing_caches(void *argument)
{
    uint64_t random = (uintptr_t)argument * 1234567;
    struct entry mine[8];
    memset(mine, 0, sizeof mine);
    while (__atomic_load_n(&churning, __ATOMIC_ACQUIRE) && check_failure_count() == 0) {
        struct entry *entry = &mine[next_random(&random) % 8];
        warp_status status;
        void *ptr = NULL;
        if (entry->ptr != NULL) {
            check_stamp(entry);
            CHECK_STATUS(warp_free(entry->ptr), WARP_SUCCESS);
            entry->ptr = NULL;
            continue;
        }
        entry->size = some_size(&random) / 8 + 16;
        status = try_by(where, __atomic_load_n(&passing, __ATOMIC_ACQUIRE), entry->size, NULL, &ptr);
        if (status != WARP_ERROR_INVALID_HANDLE)
            CHECK_STATUS(status, WARP_SUCCESS);
        entry->ptr = ptr;
        if (ptr != NULL)
            stamp_block(entry);
    }
    for (random = 0; random < 8; ++random)
        if (mine[random].ptr != NULL) {
            check_stamp(&mine[random]);
            CHECK_STATUS(warp_free(mine[random].ptr), WARP_SUCCESS);
        }
    return NULL;
}

static void *churn_caches(void *argument)
{
    uint64_t i, times = check_under("valgrind") ? 20 : 1500;
    (void)argument;
    for (i = 0; i < times && check_failure_count() == 0; ++i) {
        warp_allocator *next = NULL, *before;
        CHECK_STATUS(warp_allocator_create_caching(shared, NULL, &next), WARP_SUCCESS);
        before = __atomic_exchange_n(&passing, next, __ATOMIC_ACQ_REL);
        if (i % 8 == 0)
            sched_yield();
        CHECK_STATUS(warp_allocator_release(before), WARP_SUCCESS);
    }
    __atomic_store_n(&churning, 0, __ATOMIC_RELEASE);
    return NULL;
}

static void *either(void *argument)
{
    return (uintptr_t)argument == 1 ? churn_caches(argument) : with_passing_caches(argument);
}

/* Blocks that come of a cache in the moment of its end are blocks like any: they are nobody else's, and go back. */
PROCESS_TEST(caches_end_while_they_are_asked)
{
    static struct recorder r;
    take_locks();
    start_on("h200x2");
    where = cpu();
    r.kind = WARP_MEMORY_HOST;
    r.flags = WARP_ALLOCATOR_HOST_MEMORY;
    shared = created(&r, WARP_MEMORY_HOST);
    CHECK_STATUS(warp_allocator_create_caching(shared, NULL, &passing), WARP_SUCCESS);
    churning = 1;
    run_threads(either);
    CHECK_STATUS(warp_allocator_release(passing), WARP_SUCCESS);
    let_go(&r);
    CHECK_OVER(&r);
    CHECK_EQ_U64(r.allocates, r.deallocates);
    CHECK_EQ_U64(statistics_of(where, WARP_MEMORY_HOST).live_blocks, 0);
    CHECK_NOTHING_LEFT();
}

/* ---- streams -------------------------------------------------------------------------------------------------------- */

static void *on_streams(void *argument)
{
    uint64_t random = (uintptr_t)argument * 991, i;
    warp_stream *own = new_stream(where, WARP_STREAM_NON_BLOCKING);
    for (i = 0; i < rounds && check_failure_count() == 0; ++i) {
        uint64_t at = next_random(&random) % BLOCKS, what = next_random(&random) % 64, bytes;
        struct entry *entry = &table[at];
        warp_stream *stream = next_random(&random) % 2 ? own : streams[next_random(&random) % STREAMS];
        if (what == 0) {
            CHECK_STATUS(warp_allocator_trim(shared, where, &bytes), WARP_SUCCESS);
            continue;
        }
        if (what == 1) {
            CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
            own = new_stream(where, WARP_STREAM_NON_BLOCKING);
            continue;
        }
        if (what == 2) {
            warp_caching_info info = {.struct_size = sizeof info};
            CHECK_STATUS(warp_allocator_caching_measure(shared, where, &info), WARP_SUCCESS);
            continue;
        }
        if (what == 3) {
            warp_pointer_info info = {.struct_size = sizeof info};
            CHECK_STATUS(warp_pointer_get_info(__atomic_load_n(&entry->ptr, __ATOMIC_RELAXED), &info), WARP_SUCCESS);
            continue;
        }
        pthread_mutex_lock(&locks[at]);
        if (entry->ptr == NULL) {
            unsigned char byte = (unsigned char)what;
            entry->size = some_size(&random);
            entry->ptr = block_by(where, shared, entry->size, stream);
            entry->stamp = byte;
            if (entry->ptr != NULL) {
                CHECK_STATUS(warp_memory_fill(entry->ptr, entry->size, &byte, 1, stream), WARP_SUCCESS);
                CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
            }
        } else {
            unsigned char first = 0, last = 0;
            /* On the other stream the library sees the block used. */
            CHECK_STATUS(warp_memory_copy(&first, entry->ptr, 1, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_memory_copy(&last, entry->ptr + entry->size - 1, 1, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
            CHECK_EQ_U64(first, entry->stamp);
            CHECK_EQ_U64(last, entry->stamp);
            if (what < 8)
                CHECK_STATUS(warp_pointer_record_stream(entry->ptr, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_free(entry->ptr), WARP_SUCCESS);
            entry->ptr = NULL;
        }
        pthread_mutex_unlock(&locks[at]);
    }
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    return NULL;
}

static void use_streams(warp_memory_kind kind, uint64_t seed)
{
    int i;
    char text[300];
    size_t v;
    take_locks();
    start_on("h200x2");
    where = gpu(1);
    rounds = check_under("valgrind") ? 60 : 2000;
    CHECK_STATUS(warp_allocator_create_caching(builtin(kind), NULL, &shared), WARP_SUCCESS);
    for (i = 0; i < STREAMS; ++i)
        streams[i] = new_stream(where, WARP_STREAM_NON_BLOCKING);
    SIMULATOR(warpsim_schedule)(seed);
    run_threads(on_streams);
    for (i = 0; i < BLOCKS; ++i)
        CHECK_STATUS(warp_free(table[i].ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(where), WARP_SUCCESS);
    /* Calls that look at what waits, by 16 blocks each at least. */
    for (i = 0; i < 64; ++i) {
        warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, NULL);
        void *ptr = NULL;
        options.allocator = shared;
        options.tag = "look";
        CHECK_STATUS(warp_alloc_with(where, 1, &options, &ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    }
    check_empty(shared);
    for (i = 0; i < STREAMS; ++i)
        CHECK_STATUS(warp_stream_release(streams[i]), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(shared), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
    for (v = 0; SIMULATOR(warpsim_violation_get)(v, text, sizeof text) != 0 && v < 5; ++v)
        check_that(0, __FILE__, __LINE__, text);
}

PROCESS_TEST(streams_and_threads_share_plain_memory)
{
    use_streams(WARP_MEMORY_CUDA_DEVICE, 0);
}

PROCESS_TEST(streams_that_lag_share_plain_memory)
{
    use_streams(WARP_MEMORY_CUDA_DEVICE, 11);
}

PROCESS_TEST(streams_that_lag_share_pool_memory)
{
    use_streams(WARP_MEMORY_CUDA_MEMPOOL, 12);
}

/* ---- memory that changes streams ------------------------------------------------------------------------------------ */

static void *lend_and_borrow(void *argument)
{
    warp_stream *own = new_stream(where, WARP_STREAM_NON_BLOCKING);
    unsigned char byte = (unsigned char)(uintptr_t)argument;
    uint64_t random = (uintptr_t)argument, i;
    for (i = 0; i < rounds; ++i) {
        /* So large that one is at hand afterwards, and the others in the heap. */
        void *blocks[4];
        uint64_t count = 1 + next_random(&random) % 4, j;
        if (next_random(&random) % 8 == 0)
            CHECK_STATUS(warp_allocator_trim(shared, where, &j), WARP_SUCCESS);
        for (j = 0; j < count; ++j) {
            blocks[j] = block_by(where, shared, 70 * MIB, own);
            CHECK_STATUS(warp_memory_fill(blocks[j], 64, &byte, 1, own), WARP_SUCCESS);
        }
        for (j = 0; j < count; ++j)
            CHECK_STATUS(warp_free(blocks[j]), WARP_SUCCESS);
        if (next_random(&random) % 2)
            CHECK_STATUS(warp_stream_synchronize(own), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    return NULL;
}

/* That a stream was done is no news of it when somebody worked on it meanwhile. */
PROCESS_TEST(memory_is_lent_only_while_its_stream_is_done)
{
    warp_caching_options options = {.struct_size = sizeof options, };
    char text[300];
    size_t v;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    where = gpu(0);
    rounds = check_under("valgrind") ? 20 : 10000;
    CHECK_STATUS(warp_allocator_create_caching(builtin(WARP_MEMORY_CUDA_MEMPOOL), NULL, &shared), WARP_SUCCESS);
    SIMULATOR(warpsim_schedule)(5);
    SIMULATOR(warpsim_races)(1);
    run_threads(lend_and_borrow);
    for (v = 0; SIMULATOR(warpsim_violation_get)(v, text, sizeof text) != 0 && v < 3; ++v)
        check_that(0, __FILE__, __LINE__, text);
    CHECK_STATUS(warp_allocator_release(shared), WARP_SUCCESS);
}

/* ---- answers while others churn ----------------------------------------------------------------------------------------- */

#define CROWD 32
#define MINE 12

/* Blocks that live as long as all look at them. */
static struct entry settled[BLOCKS];
static warp_pointer_info settled_info[BLOCKS];
static warp_stream *common;
static int over;

static void check_exactly(const struct entry *entry, const warp_pointer_info *expected, uint64_t at)
{
    warp_pointer_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_pointer_get_info(entry->ptr + at, &info), WARP_SUCCESS);
    CHECK_EQ_PTR(info.base, entry->ptr);
    CHECK_EQ_U64(info.size, entry->size);
    CHECK_EQ_PTR(info.allocator, shared);
    CHECK_EQ_PTR(info.device, where);
    CHECK_EQ_U64(info.stream_id, expected->stream_id);
    CHECK_EQ_I64(info.kind, expected->kind);
    CHECK_EQ_I64(info.is_owned, 1);
    CHECK_EQ_I64(info.is_lost, 0);
    CHECK_EQ_STR(info.tag == NULL ? "none" : info.tag, expected->tag == NULL ? "none" : expected->tag);
}

static void *in_a_crowd(void *argument)
{
    uint64_t random = (uintptr_t)argument * 991;
    warp_stream *own = (uintptr_t)argument % 2 ? common : new_stream(where, WARP_STREAM_NON_BLOCKING);
    struct entry mine[MINE];
    warp_pointer_info expected = {.struct_size = sizeof expected};
    int i;
    memset(mine, 0, sizeof mine);
    expected.stream_id = stream_info(own).id;
    expected.kind = WARP_MEMORY_CUDA_DEVICE;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED) && check_failure_count() == 0) {
        struct entry *entry = &mine[next_random(&random) % MINE];
        uint64_t what = next_random(&random) % 256, at;
        if (entry->ptr == NULL) {
            entry->size = some_size(&random) + (what < 4 ? 3 * MIB : 0);
            entry->ptr = block_by(where, shared, entry->size, own);
            if (entry->ptr == NULL)
                break;
        } else if (what < 128) {
            check_exactly(entry, &expected, next_random(&random) % entry->size);
            CHECK_STATUS(warp_free(entry->ptr), WARP_SUCCESS);
            entry->ptr = NULL;
        }
        at = next_random(&random) % BLOCKS;
        if (what % 2 == 0)
            check_exactly(&settled[at], &settled_info[at], next_random(&random) % settled[at].size);
        if (what == 253)
            CHECK_STATUS(warp_pointer_record_stream(settled[at].ptr, own), WARP_SUCCESS);
        if (what == 255) {
            uint64_t bytes = 0;
            CHECK_STATUS(warp_allocator_trim(shared, where, &bytes), WARP_SUCCESS);
        }
        if (what == 254) {
            warp_caching_info info = {.struct_size = sizeof info};
            CHECK_STATUS(warp_allocator_caching_measure(shared, where, &info), WARP_SUCCESS);
            CHECK(info.live_blocks >= BLOCKS / 2 && info.live_blocks <= BLOCKS + CROWD * MINE);
            CHECK(info.free_bytes <= info.reserved_bytes);
        }
    }
    for (i = 0; i < MINE; ++i)
        CHECK_STATUS(warp_free(mine[i].ptr), WARP_SUCCESS);
    if (own != common)
        CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(answers_are_exact_while_a_crowd_churns)
{
    pthread_t threads[CROWD];
    warp_caching_options options = {.struct_size = sizeof options, .keep = 8 * MIB};
    uint64_t random = 3;
    uintptr_t i;
    int crowd = check_under("valgrind") ? 4 : CROWD;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    where = gpu(0);
    CHECK_STATUS(warp_allocator_create_caching(builtin(WARP_MEMORY_CUDA_DEVICE), &options, &shared), WARP_SUCCESS);
    common = new_stream(where, WARP_STREAM_NON_BLOCKING);
    for (i = 0; i < BLOCKS; ++i) {
        warp_alloc_options order = options_of(WARP_MEMORY_UNKNOWN, i % 3 ? common : NULL);
        order.allocator = shared;
        order.tag = i % 2 ? "settled" : NULL;
        settled[i].size = some_size(&random);
        CHECK_STATUS(warp_alloc_with(where, settled[i].size, &order, (void **)&settled[i].ptr), WARP_SUCCESS);
        settled_info[i] = pointer_info(settled[i].ptr);
        CHECK_EQ_U64(settled_info[i].size, settled[i].size);
        /* Some are told of more than usual only later. */
        if (i % 5 == 0)
            CHECK_STATUS(warp_pointer_record_stream(settled[i].ptr, i % 2 ? common : NULL), WARP_SUCCESS);
    }
    for (i = 0; i < (uintptr_t)crowd; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, in_a_crowd, (void *)(i + 1)) == 0);
    sleep(check_under("valgrind") ? 6 : 3);
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (i = 0; i < (uintptr_t)crowd; ++i)
        pthread_join(threads[i], NULL);
    for (i = 0; i < BLOCKS; ++i)
        CHECK_STATUS(warp_free(settled[i].ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(where), WARP_SUCCESS);
    check_empty(shared);
    CHECK_STATUS(warp_stream_release(common), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(shared), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* ---- uses that two threads note at once -------------------------------------------------------------------------------- */

static void *noted;
static uint64_t round_begun, round_noted;

static void pause_for(uint64_t steps)
{
    volatile uint64_t step;
    for (step = 0; step < steps; ++step)
        ;
}

static void *note_beside(void *argument)
{
    uint64_t random = 5, i;
    for (i = 1; i <= rounds; ++i) {
        while (__atomic_load_n(&round_begun, __ATOMIC_ACQUIRE) != i)
            sched_yield();
        pause_for(next_random(&random) % 300);
        CHECK_STATUS(warp_pointer_record_stream(noted, (warp_stream *)argument), WARP_SUCCESS);
        __atomic_store_n(&round_noted, i, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* Of a block that was never more than usual: the ledger is told of it by one of them, and both uses count. */
PROCESS_TEST(two_threads_note_a_use_at_once)
{
    warp_stream *own, *working, *done;
    pthread_t other;
    uint64_t random = 3, i, lost = 0;
    void *next, *on_gpu;
    take_locks();
    start_on("h200x2");
    rounds = check_under("valgrind") ? 50 : 20000;
    shared = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    own = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    working = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    done = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    on_gpu = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    hold(working);
    fill_on(working, on_gpu, 64);
    REQUIRE(pthread_create(&other, NULL, note_beside, working) == 0);
    for (i = 1; i <= rounds; ++i) {
        noted = block_by(gpu(0), shared, 512, own);
        __atomic_store_n(&round_begun, i, __ATOMIC_RELEASE);
        pause_for(next_random(&random) % 300);
        CHECK_STATUS(warp_pointer_record_stream(noted, done), WARP_SUCCESS);
        while (__atomic_load_n(&round_noted, __ATOMIC_ACQUIRE) != i)
            sched_yield();
        freed(noted);
        next = block_by(gpu(0), shared, 512, own);
        lost += next == noted;
        freed(next);
    }
    pthread_join(other, NULL);
    CHECK_EQ_U64(lost, 0);
    let_on(working);
    freed(on_gpu);
    release(shared);
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(working), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(done), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
}

static void *with_little_stack(void *of)
{
    warp_alloc_options options = {.struct_size = sizeof options, .allocator = of};
    void *blocks[3] = {0};
    int i;
    for (i = 0; i < 3; ++i)
        CHECK_STATUS(warp_alloc_with(gpu(0), 1000, &options, &blocks[i]), WARP_SUCCESS);
    for (i = 0; i < 3; ++i)
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
    return NULL;
}

/* What a thread remembers is larger than the stack that fibers and some languages give to one. */
PROCESS_TEST(a_thread_with_a_small_stack_is_served)
{
    pthread_attr_t attributes;
    pthread_t thread;
    start_on("h200x2");
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 96 << 10) == 0);
    REQUIRE(pthread_create(&thread, &attributes, with_little_stack, own_cache(WARP_MEMORY_UNKNOWN)) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
}

static warp_allocator *cache_of_lost;
static warp_device *present;
static int is_over;

static void *use_what_is_lost(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        void *ptr = NULL;
        if (try_by(__atomic_load_n(&present, __ATOMIC_ACQUIRE), cache_of_lost, log_uniform(&random, 4, 22), NULL, &ptr) == WARP_SUCCESS)
            (void)warp_free(ptr);
    }
    return NULL;
}

/* One device after the other, while several threads forget what was lost and others have blocks of it: no header is in two places,
 * nothing counts less than nothing, and what there is in the end goes back. */
PROCESS_TEST(devices_are_lost_while_threads_allocate_and_free)
{
    pthread_t threads[6];
    int i;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    SIMULATOR(warpsim_dead_stream_crashes)(0);
    cache_of_lost = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    present = gpu(1);
    for (i = 0; i < 6; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, use_what_is_lost, (void *)(uintptr_t)(i + 1)) == 0);
    for (i = 0; i < 300 && check_failure_count() == 0; ++i) {
        struct timespec pause = {0, 5000000};
        warp_statistics figures = {.struct_size = sizeof figures};
        nanosleep(&pause, NULL);
        CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(1), 0);
        (void)warp_device_synchronize(present);
        __atomic_store_n(&present, gpu(1), __ATOMIC_RELEASE);
        /* It may be that a thread has found the next one lost by now. */
        if (warp_statistics_get(present, WARP_MEMORY_CUDA_DEVICE, &figures) != WARP_SUCCESS)
            memset(&figures, 0, sizeof figures);
        CHECK(figures.live_bytes < GIB && figures.peak_bytes < GIB);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    for (i = 0; i < 6; ++i)
        pthread_join(threads[i], NULL);
    present = gpu(1);
    (void)trimmed(cache_of_lost, present);
    CHECK_EQ_U64(figures_of(cache_of_lost, present).reserved_bytes, 0);
    CHECK_EQ_U64(statistics_of(present, WARP_MEMORY_CUDA_DEVICE).live_bytes, 0);
    release(cache_of_lost);
}

CHECK_MAIN()
