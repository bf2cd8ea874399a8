/*
 * copy_model_memory.h: for random copies (copy_model.h), memory of every kind and what it has to hold.
 */
#ifndef WARPMEM_TESTS_COPY_MODEL_MEMORY_H
#define WARPMEM_TESTS_COPY_MODEL_MEMORY_H

#include "check.h"
#include "dice.h"
#include "kernels.h"
#include "simulator.h"

#include <warpmem.h>

#define MODEL_CHUNKS 48
#define MODEL_BATCH 5
#define MODEL_GPUS 2
#define MODEL_LARGE (1 << 20)
#define MODEL_LARGEST (10 << 20)

enum model_memory {
    MODEL_MALLOC,
    MODEL_REGISTERED,
    MODEL_HOST,
    MODEL_PINNED,
    MODEL_DEVICE,
    MODEL_POOL,
    MODEL_MANAGED,
    MODEL_GRAPH,   /* born in a graph that has run */
    MODEL_FOREIGN, /* the driver's own allocation */
    MODEL_MEMORIES,
};

static const char *const model_memory_names[] = {"malloc", "registered", "host",  "pinned", "device",
                                                 "pool",   "managed",    "graph", "foreign"};

/* An allocation, and what it has to hold. */
struct model_chunk {
    enum model_memory memory;
    int gpu; /* whose it is; -1: the host's */
    int is_large, is_numbers;
    unsigned char *ptr;
    uint64_t size;
    unsigned char *now;
    warp_array *bytes; /* all of it, as bytes; it owns the memory where that is an array's */
    int is_owned;
    warp_graph *graph;
};

struct model {
    warp_device *cpu, *gpu[MODEL_GPUS];
    int gpus;
    warp_stream *stream[MODEL_GPUS][3]; /* the first is the current one */
    warp_stream *cpu_stream;
    struct model_chunk chunks[MODEL_CHUNKS];
    int count;
    struct model_chunk *numbers[1 + MODEL_GPUS][2]; /* where index arrays are put: of the host, of each GPU */
    uint64_t numbers_used[1 + MODEL_GPUS][2];
    uint64_t seed, number;
    warp_stream *chain; /* copies that are not waited for go on this one */
    int chain_gpu, chain_left;
    uint64_t chain_from;
    struct model_chunk *last; /* that the chain has written */
    FILE *story;              /* what the chain has done */
    char *told;
    size_t told_size;
    const char *what;
    unsigned char *seen;
    uint64_t made, items, large, denied;
    uint64_t by_path[11];
};

static struct model model;

static warp_device *model_device(int gpu)
{
    return gpu < 0 ? model.cpu : model.gpu[gpu];
}

static void model_enter(int gpu, void **before)
{
    void *context = NULL;
    CHECK_EQ_U64(KERNELS_CALL("cuCtxGetCurrent", (void **), before), 0);
    CHECK_STATUS(warp_device_get_native_context(model.gpu[gpu], &context), WARP_SUCCESS);
    CHECK_EQ_U64(KERNELS_CALL("cuCtxSetCurrent", (void *), context), 0);
}

static void model_leave(void *before)
{
    CHECK_EQ_U64(KERNELS_CALL("cuCtxSetCurrent", (void *), before), 0);
}

static int model_is_of_host(const struct model_chunk *chunk)
{
    return chunk->gpu < 0 || chunk->memory == MODEL_MANAGED;
}

static void model_settle(void)
{
    int gpu;
    for (gpu = 0; gpu < model.gpus; ++gpu)
        CHECK_STATUS(warp_device_synchronize(model.gpu[gpu]), WARP_SUCCESS);
}

