/*
 * library.c: starting and ending, the driver that is chosen or the reason why there is none, the report.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "devices.h"
#include "driver.h"
#include "process.h"

#include <warpmem.h>

/* "model name" of the machine, as the report has it. */
static const char *cpu_name(void)
{
    static char name[512];
    FILE *file;
    if (name[0] != '\0')
        return name;
    strcpy(name, "CPU");
    file = fopen("/proc/cpuinfo", "r");
    if (file != NULL) {
        char line[512];
        while (fgets(line, sizeof line, file) != NULL) {
            char *value = strchr(line, ':');
            if (strncmp(line, "model name", 10) == 0 && value != NULL) {
                value += strspn(value, ": \t");
                value[strcspn(value, "\n")] = '\0';
                if (value[0] != '\0')
                    strcpy(name, value);
                break;
            }
        }
        fclose(file);
    }
    return name;
}

/* The report, to be compared at once. */
static const char *report(void)
{
    static char text[8192];
    size_t needed = 0;
    text[0] = '\0';
    CHECK_STATUS(warp_library_get_report(text, sizeof text, &needed), WARP_SUCCESS);
    CHECK_EQ_U64(needed, strlen(text) + 1);
    return text;
}

/* The report with the CPU's own line put in for %s. */
static void check_report(const char *expected)
{
    char text[8192];
    snprintf(text, sizeof text, expected, cpu_name());
    CHECK_EQ_STR(report(), text);
}

/* A library without a usable GPU: the report has the reason, once; the CPU serves; GPUs are refused with it. */
static void check_cpu_only(const char *reason)
{
    char expected[4096];
    const char *text = report();
    const char *found;
    size_t count = 0;
    warp_device *device = (warp_device *)1;
    void *block = NULL;
    warp_alloc_options pinned = {.struct_size = sizeof pinned, .kind = WARP_MEMORY_PINNED};

    CHECK_STR_CONTAINS(text, reason);
    found = strstr(text, reason);
    CHECK(found == NULL || strstr(found + 1, reason) == NULL);
    /* First line, reason, "Devices:", the CPU: no line more. */
    snprintf(expected, sizeof expected, "   Devices:\n     \"cpu\"      : \"%s\"\n", cpu_name());
    CHECK_STR_CONTAINS(text, expected);
    {
        size_t lines = 0;
        const char *at;
        for (at = text; *at != '\0'; ++at)
            lines += *at == '\n';
        CHECK_EQ_U64(lines, 4);
    }
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 1);
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 0);
    CHECK_STATUS(warp_device_get("cuda:0", &device), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_EQ_PTR(device, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), reason);
    CHECK_STATUS(warp_device_get("cuda", &device), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_STR_CONTAINS(warp_error_get_message(), reason);
    CHECK_STATUS(warp_device_from_context(&count, NULL, &device), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_STR_CONTAINS(warp_error_get_message(), reason);
    CHECK_STATUS(warp_alloc_with(NULL, 64, &pinned, &block), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), reason);
    CHECK_STR_CONTAINS(warp_error_get_message(), "WARP_MEMORY_HOST");
    CHECK_EQ_PTR(block, NULL);
    CHECK_STATUS(warp_alloc(NULL, 4096, &block), WARP_SUCCESS);
    REQUIRE(block != NULL);
    memset(block, 1, 4096);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

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

/* ---- Which driver, and why none ---------------------------------------------------------------------------------------- */

PROCESS_TEST(the_option_names_the_driver_before_the_environment)
{
    char path[4096];
    warp_init_options options = {.struct_size = sizeof options, .driver_path = path};
    size_t count = 0;
    snprintf(path, sizeof path, "%s", getenv("WARPMEM_LIBCUDA"));
    setenv("WARPMEM_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    REQUIRE_STATUS(warp_init(&options, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 2);
}

PROCESS_TEST(without_both_the_systems_name_is_opened)
{
    /* Its SONAME makes this copy the one that libcuda.so.1 stands for. */
    void *file = dlopen(getenv("WARPMEM_LIBCUDA"), RTLD_NOW | RTLD_GLOBAL);
    size_t count = 0;
    REQUIRE(file != NULL);
    unsetenv("WARPMEM_LIBCUDA");
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 2);
}

PROCESS_TEST(an_empty_variable_is_no_variable)
{
    void *file = dlopen(getenv("WARPMEM_LIBCUDA"), RTLD_NOW | RTLD_GLOBAL);
    size_t count = 0;
    REQUIRE(file != NULL);
    setenv("WARPMEM_LIBCUDA", "", 1);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 2);
}

