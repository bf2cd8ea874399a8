/*
 * copy_model.h: random copies beside a slow copy that is obviously right: byte by byte over the places of the items, in host
 * memory, with the source read whole first. After each copy the whole allocation that it wrote is compared, so that bytes which
 * must not change are looked at as well.
 *
 *     model_run(first_seed, seeds, copies_of_each, large_ones, every_how_many_seeds);
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

#include "copy_model_copies.h"

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
    dice = seed * 0x2545f4914f6cdd1du + number * 0xd1342543de82ef95u;
    model.number = number;
    if (simulator_is_here() && model.chain == NULL)
        SIMULATOR(warpsim_schedule)(seed % 2 ? 0 : next_random(&dice));
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
    dice = seed * 0x2545f4914f6cdd1du;
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

/* Makes the copies of seeds, each with this many, and each seed that large_every divides with large ones too, unless the
 * environment names one. Half of the seeds run on a simulated driver that does work late and in any order that is legal. */
static CHECK_MAYBE_UNUSED void model_run(uint64_t first, uint64_t seeds, uint64_t copies, uint64_t large, uint64_t large_every)
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
        if (large > 0 && seed % large_every == 0)
            model_add_large();
        for (number = from; number <= until && (number <= copies || seed % large_every == 0); ++number) {
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
