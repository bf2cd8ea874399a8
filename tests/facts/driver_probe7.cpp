// Seventh round: forks, joins, and how a capture ends; events of captures; captures of other threads.
// Build: g++ -O1 -std=c++17 driver_probe7.cpp -o probe7 -lcuda -lpthread      Run: ./probe7
#include "capture_probe.h"

int main()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    scene("info", [](std::string n) {
        CUstream s = make_stream();
        line(n + ".idle", info_of(s));
        begin(s);
        line(n + ".begun", info_of(s));
        work(s);
        line(n + ".one", info_of(s));
        cuCtxSynchronize();
        line(n + ".invalid", info_of(s));
        line(n + ".end", end_of(s));
        line(n + ".after", info_of(s));
    });
    scene("begin", [](std::string n) {
        CUstream s = make_stream();
        fact(n + ".mode7", cuStreamBeginCapture(s, (CUstreamCaptureMode)7));
        fact(n + ".per_thread", cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        line(n + ".per_thread.end", end_of(CU_STREAM_PER_THREAD));
        fact(n + ".legacy", cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
        fact(n + ".end_legacy", cuStreamEndCapture(CU_STREAM_LEGACY, nullptr));
        begin(s);
        fact(n + ".end_null", cuStreamEndCapture(s, nullptr));
        printf("%s.end_null.status = %d\n", n.c_str(), status_of(s));
        CUstreamCaptureMode mode = (CUstreamCaptureMode)3;
        fact(n + ".exchange_bad", cuThreadExchangeStreamCaptureMode(&mode));
    });
    for (int mode = 0; mode < 3; mode++)
        scene("thread", [=](std::string n) {
            n += std::to_string(mode);
            CUstream s = make_stream();
            begin(s, mode);
            std::thread([&] {
                MUST(cuCtxSetCurrent(context));
                fact(n + ".work", cuMemsetD8Async(plain, 1, 16, s));
                line(n + ".end_elsewhere", end_of(s));
            }).join();
            printf("%s.status = %d\n", n.c_str(), status_of(s));
            line(n + ".end", end_of(s));
        });
    scene("fork", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        begin(s);
        work(s);
        CUevent e = make_event();
        MUST(cuEventRecord(e, s));
        line(n + ".before", info_of(t));
        MUST(cuStreamWaitEvent(t, e, 0));
        line(n + ".forked", info_of(t));
        work(s);
        work(t);
        link(t, s);
        line(n + ".joined", info_of(s));
        line(n + ".joined_fork", info_of(t));
        work(s);
        fact(n + ".query_captured", cuEventQuery(e));
        printf("%s.query_captured.status = %d\n", n.c_str(), status_of(s));
        line(n + ".end", end_of(s));
        printf("%s.status_after = %d %d\n", n.c_str(), status_of(s), status_of(t));
        fact(n + ".query_after", cuEventQuery(e));
        fact(n + ".wait_after", cuStreamWaitEvent(s, e, 0));
        fact(n + ".sync_after", cuEventSynchronize(e));
        begin(s);
        fact(n + ".wait_in_next", cuStreamWaitEvent(s, e, 0));
        printf("%s.wait_in_next.status = %d\n", n.c_str(), status_of(s));
        line(n + ".next_end", end_of(s));
        MUST(cuEventRecord(e, s));
        fact(n + ".query_recorded_again", cuEventSynchronize(e));
    });
    scene("event_after_end", [](std::string n) {
        CUstream s = make_stream();
        CUevent e = make_event();
        begin(s);
        work(s);
        MUST(cuEventRecord(e, s));
        line(n + ".end", end_of(s));
        fact(n + ".query", cuEventQuery(e));
        fact(n + ".synchronize", cuEventSynchronize(e));
        fact(n + ".wait", cuStreamWaitEvent(s, e, 0));
        float ms;
        fact(n + ".elapsed", cuEventElapsedTime(&ms, e, e));
        begin(s);
        fact(n + ".wait_in_next", cuStreamWaitEvent(s, e, 0));
        printf("%s.wait_in_next.status = %d\n", n.c_str(), status_of(s));
        line(n + ".next_end", end_of(s));
        MUST(cuEventRecord(e, s));
        fact(n + ".recorded_again", cuEventSynchronize(e));
    });
    for (int mode = 0; mode < 3; mode++)
        scene("context_sync", [=](std::string n) {
            n += std::to_string(mode);
            CUstream s = make_stream();
            begin(s, mode);
            std::thread([&] {
                MUST(cuCtxSetCurrent(context));
                CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
                MUST(cuThreadExchangeStreamCaptureMode(&relaxed));
                fact(n + ".relaxed_thread", cuCtxSynchronize());
            }).join();
            printf("%s.status = %d\n", n.c_str(), status_of(s));
            line(n + ".end", end_of(s));
        });
    scene("context_sync_elsewhere", [](std::string n) {
        CUstream s = make_stream();
        CUcontext other;
        MUST(cuCtxCreate(&other, nullptr, 0, device));
        MUST(cuCtxSetCurrent(context));
        begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
        MUST(cuCtxSetCurrent(other));
        fact(n + ".relaxed", cuCtxSynchronize());
        MUST(cuCtxSetCurrent(context));
        line(n + ".relaxed.end", end_of(s));
        begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
        MUST(cuCtxSetCurrent(other));
        fact(n + ".global", cuCtxSynchronize());
        MUST(cuCtxSetCurrent(context));
        line(n + ".global.end", end_of(s));
    });
    for (int mode = 0; mode < 3; mode++)
        scene("thread_mode", [=](std::string n) {
            // What another thread's own mode means beside a capture of each mode.
            for (int own = 0; own < 4; own++) {
                CUstream s = make_stream();
                begin(s, mode);
                CUresult code = CUDA_SUCCESS, here = CUDA_SUCCESS;
                std::thread([&] {
                    MUST(cuCtxSetCurrent(context));
                    CUstreamCaptureMode m = (CUstreamCaptureMode)own;
                    MUST(cuThreadExchangeStreamCaptureMode(&m));
                    code = cuMemAlloc(&address, 4096);
                }).join();
                int status = status_of(s);
                CUstreamCaptureMode m = (CUstreamCaptureMode)own;
                MUST(cuThreadExchangeStreamCaptureMode(&m));
                here = cuMemAlloc(&address, 4096);
                MUST(cuThreadExchangeStreamCaptureMode(&m));
                printf("%s.capture%d.thread%d = elsewhere %s status=%d here %s status=%d\n", n.c_str(), mode, own,
                       short_name(code).c_str(), status, short_name(here).c_str(), status_of(s));
                end_of(s);
            }
        });
    scene("sync_captured", [](std::string n) {
        CUstream s = make_stream();
        CUevent e = make_event();
        begin(s);
        MUST(cuEventRecord(e, s));
        fact(n, cuEventSynchronize(e));
        printf("%s.status = %d\n", n.c_str(), status_of(s));
    });
    scene("elapsed_captured", [](std::string n) {
        CUstream s = make_stream();
        CUevent a, b;
        MUST(cuEventCreate(&a, 0));
        MUST(cuEventCreate(&b, 0));
        begin(s);
        MUST(cuEventRecord(a, s));
        MUST(cuEventRecord(b, s));
        float ms;
        fact(n, cuEventElapsedTime(&ms, a, b));
        printf("%s.status = %d\n", n.c_str(), status_of(s));
        fact(n + ".destroy", cuEventDestroy(a));
        printf("%s.destroy.status = %d\n", n.c_str(), status_of(s));
    });
    scene("event_moves", [](std::string n) {
        // An event that was captured is recorded elsewhere, and waited for again by the capture.
        CUstream s = make_stream(), t = make_stream();
        CUevent e = make_event();
        begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
        work(s);
        MUST(cuEventRecord(e, s));
        fact(n + ".record_outside", cuEventRecord(e, t));
        fact(n + ".query", cuEventQuery(e));
        fact(n + ".wait", cuStreamWaitEvent(s, e, 0));
        printf("%s.status = %d\n", n.c_str(), status_of(s));
        line(n + ".end", end_of(s));
    });
    scene("unjoined", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        begin(s);
        work(s);
        link(s, t);
        line(n + ".empty_fork", end_of(s));
        printf("%s.empty_fork.status = %d %d\n", n.c_str(), status_of(s), status_of(t));
        begin(s);
        link(s, t);
        work(t);
        line(n + ".end", end_of(s));
        printf("%s.status = %d %d\n", n.c_str(), status_of(s), status_of(t));
        line(n + ".end_again", end_of(s));
        line(n + ".end_fork", end_of(t));
        begin(s);
        link(s, t);
        work(t);
        link(t, s);
        work(t);
        line(n + ".work_after_join", end_of(s));
        begin(s);
        link(s, t);
        work(t);
        link(t, s);
        MUST(cuEventRecord(make_event(), t));
        line(n + ".record_after_join", end_of(s));
    });
    scene("unmatched", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        begin(s);
        link(s, t);
        work(t);
        fact(n + ".begin_fork", cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        line(n + ".end_fork", end_of(t));
        printf("%s.status = %d %d\n", n.c_str(), status_of(s), status_of(t));
        line(n + ".end", end_of(s));
        printf("%s.status_after = %d %d\n", n.c_str(), status_of(s), status_of(t));
    });
    scene("isolation", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        CUevent e = make_event();
        begin(s);
        MUST(cuEventRecord(e, t));
        fact(n + ".wait", cuStreamWaitEvent(s, e, 0));
        printf("%s.status = %d\n", n.c_str(), status_of(s));
        line(n + ".end", end_of(s));
        begin(s);
        CUevent c = make_event();
        MUST(cuEventRecord(c, s));
        fact(n + ".legacy_waits", cuStreamWaitEvent(nullptr, c, 0));
        printf("%s.legacy_waits.status = %d\n", n.c_str(), status_of(s));
        line(n + ".legacy_waits.end", end_of(s));
    });
    scene("merge", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        CUevent e = make_event();
        begin(s);
        begin(t);
        work(s);
        MUST(cuEventRecord(e, s));
        fact(n + ".wait", cuStreamWaitEvent(t, e, 0));
        printf("%s.status = %d %d\n", n.c_str(), status_of(s), status_of(t));
        line(n + ".end", end_of(s) + " and " + end_of(t));
    });
    scene("invalid", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        CUevent e = make_event();
        begin(s);
        work(s);
        MUST(cuEventRecord(e, s));
        link(s, t);
        cuStreamSynchronize(s);
        printf("%s.status = %d %d\n", n.c_str(), status_of(s), status_of(t));
        fact(n + ".work", cuMemsetD8Async(plain, 1, 16, s));
        fact(n + ".work_fork", cuMemsetD8Async(plain, 1, 16, t));
        fact(n + ".alloc", cuMemAllocAsync(&address, 16, s));
        fact(n + ".free", cuMemFreeAsync(plain, s));
        fact(n + ".record", cuEventRecord(make_event(), s));
        fact(n + ".wait", cuStreamWaitEvent(s, e, 0));
        fact(n + ".wait_other", cuStreamWaitEvent(make_stream(), e, 0));
        fact(n + ".host", cuLaunchHostFunc(s, nothing, nullptr));
        fact(n + ".query", cuStreamQuery(s));
        fact(n + ".begin", cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        fact(n + ".update", cuStreamUpdateCaptureDependencies(s, nullptr, nullptr, 0, 1));
        line(n + ".info_fork", info_of(t));
        line(n + ".end_fork", end_of(t));
        line(n + ".end", end_of(s));
        printf("%s.status_after = %d %d\n", n.c_str(), status_of(s), status_of(t));
    });
    scene("destroy_origin", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        begin(s);
        work(s);
        link(s, t);
        fact(n, cuStreamDestroy(s));
        printf("%s.fork_status = %d\n", n.c_str(), status_of(t));
        line(n + ".end_fork", end_of(t));
        printf("%s.fork_after = %d\n", n.c_str(), status_of(t));
        fact(n + ".alloc_after", cuMemAlloc(&address, 4096));
    });
    scene("destroy_fork", [](std::string n) {
        CUstream s = make_stream(), t = make_stream();
        begin(s);
        link(s, t);
        work(t);
        fact(n, cuStreamDestroy(t));
        printf("%s.status = %d\n", n.c_str(), status_of(s));
        line(n + ".end", end_of(s));
    });
    scene("to_graph", [](std::string n) {
        CUstream s = make_stream();
        CUgraph g;
        CUgraphNode a, b;
        MUST(cuGraphCreate(&g, 0));
        MUST(cuGraphAddEmptyNode(&a, g, nullptr, 0));
        MUST(cuGraphAddEmptyNode(&b, g, nullptr, 0));
        fact(n + ".begin", cuStreamBeginCaptureToGraph(s, g, &a, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
        line(n + ".info", info_of(s));
        fact(n + ".second", cuStreamBeginCaptureToGraph(make_stream(), g, nullptr, nullptr, 0,
                                                        CU_STREAM_CAPTURE_MODE_RELAXED));
        fact(n + ".destroy", cuGraphDestroy(g));
        work(s);
        CUgraph same = nullptr;
        MUST(cuStreamEndCapture(s, &same));
        printf("%s.same=%d types=%s\n", n.c_str(), same == g, types_of(g).c_str());
        size_t count = 0;
        MUST(cuGraphGetEdges(g, nullptr, nullptr, nullptr, &count));
        printf("%s.edges = %zu\n", n.c_str(), count);
        begin(s, 2);
        cuStreamSynchronize(s);
        line(n + ".invalid_own", end_of(s));
        MUST(cuStreamBeginCaptureToGraph(s, g, &b, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
        cuStreamSynchronize(s);
        line(n + ".invalid", end_of(s));
        fact(n + ".graph_after_invalid", cuGraphGetNodes(g, nullptr, &count));
    });
    scene("update", [](std::string n) {
        CUstream s = make_stream();
        CUgraph g;
        CUgraphNode node, node2;
        CUstreamCaptureStatus status;
        fact(n + ".idle", cuStreamUpdateCaptureDependencies(s, nullptr, nullptr, 0, 0));
        begin(s);
        work(s);
        MUST(cuStreamGetCaptureInfo(s, &status, nullptr, &g, nullptr, nullptr, nullptr));
        MUST(cuGraphAddEmptyNode(&node, g, nullptr, 0));
        MUST(cuGraphAddEmptyNode(&node2, g, nullptr, 0));
        fact(n + ".add", cuStreamUpdateCaptureDependencies(s, &node, nullptr, 1, 0));
        line(n + ".add.info", info_of(s));
        fact(n + ".add_again", cuStreamUpdateCaptureDependencies(s, &node, nullptr, 1, 0));
        line(n + ".add_again.info", info_of(s));
        fact(n + ".set", cuStreamUpdateCaptureDependencies(s, &node2, nullptr, 1, 1));
        line(n + ".set.info", info_of(s));
        work(s);
        line(n + ".end", end_of(s));
        begin(s);
        work(s);
        MUST(cuStreamGetCaptureInfo(s, &status, nullptr, &g, nullptr, nullptr, nullptr));
        MUST(cuStreamUpdateCaptureDependencies(s, nullptr, nullptr, 0, 1));
        line(n + ".set_none_end", end_of(s));
    });
    puts("done = 1");
}
