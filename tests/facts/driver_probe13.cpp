// Thirteenth round: modules, kernels and faults: what bad arguments are answered, which calls fail in a context after a fault and
// which do not, what captures keep of a launch, and what single instructions come to at their edges.
// Build: g++ -O2 -std=c++17 driver_probe13.cpp -o probe13 -lcuda      Run: ./probe13
#include "probe.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

static CUcontext context[2];
static int devices;
static const unsigned NO_JOIN = CU_STREAM_NON_BLOCKING;

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

static const char *PTX = HEAD R"(
.visible .global .align 4 .u32 counter = 7;
.visible .global .align 8 .b8 table[24] = {1, 2, 3};
.global .u64 unseen;
.visible .entry touch(.param .u64 p) {
  .reg .b64 %a; .reg .b32 %v;
  ld.param.u64 %a, [p];
  ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret;
}
.visible .entry mixed(.param .u8 a, .param .u64 p, .param .u16 b, .param .align 8 .b8 c[12]) {
  .reg .b64 %p<2>; .reg .b32 %r<4>; .reg .b16 %h<3>;
  ld.param.u64 %p1, [p]; ld.param.u8 %h1, [a]; ld.param.u16 %h2, [b]; ld.param.u32 %r1, [c+8];
  cvt.u32.u16 %r2, %h1; cvt.u32.u16 %r3, %h2; st.global.u32 [%p1], %r2; st.global.u32 [%p1+4], %r3; st.global.u32 [%p1+8], %r1;
  ret;
}
.visible .entry stop() { trap; }
.visible .entry pause() { brkpt; ret; }
.visible .entry holds(.param .u64 p) {
  .shared .align 4 .b8 mine[1024]; .reg .b32 %r<3>; .reg .b64 %a;
  ld.param.u64 %a, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, mine; st.shared.u32 [%r2], %r1; st.global.u32 [%a], %r1; ret;
}
.visible .entry far_shared(.param .u64 p) {
  .shared .align 4 .b8 mine[16]; .reg .b32 %r<3>; ld.param.u32 %r1, [p]; ld.volatile.shared.u32 %r2, [%r1]; st.shared.u32 [mine], %r2; ret;
}
.visible .entry far_generic(.param .u64 p) {
  .shared .align 4 .b8 mine[16]; .reg .b32 %r; .reg .b64 %a, %b; ld.param.u64 %a, [p]; mov.u64 %b, mine; cvta.shared.u64 %b, %b; add.u64 %a, %a, %b;
  st.volatile.u32 [%b], %r; ld.volatile.u32 %r, [%a]; ret;
}
.visible .entry few() .maxntid 64, 1, 1 { ret; }
)";

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
#define FACT(name, ...) fact(name, __VA_ARGS__)

static void number(const char *name, long long value)
{
    printf("%s = %lld\n", name, value);
    fflush(stdout);
}

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

static CUdeviceptr take(size_t size)
{
    CUdeviceptr block = 0;
    MUST(cuMemAlloc(&block, size));
    MUST(cuMemsetD8(block, 0, size));
    return block;
}

static CUresult launch(CUfunction function, CUdeviceptr block, CUstream stream = nullptr)
{
    void *params[] = {&block};
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
}

static long long word(CUdeviceptr at)
{
    uint32_t value = 0xdead;
    MUST(cuMemcpyDtoH(&value, at, 4));
    return value;
}

static void text_case(const char *name, const char *text)
{
    in_child(name, [=] {
        start();
        CUmodule module = nullptr;
        fact((std::string("load.") + name).c_str(), cuModuleLoadData(&module, text));
    });
}

