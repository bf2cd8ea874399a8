/*
 * hardware_caching_ends.c: caches on a real GPU beside captures, whose graphs run later, and when streams, threads and the library end.
 *
 * topology: h200x2
 * topology: h200
 * valgrind: slow (a process for each promise; caching_threads.c is under it)
 */
#include "hardware_caching.h"

/* ---- Captures --------------------------------------------------------------------------------------------------------- */

static struct {
    pthread_barrier_t met;
    warp_allocator *cache;
    warp_stream *stream;
} beside;

/* Another thread grows, trims and waits, which a capture in GLOBAL mode would not survive if the driver were asked plainly. */
static void *live_beside(void *unused)
{
    warp_stream *own = stream_of_ones_own();
    (void)unused;
    pthread_barrier_wait(&beside.met);
    for (int i = 0; i < 24; i++) {
        warp_stream *on = i % 2 ? own : beside.stream, *and_on = i % 2 ? beside.stream : own;
        const uint64_t size = (uint64_t)100 * KIB << i % 8;
        void *ptr = block_by(gpu(0), beside.cache, size, on);
        fill(ptr, size, i, on);
        if (i % 3 == 0)
            CHECK_STATUS(warp_pointer_record_stream(ptr, and_on), WARP_SUCCESS);
        if (i % 4 == 0)
            CHECK(device_holds(ptr, size, (unsigned char)i, on));
        freed(ptr);
        (void)trimmed(beside.cache, gpu(0));
    }
    let_stream_go(own);
    pthread_barrier_wait(&beside.met);
    return NULL;
}

static void live_beside_a_capture(warp_allocator *cache, warp_stream *elsewhere)
{
    pthread_t thread;
    beside.cache = cache;
    beside.stream = elsewhere;
    REQUIRE(pthread_barrier_init(&beside.met, NULL, 2) == 0);
    REQUIRE(pthread_create(&thread, NULL, live_beside, NULL) == 0);
    pthread_barrier_wait(&beside.met);
    pthread_barrier_wait(&beside.met);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&beside.met);
}

/* A cached block from before and one of the capture itself, both freed in it: each run reads the one and has the other. */
static void capture_and_run(warp_allocator *cache, warp_capture_mode mode, int value)
{
    enum { RUNS = 5, OTHERS = 4 };
    const uint64_t size = is_small() ? 64 * KIB : 3 * MIB;
    warp_stream *stream = stream_of_ones_own(), *elsewhere = stream_of_ones_own();
    unsigned char *result = (unsigned char *)block_on(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream);
    void *before = block_by(gpu(0), cache, size, stream), *inside;
    warp_graph *graph;
    for (int i = 0; i < 3; i++) /* so that who serves the stream is remembered */
        freed(block_by(gpu(0), cache, size, stream));
    fill(before, size, value, stream);
    CHECK_STATUS(warp_capture_begin(stream, mode), WARP_SUCCESS);
    inside = block_by(gpu(0), cache, size, stream);
    CHECK(is_of_graph(inside) && !is_of_graph(before));
    copy(inside, before, size, stream);
    copy(result, inside, size, stream);
    freed(inside);
    freed(before);
    live_beside_a_capture(cache, elsewhere);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    graph = end(stream);
    for (int run = 0; run < RUNS && graph != NULL; run++) {
        void *others[OTHERS];
        fill(result, size, 0, stream);
        if (run % 2 == 0)
            keep_busy(stream);
        for (int i = 0; i < OTHERS; i++) {
            warp_stream *on = i % 2 ? elsewhere : stream;
            others[i] = block_by(gpu(0), cache, size, on);
            CHECK(others[i] != before && !is_of_graph(others[i]));
            fill(others[i], size, 0xE0 + i, on);
        }
        launch(graph, stream);
        for (int i = 0; i < OTHERS; i += 2)
            fill(others[i], size, 0xE0 + i, stream);
        CHECK(device_holds(result, size, (unsigned char)value, stream));
        for (int i = 0; i < OTHERS; i++) {
            CHECK(device_holds(others[i], size, (unsigned char)(0xE0 + i), i % 2 ? elsewhere : stream));
            freed(others[i]);
        }
    }
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    finish(stream);
    finish(elsewhere);
    CHECK(comes_back(cache, stream));
    freed(result);
    let_stream_go(stream);
    let_stream_go(elsewhere);
}

