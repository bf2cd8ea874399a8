/*
 * ipc_export.c: memory for other processes: what a handle stands for, which memory has none and what is said of it (IP-01), in
 * captures, after ends, and with every call of the driver failing.
 *
 * needs: simulator
 */
#include "captures.h"

#include "arena.h"
#include "driver_without.h"
#include "foreign.h"
#include "forked.h"

#include <pthread.h>

#define SIZE ((uint64_t)10000)

/* 64 bytes; the driver's own call. */
struct handle {
    unsigned char bytes[64];
};
uint32_t cuIpcGetMemHandle(struct handle *out, uint64_t ptr);

static warp_ipc_memory exported(const void *ptr)
{
    warp_ipc_memory memory;
    memset(&memory, 0x55, sizeof memory);
    memory.struct_size = sizeof memory;
    CHECK_STATUS(warp_ipc_export(ptr, &memory), WARP_SUCCESS);
    return memory;
}

/* Refused, the driver not asked for a handle, and nothing of the struct left as it was. */
static void check_refused(const void *ptr, warp_status status, const char *text)
{
    warp_ipc_memory memory;
    struct handle zero;
    uint64_t before = calls("cuIpcGetMemHandle");
    memset(&memory, 0x55, sizeof memory);
    memset(&zero, 0, sizeof zero);
    memory.struct_size = sizeof memory;
    CHECK_STATUS(warp_ipc_export(ptr, &memory), status);
    CHECK_STR_CONTAINS(warp_error_get_message(), text);
    CHECK(memcmp(memory.handle, &zero, sizeof zero) == 0);
    CHECK_EQ_U64(memory.offset + memory.size, 0);
    CHECK_EQ_U64(calls("cuIpcGetMemHandle"), before);
}

PROCESS_TEST(a_handle_is_the_drivers_and_the_offset_leads_to_the_address)
{
    warp_ipc_memory base, inside;
    struct handle own;
    char *block;
    start_on("h200x2");
    block = block_of(gpu(1), SIZE, WARP_MEMORY_CUDA_DEVICE);
    base = exported(block);
    CHECK_EQ_U64(base.offset, 0);
    CHECK_EQ_U64(base.size, SIZE);
    CHECK_EQ_I64(base.ordinal, 1);
    inside = exported(block + SIZE - 1);
    CHECK_EQ_U64(inside.offset, SIZE - 1);
    CHECK_EQ_U64(inside.size, SIZE);
    CHECK(memcmp(base.handle, inside.handle, sizeof base.handle) == 0);
    CHECK_EQ_PTR(driver_current(), NULL);
    /* The one that its own context gives, whichever is current. */
    IN(context_of(gpu(1)), DRIVER(cuIpcGetMemHandle, &own, address_of(block)));
    CHECK(memcmp(base.handle, &own, sizeof own) == 0);
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(context_of(gpu(0))), 0);
    inside = exported(block);
    CHECK(memcmp(inside.handle, &own, sizeof own) == 0);
    CHECK_EQ_PTR(driver_current(), context_of(gpu(0)));
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    check_refused(block, WARP_ERROR_UNKNOWN_POINTER, "freed before");
    CHECK_NOTHING_LEFT();
}

