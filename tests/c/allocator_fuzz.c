/*
 * Chance for allocators: threads make them, stack them, install them, have memory of them in every way that there is, and let
 * go of all of it in any order, on streams that run late and in captures, while callbacks fail and call back in. What each
 * allocator gave and got back is in a book of its own: all comes back once, as it was given, and then the allocator goes.
 *
 * A failure prints its seed: ALLOCATOR_FUZZ_SEED=N repeats that round, ALLOCATOR_FUZZ_MS=N goes on for so long for each test.
 * needs: simulator
 */
#define _GNU_SOURCE
#include "adaptors.h"
#include "captures.h"

#include <time.h>

#define THREADS 4
#define MAKERS 8
#define HANDLES 24
#define SLOTS 48
#define STREAMS 5
#define GPUS 2
#define BOOK 4096

/* ---- What a round is like ------------------------------------------------------------------------------------------- */

static uint64_t the_seed;
static int with_resets, with_trouble, with_shutdown, with_failures, with_stops, is_over;

static __thread uint64_t chance_state;
static __thread int depth; /* callbacks that this thread is inside of */

static uint64_t chance(uint64_t below)
{
    return next_random(&chance_state) % below;
}

/* ---- Allocators of the test's own ----------------------------------------------------------------------------------- */

struct given {
    void *ptr;
    uint64_t size, alignment;
};

struct maker {
    int gpu; /* or host memory */
    uint32_t flags;
    warp_allocator *below;
    pthread_mutex_t lock;
    struct given book[BOOK];
    size_t given;
    uint64_t wrong, created, destroyed;
};

static struct maker makers[MAKERS];
static int next_maker;

static void some_call(void);

static void note(struct maker *m, const char *what, void *ptr)
{
    ++m->wrong;
    check_note_failure();
    printf("\n    allocator %d: %s %p", (int)(m - makers), what, ptr);
}

/* Callbacks call back in, now and then, and are not asked for ever. */
static void nested(void)
{
    if (!with_trouble || is_over || depth > 2 || chance(6) != 0)
        return;
    ++depth;
    some_call();
    --depth;
}

static warp_status maker_allocate(void *user, const warp_alloc_request *request, void **out)
{
    struct maker *m = user;
    void *ptr = NULL;
    warp_status status;
    if (m->destroyed != 0)
        note(m, "asked after its end for", NULL);
    nested();
    if (with_trouble)
        switch (chance(40)) {
        case 0: return WARP_ERROR_OUT_OF_MEMORY;
        case 1: return 77;
        case 2: return WARP_SUCCESS; /* NULL */
        case 3: *out = (void *)(uintptr_t)0x1230; return WARP_ERROR_BUSY;
        default: break;
        }
    status = warp_allocator_allocate(m->below, request, &ptr);
    if (status != WARP_SUCCESS)
        return status;
    /* Before it has the address, since somebody may give it back at once. */
    pthread_mutex_lock(&m->lock);
    if (m->given < BOOK) {
        struct given *at = &m->book[m->given++];
        at->ptr = ptr, at->size = request->size, at->alignment = request->alignment;
    } else {
        note(m, "has too many out", ptr);
    }
    pthread_mutex_unlock(&m->lock);
    nested();
    *out = ptr;
    return WARP_SUCCESS;
}

