/*
 * peer_verify.c: whether what GPUs write to each other directly arrives, as warp_peer_access_verify() finds out. Links that lose
 * data are found, closed and not opened again; good ones are left as they were. Case PA-06.
 *
 * needs: simulator
 * valgrind: no (it waits for copies that never end, and its sweeps take minutes there)
 */
#include "peers.h"

#include "forked.h"
#include "kernels.h"

#include <pthread.h>

uint32_t cuStreamBeginCapture_v2(CUstream stream, int32_t mode);
uint32_t cuStreamEndCapture(CUstream stream, void **out);
uint32_t cuStreamIsCapturing(CUstream stream, int32_t *out);
uint32_t cuGraphDestroy(void *graph);

static int verified(warp_device *target, warp_device *peer)
{
    uint8_t answer = 9;
    CHECK_STATUS(warp_peer_access_verify(target, peer, &answer), WARP_SUCCESS);
    CHECK(answer <= 1);
    return answer;
}

static void not_verified(warp_device *target, warp_device *peer, warp_status status)
{
    uint8_t answer = 9;
    CHECK_STATUS(warp_peer_access_verify(target, peer, &answer), status);
    CHECK_EQ_U64(answer, 0);
    CHECK(strlen(warp_error_get_message()) > 10);
}

/* What a test must leave as it was. */
static const char *const counted[] = {"*", "default", "pool", "pinned", "stream", "event", "mempool", "context", "graph"};
#define COUNTED (sizeof counted / sizeof *counted)

struct counts {
    uint64_t live[COUNTED], bytes;
    CUcontext current;
    size_t violations;
    warp_statistics statistics[2];
};

static struct counts count(void)
{
    struct counts counts;
    size_t i;
    memset(&counts, 0, sizeof counts);
    for (i = 0; i < COUNTED; ++i)
        counts.live[i] = SIMULATOR(warpsim_live_count)(counted[i]);
    counts.bytes = SIMULATOR(warpsim_live_bytes)("*");
    counts.current = driver_current();
    counts.violations = SIMULATOR(warpsim_violation_count)();
    for (i = 0; i < 2; ++i)
        counts.statistics[i] = statistics_of(gpu((int)i), 0);
    return counts;
}

static void check_counts(const struct counts *before)
{
    struct counts now = count();
    size_t i;
    for (i = 0; i < COUNTED; ++i)
        if (now.live[i] != before->live[i] && strcmp(counted[i], "event") != 0)
            printf("\n    of %s", counted[i]);
    for (i = 0; i < COUNTED; ++i)
        /* Events are kept for reuse. */
        if (strcmp(counted[i], "event") != 0)
            CHECK_EQ_U64(now.live[i], before->live[i]);
    CHECK_EQ_U64(now.bytes, before->bytes);
    CHECK_EQ_PTR(now.current, before->current);
    CHECK_EQ_U64(now.violations, before->violations);
    CHECK(memcmp(now.statistics, before->statistics, sizeof now.statistics) == 0);
}

/* Both contexts, and what the first questions take. */
static void warm_up(int gpus)
{
    int i, j;
    for (i = 0; i < gpus; ++i)
        context_of(gpu(i));
    for (i = 0; i < gpus; ++i)
        for (j = 0; j < gpus; ++j)
            has(PEER, gpu(i), gpu(j));
}

/* Copies from the target to the peer and back, on streams of either; how many arrive. */
static int copies_arrive(int target, int peer, warp_memory_kind kind)
{
    unsigned char *there = block_of(gpu(target), 65536, kind), *here = block_of(gpu(peer), 65536, kind);
    int way, arrived = 0;
    for (way = 0; way < 4; ++way) {
        unsigned char *from = way & 1 ? there : here, *to = way & 1 ? here : there;
        warp_stream *stream = new_stream(gpu(way & 2 ? target : peer), WARP_STREAM_NON_BLOCKING);
        put_pattern(from, 65536, (uint64_t)way + 10);
        put_pattern(to, 65536, (uint64_t)way + 20);
        CHECK_STATUS(warp_device_synchronize(gpu(target)), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(gpu(peer)), WARP_SUCCESS);
        copy_now(to, from, 65536, stream);
        arrived += find_pattern(to, 65536, (uint64_t)way + 10) == 65536;
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(there), WARP_SUCCESS);
    CHECK_STATUS(warp_free(here), WARP_SUCCESS);
    return arrived;
}

/* ---- Good pairs ------------------------------------------------------------------------------------------------------------ */

