/* Allocators that stand on others: in every order, over every sort of memory, under captures, with arguments that are none and
 * with an upstream that breaks its word.
 *
 * topology: h200x2
 * needs: simulator */
#define _GNU_SOURCE
#include "adaptors.h"

/* ---- arguments ---------------------------------------------------------------------------------------------------- */

TEST(arguments_that_are_none_are_refused)
{
    REQUIRE(start());
    warp_allocator *below = builtin(WARP_MEMORY_HOST), *stale = make_adaptor(LIMIT, below), *out;
    warp_allocator *const bad[] = {NULL, stale, (warp_allocator *)cpu(), (warp_allocator *)(uintptr_t)0x1234};
    int sort;
    size_t i;
    release(stale);
    for (sort = 0; sort < ADAPTORS; ++sort) {
        for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
            out = (warp_allocator *)1;
            CHECK_STATUS(try_adaptor(sort, bad[i], "/dev/null", &out), WARP_ERROR_INVALID_HANDLE);
            CHECK_EQ_PTR(out, NULL);
        }
        CHECK_STATUS(try_adaptor(sort, below, "/dev/null", NULL), WARP_ERROR_INVALID_ARGUMENT);
    }
    CHECK_STATUS(warp_allocator_create_fallback(below, stale, &out), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_allocator_create_tracking(below, 2, &out), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_create_tracking(below, UINT32_MAX, &out), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_create_failure_callback(below, NULL, NULL, NULL, &out), WARP_ERROR_INVALID_ARGUMENT);
    {
        static const uint64_t alignments[] = {0, 3, 257, UINT64_C(1) << 41, UINT64_C(1) << 63, UINT64_MAX};
        for (i = 0; i < sizeof alignments / sizeof *alignments; ++i)
            CHECK_STATUS(warp_allocator_create_aligned(below, alignments[i], &out), WARP_ERROR_BAD_ALIGNMENT);
    }
    {
        static const char *const paths[] = {NULL, "", "/", "/nonexistent/a.log"};
        for (i = 0; i < sizeof paths / sizeof *paths; ++i) {
            CHECK_STATUS(warp_allocator_create_logging(below, paths[i], &out), WARP_ERROR_INVALID_ARGUMENT);
            if (paths[i] != NULL)
                CHECK_STR_CONTAINS(warp_error_get_message(), paths[i]);
        }
    }
}

/* The functions of one sort, with an allocator of another. */
static void check_other_sorts(warp_allocator *of, int sort, warp_status expected)
{
    warp_allocator_statistics account = {.struct_size = sizeof account};
    warp_tracked_block block;
    uint64_t number = 1;
    size_t count = 1;
    char text[16];
    if (sort != LIMIT) {
        CHECK_STATUS(warp_allocator_limit_set(of, 1), expected);
        CHECK_STATUS(warp_allocator_limit_get(of, &number, &number), expected);
        CHECK_EQ_U64(number, 0);
    }
    if (sort != STATISTICS) {
        CHECK_STATUS(warp_allocator_statistics_push(of), expected);
        CHECK_STATUS(warp_allocator_statistics_pop(of, &account), expected);
    }
    if (sort != TRACKING) {
        CHECK_STATUS(warp_allocator_tracking_report(of, text, sizeof text, &count), expected);
        CHECK_EQ_STR(text, "");
        CHECK_STATUS(warp_allocator_tracking_list(of, &block, sizeof block, 1, &count), expected);
        CHECK_EQ_U64(count, 0);
    }
    if (sort != LOGGING)
        CHECK_STATUS(warp_allocator_logging_flush(of), expected);
}

