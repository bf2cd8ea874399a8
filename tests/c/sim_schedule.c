/*
 * sim_schedule.c: the simulated driver's own schedule. With a seed work runs later, in any order that streams and events
 * allow, and right programs get right results and no report. What it finds wrong is in sim_order.c.
 *
 * topology: h200x2
 * topology: wsl
 * needs: simulator
 * valgrind: no (the simulator alone, which every other program runs there)
 */
#define _GNU_SOURCE
#define CHECK_WITHOUT_WARPMEM

#include "graphs.h"

#include <pthread.h>

/* How many of so many seeds: a watcher makes each of them some thirty times as long. */
static uint64_t seeds(uint64_t wanted)
{
    return check_under("valgrind") || check_under("sanitizer") ? wanted / 25 + 20 : wanted;
}

/* ---- Orders --------------------------------------------------------------------------------------------------------- */

/* Two streams with two pieces each; with `joined` the second piece of b comes after the first of a. */
static void two_by_two(uint64_t seed, int joined)
{
    CUstream a, b;
    CUevent event;
    forget_order();
    start(seed);
    a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
    event = event_of();
    mark(a, 'a');
    OK(D(cuEventRecord)(event, a));
    mark(a, 'A');
    mark(b, 'b');
    if (joined)
        OK(D(cuStreamWaitEvent)(b, event, 0));
    mark(b, 'B');
    OK(D(cuCtxSynchronize)());
}

static void check_orders(int joined, const char *const *allowed, size_t count)
{
    size_t seen[8] = {0}, i;
    uint64_t seed;
    for (seed = 1; seed <= 500; ++seed) {
        two_by_two(seed, joined);
        for (i = 0; i < count && strcmp(order, allowed[i]) != 0; ++i)
            ;
        REQUIRE(i < count);
        ++seen[i];
    }
    for (i = 0; i < count; ++i)
        CHECK(seen[i] != 0);
}

TEST(every_order_that_events_allow_occurs_and_no_other)
{
    static const char *const all[] = {"aAbB", "abAB", "abBA", "baAB", "baBA", "bBaA"};
    check_orders(0, all, 6);
    check_orders(1, all, 5);
}

TEST(a_stream_can_lag_far_behind)
{
    uint64_t seed, farthest = 0;
    for (seed = 1; seed <= 200; ++seed) {
        CUstream slow, quick;
        uint64_t block;
        uint8_t bytes[2] = {0};
        int i;
        start(seed);
        slow = stream_of(NON_BLOCKING), quick = stream_of(NON_BLOCKING);
        OK(D(cuMemAlloc_v2)(&block, 2));
        for (i = 1; i <= 100; ++i) {
            fill_bytes(block, (uint8_t)i, 1, slow);
            fill_bytes(block + 1, (uint8_t)i, 1, quick);
            OK(D(warpsim_peek)(block, bytes, 2));
            if (bytes[0] <= 100 && bytes[1] <= 100 && bytes[1] > bytes[0] + farthest)
                farthest = (uint64_t)(bytes[1] - bytes[0]);
        }
    }
    CHECK(farthest >= 50);
}

TEST(the_legacy_stream_keeps_its_rules)
{
    uint64_t seed;
    size_t overtaken = 0;
    for (seed = 1; seed <= 200; ++seed) {
        CUstream first, second, apart;
        forget_order();
        start(seed);
        first = stream_of(0), second = stream_of(0), apart = stream_of(NON_BLOCKING);
        mark(apart, 'x');
        mark(first, 'a');
        mark(NULL, 'b');
        mark(second, 'c');
        OK(D(cuCtxSynchronize)());
        CHECK(strchr(order, 'a') < strchr(order, 'b') && strchr(order, 'b') < strchr(order, 'c'));
        overtaken += order[3] == 'x';
    }
    CHECK(overtaken != 0);
}

TEST(eager_work_is_done_at_once)
{
    CUstream stream;
    uint64_t block;
    uint8_t byte = 0;
    start(0);
    stream = stream_of(NON_BLOCKING);
    block = pool_block(KIB, stream);
    fill_bytes(block, 7, KIB, stream);
    OK(D(warpsim_peek)(block, &byte, 1));
    CHECK_EQ_U64(byte, 7);
    OK(D(cuStreamQuery)(stream));
}

/* ---- A right program at random --------------------------------------------------------------------------------------- */

enum { STREAMS = 5, BLOCKS = 8, STEPS = 60 };

struct block {
    uint64_t base;
    size_t size;
    CUstream last; /* whose work used it last */
    uint8_t value; /* what all of it holds then */
};

struct program {
    CUstream streams[STREAMS];
    struct block blocks[BLOCKS];
    void *pinned;
    uint64_t trace; /* of all that the program could see */
};

static uint64_t random_state;

static uint64_t random_below(uint64_t sides)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % sides;
}

