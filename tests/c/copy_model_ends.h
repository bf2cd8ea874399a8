/*
 * copy_model_ends.h: for random copies (copy_model.h), an array of any shape and strides, or one seen through index arrays, at
 * each end.
 */
#ifndef WARPMEM_TESTS_COPY_MODEL_ENDS_H
#define WARPMEM_TESTS_COPY_MODEL_ENDS_H

#include "copy_model_memory.h"

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
            stride = one_in(2) ? 0 : (int64_t)(next_random(&dice) >> 20) - ((int64_t)1 << 43);
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

#endif
