/*
 * access_scopes.c: scopes that keep peer or pool access as they want it in the whole process: what they find and put back, how
 * those of many threads are one, what is refused meanwhile, and wrong orders. Case PA-01, as far as it is about this.
 *
 * needs: simulator
 * valgrind: no (what a thread held that the fork left behind is lost in the child)
 */
#include "peers.h"

#include "forked.h"

#include <pthread.h>

static warp_scope *open_scope(const struct access *access, int on)
{
    warp_scope *scope = NULL;
    CHECK_STATUS(access->begin(gpu(0), gpu(1), (uint8_t)on, &scope), WARP_SUCCESS);
    CHECK(scope != NULL);
    return scope;
}

static void end(warp_scope *scope)
{
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
}

static void busy(const struct access *access, int on)
{
    refused(access, gpu(0), gpu(1), on, WARP_ERROR_BUSY);
    names_pair("\"cuda:0\"", "\"cuda:1\"");
}

PROCESS_TEST(a_scope_puts_back_what_it_found)
{
    int i, found, wanted;
    start_on("h200x2");
    for (i = 0; i < 2; ++i)
        for (found = 0; found < 2; ++found)
            for (wanted = 0; wanted < 2; ++wanted) {
                warp_scope *scope;
                turn(&kinds[i], gpu(0), gpu(1), found);
                scope = open_scope(&kinds[i], wanted);
                CHECK_EQ_I64(has(&kinds[i], gpu(0), gpu(1)), wanted);
                CHECK_EQ_I64(has(&kinds[!i], gpu(0), gpu(1)), 0);
                CHECK_EQ_I64(has(&kinds[i], gpu(1), gpu(0)), 0);
                end(scope);
                CHECK_EQ_I64(has(&kinds[i], gpu(0), gpu(1)), found);
                turn(&kinds[i], gpu(0), gpu(1), 0);
            }
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_scope_finds_what_other_libraries_did)
{
    /* PA-01: on before us, on after us. */
    int i;
    start_on("h200x2");
    context_of(gpu(0));
    context_of(gpu(1));
    for (i = 0; i < 2; ++i) {
        warp_scope *scope;
        kinds[i].outside(0, 1, 1);
        scope = open_scope(&kinds[i], 1);
        end(scope);
        CHECK_EQ_I64(has(&kinds[i], gpu(0), gpu(1)), 1);
        scope = open_scope(&kinds[i], 0);
        CHECK_EQ_I64(has(&kinds[i], gpu(0), gpu(1)), 0);
        end(scope);
        CHECK_EQ_I64(has(&kinds[i], gpu(0), gpu(1)), 1);
        /* What they do meanwhile is read, and does not change what is put back. */
        scope = open_scope(&kinds[i], 1);
        kinds[i].outside(0, 1, 0);
        CHECK_EQ_I64(has(&kinds[i], gpu(0), gpu(1)), 0);
        /* A second one that wants it has it. */
        {
            warp_scope *second = open_scope(&kinds[i], 1);
            CHECK_EQ_I64(has(&kinds[i], gpu(0), gpu(1)), 1);
            kinds[i].outside(0, 1, 0);
            end(second);
        }
        end(scope);
        CHECK_EQ_I64(has(&kinds[i], gpu(0), gpu(1)), 1);
        kinds[i].outside(0, 1, 0);
    }
}

PROCESS_TEST(scopes_that_want_the_same_are_one_and_the_opposite_is_busy)
{
    int i, wanted;
    start_on("h200x2,gpus=3");
    for (i = 0; i < 2; ++i)
        for (wanted = 0; wanted < 2; ++wanted) {
            const struct access *access = &kinds[i];
            warp_scope *first, *second, *third;
            turn(access, gpu(0), gpu(1), !wanted);
            turn(access, gpu(0), gpu(2), 0);
            first = open_scope(access, wanted);
            busy(access, !wanted);
            CHECK_STR_CONTAINS(warp_error_get_message(), "open scopes (1)");
            second = open_scope(access, wanted);
            third = open_scope(access, wanted);
            busy(access, !wanted);
            CHECK_STR_CONTAINS(warp_error_get_message(), "open scopes (3)");
            turn(access, gpu(0), gpu(1), wanted);
            /* Of all or none it is one. */
            CHECK_STATUS(access->set_for(gpu(0), NULL, 0, (uint8_t)!wanted), WARP_ERROR_BUSY);
            CHECK_EQ_I64(has(access, gpu(0), gpu(2)), 0);
            CHECK_STATUS(access->set_for(gpu(0), NULL, 0, (uint8_t)wanted), WARP_SUCCESS);
            CHECK_EQ_I64(has(access, gpu(0), gpu(2)), wanted);
            /* Other pairs, directions and the other kind are free. */
            turn(access, gpu(0), gpu(2), 1);
            turn(access, gpu(1), gpu(0), 1);
            turn(access, gpu(1), gpu(0), 0);
            turn(&kinds[!i], gpu(0), gpu(1), 1);
            turn(&kinds[!i], gpu(0), gpu(1), 0);
            end(third);
            end(second);
            CHECK_EQ_I64(has(access, gpu(0), gpu(1)), wanted);
            busy(access, !wanted);
            end(first);
            CHECK_EQ_I64(has(access, gpu(0), gpu(1)), !wanted);
            turn(access, gpu(0), gpu(1), wanted);
            turn(access, gpu(0), gpu(1), !wanted);
        }
}

