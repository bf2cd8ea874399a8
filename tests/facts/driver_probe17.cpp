// Seventeenth round: copies of rows and volumes, copies and fills beside another GPU's current context, copies between GPUs by
// every access; modules in captures and first launches there; host functions. Needs two GPUs.
// Build: g++ -O1 -std=c++17 driver_probe17.cpp -o probe17 -lcuda -lpthread      Run: ./probe17
#include "capture_probe.h"

#include <atomic>
#include <sys/mman.h>

static CUcontext contexts[2];
static CUstream streams[2]; // one of each GPU

// Cases in one child after the other: the next one goes on where a fault or a signal ended the last. The driver's contexts are
// beyond repair after a fault, and setting them up is what takes the time.
struct Progress {
    volatile int next;
    char name[200]; // of the case that is asked now, where it has one
};
static Progress *progress; // shared with the children

static void asks(const std::string &name)
{
    snprintf(progress->name, sizeof progress->name, "%s", name.c_str());
}

static bool spoilt()
{
    for (CUcontext one : contexts) {
        MUST(cuCtxSetCurrent(one));
        if (cuCtxSynchronize())
            return true;
    }
    MUST(cuCtxSetCurrent(contexts[0]));
    return false;
}

static void cases(const char *name, int count, const std::function<void()> &setup, const std::function<void(int)> &body)
{
    for (progress->next = 0; progress->next < count;) {
        const int before = progress->next;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(120);
            MUST(cuInit(0));
            for (int i = 0; i < 2; i++) {
                MUST(cuDevicePrimaryCtxRetain(&contexts[i], i));
                MUST(cuCtxSetCurrent(contexts[i]));
                streams[i] = make_stream();
            }
            MUST(cuCtxSetCurrent(contexts[0]));
            setup();
            while (progress->next < count) {
                const int now = progress->next;
                progress->next = now + 1;
                progress->name[0] = 0;
                body(now);
                fflush(stdout);
                if (spoilt())
                    break;
            }
            fflush(stdout);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (progress->next == before)
            progress->next = before + 1;
        if (WIFSIGNALED(status) && progress->name[0])
            printf("%s = SIGNAL %d\n", progress->name, WTERMSIG(status));
        else if (WIFSIGNALED(status))
            printf("%s.case%d = SIGNAL %d\n", name, progress->next - 1, WTERMSIG(status));
    }
}

// ---- Memory of every kind -----------------------------------------------------------------------------------------------

static const size_t ROOM = 64 << 10;

struct Kind {
    const char *name;
    int gpu; // -1: the host's
    bool host_reads;
};
static const Kind kinds[] = {{"pageable", -1, true}, {"pinned", -1, true}, {"managed", 0, true}, {"plain0", 0, false},
                             {"pool0", 0, false},    {"plain1", 1, false}, {"pool1", 1, false}};
static const int KINDS = 7;
static CUdeviceptr source[KINDS], target[KINDS];

static CUdeviceptr take(int kind)
{
    CUdeviceptr block = 0;
    const int gpu = kinds[kind].gpu < 0 ? 0 : kinds[kind].gpu;
    MUST(cuCtxSetCurrent(contexts[gpu]));
    switch (kind) {
    case 0: block = (CUdeviceptr)(uintptr_t)aligned_alloc(4096, ROOM); break;
    case 1: {
        void *host = nullptr;
        MUST(cuMemHostAlloc(&host, ROOM, CU_MEMHOSTALLOC_PORTABLE));
        block = (CUdeviceptr)(uintptr_t)host;
        break;
    }
    case 2: MUST(cuMemAllocManaged(&block, ROOM, CU_MEM_ATTACH_GLOBAL)); break;
    case 3:
    case 5: MUST(cuMemAlloc(&block, ROOM)); break;
    default: {
        CUmemoryPool pool = nullptr;
        MUST(cuDeviceGetDefaultMemPool(&pool, gpu));
        MUST(cuMemAllocFromPoolAsync(&block, ROOM, pool, streams[gpu]));
        MUST(cuStreamSynchronize(streams[gpu]));
    }
    }
    MUST(cuCtxSetCurrent(contexts[0]));
    return block;
}

static void put(int kind, CUdeviceptr at, const uint8_t *bytes, size_t size)
{
    if (kinds[kind].host_reads) {
        memcpy((void *)(uintptr_t)at, bytes, size);
        return;
    }
    MUST(cuCtxSetCurrent(contexts[kinds[kind].gpu]));
    MUST(cuMemcpyHtoD(at, bytes, size));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(contexts[0]));
}

static void get(int kind, CUdeviceptr at, uint8_t *bytes, size_t size)
{
    if (kinds[kind].host_reads) {
        memcpy(bytes, (const void *)(uintptr_t)at, size);
        return;
    }
    MUST(cuCtxSetCurrent(contexts[kinds[kind].gpu]));
    MUST(cuMemcpyDtoH(bytes, at, size));
    MUST(cuCtxSetCurrent(contexts[0]));
}

// What may be reached: by whom, whose. Letters as they stand in names.
struct Access {
    const char *name;
    bool peer01, peer10, pool01, pool10; // peer01: GPU 0 reaches memory of GPU 1
};
static const Access accesses[] = {
    {"none", false, false, false, false},
    {"peer_by_0", true, false, false, false},
    {"peer_by_1", false, true, false, false},
    {"pool_by_0", false, false, true, false},
    {"pool_by_1", false, false, false, true},
    {"peers", true, true, false, false},
    {"pools", false, false, true, true},
    {"all", true, true, true, true},
};
static const int ACCESSES = 8;

static void grant(const Access &access)
{
    for (int by = 0; by < 2; by++) {
        if (by == 0 ? access.peer01 : access.peer10) {
            MUST(cuCtxSetCurrent(contexts[by]));
            MUST(cuCtxEnablePeerAccess(contexts[1 - by], 0));
        }
        if (by == 0 ? access.pool01 : access.pool10) {
            CUmemoryPool pool = nullptr;
            CUmemAccessDesc wanted = {};
            MUST(cuDeviceGetDefaultMemPool(&pool, 1 - by));
            wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            wanted.location.id = by;
            wanted.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            MUST(cuMemPoolSetAccess(pool, &wanted, 1));
        }
    }
    MUST(cuCtxSetCurrent(contexts[0]));
}

static std::vector<uint8_t> pattern(int which)
{
    std::vector<uint8_t> bytes(ROOM);
    for (size_t i = 0; i < ROOM; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251 + which * 101);
    return bytes;
}

static void set_up_kinds(const Access &access)
{
    for (int kind = 0; kind < KINDS; kind++) {
        source[kind] = take(kind);
        target[kind] = take(kind);
    }
    grant(access);
}

// ---- One call, outside of a capture and in one --------------------------------------------------------------------------

struct Piece {
    size_t to, from, size;
};

struct Operation {
    std::function<CUresult(CUstream)> call;
    std::vector<Piece> pieces; // what it copies; no pieces: what is in the destination is not looked at
    int to_kind, from_kind;
    CUdeviceptr to, from;
};

static void make_current(int which)
{
    MUST(cuCtxSetCurrent(which < 0 ? nullptr : contexts[which]));
}

static std::vector<uint8_t> expected(const Operation &op, const std::vector<uint8_t> &from)
{
    std::vector<uint8_t> bytes(ROOM, 0xEE);
    for (const Piece &piece : op.pieces)
        memcpy(&bytes[piece.to], &from[piece.from], piece.size);
    return bytes;
}

static std::vector<uint8_t> found(const Operation &op)
{
    std::vector<uint8_t> bytes(ROOM);
    get(op.to_kind, op.to, bytes.data(), ROOM);
    return bytes;
}

static void prepare(const Operation &op, int which)
{
    if (op.pieces.empty())
        return;
    const std::vector<uint8_t> empty(ROOM, 0xEE);
    put(op.from_kind, op.from, pattern(which).data(), ROOM);
    put(op.to_kind, op.to, empty.data(), ROOM);
}

static std::string outside(const Operation &op, int stream, int current)
{
    prepare(op, 0);
    make_current(current);
    CUresult code = op.call(streams[stream]);
    make_current(stream);
    CUresult done = cuStreamSynchronize(streams[stream]);
    make_current(0);
    if (code)
        return short_name(code);
    if (done)
        return "sync:" + short_name(done);
    return op.pieces.empty() || found(op) == expected(op, pattern(0)) ? "ok" : "wrong";
}

static std::string captured(const Operation &op, int stream, int current)
{
    CUstream s = streams[stream];
    prepare(op, 0);
    make_current(stream);
    begin(s);
    make_current(current);
    CUresult code = op.call(s);
    make_current(stream);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUresult end = cuStreamEndCapture(s, &graph);
    if (code || end) {
        make_current(0);
        return (code ? short_name(code) : "") + (end ? (code ? "+end:" : "end:") + short_name(end) : "");
    }
    if (node_count(graph) == 0) {
        make_current(0);
        return "no_node";
    }
    CUresult made = cuGraphInstantiateWithFlags(&exec, graph, 0);
    if (made) {
        make_current(0);
        return "instantiate:" + short_name(made);
    }
    // What is read is what is there at the launch.
    prepare(op, 1);
    make_current(stream);
    CUresult launched = cuGraphLaunch(exec, s), done = cuStreamSynchronize(s);
    std::string types = types_of(graph);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    make_current(0);
    if (launched)
        return "launch:" + short_name(launched);
    if (done)
        return "sync:" + short_name(done);
    if (op.pieces.empty() || found(op) == expected(op, pattern(1)))
        return "ok";
    return found(op) == expected(op, pattern(0)) ? "stale" : "wrong";
}

