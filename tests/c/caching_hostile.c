/*
 * caching_hostile.c: caches at the edges: devices that are lost with blocks in every state, stacks of caches and other allocators
 * released in any order, streams of every sort, captures that are open while caches give memory back or end, and what a thread
 * remembers when everything around it changes.
 *
 * needs: simulator
 * valgrind: slow (walks by the hundred; caching_failures.c and caching_threads.c go the same ways there)
 */
#define _GNU_SOURCE
#include "access.h"
#include "caches.h"
#include "captures.h"
#include "process.h"

/* ---- devices that are lost ------------------------------------------------------------------------------------------ */

static uint64_t lost_back, all_back;

static void lose(warp_device *device)
{
    lost_back = all_back = 0;
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    CHECK_STATUS(warp_device_synchronize(device), WARP_ERROR_DEVICE_LOST);
}

/* Where the next device's memory lies now nothing is left of the old block. */
static void free_old(void *ptr, int may_be_gone)
{
    warp_status status = warp_free(ptr);
    if (!may_be_gone || (status != WARP_ERROR_DOUBLE_FREE && status != WARP_ERROR_UNKNOWN_POINTER))
        CHECK_STATUS(status, WARP_SUCCESS);
}

/* Of every sort one: out, told of more than usual, recorded on another stream, at hand, free, and a chunk that is free as a whole;
 * the old ones are freed before or after the new device has served, or after the cache's handle is gone. */
static void lose_all_sorts(warp_allocator *cache, int way, struct recorder *r)
{
    warp_device *device = gpu(0);
    warp_stream *own = new_stream(device, WARP_STREAM_NON_BLOCKING), *other = new_stream(device, 0);
    void *old[6], *c, *d;
    int i;
    old[0] = block_by(device, cache, 1000, own);
    old[1] = tagged(device, cache, 3000, own);
    old[2] = block_by(device, cache, 5000, own);
    CHECK_STATUS(warp_pointer_record_stream(old[2], other), WARP_SUCCESS);
    old[3] = block_by(device, cache, 3 * MIB, other);
    old[4] = tagged(device, cache, 3 * MIB, NULL);
    old[5] = block_by(device, cache, 700, NULL);
    freed(block_by(device, cache, 9000, own));
    freed(block_by(device, cache, 20 * MIB, own));
    freed(block_by(device, cache, 100 * MIB, other));
    lose(device);
    for (i = 0; i < 6; ++i) {
        CHECK_EQ_I64(pointer_info(old[i]).is_lost, 1);
        CHECK_EQ_I64(pointer_info(old[i]).is_owned, 1);
    }
    if (way & 1)
        for (i = 0; i < 6; i += 2)
            freed(old[i]);
    if (way & 4) {
        CHECK(gpu(0) != device);
        c = block_by(gpu(0), cache, 1000, NULL);
        d = tagged(gpu(0), cache, 3 * MIB, NULL);
        put_pattern(c, 1000, 3);
        put_pattern(d, 3 * MIB, 4);
    } else {
        c = d = NULL;
    }
    if (way & 8)
        (void)trimmed(cache, way & 4 ? gpu(0) : gpu(1));
    if (way & 2)
        release(cache);
    for (i = way & 1; i < 6; i += 1 + (way & 1))
        if (old[i] != c && old[i] != d)
            free_old(old[i], way & 4);
    if (c != NULL) {
        CHECK_EQ_U64(find_pattern(c, 1000, 3), 1000);
        CHECK_EQ_U64(find_pattern(d, 3 * MIB, 4), 3 * MIB);
        CHECK_EQ_I64(pointer_info(c).is_lost, 0);
        freed(c);
        freed(d);
    }
    if (!(way & 2)) {
        CHECK_EQ_U64(live_of(cache), 0);
        CHECK_EQ_U64(figures_of(cache, NULL).live_blocks, 0);
        CHECK_EQ_U64(figures_of(cache, NULL).used_bytes, 0);
        release(cache);
    }
    (void)warp_stream_release(own);
    (void)warp_stream_release(other);
    if (r != NULL) {
        CHECK_OVER(r);
        CHECK_EQ_U64(r->allocates, r->deallocates);
    }
}

