/*
 * graphs.h: streams, events, memory, captures and graphs as a test of the simulated driver calls them, looked up once.
 */
#ifndef WARPMEM_TESTS_GRAPHS_H
#define WARPMEM_TESTS_GRAPHS_H

#include "check.h"
#include "driver.h"

typedef void *CUevent;
typedef void *CUgraph;
typedef void *CUgraphNode;
typedef void *CUgraphExec;
typedef void *CUuserObject;
typedef void (*CUhostFn)(void *data);
typedef struct {
    CUhostFn function;
    void *data;
} CUhostParams;
uint32_t cuStreamQuery(CUstream stream);
uint32_t cuStreamWaitEvent(CUstream stream, CUevent event, uint32_t flags);
uint32_t cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data);
uint32_t cuEventCreate(CUevent *out, uint32_t flags);
uint32_t cuEventRecord(CUevent event, CUstream stream);
uint32_t cuEventQuery(CUevent event);
uint32_t cuEventSynchronize(CUevent event);
uint32_t cuEventDestroy_v2(CUevent event);
uint32_t cuEventElapsedTime(float *out, CUevent start, CUevent end);
uint32_t cuCtxRecordEvent(CUcontext context, CUevent event);
uint32_t cuMemsetD8Async(uint64_t to, uint8_t value, size_t count, CUstream stream);
uint32_t cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, CUstream stream);
uint32_t cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
uint32_t cuMemPoolSetAccess(CUmemoryPool pool, const void *access, size_t count);
uint32_t cuStreamBeginCapture_v2(CUstream stream, uint32_t mode);
uint32_t cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const void *edges,
                                     size_t count, uint32_t mode);
uint32_t cuStreamEndCapture(CUstream stream, CUgraph *graph);
uint32_t cuStreamIsCapturing(CUstream stream, uint32_t *status);
uint32_t cuStreamGetCaptureInfo_v2(CUstream stream, uint32_t *status, uint64_t *id, CUgraph *graph,
                                   const CUgraphNode **dependencies, size_t *count);
uint32_t cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies, size_t count, uint32_t flags);
uint32_t cuGraphCreate(CUgraph *graph, uint32_t flags);
uint32_t cuGraphDestroy(CUgraph graph);
uint32_t cuGraphClone(CUgraph *clone, CUgraph graph);
uint32_t cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
uint32_t cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);
uint32_t cuGraphNodeGetType(CUgraphNode node, uint32_t *type);
uint32_t cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count);
uint32_t cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count);
uint32_t cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            const CUhostParams *params);
uint32_t cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                  CUgraph child);
uint32_t cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                   CUevent event);
uint32_t cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                 CUevent event);
uint32_t cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
uint32_t cuGraphLaunch(CUgraphExec exec, CUstream stream);
uint32_t cuGraphExecDestroy(CUgraphExec exec);
uint32_t cuDeviceGetGraphMemAttribute(int32_t device, uint32_t attribute, void *value);
uint32_t cuDeviceGraphMemTrim(int32_t device);
uint32_t cuUserObjectCreate(CUuserObject *object, void *data, CUhostFn destroy, uint32_t references, uint32_t flags);
uint32_t cuUserObjectRelease(CUuserObject object, uint32_t count);
uint32_t cuGraphRetainUserObject(CUgraph graph, CUuserObject object, uint32_t count, uint32_t flags);
uint32_t cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, uint32_t count);

#define FUNCTIONS(X)                                                                                                      \
    X(cuInit)                                                                                                             \
    X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuCtxRecordEvent) X(cuDevicePrimaryCtxRetain)             \
    X(cuDevicePrimaryCtxReset_v2) X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamSynchronize) X(cuStreamQuery)         \
    X(cuStreamGetId) X(cuStreamWaitEvent) X(cuLaunchHostFunc) X(cuEventCreate) X(cuEventRecord) X(cuEventQuery)           \
    X(cuEventSynchronize) X(cuEventElapsedTime) X(cuEventDestroy_v2) X(cuMemAlloc_v2) X(cuMemFree_v2)                     \
    X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostRegister_v2)                       \
    X(cuMemHostUnregister) X(cuMemsetD8Async) X(cuMemcpyAsync) X(cuMemcpyDtoH_v2) X(cuDeviceGetMemPool)                   \
    X(cuMemPoolGetAttribute) X(cuMemPoolSetAccess) X(cuStreamBeginCapture_v2) X(cuStreamBeginCaptureToGraph)              \
    X(cuStreamEndCapture) X(cuStreamIsCapturing) X(cuStreamGetCaptureInfo_v2) X(cuStreamUpdateCaptureDependencies)        \
    X(cuGraphCreate) X(cuGraphDestroy) X(cuGraphClone) X(cuGraphGetNodes) X(cuGraphGetEdges) X(cuGraphNodeGetType)        \
    X(cuGraphNodeGetDependentNodes) X(cuGraphAddEmptyNode) X(cuGraphAddHostNode) X(cuGraphAddChildGraphNode)              \
    X(cuGraphAddEventRecordNode) X(cuGraphAddEventWaitNode) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch)               \
    X(cuGraphExecDestroy) X(cuDeviceGetGraphMemAttribute) X(cuDeviceGraphMemTrim) X(cuUserObjectCreate)                   \
    X(cuUserObjectRelease) X(cuGraphRetainUserObject) X(cuGraphReleaseUserObject)                                         \
    X(warpsim_reset) X(warpsim_schedule) X(warpsim_run) X(warpsim_order_checks) X(warpsim_races) X(warpsim_misorder)      \
    X(warpsim_hold) X(warpsim_release) X(warpsim_auto_release) X(warpsim_violation_count) X(warpsim_violation_get)        \
    X(warpsim_live_count) X(warpsim_live_bytes) X(warpsim_device_used) X(warpsim_out_of_memory_above_total)               \
    X(warpsim_peek)