// Which stream, which context is current: -1 for none.
static const int places[6][2] = {{0, 0}, {0, 1}, {0, -1}, {1, 1}, {1, 0}, {1, -1}};

static std::string place_name(const int place[2])
{
    return "s" + std::to_string(place[0]) + "c" + (place[1] < 0 ? "_" : std::to_string(place[1]));
}

static std::string in_place(const Operation &op, const int place[2], bool inside)
{
    return inside ? captured(op, place[0], place[1]) : outside(op, place[0], place[1]);
}

// All places on one line, or all that have a context; one word where all answer alike.
static void in_all_places(const std::string &name, const Operation &op, bool with_context = false)
{
    asks(name);
    for (int inside = 0; inside < 2; inside++) {
        std::string all, first;
        bool alike = true;
        for (auto &place : places) {
            if (with_context && place[1] < 0)
                continue;
            std::string answer = in_place(op, place, inside);
            if (first.empty())
                first = answer;
            alike = alike && answer == first;
            all += (all.empty() ? "" : " ") + place_name(place) + ":" + answer;
        }
        line(name + (inside ? ".captured" : ""), alike ? first : all);
    }
}

// The places without a context, each a case of its own: where the driver finds no context that reaches the memory it crashes.
static const int PLACES_WITHOUT = 4;

static void in_place_without(const std::string &name, const Operation &op, int which)
{
    const bool inside = which / 2;
    const int place[2] = {which % 2, -1};
    const std::string full = name + (inside ? ".captured." : ".") + place_name(place);
    asks(full);
    line(full, in_place(op, place, inside));
}

// ---- Descriptions -------------------------------------------------------------------------------------------------------

static CUDA_MEMCPY2D plane(CUdeviceptr to, int to_type, CUdeviceptr from, int from_type)
{
    CUDA_MEMCPY2D what = {};
    what.srcMemoryType = (CUmemorytype)from_type;
    what.srcDevice = from;
    what.srcHost = (const void *)(uintptr_t)from;
    what.dstMemoryType = (CUmemorytype)to_type;
    what.dstDevice = to;
    what.dstHost = (void *)(uintptr_t)to;
    what.srcPitch = 160;
    what.dstPitch = 128;
    what.WidthInBytes = 100;
    what.Height = 7;
    return what;
}

static CUDA_MEMCPY3D_PEER volume(CUdeviceptr to, int to_type, CUdeviceptr from, int from_type)
{
    CUDA_MEMCPY3D_PEER what = {};
    what.srcMemoryType = (CUmemorytype)from_type;
    what.srcDevice = from;
    what.srcHost = (const void *)(uintptr_t)from;
    what.dstMemoryType = (CUmemorytype)to_type;
    what.dstDevice = to;
    what.dstHost = (void *)(uintptr_t)to;
    what.srcPitch = 96;
    what.srcHeight = 6;
    what.dstPitch = 80;
    what.dstHeight = 5;
    what.WidthInBytes = 60;
    what.Height = 4;
    what.Depth = 3;
    return what;
}

// The same without contexts.
static CUDA_MEMCPY3D plain_volume(const CUDA_MEMCPY3D_PEER &peer)
{
    CUDA_MEMCPY3D what = {};
    static_assert(sizeof what == sizeof peer, "the reserved words are the contexts");
    memcpy(&what, &peer, sizeof what);
    what.reserved0 = what.reserved1 = nullptr;
    return what;
}

static std::vector<Piece> pieces_of(const CUDA_MEMCPY2D &what, size_t to, size_t from)
{
    std::vector<Piece> pieces;
    for (size_t row = 0; row < what.Height; row++)
        pieces.push_back({to + row * what.dstPitch, from + row * what.srcPitch, what.WidthInBytes});
    return pieces;
}

static std::vector<Piece> pieces_of(const CUDA_MEMCPY3D_PEER &what, size_t to, size_t from)
{
    std::vector<Piece> pieces;
    for (size_t slice = 0; slice < what.Depth; slice++)
        for (size_t row = 0; row < what.Height; row++)
            pieces.push_back({to + (slice * what.dstHeight + row) * what.dstPitch,
                              from + (slice * what.srcHeight + row) * what.srcPitch, what.WidthInBytes});
    return pieces;
}

static const char *const call_names[] = {"line", "rows", "volume", "peer_line", "peer_volume"};
static const int UNIFIED = CU_MEMORYTYPE_UNIFIED;

static Operation copy_by(int call, int to, int from)
{
    Operation op = {};
    op.to_kind = to;
    op.from_kind = from;
    op.to = target[to];
    op.from = source[from];
    const CUdeviceptr a = op.to + 256, b = op.from + 512;
    CUcontext to_context = contexts[kinds[to].gpu == 1], from_context = contexts[kinds[from].gpu == 1];
    switch (call) {
    case 0:
        op.pieces = {{256, 512, 3000}};
        op.call = [=](CUstream s) { return cuMemcpyAsync(a, b, 3000, s); };
        break;
    case 1: {
        CUDA_MEMCPY2D what = plane(a, UNIFIED, b, UNIFIED);
        op.pieces = pieces_of(what, 256, 512);
        op.call = [=](CUstream s) { return cuMemcpy2DAsync(&what, s); };
        break;
    }
    case 3:
        op.pieces = {{256, 512, 3000}};
        op.call = [=](CUstream s) { return cuMemcpyPeerAsync(a, to_context, b, from_context, 3000, s); };
        break;
    default: {
        CUDA_MEMCPY3D_PEER what = volume(a, UNIFIED, b, UNIFIED);
        what.dstContext = to_context;
        what.srcContext = from_context;
        op.pieces = pieces_of(what, 256, 512);
        if (call == 4) {
            op.call = [=](CUstream s) { return cuMemcpy3DPeerAsync(&what, s); };
        } else {
            CUDA_MEMCPY3D same = plain_volume(what);
            op.call = [=](CUstream s) { return cuMemcpy3DAsync(&same, s); };
        }
    }
    }
    return op;
}

static bool is_pool(int kind)
{
    return kind == 4 || kind == 6;
}

static bool reaches_pool(const Access &access, int gpu, int kind)
{
    return !is_pool(kind) || kinds[kind].gpu == gpu || (gpu == 0 ? access.pool01 : access.pool10);
}

// Whether the driver may find no context that reaches the pool memory when none is current. Memory that has a context (plain and
// managed) brings one; without such memory there is the stream's.
static bool may_crash(const Access &access, int call, int to, int from)
{
    if (call > 2)
        return false;
    for (int gpu = 0; gpu < 2; gpu++) {
        bool possible = true;
        for (int kind : {to, from})
            possible = possible && (kinds[kind].gpu < 0 || is_pool(kind) || kinds[kind].gpu == gpu);
        if (possible && !(reaches_pool(access, gpu, to) && reaches_pool(access, gpu, from)))
            return true;
    }
    return false;
}

// Every call between all kinds, by every access.
static void copies()
{
    const int parts = 1 + PLACES_WITHOUT;
    for (int a = 0; a < ACCESSES; a++) {
        const Access &access = accesses[a];
        const bool everything = a == 0 || a == ACCESSES - 1;
        cases(access.name, 5 * KINDS * KINDS * parts, [&] { set_up_kinds(access); }, [&](int index) {
            const int number = index / parts, part = index % parts;
            const int call = number / (KINDS * KINDS), from = number / KINDS % KINDS, to = number % KINDS;
            const bool between = from >= 3 && to >= 3 && kinds[from].gpu != kinds[to].gpu;
            // One kind of access more tells only about two GPUs.
            if (!everything && !between)
                return;
            const bool risky = may_crash(access, call, to, from);
            const std::string name =
                std::string(call_names[call]) + "." + access.name + "." + kinds[from].name + "_to_" + kinds[to].name;
            if (part == 0)
                in_all_places(name, copy_by(call, to, from), risky);
            // Each crash costs a child: that all calls have them in the same places is asked with one access, outside of captures.
            else if (risky && (call == 0 || (a == 0 && part <= 2)))
                in_place_without(name, copy_by(call, to, from), part - 1);
        });
    }
}

// Memory that is mapped on one GPU has no context either.
static CUdeviceptr map_on(int gpu)
{
    CUmemAllocationProp what = {};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.location.id = gpu;
    const size_t size = 2 << 20;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;
    MUST(cuMemCreate(&handle, size, &what, 0));
    MUST(cuMemAddressReserve(&at, size, 0, 0, 0));
    MUST(cuMemMap(at, size, 0, handle, 0));
    CUmemAccessDesc access = {};
    access.location = what.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    MUST(cuMemSetAccess(at, size, &access, 1));
    return at;
}

