/*
 * graph_keeps.c: a graph keeps what calls of the library recorded. Blocks of every kind, the patterns of fills, arrays and
 * wrapped memory are there for every run, whenever they are freed, and are given back when the graph and its runs are gone.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"

#include <malloc.h>
#include <pthread.h>

#define SIZE ((uint64_t)4096)

static const struct {
    const char *name, *alias, *live;
    warp_memory_kind kind;
} kinds[] = {
    {"pool", "cuda:0", "pool", WARP_MEMORY_CUDA_MEMPOOL}, {"plain", "cuda:0", "default", WARP_MEMORY_CUDA_DEVICE},
    {"managed", "cuda:0", "managed", WARP_MEMORY_CUDA_MANAGED}, {"pinned", "cpu", "pinned", WARP_MEMORY_PINNED},
    {"host", "cpu", "", WARP_MEMORY_HOST},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static int is_host(size_t k)
{
    return kinds[k].kind == WARP_MEMORY_HOST || kinds[k].kind == WARP_MEMORY_PINNED;
}

static void *alloc_kind(size_t k, warp_stream *stream)
{
    void *block = NULL;
    CHECK_STATUS(try_alloc(kinds[k].alias, is_host(k) ? NULL : stream, kinds[k].kind, SIZE, &block), WARP_SUCCESS);
    CHECK(block != NULL);
    return block;
}

static unsigned char expected(uint64_t i, unsigned seed)
{
    return (unsigned char)(i * 7 + i / 251 + seed);
}

static void put(void *block, unsigned seed, warp_stream *stream)
{
    unsigned char bytes[SIZE];
    uint64_t i;
    for (i = 0; i < SIZE; ++i)
        bytes[i] = expected(i, seed);
    CHECK_STATUS(warp_memory_copy(block, bytes, SIZE, stream), WARP_SUCCESS);
    if (stream != NULL)
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
}

static int has(const void *block, unsigned seed, warp_stream *stream)
{
    unsigned char bytes[SIZE];
    uint64_t i;
    memset(bytes, 0xEE, sizeof bytes);
    CHECK_STATUS(warp_memory_copy(bytes, block, SIZE, stream), WARP_SUCCESS);
    if (stream != NULL)
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    for (i = 0; i < SIZE; ++i)
        if (bytes[i] != expected(i, seed))
            return 0;
    return 1;
}

/* Blocks like the one that was freed, full of something else: if it was given back, one of them lies there. */
static void overwrite(size_t k, warp_stream *stream, const void *freed)
{
    void *others[6];
    size_t i;
    for (i = 0; i < sizeof others / sizeof *others; ++i) {
        others[i] = alloc_kind(k, stream);
        CHECK(others[i] != freed);
        CHECK_STATUS(warp_memory_fill(others[i], SIZE, "\x99", 1, is_host(k) ? NULL : stream), WARP_SUCCESS);
    }
    if (!is_host(k))
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    for (i = 0; i < sizeof others / sizeof *others; ++i)
        CHECK_STATUS(warp_free(others[i]), WARP_SUCCESS);
}

