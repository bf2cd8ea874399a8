/*
 * Streams: a block belongs to one, other streams may use it, and its free comes after all of them. With a stream that
 * other code made, too.
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

/* Stands for code that launches kernels: it wants a CUstream and a device pointer. */
static void launch(void *native_stream, void *block)
{
    (void)native_stream;
    (void)block;
}

int main(void)
{
    must(warp_init(NULL, NULL));
    warp_device *gpu = NULL;
    if (warp_device_get("cuda:0", &gpu) != WARP_SUCCESS) {
        printf("streams need a GPU\n");
        must(warp_shutdown());
        return 0;
    }

    warp_stream *load = NULL, *compute = NULL;
    warp_stream_options apart = {.struct_size = sizeof apart, .flags = WARP_STREAM_NON_BLOCKING};
    must(warp_stream_create(gpu, &apart, &load));
    must(warp_stream_create(gpu, &apart, &compute));

    /* The block belongs to `load`: work there may use it at once. */
    void *block = NULL;
    const uint64_t size = 1 << 20;
    warp_alloc_options options = {.struct_size = sizeof options, .stream = load};
    must(warp_alloc_with(gpu, size, &options, &block));
    must(warp_memory_fill(block, size, "\1", 1, load));

    /* Work elsewhere has to be ordered after that by you; here the host waits. */
    must(warp_stream_synchronize(load));
    warp_stream_info info = {.struct_size = sizeof info};
    must(warp_stream_get_info(compute, &info));
    launch(info.native, block);

    /* The library sees the fills and copies that go through it, and not your kernels: name their stream. */
    must(warp_pointer_record_stream(block, compute));
    must(warp_free(block)); /* returns at once; the memory is used again after `load` and `compute` */

    /* A stream of other code (of cudaStreamCreate, say; NULL is the legacy default stream) gets a handle, and is this
     * thread's current one for as long as that code wants its work there. */
    warp_stream *theirs = NULL;
    must(warp_stream_wrap(gpu, NULL, &theirs));
    must(warp_stream_set_current(gpu, theirs));
    must(warp_alloc(gpu, size, &block)); /* belongs to `theirs` */
    must(warp_free(block));
    must(warp_stream_release(theirs)); /* before its owner destroys it; the device's own stream is current again */

    uint8_t idle = 0;
    must(warp_device_synchronize(gpu));
    must(warp_stream_query_idle(load, &idle));
    printf("stream %" PRIu64 " is %s\n", info.id, idle ? "idle" : "busy");
    must(warp_stream_release(load));
    must(warp_stream_release(compute));
    must(warp_shutdown());
    return idle ? 0 : 1;
}
