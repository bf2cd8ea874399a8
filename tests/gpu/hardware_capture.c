/*
 * What only a real GPU proves about captures: that no thread's calls break another's, in any mode; that what is refused leaves
 * them alive; captures of other code, pauses, graphs in graphs, and copies between GPUs with and without access. Runs on one
 * GPU or more; what needs two says so. All of it runs on the simulated driver as well.
 */
#include "hardware_capture.h"

/* ---- Others go on while a thread captures ----------------------------------------------------------------------------- */

static int stop;
static long turns[4];

/* All kinds, questions, streams and events that come and go, on one GPU and with the other. */
static void *live_on(void *number)
{
    const int me = (int)(intptr_t)number, two = gpus() > 1;
    const uint64_t size = 256 << 10;
    unsigned char *pageable = malloc(size);
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        warp_device *home = gpu(two ? me % 2 : 0), *other = gpu(two ? 1 - me % 2 : 0), *cpu = device("cpu");
        warp_stream *mine = new_stream(home, WARP_STREAM_NON_BLOCKING), *far = new_stream(other, WARP_STREAM_NON_BLOCKING);
        warp_event_options timing = {.struct_size = sizeof timing, .flags = WARP_EVENT_TIMING};
        warp_event *first = NULL, *last = NULL;
        unsigned char value = (unsigned char)(turns[me] + me);
        float milliseconds = -1;
        uint8_t done = 0;
        CHECK_STATUS(warp_event_create(home, &timing, &first), WARP_SUCCESS);
        CHECK_STATUS(warp_event_create(home, &timing, &last), WARP_SUCCESS);
        CHECK_STATUS(warp_event_record(first, mine), WARP_SUCCESS);
        for (int kind = WARP_MEMORY_HOST; kind <= WARP_MEMORY_CUDA_MANAGED; kind++) {
            int on_gpu = kind > WARP_MEMORY_PINNED;
            void *ptr = block(on_gpu ? home : cpu, size, kind, on_gpu ? mine : NULL);
            void *there = block(other, size, WARP_MEMORY_UNKNOWN, far);
            warp_pointer_info info = {.struct_size = sizeof info};
            if (ptr == NULL || there == NULL)
                break;
            if (on_gpu)
                fill(ptr, size, value, mine);
            else
                memset(ptr, value, size);
            wait_for(far, mine);
            wait_for(mine, far); /* where the memory comes into being */
            copy(there, ptr, size, on_gpu ? mine : far);
            CHECK_STATUS(warp_pointer_get_info((char *)ptr + 1, &info), WARP_SUCCESS);
            CHECK_EQ_I64(info.kind, kind);
            CHECK_STATUS(warp_pointer_get_info(pageable, &info), WARP_SUCCESS);
            CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
            wait_for(far, mine);
            copy(pageable, there, size, far);
            CHECK_STATUS(warp_free(there), WARP_SUCCESS);
            finish(far);
            CHECK(all_are(pageable, size, value));
        }
        CHECK_STATUS(warp_event_record(last, mine), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wait_event(far, last), WARP_SUCCESS);
        CHECK_STATUS(warp_event_query_done(last, &done), WARP_SUCCESS);
        CHECK_STATUS(warp_event_synchronize(last), WARP_SUCCESS);
        CHECK_STATUS(warp_event_measure_elapsed(first, last, &milliseconds), WARP_SUCCESS);
        CHECK(milliseconds > 0 || simulator_is_here());
        CHECK_STATUS(warp_event_release(first), WARP_SUCCESS);
        CHECK_STATUS(warp_event_release(last), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(mine), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(far), WARP_SUCCESS);
        turns[me]++;
    }
    free(pageable);
    return NULL;
}

PROCESS_TEST(others_go_on_in_all_modes_and_no_capture_breaks)
{
    start();
    const uint64_t size = MIB;
    pthread_t threads[4];
    void *result = block(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, NULL);
    for (intptr_t i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, live_on, (void *)i) == 0);
    for (int mode = WARP_CAPTURE_GLOBAL; mode <= WARP_CAPTURE_RELAXED; mode++) {
        double begun = now();
        for (int i = 0; i < 200; i++) {
            warp_stream *stream = new_stream(gpu(0), i % 2 ? 0 : WARP_STREAM_NON_BLOCKING);
            CHECK_STATUS(warp_capture_begin(stream, mode), WARP_SUCCESS);
            void *inside = pool_block(stream, size);
            fill(inside, size, i + 1, stream);
            void *kept = pool_block(stream, size);
            copy(kept, inside, size, stream);
            CHECK_STATUS(warp_free(inside), WARP_SUCCESS);
            copy(result, kept, size, stream);
            CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
            warp_graph *graph = end(stream);
            if (graph == NULL)
                break;
            launch(graph, stream);
            if (i % 2)
                release(graph);
            CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
            CHECK(device_holds(result, size, (unsigned char)(i + 1), stream));
            if (!(i % 2))
                release(graph);
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        }
        printf("    mode %d: 200 captures in %.2f s beside %ld, %ld, %ld, %ld turns so far\n", mode, now() - begun, turns[0],
               turns[1], turns[2], turns[3]);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK(turns[i] > 0);
    }
    CHECK_STATUS(warp_free(result), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_left(0), 0);
    CHECK_EQ_U64(live(gpu(0)) + live(device("cpu")) + (gpus() > 1 ? live(gpu(1)) : 0), 0);
}