static void mapped()
{
    static const int partners[] = {1, 3, 5}; // pinned, plain0, plain1
    const int parts = 1 + PLACES_WITHOUT;
    auto setup = [] {
        set_up_kinds(accesses[0]);
        source[4] = map_on(0);
        target[4] = map_on(0);
    };
    cases("mapped", 6 * parts, setup, [&](int index) {
        const int partner = partners[index / parts / 2], part = index % parts;
        const bool back = index / parts % 2;
        const Operation op = back ? copy_by(0, partner, 4) : copy_by(0, 4, partner);
        const std::string name = std::string("mapped.") + kinds[partner].name + (back ? "_of_mapped0" : "_to_mapped0");
        const bool risky = partner != 3;
        if (part == 0)
            in_all_places(name, op, risky);
        else if (risky)
            in_place_without(name, op, part - 1);
    });
    cases("mapped", 1, setup, [](int) {
        Operation op = {};
        op.call = [](CUstream s) { return cuMemsetD8Async(target[4], 0x11, 1000, s); };
        op.to_kind = op.from_kind = 4;
        in_all_places("mapped.fill", op);
    });
}

// Copies by contexts that are not those of the memory, and of other sizes.
static void peers()
{
    for (int a : {0, 5, 6, 7}) {
        const Access &access = accesses[a];
        cases("peers", 4 * 4 * 4, [&] { set_up_kinds(access); }, [&](int number) {
            const int from = 3 + number / 16, to = 3 + number / 4 % 4, contexts_as = number % 4;
            Operation op = {};
            op.to_kind = to;
            op.from_kind = from;
            op.to = target[to];
            op.from = source[from];
            op.pieces = {{1, 3, 4099}};
            CUcontext to_context = contexts[contexts_as & 1], from_context = contexts[contexts_as >> 1];
            op.call = [=](CUstream s) { return cuMemcpyPeerAsync(op.to + 1, to_context, op.from + 3, from_context, 4099, s); };
            line(std::string("peers.") + access.name + "." + kinds[from].name + "_of_" + std::to_string(contexts_as >> 1) + "_to_" +
                     kinds[to].name + "_of_" + std::to_string(contexts_as & 1),
                 outside(op, kinds[to].gpu, kinds[to].gpu));
        });
    }
    cases("peers", 1, [] { set_up_kinds(accesses[0]); }, [](int) {
        fact("peers.no_bytes", cuMemcpyPeerAsync(target[3], contexts[0], source[5], contexts[1], 0, streams[0]));
        fact("peers.no_bytes_null", cuMemcpyPeerAsync(0, contexts[0], 0, contexts[1], 0, streams[0]));
        fact("peers.null_context", cuMemcpyPeerAsync(target[3], nullptr, source[5], contexts[1], 16, streams[0]));
        fact("peers.null_source", cuMemcpyPeerAsync(target[3], contexts[0], 0, contexts[1], 16, streams[0]));
        fact("peers.null_stream", cuMemcpyPeerAsync(target[3], contexts[0], source[5], contexts[1], 16, nullptr));
        fact("peers.past_the_end", cuMemcpyPeerAsync(target[3], contexts[0], source[5] + ROOM - 8, contexts[1], 16, streams[0]));
        MUST(cuCtxSynchronize());
    });
    // Without a context of its own an end has the current one's, or none; by descriptions of both types.
    cases("peers", 2 * 4 * 3, [] { set_up_kinds(accesses[0]); }, [](int number) {
        const int way = number / 12, kind = 3 + number / 3 % 4, current = number % 3 - 1;
        const int place[2] = {0, current};
        const std::string name =
            std::string("peers.") + (way ? "volume_" : "") + "no_context." + kinds[kind].name + "." + place_name(place);
        asks(name);
        make_current(current);
        CUresult code;
        if (way) {
            CUDA_MEMCPY3D_PEER what = volume(target[kind], CU_MEMORYTYPE_DEVICE, source[3], CU_MEMORYTYPE_DEVICE);
            what.srcContext = contexts[0];
            code = cuMemcpy3DPeerAsync(&what, streams[0]);
        } else {
            code = cuMemcpyPeerAsync(target[kind], nullptr, source[3], contexts[0], 16, streams[0]);
        }
        fact(name, code);
        make_current(0);
        MUST(cuStreamSynchronize(streams[0]));
    });
    cases("peers", 2 * 4 * 2, [] { set_up_kinds(accesses[0]); }, [](int number) {
        const int type = number / 8 ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE, kind = 3 + number / 2 % 4, of = number % 2;
        CUDA_MEMCPY3D_PEER what = volume(target[kind], type, source[3], type);
        what.srcContext = contexts[0];
        what.dstContext = contexts[of];
        fact(std::string("peers.volume_") + (number / 8 ? "unified" : "device") + ".to_" + kinds[kind].name + "_of_" +
                 std::to_string(of),
             cuMemcpy3DPeerAsync(&what, streams[0]));
        MUST(cuStreamSynchronize(streams[0]));
    });
}

// Fills, by whatever context is current.
static void fills()
{
    static const char *const names[] = {"bytes", "shorts", "words", "rows"};
    for (int a : {0, 7}) {
        const Access &access = accesses[a];
        cases("fills", 4 * KINDS, [&] { set_up_kinds(access); }, [&](int number) {
            const int which = number / KINDS, kind = number % KINDS;
            Operation op = {};
            op.to_kind = op.from_kind = kind;
            op.to = target[kind];
            op.from = source[kind];
            const CUdeviceptr at = op.to + 256;
            op.call = [=](CUstream s) {
                switch (which) {
                case 0: return cuMemsetD8Async(at, 0x11, 1000, s);
                case 1: return cuMemsetD16Async(at, 0x1111, 500, s);
                case 2: return cuMemsetD32Async(at, 0x11111111, 250, s);
                default: return cuMemsetD2D8Async(at, 100, 0x11, 60, 10, s);
                }
            };
            in_all_places(std::string("fill.") + names[which] + "." + access.name + "." + kinds[kind].name, op);
        });
    }
    cases("fills", 1, [] { set_up_kinds(accesses[0]); }, [](int) {
        const CUdeviceptr at = target[3];
        fact("fill.rows.pitch_below_width", cuMemsetD2D8Async(at, 32, 1, 64, 4, streams[0]));
        fact("fill.rows.pitch_below_width_one_row", cuMemsetD2D8Async(at, 32, 1, 64, 1, streams[0]));
        fact("fill.rows.pitch_0", cuMemsetD2D8Async(at, 0, 1, 64, 4, streams[0]));
        fact("fill.rows.width_0", cuMemsetD2D8Async(at, 64, 1, 0, 4, streams[0]));
        fact("fill.rows.height_0", cuMemsetD2D8Async(at, 64, 1, 64, 0, streams[0]));
        fact("fill.rows.words_odd_pitch", cuMemsetD2D32Async(at, 67, 1, 16, 4, streams[0]));
        fact("fill.rows.words_odd_address", cuMemsetD2D32Async(at + 1, 68, 1, 16, 4, streams[0]));
        fact("fill.rows.tall", cuMemsetD2D8Async(at, 1, 1, 1, 60000, streams[0]));
        fact("fill.rows.past_the_end", cuMemsetD2D8Async(at + ROOM - 128, 64, 1, 64, 4, streams[0]));
        fact("fill.past_the_end", cuMemsetD8Async(at + ROOM - 128, 1, 256, streams[0]));
        MUST(cuStreamSynchronize(streams[0]));
    });
    // Pitches that are no whole number of elements, and what a capture takes up before it is found to be wrong.
    struct Ask {
        const char *name;
        std::function<CUresult(CUdeviceptr, CUstream)> call;
    };
    static const Ask asked[] = {
        {"words_pitch_66", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D32Async(at, 66, 1, 16, 4, s); }},
        {"words_pitch_67", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D32Async(at, 67, 1, 16, 4, s); }},
        {"words_pitch_67_one_row", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D32Async(at, 67, 1, 16, 1, s); }},
        {"words_pitch_67_width_0", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D32Async(at, 67, 1, 0, 4, s); }},
        {"words_pitch_67_height_0", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D32Async(at, 67, 1, 16, 0, s); }},
        {"words_pitch_63_one_row", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D32Async(at, 63, 1, 16, 1, s); }},
        {"words_pitch_0_one_row", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D32Async(at, 0, 1, 16, 1, s); }},
        {"shorts_pitch_67", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D16Async(at, 67, 1, 16, 4, s); }},
        {"shorts_pitch_66", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D16Async(at, 66, 1, 16, 4, s); }},
        {"shorts_pitch_67_one_row", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D16Async(at, 67, 1, 16, 1, s); }},
        {"pitch_below_width", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D8Async(at, 32, 1, 64, 4, s); }},
        {"pitch_below_width_one_row", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D8Async(at, 32, 1, 64, 1, s); }},
        {"words_odd_address", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D32Async(at + 1, 68, 1, 16, 4, s); }},
        {"line_odd_address", [](CUdeviceptr at, CUstream s) { return cuMemsetD32Async(at + 1, 1, 16, s); }},
        {"no_bytes", [](CUdeviceptr at, CUstream s) { return cuMemsetD8Async(at, 1, 0, s); }},
        {"no_bytes_null", [](CUdeviceptr, CUstream s) { return cuMemsetD8Async(0, 1, 0, s); }},
        {"null", [](CUdeviceptr, CUstream s) { return cuMemsetD8Async(0, 1, 16, s); }},
        {"line_past_the_end", [](CUdeviceptr at, CUstream s) { return cuMemsetD8Async(at + ROOM - 128, 1, 256, s); }},
        {"rows_past_the_end", [](CUdeviceptr at, CUstream s) { return cuMemsetD2D8Async(at + ROOM - 128, 64, 1, 64, 4, s); }},
    };
    cases("fills", sizeof asked / sizeof asked[0], [] { set_up_kinds(accesses[0]); }, [](int number) {
        for (int inside = 0; inside < 2; inside++) {
            const std::string name = std::string("fill.asked.") + asked[number].name + (inside ? ".captured" : "");
            asks(name);
            Operation op = {};
            op.call = [=](CUstream s) { return asked[number].call(target[3], s); };
            const int place[2] = {0, 0};
            line(name, in_place(op, place, inside));
        }
    });
    // Memory that was freed, before the fill and before the instantiation.
    cases("fills", 2, [] { set_up_kinds(accesses[0]); }, [](int between) {
        CUdeviceptr at = 0;
        MUST(cuMemAlloc(&at, 4096));
        begin(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED);
        if (!between)
            MUST(cuMemFree(at));
        CUresult code = cuMemsetD8Async(at, 1, 64, streams[0]);
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        CUresult end = cuStreamEndCapture(streams[0], &graph), made = CUDA_SUCCESS;
        if (between)
            MUST(cuMemFree(at));
        if (graph)
            made = cuGraphInstantiateWithFlags(&exec, graph, 0);
        line(between ? "fill.freed_before_instantiate" : "fill.freed_before_capture",
             short_name(code) + " end=" + short_name(end) + " instantiate=" + short_name(made));
    });
    // Fills that wait, on the legacy stream of the current context; and as nodes.
    for (int a : {0, 7})
        cases("fills", KINDS * 2, [&] { set_up_kinds(accesses[a]); }, [&](int number) {
            const int kind = number / 2, current = number % 2;
            const std::string name =
                std::string(accesses[a].name) + "." + kinds[kind].name + ".c" + std::to_string(current);
            make_current(current);
            fact("fill.waiting." + name, cuMemsetD8(target[kind] + 256, 0x11, 1000));
            CUgraph graph = nullptr;
            CUgraphNode node = nullptr;
            CUgraphExec exec = nullptr;
            CUDA_MEMSET_NODE_PARAMS what = {};
            what.dst = target[kind] + 256;
            what.elementSize = 1;
            what.width = 1000;
            what.height = 1;
            MUST(cuGraphCreate(&graph, 0));
            CUresult added = cuGraphAddMemsetNode(&node, graph, nullptr, 0, &what, contexts[current]), made = CUDA_SUCCESS;
            if (!added)
                made = cuGraphInstantiateWithFlags(&exec, graph, 0);
            line("fill.node." + name, added ? short_name(added) : "ok instantiate=" + short_name(made));
            make_current(0);
        });
}