static warp_status maker_deallocate(void *user, void *ptr, const warp_alloc_request *request)
{
    struct maker *m = user;
    size_t i;
    int found = 0, tries = 0;
    warp_status status;
    if (m->destroyed != 0)
        note(m, "given back after its end", ptr);
    nested();
    pthread_mutex_lock(&m->lock);
    for (i = m->given; i-- > 0 && !found;)
        if (m->book[i].ptr == ptr && m->book[i].size == request->size && m->book[i].alignment == request->alignment) {
            m->book[i] = m->book[--m->given];
            found = 1;
        }
    if (!found)
        note(m, "has not out, or with another size or alignment,", ptr);
    pthread_mutex_unlock(&m->lock);
    if (!found)
        return WARP_SUCCESS;
    /* Where the driver fails nothing is freed, and it is asked again. */
    do
        status = warp_allocator_deallocate(m->below, ptr, request);
    while (with_failures && status != WARP_SUCCESS && status != WARP_ERROR_ALLOCATOR_FAILED && ++tries < 100);
    if (status != WARP_SUCCESS && status != WARP_ERROR_ALLOCATOR_FAILED) {
        pthread_mutex_lock(&m->lock);
        note(m, warp_error_get_message(), ptr);
        pthread_mutex_unlock(&m->lock);
    }
    nested();
    return with_trouble && chance(50) == 0 ? 78 : WARP_SUCCESS;
}

static void maker_destroy(void *user)
{
    struct maker *m = user;
    if (m->given != 0 && !with_resets)
        note(m, "goes while memory is out, the first", m->book[0].ptr);
    if (__atomic_fetch_add(&m->destroyed, 1, __ATOMIC_SEQ_CST) != 0)
        note(m, "destroyed again", NULL);
    nested();
}

static warp_status maker_trim(void *user, const warp_alloc_request *request, uint64_t *out_freed)
{
    (void)user, (void)request;
    nested();
    *out_freed = 1;
    return with_trouble && chance(4) == 0 ? 79 : WARP_SUCCESS;
}

/* ---- What the threads share ----------------------------------------------------------------------------------------- */

enum way { BLOCK, DIRECT, ARRAY, TORCH, CUPY };

struct held {
    enum way way;
    int gpu, is_captured;
    uint64_t size;
    void *ptr;
    warp_allocator *from;
    warp_array *array;
    warp_stream *stream;
    pthread_t thread; /* that allocated it */
};

static uintptr_t handles[HANDLES]; /* each with one reference; what was there may be stale */
static struct held *slots[SLOTS];
static warp_stream *streams[GPUS][STREAMS];
static CUstream foreign[GPUS];
static warp_device *devices[GPUS + 1]; /* the CPU last */

static warp_allocator *some_handle(void)
{
    return (warp_allocator *)__atomic_load_n(&handles[chance(HANDLES)], __ATOMIC_SEQ_CST);
}

static void put_handle(warp_allocator *allocator)
{
    uintptr_t old = __atomic_exchange_n(&handles[chance(HANDLES)], (uintptr_t)allocator, __ATOMIC_SEQ_CST);
    if (old != 0)
        CHECK_STATUS(warp_allocator_release((warp_allocator *)old), WARP_SUCCESS);
}

static struct held *take_slot(size_t at)
{
    return __atomic_exchange_n(&slots[at], NULL, __ATOMIC_SEQ_CST);
}

static int give_up(struct held *held);

static void put_slot(struct held *held)
{
    size_t at = chance(SLOTS);
    struct held *old = __atomic_exchange_n(&slots[at], held, __ATOMIC_SEQ_CST);
    while (old != NULL && !give_up(old)) /* until it has gone, or another place has it */
        old = __atomic_exchange_n(&slots[chance(SLOTS)], old, __ATOMIC_SEQ_CST);
}