PROCESS_TEST(blocks_of_every_sort_survive_their_device)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    size_t k;
    int way;
    start_on("h200x2");
    for (k = 0; k < 3; ++k)
        for (way = 0; way < 16; way += check_under("sanitizer") ? 5 : 1) {
            lose_all_sorts(cache_over(builtin(kinds[k]), 0, 0), way, NULL);
            if (check_failure_count() != 0) {
                printf("\n    (kind %s, way %d)", kind_names[kinds[k]], way);
                return;
            }
        }
    CHECK_EQ_U64(statistics_of(gpu(0), 0).live_blocks, 0);
}

static void note_flags(struct recorder *r, const warp_alloc_request *request)
{
    (void)r;
    ++all_back;
    lost_back += (request->flags & WARP_ALLOC_REQUEST_DEVICE_LOST) != 0;
}

PROCESS_TEST(callbacks_get_lost_chunks_back_once)
{
    static struct recorder r;
    int way, ordered;
    start_on("h200x2");
    for (ordered = 0; ordered < 2; ++ordered)
        for (way = 0; way < 16; ++way) {
            warp_allocator *cache;
            memset(&r, 0, sizeof r);
            r.flags = ordered ? WARP_ALLOCATOR_STREAM_ORDERED : 0;
            r.on_deallocate = note_flags;
            cache = cache_over(created(&r, WARP_MEMORY_CUDA_DEVICE), 0, 0);
            let_go(&r);
            lose_all_sorts(cache, way, &r);
            CHECK(lost_back >= 4);
            if (!(way & 4))
                CHECK_EQ_U64(lost_back, all_back);
            if (check_failure_count() != 0) {
                printf("\n    (ordered %d, way %d)", ordered, way);
                return;
            }
        }
}

/* And through others on top and between. */
PROCESS_TEST(stacks_of_caches_survive_a_device)
{
    int sort, way;
    start_on("h200x2");
    for (sort = 0; sort < 4; ++sort)
        for (way = 0; way < 16; ++way) {
            static struct recorder r;
            warp_allocator *lower, *middle = NULL, *upper;
            memset(&r, 0, sizeof r);
            lower = cache_over(created(&r, WARP_MEMORY_CUDA_DEVICE), 0, 0);
            let_go(&r);
            switch (sort) {
            case 0: break;
            case 1: CHECK_STATUS(warp_allocator_create_tracking(lower, 0, &middle), WARP_SUCCESS); break;
            case 2: CHECK_STATUS(warp_allocator_create_limit(lower, 4 * GIB, &middle), WARP_SUCCESS); break;
            case 3: CHECK_STATUS(warp_allocator_create_fallback(lower, builtin(WARP_MEMORY_CUDA_DEVICE), &middle), WARP_SUCCESS); break;
            }
            upper = cache_over(middle != NULL ? middle : lower, 0, 0);
            if (middle != NULL)
                release(middle);
            release(lower);
            lose_all_sorts(upper, way, &r);
            if (check_failure_count() != 0) {
                printf("\n    (sort %d, way %d)", sort, way);
                return;
            }
        }
}

/* ---- stacks ----------------------------------------------------------------------------------------------------------- */

static void use(warp_allocator *of, warp_stream *stream)
{
    void *blocks[10];
    int i, round;
    for (round = 0; round < 2; ++round) {
        for (i = 0; i < 10; ++i) {
            uint64_t size = ((uint64_t)1 << (2 * i + 3)) + 5;
            blocks[i] = i % 3 == 2 ? tagged(gpu(0), of, size, stream) : block_by(gpu(0), of, size, stream);
            put_pattern(blocks[i], size, (uint64_t)i);
        }
        for (i = 0; i < 10; ++i) {
            uint64_t size = ((uint64_t)1 << (2 * i + 3)) + 5;
            CHECK_EQ_U64(find_pattern(blocks[i], size, (uint64_t)i), size);
            CHECK_EQ_PTR(pointer_info((char *)blocks[i] + size / 2).base, blocks[i]);
            CHECK_EQ_U64(pointer_info(blocks[i]).size, size);
            CHECK_EQ_PTR(pointer_info(blocks[i]).allocator, of);
            freed(blocks[i]);
            CHECK_STATUS(warp_free(blocks[i]), WARP_ERROR_DOUBLE_FREE);
        }
    }
    CHECK_EQ_U64(live_of(of), 0);
}

