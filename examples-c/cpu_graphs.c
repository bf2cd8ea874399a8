/*
 * Graphs of the CPU: a smoothing step over host memory is captured once and run four times, a function of the program between its
 * copies. A GPU is not needed.
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

enum { COUNT = 8 };

struct step {
    float *field, *scratch;
};

static void smooth(void *user)
{
    const struct step *step = user;
    for (int i = 0; i < COUNT; i++)
        step->field[i] = (step->scratch[i] + step->scratch[(i + 1) % COUNT]) / 2;
}

int main(void)
{
    must(warp_init(NULL, NULL));
    warp_device *cpu = NULL;
    warp_stream *stream = NULL;
    must(warp_device_get("cpu", &cpu));
    must(warp_stream_get_current(cpu, &stream));

    const uint64_t size = COUNT * sizeof(float);
    struct step *step = malloc(sizeof *step);
    if (step == NULL)
        return 1;
    must(warp_alloc(cpu, size, (void **)&step->field));
    float *field = step->field;
    for (int i = 0; i < COUNT; i++)
        field[i] = i == 0 ? 8 : 0;

    warp_graph *graph = NULL;
    must(warp_capture_begin(stream, WARP_CAPTURE_THREAD_LOCAL));
    must(warp_alloc(cpu, size, (void **)&step->scratch)); /* at once, and kept by the graph */
    must(warp_memory_copy(step->scratch, step->field, size, NULL));
    must(warp_stream_host_call(stream, smooth, step, free)); /* `free` gives `step` back with the graph */
    must(warp_free(step->scratch)); /* not before the graph is gone */
    must(warp_capture_end(stream, &graph));

    for (int run = 1; run <= 4; run++) {
        must(warp_graph_launch(graph, stream)); /* has run when it returns, and allocated nothing */
        printf("run %d: %g %g\n", run, (double)field[0], (double)field[COUNT - 1]);
    }

    float last = field[0];
    must(warp_graph_release(graph));
    must(warp_free(field));
    must(warp_shutdown());
    return last == 0.5f ? 0 : 1;
}
