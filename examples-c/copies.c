/*
 * Copies and fills: between any two places, told apart by their addresses.
 */
/* topology: h200x2 */
/* topology: partial */
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

int main(void)
{
    must(warp_init(NULL, NULL));
    warp_device *cpu = NULL, *first = NULL, *last = NULL;
    size_t count = 0;
    must(warp_device_get_count(&count));
    must(warp_device_get("cpu", &cpu));
    must(warp_device_get_at(count > 1 ? 1 : 0, &first));
    must(warp_device_get_at(count - 1, &last));

    /* Page-locked memory lets copies run beside the host's own work; without a GPU there is none. */
    const uint64_t size = 1200000;
    int *host = NULL;
    void *here = NULL, *there = NULL;
    warp_alloc_options pinned = {.struct_size = sizeof pinned};
    pinned.kind = count > 1 ? WARP_MEMORY_PINNED : WARP_MEMORY_HOST;
    must(warp_alloc_with(cpu, size, &pinned, (void **)&host));
    must(warp_alloc(first, size, &here));
    must(warp_alloc(last, size, &there));

    /* A pattern of any length that divides the size. */
    const int pattern[3] = {1, 2, 3};
    must(warp_memory_fill(here, size, pattern, sizeof pattern, NULL));

    /* From GPU to GPU, with or without access between them. The copy goes on the destination's stream: wait for what
     * made the source, which was put on another one. */
    must(warp_device_synchronize(first));
    must(warp_memory_copy(there, here, size, NULL));

    /* Which way it went can be asked, before or afterwards. */
    warp_copy_request request = {.struct_size = sizeof request, .dest = there, .src = here, .size = size};
    warp_copy_info way = {.struct_size = sizeof way};
    must(warp_copy_get_path(&request, NULL, &way));
    printf("path %d, %s\n", way.path, way.is_async ? "asynchronous" : "done when the call returns");

    /* To page-locked memory the copy is only put on the stream; to ordinary host memory it would have happened now. */
    must(warp_memory_copy(host, there, size, NULL));
    must(warp_device_synchronize(last));
    printf("%d %d %d %d\n", host[0], host[1], host[2], host[3]);

    int good = host[2] == 3 && host[3] == 1;
    must(warp_free(there));
    must(warp_free(here));
    must(warp_free(host));
    must(warp_shutdown());
    return good ? 0 : 1;
}
