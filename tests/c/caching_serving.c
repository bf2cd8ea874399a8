/*
 * caching_serving.c: every call obeys what was set the moment before, whatever the thread remembers of who served it: scopes,
 * streams, devices, allocators that are installed, released or stopped, threads, and lives of the library.
 *
 * needs: simulator
 * valgrind: slow (a process for each promise; the threads, failures and captures of the cache go the same ways there)
 */
#define _GNU_SOURCE
#include "caches.h"
#include "process.h"

static void check_served_by(warp_device *device, warp_allocator *expected)
{
    int i;
    /* Three times: by what is asked, by what is remembered of it, and by what was freed. */
    for (i = 0; i < 3; ++i) {
        void *ptr = plain_alloc(device, 1000);
        CHECK_EQ_PTR(server_of(ptr), expected);
        freed(ptr);
    }
}

PROCESS_TEST(caching_is_switched_on_and_off_between_any_two_calls)
{
    warp_allocator *cache, *other, *scoped;
    warp_scope *scope = NULL, *inner = NULL;
    warp_device *first, *second;
    int round;
    start_on("h200x2");
    cache = own_cache(WARP_MEMORY_UNKNOWN);
    other = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    scoped = cache_over(builtin(WARP_MEMORY_CUDA_MANAGED), 0, 0);
    first = gpu(0);
    second = gpu(1);
    for (round = 0; round < 3; ++round) {
        check_served_by(first, NULL);
        CHECK_STATUS(warp_allocator_set_caching_for_all(1), WARP_SUCCESS);
        check_served_by(first, cache);
        check_served_by(second, cache);
        CHECK_STATUS(warp_allocator_set_for_device(first, other), WARP_SUCCESS);
        check_served_by(first, other);
        check_served_by(second, cache);
        CHECK_STATUS(warp_scope_begin_allocator(first, scoped, &scope), WARP_SUCCESS);
        check_served_by(first, scoped);
        check_served_by(second, cache);
        CHECK_STATUS(warp_scope_begin_allocator(first, NULL, &inner), WARP_SUCCESS);
        check_served_by(first, NULL);
        CHECK_STATUS(warp_scope_end(inner), WARP_SUCCESS);
        check_served_by(first, scoped);
        CHECK_STATUS(warp_allocator_set_for_device(first, NULL), WARP_SUCCESS);
        check_served_by(first, scoped);
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
        check_served_by(first, NULL);
        CHECK_STATUS(warp_allocator_set_caching_for_all(0), WARP_SUCCESS);
        check_served_by(first, NULL);
        check_served_by(second, NULL);
    }
    release(other);
    release(scoped);
}

static uint64_t stream_id_of(warp_stream *stream)
{
    return stream_info(stream).id;
}

static warp_device *device_named(const char *alias)
{
    return device(alias);
}

static void check_served_on(warp_device *device, warp_stream *stream, const char *alias)
{
    int i;
    for (i = 0; i < 3; ++i) {
        void *ptr = plain_alloc(device, 1000);
        warp_pointer_info info = pointer_info(ptr);
        CHECK_EQ_PTR(info.device, device_named(alias));
        if (stream != NULL)
            CHECK_EQ_U64(info.stream_id, stream_id_of(stream));
        freed(ptr);
    }
}