PROCESS_TEST(graphs_keep_what_they_use_while_the_cache_serves_others)
{
    uint64_t before = 0;
    begin_life();
    for (int way = -1; way < 6; way++) {
        /* The library's own has plain memory, and pool memory for captures; the other one has pool memory for both. */
        warp_allocator *own = way % 2 == 0 ? cache_over(builtin(WARP_MEMORY_CUDA_MEMPOOL), 0, 0) : NULL;
        warp_allocator *cache = own != NULL ? own : own_cache(WARP_MEMORY_UNKNOWN);
        capture_and_run(cache, (warp_capture_mode)(way < 0 ? 0 : way / 2), 1 + (way & 7));
        CHECK_EQ_U64(graph_memory_left(0), 0);
        empty(cache, gpu(0));
        if (own != NULL)
            release(own);
        if (way < 0) /* what is loaded once is there by now */
            before = free_memory();
        if (check_failure_count() != 0) {
            printf("\n    (way %d)", way);
            return;
        }
    }
    CHECK_MEMORY_BACK(0, before);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(captures_of_other_code_have_memory_of_their_own)
{
    const uint64_t size = is_small() ? 64 * KIB : 3 * MIB;
    begin_life();
    for (int mode = 0; mode < 3; mode++) {
        warp_allocator *cache = own_cache(WARP_MEMORY_UNKNOWN);
        warp_stream *stream = stream_of_ones_own(), *elsewhere = stream_of_ones_own();
        unsigned char *result = (unsigned char *)block_on(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream);
        void *before = block_by(gpu(0), cache, size, stream), *inside, *graph = NULL, *exec = NULL;
        freed(block_by(gpu(0), cache, size, stream));
        freed(block_by(gpu(0), cache, size, stream));
        REQUIRE(BEGIN_CAPTURE(native(stream), mode) == SUCCESS);
        inside = block_by(gpu(0), cache, size, stream);
        CHECK(is_of_graph(inside));
        fill(inside, size, 11 + mode, stream);
        copy(result, inside, size, stream);
        freed(inside);
        freed(before); /* the capture has not used it */
        live_beside_a_capture(cache, elsewhere);
        REQUIRE(END_CAPTURE(native(stream), &graph) == SUCCESS && graph != NULL);
        REQUIRE(INSTANTIATE(&exec, graph, 0) == SUCCESS);
        for (int run = 0; run < 3; run++) {
            void *ptr = block_by(gpu(0), cache, size, stream);
            CHECK(!is_of_graph(ptr));
            fill(result, size, 0, stream);
            fill(ptr, size, 0xEE, stream);
            CHECK_EQ_I64(LAUNCH_NATIVE(exec, native(stream)), SUCCESS);
            CHECK(device_holds(result, size, (unsigned char)(11 + mode), stream));
            CHECK(device_holds(ptr, size, 0xEE, stream));
            freed(ptr);
        }
        CHECK_EQ_I64(EXEC_DESTROY(exec), SUCCESS);
        CHECK_EQ_I64(GRAPH_DESTROY(graph), SUCCESS);
        finish(stream);
        CHECK(comes_back(cache, stream));
        CHECK_EQ_U64(graph_memory_left(0), 0);
        freed(result);
        let_stream_go(stream);
        let_stream_go(elsewhere);
        empty(cache, gpu(0));
    }
    CHECK_NOTHING_LEFT();
}

/* ---- Ends ------------------------------------------------------------------------------------------------------------- */

/* A stream ends with work in flight on a block that was freed; the next stream asks for the same and writes into it. */
static void end_streams(warp_memory_kind kind, int is_wrapped)
{
    enum { ROUNDS = 4 };
    const uint64_t size = large();
    warp_allocator *cache = cache_over(builtin(kind), 0, 0);
    warp_stream *reader = stream_of_ones_own();
    unsigned char *results = (unsigned char *)block_on(gpu(0), ROUNDS * size, WARP_MEMORY_CUDA_DEVICE, reader);
    finish(reader);
    for (int round = 0; round < ROUNDS; round++) {
        warp_stream *stream = NULL, *next;
        void *foreign = NULL, *ptr, *other;
        if (is_wrapped) {
            CHECK_EQ_I64(CU((void **, unsigned), "cuStreamCreate")(&foreign, 1), SUCCESS);
            CHECK_STATUS(warp_stream_wrap(gpu(0), foreign, &stream), WARP_SUCCESS);
        } else {
            stream = stream_of_ones_own();
        }
        ptr = block_by(gpu(0), cache, size, stream);
        keep_busy(stream);
        fill(ptr, size, round + 1, stream);
        copy(results + (uint64_t)round * size, ptr, size, stream);
        freed(ptr);
        let_stream_go(stream);
        if (is_wrapped)
            CHECK_EQ_I64(CU((void *), "cuStreamDestroy_v2")(foreign), SUCCESS);
        next = stream_of_ones_own();
        other = block_by(gpu(0), cache, size, next);
        fill(other, size, 0xEE, next);
        CHECK(device_holds(other, size, 0xEE, next));
        freed(other);
        let_stream_go(next);
    }
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    for (int round = 0; round < ROUNDS; round++)
        CHECK(device_holds(results + (uint64_t)round * size, size, (unsigned char)(round + 1), reader));
    CHECK(comes_back(cache, reader));
    freed(results);
    let_stream_go(reader);
    end_cache(cache, gpu(0));
}

PROCESS_TEST(streams_end_under_the_work_on_cached_blocks)
{
    begin_life();
    for (size_t k = 0; k < UPSTREAMS; k++)
        for (int is_wrapped = 0; is_wrapped < 2; is_wrapped++) {
            end_streams(upstreams[k], is_wrapped);
            if (check_failure_count() != 0) {
                printf("\n    (%s, %s)", kind_names[upstreams[k]], is_wrapped ? "wrapped" : "of one's own");
                return;
            }
        }
    CHECK_NOTHING_LEFT();
}

enum { ENDING = 8 };

static struct {
    warp_allocator *cache;
    warp_stream *stream;
    void *left[ENDING];
} ending;

/* Has blocks at hand when it ends, and leaves one that is live. */
static void *end_with_blocks(void *number)
{
    const int me = (int)(uintptr_t)number;
    void *blocks[3];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++)
            fill(blocks[i] = block_by(gpu(0), ending.cache, large(), ending.stream), large(), i, ending.stream);
        for (int i = 0; i < 3; i++)
            freed(blocks[i]);
    }
    ending.left[me] = block_by(gpu(0), ending.cache, large(), ending.stream);
    fill(ending.left[me], large(), 100 + me, ending.stream);
    return NULL;
}

