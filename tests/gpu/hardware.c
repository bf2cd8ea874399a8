/*
 * What only a real GPU proves: that frees wait for work that is really running, that nobody's capture breaks, that data
 * arrives, that contexts of other code come and go without harm. Each test has a process of its own, since contexts die
 * in some. Runs on one GPU or more; what needs two says so.
 */
#include "hardware.h"

PROCESS_TEST(starting_makes_no_context)
{
    size_t i;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    char report[4096];
    CHECK_STATUS(warp_library_get_report(report, sizeof report, NULL), WARP_SUCCESS);
    for (i = 0; i < gpus(); i++) {
        unsigned flags = 0;
        int active = -1;
        CHECK_EQ_I64(CU((int, unsigned *, int *), "cuDevicePrimaryCtxGetState")((int)i, &flags, &active), SUCCESS);
        CHECK_EQ_I64(active, 0);
    }
    void *current = (void *)1;
    CHECK_EQ_I64(GET_CURRENT(&current), SUCCESS);
    CHECK_EQ_PTR(current, NULL);
}

PROCESS_TEST(a_gpu_is_described_in_the_same_form_everywhere)
{
    warp_device_info info = {.struct_size = sizeof info};
    size_t total = 0;
    start();
    REQUIRE_STATUS(warp_device_get_info(device("cuda:0"), &info), WARP_SUCCESS);
    CHECK_EQ_U64(strlen(info.pci_bus_id), 14);
    CHECK_EQ_U64(strspn(info.pci_bus_id, "0123456789ABCDEF:"), 14);
    CHECK_EQ_U64(strlen(info.uuid), 40);
    CHECK_STR_CONTAINS(info.uuid, "GPU-");
    CHECK_EQ_I64(CU((size_t *, int), "cuDeviceTotalMem_v2")(&total, 0), SUCCESS);
    CHECK_EQ_U64(info.total_memory, total);
    CHECK_EQ_I64(info.is_mempool_enabled, info.is_mempool_supported);
}

PROCESS_TEST(every_kind_is_what_the_driver_says)
{
    start();
    static const warp_memory_kind kinds[] = {WARP_MEMORY_PINNED, WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL,
                                             WARP_MEMORY_CUDA_MANAGED};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        warp_device *home = device(kinds[k] == WARP_MEMORY_PINNED ? "cpu" : "cuda:0");
        void *ptr = block(home, MIB, kinds[k], NULL);
        unsigned type = 0;
        int managed = 0;
        void *pool = NULL;
        REQUIRE(ptr != NULL);
        CHECK_STATUS(warp_device_synchronize(device("cuda:0")), WARP_SUCCESS);
        CHECK_EQ_I64(MEMORY_TYPE(&type, (address)ptr), SUCCESS);
        CHECK_EQ_I64(type, kinds[k] == WARP_MEMORY_PINNED ? 1 : 2);
        CHECK_EQ_I64(CU((void *, int, address), "cuPointerGetAttribute")(&managed, 8, (address)ptr), SUCCESS);
        CHECK_EQ_I64(managed & 255, kinds[k] == WARP_MEMORY_CUDA_MANAGED);
        CHECK_EQ_I64(POOL_OF(&pool, (address)ptr), SUCCESS);
        CHECK_EQ_I64(pool != NULL, kinds[k] == WARP_MEMORY_CUDA_MEMPOOL);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_EQ_U64(live(home), 0);
    }
}

