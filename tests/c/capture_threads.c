/*
 * capture_threads.c: threads capture, in every mode, while others allocate, free, ask and wait, and free blocks of the graphs
 * that are just being captured. Every capture ends whole, nothing is lost, and nobody waits for a capture of another GPU.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"
#include "dice.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

#define SIZE ((uint64_t)8192)
#define SHELF 32

/* ---- the stress ---- */

/* Blocks of graphs, and graphs, that one thread laid down for others to free or release. */
static struct {
    pthread_mutex_t lock;
    void *blocks[SHELF];
    warp_graph *graphs[SHELF];
} shelf = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int stop, natively;

/* Lays one thing down and takes up what was there. */
static void *swap_block(uint64_t *random, void *block)
{
    size_t i = next_random(random) % SHELF;
    void *was;
    pthread_mutex_lock(&shelf.lock);
    was = shelf.blocks[i];
    shelf.blocks[i] = block;
    pthread_mutex_unlock(&shelf.lock);
    return was;
}

static warp_graph *swap_graph(uint64_t *random, warp_graph *graph)
{
    size_t i = next_random(random) % SHELF;
    warp_graph *was;
    pthread_mutex_lock(&shelf.lock);
    was = shelf.graphs[i];
    shelf.graphs[i] = graph;
    pthread_mutex_unlock(&shelf.lock);
    return was;
}

struct worker {
    pthread_t thread;
    uint64_t random, rounds;
    const char *alias;
    CUstream native;
};

