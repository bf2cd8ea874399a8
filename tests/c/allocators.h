/*
 * allocators.h: an allocator that writes down what it is asked, gives memory of the one below it, and misbehaves when it is told
 * to. What it has out is in a list of its own, so that a deallocation of something else, or a second one, is seen.
 *
 *     struct recorder r = {.flags = WARP_ALLOCATOR_STREAM_ORDERED};
 *     warp_allocator *allocator = created(&r, WARP_MEMORY_CUDA_MEMPOOL);
 *     CHECK_STATUS(warp_allocator_set_for_device(gpu(0), allocator), WARP_SUCCESS);
 */
#ifndef WARPMEM_TESTS_ALLOCATORS_H
#define WARPMEM_TESTS_ALLOCATORS_H

#include "blocks.h"

#include <pthread.h>

uint32_t cuThreadExchangeStreamCaptureMode(int32_t *mode);

#define OUT_MOST 1024
/* What its vtable leaves out, of what it has otherwise. */
#define NO_DESTROY 1
#define NO_TRIM 2
#define NO_STATISTICS 4
#define NO_RECORD 8

struct recorder;
typedef void (*recorder_hook)(struct recorder *r, const warp_alloc_request *request);

struct out_block {
    void *ptr;
    warp_stream *stream;
    uint64_t size, alignment, offset;
};

struct recorder {
    /* Before it is created. */
    const char *name;
    warp_memory_kind kind; /* as it says in its vtable */
    uint32_t flags, without;

    /* At any time. */
    uint64_t offset; /* its blocks lie so far inside of what it has from below */
    int allocate_status, deallocate_status, trim_status, record_status, statistics_status; /* what it answers, 0 to work */
    int out_of_memory;                                                                     /* so many allocations more are */
    void *gives;                                                                           /* hands this out, if not NULL */
    int gives_null;
    recorder_hook on_allocate, on_deallocate, on_destroy, on_trim, on_record; /* run inside, first of all */
    void *data;                                                               /* for hooks */

    /* What it saw. */
    uint64_t allocates, deallocates, destroys, trims, records, statistics_calls, wrong;
    warp_alloc_request allocated, deallocated, trimmed, recorded; /* the last request of each */
    char tag[64];                                                /* of the last allocation */
    void *got_back, *out_before;                                 /* the last deallocation; *out before the last allocation */
    CUcontext current, current_back;                             /* during them */
    int mode;                                                    /* of the thread's captures, then */

    warp_allocator *handle, *below;
    pthread_mutex_t lock;
    struct out_block out[OUT_MOST];
    size_t outs;
};

#define COUNT_UP(counter) (__atomic_fetch_add(&(counter), 1, __ATOMIC_SEQ_CST))
#define COUNT_OF(counter) (__atomic_load_n(&(counter), __ATOMIC_SEQ_CST))

UNUSED int thread_mode(void)
{
    int32_t mode = 2, was;
    if (!simulator_is_here())
        return 2;
    SIMULATOR(cuThreadExchangeStreamCaptureMode)(&mode);
    was = mode;
    SIMULATOR(cuThreadExchangeStreamCaptureMode)(&mode);
    return was;
}

UNUSED void set_thread_mode(int32_t mode)
{
    SIMULATOR(cuThreadExchangeStreamCaptureMode)(&mode);
}

UNUSED CUcontext current_if_any(void)
{
    return simulator_is_here() ? driver_current() : NULL;
}