PROCESS_TEST(a_good_pair_is_left_as_it_was)
{
    int on;
    start_on("h200x2");
    warm_up(2);
    SIMULATOR(cuCtxSetCurrent)(context_of(gpu(1)));
    for (on = 0; on < 16; ++on) {
        struct counts before;
        int i;
        for (i = 0; i < 4; ++i)
            turn(&kinds[i & 1], gpu(i >> 1), gpu(!(i >> 1)), on >> i & 1);
        before = count();
        CHECK_EQ_I64(verified(gpu(0), gpu(1)), 1);
        CHECK_EQ_I64(verified(gpu(1), gpu(0)), 1);
        CHECK_EQ_I64(verified(NULL, gpu(1)), 1);
        check_counts(&before);
        for (i = 0; i < 4; ++i)
            CHECK_EQ_I64(has(&kinds[i & 1], gpu(i >> 1), gpu(!(i >> 1))), on >> i & 1);
        CHECK_EQ_I64(can(PEER, gpu(0), gpu(1)), 1);
    }
    CHECK_EQ_I64(copies_arrive(0, 1, WARP_MEMORY_CUDA_DEVICE), 4);
}

PROCESS_TEST(it_makes_the_contexts_and_takes_little)
{
    start_on("h200x2,memory=64MiB");
    CHECK_EQ_I64(verified(gpu(0), gpu(1)), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 2);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("stream"), 0);
    /* The byte that questions keep. */
    CHECK(SIMULATOR(warpsim_live_bytes)("*") <= 2);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(who_cannot_be_peers)
{
    warp_device *other = NULL;
    start_on("partial");
    not_verified(cpu(), gpu(0), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cpu\"");
    not_verified(gpu(0), cpu(), WARP_ERROR_INVALID_ARGUMENT);
    not_verified(cpu(), cpu(), WARP_ERROR_INVALID_ARGUMENT);
    not_verified(gpu(0), gpu(3), WARP_ERROR_NOT_SUPPORTED);
    names_pair("\"cuda:0\"", "\"cuda:3\"");
    not_verified(gpu(0), gpu(2), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_I64(verified(gpu(1), gpu(1)), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
    CHECK_EQ_I64(verified(gpu(2), gpu(0)), 1);
    /* Two contexts of one GPU have one memory. */
    CHECK_STATUS(warp_device_from_context(driver_foreign(1), NULL, &other), WARP_SUCCESS);
    CHECK_EQ_I64(verified(gpu(1), other), 1);
    CHECK_EQ_I64(verified(other, gpu(1)), 1);
    /* For another GPU it is one as any. */
    CHECK_EQ_I64(verified(gpu(0), other), 1);
    CHECK_EQ_I64(verified(other, gpu(0)), 1);
    CHECK_EQ_I64(has(PEER, other, gpu(0)), 0);
    CHECK_STATUS(warp_peer_access_verify(gpu(0), gpu(1), NULL), WARP_ERROR_INVALID_ARGUMENT);
    not_verified((warp_device *)64, gpu(1), WARP_ERROR_INVALID_HANDLE);
    not_verified(gpu(1), (warp_device *)64, WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    not_verified(NULL, NULL, WARP_ERROR_SHUT_DOWN);
}

PROCESS_TEST(machines_without_a_gpu)
{
    start_on("none");
    not_verified(NULL, NULL, WARP_ERROR_INVALID_ARGUMENT);
}

PROCESS_TEST(one_that_has_all_its_peers_is_verified_when_there_is_room)
{
    int i;
    start_on("gpux10");
    for (i = 1; i <= 8; ++i)
        turn(PEER, gpu(0), gpu(i), 1);
    not_verified(gpu(0), gpu(9), WARP_ERROR_PEER_LIMIT);
    names_pair("\"cuda:0\"", "\"cuda:9\"");
    CHECK_EQ_I64(can(PEER, gpu(0), gpu(9)), 1);
    for (i = 1; i <= 8; ++i)
        CHECK_EQ_I64(verified(gpu(0), gpu(i)), 1);
    for (i = 1; i <= 8; ++i)
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(i)), 1);
    turn(PEER, gpu(0), gpu(4), 0);
    CHECK_EQ_I64(verified(gpu(0), gpu(9)), 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(9)), 0);
    turn(PEER, gpu(0), gpu(4), 1);
}

PROCESS_TEST(one_bad_link_of_ninety)
{
    int i, j;
    start_on("gpux10,peer.7.3=broken");
    for (i = 0; i < 10; ++i)
        for (j = 0; j < 10; ++j)
            if (i == 3 || j == 3 || i == 7 || j == 7)
                CHECK_EQ_I64(verified(gpu(i), gpu(j)), !(i == 3 && j == 7));
    for (i = 0; i < 10; ++i)
        for (j = 0; j < 10; ++j)
            CHECK_EQ_I64(can(PEER, gpu(i), gpu(j)), !(i == 3 && j == 7));
    CHECK_STATUS(PEER->set(gpu(3), gpu(7), 1), WARP_ERROR_NOT_SUPPORTED);
    turn(PEER, gpu(7), gpu(3), 1);
}