static void *capture_and_run(void *argument)
{
    struct worker *worker = argument;
    warp_stream *stream = make_stream(worker->alias, worker->random % 2 ? WARP_STREAM_NON_BLOCKING : 0);
    void *outside = alloc_on(worker->alias, stream, SIZE);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && check_failure_count() < 20) {
        /* Other code's calls are not made so that a global capture allows them. */
        int first = natively ? WARP_CAPTURE_THREAD_LOCAL : WARP_CAPTURE_GLOBAL;
        warp_capture_mode mode = (warp_capture_mode)(first + (int)(next_random(&worker->random) % (uint64_t)(3 - first)));
        warp_graph *graph = NULL;
        void *kept, *mine, *shared, *was;
        int launches = (int)(next_random(&worker->random) % 3), i;
        ++worker->rounds;
        CHECK_STATUS(warp_capture_begin(stream, mode), WARP_SUCCESS);
        kept = alloc_on(worker->alias, stream, SIZE);
        mine = alloc_on(worker->alias, stream, SIZE);
        shared = alloc_on(worker->alias, stream, SIZE);
        fill_byte(kept, 0x11, SIZE, stream);
        fill_byte(mine, 0x22, SIZE, stream);
        fill_byte(shared, 0x33, SIZE, stream);
        /* From here on somebody else may free it at any moment, and this thread does not touch it. */
        was = swap_block(&worker->random, shared);
        CHECK_STATUS(warp_memory_copy(kept, mine, SIZE / 2, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy((char *)kept + SIZE / 2, outside, SIZE / 2, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(mine), WARP_SUCCESS);
        if (was != NULL) /* of some graph, this thread's or another's, captured or not */
            CHECK_STATUS(warp_free(was), WARP_SUCCESS);
        if (next_random(&worker->random) % 8 == 0) {
            CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
            CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
            continue;
        }
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        if (graph == NULL) {
            CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
            continue;
        }
        for (i = 0; i < launches; ++i)
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        if (launches != 0)
            CHECK(holds(kept, 0x22, SIZE / 2, stream));
        if (next_random(&worker->random) % 2)
            CHECK_STATUS(warp_free(kept), WARP_SUCCESS);
        else if ((was = swap_block(&worker->random, kept)) != NULL)
            CHECK_STATUS(warp_free(was), WARP_SUCCESS);
        graph = next_random(&worker->random) % 2 ? graph : swap_graph(&worker->random, graph);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(outside), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    return NULL;
}

static void *disturb(void *argument)
{
    static const struct {
        const char *alias;
        warp_memory_kind kind;
    } asked[] = {
        {"cuda:0", WARP_MEMORY_CUDA_MEMPOOL}, {"cuda:0", WARP_MEMORY_CUDA_DEVICE}, {"cuda:0", WARP_MEMORY_CUDA_MANAGED},
        {"cuda:1", WARP_MEMORY_CUDA_MEMPOOL}, {"cuda:1", WARP_MEMORY_CUDA_DEVICE}, {"cuda:1", WARP_MEMORY_CUDA_MANAGED},
        {"cpu", WARP_MEMORY_PINNED},          {"cpu", WARP_MEMORY_HOST},
    };
    struct worker *worker = argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && check_failure_count() < 20) {
        size_t which = next_random(&worker->random) % (sizeof asked / sizeof *asked);
        int on_gpu = asked[which].kind > WARP_MEMORY_PINNED;
        warp_stream *stream = on_gpu ? make_stream(asked[which].alias, which % 2) : NULL;
        warp_pointer_info where = {.struct_size = sizeof where};
        warp_graph *graph;
        void *block = NULL, *was;
        ++worker->rounds;
        CHECK_STATUS(try_alloc(asked[which].alias, stream, asked[which].kind, SIZE, &block), WARP_SUCCESS);
        if (block == NULL)
            break;
        CHECK_STATUS(warp_memory_fill(block, SIZE, "q", 1, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_pointer_get_info((char *)block + 100, &where), WARP_SUCCESS);
        CHECK_EQ_PTR(where.base, block);
        CHECK_EQ_I64(where.kind, asked[which].kind);
        if (on_gpu) {
            CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_NONE);
            CHECK(holds(block, 'q', SIZE, stream));
        }
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        if (stream != NULL)
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        if ((was = swap_block(&worker->random, NULL)) != NULL) {
            CHECK_STATUS(warp_pointer_get_info(was, &where), WARP_SUCCESS);
            CHECK_STATUS(warp_free(was), WARP_SUCCESS);
        }
        if (next_random(&worker->random) % 4 == 0 && (graph = swap_graph(&worker->random, NULL)) != NULL)
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    }
    return NULL;
}

/* Other code, which captures in the mode that forbids most, on a stream that the library only knows. */
static void *capture_natively(void *argument)
{
    struct worker *worker = argument;
    CUcontext context = NULL;
    CUstream native = NULL;
    warp_stream *stream = NULL;
    void *outside;
    CHECK_STATUS(warp_device_get_native_context(device("cuda:0"), &context), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context), 0);
    CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, 1), 0);
    CHECK_STATUS(warp_stream_wrap(device("cuda:0"), native, &stream), WARP_SUCCESS);
    outside = alloc_on("cuda:0", stream, SIZE);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && check_failure_count() < 20) {
        void *shared = alloc_on("cuda:0", stream, SIZE), *plain = NULL, *was;
        int told = next_random(&worker->random) % 2, uses = next_random(&worker->random) % 3 != 0;
        CUgraph graph = NULL;
        CUgraphExec exec = NULL;
        ++worker->rounds;
        /* Blocks of this stream, for others to free at any moment. */
        CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_CUDA_DEVICE, SIZE, &plain), WARP_SUCCESS);
        fill_byte(shared, 1, SIZE, stream);
        fill_byte(plain, 1, SIZE, stream);
        if ((was = swap_block(&worker->random, shared)) != NULL)
            CHECK_STATUS(warp_free(was), WARP_SUCCESS);
        if ((was = swap_block(&worker->random, plain)) != NULL)
            CHECK_STATUS(warp_free(was), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native, WARP_CAPTURE_GLOBAL), 0);
        CHECK_EQ_U64(SIMULATOR(cuMemsetD8Async)((uint64_t)(uintptr_t)outside, 9, SIZE, native), 0);
        if (uses) {
            void *block = alloc_on("cuda:0", stream, SIZE);
            fill_byte(block, 0x66, SIZE, stream);
            CHECK_STATUS(warp_memory_copy(outside, block, SIZE, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            if (told) {
                warp_graph *none = (warp_graph *)1;
                CHECK_STATUS(warp_capture_end(stream, &none), WARP_SUCCESS);
                CHECK_EQ_PTR(none, NULL);
            }
        }
        CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native, &graph), 0);
        CHECK_EQ_U64(SIMULATOR(cuGraphInstantiateWithFlags)(&exec, graph, 0), 0);
        CHECK_EQ_U64(SIMULATOR(cuGraphLaunch)(exec, native), 0);
        CHECK(holds(outside, uses ? 0x66 : 9, SIZE, stream));
        CHECK_EQ_U64(SIMULATOR(cuGraphExecDestroy)(exec), 0);
        CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(graph), 0);
    }
    CHECK_STATUS(warp_free(outside), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamSynchronize)(native), 0);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    worker->native = native; /* other threads' calls may still look at it */
    return NULL;
}

