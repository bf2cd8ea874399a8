// topology: h200x2
// topology: discrete
// topology: hmm
// topology: -
/* Wrapping: arrays in memory of others, what is said of it and what it is, and deleters. */
#include "arrays.h"
#include "simulator.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

struct lender {
    int calls;
    void *ptr;
    uint64_t size;
    int frees; /* with warp_free */
    warp_status inner;
};

static void take_back(void *user, void *ptr, uint64_t size)
{
    struct lender *lender = (struct lender *)user;
    ++lender->calls;
    lender->ptr = ptr;
    lender->size = size;
    /* A deleter may call back in. */
    if (lender->frees)
        lender->inner = warp_free(ptr);
}

static warp_array_wrap_options with_deleter(struct lender *lender)
{
    warp_array_wrap_options options = {0};
    options.struct_size = sizeof options;
    options.deleter = take_back;
    options.deleter_user = lender;
    return options;
}

TEST(host_memory_is_wrapped_as_it_is)
{
    int32_t items[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const int64_t shape[2] = {3, 4}, index[2] = {1, 2};
    warp_array *array = NULL;
    warp_array_info info;
    start();
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 2, shape, NULL, &array), WARP_SUCCESS);
    info = info_of(array);
    CHECK_EQ_PTR(info.data, items);
    CHECK_EQ_PTR(info.device, cpu);
    CHECK_EQ_I64(info.kind, WARP_MEMORY_HOST);
    CHECK_EQ_I64(info.rule, WARP_ACCESS_RULE_PAGEABLE);
    CHECK_EQ_U64(info.capacity, 48);
    CHECK(!info.is_owned && !info.has_deleter && !info.is_view && info.is_contiguous);
    CHECK_EQ_U64(item_at(array, index), 6);
    release(array);
    CHECK_EQ_I64(items[11], 11);
    finish();
}

TEST(a_deleter_is_called_once_with_the_last_of_the_views)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    int32_t items[8] = {0};
    const int64_t shape = 6, first = 2, backwards = -1;
    size_t order;
    start();
    for (order = 0; order < 6; ++order) {
        struct lender lender = {0, NULL, 0, 0, 0};
        warp_array_wrap_options options = with_deleter(&lender);
        warp_array *all[3];
        options.capacity = order % 2 ? 0 : sizeof items;
        CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &shape, &options, &all[0]), WARP_SUCCESS);
        CHECK_STATUS(warp_array_slice(all[0], 1, &first, NULL, NULL, &all[1]), WARP_SUCCESS);
        CHECK_STATUS(warp_array_slice(all[1], 1, NULL, NULL, &backwards, &all[2]), WARP_SUCCESS);
        CHECK_EQ_U64(info_of(all[2]).has_deleter, 1);
        release(all[orders[order][0]]);
        release(all[orders[order][1]]);
        CHECK_EQ_I64(lender.calls, 0);
        release(all[orders[order][2]]);
        CHECK_EQ_I64(lender.calls, 1);
        CHECK_EQ_PTR(lender.ptr, items);
        CHECK_EQ_U64(lender.size, order % 2 ? 24 : 32);
        CHECK_STATUS(warp_array_release(all[0]), WARP_ERROR_INVALID_HANDLE);
        CHECK_EQ_I64(lender.calls, 1);
    }
    finish();
}