/* An aligned block lies somewhere in what the driver gave, and what the handle opens is that. */
PROCESS_TEST(the_offset_counts_from_the_drivers_block)
{
    warp_alloc_options options = options_of(WARP_MEMORY_CUDA_DEVICE, NULL);
    int i;
    start_on("h200x2");
    options.alignment = MIB;
    for (i = 0; i < 3; ++i) {
        warp_ipc_memory memory;
        uint64_t base;
        void *filler = block_of(gpu(0), 300, WARP_MEMORY_CUDA_DEVICE), *block = NULL;
        CHECK_STATUS(warp_alloc_with(gpu(0), SIZE, &options, &block), WARP_SUCCESS);
        memory = exported((char *)block + 5);
        base = address_of(block) + 5 - memory.offset;
        CHECK(memory.offset >= 5 && memory.offset < MIB + 5);
        CHECK(memory.size >= memory.offset - 5 + SIZE);
        CHECK_EQ_U64(SIMULATOR(warpsim_live_bytes)("default"), memory.size + 300); /* what the handle opens is all there is */
        CHECK_EQ_U64(base % 256, 0);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        CHECK_STATUS(warp_free(filler), WARP_SUCCESS);
    }
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(plain_memory_of_other_code_is_exported_as_well)
{
    warp_ipc_memory memory;
    struct handle own;
    CUcontext known, unknown;
    char *block;
    start_on("h200x2");
    known = driver_primary(0);
    unknown = driver_foreign(1);
    block = foreign_plain(known, SIZE);
    memory = exported(block + 7);
    CHECK_EQ_U64(memory.offset, 7);
    CHECK_EQ_U64(memory.size, SIZE);
    CHECK_EQ_I64(memory.ordinal, 0);
    block = foreign_plain(unknown, SIZE);
    memory = exported(block);
    IN(unknown, DRIVER(cuIpcGetMemHandle, &own, address_of(block)));
    CHECK(memcmp(memory.handle, &own, sizeof own) == 0); /* of the context that it belongs to */
    CHECK_EQ_I64(memory.ordinal, 1);
    CHECK_EQ_PTR(driver_current(), NULL);
    /* What the driver refuses, as it does for memory that another process gave, is not half an answer. */
    fail("cuIpcGetMemHandle", 1, 1);
    memset(&memory, 0x55, sizeof memory);
    memory.struct_size = sizeof memory;
    CHECK_STATUS(warp_ipc_export(block, &memory), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "another process");
    CHECK_EQ_U64(memory.size, 0);
    clear();
}

PROCESS_TEST(other_memory_is_refused_by_its_kind_with_the_way_out)
{
    CUcontext theirs;
    void *mapping, *graphs;
    warp_stream *stream;
    warp_graph *graph;
    char *block, here[16];
    int enabled;
    start_on("h200x2");
    /* What is switched on today makes no difference to a block that is there. */
    for (enabled = 0; enabled < 2; ++enabled) {
        CHECK_STATUS(warp_mempool_set_enabled(gpu(0), (uint8_t)enabled), WARP_SUCCESS);
        block = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_MEMPOOL);
        CHECK_STATUS(warp_mempool_set_enabled(gpu(0), (uint8_t)!enabled), WARP_SUCCESS);
        check_refused(block + 9, WARP_ERROR_NOT_SUPPORTED, "CUDA_MEMPOOL");
        CHECK_STR_CONTAINS(warp_error_get_message(), "handle_types");
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
        block = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE);
        exported(block);
        CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    }
    block = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_MANAGED);
    check_refused(block, WARP_ERROR_NOT_SUPPORTED, "CUDA_MANAGED: allocate it with WARP_MEMORY_CUDA_DEVICE");
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    block = block_of(cpu(), SIZE, WARP_MEMORY_PINNED);
    check_refused(block, WARP_ERROR_NOT_SUPPORTED, "PINNED: memory of the host");
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    block = block_of(cpu(), SIZE, WARP_MEMORY_HOST);
    check_refused(block, WARP_ERROR_NOT_SUPPORTED, "HOST: memory of the host");
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);

    stream = new_stream(gpu(0), 0);
    begin(stream);
    graphs = alloc_on("cuda:0", stream, SIZE);
    check_refused(graphs, WARP_ERROR_NOT_SUPPORTED, "a graph's");
    graph = end(stream);
    CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
    check_refused(graphs, WARP_ERROR_NOT_SUPPORTED, "a graph's");
    CHECK_STATUS(warp_free(graphs), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);

    theirs = driver_primary(0);
    check_refused(foreign_managed(theirs, SIZE), WARP_ERROR_NOT_SUPPORTED, "CUDA_MANAGED");
    check_refused(foreign_pinned(theirs, SIZE), WARP_ERROR_NOT_SUPPORTED, "PINNED");
    check_refused(foreign_pooled(theirs, NULL, SIZE), WARP_ERROR_NOT_SUPPORTED, "CUDA_MEMPOOL");
    check_refused(foreign_pooled(theirs, foreign_pool(0, 1), SIZE), WARP_ERROR_NOT_SUPPORTED, "exported as a whole");
    mapping = mapping_of(0);
    map_for(mapping, 0, 3);
    check_refused(mapping, WARP_ERROR_NOT_SUPPORTED, "cuMemExportToShareableHandle");
    check_refused(here, WARP_ERROR_UNKNOWN_POINTER, "shm_open");
    check_refused((void *)(uintptr_t)77, WARP_ERROR_UNKNOWN_POINTER, "no block");
    check_refused(NULL, WARP_ERROR_INVALID_ARGUMENT, "NULL");
}

