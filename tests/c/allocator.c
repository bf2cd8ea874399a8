/*
 * allocator.c: allocators of other code: how they are made and named, who serves a request, what a callback is told, and what is
 * known of the blocks.
 *
 * topology: h200x2
 * topology: mixed
 * needs: simulator
 */
#include "access.h"
#include "allocators.h"
#include "process.h"

static warp_allocator_vtable good(void)
{
    static struct recorder r;
    return vtable_of(&r);
}

static warp_status try_create(const warp_allocator_vtable *vtable)
{
    warp_allocator *allocator = (warp_allocator *)(uintptr_t)1;
    warp_status status = warp_allocator_create(vtable, NULL, &allocator);
    if (status == WARP_SUCCESS)
        CHECK_STATUS(warp_allocator_release(allocator), WARP_SUCCESS);
    else
        CHECK_EQ_PTR(allocator, NULL);
    return status;
}

/* A destroy that must not be called. */
static int destroyed_by_mistake;
static void no_destroy(void *user)
{
    (void)user;
    destroyed_by_mistake = 1;
}

TEST(vtables_that_cannot_be)
{
    static const struct {
        warp_memory_kind kind;
        uint32_t flags;
        warp_status status;
        const char *says;
    } rows[] = {
        {0, 0, 0, NULL},
        {0, WARP_ALLOCATOR_HOST_MEMORY, 0, NULL},
        {0, WARP_ALLOCATOR_STREAM_ORDERED | WARP_ALLOCATOR_MANAGES_CONTEXT, 0, NULL},
        {0, 8, WARP_ERROR_INVALID_ARGUMENT, "0x8"},
        {0, 0x80000000u, WARP_ERROR_INVALID_ARGUMENT, "0x80000000"},
        {6, 0, WARP_ERROR_INVALID_ARGUMENT, "6"},
        {-1, 0, WARP_ERROR_INVALID_ARGUMENT, "-1"},
        {WARP_MEMORY_HOST, WARP_ALLOCATOR_HOST_MEMORY, 0, NULL},
        {WARP_MEMORY_PINNED, WARP_ALLOCATOR_HOST_MEMORY, 0, NULL},
        {WARP_MEMORY_HOST, 0, WARP_ERROR_INVALID_ARGUMENT, "WARP_ALLOCATOR_HOST_MEMORY"},
        {WARP_MEMORY_PINNED, 0, WARP_ERROR_INVALID_ARGUMENT, "WARP_ALLOCATOR_HOST_MEMORY"},
        {WARP_MEMORY_CUDA_DEVICE, 0, 0, NULL},
        {WARP_MEMORY_CUDA_MEMPOOL, WARP_ALLOCATOR_STREAM_ORDERED, 0, NULL},
        {WARP_MEMORY_CUDA_MANAGED, 0, 0, NULL},
        {WARP_MEMORY_CUDA_DEVICE, WARP_ALLOCATOR_HOST_MEMORY, WARP_ERROR_INVALID_ARGUMENT, "CUDA_DEVICE"},
        {WARP_MEMORY_CUDA_MEMPOOL, WARP_ALLOCATOR_HOST_MEMORY, WARP_ERROR_INVALID_ARGUMENT, "CUDA_MEMPOOL"},
        {WARP_MEMORY_CUDA_MANAGED, WARP_ALLOCATOR_HOST_MEMORY, WARP_ERROR_INVALID_ARGUMENT, "CUDA_MANAGED"},
    };
    warp_allocator_vtable vtable = good();
    warp_allocator *allocator = NULL;
    struct {
        warp_allocator_vtable known;
        uint64_t more;
    } longer;
    size_t i;
    CHECK_STATUS(warp_allocator_create(&vtable, NULL, &allocator), WARP_ERROR_NOT_INITIALIZED);
    REQUIRE(start());
    for (i = 0; i < sizeof rows / sizeof *rows; ++i) {
        vtable = good();
        vtable.kind = rows[i].kind;
        vtable.flags = rows[i].flags;
        vtable.destroy = rows[i].status != 0 ? no_destroy : NULL;
        CHECK_STATUS(try_create(&vtable), rows[i].status);
        if (rows[i].says != NULL)
            CHECK_STR_CONTAINS(warp_error_get_message(), rows[i].says);
    }
    CHECK_STATUS(try_create(NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_create(&vtable, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    vtable = good();
    vtable.destroy = no_destroy;
    vtable.allocate = NULL;
    CHECK_STATUS(try_create(&vtable), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "no allocate callback");
    vtable = good();
    vtable.destroy = no_destroy;
    vtable.deallocate = NULL;
    CHECK_STATUS(try_create(&vtable), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "no deallocate callback");
    vtable.struct_size = 0;
    CHECK_STATUS(try_create(&vtable), WARP_ERROR_INVALID_ARGUMENT);
    vtable.struct_size = 4;
    CHECK_STATUS(try_create(&vtable), WARP_ERROR_INVALID_ARGUMENT);
    vtable.struct_size = (size_t)-1;
    CHECK_STATUS(try_create(&vtable), WARP_ERROR_INVALID_ARGUMENT);
    /* A longer one is a newer caller, whose further callbacks must not be set. */
    memset(&longer, 0, sizeof longer);
    longer.known = good();
    longer.known.destroy = NULL;
    longer.known.struct_size = sizeof longer;
    CHECK_STATUS(try_create(&longer.known), WARP_SUCCESS);
    longer.more = 1;
    CHECK_STATUS(try_create(&longer.known), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_I64(destroyed_by_mistake, 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create(&vtable, NULL, &allocator), WARP_ERROR_SHUT_DOWN);
}

TEST(references_and_what_is_known)
{
    struct recorder r = {.name = "of references", .kind = WARP_MEMORY_CUDA_DEVICE, .flags = WARP_ALLOCATOR_STREAM_ORDERED};
    struct recorder plain = {.name = "a name that is longer than the sixty-three letters which the field of the info has room for, says it"};
    warp_allocator *allocator, *same = NULL;
    warp_allocator_info info;
    REQUIRE(start());
    allocator = created(&r, WARP_MEMORY_CUDA_DEVICE);
    info = allocator_info(allocator);
    CHECK_EQ_STR(info.name, "of references");
    CHECK_EQ_STR(info.sort, "custom");
    CHECK_EQ_I64(info.kind, WARP_MEMORY_CUDA_DEVICE);
    CHECK_EQ_U64(info.flags, WARP_ALLOCATOR_STREAM_ORDERED);
    CHECK_EQ_U64(info.references, 1);
    CHECK_EQ_U64(info.failed_deallocations, 0);
    CHECK_STATUS(warp_allocator_retain(allocator), WARP_SUCCESS);
    CHECK_EQ_U64(allocator_info(allocator).references, 2);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), allocator), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(1), allocator), WARP_SUCCESS);
    CHECK_EQ_U64(allocator_info(allocator).references, 4);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(1), allocator), WARP_SUCCESS); /* again */
    CHECK_EQ_U64(allocator_info(allocator).references, 4);
    CHECK_STATUS(warp_allocator_set_for_all(allocator), WARP_SUCCESS);
    CHECK_EQ_U64(allocator_info(allocator).references, 3);
    CHECK_STATUS(warp_allocator_release(allocator), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(allocator), WARP_SUCCESS);
    CHECK_EQ_U64(allocator_info(allocator).references, 1);
    CHECK_STATUS(warp_allocator_get_for_device(gpu(1), &same), WARP_SUCCESS);
    CHECK_EQ_PTR(same, allocator);
    CHECK_EQ_U64(r.destroys, 0);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    CHECK_EQ_U64(r.destroys, 1);
    CHECK_STATUS(warp_allocator_release(allocator), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_allocator_retain(allocator), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_allocator_set_for_all(allocator), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), allocator), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_allocator_stop(allocator), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_allocator_measure(allocator, NULL, NULL), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_allocator_trim(allocator, NULL, NULL), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_U64(r.destroys, 1);
    CHECK_EQ_U64(r.allocates + r.deallocates + r.trims + r.statistics_calls, 0);
    /* NULL does nothing. */
    CHECK_STATUS(warp_allocator_retain(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_stop(NULL), WARP_ERROR_INVALID_HANDLE);
    /* Other handles are no allocators. */
    CHECK_STATUS(warp_allocator_retain((warp_allocator *)gpu(0)), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_allocator_release((warp_allocator *)stream_of(gpu(0))), WARP_ERROR_INVALID_HANDLE);

    allocator = created(&plain, WARP_MEMORY_CUDA_DEVICE);
    info = allocator_info(allocator);
    CHECK_EQ_U64(strlen(info.name), 63);
    CHECK_EQ_I64(strncmp(info.name, plain.name, 63), 0);
    CHECK_EQ_I64(info.kind, WARP_MEMORY_UNKNOWN);
    CHECK_EQ_U64(info.flags, 0);
    let_go(&plain);
    CHECK_OVER(&plain);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* What each GPU has switched on, as an allocator: below others, installed, and for memory that comes back when that changed. */
TEST(the_default_allocator_is_what_is_switched_on)
{
    warp_allocator *is_default, *limit = NULL;
    warp_scope *scope = NULL;
    uint64_t blocks = 9;
    void *ptr, *plain;
    size_t d;
    REQUIRE(start());
    is_default = builtin(WARP_MEMORY_UNKNOWN);
    CHECK_EQ_STR(allocator_info(is_default).name, "default");
    CHECK_EQ_I64(allocator_info(is_default).kind, WARP_MEMORY_UNKNOWN);
    CHECK_STATUS(warp_allocator_create_limit(is_default, 8192, &limit), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_all(limit), WARP_SUCCESS);
    for (d = 0; d < gpu_count(); ++d) {
        warp_device *device = gpu((int)d);
        const int has_pools = info_of(device).is_mempool_supported;
        warp_alloc_request request = {.struct_size = sizeof request, .size = 4096, .device = device};
        CHECK_STATUS(warp_alloc(device, 4096, &ptr), WARP_SUCCESS);
        CHECK_EQ_I64(pointer_info(ptr).kind, has_pools ? WARP_MEMORY_CUDA_MEMPOOL : WARP_MEMORY_CUDA_DEVICE);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_allocate(is_default, &request, &ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_scope_begin_mempool(device, 0, &scope), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc(device, 4096, &plain), WARP_SUCCESS);
        CHECK_EQ_I64(pointer_info(plain).kind, WARP_MEMORY_CUDA_DEVICE);
        CHECK_STATUS(warp_allocator_deallocate(is_default, ptr, &request), WARP_SUCCESS);
        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
        CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(limit), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_measure(is_default, &blocks, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(blocks, 0);
    {
        warp_alloc_options options = {.struct_size = sizeof options, .allocator = is_default};
        CHECK_STATUS(warp_alloc_with(cpu(), 64, &options, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    }
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

TEST(built_in_allocators)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_HOST, WARP_MEMORY_PINNED, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL,
                                             WARP_MEMORY_CUDA_MANAGED};
    warp_allocator *allocator = (warp_allocator *)(uintptr_t)1, *again = NULL;
    size_t i;
    REQUIRE(start());
    CHECK_STATUS(warp_allocator_get_builtin(6, &allocator), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(allocator, NULL);
    CHECK_STATUS(warp_allocator_get_builtin(WARP_MEMORY_HOST, NULL), WARP_ERROR_INVALID_ARGUMENT);
    for (i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        warp_device *of = kinds[i] <= WARP_MEMORY_PINNED ? cpu() : gpu(0);
        warp_device *not_of = kinds[i] <= WARP_MEMORY_PINNED ? gpu(0) : cpu();
        warp_allocator_info info;
        void *ptr = NULL;
        allocator = builtin(kinds[i]);
        CHECK_STATUS(warp_allocator_get_builtin(kinds[i], &again), WARP_SUCCESS);
        CHECK_EQ_PTR(again, allocator);
        info = allocator_info(allocator);
        CHECK_EQ_STR(info.sort, "built-in");
        CHECK_STR_CONTAINS(kind_names[kinds[i]], info.name);
        CHECK_EQ_I64(info.kind, kinds[i]);
        CHECK_EQ_U64(info.references, 0);
        CHECK_EQ_U64(info.flags & WARP_ALLOCATOR_HOST_MEMORY, kinds[i] <= WARP_MEMORY_PINNED ? WARP_ALLOCATOR_HOST_MEMORY : 0);
        /* Nothing to give back, however often. */
        CHECK_STATUS(warp_allocator_release(allocator), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_release(allocator), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_retain(allocator), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_stop(allocator), WARP_SUCCESS);
        ptr = block_by(of, allocator, 1000, NULL);
        CHECK_EQ_I64(pointer_info(ptr).kind, kinds[i]);
        CHECK_EQ_PTR(pointer_info(ptr).allocator, NULL);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_STATUS(try_by(not_of, allocator, 1000, NULL, &ptr), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_PTR(ptr, NULL);
        CHECK_STATUS(warp_allocator_get_statistics(allocator, &(warp_allocator_statistics){.struct_size = sizeof(warp_allocator_statistics)}),
                     WARP_ERROR_NOT_SUPPORTED);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_get_builtin(kinds[i], &again), WARP_ERROR_SHUT_DOWN);
        REQUIRE(start());
        CHECK_STATUS(warp_allocator_get_builtin(kinds[i], &again), WARP_SUCCESS);
        CHECK_EQ_PTR(again, allocator); /* as long as the process lives */
    }
    /* What is switched on shows in what serves. */
    CHECK_STATUS(warp_allocator_get_for_device(gpu(0), &allocator), WARP_SUCCESS);
    CHECK_EQ_PTR(allocator, builtin(has_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL) ? WARP_MEMORY_CUDA_MEMPOOL : WARP_MEMORY_CUDA_DEVICE));
    CHECK_STATUS(warp_mempool_set_enabled(gpu(0), 0), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_get_for_device(gpu(0), &allocator), WARP_SUCCESS);
    CHECK_EQ_PTR(allocator, builtin(WARP_MEMORY_CUDA_DEVICE));
    CHECK_STATUS(warp_allocator_get_for_device(cpu(), &allocator), WARP_SUCCESS);
    CHECK_EQ_PTR(allocator, builtin(WARP_MEMORY_HOST));
    /* A built-in one can be installed, and serves. */
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), builtin(WARP_MEMORY_CUDA_MANAGED)), WARP_SUCCESS);
    {
        void *ptr = NULL;
        CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
        CHECK_EQ_I64(pointer_info(ptr).kind, WARP_MEMORY_CUDA_MANAGED);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), builtin(WARP_MEMORY_PINNED)), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_set_for_all(builtin(WARP_MEMORY_HOST)), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "host memory");
    CHECK_STATUS(warp_allocator_get_for_device(gpu(0), &allocator), WARP_SUCCESS);
    CHECK_EQ_PTR(allocator, builtin(WARP_MEMORY_CUDA_MANAGED));
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* ---- Who serves --------------------------------------------------------------------------------------------------------- */

