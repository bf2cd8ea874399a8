/*
 * sim_order.c: the order of work that the simulated driver demands. What no stream, event or wait orders is reported under
 * every seed, and goes wrong under some; what is ordered is not reported.
 *
 * topology: h200x2
 * topology: wsl
 * needs: simulator
 * valgrind: no (the simulator alone, which every other program runs there)
 */
#define _GNU_SOURCE
#define CHECK_WITHOUT_WARPMEM

#include "graphs.h"

enum { FREE_ON_WRONG_STREAM = 1, MISSING_JOIN = 2, EARLY_ANSWER = 4 };

static unsigned long long number_of(CUstream stream)
{
    unsigned long long number = 0;
    OK(D(cuStreamGetId)(stream, &number));
    return number;
}

/* A program, what is to be reported of it in each run, and what in some run. */
static void check_found(void (*program)(void), uint32_t misorder, const char *by_clock, const char *by_run)
{
    uint64_t seed, met = 0;
    for (seed = 1; seed <= 1000 && (met == 0 || seed <= 100); ++seed) {
        start(seed);
        D(warpsim_misorder)(misorder);
        program();
        OK(D(cuCtxSynchronize)());
        CHECK(reported(by_clock));
        met += (uint64_t)reported(by_run);
    }
    CHECK(met != 0);
    /* Without the clocks only what really went wrong is told. */
    start(1);
    D(warpsim_misorder)(misorder);
    D(warpsim_order_checks)(0);
    program();
    OK(D(cuCtxSynchronize)());
    CHECK(!reported("is not ordered behind"));
}

static void check_right(void (*program)(void))
{
    uint64_t seed;
    for (seed = 1; seed <= 300; ++seed) {
        start(seed);
        program();
        OK(D(cuCtxSynchronize)());
        check_no_violation();
    }
}

static void free_on_another_stream(void)
{
    CUstream a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
    uint64_t block = pool_block(KIB, a);
    OK(D(cuStreamSynchronize)(a));
    fill_bytes(block, 1, KIB, a);
    OK(D(cuMemFreeAsync)(block, b));
}

TEST(a_free_on_another_stream_is_found)
{
    char expected[256];
    unsigned long long a;
    check_found(free_on_another_stream, 0, "is not ordered behind the fill on stream", "before the fill on stream");
    start(3);
    a = number_of(stream_of(NON_BLOCKING));
    /* The text names the block, what is done to it, and both streams; they are numbered one after the other. */
    start(3);
    free_on_another_stream();
    snprintf(expected, sizeof expected,
             "(1024 bytes): the free on stream %llu is not ordered behind the fill on stream %llu", a + 1, a);
    CHECK(reported(expected));
    CHECK(reported("pool memory at 0x"));
}

static void use_before_the_allocation(void)
{
    CUstream a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
    uint64_t block = pool_block(KIB, a);
    fill_bytes(block, 1, KIB, b);
    join(b, a);
    OK(D(cuMemFreeAsync)(block, a));
}

TEST(a_use_before_the_allocation_is_found)
{
    check_found(use_before_the_allocation, 0, "is not ordered behind its allocation on stream",
                "ran before its allocation on stream");
}

static void free_before_the_allocation(void)
{
    CUstream a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
    OK(D(cuMemFreeAsync)(pool_block(KIB, a), b));
}

TEST(a_free_before_the_allocation_is_found)
{
    check_found(free_before_the_allocation, 0, "is not ordered behind its allocation on stream",
                "before its allocation on stream");
}

static void free_on_the_own_stream(void)
{
    CUstream a = stream_of(NON_BLOCKING);
    uint64_t block = pool_block(KIB, a);
    fill_bytes(block, 1, KIB, a);
    OK(D(cuMemFreeAsync)(block, a));
}

static void free_behind_an_event(void)
{
    CUstream a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
    uint64_t block = pool_block(KIB, a);
    fill_bytes(block, 1, KIB, a);
    join(a, b);
    OK(D(cuMemFreeAsync)(block, b));
}

static void free_behind_a_question(void)
{
    CUstream a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
    CUevent event = event_of();
    uint64_t block = pool_block(KIB, a);
    fill_bytes(block, 1, KIB, a);
    OK(D(cuEventRecord)(event, a));
    while (D(cuEventQuery)(event) == NOT_READY)
        ;
    OK(D(cuMemFreeAsync)(block, b));
}

/* The order goes over two streams, the legacy one, an event of a stream that is gone, and one of a whole context. */
static void free_behind_a_chain(void)
{
    CUstream a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING), c = stream_of(0), d = stream_of(NON_BLOCKING);
    CUevent event = event_of(), whole = event_of();
    uint64_t block = pool_block(KIB, a), apart = pool_block(KIB, d);
    fill_bytes(block, 1, KIB, a);
    OK(D(cuEventRecord)(event, a));
    OK(D(cuStreamDestroy_v2)(a));
    OK(D(cuStreamWaitEvent)(b, event, 0));
    join(b, c);
    fill_bytes(apart, 1, KIB, d);
    OK(D(cuStreamDestroy_v2)(d));
    OK(D(cuCtxRecordEvent)(context, whole));
    OK(D(cuMemFreeAsync)(block, NULL));
    OK(D(cuStreamWaitEvent)(b, whole, 0));
    OK(D(cuMemFreeAsync)(apart, b));
}