/* What an allocator of the caller's carved from plain memory is in the driver's block; what it only calls plain is not. */
PROCESS_TEST(blocks_of_other_allocators_are_what_the_driver_says)
{
    struct arena plain = {0}, pooled = {0}, unnamed = {0};
    warp_ipc_memory memory;
    char *blocks[4];
    int i;
    start_on("h200x2");
    plain.from = foreign_plain(driver_primary(0), MIB);
    pooled.from = foreign_pooled(driver_primary(0), NULL, MIB);
    unnamed.from = foreign_plain(driver_primary(0), MIB);
    blocks[0] = carved(&plain, WARP_MEMORY_CUDA_DEVICE, 1000);
    blocks[1] = carved(&plain, WARP_MEMORY_CUDA_DEVICE, 1000);
    blocks[2] = carved(&pooled, WARP_MEMORY_CUDA_DEVICE, 1000);
    blocks[3] = carved(&unnamed, WARP_MEMORY_UNKNOWN, 1000);
    memory = exported(blocks[1] + 9);
    CHECK_EQ_U64(memory.offset, 1024 + 9);
    CHECK_EQ_U64(memory.size, MIB);
    check_refused(blocks[2], WARP_ERROR_NOT_SUPPORTED, "CUDA_MEMPOOL");
    CHECK_EQ_U64(exported(blocks[3]).size, MIB);
    for (i = 0; i < 4; ++i)
        CHECK_STATUS(warp_free(blocks[i]), WARP_SUCCESS);
    CHECK_EQ_I64(plain.live + pooled.live + unnamed.live, 0);
}

PROCESS_TEST(nonsense_is_refused)
{
    warp_ipc_memory memory = {.struct_size = sizeof memory};
    struct {
        warp_ipc_memory known;
        uint64_t tail;
    } later = {.known = {.struct_size = sizeof later}, .tail = 5};
    void *block;
    CHECK_STATUS(warp_ipc_export(&memory, &memory), WARP_ERROR_NOT_INITIALIZED);
    start_on("h200x2");
    block = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_ipc_export(block, NULL), WARP_ERROR_INVALID_ARGUMENT);
    memory.struct_size = 8;
    CHECK_STATUS(warp_ipc_export(block, &memory), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STR_CONTAINS(warp_error_get_message(), "warp_ipc_memory");
    CHECK_STATUS(warp_ipc_export(block, &later.known), WARP_SUCCESS);
    CHECK_EQ_U64(later.known.size, SIZE);
    CHECK_EQ_U64(later.tail, 0);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
    CHECK_STATUS(warp_ipc_export(block, &later.known), WARP_ERROR_SHUT_DOWN);
}

static void check_without_ipc(const char *topology, const char *way)
{
    void *block;
    start_on(topology);
    block = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE);
    check_refused(block, WARP_ERROR_NOT_SUPPORTED, "\"cuda:0\" shares no memory by legacy handles");
    CHECK_STR_CONTAINS(warp_error_get_message(), way);
    check_refused(foreign_plain(driver_primary(0), SIZE), WARP_ERROR_NOT_SUPPORTED, "\"cuda:0\" shares no memory");
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

PROCESS_TEST(a_gpu_without_it_has_another_way)
{
    check_without_ipc("h200x2,ipc=0", "handle_types");
}

PROCESS_TEST(a_gpu_without_any_way_says_so)
{
    check_without_ipc("wsl", "by way of the host");
}

PROCESS_TEST(an_integrated_gpu_has_none)
{
    check_without_ipc("ats", "shares no memory");
}

PROCESS_TEST(one_gpu_without_it_keeps_no_other_from_it)
{
    void *block, *other;
    start_on("h200x2,gpu1.ipc=0");
    block = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE);
    other = block_of(gpu(1), SIZE, WARP_MEMORY_CUDA_DEVICE);
    exported(block);
    check_refused(other, WARP_ERROR_NOT_SUPPORTED, "\"cuda:1\"");
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_free(other), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
}

PROCESS_TEST(without_a_gpu_there_is_a_plain_answer)
{
    warp_ipc_memory memory = {.struct_size = sizeof memory};
    start_on("none");
    CHECK_STATUS(warp_ipc_export(&memory, &memory), WARP_ERROR_NO_SUCH_DEVICE);
}

PROCESS_TEST(a_driver_without_the_call_is_named)
{
    warp_ipc_memory memory = {.struct_size = sizeof memory};
    void *block;
    start_without("cuIpcGetMemHandle");
    block = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE);
    CHECK_STATUS(warp_ipc_export(block, &memory), WARP_ERROR_NOT_SUPPORTED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "lacks cuIpcGetMemHandle");
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

static void *export_it(void *block)
{
    CHECK_EQ_U64(exported((char *)block + 3).offset, 3);
    return NULL;
}

