/*
 * Many threads allocate, fill, copy, ask and free all kinds of memory on all devices and streams, and free each other's
 * blocks; every byte is verified, and nothing is left at the end.
 */
/* topology: h200x2 */
/* topology: mixed */
/* topology: - */
#define _POSIX_C_SOURCE 200809L
#include "blocks.h"

#include <pthread.h>
#include <time.h>

#define THREADS 8
#define SECONDS 2.5
#define OWN 24
#define SHELF 64

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct block {
    unsigned char *ptr;
    uint64_t size, seed;
    warp_device *device;
    warp_memory_kind kind;
};

/* Blocks that one thread laid down and another takes up. */
static struct block shelf[SHELF];
static pthread_mutex_t shelf_lock = PTHREAD_MUTEX_INITIALIZER;
static int stop;
static size_t device_count;
static warp_device *devices[8];

struct worker {
    pthread_t thread;
    uint64_t random, operations;
    uint64_t natives[4];
    warp_stream *streams[2][3]; /* of each GPU: blocking, non-blocking, the device's default */
};

static warp_stream *stream_for(struct worker *worker, warp_device *device)
{
    uint64_t choice = next_random(&worker->random) % 4;
    size_t g;
    for (g = 0; g < 2; ++g)
        if (g + 1 < device_count && devices[g + 1] == device && choice < 3)
            return worker->streams[g][choice];
    return NULL;
}

static int is_host(warp_memory_kind kind)
{
    return kind == WARP_MEMORY_HOST || kind == WARP_MEMORY_PINNED;
}

static struct block make(struct worker *worker)
{
    struct block block;
    warp_alloc_options options;
    warp_status status;
    uint64_t random = next_random(&worker->random);
    block.device = devices[random % device_count];
    do
        block.kind = (warp_memory_kind)(WARP_MEMORY_HOST + next_random(&worker->random) % (KINDS - 1));
    while (!has_kind(block.device, block.kind));
    block.size = 1 + (random >> 8) % ((random & 0x80) != 0 ? 300 : 20000);
    block.seed = next_random(&worker->random);
    options = options_of(block.kind, is_host(block.kind) ? NULL : stream_for(worker, block.device));
    options.alignment = (random >> 40) % 8 == 0 ? (uint64_t)1 << (random >> 44) % 14 : 0;
    options.tag = (random >> 50) % 4 == 0 ? "threads" : NULL;
    block.ptr = NULL;
    status = warp_alloc_with(block.device, block.size, &options, (void **)&block.ptr);
    CHECK_STATUS(status, WARP_SUCCESS);
    if (options.alignment != 0)
        CHECK_EQ_U64((uintptr_t)block.ptr % options.alignment, 0);
    if (status == WARP_SUCCESS) {
        /* Written on the block's stream, which is then waited for: from here on any stream may use it. */
        unsigned char *bytes = (unsigned char *)malloc((size_t)block.size);
        write_pattern(bytes, block.size, block.seed);
        CHECK_STATUS(warp_memory_copy(block.ptr, bytes, block.size, options.stream), WARP_SUCCESS);
        if (!is_host(block.kind))
            CHECK_STATUS(warp_stream_synchronize(options.stream != NULL ? options.stream : stream_of(block.device)),
                         WARP_SUCCESS);
        free(bytes);
    }
    return block;
}

static void verify(struct worker *worker, const struct block *block)
{
    warp_pointer_info info = pointer_info(block->ptr + next_random(&worker->random) % block->size);
    CHECK_EQ_PTR(info.base, block->ptr);
    CHECK_EQ_U64(info.size, block->size);
    CHECK_EQ_I64(info.kind, block->kind);
    CHECK_EQ_PTR(info.device, block->device);
    if (find_pattern(block->ptr, block->size, block->seed) != block->size) {
        printf("    %" PRIu64 " bytes of kind %d on cuda:%d do not hold what was written\n", block->size, (int)block->kind,
               info.ordinal);
        CHECK(!"the block holds what was written to it");
    }
}