/* As many on top of each other as are possible at all: each serves, or says why not, and nothing is lost. */
PROCESS_TEST(caches_stand_on_each_other_as_high_as_allocators_do)
{
    warp_allocator *stack[20];
    int height, i, order;
    start_on("h200x2");
    for (order = 0; order < 2; ++order) {
        static struct recorder r;
        memset(&r, 0, sizeof r);
        stack[0] = created(&r, WARP_MEMORY_CUDA_DEVICE);
        for (height = 1; height < 20; ++height) {
            warp_status status = warp_allocator_create_caching(stack[height - 1], NULL, &stack[height]);
            if (status != WARP_SUCCESS) {
                CHECK_STATUS(status, WARP_ERROR_INVALID_ARGUMENT);
                break;
            }
            use(stack[height], NULL);
            if (check_failure_count() != 0) {
                printf("\n    (height %d)", height);
                return;
            }
        }
        CHECK(height > 10);
        if (order)
            for (i = 0; i < height; ++i)
                release(stack[i]);
        else
            for (i = height; i-- > 0;)
                release(stack[i]);
        CHECK_OVER(&r);
    }
    CHECK_NOTHING_LEFT();
}

static warp_allocator *some_on(warp_allocator *upstream, int sort)
{
    warp_allocator *made = NULL;
    switch (sort) {
    case 0: CHECK_STATUS(warp_allocator_create_caching(upstream, NULL, &made), WARP_SUCCESS); break;
    case 1: CHECK_STATUS(warp_allocator_create_tracking(upstream, 0, &made), WARP_SUCCESS); break;
    case 2: CHECK_STATUS(warp_allocator_create_limit(upstream, 2 * GIB, &made), WARP_SUCCESS); break;
    case 3: CHECK_STATUS(warp_allocator_create_fallback(upstream, builtin(WARP_MEMORY_CUDA_MEMPOOL), &made), WARP_SUCCESS); break;
    case 4: CHECK_STATUS(warp_allocator_create_fallback(builtin(WARP_MEMORY_CUDA_MEMPOOL), upstream, &made), WARP_SUCCESS); break;
    default: CHECK_STATUS(warp_allocator_create_aligned(upstream, 8192, &made), WARP_SUCCESS); break;
    }
    return made;
}

