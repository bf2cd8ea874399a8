/*
 * device.c: names, defaults, what is known of a device, and foreign contexts.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "devices.h"
#include "driver.h"
#include "process.h"

#include <pthread.h>
#include <warpmem.h>

static warp_device_info info_of(warp_device *of)
{
    warp_device_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_device_get_info(of, &info), WARP_SUCCESS);
    return info;
}

/* ---- Names ------------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(known_names_are_found_and_others_are_not)
{
    static const char *const bad[] = {"",        "CPU",      "cpu:0",   "cuda:",    "cuda:2",   "cuda:-1",
                                      "cuda:00", "cuda:0 ",  " cuda:0", "cuda:0.0", "gpu",      "cuda:+0",
                                      "Cuda:0",  "cuda:0\n", "cuda0",   "cuda:1e0", "cuda:999999999999999999999"};
    char huge[100001];
    warp_device *found = NULL, *first = NULL;
    size_t i, count = 0;
    start_on("h200x2");
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 3);
    CHECK_STATUS(warp_device_get_at(0, &found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cpu"));
    CHECK_STATUS(warp_device_get_at(1, &found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cuda:0"));
    CHECK_STATUS(warp_device_get_at(2, &found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cuda:1"));
    CHECK_STATUS(warp_device_get_at(3, &found), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_EQ_PTR(found, NULL);
    CHECK_STATUS(warp_device_get_at(SIZE_MAX, &found), WARP_ERROR_NO_SUCH_DEVICE);
    /* The same handle each time. */
    first = device("cuda:1");
    CHECK_EQ_PTR(device("cuda:1"), first);
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        found = first;
        CHECK_STATUS(warp_device_get(bad[i], &found), WARP_ERROR_NO_SUCH_DEVICE);
        CHECK_EQ_PTR(found, NULL);
        CHECK_STR_CONTAINS(warp_error_get_message(), "Invalid device identifier");
        CHECK_STR_CONTAINS(warp_error_get_message(), "\"cpu\", \"cuda:0\", \"cuda:1\"");
    }
    memset(huge, 'a', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    CHECK_STATUS(warp_device_get(huge, &found), WARP_ERROR_NO_SUCH_DEVICE);
    /* What there is must be in the message, however long the name was. */
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"cuda:1\"");
    CHECK_STATUS(warp_device_get("cuda:\xff\xfe", &found), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "UTF-8");
    CHECK_EQ_PTR(found, NULL);
    CHECK_STATUS(warp_device_get("cpu", NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_get("größe", &found), WARP_ERROR_NO_SUCH_DEVICE);
}

PROCESS_TEST(cuda_is_the_gpu_whose_context_is_current)
{
    CUcontext zero, one;
    start_on("h200x2");
    /* None current: the default if it is a GPU, else the first GPU. */
    CHECK_EQ_PTR(device("cuda"), device("cuda:0"));
    CHECK_STATUS(warp_device_set_default(device("cuda:1")), WARP_SUCCESS);
    CHECK_EQ_PTR(device("cuda"), device("cuda:1"));
    CHECK_STATUS(warp_device_set_for_thread(device("cuda:0")), WARP_SUCCESS);
    CHECK_EQ_PTR(device("cuda"), device("cuda:0"));
    CHECK_STATUS(warp_device_set_for_thread(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_set_default(device("cpu")), WARP_SUCCESS);
    CHECK_EQ_PTR(device("cuda"), device("cuda:0"));
    CHECK_EQ_PTR(device(NULL), device("cpu"));
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
    /* A primary context that other code made, not yet known here. */
    zero = driver_primary(0);
    one = driver_primary(1);
    CHECK(SIMULATOR(cuCtxSetCurrent)(one) == 0);
    CHECK_EQ_PTR(device("cuda"), device("cuda:1"));
    CHECK(SIMULATOR(cuCtxSetCurrent)(zero) == 0);
    CHECK_EQ_PTR(device("cuda"), device("cuda:0"));
    CHECK_EQ_PTR(driver_current(), zero);
    CHECK(SIMULATOR(cuCtxSetCurrent)(NULL) == 0);
    CHECK_EQ_PTR(device("cuda"), device("cuda:0"));
}

PROCESS_TEST(cuda_registers_a_context_that_nobody_knows)
{
    CUcontext mine = NULL;
    warp_device *found;
    size_t count = 0;
    start_on("h200x2");
    REQUIRE(SIMULATOR(cuCtxCreate_v2)(&mine, 0, 1) == 0);
    found = device("cuda");
    CHECK_EQ_STR(alias_of(found), "cuda:1.0");
    CHECK_EQ_PTR(device("cuda"), found);
    CHECK_EQ_PTR(device("cuda:1.0"), found);
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 4);
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 2);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 1);
    CHECK_EQ_PTR(driver_current(), mine);
}