/* What a call may say. Never a defect of the library. */
static void allow(warp_status status, const char *what, const warp_status *among, size_t count)
{
    size_t i;
    for (i = 0; i < count; ++i)
        if (status == among[i])
            return;
    if (with_failures && status != WARP_ERROR_INTERNAL)
        return;
    /* What died with its context may have its address given to another block, and then freed by that. */
    if (with_resets && (status == WARP_ERROR_DEVICE_LOST || status == WARP_ERROR_INVALID_HANDLE || status == WARP_ERROR_DRIVER ||
                        (status >= WARP_ERROR_UNKNOWN_POINTER && status <= WARP_ERROR_SIZE_MISMATCH)))
        return;
    check_note_failure();
    printf("\n    %s: %s: %s", what, warp_status_get_name(status), warp_error_get_message());
}
#define ALLOW(call, ...)                                                                   \
    do {                                                                                   \
        static const warp_status among_[] = {WARP_SUCCESS, __VA_ARGS__};                   \
        allow((call), #call, among_, sizeof among_ / sizeof *among_);                      \
    } while (0)

static int is_block(void *ptr)
{
    warp_pointer_info info = {.struct_size = sizeof info};
    int tries = 0;
    while (warp_pointer_get_info(ptr, &info) != WARP_SUCCESS && ++tries < 100)
        ;
    return info.is_owned;
}

/* Frees by the right way; false when it was refused and is still there. */
static int give_up(struct held *held)
{
    warp_status status = WARP_SUCCESS;
    warp_free_options options = {.struct_size = sizeof options, .size = chance(2) ? held->size : 0};
    warp_alloc_request request = {.struct_size = sizeof request, .size = chance(2) ? held->size : 0};
    switch (held->way) {
    case BLOCK: status = chance(2) ? warp_free(held->ptr) : warp_free_with(held->ptr, &options); break;
    case DIRECT: status = warp_allocator_deallocate(held->from, held->ptr, chance(2) ? NULL : &request); break;
    case ARRAY: status = warp_array_release(held->array); break;
    case TORCH: warp_torch_free(held->ptr, held->size, 0, NULL); break;
    case CUPY: warp_cupy_free(NULL, held->ptr, 0); break;
    }
    if (status == WARP_ERROR_BUSY && depth > 0)
        return 0;
    if (with_failures && held->way != ARRAY && status != WARP_SUCCESS && status != WARP_ERROR_ALLOCATOR_FAILED)
        return 0; /* nothing was freed */
    if ((held->way == TORCH || held->way == CUPY) && with_failures && is_block(held->ptr))
        return 0;
    ALLOW(status, WARP_ERROR_ALLOCATOR_FAILED);
    free(held);
    return 1;
}

/* ---- What they do --------------------------------------------------------------------------------------------------- */

static void make_one(void)
{
    warp_allocator *a = some_handle(), *b = some_handle(), *made = NULL;
    warp_status status;
    if (chance(3) == 0 || a == NULL) {
        static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
        a = builtin(chance(4) == 0 ? WARP_MEMORY_HOST : kinds[chance(3)]);
        if (chance(3) == 0 && some_handle() != NULL)
            b = a;
    }
    switch (chance(10)) {
    case 0: status = warp_allocator_create_prefetch(a, NULL, &made); break;
    case 1: status = warp_allocator_create_fallback(a, b == NULL ? a : b, &made); break;
    case 2: status = warp_allocator_create_limit(a, 1 << 18, &made); break;
    default: status = try_adaptor((int)chance(ADAPTORS), a, "/dev/null", &made); break;
    }
    ALLOW(status, WARP_ERROR_INVALID_HANDLE, WARP_ERROR_INVALID_ARGUMENT, WARP_ERROR_NOT_SUPPORTED);
    if (made != NULL)
        put_handle(made);
}

static void make_maker(void)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    int at = __atomic_fetch_add(&next_maker, 1, __ATOMIC_SEQ_CST);
    struct maker *m;
    warp_allocator_vtable vtable;
    warp_memory_kind kind = kinds[chance(3)];
    warp_allocator *made = NULL, *below = NULL;
    if (at >= MAKERS)
        return;
    m = &makers[at];
    memset(&vtable, 0, sizeof vtable);
    vtable.struct_size = sizeof vtable;
    vtable.name = "maker";
    if (chance(5) == 0) {
        kind = WARP_MEMORY_HOST;
        vtable.flags = WARP_ALLOCATOR_HOST_MEMORY;
    } else if (chance(2)) {
        vtable.flags = WARP_ALLOCATOR_STREAM_ORDERED;
    }
    m->below = builtin(kind);
    /* It may stand on an adaptor over what it would stand on: that is kept for as long as the process lives. */
    if (chance(2) && try_adaptor((int)chance(ADAPTORS), m->below, "/dev/null", &below) == WARP_SUCCESS)
        m->below = below;
    vtable.kind = chance(2) ? kind : 0;
    vtable.allocate = maker_allocate;
    vtable.deallocate = maker_deallocate;
    vtable.destroy = maker_destroy;
    vtable.trim = maker_trim;
    m->created = 1;
    CHECK_STATUS(warp_allocator_create(&vtable, m, &made), WARP_SUCCESS);
    put_handle(made);
}