/* Three of any sorts, with blocks of each that outlive some of them, released in every order. */
PROCESS_TEST(stacks_are_released_in_any_order)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    int sorts, order, i;
    start_on("h200x2");
    for (sorts = 0; sorts < 6 * 6 * 6; sorts += check_under("sanitizer") ? 61 : 5) {
        int sort[3] = {sorts % 6, sorts / 6 % 6, sorts / 36};
        if (sort[0] != 0 && sort[1] != 0 && sort[2] != 0)
            continue;
        for (order = 0; order < 6; ++order) {
            warp_allocator *made[3], *first = builtin(WARP_MEMORY_CUDA_DEVICE);
            void *out[6];
            warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
            for (i = 0; i < 3; ++i)
                made[i] = some_on(i == 0 ? first : made[i - 1], sort[i]);
            for (i = 0; i < 3; ++i)
                use(made[i], i == 1 ? stream : NULL);
            for (i = 0; i < 6; ++i)
                out[i] = i < 3 ? block_by(gpu(0), made[i % 3], 3000, stream) : tagged(gpu(0), made[i % 3], 3 * MIB, NULL);
            if (sorts % 2)
                CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            for (i = 0; i < 3; ++i) {
                release(made[orders[order][i]]);
                freed(out[(i + order) % 6]);
                freed(out[(i + order + 3) % 6]);
            }
            if (!(sorts % 2))
                CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            CHECK_EQ_U64(statistics_of(gpu(0), 0).live_blocks, 0);
            if (check_failure_count() != 0) {
                printf("\n    (sorts %d %d %d from below, order %d)", sort[0], sort[1], sort[2], order);
                return;
            }
        }
    }
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(a_stopped_cache_serves_no_more_and_its_blocks_can_be_freed)
{
    int sort, what;
    start_on("h200x2");
    for (what = 0; what < 3; ++what)
        for (sort = 0; sort < 6; ++sort) {
            static struct recorder r;
            warp_allocator *cache, *top, *stopped;
            void *a, *b, *c;
            memset(&r, 0, sizeof r);
            created(&r, WARP_MEMORY_CUDA_DEVICE);
            cache = cache_over(r.handle, 0, 0);
            top = some_on(cache, sort);
            freed(block_by(gpu(0), top, 5000, NULL));
            freed(block_by(gpu(0), cache, 5000, NULL));
            a = block_by(gpu(0), top, 1000, NULL);
            b = tagged(gpu(0), top, 5 * MIB, NULL);
            stopped = what == 0 ? top : what == 1 ? cache : r.handle;
            CHECK_STATUS(warp_allocator_stop(stopped), WARP_SUCCESS);
            r.allocates = r.deallocates = 0;
            if (what == 1)
                CHECK_STATUS(try_by(gpu(0), cache, 1000, NULL, &c), WARP_ERROR_ALLOCATOR_FAILED);
            /* Over an allocator that was stopped it serves on what it has, and no callback is called for it; an adaptor above it may
             * have another one to ask. */
            else if (try_by(gpu(0), top, 1000, NULL, &c) == WARP_SUCCESS)
                freed(c);
            CHECK(try_by(gpu(0), cache, 700 * MIB, NULL, &c) != WARP_SUCCESS);
            freed(a);
            freed(b);
            release(top);
            release(cache);
            CHECK_EQ_U64(r.allocates + r.deallocates, 0);
            let_go(&r);
            CHECK_EQ_U64(r.destroys, 0);
            if (check_failure_count() != 0) {
                printf("\n    (sort %d, stopped %d)", sort, what);
                return;
            }
        }
}

/* ---- captures --------------------------------------------------------------------------------------------------------- */

/* While a stream that has memory in a cache is captured, by this library or by other code, the cache trims, grows, lends and ends. */
static void capture_and(int by_others, int what, warp_memory_kind kind)
{
    warp_allocator *cache = cache_over(builtin(kind), 0, what == 3 ? MIB : 0);
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), *other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    warp_graph *graph = NULL;
    CUgraph native = NULL;
    size_t nodes = 0;
    uint64_t count = 0;
    void *kept = block_by(gpu(0), cache, 1000, stream), *late = block_by(gpu(0), cache, 6 * MIB, stream), *b = NULL;
    freed(block_by(gpu(0), cache, 20 * MIB, stream));
    freed(block_by(gpu(0), cache, 2000, stream));
    if (by_others)
        CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)((CUstream)(uintptr_t)native_stream(stream), 0), 0);
    else
        CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
    fill_on(stream, kept, 1000);
    switch (what) {
    case 0: (void)trimmed(cache, gpu(0)); break;
    case 1: b = block_by(gpu(0), cache, 30 * MIB, other); break;
    case 2: b = block_by(gpu(0), cache, 18 * MIB, other); break;
    case 3: freed(late); late = NULL; break;
    case 4: release(cache); break;
    case 5: release(cache); freed(late); late = NULL; break;
    }
    if (by_others) {
        CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)((CUstream)(uintptr_t)native_stream(stream), &native), 0);
        CHECK_EQ_U64(SIMULATOR(cuGraphGetNodes)(native, NULL, &nodes), 0);
        CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(native), 0);
        count = nodes;
    } else {
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        count = 1;
    }
    CHECK_EQ_U64(count, 1);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    if (b != NULL)
        freed(b);
    if (late != NULL)
        freed(late);
    freed(kept);
    if (what < 4)
        release(cache);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
}

