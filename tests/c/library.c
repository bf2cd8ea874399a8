/*
 * library.c: starting and ending, the lives of the library in a process, and that looking makes no context.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "devices.h"
#include "driver.h"
#include "process.h"
#include "report.h"

#include <warpmem.h>

/* ---- Counting --------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(init_is_counted_and_only_the_first_looks_at_its_options)
{
    warp_init_options no_cuda = {.struct_size = sizeof no_cuda, .flags = WARP_INIT_DISABLE_CUDA};
    uint8_t ignored = 9, started = 9;
    size_t count = 0;
    CHECK_STATUS(warp_library_is_initialized(&started), WARP_SUCCESS);
    CHECK_EQ_U64(started, 0);
    CHECK_STATUS(warp_init(NULL, &ignored), WARP_SUCCESS);
    CHECK_EQ_U64(ignored, 0);
    CHECK_STATUS(warp_init(&no_cuda, &ignored), WARP_SUCCESS);
    CHECK_EQ_U64(ignored, 1);
    CHECK_STATUS(warp_init(NULL, &ignored), WARP_SUCCESS);
    CHECK_EQ_U64(ignored, 1);
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 2);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_library_is_initialized(&started), WARP_SUCCESS);
    CHECK_EQ_U64(started, 1);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_library_is_initialized(&started), WARP_SUCCESS);
    CHECK_EQ_U64(started, 0);
    /* One too many, and the next life begins as if it had not been. */
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_init(NULL, &ignored), WARP_SUCCESS);
    CHECK_EQ_U64(ignored, 0);
    CHECK_STATUS(warp_library_is_initialized(&started), WARP_SUCCESS);
    CHECK_EQ_U64(started, 1);
}

PROCESS_TEST(shutdown_without_init_says_so)
{
    CHECK_STATUS(warp_shutdown(), WARP_ERROR_NOT_INITIALIZED);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
}