#define ALLOC_ERRORS                                                                                                     \
    WARP_ERROR_OUT_OF_MEMORY, WARP_ERROR_ALLOCATOR_FAILED, WARP_ERROR_INVALID_HANDLE, WARP_ERROR_INVALID_ARGUMENT,       \
        WARP_ERROR_ILLEGAL_IN_CAPTURE, WARP_ERROR_NOT_SUPPORTED

static void get_memory(warp_stream *own_stream, int own_gpu)
{
    struct held *held = calloc(1, sizeof *held);
    warp_alloc_options options = {.struct_size = sizeof options};
    warp_alloc_request request = {.struct_size = sizeof request};
    warp_array_options array = {.struct_size = sizeof array};
    int64_t shape[1];
    int gpu = own_stream != NULL ? own_gpu : (int)chance(GPUS + 1);
    warp_dtype bytes = {1, 8, 1, 1};
    held->gpu = gpu;
    held->thread = pthread_self();
    held->size = 1 + chance(chance(8) == 0 ? 100000 : 2000);
    held->way = own_stream != NULL ? (enum way)chance(2) : (enum way)chance(5);
    held->stream = own_stream != NULL ? own_stream : gpu == GPUS || chance(3) == 0 ? NULL : streams[gpu][chance(STREAMS)];
    held->is_captured = own_stream != NULL;
    shape[0] = (int64_t)held->size;
    options.stream = held->stream;
    options.allocator = chance(4) ? some_handle() : NULL;
    options.alignment = chance(4) ? 0 : (uint64_t)1 << chance(13);
    switch (held->way) {
    case BLOCK: ALLOW(warp_alloc_with(devices[gpu], held->size, &options, &held->ptr), ALLOC_ERRORS); break;
    case DIRECT:
        held->from = some_handle();
        if (held->from == NULL)
            held->from = builtin(gpu == GPUS ? WARP_MEMORY_HOST : WARP_MEMORY_CUDA_MEMPOOL);
        request.size = held->size, request.device = devices[gpu], request.stream = held->stream;
        request.alignment = options.alignment;
        ALLOW(warp_allocator_allocate(held->from, &request, &held->ptr), ALLOC_ERRORS);
        break;
    case ARRAY:
        array.allocator = options.allocator;
        ALLOW(warp_array_empty(devices[gpu], bytes, 1, shape, &array, &held->array), ALLOC_ERRORS);
        held->ptr = held->array;
        break;
    case TORCH:
        held->ptr = warp_torch_alloc(held->size, gpu % GPUS, gpu == GPUS || with_resets || chance(2) ? NULL : foreign[gpu]);
        break;
    case CUPY: held->ptr = warp_cupy_malloc(chance(2) ? some_handle() : NULL, held->size, gpu % GPUS); break;
    }
    if (held->ptr == NULL)
        free(held);
    else
        put_slot(held);
}

