/*
 * Random calls of everything in the header: live, stale, foreign and made-up handles, all sizes, numbers and orders, from one
 * thread and from four, while the driver fails, streams are held, contexts die and the library is ended and begun again.
 * Whatever is called: nothing crashes or hangs, a status is a known one and never a defect, a failure is told in words and
 * leaves its outputs empty, the caller's context stays, the counts are those of a model, and in the end nothing is left.
 *
 * WARPMEM_FUZZ_SEED and WARPMEM_FUZZ_SECONDS choose other runs; WARPMEM_FUZZ_TRACE=1 prints every call to stderr.
 */
/* topology: h200x2 */
/* topology: mixed */
/* needs: simulator */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include "driver.h"

#include <pthread.h>
#include <time.h>

uint32_t cuCtxSynchronize(void);
uint32_t cuMemPoolCreate(CUmemoryPool *out, const void *properties);
uint32_t cuMemPoolDestroy(CUmemoryPool pool);

#define BLOCKS 48
#define STREAMS 12
#define EVENTS 8
#define SCOPES 6
#define ARRAYS 48
#define JUNK 64
#define THREADS 4
#define NATIVES 4
#define POOLS 6
#define FOREIGN_POOLS 2
#define CONTEXTS 2

/* Memory that arrays share. */
struct storage {
    int arrays;
    int block;       /* of the caller's blocks, else -1 */
    int deleted;     /* times that its deleter was called */
    int has_deleter;
    int orphan;      /* its free was refused by the driver, and is to be tried again by its address */
    void *base;      /* of the library's block, NULL for none */
    struct storage *next;
};

struct block {
    void *ptr;
    uint64_t size;
    int is_host, wrapped;
};

struct array {
    warp_array *handle;
    struct storage *storage;
};

/* What one thread knows. Other threads only read the streams and the events. */
struct fuzz {
    uint64_t random;
    int number, depth, lives, shares;
    uint64_t calls;
    struct block blocks[BLOCKS];
    warp_stream *streams[STREAMS];
    warp_event *events[EVENTS];
    warp_scope *scopes[SCOPES];
    int scope_count;
    struct array arrays[ARRAYS];
    warp_mempool *pools[POOLS];
    struct storage *gone[ARRAYS];
    void *junk[JUNK];
    struct storage *storages;
};

static uint64_t seed;
static int tracing;
static int disturbed;          /* the driver was told to fail, or contexts were destroyed */
static int kept_by_the_driver; /* blocks and streams whose giving back the driver refused for good */
static struct fuzz threads[THREADS];
static CUstream natives[NATIVES];
static CUcontext foreign[CONTEXTS];
static CUmemoryPool foreign_pools[FOREIGN_POOLS];
static size_t blocks_before, pools_before; /* what an earlier run left, which the driver had refused to take */
static int may_take_access;    /* work that lags and needs it is waited for, but not what other threads submit meanwhile */
static uint32_t (*get_current)(CUcontext *);

static uint64_t next(struct fuzz *f)
{
    f->random ^= f->random << 13;
    f->random ^= f->random >> 7;
    f->random ^= f->random << 17;
    return f->random;
}

static uint64_t below(struct fuzz *f, uint64_t end)
{
    return (next(f) >> 11) % end;
}

static int one_in(struct fuzz *f, uint64_t n)
{
    return below(f, n) == 0;
}

/* ---- What must hold after every call ------------------------------------------------------------------------------ */

static void wrong(struct fuzz *f, const char *what, const char *call)
{
    check_note_failure();
    printf("\n    seed %" PRIu64 ", thread %d, call %" PRIu64 ": %s: %s (%s)", seed, f->number, f->calls, call, what,
           warp_error_get_message());
    fflush(stdout);
}

/* The current context, though a planned failure may be waiting for the question. */
static CUcontext current(void)
{
    CUcontext context = NULL;
    int tries = 0;
    while (get_current(&context) != 0 && tries < 100)
        ++tries;
    return context;
}

static warp_status done(struct fuzz *f, CUcontext before, warp_status status, const char *call)
{
    warp_error error;
    ++f->calls;
    if (current() != before)
        wrong(f, "the current context is another one", call);
    if (tracing)
        fprintf(stderr, "[%d] %s = %d %s\n", f->number, call, status, status ? warp_error_get_message() : "");
    if (status == WARP_SUCCESS)
        return status;
    memset(&error, 0, sizeof error);
    error.struct_size = sizeof error;
    if (strcmp(warp_status_get_name(status), "WARP_ERROR_UNKNOWN") == 0 || status == WARP_ERROR_INTERNAL)
        wrong(f, "a status that may not be", call);
    if (warp_error_get_last(&error) != WARP_SUCCESS || error.status != status || error.message[0] == '\0')
        wrong(f, "a failure without its record", call);
    return status;
}