UNUSED warp_status recorder_allocate(void *user, const warp_alloc_request *request, void **out)
{
    struct recorder *r = (struct recorder *)user;
    void *ptr = NULL;
    warp_status status = WARP_SUCCESS;
    COUNT_UP(r->allocates);
    pthread_mutex_lock(&r->lock);
    r->allocated = *request;
    r->out_before = *out;
    r->current = current_if_any();
    r->mode = thread_mode();
    snprintf(r->tag, sizeof r->tag, "%s", request->tag != NULL ? request->tag : "(none)");
    pthread_mutex_unlock(&r->lock);
    if (r->on_allocate != NULL)
        r->on_allocate(r, request);
    if (r->out_of_memory > 0) {
        --r->out_of_memory;
        return WARP_ERROR_OUT_OF_MEMORY;
    }
    if (r->allocate_status != 0 || r->gives_null) {
        *out = r->gives_null ? NULL : (void *)(uintptr_t)0x123456700ull;
        return r->allocate_status;
    }
    if (r->gives != NULL) {
        ptr = r->gives;
    } else {
        warp_alloc_request asked = *request;
        asked.size += r->offset;
        status = warp_allocator_allocate(r->below, &asked, &ptr);
        if (status != WARP_SUCCESS)
            return status;
        ptr = (char *)ptr + r->offset;
    }
    pthread_mutex_lock(&r->lock);
    if (r->outs < OUT_MOST) {
        struct out_block block;
        block.ptr = ptr;
        block.stream = request->stream;
        block.size = request->size;
        block.alignment = request->alignment;
        block.offset = r->gives != NULL ? ~(uint64_t)0 : r->offset;
        r->out[r->outs++] = block;
    } else {
        ++r->wrong;
    }
    pthread_mutex_unlock(&r->lock);
    *out = ptr;
    return WARP_SUCCESS;
}

UNUSED warp_status recorder_deallocate(void *user, void *ptr, const warp_alloc_request *request)
{
    struct recorder *r = (struct recorder *)user;
    struct out_block block;
    size_t i;
    int found = 0;
    memset(&block, 0, sizeof block);
    COUNT_UP(r->deallocates);
    pthread_mutex_lock(&r->lock);
    r->deallocated = *request;
    r->got_back = ptr;
    r->current_back = current_if_any();
    for (i = r->outs; i-- > 0 && !found;)
        if (r->out[i].ptr == ptr) {
            block = r->out[i];
            r->out[i] = r->out[--r->outs];
            found = 1;
        }
    if (!found || block.size != request->size || block.alignment != request->alignment) {
        ++r->wrong;
        printf("\n    deallocate of %p, %" PRIu64 " bytes, which \"%s\" %s", ptr, request->size, r->name,
               found ? "gave with another size or alignment" : "has not out");
    }
    pthread_mutex_unlock(&r->lock);
    if (r->on_deallocate != NULL)
        r->on_deallocate(r, request);
    if (found && block.offset != ~(uint64_t)0) {
        warp_alloc_request asked = *request;
        asked.size += block.offset;
        /* Once more where the driver failed: nothing was freed. */
        if (warp_allocator_deallocate(r->below, (char *)ptr - block.offset, &asked) != WARP_SUCCESS &&
            warp_allocator_deallocate(r->below, (char *)ptr - block.offset, &asked) != WARP_SUCCESS) {
            COUNT_UP(r->wrong);
            printf("\n    \"%s\" could not give back: %s", r->name, warp_error_get_message());
        }
    }
    return r->deallocate_status;
}

UNUSED void recorder_destroy(void *user)
{
    struct recorder *r = (struct recorder *)user;
    if (r->on_destroy != NULL)
        r->on_destroy(r, NULL);
    COUNT_UP(r->destroys);
}

UNUSED warp_status recorder_trim(void *user, const warp_alloc_request *request, uint64_t *out_freed)
{
    struct recorder *r = (struct recorder *)user;
    COUNT_UP(r->trims);
    r->trimmed = *request;
    if (*out_freed != 0)
        COUNT_UP(r->wrong);
    if (r->on_trim != NULL)
        r->on_trim(r, request);
    *out_freed = 12345;
    return r->trim_status;
}

UNUSED warp_status recorder_statistics(void *user, warp_allocator_statistics *out)
{
    struct recorder *r = (struct recorder *)user;
    COUNT_UP(r->statistics_calls);
    if (out->struct_size != sizeof *out || out->live_bytes != 0 || out->reserved_bytes != 0)
        COUNT_UP(r->wrong);
    out->live_blocks = r->outs;
    out->total_blocks = COUNT_OF(r->allocates);
    out->reserved_bytes = 77;
    return r->statistics_status;
}

UNUSED warp_status recorder_record(void *user, void *ptr, const warp_alloc_request *request)
{
    struct recorder *r = (struct recorder *)user;
    warp_stream *own = NULL;
    size_t i;
    COUNT_UP(r->records);
    pthread_mutex_lock(&r->lock);
    r->recorded = *request;
    for (i = 0; i < r->outs; ++i)
        if (r->out[i].ptr == ptr)
            own = r->out[i].stream;
    pthread_mutex_unlock(&r->lock);
    if (r->on_record != NULL)
        r->on_record(r, request);
    /* What is below orders frees behind the block's own stream. */
    if (own == NULL)
        COUNT_UP(r->wrong);
    else if (r->record_status == 0)
        return warp_stream_wait_stream(own, request->stream);
    return r->record_status;
}

