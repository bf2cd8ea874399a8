// topology: h200x2
// topology: discrete,peers=0
// topology: vgpu
// topology: -
/* Filling, copying and cloning arrays, between any two devices and kinds. */
#include "arrays.h"

enum { PLACES_MAX = 24 };

/* Every device with every kind of memory that it has. */
static struct place {
    warp_device *device;
    warp_memory_kind kind;
} places[PLACES_MAX];
static size_t place_count;

static void find_places(void)
{
    size_t i;
    warp_memory_kind kind;
    place_count = 0;
    for (i = 0; i <= gpus && i < 4; ++i) {
        warp_device *device = i == 0 ? cpu : gpu[i - 1];
        for (kind = WARP_MEMORY_HOST; kind <= WARP_MEMORY_CUDA_MANAGED; ++kind) {
            warp_alloc_options options = {0};
            void *block = NULL;
            options.struct_size = sizeof options;
            options.kind = kind;
            if ((kind <= WARP_MEMORY_PINNED) != (i == 0))
                continue;
            if (warp_alloc_with(device, 16, &options, &block) != WARP_SUCCESS)
                continue;
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            places[place_count].device = device;
            places[place_count++].kind = kind;
        }
    }
}

static warp_array *at_place(size_t place, warp_dtype dtype, int64_t count, const void *value)
{
    warp_array_options options = {0};
    warp_array *array = NULL;
    options.struct_size = sizeof options;
    options.kind = places[place].kind;
    CHECK_STATUS(warp_array_full(places[place].device, dtype, 1, &count, value, &options, &array), WARP_SUCCESS);
    return array;
}

static void check_all(warp_array *array, const int32_t *expected)
{
    int32_t items[64];
    warp_array_info info = info_of(array);
    REQUIRE(info.size <= sizeof items);
    read_bytes(items, info.data, info.size);
    CHECK(memcmp(items, expected, info.size) == 0);
}

TEST(items_are_copied_between_any_two_devices_and_kinds)
{
    const int32_t old = -1;
    int32_t source[10], expected[10];
    size_t from, to, i;
    start();
    find_places();
    for (from = 0; from < place_count; ++from)
        for (to = 0; to < place_count; ++to) {
            const int32_t value = (int32_t)(100 * from + to);
            warp_array *src = at_place(from, I32, 10, &value), *dest = at_place(to, F32, 10, &old);
            for (i = 0; i < 10; ++i)
                source[i] = (int32_t)(1000 + 100 * from + i);
            CHECK_STATUS(warp_memory_copy(info_of(src).data, source, sizeof source, NULL), WARP_SUCCESS);
            synchronize_all();
            /* A part: 4 items from the third on to the sixth on. */
            CHECK_STATUS(warp_array_copy(dest, src, 5, 2, 4, NULL), WARP_SUCCESS);
            for (i = 0; i < 10; ++i)
                expected[i] = i >= 5 && i < 9 ? source[i - 3] : -1;
            check_all(dest, expected);
            /* All of it. */
            CHECK_STATUS(warp_array_copy(dest, src, 0, 0, 0, NULL), WARP_SUCCESS);
            check_all(dest, source);
            release(src);
            release(dest);
        }
    finish();
}

