/*
 * copy_refused.h: what the tests of copies that cannot be share: places of every kind whose bytes are known, and calls that are
 * refused with a status and words, and that change nothing and ask nobody.
 */
#ifndef WARPMEM_TESTS_COPY_REFUSED_H
#define WARPMEM_TESTS_COPY_REFUSED_H

#include "blocks.h"

#define SIZE 4096u
#define NO_STREAM ((warp_stream *)NULL)

/* Memory that everything below is made of, with what it holds. */
enum { HOST_A, HOST_B, PINNED, GPU_A, GPU_B, FAR_AWAY, MALLOC, PLACES };
static unsigned char *place[PLACES], held[PLACES][SIZE];
static warp_device *owner[PLACES];

/* Numbers of index arrays are looked at, and access is asked about, where the call would be made: there it is asked whether a
 * stream is captured. */
UNUSED int is_asked_there;

UNUSED uint64_t looks(void)
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

UNUSED void look(int which, unsigned char *bytes)
{
    if (owner[which] == cpu())
        memcpy(bytes, place[which], SIZE);
    else
        CHECK_EQ_U64(SIMULATOR(warpsim_peek)((uint64_t)(uintptr_t)place[which], bytes, SIZE), 0);
}

UNUSED int nothing_changed(void)
{
    unsigned char bytes[SIZE];
    int which, same = 1;
    for (which = 0; which < PLACES; ++which) {
        look(which, bytes);
        same &= memcmp(bytes, held[which], SIZE) == 0;
    }
    return same;
}

UNUSED void take_note(void)
{
    int which;
    for (which = 0; which < PLACES; ++which)
        look(which, held[which]);
}

UNUSED void begin(void)
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

UNUSED void finish(void)
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
UNUSED warp_array *array_in(int which, uint32_t at, uint32_t item, int32_t rank, const int64_t *shape, const int64_t *strides)
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

UNUSED warp_array *line_in(int which, uint32_t item, int64_t count)
{
    return array_in(which, 0, item, 1, &count, NULL);
}

/* Items of 4 bytes, 16 apart. */
UNUSED warp_array *gaps_in(int which, int64_t count)
{
    const int64_t stride = 16;
    return array_in(which, 0, 4, 1, &count, &stride);
}

UNUSED warp_array *numbers(int which, uint32_t at, const int32_t *values, int64_t count)
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
UNUSED warp_indexed_array *picked(warp_array *data, warp_array *by)
{
    const warp_array *indices[1] = {by};
    warp_indexed_array *indexed = NULL;
    CHECK_STATUS(warp_indexed_array_create(data, indices, 1, &indexed), WARP_SUCCESS);
    return indexed;
}

UNUSED void release(warp_array *array)
{
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
}

UNUSED void release_indexed(warp_indexed_array *indexed)
{
    CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
}

UNUSED warp_copy_request bytes(void *dest, const void *src, uint64_t size)
{
    warp_copy_request request = {0};
    request.struct_size = sizeof request;
    request.dest = dest;
    request.src = src;
    request.size = size;
    return request;
}

UNUSED warp_copy_request arrays(warp_array *dest, const warp_array *src, uint64_t dest_offset, uint64_t src_offset, uint64_t count)
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

UNUSED void check_refusal(warp_status got, warp_status status, const char *words, uint64_t before, const char *by, int line)
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
UNUSED void refused_at(const warp_copy_request *request, warp_stream *stream, warp_status status, const char *words, int line)
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

#endif
