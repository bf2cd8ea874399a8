/*
 * copy_captured.c: every kind of copy inside of a capture is recorded, and right in each of three runs of the graph with other data
 * every time; or it is refused at once with words that name the way out, and the capture goes on and ends whole. None is lost,
 * and none happens while it is recorded. (capture_copies.c has the copies of bytes, by access.)
 *
 *     WARPMEM_COPY_CASE=7:31 copy_captured random    one copy again, by its seed and number
 *
 * valgrind: no (copies by the thousand in graphs take minutes there; capture_copies.c is under it)
 * topology: h200x2
 * topology: h200x2,peers=0
 * topology: mixed
 * needs: simulator
 */
#define _POSIX_C_SOURCE 200809L
#include "copy_model.h"

#define RUNS 3

/* What stands in front of and behind the copy in each graph. */
static unsigned char *marks[MODEL_GPUS];

static uint8_t has_pools[MODEL_GPUS];

enum { RECORDED, ILLEGAL, DENIED, UNSUPPORTED, OUTCOMES };
static const char *const outcome_names[] = {"recorded", "illegal in a capture", "access denied", "not supported"};
static uint64_t outcomes[OUTCOMES];

static void poke_mark(int gpu, unsigned char first, unsigned char last)
{
    const unsigned char bytes[2] = {first, last};
    void *before = NULL;
    model_enter(gpu, &before);
    CHECK_EQ_U64(KERNELS_CALL("cuMemcpyHtoD_v2", (uint64_t, const void *, size_t), (uint64_t)(uintptr_t)marks[gpu], bytes, 2), 0);
    CHECK_EQ_U64(KERNELS_CALL("cuCtxSynchronize", (void)), 0);
    model_leave(before);
}

static int is_marked(int gpu, unsigned char first, unsigned char last)
{
    unsigned char bytes[2] = {0, 0};
    CHECK_EQ_U64(SIMULATOR(warpsim_peek)((uint64_t)(uintptr_t)marks[gpu], bytes, 2), 0);
    return bytes[0] == first && bytes[1] == last;
}

static void mark(int gpu, int at, const char *value, warp_stream *stream)
{
    CHECK_STATUS(warp_memory_fill(marks[gpu] + at, 1, value, 1, stream), WARP_SUCCESS);
}

static int state_of(warp_stream *stream)
{
    warp_capture_info info = {0};
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_capture_query_info(stream, &info), WARP_SUCCESS);
    return info.state;
}

static size_t nodes_of(warp_graph *graph)
{
    warp_graph_info info = {0};
    size_t count = 0;
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_graph_get_info(graph, &info), WARP_SUCCESS);
    CHECK_EQ_U64(KERNELS_CALL("cuGraphGetNodes", (void *, void **, size_t *), info.native_graph, NULL, &count), 0);
    return count;
}

/* Which outcome a status is; the words of a refusal say what to do. */
static int outcome_of(warp_status status)
{
    const char *message = warp_error_get_message();
    int outcome = status == WARP_SUCCESS                    ? RECORDED
                  : status == WARP_ERROR_ILLEGAL_IN_CAPTURE ? ILLEGAL
                  : status == WARP_ERROR_ACCESS_DENIED      ? DENIED
                  : status == WARP_ERROR_NOT_SUPPORTED      ? UNSUPPORTED
                                                            : -1;
    if (outcome < 0)
        CHECK_STATUS(status, WARP_SUCCESS);
    if (outcome > RECORDED)
        CHECK(strlen(message) > 40);
    ++outcomes[outcome < 0 ? RECORDED : outcome];
    return outcome;
}

/* Registered memory has another address on some GPUs, and is taken for ordinary memory there. */
static int is_pageable(const struct model_chunk *chunk)
{
    return chunk->memory == MODEL_MALLOC || chunk->memory == MODEL_HOST || chunk->memory == MODEL_REGISTERED;
}

static int is_in_pool(const struct model_chunk *chunk)
{
    return chunk->memory == MODEL_POOL || chunk->memory == MODEL_GRAPH;
}

static int without_gaps(const struct model_end *end)
{
    int64_t row = end->array == NULL ? 1 : 0;
    warp_array_info info = {0};
    info.struct_size = sizeof info;
    (void)row;
    CHECK_STATUS(warp_array_get_info(end->array, &info), WARP_SUCCESS);
    return end->indexed == NULL && info.is_contiguous;
}

