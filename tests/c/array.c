// topology: h200x2
// topology: discrete
// topology: vgpu
// topology: none
// topology: -
/* Making arrays: types, shapes, strides, kinds, contents, and what is none of these. */
#include "arrays.h"
#include "simulator.h"

TEST(nothing_can_be_done_before_the_library_is_started)
{
    int64_t shape = 3;
    float one = 1;
    warp_array *array = (warp_array *)&shape;
    warp_array_info info = {0};
    warp_dtype dtype = F32;
    info.struct_size = sizeof info;
    CHECK_EQ_U64(dtype.item_size, 4);
    CHECK_STATUS(warp_array_empty(NULL, F32, 1, &shape, NULL, &array), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_PTR(array, NULL);
    CHECK_STATUS(warp_array_zeros(NULL, F32, 1, &shape, NULL, &array), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_ones(NULL, F32, 1, &shape, NULL, &array), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_full(NULL, F32, 1, &shape, &one, NULL, &array), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_wrap(NULL, &one, F32, 0, NULL, NULL, &array), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_release(NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_get_info(NULL, &info), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_get_shape(NULL, 1, &shape, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_slice(NULL, 0, NULL, NULL, NULL, &array), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_reshape(NULL, 0, NULL, &array), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_transpose(NULL, 0, NULL, &array), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_reinterpret(NULL, F32, &array), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_fill(NULL, &one, 4, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_copy(NULL, NULL, 0, 0, 0, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_array_clone(NULL, NULL, NULL, &array), WARP_ERROR_NOT_INITIALIZED);
}

TEST(a_type_is_made_complete_or_empty)
{
    warp_dtype dtype = warp_dtype_make(WARP_DTYPE_COMPLEX, 128);
    CHECK_EQ_U64(dtype.code, WARP_DTYPE_COMPLEX);
    CHECK_EQ_U64(dtype.bits, 128);
    CHECK_EQ_U64(dtype.lanes, 1);
    CHECK_EQ_U64(dtype.item_size, 16);
    CHECK_EQ_U64(warp_dtype_make(WARP_DTYPE_INT, 4).item_size, 1);
    CHECK_EQ_U64(warp_dtype_make(WARP_DTYPE_FLOAT8_E5M2, 8).item_size, 1);
    CHECK_EQ_U64(sizeof(warp_dtype), 8);
    dtype = warp_dtype_make(WARP_DTYPE_FLOAT, 33);
    CHECK_EQ_U64(dtype.bits + dtype.lanes + dtype.item_size, 0);
    dtype = warp_dtype_make(WARP_DTYPE_OPAQUE, 32);
    CHECK_EQ_U64(dtype.bits + dtype.lanes + dtype.item_size, 0);
    dtype = warp_dtype_make(200, 8);
    CHECK_EQ_U64(dtype.bits + dtype.lanes + dtype.item_size, 0);
}

static void check_new(warp_device *device, warp_memory_kind kind)
{
    const int64_t shape[3] = {2, 3, 5};
    int64_t got_shape[4] = {7, 7, 7, 7}, got_strides[4] = {7, 7, 7, 7};
    warp_array_options options = {0};
    warp_array *array = NULL;
    warp_array_info info;
    warp_pointer_info pointer = {0};
    uint64_t before = live_bytes_of(device);
    warp_status status;
    options.struct_size = sizeof options;
    options.kind = kind;
    options.tag = "array test";
    options.alignment = 1024;
    status = warp_array_empty(device, F64, 3, shape, &options, &array);
    if (status == WARP_ERROR_NOT_SUPPORTED) {
        CHECK_EQ_PTR(array, NULL);
        return;
    }
    REQUIRE_STATUS(status, WARP_SUCCESS);
    info = info_of(array);
    CHECK_EQ_PTR(info.device, device);
    CHECK_EQ_U64(info.count, 30);
    CHECK_EQ_U64(info.size, 240);
    CHECK_EQ_U64(info.capacity, 240);
    CHECK_EQ_U64(info.dtype.code, WARP_DTYPE_FLOAT);
    CHECK_EQ_U64(info.dtype.item_size, 8);
    CHECK_EQ_I64(info.rank, 3);
    CHECK_EQ_U64((uintptr_t)info.data % 1024, 0);
    if (kind != WARP_MEMORY_UNKNOWN)
        CHECK_EQ_I64(info.kind, kind);
    CHECK_EQ_U64(info.is_contiguous, 1);
    CHECK_EQ_U64(info.is_view, 0);
    CHECK_EQ_U64(info.is_owned, 1);
    CHECK_EQ_U64(info.has_deleter, 0);
    pointer.struct_size = sizeof pointer;
    CHECK_STATUS(warp_pointer_get_info(info.data, &pointer), WARP_SUCCESS);
    CHECK_EQ_I64(pointer.kind, info.kind);
    CHECK_EQ_I64(pointer.rule, info.rule);
    CHECK_EQ_STR(pointer.tag, "array test");
    CHECK_STATUS(warp_array_get_shape(array, 4, got_shape, got_strides), WARP_SUCCESS);
    CHECK(got_shape[0] == 2 && got_shape[1] == 3 && got_shape[2] == 5 && got_shape[3] == 0);
    CHECK(got_strides[0] == 120 && got_strides[1] == 40 && got_strides[2] == 8 && got_strides[3] == 0);
    CHECK_EQ_U64(live_bytes_of(device), before + 240);
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    CHECK_EQ_U64(live_bytes_of(device), before);
    CHECK_STATUS(warp_array_release(array), WARP_ERROR_INVALID_HANDLE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "stale");
}

TEST(a_new_array_is_what_was_asked_on_every_device_and_of_every_kind)
{
    size_t i;
    warp_memory_kind kind;
    start();
    for (kind = WARP_MEMORY_UNKNOWN; kind <= WARP_MEMORY_PINNED; ++kind)
        check_new(cpu, kind);
    for (i = 0; i < gpus; ++i) {
        check_new(gpu[i], WARP_MEMORY_UNKNOWN);
        for (kind = WARP_MEMORY_CUDA_DEVICE; kind <= WARP_MEMORY_CUDA_MANAGED; ++kind)
            check_new(gpu[i], kind);
    }
    finish();
}

static void check_contents(warp_device *device, warp_dtype dtype, const void *one)
{
    const int64_t shape[2] = {3, 7};
    unsigned char bytes[21 * 32], item[32];
    warp_array *array = NULL;
    size_t i, size = dtype.item_size;
    CHECK_STATUS(warp_array_zeros(device, dtype, 2, shape, NULL, &array), WARP_SUCCESS);
    memset(bytes, 1, sizeof bytes);
    read_bytes(bytes, info_of(array).data, 21 * size);
    for (i = 0; i < 21 * size; ++i)
        CHECK(bytes[i] == 0);
    release(array);
    if (one != NULL) {
        CHECK_STATUS(warp_array_ones(device, dtype, 2, shape, NULL, &array), WARP_SUCCESS);
        read_bytes(bytes, info_of(array).data, 21 * size);
        for (i = 0; i < 21; ++i)
            CHECK(memcmp(bytes + i * size, one, size) == 0);
        release(array);
    } else {
        CHECK_STATUS(warp_array_ones(device, dtype, 2, shape, NULL, &array), WARP_ERROR_NOT_SUPPORTED);
        CHECK_EQ_PTR(array, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "warp_array_full");
    }
    for (i = 0; i < sizeof item; ++i)
        item[i] = (unsigned char)(17 * i + 3);
    CHECK_STATUS(warp_array_full(device, dtype, 2, shape, item, NULL, &array), WARP_SUCCESS);
    read_bytes(bytes, info_of(array).data, 21 * size);
    for (i = 0; i < 21; ++i)
        CHECK(memcmp(bytes + i * size, item, size) == 0);
    release(array);
}

TEST(zeros_ones_and_full_hold_what_they_say_for_every_type)
{
    const float f32 = 1, f32x2[2] = {1, 1}, c64[2] = {1, 0};
    const double f64 = 1, c128[2] = {1, 0};
    const int8_t i8 = 1;
    const int16_t i16 = 1;
    const int32_t i32 = 1, i32x3[3] = {1, 1, 1};
    const uint64_t u64 = 1, i128[2] = {1, 0};
    const uint16_t half = 0x3c00, bfloat = 0x3f80, c32[2] = {0x3c00, 0};
    warp_dtype vec2 = {WARP_DTYPE_FLOAT, 32, 2, 8}, vec3 = {WARP_DTYPE_INT, 32, 3, 12};
    warp_dtype opaque = {WARP_DTYPE_OPAQUE, 0, 1, 13};
    size_t i;
    start();
    for (i = 0; i <= gpus; ++i) {
        warp_device *device = i == 0 ? cpu : gpu[i - 1];
        check_contents(device, F32, &f32);
        check_contents(device, F64, &f64);
        check_contents(device, U8, &i8);
        check_contents(device, warp_dtype_make(WARP_DTYPE_INT, 16), &i16);
        check_contents(device, I32, &i32);
        check_contents(device, warp_dtype_make(WARP_DTYPE_UINT, 64), &u64);
        check_contents(device, warp_dtype_make(WARP_DTYPE_INT, 128), i128);
        check_contents(device, warp_dtype_make(WARP_DTYPE_INT, 4), &i8);
        check_contents(device, warp_dtype_make(WARP_DTYPE_BOOL, 8), &i8);
        check_contents(device, warp_dtype_make(WARP_DTYPE_FLOAT, 16), &half);
        check_contents(device, warp_dtype_make(WARP_DTYPE_BFLOAT, 16), &bfloat);
        check_contents(device, warp_dtype_make(WARP_DTYPE_COMPLEX, 32), c32);
        check_contents(device, warp_dtype_make(WARP_DTYPE_COMPLEX, 64), c64);
        check_contents(device, warp_dtype_make(WARP_DTYPE_COMPLEX, 128), c128);
        check_contents(device, vec2, f32x2);
        check_contents(device, vec3, i32x3);
        check_contents(device, warp_dtype_make(WARP_DTYPE_FLOAT8_E4M3FN, 8), NULL);
        check_contents(device, warp_dtype_make(WARP_DTYPE_FLOAT, 128), NULL);
        check_contents(device, opaque, NULL);
    }
    finish();
}

/* OM-04. */
TEST(a_shape_with_a_zero_is_an_array_that_allocates_nothing)
{
    const int64_t shape[4] = {4, 0, INT64_MAX, INT64_MAX};
    int64_t got[4];
    const float value = 2;
    warp_array *array = NULL, *view = NULL;
    warp_array_info info;
    size_t i;
    start();
    for (i = 0; i <= gpus; ++i) {
        warp_device *device = i == 0 ? cpu : gpu[i - 1];
        uint64_t before = allocations_of(device);
        CHECK_STATUS(warp_array_zeros(device, F32, 4, shape, NULL, &array), WARP_SUCCESS);
        info = info_of(array);
        CHECK_EQ_PTR(info.data, NULL);
        CHECK_EQ_PTR(info.device, device);
        CHECK_EQ_U64(info.count + info.size + info.capacity, 0);
        CHECK(info.kind == WARP_MEMORY_HOST || info.kind == WARP_MEMORY_CUDA_MEMPOOL || info.kind == WARP_MEMORY_CUDA_DEVICE);
        CHECK_EQ_U64(info.is_contiguous, 1);
        CHECK_STATUS(warp_array_get_shape(array, 4, got, NULL), WARP_SUCCESS);
        CHECK(memcmp(got, shape, sizeof shape) == 0);
        CHECK_STATUS(warp_array_fill(array, &value, 4, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_array_copy(array, array, 0, 0, 0, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_array_copy(array, array, 0, 0, 1, NULL), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_array_slice(array, 0, NULL, NULL, NULL, &view), WARP_SUCCESS);
        CHECK_EQ_PTR(info_of(view).data, NULL);
        release(view);
        CHECK_STATUS(warp_array_clone(array, NULL, NULL, &view), WARP_SUCCESS);
        release(view);
        release(array);
        CHECK_EQ_U64(allocations_of(device), before);
    }
    finish();
}

TEST(an_array_without_dimensions_has_one_item)
{
    warp_array *array = NULL;
    int64_t nothing = 5;
    const int32_t value = 77;
    start();
    CHECK_STATUS(warp_array_full(cpu, I32, 0, NULL, &value, NULL, &array), WARP_SUCCESS);
    CHECK_EQ_U64(info_of(array).count, 1);
    CHECK_EQ_I64(info_of(array).rank, 0);
    CHECK_EQ_U64(item_at(array, NULL), 77);
    CHECK_STATUS(warp_array_get_shape(array, 0, NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_array_get_shape(array, 1, &nothing, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(nothing, 0);
    release(array);
    finish();
}

TEST(strides_reach_as_far_as_the_last_item)
{
    const int64_t shape[2] = {3, 4}, gaps[2] = {100, 12}, odd[2] = {50, 11}, columns[2] = {4, 12}, repeated[2] = {0, 4};
    const int64_t backwards[2] = {16, -4};
    const int32_t value = 0x01020304;
    warp_array_options options = {0};
    warp_array *array = NULL;
    size_t i;
    int64_t index[2];
    start();
    options.struct_size = sizeof options;
    for (i = 0; i <= gpus; ++i) {
        warp_device *device = i == 0 ? cpu : gpu[i - 1];
        const int64_t *all[4] = {gaps, odd, columns, repeated};
        const uint64_t reach[4] = {200 + 36 + 4, 100 + 33 + 4, 8 + 36 + 4, 12 + 4};
        size_t which;
        for (which = 0; which < 4; ++which) {
            options.strides = all[which];
            CHECK_STATUS(warp_array_full(device, I32, 2, shape, &value, &options, &array), WARP_SUCCESS);
            CHECK_EQ_U64(info_of(array).capacity, reach[which]);
            CHECK_EQ_U64(info_of(array).size, 48);
            CHECK_EQ_U64(info_of(array).is_contiguous, 0);
            CHECK_EQ_U64(live_bytes_of(device), reach[which]);
            for (index[0] = 0; index[0] < 3; ++index[0])
                for (index[1] = 0; index[1] < 4; ++index[1])
                    CHECK_EQ_U64(item_at(array, index), 0x01020304);
            release(array);
            CHECK_STATUS(warp_array_zeros(device, I32, 2, shape, &options, &array), WARP_SUCCESS);
            index[0] = 2, index[1] = 3;
            CHECK_EQ_U64(item_at(array, index), 0);
            release(array);
        }
        options.strides = backwards;
        CHECK_STATUS(warp_array_empty(device, I32, 2, shape, &options, &array), WARP_ERROR_NOT_SUPPORTED);
        CHECK_EQ_PTR(array, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "warp_array_slice");
    }
    finish();
}

TEST(what_is_no_array_is_refused_by_name)
{
    const int64_t ok[1] = {4}, negative[2] = {3, -1}, huge[2] = {INT64_MAX, 2}, far[1] = {INT64_MAX / 2};
    const int64_t ones[33] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                              1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    warp_dtype wrong_size = {WARP_DTYPE_FLOAT, 32, 1, 8}, no_size = {WARP_DTYPE_OPAQUE, 8, 1, 0};
    warp_dtype none = {0, 0, 0, 0}, unknown = {99, 8, 1, 1}, short_float = {WARP_DTYPE_FLOAT, 32, 0, 0};
    warp_array_options options = {0};
    struct {
        warp_array_options known;
        uint64_t tail;
    } longer;
    warp_array *array = NULL;
    start();
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_full(cpu, F32, 1, ok, NULL, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_full(cpu, F32, 1, ok, ok, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, NULL, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_empty(cpu, F32, -1, ok, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_empty(cpu, F32, 33, ones, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_empty(cpu, F32, INT32_MIN, ok, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_empty(cpu, F32, INT32_MAX, ok, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_empty(cpu, F32, 2, negative, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_empty(cpu, U8, 2, huge, NULL, &array), WARP_ERROR_SIZE_OVERFLOW);
    CHECK_STATUS(warp_array_empty(cpu, F64, 1, far, NULL, &array), WARP_ERROR_SIZE_OVERFLOW);
    CHECK_STATUS(warp_array_zeros(cpu, U8, 1, huge, NULL, &array), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(warp_array_empty(cpu, wrong_size, 1, ok, NULL, &array), WARP_ERROR_SIZE_MISMATCH);
    CHECK_STATUS(warp_array_empty(cpu, no_size, 1, ok, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_empty(cpu, none, 1, ok, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_empty(cpu, unknown, 1, ok, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_full(cpu, unknown, 1, ok, ok, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_empty((warp_device *)&array, F32, 1, ok, NULL, &array), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(array, NULL);

    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    options.struct_size = offsetof(warp_array_options, mempool) - 1;
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    options.struct_size = SIZE_MAX;
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    options.struct_size = sizeof options;
    options.kind = WARP_MEMORY_CUDA_DEVICE;
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    options.kind = 6;
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    options.kind = 0;
    options.alignment = 3;
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, &options, &array), WARP_ERROR_BAD_ALIGNMENT);
    options.alignment = UINT64_C(1) << 63;
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, &options, &array), WARP_ERROR_SIZE_OVERFLOW);
    options.alignment = 0;
    options.stream = (warp_stream *)&options;
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, &options, &array), WARP_ERROR_INVALID_HANDLE);
    options.stream = NULL;
    options.strides = far;
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, &options, &array), WARP_ERROR_SIZE_OVERFLOW);
    options.strides = negative + 1;
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, &options, &array), WARP_ERROR_NOT_SUPPORTED);

    memset(&longer, 0, sizeof longer);
    longer.known.struct_size = sizeof longer;
    longer.tail = 1;
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, &longer.known, &array), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_PTR(array, NULL);
    longer.tail = 0;
    CHECK_STATUS(warp_array_empty(cpu, F32, 1, ok, &longer.known, &array), WARP_SUCCESS);
    release(array);
    CHECK_STATUS(warp_array_empty(cpu, F32, 32, ones, NULL, &array), WARP_SUCCESS);
    release(array);
    /* The least that describes a float: lanes and size follow. */
    CHECK_STATUS(warp_array_empty(cpu, short_float, 1, ok, NULL, &array), WARP_SUCCESS);
    CHECK_EQ_U64(info_of(array).size, 16);
    CHECK_EQ_U64(info_of(array).dtype.lanes, 1);
    release(array);
    finish();
}

TEST(handles_that_are_none_are_refused_and_outputs_cleared)
{
    int64_t shape[2] = {9, 9};
    warp_array *array = NULL, *view = NULL;
    warp_stream *stream = NULL;
    warp_array_info info = {0};
    struct {
        size_t struct_size;
        void *data;
    } first = {0, NULL};
    void *bad[4];
    size_t i;
    const int64_t four = 4;
    start();
    CHECK_STATUS(warp_stream_get_current(cpu, &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_array_zeros(cpu, F32, 1, &four, NULL, &array), WARP_SUCCESS);
    bad[0] = NULL;
    bad[1] = stream;
    bad[2] = &info;
    CHECK_STATUS(warp_array_zeros(cpu, F32, 1, &four, NULL, &view), WARP_SUCCESS);
    bad[3] = view; /* released */
    release(view);
    for (i = 0; i < 4; ++i) {
        warp_array *none = (warp_array *)bad[i];
        info.struct_size = sizeof info;
        info.count = 5;
        view = array;
        CHECK_STATUS(warp_array_get_info(none, &info), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_U64(info.count, 0);
        shape[0] = 9;
        CHECK_STATUS(warp_array_get_shape(none, 2, shape, NULL), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_I64(shape[0], 0);
        CHECK_STATUS(warp_array_slice(none, 0, NULL, NULL, NULL, &view), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_PTR(view, NULL);
        view = array;
        CHECK_STATUS(warp_array_reshape(none, 1, &four, &view), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_PTR(view, NULL);
        view = array;
        CHECK_STATUS(warp_array_transpose(none, 0, NULL, &view), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_PTR(view, NULL);
        view = array;
        CHECK_STATUS(warp_array_reinterpret(none, F32, &view), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_PTR(view, NULL);
        CHECK_STATUS(warp_array_fill(none, &shape, 4, NULL), WARP_ERROR_INVALID_HANDLE);
        CHECK_STATUS(warp_array_copy(none, array, 0, 0, 0, NULL), WARP_ERROR_INVALID_HANDLE);
        CHECK_STATUS(warp_array_copy(array, none, 0, 0, 0, NULL), WARP_ERROR_INVALID_HANDLE);
        view = array;
        CHECK_STATUS(warp_array_clone(none, NULL, NULL, &view), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_PTR(view, NULL);
        if (none != NULL)
            CHECK_STATUS(warp_array_release(none), WARP_ERROR_INVALID_HANDLE);
    }
    CHECK_STATUS(warp_stream_release((warp_stream *)array), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_array_release(NULL), WARP_SUCCESS);

    /* An array where a device is expected. */
    {
        warp_device *other = (warp_device *)array;
        float one = 1;
        view = array;
        CHECK_STATUS(warp_array_zeros(other, F32, 1, &four, NULL, &view), WARP_ERROR_INVALID_HANDLE);
        CHECK_STR_CONTAINS(warp_error_get_message(), "is of type array, not device");
        CHECK_EQ_PTR(view, NULL);
        view = array;
        CHECK_STATUS(warp_array_ones(other, F32, 1, &four, NULL, &view), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_PTR(view, NULL);
        view = array;
        CHECK_STATUS(warp_array_full(other, F32, 1, &four, &one, NULL, &view), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_PTR(view, NULL);
        view = array;
        CHECK_STATUS(warp_array_wrap(other, &one, F32, 0, NULL, NULL, &view), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_PTR(view, NULL);
        view = array;
        CHECK_STATUS(warp_array_clone(array, other, NULL, &view), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_PTR(view, NULL);
    }
    CHECK_STATUS(warp_array_zeros(cpu, F32, 1, &four, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_ones(cpu, F32, 1, &four, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_slice(array, 0, NULL, NULL, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_reshape(array, 1, &four, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_transpose(array, 0, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_reinterpret(array, F32, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_clone(array, NULL, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_get_info(array, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_get_info(array, (warp_array_info *)(void *)&first), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_get_shape(array, 0, shape, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_get_shape(array, -1, shape, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_get_shape(array, 1, NULL, NULL), WARP_SUCCESS);
    release(array);
    finish();
}

TEST(an_array_that_cannot_be_filled_is_freed_again)
{
    const int64_t shape[2] = {3, 2}, torn[2] = {2, 4}, many[2] = {70000, 2}, odd[2] = {9, 4}, last[2] = {69999, 1};
    const int32_t value = 5;
    warp_array_options options = {0};
    warp_array *array = NULL;
    start();
    if (gpus == 0) {
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        SKIP("needs a GPU");
    }
    options.struct_size = sizeof options;
    options.strides = torn;
    CHECK_STATUS(warp_array_full(gpu[0], I32, 2, shape, &value, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "share bytes");
    CHECK_EQ_PTR(array, NULL);
    /* Zeros need no item to begin where another ended. */
    CHECK_STATUS(warp_array_zeros(gpu[0], I32, 2, shape, &options, &array), WARP_SUCCESS);
    release(array);
    /* As many pieces as rows are no reason. */
    options.strides = odd;
    CHECK_STATUS(warp_array_full(gpu[0], I32, 2, many, &value, &options, &array), WARP_SUCCESS);
    CHECK_EQ_U64(item_at(array, last), 5);
    release(array);
    finish();
}

TEST(an_array_on_a_stream_is_filled_there)
{
    const int64_t shape = 1000;
    warp_array_options options = {0};
    warp_array *array = NULL;
    warp_stream *stream = NULL, *other = NULL;
    warp_pointer_info pointer = {0};
    warp_stream_info known = {0};
    int64_t index = 999;
    start();
    options.struct_size = sizeof options;
    pointer.struct_size = sizeof pointer;
    known.struct_size = sizeof known;
    if (gpus < 2) {
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        SKIP("needs two GPUs");
    }
    CHECK_STATUS(warp_stream_create(gpu[1], NULL, &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_create(gpu[0], NULL, &other), WARP_SUCCESS);
    options.stream = stream;
    CHECK_STATUS(warp_array_ones(gpu[1], I32, 1, &shape, &options, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_get_info(info_of(array).data, &pointer), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_info(stream, &known), WARP_SUCCESS);
    CHECK_EQ_U64(pointer.stream_id, known.id);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_U64(item_at(array, &index), 1);
    release(array);
    options.stream = other;
    CHECK_STATUS(warp_array_ones(gpu[1], I32, 1, &shape, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_ones(cpu, I32, 1, &shape, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    finish();
}

TEST(an_array_whose_fill_the_driver_refuses_is_freed_again)
{
    const int64_t shape = 16;
    warp_array *array = NULL;
    start();
    if (gpus == 0 || !simulator_is_here()) {
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        SKIP("needs a GPU and the simulated driver");
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_fail)("cuMemsetD32Async", 1, 999), 0);
    CHECK_STATUS(warp_array_ones(gpu[0], F32, 1, &shape, NULL, &array), WARP_ERROR_DRIVER);
    CHECK_EQ_PTR(array, NULL);
    SIMULATOR(warpsim_fail_clear)();
    CHECK_STATUS(warp_array_ones(gpu[0], F32, 1, &shape, NULL, &array), WARP_SUCCESS);
    release(array);
    finish();
}

TEST(an_array_of_a_lost_device_says_so_and_can_be_released)
{
    const int64_t shape = 16;
    const float value = 1;
    warp_array_options options = {0};
    warp_array *array = NULL, *view = NULL, *copy = NULL;
    start();
    if (gpus == 0 || !simulator_is_here()) {
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        SKIP("needs a GPU and the simulated driver");
    }
    options.struct_size = sizeof options;
    options.kind = WARP_MEMORY_CUDA_DEVICE;
    CHECK_STATUS(warp_array_ones(gpu[0], F32, 1, &shape, &options, &array), WARP_SUCCESS);
    synchronize_all();
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    CHECK_STATUS(warp_array_fill(array, &value, 4, NULL), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_array_clone(array, cpu, NULL, &copy), WARP_ERROR_DEVICE_LOST);
    CHECK_EQ_PTR(info_of(array).device, NULL);
    CHECK_EQ_U64(info_of(array).count, 16);
    CHECK_STATUS(warp_array_slice(array, 0, NULL, NULL, NULL, &view), WARP_SUCCESS);
    release(array);
    release(view);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    start();
    finish();
}

CHECK_MAIN()