static void loading()
{
    text_case("garbage", "this is no program");
    text_case("empty", "");
    text_case("only_version", ".version 7.0\n");
    text_case("no_kernel", HEAD);
    text_case("no_version", ".target sm_70\n.address_size 64\n.visible .entry k() { ret; }");
    text_case("new_version", ".version 99.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }");
    text_case("new_target", ".version 7.0\n.target sm_999\n.address_size 64\n.visible .entry k() { ret; }");
    text_case("target_above_device", ".version 8.6\n.target sm_100\n.address_size 64\n.visible .entry k() { ret; }");
    text_case("unknown_instruction", HEAD ".visible .entry k() { frobnicate.u32 %r1, %r2; ret; }");
    text_case("unknown_register", HEAD ".visible .entry k() { mov.u32 %r1, 0; ret; }");
    text_case("unknown_label", HEAD ".visible .entry k() { bra away; ret; }");
    text_case("wrong_width", HEAD ".visible .entry k() { .reg .b64 %a; mov.u32 %a, 0; ret; }");
    text_case("float_in_integer_add", HEAD ".visible .entry k() { .reg .f32 %f; add.u32 %f, %f, 1; ret; }");
    text_case("unsigned_register_in_float_add", HEAD ".visible .entry k() { .reg .u32 %f; add.f32 %f, %f, %f; ret; }");
    text_case("register_twice", HEAD ".visible .entry k() { .reg .b32 %r; .reg .b32 %r; ret; }");
    text_case("label_twice", HEAD ".visible .entry k() { a: a: ret; }");
    text_case("kernel_twice", HEAD ".visible .entry k() { ret; } .visible .entry k() { ret; }");
    text_case("no_brace", HEAD ".visible .entry k() { ret;");
    text_case("no_ret", HEAD ".visible .entry k() { }");
    text_case("vector_parts_alike", HEAD ".visible .entry k() { .reg .b64 %a; .reg .b32 %r; ld.global.v2.u32 {%r, %r}, [%a]; ret; }");
    text_case("vector_of_three", HEAD ".visible .entry k() { .reg .b64 %a; .reg .b32 %r<4>; ld.global.v3.u32 {%r0, %r1, %r2}, [%a]; ret; }");
    text_case("vector_of_four_longs", HEAD ".visible .entry k() { .reg .b64 %a<5>; ld.global.v4.u64 {%a0, %a1, %a2, %a3}, [%a4]; ret; }");
    text_case("immediate_too_wide", HEAD ".visible .entry k() { .reg .b32 %r; mov.u32 %r, 0x123456789; ret; }");
    text_case("address_of_32_bits", HEAD ".visible .entry k() { .reg .b32 %r<2>; ld.global.u32 %r0, [%r1]; ret; }");
    text_case("param_too_far", HEAD ".visible .entry k(.param .u32 p) { .reg .b32 %r; ld.param.u32 %r, [p+4]; ret; }");
    text_case("volatile_local", HEAD ".visible .entry k() { .local .b32 l; .reg .b32 %r; ld.volatile.local.u32 %r, [l]; ret; }");
    text_case("shared_too_large", HEAD ".visible .entry k() { .shared .b8 s[50000]; .reg .b32 %r; mov.u32 %r, s; st.shared.u32 [%r], %r; ret; }");
    in_child("load", [] {
        CUmodule module = nullptr;
        FACT("load.no_context", cuModuleLoadData(&module, PTX));
        start();
        FACT("load.null_image", cuModuleLoadData(&module, nullptr));
        FACT("load.null_out", cuModuleLoadData(nullptr, PTX));
        FACT("load.no_file", cuModuleLoad(&module, "/nonexistent/module.ptx"));
        FACT("load.good", cuModuleLoadData(&module, PTX));
        CUfunction function = nullptr;
        FACT("get.good", cuModuleGetFunction(&function, module, "touch"));
        CUfunction again = nullptr;
        MUST(cuModuleGetFunction(&again, module, "touch"));
        number("get.same", again == function);
        FACT("get.unknown", cuModuleGetFunction(&function, module, "tuoch"));
        FACT("get.empty", cuModuleGetFunction(&function, module, ""));
        FACT("get.null_name", cuModuleGetFunction(&function, module, nullptr));
        FACT("get.null_out", cuModuleGetFunction(nullptr, module, "touch"));
        FACT("get.null_module", cuModuleGetFunction(&function, nullptr, "touch"));
        CUdeviceptr at = 0;
        size_t size = 0;
        FACT("global.counter", cuModuleGetGlobal(&at, &size, module, "counter"));
        number("global.counter.size", (long long)size);
        number("global.counter.value", word(at));
        FACT("global.free", cuMemFree(at));
        unsigned kind = 0;
        FACT("global.kind", cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
        number("global.kind.value", kind);
        CUcontext owner = nullptr;
        FACT("global.context", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at));
        number("global.context.same", owner == context[0]);
        FACT("global.table", cuModuleGetGlobal(&at, &size, module, "table"));
        number("global.table.size", (long long)size);
        number("global.table.value", word(at));
        FACT("global.unseen", cuModuleGetGlobal(&at, &size, module, "unseen"));
        FACT("global.function", cuModuleGetGlobal(&at, &size, module, "touch"));
        FACT("global.unknown", cuModuleGetGlobal(&at, &size, module, "cuonter"));
        FACT("global.no_address", cuModuleGetGlobal(nullptr, &size, module, "counter"));
        FACT("global.no_size", cuModuleGetGlobal(&at, nullptr, module, "counter"));
        FACT("global.neither", cuModuleGetGlobal(nullptr, nullptr, module, "counter"));
        FACT("global.null_name", cuModuleGetGlobal(&at, &size, module, nullptr));
        CUmoduleLoadingMode mode = (CUmoduleLoadingMode)9;
        FACT("mode", cuModuleGetLoadingMode(&mode));
        number("mode.value", mode);
        int value = -1;
        struct { const char *name; CUfunction_attribute attribute; } all[] = {
            {"threads", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK}, {"shared", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES},
            {"const", CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES}, {"local", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES},
            {"ptx", CU_FUNC_ATTRIBUTE_PTX_VERSION}, {"binary", CU_FUNC_ATTRIBUTE_BINARY_VERSION},
            {"cache", CU_FUNC_ATTRIBUTE_CACHE_MODE_CA}, {"dynamic", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES},
            {"carveout", CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT}};
        CUfunction holds = function_of(module, "holds"), few = function_of(module, "few");
        for (auto &one : all) {
            MUST(cuFuncGetAttribute(&value, one.attribute, holds));
            number((std::string("attribute.") + one.name).c_str(), value);
        }
        MUST(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, few));
        number("attribute.few", value);
        FACT("attribute.unknown", cuFuncGetAttribute(&value, (CUfunction_attribute)99, holds));
        FACT("attribute.null_out", cuFuncGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, holds));
        FACT("attribute.null_function", cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr));
        FACT("set.dynamic", cuFuncSetAttribute(holds, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
        MUST(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, holds));
        number("set.dynamic.value", value);
        FACT("set.dynamic_too_large", cuFuncSetAttribute(holds, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448));
        FACT("set.registers", cuFuncSetAttribute(holds, CU_FUNC_ATTRIBUTE_NUM_REGS, 8));
        FACT("set.unknown", cuFuncSetAttribute(holds, (CUfunction_attribute)99, 8));
        const char *name = nullptr;
        FACT("name", cuFuncGetName(&name, holds));
        printf("name.text = %s\n", name ? name : "");
        FACT("name.null", cuFuncGetName(&name, nullptr));
        CUmodule of = nullptr;
        FACT("module", cuFuncGetModule(&of, holds));
        number("module.same", of == module);
        FACT("module.null", cuFuncGetModule(&of, nullptr));
        FACT("unload", cuModuleUnload(module));
        FACT("unload.null", cuModuleUnload(nullptr));
    });
    in_child("use_of_unloaded", [] { start(); CUmodule m = load(PTX); MUST(cuModuleUnload(m)); CUfunction f; FACT("use_of_unloaded", cuModuleGetFunction(&f, m, "touch")); });
    in_child("unload_twice", [] { start(); CUmodule m = load(PTX); MUST(cuModuleUnload(m)); FACT("unload_twice", cuModuleUnload(m)); });
    in_child("launch_of_unloaded", [] { start(); CUmodule m = load(PTX); CUfunction f = function_of(m, "stop"); MUST(cuModuleUnload(m)); FACT("launch_of_unloaded", cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr)); });
    in_child("log", [] {
        start();
        char error[512] = "", info[512] = "";
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {error, (void *)(uintptr_t)512, info, (void *)(uintptr_t)512};
        CUmodule module = nullptr;
        FACT("log.bad", cuModuleLoadDataEx(&module, HEAD ".visible .entry k() { mov.u32 %r1, 0; ret; }", 4, options, values));
        number("log.bad.said", error[0] != 0);
        number("log.bad.length_without_end", (uintptr_t)values[1] == strlen(error));
        number("log.bad.names_it", strstr(error, "%r1") != nullptr);
        values[1] = values[3] = (void *)(uintptr_t)512;
        FACT("log.good", cuModuleLoadDataEx(&module, PTX, 4, options, values));
        number("log.good.error_length", (long long)(uintptr_t)values[1]);
        number("log.good.info_length", (long long)(uintptr_t)values[3]);
        FACT("log.null_options", cuModuleLoadDataEx(&module, PTX, 2, nullptr, nullptr));
        CUjit_option odd[] = {(CUjit_option)999};
        void *nothing[] = {nullptr};
        FACT("log.odd_option", cuModuleLoadDataEx(&module, PTX, 1, odd, nothing));
    });
    in_child("library", [] {
        start();
        CUlibrary library = nullptr;
        CUkernel kernel = nullptr;
        CUfunction function = nullptr;
        CUmodule module = nullptr;
        MUST(cuCtxSetCurrent(nullptr));
        FACT("library.without_context", cuLibraryLoadData(&library, PTX, nullptr, nullptr, 0, nullptr, nullptr, 0));
        FACT("library.kernel", cuLibraryGetKernel(&kernel, library, "touch"));
        FACT("library.unknown", cuLibraryGetKernel(&kernel, library, "tuoch"));
        FACT("library.function_without_context", cuKernelGetFunction(&function, kernel));
        MUST(cuCtxSetCurrent(context[0]));
        FACT("library.function", cuKernelGetFunction(&function, kernel));
        FACT("library.module", cuLibraryGetModule(&module, library));
        CUdeviceptr block = take(64);
        FACT("library.launch", launch(function, block));
        FACT("library.launch_kernel", launch((CUfunction)kernel, block));
        number("library.value", word(block));
        FACT("library.unload_module", cuModuleUnload(module));
        if (devices > 1) {
            MUST(cuCtxSetCurrent(context[1]));
            CUdeviceptr other = take(64);
            FACT("library.launch_on_other", launch((CUfunction)kernel, other));
            number("library.other_value", word(other));
        }
        FACT("library.unload", cuLibraryUnload(library));
        CUlibrary bad = nullptr;
        FACT("library.bad", cuLibraryLoadData(&bad, "no program", nullptr, nullptr, 0, nullptr, nullptr, 0));
        FACT("library.bad_kernel", cuLibraryGetKernel(&kernel, bad, "touch"));
        FACT("library.bad_module", cuLibraryGetModule(&module, bad));
    });
}