/* Uses it on a stream, behind its own, and lets the library know. */
static void use_memory(struct held *held)
{
    warp_stream *own = held->stream, *on;
    if (with_resets || held->gpu == GPUS || held->is_captured || held->way != BLOCK)
        return;
    /* Another thread has no name for the allocating one's own default stream. */
    if (own == streams[held->gpu][2] && !pthread_equal(held->thread, pthread_self()))
        return;
    if (own == NULL && warp_stream_get_current(devices[held->gpu], &own) != WARP_SUCCESS)
        return;
    on = chance(2) ? own : streams[held->gpu][chance(STREAMS)];
    if (on != own && warp_stream_wait_stream(on, own) != WARP_SUCCESS)
        return;
    ALLOW(warp_memory_fill(held->ptr, held->size, "x", 1, on), WARP_ERROR_ILLEGAL_IN_CAPTURE, WARP_ERROR_INVALID_ARGUMENT);
}

/* Calls that are wrong and must do nothing. */
static void be_wrong(struct held *held)
{
    warp_allocator *garbage = (warp_allocator *)(uintptr_t)next_random(&chance_state);
    warp_allocator_info info = {.struct_size = sizeof info};
    void *ptr = held->ptr;
    if (with_resets)
        return;
    CHECK(warp_allocator_get_info(garbage, &info) == WARP_ERROR_INVALID_HANDLE);
    CHECK(warp_allocator_release(garbage) == WARP_ERROR_INVALID_HANDLE);
    CHECK(warp_allocator_deallocate(garbage, ptr, NULL) == WARP_ERROR_INVALID_HANDLE);
    if (held->way == ARRAY) {
        CHECK(warp_free(ptr) == WARP_ERROR_UNKNOWN_POINTER);
    } else if (held->way == DIRECT) {
        warp_alloc_request request = {.struct_size = sizeof request, .size = held->size + 1};
        CHECK_STATUS(warp_allocator_deallocate(held->from, ptr, &request), WARP_ERROR_SIZE_MISMATCH);
    } else {
        warp_free_options options = {.struct_size = sizeof options, .size = held->size + 1};
        CHECK_STATUS(warp_free_with(ptr, &options), WARP_ERROR_SIZE_MISMATCH);
        if (held->size > 1)
            CHECK_STATUS(warp_free((char *)ptr + 1), WARP_ERROR_INTERIOR_POINTER);
        warp_torch_free(ptr, held->size + 1, 0, NULL);
        CHECK_EQ_I64(pointer_info(ptr).is_owned, 1);
    }
}

static void ask_about(warp_allocator *allocator)
{
    warp_allocator_info info = {.struct_size = sizeof info};
    warp_allocator_statistics account = {.struct_size = sizeof account};
    char text[300];
    uint64_t number = 0;
    size_t count = 0;
    ALLOW(warp_allocator_get_info(allocator, &info), WARP_ERROR_INVALID_HANDLE);
    ALLOW(warp_allocator_measure(allocator, &number, NULL), WARP_ERROR_INVALID_HANDLE);
    ALLOW(warp_allocator_get_statistics(allocator, &account), WARP_ERROR_INVALID_HANDLE, WARP_ERROR_NOT_SUPPORTED);
    ALLOW(warp_allocator_trim(allocator, devices[chance(GPUS)], &number), WARP_ERROR_INVALID_HANDLE,
          WARP_ERROR_ALLOCATOR_FAILED);
    ALLOW(warp_allocator_tracking_report(allocator, text, sizeof text, &count), WARP_ERROR_INVALID_HANDLE,
          WARP_ERROR_INVALID_ARGUMENT);
    ALLOW(warp_allocator_limit_set(allocator, chance(2) ? UINT64_MAX : 5000), WARP_ERROR_INVALID_HANDLE,
          WARP_ERROR_INVALID_ARGUMENT);
    ALLOW(warp_allocator_statistics_push(allocator), WARP_ERROR_INVALID_HANDLE, WARP_ERROR_INVALID_ARGUMENT);
    ALLOW(warp_allocator_statistics_pop(allocator, &account), WARP_ERROR_INVALID_HANDLE, WARP_ERROR_INVALID_ARGUMENT);
}

