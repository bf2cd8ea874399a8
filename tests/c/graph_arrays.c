/*
 * graph_arrays.c: arrays that a capture makes, fills, copies and releases, views of them, and wrapped memory whose deleter
 * comes after the last run that may use it.
 *
 * topology: h200x2
 * needs: simulator
 */
#include "captures.h"

#include <pthread.h>

#define COUNT 600
#define I32 (warp_dtype_make(WARP_DTYPE_INT, 32))
#define U8 (warp_dtype_make(WARP_DTYPE_UINT, 8))

static const int64_t shape[] = {COUNT};

static warp_array_options on(warp_stream *stream)
{
    warp_array_options options = {.struct_size = sizeof options, .stream = stream};
    return options;
}

static void release(warp_array *array)
{
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
}

static void *data_of(warp_array *array)
{
    warp_array_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_array_get_info(array, &info), WARP_SUCCESS);
    return info.data;
}

static int all_are(warp_array *array, int64_t count, int32_t value, warp_stream *stream)
{
    int32_t items[COUNT];
    int64_t i;
    memset(items, 0x6E, sizeof items);
    CHECK_STATUS(warp_memory_copy(items, data_of(array), (uint64_t)count * 4, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    for (i = 0; i < count; ++i)
        if (items[i] != value)
            return 0;
    return 1;
}

static void over(warp_stream *stream)
{
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(graph_memory_after_trim(), 0);
    check_clean();
}

PROCESS_TEST(arrays_are_made_anew_in_every_run)
{
    warp_stream *stream;
    warp_array_options options;
    warp_array *zeros = NULL, *ones = NULL, *full = NULL, *copied = NULL, *clone = NULL, *source = NULL;
    warp_graph *graph;
    int32_t seven = 7, nine = 9;
    int run;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    options = on(stream);
    CHECK_STATUS(warp_array_full(device("cpu"), I32, 1, shape, &nine, NULL, &source), WARP_SUCCESS);
    begin(stream);
    CHECK_STATUS(warp_array_zeros(device("cuda:0"), I32, 1, shape, &options, &zeros), WARP_SUCCESS);
    CHECK_STATUS(warp_array_ones(device("cuda:0"), I32, 1, shape, &options, &ones), WARP_SUCCESS);
    CHECK_STATUS(warp_array_full(device("cuda:0"), I32, 1, shape, &seven, &options, &full), WARP_SUCCESS);
    CHECK_STATUS(warp_array_empty(device("cuda:0"), I32, 1, shape, &options, &copied), WARP_SUCCESS);
    CHECK_STATUS(warp_array_copy(copied, source, 0, 0, 0, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_array_clone(full, device("cuda:0"), &options, &clone), WARP_SUCCESS);
    seven = 0; /* the value was read */
    release(source); /* kept by the graph */
    graph = end(stream);
    CHECK_EQ_U64(graph_info(graph).block_count, 5);
    CHECK_STATUS(warp_array_fill(zeros, &nine, 4, stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "has not been launched");
    for (run = 0; run < 3; ++run) {
        int32_t other = -1;
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK(all_are(zeros, COUNT, 0, stream));
        CHECK(all_are(ones, COUNT, 1, stream));
        CHECK(all_are(full, COUNT, 7, stream));
        CHECK(all_are(clone, COUNT, 7, stream));
        CHECK(all_are(copied, COUNT, 9, stream));
        CHECK_STATUS(warp_array_fill(zeros, &other, 4, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_array_fill(full, &other, 4, stream), WARP_SUCCESS);
        CHECK(all_are(full, COUNT, -1, stream));
    }
    release(zeros);
    release(full);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK(all_are(clone, COUNT, 7, stream));
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK(all_are(clone, COUNT, 7, stream));
    release(ones);
    release(clone);
    release(copied);
    over(stream);
}

PROCESS_TEST(arrays_that_are_released_in_their_capture_are_freed_in_it)
{
    int with_view;
    start_on("h200x2");
    for (with_view = 0; with_view < 2; ++with_view) {
        warp_stream *stream = make_stream("cuda:0", 0);
        warp_array_options options = on(stream);
        warp_array *array = NULL, *result = NULL, *view = NULL;
        warp_graph *graph;
        int32_t value = 5;
        int64_t start = 10, stop = 20, step = 1;
        void *address;
        int run;
        CHECK_STATUS(warp_array_zeros(device("cuda:0"), I32, 1, shape, &options, &result), WARP_SUCCESS);
        begin(stream);
        CHECK_STATUS(warp_array_full(device("cuda:0"), I32, 1, shape, &value, &options, &array), WARP_SUCCESS);
        address = data_of(array);
        CHECK_STATUS(warp_array_copy(result, array, 0, 0, 0, stream), WARP_SUCCESS);
        if (with_view)
            CHECK_STATUS(warp_array_slice(array, 1, &start, &stop, &step, &view), WARP_SUCCESS);
        release(array);
        CHECK_STATUS(warp_array_empty(device("cuda:0"), I32, 1, shape, &options, &array), WARP_SUCCESS);
        if (with_view) { /* which has the memory still */
            int32_t eight = 8;
            CHECK(data_of(array) != address);
            CHECK_STATUS(warp_array_fill(view, &eight, 4, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_array_copy(result, view, 0, 0, 0, stream), WARP_SUCCESS);
            release(view);
        } else /* what was freed in a capture is used again in it */
            CHECK_EQ_PTR(data_of(array), address);
        release(array);
        graph = end(stream);
        CHECK_EQ_U64(graph_info(graph).block_count, 0);
        for (run = 0; run < 3; ++run) {
            int32_t none = 0, items[12];
            CHECK_STATUS(warp_array_fill(result, &none, 4, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_memory_copy(items, data_of(result), sizeof items, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
            CHECK_EQ_I64(items[0], with_view ? 8 : 5);
            CHECK_EQ_I64(items[9], with_view ? 8 : 5);
            CHECK_EQ_I64(items[10], 5);
            CHECK_EQ_U64(live("graph_block"), 0);
        }
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        release(result);
        over(stream);
    }
}

PROCESS_TEST(a_view_keeps_the_memory_of_a_capture_after_its_array)
{
    warp_stream *stream;
    warp_array_options options;
    warp_array *array = NULL, *view = NULL;
    warp_graph *graph;
    int32_t value = 3;
    int64_t start = 4, stop = 100, step = 2;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    options = on(stream);
    begin(stream);
    CHECK_STATUS(warp_array_full(device("cuda:0"), I32, 1, shape, &value, &options, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_slice(array, 1, &start, &stop, &step, &view), WARP_SUCCESS);
    release(array);
    graph = end(stream);
    CHECK_EQ_U64(graph_info(graph).block_count, 1);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    value = 4;
    CHECK_STATUS(warp_array_fill(view, &value, 4, stream), WARP_SUCCESS);
    CHECK(all_are(view, 1, 4, stream));
    CHECK_EQ_U64(live("graph_block"), 1);
    release(view);
    over(stream);
}

PROCESS_TEST(a_strided_fill_in_a_capture_lasts)
{
    warp_stream *stream;
    warp_array_options options;
    warp_array *array = NULL, *view = NULL;
    warp_graph *graph;
    struct {
        unsigned char bytes[12];
    } item;
    warp_dtype dtype = {WARP_DTYPE_OPAQUE, 0, 0, 12};
    int64_t few[] = {40}, start = 1, stop = 40, step = 3;
    unsigned char back[480];
    int run, i, wrong = 0;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    options = on(stream);
    CHECK_STATUS(warp_array_zeros(device("cuda:0"), dtype, 1, few, &options, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_slice(array, 1, &start, &stop, &step, &view), WARP_SUCCESS);
    begin(stream);
    for (i = 0; i < 12; ++i)
        item.bytes[i] = (unsigned char)(i + 1);
    CHECK_STATUS(warp_array_fill(view, &item, 12, stream), WARP_SUCCESS);
    memset(&item, 0xEE, sizeof item);
    graph = end(stream);
    release(view);
    for (run = 0; run < 3; ++run) {
        fill_byte(data_of(array), 0, sizeof back, stream);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(back, data_of(array), sizeof back, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        for (i = 0; i < 480; ++i)
            wrong += back[i] != (i / 12 % 3 == 1 ? i % 12 + 1 : 0);
    }
    CHECK_EQ_I64(wrong, 0);
    release(array);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    over(stream);
}

/* ---- wrapped memory ---- */

struct lent {
    unsigned char *memory;
    int deleted;
    pthread_t by;
};

static int in_call;

static void deleter(void *user, void *ptr, uint64_t size)
{
    struct lent *lent = user;
    CHECK_EQ_PTR(ptr, lent->memory);
    CHECK_EQ_U64(size, COUNT);
    CHECK(in_call != 0);
    CHECK(pthread_equal(pthread_self(), lent->by));
    if (lent->deleted++ == 0)
        free(lent->memory);
}

static warp_array *wrap(struct lent *lent)
{
    warp_array_wrap_options options = {.struct_size = sizeof options, .deleter = deleter, .deleter_user = lent};
    warp_array *array = NULL;
    int i;
    lent->memory = malloc(COUNT);
    lent->by = pthread_self();
    lent->deleted = 0;
    for (i = 0; i < COUNT; ++i)
        lent->memory[i] = (unsigned char)(i * 3);
    CHECK_STATUS(warp_array_wrap(device("cpu"), lent->memory, U8, 1, shape, &options, &array), WARP_SUCCESS);
    return array;
}

PROCESS_TEST(a_deleter_is_called_once_after_the_last_run)
{
    int moment, retained;
    start_on("h200x2");
    for (retained = 0; retained < 2; ++retained)
        for (moment = 0; moment < 4; ++moment) {
            warp_stream *stream = make_stream("cuda:0", 0);
            warp_array_options options = on(stream);
            struct lent lent;
            warp_array *array = wrap(&lent), *view = NULL, *result = NULL;
            warp_graph *graph;
            unsigned char back[COUNT];
            int64_t start = 1, stop = 5, step = 1;
            uint64_t native = (uint64_t)(uintptr_t)native_of(stream);
            int run, i, wrong = 0;
            in_call = 0;
            CHECK_STATUS(warp_array_empty(device("cuda:0"), U8, 1, shape, &options, &result), WARP_SUCCESS);
            CHECK_STATUS(warp_array_slice(array, 1, &start, &stop, &step, &view), WARP_SUCCESS);
            begin(stream);
            if (retained)
                CHECK_EQ_U64(SIMULATOR(cuMemcpyAsync)((uint64_t)(uintptr_t)data_of(result), (uint64_t)(uintptr_t)lent.memory,
                                                      COUNT, native_of(stream)), 0);
            else
                CHECK_STATUS(warp_array_copy(result, array, 0, 0, 0, stream), WARP_SUCCESS);
            if (moment == 0 && !retained) {
                release(array);
                release(view);
            }
            graph = end(stream);
            if (retained) {
                CHECK_STATUS(warp_graph_retain_array(graph, view), WARP_SUCCESS);
                CHECK_STATUS(warp_graph_retain_array(graph, array), WARP_SUCCESS);
            }
            if (moment == 1 || (moment == 0 && retained)) {
                release(array);
                release(view);
            }
            for (run = 0; run < 3; ++run) {
                fill_byte(data_of(result), 0, COUNT, stream);
                if (run == 2)
                    CHECK_EQ_U64(SIMULATOR(warpsim_hold)(native), 0);
                CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
            }
            if (moment == 2) {
                release(view);
                release(array);
            }
            CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
            CHECK_EQ_U64(graph_memory_after_trim(), 0);
            CHECK_EQ_I64(lent.deleted, 0);
            CHECK_EQ_U64(SIMULATOR(warpsim_release)(native), 0);
            SIMULATOR(warpsim_run)(0); /* the run is over, and the driver has told it: nothing of the library was called */
            CHECK_EQ_I64(lent.deleted, 0);
            in_call = 1;
            CHECK_STATUS(warp_memory_copy(back, data_of(result), COUNT, stream), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
            for (i = 0; i < COUNT; ++i)
                wrong += back[i] != (unsigned char)(i * 3);
            CHECK_EQ_I64(wrong, 0);
            if (moment == 3) {
                CHECK_EQ_U64(graph_memory_after_trim(), 0);
                CHECK_EQ_I64(lent.deleted, 0);
                release(array);
                CHECK_EQ_I64(lent.deleted, 0);
                release(view);
            }
            CHECK_EQ_U64(graph_memory_after_trim(), 0);
            CHECK_EQ_I64(lent.deleted, 1);
            release(result);
            over(stream);
        }
}

PROCESS_TEST(a_deleter_of_a_capture_that_comes_to_nothing_is_called)
{
    int how;
    start_on("h200x2");
    for (how = 0; how < 2; ++how) {
        warp_stream *stream = make_stream("cuda:0", 0);
        warp_array_options options = on(stream);
        struct lent lent;
        warp_array *array = wrap(&lent), *result = NULL;
        warp_graph *graph = NULL;
        in_call = 1;
        CHECK_STATUS(warp_array_empty(device("cuda:0"), U8, 1, shape, &options, &result), WARP_SUCCESS);
        begin(stream);
        CHECK_STATUS(warp_array_copy(result, array, 0, 0, 0, stream), WARP_SUCCESS);
        release(array);
        CHECK_EQ_I64(lent.deleted, 0);
        if (how == 0)
            CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
        else {
            CHECK_EQ_U64(SIMULATOR(warpsim_fail)("cuStreamEndCapture", 1, 999), 0);
            CHECK_STATUS(warp_capture_end(stream, &graph), WARP_ERROR_DRIVER);
            CHECK_EQ_PTR(graph, NULL);
        }
        CHECK_EQ_I64(lent.deleted, 1);
        release(result);
        over(stream);
    }
}

PROCESS_TEST(a_deleter_is_called_by_the_shutdown_when_its_graph_is_not_released)
{
    warp_stream *stream;
    struct lent lent;
    warp_array *array, *result = NULL;
    warp_array_options options;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    options = on(stream);
    array = wrap(&lent);
    CHECK_STATUS(warp_array_empty(device("cuda:0"), U8, 1, shape, &options, &result), WARP_SUCCESS);
    begin(stream);
    CHECK_STATUS(warp_array_copy(result, array, 0, 0, 0, stream), WARP_SUCCESS);
    release(array);
    CHECK_STATUS(warp_graph_launch(end(stream), stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    in_call = 1;
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_I64(lent.deleted, 1);
    check_clean();
}

/* Memory of the library that was wrapped is a block like any other. */
PROCESS_TEST(a_wrapped_block_of_the_library_is_kept_with_its_array)
{
    warp_stream *stream;
    warp_array *array = NULL;
    warp_graph *graph;
    void *block, *out;
    int run;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    block = alloc_on("cuda:0", stream, COUNT);
    out = alloc_on("cuda:0", stream, COUNT);
    fill_byte(block, 0x21, COUNT, stream);
    CHECK_STATUS(warp_array_wrap(device("cuda:0"), block, U8, 1, shape, NULL, &array), WARP_SUCCESS);
    begin(stream);
    CHECK_EQ_U64(SIMULATOR(cuMemcpyAsync)((uint64_t)(uintptr_t)out, (uint64_t)(uintptr_t)block, COUNT, native_of(stream)), 0);
    graph = end(stream);
    CHECK_STATUS(warp_graph_retain_array(graph, array), WARP_SUCCESS);
    release(array);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(live("pool"), 2);
    for (run = 0; run < 3; ++run) {
        fill_byte(out, 0, COUNT, stream);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK(holds(out, 0x21, COUNT, stream));
    }
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_free(out), WARP_SUCCESS);
    over(stream);
}

/* Nobody else knows the block of an array: when its free fails, it is not lost. */
PROCESS_TEST(an_array_whose_free_the_driver_refuses_in_a_capture_is_not_lost)
{
    static const char *const entries[] = {"cuGraphAddMemFreeNode", "cuStreamGetCaptureInfo_v3", "cuGraphNodeGetDependentNodes_v2"};
    size_t entry;
    int launches, end_fails;
    start_on("h200x2");
    for (entry = 0; entry < 3; ++entry)
        for (end_fails = 0; end_fails < 2; ++end_fails)
            for (launches = 0; launches < 3; launches += 2) {
                warp_stream *stream = make_stream("cuda:0", 0);
                warp_array_options options = on(stream);
                warp_array *array = NULL;
                warp_graph *graph = NULL;
                int run;
                begin(stream);
                CHECK_STATUS(warp_array_zeros(device("cuda:0"), U8, 1, shape, &options, &array), WARP_SUCCESS);
                CHECK_EQ_U64(SIMULATOR(warpsim_fail)(entries[entry], 1, 999), 0);
                CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
                SIMULATOR(warpsim_fail_clear)();
                CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
                if (end_fails) {
                    CHECK_STATUS(warp_capture_abandon(stream), WARP_SUCCESS);
                } else {
                    graph = end(stream);
                    CHECK_EQ_U64(graph_info(graph).block_count, 0);
                    for (run = 0; run < launches; ++run)
                        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
                    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
                    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
                }
                CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
                CHECK_EQ_U64(graph_memory_after_trim(), 0);
                check_clean();
            }
}

/* OM-04: of what has no bytes nothing enters the graph, whatever is done with it. */
PROCESS_TEST(what_has_no_bytes_leaves_no_trace_in_a_graph)
{
    static const int modes[] = {WARP_CAPTURE_GLOBAL, WARP_CAPTURE_THREAD_LOCAL, WARP_CAPTURE_RELAXED};
    const int64_t none = 0;
    warp_stream *stream;
    void *there;
    size_t m;
    int kind;
    start_on("h200x2");
    stream = make_stream("cuda:0", 0);
    CHECK_STATUS(warp_alloc(device("cuda:0"), 64, &there), WARP_SUCCESS);
    for (m = 0; m < 3; ++m) {
        warp_graph *graph = NULL;
        warp_graph_info info = {.struct_size = sizeof info};
        size_t nodes = 9;
        CHECK_STATUS(warp_capture_begin(stream, modes[m]), WARP_SUCCESS);
        for (kind = WARP_MEMORY_UNKNOWN; kind <= WARP_MEMORY_CUDA_MANAGED; ++kind) {
            const int host = kind == WARP_MEMORY_HOST || kind == WARP_MEMORY_PINNED;
            warp_array_options options = {.struct_size = sizeof options, .kind = kind, .stream = host ? NULL : stream};
            warp_launch_argument argument = {.name = "none", .kind = WARP_LAUNCH_ARRAY};
            warp_array *array = NULL, *view = NULL;
            void *block = &block;
            uint8_t can = 9;
            int mode;
            CHECK_STATUS(try_alloc(host ? "cpu" : "cuda:0", options.stream, kind, 0, &block), WARP_SUCCESS);
            CHECK_EQ_PTR(block, NULL);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            CHECK_STATUS(warp_access_can_pointer(device("cuda:1"), block, &can), WARP_SUCCESS);
            CHECK_EQ_U64(can, 1);
            CHECK_STATUS(warp_array_zeros(device(host ? "cpu" : "cuda:0"), I32, 1, &none, &options, &array), WARP_SUCCESS);
            CHECK_STATUS(warp_array_slice(array, 0, NULL, NULL, NULL, &view), WARP_SUCCESS);
            CHECK_STATUS(warp_array_copy(array, view, 0, 0, 0, host ? NULL : stream), WARP_SUCCESS);
            CHECK_STATUS(warp_access_can(device("cuda:1"), array, &can), WARP_SUCCESS);
            CHECK_EQ_U64(can, 1);
            argument.value = array;
            for (mode = WARP_LAUNCH_RELAXED; mode <= WARP_LAUNCH_STRICT; ++mode)
                CHECK_STATUS(warp_launch_check(device("cuda:1"), "k", &argument, 1, sizeof argument, mode, NULL), WARP_SUCCESS);
            release(view);
            release(array);
        }
        CHECK_STATUS(warp_memory_copy(there, there, 0, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(NULL, NULL, 0, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(there, 0, "x", 1, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(NULL, 0, "x", 1, stream), WARP_SUCCESS);
        graph = end(stream);
        CHECK_STATUS(warp_graph_get_info(graph, &info), WARP_SUCCESS);
        CHECK_EQ_U64(info.block_count, 0);
        CHECK_EQ_U64(SIMULATOR(cuGraphGetNodes)(info.native_graph, NULL, &nodes), 0);
        CHECK_EQ_U64(nodes, 0);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(there), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    check_clean();
}

CHECK_MAIN()