enum { NOT_SET, BY_NULL, BY_ONE };

struct setting {
    int allocator;         /* of the options: 0 none, 1 one that says CUDA_DEVICE, 2 one that says nothing, 3 built-in managed */
    warp_memory_kind kind; /* of the options */
    int pool;              /* of the options */
    int scope, device, all;
    int mempool_scope; /* -1 none, else its value */
    int mempool;       /* switched on */
};

/* What must come of it: the allocator's number, or 0 and the built-in kind, or -1 for a request that contradicts itself. */
static int rightly(const struct setting *s, warp_memory_kind *kind)
{
    *kind = WARP_MEMORY_UNKNOWN;
    if (s->pool && (s->allocator != 0 || (s->kind != 0 && s->kind != WARP_MEMORY_CUDA_MEMPOOL)))
        return -1;
    if (s->allocator == 3) {
        *kind = WARP_MEMORY_CUDA_MANAGED;
        return s->kind == 0 || s->kind == WARP_MEMORY_CUDA_MANAGED ? 0 : -1;
    }
    if (s->allocator == 2)
        return s->kind == 0 ? 2 : -1;
    if (s->allocator == 1)
        return s->kind == 0 || s->kind == WARP_MEMORY_CUDA_DEVICE ? 1 : -1;
    if (s->pool)
        *kind = WARP_MEMORY_CUDA_MEMPOOL;
    else if (s->kind != 0)
        *kind = s->kind;
    if (*kind != 0)
        return 0;
    if (s->scope == BY_ONE)
        return 3;
    if (s->scope == NOT_SET && s->device == BY_ONE)
        return 4;
    if (s->scope == NOT_SET && s->device == NOT_SET && s->all == BY_ONE)
        return 5;
    *kind = (s->mempool_scope >= 0 ? s->mempool_scope : s->mempool) ? WARP_MEMORY_CUDA_MEMPOOL : WARP_MEMORY_CUDA_DEVICE;
    return 0;
}

