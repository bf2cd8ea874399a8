/*
 * An allocator with an arena: one chunk from the allocator below, cut off from front to back, and whole again when every block
 * is back. Named for single blocks, of the CPU and of a GPU.
 */
/* topology: h200x2 */
/* topology: vgpu */
/* topology: - */
#include <warpmem.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void must(warp_status status)
{
    if (status != WARP_SUCCESS) {
        fprintf(stderr, "%s: %s\n", warp_status_get_name(status), warp_error_get_message());
        exit(1);
    }
}

struct arena {
    pthread_mutex_t lock;
    warp_allocator *below;
    char *chunk;
    uint64_t size, used, live;
};

static int chunks; /* that are out */

static warp_status allocate(void *user, const warp_alloc_request *request, void **out)
{
    struct arena *arena = user;
    warp_status status = WARP_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&arena->lock);
    /* A power of two, and never less than the device needs. What must be aligned is the address, not the offset. */
    const uint64_t first = (uint64_t)(uintptr_t)arena->chunk;
    const uint64_t start = ((first + arena->used + request->alignment - 1) & ~(request->alignment - 1)) - first;
    if (start <= arena->size && request->size <= arena->size - start) {
        *out = arena->chunk + start;
        arena->used = start + request->size;
        arena->live++;
        status = WARP_SUCCESS;
    }
    pthread_mutex_unlock(&arena->lock);
    return status;
}

/* Nothing uses the block any more, since the vtable does not say WARP_ALLOCATOR_STREAM_ORDERED: any stream may have it next. */
static warp_status deallocate(void *user, void *ptr, const warp_alloc_request *request)
{
    struct arena *arena = user;
    (void)ptr, (void)request;
    pthread_mutex_lock(&arena->lock);
    if (--arena->live == 0)
        arena->used = 0;
    pthread_mutex_unlock(&arena->lock);
    return WARP_SUCCESS;
}

static void destroy(void *user)
{
    struct arena *arena = user;
    must(warp_allocator_deallocate(arena->below, arena->chunk, NULL));
    pthread_mutex_destroy(&arena->lock);
    free(arena);
    chunks--;
}

static warp_allocator *make_arena(warp_device *device, warp_memory_kind kind, uint64_t size)
{
    struct arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL || pthread_mutex_init(&arena->lock, NULL) != 0)
        exit(1);
    warp_alloc_request whole = {.struct_size = sizeof whole, .size = size, .device = device, .tag = "arena"};
    void *chunk = NULL;
    must(warp_allocator_get_builtin(kind, &arena->below));
    must(warp_allocator_allocate(arena->below, &whole, &chunk)); /* no block of warp_alloc(): those are in use */
    arena->chunk = chunk;
    arena->size = size;
    chunks++;

    warp_allocator_vtable vtable = {
        .struct_size = sizeof vtable,
        .name = "arena",
        .kind = kind,
        .flags = kind == WARP_MEMORY_HOST ? WARP_ALLOCATOR_HOST_MEMORY : 0,
        .allocate = allocate,
        .deallocate = deallocate,
        .destroy = destroy,
    };
    warp_allocator *allocator = NULL;
    must(warp_allocator_create(&vtable, arena, &allocator));
    return allocator;
}

static int visit(warp_device *device, warp_memory_kind kind, const char *name)
{
    warp_allocator *arena = make_arena(device, kind, 1 << 20);
    warp_alloc_options from = {.struct_size = sizeof from, .allocator = arena, .alignment = 4096};
    void *blocks[3] = {NULL}, *again = NULL;
    for (int i = 0; i < 3; i++) {
        must(warp_alloc_with(device, 1000, &from, &blocks[i]));
        must(warp_memory_fill(blocks[i], 1000, "\7", 1, NULL));
        if ((uintptr_t)blocks[i] % 4096 != 0)
            return 1;
    }
    warp_pointer_info info = {.struct_size = sizeof info};
    must(warp_pointer_get_info((char *)blocks[1] + 77, &info));
    printf("%-12s a block of %" PRIu64 " bytes, %td bytes behind the first\n", name, info.size,
           (char *)info.base - (char *)blocks[0]);
    if (info.allocator != arena || info.kind != kind)
        return 1;
    if (warp_alloc_with(device, 1 << 20, &from, &again) != WARP_ERROR_OUT_OF_MEMORY)
        return 1;
    printf("%-12s %s\n", name, warp_error_get_message());

    for (int i = 0; i < 3; i++)
        must(warp_free(blocks[i]));
    must(warp_device_synchronize(device)); /* a call that gives back what the fills were not done with */
    must(warp_alloc_with(device, 1 << 18, &from, &again));
    if (again != blocks[0])
        return 1;

    /* Good until its last block is free; no new ones are to be had, the handle being stale. */
    must(warp_allocator_release(arena));
    if (chunks != 1 || warp_alloc_with(device, 1, &from, &blocks[0]) != WARP_ERROR_INVALID_HANDLE)
        return 1;
    must(warp_free(again));
    return chunks;
}

int main(void)
{
    must(warp_init(NULL, NULL));
    warp_device *cpu = NULL, *gpu = NULL;
    must(warp_device_get("cpu", &cpu));
    int failed = visit(cpu, WARP_MEMORY_HOST, "HOST");
    if (warp_device_get("cuda:0", &gpu) == WARP_SUCCESS)
        failed |= visit(gpu, WARP_MEMORY_CUDA_DEVICE, "CUDA_DEVICE");
    must(warp_shutdown());
    return failed;
}
