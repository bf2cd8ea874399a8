// Sixteenth round: after which waits a pool gives back what was freed, and lets a trim do so.
// Build: g++ -O2 -std=c++17 driver_probe16.cpp -o probe16 -lcuda      Run: ./probe16
#include "probe.h"

#include <cstdint>

static const char *const waits[] = {"none", "event_query", "event_wait", "context_event_query", "context_event_wait",
                                    "stream_query", "stream_wait", "other_stream_wait", "context_wait"};

static CUcontext context;
static CUstream stream, other;

static void wait_by(int how)
{
    CUevent event = nullptr;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    if (how == 1 || how == 2)
        MUST(cuEventRecord(event, stream));
    if (how == 3 || how == 4)
        MUST(cuCtxRecordEvent(context, event));
    usleep(20000); // by now all work is done
    switch (how) {
    case 1:
    case 3: MUST(cuEventQuery(event)); break;
    case 2:
    case 4: MUST(cuEventSynchronize(event)); break;
    case 5: MUST(cuStreamQuery(stream)); break;
    case 6: MUST(cuStreamSynchronize(stream)); break;
    case 7: MUST(cuStreamSynchronize(other)); break;
    case 8: MUST(cuCtxSynchronize()); break;
    default: break;
    }
    MUST(cuEventDestroy(event));
}

static const char *held(CUmemoryPool pool)
{
    cuuint64_t reserved = 0;
    MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    return reserved != 0 ? "kept" : "given_back";
}

int main()
{
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int all = 0; all < 2; all++)
        for (int how = 0; how < 9; how++) {
            CUmemPoolProps props = {};
            CUmemoryPool pool = nullptr;
            CUdeviceptr block = 0;
            cuuint64_t threshold = all ? UINT64_MAX : 0;
            props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
            props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
            MUST(cuMemPoolCreate(&pool, &props));
            MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
            MUST(cuCtxSynchronize());
            MUST(cuMemAllocFromPoolAsync(&block, 64 << 20, pool, stream));
            MUST(cuMemFreeAsync(block, stream));
            const std::string name = std::string(all ? "threshold_max." : "threshold_0.") + waits[how];
            wait_by(how);
            printf("%s = %s\n", name.c_str(), held(pool));
            MUST(cuMemPoolTrimTo(pool, 0));
            printf("%s.trim = %s\n", name.c_str(), held(pool));
            MUST(cuCtxSynchronize());
            MUST(cuMemPoolTrimTo(pool, 0));
            printf("%s.trim_after_context_wait = %s\n", name.c_str(), held(pool));
            MUST(cuMemPoolDestroy(pool));
        }
}