PROCESS_TEST(threads_end_with_blocks_at_hand)
{
    enum { MOST = 8 * ENDING };
    begin_life();
    ending.stream = stream_of_ones_own();
    for (size_t k = 0; k < UPSTREAMS; k++) {
        void *blocks[MOST];
        uint64_t growths, count;
        ending.cache = cache_over(builtin(upstreams[k]), 0, 0);
        keep_busy(ending.stream);
        for (int round = 0; round < 2; round++) {
            pthread_t threads[ENDING];
            const int count = round == 0 ? ENDING : 1; /* from the last one nobody takes what it has */
            for (int i = 0; i < count; i++)
                REQUIRE(pthread_create(&threads[i], NULL, end_with_blocks, (void *)(uintptr_t)i) == 0);
            for (int i = 0; i < count; i++)
                pthread_join(threads[i], NULL);
            CHECK(round == 0 || measured(ending.cache).at_hand_bytes >= 2 * large());
            for (int i = 0; i < count; i++) {
                CHECK(device_holds(ending.left[i], large(), (unsigned char)(100 + i), ending.stream));
                freed(ending.left[i]);
            }
        }
        /* All that they had serves who asks next. */
        growths = measured(ending.cache).growths;
        count = measured(ending.cache).reserved_bytes / large();
        REQUIRE(count >= ENDING && count <= MOST);
        for (uint64_t i = 0; i < count; i++)
            blocks[i] = block_by(gpu(0), ending.cache, large(), ending.stream);
        CHECK_EQ_U64(measured(ending.cache).growths, growths);
        CHECK_EQ_U64(measured(ending.cache).free_bytes, 0);
        for (uint64_t i = 0; i < count; i++)
            freed(blocks[i]);
        end_cache(ending.cache, gpu(0));
    }
    let_stream_go(ending.stream);
    CHECK_NOTHING_LEFT();
}