static void note(struct program *p, uint64_t what)
{
    p->trace = (p->trace ^ what) * 0x100000001b3u;
}

/* Brings a block to a stream: by an event, by waiting, or by asking until it is done. */
static void bring(struct program *p, struct block *block, CUstream to)
{
    int asked = 0;
    if (block->last == to)
        return;
    switch (random_below(8)) {
    case 0:
        OK(D(cuStreamSynchronize)(block->last));
        break;
    case 1:
        while (D(cuStreamQuery)(block->last) == NOT_READY)
            ++asked;
        CHECK(asked < 100);
        break;
    default:
        join(block->last, to);
    }
    note(p, (uint64_t)asked);
    block->last = to;
}

static void look_at(struct program *p, struct block *block, CUstream stream)
{
    const uint8_t *bytes = p->pinned;
    size_t i;
    bring(p, block, stream);
    OK(D(cuMemcpyAsync)((uintptr_t)p->pinned, block->base, block->size, stream));
    OK(D(cuStreamSynchronize)(stream));
    for (i = 0; i < block->size && bytes[i] == block->value; ++i)
        ;
    CHECK_EQ_U64(i, block->size);
}

static void step(struct program *p)
{
    struct block *block = &p->blocks[random_below(BLOCKS)], *other = &p->blocks[random_below(BLOCKS)];
    CUstream stream = p->streams[random_below(STREAMS)];
    if (block->base == 0) {
        block->size = (1 + random_below(3)) * KIB;
        block->base = pool_block(block->size, stream);
        block->last = stream;
        block->value = (uint8_t)random_below(200);
        fill_bytes(block->base, block->value, block->size, stream);
        note(p, block->base);
        return;
    }
    switch (random_below(8)) {
    case 0:
    case 1:
        bring(p, block, stream);
        block->value = (uint8_t)random_below(200);
        fill_bytes(block->base, block->value, block->size, stream);
        break;
    case 2:
        look_at(p, block, stream);
        break;
    case 3:
    case 4:
        if (other->base != 0 && other != block && other->size == block->size) {
            bring(p, block, stream);
            bring(p, other, stream);
            OK(D(cuMemcpyAsync)(block->base, other->base, block->size, stream));
            block->value = other->value;
        }
        break;
    case 5:
        note(p, D(cuStreamQuery)(stream));
        break;
    default:
        bring(p, block, stream);
        OK(D(cuMemFreeAsync)(block->base, stream));
        block->base = 0;
    }
}

static uint64_t run_program(uint64_t which, uint64_t seed, int steps)
{
    struct program p = {.trace = 0xcbf29ce484222325u};
    int i;
    start(seed);
    D(warpsim_races)(1);
    random_state = which * 0x9e3779b97f4a7c15u + 1;
    for (i = 0; i < STREAMS; ++i)
        p.streams[i] = stream_of(i == 0 ? 0 : NON_BLOCKING);
    OK(D(cuMemHostAlloc)(&p.pinned, 4 * KIB, 0));
    for (i = 0; i < steps; ++i)
        step(&p);
    for (i = 0; i < BLOCKS; ++i)
        if (p.blocks[i].base != 0) {
            look_at(&p, &p.blocks[i], p.streams[i % STREAMS]);
            OK(D(cuMemFreeAsync)(p.blocks[i].base, p.blocks[i].last));
        }
    OK(D(cuMemFreeHost)(p.pinned));
    OK(D(cuCtxSynchronize)());
    CHECK_EQ_U64(D(warpsim_live_count)("*"), 0);
    check_no_violation();
    return p.trace;
}

TEST(right_programs_are_right_under_every_seed)
{
    uint64_t seed;
    for (seed = 1; seed <= seeds(2000) && check_failure_count() == 0; ++seed)
        run_program(seed / 4, seed, STEPS);
}

TEST(a_seed_is_one_run)
{
    uint64_t seed, other = 0;
    for (seed = 1; seed <= seeds(100); ++seed) {
        uint64_t once = run_program(1, seed, 2 * STEPS);
        CHECK_EQ_U64(run_program(1, seed, 2 * STEPS), once);
        other += run_program(1, seed + 1, 2 * STEPS) != once;
    }
    CHECK(other != 0);
}

/* ---- Addresses ---------------------------------------------------------------------------------------------------------- */

