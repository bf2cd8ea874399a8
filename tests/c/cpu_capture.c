/*
 * cpu_capture.c: what a thread does on the CPU while it captures there is recorded and happens in every run, in order; what is
 * refused; captures inside of each other, pauses, graphs inside of graphs.
 *
 * topology: h200x2
 * topology: none
 * topology: -
 */
#include "cpu_captures.h"

#define SIZE ((uint64_t)10000)

static int has_gpu(void)
{
    size_t count = 0;
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    return count != 0;
}

TEST(fills_and_copies_happen_in_each_run_and_not_before)
{
    unsigned char *a, *b;
    warp_graph *graph;
    warp_graph_info info = {.struct_size = sizeof info};
    int run;
    start();
    a = host_block(SIZE);
    b = host_block(SIZE);
    fill(a, 1, SIZE);
    fill(b, 2, SIZE);
    begin();
    fill(a, 3, SIZE / 2);
    copy(b, a, SIZE);
    fill(a, 4, 1);
    CHECK(all_are(a, 1, SIZE) && all_are(b, 2, SIZE));
    CHECK_STATUS(warp_stream_synchronize(cpu_stream()), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(device("cpu")), WARP_SUCCESS);
    CHECK(all_are(a, 1, SIZE) && all_are(b, 2, SIZE));
    graph = end();
    CHECK(all_are(a, 1, SIZE) && all_are(b, 2, SIZE));
    CHECK_STATUS(warp_graph_get_info(graph, &info), WARP_SUCCESS);
    CHECK_EQ_PTR(info.device, device("cpu"));
    CHECK_EQ_PTR(info.native_graph, NULL);
    CHECK_EQ_PTR(info.native_exec, NULL);
    CHECK_EQ_U64(info.block_count, 0);
    CHECK_EQ_I64(info.is_launched, 0);
    for (run = 0; run < 3; ++run) {
        /* What is there when a run begins is what it works on. */
        fill(a, (unsigned char)(10 + run), SIZE);
        CHECK_STATUS(warp_graph_launch(graph, run == 1 ? cpu_stream() : NULL), WARP_SUCCESS);
        CHECK(all_are(b, 3, SIZE / 2) && all_are(b + SIZE / 2, (unsigned char)(10 + run), SIZE - SIZE / 2));
        CHECK(a[0] == 4 && all_are(a + 1, 3, SIZE / 2 - 1));
    }
    CHECK_STATUS(warp_graph_get_info(graph, &info), WARP_SUCCESS);
    CHECK_EQ_I64(info.is_launched, 1);
    CHECK_EQ_PTR(info.native_exec, NULL);
    release(graph);
    CHECK_STATUS(warp_graph_launch(graph, NULL), WARP_ERROR_INVALID_HANDLE);
    free_block(a);
    free_block(b);
    finish();
}

TEST(a_source_that_is_no_block_is_copied_and_a_destination_is_not)
{
    unsigned char *block, *temporary, kept[100], out[100];
    uint32_t pattern[3] = {1, 2, 3};
    warp_graph *graph;
    size_t i;
    start();
    block = host_block(SIZE);
    temporary = malloc(SIZE);
    for (i = 0; i < SIZE; ++i)
        temporary[i] = (unsigned char)(i * 7);
    memset(kept, 1, sizeof kept);
    begin();
    copy(block, temporary, SIZE);
    /* Written by the graph, so that it is read anew in each run: from `kept` to `out` there is no block. */
    copy(out, kept, sizeof out);
    copy(kept, out + 10, 50);
    copy(block + SIZE - 100, kept, 100);
    CHECK_STATUS(warp_memory_fill(block + 12, 24, pattern, sizeof pattern, NULL), WARP_SUCCESS);
    memset(temporary, 0xEE, SIZE);
    free(temporary);
    pattern[0] = 9;
    memset(kept, 2, sizeof kept);
    memset(out, 3, sizeof out);
    graph = end();
    for (i = 0; i < 2; ++i) {
        size_t at, wrong = 0;
        memset(block, 0, SIZE);
        /* The first copy took `kept` as it was. The second takes what the first wrote, and the third what the second wrote, and else
         * what is there. */
        memset(kept, (int)(20 + i), sizeof kept);
        launch(graph);
        for (at = 36; at < SIZE - 100; ++at)
            wrong += block[at] != (unsigned char)(at * 7);
        CHECK_EQ_U64(wrong, 0);
        CHECK(all_are(out, 1, sizeof out));
        CHECK(all_are(kept, 1, 50) && all_are(kept + 50, (unsigned char)(20 + i), 50));
        CHECK(memcmp(block + SIZE - 100, kept, 100) == 0);
        CHECK_EQ_U64(((uint32_t *)(void *)block)[3], 1);
        CHECK_EQ_U64(((uint32_t *)(void *)block)[8], 3);
        CHECK_EQ_U64(block[11], (unsigned char)(11 * 7));
    }
    release(graph);
    free_block(block);
    finish();
}

