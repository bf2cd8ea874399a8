/*
 * Devices: what there is, what each can do, and which one NULL means.
 */
/* topology: h200x2 */
/* topology: mixed */
/* topology: - */
#include <warpmem.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(warp_status status)
{
    if (status != WARP_SUCCESS) {
        fprintf(stderr, "%s: %s\n", warp_status_get_name(status), warp_error_get_message());
        exit(1);
    }
}

/* NULL is the calling thread's default device. */
static void print_default(const char *when)
{
    warp_device_info info = {.struct_size = sizeof info};
    must(warp_device_get_info(NULL, &info));
    printf("%s, NULL is \"%s\"\n", when, info.alias);
}

int main(void)
{
    must(warp_init(NULL, NULL));

    size_t count = 0;
    must(warp_device_get_count(&count));
    for (size_t i = 0; i < count; i++) {
        warp_device *device = NULL;
        warp_device_info info = {.struct_size = sizeof info};
        uint64_t free_bytes = 0, total = 0;
        must(warp_device_get_at(i, &device));        /* the CPU is the first */
        must(warp_device_get_info(device, &info));   /* cheap: asks no driver */
        must(warp_device_query_memory(device, &free_bytes, &total));
        printf("%-7s %s: %" PRIu64 " of %" PRIu64 " MiB free%s%s\n", info.alias, info.name, free_bytes >> 20,
               total >> 20, info.is_mempool_supported ? ", has pools" : "",
               info.is_managed_memory_supported ? ", has managed memory" : "");
    }

    /* A name that nothing has is an error that says what there is. */
    warp_device *gpu = NULL, *cpu = NULL;
    warp_status status = warp_device_get("cuda:0", &gpu);
    if (status == WARP_ERROR_NO_SUCH_DEVICE)
        printf("no \"cuda:0\": %s\n", warp_error_get_message());
    else
        must(status);

    must(warp_device_get("cpu", &cpu));
    print_default("at first");
    must(warp_device_set_for_thread(cpu)); /* this thread only; warp_device_set_default() is for all */
    print_default("after choosing for the thread");
    must(warp_device_set_for_thread(NULL));
    print_default("after taking that back");

    must(warp_shutdown());
    return 0;
}
