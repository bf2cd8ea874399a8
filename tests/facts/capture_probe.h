// capture_probe.h: what the probes of captures and graphs share: short answers, streams and events, forks and joins.
#ifndef WARPMEM_FACTS_CAPTURE_PROBE_H
#define WARPMEM_FACTS_CAPTURE_PROBE_H

#include "probe.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

static CUdevice device;
static CUcontext context;
static CUdeviceptr address; // where allocations go that nobody looks at

static std::string short_name(CUresult code)
{
    std::string name = name_of(code);
    const std::string prefix = "CUDA_ERROR_";
    return name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name == "CUDA_SUCCESS" ? "ok" : name;
}

static void start()
{
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
}

static CUstream make_stream(unsigned flags = CU_STREAM_NON_BLOCKING)
{
    CUstream stream = nullptr;
    MUST(cuStreamCreate(&stream, flags));
    return stream;
}

static CUevent make_event()
{
    CUevent event = nullptr;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static int status_of(CUstream stream)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)9;
    CUresult code = cuStreamIsCapturing(stream, &status);
    return code ? -(int)code : (int)status;
}

static size_t node_count(CUgraph graph)
{
    size_t count = 0;
    MUST(cuGraphGetNodes(graph, nullptr, &count));
    return count;
}

static std::string types_of(CUgraph graph)
{
    size_t count = node_count(graph);
    std::vector<CUgraphNode> nodes(count);
    if (count)
        MUST(cuGraphGetNodes(graph, nodes.data(), &count));
    std::string text;
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        MUST(cuGraphNodeGetType(nodes[i], &type));
        text += (i ? "," : "") + std::to_string((int)type);
    }
    return text.empty() ? "none" : text;
}

static void fact(const std::string &name, CUresult code)
{
    printf("%s = %s\n", name.c_str(), short_name(code).c_str());
}

static void CUDA_CB nothing(void *) {}

static CUdeviceptr plain;

static void begin(CUstream stream, int mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
{
    MUST(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

static void work(CUstream stream)
{
    MUST(cuMemsetD8Async(plain, 1, 4096, stream));
}

// Puts `to` behind all that `from` has by now, in its capture if there is one.
static CUevent link(CUstream from, CUstream to)
{
    CUevent event = make_event();
    MUST(cuEventRecord(event, from));
    MUST(cuStreamWaitEvent(to, event, 0));
    return event;
}

static std::string info_of(CUstream stream)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)9;
    cuuint64_t id = 99;
    CUgraph graph = (CUgraph)1;
    const CUgraphNode *nodes = nullptr;
    size_t count = 99;
    CUresult code = cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, nullptr, &count);
    return short_name(code) + " status=" + std::to_string((int)status) +
           " id=" + (id == 99 ? "unset" : id ? "some" : "0") + " graph=" + (graph == (CUgraph)1 ? "unset" : graph ? "some" : "0") + " count=" +
           (count == 99 ? std::string("unset") : std::to_string(count));
}

static std::string end_of(CUstream stream)
{
    CUgraph graph = (CUgraph)1;
    CUresult code = cuStreamEndCapture(stream, &graph);
    std::string what = graph == (CUgraph)1 ? "unset" : graph ? types_of(graph) : "0";
    return short_name(code) + " graph=" + what;
}

static void line(const std::string &name, const std::string &text)
{
    printf("%s = %s\n", name.c_str(), text.c_str());
}

static void scene(const char *name, const std::function<void(std::string)> &body)
{
    in_child(name, [&] {
        start();
        MUST(cuMemAlloc(&plain, 4096));
        body(name);
    });
}

#endif