PROCESS_TEST(a_failed_init_starts_nothing_and_is_not_counted)
{
    warp_init_options options = {.struct_size = sizeof options, .flags = 0x80};
    uint8_t ignored = 9, started = 9;
    CHECK_STATUS(warp_init(&options, &ignored), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(ignored, 0);
    CHECK_STR_CONTAINS(warp_error_get_message(), "0x80");
    options.flags = 0;
    options.log_level = 5;
    CHECK_STATUS(warp_init(&options, NULL), WARP_ERROR_INVALID_ARGUMENT);
    options.log_level = -1;
    CHECK_STATUS(warp_init(&options, NULL), WARP_ERROR_INVALID_ARGUMENT);
    options.log_level = INT32_MIN;
    CHECK_STATUS(warp_init(&options, NULL), WARP_ERROR_INVALID_ARGUMENT);
    options.log_level = 0;
    options.struct_size = 0;
    CHECK_STATUS(warp_init(&options, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_library_is_initialized(&started), WARP_SUCCESS);
    CHECK_EQ_U64(started, 0);
    CHECK_STATUS(warp_shutdown(), WARP_ERROR_NOT_INITIALIZED);
}

PROCESS_TEST(a_later_init_with_bad_options_fails_and_is_not_counted)
{
    warp_init_options options = {.struct_size = sizeof options, .flags = 0x80};
    uint8_t started = 9;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_init(&options, NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_library_is_initialized(&started), WARP_SUCCESS);
    CHECK_EQ_U64(started, 0);
}

PROCESS_TEST(a_thousand_lives_leave_the_library_whole)
{
    int life;
    for (life = 0; life < 1000; ++life) {
        warp_device *gpu = NULL;
        void *block = NULL;
        REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        REQUIRE_STATUS(warp_device_get("cuda:1", &gpu), WARP_SUCCESS);
        REQUIRE_STATUS(warp_alloc(gpu, 512, &block), WARP_SUCCESS);
        REQUIRE_STATUS(warp_free(block), WARP_SUCCESS);
        REQUIRE_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    /* Default streams go with their life. */
    CHECK(SIMULATOR(warpsim_live_count)("stream") <= 2);
    CHECK(SIMULATOR(warpsim_live_count)("event") <= 16);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

/* ---- Lives ------------------------------------------------------------------------------------------------------------- */

static void call_back_in(void *told, warp_log_level level, const char *message)
{
    warp_stream *current = NULL;
    ++*(int *)told;
    CHECK(level >= WARP_LOG_ERROR && level <= WARP_LOG_DEBUG && message[0] != 0);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_current(NULL, &current), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

PROCESS_TEST(a_message_finds_no_lock_held)
{
    int told = 0;
    warp_init_options options = {.struct_size = sizeof options, .log_level = WARP_LOG_DEBUG};
    options.log = call_back_in;
    options.log_user = &told;
    CHECK_STATUS(warp_init(&options, NULL), WARP_SUCCESS);
    CHECK(told > 0);
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, WARP_LOG_ERROR), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

PROCESS_TEST(handles_of_the_first_life_are_stale_and_its_blocks_can_be_freed)
{
    warp_device *cpu = NULL, *gpu = NULL, *again = NULL;
    warp_stream *stream = NULL, *current = NULL;
    warp_device_info info = {.struct_size = sizeof info};
    warp_stream_info stream_info = {.struct_size = sizeof stream_info};
    warp_statistics counts = {.struct_size = sizeof counts};
    warp_alloc_options on_stream = {.struct_size = sizeof on_stream};
    warp_alloc_options plain = {.struct_size = sizeof plain, .kind = WARP_MEMORY_CUDA_DEVICE};
    warp_alloc_options managed = {.struct_size = sizeof managed, .kind = WARP_MEMORY_CUDA_MANAGED};
    warp_alloc_options pinned = {.struct_size = sizeof pinned, .kind = WARP_MEMORY_PINNED};
    void *blocks[10] = {NULL};
    size_t i;

    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    REQUIRE_STATUS(warp_device_get("cpu", &cpu), WARP_SUCCESS);
    REQUIRE_STATUS(warp_device_get("cuda:1", &gpu), WARP_SUCCESS);
    REQUIRE_STATUS(warp_stream_create(gpu, NULL, &stream), WARP_SUCCESS);
    REQUIRE_STATUS(warp_stream_get_current(gpu, &current), WARP_SUCCESS);
    on_stream.stream = stream;
    for (i = 0; i < 2; ++i) {
        CHECK_STATUS(warp_alloc(cpu, 1000, &blocks[5 * i]), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc_with(cpu, 1000, &pinned, &blocks[5 * i + 1]), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc_with(gpu, 1000, &on_stream, &blocks[5 * i + 2]), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc_with(gpu, 1000, &plain, &blocks[5 * i + 3]), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc_with(gpu, 1000, &managed, &blocks[5 * i + 4]), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_statistics_get(gpu, WARP_MEMORY_UNKNOWN, &counts), WARP_SUCCESS);
    CHECK_EQ_U64(counts.live_blocks, 6);
    CHECK_EQ_U64(counts.live_bytes, 6000);
    CHECK_STATUS(warp_statistics_get(cpu, WARP_MEMORY_PINNED, &counts), WARP_SUCCESS);
    CHECK_EQ_U64(counts.live_blocks, 2);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);

    /* Between the lives: nothing new, but the blocks are known and can be freed. */
    for (i = 0; i < 5; ++i) {
        warp_pointer_info where = {.struct_size = sizeof where};
        CHECK_STATUS(warp_pointer_get_info((char *)blocks[i] + 1, &where), WARP_SUCCESS);
        CHECK_EQ_PTR(where.base, blocks[i]);
        CHECK_EQ_U64(where.size, 1000);
        CHECK_EQ_U64(where.is_owned, 1);
        CHECK_EQ_PTR(where.device, NULL);
        CHECK_EQ_U64(where.is_lost, 0);
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
        CHECK_STATUS(warp_free(blocks[i]), WARP_ERROR_DOUBLE_FREE);
    }
    CHECK_STATUS(warp_free(&info), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("managed"), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pinned"), 1);

    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_info(gpu, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "stale");
    CHECK_STATUS(warp_device_get_info(cpu, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_get_info(stream, &stream_info), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_get_info(current, &stream_info), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_release(stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_device_get("cuda:1", &again), WARP_SUCCESS);
    CHECK(again != gpu);
    for (i = 5; i < 10; ++i) {
        warp_pointer_info where = {.struct_size = sizeof where};
        CHECK_STATUS(warp_pointer_get_info(blocks[i], &where), WARP_SUCCESS);
        CHECK_EQ_U64(where.size, 1000);
        CHECK_EQ_U64(where.is_owned, 1);
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
    }
    /* What the first life made does not count below zero in the second. */
    CHECK_STATUS(warp_statistics_get(again, WARP_MEMORY_UNKNOWN, &counts), WARP_SUCCESS);
    CHECK_EQ_U64(counts.live_blocks, 0);
    CHECK_EQ_U64(counts.live_bytes, 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(a_life_without_gpus_after_one_with_them)
{
    warp_init_options no_cuda = {.struct_size = sizeof no_cuda, .flags = WARP_INIT_DISABLE_CUDA};
    warp_device *gpu = NULL;
    void *block = NULL;
    size_t count = 9;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    REQUIRE_STATUS(warp_device_get("cuda:0", &gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu, 1000, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    REQUIRE_STATUS(warp_init(&no_cuda, NULL), WARP_SUCCESS);
    check_cpu_only("CUDA not used, as the init options ask");
    /* What the other life allocated is still given back to the driver. */
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 2);
    CHECK_STR_CONTAINS(report(), "CUDA Driver 13.0");
    /* The reason of a former life is none of this one. */
    CHECK_STATUS(warp_device_get("cuda:7", &gpu), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK(strstr(warp_error_get_message(), "not used") == NULL);
}

PROCESS_TEST(a_life_with_gpus_after_one_that_found_no_driver)
{
    warp_init_options nowhere = {.struct_size = sizeof nowhere, .driver_path = "/nonexistent/libcuda.so.1"};
    warp_device *gpu = NULL;
    void *block = NULL;
    REQUIRE_STATUS(warp_init(&nowhere, NULL), WARP_SUCCESS);
    check_cpu_only("CUDA driver not found (");
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get("cuda:0", &gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu, 1000, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK(strstr(report(), "not found") == NULL);
    CHECK_STATUS(warp_device_get("cuda:7", &gpu), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK(strstr(warp_error_get_message(), "not found") == NULL);
}

/* ---- No context before there is a need ----------------------------------------------------------------------------------- */

/* Every question about capabilities, pools and access between two devices. */
static void ask_about(warp_device *device, warp_device *other)
{
    uint8_t answer = 9;
    CHECK_STATUS(warp_mempool_is_supported(device, &answer), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_is_enabled(device, &answer), WARP_SUCCESS);
    CHECK_STATUS(warp_peer_access_is_supported(device, other, &answer), WARP_SUCCESS);
    CHECK_STATUS(warp_peer_access_query_enabled(device, other, &answer), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_access_is_supported(device, other, &answer), WARP_SUCCESS);
    CHECK_STATUS(warp_mempool_access_query_enabled(device, other, &answer), WARP_SUCCESS);
    CHECK_STATUS(warp_access_can_device(device, other, &answer), WARP_SUCCESS);
    CHECK_STATUS(warp_access_can_pointer(device, &answer, &answer), WARP_SUCCESS);
}

/* MP-07. */
PROCESS_TEST(looking_makes_no_context)
{
    size_t count = 0, i, other;
    int32_t active = 9;
    uint32_t flags;
    warp_device *device = NULL, *gpu = NULL, *cpu = NULL;
    warp_device_info info = {.struct_size = sizeof info};
    warp_alloc_options pinned = {.struct_size = sizeof pinned, .kind = WARP_MEMORY_PINNED};
    void *block = NULL, *page = NULL;
    start_on("h200x2,gpus=8");
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 9);
    for (i = 0; i < count; ++i) {
        CHECK_STATUS(warp_device_get_at(i, &device), WARP_SUCCESS);
        CHECK_STATUS(warp_device_get_info(device, &info), WARP_SUCCESS);
        CHECK_EQ_U64(info.has_context, 0);
        CHECK_EQ_U64(info.context_id, 0);
        CHECK(info.total_memory != 0);
        CHECK_STATUS(warp_device_synchronize(device), WARP_SUCCESS);
        for (other = 0; other < count; ++other) {
            warp_device *peer = NULL;
            CHECK_STATUS(warp_device_get_at(other, &peer), WARP_SUCCESS);
            ask_about(device, peer);
        }
    }
    report();
    CHECK_STATUS(warp_device_get("cuda", &device), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get(NULL, &device), WARP_SUCCESS);
    CHECK_STATUS(warp_device_set_default(device), WARP_SUCCESS);
    CHECK_STATUS(warp_device_set_for_thread(device), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(device, 0, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_get_info(&info, &(warp_pointer_info){.struct_size = sizeof(warp_pointer_info)}), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuDevicePrimaryCtxRetain"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuCtxCreate_v2"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);

    REQUIRE_STATUS(warp_device_get("cuda:3", &gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu, 1000, &block), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuDevicePrimaryCtxRetain"), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 1);
    CHECK(SIMULATOR(cuDevicePrimaryCtxGetState)(3, &flags, &active) == 0);
    CHECK_EQ_I64(active, 1);
    CHECK_EQ_PTR(driver_current(), NULL);

    /* Pinned memory goes to a context that is there, and makes none on GPU 0. */
    REQUIRE_STATUS(warp_device_get("cpu", &cpu), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc_with(cpu, 1000, &pinned, &page), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 1);
    CHECK_EQ_PTR(driver_current(), NULL);
    CHECK_STATUS(warp_free(page), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

PROCESS_TEST(a_question_about_memory_leaves_no_context)
{
    warp_device *gpu = NULL;
    uint64_t available = 0, total = 0;
    start_on("h200x2");
    REQUIRE_STATUS(warp_device_get("cuda:1", &gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_device_query_memory(gpu, &available, &total), WARP_SUCCESS);
    CHECK_EQ_U64(total, UINT64_C(150109880320));
    CHECK(available > 0 && available <= total);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

CHECK_MAIN()
