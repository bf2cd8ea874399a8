/*
 * device.c: names, defaults, what is known of a device, foreign contexts, contexts that die, and the caller's context.
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

static const char *alias_of(warp_device *of)
{
    static char alias[64];
    strcpy(alias, info_of(of).alias);
    return alias;
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
    /* Removed: what is left stays known and can be freed while the context lives. */
    CHECK_STATUS(warp_device_remove(found), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_get_info(left, &where), WARP_SUCCESS);
    CHECK_EQ_PTR(where.device, NULL);
    CHECK_EQ_U64(where.is_owned, 1);
    CHECK_EQ_U64(where.is_lost, 0);
    CHECK_STATUS(warp_free(left), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 0);
}

/* ---- Contexts that die ---------------------------------------------------------------------------------------------------- */

/* Blocks of every kind of a GPU, on its default stream and on a stream of its own. */
struct blocks {
    void *pool, *pool_on_stream, *plain, *managed;
    warp_stream *stream;
};

static struct blocks fill(warp_device *gpu)
{
    struct blocks blocks = {NULL, NULL, NULL, NULL, NULL};
    warp_alloc_options options = {.struct_size = sizeof options};
    CHECK_STATUS(warp_stream_create(gpu, NULL, &blocks.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu, 1 << 20, &blocks.pool), WARP_SUCCESS);
    options.stream = blocks.stream;
    CHECK_STATUS(warp_alloc_with(gpu, 1 << 20, &options, &blocks.pool_on_stream), WARP_SUCCESS);
    options.kind = WARP_MEMORY_CUDA_DEVICE;
    CHECK_STATUS(warp_alloc_with(gpu, 1 << 20, &options, &blocks.plain), WARP_SUCCESS);
    options.kind = WARP_MEMORY_CUDA_MANAGED;
    CHECK_STATUS(warp_alloc_with(gpu, 1 << 20, &options, &blocks.managed), WARP_SUCCESS);
    return blocks;
}

