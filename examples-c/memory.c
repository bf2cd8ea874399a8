/*
 * Memory: every kind, what is known of a pointer, and a free that checks what it is told.
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

static void visit(warp_device *device, warp_memory_kind kind, const char *name)
{
    const uint64_t size = 10000;
    void *block = NULL;
    warp_alloc_options options = {
        .struct_size = sizeof options,
        .kind = kind,       /* 0: what the device has switched on */
        .alignment = 4096,  /* 0: 64 on the CPU, else 256 */
        .tag = "guide",     /* for statistics and messages */
    };
    warp_status status = warp_alloc_with(device, size, &options, &block);
    if (status == WARP_ERROR_NOT_SUPPORTED) { /* never replaced by another kind */
        printf("%-13s not here: %s\n", name, warp_error_get_message());
        return;
    }
    must(status);

    /* Any address inside the block will do. */
    warp_pointer_info info = {.struct_size = sizeof info};
    must(warp_pointer_get_info((char *)block + 77, &info));
    printf("%-13s %" PRIu64 " bytes, alignment %" PRIu64 ", GPU %" PRId32 ", tag \"%s\"\n", name, info.size,
           info.alignment, info.ordinal, info.tag);

    /* A wrong size is found before anything is freed; the block is still there, and is freed after that. */
    warp_free_options said = {.struct_size = sizeof said, .size = size + 1};
    if (warp_free_with(block, &said) != WARP_ERROR_SIZE_MISMATCH)
        exit(1);
    said.size = size;
    must(warp_free_with(block, &said));
}

int main(void)
{
    must(warp_init(NULL, NULL));

    warp_device *cpu = NULL, *gpu = NULL;
    must(warp_device_get("cpu", &cpu));
    visit(cpu, WARP_MEMORY_HOST, "HOST");
    visit(cpu, WARP_MEMORY_PINNED, "PINNED");
    if (warp_device_get("cuda:0", &gpu) == WARP_SUCCESS) {
        visit(gpu, WARP_MEMORY_CUDA_DEVICE, "CUDA_DEVICE");
        visit(gpu, WARP_MEMORY_CUDA_MEMPOOL, "CUDA_MEMPOOL");
        visit(gpu, WARP_MEMORY_CUDA_MANAGED, "CUDA_MANAGED");
    }

    must(warp_shutdown());
    return 0;
}
