/*
 * An allocator that counts: it stands on what served each GPU before, and is installed for all of them.
 */
/* topology: h200x2 */
/* topology: mixed */
/* topology: - */
#include <warpmem.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static void must(warp_status status)
{
    if (status != WARP_SUCCESS) {
        fprintf(stderr, "%s: %s\n", warp_status_get_name(status), warp_error_get_message());
        exit(1);
    }
}

struct counting {
    warp_allocator *below[64]; /* by the GPU's number; pools here, plain memory there */
    atomic_uint_fast64_t live_bytes, live_blocks, total_bytes, total_blocks, failures;
    atomic_int destroyed;
};

/* Called on any thread, on several at once. */
static warp_status allocate(void *user, const warp_alloc_request *request, void **out)
{
    struct counting *counting = user;
    /* The request goes down as it came: size, alignment, device, stream and tag. So does what became of it. */
    warp_status status = warp_allocator_allocate(counting->below[request->ordinal], request, out);
    if (status != WARP_SUCCESS) {
        atomic_fetch_add(&counting->failures, 1);
        return status;
    }
    atomic_fetch_add(&counting->live_bytes, request->size);
    atomic_fetch_add(&counting->live_blocks, 1);
    atomic_fetch_add(&counting->total_bytes, request->size);
    atomic_fetch_add(&counting->total_blocks, 1);
    return WARP_SUCCESS;
}

static warp_status deallocate(void *user, void *ptr, const warp_alloc_request *request)
{
    struct counting *counting = user;
    atomic_fetch_sub(&counting->live_bytes, request->size);
    atomic_fetch_sub(&counting->live_blocks, 1);
    return warp_allocator_deallocate(counting->below[request->ordinal], ptr, request);
}

static warp_status get_statistics(void *user, warp_allocator_statistics *out)
{
    struct counting *counting = user;
    out->live_bytes = atomic_load(&counting->live_bytes);
    out->live_blocks = atomic_load(&counting->live_blocks);
    out->total_bytes = atomic_load(&counting->total_bytes);
    out->total_blocks = atomic_load(&counting->total_blocks);
    out->failures = atomic_load(&counting->failures);
    return WARP_SUCCESS;
}

static void destroy(void *user)
{
    struct counting *counting = user; /* a real one frees itself here */
    atomic_fetch_add(&counting->destroyed, 1);
}

/* Live blocks, and blocks so far. */
static void show(const char *when, warp_allocator *allocator, uint64_t live, uint64_t total)
{
    warp_allocator_statistics counts = {.struct_size = sizeof counts};
    must(warp_allocator_get_statistics(allocator, &counts));
    printf("%-16s %" PRIu64 " of %" PRIu64 " blocks live, %" PRIu64 " of %" PRIu64 " bytes\n", when, counts.live_blocks,
           counts.total_blocks, counts.live_bytes, counts.total_bytes);
    if (counts.live_blocks != live || counts.total_blocks != total)
        exit(1);
}

int main(void)
{
    must(warp_init(NULL, NULL));

    static struct counting counting;
    warp_allocator_vtable vtable = {
        .struct_size = sizeof vtable,
        .name = "counting",
        .flags = WARP_ALLOCATOR_STREAM_ORDERED, /* since what it stands on is */
        .allocate = allocate,
        .deallocate = deallocate,
        .destroy = destroy,
        .get_statistics = get_statistics,
    };
    warp_allocator *allocator = NULL;
    must(warp_allocator_create(&vtable, &counting, &allocator));

    size_t devices = 0, gpus = 0;
    must(warp_device_get_count(&devices));
    for (size_t i = 0; i < devices; i++) {
        warp_device *device = NULL;
        warp_device_info info = {.struct_size = sizeof info};
        must(warp_device_get_at(i, &device));
        must(warp_device_get_info(device, &info));
        if (info.ordinal < 0)
            continue;
        must(warp_allocator_get_for_device(device, &counting.below[info.ordinal]));
        gpus++;
    }
    warp_status status = warp_allocator_set_for_all(allocator);
    if (gpus == 0) {
        printf("%s\n", warp_error_get_message());
        if (status != WARP_ERROR_NO_SUCH_DEVICE)
            return 1;
        must(warp_allocator_release(allocator));
        must(warp_shutdown());
        return counting.destroyed == 1 ? 0 : 1;
    }
    must(status);

    /* Raw memory and arrays of every GPU come from it now. What names a kind does not. */
    void *block = NULL, *plain = NULL;
    warp_array *array = NULL;
    const int64_t shape[2] = {100, 100};
    warp_alloc_options named = {.struct_size = sizeof named, .kind = WARP_MEMORY_CUDA_DEVICE};
    must(warp_alloc(NULL, 1000, &block));
    must(warp_array_zeros(NULL, warp_dtype_make(WARP_DTYPE_FLOAT, 32), 2, shape, NULL, &array));
    must(warp_alloc_with(NULL, 1000, &named, &plain));
    show("installed:", allocator, 2, 2);
    must(warp_array_release(array));
    show("array released:", allocator, 1, 2);

    /* It is told of failures as well, and passes them on. */
    status = warp_alloc(NULL, UINT64_C(1) << 60, &(void *){NULL});
    printf("%s\n", warp_error_get_message());
    if (status != WARP_ERROR_OUT_OF_MEMORY || counting.failures == 0)
        return 1;

    /* Taken away again. Its block goes back to it all the same, and then it is destroyed. */
    must(warp_allocator_set_for_all(NULL));
    must(warp_allocator_release(allocator));
    if (counting.destroyed != 0)
        return 1;
    must(warp_free(block));
    must(warp_free(plain));
    printf("destroyed with its last block: %" PRIuFAST64 " live\n", counting.live_blocks);
    must(warp_shutdown());
    return counting.destroyed == 1 && counting.live_blocks == 0 && counting.live_bytes == 0 ? 0 : 1;
}
