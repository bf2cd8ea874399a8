/* Allocators that stand on others, when processes fork and end and the library is shut down: what waits in a log is written once, and
 * a child leaves what its parent made alone.
 *
 * topology: h200x2
 * needs: simulator */
#define _GNU_SOURCE
#include "adaptors.h"

static int child_of(void (*body)(void *), void *argument)
{
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        __atomic_store_n(&check_failures, 0, __ATOMIC_SEQ_CST);
        alarm(PROCESS_PATIENCE);
        body(argument);
        exit(check_failure_count() == 0 ? 0 : 1);
    }
    return process_wait(child);
}

struct inherited {
    warp_allocator *of[ADAPTORS];
    void *blocks[ADAPTORS];
};

static void use_in_child(void *argument)
{
    struct inherited *inherited = argument;
    warp_allocator_statistics account = {.struct_size = sizeof account};
    warp_allocator *own = NULL;
    void *none = (void *)1;
    char path[256];
    size_t lines = 0;
    int sort;
    for (sort = 0; sort < ADAPTORS; ++sort) {
        CHECK_STATUS(try_take(inherited->of[sort], cpu(), 100, &none), WARP_ERROR_FORKED);
        CHECK_STATUS(warp_free(inherited->blocks[sort]), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_allocator_logging_flush(inherited->of[LOGGING]), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_allocator_statistics_push(inherited->of[STATISTICS]), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_allocator_statistics_pop(inherited->of[STATISTICS], &account), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_allocator_limit_get(inherited->of[LIMIT], NULL, NULL), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_allocator_tracking_list(inherited->of[TRACKING], NULL, 0, 0, NULL), WARP_ERROR_FORKED);
    for (sort = 0; sort < ADAPTORS; ++sort)
        release(inherited->of[sort]);
    /* Its own log is its own to write. */
    REQUIRE(process_make_file(path, sizeof path));
    {
        struct below below;
        warp_allocator *upstream = make_below(&below);
        CHECK_STATUS(warp_allocator_create_logging(upstream, path, &own), WARP_SUCCESS);
        give(own, take(own, cpu(), 100));
        release(own);
        text_of(path, &lines);
        CHECK_EQ_U64(lines, 4);
        release(upstream);
    }
    CHECK(remove(path) == 0);
}

PROCESS_TEST(a_child_leaves_what_its_parent_made_alone)
{
    struct inherited inherited;
    struct below below;
    warp_allocator *upstream;
    char path[256];
    size_t lines = 0;
    int sort, i;
    REQUIRE(start());
    upstream = make_below(&below);
    REQUIRE(process_make_file(path, sizeof path));
    for (sort = 0; sort < ADAPTORS; ++sort) {
        CHECK_STATUS(try_adaptor(sort, upstream, path, &inherited.of[sort]), WARP_SUCCESS);
        inherited.blocks[sort] = block_by(inherited.of[sort], cpu(), 100, "inherited");
    }
    for (i = 0; i < 3; ++i)
        CHECK_EQ_I64(child_of(use_in_child, &inherited), 0);
    text_of(path, &lines);
    CHECK_EQ_U64(lines, 0); /* no child has written what waits here */
    for (sort = 0; sort < ADAPTORS; ++sort) {
        CHECK_STATUS(warp_free(inherited.blocks[sort]), WARP_SUCCESS);
        release(inherited.of[sort]);
    }
    release(upstream);
    CHECK_EQ_U64(below.destroyed, 1);
    text_of(path, &lines);
    CHECK_EQ_U64(lines, 4);
    CHECK(remove(path) == 0);
}

static int enough;

static void *work(void *stack)
{
    void *kept[32] = {NULL};
    uint64_t random = (uint64_t)(uintptr_t)kept;
    while (!__atomic_load_n(&enough, __ATOMIC_SEQ_CST)) {
        uint64_t at = next_random(&random) % 32;
        if (kept[at] == NULL) {
            kept[at] = block_by(stack, cpu(), 1 + next_random(&random) % 500, "work");
        } else {
            CHECK_STATUS(warp_free(kept[at]), WARP_SUCCESS);
            kept[at] = NULL;
        }
    }
    for (random = 0; random < 32; ++random)
        CHECK_STATUS(warp_free(kept[random]), WARP_SUCCESS);
    return NULL;
}

/* Drops all of it, in whatever state the fork found it, and begins anew. */
static void drop_in_child(void *argument)
{
    warp_allocator *const *stack = argument;
    struct below below;
    warp_allocator *upstream, *own;
    int i;
    for (i = 0; i < ADAPTORS; ++i)
        release(stack[i]);
    CHECK_STATUS(warp_free(block_of(cpu(), 100, WARP_MEMORY_HOST)), WARP_SUCCESS);
    upstream = make_below(&below);
    own = make_adaptor(LOGGING, upstream);
    give(own, take(own, cpu(), 100));
    release(own);
    release(upstream);
    CHECK_EQ_U64(below.destroyed, 1);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void fork_in_the_middle(void)
{
    struct below below;
    warp_allocator *upstream, *stack[ADAPTORS];
    pthread_t threads[4];
    char path[256];
    size_t lines = 0;
    int i, rounds = 40;
    REQUIRE(start());
    REQUIRE(process_make_file(path, sizeof path));
    upstream = make_below(&below);
    for (i = 0; i < ADAPTORS; ++i)
        CHECK_STATUS(try_adaptor(i, i == 0 ? upstream : stack[i - 1], path, &stack[i]), WARP_SUCCESS);
    for (i = 0; i < 4; ++i)
        pthread_create(&threads[i], NULL, work, stack[ADAPTORS - 1]);
    for (i = 0; i < rounds; ++i) {
        usleep(500);
        CHECK_EQ_I64(child_of(drop_in_child, stack), 0);
    }
    __atomic_store_n(&enough, 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    CHECK_EQ_U64(used_of(stack[LIMIT]), 0);
    CHECK_EQ_U64(tracked(stack[TRACKING]), 0);
    CHECK_EQ_U64(below.served, below.taken_back);
    for (i = 0; i < ADAPTORS; ++i)
        release(stack[i]);
    release(upstream);
    CHECK_EQ_U64(below.destroyed, 1);
    text_of(path, &lines);
    CHECK(lines > 2);
    CHECK(remove(path) == 0);
}

TEST(a_fork_in_the_middle_of_work_leaves_a_child_that_can_go_on)
{
    if (check_under("valgrind"))
        SKIP("what a thread held that the fork left behind is lost in the child");
    if (check_under("sanitizer"))
        SKIP("the sanitizer's heap stays locked in the child");
    process_run(fork_in_the_middle);
}

static void log_and_exit(void *path)
{
    warp_allocator *logging = NULL;
    REQUIRE(start());
    CHECK_STATUS(warp_allocator_create_logging(builtin(WARP_MEMORY_HOST), path, &logging), WARP_SUCCESS);
    give(logging, take(logging, cpu(), 100));
    block_by(logging, cpu(), 200, "left");
}

static void log_and_shut_down(void *path)
{
    log_and_exit(path);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void log_fork_and_exit(void *path)
{
    pid_t child;
    log_and_exit(path);
    child = fork();
    if (child == 0)
        exit(0);
    CHECK_EQ_I64(process_wait(child), 0);
}

PROCESS_TEST(what_waits_is_written_once_when_the_process_ends)
{
    void (*const ends[])(void *) = {log_and_exit, log_and_shut_down, log_fork_and_exit};
    size_t i, lines;
    for (i = 0; i < 3; ++i) {
        char path[256];
        REQUIRE(process_make_file(path, sizeof path));
        CHECK_EQ_I64(child_of(ends[i], path), 0);
        text_of(path, &lines);
        CHECK_EQ_U64(lines, 5);
        CHECK(remove(path) == 0);
    }
}

PROCESS_TEST(a_shutdown_ends_them_and_a_later_start_finds_none)
{
    struct below below;
    warp_allocator *upstream, *stack[ADAPTORS];
    void *ptr;
    int sort;
    REQUIRE(start());
    upstream = make_below(&below);
    for (sort = 0; sort < ADAPTORS; ++sort)
        stack[sort] = make_adaptor(sort, sort == 0 ? upstream : stack[sort - 1]);
    ptr = block_by(stack[ADAPTORS - 1], cpu(), 100, NULL);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(below.destroyed, 0);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(below.taken_back, 1);
    CHECK_EQ_U64(below.destroyed, 1);
    REQUIRE(start());
    for (sort = 0; sort < ADAPTORS; ++sort)
        CHECK_STATUS(warp_allocator_release(stack[sort]), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
