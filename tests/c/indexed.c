// topology: h200x2
// topology: discrete
// topology: hmm
// topology: -
/* Indexed arrays: which items are seen, what index arrays may be, and memory that lasts as long as somebody sees it. */
#include "arrays.h"
#include "driver.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void release_indexed(warp_indexed_array *indexed)
{
    CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
}

static warp_indexed_array_info indexed_info_of(const warp_indexed_array *indexed)
{
    warp_indexed_array_info info = {0};
    info.struct_size = sizeof info;
    CHECK_STATUS(warp_indexed_array_get_info(indexed, &info), WARP_SUCCESS);
    return info;
}

static warp_array *empty_on(warp_device *device, warp_memory_kind kind, warp_dtype dtype, int32_t rank, const int64_t *shape)
{
    warp_array_options options = {.struct_size = sizeof options, .kind = kind};
    warp_array *array = NULL;
    CHECK_STATUS(warp_array_empty(device, dtype, rank, shape, &options, &array), WARP_SUCCESS);
    return array;
}

/* An int32 array of these numbers. */
static warp_array *numbers_on(warp_device *device, warp_memory_kind kind, const int32_t *numbers, int64_t count)
{
    warp_array *array = empty_on(device, kind, I32, 1, &count);
    CHECK_STATUS(warp_memory_copy(info_of(array).data, numbers, (uint64_t)count * 4, NULL), WARP_SUCCESS);
    synchronize_all();
    return array;
}

static warp_indexed_array *indexed_by(const warp_array *data, const warp_array *const *indices, size_t count)
{
    warp_indexed_array *indexed = NULL;
    CHECK_STATUS(warp_indexed_array_create(data, indices, count, &indexed), WARP_SUCCESS);
    CHECK(indexed != NULL);
    return indexed;
}

/* The item that is seen at a place, found as code on a device finds it: by the parts. */
static int32_t seen_at(const warp_indexed_array *indexed, const int64_t *place)
{
    int64_t at[WARP_ARRAY_MAX_RANK];
    warp_array *data = NULL, *index = NULL;
    size_t rank = 0, i;
    int32_t item;
    CHECK_STATUS(warp_indexed_array_get_shape(indexed, NULL, 0, &rank), WARP_SUCCESS);
    for (i = 0; i < rank; ++i) {
        CHECK_STATUS(warp_indexed_array_get_index(indexed, i, &index), WARP_SUCCESS);
        at[i] = index == NULL ? place[i] : (int32_t)item_at(index, &place[i]);
        release(index);
    }
    CHECK_STATUS(warp_indexed_array_get_data(indexed, &data), WARP_SUCCESS);
    item = (int32_t)item_at(data, at);
    release(data);
    return item;
}

/* The kinds of memory that arrays on a device can be in: 0 the CPU, else a GPU. */
static size_t kinds_of(size_t number, warp_memory_kind *kinds)
{
    static const warp_memory_kind of_gpus[3] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    static const warp_memory_kind of_cpu[3] = {WARP_MEMORY_HOST, WARP_MEMORY_PINNED, WARP_MEMORY_UNKNOWN};
    memcpy(kinds, number > 0 ? of_gpus : of_cpu, sizeof of_cpu);
    return number > 0 ? 3 : gpus > 0 ? 2 : 1;
}

/* Refused, with this in the message; nothing is made. */
#define REFUSED(status, what, call)                             \
    do {                                                        \
        warp_indexed_array *made = (warp_indexed_array *)1;     \
        CHECK_STATUS(call, status);                             \
        CHECK_EQ_PTR(made, NULL);                               \
        CHECK_STR_CONTAINS(warp_error_get_message(), what);     \
    } while (0)

