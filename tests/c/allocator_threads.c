/*
 * allocator_threads.c: many threads. A callback that wants a mutex which other threads hold while they call the library must not
 * meet them waiting for it there; and whatever threads do, every allocator gets each of its blocks back once.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "access.h"
#include "allocators.h"
#include "captures.h"

#define PATIENCE 100 /* seconds until a hang counts as one */

static struct recorder wants, plain;

/* ---- A lock of the caller's --------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int over;

static void take_the_lock(struct recorder *r, const warp_alloc_request *request)
{
    (void)r, (void)request;
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

static int rounds(int many)
{
    return check_under("valgrind") || check_under("sanitizer") ? many / 10 : many;
}

/* Allocates by the allocator whose callbacks want the lock, and so holds it never. */
static void *use_it(void *number)
{
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    int i;
    for (i = 0; i < rounds(400); ++i) {
        void *ptr = block_by(gpu(0), wants.handle, 256 * (1 + (uint64_t)(uintptr_t)number), stream);
        CHECK_STATUS(warp_memory_fill(ptr, 256, "u", 1, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        if (i % 8 == 0)
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    return NULL;
}

/* Calls with the lock held what calls no callback. */
static void *hold_it(void *unused)
{
    uint64_t state = 1;
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    warp_event *event = NULL;
    (void)unused;
    CHECK_STATUS(warp_event_create(gpu(0), NULL, &event), WARP_SUCCESS);
    while (!COUNT_OF(over)) {
        warp_array *array = NULL;
        warp_scope *scope = NULL;
        warp_graph *graph = NULL;
        uint8_t yes = 0;
        int64_t shape = 8;
        void *ptr = NULL, *host = NULL;
        pthread_mutex_lock(&lock);
        switch (next_random(&state) % 8) {
        case 0:
            ptr = block_of(gpu(0), 512, 1 + WARP_MEMORY_PINNED + (int)(next_random(&state) % 3));
            CHECK_STATUS(warp_memory_fill(ptr, 512, "h", 1, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            break;
        case 1:
            CHECK_STATUS(warp_alloc(gpu(1), 512, &ptr), WARP_SUCCESS);
            host = block_of(cpu(), 512, WARP_MEMORY_PINNED);
            CHECK_STATUS(warp_memory_copy(host, ptr, 512, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            CHECK_STATUS(warp_free(host), WARP_SUCCESS);
            break;
        case 2:
            CHECK_STATUS(warp_array_zeros(gpu(0), F32, 1, &shape, NULL, &array), WARP_SUCCESS);
            can_array(gpu(1), array);
            drop(array);
            break;
        case 3:
            CHECK_STATUS(warp_event_record(event, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_event_query_done(event, &yes), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_query_idle(stream, &yes), WARP_SUCCESS);
            break;
        case 4:
            CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
            CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_CUDA_MEMPOOL, 64, &ptr), WARP_SUCCESS);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            break;
        case 5:
            CHECK_STATUS(warp_scope_begin_mempool(gpu(0), 0, &scope), WARP_SUCCESS);
            CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
            break;
        case 6:
            pointer_info(&state);
            allocator_info(wants.handle);
            live_of(wants.handle);
            statistics_of(gpu(0), 0);
            break;
        default:
            CHECK_STATUS(warp_memory_copy(&yes, &yes, 1, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_allocator_retain(wants.handle), WARP_SUCCESS);
            break;
        }
        pthread_mutex_unlock(&lock);
        if (check_failure_count() > 10)
            break;
    }
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    return NULL;
}

TEST(a_lock_that_callbacks_want)
{
    pthread_t users[3], holders[2];
    uint32_t flags;
    int i;
    alarm(PATIENCE);
    for (flags = 0; flags < 2; ++flags) {
        memset(&wants, 0, sizeof wants);
        wants.flags = flags ? WARP_ALLOCATOR_STREAM_ORDERED : 0;
        over = 0;
        REQUIRE(start());
        created(&wants, flags ? WARP_MEMORY_CUDA_MEMPOOL : WARP_MEMORY_CUDA_DEVICE);
        wants.on_allocate = wants.on_deallocate = wants.on_record = take_the_lock;
        for (i = 0; i < 2; ++i)
            REQUIRE(pthread_create(&holders[i], NULL, hold_it, NULL) == 0);
        for (i = 0; i < 3; ++i)
            REQUIRE(pthread_create(&users[i], NULL, use_it, (void *)(uintptr_t)i) == 0);
        for (i = 0; i < 3; ++i)
            pthread_join(users[i], NULL);
        COUNT_UP(over);
        for (i = 0; i < 2; ++i)
            pthread_join(holders[i], NULL);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK_EQ_U64(wants.allocates, 3 * (uint64_t)rounds(400));
        CHECK_EQ_U64(wants.deallocates, wants.allocates);
        while (allocator_info(wants.handle).references > 1)
            let_go(&wants);
        let_go(&wants);
        CHECK_OVER(&wants);
        check_gone_at(__FILE__, __LINE__);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
    alarm(0);
}

/* The callback runs and does not come back until another thread has been through the library. */
static int is_inside, has_been;

static void wait_for_the_other(struct recorder *r, const warp_alloc_request *request)
{
    (void)r, (void)request;
    COUNT_UP(is_inside);
    while (!COUNT_OF(has_been))
        usleep(100);
}

static void *go_through(void *unused)
{
    void *ptr = NULL, *mine;
    warp_scope *scope = NULL;
    (void)unused;
    while (!COUNT_OF(is_inside))
        usleep(100);
    mine = block_by(gpu(0), plain.handle, 64, NULL);
    CHECK_STATUS(warp_free(mine), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(1), 64, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_all(plain.handle), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_begin_allocator(gpu(0), plain.handle, &scope), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    COUNT_UP(has_been);
    return NULL;
}

TEST(no_lock_is_held_while_a_callback_runs)
{
    pthread_t thread;
    int way;
    alarm(PATIENCE);
    for (way = 0; way < 6; ++way) {
        warp_stream *stream;
        void *ptr = NULL;
        memset(&wants, 0, sizeof wants);
        memset(&plain, 0, sizeof plain);
        wants.flags = way == 3 ? WARP_ALLOCATOR_STREAM_ORDERED : 0;
        is_inside = has_been = 0;
        REQUIRE(start());
        created(&wants, WARP_MEMORY_CUDA_MEMPOOL);
        created(&plain, WARP_MEMORY_CUDA_DEVICE);
        stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        REQUIRE(pthread_create(&thread, NULL, go_through, NULL) == 0);
        switch (way) {
        case 0: wants.on_allocate = wait_for_the_other; break;
        case 1: wants.on_deallocate = wait_for_the_other; break;
        case 2:
            wants.on_trim = wait_for_the_other;
            wants.out_of_memory = 1;
            break;
        case 3: wants.on_record = wait_for_the_other; break;
        case 4: wants.on_destroy = wait_for_the_other; break;
        default: break;
        }
        ptr = block_by(gpu(0), wants.handle, 64, NULL);
        CHECK_STATUS(warp_pointer_record_stream(ptr, stream), WARP_SUCCESS);
        if (way == 5) { /* a late one */
            SIMULATOR(warpsim_hold)(native_stream(stream));
            CHECK_STATUS(warp_memory_fill(ptr, 64, "l", 1, stream), WARP_SUCCESS);
            wants.on_deallocate = wait_for_the_other;
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            SIMULATOR(warpsim_release_all)();
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        } else {
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        }
        let_go(&wants);
        pthread_join(thread, NULL);
        CHECK(has_been);
        CHECK_OVER(&wants);
        let_go(&plain);
        CHECK_OVER(&plain);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
    alarm(0);
}

/* ---- Allocators that come and go ---------------------------------------------------------------------------------------- */

#define COMERS 6
#define EACH 60

static struct recorder *comers[COMERS][EACH];

static void *come_and_go(void *number)
{
    struct recorder **mine = comers[(uintptr_t)number];
    uint64_t state = (uintptr_t)number + 100;
    void *others[4] = {NULL};
    int i, j;
    for (i = 0; i < rounds(EACH); ++i) {
        warp_scope *scope = NULL;
        void *ptr = NULL;
        mine[i] = calloc(1, sizeof *mine[i]);
        mine[i]->flags = next_random(&state) & 1 ? WARP_ALLOCATOR_STREAM_ORDERED : 0;
        created(mine[i], next_random(&state) & 1 ? WARP_MEMORY_CUDA_DEVICE : WARP_MEMORY_CUDA_MEMPOOL);
        if (next_random(&state) & 1)
            CHECK_STATUS(warp_allocator_set_for_all(mine[i]->handle), WARP_SUCCESS);
        else
            CHECK_STATUS(warp_allocator_set_for_device(gpu(0), mine[i]->handle), WARP_SUCCESS);
        CHECK_STATUS(warp_scope_begin_allocator(gpu(0), mine[i]->handle, &scope), WARP_SUCCESS);
        let_go(mine[i]);
        CHECK_STATUS(warp_alloc(gpu(0), 100, &ptr), WARP_SUCCESS);
        CHECK_EQ_PTR(pointer_info(ptr).allocator, mine[i]->handle);
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
        for (j = 0; j < 4; ++j) { /* whose they are is a matter of luck */
            CHECK_STATUS(warp_free(others[j]), WARP_SUCCESS);
            CHECK_STATUS(warp_alloc(gpu(j & 1), 100, &others[j]), WARP_SUCCESS);
        }
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    }
    for (j = 0; j < 4; ++j)
        CHECK_STATUS(warp_free(others[j]), WARP_SUCCESS);
    return NULL;
}

TEST(allocators_come_and_go)
{
    pthread_t threads[COMERS];
    int i, j;
    alarm(PATIENCE);
    REQUIRE(start());
    for (i = 0; i < COMERS; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, come_and_go, (void *)(uintptr_t)i) == 0);
    for (i = 0; i < COMERS; ++i)
        pthread_join(threads[i], NULL);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    for (i = 0; i < COMERS; ++i)
        for (j = 0; j < rounds(EACH); ++j) {
            CHECK_OVER(comers[i][j]);
            CHECK_STATUS(warp_allocator_retain(comers[i][j]->handle), WARP_ERROR_INVALID_HANDLE);
            free(comers[i][j]);
        }
    check_gone_at(__FILE__, __LINE__);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    alarm(0);
}

/* ---- Everything at once ------------------------------------------------------------------------------------------------- */

#define THREADS 16
#define HELD 12

static struct recorder shared[4];
static pthread_mutex_t hand_over = PTHREAD_MUTEX_INITIALIZER;
static void *handed[8]; /* blocks that another thread frees */

static void *do_anything(void *seed)
{
    uint64_t state = (uint64_t)(uintptr_t)seed * 77 + 5;
    warp_stream *streams[2] = {new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), new_stream(gpu(1), 0)};
    void *held[HELD] = {NULL}, *taken;
    warp_array *arrays[4] = {NULL};
    int64_t shape = 50;
    int i;
    for (i = 0; i < rounds(600) && check_failure_count() < 10; ++i) {
        int at = (int)(next_random(&state) % HELD), number = (int)(next_random(&state) & 1), which;
        warp_scope *scope = NULL;
        struct recorder *by = &shared[next_random(&state) % 4];
        switch (next_random(&state) % 12) {
        case 0:
        case 1:
        case 2:
            if (held[at] == NULL)
                held[at] = block_by(gpu(number), by->handle, 1 + next_random(&state) % 4000, next_random(&state) & 1 ? streams[number] : NULL);
            break;
        case 3:
        case 4:
            CHECK_STATUS(warp_free(held[at]), WARP_SUCCESS);
            held[at] = NULL;
            break;
        case 5:
            if (held[at] != NULL && pointer_info(held[at]).ordinal == number) {
                CHECK_STATUS(warp_memory_fill(held[at], 1, "a", 1, streams[number]), WARP_SUCCESS);
                CHECK_STATUS(warp_pointer_record_stream(held[at], streams[number]), WARP_SUCCESS);
            }
            break;
        case 6:
            pthread_mutex_lock(&hand_over);
            which = (int)(next_random(&state) % 8);
            taken = handed[which];
            handed[which] = held[at];
            pthread_mutex_unlock(&hand_over);
            held[at] = NULL;
            CHECK_STATUS(warp_free(taken), WARP_SUCCESS);
            break;
        case 7: CHECK_STATUS(warp_allocator_set_for_device(gpu(number), next_random(&state) & 1 ? by->handle : NULL), WARP_SUCCESS); break;
        case 8:
            CHECK_STATUS(warp_scope_begin_allocator(gpu(number), by->handle, &scope), WARP_SUCCESS);
            if (held[at] == NULL) {
                CHECK_STATUS(warp_alloc(gpu(number), 100, &held[at]), WARP_SUCCESS);
                CHECK_EQ_PTR(pointer_info(held[at]).allocator, by->handle);
            }
            CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
            break;
        case 9:
            which = (int)(next_random(&state) % 4);
            if (arrays[which] != NULL) {
                drop(arrays[which]);
                arrays[which] = NULL;
            } else {
                CHECK_STATUS(warp_array_zeros(gpu(number), F32, 1, &shape, NULL, &arrays[which]), WARP_SUCCESS);
            }
            break;
        case 10: {
            warp_alloc_request request = {.struct_size = sizeof request, .size = 200, .device = gpu(number)};
            CHECK_STATUS(warp_allocator_allocate(by->handle, &request, &taken), WARP_SUCCESS);
            CHECK_STATUS(warp_allocator_deallocate(by->handle, taken, &request), WARP_SUCCESS);
            break;
        }
        default:
            CHECK_STATUS(warp_stream_synchronize(streams[number]), WARP_SUCCESS);

            break;
        }

    }
    for (i = 0; i < HELD; ++i)
        CHECK_STATUS(warp_free(held[i]), WARP_SUCCESS);
    for (i = 0; i < 4; ++i)
        if (arrays[i] != NULL)
            drop(arrays[i]);
    CHECK_STATUS(warp_stream_release(streams[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(streams[1]), WARP_SUCCESS);
    return NULL;
}

TEST(sixteen_threads)
{
    static const warp_memory_kind below[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MEMPOOL,
                                             WARP_MEMORY_CUDA_MANAGED};
    pthread_t threads[THREADS];
    uint64_t allocates = 0;
    int i;
    alarm(PATIENCE);
    memset(shared, 0, sizeof shared);
    REQUIRE(start());
    for (i = 0; i < 4; ++i) {
        shared[i].flags = i == 1 || i == 2 ? WARP_ALLOCATOR_STREAM_ORDERED : 0;
        shared[i].without = i == 2 ? NO_RECORD : 0;
        shared[i].kind = i == 3 ? WARP_MEMORY_CUDA_MANAGED : 0;
        created(&shared[i], below[i]);
    }
    for (i = 0; i < THREADS; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, do_anything, (void *)(uintptr_t)(i + 1)) == 0);
    for (i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    for (i = 0; i < 8; ++i)
        CHECK_STATUS(warp_free(handed[i]), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_trim(shared[0].handle, NULL, NULL), WARP_SUCCESS);
    for (i = 0; i < 4; ++i) {
        allocates += shared[i].allocates;
        CHECK_EQ_U64(shared[i].allocates, shared[i].deallocates);
        CHECK_EQ_U64(live_of(shared[i].handle), 0);
        CHECK_EQ_U64(allocator_info(shared[i].handle).references, 1);
        CHECK_EQ_U64(allocator_info(shared[i].handle).failed_deallocations, 0);
        let_go(&shared[i]);
        CHECK_OVER(&shared[i]);
    }
    CHECK(allocates > (uint64_t)rounds(600) * 3);
    check_gone_at(__FILE__, __LINE__);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    alarm(0);
}

CHECK_MAIN()
