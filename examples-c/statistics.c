/*
 * Statistics: what is live, what the most was, and who has it when memory runs out.
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

static warp_statistics print_counts(const char *when)
{
    warp_statistics counts = {.struct_size = sizeof counts};
    must(warp_statistics_get(NULL, WARP_MEMORY_UNKNOWN, &counts)); /* all kinds of the default device together */
    printf("%-12s %" PRIu64 " blocks, %" PRIu64 " bytes, at most %" PRIu64 "; %" PRIu64 " allocations, %" PRIu64
           " frees\n",
           when, counts.live_blocks, counts.live_bytes, counts.peak_bytes, counts.allocations, counts.frees);
    return counts;
}

int main(void)
{
    must(warp_init(NULL, NULL));

    warp_alloc_options weights = {.struct_size = sizeof weights, .tag = "weights"};
    void *large = NULL, *small = NULL;
    must(warp_alloc_with(NULL, 64 << 20, &weights, &large));
    must(warp_alloc(NULL, 4096, &small));
    print_counts("two blocks:");

    must(warp_free(small));
    must(warp_statistics_reset_peak(NULL)); /* the peak begins again at what is live now */
    print_counts("one freed:");

    /* What cannot be had is an error that says what there is, and under which tags the most of it lies. */
    warp_device_info info = {.struct_size = sizeof info};
    must(warp_device_get_info(NULL, &info));
    if (info.is_cuda) {
        void *none = NULL;
        if (warp_alloc(NULL, 2 * info.total_memory, &none) != WARP_ERROR_OUT_OF_MEMORY || none != NULL)
            return 1;
        printf("%s\n", warp_error_get_message());
    }

    must(warp_free(large));
    warp_statistics last = print_counts("at the end:");
    must(warp_shutdown());
    return last.live_blocks == 0 ? 0 : 1;
}
