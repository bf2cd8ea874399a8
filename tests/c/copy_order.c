/*
 * copy_order.c: a copy comes after what was put on its stream before, whoever makes it: a GPU, the driver, or the CPU that packs,
 * unpacks and reads index arrays. The stream stands still while everything is put there, so that what does not wait reads what is
 * not there yet.
 *
 * topology: h200x2
 * topology: h200x2,peers=0
 * topology: discrete
 * needs: simulator
 */
#define _POSIX_C_SOURCE 200809L
#include "captures.h"

enum { COUNT = 24, BYTES = COUNT * 4 };

static warp_stream *stream;
static void *gpu_memory[3];

/* Memory of the host that a GPU works with behind the caller's back. */
enum { PINNED, REGISTERED, ORDINARY, HOSTS };
static const char *const host_names[] = {"page-locked", "registered", "ordinary"};

static void *host_memory(int kind)
{
    void *memory = NULL;
    if (kind == PINNED) {
        CHECK_STATUS(try_alloc("cpu", NULL, WARP_MEMORY_PINNED, 4096, &memory), WARP_SUCCESS);
        return memory;
    }
    if (posix_memalign(&memory, 4096, 4096) != 0)
        abort();
    if (kind == REGISTERED) {
        void *context = NULL;
        CHECK_STATUS(warp_device_get_native_context(device("cuda:0"), &context), WARP_SUCCESS);
        SIMULATOR(cuCtxSetCurrent)(context);
        CHECK_EQ_U64(SIMULATOR(cuMemHostRegister_v2)(memory, 4096, 1), 0);
        SIMULATOR(cuCtxSetCurrent)(NULL);
    }
    return memory;
}

static void give_back(int kind, void *memory)
{
    if (kind == PINNED) {
        CHECK_STATUS(warp_free(memory), WARP_SUCCESS);
        return;
    }
    if (kind == REGISTERED)
        CHECK_EQ_U64(SIMULATOR(cuMemHostUnregister)(memory), 0);
    free(memory);
}

static void begin_here(void)
{
    int i;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    stream = make_stream("cuda:0", WARP_STREAM_NON_BLOCKING);
    for (i = 0; i < 3; ++i)
        CHECK_STATUS(try_alloc("cuda:0", stream, WARP_MEMORY_CUDA_DEVICE, 4096, &gpu_memory[i]), WARP_SUCCESS);
}

