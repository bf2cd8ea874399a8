/*
 * caching_soak.c: many threads that use one cache in every way at once, for as long as one likes, and memory that is broken up by
 * phases of other sizes and joined again. A second or two by default; WARPMEM_SOAK_SECONDS says how many.
 *
 * needs: simulator
 * valgrind: no (sixteen threads on a cache take minutes there; caching_threads.c is under it)
 */
#define _GNU_SOURCE
#include "caches.h"
#include "process.h"

#define THREADS 16
#define STREAMS 4
#define BLOCKS 256

/* A block where any thread finds it. Its lock is held while something is done with it. */
struct entry {
    pthread_mutex_t lock;
    void *ptr;
    uint64_t size;
};

static struct entry table[BLOCKS];
static warp_stream *streams[STREAMS];
static warp_allocator *cache;
static warp_device *where;
static double end;
static uint64_t operations;
static int captures;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Blocks of a capture are its graph's; a run of it has them, and the cache knows nothing of that. */
static void capture(warp_stream *stream, uint64_t *random)
{
    warp_graph *graph = NULL;
    void *inside = NULL;
    uint64_t size = log_uniform(random, 9, 16);
    unsigned char byte = (unsigned char)*random;
    if (warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL) != WARP_SUCCESS)
        return;
    inside = block_by(where, cache, size, stream);
    if (inside != NULL) {
        CHECK_STATUS(warp_memory_fill(inside, size, &byte, 1, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(inside), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
}

static void *work(void *argument)
{
    uint64_t random = (uintptr_t)argument * 7919, count = 0;
    warp_stream *own = new_stream(where, WARP_STREAM_NON_BLOCKING);
    for (; now() < end && check_failure_count() == 0; ++count) {
        uint64_t at = next_random(&random) % BLOCKS, what = next_random(&random) % 256, bytes = 0;
        struct entry *entry = &table[at];
        warp_stream *stream = next_random(&random) % 4 ? own : streams[next_random(&random) % STREAMS];
        if (what == 0) {
            CHECK_STATUS(warp_allocator_trim(cache, where, &bytes), WARP_SUCCESS);
        } else if (what == 1) {
            warp_caching_info info = {.struct_size = sizeof info};
            CHECK_STATUS(warp_allocator_caching_measure(cache, where, &info), WARP_SUCCESS);
            CHECK(info.used_bytes <= info.reserved_bytes);
        } else if (what == 2) {
            CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
            own = new_stream(where, WARP_STREAM_NON_BLOCKING);
        } else if (what == 3 && captures) {
            capture(own, &random);
        } else if (what < 128) {
            /* What one thread has alone: taken and given at once. */
            void *ptr = block_by(where, cache, log_uniform(&random, 4, 20), stream);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        } else {
            pthread_mutex_lock(&entry->lock);
            if (entry->ptr == NULL) {
                unsigned char byte = (unsigned char)what;
                entry->size = log_uniform(&random, 4, 22);
                entry->ptr = block_by(where, cache, entry->size, stream);
                /* Later users are on other streams, and ordered behind this by the lock and a wait. */
                if (entry->ptr != NULL) {
                    CHECK_STATUS(warp_memory_fill(entry->ptr, 16, &byte, 1, stream), WARP_SUCCESS);
                    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
                }
            } else {
                warp_pointer_info info = {.struct_size = sizeof info};
                CHECK_STATUS(warp_pointer_get_info((char *)entry->ptr + entry->size - 1, &info), WARP_SUCCESS);
                CHECK_EQ_PTR(info.base, entry->ptr);
                CHECK_EQ_U64(info.size, entry->size);
                if (what < 160) {
                    unsigned char byte = 1;
                    /* Not waited for: the free has to come behind it, whoever gets the memory next. */
                    CHECK_STATUS(warp_memory_fill(entry->ptr, 16, &byte, 1, stream), WARP_SUCCESS);
                }
                CHECK_STATUS(warp_free(entry->ptr), WARP_SUCCESS);
                entry->ptr = NULL;
            }
            pthread_mutex_unlock(&entry->lock);
        }
    }
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    __atomic_fetch_add(&operations, count, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Calls that look at what waits for its streams. */
static void settle(void)
{
    int i;
    CHECK_STATUS(warp_device_synchronize(where), WARP_SUCCESS);
    for (i = 0; i < 200; ++i) {
        warp_alloc_options options = {.struct_size = sizeof options, .allocator = cache, .tag = "look"};
        void *ptr = NULL;
        CHECK_STATUS(warp_alloc_with(where, 1, &options, &ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    }
}

static void soak(warp_memory_kind kind, uint64_t schedule)
{
    pthread_t threads[THREADS];
    uintptr_t i;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    where = gpu(0);
    CHECK_STATUS(warp_allocator_create_caching(builtin(kind), NULL, &cache), WARP_SUCCESS);
    for (i = 0; i < STREAMS; ++i)
        streams[i] = new_stream(where, WARP_STREAM_NON_BLOCKING);
    for (i = 0; i < BLOCKS; ++i)
        pthread_mutex_init(&table[i].lock, NULL);
    SIMULATOR(warpsim_schedule)(schedule);
    operations = 0;
    /* Only pools have memory for a graph. */
    captures = kind == WARP_MEMORY_CUDA_MEMPOOL;
    end = now() + soak_seconds(1.5);
    for (i = 0; i < THREADS; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    for (i = 0; i < BLOCKS; ++i) {
        CHECK_STATUS(warp_free(table[i].ptr), WARP_SUCCESS);
        table[i].ptr = NULL;
    }
    printf("\n    %llu operations ", (unsigned long long)operations);
    settle();
    check_empty(cache);
    for (i = 0; i < STREAMS; ++i)
        CHECK_STATUS(warp_stream_release(streams[i]), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(cache), WARP_SUCCESS);
    check_no_violation();
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(plain_memory_under_sixteen_threads)
{
    soak(WARP_MEMORY_CUDA_DEVICE, 7);
}

PROCESS_TEST(pool_memory_under_sixteen_threads)
{
    soak(WARP_MEMORY_CUDA_MEMPOOL, 11);
}

/* Phases of small, large and mixed sizes, each of which leaves some of its blocks to the next: what is reserved stays near what was
 * live at the most, and comes together again when all is free. */
PROCESS_TEST(memory_that_is_broken_up_comes_together_again)
{
    enum { MOST = 2000 };
    static void *blocks[MOST];
    static uint64_t sizes[MOST];
    uint64_t random = 5, live = 0, peak = 0, bytes = 0, phase;
    warp_caching_info info = {.struct_size = sizeof info};
    size_t count = 0, i;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    where = gpu(0);
    CHECK_STATUS(warp_allocator_create_caching(builtin(WARP_MEMORY_CUDA_DEVICE), NULL, &cache), WARP_SUCCESS);
    end = now() + soak_seconds(1.5);
    for (phase = 0; (phase < 12 || now() < end) && check_failure_count() == 0; ++phase) {
        const uint64_t least = phase % 3 == 0 ? 6 : phase % 3 == 1 ? 20 : 8;
        const uint64_t most = phase % 3 == 0 ? 14 : phase % 3 == 1 ? 25 : 25;
        for (i = 0; i < 4000; ++i) {
            if (count < MOST && live < 4 * GIB && (count == 0 || next_random(&random) % 100 < 52)) {
                sizes[count] = log_uniform(&random, least, most);
                blocks[count] = block_by(where, cache, sizes[count], NULL);
                live += sizes[count++];
                peak = live > peak ? live : peak;
            } else {
                size_t at = next_random(&random) % count;
                CHECK_STATUS(warp_free(blocks[at]), WARP_SUCCESS);
                live -= sizes[at];
                blocks[at] = blocks[--count];
                sizes[at] = sizes[count];
            }
        }
        /* A tenth of the blocks is left, all over the place. */
        while (count > MOST / 10) {
            size_t at = next_random(&random) % count;
            CHECK_STATUS(warp_free(blocks[at]), WARP_SUCCESS);
            live -= sizes[at];
            blocks[at] = blocks[--count];
            sizes[at] = sizes[count];
        }
    }
    CHECK_STATUS(warp_allocator_caching_measure(cache, NULL, &info), WARP_SUCCESS);
    printf("\n    %llu phases, %.2f times as much reserved as was live at the most ", (unsigned long long)phase,
               (double)info.peak_reserved_bytes / (double)peak);
    CHECK(info.peak_reserved_bytes < peak + peak / 2);
    CHECK_EQ_U64(info.live_bytes, live);
    for (i = 0; i < count; ++i)
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
    check_empty(cache);
    CHECK_STATUS(warp_allocator_trim(cache, where, &bytes), WARP_SUCCESS);
    CHECK_EQ_U64(bytes, info.reserved_bytes);
    CHECK_STATUS(warp_allocator_release(cache), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
