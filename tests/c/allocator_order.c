/*
 * allocator_order.c: when memory goes back to its allocator: after the work of streams and graphs that use it, by which calls, in
 * captures, with contexts that cannot be made current, and when memory runs out.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "access.h"
#include "allocators.h"
#include "captures.h"

static struct recorder r;

static void begin_flags(uint32_t flags, uint32_t without, warp_memory_kind below)
{
    memset(&r, 0, sizeof r);
    r.flags = flags;
    r.without = without;
    REQUIRE(start());
    created(&r, below);
}

static void end_it(void)
{
    SIMULATOR(warpsim_release_all)();
    let_go(&r);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_OVER(&r);
    check_gone_at(__FILE__, __LINE__);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

static void hold(warp_stream *stream)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native_stream(stream)), 0);
}

static void release_stream_of(warp_stream *stream)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_release)(native_stream(stream)), 0);
}

static void fill_on(void *ptr, uint64_t size, warp_stream *stream)
{
    CHECK_STATUS(warp_memory_fill(ptr, size, "x", 1, stream), WARP_SUCCESS);
}

/* ---- Streams ------------------------------------------------------------------------------------------------------------ */

TEST(freed_when_its_streams_are_done)
{
    warp_stream *own, *other;
    warp_free_options options = {.struct_size = sizeof options};
    void *ptr;
    begin_flags(0, 0, WARP_MEMORY_CUDA_DEVICE);
    own = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    /* Idle: at once. */
    ptr = block_by(gpu(0), r.handle, 64, own);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 1);
    CHECK_EQ_U64(r.deallocated.flags, WARP_ALLOC_REQUEST_IDLE);
    CHECK_EQ_PTR(r.deallocated.stream, NULL);
    CHECK_EQ_U64(r.deallocated.stream_id, 0);
    CHECK_EQ_PTR(r.deallocated.device, gpu(0));
    /* Its own stream works; then one that was told of; then one that the free names. */
    ptr = block_by(gpu(0), r.handle, 64, own);
    hold(own);
    fill_on(ptr, 64, own);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(other), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 1);
    release_stream_of(own);
    CHECK_EQ_U64(r.deallocates, 1);
    CHECK_STATUS(warp_stream_synchronize(other), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 2);
    ptr = block_by(gpu(0), r.handle, 64, own);
    hold(other);
    fill_on(ptr, 64, other);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(own), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 2);
    CHECK_EQ_U64(r.records, 0); /* not stream-ordered: nobody to tell */
    SIMULATOR(warpsim_release_all)();
    CHECK_STATUS(warp_stream_synchronize(own), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 3);
    ptr = block_by(gpu(0), r.handle, 64, own);
    hold(other);
    options.stream = other;
    CHECK_STATUS(warp_free_with(ptr, &options), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 3);
    CHECK_EQ_U64(statistics_of(gpu(0), 0).live_blocks, 0);
    CHECK_EQ_U64(live_of(r.handle), 0);
    /* The streams may be gone by then. */
    SIMULATOR(warpsim_release_all)();
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 4);
    end_it();
}