static void storm(uint64_t seed, int capturing, int disturbing, uint64_t rounds)
{
    struct worker workers[8];
    int i, all = capturing + disturbing;
    uint64_t done;
    memset(workers, 0, sizeof workers);
    memset(shelf.blocks, 0, sizeof shelf.blocks);
    memset(shelf.graphs, 0, sizeof shelf.graphs);
    stop = 0;
    for (i = 0; i < all; ++i) {
        workers[i].random = seed * 100 + (uint64_t)i;
        workers[i].alias = i == 2 ? "cuda:1" : "cuda:0";
        REQUIRE(pthread_create(&workers[i].thread, NULL,
                               i == 0 && natively ? capture_natively
                               : i < capturing    ? capture_and_run
                                                  : disturb,
                               &workers[i]) == 0);
    }
    do {
        sched_yield();
        for (done = rounds, i = 0; i < all; ++i)
            if (__atomic_load_n(&workers[i].rounds, __ATOMIC_RELAXED) < done)
                done = __atomic_load_n(&workers[i].rounds, __ATOMIC_RELAXED);
    } while (done < rounds && check_failure_count() == 0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < all; ++i)
        pthread_join(workers[i].thread, NULL);
    if (workers[0].native != NULL)
        CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(workers[0].native), 0);
    for (i = 0; i < SHELF; ++i) {
        CHECK_STATUS(warp_free(shelf.blocks[i]), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(shelf.graphs[i]), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_trim_memory(device("cuda:1")), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    CHECK_EQ_U64(live_blocks(), 0);
    check_clean();
}

PROCESS_TEST(one_thread_captures_and_others_go_about_their_business)
{
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    storm(1, 1, 3, check_under("valgrind") ? 10 : 150);
}

PROCESS_TEST(several_threads_capture_at_once)
{
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    storm(2, 4, 2, check_under("valgrind") ? 6 : 100);
}

PROCESS_TEST(several_threads_capture_while_work_is_late)
{
    setenv("WARPSIM_LOG", "0", 1);
    setenv("WARPSIM_SEED", "5", 1);
    start_on("h200x2");
    storm(3, 3, 3, check_under("valgrind") ? 6 : 100);
}

PROCESS_TEST(other_code_captures_while_the_library_is_used)
{
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    natively = 1;
    storm(4, 1, 4, check_under("valgrind") ? 10 : 150);
}

PROCESS_TEST(other_code_and_the_library_capture_at_once)
{
    setenv("WARPSIM_LOG", "0", 1);
    setenv("WARPSIM_SEED", "6", 1);
    start_on("h200x2");
    natively = 1;
    storm(5, 3, 2, check_under("valgrind") ? 6 : 100);
}

/* ---- one capture, and what another thread may do meanwhile ---- */

static struct {
    sem_t captures, done;
    warp_stream *stream;
    warp_graph *graph;
    void *kept, *freed_by_other, *outside, *old_block;
    warp_graph *old_graph;
    warp_capture_mode mode;
} turn;

/* Everything that is not the capturing thread's, each with an effect that is there at once. */
static void *meanwhile(void *argument)
{
    warp_stream *s0, *s1;
    uint64_t before1;
    void *block = NULL;
    size_t pinned, plain;
    warp_statistics of = {.struct_size = sizeof of};
    sem_wait(&turn.captures);
    s0 = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    s1 = make_stream("cuda:1", 0);
    /* The other GPU: given back before the capture ends. */
    before1 = SIMULATOR(warpsim_device_used)(1);
    plain = live("default");
    CHECK_STATUS(try_alloc("cuda:1", s1, WARP_MEMORY_CUDA_DEVICE, SIZE, &block), WARP_SUCCESS);
    CHECK_EQ_U64(live("default"), plain + 1);
    fill_byte(block, 1, SIZE, s1);
    CHECK_STATUS(warp_stream_synchronize(s1), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(live("default"), plain);
    CHECK_EQ_U64(SIMULATOR(warpsim_device_used)(1), before1);
    CHECK_STATUS(try_alloc("cuda:1", s1, WARP_MEMORY_CUDA_MANAGED, SIZE, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    block = alloc_on("cuda:1", s1, SIZE);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(device("cuda:1")), WARP_SUCCESS);
    CHECK_EQ_U64(live("managed"), 0);
    /* This GPU, on a stream that is not captured. */
    CHECK_STATUS(try_alloc("cuda:0", s0, WARP_MEMORY_CUDA_DEVICE, SIZE, &block), WARP_SUCCESS);
    CHECK(holds(block, 0xCD, 1, s0)); /* what memory holds before it is written, there */
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(live("default"), plain);
    pinned = live("pinned");
    CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(turn.old_block, block, SIZE, s0), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(s0), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(live("pinned"), pinned);
    /* A block of the captured stream waits for the end; one of its graph is its graph's. */
    CHECK_STATUS(warp_free(turn.outside), WARP_SUCCESS);
    CHECK_STATUS(warp_free(turn.freed_by_other), WARP_SUCCESS);
    CHECK_STATUS(warp_free(turn.freed_by_other), WARP_ERROR_DOUBLE_FREE);
    /* A graph of before, and its block. */
    CHECK_STATUS(warp_graph_launch(turn.old_graph, s0), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(s0), WARP_SUCCESS);
    CHECK_STATUS(warp_free(turn.old_block), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(turn.old_graph), WARP_SUCCESS);
    /* What would break the capture is refused, and so is what only its thread may do. */
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_stream_synchronize(turn.stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    if (turn.mode != WARP_CAPTURE_RELAXED) {
        warp_graph *graph = (warp_graph *)1;
        CHECK_STATUS(warp_capture_end(turn.stream, &graph), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_EQ_PTR(graph, NULL);
        CHECK_STATUS(warp_capture_pause(turn.stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STATUS(warp_capture_abandon(turn.stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    }
    CHECK_STATUS(warp_stream_release(turn.stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_statistics_get(device("cuda:0"), WARP_MEMORY_UNKNOWN, &of), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(s0), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(s1), WARP_SUCCESS);
    if (turn.mode == WARP_CAPTURE_RELAXED) {
        /* The end of a relaxed capture may be anybody's. */
        CHECK_STATUS(warp_capture_end(turn.stream, &turn.graph), WARP_SUCCESS);
        CHECK(turn.graph != NULL);
    }
    sem_post(&turn.done);
    return argument;
}

PROCESS_TEST(what_other_threads_do_is_done_and_the_capture_is_whole)
{
    int flags;
    warp_capture_mode mode;
    start_on("h200x2");
    sem_init(&turn.captures, 0, 0);
    sem_init(&turn.done, 0, 0);
    for (flags = 0; flags < 2; ++flags)
        for (mode = WARP_CAPTURE_GLOBAL; mode <= WARP_CAPTURE_RELAXED; ++mode) {
            pthread_t thread;
            void *block = (void *)1;
            warp_stream *free_stream;
            int run;
            turn.mode = mode;
            turn.stream = make_stream("cuda:0", (uint32_t)flags);
            turn.outside = alloc_on("cuda:0", turn.stream, SIZE);
            begin(turn.stream);
            turn.old_block = alloc_on("cuda:0", turn.stream, SIZE);
            turn.old_graph = end(turn.stream);
            CHECK_STATUS(warp_graph_launch(turn.old_graph, turn.stream), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(turn.stream), WARP_SUCCESS);
            free_stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
            REQUIRE(pthread_create(&thread, NULL, meanwhile, NULL) == 0);
            CHECK_STATUS(warp_capture_begin(turn.stream, mode), WARP_SUCCESS);
            turn.kept = alloc_on("cuda:0", turn.stream, SIZE);
            turn.freed_by_other = alloc_on("cuda:0", turn.stream, SIZE);
            fill_byte(turn.kept, 0x44, SIZE, turn.stream);
            fill_byte(turn.freed_by_other, 0x55, SIZE, turn.stream);
            CHECK_STATUS(warp_memory_copy(turn.kept, turn.freed_by_other, SIZE / 2, turn.stream), WARP_SUCCESS);
            /* This thread gets no page-locked memory, nor plain memory on the captured stream. */
            CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &block), WARP_ERROR_ILLEGAL_IN_CAPTURE);
            CHECK_EQ_PTR(block, NULL);
            CHECK_STATUS(try_alloc("cuda:0", turn.stream, WARP_MEMORY_CUDA_DEVICE, SIZE, &block), WARP_ERROR_ILLEGAL_IN_CAPTURE);
            CHECK_STATUS(try_alloc("cuda:0", turn.stream, WARP_MEMORY_CUDA_MANAGED, SIZE, &block), WARP_ERROR_ILLEGAL_IN_CAPTURE);
            CHECK_STATUS(try_alloc("cuda:0", free_stream, WARP_MEMORY_CUDA_DEVICE, SIZE, &block), WARP_SUCCESS);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            CHECK_STATUS(try_alloc("cuda:1", NULL, WARP_MEMORY_CUDA_DEVICE, SIZE, &block), WARP_SUCCESS);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            CHECK_EQ_I64(state_of(turn.stream), WARP_CAPTURE_STATE_ACTIVE);
            sem_post(&turn.captures);
            sem_wait(&turn.done);
            if (mode != WARP_CAPTURE_RELAXED) {
                CHECK_EQ_I64(state_of(turn.stream), WARP_CAPTURE_STATE_ACTIVE);
                CHECK_EQ_U64(live("pool"), 1);
                turn.graph = end(turn.stream);
            }
            pthread_join(thread, NULL);
            CHECK_EQ_I64(state_of(turn.stream), WARP_CAPTURE_STATE_NONE);
            /* What waited for the end has gone, and what the other thread freed is freed in the graph. */
            CHECK_EQ_U64(live("pool"), 0);
            CHECK_EQ_U64(graph_info(turn.graph).block_count, 1);
            for (run = 0; run < 3; ++run) {
                CHECK_STATUS(warp_graph_launch(turn.graph, turn.stream), WARP_SUCCESS);
                CHECK(holds(turn.kept, 0x55, SIZE / 2, turn.stream));
                CHECK(holds((char *)turn.kept + SIZE / 2, 0x44, SIZE / 2, turn.stream));
                CHECK_EQ_U64(live("graph_block"), 1);
            }
            /* The thread captures no more: it gets page-locked memory again. */
            CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &block), WARP_SUCCESS);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            CHECK_STATUS(warp_free(turn.kept), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_release(turn.graph), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(turn.stream), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(free_stream), WARP_SUCCESS);
            CHECK_EQ_U64(graph_memory_after_trim(), 0);
            CHECK_EQ_U64(live_blocks(), 0);
            check_clean();
            if (check_failure_count() != 0) {
                printf("\n    in mode %d, flags %d", (int)mode, flags);
                return;
            }
        }
}

/* ---- many frees of one graph by many threads, while it is captured ---- */

#define MANY 64
static void *many[MANY];
static int next_free;

static void *free_many(void *argument)
{
    int i;
    while ((i = __atomic_fetch_add(&next_free, 1, __ATOMIC_SEQ_CST)) < MANY)
        CHECK_STATUS(warp_free(many[i]), WARP_SUCCESS);
    return argument;
}

PROCESS_TEST(frees_of_a_graphs_blocks_by_other_threads_end_in_the_graph)
{
    int round, rounds = check_under("valgrind") ? 3 : 20;
    start_on("h200x2");
    for (round = 0; round < rounds && check_failure_count() == 0; ++round) {
        warp_stream *stream = make_stream("cuda:0", 0);
        warp_graph *graph = NULL;
        pthread_t threads[3];
        void *result = alloc_on("cuda:0", stream, MANY);
        int i, run, paused = round % 2;
        CHECK_STATUS(warp_capture_begin(stream, (warp_capture_mode)(round % 3)), WARP_SUCCESS);
        for (i = 0; i < MANY; ++i) {
            many[i] = alloc_on("cuda:0", stream, SIZE);
            fill_byte(many[i], (unsigned char)(i + 1), SIZE, stream);
            CHECK_STATUS(warp_memory_copy((char *)result + i, (char *)many[i] + SIZE - 1, 1, stream), WARP_SUCCESS);
        }
        next_free = 0;
        if (paused)
            CHECK_STATUS(warp_capture_pause(stream), WARP_SUCCESS);
        for (i = 0; i < 3; ++i)
            REQUIRE(pthread_create(&threads[i], NULL, free_many, NULL) == 0);
        /* The capture goes on beside the frees. */
        while (__atomic_load_n(&next_free, __ATOMIC_SEQ_CST) < MANY)
            if (!paused) {
                void *more = alloc_on("cuda:0", stream, SIZE);
                fill_byte(more, 0xEE, SIZE, stream);
                CHECK_STATUS(warp_free(more), WARP_SUCCESS);
            }
        for (i = 0; i < 3; ++i)
            pthread_join(threads[i], NULL);
        if (paused && round % 4 == 1)
            CHECK_STATUS(warp_capture_resume(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        CHECK_EQ_U64(graph_info(graph).block_count, 0);
        for (run = 0; run < 3; ++run) {
            unsigned char back[MANY];
            fill_byte(result, 0, MANY, stream);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_memory_copy(back, result, MANY, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
            for (i = 0; i < MANY; ++i)
                CHECK_EQ_I64(back[i], i + 1);
            CHECK_EQ_U64(live("graph_block"), 0);
        }
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_free(result), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_EQ_U64(graph_memory_after_trim(), 0);
        check_clean();
    }
}

/* ---- a stream that others use while its capture begins ---- */

static warp_stream *common;

/* Fills on the stream, in the capture or outside of it, whichever it happens to be. */
static void *use_common(void *argument)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        warp_memory_fill(argument, SIZE, "c", 1, common);
        warp_capture_adopt(common, 0);
    }
    return NULL;
}

PROCESS_TEST(a_capture_that_begins_under_another_threads_use_is_still_whose_it_is)
{
    int round, rounds = check_under("valgrind") ? 20 : 2000;
    pthread_t thread;
    void *block;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    common = make_stream("cuda:0", 0);
    block = alloc_on("cuda:0", common, SIZE);
    stop = 0;
    REQUIRE(pthread_create(&thread, NULL, use_common, block) == 0);
    for (round = 0; round < rounds && check_failure_count() == 0; ++round) {
        warp_graph *graph = NULL;
        begin(common);
        CHECK_EQ_I64(capture_of(common).is_owned, 1);
        graph = end(common);
        CHECK_EQ_I64(state_of(common), WARP_CAPTURE_STATE_NONE);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    CHECK_STATUS(warp_stream_synchronize(common), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(common), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    CHECK_EQ_U64(live_blocks(), 0);
    check_clean();
}

CHECK_MAIN()
