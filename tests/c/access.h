/*
 * access.h: what the tests of access and of launch checks share: memory of every origin, the answer for an address or an array
 * asked in every way that there is, and the table of answers written down once more, from what the devices say of themselves.
 */
#ifndef WARPMEM_TESTS_ACCESS_H
#define WARPMEM_TESTS_ACCESS_H

#define _GNU_SOURCE

#include "foreign.h"
#include "peers.h"

uint32_t cuDeviceCanAccessPeer(int32_t *out, int32_t device, int32_t peer);

/* ---- Asking ------------------------------------------------------------------------------------------------------ */

#define ACCESSIBLE WARP_ACCESS_ACCESSIBLE
#define UNVERIFIED WARP_ACCESS_UNVERIFIED
#define INACCESSIBLE WARP_ACCESS_INACCESSIBLE

/* Reasons that a test has met, as bits by their place in the list below. */
UNUSED const struct {
    warp_access_reason reason;
    const char *name;
    warp_access access;
} reasons[] = {
#define REASON(name, access) {WARP_ACCESS_REASON_##name, "WARP_ACCESS_REASON_" #name, access}
    REASON(EMPTY, ACCESSIBLE),
    REASON(SAME_DEVICE, ACCESSIBLE),
    REASON(SAME_GPU, ACCESSIBLE),
    REASON(PINNED_MAPPING, ACCESSIBLE),
    REASON(PAGEABLE_ACCESS, ACCESSIBLE),
    REASON(MANAGED_CONCURRENT, ACCESSIBLE),
    REASON(MANAGED_DIRECT, ACCESSIBLE),
    REASON(MANAGED_ON_BOTH, ACCESSIBLE),
    REASON(PEER_ACCESS, ACCESSIBLE),
    REASON(POOL_ACCESS, ACCESSIBLE),
    REASON(MAPPED, ACCESSIBLE),
    REASON(GRAPH_ACCESS, ACCESSIBLE),
    REASON(NO_PAGEABLE_ACCESS, INACCESSIBLE),
    REASON(NO_UNIFIED_ADDRESSING, INACCESSIBLE),
    REASON(DEVICE_MEMORY, INACCESSIBLE),
    REASON(MANAGED_NOT_CONCURRENT, INACCESSIBLE),
    REASON(MANAGED_NOT_SUPPORTED, INACCESSIBLE),
    REASON(NOT_PEERS, INACCESSIBLE),
    REASON(NO_PEER_ACCESS, INACCESSIBLE),
    REASON(NO_POOL_ACCESS, INACCESSIBLE),
    REASON(NOT_MAPPED, INACCESSIBLE),
    REASON(NO_GRAPH_ACCESS, INACCESSIBLE),
    REASON(OTHER_PROCESS, INACCESSIBLE),
    REASON(NOT_ON_LAUNCH_DEVICE, INACCESSIBLE),
    REASON(UNKNOWN_MEMORY, UNVERIFIED),
    REASON(MAPPED_READ_ONLY, UNVERIFIED),
    REASON(FOREIGN_GRAPH, UNVERIFIED),
    REASON(NO_ANSWER, UNVERIFIED),
#undef REASON
};
#define REASONS (sizeof reasons / sizeof *reasons)

UNUSED warp_access access_by(warp_access_reason reason)
{
    return reason < 100 ? ACCESSIBLE : reason < 200 ? INACCESSIBLE : UNVERIFIED;
}

UNUSED warp_access_info pointer_access(const warp_device *device, const void *ptr)
{
    warp_access_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_access_get_pointer_status(device, ptr, &info), WARP_SUCCESS);
    return info;
}

UNUSED warp_access_info array_access(const warp_device *device, const warp_array *array)
{
    warp_access_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_access_get_status(device, array, &info), WARP_SUCCESS);
    return info;
}

UNUSED warp_access_info indexed_access(const warp_device *device, const warp_indexed_array *indexed)
{
    warp_access_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_access_get_indexed_status(device, indexed, &info), WARP_SUCCESS);
    return info;
}

