/*
 * allocator_reentry.c: callbacks that call the library again: every function that makes sense there, from every callback, on any
 * thread; that end the library, stop or let go of their own allocator; that ask for memory that they serve; that leave contexts and
 * modes as they should not.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "access.h"
#include "allocators.h"
#include "captures.h"

static struct recorder r;
static int inside, visits; /* of everything() */

static void ignore_log(void *user, warp_log_level level, const char *message)
{
    (void)user, (void)level, (void)message;
}

/* Calls what can be called. The allocator's own GPU is the first. */
static void everything(struct recorder *of, const warp_alloc_request *request)
{
    warp_array *array = NULL, *view = NULL, *clone = NULL, *wrapped = NULL;
    warp_stream *stream = NULL, *other = NULL, *current = NULL;
    warp_event *event = NULL;
    warp_scope *scope = NULL;
    warp_allocator *told = NULL, *made = NULL;
    warp_mempool *pool = NULL;
    warp_graph *graph = NULL;
    int64_t shape = 32, from = 2, to = 30;
    int32_t axes = 0;
    void *a = NULL, *b = NULL, *c = NULL, *memory = NULL;
    warp_device_info info = {.struct_size = sizeof info};
    warp_error error = {.struct_size = sizeof error};
    warp_alloc_request asked = {.struct_size = sizeof asked, .size = 512};
    warp_allocator_vtable vtable;
    struct recorder own;
    uint64_t number = 0, more = 0;
    uint8_t yes = 0;
    char text[256];
    unsigned char host[32] = {0};
    warp_launch_argument argument = {.name = "a", .kind = WARP_LAUNCH_POINTER};
    warp_statistics counts = {.struct_size = sizeof counts};
    (void)request;
    if (inside)
        return;
    inside = 1;
    ++visits;
    /* Library and log. */
    CHECK_STATUS(warp_init(NULL, &yes), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_library_get_report(text, sizeof text, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_library_is_initialized(&yes), WARP_SUCCESS);
    CHECK_STATUS(warp_log_set_callback(ignore_log, NULL, WARP_LOG_DEBUG), WARP_SUCCESS);
    CHECK_STATUS(warp_error_get_last(&error), WARP_SUCCESS);
    /* Devices. */
    CHECK_STATUS(warp_device_get_info(gpu(0), &info), WARP_SUCCESS);
    CHECK_STATUS(warp_device_query_memory(gpu(0), &number, &more), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_begin_device(gpu(1), &scope), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    /* Memory: by other allocators, by this one, and back. */
    CHECK_STATUS(warp_alloc(cpu(), 100, &a), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(1), 100, &b), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(0), 100, &c), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_fill(c, 100, "q", 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(b, c, 100, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(host, c, 32, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_record_stream(c, stream_of(gpu(0))), WARP_SUCCESS);
    CHECK_EQ_I64(pointer_info(c).is_owned, 1);
    CHECK_STATUS(warp_statistics_get(gpu(0), 0, &counts), WARP_SUCCESS);
    CHECK_STATUS(warp_statistics_reset_peak(gpu(0)), WARP_SUCCESS);
    can_pointer(gpu(1), c);
    argument.value = c;
    check_launch(gpu(0), &argument, 1, WARP_LAUNCH_CHECKED);
    CHECK_STATUS(warp_free(a), WARP_SUCCESS);
    CHECK_STATUS(warp_free(b), WARP_SUCCESS);
    CHECK_STATUS(warp_free(c), WARP_SUCCESS);
    CHECK_STATUS(warp_free(c), WARP_ERROR_DOUBLE_FREE);
    /* Arrays. */
    CHECK_STATUS(warp_array_zeros(gpu(0), F32, 1, &shape, NULL, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_slice(array, 1, &from, &to, NULL, &view), WARP_SUCCESS);
    CHECK_STATUS(warp_array_clone(view, gpu(1), NULL, &clone), WARP_SUCCESS);
    CHECK_STATUS(warp_array_wrap(cpu(), host, I32, 1, &(int64_t){8}, NULL, &wrapped), WARP_SUCCESS);
    CHECK_STATUS(warp_array_copy(array, wrapped, 0, 0, 8, NULL), WARP_SUCCESS);
    can_array(gpu(1), array);
    drop(view);
    CHECK_STATUS(warp_array_transpose(array, 1, &axes, &view), WARP_SUCCESS);
    drop(view);
    drop(array);
    drop(clone);
    drop(wrapped);
    /* Streams, events, scopes of theirs. */
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    other = new_stream(gpu(0), 0);
    CHECK_STATUS(warp_event_create(gpu(0), NULL, &event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_record(event, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(other, event), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(stream, other), WARP_SUCCESS);
    CHECK_STATUS(warp_event_query_done(event, &yes), WARP_SUCCESS);
    CHECK_STATUS(warp_event_synchronize(event), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_query_idle(stream, &yes), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_begin_stream(gpu(0), stream, &scope), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_current(gpu(0), &current), WARP_SUCCESS);
    CHECK_EQ_PTR(current, stream);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    /* Pools and peers. */
    CHECK_STATUS(warp_mempool_get(gpu(0), &pool), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_trim(pool, 0), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_create(gpu(0), NULL, &pool), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_release(pool), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_enabled(gpu(0), 0), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_enabled(gpu(0), 1), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_begin_mempool(gpu(0), 0, &scope), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    CHECK_STATUS(warp_peer_access_query_enabled(gpu(0), gpu(1), &yes), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_begin_peer_access(gpu(0), gpu(1), 1, &scope), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_begin_mempool_access(gpu(0), gpu(1), 1, &scope), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    /* Captures and graphs. */
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_RELAXED), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_query_memory(gpu(0), &(warp_graph_memory_info){.struct_size = sizeof(warp_graph_memory_info)}), WARP_SUCCESS);
    CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_CUDA_MEMPOOL, 64, &a), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_fill(a, 64, "g", 1, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(a), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_pause(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_resume(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_launch(graph, other), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(other), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_trim_memory(gpu(0)), WARP_SUCCESS);
    /* Allocators: this one, others, a new one. */
    memset(&own, 0, sizeof own);
    own.name = "made inside";
    vtable = vtable_of(&own);
    pthread_mutex_init(&own.lock, NULL);
    own.below = builtin(WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_allocator_create(&vtable, &own, &made), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_begin_allocator(gpu(1), made, &scope), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(1), 64, &b), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(1), made), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(1), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free(b), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(made), WARP_SUCCESS);
    CHECK_OVER(&own);
    asked.device = gpu(1);
    CHECK_STATUS(warp_allocator_allocate(builtin(WARP_MEMORY_CUDA_MANAGED), &asked, &memory), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_deallocate(builtin(WARP_MEMORY_CUDA_MANAGED), memory, &asked), WARP_SUCCESS);
    if (of != NULL && of->handle != NULL && COUNT_OF(of->destroys) == 0 && warp_allocator_retain(of->handle) == WARP_SUCCESS) {
        warp_allocator_statistics statistics = {.struct_size = sizeof statistics};
        CHECK_STATUS(warp_allocator_get_for_device(gpu(0), &told), WARP_SUCCESS);
        allocator_info(of->handle);
        live_of(of->handle);
        CHECK_STATUS(warp_allocator_get_statistics(of->handle, &statistics), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_trim(of->handle, gpu(0), NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_release(of->handle), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
    inside = 0;
}

static void begin_here(uint32_t flags)
{
    memset(&r, 0, sizeof r);
    r.flags = flags;
    visits = inside = 0;
    REQUIRE(start());
    created(&r, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), r.handle), WARP_SUCCESS);
}

static void end_here(void)
{
    r.on_allocate = r.on_deallocate = r.on_trim = r.on_record = NULL;
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), NULL), WARP_SUCCESS);
    let_go(&r);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_OVER(&r);
    check_gone_at(__FILE__, __LINE__);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void *one_round(void *unused)
{
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    int64_t shape = 10;
    warp_array *array = NULL;
    warp_allocator_statistics statistics = {.struct_size = sizeof statistics};
    void *ptr = NULL;
    (void)unused;
    CHECK_STATUS(warp_alloc(gpu(0), 3000, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_fill(ptr, 3000, "f", 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_record_stream(ptr, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS); /* with record_stream, where it is stream-ordered */
    CHECK_STATUS(warp_array_zeros(gpu(0), F32, 1, &shape, NULL, &array), WARP_SUCCESS);
    drop(array);
    r.out_of_memory = 1; /* with trim */
    CHECK_STATUS(warp_alloc(gpu(0), 300, &ptr), WARP_SUCCESS);
    SIMULATOR(warpsim_hold)(native_stream(stream_of(gpu(0))));
    CHECK_STATUS(warp_memory_fill(ptr, 300, "f", 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    SIMULATOR(warpsim_release_all)();
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS); /* delivers */
    CHECK_STATUS(warp_allocator_get_statistics(r.handle, &statistics), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_trim(r.handle, gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_PTR(driver_current(), NULL);
    return NULL;
}

TEST(everything_from_every_callback)
{
    uint32_t ordered;
    int way;
    for (ordered = 0; ordered < 2; ++ordered)
        for (way = 0; way < 5; ++way) {
            int failures = check_failure_count();
            begin_here(ordered ? WARP_ALLOCATOR_STREAM_ORDERED : 0);
            r.on_allocate = way == 0 || way == 4 ? everything : NULL;
            r.on_deallocate = way == 1 || way == 4 ? everything : NULL;
            r.on_trim = way == 2 ? everything : NULL;
            r.on_record = way == 3 ? everything : NULL;
            one_round(NULL);
            CHECK(visits >= (way == 3 && !ordered ? 0 : 1));
            CHECK_EQ_I64(thread_mode(), 0);
            if (way == 4) {
                pthread_t thread; /* one that the library has not seen */
                REQUIRE(pthread_create(&thread, NULL, one_round, NULL) == 0);
                pthread_join(thread, NULL);
            }
            end_here();
            if (check_failure_count() != failures) {
                printf("\n      ordered %u, way %d", ordered, way);
                return;
            }
        }
}

TEST(everything_from_destroy)
{
    begin_here(0);
    r.on_destroy = everything;
    r.flags = 0;
    end_here();
    CHECK_EQ_I64(visits, 1);
}

/* ---- Ending things from inside ------------------------------------------------------------------------------------------ */

static void uninstall(struct recorder *of, const warp_alloc_request *request)
{
    (void)request;
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    if (allocator_info(of->handle).references != 0)
        CHECK_STATUS(warp_allocator_release(of->handle), WARP_SUCCESS);
    of->on_allocate = of->on_deallocate = NULL;
    CHECK_EQ_U64(COUNT_OF(of->destroys), 0); /* not under a callback of its own */
}

TEST(it_lets_go_of_itself)
{
    void *ptr = NULL;
    begin_here(0);
    r.on_allocate = uninstall;
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.destroys, 0);
    CHECK_STATUS(warp_allocator_release(r.handle), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_OVER(&r);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    begin_here(0);
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
    r.on_deallocate = uninstall;
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_OVER(&r);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void stop_itself(struct recorder *of, const warp_alloc_request *request)
{
    (void)request;
    CHECK_STATUS(warp_allocator_stop(of->handle), WARP_SUCCESS);
    of->on_allocate = of->on_deallocate = NULL;
}

TEST(it_stops_itself)
{
    void *ptr = NULL, *other = NULL;
    begin_here(0);
    r.on_allocate = stop_itself;
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS); /* this one was begun before */
    CHECK_STATUS(warp_alloc(gpu(0), 64, &other), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "stopped");
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 0);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    let_go(&r);
    CHECK_EQ_U64(r.destroys, 0);
    CHECK_STATUS(warp_allocator_deallocate(r.below, ptr, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static int both_inside;

static void stop_together(struct recorder *of, const warp_alloc_request *request)
{
    (void)request;
    COUNT_UP(both_inside);
    while (COUNT_OF(both_inside) < 2)
        usleep(100);
    CHECK_STATUS(warp_allocator_stop(of->handle), WARP_SUCCESS);
}

static void *allocate_once(void *out)
{
    CHECK_STATUS(warp_alloc(gpu(0), 64, (void **)out), WARP_SUCCESS);
    return NULL;
}

/* Two callbacks that stop their allocator at once do not wait for each other. */
TEST(two_callbacks_stop_it)
{
    pthread_t threads[2];
    void *ptrs[2] = {NULL, NULL};
    int i;
    alarm(PROCESS_PATIENCE);
    begin_here(0);
    both_inside = 0;
    r.on_allocate = stop_together;
    for (i = 0; i < 2; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, allocate_once, &ptrs[i]) == 0);
    for (i = 0; i < 2; ++i) {
        pthread_join(threads[i], NULL);
        CHECK_STATUS(warp_free(ptrs[i]), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_deallocate(r.below, ptrs[i], NULL), WARP_SUCCESS);
    }
    alarm(0);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    let_go(&r);
    CHECK_EQ_U64(r.destroys, 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void *stop_it(void *allocator)
{
    COUNT_UP(both_inside);
    while (COUNT_OF(both_inside) < 2)
        ;
    CHECK_STATUS(warp_allocator_stop((warp_allocator *)allocator), WARP_SUCCESS);
    return NULL;
}

/* Nor do two threads that stop it from outside. */
TEST(two_threads_stop_it)
{
    pthread_t threads[2];
    int round, i;
    alarm(PROCESS_PATIENCE);
    REQUIRE(start());
    for (round = 0; round < (check_under("valgrind") ? 5 : 200); ++round) {
        memset(&r, 0, sizeof r);
        created(&r, WARP_MEMORY_CUDA_DEVICE);
        both_inside = 0;
        for (i = 0; i < 2; ++i)
            REQUIRE(pthread_create(&threads[i], NULL, stop_it, r.handle) == 0);
        for (i = 0; i < 2; ++i)
            pthread_join(threads[i], NULL);
        let_go(&r);
        CHECK_EQ_U64(r.destroys, 0);
    }
    alarm(0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void shut_down(struct recorder *of, const warp_alloc_request *request)
{
    (void)request;
    of->on_allocate = of->on_deallocate = NULL;
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

TEST(it_ends_the_library)
{
    void *ptr = NULL;
    /* While it is asked: below it there is nothing any more. */
    begin_here(0);
    r.on_allocate = shut_down;
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_OVER(&r);
    CHECK_STATUS(warp_alloc(NULL, 64, &ptr), WARP_ERROR_SHUT_DOWN);
    /* While it gets its last block back. */
    begin_here(0);
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
    r.on_deallocate = shut_down;
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_OVER(&r);
    CHECK_STATUS(warp_alloc(NULL, 64, &ptr), WARP_ERROR_SHUT_DOWN);
    /* While it ends. */
    begin_here(0);
    r.on_destroy = shut_down;
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    let_go(&r);
    CHECK_OVER(&r);
    CHECK_STATUS(warp_alloc(NULL, 64, &ptr), WARP_ERROR_SHUT_DOWN);
    CHECK_EQ_U64(live("*"), live("default"));
}

/* ---- Asking itself ------------------------------------------------------------------------------------------------------ */

static void ask_itself(struct recorder *of, const warp_alloc_request *request)
{
    void *ptr = NULL;
    warp_status status = warp_alloc(gpu(0), request->size, &ptr);
    if (status != WARP_SUCCESS) {
        COUNT_UP(of->wrong);
        CHECK_STATUS(status, WARP_ERROR_ALLOCATOR_FAILED);
        if (of->data == NULL)
            CHECK_STR_CONTAINS(warp_error_get_message(), "10 deep");
        else { /* what cannot be given back now is not lost */
            CHECK_STATUS(warp_free(of->data), WARP_ERROR_BUSY);
            CHECK_EQ_I64(pointer_info(of->data).is_owned, 1);
            of->data = NULL;
        }
    }
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
}

TEST(it_asks_itself)
{
    void *ptr = NULL, *before = NULL;
    begin_here(0);
    CHECK_STATUS(warp_alloc(gpu(0), 64, &before), WARP_SUCCESS);
    r.data = before;
    r.allocates = 0;
    r.on_allocate = ask_itself;
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.allocates, 10);
    CHECK_EQ_U64(r.wrong, 1); /* the deepest was refused */
    r.wrong = 0;
    CHECK_EQ_PTR(r.data, NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.wrong, 1);
    r.wrong = 0;
    r.on_allocate = NULL;
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(before), WARP_SUCCESS);
    end_here();
}

/* ---- What a callback leaves behind -------------------------------------------------------------------------------------- */

static CUcontext leaves;
static int leaves_mode;

static void leave(struct recorder *of, const warp_alloc_request *request)
{
    (void)of, (void)request;
    SIMULATOR(cuCtxSetCurrent)(leaves);
    set_thread_mode(leaves_mode);
}

TEST(contexts_and_modes_are_put_back)
{
    CUcontext contexts[3] = {NULL};
    int before, left, mode, left_mode;
    begin_here(0);
    contexts[1] = context_of(gpu(0));
    contexts[2] = context_of(gpu(1));
    r.on_allocate = r.on_deallocate = r.on_trim = leave;
    for (before = 0; before < 3; ++before)
        for (left = 0; left < 3; ++left)
            for (mode = 0; mode < 3; ++mode)
                for (left_mode = 0; left_mode < 3; ++left_mode) {
                    void *ptr = NULL;
                    leaves = contexts[left];
                    leaves_mode = left_mode;
                    SIMULATOR(cuCtxSetCurrent)(contexts[before]);
                    set_thread_mode(mode);
                    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
                    CHECK_EQ_PTR(driver_current(), contexts[before]);
                    CHECK_EQ_I64(thread_mode(), mode);
                    CHECK_STATUS(warp_allocator_trim(r.handle, gpu(1), NULL), WARP_SUCCESS);
                    CHECK_EQ_PTR(driver_current(), contexts[before]);
                    CHECK_EQ_I64(thread_mode(), mode);
                    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
                    CHECK_EQ_PTR(driver_current(), contexts[before]);
                    CHECK_EQ_I64(thread_mode(), mode);
                    CHECK_EQ_PTR(r.current, contexts[1]);
                    CHECK_EQ_PTR(r.current_back, contexts[1]);
                    if (check_failure_count() > 10)
                        return;
                }
    SIMULATOR(cuCtxSetCurrent)(NULL);
    set_thread_mode(0);
    end_here();
}

CHECK_MAIN()