/* Anything that any thread may call at any time, also inside of a callback. */
static void some_call(void)
{
    struct held *held;
    size_t at = chance(SLOTS);
    switch (chance(20)) {
    case 0: make_one(); break;
    case 1: make_maker(); break;
    case 2: put_handle(NULL); break;
    case 3:
        ALLOW(warp_allocator_set_for_device(devices[chance(GPUS)], chance(3) ? some_handle() : NULL), WARP_ERROR_INVALID_HANDLE,
              WARP_ERROR_INVALID_ARGUMENT);
        break;
    case 4:
        ALLOW(warp_allocator_set_for_all(chance(3) ? some_handle() : NULL), WARP_ERROR_INVALID_HANDLE,
              WARP_ERROR_INVALID_ARGUMENT);
        break;
    case 5: {
        warp_allocator *allocator = some_handle();
        if (allocator != NULL && warp_allocator_retain(allocator) == WARP_SUCCESS) {
            ask_about(allocator);
            if (with_stops && depth == 0 && chance(8) == 0)
                CHECK_STATUS(warp_allocator_stop(allocator), WARP_SUCCESS);
            CHECK_STATUS(warp_allocator_release(allocator), WARP_SUCCESS);
        }
        break;
    }
    case 6:
        if ((held = take_slot(at)) != NULL) {
            be_wrong(held);
            put_slot(held);
        }
        break;
    case 7: ALLOW(warp_device_synchronize(devices[chance(GPUS)]), WARP_ERROR_ILLEGAL_IN_CAPTURE); break;
    case 8:
    case 9:
    case 10:
        if ((held = take_slot(at)) != NULL) {
            use_memory(held);
            put_slot(held);
        }
        break;
    case 11:
    case 12:
    case 13:
        if ((held = take_slot(at)) != NULL && !give_up(held))
            put_slot(held);
        break;
    default: get_memory(NULL, 0); break;
    }
}

