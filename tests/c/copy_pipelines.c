/*
 * Large copies through page-locked buffers: between pageable memory and GPUs with the copy threads, and between GPUs that do not
 * reach each other. All bytes arrive, in the order of the stream, from many threads at once; the threads come, go, and are not in
 * the child of a fork.
 */
/* valgrind: no (gigabytes by many threads take minutes there; copy.c is under it) */
/* topology: h200x2 */
/* topology: h200x2,peers=0 */
#define _GNU_SOURCE
#include "forked.h"
#include "pipelines.h"

#include <pthread.h>

PROCESS_TEST(there_are_four_threads_or_half_of_the_cores)
{
    uint32_t count = 77;
    CHECK_STATUS(warp_copy_get_threads(&count), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_U64(count, 0);
    CHECK_STATUS(warp_copy_set_threads(1), WARP_ERROR_NOT_INITIALIZED);
    REQUIRE(start());
    CHECK_STATUS(warp_copy_get_threads(NULL), WARP_ERROR_INVALID_ARGUMENT);
    {
        uint32_t cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), usual = threads();
        CHECK(usual <= 4 && usual <= cores / 2);
        set_threads(UINT32_MAX);
        CHECK(threads() >= usual && threads() <= cores / 2);
        set_threads(0);
        CHECK_EQ_U64(threads(), 0);
        set_threads(4);
        CHECK_EQ_U64(threads(), usual);
    }
    CHECK_EQ_I64(threads_named(COPY_THREAD), 0); /* nothing has needed one */
}

/* One size at odd places: up and checked by the driver's own copy, and the other way round. */
static void both_ways(uint64_t size, uint64_t offset, warp_stream *stream, warp_memory_kind kind)
{
    const uint64_t room = size + offset + 64;
    unsigned char *device = (unsigned char *)block_on(gpu(0), room, kind, stream);
    unsigned char *source = words_of(room, size + offset), *before = words_of(room, 5), *got;
    put(device, before, room, stream);
    copy(device + offset, source + 3, size, stream);
    got = fetched(device, room, stream);
    CHECK_EQ_U64(differ_at(got + offset, source + 3, size), size);
    /* The neighbours are as before. */
    CHECK_EQ_U64(differ_at(got, before, offset), offset);
    CHECK_EQ_U64(differ_at(got + offset + size, before + offset + size, 64), 64);
    free(got);
    got = words_of(room, 6);
    put(device, source, room, stream);
    copy(got + 1, device + offset, size, stream); /* all of it is there when the call returns */
    CHECK_EQ_U64(differ_at(got + 1, source + offset, size), size);
    write_words(before, room, 6);
    CHECK_EQ_U64(got[0], before[0]);
    CHECK_EQ_U64(differ_at(got + 1 + size, before + 1 + size, room - size - 1), room - size - 1);
    free(got);
    free(before);
    free(source);
    CHECK_STATUS(warp_free(device), WARP_SUCCESS);
}

PROCESS_TEST(sizes_around_what_matters_at_odd_places)
{
    static const uint64_t sizes[] = {1, PAGEABLE_FROM - 1, PAGEABLE_FROM, PAGEABLE_FROM + 1, 3 * MIB / 2, 2 * MIB - 1, 4 * MIB,
                                     4 * MIB + 1, 5 * MIB + 4097, 8 * MIB, 9 * MIB - 7, 16 * MIB + 1, 33 * MIB + 12345};
    static const uint32_t counts[] = {0, 1, 4};
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_DEVICE};
    warp_stream *stream;
    size_t s, c;
    REQUIRE(start());
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    for (c = 0; c < sizeof counts / sizeof *counts; ++c) {
        set_threads(counts[c]);
        for (s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
            uint64_t buffers = kept_buffers();
            if (check_under("valgrind") && s % 4 != 3)
                continue;
            both_ways(sizes[s], s % 2 == 0 ? 0 : 61 + s, stream, kinds[s % 2]);
            if (threads() == 0 || sizes[s] < PAGEABLE_FROM)
                CHECK_EQ_U64(kept_buffers(), buffers);
            else if (simulator_is_here())
                CHECK(kept_buffers() >= 1);
            CHECK(kept_buffers() <= 2 * (threads() + 2));
        }
    }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* What the driver, or the caller, can do better is left alone. */
