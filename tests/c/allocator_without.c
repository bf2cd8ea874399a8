/*
 * allocator_without.c: allocators where there is no GPU.
 *
 * topology: none
 * topology: -
 */
#define _GNU_SOURCE

#include "allocators.h"

TEST(without_a_gpu)
{
    struct recorder r = {.name = "of GPUs"}, host = {.name = "of the host", .flags = WARP_ALLOCATOR_HOST_MEMORY};
    struct recorder above = {.name = "above", .kind = WARP_MEMORY_HOST, .flags = WARP_ALLOCATOR_HOST_MEMORY | WARP_ALLOCATOR_STREAM_ORDERED};
    warp_alloc_request request = {.struct_size = sizeof request, .size = 100};
    warp_free_options options = {.struct_size = sizeof options, .size = 8};
    warp_scope *scope = (warp_scope *)(uintptr_t)1;
    warp_allocator *told = NULL;
    warp_memory_kind kind;
    uint64_t blocks = 0, bytes = 0, freed = 0;
    void *ptr = NULL, *direct = NULL;
    int64_t shape = 12;
    warp_array *array = NULL;
    warp_array_options of_array = {.struct_size = sizeof of_array};
    REQUIRE(start());
    for (kind = WARP_MEMORY_HOST; kind <= WARP_MEMORY_CUDA_MANAGED; ++kind)
        CHECK_STR_CONTAINS(kind_names[kind], allocator_info(builtin(kind)).name);
    created(&r, WARP_MEMORY_CUDA_DEVICE);
    created(&host, WARP_MEMORY_HOST);
    created(&above, WARP_MEMORY_HOST);
    above.below = host.handle;
    /* NULL is always fine. */
    CHECK_STATUS(warp_allocator_set_for_all(NULL), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_set_for_all(r.handle), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_STR_CONTAINS(warp_error_get_message(), "NULL is always fine");
    CHECK_EQ_U64(allocator_info(r.handle).references, 1);
    CHECK_STATUS(warp_allocator_set_for_all(host.handle), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_set_for_device(NULL, r.handle), WARP_ERROR_INVALID_ARGUMENT); /* the default is the CPU */
    CHECK_STATUS(warp_scope_begin_allocator(NULL, r.handle, &scope), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_EQ_PTR(scope, NULL);
    CHECK_STATUS(try_by(cpu(), r.handle, 100, NULL, &ptr), WARP_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(warp_allocator_allocate(r.handle, &request, &direct), WARP_ERROR_NO_SUCH_DEVICE);
    CHECK_STATUS(warp_allocator_get_for_device(NULL, &told), WARP_SUCCESS);
    CHECK_EQ_PTR(told, builtin(WARP_MEMORY_HOST));
    CHECK_EQ_U64(allocator_info(r.handle).references, 1);
    /* The CPU is served as anywhere. */
    ptr = block_by(cpu(), above.handle, 8, NULL);
    CHECK_EQ_U64(host.allocates, 1);
    CHECK_EQ_U64(live_of(above.handle), 1);
    CHECK_EQ_U64(live_of(host.handle), 1);
    memset(ptr, 3, 8);
    CHECK_EQ_I64(pointer_info(ptr).kind, WARP_MEMORY_HOST);
    CHECK_EQ_I64(pointer_info(ptr).rule, WARP_ACCESS_RULE_PAGEABLE);
    CHECK_EQ_PTR(pointer_info(ptr).allocator, above.handle);
    CHECK_EQ_U64(statistics_of(cpu(), WARP_MEMORY_HOST).live_blocks, 1);
    CHECK_STATUS(warp_free_with(ptr, &options), WARP_SUCCESS);
    CHECK_EQ_U64(host.deallocates, 1);
    CHECK_EQ_U64(host.deallocated.flags, WARP_ALLOC_REQUEST_IDLE);
    CHECK_STATUS(warp_free(ptr), WARP_ERROR_DOUBLE_FREE);
    /* Direct memory, where no device means the CPU. */
    CHECK_STATUS(warp_allocator_allocate(host.handle, &request, &direct), WARP_SUCCESS);
    CHECK_STATUS(warp_allocator_measure(host.handle, &blocks, &bytes), WARP_SUCCESS);
    CHECK_EQ_U64(bytes, 100);
    CHECK_EQ_U64((uintptr_t)direct % 64, 0);
    CHECK_STATUS(warp_free(direct), WARP_ERROR_UNKNOWN_POINTER);
    CHECK_STATUS(warp_allocator_deallocate(host.handle, direct, &request), WARP_SUCCESS);
    /* An array of it; zero bytes. */
    of_array.allocator = host.handle;
    CHECK_STATUS(warp_array_zeros(cpu(), warp_dtype_make(WARP_DTYPE_FLOAT, 32), 1, &shape, &of_array, &array), WARP_SUCCESS);
    CHECK_EQ_U64(host.allocates, 3);
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
    CHECK_STATUS(try_by(cpu(), host.handle, 0, NULL, &ptr), WARP_SUCCESS);
    CHECK_EQ_PTR(ptr, NULL);
    CHECK_EQ_U64(host.allocates, 3);
    CHECK_STATUS(warp_allocator_trim(host.handle, NULL, &freed), WARP_SUCCESS);
    CHECK_EQ_U64(freed, 12345);
    /* Failures. */
    host.out_of_memory = 1;
    ptr = block_by(cpu(), host.handle, 50, NULL);
    CHECK_EQ_U64(host.trims, 2);
    CHECK_EQ_U64(host.allocated.flags, WARP_ALLOC_REQUEST_RETRY);
    host.deallocate_status = 5;
    CHECK_STATUS(warp_free(ptr), WARP_ERROR_ALLOCATOR_FAILED);
    host.deallocate_status = 0;
    CHECK_STATUS(warp_allocator_stop(host.handle), WARP_SUCCESS);
    CHECK_STATUS(try_by(cpu(), above.handle, 50, NULL, &ptr), WARP_ERROR_ALLOCATOR_FAILED);
    CHECK_EQ_PTR(ptr, NULL);
    let_go(&r);
    let_go(&above);
    CHECK_OVER(&r);
    CHECK_OVER(&above);
    let_go(&host);
    CHECK_EQ_U64(host.destroys, 0);
    CHECK_NOTHING_LEFT();
    CHECK_STATUS(warp_shutdown(), WARP_SUCCESS);
}

CHECK_MAIN()