/* Copies that there is no reason to refuse. */
static int has_to_be_recorded(const struct model_copy *copy, int gpu)
{
    const struct model_chunk *dest = copy->dest.chunk, *src = copy->src.chunk;
    const int dest_near = dest->gpu == gpu || dest->memory == MODEL_MANAGED, src_near = src->gpu == gpu || src->memory == MODEL_MANAGED;
    if (model_may_be_denied(copy, gpu))
        return 0;
    /* What overlaps goes by way of memory, which a graph has from pools. */
    if (dest == src)
        return has_pools[gpu];
    if (dest_near && src_near)
        return 1;
    if (copy->is_memory || (without_gaps(&copy->dest) && without_gaps(&copy->src)))
        return !(dest->gpu >= 0 && src->gpu >= 0 && is_in_pool(dest) && is_in_pool(src));
    /* The GPU reaches page-locked memory, and the numbers of its index arrays where they are page-locked too. */
    return ((dest_near && src->gpu < 0 && !is_pageable(src) && copy->src.indexed == NULL)
            || (src_near && dest->gpu < 0 && !is_pageable(dest) && copy->dest.indexed == NULL));
}

static struct model_chunk *some_chunk_of_a_gpu(void)
{
    int tries;
    for (tries = 0; tries < 10000; ++tries) {
        struct model_chunk *chunk = model_choose_chunk(0);
        if (chunk->gpu >= 0)
            return chunk;
    }
    printf("\n    no memory of a GPU\n");
    exit(1);
}

static void describe(const struct model_copy *copies, int count)
{
    int i;
    for (i = 0; i < count; ++i)
        model_print_copy(&copies[i]);
    model_where();
}

/* One copy is captured, and its graph run. */
static void captured_copy(uint64_t seed, uint64_t number)
{
    static const warp_capture_mode modes[] = {WARP_CAPTURE_RELAXED, WARP_CAPTURE_THREAD_LOCAL, WARP_CAPTURE_GLOBAL};
    struct model_copy copy;
    struct model_chunk *dest, *src;
    const int before = check_failure_count();
    int gpu, run, outcome;
    size_t nodes;
    warp_stream *stream;
    warp_graph *graph = NULL;
    warp_status status;
    dice = seed * 0x2545f4914f6cdd1du + number * 0xd1342543de82ef95u;
    model.number = number;
    model.what = "a captured copy";
    gpu = (int)roll(model.gpus);
    stream = model.stream[gpu][1 + roll(2)];
    do {
        dest = some_chunk_of_a_gpu();
        src = one_in(10) ? dest : model_choose_chunk(0);
        if (one_in(2)) {
            struct model_chunk *other = dest;
            dest = src;
            src = other;
        }
    } while (!model_is_legal(dest, src, gpu));
    do {
        model_choose_copy(&copy, dest, src, 1 + roll(60));
        if (copy.items == 0)
            model_free_copy(&copy);
    } while (copy.items == 0);
    poke_mark(gpu, 'x', 'x');
    CHECK_STATUS(warp_capture_begin(stream, modes[roll(3)]), WARP_SUCCESS);
    mark(gpu, 0, "a", stream);
    if (one_in(3)) {
        /* To ask records nothing. */
        warp_copy_request request = model_request(&copy);
        warp_copy_info info = {0};
        info.struct_size = sizeof info;
        if (warp_copy_get_path(&request, stream, &info) == WARP_SUCCESS && info.path != WARP_COPY_PATH_NONE) {
            CHECK_EQ_U64(info.size, copy.items * copy.item);
            CHECK_EQ_U64(info.is_async, 1);
        }
    }
    status = model_issue(&copy, stream);
    outcome = outcome_of(status);
    CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
    if (has_to_be_recorded(&copy, gpu))
        CHECK_STATUS(status, WARP_SUCCESS);
    mark(gpu, 1, "b", stream);
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    REQUIRE(graph != NULL);
    nodes = nodes_of(graph);
    if (outcome == RECORDED)
        CHECK(nodes >= 3 || copy.dest.chunk == copy.src.chunk);
    else
        CHECK_EQ_U64(nodes, 2);
    /* Nothing has happened yet. */
    model_settle();
    CHECK(is_marked(gpu, 'x', 'x'));
    model_is_right(dest);
    for (run = 0; run < RUNS; ++run) {
        model_refill(src);
        poke_mark(gpu, 'x', 'x');
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        if (outcome == RECORDED)
            model_apply(&copy);
        CHECK(is_marked(gpu, 'a', 'b'));
        if (!model_is_right(dest))
            printf("\n      in run %d", run + 1);
    }
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    if (check_failure_count() != before) {
        printf("\n      on a stream of GPU %d, %s", gpu, outcome >= 0 ? outcome_names[outcome] : "no known outcome");
        if (outcome > RECORDED)
            printf(": %s", warp_error_get_message());
        describe(&copy, 1);
    }
    model_free_copy(&copy);
    ++model.made;
}