static void replay(warp_graph *graph, warp_stream *stream, void *out)
{
    fill_byte(out, 0, SIZE, stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(has(out, 3, stream));
}

enum moment { INSIDE, AFTER_END, BETWEEN, AFTER_RELEASE, MOMENTS };

/* A block that a recorded copy reads from, freed at one moment or another. */
static void source_freed(size_t k, enum moment moment)
{
    warp_stream *stream = make_stream("cuda:0", 0), *work = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    void *out = alloc_on("cuda:0", work, SIZE), *block = alloc_kind(k, work);
    size_t before = live(kinds[k].live);
    uint64_t blocks = live_blocks();
    uint64_t native = (uint64_t)(uintptr_t)native_of(work);
    warp_graph *graph;
    put(block, 3, is_host(k) ? NULL : work);
    begin(stream);
    CHECK_STATUS(warp_memory_copy(out, block, SIZE, stream), WARP_SUCCESS);
    if (moment == INSIDE) {
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_ERROR_DOUBLE_FREE);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        if (kinds[k].kind != WARP_MEMORY_PINNED) /* which a thread that captures gets none of */
            overwrite(k, work, block);
    }
    graph = end(stream);
    CHECK_EQ_U64(graph_info(graph).block_count, 0);
    if (moment == AFTER_END) {
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        overwrite(k, work, block);
    }
    replay(graph, work, out);
    if (moment == BETWEEN) {
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        overwrite(k, work, block);
    }
    replay(graph, stream, out);
    replay(graph, work, out);
    /* A last run that cannot go on yet. */
    fill_byte(out, 0, SIZE, work);
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native), 0);
    CHECK_STATUS(warp_graph_launch(graph, work), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    if (moment == AFTER_RELEASE)
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(live_blocks(), blocks - 1);
    if (kinds[k].live[0] != '\0')
        CHECK_EQ_U64(live(kinds[k].live), before);
    /* The driver's plain frees would wait for the run. */
    if (kinds[k].kind == WARP_MEMORY_HOST || kinds[k].kind == WARP_MEMORY_CUDA_MEMPOOL)
        overwrite(k, stream, block);
    if (kinds[k].live[0] != '\0') {
        CHECK_EQ_U64(graph_memory_after_trim(), 0);
        CHECK_EQ_U64(live(kinds[k].live), before);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_release)(native), 0);
    CHECK(has(out, 3, work));
    /* Everything is over: the next call that looks gives it back. */
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    CHECK_STATUS(warp_stream_synchronize(work), WARP_SUCCESS);
    if (kinds[k].live[0] != '\0')
        CHECK_EQ_U64(live(kinds[k].live), before - 1);
    CHECK_STATUS(warp_free(out), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(work), WARP_SUCCESS);
    CHECK_EQ_U64(live_blocks(), 0);
    check_clean();
}

PROCESS_TEST(a_source_is_there_for_every_run_whenever_it_is_freed)
{
    size_t k;
    int moment;
    start_on("h200x2");
    for (k = 0; k < KINDS; ++k)
        for (moment = 0; moment < MOMENTS; ++moment) {
            int failures = check_failure_count();
            source_freed(k, (enum moment)moment);
            if (check_failure_count() != failures)
                printf("\n    with %s memory, moment %d", kinds[k].name, moment);
        }
}

/* The other way round: runs write into memory that was freed, and must not write into somebody else's. */
PROCESS_TEST(a_destination_is_not_given_to_others_while_runs_write_to_it)
{
    size_t k;
    start_on("h200x2");
    for (k = 0; k < KINDS; ++k) {
        warp_stream *stream = make_stream("cuda:0", 0);
        void *from = alloc_on("cuda:0", stream, SIZE), *block = alloc_kind(k, stream), *others[8];
        warp_graph *graph;
        size_t i;
        put(from, 3, stream);
        begin(stream);
        CHECK_STATUS(warp_memory_copy(block, from, SIZE, stream), WARP_SUCCESS);
        graph = end(stream);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        for (i = 0; i < 8; ++i) {
            others[i] = alloc_kind(k, stream);
            CHECK(others[i] != block);
            put(others[i], 100 + (unsigned)i, is_host(k) ? NULL : stream);
        }
        for (i = 0; i < 3; ++i)
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        for (i = 0; i < 8; ++i) {
            CHECK(has(others[i], 100 + (unsigned)i, is_host(k) ? NULL : stream));
            CHECK_STATUS(warp_free(others[i]), WARP_SUCCESS);
        }
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_free(from), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_EQ_U64(graph_memory_after_trim(), 0);
        check_clean();
    }
}