static void launching()
{
    in_child("launch", [] {
        start();
        CUmodule module = load(PTX);
        CUfunction touch = function_of(module, "touch"), holds = function_of(module, "holds"), few = function_of(module, "few");
        CUdeviceptr block = take(4096);
        void *params[] = {&block};
        auto shape = [&](const char *name, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared) { fact(name, cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, nullptr, params, nullptr)); };
        shape("shape.good", touch, 1, 1, 1, 1, 1, 1, 0);
        shape("shape.grid_0", touch, 0, 1, 1, 1, 1, 1, 0);
        shape("shape.block_0", touch, 1, 1, 1, 1, 0, 1, 0);
        shape("shape.block_1025", touch, 1, 1, 1, 1025, 1, 1, 0);
        shape("shape.block_33x32", touch, 1, 1, 1, 33, 32, 1, 0);
        shape("shape.block_z_65", touch, 1, 1, 1, 1, 1, 65, 0);
        shape("shape.grid_y_65536", touch, 1, 65536, 1, 1, 1, 1, 0);
        shape("shape.grid_x_2G", touch, 0x80000000u, 1, 1, 1, 1, 1, 0);
        shape("shape.shared_48K", touch, 1, 1, 1, 1, 1, 1, 49152);
        shape("shape.shared_48K_1", touch, 1, 1, 1, 1, 1, 1, 49153);
        shape("shape.shared_and_own", holds, 1, 1, 1, 1, 1, 1, 48128);
        shape("shape.shared_and_own_above", holds, 1, 1, 1, 1, 1, 1, 48129);
        shape("shape.few_64", few, 1, 1, 1, 64, 1, 1, 0);
        shape("shape.few_65", few, 1, 1, 1, 65, 1, 1, 0);
        MUST(cuFuncSetAttribute(touch, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
        shape("shape.shared_64K_allowed", touch, 1, 1, 1, 1, 1, 1, 65536);
        FACT("launch.null_function", launch(nullptr, block));
        FACT("launch.both", [&] { size_t size = 8; void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END}; return cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, nullptr, params, extra); }());
        auto extra = [&](const char *name, size_t size) { void *all[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END}; fact(name, cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, all)); };
        extra("launch.extra", 8);
        extra("launch.extra_long", 16);
        FACT("launch.neither", cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
        FACT("launch.no_params_needed", cuLaunchKernel(few, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
        number("launch.count", word(block));
        uint8_t a = 200; uint16_t b = 50000; struct { uint64_t x; uint32_t y; } c = {1, 77};
        void *mixed[] = {&a, &block, &b, &c};
        FACT("launch.mixed", cuLaunchKernel(function_of(module, "mixed"), 1, 1, 1, 1, 1, 1, 0, nullptr, mixed, nullptr));
        number("launch.mixed.a", word(block));
        number("launch.mixed.b", word(block + 4));
        number("launch.mixed.c", word(block + 8));
        CUlaunchConfig config = {};
        config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
        FACT("launch.ex", cuLaunchKernelEx(&config, touch, params, nullptr));
        FACT("launch.ex_null", cuLaunchKernelEx(nullptr, touch, params, nullptr));
        config.numAttrs = 1;
        FACT("launch.ex_null_attributes", cuLaunchKernelEx(&config, touch, params, nullptr));
        int blocks = -1;
        FACT("occupancy", cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, touch, 128, 0));
        number("occupancy.128", blocks);
        MUST(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, touch, 1024, 0));
        number("occupancy.1024", blocks);
        MUST(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, touch, 32, 0));
        number("occupancy.32", blocks);
        FACT("occupancy.0", cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, touch, 0, 0));
        FACT("occupancy.null", cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nullptr, 128, 0));
        CUstream mine = nullptr;
        MUST(cuStreamCreate(&mine, NO_JOIN));
        MUST(cuCtxSetCurrent(nullptr));
        FACT("launch.no_context_default_stream", launch(touch, block));
        FACT("launch.no_context_own_stream", launch(touch, block, mine));
        if (devices > 1) {
            MUST(cuCtxSetCurrent(context[1]));
            CUstream other = nullptr;
            MUST(cuStreamCreate(&other, NO_JOIN));
            FACT("launch.function_of_other", launch(touch, block));
            FACT("launch.function_of_other_on_its_stream", launch(touch, block, mine));
            FACT("launch.function_of_other_own_stream", launch(touch, block, other));
            MUST(cuCtxSetCurrent(context[0]));
            FACT("launch.stream_of_other", launch(touch, block, other));
            CUfunction found = nullptr;
            MUST(cuCtxSetCurrent(context[1]));
            FACT("get.from_other_context", cuModuleGetFunction(&found, module, "holds"));
            CUdeviceptr at;
            FACT("global.from_other_context", cuModuleGetGlobal(&at, nullptr, module, "counter"));
            FACT("unload.from_other_context", cuModuleUnload(module));
        }
    });
    in_child("capture", [] {
        start();
        CUfunction touch = function_of(load(PTX), "touch");
        CUdeviceptr block = take(64), other = take(64);
        CUstream s = nullptr;
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        CUgraphNode nodes[2] = {};
        size_t count = 2;
        MUST(cuStreamCreate(&s, NO_JOIN));
        CUdeviceptr place = block;
        void *params[] = {&place};
        MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        FACT("capture.launch", cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, s, params, nullptr));
        FACT("capture.end", cuStreamEndCapture(s, &graph));
        place = other;
        MUST(cuGraphGetNodes(graph, nodes, &count));
        number("capture.nodes", (long long)count);
        CUgraphNodeType type;
        MUST(cuGraphNodeGetType(nodes[0], &type));
        number("capture.type", type);
        CUDA_KERNEL_NODE_PARAMS told = {};
        FACT("capture.params", cuGraphKernelNodeGetParams(nodes[0], &told));
        number("capture.params.function", told.func == touch);
        number("capture.params.grid", told.gridDimX);
        number("capture.params.param", *(CUdeviceptr *)told.kernelParams[0] == block);
        number("capture.params.extra", told.extra != nullptr);
        CUDA_KERNEL_NODE_PARAMS made = {};
        made.func = touch;
        made.gridDimX = made.gridDimY = made.gridDimZ = made.blockDimX = made.blockDimY = made.blockDimZ = 1;
        made.kernelParams = params;
        FACT("capture.add", cuGraphAddKernelNode(&nodes[1], graph, nullptr, 0, &made));
        made.gridDimX = 0;
        FACT("capture.add_bad_shape", cuGraphAddKernelNode(&nodes[1], graph, nullptr, 0, &made));
        MUST(cuGraphInstantiate(&exec, graph, 0));
        for (int i = 0; i < 3; i++)
            MUST(cuGraphLaunch(exec, s));
        MUST(cuStreamSynchronize(s));
        number("capture.ran", word(block));
        number("capture.ran_added", word(other));
        place = 8;
        MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        FACT("capture.launch_bad", cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, s, params, nullptr));
        MUST(cuStreamEndCapture(s, &graph));
        FACT("capture.instantiate_bad", cuGraphInstantiate(&exec, graph, 0));
        FACT("capture.launch_graph_bad", cuGraphLaunch(exec, s));
        FACT("capture.synchronize_bad", cuStreamSynchronize(s));
        FACT("capture.launch_graph_again", cuGraphLaunch(exec, s));
    });
    struct { const char *name; std::function<CUresult(CUmodule, CUfunction, CUstream)> call; } beside[] = {
        {"bad_shape", [](CUmodule, CUfunction f, CUstream s) { CUdeviceptr p = 8; void *params[] = {&p}; return cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, s, params, nullptr); }},
        {"no_params", [](CUmodule, CUfunction f, CUstream s) { return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr); }},
        {"null_function", [](CUmodule, CUfunction, CUstream s) { CUdeviceptr p = 8; return launch(nullptr, p, s); }},
        {"load", [](CUmodule, CUfunction, CUstream) { CUmodule module; return cuModuleLoadData(&module, PTX); }},
        {"load_without_variables", [](CUmodule, CUfunction, CUstream) { CUmodule module; return cuModuleLoadData(&module, HEAD ".visible .entry k() { ret; }"); }},
        {"get", [](CUmodule m, CUfunction, CUstream) { CUfunction f; return cuModuleGetFunction(&f, m, "holds"); }},
        {"global", [](CUmodule m, CUfunction, CUstream) { CUdeviceptr at; return cuModuleGetGlobal(&at, nullptr, m, "counter"); }},
        {"attribute", [](CUmodule, CUfunction f, CUstream) { int n; return cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, f); }},
        {"set", [](CUmodule, CUfunction f, CUstream) { return cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536); }},
        {"occupancy", [](CUmodule, CUfunction f, CUstream) { int n; return cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, f, 128, 0); }},
        {"unload", [](CUmodule m, CUfunction, CUstream) { return cuModuleUnload(m); }},
        {"library", [](CUmodule, CUfunction, CUstream) { CUlibrary library; return cuLibraryLoadData(&library, PTX, nullptr, nullptr, 0, nullptr, nullptr, 0); }},
        {"library_function", [](CUmodule, CUfunction, CUstream) { CUlibrary library; CUkernel k; CUfunction f; CUresult r = cuLibraryLoadData(&library, PTX, nullptr, nullptr, 0, nullptr, nullptr, 0); if (r) return r; r = cuLibraryGetKernel(&k, library, "touch"); return r ? r : cuKernelGetFunction(&f, k); }},
    };
    for (auto &one : beside)
        in_child("beside", [&] {
            start();
            CUmodule module = load(PTX);
            CUfunction f = function_of(module, "touch");
            CUstream s = nullptr;
            CUgraph graph = nullptr;
            MUST(cuStreamCreate(&s, NO_JOIN));
            MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
            fact((std::string("beside.") + one.name).c_str(), one.call(module, f, s));
            fact((std::string("beside.") + one.name + ".end").c_str(), cuStreamEndCapture(s, &graph));
        });
    in_child("capture_unload", [] {
        start();
        CUmodule module = load(PTX);
        CUstream s = nullptr;
        CUgraph graph = nullptr;
        MUST(cuStreamCreate(&s, NO_JOIN));
        MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        FACT("capture_unload.unload", cuModuleUnload(module));
        FACT("capture_unload.end", cuStreamEndCapture(s, &graph));
        FACT("capture_unload.again", cuModuleUnload(module));
    });
    in_child("graph_after_unload", [] {
        start();
        CUmodule module = load(PTX);
        CUstream s = nullptr;
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        CUdeviceptr block = take(64);
        MUST(cuStreamCreate(&s, NO_JOIN));
        MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        MUST(launch(function_of(module, "touch"), block, s));
        MUST(cuStreamEndCapture(s, &graph));
        MUST(cuGraphInstantiate(&exec, graph, 0));
        FACT("graph_after_unload.unload", cuModuleUnload(module));
        FACT("graph_after_unload.launch", cuGraphLaunch(exec, s));
        FACT("graph_after_unload.synchronize", cuStreamSynchronize(s));
    });
    in_child("capture_other", [] {
        start();
        if (devices < 2)
            return;
        CUfunction touch = function_of(load(PTX), "touch");
        CUdeviceptr block = take(64);
        MUST(cuCtxSetCurrent(context[1]));
        CUstream s = nullptr;
        MUST(cuStreamCreate(&s, NO_JOIN));
        MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        FACT("capture_other.launch", launch(touch, block, s));
        CUstreamCaptureStatus status;
        MUST(cuStreamIsCapturing(s, &status));
        number("capture_other.status", status);
    });
}