TEST(an_address_comes_again_before_the_free_has_run)
{
    uint64_t seed, again = 0, by_event = 0;
    for (seed = 1; seed <= 200; ++seed) {
        uint8_t bytes[2] = {0};
        uint64_t first, second, third;
        CUstream a, b;
        start(seed);
        a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
        OK(D(warpsim_hold)((uintptr_t)a));
        first = pool_block(KIB, a);
        fill_bytes(first, 1, KIB, a);
        OK(D(cuMemFreeAsync)(first, a));
        second = pool_block(KIB, a);
        fill_bytes(second, 2, KIB, a);
        again += second == first;
        CHECK(pool_block(KIB, b) != first); /* nothing orders this one */
        OK(D(cuMemFreeAsync)(second, a));
        join(a, b);
        third = pool_block(KIB, b);
        fill_bytes(third, 3, KIB, b);
        by_event += third == first || third == second;
        OK(D(cuStreamSynchronize)(b));
        OK(D(cuMemcpyDtoH_v2)(bytes, third + KIB - 2, 2));
        CHECK(bytes[0] == 3 && bytes[1] == 3);
        check_no_violation();
    }
    CHECK(again > 50 && again < 150);
    CHECK(by_event > 50 && by_event < 150);
}

TEST(a_pool_that_seems_full_waits_for_its_frees)
{
    uint64_t seed, used = 0, reserved = 0;
    CUmemoryPool pool = NULL;
    for (seed = 1; seed <= 20; ++seed) {
        CUstream a;
        int i;
        start(seed);
        a = stream_of(NON_BLOCKING);
        for (i = 0; i < 40; ++i)
            OK(D(cuMemFreeAsync)(pool_block((size_t)6 << 30, a), a));
        OK(D(cuDeviceGetMemPool)(&pool, 0));
        OK(D(cuStreamSynchronize)(a));
        OK(D(cuMemPoolGetAttribute)(pool, 7, &used));
        OK(D(cuMemPoolGetAttribute)(pool, 5, &reserved));
        CHECK_EQ_U64(used, 0);
        CHECK_EQ_U64(reserved, 0);
    }
}

/* ---- Waiting ---------------------------------------------------------------------------------------------------------- */

TEST(questions_come_to_an_end)
{
    uint64_t seed, waited = 0;
    for (seed = 1; seed <= 200; ++seed) {
        CUstream busy[3];
        CUevent event;
        uint64_t block;
        int i, asked;
        start(seed);
        for (i = 0; i < 3; ++i)
            busy[i] = stream_of(NON_BLOCKING);
        event = event_of();
        block = pool_block(KIB, busy[0]);
        for (i = 0; i < 100; ++i) {
            fill_bytes(block, 1, KIB, busy[0]);
            join(busy[i % 3], busy[(i + 1) % 3]);
        }
        OK(D(cuEventRecord)(event, busy[1]));
        for (asked = 0; D(cuEventQuery)(event) == NOT_READY; ++asked)
            REQUIRE(asked < 100);
        waited += asked != 0;
        for (asked = 0; D(cuStreamQuery)(busy[2]) == NOT_READY; ++asked)
            REQUIRE(asked < 100);
    }
    CHECK(waited > 100);
}

TEST(a_hold_holds)
{
    uint64_t seed;
    for (seed = 1; seed <= 100; ++seed) {
        CUstream a, b;
        uint64_t block;
        uint8_t byte = 0;
        int i;
        start(seed);
        a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
        block = pool_block(KIB, a);
        fill_bytes(block, 1, 1, a);
        OK(D(warpsim_hold)((uintptr_t)a));
        fill_bytes(block, 2, 1, a);
        join(a, b);
        for (i = 0; i < 100; ++i)
            CHECK_EQ_U64(D(cuStreamQuery)(b), NOT_READY);
        OK(D(warpsim_peek)(block, &byte, 1));
        CHECK_EQ_U64(byte, 1);
        if (seed % 2 == 0)
            OK(D(warpsim_release)((uintptr_t)a));
        OK(D(cuStreamSynchronize)(b));
        OK(D(warpsim_peek)(block, &byte, 1));
        CHECK_EQ_U64(byte, 2);
    }
}

TEST(pageable_memory_is_taken_at_once_and_waited_for)
{
    uint64_t seed;
    for (seed = 1; seed <= 100; ++seed) {
        uint8_t here[16], back[16] = {0};
        CUstream a;
        uint64_t block;
        start(seed);
        a = stream_of(NON_BLOCKING);
        block = pool_block(KIB, a);
        memset(here, 9, sizeof here);
        OK(D(cuMemcpyAsync)(block, (uintptr_t)here, sizeof here, a));
        memset(here, 0, sizeof here);
        OK(D(cuMemcpyAsync)((uintptr_t)back, block, sizeof back, a));
        CHECK_EQ_U64(back[0], 9);
        CHECK_EQ_U64(back[15], 9);
    }
}