#define CALL(f, expr)                                                \
    __extension__({                                                  \
        CUcontext before_ = current();                               \
        if (tracing > 1)                                             \
            fprintf(stderr, "[%d] %s ...\n", (f)->number, #expr);    \
        warp_status status_ = (expr);                                \
        done((f), before_, status_, #expr);                          \
    })
#define EMPTY(f, status, out, what)                                  \
    do {                                                             \
        if ((status) != WARP_SUCCESS && (out) != 0)                  \
            wrong((f), "an output after a failure", (what));         \
    } while (0)

/* Outputs and options have room behind them, for a struct_size that is too large. */
#define ROOM 256
#define GIVEN(type, name)                                            \
    union {                                                          \
        type it;                                                     \
        unsigned char bytes[sizeof(type) + ROOM];                    \
    } name;                                                          \
    memset(&name, 0, sizeof name);                                   \
    name.it.struct_size = struct_size(f, sizeof(type))

static size_t struct_size(struct fuzz *f, size_t right)
{
    if (!one_in(f, 40))
        return right;
    switch (below(f, 4)) {
    case 0: return 0;
    case 1: return right - 1;
    case 2: return right + below(f, ROOM);
    default: return (size_t)-1 - below(f, 9);
    }
}

/* ---- Arguments ---------------------------------------------------------------------------------------------------- */

static void discard(struct fuzz *f, const void *value)
{
    f->junk[below(f, JUNK)] = (void *)(uintptr_t)value;
}

/* Anything but a live handle: stale ones, numbers, and live ones of another type. */
static void *any(struct fuzz *f)
{
    warp_device *device = NULL;
    switch (below(f, 8)) {
    case 0: return NULL;
    case 1: return (void *)(uintptr_t)next(f);
    case 7: return f->pools[below(f, POOLS)];
    case 2: return f->streams[below(f, STREAMS)];
    case 3: return f->arrays[below(f, ARRAYS)].handle;
    case 4:
        warp_device_get_at(below(f, 4), &device);
        return device;
    case 5: return f->events[below(f, EVENTS)];
    default: return f->junk[below(f, JUNK)];
    }
}

static warp_device *some_device(struct fuzz *f)
{
    warp_device *device = NULL;
    if (one_in(f, 20))
        return any(f);
    if (one_in(f, 8))
        return NULL;
    warp_device_get_at(below(f, 5), &device);
    return device;
}

static warp_stream *some_stream(struct fuzz *f)
{
    if (one_in(f, 30))
        return any(f);
    if (one_in(f, 4))
        return NULL;
    return __atomic_load_n(&threads[f->shares ? below(f, THREADS) : (uint64_t)f->number].streams[below(f, STREAMS)],
                           __ATOMIC_RELAXED);
}

static warp_event *some_event(struct fuzz *f)
{
    if (one_in(f, 30))
        return any(f);
    return __atomic_load_n(&threads[f->shares ? below(f, THREADS) : (uint64_t)f->number].events[below(f, EVENTS)],
                           __ATOMIC_RELAXED);
}

static warp_mempool *some_pool(struct fuzz *f)
{
    warp_mempool *pool = NULL;
    if (one_in(f, 30))
        return any(f);
    if (one_in(f, 6)) {
        warp_mempool_get(some_device(f), &pool);
        return pool;
    }
    return __atomic_load_n(&threads[f->shares ? below(f, THREADS) : (uint64_t)f->number].pools[below(f, POOLS)],
                           __ATOMIC_RELAXED);
}

static warp_array *some_array(struct fuzz *f)
{
    return one_in(f, 30) ? any(f) : f->arrays[below(f, ARRAYS)].handle;
}

static uint64_t some_size(struct fuzz *f)
{
    if (one_in(f, 30))
        return (uint64_t)0 - below(f, 600);
    return one_in(f, 20) ? 0 : one_in(f, 10) ? below(f, 1 << 20) : below(f, 5000);
}

static uint64_t some_alignment(struct fuzz *f)
{
    /* A watcher's own allocator gives up on large ones. */
    uint64_t most = check_under("valgrind") || check_under("sanitizer") ? 20 : 64;
    return one_in(f, 4) ? (uint64_t)1 << below(f, one_in(f, 10) ? most : 14) : one_in(f, 40) ? next(f) : 0;
}

static int32_t some_kind(struct fuzz *f)
{
    return one_in(f, 30) ? (int32_t)next(f) : (int32_t)below(f, 6);
}

static const char *some_tag(struct fuzz *f)
{
    static const char *const tags[] = {"weights", "a", "", "\xff\xfe", NULL, NULL, NULL, NULL};
    return tags[below(f, sizeof tags / sizeof *tags)];
}

static warp_dtype some_dtype(struct fuzz *f)
{
    static const uint8_t bits[] = {8, 16, 32, 64};
    warp_dtype dtype = warp_dtype_make((uint8_t)below(f, 3), bits[below(f, 4)]);
    if (one_in(f, 20)) {
        dtype.code = (uint8_t)next(f);
        dtype.bits = (uint8_t)next(f);
        dtype.lanes = (uint16_t)below(f, 5);
        dtype.item_size = (uint32_t)below(f, 20);
    }
    return dtype;
}

static int32_t some_shape(struct fuzz *f, int64_t *shape)
{
    int32_t rank = (int32_t)below(f, one_in(f, 20) ? 35 : 4), i;
    for (i = 0; i < 35; ++i)
        shape[i] = one_in(f, 100) ? (int64_t)next(f) : rank > 4 ? 1 : (int64_t)below(f, 9);
    return one_in(f, 60) ? -1 : rank;
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------- */

static void take_block(struct fuzz *f)
{
    struct block *block = &f->blocks[below(f, BLOCKS)];
    GIVEN(warp_alloc_options, options);
    void *ptr = (void *)(uintptr_t)0x5a5a;
    uint64_t size = some_size(f);
    warp_status status;
    if (block->ptr != NULL)
        return;
    if (one_in(f, 4)) {
        status = CALL(f, warp_alloc(some_device(f), size, &ptr));
    } else {
        options.it.alignment = some_alignment(f);
        options.it.kind = some_kind(f);
        options.it.tag = some_tag(f);
        options.it.stream = some_stream(f);
        if (one_in(f, 4))
            options.it.mempool = some_pool(f);
        status = CALL(f, warp_alloc_with(some_device(f), size, &options.it, &ptr));
    }
    EMPTY(f, status, ptr, "warp_alloc");
    if (status != WARP_SUCCESS || ptr == NULL)
        return;
    if (size == 0)
        wrong(f, "zero bytes have an address", "warp_alloc");
    block->ptr = ptr;
    block->size = size;
    if (tracing)
        fprintf(stderr, "    a block at %p\n", ptr);
    block->wrapped = 0;
    {
        GIVEN(warp_pointer_info, info);
        info.it.struct_size = sizeof info.it;
        CALL(f, warp_pointer_get_info((char *)ptr + below(f, size), &info.it));
        if (!info.it.is_owned || info.it.base != ptr || info.it.size != size)
            wrong(f, "a new block is not what was asked for", "warp_pointer_get_info");
        block->is_host = info.it.kind == WARP_MEMORY_HOST || info.it.kind == WARP_MEMORY_PINNED;
        /* Touched while it can be: a page-locked block goes with its context, which may be reset. */
        if (info.it.kind == WARP_MEMORY_HOST)
            memset(ptr, 0x33, size);
    }
}

/* The block, one of the library's that covers the address or begins there, with anything that is wrong about the call. */
static void give_block(struct fuzz *f)
{
    struct block *block = &f->blocks[below(f, BLOCKS)], was = *block;
    GIVEN(warp_free_options, options);
    warp_status status;
    if (block->ptr == NULL || block->wrapped)
        return;
    if (one_in(f, 10) && was.size > 1) {
        status = CALL(f, warp_free((char *)was.ptr + 1 + below(f, was.size - 1)));
        if (status == WARP_SUCCESS)
            wrong(f, "an interior address was freed", "warp_free");
        return;
    }
    block->ptr = NULL; /* another block may have the address before the call returns */
    if (one_in(f, 2)) {
        status = CALL(f, warp_free(was.ptr));
    } else {
        options.it.size = one_in(f, 10) ? next(f) : one_in(f, 2) ? was.size : 0;
        options.it.alignment = one_in(f, 20) ? next(f) : 0;
        options.it.stream = one_in(f, 4) ? some_stream(f) : NULL;
        status = CALL(f, warp_free_with(was.ptr, &options.it));
    }
    if (status == WARP_SUCCESS) {
        if (!f->shares && f->depth == 0 && one_in(f, 4) && CALL(f, warp_free(was.ptr)) == WARP_SUCCESS)
            wrong(f, "a block was freed twice", "warp_free");
        discard(f, was.ptr);
    } else {
        *block = was;
    }
}

static void use_block(struct fuzz *f)
{
    static const unsigned char pattern[32] = "0123456789abcdef";
    struct block *a = &f->blocks[below(f, BLOCKS)], *b = &f->blocks[below(f, BLOCKS)];
    uint64_t size, at;
    if (a->ptr == NULL || b->ptr == NULL)
        return;
    size = one_in(f, 10) ? some_size(f) : below(f, (a->size < b->size ? a->size : b->size) + 1);
    at = below(f, a->size - (size < a->size ? size : a->size) + 1);
    switch (below(f, 4)) {
    case 0: CALL(f, warp_memory_copy((char *)a->ptr + at, b->ptr, size, some_stream(f))); break;
    case 1: CALL(f, warp_memory_fill((char *)a->ptr + at, size, pattern, 1 + below(f, 9), some_stream(f))); break;
    case 2: CALL(f, warp_pointer_record_stream((char *)a->ptr + below(f, a->size), some_stream(f))); break;
    default:
        CALL(f, warp_pointer_record_stream(any(f), some_stream(f)));
        CALL(f, warp_memory_copy(NULL, b->ptr, size, NULL));
        CALL(f, warp_memory_fill(a->ptr, 4, NULL, below(f, 2), NULL));
        break;
    }
}

/* ---- Streams ------------------------------------------------------------------------------------------------------ */

static void take_stream(struct fuzz *f)
{
    warp_stream **place = &f->streams[below(f, STREAMS)], *stream = (warp_stream *)(uintptr_t)0x5a5a;
    GIVEN(warp_stream_options, options);
    warp_status status;
    if (*place != NULL)
        return;
    if (one_in(f, 2)) {
        options.it.flags = one_in(f, 20) ? (uint32_t)next(f) : (uint32_t)below(f, 2);
        options.it.priority = (int32_t)below(f, 9) - 4;
        status = CALL(f, warp_stream_create(some_device(f), one_in(f, 4) ? NULL : &options.it, &stream));
    } else {
        uintptr_t number = (uintptr_t)below(f, 3);
        void *native = one_in(f, 2) ? natives[below(f, NATIVES)] : (void *)number;
        options.it.flags = one_in(f, 20) ? (uint32_t)next(f) : 2 * (uint32_t)below(f, 2);
        if (one_in(f, 2))
            status = CALL(f, warp_stream_wrap(some_device(f), native, &stream));
        else
            status = CALL(f, warp_stream_wrap_with(some_device(f), native, one_in(f, 4) ? NULL : &options.it, &stream));
    }
    EMPTY(f, status, stream, "warp_stream_create");
    __atomic_store_n(place, stream, __ATOMIC_RELAXED);
}

static void give_stream(struct fuzz *f)
{
    uint64_t i = below(f, STREAMS);
    warp_stream *stream = f->streams[i];
    if (stream == NULL || one_in(f, 10)) {
        CALL(f, warp_stream_release(one_in(f, 3) ? (void *)f->arrays[below(f, ARRAYS)].handle : one_in(f, 2) ? f->junk[below(f, JUNK)] : NULL));
        return;
    }
    if (CALL(f, warp_stream_release(stream)) == WARP_SUCCESS) {
        if (CALL(f, warp_stream_release(stream)) == WARP_SUCCESS)
            wrong(f, "a stream was released twice", "warp_stream_release");
        discard(f, stream);
        __atomic_store_n(&f->streams[i], NULL, __ATOMIC_RELAXED);
    } else if (CALL(f, warp_stream_get_current(some_device(f), &stream)) == WARP_SUCCESS && one_in(f, 4)) {
        /* It is stale, after a shutdown. */
        discard(f, f->streams[i]);
        __atomic_store_n(&f->streams[i], NULL, __ATOMIC_RELAXED);
    }
}

static void use_stream(struct fuzz *f)
{
    GIVEN(warp_stream_info, info);
    warp_stream *stream = (warp_stream *)(uintptr_t)0x5a5a;
    uint8_t idle = 0x5a;
    warp_status status;
    switch (below(f, 5)) {
    case 0:
        status = CALL(f, warp_stream_get_info(some_stream(f), &info.it));
        EMPTY(f, status, info.it.native, "warp_stream_get_info");
        break;
    case 1:
        status = CALL(f, warp_stream_get_current(some_device(f), &stream));
        EMPTY(f, status, stream, "warp_stream_get_current");
        break;
    case 2: CALL(f, warp_stream_set_current(some_device(f), some_stream(f))); break;
    case 3: CALL(f, warp_stream_synchronize(some_stream(f))); break;
    default:
        status = CALL(f, warp_stream_query_idle(some_stream(f), &idle));
        EMPTY(f, status, idle, "warp_stream_query_idle");
        break;
    }
}

/* ---- Events and scopes --------------------------------------------------------------------------------------------- */

static void take_event(struct fuzz *f)
{
    warp_event **place = &f->events[below(f, EVENTS)], *event = (warp_event *)(uintptr_t)0x5a5a;
    GIVEN(warp_event_options, options);
    warp_status status;
    if (*place != NULL)
        return;
    options.it.flags = one_in(f, 20) ? (uint32_t)next(f) : (uint32_t)below(f, 4);
    if (one_in(f, 20))
        status = CALL(f, warp_event_wrap(some_device(f), NULL, &event));
    else
        status = CALL(f, warp_event_create(some_device(f), one_in(f, 4) ? NULL : &options.it, &event));
    EMPTY(f, status, event, "warp_event_create");
    __atomic_store_n(place, event, __ATOMIC_RELAXED);
}

static void give_event(struct fuzz *f)
{
    uint64_t i = below(f, EVENTS);
    warp_event *event = f->events[i];
    /* Also a stale one, after a shutdown. */
    CALL(f, warp_event_release(event));
    if (event != NULL && CALL(f, warp_event_release(event)) == WARP_SUCCESS)
        wrong(f, "an event was released twice", "warp_event_release");
    discard(f, event);
    __atomic_store_n(&f->events[i], NULL, __ATOMIC_RELAXED);
}

static void use_event(struct fuzz *f)
{
    GIVEN(warp_event_info, info);
    float milliseconds = 1;
    uint8_t is_done = 0x5a;
    warp_status status;
    switch (below(f, 8)) {
    case 0:
        status = CALL(f, warp_event_get_info(some_event(f), &info.it));
        EMPTY(f, status, info.it.native, "warp_event_get_info");
        break;
    case 1: case 2: CALL(f, warp_event_record(some_event(f), some_stream(f))); break;
    case 3:
        status = CALL(f, warp_event_query_done(some_event(f), &is_done));
        EMPTY(f, status, is_done, "warp_event_query_done");
        break;
    case 4: CALL(f, warp_event_synchronize(some_event(f))); break;
    case 5:
        status = CALL(f, warp_event_measure_elapsed(some_event(f), some_event(f), &milliseconds));
        EMPTY(f, status, milliseconds, "warp_event_measure_elapsed");
        break;
    case 6: CALL(f, warp_stream_wait_event(some_stream(f), some_event(f))); break;
    default: CALL(f, warp_stream_wait_stream(some_stream(f), some_stream(f))); break;
    }
}

static void use_scope(struct fuzz *f)
{
    warp_scope *scope = (warp_scope *)(uintptr_t)0x5a5a;
    warp_status status;
    if (one_in(f, 8)) {
        /* Any but the last. */
        uint64_t i = below(f, SCOPES);
        void *bad = one_in(f, 2) ? any(f) : i + 1 < (uint64_t)f->scope_count ? f->scopes[i] : f->junk[below(f, JUNK)];
        if (CALL(f, warp_scope_end(bad)) == WARP_SUCCESS && bad != NULL)
            wrong(f, "a scope was ended out of order", "warp_scope_end");
    } else if (f->scope_count > 0 && (f->scope_count == SCOPES || one_in(f, 2))) {
        scope = f->scopes[--f->scope_count];
        /* That access could not be put back is told, and the scope is over all the same. */
        if (CALL(f, warp_scope_end(scope)) != WARP_SUCCESS && strstr(warp_error_get_message(), "the scope is over") == NULL)
            wrong(f, "the last scope was not ended", "warp_scope_end");
        if (CALL(f, warp_scope_end(scope)) == WARP_SUCCESS)
            wrong(f, "a scope was ended twice", "warp_scope_end");
        discard(f, scope);
    } else {
        uint8_t on = (uint8_t)(may_take_access ? one_in(f, 2) : 1);
        switch (below(f, may_take_access ? 5 : 3)) {
        case 0: status = CALL(f, warp_scope_begin_stream(some_device(f), some_stream(f), &scope)); break;
        case 1: status = CALL(f, warp_scope_begin_device(some_device(f), &scope)); break;
        case 2: status = CALL(f, warp_scope_begin_mempool(some_device(f), (uint8_t)one_in(f, 2), &scope)); break;
        case 3: status = CALL(f, warp_scope_begin_peer_access(some_device(f), some_device(f), on, &scope)); break;
        default: status = CALL(f, warp_scope_begin_mempool_access(some_device(f), some_device(f), on, &scope)); break;
        }
        EMPTY(f, status, scope, "warp_scope_begin_stream");
        if (status == WARP_SUCCESS)
            f->scopes[f->scope_count++] = scope;
    }
}

/* ---- Arrays ------------------------------------------------------------------------------------------------------- */

static void random_call(struct fuzz *f);

struct borrowed {
    struct fuzz *f;
    struct storage *storage;
    void *memory;
};

/* Gives ordinary memory back, and calls back in. */
static void deleter(void *user, void *ptr, uint64_t size)
{
    struct borrowed *borrowed = user;
    struct fuzz *f = borrowed->f;
    (void)ptr;
    (void)size;
    __atomic_fetch_add(&borrowed->storage->deleted, 1, __ATOMIC_SEQ_CST);
    /* With another thread's shutdown it is called there. */
    if (!f->shares && f->depth < 3) {
        ++f->depth;
        random_call(f);
        --f->depth;
    }
    free(borrowed->memory);
    free(borrowed);
}

static struct storage *new_storage(struct fuzz *f)
{
    struct storage *storage = calloc(1, sizeof *storage);
    storage->arrays = 1;
    storage->block = -1;
    storage->next = f->storages;
    f->storages = storage;
    return storage;
}

static void put_array(struct fuzz *f, warp_status status, warp_array *array, struct storage *storage, const char *what)
{
    uint64_t i, start = below(f, ARRAYS);
    EMPTY(f, status, array, what);
    if (status != WARP_SUCCESS)
        return;
    if (storage == NULL) {
        GIVEN(warp_array_info, info);
        info.it.struct_size = sizeof info.it;
        storage = new_storage(f);
        if (CALL(f, warp_array_get_info(array, &info.it)) == WARP_SUCCESS && info.it.is_owned)
            storage->base = info.it.data;
        if (tracing && storage->base != NULL)
            fprintf(stderr, "    an array of %" PRIu64 " bytes of kind %d at %p\n", info.it.capacity, info.it.kind, storage->base);
    } else if (storage->arrays++ < 0) {
        wrong(f, "a view of nothing", what);
    }
    for (i = 0; i < ARRAYS; ++i) {
        struct array *place = &f->arrays[(start + i) % ARRAYS];
        if (place->handle == NULL) {
            place->handle = array;
            place->storage = storage;
            return;
        }
    }
    --storage->arrays;
    CALL(f, warp_array_release(array));
}

static int room(const struct fuzz *f)
{
    int i;
    for (i = 0; i < ARRAYS; ++i)
        if (f->arrays[i].handle == NULL)
            return 1;
    return 0;
}

static void make_array(struct fuzz *f)
{
    int64_t shape[35], strides[35];
    int32_t rank = some_shape(f, shape), i;
    uint64_t value[4] = {1, 2, 3, 4};
    warp_dtype dtype = some_dtype(f);
    warp_array *array = (warp_array *)(uintptr_t)0x5a5a;
    warp_status status;
    GIVEN(warp_array_options, options);
    if (!room(f))
        return;
    if (one_in(f, 10)) {
        for (i = 0; i < 35; ++i)
            strides[i] = (int64_t)below(f, 300) - (one_in(f, 20) ? 100 : 0);
        options.it.strides = strides;
    }
    options.it.alignment = some_alignment(f);
    options.it.tag = some_tag(f);
    options.it.stream = some_stream(f);
    options.it.kind = some_kind(f);
    if (rank > 32 && one_in(f, 2))
        rank = 32;
    switch (below(f, 4)) {
    case 0: status = CALL(f, warp_array_empty(some_device(f), dtype, rank, shape, &options.it, &array)); break;
    case 1: status = CALL(f, warp_array_zeros(some_device(f), dtype, rank, shape, &options.it, &array)); break;
    case 2: status = CALL(f, warp_array_ones(some_device(f), dtype, rank, shape, &options.it, &array)); break;
    default:
        status = dtype.item_size > sizeof value
                     ? CALL(f, warp_array_full(some_device(f), dtype, rank, shape, NULL, &options.it, &array))
                     : CALL(f, warp_array_full(some_device(f), dtype, rank, shape, value, &options.it, &array));
        break;
    }
    put_array(f, status, array, NULL, "warp_array_empty");
}

static void wrap_array(struct fuzz *f)
{
    int64_t shape[35];
    int32_t rank = some_shape(f, shape);
    int block = (int)below(f, BLOCKS);
    warp_array *array = (warp_array *)(uintptr_t)0x5a5a;
    struct storage *storage = new_storage(f);
    struct borrowed *borrowed = NULL;
    void *memory;
    warp_status status;
    GIVEN(warp_array_wrap_options, options);
    options.it.kind = one_in(f, 4) ? some_kind(f) : 0;
    if (one_in(f, 2) && room(f)) {
        options.it.capacity = 1 << 16; /* what no shape may pass */
        memory = malloc(1 << 16);
        borrowed = malloc(sizeof *borrowed);
        borrowed->f = f;
        borrowed->storage = storage;
        borrowed->memory = memory;
        storage->has_deleter = 1;
        options.it.deleter = deleter;
        options.it.deleter_user = borrowed;
        status = CALL(f, warp_array_wrap(one_in(f, 2) ? some_device(f) : NULL, memory, warp_dtype_make(WARP_DTYPE_INT, 32),
                                         rank < 4 ? rank : 3, shape, &options.it, &array));
        if (status != WARP_SUCCESS) {
            if (storage->deleted != 0)
                wrong(f, "the deleter of a wrap that failed was called", "warp_array_wrap");
            storage->arrays = 0;
            storage->has_deleter = 0;
            free(memory);
            free(borrowed);
        }
    } else if (f->blocks[block].ptr != NULL && room(f)) {
        status = CALL(f, warp_array_wrap(some_device(f), f->blocks[block].ptr, some_dtype(f), rank, shape, &options.it,
                                         &array));
        if (status == WARP_SUCCESS) {
            storage->block = block;
            ++f->blocks[block].wrapped;
        }
    } else {
        status = WARP_ERROR_BUSY;
        array = NULL;
    }
    storage->arrays = 0;
    put_array(f, status, array, storage, "warp_array_wrap");
}

static void view_array(struct fuzz *f)
{
    const struct array *from = &f->arrays[below(f, ARRAYS)];
    int64_t shape[35], start[35], stop[35], step[35];
    int32_t rank = some_shape(f, shape), axes[35], i;
    warp_array *array = (warp_array *)(uintptr_t)0x5a5a;
    warp_status status;
    if (!room(f))
        return;
    for (i = 0; i < 35; ++i) {
        start[i] = (int64_t)below(f, 4) - one_in(f, 30);
        stop[i] = start[i] + (int64_t)below(f, 4);
        step[i] = one_in(f, 4) ? (int64_t)below(f, 5) - 2 : 1;
        axes[i] = (int32_t)below(f, 4);
    }
    if (one_in(f, 2))
        shape[0] = -1;
    switch (below(f, 4)) {
    case 0:
        status = CALL(f, warp_array_slice(from->handle, one_in(f, 20) ? rank : (int32_t)below(f, 3), one_in(f, 4) ? NULL : start,
                                          one_in(f, 2) ? NULL : stop, one_in(f, 2) ? NULL : step, &array));
        break;
    case 1: status = CALL(f, warp_array_reshape(from->handle, rank, shape, &array)); break;
    case 2: status = CALL(f, warp_array_transpose(from->handle, rank, one_in(f, 2) ? NULL : axes, &array)); break;
    default: status = CALL(f, warp_array_reinterpret(from->handle, some_dtype(f), &array)); break;
    }
    put_array(f, status, array, from->storage, "a view");
}

static void use_array(struct fuzz *f)
{
    uint64_t value[4] = {1, 2, 3, 4};
    int64_t shape[35], strides[35];
    GIVEN(warp_array_info, info);
    GIVEN(warp_array_options, options);
    warp_array *array = (warp_array *)(uintptr_t)0x5a5a;
    warp_status status;
    switch (below(f, 5)) {
    case 0:
        status = CALL(f, warp_array_get_info(some_array(f), &info.it));
        EMPTY(f, status, info.it.capacity, "warp_array_get_info");
        break;
    case 1:
        status = CALL(f, warp_array_get_shape(some_array(f), (int32_t)below(f, 36) - 1, shape, one_in(f, 2) ? strides : NULL));
        break;
    case 2: CALL(f, warp_array_fill(some_array(f), value, one_in(f, 5) ? some_size(f) : (uint64_t)1 << below(f, 4), some_stream(f))); break;
    case 3:
        CALL(f, warp_array_copy(some_array(f), some_array(f), one_in(f, 4) ? some_size(f) : 0, one_in(f, 4) ? below(f, 9) : 0,
                                one_in(f, 4) ? some_size(f) : 0, some_stream(f)));
        break;
    default:
        if (!room(f))
            return;
        options.it.kind = some_kind(f);
        options.it.stream = some_stream(f);
        status = CALL(f, warp_array_clone(some_array(f), some_device(f), one_in(f, 2) ? NULL : &options.it, &array));
        put_array(f, status, array, NULL, "warp_array_clone");
        break;
    }
}

/* An indexed array of arrays of this thread's, which is gone again before they can be. */
static void index_array(struct fuzz *f)
{
    const warp_array *data = f->arrays[below(f, ARRAYS)].handle, *indices[35];
    warp_array_info of_data = {.struct_size = sizeof of_data};
    GIVEN(warp_indexed_array_info, info);
    warp_indexed_array *indexed = (warp_indexed_array *)(uintptr_t)0x5a5a;
    warp_array *part = (warp_array *)(uintptr_t)0x5a5a;
    int64_t shape[40];
    size_t count, rank = 9, i;
    warp_status status;
    if (data == NULL || one_in(f, 20))
        data = any(f);
    if (CALL(f, warp_array_get_info(data, &of_data)) != WARP_SUCCESS || one_in(f, 10))
        of_data.rank = (int32_t)below(f, 35);
    count = (size_t)of_data.rank;
    for (i = 0; i < 35; ++i)
        indices[i] = one_in(f, 2) ? NULL : one_in(f, 20) ? any(f) : f->arrays[below(f, ARRAYS)].handle;
    status = CALL(f, warp_indexed_array_create(data, one_in(f, 40) ? NULL : indices, count, &indexed));
    EMPTY(f, status, indexed, "warp_indexed_array_create");
    if (status != WARP_SUCCESS && one_in(f, 2))
        indexed = any(f);
    i = below(f, 34);
    status = CALL(f, warp_indexed_array_get_info(indexed, &info.it));
    EMPTY(f, status, info.it.count, "warp_indexed_array_get_info");
    status = CALL(f, warp_indexed_array_get_shape(indexed, one_in(f, 4) ? NULL : shape, i, &rank));
    EMPTY(f, status, rank, "warp_indexed_array_get_shape");
    status = one_in(f, 2) ? CALL(f, warp_indexed_array_get_data(indexed, &part))
                          : CALL(f, warp_indexed_array_get_index(indexed, below(f, 4), &part));
    EMPTY(f, status, part, "warp_indexed_array_get_index");
    if (status == WARP_SUCCESS && CALL(f, warp_array_release(part)) != WARP_SUCCESS)
        wrong(f, "a live view was not released", "warp_array_release");
    status = CALL(f, warp_indexed_array_release(indexed));
    if (indexed != NULL && CALL(f, warp_indexed_array_release(indexed)) == WARP_SUCCESS)
        wrong(f, "an indexed array was released twice", "warp_indexed_array_release");
    if (status == WARP_SUCCESS)
        discard(f, indexed);
}

/* An array is gone; the last of its storage gives that back. */
static void array_gone(struct fuzz *f, struct storage *storage, const char *what)
{
    if (--storage->arrays != 0)
        return;
    if (storage->block >= 0)
        --f->blocks[storage->block].wrapped;
    storage->block = -1;
    if (storage->base != NULL) {
        /* A free that the driver refused leaves the block in the ledger, to be freed by its address. */
        GIVEN(warp_pointer_info, info);
        info.it.struct_size = sizeof info.it;
        if (!f->shares && f->depth == 0 && CALL(f, warp_pointer_get_info(storage->base, &info.it)) == WARP_SUCCESS &&
            info.it.is_owned && info.it.base == storage->base && !storage->orphan) {
            storage->orphan = 1;
            if (!disturbed)
                wrong(f, "the memory of a released array is still there", what);
        }
    }
}

static void give_array(struct fuzz *f)
{
    uint64_t i = below(f, ARRAYS);
    struct array was = f->arrays[i];
    if (was.handle == NULL || one_in(f, 10)) {
        CALL(f, warp_array_release(one_in(f, 3) ? (void *)f->streams[below(f, STREAMS)] : one_in(f, 2) ? f->junk[below(f, JUNK)] : NULL));
        return;
    }
    f->arrays[i].handle = NULL;
    if (CALL(f, warp_array_release(was.handle)) != WARP_SUCCESS) {
        wrong(f, "a live array was not released", "warp_array_release");
        return;
    }
    array_gone(f, was.storage, "warp_array_release");
    if (was.storage->arrays == 0 && was.storage->deleted != was.storage->has_deleter)
        wrong(f, "the deleter was not called once", "warp_array_release");
    if (CALL(f, warp_array_release(was.handle)) == WARP_SUCCESS)
        wrong(f, "an array was released twice", "warp_array_release");
    discard(f, was.handle);
}

/* ---- Pools, access, launches --------------------------------------------------------------------------------------- */

static void take_pool(struct fuzz *f)
{
    warp_mempool **place = &f->pools[below(f, POOLS)], *pool = (warp_mempool *)(uintptr_t)0x5a5a;
    GIVEN(warp_mempool_options, options);
    warp_status status;
    if (*place != NULL)
        return;
    options.it.max_size = one_in(f, 4) ? some_size(f) : 0;
    options.it.release_threshold = one_in(f, 4) ? next(f) : 0;
    options.it.handle_types = one_in(f, 8) ? (uint32_t)below(f, 12) : 0;
    options.it.reserved = one_in(f, 50);
    if (one_in(f, 3)) {
        void *native = one_in(f, 8) ? NULL : foreign_pools[below(f, FOREIGN_POOLS)];
        status = CALL(f, warp_mempool_wrap(some_device(f), native, &pool));
    } else {
        status = CALL(f, warp_mempool_create(some_device(f), one_in(f, 4) ? NULL : &options.it, &pool));
    }
    EMPTY(f, status, pool, "warp_mempool_create");
    __atomic_store_n(place, pool, __ATOMIC_RELAXED);
}

static void give_pool(struct fuzz *f)
{
    uint64_t i = below(f, POOLS);
    warp_mempool *pool = f->pools[i], *own = NULL;
    if (pool == NULL || one_in(f, 10)) {
        CALL(f, warp_mempool_release(one_in(f, 2) ? f->junk[below(f, JUNK)] : NULL));
        return;
    }
    /* A wrapped one may be found to be the device's own, which nobody releases; and a shutdown makes them stale. */
    if (CALL(f, warp_mempool_release(pool)) == WARP_SUCCESS && CALL(f, warp_mempool_release(pool)) == WARP_SUCCESS)
        wrong(f, "a pool was released twice", "warp_mempool_release");
    if (CALL(f, warp_mempool_get(some_device(f), &own)) == WARP_SUCCESS && own == pool)
        wrong(f, "a device is said to use a handle that was released", "warp_mempool_get");
    discard(f, pool);
    __atomic_store_n(&f->pools[i], NULL, __ATOMIC_RELAXED);
}

static void use_pool(struct fuzz *f)
{
    static const double fractions[] = {0, 0.5, 1, -0.1, 1.5, 0.0 / 0.0, 1e300};
    GIVEN(warp_mempool_info, info);
    GIVEN(warp_mempool_memory_info, memory);
    warp_mempool *pool = (warp_mempool *)(uintptr_t)0x5a5a;
    warp_device *devices[4];
    uint8_t answer = 0x5a;
    uint64_t bytes = 0x5a, fraction = below(f, sizeof fractions / sizeof *fractions);
    warp_status status;
    int i;
    for (i = 0; i < 4; ++i)
        devices[i] = some_device(f);
    switch (below(f, 22)) {
    case 0:
        status = CALL(f, warp_mempool_is_supported(some_device(f), &answer));
        EMPTY(f, status, answer, "warp_mempool_is_supported");
        break;
    case 1:
        status = CALL(f, warp_mempool_is_enabled(some_device(f), &answer));
        EMPTY(f, status, answer, "warp_mempool_is_enabled");
        break;
    case 2: CALL(f, warp_mempool_set_enabled(some_device(f), (uint8_t)below(f, 3))); break;
    case 3: CALL(f, warp_mempool_set_enabled_for(one_in(f, 4) ? NULL : devices, below(f, 5), (uint8_t)!one_in(f, 4))); break;
    case 4:
        status = CALL(f, warp_mempool_get(some_device(f), &pool));
        EMPTY(f, status, pool, "warp_mempool_get");
        break;
    case 5: case 6: CALL(f, warp_mempool_use(some_device(f), one_in(f, 3) ? NULL : some_pool(f))); break;
    case 7: case 8:
        status = CALL(f, warp_mempool_get_info(some_pool(f), &info.it));
        EMPTY(f, status, info.it.native, "warp_mempool_get_info");
        break;
    case 9:
        status = CALL(f, warp_mempool_query_memory(some_pool(f), &memory.it));
        EMPTY(f, status, memory.it.reserved, "warp_mempool_query_memory");
        break;
    case 10: CALL(f, warp_mempool_reset_memory_high(some_pool(f))); break;
    case 11: CALL(f, warp_mempool_trim(some_pool(f), some_size(f))); break;
    case 12: CALL(f, warp_mempool_set_release_threshold(some_pool(f), some_size(f))); break;
    case 13: CALL(f, warp_mempool_set_release_fraction(some_pool(f), fractions[fraction])); break;
    case 14:
        status = CALL(f, warp_mempool_query_release_threshold(some_pool(f), &bytes));
        EMPTY(f, status, bytes, "warp_mempool_query_release_threshold");
        break;
    case 15:
        status = CALL(f, warp_mempool_query_memory_of_device(some_device(f), &memory.it));
        EMPTY(f, status, memory.it.reserved, "warp_mempool_query_memory_of_device");
        break;
    case 16: CALL(f, warp_mempool_reset_memory_high_of_device(some_device(f))); break;
    case 17: CALL(f, warp_mempool_trim_of_device(some_device(f), some_size(f))); break;
    case 18: CALL(f, warp_mempool_set_release_threshold_of_device(some_device(f), some_size(f))); break;
    case 19: CALL(f, warp_mempool_set_release_fraction_of_device(some_device(f), fractions[fraction])); break;
    case 20:
        status = CALL(f, warp_mempool_query_release_threshold_of_device(some_device(f), &bytes));
        EMPTY(f, status, bytes, "warp_mempool_query_release_threshold_of_device");
        break;
    default:
        status = CALL(f, warp_mempool_query_access(some_pool(f), some_device(f), &answer));
        EMPTY(f, status, answer, "warp_mempool_query_access");
        break;
    }
}

static void set_access(struct fuzz *f)
{
    uint8_t on = (uint8_t)(may_take_access ? one_in(f, 2) : 1), answer = 0x5a;
    warp_device *peers[3];
    warp_status status;
    int i;
    for (i = 0; i < 3; ++i)
        peers[i] = some_device(f);
    switch (below(f, 6)) {
    case 0: CALL(f, warp_peer_access_set_enabled(some_device(f), some_device(f), on)); break;
    case 1: CALL(f, warp_peer_access_set_enabled_for(some_device(f), one_in(f, 4) ? NULL : peers, below(f, 4), on)); break;
    case 2: CALL(f, warp_mempool_access_set_enabled(some_device(f), some_device(f), on)); break;
    case 3: CALL(f, warp_mempool_access_set_enabled_for(some_device(f), one_in(f, 4) ? NULL : peers, below(f, 4), on)); break;
    case 4: CALL(f, warp_mempool_set_access(some_pool(f), some_device(f), on)); break;
    default:
        if (!may_take_access || !one_in(f, 8))
            return;
        status = CALL(f, warp_peer_access_verify(some_device(f), some_device(f), &answer));
        EMPTY(f, status, answer, "warp_peer_access_verify");
        break;
    }
}

static void *some_address(struct fuzz *f)
{
    const struct block *block = &f->blocks[below(f, BLOCKS)];
    return block->ptr == NULL || one_in(f, 8) ? any(f) : (char *)block->ptr + below(f, block->size);
}

static void ask_access(struct fuzz *f)
{
    GIVEN(warp_access_info, info);
    uint8_t answer = 0x5a;
    warp_status status;
    switch (below(f, 9)) {
    case 0:
        status = CALL(f, warp_peer_access_is_supported(some_device(f), some_device(f), &answer));
        break;
    case 1: status = CALL(f, warp_peer_access_query_enabled(some_device(f), some_device(f), &answer)); break;
    case 2: status = CALL(f, warp_mempool_access_is_supported(some_device(f), some_device(f), &answer)); break;
    case 3: status = CALL(f, warp_mempool_access_query_enabled(some_device(f), some_device(f), &answer)); break;
    case 4: status = CALL(f, warp_access_can(some_device(f), some_array(f), &answer)); break;
    case 5: status = CALL(f, warp_access_can_pointer(some_device(f), some_address(f), &answer)); break;
    case 6: status = CALL(f, warp_access_can_device(some_device(f), some_device(f), &answer)); break;
    case 7:
        status = CALL(f, warp_access_get_status(some_device(f), some_array(f), &info.it));
        EMPTY(f, status, info.it.access, "warp_access_get_status");
        return;
    default:
        status = CALL(f, warp_access_get_pointer_status(some_device(f), some_address(f), &info.it));
        EMPTY(f, status, info.it.access, "warp_access_get_pointer_status");
        return;
    }
    EMPTY(f, status, answer, "a question about access");
    if (status == WARP_SUCCESS && answer > 1)
        wrong(f, "neither yes nor no", "a question about access");
}

static void check_launch(struct fuzz *f)
{
    warp_launch_argument arguments[8];
    GIVEN(warp_launch_report, report);
    warp_launch_mode mode = 0x5a;
    int i;
    warp_status status;
    memset(arguments, 0, sizeof arguments);
    for (i = 0; i < 8; ++i) {
        arguments[i].name = some_tag(f);
        arguments[i].kind = one_in(f, 30) ? (int32_t)next(f) : (int32_t)below(f, 4);
        switch (arguments[i].kind) {
        case WARP_LAUNCH_ARRAY: arguments[i].value = some_array(f); break;
        case WARP_LAUNCH_POINTER: arguments[i].value = some_address(f); break;
        case WARP_LAUNCH_STRUCT:
            /* Members that come later, or a struct that contains itself. */
            arguments[i].value = one_in(f, 10) ? NULL : one_in(f, 10) ? arguments : &arguments[i < 7 ? i + 1 : 7];
            arguments[i].member_count = below(f, one_in(f, 20) ? 8 : 2);
            if (arguments[i].value != NULL && (const warp_launch_argument *)arguments[i].value + arguments[i].member_count > arguments + 8)
                arguments[i].member_count = 0;
            break;
        default: arguments[i].value = any(f); break;
        }
    }
    if (one_in(f, 10))
        CALL(f, warp_launch_set_mode(one_in(f, 4) ? (int32_t)next(f) : (int32_t)below(f, 3)));
    status = CALL(f, warp_launch_get_mode(&mode));
    if (status != WARP_SUCCESS || mode < 0 || mode > 2)
        wrong(f, "no mode", "warp_launch_get_mode");
    status = CALL(f, warp_launch_check(some_device(f), some_tag(f), arguments, below(f, 9),
                                       one_in(f, 20) ? below(f, sizeof *arguments) : sizeof *arguments,
                                       one_in(f, 20) ? (int32_t)next(f) : (int32_t)below(f, 4) - 1,
                                       one_in(f, 3) ? NULL : &report.it));
    if (status != WARP_SUCCESS && status != WARP_ERROR_ACCESS_DENIED)
        EMPTY(f, status, report.it.accessible, "warp_launch_check");
}

/* ---- Devices and the library -------------------------------------------------------------------------------------- */

static void use_device(struct fuzz *f)
{
    static const char *const names[] = {"cpu", "cuda", "cuda:0", "cuda:1", "cuda:7", "cuda:0.0", "mine", "", "\xff", NULL};
    const char *name = names[below(f, sizeof names / sizeof *names)];
    warp_device *device = (warp_device *)(uintptr_t)0x5a5a;
    GIVEN(warp_device_info, info);
    GIVEN(warp_statistics, counts);
    GIVEN(warp_pointer_info, pointer);
    size_t count = 0x5a;
    uint64_t free_bytes = 0x5a, total = 0x5a;
    void *context = (void *)(uintptr_t)0x5a5a;
    warp_status status;
    switch (below(f, 17)) {
    case 0:
        status = CALL(f, warp_device_get_count(&count));
        EMPTY(f, status, count, "warp_device_get_count");
        break;
    case 1: CALL(f, warp_device_get_cuda_count(one_in(f, 9) ? NULL : &count)); break;
    case 2:
        status = CALL(f, warp_device_get_at(one_in(f, 4) ? (size_t)next(f) : (size_t)below(f, 6), &device));
        EMPTY(f, status, device, "warp_device_get_at");
        break;
    case 3:
        status = CALL(f, warp_device_get(name, &device));
        EMPTY(f, status, device, "warp_device_get");
        break;
    case 4:
        status = CALL(f, warp_device_get_info(some_device(f), &info.it));
        EMPTY(f, status, info.it.name[0], "warp_device_get_info");
        break;
    case 5:
        status = CALL(f, warp_device_query_memory(some_device(f), &free_bytes, &total));
        EMPTY(f, status, total, "warp_device_query_memory");
        break;
    case 6:
        status = CALL(f, warp_device_get_native_context(some_device(f), &context));
        EMPTY(f, status, context, "warp_device_get_native_context");
        break;
    case 7:
        status = CALL(f, warp_device_from_context(one_in(f, 9) ? NULL : foreign[below(f, CONTEXTS)], one_in(f, 2) ? NULL : name,
                                                  &device));
        EMPTY(f, status, device, "warp_device_from_context");
        break;
    case 8:
        device = some_device(f);
        if (CALL(f, warp_device_remove(device)) == WARP_SUCCESS)
            discard(f, device);
        break;
    case 9:
        status = CALL(f, warp_device_get_default(&device));
        EMPTY(f, status, device, "warp_device_get_default");
        break;
    case 10: CALL(f, warp_device_set_default(some_device(f))); break;
    case 11: CALL(f, warp_device_set_for_thread(some_device(f))); break;
    case 12:
        status = CALL(f, warp_device_get_for_thread(&device));
        EMPTY(f, status, device, "warp_device_get_for_thread");
        break;
    case 13: CALL(f, warp_device_synchronize(some_device(f))); break;
    case 14:
        status = CALL(f, warp_statistics_get(some_device(f), some_kind(f), &counts.it));
        EMPTY(f, status, counts.it.allocations, "warp_statistics_get");
        break;
    case 15: CALL(f, warp_statistics_reset_peak(some_device(f))); break;
    default:
        status = CALL(f, warp_pointer_get_info(any(f), &pointer.it));
        EMPTY(f, status, pointer.it.base, "warp_pointer_get_info");
        break;
    }
}

/* Runs on any thread: messages may be of one whose calls this thread's are not. */
static void on_message(void *user, warp_log_level level, const char *message)
{
    static const char *const given_up[] = {"could not be given back", "was not destroyed"};
    warp_device *device = NULL;
    size_t i;
    (void)user;
    for (i = 0; i < sizeof given_up / sizeof *given_up; ++i)
        if (level == WARP_LOG_ERROR && strstr(message, given_up[i]) != NULL)
            __atomic_fetch_add(&kept_by_the_driver, 1, __ATOMIC_SEQ_CST);
    if (tracing)
        fprintf(stderr, "message %d: %s\n", level, message);
    /* It may call back in. */
    warp_device_get("cuda:0", &device);
    warp_device_get_info(device, NULL);
}

static void use_library(struct fuzz *f)
{
    char text[64];
    uint64_t id = 0;
    size_t needed = 0;
    uint8_t flag = 0x5a;
    GIVEN(warp_error, error);
    GIVEN(warp_init_options, options);
    switch (below(f, 8)) {
    case 0: CALL(f, warp_library_is_initialized(one_in(f, 4) ? NULL : &flag)); break;
    case 1: CALL(f, warp_version_check((int32_t)next(f))); break;
    case 2: CALL(f, warp_library_get_instance_id(&id)); break;
    case 3: CALL(f, warp_library_get_report(one_in(f, 9) ? NULL : text, (size_t)below(f, sizeof text), &needed)); break;
    case 4: CALL(f, warp_log_set_callback(on_message, NULL, one_in(f, 4) ? (int32_t)next(f) : WARP_LOG_DEBUG)); break;
    case 5: warp_error_get_last(one_in(f, 9) ? NULL : &error.it); break;
    case 6:
        if (warp_status_get_name((warp_status)next(f)) == NULL || warp_version_get_string() == NULL ||
            warp_version_get_number() != WARP_VERSION)
            wrong(f, "not what it should be", "the version");
        break;
    default:
        /* One that is not the first and fails changes nothing; one that succeeds is counted. */
        options.it.flags = one_in(f, 4) ? (uint32_t)next(f) : 0;
        options.it.log_level = one_in(f, 4) ? (int32_t)next(f) : 0;
        if (CALL(f, warp_init(one_in(f, 4) ? NULL : &options.it, &flag)) == WARP_SUCCESS &&
            CALL(f, warp_shutdown()) != WARP_SUCCESS)
            wrong(f, "an init was not taken back", "warp_shutdown");
        break;
    }
}

/* ---- What others do ----------------------------------------------------------------------------------------------- */

/* Not of cuCtxGetId, which is believed when it says that a context is gone; and no faults (719), after which nothing would run
 * any more that is in truth still running. */
static void plan_failure(struct fuzz *f)
{
    static const char *const entries[] = {
        "cuCtxGetCurrent", "cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing", "cuMemAlloc_v2",
        "cuMemAllocFromPoolAsync", "cuMemAllocManaged", "cuMemHostAlloc", "cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost",
        "cuMemcpyAsync", "cuMemcpyPeerAsync", "cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async", "cuStreamQuery",
        "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuStreamWaitEvent", "cuStreamSynchronize", "cuPointerGetAttributes",
        "cuEventSynchronize", "cuEventElapsedTime_v2", "cuCtxRecordEvent",
        "cuStreamCreateWithPriority", "cuStreamGetId", "cuCtxGetStreamPriorityRange",
        "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain", "cuStreamGetCtx", "cuStreamGetFlags", "cuStreamGetPriority",
        "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolSetAttribute", "cuMemPoolSetAccess", "cuMemPoolGetAccess",
        "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess", "cuDeviceCanAccessPeer", "cuPointerGetAttribute", "cuStreamDestroy_v2",
        "cuCtxSynchronize", "cuMemGetInfo_v2", "cuMemPoolTrimTo", "cuMemPoolGetAttribute", "cuDeviceGetMemPool", "cuCtxGetDevice"};
    static const uint32_t codes[] = {1, 2, 201, 600, 709, 900, 999, 54321};
    disturbed = 1;
    SIMULATOR(warpsim_fail)(entries[below(f, sizeof entries / sizeof *entries)], 1 + below(f, 3),
                            codes[below(f, sizeof codes / sizeof *codes)]);
}

static void hold_or_release(struct fuzz *f)
{
    if (one_in(f, 2))
        SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)natives[below(f, NATIVES)]);
    else
        SIMULATOR(warpsim_release_all)();
}

static uint64_t context_of(const void *ptr)
{
    warp_pointer_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_pointer_get_info(ptr, &info), WARP_SUCCESS);
    CHECK(info.is_owned);
    return info.context_id;
}