PROCESS_TEST(no_library_is_a_reason)
{
    setenv("WARPMEM_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    check_cpu_only("CUDA driver not found (");
    check_report("warpmem 0.1.0 initialized:\n"
                 "   CUDA driver not found (/nonexistent/libcuda.so.1: cannot open shared object file: No such file or "
                 "directory)\n"
                 "   Devices:\n"
                 "     \"cpu\"      : \"%s\"\n");
}

PROCESS_TEST(a_file_that_is_no_library_is_a_reason)
{
    setenv("WARPMEM_LIBCUDA", "/proc/self/status", 1);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    check_cpu_only("CUDA driver not found (");
}

PROCESS_TEST(a_library_that_is_no_driver_is_a_reason)
{
    setenv("WARPMEM_LIBCUDA", "libm.so.6", 1);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    check_cpu_only("CUDA driver libm.so.6 ");
    CHECK(strlen(report()) < 1024);
}

PROCESS_TEST(a_stub_is_a_reason)
{
    start_on("h200x2,init_code=34");
    check_cpu_only("is the toolkit's stub, not a driver (code 34)");
}

PROCESS_TEST(an_old_driver_is_a_reason)
{
    start_on("h200x2,driver=11080");
    check_cpu_only("CUDA driver 11.8 is too old (12.0 or newer is needed)");
    check_report("warpmem 0.1.0 initialized:\n"
                 "   CUDA driver 11.8 is too old (12.0 or newer is needed)\n"
                 "   Devices:\n"
                 "     \"cpu\"      : \"%s\"\n");
}

PROCESS_TEST(the_oldest_driver_that_serves)
{
    warp_device *gpu = NULL;
    void *block = NULL;
    start_on("h200x2,driver=12000");
    CHECK_STR_CONTAINS(report(), "   CUDA Driver 12.0\n");
    CHECK_STATUS(warp_device_get("cuda:0", &gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu, 1000, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

PROCESS_TEST(a_newer_driver_serves_too)
{
    start_on("h200x2,driver=14020");
    CHECK_STR_CONTAINS(report(), "   CUDA Driver 14.2\n");
}

PROCESS_TEST(a_code_of_cuInit_is_a_reason)
{
    start_on("h200x2,init_code=999");
    check_cpu_only("CUDA driver failed to initialize (CUDA_ERROR_UNKNOWN (999) from cuInit");
}

PROCESS_TEST(a_code_that_nobody_knows_is_a_reason)
{
    setenv("WARPSIM_FAIL", "cuInit:1:7777", 1);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    check_cpu_only("CUDA driver failed to initialize (code 7777 from cuInit)");
}

PROCESS_TEST(a_driver_that_cannot_count_is_a_reason)
{
    setenv("WARPSIM_FAIL", "cuDeviceGetCount:1:999", 1);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    check_cpu_only("CUDA driver failed to initialize (CUDA_ERROR_UNKNOWN (999) from cuDeviceGetCount");
}

PROCESS_TEST(no_devices_is_a_reason)
{
    start_on("none");
    check_cpu_only("CUDA devices not available");
    check_report("warpmem 0.1.0 initialized:\n"
                 "   CUDA devices not available (Driver 13.0)\n"
                 "   Devices:\n"
                 "     \"cpu\"      : \"%s\"\n");
}

PROCESS_TEST(no_devices_of_a_driver_without_a_version)
{
    setenv("WARPSIM_FAIL", "cuDriverGetVersion:0:999", 1);
    start_on("none");
    check_cpu_only("CUDA devices not available");
    CHECK(strstr(report(), "0.0)") == NULL);
}

PROCESS_TEST(a_count_of_zero_is_no_devices)
{
    start_on("h200x2,gpus=0");
    check_cpu_only("CUDA devices not available");
}

PROCESS_TEST(a_device_that_cannot_be_described_is_left_out)
{
    size_t count = 0;
    warp_device *device = NULL;
    setenv("WARPSIM_FAIL", "cuDeviceGetName:1:999", 1);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 1);
    CHECK_STATUS(warp_device_get("cuda:0", &device), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_STATUS(warp_device_get("cuda:1", &device), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get("cuda", &device), WARP_SUCCESS);
    CHECK_STR_CONTAINS(report(), "\"cuda:1\"");
}

PROCESS_TEST(every_device_left_out_is_a_reason)
{
    setenv("WARPSIM_FAIL", "cuDeviceGetName:0:999", 1);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    check_cpu_only("CUDA devices not available");
}

/* Writes a copy of the simulated driver in which a name cannot be found. Whether that was possible. */
static int driver_without(const char *name, const char *copy)
{
    FILE *from = fopen(getenv("WARPMEM_LIBCUDA"), "rb"), *to = fopen(copy, "wb");
    char *bytes = NULL;
    long size = 0;
    int hidden = 0;
    size_t length = strlen(name) + 2, at;
    if (from != NULL && to != NULL && fseek(from, 0, SEEK_END) == 0 && (size = ftell(from)) > 0) {
        rewind(from);
        bytes = (char *)malloc((size_t)size);
        if (bytes != NULL && fread(bytes, 1, (size_t)size, from) == (size_t)size) {
            char *pattern = (char *)calloc(1, length);
            if (pattern != NULL) {
                memcpy(pattern + 1, name, length - 2);
                /* The name in the table of dynamic symbols: whole, between two NULs. */
                for (at = 0; at + length <= (size_t)size; ++at) {
                    if (bytes[at] == 0 && memcmp(bytes + at, pattern, length) == 0) {
                        bytes[at + 1] = '_';
                        hidden = 1;
                    }
                }
                free(pattern);
            }
            hidden = hidden && fwrite(bytes, 1, (size_t)size, to) == (size_t)size;
        }
    }
    free(bytes);
    if (from != NULL)
        fclose(from);
    if (to != NULL && fclose(to) != 0)
        hidden = 0;
    return hidden;
}

static void start_without(const char *name)
{
    char copy[4096];
    REQUIRE(process_make_file(copy, sizeof copy));
    REQUIRE(driver_without(name, copy));
    setenv("WARPMEM_LIBCUDA", copy, 1);
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    (void)simulator_is_here(); /* opened once more, before its name is gone */
    SIMULATOR(warpsim_log_clear)();
    unlink(copy);
}

PROCESS_TEST(a_driver_without_a_required_name_is_a_reason)
{
    start_without("cuCtxGetId");
    check_cpu_only("lacks cuCtxGetId");
}

PROCESS_TEST(a_driver_without_cuInit_is_a_reason)
{
    start_without("cuInit");
    check_cpu_only("lacks cuInit");
}

PROCESS_TEST(a_driver_without_pools_turns_off_pools_only)
{
    warp_device *gpu = NULL;
    void *block = NULL;
    warp_pointer_info where = {.struct_size = sizeof where};
    warp_alloc_options pool = {.struct_size = sizeof pool, .kind = WARP_MEMORY_CUDA_MEMPOOL};
    start_without("cuMemAllocFromPoolAsync");
    CHECK_STR_CONTAINS(report(), "(140 GiB, sm_90, mempool not supported)");
    CHECK_STATUS(warp_device_get("cuda:0", &gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc_with(gpu, 64, &pool, &block), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_alloc(gpu, 64, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_get_info(block, &where), WARP_SUCCESS);
    CHECK_EQ_I64(where.kind, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

PROCESS_TEST(a_driver_without_managed_memory_turns_off_that_only)
{
    warp_device *gpu = NULL;
    void *block = (void *)1;
    warp_alloc_options managed = {.struct_size = sizeof managed, .kind = WARP_MEMORY_CUDA_MANAGED};
    start_without("cuMemAllocManaged");
    CHECK_STATUS(warp_device_get("cuda:0", &gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc_with(gpu, 64, &managed, &block), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "cuMemAllocManaged");
    CHECK_EQ_PTR(block, NULL);
    CHECK_STATUS(warp_alloc(gpu, 64, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

/* Names whose absence costs nothing but what they are for. */
static void check_serves_without(const char *name)
{
    warp_device *gpu = NULL;
    warp_stream *stream = NULL;
    warp_stream_info info = {.struct_size = sizeof info};
    void *block = NULL;
    start_without(name);
    REQUIRE_STATUS(warp_device_get("cuda:1", &gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_create(gpu, NULL, &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_info(stream, &info), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu, 64, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STR_CONTAINS(report(), "\"cuda:1\"   : \"NVIDIA H200\"");
}

PROCESS_TEST(a_driver_without_uuids_serves) { check_serves_without("cuDeviceGetUuid_v2"); }
PROCESS_TEST(a_driver_without_bus_ids_serves) { check_serves_without("cuDeviceGetPCIBusId"); }
PROCESS_TEST(a_driver_without_stream_flags_serves) { check_serves_without("cuStreamGetFlags"); }
PROCESS_TEST(a_driver_without_priority_ranges_serves) { check_serves_without("cuCtxGetStreamPriorityRange"); }
PROCESS_TEST(a_driver_without_error_names_serves) { check_serves_without("cuGetErrorName"); }
PROCESS_TEST(a_driver_without_peer_questions_serves) { check_serves_without("cuDeviceCanAccessPeer"); }

PROCESS_TEST(cuda_can_be_turned_off)
{
    warp_init_options options = {.struct_size = sizeof options, .flags = WARP_INIT_DISABLE_CUDA};
    REQUIRE_STATUS(warp_init(&options, NULL), WARP_SUCCESS);
    check_cpu_only("CUDA not used, as the init options ask");
}

/* ---- The report --------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(the_report_of_two_gpus)
{
    start_on("h200x2");
    check_report("warpmem 0.1.0 initialized:\n"
                 "   CUDA Driver 13.0\n"
                 "   Devices:\n"
                 "     \"cpu\"      : \"%s\"\n"
                 "     \"cuda:0\"   : \"NVIDIA H200\" (140 GiB, sm_90, mempool enabled)\n"
                 "     \"cuda:1\"   : \"NVIDIA H200\" (140 GiB, sm_90, mempool enabled)\n"
                 "   CUDA peer access:\n"
                 "     Supported fully (all-directional)\n");
}

PROCESS_TEST(the_report_of_one_gpu)
{
    start_on("gb10");
    check_report("warpmem 0.1.0 initialized:\n"
                 "   CUDA Driver 13.0\n"
                 "   Devices:\n"
                 "     \"cpu\"      : \"%s\"\n"
                 "     \"cuda:0\"   : \"Simulated GB10\" (119 GiB, sm_121, mempool enabled)\n");
}

PROCESS_TEST(the_report_of_a_gpu_without_pools)
{
    start_on("vgpu");
    check_report("warpmem 0.1.0 initialized:\n"
                 "   CUDA Driver 13.0\n"
                 "   Devices:\n"
                 "     \"cpu\"      : \"%s\"\n"
                 "     \"cuda:0\"   : \"Simulated vGPU\" (8 GiB, sm_90, mempool not supported)\n");
}

PROCESS_TEST(the_report_of_mixed_gpus)
{
    start_on("mixed,peers=0");
    check_report("warpmem 0.1.0 initialized:\n"
                 "   CUDA Driver 13.0\n"
                 "   Devices:\n"
                 "     \"cpu\"      : \"%s\"\n"
                 "     \"cuda:0\"   : \"Simulated Discrete GPU\" (24 GiB, sm_86, mempool enabled)\n"
                 "     \"cuda:1\"   : \"Simulated GPU without pools\" (8 GiB, sm_86, mempool not supported)\n"
                 "   CUDA peer access:\n"
                 "     Not supported\n");
}

PROCESS_TEST(the_report_of_partial_peers)
{
    /* A row is a target, a column who reaches it: GPU 0 reaches GPU 2, so row 2 has a 1 in column 0. */
    start_on("partial");
    check_report("warpmem 0.1.0 initialized:\n"
                 "   CUDA Driver 13.0\n"
                 "   Devices:\n"
                 "     \"cpu\"      : \"%s\"\n"
                 "     \"cuda:0\"   : \"Simulated Discrete GPU\" (24 GiB, sm_86, mempool enabled)\n"
                 "     \"cuda:1\"   : \"Simulated Discrete GPU\" (24 GiB, sm_86, mempool enabled)\n"
                 "     \"cuda:2\"   : \"Simulated Discrete GPU\" (24 GiB, sm_86, mempool enabled)\n"
                 "     \"cuda:3\"   : \"Simulated Discrete GPU\" (24 GiB, sm_86, mempool enabled)\n"
                 "   CUDA peer access:\n"
                 "     Supported partially (see access matrix)\n"
                 "     \"cuda:0\"   : [1, 1, 0, 0]\n"
                 "     \"cuda:1\"   : [1, 1, 0, 0]\n"
                 "     \"cuda:2\"   : [1, 0, 1, 1]\n"
                 "     \"cuda:3\"   : [0, 0, 1, 1]\n");
}

PROCESS_TEST(memory_is_rounded_half_to_even)
{
    start_on("h200x2,gpu0.memory=2684354560,gpu1.memory=3758096384");
    CHECK_STR_CONTAINS(report(), "(2 GiB, sm_90");
    CHECK_STR_CONTAINS(report(), "(4 GiB, sm_90");
}

PROCESS_TEST(the_report_of_foreign_contexts)
{
    CUcontext context = NULL;
    warp_device *device = NULL;
    start_on("h200");
    REQUIRE(SIMULATOR(cuCtxCreate_v2)(&context, 0, 0) == 0);
    CHECK_STATUS(warp_device_from_context(context, NULL, &device), WARP_SUCCESS);
    CHECK_STATUS(warp_device_from_context(context, "another name", &device), WARP_ERROR_INVALID_ARGUMENT);
    check_report("warpmem 0.1.0 initialized:\n"
                 "   CUDA Driver 13.0\n"
                 "   Devices:\n"
                 "     \"cpu\"      : \"%s\"\n"
                 "     \"cuda:0\"   : \"NVIDIA H200\" (140 GiB, sm_90, mempool enabled)\n"
                 "     \"cuda:0.0\" : Non-primary context on device \"cuda:0\"\n"
                 "   CUDA peer access:\n"
                 "     Supported fully (all-directional)\n");
}

static void check_pools_of(const char *name, const char *value, const char *expected)
{
    char text[64];
    setenv(name, value, 1);
    start_on("h200x2");
    snprintf(text, sizeof text, "(140 GiB, sm_90, mempool %s)", expected);
    CHECK_STR_CONTAINS(report(), text);
}

#define POOLS "WARPMEM_ENABLE_MEMPOOLS_AT_INIT"
#define OTHER "WARP_ENABLE_MEMPOOLS_AT_INIT"
PROCESS_TEST(pools_off_by_0) { check_pools_of(POOLS, "0", "supported"); }
PROCESS_TEST(pools_off_by_false) { check_pools_of(POOLS, "False", "supported"); }
PROCESS_TEST(pools_off_by_no) { check_pools_of(POOLS, "no", "supported"); }
PROCESS_TEST(pools_on_by_1) { check_pools_of(POOLS, "1", "enabled"); }
PROCESS_TEST(pools_on_by_nothing) { check_pools_of(POOLS, "", "enabled"); }
PROCESS_TEST(pools_off_by_the_other_name) { check_pools_of(OTHER, "0", "supported"); }
PROCESS_TEST(the_own_name_wins)
{
    setenv(OTHER, "0", 1);
    check_pools_of(POOLS, "1", "enabled");
}
PROCESS_TEST(the_own_name_wins_when_it_says_no)
{
    setenv(OTHER, "1", 1);
    check_pools_of(POOLS, "0", "supported");
}

PROCESS_TEST(pools_off_by_option)
{
    warp_init_options options = {.struct_size = sizeof options, .flags = WARP_INIT_DISABLE_MEMPOOLS};
    warp_device *gpu = NULL;
    warp_device_info info = {.struct_size = sizeof info};
    void *block = NULL;
    warp_pointer_info where = {.struct_size = sizeof where};
    warp_alloc_options pool = {.struct_size = sizeof pool, .kind = WARP_MEMORY_CUDA_MEMPOOL};
    setenv(POOLS, "1", 1);
    REQUIRE_STATUS(warp_init(&options, NULL), WARP_SUCCESS);
    CHECK_STR_CONTAINS(report(), "mempool supported)");
    REQUIRE_STATUS(warp_device_get("cuda:0", &gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_info(gpu, &info), WARP_SUCCESS);
    CHECK_EQ_U64(info.is_mempool_supported, 1);
    CHECK_EQ_U64(info.is_mempool_enabled, 0);
    CHECK_STATUS(warp_alloc(gpu, 64, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_get_info(block, &where), WARP_SUCCESS);
    CHECK_EQ_I64(where.kind, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    /* Off is not gone: asked for by name they serve. */
    CHECK_STATUS(warp_alloc_with(gpu, 64, &pool, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_get_info(block, &where), WARP_SUCCESS);
    CHECK_EQ_I64(where.kind, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

PROCESS_TEST(the_report_goes_into_any_buffer)
{
    char text[4096], whole[4096];
    size_t needed = 0, size;
    start_on("h200x2");
    CHECK_STATUS(warp_library_get_report(NULL, 0, &needed), WARP_SUCCESS);
    REQUIRE(needed > 100 && needed < sizeof text);
    CHECK_STATUS(warp_library_get_report(whole, sizeof whole, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(strlen(whole) + 1, needed);
    /* Exactly as much, one less, nothing. */
    memset(text, 'x', sizeof text);
    size = needed;
    CHECK_STATUS(warp_library_get_report(text, size, &needed), WARP_SUCCESS);
    CHECK_EQ_STR(text, whole);
    CHECK_EQ_U64(text[size], 'x');
    memset(text, 'x', sizeof text);
    CHECK_STATUS(warp_library_get_report(text, size - 1, &needed), WARP_SUCCESS);
    CHECK_EQ_U64(needed, size);
    CHECK_EQ_U64(strlen(text), size - 2);
    CHECK_EQ_U64(text[size - 1], 'x');
    CHECK(memcmp(text, whole, size - 2) == 0);
    text[0] = 'x';
    text[1] = 'x';
    CHECK_STATUS(warp_library_get_report(text, 1, &needed), WARP_SUCCESS);
    CHECK_EQ_U64(text[0], 0);
    CHECK_EQ_U64(text[1], 'x');
    CHECK_STATUS(warp_library_get_report(text, 0, &needed), WARP_SUCCESS);
    CHECK_EQ_U64(text[1], 'x');
    needed = 7;
    CHECK_STATUS(warp_library_get_report(NULL, 1, &needed), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(needed, 0);
    CHECK_STATUS(warp_library_get_report(NULL, 0, NULL), WARP_SUCCESS);
}

/* ---- No context before there is a need ----------------------------------------------------------------------------------- */

PROCESS_TEST(looking_makes_no_context)
{
    size_t count = 0, i;
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
