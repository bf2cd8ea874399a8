/*
 * cpu_capture_memory.c: runs of graphs of the CPU allocate nothing; what such a graph uses is given back when the graph is gone and
 * not before, in every order of free, launch and release. Allocations and frees of the whole process are seen by functions of this
 * program that stand before those of the C library.
 *
 * topology: h200x2
 * topology: -
 * valgrind: no (it has its own malloc and free, and these are not asked)
 */
#include "cpu_captures.h"
#include "driver.h"
#include "counted.h"

#define SIZE ((uint64_t)1 << 12)

TEST(the_counts_count)
{
    void *block;
    int at, before = allocations;
    if (!counts)
        SKIP("the sanitizer stands before malloc");
    start();
    CHECK(allocations > before);
    before = allocations;
    block = host_block(SIZE);
    CHECK(allocations > before);
    at = watch(block);
    free_block(block);
    CHECK_EQ_I64(was_freed(at), 1);
    finish();
}

/* ---- runs ---------------------------------------------------------------------------------------------------------- */

TEST(fifty_runs_allocate_nothing)
{
    const int64_t shape[] = {3, 2, 3, 2, 3, 2, 4}, every[] = {2, 1, 2, 1, 2, 1, 2};
    warp_dtype type = warp_dtype_make(WARP_DTYPE_INT, 32);
    warp_array *array = NULL, *torn = NULL, *copied = NULL;
    warp_graph *inner, *graph;
    unsigned char *a, *b, *temporary = malloc(SIZE);
    int32_t value = 7;
    int calls = 0, run, before, freed_before;
    start();
    a = host_block(SIZE);
    b = host_block(SIZE);
    begin();
    fill(a, 1, SIZE);
    CHECK_STATUS(warp_memory_fill(b, 12 * 100, "abcdefghijkl", 12, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), count_up, &calls, NULL), WARP_SUCCESS);
    inner = end();
    begin();
    memset(temporary, 3, SIZE);
    copy(a, temporary, SIZE);
    free(temporary);
    launch(inner);
    copy(b + 2048, a, 2048);
    CHECK_STATUS(warp_array_zeros(device("cpu"), type, 7, shape, NULL, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_slice(array, 7, NULL, NULL, every, &torn), WARP_SUCCESS);
    CHECK_STATUS(warp_array_fill(torn, &value, 4, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_clone(array, NULL, NULL, &copied), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_host_call(cpu_stream(), count_up, &calls, NULL), WARP_SUCCESS);
    graph = end();
    launch(graph);
    before = allocations;
    freed_before = frees;
    for (run = 0; run < 50; ++run)
        if (warp_graph_launch(graph, NULL) != WARP_SUCCESS)
            break;
    before = allocations - before;
    freed_before = frees - freed_before;
    CHECK_EQ_I64(run, 50);
    CHECK_EQ_I64(before, 0);
    CHECK_EQ_I64(freed_before, 0);
    CHECK_EQ_I64(calls, 2 * 51);
    CHECK(all_are(a, 1, SIZE) && all_are(b + 2048, 1, 2048) && memcmp(b, "abcdefghijklabc", 15) == 0);
    release(inner);
    release(graph);
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(torn), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(copied), WARP_SUCCESS);
    free_block(a);
    free_block(b);
    finish();
}