/* What was in a context that died: its addresses will come again, and are nobody's until then. Arrays stay. */
static void forget_lost(struct fuzz *f, const unsigned long long *ids)
{
    struct storage *storage;
    int i;
    for (i = 0; i < ARRAYS; ++i) {
        struct array *array = &f->arrays[i];
        /* Page-locked memory counts as the CPU's until its record goes. */
        warp_array_info info;
        memset(&info, 0, sizeof info);
        info.struct_size = sizeof info;
        if (array->handle == NULL)
            continue;
        CHECK_STATUS(warp_array_get_info(array->handle, &info), WARP_SUCCESS);
        if (array->storage->block < 0 && (array->storage->base == NULL || info.kind != WARP_MEMORY_PINNED))
            continue;
        CHECK_STATUS(warp_array_release(array->handle), WARP_SUCCESS);
        array->handle = NULL;
        array_gone(f, array->storage, "after a context died");
    }
    for (i = 0; i < BLOCKS; ++i) {
        struct block *block = &f->blocks[i];
        uint64_t context = block->ptr != NULL ? context_of(block->ptr) : 0;
        if (context == 0 || (context != ids[0] && context != ids[1]))
            continue;
        CHECK_STATUS(warp_free(block->ptr), WARP_SUCCESS);
        block->ptr = NULL;
    }
    for (storage = f->storages; storage != NULL; storage = storage->next) {
        uint64_t context = storage->base != NULL && (storage->arrays || storage->orphan) ? context_of(storage->base) : 0;
        if (context != 0 && (context == ids[0] || context == ids[1])) {
            storage->base = NULL;
            storage->orphan = 0;
        }
    }
}