PROCESS_TEST(memory_of_other_code_is_known)
{
    start();
    address plain = 0, managed = 0;
    void *pinned = NULL, *registered = aligned_alloc(4096, MIB);
    warp_pointer_info info = {.struct_size = sizeof info};
    REQUIRE(CU((address *, size_t), "cuMemAlloc_v2")(&plain, MIB) == SUCCESS);
    REQUIRE(CU((address *, size_t, unsigned), "cuMemAllocManaged")(&managed, MIB, 1) == SUCCESS);
    REQUIRE(CU((void **, size_t), "cuMemAllocHost_v2")(&pinned, MIB) == SUCCESS);
    REQUIRE(CU((void *, size_t, unsigned), "cuMemHostRegister_v2")(registered, MIB, 0) == SUCCESS);
    const struct {
        void *ptr;
        warp_memory_kind kind;
        warp_access_rule rule;
        int ordinal;
    } all[] = {{(void *)plain, WARP_MEMORY_CUDA_DEVICE, WARP_ACCESS_RULE_PEER, 0},
               {(void *)managed, WARP_MEMORY_CUDA_MANAGED, WARP_ACCESS_RULE_MANAGED, 0},
               {pinned, WARP_MEMORY_PINNED, WARP_ACCESS_RULE_PINNED, -1},
               {registered, WARP_MEMORY_PINNED, WARP_ACCESS_RULE_PINNED, -1},
               {&info, WARP_MEMORY_UNKNOWN, WARP_ACCESS_RULE_UNKNOWN, -1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CHECK_STATUS(warp_pointer_get_info((char *)all[i].ptr + 8, &info), WARP_SUCCESS);
        CHECK_EQ_I64(info.kind, all[i].kind);
        CHECK_EQ_I64(info.rule, all[i].rule);
        CHECK_EQ_I64(info.ordinal, all[i].ordinal);
        CHECK_EQ_I64(info.is_owned, 0);
        if (info.kind != WARP_MEMORY_UNKNOWN) {
            CHECK_EQ_PTR(info.base, all[i].ptr);
            CHECK_EQ_U64(info.size, MIB);
        }
    }
    CHECK_STATUS(warp_free((void *)plain), WARP_ERROR_UNKNOWN_POINTER);
}

PROCESS_TEST(frees_do_not_wait_for_running_work)
{
    start();
    warp_device *gpu = device("cuda:0");
    warp_stream *worker = new_stream(gpu, WARP_STREAM_NON_BLOCKING);
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MANAGED, WARP_MEMORY_PINNED,
                                             WARP_MEMORY_CUDA_MEMPOOL};
    keep_busy(worker); /* the first touch of the large blocks is slow */
    CHECK_STATUS(warp_stream_synchronize(worker), WARP_SUCCESS);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        warp_device *home = device(kinds[k] == WARP_MEMORY_PINNED ? "cpu" : "cuda:0");
        void *ptr = block(home, MIB, kinds[k], NULL);
        unsigned type = 0;
        CHECK_STATUS(warp_device_synchronize(gpu), WARP_SUCCESS);
        keep_busy(worker);
        CHECK_STATUS(warp_pointer_record_stream(ptr, worker), WARP_SUCCESS);
        double begin = now();
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        double took = now() - begin;
        printf("    kind %d: the free took %.0f us while its stream worked\n", (int)kinds[k], took * 1e6);
        CHECK_EQ_I64(STREAM_QUERY(native(worker)), NOT_READY); /* else this shows nothing */
        CHECK(took < 0.005);
        if (kinds[k] != WARP_MEMORY_CUDA_MEMPOOL) /* a pool block counts as freed once its free is queued */
            CHECK_EQ_I64(MEMORY_TYPE(&type, (address)ptr), SUCCESS); /* still there */
        CHECK_STATUS(warp_stream_synchronize(worker), WARP_SUCCESS);
        /* A later call gives it back. */
        void *other = block(home, 4096, kinds[k], NULL);
        CHECK(MEMORY_TYPE(&type, (address)ptr) != SUCCESS || other == ptr || kinds[k] == WARP_MEMORY_CUDA_MEMPOOL);
        CHECK_STATUS(warp_free(other), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_stream_release(worker), WARP_SUCCESS);
}