// ---- Rules --------------------------------------------------------------------------------------------------------------

static const size_t WHOLE = 4 << 20, HUGE_BYTES = (4ull << 30) + (64 << 20);
static CUdeviceptr place_of[3][2]; // plain, pinned, pageable; to and from
static CUdeviceptr huge;

struct Rule {
    const char *name;
    std::function<void(CUDA_MEMCPY3D_PEER &)> change;
    int calls; // 1: rows, 2: volumes, 4: volumes by contexts
};

typedef CUDA_MEMCPY3D_PEER Asked;
static const int ROWS = 1, VOLUMES = 2, PEERS = 4, ALL = 7;

static const Rule rules[] = {
    {"usual", [](Asked &) {}, ALL},
    {"pitch_is_width", [](Asked &a) { a.srcPitch = a.dstPitch = a.WidthInBytes; }, ALL},
    {"src_pitch_below_width", [](Asked &a) { a.srcPitch = 32; }, ALL},
    {"dst_pitch_below_width", [](Asked &a) { a.dstPitch = 32; }, ALL},
    {"pitch_below_width_one_row", [](Asked &a) { a.srcPitch = a.dstPitch = 32, a.Height = a.Depth = 1; }, ALL},
    {"src_pitch_0", [](Asked &a) { a.srcPitch = 0; }, ALL},
    {"dst_pitch_0", [](Asked &a) { a.dstPitch = 0; }, ALL},
    {"pitches_0", [](Asked &a) { a.srcPitch = a.dstPitch = 0; }, ALL},
    {"pitches_0_one_row", [](Asked &a) { a.srcPitch = a.dstPitch = 0, a.Height = a.Depth = 1; }, ALL},
    {"width_0", [](Asked &a) { a.WidthInBytes = 0; }, ALL},
    {"height_0", [](Asked &a) { a.Height = 0; }, ALL},
    {"depth_0", [](Asked &a) { a.Depth = 0; }, VOLUMES | PEERS},
    {"nothing_null", [](Asked &a) { a.WidthInBytes = a.Height = 0, a.srcDevice = a.dstDevice = 0, a.srcHost = nullptr, a.dstHost = nullptr; }, ALL},
    {"src_null", [](Asked &a) { a.srcDevice = 0, a.srcHost = nullptr; }, ALL},
    {"dst_null", [](Asked &a) { a.dstDevice = 0, a.dstHost = nullptr; }, ALL},
    {"x_past_pitch", [](Asked &a) { a.srcXInBytes = 120; }, ALL},
    {"x_and_y", [](Asked &a) { a.srcXInBytes = 13, a.srcY = 1, a.dstXInBytes = 7, a.dstY = 1; }, ALL},
    {"z", [](Asked &a) { a.srcZ = 2, a.dstZ = 1; }, VOLUMES | PEERS},
    {"odd", [](Asked &a) { a.srcPitch = 163, a.dstPitch = 131, a.WidthInBytes = 99, a.srcDevice += 3, a.dstDevice += 5, a.srcHost = (char *)a.srcHost + 3, a.dstHost = (char *)a.dstHost + 5; }, ALL},
    {"src_height_below", [](Asked &a) { a.srcHeight = 3; }, VOLUMES | PEERS},
    {"dst_height_below", [](Asked &a) { a.dstHeight = 3; }, VOLUMES | PEERS},
    {"height_below_one_slice", [](Asked &a) { a.srcHeight = a.dstHeight = 2, a.Depth = 1; }, VOLUMES | PEERS},
    {"heights_0", [](Asked &a) { a.srcHeight = a.dstHeight = 0; }, VOLUMES | PEERS},
    {"heights_0_one_slice", [](Asked &a) { a.srcHeight = a.dstHeight = 0, a.Depth = 1; }, VOLUMES | PEERS},
    {"y_past_height", [](Asked &a) { a.srcY = 4; }, VOLUMES | PEERS},
    {"tall", [](Asked &a) { a.WidthInBytes = 1, a.srcPitch = 2, a.dstPitch = 3, a.Height = 70000, a.srcHeight = a.dstHeight = 70000, a.Depth = 1; }, ALL},
    {"taller", [](Asked &a) { a.WidthInBytes = 1, a.srcPitch = 2, a.dstPitch = 3, a.Height = 1 << 20, a.srcHeight = a.dstHeight = 1 << 20, a.Depth = 1; }, ALL},
    {"deep", [](Asked &a) { a.WidthInBytes = 1, a.srcPitch = 2, a.dstPitch = 3, a.Height = a.srcHeight = a.dstHeight = 1, a.Depth = 70000; }, VOLUMES | PEERS},
    {"deep_slices", [](Asked &a) { a.WidthInBytes = 2, a.srcPitch = 4, a.dstPitch = 3, a.Height = 2, a.srcHeight = 3, a.dstHeight = 4, a.Depth = 70000; }, VOLUMES | PEERS},
    {"wide", [](Asked &a) { a.WidthInBytes = 1 << 20, a.srcPitch = (1 << 20) + 1, a.dstPitch = (1 << 20) + 2, a.Height = 2, a.Depth = 1; }, ALL},
    {"type_0", [](Asked &a) { a.srcMemoryType = (CUmemorytype)0; }, ALL},
    {"type_5", [](Asked &a) { a.dstMemoryType = (CUmemorytype)5; }, ALL},
    {"no_array", [](Asked &a) { a.srcMemoryType = CU_MEMORYTYPE_ARRAY, a.srcArray = nullptr; }, ALL},
    {"lod", [](Asked &a) { a.srcLOD = 1; }, VOLUMES | PEERS},
    {"no_src_context", [](Asked &a) { a.srcContext = nullptr; }, PEERS},
    {"no_dst_context", [](Asked &a) { a.dstContext = nullptr; }, PEERS},
    {"other_contexts", [](Asked &a) { a.srcContext = a.dstContext = contexts[1]; }, PEERS},
    {"overlap", [](Asked &a) { a.dstDevice = a.srcDevice + 32, a.dstHost = (char *)a.srcHost + 32; }, ALL},
    {"last_padding_past_the_end", [](Asked &a) { a.srcPitch = 1 << 20, a.Height = 4, a.Depth = 1, a.srcHeight = 4, a.srcXInBytes = (1 << 20) - 612; }, ALL},
    {"src_past_the_end", [](Asked &a) { a.srcDevice += WHOLE - 512 - 128, a.srcHost = (char *)a.srcHost + WHOLE - 512 - 128; }, ALL},
    {"dst_past_the_end", [](Asked &a) { a.dstDevice += WHOLE - 256 - 128, a.dstHost = (char *)a.dstHost + WHOLE - 256 - 128; }, ALL},
};
static const int RULES = sizeof rules / sizeof rules[0];

