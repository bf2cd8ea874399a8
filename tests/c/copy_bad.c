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
#include "blocks.h"

#define SIZE 4096u
#define NO_STREAM ((warp_stream *)NULL)

/* Memory that everything below is made of, with what it holds. */
enum { HOST_A, HOST_B, PINNED, GPU_A, GPU_B, FAR_AWAY, MALLOC, PLACES };
static unsigned char *place[PLACES], held[PLACES][SIZE];
static warp_device *owner[PLACES];

/* Numbers of index arrays are looked at, and access is asked about, where the call would be made: there it is asked whether a
 * stream is captured. */
static int is_asked_there;

static uint64_t looks(void)
{
    /* Whether a context still is what it was may be asked at any time, and what an address is that nobody made. */
    static const char *const questions[] = {"cuCtxGetId", "cuPointerGetAttributes", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuStreamIsCapturing",
                                            "cuThreadExchangeStreamCaptureMode", "cuPointerGetAttribute", "cuMemPoolGetAccess", "cuEventQuery"};
    uint64_t count = calls("*");
    size_t i;
    for (i = 0; i < (is_asked_there ? sizeof questions / sizeof *questions : 2); ++i)
        count -= calls(questions[i]);
    return count;
}

static void look(int which, unsigned char *bytes)
{
    if (owner[which] == cpu())
        memcpy(bytes, place[which], SIZE);
    else
        CHECK_EQ_U64(SIMULATOR(warpsim_peek)((uint64_t)(uintptr_t)place[which], bytes, SIZE), 0);
}

static int nothing_changed(void)
{
    unsigned char bytes[SIZE];
    int which, same = 1;
    for (which = 0; which < PLACES; ++which) {
        look(which, bytes);
        same &= memcmp(bytes, held[which], SIZE) == 0;
    }
    return same;
}

static void take_note(void)
{
    int which;
    for (which = 0; which < PLACES; ++which)
        look(which, held[which]);
}

static void begin(void)
{
    int which;
    REQUIRE(start());
    for (which = 0; which < PLACES; ++which)
        owner[which] = which == GPU_A || which == GPU_B ? gpu(0) : which == FAR_AWAY ? gpu(1) : cpu();
    place[HOST_A] = block_of(cpu(), SIZE, WARP_MEMORY_HOST);
    place[HOST_B] = block_of(cpu(), SIZE, WARP_MEMORY_HOST);
    place[PINNED] = block_of(cpu(), SIZE, WARP_MEMORY_PINNED);
    place[GPU_A] = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE);
    place[GPU_B] = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_MEMPOOL);
    place[FAR_AWAY] = block_of(gpu(1), SIZE, WARP_MEMORY_CUDA_DEVICE);
    place[MALLOC] = malloc(SIZE);
    for (which = 0; which < PLACES; ++which)
        put_pattern(place[which], SIZE, (uint64_t)which + 1);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
    take_note();
}

