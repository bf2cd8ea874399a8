/*
 * Access: may kernels of this GPU touch this memory? With the reason, and with a check before a launch that says what would
 * make it legal.
 */
/* topology: h200x2 */
/* topology: mixed */
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

/* Stands for code that launches kernels. */
static warp_status launch(warp_device *gpu, warp_array *x, void *scratch)
{
    const warp_launch_argument arguments[] = {
        {.name = "x", .value = x, .kind = WARP_LAUNCH_ARRAY},
        {.name = "scratch", .value = scratch, .kind = WARP_LAUNCH_POINTER},
    };
    warp_status status =
        warp_launch_check(gpu, "saxpy", arguments, 2, sizeof *arguments, WARP_LAUNCH_PROCESS_MODE, NULL);
    if (status != WARP_SUCCESS)
        return status; /* nothing was launched */
    printf("launched\n");
    return WARP_SUCCESS;
}

int main(void)
{
    must(warp_init(NULL, NULL));
    warp_device *first = NULL, *second = NULL;
    if (warp_device_get("cuda:0", &first) != WARP_SUCCESS || warp_device_get("cuda:1", &second) != WARP_SUCCESS) {
        printf("access between GPUs needs two of them\n");
        must(warp_shutdown());
        return 0;
    }
    uint8_t can = 0;
    must(warp_peer_access_is_supported(first, second, &can));
    if (!can) {
        printf("these two cannot be peers\n");
        must(warp_shutdown());
        return 0;
    }

    const int64_t length = 1000;
    warp_array *array = NULL;
    must(warp_array_zeros(first, warp_dtype_make(WARP_DTYPE_FLOAT, 32), 1, &length, NULL, &array));

    warp_access_info found = {.struct_size = sizeof found};
    must(warp_access_get_status(second, array, &found));
    printf("%s\n", warp_access_reason_get_name(found.reason)); /* WARP_ACCESS_REASON_NO_POOL_ACCESS */

    must(warp_launch_set_mode(WARP_LAUNCH_CHECKED));
    if (launch(second, array, NULL) != WARP_ERROR_ACCESS_DENIED)
        exit(1);
    printf("%s\n", warp_error_get_message());

    /* What the message says. */
    must(warp_mempool_access_set_enabled(first, second, 1));
    must(launch(second, array, NULL));

    must(warp_access_can(second, array, &can));
    if (!can)
        exit(1);

    /* Strict: every argument is to be on the launch device, whatever that may touch. */
    must(warp_launch_set_mode(WARP_LAUNCH_STRICT));
    if (launch(second, array, NULL) != WARP_ERROR_ACCESS_DENIED)
        exit(1);
    must(launch(first, array, NULL));

    must(warp_array_release(array));
    must(warp_shutdown());
    return 0;
}
