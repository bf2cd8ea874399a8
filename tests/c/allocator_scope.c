/*
 * allocator_scope.c: scopes of allocators: nested, in the wrong order, on other threads, with what is installed meanwhile, and
 * whose allocator nobody else refers to.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "allocators.h"

static struct recorder v1, v2, v3;

static void begin_all(void)
{
    memset(&v1, 0, sizeof v1);
    memset(&v2, 0, sizeof v2);
    memset(&v3, 0, sizeof v3);
    v1.name = "V1", v2.name = "V2", v3.name = "V3";
    created(&v1, WARP_MEMORY_CUDA_DEVICE);
    created(&v2, WARP_MEMORY_CUDA_DEVICE);
    created(&v3, WARP_MEMORY_CUDA_DEVICE);
}

static void end_all(void)
{
    let_go(&v1);
    let_go(&v2);
    let_go(&v3);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_OVER(&v1);
    CHECK_OVER(&v2);
    CHECK_OVER(&v3);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static warp_scope *scope_of(warp_device *device, warp_allocator *allocator)
{
    warp_scope *scope = NULL;
    CHECK_STATUS(warp_scope_begin_allocator(device, allocator, &scope), WARP_SUCCESS);
    CHECK(scope != NULL);
    return scope;
}

static void *plain(int number)
{
    void *ptr = NULL;
    CHECK_STATUS(warp_alloc(gpu(number), 1000, &ptr), WARP_SUCCESS);
    return ptr;
}

/* Which allocator serves now: of a block, and as it is told. */
static warp_allocator *serves(int number)
{
    void *ptr = plain(number);
    warp_allocator *by = pointer_info(ptr).allocator, *told = NULL;
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_get_for_device(gpu(number), &told), WARP_SUCCESS);
    if (by != NULL)
        CHECK_EQ_PTR(told, by);
    else
        CHECK_EQ_PTR(told, builtin(WARP_MEMORY_CUDA_MEMPOOL));
    return by;
}

TEST(nested_scopes)
{
    warp_scope *outer, *inner;
    void *a, *b, *c, *d;
    REQUIRE(start());
    begin_all();
    outer = scope_of(gpu(0), v1.handle);
    a = plain(0);
    inner = scope_of(gpu(0), v2.handle);
    b = plain(0);
    CHECK_STATUS(warp_scope_end(inner), WARP_SUCCESS);
    c = plain(0);
    CHECK_STATUS(warp_scope_end(outer), WARP_SUCCESS);
    d = plain(0);
    CHECK_EQ_PTR(pointer_info(a).allocator, v1.handle);
    CHECK_EQ_PTR(pointer_info(b).allocator, v2.handle);
    CHECK_EQ_PTR(pointer_info(c).allocator, v1.handle);
    CHECK_EQ_PTR(pointer_info(d).allocator, NULL);
    CHECK_STATUS(warp_free(a), WARP_SUCCESS);
    CHECK_STATUS(warp_free(b), WARP_SUCCESS);
    CHECK_STATUS(warp_free(c), WARP_SUCCESS);
    CHECK_STATUS(warp_free(d), WARP_SUCCESS);
    CHECK_EQ_U64(v1.deallocates, 2);
    CHECK_EQ_U64(v2.deallocates, 1);
    /* No reference is left behind by entering and leaving. */
    CHECK_EQ_U64(allocator_info(v1.handle).references, 1);
    CHECK_EQ_U64(allocator_info(v2.handle).references, 1);
    end_all();
}

