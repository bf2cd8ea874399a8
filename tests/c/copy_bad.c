/*
 * copy_bad.c: copies that cannot be: each mistake has a status of its own and words that name the way out, and changes nothing:
 * no byte at either end, no driver call, no block more. The same is told by the question for the way, by the one copy, and by a
 * batch that it is one of.
 *
 * topology: h200x2
 * topology: discrete,peers=0
 * topology: mixed
 * needs: simulator
 */
#define _POSIX_C_SOURCE 200809L
#include "copy_refused.h"

TEST(nothing_can_be_copied_before_the_library_is_started)
{
    warp_copy_request request = bytes(NULL, NULL, 0);
    warp_copy_info info = {0};
    warp_array *array = (warp_array *)1;
    size_t bad = 7;
    uint32_t threads = 7;
    info.struct_size = sizeof info;
    info.size = 9;
    CHECK_STATUS(warp_copy_run(&request, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_init");
    CHECK_STATUS(warp_copy_run_batch(&request, sizeof request, 1, NULL, &bad), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_copy_get_path(&request, NULL, &info), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_U64(info.size, 0);
    CHECK_STATUS(warp_copy_set_threads(1), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_copy_get_threads(&threads), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_U64(threads, 0);
    CHECK_STATUS(warp_array_to_device(NULL, NULL, NULL, &array), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_PTR(array, NULL);
    array = (warp_array *)1;
    CHECK_STATUS(warp_array_contiguous(NULL, NULL, &array), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_PTR(array, NULL);
    array = (warp_array *)1;
    CHECK_STATUS(warp_indexed_array_clone(NULL, NULL, NULL, &array), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_PTR(array, NULL);
    CHECK_STATUS(warp_indexed_array_gather(NULL, NULL, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_indexed_array_scatter(NULL, NULL, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_indexed_array_copy(NULL, NULL, NULL), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_indexed_array_fill(NULL, &bad, 4, NULL), WARP_ERROR_NOT_INITIALIZED);
}

TEST(memory_that_does_not_fit)
{
    static const int ends[] = {HOST_B, PINNED, GPU_B, FAR_AWAY};
    size_t i;
    begin();
    for (i = 0; i < sizeof ends / sizeof *ends; ++i) {
        unsigned char *there = place[ends[i]];
        /* Either end on a GPU or not. */
        unsigned char *here = place[ends[i] == HOST_B || ends[i] == PINNED ? HOST_A : GPU_A];
        warp_stream *stream = NULL;
        REFUSED(bytes(here, there, SIZE + 1), stream, WARP_ERROR_INVALID_ARGUMENT, "pass the end of the block");
        REFUSED(bytes(here, there + 1, SIZE), stream, WARP_ERROR_INVALID_ARGUMENT, "the source");
        REFUSED(bytes(here + 1, there, SIZE), stream, WARP_ERROR_INVALID_ARGUMENT, "the destination");
        REFUSED(bytes(here, there + SIZE - 1, 2), stream, WARP_ERROR_INVALID_ARGUMENT, "by 1");
        REFUSED(bytes(NULL, there, 1), stream, WARP_ERROR_INVALID_ARGUMENT, "NULL");
        REFUSED(bytes(here, NULL, 1), stream, WARP_ERROR_INVALID_ARGUMENT, "NULL");
        REFUSED(bytes(here, there, UINT64_C(1) << 63), stream, WARP_ERROR_SIZE_OVERFLOW, NULL);
        REFUSED(bytes(here, there, UINT64_MAX), stream, WARP_ERROR_SIZE_OVERFLOW, NULL);
        REFUSED(bytes(here, there, INT64_MAX), stream, WARP_ERROR_INVALID_ARGUMENT, NULL);
    }
    finish();
}

TEST(items_that_do_not_fit)
{
    static const int pairs[][2] = {{HOST_A, HOST_B}, {GPU_A, GPU_B}, {GPU_A, HOST_B}, {HOST_A, GPU_B}, {FAR_AWAY, GPU_B}, {GPU_A, MALLOC}};
    size_t i, j;
    begin();
    for (i = 0; i < sizeof pairs / sizeof *pairs; ++i) {
        warp_array *dest[2], *src[2];
        dest[0] = line_in(pairs[i][0], 4, 100);
        src[0] = line_in(pairs[i][1], 4, 50);
        dest[1] = gaps_in(pairs[i][0], 100);
        src[1] = gaps_in(pairs[i][1], 50);
        for (j = 0; j < 4; ++j) {
            warp_array *to = dest[j / 2], *from = src[j % 2];
            const uint64_t half = UINT64_C(1) << 63;
            REFUSED(arrays(to, from, 51, 0, 0), NULL, WARP_ERROR_INVALID_ARGUMENT, "the destination");
            REFUSED(arrays(to, from, 0, 1, 50), NULL, WARP_ERROR_INVALID_ARGUMENT, "the source");
            REFUSED(arrays(to, from, 0, 1, 0), NULL, WARP_ERROR_INVALID_ARGUMENT, "the source");
            REFUSED(arrays(to, from, 0, 50, 1), NULL, WARP_ERROR_INVALID_ARGUMENT, "the source");
            REFUSED(arrays(to, from, 100, 0, 1), NULL, WARP_ERROR_INVALID_ARGUMENT, "the destination");
            REFUSED(arrays(to, from, 0, 0, 51), NULL, WARP_ERROR_INVALID_ARGUMENT, "50");
            REFUSED(arrays(to, from, UINT64_MAX, 0, 1), NULL, WARP_ERROR_INVALID_ARGUMENT, "the destination");
            REFUSED(arrays(to, from, 0, UINT64_MAX, 1), NULL, WARP_ERROR_INVALID_ARGUMENT, "the source");
            REFUSED(arrays(to, from, 0, 0, UINT64_MAX), NULL, WARP_ERROR_INVALID_ARGUMENT, NULL);
            REFUSED(arrays(to, from, half, half, half), NULL, WARP_ERROR_INVALID_ARGUMENT, NULL);
            REFUSED(arrays(to, from, 0, half, half), NULL, WARP_ERROR_INVALID_ARGUMENT, NULL);
            REFUSED(arrays(to, from, 1, UINT64_MAX / 4 + 1, 1), NULL, WARP_ERROR_INVALID_ARGUMENT, NULL);
            CALL_REFUSED(warp_array_copy(to, from, 51, 0, 0, NULL), WARP_ERROR_INVALID_ARGUMENT, "the destination");
            CALL_REFUSED(warp_array_copy(to, from, half, half, half, NULL), WARP_ERROR_INVALID_ARGUMENT, NULL);
        }
        for (j = 0; j < 2; ++j) {
            release(dest[j]);
            release(src[j]);
        }
    }
    finish();
}

TEST(shapes_and_types_that_do_not_match)
{
    static const int pairs[][2] = {{HOST_A, HOST_B}, {GPU_A, GPU_B}, {GPU_A, HOST_B}, {HOST_A, GPU_B}, {FAR_AWAY, GPU_B}};
    const int64_t square[2] = {4, 4}, wide[2] = {2, 8}, turned[2] = {4, 16}, three[3] = {4, 4, 1}, none[2] = {0, 4};
    const int64_t torn[2] = {64, 8};
    size_t i;
    begin();
    for (i = 0; i < sizeof pairs / sizeof *pairs; ++i) {
        const int to = pairs[i][0], from = pairs[i][1];
        warp_array *dest = array_in(to, 0, 4, 2, square, turned), *src = array_in(from, 0, 4, 2, wide, torn);
        warp_array *cube = array_in(from, 0, 4, 3, three, NULL), *bytes_of = line_in(from, 1, 16), *eight = line_in(from, 8, 16);
        warp_array *like = array_in(from, 0, 8, 2, square, NULL), *row = gaps_in(from, 16), *empty = array_in(to, 0, 4, 2, none, NULL);
        REFUSED(arrays(dest, src, 0, 0, 0), NULL, WARP_ERROR_SIZE_MISMATCH, "Incompatible array shapes");
        REFUSED(arrays(dest, cube, 0, 0, 0), NULL, WARP_ERROR_SIZE_MISMATCH, "Incompatible array shapes");
        REFUSED(arrays(dest, row, 0, 0, 0), NULL, WARP_ERROR_SIZE_MISMATCH, "Incompatible array shapes");
        REFUSED(arrays(dest, bytes_of, 0, 0, 0), NULL, WARP_ERROR_SIZE_MISMATCH, "Incompatible array data types");
        REFUSED(arrays(dest, eight, 0, 0, 0), NULL, WARP_ERROR_SIZE_MISMATCH, "Incompatible array data types");
        REFUSED(arrays(dest, like, 0, 0, 0), NULL, WARP_ERROR_SIZE_MISMATCH, "Incompatible array data types");
        /* Parts of what has gaps in more than one dimension. */
        REFUSED(arrays(dest, row, 1, 0, 4), NULL, WARP_ERROR_NOT_SUPPORTED, "warp_array_slice");
        REFUSED(arrays(row, dest, 0, 1, 4), NULL, WARP_ERROR_NOT_SUPPORTED, "warp_array_slice");
        REFUSED(arrays(dest, src, 0, 0, 4), NULL, WARP_ERROR_NOT_SUPPORTED, "warp_array_slice");
        REFUSED(arrays(empty, dest, 0, 0, 0), NULL, WARP_ERROR_SIZE_MISMATCH, "Incompatible array shapes");
        release(dest);
        release(src);
        release(cube);
        release(bytes_of);
        release(eight);
        release(like);
        release(row);
        release(empty);
    }
    finish();
}

TEST(items_of_the_destination_that_share_bytes)
{
    static const int ends[] = {HOST_A, GPU_A, FAR_AWAY, PINNED};
    const int64_t shape[2] = {3, 4}, strides[][2] = {{0, 4}, {16, 0}, {4, 4}, {8, 4}, {15, 4}, {16, 3}, {-8, 4}, {0, 0}, {-16, 2}};
    const int32_t good[3] = {2, 0, 1};
    const uint32_t value = 5;
    size_t i, k;
    begin();
    for (i = 0; i < sizeof ends / sizeof *ends; ++i)
        for (k = 0; k < sizeof strides / sizeof *strides; ++k) {
            warp_array *dest = array_in(ends[i], 512, 4, 2, shape, strides[k]), *src = array_in(HOST_B, 0, 4, 2, shape, NULL);
            warp_array *there = array_in(GPU_B, 0, 4, 2, shape, NULL), *rows = numbers(ends[i] == GPU_A ? GPU_B : HOST_B, 1024, good, 3);
            REFUSED(arrays(dest, src, 0, 0, 0), NULL, WARP_ERROR_INVALID_ARGUMENT, "share bytes");
            REFUSED(arrays(dest, there, 0, 0, 0), NULL, WARP_ERROR_INVALID_ARGUMENT, "share bytes");
            CALL_REFUSED(warp_array_copy(dest, src, 0, 0, 0, NULL), WARP_ERROR_INVALID_ARGUMENT, "share bytes");
            /* All items become alike, so only those are refused that do not fall on one another. */
            if (strides[k][0] % 4 != 0 || strides[k][1] % 4 != 0)
                CALL_REFUSED(warp_array_fill(dest, &value, 4, NULL), WARP_ERROR_INVALID_ARGUMENT, "share bytes");
            if (ends[i] != FAR_AWAY) {
                const warp_array *indices[2] = {rows, NULL};
                warp_indexed_array *indexed = NULL;
                /* The numbers pick rows, and along the rows items share bytes, or rows do with each other. */
                CHECK_STATUS(warp_indexed_array_create(dest, indices, 2, &indexed), WARP_SUCCESS);
                if (strides[k][1] != 4)
                    CALL_REFUSED(warp_indexed_array_scatter(indexed, src, NULL), WARP_ERROR_INVALID_ARGUMENT, "share bytes");
                release_indexed(indexed);
            }
            release(dest);
            release(src);
            release(there);
            release(rows);
        }
    finish();
}

TEST(nothing_to_copy_is_a_success_and_asks_nobody)
{
    static const int ends[] = {HOST_A, PINNED, GPU_A, GPU_B, FAR_AWAY, MALLOC};
    const int64_t none[3] = {3, 0, 5};
    size_t i, k, bad = 9;
    begin();
    for (i = 0; i < 6; ++i)
        for (k = 0; k < 6; ++k) {
            warp_array *dest = array_in(ends[i], 0, 4, 3, none, NULL), *src = array_in(ends[k], 0, 4, 3, none, NULL);
            warp_array *some = line_in(ends[i], 4, 6), *zeros = line_in(ends[k], 4, 0), *index = NULL;
            const warp_array *indices[1];
            warp_indexed_array *picked_none = NULL;
            warp_copy_request empty = arrays(dest, src, 0, 0, 0), memory = bytes(place[ends[i]], place[ends[k]], 0), batch[2];
            warp_copy_info info = {0};
            uint64_t before;
            const int64_t zero = 0;
            CHECK_STATUS(warp_array_wrap(owner[ends[k]], NULL, warp_dtype_make(WARP_DTYPE_INT, 32), 1, &zero, NULL, &index), WARP_SUCCESS);
            indices[0] = index;
            CHECK_STATUS(warp_indexed_array_create(zeros, indices, 1, &picked_none), WARP_SUCCESS);
            before = looks();
            info.struct_size = sizeof info;
            CHECK_STATUS(warp_copy_run(&empty, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_copy_run(&memory, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_memory_copy(place[ends[i]], place[ends[k]], 0, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_copy_get_path(&empty, NULL, &info), WARP_SUCCESS);
            CHECK(info.path == WARP_COPY_PATH_NONE && info.size == 0 && info.staging == 0);
            CHECK_STATUS(warp_copy_get_path(&memory, NULL, &info), WARP_SUCCESS);
            CHECK_EQ_I64(info.path, WARP_COPY_PATH_NONE);
            CHECK_STATUS(warp_array_copy(dest, src, 0, 0, 0, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_array_copy(some, zeros, 0, 0, 0, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_indexed_array_gather(zeros, picked_none, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_indexed_array_scatter(picked_none, zeros, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_indexed_array_copy(picked_none, picked_none, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_indexed_array_fill(picked_none, "four", 4, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_array_fill(dest, "four", 4, NULL), WARP_SUCCESS);
            batch[0] = empty;
            batch[1] = memory;
            CHECK_STATUS(warp_copy_run_batch(batch, sizeof *batch, 2, NULL, &bad), WARP_SUCCESS);
            CHECK_EQ_U64(bad, 2);
            CHECK_STATUS(warp_copy_run_batch(batch, sizeof *batch, 0, NULL, &bad), WARP_SUCCESS);
            CHECK_EQ_U64(bad, 0);
            CHECK_STATUS(warp_copy_run_batch(NULL, 0, 0, NULL, NULL), WARP_SUCCESS);
            CHECK_EQ_U64(looks(), before);
            CHECK(nothing_changed());
            release_indexed(picked_none);
            release(index);
            release(dest);
            release(src);
            release(some);
            release(zeros);
        }
    finish();
}

TEST(requests_that_say_too_much_or_too_little)
{
    const int32_t good[2] = {1, 0};
    warp_array *dest, *src, *by;
    warp_indexed_array *indexed;
    warp_copy_request request, none = {0}, batch[2];
    warp_copy_info info = {0};
    size_t bad = 9;
    begin();
    dest = line_in(GPU_A, 4, 2);
    src = line_in(GPU_B, 4, 2);
    by = numbers(GPU_B, 512, good, 2);
    indexed = picked(src, by);
    none.struct_size = sizeof none;
    REFUSED(none, NULL, WARP_ERROR_INVALID_ARGUMENT, NULL);
    request = arrays(dest, src, 0, 0, 0);
    request.dest = place[GPU_A];
    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, "more than one destination");
    request = arrays(dest, src, 0, 0, 0);
    request.src = place[GPU_A];
    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, "more than one source");
    request = arrays(dest, src, 0, 0, 0);
    request.src_indexed = indexed;
    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, "more than one source");
    request = arrays(dest, src, 0, 0, 0);
    request.dest_indexed = indexed;
    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, "more than one destination");
    request = arrays(NULL, src, 0, 0, 0);
    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, NULL);
    request = arrays(dest, NULL, 0, 0, 0);
    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, NULL);
    request = arrays(dest, NULL, 0, 0, 0);
    request.src = place[GPU_B];
    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, "warp_array_wrap");
    request = arrays(NULL, src, 0, 0, 0);
    request.dest = place[GPU_A];
    request.size = 8;
    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, "warp_array_wrap");
    request = arrays(dest, src, 0, 0, 0);
    request.size = 8;
    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, "size");
    request = bytes(place[GPU_A], place[GPU_B], 8);
    request.count = 2;
    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, NULL);
    request.count = 0;
    request.src_offset = 1;
    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, NULL);
    /* Index arrays and offsets. */
    request = none;
    request.dest_array = dest;
    request.src_indexed = indexed;
    request.count = 1;
    REFUSED(request, NULL, WARP_ERROR_NOT_SUPPORTED, "offset");
    request.count = 0;
    request.src_offset = 1;
    REFUSED(request, NULL, WARP_ERROR_NOT_SUPPORTED, "offset");
    /* Nothing at all. */
    CALL_REFUSED(warp_copy_run(NULL, NULL), WARP_ERROR_INVALID_ARGUMENT, "NULL");
    info.struct_size = sizeof info;
    CALL_REFUSED(warp_copy_get_path(NULL, NULL, &info), WARP_ERROR_INVALID_ARGUMENT, "NULL");
    request = arrays(dest, src, 0, 0, 0);
    CALL_REFUSED(warp_copy_get_path(&request, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT, NULL);
    CALL_REFUSED(warp_copy_get_threads(NULL), WARP_ERROR_INVALID_ARGUMENT, NULL);
    batch[0] = batch[1] = request;
    CALL_REFUSED(warp_copy_run_batch(NULL, sizeof *batch, 2, NULL, &bad), WARP_ERROR_INVALID_ARGUMENT, "NULL");
    CHECK_EQ_U64(bad, 2);
    CALL_REFUSED(warp_copy_run_batch(batch, 0, 2, NULL, &bad), WARP_ERROR_INVALID_ARGUMENT, "stride");
    CALL_REFUSED(warp_copy_run_batch(batch, 4, 2, NULL, &bad), WARP_ERROR_INVALID_ARGUMENT, "stride");
    CALL_REFUSED(warp_copy_run_batch(batch, sizeof *batch, SIZE_MAX, NULL, &bad), WARP_ERROR_INVALID_ARGUMENT, NULL);
    CALL_REFUSED(warp_copy_run_batch(batch, SIZE_MAX, 2, NULL, &bad), WARP_ERROR_INVALID_ARGUMENT, NULL);
    /* Requests that overlap would be one struct in the other. */
    CALL_REFUSED(warp_copy_run_batch(batch, sizeof *batch / 2, 2, NULL, &bad), WARP_ERROR_INVALID_ARGUMENT, NULL);
    release_indexed(indexed);
    release(by);
    release(dest);
    release(src);
    finish();
}

TEST(struct_sizes)
{
    static const size_t sizes[] = {0, 1, 7, 8, sizeof(warp_copy_request) - 1, SIZE_MAX};
    struct {
        warp_copy_request known;
        char later[32];
    } request, both[2];
    struct {
        warp_copy_info known;
        char later[32];
    } info;
    size_t i, bad = 9;
    begin();
    for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        request.known = bytes(place[GPU_A], place[GPU_B], 16);
        request.known.struct_size = sizes[i];
        CALL_REFUSED(warp_copy_run(&request.known, NULL), WARP_ERROR_INVALID_ARGUMENT, "struct_size");
        info.known.struct_size = sizeof info.known;
        CALL_REFUSED(warp_copy_get_path(&request.known, NULL, &info.known), WARP_ERROR_INVALID_ARGUMENT, "struct_size");
        memset(both, 0, sizeof both);
        both[0].known = bytes(place[GPU_A], place[GPU_B], 16);
        both[1].known = request.known;
        CALL_REFUSED(warp_copy_run_batch(&both[0].known, sizeof *both, 2, NULL, &bad), WARP_ERROR_INVALID_ARGUMENT, "struct_size");
        CHECK_EQ_U64(bad, 1);
        if (sizes[i] > sizeof info.known)
            continue;
        request.known.struct_size = sizeof request.known;
        info.known.struct_size = sizes[i] < sizeof info.known ? sizes[i] : 1;
        CALL_REFUSED(warp_copy_get_path(&request.known, NULL, &info.known), WARP_ERROR_INVALID_ARGUMENT, "struct_size");
    }
    /* Of a newer caller: a tail of zeros says nothing, another tail is more than is understood. */
    memset(&request, 0, sizeof request);
    request.known = bytes(place[GPU_A], place[GPU_A], 16);
    request.known.struct_size = sizeof request;
    CHECK_STATUS(warp_copy_run(&request.known, NULL), WARP_SUCCESS);
    request.later[31] = 1;
    CALL_REFUSED(warp_copy_run(&request.known, NULL), WARP_ERROR_NOT_SUPPORTED, "fields beyond");
    request.later[31] = 0;
    memset(&info, 0xff, sizeof info);
    info.known.struct_size = sizeof info;
    CHECK_STATUS(warp_copy_get_path(&request.known, NULL, &info.known), WARP_SUCCESS);
    finish();
}

TEST(handles_that_are_none)
{
    const int32_t good[2] = {1, 0};
    warp_array *dest, *src, *by, *stale, *made;
    warp_indexed_array *indexed, *stale_indexed;
    void *wrong[8];
    size_t i;
    const uint32_t value = 1;
    begin();
    dest = line_in(GPU_A, 4, 2);
    src = line_in(GPU_B, 4, 2);
    by = numbers(GPU_B, 512, good, 2);
    indexed = picked(src, by);
    stale = line_in(GPU_B, 4, 2);
    stale_indexed = picked(src, by);
    release(stale);
    release_indexed(stale_indexed);
    wrong[0] = stale;
    wrong[1] = gpu(0);
    wrong[2] = stream_of(gpu(0));
    wrong[3] = place[GPU_B];
    wrong[4] = (void *)(uintptr_t)1;
    wrong[5] = (void *)UINTPTR_MAX;
    wrong[6] = stale_indexed;
    wrong[7] = &wrong[0];
    for (i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
        warp_copy_request request;
        REFUSED(arrays(wrong[i], src, 0, 0, 0), NULL, WARP_ERROR_INVALID_HANDLE, NULL);
        REFUSED(arrays(dest, wrong[i], 0, 0, 0), NULL, WARP_ERROR_INVALID_HANDLE, NULL);
        request = arrays(dest, NULL, 0, 0, 0);
        request.src_indexed = wrong[i];
        REFUSED(request, NULL, WARP_ERROR_INVALID_HANDLE, NULL);
        request = arrays(NULL, src, 0, 0, 0);
        request.dest_indexed = wrong[i];
        REFUSED(request, NULL, WARP_ERROR_INVALID_HANDLE, NULL);
        CALL_REFUSED(warp_array_copy(wrong[i], src, 0, 0, 0, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
        CALL_REFUSED(warp_array_copy(dest, wrong[i], 0, 0, 0, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
        CALL_REFUSED(warp_indexed_array_gather(dest, wrong[i], NULL), WARP_ERROR_INVALID_HANDLE, NULL);
        CALL_REFUSED(warp_indexed_array_gather(wrong[i], indexed, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
        CALL_REFUSED(warp_indexed_array_scatter(wrong[i], src, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
        CALL_REFUSED(warp_indexed_array_scatter(indexed, wrong[i], NULL), WARP_ERROR_INVALID_HANDLE, NULL);
        CALL_REFUSED(warp_indexed_array_copy(indexed, wrong[i], NULL), WARP_ERROR_INVALID_HANDLE, NULL);
        CALL_REFUSED(warp_indexed_array_copy(wrong[i], indexed, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
        CALL_REFUSED(warp_indexed_array_fill(wrong[i], &value, 4, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
        made = (warp_array *)1;
        CALL_REFUSED(warp_indexed_array_clone(wrong[i], NULL, NULL, &made), WARP_ERROR_INVALID_HANDLE, NULL);
        CHECK_EQ_PTR(made, NULL);
        made = (warp_array *)1;
        CALL_REFUSED(warp_array_to_device(wrong[i], gpu(1), NULL, &made), WARP_ERROR_INVALID_HANDLE, NULL);
        CHECK_EQ_PTR(made, NULL);
        made = (warp_array *)1;
        CALL_REFUSED(warp_array_contiguous(wrong[i], NULL, &made), WARP_ERROR_INVALID_HANDLE, NULL);
        CHECK_EQ_PTR(made, NULL);
    }
    /* An indexed array is no array, and the other way round. */
    CALL_REFUSED(warp_array_copy((warp_array *)indexed, src, 0, 0, 0, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
    CALL_REFUSED(warp_indexed_array_gather(dest, (warp_indexed_array *)src, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
    /* NULL is no array either; where something could be made of it, it is said what. */
    CALL_REFUSED(warp_array_copy(NULL, src, 0, 0, 0, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
    CALL_REFUSED(warp_array_copy(dest, NULL, 0, 0, 0, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
    CALL_REFUSED(warp_indexed_array_gather(NULL, indexed, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
    CALL_REFUSED(warp_indexed_array_scatter(indexed, NULL, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
    CALL_REFUSED(warp_indexed_array_copy(NULL, indexed, NULL), WARP_ERROR_INVALID_HANDLE, NULL);
    CALL_REFUSED(warp_indexed_array_fill(indexed, NULL, 4, NULL), WARP_ERROR_INVALID_ARGUMENT, "NULL");
    CALL_REFUSED(warp_indexed_array_fill(indexed, &value, 3, NULL), WARP_ERROR_SIZE_MISMATCH, "4");
    CALL_REFUSED(warp_indexed_array_clone(indexed, NULL, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT, NULL);
    CALL_REFUSED(warp_array_to_device(src, gpu(1), NULL, NULL), WARP_ERROR_INVALID_ARGUMENT, NULL);
    CALL_REFUSED(warp_array_contiguous(src, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT, NULL);
    made = (warp_array *)1;
    CALL_REFUSED(warp_array_to_device(src, (warp_device *)src, NULL, &made), WARP_ERROR_INVALID_HANDLE, NULL);
    CHECK_EQ_PTR(made, NULL);
    release_indexed(indexed);
    release(by);
    release(dest);
    release(src);
    finish();
}

TEST(streams_that_do_not_fit)
{
    const int64_t shape[2] = {3, 4}, strides[2] = {64, 8};
    warp_stream *stale, *of_cpu = NULL, *near, *far_away;
    warp_array *dest, *src, *host, *host_too;
    warp_copy_request request;
    begin();
    stale = new_stream(gpu(0), 0);
    CHECK_STATUS(warp_stream_release(stale), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_current(cpu(), &of_cpu), WARP_SUCCESS);
    near = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    far_away = new_stream(gpu(1), WARP_STREAM_NON_BLOCKING);
    dest = array_in(GPU_A, 0, 4, 2, shape, strides);
    src = array_in(GPU_B, 0, 4, 2, shape, NULL);
    host = array_in(HOST_A, 0, 4, 2, shape, strides);
    host_too = array_in(PINNED, 0, 4, 2, shape, NULL);
    {
        warp_stream *none[] = {stale, (warp_stream *)gpu(0), (warp_stream *)src, (warp_stream *)(uintptr_t)1, (warp_stream *)UINTPTR_MAX};
        size_t i, bad = 9;
        for (i = 0; i < sizeof none / sizeof *none; ++i) {
            warp_copy_info info = {0};
            info.struct_size = sizeof info;
            request = arrays(dest, src, 0, 0, 0);
            CALL_REFUSED(warp_copy_run(&request, none[i]), WARP_ERROR_INVALID_HANDLE, NULL);
            CALL_REFUSED(warp_copy_get_path(&request, none[i], &info), WARP_ERROR_INVALID_HANDLE, NULL);
            /* It is none of the requests. */
            CALL_REFUSED(warp_copy_run_batch(&request, sizeof request, 1, none[i], &bad), WARP_ERROR_INVALID_HANDLE, NULL);
            CHECK_EQ_U64(bad, 1);
            CALL_REFUSED(warp_array_copy(host, host_too, 0, 0, 0, none[i]), WARP_ERROR_INVALID_HANDLE, NULL);
            CALL_REFUSED(warp_array_fill(dest, "four", 4, none[i]), WARP_ERROR_INVALID_HANDLE, NULL);
        }
    }
    /* A stream of the CPU for memory of a GPU. */
    request = arrays(dest, src, 0, 0, 0);
    CALL_REFUSED(warp_copy_run(&request, of_cpu), WARP_ERROR_INVALID_ARGUMENT, "stream of the CPU");
    CALL_REFUSED(warp_array_copy(dest, host, 0, 0, 0, of_cpu), WARP_ERROR_INVALID_ARGUMENT, "stream of the CPU");
    CALL_REFUSED(warp_array_copy(host, src, 0, 0, 0, of_cpu), WARP_ERROR_INVALID_ARGUMENT, "stream of the CPU");
    /* A stream of a GPU for memory of the host. */
    CALL_REFUSED(warp_array_copy(host, host_too, 0, 0, 0, near), WARP_ERROR_INVALID_ARGUMENT, "pass no stream");
    CALL_REFUSED(warp_memory_copy(place[HOST_A], place[PINNED], 8, near), WARP_ERROR_INVALID_ARGUMENT, "pass no stream");
    /* A stream of a GPU that has no part in it. */
    CALL_REFUSED(warp_array_copy(dest, src, 0, 0, 0, far_away), WARP_ERROR_INVALID_ARGUMENT, "\"cuda:1\"");
    CALL_REFUSED(warp_array_copy(dest, host, 0, 0, 0, far_away), WARP_ERROR_INVALID_ARGUMENT, "\"cuda:0\"");
    CALL_REFUSED(warp_array_copy(host_too, src, 0, 0, 0, far_away), WARP_ERROR_INVALID_ARGUMENT, "\"cuda:0\"");
    is_asked_there = 1;
    CALL_REFUSED(warp_array_fill(dest, "four", 4, far_away), WARP_ERROR_ACCESS_DENIED, "pass a stream of that device");
    is_asked_there = 0;
    /* Of a batch all have to fit. */
    {
        warp_copy_request batch[2];
        size_t bad = 9;
        batch[0] = arrays(dest, src, 0, 0, 0);
        batch[1] = arrays(host, host_too, 0, 0, 0);
        CALL_REFUSED(warp_copy_run_batch(batch, sizeof *batch, 2, near, &bad), WARP_ERROR_INVALID_ARGUMENT, "pass no stream");
        CHECK_EQ_U64(bad, 1);
        batch[1] = batch[0];
        batch[0] = bytes(place[FAR_AWAY], place[GPU_A], 1);
        CALL_REFUSED(warp_copy_run_batch(batch, sizeof *batch, 2, far_away, &bad), WARP_ERROR_INVALID_ARGUMENT, "\"cuda:1\"");
        CHECK_EQ_U64(bad, 1);
    }
    release(dest);
    release(src);
    release(host);
    release(host_too);
    CHECK_STATUS(warp_stream_release(near), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(far_away), WARP_SUCCESS);
    finish();
}

/* Memory that is gone is not touched by any way. */
TEST(memory_that_was_freed)
{
    const int64_t two = 2;
    /* What the allocator of the process gave back is that one's; all else is known to be gone. */
    static const warp_memory_kind kinds[] = {WARP_MEMORY_PINNED, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL};
    size_t i;
    begin();
    for (i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        warp_device *on = i == 0 ? cpu() : gpu(0);
        void *block = block_of(on, 256, kinds[i]);
        warp_array *gone = NULL, *made = (warp_array *)1, *here = line_in(HOST_A, 4, 2), *there = line_in(GPU_A, 4, 2);
        CHECK_STATUS(warp_array_wrap(on, block, warp_dtype_make(WARP_DTYPE_INT, 32), 1, &two, NULL, &gone), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        CALL_REFUSED(warp_array_copy(gone, here, 0, 0, 0, NULL), WARP_ERROR_UNKNOWN_POINTER, "freed");
        CALL_REFUSED(warp_array_copy(here, gone, 0, 0, 0, NULL), WARP_ERROR_UNKNOWN_POINTER, "freed");
        CALL_REFUSED(warp_array_copy(there, gone, 0, 0, 0, NULL), WARP_ERROR_UNKNOWN_POINTER, "freed");
        CHECK_STATUS(warp_array_clone(gone, gpu(0), NULL, &made), WARP_ERROR_UNKNOWN_POINTER);
        CHECK_EQ_PTR(made, NULL);
        made = (warp_array *)1;
        CHECK_STATUS(warp_array_to_device(gone, gpu(1), NULL, &made), WARP_ERROR_UNKNOWN_POINTER);
        CHECK_EQ_PTR(made, NULL);
        release(gone);
        release(here);
        release(there);
    }
    finish();
}

CHECK_MAIN()