PROCESS_TEST(other_copies_use_no_buffers)
{
    unsigned char *device, *pinned, *managed, *host;
    REQUIRE(start());
    device = (unsigned char *)block_of(gpu(0), 4 * MIB, WARP_MEMORY_CUDA_DEVICE);
    pinned = (unsigned char *)block_of(cpu(), 4 * MIB, WARP_MEMORY_PINNED);
    managed = (unsigned char *)block_of(gpu(0), 4 * MIB, WARP_MEMORY_CUDA_MANAGED);
    host = words_of(4 * MIB, 1);
    copy_now(device, pinned, 4 * MIB, stream_of(gpu(0)));
    copy_now(pinned, device, 4 * MIB, stream_of(gpu(0)));
    copy_now(managed, host, 4 * MIB, stream_of(gpu(0)));
    copy_now(host, managed, 4 * MIB, stream_of(gpu(0)));
    copy_now(device, managed, 4 * MIB, stream_of(gpu(0)));
    CHECK_EQ_U64(kept_buffers(), simulator_is_here() ? 1 : 0); /* the caller's */
    if (simulator_is_here()) {
        void *registered = NULL;
        REQUIRE(posix_memalign(&registered, 4096, 4 * MIB) == 0);
        SIMULATOR(cuCtxSetCurrent)(context_of(gpu(0)));
        CHECK_EQ_U64(SIMULATOR(cuMemHostRegister_v2)(registered, 4 * MIB, 1), 0);
        copy_now(device, registered, 4 * MIB, stream_of(gpu(0)));
        CHECK_EQ_U64(SIMULATOR(cuMemHostUnregister)(registered), 0);
        CHECK_EQ_U64(kept_buffers(), 1);
        free(registered);
    }
    free(host);
    CHECK_STATUS(warp_free(device), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pinned), WARP_SUCCESS);
    CHECK_STATUS(warp_free(managed), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(between_gpus_on_streams_of_either)
{
    static const uint64_t sizes[] = {BETWEEN_FROM - 1, BETWEEN_FROM, BETWEEN_FROM + 1, 12 * MIB, 16 * MIB + 3, 37 * MIB + 4099};
    int s, way;
    size_t i;
    REQUIRE(start());
    if (gpu_count() < 2)
        SKIP("needs two GPUs");
    for (way = 0; way < 2; ++way) {
        for (s = 0; s < 2; ++s) {
            warp_stream *stream = new_stream(gpu(s), WARP_STREAM_NON_BLOCKING), *home = new_stream(gpu(way), 0);
            for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
                const uint64_t size = sizes[i], room = size + 200;
                warp_memory_kind kind = (i + (size_t)way) % 2 == 0 ? WARP_MEMORY_CUDA_DEVICE : WARP_MEMORY_CUDA_MEMPOOL;
                unsigned char *from = (unsigned char *)block_on(gpu(way), room, kind, home);
                unsigned char *to = (unsigned char *)block_of(gpu(1 - way), room, kind);
                unsigned char *bytes = words_of(room, i), *got;
                CHECK_STATUS(warp_device_synchronize(gpu(1 - way)), WARP_SUCCESS);
                CHECK_STATUS(warp_memory_fill(to, room, "~", 1, NULL), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(gpu(1 - way)), WARP_SUCCESS);
                put(from, bytes, room, home);
                copy(to + 33, from + 7 + i, size, stream);
                synchronize(stream);
                got = fetched(to, room, stream_of(gpu(1 - way)));
                CHECK_EQ_U64(differ_at(got + 33, bytes + 7 + i, size), size);
                CHECK(got[0] == '~' && got[32] == '~' && got[33 + size] == '~' && got[room - 1] == '~');
                free(got);
                free(bytes);
                CHECK_STATUS(warp_free(from), WARP_SUCCESS);
                CHECK_STATUS(warp_free(to), WARP_SUCCESS);
            }
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(home), WARP_SUCCESS);
        }
    }
    /* With access there is nothing to be gained. */
    give_back_copy_buffers();
    if (simulator_is_here() && SIMULATOR(warpsim_external_peer)(0, 1, 1) == 0) {
        unsigned char *from = (unsigned char *)block_of(gpu(0), 16 * MIB, WARP_MEMORY_CUDA_DEVICE);
        unsigned char *to = (unsigned char *)block_of(gpu(1), 16 * MIB, WARP_MEMORY_CUDA_DEVICE);
        copy_now(to, from, 16 * MIB, stream_of(gpu(0)));
        CHECK_EQ_U64(kept_buffers(), 0);
        CHECK_STATUS(warp_free(from), WARP_SUCCESS);
        CHECK_STATUS(warp_free(to), WARP_SUCCESS);
    }
    CHECK_NOTHING_LEFT();
}