TEST(wrong_order_and_twice)
{
    warp_scope *outer, *inner, *refused = (warp_scope *)(uintptr_t)1;
    REQUIRE(start());
    begin_all();
    outer = scope_of(gpu(0), v1.handle);
    inner = scope_of(gpu(0), v2.handle);
    CHECK_STATUS(warp_scope_end(outer), WARP_ERROR_SCOPE_ORDER);
    CHECK_EQ_PTR(serves(0), v2.handle);
    CHECK_EQ_U64(allocator_info(v1.handle).references, 2);
    CHECK_STATUS(warp_scope_end(inner), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(inner), WARP_ERROR_SCOPE_ORDER);
    CHECK_EQ_PTR(serves(0), v1.handle);
    CHECK_EQ_U64(allocator_info(v2.handle).references, 1);
    CHECK_STATUS(warp_scope_end(outer), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(outer), WARP_ERROR_SCOPE_ORDER);
    CHECK_EQ_PTR(serves(0), NULL);
    CHECK_EQ_U64(allocator_info(v1.handle).references, 1);
    /* A scope that cannot begin changes nothing. */
    CHECK_STATUS(warp_scope_begin_allocator(cpu(), v1.handle, &refused), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(refused, NULL);
    CHECK_STATUS(warp_scope_begin_allocator(cpu(), NULL, &refused), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_scope_begin_allocator(gpu(0), builtin(WARP_MEMORY_HOST), &refused), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_scope_begin_allocator(gpu(0), (warp_allocator *)gpu(0), &refused), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_scope_begin_allocator(gpu(0), v1.handle, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(allocator_info(v1.handle).references, 1);
    CHECK_EQ_PTR(serves(0), NULL);
    end_all();
}

/* Devices apart, the built-in ones as a scope, and what is installed meanwhile. */
TEST(settings_inside_a_scope)
{
    warp_scope *one, *other, *none;
    REQUIRE(start());
    begin_all();
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), v1.handle), WARP_SUCCESS);
    none = scope_of(gpu(0), NULL);
    CHECK_EQ_PTR(serves(0), NULL);
    one = scope_of(gpu(0), v2.handle);
    other = scope_of(gpu(1), v3.handle);
    CHECK_EQ_PTR(serves(0), v2.handle);
    CHECK_EQ_PTR(serves(1), v3.handle);
    CHECK_STATUS(warp_mempool_set_enabled(gpu(1), 0), WARP_SUCCESS); /* pools of the other one */
    CHECK_EQ_PTR(serves(0), v2.handle);
    CHECK_STATUS(warp_mempool_set_enabled(gpu(1), 1), WARP_SUCCESS);
    /* Installed inside: seen when the scopes are over. */
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), v3.handle), WARP_SUCCESS);
    CHECK_EQ_PTR(serves(0), v2.handle);
    CHECK_STATUS(warp_scope_end(other), WARP_SUCCESS);
    CHECK_EQ_PTR(serves(1), NULL);
    CHECK_STATUS(warp_scope_end(one), WARP_SUCCESS);
    CHECK_EQ_PTR(serves(0), NULL);
    CHECK_STATUS(warp_scope_end(none), WARP_SUCCESS);
    CHECK_EQ_PTR(serves(0), v3.handle);
    /* An error inside changes nothing of it. */
    one = scope_of(gpu(0), v1.handle);
    {
        void *ptr = NULL;
        CHECK_STATUS(warp_alloc(gpu(0), UINT64_MAX, &ptr), WARP_ERROR_SIZE_OVERFLOW);
        v1.allocate_status = WARP_ERROR_BUSY;
        CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_ERROR_ALLOCATOR_FAILED);
        v1.allocate_status = 0;
    }
    CHECK_EQ_PTR(serves(0), v1.handle);
    /* Mempool scopes and those of other things nest with them. */
    CHECK_STATUS(warp_scope_begin_mempool(gpu(0), 0, &other), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(one), WARP_ERROR_SCOPE_ORDER);
    CHECK_EQ_PTR(serves(0), v1.handle);
    CHECK_STATUS(warp_scope_end(other), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(one), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    CHECK_EQ_PTR(serves(0), NULL);
    end_all();
}

/* ---- Threads ------------------------------------------------------------------------------------------------------------ */

struct visit {
    warp_scope *scope;
    warp_allocator *serves;
};

static void *look_around(void *argument)
{
    struct visit *visit = argument;
    warp_scope *own;
    CHECK_STATUS(warp_scope_end(visit->scope), WARP_ERROR_SCOPE_ORDER);
    visit->serves = serves(0);
    own = scope_of(gpu(0), v3.handle);
    CHECK_EQ_PTR(serves(0), v3.handle);
    CHECK_STATUS(warp_scope_end(own), WARP_SUCCESS);
    CHECK_EQ_PTR(serves(0), visit->serves);
    return NULL;
}

/* Ends with its scope open. */
static void *leave_open(void *argument)
{
    (void)argument;
    scope_of(gpu(0), v3.handle);
    CHECK_EQ_PTR(serves(0), v3.handle);
    return NULL;
}