TEST(stretches_that_a_capture_writes_are_found_again_however_they_lie)
{
    unsigned char *memory = malloc(4096), *block;
    warp_graph *graph;
    int i;
    start();
    block = host_block(4096);
    memset(memory, 1, 4096);
    begin();
    /* Apart, then joined, then overlapped. */
    for (i = 0; i < 8; ++i)
        fill(memory + 400 * i, 5, 100);
    fill(memory + 100, 5, 300);
    fill(memory + 350, 5, 1000);
    copy(block, memory, 1350);             /* written all over */
    copy(block + 1350, memory + 1699, 1);  /* the last written byte of a stretch */
    copy(block + 1351, memory + 1700, 10); /* not written */
    copy(block + 1361, memory + 3000, 10); /* beyond all */
    graph = end();
    memset(memory, 2, 4096);
    launch(graph);
    CHECK(all_are(block, 5, 1351));
    CHECK(all_are(block + 1351, 1, 20));
    release(graph);
    free_block(block);
    free(memory);
    finish();
}

static warp_array *array_of(int32_t rank, const int64_t *shape, int content)
{
    warp_dtype type = warp_dtype_make(WARP_DTYPE_INT, 32);
    warp_array *array = NULL;
    int32_t item = 77;
    warp_device *cpu = device("cpu");
    if (content == 0)
        CHECK_STATUS(warp_array_zeros(cpu, type, rank, shape, NULL, &array), WARP_SUCCESS);
    else if (content == 1)
        CHECK_STATUS(warp_array_ones(cpu, type, rank, shape, NULL, &array), WARP_SUCCESS);
    else if (content == 2)
        CHECK_STATUS(warp_array_full(cpu, type, rank, shape, &item, NULL, &array), WARP_SUCCESS);
    else
        CHECK_STATUS(warp_array_empty(cpu, type, rank, shape, NULL, &array), WARP_SUCCESS);
    return array;
}

static int32_t *items(warp_array *array)
{
    warp_array_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_array_get_info(array, &info), WARP_SUCCESS);
    return info.data;
}

static void drop(warp_array *array)
{
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
}

TEST(arrays_are_made_at_once_and_filled_by_the_runs)
{
    const int64_t shape[] = {6, 5};
    const int64_t columns[] = {1, 2};
    warp_array *before = NULL, *made[3], *copy_of = NULL, *part = NULL;
    warp_graph *graph;
    int32_t *data[3], *cloned, value = 5, i, run;
    start();
    before = array_of(2, shape, 2);
    begin();
    for (i = 0; i < 3; ++i) {
        made[i] = array_of(2, shape, i);
        data[i] = items(made[i]);
        memset(data[i], 0x55, 30 * 4);
    }
    CHECK_STATUS(warp_array_clone(before, NULL, NULL, &copy_of), WARP_SUCCESS);
    cloned = items(copy_of);
    memset(cloned, 0x55, 30 * 4);
    CHECK_STATUS(warp_array_copy(made[1], made[2], 2, 4, 10, NULL), WARP_SUCCESS);
    /* Every other column: not contiguous. */
    CHECK_STATUS(warp_array_slice(made[0], 2, NULL, NULL, columns, &part), WARP_SUCCESS);
    CHECK_STATUS(warp_array_fill(part, &value, 4, NULL), WARP_SUCCESS);
    graph = end();
    CHECK_EQ_I64(data[0][0], 0x55555555);
    CHECK_EQ_I64(cloned[29], 0x55555555);
    for (run = 0; run < 3; ++run) {
        for (i = 0; i < 3; ++i)
            memset(data[i], run, 30 * 4);
        items(before)[29] = 100 + run;
        launch(graph);
        for (i = 0; i < 30; ++i) {
            CHECK_EQ_I64(data[0][i], i % 5 % 2 == 0 ? 5 : 0);
            CHECK_EQ_I64(data[1][i], i >= 2 && i < 12 ? 77 : 1);
            CHECK_EQ_I64(data[2][i], 77);
            CHECK_EQ_I64(cloned[i], i == 29 ? 100 + run : 77);
        }
    }
    /* The graph keeps the memory of all. */
    for (i = 0; i < 3; ++i)
        drop(made[i]);
    drop(part);
    drop(before);
    cloned[29] = 0;
    launch(graph);
    CHECK_EQ_I64(cloned[29], 102);
    drop(copy_of);
    launch(graph);
    release(graph);
    finish();
}