static struct recorder servers[6];

static void check_served(const struct setting *s, warp_mempool *pool)
{
    warp_alloc_options options = options_of(s->kind, NULL);
    warp_memory_kind kind;
    int who = rightly(s, &kind), by = 0, i, failures = check_failure_count();
    uint64_t before[6], frees[6];
    void *ptr = (void *)(uintptr_t)1;
    warp_status status;
    options.allocator = s->allocator == 3 ? builtin(WARP_MEMORY_CUDA_MANAGED) : s->allocator != 0 ? servers[s->allocator].handle : NULL;
    options.mempool = s->pool ? pool : NULL;
    for (i = 1; i < 6; ++i) {
        before[i] = servers[i].allocates;
        frees[i] = servers[i].deallocates;
    }
    status = warp_alloc_with(gpu(0), 4096, &options, &ptr);
    CHECK_STATUS(status, who < 0 ? WARP_ERROR_INVALID_ARGUMENT : WARP_SUCCESS);
    for (i = 1; i < 6; ++i)
        if (servers[i].allocates != before[i]) {
            CHECK_EQ_U64(servers[i].allocates, before[i] + 1);
            by = by == 0 ? i : -9;
        }
    CHECK_EQ_I64(by, who < 0 ? 0 : who);
    if (status == WARP_SUCCESS) {
        warp_pointer_info info = pointer_info(ptr);
        CHECK_EQ_PTR(info.allocator, who > 0 ? servers[who].handle : NULL);
        if (who == 0)
            CHECK_EQ_I64(info.kind, kind);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    } else {
        CHECK_EQ_PTR(ptr, NULL);
    }
    for (i = 1; i < 6; ++i)
        CHECK_EQ_U64(servers[i].deallocates, frees[i] + (i == who));
    if (check_failure_count() != failures)
        printf("\n      allocator %d, kind %d, pool %d, scope %d, device %d, all %d, mempool scope %d, mempools %d", s->allocator,
               s->kind, s->pool, s->scope, s->device, s->all, s->mempool_scope, s->mempool);
}