PROCESS_TEST(a_freed_pool_block_is_not_used_again_before_its_last_reader_is_done)
{
    start();
    warp_device *gpu = device("cuda:0");
    warp_stream *owner = new_stream(gpu, 0), *reader = new_stream(gpu, WARP_STREAM_NON_BLOCKING);
    const uint64_t size = 8 * MIB;
    void *result = block(gpu, size, WARP_MEMORY_CUDA_DEVICE, owner);
    keep_busy(reader);
    CHECK_STATUS(warp_stream_synchronize(reader), WARP_SUCCESS);
    for (int round = 0; round < 20; round++) {
        unsigned char old = (unsigned char)(2 * round + 1), fresh = (unsigned char)(2 * round + 2);
        void *first = block(gpu, size, WARP_MEMORY_CUDA_MEMPOOL, owner);
        CHECK_STATUS(warp_memory_fill(first, size, &old, 1, owner), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(owner), WARP_SUCCESS);
        keep_busy(reader);
        CHECK_STATUS(warp_memory_copy(result, first, size, reader), WARP_SUCCESS);
        CHECK_STATUS(warp_free(first), WARP_SUCCESS);
        void *second = block(gpu, size, WARP_MEMORY_CUDA_MEMPOOL, owner);
        CHECK_STATUS(warp_memory_fill(second, size, &fresh, 1, owner), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(reader), WARP_SUCCESS);
        CHECK(device_holds(result, size, old, reader));
        CHECK_STATUS(warp_free(second), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(result), WARP_SUCCESS);
}

PROCESS_TEST(page_locked_memory_freed_under_a_copy_arrives_whole)
{
    start();
    warp_device *gpu = device("cuda:0"), *cpu = device("cpu");
    warp_stream *stream = new_stream(gpu, WARP_STREAM_NON_BLOCKING);
    const uint64_t size = 64 * MIB;
    void *target = block(gpu, size, WARP_MEMORY_CUDA_DEVICE, stream);
    for (int round = 0; round < 30; round++) {
        void *source = block(cpu, size, WARP_MEMORY_PINNED, NULL);
        memset(source, round + 1, size);
        CHECK_STATUS(warp_memory_copy(target, source, size, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(source), WARP_SUCCESS);
        void *next = block(cpu, size, WARP_MEMORY_PINNED, NULL);
        memset(next, 0xee, size);
        CHECK(device_holds(target, size, (unsigned char)(round + 1), stream));
        CHECK_STATUS(warp_free(next), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(target), WARP_SUCCESS);
    CHECK_EQ_U64(live(cpu), 0);
}

PROCESS_TEST(blocks_outlive_their_streams)
{
    start();
    warp_device *gpu = device("cuda:0");
    for (int round = 0; round < 200; round++) {
        warp_stream *mine = new_stream(gpu, WARP_STREAM_NON_BLOCKING), *wrapped = NULL;
        void *foreign = NULL;
        CHECK_EQ_I64(CU((void **, unsigned), "cuStreamCreate")(&foreign, 1), SUCCESS);
        CHECK_STATUS(warp_stream_wrap(gpu, foreign, &wrapped), WARP_SUCCESS);
        void *a = block(gpu, MIB, WARP_MEMORY_CUDA_MEMPOOL, mine), *b = block(gpu, MIB, WARP_MEMORY_CUDA_DEVICE, wrapped);
        void *c = block(gpu, MIB, WARP_MEMORY_CUDA_MEMPOOL, wrapped);
        CHECK_STATUS(warp_memory_fill(a, MIB, "a", 1, mine), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(b, MIB, "b", 1, mine), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_fill(c, MIB, "c", 1, wrapped), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(mine), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(wrapped), WARP_SUCCESS);
        CHECK_EQ_I64(CU((void *), "cuStreamDestroy_v2")(foreign), SUCCESS);
        CHECK_STATUS(warp_free(c), WARP_SUCCESS);
        CHECK_STATUS(warp_free(a), WARP_SUCCESS);
        CHECK_STATUS(warp_free(b), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_device_synchronize(gpu), WARP_SUCCESS);
    CHECK_EQ_U64(live(gpu), 0);
}

static void *free_it(void *ptr)
{
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(special_streams_can_be_wrapped)
{
    start();
    warp_device *gpu = device("cuda:0");
    for (uintptr_t special = 0; special <= 2; special++) {
        warp_stream *stream = NULL;
        pthread_t thread;
        CHECK_STATUS(warp_stream_wrap(gpu, (void *)special, &stream), WARP_SUCCESS);
        CHECK_EQ_I64(SET_CURRENT(NULL), SUCCESS); /* the stream's own context is made current where one is needed */
        void *mine = block(gpu, MIB, WARP_MEMORY_CUDA_MEMPOOL, stream), *theirs = block(gpu, MIB, 0, stream);
        CHECK_STATUS(warp_memory_fill(mine, MIB, "x", 1, stream), WARP_SUCCESS);
        CHECK(device_holds(mine, MIB, 'x', stream));
        CHECK_STATUS(warp_free(mine), WARP_SUCCESS);
        REQUIRE(pthread_create(&thread, NULL, free_it, theirs) == 0);
        pthread_join(thread, NULL);
        CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        void *current = (void *)1;
        CHECK_EQ_I64(GET_CURRENT(&current), SUCCESS);
        CHECK_EQ_PTR(current, NULL);
    }
    CHECK_EQ_U64(live(gpu), 0);
}

/* Allocations, frees, fills, copies and questions, none of which may harm a capture elsewhere. */
static void *live_on(void *unused)
{
    warp_device *gpu = device("cuda:0"), *cpu = device("cpu");
    warp_stream *stream = new_stream(gpu, WARP_STREAM_NON_BLOCKING);
    (void)unused;
    for (int kind = WARP_MEMORY_HOST; kind <= WARP_MEMORY_CUDA_MANAGED; kind++) {
        warp_device *home = kind <= WARP_MEMORY_PINNED ? cpu : gpu;
        void *ptr = block(home, MIB, kind, home == gpu ? stream : NULL), *other = block(gpu, MIB, 0, stream);
        warp_pointer_info info = {.struct_size = sizeof info};
        CHECK(ptr != NULL);
        if (home == gpu)
            CHECK_STATUS(warp_memory_fill(ptr, MIB, "y", 1, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_memory_copy(other, ptr, MIB, stream), WARP_SUCCESS);
        CHECK_STATUS(warp_pointer_get_info(other, &info), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
        CHECK_STATUS(warp_free(other), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    return NULL;
}

PROCESS_TEST(no_call_breaks_a_capture)
{
    start();
    warp_device *gpu = device("cuda:0");
    void *before = block(gpu, MIB, WARP_MEMORY_CUDA_DEVICE, NULL), *pooled = block(gpu, MIB, 0, NULL);
    for (int mode = 0; mode <= 2; mode++)
        for (int elsewhere = 0; elsewhere <= 1; elsewhere++) {
            warp_stream *stream = new_stream(gpu, WARP_STREAM_NON_BLOCKING);
            void *graph = NULL, *ptr = (void *)1;
            int status = 0;
            REQUIRE(BEGIN_CAPTURE(native(stream), mode) == SUCCESS);
            if (elsewhere) {
                pthread_t thread;
                REQUIRE(pthread_create(&thread, NULL, live_on, NULL) == 0);
                pthread_join(thread, NULL);
            } else {
                /* On the capturing thread, on other streams. */
                live_on(NULL);
                /* On the capturing stream: recorded, or refused with nothing broken. */
                warp_alloc_options options = {.struct_size = sizeof options, .stream = stream};
                CHECK_STATUS(warp_alloc_with(gpu, MIB, &options, &ptr), WARP_SUCCESS);
                CHECK_STATUS(warp_memory_fill(ptr, MIB, "z", 1, stream), WARP_SUCCESS);
                CHECK_STATUS(warp_memory_copy(before, pooled, MIB, stream), WARP_SUCCESS);
                CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
                options.kind = WARP_MEMORY_CUDA_DEVICE;
                CHECK_STATUS(warp_alloc_with(gpu, MIB, &options, &ptr), WARP_ERROR_ILLEGAL_IN_CAPTURE);
                CHECK_EQ_PTR(ptr, NULL);
                CHECK_STATUS(warp_stream_synchronize(stream), WARP_ERROR_ILLEGAL_IN_CAPTURE);
                CHECK_STATUS(warp_device_synchronize(gpu), WARP_ERROR_ILLEGAL_IN_CAPTURE);
            }
            CHECK_EQ_I64(IS_CAPTURING(native(stream), &status), SUCCESS);
            CHECK_EQ_I64(status, CAPTURE_ACTIVE);
            CHECK_EQ_I64(END_CAPTURE(native(stream), &graph), SUCCESS);
            CHECK(graph != NULL);
            CHECK_EQ_I64(CU((void *), "cuGraphDestroy")(graph), SUCCESS);
            CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
        }
    /* A block whose stream captures when it is freed goes later. */
    warp_stream *stream = new_stream(gpu, WARP_STREAM_NON_BLOCKING);
    void *late = block(gpu, MIB, 0, stream), *graph = NULL;
    REQUIRE(BEGIN_CAPTURE(native(stream), 1) == SUCCESS);
    CHECK_STATUS(warp_free(late), WARP_SUCCESS);
    CHECK_EQ_I64(END_CAPTURE(native(stream), &graph), SUCCESS);
    CHECK(graph != NULL);
    CHECK_STATUS(warp_free(before), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pooled), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_EQ_U64(live(gpu), 0);
}

PROCESS_TEST(a_foreign_context_comes_and_goes)
{
    start();
    void *context = NULL, *popped = NULL, *before = NULL, *after = NULL;
    warp_device *foreign = NULL, *again = NULL;
    void *ptrs[3];
    CHECK_EQ_I64(GET_CURRENT(&before), SUCCESS);
    REQUIRE(CU((void **, unsigned, int), "cuCtxCreate_v2")(&context, 0, 0) == SUCCESS);
    REQUIRE(CU((void **), "cuCtxPopCurrent_v2")(&popped) == SUCCESS);
    REQUIRE_STATUS(warp_device_from_context(context, NULL, &foreign), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get("cuda:0.0", &again), WARP_SUCCESS);
    CHECK_EQ_PTR(again, foreign);
    for (int i = 0; i < 3; i++) {
        ptrs[i] = block(foreign, MIB, WARP_MEMORY_CUDA_DEVICE + i, NULL);
        CHECK_STATUS(warp_memory_fill(ptrs[i], MIB, "f", 1, NULL), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_device_synchronize(foreign), WARP_SUCCESS);
    REQUIRE(CU((void *), "cuCtxDestroy_v2")(context) == SUCCESS);
    for (int i = 0; i < 3; i++)
        CHECK_STATUS(warp_free(ptrs[i]), WARP_SUCCESS);
    void *ptr = (void *)1;
    CHECK_STATUS(warp_alloc(foreign, MIB, &ptr), WARP_ERROR_DEVICE_LOST);
    CHECK_EQ_PTR(ptr, NULL);
    ptr = block(device("cuda:0"), MIB, 0, NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_I64(GET_CURRENT(&after), SUCCESS);
    CHECK_EQ_PTR(after, before);
}

static void reset_and_go_on(int used_again)
{
    start();
    warp_device *gpu = device("cuda:0"), *fresh;
    void *plain = block(gpu, MIB, WARP_MEMORY_CUDA_DEVICE, NULL), *pool = block(gpu, MIB, WARP_MEMORY_CUDA_MEMPOOL, NULL);
    void *driver_pool = NULL, *ptr = (void *)1;
    uint64_t used = 99;
    CHECK_STATUS(warp_device_synchronize(gpu), WARP_SUCCESS);
    REQUIRE(CU((int), "cuDevicePrimaryCtxReset_v2")(0) == SUCCESS);
    if (used_again) {
        /* From now on the driver crashes when it is given a stream of the old context. */
        void *context = NULL;
        REQUIRE(CU((void **, int), "cuDevicePrimaryCtxRetain")(&context, 0) == SUCCESS);
        REQUIRE(SET_CURRENT(context) == SUCCESS);
        address other = 0;
        REQUIRE(CU((address *, size_t), "cuMemAlloc_v2")(&other, MIB) == SUCCESS);
    }
    CHECK_STATUS(warp_alloc(gpu, MIB, &ptr), WARP_ERROR_DEVICE_LOST);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_STATUS(warp_free(plain), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pool), WARP_SUCCESS);
    fresh = device("cuda:0");
    CHECK(fresh != gpu);
    ptr = block(fresh, MIB, 0, NULL);
    CHECK_STATUS(warp_memory_fill(ptr, MIB, "n", 1, NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(fresh), WARP_SUCCESS);
    REQUIRE(CU((void **, int), "cuDeviceGetDefaultMemPool")(&driver_pool, 0) == SUCCESS);
    CHECK_EQ_I64(CU((void *, int, void *), "cuMemPoolGetAttribute")(driver_pool, 7, &used), SUCCESS);
    CHECK_EQ_U64(used, 0); /* the old pool block was given back as well */
}

PROCESS_TEST(a_reset_gpu_is_lost_and_found)
{
    reset_and_go_on(0);
}

PROCESS_TEST(a_reset_gpu_that_others_use_again_is_lost_and_found)
{
    reset_and_go_on(1);
}

PROCESS_TEST(out_of_memory_says_so_and_passes)
{
    start();
    warp_device *gpu = device("cuda:0");
    uint64_t free_bytes = 0, total = 0, keep_all = UINT64_MAX;
    void *pool = NULL, *ptr = NULL;
    REQUIRE_STATUS(warp_device_query_memory(gpu, &free_bytes, &total), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc(gpu, 2 * total, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    CHECK_STR_CONTAINS(warp_error_get_message(), "free");
    warp_alloc_options options = {.struct_size = sizeof options, .kind = WARP_MEMORY_CUDA_DEVICE};
    CHECK_STATUS(warp_alloc_with(gpu, 2 * total, &options, &ptr), WARP_ERROR_OUT_OF_MEMORY);
    /* What the pool keeps makes room for others, and the other way round. */
    REQUIRE(CU((void **, int), "cuDeviceGetDefaultMemPool")(&pool, 0) == SUCCESS);
    REQUIRE(CU((void *, int, void *), "cuMemPoolSetAttribute")(pool, 4, &keep_all) == SUCCESS);
    const uint64_t most = free_bytes / 10 * 6 / MIB * MIB;
    ptr = block(gpu, most, WARP_MEMORY_CUDA_MEMPOOL, NULL);
    REQUIRE(ptr != NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_device_synchronize(gpu), WARP_SUCCESS);
    ptr = block(gpu, most, WARP_MEMORY_CUDA_DEVICE, NULL);
    REQUIRE(ptr != NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    ptr = block(gpu, most, WARP_MEMORY_CUDA_MEMPOOL, NULL);
    REQUIRE(ptr != NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    /* Also when nobody has waited since it was freed. */
    ptr = block(gpu, most, WARP_MEMORY_CUDA_DEVICE, NULL);
    REQUIRE(ptr != NULL);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_EQ_U64(live(gpu), 0);
}

PROCESS_TEST(a_forked_child_keeps_its_hands_off)
{
    start();
    void *ptr = block(device("cuda:0"), MIB, 0, NULL), *pinned = block(device("cpu"), MIB, WARP_MEMORY_PINNED, NULL);
    pid_t child = fork();
    if (child == 0) {
        warp_device *cpu = NULL, *gpu = NULL;
        void *mine = NULL;
        int good = warp_device_get("cpu", &cpu) == WARP_SUCCESS && warp_alloc(cpu, MIB, &mine) == WARP_SUCCESS &&
                   warp_free(mine) == WARP_SUCCESS && warp_free(ptr) == WARP_SUCCESS && warp_free(pinned) == WARP_SUCCESS;
        if (warp_device_get("cuda:0", &gpu) == WARP_SUCCESS)
            good = good && warp_alloc(gpu, MIB, &mine) == WARP_ERROR_FORKED;
        _exit(good ? 0 : 1);
    }
    CHECK_EQ_I64(process_wait(child), 0);
    CHECK_STATUS(warp_memory_fill(ptr, MIB, "p", 1, NULL), WARP_SUCCESS);
    memset(pinned, 1, MIB);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_free(pinned), WARP_SUCCESS);
}

PROCESS_TEST(copies_between_gpus_arrive_without_access)
{
    start();
    if (gpus() < 2) {
        SKIP("needs two GPUs");
        return;
    }
    warp_device *homes[2] = {device("cuda:0"), device("cuda:1")};
    const uint64_t size = 16 * MIB;
    for (int from = 0; from < 2; from++)
        for (int a = WARP_MEMORY_CUDA_DEVICE; a <= WARP_MEMORY_CUDA_MANAGED; a++)
            for (int b = WARP_MEMORY_CUDA_DEVICE; b <= WARP_MEMORY_CUDA_MANAGED; b++) {
                unsigned char value = (unsigned char)(1 + from + 2 * a + 16 * b);
                void *source = block(homes[from], size, a, NULL), *target = block(homes[1 - from], size, b, NULL);
                CHECK_STATUS(warp_memory_fill(source, size, &value, 1, NULL), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(homes[from]), WARP_SUCCESS);
                CHECK_STATUS(warp_memory_copy(target, source, size, NULL), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(homes[0]), WARP_SUCCESS);
                CHECK_STATUS(warp_device_synchronize(homes[1]), WARP_SUCCESS);
                warp_stream *reader = new_stream(homes[1 - from], 0);
                CHECK(device_holds(target, size, value, reader));
                CHECK_STATUS(warp_free(source), WARP_SUCCESS);
                CHECK_STATUS(warp_free(target), WARP_SUCCESS);
                CHECK_STATUS(warp_stream_release(reader), WARP_SUCCESS);
            }
    CHECK_EQ_U64(live(homes[0]) + live(homes[1]), 0);
}

CHECK_MAIN()
