/*
 * arena.h: an allocator of the caller's that carves its blocks from memory that it got from the driver.
 *
 *     struct arena arena = {.from = foreign_plain(context, MIB)};
 *     void *block = carved(&arena, WARP_MEMORY_CUDA_DEVICE, 4096);
 */
#ifndef WARPMEM_TESTS_ARENA_H
#define WARPMEM_TESTS_ARENA_H

#include "blocks.h"

struct arena {
    char *from;
    uint64_t used;
    int live;
};

UNUSED warp_status arena_allocate(void *user, const warp_alloc_request *request, void **out)
{
    struct arena *arena = (struct arena *)user;
    arena->used = (arena->used + request->alignment - 1) / request->alignment * request->alignment;
    *out = arena->from + arena->used;
    arena->used += request->size;
    ++arena->live;
    return WARP_SUCCESS;
}

UNUSED warp_status arena_deallocate(void *user, void *ptr, const warp_alloc_request *request)
{
    (void)ptr, (void)request;
    --((struct arena *)user)->live;
    return WARP_SUCCESS;
}

/* A block of the arena on the first GPU, whose allocator says that it makes the kind. */
UNUSED void *carved(struct arena *arena, warp_memory_kind kind, uint64_t size)
{
    warp_allocator_vtable vtable;
    warp_alloc_options options = options_of(WARP_MEMORY_UNKNOWN, NULL);
    void *ptr = NULL;
    memset(&vtable, 0, sizeof vtable);
    vtable.struct_size = sizeof vtable;
    vtable.name = "arena";
    vtable.kind = kind;
    vtable.allocate = arena_allocate;
    vtable.deallocate = arena_deallocate;
    CHECK_STATUS(warp_allocator_create(&vtable, arena, &options.allocator), WARP_SUCCESS);
    CHECK_STATUS(warp_alloc_with(gpu(0), size, &options, &ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(options.allocator), WARP_SUCCESS); /* lives on for its block */
    return ptr;
}

#endif