TEST(a_copy_that_passes_an_end_copies_nothing)
{
    const int64_t three = 3, five = 5, square[2] = {2, 2}, zero = 0, every_other = 2;
    warp_array *small, *large, *wide = NULL, *empty, *gaps = NULL, *matrix;
    start();
    small = counting(1, &three);
    large = counting(1, &five);
    matrix = counting(2, square);
    empty = counting(1, &zero);
    CHECK_STATUS(warp_array_zeros(cpu, F64, 1, &five, NULL, &wide), WARP_SUCCESS);
    CHECK_STATUS(warp_array_slice(large, 1, NULL, NULL, &every_other, &gaps), WARP_SUCCESS);
    CHECK_STATUS(warp_array_copy(small, large, 0, 0, 0, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "the destination");
    CHECK_STATUS(warp_array_copy(large, small, 3, 0, 0, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_copy(large, small, 0, 1, 0, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "the source");
    CHECK_STATUS(warp_array_copy(large, small, 0, 1, 3, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_copy(large, small, UINT64_MAX, 0, 1, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_copy(large, small, 0, UINT64_MAX, 1, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_copy(large, small, 0, 0, UINT64_MAX, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_copy(large, small, UINT64_C(1) << 63, 0, UINT64_C(1) << 63, NULL),
                 WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_copy(wide, small, 0, 0, 0, NULL), WARP_ERROR_SIZE_MISMATCH);
    CHECK_STR_CONTAINS(warp_error_get_message(), "Incompatible array data types");
    CHECK_STATUS(warp_array_copy(small, gaps, 1, 0, 0, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_copy(gaps, small, 0, 2, 2, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK(memcmp(info_of(small).data, "\0\0\0\0\1\0\0\0\2\0\0\0", 12) == 0);
    CHECK_STATUS(warp_array_copy(small, empty, 0, 0, 0, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_copy(small, empty, 7, 7, 0, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_copy(small, large, 0, 0, 1, (warp_stream *)small), WARP_ERROR_INVALID_HANDLE);
    /* Shapes do not matter, overlaps on the CPU neither. */
    CHECK_STATUS(warp_array_copy(large, matrix, 1, 0, 0, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_copy(large, large, 0, 1, 4, NULL), WARP_SUCCESS);
    CHECK(memcmp(info_of(large).data, "\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\3\0\0\0", 20) == 0);
    release(small);
    release(large);
    release(wide);
    release(empty);
    release(gaps);
    release(matrix);
    finish();
}

TEST(a_copy_goes_on_the_stream_that_is_named)
{
    const int64_t count = 10, index = 9;
    const int32_t value = 8;
    warp_array *there = NULL, *here = NULL;
    warp_stream *stream = NULL, *cpu_stream = NULL;
    start();
    if (gpus == 0) {
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        SKIP("needs a GPU");
    }
    CHECK_STATUS(warp_stream_create(gpu[0], NULL, &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_current(cpu, &cpu_stream), WARP_SUCCESS);
    CHECK_STATUS(warp_array_full(gpu[0], I32, 1, &count, &value, NULL, &there), WARP_SUCCESS);
    CHECK_STATUS(warp_array_zeros(cpu, I32, 1, &count, NULL, &here), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu[0]), WARP_SUCCESS);
    CHECK_STATUS(warp_array_copy(here, there, 0, 0, 0, cpu_stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_copy(here, there, 0, 0, 0, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_U64(item_at(here, &index), 8);
    CHECK_STATUS(warp_array_fill(here, &value, 4, stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_fill(there, &value, 4, cpu_stream), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_fill(there, &value, 4, stream), WARP_SUCCESS);
    /* The memory is reused only after the work on the second stream, too. */
    release(there);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    release(here);
    finish();
}

/* Fills a view of an array of numbered bytes, and checks every byte against a model. */
static void check_fill(size_t place, warp_dtype dtype, const int64_t *start_at, const int64_t *stop, const int64_t *step,
                       int transposed)
{
    const int64_t shape[3] = {4, 5, 6};
    const uint64_t item_size = dtype.item_size;
    unsigned char before[120 * 16], after[120 * 16], item[16];
    int64_t i, index[3];
    warp_array_options options = {0};
    warp_array *array = NULL, *view = NULL, *turned = NULL;
    options.struct_size = sizeof options;
    options.kind = places[place].kind;
    for (i = 0; i < (int64_t)sizeof before; ++i)
        before[i] = (unsigned char)(i * 7);
    for (i = 0; i < 16; ++i)
        item[i] = (unsigned char)(200 + i);
    CHECK_STATUS(warp_array_empty(places[place].device, dtype, 3, shape, &options, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(info_of(array).data, before, 120 * item_size, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_slice(array, 3, start_at, stop, step, &view), WARP_SUCCESS);
    if (transposed) {
        CHECK_STATUS(warp_array_transpose(view, 0, NULL, &turned), WARP_SUCCESS);
        release(view);
        view = turned;
    }
    CHECK_STATUS(warp_array_fill(view, item, item_size, NULL), WARP_SUCCESS);
    release(view);
    read_bytes(after, info_of(array).data, 120 * item_size);
    release(array);
    for (index[0] = start_at[0]; step[0] > 0 ? index[0] < stop[0] : index[0] > stop[0]; index[0] += step[0])
        for (index[1] = start_at[1]; step[1] > 0 ? index[1] < stop[1] : index[1] > stop[1]; index[1] += step[1])
            for (index[2] = start_at[2]; step[2] > 0 ? index[2] < stop[2] : index[2] > stop[2]; index[2] += step[2])
                memcpy(before + (uint64_t)(index[0] * 30 + index[1] * 6 + index[2]) * item_size, item, item_size);
    CHECK(memcmp(before, after, 120 * item_size) == 0);
}

TEST(a_fill_sets_the_items_of_a_view_and_nothing_between_them)
{
    static const struct {
        int64_t start[3], stop[3], step[3];
    } cuts[] = {
        {{0, 0, 0}, {4, 5, 6}, {1, 1, 1}}, {{1, 1, 1}, {3, 4, 5}, {1, 1, 1}},   {{0, 0, 0}, {4, 5, 6}, {2, 2, 2}},
        {{3, 4, 5}, {-1, -1, -1}, {-1, -1, -1}}, {{3, 0, 5}, {0, 5, -1}, {-2, 1, -2}}, {{0, 0, 0}, {4, 5, 3}, {1, 1, 1}},
        {{0, 2, 0}, {4, 3, 6}, {1, 1, 1}}, {{2, 2, 2}, {3, 3, 3}, {1, 1, 1}},   {{1, 0, 0}, {1, 5, 6}, {1, 1, 1}},
        {{1, 0, 0}, {3, 5, 6}, {1, 1, 1}},
    };
    warp_dtype dtypes[7];
    size_t place, cut, d;
    warp_dtype opaque = {WARP_DTYPE_OPAQUE, 0, 0, 5};
    dtypes[0] = U8;
    dtypes[1] = warp_dtype_make(WARP_DTYPE_INT, 16);
    dtypes[2] = I32;
    dtypes[3] = F64;
    dtypes[4] = warp_dtype_make(WARP_DTYPE_COMPLEX, 128);
    dtypes[5] = opaque;
    dtypes[6] = opaque;
    dtypes[6].item_size = 3;
    start();
    find_places();
    for (place = 0; place < place_count; ++place)
        for (d = 0; d < 7; ++d)
            for (cut = 0; cut < sizeof cuts / sizeof cuts[0]; ++cut) {
                check_fill(place, dtypes[d], cuts[cut].start, cuts[cut].stop, cuts[cut].step, 0);
                check_fill(place, dtypes[d], cuts[cut].start, cuts[cut].stop, cuts[cut].step, 1);
            }
    finish();
}

TEST(a_fill_that_cannot_be_is_refused)
{
    const int64_t count = 200000, one = 1, two = 2, last = 99999, shape[2] = {3, 2}, torn[2] = {2, 4}, windows[2] = {4, 4}, index[2] = {2, 1};
    const int32_t value = 3;
    int32_t items[8] = {0};
    warp_array_wrap_options options = {0};
    warp_array *array = NULL, *view = NULL;
    start();
    options.struct_size = sizeof options;
    CHECK_STATUS(warp_array_zeros(cpu, I32, 1, &count, NULL, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_fill(array, NULL, 4, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_fill(array, &value, 0, NULL), WARP_ERROR_SIZE_MISMATCH);
    CHECK_STATUS(warp_array_fill(array, &value, 8, NULL), WARP_ERROR_SIZE_MISMATCH);
    CHECK_STATUS(warp_array_fill(array, &value, UINT64_MAX, NULL), WARP_ERROR_SIZE_MISMATCH);
    CHECK_STATUS(warp_array_fill(array, &value, UINT64_C(1) << 63, NULL), WARP_ERROR_SIZE_MISMATCH);
    CHECK_STATUS(warp_array_fill(array, &value, 4, (warp_stream *)array), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_array_slice(array, 1, NULL, NULL, &two, &view), WARP_SUCCESS);
    CHECK_STATUS(warp_array_fill(view, &value, 4, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(item_at(array, &two), 3);
    /* The value may lie in the array itself. */
    CHECK_STATUS(warp_array_fill(array, info_of(view).data, 4, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(item_at(array, &two), 3);
    release(view);
    release(array);
    if (gpus > 0) {
        CHECK_STATUS(warp_array_zeros(gpu[0], I32, 1, &count, NULL, &array), WARP_SUCCESS);
        CHECK_STATUS(warp_array_slice(array, 1, NULL, NULL, &two, &view), WARP_SUCCESS);
        /* As many pieces as items. */
        CHECK_STATUS(warp_array_fill(view, &value, 4, NULL), WARP_SUCCESS);
        CHECK_EQ_U64(item_at(array, &two), 3);
        CHECK_EQ_U64(item_at(array, &one), 0);
        CHECK_EQ_U64(item_at(view, &last), 3);
        /* The value is read by the host. */
        CHECK_STATUS(warp_array_fill(array, info_of(array).data, 4, NULL), WARP_ERROR_INVALID_ARGUMENT);
        release(view);
        CHECK_STATUS(warp_array_full(gpu[0], I32, 1, &count, info_of(array).data, NULL, &view),
                     WARP_ERROR_INVALID_ARGUMENT);
        release(array);
    }
    options.strides = torn;
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 2, shape, &options, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_fill(array, &value, 4, NULL), WARP_ERROR_INVALID_ARGUMENT);
    release(array);
    options.strides = windows;
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 2, shape, &options, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_fill(array, &value, 4, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(item_at(array, index), 3);
    CHECK(items[0] == 3 && items[3] == 3 && items[4] == 0);
    release(array);
    finish();
}

TEST(a_clone_has_the_items_of_its_original)
{
    const int64_t shape[2] = {2, 5}, step[2] = {1, 2};
    int32_t expected[10], i;
    size_t from, to;
    start();
    find_places();
    for (i = 0; i < 10; ++i)
        expected[i] = i;
    for (from = 0; from < place_count; ++from)
        for (to = 0; to < place_count; ++to) {
            warp_array *plain = counting(2, shape), *original = NULL, *clone = NULL, *cut = NULL;
            warp_array_options options = {0};
            int64_t got[2], at[2];
            options.struct_size = sizeof options;
            options.kind = places[from].kind;
            CHECK_STATUS(warp_array_clone(plain, places[from].device, &options, &original), WARP_SUCCESS);
            release(plain);
            synchronize_all();
            options.kind = places[to].kind;
            options.tag = "a clone";
            CHECK_STATUS(warp_array_clone(original, places[to].device, &options, &clone), WARP_SUCCESS);
            CHECK_EQ_PTR(info_of(clone).device, places[to].device);
            CHECK_EQ_I64(info_of(clone).kind, places[to].kind);
            CHECK_EQ_U64(info_of(clone).is_view, 0);
            CHECK_STATUS(warp_array_get_shape(clone, 2, got, NULL), WARP_SUCCESS);
            CHECK(got[0] == 2 && got[1] == 5);
            CHECK_STATUS(warp_array_slice(original, 2, NULL, NULL, step, &cut), WARP_SUCCESS);
            release(original);
            check_all(clone, expected);
            release(clone);
            clone = cut;
            CHECK_STATUS(warp_array_clone(cut, NULL, NULL, &clone), WARP_SUCCESS);
            CHECK_EQ_U64(info_of(clone).is_contiguous, 1);
            CHECK_STATUS(warp_array_get_shape(clone, 2, got, NULL), WARP_SUCCESS);
            for (at[0] = 0; at[0] < got[0]; ++at[0])
                for (at[1] = 0; at[1] < got[1]; ++at[1])
                    CHECK_EQ_U64(item_at(clone, at), item_at(cut, at));
            CHECK_EQ_U64(info_of(clone).count, info_of(cut).count);
            release(clone);
            release(cut);
        }
    finish();
}

TEST(a_clone_takes_the_stream_of_whichever_side_is_a_gpu)
{
    const int64_t shape = 5, strides = 4, index = 4;
    warp_array *here, *there = NULL, *back = NULL;
    warp_stream *stream = NULL, *other = NULL;
    warp_array_options options = {0};
    start();
    options.struct_size = sizeof options;
    here = counting(1, &shape);
    options.strides = &strides;
    CHECK_STATUS(warp_array_clone(here, NULL, &options, &there), WARP_ERROR_INVALID_ARGUMENT);
    options.strides = NULL;
    CHECK_STATUS(warp_array_clone(here, NULL, NULL, &there), WARP_SUCCESS);
    CHECK_EQ_PTR(info_of(there).device, cpu);
    release(there);
    if (gpus >= 2) {
        CHECK_STATUS(warp_stream_create(gpu[0], NULL, &stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_create(gpu[1], NULL, &other), WARP_SUCCESS);
        options.stream = stream;
        CHECK_STATUS(warp_array_clone(here, NULL, &options, &there), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_array_clone(here, gpu[1], &options, &there), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_array_clone(here, gpu[0], &options, &there), WARP_SUCCESS);
        CHECK_STATUS(warp_array_clone(there, cpu, &options, &back), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_U64(item_at(back, &index), 4);
        release(back);
        options.stream = other;
        CHECK_STATUS(warp_array_clone(there, gpu[1], &options, &back), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(other), WARP_SUCCESS);
        CHECK_EQ_U64(item_at(back, &index), 4);
        release(back);
        release(there);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    }
    release(here);
    finish();
}

CHECK_MAIN()
