/*
 * copy_model.h: random copies beside a slow copy that is obviously right: byte by byte over the places of the items, in host
 * memory, with the source read whole first. After each copy the whole allocation that it wrote is compared, so that bytes which
 * must not change are looked at as well.
 *
 *     model_run(first_seed, seeds, copies_of_each, large_ones_of_each);
 *
 * A seed says which memory there is, who may touch what, and each copy by its number alone. What fails is printed with seed and
 * number, and WARPMEM_COPY_CASE=seed:number makes that copy again, WARPMEM_COPY_CASE=seed:from-until those that were not waited
 * for, WARPMEM_COPY_CASE=seed all copies of the seed.
 *
 * It runs on simulated and on real GPUs. The driver is called beside the library only to put bytes into memory of a GPU and to
 * look at them, so that the library does not vouch for itself.
 */
#ifndef WARPMEM_TESTS_COPY_MODEL_H
#define WARPMEM_TESTS_COPY_MODEL_H

#include "check.h"
#include "kernels.h"
#include "simulator.h"

#include <warpmem.h>

#define MODEL_CHUNKS 48
#define MODEL_BATCH 5
#define MODEL_GPUS 2
#define MODEL_LARGE (1 << 20)
#define MODEL_LARGEST (10 << 20)

/* ---- Chance ----------------------------------------------------------------------------------------------------------- */

static uint64_t model_dice;