TEST(each_function_is_for_its_sort)
{
    REQUIRE(start());
    struct below below;
    warp_allocator *own = make_below(&below), *tracking;
    warp_tracked_block blocks[2];
    warp_allocator_statistics account = {.struct_size = 3};
    size_t count = 5;
    int sort;
    for (sort = 0; sort < ADAPTORS; ++sort) {
        warp_allocator_info info = {.struct_size = sizeof info};
        warp_allocator *adaptor = make_adaptor(sort, own);
        CHECK_STATUS(warp_allocator_get_info(adaptor, &info), WARP_SUCCESS);
        CHECK_EQ_STR(info.sort, adaptor_names[sort]);
        CHECK_EQ_I64(info.kind, WARP_MEMORY_HOST);
        CHECK_EQ_U64(info.flags, WARP_ALLOCATOR_HOST_MEMORY);
        CHECK_EQ_U64(info.references, 1);
        check_other_sorts(adaptor, sort, WARP_ERROR_INVALID_ARGUMENT);
        release(adaptor);
        check_other_sorts(adaptor, ADAPTORS, WARP_ERROR_INVALID_HANDLE);
    }
    check_other_sorts(own, ADAPTORS, WARP_ERROR_INVALID_ARGUMENT);
    check_other_sorts(builtin(WARP_MEMORY_PINNED), ADAPTORS, WARP_ERROR_INVALID_ARGUMENT);
    check_other_sorts(NULL, ADAPTORS, WARP_ERROR_INVALID_HANDLE);

    tracking = make_adaptor(TRACKING, own);
    CHECK_STATUS(warp_allocator_tracking_list(tracking, NULL, sizeof *blocks, 1, &count), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_tracking_list(tracking, blocks, 0, 2, &count), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_tracking_list(tracking, blocks, sizeof *blocks - 1, 2, &count), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_tracking_list(tracking, blocks, SIZE_MAX, 2, &count), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_tracking_list(tracking, NULL, 0, 0, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_tracking_report(tracking, NULL, 5, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_statistics_pop(tracking, &account), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_statistics_pop(tracking, NULL), WARP_ERROR_INVALID_ARGUMENT);
    release(tracking);
    release(own);
    CHECK_EQ_U64(below.destroyed, 1);
}

TEST(sizes_at_the_end_of_numbers_are_refused_by_all)
{
    REQUIRE(start());
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_C(1) << 63, INT64_MAX, INT64_MAX - 63, INT64_MAX - 4096};
    struct below below;
    warp_allocator *own = make_below(&below);
    int sort;
    size_t i;
    for (sort = 0; sort < ADAPTORS; ++sort) {
        warp_allocator *adaptor = make_adaptor(sort, own), *limit = make_adaptor(LIMIT, adaptor);
        for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
            void *none = (void *)1;
            warp_status status = try_take(limit, cpu(), sizes[i], &none);
            CHECK(status == WARP_ERROR_SIZE_OVERFLOW || status == WARP_ERROR_OUT_OF_MEMORY);
            CHECK_EQ_PTR(none, NULL);
            none = (void *)1;
            status = try_block(limit, cpu(), sizes[i], NULL, &none);
            CHECK(status == WARP_ERROR_SIZE_OVERFLOW || status == WARP_ERROR_OUT_OF_MEMORY);
            CHECK_EQ_PTR(none, NULL);
        }
        CHECK_EQ_U64(used_of(limit), 0);
        release(limit);
        release(adaptor);
    }
    release(own);
    CHECK_EQ_U64(below.destroyed, 1);
}