/* Looked up once: thousands of runs are made of small calls. */
#define DECLARE(name) CHECK_MAYBE_UNUSED static __typeof__(&name) sim_##name;
FUNCTIONS(DECLARE)
#define LOOK_UP(name) sim_##name = SIMULATOR(name);
__attribute__((constructor)) static void look_up(void)
{
    FUNCTIONS(LOOK_UP)
}

#define D(name) sim_##name
#define OK(...) CHECK_EQ_U64(__VA_ARGS__, 0)
#define KIB ((size_t)1024)
#define MIB ((size_t)1024 * 1024)

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, ILLEGAL_STATE = 401, NOT_READY = 600, NOT_PERMITTED = 800 };
enum { UNMATCHED = 903, UNJOINED = 904, ISOLATION = 905, WRONG_THREAD = 908, UNSUPPORTED = 900, INVALIDATED = 901 };
enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { NOT_CAPTURING, CAPTURING, INVALID };
enum { BLOCKING, NON_BLOCKING };
enum { NO_TIMING = 2 };
enum { COPY = 1, FILL = 2, HOST = 3, ALLOC = 10, FREE = 11 };

static CUcontext context;
static uint64_t started_with; /* the seed */

/* A fresh machine; seed 0: work runs at once. */
static void start(uint64_t seed)
{
    D(warpsim_reset)();
    D(warpsim_schedule)(seed);
    started_with = seed;
    OK(D(cuInit)(0));
    OK(D(cuDevicePrimaryCtxRetain)(&context, 0));
    OK(D(cuCtxSetCurrent)(context));
}

static CUstream stream_of(uint32_t flags)
{
    CUstream stream = NULL;
    OK(D(cuStreamCreate)(&stream, flags));
    return stream;
}

CHECK_MAYBE_UNUSED static CUevent event_of(void)
{
    CUevent event = NULL;
    OK(D(cuEventCreate)(&event, NO_TIMING));
    return event;
}

CHECK_MAYBE_UNUSED static uint64_t pool_block(size_t size, CUstream stream)
{
    uint64_t block = 0;
    OK(D(cuMemAllocAsync)(&block, size, stream));
    return block;
}

CHECK_MAYBE_UNUSED static void fill_bytes(uint64_t block, uint8_t value, size_t size, CUstream stream)
{
    OK(D(cuMemsetD8Async)(block, value, size, stream));
}

/* What one stream does from now on comes after what the other did until now; in a capture, a fork or a join. */
CHECK_MAYBE_UNUSED static void join(CUstream before, CUstream after)
{
    CUevent event = event_of();
    OK(D(cuEventRecord)(event, before));
    OK(D(cuStreamWaitEvent)(after, event, 0));
    OK(D(cuEventDestroy_v2)(event));
}

CHECK_MAYBE_UNUSED static CUgraph end(CUstream stream)
{
    CUgraph graph = NULL;
    OK(D(cuStreamEndCapture)(stream, &graph));
    CHECK(graph != NULL);
    return graph;
}

CHECK_MAYBE_UNUSED static CUgraphExec ready(CUgraph graph, unsigned flags)
{
    CUgraphExec exec = NULL;
    OK(D(cuGraphInstantiateWithFlags)(&exec, graph, flags));
    return exec;
}

/* Names of host functions in the order in which they ran. */
static char order[64];

static void append(void *data)
{
    order[strlen(order)] = (char)(uintptr_t)data;
}

CHECK_MAYBE_UNUSED static void mark(CUstream stream, char name)
{
    OK(D(cuLaunchHostFunc)(stream, append, (void *)(uintptr_t)name));
}

CHECK_MAYBE_UNUSED static void forget_order(void)
{
    memset(order, 0, sizeof order);
}

CHECK_MAYBE_UNUSED static size_t node_count(CUgraph graph)
{
    size_t count = 0;
    OK(D(cuGraphGetNodes)(graph, NULL, &count));
    return count;
}

/* The type of the node that was made as the nth. */
CHECK_MAYBE_UNUSED static uint32_t type_of(CUgraph graph, size_t nth)
{
    CUgraphNode nodes[16] = {NULL};
    size_t count = 16;
    uint32_t type = 99;
    OK(D(cuGraphGetNodes)(graph, nodes, &count));
    OK(D(cuGraphNodeGetType)(nodes[nth], &type));
    return type;
}

CHECK_MAYBE_UNUSED static uint8_t byte_at(uint64_t address)
{
    uint8_t byte = 0;
    OK(D(warpsim_peek)(address, &byte, 1));
    return byte;
}

CHECK_MAYBE_UNUSED static int reported(const char *text)
{
    size_t i;
    for (i = 0; i < D(warpsim_violation_count)(); ++i) {
        char line[512];
        D(warpsim_violation_get)(i, line, sizeof line);
        if (strstr(line, text) != NULL)
            return 1;
    }
    return 0;
}

CHECK_MAYBE_UNUSED static void check_no_violation(void)
{
    char line[512] = "";
    if (D(warpsim_violation_count)() == 0)
        return;
    D(warpsim_violation_get)(0, line, sizeof line);
    check_note_failure();
    printf("\n    violation with seed %" PRIu64 ": %s", started_with, line);
}

#endif
