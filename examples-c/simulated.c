/*
 * Tests on simulated GPUs: a machine made to order, a GPU kept busy, a failure on demand, a search for leaks.
 */
/* needs: simulator */
#include <warpmem.h>
#include <warpsim.h>

#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* The functions of warpsim.h, from the file that the library loads as its driver. Opened once more and never closed. */
static void *find(const char *name)
{
    void *simulator = dlopen(getenv("WARPMEM_LIBCUDA"), RTLD_NOW);
    void *address = simulator ? dlsym(simulator, name) : NULL;
    assert(address);
    return address;
}
#define SIM(name) ((__typeof__(&name))find(#name))

int main(void)
{
    /* Before warp_init(): four GPUs, of which the second has no pools. */
    assert(SIM(warpsim_set_topology)("h200x2,gpus=4,gpu1.pools=0", NULL, 0) == 0);
    assert(warp_init(NULL, NULL) == WARP_SUCCESS);
    warp_device *gpu = NULL, *poor = NULL;
    assert(warp_device_get("cuda:0", &gpu) == WARP_SUCCESS);
    assert(warp_device_get("cuda:1", &poor) == WARP_SUCCESS);
    void *block = NULL;
    warp_alloc_options pool = {.struct_size = sizeof pool, .kind = WARP_MEMORY_CUDA_MEMPOOL};
    assert(warp_alloc_with(poor, 4096, &pool, &block) == WARP_ERROR_NOT_SUPPORTED);

    /* A GPU that is busy: plain memory is not given back while a stream may be using it, and nobody waits. */
    warp_stream *stream = NULL;
    assert(warp_stream_create(gpu, NULL, &stream) == WARP_SUCCESS);
    warp_stream_info info = {.struct_size = sizeof info};
    assert(warp_stream_get_info(stream, &info) == WARP_SUCCESS);
    warp_alloc_options plain = {.struct_size = sizeof plain, .kind = WARP_MEMORY_CUDA_DEVICE, .stream = stream};
    assert(warp_alloc_with(gpu, 4096, &plain, &block) == WARP_SUCCESS);
    SIM(warpsim_hold)((uint64_t)(uintptr_t)info.native);
    assert(warp_memory_fill(block, 4096, "x", 1, stream) == WARP_SUCCESS);
    assert(warp_free(block) == WARP_SUCCESS);
    assert(SIM(warpsim_live_count)("default") == 1);
    SIM(warpsim_release)((uint64_t)(uintptr_t)info.native);
    assert(warp_stream_synchronize(stream) == WARP_SUCCESS); /* a call that looks at what is parked */
    assert(SIM(warpsim_live_count)("default") == 0);

    /* A driver that fails: the third copy from here on meets an unknown error (999). */
    char *host = malloc(4096);
    assert(host && warp_alloc(gpu, 4096, &block) == WARP_SUCCESS);
    SIM(warpsim_fail)("cuMemcpyAsync", 3, 999);
    assert(warp_memory_copy(block, host, 4096, NULL) == WARP_SUCCESS);
    assert(warp_memory_copy(block, host, 4096, NULL) == WARP_SUCCESS);
    assert(warp_memory_copy(block, host, 4096, NULL) == WARP_ERROR_DRIVER);
    printf("%s\n", warp_error_get_message());

    /* Nothing was leaked, nothing was used after its free. */
    assert(warp_free(block) == WARP_SUCCESS);
    free(host);
    assert(warp_stream_release(stream) == WARP_SUCCESS);
    assert(SIM(warpsim_live_count)("*") == 0);
    assert(SIM(warpsim_violation_count)() == 0);
    assert(warp_shutdown() == WARP_SUCCESS);
    return 0;
}
