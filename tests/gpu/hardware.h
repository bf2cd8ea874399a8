/*
 * hardware.h: what the tests for real GPUs share: the driver as other code uses it, and work that keeps a stream busy. They run
 * on the simulated driver too, where a held stream stands for a busy one: its work goes on when somebody waits for it.
 */
#ifndef WARPMEM_TESTS_HARDWARE_H
#define WARPMEM_TESTS_HARDWARE_H

#define _GNU_SOURCE
#include "../c/devices.h"
#include "../c/process.h"
#include "../c/simulator.h"

#include <pthread.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* The driver as other code in the process uses it, found by name. */
typedef uint64_t address;
CHECK_MAYBE_UNUSED static void *entry(const char *name)
{
    static void *file;
    void *found;
    const char *path = getenv("WARPMEM_LIBCUDA");
    if (file == NULL)
        file = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW);
    found = file == NULL ? NULL : dlsym(file, name);
    if (found == NULL) {
        printf("no driver with %s\n", name);
        exit(3);
    }
    return found;
}
#define CU(type, name) ((int (*) type)entry(name))
#define GET_CURRENT(c) CU((void **), "cuCtxGetCurrent")(c)
#define SET_CURRENT(c) CU((void *), "cuCtxSetCurrent")(c)
#define COPY(d, s, n, stream) CU((address, address, size_t, void *), "cuMemcpyDtoDAsync_v2")(d, s, n, stream)
#define STREAM_QUERY(s) CU((void *), "cuStreamQuery")(s)
#define STREAM_SYNC(s) CU((void *), "cuStreamSynchronize")(s)
#define IS_CAPTURING(s, out) CU((void *, int *), "cuStreamIsCapturing")(s, out)
#define BEGIN_CAPTURE(s, mode) CU((void *, int), "cuStreamBeginCapture_v2")(s, mode)
#define END_CAPTURE(s, graph) CU((void *, void **), "cuStreamEndCapture")(s, graph)
#define GRAPH_DESTROY(graph) CU((void *), "cuGraphDestroy")(graph)
#define MEMORY_TYPE(out, p) CU((void *, int, address), "cuPointerGetAttribute")(out, 2, p)
#define POOL_OF(out, p) CU((void *, int, address), "cuPointerGetAttribute")(out, 17, p)
enum { SUCCESS = 0, NOT_READY = 600, CAPTURE_ACTIVE = 1 };

CHECK_MAYBE_UNUSED static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

CHECK_MAYBE_UNUSED static size_t gpus(void)
{
    size_t count = 0;
    CHECK_STATUS(warp_device_get_cuda_count(&count), WARP_SUCCESS);
    return count;
}

CHECK_MAYBE_UNUSED static void *native(warp_stream *stream)
{
    warp_stream_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_stream_get_info(stream, &info), WARP_SUCCESS);
    return info.native;
}

CHECK_MAYBE_UNUSED static warp_stream *new_stream(warp_device *of, uint32_t flags)
{
    warp_stream_options options = {.struct_size = sizeof options, .flags = flags};
    warp_stream *stream = NULL;
    CHECK_STATUS(warp_stream_create(of, &options, &stream), WARP_SUCCESS);
    return stream;
}

CHECK_MAYBE_UNUSED static void *block(warp_device *of, uint64_t size, warp_memory_kind kind, warp_stream *stream)
{
    warp_alloc_options options = {.struct_size = sizeof options, .kind = kind, .stream = stream};
    void *ptr = NULL;
    CHECK_STATUS(warp_alloc_with(of, size, &options, &ptr), WARP_SUCCESS);
    return ptr;
}

CHECK_MAYBE_UNUSED static uint64_t live(warp_device *of)
{
    warp_statistics counts = {.struct_size = sizeof counts};
    CHECK_STATUS(warp_statistics_get(of, WARP_MEMORY_UNKNOWN, &counts), WARP_SUCCESS);
    return counts.live_blocks;
}

/* Work of some tens of milliseconds on a stream of the first GPU: copies between two large blocks of the test's own. The
 * context of that GPU is current. */
static address busy_from, busy_to;
CHECK_MAYBE_UNUSED static void keep_native_busy(void *stream)
{
    int i;
    if (simulator_is_here()) {
        CHECK_EQ_U64(SIMULATOR(warpsim_hold)((uint64_t)(uintptr_t)stream), SUCCESS);
        return;
    }
    if (busy_from == 0) {
        REQUIRE(CU((address *, size_t), "cuMemAlloc_v2")(&busy_from, 4 * GIB) == SUCCESS);
        REQUIRE(CU((address *, size_t), "cuMemAlloc_v2")(&busy_to, 4 * GIB) == SUCCESS);
    }
    for (i = 0; i < 30; i++)
        REQUIRE(COPY(busy_to, busy_from, 4 * GIB, stream) == SUCCESS);
}

CHECK_MAYBE_UNUSED static void keep_busy(warp_stream *stream)
{
    keep_native_busy(native(stream));
    CHECK_EQ_I64(STREAM_QUERY(native(stream)), NOT_READY);
}

CHECK_MAYBE_UNUSED static int all_are(const void *ptr, uint64_t size, unsigned char value)
{
    const unsigned char *bytes = ptr;
    return size == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* The bytes of a block, read back through pageable memory. */
CHECK_MAYBE_UNUSED static int device_holds(const void *ptr, uint64_t size, unsigned char value, warp_stream *stream)
{
    unsigned char *host = malloc(size);
    int good;
    CHECK_STATUS(warp_memory_copy(host, ptr, size, stream), WARP_SUCCESS);
    CHECK_STATUS(warp_stream_synchronize(stream), WARP_SUCCESS);
    good = all_are(host, size, value);
    free(host);
    return good;
}

/* The library started, and a context of the first GPU current as in a program that uses it. */
CHECK_MAYBE_UNUSED static void start(void)
{
    void *context = NULL;
    REQUIRE_STATUS(warp_init(NULL, NULL), WARP_SUCCESS);
    REQUIRE(gpus() > 0);
    REQUIRE_STATUS(warp_device_get_native_context(device("cuda:0"), &context), WARP_SUCCESS);
    REQUIRE(SET_CURRENT(context) == SUCCESS);
}

#endif
