/*
 * Graphs: a step is captured once and run three times, on input that changes. One of its blocks is the graph's own, the
 * other outlives the capture.
 */
/* topology: h200x2 */
/* topology: vgpu */
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

/* Names no stream, and knows nothing of graphs. */
static void *step(warp_device *gpu, const float *input, uint64_t size)
{
    void *scratch = NULL, *result = NULL;
    must(warp_alloc(gpu, size, &scratch));
    must(warp_memory_copy(scratch, input, size, NULL));
    must(warp_alloc(gpu, size, &result));
    must(warp_memory_copy(result, scratch, size, NULL));
    must(warp_free(scratch));
    return result;
}

int main(void)
{
    must(warp_init(NULL, NULL));
    warp_device *cpu = NULL, *gpu = NULL;
    warp_device_info about = {.struct_size = sizeof about};
    must(warp_device_get("cpu", &cpu));
    if (warp_device_get("cuda:0", &gpu) == WARP_SUCCESS)
        must(warp_device_get_info(gpu, &about));
    if (!about.is_mempool_supported) {
        printf("graphs that allocate need a GPU with memory pools\n");
        must(warp_shutdown());
        return 0;
    }

    const uint64_t size = 1 << 20;
    float *input = NULL, first = 0;
    warp_alloc_options pinned = {.struct_size = sizeof pinned, .kind = WARP_MEMORY_PINNED};
    must(warp_alloc_with(cpu, size, &pinned, (void **)&input)); /* before the capture, which cannot have it */
    warp_stream *stream = NULL;
    must(warp_stream_create(gpu, NULL, &stream));

    warp_graph *graph = NULL;
    warp_scope *scope = NULL;
    must(warp_scope_begin_stream(gpu, stream, &scope)); /* what names no stream is captured too */
    must(warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL));
    float *result = step(gpu, input, size); /* recorded; nothing runs */
    if (warp_stream_synchronize(stream) != WARP_ERROR_ILLEGAL_IN_CAPTURE) /* refused, and the capture goes on */
        exit(1);
    must(warp_capture_end(stream, &graph));
    must(warp_scope_end(scope));

    for (int run = 1; run <= 3; run++) {
        input[0] = (float)run;
        must(warp_graph_launch(graph, stream));
        must(warp_memory_copy(&first, result, sizeof first, stream));
        must(warp_stream_synchronize(stream));
        printf("run %d: %g\n", run, (double)first);
    }

    warp_graph_memory_info held = {.struct_size = sizeof held};
    must(warp_graph_query_memory(gpu, &held));
    printf("graphs use %" PRIu64 " bytes and reserve %" PRIu64 "\n", held.used, held.reserved);
    must(warp_free(input)); /* the graph reads it, and keeps it */
    must(warp_graph_release(graph));
    must(warp_memory_copy(&first, result, sizeof first, stream)); /* still there */
    must(warp_stream_synchronize(stream));
    must(warp_free(result));
    must(warp_graph_trim_memory(gpu));
    must(warp_stream_release(stream));
    must(warp_shutdown());
    return first == 3 ? 0 : 1;
}