PROCESS_TEST(scopes_that_change_nothing_are_harmless)
{
    warp_scope *scopes[6];
    int i, n;
    start_on("mixed,peers=0");
    for (i = 0; i < 2; ++i) {
        const struct access *access = &kinds[i];
        n = 0;
        CHECK_STATUS(access->begin(cpu(), gpu(0), 0, &scopes[n++]), WARP_SUCCESS);
        CHECK_STATUS(access->begin(gpu(0), cpu(), 0, &scopes[n++]), WARP_SUCCESS);
        CHECK_STATUS(access->begin(gpu(0), gpu(0), 0, &scopes[n++]), WARP_SUCCESS);
        CHECK_STATUS(access->begin(gpu(0), gpu(0), 1, &scopes[n++]), WARP_SUCCESS);
        CHECK_STATUS(access->begin(gpu(0), gpu(1), 0, &scopes[n++]), WARP_SUCCESS);
        CHECK_STATUS(access->begin(gpu(1), gpu(0), 0, &scopes[n++]), WARP_SUCCESS);
        CHECK_EQ_I64(has(access, gpu(0), gpu(0)), 1);
        while (n-- > 0)
            end(scopes[n]);
        refused(access, gpu(0), gpu(1), 1, WARP_ERROR_NOT_SUPPORTED);
        refused(access, gpu(0), cpu(), 1, WARP_ERROR_INVALID_ARGUMENT);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
}

/* ---- Order ------------------------------------------------------------------------------------------------------------- */

static void *end_elsewhere(void *scope)
{
    CHECK_STATUS(warp_scope_end(scope), WARP_ERROR_SCOPE_ORDER);
    return NULL;
}

PROCESS_TEST(wrong_orders_change_nothing)
{
    int i;
    start_on("h200x2");
    for (i = 0; i < 2; ++i) {
        const struct access *access = &kinds[i];
        warp_scope *first, *second, *device_scope;
        pthread_t thread;
        first = open_scope(access, 1);
        CHECK_STATUS(warp_scope_begin_device(cpu(), &device_scope), WARP_SUCCESS);
        second = open_scope(access, 1);
        CHECK_STATUS(warp_scope_end(first), WARP_ERROR_SCOPE_ORDER);
        CHECK_STATUS(warp_scope_end(device_scope), WARP_ERROR_SCOPE_ORDER);
        REQUIRE(pthread_create(&thread, NULL, end_elsewhere, second) == 0);
        pthread_join(thread, NULL);
        CHECK_EQ_I64(has(access, gpu(0), gpu(1)), 1);
        busy(access, 0);
        end(second);
        CHECK_STATUS(warp_scope_end(second), WARP_ERROR_SCOPE_ORDER);
        CHECK_EQ_I64(has(access, gpu(0), gpu(1)), 1);
        CHECK_STATUS(warp_scope_end(first), WARP_ERROR_SCOPE_ORDER);
        end(device_scope);
        end(first);
        CHECK_EQ_I64(has(access, gpu(0), gpu(1)), 0);
        CHECK_STATUS(warp_scope_end(first), WARP_ERROR_SCOPE_ORDER);
        CHECK_EQ_I64(has(access, gpu(0), gpu(1)), 0);
    }
}

PROCESS_TEST(a_thread_has_room_for_64_scopes)
{
    warp_scope *scopes[64], *more = (warp_scope *)1;
    int i;
    start_on("h200x2");
    for (i = 0; i < 64; ++i)
        scopes[i] = open_scope(&kinds[i & 1], 1);
    CHECK_STATUS(PEER->begin(gpu(1), gpu(0), 1, &more), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_PTR(more, NULL);
    CHECK_EQ_I64(has(PEER, gpu(1), gpu(0)), 0);
    for (i = 64; i-- > 0;)
        end(scopes[i]);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 0);
}

/* ---- Threads -------------------------------------------------------------------------------------------------------------- */

static void *open_and_end(void *unused)
{
    int round, i;
    (void)unused;
    for (round = 0; round < 100; ++round)
        for (i = 0; i < 2; ++i) {
            warp_scope *scope = open_scope(&kinds[i], 1);
            CHECK_EQ_I64(has(&kinds[i], gpu(0), gpu(1)), 1);
            end(scope);
        }
    return NULL;
}

PROCESS_TEST(scopes_of_many_threads_are_one)
{
    pthread_t threads[6];
    int i;
    start_on("h200x2");
    for (i = 0; i < 6; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, open_and_end, NULL) == 0);
    for (i = 0; i < 6; ++i)
        pthread_join(threads[i], NULL);
    /* The last of them put back what the first found. */
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 0);
    turn(PEER, gpu(0), gpu(1), 1);
    turn(PEER, gpu(0), gpu(1), 0);
}

