/*
 * adaptors.h: what tests of allocators that stand on others share: built-in allocators, one of the test's own callbacks that
 * fails as it is told, and short ways to allocate.
 *
 *     struct below below = {0};
 *     warp_allocator *upstream = make_below(&below, 1), *limit = NULL;
 *     below.fails_with = WARP_ERROR_OUT_OF_MEMORY;
 */
#ifndef WARPMEM_TESTS_ADAPTORS_H
#define WARPMEM_TESTS_ADAPTORS_H

#include "blocks.h"
#include "process.h"

#include <pthread.h>

UNUSED warp_allocator *builtin(warp_memory_kind kind)
{
    warp_allocator *allocator = NULL;
    CHECK_STATUS(warp_allocator_get_builtin(kind, &allocator), WARP_SUCCESS);
    return allocator;
}

UNUSED warp_alloc_request asked(warp_device *device, uint64_t size, const char *tag)
{
    warp_alloc_request request;
    memset(&request, 0, sizeof request);
    request.struct_size = sizeof request;
    request.device = device;
    request.size = size;
    request.tag = tag;
    return request;
}

UNUSED warp_status try_take(warp_allocator *allocator, warp_device *device, uint64_t size, void **out)
{
    warp_alloc_request request = asked(device, size, NULL);
    return warp_allocator_allocate(allocator, &request, out);
}

/* Memory straight from the allocator. */
UNUSED void *take(warp_allocator *allocator, warp_device *device, uint64_t size)
{
    void *ptr = NULL;
    CHECK_STATUS(try_take(allocator, device, size, &ptr), WARP_SUCCESS);
    CHECK(ptr != NULL);
    return ptr;
}

UNUSED void give(warp_allocator *allocator, void *ptr)
{
    CHECK_STATUS(warp_allocator_deallocate(allocator, ptr, NULL), WARP_SUCCESS);
}

UNUSED warp_status try_block(warp_allocator *allocator, warp_device *device, uint64_t size, const char *tag, void **out)
{
    warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, NULL);
    options.allocator = allocator;
    options.tag = tag;
    return warp_alloc_with(device, size, &options, out);
}

/* A block of the library that the allocator serves. */
UNUSED void *block_by(warp_allocator *allocator, warp_device *device, uint64_t size, const char *tag)
{
    void *ptr = NULL;
    CHECK_STATUS(try_block(allocator, device, size, tag, &ptr), WARP_SUCCESS);
    CHECK(ptr != NULL);
    return ptr;
}

UNUSED void release(warp_allocator *allocator)
{
    CHECK_STATUS(warp_allocator_release(allocator), WARP_SUCCESS);
}

UNUSED warp_allocator_statistics account_of(warp_allocator *allocator)
{
    warp_allocator_statistics account;
    memset(&account, 0xAB, sizeof account);
    account.struct_size = sizeof account;
    CHECK_STATUS(warp_allocator_get_statistics(allocator, &account), WARP_SUCCESS);
    return account;
}

UNUSED uint64_t used_of(warp_allocator *limit)
{
    uint64_t used = 77;
    CHECK_STATUS(warp_allocator_limit_get(limit, NULL, &used), WARP_SUCCESS);
    return used;
}

UNUSED size_t tracked(warp_allocator *tracking)
{
    size_t count = 77;
    CHECK_STATUS(warp_allocator_tracking_list(tracking, NULL, 0, 0, &count), WARP_SUCCESS);
    return count;
}

/* ---- an allocator of the test's own, of host memory --------------------------------------------------------------- */

struct below {
    warp_status fails_with;        /* what every allocation returns; 0 to serve it */
    int says_null;                 /* succeeds with NULL */
    int is_crooked;                /* gives addresses that are not aligned */
    int gives_last;                /* gives the last address again */
    warp_status deallocation_says; /* what every deallocation returns, after it was made */
    uint64_t fails_one_in;         /* of so many allocations one fails, as a random number says; 0 for none */
    uint64_t random, served, failed, taken_back, out, most, destroyed, trims;
    void *last;
    pthread_mutex_t lock;
};