static void finish(void)
{
    int i;
    for (i = 0; i < 3; ++i)
        CHECK_STATUS(warp_free(gpu_memory[i]), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

/* Numbers in memory of the GPU, there when this returns. */
static void put_numbers(void *memory, int32_t first, int32_t step)
{
    int32_t numbers[COUNT], i;
    for (i = 0; i < COUNT; ++i)
        numbers[i] = first + i * step;
    CHECK_STATUS(warp_memory_copy(memory, numbers, BYTES, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
}

static int have_numbers(const void *memory, int32_t first, int32_t step)
{
    int32_t numbers[COUNT], i, wrong = 0;
    if (SIMULATOR(warpsim_peek)((uint64_t)(uintptr_t)memory, numbers, BYTES) != 0)
        memcpy(numbers, memory, BYTES);
    for (i = 0; i < COUNT; ++i)
        wrong += numbers[i] != first + i * step;
    return wrong == 0;
}

static warp_array *line(const char *alias, void *memory, int64_t stride)
{
    const int64_t count = COUNT;
    warp_array_wrap_options options = {.struct_size = sizeof options, .strides = &stride};
    warp_array *array = NULL;
    CHECK_STATUS(warp_array_wrap(device(alias), memory, warp_dtype_make(WARP_DTYPE_INT, 32), 1, &count, &options, &array), WARP_SUCCESS);
    return array;
}

static void hold(void)
{
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)native_of(stream)), 0);
}

static void let_go(void)
{
    SIMULATOR(warpsim_release_all)();
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
}

static warp_indexed_array *picked(warp_array *data, warp_array *by)
{
    const warp_array *indices[1] = {by};
    warp_indexed_array *indexed = NULL;
    CHECK_STATUS(warp_indexed_array_create(data, indices, 1, &indexed), WARP_SUCCESS);
    return indexed;
}

/* What the GPU writes to the host is what goes up again: without gaps, with gaps, picked by index arrays. */
PROCESS_TEST(what_came_down_goes_up)
{
    int kind, way;
    begin_here();
    for (kind = 0; kind < HOSTS; ++kind)
        for (way = 0; way < 3; ++way) {
            const int64_t stride = way == 1 ? 12 : 4;
            char *host = host_memory(kind);
            int32_t *numbers = malloc(BYTES), i;
            warp_array *down = line("cpu", host, stride), *from = line("cuda:0", gpu_memory[0], 4), *to = line("cuda:0", gpu_memory[1], 4);
            warp_array *by = line("cpu", numbers, 4);
            warp_indexed_array *indexed = picked(down, by);
            int before = check_failure_count();
            for (i = 0; i < COUNT; ++i)
                numbers[i] = i;
            memset(host, 0xAA, 4096);
            put_numbers(gpu_memory[0], 100 * kind + way, 3);
            put_numbers(gpu_memory[1], -1, 0);
            hold();
            CHECK_STATUS(warp_array_copy(down, from, 0, 0, 0, stream), WARP_SUCCESS);
            if (way == 2)
                CHECK_STATUS(warp_indexed_array_gather(to, indexed, stream), WARP_SUCCESS);
            else
                CHECK_STATUS(warp_array_copy(to, down, 0, 0, 0, stream), WARP_SUCCESS);
            let_go();
            CHECK(have_numbers(gpu_memory[1], 100 * kind + way, 3));
            CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
            CHECK_STATUS(warp_array_release(by), WARP_SUCCESS);
            CHECK_STATUS(warp_array_release(down), WARP_SUCCESS);
            CHECK_STATUS(warp_array_release(from), WARP_SUCCESS);
            CHECK_STATUS(warp_array_release(to), WARP_SUCCESS);
            give_back(kind, host);
            free(numbers);
            if (check_failure_count() != before)
                printf("\n      %s memory, %s", host_names[kind], way == 0 ? "without gaps" : way == 1 ? "with gaps" : "by an index array");
        }
    finish();
}

/* The numbers of an index array come down in front of the copy that goes by them. */
PROCESS_TEST(numbers_that_came_down_are_gone_by)
{
    int kind, scatter;
    begin_here();
    for (kind = 0; kind < HOSTS; ++kind)
        for (scatter = 0; scatter < 2; ++scatter) {
            int32_t *numbers = host_memory(kind), *values = host_memory(PINNED), i;
            warp_array *by = line("cpu", numbers, 4), *from = line("cuda:0", gpu_memory[0], 4), *there = line("cuda:0", gpu_memory[1], 4);
            warp_array *data = line("cpu", values, 4);
            warp_indexed_array *indexed = picked(data, by);
            int before = check_failure_count();
            memset(numbers, 0, BYTES);
            for (i = 0; i < COUNT; ++i)
                values[i] = 1000 + i;
            put_numbers(gpu_memory[0], COUNT - 1, -1);
            put_numbers(gpu_memory[1], 7, 5);
            hold();
            CHECK_STATUS(warp_array_copy(by, from, 0, 0, 0, stream), WARP_SUCCESS);
            if (scatter)
                CHECK_STATUS(warp_indexed_array_scatter(indexed, there, stream), WARP_SUCCESS);
            else
                CHECK_STATUS(warp_indexed_array_gather(there, indexed, stream), WARP_SUCCESS);
            let_go();
            if (scatter)
                CHECK(have_numbers(values, 7 + 5 * (COUNT - 1), -5));
            else
                CHECK(have_numbers(gpu_memory[1], 1000 + COUNT - 1, -1));
            CHECK_STATUS(warp_indexed_array_release(indexed), WARP_SUCCESS);
            CHECK_STATUS(warp_array_release(by), WARP_SUCCESS);
            CHECK_STATUS(warp_array_release(from), WARP_SUCCESS);
            CHECK_STATUS(warp_array_release(there), WARP_SUCCESS);
            CHECK_STATUS(warp_array_release(data), WARP_SUCCESS);
            give_back(kind, numbers);
            give_back(PINNED, values);
            if (check_failure_count() != before)
                printf("\n      numbers in %s memory, %s", host_names[kind], scatter ? "scatter" : "gather");
        }
    finish();
}

/* A call that says that it waits has read, or written, the memory when it returns; one that says that it does not may be written
 * over only later. */
PROCESS_TEST(what_is_told_of_waiting_is_so)
{
    int kind, up, way;
    begin_here();
    for (kind = 0; kind < HOSTS; ++kind)
        for (up = 0; up < 2; ++up)
            for (way = 0; way < 2; ++way) {
                char *host = host_memory(kind);
                warp_array *here = line("cpu", host, way == 1 ? 8 : 4), *there = line("cuda:0", gpu_memory[0], 4);
                warp_copy_request request = {.struct_size = sizeof request};
                warp_copy_info info = {.struct_size = sizeof info};
                int before = check_failure_count(), i, wrong = 0;
                request.dest_array = up ? there : here;
                request.src_array = up ? here : there;
                memset(host, 0, 4096);
                put_numbers(gpu_memory[0], 50, 1);
                for (i = 0; i < COUNT && up; ++i)
                    *(int32_t *)(void *)(host + i * (way == 1 ? 8 : 4)) = 9 + 2 * i;
                CHECK_STATUS(warp_copy_get_path(&request, stream, &info), WARP_SUCCESS);
                if (kind == PINNED)
                    CHECK_EQ_U64(info.is_async, 1);
                if (kind == ORDINARY)
                    CHECK_EQ_U64(info.is_async, 0);
                hold();
                CHECK_STATUS(warp_copy_run(&request, stream), WARP_SUCCESS);
                if (!info.is_async && up)
                    memset(host, 0xEE, 4096);
                for (i = 0; i < COUNT && !info.is_async && !up; ++i)
                    wrong += *(int32_t *)(void *)(host + i * (way == 1 ? 8 : 4)) != 50 + i;
                CHECK_EQ_I64(wrong, 0);
                let_go();
                if (up)
                    CHECK(have_numbers(gpu_memory[0], 9, 2));
                CHECK_STATUS(warp_array_release(here), WARP_SUCCESS);
                CHECK_STATUS(warp_array_release(there), WARP_SUCCESS);
                give_back(kind, host);
                if (check_failure_count() != before)
                    printf("\n      %s memory, %s, %s, told to be %s", host_names[kind], up ? "up" : "down", way ? "with gaps" : "without gaps",
                           info.is_async ? "asynchronous" : "over at the return");
            }
    finish();
}

/* Work of the other GPU's temporary streams is work of the call's stream: the source may be written over behind the copy, and
 * what is copied is there for what comes next. */
PROCESS_TEST(both_ends_are_the_streams_from_then_on)
{
    const int64_t shape[2] = {4, 6}, wide[2] = {48, 8};
    int on, round;
    begin_here();
    for (on = 0; on < 2; ++on) {
        warp_stream *streams[2] = {stream, make_stream("cuda:1", WARP_STREAM_NON_BLOCKING)};
        warp_array_wrap_options options = {.struct_size = sizeof options, .strides = wide};
        warp_array *from = NULL, *to = NULL, *back = NULL;
        void *far_away = NULL;
        CHECK_STATUS(try_alloc("cuda:1", streams[1], WARP_MEMORY_UNKNOWN, 4096, &far_away), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(streams[1]), WARP_SUCCESS);
        CHECK_STATUS(warp_array_wrap(device("cuda:0"), gpu_memory[0], warp_dtype_make(WARP_DTYPE_INT, 32), 2, shape, &options, &from), WARP_SUCCESS);
        CHECK_STATUS(warp_array_wrap(device("cuda:1"), far_away, warp_dtype_make(WARP_DTYPE_INT, 32), 2, shape, &options, &to), WARP_SUCCESS);
        CHECK_STATUS(warp_array_wrap(device("cuda:0"), gpu_memory[1], warp_dtype_make(WARP_DTYPE_INT, 32), 2, shape, NULL, &back), WARP_SUCCESS);
        for (round = 0; round < 20; ++round) {
            int32_t first = 10 * round, second = first + 1, i, seen[24], wrong = 0;
            SIMULATOR(warpsim_schedule)((uint64_t)(100 * on + round));
            CHECK_STATUS(warp_stream_wait_stream(streams[on], streams[!on]), WARP_SUCCESS);
            /* All of it on one stream, though two GPUs take part. */
            if (on == 0) {
                CHECK_STATUS(warp_array_fill(from, &first, 4, streams[on]), WARP_SUCCESS);
            } else {
                CHECK_STATUS(warp_array_fill(from, &first, 4, streams[0]), WARP_SUCCESS);
                CHECK_STATUS(warp_stream_wait_stream(streams[1], streams[0]), WARP_SUCCESS);
            }
            CHECK_STATUS(warp_array_copy(to, from, 0, 0, 0, streams[on]), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_wait_stream(streams[0], streams[on]), WARP_SUCCESS);
            CHECK_STATUS(warp_array_fill(from, &second, 4, streams[0]), WARP_SUCCESS);
            CHECK_STATUS(warp_array_copy(back, to, 0, 0, 0, streams[on]), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(streams[on]), WARP_SUCCESS);
            CHECK_STATUS(warp_memory_copy(seen, gpu_memory[1], sizeof seen, streams[0]), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(streams[0]), WARP_SUCCESS);
            for (i = 0; i < 24; ++i)
                wrong += seen[i] != first;
            CHECK_EQ_I64(wrong, 0);
            SIMULATOR(warpsim_schedule)(0);
        }
        CHECK_STATUS(warp_array_release(from), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(to), WARP_SUCCESS);
        CHECK_STATUS(warp_array_release(back), WARP_SUCCESS);
        CHECK_STATUS(warp_free(far_away), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(streams[1]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(streams[1]), WARP_SUCCESS);
    }
    finish();
}

CHECK_MAIN()