struct Route {
    const char *name;
    int to, from, to_type, from_type;
};
static const Route routes[] = {
    {"within", 0, 0, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE},
    {"within_unified", 0, 0, UNIFIED, UNIFIED},
    {"from_pinned", 0, 1, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST},
    {"to_pageable", 2, 0, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE},
    {"from_pageable_unified", 0, 2, UNIFIED, UNIFIED},
    {"host_to_host", 1, 2, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST},
    {"pinned_as_device", 0, 1, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE},
    {"pageable_as_device", 0, 2, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE},
    {"device_as_host", 0, 0, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE},
};
static const int ROUTES = sizeof routes / sizeof routes[0];

static CUresult run_rule(int call, const Asked &asked, CUstream s)
{
    if (call == 1) {
        CUDA_MEMCPY2D what = {};
        what.srcXInBytes = asked.srcXInBytes, what.srcY = asked.srcY, what.srcMemoryType = asked.srcMemoryType;
        what.srcHost = asked.srcHost, what.srcDevice = asked.srcDevice, what.srcArray = asked.srcArray, what.srcPitch = asked.srcPitch;
        what.dstXInBytes = asked.dstXInBytes, what.dstY = asked.dstY, what.dstMemoryType = asked.dstMemoryType;
        what.dstHost = asked.dstHost, what.dstDevice = asked.dstDevice, what.dstArray = asked.dstArray, what.dstPitch = asked.dstPitch;
        what.WidthInBytes = asked.WidthInBytes, what.Height = asked.Height;
        return cuMemcpy2DAsync(&what, s);
    }
    if (call == 4)
        return cuMemcpy3DPeerAsync(&asked, s);
    CUDA_MEMCPY3D what = plain_volume(asked);
    return cuMemcpy3DAsync(&what, s);
}

// What the destination holds, in one number.
static std::string sum_of(int place)
{
    std::vector<uint8_t> bytes(WHOLE);
    if (place == 0)
        MUST(cuMemcpyDtoH(bytes.data(), place_of[0][0], WHOLE));
    else
        memcpy(bytes.data(), (const void *)(uintptr_t)place_of[place][0], WHOLE);
    uint32_t sum = 1;
    for (uint8_t byte : bytes)
        sum = (sum ^ byte) * 16777619;
    char text[16];
    snprintf(text, sizeof text, "%08x", sum);
    return text;
}

static void set_all(int place, int side, bool source)
{
    std::vector<uint8_t> bytes(WHOLE, 0xEE);
    for (size_t i = 0; source && i < WHOLE; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    if (place == 0)
        MUST(cuMemcpyHtoD(place_of[0][side], bytes.data(), WHOLE));
    else
        memcpy((void *)(uintptr_t)place_of[place][side], bytes.data(), WHOLE);
    MUST(cuCtxSynchronize());
}

// The answers of one description, outside of a capture and in one.
static void ask_rule(const std::string &name, int call, const Asked &asked, int to_place)
{
    CUresult code = run_rule(call, asked, streams[0]), done = cuStreamSynchronize(streams[0]);
    std::string outside = code ? short_name(code) : done ? "sync:" + short_name(done) : "ok";
    if (!code && !done && to_place >= 0)
        line(name + ".data", sum_of(to_place));
    if (done) {
        line(name, outside);
        return;
    }
    Operation op = {};
    op.call = [&](CUstream s) { return run_rule(call, asked, s); };
    std::string inside = captured(op, 0, 0);
    line(name, outside == inside ? outside : outside + " captured:" + inside);
}

static void set_up_rules()
{
    for (int side = 0; side < 2; side++) {
        void *host = nullptr;
        MUST(cuMemAlloc(&place_of[0][side], WHOLE));
        MUST(cuMemHostAlloc(&host, WHOLE, CU_MEMHOSTALLOC_PORTABLE));
        place_of[1][side] = (CUdeviceptr)(uintptr_t)host;
        // Beyond its end nothing is there.
        char *pages = (char *)mmap(nullptr, WHOLE + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(pages + 4096, WHOLE, PROT_READ | PROT_WRITE);
        place_of[2][side] = (CUdeviceptr)(uintptr_t)(pages + 4096);
        for (int place = 0; place < 3; place++)
            set_all(place, side, side == 1);
    }
}

static void rows_and_volumes()
{
    static const char *const names[] = {"", "rows", "volume", "", "peer_volume"};
    for (int call : {1, 2, 4})
        cases("rule", ROUTES * RULES, set_up_rules, [&](int number) {
            const Route &route = routes[number / RULES];
            const Rule &rule = rules[number % RULES];
            // Past the end of pageable memory is a fault of the program.
            const bool past_pageable = strstr(rule.name, "past_the_end") && (route.to == 2 || route.from == 2);
            if (!(rule.calls & call) || past_pageable || (!strncmp(rule.name, "overlap", 7) && route.to != route.from))
                return;
            Asked asked = volume(place_of[route.to][0] + 256, route.to_type, place_of[route.from][1] + 512, route.from_type);
            asked.srcContext = asked.dstContext = contexts[0];
            asked.srcPitch = 160, asked.dstPitch = 128, asked.WidthInBytes = 100;
            rule.change(asked);
            const bool overlap = !strcmp(rule.name, "overlap");
            set_all(route.to, 0, false);
            ask_rule("rule." + std::string(names[call]) + "." + route.name + "." + rule.name, call, asked, overlap ? -1 : route.to);
        });
}

// Distances that do not fit into 31 or 32 bits.
static void far()
{
    struct Far {
        const char *name;
        size_t pitch, height, rows, depth;
    };
    static const Far fars[] = {
        {"pitch_2^31-1", (1ull << 31) - 1, 1, 2, 1},
        {"pitch_2^31", 1ull << 31, 1, 2, 1},
        {"pitch_2^31_one_row", 1ull << 31, 1, 1, 1},
        {"pitch_2^32", 1ull << 32, 1, 2, 1},
        {"pitch_2^32_one_row", 1ull << 32, 1, 1, 1},
        {"pitch_2^40_one_row", 1ull << 40, 1, 1, 1},
        {"pitch_2^63_one_row", 1ull << 63, 1, 1, 1},
        {"rows_past_2^32", 1ull << 20, 1, 4100, 1},
        {"slice_2^31", 1ull << 20, 2048, 1, 2},
        {"slice_2^32", 1ull << 20, 4096, 1, 2},
        {"slice_2^32_by_height", 4096, 1 << 20, 1, 2},
        {"pitch_2^31_by_slices", 1ull << 31, 1, 1, 2},
        {"slices_past_2^32", 1ull << 16, 16, 2, 4100},
    };
    static const char *const names[] = {"", "rows", "volume", "", "peer_volume"};
    auto setup = [] {
        set_up_rules();
        MUST(cuMemAlloc(&huge, HUGE_BYTES));
    };
    for (int call : {1, 2, 4})
        for (int from_huge = 0; from_huge < 2; from_huge++)
            cases("far", sizeof fars / sizeof fars[0], setup, [&](int number) {
                const Far &one = fars[number];
                if (call == 1 && one.depth > 1)
                    return;
                CUdeviceptr small = place_of[0][0];
                Asked asked = volume(from_huge ? small : huge, UNIFIED, from_huge ? huge : small, UNIFIED);
                asked.srcContext = asked.dstContext = contexts[0];
                asked.WidthInBytes = 16, asked.Height = one.rows, asked.Depth = one.depth;
                asked.srcPitch = asked.dstPitch = 16, asked.srcHeight = asked.dstHeight = one.rows;
                (from_huge ? asked.srcPitch : asked.dstPitch) = one.pitch;
                (from_huge ? asked.srcHeight : asked.dstHeight) = one.height > one.rows ? one.height : one.rows;
                if (strstr(one.name, "slices_past"))
                    (from_huge ? asked.srcHeight : asked.dstHeight) = one.height;
                ask_rule(std::string("far.") + names[call] + (from_huge ? ".from." : ".to.") + one.name, call, asked, -1);
                // Whether the last row got there.
                const size_t skip = ((one.depth - 1) * (from_huge ? asked.srcHeight : asked.dstHeight) + one.rows - 1) * one.pitch;
                const size_t packed = (one.rows * one.depth - 1) * 16;
                if (one.rows * one.depth == 1)
                    return;
                const CUdeviceptr to = from_huge ? small + packed : huge + skip, from = from_huge ? huge + skip : small + packed;
                MUST(cuMemsetD8(to, 0, 16));
                MUST(cuMemsetD8(from, 0x5A, 16));
                MUST(cuCtxSynchronize());
                CUresult code = run_rule(call, asked, streams[0]);
                MUST(cuStreamSynchronize(streams[0]));
                uint8_t last[16] = {};
                MUST(cuMemcpyDtoH(last, to, 16));
                line(std::string("far.") + names[call] + (from_huge ? ".from." : ".to.") + one.name + ".last",
                     code ? "none" : last[0] == 0x5A && last[15] == 0x5A ? "right" : "wrong");
            });
    cases("far", 1, setup, [](int) {
        int most = 0;
        MUST(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0));
        line("far.max_pitch", std::to_string(most));
        fact("far.fill_rows.pitch_2^31", cuMemsetD2D8Async(huge, 1ull << 31, 1, 16, 2, streams[0]));
        fact("far.fill_rows.pitch_2^32", cuMemsetD2D8Async(huge, 1ull << 32, 1, 16, 2, streams[0]));
        MUST(cuStreamSynchronize(streams[0]));
        // Rows of more than 2^31 bytes: to itself, so that no second block is needed.
        CUDA_MEMCPY2D what = plane(huge + (2ull << 30) + 64, UNIFIED, huge, UNIFIED);
        what.WidthInBytes = (1ull << 31) + 16;
        what.Height = 1;
        what.srcPitch = what.dstPitch = what.WidthInBytes;
        fact("far.rows.wide_row", cuMemcpy2DAsync(&what, streams[0]));
        MUST(cuStreamSynchronize(streams[0]));
    });
}

// ---- Kernels and modules ------------------------------------------------------------------------------------------------

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

static const char *const plain_ptx = HEAD R"(
.visible .entry touch(.param .u64 p) {
  .reg .b64 %a; .reg .b32 %v;
  ld.param.u64 %a, [p];
  ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret;
}
.visible .entry much_local(.param .u64 p) {
  .local .align 4 .b8 room[65536];
  .reg .b64 %a, %l, %m, %o; .reg .b32 %v, %w;
  ld.param.u64 %a, [p]; mov.u64 %l, room;
  ld.global.u32 %v, [%a]; and.b32 %w, %v, 1023; mul.wide.u32 %o, %w, 64; add.u64 %m, %l, %o;
  mul.lo.u32 %w, %v, 7; add.u32 %w, %w, 5; and.b32 %w, %w, 1023; mul.wide.u32 %o, %w, 64; add.u64 %l, %l, %o;
  st.local.u32 [%m], %v; st.local.u32 [%l], %w; ld.local.u32 %v, [%m];
  add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret;
}
.visible .entry much_shared(.param .u64 p) {
  .reg .b64 %a; .reg .b32 %v;
  ld.param.u64 %a, [p];
  ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret;
}
)";