/* A capture of the thread's own, with blocks that are freed in it, after it, by others, or never before its graph. */
static void capture_something(void)
{
    int gpu = (int)chance(GPUS), steps = (int)chance(12);
    warp_stream_options options = {.struct_size = sizeof options, .flags = WARP_STREAM_NON_BLOCKING};
    warp_stream *stream = NULL;
    warp_graph *graph = NULL;
    warp_status status;
    ALLOW(warp_stream_create(devices[gpu], &options, &stream), WARP_SUCCESS);
    if (stream == NULL)
        return;
    status = warp_capture_begin(stream, (warp_capture_mode)chance(2));
    if (!with_resets && !with_failures)
        CHECK_STATUS(status, WARP_SUCCESS);
    if (status == WARP_SUCCESS) {
        while (steps-- > 0) {
            if (chance(2))
                get_memory(stream, gpu);
            else
                some_call();
        }
        if (!with_resets && !with_failures)
            CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        ALLOW(chance(6) == 0 ? warp_capture_abandon(stream) : warp_capture_end(stream, &graph), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    }
    if (graph != NULL) {
        for (steps = (int)chance(3); steps > 0; --steps)
            ALLOW(warp_graph_launch(graph, stream), WARP_ERROR_OUT_OF_MEMORY, WARP_ERROR_ILLEGAL_IN_CAPTURE,
                  WARP_ERROR_INVALID_ARGUMENT);
        if (chance(2))
            some_call();
        ALLOW(warp_graph_release(graph), WARP_ERROR_INVALID_HANDLE);
    }
    ALLOW(warp_stream_release(stream), WARP_ERROR_INVALID_HANDLE);
}

/* The driver fails, once or a few times. */
static void plan_a_failure(void)
{
    static const char *const entries[] = {"cuMemAllocAsync", "cuMemFreeAsync", "cuMemAlloc_v2", "cuMemFree_v2", "cuEventCreate",
                                          "cuEventRecord", "cuEventQuery", "cuStreamQuery", "cuStreamWaitEvent", "cuCtxGetId",
                                          "cuCtxSetCurrent", "cuCtxGetCurrent", "cuStreamIsCapturing", "cuPointerGetAttributes",
                                          "cuMemAllocManaged", "cuThreadExchangeStreamCaptureMode", "cuStreamGetCaptureInfo_v3",
                                          "cuCtxRecordEvent", "cuEventSynchronize", "cuMemPrefetchAsync_v2"};
    static const uint32_t codes[] = {2, 1, 999, 801};
    uint64_t times = 1 + chance(2);
    const char *entry = entries[chance(sizeof entries / sizeof *entries)];
    while (times-- > 0)
        SIMULATOR(warpsim_fail)(entry, times + 1, codes[chance(4)]);
}

static void *work(void *argument)
{
    warp_scope *scopes[4];
    int open = 0, step;
    chance_state = the_seed * 100 + (uint64_t)(uintptr_t)argument;
    for (step = 0; step < 120; ++step) {
        switch (chance(12)) {
        case 0: capture_something(); break;
        case 1:
            if (open < 4 && warp_scope_begin_allocator(devices[chance(GPUS)], chance(4) ? some_handle() : NULL, &scopes[open]) ==
                                WARP_SUCCESS)
                ++open;
            break;
        case 2:
            if (open > 0)
                CHECK_STATUS(warp_scope_end(scopes[--open]), WARP_SUCCESS);
            break;
        case 3:
            if (with_failures)
                plan_a_failure();
            if (with_resets && chance(30) == 0)
                SIMULATOR(warpsim_reset_device)((int32_t)chance(GPUS));
            break;
        default: some_call(); break;
        }
    }
    /* A thread that ends with scopes open keeps their references to the shutdown. */
    if (chance(2))
        while (open > 0)
            CHECK_STATUS(warp_scope_end(scopes[--open]), WARP_SUCCESS);
    return NULL;
}

/* ---- A round -------------------------------------------------------------------------------------------------------- */

static void begin_round(uint64_t seed)
{
    int gpu, i;
    is_over = 0;
    the_seed = seed;
    chance_state = seed;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    memset(makers, 0, sizeof makers);
    memset(handles, 0, sizeof handles);
    next_maker = 0;
    for (i = 0; i < MAKERS; ++i)
        pthread_mutex_init(&makers[i].lock, NULL);
    devices[GPUS] = cpu();
    for (gpu = 0; gpu < GPUS; ++gpu) {
        CUcontext context = context_of(devices[gpu] = device(gpu == 0 ? "cuda:0" : "cuda:1"));
        warp_stream_options untracked = {.struct_size = sizeof untracked, .flags = WARP_STREAM_UNTRACKED};
        SIMULATOR(cuCtxSetCurrent)(context);
        SIMULATOR(cuStreamCreate)(&foreign[gpu], 1);
        SIMULATOR(cuCtxSetCurrent)(NULL);
        streams[gpu][0] = new_stream(devices[gpu], 0);
        streams[gpu][1] = new_stream(devices[gpu], WARP_STREAM_NON_BLOCKING);
        CHECK_STATUS(warp_stream_wrap(devices[gpu], (void *)(uintptr_t)2, &streams[gpu][2]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wrap(devices[gpu], (void *)(uintptr_t)1, &streams[gpu][3]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wrap_with(devices[gpu], foreign[gpu], &untracked, &streams[gpu][4]), WARP_SUCCESS);
    }
    SIMULATOR(warpsim_schedule)(seed);
}

static void end_round(void)
{
    size_t i, gpu;
    chance_state = ~the_seed;
    is_over = 1;
    SIMULATOR(warpsim_fail_clear)();
    if (with_shutdown)
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    for (i = 0; i < SLOTS; ++i) {
        struct held *held = take_slot(i);
        if (held == NULL)
            continue;
        if (with_shutdown && held->way == ARRAY)
            free(held); /* gone with the shutdown */
        else
            CHECK(give_up(held));
    }
    if (with_shutdown)
        CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    else {
        CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
        for (i = 0; i < HANDLES; ++i)
            if (handles[i] != 0)
                CHECK_STATUS(warp_allocator_release((warp_allocator *)handles[i]), WARP_SUCCESS);
        for (gpu = 0; gpu < GPUS; ++gpu)
            for (i = 0; i < STREAMS; ++i)
                ALLOW(warp_stream_release(streams[gpu][i]), WARP_ERROR_INVALID_HANDLE);
    }
    SIMULATOR(warpsim_run)(0);
    for (i = 0; i < 3; ++i) {
        CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS); /* also the references of scopes that nobody ended */
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    for (i = 0; i < MAKERS && !with_stops; ++i) {
        if (makers[i].created && makers[i].destroyed != 1) {
            check_note_failure();
            printf("\n    allocator %d was destroyed %d times, %d out", (int)i, (int)makers[i].destroyed, (int)makers[i].given);
        }
    }
    for (i = WARP_MEMORY_HOST; i <= WARP_MEMORY_CUDA_MANAGED && !with_stops; ++i) {
        uint64_t out = 0;
        CHECK_STATUS(warp_allocator_measure(builtin((warp_memory_kind)i), &out, NULL), WARP_SUCCESS);
        CHECK_EQ_U64(out, 0);
    }
    SIMULATOR(warpsim_schedule)(0);
    if (with_stops) /* what stopped allocators had is lost, as it has to be */
        CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    else
        CHECK_NOTHING_LEFT();
    for (gpu = 0; gpu < GPUS && !with_resets; ++gpu) /* else they went with their contexts */
        SIMULATOR(cuStreamDestroy_v2)(foreign[gpu]);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void rounds(int failures, int trouble, int shutdown, int resets, int threads)
{
    const char *only = getenv("ALLOCATOR_FUZZ_SEED"), *most = getenv("ALLOCATOR_FUZZ_MS");
    uint64_t patience = most != NULL ? strtoull(most, NULL, 10) : 400, start = now_ms(), seed, rounds_made = 0;
    int watched = check_under("valgrind") || check_under("sanitizer");
    pthread_t ids[THREADS];
    if (!simulator_is_here())
        SKIP("needs the simulated driver");
    with_failures = failures, with_resets = resets, with_trouble = trouble, with_shutdown = shutdown;
    for (seed = only != NULL ? strtoull(only, NULL, 10) : 1; check_failure_count() == 0; ++seed) {
        uintptr_t i;
        begin_round(seed);
        if (threads == 1)
            work((void *)1);
        else {
            for (i = 0; i < (uintptr_t)threads; ++i)
                pthread_create(&ids[i], NULL, work, (void *)(i + 1));
            for (i = 0; i < (uintptr_t)threads; ++i)
                pthread_join(ids[i], NULL);
        }
        end_round();
        if (check_failure_count() != 0)
            printf("\n      ALLOCATOR_FUZZ_SEED=%" PRIu64, seed);
        if (only != NULL || (watched && ++rounds_made == 2) || (!watched && now_ms() - start > patience))
            break;
    }
}

TEST(alone) { rounds(0, 0, 0, 0, 1); }
TEST(alone_in_trouble) { rounds(0, 1, 0, 0, 1); }
TEST(alone_over_a_shutdown) { rounds(0, 1, 1, 0, 1); }
TEST(alone_with_a_driver_that_fails) { rounds(1, 0, 0, 0, 1); }
TEST(alone_with_devices_that_are_lost) { rounds(0, 0, 0, 1, 1); }
TEST(threads) { rounds(0, 0, 0, 0, THREADS); }
TEST(threads_in_trouble) { rounds(0, 1, 0, 0, THREADS); }
TEST(threads_over_a_shutdown) { rounds(0, 1, 1, 0, THREADS); }

/* The last, since nobody gets back what stopped allocators had. */
TEST(threads_that_stop_allocators)
{
    with_stops = 1;
    rounds(0, 1, 0, 0, THREADS);
    with_stops = 0;
}

CHECK_MAIN()