TEST(wrapped_memory_is_taken_by_its_address)
{
    const int64_t shape[] = {100};
    warp_dtype type = warp_dtype_make(WARP_DTYPE_INT, 32);
    int32_t from[100], to[100];
    warp_array *source = NULL, *target = NULL;
    warp_graph *graph;
    int i;
    start();
    CHECK_STATUS(warp_array_wrap(device("cpu"), from, type, 1, shape, NULL, &source), WARP_SUCCESS);
    CHECK_STATUS(warp_array_wrap(device("cpu"), to, type, 1, shape, NULL, &target), WARP_SUCCESS);
    for (i = 0; i < 100; ++i)
        from[i] = i;
    begin();
    CHECK_STATUS(warp_array_copy(target, source, 0, 0, 0, NULL), WARP_SUCCESS);
    graph = end();
    for (i = 0; i < 100; ++i)
        from[i] = 2 * i;
    launch(graph);
    CHECK_EQ_I64(to[99], 198);
    from[99] = -1;
    drop(source);
    drop(target);
    launch(graph);
    CHECK_EQ_I64(to[99], -1);
    release(graph);
    finish();
}

/* ---- functions ---------------------------------------------------------------------------------------------------- */

static char order[64];

struct letter {
    char letter;
    int *released;
};

static void append(void *user)
{
    order[strlen(order)] = ((struct letter *)user)->letter;
}

static void let_go(void *user)
{
    ++*((struct letter *)user)->released;
}

TEST(functions_are_called_at_once_or_in_each_run_between_the_steps)
{
    int released = 0;
    struct letter a = {'a', &released}, b = {'b', &released};
    unsigned char *block;
    warp_graph *graph;
    start();
    memset(order, 0, sizeof order);
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), append, &a, let_go), WARP_SUCCESS);
    CHECK_EQ_STR(order, "a");
    CHECK_EQ_I64(released, 1);
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), append, &b, NULL), WARP_SUCCESS);
    CHECK_EQ_STR(order, "ab");
    CHECK_INVALID(warp_stream_host_call(cpu_stream(), NULL, &b, let_go), "NULL");
    CHECK_EQ_I64(released, 1);
    block = host_block(SIZE);
    begin();
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), append, &b, let_go), WARP_SUCCESS);
    fill(block, 9, SIZE);
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), append, &a, let_go), WARP_SUCCESS);
    graph = end();
    CHECK_EQ_STR(order, "ab");
    launch(graph);
    CHECK_EQ_STR(order, "abba");
    launch(graph);
    CHECK_EQ_STR(order, "abbaba");
    CHECK_EQ_I64(released, 1);
    release(graph);
    CHECK_EQ_I64(released, 3);
    free_block(block);
    finish();
}

struct within {
    warp_graph *graph, *other;
    void *block;
    int calls;
};

static void work_in_the_middle(void *user)
{
    struct within *with = user;
    unsigned char *mine = host_block(64);
    fill(mine, 7, 64);
    copy(with->block, mine, 64);
    free_block(mine);
    CHECK_REFUSED(warp_graph_launch(with->graph, NULL), "own run");
    launch(with->other);
    if (++with->calls == 2) {
        release(with->graph);
        CHECK_STATUS(warp_graph_launch(with->graph, NULL), WARP_ERROR_INVALID_HANDLE);
    }
}