TEST(an_array_of_data_that_is_gone_has_it_in_every_run)
{
    const int64_t shape[] = {1000};
    warp_dtype type = warp_dtype_make(WARP_DTYPE_INT, 32);
    int32_t *temporary = malloc(4000), *data;
    warp_array_info info = {.struct_size = sizeof info};
    warp_array *array = NULL;
    warp_graph *graph;
    void *others[64];
    int i, run, wrong = 0;
    start();
    for (i = 0; i < 1000; ++i)
        temporary[i] = 3 * i;
    begin();
    CHECK_STATUS(warp_array_empty(device("cpu"), type, 1, shape, NULL, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_get_info(array, &info), WARP_SUCCESS);
    data = info.data;
    copy(data, temporary, 4000);
    memset(temporary, 0xDD, 4000);
    free(temporary);
    graph = end();
    for (i = 0; i < 64; ++i)
        memset(others[i] = malloc(4000), 0xEE, 4000);
    for (run = 0; run < 2; ++run) {
        memset(data, 0, 4000);
        launch(graph);
        for (i = 0; i < 1000; ++i)
            wrong += data[i] != 3 * i;
    }
    CHECK_EQ_I64(wrong, 0);
    for (i = 0; i < 64; ++i)
        free(others[i]);
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    release(graph);
    finish();
}

/* ---- when blocks go back -------------------------------------------------------------------------------------------- */

enum origin { USED, MADE, MADE_AND_USED, NAMED, IN_INNER };
enum moment { IN_CAPTURE, BEFORE_LAUNCH, AFTER_LAUNCH, AFTER_RELEASE };

static void one_life(enum origin origin, enum moment moment)
{
    unsigned char *block = NULL, *other;
    warp_graph *graph, *inner = NULL;
    int at;
    start();
    other = host_block(SIZE);
    if (origin == USED || origin == NAMED || origin == IN_INNER)
        block = host_block(SIZE);
    if (origin == IN_INNER) {
        begin();
        fill(block, 5, SIZE);
        inner = end();
    }
    begin();
    if (origin == MADE || origin == MADE_AND_USED)
        block = host_block(SIZE);
    at = watch(block);
    if (origin == USED || origin == MADE_AND_USED) {
        fill(block, 5, SIZE);
        copy(other, block + 10, SIZE - 10);
    }
    if (origin == NAMED)
        CHECK_STATUS(warp_pointer_record_stream(block + 1, cpu_stream()), WARP_SUCCESS);
    if (origin == IN_INNER) {
        launch(inner);
        release(inner);
    }
    if (moment == IN_CAPTURE)
        free_block(block);
    graph = end();
    if (moment == BEFORE_LAUNCH)
        free_block(block);
    launch(graph);
    if (moment == AFTER_LAUNCH)
        free_block(block);
    CHECK_EQ_I64(was_freed(at), 0);
    memset(block, 6, SIZE);
    launch(graph);
    if (origin == USED || origin == MADE_AND_USED || origin == IN_INNER)
        CHECK(all_are(block, 5, SIZE));
    CHECK_EQ_I64(was_freed(at), 0);
    release(graph);
    if (moment == AFTER_RELEASE) {
        CHECK_EQ_I64(was_freed(at), 0);
        memset(block, 7, SIZE);
        free_block(block);
    }
    if (counts)
        CHECK_EQ_I64(was_freed(at), 1);
    free_block(other);
    finish();
}

TEST(a_block_goes_back_when_the_graph_is_gone_and_it_is_freed)
{
    int origin, moment;
    for (origin = USED; origin <= IN_INNER; ++origin)
        for (moment = IN_CAPTURE; moment <= AFTER_RELEASE; ++moment) {
            int before = check_failure_count();
            one_life((enum origin)origin, (enum moment)moment);
            if (check_failure_count() != before)
                printf("\n    (origin %d, moment %d)", origin, moment);
        }
}

TEST(a_block_of_several_graphs_goes_back_with_the_last)
{
    unsigned char *block;
    warp_graph *graphs[4];
    int i, at;
    start();
    block = host_block(SIZE);
    at = watch(block);
    for (i = 0; i < 4; ++i) {
        begin();
        fill(block, (unsigned char)i, SIZE);
        graphs[i] = end();
    }
    release(graphs[2]); /* before the free */
    free_block(block);
    for (i = 0; i < 4; ++i) {
        if (i == 2)
            continue;
        CHECK_EQ_I64(was_freed(at), 0);
        launch(graphs[i]);
        CHECK(all_are(block, (unsigned char)i, SIZE));
        release(graphs[i]);
    }
    if (counts)
        CHECK_EQ_I64(was_freed(at), 1);
    finish();
}

TEST(what_is_not_recorded_is_not_kept)
{
    warp_alloc_request request = {.struct_size = sizeof request, .size = SIZE};
    warp_allocator *host = NULL;
    unsigned char *paused, *other_use;
    void *direct = NULL;
    warp_graph *graph;
    int at[3];
    start();
    if (!counts) {
        warp_shutdown();
        SKIP("the sanitizer stands before free");
    }
    other_use = host_block(SIZE);
    CHECK_STATUS(warp_allocator_get_builtin(WARP_MEMORY_HOST, &host), WARP_SUCCESS);
    begin();
    /* Straight from an allocator it is its taker's. */
    CHECK_STATUS(warp_allocator_allocate(host, &request, &direct), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_pause(cpu_stream()), WARP_SUCCESS);
    paused = host_block(SIZE);
    fill(other_use, 1, SIZE);
    CHECK_STATUS(warp_pointer_record_stream(other_use, cpu_stream()), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_resume(cpu_stream()), WARP_SUCCESS);
    at[0] = watch(direct);
    at[1] = watch(paused);
    at[2] = watch(other_use);
    CHECK_STATUS(warp_allocator_deallocate(host, direct, NULL), WARP_SUCCESS);
    free_block(paused);
    free_block(other_use);
    CHECK_EQ_I64(was_freed(at[0]), 1);
    CHECK_EQ_I64(was_freed(at[1]), 1);
    CHECK_EQ_I64(was_freed(at[2]), 1);
    graph = end();
    launch(graph);
    release(graph);
    finish();
}

TEST(blocks_of_a_capture_that_is_given_up_go_back)
{
    unsigned char *used, *made;
    int at[2];
    start();
    used = host_block(SIZE);
    begin();
    made = host_block(SIZE);
    copy(made, used, SIZE);
    at[0] = watch(used);
    at[1] = watch(made);
    free_block(used);
    free_block(made);
    CHECK_EQ_I64(was_freed(at[0]) + was_freed(at[1]), 0);
    CHECK_STATUS(warp_capture_abandon(cpu_stream()), WARP_SUCCESS);
    if (counts)
        CHECK_EQ_I64(was_freed(at[0]) + was_freed(at[1]), 2);
    finish();
}

struct kept {
    unsigned char memory[SIZE];
    int deleted;
};

static void delete_kept(void *user, void *data, uint64_t size)
{
    struct kept *kept = user;
    CHECK_EQ_PTR(data, kept->memory);
    CHECK_EQ_U64(size, SIZE);
    ++kept->deleted;
}

TEST(wrapped_memory_goes_back_once_when_graph_and_array_are_gone)
{
    const int64_t shape[] = {(int64_t)SIZE};
    warp_dtype type = warp_dtype_make(WARP_DTYPE_UINT, 8);
    static struct kept kept[4];
    warp_array_wrap_options options = {.struct_size = sizeof options, .deleter = delete_kept};
    warp_array *wrapped[4], *other = NULL;
    warp_graph *graph;
    unsigned char value = 8;
    int i;
    start();
    memset(kept, 0, sizeof kept);
    CHECK_STATUS(warp_array_empty(device("cpu"), type, 1, shape, NULL, &other), WARP_SUCCESS);
    for (i = 0; i < 4; ++i) {
        options.deleter_user = &kept[i];
        CHECK_STATUS(warp_array_wrap(device("cpu"), kept[i].memory, type, 1, shape, &options, &wrapped[i]), WARP_SUCCESS);
    }
    begin();
    CHECK_STATUS(warp_array_fill(wrapped[0], &value, 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_copy(wrapped[1], wrapped[0], 0, 0, 0, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_copy(other, wrapped[2], 0, 0, 0, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(wrapped[0]), WARP_SUCCESS);
    graph = end();
    CHECK_STATUS(warp_graph_retain_array(graph, wrapped[3]), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(wrapped[1]), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(wrapped[3]), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(other), WARP_SUCCESS);
    kept[2].memory[5] = 55;
    launch(graph);
    CHECK(all_are(kept[1].memory, 8, SIZE));
    for (i = 0; i < 4; ++i)
        CHECK_EQ_I64(kept[i].deleted, 0);
    release(graph);
    for (i = 0; i < 4; ++i)
        CHECK_EQ_I64(kept[i].deleted, i != 2);
    CHECK_STATUS(warp_array_release(wrapped[2]), WARP_SUCCESS);
    for (i = 0; i < 4; ++i)
        CHECK_EQ_I64(kept[i].deleted, 1);
    finish();
}

/* ---- other allocators ------------------------------------------------------------------------------------------------ */

static int taken, given;

static warp_status take(void *user, const warp_alloc_request *request, void **out)
{
    (void)user;
    ++taken;
    *out = aligned_alloc((size_t)request->alignment,
                         (size_t)((request->size + request->alignment - 1) / request->alignment * request->alignment));
    return *out != NULL ? WARP_SUCCESS : WARP_ERROR_OUT_OF_MEMORY;
}

static warp_status give(void *user, void *block, const warp_alloc_request *request)
{
    (void)user, (void)request;
    ++given;
    free(block);
    return WARP_SUCCESS;
}

TEST(an_allocator_of_host_memory_gets_its_blocks_back_after_the_graph)
{
    warp_allocator_vtable vtable = {.struct_size = sizeof vtable, .allocate = take, .deallocate = give,
                                    .flags = WARP_ALLOCATOR_HOST_MEMORY};
    warp_allocator *allocator = NULL;
    warp_alloc_options options = {.struct_size = sizeof options};
    void *used = NULL, *made = NULL, *later = NULL;
    warp_graph *graph;
    warp_capture_options no_allocations = {.struct_size = sizeof no_allocations, .flags = WARP_CAPTURE_NO_ALLOCATIONS};
    start();
    taken = given = 0;
    CHECK_STATUS(warp_allocator_create(&vtable, NULL, &allocator), WARP_SUCCESS);
    options.allocator = allocator;
    CHECK_STATUS(warp_alloc_with(device("cpu"), SIZE, &options, &used), WARP_SUCCESS);
    begin();
    CHECK_STATUS(warp_alloc_with(device("cpu"), SIZE, &options, &made), WARP_SUCCESS);
    fill(used, 3, SIZE);
    graph = end();
    free_block(used);
    free_block(made);
    CHECK_EQ_I64(given, 0);
    launch(graph);
    CHECK(all_are(used, 3, SIZE));
    release(graph);
    /* It is called by calls that call allocators anyway. */
    CHECK_STATUS(warp_alloc_with(device("cpu"), SIZE, &options, &later), WARP_SUCCESS);
    CHECK_EQ_I64(given, 2);
    free_block(later);
    CHECK_EQ_I64(given, 3);
    CHECK_STATUS(warp_capture_begin_with(cpu_stream(), WARP_CAPTURE_RELAXED, &no_allocations), WARP_SUCCESS);
    CHECK_REFUSED(warp_alloc_with(device("cpu"), SIZE, &options, &later), "NO_ALLOCATIONS");
    CHECK_EQ_I64(taken, 3);
    CHECK_STATUS(warp_capture_abandon(cpu_stream()), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(allocator), WARP_SUCCESS);
    finish();
}

TEST(page_locked_memory_stays_for_the_runs)
{
    warp_alloc_options options = {.struct_size = sizeof options, .kind = WARP_MEMORY_PINNED};
    warp_capture_options no_allocations = {.struct_size = sizeof no_allocations, .flags = WARP_CAPTURE_NO_ALLOCATIONS};
    void *used = NULL, *made = NULL, *refused = NULL;
    warp_graph *graph;
    size_t count = 0;
    start();
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    if (count == 0 || !simulator_is_here()) {
        warp_shutdown();
        SKIP("needs simulated GPUs");
    }
    CHECK_STATUS(warp_alloc_with(device("cpu"), SIZE, &options, &used), WARP_SUCCESS);
    begin();
    CHECK_STATUS(warp_alloc_with(device("cpu"), SIZE, &options, &made), WARP_SUCCESS);
    fill(used, 4, SIZE);
    copy(made, used, SIZE);
    free_block(made);
    graph = end();
    free_block(used);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pinned"), 2);
    launch(graph);
    CHECK(all_are(made, 4, SIZE));
    release(graph);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pinned"), 0);
    CHECK_STATUS(warp_capture_begin_with(cpu_stream(), WARP_CAPTURE_RELAXED, &no_allocations), WARP_SUCCESS);
    CHECK_REFUSED(warp_alloc_with(device("cpu"), SIZE, &options, &refused), "NO_ALLOCATIONS");
    CHECK_STATUS(warp_capture_abandon(cpu_stream()), WARP_SUCCESS);
    finish();
}

TEST(a_run_that_meets_pages_which_went_with_their_context_ends_there)
{
    warp_alloc_options options = {.struct_size = sizeof options, .kind = WARP_MEMORY_PINNED};
    void *pinned = NULL;
    unsigned char *block;
    int calls = 0;
    warp_graph *graphs[3];
    int i;
    size_t count = 0;
    start();
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    if (count == 0 || !simulator_is_here()) {
        warp_shutdown();
        SKIP("needs simulated GPUs");
    }
    CHECK_STATUS(warp_alloc_with(device("cpu"), SIZE, &options, &pinned), WARP_SUCCESS);
    block = host_block(SIZE);
    memset(block, 0, SIZE);
    for (i = 0; i < 3; ++i) {
        begin();
        fill(block, 3, 8);
        if (i == 0)
            fill(pinned, 1, SIZE);
        else
            copy(i == 1 ? block : pinned, i == 1 ? pinned : block, SIZE);
        CHECK_STATUS(warp_stream_host_call(cpu_stream(), count_up, &calls, NULL), WARP_SUCCESS);
        graphs[i] = end();
        launch(graphs[i]);
    }
    CHECK_EQ_I64(calls, 3);
    CHECK_EQ_U64(SIMULATOR(cuDevicePrimaryCtxReset_v2)(0), 0);
    for (i = 0; i < 3; ++i) {
        memset(block, 0, SIZE);
        CHECK_SAYS(warp_graph_launch(graphs[i], NULL), WARP_ERROR_DEVICE_LOST, "step 2 of 3");
        CHECK(all_are(block, 3, 8) && all_are(block + 8, 0, SIZE - 8));
        release(graphs[i]);
    }
    CHECK_EQ_I64(calls, 3);
    free_block(pinned);
    free_block(block);
    finish();
}

CHECK_MAIN()