static void *quarrel(void *argument)
{
    int wanted = (int)(uintptr_t)argument, round;
    for (round = 0; round < 200; ++round) {
        warp_scope *scope = NULL;
        warp_status status = PEER->begin(gpu(0), gpu(1), (uint8_t)wanted, &scope);
        CHECK(status == WARP_SUCCESS || status == WARP_ERROR_BUSY);
        if (status == WARP_SUCCESS) {
            CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), wanted);
            end(scope);
        }
    }
    return NULL;
}

PROCESS_TEST(threads_that_want_the_opposite_never_have_it_at_once)
{
    pthread_t threads[4];
    int i;
    start_on("h200x2");
    turn(PEER, gpu(0), gpu(1), 1);
    for (i = 0; i < 4; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, quarrel, (void *)(uintptr_t)(i & 1)) == 0);
    for (i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
}

static void *leave_open(void *access)
{
    return open_scope(access, 1);
}

PROCESS_TEST(a_thread_that_ends_leaves_its_scope_until_the_shutdown)
{
    int i;
    start_on("h200x2");
    for (i = 0; i < 2; ++i) {
        const struct access *access = &kinds[i];
        void *left = NULL;
        pthread_t thread;
        warp_scope *mine;
        REQUIRE(pthread_create(&thread, NULL, leave_open, (void *)(uintptr_t)access) == 0);
        pthread_join(thread, &left);
        CHECK_STATUS(warp_scope_end(left), WARP_ERROR_SCOPE_ORDER);
        busy(access, 0);
        mine = open_scope(access, 1);
        end(mine);
        CHECK_EQ_I64(has(access, gpu(0), gpu(1)), 1);
        /* A scope of this thread is over with the shutdown too, and ending it does nothing any more. */
        mine = open_scope(access, 1);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        CHECK_EQ_I64(has(access, gpu(0), gpu(1)), 0);
        turn(access, gpu(0), gpu(1), 1);
        {
            warp_scope *next = open_scope(access, 1);
            CHECK_STATUS(warp_scope_end(mine), WARP_ERROR_SCOPE_ORDER);
            end(next);
        }
        end(mine);
        CHECK_EQ_I64(has(access, gpu(0), gpu(1)), 1);
        turn(access, gpu(0), gpu(1), 0);
    }
}

