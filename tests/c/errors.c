/*
 * errors.c: the record of a thread's last failure, names of statuses, versions, and messages to the embedder.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "driver.h"
#include "process.h"

#include <pthread.h>
#include <warpmem.h>

static warp_error last(void)
{
    warp_error error = {.struct_size = sizeof error};
    CHECK_STATUS(warp_error_get_last(&error), WARP_SUCCESS);
    return error;
}

/* ---- The record ---------------------------------------------------------------------------------------------------------- */

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    CHECK_EQ_I64(last().status, WARP_SUCCESS);
    CHECK_EQ_STR(last().message, "");
    CHECK_EQ_STR(warp_error_get_message(), "");
    CHECK_STATUS(warp_free((void *)fail_elsewhere), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_EQ_I64(last().status, WARP_ERROR_UNKNOWN_POINTER);
    return NULL;
}

PROCESS_TEST(a_failure_is_kept_until_the_next_and_for_its_thread)
{
    warp_error first;
    warp_device *found = NULL;
    void *block = NULL;
    pthread_t thread;
    CHECK_EQ_I64(last().status, WARP_SUCCESS);
    CHECK_EQ_I64(last().driver_code, 0);
    CHECK_EQ_STR(last().message, "");
    CHECK_EQ_STR(warp_error_get_message(), "");
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get("nonsense", &found), WARP_ERROR_NO_SUCH_DEVICE);
    first = last();
    CHECK_EQ_I64(first.status, WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_EQ_I64(first.driver_code, 0);
    CHECK_STR_CONTAINS(first.message, "nonsense");
    CHECK_EQ_STR(first.message, warp_error_get_message());
    /* A success, another thread's failure and the question itself do not touch it. */
    CHECK_STATUS(warp_device_get("cuda:0", &found), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(found, 64, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, fail_elsewhere, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ_STR(last().message, first.message);
    CHECK_EQ_I64(last().status, WARP_ERROR_NO_SUCH_DEVICE);
    /* The next failure does. */
    CHECK_STATUS(warp_free(&first), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_EQ_I64(last().status, WARP_ERROR_UNKNOWN_POINTER);
    CHECK(strstr(last().message, "nonsense") == NULL);
}

PROCESS_TEST(the_drivers_own_code_is_in_the_record)
{
    warp_device *gpu = NULL;
    void *block = NULL;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get("cuda:0", &gpu), WARP_SUCCESS);
    SIMULATOR(warpsim_fail)("cuMemAllocFromPoolAsync", 1, 999);
    CHECK_STATUS(warp_alloc(gpu, 64, &block), WARP_ERROR_DRIVER);
    CHECK_EQ_I64(last().driver_code, 999);
    CHECK_STR_CONTAINS(last().message, "CUDA_ERROR_UNKNOWN (999) from cuMemAllocFromPoolAsync");
    CHECK_STR_CONTAINS(last().message, "\"cuda:0\"");
    SIMULATOR(warpsim_fail)("cuMemAllocFromPoolAsync", 1, 31337);
    CHECK_STATUS(warp_alloc(gpu, 64, &block), WARP_ERROR_DRIVER);
    CHECK_EQ_I64(last().driver_code, 31337);
    CHECK_STATUS(warp_alloc(gpu, UINT64_C(1) << 63, &block), WARP_ERROR_SIZE_OVERFLOW);
    CHECK_EQ_I64(last().driver_code, 0);
}

/* Names in messages come from the caller, and may have no end. */
PROCESS_TEST(a_message_is_cut_between_characters)
{
    char path[4001];
    size_t shift, at;
    for (shift = 0; shift < 4; ++shift) {
        warp_init_options options = {.struct_size = sizeof options, .driver_path = path};
        warp_device *found = NULL;
        warp_error error;
        /* A file that is not there, named with letters of three bytes. */
        memset(path, 'x', shift);
        for (at = shift; at + 3 < sizeof path; at += 3)
            memcpy(path + at, "\xe2\x82\xac", 3);
        path[at] = '\0';
        CHECK_STATUS(warp_init(&options, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_device_get("cuda", &found), WARP_ERROR_NO_SUCH_DEVICE);
        error = last();
        CHECK(strlen(error.message) <= WARP_ERROR_MESSAGE_SIZE - 1);
        CHECK(strlen(error.message) >= WARP_ERROR_MESSAGE_SIZE - 4);
        CHECK_EQ_STR(error.message, warp_error_get_message());
        /* It ends with a whole letter. */
        at = strlen(error.message);
        CHECK(at > 3 && (memcmp(error.message + at - 3, "\xe2\x82\xac", 3) == 0 || error.message[at - 1] > 0));
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    }
}

TEST(every_status_has_its_name_and_number)
{
    static const struct {
        warp_status status;
        const char *name;
    } all[] = {
#define STATUS(name) {name, #name}
        STATUS(WARP_SUCCESS), STATUS(WARP_ERROR_NOT_INITIALIZED), STATUS(WARP_ERROR_SHUT_DOWN),
        STATUS(WARP_ERROR_INVALID_ARGUMENT), STATUS(WARP_ERROR_INVALID_HANDLE), STATUS(WARP_ERROR_NO_SUCH_DEVICE),
        STATUS(WARP_ERROR_SIZE_OVERFLOW), STATUS(WARP_ERROR_BAD_ALIGNMENT), STATUS(WARP_ERROR_UNKNOWN_POINTER),
        STATUS(WARP_ERROR_INTERIOR_POINTER), STATUS(WARP_ERROR_DOUBLE_FREE), STATUS(WARP_ERROR_SIZE_MISMATCH),
        STATUS(WARP_ERROR_ACCESS_DENIED), STATUS(WARP_ERROR_ILLEGAL_IN_CAPTURE), STATUS(WARP_ERROR_PEER_LIMIT),
        STATUS(WARP_ERROR_SCOPE_ORDER), STATUS(WARP_ERROR_BUSY), STATUS(WARP_ERROR_FORKED),
        STATUS(WARP_ERROR_NOT_SUPPORTED), STATUS(WARP_ERROR_OUT_OF_MEMORY), STATUS(WARP_ERROR_DEVICE_LOST),
        STATUS(WARP_ERROR_ALLOCATOR_FAILED), STATUS(WARP_ERROR_DRIVER), STATUS(WARP_ERROR_INTERNAL),
    };
    size_t i;
    int named = 0, number;
    for (i = 0; i < sizeof all / sizeof *all; ++i)
        CHECK_EQ_STR(warp_status_get_name(all[i].status), all[i].name);
    for (number = -1000; number <= 10000; ++number)
        named += strcmp(warp_status_get_name(number), "WARP_ERROR_UNKNOWN") != 0;
    CHECK_EQ_I64(named, sizeof all / sizeof *all);
}

TEST(versions_of_one_series_go_together)
{
    static const int32_t bad[] = {0, -1, -100, INT32_MIN, INT32_MAX, 1, 99, 101, 200, 1100, 10100, 10000, 20000, 999999};
    size_t i;
    CHECK_STATUS(warp_version_check(WARP_VERSION), WARP_SUCCESS);
    for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
        CHECK_STATUS(warp_version_check(bad[i]), WARP_ERROR_NOT_SUPPORTED);
        CHECK_STR_CONTAINS(warp_error_get_message(), WARP_VERSION_STRING);
        /* A version is said as one, whatever the number was. */
        CHECK(strstr(warp_error_get_message(), ".-") == NULL);
    }
}

/* ---- Messages ------------------------------------------------------------------------------------------------------------------ */

struct heard {
    int count, inside, leave;
    int32_t level;
    warp_status from_inside, nested;
    char text[1024];
};

static void listen(void *user, warp_log_level level, const char *message)
{
    struct heard *heard = user;
    heard->count += 1;
    heard->level = level;
    snprintf(heard->text, sizeof heard->text, "%s", message);
}

static void make_noise(void)
{
    /* A device that is lost is worth a warning. */
    CUcontext context = driver_foreign(0);
    warp_device *mine = NULL;
    CHECK_STATUS(warp_device_from_context(context, NULL, &mine), WARP_SUCCESS);
    SIMULATOR(cuCtxDestroy_v2)(context);
    CHECK_STATUS(warp_device_synchronize(mine), WARP_ERROR_DEVICE_LOST);
}

static void look_it_up(void *user, warp_log_level level, const char *message)
{
    (void)level;
    if (strstr(message, "is lost") != NULL)
        CHECK_STATUS(warp_device_get("cuda:0", user), WARP_SUCCESS);
}

PROCESS_TEST(a_callback_that_hears_of_a_loss_finds_the_fresh_device)
{
    warp_device *first = NULL, *found = NULL, *fresh = NULL;
    void *context = NULL;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get("cuda:0", &first), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_native_context(first, &context), WARP_SUCCESS);
    CHECK_STATUS(warp_log_set_callback(look_it_up, &found, WARP_LOG_WARNING), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(cuDevicePrimaryCtxReset_v2)(0), 0);
    CHECK_STATUS(warp_device_synchronize(first), WARP_ERROR_DEVICE_LOST);
    CHECK(found != NULL && found != first);
    CHECK_STATUS(warp_device_get("cuda:0", &fresh), WARP_SUCCESS);
    CHECK_EQ_PTR(found, fresh);
    CHECK_STATUS(warp_device_synchronize(found), WARP_SUCCESS);
}

static void look_at_the_rest(void *user, warp_log_level level, const char *message)
{
    int *heard = user;
    (void)level;
    CHECK_STR_CONTAINS(message, "was not destroyed");
    ++*heard;
    /* Looks at what is parked, a block behind the same stream among it. */
    CHECK_STATUS(warp_stream_synchronize(NULL), WARP_SUCCESS);
}

/* The end of a stream is made by whoever finds that it could not be marked before; a second block waits for it too. */
PROCESS_TEST(a_callback_that_hears_of_a_late_end_may_call_back_in)
{
    warp_stream_info info = {.struct_size = sizeof info};
    warp_alloc_options options = {.struct_size = sizeof options, .kind = WARP_MEMORY_CUDA_DEVICE};
    warp_device *gpu = NULL;
    void *blocks[2] = {NULL};
    int i, heard = 0;
    alarm(30);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get("cuda:0", &gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_create(gpu, NULL, &options.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_get_info(options.stream, &info), WARP_SUCCESS);
    for (i = 0; i < 2; ++i)
        CHECK_STATUS(warp_alloc_with(gpu, 4096, &options, &blocks[i]), WARP_SUCCESS);
    CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)info.native), 0);
    for (i = 0; i < 2; ++i)
        CHECK_STATUS(warp_memory_fill(blocks[i], 4096, "x", 1, options.stream), WARP_SUCCESS);
    SIMULATOR(warpsim_fail)("cuEventCreate", 0, 999);
    for (i = 0; i < 2; ++i)
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(options.stream), WARP_SUCCESS);
    SIMULATOR(warpsim_fail_clear)();
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 2);
    CHECK_STATUS(warp_log_set_callback(look_at_the_rest, &heard, WARP_LOG_ERROR), WARP_SUCCESS);
    SIMULATOR(warpsim_fail)("cuStreamDestroy_v2", 1, 999);
    SIMULATOR(warpsim_release_all)();
    CHECK_STATUS(warp_device_synchronize(gpu), WARP_SUCCESS);
    CHECK_EQ_I64(heard, 1);
    CHECK_EQ_U64(SIMULATOR(warpsim_live_count)("default"), 0);
}