TEST(a_wrap_that_fails_leaves_the_memory_to_its_lender)
{
    int32_t items[8] = {0};
    const int64_t shape = 8, zero = 0, negative = -8, most = INT64_MAX, far[1] = {INT64_MAX / 4};
    const int64_t down[1] = {INT64_MIN / 8 + 1};
    struct lender lender = {0, NULL, 0, 0, 0};
    warp_array_wrap_options options = with_deleter(&lender);
    struct {
        warp_array_wrap_options known;
        uint64_t tail;
    } longer;
    warp_array *array = NULL;
    start();
    CHECK_STATUS(warp_array_wrap(cpu, NULL, I32, 1, &shape, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "NULL");
    CHECK_STATUS(warp_array_wrap(cpu, NULL, I32, 0, NULL, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &negative, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, NULL, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 33, &shape, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &most, &options, &array), WARP_ERROR_SIZE_OVERFLOW);
    CHECK_STATUS(warp_array_wrap(cpu, (void *)(UINTPTR_MAX - 8), I32, 1, &shape, &options, &array),
                 WARP_ERROR_SIZE_OVERFLOW);
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &shape, &options, NULL), WARP_ERROR_INVALID_ARGUMENT);
    options.capacity = 31;
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &shape, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    options.capacity = UINT64_MAX;
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &shape, &options, &array), WARP_ERROR_SIZE_OVERFLOW);
    options.capacity = 0;
    options.strides = far;
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &shape, &options, &array), WARP_ERROR_SIZE_OVERFLOW);
    options.strides = down;
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &shape, &options, &array), WARP_ERROR_SIZE_OVERFLOW);
    options.strides = NULL;
    options.kind = WARP_MEMORY_PINNED;
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &shape, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "PINNED");
    options.kind = 77;
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &shape, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    options.kind = 0;
    options.struct_size = 4;
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &shape, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    memset(&longer, 0, sizeof longer);
    longer.known = with_deleter(&lender);
    longer.known.struct_size = sizeof longer;
    longer.tail = 1;
    CHECK_STATUS(warp_array_wrap(cpu, items, I32, 1, &shape, &longer.known, &array), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_PTR(array, NULL);
    CHECK_EQ_I64(lender.calls, 0);

    /* Nothing at NULL is an array, and its deleter has something of its own to give back, perhaps. */
    options.struct_size = sizeof options;
    CHECK_STATUS(warp_array_wrap(cpu, NULL, I32, 1, &zero, &options, &array), WARP_SUCCESS);
    CHECK_EQ_PTR(info_of(array).data, NULL);
    release(array);
    CHECK_EQ_I64(lender.calls, 1);
    finish();
}