TEST(who_serves)
{
    static const warp_memory_kind kinds[] = {0, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    static const char *const names[] = {"", "plain of the options", "any of the options", "scope", "device", "all"};
    struct setting s;
    warp_mempool *pool = NULL;
    int i;
    REQUIRE(start());
    if (!has_kind(gpu(0), WARP_MEMORY_CUDA_MEMPOOL) || !has_kind(gpu(0), WARP_MEMORY_CUDA_MANAGED))
        SKIP("the first GPU has no pools");
    memset(servers, 0, sizeof servers);
    for (i = 1; i < 6; ++i) {
        servers[i].name = names[i];
        servers[i].kind = i == 1 ? WARP_MEMORY_CUDA_DEVICE : 0;
        created(&servers[i], WARP_MEMORY_CUDA_DEVICE);
    }
    CHECK_STATUS(warp_mempool_get(gpu(0), &pool), WARP_SUCCESS);
    for (s.all = 0; s.all < 3; ++s.all) {
        for (s.device = 0; s.device < 3; ++s.device) {
            /* What is set for all takes the place of what was set for one. */
            if (s.all != NOT_SET || s.device == NOT_SET)
                CHECK_STATUS(warp_allocator_set_for_all(s.all == BY_ONE ? servers[5].handle : NULL), WARP_SUCCESS);
            if (s.device != NOT_SET)
                CHECK_STATUS(warp_allocator_set_for_device(gpu(0), s.device == BY_ONE ? servers[4].handle : NULL), WARP_SUCCESS);
            for (s.mempool = 0; s.mempool < 2; ++s.mempool) {
                CHECK_STATUS(warp_mempool_set_enabled(gpu(0), (uint8_t)s.mempool), WARP_SUCCESS);
                for (s.scope = 0; s.scope < 3; ++s.scope) {
                    warp_scope *scope = NULL;
                    if (s.scope != NOT_SET)
                        CHECK_STATUS(warp_scope_begin_allocator(gpu(0), s.scope == BY_ONE ? servers[3].handle : NULL, &scope),
                                     WARP_SUCCESS);
                    for (s.mempool_scope = -1; s.mempool_scope < 2; ++s.mempool_scope) {
                        warp_scope *inner = NULL;
                        if (s.mempool_scope >= 0)
                            CHECK_STATUS(warp_scope_begin_mempool(gpu(0), (uint8_t)s.mempool_scope, &inner), WARP_SUCCESS);
                        for (s.allocator = 0; s.allocator < 4; ++s.allocator)
                            for (i = 0; i < 4; ++i)
                                for (s.kind = kinds[i], s.pool = 0; s.pool < 2 && check_failure_count() < 20; ++s.pool)
                                    check_served(&s, pool);
                        if (inner != NULL)
                            CHECK_STATUS(warp_scope_end(inner), WARP_SUCCESS);
                    }
                    if (scope != NULL)
                        CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
                }
            }
        }
    }
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    for (i = 1; i < 6; ++i) {
        let_go(&servers[i]);
        CHECK_OVER(&servers[i]);
        CHECK(servers[i].allocates >= 6);
    }
    CHECK_STATUS(warp_mempool_set_enabled(gpu(0), 1), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* Other GPUs and the CPU are served as before. */
TEST(others_are_not_served)
{
    struct recorder r = {0}, host = {.flags = WARP_ALLOCATOR_HOST_MEMORY};
    void *ptr = NULL;
    warp_allocator *allocator;
    REQUIRE(start());
    allocator = created(&r, WARP_MEMORY_CUDA_DEVICE);
    created(&host, WARP_MEMORY_HOST);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), allocator), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(1), 64, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(cpu(), 64, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_all(allocator), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(cpu(), 64, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.allocates, 0);
    CHECK_STATUS(warp_alloc(gpu(1), 64, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.allocates, 1);
    /* The CPU's are named, and never installed. */
    CHECK_STATUS(warp_allocator_set_for_device(cpu(), allocator), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_set_for_device(cpu(), NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), host.handle), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_set_for_all(host.handle), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(try_by(cpu(), allocator, 64, NULL, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "cuda:N");
    CHECK_STATUS(try_by(gpu(0), host.handle, 64, NULL, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cpu\"");
    CHECK_EQ_U64(host.allocates, 0);
    ptr = block_by(cpu(), host.handle, 100, NULL);
    CHECK_EQ_U64(host.allocates, 1);
    CHECK_EQ_U64(host.allocated.alignment, 64);
    CHECK_EQ_I64(host.allocated.ordinal, -1);
    CHECK_EQ_PTR(host.allocated.device, cpu());
    CHECK_EQ_PTR(host.allocated.stream, NULL);
    CHECK_EQ_PTR(host.allocated.native_context, NULL);
    CHECK_EQ_U64(host.allocated.stream_id, 0);
    CHECK_EQ_I64(pointer_info(ptr).kind, WARP_MEMORY_HOST);
    CHECK_EQ_I64(pointer_info(ptr).rule, WARP_ACCESS_RULE_PAGEABLE);
    CHECK_EQ_PTR(pointer_info(ptr).allocator, host.handle);
    memset(ptr, 5, 100);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(host.deallocated.flags, WARP_ALLOC_REQUEST_IDLE);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    let_go(&r);
    let_go(&host);
    CHECK_OVER(&r);
    CHECK_OVER(&host);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* Contexts that join the table later, and what takes the place of a lost one. */
TEST(devices_that_come_later)
{
    struct recorder r = {0}, own = {0};
    warp_device *foreign = NULL;
    CUcontext context;
    void *ptr = NULL, *old = NULL;
    REQUIRE(start());
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    created(&own, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_allocator_set_for_all(r.handle), WARP_SUCCESS);
    SIMULATOR(cuInit)(0);
    context = driver_foreign(0);
    CHECK_STATUS(warp_device_from_context(context, NULL, &foreign), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(foreign, 64, &ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.allocates, 1);
    CHECK_EQ_PTR(r.allocated.device, foreign);
    CHECK_EQ_PTR(r.allocated.native_context, context);
    CHECK_EQ_PTR(r.current, context);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_PTR(r.current_back, context);
    /* One of its own, which the GPU's primary context has not. */
    CHECK_STATUS(warp_allocator_set_for_device(foreign, own.handle), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(foreign, 64, &ptr), WARP_SUCCESS);
    CHECK_EQ_U64(own.allocates, 1);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.allocates, 2);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    /* Removed from the table, with a block that lives on: it is freed in its context. */
    CHECK_STATUS(warp_alloc(foreign, 64, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_device_remove(foreign), WARP_SUCCESS);
    CHECK_EQ_PTR(pointer_info(ptr).device, NULL);
    CHECK_EQ_PTR(pointer_info(ptr).allocator, own.handle);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(own.deallocates, 2);
    CHECK_EQ_PTR(own.deallocated.device, NULL);
    CHECK_EQ_PTR(own.current_back, context);
    CHECK_EQ_PTR(own.deallocated.native_context, context);
    own.allocates = own.deallocates = 1;
    SIMULATOR(cuCtxDestroy_v2)(context);

    /* The primary context dies: the block's maker is told that it is gone. */
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), own.handle), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(0), 64, &old), WARP_SUCCESS);
    CHECK_EQ_U64(own.allocates, 2);
    SIMULATOR(warpsim_reset_device)(0);
    CHECK(gpu(0) != own.allocated.device);
    CHECK_EQ_I64(pointer_info(old).is_lost, 1);
    CHECK_STATUS(warp_free(old), WARP_SUCCESS);
    CHECK_EQ_U64(own.deallocated.flags, WARP_ALLOC_REQUEST_IDLE | WARP_ALLOC_REQUEST_DEVICE_LOST);
    CHECK_EQ_PTR(own.deallocated.device, NULL);
    CHECK_EQ_PTR(own.deallocated.stream, NULL);
    CHECK_EQ_PTR(own.deallocated.native_context, NULL);
    CHECK_EQ_PTR(own.current_back, NULL);
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
    CHECK_EQ_U64(own.allocates, 3);
    CHECK_EQ_PTR(own.allocated.device, gpu(0));

    /* And once more: the driver gives the address again before anybody frees what had it. */
    old = ptr;
    SIMULATOR(warpsim_reset_device)(0);
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
    CHECK_EQ_PTR(ptr, old);
    CHECK_EQ_I64(pointer_info(ptr).is_lost, 0);
    CHECK_EQ_PTR(pointer_info(ptr).allocator, own.handle);
    CHECK_EQ_U64(statistics_of(gpu(0), 0).live_blocks, 1);
    /* The allocator is told of the dead one, and what it passes on leaves the new one alone. */
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(own.deallocates, 3);
    CHECK_EQ_U64(own.deallocated.flags, WARP_ALLOC_REQUEST_IDLE | WARP_ALLOC_REQUEST_DEVICE_LOST);
    put_pattern(ptr, 64, 1);
    CHECK_EQ_U64(find_pattern(ptr, 64, 1), 64);
    /* The same when another allocator, or a built-in one, has the address. */
    old = ptr;
    SIMULATOR(warpsim_reset_device)(0);
    ptr = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    CHECK_EQ_PTR(ptr, old);
    CHECK_EQ_PTR(pointer_info(ptr).allocator, NULL);
    CHECK_EQ_U64(own.deallocates, 3); /* this one calls nobody */
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(own.deallocates, 4);
    CHECK_EQ_U64(own.deallocated.flags, WARP_ALLOC_REQUEST_IDLE | WARP_ALLOC_REQUEST_DEVICE_LOST);
    CHECK_EQ_U64(find_pattern(ptr, 64, 1) == 64, 0);
    put_pattern(ptr, 64, 2);
    CHECK_EQ_U64(find_pattern(ptr, 64, 2), 64);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    let_go(&r);
    let_go(&own);
    CHECK_OVER(&r);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_OVER(&own);
    CHECK_EQ_PTR(driver_current(), NULL);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* ---- What is asked ------------------------------------------------------------------------------------------------------ */

TEST(the_request)
{
    static const uint64_t alignments[] = {0, 1, 64, 256, 512, 4096, 64 * 1024};
    struct recorder r = {.kind = WARP_MEMORY_CUDA_MEMPOOL, .flags = WARP_ALLOCATOR_STREAM_ORDERED};
    warp_stream *stream;
    size_t i;
    REQUIRE(start());
    if (!has_kind(gpu(1), WARP_MEMORY_CUDA_MEMPOOL))
        SKIP("the second GPU has no pools");
    created(&r, WARP_MEMORY_CUDA_MEMPOOL);
    stream = new_stream(gpu(1), WARP_STREAM_NON_BLOCKING);
    for (i = 0; i < sizeof alignments / sizeof *alignments; ++i) {
        warp_alloc_options options = options_of(0, stream);
        uint64_t right = alignments[i] < 256 ? 256 : alignments[i];
        void *ptr = NULL;
        options.allocator = r.handle;
        options.alignment = alignments[i];
        options.tag = i == 0 ? NULL : "of a test";
        CHECK_STATUS(warp_alloc_with(gpu(1), 1001, &options, &ptr), WARP_SUCCESS);
        CHECK_EQ_U64(r.allocated.struct_size, sizeof r.allocated);
        CHECK_EQ_U64(r.allocated.size, 1001);
        CHECK_EQ_U64(r.allocated.alignment, right);
        CHECK_EQ_PTR(r.allocated.device, gpu(1));
        CHECK_EQ_PTR(r.allocated.stream, stream);
        CHECK_EQ_PTR(r.allocated.native_context, context_of(gpu(1)));
        CHECK_EQ_U64((uintptr_t)r.allocated.native_stream, native_stream(stream));
        CHECK_EQ_U64(r.allocated.stream_id, stream_info(stream).id);
        CHECK_EQ_STR(r.tag, i == 0 ? "(none)" : "of a test");
        CHECK_EQ_I64(r.allocated.ordinal, 1);
        CHECK_EQ_I64(r.allocated.kind, WARP_MEMORY_CUDA_MEMPOOL);
        CHECK_EQ_U64(r.allocated.flags, 0);
        CHECK_EQ_U64(r.allocated.reserved, 0);
        CHECK_EQ_PTR(r.out_before, NULL);
        CHECK_EQ_PTR(r.current, context_of(gpu(1)));
        CHECK_EQ_I64(r.mode, 2);
        CHECK_EQ_U64((uintptr_t)ptr % right, 0);
        CHECK_EQ_U64(pointer_info(ptr).alignment, right);
        CHECK_EQ_U64(pointer_info(ptr).size, 1001);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_EQ_PTR(r.got_back, ptr);
        CHECK_EQ_U64(r.deallocated.size, 1001);
        CHECK_EQ_U64(r.deallocated.alignment, right);
        CHECK_EQ_PTR(r.deallocated.device, gpu(1));
        CHECK_EQ_PTR(r.deallocated.stream, stream);
        CHECK_EQ_U64((uintptr_t)r.deallocated.native_stream, native_stream(stream));
        CHECK_EQ_U64(r.deallocated.flags, 0);
        CHECK_EQ_PTR(r.current_back, context_of(gpu(1)));
        CHECK_EQ_PTR(driver_current(), NULL);
    }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    let_go(&r);
    CHECK_OVER(&r);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* Numbers that nobody can serve reach no callback, by any way in. */
TEST(numbers_without_sense)
{
    static const struct {
        uint64_t size, alignment;
        warp_status status;
    } rows[] = {
        {1, 3, WARP_ERROR_BAD_ALIGNMENT},
        {1, 255, WARP_ERROR_BAD_ALIGNMENT},
        {1, 768, WARP_ERROR_BAD_ALIGNMENT},
        {0, 3, WARP_ERROR_BAD_ALIGNMENT},
        {1, UINT64_MAX, WARP_ERROR_BAD_ALIGNMENT},
        {(uint64_t)1 << 63, 0, WARP_ERROR_SIZE_OVERFLOW},
        {((uint64_t)1 << 63) - 1, 2, WARP_ERROR_SIZE_OVERFLOW},
        {UINT64_MAX, 0, WARP_ERROR_SIZE_OVERFLOW},
        {UINT64_MAX - 254, 0, WARP_ERROR_SIZE_OVERFLOW},
        {UINT64_MAX - 255, 256, WARP_ERROR_SIZE_OVERFLOW},
        {1, (uint64_t)1 << 63, WARP_ERROR_SIZE_OVERFLOW},
        {0, 0, WARP_SUCCESS},
        {0, 64 * KIB, WARP_SUCCESS},
    };
    struct recorder r = {0};
    size_t i;
    int way;
    REQUIRE(start());
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    for (way = 0; way < 4; ++way) {
        if (way == 1)
            CHECK_STATUS(warp_allocator_set_for_all(r.handle), WARP_SUCCESS);
        for (i = 0; i < sizeof rows / sizeof *rows; ++i) {
            warp_alloc_options options = options_of(0, NULL);
            warp_alloc_request request;
            void *ptr = (void *)(uintptr_t)1;
            memset(&request, 0, sizeof request);
            request.struct_size = sizeof request;
            request.size = rows[i].size;
            options.alignment = request.alignment = rows[i].alignment;
            options.allocator = way == 0 ? r.handle : NULL;
            request.device = gpu(0);
            if (way < 2)
                CHECK_STATUS(warp_alloc_with(gpu(0), rows[i].size, &options, &ptr), rows[i].status);
            else
                CHECK_STATUS(warp_allocator_allocate(way == 2 ? r.handle : r.below, &request, &ptr), rows[i].status);
            CHECK_EQ_PTR(ptr, NULL);
        }
    }
    CHECK_EQ_U64(r.allocates, 0);
    /* The largest size that is asked of anybody arrives as it is. With the alignment that GPUs give anyway it is too large below. */
    {
        void *ptr = NULL;
        CHECK_STATUS(try_by(gpu(0), r.handle, ((uint64_t)1 << 63) - 1 - 256, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_EQ_PTR(ptr, NULL);
        CHECK_EQ_U64(r.allocated.size, ((uint64_t)1 << 63) - 1 - 256);
        CHECK_EQ_U64(r.allocates, 2); /* trimmed and asked twice */
        CHECK_EQ_U64(r.trims, 1);
        CHECK_STATUS(try_by(gpu(0), r.handle, ((uint64_t)1 << 63) - 1, NULL, &ptr), WARP_ERROR_ALLOCATOR_FAILED);
        CHECK_STR_CONTAINS(warp_error_get_message(), "WARP_ERROR_SIZE_OVERFLOW");
        CHECK_EQ_PTR(ptr, NULL);
        CHECK_EQ_U64(r.allocated.size, ((uint64_t)1 << 63) - 1);
    }
    CHECK_STATUS(warp_allocator_allocate(r.handle, NULL, &(void *){NULL}), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_deallocate(r.handle, NULL, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 0);
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    let_go(&r);
    CHECK_OVER(&r);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* Memory straight from an allocator: its account is apart from the library's, and only it gets it back. */
TEST(direct_memory)
{
    struct recorder r = {.flags = WARP_ALLOCATOR_STREAM_ORDERED}, other = {0};
    warp_alloc_request request = {.struct_size = sizeof request, .size = 1000, .tag = "direct"};
    void *ptr = NULL, *block;
    warp_pointer_info info;
    uint64_t blocks = 0, bytes = 0;
    REQUIRE(start());
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    created(&other, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_allocator_allocate(r.handle, &request, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "current context");
    CHECK_STATUS(warp_allocator_deallocate(r.handle, at(4096), NULL), WARP_ERROR_UNKNOWN_POINTER);
    SIMULATOR(cuCtxSetCurrent)(context_of(gpu(1)));
    CHECK_STATUS(warp_allocator_allocate(r.handle, &request, &ptr), WARP_SUCCESS);
    CHECK_EQ_PTR(r.allocated.device, gpu(1));
    CHECK_EQ_STR(r.tag, "direct");
    CHECK_EQ_PTR(driver_current(), context_of(gpu(1)));
    SIMULATOR(cuCtxSetCurrent)(NULL);
    CHECK_EQ_U64(statistics_of(gpu(1), 0).live_blocks, 0);
    info = pointer_info(ptr);
    CHECK_EQ_I64(info.is_owned, 0);
    CHECK_EQ_PTR(info.allocator, NULL);
    CHECK_STATUS(warp_allocator_measure(r.handle, &blocks, &bytes), WARP_SUCCESS);
    CHECK_EQ_U64(blocks, 1);
    CHECK_EQ_U64(bytes, 1000);
    CHECK_EQ_U64(live_of(r.below), 1);
    /* Nobody else's. */
    CHECK_STATUS(warp_free(ptr), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_allocator_deallocate");
    CHECK_STATUS(warp_allocator_deallocate(other.handle, ptr, NULL), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STATUS(warp_allocator_deallocate(builtin(WARP_MEMORY_CUDA_MANAGED), ptr, NULL), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STATUS(warp_allocator_deallocate(r.handle, (char *)ptr + 8, NULL), WARP_ERROR_INTERIOR_POINTER);
    request.size = 999;
    CHECK_STATUS(warp_allocator_deallocate(r.handle, ptr, &request), WARP_ERROR_SIZE_MISMATCH);
    request.size = 1000;
    request.alignment = 4096;
    CHECK_STATUS(warp_allocator_deallocate(r.handle, ptr, &request), WARP_ERROR_BAD_ALIGNMENT);
    request.alignment = 3;
    CHECK_STATUS(warp_allocator_deallocate(r.handle, ptr, &request), WARP_ERROR_BAD_ALIGNMENT);
    request.alignment = 256;
    CHECK_EQ_U64(r.deallocates, 0);
    CHECK_STATUS(warp_allocator_deallocate(r.handle, ptr, &request), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 1);
    CHECK_STATUS(warp_allocator_deallocate(r.handle, ptr, &request), WARP_ERROR_DOUBLE_FREE);
    CHECK_EQ_U64(r.deallocates, 1);
    /* A block of the library is not direct memory. */
    block = block_by(gpu(0), r.handle, 64, NULL);
    CHECK_STATUS(warp_allocator_deallocate(r.handle, block, NULL), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_free");
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    let_go(&r);
    let_go(&other);
    CHECK_OVER(&r);
    CHECK_OVER(&other);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* ---- What is known of the blocks ---------------------------------------------------------------------------------------- */

TEST(arrays_of_an_allocator)
{
    struct recorder r = {0};
    int64_t shape[2] = {6, 8}, start_at[2] = {1, 0}, stop[2] = {5, 8}, step[2] = {2, 1}, none[1] = {0};
    warp_array *array = NULL, *view = NULL, *clone = NULL, *empty = NULL, *named = NULL;
    warp_array_options options = {.struct_size = sizeof options};
    float value = 7, items[48] = {0};
    REQUIRE(start());
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), r.handle), WARP_SUCCESS);
    CHECK_STATUS(warp_array_zeros(gpu(0), F32, 2, shape, NULL, &array), WARP_SUCCESS);
    CHECK_EQ_U64(r.allocates, 1);
    CHECK_EQ_U64(r.allocated.size, 6 * 8 * 4);
    CHECK_EQ_PTR(pointer_info(data_of(array)).allocator, r.handle);
    CHECK_STATUS(warp_array_zeros(gpu(0), F32, 1, none, NULL, &empty), WARP_SUCCESS);
    CHECK_EQ_U64(r.allocates, 1);
    CHECK_STATUS(warp_array_slice(array, 2, start_at, stop, step, &view), WARP_SUCCESS);
    CHECK_EQ_U64(r.allocates, 1);
    CHECK_STATUS(warp_array_fill(view, &value, sizeof value, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_clone(array, gpu(0), NULL, &clone), WARP_SUCCESS);
    CHECK_EQ_U64(r.allocates, 2);
    CHECK_EQ_U64(r.allocated.size, 6 * 8 * 4);
    copy_now(items, data_of(clone), 6 * 8 * 4, stream_of(gpu(0)));
    CHECK(items[0] == 0 && items[8] == 7 && items[47] == 0);
    copy_now(items, data_of(array), 6 * 8 * 4, stream_of(gpu(0)));
    CHECK(items[7] == 0 && items[8] == 7 && items[16] == 0 && items[24] == 7);
    /* Named in the options, whatever is installed. */
    CHECK_STATUS(warp_allocator_set_for_device(gpu(0), NULL), WARP_SUCCESS);
    options.allocator = r.handle;
    CHECK_STATUS(warp_array_full(gpu(0), F32, 2, shape, &value, &options, &named), WARP_SUCCESS);
    CHECK_EQ_U64(r.allocates, 3);
    options.kind = WARP_MEMORY_CUDA_MANAGED;
    {
        warp_array *refused = array;
        CHECK_STATUS(warp_array_empty(gpu(0), F32, 2, shape, &options, &refused), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_PTR(refused, NULL);
    }
    let_go(&r);
    /* A view keeps the memory. */
    drop(array);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 0);
    drop(view);
    CHECK_EQ_U64(r.deallocates, 1);
    drop(clone);
    drop(empty);
    CHECK_EQ_U64(r.destroys, 0);
    drop(named);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_OVER(&r);
    CHECK_EQ_U64(r.deallocates, 3);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

TEST(an_allocators_own_account)
{
    struct recorder r = {0}, mute = {.without = NO_STATISTICS | NO_TRIM};
    warp_allocator_statistics statistics = {.struct_size = sizeof statistics};
    uint64_t freed = 5;
    void *ptr;
    REQUIRE(start());
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    created(&mute, WARP_MEMORY_CUDA_DEVICE);
    ptr = block_by(gpu(0), r.handle, 64, NULL);
    CHECK_STATUS(warp_allocator_get_statistics(r.handle, &statistics), WARP_SUCCESS);
    CHECK_EQ_U64(statistics.live_blocks, 1);
    CHECK_EQ_U64(statistics.reserved_bytes, 77);
    CHECK_EQ_U64(statistics.live_bytes, 0);
    CHECK_EQ_U64(live_of(r.handle), 1);
    r.statistics_status = WARP_ERROR_BUSY;
    CHECK_STATUS(warp_allocator_get_statistics(r.handle, &statistics), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_EQ_U64(statistics.live_blocks, 0);
    CHECK_STATUS(warp_allocator_get_statistics(mute.handle, &statistics), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_allocator_trim(r.handle, gpu(1), &freed), WARP_SUCCESS);
    CHECK_EQ_U64(freed, 12345);
    CHECK_EQ_U64(r.trimmed.size, 0);
    CHECK_EQ_PTR(r.trimmed.device, gpu(1));
    CHECK_EQ_I64(r.trimmed.ordinal, 1);
    r.trim_status = -7;
    CHECK_STATUS(warp_allocator_trim(r.handle, gpu(1), &freed), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "-7");
    CHECK_EQ_U64(freed, 0);
    CHECK_STATUS(warp_allocator_trim(mute.handle, gpu(0), &freed), WARP_SUCCESS);
    CHECK_EQ_U64(freed, 0);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    let_go(&r);
    let_go(&mute);
    CHECK_OVER(&r);
    CHECK_OVER(&mute);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

/* Kind and rule are those of what it lies in, else what the vtable says, else what the driver says; access follows. */
TEST(what_blocks_are)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    static const warp_access_rule rules[] = {WARP_ACCESS_RULE_PEER, WARP_ACCESS_RULE_POOL, WARP_ACCESS_RULE_MANAGED};
    size_t i;
    int declared, way, inside;
    REQUIRE(start());
    for (i = 0; i < 3; ++i)
        for (declared = 0; declared < 2; ++declared)
            for (way = 0; way < 2; ++way) /* over the built-in one, or of the driver's memory */
                for (inside = 0; inside < 2; ++inside) {
                    struct recorder r = {.kind = declared ? kinds[i] : 0, .offset = inside ? 512 : 0};
                    warp_device_info first = info_of(gpu(0)), second = info_of(gpu(1));
                    enum origin origin = i == 0 ? OF_PLAIN : i == 1 ? OF_POOL : OF_MANAGED;
                    struct state state = {0};
                    warp_pointer_info info;
                    void *foreign = NULL, *ptr;
                    int given;
                    if (!has_kind(gpu(0), kinds[i]))
                        continue;
                    created(&r, kinds[i]);
                    if (way == 1) {
                        CUcontext context = context_of(gpu(0));
                        foreign = i == 0   ? foreign_plain(context, 8192)
                                  : i == 1 ? foreign_pooled(context, NULL, 8192)
                                           : foreign_managed(context, 8192);
                        r.gives = (char *)foreign + (inside ? 512 : 0);
                    }
                    ptr = block_by(gpu(0), r.handle, 4096, NULL);
                    info = pointer_info((char *)ptr + 100);
                    CHECK_EQ_PTR(info.base, ptr);
                    CHECK_EQ_U64(info.size, 4096);
                    CHECK_EQ_I64(info.kind, kinds[i]);
                    CHECK_EQ_I64(info.rule, rules[i]);
                    CHECK_EQ_PTR(info.device, gpu(0));
                    CHECK_EQ_PTR(info.allocator, r.handle);
                    CHECK_EQ_I64(info.is_owned, 1);
                    CHECK_EQ_I64(info.is_lost, 0);
                    CHECK_EQ_U64(statistics_of(gpu(0), kinds[i]).live_blocks, 1);
                    CHECK_EQ_U64(statistics_of(gpu(0), kinds[i]).live_bytes, 4096);
                    CHECK_EQ_U64(statistics_of(gpu(0), 0).live_blocks, 1);
                    for (given = 0; given < 2; ++given) {
                        if (given) {
                            if (i == 0 && could_be_peers(&first, &second))
                                state.peer = warp_peer_access_set_enabled(gpu(0), gpu(1), 1) == WARP_SUCCESS;
                            if (i == 1 && could_be_peers(&first, &second))
                                state.pool = warp_mempool_access_set_enabled(gpu(0), gpu(1), 1) == WARP_SUCCESS;
                        }
                        expect_pointer_at(gpu(0), ptr, table(&first, &first, origin, state), "its own GPU", __LINE__);
                        expect_pointer_at(gpu(1), ptr, table(&second, &first, origin, state), "the other GPU", __LINE__);
                        {
                            warp_device_info host = info_of(cpu());
                            expect_pointer_at(cpu(), ptr, table(&host, &first, origin, state), "the CPU", __LINE__);
                        }
                    }
                    if (state.peer)
                        CHECK_STATUS(warp_peer_access_set_enabled(gpu(0), gpu(1), 0), WARP_SUCCESS);
                    if (state.pool)
                        CHECK_STATUS(warp_mempool_access_set_enabled(gpu(0), gpu(1), 0), WARP_SUCCESS);
                    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
                    CHECK_EQ_U64(statistics_of(gpu(0), kinds[i]).live_blocks, 0);
                    let_go(&r);
                    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
                    CHECK_OVER(&r);
                    if (foreign != NULL)
                        IN(context_of(gpu(0)), DRIVER(cuMemFree_v2, address_of(foreign)));
                    if (check_failure_count() > 20)
                        return;
                }
    CHECK_GONE();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