TEST(stream_ordered_ones_have_it_at_once)
{
    warp_stream *own, *other;
    void *ptr;
    begin_flags(WARP_ALLOCATOR_STREAM_ORDERED, 0, WARP_MEMORY_CUDA_MEMPOOL);
    own = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    ptr = block_by(gpu(0), r.handle, 64, own);
    hold(own);
    fill_on(ptr, 64, own);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 1);
    CHECK_EQ_U64(r.deallocated.flags, 0);
    CHECK_EQ_PTR(r.deallocated.stream, own);
    CHECK_EQ_U64(r.records, 0);
    SIMULATOR(warpsim_release_all)();
    /* Other streams are told of before. */
    ptr = block_by(gpu(0), r.handle, 64, own);
    hold(other);
    fill_on(ptr, 64, other);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.records, 1);
    CHECK_EQ_PTR(r.recorded.stream, other);
    CHECK_EQ_U64(r.recorded.stream_id, stream_info(other).id);
    CHECK_EQ_U64(r.recorded.size, 64);
    CHECK_EQ_U64(r.deallocates, 2);
    CHECK_EQ_PTR(r.deallocated.stream, own);
    CHECK_EQ_U64(r.deallocated.flags, 0);
    SIMULATOR(warpsim_release_all)();
    /* Its own stream is gone. */
    ptr = block_by(gpu(0), r.handle, 64, own);
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 3);
    CHECK_EQ_U64(r.deallocated.flags, WARP_ALLOC_REQUEST_IDLE);
    CHECK_EQ_PTR(r.deallocated.stream, NULL);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    end_it();
    /* One that cannot be told: the library waits for the other streams. */
    begin_flags(WARP_ALLOCATOR_STREAM_ORDERED, NO_RECORD, WARP_MEMORY_CUDA_MEMPOOL);
    other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    ptr = block_by(gpu(0), r.handle, 64, NULL);
    hold(other);
    fill_on(ptr, 64, other);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 0);
    SIMULATOR(warpsim_release_all)();
    CHECK_STATUS(warp_stream_synchronize(other), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 1);
    CHECK_EQ_U64(r.deallocated.flags, WARP_ALLOC_REQUEST_IDLE);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    end_it();
}