TEST(a_stack_has_an_end)
{
    REQUIRE(start());
    struct below below;
    warp_allocator *stack[16] = {make_below(&below)}, *none = (warp_allocator *)1;
    int height;
    for (height = 1; height < 16; ++height)
        stack[height] = make_adaptor(height % FALLBACK, stack[height - 1]);
    for (height = 0; height < ADAPTORS; ++height) {
        CHECK_STATUS(try_adaptor(height, stack[15], "/dev/null", &none), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_PTR(none, NULL);
    }
    CHECK_STATUS(warp_free(block_by(stack[15], cpu(), 1000, NULL)), WARP_SUCCESS);
    for (height = 0; height < 16; ++height)
        release(stack[height]);
    CHECK_EQ_U64(below.destroyed, 1);
    CHECK_EQ_U64(below.served, below.taken_back);
}

TEST(fallbacks_of_fallbacks_have_an_end)
{
    REQUIRE(start());
    struct below below;
    warp_allocator *stack[6] = {make_below(&below)}, *none;
    void *ptr;
    int height;
    /* Each asks the one below twice: 1, 3, 7 … 63 allocators. */
    for (height = 1; height < 6; ++height)
        stack[height] = make_adaptor(FALLBACK, stack[height - 1]);
    CHECK_STATUS(try_adaptor(FALLBACK, stack[5], NULL, &none), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "127 in all");
    below.fails_with = WARP_ERROR_BUSY;
    CHECK_STATUS(try_take(stack[5], cpu(), 100, &ptr), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_EQ_U64(below.failed, 32);
    for (height = 0; height < 6; ++height)
        release(stack[height]);
    CHECK_EQ_U64(below.destroyed, 1);
}

/* ---- an upstream that breaks its word ----------------------------------------------------------------------------- */

TEST(an_upstream_that_fails_in_every_way_costs_nothing)
{
    REQUIRE(start());
    static const struct {
        warp_status fails_with;
        int says_null, is_crooked;
        warp_status expected;
    } ways[] = {
        {WARP_ERROR_OUT_OF_MEMORY, 0, 0, WARP_ERROR_OUT_OF_MEMORY},
        {WARP_ERROR_INVALID_ARGUMENT, 0, 0, WARP_ERROR_ALLOCATOR_FAILED},
        {-1, 0, 0, WARP_ERROR_ALLOCATOR_FAILED},
        {987654, 0, 0, WARP_ERROR_ALLOCATOR_FAILED},
        {0, 1, 0, WARP_ERROR_ALLOCATOR_FAILED},
        {0, 0, 1, WARP_ERROR_ALLOCATOR_FAILED},
    };
    int sort, way;
    for (sort = 0; sort < ADAPTORS; ++sort) {
        struct below below;
        warp_allocator *own = make_below(&below), *adaptor = make_adaptor(sort, own);
        warp_allocator *limit = make_adaptor(LIMIT, adaptor), *tracking = make_adaptor(TRACKING, limit);
        warp_allocator *statistics = make_adaptor(STATISTICS, tracking);
        void *ptr, *second = NULL;
        for (way = 0; way < (int)(sizeof ways / sizeof *ways); ++way) {
            below.fails_with = ways[way].fails_with;
            below.says_null = ways[way].says_null;
            below.is_crooked = ways[way].is_crooked;
            ptr = (void *)1;
            CHECK_STATUS(try_block(statistics, cpu(), 100, NULL, &ptr), ways[way].expected);
            CHECK_EQ_PTR(ptr, NULL);
            CHECK_STATUS(try_take(statistics, cpu(), 100, &ptr), ways[way].expected);
            CHECK_EQ_PTR(ptr, NULL);
            CHECK_EQ_U64(used_of(limit), 0);
            CHECK_EQ_U64(tracked(tracking), 0);
            CHECK_EQ_U64(account_of(statistics).live_blocks, 0);
            CHECK_EQ_U64(below.out, 0);
        }
        below.fails_with = 0;
        below.says_null = below.is_crooked = 0;
        /* A block that is given twice stays its first owner's, and is given back once. */
        ptr = block_by(statistics, cpu(), 100, NULL);
        below.gives_last = 1;
        CHECK_STATUS(try_block(statistics, cpu(), 100, NULL, &second), WARP_ERROR_ALLOCATOR_FAILED);
        below.gives_last = 0;
        CHECK_EQ_U64(below.taken_back, below.served - 1);
        memset(ptr, 7, 100);
        /* A deallocation that fails is told; the block is gone all the same. */
        below.deallocation_says = 9;
        CHECK_STATUS(warp_free(ptr), WARP_ERROR_ALLOCATOR_FAILED);
        below.deallocation_says = 0;
        CHECK_EQ_U64(below.taken_back, below.served);
        CHECK_EQ_U64(tracked(tracking), 0);
        /* Who let the second one through has it in its account, since it never comes back. The aligned adaptor notices what it
         * moved, which a block that was aligned by chance is not. */
        CHECK(used_of(limit) == (sort == TRACKING ? 0 : 100) || (sort == ALIGNED && used_of(limit) == 0));
        release(own);
        release(adaptor);
        release(tracking);
        release(limit);
        CHECK_EQ_U64(below.destroyed, 0);
        release(statistics);
        CHECK_EQ_U64(below.destroyed, 1);
    }
}

/* ---- stacks ------------------------------------------------------------------------------------------------------- */

/* Raw memory, arrays and direct memory of an allocator, used and given back. */
static void use(warp_allocator *allocator, warp_device *device, warp_memory_kind kind)
{
    warp_array_options options = {.struct_size = sizeof options, .allocator = allocator, .tag = "array"};
    const int64_t shape[2] = {30, 40};
    warp_array *array = NULL;
    void *blocks[5], *direct;
    uint64_t i;
    for (i = 0; i < 5; ++i) {
        blocks[i] = block_by(allocator, device, 100 + 1000 * i, "block");
        CHECK_EQ_I64(pointer_info(blocks[i]).kind, kind);
        put_pattern(blocks[i], 100 + 1000 * i, i);
    }
    CHECK_STATUS(warp_array_zeros(device, warp_dtype_make(WARP_DTYPE_FLOAT, 32), 2, shape, &options, &array), WARP_SUCCESS);
    direct = take(allocator, device, 777);
    for (i = 0; i < 5; ++i)
        CHECK_EQ_U64(find_pattern(blocks[i], 100 + 1000 * i, i), 100 + 1000 * i);
    give(allocator, direct);
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    for (i = 0; i < 5; ++i)
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
}

/* The order with that number; 5040 of them. */
static void order_of(int number, int order[ADAPTORS])
{
    int left[ADAPTORS], count = ADAPTORS, i;
    for (i = 0; i < ADAPTORS; ++i)
        left[i] = i;
    for (i = 0; i < ADAPTORS; ++i) {
        int at = number % count;
        number /= count;
        order[i] = left[at];
        memmove(&left[at], &left[at + 1], sizeof *left * (size_t)(count - at - 1));
        count -= 1;
    }
}

TEST(they_stack_in_any_order_over_all_memory)
{
    REQUIRE(start());
    static const warp_memory_kind kinds[] = {WARP_MEMORY_HOST, WARP_MEMORY_PINNED, WARP_MEMORY_CUDA_DEVICE,
                                             WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    int step = check_under("valgrind") || check_under("sanitizer") ? 509 : 41, number, rounds = 0;
    uint64_t random = 5;
    given_up = 0;
    for (number = 0; number < 5040; number += step, ++rounds) {
        warp_memory_kind kind = kinds[rounds % 5];
        warp_device *device = kind == WARP_MEMORY_HOST || kind == WARP_MEMORY_PINNED ? cpu() : gpu(rounds % 2);
        warp_allocator *stack[ADAPTORS + 1] = {builtin(kind)}, *of[ADAPTORS] = {NULL};
        int order[ADAPTORS], i;
        order_of(number, order);
        for (i = 0; i < ADAPTORS; ++i)
            of[order[i]] = stack[i + 1] = make_adaptor(order[i], stack[i]);
        CHECK_STATUS(warp_allocator_statistics_push(of[STATISTICS]), WARP_SUCCESS);
        use(stack[ADAPTORS], device, kind);
        CHECK_STATUS(warp_device_synchronize(device), WARP_SUCCESS);
        CHECK_STATUS(warp_allocator_trim(stack[ADAPTORS], device, NULL), WARP_SUCCESS);
        CHECK_EQ_U64(used_of(of[LIMIT]), 0);
        CHECK_EQ_U64(tracked(of[TRACKING]), 0);
        CHECK_EQ_U64(account_of(of[STATISTICS]).live_blocks, 0);
        CHECK_EQ_U64(account_of(of[STATISTICS]).total_blocks, 7);
        CHECK_STATUS(warp_allocator_logging_flush(of[LOGGING]), WARP_SUCCESS);
        /* Released in any order, those below live as long as those above. */
        for (i = ADAPTORS; i > 1; --i) {
            uint64_t at = 1 + next_random(&random) % (uint64_t)i;
            warp_allocator *swapped = stack[at];
            stack[at] = stack[i];
            stack[i] = swapped;
        }
        for (i = 1; i <= ADAPTORS; ++i)
            release(stack[i]);
    }
    CHECK_EQ_I64(given_up, 0);
    CHECK_NOTHING_LEFT();
}

TEST(installed_for_a_gpu_they_serve_what_names_nothing)
{
    REQUIRE(start());
    warp_allocator *limit = make_adaptor(LIMIT, builtin(WARP_MEMORY_CUDA_MEMPOOL));
    warp_allocator *tracking = make_adaptor(TRACKING, limit);
    void *ptr = NULL, *none;
    CHECK_STATUS(warp_allocator_set_for_device(gpu(1), tracking), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(1), 5000, &ptr), WARP_SUCCESS);
    CHECK_EQ_U64(tracked(tracking), 1);
    CHECK_STATUS(warp_allocator_limit_set(limit, 6000), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu(1), 1001, &none), WARP_ERROR_OUT_OF_MEMORY);
    release(tracking);
    release(limit);
    CHECK_STATUS(warp_allocator_set_for_device(gpu(1), NULL), WARP_SUCCESS);
    /* Only the block keeps them now. */
    CHECK_STATUS(warp_allocator_limit_get(limit, NULL, NULL), WARP_ERROR_INVALID_HANDLE);
    put_pattern(ptr, 5000, 3);
    CHECK_EQ_U64(find_pattern(ptr, 5000, 3), 5000);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

TEST(blocks_that_streams_still_use_are_in_the_account)
{
    REQUIRE(start());
    warp_allocator *limit = make_adaptor(LIMIT, builtin(WARP_MEMORY_CUDA_DEVICE));
    warp_stream *stream = new_stream(gpu(0), 0);
    warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, stream);
    void *ptr = NULL;
    options.allocator = limit;
    CHECK_STATUS(warp_alloc_with(gpu(0), 1 << 20, &options, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_fill(ptr, 1 << 20, "x", 1, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(used_of(limit), 0);
    release(limit);
    CHECK_NOTHING_LEFT();
}

/* ---- captures ----------------------------------------------------------------------------------------------------- */

static warp_status alloc_on_stream(warp_allocator *allocator, warp_stream *stream, uint64_t size, void **out)
{
    warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, stream);
    options.allocator = allocator;
    return warp_alloc_with(gpu(0), size, &options, out);
}

TEST(in_a_capture_they_do_what_their_upstream_does)
{
    REQUIRE(start());
    int sort;
    for (sort = 0; sort < ADAPTORS; ++sort) {
        warp_allocator *over_pool = make_adaptor(sort, builtin(WARP_MEMORY_CUDA_MEMPOOL));
        warp_allocator *over_plain = make_adaptor(sort, builtin(WARP_MEMORY_CUDA_DEVICE));
        warp_allocator *limit = make_adaptor(LIMIT, over_pool);
        warp_stream *stream = new_stream(gpu(0), 0);
        warp_graph *graph = NULL;
        void *inside = NULL, *lasting = NULL, *none = (void *)1;
        CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
        CHECK_STATUS(alloc_on_stream(over_plain, stream, 100, &none), WARP_ERROR_ILLEGAL_IN_CAPTURE);
        CHECK_EQ_PTR(none, NULL);
        CHECK_STATUS(alloc_on_stream(limit, stream, 5000, &inside), WARP_SUCCESS);
        CHECK_STATUS(alloc_on_stream(limit, stream, 3000, &lasting), WARP_SUCCESS);
        CHECK_EQ_U64(used_of(limit), 8000);
        CHECK_STATUS(warp_memory_fill(inside, 5000, "a", 1, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(lasting, 3000, "b", 1, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(inside), WARP_SUCCESS);
        CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        {
            char bytes[3000];
            copy_now(bytes, lasting, sizeof bytes, stream);
            CHECK(bytes[0] == 'b' && bytes[2999] == 'b');
        }
        CHECK_STATUS(warp_free(lasting), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_EQ_U64(used_of(limit), 0);
        release(limit);
        release(over_pool);
        release(over_plain);
    }
    CHECK_NOTHING_LEFT();
}

TEST(a_limit_refuses_in_a_capture_and_the_capture_goes_on)
{
    REQUIRE(start());
    warp_allocator *limit = NULL, *fallback = NULL;
    warp_stream *stream = new_stream(gpu(0), 0);
    warp_graph *graph = NULL;
    void *ptr = NULL, *none;
    CHECK_STATUS(warp_allocator_create_limit(builtin(WARP_MEMORY_CUDA_MEMPOOL), 1000, &limit), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_fallback(limit, builtin(WARP_MEMORY_CUDA_MEMPOOL), &fallback), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
    CHECK_STATUS(alloc_on_stream(limit, stream, 1001, &none), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(alloc_on_stream(fallback, stream, 1001, &ptr), WARP_SUCCESS);
    CHECK_EQ_U64(used_of(limit), 0);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    release(limit);
    release(fallback);
    CHECK_NOTHING_LEFT();
}

CHECK_MAIN()
