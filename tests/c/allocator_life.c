/*
 * allocator_life.c: how long allocators live: every order of letting go, shutdowns, forks, exits, a driver that is gone, and code
 * that is about to be unloaded. Each test is a process of its own.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "access.h"
#include "allocators.h"
#include "captures.h"
#include "forked.h"

/* A file that callbacks of an ending process leave their marks in. */
static int marks[2];

static void mark(struct recorder *r, const warp_alloc_request *request)
{
    (void)r, (void)request;
    if (write(marks[1], "x", 1) != 1)
        abort();
}

static void mark_all(struct recorder *r)
{
    r->on_allocate = r->on_deallocate = r->on_destroy = r->on_trim = r->on_record = mark;
}

/* ---- Every order of the end --------------------------------------------------------------------------------------------- */

/* What refers to an allocator, to be ended in any order; each returns nothing. */
enum end_of { CREATOR, INSTALLED, SCOPE, BLOCK, DIRECT, ARRAY, GRAPH_KEPT, PARTS };

static warp_scope *open_scope;
static void *block, *direct_memory, *kept;
static warp_array *array;
static warp_graph *graph;
static warp_stream *stream;

static void start_parts(struct recorder *r, unsigned parts)
{
    warp_alloc_request request = {.struct_size = sizeof request, .size = 100, .device = gpu(0)};
    warp_array_options options = {.struct_size = sizeof options, .allocator = r->handle};
    int64_t shape = 10;
    if (parts & 1u << INSTALLED)
        CHECK_STATUS(warp_allocator_set_for_device(gpu(1), r->handle), WARP_SUCCESS);
    if (parts & 1u << SCOPE)
        CHECK_STATUS(warp_scope_begin_allocator(gpu(0), r->handle, &open_scope), WARP_SUCCESS);
    if (parts & 1u << BLOCK)
        block = block_by(gpu(0), r->handle, 100, NULL);
    if (parts & 1u << DIRECT)
        CHECK_STATUS(warp_allocator_allocate(r->handle, &request, &direct_memory), WARP_SUCCESS);
    if (parts & 1u << ARRAY)
        CHECK_STATUS(warp_array_empty(gpu(0), F32, 1, &shape, &options, &array), WARP_SUCCESS);
    if (parts & 1u << GRAPH_KEPT) {
        /* A graph keeps a block that was freed: it goes with the graph. */
        kept = block_by(gpu(0), r->handle, 100, NULL);
        begin(stream);
        fill_byte(kept, 3, 100, stream);
        graph = end(stream);
        CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
    }
}

static void end_part(struct recorder *r, int part)
{
    switch (part) {
    case CREATOR: let_go(r); break;
    case INSTALLED: CHECK_STATUS(warp_allocator_set_for_device(gpu(1), NULL), WARP_SUCCESS); break;
    case SCOPE: CHECK_STATUS(warp_scope_end(open_scope), WARP_SUCCESS); break;
    case BLOCK: CHECK_STATUS(warp_free(block), WARP_SUCCESS); break;
    case DIRECT: CHECK_STATUS(warp_allocator_deallocate(r->handle, direct_memory, NULL), WARP_SUCCESS); break;
    case ARRAY: drop(array); break;
    case GRAPH_KEPT: CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS); break;
    default: break;
    }
    /* A call that delivers. */
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
}

static void run_order(const int *order, unsigned parts)
{
    struct recorder r = {0};
    int i, left = 0, failures = check_failure_count();
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    start_parts(&r, parts);
    for (i = 0; i < PARTS; ++i)
        left += parts >> i & 1;
    for (i = 0; i < PARTS; ++i) {
        if ((parts >> order[i] & 1) == 0)
            continue;
        CHECK_EQ_U64(r.destroys, 0);
        end_part(&r, order[i]);
        --left;
        CHECK_EQ_U64(r.destroys, left == 0);
    }
    CHECK_OVER(&r);
    if (check_failure_count() != failures) {
        printf("\n      parts 0x%x in the order", parts);
        for (i = 0; i < PARTS; ++i)
            printf(" %d", order[i]);
    }
}

