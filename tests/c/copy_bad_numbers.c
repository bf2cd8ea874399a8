/*
 * copy_bad_numbers.c: copies by index arrays whose numbers lead out of their data, or are what the copy itself writes: the CPU
 * tells of them and changes nothing, a GPU leaves out what they lead to.
 *
 * topology: h200x2
 * topology: discrete,peers=0
 * topology: mixed
 * needs: simulator
 */
#define _POSIX_C_SOURCE 200809L
#include "copy_refused.h"

/* Numbers in memory of the host are looked at before anything is written. */
TEST(numbers_that_lead_out_of_their_data)
{
    static const int32_t bad_ones[] = {-1, 6, 7, INT32_MAX, INT32_MIN, -6};
    static const int at_places[] = {0, 3, 7};
    static const int others[] = {HOST_B, GPU_A, PINNED, FAR_AWAY};
    size_t b, p, o, in;
    begin();
    is_asked_there = 1;
    for (in = 0; in < 2; ++in)
        for (b = 0; b < sizeof bad_ones / sizeof *bad_ones; ++b)
            for (p = 0; p < 3; ++p) {
                int32_t values[8] = {5, 4, 3, 2, 1, 0, 5, 2}, apart[8] = {0, 1, 2, 3, 4, 5, 5, 5};
                warp_array *by, *data = gaps_in(HOST_A, 6);
                warp_indexed_array *indexed;
                char said[32];
                values[at_places[p]] = apart[at_places[p]] = bad_ones[b];
                by = numbers(in ? PINNED : HOST_B, 2048, values, 8);
                indexed = picked(data, by);
                snprintf(said, sizeof said, "%d", bad_ones[b]);
                for (o = 0; o < sizeof others / sizeof *others; ++o) {
                    warp_array *line = line_in(others[o], 4, 8), *made = (warp_array *)1;
                    warp_copy_request request = arrays(line, NULL, 0, 0, 0);
                    request.src_indexed = indexed;
                    REFUSED(request, NULL, WARP_ERROR_INVALID_ARGUMENT, said);
                    CHECK_STR_CONTAINS(warp_error_get_message(), "6");
                    CALL_REFUSED(warp_indexed_array_gather(line, indexed, NULL), WARP_ERROR_INVALID_ARGUMENT, said);
                    CALL_REFUSED(warp_indexed_array_scatter(indexed, line, NULL), WARP_ERROR_INVALID_ARGUMENT, said);
                    made = (warp_array *)1;
                    CHECK_STATUS(warp_indexed_array_clone(indexed, owner[others[o]], NULL, &made), WARP_ERROR_INVALID_ARGUMENT);
                    CHECK_EQ_PTR(made, NULL);
                    CHECK(nothing_changed());
                    release(line);
                }
                CALL_REFUSED(warp_indexed_array_fill(indexed, "four", 4, NULL), WARP_ERROR_INVALID_ARGUMENT, said);
                release_indexed(indexed);
                release(by);
                release(data);
            }
    is_asked_there = 0;
    finish();
}

/* Numbers in memory of a GPU are its kernel's to look at: it leaves out what leads out, and touches nothing there. */
TEST(a_gpu_leaves_out_what_leads_out_of_the_data)
{
    const int32_t values[8] = {5, -1, 3, 6, 1, INT32_MAX, 5, INT32_MIN}, apart[8] = {5, -1, 3, 6, 1, INT32_MAX, 0, INT32_MIN};
    unsigned char now[SIZE], expected[SIZE];
    size_t way, i;
    begin();
    for (way = 0; way < 3; ++way) {
        warp_array *by = numbers(GPU_B, 2048, way == 0 ? values : apart, 8), *data = array_in(GPU_A, 1024, 4, 1, (const int64_t[]){6}, (const int64_t[]){16});
        warp_array *line = line_in(GPU_B, 4, 8);
        warp_indexed_array *indexed = picked(data, by);
        int dest = way == 0 ? GPU_B : GPU_A;
        memcpy(expected, held[dest], SIZE);
        for (i = 0; i < 8; ++i) {
            int32_t number = way == 0 ? values[i] : apart[i];
            if (number < 0 || number > 5)
                continue;
            if (way == 0)
                memcpy(expected + 4 * i, held[GPU_A] + 1024 + 16 * number, 4);
            else
                memcpy(expected + 1024 + 16 * number, way == 1 ? (const char *)held[GPU_B] + 4 * i : "four", 4);
        }
        if (way == 0)
            CHECK_STATUS(warp_indexed_array_gather(line, indexed, NULL), WARP_SUCCESS);
        else if (way == 1)
            CHECK_STATUS(warp_indexed_array_scatter(indexed, line, NULL), WARP_SUCCESS);
        else
            CHECK_STATUS(warp_indexed_array_fill(indexed, "four", 4, NULL), WARP_SUCCESS);
        CHECK_STATUS(warp_device_synchronize(gpu(0)), WARP_SUCCESS);
        look(dest, now);
        CHECK(memcmp(now, expected, SIZE) == 0);
        memcpy(held[dest], expected, SIZE);
        CHECK(nothing_changed());
        CHECK_EQ_U64(SIMULATOR(warpsim_violation_count)(), 0);
        take_note();
        release_indexed(indexed);
        release(by);
        release(data);
        release(line);
    }
    finish();
}

TEST(numbers_that_the_copy_itself_writes)
{
    const int32_t good[4] = {0, 1, 2, 3};
    static const int where[] = {HOST_A, GPU_A};
    size_t i;
    begin();
    for (i = 0; i < 2; ++i) {
        warp_array *by = numbers(where[i], 64, good, 4), *data = array_in(where[i], 2048, 4, 1, (const int64_t[]){4}, NULL);
        warp_array *over = array_in(where[i], 60, 4, 1, (const int64_t[]){4}, NULL);
        warp_indexed_array *indexed = picked(data, by);
        CALL_REFUSED(warp_indexed_array_gather(over, indexed, NULL), WARP_ERROR_INVALID_ARGUMENT, "index array");
        release_indexed(indexed);
        indexed = picked(over, by);
        CALL_REFUSED(warp_indexed_array_scatter(indexed, data, NULL), WARP_ERROR_INVALID_ARGUMENT, "index array");
        release_indexed(indexed);
        release(over);
        release(by);
        release(data);
    }
    finish();
}

TEST(shapes_of_index_arrays_count)
{
    const int32_t good[3] = {0, 1, 2};
    warp_array *by, *data, *four, *three, *eight;
    warp_indexed_array *indexed;
    begin();
    by = numbers(HOST_B, 64, good, 3);
    data = line_in(HOST_A, 4, 8);
    indexed = picked(data, by);
    three = line_in(HOST_B, 4, 3);
    four = line_in(HOST_B, 4, 4);
    eight = line_in(HOST_B, 8, 3);
    CALL_REFUSED(warp_indexed_array_gather(four, indexed, NULL), WARP_ERROR_SIZE_MISMATCH, "Incompatible array shapes");
    CALL_REFUSED(warp_indexed_array_scatter(indexed, four, NULL), WARP_ERROR_SIZE_MISMATCH, "Incompatible array shapes");
    CALL_REFUSED(warp_indexed_array_gather(eight, indexed, NULL), WARP_ERROR_SIZE_MISMATCH, "Incompatible array data types");
    CALL_REFUSED(warp_indexed_array_gather(data, indexed, NULL), WARP_ERROR_SIZE_MISMATCH, "Incompatible array shapes");
    release(eight);
    release(four);
    release(three);
    release_indexed(indexed);
    release(by);
    release(data);
    finish();
}

CHECK_MAIN()