/* Copies one block's beginning over another's, in whichever stream. */
static void copy_between(struct worker *worker, struct block *to, const struct block *from)
{
    uint64_t size = to->size < from->size ? to->size : from->size;
    unsigned char *bytes;
    warp_stream *stream = NULL;
    if (!is_host(to->kind))
        stream = stream_for(worker, to->device);
    else if (!is_host(from->kind))
        stream = stream_for(worker, from->device);
    CHECK_STATUS(warp_memory_copy(to->ptr, from->ptr, size, stream), WARP_SUCCESS);
    if (!is_host(to->kind) || !is_host(from->kind)) {
        /* Without a stream it goes on one of the GPU whose own memory an end is: managed memory is every GPU's. */
        int from_own = !is_host(from->kind) && from->kind != WARP_MEMORY_CUDA_MANAGED;
        int to_first = !is_host(to->kind) && (to->kind != WARP_MEMORY_CUDA_MANAGED || !from_own);
        if (stream == NULL)
            stream = stream_of(to_first ? to->device : from->device);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    }
    bytes = (unsigned char *)malloc((size_t)size);
    copy_now(bytes, to->ptr, size, NULL);
    if (pattern_ends(bytes, size, from->seed) != size) {
        printf("    %" PRIu64 " bytes of kind %d on cuda:%d, copied to kind %d on cuda:%d, are not what came from there\n",
               size, (int)from->kind, pointer_info(from->ptr).ordinal, (int)to->kind, pointer_info(to->ptr).ordinal);
        CHECK(!"the copy holds what its source does");
    }
    free(bytes);
    put_pattern(to->ptr, to->size, to->seed);
    if (!is_host(to->kind))
        CHECK_STATUS(warp_device_synchronize(to->device), WARP_SUCCESS);
}