/* Contexts that other code destroys, while no other thread is in a call: the driver cannot bear that. */
static void destroy_contexts(struct fuzz *f)
{
    uint64_t i = below(f, CONTEXTS);
    unsigned long long ids[2] = {0, 0};
    disturbed = 1;
    SIMULATOR(warpsim_release_all)();
    SIMULATOR(cuCtxSetCurrent)(NULL);
    /* The work of another GPU on memory of the context would be too late. */
    for (i = 0; i < CONTEXTS; ++i) {
        SIMULATOR(cuCtxSetCurrent)(foreign[i]);
        SIMULATOR(cuCtxSynchronize)();
        SIMULATOR(cuCtxSetCurrent)(driver_primary((int32_t)i));
        SIMULATOR(cuCtxSynchronize)();
    }
    SIMULATOR(cuCtxSetCurrent)(NULL);
    i = below(f, CONTEXTS);
    if (one_in(f, 2)) {
        for (i = 0; i < NATIVES; ++i)
            natives[i] = NULL; /* they go with it */
        SIMULATOR(cuCtxGetId)(driver_primary(0), &ids[0]);
        SIMULATOR(cuCtxGetId)(driver_primary(1), &ids[1]);
        SIMULATOR(warpsim_reset_device)(0);
        SIMULATOR(warpsim_reset_device)(1);
    } else {
        SIMULATOR(cuCtxGetId)(foreign[i], &ids[0]);
        SIMULATOR(cuCtxDestroy_v2)(foreign[i]);
        foreign[i] = driver_foreign((int32_t)below(f, 2));
    }
    if (tracing)
        fprintf(stderr, "[%d] contexts were destroyed\n", f->number);
    for (i = 0; i < THREADS; ++i)
        forget_lost(&threads[i], ids);
    /* What is lost is found out when it is looked up. */
    for (i = 0; i < 8; ++i) {
        warp_device *device = NULL;
        warp_device_info info;
        memset(&info, 0, sizeof info);
        info.struct_size = sizeof info;
        if (warp_device_get_at(7 - i, &device) == WARP_SUCCESS && warp_device_get_info(device, &info) == WARP_SUCCESS)
            warp_device_get(info.alias, &device);
    }
}