UNUSED warp_allocator_vtable vtable_of(const struct recorder *r)
{
    warp_allocator_vtable vtable;
    memset(&vtable, 0, sizeof vtable);
    vtable.struct_size = sizeof vtable;
    vtable.name = r->name;
    vtable.kind = r->kind;
    vtable.flags = r->flags;
    vtable.allocate = recorder_allocate;
    vtable.deallocate = recorder_deallocate;
    vtable.destroy = r->without & NO_DESTROY ? NULL : recorder_destroy;
    vtable.trim = r->without & NO_TRIM ? NULL : recorder_trim;
    vtable.get_statistics = r->without & NO_STATISTICS ? NULL : recorder_statistics;
    vtable.record_stream = r->without & NO_RECORD ? NULL : recorder_record;
    return vtable;
}

UNUSED warp_allocator *builtin(warp_memory_kind kind)
{
    warp_allocator *allocator = NULL;
    CHECK_STATUS(warp_allocator_get_builtin(kind, &allocator), WARP_SUCCESS);
    return allocator;
}

/* Creates it over the built-in allocator of a kind. */
UNUSED warp_allocator *created(struct recorder *r, warp_memory_kind below)
{
    warp_allocator_vtable vtable;
    if (r->name == NULL)
        r->name = "recorder";
    vtable = vtable_of(r);
    pthread_mutex_init(&r->lock, NULL);
    r->below = builtin(below);
    r->handle = NULL;
    CHECK_STATUS(warp_allocator_create(&vtable, r, &r->handle), WARP_SUCCESS);
    return r->handle;
}

UNUSED void let_go(struct recorder *r)
{
    CHECK_STATUS(warp_allocator_release(r->handle), WARP_SUCCESS);
}

UNUSED warp_allocator_info allocator_info(const warp_allocator *allocator)
{
    warp_allocator_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_allocator_get_info(allocator, &info), WARP_SUCCESS);
    return info;
}

UNUSED uint64_t live_of(const warp_allocator *allocator)
{
    uint64_t blocks = 99, bytes = 99;
    CHECK_STATUS(warp_allocator_measure(allocator, &blocks, &bytes), WARP_SUCCESS);
    return blocks;
}

UNUSED warp_status try_by(warp_device *device, warp_allocator *allocator, uint64_t size, warp_stream *stream, void **out)
{
    warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, stream);
    options.allocator = allocator;
    *out = (void *)(uintptr_t)1;
    return warp_alloc_with(device, size, &options, out);
}

UNUSED void *block_by(warp_device *device, warp_allocator *allocator, uint64_t size, warp_stream *stream)
{
    void *ptr = NULL;
    CHECK_STATUS(try_by(device, allocator, size, stream, &ptr), WARP_SUCCESS);
    CHECK(ptr != NULL);
    return ptr;
}

/* It got back all that it gave, each once and as it gave it. */
UNUSED void check_even_at(struct recorder *r, const char *file, int line)
{
    check_u64(r->outs, 0, file, line, "all is given back to the allocator");
    check_u64(r->wrong, 0, file, line, "what is given back is what it gave");
}
#define CHECK_EVEN(r) check_even_at((r), __FILE__, __LINE__)

/* It is over: all given back, destroyed once. */
#define CHECK_OVER(r)                            \
    do {                                         \
        CHECK_EVEN(r);                           \
        CHECK_EQ_U64(COUNT_OF((r)->destroys), 1); \
    } while (0)

/* Messages of the log, all in one. */
static char logged_text[8192] CHECK_MAYBE_UNUSED;
static int logged_lines CHECK_MAYBE_UNUSED;

UNUSED void note_log(void *user, warp_log_level level, const char *message)
{
    size_t length = strlen(logged_text);
    (void)user, (void)level;
    ++logged_lines;
    snprintf(logged_text + length, sizeof logged_text - length, "%s\n", message);
}

UNUSED void listen_to_log(warp_log_level level)
{
    logged_text[0] = '\0';
    logged_lines = 0;
    CHECK_STATUS(warp_log_set_callback(note_log, NULL, level), WARP_SUCCESS);
}

#endif