static const char *const variable_ptx = HEAD R"(
.visible .global .align 4 .u32 counter = 7;
.visible .entry touch(.param .u64 p) {
  .reg .b64 %a; .reg .b32 %v;
  ld.param.u64 %a, [p];
  ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v;
  ld.global.u32 %v, [counter]; add.u32 %v, %v, 1; st.global.u32 [counter], %v; ret;
}
)";

static CUmodule load(const char *text)
{
    CUmodule module = nullptr;
    MUST(cuModuleLoadData(&module, text));
    return module;
}

static CUfunction function_of(CUmodule module, const char *name)
{
    CUfunction function = nullptr;
    MUST(cuModuleGetFunction(&function, module, name));
    return function;
}

static CUresult launch(CUfunction function, CUdeviceptr block, CUstream stream, unsigned shared = 0)
{
    void *params[] = {&block};
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, shared, stream, params, nullptr);
}

static uint32_t word(CUdeviceptr at)
{
    uint32_t value = 0xdead;
    MUST(cuMemcpyDtoH(&value, at, 4));
    return value;
}

// Launches, by whatever context is current.
static void launches()
{
    cases("launch", 1, [] { set_up_kinds(accesses[7]); }, [](int) {
        CUfunction touch[2];
        for (int gpu = 0; gpu < 2; gpu++) {
            make_current(gpu);
            touch[gpu] = function_of(load(plain_ptx), "touch");
        }
        make_current(0);
        const CUdeviceptr at = target[3];
        for (int gpu = 0; gpu < 2; gpu++) {
            for (auto &place : places) {
                const std::string current = place[1] < 0 ? "_" : std::to_string(place[1]);
                const std::string name =
                    "launch.function" + std::to_string(gpu) + ".s" + std::to_string(place[0]) + "c" + current;
                Operation op = {};
                op.call = [&](CUstream s) { return launch(touch[gpu], at, s); };
                MUST(cuMemsetD8(at, 0, 4));
                MUST(cuCtxSynchronize());
                std::string answer = outside(op, place[0], place[1]);
                line(name, answer + " ran=" + std::to_string(word(at)));
                MUST(cuMemsetD8(at, 0, 4));
                MUST(cuCtxSynchronize());
                answer = captured(op, place[0], place[1]);
                line(name + ".captured", answer + " ran=" + std::to_string(word(at)));
            }
        }
        // A library's kernel has a function in every context.
        CUlibrary library = nullptr;
        CUkernel kernel = nullptr;
        MUST(cuLibraryLoadData(&library, plain_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
        MUST(cuLibraryGetKernel(&kernel, library, "touch"));
        for (auto &place : places) {
            const std::string current = place[1] < 0 ? "_" : std::to_string(place[1]);
            Operation op = {};
            op.call = [&](CUstream s) { return launch((CUfunction)kernel, at, s); };
            MUST(cuMemsetD8(at, 0, 4));
            MUST(cuCtxSynchronize());
            std::string answer = outside(op, place[0], place[1]);
            const std::string name = "launch.kernel.s" + std::to_string(place[0]) + "c" + current;
            line(name, answer + " ran=" + std::to_string(word(at)));
            MUST(cuMemsetD8(at, 0, 4));
            MUST(cuCtxSynchronize());
            answer = captured(op, place[0], place[1]);
            line(name + ".captured", answer + " ran=" + std::to_string(word(at)));
        }
    });
}

struct Tool {
    const char *name;
    std::function<CUresult(CUmodule, CUfunction)> call;
};
static const Tool tools[] = {
    {"load", [](CUmodule, CUfunction) { CUmodule m; return cuModuleLoadData(&m, plain_ptx); }},
    {"load_with_variable", [](CUmodule, CUfunction) { CUmodule m; return cuModuleLoadData(&m, variable_ptx); }},
    {"get", [](CUmodule m, CUfunction) { CUfunction f; return cuModuleGetFunction(&f, m, "touch"); }},
    {"global", [](CUmodule m, CUfunction) { CUdeviceptr at; return cuModuleGetGlobal(&at, nullptr, m, "counter"); }},
    {"func_load", [](CUmodule, CUfunction f) { return cuFuncLoad(f); }},
    {"attribute", [](CUmodule, CUfunction f) { int n; return cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, f); }},
    {"set_shared", [](CUmodule, CUfunction f) { return cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000); }},
    {"unload", [](CUmodule m, CUfunction) { return cuModuleUnload(m); }},
    {"library", [](CUmodule, CUfunction) { CUlibrary l; return cuLibraryLoadData(&l, plain_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0); }},
    {"library_kernel", [](CUmodule, CUfunction) { CUlibrary l; CUkernel k; MUST(cuLibraryLoadData(&l, plain_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0)); return cuLibraryGetKernel(&k, l, "touch"); }},
    {"library_function", [](CUmodule, CUfunction) { CUlibrary l; CUkernel k; CUfunction f; MUST(cuLibraryLoadData(&l, plain_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0)); MUST(cuLibraryGetKernel(&k, l, "touch")); return cuKernelGetFunction(&f, k); }},
    {"library_unload", [](CUmodule, CUfunction) { CUlibrary l; MUST(cuLibraryLoadData(&l, plain_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0)); return cuLibraryUnload(l); }},
};
static const char *const mode_names[] = {"global", "thread_local", "relaxed"};
static const char *const who_names[] = {"own", "own_relaxed", "other", "other_relaxed"};

static void by_whom(int who, const std::function<void()> &body)
{
    auto all = [&] {
        MUST(cuCtxSetCurrent(contexts[0]));
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        if (who & 1)
            MUST(cuThreadExchangeStreamCaptureMode(&mode));
        body();
        if (who & 1)
            MUST(cuThreadExchangeStreamCaptureMode(&mode));
    };
    if (who < 2)
        all();
    else
        std::thread(all).join();
}

static void modules()
{
    const int count = sizeof tools / sizeof tools[0];
    cases("module", 3 * 4 * count, [] {}, [&](int number) {
        const int mode = number / (4 * count), who = number / count % 4;
        const Tool &tool = tools[number % count];
        CUmodule module = load(variable_ptx);
        CUfunction function = function_of(module, "touch");
        CUresult code = CUDA_SUCCESS;
        begin(streams[0], mode);
        by_whom(who, [&] { code = tool.call(module, function); });
        CUgraph graph = nullptr;
        CUresult end = cuStreamEndCapture(streams[0], &graph);
        line(std::string("module.") + mode_names[mode] + "." + who_names[who] + "." + tool.name,
             short_name(code) + " end=" + short_name(end) + (graph ? " nodes=" + std::to_string(node_count(graph)) : ""));
    });
}