TEST(a_function_may_use_the_library_and_release_the_graph_that_runs)
{
    struct within with = {NULL, NULL, NULL, 0};
    unsigned char *last;
    int released = 0;
    struct letter letter = {'c', &released};
    start();
    memset(order, 0, sizeof order);
    with.block = host_block(64);
    last = host_block(64);
    begin();
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), append, &letter, NULL), WARP_SUCCESS);
    with.other = end();
    begin();
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), work_in_the_middle, &with, NULL), WARP_SUCCESS);
    copy(last, with.block, 64);
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), append, &letter, let_go), WARP_SUCCESS);
    with.graph = end();
    free_block(last); /* kept: the run goes on to its end after the release */
    launch(with.graph);
    CHECK_EQ_STR(order, "cc");
    CHECK_EQ_I64(with.calls, 1);
    CHECK(all_are(with.block, 7, 64));
    launch(with.graph);
    CHECK_EQ_I64(with.calls, 2);
    CHECK_EQ_STR(order, "cccc");
    CHECK_EQ_I64(released, 1);
    CHECK_STATUS(warp_graph_launch(with.graph, NULL), WARP_ERROR_INVALID_HANDLE);
    release(with.other);
    free_block(with.block);
    finish();
}

static warp_graph *with_it;

static void launch_what_has_it(void *user)
{
    if (with_it != NULL)
        CHECK_REFUSED(warp_graph_launch(with_it, NULL), "own run");
    ++*(int *)user;
}

TEST(a_graph_is_refused_in_the_middle_of_its_run_as_a_part_too)
{
    warp_graph *graph;
    int calls = 0;
    start();
    with_it = NULL;
    begin();
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), launch_what_has_it, &calls, NULL), WARP_SUCCESS);
    graph = end();
    begin();
    launch(graph);
    with_it = end();
    launch(graph);
    launch(with_it);
    CHECK_EQ_I64(calls, 2);
    release(graph);
    release(with_it);
    finish();
}

struct deeper {
    warp_graph *graphs[20];
    int next, refused_at;
};

static void go_deeper(void *user)
{
    struct deeper *deeper = user;
    int at = deeper->next++;
    warp_status status = warp_graph_launch(deeper->graphs[at], NULL);
    if (status != WARP_SUCCESS) {
        CHECK_STATUS(status, WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_STR_CONTAINS(warp_error_get_message(), "deeper");
        deeper->refused_at = at;
    }
}

TEST(runs_in_runs_go_only_so_deep)
{
    struct deeper deeper = {{NULL}, 0, -1};
    int i;
    start();
    for (i = 0; i < 20; ++i) {
        begin();
        CHECK_STATUS(warp_stream_host_call(cpu_stream(), go_deeper, &deeper, NULL), WARP_SUCCESS);
        deeper.graphs[i] = end();
    }
    go_deeper(&deeper);
    CHECK_EQ_I64(deeper.refused_at, 16);
    CHECK_EQ_I64(deeper.next, 17);
    for (i = 0; i < 20; ++i)
        release(deeper.graphs[i]);
    finish();
}

/* ---- graphs in graphs --------------------------------------------------------------------------------------------- */

TEST(a_graph_becomes_a_part_of_another_and_either_may_go_first)
{
    unsigned char *a, *b, temporary[16];
    int released = 0, order_of_release;
    struct letter letter = {'x', &released};
    warp_graph *inner, *outer;
    start();
    for (order_of_release = 0; order_of_release < 2; ++order_of_release) {
        released = 0;
        memset(order, 0, sizeof order);
        a = host_block(16);
        b = host_block(16);
        begin();
        fill(a, 6, 16);
        CHECK_STATUS(warp_stream_host_call(cpu_stream(), append, &letter, let_go), WARP_SUCCESS);
        fill(temporary, 6, 16);
        inner = end();
        begin();
        fill(a, 1, 16);
        launch(inner);
        CHECK_EQ_STR(order, "");
        copy(b, a, 16);
        fill(a, 2, 16);
        launch(inner);
        copy(b, temporary, 8); /* which the inner graph writes */
        outer = end();
        free_block(a); /* used by the inner one */
        if (order_of_release == 0)
            release(inner);
        CHECK_EQ_I64(released, 0);
        memset(temporary, 9, sizeof temporary);
        launch(outer);
        CHECK_EQ_STR(order, "xx");
        CHECK(all_are(b, 6, 16) && all_are(a, 6, 16));
        if (order_of_release == 1) {
            release(outer);
            CHECK_EQ_I64(released, 0);
            memset(a, 0, 16);
            launch(inner);
            CHECK(all_are(a, 6, 16));
            release(inner);
        } else {
            release(outer);
        }
        CHECK_EQ_I64(released, 1);
        free_block(b);
    }
    finish();
}

TEST(graphs_lie_in_each_other_only_so_deep)
{
    warp_graph *graphs[64];
    unsigned char *block;
    int i, calls = 0;
    start();
    block = host_block(64);
    for (i = 0; i < 64; ++i) {
        begin();
        if (i > 0)
            launch(graphs[i - 1]);
        fill(block + i, (unsigned char)(i + 1), 1);
        CHECK_STATUS(warp_stream_host_call(cpu_stream(), count_up, &calls, NULL), WARP_SUCCESS);
        graphs[i] = end();
    }
    begin();
    CHECK_REFUSED(warp_graph_launch(graphs[63], NULL), "deeper");
    CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_ACTIVE);
    launch(graphs[62]);
    CHECK_STATUS(warp_capture_abandon(cpu_stream()), WARP_SUCCESS);
    for (i = 0; i < 63; ++i)
        release(graphs[i]);
    memset(block, 0, 64);
    launch(graphs[63]);
    CHECK_EQ_I64(calls, 64);
    for (i = 0; i < 64; ++i)
        CHECK_EQ_I64(block[i], i + 1);
    release(graphs[63]);
    free_block(block);
    finish();
}

