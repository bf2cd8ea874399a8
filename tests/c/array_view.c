// topology: h200x2
// topology: -
/* Views: the same items seen in another way, and memory that lasts as long as somebody sees it. */
#include "arrays.h"
#include "simulator.h"

#include <pthread.h>

static const int64_t shape_345[3] = {3, 4, 5};

/* Checks that a view has a shape and, in row order, these items. */
static void check_items(warp_array *view, int32_t rank, const int64_t *shape, const int32_t *items)
{
    int64_t got[WARP_ARRAY_MAX_RANK] = {0}, index[WARP_ARRAY_MAX_RANK] = {0};
    warp_array_info info = info_of(view);
    uint64_t i;
    int32_t d;
    CHECK_EQ_I64(info.rank, rank);
    CHECK_STATUS(warp_array_get_shape(view, WARP_ARRAY_MAX_RANK, got, NULL), WARP_SUCCESS);
    CHECK(memcmp(got, shape, sizeof *shape * (size_t)rank) == 0);
    CHECK_EQ_U64(info.is_view, 1);
    CHECK_EQ_U64(info.is_owned, 1);
    for (i = 0; i < info.count; ++i) {
        CHECK_EQ_I64((int32_t)item_at(view, index), items[i]);
        for (d = rank - 1; d >= 0 && ++index[d] == got[d]; --d)
            index[d] = 0;
    }
}

TEST(slices_have_the_items_that_were_named)
{
    const int64_t from[2] = {1, 3}, stop[2] = {3, 0}, step[2] = {1, -2};
    const int64_t shape[3] = {2, 2, 5}, rows[3] = {3, 4, 5}, column[2] = {3, 1};
    const int32_t items[20] = {35, 36, 37, 38, 39, 25, 26, 27, 28, 29, 55, 56, 57, 58, 59, 45, 46, 47, 48, 49};
    const int64_t backwards = -1, two = 2, zero = 0, four[1] = {4}, odd[1] = {2};
    const int64_t one_column_start[2] = {0, 2}, one_column_stop[2] = {3, 3};
    int32_t all[60], i;
    const int32_t turned[4] = {3, 2, 1, 0}, halves[2] = {0, 2}, twos[3] = {2, 7, 12};
    warp_array *array, *view = NULL, *inner = NULL;
    int64_t rows_35[2] = {3, 5};
    start();
    for (i = 0; i < 60; ++i)
        all[i] = i;
    array = counting(3, shape_345);
    CHECK_STATUS(warp_array_slice(array, 2, from, stop, step, &view), WARP_SUCCESS);
    check_items(view, 3, shape, items);
    CHECK_EQ_U64(info_of(view).is_contiguous, 0);
    release(view);
    CHECK_STATUS(warp_array_slice(array, 0, NULL, NULL, NULL, &view), WARP_SUCCESS);
    check_items(view, 3, rows, all);
    CHECK_EQ_U64(info_of(view).is_contiguous, 1);
    release(view);
    release(array);

    array = counting(1, four);
    CHECK_STATUS(warp_array_slice(array, 1, NULL, NULL, &backwards, &view), WARP_SUCCESS);
    check_items(view, 1, four, turned);
    CHECK_STATUS(warp_array_slice(view, 1, NULL, NULL, &backwards, &inner), WARP_SUCCESS);
    CHECK_EQ_U64(info_of(inner).is_contiguous, 1);
    CHECK_EQ_PTR(info_of(inner).data, info_of(array).data);
    release(inner);
    release(view);
    CHECK_STATUS(warp_array_slice(array, 1, NULL, NULL, &two, &view), WARP_SUCCESS);
    check_items(view, 1, odd, halves);
    release(view);
    CHECK_STATUS(warp_array_slice(array, 1, &two, &two, NULL, &view), WARP_SUCCESS);
    check_items(view, 1, &zero, NULL);
    CHECK_EQ_PTR(info_of(view).data, NULL);
    release(view);
    release(array);

    array = counting(2, rows_35);
    CHECK_STATUS(warp_array_slice(array, 2, one_column_start, one_column_stop, NULL, &view), WARP_SUCCESS);
    check_items(view, 2, column, twos);
    release(view);
    release(array);
    finish();
}

