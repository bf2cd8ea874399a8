/*
 * Arrays: items of one type with a shape, on every device that is there.
 *
 * Makes a matrix, looks at it in four ways without a copy, fills a block of it, sends it to every other device and back,
 * and lends the library memory of the program's own, which a deleter gives back.
 */
#include <warpmem.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every call that must work goes through this: a failure says what happened and how to go on. */
static void must(warp_status status, const char *what)
{
    if (status != WARP_SUCCESS) {
        fprintf(stderr, "%s: %s: %s\n", what, warp_status_get_name(status), warp_error_get_message());
        exit(1);
    }
}
#define MUST(call) must((call), #call)

static void describe(const char *name, warp_array *array)
{
    warp_array_info info = {.struct_size = sizeof info};
    int64_t shape[WARP_ARRAY_MAX_RANK], strides[WARP_ARRAY_MAX_RANK];
    MUST(warp_array_get_info(array, &info));
    MUST(warp_array_get_shape(array, WARP_ARRAY_MAX_RANK, shape, strides));
    printf("   %-12s", name);
    for (int32_t i = 0; i < info.rank; i++)
        printf("%s%" PRId64, i == 0 ? "shape " : " x ", shape[i]);
    for (int32_t i = 0; i < info.rank; i++)
        printf("%s%" PRId64, i == 0 ? ", strides " : " ", strides[i]);
    printf(", %" PRIu64 " items of %" PRIu32 " bytes%s%s\n", info.count, info.dtype.item_size,
           info.is_contiguous ? "" : ", with gaps or turned", info.is_view ? ", a view" : "");
}

/* A 4 x 6 matrix of floats that counts 0, 1, 2, ... */
static warp_array *count_up(warp_device *cpu)
{
    const int64_t shape[2] = {4, 6};
    warp_array *matrix = NULL;
    warp_array_info info = {.struct_size = sizeof info};
    MUST(warp_array_empty(cpu, warp_dtype_make(WARP_DTYPE_FLOAT, 32), 2, shape, NULL, &matrix));
    MUST(warp_array_get_info(matrix, &info));
    for (int i = 0; i < 24; i++)
        ((float *)info.data)[i] = (float)i;
    return matrix;
}

static void print(warp_array *matrix)
{
    warp_array_info info = {.struct_size = sizeof info};
    MUST(warp_array_get_info(matrix, &info));
    for (int row = 0; row < 4; row++) {
        printf("      ");
        for (int column = 0; column < 6; column++)
            printf("%5g", (double)((const float *)info.data)[6 * row + column]);
        printf("\n");
    }
}

static void give_back(void *user, void *ptr, uint64_t size)
{
    printf("   the deleter of \"%s\" gets its %" PRIu64 " bytes back\n", (const char *)user, size);
    free(ptr);
}

int main(void)
{
    warp_device *cpu = NULL;
    MUST(warp_version_check(WARP_VERSION));
    MUST(warp_init(NULL, NULL));
    MUST(warp_device_get("cpu", &cpu));

    printf("One matrix, seen in several ways:\n");
    warp_array *matrix = count_up(cpu), *turned = NULL, *flat = NULL, *bytes = NULL, *inner = NULL;
    MUST(warp_array_transpose(matrix, 2, NULL, &turned));
    MUST(warp_array_reshape(matrix, 1, (const int64_t[]){-1}, &flat));
    MUST(warp_array_reinterpret(matrix, warp_dtype_make(WARP_DTYPE_UINT, 8), &bytes));
    MUST(warp_array_slice(matrix, 2, (const int64_t[]){1, 1}, (const int64_t[]){3, 5}, NULL, &inner));
    describe("matrix", matrix);
    describe("transposed", turned);
    describe("flat", flat);
    describe("bytes", bytes);
    describe("inner", inner);

    printf("\nFilling the inner block:\n");
    const float value = -1;
    MUST(warp_array_fill(inner, &value, sizeof value, NULL));
    print(matrix);

    /* A view keeps the memory: the matrix may go first. */
    MUST(warp_array_release(turned));
    MUST(warp_array_release(bytes));
    MUST(warp_array_release(inner));

    printf("\nOn every device, and back:\n");
    size_t count = 0;
    MUST(warp_device_get_count(&count));
    for (size_t i = 0; i < count; i++) {
        warp_device *device = NULL;
        warp_device_info info = {.struct_size = sizeof info};
        warp_array *there = NULL, *back = NULL;
        warp_array_info here = {.struct_size = sizeof here}, again = {.struct_size = sizeof again};
        MUST(warp_device_get_at(i, &device));
        MUST(warp_device_get_info(device, &info));
        MUST(warp_array_clone(matrix, device, NULL, &there));
        MUST(warp_array_clone(there, cpu, NULL, &back));
        /* What goes to a GPU or comes from one has happened when its stream says so. */
        MUST(warp_device_synchronize(device));
        MUST(warp_array_get_info(matrix, &here));
        MUST(warp_array_get_info(back, &again));
        int same = memcmp(here.data, again.data, here.size) == 0;
        printf("   %-8s %s\n", info.alias, same ? "came back as it went" : "CAME BACK WRONG");
        MUST(warp_array_release(there));
        MUST(warp_array_release(back));
        if (!same)
            return 1;
    }
    MUST(warp_array_release(matrix));
    describe("flat, still", flat);
    MUST(warp_array_release(flat));

    printf("\nMemory of the program's own:\n");
    double *own = malloc(8 * sizeof *own);
    if (!own)
        return 1;
    warp_array_wrap_options options = {
        .struct_size = sizeof options, .deleter = give_back, .deleter_user = (void *)"eight doubles"};
    warp_array *wrapped = NULL, *backwards = NULL;
    MUST(warp_array_wrap(cpu, own, warp_dtype_make(WARP_DTYPE_FLOAT, 64), 1, (const int64_t[]){8}, &options, &wrapped));
    MUST(warp_array_slice(wrapped, 1, NULL, NULL, (const int64_t[]){-2}, &backwards));
    describe("wrapped", wrapped);
    describe("backwards", backwards);
    MUST(warp_array_release(wrapped));
    printf("   the array is released, its view is not\n");
    MUST(warp_array_release(backwards));

    /* A mistake is found, explained and harmless. */
    warp_status status = warp_array_release(wrapped);
    printf("\nReleasing it once more is %s:\n   %s\n", warp_status_get_name(status), warp_error_get_message());

    MUST(warp_shutdown());
    return 0;
}