/* ---- Links that lose data -------------------------------------------------------------------------------------------------- */

static void check_closed(int target, int peer)
{
    char names[2][32];
    int i;
    snprintf(names[0], sizeof names[0], "\"cuda:%d\"", target);
    snprintf(names[1], sizeof names[1], "\"cuda:%d\"", peer);
    for (i = 0; i < 2; ++i) {
        CHECK_EQ_I64(can(&kinds[i], gpu(target), gpu(peer)), 0);
        CHECK_EQ_I64(has(&kinds[i], gpu(target), gpu(peer)), 0);
        refused(&kinds[i], gpu(target), gpu(peer), 1, WARP_ERROR_NOT_SUPPORTED);
        CHECK_STR_CONTAINS(warp_error_get_message(), "verification failed");
        names_pair(names[0], names[1]);
        turn(&kinds[i], gpu(target), gpu(peer), 0);
    }
}

PROCESS_TEST(a_link_that_loses_data_is_closed_in_its_direction)
{
    int on;
    for (on = 0; on < 4; ++on) {
        struct counts before;
        start_on("h200x2,peer.1.0=broken");
        warm_up(2);
        turn(PEER, gpu(0), gpu(1), on & 1);
        turn(POOL, gpu(0), gpu(1), on >> 1);
        turn(PEER, gpu(1), gpu(0), 0);
        /* The driver is trusted. */
        CHECK_EQ_I64(can(PEER, gpu(0), gpu(1)), 1);
        CHECK(copies_arrive(0, 1, WARP_MEMORY_CUDA_DEVICE) == (on & 1 ? 2 : 4));
        if (has_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL))
            CHECK(copies_arrive(0, 1, WARP_MEMORY_CUDA_MEMPOOL) == (on & 2 ? 2 : 4));
        before = count();
        CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
        check_counts(&before);
        check_closed(0, 1);
        CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
        CHECK_EQ_I64(copies_arrive(0, 1, WARP_MEMORY_CUDA_DEVICE), 4);
        CHECK_EQ_I64(copies_arrive(0, 1, WARP_MEMORY_CUDA_MEMPOOL), 4);
        /* The other direction is another matter. */
        CHECK_EQ_I64(verified(gpu(1), gpu(0)), 1);
        turn(PEER, gpu(1), gpu(0), 1);
        turn(POOL, gpu(1), gpu(0), 1);
        CHECK_EQ_I64(copies_arrive(0, 1, WARP_MEMORY_CUDA_DEVICE), 4);
        turn(POOL, gpu(1), gpu(0), 0);
        turn(PEER, gpu(1), gpu(0), 0);
        /* The next life begins with trust again. */
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        start_on("h200x2,peer.1.0=broken");
        CHECK_EQ_I64(can(PEER, gpu(0), gpu(1)), 1);
        turn(PEER, gpu(0), gpu(1), 1);
        CHECK_EQ_I64(copies_arrive(0, 1, WARP_MEMORY_CUDA_DEVICE), 2);
        turn(PEER, gpu(0), gpu(1), 0);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
}

PROCESS_TEST(a_link_that_loses_data_both_ways)
{
    start_on("h200x2,gpus=3,peer.0.1=broken,peer.1.0=broken");
    CHECK_STATUS(PEER->set_for(gpu(0), NULL, 0, 1), WARP_SUCCESS);
    CHECK_STATUS(POOL->set_for(gpu(1), NULL, 0, 1), WARP_SUCCESS);
    CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
    check_closed(0, 1);
    CHECK_EQ_I64(can(POOL, gpu(1), gpu(0)), 1);
    CHECK_EQ_I64(has(POOL, gpu(1), gpu(0)), 1);
    CHECK_EQ_I64(verified(gpu(1), gpu(0)), 0);
    check_closed(1, 0);
    /* Third parties keep what they have. */
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(2)), 1);
    CHECK_EQ_I64(has(POOL, gpu(1), gpu(2)), 1);
    CHECK_EQ_I64(verified(gpu(0), gpu(2)), 1);
    CHECK_EQ_I64(copies_arrive(0, 1, WARP_MEMORY_CUDA_DEVICE), 4);
    /* Everybody who can does not mean the pair. */
    CHECK_STATUS(PEER->set_for(gpu(0), NULL, 0, 1), WARP_SUCCESS);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(2)), 1);
}