static void make_natives(void)
{
    int i;
    for (i = 0; i < NATIVES; ++i) {
        if (natives[i] != NULL)
            continue;
        SIMULATOR(cuCtxSetCurrent)(driver_primary(i % 2));
        SIMULATOR(cuStreamCreate)(&natives[i], i < 2 ? 0 : 1);
    }
    SIMULATOR(cuCtxSetCurrent)(NULL);
}

/* A pool of other code's, where the GPU has some. */
static CUmemoryPool foreign_pool(int32_t device)
{
    struct {
        int32_t type, handle_types, place, device;
        unsigned char rest[72];
    } properties = {1, 0, 1, device, {0}};
    CUmemoryPool pool = NULL;
    if (SIMULATOR(cuMemPoolCreate)(&pool, &properties) != 0)
        return NULL;
    return pool;
}

/* ---- Runs --------------------------------------------------------------------------------------------------------- */

static void random_call(struct fuzz *f)
{
    switch (below(f, 32)) {
    case 24: take_pool(f); break;
    case 25: give_pool(f); break;
    case 26: use_pool(f); break;
    case 27: set_access(f); break;
    case 28: case 29: ask_access(f); break;
    case 30: check_launch(f); break;
    case 0: case 1: case 2: case 3: take_block(f); break;
    case 4: case 5: case 6: give_block(f); break;
    case 7: case 8: use_block(f); break;
    case 9: take_stream(f); break;
    case 10: give_stream(f); break;
    case 11: use_stream(f); break;
    case 12: make_array(f); break;
    case 13: wrap_array(f); break;
    case 14: view_array(f); break;
    case 15: case 16: use_array(f); break;
    case 17: give_array(f); break;
    case 18: use_device(f); break;
    case 19: take_event(f); break;
    case 20: give_event(f); break;
    case 21: use_event(f); break;
    case 22: use_scope(f); break;
    case 23: index_array(f); break;
    default: use_library(f); break;
    }
    if (one_in(f, 50))
        plan_failure(f);
    if (one_in(f, 50) && (!f->shares || !may_take_access))
        hold_or_release(f);
    if (one_in(f, 100))
        SIMULATOR(cuCtxSetCurrent)(one_in(f, 2) ? NULL : driver_primary((int32_t)below(f, 2)));
}