/* Puts bytes into memory that no work uses, past the library. */
static void model_poke(struct model_chunk *chunk, uint64_t at, const void *bytes, uint64_t size)
{
    void *before = NULL;
    memcpy(chunk->now + at, bytes, size);
    if (chunk->memory == MODEL_MANAGED)
        model_settle();
    if (model_is_of_host(chunk)) {
        memcpy(chunk->ptr + at, bytes, size);
        return;
    }
    model_enter(chunk->gpu, &before);
    CHECK_EQ_U64(KERNELS_CALL("cuMemcpyHtoD_v2", (uint64_t, const void *, size_t), (uint64_t)(uintptr_t)chunk->ptr + at, bytes, size), 0);
    CHECK_EQ_U64(KERNELS_CALL("cuStreamSynchronize", (void *), NULL), 0);
    model_leave(before);
}

/* What is there. No work uses it; on some machines the host may touch managed memory only while no GPU does anything at all. */
static const unsigned char *model_look(const struct model_chunk *chunk)
{
    void *before = NULL;
    if (chunk->memory == MODEL_MANAGED)
        model_settle();
    if (model_is_of_host(chunk))
        return chunk->ptr;
    model_enter(chunk->gpu, &before);
    CHECK_EQ_U64(KERNELS_CALL("cuMemcpyDtoH_v2", (void *, uint64_t, size_t), model.seen, (uint64_t)(uintptr_t)chunk->ptr, chunk->size), 0);
    model_leave(before);
    return model.seen;
}

/* After a fault nothing is as it should be, and nothing more can be said. */
static int model_is_lost(void)
{
    int gpu, lost = 0;
    for (gpu = 0; gpu < model.gpus; ++gpu)
        lost |= warp_device_synchronize(model.gpu[gpu]) == WARP_ERROR_DEVICE_LOST;
    if (lost)
        printf("\n    a GPU is lost: %s", warp_error_get_message());
    return lost;
}

static void model_scatter_bytes(unsigned char *bytes, uint64_t size)
{
    uint64_t i;
    for (i = 0; i < size; ++i) {
        static uint64_t word;
        word = i % 8 == 0 ? next_random(&dice) : word >> 8;
        bytes[i] = (unsigned char)word;
    }
}

static void model_refill(struct model_chunk *chunk)
{
    unsigned char *bytes = malloc(chunk->size);
    model_scatter_bytes(bytes, chunk->size);
    model_poke(chunk, 0, bytes, chunk->size);
    free(bytes);
}

static warp_dtype model_bytes(void)
{
    return warp_dtype_make(WARP_DTYPE_UINT, 8);
}

