// Ninth round: captures and graphs as a library under them meets them: nodes put in by hand, frontiers, threads, forks, pauses,
// user objects, graphs inside captures, copies between GPUs.
// Build: g++ -O2 -std=c++17 driver_probe9.cpp -o probe9 -lcuda -lpthread      Run: ./probe9
#include "probe.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#ifndef BUSY_BYTES
#define BUSY_BYTES (2ull << 30) // copied 20 times to keep a stream busy; small on a simulator
#endif

static CUcontext context[2];
static int devices;

static void start()
{
    MUST(cuDeviceGetCount(&devices));
    if (devices > 2)
        devices = 2;
    for (int i = 0; i < devices; i++)
        MUST(cuDevicePrimaryCtxRetain(&context[i], i));
    MUST(cuCtxSetCurrent(context[0]));
}

static void fact(const char *name, CUresult code)
{
    printf("%s = %s\n", name, name_of(code));
    fflush(stdout);
}

static void number(const char *name, long long value)
{
    printf("%s = %lld\n", name, value);
    fflush(stdout);
}

static CUstream make_stream(unsigned flags = CU_STREAM_NON_BLOCKING)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, flags));
    return stream;
}

static CUevent make_event()
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
{
    MUST(cuStreamBeginCapture(stream, mode));
}

static void relax()
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
}

struct Info {
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)9;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    std::vector<CUgraphNode> after;
    CUresult code = CUDA_SUCCESS;
};

