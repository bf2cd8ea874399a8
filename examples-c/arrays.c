/*
 * Arrays: shape and type, views that share memory, copies to another device, rows picked by number, and memory of other code.
 */
/* topology: h200x2 */
/* topology: - */
#include <warpmem.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void must(warp_status status)
{
    if (status != WARP_SUCCESS) {
        fprintf(stderr, "%s: %s\n", warp_status_get_name(status), warp_error_get_message());
        exit(1);
    }
}

/* Called once, when the array around the memory and all its views are released. */
static void give_back(void *user, void *ptr, uint64_t size)
{
    printf("%s: %" PRIu64 " bytes given back\n", (const char *)user, size);
    free(ptr);
}

int main(void)
{
    must(warp_init(NULL, NULL));
    warp_device *cpu = NULL;
    must(warp_device_get("cpu", &cpu));

    /* Three rows of four floats on the default device. */
    const warp_dtype f32 = warp_dtype_make(WARP_DTYPE_FLOAT, 32);
    const int64_t shape[2] = {3, 4};
    warp_array *grid = NULL;
    must(warp_array_zeros(NULL, f32, 2, shape, NULL, &grid));

    /* A view of column 1: rows 0 to 3, columns 1 to 2. It sees the same memory, and keeps it. */
    warp_array *column = NULL;
    must(warp_array_slice(grid, 2, (int64_t[]){0, 1}, (int64_t[]){3, 2}, NULL, &column));
    const float seven = 7;
    must(warp_array_fill(column, &seven, sizeof seven, NULL));
    must(warp_array_release(column));

    /* A copy on the CPU, where its items can be read: in ordinary host memory they are there when the call returns. */
    warp_array *copy = NULL;
    must(warp_array_clone(grid, cpu, NULL, &copy));
    warp_array_info info = {.struct_size = sizeof info};
    must(warp_array_get_info(copy, &info));
    const float *items = info.data;
    for (int row = 0; row < 3; row++)
        printf("%g %g %g %g\n", items[4 * row], items[4 * row + 1], items[4 * row + 2], items[4 * row + 3]);
    int good = items[0] == 0 && items[1] == seven;
    must(warp_array_release(copy));

    /* Rows 2, 0 and 2 of the grid. The numbers are an array of int32 on the grid's device. */
    const int32_t rows_to_pick[3] = {2, 0, 2};
    const int64_t three = 3;
    warp_array *numbers = NULL;
    must(warp_array_empty(NULL, warp_dtype_make(WARP_DTYPE_INT, 32), 1, &three, NULL, &numbers));
    info = (warp_array_info){.struct_size = sizeof info};
    must(warp_array_get_info(numbers, &info));
    must(warp_memory_copy(info.data, rows_to_pick, sizeof rows_to_pick, NULL));
    const warp_array *indices[2] = {numbers, NULL}; /* picked rows, whole columns */
    warp_indexed_array *picked = NULL;
    must(warp_indexed_array_create(grid, indices, 2, &picked));
    must(warp_array_release(numbers)); /* the indexed array has both of them */
    must(warp_array_release(grid));
    int64_t seen[2];
    must(warp_indexed_array_get_shape(picked, seen, 2, NULL));
    printf("%" PRId64 " x %" PRId64 " items are seen\n", seen[0], seen[1]);
    good = good && seen[0] == 3 && seen[1] == 4;
    must(warp_indexed_array_release(picked)); /* now their memory goes */

    /* Memory of other code, given back by its own function when the array is done with it. */
    const int64_t length = 100;
    warp_array *wrapped = NULL, *rows = NULL;
    warp_array_wrap_options wrap = {.struct_size = sizeof wrap, .deleter = give_back, .deleter_user = "malloc"};
    void *theirs = calloc((size_t)length, sizeof(float));
    must(warp_array_wrap(cpu, theirs, f32, 1, &length, &wrap, &wrapped));
    must(warp_array_reshape(wrapped, 2, (int64_t[]){-1, 10}, &rows));
    must(warp_array_release(wrapped)); /* the view still has it */
    must(warp_array_release(rows));    /* now it goes */

    must(warp_shutdown());
    return good ? 0 : 1;
}