PROCESS_TEST(caches_leave_captures_alone)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    size_t k;
    int by_others, what;
    start_on("h200x2");
    for (k = 0; k < 3; ++k)
        for (by_others = 0; by_others < 2; ++by_others)
            for (what = 0; what < 6; ++what) {
                int failures = check_failure_count();
                capture_and(by_others, what, kinds[k]);
                if (check_failure_count() != failures)
                    printf("\n    (kind %s, captured by %s, case %d)", kind_names[kinds[k]], by_others ? "others" : "us", what);
                if (check_failure_count() > 12)
                    return;
            }
    check_no_violation();
    CHECK_NOTHING_LEFT();
}

/* ---- what is told of a block -------------------------------------------------------------------------------------------- */

uint32_t cuMemFree_v2(uint64_t ptr);

static void *told_of;
static int asked_inside;

static void ask_for_it(void *user, warp_log_level level, const char *message)
{
    (void)user, (void)level;
    if (strstr(message, "other code freed") == NULL)
        return;
    ++asked_inside;
    CHECK_EQ_U64(pointer_info(told_of).size, 4096);
    CHECK_STATUS(warp_pointer_record_stream(told_of, NULL), WARP_SUCCESS);
}

/* The record of a block that other code freed lies where a cached block is, which shows when the ledger is told of that. */
PROCESS_TEST(the_log_may_ask_for_a_block_that_the_ledger_is_just_told_of)
{
    warp_allocator *cache;
    warp_stream *own, *other;
    void *stale;
    start_on("h200x2");
    CHECK_STATUS(warp_log_set_callback(ask_for_it, NULL, WARP_LOG_WARNING), WARP_SUCCESS);
    cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
    own = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    stale = block_on(gpu(0), 2 * MIB, WARP_MEMORY_CUDA_DEVICE, own);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(driver_primary(0)), 0);
    CHECK_EQ_U64(SIMULATOR(cuMemFree_v2)((uint64_t)(uintptr_t)stale), 0);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    told_of = block_by(gpu(0), cache, 4096, own);
    CHECK((uintptr_t)told_of - (uintptr_t)stale < 2 * MIB);
    CHECK_STATUS(warp_pointer_record_stream(told_of, other), WARP_SUCCESS);
    CHECK_EQ_I64(asked_inside, 1);
    freed(told_of);
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, WARP_LOG_WARNING), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    release(cache);
    CHECK_NOTHING_LEFT();
}

/* ---- streams of every sort --------------------------------------------------------------------------------------------- */

#define SORTS 8
#define HELD 24

static warp_stream *of_sort(int sort, CUstream natives[2])
{
    static const int32_t priorities[] = {0, -1, -2};
    warp_stream_options options = {.struct_size = sizeof options};
    warp_stream *stream = NULL;
    switch (sort) {
    case 0:
    case 1:
    case 2:
        options.flags = sort == 1 ? 0 : WARP_STREAM_NON_BLOCKING;
        options.priority = priorities[sort];
        CHECK_STATUS(warp_stream_create(gpu(0), &options, &stream), WARP_SUCCESS);
        return stream;
    case 3: CHECK_STATUS(warp_stream_wrap(gpu(0), natives[0], &stream), WARP_SUCCESS); return stream;
    case 4:
        options.flags = WARP_STREAM_UNTRACKED;
        CHECK_STATUS(warp_stream_wrap_with(gpu(0), natives[1], &options, &stream), WARP_SUCCESS);
        return stream;
    case 5: CHECK_STATUS(warp_stream_wrap(gpu(0), (void *)(uintptr_t)1, &stream), WARP_SUCCESS); return stream;
    case 6: CHECK_STATUS(warp_stream_wrap(gpu(0), (void *)(uintptr_t)2, &stream), WARP_SUCCESS); return stream;
    default: return stream_of(gpu(0));
    }
}