/* ---- What is refused -------------------------------------------------------------------------------------------------- */

static void *end_elsewhere(void *stream)
{
    warp_graph *graph = (warp_graph *)1;
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_EQ_PTR(graph, NULL);
    return NULL;
}

#define CHECK_REFUSED(stream, call)                                      \
    do {                                                                 \
        CHECK_STATUS(call, WARP_ERROR_ILLEGAL_IN_CAPTURE);               \
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);       \
    } while (0)

PROCESS_TEST(what_is_refused_leaves_a_global_capture_alive)
{
    start();
    for (int blocking = 0; blocking < 2; blocking++) {
        warp_stream *stream = new_stream(gpu(0), blocking ? 0 : WARP_STREAM_NON_BLOCKING);
        warp_stream *branch = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        warp_stream *loose = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        warp_event *outside = NULL, *inside = NULL;
        warp_graph *graph = NULL;
        warp_alloc_options options = {.struct_size = sizeof options, .stream = stream};
        void *ptr = NULL;
        uint8_t done;
        pthread_t thread;
        CHECK_STATUS(warp_event_create(gpu(0), NULL, &outside), WARP_SUCCESS);
        CHECK_STATUS(warp_event_create(gpu(0), NULL, &inside), WARP_SUCCESS);
        CHECK_STATUS(warp_event_record(outside, loose), WARP_SUCCESS);
        CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
        void *mine = pool_block(stream, MIB);
        fill(mine, MIB, 0x44, stream);
        CHECK_STATUS(warp_event_record(inside, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_wait_event(branch, inside), WARP_SUCCESS);
        for (options.kind = WARP_MEMORY_CUDA_DEVICE; options.kind <= WARP_MEMORY_CUDA_MANAGED; options.kind += 2)
            CHECK_REFUSED(stream, warp_alloc_with(gpu(0), MIB, &options, &ptr));
        options.kind = WARP_MEMORY_PINNED;
        options.stream = NULL;
        CHECK_REFUSED(stream, warp_alloc_with(device("cpu"), MIB, &options, &ptr));
        CHECK_REFUSED(stream, warp_stream_synchronize(stream));
        CHECK_REFUSED(stream, warp_stream_synchronize(branch));
        CHECK_REFUSED(stream, warp_stream_query_idle(stream, &done));
        CHECK_REFUSED(stream, warp_device_synchronize(gpu(0)));
        CHECK_REFUSED(stream, warp_capture_begin(stream, WARP_CAPTURE_RELAXED));
        CHECK_REFUSED(stream, warp_capture_begin(branch, WARP_CAPTURE_RELAXED));
        CHECK_REFUSED(stream, warp_stream_release(stream));
        CHECK_REFUSED(stream, warp_stream_release(branch));
        CHECK_REFUSED(stream, warp_stream_wait_event(stream, outside));
        CHECK_REFUSED(stream, warp_stream_wait_stream(stream, loose));
        CHECK_REFUSED(stream, warp_event_query_done(inside, &done));
        CHECK_REFUSED(stream, warp_event_synchronize(inside));
        REQUIRE(pthread_create(&thread, NULL, end_elsewhere, stream) == 0);
        pthread_join(thread, NULL);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        CHECK_STATUS(warp_capture_end(branch, &graph), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        /* What is no harm works. */
        CHECK_STATUS(warp_event_query_done(outside, &done), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(loose), WARP_SUCCESS);
        graph = end(stream);
        launch(graph, stream);
        CHECK(device_holds(mine, MIB, 0x44, stream));
        CHECK_STATUS(warp_free(mine), WARP_SUCCESS);
        release(graph);
        CHECK_STATUS(warp_event_release(outside), WARP_SUCCESS);
        CHECK_STATUS(warp_event_release(inside), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    }
    CHECK_EQ_U64(graph_memory_left(0), 0);
}

PROCESS_TEST(wrapping_a_captured_stream_leaves_its_capture_alive)
{
    start();
    for (int mode = 0; mode <= 2; mode++)
        for (uint32_t flags = 0; flags <= WARP_STREAM_UNTRACKED; flags += WARP_STREAM_UNTRACKED) {
            warp_stream_options options = {.struct_size = sizeof options, .flags = flags};
            warp_stream *stream = NULL;
            void *foreign = NULL, *graph = NULL;
            int status = 0;
            REQUIRE(CU((void **, unsigned), "cuStreamCreate")(&foreign, mode == 1 ? 0 : 1) == SUCCESS);
            REQUIRE(BEGIN_CAPTURE(foreign, mode) == SUCCESS);
            CHECK_STATUS(warp_stream_wrap_with(gpu(0), foreign, &options, &stream), WARP_SUCCESS);
            CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            CHECK_EQ_I64(IS_CAPTURING(foreign, &status), SUCCESS);
            CHECK_EQ_I64(status, CAPTURE_ACTIVE);
            CHECK_EQ_I64(END_CAPTURE(foreign, &graph), SUCCESS);
            CHECK(graph != NULL);
            CHECK_EQ_I64(GRAPH_DESTROY(graph), SUCCESS);
            CHECK_EQ_I64(CU((void *), "cuStreamDestroy_v2")(foreign), SUCCESS);
        }
}

/* ---- Captures of other code, pauses, graphs in graphs ----------------------------------------------------------------- */

PROCESS_TEST(other_code_captures_and_the_library_allocates_in_it)
{
    const uint64_t size = 4 * MIB;
    enum { UNTOLD, ADOPTED, ADOPTED_AND_ENDED, WAYS };
    start();
    for (int way = 0; way < WAYS; way++)
        for (int freed_first = 0; freed_first < 2; freed_first++) {
            warp_stream *stream = NULL;
            warp_graph *none = NULL;
            void *foreign = NULL, *graph = NULL, *exec = NULL;
            REQUIRE(CU((void **, unsigned), "cuStreamCreate")(&foreign, 1) == SUCCESS);
            REQUIRE_STATUS(warp_stream_wrap(gpu(0), foreign, &stream), WARP_SUCCESS);
            REQUIRE(BEGIN_CAPTURE(foreign, way) == SUCCESS);
            if (way != UNTOLD)
                CHECK_STATUS(warp_capture_adopt(stream, 0), WARP_SUCCESS);
            void *inside = pool_block(stream, size), *kept = pool_block(stream, size);
            fill(inside, size, 3, stream);
            copy(kept, inside, size, stream);
            CHECK_STATUS(warp_free(inside), WARP_SUCCESS);
            if (way == ADOPTED_AND_ENDED)
                CHECK_STATUS(warp_capture_end(stream, &none), WARP_SUCCESS);
            REQUIRE(END_CAPTURE(foreign, &graph) == SUCCESS && graph != NULL);
            REQUIRE(INSTANTIATE(&exec, graph, AUTO_FREE_ON_LAUNCH) == SUCCESS);
            for (int i = 0; i < 3; i++)
                CHECK_EQ_I64(LAUNCH_NATIVE(exec, foreign), SUCCESS);
            CHECK(device_holds(kept, size, 3, stream));
            if (freed_first)
                CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
            CHECK_EQ_I64(LAUNCH_NATIVE(exec, foreign), SUCCESS);
            CHECK_EQ_I64(EXEC_DESTROY(exec), SUCCESS);
            CHECK_EQ_I64(GRAPH_DESTROY(graph), SUCCESS);
            if (!freed_first) {
                CHECK(device_holds(kept, size, 3, stream));
                CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
            }
            finish(stream);
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            CHECK_EQ_I64(CU((void *), "cuStreamDestroy_v2")(foreign), SUCCESS);
            CHECK_EQ_U64(graph_memory_left(0), 0);
        }
    CHECK_EQ_U64(live(gpu(0)), 0);
}

PROCESS_TEST(a_pause_runs_and_a_graph_becomes_part_of_another)
{
    const uint64_t size = MIB;
    start();
    for (int mode = WARP_CAPTURE_GLOBAL; mode <= WARP_CAPTURE_RELAXED; mode++) {
        warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
        unsigned char *out = block(device("cpu"), size, WARP_MEMORY_PINNED, NULL);
        void *outside = pool_block(stream, size), *scratch = pool_block(stream, size), *refused;
        finish(stream);
        begin(stream);
        fill(scratch, size, 9, stream);
        warp_graph *inner = end(stream);
        begin(stream);
        refused = pool_block(stream, size);
        warp_graph *allocates = end(stream);
        CHECK_STATUS(warp_capture_begin(stream, mode), WARP_SUCCESS);
        void *ptr = pool_block(stream, size);
        fill(ptr, size, 4, stream);
        CHECK_STATUS(warp_capture_pause(stream), WARP_SUCCESS);
        fill(outside, size, 5, stream); /* runs now, once */
        CHECK(device_holds(outside, size, 5, stream));
        void *plain = block(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream);
        CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
        CHECK_STATUS(warp_capture_resume(stream), WARP_SUCCESS);
        CHECK_REFUSED(stream, warp_graph_launch(allocates, stream));
        launch(inner, stream);
        copy(out, scratch, size, stream);
        copy(outside, ptr, size, stream);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        warp_graph *graph = end(stream);
        release(inner);
        CHECK_STATUS(warp_free(refused), WARP_SUCCESS);
        release(allocates);
        CHECK(device_holds(outside, size, 5, stream));
        for (int i = 0; i < 10; i++) {
            memset(out, 0, size);
            launch(graph, stream);
            CHECK(device_holds(outside, size, 4, stream));
            CHECK(all_are(out, size, 9));
            fill(outside, size, i, stream);
            fill(scratch, size, i, stream);
        }
        CHECK_STATUS(warp_free(outside), WARP_SUCCESS);
        CHECK_STATUS(warp_free(scratch), WARP_SUCCESS);
        CHECK_STATUS(warp_free(out), WARP_SUCCESS);
        release(graph);
        finish(stream);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_EQ_U64(graph_memory_left(0), 0);
    }
    CHECK_EQ_U64(live(gpu(0)) + live(device("cpu")), 0);
}

/* ---- Copies between GPUs ---------------------------------------------------------------------------------------------- */

/* Gives or takes another GPU's access to the default pool of one. */
static void grant(int owner, int to, int access)
{
    struct {
        int type, id, flags;
    } entry_of = {1 /* a GPU */, to, access ? 3 : 0};
    void *pool = NULL;
    REQUIRE(DEFAULT_POOL(&pool, owner) == SUCCESS);
    CHECK_EQ_I64(CU((void *, const void *, size_t), "cuMemPoolSetAccess")(pool, &entry_of, 1), SUCCESS);
}

/* One copy in a capture; whether it is recorded and right, or refused with the capture alive. */
static void copy_between(int from, int on, warp_memory_kind a, warp_memory_kind b, int granted)
{
    const uint64_t size = 4 * MIB;
    warp_stream *streams[2] = {new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), new_stream(gpu(1), WARP_STREAM_NON_BLOCKING)};
    void *source = block(gpu(from), size, a, streams[from]), *target = block(gpu(1 - from), size, b, streams[1 - from]);
    int denied = a == WARP_MEMORY_CUDA_MEMPOOL && b == WARP_MEMORY_CUDA_MEMPOOL && granted == 0;
    fill(source, size, 0x17, streams[from]);
    fill(target, size, 0x22, streams[1 - from]);
    finish(streams[0]);
    finish(streams[1]);
    begin(streams[on]);
    CHECK_STATUS(warp_memory_copy(target, source, size, streams[on]), denied ? WARP_ERROR_ACCESS_DENIED : WARP_SUCCESS);
    CHECK_EQ_I64(state_of(streams[on]), WARP_CAPTURE_STATE_ACTIVE);
    warp_graph *graph = end(streams[on]);
    for (int i = 0; i < 2; i++) {
        launch(graph, streams[on]);
        finish(streams[on]);
        CHECK(device_holds(target, size, denied ? 0x22 : 0x17, streams[1 - from]));
        fill(target, size, 0x22, streams[1 - from]);
        finish(streams[1 - from]);
    }
    release(graph);
    CHECK_STATUS(warp_free(source), WARP_SUCCESS);
    CHECK_STATUS(warp_free(target), WARP_SUCCESS);
    for (int i = 0; i < 2; i++) {
        finish(streams[i]);
        CHECK_STATUS(warp_stream_release(streams[i]), WARP_SUCCESS);
    }
}

PROCESS_TEST(copies_between_gpus_are_recorded_wherever_the_driver_can)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL};
    start();
    if (gpus() < 2) {
        SKIP("needs two GPUs");
        return;
    }
    for (int granted = 0; granted < 3; granted++) { /* to nobody, the first one's pool, the second one's */
        if (granted != 0)
            grant(granted - 1, 2 - granted, 1);
        for (int way = 0; way < 16; way++)
            copy_between(way & 1, way >> 1 & 1, kinds[way >> 2 & 1], kinds[way >> 3], granted);
        if (granted != 0)
            grant(granted - 1, 2 - granted, 0);
    }
    CHECK_EQ_U64(live(gpu(0)) + live(gpu(1)), 0);
}

CHECK_MAIN()
