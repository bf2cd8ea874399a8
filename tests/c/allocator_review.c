/* Allocators of other code where threads, forks and callbacks meet: what one thread does in the middle of another's callback,
 * and what a child finds of what its parent's threads were doing.
 *
 * topology: h200x2
 * needs: simulator
 * valgrind: no (what a thread held that the fork left behind is lost in the child)
 */
#define _GNU_SOURCE
#include "adaptors.h"
#include "forked.h"

#include "captures.h"

/* ---- forks -------------------------------------------------------------------------------------------------------- */

static void build_on_the_builtin(void *argument)
{
    int sort;
    (void)argument;
    for (sort = 0; sort < ADAPTORS; ++sort) {
        warp_allocator *adaptor = make_adaptor(sort, builtin(WARP_MEMORY_HOST));
        void *ptr = take(adaptor, cpu(), 4096);
        memset(ptr, 7, 4096);
        give(adaptor, ptr);
        ptr = block_by(adaptor, cpu(), 100, NULL);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        release(adaptor);
    }
}

PROCESS_TEST(a_child_builds_on_the_built_in_allocator_of_host_memory)
{
    CHECK(start());
    give(builtin(WARP_MEMORY_HOST), take(builtin(WARP_MEMORY_HOST), cpu(), 100));
    in_child(build_on_the_builtin, NULL, 30);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static int stop_working;

struct direct {
    warp_allocator *allocator;
    void *kept;
};

static void *work_directly(void *of)
{
    struct direct *direct = of;
    void *held[64];
    size_t i;
    while (!__atomic_load_n(&stop_working, __ATOMIC_RELAXED)) {
        for (i = 0; i < 64; ++i)
            held[i] = take(direct->allocator, cpu(), 64);
        for (i = 0; i < 64; ++i)
            give(direct->allocator, held[i]);
    }
    return NULL;
}

static void use_the_parents(void *argument)
{
    struct direct *direct = argument;
    uint64_t blocks = 0;
    void *none = (void *)1;
    CHECK_STATUS(warp_allocator_measure(direct->allocator, &blocks, NULL), WARP_SUCCESS);
    CHECK(blocks >= 1 && blocks <= 1 + 4 * 64);
    CHECK_STATUS(try_take(direct->allocator, cpu(), 64, &none), WARP_ERROR_FORKED);
    CHECK_EQ_PTR(none, NULL);
    /* Only forgotten. */
    CHECK_STATUS(warp_allocator_deallocate(direct->allocator, direct->kept, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_deallocate(direct->allocator, direct->kept, NULL), WARP_ERROR_DOUBLE_FREE);
    release(direct->allocator);
}

PROCESS_TEST(a_child_finds_its_parents_books_unlocked)
{
    struct below below;
    struct direct direct;
    pthread_t threads[4];
    int i;
    CHECK(start());
    direct.allocator = make_below(&below);
    direct.kept = take(direct.allocator, cpu(), 64);
    for (i = 0; i < 4; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, work_directly, &direct) == 0);
    for (i = 0; i < 200; ++i)
        in_child(use_the_parents, &direct, 10);
    __atomic_store_n(&stop_working, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    give(direct.allocator, direct.kept);
    release(direct.allocator);
    CHECK_EQ_U64(below.out, 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* How deep the callback has come, of which there are no more than ten in each other. */
static int depth, deepest, is_inside;

struct asking {
    warp_allocator *allocator;
    int is_held; /* in its first callback, until this is cleared */
};

static warp_status asks_itself(void *user, const warp_alloc_request *request, void **out)
{
    struct asking *asking = user;
    warp_status status;
    if (++depth > deepest)
        deepest = depth;
    __atomic_store_n(&is_inside, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&asking->is_held, __ATOMIC_SEQ_CST))
        usleep(100);
    status = warp_allocator_allocate(asking->allocator, request, out);
    --depth;
    return status;
}

static warp_status keep_nothing(void *user, void *ptr, const warp_alloc_request *request)
{
    (void)user, (void)ptr, (void)request;
    return WARP_SUCCESS;
}

static void make_asking(struct asking *asking)
{
    warp_allocator_vtable vtable = {.struct_size = sizeof vtable, .flags = WARP_ALLOCATOR_HOST_MEMORY};
    vtable.allocate = asks_itself;
    vtable.deallocate = keep_nothing;
    CHECK_STATUS(warp_allocator_create(&vtable, asking, &asking->allocator), WARP_SUCCESS);
}

static void *ask_it(void *of)
{
    struct asking *asking = of;
    void *none = NULL;
    CHECK_STATUS(try_take(asking->allocator, cpu(), 64, &none), WARP_ERROR_ALLOCATOR_FAILED);
    return NULL;
}

static void go_as_deep(void *unused)
{
    struct asking own = {0};
    pthread_t thread;
    (void)unused;
    depth = deepest = 0;
    make_asking(&own);
    REQUIRE(pthread_create(&thread, NULL, ask_it, &own) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ_I64(deepest, 10);
    release(own.allocator);
}

PROCESS_TEST(a_childs_thread_is_not_in_the_callbacks_of_its_parents)
{
    struct asking asking = {.is_held = 1};
    pthread_t thread;
    CHECK(start());
    make_asking(&asking);
    REQUIRE(pthread_create(&thread, NULL, ask_it, &asking) == 0);
    while (!__atomic_load_n(&is_inside, __ATOMIC_SEQ_CST))
        usleep(100);
    in_child(go_as_deep, NULL, 30);
    __atomic_store_n(&asking.is_held, 0, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    CHECK_EQ_I64(deepest, 10);
    release(asking.allocator);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* ---- stops -------------------------------------------------------------------------------------------------------- */

static pthread_barrier_t both;

struct stopping {
    warp_allocator *allocator, *other;
};

static warp_status stops_the_other(void *user, const warp_alloc_request *request, void **out)
{
    (void)request, (void)out;
    pthread_barrier_wait(&both);
    CHECK_STATUS(warp_allocator_stop(((struct stopping *)user)->other), WARP_SUCCESS);
    return WARP_ERROR_INVALID_ARGUMENT;
}

static void *ask_one(void *of)
{
    void *none = NULL;
    CHECK_STATUS(try_take(((struct stopping *)of)->allocator, cpu(), 64, &none), WARP_ERROR_ALLOCATOR_FAILED);
    return NULL;
}

PROCESS_TEST(two_callbacks_that_stop_each_others_allocators_do_not_wait_for_each_other)
{
    warp_allocator_vtable vtable = {.struct_size = sizeof vtable, .flags = WARP_ALLOCATOR_HOST_MEMORY};
    struct stopping stopping[2];
    pthread_t threads[2];
    int i;
    CHECK(start());
    alarm(30);
    vtable.allocate = stops_the_other;
    vtable.deallocate = keep_nothing;
    for (i = 0; i < 2; ++i)
        CHECK_STATUS(warp_allocator_create(&vtable, &stopping[i], &stopping[i].allocator), WARP_SUCCESS);
    pthread_barrier_init(&both, NULL, 2);
    for (i = 0; i < 2; ++i) {
        stopping[i].other = stopping[!i].allocator;
        REQUIRE(pthread_create(&threads[i], NULL, ask_one, &stopping[i]) == 0);
    }
    for (i = 0; i < 2; ++i)
        pthread_join(threads[i], NULL);
    for (i = 0; i < 2; ++i)
        release(stopping[i].allocator);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static int is_destroying, is_destroyed;

static void destroy_slowly(void *user)
{
    (void)user;
    __atomic_store_n(&is_destroying, 1, __ATOMIC_SEQ_CST);
    usleep(100 * 1000);
    __atomic_store_n(&is_destroyed, 1, __ATOMIC_SEQ_CST);
}

static void *let_it_go(void *allocator)
{
    release(allocator);
    return NULL;
}

PROCESS_TEST(a_stop_waits_for_destroy)
{
    warp_allocator_vtable vtable = {.struct_size = sizeof vtable, .flags = WARP_ALLOCATOR_HOST_MEMORY};
    warp_allocator *allocator = NULL;
    pthread_t other;
    CHECK(start());
    vtable.allocate = stops_the_other;
    vtable.deallocate = keep_nothing;
    vtable.destroy = destroy_slowly;
    CHECK_STATUS(warp_allocator_create(&vtable, NULL, &allocator), WARP_SUCCESS);
    REQUIRE(pthread_create(&other, NULL, let_it_go, allocator) == 0);
    while (!__atomic_load_n(&is_destroying, __ATOMIC_SEQ_CST))
        usleep(100);
    CHECK_STATUS(warp_allocator_stop(allocator), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_I64(__atomic_load_n(&is_destroyed, __ATOMIC_SEQ_CST), 1);
    pthread_join(other, NULL);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* ---- streams that are released meanwhile --------------------------------------------------------------------------- */

struct passing {
    warp_allocator *below;
    uint64_t offset;
    /* The stream that the other thread is to release in the middle of the callback; NULL for none. */
    warp_stream *released;
    int is_inside;
};

static void wait_for_the_release(struct passing *passing)
{
    warp_stream_info info = {.struct_size = sizeof info};
    __atomic_store_n(&passing->is_inside, 1, __ATOMIC_SEQ_CST);
    while (warp_stream_get_info(passing->released, &info) == WARP_SUCCESS)
        usleep(100);
}

static warp_status pass_allocation(void *user, const warp_alloc_request *request, void **out)
{
    struct passing *passing = user;
    warp_alloc_request below = *request;
    void *ptr = NULL;
    warp_status status;
    below.size += passing->offset;
    if (passing->released != NULL)
        wait_for_the_release(passing);
    status = warp_allocator_allocate(passing->below, &below, &ptr);
    *out = ptr == NULL ? NULL : (char *)ptr + passing->offset;
    return status;
}

static warp_status pass_deallocation(void *user, void *ptr, const warp_alloc_request *request)
{
    struct passing *passing = user;
    warp_alloc_request below = *request;
    below.size += passing->offset;
    if (passing->released != NULL)
        wait_for_the_release(passing);
    return warp_allocator_deallocate(passing->below, (char *)ptr - passing->offset, &below);
}

static warp_allocator *make_passing(struct passing *passing, warp_memory_kind kind)
{
    warp_allocator_vtable vtable = {.struct_size = sizeof vtable, .kind = kind, .flags = WARP_ALLOCATOR_STREAM_ORDERED};
    warp_allocator *allocator = NULL;
    passing->below = builtin(kind);
    vtable.allocate = pass_allocation;
    vtable.deallocate = pass_deallocation;
    CHECK_STATUS(warp_allocator_create(&vtable, passing, &allocator), WARP_SUCCESS);
    return allocator;
}

static void *release_when_inside(void *of)
{
    struct passing *passing = of;
    while (!__atomic_load_n(&passing->is_inside, __ATOMIC_SEQ_CST))
        usleep(100);
    CHECK_STATUS(warp_stream_release(passing->released), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(a_request_is_good_though_its_stream_is_released_meanwhile)
{
    struct passing passing = {0};
    warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, NULL);
    int freeing;
    CHECK(start());
    alarm(30);
    options.allocator = make_passing(&passing, WARP_MEMORY_CUDA_MEMPOOL);
    for (freeing = 0; freeing < 2; ++freeing) {
        warp_stream *stream = new_stream(gpu(0), 0);
        uint64_t blocks = 77;
        pthread_t other;
        void *ptr = NULL;
        options.stream = stream;
        passing.is_inside = 0;
        if (freeing)
            CHECK_STATUS(warp_alloc_with(gpu(0), 1000, &options, &ptr), WARP_SUCCESS);
        passing.released = stream;
        REQUIRE(pthread_create(&other, NULL, release_when_inside, &passing) == 0);
        if (freeing) {
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            pthread_join(other, NULL);
        } else {
            CHECK_STATUS(warp_alloc_with(gpu(0), 1000, &options, &ptr), WARP_SUCCESS);
            pthread_join(other, NULL);
            passing.released = NULL;
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        }
        passing.released = NULL;
        CHECK_STATUS(warp_allocator_measure(passing.below, &blocks, NULL), WARP_SUCCESS);
        CHECK_EQ_U64(blocks, 0);
        /* Outside of the callback it is as stale as any. */
        CHECK_STATUS(warp_alloc_with(gpu(0), 1000, &options, &ptr), WARP_ERROR_INVALID_HANDLE);
    }
    release(options.allocator);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

/* ---- memory of graphs ---------------------------------------------------------------------------------------------- */

PROCESS_TEST(a_part_of_a_graphs_memory_is_reached_as_the_whole)
{
    uint64_t offset;
    CHECK(start());
    CHECK_STATUS(warp_mempool_access_set_enabled(gpu(0), gpu(1), 1), WARP_SUCCESS);
    for (offset = 0; offset <= 512; offset += 512) {
        struct passing passing = {.offset = offset};
        warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, new_stream(gpu(0), 0));
        warp_access_info info = {.struct_size = sizeof info};
        warp_graph *graph;
        void *ptr = NULL;
        options.allocator = make_passing(&passing, WARP_MEMORY_CUDA_MEMPOOL);
        begin(options.stream);
        CHECK_STATUS(warp_alloc_with(gpu(0), 1000, &options, &ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_access_get_pointer_status(gpu(1), ptr, &info), WARP_SUCCESS);
        CHECK_EQ_I64(info.reason, WARP_ACCESS_REASON_GRAPH_ACCESS);
        graph = end(options.stream);
        CHECK_STATUS(warp_access_get_pointer_status(gpu(1), ptr, &info), WARP_SUCCESS);
        CHECK_EQ_I64(info.reason, WARP_ACCESS_REASON_GRAPH_ACCESS);
        CHECK_STATUS(warp_graph_launch(graph, options.stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(options.stream), WARP_SUCCESS);
        CHECK_STATUS(warp_access_get_pointer_status(gpu(1), ptr, &info), WARP_SUCCESS);
        CHECK_EQ_I64(info.reason, WARP_ACCESS_REASON_GRAPH_ACCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(options.stream), WARP_SUCCESS);
        release(options.allocator);
    }
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* ---- blocks on their way back ---------------------------------------------------------------------------------------- */

/* Has room for one block, which is there again when its deallocation is over. */
struct narrow {
    warp_allocator *below;
    int is_out, is_going;
};

static warp_status narrow_allocate(void *user, const warp_alloc_request *request, void **out)
{
    struct narrow *narrow = user;
    if (__atomic_exchange_n(&narrow->is_out, 1, __ATOMIC_SEQ_CST))
        return WARP_ERROR_OUT_OF_MEMORY;
    return warp_allocator_allocate(narrow->below, request, out);
}

static warp_status narrow_deallocate(void *user, void *ptr, const warp_alloc_request *request)
{
    struct narrow *narrow = user;
    warp_status status;
    __atomic_store_n(&narrow->is_going, 1, __ATOMIC_SEQ_CST);
    usleep(200 * 1000);
    status = warp_allocator_deallocate(narrow->below, ptr, request);
    __atomic_store_n(&narrow->is_out, 0, __ATOMIC_SEQ_CST);
    return status;
}

static void *wait_for_the_gpu(void *unused)
{
    (void)unused;
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(a_block_that_another_thread_gives_back_is_waited_for)
{
    warp_allocator_vtable vtable = {.struct_size = sizeof vtable, .kind = WARP_MEMORY_CUDA_DEVICE};
    warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, NULL);
    struct narrow narrow = {0};
    void *ptr = NULL;
    pthread_t other;
    CHECK(start());
    narrow.below = builtin(WARP_MEMORY_CUDA_DEVICE);
    vtable.allocate = narrow_allocate;
    vtable.deallocate = narrow_deallocate;
    CHECK_STATUS(warp_allocator_create(&vtable, &narrow, &options.allocator), WARP_SUCCESS);
    options.stream = new_stream(gpu(0), 0);
    CHECK_STATUS(warp_alloc_with(gpu(0), 64, &options, &ptr), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native_stream(options.stream)), 0);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_I64(narrow.is_going, 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_release)(native_stream(options.stream)), 0);
    REQUIRE(pthread_create(&other, NULL, wait_for_the_gpu, NULL) == 0);
    while (!__atomic_load_n(&narrow.is_going, __ATOMIC_SEQ_CST))
        usleep(100);
    CHECK_STATUS(warp_alloc_with(gpu(0), 64, &options, &ptr), WARP_SUCCESS);
    pthread_join(other, NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(options.stream), WARP_SUCCESS);
    release(options.allocator);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
