/*
 * nothing.h: an allocator of other code that does nothing: all that is asked of it has one address, so that what a pair costs is the
 * library's. One block of it may live at a time.
 *
 *     warp_allocator *allocator = NULL;
 *     must(make_nothing(WARP_MEMORY_HOST, WARP_ALLOCATOR_HOST_MEMORY, (void *)0x200000000000, &allocator));
 */
#ifndef WARPMEM_TESTS_NOTHING_H
#define WARPMEM_TESTS_NOTHING_H

#include <warpmem.h>

static warp_status take_fixed(void *user, const warp_alloc_request *request, void **out)
{
    (void)request;
    *out = user;
    return WARP_SUCCESS;
}

static warp_status give_fixed(void *user, void *ptr, const warp_alloc_request *request)
{
    (void)user, (void)ptr, (void)request;
    return WARP_SUCCESS;
}

static warp_status make_nothing(warp_memory_kind kind, uint32_t flags, void *at, warp_allocator **out)
{
    warp_allocator_vtable vtable = {.struct_size = sizeof vtable, .kind = kind, .flags = flags};
    vtable.allocate = take_fixed;
    vtable.deallocate = give_fixed;
    return warp_allocator_create(&vtable, at, out);
}

#endif