/* Work on all of them at a random pace: the simulator sees what nothing orders. */
static void mix_streams(warp_memory_kind kind, uint64_t seed, uint64_t keep)
{
    warp_allocator *cache = cache_over(builtin(kind), 0, keep);
    warp_stream *streams[SORTS], *native_owners[2];
    CUstream natives[2];
    void *blocks[HELD] = {NULL};
    uint64_t sizes[HELD] = {0}, random = seed;
    int homes[HELD] = {0}, i, rounds = check_under("sanitizer") ? 150 : 600;
    for (i = 0; i < 2; ++i) {
        native_owners[i] = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        natives[i] = (CUstream)(uintptr_t)native_stream(native_owners[i]);
    }
    for (i = 0; i < SORTS; ++i)
        streams[i] = of_sort(i, natives);
    while (rounds-- > 0 && check_failure_count() == 0) {
        int at = (int)(next_random(&random) % HELD), other = (int)(next_random(&random) % SORTS);
        switch (next_random(&random) % 24) {
        case 0: (void)trimmed(cache, gpu(0)); break;
        case 1: SIMULATOR(warpsim_run)(1 + next_random(&random) % 20); break;
        case 2: CHECK_STATUS(warp_stream_synchronize(streams[other]), WARP_SUCCESS); break;
        case 3:
            if (other < 7) {
                CHECK_STATUS(warp_stream_release(streams[other]), WARP_SUCCESS);
                streams[other] = of_sort(other, natives);
                for (i = 0; i < HELD; ++i)
                    if (homes[i] == other)
                        homes[i] = -1;
            }
            break;
        default:
            if (blocks[at] == NULL) {
                sizes[at] = 1 + next_random(&random) % ((uint64_t)1 << (4 + next_random(&random) % 20));
                homes[at] = other;
                blocks[at] = at % 4 ? block_by(gpu(0), cache, sizes[at], streams[other])
                                    : tagged(gpu(0), cache, sizes[at], streams[other]);
                fill_on(streams[other], blocks[at], sizes[at]);
            } else {
                warp_pointer_info info = pointer_info((char *)blocks[at] + sizes[at] - 1);
                CHECK_EQ_PTR(info.base, blocks[at]);
                CHECK_EQ_U64(info.size, sizes[at]);
                CHECK_EQ_PTR(info.allocator, cache);
                if (homes[at] >= 0 && homes[at] != 6)
                    CHECK_EQ_U64(info.stream_id, stream_info(streams[homes[at]]).id);
                if (homes[at] >= 0 && homes[at] != other && next_random(&random) % 2) {
                    CHECK_STATUS(warp_stream_wait_stream(streams[other], streams[homes[at]]), WARP_SUCCESS);
                    fill_on(streams[other], blocks[at], sizes[at]);
                    if (next_random(&random) % 2) {
                        CHECK_STATUS(warp_pointer_record_stream(blocks[at], streams[other]), WARP_SUCCESS);
                    } else {
                        warp_free_options options = {.struct_size = sizeof options, .stream = streams[other]};
                        CHECK_STATUS(warp_free_with(blocks[at], &options), WARP_SUCCESS);
                        blocks[at] = NULL;
                        break;
                    }
                }
                freed(blocks[at]);
                blocks[at] = NULL;
            }
        }
        CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    }
    check_no_violation();
    for (i = 0; i < HELD; ++i)
        freed(blocks[i]);
    if (seed % 2)
        release(cache);
    for (i = 0; i < 7; ++i)
        CHECK_STATUS(warp_stream_release(streams[i]), WARP_SUCCESS);
    for (i = 0; i < 2; ++i)
        CHECK_STATUS(warp_stream_release(native_owners[i]), WARP_SUCCESS);
    if (!(seed % 2))
        release(cache);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(live_of(builtin(kind)), 0);
    check_no_violation();
}