PROCESS_TEST(captures_go_on)
{
    static const int modes[] = {WARP_CAPTURE_GLOBAL, WARP_CAPTURE_THREAD_LOCAL, WARP_CAPTURE_RELAXED};
    warp_stream *stream;
    void *block, *theirs;
    int m;
    start_on("h200x2");
    stream = new_stream(gpu(0), 0);
    block = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE);
    theirs = foreign_plain(driver_primary(1), SIZE);
    for (m = 0; m < 3; ++m) {
        warp_graph *graph;
        pthread_t thread;
        CHECK_STATUS(warp_capture_begin(stream, modes[m]), WARP_SUCCESS);
        fill_byte(block, (unsigned char)(m + 1), SIZE, stream);
        export_it(block);
        export_it(theirs);
        check_refused(&m, WARP_ERROR_UNKNOWN_POINTER, "no block");
        REQUIRE(pthread_create(&thread, NULL, export_it, block) == 0);
        pthread_join(thread, NULL);
        CHECK_EQ_I64(state_of(stream), WARP_CAPTURE_STATE_ACTIVE);
        graph = end(stream);
        CHECK_STATUS(warp_graph_launch(graph, stream), WARP_SUCCESS);
        CHECK(holds(block, (unsigned char)(m + 1), SIZE, stream));
        CHECK_STATUS(warp_graph_release(graph), WARP_SUCCESS);
    }
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_release(stream), WARP_SUCCESS);
}

PROCESS_TEST(what_a_dead_context_had_is_lost)
{
    warp_ipc_memory memory = {.struct_size = sizeof memory};
    void *block;
    start_on("h200x2");
    block = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE);
    CHECK_EQ_U64(SIMULATOR(warpsim_reset_device)(0), 0);
    CHECK_STATUS(warp_ipc_export(block, &memory), WARP_ERROR_DEVICE_LOST); /* nobody had noticed */
    check_refused(block, WARP_ERROR_DEVICE_LOST, "is lost");
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

static void export_in_child(void *block)
{
    warp_ipc_memory memory = {.struct_size = sizeof memory};
    CHECK_STATUS(warp_ipc_export(block, &memory), WARP_ERROR_FORKED);
    CHECK_STATUS(warp_ipc_export(&memory, &memory), WARP_ERROR_FORKED);
}

PROCESS_TEST(a_forked_child_exports_nothing)
{
    void *block;
    start_on("h200x2");
    block = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE);
    in_child(export_in_child, block, 60);
    exported(block);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
}

/* The n-th call of the driver fails while a block is exported, of this library or of other code. Whether there was such a call. */
static int export_failing(int ours, uint64_t nth, uint32_t code)
{
    warp_ipc_memory memory = {.struct_size = sizeof memory};
    CUcontext current = context_of(gpu(1));
    void *block = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE), *theirs = foreign_plain(driver_primary(1), SIZE);
    warp_status status;
    int met;
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(current), 0);
    SIMULATOR(warpsim_log_clear)();
    fail("*", nth, code);
    status = warp_ipc_export(ours ? block : theirs, &memory);
    clear();
    met = SIMULATOR(warpsim_log_contains)("planned");
    if (status == WARP_SUCCESS)
        CHECK_EQ_U64(memory.size, SIZE);
    else
        CHECK(met && memory.size == 0 && strlen(warp_error_get_message()) > 20);
    if (driver_current() != current)
        CHECK(SIMULATOR(warpsim_log_contains)("cuCtxSetCurrent"));
    CHECK_EQ_U64(SIMULATOR(cuCtxSetCurrent)(NULL), 0);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    /* The next one works; a device that was taken for lost has a successor. */
    block = block_of(gpu(0), SIZE, WARP_MEMORY_CUDA_DEVICE);
    CHECK_EQ_U64(exported(block).size, SIZE);
    CHECK_EQ_U64(exported(theirs).size, SIZE);
    CHECK_STATUS(warp_free(block), WARP_SUCCESS);
    if (check_failure_count() != 0)
        printf("\n    code %u at call %" PRIu64 " for %s", code, nth, ours ? "ours" : "theirs");
    return met && check_failure_count() == 0;
}

PROCESS_TEST(every_call_of_the_driver_may_fail)
{
    static const uint32_t codes[] = {1, 2, 201, 709, 719, 801, 999};
    uint64_t nth, met = 0;
    size_t c;
    int ours;
    start_on("h200x2");
    for (c = 0; c < sizeof codes / sizeof *codes; ++c)
        for (ours = 0; ours < 2; ++ours)
            for (nth = 1; export_failing(ours, nth, codes[c]); ++nth)
                ++met;
    CHECK(met > 60);
}

CHECK_MAIN()
