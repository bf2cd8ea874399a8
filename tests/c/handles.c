/*
 * handles.c: what every function does with what is wrong: handles that are none, outputs that are NULL, structs of other
 * sizes, unknown numbers, calls before the start and after the end; and handles under many threads.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "devices.h"
#include "driver.h"
#include "process.h"

#include <pthread.h>
#include <time.h>
#include <warpmem.h>

/* ---- Calls at the wrong time ---------------------------------------------------------------------------------------------- */

/* Everything that needs a started library, with outputs that are not zero. */
static void must_not_be_called(void *user)
{
    (void)user;
    CHECK(0);
}

static void check_all_refuse(warp_status status)
{
    size_t count = 9;
    uint64_t available = 9, total = 9;
    uint8_t byte = 9;
    void *block = (void *)1;
    char text[8] = "x";
    warp_device *found = (warp_device *)1;
    warp_stream *stream = (warp_stream *)1;
    warp_device_info device_info;
    warp_stream_info stream_info;
    warp_event *event = (warp_event *)1;
    warp_event_info event_info = {.struct_size = sizeof event_info, .flags = 9};
    warp_scope *scope = (warp_scope *)1;
    warp_indexed_array *indexed = (warp_indexed_array *)1;
    warp_indexed_array_info indexed_info = {.struct_size = sizeof indexed_info, .count = 9};
    warp_array *array = (warp_array *)1;
    float milliseconds = 9;
    warp_pointer_info where;
    warp_statistics counts;
    memset(&device_info, 0xff, sizeof device_info);
    memset(&stream_info, 0xff, sizeof stream_info);
    memset(&where, 0xff, sizeof where);
    memset(&counts, 0xff, sizeof counts);
    device_info.struct_size = sizeof device_info;
    stream_info.struct_size = sizeof stream_info;
    where.struct_size = sizeof where;
    counts.struct_size = sizeof counts;

    CHECK_STATUS(warp_library_get_report(text, sizeof text, &count), status);
    CHECK_EQ_U64(count, 0);
    count = 9;
    CHECK_STATUS(warp_device_get_count(&count), status);
    CHECK_EQ_U64(count, 0);
    count = 9;
    CHECK_STATUS(warp_device_get_cuda_count(&count), status);
    CHECK_EQ_U64(count, 0);
#define REFUSED_DEVICE(call)         \
    found = (warp_device *)1;        \
    CHECK_STATUS(call, status);      \
    CHECK_EQ_PTR(found, NULL)
    REFUSED_DEVICE(warp_device_get_at(0, &found));
    REFUSED_DEVICE(warp_device_get("cpu", &found));
    REFUSED_DEVICE(warp_device_get(NULL, &found));
    REFUSED_DEVICE(warp_device_get("cuda", &found));
    REFUSED_DEVICE(warp_device_get_default(&found));
    REFUSED_DEVICE(warp_device_get_for_thread(&found));
    REFUSED_DEVICE(warp_device_from_context(&count, NULL, &found));
    CHECK_STATUS(warp_device_set_default(NULL), status);
    CHECK_STATUS(warp_device_set_for_thread(NULL), status);
    CHECK_STATUS(warp_device_get_info(NULL, &device_info), status);
    CHECK_EQ_U64(device_info.struct_size, sizeof device_info);
    CHECK_EQ_I64(device_info.ordinal, 0);
    CHECK_EQ_I64(device_info.alias[0], 0);
    CHECK_STATUS(warp_device_query_memory(NULL, &available, &total), status);
    CHECK_EQ_U64(available, 0);
    CHECK_EQ_U64(total, 0);
    CHECK_STATUS(warp_device_get_native_context(NULL, &block), status);
    CHECK_EQ_PTR(block, NULL);
    CHECK_STATUS(warp_device_remove(NULL), status);
    CHECK_STATUS(warp_device_synchronize(NULL), status);
    CHECK_STATUS(warp_stream_create(NULL, NULL, &stream), status);
    CHECK_EQ_PTR(stream, NULL);
    stream = (warp_stream *)1;
    CHECK_STATUS(warp_stream_wrap(NULL, NULL, &stream), status);
    CHECK_EQ_PTR(stream, NULL);
    stream = (warp_stream *)1;
    CHECK_STATUS(warp_stream_get_current(NULL, &stream), status);
    CHECK_EQ_PTR(stream, NULL);
    CHECK_STATUS(warp_stream_set_current(NULL, NULL), status);
    CHECK_STATUS(warp_stream_get_info(NULL, &stream_info), status);
    CHECK_EQ_U64(stream_info.id, 0);
    CHECK_EQ_U64(stream_info.struct_size, sizeof stream_info);
    CHECK_STATUS(warp_stream_synchronize(NULL), status);
    CHECK_STATUS(warp_stream_query_idle(NULL, &byte), status);
    CHECK_EQ_U64(byte, 0);
    CHECK_STATUS(warp_stream_host_call(NULL, must_not_be_called, NULL, must_not_be_called), status);
    stream = (warp_stream *)1;
    CHECK_STATUS(warp_stream_wrap_with(NULL, NULL, NULL, &stream), status);
    CHECK_EQ_PTR(stream, NULL);
    CHECK_STATUS(warp_event_create(NULL, NULL, &event), status);
    CHECK_EQ_PTR(event, NULL);
    event = (warp_event *)1;
    CHECK_STATUS(warp_event_wrap(NULL, &byte, &event), status);
    CHECK_EQ_PTR(event, NULL);
    CHECK_STATUS(warp_event_get_info(NULL, &event_info), status);
    CHECK_EQ_U64(event_info.flags, 0);
    CHECK_STATUS(warp_event_record(NULL, NULL), status);
    byte = 9;
    CHECK_STATUS(warp_event_query_done(NULL, &byte), status);
    CHECK_EQ_U64(byte, 0);
    CHECK_STATUS(warp_event_synchronize(NULL), status);
    CHECK_STATUS(warp_event_measure_elapsed(NULL, NULL, &milliseconds), status);
    CHECK(milliseconds == 0);
    CHECK_STATUS(warp_stream_wait_event(NULL, NULL), status);
    CHECK_STATUS(warp_stream_wait_stream(NULL, NULL), status);
    CHECK_STATUS(warp_scope_begin_stream(NULL, NULL, &scope), status);
    CHECK_EQ_PTR(scope, NULL);
    CHECK_STATUS(warp_indexed_array_create(NULL, NULL, 0, &indexed), status);
    CHECK_EQ_PTR(indexed, NULL);
    CHECK_STATUS(warp_indexed_array_get_info(NULL, &indexed_info), status);
    CHECK_EQ_U64(indexed_info.count, 0);
    count = 9;
    CHECK_STATUS(warp_indexed_array_get_shape(NULL, NULL, 0, &count), status);
    CHECK_EQ_U64(count, 0);
    CHECK_STATUS(warp_indexed_array_get_data(NULL, &array), status);
    CHECK_EQ_PTR(array, NULL);
    array = (warp_array *)1;
    CHECK_STATUS(warp_indexed_array_get_index(NULL, 0, &array), status);
    CHECK_EQ_PTR(array, NULL);
    scope = (warp_scope *)1;
    CHECK_STATUS(warp_scope_begin_device(NULL, &scope), status);
    CHECK_EQ_PTR(scope, NULL);
    block = (void *)1;
    CHECK_STATUS(warp_alloc(NULL, 64, &block), status);
    CHECK_EQ_PTR(block, NULL);
    block = (void *)1;
    CHECK_STATUS(warp_alloc(NULL, 0, &block), status);
    CHECK_EQ_PTR(block, NULL);
    block = (void *)1;
    CHECK_STATUS(warp_alloc_with(NULL, 64, NULL, &block), status);
    CHECK_EQ_PTR(block, NULL);
    text[0] = 'x'; /* a report that was not written leaves no text */
    CHECK_STATUS(warp_memory_fill(text, 1, "a", 1, NULL), status);
    CHECK_STATUS(warp_memory_copy(text, "a", 1, NULL), status);
    CHECK_EQ_I64(text[0], 'x');
    CHECK_STATUS(warp_pointer_record_stream(text, NULL), status);
    CHECK_STATUS(warp_statistics_get(NULL, 0, &counts), status);
    CHECK_EQ_U64(counts.allocations, 0);
    CHECK_STATUS(warp_statistics_reset_peak(NULL), status);
}