UNUSED int can_pointer(const warp_device *device, const void *ptr)
{
    uint8_t out = 9;
    CHECK_STATUS(warp_access_can_pointer(device, ptr, &out), WARP_SUCCESS);
    return out;
}

UNUSED int can_array(const warp_device *device, const warp_array *array)
{
    uint8_t out = 9;
    CHECK_STATUS(warp_access_can(device, array, &out), WARP_SUCCESS);
    return out;
}

UNUSED int can_indexed(const warp_device *device, const warp_indexed_array *indexed)
{
    uint8_t out = 9;
    CHECK_STATUS(warp_access_can_indexed(device, indexed, &out), WARP_SUCCESS);
    return out;
}

UNUSED int can_device(const warp_device *device, const warp_device *other)
{
    uint8_t out = 9;
    CHECK_STATUS(warp_access_can_device(device, other, &out), WARP_SUCCESS);
    return out;
}

/* A launch of the kernel "k" with these arguments, without a report. */
UNUSED warp_status check_launch(const warp_device *device, const warp_launch_argument *arguments, size_t count, int mode)
{
    return warp_launch_check(device, "k", arguments, count, sizeof *arguments, mode, NULL);
}

/* The one reason or the other. */
#define EITHER(which, yes, no) ((which) ? WARP_ACCESS_REASON_##yes : WARP_ACCESS_REASON_##no)

/* One argument through a check in CHECKED mode says the same as the question. */
UNUSED void check_launch_agrees(const warp_device *device, int kind, const void *value, warp_access_info info)
{
    warp_launch_argument argument = {.name = "a", .value = value, .kind = kind};
    warp_launch_report report = {.struct_size = sizeof report};
    CHECK_STATUS(warp_launch_check(device, "agrees", &argument, 1, sizeof argument, WARP_LAUNCH_CHECKED, &report),
                 info.access == INACCESSIBLE ? WARP_ERROR_ACCESS_DENIED : WARP_SUCCESS);
    CHECK_EQ_U64(report.accessible, info.access == ACCESSIBLE);
    CHECK_EQ_U64(report.unverified, info.access == UNVERIFIED);
    CHECK_EQ_U64(report.inaccessible, info.access == INACCESSIBLE);
    CHECK_EQ_I64(report.access, info.access);
    CHECK_EQ_I64(report.reason, info.access == ACCESSIBLE ? 0 : info.reason);
    CHECK_STATUS(warp_launch_check(device, "agrees", &argument, 1, sizeof argument, WARP_LAUNCH_CHECKED, NULL),
                 info.access == INACCESSIBLE ? WARP_ERROR_ACCESS_DENIED : WARP_SUCCESS);
}

UNUSED void check_info(warp_access_info info, warp_access_reason reason, const char *what, int line)
{
    if (info.reason != reason || info.access != access_by(reason)) {
        check_note_failure();
        printf("\n    line %d: %s: %s (access %d) is not %s", line, what, warp_access_reason_get_name(info.reason), info.access,
               warp_access_reason_get_name(reason));
    }
}

/* What is answered in every way that there is: at length, as info has it, in short, and by a launch check. */
UNUSED void check_answers(const warp_device *device, int kind, const void *value, warp_access_info info, int can,
                          warp_access_reason reason, const char *what, int line)
{
    check_info(info, reason, what, line);
    if (can != (info.access == ACCESSIBLE)) {
        check_note_failure();
        printf("\n    line %d: %s: the short answer disagrees", line, what);
    }
    check_launch_agrees(device, kind, value, info);
}