static uint64_t drivers_free_memory(void)
{
    size_t bytes = 0, total = 0;
    CHECK_EQ_I64(CU((void), "cuCtxSynchronize")(), SUCCESS);
    CHECK_EQ_I64(CU((size_t *, size_t *), "cuMemGetInfo_v2")(&bytes, &total), SUCCESS);
    return bytes;
}

/* With blocks that are kept, that are live, and that a stream still works on; the context is other code's too, and lives on. */
PROCESS_TEST(the_library_ends_with_cached_blocks_and_begins_again)
{
    const uint64_t size = large(), kept = is_small() ? 64 * MIB : GIB;
    void *context = NULL;
    begin_life();
    CHECK_EQ_I64(CU((void **, int), "cuDevicePrimaryCtxRetain")(&context, 0), SUCCESS);
    for (int round = 0; round < 4; round++) {
        const warp_memory_kind kind = upstreams[round % UPSTREAMS];
        unsigned char *seen = malloc(size);
        warp_allocator *cache, *made;
        warp_stream *stream;
        void *live[2], *working;
        uint64_t before;
        if (round != 0)
            begin_life();
        stream = stream_of_ones_own();
        (void)busy_seconds(stream);
        before = drivers_free_memory();
        CHECK_STATUS(warp_allocator_set_caching_for_all(1), WARP_SUCCESS);
        cache = own_cache(WARP_MEMORY_UNKNOWN);
        made = cache_over(builtin(kind), 0, 0);
        live[0] = plain_alloc(gpu(0), size);
        live[1] = block_by(gpu(0), made, size, stream);
        CHECK_EQ_PTR(server_of(live[0]), cache);
        fill(live[0], size, 31, NULL);
        fill(live[1], size, 32, stream);
        freed(plain_alloc(gpu(0), kept));
        freed(block_by(gpu(0), made, kept, stream));
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        working = block_by(gpu(0), made, size, stream);
        keep_busy(stream);
        fill(working, size, 33, stream);
        freed(working);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc(NULL, 1000, &working), WARP_ERROR_SHUT_DOWN);

        /* What is live is as it was, and has its chunks; what was kept is the driver's. */
        for (int i = 0; i < 2; i++) {
            CHECK_EQ_I64(CU((void *, address, size_t), "cuMemcpyDtoH_v2")(seen, at(live[i]), size), SUCCESS);
            CHECK(all_are(seen, size, (unsigned char)(31 + i)));
        }
        if (round / 2 == 0)
            for (int i = 0; i < 2; i++)
                freed(live[i]);
        CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        if (round / 2 == 1)
            for (int i = 0; i < 2; i++) {
                CHECK_EQ_U64(pointer_info(live[i]).size, size);
                freed(live[i]);
            }
        for (int i = 0; i < 2; i++)
            CHECK_STATUS(warp_free(live[i]), WARP_ERROR_DOUBLE_FREE);
        CHECK_STATUS(try_by(gpu(0), made, 1000, NULL, &working), WARP_ERROR_INVALID_HANDLE);
        /* Nothing is cached by default any more, and a call that waits looks at what is still to go. */
        working = plain_alloc(gpu(0), 1000);
        CHECK_EQ_PTR(server_of(working), NULL);
        freed(working);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK(drivers_free_memory() + 64 * MIB >= before);
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        free(seen);
        if (check_failure_count() != 0) {
            printf("\n    (round %d)", round);
            return;
        }
    }
    begin_life();
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
