/*
 * Access between GPUs: what one may touch of another's memory, for plain memory and for pools, and scopes around it.
 */
/* topology: h200x2 */
/* topology: partial */
/* topology: vgpu */
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
    warp_device *owner = NULL, *peer = NULL;
    if (warp_device_get("cuda:0", &owner) != WARP_SUCCESS || warp_device_get("cuda:1", &peer) != WARP_SUCCESS) {
        printf("access needs two GPUs\n");
        must(warp_shutdown());
        return 0;
    }

    /* (target, peer): may kernels on `peer` touch memory of `owner`? */
    uint8_t plain = 0, pools = 0;
    must(warp_peer_access_is_supported(owner, peer, &plain));
    must(warp_mempool_access_is_supported(owner, peer, &pools));
    printf("plain memory %s, pools %s\n", plain ? "can be opened" : "cannot", pools ? "can be opened" : "cannot");
    if (plain)
        must(warp_peer_access_set_enabled(owner, peer, 1));  /* WARP_MEMORY_CUDA_DEVICE */
    if (pools)
        must(warp_mempool_access_set_enabled(owner, peer, 1)); /* WARP_MEMORY_CUDA_MEMPOOL */

    /* What is so now, whoever made it so. */
    must(warp_peer_access_query_enabled(owner, peer, &plain));
    must(warp_mempool_access_query_enabled(owner, peer, &pools));
    printf("plain memory %s, pools %s\n", plain ? "is open" : "is not", pools ? "are open" : "are not");

    /* All peers that there can be, or none of them. */
    warp_status status = warp_peer_access_set_enabled_for(owner, NULL, 0, 1);
    if (status == WARP_ERROR_PEER_LIMIT)
        printf("%s\n", warp_error_get_message());
    else
        must(status);

    /* For a while, in the whole process; then what was before is so again. */
    warp_scope *scope = NULL;
    must(warp_scope_begin_peer_access(owner, peer, 0, &scope));
    status = warp_peer_access_set_enabled(owner, peer, 1);
    if (status == WARP_ERROR_BUSY)
        printf("%s\n", warp_error_get_message());
    must(warp_scope_end(scope));

    must(warp_peer_access_set_enabled_for(owner, NULL, 0, 0));
    must(warp_mempool_access_set_enabled_for(owner, NULL, 0, 0));
    must(warp_shutdown());
    return 0;
}