static void check_always(void)
{
    uint8_t byte = 9;
    uint64_t id = 0, again = 0;
    warp_error error = {.struct_size = sizeof error};
    CHECK_STATUS(warp_library_is_initialized(&byte), WARP_SUCCESS);
    CHECK_EQ_U64(byte, 0);
    CHECK_STATUS(warp_library_get_instance_id(&id), WARP_SUCCESS);
    CHECK(id != 0);
    CHECK_STATUS(warp_library_get_instance_id(&again), WARP_SUCCESS);
    CHECK_EQ_U64(again, id);
    CHECK_STATUS(warp_error_get_last(&error), WARP_SUCCESS);
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
    CHECK_STATUS(warp_free(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free_with(NULL, NULL), WARP_SUCCESS);
}

PROCESS_TEST(nothing_works_before_the_start)
{
    warp_pointer_info where = {.struct_size = sizeof where, .size = 9};
    check_all_refuse(WARP_ERROR_NOT_INITIALIZED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_init");
    check_always();
    CHECK_STATUS(warp_free(&where), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_pointer_get_info(&where, &where), WARP_ERROR_NOT_INITIALIZED);
    CHECK_EQ_U64(where.size, 0);
}

PROCESS_TEST(nothing_new_works_after_the_end)
{
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    check_all_refuse(WARP_ERROR_SHUT_DOWN);
    check_always();
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
}

/* ---- Handles that are none ---------------------------------------------------------------------------------------------------- */

static void check_no_device(warp_device *bad)
{
    uint64_t available = 9, total = 9;
    void *block = (void *)1;
    warp_device_info info = {.struct_size = sizeof info, .ordinal = 9};
    warp_statistics counts = {.struct_size = sizeof counts};
    warp_stream *stream = (warp_stream *)1;
    warp_event *event = (warp_event *)1;
    warp_scope *scope = (warp_scope *)1;
    CHECK_STATUS(warp_device_get_info(bad, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_I64(info.ordinal, 0);
    CHECK_EQ_U64(info.struct_size, sizeof info);
    CHECK_STATUS(warp_device_query_memory(bad, &available, &total), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_U64(available, 0);
    CHECK_EQ_U64(total, 0);
    CHECK_STATUS(warp_device_get_native_context(bad, &block), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(block, NULL);
    CHECK_STATUS(warp_device_remove(bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_device_set_default(bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_device_set_for_thread(bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_device_synchronize(bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_create(bad, NULL, &stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(stream, NULL);
    stream = (warp_stream *)1;
    CHECK_STATUS(warp_stream_wrap(bad, NULL, &stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(stream, NULL);
    stream = (warp_stream *)1;
    CHECK_STATUS(warp_stream_get_current(bad, &stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(stream, NULL);
    CHECK_STATUS(warp_stream_set_current(bad, NULL), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_wrap_with(bad, NULL, NULL, &stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_event_create(bad, NULL, &event), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(event, NULL);
    CHECK_STATUS(warp_event_wrap(bad, &info, &event), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_scope_begin_stream(bad, NULL, &scope), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(scope, NULL);
    CHECK_STATUS(warp_scope_begin_device(bad, &scope), WARP_ERROR_INVALID_HANDLE);
    block = (void *)1;
    CHECK_STATUS(warp_alloc(bad, 64, &block), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(block, NULL);
    CHECK_STATUS(warp_alloc(bad, 0, &block), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_statistics_get(bad, 0, &counts), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_statistics_reset_peak(bad), WARP_ERROR_INVALID_HANDLE);
}

static void check_no_stream(warp_stream *bad, warp_device *gpu, void *block)
{
    warp_stream_info info = {.struct_size = sizeof info, .id = 9};
    warp_alloc_options options = {.struct_size = sizeof options, .stream = bad};
    warp_free_options free_options = {.struct_size = sizeof free_options, .stream = bad};
    void *other = (void *)1;
    uint8_t idle = 9;
    CHECK_STATUS(warp_stream_get_info(bad, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_U64(info.id, 0);
    CHECK_STATUS(warp_stream_release(bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_set_current(gpu, bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_synchronize(bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_query_idle(bad, &idle), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_U64(idle, 0);
    CHECK_STATUS(warp_stream_host_call(bad, must_not_be_called, NULL, must_not_be_called), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_alloc_with(gpu, 64, &options, &other), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(other, NULL);
    CHECK_STATUS(warp_free_with(block, &free_options), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_pointer_record_stream(block, bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_memory_fill(block, 1, "a", 1, bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_memory_copy(block, "a", 1, bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_wait_stream(bad, NULL), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_wait_stream(NULL, bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_scope_begin_stream(gpu, bad, (warp_scope **)&other), WARP_ERROR_INVALID_HANDLE);
}

static void check_no_event(warp_event *bad)
{
    warp_event_info info = {.struct_size = sizeof info, .flags = 9};
    uint8_t answer = 9;
    float milliseconds = 9;
    CHECK_STATUS(warp_event_get_info(bad, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_U64(info.flags, 0);
    CHECK_STATUS(warp_event_record(bad, NULL), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_event_query_done(bad, &answer), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_U64(answer, 0);
    CHECK_STATUS(warp_event_synchronize(bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_event_measure_elapsed(bad, bad, &milliseconds), WARP_ERROR_INVALID_HANDLE);
    CHECK(milliseconds == 0);
    CHECK_STATUS(warp_stream_wait_event(NULL, bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_event_release(bad), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_scope_end((warp_scope *)bad), WARP_ERROR_INVALID_HANDLE);
}

static void check_no_indexed_array(warp_indexed_array *bad)
{
    warp_indexed_array_info info = {.struct_size = sizeof info, .count = 9};
    warp_indexed_array *made = (warp_indexed_array *)1;
    warp_array *part = (warp_array *)1;
    int64_t shape[2] = {9, 9};
    size_t rank = 9;
    CHECK_STATUS(warp_indexed_array_create((warp_array *)bad, NULL, 0, &made), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(made, NULL);
    CHECK_STATUS(warp_indexed_array_get_info(bad, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_U64(info.count, 0);
    CHECK_STATUS(warp_indexed_array_get_shape(bad, shape, 2, &rank), WARP_ERROR_INVALID_HANDLE);
    CHECK(rank == 0 && shape[0] == 0 && shape[1] == 0);
    CHECK_STATUS(warp_indexed_array_get_data(bad, &part), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_PTR(part, NULL);
    CHECK_STATUS(warp_indexed_array_get_index(bad, 0, &part), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_indexed_array_release(bad), WARP_ERROR_INVALID_HANDLE);
}

PROCESS_TEST(whatever_is_no_handle_is_refused)
{
    int local = 0, bit;
    uint64_t random = 88172645463325252u;
    uintptr_t made_up[200];
    size_t i, count = 0;
    warp_stream *stream = NULL, *released = NULL;
    warp_device *gpu;
    void *block = NULL;
    warp_pointer_info where = {.struct_size = sizeof where};
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    gpu = device("cuda:0");
    CHECK_STATUS(warp_stream_create(gpu, NULL, &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_create(gpu, NULL, &released), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(released), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu, 4096, &block), WARP_SUCCESS);
    made_up[count++] = 1;
    made_up[count++] = 2;
    made_up[count++] = UINTPTR_MAX;
    made_up[count++] = (uintptr_t)&local;
    made_up[count++] = (uintptr_t)block;
    made_up[count++] = (uintptr_t)INTPTR_MAX;
    for (bit = 0; bit < 64; ++bit) {
        made_up[count++] = (uintptr_t)1 << bit;
        /* One bit beside a good one. */
        made_up[count++] = (uintptr_t)gpu ^ (uintptr_t)1 << bit;
    }
    while (count < sizeof made_up / sizeof *made_up) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        made_up[count++] = (uintptr_t)random;
    }
    for (i = 0; i < count; ++i) {
        check_no_device((warp_device *)made_up[i]);
        check_no_stream((warp_stream *)made_up[i], gpu, block);
        check_no_event((warp_event *)made_up[i]);
        check_no_indexed_array((warp_indexed_array *)made_up[i]);
    }
    check_no_indexed_array((warp_indexed_array *)stream);
    CHECK_STR_CONTAINS(warp_error_get_message(), "is of type stream, not indexed array");
    check_no_event((warp_event *)stream);
    CHECK_STR_CONTAINS(warp_error_get_message(), "is of type stream, not scope");
    for (bit = 0; bit < 64; ++bit)
        check_no_stream((warp_stream *)((uintptr_t)stream ^ (uintptr_t)1 << bit), gpu, block);
    /* Of the other type, released, and a device where a stream is expected. */
    check_no_device((warp_device *)stream);
    CHECK_STR_CONTAINS(warp_error_get_message(), "is of type stream, not device");
    check_no_stream((warp_stream *)gpu, gpu, block);
    CHECK_STR_CONTAINS(warp_error_get_message(), "is of type device, not stream");
    check_no_stream(released, gpu, block);
    CHECK_STR_CONTAINS(warp_error_get_message(), "stale");
    check_no_device((warp_device *)released);
    /* As an FFI passes one that was not told of its size. */
    check_no_device((warp_device *)((uintptr_t)gpu & UINT32_MAX));
    CHECK_STR_CONTAINS(warp_error_get_message(), "is not a device handle of this library: handles have 64 bits");
    check_no_device((warp_device *)((uintptr_t)gpu | ~(uintptr_t)INT32_MAX));
    CHECK_STR_CONTAINS(warp_error_get_message(), "handles have 64 bits, and this has 32");
    check_no_device((warp_device *)((uintptr_t)1 << 32));
    CHECK(strstr(warp_error_get_message(), "64 bits") == NULL);
    CHECK_STATUS(warp_stream_get_info(NULL, &(warp_stream_info){.struct_size = sizeof(warp_stream_info)}),
                 WARP_ERROR_INVALID_HANDLE);
    /* Nothing was harmed. */
    CHECK_STATUS(warp_pointer_get_info(block, &where), WARP_SUCCESS);
    CHECK_EQ_PTR(where.base, block);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

/* ---- Outputs that are NULL --------------------------------------------------------------------------------------------------- */

PROCESS_TEST(an_output_that_is_null_is_an_error_and_nothing_happens)
{
    uint64_t number = 9;
    size_t streams;
    warp_device *gpu;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    gpu = device("cuda:0");
    CHECK_STATUS(warp_error_get_last(NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_library_is_initialized(NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_library_get_instance_id(NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_get_count(NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_get_cuda_count(NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_get_at(0, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_get("cpu", NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_get_info(gpu, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_query_memory(gpu, NULL, &number), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(number, 0);
    number = 9;
    CHECK_STATUS(warp_device_query_memory(gpu, &number, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(number, 0);
    CHECK_STATUS(warp_device_query_memory(gpu, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_get_native_context(gpu, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_from_context(&number, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_get_default(NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_get_for_thread(NULL), WARP_ERROR_INVALID_ARGUMENT);
    streams = SIMULATOR(warpsim_live_count)("stream");
    CHECK_STATUS(warp_stream_create(gpu, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_stream_wrap(gpu, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_stream_get_current(gpu, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_stream_get_info(NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_stream_query_idle(NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_stream_host_call(NULL, NULL, NULL, must_not_be_called), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_stream_wrap_with(gpu, NULL, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_event_create(gpu, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_event_wrap(gpu, &number, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_event_get_info(NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_event_query_done(NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_event_measure_elapsed(NULL, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_scope_begin_stream(gpu, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_scope_begin_device(gpu, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_indexed_array_create(NULL, NULL, 0, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_indexed_array_get_info(NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_indexed_array_get_data(NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_indexed_array_get_index(NULL, 0, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_alloc(gpu, 64, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_alloc_with(gpu, 64, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_pointer_get_info(&number, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_statistics_get(gpu, 0, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("stream"), streams);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
}

/* ---- Structs of other sizes ---------------------------------------------------------------------------------------------------- */

/* A struct in a larger room, so that every byte beyond can be watched. */
union room {
    size_t struct_size;
    unsigned char bytes[70000];
};

typedef warp_status (*with_struct)(void *room);

static warp_status init_with(void *room) { return warp_init(room, NULL); }
static warp_status error_with(void *room) { return warp_error_get_last(room); }
static warp_status device_with(void *room) { return warp_device_get_info(NULL, room); }
static warp_status pointer_with(void *room) { return warp_pointer_get_info(room, room); }
static warp_status statistics_with(void *room) { return warp_statistics_get(NULL, 0, room); }
static warp_stream *watched;
static warp_status stream_info_with(void *room) { return warp_stream_get_info(watched, room); }
static warp_status stream_with(void *room)
{
    warp_stream *stream = NULL;
    warp_status status = warp_stream_create(NULL, room, &stream);
    if (status == WARP_SUCCESS)
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    else
        CHECK_EQ_PTR(stream, NULL);
    return status;
}
static warp_event *watched_event;
static warp_status event_info_with(void *room) { return warp_event_get_info(watched_event, room); }
static warp_status event_with(void *room)
{
    warp_event *event = NULL;
    warp_status status = warp_event_create(NULL, room, &event);
    if (status == WARP_SUCCESS)
        CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    else
        CHECK_EQ_PTR(event, NULL);
    return status;
}
static warp_status stream_wrap_with(void *room)
{
    warp_stream *stream = NULL;
    warp_status status = warp_stream_wrap_with(NULL, NULL, room, &stream);
    if (status == WARP_SUCCESS)
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    else
        CHECK_EQ_PTR(stream, NULL);
    return status;
}
static warp_status alloc_with(void *room)
{
    void *block = (void *)1;
    warp_status status = warp_alloc_with(NULL, 64, room, &block);
    if (status == WARP_SUCCESS)
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    else
        CHECK_EQ_PTR(block, NULL);
    return status;
}
static warp_status free_with(void *room)
{
    void *block = NULL;
    warp_status status;
    CHECK_STATUS(warp_alloc(NULL, 64, &block), WARP_SUCCESS);
    status = warp_free_with(block, room);
    if (status != WARP_SUCCESS)
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    return status;
}

static warp_array *watched_array;
static warp_status array_info_with(void *room) { return warp_array_get_info(watched_array, room); }
static warp_status wrap_with(void *room)
{
    static float item;
    warp_array *array = (warp_array *)1;
    warp_status status =
        warp_array_wrap(device("cpu"), &item, warp_dtype_make(WARP_DTYPE_FLOAT, 32), 0, NULL, room, &array);
    if (status == WARP_SUCCESS)
        CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    else
        CHECK_EQ_PTR(array, NULL);
    return status;
}
static warp_status empty_with(void *room)
{
    warp_array *array = (warp_array *)1;
    warp_status status =
        warp_array_empty(device("cpu"), warp_dtype_make(WARP_DTYPE_FLOAT, 32), 0, NULL, room, &array);
    if (status == WARP_SUCCESS)
        CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    else
        CHECK_EQ_PTR(array, NULL);
    return status;
}

static warp_indexed_array *watched_indexed;
static warp_status indexed_info_with(void *room) { return warp_indexed_array_get_info(watched_indexed, room); }

static union room room;

/* A struct of now size bytes, which had the first so many in its first version. */
static void check_input_since(with_struct call, size_t first, size_t size)
{
    static const size_t bad[] = {0, 1, 7, 8, 65537, SIZE_MAX, SIZE_MAX / 2};
    size_t i;
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        memset(&room, 0, sizeof room);
        room.struct_size = bad[i];
        CHECK_STATUS(call(&room), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STR_CONTAINS(warp_error_get_message(), "struct_size");
    }
    room.struct_size = first - 1;
    CHECK_STATUS(call(&room), WARP_ERROR_INVALID_ARGUMENT);
    /* An older caller's, who has something else behind it. */
    memset(&room, 0xff, sizeof room);
    memset(&room, 0, first);
    room.struct_size = first;
    CHECK_STATUS(call(&room), WARP_SUCCESS);
    memset(&room, 0, sizeof room);
    room.struct_size = size;
    CHECK_STATUS(call(&room), WARP_SUCCESS);
    /* A newer caller's, who uses nothing new; and one who does. What lies behind it is not looked at. */
    for (i = 1; i <= 65536 - size; i = i * 3 + 1) {
        memset(&room, 0xff, sizeof room);
        memset(&room, 0, size + i);
        room.struct_size = size + i;
        CHECK_STATUS(call(&room), WARP_SUCCESS);
        room.bytes[size + i - 1] = 1;
        CHECK_STATUS(call(&room), WARP_ERROR_NOT_SUPPORTED);
        room.bytes[size + i - 1] = 0;
        room.bytes[size] = 0x80;
        CHECK_STATUS(call(&room), WARP_ERROR_NOT_SUPPORTED);
    }
}

static void check_input(with_struct call, size_t size)
{
    check_input_since(call, size, size);
}

/* The struct had `first` bytes when it was new. */
static void check_output_since(with_struct call, size_t first, size_t size)
{
    static const size_t bad[] = {0, 1, 7, 8, 65537, SIZE_MAX, SIZE_MAX / 2};
    size_t i, at;
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        memset(&room, 0xff, sizeof room);
        room.struct_size = bad[i];
        CHECK_STATUS(call(&room), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_U64(room.struct_size, bad[i]);
        CHECK_EQ_U64(room.bytes[8], 0xff);
    }
    room.struct_size = first - 1;
    CHECK_STATUS(call(&room), WARP_ERROR_INVALID_ARGUMENT);
    /* An older caller's: nothing behind it is written. */
    memset(&room, 0xff, sizeof room);
    room.struct_size = first;
    CHECK_STATUS(call(&room), WARP_SUCCESS);
    CHECK_EQ_U64(room.bytes[first], 0xff);
    memset(&room, 0xff, sizeof room);
    room.struct_size = size;
    CHECK_STATUS(call(&room), WARP_SUCCESS);
    CHECK_EQ_U64(room.struct_size, size);
    CHECK_EQ_U64(room.bytes[size], 0xff);
    /* A longer one: what this library does not know is zero, what is not the struct's is as it was. */
    memset(&room, 0xff, sizeof room);
    room.struct_size = size + 100;
    CHECK_STATUS(call(&room), WARP_SUCCESS);
    CHECK_EQ_U64(room.struct_size, size + 100);
    for (at = size; at < size + 100; ++at)
        CHECK_EQ_U64(room.bytes[at], 0);
    CHECK_EQ_U64(room.bytes[size + 100], 0xff);
}

static void check_output(with_struct call, size_t size)
{
    check_output_since(call, size, size);
}

PROCESS_TEST(structs_may_grow)
{
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_create(NULL, NULL, &watched), WARP_SUCCESS);
    check_input(init_with, sizeof(warp_init_options));
    CHECK_STATUS(warp_event_create(NULL, NULL, &watched_event), WARP_SUCCESS);
    check_input(stream_with, sizeof(warp_stream_options));
    check_input(stream_wrap_with, sizeof(warp_stream_options));
    check_input(event_with, sizeof(warp_event_options));
    check_input_since(alloc_with, offsetof(warp_alloc_options, mempool), sizeof(warp_alloc_options));
    check_input(free_with, sizeof(warp_free_options));
    check_output(error_with, sizeof(warp_error));
    check_output(device_with, sizeof(warp_device_info));
    check_output(stream_info_with, sizeof(warp_stream_info));
    check_output(event_info_with, sizeof(warp_event_info));
    check_output_since(pointer_with, offsetof(warp_pointer_info, allocator), sizeof(warp_pointer_info));
    check_output(statistics_with, sizeof(warp_statistics));
    check_input_since(empty_with, offsetof(warp_array_options, mempool), sizeof(warp_array_options));
    check_input(wrap_with, sizeof(warp_array_wrap_options));
    REQUIRE_STATUS(warp_array_empty(device("cpu"), warp_dtype_make(WARP_DTYPE_FLOAT, 32), 0, NULL, NULL, &watched_array),
                   WARP_SUCCESS);
    check_output(array_info_with, sizeof(warp_array_info));
    REQUIRE_STATUS(warp_indexed_array_create(watched_array, NULL, 0, &watched_indexed), WARP_SUCCESS);
    check_output(indexed_info_with, sizeof(warp_indexed_array_info));
    CHECK_STATUS(warp_indexed_array_release(watched_indexed), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(watched_array), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

/* ---- Numbers that are none ----------------------------------------------------------------------------------------------------- */

PROCESS_TEST(unknown_numbers_are_invalid)
{
    static const int32_t bad[] = {-1, 6, 7, 256, INT32_MIN, INT32_MAX};
    size_t i;
    int bit;
    void *block = NULL;
    warp_device *gpu;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    gpu = device("cuda:0");
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        warp_alloc_options options = {.struct_size = sizeof options, .kind = bad[i]};
        warp_statistics counts = {.struct_size = sizeof counts};
        CHECK_STATUS(warp_alloc_with(gpu, 64, &options, &block), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_alloc_with(gpu, 0, &options, &block), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_statistics_get(gpu, bad[i], &counts), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_log_set_callback((warp_log_callback)(uintptr_t)&exit, NULL, bad[i]),
                     WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_STR(warp_status_get_name(1000 + (int32_t)i), "WARP_ERROR_UNKNOWN");
        CHECK_EQ_STR(warp_status_get_name(bad[i] == 6 || bad[i] == 7 ? 950 : bad[i]), "WARP_ERROR_UNKNOWN");
    }
    for (bit = 2; bit < 32; ++bit) {
        warp_init_options init = {.struct_size = sizeof init, .flags = UINT32_C(1) << bit};
        warp_stream_options stream = {.struct_size = sizeof stream, .flags = UINT32_C(1) << bit};
        CHECK_STATUS(warp_init(&init, NULL), WARP_ERROR_INVALID_ARGUMENT);
        warp_event_options event = {.struct_size = sizeof event, .flags = UINT32_C(1) << bit};
        CHECK_STATUS(warp_stream_create(gpu, &stream, &watched), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_stream_wrap_with(gpu, NULL, &stream, &watched), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(warp_event_create(gpu, &event, &watched_event), WARP_ERROR_INVALID_ARGUMENT);
    }
    for (bit = 0; bit < 64; ++bit) {
        warp_alloc_options options = {.struct_size = sizeof options, .alignment = (UINT64_C(1) << bit) + 3};
        CHECK_STATUS(warp_alloc_with(gpu, 64, &options, &block),
                     bit == 0 ? WARP_SUCCESS : WARP_ERROR_BAD_ALIGNMENT);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

/* ---- Many threads ------------------------------------------------------------------------------------------------------------------ */

enum { THREADS = 8, SLOTS = 32 };

/* Streams that any thread may release under the others. */
static warp_stream *shared[SLOTS];
static int stop;
static uint64_t successes, refusals;

static void *hammer(void *seed)
{
    uint64_t random = (uint64_t)(uintptr_t)seed * 0x9e3779b97f4a7c15u | 1;
    uint64_t done = 0, refused = 0;
    warp_device *gpus[2] = {device("cuda:0"), device("cuda:1")};
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        size_t slot;
        warp_device *gpu;
        warp_stream *stream;
        warp_status status;
        warp_stream_info info = {.struct_size = sizeof info};
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        slot = random % SLOTS;
        gpu = gpus[random >> 8 & 1];
        stream = __atomic_load_n(&shared[slot], __ATOMIC_ACQUIRE);
        switch (random >> 16 & 7) {
        case 0:
        case 1: {
            warp_stream *fresh = NULL;
            CHECK_STATUS(warp_stream_create(gpu, NULL, &fresh), WARP_SUCCESS);
            stream = __atomic_exchange_n(&shared[slot], fresh, __ATOMIC_ACQ_REL);
            if (stream != NULL) {
                status = warp_stream_release(stream);
                CHECK(status == WARP_SUCCESS || status == WARP_ERROR_INVALID_HANDLE);
            }
            continue;
        }
        case 2:
            status = warp_stream_release(stream);
            break;
        case 3:
            status = warp_stream_get_info(stream, &info);
            if (status == WARP_SUCCESS)
                CHECK(info.id != 0 && info.native != NULL && (info.device == gpus[0] || info.device == gpus[1]));
            break;
        case 4:
            status = warp_stream_set_current(gpu, stream);
            if (status == WARP_ERROR_INVALID_ARGUMENT)
                status = WARP_SUCCESS; /* of the other GPU */
            break;
        case 5: {
            warp_stream *mine = NULL;
            CHECK_STATUS(warp_stream_get_current(gpu, &mine), WARP_SUCCESS);
            status = warp_stream_get_info(mine, &info);
            if (status == WARP_SUCCESS)
                CHECK_EQ_PTR(info.device, gpu);
            break;
        }
        case 6: {
            uint8_t idle = 0;
            status = warp_stream_query_idle(stream, &idle);
            break;
        }
        default: {
            warp_alloc_options options = {.struct_size = sizeof options, .stream = stream};
            void *block = NULL;
            status = warp_alloc_with(gpu, 512, &options, &block);
            if (status == WARP_ERROR_INVALID_ARGUMENT)
                status = WARP_SUCCESS; /* of the other GPU */
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
            break;
        }
        }
        if (stream != NULL)
            CHECK(status == WARP_SUCCESS || status == WARP_ERROR_INVALID_HANDLE);
        done += status == WARP_SUCCESS;
        refused += status == WARP_ERROR_INVALID_HANDLE;
    }
    __atomic_fetch_add(&successes, done, __ATOMIC_RELAXED);
    __atomic_fetch_add(&refusals, refused, __ATOMIC_RELAXED);
    return NULL;
}

PROCESS_TEST(handles_hold_under_many_threads)
{
    pthread_t threads[THREADS];
    struct timespec end = {2, 0};
    size_t i;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    for (i = 0; i < THREADS; ++i)
        REQUIRE(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)) == 0);
    nanosleep(&end, NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    CHECK(successes > 100 && refusals > 10);
    for (i = 0; i < SLOTS; ++i)
        warp_stream_release(shared[i]);
    /* Each GPU's default stream, and the one of its late frees. */
    CHECK(SIMULATOR(warpsim_live_count)("stream") <= 4);
    CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK(SIMULATOR(warpsim_live_count)("stream") <= 2);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

CHECK_MAIN()