UNUSED warp_status below_allocate(void *user, const warp_alloc_request *request, void **out)
{
    struct below *below = user;
    uint64_t alignment = request->alignment < 64 ? 64 : request->alignment;
    void *ptr = NULL;
    pthread_mutex_lock(&below->lock);
    if (below->fails_with != 0 || (below->fails_one_in != 0 && next_random(&below->random) % below->fails_one_in == 0)) {
        warp_status status = below->fails_with != 0 ? below->fails_with : WARP_ERROR_OUT_OF_MEMORY;
        below->failed += 1;
        pthread_mutex_unlock(&below->lock);
        return status;
    }
    if (below->says_null || below->gives_last) {
        *out = below->gives_last ? below->last : NULL;
        pthread_mutex_unlock(&below->lock);
        return WARP_SUCCESS;
    }
    if (request->size > GIB) {
        CHECK(request->size <= INT64_MAX);
        pthread_mutex_unlock(&below->lock);
        return WARP_ERROR_OUT_OF_MEMORY;
    }
    below->served += 1;
    below->out += request->size;
    if (below->out > below->most)
        below->most = below->out;
    pthread_mutex_unlock(&below->lock);
    if (posix_memalign(&ptr, (size_t)alignment, (size_t)request->size + 64) != 0)
        return WARP_ERROR_OUT_OF_MEMORY;
    if (below->is_crooked)
        ptr = (char *)ptr + 8;
    below->last = ptr;
    *out = ptr;
    return WARP_SUCCESS;
}

UNUSED warp_status below_deallocate(void *user, void *ptr, const warp_alloc_request *request)
{
    struct below *below = user;
    pthread_mutex_lock(&below->lock);
    below->taken_back += 1;
    below->out -= request->size;
    pthread_mutex_unlock(&below->lock);
    free((char *)ptr - (below->is_crooked ? 8 : 0));
    return below->deallocation_says;
}

UNUSED warp_status below_trim(void *user, const warp_alloc_request *request, uint64_t *out_freed)
{
    struct below *below = user;
    (void)request;
    __atomic_fetch_add(&below->trims, 1, __ATOMIC_RELAXED);
    *out_freed = 123;
    return WARP_SUCCESS;
}

UNUSED void below_destroy(void *user)
{
    __atomic_fetch_add(&((struct below *)user)->destroyed, 1, __ATOMIC_SEQ_CST);
}

UNUSED warp_allocator *make_below(struct below *below)
{
    warp_allocator_vtable vtable;
    warp_allocator *allocator = NULL;
    memset(below, 0, sizeof *below);
    pthread_mutex_init(&below->lock, NULL);
    memset(&vtable, 0, sizeof vtable);
    vtable.struct_size = sizeof vtable;
    vtable.name = "below";
    vtable.kind = WARP_MEMORY_HOST;
    vtable.flags = WARP_ALLOCATOR_HOST_MEMORY;
    vtable.allocate = below_allocate;
    vtable.deallocate = below_deallocate;
    vtable.trim = below_trim;
    vtable.destroy = below_destroy;
    CHECK_STATUS(warp_allocator_create(&vtable, below, &allocator), WARP_SUCCESS);
    return allocator;
}

/* ---- every adaptor ------------------------------------------------------------------------------------------------ */

enum { LIMIT, STATISTICS, TRACKING, LOGGING, CALLBACK, ALIGNED, FALLBACK, ADAPTORS };
UNUSED const char *adaptor_names[ADAPTORS] = {"limit",            "statistics", "tracking", "logging",
                                              "failure callback", "aligned",    "fallback"};

UNUSED int32_t gives_up(void *user, const warp_alloc_request *request, warp_status status, uint32_t attempt)
{
    (void)request, (void)status, (void)attempt;
    __atomic_fetch_add((int *)user, 1, __ATOMIC_SEQ_CST);
    return 0;
}

/* How often `gives_up` was asked by adaptors of `make_adaptor`. */
UNUSED int given_up;

/* An adaptor of the sort that changes nothing about what its upstream serves; the log goes to path. */
UNUSED warp_status try_adaptor(int sort, warp_allocator *upstream, const char *path, warp_allocator **out)
{
    switch (sort) {
    case LIMIT: return warp_allocator_create_limit(upstream, UINT64_MAX, out);
    case STATISTICS: return warp_allocator_create_statistics(upstream, out);
    case TRACKING: return warp_allocator_create_tracking(upstream, 0, out);
    case LOGGING: return warp_allocator_create_logging(upstream, path, out);
    case CALLBACK: return warp_allocator_create_failure_callback(upstream, gives_up, NULL, &given_up, out);
    case ALIGNED: return warp_allocator_create_aligned(upstream, 4096, out);
    default: return warp_allocator_create_fallback(upstream, upstream, out);
    }
}

UNUSED warp_allocator *make_adaptor(int sort, warp_allocator *upstream)
{
    warp_allocator *adaptor = NULL;
    CHECK_STATUS(try_adaptor(sort, upstream, "/dev/null", &adaptor), WARP_SUCCESS);
    CHECK(adaptor != NULL);
    return adaptor;
}

/* The lines of a file, and its text, good until the next call. */
UNUSED char *text_of(const char *path, size_t *lines)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    size_t length = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file), i;
    CHECK(file != NULL);
    if (file != NULL)
        fclose(file);
    text[length] = '\0';
    *lines = 0;
    for (i = 0; i < length; ++i)
        *lines += text[i] == '\n';
    return text;
}

#endif