PROCESS_TEST(a_released_graph_without_runs_gives_everything_back_at_once)
{
    size_t k, moment;
    start_on("h200x2");
    for (k = 0; k < KINDS; ++k)
        for (moment = 0; moment < 3; ++moment) {
            warp_stream *stream = make_stream("cuda:0", 0);
            void *out = alloc_on("cuda:0", stream, SIZE), *block = alloc_kind(k, stream);
            warp_graph *graph;
            begin(stream);
            CHECK_STATUS(warp_memory_copy(out, block, SIZE, stream), WARP_SUCCESS);
            if (moment == 0)
                CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            graph = end(stream);
            if (moment == 1)
                CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            if (moment == 2)
                CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            CHECK_STATUS(warp_free(out), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            CHECK_EQ_U64(graph_memory_after_trim(), 0);
            check_clean();
        }
}

PROCESS_TEST(pinned_memory_that_is_freed_under_a_copy_is_not_reused_before_the_copy_is_done)
{
    int round, rounds = check_under("valgrind") ? 1000 : 10000, to_host;
    unsigned char *check;
    setenv("WARPSIM_SEED", "11", 1);
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    check = malloc(SIZE);
    for (to_host = 0; to_host < 2; ++to_host) {
        warp_stream *stream = make_stream("cuda:0", 0);
        void *block = alloc_on("cuda:0", stream, SIZE), *back = NULL;
        size_t most = 0;
        CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &back), WARP_SUCCESS);
        for (round = 0; round < rounds && check_failure_count() < 10; ++round) {
            void *pinned = NULL, *next = NULL;
            CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &pinned), WARP_SUCCESS);
            memset(pinned, round % 255, SIZE);
            if (to_host) {
                CHECK_STATUS(warp_memory_copy(pinned, block, SIZE, stream), WARP_SUCCESS);
                CHECK_STATUS(warp_free(pinned), WARP_SUCCESS);
                CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &next), WARP_SUCCESS);
                memset(next, 0xAB, SIZE);
                if (round % 64 == 0) {
                    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
                    CHECK(((unsigned char *)next)[0] == 0xAB && ((unsigned char *)next)[SIZE - 1] == 0xAB);
                }
            } else {
                CHECK_STATUS(warp_memory_copy(block, pinned, SIZE, stream), WARP_SUCCESS);
                CHECK_STATUS(warp_free(pinned), WARP_SUCCESS);
                CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, SIZE, &next), WARP_SUCCESS);
                memset(next, 0xAB, SIZE);
                if (round % 64 == 0) {
                    CHECK_STATUS(warp_memory_copy(back, block, SIZE, stream), WARP_SUCCESS);
                    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
                    memcpy(check, back, SIZE);
                    CHECK(check[0] == round % 255 && check[SIZE - 1] == round % 255);
                }
            }
            CHECK_STATUS(warp_free(next), WARP_SUCCESS);
            if (live("pinned") > most)
                most = live("pinned");
        }
        CHECK(most <= 128 + 2);
        CHECK_STATUS(warp_free(back), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_EQ_U64(graph_memory_after_trim(), 0);
        check_clean();
    }
    free(check);
}

/* The pattern that a caller gives is the caller's again at once. */
PROCESS_TEST(the_pattern_of_a_fill_lasts_as_long_as_its_graph)
{
    static const size_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 12, 13};
    size_t l, where;
    start_on("h200x2");
    for (l = 0; l < sizeof lengths / sizeof *lengths; ++l)
        for (where = 0; where < 3; ++where) {
            uint64_t size = lengths[l] * 333, i, wrong = 0;
            warp_stream *stream = make_stream("cuda:0", 0);
            unsigned char *block = alloc_on("cuda:0", stream, size), *back = malloc(size);
            unsigned char *pattern = malloc(lengths[l]);
            void *home = NULL;
            warp_graph *graph;
            int run;
            if (where != 0) {
                free(pattern);
                CHECK_STATUS(try_alloc("cpu", NULL, where == 1 ? WARP_MEMORY_HOST : WARP_MEMORY_PINNED, lengths[l], &home),
                             WARP_SUCCESS);
                pattern = home;
            }
            for (i = 0; i < lengths[l]; ++i)
                pattern[i] = (unsigned char)(3 + 5 * i);
            begin(stream);
            CHECK_STATUS(warp_memory_fill(block, size, pattern, lengths[l], stream), WARP_SUCCESS);
            memset(pattern, 0xEE, lengths[l]);
            if (where == 0)
                free(pattern);
            else
                CHECK_STATUS(warp_free(pattern), WARP_SUCCESS);
            graph = end(stream);
            for (run = 0; run < 3; ++run) {
                fill_byte(block, 0, size, stream);
                CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
                CHECK_STATUS(warp_memory_copy(back, block, size, stream), WARP_SUCCESS);
                CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
                for (i = 0; i < size; ++i)
                    wrong += back[i] != (unsigned char)(3 + 5 * (i % lengths[l]));
            }
            CHECK_EQ_U64(wrong, 0);
            free(back);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            CHECK_EQ_U64(graph_memory_after_trim(), 0);
            check_clean();
        }
}