// The first launch of a function is in a capture: what the driver put off until then.
static void first_launches()
{
    static const char *const kernels[] = {"touch", "much_local", "much_shared"};
    static const char *const ways[] = {"got_before", "loaded_before", "got_inside", "loaded_inside", "module_inside"};
    cases("first", 1, [] {}, [](int) {
        CUmoduleLoadingMode mode = (CUmoduleLoadingMode)9;
        MUST(cuModuleGetLoadingMode(&mode));
        line("first.loading_mode", std::to_string((int)mode));
    });
    // A child for each: what the context has grown by stays.
    for (int mode = 0; mode < 3; mode++)
        for (int which = 0; which < 3; which++)
            for (int way = 0; way < 5; way++)
                cases("first", 1, [] {}, [&](int) {
                    CUdeviceptr at = 0;
                    MUST(cuMemAlloc(&at, 64));
                    MUST(cuMemsetD8(at, 0, 64));
                    CUmodule module = way == 4 ? nullptr : load(plain_ptx);
                    CUfunction f = way < 2 ? function_of(module, kernels[which]) : nullptr;
                    const unsigned shared = which == 2 ? 100000 : 0;
                    auto allow = [&] {
                        if (shared)
                            MUST(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared));
                    };
                    if (f)
                        allow();
                    if (way == 1)
                        MUST(cuFuncLoad(f));
                    MUST(cuCtxSynchronize());
                    begin(streams[0], mode);
                    CUresult got = CUDA_SUCCESS;
                    if (way == 4)
                        got = cuModuleLoadData(&module, plain_ptx);
                    if (!got && !f)
                        got = cuModuleGetFunction(&f, module, kernels[which]);
                    if (!got && way > 1)
                        allow();
                    if (!got && way == 3)
                        got = cuFuncLoad(f);
                    CUresult code = got ? got : launch(f, at, streams[0], shared);
                    CUgraph graph = nullptr;
                    CUgraphExec exec = nullptr;
                    CUresult end = cuStreamEndCapture(streams[0], &graph), run = CUDA_SUCCESS;
                    if (!code && !end) {
                        run = cuGraphInstantiateWithFlags(&exec, graph, 0);
                        for (int i = 0; i < 3 && !run; i++)
                            run = cuGraphLaunch(exec, streams[0]);
                        if (!run)
                            run = cuStreamSynchronize(streams[0]);
                    }
                    line(std::string("first.") + mode_names[mode] + "." + kernels[which] + "." + ways[way],
                         (got ? "got:" : "") + short_name(code) + " end=" + short_name(end) + " run=" + short_name(run) +
                             " ran=" + std::to_string(word(at)));
                });
}

// ---- Host functions -----------------------------------------------------------------------------------------------------

static int calls;

static void CUDA_CB count_call(void *)
{
    calls++;
}

struct Question {
    const char *name;
    CUdeviceptr device;
    int which; // of the waits
};