/* Everything that can be asked of a device whose context died: clear answers, no crash, nothing leaks. */
static void check_lost(warp_device *lost, struct blocks blocks)
{
    char pattern = 1;
    uint64_t plain_frees, available = 9, total = 9;
    void *block = (void *)1;
    warp_stream *stream = (warp_stream *)1;
    warp_device_info info = {.struct_size = sizeof info};
    warp_stream_info stream_info = {.struct_size = sizeof stream_info};
    warp_pointer_info where = {.struct_size = sizeof where};
    uint8_t idle = 9;
    CHECK_STATUS(warp_alloc(lost, 1000, &block), WARP_ERROR_DEVICE_LOST);
    CHECK_EQ_PTR(block, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_device_get");
    CHECK_STATUS(warp_device_get_info(lost, &info), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_device_query_memory(lost, &available, &total), WARP_ERROR_DEVICE_LOST);
    CHECK_EQ_U64(available, 0);
    CHECK_STATUS(warp_device_synchronize(lost), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_stream_create(lost, NULL, &stream), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_stream_get_current(lost, &stream), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_stream_synchronize(blocks.stream), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_stream_query_idle(blocks.stream, &idle), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_memory_fill(blocks.plain, 16, &pattern, 1, NULL), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_memory_fill(blocks.plain, 16, &pattern, 1, blocks.stream), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_memory_copy(&pattern, blocks.managed, 1, NULL), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_pointer_get_info(blocks.plain, &where), WARP_SUCCESS);
    CHECK_EQ_U64(where.is_lost, 1);
    CHECK_EQ_U64(where.is_owned, 1);
    CHECK_EQ_PTR(where.device, NULL);
    /* A lost stream's handle is good for being given back. */
    CHECK_STATUS(warp_stream_get_info(blocks.stream, &stream_info), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(blocks.stream), WARP_SUCCESS);
    /* What is left is what the pool gave. */
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 2);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 2);
    plain_frees = SIMULATOR(warpsim_call_count)("cuMemFree_v2");
    CHECK_STATUS(warp_free(blocks.plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.managed), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.pool_on_stream), WARP_SUCCESS);
    /* The pool is the GPU's, and has its memory back by way of another context. */
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    /* Plain memory went with its context: freeing it again could hit somebody else's. */
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuMemFree_v2"), plain_frees);
    CHECK_STATUS(warp_free(blocks.plain), WARP_ERROR_DOUBLE_FREE);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(a_foreign_context_destroyed_by_its_owner)
{
    CUcontext mine;
    warp_device *lost = NULL, *found = NULL;
    struct blocks blocks;
    start_on("h200x2");
    mine = driver_foreign(1);
    CHECK_STATUS(warp_device_from_context(mine, NULL, &lost), WARP_SUCCESS);
    blocks = fill(lost);
    CHECK(SIMULATOR(cuCtxDestroy_v2)(mine) == 0);
    check_lost(lost, blocks);
    CHECK_STATUS(warp_device_get("cuda:1.0", &found), WARP_ERROR_NO_SUCH_DEVICE);
    /* Its name is free for the next. */
    CHECK_STATUS(warp_device_from_context(driver_foreign(1), NULL, &found), WARP_SUCCESS);
    CHECK_EQ_STR(alias_of(found), "cuda:1.0");
    CHECK(found != lost);
    blocks = fill(found);
    CHECK_STATUS(warp_free(blocks.plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.managed), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.pool_on_stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(a_destroyed_context_is_found_out_by_a_lookup)
{
    CUcontext mine;
    warp_device *lost = NULL, *found = (warp_device *)1;
    start_on("h200x2");
    mine = driver_foreign(1);
    CHECK_STATUS(warp_device_from_context(mine, "mine", &lost), WARP_SUCCESS);
    CHECK(SIMULATOR(cuCtxDestroy_v2)(mine) == 0);
    CHECK_STATUS(warp_device_get("mine", &found), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_EQ_PTR(found, NULL);
    CHECK_STATUS(warp_device_synchronize(lost), WARP_ERROR_DEVICE_LOST);
}

/* The first thing that is done after the context died, each in its turn. */
static void first_alloc(warp_device *lost, struct blocks *blocks)
{
    void *block = NULL;
    (void)blocks;
    CHECK_STATUS(warp_alloc(lost, 1000, &block), WARP_ERROR_DEVICE_LOST);
}

static void first_plain_alloc(warp_device *lost, struct blocks *blocks)
{
    warp_alloc_options plain = {.struct_size = sizeof plain, .kind = WARP_MEMORY_CUDA_DEVICE};
    void *block = NULL;
    (void)blocks;
    CHECK_STATUS(warp_alloc_with(lost, 1000, &plain, &block), WARP_ERROR_DEVICE_LOST);
}

static void first_alloc_on_stream(warp_device *lost, struct blocks *blocks)
{
    warp_alloc_options on_stream = {.struct_size = sizeof on_stream, .stream = blocks->stream};
    void *block = NULL;
    CHECK_STATUS(warp_alloc_with(lost, 1000, &on_stream, &block), WARP_ERROR_DEVICE_LOST);
}

static void first_free_of_pool(warp_device *lost, struct blocks *blocks)
{
    (void)lost;
    CHECK_STATUS(warp_free(blocks->pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks->pool_on_stream), WARP_SUCCESS);
    blocks->pool = blocks->pool_on_stream = NULL;
}

static void first_free_of_plain(warp_device *lost, struct blocks *blocks)
{
    (void)lost;
    CHECK_STATUS(warp_free(blocks->plain), WARP_SUCCESS);
    blocks->plain = NULL;
}

static void first_synchronize(warp_device *lost, struct blocks *blocks)
{
    (void)blocks;
    CHECK_STATUS(warp_device_synchronize(lost), WARP_ERROR_DEVICE_LOST);
}

static void first_stream_synchronize(warp_device *lost, struct blocks *blocks)
{
    (void)lost;
    CHECK_STATUS(warp_stream_synchronize(blocks->stream), WARP_ERROR_DEVICE_LOST);
}

static void first_stream_release(warp_device *lost, struct blocks *blocks)
{
    (void)lost;
    CHECK_STATUS(warp_stream_release(blocks->stream), WARP_SUCCESS);
    blocks->stream = NULL;
}

static void first_fill(warp_device *lost, struct blocks *blocks)
{
    char pattern = 1;
    (void)lost;
    CHECK_STATUS(warp_memory_fill(blocks->plain, 16, &pattern, 1, blocks->stream), WARP_ERROR_DEVICE_LOST);
}

static void first_memory_query(warp_device *lost, struct blocks *blocks)
{
    uint64_t available = 0, total = 0;
    (void)blocks;
    CHECK_STATUS(warp_device_query_memory(lost, &available, &total), WARP_ERROR_DEVICE_LOST);
}

static void first_wrap(warp_device *lost, struct blocks *blocks)
{
    warp_stream *stream = NULL;
    (void)blocks;
    CHECK_STATUS(warp_stream_wrap(lost, NULL, &stream), WARP_ERROR_DEVICE_LOST);
}

static void first_stream_create(warp_device *lost, struct blocks *blocks)
{
    warp_stream *stream = NULL;
    (void)blocks;
    CHECK_STATUS(warp_stream_create(lost, NULL, &stream), WARP_ERROR_DEVICE_LOST);
}

static void first_shutdown(warp_device *lost, struct blocks *blocks)
{
    (void)lost;
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    blocks->stream = NULL;
}

/* Other code resets the GPU; and, in half of the runs, uses it again at once, when the driver gives the same handle to
 * the primary context's next life. */
static void check_reset(void (*first)(warp_device *, struct blocks *), int used_again)
{
    warp_device *lost, *found;
    struct blocks blocks;
    char pattern = 7, seen = 0;
    uint64_t plain_frees;
    start_on("h200x2");
    lost = device("cuda:1");
    blocks = fill(lost);
    REQUIRE(SIMULATOR(warpsim_reset_device)(1) == 0);
    if (used_again)
        driver_primary(1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 2);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 2);
    plain_frees = SIMULATOR(warpsim_call_count)("cuMemFree_v2");
    first(lost, &blocks);
    found = device("cuda:1");
    CHECK(found != lost);
    CHECK_STATUS(warp_device_synchronize(lost), WARP_ERROR_DEVICE_LOST);
    CHECK_STATUS(warp_stream_release(blocks.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.managed), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.pool_on_stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_call_count)("cuMemFree_v2"), plain_frees);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    /* The GPU is as good as new. */
    blocks = fill(found);
    CHECK_STATUS(warp_memory_fill(blocks.managed, 16, &pattern, 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_memory_copy(&seen, blocks.managed, 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(found), WARP_SUCCESS);
    CHECK_EQ_I64(seen, 7);
    CHECK_STATUS(warp_free(blocks.plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.managed), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.pool_on_stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(blocks.stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

#define RESET_TEST(first)                                             \
    PROCESS_TEST(reset_then_##first) { check_reset(first, 0); }       \
    PROCESS_TEST(reset_and_used_then_##first) { check_reset(first, 1); }
RESET_TEST(first_alloc)
RESET_TEST(first_plain_alloc)
RESET_TEST(first_alloc_on_stream)
RESET_TEST(first_free_of_pool)
RESET_TEST(first_free_of_plain)
RESET_TEST(first_synchronize)
RESET_TEST(first_stream_synchronize)
RESET_TEST(first_stream_release)
RESET_TEST(first_fill)
RESET_TEST(first_memory_query)
RESET_TEST(first_wrap)
RESET_TEST(first_stream_create)
RESET_TEST(first_shutdown)

PROCESS_TEST(a_reset_is_found_out_by_a_lookup)
{
    warp_device *lost, *found;
    start_on("h200x2");
    lost = device("cuda:1");
    fill(lost);
    REQUIRE(SIMULATOR(warpsim_reset_device)(1) == 0);
    found = device("cuda:1");
    CHECK(found != lost);
    CHECK_STATUS(warp_device_synchronize(lost), WARP_ERROR_DEVICE_LOST);
    fill(found);
}

PROCESS_TEST(a_reset_of_another_gpu_is_nobodys_loss)
{
    warp_device *gpu;
    struct blocks blocks;
    start_on("h200x2");
    gpu = device("cuda:1");
    blocks = fill(gpu);
    REQUIRE(SIMULATOR(warpsim_reset_device)(0) == 0);
    CHECK_EQ_PTR(device("cuda:1"), gpu);
    CHECK_STATUS(warp_device_synchronize(gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.managed), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.pool_on_stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

/* With a foreign context beside it there is an heir at hand, whichever of the two dies. */
PROCESS_TEST(pool_memory_of_a_lost_device_goes_back_through_another_of_its_gpu)
{
    warp_device *foreign = NULL;
    CUcontext mine;
    struct blocks of_foreign, of_primary;
    start_on("h200x2");
    mine = driver_foreign(1);
    CHECK_STATUS(warp_device_from_context(mine, NULL, &foreign), WARP_SUCCESS);
    of_foreign = fill(foreign);
    of_primary = fill(device("cuda:1"));
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 4);
    REQUIRE(SIMULATOR(warpsim_reset_device)(1) == 0);
    CHECK_STATUS(warp_free(of_primary.pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(of_primary.pool_on_stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 2);
    /* The foreign context served; the GPU's primary one was not made for that. */
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("context"), 1);
    CHECK(SIMULATOR(cuCtxDestroy_v2)(mine) == 0);
    CHECK_STATUS(warp_free(of_foreign.pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(of_foreign.pool_on_stream), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
    CHECK_EQ_PTR(driver_current(), NULL);
}

PROCESS_TEST(pool_memory_of_a_lost_device_goes_back_after_the_shutdown_too)
{
    struct blocks blocks;
    start_on("h200x2");
    blocks = fill(device("cuda:1"));
    REQUIRE(SIMULATOR(warpsim_reset_device)(1) == 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.pool_on_stream), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(blocks.managed), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

/* A pool block that was freed already, and waited for a stream when its context died. */
static void check_parked(int used_again)
{
    warp_device *gpu;
    warp_stream *stream = NULL;
    warp_stream_info info = {.struct_size = sizeof info};
    void *pool = NULL, *plain = NULL;
    warp_alloc_options options = {.struct_size = sizeof options};
    start_on("h200x2");
    gpu = device("cuda:1");
    CHECK_STATUS(warp_stream_create(gpu, NULL, &stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_info(stream, &info), WARP_SUCCESS);
    options.stream = stream;
    CHECK_STATUS(warp_alloc(gpu, 1 << 20, &pool), WARP_SUCCESS);
    options.kind = WARP_MEMORY_CUDA_DEVICE;
    CHECK_STATUS(warp_alloc_with(gpu, 1 << 20, &options, &plain), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_record_stream(pool, stream), WARP_SUCCESS);
    REQUIRE(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)info.native) == 0);
    /* The driver cannot make the free wait, so the library does. */
    SIMULATOR(warpsim_fail)("cuStreamWaitEvent", 1, 999);
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    SIMULATOR(warpsim_fail_clear)();
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 1);
    REQUIRE(SIMULATOR(warpsim_reset_device)(1) == 0);
    if (used_again)
        driver_primary(1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("pool"), 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 0);
    /* Any later call looks. */
    CHECK_STATUS(warp_alloc(device("cuda:0"), 1000, &pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(parked_pool_memory_of_a_lost_device_goes_back) { check_parked(0); }
PROCESS_TEST(parked_pool_memory_of_a_device_lost_and_used_again_goes_back) { check_parked(1); }

/* A block outlives a stream of another GPU that used it, and that GPU's context. */
static void check_user_lost(int used_again)
{
    warp_stream *user = NULL, *own = NULL, *another = NULL;
    warp_stream_info info = {.struct_size = sizeof info};
    warp_alloc_options options = {.struct_size = sizeof options};
    void *pool = NULL, *plain = NULL;
    start_on("h200x2");
    CHECK_STATUS(warp_stream_create(device("cuda:1"), NULL, &user), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_info(user, &info), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_create(device("cuda:0"), NULL, &own), WARP_SUCCESS);
    options.stream = own;
    /* From here on the library has an event for this GPU, and does not make one that gets a dead one's handle. */
    CHECK_STATUS(warp_stream_create(device("cuda:0"), NULL, &another), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc_with(device("cuda:0"), 1 << 20, &options, &pool), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_record_stream(pool, another), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc_with(device("cuda:0"), 1 << 20, &options, &pool), WARP_SUCCESS);
    options.kind = WARP_MEMORY_CUDA_DEVICE;
    CHECK_STATUS(warp_alloc_with(device("cuda:0"), 1 << 20, &options, &plain), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_record_stream(pool, user), WARP_SUCCESS);
    CHECK_STATUS(warp_pointer_record_stream(plain, user), WARP_SUCCESS);
    REQUIRE(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)info.native) == 0);
    /* Its end is an event that nobody may touch once the context is gone. */
    CHECK_STATUS(warp_stream_release(user), WARP_SUCCESS);
    REQUIRE(SIMULATOR(warpsim_reset_device)(1) == 0);
    if (used_again)
        driver_primary(1);
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(own), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

PROCESS_TEST(a_use_on_a_gpu_that_was_lost_is_over) { check_user_lost(0); }
PROCESS_TEST(a_use_on_a_gpu_that_was_lost_and_used_again_is_over) { check_user_lost(1); }

/* ---- The caller's context --------------------------------------------------------------------------------------------------- */

/* Every call of the chapters, good and bad, with the context that was current before and after. */
static void make_all_calls(warp_device *gpu)
{
    warp_device *found = NULL;
    warp_stream *stream = NULL, *wrapped = NULL, *current = NULL;
    warp_stream_info stream_info = {.struct_size = sizeof stream_info};
    warp_device_info info = {.struct_size = sizeof info};
    warp_alloc_options options = {.struct_size = sizeof options};
    warp_stream_options bad = {.struct_size = sizeof bad, .priority = 1000};
    warp_pointer_info where = {.struct_size = sizeof where};
    uint64_t available, total;
    void *context = NULL, *block = NULL;
    static const warp_memory_kind kinds[] = {WARP_MEMORY_UNKNOWN, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL,
                                             WARP_MEMORY_CUDA_MANAGED, WARP_MEMORY_PINNED};
    char pattern = 1;
    uint8_t idle;
    size_t i;
    CUcontext before = driver_current();
#define SAME(call)                                     \
    do {                                               \
        (void)(call);                                  \
        CHECK_EQ_PTR(driver_current(), before);     \
    } while (0)
    SAME(warp_device_get("cuda", &found));
    SAME(warp_device_get("cuda:1", &found));
    SAME(warp_device_get("cuda:9", &found));
    SAME(warp_device_get_default(&found));
    SAME(warp_device_get_info(gpu, &info));
    SAME(warp_device_query_memory(gpu, &available, &total));
    SAME(warp_device_get_native_context(gpu, &context));
    SAME(warp_device_from_context(context, NULL, &found));
    SAME(warp_device_synchronize(gpu));
    SAME(warp_stream_create(gpu, &bad, &stream));
    SAME(warp_stream_create(gpu, NULL, &stream));
    SAME(warp_stream_wrap(gpu, (void *)1, &wrapped));
    SAME(warp_stream_get_info(wrapped, &stream_info));
    SAME(warp_stream_query_idle(wrapped, &idle));
    SAME(warp_stream_synchronize(wrapped));
    SAME(warp_stream_get_current(gpu, &current));
    SAME(warp_stream_set_current(gpu, stream));
    SAME(warp_stream_synchronize(NULL));
    for (i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        warp_device *of = gpu;
        options.kind = kinds[i];
        if (kinds[i] == WARP_MEMORY_PINNED)
            SAME(warp_device_get("cpu", &of));
        SAME(warp_alloc_with(of, UINT64_C(1) << 50, &options, &block));
        block = NULL;
        SAME(warp_alloc_with(of, 4096, &options, &block));
        SAME(warp_memory_fill(block, 4096, &pattern, 1, NULL));
        SAME(warp_memory_fill(block, 4096, &pattern, 1, wrapped));
        SAME(warp_memory_copy(block, (char *)block + 64, 64, stream));
        SAME(warp_pointer_get_info(block, &where));
        SAME(warp_pointer_record_stream(block, wrapped));
        SAME(warp_free(block));
    }
    SAME(warp_stream_set_current(gpu, NULL));
    SAME(warp_stream_release(wrapped));
    SAME(warp_stream_release(stream));
    SAME(warp_stream_release(current));
}

PROCESS_TEST(the_callers_context_is_the_same_after_every_call)
{
    CUcontext zero;
    start_on("h200x2,memory=1GiB");
    make_all_calls(device("cuda:1"));
    zero = driver_primary(0);
    CHECK(SIMULATOR(cuCtxSetCurrent)(zero) == 0);
    make_all_calls(device("cuda:1"));
    CHECK(SIMULATOR(cuCtxSetCurrent)(driver_primary(1)) == 0);
    make_all_calls(device("cuda:1"));
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

/* Each call of the driver that the library makes fails once, in turn: no crash, no changed context. */
static void check_with_failures(const char *entry, uint32_t code)
{
    CUcontext zero;
    uint64_t nth, calls = 1;
    start_on("h200x2,memory=1GiB");
    zero = driver_primary(0);
    CHECK(SIMULATOR(cuCtxSetCurrent)(zero) == 0);
    /* As often as it is called; of what is called all the time, the beginning. */
    for (nth = 1; nth <= calls && nth <= 24; ++nth) {
        warp_device *gpu = NULL;
        SIMULATOR(warpsim_fail)(entry, nth, code);
        calls = SIMULATOR(warpsim_call_count)(entry);
        if (warp_device_get("cuda:1", &gpu) == WARP_SUCCESS)
            make_all_calls(gpu);
        calls = SIMULATOR(warpsim_call_count)(entry) - calls;
        SIMULATOR(warpsim_fail_clear)();
        /* Whatever failed, the next call works. */
        {
            void *block = NULL;
            gpu = device("cuda:1");
            CHECK_STATUS(warp_alloc(gpu, 1000, &block), WARP_SUCCESS);
            CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        }
    }
}

#define FAILURE_TEST(entry)                                                                   \
    PROCESS_TEST(failures_of_##entry) { check_with_failures(#entry, 999); }
FAILURE_TEST(cuDevicePrimaryCtxRetain)
FAILURE_TEST(cuCtxGetId)
FAILURE_TEST(cuCtxGetDevice)
FAILURE_TEST(cuStreamCreateWithPriority)
FAILURE_TEST(cuStreamGetId)
FAILURE_TEST(cuStreamGetCtx)
FAILURE_TEST(cuStreamIsCapturing)
FAILURE_TEST(cuThreadExchangeStreamCaptureMode)
FAILURE_TEST(cuMemAllocFromPoolAsync)
FAILURE_TEST(cuMemAlloc_v2)
FAILURE_TEST(cuMemAllocManaged)
FAILURE_TEST(cuMemHostAlloc)
FAILURE_TEST(cuEventCreate)
FAILURE_TEST(cuEventRecord)
FAILURE_TEST(cuStreamQuery)
FAILURE_TEST(cuMemGetInfo_v2)
FAILURE_TEST(cuDeviceGetMemPool)

PROCESS_TEST(a_failed_switch_of_contexts_allocates_nothing)
{
    warp_alloc_options plain = {.struct_size = sizeof plain, .kind = WARP_MEMORY_CUDA_DEVICE};
    void *block = (void *)1, *live = NULL;
    CUcontext zero;
    start_on("h200x2");
    zero = driver_primary(0);
    CHECK(SIMULATOR(cuCtxSetCurrent)(zero) == 0);
    CHECK_STATUS(warp_alloc_with(device("cuda:1"), 1000, &plain, &live), WARP_SUCCESS);
    SIMULATOR(warpsim_fail)("cuCtxSetCurrent", 1, 999);
    CHECK_STATUS(warp_alloc_with(device("cuda:1"), 1000, &plain, &block), WARP_ERROR_DRIVER);
    CHECK_EQ_PTR(block, NULL);
    CHECK_STR_CONTAINS(warp_error_get_message(), "cuCtxSetCurrent");
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 1);
    CHECK_EQ_PTR(driver_current(), zero);
    SIMULATOR(warpsim_fail)("cuCtxGetCurrent", 1, 999);
    CHECK_STATUS(warp_alloc_with(device("cuda:1"), 1000, &plain, &block), WARP_ERROR_DRIVER);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 1);
    /* A free that cannot switch frees nothing, and says so; the block is not lost. */
    SIMULATOR(warpsim_fail)("cuCtxSetCurrent", 1, 999);
    CHECK_STATUS(warp_free(live), WARP_ERROR_DRIVER);
    CHECK_EQ_PTR(driver_current(), zero);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 1);
    CHECK_STATUS(warp_free(live), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 0);
}

PROCESS_TEST(a_free_that_the_driver_refuses_keeps_the_block)
{
    void *block = NULL;
    warp_pointer_info where = {.struct_size = sizeof where};
    start_on("h200x2");
    CHECK_STATUS(warp_alloc(device("cuda:1"), 1000, &block), WARP_SUCCESS);
    SIMULATOR(warpsim_fail)("cuMemFreeAsync", 1, 999);
    CHECK_STATUS(warp_free(block), WARP_ERROR_DRIVER);
    CHECK_STATUS(warp_pointer_get_info(block, &where), WARP_SUCCESS);
    CHECK_EQ_U64(where.is_owned, 1);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
}

/* Blocks of four GPUs are freed while another one is current. */
PROCESS_TEST(frees_go_to_the_blocks_own_gpu)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL,
                                             WARP_MEMORY_CUDA_MANAGED};
    void *blocks[4][3] = {{NULL}};
    CUcontext three;
    size_t gpu, kind;
    start_on("h200x2,gpus=4");
    for (gpu = 0; gpu < 4; ++gpu)
        for (kind = 0; kind < 3; ++kind) {
            char name[16];
            warp_alloc_options options = {.struct_size = sizeof options, .kind = kinds[kind]};
            snprintf(name, sizeof name, "cuda:%zu", gpu);
            CHECK_STATUS(warp_alloc_with(device(name), 1 << 20, &options, &blocks[gpu][kind]), WARP_SUCCESS);
        }
    three = driver_primary(3);
    CHECK(SIMULATOR(cuCtxSetCurrent)(three) == 0);
    for (gpu = 0; gpu < 4; ++gpu)
        for (kind = 0; kind < 3; ++kind)
            CHECK_STATUS(warp_free(blocks[gpu][kind]), WARP_SUCCESS);
    CHECK_EQ_PTR(driver_current(), three);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("*"), 0);
    CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
}

CHECK_MAIN()