TEST(a_slice_that_leaves_the_array_is_refused)
{
    struct {
        int64_t start, stop, step;
    } bad[] = {{0, 5, 1},  {-1, 4, 1}, {3, 2, 1},        {0, 4, 0},        {4, 0, -1},         {0, 2, -1},
               {3, -2, -1}, {5, 5, 1},  {INT64_MIN, 4, 1}, {0, INT64_MAX, 1}, {INT64_MAX, 0, -1}, {3, INT64_MIN, -1}};
    const int64_t four = 4, zero = 0, last = 3, most = INT64_MAX, least = INT64_MIN, five_shape[1] = {5};
    warp_array *array, *view = NULL;
    size_t i;
    start();
    array = counting(1, &four);
    for (i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        view = array;
        CHECK_STATUS(warp_array_slice(array, 1, &bad[i].start, &bad[i].stop, &bad[i].step, &view),
                     WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_PTR(view, NULL);
    }
    CHECK_STATUS(warp_array_slice(array, 2, NULL, NULL, NULL, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_slice(array, -1, NULL, NULL, NULL, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_slice(array, 33, NULL, NULL, NULL, &view), WARP_ERROR_INVALID_ARGUMENT);
    /* Steps as long as can be take one item. */
    CHECK_STATUS(warp_array_slice(array, 1, &zero, &four, &most, &view), WARP_SUCCESS);
    CHECK_EQ_U64(info_of(view).count, 1);
    release(view);
    CHECK_STATUS(warp_array_slice(array, 1, &last, NULL, &least, &view), WARP_SUCCESS);
    CHECK_EQ_U64(info_of(view).count, 1);
    CHECK_EQ_U64(item_at(view, &zero), 3);
    release(view);
    CHECK_STATUS(warp_array_reshape(array, 1, five_shape, &view), WARP_ERROR_INVALID_ARGUMENT);
    release(array);
    finish();
}

TEST(reshapes_keep_the_order_and_never_copy)
{
    const int64_t wide[2] = {15, -1}, flat[1] = {-1}, ones[4] = {1, 60, 1, 1}, pairs[3] = {4, 3, 5}, two_open[2] = {-1, -1};
    const int64_t odd[2] = {7, -1}, negative[2] = {-2, -30}, huge[3] = {INT64_MAX, INT64_MAX, -1}, scalar_shape[1] = {1};
    const int64_t half_start[3] = {0, 0, 0}, half_stop[3] = {3, 4, 4}, rows_of_half[2] = {12, 4}, not_of_half[2] = {6, 8};
    const int64_t zeros[2] = {0, -1}, empty_shape[2] = {0, 3}, empty_flat[1] = {0};
    int32_t all[60], i;
    warp_array *array, *view = NULL, *cut = NULL;
    int64_t wide_shape[2] = {15, 4};
    start();
    for (i = 0; i < 60; ++i)
        all[i] = i;
    array = counting(3, shape_345);
    CHECK_STATUS(warp_array_reshape(array, 2, wide, &view), WARP_SUCCESS);
    check_items(view, 2, wide_shape, all);
    release(view);
    CHECK_STATUS(warp_array_reshape(array, 1, flat, &view), WARP_SUCCESS);
    CHECK_EQ_U64(info_of(view).count, 60);
    release(view);
    CHECK_STATUS(warp_array_reshape(array, 4, ones, &view), WARP_SUCCESS);
    check_items(view, 4, ones, all);
    release(view);
    CHECK_STATUS(warp_array_reshape(array, 3, pairs, &view), WARP_SUCCESS);
    check_items(view, 3, pairs, all);
    release(view);
    CHECK_STATUS(warp_array_reshape(array, 2, two_open, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_reshape(array, 2, odd, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_reshape(array, 2, negative, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_reshape(array, 3, huge, &view), WARP_ERROR_SIZE_OVERFLOW);
    CHECK_STATUS(warp_array_reshape(array, 2, zeros, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_reshape(array, 0, NULL, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_reshape(array, 33, ones, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_reshape(array, 1, NULL, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(view, NULL);

    CHECK_STATUS(warp_array_slice(array, 3, half_start, half_stop, NULL, &cut), WARP_SUCCESS);
    CHECK_STATUS(warp_array_reshape(cut, 2, rows_of_half, &view), WARP_SUCCESS);
    CHECK_EQ_U64(info_of(view).is_contiguous, 0);
    release(view);
    CHECK_STATUS(warp_array_reshape(cut, 2, not_of_half, &view), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "contiguous");
    release(cut);
    release(array);

    array = counting(0, NULL);
    CHECK_STATUS(warp_array_reshape(array, 1, scalar_shape, &view), WARP_SUCCESS);
    check_items(view, 1, scalar_shape, all);
    release(view);
    release(array);
    array = counting(2, empty_shape);
    CHECK_STATUS(warp_array_reshape(array, 1, empty_flat, &view), WARP_SUCCESS);
    release(view);
    CHECK_STATUS(warp_array_reshape(array, 2, zeros, &view), WARP_ERROR_INVALID_ARGUMENT);
    release(array);
    finish();
}

TEST(a_transposed_array_has_its_dimensions_in_the_order_of_the_axes)
{
    const int32_t axes[3] = {2, 0, 1}, twice[3] = {0, 1, 1}, outside[3] = {0, 1, 3}, negative[3] = {0, 1, -1};
    const int64_t turned[3] = {5, 4, 3}, moved[3] = {5, 3, 4}, index[3] = {4, 1, 2}, flat[1] = {60};
    warp_array *array, *view = NULL, *back = NULL;
    int64_t got[3];
    start();
    array = counting(3, shape_345);
    CHECK_STATUS(warp_array_transpose(array, 0, NULL, &view), WARP_SUCCESS);
    CHECK_STATUS(warp_array_get_shape(view, 3, got, NULL), WARP_SUCCESS);
    CHECK(memcmp(got, turned, sizeof got) == 0);
    CHECK_EQ_U64(info_of(view).is_contiguous, 0);
    CHECK_STATUS(warp_array_reshape(view, 1, flat, &back), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_array_transpose(view, 0, NULL, &back), WARP_SUCCESS);
    CHECK_EQ_U64(info_of(back).is_contiguous, 1);
    release(back);
    release(view);
    CHECK_STATUS(warp_array_transpose(array, 3, axes, &view), WARP_SUCCESS);
    CHECK_STATUS(warp_array_get_shape(view, 3, got, NULL), WARP_SUCCESS);
    CHECK(memcmp(got, moved, sizeof got) == 0);
    CHECK_EQ_U64(item_at(view, index), 1 * 20 + 2 * 5 + 4);
    release(view);
    CHECK_STATUS(warp_array_transpose(array, 3, twice, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_transpose(array, 3, outside, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_transpose(array, 3, negative, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_transpose(array, 2, axes, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_transpose(array, 33, axes, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_transpose(array, -1, axes, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(view, NULL);
    release(array);
    finish();
}

TEST(bytes_are_seen_as_items_of_another_type)
{
    const int64_t shape[2] = {2, 3}, even[2] = {2, 4}, step[2] = {1, 2};
    warp_dtype broken = {WARP_DTYPE_FLOAT, 31, 1, 0}, opaque = {WARP_DTYPE_OPAQUE, 0, 0, 6};
    warp_array *array, *view = NULL, *cut = NULL;
    int64_t got[2], strides[2];
    start();
    array = counting(2, shape);
    CHECK_STATUS(warp_array_reinterpret(array, F32, &view), WARP_SUCCESS);
    CHECK_EQ_U64(info_of(view).dtype.code, WARP_DTYPE_FLOAT);
    CHECK_EQ_U64(info_of(view).count, 6);
    release(view);
    CHECK_STATUS(warp_array_reinterpret(array, U8, &view), WARP_SUCCESS);
    CHECK_STATUS(warp_array_get_shape(view, 2, got, strides), WARP_SUCCESS);
    CHECK(got[0] == 2 && got[1] == 12 && strides[0] == 12 && strides[1] == 1);
    release(view);
    CHECK_STATUS(warp_array_reinterpret(array, opaque, &view), WARP_SUCCESS);
    CHECK_STATUS(warp_array_get_shape(view, 2, got, strides), WARP_SUCCESS);
    CHECK(got[0] == 2 && got[1] == 2 && strides[0] == 12 && strides[1] == 6);
    release(view);
    CHECK_STATUS(warp_array_reinterpret(array, F64, &view), WARP_ERROR_SIZE_MISMATCH);
    CHECK_STR_CONTAINS(warp_error_get_message(), "float64");
    CHECK_STATUS(warp_array_reinterpret(array, broken, &view), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(view, NULL);
    release(array);

    array = counting(2, even);
    CHECK_STATUS(warp_array_reinterpret(array, F64, &view), WARP_SUCCESS);
    CHECK_EQ_U64(info_of(view).count, 4);
    release(view);
    CHECK_STATUS(warp_array_slice(array, 2, NULL, NULL, step, &cut), WARP_SUCCESS);
    CHECK_STATUS(warp_array_reinterpret(cut, F64, &view), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_array_reinterpret(cut, F32, &view), WARP_SUCCESS);
    release(view);
    release(cut);
    release(array);
    array = counting(0, NULL);
    CHECK_STATUS(warp_array_reinterpret(array, F32, &view), WARP_SUCCESS);
    release(view);
    CHECK_STATUS(warp_array_reinterpret(array, U8, &view), WARP_ERROR_SIZE_MISMATCH);
    release(array);
    finish();
}

TEST(memory_lasts_until_the_last_view_is_released_in_any_order)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const int64_t shape = 1000, first = 10, index = 0;
    const int32_t value = 42;
    size_t order, i;
    start();
    for (i = 0; i <= gpus; ++i) {
        warp_device *device = i == 0 ? cpu : gpu[i - 1];
        for (order = 0; order < 6; ++order) {
            warp_array *all[3];
            CHECK_STATUS(warp_array_full(device, I32, 1, &shape, &value, NULL, &all[0]), WARP_SUCCESS);
            CHECK_STATUS(warp_array_slice(all[0], 1, &first, NULL, NULL, &all[1]), WARP_SUCCESS);
            CHECK_STATUS(warp_array_reinterpret(all[1], F32, &all[2]), WARP_SUCCESS);
            CHECK_EQ_U64(info_of(all[2]).capacity, 4000);
            release(all[orders[order][0]]);
            CHECK_EQ_U64(live_bytes_of(device), 4000);
            CHECK_STATUS(warp_array_release(all[orders[order][0]]), WARP_ERROR_INVALID_HANDLE);
            CHECK_EQ_U64(item_at(all[orders[order][2]], &index), 42);
            release(all[orders[order][1]]);
            CHECK_EQ_U64(live_bytes_of(device), 4000);
            CHECK_EQ_U64(item_at(all[orders[order][2]], &index), 42);
            release(all[orders[order][2]]);
            CHECK_EQ_U64(live_bytes_of(device), 0);
        }
    }
    finish();
}

static void *make_and_release(void *given)
{
    warp_array *shared = (warp_array *)given;
    int round;
    for (round = 0; round < 500; ++round) {
        const int64_t first = round % 100, backwards = -1;
        warp_array *view = NULL, *turned = NULL;
        CHECK_STATUS(warp_array_slice(shared, 1, &first, NULL, NULL, &view), WARP_SUCCESS);
        CHECK_STATUS(warp_array_slice(view, 1, NULL, NULL, &backwards, &turned), WARP_SUCCESS);
        release(view);
        CHECK_EQ_U64(info_of(turned).count, (uint64_t)(100 - first));
        release(turned);
    }
    return NULL;
}

TEST(threads_share_an_array)
{
    const int64_t shape = 100;
    pthread_t threads[4];
    warp_array *array;
    int i;
    start();
    array = counting(1, &shape);
    for (i = 0; i < 4; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, make_and_release, array) == 0);
    for (i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    CHECK_EQ_U64(live_bytes_of(cpu), 400);
    release(array);
    finish();
}

TEST(the_last_shutdown_releases_what_was_left)
{
    const int64_t shape = 256, first = 1;
    warp_array *array = NULL, *view = NULL, *on_gpu = NULL, *made = NULL;
    warp_array_options options = {0};
    warp_array_info info = {0};
    int64_t length = 9;
    float one = 1;
    void *raw = NULL;
    start();
    info.struct_size = sizeof info;
    info.count = 9;
    options.struct_size = sizeof options;
    options.kind = WARP_MEMORY_CUDA_DEVICE;
    array = counting(1, &shape);
    CHECK_STATUS(warp_array_slice(array, 1, &first, NULL, NULL, &view), WARP_SUCCESS);
    if (gpus > 0)
        CHECK_STATUS(warp_array_zeros(gpu[0], F32, 1, &shape, &options, &on_gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(cpu, 100, &raw), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(array), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_array_fill(view, &shape, 4, NULL), WARP_ERROR_SHUT_DOWN);
#define SHUT_DOWN(call)                                 \
    do {                                                \
        made = view;                                    \
        CHECK_STATUS(call, WARP_ERROR_SHUT_DOWN);       \
        CHECK_EQ_PTR(made, NULL);                       \
    } while (0)
    SHUT_DOWN(warp_array_empty(NULL, F32, 1, &shape, NULL, &made));
    SHUT_DOWN(warp_array_zeros(NULL, F32, 1, &shape, NULL, &made));
    SHUT_DOWN(warp_array_ones(NULL, F32, 1, &shape, NULL, &made));
    SHUT_DOWN(warp_array_full(NULL, F32, 1, &shape, &one, NULL, &made));
    SHUT_DOWN(warp_array_wrap(NULL, &one, F32, 0, NULL, NULL, &made));
    SHUT_DOWN(warp_array_slice(view, 0, NULL, NULL, NULL, &made));
    SHUT_DOWN(warp_array_reshape(view, 1, &shape, &made));
    SHUT_DOWN(warp_array_transpose(view, 0, NULL, &made));
    SHUT_DOWN(warp_array_reinterpret(view, F32, &made));
    SHUT_DOWN(warp_array_clone(view, NULL, NULL, &made));
#undef SHUT_DOWN
    CHECK_STATUS(warp_array_get_info(view, &info), WARP_ERROR_SHUT_DOWN);
    CHECK_EQ_U64(info.count, 0);
    CHECK_STATUS(warp_array_get_shape(view, 1, &length, NULL), WARP_ERROR_SHUT_DOWN);
    CHECK_EQ_I64(length, 0);
    CHECK_STATUS(warp_array_copy(view, view, 0, 0, 0, NULL), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_free(raw), WARP_SUCCESS);
    if (gpus > 0 && simulator_is_here())
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    start();
    CHECK_STATUS(warp_array_release(array), WARP_ERROR_INVALID_HANDLE);
    finish();
}

CHECK_MAIN()
