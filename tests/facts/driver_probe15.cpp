// Fifteenth round: questions about the default streams: beside a capture of a blocking stream and of one that is not, and on a
// thread without a context.
// Build: g++ -O2 -std=c++17 driver_probe15.cpp -o probe15 -lcuda      Run: ./probe15
#include "probe.h"

static const CUstream streams[] = {nullptr, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
static const char *const names[] = {"null", "legacy", "per_thread"};
static const char *const questions[] = {"context", "priority"};

static void fact(const std::string &name, CUresult code)
{
    printf("%s = %s\n", name.c_str(), name_of(code));
}

static CUresult ask(int question, CUstream stream)
{
    CUcontext context = nullptr;
    int priority = 0;
    return question == 0 ? cuStreamGetCtx(stream, &context) : cuStreamGetPriority(stream, &priority);
}

int main()
{
    CUcontext context = nullptr;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    for (int blocking = 0; blocking < 2; blocking++)
        for (int question = 0; question < 2; question++)
            for (int which = 0; which < 3; which++) {
                CUstream stream = nullptr;
                CUgraph graph = nullptr;
                CUstreamCaptureStatus status;
                MUST(cuStreamCreate(&stream, blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
                MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
                const std::string name =
                    std::string(blocking ? "blocking." : "non_blocking.") + questions[question] + "." + names[which];
                fact(name, ask(question, streams[which]));
                MUST(cuStreamIsCapturing(stream, &status));
                printf("%s.status = %d\n", name.c_str(), (int)status);
                fact(name + ".end", cuStreamEndCapture(stream, &graph));
            }
    MUST(cuCtxSetCurrent(nullptr));
    for (int which = 0; which < 3; which++) {
        CUstreamCaptureStatus status;
        fact(std::string("no_context.context.") + names[which], ask(0, streams[which]));
        fact(std::string("no_context.capturing.") + names[which], cuStreamIsCapturing(streams[which], &status));
    }
}
