/*
 * quiet_calls.c: the calls that programs make most often ask the C library for no memory once they have been made before: nothing is
 * allocated, formatted or collected on their ways.
 *
 * needs: simulator
 * valgrind: no (it has its own malloc and free, and these are not asked)
 */
#define _GNU_SOURCE
#include "caches.h"
#include "process.h"
#include "counted.h"
#include "nothing.h"

static warp_stream *stream, *other;
static warp_event *event;
static warp_array *array, *another;
static void *block, *second, *locked, *locked_too;
static warp_alloc_options of_pool, of_host_code, of_gpu_code, of_limit;

static void take_and_give(warp_device *from, const warp_alloc_options *options)
{
    void *ptr = NULL;
    CHECK_STATUS(warp_alloc_with(from, 4096, options, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
}

static void pool_pair(void)
{
    take_and_give(gpu(0), &of_pool);
}

static void pair_of_host_code(void)
{
    take_and_give(cpu(), &of_host_code);
}

static void pair_of_gpu_code(void)
{
    take_and_give(gpu(0), &of_gpu_code);
}

static void pair_below_a_limit(void)
{
    take_and_give(gpu(0), &of_limit);
}

static void copy_within_a_gpu(void)
{
    CHECK_STATUS(warp_memory_copy(block, second, 4096, stream), WARP_SUCCESS);
}

static void copy_to_a_gpu(void)
{
    CHECK_STATUS(warp_memory_copy(block, locked, 4096, stream), WARP_SUCCESS);
}

static void copy_on_the_host(void)
{
    CHECK_STATUS(warp_memory_copy(locked, locked_too, 4096, NULL), WARP_SUCCESS);
}

static void copy_of_an_array(void)
{
    CHECK_STATUS(warp_array_copy(array, another, 0, 0, 1000, stream), WARP_SUCCESS);
}

static void fill_of_a_gpu(void)
{
    static const uint32_t pattern = 0x01010101;
    CHECK_STATUS(warp_memory_fill(block, 4096, &pattern, sizeof pattern, stream), WARP_SUCCESS);
}

static void fill_of_the_host(void)
{
    static const unsigned char pattern[3] = {1, 2, 3};
    CHECK_STATUS(warp_memory_fill(locked, 3000, pattern, sizeof pattern, NULL), WARP_SUCCESS);
}

static void event_recorded_and_waited_for(void)
{
    uint8_t is_done;
    CHECK_STATUS(warp_event_record(event, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_wait_event(other, event), WARP_SUCCESS);
    CHECK_STATUS(warp_event_query_done(event, &is_done), WARP_SUCCESS);
}

static void wait_between_streams(void)
{
    CHECK_STATUS(warp_stream_wait_stream(other, stream), WARP_SUCCESS);
}

static void questions_to_streams(void)
{
    warp_stream *current = NULL;
    uint8_t is_idle;
    CHECK_STATUS(warp_stream_query_idle(stream, &is_idle), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_set_current(gpu(0), stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_current(gpu(0), &current), WARP_SUCCESS);
    CHECK(current == stream);
}

static void questions_about_memory(void)
{
    warp_pointer_info of_pointer = {.struct_size = sizeof of_pointer};
    warp_array_info of_array = {.struct_size = sizeof of_array};
    uint8_t can;
    CHECK_STATUS(warp_pointer_get_info(block, &of_pointer), WARP_SUCCESS);
    CHECK_STATUS(warp_array_get_info(array, &of_array), WARP_SUCCESS);
    CHECK_STATUS(warp_access_can(gpu(0), array, &can), WARP_SUCCESS);
    CHECK_STATUS(warp_access_can(gpu(1), array, &can), WARP_SUCCESS);
    CHECK_STATUS(warp_access_can_pointer(gpu(0), block, &can), WARP_SUCCESS);
}

static void check_of_a_launch(void)
{
    const warp_launch_argument arguments[] = {{.value = array}, {.value = another}};
    CHECK_STATUS(warp_launch_check(gpu(0), "kernel", arguments, 2, sizeof *arguments, WARP_LAUNCH_CHECKED, NULL), WARP_SUCCESS);
}

static const struct {
    const char *name;
    void (*call)(void);
} calls_made[] = {
    {"pool_pair", pool_pair},
    {"pair_of_host_code", pair_of_host_code},
    {"pair_of_gpu_code", pair_of_gpu_code},
    {"pair_below_a_limit", pair_below_a_limit},
    {"copy_within_a_gpu", copy_within_a_gpu},
    {"copy_to_a_gpu", copy_to_a_gpu},
    {"copy_on_the_host", copy_on_the_host},
    {"copy_of_an_array", copy_of_an_array},
    {"fill_of_a_gpu", fill_of_a_gpu},
    {"fill_of_the_host", fill_of_the_host},
    {"event_recorded_and_waited_for", event_recorded_and_waited_for},
    {"wait_between_streams", wait_between_streams},
    {"questions_to_streams", questions_to_streams},
    {"questions_about_memory", questions_about_memory},
    {"check_of_a_launch", check_of_a_launch},
};

static void begin_test(void)
{
    static char at_host[4096] __attribute__((aligned(64)));
    static const int64_t shape[1] = {1000};
    warp_dtype f32 = warp_dtype_make(WARP_DTYPE_FLOAT, 32);
    start_on("h200x2");
    watch_library();
    stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    CHECK_STATUS(warp_event_create(gpu(0), NULL, &event), WARP_SUCCESS);
    of_pool = (warp_alloc_options){.struct_size = sizeof of_pool, .stream = stream};
    CHECK_STATUS(warp_alloc_with(gpu(0), 4096, &of_pool, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc_with(gpu(0), 4096, &of_pool, &second), WARP_SUCCESS);
    of_host_code = of_gpu_code = of_limit = of_pool;
    of_host_code.stream = NULL;
    of_host_code.kind = WARP_MEMORY_PINNED;
    CHECK_STATUS(warp_alloc_with(cpu(), 4096, &of_host_code, &locked), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc_with(cpu(), 4096, &of_host_code, &locked_too), WARP_SUCCESS);
    of_host_code.kind = WARP_MEMORY_UNKNOWN;
    CHECK_STATUS(make_nothing(WARP_MEMORY_HOST, WARP_ALLOCATOR_HOST_MEMORY, at_host, &of_host_code.allocator), WARP_SUCCESS);
    CHECK_STATUS(make_nothing(WARP_MEMORY_CUDA_DEVICE, WARP_ALLOCATOR_STREAM_ORDERED | WARP_ALLOCATOR_MANAGES_CONTEXT,
                              (void *)(uintptr_t)0x100000000000, &of_gpu_code.allocator),
                 WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_limit(of_gpu_code.allocator, MIB, &of_limit.allocator), WARP_SUCCESS);
    CHECK_STATUS(warp_array_empty(gpu(0), f32, 1, shape, NULL, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_empty(gpu(0), f32, 1, shape, NULL, &another), WARP_SUCCESS);
}

static void end_test(void)
{
    void *const blocks[] = {block, second, locked, locked_too};
    size_t i;
    for (i = 0; i < sizeof blocks / sizeof *blocks; ++i)
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_release(another), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(of_limit.allocator), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(of_gpu_code.allocator), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(of_host_code.allocator), WARP_SUCCESS);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_set_current(gpu(0), NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

PROCESS_TEST(frequent_calls_allocate_nothing)
{
    enum { ROUNDS = 500 };
    void *made_now;
    size_t which;
    int i, before;
    begin_test();
    /* Host memory comes from the C library: were that not counted, all else would say nothing. */
    before = library_allocations;
    CHECK_STATUS(warp_alloc(cpu(), 4096, &made_now), WARP_SUCCESS);
    CHECK(!counts || library_allocations == before + 1);
    CHECK_STATUS(warp_free(made_now), WARP_SUCCESS);
    for (which = 0; which < sizeof calls_made / sizeof *calls_made; ++which) {
        /* What is made once, and kept, is not counted. */
        for (i = 0; i < 50; ++i)
            calls_made[which].call();
        before = library_allocations;
        for (i = 0; i < ROUNDS; ++i)
            calls_made[which].call();
        if (counts && library_allocations != before) {
            printf("%s: %d allocations in %d rounds\n", calls_made[which].name, library_allocations - before, ROUNDS);
            CHECK(library_allocations == before);
        }
    }
    end_test();
}

CHECK_MAIN()
