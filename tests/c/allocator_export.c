/*
 * allocator_export.c: allocators that tell themselves how other processes open their blocks, whatever the memory is.
 *
 * needs: simulator
 */
#define _GNU_SOURCE
#include "allocators.h"

static struct {
    uint64_t calls, size;
    void *ptr;
    uint32_t flags;
    int32_t ordinal;
    warp_status answer;
} asked;

static warp_status export_ipc(void *user, void *ptr, const warp_alloc_request *request, warp_ipc_memory *out)
{
    size_t i;
    (void)user;
    ++asked.calls;
    asked.ptr = ptr;
    asked.size = request->size;
    asked.flags = request->flags;
    asked.ordinal = out->ordinal;
    CHECK_EQ_U64(out->struct_size, sizeof *out);
    CHECK_EQ_U64(out->offset | out->size | out->handle[0] | out->handle[63], 0);
    for (i = 0; i < sizeof out->handle; ++i)
        out->handle[i] = (unsigned char)(i + 1);
    out->offset = 100;
    out->size = 1 << 21;
    return asked.answer;
}

static warp_allocator *exporting(struct recorder *r, warp_memory_kind below)
{
    warp_allocator_vtable vtable;
    warp_allocator *first = created(r, below);
    memset(&asked, 0, sizeof asked);
    vtable = vtable_of(r);
    vtable.export_ipc = export_ipc;
    vtable.destroy = NULL; /* the first one's */
    r->handle = NULL;
    CHECK_STATUS(warp_allocator_create(&vtable, r, &r->handle), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(first), WARP_SUCCESS);
    return r->handle;
}

static void check_exported(warp_device *device, const void *ptr, uint64_t offset)
{
    warp_ipc_memory out = {.struct_size = sizeof out};
    CHECK_STATUS(warp_ipc_export(ptr, &out), WARP_SUCCESS);
    CHECK_EQ_U64(out.offset, offset);
    CHECK_EQ_U64(out.size, 1 << 21);
    CHECK_EQ_I64(out.ordinal, info_of(device).ordinal);
    CHECK_EQ_U64(out.handle[0], 1);
    CHECK_EQ_U64(out.handle[63], 64);
}

TEST(an_allocator_tells_how_its_blocks_are_opened)
{
    static struct recorder r;
    char *ptr;
    REQUIRE(start());
    /* Of a pool, which by what the driver says has no handle. */
    exporting(&r, WARP_MEMORY_CUDA_MEMPOOL);
    ptr = block_by(gpu(1), r.handle, 5000, NULL);
    check_exported(gpu(1), ptr, 100);
    check_exported(gpu(1), ptr + 77, 177);
    CHECK_EQ_U64(asked.calls, 2);
    CHECK_EQ_PTR(asked.ptr, ptr);
    CHECK_EQ_U64(asked.size, 5000);
    CHECK_EQ_U64(asked.flags, 0);
    CHECK_EQ_I64(asked.ordinal, 1);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    let_go(&r);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

TEST(adaptors_pass_the_question_on)
{
    static struct recorder r;
    warp_allocator *limit = NULL, *aligned = NULL, *fallback = NULL;
    warp_ipc_memory out = {.struct_size = sizeof out};
    uintptr_t below;
    char *ptr;
    REQUIRE(start());
    exporting(&r, WARP_MEMORY_CUDA_MEMPOOL);
    CHECK_STATUS(warp_allocator_create_limit(r.handle, 1 << 20, &limit), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_aligned(limit, 1 << 12, &aligned), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_create_fallback(aligned, builtin(WARP_MEMORY_CUDA_MEMPOOL), &fallback), WARP_SUCCESS);
    ptr = block_by(gpu(0), fallback, 300, NULL);
    CHECK_EQ_U64((uintptr_t)ptr % 4096, 0);
    CHECK_STATUS(warp_ipc_export(ptr, &out), WARP_SUCCESS);
    below = (uintptr_t)asked.ptr;
    CHECK(below <= (uintptr_t)ptr);
    check_exported(gpu(0), ptr, 100 + ((uintptr_t)ptr - below));
    check_exported(gpu(0), ptr + 9, 100 + ((uintptr_t)ptr - below) + 9);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(fallback), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(aligned), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_release(limit), WARP_SUCCESS);
    let_go(&r);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

TEST(one_that_fails_or_is_gone)
{
    static struct recorder r;
    warp_ipc_memory out = {.struct_size = sizeof out};
    void *ptr;
    REQUIRE(start());
    exporting(&r, WARP_MEMORY_CUDA_MEMPOOL);
    ptr = block_by(gpu(0), r.handle, 300, NULL);
    asked.answer = WARP_ERROR_NOT_SUPPORTED;
    memset(&out, 0x55, sizeof out);
    out.struct_size = sizeof out;
    CHECK_STATUS(warp_ipc_export(ptr, &out), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_STR_CONTAINS(warp_error_get_message(), "export_ipc");
    CHECK_STR_CONTAINS(warp_error_get_message(), "WARP_ERROR_NOT_SUPPORTED");
    CHECK_EQ_U64(out.handle[0] | out.offset | out.size, 0);
    CHECK_EQ_U64(asked.calls, 1);
    /* Nobody is there to be asked any more: what the driver says of pool memory holds. */
    let_go(&r);
    CHECK_STATUS(warp_ipc_export(ptr, &out), WARP_ERROR_NOT_SUPPORTED);
    CHECK_EQ_U64(asked.calls, 1);
    CHECK_STATUS(warp_free(ptr), WARP_SUCCESS);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
