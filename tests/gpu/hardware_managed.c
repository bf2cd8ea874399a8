/*
 * What only a real GPU proves about managed memory and memory for other processes: that it is moved and holds the same, that
 * hints are kept, that captures go on; and that another process opens what was exported. All of it runs on the simulated driver
 * as well, where another process opens nothing.
 */
#include "hardware_capture.h"

#define SIZE (64 * MIB)

static warp_managed_state state_in(const void *ptr, uint64_t size)
{
    warp_managed_state state = {.struct_size = sizeof state};
    CHECK_STATUS(warp_managed_query_state(ptr, size, &state), WARP_SUCCESS);
    return state;
}

static uint64_t free_on(warp_device *of)
{
    uint64_t available = 0, total = 0;
    CHECK_STATUS(warp_device_query_memory(of, &available, &total), WARP_SUCCESS);
    return available;
}

static int takes_part(warp_device *of)
{
    warp_device_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_device_get_info(of, &info), WARP_SUCCESS);
    return info.is_concurrent_managed_access_supported;
}

/* ---- Managed memory ------------------------------------------------------------------------------------------------------ */

PROCESS_TEST(managed_memory_is_moved_and_holds_the_same)
{
    start();
    if (!takes_part(gpu(0)))
        SKIP("the GPU has no concurrent managed access");
    unsigned char *managed = block(gpu(0), SIZE, WARP_MEMORY_CUDA_MANAGED, NULL);
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    memset(managed, 1, SIZE);
    for (int round = 0; round < 3; round++)
        for (size_t to = 0; to < gpus(); to++) {
            warp_device *target = gpu((int)to);
            uint64_t before = free_on(target), after;
            CHECK_STATUS(warp_managed_prefetch(managed, 0, target, NULL), WARP_SUCCESS);
            CHECK_STATUS(warp_device_synchronize(target), WARP_SUCCESS);
            after = free_on(target);
            CHECK_EQ_PTR(state_in(managed, 0).last_prefetch, target);
            if (round == 0)
                printf("    %" PRIu64 " MiB of %s are taken by it\n", (before - after) / MIB, alias_of(target));
            if (!simulator_is_here() && round == 0)
                CHECK(before - after >= SIZE * 3 / 4);
            CHECK(device_holds(managed, SIZE, 1, stream));
            CHECK_STATUS(warp_managed_prefetch(managed, 0, device("cpu"), stream), WARP_SUCCESS);
            CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
            CHECK_EQ_I64(state_in(managed, 0).last_prefetch_ordinal, -1);
            CHECK(all_are(managed, SIZE, 1));
        }
    CHECK_STATUS(warp_free(managed), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

PROCESS_TEST(a_prefetch_waits_for_its_stream_and_the_free_for_it)
{
    start();
    if (!takes_part(gpu(0)))
        SKIP("the GPU has no concurrent managed access");
    const uint64_t size = 8 * MIB;
    warp_stream *stream = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), *other = new_stream(gpu(0), WARP_STREAM_NON_BLOCKING);
    unsigned char *managed = block(gpu(0), size, WARP_MEMORY_CUDA_MANAGED, other), *copied = block(gpu(0), size, WARP_MEMORY_CUDA_DEVICE, stream);
    fill(managed, size, 7, other);
    finish(other);
    double before = now();
    keep_busy(stream);
    CHECK_STATUS(warp_managed_prefetch(managed, 0, gpu((int)gpus() - 1), stream), WARP_SUCCESS);
    fill(managed, size / 2, 9, stream);
    CHECK_STATUS(warp_managed_prefetch(managed, size / 2, device("cpu"), stream), WARP_SUCCESS);
    copy(copied, managed, size, stream);
    CHECK_EQ_I64(STREAM_QUERY(native(stream)), NOT_READY);
    CHECK_STATUS(warp_free(managed), WARP_SUCCESS); /* parked until the stream is done */
    CHECK_EQ_I64(STREAM_QUERY(native(stream)), NOT_READY);
    printf("    %.1f ms to put it there\n", (now() - before) * 1e3);
    CHECK(device_holds(copied, size / 2, 9, stream));
    CHECK(device_holds(copied + size / 2, size / 2, 7, stream));
    CHECK_STATUS(warp_free(copied), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(other), WARP_SUCCESS);
    CHECK_EQ_U64(live(gpu(0)), 0);
}

PROCESS_TEST(hints_are_kept_and_taken_back)
{
    start();
    if (!takes_part(gpu(0)))
        SKIP("the GPU has no concurrent managed access");
    unsigned char *managed = block(gpu(0), SIZE, WARP_MEMORY_CUDA_MANAGED, NULL);
    warp_device *places[] = {gpu(0), gpu((int)gpus() - 1), device("cpu")};
    const int64_t page = 4096;
    uint8_t is_accessed = 9;
    CHECK_STATUS(warp_managed_advise(managed, 0, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(state_in(managed, 0).is_read_mostly, 1);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(warp_managed_advise(managed, 0, WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION, places[i]), WARP_SUCCESS);
        CHECK_EQ_PTR(state_in(managed, 0).preferred, places[i]);
        CHECK_STATUS(warp_managed_advise(managed + page, 0, WARP_MANAGED_ADVICE_SET_ACCESSED_BY, places[i]), WARP_SUCCESS);
        CHECK_STATUS(warp_managed_query_accessed_by(managed + page, 0, places[i], &is_accessed), WARP_SUCCESS);
        CHECK_EQ_I64(is_accessed, 1);
        CHECK_STATUS(warp_managed_query_accessed_by(managed, 0, places[i], &is_accessed), WARP_SUCCESS);
        CHECK_EQ_I64(is_accessed, 0); /* not all of it */
    }
    CHECK_STATUS(warp_managed_advise(managed, (uint64_t)page, WARP_MANAGED_ADVICE_UNSET_READ_MOSTLY, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(state_in(managed, 0).is_read_mostly, 0);
    CHECK_EQ_I64(state_in(managed + page, 0).is_read_mostly, 1);
    CHECK_STATUS(warp_managed_advise(managed, 0, WARP_MANAGED_ADVICE_UNSET_PREFERRED_LOCATION, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(state_in(managed, 0).preferred_ordinal, WARP_MANAGED_NOWHERE);
    CHECK_STATUS(warp_free(managed), WARP_SUCCESS);
}

struct beside {
    warp_stream *captured, *other;
    void *managed, *plain;
};

static void *use_beside(void *argument)
{
    struct beside *b = argument;
    warp_ipc_memory memory = {.struct_size = sizeof memory};
    int state = 0;
    CHECK_STATUS(warp_managed_prefetch(b->managed, 0, gpu(0), b->captured), WARP_ERROR_ILLEGAL_IN_CAPTURE);
    CHECK_STATUS(warp_managed_prefetch(b->managed, 0, gpu(0), b->other), WARP_SUCCESS);
    CHECK_STATUS(warp_managed_advise(b->managed, 0, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, NULL), WARP_SUCCESS);
    CHECK_EQ_I64(state_in(b->managed, 0).last_prefetch_ordinal, 0);
    CHECK_STATUS(warp_ipc_export(b->plain, &memory), WARP_SUCCESS);
    CHECK_EQ_I64(IS_CAPTURING(native(b->captured), &state), SUCCESS);
    CHECK_EQ_I64(state, CAPTURE_ACTIVE);
    return NULL;
}

PROCESS_TEST(captures_of_every_mode_go_on)
{
    start();
    if (!takes_part(gpu(0)))
        SKIP("the GPU has no concurrent managed access");
    struct beside b = {new_stream(gpu(0), 0), new_stream(gpu(0), WARP_STREAM_NON_BLOCKING), NULL, NULL};
    b.managed = block(gpu(0), MIB, WARP_MEMORY_CUDA_MANAGED, NULL);
    b.plain = block(gpu(0), MIB, WARP_MEMORY_CUDA_DEVICE, NULL);
    for (int mode = 0; mode < 3; mode++) {
        void *graph = NULL;
        pthread_t thread;
        REQUIRE(BEGIN_CAPTURE(native(b.captured), mode) == SUCCESS);
        use_beside(&b);
        REQUIRE(pthread_create(&thread, NULL, use_beside, &b) == 0);
        pthread_join(thread, NULL);
        CHECK_EQ_I64(END_CAPTURE(native(b.captured), &graph), SUCCESS);
        CHECK_EQ_I64(GRAPH_DESTROY(graph), SUCCESS);
    }
    CHECK_STATUS(warp_free(b.managed), WARP_SUCCESS);
    CHECK_STATUS(warp_free(b.plain), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(b.captured), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(b.other), WARP_SUCCESS);
}

/* ---- Memory for other processes ------------------------------------------------------------------------------------------ */

#define EXPORTS 3
enum { FOUND = 0, NOT_SUPPORTED = 801 };

struct handle {
    unsigned char bytes[64];
};

/* The other process: opens each block by its handle and looks at the address that was exported. What it found there, plus one
 * for each, is written back there. Answers the driver's first failure. */
static int open_all(const warp_ipc_memory *exports)
{
    void *context = NULL;
    int code = CU((unsigned), "cuInit")(0), i;
    if (code == 0)
        code = CU((void **, int), "cuDevicePrimaryCtxRetain")(&context, exports[0].ordinal);
    if (code == 0)
        code = SET_CURRENT(context);
    for (i = 0; i < EXPORTS && code == 0; i++) {
        struct handle handle;
        address base = 0;
        unsigned char value = 0;
        memcpy(handle.bytes, exports[i].handle, sizeof handle.bytes);
        code = CU((address *, struct handle, unsigned), "cuIpcOpenMemHandle_v2")(&base, handle, 1);
        if (code == 0)
            code = CU((void *, address, size_t), "cuMemcpyDtoH_v2")(&value, base + exports[i].offset, 1);
        if (code == 0)
            code = CU((address, unsigned char, size_t), "cuMemsetD8_v2")(base + exports[i].offset, (unsigned char)(value + 1), 1);
        if (code == 0)
            code = CU((void), "cuCtxSynchronize")();
        if (code == 0)
            code = CU((address), "cuIpcCloseMemHandle")(base);
    }
    return code;
}

PROCESS_TEST(another_process_opens_what_was_exported)
{
    int down[2], up[2], code = -1, i;
    const uint64_t size = 10000;
    warp_ipc_memory exports[EXPORTS];
    char *blocks[EXPORTS], *at[EXPORTS];
    REQUIRE(pipe(down) == 0 && pipe(up) == 0);
    fflush(stdout);
    /* Before anything calls the driver here, which a child could not use then. */
    pid_t other = fork();
    REQUIRE(other >= 0);
    if (other == 0) {
        alarm(60);
        if (read(down[0], exports, sizeof exports) != (ssize_t)sizeof exports)
            _exit(1);
        code = open_all(exports);
        _exit(write(up[1], &code, sizeof code) == (ssize_t)sizeof code ? 0 : 1);
    }
    start();
    memset(exports, 0, sizeof exports);
    for (i = 0; i < EXPORTS; i++) {
        warp_alloc_options options = {.struct_size = sizeof options, .kind = WARP_MEMORY_CUDA_DEVICE, .alignment = i == 2 ? MIB : 0};
        CHECK_STATUS(warp_alloc_with(gpu(0), size, &options, (void **)&blocks[i]), WARP_SUCCESS);
        fill(blocks[i], size, (unsigned char)(10 * i), NULL);
        at[i] = blocks[i] + (i == 0 ? 0 : 4097); /* from its begin, from within, and in a block that is aligned */
        exports[i].struct_size = sizeof exports[i];
        CHECK_STATUS(warp_ipc_export(at[i], &exports[i]), WARP_SUCCESS);
        printf("    offset %" PRIu64 " of %" PRIu64 "\n", exports[i].offset, exports[i].size);
    }
    CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
    REQUIRE(write(down[1], exports, sizeof exports) == (ssize_t)sizeof exports);
    REQUIRE(read(up[0], &code, sizeof code) == (ssize_t)sizeof code);
    CHECK_EQ_I64(process_wait(other), 0);
    CHECK_EQ_I64(code, simulator_is_here() ? NOT_SUPPORTED : FOUND);
    for (i = 0; i < EXPORTS; i++) {
        unsigned char around[3] = {0};
        if (i > 0) {
            copy(around, at[i] - 1, 3, NULL);
            CHECK_EQ_I64(around[1], 10 * i + !simulator_is_here());
            CHECK_EQ_I64(around[0], 10 * i);
            CHECK_EQ_I64(around[2], 10 * i);
        } else {
            copy(around, at[i], 2, NULL);
            CHECK_EQ_I64(around[0], !simulator_is_here());
            CHECK_EQ_I64(around[1], 0);
        }
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
    }
}

PROCESS_TEST(only_plain_memory_has_a_handle)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_PINNED, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    warp_ipc_memory memory = {.struct_size = sizeof memory};
    start();
    for (int i = 0; i < 3; i++) {
        void *ptr = block(i == 0 ? device("cpu") : gpu(0), MIB, kinds[i], NULL);
        CHECK_STATUS(warp_ipc_export(ptr, &memory), WARP_ERROR_NOT_SUPPORTED);
        CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_ipc_export(&memory, &memory), WARP_ERROR_UNKNOWN_POINTER);
}

CHECK_MAIN()