PROCESS_TEST(what_the_simulated_link_loses_of_kernels)
{
    /* What they write, and what they read; each GPU's way to the other is its own. */
    unsigned char *words[2];
    uint32_t word[2];
    int i;
    start_on("h200x2,peer.1.0=broken");
    for (i = 0; i < 2; ++i) {
        words[i] = block_of(gpu(i), 4, WARP_MEMORY_CUDA_DEVICE);
        word[i] = 5;
        copy_now(words[i], &word[i], 4, NULL);
        turn(PEER, gpu(i), gpu(!i), 1);
    }
    for (i = 0; i < 2; ++i) {
        CHECK_EQ_U64(kernel_touch(!i, (uint64_t)(uintptr_t)words[i]), 0);
        copy_now(&word[i], words[i], 4, NULL);
    }
    CHECK_EQ_U64(word[0], 5);
    CHECK_EQ_U64(word[1], 6);
    for (i = 0; i < 2; ++i)
        CHECK_STATUS(warp_free(words[i]), WARP_SUCCESS);
}

PROCESS_TEST(other_libraries_may_open_it_again)
{
    int how;
    start_on("h200x2,peer.1.0=broken");
    context_of(gpu(0));
    context_of(gpu(1));
    CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
    for (how = 0; how < 3; ++how) {
        int i;
        for (i = 0; i < 2; ++i) {
            kinds[i].outside(0, 1, 1);
            CHECK_EQ_I64(has(&kinds[i], gpu(0), gpu(1)), 1);
            CHECK_EQ_I64(can(&kinds[i], gpu(0), gpu(1)), 0);
        }
        for (i = 0; i < 2; ++i)
            if (how == 0)
                turn(&kinds[i], gpu(0), gpu(1), 0);
            else if (how == 1)
                CHECK_STATUS(kinds[i].set_for(gpu(0), NULL, 0, 0), WARP_SUCCESS);
            else if (i == 0)
                CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
        check_closed(0, 1);
    }
}