/* ---- in the order of the streams ------------------------------------------------------------------------------------ */

#define ROOM (9 * MIB + 777)

/* A block of each GPU, and what must be in it. */
struct side {
    warp_stream *stream;
    unsigned char *block, *model;
};

static void check_holds(const struct side *side)
{
    unsigned char *got = fetched(side->block, ROOM, side->stream);
    CHECK_EQ_U64(differ_at(got, side->model, ROOM), ROOM);
    free(got);
}

/* One thing that is put on a stream; large, and at some odd place. */
static void play(struct side *sides, size_t gpus, unsigned char *scratch, uint64_t *random)
{
    struct side *side = &sides[next_random(random) % gpus], *other = &sides[gpus - 1 - (size_t)(side - sides)];
    uint64_t size = PAGEABLE_FROM + next_random(random) % (ROOM - PAGEABLE_FROM), at = next_random(random) % (ROOM - size + 1);
    char byte = (char)next_random(random);
    switch (next_random(random) % (gpus == 2 ? 4 : 3)) {
    case 0: /* what the copy after it must not overtake */
        CHECK_STATUS(warp_memory_fill(side->block + at, size, &byte, 1, side->stream), WARP_SUCCESS);
        memset(side->model + at, byte, (size_t)size);
        break;
    case 1:
        write_words(scratch, size, *random);
        copy(side->block + at, scratch, size, side->stream);
        memcpy(side->model + at, scratch, (size_t)size);
        memset(scratch, 0x5A, (size_t)size); /* it was read */
        break;
    case 2:
        memset(scratch, 0xA5, (size_t)size);
        copy(scratch, side->block + at, size, side->stream);
        CHECK_EQ_U64(differ_at(scratch, side->model + at, size), size);
        break;
    default: { /* between the GPUs, on the stream of either */
        struct side *on = next_random(random) % 2 == 0 ? side : other;
        size = BETWEEN_FROM + next_random(random) % (ROOM - BETWEEN_FROM);
        at = next_random(random) % (ROOM - size + 1);
        CHECK_STATUS(warp_stream_wait_stream(on->stream, on == side ? other->stream : side->stream), WARP_SUCCESS);
        copy(other->block + at, side->block + (ROOM - size - at), size, on->stream);
        CHECK_STATUS(warp_stream_wait_stream(on == side ? other->stream : side->stream, on->stream), WARP_SUCCESS);
        memcpy(other->model + at, side->model + (ROOM - size - at), (size_t)size);
    }
    }
}

static void play_under(uint64_t seed)
{
    struct side sides[2];
    size_t gpus = gpu_count() < 2 ? 1 : 2, i;
    unsigned char *scratch = (unsigned char *)malloc(ROOM);
    uint64_t random = seed * 977 + 1;
    if (simulator_is_here()) {
        SIMULATOR(warpsim_schedule)(seed);
        SIMULATOR(warpsim_races)(1);
    }
    for (i = 0; i < gpus; ++i) {
        warp_memory_kind kind = seed % 2 == 0 ? WARP_MEMORY_CUDA_MEMPOOL : WARP_MEMORY_CUDA_DEVICE;
        sides[i].stream = new_stream(gpu((int)i), seed % 3 == 0 ? 0 : WARP_STREAM_NON_BLOCKING);
        sides[i].block = (unsigned char *)block_on(gpu((int)i), ROOM, kind, sides[i].stream);
        sides[i].model = words_of(ROOM, i);
        put(sides[i].block, sides[i].model, ROOM, sides[i].stream);
    }
    for (i = 0; i < 12; ++i)
        play(sides, gpus, scratch, &random);
    for (i = 0; i < gpus; ++i)
        check_holds(&sides[i]);
    for (i = 0; i < gpus; ++i) {
        CHECK_STATUS(warp_free(sides[i].block), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(sides[i].stream), WARP_SUCCESS);
        free(sides[i].model);
    }
    free(scratch);
}