TEST(times_of_events_are_in_order)
{
    uint64_t seed;
    for (seed = 1; seed <= 50; ++seed) {
        float milliseconds = -1;
        CUevent first, second, whole;
        CUstream a;
        start(seed);
        a = stream_of(NON_BLOCKING);
        OK(D(cuEventCreate)(&first, 0));
        OK(D(cuEventCreate)(&second, 0));
        OK(D(cuEventCreate)(&whole, 0));
        OK(D(warpsim_hold)((uintptr_t)a));
        OK(D(cuEventRecord)(first, a));
        OK(D(cuEventRecord)(second, a));
        OK(D(cuCtxRecordEvent)(context, whole));
        CHECK_EQ_U64(D(cuEventElapsedTime)(&milliseconds, first, second), NOT_READY);
        CHECK_EQ_U64(D(cuEventElapsedTime)(&milliseconds, first, whole), NOT_READY);
        OK(D(cuEventSynchronize)(whole));
        OK(D(cuEventElapsedTime)(&milliseconds, first, second));
        CHECK(milliseconds >= 0);
        OK(D(cuEventElapsedTime)(&milliseconds, second, whole));
        CHECK(milliseconds >= 0);
    }
}

TEST(what_was_submitted_before_a_context_ends_is_done)
{
    uint64_t seed;
    for (seed = 1; seed <= 100; ++seed) {
        uint8_t byte = 0;
        uint64_t block, plain = 0;
        CUstream a, b;
        start(seed);
        a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
        block = pool_block(KIB, a);
        OK(D(cuMemAlloc_v2)(&plain, KIB));
        fill_bytes(plain, 3, KIB, a);
        join(a, b);
        OK(D(cuMemcpyAsync)(block, plain, KIB, b));
        OK(D(cuMemFreeAsync)(pool_block(KIB, b), b));
        OK(D(cuDevicePrimaryCtxReset_v2)(0));
        OK(D(warpsim_peek)(block, &byte, 1));
        CHECK_EQ_U64(byte, 3);
        CHECK_EQ_U64(D(warpsim_live_count)("*"), 1);
        CHECK_EQ_U64(D(warpsim_live_count)("stream"), 0);
        check_no_violation();
    }
}

TEST(pool_memory_behind_a_hold_outlives_its_context)
{
    CUstream a;
    uint64_t block;
    start(1);
    a = stream_of(NON_BLOCKING);
    OK(D(warpsim_hold)((uintptr_t)a));
    block = pool_block(KIB, a);
    OK(D(cuMemFreeAsync)(pool_block(KIB, a), a));
    OK(D(cuDevicePrimaryCtxReset_v2)(0));
    CHECK_EQ_U64(D(warpsim_live_count)("pool"), 1);
    OK(D(cuDevicePrimaryCtxRetain)(&context, 0));
    a = stream_of(NON_BLOCKING);
    fill_bytes(block, 1, KIB, a);
    OK(D(cuMemFreeAsync)(block, a));
    OK(D(cuStreamSynchronize)(a));
    CHECK_EQ_U64(D(warpsim_live_count)("pool"), 0);
    check_no_violation();
}

/* ---- Threads ------------------------------------------------------------------------------------------------------------ */

static CUstream held;

static void *work_alone(void *data)
{
    CUstream stream, other;
    int i;
    (void)data;
    OK(D(cuCtxSetCurrent)(context));
    stream = stream_of(NON_BLOCKING), other = stream_of(NON_BLOCKING);
    for (i = 1; i <= 100; ++i) {
        uint8_t bytes[8] = {0};
        uint64_t block = pool_block(KIB, stream);
        fill_bytes(block, (uint8_t)i, KIB, stream);
        join(stream, other);
        OK(D(cuMemcpyAsync)((uintptr_t)bytes, block + 8, sizeof bytes, other));
        CHECK(bytes[0] == i && bytes[7] == i);
        OK(D(cuMemFreeAsync)(block, other));
        if (i % 10 == 0)
            OK(D(cuStreamSynchronize)(stream));
    }
    return NULL;
}

static void *wait_for_the_held(void *data)
{
    (void)data;
    OK(D(cuCtxSetCurrent)(context));
    OK(D(cuStreamSynchronize)(held));
    return NULL;
}

TEST(threads_run_the_work_of_each_other)
{
    uint64_t seed;
    for (seed = 1; seed <= seeds(40); ++seed) {
        pthread_t threads[5];
        int i;
        start(seed);
        D(warpsim_auto_release)(0);
        held = stream_of(NON_BLOCKING);
        OK(D(warpsim_hold)((uintptr_t)held));
        REQUIRE(pthread_create(&threads[0], NULL, wait_for_the_held, NULL) == 0);
        for (i = 1; i < 5; ++i)
            REQUIRE(pthread_create(&threads[i], NULL, work_alone, NULL) == 0);
        for (i = 1; i < 5; ++i)
            pthread_join(threads[i], NULL);
        OK(D(warpsim_release)((uintptr_t)held));
        pthread_join(threads[0], NULL);
        OK(D(cuCtxSynchronize)());
        CHECK_EQ_U64(D(warpsim_live_count)("*"), 0);
        check_no_violation();
    }
}

CHECK_MAIN()