/* With a shutdown all handles of arrays become stale, and their memory is given back: what is called meanwhile must know
 * the one, and the other is known when it has returned. */
static void forget_handles(struct fuzz *f)
{
    int i;
    for (i = 0; i < ARRAYS; ++i) {
        f->gone[i] = f->arrays[i].handle != NULL ? f->arrays[i].storage : NULL;
        if (f->gone[i] != NULL)
            discard(f, f->arrays[i].handle);
        f->arrays[i].handle = NULL;
    }
}

/* Those that a shutdown made stale. */
static void forget_pools(struct fuzz *f)
{
    int i;
    for (i = 0; i < POOLS; ++i) {
        discard(f, f->pools[i]);
        __atomic_store_n(&f->pools[i], NULL, __ATOMIC_RELAXED);
    }
}

static void forget_storages(struct fuzz *f)
{
    int i;
    for (i = 0; i < ARRAYS; ++i)
        if (f->gone[i] != NULL)
            array_gone(f, f->gone[i], "warp_shutdown");
}

static void check_storages(struct fuzz *f)
{
    struct storage *storage;
    for (storage = f->storages; storage != NULL; storage = storage->next)
        if (storage->deleted != (storage->has_deleter && storage->arrays == 0))
            wrong(f, "a deleter was not called once, when its arrays were gone", "check_storages");
}