// Each way to fail, and what the synchronise after it says, once and again.
static void fault_case(const char *name, const char *kernel, CUdeviceptr at)
{
    in_child(name, [=] {
        start();
        CUfunction f = function_of(load(PTX), kernel);
        CUdeviceptr block = take(64);
        fact((std::string("fault.") + name + ".launch").c_str(), launch(f, at == 1 ? block + 2 : at));
        fact((std::string("fault.") + name).c_str(), cuCtxSynchronize());
        fact((std::string("fault.") + name + ".again").c_str(), cuCtxSynchronize());
    });
}

static void after_a_fault()
{
    fault_case("null", "touch", 0);
    fault_case("low", "touch", 8);
    fault_case("odd", "touch", 1);
    fault_case("odd_nowhere", "touch", 6);
    fault_case("not_canonical", "touch", 0x123456789abcdef0ull);
    fault_case("trap", "stop", 0);
    fault_case("brkpt", "pause", 0);
    fault_case("far_shared", "far_shared", 0x4000000);
    fault_case("far_generic_shared", "far_generic", 0x4000000);
    fault_case("odd_shared", "far_shared", 2);
    in_child("sticky", [] {
        start();
        CUmodule module = load(PTX);
        CUfunction touch = function_of(module, "touch");
        CUstream s, t;
        CUevent e, before, b2;
        CUdeviceptr block = take(4096), pooled = 0, x = 0, managed = 0;
        void *pinned = nullptr, *h = nullptr;
        char bytes[64];
        MUST(cuStreamCreate(&s, NO_JOIN));
        MUST(cuStreamCreate(&t, NO_JOIN));
        MUST(cuEventCreate(&e, 0));
        MUST(cuEventCreate(&before, 0));
        MUST(cuEventCreate(&b2, 0));
        MUST(cuEventRecord(before, s));
        MUST(cuMemAllocAsync(&pooled, 4096, s));
        MUST(cuMemAllocHost(&pinned, 4096));
        MUST(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
        void *plain = aligned_alloc(4096, 8192);
        MUST(cuMemHostRegister(plain, 4096, 0));
        CUgraph graph, g2;
        CUgraphExec exec, x2;
        CUmemoryPool pool, own, p2;
        CUmemPoolProps props = {};
        props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        MUST(cuMemPoolCreate(&own, &props));
        MUST(cuDeviceGetDefaultMemPool(&pool, 0));
        MUST(cuGraphCreate(&graph, 0));
        CUgraphNode node;
        MUST(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
        MUST(cuGraphInstantiate(&exec, graph, 0));
        MUST(cuCtxSynchronize());
        CUcontext current;
        CUfunction f;
        CUmodule m;
        CUdevice device;
        unsigned long long id;
        unsigned flags;
        int active, value;
        size_t a, b;
        unsigned long long u;
        float ms;
        cuuint64_t threshold = 0;
        MUST(launch(touch, 8, s));
        cuEventRecord(e, s); // may hear of it already
        FACT("sticky.first", cuStreamSynchronize(s));
        FACT("sticky.stream_synchronize", cuStreamSynchronize(s));
        FACT("sticky.other_stream_synchronize", cuStreamSynchronize(t));
        FACT("sticky.stream_query", cuStreamQuery(s));
        FACT("sticky.other_stream_query", cuStreamQuery(t));
        FACT("sticky.ctx_synchronize", cuCtxSynchronize());
        FACT("sticky.ctx_get_current", cuCtxGetCurrent(&current));
        FACT("sticky.ctx_set_current", cuCtxSetCurrent(context[0]));
        FACT("sticky.ctx_push", cuCtxPushCurrent(context[0]));
        FACT("sticky.ctx_pop", cuCtxPopCurrent(&current));
        FACT("sticky.ctx_get_device", cuCtxGetDevice(&device));
        FACT("sticky.ctx_get_id", cuCtxGetId(context[0], &id));
        FACT("sticky.ctx_get_flags", cuCtxGetFlags(&flags));
        FACT("sticky.ctx_get_limit", cuCtxGetLimit(&a, CU_LIMIT_STACK_SIZE));
        FACT("sticky.ctx_set_limit", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
        FACT("sticky.ctx_get_api_version", cuCtxGetApiVersion(context[0], &flags));
        int least, greatest;
        FACT("sticky.ctx_priorities", cuCtxGetStreamPriorityRange(&least, &greatest));
        FACT("sticky.primary_state", cuDevicePrimaryCtxGetState(0, &flags, &active));
        number("sticky.primary_state.active", active);
        FACT("sticky.primary_retain", cuDevicePrimaryCtxRetain(&current, 0));
        FACT("sticky.primary_release", cuDevicePrimaryCtxRelease(0));
        FACT("sticky.device_attribute", cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
        FACT("sticky.device_total", cuDeviceTotalMem(&a, 0));
        FACT("sticky.can_access_peer", cuDeviceCanAccessPeer(&value, 0, devices - 1));
        FACT("sticky.device_get_pool", cuDeviceGetMemPool(&p2, 0));
        FACT("sticky.device_graph_memory", cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &threshold));
        FACT("sticky.device_graph_trim", cuDeviceGraphMemTrim(0));
        CUstream none;
        FACT("sticky.stream_create", cuStreamCreate(&none, NO_JOIN));
        FACT("sticky.stream_get_id", cuStreamGetId(s, &id));
        FACT("sticky.stream_get_ctx", cuStreamGetCtx(s, &current));
        FACT("sticky.stream_get_flags", cuStreamGetFlags(s, &flags));
        FACT("sticky.stream_get_priority", cuStreamGetPriority(s, &value));
        CUstreamCaptureStatus status;
        FACT("sticky.stream_is_capturing", cuStreamIsCapturing(s, &status));
        FACT("sticky.stream_capture_info", cuStreamGetCaptureInfo(s, &status, (cuuint64_t *)&u, nullptr, nullptr, nullptr, nullptr));
        FACT("sticky.begin_capture", cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        FACT("sticky.end_capture", cuStreamEndCapture(s, &g2));
        FACT("sticky.stream_wait", cuStreamWaitEvent(t, before, 0));
        FACT("sticky.host_function", cuLaunchHostFunc(s, [](void *) {}, nullptr));
        CUevent nothing;
        FACT("sticky.event_create", cuEventCreate(&nothing, 0));
        FACT("sticky.event_record", cuEventRecord(e, s));
        FACT("sticky.event_query", cuEventQuery(e));
        FACT("sticky.event_query_before", cuEventQuery(before));
        FACT("sticky.event_synchronize", cuEventSynchronize(e));
        FACT("sticky.event_synchronize_before", cuEventSynchronize(before));
        FACT("sticky.event_elapsed", cuEventElapsedTime(&ms, before, before));
        FACT("sticky.event_destroy", cuEventDestroy(e));
        FACT("sticky.alloc", cuMemAlloc(&x, 64));
        FACT("sticky.alloc_async", cuMemAllocAsync(&x, 64, s));
        FACT("sticky.alloc_from_pool", cuMemAllocFromPoolAsync(&x, 64, own, s));
        FACT("sticky.alloc_host", cuMemAllocHost(&h, 64));
        FACT("sticky.host_alloc", cuMemHostAlloc(&h, 64, 0));
        FACT("sticky.alloc_managed", cuMemAllocManaged(&x, 64, CU_MEM_ATTACH_GLOBAL));
        FACT("sticky.register", cuMemHostRegister((char *)plain + 4096, 4096, 0));
        FACT("sticky.unregister", cuMemHostUnregister(plain));
        FACT("sticky.host_device_pointer", cuMemHostGetDevicePointer(&x, pinned, 0));
        FACT("sticky.host_flags", cuMemHostGetFlags(&flags, pinned));
        FACT("sticky.free_async", cuMemFreeAsync(pooled, s));
        FACT("sticky.free", cuMemFree(block));
        FACT("sticky.free_null", cuMemFree(0));
        FACT("sticky.free_managed", cuMemFree(managed));
        FACT("sticky.free_host", cuMemFreeHost(pinned));
        FACT("sticky.mem_info", cuMemGetInfo(&a, &b));
        FACT("sticky.address_range", cuMemGetAddressRange(&x, &a, block));
        FACT("sticky.copy_to", cuMemcpyHtoD(block, bytes, 64));
        FACT("sticky.copy_from_async", cuMemcpyDtoHAsync(bytes, block, 64, s));
        FACT("sticky.copy_async", cuMemcpyAsync(block, block + 64, 64, s));
        FACT("sticky.copy_nothing", cuMemcpyHtoD(block, bytes, 0));
        FACT("sticky.fill", cuMemsetD8(block, 0, 64));
        FACT("sticky.fill_async", cuMemsetD8Async(block, 0, 64, s));
        FACT("sticky.pointer_attribute", cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_CONTEXT, block));
        FACT("sticky.pointer_device", cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, block));
        CUpointer_attribute which = CU_POINTER_ATTRIBUTE_CONTEXT;
        void *where = &u;
        FACT("sticky.pointer_attributes", cuPointerGetAttributes(1, &which, &where, block));
        FACT("sticky.pool_get", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
        FACT("sticky.pool_set", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
        FACT("sticky.pool_trim", cuMemPoolTrimTo(pool, 0));
        CUmemAccess_flags access;
        CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
        FACT("sticky.pool_access", cuMemPoolGetAccess(&access, pool, &location));
        if (devices > 1) {
            CUmemAccessDesc to = {{CU_MEM_LOCATION_TYPE_DEVICE, {1}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
            FACT("sticky.pool_set_access", cuMemPoolSetAccess(pool, &to, 1));
        }
        FACT("sticky.pool_create", cuMemPoolCreate(&p2, &props));
        FACT("sticky.pool_destroy", cuMemPoolDestroy(own));
        CUmemAllocationProp physical = {};
        physical.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        physical.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CUmemGenericAllocationHandle handle = 0;
        CUresult reserved = cuMemAddressReserve(&x, 2 << 20, 0, 0, 0);
        fact("sticky.reserve", reserved);
        CUresult created = cuMemCreate(&handle, 2 << 20, &physical, 0);
        fact("sticky.physical", created);
        if (!reserved && !created)
            FACT("sticky.map", cuMemMap(x, 2 << 20, 0, handle, 0));
        FACT("sticky.module_load", cuModuleLoadData(&m, PTX));
        FACT("sticky.module_get", cuModuleGetFunction(&f, module, "holds"));
        FACT("sticky.module_global", cuModuleGetGlobal(&x, &a, module, "counter"));
        FACT("sticky.function_attribute", cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, touch));
        FACT("sticky.occupancy", cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, touch, 128, 0));
        FACT("sticky.launch", launch(touch, block, s));
        FACT("sticky.launch_bad", cuLaunchKernel(touch, 0, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr));
        FACT("sticky.module_unload", cuModuleUnload(module));
        FACT("sticky.graph_create", cuGraphCreate(&g2, 0));
        FACT("sticky.graph_add", cuGraphAddEmptyNode(&node, graph, nullptr, 0));
        FACT("sticky.graph_instantiate", cuGraphInstantiate(&x2, graph, 0));
        FACT("sticky.graph_launch", cuGraphLaunch(exec, s));
        FACT("sticky.graph_exec_destroy", cuGraphExecDestroy(exec));
        FACT("sticky.graph_destroy", cuGraphDestroy(graph));
        if (devices > 1) {
            FACT("sticky.enable_peer", cuCtxEnablePeerAccess(context[1], 0));
            FACT("sticky.disable_peer", cuCtxDisablePeerAccess(context[1]));
            MUST(cuCtxSetCurrent(context[1]));
            FACT("sticky.other_enable_peer", cuCtxEnablePeerAccess(context[0], 0));
            CUdeviceptr other = 0;
            FACT("sticky.other_alloc", cuMemAlloc(&other, 4096));
            FACT("sticky.other_fill", cuMemsetD8(other, 0, 4096));
            FACT("sticky.other_copy_from_it", cuMemcpyDtoD(other, block, 64));
            FACT("sticky.other_synchronize", cuCtxSynchronize());
            FACT("sticky.other_query_its_stream", cuStreamQuery(s));
            MUST(cuCtxSetCurrent(context[0]));
        }
        MUST(cuCtxSetCurrent(nullptr));
        FACT("sticky.no_context_stream_query", cuStreamQuery(s));
        FACT("sticky.no_context_free_async", cuMemFreeAsync(pooled, s));
        FACT("sticky.created_beside", cuCtxCreate(&current, nullptr, 0, 0));
        FACT("sticky.beside_alloc", cuMemAlloc(&x, 64));
        FACT("sticky.beside_synchronize", cuCtxSynchronize());
        MUST(cuCtxSetCurrent(context[0]));
        FACT("sticky.stream_destroy", cuStreamDestroy(t));
        FACT("sticky.reset", cuDevicePrimaryCtxReset(0));
        FACT("sticky.retain_after_reset", cuDevicePrimaryCtxRetain(&current, 0));
        MUST(cuCtxSetCurrent(current));
        FACT("sticky.alloc_after_reset", cuMemAlloc(&x, 64));
        FACT("sticky.synchronize_after_reset", cuCtxSynchronize());
    });
    // The legacy stream, and who hears of a fault first.
    struct { const char *name; std::function<CUresult(CUstream, CUevent, CUdeviceptr)> ask; } firsts[] = {
        {"stream_query", [](CUstream s, CUevent, CUdeviceptr) { return cuStreamQuery(s); }},
        {"event_query", [](CUstream, CUevent e, CUdeviceptr) { return cuEventQuery(e); }},
        {"event_synchronize", [](CUstream, CUevent e, CUdeviceptr) { return cuEventSynchronize(e); }},
        {"copy", [](CUstream, CUevent, CUdeviceptr block) { char bytes[4]; return cuMemcpyDtoH(bytes, block, 4); }},
    };
    for (auto &first : firsts)
        in_child("first", [&] {
            start();
            CUstream s;
            CUevent e;
            MUST(cuStreamCreate(&s, NO_JOIN));
            MUST(cuEventCreate(&e, 0));
            CUfunction touch = function_of(load(PTX), "touch");
            CUdeviceptr block = take(64);
            MUST(cuCtxSynchronize());
            MUST(launch(touch, 8, s));
            cuEventRecord(e, s);
            usleep(200000);
            fact((std::string("first.") + first.name).c_str(), first.ask(s, e, block));
        });
    in_child("created", [] {
        start();
        CUcontext own = nullptr;
        MUST(cuCtxCreate(&own, nullptr, 0, 0));
        CUfunction touch = function_of(load(PTX), "touch");
        MUST(launch(touch, 8));
        FACT("created.synchronize", cuCtxSynchronize());
        FACT("created.destroy", cuCtxDestroy(own));
        MUST(cuCtxSetCurrent(context[0]));
        CUdeviceptr block = 0;
        FACT("created.primary_alloc", cuMemAlloc(&block, 64));
        FACT("created.primary_launch", [&] { CUmodule m = nullptr; CUfunction f = nullptr; CUresult r = cuModuleLoadData(&m, PTX); if (r) return r; MUST(cuModuleGetFunction(&f, m, "touch")); r = launch(f, block); return r ? r : cuCtxSynchronize(); }());
    });
    in_child("primary_lives", [] {
        start();
        CUcontext own = nullptr;
        MUST(cuCtxCreate(&own, nullptr, 0, 0));
        CUfunction touch = function_of(load(PTX), "touch");
        MUST(launch(touch, 8));
        FACT("primary_lives.synchronize", cuCtxSynchronize());
        MUST(cuCtxSetCurrent(context[0]));
        CUdeviceptr block = 0;
        FACT("primary_lives.alloc", cuMemAlloc(&block, 64));
        FACT("primary_lives.synchronize_own", cuCtxSynchronize());
    });
    in_child("peer_fault", [] {
        start();
        if (devices < 2)
            return;
        CUdeviceptr block = take(64);
        MUST(cuCtxSetCurrent(context[1]));
        CUfunction touch = function_of(load(PTX), "touch");
        MUST(launch(touch, block));
        FACT("peer_fault.synchronize", cuCtxSynchronize());
        MUST(cuCtxSetCurrent(context[0]));
        FACT("peer_fault.owner_synchronize", cuCtxSynchronize());
    });
    in_child("release", [] {
        start();
        CUfunction touch = function_of(load(PTX), "touch");
        MUST(launch(touch, 8));
        FACT("release.synchronize", cuCtxSynchronize());
        FACT("release.release", cuDevicePrimaryCtxRelease(0));
        CUcontext again;
        FACT("release.retain", cuDevicePrimaryCtxRetain(&again, 0));
        MUST(cuCtxSetCurrent(context[0]));
        CUdeviceptr x;
        FACT("release.alloc", cuMemAlloc(&x, 64));
    });
}

// One kernel that leaves the results of many small computations, each a line here.
struct Edge { const char *name, *code; };
static const Edge EDGES[] = {
    {"div_u32_by_0", "mov.u32 a, 7; mov.u32 b, z32; div.u32 r, a, b;"},
    {"rem_u32_by_0", "mov.u32 a, 7; mov.u32 b, z32; rem.u32 r, a, b;"},
    {"div_s32_by_0", "mov.u32 a, -7; mov.u32 b, z32; div.s32 r, a, b;"},
    {"rem_s32_by_0", "mov.u32 a, -7; mov.u32 b, z32; rem.s32 r, a, b;"},
    {"div_s32_min", "mov.u32 a, 0x80000000; mov.u32 b, -1; add.u32 b, b, z32; div.s32 r, a, b;"},
    {"rem_s32_min", "mov.u32 a, 0x80000000; mov.u32 b, -1; add.u32 b, b, z32; rem.s32 r, a, b;"},
    {"rem_s32_negative", "mov.u32 a, -7; mov.u32 b, 3; add.u32 b, b, z32; rem.s32 r, a, b;"},
    {"div_u64_by_0", "mov.u64 x, 7; cvt.u64.u32 y, z32; div.u64 x, x, y; cvt.u32.u64 r, x;"},
    {"rem_u64_by_0", "mov.u64 x, 7; cvt.u64.u32 y, z32; rem.u64 x, x, y; cvt.u32.u64 r, x;"},
    {"div_s64_by_0_high", "mov.u64 x, -7; cvt.u64.u32 y, z32; div.s64 x, x, y; shr.u64 x, x, 32; cvt.u32.u64 r, x;"},
    {"rem_s64_by_0_high", "mov.u64 x, -7; cvt.u64.u32 y, z32; rem.s64 x, x, y; shr.u64 x, x, 32; cvt.u32.u64 r, x;"},
    {"shl_32", "mov.u32 a, 1; add.u32 b, z32, 32; shl.b32 r, a, b;"},
    {"shl_33", "mov.u32 a, 1; add.u32 b, z32, 33; shl.b32 r, a, b;"},
    {"shr_u32_40", "mov.u32 a, -1; add.u32 b, z32, 40; shr.u32 r, a, b;"},
    {"shr_s32_40", "mov.u32 a, -5; add.u32 b, z32, 40; shr.s32 r, a, b;"},
    {"shl_b16_17", "mov.u16 h, 1; add.u32 b, z32, 17; shl.b16 h, h, b; cvt.u32.u16 r, h;"},
    {"shr_s16_20", "mov.u16 h, 0x8000; add.u32 b, z32, 20; shr.s16 h, h, b; cvt.u32.u16 r, h;"},
    {"shl_huge", "mov.u32 a, 1; add.u32 b, z32, 0xffffffff; shl.b32 r, a, b;"},
    {"bfe_u32", "mov.u32 a, 0x12345678; add.u32 b, z32, 8; bfe.u32 r, a, b, 12;"},
    {"bfe_s32", "mov.u32 a, 0x12345678; add.u32 b, z32, 4; bfe.s32 r, a, b, 4;"},
    {"bfe_s32_over_the_end", "mov.u32 a, 0x82345678; add.u32 b, z32, 28; bfe.s32 r, a, b, 12;"},
    {"bfe_u32_over_the_end", "mov.u32 a, 0x82345678; add.u32 b, z32, 28; bfe.u32 r, a, b, 12;"},
    {"bfe_s32_outside", "mov.u32 a, 0x82345678; add.u32 b, z32, 40; bfe.s32 r, a, b, 4;"},
    {"bfe_s32_none", "mov.u32 a, -1; add.u32 b, z32, 4; bfe.s32 r, a, b, 0;"},
    {"bfi", "mov.u32 a, 0xff; mov.u32 b, 0x12345678; add.u32 c, z32, 8; bfi.b32 r, a, b, c, 4;"},
    {"bfi_outside", "mov.u32 a, 0xff; mov.u32 b, 0x12345678; add.u32 c, z32, 40; bfi.b32 r, a, b, c, 4;"},
    {"prmt", "mov.u32 a, 0x33221100; mov.u32 b, 0x77665544; add.u32 c, z32, 0x7351; prmt.b32 r, a, b, c;"},
    {"prmt_sign", "mov.u32 a, 0x80227f00; mov.u32 b, 0; add.u32 c, z32, 0x89ab; prmt.b32 r, a, b, c;"},
    {"clz_0", "clz.b32 r, z32;"},
    {"popc", "add.u32 a, z32, 0xf0f0; popc.b32 r, a;"},
    {"abs_min", "add.u32 a, z32, 0x80000000; abs.s32 r, a;"},
    {"mul_hi_s32", "add.u32 a, z32, 0x80000000; mov.u32 b, 3; mul.hi.s32 r, a, b;"},
    {"mul24", "add.u32 a, z32, 0x1ffffff; mul24.lo.u32 r, a, a;"},
    {"sad", "add.u32 a, z32, 5; mov.u32 b, -3; sad.s32 r, a, b, 1;"},
    {"min_nan", "mov.b32 f, 0x7fc00001; mov.f32 g, 0f3f800000; min.f32 f, f, g; mov.b32 r, f;"},
    {"min_zeros", "mov.f32 f, 0f80000000; mov.f32 g, 0f00000000; min.f32 f, f, g; mov.b32 r, f;"},
    {"max_zeros", "mov.f32 f, 0f80000000; mov.f32 g, 0f00000000; max.f32 f, f, g; mov.b32 r, f;"},
    {"add_sat", "mov.f32 f, 0f40000000; add.sat.f32 f, f, f; mov.b32 r, f;"},
    {"add_sat_nan", "mov.b32 f, 0x7fc00001; add.sat.f32 f, f, f; mov.b32 r, f;"},
    {"add_inf_minus_inf", "mov.f32 f, 0f7f800000; mov.f32 g, 0fff800000; add.f32 f, f, g; mov.b32 r, f;"},
    {"add_nan", "mov.b32 f, 0x7f800001; mov.f32 g, 0f3f800000; add.f32 f, f, g; mov.b32 r, f;"},
    {"ftz", "mov.f32 f, 0f00400000; mov.f32 g, 0f00000000; add.ftz.f32 f, f, g; mov.b32 r, f;"},
    {"no_ftz", "mov.f32 f, 0f00400000; mov.f32 g, 0f00000000; add.f32 f, f, g; mov.b32 r, f;"},
    {"neg_nan", "mov.b32 f, 0x7fc00001; neg.f32 f, f; mov.b32 r, f;"},
    {"abs_nan", "mov.b32 f, 0xffc00001; abs.f32 f, f; mov.b32 r, f;"},
    {"sqrt_negative", "mov.f32 f, 0fbf800000; sqrt.rn.f32 f, f; mov.b32 r, f;"},
    {"div_rn", "mov.f32 f, 0f3f800000; mov.f32 g, 0f40400000; div.rn.f32 f, f, g; mov.b32 r, f;"},
    {"div_by_zero", "mov.f32 f, 0f3f800000; mov.f32 g, 0f80000000; div.rn.f32 f, f, g; mov.b32 r, f;"},
    {"rcp", "mov.f32 f, 0f40400000; rcp.rn.f32 f, f; mov.b32 r, f;"},
    {"add_rz", "mov.f32 f, 0f3f800000; mov.f32 g, 0f33ffffff; add.rz.f32 f, f, g; mov.b32 r, f;"},
    {"add_rp", "mov.f32 f, 0f3f800000; mov.f32 g, 0f00000001; add.rp.f32 f, f, g; mov.b32 r, f;"},
    {"add_rm", "mov.f32 f, 0f3f800000; mov.f32 g, 0f80000001; add.rm.f32 f, f, g; mov.b32 r, f;"},
    {"mul_rz", "mov.f32 f, 0f3f800001; mul.rz.f32 f, f, f; mov.b32 r, f;"},
    {"fma_rp", "mov.f32 f, 0f3f800001; mov.f32 g, 0f3f800000; fma.rp.f32 f, f, f, g; mov.b32 r, f;"},
    {"cvt_s32_f32_big", "mov.f32 f, 0f4f800000; cvt.rzi.s32.f32 r, f;"},
    {"cvt_s32_f32_small", "mov.f32 f, 0fcf800000; cvt.rzi.s32.f32 r, f;"},
    {"cvt_s32_f32_nan", "mov.b32 f, 0x7fc00000; cvt.rzi.s32.f32 r, f;"},
    {"cvt_u32_f32_negative", "mov.f32 f, 0fc0000000; cvt.rzi.u32.f32 r, f;"},
    {"cvt_u32_f32_nan", "mov.b32 f, 0x7fc00000; cvt.rzi.u32.f32 r, f;"},
    {"cvt_s64_f32_nan_high", "mov.b32 f, 0x7fc00000; cvt.rzi.s64.f32 x, f; shr.u64 x, x, 32; cvt.u32.u64 r, x;"},
    {"cvt_u64_f64_nan_high", "mov.b64 d, 0x7ff8000000000000; cvt.rzi.u64.f64 x, d; shr.u64 x, x, 32; cvt.u32.u64 r, x;"},
    {"cvt_u32_f64_nan", "mov.b64 d, 0x7ff8000000000000; cvt.rzi.u32.f64 r, d;"},
    {"cvt_s16_f64_nan", "mov.b64 d, 0x7ff8000000000000; cvt.rzi.s16.f64 h, d; cvt.u32.u16 r, h;"},
    {"cvt_u8_f64_nan", "mov.b64 d, 0x7ff8000000000000; cvt.rzi.u8.f64 h, d; cvt.u32.u16 r, h;"},
    {"cvt_s16_f32_nan", "mov.b32 f, 0x7fc00000; cvt.rzi.s16.f32 h, f; cvt.u32.u16 r, h;"},
    {"cvt_u64_f32_nan_high", "mov.b32 f, 0x7fc00000; cvt.rzi.u64.f32 x, f; shr.u64 x, x, 32; cvt.u32.u64 r, x;"},
    {"cvt_s64_f64_nan_high", "mov.b64 d, 0x7ff8000000000000; cvt.rzi.s64.f64 x, d; shr.u64 x, x, 32; cvt.u32.u64 r, x;"},
    {"add_f64_nan_high", "mov.b64 d, 0x7ff8000000000123; add.f64 d, d, d; mov.b64 x, d; shr.u64 x, x, 32; cvt.u32.u64 r, x;"},
    {"add_f64_nan_low", "mov.b64 d, 0x7ff8000000000123; add.f64 d, d, d; mov.b64 x, d; cvt.u32.u64 r, x;"},
    {"div_f64_0_by_0_high", "cvt.rn.f64.u32 d, z32; div.rn.f64 d, d, d; mov.b64 x, d; shr.u64 x, x, 32; cvt.u32.u64 r, x;"},
    {"min_f64_nan_high", "mov.b64 d, 0x7ff8000000000123; min.f64 d, d, d; mov.b64 x, d; shr.u64 x, x, 32; cvt.u32.u64 r, x;"},
    {"max_nan_other_nan", "add.u32 a, z32, 0x7fc00001; mov.b32 f, a; mov.b32 g, 0x7fc00002; max.f32 f, f, g; mov.b32 r, f;"},
    {"cvt_f64_f32_nan_high", "add.u32 a, z32, 0x7fc00001; mov.b32 f, a; cvt.f64.f32 d, f; mov.b64 x, d; shr.u64 x, x, 32; cvt.u32.u64 r, x;"},
    {"cvt_f16_f32_nan", "add.u32 a, z32, 0x7fc00001; mov.b32 f, a; cvt.rn.f16.f32 h, f; cvt.u32.u16 r, h;"},
    {"fma_nan", "add.u32 a, z32, 0x7fc00001; mov.b32 f, a; fma.rn.f32 f, f, f, f; mov.b32 r, f;"},
    {"sqrt_rz", "add.u32 a, z32, 0x40000000; mov.b32 f, a; sqrt.rz.f32 f, f; mov.b32 r, f;"},
    {"div_rm", "add.u32 a, z32, 0xbf800000; mov.b32 f, a; mov.f32 g, 0f40400000; div.rm.f32 f, f, g; mov.b32 r, f;"},
    {"add_rz_f64", "mov.f64 d, 0d3ff0000000000000; cvt.rn.f64.u32 e, z32; add.f64 e, e, 0d3c9fffffffffffff; add.rp.f64 d, d, e; mov.b64 x, d; cvt.u32.u64 r, x;"},
    {"sub_rm_zero", "add.u32 a, z32, 0x3f800000; mov.b32 f, a; sub.rm.f32 f, f, f; mov.b32 r, f;"},
    {"bar_in_one", "bar.sync 0; mov.u32 r, 1;"},
    {"param_far", "ld.param.u32 r, [out+8]; mov.u32 r, 1;"},
    {"cvt_s32_f64_nan", "mov.b64 d, 0x7ff8000000000000; cvt.rzi.s32.f64 r, d;"},
    {"cvt_s16_f32_big", "mov.f32 f, 0f4f800000; cvt.rzi.s16.f32 h, f; cvt.u32.u16 r, h;"},
    {"cvt_u8_f32_300", "mov.f32 f, 0f43960000; cvt.rzi.u8.f32 h, f; cvt.u32.u16 r, h;"},
    {"cvt_s8_f32_minus_300", "mov.f32 f, 0fc3960000; cvt.rzi.s8.f32 h, f; cvt.u32.u16 r, h;"},
    {"cvt_rni_half", "mov.f32 f, 0f40200000; cvt.rni.s32.f32 r, f;"},
    {"cvt_rmi", "mov.f32 f, 0fc0200000; cvt.rmi.s32.f32 r, f;"},
    {"cvt_rpi", "mov.f32 f, 0fc0200000; cvt.rpi.s32.f32 r, f;"},
    {"cvt_rzi_f32_f32", "mov.f32 f, 0fc0200000; cvt.rzi.f32.f32 f, f; mov.b32 r, f;"},
    {"cvt_sat_f32", "mov.f32 f, 0fc0200000; cvt.sat.f32.f32 f, f; mov.b32 r, f;"},
    {"cvt_rn_f32_s32", "add.u32 a, z32, 0x01000001; cvt.rn.f32.s32 f, a; mov.b32 r, f;"},
    {"cvt_rp_f32_u32", "add.u32 a, z32, 0x01000001; cvt.rp.f32.u32 f, a; mov.b32 r, f;"},
    {"cvt_rz_f32_u64", "mov.u64 x, 0xffffffffffffffff; cvt.rz.f32.u64 f, x; mov.b32 r, f;"},
    {"cvt_rn_f32_f64", "mov.b64 d, 0x3ff0000010000001; cvt.rn.f32.f64 f, d; mov.b32 r, f;"},
    {"cvt_rz_f32_f64", "mov.b64 d, 0x3ff0000010000001; cvt.rz.f32.f64 f, d; mov.b32 r, f;"},
    {"cvt_rn_f16_f32", "mov.f32 f, 0f3f801000; cvt.rn.f16.f32 h, f; cvt.u32.u16 r, h;"},
    {"cvt_rn_f16_f32_big", "mov.f32 f, 0f4f800000; cvt.rn.f16.f32 h, f; cvt.u32.u16 r, h;"},
    {"cvt_rn_f16_f32_tiny", "mov.f32 f, 0f33800000; cvt.rn.f16.f32 h, f; cvt.u32.u16 r, h;"},
    {"cvt_f32_f16", "mov.u16 h, 0x3c01; cvt.f32.f16 f, h; mov.b32 r, f;"},
    {"cvt_f32_f16_nan", "mov.u16 h, 0x7e01; cvt.f32.f16 f, h; mov.b32 r, f;"},
    {"cvt_sat_u8_s32", "add.u32 a, z32, 300; cvt.sat.u8.s32 h, a; cvt.u32.u16 r, h;"},
    {"cvt_sat_u32_s32", "add.u32 a, z32, -5; cvt.sat.u32.s32 r, a;"},
    {"cvt_sat_s8_s32", "add.u32 a, z32, -300; cvt.sat.s8.s32 h, a; cvt.u32.u16 r, h;"},
    {"cvt_s8_to_wide", "add.u32 a, z32, 0x1ff; cvt.s8.u32 h, a; cvt.u32.u16 r, h;"},
    {"cvt_u8_to_wide", "add.u32 a, z32, 0x1ff; cvt.u8.u32 r, a;"},
    {"cvt_s8_to_32", "add.u32 a, z32, 0x1ff; cvt.s8.s32 r, a;"},
    {"setp_nan_lt", "mov.b32 f, 0x7fc00000; setp.lt.f32 p, f, f; selp.u32 r, 1, 0, p;"},
    {"setp_nan_ltu", "mov.b32 f, 0x7fc00000; setp.ltu.f32 p, f, f; selp.u32 r, 1, 0, p;"},
    {"setp_nan_ne", "mov.b32 f, 0x7fc00000; setp.ne.f32 p, f, f; selp.u32 r, 1, 0, p;"},
    {"setp_nan_neu", "mov.b32 f, 0x7fc00000; setp.neu.f32 p, f, f; selp.u32 r, 1, 0, p;"},
    {"setp_num", "mov.b32 f, 0x7fc00000; setp.num.f32 p, f, f; selp.u32 r, 1, 0, p;"},
    {"setp_lo", "add.u32 a, z32, -1; mov.u32 b, 1; setp.lo.u32 p, a, b; selp.u32 r, 1, 0, p;"},
    {"set_f32", "add.u32 a, z32, 1; set.gt.f32.u32 f, a, 0; mov.b32 r, f;"},
    {"set_u32", "add.u32 a, z32, 1; set.gt.u32.u32 r, a, 0;"},
    {"add_cc", "add.u32 a, z32, -1; add.cc.u32 b, a, 1; addc.u32 r, z32, 0;"},
    {"sub_cc", "sub.cc.u32 b, z32, 1; subc.u32 r, z32, 0;"},
    {"mad_hi", "add.u32 a, z32, -1; mad.hi.u32 r, a, a, 5;"},
    {"mad_wide", "add.u32 a, z32, -1; mov.u64 y, 1; mad.wide.s32 x, a, 3, y; shr.u64 x, x, 32; cvt.u32.u64 r, x;"},
    {"atom_inc", "st.global.u32 [o+4], 5; atom.global.inc.u32 a, [o+4], 5; ld.global.u32 r, [o+4];"},
    {"atom_dec", "st.global.u32 [o+4], 0; atom.global.dec.u32 a, [o+4], 5; ld.global.u32 r, [o+4];"},
    {"ld_s8_wide", "st.global.u32 [o+4], 0x80; ld.global.s8 r, [o+4];"},
    {"ld_s8_to_64", "st.global.u32 [o+4], 0x80; ld.global.s8 x, [o+4]; shr.u64 x, x, 32; cvt.u32.u64 r, x;"},
    {"st_u8", "st.global.u32 [o+4], 0; add.u32 a, z32, 0x1234; st.global.u8 [o+4], a; ld.global.u32 r, [o+4];"},
    {"lane_of_thread", "mov.u32 r, %laneid;"},
    {"nctaid", "mov.u32 r, %nctaid.y;"},
    {"copysign", "mov.f32 f, 0fbf800000; mov.f32 g, 0f40400000; copysign.f32 f, f, g; mov.b32 r, f;"},
    {"shf_l_wrap", "add.u32 a, z32, 0x80000001; mov.u32 b, 0x00000003; shf.l.wrap.b32 r, a, b, 33;"},
    {"shf_r_clamp", "add.u32 a, z32, 0x80000001; mov.u32 b, 0x00000003; shf.r.clamp.b32 r, a, b, 40;"},
    {"lop3", "add.u32 a, z32, 0xf0; mov.u32 b, 0xcc; lop3.b32 r, a, b, 0xaa, 0x96;"},
    {"brev", "add.u32 a, z32, 0x12345678; brev.b32 r, a;"},
    {"bfind", "add.u32 a, z32, 0x00345678; bfind.u32 r, a;"},
    {"bfind_s32_negative", "add.u32 a, z32, -2; bfind.s32 r, a;"},
};

static void edges()
{
    in_child("edge", [] {
        start();
        for (const Edge &edge : EDGES) {
            std::string text = ".version 7.1\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 out) {\n"
                               ".reg .b16 h; .reg .b32 a, b, c, r, z32; .reg .b64 x, y, o; .reg .f32 f, g; .reg .f64 d, e; .reg .pred p;\n"
                               "ld.param.u64 o, [out]; ld.global.u32 z32, [o]; mov.u32 r, 0;\n";
            text += edge.code;
            text += "\nst.global.u32 [o], r; ret; }\n";
            CUmodule module = nullptr;
            CUresult loaded = cuModuleLoadData(&module, text.c_str());
            if (loaded) {
                printf("edge.%s = %s\n", edge.name, name_of(loaded));
                continue;
            }
            CUdeviceptr out = take(64);
            CUresult ran = launch(function_of(module, "k"), out);
            if (!ran)
                ran = cuCtxSynchronize();
            if (ran)
                printf("edge.%s = %s\n", edge.name, name_of(ran));
            else
                printf("edge.%s = %08llx\n", edge.name, word(out));
        }
    });
}

int main()
{
    loading();
    launching();
    after_a_fault();
    edges();
    return 0;
}