TEST(negative_strides_reach_below_the_pointer)
{
    int32_t items[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const int64_t shape[2] = {2, 4}, strides[2] = {16, -4}, index[2] = {1, 3};
    const int32_t value = 9;
    warp_array_wrap_options options = {0};
    warp_array *array = NULL;
    void *block = NULL;
    start();
    options.struct_size = sizeof options;
    options.strides = strides;
    CHECK_STATUS(warp_array_wrap(cpu, items + 3, I32, 2, shape, &options, &array), WARP_SUCCESS);
    CHECK_EQ_U64(item_at(array, index), 4);
    CHECK_EQ_U64(info_of(array).capacity, 20);
    CHECK_STATUS(warp_array_fill(array, &value, sizeof value, NULL), WARP_SUCCESS);
    CHECK(items[0] == 9 && items[3] == 9 && items[4] == 9 && items[7] == 9);
    release(array);
    /* In a block whose ends are known, both ends count. */
    CHECK_STATUS(warp_alloc(cpu, 32, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_array_wrap(cpu, (int32_t *)block + 3, I32, 2, shape, &options, &array), WARP_SUCCESS);
    release(array);
    CHECK_STATUS(warp_array_wrap(cpu, (int32_t *)block + 4, I32, 2, shape, &options, &array),
                 WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    finish();
}

static void check_wrap_of_block(warp_device *device, warp_device *other, warp_memory_kind kind)
{
    const int64_t shape = 100, too_many = 101, index = 99;
    const int32_t value = 13;
    struct lender lender = {0, NULL, 0, 1, 0};
    warp_array_wrap_options options = with_deleter(&lender);
    warp_alloc_options how = {0};
    warp_array *array = NULL;
    void *block = NULL;
    how.struct_size = sizeof how;
    how.kind = kind;
    if (warp_alloc_with(device, 400, &how, &block) == WARP_ERROR_NOT_SUPPORTED)
        return;
    options.kind = kind;
    CHECK_STATUS(warp_array_wrap(device, block, I32, 1, &too_many, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "pass the end");
    options.capacity = 401;
    CHECK_STATUS(warp_array_wrap(device, block, I32, 1, &shape, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    options.capacity = 0;
    options.kind = kind == WARP_MEMORY_CUDA_MANAGED ? WARP_MEMORY_CUDA_DEVICE : WARP_MEMORY_CUDA_MANAGED;
    CHECK_STATUS(warp_array_wrap(device, block, I32, 1, &shape, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
    options.kind = 0;
    if (other != NULL && kind != WARP_MEMORY_CUDA_MANAGED) {
        CHECK_STATUS(warp_array_wrap(other, block, I32, 1, &shape, &options, &array), WARP_ERROR_INVALID_ARGUMENT);
        CHECK_STR_CONTAINS(warp_error_get_message(), "cuda:0");
        CHECK_STR_CONTAINS(warp_error_get_message(), kind == WARP_MEMORY_PINNED ? "cpu" : "cuda:1");
    }
    CHECK_EQ_I64(lender.calls, 0);
    CHECK_STATUS(warp_array_wrap(device, block, I32, 1, &shape, &options, &array), WARP_SUCCESS);
    CHECK_EQ_I64(info_of(array).kind, kind);
    CHECK_EQ_U64(info_of(array).is_owned, 0);
    CHECK_STATUS(warp_array_fill(array, &value, 4, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(item_at(array, &index), 13);
    release(array);
    CHECK_EQ_I64(lender.calls, 1);
    CHECK_STATUS(lender.inner, WARP_SUCCESS);
    CHECK_EQ_PTR(lender.ptr, block);
    CHECK_EQ_U64(lender.size, 400);
}

TEST(a_block_of_the_library_is_known_for_what_it_is)
{
    start();
    check_wrap_of_block(cpu, NULL, WARP_MEMORY_HOST);
    if (gpus >= 2) {
        check_wrap_of_block(cpu, gpu[0], WARP_MEMORY_PINNED);
        check_wrap_of_block(gpu[1], gpu[0], WARP_MEMORY_CUDA_DEVICE);
        check_wrap_of_block(gpu[1], gpu[0], WARP_MEMORY_CUDA_MEMPOOL);
        check_wrap_of_block(gpu[1], gpu[0], WARP_MEMORY_CUDA_MANAGED);
    }
    finish();
}

TEST(managed_memory_is_at_home_everywhere)
{
    const int64_t shape = 16;
    warp_alloc_options how = {0};
    warp_array *array = NULL;
    void *block = NULL;
    start();
    how.struct_size = sizeof how;
    how.kind = WARP_MEMORY_CUDA_MANAGED;
    if (gpus >= 2 && warp_alloc_with(gpu[0], 64, &how, &block) == WARP_SUCCESS) {
        CHECK_STATUS(warp_array_wrap(gpu[1], block, I32, 1, &shape, NULL, &array), WARP_SUCCESS);
        CHECK_EQ_PTR(info_of(array).device, gpu[1]);
        CHECK_EQ_I64(info_of(array).kind, WARP_MEMORY_CUDA_MANAGED);
        release(array);
        CHECK_STATUS(warp_array_wrap(cpu, block, I32, 1, &shape, NULL, &array), WARP_SUCCESS);
        CHECK_EQ_PTR(info_of(array).device, cpu);
        CHECK_EQ_I64(info_of(array).kind, WARP_MEMORY_CUDA_MANAGED);
        release(array);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    }
    finish();
}

TEST(an_address_that_nobody_knows_is_host_memory_or_refused)
{
    int32_t items[4] = {0};
    const int64_t shape = 4;
    const char *topology = getenv("WARPSIM_TOPOLOGY");
    warp_array *array = NULL;
    warp_array_wrap_options options = {0};
    start();
    options.struct_size = sizeof options;
    if (gpus > 0) {
        if (topology != NULL && strcmp(topology, "discrete") == 0) {
            CHECK_STATUS(warp_array_wrap(gpu[0], items, I32, 1, &shape, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
            CHECK_STR_CONTAINS(warp_error_get_message(), "cuda:0");
        }
        if (topology != NULL && strcmp(topology, "hmm") == 0) {
            CHECK_STATUS(warp_array_wrap(gpu[0], items, I32, 1, &shape, NULL, &array), WARP_SUCCESS);
            CHECK_EQ_I64(info_of(array).kind, WARP_MEMORY_UNKNOWN);
            release(array);
            options.kind = WARP_MEMORY_CUDA_DEVICE;
            CHECK_STATUS(warp_array_wrap(gpu[0], items, I32, 1, &shape, &options, &array),
                         WARP_ERROR_INVALID_ARGUMENT);
        }
    }
    finish();
}

/* Memory that the driver has and the library's ledger has not. */
TEST(memory_of_other_code_is_known_by_the_driver)
{
    uint32_t (*allocate)(uint64_t *, size_t), (*deallocate)(uint64_t);
    uint32_t (*allocate_host)(void **, size_t, unsigned), (*deallocate_host)(void *), (*push)(void *), (*pop)(void **);
    const int64_t shape = 64, more = 65, index = 63;
    const int32_t value = 21;
    uint64_t block = 0;
    void *context = NULL, *pinned = NULL;
    warp_array *array = NULL;
    start();
    if (gpus < 2 || !simulator_is_here()) {
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        SKIP("needs two GPUs and the simulated driver");
    }
    *(void **)&allocate = simulator_symbol("cuMemAlloc_v2");
    *(void **)&deallocate = simulator_symbol("cuMemFree_v2");
    *(void **)&allocate_host = simulator_symbol("cuMemHostAlloc");
    *(void **)&deallocate_host = simulator_symbol("cuMemFreeHost");
    *(void **)&push = simulator_symbol("cuCtxPushCurrent_v2");
    *(void **)&pop = simulator_symbol("cuCtxPopCurrent_v2");
    CHECK_STATUS(warp_device_get_native_context(gpu[1], &context), WARP_SUCCESS);
    CHECK_EQ_U64(push(context), 0);
    CHECK_EQ_U64(allocate(&block, 256), 0);
    CHECK_EQ_U64(allocate_host(&pinned, 256, 1), 0);
    CHECK_EQ_U64(pop(&context), 0);
    CHECK_STATUS(warp_array_wrap(gpu[0], (void *)(uintptr_t)block, I32, 1, &shape, NULL, &array),
                 WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "cuda:1");
    CHECK_STATUS(warp_array_wrap(cpu, (void *)(uintptr_t)block, I32, 1, &shape, NULL, &array),
                 WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_wrap(gpu[1], (void *)(uintptr_t)block, I32, 1, &more, NULL, &array),
                 WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_array_wrap(gpu[1], (void *)(uintptr_t)block, I32, 1, &shape, NULL, &array), WARP_SUCCESS);
    CHECK_EQ_I64(info_of(array).kind, WARP_MEMORY_CUDA_DEVICE);
    CHECK_EQ_I64(info_of(array).rule, WARP_ACCESS_RULE_PEER);
    CHECK_STATUS(warp_array_fill(array, &value, 4, NULL), WARP_SUCCESS);
    CHECK_EQ_U64(item_at(array, &index), 21);
    release(array);
    CHECK_STATUS(warp_array_wrap(cpu, pinned, I32, 1, &shape, NULL, &array), WARP_SUCCESS);
    CHECK_EQ_I64(info_of(array).kind, WARP_MEMORY_PINNED);
    release(array);
    CHECK_STATUS(warp_array_wrap(gpu[0], pinned, I32, 1, &shape, NULL, &array), WARP_ERROR_INVALID_ARGUMENT);
    synchronize_all();
    CHECK_EQ_U64(push(context), 0);
    CHECK_EQ_U64(deallocate(block), 0);
    CHECK_EQ_U64(deallocate_host(pinned), 0);
    CHECK_EQ_U64(pop(&context), 0);
    finish();
}

static void remember_context(void *user, void *ptr, uint64_t size)
{
    uint32_t (*current)(void **);
    (void)ptr;
    (void)size;
    *(void **)&current = simulator_symbol("cuCtxGetCurrent");
    CHECK_EQ_U64(current((void **)user), 0);
}

TEST(a_deleter_finds_the_device_current_and_the_caller_its_own_context_afterwards)
{
    uint32_t (*current)(void **);
    const int64_t shape = 1;
    void *block = NULL, *expected = NULL, *seen = NULL, *before = NULL, *after = NULL;
    warp_array_wrap_options options = {0};
    warp_array *array = NULL;
    start();
    if (gpus < 2 || !simulator_is_here()) {
        CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
        SKIP("needs two GPUs and the simulated driver");
    }
    *(void **)&current = simulator_symbol("cuCtxGetCurrent");
    options.struct_size = sizeof options;
    options.deleter = remember_context;
    options.deleter_user = &seen;
    CHECK_STATUS(warp_alloc(gpu[1], 4, &block), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_native_context(gpu[1], &expected), WARP_SUCCESS);
    CHECK_STATUS(warp_array_wrap(gpu[1], block, I32, 1, &shape, &options, &array), WARP_SUCCESS);
    CHECK_EQ_U64(current(&before), 0);
    release(array);
    CHECK_EQ_U64(current(&after), 0);
    CHECK_EQ_PTR(seen, expected);
    CHECK_EQ_PTR(after, before);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    finish();
}

struct reviver {
    int calls;
    uint8_t initialized;
    warp_status status;
};

static void start_again(void *user, void *ptr, uint64_t size)
{
    struct reviver *reviver = (struct reviver *)user;
    (void)ptr;
    (void)size;
    ++reviver->calls;
    CHECK_STATUS(warp_library_is_initialized(&reviver->initialized), WARP_SUCCESS);
    reviver->status = warp_init(NULL, NULL);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

TEST(the_last_shutdown_calls_the_deleters_that_are_left_with_no_lock_held)
{
    int32_t item = 0;
    struct reviver reviver = {0, 9, 0};
    struct lender lender = {0, NULL, 0, 0, 0};
    warp_array_wrap_options options = with_deleter(&lender);
    warp_array *array = NULL, *other = NULL, *view = NULL;
    start();
    CHECK_STATUS(warp_array_wrap(cpu, &item, I32, 0, NULL, &options, &other), WARP_SUCCESS);
    options.deleter = start_again;
    options.deleter_user = &reviver;
    CHECK_STATUS(warp_array_wrap(cpu, &item, I32, 0, NULL, &options, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_slice(array, 0, NULL, NULL, NULL, &view), WARP_SUCCESS);
    CHECK_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_I64(reviver.calls, 0);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_EQ_I64(reviver.calls, 1);
    CHECK_EQ_U64(reviver.initialized, 0);
    CHECK_STATUS(reviver.status, WARP_SUCCESS);
    CHECK_EQ_I64(lender.calls, 1);
    CHECK_STATUS(warp_array_release(view), WARP_ERROR_INVALID_HANDLE);
    CHECK_EQ_I64(reviver.calls, 1);
}

TEST(a_block_that_outlived_a_shutdown_can_be_wrapped)
{
    const int64_t shape = 4;
    warp_alloc_options how = {0};
    warp_array *array = NULL;
    void *on_cpu = NULL, *on_gpu = NULL;
    start();
    how.struct_size = sizeof how;
    how.kind = WARP_MEMORY_CUDA_DEVICE;
    CHECK_STATUS(warp_alloc(cpu, 16, &on_cpu), WARP_SUCCESS);
    if (gpus > 0)
        CHECK_STATUS(warp_alloc_with(gpu[0], 16, &how, &on_gpu), WARP_SUCCESS);
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    start();
    CHECK_STATUS(warp_array_wrap(cpu, on_cpu, I32, 1, &shape, NULL, &array), WARP_SUCCESS);
    release(array);
    if (gpus > 0) {
        CHECK_STATUS(warp_array_wrap(gpu[0], on_gpu, I32, 1, &shape, NULL, &array), WARP_SUCCESS);
        release(array);
    }
    CHECK_STATUS(warp_free(on_cpu), WARP_SUCCESS);
    CHECK_STATUS(warp_free(on_gpu), WARP_SUCCESS);
    finish();
}

TEST(what_was_freed_under_a_wrap_is_told_and_not_touched)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    const int64_t shape[1] = {1024};
    size_t i;
    start();
    for (i = 0; gpus > 0 && i < sizeof kinds / sizeof *kinds; ++i) {
        warp_access_info access;
        warp_array *array = NULL, *copy = NULL;
        const float value = 1;
        unsigned char host[4096];
        warp_alloc_options how;
        void *ptr = NULL;
        memset(&how, 0, sizeof how);
        how.struct_size = sizeof how;
        how.kind = kinds[i];
        if (warp_alloc_with(gpu[0], sizeof host, &how, &ptr) == WARP_ERROR_NOT_SUPPORTED)
            continue;
        memset(&access, 0, sizeof access);
        access.struct_size = sizeof access;
        REQUIRE_STATUS(warp_array_wrap(gpu[0], ptr, warp_dtype_make(WARP_DTYPE_FLOAT, 32), 1, shape, NULL, &array), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(gpu[0]), WARP_SUCCESS);
        CHECK_STATUS(warp_array_fill(array, &value, sizeof value, NULL), WARP_ERROR_UNKNOWN_POINTER);
        CHECK_STR_CONTAINS(warp_error_get_message(), "freed by its address");
        CHECK_STATUS(warp_array_clone(array, cpu, NULL, &copy), WARP_ERROR_UNKNOWN_POINTER);
        CHECK_STATUS(warp_access_get_status(gpu[0], array, &access), WARP_ERROR_UNKNOWN_POINTER);
        CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
        /* Nor is it taken for memory of the host. */
        CHECK_STATUS(warp_memory_fill(ptr, sizeof host, &value, sizeof value, NULL), WARP_ERROR_UNKNOWN_POINTER);
        CHECK_STR_CONTAINS(warp_error_get_message(), "was freed before");
        CHECK_STATUS(warp_memory_copy(host, ptr, sizeof host, NULL), WARP_ERROR_UNKNOWN_POINTER);
        CHECK_STATUS(warp_memory_copy(ptr, host, sizeof host, NULL), WARP_ERROR_UNKNOWN_POINTER);
    }
    finish();
}

TEST(a_forked_child_gives_back_host_memory_and_leaves_the_gpus_alone)
{
    int32_t item = 0;
    struct lender host = {0, NULL, 0, 0, 0}, device = {0, NULL, 0, 1, 0};
    warp_array_wrap_options options = with_deleter(&host);
    warp_array *on_host = NULL, *on_gpu = NULL, *owned = NULL;
    void *block = NULL;
    int status = 0;
    const int64_t one = 1;
    pid_t child;
    start();
    CHECK_STATUS(warp_array_wrap(cpu, &item, I32, 0, NULL, &options, &on_host), WARP_SUCCESS);
    if (gpus > 0) {
        options.deleter_user = &device;
        CHECK_STATUS(warp_alloc(gpu[0], 4, &block), WARP_SUCCESS);
        CHECK_STATUS(warp_array_wrap(gpu[0], block, I32, 0, NULL, &options, &on_gpu), WARP_SUCCESS);
        CHECK_STATUS(warp_array_zeros(gpu[0], I32, 1, &one, NULL, &owned), WARP_SUCCESS);
        synchronize_all();
    }
    fflush(stdout);
    child = fork();
    if (child == 0) {
        release(on_host);
        CHECK_EQ_I64(host.calls, 1);
        if (gpus > 0) {
            release(on_gpu);
            release(owned);
            CHECK_EQ_I64(device.calls, 0);
            CHECK_STATUS(warp_array_zeros(gpu[0], I32, 1, &one, NULL, &owned), WARP_ERROR_FORKED);
            CHECK_STATUS(warp_array_wrap(gpu[0], &item, I32, 1, &one, NULL, &owned), WARP_ERROR_FORKED);
        }
        CHECK_STATUS(warp_array_zeros(cpu, I32, 1, &one, NULL, &owned), WARP_SUCCESS);
        release(owned);
        /* What the library gives up in a child is no leak to be told of, so a child without failures ends abruptly. */
        if (check_failure_count() == 0)
            raise(SIGKILL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    release(on_host);
    CHECK_EQ_I64(host.calls, 1);
    if (gpus > 0) {
        release(on_gpu);
        release(owned);
        CHECK_EQ_I64(device.calls, 1);
    }
    finish();
}

CHECK_MAIN()