PROCESS_TEST(all_contexts_and_all_pools_of_the_two_are_closed)
{
    warp_device *other[2] = {NULL, NULL};
    warp_mempool *pool = NULL;
    warp_mempool_options options = {.struct_size = sizeof options};
    uint8_t answer = 9;
    start_on("h200x2,peer.1.0=broken");
    CHECK_STATUS(warp_device_from_context(driver_foreign(0), NULL, &other[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_device_from_context(driver_foreign(1), NULL, &other[1]), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_create(gpu(0), &options, &pool), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_access(pool, gpu(1), 1), WARP_SUCCESS);
    turn(PEER, gpu(0), other[1], 1);
    turn(PEER, other[0], gpu(1), 1);
    turn(PEER, other[1], gpu(0), 1);
    CHECK_EQ_I64(verified(other[0], other[1]), 0);
    check_closed(0, 1);
    CHECK_EQ_I64(has(PEER, gpu(0), other[1]), 0);
    CHECK_EQ_I64(has(PEER, other[0], gpu(1)), 0);
    CHECK_EQ_I64(has(PEER, other[1], gpu(0)), 1);
    CHECK_STATUS(PEER->set(gpu(0), other[1], 1), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_mempool_query_access(pool, gpu(1), &answer), WARP_SUCCESS);
    CHECK_EQ_U64(answer, 0);
    CHECK_STATUS(warp_mempool_set_access(pool, gpu(1), 1), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "verification failed");
    CHECK_STATUS(warp_mempool_release(pool), WARP_SUCCESS);
}

static void hear(void *count, warp_log_level level, const char *message)
{
    uint8_t answer = 9;
    CHECK_EQ_I64(level, WARP_LOG_WARNING);
    CHECK_STR_CONTAINS(message, "lose data");
    CHECK_STR_CONTAINS(message, "\"cuda:0\"");
    CHECK_STR_CONTAINS(message, "\"cuda:1\"");
    /* No lock is held. */
    CHECK_STATUS(warp_peer_access_verify(gpu(0), gpu(1), &answer), WARP_SUCCESS);
    CHECK_STATUS(warp_peer_access_verify(gpu(1), gpu(0), &answer), WARP_SUCCESS);
    CHECK_EQ_U64(answer, 1);
    ++*(int *)count;
}

PROCESS_TEST(a_failure_is_told_and_the_listener_may_test_too)
{
    int heard = 0;
    warp_init_options options = {.struct_size = sizeof options, .log = hear, .log_user = &heard};
    setenv("WARPSIM_TOPOLOGY", "h200x2,peer.1.0=broken", 1);
    CHECK_STATUS(warp_init(&options, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
    CHECK_EQ_I64(heard, 1);
    CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
    CHECK_EQ_I64(heard, 1);
}

/* ---- Scopes ---------------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(scopes_that_keep_a_bad_link_open_are_over)
{
    int i, found;
    for (found = 0; found < 2; ++found) {
        warp_scope *scopes[5] = {NULL};
        start_on("h200x2,peer.1.0=broken");
        for (i = 0; i < 2; ++i) {
            turn(&kinds[i], gpu(0), gpu(1), found);
            CHECK_STATUS(kinds[i].begin(gpu(0), gpu(1), 1, &scopes[2 * i]), WARP_SUCCESS);
            CHECK_STATUS(kinds[i].begin(gpu(0), gpu(1), 1, &scopes[2 * i + 1]), WARP_SUCCESS);
        }
        CHECK_STATUS(PEER->begin(gpu(1), gpu(0), 1, &scopes[4]), WARP_SUCCESS);
        CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
        check_closed(0, 1);
        CHECK_EQ_I64(has(PEER, gpu(1), gpu(0)), 1);
        for (i = 5; i-- > 0;)
            CHECK_STATUS(warp_scope_end(scopes[i]), WARP_SUCCESS);
        CHECK_EQ_I64(has(PEER, gpu(1), gpu(0)), 0);
        check_closed(0, 1);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
}

PROCESS_TEST(scopes_that_keep_it_closed_are_respected_and_put_nothing_back)
{
    warp_scope *scope = NULL, *pools = NULL;
    start_on("h200x2,peer.1.0=broken");
    turn(PEER, gpu(0), gpu(1), 1);
    turn(POOL, gpu(0), gpu(1), 1);
    CHECK_STATUS(POOL->begin(gpu(0), gpu(1), 0, &pools), WARP_SUCCESS);
    CHECK_STATUS(PEER->begin(gpu(0), gpu(1), 0, &scope), WARP_SUCCESS);
    not_verified(gpu(0), gpu(1), WARP_ERROR_BUSY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "scopes");
    CHECK_EQ_I64(can(PEER, gpu(0), gpu(1)), 1);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
    CHECK_STATUS(warp_scope_end(pools), WARP_SUCCESS);
    check_closed(0, 1);
}

PROCESS_TEST(scopes_of_a_good_pair_go_on)
{
    int found, i;
    start_on("h200x2");
    for (found = 0; found < 2; ++found) {
        warp_scope *scopes[2] = {NULL, NULL};
        for (i = 0; i < 2; ++i) {
            turn(&kinds[i], gpu(0), gpu(1), found);
            CHECK_STATUS(kinds[i].begin(gpu(0), gpu(1), 1, &scopes[i]), WARP_SUCCESS);
        }
        CHECK_EQ_I64(verified(gpu(0), gpu(1)), 1);
        for (i = 2; i-- > 0;) {
            refused(&kinds[i], gpu(0), gpu(1), 0, WARP_ERROR_BUSY);
            CHECK_STR_CONTAINS(warp_error_get_message(), "(1)");
            CHECK_STATUS(warp_scope_end(scopes[i]), WARP_SUCCESS);
            CHECK_EQ_I64(has(&kinds[i], gpu(0), gpu(1)), found);
        }
    }
}

/* ---- Captures, work, threads, schedules ------------------------------------------------------------------------------------- */

struct expected {
    int good;
};

static void *verify_both(void *argument)
{
    struct expected *expected = argument;
    CHECK_EQ_I64(verified(gpu(0), gpu(1)), expected->good);
    CHECK_EQ_I64(verified(gpu(1), gpu(0)), 1);
    return NULL;
}

/* A process has one machine. */
static const char *machine(int good)
{
    return good ? "h200x2" : "h200x2,peer.1.0=broken";
}

static void verify_in_captures(int good)
{
    struct expected expected = {good};
    int mode, owner, where, thread, blocking;
    for (mode = 0; mode < 3; ++mode)
        for (owner = 0; owner < 2; ++owner)
            for (where = 0; where < 2; ++where)
                for (blocking = 0; blocking < 2; ++blocking)
                    for (thread = 0; thread < 2; ++thread) {
                        static const warp_capture_mode modes[3] = {WARP_CAPTURE_GLOBAL, WARP_CAPTURE_THREAD_LOCAL,
                                                                   WARP_CAPTURE_RELAXED};
                        warp_stream *stream;
                        CUstream native;
                        warp_graph *graph = NULL;
                        void *outside = NULL;
                        int32_t state = -1;
                        /* Each failure is a first one. */
                        start_on(machine(good));
                        turn(PEER, gpu(0), gpu(1), blocking);
                        stream = new_stream(gpu(where), blocking ? 0 : WARP_STREAM_NON_BLOCKING);
                        native = stream_info(stream).native;
                        if (owner == 0)
                            CHECK_STATUS(warp_capture_begin(stream, modes[mode]), WARP_SUCCESS);
                        else
                            CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native, mode), 0);
                        if (thread) {
                            pthread_t other;
                            REQUIRE(pthread_create(&other, NULL, verify_both, &expected) == 0);
                            pthread_join(other, NULL);
                        } else {
                            verify_both(&expected);
                        }
                        CHECK_EQ_U64(SIMULATOR(cuStreamIsCapturing)(native, &state), 0);
                        CHECK_EQ_I64(state, 1);
                        CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), good && blocking);
                        if (owner == 0) {
                            CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
                            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
                        } else {
                            CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native, &outside), 0);
                            CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(outside), 0);
                        }
                        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
                        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
                        if (check_failure_count() != 0) {
                            printf("\n    in mode %d, owner %d, gpu %d, blocking %d, thread %d, good %d", mode, owner, where,
                                   blocking, thread, good);
                            return;
                        }
                    }
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(no_capture_is_disturbed_by_a_test)
{
    verify_in_captures(1);
}

