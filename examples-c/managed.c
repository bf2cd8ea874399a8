/*
 * Managed memory: filled by the CPU, sent to the GPU before its work, and back after it, in the order of a stream; and a hint
 * for what is only read.
 */
/* topology: h200x2 */
/* topology: wsl */
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
    warp_device *gpu = NULL, *cpu = NULL;
    must(warp_device_get("cpu", &cpu));
    if (warp_device_get("cuda:0", &gpu) != WARP_SUCCESS) {
        printf("managed memory needs a GPU\n");
        must(warp_shutdown());
        return 0;
    }
    warp_device_info info = {.struct_size = sizeof info};
    must(warp_device_get_info(gpu, &info));
    if (!info.is_concurrent_managed_access_supported) {
        printf("%s moves managed memory by itself\n", info.name);
        must(warp_shutdown());
        return 0;
    }

    const uint64_t count = 1 << 18, size = count * sizeof(float);
    float *samples = NULL;
    warp_stream *stream = NULL;
    warp_alloc_options managed = {.struct_size = sizeof managed, .kind = WARP_MEMORY_CUDA_MANAGED};
    must(warp_stream_create(gpu, NULL, &stream));
    managed.stream = stream;
    must(warp_alloc_with(gpu, size, &managed, (void **)&samples));
    for (uint64_t i = 0; i < count; i++)
        samples[i] = 1;

    must(warp_managed_prefetch(samples, size, gpu, stream)); /* in one go, not page by page */
    const float half = 0.5f;
    must(warp_memory_fill(samples, size / 2, &half, sizeof half, stream)); /* or a kernel of yours */
    must(warp_managed_prefetch(samples, 0, cpu, stream)); /* 0: to the end of the block */
    must(warp_stream_synchronize(stream));
    printf("%g and %g\n", (double)samples[0], (double)samples[count - 1]);

    must(warp_managed_advise(samples, size / 2, WARP_MANAGED_ADVICE_SET_READ_MOSTLY, NULL));
    must(warp_managed_advise(samples, size, WARP_MANAGED_ADVICE_SET_PREFERRED_LOCATION, gpu));

    warp_managed_state state = {.struct_size = sizeof state};
    must(warp_managed_query_state(samples, size, &state)); /* what holds for all of it */
    printf("read by many: %d, best kept on %d, last sent to %d\n", state.is_read_mostly, state.preferred_ordinal,
           state.last_prefetch_ordinal); /* 0, 0, and -1 for the CPU */

    int good = samples[0] == half && samples[count - 1] == 1;
    must(warp_free(samples));
    must(warp_stream_release(stream));
    must(warp_shutdown());
    return good && state.preferred == gpu && state.last_prefetch == cpu ? 0 : 1;
}