PROCESS_TEST(streams_of_every_sort_at_any_pace)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    uint64_t seed, seeds = check_under("sanitizer") ? 3 : 8;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    SIMULATOR(warpsim_races)(1);
    SIMULATOR(warpsim_order_checks)(1);
    for (seed = 0; seed < seeds; ++seed) {
        SIMULATOR(warpsim_schedule)(seed);
        mix_streams(kinds[seed % 3], seed, seed % 5 == 0 ? 4 * MIB : 0);
        if (check_failure_count() != 0) {
            printf("\n    (seed %" PRIu64 ")", seed);
            return;
        }
    }
    CHECK_NOTHING_LEFT();
}

/* ---- what a thread remembers --------------------------------------------------------------------------------------------- */

/* A request with a tag is never remembered: what serves it now has to serve a plain one too. */
static void compare(int line)
{
    int i;
    for (i = 0; i < 6; ++i) {
        warp_device *device = i % 3 == 0 ? NULL : gpu(i % 3 - 1);
        void *plain = NULL, *full;
        warp_pointer_info a, b;
        CHECK_STATUS(warp_alloc(device, 1000, &plain), WARP_SUCCESS);
        full = tagged(device, NULL, 1000, NULL);
        a = pointer_info(plain);
        b = pointer_info(full);
        CHECK_EQ_PTR(a.allocator, b.allocator);
        CHECK_EQ_PTR(a.device, b.device);
        CHECK_EQ_U64(a.stream_id, b.stream_id);
        CHECK_EQ_I64(a.kind, b.kind);
        CHECK_EQ_I64(a.ordinal, b.ordinal);
        freed(plain);
        freed(full);
        if (check_failure_count() != 0) {
            printf("\n    (after step %d, request %d)", line, i);
            return;
        }
    }
}

