/*
 * Memory pools: what one holds and keeps, a pool of one's own for a part of the program, and pools off for a while.
 */
/* topology: h200x2 */
/* topology: vgpu */
/* topology: - */
#include <warpmem.h>

#include <stdio.h>
#include <stdlib.h>

static void must(warp_status status)
{
    if (status != WARP_SUCCESS) {
        fprintf(stderr, "%s: %s\n", warp_status_get_name(status), warp_error_get_message());
        exit(1);
    }
}

static void show(const char *when, warp_mempool *pool)
{
    warp_mempool_memory_info held = {.struct_size = sizeof held};
    must(warp_mempool_query_memory(pool, &held));
    printf("%-12s uses %9llu and holds %9llu bytes\n", when, (unsigned long long)held.used,
           (unsigned long long)held.reserved);
}

int main(void)
{
    must(warp_init(NULL, NULL));
    warp_device *gpu = NULL;
    uint8_t has_pools = 0;
    if (warp_device_get("cuda:0", &gpu) == WARP_SUCCESS)
        must(warp_mempool_is_supported(gpu, &has_pools));
    if (!has_pools) {
        printf("there is no GPU with memory pools\n");
        must(warp_shutdown());
        return 0;
    }

    /* Nine tenths of the GPU's memory stay in the pool when something is waited for. */
    must(warp_mempool_set_release_fraction_of_device(gpu, 0.9));

    void *block = NULL, *cache = NULL;
    const uint64_t size = 64 << 20;
    must(warp_alloc(gpu, size, &block));
    must(warp_free(block));
    must(warp_device_synchronize(gpu));
    warp_mempool *pool = NULL;
    must(warp_mempool_get(gpu, &pool)); /* the device's own: not to be released */
    show("kept:", pool);
    must(warp_mempool_trim(pool, 0));
    show("trimmed:", pool);

    warp_mempool_options options = {.struct_size = sizeof options, .max_size = 256 << 20};
    warp_mempool *bounded = NULL;
    must(warp_mempool_create(gpu, &options, &bounded));
    warp_alloc_options from = {.struct_size = sizeof from, .mempool = bounded};
    must(warp_alloc_with(gpu, size, &from, &cache)); /* this block */
    must(warp_mempool_use(gpu, bounded));            /* and all that follow, of every thread */
    must(warp_alloc(gpu, size, &block));
    show("bounded:", bounded);
    if (warp_alloc_with(gpu, 4 * size, &from, &(void *){NULL}) == WARP_ERROR_OUT_OF_MEMORY)
        printf("%s\n", warp_error_get_message());

    must(warp_mempool_use(gpu, NULL));
    must(warp_mempool_release(bounded)); /* its blocks stay good */
    must(warp_free(cache));
    must(warp_free(block));

    warp_scope *scope = NULL;
    must(warp_scope_begin_mempool(gpu, 0, &scope)); /* off, for this thread */
    must(warp_alloc(gpu, size, &block));            /* plain device memory */
    must(warp_scope_end(scope));
    warp_pointer_info info = {.struct_size = sizeof info};
    must(warp_pointer_get_info(block, &info));
    must(warp_free(block));
    must(warp_shutdown());
    return info.kind == WARP_MEMORY_CUDA_DEVICE ? 0 : 1;
}