static void play_under_seeds(uint64_t first, uint64_t count)
{
    uint64_t seed;
    REQUIRE(start());
    for (seed = first; seed < first + count; ++seed) {
        play_under(seed);
        /* Now and then nothing is kept from before. */
        if (seed % 5 == 0)
            CHECK_NOTHING_LEFT();
        if (check_failure_count() != 0) {
            printf("\n      with the seed %" PRIu64, seed);
            return;
        }
    }
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(in_the_order_of_the_streams)
{
    play_under_seeds(1, check_under("valgrind") ? 2 : 60);
}

/* So that each buffer is used again while it is still in use. */
PROCESS_TEST(in_the_order_of_the_streams_with_few_buffers)
{
    if (!simulator_is_here())
        SKIP("needs a limit of page-locked memory");
    setenv("WARPSIM_TOPOLOGY", "h200x2,peers=0,pinned_limit=10MiB", 1);
    play_under_seeds(1001, check_under("valgrind") ? 2 : 30);
}

/* Two streams that have nothing to do with each other but the buffers. */
PROCESS_TEST(copies_that_share_buffers_do_not_mix)
{
    uint64_t seed;
    int i;
    if (!simulator_is_here())
        SKIP("needs a limit of page-locked memory");
    setenv("WARPSIM_TOPOLOGY", "h200x2,peers=0,pinned_limit=10MiB", 1);
    REQUIRE(start());
    for (seed = 1; seed <= (check_under("valgrind") ? 2 : 12); ++seed) {
        warp_stream *streams[2];
        unsigned char *from[2], *to[2], *bytes[2], *got;
        for (i = 0; i < 2; ++i) {
            streams[i] = new_stream(gpu(i), WARP_STREAM_NON_BLOCKING);
            from[i] = (unsigned char *)block_of(gpu(0), 17 * MIB, WARP_MEMORY_CUDA_DEVICE);
            to[i] = (unsigned char *)block_of(gpu(1), 17 * MIB, WARP_MEMORY_CUDA_DEVICE);
            bytes[i] = words_of(17 * MIB, seed * 2 + (uint64_t)i);
            put(from[i], bytes[i], 17 * MIB, stream_of(gpu(0)));
        }
        SIMULATOR(warpsim_schedule)(seed);
        SIMULATOR(warpsim_races)(1);
        for (i = 0; i < 4; ++i)
            copy(to[i % 2] + i / 2 * 8 * MIB, from[i % 2] + i / 2 * 8 * MIB, 8 * MIB + (uint64_t)(i / 2) * MIB, streams[i % 2]);
        CHECK_EQ_U64(kept_buffers(), simulator_is_here() ? 2 : 0);
        for (i = 0; i < 2; ++i) {
            synchronize(streams[i]);
            got = fetched(to[i], 17 * MIB, stream_of(gpu(1)));
            CHECK_EQ_U64(differ_at(got, bytes[i], 17 * MIB), 17 * MIB);
            free(got);
            free(bytes[i]);
            CHECK_STATUS(warp_free(from[i]), WARP_SUCCESS);
            CHECK_STATUS(warp_free(to[i]), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(streams[i]), WARP_SUCCESS);
        }
    }
    CHECK_NOTHING_LEFT();
}

/* A copy waits for its own stream, and for nothing that is pending on others. */
PROCESS_TEST(streams_do_not_wait_for_each_other)
{
    warp_stream *held, *free_one;
    unsigned char *blocks[3], *source, *other, *got;
    int i;
    REQUIRE(start());
    if (!simulator_is_here())
        SKIP("needs streams that are held");
    set_threads(4);
    if (threads() == 0)
        SKIP("needs copy threads");
    held = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    free_one = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    for (i = 0; i < 3; ++i)
        blocks[i] = (unsigned char *)block_of(gpu(0), 16 * MIB, WARP_MEMORY_CUDA_DEVICE);
    source = words_of(16 * MIB, 1);
    other = words_of(16 * MIB, 2);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    /* What waits for the held stream never comes back, and the process ends by its alarm. */
    SIMULATOR(warpsim_auto_release)(0);
    SIMULATOR(warpsim_hold)(native_stream(held));
    copy(blocks[0], source, 2 * MIB, held);
    copy(blocks[0] + 2 * MIB, source + 2 * MIB, MIB, held);
    memset(source, 0, 3 * MIB);
    for (i = 0; i < 3; ++i) {
        copy(blocks[1], other, 16 * MIB, free_one);
        synchronize(free_one);
        got = words_of(16 * MIB, 3);
        copy(got, blocks[1], 16 * MIB, free_one);
        CHECK_EQ_U64(differ_at(got, other, 16 * MIB), 16 * MIB);
        free(got);
    }
    if (gpu_count() > 1) {
        unsigned char *there = (unsigned char *)block_of(gpu(1), 16 * MIB, WARP_MEMORY_CUDA_DEVICE);
        copy(there, blocks[0], 16 * MIB, held); /* comes back, though nothing of it can begin */
        copy(there, blocks[1], 16 * MIB, free_one);
        synchronize(free_one);
        got = fetched(there, 16 * MIB, stream_of(gpu(1)));
        CHECK_EQ_U64(differ_at(got, other, 16 * MIB), 16 * MIB);
        free(got);
        SIMULATOR(warpsim_release)(native_stream(held));
        synchronize(held);
        CHECK_STATUS(warp_free(there), WARP_SUCCESS);
    } else {
        SIMULATOR(warpsim_release)(native_stream(held));
        synchronize(held);
    }
    write_words(source, 16 * MIB, 1);
    got = fetched(blocks[0], 3 * MIB, held);
    CHECK_EQ_U64(differ_at(got, source, 3 * MIB), 3 * MIB);
    free(got);
    SIMULATOR(warpsim_auto_release)(1);
    for (i = 0; i < 3; ++i)
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(held), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(free_one), WARP_SUCCESS);
    free(source);
    free(other);
    CHECK_NOTHING_LEFT();
}