PROCESS_TEST(no_capture_is_disturbed_by_a_failure)
{
    verify_in_captures(0);
}

PROCESS_TEST(it_is_closed_behind_work_that_may_need_it)
{
    int side;
    for (side = 0; side < 2; ++side) {
        unsigned char *from, *to;
        warp_stream *stream;
        start_on("h200x2,peer.1.0=broken");
        from = block_of(gpu(0), 4096, WARP_MEMORY_CUDA_DEVICE);
        to = block_of(gpu(1), 4096, WARP_MEMORY_CUDA_DEVICE);
        turn(PEER, gpu(0), gpu(1), 1);
        stream = new_stream(gpu(side), WARP_STREAM_NON_BLOCKING);
        SIMULATOR(warpsim_hold)(native_stream(stream));
        CHECK_STATUS(warp_memory_copy(to, from, 4096, stream), WARP_SUCCESS);
        SIMULATOR(warpsim_log_clear)();
        CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
        CHECK(SIMULATOR(warpsim_log_contains)("cuEventSynchronize"));
        CHECK(!SIMULATOR(warpsim_log_contains)("cuCtxSynchronize"));
        check_closed(0, 1);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(from), WARP_SUCCESS);
        CHECK_STATUS(warp_free(to), WARP_SUCCESS);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
}

PROCESS_TEST(in_any_order_of_work_the_answer_is_right)
{
    uint64_t seed;
    for (seed = 0; seed < 40; ++seed) {
        struct counts before;
        start_on("h200x2,peer.1.0=broken");
        SIMULATOR(warpsim_schedule)(seed);
        warm_up(2);
        turn(PEER, gpu(0), gpu(1), seed & 1);
        before = count();
        CHECK_EQ_I64(verified(gpu(1), gpu(0)), 1);
        CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
        check_counts(&before);
        check_closed(0, 1);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
}

static int stop;

static void *verify_on_and_on(void *argument)
{
    int *pair = argument, i;
    for (i = 0; i < 6; ++i)
        CHECK_EQ_I64(verified(gpu(pair[0]), gpu(pair[1])), pair[2]);
    return NULL;
}

/* Busy while a test goes on, refused after a failure, else done; then copies are right whenever access is off. */
static void *set_on_and_on(void *unused)
{
    uint64_t turns = 0;
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && check_failure_count() == 0) {
        warp_scope *scope = NULL;
        warp_status status = PEER->set(gpu(0), gpu(1), turns & 1);
        CHECK(status == WARP_SUCCESS || status == WARP_ERROR_BUSY || status == WARP_ERROR_NOT_SUPPORTED);
        status = PEER->begin(gpu(0), gpu(1), turns >> 1 & 1, &scope);
        CHECK(status == WARP_SUCCESS || status == WARP_ERROR_BUSY || status == WARP_ERROR_NOT_SUPPORTED);
        if (scope != NULL)
            CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
        ++turns;
    }
    return NULL;
}

static void *verify_whatever(void *unused)
{
    int i;
    (void)unused;
    for (i = 0; i < 20; ++i) {
        uint8_t answer = 9;
        warp_status status = warp_peer_access_verify(gpu(0), gpu(1), &answer);
        CHECK(status == WARP_SUCCESS || status == WARP_ERROR_BUSY);
        CHECK_EQ_U64(answer, 0);
    }
    return NULL;
}

