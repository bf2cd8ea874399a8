/*
 * library_driver.c: the driver that is chosen or the reason why there is none, what a driver lacks, and the report. Cases MP-04
 * and, as far as the report is about it, MP-01.
 *
 * needs: simulator
 * valgrind: no (sixty processes that load a driver each, for a minute; library.c is a few of them)
 */
#define _GNU_SOURCE

#include "devices.h"
#include "driver.h"
#include "driver_without.h"
#include "process.h"
#include "report.h"

#include <warpmem.h>

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

uint32_t cuStreamBeginCapture_v2(CUstream stream, int32_t mode);
uint32_t cuStreamEndCapture(CUstream stream, void **out);
uint32_t cuGraphDestroy(void *graph);

/* Drivers before 12.3 lack some of what captures need: they are refused before they begin, all else works, and captures of
 * other code are left alone. */
static void check_captures_refused_without(const char *name)
{
    warp_device *gpu = NULL;
    warp_stream *stream = NULL;
    warp_capture_info capture = {.struct_size = sizeof capture};
    warp_alloc_options options = {.struct_size = sizeof options};
    void *block = NULL, *graph = NULL;
    CUcontext context = NULL;
    CUstream native = NULL;
    start_without(name);
    REQUIRE_STATUS(warp_device_get("cuda:1", &gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_create(gpu, NULL, &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_capture_begin(stream, WARP_CAPTURE_RELAXED), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "12.3");
    CHECK_STATUS(warp_capture_adopt(stream, 0), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(warp_capture_query_info(stream, &capture), WARP_SUCCESS);
    CHECK_EQ_I64(capture.state, WARP_CAPTURE_STATE_NONE);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuStreamBeginCapture_v2"), 0);
    CHECK_STATUS(warp_alloc(gpu, 64, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    /* Other code can capture, and nothing of the library breaks that. */
    CHECK_STATUS(warp_device_get_native_context(gpu, &context), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context), 0);
    CHECK_EQ_U64(SIMULATOR(cuStreamCreate)(&native, 1), 0);
    CHECK_STATUS(warp_stream_wrap(gpu, native, &stream), WARP_SUCCESS);
    options.stream = stream;
    for (options.kind = WARP_MEMORY_CUDA_DEVICE; options.kind <= WARP_MEMORY_CUDA_MANAGED; ++options.kind) {
        void *before = NULL;
        CHECK_STATUS(warp_alloc_with(gpu, 64, &options, &before), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuStreamBeginCapture_v2)(native, 0), 0);
        CHECK_STATUS(warp_capture_query_info(stream, &capture), WARP_SUCCESS);
        CHECK_EQ_I64(capture.state, WARP_CAPTURE_STATE_ACTIVE);
        CHECK(warp_alloc_with(gpu, 64, &options, &block) != WARP_SUCCESS);
        CHECK_EQ_PTR(block, NULL);
        CHECK(warp_memory_fill(before, 64, "x", 1, stream) != WARP_SUCCESS);
        CHECK(warp_stream_synchronize(stream) != WARP_SUCCESS);
        CHECK_STATUS(warp_free(before), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(cuStreamEndCapture)(native, &graph), 0);
        CHECK_EQ_U64(SIMULATOR(cuGraphDestroy)(graph), 0);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuStreamDestroy_v2)(native), 0);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(a_driver_that_cannot_capture_into_a_graph_has_no_captures)
{
    check_captures_refused_without("cuStreamBeginCaptureToGraph");
}

PROCESS_TEST(a_driver_without_edges_of_captures_has_no_captures)
{
    check_captures_refused_without("cuStreamGetCaptureInfo_v3");
}

PROCESS_TEST(a_driver_without_uuids_serves) { check_serves_without("cuDeviceGetUuid_v2"); }
PROCESS_TEST(a_driver_without_bus_ids_serves) { check_serves_without("cuDeviceGetPCIBusId"); }
PROCESS_TEST(a_driver_without_stream_flags_serves) { check_serves_without("cuStreamGetFlags"); }
PROCESS_TEST(a_driver_without_priority_ranges_serves) { check_serves_without("cuCtxGetStreamPriorityRange"); }
PROCESS_TEST(a_driver_without_error_names_serves) { check_serves_without("cuGetErrorName"); }
PROCESS_TEST(a_driver_without_peer_questions_serves) { check_serves_without("cuDeviceCanAccessPeer"); }

/* What a driver does not have is refused where it is needed, with its name or as what it is for; nothing is guessed. */
static void check_served_or_refused(warp_status status, const char *name, int line)
{
    if (status == WARP_SUCCESS)
        return;
    if (status != WARP_ERROR_NOT_SUPPORTED || (strstr(warp_error_get_message(), name) == NULL &&
                                               strstr(warp_error_get_message(), "no memory pools") == NULL &&
                                               strstr(warp_error_get_message(), "cannot be peers") == NULL)) {
        check_note_failure();
        printf("\n    line %d: without %s: %s: %s", line, name, warp_status_get_name(status), warp_error_get_message());
    }
}
#define SERVED_OR_REFUSED(call) check_served_or_refused((call), name, __LINE__)

/* MP-04: pools and access between GPUs on a driver that lacks one of their names. */
static void check_pools_and_peers_without(const char *name)
{
    static const int32_t kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    warp_device *first = NULL, *second = NULL;
    warp_mempool *pool = NULL;
    warp_mempool_memory_info memory = {.struct_size = sizeof memory};
    char bytes[64], back[64];
    void *blocks[2] = {NULL, NULL};
    uint64_t threshold = 0;
    size_t i;
    int on;
    start_without(name);
    REQUIRE_STATUS(warp_device_get("cuda:0", &first), WARP_SUCCESS);
    REQUIRE_STATUS(warp_device_get("cuda:1", &second), WARP_SUCCESS);
    for (on = 1; on >= 0; --on) {
        uint8_t answer = 9;
        SERVED_OR_REFUSED(warp_mempool_set_enabled(first, (uint8_t)on));
        SERVED_OR_REFUSED(warp_peer_access_set_enabled(first, second, (uint8_t)on));
        SERVED_OR_REFUSED(warp_mempool_access_set_enabled(first, second, (uint8_t)on));
        SERVED_OR_REFUSED(warp_peer_access_is_supported(first, second, &answer));
        SERVED_OR_REFUSED(warp_peer_access_query_enabled(first, second, &answer));
        SERVED_OR_REFUSED(warp_mempool_access_is_supported(first, second, &answer));
        SERVED_OR_REFUSED(warp_mempool_access_query_enabled(first, second, &answer));
        SERVED_OR_REFUSED(warp_access_can_device(second, first, &answer));
    }
    SERVED_OR_REFUSED(warp_mempool_create(first, NULL, &pool));
    if (pool != NULL)
        SERVED_OR_REFUSED(warp_mempool_release(pool));
    SERVED_OR_REFUSED(warp_mempool_query_memory_of_device(first, &memory));
    SERVED_OR_REFUSED(warp_mempool_trim_of_device(first, 0));
    SERVED_OR_REFUSED(warp_mempool_set_release_threshold_of_device(first, 1000));
    SERVED_OR_REFUSED(warp_mempool_query_release_threshold_of_device(first, &threshold));
    /* Plain memory and copies need none of it, and nothing is said to be accessible that is not. */
    memset(bytes, 7, sizeof bytes);
    for (i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        warp_alloc_options options = {.struct_size = sizeof options, .kind = kinds[i]};
        warp_status status = warp_alloc_with(first, 64, &options, &blocks[0]);
        uint8_t reached = 9;
        SERVED_OR_REFUSED(status);
        CHECK(status == WARP_SUCCESS || i != 0);
        if (status != WARP_SUCCESS)
            continue;
        CHECK_STATUS(warp_alloc(second, 64, &blocks[1]), WARP_SUCCESS);
        memset(back, 0, sizeof back);
        CHECK_STATUS(warp_memory_copy(blocks[0], bytes, 64, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(first), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(blocks[1], blocks[0], 64, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(back, blocks[1], 64, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(second), WARP_SUCCESS);
        CHECK(memcmp(back, bytes, 64) == 0);
        CHECK_STATUS(warp_access_can_pointer(second, blocks[0], &reached), WARP_SUCCESS);
        /* What was enabled above can be disabled, but for the driver that lacks just that. */
        CHECK(reached == 0 || kinds[i] == WARP_MEMORY_CUDA_MANAGED || strcmp(name, "cuCtxDisablePeerAccess") == 0);
        CHECK_STATUS(warp_free(blocks[0]), WARP_SUCCESS);
        CHECK_STATUS(warp_free(blocks[1]), WARP_SUCCESS);
    }
    CHECK_EQ_PTR(driver_current(), NULL);
}

#define WITHOUT(name) \
    PROCESS_TEST(pools_and_peers_without_##name) { check_pools_and_peers_without(#name); }

WITHOUT(cuDeviceGetMemPool)
WITHOUT(cuMemPoolTrimTo)
WITHOUT(cuMemPoolGetAttribute)
WITHOUT(cuMemPoolSetAttribute)
WITHOUT(cuMemPoolGetAccess)
WITHOUT(cuMemPoolSetAccess)
WITHOUT(cuMemPoolCreate)
WITHOUT(cuMemPoolDestroy)
WITHOUT(cuDeviceCanAccessPeer)
WITHOUT(cuCtxEnablePeerAccess)
WITHOUT(cuCtxDisablePeerAccess)
WITHOUT(cuPointerGetAttribute)
WITHOUT(cuMemAllocManaged)

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

CHECK_MAIN()
