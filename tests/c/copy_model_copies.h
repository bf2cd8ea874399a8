/*
 * copy_model_copies.h: for random copies (copy_model.h), copies that are chosen, made, made again slowly, and compared.
 */
#ifndef WARPMEM_TESTS_COPY_MODEL_COPIES_H
#define WARPMEM_TESTS_COPY_MODEL_COPIES_H

#include "copy_model_ends.h"

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

#endif