/* ---- captures in captures, pauses, ends --------------------------------------------------------------------------- */

TEST(what_is_recorded_goes_to_the_innermost_capture)
{
    unsigned char *block;
    warp_graph *outer, *inner;
    warp_capture_info first, second;
    int i;
    start();
    block = host_block(16);
    memset(block, 0, 16);
    begin();
    first = capture_info();
    fill(block, 1, 4);
    CHECK_STATUS(warp_capture_begin(cpu_stream(), WARP_CAPTURE_RELAXED), WARP_SUCCESS);
    second = capture_info();
    CHECK(first.id != second.id && first.id != 0 && second.id != 0);
    CHECK_EQ_I64(second.mode, WARP_CAPTURE_RELAXED);
    CHECK_EQ_I64(first.mode, WARP_CAPTURE_THREAD_LOCAL);
    CHECK_EQ_I64(second.is_owned, 1);
    fill(block + 4, 2, 4);
    CHECK_STATUS(warp_capture_pause(cpu_stream()), WARP_SUCCESS);
    fill(block + 12, 4, 4); /* at once, and in neither */
    CHECK_EQ_I64(block[12], 4);
    CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_PAUSED);
    CHECK_EQ_U64(capture_info().id, second.id);
    /* Inside of a paused one another may begin. */
    begin();
    fill(block, 99, 16);
    CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_ACTIVE);
    CHECK_STATUS(warp_capture_abandon(cpu_stream()), WARP_SUCCESS);
    CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_PAUSED);
    CHECK_STATUS(warp_capture_resume(cpu_stream()), WARP_SUCCESS);
    fill(block + 6, 3, 1);
    inner = end();
    CHECK_EQ_U64(capture_info().id, first.id);
    fill(block + 8, 5, 2);
    outer = end();
    CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_NONE);
    CHECK(all_are(block, 0, 12) && all_are(block + 12, 4, 4));
    launch(inner);
    CHECK(memcmp(block, "\0\0\0\0\2\2\3\2\0\0\0\0\4\4\4\4", 16) == 0);
    launch(outer);
    CHECK(memcmp(block, "\1\1\1\1\2\2\3\2\5\5\0\0\4\4\4\4", 16) == 0);
    release(inner);
    release(outer);
    for (i = 0; i < 8; ++i)
        begin();
    CHECK_REFUSED(warp_capture_begin(cpu_stream(), WARP_CAPTURE_GLOBAL), "8 captures");
    for (i = 0; i < 8; ++i)
        CHECK_STATUS(warp_capture_abandon(cpu_stream()), WARP_SUCCESS);
    free_block(block);
    finish();
}