// Each answer is printed at once: a call that never comes back takes no more with it.
static void CUDA_CB ask_driver(void *data)
{
    const Question *question = (const Question *)data;
    const CUdeviceptr device = question->device;
    CUdeviceptr other = 0;
    void *host = nullptr;
    int value = 0;
    CUcontext current = nullptr;
    CUevent event = nullptr;
    CUmodule module = nullptr;
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    const char *text = nullptr;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstreamCaptureStatus status;
    auto tell = [&](const char *name, CUresult code) { fact(std::string(question->name) + "." + name, code); };
    tell("cuDriverGetVersion", cuDriverGetVersion(&value));
    tell("cuGetErrorName", cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &text));
    tell("cuDeviceGetCount", cuDeviceGetCount(&value));
    tell("cuDeviceGetAttribute", cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0));
    tell("cuCtxGetCurrent", cuCtxGetCurrent(&current));
    tell("cuCtxSetCurrent", cuCtxSetCurrent(contexts[0]));
    tell("cuPointerGetAttribute", cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
    tell("cuStreamIsCapturing", cuStreamIsCapturing(streams[0], &status));
    tell("cuStreamQuery_other", cuStreamQuery(streams[1]));
    tell("cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
    tell("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&pool, 0));
    tell("cuEventCreate", cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    tell("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    tell("cuMemAllocAsync", cuMemAllocAsync(&other, 4096, streams[1]));
    tell("cuMemFreeAsync", cuMemFreeAsync(device, streams[1]));
    tell("cuMemcpyAsync", cuMemcpyAsync(device, device + 64, 4, streams[1]));
    tell("cuMemsetD8Async", cuMemsetD8Async(device, 1, 4, streams[1]));
    tell("cuLaunchHostFunc", cuLaunchHostFunc(streams[1], count_call, nullptr));
    tell("cuStreamBeginCapture", cuStreamBeginCapture(streams[1], CU_STREAM_CAPTURE_MODE_RELAXED));
    tell("cuMemHostAlloc", cuMemHostAlloc(&host, 4096, 0));
    tell("cuMemAlloc", cuMemAlloc(&other, 4096));
    tell("cuModuleLoadData", cuModuleLoadData(&module, plain_ptx));
    tell("cuStreamQuery_own", cuStreamQuery(streams[0]));
    tell("cuMemcpyDtoH", cuMemcpyDtoH(&value, device, 4));
    tell("cuMemFree", cuMemFree(device));
}

// What is there before the function runs.
static CUevent done_event, own_event;
static CUfunction own_function;
static CUgraph own_graph;
static CUgraphExec own_exec;
static void *pinned_block;

static void CUDA_CB ask_more(void *data)
{
    const Question *question = (const Question *)data;
    const CUdeviceptr near = target[5], device = question->device; // the former of the other stream's GPU
    CUdeviceptr other = 0;
    CUcontext current = nullptr;
    CUstreamCaptureStatus status;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUgraphNode node = nullptr;
    CUdevice ordinal = 0;
    cuuint64_t id = 0;
    CUmemoryPool pool = nullptr;
    CUstream s = streams[1];
    size_t count = 0, free_bytes = 0;
    unsigned flags = 0;
    int number = 0;
    float time = 0;
    const CUDA_MEMCPY2D rows = plane(near, UNIFIED, near + 8192, UNIFIED);
    auto tell = [&](const char *name, CUresult code) { fact(std::string(question->name) + "." + name, code); };
    tell("cuMemsetD8Async", cuMemsetD8Async(near, 1, 4, s));
    tell("cuMemsetD32Async", cuMemsetD32Async(near, 1, 4, s));
    tell("cuMemsetD2D8Async", cuMemsetD2D8Async(near, 64, 1, 32, 4, s));
    tell("cuMemsetD8", cuMemsetD8(near, 1, 4));
    tell("cuMemcpyDtoDAsync", cuMemcpyDtoDAsync(near, near + 64, 4, s));
    tell("cuMemcpyPeerAsync", cuMemcpyPeerAsync(near, contexts[1], near + 64, contexts[1], 4, s));
    tell("cuMemcpy2DAsync", cuMemcpy2DAsync(&rows, s));
    tell("cuLaunchKernel", launch(own_function, near, s));
    tell("cuGraphLaunch", cuGraphLaunch(own_exec, s));
    tell("cuEventRecord", cuEventRecord(own_event, s));
    tell("cuStreamWaitEvent", cuStreamWaitEvent(s, done_event, 0));
    tell("cuEventQuery", cuEventQuery(done_event));
    tell("cuEventElapsedTime", cuEventElapsedTime(&time, done_event, done_event));
    tell("cuStreamGetCaptureInfo", cuStreamGetCaptureInfo(s, &status, &id, nullptr, nullptr, nullptr, &count));
    tell("cuStreamGetFlags", cuStreamGetFlags(s, &flags));
    tell("cuStreamGetPriority", cuStreamGetPriority(s, &number));
    tell("cuStreamGetId", cuStreamGetId(s, (unsigned long long *)&id));
    tell("cuStreamGetCtx", cuStreamGetCtx(s, &current));
    tell("cuCtxGetDevice", cuCtxGetDevice(&ordinal));
    tell("cuCtxPushCurrent", cuCtxPushCurrent(contexts[1]));
    tell("cuCtxPopCurrent", cuCtxPopCurrent(&current));
    tell("cuDeviceGet", cuDeviceGet(&ordinal, 0));
    tell("cuDeviceCanAccessPeer", cuDeviceCanAccessPeer(&number, 0, 1));
    tell("cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState(0, &flags, &number));
    tell("cuMemGetInfo", cuMemGetInfo(&free_bytes, &count));
    tell("cuMemGetAddressRange", cuMemGetAddressRange(&other, &count, device));
    tell("cuMemHostGetFlags", cuMemHostGetFlags(&flags, pinned_block));
    tell("cuMemFreeHost", cuMemFreeHost(pinned_block));
    tell("cuDeviceGetMemPool", cuDeviceGetMemPool(&pool, 0));
    tell("cuMemAllocManaged", cuMemAllocManaged(&other, 4096, CU_MEM_ATTACH_GLOBAL));
    tell("cuFuncGetAttribute", cuFuncGetAttribute(&number, CU_FUNC_ATTRIBUTE_NUM_REGS, own_function));
    tell("cuFuncLoad", cuFuncLoad(own_function));
    tell("cuGraphCreate", cuGraphCreate(&graph, 0));
    tell("cuGraphAddEmptyNode", cuGraphAddEmptyNode(&node, own_graph, nullptr, 0));
    tell("cuGraphGetNodes", cuGraphGetNodes(own_graph, nullptr, &count));
    tell("cuGraphInstantiate", cuGraphInstantiateWithFlags(&exec, own_graph, 0));
    tell("cuStreamBeginCapture", cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    tell("cuMemsetD8Async_captured", cuMemsetD8Async(near, 1, 4, s));
    tell("cuStreamEndCapture", cuStreamEndCapture(s, &graph));
    tell("cuGraphExecDestroy", cuGraphExecDestroy(own_exec));
    tell("cuGraphDestroy", cuGraphDestroy(own_graph));
    tell("cuEventDestroy", cuEventDestroy(done_event));
    tell("cuStreamDestroy", cuStreamDestroy(s));
}

// Waits; each may hang, so each is a case of its own.
static const char *const wait_names[] = {"cuStreamSynchronize_own", "cuStreamSynchronize_other", "cuCtxSynchronize",
                                         "cuEventSynchronize_done", "cuEventSynchronize_own"};

static std::atomic<bool> recorded; // what there is to wait for

static void CUDA_CB ask_to_wait(void *data)
{
    const Question *question = (const Question *)data;
    // A driver that calls it before the launch of the function is back waits in vain.
    for (int i = 0; i < 500 && !recorded; i++)
        usleep(1000);
    CUresult code = CUDA_SUCCESS;
    switch (question->which) {
    case 0: code = cuStreamSynchronize(streams[0]); break;
    case 1: code = cuStreamSynchronize(streams[1]); break;
    case 2: code = cuCtxSynchronize(); break;
    case 3: code = cuEventSynchronize(done_event); break;
    default: code = cuEventSynchronize(own_event);
    }
    fact(question->name, code);
}

struct Seen {
    volatile uint8_t *at;
    uint8_t first, second;
    int count;
};

// Notes what is there, and leaves something else behind.
static void CUDA_CB look_and_write(void *data)
{
    Seen *seen = (Seen *)data;
    if (seen->count++ == 0)
        seen->first = seen->at[0];
    else
        seen->second = seen->at[0];
    seen->at[1] = (uint8_t)(0x40 + seen->count);
}

static void host_functions()
{
    auto setup = [] { set_up_kinds(accesses[0]); };
    // In all places: no data, the function counts.
    cases("host", 1, setup, [](int) {
        Operation op = {};
        op.call = [](CUstream s) { return cuLaunchHostFunc(s, count_call, nullptr); };
        calls = 0;
        in_all_places("host.function", op);
        line("host.function.calls", std::to_string(calls));
        fact("host.null_function", cuLaunchHostFunc(streams[0], nullptr, nullptr));
        MUST(cuStreamSynchronize(streams[0]));
        calls = 0;
        fact("host.legacy", cuLaunchHostFunc(nullptr, count_call, nullptr));
        MUST(cuCtxSynchronize());
        line("host.legacy.calls", std::to_string(calls));
        make_current(-1);
        fact("host.legacy_without_context", cuLaunchHostFunc(nullptr, count_call, nullptr));
        make_current(0);
    });
    cases("host", 2, setup, [](int inside) {
        alarm(10);
        asks(inside ? "host.calls_in_graph" : "host.calls");
        CUresult code = CUDA_SUCCESS;
        Question question = {inside ? "host.calls_in_graph" : "host.calls", target[3], 0};
        if (inside) {
            CUgraph graph = nullptr;
            CUgraphExec exec = nullptr;
            begin(streams[0]);
            code = cuLaunchHostFunc(streams[0], ask_driver, &question);
            MUST(cuStreamEndCapture(streams[0], &graph));
            line("host.calls_in_graph.types", types_of(graph));
            MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
            MUST(cuGraphLaunch(exec, streams[0]));
        } else {
            code = cuLaunchHostFunc(streams[0], ask_driver, &question);
        }
        MUST(cuStreamSynchronize(streams[0]));
        fact(question.name, code);
        int value = 0;
        fact(std::string(question.name) + ".block_after",
             cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, question.device));
    });
    auto prepare_events = [] {
        make_current(1);
        own_function = function_of(load(plain_ptx), "touch");
        done_event = make_event();
        own_event = make_event();
        MUST(cuEventRecord(done_event, streams[1]));
        MUST(cuStreamSynchronize(streams[1]));
        MUST(cuMemHostAlloc(&pinned_block, 4096, 0));
        MUST(cuGraphCreate(&own_graph, 0));
        CUgraphNode node = nullptr;
        MUST(cuGraphAddEmptyNode(&node, own_graph, nullptr, 0));
        MUST(cuGraphInstantiateWithFlags(&own_exec, own_graph, 0));
        make_current(0);
    };
    cases("host", 1, setup, [&](int) {
        alarm(10);
        asks("host.more");
        prepare_events();
        Question question = {"host.more", target[3], 0};
        CUresult code = cuLaunchHostFunc(streams[0], ask_more, &question);
        MUST(cuStreamSynchronize(streams[0]));
        fact("host.more", code);
    });
    cases("host", sizeof wait_names / sizeof wait_names[0], setup, [&](int number) {
        const std::string name = std::string("host.waits.") + wait_names[number];
        alarm(4);
        asks(name);
        make_current(0);
        own_event = make_event();
        make_current(1);
        done_event = make_event();
        MUST(cuEventRecord(done_event, streams[1]));
        MUST(cuStreamSynchronize(streams[1]));
        make_current(0);
        Question question = {name.c_str(), target[3], number};
        MUST(cuLaunchHostFunc(streams[0], ask_to_wait, &question));
        MUST(cuEventRecord(own_event, streams[0]));
        recorded = true;
        MUST(cuStreamSynchronize(streams[0]));
    });
    // Behind what came before it, in front of what comes after.
    cases("host", 1, setup, [](int) {
        volatile uint8_t *host = (volatile uint8_t *)(uintptr_t)target[1];
        CUdeviceptr device = target[3];
        uint8_t back[2] = {};
        for (int inside = 0; inside < 2; inside++) {
            Seen seen = {host, 0, 0, 0};
            host[0] = host[1] = 0;
            MUST(cuMemsetD8(device, 0, 4096));
            MUST(cuCtxSynchronize());
            auto all = [&] {
                MUST(cuMemsetD8Async(device, 0x21, 1, streams[0]));
                MUST(cuMemcpyAsync((CUdeviceptr)(uintptr_t)host, device, 1, streams[0]));
                MUST(cuLaunchHostFunc(streams[0], look_and_write, &seen));
                MUST(cuMemcpyAsync(device + 1, (CUdeviceptr)(uintptr_t)(host + 1), 1, streams[0]));
                MUST(cuMemsetD8Async(device, 0x22, 1, streams[0]));
                MUST(cuMemcpyAsync((CUdeviceptr)(uintptr_t)host, device, 1, streams[0]));
                MUST(cuLaunchHostFunc(streams[0], look_and_write, &seen));
            };
            if (inside) {
                CUgraph graph = nullptr;
                CUgraphExec exec = nullptr;
                begin(streams[0]);
                all();
                MUST(cuStreamEndCapture(streams[0], &graph));
                line("host.order.captured.types", types_of(graph));
                line("host.order.captured.before_launch", std::to_string(seen.count));
                MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
                for (int i = 0; i < 3; i++) {
                    seen.count = 0;
                    MUST(cuGraphLaunch(exec, streams[0]));
                    MUST(cuStreamSynchronize(streams[0]));
                }
            } else {
                all();
                MUST(cuStreamSynchronize(streams[0]));
            }
            MUST(cuMemcpyDtoH(back, device, 2));
            line(inside ? "host.order.captured" : "host.order", "first=" + std::to_string(seen.first) + " second=" + std::to_string(seen.second) +
                                   " calls=" + std::to_string(seen.count) + " copied=" + std::to_string(back[1]));
        }
    });
    // Beside captures, by thread and mode.
    cases("host", 12, setup, [](int number) {
        const int mode = number / 4, who = number % 4;
        CUstream beside = make_stream();
        CUresult code = CUDA_SUCCESS, own = CUDA_SUCCESS;
        calls = 0;
        begin(streams[0], mode);
        by_whom(who, [&] {
            code = cuLaunchHostFunc(beside, count_call, nullptr);
            own = cuLaunchHostFunc(streams[0], count_call, nullptr);
        });
        CUgraph graph = nullptr;
        CUresult end = cuStreamEndCapture(streams[0], &graph);
        MUST(cuStreamSynchronize(beside));
        line(std::string("host.beside.") + mode_names[mode] + "." + who_names[who],
             "other_stream=" + short_name(code) + " captured_stream=" + short_name(own) + " end=" + short_name(end) + " nodes=" +
                 (graph ? types_of(graph) : "0") + " calls=" + std::to_string(calls));
    });
}

int main()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    progress = (Progress *)mmap(nullptr, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    copies();
    mapped();
    peers();
    fills();
    rows_and_volumes();
    far();
    launches();
    modules();
    first_launches();
    host_functions();
}