PROCESS_TEST(a_callback_gets_its_level_and_graver)
{
    struct heard heard = {0}, other = {0};
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    make_noise(); /* to nobody */
    CHECK_STATUS(warp_log_set_callback(listen, &heard, WARP_LOG_ERROR), WARP_SUCCESS);
    make_noise();
    CHECK_EQ_I64(heard.count, 0);
    CHECK_STATUS(warp_log_set_callback(listen, &heard, WARP_LOG_WARNING), WARP_SUCCESS);
    make_noise();
    CHECK_EQ_I64(heard.count, 1);
    CHECK_EQ_I64(heard.level, WARP_LOG_WARNING);
    CHECK_STR_CONTAINS(heard.text, "is lost");
    CHECK(strchr(heard.text, '\n') == NULL);
    CHECK_STATUS(warp_log_set_callback(listen, &other, WARP_LOG_DEBUG), WARP_SUCCESS);
    make_noise();
    CHECK_EQ_I64(heard.count, 1);
    CHECK(other.count >= 1);
    CHECK_STATUS(warp_log_set_callback(NULL, &other, WARP_LOG_DEBUG), WARP_SUCCESS);
    other.count = 0;
    make_noise();
    CHECK_EQ_I64(other.count, 0);
    CHECK_STATUS(warp_log_set_callback(listen, &other, 0), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_log_set_callback(listen, &other, 5), WARP_ERROR_INVALID_ARGUMENT);
    make_noise();
    CHECK_EQ_I64(other.count, 0);
}