/* What a caller's kernel uses is for the caller to name. */
PROCESS_TEST(memory_that_the_caller_names_is_kept)
{
    int how, run;
    start_on("h200x2");
    for (how = 0; how < 3; ++how) {
        warp_stream *stream = make_stream("cuda:0", 0), *fork = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
        void *out = alloc_on("cuda:0", stream, SIZE), *block = alloc_on("cuda:0", stream, SIZE);
        warp_graph *graph;
        size_t pool = live("pool");
        put(block, 3, stream);
        begin(stream);
        if (how == 0) /* the kernel's stand-in: a copy that the library does not see */
            CHECK_EQ_U64(SIMULATOR(cuMemcpyAsync)((uint64_t)(uintptr_t)out, (uint64_t)(uintptr_t)block, SIZE, native_of(stream)), 0);
        else if (how == 1) {
            CHECK_EQ_U64(SIMULATOR(cuMemcpyAsync)((uint64_t)(uintptr_t)out, (uint64_t)(uintptr_t)block, SIZE, native_of(stream)), 0);
            CHECK_STATUS(warp_pointer_record_stream((char *)block + 17, stream), WARP_SUCCESS);
        } else { /* on a stream that only takes part */
            CUevent event = NULL;
            CUcontext context = NULL;
            CHECK_STATUS(warp_device_get_native_context(device("cuda:0"), &context), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context), 0);
            CHECK_EQ_U64(SIMULATOR(cuEventCreate)(&event, 2), 0);
            CHECK_EQ_U64(SIMULATOR(cuEventRecord)(event, native_of(stream)), 0);
            CHECK_EQ_U64(SIMULATOR(cuStreamWaitEvent)(native_of(fork), event, 0), 0);
            CHECK_EQ_U64(SIMULATOR(cuMemcpyAsync)((uint64_t)(uintptr_t)out, (uint64_t)(uintptr_t)block, SIZE, native_of(fork)), 0);
            CHECK_STATUS(warp_pointer_record_stream(block, fork), WARP_SUCCESS);
            CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
        }
        if (how != 0)
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        graph = end(stream);
        if (how == 0) {
            CHECK_STATUS(warp_graph_retain(graph, (char *)block + SIZE), WARP_ERROR_UNKNOWN_POINTER);
            CHECK_STATUS(warp_graph_retain(graph, NULL), WARP_ERROR_UNKNOWN_POINTER);
            CHECK_STATUS(warp_graph_retain(NULL, block), WARP_ERROR_INVALID_HANDLE);
            CHECK_STATUS(warp_graph_retain(graph, (char *)block + SIZE - 1), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_retain(graph, block), WARP_SUCCESS);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_retain(graph, block), WARP_ERROR_UNKNOWN_POINTER);
        }
        for (run = 0; run < 3; ++run)
            replay(graph, stream, out);
        CHECK_EQ_U64(live("pool"), pool);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_EQ_U64(graph_memory_after_trim(), 0);
        CHECK_EQ_U64(live("pool"), pool - 1);
        CHECK_STATUS(warp_graph_retain(graph, out), WARP_ERROR_INVALID_HANDLE);
        CHECK_STATUS(warp_free(out), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(fork), WARP_SUCCESS);
        check_clean();
    }
}