PROCESS_TEST(the_current_stream_and_the_default_device_are_those_of_the_moment)
{
    warp_stream *a, *b, *before;
    warp_scope *scope = NULL;
    warp_device *first, *second;
    void *ptr;
    int round;
    start_on("h200x2");
    first = gpu(0);
    second = gpu(1);
    CHECK_STATUS(warp_allocator_set_caching_for_all(1), WARP_SUCCESS);
    before = stream_of(first);
    for (round = 0; round < 3; ++round) {
        a = new_stream(first, WARP_STREAM_NON_BLOCKING);
        b = new_stream(first, WARP_STREAM_NON_BLOCKING);
        check_served_on(first, before, "cuda:0");
        CHECK_STATUS(warp_stream_set_current(first, a), WARP_SUCCESS);
        check_served_on(first, a, "cuda:0");
        CHECK_STATUS(warp_scope_begin_stream(first, b, &scope), WARP_SUCCESS);
        check_served_on(first, b, "cuda:0");
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
        check_served_on(first, a, "cuda:0");
        CHECK_STATUS(warp_stream_set_current(first, before), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(a), WARP_SUCCESS);
        ptr = block_by(first, NULL, 1000, b);
        freed(ptr);
        CHECK_STATUS(warp_stream_release(b), WARP_SUCCESS);
        CHECK_STATUS(try_by(first, NULL, 1000, b, &ptr), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_PTR(ptr, NULL);
        check_served_on(first, before, "cuda:0");
        CHECK_STATUS(warp_device_set_default(second), WARP_SUCCESS);
        check_served_on(NULL, NULL, "cuda:1");
        CHECK_STATUS(warp_device_set_for_thread(first), WARP_SUCCESS);
        check_served_on(NULL, NULL, "cuda:0");
        CHECK_STATUS(warp_scope_begin_device(second, &scope), WARP_SUCCESS);
        check_served_on(NULL, NULL, "cuda:1");
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
        check_served_on(NULL, NULL, "cuda:0");
        CHECK_STATUS(warp_device_set_for_thread(NULL), WARP_SUCCESS);
        check_served_on(NULL, NULL, "cuda:1");
        CHECK_STATUS(warp_device_set_default(first), WARP_SUCCESS);
        check_served_on(NULL, NULL, "cuda:0");
    }
}

PROCESS_TEST(a_released_or_stopped_cache_serves_no_more)
{
    static struct recorder r;
    warp_allocator *cache;
    void *ptr;
    int way;
    start_on("h200x2");
    for (way = 0; way < 3; ++way) {
        cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
        freed(block_by(gpu(0), cache, 1000, NULL));
        freed(block_by(gpu(0), cache, 1000, NULL));
        ptr = way == 1 ? block_by(gpu(0), cache, 1000, NULL) : NULL;
        release(cache);
        CHECK_STATUS(try_by(gpu(0), cache, 1000, NULL, &(void *){NULL}), WARP_ERROR_INVALID_HANDLE);
        if (ptr != NULL) {
            CHECK_EQ_U64(pointer_info(ptr).size, 1000);
            freed(ptr);
            CHECK_STATUS(warp_free(ptr), WARP_ERROR_DOUBLE_FREE);
        }
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    }
    r.kind = WARP_MEMORY_CUDA_DEVICE;
    cache = cache_over(created(&r, WARP_MEMORY_CUDA_DEVICE), 0, 0);
    ptr = block_by(gpu(0), cache, 1000, NULL);
    freed(block_by(gpu(0), cache, 5000, NULL));
    CHECK_STATUS(warp_allocator_stop(cache), WARP_SUCCESS);
    CHECK_STATUS(try_by(gpu(0), cache, 3 * MIB, NULL, &(void *){NULL}), WARP_ERROR_ALLOCATOR_FAILED);
    freed(ptr);
    release(cache);
    let_go(&r);
}

/* An address that a cache gave, and that another allocator gives now, is no reason to ask the cache the next time. */
PROCESS_TEST(an_address_that_a_cache_once_gave_brings_nobody_back_to_it)
{
    static struct recorder below, plain;
    warp_alloc_request request = {.struct_size = sizeof request};
    warp_allocator *cache;
    warp_device *device;
    void *place = NULL, *big, *small, *again;
    start_on("h200x2");
    device = gpu(0);
    below.kind = plain.kind = WARP_MEMORY_CUDA_DEVICE;
    cache = cache_over(created(&below, WARP_MEMORY_CUDA_DEVICE), 0, 0);
    (void)created(&plain, WARP_MEMORY_CUDA_DEVICE);
    request.device = device;
    request.size = 4 * MIB;
    request.alignment = 512;
    CHECK_STATUS(warp_allocator_allocate(below.below, &request, &place), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_device(device, cache), WARP_SUCCESS);
    small = plain_alloc(device, 1000);
    below.gives = place;
    big = plain_alloc(device, 4 * MIB);
    CHECK_EQ_PTR(big, place);
    CHECK_EQ_PTR(server_of(big), cache);
    freed(big);
    CHECK(trimmed(cache, device) != 0);
    CHECK_STATUS(warp_allocator_set_for_device(device, plain.handle), WARP_SUCCESS);
    plain.gives = place;
    again = plain_alloc(device, 4 * MIB);
    CHECK_EQ_PTR(again, big);
    CHECK_EQ_PTR(server_of(again), plain.handle);
    plain.gives = NULL;
    check_served_by(device, plain.handle);
    CHECK_EQ_U64(measured(cache).live_blocks, 1);
    freed(again);
    freed(small);
    CHECK_STATUS(warp_allocator_set_for_device(device, NULL), WARP_SUCCESS);
    release(cache);
    let_go(&below);
    let_go(&plain);
    CHECK_STATUS(warp_allocator_deallocate(below.below, place, &request), WARP_SUCCESS);
    CHECK_OVER(&below);
    CHECK_OVER(&plain);
}

static warp_allocator *for_thread;
static warp_device *of_thread;

static void *end_in_a_scope(void *argument)
{
    warp_scope *scope = NULL;
    (void)argument;
    CHECK_STATUS(warp_scope_begin_allocator(of_thread, for_thread, &scope), WARP_SUCCESS);
    check_served_by(of_thread, for_thread);
    return NULL;
}

static void *serve_plainly(void *argument)
{
    check_served_by(of_thread, argument);
    return NULL;
}

/* What a thread remembers is kept for the next one, and what it had set is not. */
PROCESS_TEST(a_thread_follows_none_that_ended_in_a_scope)
{
    pthread_t thread;
    int round;
    start_on("h200x2");
    for_thread = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    of_thread = gpu(0);
    for (round = 0; round < 4; ++round) {
        REQUIRE(pthread_create(&thread, NULL, end_in_a_scope, NULL) == 0);
        pthread_join(thread, NULL);
        REQUIRE(pthread_create(&thread, NULL, serve_plainly, NULL) == 0);
        pthread_join(thread, NULL);
    }
}

PROCESS_TEST(after_a_shutdown_the_next_life_caches_anew)
{
    warp_allocator *cache, *made;
    void *block, *other;
    int round;
    start_on("h200x2");
    for (round = 0; round < 3; ++round) {
        CHECK_STATUS(warp_allocator_set_caching_for_all(1), WARP_SUCCESS);
        cache = own_cache(WARP_MEMORY_UNKNOWN);
        made = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
        block = plain_alloc(gpu(0), 1000);
        CHECK_EQ_PTR(server_of(block), cache);
        other = block_by(gpu(0), made, 1000, NULL);
        freed(plain_alloc(gpu(0), 1000));
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc(NULL, 1000, &(void *){NULL}), WARP_ERROR_SHUT_DOWN);
        if (round == 1) {
            freed(block);
            freed(other);
        }
        CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        CHECK_STATUS(try_by(gpu(0), made, 1000, NULL, &(void *){NULL}), WARP_ERROR_INVALID_HANDLE);
        check_served_by(gpu(0), NULL);
        if (round != 1) {
            CHECK_EQ_U64(pointer_info(block).size, 1000);
            freed(block);
            freed(other);
        }
        CHECK_STATUS(warp_free(block), WARP_ERROR_DOUBLE_FREE);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 0);
    }
    CHECK_NOTHING_LEFT();
}