PROCESS_TEST(destroyed_once_in_every_order)
{
    uint64_t state = 7;
    int order[PARTS], i, round;
    unsigned parts;
    REQUIRE(start());
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    /* Every pair in both orders, then longer ones by chance. */
    for (round = 0; round < (check_under("valgrind") ? 120 : 500) && check_failure_count() < 10; ++round) {
        for (i = 0; i < PARTS; ++i)
            order[i] = i;
        for (i = PARTS; i-- > 1;) {
            int other = (int)(next_random(&state) % (unsigned)(i + 1)), swap = order[i];
            order[i] = order[other];
            order[other] = swap;
        }
        parts = round < 40 ? 1u << order[0] | 1u << order[1] : (unsigned)next_random(&state) % (1u << PARTS);
        run_order(order, parts | 1u << CREATOR);
    }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* Its creator never lets go, and never sees it again: the last block of it is freed after a shutdown. */
PROCESS_TEST(blocks_outlive_the_shutdown)
{
    struct recorder r = {.name = "long-lived"}, quiet = {.name = "released in time"}, without = {.name = "no destroy", .without = NO_DESTROY};
    warp_alloc_request request = {.struct_size = sizeof request, .size = 100};
    void *one, *two, *direct = NULL, *host;
    struct recorder host_r = {.name = "host", .flags = WARP_ALLOCATOR_HOST_MEMORY};
    int life;
    for (life = 0; life < 3; ++life) {
        memset(&r, 0, sizeof r);
        memset(&quiet, 0, sizeof quiet);
        memset(&without, 0, sizeof without);
        memset(&host_r, 0, sizeof host_r);
        r.name = "long-lived", quiet.name = "released in time", without.name = "no destroy", without.without = NO_DESTROY;
        host_r.name = "host", host_r.flags = WARP_ALLOCATOR_HOST_MEMORY;
        REQUIRE(start());
        created(&r, WARP_MEMORY_CUDA_MEMPOOL);
        created(&quiet, WARP_MEMORY_CUDA_DEVICE);
        created(&without, WARP_MEMORY_CUDA_DEVICE);
        created(&host_r, WARP_MEMORY_HOST);
        CHECK_STATUS(warp_allocator_set_for_all(r.handle), WARP_SUCCESS);
        one = block_by(gpu(0), r.handle, 1000, NULL);
        two = block_by(gpu(1), r.handle, 24, NULL);
        host = block_by(cpu(), host_r.handle, 10, NULL);
        request.device = gpu(0);
        CHECK_STATUS(warp_allocator_allocate(r.handle, &request, &direct), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block_by(gpu(0), without.handle, 8, NULL)), WARP_SUCCESS);
        let_go(&quiet);
        listen_to_log(WARP_LOG_WARNING);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_STR_CONTAINS(logged_text, "\"long-lived\" outlives the shutdown: 3 blocks of it, 1124 bytes");
        CHECK_STR_CONTAINS(logged_text, "\"host\" outlives the shutdown: 1 blocks of it, 10 bytes");
        CHECK_EQ_I64(logged_lines, 2);
        CHECK_EQ_U64(quiet.destroys, 1);
        CHECK_EQ_U64(r.destroys, 0);
        CHECK_STATUS(warp_allocator_release(r.handle), WARP_ERROR_INVALID_HANDLE);
        CHECK_STATUS(warp_allocator_retain(r.handle), WARP_ERROR_SHUT_DOWN);
        CHECK_STATUS(warp_alloc(NULL, 8, &host), WARP_ERROR_SHUT_DOWN);
        host = host_r.out[0].ptr;
        if (life == 1) { /* in the next life */
            REQUIRE(start());
            CHECK_STATUS(warp_allocator_set_for_device(gpu(0), r.handle), WARP_ERROR_INVALID_HANDLE);
            CHECK_EQ_PTR(pointer_info(one).allocator, r.handle);
        }
        CHECK_STATUS(warp_free(one), WARP_SUCCESS);
        CHECK_EQ_U64(r.deallocates, 1);
        CHECK_EQ_U64(r.deallocated.size, 1000);
        CHECK_STATUS(warp_free(one), WARP_ERROR_DOUBLE_FREE);
        CHECK_STATUS(warp_allocator_deallocate(r.handle, (char *)direct + 1, NULL), WARP_ERROR_INTERIOR_POINTER);
        CHECK_STATUS(warp_allocator_deallocate(r.handle, direct, NULL), WARP_SUCCESS);
        CHECK_EQ_U64(r.deallocates, 2);
        CHECK_EQ_U64(r.destroys, 0);
        CHECK_STATUS(warp_free(two), WARP_SUCCESS);
        CHECK_OVER(&r);
        CHECK_STATUS(warp_allocator_deallocate(r.handle, direct, NULL), WARP_ERROR_INVALID_HANDLE);
        CHECK_STATUS(warp_free(host), WARP_SUCCESS);
        CHECK_OVER(&host_r);
        CHECK_EQ_U64(without.outs, 0);
        CHECK_EQ_U64(live("*"), 0);
        if (life == 1)
            CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
}

/* Arrays are released by a shutdown; the allocator gets their memory back then, before its destroy. */
PROCESS_TEST(a_shutdown_with_everything_live)
{
    struct recorder r = {.name = "of arrays"};
    int64_t shape = 100;
    warp_array *arrays[3] = {NULL, NULL, NULL};
    warp_scope *scope = NULL;
    int i;
    REQUIRE(start());
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    stream = new_stream(gpu(0), 0);
    CHECK_STATUS(warp_allocator_set_for_all(r.handle), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_begin_allocator(gpu(0), r.handle, &scope), WARP_SUCCESS);
    for (i = 0; i < 3; ++i)
        CHECK_STATUS(warp_array_zeros(gpu(i & 1), F32, 1, &shape, NULL, &arrays[i]), WARP_SUCCESS);
    start_parts(&r, 1u << GRAPH_KEPT);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    listen_to_log(WARP_LOG_WARNING);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_OVER(&r);
    CHECK_EQ_U64(r.deallocates, 4);
    CHECK_EQ_STR(logged_text, "");
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(live("*"), 0);
}

/* ---- Whose block it is -------------------------------------------------------------------------------------------------- */

static struct recorder swapped[2];
static int swap_over;

static void *swap_in_a_loop(void *unused)
{
    int i;
    (void)unused;
    for (i = 0; !COUNT_OF(swap_over); ++i) {
        warp_allocator *next = i % 3 == 2 ? NULL : swapped[i % 3].handle;
        if (i & 8)
            CHECK_STATUS(warp_allocator_set_for_all(next), WARP_SUCCESS);
        else
            CHECK_STATUS(warp_allocator_set_for_device(gpu(0), next), WARP_SUCCESS);
        CHECK_STATUS(warp_mempool_set_enabled(gpu(0), (uint8_t)(i & 1)), WARP_SUCCESS);
    }
    return NULL;
}

static void *allocate_in_a_loop(void *seed)
{
    uint64_t state = (uint64_t)(uintptr_t)seed;
    void *held[16] = {NULL};
    int i, rounds = check_under("valgrind") ? 300 : 3000;
    /* And on until both have served. */
    for (i = 0; i < rounds || COUNT_OF(swapped[0].allocates) == 0 || COUNT_OF(swapped[1].allocates) == 0; ++i) {
        int at = (int)(next_random(&state) % 16);
        if (held[at] != NULL) {
            CHECK_STATUS(warp_free(held[at]), WARP_SUCCESS);
            held[at] = NULL;
        } else {
            CHECK_STATUS(warp_alloc(gpu(0), 64 + next_random(&state) % 1000, &held[at]), WARP_SUCCESS);
        }
    }
    for (i = 0; i < 16; ++i)
        CHECK_STATUS(warp_free(held[i]), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(one_thread_swaps_while_others_allocate)
{
    pthread_t swapper, threads[3];
    int i;
    alarm(PROCESS_PATIENCE);
    REQUIRE(start());
    swapped[0].name = "first", swapped[1].name = "second";
    created(&swapped[0], WARP_MEMORY_CUDA_DEVICE);
    created(&swapped[1], WARP_MEMORY_CUDA_MANAGED);
    REQUIRE(pthread_create(&swapper, NULL, swap_in_a_loop, NULL) == 0);
    for (i = 0; i < 3; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, allocate_in_a_loop, (void *)(uintptr_t)(i + 1)) == 0);
    for (i = 0; i < 3; ++i)
        pthread_join(threads[i], NULL);
    COUNT_UP(swap_over);
    pthread_join(swapper, NULL);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_enabled(gpu(0), 1), WARP_SUCCESS);
    for (i = 0; i < 2; ++i) {
        CHECK_EQ_U64(allocator_info(swapped[i].handle).references, 1);
        CHECK_EQ_U64(swapped[i].allocates, swapped[i].deallocates);
        CHECK(swapped[i].allocates > 0);
        let_go(&swapped[i]);
        CHECK_OVER(&swapped[i]);
    }
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* Blocks of every maker go back to it, in any order, whatever is switched and installed by then. */
PROCESS_TEST(every_block_goes_back_to_its_maker)
{
    struct recorder r[3] = {{.name = "one"}, {.name = "two", .flags = WARP_ALLOCATOR_STREAM_ORDERED},
                            {.name = "host", .flags = WARP_ALLOCATOR_HOST_MEMORY}};
    uint64_t state = 3;
    int round, i;
    REQUIRE(start());
    created(&r[0], WARP_MEMORY_CUDA_DEVICE);
    created(&r[1], WARP_MEMORY_CUDA_MEMPOOL);
    created(&r[2], WARP_MEMORY_PINNED);
    for (round = 0; round < 100 && check_failure_count() < 5; ++round) {
        void *ptrs[8];
        uint64_t gone[3];
        warp_scope *scope = NULL;
        for (i = 0; i < 3; ++i)
            ptrs[i] = block_by(i == 2 ? cpu() : gpu(0), r[i].handle, 500, NULL);
        for (i = 1; i <= 5; ++i)
            ptrs[i + 2] = block_of(i <= WARP_MEMORY_PINNED ? cpu() : gpu(0), 500, i);
        CHECK_STATUS(warp_allocator_set_for_device(gpu(0), next_random(&state) & 1 ? r[0].handle : r[1].handle), WARP_SUCCESS);
        CHECK_STATUS(warp_mempool_set_enabled(gpu(0), (uint8_t)(next_random(&state) & 1)), WARP_SUCCESS);
        CHECK_STATUS(warp_scope_begin_allocator(gpu(0), next_random(&state) & 1 ? r[0].handle : NULL, &scope), WARP_SUCCESS);
        for (i = 8; i-- > 0;) {
            int at = (int)(next_random(&state) % (unsigned)(i + 1)), maker, j;
            void *ptr = ptrs[at];
            warp_allocator *by = pointer_info(ptr).allocator;
            for (maker = 0; maker < 3 && by != r[maker].handle; ++maker)
                ;
            CHECK_EQ_I64(maker == 3, by == NULL);
            for (j = 0; j < 3; ++j)
                gone[j] = r[j].deallocates;
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            for (j = 0; j < 3; ++j)
                CHECK_EQ_U64(r[j].deallocates, gone[j] + (j == maker));
            if (maker < 3)
                CHECK_EQ_PTR(r[maker].got_back, ptr);
            ptrs[at] = ptrs[i];
        }
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    for (i = 0; i < 3; ++i) {
        let_go(&r[i]);
        CHECK_OVER(&r[i]);
    }
    CHECK_STATUS(warp_mempool_set_enabled(gpu(0), 1), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* ---- Forks and exits ---------------------------------------------------------------------------------------------------- */

static struct recorder parents, parents_host;
static void *parents_block, *parents_host_block;

static void be_a_child(void *unused)
{
    struct recorder own = {.flags = WARP_ALLOCATOR_HOST_MEMORY};
    void *ptr = (void *)1;
    (void)unused;
    mark_all(&parents);
    mark_all(&parents_host);
    use_cpu();
    check_forked();
    CHECK_STATUS(try_by(gpu(0), parents.handle, 64, NULL, &ptr), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_ERROR_FORKED);
    CHECK_STATUS(try_by(cpu(), parents_host.handle, 64, NULL, &ptr), WARP_ERROR_FORKED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "fork");
    CHECK_STATUS(warp_free(parents_block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(parents_host_block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(parents_block), WARP_ERROR_DOUBLE_FREE);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(parents.handle), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(parents_host.handle), WARP_SUCCESS);
    /* One of the child's own. */
    created(&own, WARP_MEMORY_HOST);
    ptr = block_by(cpu(), own.handle, 100, NULL);
    memset(ptr, 1, 100);
    CHECK_EQ_PTR(pointer_info(ptr).allocator, own.handle);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    let_go(&own);
    CHECK_OVER(&own);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void check_no_marks(void)
{
    char seen;
    close(marks[1]);
    CHECK_EQ_I64(read(marks[0], &seen, 1), 0);
    close(marks[0]);
}

PROCESS_TEST(a_fork)
{
    REQUIRE(pipe(marks) == 0);
    REQUIRE(start());
    memset(&parents, 0, sizeof parents);
    memset(&parents_host, 0, sizeof parents_host);
    parents_host.flags = WARP_ALLOCATOR_HOST_MEMORY;
    created(&parents, WARP_MEMORY_CUDA_DEVICE);
    created(&parents_host, WARP_MEMORY_HOST);
    CHECK_STATUS(warp_allocator_set_for_all(parents.handle), WARP_SUCCESS);
    parents_block = block_by(gpu(0), parents.handle, 64, NULL);
    parents_host_block = block_by(cpu(), parents_host.handle, 64, NULL);
    in_child(be_a_child, NULL, 60);
    check_no_marks();
    /* The parent goes on. */
    CHECK_STATUS(warp_free(parents_block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(parents_host_block), WARP_SUCCESS);
    CHECK_EQ_U64(parents.deallocates, 1);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    let_go(&parents);
    let_go(&parents_host);
    CHECK_OVER(&parents);
    CHECK_OVER(&parents_host);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* Threads allocate, free and install while the process forks: a child finds no lock held and calls nobody. */
static int loaded;

static void *load(void *seed)
{
    uint64_t state = (uintptr_t)seed;
    void *held[4] = {NULL};
    while (!COUNT_OF(loaded)) {
        int at = (int)(next_random(&state) % 4);
        CHECK_STATUS(warp_free(held[at]), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc(gpu(0), 100, &held[at]), WARP_SUCCESS);
        if (next_random(&state) % 4 == 0)
            CHECK_STATUS(warp_allocator_set_for_device(gpu(0), next_random(&state) & 1 ? parents.handle : NULL), WARP_SUCCESS);
        if (next_random(&state) % 4 == 0)
            CHECK_STATUS(warp_free(block_by(cpu(), parents_host.handle, 64, NULL)), WARP_SUCCESS);
        if (next_random(&state) % 4 == 0)
            CHECK_STATUS(warp_allocator_release(builtin(WARP_MEMORY_HOST)), WARP_SUCCESS);
    }
    for (state = 0; state < 4; ++state)
        CHECK_STATUS(warp_free(held[state]), WARP_SUCCESS);
    return NULL;
}

static void fork_under_load(void)
{
    pthread_t threads[3];
    int i;
    REQUIRE(start());
    memset(&parents, 0, sizeof parents);
    memset(&parents_host, 0, sizeof parents_host);
    parents_host.flags = WARP_ALLOCATOR_HOST_MEMORY;
    created(&parents, WARP_MEMORY_CUDA_DEVICE);
    created(&parents_host, WARP_MEMORY_HOST);
    parents_block = block_by(gpu(0), parents.handle, 64, NULL);
    parents_host_block = block_by(cpu(), parents_host.handle, 64, NULL);
    for (i = 0; i < 3; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, load, (void *)(uintptr_t)(i + 1)) == 0);
    for (i = 0; i < 30; ++i) {
        REQUIRE(pipe(marks) == 0);
        in_child(be_a_child, NULL, 60);
        check_no_marks();
        usleep(200 * (unsigned)i);
    }
    COUNT_UP(loaded);
    for (i = 0; i < 3; ++i)
        pthread_join(threads[i], NULL);
    CHECK_STATUS(warp_free(parents_block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(parents_host_block), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    let_go(&parents);
    let_go(&parents_host);
    CHECK_OVER(&parents);
    CHECK_OVER(&parents_host);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

TEST(forks_under_load)
{
    if (check_under("valgrind"))
        SKIP("what a thread held that the fork left behind is lost in the child");
    if (check_under("sanitizer"))
        SKIP("the sanitizer's heap stays locked in the child");
    process_run(fork_under_load);
}

static int exit_with;
static warp_allocator *at_exit_allocator;

static void free_at_exit(void)
{
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_deallocate(at_exit_allocator, direct_memory, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(at_exit_allocator), WARP_SUCCESS);
    warp_shutdown();
    if (check_failure_count() != 0)
        _exit(1);
}

/* Ends with blocks, arrays, graphs, scopes and installed allocators live. */
static void exit_with_everything(void *unused)
{
    static struct recorder r;
    static int registered;
    (void)unused;
    if (exit_with & 1) { /* before the library's own handler: runs after it */
        atexit(free_at_exit);
        registered = 1;
    }
    REQUIRE(start());
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    at_exit_allocator = r.handle;
    stream = new_stream(gpu(0), 0);
    start_parts(&r, ~0u);
    CHECK_STATUS(warp_allocator_set_for_all(r.handle), WARP_SUCCESS);
    SIMULATOR(warpsim_hold)(native_stream(stream));
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    mark_all(&r);
    if (exit_with & 2)
        SIMULATOR(warpsim_deinitialize)();
    (void)registered;
}

PROCESS_TEST(an_exit_with_everything_live)
{
    for (exit_with = 0; exit_with < 4; ++exit_with) {
        REQUIRE(pipe(marks) == 0);
        in_child(exit_with_everything, NULL, 60);
        check_no_marks();
    }
}

/* A driver that is gone while the program goes on: memory counts as freed, and nobody is called. */
PROCESS_TEST(a_driver_that_is_gone)
{
    static struct recorder r, ordered;
    void *one, *two;
    REQUIRE(pipe(marks) == 0);
    REQUIRE(start());
    ordered.flags = WARP_ALLOCATOR_STREAM_ORDERED;
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    created(&ordered, WARP_MEMORY_CUDA_MEMPOOL);
    one = block_by(gpu(0), r.handle, 64, NULL);
    two = block_by(gpu(0), ordered.handle, 64, NULL);
    mark_all(&r);
    mark_all(&ordered);
    SIMULATOR(warpsim_deinitialize)();
    CHECK_STATUS(warp_free(one), WARP_SUCCESS);
    CHECK_STATUS(warp_free(two), WARP_SUCCESS);
    CHECK_STATUS(warp_free(one), WARP_ERROR_DOUBLE_FREE);
    check_no_marks();
}

/* ---- Code that is about to be unloaded ---------------------------------------------------------------------------------- */

static int running, may_go;

static void wait_inside(struct recorder *r, const warp_alloc_request *request)
{
    (void)r, (void)request;
    COUNT_UP(running);
    while (!COUNT_OF(may_go))
        usleep(100);
    usleep(20000);
    COUNT_UP(running);
}

static void *free_it(void *ptr)
{
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(stopped_for_good)
{
    static struct recorder r, above;
    warp_allocator_statistics statistics = {.struct_size = sizeof statistics};
    void *one, *two, *three, *late, *ptr = NULL;
    pthread_t thread;
    uint64_t allocates, deallocates;
    REQUIRE(start());
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    created(&above, WARP_MEMORY_CUDA_DEVICE);
    one = block_by(gpu(0), r.handle, 64, NULL);
    two = block_by(gpu(0), r.handle, 64, NULL);
    three = block_by(gpu(0), r.handle, 64, NULL);
    late = block_by(gpu(0), r.handle, 64, NULL);
    stream = stream_of(gpu(0));
    SIMULATOR(warpsim_hold)(native_stream(stream));
    CHECK_STATUS(warp_memory_fill(late, 64, "l", 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free(late), WARP_SUCCESS); /* owed */
    SIMULATOR(warpsim_release_all)();
    r.on_deallocate = wait_inside;
    REQUIRE(pthread_create(&thread, NULL, free_it, two) == 0);
    while (COUNT_OF(running) == 0)
        usleep(100);
    COUNT_UP(may_go);
    CHECK_STATUS(warp_allocator_stop(r.handle), WARP_SUCCESS);
    CHECK(COUNT_OF(running) >= 2); /* the one that was running is over */
    pthread_join(thread, NULL);
    allocates = r.allocates;
    deallocates = r.deallocates;
    mark_all(&r);
    r.on_allocate = r.on_deallocate = NULL;
    CHECK_STATUS(try_by(gpu(0), r.handle, 64, NULL, &ptr), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "stopped");
    CHECK_STR_CONTAINS(warp_error_get_message(), "install another one");
    CHECK_STATUS(warp_free(one), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_trim(r.handle, gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_get_statistics(r.handle, &statistics), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_allocator_stop(r.handle), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    let_go(&r);
    CHECK_STATUS(warp_free(three), WARP_SUCCESS);
    CHECK_EQ_U64(statistics_of(gpu(0), 0).live_blocks, 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(r.allocates, allocates);
    CHECK_EQ_U64(r.deallocates, deallocates);
    CHECK_EQ_U64(r.destroys, 0);
    CHECK_EQ_U64(r.trims, 0);
    CHECK_EQ_U64(r.statistics_calls, 0);
    CHECK_EQ_U64(above.destroys, 1);
}

/* By a stale handle too: after the last reference, and after a shutdown, while blocks of it live. */
PROCESS_TEST(stopped_late)
{
    static struct recorder r;
    void *ptr;
    int way;
    for (way = 0; way < 2; ++way) {
        memset(&r, 0, sizeof r);
        REQUIRE(start());
        created(&r, WARP_MEMORY_CUDA_DEVICE);
        ptr = block_by(gpu(0), r.handle, 64, NULL);
        if (way == 0)
            let_go(&r);
        else
            CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_stop(r.handle), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_stop(r.handle), WARP_ERROR_INVALID_HANDLE);
        if (way == 0)
            CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_EQ_U64(r.deallocates, 0);
        CHECK_EQ_U64(r.destroys, 0);
    }
}

CHECK_MAIN()
