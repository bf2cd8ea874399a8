/*
 * The caching allocator: one call, and what is freed serves the next who asks, without a call of the driver.
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

int main(void)
{
    must(warp_init(NULL, NULL));
    warp_device *gpu = NULL;
    if (warp_device_get("cuda:0", &gpu) != WARP_SUCCESS) {
        printf("this is about a GPU\n");
        must(warp_shutdown());
        return 0;
    }
    must(warp_allocator_set_caching_for_all(1)); /* from now on, for every GPU */

    warp_allocator *cache = NULL;
    must(warp_allocator_get_caching(0, &cache)); /* the same one, to be asked */
    for (int step = 0; step < 1000; ++step) {
        void *activations = NULL, *gradients = NULL;
        must(warp_alloc(gpu, 48 * MIB, &activations));
        must(warp_alloc(gpu, 16 * MIB, &gradients));
        /* … work on the device's current stream … */
        must(warp_free(gradients));
        must(warp_free(activations)); /* no wait: what is next on the stream may have them */
    }
    warp_caching_info info = {.struct_size = sizeof info};
    must(warp_allocator_caching_measure(cache, gpu, &info));
    printf("%llu blocks at hand, %llu cut, memory asked for %llu times, %llu MiB kept\n",
           (unsigned long long)info.served_at_hand, (unsigned long long)info.served_by_cutting,
           (unsigned long long)info.growths, (unsigned long long)(info.reserved_bytes / MIB));

    uint64_t freed = 0;
    must(warp_allocator_trim(cache, gpu, &freed)); /* for other users of the GPU */

    /* Page-locked memory the same way, and an own cache that never has more than a gigabyte. */
    warp_device *cpu = NULL;
    warp_alloc_options options = {.struct_size = sizeof options};
    void *staging = NULL, *block = NULL;
    must(warp_device_get("cpu", &cpu));
    must(warp_allocator_get_caching(WARP_MEMORY_PINNED, &options.allocator));
    must(warp_alloc_with(cpu, 8 * MIB, &options, &staging));
    must(warp_free(staging));

    warp_caching_options bounded = {.struct_size = sizeof bounded, .limit = 1024 * MIB, .name = "model"};
    warp_allocator *below = NULL, *own = NULL;
    must(warp_allocator_get_builtin(WARP_MEMORY_CUDA_DEVICE, &below));
    must(warp_allocator_create_caching(below, &bounded, &own));
    options.allocator = own;
    must(warp_alloc_with(gpu, 100 * MIB, &options, &block));
    int refused = warp_alloc_with(gpu, 1000 * MIB, &options, &staging) == WARP_ERROR_OUT_OF_MEMORY;
    must(warp_allocator_release(own)); /* the block may outlive the handle */
    must(warp_free(block));

    must(warp_allocator_set_caching_for_all(0));
    must(warp_shutdown());
    return info.growths == 2 && freed == 64 * MIB && refused ? 0 : 1;
}