static uint64_t model_random(void)
{
    uint64_t x = (model_dice += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* From 0 to below. */
static int64_t roll(int64_t below)
{
    return (int64_t)(model_random() % (uint64_t)below);
}

static int one_in(int64_t times)
{
    return roll(times) == 0;
}

/* ---- Memory ----------------------------------------------------------------------------------------------------------- */

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
        word = i % 8 == 0 ? model_random() : word >> 8;
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

/* ---- One end of a copy ------------------------------------------------------------------------------------------------ */

struct model_end {
    struct model_chunk *chunk;
    warp_array *array; /* of an indexed array the data */
    warp_indexed_array *indexed;
    int32_t rank;
    int64_t shape[WARP_ARRAY_MAX_RANK];  /* that is seen */
    int64_t extent[WARP_ARRAY_MAX_RANK]; /* of the data */
    int64_t stride[WARP_ARRAY_MAX_RANK];
    int64_t origin; /* of the item at the beginning, in the chunk */
    int32_t *numbers[WARP_ARRAY_MAX_RANK];
    int by_views;
};

/* Where copies are described: what a chain of them did is told only if it was wrong. */
static FILE *model_out(void)
{
    return model.story != NULL ? model.story : stdout;
}

static void model_print_end(const char *what, const struct model_end *end)
{
    int32_t i;
    int64_t k;
    if (end->chunk == NULL)
        return;
    fprintf(model_out(), "\n        %s: %s of %s%s, %" PRIu64 " bytes at %p; first item at byte %" PRId64 "%s, shape", what,
           model_memory_names[end->chunk->memory], end->chunk->gpu < 0 ? "the host" : end->chunk->gpu == 0 ? "GPU 0" : "GPU 1",
           end->chunk->is_owned ? " (an array's own)" : "", end->chunk->size, (void *)end->chunk->ptr, end->origin,
           end->by_views ? " (by views)" : "");
    for (i = 0; i < end->rank; ++i)
        fprintf(model_out(), " %" PRId64, end->shape[i]);
    fprintf(model_out(), ", strides");
    for (i = 0; i < end->rank; ++i)
        fprintf(model_out(), " %" PRId64, end->stride[i]);
    for (i = 0; i < end->rank; ++i)
        if (end->numbers[i] != NULL) {
            fprintf(model_out(), ", numbers of dimension %d (of %" PRId64 "):", i, end->extent[i]);
            for (k = 0; k < end->shape[i] && k < 24; ++k)
                fprintf(model_out(), " %d", end->numbers[i][k]);
        }
}

static uint64_t model_items(const struct model_end *end)
{
    uint64_t count = 1;
    int32_t i;
    for (i = 0; i < end->rank; ++i)
        count *= (uint64_t)end->shape[i];
    return count;
}

/* Where an item is, by its number in row order. */
static int64_t model_place(const struct model_end *end, uint64_t number)
{
    int64_t at = end->origin;
    int32_t i;
    for (i = end->rank - 1; i >= 0; --i) {
        int64_t along = (int64_t)(number % (uint64_t)end->shape[i]);
        number /= (uint64_t)end->shape[i];
        at += (end->numbers[i] != NULL ? end->numbers[i][along] : along) * end->stride[i];
    }
    return at;
}

static void model_shuffle(int32_t *order, int32_t count)
{
    int32_t i;
    for (i = 0; i < count; ++i)
        order[i] = i;
    for (i = count - 1; i > 0; --i) {
        int32_t other = (int32_t)roll(i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

/* A type whose items have that size. */
static warp_dtype model_dtype(uint32_t item)
{
    warp_dtype opaque = {WARP_DTYPE_OPAQUE, 0, 0, 0}, lanes = {WARP_DTYPE_FLOAT, 32, 0, 0};
    opaque.item_size = item;
    if (one_in(3))
        return opaque;
    switch (item) {
    case 1: return warp_dtype_make(WARP_DTYPE_UINT, 8);
    case 2: return warp_dtype_make(WARP_DTYPE_INT, 16);
    case 4: return warp_dtype_make(WARP_DTYPE_FLOAT, 32);
    case 8: return warp_dtype_make(WARP_DTYPE_INT, 64);
    case 16: return warp_dtype_make(WARP_DTYPE_COMPLEX, 128);
    case 12:
    case 20: lanes.lanes = (uint16_t)(item / 4); return lanes;
    default: return opaque;
    }
}

/* Strides for the extents, and where the first item is. Whether that fits into the chunk. `apart`: no two items share bytes. */
static int model_choose_strides(struct model_end *end, uint32_t item, int apart)
{
    int32_t order[WARP_ARRAY_MAX_RANK], i;
    /* A simulated GPU takes its time for large copies with gaps. */
    const int plain = end->chunk->is_large ? !one_in(end->chunk->gpu < 0 ? 2 : 8) : one_in(4), aligned = one_in(2);
    int64_t span = item, below = 0, room;
    if (plain || one_in(3))
        for (i = 0; i < end->rank; ++i)
            order[i] = end->rank - 1 - i;
    else
        model_shuffle(order, end->rank);
    for (i = 0; i < end->rank; ++i) {
        const int32_t at = order[i];
        const int64_t extent = end->extent[at];
        int64_t stride = span;
        if (!plain)
            switch (roll(aligned ? 4 : 6)) {
            case 0: stride += item * roll(4); break;
            case 1: stride += aligned ? item : item * roll(3); break;
            case 4: stride += roll(9); break;
            case 5: stride += roll(40); break;
            default: break;
            }
        if (!apart && !plain && one_in(8))
            stride = one_in(3) ? roll(span + 1) : 0;
        if (extent <= 1 && !plain && one_in(3))
            stride = one_in(2) ? 0 : (int64_t)(model_random() >> 20) - ((int64_t)1 << 43);
        else if (extent > 1) {
            const int64_t reach = stride * (extent - 1);
            if (reach > (int64_t)end->chunk->size)
                return 0;
            span = reach + span > span ? reach + span : span;
            if (!plain && one_in(4)) {
                stride = -stride;
                below += reach;
            }
        }
        end->stride[at] = stride;
    }
    room = (int64_t)end->chunk->size - span;
    if (room < 0)
        return 0;
    end->origin = below + roll(room + 1);
    if (aligned && end->origin - below >= 64)
        end->origin -= (end->origin - below + (int64_t)((uintptr_t)end->chunk->ptr % 64)) % (one_in(2) ? 16 : item);
    return 1;
}

/* As an array that is wrapped around the memory. */
static int model_wrap(struct model_end *end, uint32_t item, int apart)
{
    warp_array_wrap_options options = {0};
    int tries = 0;
    for (tries = 0; !model_choose_strides(end, item, apart); ++tries)
        if (tries == 20)
            return 0;
    options.struct_size = sizeof options;
    options.strides = end->stride;
    CHECK_STATUS(warp_array_wrap(model_device(end->chunk->gpu), end->chunk->ptr + end->origin, model_dtype(item), end->rank,
                                 end->extent, &options, &end->array),
                 WARP_SUCCESS);
    return end->array != NULL;
}

static warp_array *model_step(warp_array *before, warp_array *after)
{
    CHECK_STATUS(warp_array_release(before), WARP_SUCCESS);
    return after;
}

/* As a slice of a larger array, its dimensions in another order. */
static int model_slice(struct model_end *end, uint32_t item)
{
    int64_t extents[WARP_ARRAY_MAX_RANK], start[WARP_ARRAY_MAX_RANK], stop[WARP_ARRAY_MAX_RANK], step[WARP_ARRAY_MAX_RANK];
    int64_t row[WARP_ARRAY_MAX_RANK], told[WARP_ARRAY_MAX_RANK], all = 1, from, to;
    int32_t order[WARP_ARRAY_MAX_RANK], back[WARP_ARRAY_MAX_RANK], i;
    const int whole = one_in(4);
    warp_array *array = NULL, *next = NULL;
    warp_array_info info = {0};
    info.struct_size = sizeof info;
    model_shuffle(order, end->rank);
    if (whole || one_in(3))
        for (i = 0; i < end->rank; ++i)
            order[i] = i;
    /* Dimension i of the large array becomes dimension back[i] of the view. */
    for (i = 0; i < end->rank; ++i)
        back[order[i]] = i;
    for (i = 0; i < end->rank; ++i) {
        const int64_t count = end->extent[back[i]];
        step[i] = whole || one_in(2) ? 1 : 1 + roll(3);
        start[i] = whole || one_in(2) ? 0 : roll(3);
        extents[i] = start[i] + (count == 0 ? 0 : (count - 1) * step[i] + 1) + (whole || one_in(2) ? 0 : roll(3));
        stop[i] = start[i] + (count == 0 ? 0 : (count - 1) * step[i] + 1);
        if (!whole && count > 0 && one_in(3)) {
            const int64_t first = start[i];
            start[i] = first + (count - 1) * step[i];
            stop[i] = first - 1;
            step[i] = -step[i];
        }
        all *= extents[i];
        if (all * item > (int64_t)end->chunk->size)
            return 0;
    }
    from = roll((int64_t)end->chunk->size - all * item + 1);
    to = from + all * item;
    CHECK_STATUS(warp_array_slice(end->chunk->bytes, 1, &from, &to, NULL, &array), WARP_SUCCESS);
    CHECK_STATUS(warp_array_reinterpret(array, model_dtype(item), &next), WARP_SUCCESS);
    array = model_step(array, next);
    CHECK_STATUS(warp_array_reshape(array, end->rank, extents, &next), WARP_SUCCESS);
    array = model_step(array, next);
    CHECK_STATUS(warp_array_slice(array, end->rank, start, stop, step, &next), WARP_SUCCESS);
    array = model_step(array, next);
    CHECK_STATUS(warp_array_transpose(array, end->rank, order, &next), WARP_SUCCESS);
    end->array = model_step(array, next);
    end->by_views = 1;
    for (i = end->rank - 1, all = item; i >= 0; --i) {
        row[i] = all;
        all *= extents[i];
    }
    end->origin = from;
    for (i = 0; i < end->rank; ++i) {
        end->origin += start[i] * row[i];
        end->stride[back[i]] = row[i] * step[i];
    }
    CHECK_STATUS(warp_array_get_info(end->array, &info), WARP_SUCCESS);
    if (info.count != 0) {
        CHECK_EQ_PTR(info.data, end->chunk->ptr + end->origin);
        CHECK_STATUS(warp_array_get_shape(end->array, WARP_ARRAY_MAX_RANK, NULL, told), WARP_SUCCESS);
        for (i = 0; i < end->rank; ++i)
            if (end->extent[i] > 1)
                CHECK_EQ_I64(told[i], end->stride[i]);
    }
    return 1;
}

/* An array of the extents somewhere in the chunk. */
static int model_make_array(struct model_end *end, uint32_t item, int apart)
{
    if (one_in(3) && model_slice(end, item))
        return 1;
    return model_wrap(end, item, apart) || model_slice(end, item);
}

/* An index array with these numbers, in memory of the end's device. */
static warp_array *model_index_array(int gpu, const int32_t *numbers, int64_t count)
{
    /* Work may be going on in a chain, when not every host may touch managed memory. */
    const int which = model.numbers[1 + gpu][1] != NULL && model.chain == NULL ? (int)roll(2) : 0;
    struct model_chunk *chunk = model.numbers[1 + gpu][which];
    uint64_t *used = &model.numbers_used[1 + gpu][which];
    const int64_t gap = one_in(2) ? 4 : 4 + 4 * roll(3), span = count == 0 ? 0 : (count - 1) * gap + 4;
    int64_t stride = gap, first, i;
    warp_array_wrap_options options = {0};
    warp_array *array = NULL;
    unsigned char *bytes = calloc(1, (size_t)span + 1);
    if (*used + (uint64_t)span > chunk->size)
        *used = 0;
    first = (int64_t)*used;
    *used += (uint64_t)span;
    if (count > 1 && one_in(4)) {
        stride = -gap;
        first += (count - 1) * gap;
    }
    for (i = 0; i < count; ++i)
        memcpy(bytes + (first - (int64_t)(*used - (uint64_t)span)) + i * stride, &numbers[i], 4);
    model_poke(chunk, *used - (uint64_t)span, bytes, (uint64_t)span);
    free(bytes);
    options.struct_size = sizeof options;
    options.strides = &stride;
    CHECK_STATUS(warp_array_wrap(model_device(gpu), chunk->ptr + first, warp_dtype_make(WARP_DTYPE_INT, 32), 1, &count, &options, &array),
                 WARP_SUCCESS);
    return array;
}

/* Numbers for a dimension of the data. Those of a destination name each item once at most. */
static int32_t *model_choose_numbers(int64_t count, int64_t extent, int once)
{
    int32_t *numbers = calloc((size_t)(count > extent ? count : extent) + 1, sizeof *numbers);
    int64_t i;
    if (once)
        model_shuffle(numbers, (int32_t)extent);
    else
        for (i = 0; i < count; ++i)
            numbers[i] = (int32_t)roll(extent);
    return numbers;
}

static void model_end_of(struct model_end *end)
{
    int32_t i;
    if (end->chunk == NULL)
        return;
    CHECK_STATUS(warp_array_release(end->array), WARP_SUCCESS);
    CHECK_STATUS(warp_indexed_array_release(end->indexed), WARP_SUCCESS);
    for (i = 0; i < end->rank; ++i)
        free(end->numbers[i]);
    end->chunk = NULL;
}

/* An end that sees items of this shape. */
static int model_make_end(struct model_end *end, struct model_chunk *chunk, uint32_t item, int32_t rank, const int64_t *shape,
                          int is_dest, int is_indexed)
{
    const warp_array *indices[WARP_ARRAY_MAX_RANK] = {NULL};
    int32_t i;
    memset(end, 0, sizeof *end);
    end->chunk = chunk;
    end->rank = rank;
    memcpy(end->shape, shape, (size_t)rank * sizeof *shape);
    memcpy(end->extent, shape, (size_t)rank * sizeof *shape);
    if (is_indexed)
        for (i = 0; i < rank; ++i)
            if (one_in(2)) {
                end->extent[i] = is_dest ? shape[i] + roll(4) : 1 + roll(2 * shape[i] + 1);
                end->numbers[i] = model_choose_numbers(shape[i], end->extent[i], is_dest);
            }
    if (!model_make_array(end, item, is_dest)) {
        model_end_of(end);
        return 0;
    }
    if (!is_indexed)
        return 1;
    for (i = 0; i < rank; ++i)
        if (end->numbers[i] != NULL)
            indices[i] = model_index_array(chunk->gpu, end->numbers[i], shape[i]);
    CHECK_STATUS(warp_indexed_array_create(end->array, indices, (size_t)rank, &end->indexed), WARP_SUCCESS);
    for (i = 0; i < rank; ++i)
        CHECK_STATUS(warp_array_release((warp_array *)indices[i]), WARP_SUCCESS);
    return end->indexed != NULL;
}

/* ---- What is compared ------------------------------------------------------------------------------------------------- */

static void model_where(void)
{
    printf("\n      in %s (WARPMEM_COPY_CASE=%" PRIu64 ":%" PRIu64, model.what, model.seed, model.chain_from != 0 ? model.chain_from : model.number);
    printf(model.chain_from != 0 ? "-%" PRIu64 ")" : ")", model.number);
}

/* Compares all of an allocation. Whether it is as it has to be. */
static int model_is_right(struct model_chunk *chunk)
{
    const unsigned char *seen = model_look(chunk);
    uint64_t at, wrong = 0, first = 0;
    if (memcmp(seen, chunk->now, chunk->size) == 0)
        return 1;
    for (at = chunk->size; at > 0; --at)
        if (seen[at - 1] != chunk->now[at - 1]) {
            first = at - 1;
            ++wrong;
        }
    check_note_failure();
    printf("\n    %s of %s: byte %" PRIu64 " of %" PRIu64 " is %02x and has to be %02x; %" PRIu64 " bytes are wrong",
           model_memory_names[chunk->memory], chunk->gpu < 0 ? "the host" : chunk->gpu == 0 ? "GPU 0" : "GPU 1", first, chunk->size,
           seen[first], chunk->now[first], wrong);
    model_where();
    memcpy(chunk->now, seen, chunk->size);
    return 0;
}

/* ---- Copies ----------------------------------------------------------------------------------------------------------- */

/* Items go from one list of places to another one. */
struct model_copy {
    struct model_end dest, src;
    uint32_t item;
    uint64_t dest_offset, src_offset, count; /* as the request says it */
    uint64_t items;
    int64_t *to, *from;
    int is_memory; /* asked for as bytes */
};

static void model_print_copy(const struct model_copy *copy)
{
    fprintf(model_out(), "\n      %" PRIu64 " items of %u bytes, dest_offset %" PRIu64 ", src_offset %" PRIu64 ", count %" PRIu64 "%s", copy->items,
           copy->item, copy->dest_offset, copy->src_offset, copy->count, copy->is_memory ? ", as memory" : "");
    model_print_end("dest", &copy->dest);
    model_print_end("src", &copy->src);
}

static void model_free_copy(struct model_copy *copy)
{
    model_end_of(&copy->dest);
    model_end_of(&copy->src);
    free(copy->to);
    free(copy->from);
    copy->to = copy->from = NULL;
}

/* The slow copy. */
static void model_apply(const struct model_copy *copy)
{
    unsigned char *read = malloc((size_t)copy->items * copy->item + 1);
    uint64_t i;
    uint32_t byte;
    for (i = 0; i < copy->items; ++i)
        for (byte = 0; byte < copy->item; ++byte)
            read[i * copy->item + byte] = copy->src.chunk->now[copy->from[i] + byte];
    for (i = 0; i < copy->items; ++i)
        for (byte = 0; byte < copy->item; ++byte)
            copy->dest.chunk->now[copy->to[i] + byte] = read[i * copy->item + byte];
    free(read);
}

static const uint32_t model_item_sizes[] = {1, 2, 3, 4, 8, 12, 16, 20, 64};

/* A shape of so many items at most. */
static int32_t model_choose_shape(int64_t *shape, int64_t most)
{
    int32_t rank = one_in(40) ? 7 + (int32_t)roll(WARP_ARRAY_MAX_RANK - 6) : (int32_t)roll(7), i;
    int64_t all = 1;
    const int none = one_in(30);
    for (i = 0; i < rank; ++i) {
        int64_t room = most / all;
        shape[i] = room <= 1 || one_in(rank > 6 ? 2 : 6) ? 1 : 1 + roll(one_in(3) ? room : room < 6 ? room : 6);
        all *= shape[i];
    }
    if (none && rank > 0)
        shape[roll(rank)] = 0;
    return rank;
}

/* Whether a copy between the two may be put on a stream of this GPU; -1 for none, -2 for the CPU's. */
static int model_is_legal(const struct model_chunk *dest, const struct model_chunk *src, int on)
{
    if (dest->gpu < 0 && src->gpu < 0)
        return on < 0;
    if (on < 0)
        return on == -1;
    /* Every GPU has managed memory as its own; the other end is for its GPU to reach. */
    if (dest->memory == MODEL_MANAGED)
        return src->memory == MODEL_MANAGED || src->gpu < 0 || src->gpu == on;
    if (src->memory == MODEL_MANAGED)
        return dest->gpu < 0 || dest->gpu == on;
    return dest->gpu == on || src->gpu == on;
}

/* Whether the GPU of a stream may not be let touch index arrays: managed memory is any GPU's, and those can be another's own. */
static int model_may_be_denied(const struct model_copy *copy, int on)
{
    const struct model_end *ends[2];
    int i;
    ends[0] = &copy->dest;
    ends[1] = &copy->src;
    for (i = 0; i < 2; ++i)
        if (on >= 0 && ends[i]->indexed != NULL && ends[i]->chunk->memory == MODEL_MANAGED && ends[i]->chunk->gpu != on)
            return 1;
    return 0;
}

static struct model_chunk *model_choose_chunk(int is_large)
{
    struct model_chunk *chunk;
    int tries;
    for (tries = 0; tries < 100000 && model.count > 0; ++tries) {
        chunk = &model.chunks[roll(model.count)];
        if (chunk->is_large == is_large && !chunk->is_numbers)
            return chunk;
    }
    /* Nothing can be allocated any more, as after a fault. */
    printf("\n    no memory to copy\n");
    exit(1);
}

static void model_list(struct model_copy *copy)
{
    uint64_t i;
    copy->to = malloc((size_t)(copy->items + 1) * sizeof *copy->to);
    copy->from = malloc((size_t)(copy->items + 1) * sizeof *copy->from);
    for (i = 0; i < copy->items; ++i) {
        copy->to[i] = model_place(&copy->dest, copy->dest_offset + i);
        copy->from[i] = model_place(&copy->src, copy->src_offset + i);
    }
}

/* Bytes in rows without gaps, of any two shapes, from one offset to another. */
static int model_choose_flat(struct model_copy *copy, struct model_chunk *dest, struct model_chunk *src, int64_t most)
{
    int64_t shape[2][WARP_ARRAY_MAX_RANK];
    struct model_end *ends[2] = {&copy->dest, &copy->src};
    struct model_chunk *chunks[2] = {dest, src};
    uint64_t count[2], free_items;
    int side;
    for (side = 0; side < 2; ++side) {
        struct model_end *end = ends[side];
        warp_array_wrap_options options = {0};
        int64_t span = copy->item;
        int32_t i;
        memset(end, 0, sizeof *end);
        end->rank = one_in(2) ? 1 : model_choose_shape(shape[side], most);
        if (end->rank == 1)
            shape[side][0] = roll(most + 1);
        end->chunk = chunks[side];
        memcpy(end->shape, shape[side], sizeof end->shape);
        memcpy(end->extent, shape[side], sizeof end->extent);
        for (i = end->rank - 1; i >= 0; --i) {
            end->stride[i] = span;
            span *= end->shape[i];
        }
        if (span > (int64_t)end->chunk->size) {
            end->chunk = NULL;
            return 0;
        }
        count[side] = model_items(end);
        end->origin = roll((int64_t)end->chunk->size - (int64_t)count[side] * copy->item + 1);
        options.struct_size = sizeof options;
        CHECK_STATUS(warp_array_wrap(model_device(end->chunk->gpu), end->chunk->ptr + end->origin, model_dtype(copy->item), end->rank,
                                     end->extent, &options, &end->array),
                     WARP_SUCCESS);
    }
    copy->src_offset = (uint64_t)roll((int64_t)count[1] + 1);
    copy->dest_offset = (uint64_t)roll((int64_t)count[0] + 1);
    free_items = count[0] - copy->dest_offset;
    if (copy->src_offset == 0 && one_in(2) && count[1] <= free_items) {
        copy->count = 0;
        copy->items = count[1];
        return 1;
    }
    if (count[1] - copy->src_offset < free_items)
        free_items = count[1] - copy->src_offset;
    /* A count of 0 means all of the source. */
    if (free_items == 0)
        return 0;
    copy->items = copy->count = 1 + (uint64_t)roll((int64_t)free_items);
    copy->is_memory = one_in(3);
    return 1;
}

/* Lines of items with gaps, from one offset to another. */
static int model_choose_line(struct model_copy *copy, struct model_chunk *dest, struct model_chunk *src, int64_t most)
{
    int64_t to = 1 + roll(most), from = 1 + roll(most), free_items;
    if (!model_make_end(&copy->dest, dest, copy->item, 1, &to, 1, 0) || !model_make_end(&copy->src, src, copy->item, 1, &from, 0, 0))
        return 0;
    copy->src_offset = (uint64_t)roll(from);
    copy->dest_offset = (uint64_t)roll(to);
    free_items = to - (int64_t)copy->dest_offset;
    if (from - (int64_t)copy->src_offset < free_items)
        free_items = from - (int64_t)copy->src_offset;
    copy->items = copy->count = 1 + (uint64_t)roll(free_items);
    return 1;
}

/* Any strides at both ends, by index arrays or not. */
static int model_choose_shaped(struct model_copy *copy, struct model_chunk *dest, struct model_chunk *src, int64_t most)
{
    int64_t shape[WARP_ARRAY_MAX_RANK];
    const int32_t rank = model_choose_shape(shape, most);
    const int indexed = (int)roll(6); /* half of them by no index array */
    if (!model_make_end(&copy->dest, dest, copy->item, rank, shape, 1, indexed == 0 || indexed == 1)
        || !model_make_end(&copy->src, src, copy->item, rank, shape, 0, indexed == 1 || indexed == 2))
        return 0;
    copy->items = model_items(&copy->dest);
    return 1;
}

/* Bytes enough for copy threads and page-locked buffers. */
static void model_choose_large(struct model_copy *copy, struct model_chunk *dest, struct model_chunk *src)
{
    static const uint32_t items[] = {16, 20, 64, 1};
    const int flat = one_in(2) || (dest->gpu >= 0 && src->gpu >= 0);
    const int64_t from = dest->gpu >= 0 && src->gpu >= 0 ? 8 << 20 : dest->gpu < 0 && src->gpu < 0 ? 4 << 20 : 1 << 20;
    int64_t bytes = from + roll(1 << 19), shape[2];
    memset(copy, 0, sizeof *copy);
    for (copy->item = items[roll(flat ? 3 : 4)];; bytes /= 2) {
        shape[1] = flat ? 1 : 3 + roll(2000);
        shape[0] = bytes / copy->item / shape[1] + 1;
        if (flat) {
            if (model_make_end(&copy->dest, dest, copy->item, 1, shape, 1, 0) && model_make_end(&copy->src, src, copy->item, 1, shape, 0, 0))
                break;
        } else if (model_make_end(&copy->dest, dest, copy->item, 2, shape, 1, 0) && model_make_end(&copy->src, src, copy->item, 2, shape, 0, 0)) {
            break;
        }
        model_free_copy(copy);
    }
    copy->items = model_items(&copy->dest);
    model_list(copy);
}

static void model_choose_copy(struct model_copy *copy, struct model_chunk *dest, struct model_chunk *src, int64_t most)
{
    int made = 0;
    if (dest->is_large) {
        model_choose_large(copy, dest, src);
        return;
    }
    do {
        memset(copy, 0, sizeof *copy);
        copy->item = model_item_sizes[roll(sizeof model_item_sizes / sizeof *model_item_sizes)];
        switch (roll(7)) {
        case 0:
        case 1: made = model_choose_flat(copy, dest, src, most); break;
        case 2: made = model_choose_line(copy, dest, src, most); break;
        default: made = model_choose_shaped(copy, dest, src, most);
        }
        if (!made) {
            model_free_copy(copy);
            most = most / 2 + 1;
        }
    } while (!made);
    model_list(copy);
    if (copy->is_memory) {
        copy->dest_offset = copy->src_offset = copy->count = 0;
    }
}

static warp_copy_request model_request(const struct model_copy *copy)
{
    warp_copy_request request = {0};
    request.struct_size = sizeof request;
    if (copy->is_memory) {
        request.dest = copy->dest.chunk->ptr + copy->to[0];
        request.src = copy->src.chunk->ptr + copy->from[0];
        request.size = copy->items * copy->item;
        return request;
    }
    if (copy->dest.indexed != NULL)
        request.dest_indexed = copy->dest.indexed;
    else
        request.dest_array = copy->dest.array;
    if (copy->src.indexed != NULL)
        request.src_indexed = copy->src.indexed;
    else
        request.src_array = copy->src.array;
    request.dest_offset = copy->dest_offset;
    request.src_offset = copy->src_offset;
    request.count = copy->count;
    return request;
}

/* One copy, by the function that is made for it, or by the one for all. */
static warp_status model_issue(const struct model_copy *copy, warp_stream *stream)
{
    warp_copy_request request = model_request(copy);
    if (one_in(3))
        return warp_copy_run(&request, stream);
    if (copy->is_memory)
        return warp_memory_copy(request.dest, request.src, request.size, stream);
    if (copy->dest.indexed != NULL && copy->src.indexed != NULL)
        return warp_indexed_array_copy(copy->dest.indexed, copy->src.indexed, stream);
    if (copy->dest.indexed != NULL)
        return warp_indexed_array_scatter(copy->dest.indexed, copy->src.array, stream);
    if (copy->src.indexed != NULL)
        return warp_indexed_array_gather(copy->dest.array, copy->src.indexed, stream);
    return warp_array_copy(copy->dest.array, copy->src.array, copy->dest_offset, copy->src_offset, copy->count, stream);
}

/* What is told of the way before the copy is made. Whether the call may come back before the copy is over. */
static int model_check_path(const struct model_copy *copy, warp_stream *stream, int on)
{
    warp_copy_request request = model_request(copy);
    warp_status status;
    warp_copy_info info = {0};
    const uint64_t size = copy->items * copy->item;
    info.struct_size = sizeof info;
    status = warp_copy_get_path(&request, stream, &info);
    if (status == WARP_ERROR_ACCESS_DENIED && model_may_be_denied(copy, on))
        return 1;
    CHECK_STATUS(status, WARP_SUCCESS);
    CHECK(info.path >= WARP_COPY_PATH_NONE && info.path <= WARP_COPY_PATH_MANAGED);
    if (info.path == WARP_COPY_PATH_NONE) {
        CHECK_EQ_U64(info.size, 0);
    } else {
        CHECK_EQ_U64(info.size, size);
        CHECK(info.method >= 1 && info.method <= 4);
        CHECK(info.device != NULL);
    }
    if (info.path >= 0 && info.path <= WARP_COPY_PATH_MANAGED)
        ++model.by_path[info.path];
    return info.is_async;
}

static warp_stream *model_choose_stream(int on)
{
    return on == -1 ? NULL : on == -2 ? model.cpu_stream : model.stream[on][roll(3)];
}

/* Waits for what was put on the stream, and for no more where it has a name. */
static void model_wait(warp_stream *stream)
{
    if (stream != NULL)
        CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    else
        model_settle();
}

static int model_is_used(struct model_copy *copies, int count, const struct model_chunk *chunk, int written_alone)
{
    int i;
    for (i = 0; i < count; ++i)
        if (copies[i].dest.chunk == chunk || (!written_alone && copies[i].src.chunk == chunk))
            return 1;
    return 0;
}

/* One copy, or several by one call. */
static void model_copies(int64_t most, int is_large)
{
    struct model_copy copies[MODEL_BATCH];
    warp_copy_request requests[MODEL_BATCH];
    struct model_chunk *last;
    const int wanted = !is_large && one_in(12) ? 1 + (int)roll(MODEL_BATCH) : 1;
    const int by_batch = wanted > 1 || one_in(25), before = check_failure_count();
    int count = 0, on, i, tries, is_async = 1;
    warp_stream *stream;
    warp_status status;
    if (model.chain != NULL) {
        on = model.chain_gpu;
        stream = model.chain;
    } else {
        on = (int)roll(model.gpus + 3) - 2;
        if (on == model.gpus)
            on = -1;
        stream = model_choose_stream(on);
    }
    model.what = by_batch ? "a batch" : "a copy";
    last = model.chain != NULL ? model.last : NULL;
    for (tries = 0; count < wanted && tries < 2000; ++tries) {
        struct model_chunk *dest = model_choose_chunk(is_large), *src = one_in(10) ? dest : model_choose_chunk(is_large);
        /* What nothing but the order of the stream makes right. */
        if (last != NULL && one_in(3))
            src = last;
        if (!model_is_legal(dest, src, on))
            continue;
        /* Without a stream each goes where it belongs, and nothing orders them. */
        if (stream == NULL
            && (model_is_used(copies, count, dest, 0) || model_is_used(copies, count, src, 1) || (count > 0 && dest == src)))
            continue;
        if (is_large && dest == src)
            continue;
        if (model.chain == NULL && count == 0 && (model_is_of_host(src) || is_large || one_in(3)))
            model_refill(src);
        model_choose_copy(&copies[count++], dest, src, most);
        if (stream != NULL && on >= 0)
            last = dest;
    }
    if (model.chain != NULL)
        model.last = last;
    REQUIRE(count > 0);
    for (i = 0; i < count; ++i)
        requests[i] = model_request(&copies[i]);
    if (by_batch) {
        size_t bad = 77;
        status = warp_copy_run_batch(requests, sizeof *requests, (size_t)count, stream, &bad);
    } else {
        if (one_in(3))
            is_async = model_check_path(&copies[0], stream, on);
        status = model_issue(&copies[0], stream);
    }
    for (i = 0; i < count && status == WARP_ERROR_ACCESS_DENIED; ++i)
        if (model_may_be_denied(&copies[i], on))
            break;
    if (status == WARP_SUCCESS || i == count || status != WARP_ERROR_ACCESS_DENIED)
        CHECK_STATUS(status, WARP_SUCCESS);
    else
        ++model.denied;
    for (i = 0; i < count; ++i) {
        if (status == WARP_SUCCESS)
            model_apply(&copies[i]);
        model.items += copies[i].items;
    }
    model.made += (uint64_t)count;
    model.large += (uint64_t)is_large;
    if (!is_async && status == WARP_SUCCESS && model.chain == NULL) {
        /* Memory of the host was written, or may be written over. */
        if (copies[0].dest.chunk->gpu < 0)
            model_is_right(copies[0].dest.chunk);
        else if (copies[0].src.chunk->gpu < 0)
            model_refill(copies[0].src.chunk);
    }
    if (model.chain == NULL) {
        model_wait(stream);
        for (i = 0; i < count; ++i)
            model_is_right(copies[i].dest.chunk);
    }
    if (model.chain != NULL)
        for (i = 0; i < count; ++i) {
            fprintf(model.story, "\n      number %" PRIu64 "%s", model.number, by_batch ? ", of a batch" : "");
            model_print_copy(&copies[i]);
        }
    if (check_failure_count() != before) {
        printf("\n      on %s", stream == NULL ? "no stream" : on < 0 ? "the stream of the CPU" : on == 0 ? "a stream of GPU 0" : "a stream of GPU 1");
        if (model.chain != NULL)
            printf(", with others that are not waited for");
        for (i = 0; i < count && model.chain == NULL; ++i)
            model_print_copy(&copies[i]);
        model_where();
    }
    for (i = 0; i < count; ++i)
        model_free_copy(&copies[i]);
}

/* ---- Fills and new arrays --------------------------------------------------------------------------------------------- */

static void model_fill(int64_t most)
{
    struct model_chunk *chunk = model_choose_chunk(0);
    struct model_end end;
    unsigned char value[64];
    int64_t shape[WARP_ARRAY_MAX_RANK];
    int32_t rank;
    const int on = one_in(2) || chunk->gpu < 0 ? -1 : chunk->gpu, before = check_failure_count();
    const uint32_t item = model_item_sizes[roll(sizeof model_item_sizes / sizeof *model_item_sizes)];
    warp_stream *stream = model_choose_stream(on);
    uint64_t i, count;
    model.what = "a fill";
    do {
        rank = model_choose_shape(shape, most);
        most = most / 2 + 1;
    } while (!model_make_end(&end, chunk, item, rank, shape, 1, one_in(3)));
    model_scatter_bytes(value, sizeof value);
    if (one_in(3))
        memset(value, value[0], sizeof value);
    if (end.indexed != NULL)
        CHECK_STATUS(warp_indexed_array_fill(end.indexed, value, item, stream), WARP_SUCCESS);
    else
        CHECK_STATUS(warp_array_fill(end.array, value, item, stream), WARP_SUCCESS);
    count = model_items(&end);
    for (i = 0; i < count; ++i)
        memcpy(chunk->now + model_place(&end, i), value, item);
    model_wait(stream);
    model_is_right(chunk);
    model.items += count;
    ++model.made;
    if (check_failure_count() != before) {
        printf("\n      items of %u bytes", item);
        model_print_end("filled", &end);
        model_where();
    }
    model_end_of(&end);
}

/* A new array with the items of another. */
static void model_new_array(int64_t most)
{
    static const warp_memory_kind kinds[] = {WARP_MEMORY_CUDA_DEVICE, WARP_MEMORY_CUDA_MEMPOOL, WARP_MEMORY_CUDA_MANAGED};
    struct model_chunk *chunk = model_choose_chunk(0), seen = {0};
    struct model_end end;
    int64_t shape[WARP_ARRAY_MAX_RANK], told[WARP_ARRAY_MAX_RANK], strides[WARP_ARRAY_MAX_RANK];
    const int to = (int)roll(1 + model.gpus) - 1, way = (int)roll(3), before = check_failure_count();
    const uint32_t item = model_item_sizes[roll(sizeof model_item_sizes / sizeof *model_item_sizes)];
    warp_device *device = model_device(way == 2 ? chunk->gpu : to);
    warp_array_options options = {0};
    warp_array_info info = {0};
    warp_array *made = NULL;
    const unsigned char *bytes;
    uint64_t i, count, wrong = 0;
    int64_t row = item;
    int32_t rank;
    options.struct_size = sizeof options;
    info.struct_size = sizeof info;
    model.what = way == 0 ? "a clone" : way == 1 ? "an array on another device" : "an array without gaps";
    do {
        rank = model_choose_shape(shape, most);
        most = most / 2 + 1;
    } while (!model_make_end(&end, chunk, item, rank, shape, 0, way == 0 && one_in(2)));
    if (way != 2 && one_in(2)) {
        options.kind = to < 0 ? WARP_MEMORY_HOST : kinds[roll(3)];
        if (options.kind == WARP_MEMORY_CUDA_MEMPOOL || options.kind == WARP_MEMORY_CUDA_MANAGED) {
            warp_device_info about = {0};
            about.struct_size = sizeof about;
            CHECK_STATUS(warp_device_get_info(device, &about), WARP_SUCCESS);
            if (options.kind == WARP_MEMORY_CUDA_MEMPOOL ? !about.is_mempool_supported : !about.is_managed_memory_supported)
                options.kind = 0;
        }
    }
    if (way == 0 && end.indexed != NULL)
        CHECK_STATUS(warp_indexed_array_clone(end.indexed, device, &options, &made), WARP_SUCCESS);
    else if (way == 0)
        CHECK_STATUS(warp_array_clone(end.array, device, &options, &made), WARP_SUCCESS);
    else if (way == 1)
        CHECK_STATUS(warp_array_to_device(end.array, device, &options, &made), WARP_SUCCESS);
    else
        CHECK_STATUS(warp_array_contiguous(end.array, &options, &made), WARP_SUCCESS);
    model_settle();
    count = model_items(&end);
    if (made != NULL) {
        CHECK_STATUS(warp_array_get_info(made, &info), WARP_SUCCESS);
        CHECK_EQ_U64(info.count, count);
        CHECK_EQ_PTR(info.device, device);
        CHECK_EQ_U64(info.dtype.item_size, item);
        CHECK_STATUS(warp_array_get_shape(made, WARP_ARRAY_MAX_RANK, told, strides), WARP_SUCCESS);
        CHECK_EQ_I64(info.rank, rank);
        for (i = 0; i < (uint64_t)rank; ++i)
            CHECK_EQ_I64(told[i], shape[i]);
    }
    /* On its own device an array may stay what it is. */
    if (made != NULL && count != 0 && !(way == 1 && device == model_device(chunk->gpu))) {
        CHECK_EQ_U64(info.is_contiguous, 1);
        for (i = (uint64_t)rank; i-- > 0; row *= shape[i])
            if (shape[i] > 1)
                CHECK_EQ_I64(strides[i], row);
        if (options.kind != 0)
            CHECK_EQ_I64(info.kind, options.kind);
        seen.ptr = info.data;
        seen.size = count * item;
        seen.gpu = way == 2 ? chunk->gpu : to;
        seen.memory = info.kind == WARP_MEMORY_CUDA_MANAGED ? MODEL_MANAGED : MODEL_POOL;
        bytes = model_look(&seen);
        for (i = 0; i < count; ++i)
            wrong += memcmp(bytes + i * item, chunk->now + model_place(&end, i), item) != 0;
        CHECK_EQ_U64(wrong, 0);
    }
    CHECK_STATUS(warp_array_release(made), WARP_SUCCESS);
    model_is_right(chunk);
    ++model.made;
    model.items += count;
    if (check_failure_count() != before) {
        printf("\n      items of %u bytes, to %s, kind %d", item, to < 0 ? "the CPU" : to == 0 ? "GPU 0" : "GPU 1", options.kind);
        model_print_end("src", &end);
        model_where();
    }
    model_end_of(&end);
}

/* ---- A seed ----------------------------------------------------------------------------------------------------------- */

/* What is on the chain's stream is done, and all that it could have written is looked at. */
static void model_end_chain(void)
{
    const int before = check_failure_count();
    int i;
    if (model.chain == NULL)
        return;
    model_wait(model.chain);
    model.chain = NULL;
    fclose(model.story);
    model.story = NULL;
    model.what = "copies that were not waited for";
    for (i = 0; i < model.count; ++i)
        model_is_right(&model.chunks[i]);
    if (check_failure_count() != before)
        printf("\n      one after another on a stream of GPU %d:%s", model.chain_gpu, model.told);
    free(model.told);
    model.chain_from = 0;
}

static void model_case(uint64_t seed, uint64_t number, int with_large)
{
    if (model.chain != NULL && model.chain_left-- == 0)
        model_end_chain();
    model_dice = seed * 0x2545f4914f6cdd1du + number * 0xd1342543de82ef95u;
    model.number = number;
    if (simulator_is_here() && model.chain == NULL)
        SIMULATOR(warpsim_schedule)(seed % 2 ? 0 : model_random());
    if (with_large) {
        model_end_chain();
        CHECK_STATUS(warp_copy_set_threads((uint32_t)roll(4)), WARP_SUCCESS);
        model_copies(0, 1);
        return;
    }
    if (model.chain == NULL && model.gpus > 0 && one_in(12)) {
        model.chain_gpu = (int)roll(model.gpus);
        model.chain = model.stream[model.chain_gpu][roll(3)];
        model.chain_left = 2 + (int)roll(6);
        model.last = NULL;
        model.chain_from = number;
        model.story = open_memstream(&model.told, &model.told_size);
        memset(model.numbers_used, 0, sizeof model.numbers_used);
        model_settle();
    }
    if (model.chain != NULL || roll(8) != 0)
        model_copies(1 + roll(model.chain == NULL && one_in(10) ? 600 : 80), 0);
    else if (one_in(2))
        model_fill(1 + roll(80));
    else
        model_new_array(1 + roll(80));
}

static void model_let(int target, int peer)
{
    const int plain = one_in(2), pool = one_in(2);
    /* Where there is no such thing it is refused, and stays off. */
    (void)warp_peer_access_set_enabled(model.gpu[target], model.gpu[peer], (uint8_t)plain);
    (void)warp_mempool_access_set_enabled(model.gpu[target], model.gpu[peer], (uint8_t)pool);
}

/* Memory of each kind in which copies have a pipeline. */
static void model_add_large(void)
{
    int gpu;
    model_add(MODEL_MALLOC, -1, 0, 6 << 20);
    model_add(one_in(2) || model.gpus == 0 ? MODEL_HOST : MODEL_PINNED, -1, 0, 6 << 20);
    for (gpu = 0; gpu < model.gpus; ++gpu) {
        const uint64_t size = MODEL_LARGEST - 64 * (uint64_t)roll(100);
        if (one_in(2) || model_add(MODEL_POOL, gpu, 0, size) == NULL)
            model_add(MODEL_DEVICE, gpu, 0, size);
    }
}

static void model_begin(uint64_t seed)
{
    static const enum model_memory of_host[] = {MODEL_MALLOC, MODEL_REGISTERED, MODEL_HOST, MODEL_PINNED};
    static const enum model_memory of_gpus[] = {MODEL_DEVICE, MODEL_POOL, MODEL_MANAGED, MODEL_GRAPH, MODEL_FOREIGN};
    size_t count = 0;
    int gpu, i;
    memset(&model.chunks, 0, sizeof model.chunks);
    memset(model.numbers, 0, sizeof model.numbers);
    memset(model.numbers_used, 0, sizeof model.numbers_used);
    model.count = 0;
    model.seed = seed;
    model.number = 0;
    model_dice = seed * 0x2545f4914f6cdd1du;
    CHECK_STATUS(warp_device_get("cpu", &model.cpu), WARP_SUCCESS);
    CHECK_STATUS(warp_device_get_count(&count), WARP_SUCCESS);
    model.gpus = count > MODEL_GPUS ? MODEL_GPUS : (int)count - 1;
    CHECK_STATUS(warp_stream_get_current(model.cpu, &model.cpu_stream), WARP_SUCCESS);
    for (gpu = 0; gpu < model.gpus; ++gpu) {
        warp_stream_options options = {0};
        options.struct_size = sizeof options;
        CHECK_STATUS(warp_device_get_at((size_t)gpu + 1, &model.gpu[gpu]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_get_current(model.gpu[gpu], &model.stream[gpu][0]), WARP_SUCCESS);
        options.flags = WARP_STREAM_NON_BLOCKING;
        CHECK_STATUS(warp_stream_create(model.gpu[gpu], &options, &model.stream[gpu][1]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_create(model.gpu[gpu], NULL, &model.stream[gpu][2]), WARP_SUCCESS);
    }
    for (gpu = 0; gpu < model.gpus; ++gpu)
        if (model.gpus > 1)
            model_let(gpu, 1 - gpu);
    model.seen = malloc(MODEL_LARGEST);
    for (gpu = -1; gpu < model.gpus; ++gpu) {
        const uint64_t room = 1 << 16;
        model.numbers[1 + gpu][0] = model_add(gpu < 0 ? MODEL_HOST : MODEL_DEVICE, gpu, 0, room);
        model.numbers[1 + gpu][1] = model_add(gpu < 0 ? MODEL_PINNED : one_in(2) ? MODEL_POOL : MODEL_MANAGED, gpu, 0, room);
        for (i = 0; i < 2; ++i)
            if (model.numbers[1 + gpu][i] != NULL)
                model.numbers[1 + gpu][i]->is_numbers = 1;
    }
    for (i = 0; i < (int)(sizeof of_host / sizeof *of_host); ++i) {
        model_add(of_host[i], -1, 0, 700 + (uint64_t)roll(4000));
        if (of_host[i] == MODEL_HOST || of_host[i] == MODEL_PINNED)
            model_add(of_host[i], -1, 1, 700 + (uint64_t)roll(4000));
    }
    for (gpu = 0; gpu < model.gpus; ++gpu)
        for (i = 0; i < (int)(sizeof of_gpus / sizeof *of_gpus); ++i) {
            model_add(of_gpus[i], gpu, 0, 700 + (uint64_t)roll(4000));
            if (of_gpus[i] == MODEL_DEVICE || of_gpus[i] == MODEL_POOL)
                model_add(of_gpus[i], gpu, 1, 700 + (uint64_t)roll(4000));
        }
}

static void model_finish(void)
{
    int gpu, i;
    model_end_chain();
    model_settle();
    model.what = "what is left at the end";
    for (i = 0; i < model.count; ++i)
        model_is_right(&model.chunks[i]);
    for (i = 0; i < model.count; ++i)
        model_drop(&model.chunks[i]);
    for (gpu = 0; gpu < model.gpus; ++gpu) {
        CHECK_STATUS(warp_stream_release(model.stream[gpu][1]), WARP_SUCCESS);
        CHECK_STATUS(warp_stream_release(model.stream[gpu][2]), WARP_SUCCESS);
        if (model.gpus > 1) {
            (void)warp_peer_access_set_enabled(model.gpu[gpu], model.gpu[1 - gpu], 0);
            (void)warp_mempool_access_set_enabled(model.gpu[gpu], model.gpu[1 - gpu], 0);
        }
    }
    free(model.seen);
}

/* A number of the environment. */
static CHECK_MAYBE_UNUSED uint64_t model_number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

/* Makes the copies of seeds, each with this many and some large ones, unless the environment names one. Half of the seeds run on a simulated driver that
 * does work late and in any order that is legal. */
static CHECK_MAYBE_UNUSED void model_run(uint64_t first, uint64_t seeds, uint64_t copies, uint64_t large)
{
    const char *only = getenv("WARPMEM_COPY_CASE");
    const char *colon = only != NULL ? strchr(only, ':') : NULL;
    uint64_t seed, number, from = 1, until = copies + large;
    if (only != NULL && only[0] != '\0') {
        first = strtoull(only, NULL, 0);
        seeds = 1;
        if (colon != NULL) {
            const char *dash = strchr(colon, '-');
            from = until = strtoull(colon + 1, NULL, 0);
            if (dash != NULL)
                until = strtoull(dash + 1, NULL, 0);
        }
    }
    for (seed = first; seed < first + seeds; ++seed) {
        if (simulator_is_here())
            SIMULATOR(warpsim_schedule)(0);
        model_begin(seed);
        if (large > 0)
            model_add_large();
        for (number = from; number <= until; ++number) {
            model_case(seed, number, number > copies);
            if (check_failure_count() > 0 && model_is_lost())
                return;
            if (check_failure_count() > 5)
                break;
        }
        model_finish();
        if (check_failure_count() > 5)
            return;
    }
    if (simulator_is_here())
        SIMULATOR(warpsim_schedule)(0);
}

#endif
