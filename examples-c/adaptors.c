/*
 * Allocators that stand on others: a budget for a GPU, what a part of the program used, what is not given back, and room made
 * when memory runs out.
 */
/* topology: h200x2 */
/* topology: vgpu */
/* topology: - */
#include <warpmem.h>

#include <stdio.h>
#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)

static void must(warp_status status)
{
    if (status != WARP_SUCCESS) {
        fprintf(stderr, "%s: %s\n", warp_status_get_name(status), warp_error_get_message());
        exit(1);
    }
}

static void *cache; /* what can be made again */

static int32_t drop_cache(void *user, const warp_alloc_request *request, warp_status status, uint32_t attempt)
{
    (void)user, (void)request, (void)attempt;
    if (status != WARP_ERROR_OUT_OF_MEMORY || cache == NULL)
        return 0; /* the allocation fails */
    must(warp_free(cache));
    cache = NULL;
    return 1; /* ask once more */
}

int main(void)
{
    must(warp_init(NULL, NULL));
    warp_device *gpu = NULL;
    warp_allocator *base = NULL;
    if (warp_device_get("cuda:0", &gpu) != WARP_SUCCESS) {
        printf("this is about a GPU\n");
        must(warp_shutdown());
        return 0;
    }
    must(warp_allocator_get_for_device(gpu, &base)); /* what serves now */

    warp_allocator *limit = NULL, *statistics = NULL, *tracking = NULL, *all = NULL;
    must(warp_allocator_create_limit(base, 64 * MIB, &limit)); /* never more than that at once */
    must(warp_allocator_create_statistics(limit, &statistics));
    must(warp_allocator_create_tracking(statistics, 0, &tracking));
    must(warp_allocator_create_failure_callback(tracking, drop_cache, NULL, NULL, &all));
    must(warp_allocator_set_for_device(gpu, all)); /* from now on it serves the GPU */

    warp_alloc_options tagged = {.struct_size = sizeof tagged, .tag = "cache"};
    must(warp_alloc_with(gpu, 40 * MIB, &tagged, &cache));

    must(warp_allocator_statistics_push(statistics)); /* what happens from here … */
    void *weights = NULL;
    tagged.tag = "weights";
    must(warp_alloc_with(gpu, 50 * MIB, &tagged, &weights)); /* fits after the cache was dropped */
    warp_allocator_statistics used = {.struct_size = sizeof used};
    must(warp_allocator_statistics_pop(statistics, &used)); /* … to here */
    printf("%llu MiB in %llu blocks\n", (unsigned long long)(used.total_bytes / MIB),
           (unsigned long long)used.total_blocks);

    char report[1000];
    must(warp_allocator_tracking_report(tracking, report, sizeof report, NULL));
    printf("%s", report); /* 1 block, 52428800 bytes, … "weights" … */

    int good = cache == NULL && used.total_blocks == 1 && used.total_bytes == 50 * MIB;
    must(warp_free(weights));
    must(warp_allocator_set_for_device(gpu, NULL));
    must(warp_allocator_release(limit));
    must(warp_allocator_release(statistics));
    must(warp_allocator_release(tracking));
    must(warp_allocator_release(all));
    must(warp_shutdown());
    return good ? 0 : 1;
}