/* ---- many threads --------------------------------------------------------------------------------------------------- */

#define CALLERS 6

struct caller {
    pthread_t thread;
    uint64_t number;
};

static void *call_much(void *argument)
{
    const struct caller *me = (const struct caller *)argument;
    warp_device *device = gpu((int)(me->number % gpu_count()));
    warp_stream *stream = new_stream(device, WARP_STREAM_NON_BLOCKING);
    unsigned char *block = (unsigned char *)block_on(device, 12 * MIB, WARP_MEMORY_CUDA_DEVICE, stream);
    unsigned char *source = (unsigned char *)malloc(12 * MIB), *got = (unsigned char *)malloc(12 * MIB);
    uint64_t random = me->number + 1;
    int round, rounds = check_under("valgrind") ? 2 : 12;
    for (round = 0; round < rounds; ++round) {
        uint64_t size = MIB + next_random(&random) % (11 * MIB), at = next_random(&random) % (12 * MIB - size);
        write_words(source, size, random);
        copy(block + at, source, size, stream);
        copy(got, block + at, size, stream);
        CHECK_EQ_U64(differ_at(got, source, size), size);
        memset(got, 0, (size_t)size);
        copy(got, source, size, NULL); /* by the host alone */
        CHECK_EQ_U64(differ_at(got, source, size), size);
        if (me->number == 0) /* threads come and go under the others */
            set_threads((uint32_t)round % 5);
    }
    free(source);
    free(got);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(many_callers_at_once)
{
    struct caller callers[CALLERS];
    size_t i;
    uint64_t schedule;
    REQUIRE(start());
    for (schedule = 0; schedule < 2; ++schedule) {
        if (simulator_is_here())
            SIMULATOR(warpsim_schedule)(schedule * 17);
        for (i = 0; i < CALLERS; ++i) {
            callers[i].number = i;
            REQUIRE(pthread_create(&callers[i].thread, NULL, call_much, &callers[i]) == 0);
        }
        for (i = 0; i < CALLERS; ++i)
            REQUIRE(pthread_join(callers[i].thread, NULL) == 0);
    }
    set_threads(4);
    CHECK(threads_named(COPY_THREAD) <= (int)threads());
    CHECK_NOTHING_LEFT();
}

/* ---- life ----------------------------------------------------------------------------------------------------------- */

static void copy_once(uint64_t size)
{
    unsigned char *block = (unsigned char *)block_of(gpu(0), size, WARP_MEMORY_CUDA_DEVICE);
    unsigned char *source = words_of(size, size), *got = words_of(size, 1);
    copy(block, source, size, NULL);
    copy(got, block, size, NULL);
    CHECK_EQ_U64(differ_at(got, source, size), size);
    free(source);
    free(got);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

PROCESS_TEST(threads_and_buffers_come_with_the_first_large_copy_and_go_with_the_library)
{
    int life;
    for (life = 0; life < 3; ++life) {
        int others;
        REQUIRE(start());
        set_threads(4);
        CHECK_EQ_I64(threads_named(COPY_THREAD), 0);
        CHECK_EQ_U64(kept_buffers(), 0);
        copy_once(64 * KIB);
        CHECK_EQ_I64(threads_named(COPY_THREAD), 0);
        others = threads_named("");
        copy_once(6 * MIB);
        CHECK_EQ_I64(threads_named(COPY_THREAD), threads());
        CHECK_EQ_I64(threads_named(""), others + (int)threads());
        CHECK(threads() == 0 || kept_buffers() != 0 || !simulator_is_here());
        if (life == 1) {
            set_threads(0);
            CHECK_EQ_I64(threads_named(COPY_THREAD), 0);
            CHECK_EQ_U64(kept_buffers(), 0);
            copy_once(6 * MIB);
            CHECK_EQ_I64(threads_named(COPY_THREAD), 0);
            CHECK_EQ_U64(kept_buffers(), 0);
            set_threads(1);
            copy_once(6 * MIB);
            CHECK_EQ_I64(threads_named(COPY_THREAD), threads());
        }
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_EQ_I64(threads_named(COPY_THREAD), 0);
        CHECK_EQ_I64(threads_named(""), others);
        if (simulator_is_here())
            CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pinned"), 0);
    }
}

PROCESS_TEST(a_shutdown_with_copies_on_their_way)
{
    unsigned char *block, *source;
    int round;
    for (round = 0; round < 3; ++round) {
        REQUIRE(start());
        if (simulator_is_here())
            SIMULATOR(warpsim_schedule)((uint64_t)round * 7 + 1);
        block = (unsigned char *)block_of(gpu(0), 8 * MIB, WARP_MEMORY_CUDA_DEVICE);
        source = words_of(8 * MIB, 1);
        copy(block, source, 8 * MIB, NULL);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_EQ_I64(threads_named(COPY_THREAD), 0);
        free(source);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS); /* stays valid until now */
    }
    REQUIRE(start());
    CHECK_NOTHING_LEFT();
}

static void live_as_a_child(void *argument)
{
    unsigned char *source = words_of(9 * MIB, 4), *dest = words_of(9 * MIB, 5);
    uint32_t count = 9;
    (void)argument;
    CHECK_EQ_I64(threads_named(""), 1);
    CHECK_STATUS(warp_memory_copy(dest, source, 9 * MIB, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(differ_at(dest, source, 9 * MIB), 9 * MIB);
    check_forked();
    CHECK_STATUS(warp_copy_get_threads(&count), WARP_SUCCESS);
    CHECK_STATUS(warp_copy_set_threads(2), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(dest + 1, source, 8 * MIB, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_copy_set_threads(0), WARP_SUCCESS);
    CHECK_EQ_I64(threads_named(""), 1);
    use_cpu();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(dest, source, 9 * MIB, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(threads_named(""), 1);
    free(source);
    free(dest);
}

PROCESS_TEST(the_child_of_a_fork_does_it_all_itself)
{
    REQUIRE(start());
    if (gpu_count() < 2)
        SKIP("needs two GPUs");
    set_threads(4);
    copy_once(6 * MIB);
    in_child(live_as_a_child, NULL, 60);
    /* The parent's are still there. */
    copy_once(6 * MIB);
    CHECK_EQ_I64(threads_named(COPY_THREAD), threads());
    CHECK_NOTHING_LEFT();
}

static int go_on = 1;

static void *copy_until_told(void *argument)
{
    (void)argument;
    while (__atomic_load_n(&go_on, __ATOMIC_SEQ_CST)) {
        unsigned char *source = words_of(8 * MIB, 4), *dest = words_of(8 * MIB, 5);
        copy(dest, source, 8 * MIB, NULL);
        CHECK_EQ_U64(differ_at(dest, source, 8 * MIB), 8 * MIB);
        free(source);
        free(dest);
        copy_once(3 * MIB);
    }
    return NULL;
}

PROCESS_TEST(forks_in_the_middle_of_copies)
{
    pthread_t busy[2];
    int i, forks = 15;
    REQUIRE(start());
    if (gpu_count() < 2)
        SKIP("needs two GPUs");
    if (check_under("valgrind"))
        SKIP("what the parent's other threads have in hand is lost in the child");
    set_threads(4);
    for (i = 0; i < 2; ++i)
        REQUIRE(pthread_create(&busy[i], NULL, copy_until_told, NULL) == 0);
    for (i = 0; i < forks; ++i) {
        usleep(3000);
        in_child(live_as_a_child, NULL, 60);
    }
    __atomic_store_n(&go_on, 0, __ATOMIC_SEQ_CST);
    for (i = 0; i < 2; ++i)
        REQUIRE(pthread_join(busy[i], NULL) == 0);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
