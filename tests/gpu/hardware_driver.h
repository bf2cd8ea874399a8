/*
 * hardware_driver.h: the driver as other code in the process uses it, and work that keeps a stream busy, for tests on real GPUs.
 * It stands beside the headers of ../c as well as under hardware.h. On the simulated driver a held stream stands for a busy one:
 * its work goes on when somebody waits for it.
 */
#ifndef WARPMEM_TESTS_HARDWARE_DRIVER_H
#define WARPMEM_TESTS_HARDWARE_DRIVER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../c/devices.h"
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
#define EVENT_RECORD(e, s) CU((void *, void *), "cuEventRecord")(e, s)
#define INSTANTIATE(exec, graph, flags) \
    CU((void **, void *, unsigned long long), "cuGraphInstantiateWithFlags")(exec, graph, flags)
#define EXEC_DESTROY(exec) CU((void *), "cuGraphExecDestroy")(exec)
#define LAUNCH_NATIVE(exec, s) CU((void *, void *), "cuGraphLaunch")(exec, s)
#define DEFAULT_POOL(out, n) CU((void **, int), "cuDeviceGetDefaultMemPool")(out, n)
#define POOL_USED(pool, out) CU((void *, int, void *), "cuMemPoolGetAttribute")(pool, 7, out)
enum { SUCCESS = 0, NOT_READY = 600, CAPTURE_ACTIVE = 1, AUTO_FREE_ON_LAUNCH = 1 };

/* Whether blocks have to be small, and runs short. */
CHECK_MAYBE_UNUSED static int is_small(void)
{
    return simulator_is_here();
}

CHECK_MAYBE_UNUSED static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

CHECK_MAYBE_UNUSED static void *native(warp_stream *stream)
{
    warp_stream_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_stream_get_info(stream, &info), WARP_SUCCESS);
    return info.native;
}

/* A context of the first GPU is current on the calling thread, as in a program that uses it. */
CHECK_MAYBE_UNUSED static void use_first_gpu(void)
{
    void *context = NULL;
    REQUIRE_STATUS(warp_device_get_native_context(device("cuda:0"), &context), WARP_SUCCESS);
    REQUIRE(SET_CURRENT(context) == SUCCESS);
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

#endif