TEST(scopes_are_their_threads)
{
    struct visit visit;
    pthread_t thread;
    REQUIRE(start());
    begin_all();
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), v2.handle), WARP_SUCCESS);
    visit.scope = scope_of(gpu(0), v1.handle);
    REQUIRE(pthread_create(&thread, NULL, look_around, &visit) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ_PTR(visit.serves, v2.handle); /* new threads do not inherit */
    CHECK_EQ_PTR(serves(0), v1.handle);
    CHECK_STATUS(warp_scope_end(visit.scope), WARP_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, leave_open, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ_PTR(serves(0), v2.handle);
    CHECK_EQ_U64(allocator_info(v3.handle).references, 2); /* the thread's scope was never ended */
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    let_go(&v3);
    let_go(&v3);
    CHECK_STATUS(warp_allocator_release(v3.handle), WARP_ERROR_INVALID_HANDLE);
    CHECK_OVER(&v3);
    let_go(&v1);
    let_go(&v2);
    CHECK_OVER(&v1);
    CHECK_OVER(&v2);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

TEST(sixty_four_scopes)
{
    warp_scope *scopes[64], *one_more = (warp_scope *)(uintptr_t)1;
    int i;
    REQUIRE(start());
    begin_all();
    for (i = 0; i < 64; ++i)
        scopes[i] = scope_of(gpu(i & 1), i % 3 == 0 ? v1.handle : i % 3 == 1 ? v2.handle : NULL);
    CHECK_STATUS(warp_scope_begin_allocator(gpu(0), v3.handle, &one_more), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_PTR(one_more, NULL);
    CHECK_EQ_U64(allocator_info(v3.handle).references, 1);
    for (i = 64; i-- > 0;) {
        int last[2] = {i & 1 ? i - 1 : i, i & 1 ? i : i - 1}, number;
        for (number = 0; number < 2; ++number) {
            int at = last[number];
            CHECK_EQ_PTR(serves(number), at < 0 || at % 3 == 2 ? NULL : at % 3 == 0 ? v1.handle : v2.handle);
        }
        CHECK_STATUS(warp_scope_end(scopes[i]), WARP_SUCCESS);
    }
    CHECK_EQ_PTR(serves(0), NULL);
    CHECK_EQ_U64(allocator_info(v1.handle).references, 1);
    CHECK_EQ_U64(allocator_info(v2.handle).references, 1);
    end_all();
}

/* The scope keeps an allocator whose creator let go of it. */
TEST(a_scope_keeps_its_allocator)
{
    warp_scope *outer, *inner;
    void *ptr;
    REQUIRE(start());
    begin_all();
    outer = scope_of(gpu(0), v1.handle);
    inner = scope_of(gpu(0), v1.handle);
    let_go(&v1);
    CHECK_EQ_U64(v1.destroys, 0);
    CHECK_EQ_PTR(serves(0), v1.handle);
    ptr = plain(0);
    CHECK_STATUS(warp_scope_end(inner), WARP_SUCCESS);
    CHECK_EQ_U64(v1.destroys, 0);
    CHECK_EQ_PTR(serves(0), v1.handle);
    CHECK_STATUS(warp_scope_end(outer), WARP_SUCCESS);
    CHECK_EQ_U64(v1.destroys, 0);
    CHECK_STATUS(warp_allocator_retain(v1.handle), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(serves(0), NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_OVER(&v1);
    let_go(&v2);
    let_go(&v3);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* A shutdown takes the scope's reference; what the thread finds then is the built-in one, in the next life too. */
TEST(a_scope_over_a_shutdown)
{
    warp_scope *scope;
    void *ptr = NULL;
    REQUIRE(start());
    begin_all();
    scope = scope_of(gpu(0), v1.handle);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_OVER(&v1);
    CHECK_OVER(&v2);
    CHECK_OVER(&v3);
    REQUIRE(start());
    begin_all();
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
    CHECK_EQ_PTR(pointer_info(ptr).allocator, NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    CHECK_EQ_U64(allocator_info(v1.handle).references, 1);
    CHECK_EQ_PTR(serves(0), NULL);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), v2.handle), WARP_SUCCESS);
    CHECK_EQ_PTR(serves(0), v2.handle);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), NULL), WARP_SUCCESS);
    end_all();
}

CHECK_MAIN()
