/*
 * Events: streams in order without the host, what is done so far, and how long it took. With a scope around the part that
 * has a stream of its own.
 */
/* topology: h200x2 */
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

/* Work that names no stream: it goes to the current one. */
static void prepare(void *block, uint64_t size)
{
    must(warp_memory_fill(block, size, "\1", 1, NULL));
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
    warp_event *begun = NULL, *loaded = NULL;
    warp_event_options timing = {.struct_size = sizeof timing, .flags = WARP_EVENT_TIMING};
    must(warp_event_create(gpu, &timing, &begun));
    must(warp_event_create(gpu, &timing, &loaded));

    void *block = NULL, *copy = NULL;
    const uint64_t size = 1 << 20;
    warp_alloc_options on_load = {.struct_size = sizeof on_load, .stream = load};
    must(warp_alloc_with(gpu, size, &on_load, &block));
    must(warp_alloc(gpu, size, &copy));

    warp_scope *scope = NULL;
    must(warp_scope_begin_stream(gpu, load, &scope)); /* for this thread, until the scope ends */
    must(warp_event_record(begun, NULL));
    prepare(block, size);
    must(warp_event_record(loaded, NULL));
    must(warp_scope_end(scope));

    must(warp_stream_wait_event(compute, loaded)); /* `compute` goes on when `load` has come so far */
    must(warp_memory_copy(copy, block, size, compute));
    must(warp_stream_wait_stream(load, compute)); /* and what comes on `load` now, when `compute` is done */
    must(warp_memory_fill(block, size, "\2", 1, load));

    uint8_t done = 0;
    float milliseconds = 0;
    must(warp_event_query_done(loaded, &done)); /* does not wait */
    must(warp_event_synchronize(loaded));       /* does */
    must(warp_event_measure_elapsed(begun, loaded, &milliseconds));
    printf("loaded in %.3f ms%s\n", (double)milliseconds, done ? ", before anybody asked" : "");

    unsigned char first = 0;
    must(warp_memory_copy(&first, copy, 1, compute));
    must(warp_stream_synchronize(compute));
    must(warp_free(block));
    must(warp_free(copy));
    must(warp_event_release(begun));
    must(warp_event_release(loaded));
    must(warp_stream_release(load));
    must(warp_stream_release(compute));
    must(warp_shutdown());
    return first == 1 ? 0 : 1;
}