/* ---- What goes wrong --------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(the_end_waits_for_work_and_is_the_end_whatever_happens)
{
    int i;
    start_on("h200x2");
    for (i = 0; i < 2; ++i) {
        const struct access *access = &kinds[i];
        warp_memory_kind kind = i ? WARP_MEMORY_CUDA_MEMPOOL : WARP_MEMORY_CUDA_DEVICE;
        warp_scope *scope = open_scope(access, 1);
        void *from = block_of(gpu(0), 4096, kind), *to = block_of(gpu(1), 4096, kind);
        warp_stream *stream = new_stream(gpu(1), WARP_STREAM_NON_BLOCKING);
        put_pattern(from, 4096, 8);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        SIMULATOR(warpsim_hold)(native_stream(stream));
        CHECK_STATUS(warp_memory_copy(to, from, 4096, stream), WARP_SUCCESS);
        end(scope);
        CHECK_EQ_U64(find_pattern(to, 4096, 8), 4096);
        CHECK_EQ_I64(has(access, gpu(0), gpu(1)), 0);
        /* It cannot be put back: that is said, and the scope is over. */
        scope = open_scope(access, 1);
        SIMULATOR(warpsim_fail)(access->takes, 1, 999);
        CHECK_STATUS(warp_scope_end(scope), WARP_ERROR_DRIVER);
        CHECK_STR_CONTAINS(warp_error_get_message(), "the scope is over");
        names_pair("\"cuda:0\"", "\"cuda:1\"");
        CHECK_EQ_I64(has(access, gpu(0), gpu(1)), 1);
        CHECK_STATUS(warp_scope_end(scope), WARP_ERROR_SCOPE_ORDER);
        turn(access, gpu(0), gpu(1), 0);
        /* One that cannot begin is none. */
        SIMULATOR(warpsim_fail)(access->gives, 1, 999);
        CHECK_STATUS(access->begin(gpu(0), gpu(1), 1, &scope), WARP_ERROR_DRIVER);
        CHECK_EQ_PTR(scope, NULL);
        turn(access, gpu(0), gpu(1), 1);
        turn(access, gpu(0), gpu(1), 0);
        CHECK_STATUS(warp_free(from), WARP_SUCCESS);
        CHECK_STATUS(warp_free(to), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
}

PROCESS_TEST(a_context_that_dies_inside_takes_the_scope_with_it)
{
    int side, i;
    start_on("h200x2");
    for (side = 0; side < 2; ++side) {
        warp_scope *scopes[2];
        turn(PEER, gpu(0), gpu(1), 1);
        scopes[0] = open_scope(PEER, 0);
        scopes[1] = open_scope(POOL, 1);
        CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(side), 0);
        for (i = 2; i-- > 0;)
            end(scopes[i]);
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
        /* A pool does not go with a context, nor does what was found of it. */
        CHECK_EQ_I64(has(POOL, gpu(0), gpu(1)), 0);
        turn(PEER, gpu(0), gpu(1), 1);
        CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    }
}

PROCESS_TEST(a_limit_that_is_reached_inside_is_met_at_the_end)
{
    /* PA-02. */
    warp_scope *scope = NULL;
    int i;
    start_on("gpux10");
    for (i = 1; i <= 8; ++i)
        turn(PEER, gpu(0), gpu(i), 1);
    CHECK_STATUS(PEER->begin(gpu(0), gpu(9), 1, &scope), WARP_ERROR_PEER_LIMIT);
    CHECK_EQ_PTR(scope, NULL);
    scope = open_scope(PEER, 0);
    turn(PEER, gpu(0), gpu(9), 1);
    CHECK_STATUS(warp_scope_end(scope), WARP_ERROR_PEER_LIMIT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "the scope is over");
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
    turn(PEER, gpu(0), gpu(9), 0);
    turn(PEER, gpu(0), gpu(1), 1);
}

static void end_in_child(void *scope)
{
    end(scope);
    CHECK_STATUS(warp_scope_end(scope), WARP_ERROR_SCOPE_ORDER);
    use_cpu();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static int stop;

static void *in_and_out(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        warp_scope *scope = NULL;
        CHECK_STATUS(POOL->begin(gpu(1), gpu(0), 1, &scope), WARP_SUCCESS);
        end(scope);
    }
    return NULL;
}

PROCESS_TEST(a_forked_child_ends_its_scopes_and_changes_nothing)
{
    pthread_t thread;
    warp_scope *scope;
    int i;
    start_on("h200x2");
    scope = open_scope(PEER, 1);
    /* Whatever another thread is in the middle of. */
    REQUIRE(pthread_create(&thread, NULL, in_and_out, NULL) == 0);
    for (i = 0; i < 20; ++i)
        in_child(end_in_child, scope, 60);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 1);
    busy(PEER, 0);
    end(scope);
    CHECK_EQ_I64(has(PEER, gpu(0), gpu(1)), 0);
}

PROCESS_TEST(scopes_can_be_open_when_the_process_ends)
{
    start_on("h200x2");
    open_scope(PEER, 1);
    open_scope(POOL, 1);
    SIMULATOR(warpsim_deinitialize)();
}

CHECK_MAIN()
