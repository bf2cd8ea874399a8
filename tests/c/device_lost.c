/*
 * device_lost.c: contexts that die: what is answered of the device that is lost, and where its memory goes.
 *
 * needs: simulator
 */
#define _GNU_SOURCE

#include "devices.h"
#include "driver.h"
#include "process.h"

#include <warpmem.h>

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

CHECK_MAIN()
