/* Allocators that stand on others, each alone: what it counts, refuses, writes and gives back, and what becomes of an upstream
 * that fails in every way.
 *
 * topology: h200x2
 * needs: simulator */
#define _GNU_SOURCE
#include "adaptors.h"

#define THREADS 16

/* ---- limit -------------------------------------------------------------------------------------------------------- */

TEST(a_limit_is_exact_and_can_be_changed)
{
    REQUIRE(start());
    warp_device *devices[] = {cpu(), gpu(0), gpu(1)};
    warp_memory_kind kinds[] = {WARP_MEMORY_HOST, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_DEVICE};
    size_t i;
    for (i = 0; i < 3; ++i) {
        warp_allocator *limit = NULL;
        uint64_t bytes = 1, used = 1;
        void *a, *b, *none = (void *)1;
        CHECK_STATUS(warp_allocator_create_limit(builtin(kinds[i]), 10000, &limit), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_limit_get(limit, &bytes, &used), WARP_SUCCESS);
        CHECK_EQ_U64(bytes, 10000);
        CHECK_EQ_U64(used, 0);
        /* What counts is what was asked for, not what it is rounded up to. */
        CHECK_STATUS(warp_allocator_limit_set(limit, 12), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block_by(limit, devices[i], 12, NULL)), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_limit_set(limit, 10000), WARP_SUCCESS);
        a = block_by(limit, devices[i], 6000, "first");
        b = take(limit, devices[i], 4000);
        CHECK_EQ_U64(used_of(limit), 10000);
        CHECK_STATUS(try_block(limit, devices[i], 1, NULL, &none), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_EQ_PTR(none, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "10000 bytes");
        CHECK_STR_CONTAINS(warp_error_get_message(), "1 were asked");
        CHECK_STR_CONTAINS(warp_error_get_message(), "warp_allocator_limit_set");
        CHECK_STATUS(warp_allocator_limit_set(limit, 10001), WARP_SUCCESS);
        give(limit, take(limit, devices[i], 1));
        CHECK_STATUS(warp_allocator_limit_set(limit, 0), WARP_SUCCESS);
        CHECK_STATUS(try_take(limit, devices[i], 1, &none), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_EQ_U64(used_of(limit), 10000);
        CHECK_STATUS(warp_free(a), WARP_SUCCESS);
        give(limit, b);
        CHECK_EQ_U64(used_of(limit), 0);
        CHECK_STATUS(warp_allocator_limit_set(limit, UINT64_MAX), WARP_SUCCESS);
        if (kinds[i] != WARP_MEMORY_HOST) /* which a sanitizer does not let ask for so much */
            CHECK_STATUS(try_take(limit, devices[i], UINT64_C(1) << 62, &none), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_EQ_U64(used_of(limit), 0);
        release(limit);
    }
    CHECK_NOTHING_LEFT();
}

struct crowd {
    warp_allocator *limit;
    pthread_barrier_t *start;
    uint64_t rounds, served, exceeded, failed_below;
    void **kept;
};

static void *come_and_go(void *argument)
{
    struct crowd *crowd = argument;
    uint64_t i, state = (uint64_t)(uintptr_t)argument;
    pthread_barrier_wait(crowd->start);
    for (i = 0; i < crowd->rounds; ++i) {
        void *ptr = NULL;
        warp_status status = try_take(crowd->limit, cpu(), 64 + next_random(&state) % 200, &ptr);
        if (status == WARP_SUCCESS) {
            give(crowd->limit, ptr);
        } else {
            CHECK_STATUS(status, WARP_ERROR_OUT_OF_MEMORY);
        }
    }
    return NULL;
}

static void *take_and_keep(void *argument)
{
    struct crowd *crowd = argument;
    uint64_t i;
    pthread_barrier_wait(crowd->start);
    for (i = 0; i < crowd->rounds; ++i) {
        warp_status status = try_take(crowd->limit, cpu(), 64, &crowd->kept[crowd->served]);
        if (status == WARP_SUCCESS)
            crowd->served += 1;
        else if (strstr(warp_error_get_message(), "limit allocator may have") != NULL)
            crowd->exceeded += 1;
        else
            crowd->failed_below += 1;
    }
    return NULL;
}

static void gather(struct crowd *crowds, void *(*body)(void *))
{
    pthread_barrier_t start;
    pthread_t threads[THREADS];
    size_t i;
    pthread_barrier_init(&start, NULL, THREADS);
    for (i = 0; i < THREADS; ++i) {
        crowds[i].start = &start;
        pthread_create(&threads[i], NULL, body, &crowds[i]);
    }
    for (i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
}

TEST(sixteen_threads_never_exceed_a_limit_and_fill_it_exactly)
{
    REQUIRE(start());
    uint64_t rounds = check_under("valgrind") ? 30 : 400, fits = THREADS * rounds / 2, served = 0, i, j;
    struct crowd crowds[THREADS];
    struct below below;
    warp_allocator *upstream = make_below(&below), *limit = NULL;
    CHECK_STATUS(warp_allocator_create_limit(upstream, 1000, &limit), WARP_SUCCESS);
    release(upstream);
    memset(crowds, 0, sizeof crowds);
    for (i = 0; i < THREADS; ++i) {
        crowds[i].limit = limit;
        crowds[i].rounds = rounds;
        crowds[i].kept = calloc((size_t)rounds, sizeof(void *));
    }
    /* Against an upstream that fails at random: whatever happens, nothing stays reserved and no more is ever out. */
    below.fails_one_in = 3;
    gather(crowds, come_and_go);
    CHECK_EQ_U64(used_of(limit), 0);
    CHECK_EQ_U64(below.served, below.taken_back);
    CHECK(below.failed > 0);
    CHECK(below.most > 0 && below.most <= 1000);

    /* Twice as many as fit: exactly as many as fit succeed, also when the upstream fails in between. */
    CHECK_STATUS(warp_allocator_limit_set(limit, 64 * fits), WARP_SUCCESS);
    below.fails_one_in = 0;
    below.most = 0;
    gather(crowds, take_and_keep);
    for (i = 0; i < THREADS; ++i) {
        served += crowds[i].served;
        CHECK_EQ_U64(crowds[i].failed_below, 0);
        CHECK_EQ_U64(crowds[i].served + crowds[i].exceeded, rounds);
    }
    CHECK_EQ_U64(served, fits);
    CHECK_EQ_U64(below.most, 64 * fits);
    CHECK_EQ_U64(used_of(limit), 64 * fits);
    for (i = 0; i < THREADS; ++i) {
        for (j = 0; j < crowds[i].served; ++j)
            give(limit, crowds[i].kept[j]);
        free(crowds[i].kept);
    }
    CHECK_EQ_U64(used_of(limit), 0);
    release(limit);
    CHECK_EQ_U64(below.destroyed, 1);
    CHECK_NOTHING_LEFT();
}

/* ---- statistics --------------------------------------------------------------------------------------------------- */

static void check_account(const warp_allocator_statistics *account, const uint64_t expected[7], int line)
{
    const uint64_t found[7] = {account->live_bytes,  account->peak_bytes,   account->live_blocks, account->peak_blocks,
                               account->total_bytes, account->total_blocks, account->failures};
    static const char *const names[7] = {"live_bytes",  "peak_bytes",   "live_blocks", "peak_blocks",
                                         "total_bytes", "total_blocks", "failures"};
    size_t i;
    for (i = 0; i < 7; ++i)
        check_u64(found[i], expected[i], __FILE__, line, names[i]);
}
#define CHECK_ACCOUNT(account, ...) check_account(account, (const uint64_t[7])__VA_ARGS__, __LINE__)

TEST(statistics_nest_like_scopes)
{
    REQUIRE(start());
    struct below below;
    warp_allocator *upstream = make_below(&below), *statistics = NULL;
    warp_allocator_statistics account;
    void *a, *b, *c, *none;
    memset(&account, 0xAB, sizeof account);
    account.struct_size = sizeof account;
    CHECK_STATUS(warp_allocator_create_statistics(upstream, &statistics), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_statistics_pop(statistics, &account), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_allocator_statistics_push");
    CHECK_ACCOUNT(&account, {0, 0, 0, 0, 0, 0, 0});

    a = block_by(statistics, cpu(), 1000, NULL);
    CHECK_STATUS(warp_allocator_statistics_push(statistics), WARP_SUCCESS);
    b = take(statistics, cpu(), 500);
    CHECK_STATUS(warp_allocator_statistics_push(statistics), WARP_SUCCESS);
    c = block_by(statistics, cpu(), 200, NULL);
    CHECK_STATUS(warp_free(c), WARP_SUCCESS);
    CHECK_STATUS(warp_free(a), WARP_SUCCESS);
    below.fails_with = WARP_ERROR_BUSY;
    CHECK_STATUS(try_take(statistics, cpu(), 5, &none), WARP_ERROR_ALLOCATOR_FAILED);
    below.fails_with = 0;
    account = account_of(statistics);
    CHECK_ACCOUNT(&account, {500, 1700, 1, 3, 1700, 3, 1});
    CHECK_STATUS(warp_allocator_statistics_pop(statistics, &account), WARP_SUCCESS);
    CHECK_ACCOUNT(&account, {0, 200, 0, 1, 200, 1, 1});
    CHECK_STATUS(warp_allocator_statistics_pop(statistics, &account), WARP_SUCCESS);
    CHECK_ACCOUNT(&account, {0, 700, 0, 2, 700, 2, 1});
    CHECK_STATUS(warp_allocator_statistics_pop(statistics, &account), WARP_ERROR_INVALID_ARGUMENT);
    give(statistics, b);
    account = account_of(statistics);
    CHECK_ACCOUNT(&account, {0, 1700, 0, 3, 1700, 3, 1});
    release(statistics);
    release(upstream);
    CHECK_EQ_U64(below.destroyed, 1);
}

/* ---- tracking ----------------------------------------------------------------------------------------------------- */

TEST(tracking_knows_what_is_out)
{
    REQUIRE(start());
    struct wider {
        warp_tracked_block known;
        uint64_t newer;
    } wide[3];
    warp_allocator *tracking = NULL;
    warp_tracked_block blocks[3];
    char report[4096], cut[20];
    size_t count = 0, needed = 0;
    void *small, *large, *direct;
    warp_stream *stream = stream_of(gpu(1));
    CHECK_STATUS(warp_allocator_create_tracking(builtin(WARP_MEMORY_CUDA_MEMPOOL), 0, &tracking), WARP_SUCCESS);
    small = block_by(tracking, gpu(1), 100, "small");
    large = block_by(tracking, gpu(1), 5000, "large \"one\"");
    direct = take(tracking, gpu(1), 30);
    memset(blocks, 0xAB, sizeof blocks);
    CHECK_STATUS(warp_allocator_tracking_list(tracking, blocks, sizeof *blocks, 2, &count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 3);
    CHECK_EQ_U64(blocks[2].size, UINT64_C(0xABABABABABABABAB));
    CHECK_STATUS(warp_allocator_tracking_list(tracking, blocks, sizeof *blocks, 3, &count), WARP_SUCCESS);
    CHECK(blocks[0].ptr < blocks[1].ptr && blocks[1].ptr < blocks[2].ptr);
    for (count = 0; count < 3; ++count) {
        const warp_tracked_block *block = &blocks[count];
        CHECK(block->ptr == small || block->ptr == large || block->ptr == direct);
        CHECK_EQ_U64(block->size, block->ptr == small ? 100 : block->ptr == large ? 5000 : 30);
        CHECK_EQ_PTR(block->device, gpu(1));
        CHECK_EQ_U64(block->stream_id, stream_info(stream).id);
        if (block->ptr == direct)
            CHECK_EQ_PTR(block->tag, NULL);
        else
            CHECK_EQ_STR(block->tag, block->ptr == small ? "small" : "large \"one\"");
        CHECK_EQ_U64(block->thread, blocks[0].thread);
        CHECK_EQ_U64(block->caller_count, 0);
    }
    /* A caller of a later version, with a longer struct. */
    memset(wide, 0xAB, sizeof wide);
    CHECK_STATUS(warp_allocator_tracking_list(tracking, &wide[0].known, sizeof *wide, 3, NULL), WARP_SUCCESS);
    CHECK(memcmp(&wide[1].known, &blocks[1], sizeof *blocks) == 0);
    CHECK_EQ_U64(wide[1].newer, 0);

    CHECK_STATUS(warp_allocator_tracking_report(tracking, report, sizeof report, &needed), WARP_SUCCESS);
    CHECK_EQ_U64(needed, strlen(report) + 1);
    CHECK(strncmp(report, "3 blocks, 5130 bytes, are out\n\"large \"one\"\": 1 block, 5000 bytes\n  5000 bytes at 0x", 80) == 0);
    CHECK_STR_CONTAINS(report, "\"small\": 1 block, 100 bytes");
    CHECK_STR_CONTAINS(report, "no tag: 1 block, 30 bytes");
    CHECK_STR_CONTAINS(report, "on \"cuda:1\"");
    CHECK(strstr(report, "large") < strstr(report, "small"));
    CHECK_STATUS(warp_allocator_tracking_report(tracking, cut, sizeof cut, NULL), WARP_SUCCESS);
    CHECK_EQ_STR(cut, "3 blocks, 5130 byte");
    CHECK_STATUS(warp_free(small), WARP_SUCCESS);
    give(tracking, direct);
    CHECK_EQ_U64(tracked(tracking), 1);
    CHECK_STATUS(warp_free(large), WARP_SUCCESS);
    CHECK_EQ_U64(tracked(tracking), 0);
    release(tracking);
    CHECK_NOTHING_LEFT();
}

TEST(tracking_tells_who_called)
{
    REQUIRE(start());
    warp_allocator *tracking = NULL;
    warp_tracked_block block;
    char report[8192];
    void *ptr;
    CHECK_STATUS(warp_allocator_create_tracking(builtin(WARP_MEMORY_HOST), WARP_TRACKING_BACKTRACES, &tracking),
                 WARP_SUCCESS);
    ptr = block_by(tracking, cpu(), 100, "called");
    CHECK_STATUS(warp_allocator_tracking_list(tracking, &block, sizeof block, 1, NULL), WARP_SUCCESS);
    CHECK(block.caller_count > 1 && block.caller_count <= 16);
    CHECK(block.callers[0] != NULL);
    CHECK_STATUS(warp_allocator_tracking_report(tracking, report, sizeof report, NULL), WARP_SUCCESS);
    CHECK_STR_CONTAINS(report, "+0x");
    CHECK_STR_CONTAINS(report, "libc.so.6"); /* which called main */
    CHECK(strstr(report, "libwarpmem.so") == NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    release(tracking);
}

/* ---- logging ------------------------------------------------------------------------------------------------------ */

TEST(a_log_has_a_line_for_each_call)
{
    REQUIRE(start());
    char path[256], expected[256];
    warp_allocator *logging = NULL;
    struct below below;
    warp_allocator *upstream = make_below(&below);
    size_t lines = 0;
    void *ptr, *none;
    char *text;
    REQUIRE(process_make_file(path, sizeof path));
    CHECK_STATUS(warp_allocator_create_logging(upstream, path, &logging), WARP_SUCCESS);
    ptr = block_by(logging, cpu(), 100, "a \"b\"\n");
    below.fails_with = WARP_ERROR_INTERNAL;
    CHECK_STATUS(try_take(logging, cpu(), 7, &none), WARP_ERROR_ALLOCATOR_FAILED);
    below.deallocation_says = 5;
    CHECK_STATUS(warp_free(ptr), WARP_ERROR_ALLOCATOR_FAILED);
    text_of(path, &lines);
    CHECK_EQ_U64(lines, 0); /* nothing was written yet */
    CHECK_STATUS(warp_allocator_logging_flush(logging), WARP_SUCCESS);
    text = text_of(path, &lines);
    CHECK_EQ_U64(lines, 5);
    CHECK(strncmp(text, "warpmem-allocation-log 1\nthread,time,action,", 44) == 0);
    snprintf(expected, sizeof expected, ",allocate,%p,100,64,-1,0,\"a \\\"b\\\"\\n\",0\n", ptr);
    CHECK_STR_CONTAINS(text, expected);
    CHECK_STR_CONTAINS(text, ",allocate-failure,0x0,7,64,-1,0,\"\",103\n");
    snprintf(expected, sizeof expected, ",deallocate,%p,100,64,-1,0,\"a \\\"b\\\"\\n\",103\n", ptr);
    CHECK_STR_CONTAINS(text, expected);
    below.fails_with = below.deallocation_says = 0;
    give(logging, take(logging, cpu(), 11));
    release(logging);
    text_of(path, &lines);
    CHECK_EQ_U64(lines, 7);
    release(upstream);
    CHECK(remove(path) == 0);
    CHECK_EQ_U64(below.destroyed, 1);
}

static int told_of_full;
static void hear(void *user, warp_log_level level, const char *message)
{
    (void)user;
    if (level == WARP_LOG_ERROR && strstr(message, "/dev/full") != NULL)
        told_of_full += 1;
}

TEST(a_full_disk_fails_no_allocation)
{
    REQUIRE(start());
    warp_allocator *logging = NULL;
    int i;
    CHECK_STATUS(warp_log_set_callback(hear, NULL, WARP_LOG_ERROR), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_logging(builtin(WARP_MEMORY_HOST), "/dev/full", &logging), WARP_SUCCESS);
    for (i = 0; i < 3000; ++i)
        give(logging, take(logging, cpu(), 100));
    CHECK_EQ_I64(told_of_full, 1);
    for (i = 0; i < 2; ++i) {
        CHECK_STATUS(warp_allocator_logging_flush(logging), WARP_ERROR_ALLOCATOR_FAILED);
        CHECK_STR_CONTAINS(warp_error_get_message(), "/dev/full");
        CHECK_STR_CONTAINS(warp_error_get_message(), "6000 lines are missing");
    }
    release(logging);
    CHECK_EQ_I64(told_of_full, 1);
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
}

/* ---- failure callback --------------------------------------------------------------------------------------------- */

struct remedy {
    struct below *below;
    warp_allocator *self;
    int asked, destroyed, retries, mends_at, nests, depth, deepest;
    uint64_t size;
    uint32_t last_flags;
    warp_status last_status;
};

static int32_t help(void *user, const warp_alloc_request *request, warp_status status, uint32_t attempt)
{
    struct remedy *remedy = user;
    remedy->asked += 1;
    remedy->last_status = status;
    remedy->last_flags = request->flags;
    remedy->size = request->size;
    CHECK_EQ_U64(request->struct_size, sizeof *request);
    CHECK(request->device == cpu() || info_of(request->device).is_cuda);
    CHECK_EQ_I64(request->ordinal, info_of(request->device).is_cpu ? -1 : info_of(request->device).ordinal);
    if (info_of(request->device).is_cuda)
        CHECK_EQ_PTR(driver_current(), request->native_context);
    if (remedy->nests) {
        void *ptr = NULL;
        remedy->depth += 1;
        if (remedy->depth > remedy->deepest)
            remedy->deepest = remedy->depth;
        CHECK(try_take(remedy->self, cpu(), 8, &ptr) != WARP_SUCCESS);
        remedy->depth -= 1;
        return 0;
    }
    if (remedy->mends_at == (int)attempt)
        remedy->below->fails_with = 0;
    return (int)attempt <= remedy->retries;
}

static void end_help(void *user)
{
    ((struct remedy *)user)->destroyed += 1;
}

TEST(a_failure_callback_says_whether_to_try_again)
{
    REQUIRE(start());
    struct below below;
    struct remedy remedy = {.below = &below, .retries = 3};
    warp_allocator *upstream = make_below(&below), *adaptor = NULL;
    void *ptr = (void *)1;
    CHECK_STATUS(warp_allocator_create_failure_callback(upstream, help, end_help, &remedy, &adaptor), WARP_SUCCESS);
    remedy.self = adaptor;
    release(upstream);
    /* Nobody is asked about what succeeds. */
    give(adaptor, take(adaptor, cpu(), 100));
    CHECK_EQ_I64(remedy.asked, 0);
    /* Gives up after three retries: four attempts. */
    below.fails_with = WARP_ERROR_BUSY;
    CHECK_STATUS(try_block(adaptor, cpu(), 100, NULL, &ptr), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_EQ_I64(remedy.asked, 4);
    CHECK_EQ_U64(below.failed, 4);
    CHECK_EQ_I64(remedy.last_status, WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_EQ_U64(remedy.size, 100);
    CHECK_EQ_U64(remedy.last_flags, 0);
    /* What the callback mends is served. */
    remedy.asked = 0;
    remedy.mends_at = 2;
    CHECK_STATUS(warp_free(block_by(adaptor, cpu(), 100, NULL)), WARP_SUCCESS);
    CHECK_EQ_I64(remedy.asked, 2);
    /* Out of memory is asked twice by the library, with a trim in between. */
    remedy.asked = remedy.mends_at = remedy.retries = 0;
    below.fails_with = WARP_ERROR_OUT_OF_MEMORY;
    CHECK_STATUS(try_block(adaptor, cpu(), 100, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_I64(remedy.asked, 2);
    CHECK_EQ_U64(remedy.last_flags, WARP_ALLOC_REQUEST_RETRY);
    CHECK_EQ_U64(below.trims, 1);
    /* It comes to an end whatever is said. */
    remedy.asked = 0;
    remedy.retries = 1 << 30;
    below.fails_with = WARP_ERROR_BUSY;
    below.failed = 0;
    CHECK_STATUS(try_take(adaptor, cpu(), 100, &ptr), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "1000 attempts");
    CHECK_EQ_U64(below.failed, 1000);
    CHECK_EQ_I64(remedy.asked, 999);
    /* Nor does one that allocates from itself go on for ever. */
    remedy.nests = 1;
    CHECK_STATUS(try_take(adaptor, cpu(), 100, &ptr), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK(remedy.deepest >= 3 && remedy.deepest <= 10);
    remedy.nests = 0;
    /* Stopped, it is not asked and not destroyed. */
    remedy.asked = 0;
    CHECK_STATUS(warp_allocator_retain(adaptor), WARP_SUCCESS);
    release(adaptor);
    CHECK_EQ_I64(remedy.destroyed, 0);
    release(adaptor);
    CHECK_EQ_I64(remedy.destroyed, 1);
    CHECK_EQ_U64(below.destroyed, 1);
}

TEST(a_stopped_failure_callback_is_left_alone)
{
    REQUIRE(start());
    struct below below;
    struct remedy remedy = {.below = &below, .retries = 3};
    warp_allocator *upstream = make_below(&below), *adaptor = NULL;
    void *ptr, *none;
    CHECK_STATUS(warp_allocator_create_failure_callback(upstream, help, end_help, &remedy, &adaptor), WARP_SUCCESS);
    ptr = take(adaptor, cpu(), 50);
    CHECK_STATUS(warp_allocator_stop(adaptor), WARP_SUCCESS);
    CHECK_STATUS(try_take(adaptor, cpu(), 50, &none), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_EQ_I64(remedy.asked, 0);
    CHECK_EQ_U64(below.failed + below.served, 1); /* the allocator below is stopped too */
    give(adaptor, ptr);
    CHECK_EQ_U64(below.taken_back, 0);
    free(ptr);
    release(adaptor);
    release(upstream);
    CHECK_EQ_I64(remedy.destroyed, 0);
    CHECK_EQ_U64(below.destroyed, 0);
}

struct waiting {
    warp_allocator *adaptor;
    int is_inside, may_go, has_gone, is_stopped;
};

static int32_t wait_inside(void *user, const warp_alloc_request *request, warp_status status, uint32_t attempt)
{
    struct waiting *waiting = user;
    (void)request, (void)status, (void)attempt;
    __atomic_store_n(&waiting->is_inside, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&waiting->may_go, __ATOMIC_SEQ_CST))
        usleep(100);
    usleep(20000);
    __atomic_store_n(&waiting->has_gone, 1, __ATOMIC_SEQ_CST);
    return 1;
}

static void *fail_once(void *argument)
{
    struct waiting *waiting = argument;
    void *none = NULL;
    /* The callback says to try again; by then the allocator is stopped, and it is not asked any more. */
    CHECK_STATUS(try_take(waiting->adaptor, cpu(), 100, &none), WARP_ERROR_ALLOCATOR_FAILED);
    return NULL;
}

static void *stop_it(void *argument)
{
    struct waiting *waiting = argument;
    CHECK_STATUS(warp_allocator_stop(waiting->adaptor), WARP_SUCCESS);
    __atomic_store_n(&waiting->is_stopped, 1, __ATOMIC_SEQ_CST);
    CHECK(__atomic_load_n(&waiting->has_gone, __ATOMIC_SEQ_CST));
    return NULL;
}

TEST(a_stop_waits_for_the_failure_callback)
{
    REQUIRE(start());
    struct below below;
    struct waiting waiting = {NULL, 0, 0, 0, 0};
    warp_allocator *upstream = make_below(&below), *outer;
    pthread_t fails, stops;
    below.fails_with = WARP_ERROR_BUSY;
    CHECK_STATUS(warp_allocator_create_failure_callback(upstream, wait_inside, NULL, &waiting, &outer), WARP_SUCCESS);
    /* Also where another one stands on it. */
    waiting.adaptor = make_adaptor(STATISTICS, outer);
    pthread_create(&fails, NULL, fail_once, &waiting);
    while (!__atomic_load_n(&waiting.is_inside, __ATOMIC_SEQ_CST))
        usleep(100);
    pthread_create(&stops, NULL, stop_it, &waiting);
    usleep(20000);
    CHECK(!__atomic_load_n(&waiting.is_stopped, __ATOMIC_SEQ_CST));
    __atomic_store_n(&waiting.may_go, 1, __ATOMIC_SEQ_CST);
    pthread_join(stops, NULL);
    pthread_join(fails, NULL);
    CHECK_EQ_U64(below.failed, 1);
    release(waiting.adaptor);
    release(outer);
    release(upstream);
}

TEST(a_failure_callback_has_the_gpus_context_around_it)
{
    REQUIRE(start());
    struct remedy remedy = {.retries = 2};
    warp_allocator *limit = NULL, *adaptor = NULL;
    void *none;
    CHECK_STATUS(warp_allocator_create_limit(builtin(WARP_MEMORY_CUDA_DEVICE), 100, &limit), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_failure_callback(limit, help, NULL, &remedy, &adaptor), WARP_SUCCESS);
    CHECK_STATUS(try_take(adaptor, gpu(1), 101, &none), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_I64(remedy.asked, 6);
    CHECK_EQ_I64(remedy.last_status, WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_PTR(driver_current(), NULL);
    release(limit);
    release(adaptor);
    CHECK_NOTHING_LEFT();
}

/* ---- aligned ------------------------------------------------------------------------------------------------------ */

TEST(every_block_of_an_aligned_adaptor_is_aligned)
{
    REQUIRE(start());
    static const uint64_t alignments[] = {1, 256, 512, 4096, 1 << 16, 1 << 21};
    warp_device *devices[] = {cpu(), gpu(0), gpu(1), gpu(0)};
    warp_memory_kind kinds[] = {WARP_MEMORY_PINNED, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_DEVICE,
                                WARP_MEMORY_CUDA_MANAGED};
    size_t i, j, k;
    for (i = 0; i < 4; ++i)
        for (j = 0; j < sizeof alignments / sizeof *alignments; ++j) {
            warp_allocator *aligned = NULL;
            void *blocks[8], *direct[8];
            CHECK_STATUS(warp_allocator_create_aligned(builtin(kinds[i]), alignments[j], &aligned), WARP_SUCCESS);
            for (k = 0; k < 8; ++k) {
                blocks[k] = block_by(aligned, devices[i], 1 + 100 * k, NULL);
                direct[k] = take(aligned, devices[i], 300);
                CHECK_EQ_U64((uintptr_t)blocks[k] % alignments[j], 0);
                CHECK_EQ_U64((uintptr_t)direct[k] % alignments[j], 0);
                put_pattern(blocks[k], 1 + 100 * k, k);
            }
            for (k = 0; k < 8; ++k) {
                CHECK_EQ_U64(find_pattern(blocks[k], 1 + 100 * k, k), 1 + 100 * k);
                CHECK_EQ_U64(pointer_info(blocks[k]).size, 1 + 100 * k);
                CHECK_EQ_I64(pointer_info(blocks[k]).kind, kinds[i]);
                CHECK_STATUS(warp_free(blocks[k]), WARP_SUCCESS);
                give(aligned, direct[7 - k]);
            }
            release(aligned);
        }
    CHECK_NOTHING_LEFT();
}

/* ---- fallback ----------------------------------------------------------------------------------------------------- */

TEST(a_fallback_serves_what_the_first_cannot)
{
    REQUIRE(start());
    struct below first, second;
    warp_allocator *one = make_below(&first), *two = make_below(&second), *fallback = NULL;
    static const warp_status failures[] = {WARP_ERROR_OUT_OF_MEMORY, WARP_ERROR_BUSY, -7, 12345};
    void *blocks[4], *ptr, *none;
    size_t i;
    CHECK_STATUS(warp_allocator_create_fallback(one, two, &fallback), WARP_SUCCESS);
    ptr = block_by(fallback, cpu(), 100, NULL);
    CHECK_EQ_U64(first.served, 1);
    for (i = 0; i < 4; ++i) {
        first.fails_with = failures[i];
        blocks[i] = block_by(fallback, cpu(), 100, NULL);
        CHECK_EQ_U64(second.served, i + 1);
    }
    second.fails_with = WARP_ERROR_OUT_OF_MEMORY;
    CHECK_STATUS(try_take(fallback, cpu(), 100, &none), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "failed too");
    /* Each block goes back to the one that made it. */
    first.fails_with = second.fails_with = 0;
    for (i = 0; i < 4; ++i)
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
    CHECK_EQ_U64(second.taken_back, 4);
    CHECK_EQ_U64(first.taken_back, 0);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(first.taken_back, 1);
    release(two);
    release(fallback);
    CHECK_EQ_U64(second.destroyed, 1);
    CHECK_EQ_U64(first.destroyed, 0);
    release(one);
    CHECK_EQ_U64(first.destroyed, 1);
    CHECK_STATUS(warp_allocator_create_fallback(builtin(WARP_MEMORY_PINNED), builtin(WARP_MEMORY_CUDA_DEVICE), &fallback),
                 WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(fallback, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "host memory");
}

CHECK_MAIN()