TEST(what_cannot_be_is_refused_and_the_capture_goes_on)
{
    warp_capture_options options = {.struct_size = sizeof options};
    warp_capture_info info = {.struct_size = sizeof info};
    warp_graph *graph = (warp_graph *)1;
    warp_stream_info stream = {.struct_size = sizeof stream};
    unsigned char *block;
    void *refused = NULL;
    warp_array *array = NULL;
    const int64_t shape[] = {4};
    start();
    block = host_block(SIZE);
    CHECK_INVALID(warp_capture_end(cpu_stream(), &graph), "no capture");
    CHECK_EQ_PTR(graph, NULL);
    CHECK_INVALID(warp_capture_abandon(cpu_stream()), "no capture");
    CHECK_INVALID(warp_capture_pause(cpu_stream()), "no capture");
    CHECK_INVALID(warp_capture_resume(cpu_stream()), "no capture");
    CHECK_INVALID(warp_capture_adopt(cpu_stream(), 0), "adopt");
    CHECK_INVALID(warp_capture_begin(cpu_stream(), 3), "not a capture mode");
    options.native_graph = block;
    CHECK_INVALID(warp_capture_begin_with(cpu_stream(), WARP_CAPTURE_RELAXED, &options), "native_graph");
    options.native_graph = NULL;
    options.flags = 2;
    CHECK_STATUS(warp_capture_begin_with(cpu_stream(), WARP_CAPTURE_RELAXED, &options), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_NONE);

    options.flags = WARP_CAPTURE_NO_ALLOCATIONS;
    CHECK_STATUS(warp_capture_begin_with(cpu_stream(), WARP_CAPTURE_GLOBAL, &options), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_info(cpu_stream(), &stream), WARP_SUCCESS);
    CHECK_EQ_U64(capture_info().origin_stream_id, stream.id);
    CHECK_EQ_I64(capture_info().mode, WARP_CAPTURE_GLOBAL);
    CHECK_REFUSED(warp_alloc(device("cpu"), 64, &refused), "NO_ALLOCATIONS");
    CHECK_EQ_PTR(refused, NULL);
    CHECK_REFUSED(warp_array_zeros(device("cpu"), warp_dtype_make(WARP_DTYPE_INT, 32), 1, shape, NULL, &array),
                  "NO_ALLOCATIONS");
    CHECK_STATUS(warp_alloc(device("cpu"), 0, &refused), WARP_SUCCESS);
    CHECK_REFUSED(warp_capture_resume(cpu_stream()), "not paused");
    CHECK_STATUS(warp_capture_pause(cpu_stream()), WARP_SUCCESS);
    CHECK_REFUSED(warp_capture_pause(cpu_stream()), "paused already");
    free_block(host_block(64));
    CHECK_STATUS(warp_capture_resume(cpu_stream()), WARP_SUCCESS);
    CHECK_INVALID(warp_capture_adopt(cpu_stream(), 0), "adopt");
    CHECK_INVALID(warp_memory_fill(block, SIZE + 1, "x", 1, NULL), "end of the block");
    CHECK_INVALID(warp_memory_copy(block, block + 1, SIZE, NULL), "end of the block");
    fill(block, 3, SIZE);
    CHECK_INVALID(warp_capture_end(cpu_stream(), NULL), "goes on");
    CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_ACTIVE);
    /* Paused or not, it can be ended. */
    CHECK_STATUS(warp_capture_pause(cpu_stream()), WARP_SUCCESS);
    graph = end();
    memset(block, 0, SIZE);
    launch(graph);
    CHECK(all_are(block, 3, SIZE));
    release(graph);
    /* One that is empty runs. */
    begin();
    fill(block, 1, 0);
    copy(block, block, 0);
    graph = end();
    launch(graph);
    launch(graph);
    CHECK_STATUS(warp_graph_launch(NULL, NULL), WARP_ERROR_INVALID_HANDLE);
    CHECK(all_are(block, 3, SIZE));
    release(graph);
    CHECK_STATUS(warp_graph_release(graph), WARP_ERROR_INVALID_HANDLE);
    free_block(block);
    finish();
}