/* Host memory that GPUs read: its allocator has it back when the copies are done. */
TEST(page_locked_memory)
{
    warp_stream *stream;
    warp_device_info host, first;
    void *ptr, *device_memory;
    struct state none = {0};
    int declared;
    for (declared = 0; declared < 2; ++declared) {
        begin_flags(WARP_ALLOCATOR_HOST_MEMORY, 0, WARP_MEMORY_PINNED);
        if (declared) {
            let_go(&r);
            memset(&r, 0, sizeof r);
            r.flags = WARP_ALLOCATOR_HOST_MEMORY;
            r.kind = WARP_MEMORY_PINNED;
            created(&r, WARP_MEMORY_PINNED);
        }
        stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        device_memory = block_of(gpu(0), 4096, WARP_MEMORY_CUDA_DEVICE);
        ptr = block_by(cpu(), r.handle, 4096, NULL);
        CHECK_EQ_I64(pointer_info(ptr).kind, WARP_MEMORY_PINNED);
        CHECK_EQ_I64(pointer_info(ptr).rule, WARP_ACCESS_RULE_PINNED);
        CHECK_EQ_PTR(pointer_info(ptr).device, cpu());
        CHECK_EQ_PTR(pointer_info(ptr).allocator, r.handle);
        CHECK_EQ_U64(statistics_of(cpu(), WARP_MEMORY_PINNED).live_blocks, 1);
        host = info_of(cpu());
        first = info_of(gpu(0));
        expect_pointer_at(gpu(0), ptr, table(&first, &host, OF_PINNED, none), "a GPU", __LINE__);
        expect_pointer_at(cpu(), ptr, table(&host, &host, OF_PINNED, none), "the CPU", __LINE__);
        memset(ptr, 6, 4096);
        hold(stream);
        CHECK_STATUS(warp_memory_copy(device_memory, ptr, 4096, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_EQ_U64(r.deallocates, 0);
        CHECK_EQ_U64(statistics_of(cpu(), WARP_MEMORY_PINNED).live_blocks, 0);
        SIMULATOR(warpsim_release_all)();
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_U64(r.deallocates, 1);
        CHECK_EQ_U64(r.deallocated.flags, WARP_ALLOC_REQUEST_IDLE);
        CHECK_EQ_PTR(r.deallocated.device, cpu());
        CHECK(holds(device_memory, 6, 4096, stream));
        /* Kept by a graph. */
        ptr = block_by(cpu(), r.handle, 4096, NULL);
        memset(ptr, 8, 4096);
        begin(stream);
        CHECK_STATUS(warp_memory_copy(device_memory, ptr, 4096, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        {
            warp_graph *graph = end(stream);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK(holds(device_memory, 8, 4096, stream));
            CHECK_EQ_U64(r.deallocates, 1);
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        }
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_U64(r.deallocates, 2);
        CHECK_STATUS(warp_free(device_memory), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        end_it();
    }
}

/* What is owed is delivered by the calls that the header names, and by no others. */
static void *owed_block(warp_stream *stream)
{
    void *ptr = block_by(gpu(0), r.handle, 64, stream);
    hold(stream);
    fill_on(ptr, 64, stream);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    SIMULATOR(warpsim_release_all)();
    return ptr;
}

TEST(which_calls_deliver)
{
    struct recorder other = {.name = "other"};
    warp_stream *stream, *second;
    warp_event *event = NULL;
    warp_graph *graph;
    warp_array *array = NULL;
    warp_allocator *told;
    uint64_t done, a, b;
    uint8_t yes;
    int64_t shape = 4;
    void *ptr = NULL, *others;
    warp_launch_argument argument = {.name = "a", .kind = WARP_LAUNCH_POINTER};
    warp_scope *scope = NULL;
    int way;
    begin_flags(0, 0, WARP_MEMORY_CUDA_DEVICE);
    created(&other, WARP_MEMORY_CUDA_DEVICE);
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    second = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    owed_block(stream);
    done = r.deallocates;
    CHECK_EQ_U64(done, 0);
    /* Those that call nobody. */
    CHECK_STATUS(warp_alloc(gpu(0), 64, &ptr), WARP_SUCCESS);
    fill_on(ptr, 64, second);
    copy_now(ptr, &(uint64_t){5}, 8, NULL);
    CHECK_STATUS(warp_pointer_record_stream(ptr, second), WARP_SUCCESS);
    pointer_info(ptr);
    can_pointer(gpu(0), ptr);
    argument.value = ptr;
    check_launch(gpu(0), &argument, 1, WARP_LAUNCH_CHECKED);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    ptr = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    ptr = block_of(cpu(), 64, WARP_MEMORY_PINNED);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_array_zeros(gpu(0), F32, 1, &shape, NULL, &array), WARP_SUCCESS);
    drop(array);
    CHECK_STATUS(warp_event_create(gpu(0), NULL, &event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_record(event, second), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(second, event), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_stream(second, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_event_query_done(event, &yes), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_query_idle(stream, &yes), WARP_SUCCESS);
    begin(second);
    fill_on(NULL, 0, second);
    graph = end(second);
    CHECK_STATUS(warp_graph_launch(graph, second), WARP_SUCCESS);
    CHECK_STATUS(warp_statistics_get(gpu(0), 0, &(warp_statistics){.struct_size = sizeof(warp_statistics)}), WARP_SUCCESS);
    CHECK_STATUS(warp_device_query_memory(gpu(0), &a, &b), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_trim_of_device(gpu(0), 0), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_set_enabled(gpu(0), 1), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_begin_mempool(gpu(0), 1, &scope), WARP_SUCCESS);
    CHECK_STATUS(warp_scope_end(scope), WARP_SUCCESS);
    CHECK_STATUS(warp_peer_access_query_enabled(gpu(0), gpu(1), &yes), WARP_SUCCESS);
    CHECK_STATUS(warp_peer_access_set_enabled(gpu(0), gpu(1), 1), WARP_SUCCESS);
    CHECK_STATUS(warp_peer_access_set_enabled(gpu(0), gpu(1), 0), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, done);
    /* Those that may. */
    for (way = 0; way < 10; ++way) {
        done = r.deallocates;
        switch (way) {
        case 0: CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS); break;
        case 1: CHECK_STATUS(warp_stream_synchronize(second), WARP_SUCCESS); break;
        case 2: CHECK_STATUS(warp_event_synchronize(event), WARP_SUCCESS); break;
        case 3: others = block_by(gpu(1), other.handle, 64, NULL); break;
        case 4: CHECK_STATUS(warp_free(others), WARP_SUCCESS); break;
        case 5: CHECK_STATUS(warp_allocator_trim(other.handle, gpu(1), NULL), WARP_SUCCESS); break;
        case 6: CHECK_STATUS(warp_allocator_set_for_device(gpu(1), NULL), WARP_SUCCESS); break;
        case 7: CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS); break;
        case 8:
            CHECK_STATUS(warp_allocator_retain(other.handle), WARP_SUCCESS);
            CHECK_STATUS(warp_allocator_release(other.handle), WARP_SUCCESS);
            break;
        default: /* memory that runs out on a GPU */
            SIMULATOR(warpsim_fail)("cuMemAlloc_v2", 1, 2);
            ptr = block_of(gpu(0), 64, WARP_MEMORY_CUDA_DEVICE);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            break;
        }
        if (r.deallocates != done + 1) {
            CHECK_EQ_U64(r.deallocates, done + 1);
            printf("\n      way %d", way);
        }
        owed_block(stream);
    }
    CHECK_STATUS(warp_allocator_get_for_device(gpu(0), &told), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(second), WARP_SUCCESS);
    let_go(&other);
    CHECK_OVER(&other);
    end_it();
}

/* ---- Captures ----------------------------------------------------------------------------------------------------------- */

TEST(captures_of_ordinary_allocators)
{
    static const int modes[] = {WARP_CAPTURE_GLOBAL, WARP_CAPTURE_THREAD_LOCAL, WARP_CAPTURE_RELAXED};
    size_t m;
    for (m = 0; m < 3; ++m) {
        warp_stream *stream, *other;
        warp_graph *graph = NULL;
        void *ptr = NULL, *before;
        begin_flags(0, 0, WARP_MEMORY_CUDA_DEVICE);
        stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        before = block_by(gpu(0), r.handle, 64, stream);
        CHECK_STATUS(warp_capture_begin(stream, modes[m]), WARP_SUCCESS);
        CHECK_STATUS(try_by(gpu(0), r.handle, 64, stream, &ptr), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_EQ_PTR(ptr, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "stream-ordered");
        CHECK_EQ_U64(r.allocates, 1);
        /* Elsewhere it serves, and breaks nothing. */
        ptr = block_by(gpu(0), r.handle, 64, other);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_EQ_U64(r.deallocates, 1);
        /* A block from before, used by the capture, stays until the graph is over. */
        fill_on(before, 64, stream);
        CHECK_STATUS(warp_free(before), WARP_SUCCESS);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        CHECK_EQ_U64(r.deallocates, 1);
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK_EQ_U64(r.deallocates, 1);
        hold(stream);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(other), WARP_SUCCESS);
        CHECK_EQ_U64(r.deallocates, 1);
        SIMULATOR(warpsim_release_all)();
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK_EQ_U64(r.deallocates, 2);
        CHECK_EQ_U64(r.deallocated.flags, WARP_ALLOC_REQUEST_IDLE);
        /* A capture that is given up. */
        before = block_by(gpu(0), r.handle, 64, stream);
        CHECK_STATUS(warp_capture_begin(stream, modes[m]), WARP_SUCCESS);
        fill_on(before, 64, stream);
        CHECK_STATUS(warp_free(before), WARP_SUCCESS);
        CHECK_EQ_U64(r.deallocates, 2);
        CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK_EQ_U64(r.deallocates, 3);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
        end_it();
    }
}

static warp_status others_status;
static void *others_ptr;

static void *use_on_another_thread(void *stream)
{
    others_status = try_by(gpu(0), r.handle, 64, (warp_stream *)stream, &others_ptr);
    if (others_status == WARP_SUCCESS)
        CHECK_STATUS(warp_free(others_ptr), WARP_SUCCESS);
    return NULL;
}

/* Another thread allocates and frees in another stream while a capture goes on here, in every mode; the callbacks call the driver. */
TEST(captures_of_other_threads)
{
    static const int modes[] = {WARP_CAPTURE_GLOBAL, WARP_CAPTURE_THREAD_LOCAL, WARP_CAPTURE_RELAXED};
    size_t m;
    begin_flags(0, 0, WARP_MEMORY_CUDA_DEVICE);
    for (m = 0; m < 3; ++m) {
        warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), *other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        warp_graph *graph = NULL;
        void *ptr = block_of(gpu(0), 64, WARP_MEMORY_CUDA_MEMPOOL);
        pthread_t thread;
        CHECK_STATUS(warp_capture_begin(stream, modes[m]), WARP_SUCCESS);
        fill_on(ptr, 64, stream);
        REQUIRE(pthread_create(&thread, NULL, use_on_another_thread, other) == 0);
        pthread_join(thread, NULL);
        CHECK_STATUS(others_status, WARP_SUCCESS);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    }
    CHECK_EQ_U64(r.deallocates, 3);
    end_it();
}

/* A stream-ordered allocator over the pool serves captures: memory of the graph, wherever the block lies in it. */
enum freed { IN_CAPTURE, BEFORE_LAUNCH, AFTER_LAUNCH, AFTER_RELEASE, NEVER_LAUNCHED, ABANDONED, WAYS };

TEST(captures_over_the_pool)
{
    int way, inside;
    for (way = 0; way < WAYS; ++way)
        for (inside = 0; inside < 3; ++inside) {
            struct recorder middle = {.name = "middle", .flags = WARP_ALLOCATOR_STREAM_ORDERED, .offset = 256};
            warp_stream *stream;
            warp_graph *graph = NULL;
            void *ptr, *seen;
            int failures = check_failure_count(), i;
            begin_flags(WARP_ALLOCATOR_STREAM_ORDERED, 0, WARP_MEMORY_CUDA_MEMPOOL);
            r.offset = inside ? 768 : 0;
            created(&middle, WARP_MEMORY_CUDA_MEMPOOL);
            if (inside == 2) /* one on the other */
                r.below = middle.handle;
            stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
            seen = block_of(gpu(0), 3000, WARP_MEMORY_CUDA_MEMPOOL);
            CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
            begin(stream);
            ptr = block_by(gpu(0), r.handle, 3000, stream);
            CHECK_EQ_U64(r.allocated.flags, WARP_ALLOC_REQUEST_IN_CAPTURE);
            CHECK_EQ_I64(pointer_info(ptr).rule, WARP_ACCESS_RULE_GRAPH_FIXED);
            CHECK_EQ_I64(pointer_info(ptr).kind, WARP_MEMORY_CUDA_MEMPOOL);
            CHECK_EQ_PTR(pointer_info(ptr).allocator, r.handle);
            fill_byte(ptr, 7, 3000, stream);
            CHECK_STATUS(warp_memory_copy(seen, ptr, 3000, stream), WARP_SUCCESS);
            if (way == IN_CAPTURE) {
                CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
                CHECK_EQ_U64(r.deallocates, 1);
                CHECK_EQ_U64(r.deallocated.flags, WARP_ALLOC_REQUEST_IN_CAPTURE);
                CHECK_EQ_PTR(r.deallocated.stream, stream);
            }
            CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
            if (way == ABANDONED) {
                CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
            } else {
                CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
            }
            if (way == BEFORE_LAUNCH)
                CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            if (way >= AFTER_LAUNCH) { /* it is not there yet, and says so */
                CHECK_STATUS(warp_memory_copy(seen, ptr, 3000, NULL), WARP_ERROR_INVALID_ARGUMENT);
            }
            if (way < NEVER_LAUNCHED)
                for (i = 0; i < 3; ++i) {
                    fill_byte(seen, 1, 3000, stream);
                    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
                    CHECK(holds(seen, 7, 3000, stream));
                    if (way == AFTER_LAUNCH || way == AFTER_RELEASE)
                        break;
                }
            if (way == AFTER_LAUNCH || way == AFTER_RELEASE) {
                /* Now it is, for everybody. */
                CHECK(holds(ptr, 7, 3000, stream));
                fill_byte(ptr, 9, 3000, stream);
                CHECK(holds(ptr, 9, 3000, stream));
            }
            if (way == AFTER_LAUNCH || way == NEVER_LAUNCHED)
                CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            if (graph != NULL)
                CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            if (way == AFTER_RELEASE)
                CHECK(holds(ptr, 9, 3000, stream));
            if (way == AFTER_RELEASE || way == ABANDONED)
                CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            CHECK_STATUS(warp_free(seen), WARP_SUCCESS);
            CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
            CHECK_EQ_U64(r.deallocates, 1);
            CHECK_EQ_U64(live_of(r.below), 0);
            CHECK_EQ_U64(live_of(middle.below), 0);
            CHECK_EQ_U64(middle.allocates, inside == 2);
            let_go(&middle);
            CHECK_OVER(&middle);
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            CHECK_EQ_U64(graph_memory_after_trim(), 0);
            CHECK_EQ_U64(live("graph_block"), 0);
            CHECK_EQ_U64(live("graph"), 0);
            end_it();
            if (check_failure_count() != failures) {
                printf("\n      way %d, inside %d", way, inside);
                if (check_failure_count() > 20)
                    return;
            }
        }
}

/* Memory that is not the graph's, handed out in a capture, stays for the graph's runs. */
TEST(captures_over_plain_memory)
{
    warp_stream *stream;
    warp_graph *graph;
    void *ptr;
    CUcontext context;
    void *foreign;
    begin_flags(WARP_ALLOCATOR_STREAM_ORDERED, 0, WARP_MEMORY_CUDA_MEMPOOL);
    context = context_of(gpu(0));
    foreign = foreign_plain(context, 4096);
    r.gives = foreign;
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    begin(stream);
    ptr = block_by(gpu(0), r.handle, 4096, stream);
    CHECK_EQ_PTR(ptr, foreign);
    fill_byte(ptr, 4, 4096, stream);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 0);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    graph = end(stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 0);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 1);
    CHECK_EQ_U64(r.deallocated.flags, WARP_ALLOC_REQUEST_IDLE);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    r.gives = NULL;
    IN(context, DRIVER(cuMemFree_v2, address_of(foreign)));
    end_it();
}

/* ---- Contexts ----------------------------------------------------------------------------------------------------------- */

TEST(another_device_is_current)
{
    warp_device *gpus[4];
    void *ptrs[4];
    uint32_t flags;
    int i;
    for (flags = 0; flags < 2; ++flags) {
        begin_flags(flags ? WARP_ALLOCATOR_MANAGES_CONTEXT : 0, 0, WARP_MEMORY_CUDA_DEVICE);
        for (i = 0; i < 4; ++i)
            gpus[i] = gpu(i % 2);
        SIMULATOR(cuCtxSetCurrent)(context_of(gpu(1)));
        for (i = 0; i < 4; ++i) {
            ptrs[i] = block_by(gpus[i], r.handle, 64, NULL);
            CHECK_EQ_PTR(r.current, flags ? context_of(gpu(1)) : context_of(gpus[i]));
            CHECK_EQ_PTR(r.allocated.native_context, context_of(gpus[i]));
            CHECK_EQ_PTR(driver_current(), context_of(gpu(1)));
        }
        /* A switch that fails: no memory, an error, the context as it was; a block stays one. */
        if (!flags) {
            uint64_t nth, allocates = r.allocates, deallocates = r.deallocates;
            void *ptr = NULL;
            for (nth = 1; nth < 3; ++nth) {
                SIMULATOR(warpsim_fail)("cuCtxSetCurrent", nth, 999);
                if (try_by(gpu(0), r.handle, 64, NULL, &ptr) == WARP_SUCCESS)
                    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
                else
                    CHECK_EQ_PTR(ptr, NULL);
                SIMULATOR(warpsim_fail_clear)();
                SIMULATOR(cuCtxSetCurrent)(context_of(gpu(1)));
            }
            SIMULATOR(warpsim_fail)("cuCtxSetCurrent", 1, 999);
            allocates = r.allocates;
            CHECK_STATUS(try_by(gpu(0), r.handle, 64, NULL, &ptr), WARP_ERROR_DRIVER);
            SIMULATOR(warpsim_fail_clear)();
            CHECK_EQ_U64(r.allocates, allocates);
            CHECK_EQ_PTR(driver_current(), context_of(gpu(1)));
            SIMULATOR(warpsim_fail)("cuCtxSetCurrent", 1, 999);
            deallocates = r.deallocates;
            CHECK_STATUS(warp_free(ptrs[0]), WARP_ERROR_DRIVER);
            SIMULATOR(warpsim_fail_clear)();
            CHECK_EQ_U64(r.deallocates, deallocates);
            CHECK_EQ_PTR(driver_current(), context_of(gpu(1)));
            CHECK_EQ_I64(pointer_info(ptrs[0]).is_owned, 1);
        }
        for (i = 0; i < 4; ++i) {
            CHECK_STATUS(warp_free(ptrs[i]), WARP_SUCCESS);
            CHECK_EQ_PTR(driver_current(), context_of(gpu(1)));
        }
        SIMULATOR(cuCtxSetCurrent)(NULL);
        end_it();
    }
}

/* ---- Out of memory ------------------------------------------------------------------------------------------------------ */

TEST(out_of_memory)
{
    void *ptr = NULL;
    begin_flags(0, 0, WARP_MEMORY_CUDA_DEVICE);
    /* Once: what it is owed comes back, it is trimmed, and asked again. */
    hold(stream_of(gpu(0)));
    ptr = block_by(gpu(0), r.handle, 64, NULL);
    fill_on(ptr, 64, NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    SIMULATOR(warpsim_release_all)();
    CHECK_EQ_U64(r.deallocates, 0);
    r.out_of_memory = 1;
    ptr = block_by(gpu(0), r.handle, 128, NULL);
    CHECK_EQ_U64(r.deallocates, 1);
    CHECK_EQ_U64(r.trims, 1);
    CHECK_EQ_U64(r.trimmed.size, 128);
    CHECK_EQ_U64(r.allocates, 3);
    CHECK_EQ_U64(r.allocated.flags, WARP_ALLOC_REQUEST_RETRY);
    /* Twice: the error names it, and the next one works. */
    r.out_of_memory = 2;
    {
        void *more = NULL;
        CHECK_STATUS(try_by(gpu(0), r.handle, 256, NULL, &more), WARP_ERROR_OUT_OF_MEMORY);
        CHECK_STR_CONTAINS(warp_error_get_message(), "256 bytes");
        CHECK_STR_CONTAINS(warp_error_get_message(), "128 bytes out in 1 blocks");
        CHECK_EQ_U64(r.out_of_memory, 0);
        more = block_by(gpu(0), r.handle, 256, NULL);
        CHECK_STATUS(warp_free(more), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    /* The built-in one below: its own way out is tried, and its words arrive. */
    SIMULATOR(warpsim_out_of_memory_at_size)(4096);
    CHECK_STATUS(try_by(gpu(0), r.handle, 4096, NULL, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    SIMULATOR(warpsim_fail_clear)();
    ptr = block_by(gpu(0), r.handle, 4096, NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    end_it();
}

/* In a capture nobody waits, trims or asks again. */
TEST(out_of_memory_in_a_capture)
{
    warp_stream *stream;
    void *ptr = NULL;
    begin_flags(WARP_ALLOCATOR_STREAM_ORDERED, 0, WARP_MEMORY_CUDA_MEMPOOL);
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    begin(stream);
    r.out_of_memory = 1;
    CHECK_STATUS(try_by(gpu(0), r.handle, 64, stream, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_EQ_U64(r.allocates, 1);
    CHECK_EQ_U64(r.trims, 0);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    ptr = block_by(gpu(0), r.handle, 64, stream);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(end(stream)), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    end_it();
}

/* ---- Lost devices ------------------------------------------------------------------------------------------------------- */

TEST(a_device_that_is_lost)
{
    struct recorder pooled = {.name = "pooled", .flags = WARP_ALLOCATOR_STREAM_ORDERED};
    warp_stream *stream;
    warp_array *array = NULL;
    warp_array_options options = {.struct_size = sizeof options};
    int64_t shape = 16;
    void *plain, *pool, *owed, *direct = NULL;
    warp_alloc_request request = {.struct_size = sizeof request, .size = 64};
    begin_flags(0, 0, WARP_MEMORY_CUDA_DEVICE);
    created(&pooled, WARP_MEMORY_CUDA_MEMPOOL);
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    plain = block_by(gpu(0), r.handle, 64, stream);
    pool = block_by(gpu(0), pooled.handle, 64, stream);
    owed = block_by(gpu(0), r.handle, 64, stream);
    request.device = gpu(0);
    CHECK_STATUS(warp_allocator_allocate(r.handle, &request, &direct), WARP_SUCCESS);
    options.allocator = r.handle;
    CHECK_STATUS(warp_array_empty(gpu(0), F32, 1, &shape, &options, &array), WARP_SUCCESS);
    hold(stream);
    fill_on(owed, 64, stream);
    CHECK_STATUS(warp_free(owed), WARP_SUCCESS);
    SIMULATOR(warpsim_reset_device)(0);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocated.flags, WARP_ALLOC_REQUEST_IDLE | WARP_ALLOC_REQUEST_DEVICE_LOST);
    CHECK_STATUS(warp_free(plain), WARP_ERROR_DOUBLE_FREE);
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    CHECK_EQ_U64(pooled.deallocated.flags, WARP_ALLOC_REQUEST_IDLE | WARP_ALLOC_REQUEST_DEVICE_LOST);
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_deallocate(r.handle, direct, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_EQ_U64(r.deallocates, 4);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(live_of(r.below), 0);
    CHECK_EQ_U64(live_of(pooled.below), 0);
    CHECK_EQ_U64(live("*"), 0);
    let_go(&pooled);
    CHECK_OVER(&pooled);
    end_it();
}

/* ---- Chance ------------------------------------------------------------------------------------------------------------- */

/* A stream-ordered allocator over the pool, on a driver that runs work late and in any order: no use of memory that is not
 * there, and the data of every block is its own. */
TEST(any_order_of_work)
{
    uint64_t seed, seeds = check_under("valgrind") ? 5 : 60;
    for (seed = 1; seed <= seeds && check_failure_count() == 0; ++seed) {
        warp_stream *streams[3];
        unsigned char *ptrs[12] = {NULL}, value[12] = {0};
        uint64_t state = seed;
        int own[12], i, step;
        begin_flags(WARP_ALLOCATOR_STREAM_ORDERED, seed & 1 ? NO_RECORD : 0, WARP_MEMORY_CUDA_MEMPOOL);
        if (seed & 2)
            r.offset = 256;
        SIMULATOR(warpsim_schedule)(seed);
        for (i = 0; i < 3; ++i)
            streams[i] = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        for (step = 0; step < 120; ++step) {
            int at = (int)(next_random(&state) % 12), on = (int)(next_random(&state) % 3);
            if (ptrs[at] == NULL) {
                own[at] = on;
                ptrs[at] = block_by(gpu(0), r.handle, 600, streams[on]);
                value[at] = (unsigned char)(next_random(&state) | 1);
                fill_byte(ptrs[at], value[at], 600, streams[on]);
            } else if (next_random(&state) % 3 == 0) {
                CHECK_STATUS(warp_free(ptrs[at]), WARP_SUCCESS);
                ptrs[at] = NULL;
            } else { /* read it, and write it anew, on some stream, behind its own */
                if (on != own[at])
                    CHECK_STATUS(warp_stream_wait_stream(streams[on], streams[own[at]]), WARP_SUCCESS);
                CHECK(holds(ptrs[at], value[at], 600, streams[on]));
                fill_byte(ptrs[at], ++value[at], 600, streams[on]);
                if (on != own[at])
                    CHECK_STATUS(warp_stream_wait_stream(streams[own[at]], streams[on]), WARP_SUCCESS);
            }
        }
        for (i = 0; i < 12; ++i)
            CHECK_STATUS(warp_free(ptrs[i]), WARP_SUCCESS);
        for (i = 0; i < 3; ++i)
            CHECK_STATUS(warp_stream_release(streams[i]), WARP_SUCCESS);
        SIMULATOR(warpsim_run)(0);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        SIMULATOR(warpsim_schedule)(0);
        CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
        end_it();
        if (check_failure_count() != 0)
            printf("\n      seed %" PRIu64, seed);
    }
}

CHECK_MAIN()