TEST(what_is_ordered_is_not_reported)
{
    check_right(free_on_the_own_stream);
    check_right(free_behind_an_event);
    check_right(free_behind_a_question);
    check_right(free_behind_a_chain);
}

TEST(planted_faults_of_order_are_found)
{
    static const char *const clock = "is not ordered behind the fill on stream", *const run = "before the fill on stream";
    check_found(free_on_the_own_stream, FREE_ON_WRONG_STREAM, clock, run);
    check_found(free_behind_an_event, MISSING_JOIN, clock, run);
    check_found(free_behind_a_question, EARLY_ANSWER, clock, run);
}

static uint8_t registered[4096];

static void unregister_too_early(void)
{
    CUstream a = stream_of(NON_BLOCKING);
    uint64_t block = pool_block(KIB, a);
    OK(D(cuMemHostRegister_v2)(registered, sizeof registered, 0));
    OK(D(cuMemcpyAsync)((uintptr_t)registered, block, KIB, a));
    OK(D(cuMemHostUnregister)(registered));
    OK(D(cuMemFreeAsync)(block, a));
}

TEST(memory_that_goes_at_once_is_watched_too)
{
    check_found(unregister_too_early, 0, "freed at once, and nothing that the host waited for orders this behind",
                "freed at once before the copy to it on stream");
}

TEST(a_destroyed_stream_is_not_done)
{
    uint64_t seed;
    for (seed = 1; seed <= 100; ++seed) {
        CUstream a, b;
        uint64_t block;
        start(seed);
        a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
        block = pool_block(KIB, a);
        OK(D(cuStreamSynchronize)(a));
        fill_bytes(block, 1, KIB, a);
        OK(D(cuStreamDestroy_v2)(a));
        D(warpsim_run)(seed % 3);
        OK(D(cuMemFreeAsync)(block, b));
        CHECK(reported("is not ordered behind the fill"));
    }
}

TEST(order_can_be_checked_without_a_seed)
{
    start(0);
    free_on_another_stream();
    CHECK_EQ_U64(D(warpsim_violation_count)(), 0);
    start(0);
    D(warpsim_order_checks)(1);
    free_on_another_stream();
    CHECK_EQ_U64(D(warpsim_violation_count)(), 1);
    start(0);
    D(warpsim_order_checks)(1);
    free_behind_a_chain();
    free_behind_a_question();
    check_no_violation();
    D(warpsim_misorder)(FREE_ON_WRONG_STREAM);
    free_on_the_own_stream();
    CHECK_EQ_U64(D(warpsim_violation_count)(), 1);
}

TEST(a_race_is_reported_where_it_is_asked_for)
{
    int asked;
    for (asked = 0; asked < 2; ++asked) {
        CUstream a, b;
        uint64_t block;
        start(5);
        D(warpsim_races)((uint8_t)asked);
        a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
        block = pool_block(2 * KIB, a);
        join(a, b);
        fill_bytes(block, 1, KIB, a);
        fill_bytes(block + KIB, 2, KIB, b);
        check_no_violation();
        fill_bytes(block + KIB / 2, 3, KIB, b);
        CHECK_EQ_I64(reported("a data race: a fill on stream"), asked);
    }
}

/* The free is on a stream that does not wait; the next block at this address loses what was written to it. */
TEST(a_wrong_free_spoils_the_next_block)
{
    uint64_t seed, spoiled = 0;
    for (seed = 1; seed <= 1000 && spoiled == 0; ++seed) {
        uint8_t byte = 0;
        uint64_t first, second;
        CUstream a, b;
        start(seed);
        D(warpsim_misorder)(MISSING_JOIN);
        a = stream_of(NON_BLOCKING), b = stream_of(NON_BLOCKING);
        first = pool_block(KIB, a);
        OK(D(cuStreamSynchronize)(a));
        fill_bytes(first, 1, KIB, a);
        join(a, b);
        OK(D(cuMemFreeAsync)(first, b));
        second = pool_block(KIB, b);
        fill_bytes(second, 2, KIB, b);
        OK(D(cuCtxSynchronize)());
        OK(D(warpsim_peek)(second, &byte, 1));
        spoiled += byte == 1;
        CHECK_EQ_I64(byte == 1 && !reported("before the fill on stream"), 0);
    }
    CHECK(spoiled != 0);
}

TEST(the_environment_chooses_a_seed)
{
    setenv("WARPSIM_SEED", "12", 1);
    D(warpsim_reset)();
    unsetenv("WARPSIM_SEED");
    OK(D(cuInit)(0));
    OK(D(cuDevicePrimaryCtxRetain)(&context, 0));
    OK(D(cuCtxSetCurrent)(context));
    free_on_another_stream();
    CHECK(reported("is not ordered behind the fill"));
}

CHECK_MAIN()