/* Pool memory that a graph allocates, which outlives the capture. */
static void *model_born_in_graph(int gpu, uint64_t size, warp_graph **graph)
{
    warp_alloc_options options = {0};
    void *ptr = NULL;
    options.struct_size = sizeof options;
    options.kind = WARP_MEMORY_CUDA_MEMPOOL;
    options.stream = model.stream[gpu][1];
    if (warp_capture_begin(options.stream, WARP_CAPTURE_RELAXED) != WARP_SUCCESS)
        return NULL;
    if (warp_alloc_with(model.gpu[gpu], size, &options, &ptr) != WARP_SUCCESS) {
        CHECK_STATUS(warp_capture_abandon(options.stream), WARP_SUCCESS);
        return NULL;
    }
    CHECK_STATUS(warp_capture_end(options.stream, graph), WARP_SUCCESS);
    CHECK_STATUS(warp_graph_launch(*graph, options.stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(options.stream), WARP_SUCCESS);
    return ptr;
}

static void *model_allocate(struct model_chunk *chunk)
{
    static const warp_memory_kind kinds[MODEL_MEMORIES] = {
        [MODEL_HOST] = WARP_MEMORY_HOST,        [MODEL_PINNED] = WARP_MEMORY_PINNED,   [MODEL_DEVICE] = WARP_MEMORY_CUDA_DEVICE,
        [MODEL_POOL] = WARP_MEMORY_CUDA_MEMPOOL, [MODEL_MANAGED] = WARP_MEMORY_CUDA_MANAGED};
    const int64_t size = (int64_t)chunk->size;
    warp_device *device = model_device(chunk->gpu);
    void *before = NULL, *ptr = NULL;
    uint64_t address = 0;
    uint32_t code;
    switch (chunk->memory) {
    case MODEL_MALLOC: return malloc(chunk->size);
    case MODEL_REGISTERED:
        if (model.gpus == 0 || posix_memalign(&ptr, 4096, (chunk->size + 4095) / 4096 * 4096) != 0)
            return NULL;
        model_enter(0, &before);
        code = KERNELS_CALL("cuMemHostRegister_v2", (void *, size_t, unsigned), ptr, (chunk->size + 4095) / 4096 * 4096, 1);
        model_leave(before);
        if (code != 0) {
            free(ptr);
            return NULL;
        }
        return ptr;
    case MODEL_FOREIGN:
        model_enter(chunk->gpu, &before);
        code = KERNELS_CALL("cuMemAlloc_v2", (uint64_t *, size_t), &address, chunk->size);
        model_leave(before);
        return code == 0 ? (void *)(uintptr_t)address : NULL;
    case MODEL_GRAPH: return model_born_in_graph(chunk->gpu, chunk->size, &chunk->graph);
    default:
        if (chunk->is_owned) {
            warp_array_options options = {0};
            warp_array_info info = {0};
            options.struct_size = sizeof options;
            options.kind = kinds[chunk->memory];
            info.struct_size = sizeof info;
            if (warp_array_empty(device, model_bytes(), 1, &size, &options, &chunk->bytes) != WARP_SUCCESS)
                return NULL;
            CHECK_STATUS(warp_array_get_info(chunk->bytes, &info), WARP_SUCCESS);
            return info.data;
        } else {
            warp_alloc_options options = {0};
            options.struct_size = sizeof options;
            options.kind = kinds[chunk->memory];
            return warp_alloc_with(device, chunk->size, &options, &ptr) == WARP_SUCCESS ? ptr : NULL;
        }
    }
}

/* Another allocation, where this machine has memory of the kind. */
static struct model_chunk *model_add(enum model_memory memory, int gpu, int is_owned, uint64_t size)
{
    struct model_chunk *chunk = &model.chunks[model.count];
    const int64_t all = (int64_t)size;
    if (model.count == MODEL_CHUNKS)
        return NULL;
    memset(chunk, 0, sizeof *chunk);
    chunk->memory = memory;
    chunk->gpu = gpu;
    chunk->size = size;
    chunk->is_owned = is_owned;
    chunk->is_large = size > MODEL_LARGE;
    chunk->ptr = model_allocate(chunk);
    if (chunk->ptr == NULL)
        return NULL;
    model_settle();
    if (chunk->bytes == NULL)
        CHECK_STATUS(warp_array_wrap(model_device(gpu), chunk->ptr, model_bytes(), 1, &all, NULL, &chunk->bytes), WARP_SUCCESS);
    chunk->now = malloc(size);
    model_refill(chunk);
    ++model.count;
    return chunk;
}

static void model_drop(struct model_chunk *chunk)
{
    void *before = NULL;
    CHECK_STATUS(warp_array_release(chunk->bytes), WARP_SUCCESS);
    switch (chunk->memory) {
    case MODEL_MALLOC: free(chunk->ptr); break;
    case MODEL_REGISTERED:
        model_enter(0, &before);
        CHECK_EQ_U64(KERNELS_CALL("cuMemHostUnregister", (void *), chunk->ptr), 0);
        model_leave(before);
        free(chunk->ptr);
        break;
    case MODEL_FOREIGN:
        model_enter(chunk->gpu, &before);
        CHECK_EQ_U64(KERNELS_CALL("cuMemFree_v2", (uint64_t), (uint64_t)(uintptr_t)chunk->ptr), 0);
        model_leave(before);
        break;
    default:
        if (!chunk->is_owned)
            CHECK_STATUS(warp_free(chunk->ptr), WARP_SUCCESS);
    }
    if (chunk->graph != NULL)
        CHECK_STATUS(warp_graph_release(chunk->graph), WARP_SUCCESS);
    free(chunk->now);
}

#endif