PROCESS_TEST(cuda_with_a_dead_context_current)
{
    CUcontext mine = NULL;
    warp_device *found = (warp_device *)1;
    start_on("h200x2");
    REQUIRE(SIMULATOR(warpsim_reset_device)(0) == 0);
    mine = driver_primary(0);
    REQUIRE(SIMULATOR(cuCtxSetCurrent)(mine) == 0);
    REQUIRE(SIMULATOR(warpsim_reset_device)(0) == 0);
    CHECK_STATUS(warp_device_get("cuda", &found), WARP_ERROR_DEVICE_LOST);
    CHECK_EQ_PTR(found, NULL);
    CHECK_EQ_PTR(driver_current(), mine);
    CHECK_EQ_PTR(device(NULL), device("cuda:0"));
}

/* ---- Defaults ---------------------------------------------------------------------------------------------------------- */

PROCESS_TEST(the_default_is_the_first_gpu)
{
    warp_device *found = NULL;
    start_on("h200x2");
    CHECK_STATUS(warp_device_get_default(&found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cuda:0"));
    CHECK_EQ_PTR(device(NULL), found);
}

PROCESS_TEST(the_default_is_the_cpu_where_there_is_no_gpu)
{
    warp_device *found = NULL;
    start_on("none");
    CHECK_STATUS(warp_device_get_default(&found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cpu"));
}

PROCESS_TEST(the_default_is_the_device_of_a_context_that_is_current)
{
    warp_device *found = NULL;
    setenv("WARPSIM_TOPOLOGY", "h200x2", 1);
    REQUIRE(SIMULATOR(cuInit)(0) == 0);
    REQUIRE(SIMULATOR(cuCtxSetCurrent)(driver_primary(1)) == 0);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_default(&found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cuda:1"));
    /* Worked out once. */
    REQUIRE(SIMULATOR(cuCtxSetCurrent)(driver_primary(0)) == 0);
    CHECK_STATUS(warp_device_get_default(&found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cuda:1"));
}

static void *other_thread(void *expected)
{
    warp_device *found = NULL, *own = (warp_device *)1;
    CHECK_STATUS(warp_device_get_for_thread(&own), WARP_SUCCESS);
    CHECK_EQ_PTR(own, NULL);
    CHECK_STATUS(warp_device_get_default(&found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, expected);
    CHECK_STATUS(warp_device_set_for_thread(device("cpu")), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_default(&found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cpu"));
    CHECK_STATUS(warp_device_get_for_thread(&own), WARP_SUCCESS);
    CHECK_EQ_PTR(own, device("cpu"));
    return NULL;
}

PROCESS_TEST(a_thread_chooses_for_itself_and_the_process_for_the_others)
{
    pthread_t thread;
    warp_device *found = NULL;
    start_on("h200x2");
    CHECK_STATUS(warp_device_set_for_thread(device("cuda:1")), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_default(&found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cuda:1"));
    REQUIRE(pthread_create(&thread, NULL, other_thread, device("cuda:0")) == 0);
    pthread_join(thread, NULL);
    CHECK_STATUS(warp_device_set_default(device("cpu")), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_default(&found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cuda:1"));
    REQUIRE(pthread_create(&thread, NULL, other_thread, device("cpu")) == 0);
    pthread_join(thread, NULL);
    CHECK_STATUS(warp_device_set_for_thread(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_for_thread(&found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, NULL);
    CHECK_STATUS(warp_device_get_default(&found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cpu"));
    CHECK_STATUS(warp_device_set_default(NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 0);
}

PROCESS_TEST(a_default_that_was_removed_gives_way)
{
    warp_device *mine = NULL, *found = NULL;
    start_on("h200x2");
    CHECK_STATUS(warp_device_from_context(driver_foreign(1), NULL, &mine), WARP_SUCCESS);
    CHECK_STATUS(warp_device_set_default(mine), WARP_SUCCESS);
    CHECK_STATUS(warp_device_set_for_thread(mine), WARP_SUCCESS);
    CHECK_STATUS(warp_device_remove(mine), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_for_thread(&found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, NULL);
    CHECK_STATUS(warp_device_get_default(&found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cuda:0"));
}

/* ---- What is known ------------------------------------------------------------------------------------------------------ */

PROCESS_TEST(a_gpu_is_described)
{
    warp_device_info info;
    start_on("h200x2,gpu1.pools=0");
    info = info_of(device("cuda:1"));
    CHECK_EQ_STR(info.alias, "cuda:1");
    CHECK_EQ_STR(info.name, "NVIDIA H200");
    CHECK_EQ_U64(strlen(info.uuid), 40);
    CHECK(strncmp(info.uuid, "GPU-", 4) == 0);
    CHECK(info.uuid[12] == '-' && info.uuid[17] == '-' && info.uuid[22] == '-' && info.uuid[27] == '-');
    CHECK_EQ_U64(strspn(info.uuid + 4, "0123456789abcdef-"), 36);
    CHECK_EQ_U64(strlen(info.pci_bus_id), 14);
    CHECK_EQ_U64(strspn(info.pci_bus_id, "0123456789ABCDEF:"), 14);
    CHECK_EQ_I64(info.ordinal, 1);
    CHECK_EQ_I64(info.arch, 90);
    CHECK_EQ_I64(info.sm_count, 132);
    CHECK_EQ_I64(info.max_shared_memory_per_block, 232448);
    CHECK_EQ_U64(info.total_memory, UINT64_C(150109880320));
    CHECK_EQ_U64(info.context_id, 0);
    CHECK_EQ_U64(info.is_cpu, 0);
    CHECK_EQ_U64(info.is_cuda, 1);
    CHECK_EQ_U64(info.is_primary, 1);
    CHECK_EQ_U64(info.has_context, 0);
    CHECK_EQ_U64(info.is_uva, 1);
    CHECK_EQ_U64(info.is_integrated, 0);
    CHECK_EQ_U64(info.is_managed_memory_supported, 1);
    CHECK_EQ_U64(info.is_concurrent_managed_access_supported, 1);
    CHECK_EQ_U64(info.is_mempool_supported, 0);
    CHECK_EQ_U64(info.is_mempool_enabled, 0);
    CHECK_EQ_U64(info.is_ipc_supported, 1);
    CHECK_EQ_U64(info.is_virtual_memory_supported, 1);
    CHECK(strcmp(info.uuid, info_of(device("cuda:0")).uuid) != 0);
    CHECK_EQ_U64(info_of(device("cuda:0")).is_mempool_enabled, 1);
}

/* No capability follows from another. */
PROCESS_TEST(capabilities_are_read_one_by_one)
{
    static const struct {
        const char *key;
        size_t offset;
    } all[] = {
        {"pageable", offsetof(warp_device_info, is_cpu_memory_access_from_gpu_supported)},
        {"host_direct", offsetof(warp_device_info, is_gpu_memory_access_from_cpu_supported)},
        {"host_atomics", offsetof(warp_device_info, is_cpu_gpu_atomic_supported)},
        {"managed", offsetof(warp_device_info, is_managed_memory_supported)},
        {"concurrent", offsetof(warp_device_info, is_concurrent_managed_access_supported)},
        {"pools", offsetof(warp_device_info, is_mempool_supported)},
        {"uva", offsetof(warp_device_info, is_uva)},
        {"vmm", offsetof(warp_device_info, is_virtual_memory_supported)},
        {"dma_buf", offsetof(warp_device_info, is_dma_buf_supported)},
        {"ipc", offsetof(warp_device_info, is_ipc_supported)},
    };
    char topology[512] = "h200,gpus=10", name[16];
    size_t i, j, count = sizeof all / sizeof *all;
    warp_device_info info;
    /* GPU i has capability i alone. */
    for (i = 0; i < count; ++i)
        snprintf(topology + strlen(topology), sizeof topology - strlen(topology), ",%s=0,gpu%zu.%s=1", all[i].key, i,
                 all[i].key);
    start_on(topology);
    for (i = 0; i < count; ++i) {
        snprintf(name, sizeof name, "cuda:%zu", i);
        info = info_of(device(name));
        for (j = 0; j < count; ++j)
            CHECK_EQ_U64(*((uint8_t *)&info + all[j].offset), i == j);
    }
}

PROCESS_TEST(an_integrated_gpu_has_no_legacy_ipc)
{
    start_on("gb10");
    CHECK_EQ_U64(info_of(device("cuda:0")).is_integrated, 1);
    CHECK_EQ_U64(info_of(device("cuda:0")).is_ipc_supported, 0);
}

PROCESS_TEST(the_cpu_is_described)
{
    warp_device_info info;
    uint64_t available = 0, total = 0;
    start_on("h200x2");
    info = info_of(device("cpu"));
    CHECK_EQ_STR(info.alias, "cpu");
    CHECK(info.name[0] != '\0');
    CHECK_EQ_STR(info.uuid, "");
    CHECK_EQ_STR(info.pci_bus_id, "");
    CHECK_EQ_I64(info.ordinal, -1);
    CHECK_EQ_I64(info.arch, 0);
    CHECK_EQ_I64(info.sm_count, 0);
    CHECK_EQ_U64(info.is_cpu, 1);
    CHECK_EQ_U64(info.is_cuda, 0);
    CHECK_EQ_U64(info.is_primary, 0);
    CHECK_EQ_U64(info.has_context, 0);
    CHECK_EQ_U64(info.is_uva, 0);
    CHECK_EQ_U64(info.is_mempool_supported, 0);
    CHECK_EQ_U64(info.is_ipc_supported, 0);
    CHECK_EQ_U64(info.is_dma_buf_supported, 0);
    CHECK_STATUS(warp_device_query_memory(device("cpu"), &available, &total), WARP_SUCCESS);
    CHECK_EQ_U64(total, info.total_memory);
    CHECK(available > 0 && available <= total);
    CHECK_STATUS(warp_device_synchronize(device("cpu")), WARP_SUCCESS);
    {
        void *context = (void *)1;
        CHECK_STATUS(warp_device_get_native_context(device("cpu"), &context), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_PTR(context, NULL);
    }
}

PROCESS_TEST(a_name_longer_than_its_field_is_cut_between_characters)
{
    char topology[600];
    warp_device_info info;
    size_t i;
    /* 200 two-byte letters behind one of one byte: no cut lands on a boundary by luck for both parities. */
    strcpy(topology, "h200,name=x");
    for (i = 0; i < 200; ++i)
        strcat(topology, "\xc3\xa9");
    start_on(topology);
    info = info_of(device("cuda:0"));
    CHECK(strlen(info.name) < sizeof info.name);
    CHECK_EQ_U64(strlen(info.name) % 2, 1);
}

PROCESS_TEST(the_native_context_is_the_primary_one_and_stays)
{
    void *context = NULL, *again = NULL;
    CUcontext own;
    start_on("h200x2");
    CHECK_STATUS(warp_device_get_native_context(device("cuda:1"), &context), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_native_context(device("cuda:1"), &again), WARP_SUCCESS);
    CHECK_EQ_PTR(context, again);
    own = driver_primary(1);
    CHECK_EQ_PTR(own, context);
    CHECK_EQ_PTR(driver_current(), NULL);
    CHECK_EQ_U64(info_of(device("cuda:1")).has_context, 1);
    CHECK(info_of(device("cuda:1")).context_id != 0);
    CHECK_EQ_U64(info_of(device("cuda:0")).has_context, 0);
}

/* ---- Foreign contexts --------------------------------------------------------------------------------------------------- */

PROCESS_TEST(foreign_contexts_are_numbered_for_each_gpu)
{
    CUcontext a, b, c;
    warp_device *first = NULL, *second = NULL, *third = NULL, *again = NULL;
    warp_device_info info;
    size_t count = 0;
    start_on("h200x2");
    a = driver_foreign(0);
    b = driver_foreign(0);
    c = driver_foreign(1);
    CHECK_STATUS(warp_device_from_context(a, NULL, &first), WARP_SUCCESS);
    CHECK_STATUS(warp_device_from_context(b, NULL, &second), WARP_SUCCESS);
    CHECK_STATUS(warp_device_from_context(c, NULL, &third), WARP_SUCCESS);
    CHECK_EQ_STR(alias_of(first), "cuda:0.0");
    CHECK_EQ_STR(alias_of(second), "cuda:0.1");
    CHECK_EQ_STR(alias_of(third), "cuda:1.0");
    CHECK_STATUS(warp_device_from_context(a, NULL, &again), WARP_SUCCESS);
    CHECK_EQ_PTR(again, first);
    info = info_of(second);
    CHECK_EQ_I64(info.ordinal, 0);
    CHECK_EQ_U64(info.is_primary, 0);
    CHECK_EQ_U64(info.is_cuda, 1);
    CHECK_EQ_U64(info.has_context, 1);
    CHECK_EQ_U64(info.is_mempool_supported, 1);
    CHECK_EQ_U64(info.total_memory, info_of(device("cuda:0")).total_memory);
    CHECK(info.context_id != 0 && info.context_id != info_of(first).context_id);
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    CHECK_EQ_U64(count, 2);
    CHECK_STATUS(warp_device_get_at(4, &again), WARP_SUCCESS);
    CHECK_EQ_PTR(again, second);
    /* A number that was freed is given again, to another handle. */
    CHECK_STATUS(warp_device_remove(first), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get("cuda:0.0", &again), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_STATUS(warp_device_get_info(first, &info), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_device_remove(first), WARP_ERROR_INVALID_HANDLE);
    CHECK_STATUS(warp_device_from_context(a, NULL, &again), WARP_SUCCESS);
    CHECK(again != first);
    CHECK_EQ_STR(alias_of(again), "cuda:0.0");
    CHECK_EQ_PTR(driver_current(), NULL);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuDevicePrimaryCtxRetain"), 0);
}

PROCESS_TEST(aliases_can_be_given_and_not_every_text_is_one)
{
    static const char *const bad[] = {"", "cpu", "cuda", "cuda:7", "cuda:0.9", "a\"b", "a\nb",
                                      "0123456789012345678901234567890123456789012345678901234567890123"};
    CUcontext a, b;
    warp_device *found = NULL, *named = NULL;
    size_t i;
    start_on("h200x2");
    a = driver_foreign(0);
    b = driver_foreign(0);
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        found = (warp_device *)1;
        CHECK_STATUS(warp_device_from_context(a, bad[i], &found), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_EQ_PTR(found, NULL);
    }
    CHECK_STATUS(warp_device_from_context(a, "\xff", &found), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_from_context(a, "renderer", &named), WARP_SUCCESS);
    CHECK_EQ_STR(alias_of(named), "renderer");
    CHECK_EQ_PTR(device("renderer"), named);
    CHECK_STATUS(warp_device_from_context(a, "renderer", &found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, named);
    CHECK_STATUS(warp_device_from_context(a, NULL, &found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, named);
    CHECK_STATUS(warp_device_from_context(a, "other", &found), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "\"renderer\"");
    CHECK_STATUS(warp_device_from_context(b, "renderer", &found), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "another device");
    /* Freed, it can be given to another. 63 bytes are as long as one can be. */
    CHECK_STATUS(warp_device_remove(named), WARP_SUCCESS);
    CHECK_STATUS(warp_device_from_context(b, "renderer", &found), WARP_SUCCESS);
    CHECK_STATUS(warp_device_from_context(a, bad[7] + 1, &found), WARP_SUCCESS);
    CHECK_EQ_STR(alias_of(found), bad[7] + 1);
    CHECK_EQ_PTR(device(bad[7] + 1), found);
}

PROCESS_TEST(contexts_that_cannot_be_registered)
{
    warp_device *found = (warp_device *)1;
    CUcontext dead;
    start_on("h200x2");
    CHECK_STATUS(warp_device_from_context(NULL, NULL, &found), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(found, NULL);
    dead = driver_foreign(1);
    CHECK(SIMULATOR(cuCtxDestroy_v2)(dead) == 0);
    CHECK_STATUS(warp_device_from_context(dead, NULL, &found), WARP_ERROR_DEVICE_LOST);
    CHECK_EQ_PTR(found, NULL);
    CHECK_STATUS(warp_device_from_context(dead, NULL, NULL), WARP_ERROR_INVALID_ARGUMENT);
    /* A primary context is its GPU's device, whoever made it. */
    CHECK_STATUS(warp_device_from_context(driver_primary(1), NULL, &found), WARP_SUCCESS);
    CHECK_EQ_PTR(found, device("cuda:1"));
    CHECK_STATUS(warp_device_from_context(driver_primary(1), "mine", &found), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_remove(device("cuda:1")), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_remove(device("cpu")), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_remove(NULL), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_device_remove((warp_device *)&found), WARP_ERROR_INVALID_HANDLE);
}

PROCESS_TEST(memory_lives_in_a_foreign_context)
{
    CUcontext mine;
    warp_device *found = NULL;
    warp_pointer_info where = {.struct_size = sizeof where};
    warp_alloc_options plain = {.struct_size = sizeof plain, .kind = WARP_MEMORY_CUDA_DEVICE};
    warp_stream_info of_stream = {.struct_size = sizeof of_stream};
    warp_event_info of_event = {.struct_size = sizeof of_event};
    warp_stream *stream = NULL;
    warp_event *event = NULL;
    void *pool = NULL, *block = NULL, *left = NULL;
    start_on("h200x2");
    mine = driver_foreign(1);
    CHECK_STATUS(warp_device_from_context(mine, NULL, &found), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(found, 1000, &pool), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc_with(found, 1000, &plain, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc_with(found, 1000, &plain, &left), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_get_info(block, &where), WARP_SUCCESS);
    CHECK_EQ_PTR(where.device, found);
    CHECK_EQ_U64(where.context_id, info_of(found).context_id);
    CHECK_EQ_I64(where.ordinal, 1);
    CHECK_EQ_PTR(driver_current(), NULL);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuDevicePrimaryCtxRetain"), 0);
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_create(found, NULL, &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_event_create(found, NULL, &event), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_info(stream, &of_stream), WARP_SUCCESS);
    CHECK_EQ_PTR(of_stream.device, found);
    CHECK_STATUS(warp_event_get_info(event, &of_event), WARP_SUCCESS);
    CHECK_EQ_PTR(of_event.device, found);
    /* Removed: what is left stays known and can be freed while the context lives. */
    CHECK_STATUS(warp_device_remove(found), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_get_info(left, &where), WARP_SUCCESS);
    CHECK_EQ_PTR(where.device, NULL);
    CHECK_EQ_U64(where.is_owned, 1);
    CHECK_EQ_U64(where.is_lost, 0);
    CHECK_STATUS(warp_stream_get_info(stream, &of_stream), WARP_SUCCESS);
    CHECK_EQ_PTR(of_stream.device, NULL);
    CHECK_STATUS(warp_event_get_info(event, &of_event), WARP_SUCCESS);
    CHECK_EQ_PTR(of_event.device, NULL);
    CHECK_STATUS(warp_event_release(event), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(left), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 0);
}

CHECK_MAIN()