PROCESS_TEST(the_options_of_init_listen_from_the_start)
{
    struct heard heard = {0};
    warp_init_options options = {.struct_size = sizeof options, .log = listen, .log_user = &heard};
    setenv("WARPSIM_FAIL", "cuDeviceGetName:1:999", 1);
    CHECK_STATUS(warp_init(&options, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(heard.count, 1);
    CHECK_EQ_I64(heard.level, WARP_LOG_ERROR);
    CHECK_STR_CONTAINS(heard.text, "GPU 0 ");
    CHECK_STR_CONTAINS(heard.text, "cuDeviceGetName");
    /* A later init's options have no effect, and none leaves what is set. */
    {
        struct heard other = {0};
        options.log_user = &other;
        CHECK_STATUS(warp_init(&options, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
        heard.count = 0;
        SIMULATOR(warpsim_fail_clear)();
        make_noise();
        CHECK_EQ_I64(other.count, 0);
        CHECK_EQ_I64(heard.count, 1);
    }
}

static void call_back_in(void *user, warp_log_level level, const char *message)
{
    struct heard *heard = user;
    warp_device *found = NULL;
    void *block = NULL;
    (void)level;
    (void)message;
    heard->count += 1;
    heard->from_inside = warp_log_set_callback(NULL, NULL, 0);
    heard->nested = warp_device_get("cuda:0", &found);
    CHECK_STATUS(warp_alloc(found, 64, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    /* What this gives rise to is dropped, or it would never end. */
    make_noise();
}

PROCESS_TEST(a_callback_may_call_back_in_but_not_replace_itself)
{
    struct heard heard = {0};
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_log_set_callback(call_back_in, &heard, WARP_LOG_DEBUG), WARP_SUCCESS);
    make_noise();
    CHECK_EQ_I64(heard.count, 1);
    CHECK_STATUS(heard.from_inside, WARP_ERROR_BUSY);
    CHECK_STATUS(heard.nested, WARP_SUCCESS);
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
}

static void stay_inside(void *user, warp_log_level level, const char *message)
{
    struct heard *heard = user;
    (void)level;
    (void)message;
    __atomic_store_n(&heard->inside, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&heard->leave, __ATOMIC_SEQ_CST))
        usleep(1000);
    usleep(50000);
    __atomic_store_n(&heard->inside, 0, __ATOMIC_SEQ_CST);
}

static void *noisy_thread(void *unused)
{
    (void)unused;
    make_noise();
    return NULL;
}

PROCESS_TEST(unregistering_waits_for_the_callback_to_leave)
{
    struct heard heard = {0};
    pthread_t thread;
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_log_set_callback(stay_inside, &heard, WARP_LOG_WARNING), WARP_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, noisy_thread, NULL) == 0);
    while (!__atomic_load_n(&heard.inside, __ATOMIC_SEQ_CST))
        usleep(1000);
    /* Others go on meanwhile: no lock is held that they could want. */
    {
        warp_device *found = NULL;
        void *block = NULL;
        char text[4096];
        CHECK_STATUS(warp_device_get("cuda:0", &found), WARP_SUCCESS);
        CHECK_STATUS(warp_alloc(found, 64, &block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_library_get_report(text, sizeof text, NULL), WARP_SUCCESS);
    }
    __atomic_store_n(&heard.leave, 1, __ATOMIC_SEQ_CST);
    CHECK_STATUS(warp_log_set_callback(NULL, NULL, 0), WARP_SUCCESS);
    CHECK_EQ_I64(__atomic_load_n(&heard.inside, __ATOMIC_SEQ_CST), 0);
    pthread_join(thread, NULL);
}

CHECK_MAIN()