TEST(a_capture_that_is_given_up_leaves_nothing)
{
    int released = 0;
    struct letter letter = {'z', &released};
    unsigned char *block, *mine;
    start();
    memset(order, 0, sizeof order);
    block = host_block(SIZE);
    memset(block, 1, SIZE);
    begin();
    fill(block, 2, SIZE);
    mine = host_block(SIZE);
    fill(mine, 2, SIZE);
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), append, &letter, let_go), WARP_SUCCESS);
    free_block(block);
    CHECK_EQ_I64(released, 0);
    CHECK_STATUS(warp_capture_abandon(cpu_stream()), WARP_SUCCESS);
    CHECK_EQ_I64(released, 1);
    CHECK_EQ_STR(order, "");
    CHECK_EQ_I64(state(), WARP_CAPTURE_STATE_NONE);
    fill(mine, 3, SIZE); /* at once again */
    CHECK(all_are(mine, 3, SIZE));
    free_block(mine);
    finish();
}

/* ---- beside GPUs -------------------------------------------------------------------------------------------------- */

TEST(work_of_gpus_goes_on_as_ever)
{
    warp_stream *stream = NULL, *of_gpu = NULL;
    warp_graph *graph, *gpu_graph = NULL;
    void *on_gpu = NULL, *pinned = NULL, *managed = NULL;
    warp_alloc_options options = {.struct_size = sizeof options, .kind = WARP_MEMORY_PINNED};
    unsigned char *block, seen[64];
    int calls = 0;
    start();
    if (!has_gpu()) {
        warp_shutdown();
        SKIP("needs a GPU");
    }
    CHECK_STATUS(warp_stream_create(device("cuda:0"), NULL, &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_current(device("cuda:0"), &of_gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(device("cuda:0"), 64, &on_gpu), WARP_SUCCESS);
    block = host_block(64);
    begin();
    /* A block that is page-locked is host memory. */
    CHECK_STATUS(warp_alloc_with(device("cpu"), 64, &options, &pinned), WARP_SUCCESS);
    memset(pinned, 8, 64);
    copy(block, pinned, 64);
    /* Of a GPU alone: at once. */
    CHECK_STATUS(warp_memory_fill(on_gpu, 64, "\5", 1, NULL), WARP_SUCCESS);
    CHECK_REFUSED(warp_memory_copy(seen, on_gpu, 64, NULL), "pass the stream");
    CHECK_REFUSED(warp_memory_copy(on_gpu, pinned, 64, NULL), "pass the stream");
    CHECK_STATUS(warp_memory_copy(seen, on_gpu, 64, of_gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(of_gpu), WARP_SUCCESS);
    CHECK(all_are(seen, 5, 64));
    options.kind = WARP_MEMORY_CUDA_MANAGED;
    CHECK_STATUS(warp_alloc_with(device("cuda:0"), 64, &options, &managed), WARP_SUCCESS);
    CHECK_REFUSED(warp_memory_copy(managed, block, 64, NULL), "pass the stream");
    CHECK_STATUS(warp_memory_copy(managed, on_gpu, 64, NULL), WARP_SUCCESS);
    /* A capture of the GPU inside of that of the CPU, and the other way round. */
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_fill(on_gpu, 64, "\6", 1, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(seen, on_gpu, 64, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_host_call(stream, count_up, &calls, NULL), WARP_SUCCESS);
    fill(block + 32, 4, 32); /* of the CPU, into its capture */
    CHECK_STATUS(warp_capture_end(stream, &gpu_graph), WARP_SUCCESS);
    CHECK_EQ_I64(calls, 0);
    CHECK_INVALID(warp_graph_launch(gpu_graph, cpu_stream()), "own device");
    CHECK_STATUS(warp_graph_launch(gpu_graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK(all_are(seen, 6, 64));
    CHECK_EQ_I64(calls, 1);
    CHECK_STATUS(warp_stream_host_call(stream, count_up, &calls, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_I64(calls, 2);
    memset(block, 0, 64);
    graph = end();
    CHECK_INVALID(warp_graph_launch(graph, stream), "own device");
    CHECK(all_are(block, 0, 64));
    memset(pinned, 7, 64);
    launch(graph);
    CHECK(all_are(block, 7, 32) && all_are(block + 32, 4, 32));
    CHECK_EQ_I64(calls, 2);
    CHECK_INVALID(warp_memory_fill(block, 64, "a", 1, stream), "at once");
    CHECK_STATUS(warp_graph_retain(graph, on_gpu), WARP_SUCCESS);
    free_block(on_gpu);
    free_block(pinned);
    launch(graph);
    CHECK(all_are(block, 7, 32));
    release(graph);
    release(gpu_graph);
    free_block(managed);
    free_block(block);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    finish();
}

CHECK_MAIN()
