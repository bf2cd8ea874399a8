// Eighth round: the life of graphs, of their executables, of the memory in them and of user objects.
// Build: g++ -O1 -std=c++17 driver_probe8.cpp -o probe8 -lcuda -lpthread      Run: ./probe8
#include "capture_probe.h"

// ---- Graphs and the memory in them ----

static CUstream stream;

static CUgraph captured(const std::function<void()> &body)
{
    CUgraph graph = nullptr;
    begin(stream);
    body();
    MUST(cuStreamEndCapture(stream, &graph));
    return graph;
}

static CUgraphExec ready(CUgraph graph, unsigned flags = 0)
{
    CUgraphExec exec = nullptr;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, flags));
    return exec;
}

static void run(CUgraphExec exec)
{
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
}

static CUdeviceptr take(size_t size)
{
    CUdeviceptr ptr = 0;
    MUST(cuMemAllocAsync(&ptr, size, stream));
    return ptr;
}

static void memory(const std::string &name)
{
    const CUgraphMem_attribute which[] = {CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
                                          CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH};
    std::string text;
    for (auto attribute : which) {
        cuuint64_t value = 0;
        MUST(cuDeviceGetGraphMemAttribute(device, attribute, &value));
        text += " " + std::to_string(value >> 20) + ((value & ((1 << 20) - 1)) ? "+" : "");
    }
    printf("%s = MiB%s\n", name.c_str(), text.c_str());
}

static void graph_scene(const char *name, const std::function<void(std::string)> &body)
{
    scene(name, [&](std::string n) {
        stream = make_stream();
        body(n);
    });
}