static void change_and_compare(uint64_t seed)
{
    uint64_t random = seed;
    int step, steps = check_under("sanitizer") ? 200 : 1500, depth = 0, i;
    warp_scope *scopes[16];
    warp_stream *streams[4] = {NULL};
    warp_allocator *caches[3] = {NULL};
    for (step = 0; step < steps && check_failure_count() == 0; ++step) {
        uint64_t what = next_random(&random) % 20, which = next_random(&random);
        warp_device *device = which % 5 == 4 ? NULL : gpu((int)(which >> 8) % 2 != 0);
        int slot = (int)((which >> 8) % 4), cache = (int)((which >> 16) % 3), on = (int)((which >> 24) % 2);
        warp_scope *scope = NULL;
        for (i = 0; i < 4; ++i)
            if (streams[i] == NULL)
                streams[i] = new_stream(gpu(i % 2), i < 2 ? WARP_STREAM_NON_BLOCKING : 0);
        for (i = 0; i < 3; ++i)
            if (caches[i] == NULL)
                caches[i] = cache_over(builtin(i == 0 ? WARP_MEMORY_CUDA_DEVICE : i == 1 ? WARP_MEMORY_CUDA_MEMPOOL
                                                                                        : WARP_MEMORY_CUDA_MANAGED), 0, 0);
        switch (what) {
        case 0: CHECK_STATUS(warp_allocator_set_caching_for_all((uint8_t)on), WARP_SUCCESS); break;
        case 1:
        case 2: CHECK_STATUS(warp_allocator_set_for_device(gpu(on), which % 3 == 0 ? NULL : caches[cache]), WARP_SUCCESS); break;
        case 3: CHECK_STATUS(warp_allocator_set_for_all(which % 3 == 0 ? NULL : caches[cache]), WARP_SUCCESS); break;
        case 4: CHECK_STATUS(warp_mempool_set_enabled(gpu(slot % 2), (uint8_t)on), WARP_SUCCESS); break;
        case 5: CHECK_STATUS(warp_device_set_default(gpu(on)), WARP_SUCCESS); break;
        case 6: CHECK_STATUS(warp_device_set_for_thread(which % 3 == 0 ? NULL : gpu(on)), WARP_SUCCESS); break;
        case 7:
        case 8: CHECK_STATUS(warp_stream_set_current(gpu(slot % 2), which % 3 == 0 ? NULL : streams[slot]), WARP_SUCCESS); break;
        case 9:
        case 10:
        case 11:
        case 12:
            if (depth == 16)
                break;
            switch (what) {
            case 9: CHECK_STATUS(warp_scope_begin_stream(gpu(slot % 2), streams[slot], &scope), WARP_SUCCESS); break;
            case 10: CHECK_STATUS(warp_scope_begin_device(gpu(on), &scope), WARP_SUCCESS); break;
            case 11: CHECK_STATUS(warp_scope_begin_mempool(gpu(slot % 2), (uint8_t)on, &scope), WARP_SUCCESS); break;
            default:
                CHECK_STATUS(warp_scope_begin_allocator(device, which % 3 == 0 ? NULL : caches[cache], &scope), WARP_SUCCESS);
            }
            scopes[depth++] = scope;
            break;
        case 13:
        case 14:
        case 15:
            if (depth != 0)
                CHECK_STATUS(warp_scope_end(scopes[--depth]), WARP_SUCCESS);
            break;
        case 16:
            release(caches[cache]);
            caches[cache] = NULL;
            break;
        case 17: (void)trimmed(caches[cache], gpu(on)); break;
        case 18:
            /* A current one too, unless a scope wants it. */
            if (depth == 0) {
                CHECK_STATUS(warp_stream_set_current(gpu(slot % 2), NULL), WARP_SUCCESS);
                CHECK_STATUS(warp_stream_release(streams[slot]), WARP_SUCCESS);
                streams[slot] = NULL;
            }
            break;
        default:
            if (which % 8 != 0)
                break;
            while (depth != 0)
                CHECK_STATUS(warp_scope_end(scopes[--depth]), WARP_SUCCESS);
            CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
            memset(streams, 0, sizeof streams);
            memset(caches, 0, sizeof caches);
            REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        }
        compare(step);
        if (check_failure_count() != 0)
            printf("\n    (step %d of seed %" PRIu64 " was of sort %" PRIu64 ")", step, seed, what);
    }
    while (depth != 0)
        CHECK_STATUS(warp_scope_end(scopes[--depth]), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
}

PROCESS_TEST(a_plain_request_is_served_as_one_that_is_never_remembered)
{
    uint64_t seed, seeds = check_under("sanitizer") ? 2 : 8;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    for (seed = 0; seed < seeds && check_failure_count() == 0; ++seed)
        change_and_compare(seed);
}

/* What was named is no more: a thread that remembers who served it says so too. */
PROCESS_TEST(nothing_is_served_to_a_handle_that_is_released)
{
    warp_allocator *cache, *other;
    warp_stream *stream, *next;
    void *kept, *ptr;
    int i;
    start_on("h200x2");
    for (i = 0; i < 40; ++i) {
        cache = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
        other = cache_over(builtin(WARP_MEMORY_CUDA_DEVICE), 0, 0);
        stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        kept = block_by(gpu(0), cache, 1000, stream);
        freed(block_by(gpu(0), cache, 1000, stream));
        freed(block_by(gpu(0), cache, 1000, stream));
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(try_by(gpu(0), cache, 1000, stream, &ptr), WARP_ERROR_INVALID_HANDLE);
        next = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        if (i % 2)
            freed(kept);
        ptr = block_by(gpu(0), cache, 1000, next);
        CHECK_EQ_U64(pointer_info(ptr).stream_id, stream_info(next).id);
        CHECK_STATUS(try_by(gpu(0), cache, 1000, stream, &(void *){NULL}), WARP_ERROR_INVALID_HANDLE);
        release(cache);
        CHECK_STATUS(try_by(gpu(0), cache, 1000, next, &(void *){NULL}), WARP_ERROR_INVALID_HANDLE);
        freed(block_by(gpu(0), other, 1000, next));
        freed(ptr);
        if (!(i % 2))
            freed(kept);
        CHECK_STATUS(warp_free(ptr), WARP_ERROR_DOUBLE_FREE);
        release(other);
        CHECK_STATUS(warp_stream_release(next), WARP_SUCCESS);
    }
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