static void finish(void)
{
    int which;
    CHECK(nothing_changed());
    for (which = 0; which < PLACES; ++which)
        if (which == MALLOC)
            free(place[which]);
        else
            CHECK_STATUS(warp_free(place[which]), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

/* An array of so many items along each of up to three dimensions (0: no more of them). */
static warp_array *array_in(int which, uint32_t at, uint32_t item, int32_t rank, const int64_t *shape, const int64_t *strides)
{
    warp_dtype dtype = {WARP_DTYPE_OPAQUE, 0, 0, 0};
    warp_array_wrap_options options = {0};
    warp_array *array = NULL;
    dtype.item_size = item;
    options.struct_size = sizeof options;
    options.strides = strides;
    CHECK_STATUS(warp_array_wrap(owner[which], place[which] + at, dtype, rank, shape, &options, &array), WARP_SUCCESS);
    return array;
}

static warp_array *line_in(int which, uint32_t item, int64_t count)
{
    return array_in(which, 0, item, 1, &count, NULL);
}

/* Items of 4 bytes, 16 apart. */
static warp_array *gaps_in(int which, int64_t count)
{
    const int64_t stride = 16;
    return array_in(which, 0, 4, 1, &count, &stride);
}

static warp_array *numbers(int which, uint32_t at, const int32_t *values, int64_t count)
{
    warp_array *array = NULL;
    CHECK_STATUS(warp_memory_copy(place[which] + at, values, (uint64_t)count * 4, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    take_note();
    CHECK_STATUS(warp_array_wrap(owner[which], place[which] + at, warp_dtype_make(WARP_DTYPE_INT, 32), 1, &count, NULL, &array),
                 WARP_SUCCESS);
    return array;
}

/* The items of a line that the numbers name. */
static warp_indexed_array *picked(warp_array *data, warp_array *by)
{
    const warp_array *indices[1] = {by};
    warp_indexed_array *indexed = NULL;
    CHECK_STATUS(warp_indexed_array_create(data, indices, 1, &indexed), WARP_SUCCESS);
    return indexed;
}

static void release(warp_array *array)
{
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
}

static void release_indexed(warp_indexed_array *indexed)
{
    CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
}

static warp_copy_request bytes(void *dest, const void *src, uint64_t size)
{
    warp_copy_request request = {0};
    request.struct_size = sizeof request;
    request.dest = dest;
    request.src = src;
    request.size = size;
    return request;
}

static warp_copy_request arrays(warp_array *dest, const warp_array *src, uint64_t dest_offset, uint64_t src_offset, uint64_t count)
{
    warp_copy_request request = {0};
    request.struct_size = sizeof request;
    request.dest_array = dest;
    request.src_array = src;
    request.dest_offset = dest_offset;
    request.src_offset = src_offset;
    request.count = count;
    return request;
}

static void check_refusal(warp_status got, warp_status status, const char *words, uint64_t before, const char *by, int line)
{
    const char *message = warp_error_get_message();
    int failures = check_failure_count();
    CHECK_STATUS(got, status);
    if (words != NULL)
        CHECK_STR_CONTAINS(message, words);
    /* A sentence, not a word. */
    CHECK(message != NULL && strlen(message) > 20);
    CHECK_EQ_U64(looks(), before);
    CHECK(nothing_changed());
    if (check_failure_count() != failures)
        printf("\n      by %s, for line %d: %s", by, line, message != NULL ? message : "");
}

/* Refused whoever is asked, and in a batch between two that are good. */
static void refused_at(const warp_copy_request *request, warp_stream *stream, warp_status status, const char *words, int line)
{
    warp_copy_info info;
    warp_copy_request batch[3];
    uint64_t before = looks();
    size_t bad;
    const char *one = "a";
    warp_status got;
    memset(&info, 0xff, sizeof info);
    info.struct_size = sizeof info;
    got = warp_copy_get_path(request, stream, &info);
    check_refusal(got, status, words, before, "warp_copy_get_path", line);
    CHECK(info.path == 0 && info.size == 0 && info.device == NULL && info.staging == 0 && info.is_async == 0);
    got = warp_copy_run(request, stream);
    check_refusal(got, status, words, before, "warp_copy_run", line);
    /* The good ones go from where nothing else is looked at to where everything is. */
    for (bad = 0; request != NULL && bad < 3; ++bad) {
        size_t out = 99, i;
        for (i = 0; i < 3; ++i)
            batch[i] = i == bad ? *request : bytes(stream == NO_STREAM ? place[HOST_A] : place[GPU_A], one, 1);
        got = warp_copy_run_batch(batch, sizeof batch[0], 3, stream, &out);
        check_refusal(got, status, words, before, "warp_copy_run_batch", line);
        CHECK_EQ_U64(out, bad);
    }
}

#define REFUSED(request, stream, status, words)                        \
    do {                                                               \
        const warp_copy_request request_ = (request);                  \
        refused_at(&request_, (stream), (status), (words), __LINE__);  \
    } while (0)

/* A single call that is refused. */
#define CALL_REFUSED(call, status, words)                                       \
    do {                                                                        \
        uint64_t before_ = looks();                                             \
        warp_status got_ = (call);                                              \
        check_refusal(got_, (status), (words), before_, #call, __LINE__);       \
    } while (0)

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

/* Numbers in memory of the host are looked at before anything is written. */
TEST(numbers_that_lead_out_of_their_data)
{
    static const int32_t bad_ones[] = {-1, 6, 7, INT32_MAX, INT32_MIN, -6};
    static const int at_places[] = {0, 3, 7};
    static const int others[] = {HOST_B, GPU_A, PINNED, FAR_AWAY};
    size_t b, p, o, in;
    begin();
    is_asked_there = 1;
    for (in = 0; in < 2; ++in)
        for (b = 0; b < sizeof bad_ones / sizeof *bad_ones; ++b)
            for (p = 0; p < 3; ++p) {
                int32_t values[8] = {5, 4, 3, 2, 1, 0, 5, 2}, apart[8] = {0, 1, 2, 3, 4, 5, 5, 5};
                warp_array *by, *data = gaps_in(HOST_A, 6);
                warp_indexed_array *indexed;
                char said[32];
                values[at_places[p]] = apart[at_places[p]] = bad_ones[b];
                by = numbers(in ? PINNED : HOST_B, 2048, values, 8);
                indexed = picked(data, by);
                snprintf(said, sizeof said, "%d", bad_ones[b]);
                for (o = 0; o < sizeof others / sizeof *others; ++o) {
                    warp_array *line = line_in(others[o], 4, 8), *made = (warp_array *)1;
                    warp_copy_request request = arrays(line, NULL, 0, 0, 0);
                    request.src_indexed = indexed;
                    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, said);
                    CHECK_STR_CONTAINS(warp_error_get_message(), "6");
                    CALL_REFUSED(warp_indexed_array_gather(line, indexed, NULL), WARP_ERROR_INVALID_ARGUMENT, said);
                    CALL_REFUSED(warp_indexed_array_scatter(indexed, line, NULL), WARP_ERROR_INVALID_ARGUMENT, said);
                    made = (warp_array *)1;
                    CHECK_STATUS(warp_indexed_array_clone(indexed, owner[others[o]], NULL, &made), WARP_ERROR_INVALID_ARGUMENT);
                    CHECK_EQ_PTR(made, NULL);
                    CHECK(nothing_changed());
                    release(line);
                }
                CALL_REFUSED(warp_indexed_array_fill(indexed, "four", 4, NULL), WARP_ERROR_INVALID_ARGUMENT, said);
                release_indexed(indexed);
                release(by);
                release(data);
            }
    is_asked_there = 0;
    finish();
}

/* Numbers in memory of a GPU are its kernel's to look at: it leaves out what leads out, and touches nothing there. */
TEST(a_gpu_leaves_out_what_leads_out_of_the_data)
{
    const int32_t values[8] = {5, -1, 3, 6, 1, INT32_MAX, 5, INT32_MIN}, apart[8] = {5, -1, 3, 6, 1, INT32_MAX, 0, INT32_MIN};
    unsigned char now[SIZE], expected[SIZE];
    size_t way, i;
    begin();
    for (way = 0; way < 3; ++way) {
        warp_array *by = numbers(GPU_B, 2048, way == 0 ? values : apart, 8), *data = array_in(GPU_A, 1024, 4, 1, (const int64_t[]){6}, (const int64_t[]){16});
        warp_array *line = line_in(GPU_B, 4, 8);
        warp_indexed_array *indexed = picked(data, by);
        int dest = way == 0 ? GPU_B : GPU_A;
        memcpy(expected, held[dest], SIZE);
        for (i = 0; i < 8; ++i) {
            int32_t number = way == 0 ? values[i] : apart[i];
            if (number < 0 || number > 5)
                continue;
            if (way == 0)
                memcpy(expected + 4 * i, held[GPU_A] + 1024 + 16 * number, 4);
            else
                memcpy(expected + 1024 + 16 * number, way == 1 ? (const char *)held[GPU_B] + 4 * i : "four", 4);
        }
        if (way == 0)
            CHECK_STATUS(warp_indexed_array_gather(line, indexed, NULL), WARP_SUCCESS);
        else if (way == 1)
            CHECK_STATUS(warp_indexed_array_scatter(indexed, line, NULL), WARP_SUCCESS);
        else
            CHECK_STATUS(warp_indexed_array_fill(indexed, "four", 4, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        look(dest, now);
        CHECK(memcmp(now, expected, SIZE) == 0);
        memcpy(held[dest], expected, SIZE);
        CHECK(nothing_changed());
        CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
        take_note();
        release_indexed(indexed);
        release(by);
        release(data);
        release(line);
    }
    finish();
}

TEST(numbers_that_the_copy_itself_writes)
{
    const int32_t good[4] = {0, 1, 2, 3};
    static const int where[] = {HOST_A, GPU_A};
    size_t i;
    begin();
    for (i = 0; i < 2; ++i) {
        warp_array *by = numbers(where[i], 64, good, 4), *data = array_in(where[i], 2048, 4, 1, (const int64_t[]){4}, NULL);
        warp_array *over = array_in(where[i], 60, 4, 1, (const int64_t[]){4}, NULL);
        warp_indexed_array *indexed = picked(data, by);
        CALL_REFUSED(warp_indexed_array_gather(over, indexed, NULL), WARP_ERROR_INVALID_ARGUMENT, "index array");
        release_indexed(indexed);
        indexed = picked(over, by);
        CALL_REFUSED(warp_indexed_array_scatter(indexed, data, NULL), WARP_ERROR_INVALID_ARGUMENT, "index array");
        release_indexed(indexed);
        release(over);
        release(by);
        release(data);
    }
    finish();
}

TEST(shapes_of_index_arrays_count)
{
    const int32_t good[3] = {0, 1, 2};
    warp_array *by, *data, *four, *three, *eight;
    warp_indexed_array *indexed;
    begin();
    by = numbers(HOST_B, 64, good, 3);
    data = line_in(HOST_A, 4, 8);
    indexed = picked(data, by);
    three = line_in(HOST_B, 4, 3);
    four = line_in(HOST_B, 4, 4);
    eight = line_in(HOST_B, 8, 3);
    CALL_REFUSED(warp_indexed_array_gather(four, indexed, NULL), WARP_ERROR_SIZE_MISMATCH, "Incompatible array shapes");
    CALL_REFUSED(warp_indexed_array_scatter(indexed, four, NULL), WARP_ERROR_SIZE_MISMATCH, "Incompatible array shapes");
    CALL_REFUSED(warp_indexed_array_gather(eight, indexed, NULL), WARP_ERROR_SIZE_MISMATCH, "Incompatible array data types");
    CALL_REFUSED(warp_indexed_array_gather(data, indexed, NULL), WARP_ERROR_SIZE_MISMATCH, "Incompatible array shapes");
    release(eight);
    release(four);
    release(three);
    release_indexed(indexed);
    release(by);
    release(data);
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

/* Calls of the driver that fail leave no temporary memory behind, and the next copy is right. */
TEST(copies_that_fail_half_way_leave_nothing)
{
    static const char *const entries[] = {"cuLaunchKernel", "cuMemcpyAsync", "cuMemcpyPeerAsync", "cuMemcpy2DAsync_v2", "cuMemAllocFromPoolAsync",
                                          "cuMemAllocAsync", "cuMemAlloc_v2", "cuEventRecord", "cuStreamWaitEvent", "cuModuleLoadData",
                                          "cuModuleLoadDataEx", "cuModuleGetFunction", "cuCtxSetCurrent", "cuStreamIsCapturing",
                                          "cuPointerGetAttributes", "cuEventCreate", "cuMemHostAlloc"};
    static const int pairs[][2] = {{GPU_A, GPU_B}, {GPU_A, HOST_B}, {HOST_A, GPU_B}, {FAR_AWAY, GPU_B}, {GPU_A, FAR_AWAY}, {GPU_A, PINNED}};
    const int64_t shape[2] = {5, 6}, to_strides[2] = {40, 5}, from_strides[2] = {4, 24};
    size_t e, i;
    uint64_t met = 0, nth;
    begin();
    for (i = 0; i < sizeof pairs / sizeof *pairs; ++i) {
        warp_array *dest = array_in(pairs[i][0], 3, 4, 2, shape, to_strides), *src = array_in(pairs[i][1], 1, 4, 2, shape, from_strides);
        for (e = 0; e < sizeof entries / sizeof *entries; ++e)
            for (nth = 1; nth < 6; ++nth) {
                warp_statistics before = statistics_of(gpu(0), WARP_MEMORY_UNKNOWN), far_before = statistics_of(gpu(1), WARP_MEMORY_UNKNOWN), after;
                int failures = check_failure_count(), r, c;
                unsigned char now[SIZE];
                warp_status status;
                SIMULATOR(warpsim_log_clear)();
                SIMULATOR(warpsim_fail)(entries[e], nth, 999);
                status = warp_array_copy(dest, src, 0, 0, 0, NULL);
                met += (uint64_t)SIMULATOR(warpsim_log_contains)("planned");
                if (status != WARP_SUCCESS)
                    CHECK(strlen(warp_error_get_message()) > 20);
                SIMULATOR(warpsim_fail_clear)();
                /* What is put back by the call that fails is not. */
                if (strcmp(entries[e], "cuCtxSetCurrent") != 0)
                    CHECK_EQ_PTR(driver_current(), NULL);
                SIMULATOR(cuCtxSetCurrent)(NULL);
                CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
                CHECK_STATUS(warp_array_copy(dest, src, 0, 0, 0, NULL), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(gpu(1)), WARP_SUCCESS);
                for (r = 0; r < 5; ++r)
                    for (c = 0; c < 6; ++c)
                        memcpy(held[pairs[i][0]] + 3 + 40 * r + 5 * c, held[pairs[i][1]] + 1 + 4 * r + 24 * c, 4);
                look(pairs[i][0], now);
                CHECK(memcmp(now, held[pairs[i][0]], SIZE) == 0);
                after = statistics_of(gpu(0), WARP_MEMORY_UNKNOWN);
                CHECK_EQ_U64(after.live_blocks, before.live_blocks);
                after = statistics_of(gpu(1), WARP_MEMORY_UNKNOWN);
                CHECK_EQ_U64(after.live_blocks, far_before.live_blocks);
                if (check_failure_count() != failures)
                    printf("\n      call %" PRIu64 " of %s, from place %d to %d", nth, entries[e], pairs[i][1], pairs[i][0]);
                if (check_failure_count() > 20)
                    return;
            }
        release(dest);
        release(src);
    }
    CHECK(met > 50);
    finish();
}

CHECK_MAIN()