UNUSED void expect_pointer_at(const warp_device *device, const void *ptr, warp_access_reason reason, const char *what, int line)
{
    check_answers(device, WARP_LAUNCH_POINTER, ptr, pointer_access(device, ptr), can_pointer(device, ptr), reason, what, line);
}
#define EXPECT_POINTER(device, ptr, reason) \
    expect_pointer_at(device, ptr, WARP_ACCESS_REASON_##reason, #ptr " from " #device, __LINE__)

UNUSED void expect_array_at(const warp_device *device, const warp_array *array, warp_access_reason reason, const char *what,
                            int line)
{
    check_answers(device, WARP_LAUNCH_ARRAY, array, array_access(device, array), can_array(device, array), reason, what, line);
}
#define EXPECT_ARRAY(device, array, reason) \
    expect_array_at(device, array, WARP_ACCESS_REASON_##reason, #array " from " #device, __LINE__)

UNUSED void expect_indexed_at(const warp_device *device, const warp_indexed_array *indexed, warp_access_reason reason,
                              const char *what, int line)
{
    check_answers(device, WARP_LAUNCH_INDEXED_ARRAY, indexed, indexed_access(device, indexed), can_indexed(device, indexed),
                  reason, what, line);
}
#define EXPECT_INDEXED(device, indexed, reason) \
    expect_indexed_at(device, indexed, WARP_ACCESS_REASON_##reason, #indexed " from " #device, __LINE__)

/* ---- Arrays ------------------------------------------------------------------------------------------------------ */

#define F32 (warp_dtype_make(WARP_DTYPE_FLOAT, 32))
#define I32 (warp_dtype_make(WARP_DTYPE_INT, 32))

UNUSED warp_array *array_of_kind(warp_device *device, warp_memory_kind kind, warp_dtype dtype, int64_t count)
{
    warp_array_options options = {.struct_size = sizeof options, .kind = kind};
    warp_array *array = NULL;
    CHECK_STATUS(warp_array_empty(device, dtype, 1, &count, &options, &array), WARP_SUCCESS);
    return array;
}

UNUSED warp_array *wrapped_on(warp_device *device, const void *ptr, int64_t count)
{
    warp_array *array = NULL;
    CHECK_STATUS(warp_array_wrap(device, (void *)(uintptr_t)ptr, F32, 1, &count, NULL, &array), WARP_SUCCESS);
    return array;
}

UNUSED void *data_of(const warp_array *array)
{
    warp_array_info info = {.struct_size = sizeof info};
    CHECK_STATUS(warp_array_get_info(array, &info), WARP_SUCCESS);
    return info.data;
}

UNUSED void drop(warp_array *array)
{
    CHECK_STATUS(warp_array_release(array), WARP_SUCCESS);
}

/* Nothing of the library's is left, and nothing that a real machine would punish. Questions about peers keep a byte of each
 * GPU that they were about. */
UNUSED void check_gone_at(const char *file, int line)
{
    size_t count = 0, i;
    char text[300];
    SIMULATOR(warpsim_release_all)();
    warp_device_get_count(&count);
    for (i = 0; i < count; ++i) {
        warp_device *device = NULL;
        warp_device_get_at(i, &device);
        check_that(warp_device_synchronize(device) == WARP_SUCCESS, file, line, "the device can be synchronised");
        check_u64(statistics_of(device, WARP_MEMORY_UNKNOWN).live_blocks, 0, file, line, "no blocks are left");
    }
    check_that(SIMULATOR(warpsim_live_count)("default") < count, file, line, "a byte of each GPU at most");
    check_u64(SIMULATOR(warpsim_live_count)("pool"), 0, file, line, "pool");
    check_u64(SIMULATOR(warpsim_live_count)("pinned"), 0, file, line, "pinned");
    check_u64(SIMULATOR(warpsim_live_count)("managed"), 0, file, line, "managed");
    for (i = 0; SIMULATOR(warpsim_violation_get)(i, text, sizeof text) != 0; ++i)
        check_that(0, file, line, text);
    check_ptr(driver_current(), NULL, file, line, "no context is current");
}
#define CHECK_GONE() check_gone_at(__FILE__, __LINE__)

/* ---- The table of answers ---------------------------------------------------------------------------------------- */

/* What memory is, for the table: where it comes from decides who may touch it. */
enum origin { OF_HOST, OF_PINNED, OF_PLAIN, OF_POOL, OF_MANAGED, OF_MAPPING, OF_GRAPH, OF_NOBODY };

/* What stands between the memory and the device that is asked about. */
struct state {
    int peer, pool;    /* given, of the home's plain memory and of the memory's pool */
    int graph;         /* the pool's access when the memory was captured */
    uint32_t mapped;   /* 0, 1, 3 */
};

UNUSED int could_be_peers(const warp_device_info *target, const warp_device_info *peer)
{
    int32_t answer = 0;
    DRIVER(cuDeviceCanAccessPeer, &answer, peer->ordinal, target->ordinal);
    return answer;
}

/* The answer, from what the two devices say of themselves. `home` is NULL for memory that nobody knows. */
UNUSED warp_access_reason table(const warp_device_info *toucher, const warp_device_info *home, enum origin origin,
                                struct state state)
{
    const warp_access_reason by_mapping = state.mapped == 3   ? WARP_ACCESS_REASON_MAPPED
                                          : state.mapped == 1 ? WARP_ACCESS_REASON_MAPPED_READ_ONLY
                                                              : WARP_ACCESS_REASON_NOT_MAPPED;
    if (home == NULL)
        return WARP_ACCESS_REASON_UNKNOWN_MEMORY;
    if (toucher->is_cpu && home->is_cpu)
        return WARP_ACCESS_REASON_SAME_DEVICE;
    if (toucher->is_cpu) {
        if (origin != OF_MANAGED)
            return WARP_ACCESS_REASON_DEVICE_MEMORY;
        return home->is_concurrent_managed_access_supported   ? WARP_ACCESS_REASON_MANAGED_CONCURRENT
               : home->is_gpu_memory_access_from_cpu_supported ? WARP_ACCESS_REASON_MANAGED_DIRECT
                                                               : WARP_ACCESS_REASON_MANAGED_NOT_CONCURRENT;
    }
    if (home->is_cpu) {
        if (origin == OF_PINNED && toucher->is_uva)
            return WARP_ACCESS_REASON_PINNED_MAPPING;
        if (toucher->is_cpu_memory_access_from_gpu_supported)
            return WARP_ACCESS_REASON_PAGEABLE_ACCESS;
        return origin == OF_PINNED ? WARP_ACCESS_REASON_NO_UNIFIED_ADDRESSING : WARP_ACCESS_REASON_NO_PAGEABLE_ACCESS;
    }
    if (origin == OF_MAPPING)
        return by_mapping;
    if (toucher->context_id != 0 && toucher->context_id == home->context_id)
        return WARP_ACCESS_REASON_SAME_DEVICE;
    if (toucher->ordinal == home->ordinal)
        return strcmp(toucher->alias, home->alias) == 0 ? WARP_ACCESS_REASON_SAME_DEVICE : WARP_ACCESS_REASON_SAME_GPU;
    switch (origin) {
    case OF_MANAGED:
        return toucher->is_managed_memory_supported && home->is_managed_memory_supported ? WARP_ACCESS_REASON_MANAGED_ON_BOTH
                                                                                         : WARP_ACCESS_REASON_MANAGED_NOT_SUPPORTED;
    case OF_PLAIN:
        return state.peer                       ? WARP_ACCESS_REASON_PEER_ACCESS
               : could_be_peers(home, toucher) ? WARP_ACCESS_REASON_NO_PEER_ACCESS
                                               : WARP_ACCESS_REASON_NOT_PEERS;
    case OF_POOL:
        return state.pool                       ? WARP_ACCESS_REASON_POOL_ACCESS
               : could_be_peers(home, toucher) ? WARP_ACCESS_REASON_NO_POOL_ACCESS
                                               : WARP_ACCESS_REASON_NOT_PEERS;
    case OF_GRAPH: return state.graph ? WARP_ACCESS_REASON_GRAPH_ACCESS : WARP_ACCESS_REASON_NO_GRAPH_ACCESS;
    default: return WARP_ACCESS_REASON_UNKNOWN_MEMORY;
    }
}

#endif