static void graph_memory()
{
    const size_t MiB = 1 << 20;
    for (size_t mib : {1, 31, 33, 100})
        graph_scene("gmem", [=](std::string n) {
            n += std::to_string(mib);
            memory(n + ".start");
            CUdeviceptr p = 0;
            CUgraph g = captured([&] { p = take(mib * MiB); });
            memory(n + ".captured");
            CUgraphExec x = ready(g);
            memory(n + ".instantiated");
            run(x);
            memory(n + ".launched");
            MUST(cuMemFreeAsync(p, stream));
            memory(n + ".freed");
            MUST(cuStreamSynchronize(stream));
            memory(n + ".synced");
            run(x);
            memory(n + ".relaunched");
            MUST(cuGraphExecDestroy(x));
            memory(n + ".exec_destroyed");
            MUST(cuGraphDestroy(g));
            MUST(cuMemFreeAsync(p, stream));
            MUST(cuStreamSynchronize(stream));
            memory(n + ".all_gone");
            MUST(cuDeviceGraphMemTrim(device));
            memory(n + ".trimmed");
            cuuint64_t zero = 0, five = 5;
            fact(n + ".reset_used", cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
            fact(n + ".reset_reserved",
                 cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
            memory(n + ".reset");
            fact(n + ".set_five", cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &five));
            fact(n + ".set_current", cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero));
        });
    graph_scene("gmem_inner", [=](std::string n) {
        CUdeviceptr p[3];
        CUgraph g = captured([&] {
            for (auto &q : p) {
                q = take(40 * MiB);
                MUST(cuMemsetD8Async(q, 1, 40 * MiB, stream));
                MUST(cuMemFreeAsync(q, stream));
            }
        });
        printf("%s.same_address = %d %d\n", n.c_str(), p[0] == p[1], p[1] == p[2]);
        CUgraphExec x = ready(g);
        memory(n + ".instantiated");
        run(x);
        memory(n + ".launched");
        MUST(cuDeviceGraphMemTrim(device));
        memory(n + ".trimmed_with_exec");
        run(x);
        memory(n + ".launched_again");
        MUST(cuGraphExecDestroy(x));
        memory(n + ".exec_destroyed");
        MUST(cuDeviceGraphMemTrim(device));
        memory(n + ".trimmed");
        MUST(cuGraphDestroy(g));
        CUdeviceptr q = 0;
        CUgraph h = captured([&] { q = take(40 * MiB); });
        printf("%s.address_after_destroy = %d\n", n.c_str(), q == p[0]);
        MUST(cuGraphDestroy(h));
    });
    graph_scene("gmem_three", [=](std::string n) {
        CUdeviceptr p[3];
        CUgraph g = captured([&] {
            for (auto &q : p)
                q = take(40 * MiB);
            for (auto &q : p)
                MUST(cuMemFreeAsync(q, stream));
        });
        CUgraphExec x = ready(g);
        run(x);
        memory(n + ".launched");
        MUST(cuGraphExecDestroy(x));
        MUST(cuGraphDestroy(g));
    });
    graph_scene("gmem_two_graphs", [=](std::string n) {
        auto make = [&] { return captured([&] { CUdeviceptr q = take(40 * MiB); MUST(cuMemFreeAsync(q, stream)); }); };
        CUgraph g = make(), h = make();
        CUgraphExec x = ready(g), y = ready(h);
        memory(n + ".instantiated");
        run(x);
        memory(n + ".one");
        run(y);
        memory(n + ".two");
        run(x);
        memory(n + ".one_again");
    });
    graph_scene("gmem_small", [=](std::string n) {
        CUdeviceptr a = 0, b = 0, c = 0;
        CUgraph g = captured([&] { a = take(100); b = take(100); c = take(3 * MiB); });
        printf("%s.distance = %lld %lld\n", n.c_str(), (long long)(b - a), (long long)(c - b));
        printf("%s.alignment = %llu %llu %llu\n", n.c_str(), a % (2 * MiB), b % 512, c % (2 * MiB));
        CUgraphExec x = ready(g);
        run(x);
        memory(n + ".launched");
        size_t size = 0;
        CUdeviceptr base = 0;
        MUST(cuMemGetAddressRange(&base, &size, a + 1));
        printf("%s.range = %d %zu\n", n.c_str(), base == a, size);
        size_t free_before, free_after, total;
        MUST(cuMemGetInfo(&free_before, &total));
        for (CUdeviceptr p : {a, b, c})
            MUST(cuMemFreeAsync(p, stream));
        MUST(cuStreamSynchronize(stream));
        memory(n + ".freed");
        MUST(cuDeviceGraphMemTrim(device));
        MUST(cuMemGetInfo(&free_after, &total));
        printf("%s.trim_gives_back = %zu MiB\n", n.c_str(), (free_after - free_before) >> 20);
    });
    graph_scene("gfree", [=](std::string n) {
        CUdeviceptr p = 0;
        CUresult twice = CUDA_SUCCESS, other = CUDA_SUCCESS, use = CUDA_SUCCESS, interior = CUDA_SUCCESS;
        CUgraph g = captured([&] {
            p = take(4096);
            interior = cuMemFreeAsync(p + 512, stream);
            MUST(cuMemFreeAsync(p, stream));
            twice = cuMemFreeAsync(p, stream);
            use = cuMemsetD8Async(p, 1, 4096, stream);
        });
        fact(n + ".interior", interior);
        fact(n + ".twice", twice);
        fact(n + ".use_after", use);
        line(n + ".types", types_of(g));
        CUgraph h = captured([&] { other = cuMemFreeAsync(p, stream); });
        fact(n + ".other_graph_of_freed", other);
        CUdeviceptr q = 0;
        CUgraph a = captured([&] { q = take(4096); });
        CUgraph b = captured([&] {
            fact(n + ".use_in_other_graph", cuMemsetD8Async(q, 1, 4096, stream));
            fact(n + ".free_in_other_graph", cuMemFreeAsync(q, stream));
        });
        CUgraph c = captured([&] { fact(n + ".free_in_third_graph", cuMemFreeAsync(q, stream)); });
        CUgraph d = captured([&] { fact(n + ".too_long", cuMemsetD8Async(q, 1, 8 << 20, stream)); });
        CUgraphExec z = nullptr;
        fact(n + ".too_long.instantiate", cuGraphInstantiateWithFlags(&z, d, 0));
        fact(n + ".instantiate_free_graph", cuGraphInstantiateWithFlags(&z, c, 0));
        fact(n + ".instantiate_free_graph_again", cuGraphInstantiateWithFlags(&z, c, 0));
        CUgraphExec x = ready(a), y = ready(b);
        fact(n + ".free_graph_before_alloc", cuGraphLaunch(y, stream));
        run(x);
        fact(n + ".free_graph", cuGraphLaunch(y, stream));
        MUST(cuStreamSynchronize(stream));
        fact(n + ".free_graph_again", cuGraphLaunch(y, stream));
        fact(n + ".free_outside", cuMemFreeAsync(q, stream));
        fact(n + ".alloc_again", cuGraphLaunch(x, stream));
        MUST(cuStreamSynchronize(stream));
        fact(n + ".destroy_alloc_graph", cuGraphDestroy(a));
        fact(n + ".destroy_alloc_exec", cuGraphExecDestroy(x));
        fact(n + ".free_by_other_graph_after", cuGraphLaunch(y, stream));
        MUST(cuStreamSynchronize(stream));
    });
    graph_scene("gnodes", [=](std::string n) {
        CUdeviceptr p = 0, zero = 1;
        CUgraph g = captured([&] {
            MUST(cuMemAllocAsync(&zero, 0, stream));
            p = take(4096);
            MUST(cuMemcpyDtoDAsync(p, plain, 4096, stream));
            MUST(cuLaunchHostFunc(stream, nothing, nullptr));
            MUST(cuEventRecord(make_event(), stream));
            MUST(cuMemcpyAsync(p, plain, 0, stream));
        });
        printf("%s.zero = %d\n", n.c_str(), zero == 0);
        line(n + ".types", types_of(g));
        size_t count = 3;
        CUgraphNode nodes[8] = {};
        fact(n + ".get_some", cuGraphGetNodes(g, nodes, &count));
        printf("%s.get_some.count = %zu\n", n.c_str(), count);
        count = 8;
        nodes[7] = (CUgraphNode)1;
        MUST(cuGraphGetNodes(g, nodes, &count));
        printf("%s.get_more.count = %zu rest=%s\n", n.c_str(), count, nodes[7] ? "unset" : "0");
        fact(n + ".remove_alloc", cuGraphDestroyNode(nodes[0]));
        fact(n + ".remove_last", cuGraphDestroyNode(nodes[count - 1]));
        CUgraph clone = nullptr;
        fact(n + ".clone", cuGraphClone(&clone, g));
        CUgraph parent;
        CUgraphNode child;
        MUST(cuGraphCreate(&parent, 0));
        fact(n + ".child", cuGraphAddChildGraphNode(&child, parent, nullptr, 0, g));
        fact(n + ".add_dependency_to_alloc", cuGraphAddDependencies(g, &nodes[1], &nodes[2], nullptr, 1));
        fact(n + ".add_dependency_same", cuGraphAddDependencies(g, &nodes[0], &nodes[2], nullptr, 1));
        CUgraphExec x = ready(g);
        fact(n + ".launch_in_capture", (begin(stream, 2), cuGraphLaunch(x, stream)));
        printf("%s.launch_in_capture.status = %d\n", n.c_str(), status_of(stream));
        line(n + ".launch_in_capture.end", end_of(stream));
        fact(n + ".second_instantiate", cuGraphInstantiateWithFlags(&x, g, 0));
        fact(n + ".add_node_after_instantiate", cuGraphAddEmptyNode(&child, g, nullptr, 0));
        fact(n + ".upload", cuGraphUpload(x, stream));
        fact(n + ".upload_again", cuGraphUpload(x, stream));
        MUST(cuStreamSynchronize(stream));
        memory(n + ".uploaded");
        fact(n + ".launch", cuGraphLaunch(x, stream));
        fact(n + ".launch_again", cuGraphLaunch(x, stream));
        MUST(cuStreamSynchronize(stream));
        fact(n + ".upload_while_live", cuGraphUpload(x, stream));
        fact(n + ".bad_flags", cuGraphInstantiateWithFlags(&x, parent, 1 << 20));
        cuuint64_t flags = 9;
        fact(n + ".flags", cuGraphExecGetFlags(x, &flags));
        printf("%s.flags.value = %llu\n", n.c_str(), (unsigned long long)flags);
        MUST(cuGraphExecDestroy(x));
        CUgraphExec y = ready(g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        MUST(cuGraphExecGetFlags(y, &flags));
        printf("%s.flags.autofree = %llu\n", n.c_str(), (unsigned long long)flags);
        CUDA_GRAPH_INSTANTIATE_PARAMS with = {};
        with.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
        with.hUploadStream = stream;
        fact(n + ".with_params", cuGraphInstantiateWithParams(&x, parent, &with));
        printf("%s.with_params.result = %d\n", n.c_str(), (int)with.result_out);
        CUgraph cyclic;
        CUgraphNode first, second;
        MUST(cuGraphCreate(&cyclic, 0));
        MUST(cuGraphAddEmptyNode(&first, cyclic, nullptr, 0));
        MUST(cuGraphAddEmptyNode(&second, cyclic, &first, 1));
        fact(n + ".cycle", cuGraphAddDependencies(cyclic, &second, &first, nullptr, 1));
        fact(n + ".cycle.self", cuGraphAddDependencies(cyclic, &second, &second, nullptr, 1));
        fact(n + ".cycle.instantiate", cuGraphInstantiateWithFlags(&x, cyclic, 0));
        with = {};
        fact(n + ".cycle.with_params", cuGraphInstantiateWithParams(&x, cyclic, &with));
        printf("%s.cycle.with_params.result = %d\n", n.c_str(), (int)with.result_out);
        CUgraphNode gone;
        CUgraph plain_graph;
        MUST(cuGraphCreate(&plain_graph, 0));
        MUST(cuGraphAddEmptyNode(&first, plain_graph, nullptr, 0));
        MUST(cuGraphAddEmptyNode(&gone, plain_graph, &first, 1));
        MUST(cuGraphAddEmptyNode(&second, plain_graph, &gone, 1));
        fact(n + ".destroy_node", cuGraphDestroyNode(gone));
        size_t edges = 9;
        MUST(cuGraphGetEdges(plain_graph, nullptr, nullptr, nullptr, &edges));
        printf("%s.destroy_node.edges = %zu\n", n.c_str(), edges);
        MUST(cuGraphGetRootNodes(plain_graph, nullptr, &edges));
        printf("%s.destroy_node.roots = %zu\n", n.c_str(), edges);
        fact(n + ".same_dependency_twice", [&] {
            CUgraphNode both[] = {first, first};
            return cuGraphAddEmptyNode(&gone, plain_graph, both, 2);
        }());
        fact(n + ".child_plain", cuGraphAddChildGraphNode(&child, parent, nullptr, 0, plain_graph));
        CUgraph inside = nullptr;
        fact(n + ".child_get", cuGraphChildGraphNodeGetGraph(child, &inside));
        printf("%s.child_get.same = %d\n", n.c_str(), inside == plain_graph);
        fact(n + ".child_destroy", cuGraphDestroy(inside));
        fact(n + ".child_add", cuGraphAddEmptyNode(&gone, inside, nullptr, 0));
        fact(n + ".child_add_memory", [&] {
            CUDA_MEM_ALLOC_NODE_PARAMS params = {};
            params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
            params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            params.bytesize = 4096;
            return cuGraphAddMemAllocNode(&gone, inside, nullptr, 0, &params);
        }());
        fact(n + ".destroyed_graph", (MUST(cuGraphDestroy(parent)), cuGraphGetNodes(parent, nullptr, &count)));
        fact(n + ".null_graph", cuGraphGetNodes(nullptr, nullptr, &count));
        fact(n + ".null_exec", cuGraphLaunch(nullptr, stream));
    });
    graph_scene("galloc", [=](std::string n) {
        CUgraph g;
        CUgraphNode node, free_node;
        MUST(cuGraphCreate(&g, 0));
        CUDA_MEM_ALLOC_NODE_PARAMS params = {}, back = {};
        params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        params.bytesize = 4096;
        fact(n + ".add", cuGraphAddMemAllocNode(&node, g, nullptr, 0, &params));
        printf("%s.address = %s\n", n.c_str(), params.dptr ? "some" : "0");
        CUdeviceptr p = 0;
        fact(n + ".params", cuGraphMemAllocNodeGetParams(node, &back));
        printf("%s.params same=%d size=%zu\n", n.c_str(), back.dptr == params.dptr, back.bytesize);
        params.bytesize = 0;
        CUgraphNode none;
        fact(n + ".zero", cuGraphAddMemAllocNode(&none, g, nullptr, 0, &params));
        fact(n + ".free_unordered", cuGraphAddMemFreeNode(&free_node, g, nullptr, 0, back.dptr));
        fact(n + ".free", cuGraphAddMemFreeNode(&free_node, g, &node, 1, back.dptr));
        fact(n + ".free_again", cuGraphAddMemFreeNode(&none, g, &node, 1, back.dptr));
        fact(n + ".free_params", cuGraphMemFreeNodeGetParams(free_node, &p));
        printf("%s.free_params same=%d\n", n.c_str(), p == back.dptr);
        fact(n + ".alloc_params_of_free", cuGraphMemAllocNodeGetParams(free_node, &back));
        fact(n + ".free_foreign", cuGraphAddMemFreeNode(&none, g, nullptr, 0, plain));
        CUgraph h;
        CUgraphNode foreign;
        MUST(cuGraphCreate(&h, 0));
        fact(n + ".foreign_dependency", cuGraphAddEmptyNode(&foreign, h, &node, 1));
        fact(n + ".destroy_free_node", cuGraphDestroyNode(free_node));
        fact(n + ".add_to_used_clone", cuGraphClone(&h, g));
    });
    graph_scene("gmem_live", [=](std::string n) {
        CUdeviceptr a = 0, b = 0, c = 0;
        CUgraph g = captured([&] { a = take(40 * MiB); b = take(40 * MiB); });
        CUgraph h = captured([&] { c = take(40 * MiB); });
        CUgraphExec x = ready(g), y = ready(h);
        run(x);
        memory(n + ".one");
        run(y);
        memory(n + ".two");
        MUST(cuDeviceGraphMemTrim(device));
        memory(n + ".trimmed_live");
        MUST(cuMemFreeAsync(b, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuDeviceGraphMemTrim(device));
        memory(n + ".trimmed_half");
        MUST(cuMemFreeAsync(c, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuDeviceGraphMemTrim(device));
        memory(n + ".trimmed_one");
        fact(n + ".launch_half_live", cuGraphLaunch(x, stream));
    });
    graph_scene("gmem_big", [=](std::string n) {
        begin(stream);
        fact(n + ".over_the_device", cuMemAllocAsync(&address, (size_t)200 << 30, stream));
        line(n + ".end", end_of(stream));
        CUgraph g = captured([&] { for (int i = 0; i < 2; i++) take((size_t)100 << 30); });
        CUgraphExec x = nullptr;
        fact(n + ".instantiate", cuGraphInstantiateWithFlags(&x, g, 0));
        if (x) {
            fact(n + ".launch", cuGraphLaunch(x, stream));
            fact(n + ".sync", cuStreamSynchronize(stream));
            memory(n + ".after");
        }
    });
    graph_scene("gread", [=](std::string n) {
        // When a captured copy reads pageable memory.
        auto *bytes = (unsigned char *)malloc(64);
        unsigned char back[64];
        memset(bytes, 1, 64);
        CUgraph g = captured([&] { MUST(cuMemcpyHtoDAsync(plain, bytes, 64, stream)); });
        memset(bytes, 2, 64);
        CUgraphExec x = ready(g);
        memset(bytes, 3, 64);
        run(x);
        MUST(cuMemcpyDtoH(back, plain, 64));
        printf("%s.first = %d\n", n.c_str(), back[5]);
        memset(bytes, 4, 64);
        run(x);
        MUST(cuMemcpyDtoH(back, plain, 64));
        printf("%s.second = %d\n", n.c_str(), back[5]);
    });
    graph_scene("glive", [=](std::string n) {
        CUdeviceptr p = 0;
        CUgraph g = captured([&] { p = take(MiB); });
        CUgraphExec x = ready(g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        run(x);
        MUST(cuGraphExecDestroy(x));
        fact(n + ".instantiate_again", cuGraphInstantiateWithFlags(&x, g, 0));
        fact(n + ".launch_while_live", cuGraphLaunch(x, stream));
        fact(n + ".free", cuMemFreeAsync(p, stream));
        fact(n + ".launch", cuGraphLaunch(x, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuGraphDestroy(g));
        MUST(cuMemFreeAsync(p, stream));
        fact(n + ".launch_after_graph_destroy", cuGraphLaunch(x, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuGraphExecDestroy(x));
        CUdeviceptr q = 0;
        CUgraph h = captured([&] { q = take(MiB); });
        printf("%s.address_of_live_not_reused = %d\n", n.c_str(), p != q);
        MUST(cuMemFreeAsync(p, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuGraphDestroy(h));
        h = captured([&] { q = take(MiB); });
        printf("%s.address_after_free = %d\n", n.c_str(), p == q);
    });
}

// ---- User objects ----

static int destroyed;
static CUresult from_destructor;
static bool same_thread;
static std::thread::id caller;

static void CUDA_CB destructor(void *)
{
    destroyed++;
    same_thread = std::this_thread::get_id() == caller;
    CUdeviceptr p;
    from_destructor = cuMemAlloc(&p, 4096);
}

static CUuserObject make_object(unsigned references)
{
    CUuserObject object = nullptr;
    MUST(cuUserObjectCreate(&object, nullptr, destructor, references, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    return object;
}

static void settle()
{
    for (int i = 0; i < 200 && !destroyed; i++)
        usleep(1000);
}

static void user_objects()
{
    graph_scene("object", [](std::string n) {
        caller = std::this_thread::get_id();
        CUuserObject o;
        fact(n + ".no_flags", cuUserObjectCreate(&o, nullptr, destructor, 1, 0));
        fact(n + ".no_references", cuUserObjectCreate(&o, nullptr, destructor, 0, 1));
        fact(n + ".no_destructor", cuUserObjectCreate(&o, nullptr, nullptr, 1, 1));
        o = make_object(2);
        MUST(cuUserObjectRetain(o, 1));
        fact(n + ".release_two", cuUserObjectRelease(o, 2));
        printf("%s.after_two = %d\n", n.c_str(), destroyed);
        fact(n + ".release_last", cuUserObjectRelease(o, 1));
        printf("%s.at_once = %d\n", n.c_str(), destroyed);
        settle();
        printf("%s.after_last = %d same_thread=%d call=%s\n", n.c_str(), destroyed, same_thread,
               short_name(from_destructor).c_str());
    });
    graph_scene("object_in_graph", [](std::string n) {
        CUuserObject o = make_object(1);
        CUgraph g, clone;
        MUST(cuGraphCreate(&g, 0));
        fact(n + ".move_flags", cuGraphRetainUserObject(g, o, 1, 7));
        fact(n + ".move", cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
        fact(n + ".zero", cuGraphRetainUserObject(g, o, 0, 0));
        MUST(cuGraphClone(&clone, g));
        CUgraphExec x = ready(clone);
        MUST(cuGraphDestroy(g));
        usleep(20000);
        printf("%s.graph_gone = %d\n", n.c_str(), destroyed);
        MUST(cuGraphDestroy(clone));
        usleep(20000);
        printf("%s.clone_gone = %d\n", n.c_str(), destroyed);
        run(x);
        MUST(cuGraphExecDestroy(x));
        usleep(20000);
        printf("%s.exec_gone = %d\n", n.c_str(), destroyed);
        MUST(cuCtxSynchronize());
        settle();
        printf("%s.after_sync = %d\n", n.c_str(), destroyed);
    });
    graph_scene("object_released", [](std::string n) {
        CUuserObject o = make_object(1);
        CUgraph g;
        MUST(cuGraphCreate(&g, 0));
        MUST(cuGraphRetainUserObject(g, o, 1, 0));
        fact(n + ".release", cuGraphReleaseUserObject(g, o, 1));
        printf("%s.still = %d\n", n.c_str(), destroyed);
        fact(n + ".release_own", cuUserObjectRelease(o, 1));
        settle();
        printf("%s.gone = %d\n", n.c_str(), destroyed);
        MUST(cuGraphDestroy(g));
    });
    graph_scene("object_in_parent", [](std::string n) {
        CUuserObject o = make_object(1);
        CUgraph g, parent;
        CUgraphNode node;
        MUST(cuGraphCreate(&g, 0));
        MUST(cuGraphCreate(&parent, 0));
        MUST(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
        MUST(cuGraphAddChildGraphNode(&node, parent, nullptr, 0, g));
        MUST(cuGraphDestroy(g));
        usleep(20000);
        printf("%s.child_gone = %d\n", n.c_str(), destroyed);
        MUST(cuGraphDestroy(parent));
        settle();
        printf("%s.parent_gone = %d\n", n.c_str(), destroyed);
    });
    graph_scene("object_in_invalid_capture", [](std::string n) {
        CUuserObject o = make_object(1);
        CUgraph g;
        CUstreamCaptureStatus status;
        begin(stream);
        MUST(cuStreamGetCaptureInfo(stream, &status, nullptr, &g, nullptr, nullptr, nullptr));
        MUST(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
        cuStreamSynchronize(stream);
        printf("%s.invalid = %d\n", n.c_str(), destroyed);
        line(n + ".end", end_of(stream));
        settle();
        printf("%s.gone = %d\n", n.c_str(), destroyed);
    });
}

int main()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    graph_memory();
    user_objects();
    puts("done = 1");
}