PROCESS_TEST(threads_verify_at_once)
{
    static int pairs[6][3] = {{0, 1, 0}, {0, 1, 0}, {1, 0, 1}, {0, 2, 1}, {2, 1, 1}, {2, 1, 1}};
    pthread_t threads[6];
    struct counts before;
    int i;
    start_on("h200x2,gpus=3,peer.1.0=broken");
    warm_up(3);
    turn(PEER, gpu(0), gpu(1), 1);
    turn(PEER, gpu(0), gpu(2), 1);
    before = count();
    for (i = 0; i < 6; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, verify_on_and_on, pairs[i]) == 0);
    for (i = 0; i < 6; ++i)
        pthread_join(threads[i], NULL);
    check_counts(&before);
    check_closed(0, 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(2)), 1);
    CHECK_EQ_I64(has(PEER, gpu(2), gpu(1)), 0);
}

PROCESS_TEST(threads_set_and_verify)
{
    pthread_t setters[2], verifiers[2];
    int i, round;
    for (round = 0; round < 5; ++round) {
        start_on("h200x2,peer.1.0=broken");
        warm_up(2);
        __atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
        for (i = 0; i < 2; ++i) {
            REQUIRE(pthread_create(&setters[i], NULL, set_on_and_on, NULL) == 0);
            REQUIRE(pthread_create(&verifiers[i], NULL, verify_whatever, NULL) == 0);
        }
        for (i = 0; i < 2; ++i)
            pthread_join(verifiers[i], NULL);
        __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        for (i = 0; i < 2; ++i)
            pthread_join(setters[i], NULL);
        CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
        check_closed(0, 1);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

/* ---- What goes wrong --------------------------------------------------------------------------------------------------------- */

static void fail_each_call(int good)
{
    static const uint32_t codes[] = {999, 2};
    int on;
    for (on = 0; on < 2; ++on) {
        uint64_t nth, errors = 0;
        for (nth = 1; nth < 400; ++nth) {
            struct counts before;
            warp_status status;
            uint8_t answer = 9;
            uint64_t made;
            start_on(machine(good));
            warm_up(2);
            turn(PEER, gpu(0), gpu(1), on);
            turn(POOL, gpu(0), gpu(1), on);
            SIMULATOR(cuCtxSetCurrent)(context_of(gpu(0)));
            before = count();
            made = calls("*");
            SIMULATOR(warpsim_fail)("*", nth, codes[on]);
            status = warp_peer_access_verify(gpu(0), gpu(1), &answer);
            made = calls("*") - made;
            SIMULATOR(warpsim_fail_clear)();
            if (driver_current() != before.current) {
                /* Guards put back what they can. */
                SIMULATOR(cuCtxSetCurrent)(before.current);
            }
            check_counts(&before);
            if (status == WARP_SUCCESS) {
                CHECK_EQ_U64(answer, good);
            } else {
                ++errors;
                CHECK_EQ_U64(answer, 0);
                CHECK(strlen(warp_error_get_message()) > 10);
            }
            /* Marked only when it was measured, else all is as before. */
            CHECK_EQ_I64(can(PEER, gpu(0), gpu(1)), good || status != WARP_SUCCESS);
            CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), on && (good || status != WARP_SUCCESS));
            CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), on && (good || status != WARP_SUCCESS));
            CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
            if (check_failure_count() != 0) {
                printf("\n    good %d, on %d, call %d, code %u, status %d", good, on, (int)nth, codes[on], (int)status);
                return;
            }
            if (made < nth)
                break;
        }
        CHECK(nth > 60 && nth < 400);
        CHECK(errors > 30);
    }
}

PROCESS_TEST(every_call_of_the_driver_may_fail)
{
    fail_each_call(1);
}

PROCESS_TEST(every_call_of_the_driver_may_fail_on_a_link_that_does)
{
    fail_each_call(0);
}

PROCESS_TEST(everything_may_fail_from_some_call_on)
{
    uint64_t after;
    start_on("h200x2,peer.1.0=broken");
    warm_up(2);
    for (after = 0; after < 120; after += 7) {
        warp_status status;
        uint8_t answer = 9;
        SIMULATOR(warpsim_fail_after)(after, 999);
        status = warp_peer_access_verify(gpu(0), gpu(1), &answer);
        SIMULATOR(warpsim_fail_clear)();
        CHECK(status == WARP_ERROR_DRIVER);
        CHECK_EQ_U64(answer, 0);
        CHECK_EQ_I64(can(PEER, gpu(0), gpu(1)), 1);
    }
    CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
}