static void release(struct worker *worker, struct block *block)
{
    warp_free_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.size = next_random(&worker->random) % 2 ? block->size : 0;
    if (!is_host(block->kind) && next_random(&worker->random) % 4 == 0) {
        /* Freed while a stream uses it: what the stream does must not be seen in anybody's block. */
        warp_stream *stream = stream_for(worker, block->device);
        CHECK_STATUS(warp_memory_fill(block->ptr, block->size, "\xDB", 1, stream), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free_with(block->ptr, &options), WARP_SUCCESS);
    block->ptr = NULL;
}

static void *work(void *argument)
{
    struct worker *worker = (struct worker *)argument;
    struct block own[OWN];
    size_t i, k, g;
    memset(own, 0, sizeof own);
    for (g = 0; g < 2 && g + 1 < device_count; ++g) {
        worker->streams[g][0] = new_stream(devices[g + 1], 0);
        worker->streams[g][1] = new_stream(devices[g + 1], WARP_STREAM_NON_BLOCKING);
        worker->streams[g][2] = NULL;
        __atomic_store_n(&worker->natives[2 * g], native_stream(worker->streams[g][0]), __ATOMIC_RELEASE);
        __atomic_store_n(&worker->natives[2 * g + 1], native_stream(worker->streams[g][1]), __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && check_failure_count() < 20) {
        ++worker->operations;
        i = next_random(&worker->random) % OWN;
        if (own[i].ptr == NULL) {
            own[i] = make(worker);
            continue;
        }
        switch (next_random(&worker->random) % 5) {
        case 0:
            verify(worker, &own[i]);
            break;
        case 1:
            k = next_random(&worker->random) % OWN;
            if (k != i && own[k].ptr != NULL)
                copy_between(worker, &own[k], &own[i]);
            break;
        case 2: { /* with another thread's */
            struct block mine = own[i];
            k = next_random(&worker->random) % SHELF;
            pthread_mutex_lock(&shelf_lock);
            own[i] = shelf[k];
            shelf[k] = mine;
            pthread_mutex_unlock(&shelf_lock);
            break;
        }
        default:
            if (next_random(&worker->random) % 2)
                verify(worker, &own[i]);
            release(worker, &own[i]);
        }
    }
    for (i = 0; i < OWN; ++i)
        if (own[i].ptr != NULL)
            release(worker, &own[i]);
    for (g = 0; g < 2 && g + 1 < device_count; ++g) {
        CHECK_STATUS(warp_stream_release(worker->streams[g][0]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(worker->streams[g][1]), WARP_SUCCESS);
    }
    return NULL;
}

TEST(threads_share_all_kinds_of_memory)
{
    struct worker workers[THREADS];
    double end;
    struct timespec pause = {0, 2000000};
    uint64_t random = 5, operations = 0, blocks = 0;
    size_t i;
    REQUIRE(start());
    CHECK_STATUS(warp_device_get_count(&device_count), WARP_SUCCESS);
    if (device_count > 3)
        device_count = 3;
    for (i = 0; i < device_count; ++i)
        CHECK_STATUS(warp_device_get_at(i, &devices[i]), WARP_SUCCESS);
    memset(workers, 0, sizeof workers);
    for (i = 0; i < THREADS; ++i) {
        workers[i].random = 1000 + i;
        REQUIRE(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (end = seconds() + SECONDS; seconds() < end;) {
        /* Now one stream is busy for a while, now another. */
        struct worker *worker = &workers[next_random(&random) % THREADS];
        uint64_t busy = __atomic_load_n(&worker->natives[next_random(&random) % 4], __ATOMIC_ACQUIRE);
        int held = busy != 0 && simulator_is_here() && SIMULATOR(warpsim_hold)(busy) == 0;
        nanosleep(&pause, NULL);
        if (held)
            SIMULATOR(warpsim_release)(busy); /* somebody may have waited for it, which lets it go */
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < THREADS; ++i) {
        pthread_join(workers[i].thread, NULL);
        CHECK(workers[i].operations > (check_under("valgrind") ? 0 : 20));
        operations += workers[i].operations;
    }
    for (i = 0; i < SHELF; ++i)
        if (shelf[i].ptr != NULL) {
            verify(&workers[0], &shelf[i]);
            CHECK_STATUS(warp_free(shelf[i].ptr), WARP_SUCCESS);
        }
    for (i = 0; i < device_count; ++i)
        blocks += statistics_of(devices[i], 0).live_blocks;
    CHECK_EQ_U64(blocks, 0);
    CHECK(operations > (check_under("valgrind") ? 100 : 500));
    CHECK_NOTHING_LEFT();
}

/* One block of each kind that many threads read at once, while each frees and allocates beside it. */
static unsigned char *common[KINDS];

static void *read_common(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    int i, kind;
    for (i = 0; i < 60; ++i)
        for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind)
            if (common[kind] != NULL) {
                unsigned char bytes[256];
                uint64_t at = next_random(&random) % 700;
                warp_stream *stream = kind >= WARP_MEMORY_CUDA_DEVICE ? new_stream(devices[1], i % 2) : NULL;
                void *beside = NULL;
                CHECK_STATUS(warp_alloc(devices[0], 100, &beside), WARP_SUCCESS);
                CHECK_STATUS(warp_memory_copy(bytes, common[kind] + at, 256, stream), WARP_SUCCESS);
                if (stream != NULL) {
                    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
                    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
                }
                CHECK(bytes[0] == byte_at(at, 9) && bytes[255] == byte_at(at + 255, 9));
                CHECK_EQ_PTR(pointer_info(common[kind] + at).base, common[kind]);
                CHECK_STATUS(warp_free(beside), WARP_SUCCESS);
            }
    return NULL;
}

TEST(threads_read_the_same_blocks)
{
    pthread_t threads[THREADS];
    uintptr_t i;
    int kind;
    for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind) {
        warp_device *device = kind <= WARP_MEMORY_PINNED ? devices[0] : device_count > 1 ? devices[1] : NULL;
        common[kind] = device != NULL && has_kind(device, kind) ? (unsigned char *)block_of(device, 1000, kind) : NULL;
        if (common[kind] != NULL)
            put_pattern(common[kind], 1000, 9);
        if (device_count > 1)
            CHECK_STATUS(warp_device_synchronize(devices[1]), WARP_SUCCESS);
    }
    for (i = 0; i < THREADS; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, read_common, (void *)(i + 1)) == 0);
    for (i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    for (kind = WARP_MEMORY_HOST; kind < KINDS; ++kind)
        CHECK_STATUS(warp_free(common[kind]), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