static warp_status began;

static void begin_again(struct recorder *r, const warp_alloc_request *request)
{
    (void)request;
    r->on_deallocate = NULL;
    began = warp_init(NULL, NULL);
}

/* At the last shutdown what was kept goes back with no lock held: the callback may begin the library anew. */
PROCESS_TEST(what_is_kept_goes_back_at_the_shutdown_with_no_lock_held)
{
    static struct recorder r;
    warp_allocator *cache;
    void *kept;
    alarm(60); /* what waits for itself does so for ever */
    start_on("h200x2");
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    cache = cache_over(r.handle, 0, 0);
    kept = block_by(gpu(0), cache, 1000, NULL);
    freed(block_by(gpu(0), cache, 5 * MIB, NULL));
    CHECK_EQ_U64(r.allocates, 2);
    began = -1;
    r.on_deallocate = begin_again;
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(began, WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 1);
    CHECK_EQ_U64(r.destroys, 0);
    freed(kept);
    CHECK_EQ_U64(r.deallocates, 2);
    CHECK_EQ_U64(r.destroys, 1);
    CHECK_EQ_U64(r.wrong, 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* ---- blocks that are handed out twice ---------------------------------------------------------------------------------- */

static warp_allocator *asked_inside;

static warp_status hand_on(void *user, const warp_alloc_request *request, void **out)
{
    (void)user;
    return try_by(request->device, asked_inside, request->size, NULL, out);
}

static warp_status take_back(void *user, void *ptr, const warp_alloc_request *request)
{
    (void)user, (void)request;
    return warp_free(ptr);
}

/* An allocator that hands out a block of the library's, which is somebody's already: as without a cache, it is told so. */
PROCESS_TEST(a_cached_block_is_handed_out_by_nobody_else)
{
    warp_allocator_vtable vtable = {.struct_size = sizeof vtable, .name = "wrong", .kind = WARP_MEMORY_CUDA_DEVICE};
    warp_allocator *wrong = NULL;
    void *ptr;
    int i;
    start_on("h200x2");
    vtable.allocate = hand_on;
    vtable.deallocate = take_back;
    CHECK_STATUS(warp_allocator_create(&vtable, NULL, &wrong), WARP_SUCCESS);
    for (i = 0; i < 4; ++i) {
        warp_caching_info info;
        asked_inside = i % 2 ? builtin(WARP_MEMORY_CUDA_DEVICE) : own_cache(WARP_MEMORY_UNKNOWN);
        CHECK_STATUS(try_by(gpu(0), wrong, 4096, NULL, &ptr), WARP_ERROR_ALLOCATOR_FAILED);
        CHECK_EQ_PTR(ptr, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "that it did not make");
        info = measured(own_cache(WARP_MEMORY_UNKNOWN));
        CHECK_EQ_U64(info.live_blocks, (uint64_t)i / 2 + 1);
    }
    release(wrong);
}

CHECK_MAIN()