PROCESS_TEST(no_memory_is_no_answer)
{
    struct counts before;
    start_on("h200x2,peer.1.0=broken");
    warm_up(2);
    before = count();
    SIMULATOR(warpsim_out_of_memory_at_size)(MIB / 2);
    not_verified(gpu(0), gpu(1), WARP_ERROR_OUT_OF_MEMORY);
    SIMULATOR(warpsim_fail_clear)();
    check_counts(&before);
    CHECK_EQ_I64(can(PEER, gpu(0), gpu(1)), 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    CHECK_EQ_I64(verified(gpu(0), gpu(1)), 0);
}

PROCESS_TEST(copies_that_never_end_are_no_answer)
{
    struct counts before;
    int i;
    start_on("h200x2,gpus=3");
    warm_up(3);
    before = count();
    /* Nothing ends as long as every question is answered so. */
    SIMULATOR(warpsim_fail)("cuStreamQuery", 0, 600);
    not_verified(gpu(0), gpu(1), WARP_ERROR_BUSY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "have not ended");
    /* What such copies use stays: access, which nobody takes away meanwhile, and memory. */
    CHECK_EQ_I64(can(PEER, gpu(0), gpu(1)), 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    CHECK_STATUS(PEER->set(gpu(0), gpu(1), 0), WARP_ERROR_BUSY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "verified");
    not_verified(gpu(0), gpu(1), WARP_ERROR_BUSY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "earlier");
    SIMULATOR(warpsim_fail_clear)();
    /* Their end is noticed by a test of any pair, */
    CHECK_EQ_I64(verified(gpu(0), gpu(2)), 1);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    check_counts(&before);
    CHECK_EQ_I64(verified(gpu(0), gpu(1)), 1);
    /* and by a shutdown, which leaves alone what goes on. */
    for (i = 0; i < 2; ++i) {
        SIMULATOR(warpsim_fail)("cuStreamQuery", 0, 600);
        not_verified(gpu(0), gpu(1), WARP_ERROR_BUSY);
        if (i == 0)
            SIMULATOR(warpsim_fail_clear)();
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        SIMULATOR(warpsim_fail_clear)();
        start_on("h200x2,gpus=3");
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), i);
    }
    CHECK_EQ_I64(verified(gpu(0), gpu(1)), 1);
    turn(PEER, gpu(0), gpu(1), 0);
}

PROCESS_TEST(a_context_that_is_reset_is_lost)
{
    warp_device *lost;
    int side;
    start_on("h200x2");
    for (side = 0; side < 2; ++side) {
        CHECK_EQ_I64(verified(gpu(0), gpu(1)), 1);
        lost = gpu(side);
        CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(side), 0);
        if (side)
            not_verified(gpu(0), lost, WARP_ERROR_DEVICE_LOST);
        else
            not_verified(lost, gpu(1), WARP_ERROR_DEVICE_LOST);
        CHECK(gpu(side) != lost);
        CHECK_EQ_I64(verified(gpu(0), gpu(1)), 1);
    }
}

static void verify_in_child(void *unused)
{
    (void)unused;
    not_verified(gpu(0), gpu(1), WARP_ERROR_FORKED);
    not_verified(cpu(), gpu(1), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void *verify_until_stopped(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && check_failure_count() == 0)
        CHECK_EQ_I64(verified(gpu(0), gpu(1)), 1);
    return NULL;
}

PROCESS_TEST(a_forked_child_is_refused_also_in_the_middle_of_a_test)
{
    pthread_t other;
    int i;
    start_on("h200x2");
    CHECK_EQ_I64(verified(gpu(0), gpu(1)), 1);
    REQUIRE(pthread_create(&other, NULL, verify_until_stopped, NULL) == 0);
    for (i = 0; i < 5; ++i)
        in_child(verify_in_child, NULL, 60);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(other, NULL);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
}

static void *verify_until_shut_down(void *unused)
{
    warp_status status;
    uint8_t answer;
    (void)unused;
    do {
        answer = 9;
        status = warp_peer_access_verify(NULL, (warp_device *)unused, &answer);
        CHECK(status == WARP_SUCCESS || status == WARP_ERROR_SHUT_DOWN || status == WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_U64(answer, status == WARP_SUCCESS);
    } while (status == WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(a_shutdown_waits_for_the_test)
{
    int i;
    for (i = 0; i < 8; ++i) {
        pthread_t other;
        start_on("h200x2");
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
        REQUIRE(pthread_create(&other, NULL, verify_until_shut_down, gpu(1)) == 0);
        CHECK_EQ_I64(verified(gpu(1), gpu(0)), 1);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        pthread_join(other, NULL);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("stream"), 0);
    }
    start_on("h200x2");
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

CHECK_MAIN()