TEST(nothing_can_be_done_before_the_library_is_started)
{
    warp_indexed_array *none = (warp_indexed_array *)1;
    warp_array *view = (warp_array *)1;
    warp_indexed_array_info info = {.struct_size = sizeof info, .count = 9};
    int64_t length = 9;
    size_t rank = 9;
    REFUSED(WARP_ERROR_NOT_INITIALIZED, "warp_init", warp_indexed_array_create(view, NULL, 0, &made));
    CHECK_STATUS(warp_indexed_array_get_info(none, &info), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_U64(info.count, 0);
    CHECK_STATUS(warp_indexed_array_get_shape(none, &length, 1, &rank), WARP_ERROR_NOT_INITIALIZED);
    CHECK(length == 0 && rank == 0);
    CHECK_STATUS(warp_indexed_array_get_data(none, &view), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_PTR(view, NULL);
    view = (warp_array *)1;
    CHECK_STATUS(warp_indexed_array_get_index(none, 0, &view), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_PTR(view, NULL);
    CHECK_STATUS(warp_indexed_array_release(none), WARP_ERROR_NOT_INITIALIZED);
}

/* To make one costs a GPU nothing: no context, no memory, and no look at the indices. Stands before all tests that use a GPU. */
TEST(nothing_is_asked_of_a_gpu_for_its_indices)
{
    const int64_t none[2] = {0, 3}, some = 64;
    const warp_array *indices[2] = {NULL, NULL};
    warp_array *data, *index, *part = NULL;
    warp_indexed_array *indexed;
    uint64_t calls, asked;
    start();
    if (gpus == 0 || !simulator_is_here()) {
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        SKIP("needs a GPU and the simulated driver");
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
    data = empty_on(gpu[0], 0, I32, 2, none);
    indexed = indexed_by(data, indices, 2);
    release_indexed(indexed);
    release(data);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);

    data = empty_on(gpu[0], 0, F32, 1, &some);
    indices[0] = index = empty_on(gpu[0], 0, I32, 1, &some);
    calls = SIMULATOR(warpsim_call_count)("*");
    asked = SIMULATOR(warpsim_call_count)("cuCtxGetId");
    indexed = indexed_by(data, indices, 1);
    indexed_info_of(indexed);
    CHECK_STATUS(warp_indexed_array_get_index(indexed, 0, &part), WARP_SUCCESS);
    release(part);
    calls = SIMULATOR(warpsim_call_count)("*") - calls;
    asked = SIMULATOR(warpsim_call_count)("cuCtxGetId") - asked;
    CHECK_EQ_U64(calls, asked);
    release_indexed(indexed);
    release(data);
    release(index);
    finish();
}

/* Data and indices may be in different kinds of memory; the whole has no kind, and each part keeps its own. */
static void check_kinds(warp_device *where, warp_memory_kind of_data, warp_memory_kind of_rows)
{
    static const int32_t rows[4] = {2, 0, 2, 1}, columns[2] = {3, 0};
    const int64_t shape[3] = {3, 3, 4}, flat = 36;
    int32_t all[36], i;
    int64_t got[WARP_ARRAY_MAX_RANK], place[3];
    size_t rank = 0;
    warp_array *line, *data = NULL, *part = NULL, *first, *last;
    const warp_array *indices[3] = {NULL, NULL, NULL};
    warp_indexed_array *indexed;
    warp_indexed_array_info info;
    for (i = 0; i < 36; ++i)
        all[i] = i;
    line = numbers_on(where, of_data, all, flat);
    CHECK_STATUS(warp_array_reshape(line, 3, shape, &data), WARP_SUCCESS);
    release(line);
    indices[0] = first = numbers_on(where, of_rows, rows, 4);
    indices[2] = last = numbers_on(where, of_data, columns, 2);
    indexed = indexed_by(data, indices, 3);
    info = indexed_info_of(indexed);
    CHECK_EQ_PTR(info.data, info_of(data).data);
    CHECK_EQ_PTR(info.device, where);
    CHECK_EQ_U64(info.count, 24);
    CHECK(info.dtype.code == WARP_DTYPE_INT && info.dtype.bits == 32 && info.dtype.lanes == 1 && info.dtype.item_size == 4);
    CHECK_EQ_I64(info.rank, 3);
    CHECK_EQ_U64(info.indexed_dimensions, 5);
    memset(got, 0xff, sizeof got);
    CHECK_STATUS(warp_indexed_array_get_shape(indexed, got, WARP_ARRAY_MAX_RANK, &rank), WARP_SUCCESS);
    CHECK(rank == 3 && got[0] == 4 && got[1] == 3 && got[2] == 2);
    for (i = 3; i < WARP_ARRAY_MAX_RANK; ++i)
        CHECK_EQ_I64(got[i], 0);
    for (place[0] = 0; place[0] < 4; ++place[0])
        for (place[1] = 0; place[1] < 3; ++place[1])
            for (place[2] = 0; place[2] < 2; ++place[2])
                CHECK_EQ_I64(seen_at(indexed, place), 12 * rows[place[0]] + 4 * place[1] + columns[place[2]]);

    CHECK_STATUS(warp_indexed_array_get_data(indexed, &part), WARP_SUCCESS);
    CHECK_EQ_I64(info_of(part).kind, of_data);
    CHECK_EQ_U64(info_of(part).is_view, 1);
    CHECK_EQ_PTR(info_of(part).data, info_of(data).data);
    CHECK_EQ_U64(info_of(part).count, 36);
    release(part);
    CHECK_STATUS(warp_indexed_array_get_index(indexed, 0, &part), WARP_SUCCESS);
    CHECK_EQ_I64(info_of(part).kind, of_rows);
    CHECK_EQ_PTR(info_of(part).data, info_of(first).data);
    CHECK_EQ_U64(info_of(part).count, 4);
    release(part);
    part = data;
    CHECK_STATUS(warp_indexed_array_get_index(indexed, 1, &part), WARP_SUCCESS);
    CHECK_EQ_PTR(part, NULL);
    part = data;
    CHECK_STATUS(warp_indexed_array_get_index(indexed, 3, &part), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(part, NULL);
    CHECK_STATUS(warp_indexed_array_get_index(indexed, SIZE_MAX, &part), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "indexed array of 3");
    release_indexed(indexed);
    release(data);
    release(first);
    release(last);
}

TEST(items_are_seen_through_the_indices_on_every_device_and_of_every_kind)
{
    size_t number, d, k;
    start();
    for (number = 0; number <= gpus; ++number) {
        warp_memory_kind kinds[3];
        size_t count = kinds_of(number, kinds);
        for (d = 0; d < count; ++d)
            for (k = 0; k < count; ++k)
                check_kinds(number == 0 ? cpu : gpu[number - 1], kinds[d], kinds[k]);
    }
    finish();
}

TEST(data_and_indices_may_be_views_with_gaps_and_the_same_array)
{
    static const int32_t numbers[6] = {5, 9, 0, 9, 3, 9};
    const int64_t two = 2, backwards = -1;
    warp_array *array, *every_other = NULL, *turned = NULL;
    const warp_array *indices[1];
    warp_indexed_array *indexed;
    int64_t place;
    start();
    array = numbers_on(cpu, WARP_MEMORY_HOST, numbers, 6);
    CHECK_STATUS(warp_array_slice(array, 1, NULL, NULL, &two, &every_other), WARP_SUCCESS);
    CHECK_STATUS(warp_array_slice(array, 1, NULL, NULL, &backwards, &turned), WARP_SUCCESS);
    indices[0] = every_other;
    indexed = indexed_by(turned, indices, 1);
    CHECK_EQ_PTR(indexed_info_of(indexed).data, (int32_t *)info_of(array).data + 5);
    for (place = 0; place < 3; ++place)
        CHECK_EQ_I64(seen_at(indexed, &place), numbers[5 - numbers[2 * place]]);
    release_indexed(indexed);
    release(every_other);
    release(turned);
    /* The memory is counted once, however many see it. */
    indices[0] = array;
    indexed = indexed_by(array, indices, 1);
    CHECK_EQ_U64(live_bytes_of(cpu), 24);
    release(array);
    CHECK_EQ_U64(live_bytes_of(cpu), 24);
    release_indexed(indexed);
    finish();
}

TEST(a_dimension_without_an_index_array_is_whole)
{
    const int64_t shape[2] = {2, 3}, none[2] = {0, 3}, ones[33] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                                  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const int32_t zeros[5] = {0};
    const warp_array *indices[33] = {NULL};
    int64_t got[WARP_ARRAY_MAX_RANK], nothing = 0, place[WARP_ARRAY_MAX_RANK] = {0};
    size_t number, rank = 9, i;
    start();
    for (number = 0; number <= gpus; ++number) {
        warp_device *where = number == 0 ? cpu : gpu[number - 1];
        warp_array *data = empty_on(where, 0, I32, 2, shape), *view = NULL;
        warp_array *five = numbers_on(where, 0, zeros, 5), *empty = empty_on(where, 0, I32, 1, &nothing);
        warp_indexed_array *indexed = indexed_by(data, indices, 2);
        CHECK_EQ_U64(indexed_info_of(indexed).count, 6);
        CHECK_EQ_U64(indexed_info_of(indexed).indexed_dimensions, 0);
        CHECK_STATUS(warp_indexed_array_get_shape(indexed, got, 2, NULL), WARP_SUCCESS);
        CHECK(got[0] == 2 && got[1] == 3);
        CHECK_STATUS(warp_indexed_array_get_shape(indexed, NULL, 0, NULL), WARP_SUCCESS);
        release_indexed(indexed);

        /* An index array without items makes an indexed array without items. */
        indices[1] = empty;
        indexed = indexed_by(data, indices, 2);
        CHECK_EQ_U64(indexed_info_of(indexed).count, 0);
        CHECK_EQ_PTR(indexed_info_of(indexed).data, info_of(data).data);
        CHECK_STATUS(warp_indexed_array_get_shape(indexed, got, 2, NULL), WARP_SUCCESS);
        CHECK(got[0] == 2 && got[1] == 0);
        CHECK_STATUS(warp_indexed_array_get_index(indexed, 1, &view), WARP_SUCCESS);
        CHECK_EQ_U64(info_of(view).count, 0);
        release(view);
        release_indexed(indexed);
        release(data);
        indices[1] = NULL;

        /* Data without items has its shape all the same, and what no index can name is not looked for. */
        data = empty_on(where, 0, I32, 2, none);
        indexed = indexed_by(data, indices, 2);
        CHECK_EQ_U64(indexed_info_of(indexed).count, 0);
        CHECK_EQ_PTR(indexed_info_of(indexed).data, NULL);
        release_indexed(indexed);
        indices[0] = five;
        indexed = indexed_by(data, indices, 2);
        CHECK_EQ_U64(indexed_info_of(indexed).count, 15);
        CHECK_EQ_PTR(indexed_info_of(indexed).data, NULL);
        CHECK_EQ_PTR(indexed_info_of(indexed).device, where);
        release_indexed(indexed);
        release(data);
        indices[0] = NULL;

        /* Without dimensions there is one item, and nothing to index. */
        data = empty_on(where, 0, I32, 0, NULL);
        indexed = indexed_by(data, NULL, 0);
        CHECK_EQ_U64(indexed_info_of(indexed).count, 1);
        CHECK_EQ_I64(indexed_info_of(indexed).rank, 0);
        CHECK_STATUS(warp_indexed_array_get_shape(indexed, got, 0, &rank), WARP_SUCCESS);
        CHECK_EQ_U64(rank, 0);
        CHECK_STATUS(warp_indexed_array_get_index(indexed, 0, &view), WARP_ERROR_INVALID_ARGUMENT);
        release_indexed(indexed);
        indexed = indexed_by(data, indices, 0);
        release_indexed(indexed);
        release(data);

        /* And as many dimensions as can be. */
        data = numbers_on(where, 0, &zeros[0], 1);
        CHECK_STATUS(warp_array_reshape(data, 32, ones, &view), WARP_SUCCESS);
        for (i = 0; i < 32; ++i)
            indices[i] = i % 2 ? five : NULL;
        indices[31] = data;
        indices[1] = data;
        for (i = 3; i < 29; i += 2)
            indices[i] = data;
        indexed = indexed_by(view, indices, 32);
        CHECK_EQ_U64(indexed_info_of(indexed).count, 5);
        CHECK_EQ_U64(indexed_info_of(indexed).indexed_dimensions, 0xaaaaaaaa);
        place[29] = 4;
        CHECK_EQ_I64(seen_at(indexed, place), 0);
        CHECK_STATUS(warp_indexed_array_get_shape(indexed, got, SIZE_MAX, &rank), WARP_SUCCESS);
        CHECK(rank == 32 && got[29] == 5 && got[31] == 1);
        rank = 9;
        CHECK_STATUS(warp_indexed_array_get_shape(indexed, got, 31, &rank), WARP_ERROR_INVALID_ARGUMENT);
        CHECK(rank == 0 && got[29] == 0);
        CHECK_STR_CONTAINS(warp_error_get_message(), "32 dimensions");
        release_indexed(indexed);
        memset(indices, 0, sizeof indices);
        REFUSED(WARP_ERROR_INVALID_ARGUMENT, "33", warp_indexed_array_create(view, indices, 33, &made));
        release(view);
        release(data);
        release(five);
        release(empty);
    }
    finish();
}

TEST(what_is_no_index_array_is_refused_by_name)
{
    struct {
        warp_dtype dtype;
        const char *name;
    } bad[] = {{{WARP_DTYPE_INT, 64, 1, 0}, "int64"},  {{WARP_DTYPE_INT, 16, 1, 0}, "int16"},
               {{WARP_DTYPE_UINT, 32, 1, 0}, "uint32"}, {{WARP_DTYPE_FLOAT, 32, 1, 0}, "float32"},
               {{WARP_DTYPE_INT, 32, 2, 0}, "int32x2"}, {{WARP_DTYPE_OPAQUE, 0, 0, 4}, "opaque"}};
    const int64_t shape[2] = {2, 3}, square[2] = {1, 1}, one = 1, many = INT64_MAX / 8, zero_stride = 0;
    int32_t zero = 0;
    warp_array_wrap_options repeated = {.struct_size = sizeof repeated, .strides = &zero_stride};
    warp_array *data, *index, *other = NULL, *gone = NULL;
    warp_indexed_array *indexed = NULL, *stale = NULL;
    const warp_array *indices[2] = {NULL, NULL};
    size_t i;
    start();
    data = empty_on(cpu, 0, F32, 2, shape);
    index = numbers_on(cpu, 0, &zero, 1);
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        indices[1] = other = empty_on(cpu, 0, bad[i].dtype, 1, &one);
        REFUSED(WARP_ERROR_INVALID_ARGUMENT, bad[i].name, warp_indexed_array_create(data, indices, 2, &made));
        CHECK_STR_CONTAINS(warp_error_get_message(), "dimension 1");
        release(other);
    }
    indices[1] = other = empty_on(cpu, 0, I32, 2, square);
    REFUSED(WARP_ERROR_INVALID_ARGUMENT, "2 dimensions", warp_indexed_array_create(data, indices, 2, &made));
    release(other);
    indices[1] = other = empty_on(cpu, 0, I32, 0, NULL);
    REFUSED(WARP_ERROR_INVALID_ARGUMENT, "0 dimensions", warp_indexed_array_create(data, indices, 2, &made));
    release(other);

    /* One entry for each dimension. */
    indices[0] = indices[1] = index;
    for (i = 0; i < 4; ++i)
        if (i != 2)
            REFUSED(WARP_ERROR_INVALID_ARGUMENT, "2 dimensions", warp_indexed_array_create(data, indices, i, &made));
    REFUSED(WARP_ERROR_INVALID_ARGUMENT, "2 dimensions", warp_indexed_array_create(data, indices, SIZE_MAX, &made));
    REFUSED(WARP_ERROR_INVALID_ARGUMENT, "2 dimensions", warp_indexed_array_create(data, NULL, 0, &made));
    REFUSED(WARP_ERROR_INVALID_ARGUMENT, "indices", warp_indexed_array_create(data, NULL, 2, &made));
    REFUSED(WARP_ERROR_INVALID_ARGUMENT, "indices",
            warp_indexed_array_create(data, (const warp_array *const *)((char *)indices + 1), 2, &made));
    CHECK_STATUS(warp_indexed_array_create(data, indices, 2, NULL), WARP_ERROR_INVALID_ARGUMENT);

    /* Indices repeat items, so there may be more than anybody can count. */
    CHECK_STATUS(warp_array_wrap(cpu, &zero, I32, 1, &many, &repeated, &other), WARP_SUCCESS);
    indices[0] = other;
    REFUSED(WARP_ERROR_SIZE_OVERFLOW, "address space",
            warp_indexed_array_create(data, (indices[1] = other, indices), 2, &made));
    indices[1] = index;
    indexed = indexed_by(data, indices, 2);
    CHECK_EQ_U64(indexed_info_of(indexed).count, (uint64_t)many);
    release(other);

    /* Handles that are none. */
    CHECK_STATUS(warp_array_slice(index, 0, NULL, NULL, NULL, &gone), WARP_SUCCESS);
    release(gone);
    indices[0] = gone;
    REFUSED(WARP_ERROR_INVALID_HANDLE, "stale", warp_indexed_array_create(data, indices, 2, &made));
    CHECK_STR_CONTAINS(warp_error_get_message(), "dimension 0");
    REFUSED(WARP_ERROR_INVALID_HANDLE, "stale", warp_indexed_array_create(gone, indices, 2, &made));
    indices[0] = (const warp_array *)indexed;
    REFUSED(WARP_ERROR_INVALID_HANDLE, "is of type indexed array, not array",
            warp_indexed_array_create(data, indices, 2, &made));
    REFUSED(WARP_ERROR_INVALID_HANDLE, "is of type indexed array, not array",
            warp_indexed_array_create((warp_array *)indexed, indices, 2, &made));
    indices[0] = (const warp_array *)&zero;
    REFUSED(WARP_ERROR_INVALID_HANDLE, "dimension 0", warp_indexed_array_create(data, indices, 2, &made));
    REFUSED(WARP_ERROR_INVALID_HANDLE, "NULL", warp_indexed_array_create(NULL, NULL, 0, &made));

    /* An indexed array goes once. */
    stale = indexed;
    release_indexed(indexed);
    CHECK_STATUS(warp_indexed_array_release(stale), WARP_ERROR_INVALID_HANDLE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "stale");
    CHECK_STATUS(warp_indexed_array_release((warp_indexed_array *)data), WARP_ERROR_INVALID_HANDLE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "is of type array, not indexed array");
    CHECK_STATUS(warp_indexed_array_release(NULL), WARP_SUCCESS);
    /* And none of the refusals kept anything. */
    release(data);
    release(index);
    finish();
}

TEST(an_index_array_of_another_device_is_refused_with_both_names)
{
    const int64_t shape = 4;
    int32_t zero = 0;
    warp_array *on_cpu, *on_first, *on_second, *managed, *elsewhere, *anew;
    warp_device *same_gpu = NULL;
    const warp_array *indices[1];
    CUcontext context;
    start();
    if (gpus < 2 || !simulator_is_here()) {
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        SKIP("needs two GPUs and the simulated driver");
    }
    context = driver_foreign(0);
    CHECK_STATUS(warp_device_from_context(context, "renderer", &same_gpu), WARP_SUCCESS);
    on_cpu = numbers_on(cpu, WARP_MEMORY_PINNED, &zero, 1);
    on_first = empty_on(gpu[0], 0, I32, 1, &shape);
    on_second = empty_on(gpu[1], 0, I32, 1, &shape);
    elsewhere = empty_on(same_gpu, WARP_MEMORY_CUDA_DEVICE, I32, 1, &shape);
    managed = empty_on(gpu[1], WARP_MEMORY_CUDA_MANAGED, I32, 1, &shape);
#define APART(data, index, name_of_data, name_of_index)                                                                 \
    indices[0] = index;                                                                                                 \
    REFUSED(WARP_ERROR_INVALID_ARGUMENT, "is on \"" name_of_index "\"", warp_indexed_array_create(data, indices, 1, &made)); \
    CHECK_STR_CONTAINS(warp_error_get_message(), "is on \"" name_of_data "\"");                                         \
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_array_clone")
    APART(on_first, on_cpu, "cuda:0", "cpu");
    APART(on_cpu, on_first, "cpu", "cuda:0");
    APART(on_first, on_second, "cuda:0", "cuda:1");
    APART(on_first, elsewhere, "cuda:0", "renderer");
    APART(elsewhere, on_first, "renderer", "cuda:0");
    /* Managed memory is on the device that its array names. */
    APART(on_first, managed, "cuda:0", "cuda:1");
    /* A context that was removed and registered again is another device, though it has the name of the first. */
    CHECK_STATUS(warp_device_remove(same_gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_device_from_context(context, "renderer", &same_gpu), WARP_SUCCESS);
    anew = empty_on(same_gpu, WARP_MEMORY_CUDA_DEVICE, I32, 1, &shape);
    APART(elsewhere, anew, "renderer", "renderer");
    CHECK_STR_CONTAINS(warp_error_get_message(), "is on \"renderer\", which was removed;");
#undef APART
    release(on_cpu);
    release(on_first);
    release(on_second);
    release(elsewhere);
    release(managed);
    release(anew);
    synchronize_all();
    CHECK_STATUS(warp_device_remove(same_gpu), WARP_SUCCESS);
    SIMULATOR(cuCtxDestroy_v2)(context);
    finish();
}

TEST(memory_lasts_until_the_last_that_sees_it_is_released_in_any_order)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const int32_t numbers[4] = {10, 11, 12, 13}, picks[3] = {3, 1, 1};
    size_t number, order, step;
    start();
    for (number = 0; number <= gpus; ++number) {
        warp_device *where = number == 0 ? cpu : gpu[number - 1];
        for (order = 0; order < 6; ++order) {
            warp_array *data = numbers_on(where, 0, numbers, 4), *index = numbers_on(where, 0, picks, 3);
            const warp_array *indices[1];
            warp_indexed_array *indexed;
            uint64_t held = 28;
            int alive = 7;
            int64_t place;
            indices[0] = index;
            indexed = indexed_by(data, indices, 1);
            for (step = 0; step < 3; ++step) {
                CHECK_EQ_U64(live_bytes_of(where), held);
                if (alive & 4)
                    for (place = 0; place < 3; ++place)
                        CHECK_EQ_I64(seen_at(indexed, &place), numbers[picks[place]]);
                switch (orders[order][step]) {
                case 0: release(data); break;
                case 1: release(index); break;
                default: release_indexed(indexed); break;
                }
                alive &= ~(1 << orders[order][step]);
                held = (alive & 4 || alive & 1 ? 16 : 0) + (alive & 4 || alive & 2 ? 12 : 0);
            }
            CHECK_EQ_U64(live_bytes_of(where), 0);
        }
    }
    finish();
}

TEST(a_view_of_a_part_outlives_the_indexed_array)
{
    static const int32_t numbers[4] = {10, 11, 12, 13}, picks[3] = {3, 1, 1};
    warp_array *data, *index, *part = NULL, *picked = NULL;
    const warp_array *indices[1];
    warp_indexed_array *indexed;
    const int64_t last = 3;
    start();
    data = numbers_on(cpu, 0, numbers, 4);
    indices[0] = index = numbers_on(cpu, 0, picks, 3);
    indexed = indexed_by(data, indices, 1);
    release(data);
    release(index);
    CHECK_STATUS(warp_indexed_array_get_data(indexed, &part), WARP_SUCCESS);
    CHECK_STATUS(warp_indexed_array_get_index(indexed, 0, &picked), WARP_SUCCESS);
    release_indexed(indexed);
    CHECK_EQ_U64(live_bytes_of(cpu), 28);
    CHECK_EQ_U64(item_at(part, &last), 13);
    release(part);
    CHECK_EQ_U64(live_bytes_of(cpu), 12);
    release(picked);
    finish();
}

static void count_call(void *user, void *ptr, uint64_t size)
{
    (void)ptr;
    (void)size;
    ++*(int *)user;
}

/* An array of host memory whose deleter counts its calls. */
static warp_array *lent(int32_t *items, int64_t count, int *calls)
{
    warp_array_wrap_options options = {.struct_size = sizeof options, .deleter = count_call, .deleter_user = calls};
    warp_array *array = NULL;
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &count, &options, &array), WARP_SUCCESS);
    return array;
}

TEST(deleters_of_the_parts_are_called_once)
{
    int32_t items[4] = {0, 1, 2, 3}, picks[2] = {1, 1};
    const int64_t square[2] = {2, 2};
    int of_items = 0, of_picks = 0;
    warp_array *data, *shaped = NULL, *index;
    const warp_array *indices[2];
    warp_indexed_array *indexed, *again;
    start();
    data = lent(items, 4, &of_items);
    indices[0] = indices[1] = index = lent(picks, 2, &of_picks);
    CHECK_STATUS(warp_array_reshape(data, 2, square, &shaped), WARP_SUCCESS);
    indexed = indexed_by(shaped, indices, 2);
    again = indexed_by(shaped, indices, 2);
    release(data);
    release(shaped);
    release(index);
    release_indexed(indexed);
    CHECK(of_items == 0 && of_picks == 0);
    release_indexed(again);
    CHECK(of_items == 1 && of_picks == 1);
    /* What is refused keeps nothing. */
    data = lent(items, 4, &of_items);
    indices[0] = index = lent(picks, 2, &of_picks);
    REFUSED(WARP_ERROR_INVALID_HANDLE, "stale",
            warp_indexed_array_create(data, (indices[0] = shaped, indices), 1, &made));
    release(data);
    release(index);
    CHECK(of_items == 2 && of_picks == 2);
    finish();
}

TEST(the_last_shutdown_releases_what_was_left)
{
    int32_t items[4] = {0, 1, 2, 3}, picks[2] = {1, 1};
    const int64_t shape = 4;
    int of_items = 0, of_picks = 0;
    warp_array *data, *index, *on_gpu = NULL, *part = NULL;
    const warp_array *indices[1];
    warp_indexed_array *indexed, *second = NULL;
    warp_indexed_array_info info = {.struct_size = sizeof info, .count = 9};
    int64_t length = 9;
    size_t rank = 9;
    start();
    data = lent(items, 4, &of_items);
    indices[0] = index = lent(picks, 2, &of_picks);
    indexed = indexed_by(data, indices, 1);
    release(data); /* the indexed array alone has it; of the indices there is a handle left */
    if (gpus > 0) {
        on_gpu = empty_on(gpu[0], WARP_MEMORY_CUDA_DEVICE, I32, 1, &shape);
        indices[0] = on_gpu;
        second = indexed_by(on_gpu, indices, 1);
        release(on_gpu);
    }
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK(of_items == 0 && of_picks == 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK(of_items == 1 && of_picks == 1);
    CHECK_STATUS(warp_indexed_array_release(indexed), WARP_ERROR_INVALID_HANDLE);
    if (second != NULL)
        CHECK_STATUS(warp_indexed_array_release(second), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_indexed_array_release(NULL), WARP_SUCCESS);
    REFUSED(WARP_ERROR_SHUT_DOWN, "warp_init", warp_indexed_array_create(index, indices, 1, &made));
    CHECK_STATUS(warp_indexed_array_get_info(indexed, &info), WARP_ERROR_SHUT_DOWN);
    CHECK_EQ_U64(info.count, 0);
    CHECK_STATUS(warp_indexed_array_get_shape(indexed, &length, 1, &rank), WARP_ERROR_SHUT_DOWN);
    CHECK(length == 0 && rank == 0);
    CHECK_STATUS(warp_indexed_array_get_data(indexed, &part), WARP_ERROR_SHUT_DOWN);
    CHECK_STATUS(warp_indexed_array_get_index(indexed, 0, &part), WARP_ERROR_SHUT_DOWN);
    if (gpus > 0 && simulator_is_here())
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    start();
    CHECK_STATUS(warp_indexed_array_get_data(indexed, &part), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_indexed_array_release(indexed), WARP_ERROR_INVALID_HANDLE);
    CHECK(of_items == 1 && of_picks == 1);
    finish();
}

TEST(memory_that_was_freed_by_its_address_is_named)
{
    static const int32_t zeros[4] = {0};
    size_t number;
    start();
    for (number = 0; number <= gpus; ++number) {
        warp_device *where = number == 0 ? cpu : gpu[number - 1];
        warp_array *data = numbers_on(where, 0, zeros, 4), *index = numbers_on(where, 0, zeros, 2), *part = NULL;
        const warp_array *indices[1];
        warp_indexed_array *indexed;
        const float one = 1;
        indices[0] = index;
        indexed = indexed_by(data, indices, 1);
        CHECK_STATUS(warp_free(info_of(index).data), WARP_SUCCESS);
        REFUSED(WARP_ERROR_UNKNOWN_POINTER, "the index array of dimension 0",
                warp_indexed_array_create(data, indices, 1, &made));
        CHECK_STR_CONTAINS(warp_error_get_message(), "freed by its address");
        /* One that was made before says so of its parts, as any array. */
        CHECK_EQ_U64(indexed_info_of(indexed).count, 2);
        CHECK_STATUS(warp_indexed_array_get_index(indexed, 0, &part), WARP_SUCCESS);
        CHECK_STATUS(warp_array_fill(part, &one, 4, NULL), WARP_ERROR_UNKNOWN_POINTER);
        release(part);
        CHECK_STATUS(warp_free(info_of(data).data), WARP_SUCCESS);
        indices[0] = NULL;
        REFUSED(WARP_ERROR_UNKNOWN_POINTER, "the data: ", warp_indexed_array_create(data, indices, 1, &made));
        release(data);
        release(index);
        release_indexed(indexed);
    }
    finish();
}

TEST(a_lost_device_says_so_and_what_was_there_can_be_released)
{
    const int64_t shape = 16;
    warp_array *data, *index, *part = NULL;
    const warp_array *indices[1];
    warp_indexed_array *indexed;
    start();
    if (gpus == 0 || !simulator_is_here()) {
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        SKIP("needs a GPU and the simulated driver");
    }
    data = empty_on(gpu[0], WARP_MEMORY_CUDA_DEVICE, F32, 1, &shape);
    indices[0] = index = empty_on(gpu[0], WARP_MEMORY_CUDA_DEVICE, I32, 1, &shape);
    indexed = indexed_by(data, indices, 1);
    synchronize_all();
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    REFUSED(WARP_ERROR_DEVICE_LOST, "cuda:0", warp_indexed_array_create(data, indices, 1, &made));
    CHECK_EQ_PTR(indexed_info_of(indexed).device, NULL);
    CHECK_EQ_U64(indexed_info_of(indexed).count, 16);
    CHECK_STATUS(warp_indexed_array_get_data(indexed, &part), WARP_SUCCESS);
    release(part);
    release(data);
    release(index);
    release_indexed(indexed);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    start();
    finish();
}

/* Index arrays of a capture are there only when its graph runs; that is soon enough. */
TEST(indexed_arrays_are_made_and_released_while_a_stream_is_captured)
{
    const int64_t some = 64;
    const int32_t three = 3;
    const warp_array *indices[1] = {NULL};
    warp_array_options options = {.struct_size = sizeof options};
    warp_array *data, *index = NULL;
    warp_indexed_array *before, *indexed;
    warp_stream *stream = NULL;
    warp_graph *graph = NULL;
    const int64_t place = 63;
    start();
    if (gpus == 0 || !simulator_is_here()) {
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        SKIP("needs a GPU and the simulated driver");
    }
    CHECK_STATUS(warp_stream_create(gpu[0], NULL, &stream), WARP_SUCCESS);
    data = empty_on(gpu[0], WARP_MEMORY_CUDA_DEVICE, F32, 1, &some);
    before = indexed_by(data, indices, 1);
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_GLOBAL), WARP_SUCCESS);
    options.stream = stream;
    options.kind = WARP_MEMORY_CUDA_MEMPOOL;
    CHECK_STATUS(warp_array_full(gpu[0], I32, 1, &some, &three, &options, &index), WARP_SUCCESS);
    indices[0] = index;
    indexed = indexed_by(data, indices, 1);
    CHECK_EQ_U64(indexed_info_of(indexed).count, 64);
    release_indexed(before);
    release(index);
    CHECK_STATUS(warp_capture_end(stream, &graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_indexed_array_get_index(indexed, 0, &index), WARP_SUCCESS);
    CHECK_EQ_U64(item_at(index, &place), 3);
    release(index);
    release_indexed(indexed);
    release(data);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    synchronize_all();
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    finish();
}

struct crowd {
    warp_array *data, *index;
    warp_indexed_array *shared;
    int released;
};

static void *make_and_release(void *given)
{
    struct crowd *crowd = (struct crowd *)given;
    int round;
    for (round = 0; round < 500; ++round) {
        const warp_array *indices[1];
        warp_indexed_array *indexed;
        warp_array *part = NULL;
        warp_status status;
        indices[0] = crowd->index;
        indexed = indexed_by(crowd->data, indices, 1);
        CHECK_EQ_U64(indexed_info_of(indexed).count, 10);
        CHECK_STATUS(warp_indexed_array_get_data(indexed, &part), WARP_SUCCESS);
        release_indexed(indexed);
        CHECK_EQ_U64(info_of(part).count, 100);
        release(part);
        /* Until some thread releases it under all the others. */
        status = warp_indexed_array_get_index(crowd->shared, 0, &part);
        CHECK(status == WARP_SUCCESS || status == WARP_ERROR_INVALID_HANDLE);
        if (status == WARP_SUCCESS)
            release(part);
        if (round == 250 && warp_indexed_array_release(crowd->shared) == WARP_SUCCESS)
            __atomic_fetch_add(&crowd->released, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

TEST(threads_share_the_parts_and_of_many_releases_one_succeeds)
{
    const int64_t hundred = 100, ten = 10;
    struct crowd crowd = {0};
    const warp_array *indices[1];
    pthread_t threads[4];
    int i;
    start();
    crowd.data = empty_on(cpu, 0, F32, 1, &hundred);
    indices[0] = crowd.index = empty_on(cpu, 0, I32, 1, &ten);
    crowd.shared = indexed_by(crowd.data, indices, 1);
    for (i = 0; i < 4; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, make_and_release, &crowd) == 0);
    for (i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    CHECK_EQ_I64(crowd.released, 1);
    CHECK_EQ_U64(live_bytes_of(cpu), 440);
    release(crowd.data);
    release(crowd.index);
    finish();
}

TEST(a_forked_child_has_those_of_the_cpu_and_leaves_the_gpus_alone)
{
    int32_t items[4] = {7, 8, 9, 10}, picks[2] = {3, 1};
    const int64_t shape = 4, place = 0;
    int of_items = 0, of_picks = 0, status = 0;
    warp_array *data, *index, *on_gpu = NULL;
    const warp_array *indices[1];
    warp_indexed_array *indexed, *second = NULL, *made = NULL;
    pid_t child;
    start();
    data = lent(items, 4, &of_items);
    indices[0] = index = lent(picks, 2, &of_picks);
    indexed = indexed_by(data, indices, 1);
    if (gpus > 0) {
        const warp_array *of_gpu[1];
        of_gpu[0] = on_gpu = empty_on(gpu[0], 0, I32, 1, &shape);
        second = indexed_by(on_gpu, of_gpu, 1);
        synchronize_all();
    }
    fflush(stdout);
    child = fork();
    if (child == 0) {
        gpus = 0; /* not to be waited for here */
        CHECK_EQ_I64(seen_at(indexed, &place), 10);
        made = indexed_by(data, indices, 1);
        release(data);
        release(index);
        release_indexed(indexed);
        CHECK(of_items == 0 && of_picks == 0);
        release_indexed(made);
        CHECK(of_items == 1 && of_picks == 1);
        if (second != NULL) {
            CHECK_EQ_U64(indexed_info_of(second).count, 4);
            release(on_gpu);
            release_indexed(second);
        }
        /* What the library gives up in a child is no leak to be told of, so a child without failures ends abruptly. */
        if (check_failure_count() == 0)
            raise(SIGKILL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    release(data);
    release(index);
    release_indexed(indexed);
    CHECK(of_items == 1 && of_picks == 1);
    if (second != NULL) {
        release(on_gpu);
        release_indexed(second);
    }
    finish();
}

CHECK_MAIN()
