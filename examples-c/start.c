/*
 * The shortest whole program: memory on the default device, filled, copied to the host, read and freed.
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

int main(void)
{
    const float half = 0.5f;
    float host[4] = {0};
    void *block = NULL;

    must(warp_init(NULL, NULL));                 /* also without a GPU */
    must(warp_alloc(NULL, sizeof host, &block)); /* NULL is the default device: the first GPU, else the CPU */
    must(warp_memory_fill(block, sizeof host, &half, sizeof half, NULL));
    must(warp_memory_copy(host, block, sizeof host, NULL)); /* by addresses alone */
    printf("%g %g %g %g\n", host[0], host[1], host[2], host[3]);
    must(warp_free(block));
    must(warp_shutdown());
    return host[3] == half ? 0 : 1;
}