PROCESS_TEST(a_block_that_two_graphs_use_goes_back_with_the_second)
{
    size_t k;
    int first;
    start_on("h200x2");
    for (k = 0; k < KINDS; ++k)
        for (first = 0; first < 2; ++first) {
            warp_stream *stream = make_stream("cuda:0", 0);
            void *out = alloc_on("cuda:0", stream, SIZE), *block = alloc_kind(k, stream);
            warp_graph *graphs[2];
            size_t before = live(kinds[k].live);
            int i;
            put(block, 3, is_host(k) ? NULL : stream);
            for (i = 0; i < 2; ++i) {
                begin(stream);
                CHECK_STATUS(warp_memory_copy(out, block, SIZE, stream), WARP_SUCCESS);
                CHECK_STATUS(warp_memory_copy(out, block, SIZE, stream), WARP_SUCCESS);
                graphs[i] = end(stream);
            }
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            replay(graphs[first], stream, out);
            CHECK_STATUS(warp_graph_release(graphs[first]), WARP_SUCCESS);
            overwrite(k, stream, block);
            CHECK_EQ_U64(graph_memory_after_trim(), 0);
            CHECK_EQ_U64(live(kinds[k].live), before);
            replay(graphs[!first], stream, out);
            CHECK_STATUS(warp_graph_release(graphs[!first]), WARP_SUCCESS);
            CHECK_EQ_U64(graph_memory_after_trim(), 0);
            if (kinds[k].live[0] != '\0')
                CHECK_EQ_U64(live(kinds[k].live), before - 1);
            CHECK_STATUS(warp_free(out), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
            check_clean();
        }
}

static size_t heap(void)
{
    return mallinfo2().uordblks;
}

PROCESS_TEST(a_block_outlives_many_graphs_without_collecting_them)
{
    int round, rounds = check_under("valgrind") ? 300 : 3000;
    warp_stream *stream;
    void *block, *host = NULL;
    size_t early = 0;
    setenv("WARPSIM_LOG", "0", 1);
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    block = alloc_on("cuda:0", stream, SIZE);
    CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_HOST, SIZE, &host), WARP_SUCCESS);
    for (round = 0; round < rounds && check_failure_count() < 10; ++round) {
        warp_graph *graph;
        begin(stream);
        CHECK_STATUS(warp_memory_fill(block, 12, "abcdefghijkl", 12, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy((char *)block + 16, host, 16, stream), WARP_SUCCESS);
        if (round % 3 == 2) {
            CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
            continue;
        }
        graph = end(stream);
        if (round % 3 == 1)
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        if (round % 3 == 1)
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        if (round == rounds / 10)
            early = heap();
    }
    CHECK(check_under("valgrind") || check_under("sanitizer") || heap() < early + (64 << 10));
    CHECK_EQ_U64(live("graph"), 0);
    CHECK_EQ_U64(live("graph_exec"), 0);
    CHECK_EQ_U64(live("user_object"), 0);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(host), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

/* A graph's own block, once it exists, is used like any other: also on the stream that it was allocated on. */
PROCESS_TEST(a_graphs_block_is_freed_behind_what_its_own_stream_does_with_it_after_the_run)
{
    int released;
    start_on("h200x2");
    SIMULATOR(warpsim_order_checks)(1);
    for (released = 0; released < 2; ++released) {
        warp_stream *stream = make_stream("cuda:0", 0);
        warp_graph *graph;
        void *block;
        uint64_t native = (uint64_t)(uintptr_t)native_of(stream);
        begin(stream);
        block = alloc_on("cuda:0", stream, SIZE);
        graph = end(stream);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        if (released)
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native), 0);
        fill_byte(block, 1, SIZE, stream);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        if (!released)
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        graph_memory_after_trim();
        CHECK_EQ_U64(live("graph_block"), 1);
        CHECK_EQ_U64(SIMULATOR(warpsim_release)(native), 0);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_U64(graph_memory_after_trim(), 0);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        check_clean();
    }
}

/* A graph inside another one: what the inner one keeps is there for the runs of the outer one. */
PROCESS_TEST(an_outer_graph_keeps_what_its_inner_one_does)
{
    int run;
    warp_stream *stream;
    warp_graph *inner, *outer;
    void *out, *block, *host = NULL;
    char pattern[] = "wxyz-";
    unsigned char back[5];
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    out = alloc_on("cuda:0", stream, 2 * SIZE);
    block = alloc_on("cuda:0", stream, SIZE);
    CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_HOST, SIZE, &host), WARP_SUCCESS);
    put(host, 3, NULL);
    begin(stream);
    CHECK_STATUS(warp_memory_copy(block, host, SIZE, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(out, block, SIZE, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_fill((char *)out + SIZE, 5, pattern, 5, stream), WARP_SUCCESS);
    inner = end(stream);
    begin(stream);
    CHECK_STATUS(warp_graph_launch(inner, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(inner), WARP_SUCCESS);
    outer = end(stream);
    CHECK_STATUS(warp_free(host), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    memset(pattern, 0, sizeof pattern);
    overwrite(0, stream, block);
    overwrite(4, stream, host);
    for (run = 0; run < 3; ++run) {
        fill_byte((char *)out + SIZE, 0, SIZE, stream);
        replay(outer, stream, out);
        CHECK_STATUS(warp_memory_copy(back, (char *)out + SIZE, 5, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK(memcmp(back, "wxyz-", 5) == 0);
    }
    CHECK_EQ_U64(live("pool"), 2);
    CHECK_STATUS(warp_graph_release(outer), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    CHECK_EQ_U64(live("pool"), 1);
    CHECK_STATUS(warp_free(out), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_clean();
}

CHECK_MAIN()