static void begin_with(uint64_t seed)
{
    int gpu;
    model_begin(seed);
    for (gpu = 0; gpu < model.gpus; ++gpu) {
        warp_alloc_options options = {0};
        void *block = NULL;
        options.struct_size = sizeof options;
        options.kind = WARP_MEMORY_CUDA_DEVICE;
        CHECK_STATUS(warp_alloc_with(model.gpu[gpu], 64, &options, &block), WARP_SUCCESS);
        CHECK_STATUS(warp_mempool_is_supported(model.gpu[gpu], &has_pools[gpu]), WARP_SUCCESS);
        marks[gpu] = block;
    }
}

static void finish(void)
{
    int gpu;
    for (gpu = 0; gpu < model.gpus; ++gpu)
        CHECK_STATUS(warp_free(marks[gpu]), WARP_SUCCESS);
    model_finish();
}

static uint64_t chosen(const char *what, uint64_t otherwise)
{
    const char *only = getenv("WARPMEM_COPY_CASE"), *colon = only != NULL ? strchr(only, ':') : NULL;
    if (only == NULL || only[0] == '\0' || (what[0] == 'n' && colon == NULL))
        return otherwise;
    return strtoull(what[0] == 'n' ? colon + 1 : only, NULL, 0);
}

TEST(random_copies_are_recorded_or_refused)
{
    const uint64_t only_seed = chosen("seed", 0), only_number = chosen("number", 0);
    const uint64_t seeds = check_under("valgrind") ? 1 : check_under("sanitizer") ? 3 : 12;
    uint64_t seed, number;
    int i;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    for (seed = only_seed != 0 ? only_seed : 1; seed <= (only_seed != 0 ? only_seed : seeds); ++seed) {
        SIMULATOR(warpsim_schedule)(seed % 2 ? 0 : seed);
        begin_with(seed);
        for (number = only_number != 0 ? only_number : 1; number <= (only_number != 0 ? only_number : 150); ++number) {
            captured_copy(seed, number);
            REQUIRE(check_failure_count() == 0 || !model_is_lost());
            if (check_failure_count() > 5)
                break;
        }
        finish();
        if (check_failure_count() > 5)
            return;
    }
    SIMULATOR(warpsim_schedule)(0);
    for (i = 0; i < OUTCOMES; ++i)
        printf("\n    %s: %" PRIu64, outcome_names[i], outcomes[i]);
    if (only_seed == 0) {
        CHECK(outcomes[RECORDED] > model.made / 2);
        CHECK(outcomes[ILLEGAL] + outcomes[DENIED] + outcomes[UNSUPPORTED] > 0);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

TEST(fills_are_recorded)
{
    uint64_t number;
    begin_with(77);
    for (number = 1; number <= (check_under("valgrind") ? 20 : 200); ++number) {
        struct model_chunk *chunk;
        struct model_end end;
        unsigned char value[64];
        int64_t shape[WARP_ARRAY_MAX_RANK], most = 50;
        int32_t rank;
        const int before = check_failure_count();
        uint32_t item;
        uint64_t i, count;
        int gpu, run;
        warp_stream *stream;
        warp_graph *graph = NULL;
        warp_status status;
        dice = 77 + number * 0xd1342543de82ef95u;
        model.number = number;
        model.what = "a captured fill";
        chunk = some_chunk_of_a_gpu();
        gpu = chunk->gpu;
        stream = model.stream[gpu][1];
        item = model_item_sizes[roll(9)];
        do {
            rank = model_choose_shape(shape, most);
            most = most / 2 + 1;
        } while (!model_make_end(&end, chunk, item, rank, shape, 1, one_in(3)));
        count = model_items(&end);
        model_scatter_bytes(value, sizeof value);
        poke_mark(gpu, 'x', 'x');
        CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
        mark(gpu, 0, "a", stream);
        if (end.indexed != NULL)
            status = warp_indexed_array_fill(end.indexed, value, item, stream);
        else
            status = warp_array_fill(end.array, value, item, stream);
        /* By index arrays it goes by way of memory, which a graph has from pools. */
        if (status != WARP_SUCCESS && end.indexed != NULL && !has_pools[gpu]) {
            CHECK_STATUS(status, WARP_ERROR_ILLEGAL_IN_CAPTURE);
            count = 0;
        } else {
            CHECK_STATUS(status, WARP_SUCCESS);
        }
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        mark(gpu, 1, "b", stream);
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        model_is_right(chunk);
        for (run = 0; run < RUNS; ++run) {
            model_refill(chunk);
            /* What it fills with was read when it was recorded. */
            if (run == 1)
                memset(value, 0, sizeof value);
            if (run == 0)
                for (i = 0; i < count; ++i)
                    memcpy(chunk->now + model_place(&end, i), value, item);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
            if (run > 0) {
                const unsigned char *seen = model_look(chunk);
                for (i = 0; i < count; ++i)
                    memcpy(chunk->now + model_place(&end, i), seen + model_place(&end, 0), item);
                CHECK(count == 0 || item < 8 || memcmp(seen + model_place(&end, 0), value, item) != 0);
            }
            model_is_right(chunk);
            CHECK(is_marked(gpu, 'a', 'b'));
        }
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        if (check_failure_count() != before) {
            printf("\n      items of %u bytes, fill %" PRIu64, item, number);
            model_print_end("filled", &end);
        }
        model_end_of(&end);
        if (check_failure_count() > 5)
            break;
    }
    finish();
}

/* A new array in a capture is memory of the graph, or is refused where the GPU has no pool. */
TEST(clones_are_recorded)
{
    uint64_t number;
    uint64_t made_there = 0;
    begin_with(78);
    for (number = 1; number <= (check_under("valgrind") ? 20 : 150); ++number) {
        struct model_chunk *chunk, copy = {0};
        struct model_end end;
        int64_t shape[WARP_ARRAY_MAX_RANK], most = 50;
        int32_t rank;
        const int before = check_failure_count();
        const unsigned char *seen;
        uint32_t item;
        uint64_t i, count, wrong = 0;
        int gpu;
        warp_stream *stream;
        warp_graph *graph = NULL;
        warp_array_options options = {0};
        warp_array_info info = {0};
        warp_device_info about = {0};
        warp_array *made = NULL;
        warp_status status;
        dice = 78 + number * 0xd1342543de82ef95u;
        model.number = number;
        model.what = "a captured clone";
        chunk = some_chunk_of_a_gpu();
        gpu = chunk->gpu;
        stream = model.stream[gpu][1];
        item = model_item_sizes[roll(9)];
        about.struct_size = sizeof about;
        CHECK_STATUS(warp_device_get_info(model.gpu[gpu], &about), WARP_SUCCESS);
        do {
            rank = model_choose_shape(shape, most);
            most = most / 2 + 1;
        } while (!model_make_end(&end, chunk, item, rank, shape, 0, one_in(3)) || model_items(&end) == 0);
        count = model_items(&end);
        options.struct_size = info.struct_size = sizeof options;
        info.struct_size = sizeof info;
        options.stream = stream;
        poke_mark(gpu, 'x', 'x');
        CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL), WARP_SUCCESS);
        mark(gpu, 0, "a", stream);
        if (end.indexed != NULL)
            status = warp_indexed_array_clone(end.indexed, model.gpu[gpu], &options, &made);
        else
            status = warp_array_clone(end.array, model.gpu[gpu], &options, &made);
        if (about.is_mempool_supported)
            CHECK_STATUS(status, WARP_SUCCESS);
        else
            CHECK(status == WARP_ERROR_ILLEGAL_IN_CAPTURE || status == WARP_ERROR_NOT_SUPPORTED);
        CHECK(status == WARP_SUCCESS ? made != NULL : made == NULL);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        mark(gpu, 1, "b", stream);
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        model_refill(chunk);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK(is_marked(gpu, 'a', 'b'));
        if (made != NULL) {
            CHECK_STATUS(warp_array_get_info(made, &info), WARP_SUCCESS);
            CHECK_EQ_U64(info.count, count);
            copy.ptr = info.data;
            copy.size = info.size;
            copy.gpu = gpu;
            copy.memory = MODEL_POOL;
            seen = model_look(&copy);
            for (i = 0; i < count; ++i)
                wrong += memcmp(seen + i * item, chunk->now + model_place(&end, i), item) != 0;
            CHECK_EQ_U64(wrong, 0);
            ++made_there;
        }
        CHECK_STATUS(warp_array_release(made), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        if (check_failure_count() != before) {
            printf("\n      items of %u bytes, clone %" PRIu64, item, number);
            model_print_end("src", &end);
        }
        model_end_of(&end);
        if (check_failure_count() > 5)
            break;
    }
    CHECK(made_there > 10);
    finish();
}

/* A batch that has a wrong copy in it leaves no node. */
TEST(of_a_bad_batch_nothing_is_recorded)
{
    const int64_t shape[2] = {5, 4}, strides[2] = {32, 6};
    uint64_t seed;
    begin_with(79);
    for (seed = 0; seed < 2; ++seed) {
        struct model_chunk *gpu_chunk = model_add(MODEL_DEVICE, 0, 0, 1000), *host = model_add(MODEL_MALLOC, -1, 0, 1000);
        warp_array_wrap_options options = {0};
        warp_copy_request batch[3] = {{0}};
        warp_array *dest = NULL, *src = NULL, *gaps = NULL;
        warp_stream *stream = model.stream[0][1];
        warp_graph *graph = NULL;
        warp_status status;
        size_t bad = 9, i;
        options.struct_size = sizeof options;
        CHECK_STATUS(warp_array_wrap(model.gpu[0], gpu_chunk->ptr, model_dtype(4), 2, shape, &options, &dest), WARP_SUCCESS);
        CHECK_STATUS(warp_array_wrap(model.gpu[0], gpu_chunk->ptr + 500, model_dtype(4), 2, shape, &options, &src), WARP_SUCCESS);
        options.strides = strides;
        CHECK_STATUS(warp_array_wrap(model.cpu, host->ptr, model_dtype(4), 2, shape, &options, &gaps), WARP_SUCCESS);
        for (i = 0; i < 3; ++i) {
            batch[i].struct_size = sizeof batch[i];
            batch[i].dest_array = dest;
            batch[i].src_array = src;
        }
        /* Past the end, or what the CPU would have to pack. */
        if (seed == 0)
            batch[1].count = 21;
        else
            batch[1].src_array = gaps;
        CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
        mark(0, 0, "a", stream);
        status = warp_copy_run_batch(batch, sizeof *batch, 3, stream, &bad);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        if (seed == 0)
            CHECK_STATUS(status, WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_U64(bad, status == WARP_SUCCESS ? 3 : 1);
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        CHECK(status == WARP_SUCCESS ? nodes_of(graph) >= 4 : nodes_of(graph) == 1);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        if (status != WARP_SUCCESS)
            model_is_right(gpu_chunk);
        memcpy(gpu_chunk->now, model_look(gpu_chunk), gpu_chunk->size);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(dest), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(src), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(gaps), WARP_SUCCESS);
    }
    finish();
}

/* Much pageable memory is left to the driver in a capture: the copy threads' buffers are not the graph's. */
TEST(large_copies_of_pageable_memory_are_recorded)
{
    enum { SIZE = 24 << 20 };
    unsigned char *host = malloc(SIZE), *back = calloc(1, SIZE);
    warp_copy_request request = {0};
    warp_copy_info info = {0};
    warp_stream *stream;
    warp_graph *graph = NULL;
    void *block = NULL;
    int run, i, wrong = 0;
    begin_with(80);
    stream = model.stream[0][1];
    CHECK_STATUS(warp_alloc(model.gpu[0], SIZE, &block), WARP_SUCCESS);
    model_settle();
    request.struct_size = sizeof request;
    request.dest = block;
    request.src = host;
    request.size = SIZE;
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
    CHECK_STATUS(warp_copy_get_path(&request, stream, &info), WARP_SUCCESS);
    CHECK_EQ_I64(info.path, WARP_COPY_PATH_PAGEABLE);
    CHECK_EQ_U64(info.is_async, 1);
    CHECK_EQ_U64(info.staging, 0);
    CHECK_STATUS(warp_copy_run(&request, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(back, block, SIZE, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    for (run = 1; run <= RUNS; ++run) {
        memset(host, run, SIZE);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        for (i = 0; i < SIZE; i += 4093)
            wrong += back[i] != run;
        wrong += back[SIZE - 1] != run;
    }
    CHECK_EQ_I64(wrong, 0);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    finish();
    free(host);
    free(back);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

CHECK_MAIN()