static Info info_of(CUstream stream)
{
    Info info;
    const CUgraphNode *nodes = nullptr;
    const CUgraphEdgeData *edges = nullptr;
    size_t count = 0;
    info.code = cuStreamGetCaptureInfo(stream, &info.status, &info.id, &info.graph, &nodes, &edges, &count);
    if (info.code == CUDA_SUCCESS && info.status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
        info.after.assign(nodes, nodes + count);
    return info;
}

static void finish(const char *name, CUstream stream, CUgraph *out = nullptr)
{
    CUgraph graph = nullptr;
    CUstreamCaptureStatus status = info_of(stream).status;
    CUresult end = cuStreamEndCapture(stream, &graph);
    printf("%s.end = status=%d %s graph=%s\n", name, (int)status, name_of(end), graph ? "nonzero" : "0");
    fflush(stdout);
    if (out)
        *out = graph;
}

static int type_of(CUgraphNode node)
{
    CUgraphNodeType type = (CUgraphNodeType)-1;
    MUST(cuGraphNodeGetType(node, &type));
    return (int)type;
}

static void fork_to(CUstream from, CUstream to)
{
    CUevent event = make_event();
    MUST(cuEventRecord(event, from));
    MUST(cuStreamWaitEvent(to, event, 0));
}

static CUdeviceptr alloc(CUstream stream, size_t size = 4096)
{
    CUdeviceptr ptr = 0;
    MUST(cuMemAllocAsync(&ptr, size, stream));
    return ptr;
}

static CUgraphExec instantiate(const char *name, CUgraph graph, unsigned long long flags = 0)
{
    CUgraphExec exec = nullptr;
    char text[128];
    snprintf(text, sizeof text, "%s.instantiate", name);
    fact(text, cuGraphInstantiateWithFlags(&exec, graph, flags));
    return exec;
}

static void launch(const char *name, CUgraphExec exec, CUstream stream)
{
    if (!exec)
        return;
    char text[128];
    snprintf(text, sizeof text, "%s.launch", name);
    fact(text, cuGraphLaunch(exec, stream));
    snprintf(text, sizeof text, "%s.sync", name);
    fact(text, cuStreamSynchronize(stream));
}

static unsigned long long graph_memory(CUgraphMem_attribute attribute)
{
    cuuint64_t value = 0;
    MUST(cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

// Nodes that a library puts into a graph while it is captured.
static void nodes()
{
    start();
    CUstream s = make_stream(), t = make_stream();
    CUmemoryPool pool;
    MUST(cuDeviceGetMemPool(&pool, 0));
    begin(s);
    CUdeviceptr p = 0;
    fact("node.alloc_from_pool", cuMemAllocFromPoolAsync(&p, 1 << 20, pool, s));
    Info after = info_of(s);
    number("node.alloc.dependencies", (long long)after.after.size());
    CUgraphNode node = after.after[0];
    number("node.alloc.type", type_of(node));
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    fact("node.alloc.params", cuGraphMemAllocNodeGetParams(node, &params));
    number("node.alloc.same_address", params.dptr == p);
    relax();
    CUdeviceptr q = 0;
    fact("node.alloc_relaxed", cuMemAllocFromPoolAsync(&q, 1 << 20, pool, s));
    number("node.alloc_relaxed.type", type_of(info_of(s).after[0]));
    MUST(cuMemFreeAsync(q, s));
    number("node.free.type", type_of(info_of(s).after[0]));
    fork_to(s, t);
    number("node.fork.same_id", info_of(t).id == info_of(s).id);
    number("node.fork.dependencies", (long long)info_of(t).after.size());
    MUST(cuMemsetD8Async(p, 1, 4096, t));
    MUST(cuMemsetD8Async(p + 8192, 1, 4096, s));
    CUgraphNode leaves[2] = {info_of(s).after[0], info_of(t).after[0]}, freed = nullptr;
    fact("node.add_free", cuGraphAddMemFreeNode(&freed, info_of(s).graph, leaves, 2, p));
    fact("node.set_frontier.origin", cuStreamUpdateCaptureDependencies(s, &freed, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    fact("node.set_frontier.fork", cuStreamUpdateCaptureDependencies(t, &freed, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    fact("node.free_twice_in_graph", cuMemFreeAsync(p, s));
    CUdeviceptr again = alloc(s, 1 << 20);
    number("node.address_reused", again == p || again == q);
    MUST(cuMemFreeAsync(again, s));
    CUgraph graph;
    finish("node", s, &graph);
    number("node.fork.status_after_end", info_of(t).status);
    CUgraphExec exec = instantiate("node", graph);
    launch("node", exec, s);
    launch("node.again", exec, t);
    number("node.used_high", (long long)graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH));
    // A free node that no stream of the capture comes after.
    begin(s);
    p = alloc(s);
    leaves[0] = info_of(s).after[0];
    fact("node.loose_free", cuGraphAddMemFreeNode(&freed, info_of(s).graph, leaves, 1, p));
    finish("node.loose_free", s, &graph);
    if (graph) {
        exec = instantiate("node.loose_free", graph);
        launch("node.loose_free", exec, s);
        launch("node.loose_free.again", exec, s);
    }
    // Frees that go elsewhere.
    begin(s);
    p = alloc(s);
    fact("node.free_on_other_stream", cuMemFreeAsync(p, t));
    fact("node.plain_free", cuMemFree(p));
    finish("node.free_elsewhere", s);
    // Memory of a graph that has run, and of one that has not, in another capture.
    begin(s);
    CUdeviceptr kept = alloc(s);
    finish("node.kept", s, &graph);
    fact("node.before_launch.memset", cuMemsetD8Async(kept, 1, 16, s));
    begin(s);
    fact("node.before_launch.captured_memset", cuMemsetD8Async(kept, 1, 16, s));
    fact("node.before_launch.captured_free", cuMemFreeAsync(kept, s));
    finish("node.before_launch", s);
    exec = instantiate("node.kept", graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    launch("node.kept", exec, s);
    begin(s);
    fact("node.other_graph.memset", cuMemsetD8Async(kept, 1, 16, s));
    fact("node.other_graph.free", cuMemFreeAsync(kept, s));
    finish("node.other_graph", s);
}

static void threads()
{
    start();
    const char *names[] = {"global", "thread_local", "relaxed"};
    for (int mode = 0; mode < 3; mode++)
        for (int relaxed = 0; relaxed < 2; relaxed++) {
            CUstream s = make_stream(), t = make_stream();
            begin(s, (CUstreamCaptureMode)mode);
            CUresult end = CUDA_SUCCESS, query = CUDA_SUCCESS;
            CUgraph graph = nullptr;
            Info seen, idle;
            std::thread([&] {
                MUST(cuCtxSetCurrent(context[0]));
                if (relaxed)
                    relax();
                seen = info_of(s);
                idle = info_of(t);
                query = cuStreamQuery(t);
                end = cuStreamEndCapture(s, &graph);
            }).join();
            printf("thread.%s.relaxed%d = info=%s status=%d idle=%s query=%s end=%s graph=%s status_after=%d\n", names[mode], relaxed, name_of(seen.code),
                   (int)seen.status, name_of(idle.code), name_of(query), name_of(end), graph ? "nonzero" : "0", (int)info_of(s).status);
            if (info_of(s).status != CU_STREAM_CAPTURE_STATUS_NONE)
                finish("thread.then", s);
        }
}

static void forks()
{
    start();
    CUstream s = make_stream(), t = make_stream(), u = make_stream();
    CUdeviceptr p;
    MUST(cuMemAlloc(&p, 1 << 20));
    begin(s);
    fork_to(s, t);
    CUgraph graph = nullptr;
    fact("fork.end_on_fork", cuStreamEndCapture(t, &graph));
    number("fork.end_on_fork.status", info_of(s).status);
    finish("fork.after_end_on_fork", s);
    begin(s);
    fork_to(s, t);
    MUST(cuMemsetD8Async(p, 1, 16, t));
    finish("fork.unjoined", s);
    number("fork.unjoined.fork_status", info_of(t).status);
    begin(s);
    fork_to(s, t);
    finish("fork.unjoined_without_work", s);
    begin(s);
    MUST(cuMemsetD8Async(p, 1, 16, s));
    fork_to(s, t);
    MUST(cuMemsetD8Async(p, 1, 16, t));
    CUgraphNode leaf = info_of(t).after[0];
    fact("fork.joined_by_hand", cuStreamUpdateCaptureDependencies(s, &leaf, nullptr, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    number("fork.joined_by_hand.dependencies", (long long)info_of(s).after.size());
    finish("fork.joined_by_hand", s);
    // Events.
    CUevent outside = make_event(), inside = make_event();
    MUST(cuEventRecord(outside, u));
    begin(s);
    fact("event.wait_outside", cuStreamWaitEvent(s, outside, 0));
    finish("event.wait_outside", s);
    begin(s);
    fact("event.wait_outside_external", cuStreamWaitEvent(s, outside, CU_EVENT_WAIT_EXTERNAL));
    finish("event.wait_outside_external", s);
    begin(s);
    fact("event.wait_unrecorded", cuStreamWaitEvent(s, make_event(), 0));
    finish("event.wait_unrecorded", s);
    begin(s);
    fact("event.record_inside", cuEventRecord(inside, s));
    fact("event.query_inside", cuEventQuery(inside));
    number("event.query_inside.status", info_of(s).status);
    finish("event.query_inside", s);
    begin(s);
    MUST(cuEventRecord(inside, s));
    fact("event.synchronize_inside", cuEventSynchronize(inside));
    number("event.synchronize_inside.status", info_of(s).status);
    finish("event.synchronize_inside", s);
    fact("event.query_after_end", cuEventQuery(inside));
    fact("event.wait_after_end", cuStreamWaitEvent(u, inside, 0));
    number("event.wait_after_end.status", info_of(u).status);
    begin(s);
    fact("event.wait_of_ended_capture", cuStreamWaitEvent(s, inside, 0));
    finish("event.wait_of_ended_capture", s);
    begin(s);
    MUST(cuEventRecord(inside, s));
    begin(t);
    fact("event.wait_of_other_capture", cuStreamWaitEvent(t, inside, 0));
    finish("event.other_capture.t", t);
    finish("event.other_capture.s", s);
    fact("event.destroy_captured", cuEventDestroy(inside));
    // Streams.
    for (int question = 0; question < 4; question++) {
        static const char *const names[] = {"flags", "priority", "context", "id"};
        begin(s);
        unsigned flags = 0;
        int priority = 0;
        CUcontext of = nullptr;
        unsigned long long id = 0;
        CUresult code = question == 0   ? cuStreamGetFlags(s, &flags)
                        : question == 1 ? cuStreamGetPriority(s, &priority)
                        : question == 2 ? cuStreamGetCtx(s, &of)
                                        : cuStreamGetId(s, &id);
        fact((std::string("stream.") + names[question]).c_str(), code);
        finish((std::string("stream.") + names[question]).c_str(), s);
    }
    begin(s);
    fork_to(s, t);
    fact("fork.destroy_fork", cuStreamDestroy(t));
    finish("fork.destroy_fork", s);
    fact("begin.per_thread", cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    finish("begin.per_thread", CU_STREAM_PER_THREAD);
    CUstream blocking = make_stream(0);
    begin(blocking);
    Info legacy = info_of(CU_STREAM_LEGACY);
    printf("legacy.info_while_blocking_captures = %s status=%d\n", name_of(legacy.code), (int)legacy.status);
    Info other = info_of(make_stream(0));
    printf("other.info_while_blocking_captures = %s status=%d\n", name_of(other.code), (int)other.status);
    finish("legacy.info", blocking);
    // Another device's current context.
    if (devices > 1) {
        begin(s);
        MUST(cuCtxSetCurrent(context[1]));
        fact("begin.other_context_current.alloc", cuMemAllocAsync(&p, 4096, s));
        fact("begin.other_context_current.memset", cuMemsetD8Async(p, 1, 16, s));
        finish("begin.other_context_current", s);
        MUST(cuCtxSetCurrent(context[0]));
    }
}

static std::atomic<int> destroyed;
static std::thread::id where;
static void CUDA_CB on_destroy(void *)
{
    where = std::this_thread::get_id();
    destroyed++;
}

static void attach(CUgraph graph)
{
    CUuserObject object;
    MUST(cuUserObjectCreate(&object, nullptr, on_destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    MUST(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
}

static int settled()
{
    for (int i = 0; i < 200 && !destroyed; i++)
        usleep(1000);
    return destroyed;
}

static void objects()
{
    start();
    CUstream s = make_stream();
    CUdeviceptr a, b;
    MUST(cuMemAlloc(&a, BUSY_BYTES));
    MUST(cuMemAlloc(&b, BUSY_BYTES));
    CUgraph graph;
    begin(s);
    attach(info_of(s).graph);
    for (int i = 0; i < 20; i++)
        MUST(cuMemcpyDtoDAsync(b, a, BUSY_BYTES, s));
    finish("object", s, &graph);
    number("object.after_end", destroyed);
    CUgraphExec exec = instantiate("object", graph);
    MUST(cuGraphDestroy(graph));
    usleep(20000);
    number("object.after_graph_destroy", destroyed);
    MUST(cuGraphLaunch(exec, s));
    CUresult busy = cuStreamQuery(s);
    MUST(cuGraphExecDestroy(exec));
    int early = destroyed;
    CUresult still = cuStreamQuery(s);
    printf("objectbusy.destroyed_while_running = %d (%s, %s)\n", early, name_of(busy), name_of(still));
    MUST(cuStreamSynchronize(s));
    number("object.after_run", settled());
    number("object.on_this_thread", where == std::this_thread::get_id());
    destroyed = 0;
    begin(s);
    attach(info_of(s).graph);
    MUST(cuMemsetD8Async(a, 1, 16, s));
    finish("object.never_instantiated", s, &graph);
    MUST(cuGraphDestroy(graph));
    number("object.never_instantiated.after_destroy", settled());
    destroyed = 0;
    begin(s);
    attach(info_of(s).graph);
    CUdeviceptr broken;
    (void)cuMemAlloc(&broken, 4096);
    usleep(20000);
    number("object.invalidated.before_end", destroyed);
    finish("object.invalidated", s, &graph);
    number("object.invalidated.after_end", settled());
    destroyed = 0;
    begin(s);
    attach(info_of(s).graph);
    MUST(cuStreamDestroy(s));
    number("object.stream_destroyed", settled());
}

static void graphs()
{
    start();
    CUstream s = make_stream(), t = make_stream();
    CUdeviceptr plain;
    MUST(cuMemAlloc(&plain, 4096));
    CUgraph with, without;
    begin(s);
    CUdeviceptr p = alloc(s);
    MUST(cuMemsetD8Async(p, 1, 16, s));
    MUST(cuMemFreeAsync(p, s));
    finish("inner.with_memory", s, &with);
    begin(s);
    MUST(cuMemsetD8Async(plain, 1, 16, s));
    finish("inner.without_memory", s, &without);
    CUgraphExec with_exec = instantiate("inner.with_memory", with), without_exec = instantiate("inner.without_memory", without);
    begin(t);
    fact("inner.launch", cuGraphLaunch(without_exec, t));
    finish("inner.launch", t);
    begin(t);
    relax();
    fact("inner.launch_relaxed", cuGraphLaunch(without_exec, t));
    finish("inner.launch_relaxed", t);
    begin(t);
    MUST(cuMemsetD8Async(plain, 1, 16, t));
    CUgraphNode child, before = info_of(t).after[0];
    fact("inner.child_of_captured", cuGraphAddChildGraphNode(&child, info_of(t).graph, &before, 1, without));
    fact("inner.child_of_captured.frontier", cuStreamUpdateCaptureDependencies(t, &child, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    fact("inner.child_with_memory_of_captured", cuGraphAddChildGraphNode(&child, info_of(t).graph, &before, 1, with));
    CUgraph parent, copy;
    finish("inner.child", t, &parent);
    launch("inner.child", instantiate("inner.child", parent), t);
    fact("inner.clone_with_memory", cuGraphClone(&copy, with));
    fact("inner.destroy_exec", cuGraphExecDestroy(with_exec));
    MUST(cuGraphCreate(&parent, 0));
    fact("inner.child_with_memory", cuGraphAddChildGraphNode(&child, parent, nullptr, 0, with));
    // Into a graph that exists.
    CUgraph target;
    MUST(cuGraphCreate(&target, 0));
    fact("into.begin", cuStreamBeginCaptureToGraph(s, target, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    Info first = info_of(s);
    number("into.same_graph", first.graph == target);
    p = alloc(s);
    CUgraphNode node = info_of(s).after[0];
    CUgraph same;
    MUST(cuStreamEndCapture(s, &same));
    number("into.end_same_graph", same == target);
    fact("into.begin_again", cuStreamBeginCaptureToGraph(s, target, &node, nullptr, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    number("into.same_id", info_of(s).id == first.id);
    MUST(cuMemsetD8Async(p, 1, 16, s));
    fact("into.free_in_second_half", cuMemFreeAsync(p, s));
    finish("into", s);
    CUgraphExec exec = instantiate("into", target);
    launch("into", exec, s);
    // A paused plain capture.
    CUgraph paused;
    begin(s);
    p = alloc(s);
    node = info_of(s).after[0];
    MUST(cuStreamEndCapture(s, &paused));
    CUgraphNode freed;
    fact("pause.add_free", cuGraphAddMemFreeNode(&freed, paused, &node, 1, p));
    fact("pause.resume", cuStreamBeginCaptureToGraph(s, paused, &freed, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    finish("pause", s, &paused);
    exec = instantiate("pause", paused);
    launch("pause", exec, s);
    // The body of a conditional node. Found by name, so that a driver without them can be asked the rest.
    void *found = nullptr;
    CUdriverProcAddressQueryResult how;
    if (cuGetProcAddress("cuGraphConditionalHandleCreate", &found, 13000, 0, &how) || !found)
        return;
    auto make_handle = (decltype(&cuGraphConditionalHandleCreate))found;
    CUgraph outer;
    MUST(cuGraphCreate(&outer, 0));
    CUgraphConditionalHandle handle;
    MUST(make_handle(&handle, outer, context[0], 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = 1;
    params.conditional.ctx = context[0];
    fact("body.add", cuGraphAddNode(&node, outer, nullptr, nullptr, 0, &params));
    CUgraph body = params.conditional.phGraph_out[0];
    fact("body.begin", cuStreamBeginCaptureToGraph(s, body, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    fact("body.alloc", cuMemAllocAsync(&p, 4096, s));
    number("body.status", info_of(s).status);
    fact("body.memset", cuMemsetD8Async(plain, 1, 16, s));
    finish("body", s);
    CUgraphExec outer_exec = instantiate("body", outer);
    launch("body", outer_exec, s);
}

// What becomes of memory that a graph made and nobody freed.
static void lives()
{
    start();
    CUstream s = make_stream(), t = make_stream();
    CUgraph graph;
    begin(s);
    CUdeviceptr p = alloc(s, 32 << 20);
    finish("life", s, &graph);
    CUgraphExec exec = instantiate("life", graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    MUST(cuGraphLaunch(exec, s));
    MUST(cuGraphLaunch(exec, t));
    MUST(cuCtxSynchronize());
    number("life.used", (long long)graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuCtxSynchronize());
    number("life.used_after_destroy", (long long)graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
    begin(s);
    CUdeviceptr q = alloc(s, 32 << 20);
    finish("life.second", s, &graph);
    number("life.address_of_live_memory_reused", p == q);
    fact("life.free_elsewhere", cuMemFreeAsync(p, t));
    MUST(cuCtxSynchronize());
    number("life.used_after_free", (long long)graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
    MUST(cuGraphDestroy(graph));
    begin(s);
    CUdeviceptr r = alloc(s, 32 << 20);
    finish("life.third", s, &graph);
    number("life.address_of_never_launched_reused", r == q || r == p);
    fact("life.free_of_never_launched", cuMemFreeAsync(r, t));
    exec = instantiate("life.third", graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    launch("life.third", exec, s);
    fact("life.free_while_graph_lives", cuMemFreeAsync(r, t));
    launch("life.after_free", exec, s);
    fact("life.exec_destroy", cuGraphExecDestroy(exec));
    exec = instantiate("life.again", graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    launch("life.again", exec, s);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    fact("life.plain_free_after_all", cuMemFree(r));
    number("life.used_at_end", (long long)graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
    MUST(cuDeviceGraphMemTrim(0));
    number("life.used_after_trim", (long long)graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
    number("life.reserved_after_trim", (long long)graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
    // Freed on a stream while another capture runs there.
    begin(s);
    p = alloc(s);
    finish("life.fourth", s, &graph);
    exec = instantiate("life.fourth", graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    launch("life.fourth", exec, s);
    begin(s);
    relax();
    fact("life.free_beside_capture", cuMemFreeAsync(p, t));
    fact("life.exec_destroy_beside_capture", cuGraphExecDestroy(exec));
    fact("life.graph_destroy_beside_capture", cuGraphDestroy(graph));
    finish("life.beside", s);
    if (devices > 1) {
        begin(s);
        MUST(cuMemsetD8Async(r = alloc(s), 1, 16, s));
        MUST(cuMemFreeAsync(r, s));
        finish("life.fifth", s, &graph);
        exec = instantiate("life.fifth", graph);
        MUST(cuCtxSetCurrent(context[1]));
        CUstream far = make_stream();
        launch("life.on_other_device", exec, far);
        MUST(cuCtxSetCurrent(context[0]));
        launch("life.on_own_device", exec, s);
    }
}

// What the counters of graph memory say after each way to the end.
static void counters(const char *name)
{
    MUST(cuCtxSynchronize());
    unsigned long long used = graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), reserved = graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    MUST(cuDeviceGraphMemTrim(0));
    printf("%s = used %llu reserved %llu, trimmed: used %llu reserved %llu\n", name, used, reserved, graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT),
           graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
    fflush(stdout);
}

static void ends(int way)
{
    static const char *const names[] = {"free_after_destroy", "free_before_destroy", "plain_free_after_destroy", "never_launched", "free_of_two_runs",
                                        "inside"};
    start();
    CUstream s = make_stream(), t = make_stream();
    CUgraph graph;
    std::string name = std::string("ends.") + names[way];
    begin(s);
    CUdeviceptr p = alloc(s, 32 << 20);
    MUST(cuMemsetD8Async(p, 1, 16, s));
    if (way == 5) {
        MUST(cuMemFreeAsync(p, s));
        MUST(cuMemFreeAsync(alloc(s, 32 << 20), s));
        MUST(cuMemFreeAsync(alloc(s, 32 << 20), s));
    }
    MUST(cuStreamEndCapture(s, &graph));
    counters((name + ".captured").c_str());
    CUgraphExec exec;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    counters((name + ".instantiated").c_str());
    for (int i = 0; i < (way == 3 ? 0 : way == 4 ? 2 : 1); i++)
        MUST(cuGraphLaunch(exec, s));
    counters((name + ".launched").c_str());
    if (way == 1) {
        MUST(cuMemFreeAsync(p, t));
        counters((name + ".freed").c_str());
    }
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    counters((name + ".destroyed").c_str());
    if (way == 2)
        MUST(cuMemFree(p));
    if (way == 0 || way == 4)
        MUST(cuMemFreeAsync(p, t));
    counters((name + ".end").c_str());
    number((name + ".used_high").c_str(), (long long)graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH));
}

// Copies between GPUs in a capture: whose context is current, who has access.
static void copies(int granted)
{
    start();
    if (devices < 2)
        return;
    CUmemoryPool pool[2];
    CUdeviceptr pooled[2], plain[2];
    CUstream stream[2];
    for (int i = 0; i < 2; i++) {
        MUST(cuCtxSetCurrent(context[i]));
        MUST(cuDeviceGetMemPool(&pool[i], i));
        stream[i] = make_stream();
        pooled[i] = alloc(stream[i]);
        MUST(cuStreamSynchronize(stream[i]));
        MUST(cuMemAlloc(&plain[i], 4096));
    }
    if (granted >= 0) {
        CUmemAccessDesc access = {};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = 1 - granted;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        MUST(cuMemPoolSetAccess(pool[granted], &access, 1));
    }
    for (int on = 0; on < 2; on++)
        for (int current = 0; current < 2; current++)
            for (int kinds = 0; kinds < 4; kinds++) {
                MUST(cuCtxSetCurrent(context[current]));
                CUdeviceptr to = kinds & 1 ? pooled[1] : plain[1], from = kinds & 2 ? pooled[0] : plain[0];
                begin(stream[on]);
                CUresult copied = cuMemcpyAsync(to, from, 4096, stream[on]);
                Info after = info_of(stream[on]);
                CUgraph graph = nullptr;
                CUresult end = cuStreamEndCapture(stream[on], &graph);
                CUgraphExec exec = nullptr;
                CUresult made = graph ? cuGraphInstantiateWithFlags(&exec, graph, 0) : CUDA_ERROR_UNKNOWN;
                CUresult ran = exec ? cuGraphLaunch(exec, stream[on]) : CUDA_ERROR_UNKNOWN;
                CUresult done = cuStreamSynchronize(stream[on]);
                printf("copy.pool%d_granted.stream%d.current%d.%s_to_%s = %s status=%d end=%s inst=%s launch=%s sync=%s\n", granted, on, current,
                       kinds & 2 ? "pool0" : "plain0", kinds & 1 ? "pool1" : "plain1", name_of(copied), (int)after.status, name_of(end), name_of(made),
                       name_of(ran), name_of(done));
                fflush(stdout);
            }
}

int main()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    in_child("nodes", nodes);
    in_child("threads", threads);
    in_child("forks", forks);
    in_child("objects", objects);
    in_child("graphs", graphs);
    in_child("lives", lives);
    for (int way = 0; way < 6; way++)
        in_child("ends", [=] { ends(way); });
    for (int granted = -1; granted < 2; granted++)
        in_child("copies", [=] { copies(granted); });
    printf("done = 1\n");
}