static void end_life(int thread_count)
{
    struct fuzz *f = &threads[0];
    int i;
    for (i = 0; i < thread_count; ++i)
        forget_handles(&threads[i]);
    if (CALL(f, warp_shutdown()) != WARP_SUCCESS)
        wrong(f, "not shut down", "warp_shutdown");
    for (i = 0; i < thread_count; ++i) {
        forget_storages(&threads[i]);
        check_storages(&threads[i]);
        forget_pools(&threads[i]);
    }
    for (i = 0; i < 50 && thread_count == 1; ++i)
        random_call(f);
    if (CALL(f, warp_init(NULL, NULL)) != WARP_SUCCESS)
        wrong(f, "not begun again", "warp_init");
}

static void add_counts(const void *ptr, const warp_device *device, uint64_t *bytes, uint64_t *count)
{
    warp_pointer_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_pointer_get_info(ptr, &info), WARP_SUCCESS);
    CHECK_EQ_PTR(info.base, ptr);
    CHECK(info.is_owned);
    if (info.device == device) {
        *bytes += info.size;
        *count += 1;
    }
}

/* While nobody else calls: the counts are those of what the threads know to be live. */
static void check_counts(int thread_count)
{
    size_t devices = 0, d;
    SIMULATOR(warpsim_fail_clear)();
    warp_device_get_count(&devices);
    for (d = 0; d < devices; ++d) {
        uint64_t bytes = 0, count = 0;
        warp_device *device = NULL;
        warp_statistics counts;
        int t, i;
        memset(&counts, 0, sizeof counts);
        counts.struct_size = sizeof counts;
        /* Finding it may find out that its context died. */
        CHECK_STATUS(warp_device_get_at(d, &device), WARP_SUCCESS);
        for (t = 0; t < thread_count; ++t) {
            struct storage *storage;
            for (i = 0; i < BLOCKS; ++i)
                if (threads[t].blocks[i].ptr != NULL)
                    add_counts(threads[t].blocks[i].ptr, device, &bytes, &count);
            for (storage = threads[t].storages; storage != NULL; storage = storage->next)
                if (storage->base != NULL && (storage->arrays != 0 || storage->orphan))
                    add_counts(storage->base, device, &bytes, &count);
        }
        CHECK_STATUS(warp_statistics_get(device, WARP_MEMORY_UNKNOWN, &counts), WARP_SUCCESS);
        CHECK_EQ_U64(counts.live_blocks, count);
        CHECK_EQ_U64(counts.live_bytes, bytes);
        CHECK(counts.peak_bytes >= counts.live_bytes);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double seconds(double otherwise)
{
    const char *said = getenv("WARPMEM_FUZZ_SECONDS");
    return said != NULL ? atof(said) : otherwise;
}

static void begin(int thread_count, int shares)
{
    const char *said = getenv("WARPMEM_FUZZ_SEED"), *trace = getenv("WARPMEM_FUZZ_TRACE");
    int i;
    seed = said != NULL ? strtoull(said, NULL, 0) : 20250607;
    tracing = trace != NULL ? atoi(trace) : 0;
    get_current = SIMULATOR(cuCtxGetCurrent);
    memset(threads, 0, sizeof threads);
    for (i = 0; i < thread_count; ++i) {
        threads[i].random = (seed + (uint64_t)i + 1) * 0x9e3779b97f4a7c15u | 1;
        threads[i].number = i;
        threads[i].shares = shares;
    }
    SIMULATOR(cuInit)(0);
    disturbed = kept_by_the_driver = 0;
    blocks_before = SIMULATOR(warpsim_live_count)("*");
    pools_before = SIMULATOR(warpsim_live_count)("mempool");
    memset(natives, 0, sizeof natives);
    make_natives();
    for (i = 0; i < CONTEXTS; ++i)
        foreign[i] = driver_foreign(i % 2);
    for (i = 0; i < FOREIGN_POOLS; ++i)
        foreign_pools[i] = foreign_pool(i % 2);
    may_take_access = thread_count == 1 || seed % 2 == 0;
    CHECK_STATUS(warp_log_set_callback(on_message, NULL, WARP_LOG_DEBUG), WARP_SUCCESS);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
}

/* Everything is given back, and then nothing is left with the driver but what it refused to take. */
static void finish(int thread_count)
{
    static const char *const kinds[] = {"default", "pool", "pinned", "managed"};
    char said[300];
    size_t i;
    int t, tries;
    SIMULATOR(warpsim_fail_clear)();
    SIMULATOR(warpsim_release_all)();
    SIMULATOR(cuCtxSetCurrent)(NULL);
    warp_log_set_callback(on_message, NULL, WARP_LOG_DEBUG);
    for (t = 0; t < thread_count; ++t) {
        struct fuzz *f = &threads[t];
        struct storage *storage, *after;
        for (i = 0; i < ARRAYS; ++i)
            if (f->arrays[i].handle != NULL) {
                warp_array *handle = f->arrays[i].handle;
                f->arrays[i].handle = NULL;
                ++f->depth; /* deleters have had their calls */
                f->depth = 9;
                CALL(f, warp_array_release(handle));
                array_gone(f, f->arrays[i].storage, "at the end");
            }
        check_storages(f);
        for (storage = f->storages; storage != NULL; storage = after) {
            after = storage->next;
            if (storage->orphan)
                CHECK_STATUS(warp_free(storage->base), WARP_SUCCESS);
            free(storage);
        }
        for (i = 0; i < BLOCKS; ++i)
            CHECK_STATUS(warp_free(f->blocks[i].ptr), WARP_SUCCESS);
        for (i = 0; i < STREAMS; ++i)
            warp_stream_release(f->streams[i]);
        for (i = 0; i < EVENTS; ++i)
            warp_event_release(f->events[i]);
        for (i = 0; i < POOLS; ++i)
            warp_mempool_release(f->pools[i]);
        /* Threads that have ended took theirs with them. */
        while (thread_count == 1 && f->scope_count > 0)
            CHECK_STATUS(warp_scope_end(f->scopes[--f->scope_count]), WARP_SUCCESS);
        memset(f, 0, sizeof *f);
    }
    check_counts(0);
    for (tries = 0; tries < 100 && SIMULATOR(warpsim_live_count)("*") != 0; ++tries) {
        warp_device *gpu = NULL;
        warp_alloc_options options = {0};
        void *ptr = NULL;
        options.struct_size = sizeof options;
        options.kind = WARP_MEMORY_CUDA_DEVICE;
        warp_device_get(tries % 2 ? "cuda:0" : "cuda:1", &gpu);
        warp_device_synchronize(gpu);
        warp_alloc_with(gpu, 1, &options, &ptr); /* looks at what waits for its streams */
        warp_free(ptr);
    }
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    for (i = 0; i < FOREIGN_POOLS; ++i)
        SIMULATOR(cuMemPoolDestroy)(foreign_pools[i]);
    printf(" (%d kept)", kept_by_the_driver);
    if (SIMULATOR(warpsim_live_count)("*") > blocks_before + (size_t)kept_by_the_driver + 2 + CONTEXTS)
        for (i = 0; i < sizeof kinds / sizeof *kinds; ++i)
            printf("\n    %zu %s blocks are left", SIMULATOR(warpsim_live_count)(kinds[i]), kinds[i]);
    /* A byte of each context that peers were asked about stays there. */
    CHECK(SIMULATOR(warpsim_live_count)("*") <= blocks_before + (size_t)kept_by_the_driver + 2 + CONTEXTS);
    CHECK(SIMULATOR(warpsim_live_count)("mempool") <= pools_before + (size_t)kept_by_the_driver);
    CHECK(SIMULATOR(warpsim_live_count)("stream") <= (size_t)kept_by_the_driver + 200);
    for (i = 0; i < SIMULATOR(warpsim_violation_count)() && i < 5; ++i) {
        SIMULATOR(warpsim_violation_get)(i, said, sizeof said);
        printf("\n    violation: %s", said);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    if (check_failure_count() != 0)
        printf("\n    seed %" PRIu64, seed);
}

TEST(one_thread_calls_everything_at_random)
{
    struct fuzz *f = &threads[0];
    double end = now() + seconds(1.2);
    begin(1, 0);
    while (now() < end && check_failure_count() == 0) {
        int i, calls = (int)below(f, 400);
        for (i = 0; i < calls && check_failure_count() == 0; ++i)
            random_call(f);
        check_counts(1);
        check_storages(f);
        if (one_in(f, 4))
            destroy_contexts(f);
        if (one_in(f, 8))
            end_life(1);
        make_natives();
    }
    if (tracing)
        fprintf(stderr, "%" PRIu64 " calls\n", f->calls);
    finish(1);
}

static pthread_barrier_t barrier;
static int stop;

static void *run(void *argument)
{
    struct fuzz *f = argument;
    while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
        int i, calls = (int)below(f, 200);
        for (i = 0; i < calls && check_failure_count() == 0; ++i)
            random_call(f);
        SIMULATOR(cuCtxSetCurrent)(NULL);
        pthread_barrier_wait(&barrier); /* nobody is in a call */
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t running[THREADS];
    double end = now() + seconds(1.2);
    int i, over = 0;
    begin(THREADS, 1);
    __atomic_store_n(&stop, 0, __ATOMIC_SEQ_CST);
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (i = 0; i < THREADS; ++i)
        pthread_create(&running[i], NULL, run, &threads[i]);
    while (!over) {
        pthread_barrier_wait(&barrier);
        over = now() >= end || check_failure_count() != 0;
        check_counts(THREADS);
        for (i = 0; i < THREADS; ++i)
            check_storages(&threads[i]);
        if (one_in(&threads[0], 4))
            destroy_contexts(&threads[0]);
        if (one_in(&threads[0], 8))
            end_life(THREADS);
        make_natives();
        __atomic_store_n(&stop, over, __ATOMIC_SEQ_CST);
        pthread_barrier_wait(&barrier);
    }
    for (i = 0; i < THREADS; ++i)
        pthread_join(running[i], NULL);
    pthread_barrier_destroy(&barrier);
    finish(THREADS);
}

TEST(four_threads_call_everything_at_random)
{
    run_threads();
}

CHECK_MAIN()
